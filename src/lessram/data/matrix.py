"""Matrices in memory as batches: scipy's sparse matrices, dense arrays, lists of dicts.

A CSR matrix is not copied: its indices and its float32 data are the slots and values of the batches, whatever they
lie in (memory-mapped and read-only arrays included). Anything else is converted one block of rows at a time, so
memory beside the matrix is bounded. Only formats that are not stored by rows (CSC, COO) are turned into CSR
first, as a whole.

The columns of a matrix follow the rules of numbered features: below the number of slots they are slots as they are,
larger ones are hashed, or refused. Names in dicts are always hashed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lessram.data.batch import Batch
from lessram.data.checks import without_zeros
from lessram.data.hashing import hash_for_slots, hash_texts
from lessram.data.parsing import Rules, hashed_slot, make_rules, slot_type
from lessram.errors import DataError
from lessram.jit import inlined, kernel
from lessram.numerics.machine import add32

FEATURES = 1 << 18
"""Features of a batch, unless a single row has more."""
ROWS = 1 << 16
"""Rows of a batch."""
COUNTED = 1 << 30
"""Values that are counted at once."""

_NUMBERS = "biuf"  # the kinds of dtypes that are real numbers


class Survey(NamedTuple):
    """How many values are 1, are 0, and cannot be float32."""

    ones: int
    zeros: int
    strange: int


class NothingHashed(DataError):
    """A name, or a number that is no slot, where slots are all that is taken."""


class Matrix:
    """Rows in memory, checked when this is made, handed out as batches as often as they are needed.

    >>> from scipy.sparse import csr_array
    >>> matrix = Matrix(csr_array([[0, 1, 0, 1], [1, 0, 0, 0]], dtype=np.float32), slots=8)
    >>> [(batch.slots.tolist(), batch.values) for batch in matrix.batches()]
    [([1, 3, 0], None)]
    >>> Matrix([[1.0, np.nan]], slots=8)
    Traceback (most recent call last):
    ...
    lessram.errors.DataError: row 0, column 1: found nan, expected a finite number that float32 can hold
    """

    def __init__(self, data: Any, slots: int, *, hash: str = "auto", hash_seed: int = 0) -> None:
        rules = make_rules(slots, hash=hash, hash_seed=hash_seed)
        self._rows: _Sparse | _Dense | _Dicts
        if _is_sparse(data):
            self._rows = _Sparse(data, rules)
        elif _is_dicts(data):
            self._rows = _Dicts(data, rules, hash_seed)
        else:
            self._rows = _Dense(data, rules)

    @property
    def rows(self) -> int:
        return self._rows.rows

    @property
    def columns(self) -> int | None:
        """How many columns there are; dicts have none."""
        return self._rows.columns

    def batches(self, labels: ArrayLike | None = None, weights: ArrayLike | None = None) -> Iterator[Batch]:
        """The rows in order, with their labels (0 where there are none to be learned) and weights.

        Labels and weights are taken as they are: labels 0 or 1 (any finite number under squared loss), weights finite
        and not negative.
        """
        y = np.zeros(self.rows, np.float32) if labels is None else self._column("labels", labels)
        w = None if weights is None else self._column("weights", weights)
        for start, batch in self._rows.blocks():
            part = slice(start, start + len(batch.indptr) - 1)
            yield batch._replace(labels=y[part], weights=None if w is None else w[part])

    def pieces(self, weights: ArrayLike | None = None) -> Iterator[tuple[slice, Batch]]:
        """The batches without labels, each with the rows that it holds."""
        start = 0
        for batch in self.batches(weights=weights):
            yield slice(start, start + batch.rows), batch
            start += batch.rows

    def _column(self, name: str, values: ArrayLike) -> NDArray[np.float32]:
        column = np.ascontiguousarray(values, np.float32)
        if column.shape != (self.rows,):
            raise DataError(f"found {name} of shape {column.shape}, expected ({self.rows},), one a row")
        return column


def _is_sparse(data: Any) -> bool:
    """Whoever has a sparse matrix has imported scipy; who trains from files need not wait for it."""
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and bool(sparse.issparse(data))


class _Sparse:
    """A matrix in compressed sparse rows."""

    def __init__(self, data: Any, rules: Rules) -> None:
        matrix = data.tocsr()
        if matrix.ndim != 2:
            raise DataError(f"found a matrix of {matrix.ndim} dimensions, expected 2")
        if matrix.dtype.kind not in _NUMBERS:
            raise _no_numbers(matrix)
        self.rows, self.columns = matrix.shape
        self._rules = rules
        self._indptr = np.asarray(matrix.indptr)
        self._ids = _plain(matrix.indices).view(f"u{matrix.indices.dtype.itemsize}")
        self._values = _plain(matrix.data)
        self._check_indices()
        self._survey = self._check_values()

    def _check_indices(self) -> None:
        starts, size = self._indptr, min(len(self._ids), len(self._values))
        if len(starts) != self.rows + 1 or starts[0] < 0 or starts[-1] > size or (starts[1:] < starts[:-1]).any():
            raise DataError(f"found row starts that fall or leave the features, expected them to rise from 0 to {size}")
        used = self._ids[starts[0] : starts[-1]]
        largest = int(used.max()) if used.size else -1
        if largest >= self.columns:
            found = self._ids.view(f"i{self._ids.itemsize}")[starts[0] + int(used.argmax())]
            raise DataError(f"found column {found}, expected columns from 0 to {self.columns - 1}")
        if largest >= self._rules.slots and not self._rules.hashing:
            raise _too_large(largest, self._rules)
        self._direct = largest < int(self._rules.direct)  # whether all ids are slots as they are

    def _check_values(self) -> Survey:
        total = Survey(0, 0, 0)
        start, stop = int(self._indptr[0]), int(self._indptr[-1])
        step = FEATURES if _is_converted(self._values) else max(stop - start, 1)
        for first in range(start, stop, step):
            values = _as_float32(self._values[first : min(first + step, stop)])
            survey = Survey(*survey_values(values))
            if survey.strange:
                k = first + int(np.argmin(np.isfinite(values)))
                row = int(np.searchsorted(self._indptr, k, side="right")) - 1
                raise _not_finite(row, int(self._ids[k]), self._values[k])
            total = Survey(*(a + b for a, b in zip(total, survey, strict=True)))
        return total

    def blocks(self) -> Iterator[tuple[int, Batch]]:
        row = 0
        while row < self.rows:
            stop = min(row + ROWS, self.rows)
            if not self._is_taken_as_it_is:
                full = (
                    int(np.searchsorted(self._indptr[row : stop + 1], self._indptr[row] + FEATURES, side="right")) - 1
                )
                stop = min(stop, row + max(full, 1))
            yield row, self._block(row, stop)
            row = stop

    @property
    def _all_ones(self) -> bool:
        return self._survey.ones == int(self._indptr[-1]) - int(self._indptr[0])

    @property
    def _is_taken_as_it_is(self) -> bool:
        """Whether ids and values are used where they lie."""
        return self._direct and (self._all_ones or not (_is_converted(self._values) or self._survey.zeros))

    def _block(self, row: int, stop: int) -> Batch:
        indptr = self._indptr[row : stop + 1].astype(np.int64)
        labels = np.empty(0, np.float32)  # the caller's
        ones = self._all_ones
        if self._direct and (ones or not _is_converted(self._values)):
            batch = Batch(labels, indptr, self._ids, None if ones else self._values)
        else:
            part = slice(int(indptr[0]), int(indptr[-1]))
            slots = self._ids[part] if self._direct else _slots_of(self._ids[part], self._rules)
            values = None if ones else _as_float32(self._values[part])
            batch = Batch(labels, indptr - indptr[0], slots, values)
        return without_zeros(batch) if self._survey.zeros else batch


class _Dense:
    """A two-dimensional array; its zeros are no features."""

    def __init__(self, data: Any, rules: Rules) -> None:
        self._array = _array(data)
        self.rows, self.columns = self._array.shape
        if self.columns > rules.slots and not rules.hashing:
            raise _too_large(self.columns - 1, rules)
        self._slots = _slots_of(np.arange(self.columns, dtype=np.uint64), rules)
        for row, block in self._parts():
            finite = np.isfinite(block)
            if not finite.all():
                r, column = np.unravel_index(int(np.argmin(finite)), finite.shape)
                raise _not_finite(row + int(r), int(column), self._array[row + r, column])

    def _parts(self) -> Iterator[tuple[int, NDArray[np.float32]]]:
        step = min(max(FEATURES // max(self.columns, 1), 1), ROWS)
        for row in range(0, self.rows, step):
            yield row, _as_float32(self._array[row : row + step])

    def blocks(self) -> Iterator[tuple[int, Batch]]:
        for row, block in self._parts():
            present = block != 0
            indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(present.sum(axis=1), dtype=np.int64)])
            slots = np.broadcast_to(self._slots, block.shape)[present]
            values = block[present]
            yield row, Batch(np.empty(0, np.float32), indptr, slots, None if (values == 1).all() else values)


class _Dicts:
    """Rows as dicts: {name or number: value}; a text as the value is part of the name, as in scikit-learn."""

    columns = None

    def __init__(self, data: Sequence[Mapping[Any, Any]], rules: Rules, hash_seed: int) -> None:
        self._data, self._rules = data, rules
        self._seed = hash_seed % (1 << 32)
        self.rows = len(data)
        for row, features in enumerate(data):
            for name, value in features.items():
                self._read(row, name, value)

    def _read(self, row: int, name: Any, value: Any) -> tuple[str | int, np.float32]:
        """A feature's name or number, and its value."""
        place = f"row {row}"
        if isinstance(value, str):
            name, value = f"{name}={value}", 1
        if isinstance(name, Integral) and not isinstance(name, bool):
            name = int(name)
            if not 0 <= name < 1 << 64:
                raise DataError(f"found feature {name}, expected a number from 0 to 2^64 - 1", place=place)
            if name >= self._rules.slots and not self._rules.hashing:
                raise _too_large(name, self._rules, place)
        elif not isinstance(name, str):
            raise DataError(f"found {name!r} as a feature, expected a name or a number", place=place)
        elif not self._rules.hashing:
            message = f"found the name {name!r}, expected numbers only, since nothing is hashed"
            raise NothingHashed(message, place=place)
        elif not _is_utf8(name):
            raise DataError(f"found {name!r} as a feature, expected a name that UTF-8 can spell", place=place)
        number = _float32_or_nan(value)
        if not np.isfinite(number):
            expected = "expected a finite number that float32 can hold"
            raise DataError(f"found {value!r} as the value of feature {name!r}, {expected}", place=place)
        return name, number

    def blocks(self) -> Iterator[tuple[int, Batch]]:
        row = 0
        while row < self.rows:
            indptr, names, values = [0], list[str | int](), list[np.float32]()
            first = row
            while row < self.rows and row - first < ROWS and len(names) < FEATURES:
                for name, value in self._data[row].items():
                    feature, number = self._read(row, name, value)
                    if number:
                        names.append(feature)
                        values.append(number)
                indptr.append(len(names))
                row += 1
            array = np.array(values, np.float32)
            ones = bool((array == 1).all())
            slots = self._slots(names)
            yield first, Batch(np.empty(0, np.float32), np.array(indptr, np.int64), slots, None if ones else array)

    def _slots(self, names: list[str | int]) -> NDArray[Any]:
        is_text = np.array([isinstance(name, str) for name in names], bool)
        slots = np.empty(len(names), slot_type(self._rules.slots))
        numbers = np.array([name for name in names if not isinstance(name, str)], np.uint64)
        slots[~is_text] = _slots_of(numbers, self._rules)
        texts = [name for name in names if isinstance(name, str)]
        hashes = hash_texts(texts, self._seed, hash_for_slots(int(self._rules.slots)))
        slots[is_text] = hashes.astype(np.uint64) % self._rules.slots
        return slots


