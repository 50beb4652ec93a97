"""Text cells to tokens: words, pairs of neighbouring words, runs of characters within a word.

A word is a run of ASCII letters, digits, `_` and bytes above 127 (all other letters, in UTF-8); ASCII letters
count as small. A pair is hashed from the hashes of its words, so it costs no second look at the text. Runs of
characters are taken from a word with a mark at both ends (`cat` of 3: `<ca`, `cat`, `at>`), by
whole UTF-8 characters; a word that is shorter than the run gives itself, once.
"""

from __future__ import annotations

import numpy as np

from lessram.data.hashing import combine, hash_name
from lessram.data.scanning import mask_of
from lessram.jit import inlined, kernel
from lessram.numerics.memory_words import trailing_zeros

_ZERO, _ONE, _BLOCK = np.uint64(0), np.uint64(1), np.uint64(64)

MARGIN = 130
"""Bytes of scratch that tokens need beside those of the cell."""

_word_bytes = b"0123456789abcdefghijklmnopqrstuvwxyz_"
_SMALL = np.zeros(256, np.uint8)  # the byte as it counts in a word, 0 for those between words
_SMALL[list(_word_bytes)] = list(_word_bytes)
_SMALL[ord("A") : ord("Z") + 1] = range(ord("a"), ord("z") + 1)
_SMALL[128:] = range(128, 256)

_gaps = mask_of(b"\0")


@inlined
def _next(scratch, p, stop):
    """The next character, in UTF-8, behind the one at `p`; at most `stop`."""
    p += _ONE
    while p < stop and scratch[p] & np.uint8(0xC0) == np.uint8(0x80):
        p += _ONE
    return p


@inlined
def _grams(scratch, start, stop, layout, seed, slots, k):
    """Runs of characters in `scratch[start:stop]`, a word with its marks; as `tokenise`."""
    room = np.uint64(slots.size)
    for size in range(layout.least, layout.most + _ONE):
        end, count = start, _ZERO
        while count < size and end < stop:
            end = _next(scratch, end, stop)
            count += _ONE
        first = start
        while True:
            if k >= room:
                return room + _ONE
            slots[k] = hash_name(scratch, first, end - first, seed)
            k += _ONE
            if end >= stop:
                break
            first, end = _next(scratch, first, stop), _next(scratch, end, stop)
        if count < size:
            break
    return k


@kernel
def tokenise(text, p, stop, layout, column, scratch, slots, k):
    """Write the hashes of the tokens of `text[p:stop]` from `slots[k]` on.

    Returns the new `k`; one beyond the room says that it is full.
    """
    seed, room = layout.hashes[column], np.uint64(slots.size)
    length = stop - p
    scratch[0] = np.uint8(0)
    for i in range(length):
        scratch[i + _ONE] = _SMALL[text[p + i]]
    for i in range(length + _ONE, length + np.uint64(66)):
        scratch[i] = np.uint8(0)
    behind = length + _ONE
    start, before, first = _ONE, seed, True
    block, found = _ONE, _gaps(scratch, _ONE)
    while start < behind:
        while found == _ZERO:
            block += _BLOCK
            found = _gaps(scratch, block)
        end = block + trailing_zeros(found)
        found &= found - _ONE
        if end == start:
            start += _ONE
            continue
        hashed = hash_name(scratch, start, end - start, seed)
        if k + np.uint64(2) > room:
            return room + _ONE
        if layout.words:
            slots[k] = hashed
            k += _ONE
        if layout.pairs and not first:
            slots[k] = combine(before, hashed)
            k += _ONE
        if layout.least:
            k = _grams(scratch, start - _ONE, end + _ONE, layout, layout.gram_seeds[column], slots, k)
            if k > room:
                return k
        before, first = hashed, False
        start = end + _ONE
    return k
