"""Which column the keys of an object lead to, in the form that kernels read.

A node is an object in which columns may lie: the line's own is node 0, and there is one for every prefix of a path. At
the top, the column `user.home.city` is the field of that name, or lies in the object `user`; from there on its path may
be cut at any of its points: `home`, then `city`, or `home.city`. Every such step from a node by a key is one entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.data.hashing import MARGIN, hash_name
from lessram.jit import inlined, kernel
from lessram.numerics.memory_words import load_word

TOP, NONE = 0, -1
"""The node of the line itself; no node, no column, no entry."""

_SHORT = 16
_FIRST_BYTES = np.array([(1 << 8 * min(n, 8)) - 1 for n in range(_SHORT + 1)], np.uint64)
_LAST_BYTES = np.array([(1 << 8 * max(n - 8, 0)) - 1 for n in range(_SHORT + 1)], np.uint64)
_ZERO, _ONE, _EIGHT = np.uint64(0), np.uint64(1), np.uint64(8)


class Keys(NamedTuple):
    """Steps from a node by a key, and a table of hashes that finds them."""

    places: NDArray[np.uint64]
    """By hash: the number of an entry and one, or 0."""
    nodes: NDArray[np.int64]
    lengths: NDArray[np.uint64]
    firsts: NDArray[np.uint64]
    """The first eight bytes of the key, zeros behind a shorter one."""
    lasts: NDArray[np.uint64]
    """The next eight, likewise."""
    starts: NDArray[np.uint64]
    """Where the key begins in `text`."""
    text: NDArray[np.uint8]
    columns: NDArray[np.int64]
    """Where the step leads if the value is no object."""
    children: NDArray[np.int64]
    """Where it leads if it is one."""

    @property
    def node_count(self) -> int:
        return 1 + int(self.children.max(initial=TOP))


@inlined
def _words(text, start, length):
    """The first and the next eight bytes of a key."""
    counted = min(length, np.uint64(_SHORT))
    return load_word(text, start) & _FIRST_BYTES[counted], load_word(text, start + _EIGHT) & _LAST_BYTES[counted]


@kernel
def _hashed(text, start, length, node, first, last):
    """A hash of a key in a node; its low bits are the place."""
    if length > np.uint64(_SHORT):
        return np.uint64(hash_name(text, start, length, np.uint32(node)))
    word = first * np.uint64(0x9E3779B97F4A7C15) ^ (last + length) * np.uint64(0xC2B2AE3D27D4EB4F) ^ np.uint64(node)
    return (word * np.uint64(0xD6E8FEB86659FD93)) >> np.uint64(40)


@inlined
def _same(keys, entry, text, start, length):
    """Whether an entry's key, which begins as it should, is this one to its end."""
    i, own = np.uint64(_SHORT), keys.starts[entry]
    while i < length and keys.text[own + i] == text[start + i]:
        i += _ONE
    return i >= length


@inlined
def find_key(keys, node, text, start, length):
    """The entry of the key `text[start:start + length]` in a node, or `NONE`; looks at 16 bytes from the start."""
    first, last = _words(text, start, length)
    more = np.uint64(keys.places.size) - _ONE
    place = _hashed(text, start, length, node, first, last) & more
    while keys.places[place] != _ZERO:
        entry = keys.places[place] - _ONE
        begins = keys.firsts[entry] == first and keys.lasts[entry] == last and keys.lengths[entry] == length
        if begins and keys.nodes[entry] == node and _same(keys, entry, text, start, length):
            return np.int64(entry)
        place = (place + _ONE) & more
    return NONE


@kernel
def _fill(keys):
    """Put all entries into their places."""
    more = np.uint64(keys.places.size) - _ONE
    for entry in range(np.uint64(keys.nodes.size)):
        start, length = keys.starts[entry], keys.lengths[entry]
        first, last = _words(keys.text, start, length)
        keys.firsts[entry], keys.lasts[entry] = first, last
        place = _hashed(keys.text, start, length, keys.nodes[entry], first, last) & more
        while keys.places[place] != _ZERO:
            place = (place + _ONE) & more
        keys.places[place] = entry + _ONE


def _steps(path: str) -> Iterator[tuple[str, str, str]]:
    """All steps on the ways to a column: the prefix of the node, the key, and the path that it leads to.

    >>> list(_steps("user.home.city"))[:3]
    [('', 'user.home.city', 'user.home.city'), ('', 'user', 'user'), ('user.', 'home', 'user.home')]
    """
    yield "", path, path
    points = [i for i, letter in enumerate(path) if letter == "."]
    if points:
        yield "", path[: points[0]], path[: points[0]]
    for i, point in enumerate(points):
        for end in [*points[i + 1 :], len(path)]:
            yield path[: point + 1], path[point + 1 : end], path[:end]


def _child(nodes: dict[str, int], key: str, path: str) -> int:
    """The node of an object at a path; at the top, a key with a point in it is the name of a column and no more."""
    return NONE if path == key and "." in key else nodes.get(f"{path}.", NONE)


def make_keys(columns: Sequence[tuple[int, str]]) -> Keys:
    """The keys of columns, given by number and path."""
    numbers = {path: number for number, path in columns}
    steps = dict.fromkeys(step for path in numbers for step in _steps(path))
    prefixes = dict.fromkeys(["", *(prefix for prefix, _, _ in steps)])
    nodes = {prefix: node for node, prefix in enumerate(prefixes)}
    keys = [key.encode() for _, key, _ in steps]
    lengths = np.array([len(key) for key in keys], np.uint64)
    made = Keys(
        np.zeros(4 << len(keys).bit_length(), np.uint64),
        np.array([nodes[prefix] for prefix, _, _ in steps], np.int64),
        lengths,
        np.zeros(len(keys), np.uint64),
        np.zeros(len(keys), np.uint64),
        np.cumsum(lengths) - lengths,
        np.frombuffer(bytearray(b"".join(keys) + bytes(MARGIN)), np.uint8),
        np.array([numbers.get(path, NONE) for _, _, path in steps], np.int64),
        np.array([_child(nodes, key, path) for _, key, path in steps], np.int64),
    )
    _fill(made)
    return made
