"""What one slot of several replicas becomes: see tables/merging.py.

A block is an array of cells: a row for some slots of the start, one for the result, and one for each replica. The
result begins as the start, and the functions below write the slots that some replica has changed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.jit import inlined, overloaded, types
from lessram.numerics.counter import merged_level
from lessram.numerics.merging import rounded_mean, sort_few
from lessram.numerics.minifloat import rounded_quotient
from lessram.numerics.six_bits import FIRST_HIGH, LEVELS
from lessram.tables.flat import has_field, has_integer_weights
from lessram.tables.halfword import packed_cell, weight_code
from lessram.tables.table import is_table

START, RESULT, REPLICAS = 0, 1, 2
"""The rows of a block; replicas are all from the last of these on."""

_MOST = np.int64(0xFFFFFFFF)
_HALF = np.uint64(32)
_HIGH, _CODE = np.int64(FIRST_HIGH), np.uint64(LEVELS - 1)


class Merge(NamedTuple):
    """How replicas become one, and room for what they hold of a slot."""

    ladder: NDArray[np.float64]
    """What each level of a counter or accumulator stands for, but for a constant."""
    key: np.uint64
    """Of the random words."""
    everyone: bool
    """Whether all replicas have a say in a weight's mean, or those alone that changed the slot."""
    levels: NDArray[np.uint8]
    numbers: NDArray[np.float64]
    behind: NDArray[np.int64]
    """For each replica how many slots have counted less than the start: it began elsewhere."""


class Points(NamedTuple):
    """The grids of weights gamma."""

    points: NDArray[np.float64]
    """Gridpoints between 0 and R at each level."""


class Halves(NamedTuple):
    """The grids of halfwords."""

    units: NDArray[np.int16]
    """The weight of each ordinal in e3m7."""


def merge_rule(ladder: NDArray[np.float64], key: int, replicas: int, *, everyone: bool) -> Merge:
    """The rule for so many replicas."""
    rooms: list[Any] = [np.zeros(replicas, kind) for kind in (np.uint8, np.float64, np.int64)]
    return Merge(ladder, np.uint64(key), everyone, *rooms)


def differs(block: Any, k: Any, j: Any) -> Any:
    """Whether slot j in row k is not as it was at the start."""
    raise NotImplementedError("differs() is for kernels")


@overloaded(differs)
def _differs(block, k, j):
    if isinstance(block.dtype, types.Integer):
        return lambda block, k, j: block[START, j] != block[k, j]
    if has_field(block, "level"):
        return lambda block, k, j: (
            block[START, j].weight != block[k, j].weight or block[START, j].level != block[k, j].level
        )
    if has_field(block, "count"):
        return lambda block, k, j: (
            block[START, j].weight != block[k, j].weight or block[START, j].count != block[k, j].count
        )
    if has_field(block, "sum"):
        return lambda block, k, j: (
            block[START, j].weight != block[k, j].weight or block[START, j].sum != block[k, j].sum
        )
    return lambda block, k, j: block[START, j].weight != block[k, j].weight


@inlined
def is_moved(block, j):
    """Whether any replica has changed slot j."""
    for k in range(REPLICAS, block.shape[0]):  # noqa: SIM110 (kernels have no generators)
        if differs(block, k, j):
            return True
    return False


@inlined
def votes(rule, block, k, j):
    """Whether row k has a say in the mean weight of slot j."""
    return rule.everyone or differs(block, k, j)


def merge_cell(grid: Any, rule: Any, block: Any, j: Any, word: Any) -> None:
    """Merge one slot that some replica has changed."""
    raise NotImplementedError("merge_cell() is for kernels")


@overloaded(merge_cell)
def _merge_cell(grid, rule, block, j, word):
    if is_table(grid, Points):
        return lambda grid, rule, block, j, word: merge_graded(grid, rule, block, j, word)
    if is_table(grid, Halves):
        return lambda grid, rule, block, j, word: merge_halfword(grid, rule, block, j, word)

    def merge_record(grid, rule, block, j, word):
        merge_state(rule, block, j, word)
        merge_weight(rule, block, j, word)

    return merge_record


@inlined
def merge_graded(grid, rule, block, j, word):
    merge_state(rule, block, j, word)
    points = grid.points[block[RESULT, j].level]  # of the finest grid, which has everybody's weight as a gridpoint
    total, count = 0, 0
    for k in range(REPLICAS, block.shape[0]):
        if votes(rule, block, k, j):
            total += np.int64(np.float64(block[k, j].weight) * points)
            count += 1
    block[RESULT, j].weight = np.float32(np.float64(rounded_mean(total, count, np.uint32(word >> _HALF))) / points)


