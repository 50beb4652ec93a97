"""What must hold of a batch before a kernel sees it: kernels check nothing.

    sound     kernels stay within their arrays: types, lengths, where rows begin, the largest slot
    checked   this, and every number means something: labels, weights, values

Of batches from readers of this package all of this holds by construction. What kernels could break memory with is
looked at all the same: a batch that was read for a larger table looks like any other. It takes a hundredth of learning.
Batches from elsewhere are checked whole, in one pass at several gigabytes a second.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.data.batch import Batch
from lessram.errors import DataError, SpecError
from lessram.jit import kernel

_FLOAT, _PLACE = np.dtype(np.float32), np.dtype(np.int64)
_SLOT_TYPES = (np.dtype(np.uint32), np.dtype(np.uint64))


class Sound(NamedTuple):
    """A batch that kernels read within its arrays."""

    batch: Batch
    longest: int
    """How many features its longest row has."""


def sound(batch: Batch, slots: int) -> Sound:
    """The batch, if no kernel leaves an array by it and each slot is below `slots`; its numbers may be anything.

    >>> sound(Batch(np.float32([1]), np.array([0, 1]), np.uint32([8])), 8)
    Traceback (most recent call last):
    ...
    lessram.errors.DataError: found slot 8, expected slots below 8, the size of the table: read data for as many slots
    """
    batch = _in_kernels_form(batch)
    _check_lengths(batch)
    longest, largest = survey_structure(batch.indptr, batch.slots)
    if longest < 0:
        raise DataError(
            "found row starts that fall or leave the features, expected them to rise within (of a batch that is kept, "
            "take a copy: readers use its arrays again)"
        )
    if largest >= slots:
        raise DataError(
            f"found slot {largest}, expected slots below {slots}, the size of the table: read data for as many slots"
        )
    return Sound(batch, longest)


def checked(batch: Batch, slots: int, *, real_labels: bool = False) -> Batch:
    """The batch, or a DataError that says what is wrong with it. Features of value 0 are dropped.

    >>> checked(Batch(np.float32([7]), np.array([0, 1]), np.uint32([3])), 8)
    Traceback (most recent call last):
    ...
    lessram.errors.DataError: row 0: found label 7.0, expected 0 or 1
    """
    return with_checked_numbers(sound(batch, slots).batch, real_labels=real_labels)


def with_checked_numbers(batch: Batch, *, real_labels: bool = False) -> Batch:
    """A sound batch whose labels, weights and values can be learned from, without its features of value 0."""
    _check_rows(batch, real_labels)
    return _check_values(batch)


def _in_kernels_form(batch: Batch) -> Batch:
    """The batch with arrays of the types that kernels know, one element behind the other: they go by addresses."""
    if not isinstance(batch, Batch):
        way = "; iterate over a reader with `for batch, _ in reader`" if isinstance(batch, tuple) else ""
        raise SpecError(
            f"expected a Batch, as read_batches makes them, got {type(batch).__name__}{way}. Matrices and frames with "
            "labels are for LogisticRegression"
        )
    labels = _in_form("labels", batch.labels, _FLOAT)
    indptr = _in_form("indptr", batch.indptr, _PLACE)
    slots = _in_form("slots", batch.slots, *_SLOT_TYPES)
    values = None if batch.values is None else _in_form("values", batch.values, _FLOAT)
    weights = None if batch.weights is None else _in_form("weights", batch.weights, _FLOAT)
    formed = (labels, indptr, slots, values, weights)
    return batch if all(map(operator.is_, formed, batch)) else Batch(*formed)


def _in_form(name: str, array: Any, *types: np.dtype[Any]) -> NDArray[Any]:
    if not isinstance(array, np.ndarray) or array.dtype not in types or array.ndim != 1:
        found = f"{array.ndim}-d {array.dtype}" if isinstance(array, np.ndarray) else type(array).__name__
        raise DataError(f"found {name} as {found}, expected a 1-d array of {' or '.join(map(str, types))}")
    return array if array.flags.c_contiguous and array.flags.aligned else array.copy()


def _check_lengths(batch: Batch) -> None:
    rows = batch.rows
    if len(batch.indptr) != rows + 1:
        raise DataError(f"found {len(batch.indptr)} row starts for {rows} labels, expected {rows + 1}")
    if batch.weights is not None and len(batch.weights) != rows:
        raise DataError(f"found {len(batch.weights)} weights for {rows} labels, expected as many")
    if batch.values is not None and len(batch.values) != len(batch.slots):
        raise DataError(f"found {len(batch.values)} values for {len(batch.slots)} slots, expected as many")


@kernel
def survey_structure(indptr, slots):
    """The number of features of the longest row and the largest slot; -1 and 0 if rows do not rise within the slots."""
    falls, longest = False, np.int64(0)
    for r in range(np.uint64(indptr.shape[0] - 1)):
        start, stop = indptr[r], indptr[r + np.uint64(1)]
        falls |= stop < start
        longest = max(longest, stop - start)
    first, last = indptr[0], indptr[indptr.shape[0] - 1]
    if falls or first < 0 or last > slots.shape[0]:
        return np.int64(-1), np.uint64(0)
    largest = slots.dtype.type(0)
    for k in range(np.uint64(first), np.uint64(last)):
        largest = max(largest, slots[k])
    return longest, np.uint64(largest)


def _check_rows(batch: Batch, real_labels: bool) -> None:
    good = np.isfinite(batch.labels) if real_labels else (batch.labels == 0) | (batch.labels == 1)
    if not good.all():
        row = int(np.argmin(good))
        expected = "a finite number" if real_labels else "0 or 1"
        raise DataError(f"row {row}: found label {batch.labels[row]}, expected {expected}")
    if batch.weights is not None:
        good = np.isfinite(batch.weights) & (batch.weights >= 0)
        if not good.all():
            row = int(np.argmin(good))
            raise DataError(f"row {row}: found weight {batch.weights[row]}, expected a finite number, not negative")


def _check_values(batch: Batch) -> Batch:
    if batch.values is None:
        return batch
    start, stop = int(batch.indptr[0]), int(batch.indptr[-1])
    zeros, strange = survey(batch.values[start:stop])
    if strange:
        place = start + int(np.argmin(np.isfinite(batch.values[start:stop])))
        row = int(np.searchsorted(batch.indptr, place, side="right")) - 1
        raise DataError(f"row {row}: found {batch.values[place]} as a value, expected a finite number")
    return without_zeros(batch) if zeros else batch


@kernel
def survey(values):
    """How many values are 0, and how many are not finite."""
    zeros = np.int64(0)
    strange = np.int64(0)
    for k in range(np.uint64(values.shape[0])):
        zeros += values[k] == np.float32(0.0)
        strange += not (abs(values[k]) <= np.float32(3.4028235e38))
    return zeros, strange


def without_zeros(batch: Batch) -> Batch:
    """The same rows without their features of value 0, which never have a gradient."""
    assert batch.values is not None
    start, stop = int(batch.indptr[0]), int(batch.indptr[-1])
    keep = batch.values[start:stop] != 0
    kept: NDArray[np.int64] = np.concatenate([np.zeros(1, np.int64), np.cumsum(keep, dtype=np.int64)])
    return batch._replace(
        indptr=kept[batch.indptr - start], slots=batch.slots[start:stop][keep], values=batch.values[start:stop][keep]
    )