def _is_dicts(data: Any) -> bool:
    return isinstance(data, Sequence) and len(data) > 0 and isinstance(data[0], Mapping)


def _is_utf8(name: str) -> bool:
    """Whether a name has bytes to be hashed: half of a surrogate pair has none."""
    return name.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in name)


def _array(data: Any) -> NDArray[Any]:
    array = np.asarray(data)
    if array.dtype.kind == "O":
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError):
            raise _no_numbers(array) from None
    if array.dtype.kind not in _NUMBERS:
        raise _no_numbers(array)
    if array.ndim != 2:
        raise DataError(f"found an array of {array.ndim} dimensions, expected 2: rows and columns")
    return array


def _no_numbers(array: Any) -> DataError:
    return DataError(f"found a matrix of {array.dtype}, expected numbers")


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    """The array as kernels like it best: contiguous, aligned, and writable in name though nobody writes.

    Read-only arrays are another type to the compiler, which would compile every kernel a second time for them.
    """
    array = np.ascontiguousarray(array)
    if not array.dtype.isnative or not array.flags.aligned:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.flags.writeable:
        return array
    return np.asarray(_Shown(array))


class _Shown:
    """Shows the memory of a read-only array to NumPy as if it could be written to."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array  # keeps the memory alive
        address, _ = array.__array_interface__["data"]
        self.__array_interface__ = {**array.__array_interface__, "data": (address, False)}


def _is_converted(values: NDArray[Any]) -> bool:
    return values.dtype != np.float32


def _as_float32(values: NDArray[Any]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(values, np.float32)


def _slots_of(ids: NDArray[Any], rules: Rules) -> NDArray[Any]:
    """The slots of some ids."""
    slots: NDArray[Any] = np.empty(len(ids), slot_type(rules.slots))
    place_ids(ids, rules, slots)
    return slots


def _float32_or_nan(value: Any) -> np.float32:
    try:
        with np.errstate(over="ignore"):
            number = np.float32(value)
            return number if number.ndim == 0 else np.float32("nan")  # of a list it would be an array
    except (TypeError, ValueError, OverflowError):
        return np.float32("nan")


def _too_large(number: int, rules: Rules, place: str | None = None) -> NothingHashed:
    return NothingHashed(f"found feature {number}, expected one below {rules.slots}, the number of slots", place=place)


def _not_finite(row: int, column: int, value: Any) -> DataError:
    message = f"found {value}, expected a finite number that float32 can hold"
    return DataError(message, place=f"row {row}, column {column}")


@kernel
def survey_values(values):
    """How many values are 1, are 0, are not finite: in one pass."""
    ones, zeros, strange = np.int64(0), np.int64(0), np.int64(0)
    for first in range(0, values.shape[0], COUNTED):
        found = survey_block(values[first : first + COUNTED])
        ones, zeros, strange = ones + found[0], zeros + found[1], strange + found[2]
    return ones, zeros, strange


@inlined
def survey_block(values):
    """As `survey_values`, of fewer than 2^32 values: sums of 32 bits take half the time of wider ones."""
    ones, zeros, strange = np.uint32(0), np.uint32(0), np.uint32(0)
    for k in range(np.uint64(values.shape[0])):
        ones = add32(ones, np.uint32(values[k] == np.float32(1)))
        zeros = add32(zeros, np.uint32(values[k] == np.float32(0)))
        strange = add32(strange, np.uint32(not (abs(values[k]) <= np.float32(3.4028235e38))))
    return np.int64(ones), np.int64(zeros), np.int64(strange)


@kernel
def place_ids(ids, rules, slots):
    """Write the slot of each id."""
    for k in range(np.uint64(ids.shape[0])):
        index = np.uint64(ids[k])
        slots[k] = hashed_slot(index, rules) if index >= rules.direct else index
