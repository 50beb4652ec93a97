"""Predicting whatever a user has in hand: the same numbers as `lessram predict` gives for a file of the same rows."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp
from commands import lessram as command
from pyarrow import parquet

import lessram
from lessram import DataError, Learner, LogisticRegression, Model, Predictor, Spec, SpecError
from lessram.data import tabular
from lessram.data.formats import Reading
from lessram.data.predicting import batches_to_predict
from lessram.serving.planner import Wish, compress

SLOTS = 1 << 12
ROWS = 500


def make_frame(rows: int = ROWS) -> pd.DataFrame:
    random = np.random.default_rng(5)
    site = random.choice(["rome", "oslo", "서울", None], rows)
    price = np.where(random.random(rows) < 0.1, np.nan, random.normal(50, 20, rows).round(2))
    late = random.random(rows) < np.where(site == "rome", 0.8, 0.3)
    note = random.choice(["a fine day", "rain, rain", ""], rows)
    frame = pd.DataFrame({"late": late.astype(int), "site": site, "price": price, "note": note, "many": 1.0})
    return frame.astype({"site": object, "note": object})


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A folder with a table, a model that the command line trained on it, the same compressed, and its predictions."""
    folder = tmp_path_factory.mktemp("prediction")
    make_frame().to_csv(folder / "rows.csv", index=False)
    options = ["--label", "late", "--weight", "many", "--text", "note", "--bits", "12", "--alpha", "0.3"]
    assert command("train", folder / "rows.csv", "-o", folder / "model", *options).code == 0
    compress(lessram.load(str(folder / "model")), Wish(grid="q2.7")).served.save(folder / "served")
    for name in ("model", "served"):
        printed = command("predict", folder / name, folder / "rows.csv", "--json").out
        np.save(folder / f"{name}.npy", [msgspec.json.decode(line)["margin"] for line in printed.splitlines()])
    return folder


def in_polars(frame: pd.DataFrame):
    return pytest.importorskip("polars").from_arrow(pa.Table.from_pandas(frame, preserve_index=False))


def in_duckdb(frame: pd.DataFrame):
    duckdb = pytest.importorskip("duckdb")
    return duckdb.from_arrow(pa.Table.from_pandas(frame, preserve_index=False))


def in_parquet(frame: pd.DataFrame, path: Path) -> Path:
    parquet.write_table(pa.Table.from_pandas(frame, preserve_index=False), path)
    return path


FORMS = {
    "pandas": lambda frame: frame,
    "pandas, categories": lambda frame: frame.astype({"site": "category", "note": "category"}),
    "Arrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "Arrow stream": lambda frame: pa.Table.from_pandas(frame, preserve_index=False).to_reader(),
    "Polars": in_polars,
    "Polars, lazy": lambda frame: in_polars(frame).lazy(),
    "DuckDB": in_duckdb,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["model", "served"])
def test_frames_are_predicted_as_files(trained, kind, form, monkeypatch):
    monkeypatch.setattr(tabular, "ROWS", 64)
    expected = np.load(trained / f"{kind}.npy")
    frame = make_frame().drop(columns=["late", "many"])[["note", "price", "site"]]
    assert lessram.predict(trained / kind, FORMS[form](frame), margins=True).tolist() == expected.tolist()
    likely = lessram.predict(trained / kind, FORMS[form](frame))
    assert np.allclose(likely, 1 / (1 + np.exp(-expected)), rtol=1e-15)


def test_whoever_predicts_takes_frames_and_paths(trained):
    frame = make_frame()
    model, served = Model.load(trained / "model"), Predictor.open(trained / "served")
    expected = np.load(trained / "model.npy")
    for predicts in (model, Learner(model), str(trained / "model")):
        assert np.array_equal(lessram.predict(predicts, frame, margins=True), expected)
    for predicts in (served, served.served):
        assert np.array_equal(lessram.predict(predicts, frame, margins=True), np.load(trained / "served.npy"))
    for rows in (frame, trained / "rows.csv", [str(trained / "rows.csv")], in_parquet(frame, trained / "rows.parquet")):
        assert np.array_equal(Learner(model).predict(rows), expected)
    assert np.array_equal(Learner(model).probabilities(frame), lessram.predict(model, frame))
    assert np.array_equal(served.probabilities(frame), lessram.predict(served, frame))
    assert len(Learner(model).predict(frame[:0])) == 0


