"""Namespaces that occur again, with the hashes of their names.

Every line of Vowpal Wabbit text names its namespaces, mostly the same few. A name of up to seven bytes is one number,
its key; the hash of the last name of its kind is kept with it, so that a line need not take the name apart again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.data.scanning import next_mark
from lessram.data.text import SPACE
from lessram.jit import inlined
from lessram.numerics.memory_words import load_word

LONGEST = 7
_KINDS = 16
"""Names are told apart by the last four bits of their first letter: those of one alphabet, mostly, all differ."""
_ZERO, _ONE, _LAST_KIND = np.uint64(0), np.uint64(1), np.uint64(_KINDS - 1)


class Namespaces(NamedTuple):
    """What is known of them. For one thread at a time."""

    keys: NDArray[np.uint64]
    hashes: NDArray[Any]

    @classmethod
    def unknown(cls, dtype: Any) -> Namespaces:
        """None, with room for hashes of this type."""
        return cls(np.zeros(_KINDS, np.uint64), np.zeros(_KINDS, dtype))


@inlined
def key_of(text, p, marks):
    """The key of the name at `p`, and its end; 0 if the name is empty or long, or if no space is behind it."""
    end = next_mark(marks, p)
    length = end - p
    if length - _ONE >= np.uint64(LONGEST) or text[end] != SPACE:
        return _ZERO, end
    letters = load_word(text, p) & ((_ONE << (length << np.uint64(3))) - _ONE)
    return letters | (length << np.uint64(56)), end


@inlined
def known(namespaces, key):
    """Whether this is the last key of its kind; its hash."""
    kind = key & _LAST_KIND
    return key != _ZERO and namespaces.keys[kind] == key, namespaces.hashes[kind]


@inlined
def remember(namespaces, key, hash):
    """Keep the hash of a name; of one without a key nothing is kept."""
    if key != _ZERO:
        kind = key & _LAST_KIND
        namespaces.keys[kind], namespaces.hashes[kind] = key, hash
