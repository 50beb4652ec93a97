"""The coefficients of a model, by feature."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from lessram.data.matrix import Matrix
from lessram.errors import DataError
from lessram.model.model import Model

_PIECE = 1 << 20  # coefficients looked at together
MOST_HASHED = 1 << 26  # features; their coefficients take up to a gigabyte


class NoCoefficients(DataError, AttributeError):
    """More than anybody looks at. As an `AttributeError` it leaves the rest of a model to those who look at all of it.

    scikit-learn's display of a fitted estimator in a notebook, for one.
    """


def coefficient_row(model: Model, features: int) -> sp.csr_array:
    """The coefficients of so many features that are not 0, as they multiply raw values."""
    if features > max(model.spec.slots, MOST_HASHED):
        raise NoCoefficients(
            f"coef_ of {features:,} hashed features would take up to {features / 2**26:,.0f} GB: expected at most "
            f"{MOST_HASHED:,}. They share the coefficients of {model.spec.slots:,} slots, which are "
            "models_[0].coefficients()"
        )
    hashed = model.coefficients() if features > model.spec.slots else None
    columns, values = [], []
    for start in range(0, features, _PIECE):
        stop = min(start + _PIECE, features)
        piece = model.coefficients(start, stop) if hashed is None else hashed[_slots(start, stop, model)]
        (present,) = np.nonzero(piece)
        columns.append(present + start)
        values.append(piece[present])
    found = np.concatenate(columns)
    return sp.csr_array((np.concatenate(values), found, [0, len(found)]), shape=(1, features))


def _slots(start: int, stop: int, model: Model) -> NDArray[Any]:
    """Where features start to stop lie in the table: the slots of one row that has them all."""
    row = sp.csr_array((np.ones(stop - start, np.float32), np.arange(start, stop), [0, stop - start]), shape=(1, stop))
    (batch,) = Matrix(row, model.spec.slots).batches()
    return batch.slots