@inlined
def merge_halfword(grid, rule, block, j, word):
    total, count = 0, 0
    before = place_on_ladder(block[START, j])
    for k in range(REPLICAS, block.shape[0]):
        note_level(rule, k, place_on_ladder(block[k, j]), before)
        if votes(rule, block, k, j):
            total += np.int64(grid.units[weight_code(np.uint64(block[k, j]))])
            count += 1
    place = new_level(rule, before, word)
    level = place if place < _HIGH else place + place - _HIGH
    ordinal = rounded_quotient(total, count, np.uint32(word >> _HALF), place >= _HIGH)
    block[RESULT, j] = np.uint16(packed_cell(ordinal, level))


@inlined
def place_on_ladder(cell):
    """The level of a halfword as its place among those that exist: 0 to 31, then 32, 34 .. 62."""
    level = np.int64(np.uint64(cell) & _CODE)
    return np.uint8(level if level < _HIGH else (level + _HIGH) >> np.int64(1))


# Weights --------------------------------------------------------------------------------------------------------------


def merge_weight(rule: Any, block: Any, j: Any, word: Any) -> None:
    """The mean weight of one slot."""
    raise NotImplementedError("merge_weight() is for kernels")


@overloaded(merge_weight)
def _merge_weight(rule, block, j, word):
    if has_integer_weights(block):

        def merge_units(rule, block, j, word):
            total, count = total_of(rule, block, j)
            block[RESULT, j].weight = rounded_mean(total, count, np.uint32(word >> _HALF))

        return merge_units

    def merge_floats(rule, block, j, word):
        count = 0
        for k in range(REPLICAS, block.shape[0]):
            if votes(rule, block, k, j):
                rule.numbers[count] = np.float64(block[k, j].weight)
                count += 1
        block[RESULT, j].weight = np.float32(sum_of(rule.numbers, count, 0.0) / np.float64(count))

    return merge_floats


@inlined
def total_of(rule, block, j):
    """The sum of the weights that have a say, and their number; integers."""
    total, count = 0, 0
    for k in range(REPLICAS, block.shape[0]):
        if votes(rule, block, k, j):
            total += np.int64(block[k, j].weight)
            count += 1
    return total, count


@inlined
def sum_of(numbers, count, before):
    """before + the sum of (number - before), the same in any order."""
    sort_few(numbers, count)
    total = numbers[0]
    for k in range(1, count):
        total += numbers[k] - before
    return total


# Rate states ----------------------------------------------------------------------------------------------------------


@inlined
def note_level(rule, k, level, before):
    rule.levels[k - REPLICAS] = level
    rule.behind[k - REPLICAS] += np.int64(level < before)


@inlined
def new_level(rule, before, word):
    """The level for what was counted before and since, of the levels noted."""
    sort_few(rule.levels, rule.levels.shape[0])
    return merged_level(rule.ladder, before, rule.levels, np.uint32(word))


def merge_state(rule: Any, block: Any, j: Any, word: Any) -> None:
    """What the replicas of one slot have counted since the start, added to it."""
    raise NotImplementedError("merge_state() is for kernels")


@overloaded(merge_state)
def _merge_state(rule, block, j, word):
    if has_field(block, "level"):

        def merge_levels(rule, block, j, word):
            before = block[START, j].level
            for k in range(REPLICAS, block.shape[0]):
                note_level(rule, k, block[k, j].level, before)
            block[RESULT, j].level = np.uint8(new_level(rule, before, word))

        return merge_levels
    if has_field(block, "count"):

        def merge_counts(rule, block, j, word):
            before = np.int64(block[START, j].count)
            total = before
            for k in range(REPLICAS, block.shape[0]):
                added = np.int64(block[k, j].count) - before
                rule.behind[k - REPLICAS] += np.int64(added < 0)
                total += added
            block[RESULT, j].count = np.uint32(min(total, _MOST))

        return merge_counts
    if has_field(block, "sum"):

        def merge_sums(rule, block, j, word):
            before = np.float64(block[START, j].sum)
            for k in range(REPLICAS, block.shape[0]):
                rule.numbers[k - REPLICAS] = np.float64(block[k, j].sum)
                rule.behind[k - REPLICAS] += np.int64(block[k, j].sum < block[START, j].sum)
            block[RESULT, j].sum = np.float32(sum_of(rule.numbers, block.shape[0] - REPLICAS, before))

        return merge_sums
    return lambda rule, block, j, word: None  # one rate for all: there is nothing to count
