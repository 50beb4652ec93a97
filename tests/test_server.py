"""The server as a client meets it: predictions, errors, limits, metrics, explanations, models that are replaced."""

from __future__ import annotations

import json
import os
import shutil
import socket
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("uvicorn", reason="the server needs lessram[serve]")

from commands import lessram
from serving_http import SLOTS, Client, serving, small_model, wait_for

from lessram.cli.serve import open_model
from lessram.data.formats import Reading
from lessram.data.schema import Schema
from lessram.serving.server.http import Limits

CSV = "click,site,price,review\n" + "".join(
    f"{i % 2},{('rome', 'oslo', 'bonn')[i % 3]},{i % 7 / 4},{('a great film', 'a dull dull film')[i % 2]}\n"
    for i in range(300)
)
VW = "".join(
    f"{1 if i % 2 else -1} |user age:{20 + i % 11} city={('rome', 'oslo')[i % 3 % 2]} |page {('x', 'y z')[i % 2]}\n"
    for i in range(300)
)
SVMLIGHT = "".join(f"{i % 2} {1 + i % 5}:{1 + i % 3} {100 + i % 50}:0.5 {10**9 + i % 7}:1\n" for i in range(300))


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("numbered") / "model.lessram"
    small_model().save(path)
    return path


@pytest.fixture(scope="module")
def client(numbered: Path):
    with serving(numbered) as client:
        yield client


# Predictions ----------------------------------------------------------------------------------------------------------


def predicted(model: Path, data: Path, *options: str) -> list[dict[str, float]]:
    result = lessram("predict", model, data, "--json", *options)
    assert result.code == 0, result.err
    return [json.loads(line) for line in result.out.splitlines()]


def as_rows(body: dict[str, list[float]]) -> list[dict[str, float]]:
    pairs = zip(body["margins"], body["probabilities"], strict=True)
    return [{"margin": margin, "probability": probability} for margin, probability in pairs]


def trained(folder: Path, name: str, text: str, *options: str) -> tuple[Path, Path]:
    data, model = folder / name, folder / "model"
    data.write_text(text)
    result = lessram("train", data, "-o", model, "--bits", "12", "--threads", "1", "-q", *options)
    assert result.code == 0, result.err
    return data, model


def test_svmlight_rows_get_the_predictions_of_the_command(tmp_path: Path) -> None:
    data, model = trained(tmp_path, "rows.svm", SVMLIGHT)
    expected = predicted(model, data)
    with serving(model) as client:
        assert as_rows(client.post("/batch", data.read_bytes(), "text/plain").body) == expected
        features = [dict(word.split(":") for word in line.split()[1:]) for line in SVMLIGHT.splitlines()]
        rows = [{"features": {index: float(value) for index, value in row.items()}} for row in features]
        assert as_rows(client.post("/batch", rows).body) == expected
        for row, one in zip(rows[:20], expected, strict=False):
            answer = client.post("/predict", row)
            assert (answer.status, answer.body) == (200, one)
        line = SVMLIGHT.splitlines()[7].encode()
        assert client.post("/predict", line, "text/plain; charset=utf-8").body == expected[7]


def test_vowpal_wabbit_rows_get_the_predictions_of_the_command(tmp_path: Path) -> None:
    data, model = trained(tmp_path, "rows.vw", VW, "--interactions", "up")
    expected = predicted(model, data)
    with serving(model) as client:
        assert as_rows(client.post("/batch", data.read_bytes(), "text/plain").body) == expected
        row = {"features": {"user": {"age": 20, "city": "rome"}, "page": {"x": 1}}}
        assert client.post("/predict", row).body == expected[0]
        explanation = client.post("/explain", row).body
        assert explanation["rest"] != 0, "products of namespaces belong to no single part"
        text = client.post("/explain", VW.splitlines()[0].encode(), "text/plain").body
        assert adds_up(explanation)
        assert adds_up(text)
        assert {part["name"] for part in text["parts"]} == {"user^age:20", "user^city=rome", "page^x"}


