"""Batch: what every reader produces and every learner consumes, rows of sparse features.

Row r holds the features `indptr[r]:indptr[r + 1]`; feature k is slot `slots[k]` with value `values[k]`.
`values=None` says that all values are 1, `weights=None` that all rows weigh 1: both cost no memory,
and give the same bytes of model as arrays of ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Batch(NamedTuple):
    """A block of rows in compressed sparse row form, the order of the stream."""

    labels: NDArray[np.float32]
    """One label a row: 0 or 1 (any finite number under squared loss)."""
    indptr: NDArray[np.int64]
    """Where each row starts, and the end of the last: len(labels) + 1 numbers, the first may be above 0."""
    slots: NDArray[np.uint32] | NDArray[np.uint64]
    """The coordinate of each feature, below the number of slots of the table."""
    values: NDArray[np.float32] | None = None
    """The value of each feature, finite and not 0; None = all 1."""
    weights: NDArray[np.float32] | None = None
    """The importance of each row, finite and not negative; None = all 1."""

    @property
    def rows(self) -> int:
        return len(self.labels)

    @property
    def features(self) -> int:
        return int(self.indptr[-1] - self.indptr[0])

    def slice(self, start: int, stop: int) -> Batch:
        """Rows start to stop, without copying.

        >>> batch = Batch(np.float32([0, 1, 1]), np.array([0, 2, 2, 3]), np.uint32([5, 7, 5]))
        >>> part = batch.slice(1, 3)
        >>> part.rows, part.features, part.indptr.tolist()
        (2, 1, [2, 2, 3])
        """
        return self._replace(
            labels=self.labels[start:stop],
            indptr=self.indptr[start : stop + 1],
            weights=None if self.weights is None else self.weights[start:stop],
        )

    def cut_short(self) -> Batch:
        """The same rows without the features behind the last one, without copying.

        >>> batch = Batch(np.float32([0, 1, 1]), np.array([0, 2, 2, 3]), np.uint32([5, 7, 5]))
        >>> batch.slice(0, 1).cut_short().slots.tolist()
        [5, 7]
        """
        stop = int(self.indptr[-1])
        if stop == len(self.slots):
            return self
        return self._replace(slots=self.slots[:stop], values=None if self.values is None else self.values[:stop])


def owned(batch: Batch) -> Batch:
    """The rows of a batch in memory of their own: readers use theirs again."""
    start, stop = int(batch.indptr[0]), int(batch.indptr[-1])
    return Batch(
        batch.labels.copy(),
        batch.indptr - start,
        batch.slots[start:stop].copy(),
        None if batch.values is None else batch.values[start:stop].copy(),
        None if batch.weights is None else batch.weights.copy(),
    )


def joined(batches: list[Batch]) -> Batch:
    """Batches as one; where some have values or weights, the others have ones."""
    ends = np.cumsum([0] + [batch.features for batch in batches])
    indptr = [batch.indptr[:-1] + end for batch, end in zip(batches, ends, strict=False)]
    return Batch(
        np.concatenate([batch.labels for batch in batches]),
        np.concatenate([*indptr, ends[-1:]]),
        np.concatenate([batch.slots for batch in batches]),
        _joined_or_none([batch.values for batch in batches], [batch.features for batch in batches]),
        _joined_or_none([batch.weights for batch in batches], [batch.rows for batch in batches]),
    )


def _joined_or_none(arrays: list[NDArray[np.float32] | None], sizes: list[int]) -> NDArray[np.float32] | None:
    if all(array is None for array in arrays):
        return None
    pairs = zip(arrays, sizes, strict=True)
    return np.concatenate([np.ones(size, np.float32) if array is None else array for array, size in pairs])
