"""The group prefix code: some consecutive slots are one symbol.

Coefficients rounded to a coarse grid have an entropy far below one bit, which no codeword for a single slot can
reach; a group of slots of about three bits can be coded within a few percent of it. Common groups (patterns) have
codewords of their own in a prefix code of at most 14 bits, all others begin with the codeword of an escape.

While a store is built, groups are compared as packed fields of 2, 4, 8 or 16 bits, two's complement.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.jit import inlined, kernel
from lessram.numerics.memory_words import load_word
from lessram.serving.escapes import Escapes, EscapeWriter, read_value, write_escape
from lessram.serving.prefix import read_symbol

ESCAPE, EXCEPTION = -1, -2
"""Symbols of groups without a pattern: coded as escapes, or kept beside the ribbon because even that is too long."""

MOST_VALUES = 0xFFF0
"""Values of all patterns together: a reader knows them by numbers of 16 bits."""

_ONE = np.uint64(1)


class Shape(NamedTuple):
    """How groups are cut and packed."""

    size: np.int64
    """Slots of a group."""
    field_bits: np.int64
    """Bits of a slot's field in a pattern; 64 is a multiple."""
    words: np.int64
    """64-bit words of a pattern."""

    @classmethod
    def of(cls, size: int, field_bits: int) -> Shape:
        return cls(np.int64(size), np.int64(field_bits), np.int64(-(-size * field_bits // 64)))


class Dictionary(NamedTuple):
    """Patterns by number, and their numbers by pattern."""

    shape: Shape
    patterns: NDArray[np.uint64]
    """The words of all patterns, one pattern after the other."""
    table: NDArray[np.uint32]
    """Open addressing: 0 for nothing, else number + 1."""


class GroupWriter(NamedTuple):
    """The codewords of a dictionary's patterns, of the escape and of the exception."""

    lengths: NDArray[np.uint8]
    codewords: NDArray[np.uint64]
    escape_length: np.uint64
    escape_codeword: np.uint64
    exception_length: np.uint64
    exception_codeword: np.uint64
    escapes: EscapeWriter


def make_dictionary(shape: Shape, patterns: NDArray[np.uint64]) -> Dictionary:
    count = len(patterns) // int(shape.words)
    table = np.zeros(max(4, 1 << (2 * count).bit_length()), np.uint32)
    fill_table(patterns, shape, table)
    return Dictionary(shape, patterns, table)


def packed(units: NDArray[np.int16], shape: Shape) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """The words of all groups, and which of them have values that fit into their fields."""
    groups = len(units) // int(shape.size)
    words, fits = np.empty(groups * int(shape.words), np.uint64), np.empty(groups, bool)
    pack_all(units, shape, words, fits)
    return words, fits


def unpacked(patterns: NDArray[np.uint64], shape: Shape) -> NDArray[np.int16]:
    """The values of all patterns, one pattern after the other."""
    units = np.empty(len(patterns) // int(shape.words) * int(shape.size), np.int16)
    unpack_all(patterns, shape, units)
    return units


def hashes_of(words: NDArray[np.uint64], shape: Shape) -> NDArray[np.uint64]:
    hashes = np.empty(len(words) // int(shape.words), np.uint64)
    hash_all(words, shape, hashes)
    return hashes


@inlined
def pack(units, start, shape, words, place):
    """Write the words of the group that starts at `units[start]`; False if a value does not fit."""
    half = np.int64(1) << (shape.field_bits - 1)
    mask = (_ONE << np.uint64(shape.field_bits & 63)) - _ONE
    fits, word, shift, target = True, np.uint64(0), np.uint64(0), place
    for r in range(shape.size):
        unit = np.int64(units[start + r])
        fits &= -half <= unit < half
        word |= (np.uint64(unit) & mask) << shift
        shift += np.uint64(shape.field_bits)
        if shift == np.uint64(64):
            words[target] = word
            target += 1
            word, shift = np.uint64(0), np.uint64(0)
    if shift > np.uint64(0):
        words[target] = word
    return fits


@inlined
def hash_words(words, place, shape):
    state = np.uint64(0)
    for k in range(shape.words):
        state = (state ^ words[place + k]) * np.uint64(0x9E3779B97F4A7C15)
        state ^= state >> np.uint64(29)
    return state


@kernel
def pack_all(units, shape, words, fits):
    for i in range(fits.shape[0]):
        fits[i] = pack(units, i * shape.size, shape, words, i * shape.words)


@kernel
def hash_all(words, shape, hashes):
    for i in range(hashes.shape[0]):
        hashes[i] = hash_words(words, i * shape.words, shape)


@kernel
def fill_table(patterns, shape, table):
    mask = np.uint64(table.shape[0] - 1)
    for number in range(patterns.shape[0] // shape.words):
        place = hash_words(patterns, number * shape.words, shape) & mask
        while table[place] != 0:
            place = (place + _ONE) & mask
        table[place] = np.uint32(number + 1)


@inlined
def number_of(words, dictionary):
    """The number of the pattern with these words, or ESCAPE."""
    shape = dictionary.shape
    mask = np.uint64(dictionary.table.shape[0] - 1)
    place = hash_words(words, 0, shape) & mask
    while dictionary.table[place] != 0:
        number = np.int64(dictionary.table[place]) - 1
        same = True
        for k in range(shape.words):
            same &= dictionary.patterns[number * shape.words + k] == words[k]
        if same:
            return number
        place = (place + _ONE) & mask
    return np.int64(ESCAPE)


@kernel
def find_symbols(units, dictionary, scratch, symbols):
    """The symbol of each group: the number of its pattern, or ESCAPE. `scratch` holds the words of one group."""
    for i in range(symbols.shape[0]):
        fits = pack(units, i * dictionary.shape.size, dictionary.shape, scratch, 0)
        symbols[i] = number_of(scratch, dictionary) if fits else ESCAPE


@kernel
def write_groups(units, symbols, writer, lengths, codewords):
    """The codeword of each group. Escapes that are too long become EXCEPTION in `symbols`."""
    for i in range(symbols.shape[0]):
        symbol = symbols[i]
        if symbol >= 0:
            lengths[i] = writer.lengths[symbol]
            codewords[i] = writer.codewords[symbol]
            continue
        word, length = write_escape(units, i * writer.escapes.size, writer.escapes)
        if writer.escape_length + length <= np.uint64(64):
            lengths[i] = np.uint8(writer.escape_length + length)
            codewords[i] = writer.escape_codeword | (word << writer.escape_length)
        else:
            symbols[i] = EXCEPTION
            lengths[i] = np.uint8(writer.exception_length)
            codewords[i] = writer.exception_codeword


@kernel
def escape_lengths(units, chosen, writer, lengths):
    """How long the escapes of the chosen groups (by number) would be."""
    for k in range(chosen.shape[0]):
        _, length = write_escape(units, np.int64(chosen[k]) * writer.size, writer)
        lengths[k] = length


@inlined
def field_of(patterns, shape, number, position):
    """The value at a position of a pattern."""
    offset = np.uint64(position) * np.uint64(shape.field_bits)
    word = patterns[np.uint64(number) * np.uint64(shape.words) + (offset >> np.uint64(6))] >> (offset & np.uint64(63))
    shift = np.uint64(64 - shape.field_bits)
    return np.int64(word << shift) >> np.int64(shift)


@kernel
def unpack_all(patterns, shape, units):
    for number in range(patterns.shape[0] // shape.words):
        for position in range(shape.size):
            units[number * shape.size + position] = field_of(patterns, shape, number, position)


# Patterns are themselves written as escapes: most of them are mostly zeros, and a file holds them in a quarter of
# the bits of their fields.


def write_patterns(dictionary: Dictionary, writer: EscapeWriter) -> NDArray[np.uint8]:
    """All patterns as one string of escapes, with room behind it for a reader of words."""
    units = unpacked(dictionary.patterns, dictionary.shape)
    count = len(units) // int(dictionary.shape.size)
    string = np.zeros(8 * count + 16, np.uint8)
    bits = append_escapes(units, count, writer, string)
    return string[: (bits + 7) // 8 + 16]


def read_patterns(string: NDArray[np.uint8], count: int, escapes: Escapes) -> NDArray[np.int16]:
    """The values of so many patterns, one pattern after the other. A ValueError if the string ends early."""
    units = np.zeros(max(count, 1) * int(escapes.size), np.int16)
    if len(string) < 16 or parse_escapes(string, count, escapes, units) > 8 * (len(string) - 16):
        raise ValueError("the table of patterns ends early")
    return units


@kernel
def append_escapes(units, count, writer, string):
    """Write groups as escapes, bit behind bit; returns how many bits."""
    end = np.int64(0)
    for i in range(count):
        word, length = write_escape(units, i * writer.size, writer)
        for j in range(np.int64(length)):
            bit = np.uint8((word >> np.uint64(j)) & _ONE)
            string[(end + j) >> 3] |= np.uint8(bit << np.uint8((end + j) & 7))
        end += np.int64(length)
    return end


@inlined
def word_at(string, bit):
    """64 bits of a string from a bit on; never looks behind its end."""
    byte, shift = np.uint64(bit) >> np.uint64(3), np.uint64(bit) & np.uint64(7)
    byte = min(byte, np.uint64(string.shape[0] - 16))
    first, second = load_word(string, byte), load_word(string, byte + np.uint64(8))
    return (first >> shift) | ((second << _ONE) << (np.uint64(63) - shift))


@kernel
def parse_escapes(string, count, escapes, units):
    """Read groups that `append_escapes` wrote; returns how many bits they took. `units` come in as zeros."""
    end = np.int64(0)
    for i in range(count):
        word, position = word_at(string, end), np.int64(0)
        while position < escapes.size:
            symbol, bits = read_symbol(word, escapes.run_code)
            word >>= bits
            end += np.int64(bits)
            position += np.int64(escapes.runs[symbol])
            if position >= escapes.size:
                break
            unit, bits = read_value(word, escapes)
            word >>= bits
            end += np.int64(bits)
            units[i * escapes.size + position] = unit
            position += 1
    return end