def test_table_rows_get_the_predictions_of_the_command(tmp_path: Path) -> None:
    data, model = trained(tmp_path, "rows.csv", CSV, "--label", "click", "--text", "review")
    expected = predicted(model, data)
    names, *lines = [line.split(",", 3) for line in CSV.splitlines()]
    rows = [dict(zip(names, line, strict=True)) for line in lines]
    for row in rows:
        del row["click"]
    with serving(model) as client:
        assert as_rows(client.post("/batch", rows).body) == expected
        body = b"\n".join(json.dumps(row).encode() for row in rows)
        assert as_rows(client.post("/batch", body, "application/x-ndjson").body) == expected
        assert client.post("/predict", rows[5]).body == expected[5]
        explanation = client.post("/explain", rows[1]).body
        assert adds_up(explanation)
        assert {part["name"] for part in explanation["parts"]} == {
            "site = oslo",
            "price = 0.25",
            "review: a",
            "review: dull",
            "review: film",
        }
        assert client.get("/model").body["columns"] == {"site": "categorical", "price": "numeric", "review": "text"}
        blank = client.post("/explain", {"site": "", "price": 0.25, "review": None}).body
        assert [part["name"] for part in blank["parts"]] == ["price = 0.25"], "empty cells are no parts"


def adds_up(explanation: dict[str, Any]) -> bool:
    parts = sum(part["contribution"] for part in explanation["parts"])
    return np.isclose(explanation["margin"], explanation["intercept"] + parts + explanation["rest"])


def test_a_compressed_model_is_served_as_it_lies_on_disk(tmp_path: Path) -> None:
    data, model = trained(tmp_path, "rows.svm", SVMLIGHT)
    assert lessram("compress", model, "-o", tmp_path / "served", "--grid", "q2.7", "-q").code == 0
    expected = predicted(tmp_path / "served", data)
    assert expected != predicted(model, data)
    with serving(tmp_path / "served") as client:
        assert as_rows(client.post("/batch", data.read_bytes(), "text/plain").body) == expected
        os.replace(model, tmp_path / "served")  # back to the trained one, under the server's eyes
        wait_for(lambda: client.get("/healthz").body["generation"] == 2)
        assert as_rows(client.post("/batch", data.read_bytes(), "text/plain").body) != expected


def test_a_model_without_probabilities_gives_none(tmp_path: Path) -> None:
    small_model(loss="squared", alpha=0.01).save(tmp_path / "model")
    with serving(tmp_path / "model") as client:
        answer = client.post("/predict", {"slots": [1]})
        assert answer.status == 200
        assert answer.body["probability"] is None
        assert client.post("/batch", [{"slots": [1]}]).body == {
            "margins": [answer.body["margin"]],
            "probabilities": None,
        }


def test_slots_are_explained_one_by_one(client: Client) -> None:
    answer = client.post("/explain", {"slots": [3, 4], "values": [1, 2]}).body
    assert adds_up(answer)
    assert {part["name"] for part in answer["parts"]} == {"slot 3", "slot 4"}
    sizes = [abs(part["contribution"]) for part in answer["parts"]]
    assert sizes == sorted(sizes, reverse=True)
    double = client.post("/explain", {"slots": [3], "values": [2]}).body["parts"][0]["contribution"]
    single = client.post("/explain", {"slots": [3]}).body["parts"][0]["contribution"]
    assert np.isclose(double, 2 * single)


def test_what_only_the_explanation_cannot_read_is_refused_by_it(tmp_path: Path) -> None:
    """A cell of a column that the model does not know is no concern of predictions."""
    schema = Schema(columns=("click", "site"), kinds=("label", "categorical"))
    small_model(reading=Reading(schema=schema)).save(tmp_path / "model")
    with serving(tmp_path / "model") as client:
        body = b'{"site": "rome", "junk": 1e400}'
        assert client.post("/predict", body).status == 200
        answer = client.post("/explain", body)
        assert (answer.status, answer.body["error"][:27]) == (400, "found JSON that will not do")


# Errors and limits ----------------------------------------------------------------------------------------------------


