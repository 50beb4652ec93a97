"""`class_weight`: the weight of a row times that of its class, as scikit-learn means it."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import linear_model
from sklearn.datasets import make_classification
from sklearn.metrics import recall_score
from sklearn.utils.class_weight import compute_class_weight, compute_sample_weight

from lessram import LogisticRegression, SpecError

NAMES = np.array(["ant", "bee", "cat"])


def make_data(classes: int) -> tuple[np.ndarray, np.ndarray]:
    shares = [0.9, 0.1] if classes == 2 else [0.7, 0.2, 0.1]
    X, y = make_classification(
        400, 12, n_informative=6, n_classes=classes, weights=shares, class_sep=0.7, random_state=4
    )
    return X, NAMES[y]


def cells(clf: LogisticRegression) -> list[bytes]:
    return [model.table.cells.tobytes() + model.scalars.tobytes() for model in clf.models_]


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("chosen", ["balanced", {"ant": 0.25, "bee": 3.0}])
def test_it_is_a_sample_weight_by_class(classes, chosen):
    X, y = make_data(classes)
    expected = LogisticRegression(passes=2).fit(X, y, compute_sample_weight(chosen, y))
    assert cells(LogisticRegression(class_weight=chosen, passes=2).fit(X, y)) == cells(expected)
    assert cells(LogisticRegression(passes=2).fit(X, y)) != cells(expected)


def test_it_multiplies_the_weights_of_rows():
    X, y = make_data(2)
    weights = np.random.default_rng(1).choice([0.5, 1.0, 2.0], len(y))
    expected = LogisticRegression(passes=1).fit(X, y, weights * np.where(y == "bee", 3.0, 1.0))
    assert cells(LogisticRegression(class_weight={"bee": 3}, passes=1).fit(X, y, weights)) == cells(expected)
    total = {name: weights[y == name].sum() for name in ("ant", "bee")}
    shares = {name: weights.sum() / (2 * of_class) for name, of_class in total.items()}
    balanced = LogisticRegression(class_weight="balanced", passes=1).fit(X, y, weights)
    assert cells(balanced) == cells(LogisticRegression(class_weight=shares, passes=1).fit(X, y, weights))


@pytest.mark.parametrize("one", [{}, {"ant": 1, "bee": 1.0}])
def test_weights_of_one_change_no_byte(one):
    X, y = make_data(2)
    assert cells(LogisticRegression(class_weight=one).fit(X, y)) == cells(LogisticRegression().fit(X, y))


def test_streams_take_a_dict():
    X, y = make_data(2)
    classes = np.unique(y)
    weights = dict(zip(classes, compute_class_weight("balanced", classes=classes, y=y), strict=True))
    fitted = LogisticRegression(class_weight="balanced", alpha=0.3, weights="q3.12", passes=1).fit(X, y)
    streamed = LogisticRegression(class_weight=weights, alpha=0.3)
    for start in range(0, len(y), 7):  # most pieces have no row of the rare class
        streamed.partial_fit(X[start : start + 7], y[start : start + 7], classes=classes)
    assert cells(streamed) == cells(fitted)


def test_rare_classes_are_found_as_often_as_by_scikit_learn():
    X, y = make_data(2)

    def recall(clf) -> float:
        return recall_score(y, clf.fit(X, y).predict(X), pos_label="bee")

    plain, balanced = (recall(LogisticRegression(class_weight=chosen)) for chosen in (None, "balanced"))
    assert plain + 0.2 < balanced
    assert abs(balanced - recall(linear_model.LogisticRegression(class_weight="balanced"))) < 0.1


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ("even", "class_weight must be None, 'balanced' or a dict from class to weight, got 'even'"),
        ([1, 2], r"class_weight must be None, 'balanced' or a dict from class to weight, got \[1, 2\]"),
        ({"ant": "much"}, "class_weight must be a dict from class to weight, got .*could not convert"),
        ({"ant": 1, "wasp": 2}, "class_weight must be a dict.*'bee'.*not in class_weight"),
        ({"ant": -1.0}, "class_weight must be of finite weights, none negative"),
        ({"ant": np.inf}, "class_weight must be of finite weights"),
    ],
)
def test_what_is_refused(chosen, message):
    X, y = make_data(2)
    for learn in (LogisticRegression.fit, lambda clf, X, y: clf.partial_fit(X, y, classes=["ant", "bee"])):
        with pytest.raises(SpecError, match=message):
            learn(LogisticRegression(class_weight=chosen), X, y)


def test_a_part_of_a_stream_cannot_be_balanced():
    X, y = make_data(2)
    with pytest.raises(SpecError, match=r"not supported for partial_fit.*compute_class_weight\('balanced'"):
        LogisticRegression(class_weight="balanced").partial_fit(X, y, classes=["ant", "bee"])
