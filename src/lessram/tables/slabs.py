"""Slabs: where the coefficients live that have outgrown their byte.

A coordinate's code tells its cell (tables/blocks.py). The pointer of its block is `FIRST_SLOT` less than where the
block's slab lies in the pool, 0 for none; the codebook is the pool's first cells. So

    cell of a coordinate = code + (pointer if code >= FIRST_SLOT else 0)

is its weight and level in either case, found without a key, a branch, or more than two cache lines.

Slabs hold 2 cells, then grow one by one up to 16, by 2 up to 32, by 4 up to 60. What they leave behind joins a free
list of its size, threaded through the weights of its first two cells. When free cells exceed 1/24 of the pool (and an
eighth of a cell a block), slabs are pushed together in place:

    thread    every slab's first two weights trade places with its block's pointer, so that a slab names its owner
    sweep     through the pool in order of address: slabs move down, free ones, which were marked, are passed over

All of this happens while learning, at moments that depend on the stream alone, so the bytes of a table are a function
of its stream. The pool is reserved for the worst case and never touched beyond what is used: it grows page by page.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lessram.jit import inlined, kernel
from lessram.numerics.machine import move_elements, prefetch
from lessram.tables.blocks import BLOCK, FIRST_SLOT, LINE, blocks_for, pointer_of, promoted_in

START = 256
"""Where slabs begin. The cells before are the codebook: cell c is what code c stands for."""
SIZES = BLOCK + 1
SLOTS, TOP, FREE = 0, 1, 2
HEADS = 3
"""Heads of the free lists, by size."""
SAVED = HEADS + SIZES
HIGHEST = SAVED
"""The most cells that the pool ever had: pages once touched stay resident."""
STATE = SAVED + 1

_MARK = np.uint32(0xFFFFFF00)
_AHEAD = np.uint64(16)
_ONE, _TWO, _THREE = np.uint64(1), np.uint64(2), np.uint64(3)
_LAST_OF_ONES, _LAST_OF_TWOS = np.uint64(16), np.uint64(32)


def largest_pool(slots: int) -> int:
    """Cells that a pool may ever need: all promoted, as much garbage as is let be, one slab to move.

    A share of all the pool is let be, garbage included: a pool of t cells has at most live + least + t // 24.
    """
    live, least = BLOCK * blocks_for(slots) + START, garbage_limit(0, blocks_for(slots))
    return (live + least) * 24 // 23 + 2 * BLOCK


def garbage_limit(top: Any, blocks: Any) -> Any:
    """How many cells may lie free before slabs are pushed together."""
    return top // 24 + blocks // 8 + BLOCK


@inlined
def slab_of(pointers, block):
    """Where the slab of a block lies; only for a block that has one."""
    return np.uint64(pointers[pointer_of(block)]) + np.uint64(FIRST_SLOT)


@inlined
def point_to(pointers, block, offset):
    pointers[pointer_of(block)] = np.uint32(offset - np.uint64(FIRST_SLOT))


@inlined
def capacity(used):
    """The size of the slab for this many cells."""
    if used <= _LAST_OF_ONES:
        return max(used, _TWO) if used != np.uint64(0) else used
    if used <= _LAST_OF_TWOS:
        return (used + _ONE) & ~_ONE
    return (used + _THREE) & ~_THREE


@inlined
def read_link(cells, offset):
    """The 32 bits in the weights of a slab's first two cells."""
    low, high = np.uint32(np.uint16(cells[offset].weight)), np.uint32(np.uint16(cells[offset + _ONE].weight))
    return np.uint32(low | (high << np.uint32(16)))


@inlined
def write_link(cells, offset, link):
    cells[offset].weight = np.int16(np.uint16(link))
    cells[offset + _ONE].weight = np.int16(np.uint16(link >> np.uint32(16)))


@inlined
def take(cells, pool, size):
    """A slab of this size, from its free list or from the top of the pool."""
    head = np.uint64(HEADS) + size
    offset = np.uint64(pool[head])
    if offset != np.uint64(0):
        pool[head] = np.int64(read_link(cells, offset))
        pool[FREE] -= np.int64(size)
        return offset
    offset = np.uint64(pool[TOP])
    pool[TOP] += np.int64(size)
    pool[HIGHEST] = max(pool[HIGHEST], pool[TOP])
    return offset


@inlined
def give_back(cells, pool, offset, size):
    head = np.uint64(HEADS) + size
    write_link(cells, offset, np.uint32(pool[head]))
    pool[head] = np.int64(offset)
    pool[FREE] += np.int64(size)


@kernel
def compact(codes, pointers, cells, pool):
    """Push all slabs together, in place and in order of address."""
    blocks = np.uint64(codes.shape[0] // LINE)
    for size in range(np.uint64(SIZES)):
        offset = np.uint64(pool[np.uint64(HEADS) + size])
        while offset != np.uint64(0):
            following = np.uint64(read_link(cells, offset))
            write_link(cells, offset, _MARK | np.uint32(size))
            offset = following
        pool[np.uint64(HEADS) + size] = 0
    for block in range(blocks):
        prefetch(cells, slab_of(pointers, min(block + _AHEAD, blocks - _ONE)))
        if pointers[pointer_of(block)] != np.uint32(0):
            offset = slab_of(pointers, block)
            pointers[pointer_of(block)] = read_link(cells, offset)
            write_link(cells, offset, np.uint32(block))
    source = target = np.uint64(START)
    while source < np.uint64(pool[TOP]):
        owner = read_link(cells, source)
        if owner >= _MARK:
            source += np.uint64(owner & np.uint32(0xFF))
            continue
        block = np.uint64(owner)
        size = capacity(promoted_in(codes, block))
        write_link(cells, source, pointers[pointer_of(block)])
        point_to(pointers, block, target)
        if source != target:
            move_elements(cells, source, target, size)
        source += size
        target += size
    for left in range(target, np.uint64(pool[TOP])):  # as in a table that was stopped here and gone on with
        cells[left].weight = np.int16(0)
        cells[left].level = np.uint8(0)
    pool[TOP] = np.int64(target)
    pool[FREE] = 0


@kernel
def promote(codes, pointers, cells, pool, place, weight, level):
    """Give the coordinate at `place` a cell of its own, holding this weight and level."""
    block = np.uint64(place) >> np.uint64(6)
    used = promoted_in(codes, block)
    old, new = capacity(used), capacity(used + _ONE)
    if new != old:
        if pool[FREE] > garbage_limit_of(pool[TOP], codes.shape[0] // LINE):
            compact(codes, pointers, cells, pool)
        offset = take(cells, pool, new)
        if used != np.uint64(0):
            left = slab_of(pointers, block)
            move_elements(cells, left, offset, used)
            give_back(cells, pool, left, old)
        point_to(pointers, block, offset)
    cell = slab_of(pointers, block) + used
    cells[cell].weight = np.int16(weight)
    cells[cell].level = np.uint8(level)
    codes[place] = np.uint8(np.uint64(FIRST_SLOT) + used)


garbage_limit_of = inlined(garbage_limit)
