"""What users get wrong, and what machines do to them: one clear message each, and nothing lost."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Result, lessram
from hypothesis import given, settings
from hypothesis import strategies as st
from test_source import example_text
from typer.core import TyperGroup

from lessram.cli.progress import Progress
from lessram.data.batch import Batch
from lessram.learning.metrics import Scores
from lessram.numerics.loss import Loss

REPOSITORY = Path(__file__).parent.parent

SMALL = ("--bits", "12", "--threads", "1", "-q")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and models of both kinds; tests that write there work on a copy."""
    folder = tmp_path_factory.mktemp("folder")
    (folder / "data.svm").write_bytes(example_text(400))
    assert lessram("train", folder / "data.svm", "-o", folder / "model", *SMALL).code == 0
    assert lessram("compress", folder / "model", "-o", folder / "served", "--grid", "q2.5").code == 0
    return folder


@pytest.fixture
def place(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: a copy of the folder."""
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def assert_refused(result: Result, message: str, code: int = 1) -> None:
    assert (result.code, result.out, result.err) == (code, "", f"lessram: {message}\n")


# Where to write -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        "train data.svm -o data.svm",
        "train data.svm -o new --checkpoint data.svm",
        "train data.svm -o new --cache data.svm",
        "train data.svm -i model -o new --cache model",
        "train data.svm -o link",
        "predict model data.svm -o data.svm",
        "predict model data.svm -o model",
        "compress model -o model --grid q2.5",
        "compress model -o data.svm --data data.svm",
        "export model -o model --to csv",
    ],
)
def test_what_is_read_is_not_written_over(place: Path, words: str) -> None:
    (place / "link").symlink_to(place / "data.svm")
    before = files(place)
    written = words.split("--grid")[0].split("--data")[0].split("--to")[0].split()[-1]
    assert_refused(lessram(*words.split()), f"{written}: cannot write over what is read: choose another name", 2)
    assert files(place) == before


@pytest.mark.parametrize(
    "words",
    [
        "train data.svm -o new --cache new",
        "train data.svm -o new --checkpoint both --cache both",
        "train data.svm -o model --cache link",
    ],
)
def test_two_outputs_have_two_names(place: Path, words: str) -> None:
    (place / "link").symlink_to(place / "model")
    before = files(place)
    message = f"{words.split()[-1]}: cannot write two files of one name: choose another"
    assert_refused(lessram(*words.split()), message, 2)
    assert files(place) == before


def test_a_checkpoint_may_become_the_model(place: Path) -> None:
    assert lessram("train", "data.svm", "-o", "new", *SMALL).code == 0
    options = ("--checkpoint", "same", "--checkpoint-every", "100")
    assert lessram("train", "data.svm", "-o", "same", *options, *SMALL).code == 0
    assert (place / "same").read_bytes() == (place / "new").read_bytes()


@pytest.mark.parametrize(
    "words",
    [
        "train data.svm -o {}",
        "train data.svm -o new --checkpoint {}",
        "train data.svm -o new --cache {}",
        "predict model data.svm -o {}",
        "compress model --grid q2.5 -o {}",
        "export model --to csv -o {}",
        "import-vw data.svm -o {}",
    ],
)
@pytest.mark.parametrize(
    ("where", "message"),
    [("gone/new", "expected a file in a folder that exists"), (".", "expected a file in a folder that exists")],
)
def test_outputs_are_looked_at_before_the_work(place: Path, words: str, where: str, message: str) -> None:
    before = files(place)
    assert_refused(lessram(*words.format(where).split()), f"{where}: cannot write: {message}")
    assert files(place) == before


@pytest.mark.parametrize("words", ["train data.svm -o pipe", "compress model -o pipe", "export model -o pipe --to csv"])
def test_a_pipe_or_device_is_never_replaced_by_a_file(place: Path, words: str) -> None:
    os.mkfifo("pipe")
    assert_refused(lessram(*words.split()), "pipe: cannot write: found a device or a pipe, expected a file")
    assert (place / "pipe").is_fifo()


def test_predictions_go_into_a_pipe(place: Path) -> None:
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    result = lessram("predict", "model", "data.svm", "-o", "pipe")
    found = os.read(reader, 1 << 16).decode()
    os.close(reader)
    assert (result.code, result.err, (place / "pipe").is_fifo()) == (0, "", True)
    assert found == lessram("predict", "model", "data.svm").out


# Choices that contradict each other -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "train data.svm -o new --weights adaptive --rates squares8",
            "weights adaptive have rates by randomized counts, got rates squares8",
        ),
        (
            "train data.svm -o new -i model --step plain --rate-floor",
            "--step, --rate-floor cannot be changed when going on from a model (-i)",
        ),
        ("bounds -T 0", "T must be at least 1 and finite, got 0.0"),
        ("bounds -G 0 --gamma 0", "G or gamma must be above 0, got 0.0 and 0.0"),
        ("serve model --port -1", "port must be between 0 and 65535, got -1"),
        ("serve model --timeout nan", "timeout must be above 0 and finite, got nan"),
        ("serve model --max-body 0", "max-body must be above 0 and finite, got 0"),
    ],
)
def test_contradictions(place: Path, words: str, message: str) -> None:
    pytest.importorskip("starlette") if words.startswith("serve") else None
    assert_refused(lessram(*words.split()), message, 2)
    assert not (place / "new").exists()


@settings(max_examples=30)
@given(
    numbers=st.lists(st.sampled_from(["-1", "0", "1e-300", "0.5", "1", "7", "1e9", "1e300", "nan", "inf"]), min_size=8)
)
def test_bounds_of_any_numbers_are_a_table_or_a_message(numbers: list[str]) -> None:
    names = ["-T", "-R", "-G", "--gamma", "-b", "--tail", "--epsilon", "-k"]
    result = lessram("bounds", *(word for pair in zip(names, numbers, strict=False) for word in pair), "--json")
    assert (result.code == 0 and json.loads(result.out)) or (result.code == 2 and result.err.count("\n") == 1)


_NO_TEXT = "--text-pairs and --text-characters go with columns of text, and no column is one"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("data.svm --text-pairs", _NO_TEXT),
        ("t.csv --label y --text-pairs", _NO_TEXT),
        ("t.csv --label y --text-characters 3-5", _NO_TEXT),
        ("t.csv --label y --columns a --ignore a", "t.csv: no column is left to make features of"),
        ("t.jsonl --label y --columns y", "t.jsonl: no column is left to make features of"),
    ],
)
def test_choices_that_nothing_would_come_of(place: Path, words: str, message: str) -> None:
    (place / "t.csv").write_text("y,a\n1,x\n0,z\n")
    (place / "t.jsonl").write_text('{"y": 1, "a": 2}\n')
    result = lessram("train", *words.split(), "-o", "new", *SMALL)
    assert (result.code, result.err.removeprefix("lessram: ").removeprefix(f"{place}/")) == (2, f"{message}\n")
    assert not (place / "new").exists()


def test_going_on_with_data_of_another_kind(place: Path) -> None:
    (place / "a.csv").write_text("click,site,hour\n" + "1,rome,2\n0,oslo,3\n" * 9)
    (place / "b.csv").write_text("hour,site,click\n" + "4,rome,1\n" * 9)
    (place / "c.csv").write_text("click,site\n" + "1,rome\n" * 9)
    assert lessram("train", "a.csv", "-o", "table", "--label", "click", *SMALL).code == 0
    assert lessram("train", "b.csv", "-i", "table", "-o", "both", "-q").code == 0, "the model knows its columns"
    assert '"examples":27' in lessram("info", "both", "--json").out
    for words, message in {
        "data.svm -i table": "the model was trained on a table, got svmlight data",
        "a.csv -i model --label click": "the model was trained on svmlight text, got a table",
        "c.csv -i table": f"{place / 'c.csv'}: the table must have the columns that the model was trained on, "
        "'hour' is missing",
        "a.csv -i table --label click --categorical hour": "column 'hour' is categorical here and was numeric: "
        "leave it to the model (-i)",
        "data.svm -i model --hash all": "the model was trained with another hash: leave the options out, it knows them",
    }.items():
        assert_refused(lessram("train", *words.split(), "-o", "new", "-q"), message, 2)


def test_a_model_of_the_wrong_kind(place: Path) -> None:
    hint = "served: found a served model, expected a trained one (lessram.Predictor opens served ones)"
    assert_refused(lessram("compress", "served", "-o", "new"), hint)
    assert_refused(lessram("train", "data.svm", "-i", "served", "-o", "new"), hint)
    assert_refused(lessram("resume", "served", "-o", "new"), hint)


# Data without labels, losses without probabilities --------------------------------------------------------------------


def test_rows_without_labels_are_counted_or_refused(place: Path) -> None:
    (place / "some.vw").write_text("1 |f a\n|f b\n0 |f c\n|f a\n")
    (place / "none.vw").write_text("|f b\n|f a\n")
    trained = lessram("train", "some.vw", "-o", "vw", *SMALL, "--json")
    assert (trained.code, trained.err) == (0, "left out 2 examples without a label\n")
    assert json.loads(trained.out)["examples"] == json.loads(trained.out)["unlabelled"] == 2
    message = "found 2 examples without a label, expected some with one"
    assert_refused(lessram("train", "none.vw", "-o", "new", *SMALL), f"{place / 'none.vw'}: {message}")
    assert_refused(lessram("evaluate", "vw", "none.vw", "-q"), f"none.vw: {message}")
    assert_refused(lessram("compress", "vw", "-o", "new", "--data", "none.vw"), f"none.vw: {message}")
    (place / "empty.vw").write_text("")
    message = "found no example, expected at least one"
    assert_refused(lessram("compress", "vw", "-o", "new", "--data", "empty.vw"), f"empty.vw: {message}")


def test_only_the_logistic_loss_gives_probabilities(place: Path) -> None:
    assert lessram("train", "data.svm", "-o", "squared", "--loss", "squared", *SMALL).code == 0
    trained = lessram("train", "data.svm", "-o", "hinge", "--loss", "hinge", *SMALL[:-1])
    evaluated = lessram("evaluate", "squared", "data.svm")
    for result, name in ((trained, "hinge loss"), (evaluated, "squared loss")):  # no number is called what it is not
        assert (result.code, name in result.out, name in result.err) == (0, True, True)
        assert "log-loss" not in result.out + result.err
    assert json.loads(lessram("evaluate", "squared", "data.svm", "--json").out)["loss"] == "squared"
    lines = [json.loads(line) for line in lessram("predict", "squared", "data.svm", "--json").out.splitlines()]
    assert {line["probability"] for line in lines} == {None}
    lines = [json.loads(line) for line in lessram("predict", "model", "data.svm", "--json").out.splitlines()]
    assert all(0 < line["probability"] < 1 for line in lines)


# The machine ----------------------------------------------------------------------------------------------------------


def run(
    *words: object, module: str = "lessram", before: Sequence[str] = (), **how: Any
) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, perhaps behind another that starts it."""
    settings = os.environ | {"PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), *sys.path])}
    command = [*before, sys.executable, "-m", module, *map(str, words)]
    return subprocess.run(command, env=settings, text=True, check=False, timeout=120, **how)


def test_as_a_module(place: Path) -> None:
    result = run("--version", capture_output=True)
    assert (result.returncode, result.stdout.split()[0], result.stderr) == (0, "lessram", "")


INTERRUPTED = """
import sys
class CtrlC:
    def find_spec(self, name, *_):
        if name == "typer":
            raise KeyboardInterrupt
sys.meta_path.insert(0, CtrlC())
from {0} import {1}
{1}()
"""


def test_ctrl_c_while_the_program_is_imported() -> None:
    begin = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["scripts"]["lessram"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), *sys.path])}
    command = [sys.executable, "-c", INTERRUPTED.format(*begin.split(":"))]
    result = subprocess.run(command, env=environment, text=True, check=False, timeout=120, capture_output=True)
    assert (result.returncode, result.stdout, result.stderr) == (1, "", "lessram: interrupted\n")


