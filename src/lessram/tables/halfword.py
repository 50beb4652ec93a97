"""Tables of 16 bits a slot, all state included: weights e3m6 and rates squares6 in one aligned halfword.

    bits 15 .. 6   the weight's ordinal on its grid, signed (numerics/minifloat.py)
    bits  5 .. 0   the level of the accumulator of squared gradients (numerics/accumulator.py)

A row takes the passes of tables/squares.py. On an uneven grid the step cannot be rounded alone, so that here the
weight, too, crosses from `observe` to `move`, where the vector pass computes whole cells:

    observe   scalar   the cell is noted, its weight joins the dot product, half the prefetches
    prepare   vector   the row's rates, from the sums before they are rounded to levels
    move      vector   new cells: weight + step rounded at random, level advanced at random
              scalar   new cells stored, the other prefetches

A slot that occurs twice in a row: every occurrence takes its rate from the sum before the row. An occurrence that
finds its cell changed since `observe` moves the cell as it is now, one by one (`moved_again`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.jit import inlined, overloaded, types
from lessram.numerics.accumulator import Accumulator, advanced, fine_uniform, fraction_of, six_bit_accumulator
from lessram.numerics.minifloat import E3M6, rounded_sum
from lessram.numerics.random import rounding_bits, shared_word, word
from lessram.numerics.rounding import project
from lessram.numerics.vector import padded
from lessram.tables.flat import ask
from lessram.tables.halfword_passes import LEVEL, LEVEL_BITS, cell_row
from lessram.tables.passes import draw_row
from lessram.tables.squares_passes import rate_row
from lessram.tables.table import FAR, feature_value, is_table, look, move, observe, prepare

CELL = np.dtype("<u2")

_ONE = np.uint64(1)
_LEVEL, _LEVEL_BITS = np.uint64(LEVEL), np.uint64(LEVEL_BITS)


class Halfword(NamedTuple):
    """One uint16 a slot."""

    cells: NDArray[Any]


class HalfwordRule(NamedTuple):
    """How coefficients move."""

    sums: Accumulator
    units: NDArray[np.int16]
    """The weight behind each of the upper 10 bits of a cell."""
    alpha: np.float32
    beta: np.float32
    limit: np.int32
    """R, as an ordinal."""
    step: float
    """The unit of weights."""


class HalfwordScratch(NamedTuple):
    """Room for one row between the passes."""

    words: NDArray[np.uint32]
    cells: NDArray[np.int32]
    units: NDArray[np.int32]
    sums: NDArray[np.float32]
    """Heights V_c."""
    values: NDArray[np.float32]
    noted: NDArray[np.float32]
    """rate * value"""
    moved: NDArray[np.int32]
    """New cells."""


def halfword_scratch(longest: int) -> HalfwordScratch:
    """Scratch for rows of up to `longest` features."""
    kinds = (np.uint32, np.int32, np.int32, np.float32, np.float32, np.float32, np.int32)
    arrays: list[Any] = [np.zeros(padded(longest), kind) for kind in kinds]
    made = HalfwordScratch(*arrays)
    made.sums[:] = 1.0  # lanes behind a row divide by this
    return made


def halfword_rule(alpha: float, beta: float, radius: float | None) -> HalfwordRule:
    """The rule for these choices."""
    limit = E3M6.ordinals(np.array([E3M6.units_within(radius)]))[0]
    return HalfwordRule(
        sums=six_bit_accumulator(),
        units=_units(np.arange(1 << E3M6.width)).astype(np.int16),
        alpha=np.float32(alpha),
        beta=np.float32(beta),
        limit=np.int32(limit),
        step=E3M6.step,
    )


# Cells outside kernels.


def _units(codes: NDArray[np.integer]) -> NDArray[np.int64]:
    """Weights in units, from the upper 10 bits of cells: two's complement of ordinals."""
    half = 1 << (E3M6.width - 1)
    return E3M6.units((codes.astype(np.int64) ^ half) - half)


def unpacked(cells: NDArray[np.uint16]) -> NDArray[np.int64]:
    """The weights of cells, in units."""
    return _units(cells >> LEVEL_BITS)


