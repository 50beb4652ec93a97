"""What every text parser shares: runs of digits eight at a time, and exact decimal numbers.

Text is a uint8 array that ends in a newline and has `PADDING` readable bytes behind it, so that words
and vectors may be loaded from any byte of it without a test.

Numbers equal `np.float32(float(s))`, bit for bit. Up to 8 digits take a handful of instructions: m / 10^f
is one correctly rounded division of two exact doubles. Longer ones are decided by a 128-bit product with
a table of powers of five (Lemire, "Number parsing at a gigabyte per second", 2021), which is exact for up
to 19 digits. Of longer ones still, only those that lie within 10^-19 of the middle between two float32
numbers stay `UNDECIDED`; Python's `float` decides these.
"""

from __future__ import annotations

import numpy as np

from lessram.data.scanning import LANES, choose, mask_of
from lessram.jit import inlined, kernel
from lessram.numerics.machine import bits_to_double
from lessram.numerics.memory_words import bits_set, leading_zeros, load_word, multiply_high, trailing_zeros

PADDING = 64
"""Readable bytes behind every text."""

BROKEN, DECIDED, TOO_LARGE, UNDECIDED = 0, 1, 2, 3  # what became of a number

NEWLINE, RETURN, SPACE, HASH, PLUS, MINUS, POINT, COLON = (np.uint8(ord(c)) for c in "\n\r #+-.:")

_ASCII_ZEROS = np.uint64(0x3030303030303030)
_SIX = np.uint64(0x7676767676767676)  # carries into the top bit of a byte above 9
_TOPS = np.uint64(0x8080808080808080)


@inlined
def load_digits(text, p):
    """Eight bytes from `p` on, the digits among them as 0..9 and nothing else so."""
    return load_word(text, p) ^ _ASCII_ZEROS


@inlined
def digit_run(word):
    """How many bytes at the start of `load_digits` are digits: 0..8."""
    return trailing_zeros(((word + _SIX) | word) & _TOPS) >> np.uint64(3)


@inlined
def eight_digits(word):
    """The number that eight digits (bytes 0..9, the first one lowest) spell: pairs, then fours, then all."""
    word = ((word * np.uint64(1 + (10 << 8))) >> np.uint64(8)) & np.uint64(0x00FF00FF00FF00FF)
    word = ((word * np.uint64(1 + (100 << 16))) >> np.uint64(16)) & np.uint64(0x0000FFFF0000FFFF)
    return (word * np.uint64(1 + (10000 << 32))) >> np.uint64(32)


@inlined
def first_digits(word, count):
    """The number that the first `count` digits (1..8) of `load_digits` spell."""
    return eight_digits(word << (np.uint64(64) - (count << np.uint64(3))))


@inlined
def usual_label(text, p, real):
    """The label at `p`, its end, and whether it is 0, 1, +1 or -1 (which is 0 unless labels are `real`) and a space.

    Labels cannot be predicted, so no jump depends on which of them it is.
    """
    minus = np.uint64(text[p] == MINUS)
    signed = minus | np.uint64(text[p] == PLUS)
    digit, end = np.uint64(text[p + signed]) - np.uint64(48), p + signed + np.uint64(1)
    good = ((digit == np.uint64(1)) | (digit + signed == np.uint64(0))) & (text[end] == SPACE)
    size = np.float32(np.int64(digit))
    return size - size * np.float32(np.int64(minus << np.uint64(real))), end, good


@inlined
def is_blank(c):
    """Space, tab, vertical tab, form feed, carriage return: what stands between the words of a line."""
    return c == SPACE or c == np.uint8(9) or (np.uint8(11) <= c <= np.uint8(13))


@inlined
def without_blanks(text, start, stop):
    """Where the word begins and ends that has nothing but blanks around it in `text[start:stop]`."""
    while start < stop and text[start] == SPACE:
        start += np.uint64(1)
    while start < stop and text[stop - np.uint64(1)] == SPACE:
        stop -= np.uint64(1)
    return start, stop


@inlined
def is_line_end(text, p):
    """Whether a line ends here, as on Unix or as on Windows."""
    return text[p] == NEWLINE or (text[p] == RETURN and text[p + np.uint64(1)] == NEWLINE)


@inlined
def line_end(text, p):
    """Where the line that holds `p` ends: the place of its newline."""
    while text[p] != NEWLINE:
        p += np.uint64(1)
    return p


_newlines = mask_of(b"\n")


@kernel
def count_newlines(text, size):
    """How many of the first `size` bytes are newlines; the text has `PADDING` bytes behind them."""
    total = np.uint64(0)
    p, size = np.uint64(0), np.uint64(size)
    while p + np.uint64(LANES) <= size:
        total += bits_set(_newlines(text, p))
        p += np.uint64(LANES)
    rest = (np.uint64(1) << (size - p)) - np.uint64(1)
    return total + bits_set(_newlines(text, p) & rest)


