"""Model files: whole or absent, checked to the last bit, the same bytes for the same model."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors.numpy
from reference import Row, row_key, word
from safetensors import safe_open
from streams import CELLS, make_rows, to_batch

from lessram.data.unfinished import unfinished
from lessram.errors import FileFormatError
from lessram.learning.learner import Learner
from lessram.learning.progressive import progressive
from lessram.model import file
from lessram.model.model import Model
from lessram.model.spec import Spec

SLOTS = 24
BATCH = to_batch(make_rows(SLOTS, (3, 0, 8, 17) * 10), valued=False)


def trained(weights: str = "q2.13", rates: str = "morris8", **choices) -> Model:
    """A small model with a little of everything in it."""
    learner = Learner(Spec(slots=SLOTS, weights=weights, rates=rates, seed=9, **choices))
    list(progressive(learner, [(BATCH, None)]))
    learner.model.reader = {"hash": "auto", "hash_seed": 0}
    return learner.model


def small() -> Model:
    """The same without the score histogram, for tests that try every byte."""
    model = trained()
    model.scores.clear()
    return model


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> SimpleNamespace:
    """A model file, its bytes, and where its header ends."""
    path = tmp_path_factory.mktemp("model") / "model.lessram"
    small().save(path)
    data = path.read_bytes()
    return SimpleNamespace(path=path, data=data, start=8 + int.from_bytes(data[:8], "little"))


def assert_same(one: Model, other: Model) -> None:
    assert one.spec == other.spec
    assert one.table.cells.dtype == other.table.cells.dtype
    assert one.table.cells.tobytes() == other.table.cells.tobytes()
    assert one.scalars.tobytes() == other.scalars.tobytes()
    assert (one.examples, one.reader, one.progress) == (other.examples, other.reader, other.progress)
    assert one.scores.keys() == other.scores.keys()
    assert all(one.scores[name].tobytes() == other.scores[name].tobytes() for name in one.scores)


@pytest.mark.parametrize("writable", [False, True])
@pytest.mark.parametrize("storage", CELLS, ids="-".join)
def test_round_trip(storage, writable, tmp_path):
    model = trained(*storage)
    model.progress = {"sources": ["a.svm"], "position": {"offset": 17}, "passes": 2}
    model.save(tmp_path / "model")
    loaded = Model.load(tmp_path / "model", writable=writable)
    assert_same(loaded, model)
    assert loaded.table.cells.flags.writeable == writable
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()


def test_equal_models_have_equal_files(tmp_path):
    trained().save(tmp_path / "one")
    trained().save(tmp_path / "other")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()
    trained(alpha=0.21).save(tmp_path / "other")
    assert (tmp_path / "one").read_bytes() != (tmp_path / "other").read_bytes()


def test_any_safetensors_reader_opens_it(saved):
    model = Model.load(saved.path)
    tensors = safetensors.numpy.load_file(saved.path)
    assert tensors["cells"].tobytes() == model.table.cells.tobytes()
    assert tensors["cells"].shape == (SLOTS, 3)
    assert tensors["scalars"].tolist() == model.scalars.tolist()
    with safe_open(saved.path, "numpy") as opened:
        content = json.loads(opened.metadata()["lessram"])["content"]
    assert (content["format"], content["version"]) == ("lessram", 1)
    assert content["tensors"]["cells"]["sha256"] == hashlib.sha256(tensors["cells"].tobytes()).hexdigest()
    assert content["about"]["spec"]["weights"] == "q2.13"


def test_the_table_is_mapped_and_read_only(saved):
    model = Model.load(saved.path)
    base = model.table.cells
    while base.base is not None and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        model.table.cells["weight"][0] = 1


def test_a_mapped_model_predicts_as_the_trained_one(saved):
    mapped, trained_again = Learner(Model.load(saved.path)), Learner(small())
    assert mapped.predict(BATCH).tolist() == trained_again.predict(BATCH).tolist()


def test_a_file_can_be_replaced_by_the_model_mapped_from_it(tmp_path):
    path = tmp_path / "model"
    trained().save(path)
    before = path.read_bytes()
    Model.load(path).save(path)
    assert path.read_bytes() == before


# Damage ---------------------------------------------------------------------------------------------------------------


def refused(path: Path) -> str:
    """The message with which a file is refused; fails if it is taken."""
    with pytest.raises(FileFormatError) as caught:
        Model.load(path)
    assert str(caught.value).startswith(f"{path}: ")
    return str(caught.value)


def copied(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def flip(path: Path, place: int, bit: int) -> None:
    """Turn one bit of a file in place: writing all of it again would take most of the time."""
    with open(path, "r+b", buffering=0) as opened:
        opened.seek(place)
        byte = opened.read(1)[0]
        opened.seek(place)
        opened.write(bytes([byte ^ (1 << bit)]))


def test_every_flipped_bit_of_the_header_is_noticed(saved, tmp_path):
    path = copied(tmp_path / "damaged", saved.data)
    for place in range(saved.start):
        for bit in range(8):
            flip(path, place, bit)
            refused(path)
            flip(path, place, bit)
    Model.load(path)


def test_every_flipped_byte_of_the_data_is_noticed(saved, tmp_path):
    path = copied(tmp_path / "damaged", saved.data)
    for place in range(saved.start, len(saved.data)):
        flip(path, place, place % 8)
        assert "the checksum of tensor" in refused(path)
        flip(path, place, place % 8)
    Model.load(path)


def test_every_truncation_is_noticed(saved, tmp_path):
    path = copied(tmp_path / "cut", saved.data[:-1])
    left = len(saved.data) - saved.start
    assert f"it ends inside tensor 'cells', after {left - 1} of {left} bytes" in refused(path)
    for length in reversed(range(len(saved.data))):
        os.truncate(path, length)
        refused(path)


@pytest.mark.parametrize(
    "entry",
    [
        {"data_offsets": ["0", "72"]},
        {"data_offsets": [-72, 0]},
        {"data_offsets": [0.0, 72.0]},
        {"data_offsets": [32.0, 104.0]},
        {"data_offsets": [0, 72, 144]},
        {"data_offsets": None},
        {"data_offsets": [2**70, 2**70 + 72]},
        {"dtype": ["U8"]},
        {"dtype": "F8_E4M3"},
        {"shape": {"rows": 24}},
        {"shape": [2**40, 2**40]},
    ],
    ids=str,
)
def test_a_header_that_describes_no_tensor_is_refused(entry, saved, tmp_path):
    header = json.loads(saved.data[8 : saved.start])
    header["cells"] |= entry
    text = json.dumps(header).encode()
    data = len(text).to_bytes(8, "little") + text + saved.data[saved.start :]
    assert "damaged model file" in refused(copied(tmp_path / "strange", data))


def test_bytes_behind_the_end_are_noticed(saved, tmp_path):
    assert "expected" in refused(copied(tmp_path / "longer", saved.data + b"\0"))
    assert "expected" in refused(copied(tmp_path / "longer", saved.data * 2))


def test_without_verification_only_the_header_is_checked(saved, tmp_path):
    path = copied(tmp_path / "damaged", saved.data)
    flip(path, len(saved.data) - 1, 0)
    Model.load(path, verify=False)
    os.truncate(path, len(saved.data) - 1)
    with pytest.raises(FileFormatError, match="it ends inside tensor"):
        Model.load(path, verify=False)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "found no safetensors header"),
        (b"1 3:1 5:1\n0 2:1\n" * 100, "found no safetensors header"),
        (b"\xff" * 100, "found no safetensors header"),
        (b"\x05" + b"\0" * 7 + b"hello", "its header is no JSON"),
        (b"\x02" + b"\0" * 7 + b"{}", "not written by lessram"),
        (b"\x02" + b"\0" * 7 + b"[]", "its header is no JSON"),
        (b"\x40" + b"\0" * 7 + b"{}", "it ends inside its header, after 10 of 72 bytes"),
    ],
)
def test_foreign_files_are_refused(data, message, tmp_path):
    assert message in refused(copied(tmp_path / "foreign", data))


def test_a_foreign_safetensors_file_is_refused(tmp_path):
    path = tmp_path / "foreign.safetensors"
    safetensors.numpy.save_file({"cells": np.zeros((3, 3), np.uint8)}, path, metadata={"made": "elsewhere"})
    with pytest.raises(FileFormatError, match="a safetensors file, but not written by lessram"):
        Model.load(path)


def rewritten(saved: SimpleNamespace, path: Path, change) -> Path:
    """The model's file with its content changed and sealed anew, as another version could have written it."""
    with safe_open(saved.path, "numpy") as opened:
        content = json.loads(opened.metadata()["lessram"])["content"]
    change(content)
    text = json.dumps(content, separators=(",", ":"))
    sealed = f'{{"checksum":"{hashlib.sha256(text.encode()).hexdigest()}","content":{text}}}'
    safetensors.numpy.save_file(safetensors.numpy.load_file(saved.path), path, metadata={"lessram": sealed})
    return path


