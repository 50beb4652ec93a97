"""Coefficients for other programs: what is written predicts what the model predicts."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from commands import lessram
from safetensors import safe_open
from test_import_vw import random_lines

from lessram.data.formats import Reading
from lessram.data.reader import read_batches
from lessram.errors import SpecError
from lessram.model.model import INTERCEPT, NONZEROS, SQUARES, Model
from lessram.model.spec import Spec
from lessram.model.vw_model import CONSTANT, import_vw
from lessram.serving import export as exporting
from lessram.serving.export import export
from lessram.serving.planner import Wish, compress
from lessram.serving.served import Served
from lessram.tables.layout import put_weights

SLOTS = 1 << 10


def filled(*, reader: dict | None = None, **choices: object) -> Model:
    """A model with some weights, an intercept and a scale of 2."""
    model = Model.new(Spec(slots=SLOTS, **choices))  # type: ignore[arg-type]
    used = np.random.default_rng(1).choice(SLOTS, 300, replace=False)
    used = used[used != CONSTANT & (SLOTS - 1)]
    put_weights(
        model.table, used, np.random.default_rng(2).integers(-9000, 9000, len(used)) / (2**13 * model.spec.step)
    )
    model.scalars[[INTERCEPT, SQUARES, NONZEROS]] = 0.625, 400, 100
    model.reader = reader or {}
    return model


def both(**choices: object) -> list[Model | Served]:
    model = filled(**choices)
    return [model, compress(model, Wish(grid="q2.5")).served]


def coefficients(model: Model | Served) -> np.ndarray:
    if isinstance(model, Model):
        return model.coefficients()
    return model.store.decode() * model.store.grid.step / model.scale


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_tables_hold_all_nonzero_coefficients_and_the_intercept(ending, tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "PIECE", 100)
    for model in both():
        written = export(model, tmp_path / f"weights.{ending}")
        if ending == "csv":
            table = np.genfromtxt(tmp_path / "weights.csv", delimiter=",", names=True)
        else:
            table = pytest.importorskip("pyarrow.parquet").read_table(tmp_path / "weights.parquet").to_pydict()
        slots, weights = np.asarray(table["slot"]).astype(int), np.asarray(table["weight"])
        assert (slots[0], weights[0]) == (-1, 0.625)
        found = np.zeros(SLOTS)
        found[slots[1:]] = weights[1:]
        assert (found == coefficients(model)).all()
        assert written.weights == len(slots) - 1 == np.count_nonzero(found)


@pytest.mark.parametrize(("weights", "kind"), [("q2.13", np.int16), ("q1.6", np.int8), ("float32", np.float32)])
def test_safetensors_hold_integers_and_their_step(weights, kind, tmp_path):
    model = filled(weights=weights)
    export(model, tmp_path / "model.safetensors")
    with safe_open(tmp_path / "model.safetensors", "np") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        about = file.metadata()
    assert tensors["weights"].dtype == kind
    found = tensors["weights"].astype(float) * tensors["step"] / tensors["scale"]
    assert (found == model.coefficients()).all()
    assert tensors["intercept"] == [0.625]
    assert about["loss"] == "logistic"
    assert "margin = " in about["formula"]


def test_weights_off_their_grid_are_exported_as_floats(tmp_path, monkeypatch):
    """As those of algorithms that derive weights from what they store."""
    model = filled()
    exact = model.weights()
    monkeypatch.setattr(Model, "weights", lambda self, a=0, b=None: exact[a:b] / 3)
    export(model, tmp_path / "model.safetensors")
    with safe_open(tmp_path / "model.safetensors", "np") as file:
        assert file.get_tensor("weights").dtype == np.float32


def test_vowpal_wabbits_text_comes_back(tmp_path):
    """With the same weights and the same reading of the same rows."""
    reader = {"vw": {"hash": "all", "seed": 3, "ignore": "xy", "keep": "usb", "interactions": ["us", "usb"]}}
    for model in both(reader=reader):
        assert export(model, tmp_path / "model.txt").note == ""
        back = import_vw(tmp_path / "model.txt", weights="float32").model
        expected = coefficients(model)
        expected[CONSTANT & (SLOTS - 1)] = 0.625
        assert (back.coefficients() == expected).all()
        assert back.intercept == 0.625
        assert msgspec.convert(back.reader, Reading) == msgspec.convert(reader, Reading)


def test_vowpal_wabbits_constant_has_a_slot_of_its_own(tmp_path):
    model = filled(weights="q2.13")
    put_weights(model.table, np.array([CONSTANT & (SLOTS - 1)]), np.array([8192]))
    note = export(model, tmp_path / "model.txt").note
    assert note == f"slot {CONSTANT & (SLOTS - 1)} is that of Vowpal Wabbit's constant: its weight 0.5 was left out"
    silent = filled(intercept=False)
    export(silent, tmp_path / "model.txt")
    back = import_vw(tmp_path / "model.txt", weights="float32").model
    assert not back.spec.intercept
    assert (back.coefficients() == silent.coefficients()).all()


def test_what_vowpal_wabbit_cannot_say_is_refused(tmp_path):
    table = Model.new(Spec(slots=1000))
    with pytest.raises(SpecError, match="this model has 1,000"):
        export(table, tmp_path / "x.txt")
    hashed = filled(reader={"hash": "all"})
    with pytest.raises(SpecError, match="trained on svmlight text, whose hashes"):
        export(hashed, tmp_path / "x.txt")
    with pytest.raises(SpecError, match="format must be one of safetensors, parquet, csv, vw, got 'onnx'"):
        export(hashed, tmp_path / "x.txt", "onnx")
    with pytest.raises(SpecError, match=r"expected a name that ends in \.safetensors, "):
        export(hashed, tmp_path / "x.bin")
    assert list(tmp_path.iterdir()) == []


def test_the_command_and_the_way_back(tmp_path: Path):
    """train, export, import-vw: the same predictions on the same text."""
    data, model, text = tmp_path / "rows.vw", tmp_path / "model", tmp_path / "weights.txt"
    data.write_text(random_lines(200, 1))
    assert lessram("train", data, "-o", model, "--bits", 18, "--scale", "none", "--interactions", "us", "-q").code == 0
    found = json.loads(lessram("export", model, "-o", text, "--json").out)
    assert (found["format"], found["file_bytes"], found["note"]) == ("vw", text.stat().st_size, "")
    assert "weights that are not 0" in lessram("export", model, "-o", text, "--to", "vw").out
    assert lessram("import-vw", text, "-o", tmp_path / "back").code == 0
    assert lessram("predict", tmp_path / "back", data).out == lessram("predict", model, data).out
    rows = sum(batch.rows for batch, _ in read_batches([str(data)], slots=4))
    assert len(lessram("predict", model, data).out.splitlines()) == rows == 200


def test_mistakes_of_the_command(tmp_path):
    filled().save(tmp_path / "model")
    found = lessram("export", tmp_path / "model", "-o", tmp_path / "model.onnx")
    assert (found.code, "expected a name that ends in" in found.err) == (2, True)
    missing = lessram("export", tmp_path / "missing", "-o", tmp_path / "x.csv")
    assert (missing.code, "missing: cannot read" in missing.err) == (1, True)
