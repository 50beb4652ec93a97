"""The command line as a user meets it: results, figures, messages, exit codes, interruptions."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from commands import Result, lessram
from test_source import example_text

from lessram.model import file
from lessram.model.model import Model

REPOSITORY = Path(__file__).parent.parent
SMALL = ("--bits", "12", "--threads", "2")

TRAIN_KEYS = {"examples", "skipped", "log_loss", "error_rate", "auc", "calibration", "features", "slots"} | {
    "bits_per_slot",
    "table_bytes",
    "peak_rss_bytes",
    "seconds",
    "examples_per_second",
    "features_per_second",
}
INFO_KEYS = {"kind", "spec", "slots", "seen", "nonzero", "bits_per_slot", "bits_per_nonzero"} | {
    "entropy_bits_per_slot",
    "resident_bytes",
    "file_bytes",
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data.svm"
    path.write_bytes(example_text(400))
    return path


@pytest.fixture
def model(data: Path, tmp_path: Path) -> Path:
    path = tmp_path / "model"
    assert lessram("train", data, "-o", path, *SMALL, "-q").code == 0
    return path


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


# Happy paths ----------------------------------------------------------------------------------------------------------


def test_train_evaluate_predict_info(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "model"
    trained = lessram("train", data, "-o", path, *SMALL, "--json")
    figures = json.loads(trained.out)
    assert (trained.code, trained.out.count("\n")) == (0, 1)
    assert figures.keys() >= TRAIN_KEYS
    assert (figures["examples"], figures["skipped"], figures["slots"]) == (400, 0, 4096)
    assert figures["table_bytes"] * 8 == figures["bits_per_slot"] * figures["slots"]
    # The very first run on a machine says that it compiles.
    shown = [line for line in trained.err.splitlines() if not line.startswith("compiling")]
    assert shown[0].split()[:2] == ["examples", "log-loss"]

    evaluated = lessram("evaluate", path, data, "--json", "--quiet")
    assert (evaluated.code, evaluated.err) == (0, "")
    assert json.loads(evaluated.out).keys() >= TRAIN_KEYS
    assert json.loads(evaluated.out)["log_loss"] < figures["log_loss"]

    predicted = lessram("predict", path, data)
    numbers = [float(line) for line in predicted.out.splitlines()]
    assert (predicted.code, predicted.err, len(numbers)) == (0, "", 400)
    assert all(0 <= number <= 1 for number in numbers)
    margins = [float(line) for line in lessram("predict", path, data, "--margins").out.splitlines()]
    assert np.allclose(numbers, 1 / (1 + np.exp(-np.array(margins))), atol=1e-8)
    pairs = [json.loads(line) for line in lessram("predict", path, data, "--json").out.splitlines()]
    assert [f"{pair['margin']:.9g}" for pair in pairs] == [f"{margin:.9g}" for margin in margins]
    assert lessram("predict", path, data, "-o", tmp_path / "out").out == ""
    assert (tmp_path / "out").read_text() == predicted.out

    info = lessram("info", path, "--json")
    assert json.loads(info.out).keys() >= INFO_KEYS
    assert (json.loads(info.out)["kind"], json.loads(info.out)["slots"]) == ("trained", 4096)
    assert json.loads(info.out)["file_bytes"] == path.stat().st_size
    assert "bits per slot" in lessram("info", path).out


def test_the_summary_for_people(data: Path, tmp_path: Path) -> None:
    result = lessram("train", data, "-o", tmp_path / "model", *SMALL, "--quiet")
    assert (result.code, result.err) == (0, "")
    for word in ("examples", "log-loss", "AUC", "calibration", "24 bits/slot x 4,096 slots", "examples/s", "hashed"):
        assert word in result.out


def test_real_labels_have_no_classes_to_count(tmp_path: Path) -> None:
    """The summary and the rows of progress of every command that scores."""
    path, model, checkpoint = tmp_path / "data.svm", tmp_path / "model", tmp_path / "checkpoint"
    path.write_text("".join(f"{20 + i % 7}.5 {i % 7}:1\n" for i in range(300)))
    checkpoints = ["--checkpoint", checkpoint, "--checkpoint-every", 100]
    trained = lessram("train", path, "-o", model, "--loss", "squared", *SMALL, *checkpoints)
    evaluated, resumed = lessram("evaluate", model, path), lessram("resume", checkpoint, "-o", model)
    for result in (trained, evaluated, resumed):
        assert result.code == 0
        for word in ("error rate", "AUC", "calibration", "positive"):
            assert word not in result.out + result.err
        assert "RMSE" in result.out
    for result in (trained, evaluated):
        assert "RMSE" in result.err
    margins = np.loadtxt(lessram("predict", model, path).out.splitlines())
    rmse = np.sqrt(np.mean((margins - (20.5 + np.arange(300) % 7)) ** 2))
    figures = json.loads(lessram("evaluate", model, path, "--json").out)
    assert figures["rmse"] == pytest.approx(rmse, rel=1e-6)
    assert figures.keys() >= TRAIN_KEYS - {"saturated"}


def test_going_on_from_a_model_equals_one_run(tmp_path: Path) -> None:
    parts = [example_text(200, seed) for seed in (1, 2)]
    for name, text in (("a.svm", parts[0]), ("b.svm", parts[1])):
        (tmp_path / name).write_bytes(text)
    lessram("train", tmp_path / "a.svm", tmp_path / "b.svm", "-o", tmp_path / "whole", *SMALL)
    lessram("train", tmp_path / "a.svm", "-o", tmp_path / "half", *SMALL)
    assert lessram("train", tmp_path / "b.svm", "-i", tmp_path / "half", "-o", tmp_path / "both").code == 0
    assert (tmp_path / "both").read_bytes() == (tmp_path / "whole").read_bytes()


def test_cache_and_shuffle(data: Path, tmp_path: Path) -> None:
    plain = lessram("train", data, "-o", tmp_path / "plain", *SMALL, "--passes", 2, "-q")
    cached = lessram("train", data, "-o", tmp_path / "cached", *SMALL, "--passes", 2, "-q", "--cache", tmp_path / "c")
    assert (plain.code, cached.code, cached.err) == (0, 0, "")
    assert (tmp_path / "cached").read_bytes() == (tmp_path / "plain").read_bytes()
    (tmp_path / "c").write_bytes(b"something else")
    again = lessram("train", data, "-o", tmp_path / "cached", *SMALL, "--passes", 2, "-q", "--cache", tmp_path / "c")
    assert again.err == f"{tmp_path / 'c'}: the cache is damaged; reading the sources instead\n"
    shuffled = lessram("train", data, "-o", tmp_path / "shuffled", *SMALL, "-q", "--shuffle", 100)
    assert shuffled.code == 0
    assert shuffled.err.startswith("shuffled by a buffer of 100 examples, at most 0.0 MiB")
    assert (tmp_path / "shuffled").read_bytes() != (tmp_path / "plain").read_bytes()


# Bad input ------------------------------------------------------------------------------------------------------------

LINES = {
    "a broken number": ("1 3:1 4:1x\n", "found '1x' as the value of feature 4, expected a finite number"),
    "a label 7": ("7 3:1\n", "found '7' as the label, expected 0, 1, -1 or +1"),
    "NaN": ("1 3:nan\n", "found 'nan' as the value of feature 3, expected a finite number"),
    "infinity": ("1 3:inf\n", "found 'inf' as the value of feature 3, expected a finite number"),
    "a large index": ("1 18446744073709551616:1\n", "found '18446744073709551616' as the index of a feature"),
    "a negative index": ("1 -3:1\n", "found '-3' as the index of a feature, expected a whole number, not negative"),
}


def assert_refused(result: Result, message: str) -> None:
    """One clear line, exit code 1, nothing on stdout."""
    assert result.code == 1
    assert result.out == ""
    assert result.err.startswith(f"lessram: {message}")
    assert result.err.count("\n") == 1


@pytest.mark.parametrize("case", LINES)
def test_bad_lines(model: Path, tmp_path: Path, case: str) -> None:
    line, message = LINES[case]
    path = tmp_path / "bad.svm"
    path.write_text("1 3:1\n0 4:1\n" + line + "0 3:1\n")
    before = files(tmp_path)
    for words in (["train", path, "-o", tmp_path / "new", *SMALL], ["evaluate", model, path]):
        assert_refused(lessram(*words), f"{path}:3: {message}")
    if case != "a label 7":  # labels are not looked at
        assert_refused(lessram("predict", model, path, "-o", tmp_path / "new"), f"{path}:3: {message}")
    assert files(tmp_path) == before


def test_bad_files(model: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.svm.gz"
    cut.write_bytes(gzip.compress(example_text(500))[:-100])
    empty = tmp_path / "empty.svm"
    empty.write_bytes(b"")
    before = files(tmp_path)
    for path, message in (
        (cut, "found the end of the file in the middle of its gzip data, expected all of it"),
        (tmp_path / "missing.svm", "cannot read: No such file or directory"),
        (tmp_path / "*.csv", "found no file that matches, expected at least one"),
    ):
        assert_refused(lessram("train", path, "-o", tmp_path / "new", *SMALL, "-q"), f"{path}: {message}")
        assert_refused(lessram("evaluate", model, path, "-q"), f"{path}: {message}")
        assert_refused(lessram("predict", model, path, "-o", tmp_path / "new"), f"{path}: {message}")
    assert_refused(lessram("evaluate", model, empty), f"{empty}: found no example, expected at least one")
    nowhere = tmp_path / "no" / "model"
    assert_refused(lessram("train", empty, "-o", nowhere), f"{nowhere}: cannot write: expected a file in a folder")
    assert files(tmp_path) == before


def test_bad_models(model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = model.read_bytes()
    loaded = Model.load(model)
    with monkeypatch.context() as patch:
        patch.setattr(file, "VERSION", file.VERSION + 1)
        loaded.save(tmp_path / "newer")
    newer = (tmp_path / "newer").read_bytes()
    flipped = bytearray(whole)
    flipped[-5000] ^= 1
    damages = {
        "a cut file": (whole[:-1000], "damaged model file: it ends inside tensor"),
        "a cut header": (whole[:100], "damaged model file: it ends inside its header"),
        "nothing": (b"", "not a lessram model"),
        "a flipped bit": (bytes(flipped), "damaged model file: the checksum of tensor"),
        "a newer version": (newer, "found format version 2, expected 1"),
        "something else": (example_text(100), "not a lessram model"),
    }
    bad = tmp_path / "bad"
    for content, message in damages.values():
        bad.write_bytes(content)
        before = files(tmp_path)
        for words in (
            ["info", bad],
            ["predict", bad, data],
            ["evaluate", bad, data],
            ["train", data, "-i", bad, "-o", tmp_path / "new"],
            ["resume", bad, "-o", tmp_path / "new"],
        ):
            assert_refused(lessram(*words), f"{bad}: {message}")
        assert files(tmp_path) == before
    assert_refused(lessram("info", tmp_path / "gone"), f"{tmp_path / 'gone'}: cannot read: No such file or directory")
    expected = f"{model}: a finished model, expected a checkpoint"
    assert_refused(lessram("resume", model, "-o", tmp_path / "new"), expected)


def test_data_of_another_format_than_the_model(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "data.vw"
    path.write_text("1 |a x\n")
    result = lessram("predict", model, path)
    assert (result.code, result.out) == (2, "")
    assert result.err == "lessram: the model was trained on svmlight text, got vw data\n"


def test_max_errors_counts(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "bad.svm"
    path.write_text("1 3:1\n7 3:1\n0 4:x\n0 4:1\n" * 3)
    commands = {"train": ["train", path, "-o", tmp_path / "new", *SMALL], "evaluate": ["evaluate", model, path]}
    for words in commands.values():
        result = lessram(*words, "--max-errors", 6, "--json", "-q")
        figures = json.loads(result.out)
        assert (result.code, figures["examples"], figures["skipped"]) == (0, 6, 6)
        assert result.err.startswith(f"skipped 6 bad lines, such as\n  {path}:2: found '7' as the label")
        assert result.err.count("\n") == 7
    (tmp_path / "new").unlink()
    for words in commands.values():
        result = lessram(*words, "--max-errors", 5, "-q")
        assert_refused(result, f"{path}:11: found 'x' as the value of feature 4, expected a finite number; 6 bad lines")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "DATA"], "Missing option '--output'"),
        (["train", "DATA", "-o", "new", "--colour", "red"], "No such option: --colour"),
        (["train", "DATA", "-o", "new", "--passes", "0"], "Invalid value for '--passes'"),
        (["train", "DATA", "-o", "new", "--weights", "q9.9"], "q9.9"),
        (["train", "DATA", "-o", "new", "--rates", "fast"], "rates must be one of global, "),
        (["train", "DATA", "-o", "new", "--alpha", "-1"], "alpha must be above 0 and at most 1e6, got -1.0"),
        (["train", "DATA", "-o", "new", "--format", "xml"], "format must be one of auto, svmlight"),
        (["train", "DATA", "-o", "new", "--label", "click"], "--label does not go with svmlight data"),
        (["train", "DATA", "-o", "new", "-i", "MODEL", "--alpha", "1"], "--alpha cannot be changed when going on"),
        (["train", "DATA", "-o", "new", "--shuffle", "9", "--checkpoint", "c"], "no place for a shuffling buffer"),
        (["forget"], "No such command 'forget'"),
    ],
)
def test_usage_errors(data: Path, tmp_path: Path, words: Sequence[str], message: str, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = lessram(*(str(data) if word == "DATA" else word for word in words))
    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert "Traceback" not in result.err
    assert not (tmp_path / "new").exists()


def test_help_and_version() -> None:
    assert lessram("--version").out.startswith("lessram ")
    for words in (["--help"], ["train", "-h"], ["resume", "-h"], ["predict", "-h"], ["evaluate", "-h"], ["info", "-h"]):
        result = lessram(*words)
        assert (result.code, result.err) == (0, "")
        assert "Usage: lessram" in result.out
        assert words == ["--help"] or "lessram " + words[0] in result.out.split("Example", 1)[1]


# Processes: killed, interrupted, piped --------------------------------------------------------------------------------


@contextlib.contextmanager
def process(*words: object, **pipes: object) -> Iterator[subprocess.Popen[bytes]]:
    settings = os.environ | {"PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), *sys.path])}
    command = [sys.executable, "-m", "lessram.cli.main", *map(str, words)]
    with subprocess.Popen(command, env=settings, stderr=subprocess.PIPE, **pipes) as started:
        try:
            yield started
        finally:
            started.kill()


def wait_for(path: Path, started: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while not path.exists():
        assert started.poll() is None, started.stderr.read().decode()
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven chunks of text; in a folder beside it, the same in seven uneven files."""
    folder = tmp_path_factory.mktemp("large")
    text = b"".join(example_text(3000, seed) for seed in range(5)) * 2
    (folder / "whole.svm").write_bytes(text)
    (folder / "parts").mkdir()
    ends = [0, *(text.index(b"\n", int(len(text) * share)) + 1 for share in (0.01, 0.02, 0.3, 0.35, 0.8, 0.9))]
    for number, (start, end) in enumerate(zip(ends, [*ends[1:], len(text)], strict=True)):
        (folder / "parts" / f"{number}.svm").write_bytes(text[start:end])
    return folder