def test_a_newer_version_is_refused_and_named(saved, tmp_path):
    path = rewritten(saved, tmp_path / "newer", lambda content: content.update(version=2, tensors="otherwise"))
    with pytest.raises(FileFormatError, match="found format version 2, expected 1"):
        Model.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content["about"].update(kind="served"), "found a served model, expected a trained one"),
        (lambda content: content["about"].pop("spec"), "cannot be understood"),
        (lambda content: content["about"]["spec"].update(colour="blue"), "colour"),
        (lambda content: content["about"]["spec"].update(slots=SLOTS + 1), "its table does not fit its spec"),
        (lambda content: content["about"]["spec"].update(weights="q9.9"), "q9.9"),
        (lambda content: content["tensors"].pop("cells"), "name different tensors"),
        (lambda content: content["tensors"]["cells"].update(shape=[SLOTS * 3]), "not described as expected"),
    ],
)
def test_contents_that_make_no_model_are_refused(saved, tmp_path, change, message):
    path = rewritten(saved, tmp_path / "strange", change)
    with pytest.raises(FileFormatError, match=message):
        Model.load(path)


def test_a_sealed_file_without_changes_is_read(saved, tmp_path):
    """The helper above changes nothing by itself."""
    assert_same(Model.load(rewritten(saved, tmp_path / "same", lambda content: None)), small())


