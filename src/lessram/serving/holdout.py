"""What rounding costs on labelled rows that the model has not learned from: many grids in one pass over them.

Nothing is stored for it: rounding is a pure function of seed and slot, so the weights of each row are rounded as they
are met, to the same gridpoints that a served file would hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from lessram.data.batch import Batch
from lessram.errors import DataError
from lessram.model.model import Model
from lessram.numerics.bounds import curvature_relative_error
from lessram.serving.rounding import RANDOM, Rounding, words_by_seed


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What one grid costs on a hold-out."""

    grid: str
    log_loss: float
    """Mean loss an example, rounded."""
    relative_loss: float
    """What rounding adds to the loss, relative to the unrounded model's: 0.001 is 0.1 %."""
    standard_error: float
    """Of the relative loss, over the rows of the hold-out."""
    bound: float | None
    """The relative loss that random rounding adds in expectation is at most this, on these rows."""


class Margins:
    """The margins of rows under an unrounded model and under each rounding of it."""

    def __init__(self, model: Model, roundings: Sequence[Rounding]) -> None:
        self._model = model
        self._roundings = roundings

    def of(self, batch: Batch) -> tuple[NDArray[np.float64], list[NDArray[np.float64]]]:
        """Unrounded, and rounded in each way."""
        slots = _features(batch, batch.slots)
        weights = self._model.weights_at(slots)
        words = words_by_seed(slots, self._roundings)
        rounded = [way.units_by(weights, words[way.seed]) for way in self._roundings]
        steps = [way.grid.step for way in self._roundings]
        ways = [self._margins(batch, units * step) for units, step in zip(rounded, steps, strict=True)]
        return self._margins(batch, weights), ways

    def squares(self, batch: Batch) -> NDArray[np.float64]:
        """The sum of squared values of each row, as weights multiply them: the k of the bounds.

        A slot that occurs more than once in a row counts as one feature whose values add up: its weight is rounded
        once, so its errors do not cancel.
        """
        values = _values(batch)
        squares = row_sums(batch, values * values) + _added_by_repeats(batch, values)
        return squares / self._model.scale**2

    def _margins(self, batch: Batch, weights: NDArray[np.floating]) -> NDArray[np.float64]:
        return row_sums(batch, weights * _values(batch)) / self._model.scale + self._model.intercept


def measure(model: Model, roundings: Sequence[Rounding], batches: Iterable[Batch]) -> list[Measured]:
    """What each rounding adds to the loss of a model on these rows."""
    margins = Margins(model, roundings)
    weight = full = 0.0
    added, squares, bounded = (np.zeros(len(roundings)) for _ in range(3))
    for batch in batches:
        unrounded, ways = margins.of(batch)
        importance = np.ones(batch.rows) if batch.weights is None else batch.weights.astype(np.float64)
        losses = row_losses(model.spec.loss, unrounded, batch.labels)
        weight += float(importance.sum())
        full += float(importance @ losses)
        lengths = margins.squares(batch)
        for k, way in enumerate(ways):
            more = importance * (row_losses(model.spec.loss, way, batch.labels) - losses)
            added[k] += more.sum()
            squares[k] += more @ more
            growth = np.exp(np.minimum(roundings[k].grid.step ** 2 * lengths / 8, 700)) - 1
            bounded[k] += importance @ (losses * growth)
    if weight == 0 or full <= 0:
        raise DataError(f"the hold-out has a loss of {full:g} over a weight of {weight:g}, expected both above 0")
    return [
        Measured(
            grid=str(way.grid),
            log_loss=float(full + added[k]) / weight,
            relative_loss=float(added[k] / full),
            standard_error=float(np.sqrt(squares[k]) / full),
            bound=float(bounded[k] / full) if has_bound(model, way) else None,
        )
        for k, way in enumerate(roundings)
    ]


def bound_for(model: Model, rounding: Rounding, k: float | None) -> float | None:
    """The relative loss that rounding adds in expectation to a row of k features is at most this, if anything."""
    return curvature_relative_error(rounding.grid.step, k) if k is not None and has_bound(model, rounding) else None


def has_bound(model: Model, rounding: Rounding) -> bool:
    """The bounds of section 4 are about the logistic loss and unbiased rounding."""
    return model.spec.loss == "logistic" and rounding.how == RANDOM


def row_losses(loss: str, margins: NDArray[np.float64], labels: NDArray[np.float32]) -> NDArray[np.float64]:
    """The loss of each row.

    >>> row_losses("logistic", np.zeros(2), np.float32([0, 1])).round(4).tolist()
    [0.6931, 0.6931]
    """
    y = labels.astype(np.float64)
    if loss == "squared":
        return (margins - y) ** 2 / 2
    side = (2 * y - 1) * margins
    return np.maximum(0.0, 1 - side) if loss == "hinge" else np.logaddexp(0.0, -side)


def row_sums(batch: Batch, products: NDArray[np.floating]) -> NDArray[np.float64]:
    """The sum over the features of each row; 0 for a row of none."""
    starts = batch.indptr[:-1] - batch.indptr[0]
    sums = np.add.reduceat(np.append(products, 0.0), starts)
    sums[batch.indptr[1:] == batch.indptr[:-1]] = 0.0
    return sums


def _added_by_repeats(batch: Batch, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """By how much the squares of what the slots of a row add up to exceed those of its values: 0 without repeats."""
    rows = np.repeat(np.arange(batch.rows), np.diff(batch.indptr))
    slots = _features(batch, batch.slots)
    order = np.lexsort((slots, rows))
    rows, slots, values = rows[order], slots[order], values[order]
    starts = np.flatnonzero((np.diff(rows, prepend=-1) != 0) | (slots != np.roll(slots, 1)))
    if len(starts) == len(values):
        return np.zeros(batch.rows)
    more = np.add.reduceat(values, starts) ** 2 - np.add.reduceat(values**2, starts)
    return np.bincount(rows[starts], more, minlength=batch.rows).astype(np.float64)


def _values(batch: Batch) -> NDArray[np.float64]:
    values = np.ones(batch.features) if batch.values is None else _features(batch, batch.values)
    return values.astype(np.float64)


def _features(batch: Batch, array: NDArray) -> NDArray:
    return array[int(batch.indptr[0]) : int(batch.indptr[-1])]
