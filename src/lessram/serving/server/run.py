"""Sockets, worker processes, signals: the application under uvicorn.

The listening socket is made once and shared; so are the pages of the mapped model, by the operating system. SIGTERM and
Ctrl-C end the server gracefully: no new connections, requests in flight are finished.
"""

from __future__ import annotations

import contextlib
import logging.config
import math
import multiprocessing.connection
import os
import queue
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from lessram.errors import LessramError, SpecError
from lessram.serving.server.app import make_app
from lessram.serving.server.http import Limits
from lessram.serving.server.loaded import Loaded, Opener, load
from lessram.serving.server.metrics import FOLDER, forget_worker

log = logging.getLogger("lessram.serve")

_LOOK = 0.5
"""Seconds between two looks whether all workers live."""
_TO_END = 10
"""Seconds that a worker may take to end when nothing is in flight any more."""
_FAILURES, _MEMORY = 5, 60
"""How many workers may fail by themselves within so many seconds before others wait to be started."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How to serve."""

    host: str = "127.0.0.1"
    port: int = 8000
    """0 for any free one."""
    workers: int = 1
    limits: Limits = Limits()
    poll: float = 1.0
    """Seconds between two looks at the file."""
    verify: bool = True
    """Whether to compare all checksums of a model before it is served."""
    access_log: bool = False

    @property
    def patience(self) -> int:
        """Seconds that requests in flight are given when the server is told to stop."""
        return math.ceil(2 * self.limits.seconds) + 1

    def __post_init__(self) -> None:
        if not 0 <= self.port < 1 << 16:
            raise SpecError(f"port must be between 0 and 65535, got {self.port}")
        if self.workers < 1:
            raise SpecError(f"workers must be at least 1, got {self.workers}")
        for name, value in (("max-body", self.limits.body), ("timeout", self.limits.seconds), ("poll", self.poll)):
            if not 0 < value < math.inf:
                raise SpecError(f"{name} must be above 0 and finite, got {value:g}")


def serve(path: str, opener: Opener, settings: Settings) -> None:
    """Serve a model file until told to stop. `opener` is called by every worker: a function of a module."""
    try:
        import prometheus_client  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise LessramError(f"the server needs {error.name}: pip install 'lessram[serve]'") from None

    logging.config.dictConfig(LOGGING)
    first = load(path, opener, verify=settings.verify)  # what is wrong with the file is said before any worker starts
    with _listen(settings.host, settings.port) as listening:
        host, port = listening.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        log.info("serving %s (checksum %s) at http://%s:%d", path, first.checksum[:16], shown, port)
        if settings.workers == 1:
            work(path, opener, settings, listening, first)
        else:
            _supervise(path, opener, settings, listening)
    log.info("stopped")


def work(path: str, opener: Opener, settings: Settings, listening: socket.socket, first: Loaded | None = None) -> None:
    """Answer requests in this process until a signal comes, then finish those in flight."""
    import uvicorn

    logging.config.dictConfig(LOGGING)
    _end_with_parent()
    first = first or load(path, opener, verify=settings.verify)
    app = make_app(first, path, opener, limits=settings.limits, poll=settings.poll, verify=settings.verify)
    config = uvicorn.Config(
        app,
        access_log=settings.access_log,
        log_config=None,
        server_header=False,
        lifespan="on",
        ws="none",
        timeout_graceful_shutdown=settings.patience,
    )
    server = uvicorn.Server(config)

    def stop() -> None:
        server.should_exit = True

    # uvicorn listens to signals itself, but only once it runs: one that comes before must not be lost. And it raises
    # the signal that ended it once more: being told to stop is no failure.
    with _told_to_stop(stop):
        server.run(sockets=[listening])


def _end_with_parent() -> None:
    """A worker whose supervisor was killed is told to stop: nobody else would tell it."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def wait() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


class Worker(NamedTuple):
    """A process that answers, and since when."""

    process: Any
    born: float


class Failure(NamedTuple):
    """A worker that ended by itself, not killed by a signal."""

    moment: float
    code: int


def _work_alone(path: str, opener: Opener, settings: Settings, listening: socket.socket) -> None:
    """`work` as the whole of a process: what is wrong with the model is said in one line."""
    try:
        work(path, opener, settings, listening)
    except LessramError as error:
        log.error("%s", error)
        raise SystemExit(1) from None


def _supervise(path: str, opener: Opener, settings: Settings, listening: socket.socket) -> None:
    """Keep so many workers alive until told to stop, then let each finish."""
    context = multiprocessing.get_context("spawn")
    told: queue.SimpleQueue[None] = queue.SimpleQueue()  # a signal may come while it is asked; an Event would lock up

    def start() -> Worker:
        process = context.Process(target=_work_alone, args=(path, opener, settings, listening))
        process.start()
        return Worker(process, time.monotonic())

    with _told_to_stop(lambda: told.put(None)), tempfile.TemporaryDirectory(prefix="lessram-metrics-") as folder:
        os.environ[FOLDER] = folder  # for workers only: this process has imported nothing that looks at it
        workers = [start() for _ in range(settings.workers)]
        failed: list[Failure] = []
        try:
            while not _comes(told, _LOOK):
                workers = _living(workers, failed)
                while len(workers) < settings.workers and _may_start(workers, failed):
                    log.info("starting another worker")
                    workers.append(start())
        finally:
            for process, _ in workers:
                process.terminate()  # SIGTERM: it finishes what is in flight
            for process, _ in workers:
                process.join(settings.patience + _TO_END)
                process.kill()  # one that ended does not mind
                process.join()
            del os.environ[FOLDER]


def _comes(told: queue.SimpleQueue[None], seconds: float) -> bool:
    """Whether something comes within so many seconds."""
    try:
        told.get(timeout=seconds)
    except queue.Empty:
        return False
    return True


def _living(workers: list[Worker], failed: list[Failure]) -> list[Worker]:
    """The workers that live; of the others, adds those to `failed` that did."""
    living = []
    for worker in workers:
        process = worker.process
        if process.is_alive():
            living.append(worker)
            continue
        log.error("worker %d ended with code %s", process.pid, process.exitcode)
        forget_worker(process.pid)
        if process.exitcode > 0:
            failed.append(Failure(time.monotonic(), process.exitcode))
    return living


def _may_start(workers: list[Worker], failed: list[Failure]) -> bool:
    """Whether to start another worker now. If they fail again and again, others would too.

    A worker that is older than these failures answers, perhaps from a model whose file was since replaced by a damaged
    one. It goes on, and others are started as failures are forgotten.
    """
    now = time.monotonic()
    failed[:] = [failure for failure in failed if now - failure.moment < _MEMORY]
    if len(failed) <= _FAILURES:
        return True
    if any(worker.born < failed[0].moment for worker in workers):
        return False
    raise LessramError(
        f"{len(failed)} workers failed within {_MEMORY} seconds, the last with code {failed[-1].code}: giving up"
    )


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        reason = (
            os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        )  # names give errors below 0
        raise LessramError(f"cannot listen at {host}, port {port}: {reason}") from None


@contextlib.contextmanager
def _told_to_stop(stop: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and Ctrl-C call this, instead of ending the process."""
    before = {number: signal.signal(number, lambda *_: stop()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(asctime)s %(levelname)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "loggers": {
        "lessram.serve": {"handlers": ["stderr"], "level": "INFO", "propagate": False},
        "uvicorn": {"handlers": ["stderr"], "level": "WARNING", "propagate": False},
        "uvicorn.access": {"handlers": ["stderr"], "level": "INFO", "propagate": False},
    },
}
