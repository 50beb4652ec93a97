"""Flat tables whose rates follow squared gradients: an 8-bit accumulator or an exact float32 sum a slot.

    weights    rates       cell                            bits a slot
    qN.M       squares8    int8 or int16, uint8 level      16, 24
    float32    squares8    float32, uint8 level            40
    float32    squares32   float32, float32 sum            64   the exact control

The rate of coordinate i is alpha / (beta + sqrt(v_i + a_i)), v_i the squared gradients so far and a_i
this example's, added before the sum is rounded to a level. A row takes four passes:

    observe   scalar   weight joins the dot product, the sum so far is noted, half the prefetches
    prepare   vector   the row's rates, and q = sum of x^2 * rate, which the invariant step needs first
    move      vector   steps rounded at random, levels advanced at random
              scalar   weight + step, projected; new level stored; the other prefetches

A slot that occurs twice in a row: every occurrence takes its rate from the sum before the row, steps add
up, and the levels advance one occurrence after another, so no squared gradient is lost.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.jit import inlined, overloaded
from lessram.numerics.accumulator import Accumulator, accumulator, advanced, fine_uniform, fraction_of
from lessram.numerics.random import shared_word
from lessram.numerics.vector import padded
from lessram.tables.flat import add_step, ask, has_field, look_row, nothing, product, uses_randomness
from lessram.tables.passes import draw_row, step_row
from lessram.tables.squares_passes import level_row, rate_row
from lessram.tables.table import FAR, downhill, feature_value, is_table, look, move, observe, prepare

_ONE = np.uint64(1)


class Squares(NamedTuple):
    """A record array with the fields `weight` and `level` (accumulator) or `sum` (exact).

    Under a rule of tables.proximal `weight` is an average from which weights are made.
    """

    cells: NDArray[np.void]


class SquaresRule(NamedTuple):
    """How coefficients move under squared-gradient rates."""

    sums: Accumulator
    alpha: np.float32
    beta: np.float32
    limit: np.int32 | np.float32
    """R, in units of the grid."""
    step: float
    """eps, the grid's step; 1 for floating-point weights."""


class SquaresScratch(NamedTuple):
    """Room for one row between the passes."""

    words: NDArray[np.uint32]
    sums: NDArray[np.float32]
    """Heights V_c, or exact sums."""
    levels: NDArray[np.int32]
    values: NDArray[np.float32]
    noted: NDArray[np.float32]
    """rate * value"""
    steps: NDArray[np.int32] | NDArray[np.float32]
    advanced: NDArray[np.int32] | NDArray[np.float32]
    """New levels, or addends of exact sums."""


def squares_scratch(longest: int, cell: np.dtype) -> SquaresScratch:
    """Scratch for rows of up to `longest` features over such cells."""
    size = padded(longest)
    steps = np.float32 if cell["weight"].kind == "f" else np.int32
    news = np.int32 if "level" in (cell.names or ()) else np.float32
    kinds = (np.uint32, np.float32, np.int32, np.float32, np.float32, steps, news)
    arrays: list[Any] = [np.zeros(size, kind) for kind in kinds]
    made = SquaresScratch(*arrays)
    made.sums[:] = 1.0  # lanes behind a row divide by this
    return made


def squares_rule(base: float, alpha: float, beta: float, limit: Any, step: float) -> SquaresRule:
    """The rule for these choices."""
    return SquaresRule(accumulator(base), np.float32(alpha), np.float32(beta), limit, step)


# What the two kinds of cell do differently: read the sum, write it back.


def note_sum(cells: Any, rule: Any, slot: Any, scratch: Any, j: Any) -> None:
    """Write down what the accumulator of a cell stands at."""
    raise NotImplementedError("note_sum() is for kernels")


@overloaded(note_sum)
def _note_sum(cells, rule, slot, scratch, j):
    if has_field(cells, "level"):

        def note_level(cells, rule, slot, scratch, j):
            level = cells[slot].level
            scratch.levels[j] = np.int32(level)
            scratch.sums[j] = rule.sums.heights[level]

        return note_level

    def note_exact(cells, rule, slot, scratch, j):
        scratch.sums[j] = cells[slot].sum

    return note_exact


def store_sum(cells: Any, rule: Any, slot: Any, scratch: Any, j: Any, square: Any, shared: Any) -> None:
    """Store the advanced sum."""
    raise NotImplementedError("store_sum() is for kernels")