# Powers of five, 128 bits each, for m * 10^e with m < 10^19: below 10^-65 all is 0 in float32, above 10^38 too large.
_LEAST, _MOST = -65, 38
_LARGEST_EXPONENT = 10**9


def _power_of_five(exponent: int) -> int:
    """The leading 128 bits of 5^exponent; of reciprocals that fit a word, rounded up, so that ties are seen."""
    if exponent >= 0:
        power = 5**exponent
        return power << (128 - power.bit_length()) if power.bit_length() <= 128 else power >> (power.bit_length() - 128)
    power = 5**-exponent
    reciprocal = (1 << (2 * power.bit_length() + 128)) // power + 1
    if exponent >= -27:
        reciprocal = (1 << (power.bit_length() + 127)) // power + 1
    return reciprocal >> (reciprocal.bit_length() - 128)


_POWERS = [_power_of_five(e) for e in range(_LEAST, _MOST + 1)]
_POWER_HIGH = np.array([power >> 64 for power in _POWERS], np.uint64)
_POWER_LOW = np.array([power & (1 << 64) - 1 for power in _POWERS], np.uint64)
_WHOLE_POWER_OF_TEN = np.array([10**e for e in range(9)], np.uint64)
_POWER_OF_TEN = 10.0 ** np.arange(23)  # all exact


@inlined
def _nearest_double(mantissa, exponent):
    """The float64 nearest to mantissa * 10^exponent; 0 < mantissa < 10^19, _LEAST <= exponent <= _MOST."""
    shift = leading_zeros(mantissa)
    mantissa = mantissa << shift
    high = multiply_high(mantissa, _POWER_HIGH[exponent - _LEAST])
    low = mantissa * _POWER_HIGH[exponent - _LEAST]
    more = multiply_high(mantissa, _POWER_LOW[exponent - _LEAST])
    low += more
    if low < more:
        high += np.uint64(1)
    top = high >> np.uint64(63)
    drop = top + np.uint64(9)  # 54 bits stay: the significand and one to round by
    significand = high >> drop
    tie = low <= np.uint64(1) and -4 <= exponent <= 23 and (significand << drop) == high
    if tie and significand & np.uint64(3) == np.uint64(1):
        significand -= np.uint64(1)
    significand = (significand + (significand & np.uint64(1))) >> np.uint64(1)
    binary = ((217706 * exponent) >> 16) + 1086 + np.int64(top) - np.int64(shift)  # 217706 / 2^16 = log2(10)
    return bits_to_double((binary << 52) + np.int64(significand) - (1 << 52))


@inlined
def _digits(text, p, mantissa):
    """Read digits into the mantissa while it has room. Returns it, the digits' end, and the number left out."""
    while mantissa < np.uint64(10**11):
        word = load_digits(text, p)
        count = digit_run(word)
        if count == np.uint64(0):
            return mantissa, p, 0, False
        mantissa = mantissa * _WHOLE_POWER_OF_TEN[count] + first_digits(word, count)
        p += count
    left_out, rest = 0, False
    while True:
        digit = np.uint64(text[p]) - np.uint64(48)
        if digit > np.uint64(9):
            return mantissa, p, left_out, rest
        if mantissa < np.uint64(10**18):
            mantissa = mantissa * np.uint64(10) + digit
        else:
            left_out += 1
            rest |= digit != np.uint64(0)
        p += np.uint64(1)


@inlined
def _exponent(text, p):
    """The number behind an `e`, and its end; the end is `p` where there is none.

    What is larger than `_LARGEST_EXPONENT` counts as that: no line has as many digits as would undo it.
    """
    negative = text[p] == MINUS
    first = p + np.uint64(negative or text[p] == PLUS)
    last, exponent = first, 0
    while np.uint64(text[last]) - np.uint64(48) <= np.uint64(9):
        exponent = min(exponent * 10 + np.int64(text[last]) - 48, _LARGEST_EXPONENT)
        last += np.uint64(1)
    return (-exponent if negative else exponent), (p if last == first else last)


@inlined
def _decide(mantissa, exponent, rest):
    """mantissa * 10^exponent, and `rest` says that it is a little more: its float32 and what became of it."""
    if mantissa == np.uint64(0) or exponent < _LEAST:
        return np.float32(0), DECIDED
    if exponent > _MOST:
        return np.float32(0), TOO_LARGE
    value = np.float32(_nearest_double(mantissa, exponent))
    if rest and value != np.float32(_nearest_double(mantissa + np.uint64(1), exponent)):
        return value, UNDECIDED
    return value, (DECIDED if np.isfinite(value) else TOO_LARGE)


