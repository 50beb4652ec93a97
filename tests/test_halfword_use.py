"""16 bits a slot as users meet them: commands, the estimator, models of Vowpal Wabbit, real data."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from test_import_vw import write_model
from test_source import example_text
from typer.testing import CliRunner

from lessram import Batch, LogisticRegression, read_batches
from lessram.cli.main import app
from lessram.errors import SpecError
from lessram.learning.learner import Learner
from lessram.learning.metrics import Scores
from lessram.model.model import Model
from lessram.model.spec import Spec
from lessram.model.vw_model import import_vw
from lessram.numerics.loss import Loss

CHOICE = ("--weights", "e3m6", "--rates", "squares6")


def lessram(*words: object) -> str:
    """What a command prints; it must end well."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data.svm"
    path.write_bytes(example_text(600))
    return path


# Commands -------------------------------------------------------------------------------------------------------------


def test_train_evaluate_predict_info(data, tmp_path):
    model = tmp_path / "model"
    trained = json.loads(lessram("train", data, "-o", model, "--bits", 12, *CHOICE, "--json", "-q"))
    assert (trained["bits_per_slot"], trained["table_bytes"], trained["examples"]) == (16.0, 2 * 4096, 600)
    evaluated = json.loads(lessram("evaluate", model, data, "--json", "-q"))
    assert evaluated["log_loss"] < trained["log_loss"]
    margins = [float(line) for line in lessram("predict", model, data, "--margins").split()]
    batches = read_batches([str(data)], slots=4096)
    expected = np.concatenate([Learner(Model.load(model)).predict(batch) for batch, _ in batches])
    assert margins == pytest.approx(expected.tolist(), rel=1e-8)
    info = json.loads(lessram("info", model, "--json"))
    assert (info["spec"]["weights"], info["spec"]["rates"], info["bits_per_slot"]) == ("e3m6", "squares6", 16.0)
    assert 0 < info["nonzero"] <= info["seen"] < 4096
    assert info["entropy_bits_per_slot"] < 10


def test_going_on_and_resuming_give_the_bytes_of_one_run(data, tmp_path):
    parts = [tmp_path / name for name in ("a.svm", "b.svm")]
    lines = data.read_bytes().splitlines(keepends=True)
    parts[0].write_bytes(b"".join(lines[:250]))
    parts[1].write_bytes(b"".join(lines[250:]))
    whole, half, both = (tmp_path / name for name in ("whole", "half", "both"))
    lessram("train", *parts, "-o", whole, "--bits", 12, *CHOICE, "-q")
    lessram("train", parts[0], "-o", half, "--bits", 12, *CHOICE, "-q")
    lessram("train", parts[1], "-i", half, "-o", both, "-q")
    assert both.read_bytes() == whole.read_bytes()
    checkpoint = tmp_path / "checkpoint"
    often = ("--checkpoint", checkpoint, "--checkpoint-every", 100)
    lessram("train", *parts, "-o", tmp_path / "once", "--bits", 12, *CHOICE, "-q", *often)
    assert checkpoint.exists()
    lessram("resume", checkpoint, "-o", tmp_path / "resumed", "-q")
    assert (tmp_path / "resumed").read_bytes() == whole.read_bytes()


def test_compress_and_serve(data, tmp_path):
    model, served = tmp_path / "model", tmp_path / "served"
    lessram("train", data, "-o", model, "--bits", 12, *CHOICE, "-q")
    lessram("compress", model, "-o", served, "--grid", "q3.11", "--rounding", "nearest")
    trained, small = (
        np.array([float(line) for line in lessram("predict", path, data, "--margins").split()])
        for path in (model, served)
    )
    assert np.abs(trained - small).max() < 1e-6, (
        "e3m6 and e3m7 below 1/8 are on that grid, and so are all coarser steps"
    )


