"""Adaptive tables: a byte a coordinate, and a 24-bit cell for the few that need one (section 3, Algorithm 2).

    coordinate                       where                                       bits
    never seen, or rare              a code: (counter level, value) jointly       8.53 with the block's pointer
    counted often, or out of range   the same, and a cell of the block's slab    32.5 and the slab's spare room

The paper lets the grid follow the learning rate, eps_i = gamma * eta_i, and leaves open where coefficients of different
sizes live. Here the first levels of the counter share one byte with the value (numerics/codebook.py), rounded without
bias to the list of the new level; a coordinate that leaves its list is promoted to a q2.13 cell with an 8-bit level
(tables/slabs.py), the cell of the flat table, and goes on there.

A row takes these passes:

    observe   vector   where the codes of its features are, and of features further ahead
              scalar   the cell of each feature is found and joins the dot product; lines far ahead, and cells not so
                       far ahead, are prefetched
    move      vector   the random words of the row
              scalar   promoted features: counters step, rates are looked up
              vector   a mask of the others
              vector   all steps, rounded at random to integers
              scalar   promoted features: weight + step
              scalar   the others: counter, rate, and the new code; promotion is rare

Promoted features are learned by the functions of the flat table. No branch asks which ones these are, since none could
be predicted: the others take part with a cell of the pool that means nothing. What `observe` finds is written down in
the order of the row, never to a list: the place in a list is known late, and loads of the cells behind would wait for
it. Counting comes after the gradient's exponential, which it does not need, so that neither waits for the other.

The result is that of taking features one after another: every step starts from what is stored, and the cells of
promoted features do not move before the others are promoted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.jit import inlined, kernel, overloaded, types
from lessram.numerics.counter import Counter, steps_up
from lessram.numerics.machine import prefetch
from lessram.numerics.memory_words import trailing_zeros
from lessram.numerics.random import rounding_bits, shared_word, uniform
from lessram.numerics.rate import rates_by_level
from lessram.numerics.rounding import project, random_round
from lessram.numerics.vector import padded, spread_arrays
from lessram.tables.blocks import FIRST_SLOT, place_of, place_row, pointer_of
from lessram.tables.book import Index, index_of, is_inside, rounded_code
from lessram.tables.flat import note
from lessram.tables.moving import add_step, move_again, move_one, some_left
from lessram.tables.passes import draw_row, mark_equal, step_row
from lessram.tables.slabs import START, TOP, promote
from lessram.tables.table import feature_value, is_table, look, move, observe, prepare

NEAR = np.uint64(128)
"""How many features ahead cells are prefetched, when the lines that tell where they are have arrived."""
LARGEST_CACHED = 1 << 18
"""Cells of a pool that stays in L2 without being asked for: 768 kB. Asking costs up to a nanosecond a feature."""
NOWHERE = np.uint64(START - 1)
"""A cell that no code means: for features without one, and 0 again after every row."""
_ONE, _ZERO, _FIRST, _WORD = np.uint64(1), np.uint64(0), np.uint64(FIRST_SLOT), np.uint64(64)
_BLOCK_OF_PLACE = np.uint64(6)


class Adaptive(NamedTuple):
    """Blocks of codes, and the pool of cells with the codebook at its start."""

    codes: NDArray[np.uint8]
    """Lines of 60 codes and a pointer."""
    pointers: NDArray[np.uint32]
    """The same memory as 32-bit words."""
    cells: NDArray[np.void]
    pool: NDArray[np.int64]
    """How the pool stands: see tables/slabs.py."""

    def __reduce__(self) -> tuple[Any, ...]:
        from lessram.tables.adaptive_store import packed, unpacked

        return unpacked, (packed(self),)


class AdaptiveRule(NamedTuple):
    """How coefficients move."""

    rates: NDArray[np.float32]
    thresholds: NDArray[np.uint64]
    lists: Index
    alpha: np.float32
    offset: np.float32
    floor: np.float32
    limit: np.int32
    step: float


class AdaptiveScratch(NamedTuple):
    """Room for one row between the passes."""

    words: NDArray[np.uint32]
    """Of each feature its random word,"""
    counting: NDArray[np.uint64]
    """its random bits to count with,"""
    places: NDArray[np.uint32]
    """where its code is,"""
    near: NDArray[np.uint32]
    """where that of a feature ahead is whose cell is prefetched,"""
    far: NDArray[np.uint32]
    """and of one whose line is,"""
    targets: NDArray[np.uint32]
    """its cell, or `NOWHERE`,"""
    noted: NDArray[np.float32]
    """its rate,"""
    steps: NDArray[np.int32]
    """and its step."""
    coded: NDArray[np.uint64]
    """A mask of the features without a cell."""


def adaptive_rule(book: NDArray[np.void], counter: Counter, alpha: float, limit: np.int32, step: float) -> AdaptiveRule:
    """The rule for a table with this codebook, given as cells."""
    rates = rates_by_level(alpha, counter.estimates)
    one, none = np.float32(1.0), np.float32(0.0)
    return AdaptiveRule(rates, counter.thresholds, index_of(book), np.float32(alpha), one, none, limit, step)


def adaptive_scratch(longest: int) -> AdaptiveScratch:
    """Scratch for rows of up to `longest` features."""
    kinds = (np.uint32, np.uint64, np.uint32, np.uint32, np.uint32, np.uint32, np.float32, np.int32)
    arrays: list[Any] = spread_arrays(padded(longest), kinds)
    arrays.append(np.zeros(longest // int(_WORD) + 1, np.uint64))
    return AdaptiveScratch(*arrays)


@inlined
def cell_of(table, place):
    """The cell of the coordinate whose code is at `place`: its own, or that of its code in the codebook."""
    code = np.uint64(table.codes[place])
    pointer = np.uint64(table.pointers[pointer_of(place >> _BLOCK_OF_PLACE)])
    return code + (pointer if code >= _FIRST else _ZERO)


@inlined
def cell_to_read(table, place):
    """The same for those who only predict, perhaps from a damaged file: no pointer leads out of the pool."""
    return min(cell_of(table, place), np.uint64(table.cells.shape[0]) - _ONE)


@inlined
def near_of(table, row):
    """Where the cells to prefetch belong to; 0 where the batch ends, or where the pool stays in the cache anyway."""
    return row.start + NEAR if (row.ahead != row.start) & (table.pool[TOP] > LARGEST_CACHED) else _ZERO


def times(weight: Any, values: Any, x: Any) -> Any:
    """weight * x; integers stay integers where all values are 1."""
    raise NotImplementedError("times() is for kernels")


@overloaded(times)
def _times(weight, values, x):
    if isinstance(values, types.NoneType):
        return lambda weight, values, x: np.int64(weight)
    return lambda weight, values, x: np.float64(weight) * np.float64(x)


@overloaded(observe)
def _observe(table, rule, batch, row, scratch):
    if not is_table(table, Adaptive):
        return None

    def observe_adaptive(table, rule, batch, row, scratch):
        place_row(batch.slots, row.start, row.length, scratch.places)
        place_row(batch.slots, row.ahead, row.length, scratch.far)
        near = near_of(table, row)
        if near != _ZERO:
            place_row(batch.slots, near, row.length, scratch.near)
        dot = times(np.int64(0), batch.values, np.float32(0.0))
        j = np.uint64(0)
        while j < row.length:
            prefetch(table.codes, np.uint64(scratch.far[j]))
            if near != _ZERO:
                prefetch(table.cells, cell_of(table, np.uint64(scratch.near[j])))
            cell = cell_of(table, np.uint64(scratch.places[j]))
            dot += times(table.cells[cell].weight, batch.values, feature_value(batch.values, row.start + j))
            scratch.targets[j] = np.uint32(cell if cell >= np.uint64(START) else NOWHERE)
            j += _ONE
        return np.float64(dot)

    return observe_adaptive


@inlined
def counted(rule, level, bits):
    """The level after this round."""
    return np.uint8(level + steps_up(rule.thresholds[level], bits))


@inlined
def note_promoted(table, rule, row, scratch):
    """Step the counters of promoted features, note their rates, and mark the others."""
    for j in range(row.length):
        note(table.cells, rule, scratch.targets[j], scratch, _ZERO, j)
    mark_equal(scratch.targets, row.length, np.uint32(NOWHERE), scratch.coded)


@inlined
def find_steps(batch, row, scratch, g, shared):
    """scratch.steps = how far each weight of the row goes."""
    low = np.uint32(shared >> np.uint64(48))
    step_row(scratch.noted, None, batch.values, row.start, scratch.words, _ZERO, scratch.steps, row.length, g, low)


@inlined
def move_promoted(table, rule, batch, row, scratch, g, shared):
    """Round all steps in vectors and add them."""
    find_steps(batch, row, scratch, g, shared)
    for j in range(row.length):
        move_one(table.cells, rule, scratch.targets[j], scratch.steps, j)
    if some_left(table.cells, rule, scratch.steps, row.length):
        find_steps(batch, row, scratch, g, shared)
        move_again(table.cells, rule, scratch.targets, _ZERO, scratch.steps, row.length)
    table.cells[NOWHERE].weight = np.int16(0)
    table.cells[NOWHERE].level = np.uint8(0)


@kernel
def leave_code(table, rule, place, level, delta, bits):
    """A step that no code can take: out of the list, and so into a cell; or of a slot that got one in this very row."""
    cell = cell_of(table, place)
    step = random_round(delta, bits)
    if cell >= np.uint64(START):
        table.cells[cell].level = level
        add_step(table.cells, rule, cell, step)
        return
    weight = project(np.int64(table.cells[cell].weight) + step, np.int64(rule.limit))
    promote(table.codes, table.pointers, table.cells, table.pool, place, weight, level)


@inlined
def move_coded(table, rule, batch, row, scratch, g, shared):
    """The features without a cell, one after another."""
    for word in range((row.length + (_WORD - _ONE)) // _WORD):
        first = word * _WORD
        left = scratch.coded[word]
        while left != _ZERO:
            move_code(table, rule, batch, row, scratch, first + trailing_zeros(left), g, shared)
            left &= left - _ONE


@inlined
def move_code(table, rule, batch, row, scratch, j, g, shared):
    """Count, take the rate, and round to the list of the new level."""
    place = np.uint64(scratch.places[j])
    bits = rounding_bits(scratch.words[j], shared)
    cell = cell_of(table, place)
    level = counted(rule, table.cells[cell].level, scratch.counting[j])
    delta = rule.rates[level] * feature_value(batch.values, row.start + j) * g
    value = np.float64(table.cells[cell].weight) + np.float64(delta)
    if (cell < np.uint64(START)) & is_inside(rule.lists, level, value):
        chance = np.float64(uniform(bits))
        table.codes[place] = rounded_code(table.cells, rule.lists, level, value, chance)
    else:
        leave_code(table, rule, place, level, delta, bits)


@overloaded(move)
def _move(table, rule, batch, row, scratch, g, square):
    if not is_table(table, Adaptive):
        return None

    def move_adaptive(table, rule, batch, row, scratch, g, square):
        g = np.float32(g)
        shared = shared_word(row.key)
        draw_row(scratch.words, _ZERO, scratch.counting, row.length, row.key, shared)
        note_promoted(table, rule, row, scratch)
        move_promoted(table, rule, batch, row, scratch, g, shared)
        move_coded(table, rule, batch, row, scratch, g, shared)

    return move_adaptive


@overloaded(look)
def _look(table, rule, batch, row):
    if not is_table(table, Adaptive):
        return None

    def look_adaptive(table, rule, batch, row):
        near = near_of(table, row)
        dot = times(np.int64(0), batch.values, np.float32(0.0))
        for j in range(row.length):
            prefetch(table.codes, place_of(batch.slots[row.ahead + j]))
            if near != _ZERO:
                prefetch(table.cells, cell_of(table, place_of(batch.slots[near + j])))
            cell = table.cells[cell_to_read(table, place_of(batch.slots[row.start + j]))]
            dot += times(cell.weight, batch.values, feature_value(batch.values, row.start + j))
        return np.float64(dot)

    return look_adaptive


@overloaded(prepare)
def _prepare(table, rule, batch, row, scratch, square):
    if not is_table(table, Adaptive):
        return None
    return lambda table, rule, batch, row, scratch, square: 0.0  # rates by counts go with the plain step
