"""LogisticRegression: scikit-learn's contract, and the same bytes as `Learner` whatever the matrix lies in."""

from __future__ import annotations

import copy
import datetime
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn import linear_model
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from lessram import Batch, DataError, Learner, LogisticRegression, Model, Spec, SpecError, read_batches
from lessram.data import matrix

ROWS, FEATURES = 60, 50

ONLINE = "rows are learned one after another: a row of weight 2 is one step, the same row twice is two"
EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": ONLINE,
    "check_sample_weight_equivalence_on_sparse_data": ONLINE,
}
"""The two checks that every online learner fails, scikit-learn's own SGDClassifier among them."""


@parametrize_with_checks([LogisticRegression()], expected_failed_checks=lambda estimator: EXPECTED_FAILURES)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def make_data(classes: int = 2, *, valued: bool = True, seed: int = 3) -> tuple[sp.csr_matrix, np.ndarray]:
    rng = np.random.default_rng(seed)
    present = rng.random((ROWS, FEATURES)) < 0.2
    dense = np.where(present, rng.normal(0, 3, present.shape) if valued else 1.0, 0.0).astype(np.float32)
    y = np.argmax(dense[:, :classes] + rng.random((ROWS, classes)), axis=1)
    y[:classes] = np.arange(classes)
    return sp.csr_matrix(dense), y


def saved(clf: LogisticRegression, folder: Path) -> list[bytes]:
    """The bytes of the files of all models."""
    found = []
    for model in clf.models_:
        model.save(folder / "model")
        found.append((folder / "model").read_bytes())
    return found


def on_disk(array: np.ndarray, path: Path) -> np.ndarray:
    np.save(path, array)
    return np.load(path, mmap_mode="r")


def csr(matrix: sp.csr_matrix, index_type: type, value_type: type = np.float32) -> sp.csr_matrix:
    """The same matrix with arrays of these types, which scipy's constructor would not keep."""
    made = sp.csr_matrix(matrix.shape, dtype=value_type)
    made.indptr, made.indices = matrix.indptr.astype(index_type), matrix.indices.astype(index_type)
    made.data = matrix.data.astype(value_type)
    return made


def memmapped(matrix: sp.csr_matrix, folder: Path) -> sp.csr_matrix:
    made = csr(matrix, np.int32)
    for part in ("indptr", "indices", "data"):
        setattr(made, part, on_disk(getattr(matrix, part), folder / f"{part}.npy"))
    return made


# One model, however it is reached


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_batch_equals_its_rows_one_after_another(classes, weighted, tmp_path):
    X, y = make_data(classes)
    weights = np.random.default_rng(0).choice([0.0, 0.5, 1.0, 3.0], ROWS) if weighted else None
    whole = LogisticRegression().partial_fit(X, y, classes=range(classes), sample_weight=weights)
    looped = LogisticRegression()
    for r in range(ROWS):
        weight = None if weights is None else weights[r : r + 1]
        looped.partial_fit(X[r], y[r : r + 1], classes=range(classes), sample_weight=weight)
    assert saved(looped, tmp_path) == saved(whole, tmp_path)


def test_small_batches_of_a_matrix_give_the_same_bytes(tmp_path, monkeypatch):
    X, y = make_data()
    whole = LogisticRegression(passes=2).fit(X, y)
    monkeypatch.setattr(matrix, "FEATURES", 64)
    assert saved(LogisticRegression(passes=2).fit(X, y), tmp_path) == saved(whole, tmp_path)
    assert saved(LogisticRegression(passes=2).fit(X.toarray(), y), tmp_path) == saved(whole, tmp_path)


def test_fit_is_one_partial_fit_a_pass(tmp_path):
    X, y = make_data(3)
    fitted = LogisticRegression(passes=3, alpha=0.3).fit(X, y)
    streamed = LogisticRegression(alpha=0.3)
    for _ in range(3):
        streamed.partial_fit(X, y, classes=[0, 1, 2])
    assert saved(fitted, tmp_path) == saved(streamed, tmp_path)
    assert saved(fitted.fit(X, y), tmp_path) == saved(streamed, tmp_path)  # and forgets what it knew


