"""Reading coded values, many at a time.

A piece of slots goes through four loops: where each one's codeword starts in the ribbon, with a request for the
memory; then their polynomials, in vectors; then all codewords and what they stand for; then the few that are escapes.
Memory latency is paid in the first loop only, and no loop waits for another value's code.

Hot values. Features of real rows follow a power law: a small table of values that were read before answers for most
of them. An entry is one 32-bit word, slot, trust and value together, so that threads may read and write it without
locks: whoever comes last wins, and every word is true. A slot that is met again is trusted, and one that is trusted
gives way only after other slots have asked for its entry three times, so the long tail does not wash out the frequent.
One piece of eight changes the table; the others only read it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.jit import inlined, kernel, overloaded, types
from lessram.numerics.memory_words import multiply_high
from lessram.serving.escapes import Escapes, read_escape
from lessram.serving.ribbon import READABLE, Ribbon, ask_for, codeword, codeword_bits, polynomial, start_column

PIECE = 256
"""Slots that are looked up together."""
ESCAPED, EXCEPTED = np.uint16(0xFFFF), np.uint16(0xFFFE)
"""What the table of codewords says of groups without a pattern."""

_READABLE_BITS = np.uint64((1 << READABLE) - 1)
_NEAR = 1 << 19  # bytes of a ribbon that is soon in a second-level cache as a whole
_TAUGHT_BY = 8  # one of so many pieces changes the hot values
_POSITIONS, _COLUMNS, _LOWS, _HIGHS = (np.uint64(plane * PIECE) for plane in range(1, 5))  # of `Scratch.numbers`
_ESCAPED = np.uint64(PIECE)  # of `Scratch.places`
_ONE = np.uint64(1)
_VALUE, _NAME_SHIFT = np.uint64(0xFFFF), np.uint64(18)
_TRUST, _TRUST_UNIT = np.uint64(3 << 16), np.uint64(1 << 16)
_MOST_NAMES = (1 << 14) - 1


class Coded(NamedTuple):
    """Everything that a lookup needs."""

    ribbon: Ribbon
    size: np.uint64
    """Slots of a group."""
    inverse: np.uint64
    """2^63 / size, rounded up: a product instead of a division."""
    group_shift: np.uint64
    """Groups of a superblock: 2^group_shift."""
    starts: NDArray[np.uint16]
    """Where in `patterns` the group begins that each codeword stands for, by words of as many bits as the longest
    codeword; ESCAPED or EXCEPTED."""
    mask: np.uint64
    """The bits of such a word."""
    patterns: NDArray[np.int16]
    """The values of common groups, one group after the other."""
    escapes: Escapes
    escape_length: np.uint64
    """Bits of the codeword before an escape."""
    exception_groups: NDArray[np.uint64]
    exception_units: NDArray[np.int16]
    """Of each of these groups in turn, its values."""


class Hot(NamedTuple):
    """Values read before. The entry of a slot is at its low bits; it holds its high bits plus 1, trust and value."""

    words: NDArray[np.uint32]
    """High bits plus 1 times 2^18, plus trust times 2^16, plus the value modulo 2^16; 0 where there is none."""
    mask: np.uint64
    """Entries less one; 0 if there are no hot values."""
    shift: np.uint64
    """Low bits of a slot that say where its entry is."""


class Scratch(NamedTuple):
    """What a piece of slots is worked on with. Planes of one array share an address: registers are scarce here."""

    numbers: NDArray[np.uint64]
    """Of those that are not hot: a plane each for group, position in it, column, and the polynomial's two words."""
    places: NDArray[np.uint32]
    """Places in the piece that are not hot; then, of those, the ones whose groups have no pattern."""
    units: NDArray[np.int32]
    """The values."""

    @classmethod
    def new(cls) -> Scratch:
        return cls(np.empty(5 * PIECE, np.uint64), np.empty(2 * PIECE, np.uint32), np.empty(PIECE, np.int32))


def no_hot() -> Hot:
    return Hot(np.zeros(1, np.uint32), np.uint64(0), np.uint64(0))


