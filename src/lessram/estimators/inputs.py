"""Matrices and sample weights as they are given to an estimator, checked."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array

from lessram.data.matrix import Matrix
from lessram.errors import DataError


def checked_matrix(X: Any, slots: int) -> Matrix:
    """The rows of X, whole and finite; bad values are told in scikit-learn's words."""
    try:
        return Matrix(X, slots)
    except DataError as error:
        if error.place is None:
            raise
        raise DataError(f"Input X contains NaN, infinity or a value too large for float32: {error}") from None


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
