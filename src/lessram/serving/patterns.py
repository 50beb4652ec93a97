"""Which groups to code, and how: chosen on a sample so that the whole comes out shortest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.model.ledger import entropy
from lessram.serving.escapes import count_escapes, plan_escapes, writer_of
from lessram.serving.groups import MOST_VALUES, Dictionary, Shape, escape_lengths, hashes_of, make_dictionary, packed
from lessram.serving.prefix import LIMIT, limited_lengths
from lessram.serving.ribbon import LONGEST

SIZES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256)
"""Sizes of groups that are tried."""
_FEWEST_BITS, _MOST_BITS = 1.5, 7.0  # entropy of the groups that are tried
SMALL_LIMIT = 12
"""Bits of codewords whose table stays in the first-level cache."""
_WORTH = 1.01  # longer codewords, whose table does not, must make the whole shorter by this
_RARE = 2.0**-0.3  # a pattern below this share of 2^-limit could have no codeword of its own
_MISFITS = 1 / 4096  # share of groups that may have a value beyond their fields


class Draft(NamedTuple):
    """A way to code groups, and what it would cost."""

    dictionary: Dictionary
    limit: int
    """Bits of the longest codeword of a group."""
    bits: float
    """Expected bits of the whole store, without the directory of columns."""


def plan_groups(sample: NDArray[np.int16], slots: int, raw_bits: int) -> Draft:
    """The patterns to give codewords to, chosen on a sample of the slots' values (runs of neighbours)."""
    _, counts = np.unique(sample, return_counts=True)
    bits = entropy(counts)
    sizes = [size for size in SIZES if _FEWEST_BITS <= size * bits <= _MOST_BITS and size <= max(1, slots // 4)]
    if not sizes:  # very dense, or next to nothing
        sizes = [1] if bits > 1 else [size for size in SIZES[::4] if size <= slots]
    small = _best(draft(sample, size, slots, raw_bits, SMALL_LIMIT) for size in sizes)
    large = _best(draft(sample, size, slots, raw_bits, LIMIT) for size in sizes)
    return large if large.bits * _WORTH < small.bits else small


def _best(drafts: Iterable[Draft]) -> Draft:
    return min(drafts, key=lambda found: found.bits)


def draft(sample: NDArray[np.int16], size: int, slots: int, raw_bits: int, limit: int) -> Draft:
    """The best that groups of this size and codewords of at most `limit` bits can do."""
    units = np.append(sample, np.zeros(-len(sample) % size, np.int16))
    groups, factor = len(units) // size, slots / len(units)
    shape = Shape.of(size, _field_bits(sample, size))
    words, fits = packed(units, shape)
    fitting = np.flatnonzero(fits)
    _, first, inverse, counts = np.unique(
        hashes_of(words, shape)[fitting], return_index=True, return_inverse=True, return_counts=True
    )
    most = min((1 << limit) - 2, MOST_VALUES // size)  # escape and exception need codewords too
    best = np.argsort(-counts, kind="stable")[:most]
    # Twice in the whole is the least at which a place in the table pays.
    best = best[counts[best] >= max(groups * _RARE * 2.0**-limit, 2 / factor)]
    common = np.zeros(len(counts), bool)
    common[best] = True
    chosen = fitting[first[best]]
    escaped = np.setdiff1d(np.arange(groups), fitting[common[inverse]], assume_unique=True)
    pattern_lengths, lengths = _escape_lengths(units, size, factor, raw_bits, chosen, escaped)
    spent = np.where(lengths <= LONGEST - limit, lengths, 64 + 16 * size)  # others are kept beside the ribbon
    weights = np.append(counts[best], len(escaped)) if len(escaped) else counts[best]
    bits = float(weights @ limited_lengths(weights, limit)) + float(spent.sum())
    short = pattern_lengths <= LONGEST
    patterns = words.reshape(groups, -1)[chosen[short]].reshape(-1)
    return Draft(make_dictionary(shape, patterns), limit, bits * factor + float(pattern_lengths[short].sum()))


def _escape_lengths(
    units: NDArray[np.int16],
    size: int,
    factor: float,
    raw_bits: int,
    patterns: NDArray[np.int64],
    escaped: NDArray[np.int64],
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """How long these groups (by number) are as escapes: patterns, of which there is one each, and all others."""
    runs, values = np.zeros(size + 1, np.int64), np.zeros(1 << 16, np.int64)
    count_escapes(units, size, escaped, runs, values)
    runs, values = np.rint(runs * factor).astype(np.int64), np.rint(values * factor).astype(np.int64)
    count_escapes(units, size, patterns, runs, values)
    writer = writer_of(plan_escapes(runs, values, raw_bits))
    pattern_lengths, lengths = np.empty(len(patterns), np.uint64), np.empty(len(escaped), np.uint64)
    escape_lengths(units, patterns, writer, pattern_lengths)
    escape_lengths(units, escaped, writer, lengths)
    return pattern_lengths, lengths


def _field_bits(sample: NDArray[np.int16], size: int) -> int:
    """The narrowest field that holds nearly all values."""
    for bits in (2, 4, 8):
        half = 1 << (bits - 1)
        if np.count_nonzero((sample < -half) | (sample >= half)) * size <= _MISFITS * len(sample):
            return bits
    return 16
