"""The kernel that reads svmlight text; `svmlight.py` describes the format and calls it.

Finding where a number ends takes longer than reading it, and the next number cannot begin before. So
delimiters are marked beforehand, 64 bytes looked at together; two marks are a feature, and the digits of several
features are converted side by side. The usual feature is `index:value` with a blank or a newline behind it, the index
of up to 20 digits, the value of up to 8 digits, or up to 19 around a point. Any other word goes through `_any_word`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lessram.data.byte_lanes import AVAILABLE
from lessram.data.delimiters import (
    READ_BEFORE,
    forget,
    goes_on,
    how_many_ahead,
    next_window,
    number_of_next,
    place_of,
    remember,
    start_of,
)
from lessram.data.parsing import hashed_slot
from lessram.data.rows import values_from_here
from lessram.data.scanning import marking, marks_from, mask_of
from lessram.data.several_features import (
    SEVERAL,
    write_decimal_features,
    write_digit_features,
    write_number_features,
)
from lessram.data.text import (
    COLON,
    DECIDED,
    HASH,
    MINUS,
    NEWLINE,
    POINT,
    UNDECIDED,
    any_number,
    is_blank,
    line_end,
    long_decimal,
    short_number,
    short_whole,
    unit_decimal,
    usual_label,
)
from lessram.jit import inlined, kernel
from lessram.numerics.memory_words import bits_set, load_word, trailing_zeros

# Why the kernel came back: the text is done, or a word is wrong, or a number is too long to be decided here.
DONE, LABEL, INDEX, LARGE_INDEX, LARGE_SLOT, VALUE, LONG_LABEL, LONG_VALUE = range(8)

_ONE, _TWO = np.uint64(1), np.uint64(2)
_QUERY = np.uint64(int.from_bytes(b"qid:", "little"))
_mark_delimiters = marking(mask_of(b":", up_to=32))

Integer = int | np.int64


class Progress(NamedTuple):
    """Where the kernel stands in a chunk: all that it returns, and all that it needs to go on."""

    position: Integer = 0
    """Where the next line begins; of a bad line, the line itself."""
    rows: Integer = 0
    features: Integer = 0
    hashed: Integer = 0
    valued: bool = False
    """Whether there is a value that may not be 1; until there is, none are written."""
    status: Integer = DONE
    word: Integer = 0
    """Where the word begins that made the kernel stop."""


@inlined
def _ends_word(c):
    return is_blank(c) or c in (NEWLINE, HASH)


@inlined
def _usual_index(text, start, stop):
    """The number that text[start:stop] spells, and whether that is 1 to 16 digits and nothing else."""
    if stop - start <= np.uint64(8):
        return short_whole(text, start, stop)
    middle = stop - np.uint64(8)
    high, good = short_whole(text, start, middle)
    low, fine = short_whole(text, middle, stop)
    return high * np.uint64(10**8) + low, good & fine


@inlined
def _long_index(text, start, stop):
    """The same for 17 to 20 digits, if the number is below 2^64."""
    if stop - start - np.uint64(17) > np.uint64(3):
        return np.uint64(0), False
    middle = stop - np.uint64(16)
    high, good = short_whole(text, start, middle)
    low, fine = _usual_index(text, middle, stop)
    limit = np.uint64(2**64 // 10**16)
    below = high < limit or (high == limit and low < np.uint64(2**64 % 10**16))
    return high * np.uint64(10**16) + low, good and fine and below


@inlined
def _usual_value(text, start, stop):
    """As `short_number`, and faster where there is one digit: then most often all values have one."""
    digit = np.uint64(text[start]) - np.uint64(48)
    if stop - start == _ONE and digit <= np.uint64(9):
        return np.float32(np.int64(digit)), True
    value, good = unit_decimal(text, start, stop)
    if good:
        return value, True
    value, good = short_number(text, start, stop)
    if good:
        return value, True
    return long_decimal(text, start, stop)


@inlined
def _usual_feature(text, start, colon, stop):
    """The index and value that text[start:stop] spells, and whether that is a usual feature."""
    index, good = _usual_index(text, start, colon)
    if not good:
        index, good = _long_index(text, start, colon)
        if not good:
            return index, np.float32(0), False
    value, good = _usual_value(text, colon + _ONE, stop)
    if not good:
        return index, value, False
    return index, value, text[colon] == COLON and (is_blank(text[stop]) or text[stop] == NEWLINE)


@inlined
def _any_index(text, p):
    """The whole number at `p`, its end (`p` if there is none), and whether it is below 2^64."""
    number, fits = np.uint64(0), True
    digit = np.uint64(text[p]) - np.uint64(48)
    while digit <= np.uint64(9):
        fits &= number < np.uint64(2**64 // 10) or (number == np.uint64(2**64 // 10) and digit < np.uint64(6))
        number = number * np.uint64(10) + digit
        p += _ONE
        digit = np.uint64(text[p]) - np.uint64(48)
    return number, p, fits


@inlined
def _query_end(text, p):
    """The end of a word that begins with `qid:`; `p` if it does not."""
    if load_word(text, p) & np.uint64(0xFFFFFFFF) != _QUERY:
        return p
    while not _ends_word(text[p]):
        p += _ONE
    return p


@kernel
def _any_word(text, p):
    """Whatever word is at `p`: DONE or what is wrong, its end, whether it is a feature, its index and value."""
    one, nothing = np.float32(1), np.uint64(0)
    index, end, fits = _any_index(text, p)
    if end == p:
        end = _query_end(text, p)
        return (DONE if end != p else INDEX), end, False, nothing, one
    if not fits:
        return LARGE_INDEX, p, False, nothing, one
    if text[end] != COLON:
        return (DONE if _ends_word(text[end]) else INDEX), end, True, index, one
    value, end, state = any_number(text, end + _ONE)
    if state == DECIDED and _ends_word(text[end]):
        return DONE, end, True, index, value
    return (LONG_VALUE if state == UNDECIDED and _ends_word(text[end]) else VALUE), p, False, nothing, one


@inlined
def _label(text, p, real):
    """The label at `p`: DONE or what is wrong, its end, its value."""
    label, end, good = usual_label(text, p, real)
    if good:
        return DONE, end, label
    label, end, state = any_number(text, p)
    if state != DECIDED or not _ends_word(text[end]):
        return (LONG_LABEL if state == UNDECIDED and _ends_word(text[end]) else LABEL), end, label
    if real or label == np.float32(1):
        return DONE, end, label
    return (DONE if label == np.float32(0) or label == np.float32(-1) else LABEL), end, np.float32(0)


# The last value's form, which the next have most often too. Where it brought too few at once, short numbers of any kind
# are tried; where these bring too few, so many features are read one by one before the next attempt.
_UNKNOWN, _DIGITS, _DECIMALS, _NUMBERS = range(4)
_FEW, _PAUSE = np.uint64(4), 64


@inlined
def _form(text, colon, stop):
    """The form of the value between these places."""
    if stop - colon == _TWO:
        return _DIGITS
    unit = colon + _ONE + np.uint64(text[colon + _ONE] == MINUS)
    return _DECIMALS if text[unit + _ONE] == POINT else _NUMBERS


@inlined
def _hash_some(slots, k, which, rules):
    """Hash the indexes slots[k + i], the bits i of a mask. Returns how many they are."""
    hashed = bits_set(which)
    while which != np.uint64(0):
        at = k + trailing_zeros(which)
        slots[at] = hashed_slot(np.uint64(slots[at]), rules)
        which &= which - _ONE
    return np.int64(hashed)


@inlined
def _put(columns, k, index, value, valued):
    """Make this feature `k`, unless its value is 0: it never had a gradient. Returns `valued` and the next feature."""
    if value == np.float32(0):
        return valued, k
    valued = values_from_here(columns.values, k, valued, value)
    columns.slots[k] = index
    columns.values[k] = value
    return valued, k + _ONE


@inlined
def _several(text, p, end, marks, delimiters, rules, columns, k, valued, form):
    """Read features of one form as long as there are such.

    Returns where another one begins, or the newline's place; the next feature; whether values matter; whether the line
    has ended; and how many indexes were hashed.
    """
    hashed, number = 0, number_of_next(delimiters, text, marks, p, end)
    going_on = place_of(delimiters, number) >= np.uint64(READ_BEFORE)
    while going_on:
        ahead, ended = how_many_ahead(delimiters, number)
        pairs = ahead >> _ONE
        if pairs == np.uint64(0):
            going_on = not ended and goes_on(delimiters, end)
            if going_on:
                p = place_of(delimiters, number - _ONE) + _ONE
                number = next_window(delimiters, text, marks, p, end)
                going_on = how_many_ahead(delimiters, number)[0] > _ONE
            continue
        ended &= ahead & _ONE == np.uint64(0)
        while pairs != np.uint64(0) and k + np.uint64(SEVERAL) <= np.uint64(columns.slots.size):
            there = min(pairs, np.uint64(SEVERAL))
            these = (_ONE << there) - _ONE
            at = k if valued else np.uint64(0)  # ones are written to one place, which stays in the cache
            wrong, zero, large, other = _write(text, delimiters, number, columns, k, at, rules, form)
            # What is not for here: other words, features of value 0, indexes that are too large.
            not_here = (wrong | zero | (np.uint64(0) if rules.hashing else large)) & these
            if not_here != np.uint64(0):
                pairs, going_on = trailing_zeros(not_here), False  # those before it, once more
                continue
            if not valued and other & these != np.uint64(0):
                valued = values_from_here(columns.values, k, valued, np.float32(0))
                continue  # the same again, now with its values
            if large & these != np.uint64(0):
                hashed += _hash_some(columns.slots, k, large & these, rules)
            # These numbers are known beforehand: the processor goes on with the next before it is done with these.
            k, number, pairs = k + there, number + (there << _ONE), pairs - there
        if pairs != np.uint64(0):
            going_on = False
        elif ended and going_on:
            remember(delimiters, number)
            return place_of(delimiters, number - _ONE), k, valued, True, hashed
    remember(delimiters, number)
    return place_of(delimiters, number - _ONE) + _ONE, k, valued, False, hashed


@inlined
def _write(text, delimiters, number, columns, k, at, rules, form):
    """Several features of a form to the columns; see data/several_features.py."""
    start, places, kinds = start_of(delimiters), delimiters.places, delimiters.kinds
    slots, values, limit = columns.slots, columns.values, rules.direct
    if form == _DIGITS:
        return write_digit_features(text, start, places, kinds, number, slots, values, k, at, limit)
    if form == _DECIMALS:
        return write_decimal_features(text, start, places, kinds, number, slots, values, k, at, limit)
    return write_number_features(text, start, places, kinds, number, slots, values, k, at, limit)


@inlined
def _features(text, p, end, marks, delimiters, rules, columns, k, valued, form, pause):
    """The features of a line from `p` on, from feature `k` on. `valued`: whether a value so far may not be 1.

    Returns DONE or what is wrong, the place where that is, the next feature, `valued`, how many indexes were hashed,
    the form of the last value, and how many features are left to read one by one.
    """
    hashed, unusual = 0, False
    while True:
        while is_blank(text[p]):
            p += _ONE
        if text[p] == NEWLINE or text[p] == HASH:
            return DONE, p, k, valued, hashed, form, pause
        if AVAILABLE and pause == 0 and form != _UNKNOWN and not unusual:
            first = k
            p, k, valued, ended, more = _several(text, p, end, marks, delimiters, rules, columns, k, valued, form)
            hashed += more
            if ended:
                return DONE, p, k, valued, hashed, form, pause
            if k - first < _FEW:
                if form != _NUMBERS:
                    form = _NUMBERS
                    continue
                pause = _PAUSE
        if unusual:
            status, end, is_feature, index, value = _any_word(text, p)
            if status != DONE:
                return status, p, k, valued, hashed, form, pause
            if is_feature:
                if index >= rules.direct:
                    if not rules.hashing:
                        return LARGE_SLOT, p, k, valued, hashed, form, pause
                    index = hashed_slot(index, rules)
                    hashed += 1
                valued, k = _put(columns, k, index, value, valued)
            p, unusual = end, False
            continue
        while True:
            ends = marks_from(marks, p)
            after = ends & (ends - _ONE)
            if after == np.uint64(0):
                unusual = True  # a word of more than 56 bytes, or one without a colon at the end of the text
                break
            colon, stop = p + trailing_zeros(ends), p + trailing_zeros(after)
            index, value, usual = _usual_feature(text, p, colon, stop)
            if not usual:
                unusual = True
                break
            if index >= rules.direct:
                if not rules.hashing:
                    unusual = True
                    break
                index = hashed_slot(index, rules)
                hashed += 1
            valued, k = _put(columns, k, index, value, valued)
            p = stop + _ONE
            if AVAILABLE:
                pause -= pause > 0
                if pause == 0:
                    form = _form(text, colon, stop)
            if text[stop] == NEWLINE:
                return DONE, stop, k, valued, hashed, form, pause
            if AVAILABLE and pause == 0:
                break


@kernel
def parse_lines(text, end, marks, delimiters, rules, columns, progress):
    """Parse lines up to `end`, where a newline stands, until all are done or one is bad.

    Behind a line at which it stopped, the marks are those that it made when it began.
    """
    p, end = np.uint64(progress.position), np.uint64(end)
    row, k = np.uint64(progress.rows), np.uint64(progress.features)
    hashed, valued, form, pause = progress.hashed, progress.valued, _UNKNOWN, 0
    if progress.status == DONE:
        _mark_delimiters(text, p, end, marks)
    forget(delimiters)
    while p < end:
        line = p
        while is_blank(text[p]):
            p += _ONE
        if text[p] == NEWLINE or text[p] == HASH:
            p = line_end(text, p) + _ONE
            continue
        word = p
        status, p, label = _label(text, p, rules.real_labels)
        if status == DONE:
            status, word, last, valued, more, form, pause = _features(
                text, p, end, marks, delimiters, rules, columns, k, valued, form, pause
            )
        if status != DONE:
            return Progress(np.int64(line), np.int64(row), np.int64(k), hashed, valued, status, np.int64(word))
        p = line_end(text, word) + _ONE
        k, hashed = last, hashed + more
        columns.labels[row] = label
        row += _ONE
        columns.indptr[row] = np.int64(k)
    return Progress(np.int64(p), np.int64(row), np.int64(k), hashed, valued, DONE, np.int64(p))
