"""Adaptive tables outside kernels: made, saved, looked into, recoded, and turned into flat ones.

A file holds the table as it lies in memory: lines of codes, the pool up to its top, how the pool stands, the codebook.
So saving copies nothing, prediction runs on the mapped file, and going on from a file is going on from the same state.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lessram.errors import SpecError
from lessram.jit import kernel
from lessram.numerics.random import rounding_bits, row_key, shared_word, uniform, word
from lessram.tables.adaptive import Adaptive, cell_of, cell_to_read
from lessram.tables.blocks import BLOCK, FIRST_SLOT, LINE, WORDS, blocks_for, place_of, pointer_of, promoted_in
from lessram.tables.book import CELL, index_of, is_inside, rounded_code
from lessram.tables.flat import Flat
from lessram.tables.memory import enlarge_pages, release, zeros
from lessram.tables.slabs import (
    FREE,
    HIGHEST,
    SAVED,
    SLOTS,
    START,
    STATE,
    TOP,
    capacity,
    compact,
    give_back,
    largest_pool,
    promote,
    slab_of,
)

LARGEST_SLOTS = 4_000_000_000
"""Cells are found by 32-bit pointers."""

PAGE_OF_LINES = 64
SMALLEST_PART = 182 * PAGE_OF_LINES
"""Blocks that become flat at a time: two megabytes of cells, and whole pages of codes;"""
MOST_PARTS = 64
"""more in large tables, since slabs are pushed together after each part."""

_ZERO = np.uint64(0)


def fresh(slots: int, book: NDArray[np.void]) -> Adaptive:
    """A table of coordinates never seen, with a codebook as cells (tables/book.py)."""
    if slots > LARGEST_SLOTS:
        raise SpecError(f"slots must be at most {LARGEST_SLOTS} with adaptive weights, got {slots}")
    words = _lines(blocks_for(slots))
    cells = zeros(largest_pool(slots), CELL)
    cells[:START] = book
    pool = np.zeros(STATE, np.int64)
    pool[SLOTS] = slots
    pool[[TOP, HIGHEST]] = START
    return Adaptive(words.view(np.uint8), words, cells, pool)


def put_book(table: Adaptive, book: NDArray[np.void]) -> None:
    """Give a table that has learned nothing another codebook."""
    table.cells[:START] = book


def _lines(blocks: int) -> NDArray[np.uint32]:
    """Zeroed 32-bit words of so many lines, which begin where a cache line begins."""
    spare = zeros(WORDS * (blocks + 1), np.dtype(np.uint32))
    skipped = -spare.ctypes.data % LINE // 4
    return spare[skipped : skipped + WORDS * blocks]


def slots(table: Adaptive) -> int:
    return int(table.pool[SLOTS])


def nbytes(table: Adaptive) -> int:
    """Bytes that were really touched: the pool counts as far as it ever reached."""
    return table.codes.nbytes + int(table.pool[HIGHEST]) * CELL.itemsize


def tensors(table: Adaptive) -> dict[str, NDArray[Any]]:
    """The table as the tensors of a file, without copying."""
    top = int(table.pool[TOP])
    return {
        "blocks": table.pointers.reshape(-1, WORDS),
        "pool": table.pool[:SAVED],
        "cells": table.cells[:top].view(np.uint8).reshape(top, CELL.itemsize),
    }


def from_tensors(stored: dict[str, NDArray[Any]], slots: int) -> Adaptive:
    """The table behind such tensors, which are taken out of `stored`. Raises KeyError or ValueError."""
    words, pool, cells = (stored.pop(name) for name in ("blocks", "pool", "cells"))
    for name, tensor, shape in (("blocks", words, (blocks_for(slots), WORDS)), ("pool", pool, (SAVED,))):
        if tensor.shape != shape:
            raise ValueError(f"{name} of shape {tensor.shape}, expected {shape}")
    top = int(pool[TOP])
    if pool[SLOTS] != slots:
        raise ValueError(f"a pool for {pool[SLOTS]} slots, expected {slots}")
    if not START <= top <= largest_pool(slots) or cells.shape != (top, CELL.itemsize):
        raise ValueError(f"cells of shape {cells.shape}, expected {(top, CELL.itemsize)}")
    words, cells = words.reshape(-1), cells.reshape(-1).view(CELL)
    index_of(cells[:START])
    state = np.concatenate([pool, np.array([top])])
    return Adaptive(words.view(np.uint8), words, cells, state)


def copied(table: Adaptive) -> Adaptive:
    """The same table in memory of its own, with room to grow."""
    words = _lines(len(table.codes) // LINE)
    words[:] = table.pointers
    top = int(table.pool[TOP])
    cells = zeros(largest_pool(int(table.pool[SLOTS])), CELL)
    cells[:top] = table.cells[:top]
    pool = table.pool.copy()
    pool[HIGHEST] = top
    return Adaptive(words.view(np.uint8), words, cells, pool)


def packed(table: Adaptive) -> dict[str, NDArray[Any]]:
    """What a pickle holds of a table: no more than a file."""
    return tensors(table)


def unpacked(stored: dict[str, NDArray[Any]]) -> Adaptive:
    return copied(from_tensors(dict(stored), int(stored["pool"][SLOTS])))


# Looking into a table -------------------------------------------------------------------------------------------------


def weights(table: Adaptive, start: int, stop: int | None) -> NDArray[np.int16]:
    """The weights of slots start to stop, in units of the grid."""
    first, last = _range(table, start, stop)
    out = np.empty(last - first, np.int16)
    read_weights(table, first, out)
    return out


def codes(table: Adaptive, start: int, stop: int | None) -> NDArray[np.uint8]:
    """The codes of slots start to stop; 0 for slots never seen."""
    first, last = _range(table, start, stop)
    lines = table.codes.reshape(-1, LINE)[first // BLOCK : blocks_for(last)]
    skipped = first % BLOCK
    return lines[:, :BLOCK].reshape(-1)[skipped : skipped + last - first]


def _range(table: Adaptive, start: int, stop: int | None) -> tuple[int, int]:
    first, last, _ = slice(start, stop).indices(int(table.pool[SLOTS]))
    return first, max(first, last)


@kernel
def read_weights(table, first, out):
    for k in range(np.uint64(out.shape[0])):
        out[k] = table.cells[cell_to_read(table, place_of(np.uint64(first) + k))].weight


def cells_at(table: Adaptive, slots: NDArray[np.integer]) -> NDArray[np.void]:
    """Weight and level of these slots, in any order, as cells. An IndexError where there is no such slot."""
    wanted, out = slots.astype(np.uint64), np.empty(len(slots), CELL)
    if wanted.max(initial=0) >= table.pool[SLOTS]:
        raise IndexError(f"slot {wanted.max()} is out of bounds for a table of {table.pool[SLOTS]} slots")
    gather(table, wanted, out)
    return out


@kernel
def gather(table, slots, out):
    for k in range(np.uint64(out.shape[0])):
        cell = cell_to_read(table, place_of(slots[k]))
        out[k].weight = table.cells[cell].weight
        out[k].level = table.cells[cell].level


def put_weights(table: Adaptive, slots: NDArray[np.integer], weights: NDArray[Any]) -> None:
    """Set weights, given in units of the grid: each gets a cell, where any value fits; counters stay as they are."""
    assign(table, slots.astype(np.uint64), weights.astype(np.int16))


@kernel
def assign(table, slots, weights):
    for k in range(np.uint64(slots.shape[0])):
        place = place_of(slots[k])
        cell = cell_of(table, place)
        if cell < np.uint64(START):
            promote(table.codes, table.pointers, table.cells, table.pool, place, weights[k], table.cells[cell].level)
        else:
            table.cells[cell].weight = weights[k]


def parts(table: Adaptive) -> dict[str, int]:
    """Bytes by what they are for: codes, pointers, cells in use, room that slabs keep for more, free slabs."""
    blocks = len(table.codes) // LINE
    promoted = sum(
        _promoted(table, start, start + (BLOCK << 14)) for start in range(0, int(table.pool[SLOTS]), BLOCK << 14)
    )
    live = int(table.pool[TOP] - table.pool[FREE]) - START
    return {
        "codes": blocks * BLOCK,
        "pointers": blocks * 4,
        "cells": promoted * CELL.itemsize,
        "spare": (live - promoted) * CELL.itemsize,
        "garbage": int(table.pool[HIGHEST] - START - live) * CELL.itemsize,
        "codebook": START * CELL.itemsize,
    }


# Another book ---------------------------------------------------------------------------------------------------------


def recoded(table: Adaptive, book: NDArray[np.void], seed: np.uint64) -> None:
    """Put another book under a table: values go, unbiased, to the lists of their levels, or are promoted."""
    recode(table, book, index_of(book), seed)
    table.cells[:START] = book


@kernel
def recode(table, book, index, seed):
    """Round every coded value to the new book; the random words of block b are those of a row of its own."""
    for block in range(np.uint64(table.codes.shape[0] // LINE)):
        key = row_key(seed, ~block)
        shared = shared_word(key)
        for k in range(np.uint64(BLOCK)):
            place = block * np.uint64(LINE) + k
            code = np.uint64(table.codes[place])
            if code == _ZERO or code >= np.uint64(FIRST_SLOT):
                continue
            level, weight = table.cells[code].level, table.cells[code].weight
            value = np.float64(weight)
            if is_inside(index, level, value):
                chance = np.float64(uniform(rounding_bits(word(np.uint32(k), key), shared)))
                table.codes[place] = rounded_code(book, index, level, value, chance)
            else:
                promote(table.codes, table.pointers, table.cells, table.pool, place, weight, level)


# Dense data -----------------------------------------------------------------------------------------------------------


def outgrown(table: Adaptive) -> bool:
    """Whether the flat table, one cell a slot, would be smaller by now."""
    return table.codes.nbytes + int(table.pool[TOP]) * CELL.itemsize > int(table.pool[SLOTS]) * CELL.itemsize


def flattened(table: Adaptive) -> Flat:
    """The same coordinates as a flat table, which grows as this one shrinks; nothing is left of this one.

    Blocks go a part at a time: their cells are copied, then the remaining slabs are pushed together, and the memory of
    the codes and of the pool's end is given back. The part with the most promoted coordinates, which gives back more
    than it takes, goes first. So there is never more than before or after, and one part.
    """
    slots, blocks = int(table.pool[SLOTS]), len(table.codes) // LINE
    flat = zeros(BLOCK * blocks, CELL, small_pages=True)  # huge ones would be taken whole for a part's first cell
    part = max(SMALLEST_PART, blocks // MOST_PARTS // PAGE_OF_LINES * PAGE_OF_LINES)
    starts = range(0, blocks, part)
    reached = int(table.pool[HIGHEST])
    for start in sorted(starts, key=lambda start: -_promoted(table, start * BLOCK, (start + part) * BLOCK)):
        stop = min(blocks, start + part)
        take_out(table, np.uint64(start), np.uint64(stop), flat)
        compact(table.codes, table.pointers, table.cells, table.pool)
        release(table.codes, LINE * start, LINE * stop)
        release(table.cells, CELL.itemsize * int(table.pool[TOP]), CELL.itemsize * reached)
        reached = int(table.pool[TOP])
    enlarge_pages(flat)
    return Flat(flat[:slots])


def _promoted(table: Adaptive, start: int, stop: int) -> int:
    return int(np.count_nonzero(codes(table, start, stop) >= FIRST_SLOT))


@kernel
def take_out(table, start, stop, flat):
    """Copy the coordinates of blocks start to stop to their cells of the flat table, and give their slabs back."""
    for block in range(start, stop):
        used = promoted_in(table.codes, block)
        for k in range(np.uint64(BLOCK)):
            cell = cell_of(table, block * np.uint64(LINE) + k)
            home = block * np.uint64(BLOCK) + k
            flat[home].weight = table.cells[cell].weight
            flat[home].level = table.cells[cell].level
        if used != _ZERO:
            give_back(table.cells, table.pool, slab_of(table.pointers, block), capacity(used))
            table.pointers[pointer_of(block)] = np.uint32(0)