def new_hot(nbytes: int, slots: int) -> Hot:
    """Room for hot values of a table: the largest power of two of 4-byte entries in so many bytes.

    None if an entry could not name its slot: that takes an entry for every 2^14 slots.
    """
    shift = max((nbytes // 4).bit_length() - 1, 0)
    if shift == 0 or slots >> shift >= _MOST_NAMES:
        return no_hot()
    return Hot(np.zeros(1 << shift, np.uint32), np.uint64((1 << shift) - 1), np.uint64(shift))


@inlined
def group_start(coded, group):
    """The first column of a group's codeword."""
    fraction = (group << (np.uint64(32) - coded.group_shift)) & np.uint64(0xFFFFFFFF)
    return start_column(coded.ribbon, group >> coded.group_shift, fraction)


@inlined
def find_cold(hot, slots, first, count, scratch):
    """Fill in the hot values; lists the places of the others and returns their number."""
    cold = np.uint64(0)
    if hot.mask == np.uint64(0):
        for k in range(count):
            scratch.places[k] = np.uint32(k)
        return count
    for k in range(count):
        slot = np.uint64(slots[first + k])
        word = hot.words[slot & hot.mask]
        scratch.units[k] = np.int32(np.int16(word))
        scratch.places[cold] = np.uint32(k)
        cold += np.uint64(np.uint64(word) >> _NAME_SHIFT != (slot >> hot.shift) + _ONE)
    return cold


@inlined
def teach_hot(hot, slots, first, count, scratch):
    """Trust the values that were hot; the others take the entries that are not trusted, and weaken those that are."""
    for k in range(count):
        slot = np.uint64(slots[first + k])
        word, name = np.uint64(hot.words[slot & hot.mask]), (slot >> hot.shift) + _ONE
        fresh = (name << _NAME_SHIFT) | (np.uint64(scratch.units[k]) & _VALUE)
        taught = choose(word & _TRUST != np.uint64(0), word - _TRUST_UNIT, fresh)
        hot.words[slot & hot.mask] = np.uint32(choose(word >> _NAME_SHIFT == name, word | _TRUST, taught))


@inlined
def choose(condition, yes, no):
    """One of two words, without a branch that nobody could foresee."""
    return no ^ ((no ^ yes) & (np.uint64(0) - np.uint64(condition)))


@inlined
def fetch(coded, hot, slots, first, count, scratch):
    """The values of a piece of slots, into `scratch.units`."""
    cold = find_cold(hot, slots, first, count, scratch)
    large = coded.ribbon.bits.shape[0] > _NEAR
    numbers = scratch.numbers
    for j in range(cold):
        slot = np.uint64(slots[first + np.uint64(scratch.places[j])])
        group = multiply_high(slot << _ONE, coded.inverse)
        column = group_start(coded, group)
        if large:
            ask_for(coded.ribbon, column)
        numbers[j] = group
        numbers[_POSITIONS + j] = slot - group * coded.size
        numbers[_COLUMNS + j] = column
    for j in range(cold):  # a loop of its own: it becomes vectors
        numbers[_LOWS + j], numbers[_HIGHS + j] = polynomial(numbers[j])
    escaped = _ESCAPED
    for j in range(cold):
        word = codeword_bits(coded.ribbon.bits, numbers[_COLUMNS + j], numbers[_LOWS + j], numbers[_HIGHS + j])
        start = coded.starts[word & coded.mask]
        scratch.places[escaped] = np.uint32(j)
        special = start >= EXCEPTED
        escaped += np.uint64(special)
        unit = coded.patterns[(np.uint64(0) if special else np.uint64(start)) + numbers[_POSITIONS + j]]
        scratch.units[scratch.places[j]] = unit
    for e in range(_ESCAPED, escaped):
        j = np.uint64(scratch.places[e])
        scratch.units[scratch.places[j]] = read_special(coded, numbers, j)
    if hot.mask != np.uint64(0) and teaches(first, count, cold):
        teach_hot(hot, slots, first, count, scratch)


@inlined
def teaches(first, count, cold):
    """Whether a piece changes the hot values: one of eight, those of small batches, and any that is mostly cold."""
    # Not by its place alone: of a batch that comes again, other pieces should.
    turn = (first // np.uint64(PIECE) + cold) % np.uint64(_TAUGHT_BY)
    return turn == np.uint64(0) or count < np.uint64(PIECE) or cold + cold > count


@inlined
def read_special(coded, numbers, j):
    """The value of a slot whose group has no pattern: number j of those that are not hot."""
    group, position, column = numbers[j], np.int64(numbers[_POSITIONS + j]), numbers[_COLUMNS + j]
    low, high = numbers[_LOWS + j], numbers[_HIGHS + j]
    word = codeword_bits(coded.ribbon.bits, column, low, high)
    if coded.starts[word & coded.mask] == ESCAPED:
        # Twice the bits of one load do for nearly all.
        more = codeword_bits(coded.ribbon.bits, column + np.uint64(READABLE), low, high)
        word = (word & _READABLE_BITS) | ((more & _READABLE_BITS) << np.uint64(READABLE))
        unit, length = read_escape(word >> coded.escape_length, coded.escapes, position)
        if coded.escape_length + length > np.uint64(2 * READABLE):
            word = codeword(coded.ribbon.bits, column, low, high)
            unit, length = read_escape(word >> coded.escape_length, coded.escapes, position)
        return np.int32(unit)
    found, last = np.int64(0), np.int64(coded.exception_groups.shape[0])
    while found < last:
        middle = (found + last) >> 1
        if coded.exception_groups[middle] < group:
            found = middle + 1
        else:
            last = middle
    if found < coded.exception_groups.shape[0]:
        return np.int32(coded.exception_units[found * np.int64(coded.size) + position])
    return np.int32(0)


@kernel
def look_up(coded, hot, slots, scratch, units):
    """The values of slots."""
    total = np.uint64(slots.shape[0])
    first = np.uint64(0)
    while first < total:
        count = min(np.uint64(PIECE), total - first)
        fetch(coded, hot, slots, first, count, scratch)
        for k in range(count):
            units[first + k] = scratch.units[k]
        first += count


def add_row(total: Any, units: Any, values: Any, piece: Any, start: Any, stop: Any) -> Any:
    """Add unit times value of features start to stop to a row's total; the piece's first feature is `piece`."""
    raise NotImplementedError("add_row() is for kernels")


@overloaded(add_row)
def _add_row(total, units, values, piece, start, stop):
    if isinstance(values, types.NoneType):

        def add_ones(total, units, values, piece, start, stop):
            whole = np.int64(0)  # integers add up in vectors, and float64 holds their sum exactly
            for k in range(start - piece, stop - piece):
                whole += np.int64(units[k])
            return total + np.float64(whole)

        return add_ones

    def add_products(total, units, values, piece, start, stop):
        for k in range(start - piece, stop - piece):
            total += np.float64(units[k]) * np.float64(values[piece + k])
        return total

    return add_products


@kernel
def predict_rows(coded, hot, batch, scratch, factors, margins):
    """The margin of each row: `factors` are the grid's step, the inverse scale and the intercept."""
    place, stop = np.uint64(batch.indptr[0]), np.uint64(batch.indptr[batch.indptr.shape[0] - 1])
    rows = np.uint64(margins.shape[0])
    row, total = np.uint64(0), 0.0
    while row < rows:
        piece, count = place, min(np.uint64(PIECE), stop - place)
        fetch(coded, hot, batch.slots, piece, count, scratch)
        while row < rows:
            end = np.uint64(batch.indptr[row + _ONE])
            until = min(end, piece + count)
            total = add_row(total, scratch.units, batch.values, piece, place, until)
            place = until
            if end > piece + count:
                break
            margins[row] = total * factors[0] * factors[1] + factors[2]
            row, total = row + _ONE, 0.0
