"""`lessram serve` as a process: signals, workers, messages, exit codes."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the server needs lessram[serve]")

import uvicorn
from serving_http import Answer, Client, open_nowhere_but_here, small_model, wait_for

from lessram.cli.serve import open_model
from lessram.errors import LessramError
from lessram.serving.server import run

BODY = b'{"slots": [1, 2, 3]}'


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served") / "model.lessram"
    small_model().save(path)
    return path


class Running:
    """A server in a process of its own."""

    def __init__(self, model: Path, *options: str) -> None:
        command = [sys.executable, "-m", "lessram.cli.main", "serve", str(model), *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.first = self.process.stderr.readline()
        match = re.search(r"at http://127.0.0.1:(\d+)$", self.first)
        if match is None:
            self.process.kill()
        assert match, self.first + self.process.stderr.read()
        self.port = int(match[1])

    def end(self) -> tuple[int, str]:
        self.process.terminate()
        _, log = self.process.communicate(timeout=120)
        return self.process.returncode, log


@contextlib.contextmanager
def running(model: Path, *options: str) -> Iterator[Running]:
    server = Running(model, "--port", "0", *options)
    try:
        yield server
    finally:
        server.process.kill()  # which its workers notice
        server.process.communicate(timeout=120)


def ask(port: int, method: str, path: str, body: bytes | None = None) -> Answer:
    with contextlib.closing(Client(port)) as client:
        return client.ask(method, path, body)


def answers(port: int) -> bool:
    try:
        return ask(port, "GET", "/healthz").status == 200
    except OSError:
        return False


def test_a_request_in_flight_is_finished_when_the_server_is_told_to_stop(model: Path) -> None:
    with running(model, "--access-log") as server:
        wait_for(lambda: answers(server.port))
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
            head = b"POST /predict HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: %d\r\n\r\n"
            connection.sendall(head % len(BODY))
            begun = b"HTTP/1.1 100 Continue\r\n\r\n"
            assert connection.recv(len(begun), socket.MSG_WAITALL) == begun, "it waits for the body"
            connection.sendall(BODY[:5])
            server.process.send_signal(signal.SIGTERM)
            wait_for(lambda: not answers(server.port))
            connection.sendall(BODY[5:])
            answer = connection.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 200 OK")
        assert b'"margin":' in answer
        code, log = server.end()
    assert code == 0
    assert log.rstrip().endswith("stopped")
    assert "GET /healthz" in log


def test_several_workers_answer_and_are_replaced_when_they_die(model: Path) -> None:
    with running(model, "--workers", "2") as server:
        wait_for(lambda: answers(server.port))
        expected = ask(server.port, "POST", "/predict", BODY)
        assert expected.status == 200
        children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
        if children.exists():
            wait_for(lambda: len(workers(children)) == 2)
            first, _ = workers(children)
            os.kill(first, signal.SIGKILL)
            wait_for(lambda: first not in workers(children) and len(workers(children)) == 2)
            wait_for(lambda: answers(server.port))
        for _ in range(6):
            assert ask(server.port, "POST", "/predict", BODY).body == expected.body
        metrics = ask(server.port, "GET", "/metrics").body
        count = re.search(r'lessram_requests_total{endpoint="predict",status="200"} ([\d.]+)', metrics)
        assert float(count[1]) in (6, 7), "workers count together; one that was killed may take its count along"
        assert re.search(r'lessram_model_generation{pid="\d+"} 1.0', metrics)
        code, log = server.end()
    assert code == 0
    assert log.rstrip().endswith("stopped")


def test_workers_end_with_a_supervisor_that_was_killed(model: Path) -> None:
    with running(model, "--workers", "2") as server:
        wait_for(lambda: answers(server.port))
        server.process.kill()
        wait_for(lambda: not answers(server.port))


def test_a_signal_that_comes_before_the_server_runs_is_not_lost(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve = uvicorn.Server.run

    def told_at_once(*words: Any, **options: Any) -> None:
        signal.raise_signal(signal.SIGTERM)
        serve(*words, **options)

    monkeypatch.setattr(uvicorn.Server, "run", told_at_once)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        run.work(str(model), open_model, run.Settings(), listening)  # would not return


def workers(children: Path) -> list[int]:
    """The workers among the children of a process."""
    found = []
    for pid in map(int, children.read_text().split()):
        with contextlib.suppress(FileNotFoundError):  # it may end between two looks
            if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def refused(*words: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "lessram.cli.main", "serve", *words]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return result.returncode, result.stderr


def test_what_cannot_be_served_is_said_in_one_line(model: Path, tmp_path: Path) -> None:
    (tmp_path / "foreign").write_bytes(b"nonsense")
    code, message = refused(str(tmp_path / "foreign"))
    assert (code, message) == (
        1,
        f"lessram: {tmp_path / 'foreign'}: not a lessram model: found no safetensors header\n",
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, message = refused(str(model), "--port", port)
    assert (code, message) == (1, f"lessram: cannot listen at 127.0.0.1, port {port}: Address already in use\n")
    code, message = refused(str(model), "--workers", "0")
    assert (code, message) == (2, "lessram: workers must be at least 1, got 0\n")


def test_workers_go_on_when_no_other_can_be_started_from_the_file(model: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copy(model, tmp_path / "model"))
    with running(copy, "--workers", "2") as server:
        children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
        if not children.exists():
            pytest.skip("finding workers takes /proc")
        wait_for(lambda: answers(server.port) and len(workers(children)) == 2)
        (tmp_path / "foreign").write_bytes(b"nonsense")
        os.replace(tmp_path / "foreign", copy)
        known = set(workers(children))
        os.kill(min(known), signal.SIGKILL)
        wait_for(lambda: set(workers(children)) - known)
        [another, *_] = set(workers(children)) - known
        wait_for(lambda: another not in workers(children))
        assert answers(server.port)
        code, log = server.end()
    assert code == 0
    assert f"ERROR {copy}: not a lessram model: found no safetensors header" in log
    assert "Traceback" not in log


def test_workers_wait_where_an_older_one_answers_and_give_up_where_none_does() -> None:
    now = time.monotonic()
    failed = [run.Failure(now - 100, 1), *(run.Failure(now - age, 2) for age in (9, 8, 7, 6, 5))]
    newer, older = run.Worker(None, now - 8.5), run.Worker(None, now - 50)
    assert run._may_start([newer], failed), "a failure that is long past is forgotten"
    failed.append(run.Failure(now - 1, 3))
    assert not run._may_start([newer, older], failed)
    with pytest.raises(LessramError, match="6 workers failed within 60 seconds, the last with code 3: giving up"):
        run._may_start([newer], failed)


def test_workers_that_fail_again_and_again_end_the_server(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_FAILURES", 1)  # five take the time of six starts
    some = r"[23] workers failed within 60 seconds, the last with code 3: giving up"  # two may fail between two looks
    with pytest.raises(LessramError, match=some):
        run.serve(str(model), open_nowhere_but_here, run.Settings(port=0, workers=2))
