"""Matrices and sample weights as they are given to an estimator, checked."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Real
from textwrap import shorten
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array

from lessram.data.matrix import Matrix
from lessram.errors import DataError

_SHOWN = 5  # columns that a message names
_HASHERS = {
    dict: ("dicts", "sklearn.feature_extraction.FeatureHasher()"),
    str: ("texts", "sklearn.feature_extraction.text.HashingVectorizer()"),
}
"""What makes rows of numbers of rows that are something else."""


@contextmanager
def advising(X: Any) -> Iterator[None]:
    """Where X is refused, because its rows or columns of a data frame are no numbers: tell what to do with them."""
    try:
        yield
    except (TypeError, ValueError) as error:
        _advise_on_rows(X, error)
        found = _without_numbers(X)
        if not found:
            raise
        names, (first, value) = list(found), next(iter(found.items()))
        listed = f"[{', '.join(map(repr, names[:_SHOWN]))}{', ...' if len(names) > _SHOWN else ''}]"
        raise DataError(
            f"{shorten(str(error), 200)}\nfound {value!r} in column {first!r}, expected numbers in every column of X. "
            f"Encode such columns with scikit-learn:\n"
            f"  make_pipeline(make_column_transformer((OneHotEncoder(handle_unknown='ignore'), {listed}), "
            "remainder=StandardScaler()), LogisticRegression()).fit(X, y)\n"
            "or let lessram hash them, in constant memory: lessram.read_batches(frame, slots=2**18, label=...) and "
            "lessram.Learner (docs/tutorial.md, From Python)"
        ) from error


def _advise_on_rows(X: Any, error: Exception) -> None:
    """Tell what to do with a list, an array or a series of dicts or of texts."""
    first = next(iter(X), None) if isinstance(X, list | tuple) or getattr(X, "ndim", 0) == 1 else None
    for kind, (plural, hasher) in _HASHERS.items():
        if isinstance(first, kind):
            raise DataError(
                f"found {plural} as X, expected a matrix of numbers. Let scikit-learn hash them:\n"
                f"  make_pipeline({hasher}, LogisticRegression()).fit(X, y)"
            ) from error


def _without_numbers(X: Any) -> dict[str, Any]:
    """The columns of a frame that hold text or dates, each with the first such value."""
    found = {}
    for name in X.columns if hasattr(X, "columns") and hasattr(X, "dtypes") else ():
        values = np.ravel(np.asarray(X[name], dtype=object))
        strange = next((value for value in values if _is_no_number(value)), None)
        if strange is not None:
            found[name] = strange if isinstance(strange, str) else str(strange)
    return found


def _is_no_number(value: Any) -> bool:
    if not isinstance(value, str | bytes):
        return isinstance(value, datetime.date | datetime.time | datetime.timedelta)
    try:
        float(value)
    except ValueError:
        return True
    return False


def checked_classes(classes: ArrayLike) -> NDArray[Any]:
    """The labels that a stream may have, in order, each once."""
    array = np.asarray(classes)
    try:
        labels = np.unique(array)
    except TypeError:  # labels of several kinds have no order
        labels = array[:0]
    if array.ndim != 1 or len(labels) < 2 or (labels != labels).any():  # NaN is not even itself
        raise DataError(
            f"classes must be a list of all labels that will ever come, at least 2 and of one kind, got {classes!r}"
        )
    return labels


def checked_matrix(X: Any, slots: int) -> Matrix:
    """The rows of X, whole and finite; bad values are told in scikit-learn's words."""
    try:
        return Matrix(X, slots)
    except DataError as error:
        if error.place is None:
            raise
        raise DataError(
            f"Input X contains NaN, infinity or a value too large for float32: {error}. Missing values want an imputer "
            "before: make_pipeline(SimpleImputer(), LogisticRegression())"
        ) from None


def checked_weights(sample_weight: ArrayLike | None, rows: int) -> NDArray[np.float32] | None:
    """One weight a row, none negative."""
    if sample_weight is None:
        return None
    if isinstance(sample_weight, Real):
        sample_weight = np.full(rows, sample_weight)
    weights = check_array(
        sample_weight, ensure_2d=False, dtype=np.float32, order="C", input_name="sample_weight", ensure_min_samples=0
    )
    if weights.shape != (rows,):
        raise DataError(f"found sample_weight of shape {weights.shape}, expected ({rows},), one a row")
    if weights.min(initial=0.0) < 0:
        row = int(np.argmin(weights))
        raise DataError(f"row {row}: found sample_weight {weights[row]}, expected a number that is not negative")
    return weights