def ended_in_the_middle(end: signal.Signals, checkpoint: Path, model: Path, *words: object) -> tuple[int, str]:
    """Train, and send a signal once there is a checkpoint; again if training was done before the signal came."""
    for _ in range(20):
        with process("train", *words, "-o", model, "--checkpoint", checkpoint, "--checkpoint-every", 1) as training:
            wait_for(checkpoint, training)
            training.send_signal(end)
            training.wait(120)
            message = training.stderr.read().decode()
        if not model.exists():
            return training.returncode, message
        model.unlink()
        checkpoint.unlink()
    raise AssertionError("it was never in the middle")


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT], ids=lambda end: end.name)
def test_killed_and_resumed_whole_and_in_seven_files(large: Path, tmp_path: Path, end: signal.Signals) -> None:
    options = ("--bits", 20, "--passes", 4, "-q")
    checkpoint, model = tmp_path / "checkpoint", tmp_path / "model"
    result = ended_in_the_middle(end, checkpoint, model, large / "whole.svm", *options, "--cache", tmp_path / "cache")
    if end == signal.SIGINT:
        way_on = f"lessram resume {checkpoint} -o {model}"
        assert result == (1, f"lessram: interrupted; go on with: {way_on}\n")
        assert sorted(files(tmp_path)) in (["checkpoint"], ["cache", "checkpoint"]), "nothing half-written"
    assert lessram("resume", checkpoint, "-o", model, "-q").code == 0
    assert lessram("train", large / "whole.svm", "-o", tmp_path / "whole", *options).code == 0
    assert lessram("train", large / "parts", "-o", tmp_path / "parts", *options, "--threads", 3).code == 0
    assert model.read_bytes() == (tmp_path / "whole").read_bytes() == (tmp_path / "parts").read_bytes()


