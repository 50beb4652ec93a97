"""The parts of JSON as kernels read them: blanks, strings and their escapes, numbers.

What is accepted here is valid JSON in UTF-8 and means what every decoder takes it for. What is not accepted may still
be valid: then a decoder decides. Functions return the place behind what they read, or `NOWHERE`, for nothing ends at
the first byte of a text.
"""

from __future__ import annotations

import numpy as np

from lessram.data.scanning import marking, mask_of, next_mark
from lessram.data.text import (
    DECIDED,
    MINUS,
    POINT,
    SPACE,
    any_number,
    digit_run,
    first_digits,
    load_digits,
    short_number,
)
from lessram.jit import inlined, kernel
from lessram.numerics.memory_words import load_word, store_word, trailing_zeros

NOWHERE = np.uint64(0)
QUOTE, BACKSLASH, COLON, COMMA, OPEN, CLOSE, BEGIN, END = (np.uint8(ord(c)) for c in '"\\:,[]{}')

_ONE, _TWO, _EIGHT = np.uint64(1), np.uint64(2), np.uint64(8)
_TAB, _RETURN, _NUL, _ZERO_DIGIT, _U, _T, _F = (np.uint8(ord(c)) for c in "\t\r\x000utf")
_NUMBER_ENDS = np.zeros(256, np.bool_)
_NUMBER_ENDS[list(b",]} \t\r\n")] = True
_number_stops = mask_of(b",]}", up_to=32)

mark_string_stops = marking(mask_of(b'"\\', up_to=31, from_on=128))
"""Mark what may end a string or needs a closer look: quotes, escapes, control characters, characters beyond ASCII."""

_ESCAPED = np.zeros(256, np.uint8)  # what the letter behind a backslash stands for, 0 for those that have no meaning
_ESCAPED[list(b'"\\/bfnrt')] = list(b'"\\/\b\f\n\r\t')
_NO_DIGIT = 1 << 16
_HEXADECIMAL = np.full(256, _NO_DIGIT, np.uint64)
_HEXADECIMAL[list(b"0123456789abcdef")] = range(16)
_HEXADECIMAL[list(b"ABCDEF")] = range(10, 16)
_HIGH_HALF, _LOW_HALF = np.uint64(0xD800 >> 10), np.uint64(0xDC00 >> 10)  # of a surrogate pair
_TEN_BITS = np.uint64(0x3FF)


@inlined
def behind_blanks(text, p):
    """The first place from `p` on that is no blank within a line."""
    while text[p] == SPACE or text[p] == _TAB or text[p] == _RETURN:
        p += _ONE
    return p


@inlined
def behind_colon(text, p):
    """Where the value begins whose key ends before `p`."""
    p = behind_blanks(text, p)
    return behind_blanks(text, p + _ONE) if text[p] == COLON else NOWHERE


@inlined
def is_digit(c):
    """Whether a byte is a digit."""
    return np.uint64(c) - np.uint64(48) <= np.uint64(9)


@inlined
def _digits_follow(text, p):
    """Whether there are digits behind the point of a number whose digits begin at `p`, if it has one."""
    while is_digit(text[p]):
        p += _ONE
    return text[p] != POINT or is_digit(text[p + _ONE])


@kernel
def _other_number(text, p):
    """Any number as JSON allows it: no leading zeros, no plus, digits on both sides of a point."""
    stop = p + trailing_zeros(_number_stops(text, p))
    first = p + np.uint64(text[p] == MINUS)
    if not is_digit(text[first]) or (text[first] == _ZERO_DIGIT and is_digit(text[first + _ONE])):
        return np.float32(0), NOWHERE
    value, good = short_number(text, p, stop)
    if good and text[stop - _ONE] != POINT:
        return value, stop
    value, end, state = any_number(text, p)
    good = state == DECIDED and end == stop and _digits_follow(text, first)
    return value, (stop if good else NOWHERE)


@inlined
def json_number(text, p):
    """The number at `p`, and its end."""
    word = load_digits(text, p)
    count = digit_run(word)
    plain = count - _ONE < np.uint64(7) and _NUMBER_ENDS[text[p + count]]
    if plain and (count == _ONE or text[p] != _ZERO_DIGIT):
        return np.float32(np.int64(first_digits(word, count))), p + count
    return _other_number(text, p)


@inlined
def _four_digits(text, p):
    """The number of four hexadecimal digits; `_NO_DIGIT` or more if they are none."""
    number = NOWHERE
    for i in range(np.uint64(4)):
        number = number << np.uint64(4) | _HEXADECIMAL[text[p + i]]
    return number


