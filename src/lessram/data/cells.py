"""Columns of cells to rows of features: what Arrow, DataFrames and JSON have in common.

Columns are turned into cells one by one, whole columns at a time, in NumPy and in few kernels; then one kernel walks
over the rows and writes features in the order of the columns. A block has few enough rows for all of its cells to stay
in the cache between the two. Of thousands of columns it has fewer still: memory must not grow with their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.data.csv_kernel import BAD_LABEL, BAD_NUMBER, BAD_WEIGHT
from lessram.data.hashing import hash_names
from lessram.data.interactions import set_group
from lessram.data.lines import show
from lessram.data.parsing import REPORTS, BadLine
from lessram.data.rows import DONE, FULL, LARGEST, TOO_LARGE, ParsedPart, Progress, Room, complete, end_row
from lessram.data.schema import CATEGORICAL, LABEL, NUMERIC, TEXT, WEIGHT, Schema, make_layout, scaled_number
from lessram.data.source import Place
from lessram.data.tokens import MARGIN, tokenise
from lessram.jit import inlined, kernel

MOST_ROWS, MOST_CELLS = 1 << 14, 1 << 22
"""Of a block."""
_BETWEEN = 80
"""Cells between one column and the next: a power of two would put all cells of a row into one place of the cache."""

BROKEN = 99
"""What is wrong with a row that was bad before the kernel saw it."""

_ZERO, _ONE = np.uint64(0), np.uint64(1)


def rows_of_a_block(columns: int) -> int:
    """Rows that are made of so many columns at once.

    >>> rows_of_a_block(40), rows_of_a_block(4000)
    (16384, 1048)
    """
    return max(min(MOST_ROWS, MOST_CELLS // max(columns, 1)), 1)


class Cells(NamedTuple):
    """A block of rows, column by column."""

    broken: NDArray[np.bool_]
    """Rows that are bad for a reason that the kernel does not know."""
    present: NDArray[np.bool_]
    """(column, row): whether the cell is not empty."""
    hashes: NDArray[Any]
    """(column, row): of categories."""
    values: NDArray[np.float32]
    """(column, row): of numbers, labels and weights."""
    spans: NDArray[np.int64]
    """(column, row): where in `tokens` those of a text cell begin; those of the row behind it, where they end."""
    tokens: NDArray[Any]
    """The hashes of the tokens of all text cells."""


@kernel
def tokenise_column(data, offsets, layout, column, scratch, cells, count, k):
    """Write the tokens of a column of text from `cells.tokens[k]` on. Returns the new `k`; beyond the room: full."""
    for row in range(np.uint64(count)):
        cells.spans[column, row] = np.int64(k)
        if cells.present[column, row]:
            start, stop = np.uint64(offsets[row]), np.uint64(offsets[row + _ONE])
            k = tokenise(data, start, stop, layout, column, scratch, cells.tokens, k)
            if k > np.uint64(cells.tokens.size):
                return k
    cells.spans[column, count] = np.int64(k)
    return k


@inlined
def _number(layout, cells, column, row, head):
    """Label and weight with this cell, and what is wrong with it."""
    label, weight = head
    value, kind = cells.values[column, row], layout.kinds[column]
    finite = abs(value) <= LARGEST
    if kind == np.uint8(LABEL):
        if not finite or not (layout.real_labels or value == np.float32(0) or abs(value) == np.float32(1)):
            return BAD_LABEL, head
        return DONE, (value if layout.real_labels else max(value, np.float32(0)), weight)
    if kind == np.uint8(WEIGHT):
        return (DONE if finite and value >= np.float32(0) else BAD_WEIGHT), (label, value)
    return (DONE if finite else BAD_NUMBER), head


@inlined
def _row(row, layout, cells, products, rows, k):
    """Write the features of one row. Returns what is wrong, in which column, the new `k`, label and weight."""
    head = (np.float32(np.nan), np.float32(1))
    if cells.broken[row]:
        return BROKEN, _ZERO, k, head
    room = np.uint64(rows.slots.size)
    for column in range(np.uint64(layout.kinds.size)):
        kind = layout.kinds[column]
        if kind == np.uint8(0) or not cells.present[column, row]:
            continue
        if kind == np.uint8(TEXT):
            first, last = np.uint64(cells.spans[column, row]), np.uint64(cells.spans[column, row + _ONE])
            if k + (last - first) > room:
                return FULL, column, k, head
            for token in range(first, last):
                rows.slots[k] = cells.tokens[token]
                rows.values[k] = np.float32(1)
                set_group(products, k, layout.groups[column])
                k += _ONE
            continue
        if k == room:
            return FULL, column, k, head
        if kind == np.uint8(CATEGORICAL):
            rows.slots[k] = cells.hashes[column, row]
            rows.values[k] = np.float32(1)
            set_group(products, k, layout.groups[column])
            k += _ONE
            continue
        trouble, head = _number(layout, cells, column, row, head)
        if trouble != DONE:
            return trouble, column, k, head
        if kind == np.uint8(NUMERIC):
            rows.slots[k] = layout.hashes[column]
            rows.values[k] = scaled_number(layout, column, cells.values[column, row])
            set_group(products, k, layout.groups[column])
            k += np.uint64(rows.values[k] != np.float32(0))
    return DONE, _ZERO, k, head


@kernel
def assemble(count, layout, cells, products, rows, progress):
    """Make rows of the cells, until all are done or one is not good. `progress.position` is the next row."""
    r, row, k = np.uint64(progress.position), np.uint64(progress.rows), np.uint64(progress.features)
    unlabelled, weighted, valued = progress.unlabelled, progress.weighted, progress.valued
    while r < np.uint64(count):
        first, needed, column, others = k, _ZERO, _ZERO, False
        trouble, head = FULL, (np.float32(np.nan), np.float32(1))
        if row < np.uint64(rows.labels.size):
            trouble, column, k, head = _row(r, layout, cells, products, rows, k)
        if trouble == DONE:
            trouble, k, needed, others = complete(products, rows, first, k)
        if trouble != DONE:
            counts = (np.int64(r), np.int64(row), np.int64(first), unlabelled, 0, weighted, valued)
            return Progress(*counts, trouble, np.int64(r), np.int64(column), np.int64(needed))
        r += _ONE
        label, weight = head
        unlabelled += np.isnan(label)
        done = row
        row, k = end_row(rows, row, first, k, label, weight, layout.slots, layout.keep_unlabelled)
        if row != done:
            weighted |= weight != np.float32(1)
            valued |= others
    position = np.int64(r)
    return Progress(position, np.int64(row), np.int64(k), unlabelled, 0, weighted, valued, DONE, position, 0, 0)


class Unfit(Exception):
    """A value that its column cannot take: what was found."""


def number_of(value: Any) -> float:
    """The number that a value of Python is, or that a string spells."""
    if isinstance(value, (int, float)):
        try:
            return float(value)
        except OverflowError:  # a whole number of more than 308 digits
            return np.inf
    if isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            number = np.nan
        if np.isfinite(number) and "_" not in value:
            return number
        raise Unfit(show(value.encode("utf-8", "replace")))
    raise Unfit(type(value).__name__)


def numbers_among(values: Iterable[Any]) -> list[float]:
    """The numbers of those values that are numbers."""
    numbers = []
    for value in values:
        try:
            numbers += [] if value is None or value == "" else [number_of(value)]
        except Unfit:
            continue  # whoever reads the column will say what is wrong
    return numbers


def unfit_cell(schema: Schema, column: int, found: str, *, real_labels: bool) -> str:
    """What is wrong with a value of a column."""
    name, kind = repr(schema.columns[column]), schema.kinds[column]
    if kind == "label" and not real_labels:
        return f"found {found} as the label ({name}), expected 0, 1, -1 or +1"
    if kind == "weight":
        return f"found {found} as the weight ({name}), expected a finite number, not negative"
    expected = {"categorical": "a string, a number, true or false", "text": "a string"}.get(kind, "a finite number")
    return f"found {found} in column {name}, expected {expected}"


class CellBlock:
    """A block of cells that columns are put into one after another, then made into rows. For one thread at a time."""

    def __init__(self, schema: Schema, slots: int, *, labels: str, keep_unlabelled: bool) -> None:
        self.schema = schema
        self.layout, terms, groups = make_layout(schema, slots, labels=labels, keep_unlabelled=keep_unlabelled)
        self._room = Room(self.layout.hashes.dtype, terms, groups)
        columns, texts = len(schema.columns), "text" in schema.kinds
        self.most_rows = rows_of_a_block(columns)
        stride = self.most_rows + _BETWEEN
        self.cells = Cells(
            np.zeros(stride, np.bool_),
            np.zeros((columns, stride), np.bool_),
            np.empty((columns, stride), self.layout.hashes.dtype),
            np.empty((columns, stride), np.float32),
            np.zeros((columns, stride if texts else 0), np.int64),
            np.empty(self.most_rows if texts else 0, self.layout.hashes.dtype),
        )
        self._scratch = np.empty(1 << 12, np.uint8)
        self._tokens = 0  # tokens in use
        self._messages: dict[int, str] = {}

    def start(self) -> None:
        """Begin a new block."""
        self._tokens = 0
        self._messages = {}
        self.cells.broken[:] = False

    def put_broken(self, row: int, message: str) -> None:
        """Say that a row is bad, whatever its cells are."""
        self._messages[row] = message
        self.cells.broken[row] = True

    def put_present(self, column: int, present: NDArray[np.bool_] | bool, count: int) -> None:
        self.cells.present[column, :count] = present

    def put_names(self, column: int, data: NDArray[np.uint8], offsets: NDArray[Any]) -> None:
        """Categories by their bytes; those of empty cells do not matter. A name without bytes is an empty cell."""
        count = len(offsets) - 1
        hash_names(data, offsets, self.layout.hashes[column], self.cells.hashes[column, :count])
        self.cells.present[column, :count] &= offsets[1:] > offsets[:-1]

    def put_numbers(self, column: int, numbers: NDArray[Any]) -> None:
        """Numbers; NaN is an empty cell."""
        count = len(numbers)
        with np.errstate(over="ignore"):
            self.cells.values[column, :count] = numbers.astype(np.float64, copy=False)
        if numbers.dtype.kind == "f":
            self.cells.present[column, :count] &= ~np.isnan(numbers)

    def converted(self, column: int, values: Sequence[Any], convert: Callable[[Any], Any], empty: Any) -> list[Any]:
        """The values one by one, for a column of several types; rows whose value will not do are bad."""
        made: list[Any] = []
        for row, value in enumerate(values):
            try:
                made.append(empty if value is None or value == "" else convert(value))
            except Unfit as found:
                made.append(empty)
                self.put_broken(row, self._unfit(str(found), column))
        return made

    def _unfit(self, found: str, column: int) -> str:
        return unfit_cell(self.schema, column, found, real_labels=self.layout.real_labels)

    def put_text(self, column: int, data: NDArray[np.uint8], offsets: NDArray[Any]) -> None:
        """Text cells, taken apart into tokens."""
        count = len(offsets) - 1
        if count and (offsets[0] < 0 or offsets[-1] > len(data) or (offsets[1:] < offsets[:-1]).any()):
            raise ValueError("the offsets of text must rise within its data")
        longest = int((offsets[1:] - offsets[:-1]).max(initial=0))
        if len(self._scratch) < longest + MARGIN:
            self._scratch = np.empty(2 * longest + MARGIN, np.uint8)
        while True:
            k = tokenise_column(
                data, offsets, self.layout, np.uint64(column), self._scratch, self.cells, count, np.uint64(self._tokens)
            )
            if k <= len(self.cells.tokens):
                break
            more = np.empty(max(1 << 16, 2 * len(self.cells.tokens)), self.cells.tokens.dtype)
            more[: self._tokens] = self.cells.tokens[: self._tokens]
            self.cells = self.cells._replace(tokens=more)
        self._tokens = int(k)

    def finish(self, count: int, start: int, tolerate: int, name: str, place_of: Callable[[int], Place]) -> ParsedPart:
        """Make rows of the block from row `start` on, as far as one batch goes. `place_of(i)`: where row i stands."""
        self._room.fit(self.most_rows, 4 * self.most_rows)
        progress, bad, reports = Progress(position=start), 0, list[BadLine]()
        while bad <= tolerate:
            room = self._room
            progress = Progress(*assemble(count, self.layout, self.cells, room.products, room.rows, progress))
            if progress.status == DONE:
                break
            if progress.status == FULL:
                if room.grow(progress.rows, progress.needed):
                    continue
                if progress.rows:
                    break
            bad += 1
            line = place_of(progress.position).line
            reports[REPORTS - 1 :] = [BadLine(f"{name}:{line}", self._describe(progress))]
            progress = progress._replace(position=progress.position + 1)
        batch = self._room.batch(progress.rows, valued=progress.valued, weighted=progress.weighted)
        return ParsedPart(batch, bad, reports, batch.features, place_of(progress.position), progress.unlabelled)

    def _describe(self, progress: Progress) -> str:
        if progress.status == BROKEN:
            return self._messages[progress.position]
        if progress.status in TOO_LARGE:
            return TOO_LARGE[progress.status]
        return self._unfit(f"{self.cells.values[progress.column, progress.position]:g}", progress.column)