def test_bad_requests_are_answered_in_json(client: Client) -> None:
    answer = client.post("/batch", b'[{"slots": [1]}, {"slots": [99999]}]')
    assert answer.status == 400
    assert answer.body == {"error": f"row 1: found slot 99999, expected 0 to {SLOTS - 1}"}
    assert client.post("/predict", b"1 3\n0 4\n", "text/plain").body["error"].startswith("found 2 rows, expected one")
    assert client.post("/explain", b"", "text/plain").body["error"].startswith("found 0 rows, expected one")
    unknown = client.post("/predict", b"<row/>", "text/xml")
    assert (unknown.status, unknown.headers["connection"]) == (415, "close")
    assert "found Content-Type text/xml, expected application/json" in unknown.body["error"]
    assert client.get("/predict").status == 405
    assert client.get("/nowhere").body == {"error": "GET /nowhere: Not Found"}


def test_a_packed_body_is_refused(client: Client) -> None:
    request = b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\n{}"
    assert b"415" in raw(client.port, request).splitlines()[0]


@pytest.mark.parametrize(
    "request_head", [b"content-length: x\r\n\r\n", b"transfer-encoding: chunked\r\n\r\nzz\r\n", b"no header\r\n\r\n"]
)
def test_what_is_no_http_is_answered_in_plain_text(client: Client, request_head: bytes) -> None:
    """As the documentation says: it is not the application that answers."""
    answer = raw(client.port, b"POST /predict HTTP/1.1\r\nhost: x\r\n" + request_head)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: text/plain" in answer
    assert answer.endswith(b"Invalid HTTP request received.")


def test_a_head_that_is_not_whole_is_waited_for(numbered: Path) -> None:
    with serving(numbered, limits=Limits(seconds=0.2)) as client:
        answer = raw(client.port, b"GET /heal", b"thz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", pause=1.0)
    assert answer.startswith(b"HTTP/1.1 200 ")