@inlined
def _character(text, p):
    """The character whose `\\u` stands at `p`, and its end: of characters beyond 16 bits, that of the pair."""
    code, end = _four_digits(text, p + _TWO), p + np.uint64(6)
    if code >= np.uint64(_NO_DIGIT) or code >> np.uint64(10) == _LOW_HALF:
        return code, NOWHERE
    if code >> np.uint64(10) != _HIGH_HALF:
        return code, end
    low = _four_digits(text, end + _TWO)
    if text[end] != BACKSLASH or text[end + _ONE] != _U or low >> np.uint64(10) != _LOW_HALF:
        return code, NOWHERE
    code = np.uint64(0x10000) + ((code & _TEN_BITS) << np.uint64(10)) + (low & _TEN_BITS)
    return code, end + np.uint64(6)


@inlined
def _put_character(decoded, k, code):
    """Write a character in UTF-8. Returns the place behind it."""
    if code < np.uint64(0x80):
        decoded[k] = np.uint8(code)
        return k + _ONE
    more = _ONE + np.uint64(code >= np.uint64(0x800)) + np.uint64(code >= np.uint64(0x10000))
    ones = np.uint64(0xF00) >> (more + _ONE)  # the low byte begins with as many as there are bytes
    decoded[k] = np.uint8((ones | code >> np.uint64(6) * more) & np.uint64(0xFF))
    for i in range(_ONE, more + _ONE):
        decoded[k + i] = np.uint8(np.uint64(0x80) | code >> np.uint64(6) * (more - i) & np.uint64(0x3F))
    return k + more + _ONE


@inlined
def _is_tail(c):
    return c & np.uint8(0xC0) == np.uint8(0x80)


@inlined
def _utf8_length(text, p):
    """How many bytes the character at `p`, beyond ASCII, has in UTF-8; 0 if it is not well formed."""
    lead, second = text[p], text[p + _ONE]
    if lead < np.uint8(0xC2) or lead > np.uint8(0xF4) or not _is_tail(second):
        return NOWHERE
    if lead < np.uint8(0xE0):
        return _TWO
    if not _is_tail(text[p + _TWO]):
        return NOWHERE
    if lead < np.uint8(0xF0):  # neither a longer form than needed nor half a surrogate pair
        wrong = (lead == np.uint8(0xE0) and second < np.uint8(0xA0)) or (
            lead == np.uint8(0xED) and second >= np.uint8(0xA0)
        )
        return NOWHERE if wrong else np.uint64(3)
    wrong = (lead == np.uint8(0xF0) and second < np.uint8(0x90)) or (
        lead == np.uint8(0xF4) and second >= np.uint8(0x90)
    )
    return NOWHERE if wrong or not _is_tail(text[p + np.uint64(3)]) else np.uint64(4)


@kernel
def decode_string(text, p, marks, decoded, k):
    """Write the string from `p` on, which has escapes or characters beyond ASCII, from `decoded[k]` on.

    Returns the place of the quote behind it, and the end of what was written: no more bytes than the string has, but up
    to eight more may be touched.
    """
    while True:
        stop = next_mark(marks, p)
        for i in range(np.uint64(0), stop - p, _EIGHT):
            store_word(decoded, k + i, load_word(text, p + i))
        k += stop - p
        found = text[stop]
        if found == QUOTE:
            return stop, k
        if found >= np.uint8(128):
            length = _utf8_length(text, stop)
            if length == NOWHERE:
                return NOWHERE, k
            for i in range(length):
                decoded[k + i] = text[stop + i]
            p, k = stop + length, k + length
            continue
        if found != BACKSLASH:
            return NOWHERE, k
        letter = text[stop + _ONE]
        if _ESCAPED[letter] != _NUL:
            decoded[k] = _ESCAPED[letter]
            p, k = stop + _TWO, k + _ONE
            continue
        if letter != _U:
            return NOWHERE, k
        code, p = _character(text, stop)
        if p == NOWHERE:
            return NOWHERE, k
        k = _put_character(decoded, k, code)


@inlined
def end_of_name(text, start, stop):
    """Where the name ends that the number, true or false `text[start:stop]` is as a category: `repr`, without `.0`.

    `NOWHERE` where it is written otherwise. Up to 15 digits name one float64 and are the shortest that do, so `repr`
    gives them back, without an exponent from 0.0001 on.
    """
    if text[start] == _T or text[start] == _F:
        return stop
    first = start + np.uint64(text[start] == MINUS)
    p = first
    while is_digit(text[p]):
        p += _ONE
    if p == stop:
        negative_zero = first > start and text[first] == _ZERO_DIGIT
        return NOWHERE if negative_zero or p - first > np.uint64(18) else stop
    point = p
    if text[p] != POINT or stop - first > np.uint64(16):
        return NOWHERE
    p += _ONE
    while is_digit(text[p]):
        p += _ONE
    if p != stop:
        return NOWHERE
    if text[stop - _ONE] == _ZERO_DIGIT:
        return point if stop - point == _TWO else NOWHERE
    small = text[first] == _ZERO_DIGIT and first_digits(load_digits(text, point + _ONE), np.uint64(4)) == NOWHERE
    return NOWHERE if small and stop - point > np.uint64(4) else stop
