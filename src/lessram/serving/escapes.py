"""The code of groups that have no codeword of their own: where their nonzero values are, and what they are.

A group is a sequence of pairs: how many zeros come next (the group's size if nothing but zeros follows, which ends
it), then a value. Numbers of zeros and values have a prefix code each. The value 0, which never needs a code, stands
for values that have none: such follow in plain binary.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.jit import inlined, kernel
from lessram.serving.prefix import LIMIT, Prefix, Reader, canonical, make_prefix, read_symbol, reader_of

RAW = 0
_OFFSET = 1 << 15  # of tables by value
_ENTRY_BITS = 16  # of a value in the table of a file


class Escapes(NamedTuple):
    """The two codes, as a reader needs them."""

    size: np.int64
    """Values of a group."""
    run_code: Reader
    runs: NDArray[np.uint16]
    """Numbers of zeros in canonical order."""
    value_code: Reader
    values: NDArray[np.int16]
    """Values in canonical order."""
    raw_bits: np.uint64
    """Bits of a value in plain binary, two's complement."""


class EscapeWriter(NamedTuple):
    """The two codes, as a writer needs them: by number of zeros, and by value + 2^15."""

    size: np.int64
    run_lengths: NDArray[np.uint8]
    run_codewords: NDArray[np.uint64]
    value_lengths: NDArray[np.uint8]
    value_codewords: NDArray[np.uint64]
    coded: NDArray[np.bool_]
    """Which values have a codeword."""
    raw_bits: np.uint64


class EscapeCode(NamedTuple):
    """The two codes, as a file holds them: codewords of each length, and what they stand for in canonical order."""

    size: int
    run_counts: NDArray[np.int64]
    runs: NDArray[np.uint16]
    value_counts: NDArray[np.int64]
    values: NDArray[np.int16]
    raw_bits: int

    def reader(self) -> Escapes:
        """A ValueError if the tables do not fit together."""
        for counts, names in ((self.run_counts, self.runs), (self.value_counts, self.values)):
            if len(canonical(counts).lengths) != len(names):
                raise ValueError(f"{len(names)} names for {int(counts.sum())} codewords of escapes")
        return Escapes(
            np.int64(self.size),
            reader_of(self.run_counts),
            self.runs,
            reader_of(self.value_counts),
            self.values,
            np.uint64(self.raw_bits),
        )


def plan_escapes(runs: NDArray[np.int64], values: NDArray[np.int64], raw_bits: int) -> EscapeCode:
    """The best codes for what occurs: `runs[n]` times n zeros, `values[v + 2^15]` times the value v.

    Only the most frequent values have codewords: as many as make codewords and table shortest together.
    """
    present = np.flatnonzero(values)
    present = present[np.argsort(-values[present], kind="stable")]
    kept = present[: worth_coding(values[present], raw_bits)]
    weights = np.append(values[kept], int(values.sum()) - int(values[kept].sum()))
    names = np.append(kept - _OFFSET, RAW)
    if weights[-1] == 0 and len(names) > 1:
        weights, names = weights[:-1], names[:-1]
    value_order, value_code = make_prefix(weights)
    used = np.flatnonzero(runs) if runs.any() else np.array([len(runs) - 1])
    run_order, run_code = make_prefix(runs[used])
    return EscapeCode(
        len(runs) - 1,
        run_code.counts,
        used[run_order].astype(np.uint16),
        value_code.counts,
        names[value_order].astype(np.int16),
        raw_bits,
    )


def worth_coding(counts: NDArray[np.int64], raw_bits: int) -> int:
    """How many of these values, the most frequent first, should have codewords."""
    total = max(int(counts.sum()), 1)
    rest = np.concatenate([[total], total - np.cumsum(counts)]).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        coded = np.concatenate([[0.0], np.cumsum(counts * np.log2(total / counts))])
        raw = np.where(rest > 0, rest * (raw_bits + np.log2(total / rest)), 0.0)
    cost = coded + raw + _ENTRY_BITS * np.arange(len(rest))
    return int(np.argmin(cost[: 1 << (LIMIT - 1)]))


