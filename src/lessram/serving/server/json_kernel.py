"""The kernel that reads JSON rows as most clients write them; `usual_rows.py` calls it.

    row        {"features": {"name": value, ...}} or {"slots": [...]} or {"slots": [...], "values": [...]}
    name       a string without escapes; one that is all digits is an id of up to 16 of them
    value      a number, true, false, or a string without escapes, which becomes part of the name

Anything else, right or wrong, is not decided here: the kernel says `UNUSUAL`, and the decoder of all JSON reads the
body anew, so that it alone has the words for errors. What is taken here means the same there: a name that occurs twice
in a row is left to the decoder too, for whom the last one counts.

Functions return the place behind what they read, or `NOWHERE`, for nothing ends at the first byte of a text.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.data.hashing import MARGIN, hash_name
from lessram.data.json_text import NOWHERE, is_digit, json_number
from lessram.data.parsing import hashed_slot
from lessram.data.scanning import LANES, mask_of
from lessram.data.text import short_whole
from lessram.jit import inlined, kernel
from lessram.numerics.memory_words import load_word, store_word, trailing_zeros

UNUSUAL = -1

LONGEST = 1024
"""Bytes of a name and the string that is part of it."""
_PLACES = 4096
_MOST_NAMES = _PLACES // 2

_ONE, _EIGHT = np.uint64(1), np.uint64(8)
_QUOTE, _COLON, _COMMA, _EQUALS = (np.uint8(ord(c)) for c in '":,=')
_OPEN, _CLOSE, _BEGIN, _END = (np.uint8(ord(c)) for c in "[]{}")
_string_stops = mask_of(b'"\\', up_to=31)
_number_stops = mask_of(b",]}", up_to=32)


def _word(text: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(text, "little"))


_FEATURES, _SLOTS, _VALUES, _TRUE, _FALSE = map(_word, (b'"feature', b'"slots"', b'"values"', b"true", b"false"))
_FOUR_BYTES, _FIVE_BYTES, _SEVEN_BYTES = (np.uint64((1 << 8 * n) - 1) for n in (4, 5, 7))


class Scratch(NamedTuple):
    """What the kernel works with beside its columns."""

    name: NDArray[np.uint8]
    """A name and the string that is part of it, one behind the other."""
    seen: NDArray[np.uint64]
    """The names of a row: a table of hashes, each below the stamp of its row, so that it need not be cleared."""
    stamp: NDArray[np.uint64]
    """That of the last row, 32 bits."""


def make_scratch() -> Scratch:
    name = np.zeros(LONGEST + 8 + MARGIN, np.uint8)
    return Scratch(name, np.zeros(_PLACES, np.uint64), np.zeros(1, np.uint64))


@inlined
def _behind_blanks(text, p):
    while text[p] in (np.uint8(32), np.uint8(10), np.uint8(13), np.uint8(9)):
        p += _ONE
    return p


@inlined
def _behind_colon(text, p):
    """Where the value begins whose key ends before `p`."""
    p = _behind_blanks(text, p)
    return _behind_blanks(text, p + _ONE) if text[p] == _COLON else NOWHERE


@inlined
def _string_end(text, p):
    """The quote behind a string from `p` on."""
    found = _string_stops(text, p)
    while found == np.uint64(0):
        p += np.uint64(LANES)
        found = _string_stops(text, p)
    p += trailing_zeros(found)
    return p if text[p] == _QUOTE else NOWHERE


@inlined
def _whole(text, start, stop):
    """The number that text[start:stop] spells, and whether that is 1 to 16 digits and nothing else."""
    if stop - start <= _EIGHT:
        return short_whole(text, start, stop)
    middle = stop - _EIGHT
    high, good = short_whole(text, start, middle)
    low, fine = short_whole(text, middle, stop)
    return high * np.uint64(10**8) + low, good & fine


@inlined
def _number_or_truth(text, p):
    word = load_word(text, p)
    if word & _FOUR_BYTES == _TRUE:
        return np.float32(1), p + np.uint64(4)
    if word & _FIVE_BYTES == _FALSE:
        return np.float32(0), p + np.uint64(5)
    return json_number(text, p)


@inlined
def _slots(text, p, rules, columns, k):
    """The slots of the array at `p`, from feature `k` on, with values 1."""
    p = _behind_blanks(text, p + _ONE)
    if text[p] == _CLOSE:
        return p + _ONE, k
    while True:
        stop = p + trailing_zeros(_number_stops(text, p))
        slot, good = _whole(text, p, stop)
        if not good or slot >= rules.slots or (text[p] == np.uint8(48) and stop - p > _ONE):
            return NOWHERE, k
        columns.slots[k] = slot
        columns.values[k] = np.float32(1)
        k += _ONE
        p = _behind_blanks(text, stop)
        if text[p] == _CLOSE:
            return p + _ONE, k
        if text[p] != _COMMA:
            return NOWHERE, k
        p = _behind_blanks(text, p + _ONE)


@inlined
def _values(text, p, columns, first, last):
    """The values of the array at `p` for the features `first:last`. Returns the end, and how many features stay:
    those of value 0 never have a gradient."""
    k = kept = first
    p = _behind_blanks(text, p + _ONE)
    while k < last:
        value, p = json_number(text, p)
        if p == NOWHERE:
            return NOWHERE, kept
        columns.slots[kept] = columns.slots[k]
        columns.values[kept] = value
        kept += np.uint64(value != np.float32(0))
        k += _ONE
        p = _behind_blanks(text, p)
        if k < last:
            if text[p] != _COMMA:
                return NOWHERE, kept
            p = _behind_blanks(text, p + _ONE)
    return (p + _ONE if text[p] == _CLOSE else NOWHERE), kept


@inlined
def _slotted(text, p, rules, columns, first):
    """A row of slots from behind the key on."""
    p = _behind_colon(text, p)
    if p == NOWHERE or text[p] != _OPEN:
        return NOWHERE, first
    p, last = _slots(text, p, rules, columns, first)
    if p == NOWHERE:
        return NOWHERE, first
    p = _behind_blanks(text, p)
    if text[p] != _COMMA:
        return p, last
    p = _behind_blanks(text, p + _ONE)
    if load_word(text, p) != _VALUES:
        return NOWHERE, first
    p = _behind_colon(text, p + _EIGHT)
    if p == NOWHERE or text[p] != _OPEN:
        return NOWHERE, first
    return _values(text, p, columns, first, last)


@inlined
def _new_stamp(scratch):
    stamp = (scratch.stamp[0] + _ONE) & _FOUR_BYTES
    if stamp == np.uint64(0):  # all have been used
        scratch.seen[:] = np.uint64(0)
        stamp = _ONE
    scratch.stamp[0] = stamp
    return stamp


@inlined
def _is_seen(seen, hashed, stamp):
    """Whether the row of this stamp has a name of this hash already; if not, it has one now."""
    word = (stamp << np.uint64(32)) | (np.uint64(hashed) & _FOUR_BYTES)
    place = np.uint64(hashed) & np.uint64(_PLACES - 1)
    while seen[place] >> np.uint64(32) == stamp:
        if seen[place] == word:
            return True
        place = (place + _ONE) & np.uint64(_PLACES - 1)
    seen[place] = word
    return False


@inlined
def _copy(text, start, length, target, at):
    for i in range(NOWHERE, length, _EIGHT):
        store_word(target, at + i, load_word(text, start + i))


@inlined
def _joined_slot(text, name, end, value, stop, rules, seed, scratch):
    """The slot of `name=value`, which is no longer than `LONGEST`."""
    length = end - name
    _copy(text, name, length, scratch, NOWHERE)
    scratch[length] = _EQUALS
    _copy(text, value, stop - value, scratch, length + _ONE)
    return np.uint64(hash_name(scratch, NOWHERE, length + _ONE + stop - value, seed)) % rules.slots


@inlined
def _slot(text, name, end, hashed, rules):
    """The slot of a name whose value is a number, and whether it is known."""
    if not is_digit(text[name]) or name == end:
        return np.uint64(hashed) % rules.slots, True
    index, good = _whole(text, name, end)
    if good:
        return (hashed_slot(index, rules) if index >= rules.direct else index), True
    p = name
    while is_digit(text[p]):
        p += _ONE
    return np.uint64(hashed) % rules.slots, p != end


@inlined
def _feature(text, p, rules, seed, columns, scratch, stamp, k):
    """The member at `p` as feature `k`: its end, and the next feature."""
    name = p + _ONE
    end = _string_end(text, name) if text[p] == _QUOTE else NOWHERE
    if end == NOWHERE:
        return NOWHERE, k
    p = _behind_colon(text, end + _ONE)
    hashed = hash_name(text, name, end - name, seed)
    if p == NOWHERE or _is_seen(scratch.seen, hashed, stamp):
        return NOWHERE, k
    if text[p] == _QUOTE:
        stop = _string_end(text, p + _ONE)
        if stop == NOWHERE or end - name + stop - p > np.uint64(LONGEST):
            return NOWHERE, k
        columns.slots[k] = _joined_slot(text, name, end, p + _ONE, stop, rules, seed, scratch.name)
        columns.values[k] = np.float32(1)
        return stop + _ONE, k + _ONE
    value, p = _number_or_truth(text, p)
    slot, known = _slot(text, name, end, hashed, rules)
    columns.slots[k] = slot
    columns.values[k] = value
    return (p if known else NOWHERE), k + np.uint64(value != np.float32(0))


@inlined
def _named(text, p, rules, seed, columns, scratch, k):
    """A row of features by name from behind the key on."""
    p = _behind_colon(text, p)
    if p == NOWHERE or text[p] != _BEGIN:
        return NOWHERE, k
    p = _behind_blanks(text, p + _ONE)
    if text[p] == _END:
        return p + _ONE, k
    stamp = _new_stamp(scratch)
    for _ in range(_MOST_NAMES):
        p, k = _feature(text, p, rules, seed, columns, scratch, stamp, k)
        if p == NOWHERE:
            return NOWHERE, k
        p = _behind_blanks(text, p)
        if text[p] == _END:
            return p + _ONE, k
        if text[p] != _COMMA:
            return NOWHERE, k
        p = _behind_blanks(text, p + _ONE)
    return NOWHERE, k


@inlined
def _row(text, p, names, rules, seed, columns, scratch, k):
    if text[p] != _BEGIN:
        return NOWHERE, k
    p = _behind_blanks(text, p + _ONE)
    word = load_word(text, p)
    if word & _SEVEN_BYTES == _SLOTS:
        p, k = _slotted(text, p + np.uint64(7), rules, columns, k)
    elif names and word == _FEATURES and text[p + _EIGHT] == np.uint8(ord("s")) and text[p + np.uint64(9)] == _QUOTE:
        p, k = _named(text, p + np.uint64(10), rules, seed, columns, scratch, k)
    else:
        return NOWHERE, k
    if p == NOWHERE:
        return NOWHERE, k
    p = _behind_blanks(text, p)
    return (p + _ONE if text[p] == _END else NOWHERE), k


@kernel
def read_rows(text, size, many, names, rules, seed, columns, scratch):
    """Read a row, or an array of `many`, by name only if `names`. Returns the number of rows or `UNUSUAL`, that of
    their features, and whether all values are 1. The text is UTF-8, with `PADDING` zeros behind it."""
    row, k, ones = np.int64(0), NOWHERE, True
    p = _behind_blanks(text, NOWHERE)
    if many:
        if text[p] != _OPEN:
            return UNUSUAL, 0, ones
        p = _behind_blanks(text, p + _ONE)
    while True:
        first = k
        p, k = _row(text, p, names, rules, seed, columns, scratch, k)
        if p == NOWHERE:
            return UNUSUAL, 0, ones
        for i in range(first, k):
            ones &= columns.values[i] == np.float32(1)
        columns.labels[row] = np.float32(0)
        row += 1
        columns.indptr[row] = np.int64(k)
        p = _behind_blanks(text, p)
        if not many:
            break
        if text[p] == _CLOSE:
            p = _behind_blanks(text, p + _ONE)
            break
        if text[p] != _COMMA:
            return UNUSUAL, 0, ones
        p = _behind_blanks(text, p + _ONE)
    return (row if p == np.uint64(size) else UNUSUAL), np.int64(k), ones
