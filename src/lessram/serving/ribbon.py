"""A ribbon of bits that answers for codewords nobody stored.

Item i has a pseudo-random polynomial c_i of 108 bits and a start column s_i. Bit j of its codeword is a parity of
the ribbon's bits x behind that column, always under the same mask, shifted by j:

    bit_j = XOR over k of  c_i[107 - k] AND x[s_i + j + k]

All bits of a codeword are therefore neighbours in one carry-less product of c_i and x: one unaligned load of 16
bytes and three multiplications give 14 of them, whatever the codeword's length, and nothing is decoded serially.

Columns. Items come in order, in superblocks of about a thousand code bits, 2^k superblocks a segment. A segment has
its first column (`bases`) and the offsets of its superblocks' first columns and of its end (`anchors`, one more
than superblocks). Inside a superblock starts are interpolated: an item at the fraction f of it starts at column

    base + anchor_t + (f * (anchor_{t+1} - anchor_t) >> 32),    f in units of 2^-32
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.jit import inlined
from lessram.numerics.carryless import carryless_high, carryless_low
from lessram.numerics.machine import prefetch
from lessram.numerics.memory_words import load_word
from lessram.numerics.random import GOLDEN

WIDTH = 108
"""Bits of an item's polynomial. Its highest is set: an item's first column is always among its own."""
READABLE = 128 - 7 - (WIDTH - 1)
"""Bits of a codeword that one load of 16 bytes, on any bit of its first byte, gives."""
LONGEST = 64
"""Bits of the longest codeword."""
PADDING = 24
"""Bytes behind the last column, so that loads stay inside, those of long codewords too."""

_HIGH_BITS = np.uint64((1 << (WIDTH - 64)) - 1)
_TOP = np.uint64(1 << (WIDTH - 65))
_FIRST_PARITY = np.uint64(WIDTH - 1 - 64)
_ONE, _SEVEN, _EIGHT = np.uint64(1), np.uint64(7), np.uint64(8)


class Ribbon(NamedTuple):
    """The bits and the directory of their columns."""

    bits: NDArray[np.uint8]
    bases: NDArray[np.uint64]
    """The first column of each segment."""
    anchors: NDArray[np.uint16]
    """Of each segment in turn, the first columns of its superblocks and its end."""
    segment_shift: np.uint64
    """Superblocks of a segment: 2^segment_shift."""
    last: np.uint64
    """The last column that can be read from: a damaged directory gives wrong bits, and never leaves the ribbon."""


@inlined
def polynomial(identity):
    """The pseudo-random polynomial of an item: its low 64 bits, its high 44."""
    low = identity * GOLDEN
    low = (low ^ (low >> np.uint64(32))) * np.uint64(0xBF58476D1CE4E5B9)
    low ^= low >> np.uint64(29)
    high = low * np.uint64(0x94D049BB133111EB)
    high ^= high >> np.uint64(31)
    return low, (high & _HIGH_BITS) | _TOP


@inlined
def start_column(ribbon, superblock, fraction):
    """The first column of the item at this fraction (of 2^32) of a superblock."""
    segment = superblock >> ribbon.segment_shift
    place = superblock + segment  # every segment before has one anchor more than superblocks
    first = np.uint64(ribbon.anchors[place])
    width = np.uint64(ribbon.anchors[place + _ONE]) - first
    return min(ribbon.bases[segment] + first + ((fraction * width) >> np.uint64(32)), ribbon.last)


@inlined
def ask_for(ribbon, column):
    """Prefetch what `codeword_bits` will load."""
    byte = column >> np.uint64(3)
    prefetch(ribbon.bits, byte)
    prefetch(ribbon.bits, byte + np.uint64(15))


@inlined
def codeword_bits(bits, column, low, high):
    """The next `READABLE` bits of a codeword from this column on, and garbage above them."""
    byte = column >> np.uint64(3)
    x, y = load_word(bits, byte), load_word(bits, byte + _EIGHT)
    product = carryless_high(x, low) ^ carryless_low(x, high) ^ carryless_low(y, low)
    return product >> (_FIRST_PARITY + (column & _SEVEN))


@inlined
def codeword(bits, column, low, high):
    """The first 64 bits of a codeword."""
    word = np.uint64(0)
    for part in range(np.uint64(-(-LONGEST // READABLE))):
        shift = part * np.uint64(READABLE)
        word |= (codeword_bits(bits, column + shift, low, high) & np.uint64((1 << READABLE) - 1)) << shift
    return word
