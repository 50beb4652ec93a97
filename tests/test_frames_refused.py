"""Data frames that an estimator cannot take: the message says what to do, and what it says works."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
import sklearn.feature_extraction.text
from sklearn.compose import make_column_transformer  # noqa: F401 (the advice needs it)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler  # noqa: F401

from lessram import DataError, LogisticRegression

Y = np.array([0, 1] * 20)


def frame() -> pd.DataFrame:
    return pd.DataFrame({"price": np.linspace(0, 9, 40), "city": ["rome", "paris"] * 20, "sold": ["1", "2"] * 20})


def in_polars(X: pd.DataFrame):
    return pytest.importorskip("polars").from_dict({name: X[name].tolist() for name in X})


KINDS = {
    "strings": lambda X: X,
    "objects": lambda X: X.astype({"city": object}),
    "categories": lambda X: X.astype({"city": "category"}),
    "polars": in_polars,
}


@pytest.mark.parametrize("kind", KINDS)
def test_text_is_named_with_advice_that_works(kind):
    X = KINDS[kind](frame())
    with pytest.raises(DataError, match="found 'rome' in column 'city', expected numbers") as caught:
        LogisticRegression().fit(X, Y)
    advice = re.search(r"make_pipeline.*fit\(X, y\)", str(caught.value))
    assert advice is not None
    assert "'sold'" not in advice[0]  # its strings are numbers
    fitted = eval(advice[0], globals() | {"X": X, "y": Y})
    assert fitted.score(X, Y) == 1.0


def test_dates_are_named():
    X = frame().assign(city=pd.date_range("2024-01-01", periods=40).as_unit("ns"))
    with pytest.raises(DataError, match="found '2024-01-01 00:00:00' in column 'city', expected numbers"):
        LogisticRegression().partial_fit(X, Y, classes=[0, 1])


def test_other_complaints_stay_as_they_are():
    X = frame().drop(columns="city")
    X.loc[3, "price"] = np.nan
    with pytest.raises(DataError, match=r"NaN.*row 3, column 0"):
        LogisticRegression().fit(X, Y)
    clf = LogisticRegression().fit(frame()[["price"]], Y)
    with pytest.raises(ValueError, match=r"(?s)feature names should match.*found 'rome' in column 'city'"):
        clf.predict(frame()[["price", "city"]])


ROWS = {
    "dicts": [{"city": "rome"}, {"city": "paris", "price": 2.0}] * 20,
    "texts": ["a fine film", "a bad film"] * 20,
    "array of texts": np.array(["a fine film", "a bad film"] * 20),
    "series of texts": pd.Series(["a fine film", "a bad film"] * 20),
}


@pytest.mark.parametrize("kind", ROWS)
def test_rows_that_are_no_numbers_are_refused_with_advice_that_works(kind):
    X, model = ROWS[kind], LogisticRegression()
    with pytest.raises(DataError, match=r"found (dicts|texts) as X, expected a matrix of numbers") as caught:
        model.fit(X, Y)
    with pytest.raises(DataError, match=r"found (dicts|texts) as X, expected a matrix of numbers"):
        model.partial_fit(X, Y, classes=[0, 1])
    with pytest.raises(DataError, match=r"found (dicts|texts) as X, expected a matrix of numbers"):
        model.fit(np.eye(40), Y).predict(X)
    advice = re.search(r"make_pipeline.*fit\(X, y\)", str(caught.value))
    assert advice
    names = {"make_pipeline": make_pipeline, "LogisticRegression": LogisticRegression, "sklearn": sklearn}
    assert eval(advice[0], names | {"X": X, "y": Y}).score(X, Y) == 1
