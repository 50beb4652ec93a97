"""Building a ribbon: linear equations over GF(2), solved segment by segment.

Every bit of every codeword is one equation in at most 108 neighbouring columns. Equations come in the order of
their first columns, so elimination works on a band: each is reduced by those that already own its leading column
until it owns a free one. One pass back from the last column to the first then gives the bits.

A superblock gets as many columns as it has equations, less a few (`OVERHANG`) that find room in the columns of the
next one. When an equation finds no room, or too many did only behind the superblock, it is taken back and gets a
little more; since items far enough apart share no column, that ends. A segment is solved by itself in little
memory, and its columns are numbered by 16 bits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.jit import inlined, kernel
from lessram.numerics.carryless import parity, reverse_bits
from lessram.numerics.memory_words import trailing_zeros
from lessram.serving.ribbon import LONGEST, WIDTH, polynomial

SUPERBLOCK_BITS = 768
"""Code bits that a superblock should have."""
SEGMENT_BITS = 60_000
"""Code bits that a segment should not go beyond: its columns are numbered by 16 bits."""
OVERHANG, LAST_OVERHANG = 24, 60
"""Equations of a superblock that are left to the columns of the next; of the last, to those behind the segment."""
MOST_SPILL = 72
"""Columns behind its own that a superblock may own: the next one's first items must start there whatever happens."""
MOST_COLUMNS = 1 << 16
_TAIL = WIDTH + LONGEST
"""Columns that equations may reach behind the end of their segment's last superblock."""

CONTRADICTION, REDUNDANT = -1, -2
_FREE = np.uint8(2)
_REST = np.uint64(128 - WIDTH)


class Items(NamedTuple):
    """The items of a segment, in order."""

    identities: NDArray[np.uint64]
    """What their polynomials are made from."""
    fractions: NDArray[np.uint64]
    """Where in their superblock they stand, in units of 2^-32."""
    lengths: NDArray[np.uint8]
    codewords: NDArray[np.uint64]
    counts: NDArray[np.int64]
    """How many items each superblock has."""
    spans: NDArray[np.int64]
    """Below which fraction they stand: 2^32, less where the last superblock is not full."""