def longest_escape(writer: EscapeWriter) -> int:
    """Bits that no escape is longer than."""
    value = max(int(writer.value_lengths.max()), int(writer.value_lengths[RAW + _OFFSET]) + int(writer.raw_bits))
    return int(writer.size) * (int(writer.run_lengths.max()) + value)


def writer_of(escapes: EscapeCode) -> EscapeWriter:
    """The same codes by what they stand for."""
    run_code, value_code = canonical(escapes.run_counts), canonical(escapes.value_counts)
    run_lengths, run_codewords = _by_name(run_code, escapes.runs, escapes.size + 1)
    value_lengths, value_codewords = _by_name(value_code, escapes.values.astype(np.int64) + _OFFSET, 2 * _OFFSET)
    coded = np.zeros(2 * _OFFSET, bool)
    coded[escapes.values.astype(np.int64) + _OFFSET] = True
    return EscapeWriter(
        np.int64(escapes.size),
        run_lengths,
        run_codewords,
        value_lengths,
        value_codewords,
        coded,
        np.uint64(escapes.raw_bits),
    )


def escape_bits(writer: EscapeWriter, runs: NDArray[np.int64], values: NDArray[np.int64]) -> int:
    """Bits of escapes that are made of these, as `count_escapes` counts them."""
    raw = np.where(writer.coded, writer.value_lengths, writer.value_lengths[RAW + _OFFSET] + int(writer.raw_bits))
    return int(runs @ writer.run_lengths) + int(values @ raw)


def _by_name(code: Prefix, names: NDArray[np.integer], size: int) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
    lengths, codewords = np.zeros(size, np.uint8), np.zeros(size, np.uint64)
    lengths[names], codewords[names] = code.lengths, code.codewords
    return lengths, codewords


@inlined
def zeros_from(units, start, position, size):
    """How many zeros stand in a group from a position on; the group's size if nothing else does."""
    end = position
    while end < size and units[start + end] == 0:
        end += 1
    return size if end == size else end - position


@inlined
def write_escape(units, start, writer):
    """The code of the group that starts at `units[start]`, and its length; beyond 64 bits the code is not whole."""
    word, length, position = np.uint64(0), np.uint64(0), np.int64(0)
    while position < writer.size:
        run = zeros_from(units, start, position, writer.size)
        if length < np.uint64(64):
            word |= writer.run_codewords[run] << length
        length += np.uint64(writer.run_lengths[run])
        if run == writer.size:
            break
        position += run
        unit = np.int64(units[start + position])
        name = (unit if writer.coded[unit + _OFFSET] else np.int64(RAW)) + _OFFSET
        if length < np.uint64(64):
            word |= writer.value_codewords[name] << length
        length += np.uint64(writer.value_lengths[name])
        if name == RAW + _OFFSET:
            if length < np.uint64(64):
                word |= (np.uint64(unit) & ((np.uint64(1) << writer.raw_bits) - np.uint64(1))) << length
            length += writer.raw_bits
        position += 1
    return word, length


@inlined
def read_value(word, escapes):
    """The value that a word begins with, and its length."""
    symbol, length = read_symbol(word, escapes.value_code)
    unit = np.int64(escapes.values[symbol])
    if unit == RAW:
        shift = np.uint64(64) - escapes.raw_bits
        unit = np.int64((word >> length) << shift) >> np.int64(shift)
        length += escapes.raw_bits
    return unit, length


@inlined
def read_escape(word, escapes, wanted):
    """The value at the wanted position of a group, and how many bits of its code tell."""
    position, length = np.int64(0), np.uint64(0)
    while True:
        symbol, bits = read_symbol(word, escapes.run_code)
        word >>= bits
        length += bits
        position += np.int64(escapes.runs[symbol])
        if position > wanted:
            return np.int64(0), length
        unit, bits = read_value(word, escapes)
        word >>= bits
        length += bits
        if position == wanted:
            return unit, length
        position += 1


@kernel
def count_escapes(units, size, chosen, runs, values):
    """Add up what the chosen groups (by number) are made of."""
    for k in range(chosen.shape[0]):
        start, position = np.int64(chosen[k]) * size, np.int64(0)
        while position < size:
            run = zeros_from(units, start, position, size)
            runs[run] += 1
            if run == size:
                break
            position += run
            values[np.int64(units[start + position]) + _OFFSET] += 1
            position += 1
