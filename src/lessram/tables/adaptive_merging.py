"""Merging of adaptive tables: states of a byte where one is enough, cells where it is not (tables/merging.py).

A coordinate of a replica is a weight in units of the grid and a level, wherever it is held. Counts add up to a level,
weights have their mean, and then it is as after any step (tables/adaptive.py): rounded without bias to one of the two
values around it in the level's list, or promoted if there is no list or it ends before. A promoted one stays promoted.

The result is laid anew, slabs in the order of their blocks and cells in the order of their slots, without spare slabs:
its bytes do not depend on how the replicas have grown. Where one of them has become flat, all become one flat table.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lessram.jit import inlined, kernel
from lessram.numerics.merging import chosen, rounded_mean, slot_word
from lessram.tables.adaptive import Adaptive, cell_of
from lessram.tables.adaptive_store import flattened, fresh, outgrown
from lessram.tables.blocks import BLOCK, FIRST_SLOT, LINE, place_of
from lessram.tables.book import CELL, code_below, index_of, is_inside
from lessram.tables.flat import Flat
from lessram.tables.memory import copy_into, drop_file_pages, zeros
from lessram.tables.merging import DROP_EVERY, merge_block, pieces, room_for
from lessram.tables.merging_slots import REPLICAS, RESULT, START, Merge, is_moved, merge_state, total_of
from lessram.tables.slabs import SLOTS, capacity, point_to, take
from lessram.tables.slabs import START as FIRST_CELL

PROMOTED = np.uint8(FIRST_SLOT)
"""The code of a coordinate that has a cell, before it is known which."""

_HALF = np.uint64(32)


def merged_adaptive(start: Adaptive | Flat, replicas: Sequence[Adaptive | Flat], rule: Merge) -> Adaptive | Flat:
    """The merged table, in memory of its own; all that are not flat have one codebook."""
    tables = (start, *replicas)
    some = next(table for table in reversed(tables) if isinstance(table, Adaptive))
    slots, book = int(some.pool[SLOTS]), some.cells[:FIRST_CELL]
    stays = all(isinstance(table, Adaptive) for table in tables)
    out: Adaptive | Flat = fresh(slots, book) if stays else Flat(zeros(slots, CELL))
    lists = index_of(book[:FIRST_SLOT])
    block = room_for(len(replicas), CELL)
    codes = np.zeros(block.shape[1], np.uint8)
    for first, last in pieces(slots, block):
        codes[:] = 0
        for row, table in zip((START, *range(REPLICAS, len(block))), tables, strict=True):
            read_cells(table, block[row, : last - first], codes, first)
        copy_into(block[RESULT], block[START])
        if isinstance(out, Flat):
            merge_block(None, rule, block, np.uint64(first), last - first)
            copy_into(out.cells[first:last], block[RESULT, : last - first])
        else:
            merge_codes(out.cells, lists, rule, block, codes, np.uint64(first), last - first)
            lay(out, block, codes, np.uint64(first), np.uint64(last - first))
        if first // DROP_EVERY < last // DROP_EVERY:
            drop_file_pages(*(table.cells for table in tables))
    return flattened(out) if isinstance(out, Adaptive) and outgrown(out) else out


def read_cells(table: Adaptive | Flat, row: NDArray[np.void], codes: NDArray[np.uint8], first: int) -> None:
    """What the slots from `first` on stand at. A code replaces a smaller one in `codes`."""
    if isinstance(table, Flat):
        copy_into(row, table.cells[first : first + len(row)])
    else:
        copy_cells(table, row, codes, np.uint64(first))


@kernel
def copy_cells(table, row, codes, first):
    for k in range(np.uint64(row.shape[0])):
        place = place_of(first + k)
        cell = cell_of(table, place)
        row[k].weight = table.cells[cell].weight
        row[k].level = table.cells[cell].level
        codes[k] = max(codes[k], table.codes[place])


@kernel
def merge_codes(book, lists, rule, block, codes, first, count):
    """Merge the first slots of a block, which are those of a table from `first` on.

    `codes` are the largest of all tables: the one code that all have where nothing moved, and of a slot that any has
    promoted one that says so. They become those of the result, but for which cell a promoted slot has.
    """
    for j in range(count):
        if not is_moved(block, j):
            continue
        word = slot_word(rule.key, first + np.uint64(j))
        bits = np.uint32(word >> _HALF)
        merge_state(rule, block, j, word)
        total, voters = total_of(rule, block, j)
        level, value = np.int64(block[RESULT, j].level), np.float64(total) / np.float64(voters)
        if codes[j] < PROMOTED and is_inside(lists, level, value):
            codes[j] = mean_code(book, code_below(lists, level, value), total, voters, bits)
        else:
            codes[j] = PROMOTED
            block[RESULT, j].weight = rounded_mean(total, voters, bits)


@inlined
def mean_code(book, below, total, count, bits):
    """total / count as the code below it or the next one, unbiased over the 32 random `bits`."""
    a, b = np.int64(book[below].weight), np.int64(book[below + np.uint64(1)].weight)
    return np.uint8(below + np.uint64(chosen(total - count * a, count * (b - a), bits)))


@kernel
def lay(table, block, codes, first, count):
    """Write whole blocks of a fresh table, the first of which begins with slot `first`."""
    for begin in range(np.uint64(0), count, np.uint64(BLOCK)):
        line = (first + begin) // np.uint64(BLOCK)
        end = min(begin + np.uint64(BLOCK), count)
        used = np.uint64(0)
        for j in range(begin, end):
            used += np.uint64(codes[j] >= PROMOTED)
        slab = np.uint64(0)
        if used != np.uint64(0):
            slab = take(table.cells, table.pool, capacity(used))
            point_to(table.pointers, line, slab)
        cell = slab
        for j in range(begin, end):
            code = codes[j]
            if code >= PROMOTED:
                table.cells[cell].weight = block[RESULT, j].weight
                table.cells[cell].level = block[RESULT, j].level
                code = np.uint8(np.uint64(FIRST_SLOT) + (cell - slab))
                cell += np.uint64(1)
            table.codes[line * np.uint64(LINE) + (j - begin)] = code
