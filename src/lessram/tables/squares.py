"""Flat tables whose rates follow squared gradients: an 8-bit accumulator or an exact float32 sum a slot.

    weights    rates       cell                            bits a slot
    qN.M       squares8    int8 or int16, uint8 level      16, 24
    float32    squares8    float32, uint8 level            40
    float32    squares32   float32, float32 sum            64   the exact control

The rate of coordinate i is alpha / (beta + sqrt(v_i + a_i)), v_i the squared gradients so far and a_i
this example's, added before the sum is rounded to a level. A row takes four passes:

    observe   scalar   weight joins the dot product, the sum so far is noted, half the prefetches
    prepare   scalar   the other prefetches
              vector   the row's rates, and q = sum of x^2 * rate, which the invariant step needs first
              vector   levels advanced at random
    move      scalar   levels that went up are stored
              vector   steps rounded at random
              scalar   weight + step, projected (tables/moving.py)

Half of a row's time is one chain of dependent operations: margin, sigmoid, rates, their sum, invariant step, rounded
steps. What does not need its end stands before it, where the processor has nothing else to do (docs/architecture.md).

A slot that occurs twice in a row: every occurrence takes its rate from the sum before the row, steps add
up, and the levels advance one occurrence after another, so no squared gradient is lost.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.jit import inlined, overloaded
from lessram.numerics.accumulator import Accumulator, accumulator, advanced, fine_uniform, fraction_of
from lessram.numerics.memory_words import trailing_zeros
from lessram.numerics.random import shared_word
from lessram.numerics.vector import padded, spread_arrays
from lessram.tables.flat import ask, ask_other_half, has_field, look_row, nothing, product
from lessram.tables.moving import move_again, move_one, some_left
from lessram.tables.passes import step_row
from lessram.tables.squares_passes import level_row, rate_row
from lessram.tables.table import FAR, feature_value, is_table, look, move, observe, prepare

_NONE, _ONE, _WORD = np.uint64(0), np.uint64(1), np.uint64(64)


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
    noted: NDArray[np.float32]
    """rate * value"""
    steps: NDArray[np.int32] | NDArray[np.float32]
    added: NDArray[np.int32] | NDArray[np.float32]
    """How many levels each goes up, or addends of exact sums."""
    risen: NDArray[np.uint64]
    """A bit for each level that goes up."""
    pull: NDArray[np.float32] | None
    """What is taken off each step, under rules of tables.proximal."""


def squares_scratch(longest: int, cell: np.dtype, *, pulled: bool = False) -> SquaresScratch:
    """Scratch for rows of up to `longest` features over such cells; `pulled`: under a rule of tables.proximal."""
    size = padded(longest)
    steps = np.float32 if cell["weight"].kind == "f" else np.int32
    added = np.int32 if "level" in (cell.names or ()) else np.float32
    kinds = (np.uint32, np.float32, np.float32, steps, added)
    arrays: list[Any] = spread_arrays(size, kinds)
    arrays += [np.zeros(size // int(_WORD) + 1, np.uint64), np.zeros(size, np.float32) if pulled else None]
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
            scratch.sums[j] = rule.sums.heights[cells[slot].level]

        return note_level

    def note_exact(cells, rule, slot, scratch, j):
        scratch.sums[j] = cells[slot].sum

    return note_exact


def store_sums(table: Any, rule: Any, batch: Any, row: Any, scratch: Any, square: Any, shared: Any) -> None:
    """Store the advanced sums of a row."""
    raise NotImplementedError("store_sums() is for kernels")


@overloaded(store_sums)
def _store_sums(table, rule, batch, row, scratch, square, shared):
    if has_field(table.types[0], "level"):

        def store_levels(table, rule, batch, row, scratch, square, shared):
            # A level that stays need not be stored, and would stay too if its slot has gone up earlier in this row:
            # what is not enough for a step from one level is not enough from a higher one.
            for first in range(np.uint64(0), row.length, _WORD):
                left = scratch.risen[first // _WORD]
                while left != _NONE:
                    store_level(table, rule, batch, row, scratch, first + trailing_zeros(left), square, shared)
                    left &= left - _ONE

        return store_levels

    def store_exact(table, rule, batch, row, scratch, square, shared):
        for j in range(row.length):
            slot = batch.slots[row.start + j]
            table.cells[slot].sum = table.cells[slot].sum + scratch.added[j]

    return store_exact


@inlined
def store_level(table, rule, batch, row, scratch, j, square, shared):
    slot = batch.slots[row.start + j]
    level = np.int32(table.cells[slot].level)
    new = min(level + scratch.added[j], rule.sums.last)
    if rule.sums.heights[level] != scratch.sums[j]:  # the slot has occurred in this row before, and went up
        x = feature_value(batch.values, row.start + j)
        new = advanced(rule.sums, level, square * x * x, fine_uniform(scratch.words[j], shared))
    table.cells[slot].level = np.uint8(new)


# The passes. Rules of tables.proximal take them over the same cells: they differ in what a cell's weight is (`weigh`,
# `no_terms`) and in that something is taken off the steps.


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
    return weigh(table, rule, slot, batch.values, x, scratch, j)


@overloaded(observe)
def _observe(table, rule, batch, row, scratch):
    if not is_table(table, Squares):
        return None

    def observe_squares(table, rule, batch, row, scratch):
        # A row longer than the prefetch distance would be over before `prepare` asked for its half.
        alone = row.length > FAR
        dot = no_terms(table, rule, batch.values)
        for j in range(row.length):
            if alone or j & _ONE == _NONE:
                ask(table, batch, row.ahead + j)
            dot += observe_one(table, rule, batch, row, scratch, j)
        return np.float64(dot)

    return observe_squares


@overloaded(prepare)
def _prepare(table, rule, batch, row, scratch, square):
    if not is_table(table, Squares):
        return None
    exact = not has_field(table.types[0], "level")

    def prepare_squares(table, rule, batch, row, scratch, square):
        ask_other_half(table, batch, row)
        square, lowest = np.float32(square), np.float32(0.0) if exact else rule.sums.lowest
        values, start, length = batch.values, row.start, row.length
        alpha, beta = rule.alpha, rule.beta
        reach = rate_row(scratch.sums, values, start, scratch.noted, length, square, lowest, alpha, beta, scratch.pull)
        level_row(scratch, values, start, length, square, rule.sums, row.key, fraction_of(shared_word(row.key)))
        return reach

    return prepare_squares


@inlined
def find_steps(row, scratch, g, shared):
    """scratch.steps = how far each weight of the row goes."""
    low = np.uint32(shared >> np.uint64(48))
    noted, pull, words, steps = scratch.noted, scratch.pull, scratch.words, scratch.steps
    step_row(noted, pull, None, row.start, words, _NONE, steps, row.length, np.float32(g), low)


@overloaded(move)
def _move(table, rule, batch, row, scratch, g, square):
    if not is_table(table, Squares):
        return None

    def move_squares(table, rule, batch, row, scratch, g, square):
        shared = shared_word(row.key)
        store_sums(table, rule, batch, row, scratch, np.float32(square), shared)
        find_steps(row, scratch, g, shared)
        for j in range(row.length):
            move_one(table.cells, rule, batch.slots[row.start + j], scratch.steps, j)
        if some_left(table.cells, rule, scratch.steps, row.length):
            find_steps(row, scratch, g, shared)
            move_again(table.cells, rule, batch.slots, row.start, scratch.steps, row.length)

    return move_squares


@overloaded(look)
def _look(table, rule, batch, row):
    if not is_table(rule, SquaresRule):
        return None
    return lambda table, rule, batch, row: look_row(table, batch, row)
