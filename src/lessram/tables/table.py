"""The contract between learning and the places where coefficients live.

A table is a NamedTuple of arrays. Kernels are written once, in learning/kernels.py, against the four
row functions below; `overloaded` implementations are chosen by the table's class while compiling, so
the generic loop costs nothing. A table's module is the only code that touches its bytes.

    draw_ahead(row, scratch)                      the row's random words, once and before all else
    look(table, rule, batch, row)                 the row's dot product, nothing changes (pure)
    observe(table, rule, batch, row, scratch)     the same, and what the row's rates depend on is noted
    prepare(table, rule, batch, row, scratch, s)  the row's rates, before anything is stored; the sum of x^2 * rate
    move(table, rule, batch, row, scratch, g, s)  every coefficient takes its rounded step, every rate state too

`look` and `observe` return the sum of w x in units of the grid, in float64. The others come after `observe`
of the same row, with g, minus the gradient of the loss in w x, in units of the grid, and the square s of that gradient.

Tables that were trained apart become one slot by slot: tables/merging.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.jit import inlined, overloaded, types
from lessram.numerics.random import shared_word
from lessram.numerics.vector import padded, spread_arrays
from lessram.tables.passes import draw_row

FAR = np.uint64(256)
"""How many features ahead cells are prefetched: far enough for memory, near enough to stay in L2."""


class Rule(NamedTuple):
    """How coefficients move: small arrays and numbers, fixed for a table's life."""

    rates: NDArray[np.float32]
    """The learning rate at each level of a randomized counter."""
    thresholds: NDArray[np.uint64]
    """The probability of leaving each level, in units of 2^-64."""
    alpha: np.float32
    offset: np.float32
    floor: np.float32
    """The rate never falls below this."""
    limit: np.int32 | np.float32
    """R, in units of the grid."""
    step: float
    """eps, the grid's step; 1 for floating-point weights."""


class Row(NamedTuple):
    """Where one example lies in its batch, and its random key."""

    start: np.uint64
    length: np.uint64
    ahead: np.uint64
    """Where the features to prefetch begin; the row itself at the end of a batch."""
    key: np.uint64
    example: np.uint64
    """The example's number in the stream, from 0."""


class Scratch(NamedTuple):
    """Room for one row between the passes, allocated once outside the kernels."""

    words: NDArray[np.uint32] | None
    """Random words, where anything is random: room for an even and for an odd example's, one after the other, so that
    a row's can be drawn while those of the row before are still needed."""
    counting: NDArray[np.uint64] | None
    """Random bits to count with, where cells count at random: in the same two places."""
    noted: NDArray[np.float32]
    """What rates depend on."""
    steps: NDArray[np.int32] | NDArray[np.float32]


def scratch(longest: int, cell: np.dtype) -> Scratch:
    """Scratch for rows of up to `longest` features over such cells."""
    whole, counts = cell["weight"].kind != "f", "level" in (cell.names or ())
    kinds = (np.uint32, np.uint64, np.float32, np.int32 if whole else np.float32)
    words, counting, noted, steps = spread_arrays(padded(longest), kinds, doubled=2)
    return Scratch(words if whole or counts else None, counting if counts else None, noted, steps)


@inlined
def words_at(row, scratch):
    """Where in scratch a row's random words begin."""
    return (row.example & np.uint64(1)) * np.uint64(scratch.steps.shape[0])


def draw_ahead(row: Any, scratch: Any) -> None:
    """The random words of the next row: drawn while a row waits for its gradient, they cost next to nothing."""
    raise NotImplementedError("draw_ahead() is for kernels")


@overloaded(draw_ahead)
def _draw_ahead(row, scratch):
    drawn = is_table(scratch, Scratch) and not isinstance(scratch.types[Scratch._fields.index("words")], types.NoneType)
    if not drawn:
        return lambda row, scratch: None  # nothing is random, or `prepare` or `move` draws with scratch of its own

    def draw_into_scratch(row, scratch):
        shared = shared_word(row.key)
        draw_row(scratch.words, words_at(row, scratch), scratch.counting, row.length, row.key, shared)

    return draw_into_scratch


def look(table: Any, rule: Rule, batch: Any, row: Row) -> float:
    raise NotImplementedError("look() is for kernels")


def observe(table: Any, rule: Rule, batch: Any, row: Row, scratch: Scratch) -> float:
    raise NotImplementedError("observe() is for kernels")


def prepare(table: Any, rule: Rule, batch: Any, row: Row, scratch: Scratch, square: float) -> float:
    raise NotImplementedError("prepare() is for kernels")


def move(table: Any, rule: Rule, batch: Any, row: Row, scratch: Scratch, g: float, square: float) -> None:
    raise NotImplementedError("move() is for kernels")


def is_table(numba_type: Any, named_tuple: type) -> bool:
    """Whether a type seen while compiling is this class of table (or of rule)."""
    return isinstance(numba_type, types.BaseNamedTuple) and numba_type.instance_class is named_tuple


@inlined
def locate(batch, r, key, example):
    """The place of row r, and how far ahead of it to prefetch."""
    start = np.uint64(batch.indptr[r])
    length = np.uint64(batch.indptr[r + 1]) - start
    last = np.uint64(batch.slots.shape[0])
    ahead = start + FAR if start + length + FAR <= last else start
    return Row(start, length, ahead, key, example)


def feature_value(values: Any, k: Any) -> Any:
    """The value of feature k as float32; 1 where the batch has no values."""
    raise NotImplementedError("feature_value() is for kernels")


@overloaded(feature_value)
def _feature_value(values, k):
    if isinstance(values, types.NoneType):
        return lambda values, k: np.float32(1.0)
    return lambda values, k: values[k]
