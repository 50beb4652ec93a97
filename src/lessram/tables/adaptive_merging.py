"""Merging of adaptive tables: states of a byte where one is enough, cells where it is not (tables/merging.py).

A coordinate of a replica is a weight in units of the grid and a level, wherever it is held. Counts add up to a level,
weights have their mean, and then it is as after any step (tables/adaptive.py): rounded without bias to one of the two
values around it in the level's list, or promoted if there is no list or it ends before. A promoted one stays promoted.

The result is laid anew, slabs in the order of their blocks and cells in the order of their slots, without spare slabs:
its bytes do not depend on how the replicas have grown. Where one of them has become flat, all become one flat table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.jit import inlined, kernel
from lessram.numerics.merging import chosen, rounded_mean, slot_word
from lessram.tables.adaptive import Adaptive, cell_of
from lessram.tables.adaptive_store import flattened, fresh, outgrown
from lessram.tables.blocks import BLOCK, FIRST_SLOT, LINE, place_of
from lessram.tables.book import CELL, code_below, index_of, is_inside
from lessram.tables.flat import Flat
from lessram.tables.memory import drop_file_pages, zeros
from lessram.tables.merging import DROP_EVERY, Merge, is_moved, merge_cells, merge_state, pieces, rows_at_once, total_of
from lessram.tables.slabs import SLOTS, START, capacity, point_to, take

PROMOTED = np.uint8(FIRST_SLOT)
"""The code of a coordinate that has a cell, before it is known which."""

_HALF = np.uint64(32)


class Block(NamedTuple):
    """Some slots of a start, of the result, and of all replicas, taken out of their tables."""

    start: NDArray[np.void]
    out: NDArray[np.void]
    replicas: NDArray[np.void]
    codes: NDArray[np.uint8]
    """Of the start, then of the result."""


def merged_adaptive(start: Adaptive | Flat, replicas: Sequence[Adaptive | Flat], rule: Merge) -> Adaptive | Flat:
    """The merged table, in memory of its own; all that are not flat have one codebook."""
    tables = (start, *replicas)
    books = [table.cells[:START] for table in tables if isinstance(table, Adaptive)]
    slots = next(int(table.pool[SLOTS]) for table in tables if isinstance(table, Adaptive))
    flat = len(books) < len(tables)
    result: Adaptive | Flat = Flat(zeros(slots, CELL)) if flat else fresh(slots, books[-1])
    lists = index_of(books[-1][:FIRST_SLOT])
    size = -(-rows_at_once(len(replicas), CELL.itemsize) // BLOCK) * BLOCK
    room = np.zeros((len(replicas) + 2, size), CELL)
    codes = np.zeros(size, np.uint8)
    for first, last in pieces(slots, size):
        part, seen = room[:, : last - first], codes[: last - first]
        seen[:] = 0
        for row, table in zip((part[0], *part[2:]), tables, strict=True):
            read_cells(table, first, row, seen)
        part[1] = part[0]
        block = Block(part[0], part[1], part[2:], seen)
        if isinstance(result, Flat):
            merge_cells(None, rule, block.start, block.replicas, np.uint64(first), block.out)
            result.cells[first:last] = block.out
        else:
            merge_codes(result.cells, lists, rule, block, np.uint64(first))
            lay(result, np.uint64(first), block)
        if last // DROP_EVERY > first // DROP_EVERY:
            drop_file_pages(*(table.cells for table in tables))
    return flattened(result) if isinstance(result, Adaptive) and outgrown(result) else result


def read_cells(table: Adaptive | Flat, first: int, out: NDArray[np.void], codes: NDArray[np.uint8]) -> None:
    """What the slots from `first` on stand at. A code replaces a smaller one in `codes`."""
    if isinstance(table, Flat):
        out[:] = table.cells[first : first + len(out)]
    else:
        copy_cells(table, np.uint64(first), out, codes)


@kernel
def copy_cells(table, first, out, codes):
    for k in range(np.uint64(out.shape[0])):
        place = place_of(first + k)
        cell = cell_of(table, place)
        out[k].weight = table.cells[cell].weight
        out[k].level = table.cells[cell].level
        codes[k] = max(codes[k], table.codes[place])


@kernel
def merge_codes(book, lists, rule, block, first):
    """Merge one block. Its codes are the largest of all: that of all where nothing moved, and of a promoted slot one
    that says so. They become those of the result, but for which cell a promoted slot has."""
    start, replicas, out, codes = block.start, block.replicas, block.out, block.codes
    for j in range(start.shape[0]):
        if not is_moved(start, replicas, j):
            continue
        word = slot_word(rule.key, first + np.uint64(j))
        bits = np.uint32(word >> _HALF)
        merge_state(rule, start, replicas, j, word, out)
        total, count = total_of(rule, start, replicas, j)
        level, value = np.int64(out[j].level), np.float64(total) / np.float64(count)
        if codes[j] < PROMOTED and level < lists.low.shape[0] and is_inside(lists, level, value):
            codes[j] = mean_code(book, code_below(lists, level, value), total, count, bits)
        else:
            codes[j] = PROMOTED
            out[j].weight = rounded_mean(total, count, bits)


@inlined
def mean_code(book, below, total, count, bits):
    """total / count as the code below it or the next one, unbiased over the 32 random `bits`."""
    a, b = np.int64(book[below].weight), np.int64(book[below + np.uint64(1)].weight)
    return np.uint8(below + np.uint64(chosen(total - count * a, count * (b - a), bits)))


@kernel
def lay(table, first, block):
    """Write whole blocks of a fresh table, the first of which begins with slot `first`."""
    codes, cells = block.codes, block.out
    length = np.uint64(codes.shape[0])
    for begin in range(np.uint64(0), length, np.uint64(BLOCK)):
        end = min(begin + np.uint64(BLOCK), length)
        used = np.uint64(0)
        for j in range(begin, end):
            used += np.uint64(codes[j] >= PROMOTED)
        line = (first + begin) // np.uint64(BLOCK)
        cell = np.uint64(0)
        if used != np.uint64(0):
            cell = take(table.cells, table.pool, capacity(used))
            point_to(table.pointers, line, cell)
        offset = cell
        for j in range(begin, end):
            code = codes[j]
            if code >= PROMOTED:
                table.cells[cell].weight = cells[j].weight
                table.cells[cell].level = cells[j].level
                code = np.uint8(np.uint64(FIRST_SLOT) + (cell - offset))
                cell += np.uint64(1)
            table.codes[line * np.uint64(LINE) + (j - begin)] = code
