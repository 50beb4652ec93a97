"""Prefix codes of limited length: optimal lengths, canonical codewords, two ways to read them.

A code is known by how many codewords it has of each length. Symbols are numbered in canonical order, shorter
codewords first; codewords of one length are consecutive numbers, most significant bit first in the stream. A code
of one symbol has one codeword of length 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.jit import inlined
from lessram.numerics.carryless import reverse_bits
from lessram.numerics.vector import LANES, count_at_most

LIMIT = 14
"""Bits of the longest codeword that any code may have: what one load from a ribbon gives."""


class Prefix(NamedTuple):
    """A code, its symbols in canonical order."""

    counts: NDArray[np.int64]
    """Codewords of each length, 0 to LIMIT."""
    lengths: NDArray[np.uint8]
    codewords: NDArray[np.uint64]
    """Bit j is the j-th of the stream."""


def limited_lengths(weights: NDArray[np.integer], limit: int = LIMIT) -> NDArray[np.int64]:
    """Lengths of an optimal prefix code of at most `limit` bits, by the package-merge algorithm.

    On each of `limit` levels every symbol is a coin that costs its weight; pairs of the cheapest coins of a level are
    coins of the next. The cheapest 2n - 2 coins of the last level say how often each symbol was paid: its length.

    >>> limited_lengths(np.array([8, 4, 2, 1, 1])).tolist()
    [1, 2, 3, 4, 4]
    """
    count = len(weights)
    order = np.argsort(weights, kind="stable")
    leaves = np.asarray(weights, np.float64)[order]
    packages = np.empty(0)
    levels = []
    for _ in range(limit):
        coins = np.concatenate([leaves, packages])
        cheapest = np.argsort(coins, kind="stable")
        levels.append(cheapest < count)
        coins = coins[cheapest]
        packages = coins[0 : len(coins) - 1 : 2] + coins[1::2]
    lengths = np.zeros(count, np.int64)
    bought = 2 * count - 2
    for is_leaf in reversed(levels):
        paid = int(np.count_nonzero(is_leaf[:bought]))
        lengths[order[:paid]] += 1
        bought = 2 * (bought - paid)
    return lengths


def make_prefix(weights: NDArray[np.integer], limit: int = LIMIT) -> tuple[NDArray[np.int64], Prefix]:
    """The symbols in canonical order, and their code."""
    lengths = limited_lengths(weights, limit)
    order = np.argsort(lengths, kind="stable")
    return order, canonical(np.bincount(lengths, minlength=LIMIT + 1))


def canonical(counts: NDArray[Any]) -> Prefix:
    """The code with so many codewords of each length. A ValueError if there is none.

    >>> canonical(np.array([0, 1, 2] + [0] * 12)).codewords.tolist()
    [0, 1, 3]
    """
    counts = counts.astype(np.int64)
    if len(counts) != LIMIT + 1 or counts.min() < 0 or int(counts @ (1 << np.arange(LIMIT, -1, -1))) != 1 << LIMIT:
        raise ValueError("the lengths of a prefix code do not fit together")
    lengths = np.repeat(np.arange(LIMIT + 1), counts)
    shares = 1 << (LIMIT - lengths)  # of the table of all words of LIMIT bits
    starts = np.cumsum(shares) - shares
    return Prefix(counts, lengths.astype(np.uint8), _reversed(starts, LIMIT).astype(np.uint64))


def symbol_table(code: Prefix) -> NDArray[np.uint16]:
    """The symbol that each word of as many bits as the longest codeword begins with."""
    bits = int(code.lengths.max())
    shares = 1 << (bits - code.lengths.astype(np.int64))
    symbols = np.repeat(np.arange(len(shares), dtype=np.uint16), shares)
    return symbols[_reversed(np.arange(1 << bits), bits)]


def _reversed(words: NDArray[np.int64], bits: int) -> NDArray[np.int64]:
    """Words of so many bits, last bit first."""
    result = np.zeros_like(words)
    for bit in range(bits):
        result |= ((words >> bit) & 1) << (bits - 1 - bit)
    return result


class Reader(NamedTuple):
    """A code for those who read without a table: words of LIMIT bits, first bit highest, in order."""

    ends: NDArray[np.int32]
    """By length below LIMIT, the word behind all that begin with a codeword of at most this length; then no word."""
    starts: NDArray[np.int64]
    """By length, the first word that begins with a codeword of this length."""
    symbols: NDArray[np.int64]
    """By length, the first symbol."""


def reader_of(counts: NDArray[np.int64]) -> Reader:
    shares = counts << np.arange(LIMIT, -1, -1)
    ends = np.cumsum(shares)
    padded = np.full(LANES, np.iinfo(np.int32).max, np.int32)
    padded[:LIMIT] = ends[:LIMIT]
    return Reader(padded, ends - shares, np.cumsum(counts) - counts)


@inlined
def read_symbol(word, reader):
    """The symbol that a word begins with, and its length: all lengths are compared at once, without a jump."""
    code = reverse_bits(word) >> np.uint64(64 - LIMIT)
    length = count_at_most(reader.ends, np.int32(code))
    rest = (np.int64(code) - reader.starts[length]) >> np.int64(np.uint64(LIMIT) - length)
    return np.uint64(reader.symbols[length] + rest), length
