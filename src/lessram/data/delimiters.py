"""Delimiters one behind the other: where each stands and which character it is, for a window of text at a time.

Marks (data/scanning.py) say of every byte whether it delimits words. Whoever walks along marks must know where one word
ends before it can look for the next. From a list, eight words are taken at once, and the processor begins with the next
eight before it is done with these.

Needs what `AVAILABLE` of data/byte_lanes.py tells.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from lessram.data.byte_lanes import BITS, BYTES, I16, call, splat
from lessram.data.scanning import LANES, mask_of
from lessram.jit import inlined, intrinsic, types
from lessram.numerics.memory_words import bits_set, byte_address, trailing_zeros

WINDOW = 1 << 14
"""Bytes of text whose delimiters are listed together: few enough for the list to stay in L1."""
AROUND = LANES
"""Places of the lists behind the last delimiter that are read or written, too."""
READ_BEFORE = 8
"""Bytes of text before a delimiter that may be looked at: whoever does must not begin before so many."""

_START, _STOP, _COUNT, _NEXT = range(4)
_ONE, _BLOCK = np.uint64(1), np.uint64(LANES)
_newlines = mask_of(b"\n")


class Delimiters(NamedTuple):
    """The delimiters of a window; number 0 is what stands before the first word. For one thread at a time."""

    places: NDArray[np.uint16]
    """Where they stand, from the window's start on."""
    kinds: NDArray[np.uint8]
    """Which characters they are."""
    window: NDArray[np.uint64]
    """Where the window starts and stops, how many delimiters there are, and which was asked for last."""

    @classmethod
    def new(cls) -> Delimiters:
        room = WINDOW + 2 * AROUND
        return cls(np.zeros(room, np.uint16), np.zeros(room, np.uint8), np.zeros(4, np.uint64))


@inlined
def forget(delimiters):
    """Of a new text nothing is listed."""
    delimiters.window[_STOP] = np.uint64(0)


@inlined
def number_of_next(delimiters, text, marks, p, end):
    """The number of the first delimiter from `p` on, where a word begins that is not the text's first.

    Must be asked for rising places of a text, which ends with the delimiter at `end`.
    """
    window = delimiters.window
    if p >= window[_STOP]:
        return next_window(delimiters, text, marks, p, end)
    number = window[_NEXT]
    while number < window[_COUNT] and place_of(delimiters, number) < p:
        number += _ONE
    return number


@inlined
def remember(delimiters, number):
    """The next question will be about this delimiter or a later one."""
    delimiters.window[_NEXT] = number


@inlined
def place_of(delimiters, number):
    """Where in the text a delimiter stands."""
    return delimiters.window[_START] + np.uint64(delimiters.places[number])


@inlined
def start_of(delimiters):
    """Where in the text places are counted from."""
    return delimiters.window[_START]


@inlined
def how_many_ahead(delimiters, number):
    """How many delimiters there are from this one on, and whether the last of them ends the line.

    Up to 64, and within the line and the window.
    """
    newline = trailing_zeros(_newlines(delimiters.kinds, number))
    stop = min(newline + _ONE, delimiters.window[_COUNT] - number, _BLOCK)
    return stop, newline < stop


@inlined
def goes_on(delimiters, end):
    """Whether the text goes on behind the window."""
    return delimiters.window[_STOP] <= end


@inlined
def next_window(delimiters, text, marks, p, end):
    """List the delimiters from `p` on, where a word begins; returns the number of the first."""
    first = (p - _ONE) // _BLOCK
    stop = min(first + np.uint64(WINDOW // LANES), end // _BLOCK + _ONE)
    before = p - _ONE - first * _BLOCK
    delimiters.places[0] = np.uint16(before)
    number = _ONE
    for block in range(first, stop):
        bits = marks[block]
        if block == first:
            bits &= (~np.uint64(0) << before) << _ONE
        if block == end // _BLOCK:
            bits &= (np.uint64(2) << (end % _BLOCK)) - _ONE
        list_block(text, block * _BLOCK, bits, delimiters.places, delimiters.kinds, number, (block - first) * _BLOCK)
        number += bits_set(bits)
    for behind in range(np.uint64(AROUND)):  # who takes eight words at once may look at these
        delimiters.places[number + behind] = np.uint16(before + np.uint64(READ_BEFORE))
        delimiters.kinds[number + behind] = np.uint8(0)
    window = delimiters.window
    window[_START], window[_STOP], window[_COUNT] = first * _BLOCK, stop * _BLOCK, number
    return _ONE


@intrinsic
def list_block(typingctx, text, at, bits, places, kinds, number, offset):  # type: ignore[no-untyped-def]
    """List the bytes of text[at : at + 64] whose bits are set, from `number` on; their places begin with `offset`.

    Overwrites the next 64 of both lists.
    """
    u = types.uint64
    signature = types.void(text, u, u, places, kinds, u, u)

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        text, at, bits, places, kinds, number, offset = args

        def pointer(argument: int, array: ir.Value, index: ir.Value, kind: ir.Type) -> ir.Value:
            data = byte_address(context, builder, signature.args[argument], array, index)
            return builder.bitcast(data, kind.as_pointer())

        block = builder.load(pointer(0, text, at, BYTES))
        block.align = 1
        mask, nothing = builder.bitcast(bits, BITS), ir.Constant(BYTES, [0] * LANES)
        numbers = ir.Constant(BYTES, list(range(LANES)))
        found, which = (
            call(builder, "llvm.x86.avx512.mask.compress.v64i8", BYTES, lanes, nothing, mask)
            for lanes in (numbers, block)
        )
        builder.store(which, pointer(4, kinds, number, BYTES)).align = 1
        wide = ir.VectorType(I16, LANES)
        listed = builder.add(builder.zext(found, wide), splat(builder, builder.trunc(offset, I16), LANES))
        twice = builder.shl(number, ir.Constant(number.type, 1))
        builder.store(listed, pointer(3, places, twice, wide)).align = 2
        return context.get_dummy_value()

    return signature, codegen