def packed(units: NDArray[Any], cells: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """These cells with other weights, the gridpoints nearest to so many units; levels stay."""
    return ((E3M6.ordinals(units) << LEVEL_BITS) | (cells & LEVEL)).astype(CELL)


# The passes.


def weighted(units: Any, values: Any, x: Any) -> Any:
    """weight * x of one feature: integers add up where all values are 1, everything else in float64, exactly."""
    raise NotImplementedError("weighted() is for kernels")


@overloaded(weighted)
def _weighted(units, values, x):
    if isinstance(values, types.NoneType):
        return lambda units, values, x: np.int64(units)
    return lambda units, values, x: np.float64(units) * np.float64(x)


@inlined
def observe_one(table, rule, batch, row, scratch, j):
    cell = np.uint64(table.cells[batch.slots[row.start + j]])
    units = rule.units[cell >> _LEVEL_BITS]
    x = feature_value(batch.values, row.start + j)
    scratch.cells[j] = np.int32(cell)
    scratch.units[j] = np.int32(units)
    scratch.sums[j] = rule.sums.heights[cell & _LEVEL]
    scratch.values[j] = x
    return weighted(units, batch.values, x)


@overloaded(observe)
def _observe(table, rule, batch, row, scratch):
    if not is_table(table, Halfword):
        return None

    def observe_halfwords(table, rule, batch, row, scratch):
        # A row longer than the prefetch distance would be over before `move` asked for its half.
        alone = row.length > FAR
        dot = weighted(np.int16(0), batch.values, np.float32(0.0))
        j = np.uint64(0)
        while j < row.length:
            if alone or j & _ONE == np.uint64(0):
                ask(table, batch, row.ahead + j)
            dot += observe_one(table, rule, batch, row, scratch, j)
            j += _ONE
        return np.float64(dot)

    return observe_halfwords


@overloaded(prepare)
def _prepare(table, rule, batch, row, scratch, square):
    if not is_table(table, Halfword):
        return None

    def prepare_halfwords(table, rule, batch, row, scratch, square):
        lowest, s = rule.sums.lowest, np.float32(square)
        return rate_row(scratch.sums, scratch.values, scratch.noted, row.length, s, lowest, rule.alpha, rule.beta)

    return prepare_halfwords


@overloaded(move)
def _move(table, rule, batch, row, scratch, gradient, square):
    if not is_table(table, Halfword):
        return None

    def move_halfwords(table, rule, batch, row, scratch, gradient, square):
        draw_row(scratch.words, row.length, row.key)
        shared = shared_word(row.key)
        g, s = np.float32(-gradient / rule.step), np.float32(square)
        low = np.uint32(shared >> np.uint64(48))
        cell_row(scratch, row.length, g, s, rule.sums, rule.limit, low, fraction_of(shared))
        alone = row.length > FAR
        j = np.uint64(0)
        while j < row.length:
            if not alone and j & _ONE == _ONE:
                ask(table, batch, row.ahead + j)
            slot = batch.slots[row.start + j]
            moved = scratch.moved[j]
            if np.int32(table.cells[slot]) != scratch.cells[j]:
                x = feature_value(batch.values, row.start + j)
                own = word(np.uint32(j), row.key)
                moved = moved_again(rule, table.cells[slot], scratch.noted[j] * g, s * x * x, own, shared)
            table.cells[slot] = np.uint16(moved)
            j += _ONE

    return move_halfwords


@inlined
def moved_again(rule, cell, delta, addend, own, shared):
    """A cell after a step of `delta` and the addition of `addend`: one lane of `cell_row`."""
    cell = np.uint64(cell)
    level = advanced(rule.sums, cell & _LEVEL, addend, fine_uniform(own, shared))
    ordinal = rounded_sum(rule.units[cell >> _LEVEL_BITS], delta, rounding_bits(own, shared))
    return np.int32((project(ordinal, rule.limit) << np.int32(LEVEL_BITS)) | np.int32(level))


@overloaded(look)
def _look(table, rule, batch, row):
    if not is_table(table, Halfword):
        return None

    def look_halfwords(table, rule, batch, row):
        dot = weighted(np.int16(0), batch.values, np.float32(0.0))
        for j in range(row.length):
            ask(table, batch, row.ahead + j)
            cell = np.uint64(table.cells[batch.slots[row.start + j]])
            x = feature_value(batch.values, row.start + j)
            dot += weighted(rule.units[cell >> _LEVEL_BITS], batch.values, x)
        return np.float64(dot)

    return look_halfwords