class Workspace(NamedTuple):
    """The equations that own a column: one thread builds in it, segment after segment."""

    low: NDArray[np.uint64]
    """Coefficients of the owned column and the 63 behind it."""
    high: NDArray[np.uint64]
    """Coefficients of the 64 columns behind those."""
    sides: NDArray[np.uint8]
    """Right-hand sides, 0 or 1; 2 where nobody owns the column."""
    taken: NDArray[np.int32]
    """The columns that the superblock has taken so far."""
    words: NDArray[np.uint64]
    """The solution."""

    @classmethod
    def new(cls) -> Workspace:
        columns = MOST_COLUMNS + 2 * _TAIL
        return cls(
            np.zeros(columns, np.uint64),
            np.zeros(columns, np.uint64),
            np.full(columns, _FREE),
            np.zeros(columns, np.int32),
            np.zeros(columns // 64 + 1, np.uint64),
        )


class TooLarge(Exception):
    """A segment needs more columns than 16 bits can number."""


def solve(items: Items, anchors: NDArray[np.uint16], work: Workspace) -> NDArray[np.uint64]:
    """The bits of a segment, in words; writes the first columns of its superblocks, and its end, into `anchors`."""
    work.sides.fill(_FREE)
    columns = eliminate(items, anchors, work)
    if columns < 0:
        raise TooLarge
    substitute(work, columns)
    return work.words[: (columns + 63) // 64].copy()


@kernel
def eliminate(items, anchors, work):
    """Give every superblock its columns and every equation a column of its own.

    Returns how many columns the equations reach over; -1 where 2^16 do not suffice.
    """
    start, first, reach = np.int64(0), np.int64(0), np.int64(0)
    superblocks = items.counts.shape[0]
    for t in range(superblocks):
        last = first + items.counts[t]
        wanted = np.int64(0)
        for i in range(first, last):
            wanted += np.int64(items.lengths[i])
        wanted += owned_behind(start, work)
        # The last superblock may spread over the tail, which is there anyhow.
        width = max(wanted - (LAST_OVERHANG if t == superblocks - 1 else OVERHANG), 0)
        # A last superblock that is not full uses only the first part of its columns.
        if items.spans[t] < 1 << 32:
            width = min((width << 32) // items.spans[t], MOST_COLUMNS - 1 - start)
        growth = np.int64(2)
        while start + width < MOST_COLUMNS:
            taken = place_all(items, first, last, np.uint64(start), np.uint64(width), work)
            if taken >= 0 and (t == superblocks - 1 or owned_behind(start + width, work) <= MOST_SPILL):
                reach = max(reach, reached(items, first, last, start, width))
                break
            release(taken, work)
            width += growth + (width >> 6)
            growth += 1
        if start + width >= MOST_COLUMNS:
            return np.int64(-1)
        anchors[t] = np.uint16(start)
        start += width
        first = last
    anchors[superblocks] = np.uint16(start)
    return reach


@inlined
def reached(items, first, last, start, width):
    """The column behind the last one that the equations of a superblock look at."""
    reach = np.int64(0)
    for i in range(first, last):
        if items.lengths[i]:
            column = start + ((np.int64(items.fractions[i]) * width) >> 32)
            reach = max(reach, column + np.int64(items.lengths[i]) + WIDTH - 1)
    return reach


@inlined
def owned_behind(column, work):
    """How many columns are owned from this one on."""
    owned = np.int64(0)
    for k in range(column, column + _TAIL):
        owned += np.int64(work.sides[k] != _FREE)
    return owned


@inlined
def release(taken, work):
    """Free the columns that a superblock has taken."""
    for k in range(taken):
        work.sides[work.taken[k]] = _FREE


@inlined
def place_all(items, first, last, start, width, work):
    """Give a column to every equation of a superblock: returns how many it took; -1 and none if one finds no room."""
    taken = np.int64(0)
    for i in range(first, last):
        if items.lengths[i] == 0:
            continue
        column = start + ((items.fractions[i] * width) >> np.uint64(32))
        low, high = mirrored(items.identities[i])
        for j in range(np.uint64(items.lengths[i])):
            side = np.uint8((items.codewords[i] >> j) & np.uint64(1))
            owned = place_one(column + j, low, high, side, work)
            if owned >= 0:
                work.taken[taken] = owned
                taken += 1
            elif owned == CONTRADICTION:
                release(taken, work)
                return np.int64(-1)
    return taken


@inlined
def mirrored(identity):
    """An item's polynomial as the coefficients of columns: its top bit is that of the first column."""
    low, high = polynomial(identity)
    low, high = reverse_bits(high), reverse_bits(low)
    return (low >> _REST) | (high << (np.uint64(64) - _REST)), high >> _REST


@inlined
def place_one(column, low, high, side, work):
    """Reduce an equation until it owns a free column. Returns that, or what became of an equation without any left."""
    while True:
        if low == np.uint64(0):
            if high == np.uint64(0):
                return np.int64(CONTRADICTION) if side else np.int64(REDUNDANT)
            low, high = high, np.uint64(0)
            column += np.uint64(64)
        shift = trailing_zeros(low)
        low = (low >> shift) | ((high << np.uint64(1)) << (np.uint64(63) - shift))
        high >>= shift
        column += shift
        if work.sides[column] == _FREE:
            work.low[column], work.high[column], work.sides[column] = low, high, side
            return np.int64(column)
        low ^= work.low[column]
        high ^= work.high[column]
        side ^= work.sides[column]


@kernel
def substitute(work, columns):
    """Solve from the last column to the first; columns that nobody owns are 0."""
    for k in range((columns + 63) // 64):
        work.words[k] = np.uint64(0)
    low, high = np.uint64(0), np.uint64(0)  # the bits from the column on
    for column in range(columns - 1, -1, -1):
        high = (high << np.uint64(1)) | (low >> np.uint64(63))
        low <<= np.uint64(1)
        if work.sides[column] != _FREE:
            bit = parity((low & work.low[column]) ^ (high & work.high[column])) ^ np.uint64(work.sides[column])
            low |= bit
            work.words[column >> 6] |= bit << np.uint64(column & 63)
