"""Served models: what the file says, that prediction is exactly the rounded model's, and what is refused."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest
import scipy.sparse as sp
from streams import make_rows, to_batch

from lessram.data.batch import Batch
from lessram.data.formats import Form
from lessram.errors import DataError, FileFormatError, SpecError
from lessram.learning.learner import Learner
from lessram.model.model import Model
from lessram.model.spec import Spec
from lessram.numerics.fixed_point import FixedPoint
from lessram.serving.predictor import Predictor
from lessram.serving.served import Served
from lessram.serving.store import encode
from lessram.tables.layout import put_weights

GRID = FixedPoint(2, 7)
SLOTS = 96


def trained(valued: bool, **choices) -> Model:
    learner = Learner(Spec(slots=SLOTS, alpha=0.5, seed=3, **choices))
    learner.learn(to_batch(make_rows(SLOTS, (3, 5, 16, 33) * 30, valued=valued), valued=valued))
    learner.model.reader = {"hash": "auto", "hash_seed": 0}
    return learner.model


def rounded(model: Model) -> tuple[Served, Model]:
    """A model served on a coarse grid, and the same model trained on that grid with the same coefficients."""
    units = np.clip(np.rint(model.weights() / GRID.step), -GRID.largest_units, GRID.largest_units).astype(np.int32)
    twin = Model.new(Spec(slots=SLOTS, weights=str(GRID), rates="global", loss=model.spec.loss))
    put_weights(twin.table, np.arange(SLOTS), units)
    twin.scalars[:] = model.scalars
    return Served.of(model, encode(units, grid=GRID), seen=SLOTS, metrics={"log_loss": 0.5}), twin


@pytest.fixture
def binary(tmp_path):
    model = trained(False)
    served, twin = rounded(model)
    path = tmp_path / "clicks.served"
    served.save(path)
    return path, model, twin


@pytest.mark.parametrize("valued", [False, True])
@pytest.mark.parametrize("hot_bytes", [0, 64, 4096])
def test_margins_are_exactly_those_of_the_rounded_model(tmp_path, valued, hot_bytes):
    served, twin = rounded(trained(valued))
    served.save(tmp_path / "served")
    predictor = Predictor.open(tmp_path / "served", hot_bytes=hot_bytes)
    assert predictor.hot_bytes == hot_bytes
    batch = to_batch(make_rows(SLOTS, (0, 5, 1, 300, 0, 700, 33, 0), valued=valued), valued=valued)
    for rows in (batch, batch.slice(1, 6), batch.slice(2, 2), batch.slice(0, 1)):
        expected = Learner(twin).predict(rows)
        assert np.array_equal(predictor.predict(rows), expected)
        assert np.array_equal(predictor.predict(rows, trusted=True), expected), "the second time, from hot values"
    assert np.allclose(predictor.probabilities(batch), 1 / (1 + np.exp(-Learner(twin).predict(batch))))


def test_contributions_add_up_to_margins(binary):
    path, _, _ = binary
    predictor = Predictor.open(path)
    batch = to_batch(make_rows(SLOTS, (4, 7), valued=True), valued=True)
    parts = np.split(predictor.contributions(batch), batch.indptr[1:-1])
    margins = [float(part.sum()) + predictor.served.intercept for part in parts]
    assert np.allclose(margins, predictor.predict(batch))


def test_matrices_dicts_and_text_are_read_as_in_training(binary, tmp_path):
    path, _, twin = binary
    predictor = Predictor.open(path)
    assert predictor.slots == SLOTS
    assert predictor.reading.hash == "auto"
    rows = [{5: 1.0, 7: 2.0}, {}, {5: 1.0, "name": 1.0}]
    matrix = sp.csr_array(([1, 2, 1], [5, 7, 5], [0, 2, 2, 3]), shape=(3, SLOTS), dtype=np.float32)
    weights = twin.weights() * predictor.served.inverse_scale
    expected = np.array([weights[5] + 2 * weights[7], 0.0, weights[5]]) + predictor.served.intercept
    from_matrix = np.concatenate([predictor.predict(batch) for batch in predictor.batches(matrix)])
    assert np.allclose(from_matrix, expected)
    from_dicts = np.concatenate([predictor.predict(batch) for batch in predictor.batches(rows)])
    assert np.array_equal(from_dicts[:2], from_matrix[:2])
    (tmp_path / "rows.svm").write_text("1 5:1 7:2\n0\n-1 5:1\n")
    reader = predictor.read([str(tmp_path / "rows.svm")], Form(name="svmlight"))
    from_text = np.concatenate([predictor.predict(batch, trusted=True) for batch, _ in reader])
    assert np.array_equal(from_text, from_matrix)


def test_threads_predict_without_locks(binary):
    path, _, twin = binary
    predictor = Predictor.open(path, hot_bytes=256)
    batch = to_batch(make_rows(SLOTS, (20, 3) * 500, valued=False), valued=False)
    expected = Learner(twin).predict(batch)
    right = []

    def predict() -> None:
        right.append(np.array_equal(predictor.predict(batch, trusted=True), expected))

    threads = [threading.Thread(target=predict) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 4


def test_a_file_says_what_it_holds(binary):
    path, model, twin = binary
    served = Served.load(path, verify=True)
    assert served.spec == model.spec
    assert (served.examples, served.seen, served.metrics) == (model.examples, SLOTS, {"log_loss": 0.5})
    assert served.intercept == model.intercept
    assert served.scale == pytest.approx(model.scale)
    assert np.array_equal(served.store.decode() * GRID.step, twin.weights())
    info = Predictor.open(path).info()
    weights = twin.weights()
    assert info["kind"] == "served"
    assert info["slots"] == SLOTS
    assert info["nonzero"] == np.count_nonzero(weights)
    assert info["largest"] == np.abs(weights).max()
    assert info["file_bytes"] == path.stat().st_size
    assert info["bits_per_slot"] == 8 * served.store.nbytes / SLOTS
    assert info["bits_per_nonzero"] == 8 * served.store.nbytes / info["nonzero"]
    json.dumps(info)


def test_saving_again_gives_the_same_bytes(binary, tmp_path):
    path, _, _ = binary
    Served.load(path).save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_predictions_leave_the_file_alone(binary):
    path, _, _ = binary
    before = path.read_bytes()
    predictor = Predictor.open(path, hot_bytes=1024)
    predictor.predict(to_batch(make_rows(SLOTS, (50,) * 20, valued=False), valued=False))
    assert path.read_bytes() == before
    assert not predictor.served.store.tensors["bits"].flags.writeable


def test_flipped_cut_and_foreign_files_are_refused(binary, tmp_path):
    path, model, _ = binary
    good = path.read_bytes()
    start = 8 + int.from_bytes(good[:8], "little")
    for place in np.linspace(0, len(good) - 1, 60).astype(int):
        damaged = bytearray(good)
        damaged[place] ^= 4
        path.write_bytes(damaged)
        with pytest.raises(FileFormatError):
            Predictor.open(path, verify=True)
    for length in (0, 7, start - 1, start, len(good) - 1):
        path.write_bytes(good[:length])
        with pytest.raises(FileFormatError):
            Predictor.open(path)
    model.save(path)
    with pytest.raises(FileFormatError, match="found a trained model, expected a served one"):
        Predictor.open(path)
    path.write_bytes(good)
    with pytest.raises(FileFormatError, match="found a served model, expected a trained one"):
        Model.load(path)
    with pytest.raises(FileFormatError, match="cannot read"):
        Predictor.open(tmp_path / "missing")


@pytest.mark.parametrize("given", ["model.served", None, Model.new(Spec(slots=4))])
def test_what_is_no_compressed_model_is_told(given):
    with pytest.raises(SpecError, match=r"model of a Predictor must be a compressed one.*Predictor\.open"):
        Predictor(given)


def test_bad_rows_and_losses_without_probabilities_are_refused(tmp_path):
    served, _ = rounded(trained(False, loss="hinge"))
    served.save(tmp_path / "served")
    predictor = Predictor.open(tmp_path / "served")
    batch = Batch(np.zeros(1, np.float32), np.array([0, 1]), np.array([SLOTS], np.uint32))
    with pytest.raises(DataError, match=f"found slot {SLOTS}"):
        predictor.predict(batch)
    with pytest.raises(SpecError, match="this one has hinge loss"):
        predictor.probabilities(batch)
    with pytest.raises(SpecError, match="hot_bytes must not be negative"):
        Predictor(served, hot_bytes=-1)
