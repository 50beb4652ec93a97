"""The code of groups, settled: the planned patterns counted over all values, and the best codewords for them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.serving.escapes import EscapeCode, count_escapes, escape_bits, longest_escape, plan_escapes, writer_of
from lessram.serving.groups import (
    ESCAPE,
    Dictionary,
    GroupWriter,
    escape_lengths,
    find_symbols,
    make_dictionary,
    unpacked,
)
from lessram.serving.pieces import PIECE, Pieces, Units
from lessram.serving.prefix import Prefix, make_prefix
from lessram.serving.ribbon import LONGEST


class GroupCode(NamedTuple):
    """The code of groups, settled."""

    dictionary: Dictionary
    prefix: Prefix
    escape: int
    """The escape's place in canonical order; -1 if every group has a pattern."""
    exception: int
    """The exception's; -1 if no escape can be too long."""
    escapes: EscapeCode
    groups: int
    bits: int
    """Of all codewords together, nearly: exceptions are counted as escapes."""


def settle(pieces: Pieces, dictionary: Dictionary, limit: int, raw_bits: int) -> GroupCode:
    """Count the symbols of a dictionary over everything, and make the best code for them."""
    size = int(dictionary.shape.size)
    counts = np.zeros(len(dictionary.patterns) // int(dictionary.shape.words), np.int64)
    runs, values = np.zeros(size + 1, np.int64), np.zeros(1 << 16, np.int64)
    groups = 0
    for units in pieces.in_lengths(PIECE // size * size, size):
        symbols = symbols_of(units, dictionary)
        groups += len(symbols)
        counts += np.bincount(symbols[symbols >= 0], minlength=len(counts))
        count_escapes(units, size, np.flatnonzero(symbols == ESCAPE), runs, values)
    return _code(dictionary, limit, counts, runs, values, groups, raw_bits)


def symbols_of(units: Units, dictionary: Dictionary) -> NDArray[np.int32]:
    symbols = np.empty(len(units) // int(dictionary.shape.size), np.int32)
    find_symbols(units, dictionary, np.zeros(int(dictionary.shape.words), np.uint64), symbols)
    return symbols


def _code(
    dictionary: Dictionary,
    limit: int,
    counts: NDArray[np.int64],
    runs: NDArray[np.int64],
    values: NDArray[np.int64],
    groups: int,
    raw_bits: int,
) -> GroupCode:
    shape = dictionary.shape
    used = np.flatnonzero(counts)
    patterns = dictionary.patterns.reshape(-1, int(shape.words))[used]
    units = unpacked(patterns.reshape(-1), shape)
    escaped_runs, escaped_values = runs.copy(), values.copy()
    count_escapes(units, int(shape.size), np.arange(len(used)), runs, values)  # patterns are written as escapes
    escapes = plan_escapes(runs, values, raw_bits)
    writer = writer_of(escapes)
    lengths = np.empty(len(used), np.uint64)
    escape_lengths(units, np.arange(len(used)), writer, lengths)
    short = lengths <= LONGEST
    weights, patterns = counts[used[short]], patterns[short]
    escaped = groups - int(weights.sum())
    if escaped:
        exceptions = int(counts[used[~short]].sum())
        weights = np.append(weights, max(escaped - exceptions, 1))
        if longest_escape(writer) > LONGEST - limit:
            weights = np.append(weights, max(exceptions, escaped >> 10, 1))
    order, prefix = make_prefix(weights, limit)
    special = len(patterns)
    bits = int(weights @ prefix.lengths[np.argsort(order)]) + escape_bits(writer, escaped_runs, escaped_values)
    return GroupCode(
        make_dictionary(shape, patterns[order[order < special]].reshape(-1)),
        prefix,
        _place(order, special),
        _place(order, special + 1),
        escapes,
        groups,
        bits,
    )


def _place(order: NDArray[np.int64], symbol: int) -> int:
    return int(np.flatnonzero(order == symbol)[0]) if symbol < len(order) else -1


def group_writer(code: GroupCode) -> GroupWriter:
    """The codewords by the numbers of patterns."""
    lengths, codewords = code.prefix.lengths, code.prefix.codewords
    special = [place for place in (code.escape, code.exception) if place >= 0]
    return GroupWriter(
        np.delete(lengths, special),
        np.delete(codewords, special),
        np.uint64(lengths[code.escape]),  # where there is no escape, some codeword's: it is never asked for
        codewords[code.escape],
        np.uint64(lengths[code.exception]),
        codewords[code.exception],
        writer_of(code.escapes),
    )
