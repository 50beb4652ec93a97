"""Flat tables: one packed cell a slot, its weight and its rate state side by side.

    weights    rates      cell                              bits a slot
    float32    global     float32                           32   the paper's baseline
    float32    exact32    float32, uint32 count             64   the control with exact counts
    float32    morris8    float32, uint8 level              40
    qN.M       global     int8 or int16                     8, 16
    qN.M       morris8    int8 or int16, uint8 level        16, 24   the paper's recommendation

One cell is one cache line (now and then two): half the misses of two arrays. All tables run the same
code, so that comparisons between them are fair. A row takes three passes:

    draw_ahead            vector   the random words of the row
    observe   note        scalar   the rate state steps, the weight joins the dot product, the rate is
                                   noted unless it is one for all; every second cell far ahead is prefetched
    move      step_row    vector   rate * value * gradient, rounded at random to integers
              move_one    scalar   weight + step; the other cells far ahead are prefetched
              some_left   vector   whether a weight is beyond R (tables/moving.py)

Only steps cross from one pass to the next, so a slot that occurs twice in a row is treated exactly
as by the sequential algorithm: its counter steps twice, its weight moves twice.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.jit import inlined, overloaded, types
from lessram.numerics.counter import steps_up
from lessram.numerics.machine import prefetch, rarely
from lessram.numerics.random import shared_word
from lessram.numerics.rate import global_rate
from lessram.tables.moving import has_integer_weights, move_again, move_one, some_left
from lessram.tables.passes import step_row
from lessram.tables.table import FAR, feature_value, is_table, look, move, observe, prepare, words_at

_ONE = np.uint64(1)


class Flat(NamedTuple):
    """A record array with the field `weight` and, for rates by coordinate, `count` or `level`."""

    cells: NDArray[np.void]


def has_field(cells: Any, name: str) -> bool:
    """Whether the cells of this compile-time type have such a field."""
    return name in cells.dtype.fields


def sums_integers(cells: Any, values: Any) -> bool:
    """Whether dot products over these compile-time types are sums of integers."""
    return isinstance(values, types.NoneType) and has_integer_weights(cells)


@inlined
def ask(table, batch, k):
    prefetch(table.cells, np.uint64(batch.slots[k]))


@inlined
def ask_other_half(table, batch, row):
    """The prefetches that `observe` left, of odd features: they cost nothing while the row waits for its gradient."""
    if row.length <= FAR:
        for pair in range(row.length >> _ONE):
            ask(table, batch, row.ahead + (pair + pair + _ONE))


# The dot product: integer weights of binary features add up as integers, everything else in float64. Products of
# an int16 or float32 weight and a float32 value are exact there, so a fused multiply-add changes nothing.


def nothing(cells: Any, values: Any) -> Any:
    """The empty sum."""
    raise NotImplementedError("nothing() is for kernels")


@overloaded(nothing)
def _nothing(cells, values):
    if sums_integers(cells, values):
        return lambda cells, values: np.int64(0)
    return lambda cells, values: 0.0


def product(cells: Any, slot: Any, values: Any, x: Any) -> Any:
    """weight * x of one feature."""
    raise NotImplementedError("product() is for kernels")


@overloaded(product)
def _product(cells, slot, values, x):
    if sums_integers(cells, values):
        return lambda cells, slot, values, x: np.int64(cells[slot].weight)
    return lambda cells, slot, values, x: np.float64(cells[slot].weight) * np.float64(x)


# The rate state of one cell: what `note` writes down for the vector pass, and how `rates_of` reads it.


def note(cells: Any, rule: Any, slot: Any, scratch: Any, at: Any, j: Any) -> None:
    """Step the rate state of one cell and write down what its step depends on."""
    raise NotImplementedError("note() is for kernels")


@overloaded(note)
def _note(cells, rule, slot, scratch, at, j):
    if has_field(cells, "level"):

        def note_level(cells, rule, slot, scratch, at, j):
            # A word, not a byte: it is an index next. The last level has no way up.
            level = np.uint64(cells[slot].level)
            level += steps_up(rule.thresholds[level], scratch.counting[at + j])
            cells[slot].level = np.uint8(level)
            scratch.noted[j] = rule.rates[level]

        return note_level
    if has_field(cells, "count"):

        def note_count(cells, rule, slot, scratch, at, j):
            rounds = cells[slot].count
            rounds = np.uint32(rounds + np.uint32(rounds != np.uint32(0xFFFFFFFF)))
            cells[slot].count = rounds
            scratch.noted[j] = np.float32(rounds)

        return note_count

    return lambda cells, rule, slot, scratch, at, j: None


def rates_of(cells: Any, rule: Any, row: Any) -> Any:
    """How the vector pass turns what was noted into rates (see `step_row`)."""
    raise NotImplementedError("rates_of() is for kernels")


@overloaded(rates_of)
def _rates_of(cells, rule, row):
    if has_field(cells, "level"):
        return lambda cells, rule, row: None
    if has_field(cells, "count"):
        return lambda cells, rule, row: (rule.alpha, rule.offset, rule.floor)
    return lambda cells, rule, row: global_rate(rule.alpha, row.example, rule.floor)


@inlined
def observe_one(table, rule, batch, row, scratch, j):
    """Note one feature; returns its weight times its value."""
    slot = batch.slots[row.start + j]
    x = feature_value(batch.values, row.start + j)
    term = product(table.cells, slot, batch.values, x)  # before the state beside it is stored: loads need not wait
    note(table.cells, rule, slot, scratch, words_at(row, scratch), j)
    return term


@overloaded(observe)
def _observe(table, rule, batch, row, scratch):
    if not is_table(table, Flat):
        return None

    def observe_flat(table, rule, batch, row, scratch):
        # A row longer than the prefetch distance would be over before `move` asked for its half.
        alone = row.length > FAR
        dot = nothing(table.cells, batch.values)
        # Two features a turn: the compiler would ask at each whether it is even, and spill registers to do so.
        for pair in range(row.length >> _ONE):
            j = pair + pair
            ask(table, batch, row.ahead + j)
            dot += observe_one(table, rule, batch, row, scratch, j)
            if rarely(alone):
                ask(table, batch, row.ahead + j + _ONE)
            dot += observe_one(table, rule, batch, row, scratch, j + _ONE)
        if row.length & _ONE:
            j = row.length - _ONE
            ask(table, batch, row.ahead + j)
            dot += observe_one(table, rule, batch, row, scratch, j)
        return np.float64(dot)

    return observe_flat


@inlined
def find_steps(table, rule, batch, row, scratch, g):
    """scratch.steps = how far each weight of the row goes."""
    shared = np.uint32(shared_word(row.key) >> np.uint64(48))
    rates = rates_of(table.cells, rule, row)
    noted, words, steps = scratch.noted, scratch.words, scratch.steps
    at = words_at(row, scratch)
    step_row(noted, rates, batch.values, row.start, words, at, steps, row.length, np.float32(g), shared)


@overloaded(move)
def _move(table, rule, batch, row, scratch, g, square):
    if not is_table(table, Flat):
        return None

    def move_flat(table, rule, batch, row, scratch, g, square):
        find_steps(table, rule, batch, row, scratch, g)
        alone = row.length > FAR
        j = np.uint64(0)
        while j < row.length:
            if not alone and j & _ONE == _ONE:
                ask(table, batch, row.ahead + j)
            move_one(table.cells, rule, batch.slots[row.start + j], scratch.steps, j)
            j += _ONE
        if some_left(table.cells, rule, scratch.steps, row.length):
            find_steps(table, rule, batch, row, scratch, g)
            move_again(table.cells, rule, batch.slots, row.start, scratch.steps, row.length)

    return move_flat


@inlined
def look_row(table, batch, row):
    """The dot product of a row with the table's weights."""
    dot = nothing(table.cells, batch.values)
    for j in range(row.length):
        ask(table, batch, row.ahead + j)
        x = feature_value(batch.values, row.start + j)
        dot += product(table.cells, batch.slots[row.start + j], batch.values, x)
    return np.float64(dot)


@overloaded(look)
def _look(table, rule, batch, row):
    if not is_table(table, Flat):
        return None
    return lambda table, rule, batch, row: look_row(table, batch, row)


@overloaded(prepare)
def _prepare(table, rule, batch, row, scratch, square):
    if not is_table(table, Flat):
        return None
    return lambda table, rule, batch, row, scratch, square: 0.0  # rates by counts go with the plain step
