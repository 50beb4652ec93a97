"""The kernel that reads Vowpal Wabbit text; `vw.py` describes the format and calls it.

Delimiters are marked beforehand, 64 bytes looked at together. The kernel walks from mark to mark and puts names
aside, to be hashed many at a time at the end of their line. What is rare stands in functions of its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.data.byte_lanes import AVAILABLE
from lessram.data.hashing import hash_name, number_name
from lessram.data.interactions import append_products, set_group
from lessram.data.namespaces import Namespaces, key_of, known, remember
from lessram.data.rows import DONE, FULL, INFINITE, LARGEST, LONG_NUMBER, Progress, end_row, survey, values_from_here
from lessram.data.scanning import load32, marking, mask_of, next_mark
from lessram.data.several_names import several_names
from lessram.data.short_names import LONGEST, hash_waiting, put_name
from lessram.data.text import (
    BROKEN,
    COLON,
    DECIDED,
    MINUS,
    NEWLINE,
    PLUS,
    POINT,
    RETURN,
    SPACE,
    UNDECIDED,
    digit_run,
    first_digits,
    is_line_end,
    load_digits,
    number,
    unit_decimal,
    usual_label,
)
from lessram.jit import inlined, kernel
from lessram.numerics.memory_words import trailing_zeros

LABEL, WEIGHT, BASE, WORDS, CONTROL, VALUE, NO_VALUE, NAMESPACE, NAMESPACE_WEIGHT = range(4, 13)
"""What is wrong with the line at which the kernel stopped."""

BAR, QUOTE, TAB = (np.uint8(ord(c)) for c in "|'\t")
_ZERO, _ONE, _BLOCK = np.uint64(0), np.uint64(1), np.uint64(64)

_FEW, _PAUSE = np.uint64(4), 64
"""Where fewer names than so many come together, so many features are read one by one before it is tried again."""

_behind_name = mask_of(b":|", up_to=32)
_mark_names = marking(_behind_name)
_behind_word = mask_of(b"", up_to=32)
_behind_head = mask_of(b"|\n")


class Reading(NamedTuple):
    """How the text is understood."""

    seed: Any
    """The hash of the namespace without a name; uint32 or uint64, which chooses the hash of all names."""
    hash_seed: Any
    """What the names of namespaces are hashed under, of the same type."""
    hash_all: bool
    """Whether names that are all digits are hashed too."""
    real_labels: bool
    """Whether any finite label is taken; if not, 0, 1 and -1."""
    keep_unlabelled: bool
    """Whether examples without a label become rows (with the label NaN)."""
    slots: np.uint64
    """The size of the table."""
    kept: NDArray[np.bool_]
    """For each first byte of a namespace, whether its features are kept."""
    group: NDArray[np.uint8]
    """For each first byte of a namespace, its group in interactions."""
    namespaces: Namespaces
    """Those that were met before."""


@inlined
def _is_blank(c):
    if c == SPACE:
        return True
    return c == TAB


@inlined
def _feature_ends(text, p):
    """Whether a value may end here."""
    return _is_blank(text[p]) or text[p] == BAR or is_line_end(text, p)


@inlined
def _is_digit(c):
    return np.uint8(c - np.uint8(48)) < np.uint8(10)


@inlined
def _head_end(text, p):
    """Where label, importance, base and tag end: at the first bar, or where the line ends."""
    start, found = p, _behind_head(text, p)
    while found == _ZERO:
        p += _BLOCK
        found = _behind_head(text, p)
    p += trailing_zeros(found)
    return p - _ONE if text[p] == NEWLINE and p > start and text[p - _ONE] == RETURN else p


@inlined
def _word_end(text, p):
    """Where a word that is a value ends: colons and bars are part of it."""
    found = _behind_word(text, p)
    while found == _ZERO:
        p += _BLOCK
        found = _behind_word(text, p)
    return p + trailing_zeros(found)


@inlined
def _name_end(text, p):
    """Where a name ends: at a blank, a colon, a bar or any control character."""
    found = _behind_name(text, p)
    while found == _ZERO:
        p += _BLOCK
        found = _behind_name(text, p)
    return p + trailing_zeros(found)


@inlined
def _begins_as_number(text, p):
    """Whether a C library, and so Vowpal Wabbit, would find a number in the word at `p`."""
    p += np.uint64(text[p] == PLUS or text[p] == MINUS)
    digits = p + np.uint64(text[p] == POINT)
    word = load32(text, p) & np.uint32(0xFFFFFF) | np.uint32(0x202020)
    if word == np.uint32(0x666E69) or word == np.uint32(0x6E616E):  # inf, nan; but india and nancy are words
        length = _word_end(text, p) - p
        return length == np.uint64(3) or length == np.uint64(8)
    return _is_digit(text[digits])


@kernel
def head(text, p, stop, real_labels):
    """Label, importance and base in `text[p:stop]`, as Vowpal Wabbit takes them apart.

    Words are parted by spaces. What stands before the first tab is left out. The last word is a tag if it
    touches the bar or begins with a quote. Returns what is wrong, where, label (NaN where there is none),
    importance and base.
    """
    for q in range(p, stop):
        if text[q] == TAB:
            p = q + _ONE
            break
    read = (np.float32(np.nan), np.float32(1), np.float32(0))
    for word in range(4):
        while p < stop and text[p] == SPACE:
            p += _ONE
        end = p
        while end < stop and text[end] != SPACE:
            end += _ONE
        behind = end
        while behind < stop and text[behind] == SPACE:
            behind += _ONE
        if end == stop or (text[p] == QUOTE and behind == stop):
            break
        value, last, state = number(text, p)
        if state == UNDECIDED:
            return LONG_NUMBER, p, read
        good = state == DECIDED and last == end
        if word == 0:
            if not good or not (real_labels or value == 0 or abs(value) == 1):
                return LABEL, p, read
            read = (value if real_labels else max(value, np.float32(0)), read[1], read[2])
        elif word == 1:
            if not (good and value >= 0):
                return WEIGHT, p, read
            read = (read[0], value, read[2])
        elif word == 2:
            if not good:
                return BASE, p, read
            read = (read[0], read[1], value)
        else:
            return WORDS, p, read
        p = end
    return DONE, p, read


@inlined
def _hash_token(text, p, end, seed, hash_all):
    """The hash of a name under a seed. An all-digit name is its own number, unless `hash_all` says otherwise."""
    length = end - p
    if not hash_all:
        word = load_digits(text, p)
        digits = digit_run(word)
        if digits >= length:
            return number_name(first_digits(word, length), seed) if length else seed
        if digits == np.uint64(8):
            value, q = _ZERO, p
            while _is_digit(text[q]):
                value = value * np.uint64(10) + np.uint64(text[q] - np.uint8(48))
                q += _ONE
            if q == end:
                return number_name(value, seed)
    return hash_name(text, p, length, seed)


@kernel
def hash_token(text, p, end, seed, hash_all):
    """`_hash_token` as a call, for where it is rare."""
    return _hash_token(text, p, end, seed, hash_all)


@inlined
def _is_short_word(text, p, end, hash_all):
    """Whether a name is short and is hashed: most are."""
    return end - p <= np.uint64(LONGEST) and (hash_all or digit_run(load_digits(text, p)) < min(end - p, np.uint64(8)))


@inlined
def _behind_blanks(text, p):
    while _is_blank(text[p]):
        p += _ONE
    return p


@inlined
def _value(text, p):
    """The number at `p`, behind a colon: what is wrong, the number, its end. A word has the end 0."""
    value, end, state = number(text, p)
    if state == DECIDED and _feature_ends(text, end):
        return DONE, value, end
    if state == UNDECIDED:
        return LONG_NUMBER, value, end
    if _feature_ends(text, p):
        return NO_VALUE, value, end
    if state != BROKEN or _begins_as_number(text, p):
        return VALUE, value, end
    return DONE, value, _ZERO


@inlined
def _usual_value(text, p, marks):
    """As `_value`, and faster for what values of about 1 look like most often."""
    end = next_mark(marks, p)
    value, good = unit_decimal(text, p, end)
    if good and _feature_ends(text, end):
        return DONE, value, end
    return _value(text, p)


@kernel
def namespace(text, p, reading):
    """The namespace behind the bar at `p - 1`: what is wrong, where, its hash and its weight."""
    end, scale = _name_end(text, p), np.float32(1)
    if end == p:
        return (NAMESPACE if text[p] == COLON else DONE), end, reading.seed, scale
    seed = hash_token(text, p, end, reading.hash_seed, reading.hash_all)
    if text[end] != COLON:
        return DONE, end, seed, scale
    start = _behind_blanks(text, end + _ONE)
    trouble, scale, last = _value(text, start)
    if trouble != DONE or last == _ZERO:
        return (LONG_NUMBER if trouble == LONG_NUMBER else NAMESPACE_WEIGHT), start, seed, scale
    return DONE, last, seed, scale


@inlined
def _features(text, p, marks, reading, products, rows, names, k, valued, pause):
    """The features from the first bar on, to the end of the line. `valued`: whether a value so far may not be 1.

    Returns what is wrong, where it stopped, the new `k` and `valued`, and how many features are left to read one by
    one.
    """
    room = np.uint64(rows.slots.size)
    seed, scale, step, group, nameless = reading.seed, np.float32(1), _ONE, np.uint8(0), _ZERO
    while True:
        end = next_mark(marks, p)
        c = text[end]
        if end != p or c == COLON:
            if k == room:
                return FULL, p, k, valued, pause
            value = scale
            if c != COLON and _is_short_word(text, p, end, reading.hash_all):
                if step & np.uint64(value != np.float32(0)):
                    put_name(names, text, p, end - p, seed, rows.slots, k)
            else:
                hashed = _hash_token(text, p, end, seed, reading.hash_all)
                if c == COLON:
                    start = _behind_blanks(text, end + _ONE)
                    trouble, value, last = _usual_value(text, start, marks)
                    if trouble != DONE:
                        return trouble, start, k, valued, pause
                    if last == _ZERO:
                        # A word, hashed under the name; it has the value 1 whatever the namespace's weight.
                        value, last = np.float32(1), _word_end(text, start)
                        hashed = hash_token(text, start, last, hashed, reading.hash_all)
                    else:
                        value *= scale
                        if not abs(value) <= LARGEST:
                            return INFINITE, start, k, valued, pause
                        if end == p:
                            hashed = number_name(nameless, seed)
                            nameless += _ONE
                    valued = values_from_here(rows.values, k, valued, value)
                    end, c = last, text[last]
                rows.slots[k] = hashed
            rows.values[k] = value
            set_group(products, k, group)
            k += step & np.uint64(value != np.float32(0))
            pause -= pause > 0
        p = end + _ONE
        if _is_blank(c):
            if AVAILABLE and pause == 0 and step == _ONE and scale == np.float32(1):
                before = k
                p, k, ended = several_names(text, p, marks, seed, reading.hash_all, products, rows, names, k, valued)
                if ended:
                    return DONE, p + _ONE, k, valued, pause
                if k - before < _FEW:
                    pause = _PAUSE
            continue
        if c == NEWLINE:
            return DONE, p, k, valued, pause
        if c == RETURN and text[p] == NEWLINE:
            continue
        if c != BAR:
            return CONTROL, end, k, valued, pause
        name = text[p] if text[p] > SPACE and text[p] != BAR else SPACE
        step, group, nameless = np.uint64(reading.kept[name]), reading.group[name], _ZERO
        key, end = key_of(text, p, marks)
        found, seed = known(reading.namespaces, key)
        if found:
            p, scale = end, np.float32(1)
            continue
        trouble, p, seed, scale = namespace(text, p, reading)
        valued = values_from_here(rows.values, k, valued, scale)
        if trouble == DONE and not _feature_ends(text, p):
            trouble = CONTROL
        if trouble != DONE:
            return trouble, p, k, valued, pause
        remember(reading.namespaces, key, seed)


@inlined
def _mark(text, p):
    """How many bytes a byte order mark at `p` has: 3 or 0."""
    return np.uint64(3) if load32(text, p) & np.uint32(0xFFFFFF) == np.uint32(0xBFBBEF) else _ZERO


@kernel
def parse_lines(text, size, marks, reading, products, rows, names, progress):
    """Parse whole lines up to `size`, behind which stands a newline, until all are done or one is not good.

    Nothing of the line at which it stops is kept. Behind it, the marks are those that were made at the beginning.
    """
    p, stop = np.uint64(progress.position), np.uint64(size)
    row, k = np.uint64(progress.rows), np.uint64(progress.features)
    unlabelled, based = progress.unlabelled, progress.based
    if progress.status == DONE:
        _mark_names(text, p, stop, marks)
    weighted, valued, pause = progress.weighted, progress.valued, 0
    while p < stop:
        line, first, needed = p, k, _ZERO
        p += _mark(text, p)
        if is_line_end(text, p):
            p += _ONE + np.uint64(text[p] == RETURN)
            continue
        bar = _head_end(text, p)
        label, end, usual = usual_label(text, p, reading.real_labels)
        trouble, weight, base = DONE, np.float32(1), np.float32(0)
        if not (usual and end + _ONE == bar):
            trouble, p, (label, weight, base) = head(text, p, bar, reading.real_labels)
        if trouble == DONE and row == np.uint64(rows.labels.size):
            trouble = FULL
        if trouble == DONE:
            trouble, p, k, valued, pause = _features(text, bar, marks, reading, products, rows, names, k, valued, pause)
            hash_waiting(names, rows.slots)
            if trouble == DONE and products.terms.shape[0]:
                needed = append_products(products, rows.slots, rows.values, first, k)
                trouble = FULL if needed > np.uint64(rows.slots.size) else DONE
                if trouble == DONE:
                    k = needed
                    trouble = DONE if survey(rows.values, first, k)[0] else INFINITE
                p = p if trouble == DONE else line
        if trouble != DONE:
            counts = (np.int64(line), np.int64(row), np.int64(first), unlabelled, based, weighted, valued)
            return Progress(*counts, trouble, np.int64(p), 0, np.int64(needed))
        unlabelled += np.isnan(label)
        done = row
        row, k = end_row(rows, row, first, k, label, weight, reading.slots, reading.keep_unlabelled)
        if row != done:
            weighted |= weight != np.float32(1)
            based += base != np.float32(0)
    position = np.int64(p)
    return Progress(position, np.int64(row), np.int64(k), unlabelled, based, weighted, valued, DONE, position, 0, 0)