FORMS = {
    "int64 indices": lambda X, folder: csr(X, np.int64),
    "float64 data": lambda X, folder: csr(X, np.int32, np.float64),
    "read-only memmaps": memmapped,
    "CSR array": lambda X, folder: sp.csr_array(X),
    "CSC": lambda X, folder: X.tocsc(),
    "COO": lambda X, folder: X.tocoo(),
    "dense": lambda X, folder: X.toarray(),
    "dense, by columns": lambda X, folder: np.asfortranarray(X.toarray()),
    "dense, memmapped": lambda X, folder: on_disk(X.toarray(), folder / "dense.npy"),
    "dense float64": lambda X, folder: X.toarray().astype(np.float64),
    "lists": lambda X, folder: X.toarray().tolist(),
    "explicit zeros": lambda X, folder: X + csr(X, np.int32).multiply(0),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_form_of_the_matrix_changes_no_byte(form, tmp_path):
    X, y = make_data()
    expected = LogisticRegression(passes=2).fit(X, y)
    other = FORMS[form](X, tmp_path)
    found = LogisticRegression(passes=2).fit(other, y)
    assert saved(found, tmp_path) == saved(expected, tmp_path)
    assert np.array_equal(found.decision_function(other), expected.decision_function(X))


@pytest.mark.parametrize("kind", [bool, np.int8, np.uint64, np.float16])
def test_binary_features_of_any_type(kind, tmp_path):
    X, y = make_data(valued=False)
    expected = LogisticRegression(passes=2).fit(X, y)
    assert saved(LogisticRegression(passes=2).fit(X.toarray().astype(kind), y), tmp_path) == saved(expected, tmp_path)


@pytest.mark.parametrize("index_type", [np.int32, np.int64])
def test_large_arrays_are_not_copied(index_type, tmp_path, monkeypatch):
    X, y = make_data()
    X = csr(X, index_type)
    for part in ("indptr", "indices", "data"):
        setattr(X, part, on_disk(getattr(X, part), tmp_path / f"{part}.npy"))
    batches = list[Batch]()
    learn = Learner.learn
    monkeypatch.setattr(Learner, "learn", lambda self, batch, **how: batches.append(batch) or learn(self, batch, **how))
    LogisticRegression(passes=1, alpha=0.3, weights="q3.12").fit(X, y)
    assert len(batches) == 1
    assert np.shares_memory(batches[0].slots, X.indices)
    assert np.shares_memory(batches[0].values, X.data)


def test_the_same_bytes_as_a_learner(tmp_path):
    X, y = make_data()
    clf = LogisticRegression(passes=1, alpha=0.7, weights="q3.9", radius=2.0, random_state=11).fit(X, y)
    learner = Learner(Spec(slots=FEATURES, alpha=0.7, weights="q3.9", radius=2.0, seed=11))
    learner.learn(Batch(y.astype(np.float32), X.indptr.astype(np.int64), X.indices.astype(np.uint32), X.data))
    learner.model.reader = clf.models_[0].reader
    learner.model.save(tmp_path / "learner")
    assert saved(clf, tmp_path) == [(tmp_path / "learner").read_bytes()]


def test_the_paper_s_preset():
    X, y = make_data()
    clf = LogisticRegression(preset="paper", passes=1).fit(X, y)
    assert clf.models_[0].spec == Spec.paper(slots=FEATURES)
    said = LogisticRegression(weights="q2.13", rates="morris8", step="plain", alpha=0.2, passes=1).fit(X, y)
    assert np.array_equal(clf.models_[0].table.cells, said.models_[0].table.cells)
    other = LogisticRegression(preset="paper", rates="ladder8", alpha=0.1).fit(X, y).models_[0].spec
    assert other == Spec.paper(slots=FEATURES, rates="ladder8", alpha=0.1)
    streamed = LogisticRegression(preset="paper").partial_fit(X, y, classes=np.unique(y))
    assert np.array_equal(streamed.models_[0].table.cells, clf.models_[0].table.cells)


def test_features_beyond_the_slots_are_hashed_as_in_files(tmp_path):
    X, y = make_data(valued=False)
    text = [f"{label} " + " ".join(f"{i}:1" for i in X[r].indices) for r, label in enumerate(y)]
    (tmp_path / "rows.svm").write_text("\n".join(text) + "\n")
    learner = Learner(Spec(slots=16, alpha=0.3))
    for batch, _ in read_batches([str(tmp_path / "rows.svm")], slots=16):
        learner.learn(batch)
    clf = LogisticRegression(n_slots=16, passes=1, alpha=0.3).fit(X, y)
    assert np.array_equal(clf.models_[0].table.cells, learner.model.table.cells)
    assert clf.n_features_in_ == FEATURES


def test_a_saved_model_predicts_the_same(tmp_path):
    X, y = make_data()
    clf = LogisticRegression().fit(X, y)
    clf.models_[0].save(tmp_path / "model")
    loaded = Learner(Model.load(tmp_path / "model"))
    batch = Batch(y.astype(np.float32), X.indptr.astype(np.int64), X.indices.astype(np.uint32), X.data)
    assert np.array_equal(loaded.predict(batch), clf.decision_function(X))


# Coefficients, classes, probabilities


@pytest.mark.parametrize("n_slots", [None, 2 * FEATURES, 16])
@pytest.mark.parametrize("classes", [2, 3])
def test_coefficients_are_those_of_raw_features(n_slots, classes):
    X, y = make_data(classes)
    clf = LogisticRegression(n_slots=n_slots).fit(X, y)
    assert clf.coef_.shape == (1 if classes == 2 else 3, FEATURES)
    assert clf.coef_.format == "csr"
    margins = X @ clf.coef_.toarray().T + clf.intercept_
    assert np.allclose(margins, clf.decision_function(X).reshape(ROWS, -1), rtol=1e-12, atol=1e-12)


def test_a_notebook_shows_a_model_of_more_hashed_features_than_have_coefficients():
    columns = 1 << 40
    X = sp.csr_matrix((np.ones(4, np.float32), [7, 1 << 33, columns - 1, 5], [0, 1, 2, 3, 4]), shape=(4, columns))
    clf = LogisticRegression(n_slots=64).fit(X, [0, 1, 0, 1])
    assert not hasattr(clf, "coef_")
    with pytest.raises(DataError, match=r"coef_ of 1,099,511,627,776 hashed features .*coefficients of 64 slots"):
        _ = clf.coef_
    shown = clf._repr_html_()
    assert "intercept_" in shown
    assert "coef_" not in shown.replace("intercept_", "")


def test_coefficients_keep_only_what_is_not_zero():
    X, y = make_data()
    unseen = sp.hstack([X, sp.csr_matrix((ROWS, 1000))], format="csr")
    assert 0 < LogisticRegression().fit(unseen, y).coef_.nnz <= FEATURES


def test_without_an_intercept():
    X, y = make_data()
    assert LogisticRegression(fit_intercept=False).fit(X, y).intercept_.tolist() == [0.0]


def test_each_class_against_the_rest(tmp_path):
    X, y = make_data(3)
    names = np.array(["ant", "bee", "cat"])
    clf = LogisticRegression(random_state=5).fit(X, names[y])
    for k in range(3):
        alone = LogisticRegression(random_state=5 + k).fit(X, y == k)
        assert saved(alone, tmp_path)[0] == saved(clf, tmp_path)[k]
        assert np.array_equal(alone.decision_function(X), clf.decision_function(X)[:, k])
    likely = 1 / (1 + np.exp(-clf.decision_function(X)))
    assert np.allclose(clf.predict_proba(X), likely / likely.sum(axis=1, keepdims=True))
    assert np.allclose(np.exp(clf.predict_log_proba(X)), clf.predict_proba(X))
    assert np.array_equal(clf.predict(X), names[clf.decision_function(X).argmax(axis=1)])


@pytest.mark.parametrize("classes", [2, 3])
def test_extreme_margins_have_probabilities(classes):
    X, y = make_data(classes)
    clf = LogisticRegression().fit(X, y)
    far = np.concatenate([X.toarray(), -X.toarray()]) * 1e6
    for probabilities in (clf.predict_proba(far), np.exp(clf.predict_log_proba(far))):
        assert np.isfinite(probabilities).all()
        assert np.allclose(probabilities.sum(axis=1), 1)


def test_labels_of_any_kind():
    X, y = make_data()
    expected = LogisticRegression().fit(X, y).predict(X)
    for labels in (np.array(["no", "yes"]), np.array([-1.0, 1.0]), np.array([False, True]), np.array([7, 400])):
        clf = LogisticRegression().fit(X, labels[y])
        assert clf.classes_.tolist() == labels.tolist()
        assert np.array_equal(clf.predict(X), labels[expected])


def test_a_class_that_the_first_call_does_not_meet():
    X, y = make_data(3)
    clf = LogisticRegression().partial_fit(X[y < 2], y[y < 2], classes=[2, 0, 1])
    assert clf.partial_fit(X, y).predict_proba(X).shape == (ROWS, 3)


def test_names_of_features():
    X, y = make_data()
    frame = pd.DataFrame(X.toarray(), columns=[f"f{i}" for i in range(FEATURES)])
    clf = LogisticRegression().fit(frame, y)
    assert clf.feature_names_in_.tolist() == frame.columns.tolist()
    assert clf.n_features_in_ == FEATURES


# Weights and randomness


def test_weights_of_one_change_no_byte(tmp_path):
    X, y = make_data()
    expected = saved(LogisticRegression().fit(X, y), tmp_path)
    for ones in (np.ones(ROWS), [1] * ROWS, 1.0):
        assert saved(LogisticRegression().fit(X, y, sample_weight=ones), tmp_path) == expected
    assert saved(LogisticRegression().fit(X, y, sample_weight=np.full(ROWS, 2.0)), tmp_path) != expected


def test_rows_of_weight_zero_teach_nothing():
    X, y = make_data()
    clf = LogisticRegression().partial_fit(X, y, classes=[0, 1])
    before = clf.models_[0].table.cells.copy()
    clf.partial_fit(X, y, sample_weight=np.zeros(ROWS))
    assert np.array_equal(clf.models_[0].table.cells, before)


def test_random_state():
    X, y = make_data()

    def fitted(state: Any) -> bytes:
        return LogisticRegression(random_state=state).fit(X, y).models_[0].table.cells.tobytes()

    assert fitted(3) == fitted(3) == fitted(np.int64(3)) != fitted(4)
    assert fitted(np.random.RandomState(3)) == fitted(np.random.RandomState(3))
    state = np.random.get_state()
    try:
        np.random.seed(0)
        first, second = fitted(None), fitted(None)
        np.random.seed(0)
        assert first == fitted(None) != second
    finally:
        np.random.set_state(state)


def test_passes_by_default():
    X, y = make_data()
    assert LogisticRegression().fit(X, y).n_iter_ == 100
    assert LogisticRegression(passes=7).fit(X, y).n_iter_ == 7
    many = [sp.vstack([X] * copies, format="csr") for copies in (250, 400)]
    assert [LogisticRegression().fit(M, np.tile(y, M.shape[0] // ROWS)).n_iter_ for M in many] == [2, 1]


# The order of rows


@pytest.mark.parametrize("classes", [2, 3])
def test_rows_sorted_by_label_are_told(classes):
    X, y = make_data(classes)
    X, y = sp.vstack([X] * 10, format="csr"), np.tile(y, 10)
    by_label = np.argsort(y, kind="stable")
    advice = rf"rows differ {classes - 1} time.*about \d+ times in random order.*sklearn\.utils\.shuffle"
    with pytest.warns(UserWarning, match=advice) as told:
        LogisticRegression().fit(X[by_label], y[by_label])
    assert told[0].filename == __file__


def test_nothing_is_told_of_other_orders():
    X, y = make_data()
    one = np.zeros(ROWS, int)
    one[ROWS // 2] = 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LogisticRegression().fit(X, y)
        LogisticRegression().fit(X, one)  # a rare class has few neighbours
        LogisticRegression().fit(X[:2], [0, 1])
        LogisticRegression().fit(X, np.arange(ROWS) // 10 % 2)  # runs that hurt nobody
        LogisticRegression().partial_fit(X, np.zeros(ROWS, int), classes=[0, 1])  # a part of a stream


# The size of columns


def test_columns_of_very_different_size_are_told():
    frame, y = load_wine(return_X_y=True, as_frame=True)
    frame, y = frame.sample(frac=1, random_state=0), y.sample(frac=1, random_state=0)
    advice = r"values of column {} are \d,\d\d\d times as large as those of column {},.*StandardScaler"
    with pytest.warns(UserWarning, match=advice.format("'proline'", "'nonflavanoid_phenols'")) as told:
        assert LogisticRegression().fit(frame, y).score(frame, y) < 0.8
    assert told[0].filename == __file__
    with pytest.warns(UserWarning, match=advice.format(12, 7)):
        LogisticRegression().fit(frame.to_numpy(), y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert make_pipeline(StandardScaler(), LogisticRegression()).fit(frame, y).score(frame, y) > 0.99


@pytest.mark.parametrize("of_column", [lambda X: X * 1e-12, lambda X: X > 0, lambda X: (X > 1) + 100.0 * (X < 0)])
def test_nothing_is_told_of_columns_that_go_together(of_column):
    X, y = make_data()
    dense = of_column(X.toarray())
    dense[:, 7] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LogisticRegression(passes=1).fit(dense, y)
        LogisticRegression(passes=1).fit(np.zeros_like(dense), y)


# Copies


@pytest.mark.parametrize("copied", [lambda clf: pickle.loads(pickle.dumps(clf)), copy.deepcopy])
@pytest.mark.parametrize("classes", [2, 3])
def test_a_copy_has_the_same_bytes_and_learns_on_alike(copied, classes, tmp_path):
    X, y = make_data(classes)
    clf = LogisticRegression().fit(X, y)
    other = copied(clf)
    assert saved(other, tmp_path) == saved(clf, tmp_path)
    assert pickle.dumps(other) == pickle.dumps(copied(other))
    other.partial_fit(X, y)
    assert saved(other, tmp_path) != saved(clf, tmp_path)
    assert saved(other, tmp_path) == saved(clf.partial_fit(X, y), tmp_path)
    assert np.array_equal(other.predict_proba(X), clf.predict_proba(X))


def test_a_large_table_is_copied_like_a_small_one():
    X, y = make_data()
    clf = LogisticRegression(n_slots=1 << 21, passes=1).fit(X, y)
    other = pickle.loads(pickle.dumps(clf)).partial_fit(X, y)
    assert np.array_equal(other.models_[0].table.cells, clf.partial_fit(X, y).models_[0].table.cells)


def test_a_memory_mapped_estimator(tmp_path):
    X, y = make_data()
    clf = LogisticRegression().fit(X, y)
    joblib.dump(clf, tmp_path / "clf")
    stored = (tmp_path / "clf").read_bytes()
    mapped = joblib.load(tmp_path / "clf", mmap_mode="r")
    assert np.array_equal(mapped.decision_function(X), clf.decision_function(X))
    mapped.partial_fit(X, y)
    assert saved(mapped, tmp_path) == saved(clf.partial_fit(X, y), tmp_path)
    assert (tmp_path / "clf").read_bytes() == stored


def test_clone_keeps_choices_and_forgets_the_rest():
    X, y = make_data()
    fresh = clone(LogisticRegression(alpha=0.5, n_slots=32).fit(X, y))
    assert (fresh.alpha, fresh.n_slots) == (0.5, 32)
    with pytest.raises(NotFittedError):
        fresh.predict(X)
    for name in ("coef_", "intercept_"):
        assert not hasattr(fresh, name)
    with pytest.raises(NotFittedError):
        fresh.memory_usage()


def test_prediction_is_pure_and_needs_no_lock(tmp_path):
    X, y = make_data(3)
    clf = LogisticRegression().fit(X, y)
    before, expected = saved(clf, tmp_path), clf.decision_function(X)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: clf.decision_function(X), range(16)))
    assert all(np.array_equal(one, expected) for one in found)
    assert saved(clf, tmp_path) == before


def test_memory_usage():
    X, y = make_data(3)
    beside = 32
    assert LogisticRegression().fit(X, y).memory_usage() == 3 * (3 * FEATURES + beside)
    assert LogisticRegression(n_slots=1000, weights="q3.12").fit(X, y == 0).memory_usage() == 3 * 1000 + beside


# With the rest of scikit-learn


def test_in_pipelines_and_searches_over_processes():
    X, y = load_breast_cancer(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), LogisticRegression())
    assert cross_val_score(pipeline, X, y).mean() > 0.97
    search = GridSearchCV(pipeline, {"logisticregression__alpha": np.array([1e-4, 0.1])}, n_jobs=2, cv=3)
    alone = GridSearchCV(pipeline, {"logisticregression__alpha": np.array([1e-4, 0.1])}, cv=3)
    assert np.array_equal(
        search.fit(X, y).cv_results_["mean_test_score"], alone.fit(X, y).cv_results_["mean_test_score"]
    )
    assert search.best_params_ == {"logisticregression__alpha": 0.1}


def test_text():
    good, bad = ["a fine warm day", "warm and fine", "fine fine"], ["a cold wet day", "wet and cold", "cold cold"]
    pipeline = make_pipeline(HashingVectorizer(n_features=1 << 20), LogisticRegression(n_slots=1 << 12))
    pipeline.fit(good + bad, ["good"] * 3 + ["bad"] * 3)
    assert pipeline.predict(["warm day", "wet day"]).tolist() == ["good", "bad"]


def test_close_to_batch_logistic_regression_on_real_data(data_folder):
    y, X = [], []
    for batch, _ in read_batches([str(data_folder / "a9a.svm.xz")], slots=128):
        y.append(batch.labels.copy())
        ones = np.ones(batch.features, np.float32)
        X.append(sp.csr_matrix((ones, batch.slots[: batch.features].copy(), batch.indptr), shape=(batch.rows, 128)))
    rows, labels = sp.vstack(X, format="csr"), np.concatenate(y)
    train, test = slice(0, 24_000), slice(24_000, None)

    def loss(clf: Any) -> float:
        return log_loss(labels[test], clf.fit(rows[train], labels[train]).predict_proba(rows[test]))

    batch_loss = loss(linear_model.LogisticRegression(max_iter=200))
    assert loss(LogisticRegression(passes=1)) < 1.02 * batch_loss
    assert loss(LogisticRegression(passes=10)) < 1.003 * batch_loss


# What is refused


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
@pytest.mark.parametrize("sparse", [True, False])
def test_a_bad_value_is_named_and_nothing_is_learned(value, sparse, tmp_path, monkeypatch):
    monkeypatch.setattr(matrix, "FEATURES", 64)
    X, y = make_data()
    clf = LogisticRegression().partial_fit(X, y, classes=[0, 1])
    before = saved(clf, tmp_path)
    bad = X.toarray().astype(np.float64)
    bad[ROWS - 1, 17] = value
    bad = sp.csr_matrix(bad) if sparse else bad
    for call in (lambda: clf.partial_fit(bad, y), lambda: clf.predict(bad)):
        with pytest.raises(
            DataError, match=rf"Input X contains NaN, infinity.*row {ROWS - 1}, column 17: found .*SimpleImputer"
        ):
            call()
    assert saved(clf, tmp_path) == before


def test_a_damaged_sparse_matrix_is_refused():
    X, y = make_data()
    for part, place, value in (
        ("indices", 5, FEATURES),
        ("indices", 5, -1),
        ("indptr", 3, 10**6),
        ("indptr", -1, 10**6),
    ):
        bad = X.copy()
        getattr(bad, part)[place] = value
        with pytest.raises(DataError, match=r"found (column|row starts)"):
            LogisticRegression().fit(bad, y)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.full(ROWS, -1.0), r"row 0: found sample_weight -1\.0, expected"),
        (np.full(ROWS, np.nan), "NaN"),
        (np.ones(ROWS - 1), rf"shape \({ROWS - 1},\), expected \({ROWS},\)"),
        (np.ones((ROWS, 2)), "shape"),
        (np.zeros(ROWS), "found zero as every sample_weight"),
    ],
)
def test_bad_weights(weights, message):
    X, y = make_data()
    with pytest.raises(ValueError, match=message):
        LogisticRegression().fit(X, y, sample_weight=weights)


def test_bad_labels():
    X, y = make_data()
    with pytest.raises(DataError, match="classes must be passed on the first call"):
        LogisticRegression().partial_fit(X, y)
    clf = LogisticRegression().partial_fit(X, y, classes=[0, 1])
    with pytest.raises(DataError, match=r"found classes \[0 2\], expected \[0 1\]"):
        clf.partial_fit(X, y, classes=[0, 2])
    with pytest.raises(DataError, match=r"row 4: found label 7, expected one of \[0 1\]"):
        clf.partial_fit(X, np.where(np.arange(ROWS) == 4, 7, y))
    with pytest.raises(DataError, match="found 1 class"):
        LogisticRegression().fit(X, np.ones(ROWS))


@pytest.mark.parametrize(
    "classes",
    [[], [3], 2, "ab", {0, 1}, {0: 1.0, 1: 2.0}, [[0], [1]], [0, 1, np.nan], [0, None], [0, 1, None]],
)
def test_classes_that_are_none(classes):
    X, y = make_data()
    clf = LogisticRegression()
    with pytest.raises(DataError, match="classes must be a list of all labels that will ever come, at least 2"):
        clf.partial_fit(X, y, classes=classes)
    with pytest.raises(NotFittedError):
        clf.predict(X)


@pytest.mark.parametrize("classes", [["a", "b"], ["a", "b", "c"]])
@pytest.mark.parametrize("strange", [None, 7, True])
def test_a_label_of_another_kind_is_named(classes, strange):
    X, y = make_data()
    labels = np.array(["a", "b"], object)[y]
    labels[4] = strange
    with pytest.raises(DataError, match=rf"row 4: found label {strange!r}, expected one of"):
        LogisticRegression().partial_fit(X, labels, classes=classes)


def test_spans_of_time_are_no_numbers():
    frame = pd.DataFrame({"size": [1.0, 2.0], "age": [datetime.timedelta(days=1)] * 2})
    with pytest.raises(DataError, match=r"found '1 day.*' in column 'age', expected numbers in every column"):
        LogisticRegression().fit(frame, [0, 1])


def test_a_table_that_no_memory_holds():
    X = sp.csr_matrix((np.ones(2, np.float32), [0, 5], [0, 1, 2]), shape=(2, 1 << 40))
    with pytest.raises(MemoryError, match=r"cannot allocate 3,072\.0 GiB for a table: take fewer slots .*n_slots"):
        LogisticRegression().fit(X, [0, 1])


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"passes": 0}, "passes must be None or a whole number, at least 1, got 0"),
        ({"passes": 1.5}, "passes must be"),
        ({"n_slots": 0}, "n_slots must be"),
        ({"n_slots": "many"}, "n_slots must be"),
        ({"alpha": "high"}, "alpha must be a number, auto or frozen, got 'high'"),
        ({"alpha": -1}, "alpha must be above 0"),
        ({"base": 1.0}, "base must be above 1"),
        ({"radius": 100.0}, "radius must be between"),
        ({"weights": 13}, "weights must be auto, float32 or a format such as q3.12, got 13"),
        ({"weights": "q20.13"}, "fixed-point format"),
        ({"preset": "fast"}, "preset must be None or paper, got 'fast'"),
        ({"codebook": "auto"}, "codebook needs weights adaptive"),
        ({"weights": "adaptive", "codebook": "mine"}, "codebook must be one of standard, auto, shipped, got 'mine'"),
        ({"rates": "fast"}, "rates must be one of"),
        ({"scale": None}, "scale must not be None: leave it out for its default"),
        ({"algorithm": "ftrl", "rates": "morris8"}, "algorithm ftrl needs rates squares8 or squares32"),
        ({"l1": "much"}, "l1 must be a number, got 'much'"),
        ({"l2": 1.0}, "l1 and l2 need algorithm ftrl or rda"),
        ({"random_state": -(2**70)}, "seed must fit"),
        ({"fit_intercept": "no"}, "fit_intercept must be True or False, got 'no'"),
    ],
)
def test_bad_choices(choice, message):
    X, y = make_data()
    with pytest.raises(SpecError, match=message):
        LogisticRegression(**choice).fit(X, y)


def test_l1_leaves_few_coefficients():
    X, y = make_data()
    dense = LogisticRegression(rates="squares8", algorithm="ftrl").fit(X, y)
    sparse = LogisticRegression(rates="squares8", algorithm="ftrl", l1=20.0).fit(X, y)
    assert 0 < sparse.coef_.nnz < dense.coef_.nnz
    again = pickle.loads(pickle.dumps(sparse))
    assert again.predict_proba(X).tolist() == sparse.predict_proba(X).tolist()
    margins = X @ sparse.coef_.T.toarray() + sparse.intercept_
    np.testing.assert_allclose(np.ravel(margins), sparse.decision_function(X), rtol=1e-6, atol=1e-9)
