"""Tables of 16 bits a slot, all state included: weights e3m6 and rates squares6 in one aligned halfword.

Weights e3m6xT are the same cells: only the unit of weights, by which margins are multiplied and steps divided, differs.

    bits 15 .. 6   the weight's ordinal in e3m6, signed (numerics/minifloat.py)
    bits  5 .. 0   the level of the accumulator of squared gradients (numerics/six_bits.py)

Levels from 32 on are even. Their bit 0 is one more bit of the ordinal, which then is one in e3m7: weights that have
taken many steps have a grid twice as fine.

A row takes the passes of tables/squares.py. On an uneven grid the step cannot be rounded alone, so that here the
weight, too, crosses from `observe` to `move`, where the vector pass computes whole cells:

    observe   scalar   the cell is noted, its weight joins the dot product, half the prefetches
    prepare   scalar   the other prefetches
              vector   the sums that the levels stand for, as rates see them
              vector   the row's rates, from these sums and the row's squares
    move      vector   levels advanced at random, behind the rates: the row waits for those
              vector   new cells: weight + step rounded at random to its grid
              scalar   new cells stored

A slot that occurs twice in a row: every occurrence takes its rate from the sum before the row. An occurrence that
finds its cell changed since `observe` moves the cell as it is now, one by one (`moved_again`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.jit import inlined, overloaded, types
from lessram.numerics.accumulator import Accumulator, fine_uniform, fraction_of
from lessram.numerics.machine import picker, rarely
from lessram.numerics.minifloat import E3M6, E3M7, Minifloat, rounded_sum
from lessram.numerics.random import rounding_bits, shared_word
from lessram.numerics.rounding import project
from lessram.numerics.six_bits import (
    FIRST_HIGH,
    LEVEL_BITS,
    LEVELS,
    advanced_by_pairs,
    rate_heights,
    six_bit_accumulator,
)
from lessram.numerics.vector import padded, spread_arrays
from lessram.tables.flat import ask, ask_other_half
from lessram.tables.halfword_passes import cell_row, height_row, pair_level_row
from lessram.tables.squares_passes import rate_row
from lessram.tables.table import FAR, feature_value, is_table, look, move, observe, prepare

CELL = np.dtype("<u2")

_ONE = np.uint64(1)
_CODE = LEVELS - 1
"""Bits 5 .. 0"""
_ABOVE = LEVEL_BITS - 1
"""How far the even part of an ordinal in e3m7 is shifted."""
_WEIGHT = 0xFFE1
"""The bits that say what a weight is: 15 .. 6, and 0 where 5 tells that it belongs there."""

weight_code = picker(_WEIGHT)
"""These bits of a cell, side by side."""


def _units_by_code() -> NDArray[np.int16]:
    """The weights by their codes, in units of e3m7."""
    code = np.arange(1 << _WEIGHT.bit_count())
    ordinals = (code >> 1) & (code | ~1)  # in two's complement of 11 bits
    half = 1 << (15 - _ABOVE)
    return E3M7.units((ordinals ^ half) - half).astype(np.int16)


_UNITS = _units_by_code()


class Halfword(NamedTuple):
    """One uint16 a slot."""

    cells: NDArray[Any]


class HalfwordRule(NamedTuple):
    """How coefficients move."""

    sums: Accumulator
    rated: NDArray[np.float32]
    """The height of each level as rates see it."""
    units: NDArray[np.int16]
    """The weight of each code, in units of e3m7."""
    alpha: np.float32
    beta: np.float32
    limit: np.int32
    """R, as an ordinal in e3m7."""
    step: float
    """The unit of weights, that of e3m7 or of the same multiple of it."""


class HalfwordScratch(NamedTuple):
    """Room for one row between the passes."""

    words: NDArray[np.uint32]
    cells: NDArray[np.int32]
    sums: NDArray[np.float32]
    """The heights of the levels as rates see them."""
    noted: NDArray[np.float32]
    """rate * value"""
    levels: NDArray[np.int32]
    """New levels."""
    moved: NDArray[np.int32]
    """New cells."""


def halfword_scratch(longest: int) -> HalfwordScratch:
    """Scratch for rows of up to `longest` features."""
    kinds = (np.uint32, np.int32, np.float32, np.float32, np.int32, np.int32)
    arrays: list[Any] = spread_arrays(padded(longest), kinds)
    return HalfwordScratch(*arrays)


def halfword_rule(alpha: float, beta: float, grid: Minifloat, radius: float | None) -> HalfwordRule:
    """The rule for these choices; `grid` is e3m6 or a multiple of it."""
    limit = grid.ordinals(np.array([grid.units_within(radius)]))[0]  # cells of both kinds end there
    return HalfwordRule(
        sums=six_bit_accumulator(),
        rated=rate_heights(),
        units=_UNITS,
        alpha=np.float32(alpha),
        beta=np.float32(beta),
        limit=np.int32(2 * limit),
        step=grid.step / 2,
    )


# Cells outside kernels.


def unpacked(cells: NDArray[np.uint16]) -> NDArray[np.float64]:
    """The weights of cells in units of e3m6, of which e3m7 has halves."""
    return (_UNITS / 2)[((cells >> (_ABOVE - 1)) & ~np.uint16(1)) | (cells & 1)]  # as `weight_code`


def packed(units: NDArray[Any], cells: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """These cells with other weights, the gridpoints nearest to so many units of e3m6; levels stay."""
    high = (cells & FIRST_HIGH) != 0
    levels = np.where(high, cells & (_CODE - 1), cells & _CODE)
    limit = 2 * E3M6.largest_ordinal
    ordinals = np.where(high, np.clip(E3M7.ordinals(2 * units), -limit, limit), 2 * E3M6.ordinals(units))
    return (((ordinals & ~1) << _ABOVE) | levels | (ordinals & 1)).astype(CELL)


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
    x = feature_value(batch.values, row.start + j)
    scratch.cells[j] = np.int32(cell)
    return weighted(rule.units[weight_code(cell)], batch.values, x)


@overloaded(observe)
def _observe(table, rule, batch, row, scratch):
    if not is_table(table, Halfword):
        return None

    def observe_halfwords(table, rule, batch, row, scratch):
        # A row longer than the prefetch distance would be over before `prepare` asked for its half.
        alone = row.length > FAR
        dot = weighted(np.int16(0), batch.values, np.float32(0.0))
        for j in range(row.length):
            if alone or j & _ONE == np.uint64(0):
                ask(table, batch, row.ahead + j)
            dot += observe_one(table, rule, batch, row, scratch, j)
        return np.float64(dot)

    return observe_halfwords


@overloaded(prepare)
def _prepare(table, rule, batch, row, scratch, square):
    if not is_table(table, Halfword):
        return None

    def prepare_halfwords(table, rule, batch, row, scratch, square):
        ask_other_half(table, batch, row)
        lowest, s = rule.sums.lowest, np.float32(square)
        values, start, length = batch.values, row.start, row.length
        alpha, beta = rule.alpha, rule.beta
        height_row(scratch, length, rule.rated)
        return rate_row(scratch.sums, values, start, scratch.noted, length, s, lowest, alpha, beta)

    return prepare_halfwords


@overloaded(move)
def _move(table, rule, batch, row, scratch, g, square):
    if not is_table(table, Halfword):
        return None

    def move_halfwords(table, rule, batch, row, scratch, g, square):
        shared = shared_word(row.key)
        g, s = np.float32(g), np.float32(square)
        pair_level_row(scratch, batch.values, row.start, row.length, s, rule.sums, row.key, fraction_of(shared))
        cell_row(scratch, row.length, g, rule.limit, np.uint32(shared >> np.uint64(48)))
        for j in range(row.length):
            slot = batch.slots[row.start + j]
            moved = scratch.moved[j]
            if rarely(np.int32(table.cells[slot]) != scratch.cells[j]):
                x = feature_value(batch.values, row.start + j)
                moved = moved_again(rule, np.int32(table.cells[slot]), scratch, j, g, s * x * x, shared)
            table.cells[slot] = np.uint16(moved)

    return move_halfwords


@inlined
def moved_again(rule, cell, scratch, j, g, addend, shared):
    """A cell after step j of the row and the addition of `addend`: what the vectors do in one lane.

    The slots that occur twice are those that occur in every row, and the next row waits for them. Their levels hardly
    ever go up, and while one has not since `observe`, the level that the vectors advanced it to is right.
    """
    own, level = scratch.words[j], level_in(cell)
    if rarely(level != level_in(scratch.cells[j])):
        level = advanced_by_pairs(rule.sums, level, addend, fine_uniform(own, shared))
    else:
        level = scratch.levels[j]
    units = rule.units[weight_code(np.uint64(cell))]
    rounded = rounded_sum(units, scratch.noted[j] * g, rounding_bits(own, shared), level >= np.int32(FIRST_HIGH))
    return packed_cell(project(rounded, rule.limit), level)


@inlined
def level_in(cell):
    """The level of a cell."""
    low = cell & np.int32(_CODE)
    return low & np.int32(~1) if low >= np.int32(FIRST_HIGH) else low


@inlined
def packed_cell(ordinal, level):
    """The cell of a weight, by its ordinal in e3m7, which is even where the level is low."""
    return ((ordinal & np.int32(~1)) << np.int32(_ABOVE)) | level | (ordinal & np.int32(1))


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
            dot += weighted(rule.units[weight_code(cell)], batch.values, x)
        return np.float64(dot)

    return look_halfwords