@overloaded(store_sum)
def _store_sum(cells, rule, slot, scratch, j, square, shared):
    if has_field(cells, "level"):

        def store_level(cells, rule, slot, scratch, j, square, shared):
            level, new = np.int32(cells[slot].level), scratch.advanced[j]
            if level != scratch.levels[j]:  # the slot has occurred in this row before, and went up
                x, uniform = scratch.values[j], fine_uniform(scratch.words[j], shared)
                new = advanced(rule.sums, level, square * x * x, uniform)
            cells[slot].level = np.uint8(new)

        return store_level

    def store_exact(cells, rule, slot, scratch, j, square, shared):
        cells[slot].sum = cells[slot].sum + scratch.advanced[j]

    return store_exact


# The passes. Rules of tables.proximal take them over the same cells: they differ in what a cell's weight is (`weigh`,
# `no_terms`) and in that they have an array of what is to be taken off the steps (`pull`).


def weigh(table: Any, rule: Any, slot: Any, values: Any, x: Any, scratch: Any, j: Any) -> Any:
    """weight * x of one feature, its stored weight noted where the row's steps depend on it."""
    raise NotImplementedError("weigh() is for kernels")


@overloaded(weigh)
def _weigh(table, rule, slot, values, x, scratch, j):
    if is_table(rule, SquaresRule):
        return lambda table, rule, slot, values, x, scratch, j: product(table.cells, slot, values, x)
    return None


def no_terms(table: Any, rule: Any, values: Any) -> Any:
    """The empty sum of what `weigh` returns."""
    raise NotImplementedError("no_terms() is for kernels")


@overloaded(no_terms)
def _no_terms(table, rule, values):
    if is_table(rule, SquaresRule):
        return lambda table, rule, values: nothing(table.cells, values)
    return None


@inlined
def observe_one(table, rule, batch, row, scratch, j):
    slot = batch.slots[row.start + j]
    x = feature_value(batch.values, row.start + j)
    note_sum(table.cells, rule, slot, scratch, j)
    scratch.values[j] = x
    return weigh(table, rule, slot, batch.values, x, scratch, j)


@inlined
def observe_row(table, rule, batch, row, scratch):
    # A row longer than the prefetch distance would be over before `move` asked for its half.
    alone = row.length > FAR
    dot = no_terms(table, rule, batch.values)
    j = np.uint64(0)
    while j < row.length:
        if alone or j & _ONE == np.uint64(0):
            ask(table, batch, row.ahead + j)
        dot += observe_one(table, rule, batch, row, scratch, j)
        j += _ONE
    return np.float64(dot)


@inlined
def prepare_row(rule, row, scratch, square, exact, pull):
    square, lowest = np.float32(square), np.float32(0.0) if exact else rule.sums.lowest
    sums, values, noted = scratch.sums, scratch.values, scratch.noted
    return rate_row(sums, values, noted, row.length, square, lowest, rule.alpha, rule.beta, pull)


@inlined
def move_row(table, rule, batch, row, scratch, gradient, square, random, pull):
    if random:
        draw_row(scratch.words, row.length, row.key)
    shared = shared_word(row.key)
    g = downhill(gradient, rule.step)
    low = np.uint32(shared >> np.uint64(48))
    step_row(scratch.noted, scratch.values, scratch.words, scratch.steps, row.length, pull, g, low)
    level_row(scratch, row.length, np.float32(square), rule.sums, fraction_of(shared))
    alone = row.length > FAR
    j = np.uint64(0)
    while j < row.length:
        if not alone and j & _ONE == _ONE:
            ask(table, batch, row.ahead + j)
        slot = batch.slots[row.start + j]
        add_step(table, rule, slot, scratch.steps[j])
        store_sum(table.cells, rule, slot, scratch, j, np.float32(square), shared)
        j += _ONE


@overloaded(observe)
def _observe(table, rule, batch, row, scratch):
    if not is_table(rule, SquaresRule):
        return None
    return lambda table, rule, batch, row, scratch: observe_row(table, rule, batch, row, scratch)


@overloaded(prepare)
def _prepare(table, rule, batch, row, scratch, square):
    if not is_table(rule, SquaresRule):
        return None
    exact = not has_field(table.types[0], "level")
    return lambda table, rule, batch, row, scratch, square: prepare_row(rule, row, scratch, square, exact, None)


@overloaded(move)
def _move(table, rule, batch, row, scratch, gradient, square):
    if not is_table(rule, SquaresRule):
        return None
    random = uses_randomness(table.types[0])

    def move_squares(table, rule, batch, row, scratch, gradient, square):
        move_row(table, rule, batch, row, scratch, gradient, square, random, None)

    return move_squares


@overloaded(look)
def _look(table, rule, batch, row):
    if not is_table(rule, SquaresRule):
        return None
    return lambda table, rule, batch, row: look_row(table, batch, row)
