"""Ribbons whose items are 64-bit keys instead of positions.

A key is hashed by a bijection, so two keys never share a hash. The hash's high half, times the number of superblocks,
gives the superblock (whole part) and the place in it (fraction): keys spread evenly over the columns, and are built
in the order of their hashes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.jit import inlined, kernel
from lessram.numerics.random import finalise
from lessram.serving.builder import SEGMENT_BITS, SUPERBLOCK_BITS, Items, TooLarge, Workspace, solve
from lessram.serving.ribbon import PADDING, Ribbon, codeword, polynomial, start_column

_WHOLE = np.uint64(32)
_FRACTION = np.uint64(0xFFFFFFFF)


class KeyedRibbon(NamedTuple):
    """A ribbon, and how keys find their superblocks."""

    ribbon: Ribbon
    superblocks: np.uint64
    salt: np.uint64
    """What keys are mixed with before they are hashed."""


@inlined
def hash_key(key, salt):
    """A bijection of 64-bit words for every salt."""
    return finalise(key ^ salt)


@inlined
def word_of_key(keyed, hashed):
    """The first 64 bits of a key's codeword."""
    product = (hashed >> _WHOLE) * keyed.superblocks
    column = start_column(keyed.ribbon, product >> _WHOLE, product & _FRACTION)
    low, high = polynomial(hashed)
    return codeword(keyed.ribbon.bits, column, low, high)


@kernel
def hash_keys(keys, salt, hashes):
    for k in range(np.uint64(keys.shape[0])):
        hashes[k] = hash_key(keys[k], salt)


@kernel
def words_of_keys(keyed, keys, words):
    for k in range(np.uint64(keys.shape[0])):
        words[k] = word_of_key(keyed, hash_key(keys[k], keyed.salt))


def hashed(keys: NDArray[np.uint64], salt: int) -> NDArray[np.uint64]:
    hashes = np.empty(len(keys), np.uint64)
    hash_keys(keys, np.uint64(salt), hashes)
    return hashes


def read_words(keyed: KeyedRibbon, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The first 64 bits of the codewords of keys; noise for keys that the ribbon was not built for."""
    words = np.empty(len(keys), np.uint64)
    words_of_keys(keyed, keys, words)
    return words


def build_ribbon(
    keys: NDArray[np.uint64], lengths: NDArray[np.uint8], codewords: NDArray[np.uint64], salt: int
) -> dict[str, NDArray[Any]]:
    """The tensors of a ribbon that gives these keys, all different, these codewords."""
    hashes = hashed(keys, salt)
    order = np.argsort(hashes)
    hashes, lengths, codewords = hashes[order], lengths[order], codewords[order]
    superblocks = max(int(lengths.sum(dtype=np.int64)) // SUPERBLOCK_BITS, 1)
    for shift in range((SEGMENT_BITS // SUPERBLOCK_BITS).bit_length() - 1, -1, -1):
        try:
            return _solved(hashes, lengths, codewords, superblocks, shift)
        except TooLarge:
            continue
    raise AssertionError("a superblock by itself always finds room")


def _solved(
    hashes: NDArray[np.uint64], lengths: NDArray[np.uint8], codewords: NDArray[np.uint64], superblocks: int, shift: int
) -> dict[str, NDArray[Any]]:
    product = (hashes >> _WHOLE) * np.uint64(superblocks)
    fractions = product & _FRACTION
    bounds = np.searchsorted(product >> _WHOLE, np.arange(superblocks + 1, dtype=np.uint64))
    work, step = Workspace.new(), 1 << shift
    words, anchors = [], []
    for first in range(0, superblocks, step):
        counts = np.diff(bounds[first : min(first + step, superblocks) + 1])
        part = slice(int(bounds[first]), int(bounds[first]) + int(counts.sum()))
        anchors.append(np.zeros(len(counts) + 1, np.uint16))
        spans = np.full(len(counts), 1 << 32, np.int64)
        items = Items(hashes[part], fractions[part], lengths[part], codewords[part], counts, spans)
        words.append(solve(items, anchors[-1], work))
    sizes = np.array([64 * len(part) for part in words])
    return {
        "bits": np.concatenate([np.concatenate(words).view(np.uint8), np.zeros(PADDING, np.uint8)]),
        "bases": (np.cumsum(sizes) - sizes).astype(np.uint64),
        "anchors": np.concatenate(anchors),
        "shape": np.array([superblocks, shift], np.uint64),
    }


def ribbon_from(tensors: dict[str, NDArray[Any]], salt: int) -> KeyedRibbon:
    """The ribbon behind its tensors. A ValueError if they do not fit together."""
    superblocks, shift = (int(number) for number in tensors["shape"])
    segments = -(-superblocks >> shift) if 0 <= shift < 32 else 0
    if len(tensors["bases"]) != segments or len(tensors["anchors"]) != superblocks + segments or not superblocks:
        raise ValueError("the directory of columns has another size than it should")
    if len(tensors["bits"]) < PADDING:
        raise ValueError("the ribbon ends early")
    last = np.uint64(8 * (len(tensors["bits"]) - PADDING) + 7)
    ribbon = Ribbon(tensors["bits"], tensors["bases"], tensors["anchors"], np.uint64(shift), last)
    return KeyedRibbon(ribbon, np.uint64(superblocks), np.uint64(salt))