@pytest.mark.parametrize("when", ["make_context", "invoke"])
def test_ctrl_c_around_a_command(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(TyperGroup, when, interrupted)
    assert lessram("info", "model") == (1, "", "lessram: interrupted\n")


@pytest.mark.parametrize("words", ["predict model data.svm", "info model", "bounds"])
def test_without_stdout(place: Path, words: str) -> None:
    result = run(*words.split(), before=("sh", "-c", 'exec "$@" >&-', "sh"), stderr=subprocess.PIPE)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("letters", ["ascii", "latin-1"])
def test_a_locale_without_all_letters(place: Path, letters: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", letters)
    shown = run("bounds", capture_output=True, encoding=letters)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "\\u221a" in shown.stdout  # a root


def test_what_stdout_has_no_letter_for_is_written_as_in_json() -> None:
    from lessram.cli.main import _escape

    text = "é√\U0001f600\udcff"
    assert _escape(UnicodeEncodeError("ascii", f"a{text}b", 1, 5, "")) == ("\\u00e9\\u221a\\ud83d\\ude00\\udcff", 5)


def test_a_table_that_no_memory_holds(place: Path) -> None:
    result = lessram("train", "data.svm", "-o", "new", "--bits", "40", "-q")
    assert_refused(
        result, "out of memory: a table of 2^B slots (--bits) takes 3 bytes a slot, more with other --weights"
    )


def on_terminal(columns: int, *words: str) -> list[str]:
    """The lines that a command shows on a terminal of so many columns, without what it has wiped away."""
    # No `pty.fork`: the copy of a process that has threads may wait for ever for a lock that one of them held.
    terminal, shell = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    settings = os.environ | {"PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), *sys.path]), "TERM": "xterm"}
    command = [sys.executable, "-m", "lessram", *words]
    shown = b""
    with subprocess.Popen(command, env=settings, stdin=shell, stdout=shell, stderr=shell) as process:
        os.close(shell)
        with contextlib.suppress(OSError):  # Linux ends a terminal so
            while part := os.read(terminal, 1 << 16):
                shown += part
    os.close(terminal)
    assert process.returncode == 0, shown
    text = re.sub(r"\x1b\[[0-9;]*[mK]", "", shown.decode())
    return [part for line in text.split("\r\n") for part in line.split("\r")]


@pytest.mark.parametrize(
    "words",
    ["train data.svm -o new --bits 12", "compress model -o new --data data.svm", "bounds", "evaluate model data.svm"],
)
def test_a_narrow_terminal(place: Path, words: str) -> None:
    lines = on_terminal(90, *words.split())
    assert max(map(len, lines)) <= 90
    if words.startswith("compress"):
        assert any("measured added loss" in line and "Theorem" not in line for line in lines)


def test_what_is_shown_live_does_not_stay(place: Path) -> None:
    lines = on_terminal(60, "reproduce", "counter", "--quick", "--out", "report")
    assert any(re.match(r" *\d+\.\d s  counter: base 1.1, the distribution up to", line) for line in lines)
    assert max(len(line) for line in lines if " s  counter" in line) < 60
    verdicts = [line for line in lines if "holds" in line]
    assert verdicts
    assert all(line.startswith("holds") for line in verdicts[:5]), "on lines of their own"


def test_speed_is_that_of_this_run(capsys: pytest.CaptureFixture[str]) -> None:
    scores = Scores.new()
    scores.add(np.zeros(400), Batch(np.zeros(400, np.float32), np.zeros(401, np.int64), np.uint32([])), Loss.logistic)
    Progress(24.0, before=400).update(400, lambda: scores)
    row = capsys.readouterr().err.splitlines()[-1].split()
    assert (row[0], row[-1]) == ("400", "0"), "all examples, but none of them since the checkpoint"