@kernel
def any_number(text, p):
    """Any decimal number: sign, digits, point, digits, exponent. Returns float32, end, what became of it."""
    negative = text[p] == MINUS
    first = p + np.uint64(negative or text[p] == PLUS)
    mantissa, end, dropped, rest = _digits(text, first, np.uint64(0))
    exponent, digits = dropped, end - first
    if text[end] == POINT:
        point = end
        mantissa, end, dropped, more = _digits(text, point + np.uint64(1), mantissa)
        fraction = end - point - np.uint64(1)
        exponent -= np.int64(fraction) - dropped
        digits += fraction
        rest |= more
    if digits == np.uint64(0):
        return np.float32(0), p, BROKEN
    if text[end] | np.uint8(32) == np.uint8(101):  # e or E
        power, last = _exponent(text, end + np.uint64(1))
        if last == end + np.uint64(1):
            return np.float32(0), p, BROKEN
        exponent += power
        end = last
    value, state = _decide(mantissa, exponent, rest)
    return (-value if negative else value), end, state


@inlined
def number(text, p):
    """A decimal number at `p`; up to 8 digits with or without a point in one step. Returns as `any_number`."""
    word = load_digits(text, p)
    whole = digit_run(word)
    if whole - np.uint64(1) < np.uint64(7):
        count, end = whole, p + whole
        if text[end] == POINT:
            word = _without_byte(word, load_digits(text, p + np.uint64(1)), whole)
            count = digit_run(word)
            end = p + count + np.uint64(1)
        if text[end] <= SPACE:  # a digit, an exponent or anything else there is not for here
            value = np.float64(np.int64(first_digits(word, count))) / _POWER_OF_TEN[count - whole]
            return np.float32(value), end, DECIDED
    return any_number(text, p)


@inlined
def _without_byte(word, next_word, n):
    """The bytes of `word` without byte `n` (0..7); `next_word` begins one byte later in memory."""
    before = (np.uint64(1) << (n << np.uint64(3))) - np.uint64(1)
    return (word & before) | (next_word & ~before)


@inlined
def short_whole(text, start, stop):
    """The number that text[start:stop] spells, and whether that is 1 to 8 digits and nothing else."""
    count = stop - start
    word = load_digits(text, start) << ((np.uint64(0) - (count << np.uint64(3))) & np.uint64(63))
    return eight_digits(word), _all_digits(word) & (count - np.uint64(1) < np.uint64(8))


@inlined
def _all_digits(word):
    return ((word + _SIX) | word) & _TOPS == np.uint64(0)


@inlined
def short_number(text, start, stop):
    """The float32 that text[start:stop] spells, and whether that is a short number: up to 8 digits, perhaps a minus
    before them and a point among them. Signs and lengths cannot be predicted, so no jump depends on them."""
    negative = text[start] == MINUS
    start += np.uint64(negative)
    word = load_digits(text, start)
    whole = digit_run(word)
    count, fraction = stop - start, np.uint64(0)
    if text[start + whole] == POINT:
        word = _without_byte(word, load_digits(text, start + np.uint64(1)), whole & np.uint64(7))
        count -= np.uint64(1)
        fraction = (count - whole) & np.uint64(15)
    digits = word << ((np.uint64(0) - (count << np.uint64(3))) & np.uint64(63))
    good = _all_digits(digits) & (count - np.uint64(1) < np.uint64(8))
    value = np.float32(np.float64(np.int64(eight_digits(digits))) / _POWER_OF_TEN[fraction])
    return choose(negative, -value, value), good


@inlined
def unit_decimal(text, start, stop):
    """As `short_number`, for one digit, a point and 1 to 8 digits: what values of about 1 look like most often."""
    negative = text[start] == MINUS
    start += np.uint64(negative)
    unit = np.uint64(text[start]) - np.uint64(48)
    count = stop - start - np.uint64(2)
    fraction, good = short_whole(text, start + np.uint64(2), stop)
    power = _POWER_OF_TEN[count & np.uint64(15)]
    # Below 10^9, so exact; the one rounding is that of the division.
    value = np.float32((np.float64(np.int64(unit)) * power + np.float64(np.int64(fraction))) / power)
    return choose(negative, -value, value), good & (unit <= np.uint64(9)) & (text[start + np.uint64(1)] == POINT)


@inlined
def long_decimal(text, start, stop):
    """As `short_number`, for up to 19 digits with a point among them: at most 8 before it, 1 to 16 behind it."""
    negative = text[start] == MINUS
    start += np.uint64(negative)
    word = load_digits(text, start)
    whole = digit_run(word)
    first = start + whole + np.uint64(1)
    count = stop - first
    if whole == np.uint64(0) or text[first - np.uint64(1)] != POINT or whole + count > np.uint64(19):
        return np.float32(0), False
    mantissa, good = first_digits(word, whole), True
    split = first
    if count > np.uint64(8):
        split = first + np.uint64(8)
        high, good = short_whole(text, first, split)
        mantissa = mantissa * np.uint64(10**8) + high
    low, fine = short_whole(text, split, stop)
    if not (good and fine):
        return np.float32(0), False
    value, _ = _decide(mantissa * _WHOLE_POWER_OF_TEN[stop - split] + low, -np.int64(count), False)
    return (-value if negative else value), True