@pytest.mark.parametrize("half", [CHOICE[:2], CHOICE[2:]])
def test_half_a_choice_is_the_whole(data, tmp_path, half):
    for name, choice in (("half", half), ("whole", CHOICE)):
        assert CliRunner().invoke(app, ["train", str(data), "-o", str(tmp_path / name), *choice]).exit_code == 0
    assert (tmp_path / "half").read_bytes() == (tmp_path / "whole").read_bytes()


def test_what_does_not_share_a_cell_is_refused(data, tmp_path):
    words = ["train", str(data), "-o", str(tmp_path / "model"), *CHOICE[:2], "--rates", "squares8"]
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, SpecError)
    assert "weights e3m6 and rates squares6 share one 16-bit cell and go together only" in str(result.exception)


# Models of Vowpal Wabbit ----------------------------------------------------------------------------------------------


def test_imported_weights_are_gridpoints_and_unbiased(tmp_path):
    # 0.3 lies between 307 and 308 units of 2^-10, where gridpoints are 4 units apart: 304 and 308.
    slots = 1 << 16
    path = write_model(tmp_path, "".join(f"{slot}:0.3\n" for slot in range(slots)), bits=16)
    weights = import_vw(path, weights="e3m6", rates="squares6", seed=1).model.weights()
    assert set((weights * 1024).tolist()) == {304.0, 308.0}
    assert weights.mean() == pytest.approx(0.3, abs=4 * 2 / 1024 / slots**0.5)


def test_imported_weights_beyond_the_range(tmp_path):
    path = write_model(tmp_path, "1:0.5\n2:-8.5\n3:7.9375\n")
    with pytest.raises(SpecError, match=r"found 1 of 3 weights beyond e3m6's range of 7\.9375, the largest 8\.5"):
        import_vw(path, weights="e3m6", rates="squares6")
    clipped = import_vw(path, weights="e3m6", rates="squares6", clip=True)
    assert clipped.model.weights()[:4].tolist() == [0.0, 0.5, -7.9375, 7.9375]
    assert clipped.clipped == 1


# The estimator --------------------------------------------------------------------------------------------------------


def test_estimator(tmp_path):
    rng = np.random.default_rng(3)
    dense = rng.random((200, 50)) * (rng.random((200, 50)) < 0.2)
    X, y = sp.csr_matrix(dense.astype(np.float32)), (dense[:, :25].sum(axis=1) > dense[:, 25:].sum(axis=1)).astype(int)
    clf = LogisticRegression(weights="e3m6", rates="squares6", passes=3).fit(X, y)
    assert clf.score(X, y) > 0.9
    model = clf.models_[0]
    assert clf.memory_usage() == 2 * 50 + model.scalars.nbytes
    margins = X @ sp.csr_matrix(clf.coef_).toarray().ravel() + clf.intercept_
    assert margins == pytest.approx(clf.decision_function(X), rel=1e-9)
    other = pickle.loads(pickle.dumps(clf))
    assert np.array_equal(other.decision_function(X), clf.decision_function(X))
    other.partial_fit(X, y)
    clf.partial_fit(X, y)
    assert np.array_equal(other.models_[0].table.cells, model.table.cells)


# Real data ------------------------------------------------------------------------------------------------------------


def test_16_bits_lose_little(data_folder):
    """Against the same learner with float32 weights and exact sums; benchmarks/small_cells.py has all sets."""
    reader = read_batches([str(data_folder / "criteo_60k.svm.bz2")], slots=1 << 20)
    batches = [Batch(*(None if array is None else np.array(array) for array in batch)) for batch, _ in reader]
    losses = []
    for weights, rates in (("float32", "squares32"), ("e3m6", "squares6")):
        learner = Learner(Spec(slots=1 << 20, weights=weights, rates=rates, alpha=0.08, seed=1))
        scores = Scores.new()
        for batch in batches:
            scores.add(learner.learn(batch, trusted=True), batch, Loss.logistic)
        losses.append(scores.log_loss)
    assert losses[0] < losses[1] < 1.003 * losses[0], "found +0.13 %, +-0.01"
