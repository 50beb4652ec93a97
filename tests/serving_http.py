"""A server in a thread and a client that speaks plain HTTP, for tests."""

from __future__ import annotations

import http.client
import json
import multiprocessing
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import uvicorn

from lessram.cli.serve import open_model
from lessram.data.batch import Batch
from lessram.data.formats import Reading
from lessram.learning.learner import Learner
from lessram.model.model import Model
from lessram.model.spec import Spec
from lessram.serving.server.app import make_app
from lessram.serving.server.http import Limits
from lessram.serving.server.loaded import load

SLOTS = 1 << 12


class Answer(NamedTuple):
    status: int
    body: Any
    headers: dict[str, str]


class Client:
    """One connection that stays open."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Answer:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        self._connection.request(method, path, data, {"content-type": kind} if data is not None else {})
        response = self._connection.getresponse()
        content = response.read()
        is_json = response.headers["content-type"] == "application/json"
        return Answer(response.status, json.loads(content) if is_json else content.decode(), dict(response.headers))

    def post(self, path: str, body: Any, kind: str = "application/json") -> Answer:
        return self.ask("POST", path, body, kind)

    def get(self, path: str) -> Answer:
        return self.ask("GET", path)

    def close(self) -> None:
        self._connection.close()


@contextmanager
def serving(path: Path, *, limits: Limits | None = None, poll: float = 0.01, opener=open_model) -> Iterator[Client]:
    """Serve a file from a thread of this process."""
    app = make_app(load(str(path), opener), str(path), opener, limits=limits or Limits(), poll=poll)
    config = uvicorn.Config(app, log_config=None, lifespan="on", ws="none", timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        client = Client(listening.getsockname()[1])
        try:
            wait_for(lambda: server.started)
            yield client
        finally:
            client.close()
            server.should_exit = True
            thread.join()


def wait_for(condition: Any, seconds: float = 60.0) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


def small_model(seed: int = 0, reading: Reading | None = None, **spec: Any) -> Model:
    """A model of numbered ids that learned something from noise."""
    rng = np.random.default_rng(seed)
    model = Model.new(Spec(slots=SLOTS, seed=seed, **spec))
    model.reader = msgspec.to_builtins(reading or Reading())
    slots = rng.integers(0, SLOTS, 20_000).astype(np.uint32)
    values = rng.uniform(0.5, 2.0, 20_000).astype(np.float32)
    labels = rng.integers(0, 2, 1000).astype(np.float32)
    Learner(model).learn(Batch(labels, np.arange(0, 20_001, 20), slots, values))
    return model


def open_nowhere_but_here(path: str) -> Any:
    """Opens a model for the supervisor; every worker fails."""
    if multiprocessing.parent_process() is not None:
        raise SystemExit(3)
    return open_model(path)