@pytest.mark.parametrize("unusual", ["late", "many"])
def test_labels_and_weights_are_not_looked_at(trained, unusual, tmp_path):
    frame = make_frame().astype({unusual: object})
    frame[unusual] = "unknown"
    assert np.array_equal(lessram.predict(trained / "model", frame, margins=True), np.load(trained / "model.npy"))
    frame.to_csv(tmp_path / "rows.csv", index=False)
    ran = command("predict", trained / "model", tmp_path / "rows.csv")
    assert (ran.code, len(ran.out.splitlines()), ran.err) == (0, ROWS, "")


def test_columns_that_arrow_does_not_know_are_no_matter(trained):
    frame = make_frame().assign(more=[{1: "x"}, b"y"] * (ROWS // 2))
    assert np.array_equal(lessram.predict(trained / "model", frame, margins=True), np.load(trained / "model.npy"))


def test_matrices_and_dicts_for_models_of_numbered_features():
    X = sp.random_array((80, 30), density=0.3, format="csr", dtype=np.float32, rng=np.random.default_rng(2))
    y = (X[:, [0]].toarray().ravel() > 0).astype(int)
    y[:2] = [0, 1]
    clf = LogisticRegression().fit(X, y)
    expected = clf.decision_function(X)
    rows = [{int(i): float(v) for i, v in zip(X[[r]].indices, X[[r]].data, strict=True)} for r in range(80)]
    for form in (X, X.toarray(), rows, pd.DataFrame(X.toarray())):
        assert np.array_equal(lessram.predict(clf.models_[0], form, margins=True), expected)


def test_going_on_with_a_frame_keeps_the_scales_of_columns(trained):
    model = Model.load(trained / "model", writable=True)
    later = make_frame().assign(price=lambda rows: rows.price + 100)
    as_trained = lessram.read_batches(later, slots=SLOTS, reader=model.reader)
    guessed = lessram.read_batches(later, slots=SLOTS, label="late")
    before, kept, found = (msgspec.convert(of, Reading) for of in (model.reader, as_trained.reader, guessed.reader))
    assert before == kept
    assert before.schema.scales != found.schema.scales
    learner = Learner(model)
    for batch, _ in as_trained:
        learner.learn(batch, trusted=True)
    assert model.examples == 2 * ROWS


def test_memory_does_not_grow_with_a_frame(trained, monkeypatch):
    monkeypatch.setattr(tabular, "ROWS", 1 << 10)
    learner = Learner(Model.load(trained / "model"))

    def peak(rows: int) -> int:
        frame = make_frame(rows)
        before = pa.total_allocated_bytes()
        tracemalloc.start()
        pool, largest = pa.default_memory_pool(), 0
        margins = 0
        for batch in batches_to_predict(frame, learner.model.reader, SLOTS):
            margins += len(learner.predict(batch, trusted=True))
            largest = max(largest, pool.bytes_allocated() - before)
        found = largest + tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert margins == rows
        return found

    peak(1 << 12)
    assert peak(1 << 16) < 1.5 * peak(1 << 13)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (lambda frame: frame.drop(columns="site"), "must have the columns that the model was trained on, 'site' is"),
        (lambda frame: frame.to_numpy(), "trained on a table: expected a data frame or Arrow to predict, got ndarray"),
        (lambda frame: [{"site": "rome"}], "trained on a table: expected a data frame or Arrow to predict, got list"),
        (lambda frame: frame["site"], "expected a data frame or Arrow|cannot become Arrow"),
    ],
)
@pytest.mark.parametrize("kind", ["model", "served"])
def test_rows_of_another_kind_are_refused(trained, kind, rows, message):
    with pytest.raises((SpecError, DataError), match=message):
        lessram.predict(trained / kind, rows(make_frame()))


def test_models_that_cannot_read_frames_say_so():
    frame = make_frame()
    nameless = Model.new(Spec(slots=SLOTS))
    with pytest.raises(SpecError, match=r"does not know how the columns of a table become features.*\.reader"):
        lessram.predict(nameless, frame)
    nameless.reader = {"vw": {}}
    with pytest.raises(SpecError, match="on Vowpal Wabbit text: expected a file of it to predict, got DataFrame"):
        lessram.predict(nameless, frame)


def test_a_table_without_its_label_teaches_nothing(trained):
    model = Model.load(trained / "model")
    with pytest.raises(SpecError, match="the table must have the label, 'late' is missing"):
        lessram.read_batches(make_frame().drop(columns="late"), slots=SLOTS, reader=model.reader)


def test_squared_loss_has_no_probabilities():
    model = Model.new(Spec(slots=8, loss="squared"))
    assert lessram.predict(model, [{3: 1.0}]).tolist() == [0.0]
    with pytest.raises(SpecError, match="probabilities need a model of logistic loss, this one has squared loss"):
        Learner(model).probabilities([{3: 1.0}])
