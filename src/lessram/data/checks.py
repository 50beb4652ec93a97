"""What must hold of a batch before a kernel sees it: kernels check nothing.

Readers of this package produce batches that hold all of this by construction; batches from elsewhere
are checked here, in one pass at several gigabytes a second.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lessram.data.batch import Batch
from lessram.errors import DataError
from lessram.jit import kernel

_SLOT_TYPES = (np.dtype(np.uint32), np.dtype(np.uint64))


def checked(batch: Batch, slots: int, *, real_labels: bool = False) -> Batch:
    """The batch, or a DataError that says what is wrong with it. Features of value 0 are dropped.

    >>> checked(Batch(np.float32([7]), np.array([0, 1]), np.uint32([3])), 8)
    Traceback (most recent call last):
    ...
    lessram.errors.DataError: row 0: found label 7.0, expected 0 or 1
    """
    _check_types(batch)
    _check_shape(batch)
    _check_rows(batch, real_labels)
    used = batch.slots[int(batch.indptr[0]) : int(batch.indptr[-1])]
    if used.size and int(used.max()) >= slots:
        raise DataError(f"found slot {int(used.max())}, expected slots below {slots}, the size of the table")
    return _check_values(batch)


def _check_types(batch: Batch) -> None:
    expected = {"labels": np.float32, "indptr": np.int64, "values": np.float32, "weights": np.float32}
    for name, dtype in expected.items():
        array = getattr(batch, name)
        if array is not None and (array.dtype != dtype or array.ndim != 1):
            found = f"{array.ndim}-d {array.dtype}"
            raise DataError(f"found {name} as {found}, expected a 1-d array of {np.dtype(dtype)}")
    if batch.slots.dtype not in _SLOT_TYPES or batch.slots.ndim != 1:
        raise DataError(f"found slots as {batch.slots.dtype}, expected a 1-d array of uint32 or uint64")


def _check_shape(batch: Batch) -> None:
    rows = batch.rows
    if len(batch.indptr) != rows + 1 or (batch.weights is not None and len(batch.weights) != rows):
        raise DataError(f"found {len(batch.indptr)} row starts for {rows} labels, expected {rows + 1}")
    if batch.values is not None and len(batch.values) != len(batch.slots):
        raise DataError(f"found {len(batch.values)} values for {len(batch.slots)} slots, expected as many")
    inside = batch.indptr[0] >= 0 and batch.indptr[-1] <= len(batch.slots)
    if not inside or np.any(batch.indptr[1:] < batch.indptr[:-1]):
        raise DataError("found row starts that fall or leave the features, expected them to rise within")


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
