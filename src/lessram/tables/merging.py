"""Merging: the cells of replicas that parted at a common start become one table (numerics/merging.py).

    weights   their mean goes to                     rates                what was added since the start
    qN.M      one of two integers, at random         morris8, ladder8     adds up, to one of two levels, at random
    e3m6      one of two gridpoints, at random,      squares8, squares6   the same
    gamma     of the grid that the new level has     exact32              adds up, as far as 32 bits reach
    float32   the nearest                            squares32            adds up

Averages of FTRL-Proximal and RDA are merged as the weights that they stand for. Adaptive tables: adaptive_merging.py.

Slots are walked in blocks of at most `ROOM` bytes, all replicas of a block side by side: so one kernel serves any
number of replicas, which may lie in mapped files, and nothing else is held but the result. What a slot becomes depends
on the slot alone: not on the blocks, nor on the order of the replicas. A slot that no replica changed keeps its bytes,
and one replica alone keeps all of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.jit import inlined, kernel, overloaded, types
from lessram.numerics.counter import merged_level
from lessram.numerics.merging import rounded_mean, slot_word, sort_few
from lessram.numerics.minifloat import rounded_quotient
from lessram.numerics.six_bits import FIRST_HIGH, LEVELS
from lessram.tables.flat import Flat, has_field, has_integer_weights
from lessram.tables.graded import Graded
from lessram.tables.halfword import Halfword, ordinal_code, packed_cell
from lessram.tables.memory import drop_file_pages, zeros
from lessram.tables.squares import Squares
from lessram.tables.table import is_table

ROOM = 1 << 20
"""Bytes for one block of the start, of all replicas and of the result."""
DROP_EVERY = 1 << 24
"""Bytes of the result after which the pages of mapped files are given back."""

_MOST = np.int64(0xFFFFFFFF)
_HALF = np.uint64(32)
_HIGH, _CODE = np.int64(FIRST_HIGH), np.uint64(LEVELS - 1)

CellTable = Flat | Squares | Halfword | Graded


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


# Whole tables ---------------------------------------------------------------------------------------------------------


def merged_cells(start: CellTable, replicas: Sequence[CellTable], rule: Merge, grid: Any = None) -> CellTable:
    """The merged table, in memory of its own; `grid` is that of weights gamma or of halfwords."""
    cells = zeros(len(start.cells), start.cells.dtype)
    block = rows_at_once(len(replicas), cells.itemsize)
    room = np.zeros((len(replicas) + 2, block), cells.dtype)
    for first, last in pieces(len(cells), block):
        part = room[:, : last - first]
        part[0] = part[1] = start.cells[first:last]
        for row, replica in zip(part[2:], replicas, strict=True):
            row[:] = replica.cells[first:last]
        merge_cells(grid, rule, part[0], part[2:], np.uint64(first), part[1])
        cells[first:last] = part[1]
        if last * cells.itemsize // DROP_EVERY > first * cells.itemsize // DROP_EVERY:
            drop_file_pages(start.cells, *(replica.cells for replica in replicas))
    return start._replace(cells=cells)


def rows_at_once(replicas: int, cell_bytes: int) -> int:
    return max(64, ROOM // cell_bytes // (replicas + 2))


def pieces(count: int, size: int) -> Iterator[tuple[int, int]]:
    """0 to count in pieces of a size."""
    return ((first, min(count, first + size)) for first in range(0, count, size))


@kernel
def merge_cells(grid, rule, start, replicas, first, out):
    """Merge one block of cells whose first slot is `first`; `out` begins as a copy of `start`."""
    for j in range(start.shape[0]):
        if is_moved(start, replicas, j):
            merge_cell(grid, rule, start, replicas, j, slot_word(rule.key, first + np.uint64(j)), out)


# One slot -------------------------------------------------------------------------------------------------------------


def differs(start: Any, replicas: Any, k: Any, j: Any) -> Any:
    """Whether replica k has changed slot j."""
    raise NotImplementedError("differs() is for kernels")


@overloaded(differs)
def _differs(start, replicas, k, j):
    if isinstance(start.dtype, types.Integer):
        return lambda start, replicas, k, j: start[j] != replicas[k, j]
    if has_field(start, "level"):
        return lambda start, replicas, k, j: (
            start[j].weight != replicas[k, j].weight or start[j].level != replicas[k, j].level
        )
    if has_field(start, "count"):
        return lambda start, replicas, k, j: (
            start[j].weight != replicas[k, j].weight or start[j].count != replicas[k, j].count
        )
    if has_field(start, "sum"):
        return lambda start, replicas, k, j: (
            start[j].weight != replicas[k, j].weight or start[j].sum != replicas[k, j].sum
        )
    return lambda start, replicas, k, j: start[j].weight != replicas[k, j].weight


@inlined
def is_moved(start, replicas, j):
    """Whether any replica has changed slot j."""
    for k in range(replicas.shape[0]):  # noqa: SIM110 (kernels have no generators)
        if differs(start, replicas, k, j):
            return True
    return False


def merge_cell(grid: Any, rule: Any, start: Any, replicas: Any, j: Any, word: Any, out: Any) -> None:
    """Merge one slot that some replica has changed."""
    raise NotImplementedError("merge_cell() is for kernels")


@overloaded(merge_cell)
def _merge_cell(grid, rule, start, replicas, j, word, out):
    if is_table(grid, Points):

        def merge_graded(grid, rule, start, replicas, j, word, out):
            merge_state(rule, start, replicas, j, word, out)
            # The grid of the merged level, the finest of all, has everybody's weight as a gridpoint.
            points = grid.points[out[j].level]
            total, count = 0, 0
            for k in range(replicas.shape[0]):
                if rule.everyone or differs(start, replicas, k, j):
                    total += np.int64(np.float64(replicas[k, j].weight) * points)
                    count += 1
            mean = rounded_mean(total, count, np.uint32(word >> _HALF))
            out[j].weight = np.float32(np.float64(mean) / points)

        return merge_graded
    if is_table(grid, Halves):
        return lambda grid, rule, start, replicas, j, word, out: merge_halfword(
            grid, rule, start, replicas, j, word, out
        )

    def merge_record(grid, rule, start, replicas, j, word, out):
        merge_state(rule, start, replicas, j, word, out)
        merge_weight(rule, start, replicas, j, word, out)

    return merge_record


@inlined
def merge_halfword(grid, rule, start, replicas, j, word, out):
    total, count = 0, 0
    before = step_of(start[j])
    for k in range(replicas.shape[0]):
        cell = replicas[k, j]
        rule.levels[k] = step_of(cell)
        rule.behind[k] += np.int64(rule.levels[k] < before)
        if rule.everyone or cell != start[j]:
            total += np.int64(grid.units[ordinal_code(np.uint64(cell))])
            count += 1
    sort_few(rule.levels, replicas.shape[0])
    step = merged_level(rule.ladder, before, rule.levels, np.uint32(word))
    level = step if step < _HIGH else step + step - _HIGH
    ordinal = rounded_quotient(total, count, np.uint32(word >> _HALF), step >= _HIGH)
    out[j] = np.uint16(packed_cell(ordinal, level))


@inlined
def step_of(cell):
    """The level of a halfword as a place on the ladder of those that exist: 0 to 31, then 32, 34 .. 62."""
    level = np.int64(np.uint64(cell) & _CODE)
    return np.uint8(level if level < _HIGH else (level + _HIGH) >> np.int64(1))


def merge_weight(rule: Any, start: Any, replicas: Any, j: Any, word: Any, out: Any) -> None:
    """The mean weight of one slot."""
    raise NotImplementedError("merge_weight() is for kernels")


@overloaded(merge_weight)
def _merge_weight(rule, start, replicas, j, word, out):
    if has_integer_weights(start):

        def merge_units(rule, start, replicas, j, word, out):
            total, count = total_of(rule, start, replicas, j)
            out[j].weight = rounded_mean(total, count, np.uint32(word >> _HALF))

        return merge_units

    def merge_floats(rule, start, replicas, j, word, out):
        count = 0
        for k in range(replicas.shape[0]):
            if rule.everyone or differs(start, replicas, k, j):
                rule.numbers[count] = np.float64(replicas[k, j].weight)
                count += 1
        sort_few(rule.numbers, count)
        total = rule.numbers[0]
        for k in range(1, count):
            total += rule.numbers[k]
        out[j].weight = np.float32(total / np.float64(count))

    return merge_floats


@inlined
def total_of(rule, start, replicas, j):
    """The sum of the weights that have a say, and their number; integers."""
    total, count = 0, 0
    for k in range(replicas.shape[0]):
        if rule.everyone or differs(start, replicas, k, j):
            total += np.int64(replicas[k, j].weight)
            count += 1
    return total, count


def merge_state(rule: Any, start: Any, replicas: Any, j: Any, word: Any, out: Any) -> None:
    """What the replicas of one slot have counted since the start, added to it."""
    raise NotImplementedError("merge_state() is for kernels")


@overloaded(merge_state)
def _merge_state(rule, start, replicas, j, word, out):
    if has_field(start, "level"):

        def merge_levels(rule, start, replicas, j, word, out):
            for k in range(replicas.shape[0]):
                rule.levels[k] = replicas[k, j].level
                rule.behind[k] += np.int64(rule.levels[k] < start[j].level)
            sort_few(rule.levels, replicas.shape[0])
            out[j].level = np.uint8(merged_level(rule.ladder, start[j].level, rule.levels, np.uint32(word)))

        return merge_levels
    if has_field(start, "count"):

        def merge_counts(rule, start, replicas, j, word, out):
            total = np.int64(start[j].count)
            for k in range(replicas.shape[0]):
                added = np.int64(replicas[k, j].count) - np.int64(start[j].count)
                rule.behind[k] += np.int64(added < 0)
                total += added
            out[j].count = np.uint32(min(total, _MOST))

        return merge_counts
    if has_field(start, "sum"):

        def merge_sums(rule, start, replicas, j, word, out):
            for k in range(replicas.shape[0]):
                rule.numbers[k] = np.float64(replicas[k, j].sum)
                rule.behind[k] += np.int64(replicas[k, j].sum < start[j].sum)
            sort_few(rule.numbers, replicas.shape[0])
            total = rule.numbers[0]
            for k in range(1, replicas.shape[0]):
                total += rule.numbers[k] - np.float64(start[j].sum)
            out[j].sum = np.float32(total)

        return merge_sums
    return lambda rule, start, replicas, j, word, out: None  # one rate for all: there is nothing to count