def raw(port: int, *parts: bytes, pause: float = 0.0) -> bytes:
    """What comes back for bytes sent by hand, until the connection is closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        for part in parts:
            connection.sendall(part)
            time.sleep(pause)
        return connection.makefile("rb").read()  # all of these are refused, and the connection closed


def test_large_bodies_are_refused(numbered: Path) -> None:
    with serving(numbered, limits=Limits(body=1000)) as client:
        assert client.post("/batch", b"[" + b" " * 998 + b"]").body == {"margins": [], "probabilities": []}
        declared = client.post("/batch", b"[" + b" " * 999 + b"]")
        assert (declared.status, declared.headers["connection"]) == (413, "close")
        assert declared.body["error"] == "found a body of 1001 bytes or more, expected at most 1000"
        head = b"POST /batch HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
        pieces = b"258\r\n" + b" " * 600 + b"\r\n"
        assert b"413" in raw(client.port, head, pieces, pieces, pause=0.1).splitlines()[0]


class Slow:
    """A model that takes its time with several rows: as much as it is given."""

    patience = threading.Event()

    def __init__(self, path: str) -> None:
        model: Any = open_model(path)
        self.slots, self.loss, self.reading, self._predict = model.slots, model.loss, model.reading, model.predict

    def predict(self, batch: Any, *, trusted: bool = False) -> Any:
        if batch.rows > 1:
            self.patience.wait()
        return self._predict(batch, trusted=trusted)


def test_slow_bodies_and_slow_answers_are_given_up(numbered: Path) -> None:
    with serving(numbered, limits=Limits(seconds=1.5), opener=Slow) as client:
        head = b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n"
        answer = raw(client.port, head, b"{")
        assert b"408" in answer.splitlines()[0]
        assert b"found 1 of 100 bytes of the body after 1.5 s, expected all of it" in answer
        try:
            slow = client.post("/batch", [{"slots": [1]}] * 2000)
        finally:
            Slow.patience.set()
        assert slow.status == 503
        assert "found no end of the computation after 1.5 s" in slow.body["error"]
        assert client.post("/predict", {"slots": [1]}).status == 200


def test_an_unexpected_failure_is_logged_and_answered(
    numbered: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(numbered) as client:
        monkeypatch.setattr("lessram.serving.server.app.probability", None)
        answer = client.post("/predict", {"slots": [1]})
    assert (answer.status, answer.body) == (500, {"error": "the server failed; its log says why"})
    assert "predict failed" in caplog.text


def test_metrics_count_what_happened(numbered: Path) -> None:
    with serving(numbered) as client:
        client.post("/predict", {"slots": [1]})
        client.post("/predict", {"slot": [1]})
        client.post("/batch", [{"slots": [1]}] * 5)
        answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    figures = dict(line.rsplit(" ", 1) for line in answer.body.splitlines() if not line.startswith("#"))
    assert figures['lessram_requests_total{endpoint="predict",status="200"}'] == "1.0"
    assert figures['lessram_requests_total{endpoint="predict",status="400"}'] == "1.0"
    assert figures['lessram_request_seconds_count{endpoint="predict"}'] == "2.0"
    assert figures["lessram_rows_total"] == "6.0"
    assert figures["lessram_model_generation"] == "1.0"
    assert figures['lessram_reloads_total{result="started"}'] == "1.0"


# Models that are replaced ---------------------------------------------------------------------------------------------


def test_no_request_is_lost_or_answered_by_a_mixture(tmp_path: Path) -> None:
    """Clients hammer while the file is replaced; each answer must be that of the model which it names."""
    path = tmp_path / "model"
    rows = [{"slots": list(range(i, SLOTS, 97))} for i in range(3)]
    expected: dict[str, list[float]] = {}
    for seed in range(8):
        small_model(seed).save(tmp_path / str(seed))
        with serving(tmp_path / str(seed)) as client:
            answer = client.post("/batch", rows)
            expected[answer.headers["lessram-model"]] = answer.body["margins"]
    assert len({tuple(margins) for margins in expected.values()}) == 8
    shutil.copy(tmp_path / "0", path)
    stop = threading.Event()
    answers: list[tuple[int, Any, str, int]] = []
    with serving(path) as client:

        def hammer() -> None:
            own = Client(client.port)
            while not stop.is_set():
                answer = own.post("/batch", rows)
                generation = int(answer.headers["lessram-generation"])
                answers.append((answer.status, answer.body, answer.headers["lessram-model"], generation))
            own.close()

        threads = [threading.Thread(target=hammer) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for seed in range(1, 8):
                shutil.copy(tmp_path / str(seed), tmp_path / "new")
                os.replace(tmp_path / "new", path)
                wait_for(lambda seed=seed: answers and answers[-1][3] == seed + 1)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    assert all(status == 200 for status, _, _, _ in answers)
    assert all(body["margins"] == expected[model] for _, body, model, _ in answers)
    assert {model for _, _, model, _ in answers} == set(expected)


def test_a_damaged_file_is_refused_and_the_old_model_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "model"
    small_model(1).save(path)
    whole = path.read_bytes()
    with serving(path) as client:
        first = client.post("/predict", {"slots": [1]})
        flipped = bytearray(whole)
        flipped[-100] ^= 1
        for number, content in enumerate([bytes(flipped), whole[:-7], b"nonsense"]):
            (tmp_path / "new").write_bytes(content)
            os.replace(tmp_path / "new", path)
            wait_for(lambda number=number: caplog.text.count("refused: ") == number + 1)
            again = client.post("/predict", {"slots": [1]})
            assert (again.body, again.headers["lessram-model"]) == (first.body, first.headers["lessram-model"])
        path.unlink()
        wait_for(lambda: "is gone" in caplog.text)
        assert client.post("/predict", {"slots": [1]}).body == first.body
        small_model(2).save(path)
        wait_for(lambda: client.get("/healthz").body["generation"] == 2)
        assert client.post("/predict", {"slots": [1]}).body != first.body
        assert 'lessram_reloads_total{result="refused"} 3.0' in client.get("/metrics").body
    assert "the checksum of tensor" in caplog.text
