"""What parsers of named features write into: room for rows, and the account of a chunk.

A parser's kernel fills the room line by line. It comes back when a line does not fit; then the room
grows, or what is there is handed out and the rest of the chunk waits: products of features can be a
thousand times larger than the text that they come from, and memory must not follow.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.data.batch import Batch
from lessram.data.hashing import fold_into_slots
from lessram.data.interactions import NoProducts, Products, append_products, room_for_products
from lessram.data.parsing import BadLine, roomy
from lessram.data.scanning import room_for_marks
from lessram.data.short_names import Names
from lessram.data.source import Place
from lessram.jit import inlined

DONE, FULL, LONG_NUMBER, INFINITE = range(4)
"""Why a kernel came back: all done, no room for the line, a number that Python must decide, products of values that are
too large; or the line is bad in a way that the format knows."""

ENOUGH = 1 << 20
"""Features after which a batch is handed out rather than made larger."""
MOST = 1 << 26
"""Features that one row may have."""


TOO_LARGE = {
    FULL: f"found a row that makes too many products, expected at most {MOST} features in one row",
    INFINITE: "found numbers whose products are too large, expected less than 3.4e38",
}
"""What is wrong with rows of tables whose products do not fit."""

LARGEST = np.finfo(np.float32).max
"""The largest value that a feature may have."""


@inlined
def survey(values, first, last):
    """Whether all values from `first` to `last` are finite, and whether one is not 1."""
    finite, valued = True, False
    for k in range(first, last):
        finite &= abs(values[k]) <= LARGEST
        valued |= values[k] != np.float32(1)
    return finite, valued


@inlined
def values_from_here(values, k, valued, value):
    """Whether values matter from feature `k` on: whether one is not 1. Ones that were left out so far are written.

    Most data have no other value. Then nobody reads them, and writing them would take memory from those who learn.
    """
    if valued or value == np.float32(1):
        return valued
    for before in range(k):
        values[before] = np.float32(1)
    return True


class Rows(NamedTuple):
    """Where a kernel writes the rows of a batch."""

    labels: NDArray[np.float32]
    weights: NDArray[np.float32]
    indptr: NDArray[np.int64]
    slots: NDArray[Any]
    values: NDArray[np.float32]


@inlined
def complete(products, rows, first, last):
    """Append the products of the features `first:last`, a row, and look at all of its values.

    Returns DONE, FULL or INFINITE, the feature behind the last, how many would do, and whether a value is not 1.
    """
    needed = np.uint64(0)
    if products.terms.shape[0]:
        needed = append_products(products, rows.slots, rows.values, first, last)
        if needed > np.uint64(rows.slots.size):
            return FULL, last, needed, False
        last = needed
    finite, others = survey(rows.values, first, last)
    return (DONE if finite else INFINITE), last, needed, others


@inlined
def end_row(rows, row, first, last, label, weight, slots, keep_unlabelled):
    """Make the features `first:last` row `row` of a table of so many slots. Returns the next row and the next feature.

    They are `row` and `first` again where the row has no label, and is left out.
    """
    if np.isnan(label) and not keep_unlabelled:
        return row, first
    fold_into_slots(rows.slots, first, last, slots)
    rows.labels[row], rows.weights[row] = label, weight
    row += np.uint64(1)
    rows.indptr[row] = np.int64(last)
    return row, last


class Progress(NamedTuple):
    """Where the kernel stands in a chunk: all that it returns, and all that it needs to go on."""

    position: int = 0
    """Where the next line begins; of a line at which it stopped, the line itself."""
    rows: int = 0
    features: int = 0
    unlabelled: int = 0
    """Examples without a label."""
    based: int = 0
    """Examples with a base that is not 0."""
    weighted: bool = False
    """Whether there is an importance that is not 1."""
    valued: bool = False
    """Whether there is a value that may not be 1."""
    status: int = DONE
    word: int = 0
    """Where the word begins that made the kernel stop."""
    column: int = 0
    """In which column of a table."""
    needed: int = 0
    """Of a line for which there is no room, how many features would do; 0 where that is not known."""


class ParsedPart(NamedTuple):
    """What a parser makes of a chunk, or of the part of it that fits into one batch."""

    batch: Batch
    """The good lines; its arrays are valid until the parser is called again."""
    bad: int
    """How many lines were bad."""
    reports: list[BadLine]
    """The first few of them, and the last."""
    hashed: int
    """How many features were hashed: all of them."""
    stop: Place
    """Where the next line stands; the chunk's own `stop` when all of it is parsed."""
    unlabelled: int = 0
    """Examples without a label; they are left out, unless the parser was told to keep them."""
    based: int = 0
    """Examples with a base, which is read and left out."""
    met: NDArray[np.bool_] | None = None
    """Of JSON lines, where a column may be missing: which ones this parser has found a value for, so far."""


class Room:
    """Rows and products that one thread parses into, chunk after chunk; only what is written to is resident."""

    def __init__(self, dtype: Any, terms: NDArray[np.uint8], groups: int) -> None:
        self._dtype, self._terms, self._groups = dtype, terms, groups
        self._held = self.rows = self._rows(0, 0)
        self.products = self._products(0)
        self.names = Names.new()
        self._marked, self.marks = 0, room_for_marks(0)

    def _rows(self, rows: int, features: int) -> Rows:
        return Rows(
            np.empty(rows, np.float32),
            np.empty(rows, np.float32),
            np.zeros(rows + 1, np.int64),
            np.empty(features, self._dtype),
            np.empty(features, np.float32),
        )

    def _products(self, features: int) -> Products | NoProducts:
        return room_for_products(self._terms, self._groups, features, self._dtype)

    def fit(self, rows: int, features: int) -> None:
        """See to room for so many rows and features, and no more; what is in the room stays.

        More may be held from a part that needed it. If that were used, where a batch ends would depend on which parts
        this thread has parsed before.
        """
        most_rows, most_features = max(rows, len(self._held.labels)), max(features, len(self._held.slots))
        if most_rows > len(self._held.labels) or most_features > len(self._held.slots):
            most_rows, most_features = roomy(most_rows), roomy(most_features)
            old, self._held = self._held, self._rows(most_rows, most_features)
            arrays: Any = zip(old, self._held, strict=True)
            for before, now in arrays:
                now[: len(before)] = before
            self.products = self._products(most_features)
        held = self._held
        self.rows = Rows(
            held.labels[:rows],
            held.weights[:rows],
            held.indptr[: rows + 1],
            held.slots[:features],
            held.values[:features],
        )

    def fit_text(self, size: int) -> None:
        """See to room for the marks of a text of so many bytes."""
        if size > self._marked:
            self._marked = roomy(size)
            self.marks = room_for_marks(self._marked)  # of which nothing is resident before it is written to

    def grow(self, rows: int, needed: int) -> bool:
        """Make room for a line that did not fit behind `rows` rows; False if it must wait, or is too large.

        `needed`: the features that would do, 0 where that is not known.
        """
        most, features = len(self.rows.labels), len(self.rows.slots)
        if rows and rows == most:
            self.fit(2 * rows, features)
            return True
        wanted = max(needed, 2 * features, 64)
        if wanted > (ENOUGH if rows else MOST):
            return False
        self.fit(max(most, 64), wanted)
        return True

    def batch(self, rows: int, *, valued: bool, weighted: bool) -> Batch:
        features = int(self.rows.indptr[rows])
        return Batch(
            self.rows.labels[:rows],
            self.rows.indptr[: rows + 1],
            self.rows.slots[:features],
            self.rows.values[:features] if valued else None,
            self.rows.weights[:rows] if weighted else None,
        )