def test_missing_paths_and_directories_are_refused(tmp_path):
    with pytest.raises(FileFormatError, match="cannot read: No such file"):
        Model.load(tmp_path / "missing")
    with pytest.raises(FileFormatError, match="cannot read: Is a directory"):
        Model.load(tmp_path)


# Whole or absent ------------------------------------------------------------------------------------------------------


def half_written(tensors, path, metadata):
    Path(path).write_bytes(b"half")
    raise OSError(28, "No space left on device")


def interrupted(*arguments):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("where", "name", "failure", "error"),
    [
        (file, "save_file", half_written, FileFormatError),
        (os, "fsync", lambda handle: half_written(None, os.devnull, None), FileFormatError),
        (os, "replace", interrupted, KeyboardInterrupt),
    ],
)
def test_a_failing_write_leaves_the_old_file_and_nothing_else(where, name, failure, error, tmp_path, monkeypatch):
    path = tmp_path / "model"
    trained(alpha=0.1).save(path)
    before = path.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(where, name, failure)
        with pytest.raises(error):
            trained().save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["model"]


KILLED = """
import os, signal, sys
from pathlib import Path
from lessram.data.unfinished import unfinished
for name in sys.argv[1:]:
    unfinished(Path(name)).write_bytes(b"half")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_goes_when_the_same_file_is_written(tmp_path):
    path, other = tmp_path / "model", tmp_path / "model.b"
    settings = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", KILLED, path, other], env=settings, check=False)
    mine, theirs = sorted(os.listdir(tmp_path))
    assert mine.startswith(".model.")
    assert theirs.startswith(".model.b.")
    elsewhere = re.sub(r"^\.model\.[0-9a-f]{8}", ".model.00000000", mine)  # its process would have to be asked there
    alive = unfinished(path).name
    kept = {elsewhere, alive, mine + "x", "model.partial"}
    for name in kept:
        (tmp_path / name).write_bytes(b"half")
    trained().save(path)
    assert set(os.listdir(tmp_path)) == kept | {"model", theirs}
    with file.replacing(other) as text:
        text.write("whole")
    assert set(os.listdir(tmp_path)) == kept | {"model", "model.b"}


def test_paths_that_cannot_be_written_say_so(tmp_path):
    with pytest.raises(FileFormatError, match="cannot write"):
        trained().save(tmp_path / "no such folder" / "model")
    with pytest.raises(FileFormatError, match="cannot write"):
        trained().save(tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "today").write_bytes(b"old")
    (tmp_path / "model").symlink_to(tmp_path / "models" / "today")
    trained().save(tmp_path / "model")
    assert (tmp_path / "model").is_symlink()
    assert_same(Model.load(tmp_path / "models" / "today"), trained())


def test_a_pipe_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileFormatError, match="cannot write: found a device or a pipe, expected a file"):
        trained().save(tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()
    assert os.listdir(tmp_path) == ["pipe"]


def test_a_full_disk_is_told_in_the_words_of_the_system(tmp_path, monkeypatch):
    def full(*_, **__):
        raise file.SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(file, "save_file", full)
    with pytest.raises(FileFormatError, match=r"model: cannot write: No space left on device$"):
        trained().save(tmp_path / "model")


@pytest.mark.parametrize(
    ("weights", "rates"), [("q2.13", "morris8"), ("q3.12", "squares8"), ("e3m6", "squares6"), ("adaptive", "ladder8")]
)
def test_learning_on_from_a_mapped_model_leaves_its_file_alone(weights, rates, tmp_path):
    spec = Spec(slots=300, weights=weights, rates=rates, seed=2013)
    batch = to_batch(golden_rows(300, False), valued=False)
    for rows in (0, 100):  # a model that has seen nothing yet, too
        learner = Learner(spec)
        learner.learn(batch.slice(0, rows))
        learner.model.save(tmp_path / "model")
        before = (tmp_path / "model").read_bytes()
        again = Learner(Model.load(tmp_path / "model"))
        assert np.array_equal(again.predict(batch), learner.predict(batch))
        assert np.array_equal(again.learn(batch), learner.learn(batch))
        assert_same(again.model, learner.model)
        assert (tmp_path / "model").read_bytes() == before


# Golden files ---------------------------------------------------------------------------------------------------------

GOLDEN = Path(__file__).parent / "golden"


def golden_rows(slots: int, valued: bool) -> list[Row]:
    """Rows from the reference's integers alone: no library may change them."""
    rows = []
    for number in range(120):
        words = [word(position, row_key(2013, number)) for position in range((0, 3, 8, 17, 40)[number % 5])]
        features = [(w % slots, (w >> 20) / 512 - 4 - 1 / 1024 if valued else 1.0) for w in words]
        rows.append(Row(float(number % 3 == 0), features, 0.5 + number % 4 if valued else 1.0))
    return rows


def golden_model(name: str) -> Model:
    """What the golden file of this name holds, trained now."""
    weights, rates, features = name.split("-")
    learner = Learner(Spec(slots=300, weights=weights, rates=rates, alpha=0.5, seed=2013))
    learner.learn(to_batch(golden_rows(300, features == "valued"), valued=features == "valued"))
    learner.model.reader = {"hash": "none"}
    return learner.model


@pytest.mark.parametrize("name", ["q2.13-morris8-binary", "float32-exact32-valued"])
def test_golden_files_stay_readable_and_are_trained_again_to_the_byte(name, tmp_path):
    """These files are never written again: if this fails, models of users would change or be lost."""
    path = GOLDEN / f"{name}.lessram"
    assert_same(Model.load(path), golden_model(name))
    golden_model(name).save(tmp_path / "now")
    assert (tmp_path / "now").read_bytes() == path.read_bytes()
