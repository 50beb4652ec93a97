"""The HTTP server on loopback: requests a second, rows a second, and reloads under fire.

    python benchmarks/http_serving.py [MODEL] [--seconds S] [--rounds N] [--json FILE]

Without MODEL, one of 2^22 slots is trained on random rows. One worker; the client is another process on the same
machine, with 16 connections that stay open. The ceiling is an application that reads the same body and answers with
constant bytes, under the same uvicorn, measured in turn with the server; the best round of each counts.

A worker is one core. What it would do with a core of its own is counted too: requests a second of the server's CPU
time, which other processes on the machine and the client beside it change less than the clock. Ratios are of these.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from lessram.data.batch import Batch
from lessram.data.formats import Reading
from lessram.learning.learner import Learner
from lessram.model.model import INTERCEPT, Model
from lessram.model.spec import Spec

CONNECTIONS = 16
FEATURES = 75
SLOTS = 1 << 22
REQUESTS, RELOADS = 10_000, 50

CEILING = """
import socket, sys, uvicorn
from starlette.applications import Starlette
from starlette.routing import Route

class Empty:
    async def __call__(self, scope, receive, send):
        while (await receive()).get("more_body"):
            pass
        headers = [(b"content-type", b"application/json"), (b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}"})

listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
print(f"at http://127.0.0.1:{listening.getsockname()[1]}", file=sys.stderr, flush=True)
app = Starlette(routes=[Route("/predict", Empty(), methods=["POST"])])
config = uvicorn.Config(app, log_level="error", access_log=False, server_header=False, ws="none")
uvicorn.Server(config).run(sockets=[listening])
"""


class Server(NamedTuple):
    port: int
    process: int

    def cpu_seconds(self) -> float:
        """What the process has used so far."""
        fields = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def running(*words: str) -> Iterator[Server]:
    """A server in a process of its own."""
    process = subprocess.Popen([sys.executable, *words], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        match = re.search(r"at http://127.0.0.1:(\d+)", line)
        if not match:
            raise SystemExit(line + process.stderr.read())
        wait_until_it_answers(int(match[1]))
        yield Server(int(match[1]), process.pid)
    finally:
        process.terminate()
        process.communicate()


def wait_until_it_answers(port: int) -> None:
    async def ask() -> None:
        await fire(port, [request("/predict", b"{}")], lambda sent: sent < 1, connections=1)

    asyncio.run(ask())


def request(path: str, body: bytes, kind: str = "application/json") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Connection(asyncio.Protocol):
    """Sends one request after the other and takes the answers apart."""

    def __init__(self, requests: Sequence[bytes], go_on: Callable[[], bool], done: Callable[[bytes], None]) -> None:
        self._requests, self._go_on, self._done = requests, go_on, done
        self._number, self._buffer, self._missing = 0, b"", -1
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._send()

    def _send(self) -> None:
        if self._go_on():
            self._transport.write(self._requests[self._number % len(self._requests)])
            self._number += 1
        else:
            self._transport.close()
            self.finished.set_result(None)

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        if self._missing < 0:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            at = self._buffer.index(b"content-length: ") + 16
            self._missing = end + 4 + int(self._buffer[at : self._buffer.index(b"\r", at)])
        if len(self._buffer) >= self._missing:
            answer, self._buffer, self._missing = self._buffer, b"", -1
            self._done(answer)
            self._send()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.finished.done():
            self.finished.set_exception(ConnectionError("the server closed a connection"))


async def fire(
    port: int,
    requests: Sequence[bytes],
    go_on: Callable[[int], bool],
    answered: Callable[[bytes], None] = lambda answer: None,
    connections: int = CONNECTIONS,
) -> list[float]:
    """Send requests while `go_on(number sent)`; the seconds that each took."""
    loop = asyncio.get_running_loop()
    took: list[float] = []
    sent = 0
    starts: dict[int, float] = {}

    def wanted(which: int) -> bool:
        nonlocal sent
        if not go_on(sent):
            return False
        sent += 1
        starts[which] = time.perf_counter()
        return True

    def done(which: int, answer: bytes) -> None:
        took.append(time.perf_counter() - starts[which])
        answered(answer)

    def connection(which: int) -> Connection:
        turned = [*requests[which % len(requests) :], *requests[: which % len(requests)]]
        return Connection(turned, lambda: wanted(which), lambda answer: done(which, answer))

    made = [await loop.create_connection(lambda i=i: connection(i), "127.0.0.1", port) for i in range(connections)]
    await asyncio.gather(*(protocol.finished for _, protocol in made))
    return took


def rate(server: Server, requests: Sequence[bytes], seconds: float, connections: int = CONNECTIONS) -> dict[str, float]:
    """Requests a second, by the clock and of the server's CPU time, and the time that most of them took."""

    def check(answer: bytes) -> None:
        if not answer.startswith(b"HTTP/1.1 200"):
            raise SystemExit(answer.decode())

    async def run() -> dict[str, float]:
        start, used = time.perf_counter(), server.cpu_seconds()
        took = await fire(server.port, requests, lambda sent: time.perf_counter() < start + seconds, check, connections)
        spent, used = time.perf_counter() - start, server.cpu_seconds() - used
        return {
            "per_second": len(took) / spent,
            "per_cpu_second": len(took) / used,
            "p50_ms": 1e3 * float(np.median(took)),
            "p99_ms": 1e3 * float(np.quantile(took, 0.99)),
        }

    return run_loop(run())


def run_loop(main: Any) -> Any:
    import uvloop

    return uvloop.run(main)


def make_model(path: Path, seed: int = 0, slots: int = SLOTS, rows: int = 20_000) -> None:
    rng = np.random.default_rng(seed)
    model = Model.new(Spec(slots=slots, seed=seed))
    model.reader = msgspec.to_builtins(Reading())
    ids = rng.integers(0, slots, rows * FEATURES).astype(np.uint32)
    labels = rng.integers(0, 2, rows).astype(np.float32)
    Learner(model).learn(Batch(labels, np.arange(0, rows * FEATURES + 1, FEATURES), ids))
    model.save(path)


def rows_of_slots(number: int, slots: int, seed: int = 1) -> list[list[int]]:
    return np.random.default_rng(seed).integers(0, slots, (number, FEATURES)).tolist()


def named(row: list[int]) -> dict[str, Any]:
    """75 features as a client would name them: two thirds categories, the rest numbers."""
    return {f"field{i}": f"v{x % 10_000}" if i % 3 else x / 1000 for i, x in enumerate(row)}


def single(rounds: int, seconds: float, server: Server, ceiling: Server, slots: int) -> dict[str, Any]:
    rows = rows_of_slots(64, slots)
    kinds = {
        "features": [request("/predict", msgspec.json.encode({"features": named(row)})) for row in rows],
        "slots": [request("/predict", msgspec.json.encode({"slots": row})) for row in rows],
    }
    best: dict[str, dict[str, float]] = {}
    for _ in range(rounds):
        for name, requests in kinds.items():
            for who, where in (("empty", ceiling), ("predict", server)):
                found = rate(where, requests, seconds)
                key = f"{who}_{name}"
                before = best.get(key, found)
                best[key] = {n: (max if "second" in n else min)(found[n], before[n]) for n in found}
    ratios = {
        f"ratio_{name}": best[f"predict_{name}"]["per_cpu_second"] / best[f"empty_{name}"]["per_cpu_second"]
        for name in kinds
    }
    return best | ratios


def batches(rounds: int, seconds: float, server: Server, slots: int, size: int = 2000) -> dict[str, Any]:
    """Rows a second by the form of the body, 75 features a row."""
    rows = rows_of_slots(size, slots)
    text = "\n".join("0 " + " ".join(map(str, row)) for row in rows).encode()
    bodies = {
        "svmlight_text": request("/batch", text, "text/plain"),
        "json_slots": request("/batch", msgspec.json.encode([{"slots": row} for row in rows])),
        "json_slots_values": request(
            "/batch", msgspec.json.encode([{"slots": row, "values": [x / 1000 for x in row]} for row in rows])
        ),
        "json_features": request("/batch", msgspec.json.encode([{"features": named(row)} for row in rows])),
    }
    best = {name: {"per_second": 0.0, "per_cpu_second": 0.0} for name in bodies}
    for _ in range(rounds):
        for name, body in bodies.items():
            found = rate(server, [body], seconds, connections=2)
            best[name] = {n: max(size * found[n], best[name][n]) for n in best[name]}
    return best


def reloads(folder: Path) -> dict[str, int]:
    """10,000 requests while the file is replaced 50 times: each answer must be that of the model which it names."""
    path = folder / "replaced"
    margins: dict[bytes, bytes] = {}
    for number in range(2):
        make_model(folder / str(number), number, slots=1 << 16, rows=1000)
    for number in range(RELOADS):  # two tables and 51 intercepts
        model = Model.load(folder / str(number % 2))
        model.scalars[INTERCEPT] = number
        model.save(folder / f"model{number}")
    shutil.copy(folder / "model0", path)
    row = request("/predict", msgspec.json.encode({"slots": rows_of_slots(1, 1 << 16)[0]}))
    counts = {"requests": 0, "lost": 0, "mixed": 0, "models": 0, "generations": 0}
    with running("-m", "lessram.cli.main", "serve", str(path), "--port", "0", "--poll", "0.01") as server:

        def answered(answer: bytes) -> None:
            if not answer.startswith(b"HTTP/1.1 200"):
                counts["lost"] += 1
                return
            model = re.search(rb"lessram-model: (\w+)", answer)
            counts["generations"] = max(counts["generations"], int(re.search(rb"generation: (\d+)", answer)[1]))
            body = answer.partition(b"\r\n\r\n")[2]
            counts["mixed"] += margins.setdefault(model[1], body) != body

        async def replace() -> None:
            for number in range(1, RELOADS + 1):
                shutil.copy(folder / f"model{number % RELOADS}", folder / "new")
                os.replace(folder / "new", path)
                while counts["generations"] < number + 1:
                    await asyncio.sleep(0.005)

        async def run() -> None:
            replacing = asyncio.create_task(replace())
            took = await fire(server.port, [row], lambda sent: sent < REQUESTS or not replacing.done(), answered)
            counts["requests"] = len(took)
            await replacing

        run_loop(run())
    counts["models"] = len(margins)
    counts["mixed"] += len(set(margins.values())) != len(margins)
    return counts


def sharing(model: Path) -> dict[str, float]:
    """Megabytes of the model's file that two workers have resident, each by itself and both together."""
    with running("-m", "lessram.cli.main", "serve", str(model), "--port", "0", "--workers", "2") as server:
        children = Path(f"/proc/{server.process}/task/{server.process}/children").read_text().split()
        maps = [Path(f"/proc/{child}/smaps").read_text() for child in children]
    found = [
        re.findall(rf"{re.escape(str(model))}\n.*?Rss: +(\d+) kB\nPss: +(\d+) kB", text, re.DOTALL) for text in maps
    ]
    workers = [entries for entries in found if entries]
    return {
        "workers": len(workers),
        "resident_mb": max(sum(int(rss) for rss, _ in entries) for entries in workers) / 1e3,
        "proportional_mb": sum(int(pss) for entries in workers for _, pss in entries) / 1e3,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--slots", type=int, default=SLOTS, help="slots of MODEL that rows draw from")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = options.model or folder / "model"
        if options.model is None:
            make_model(model)
        serve = ("-m", "lessram.cli.main", "serve", str(model), "--port", "0")
        with running(*serve) as server, running("-c", CEILING) as empty:
            found: dict[str, Any] = {"single": single(options.rounds, options.seconds, server, empty, options.slots)}
            found["batch_rows"] = batches(options.rounds, options.seconds, server, options.slots)
        found["sharing"] = sharing(model)
        found["reloads"] = reloads(folder)
    print(json.dumps(found, indent=2))
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