def test_a_resumed_run_refuses_sources_that_changed(data: Path, tmp_path: Path) -> None:
    checkpoint = tmp_path / "c"
    words = ["train", data, "-o", tmp_path / "model", *SMALL, "--checkpoint", checkpoint, "--checkpoint-every", 1]
    assert lessram(*words).code == 0
    (tmp_path / "model").unlink()
    data.write_bytes(data.read_bytes() + b"1 2:1\n")
    message = f"{data}: cannot resume: the file changed since the checkpoint was written"
    assert_refused(lessram("resume", checkpoint, "-o", tmp_path / "model"), message)
    data.unlink()
    assert_refused(lessram("resume", checkpoint, "-o", tmp_path / "model"), "cannot resume: ")
    assert not (tmp_path / "model").exists()


def test_a_reader_that_goes_away_is_no_error_to_speak_of(large: Path, model: Path) -> None:
    """As with `lessram predict ... | head -1`."""
    with process("predict", model, large / "whole.svm", stdout=subprocess.PIPE) as predicting:
        assert 0 <= float(predicting.stdout.readline()) <= 1
        predicting.stdout.close()
        predicting.wait(60)
        assert predicting.stderr.read() == b""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_output_that_cannot_be_written(model: Path, data: Path) -> None:
    with open("/dev/full", "wb") as full, process("predict", model, data, stdout=full) as predicting:
        predicting.wait(60)
        assert predicting.stderr.read() == b"lessram: cannot write: No space left on device\n"
        assert predicting.returncode == 1


def test_standard_input(data: Path, model: Path) -> None:
    with process("predict", model, "-", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as predicting:
        out, err = predicting.communicate(gzip.compress(data.read_bytes()))
    assert (predicting.returncode, err) == (0, b"")
    assert out.decode() == lessram("predict", model, data).out


def test_the_page_of_commands_is_up_to_date() -> None:
    command = [sys.executable, str(REPOSITORY / "docs" / "generate.py"), "--check"]
    settings = os.environ | {"PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), *sys.path])}
    result = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
