"""What users get wrong, and what machines do to them: one clear message each, and nothing lost."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from commands import Result, lessram
from test_source import example_text

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
