"""The only place that hashes: identifiers of any kind become slots of the table.

A hash and its seed are part of a model: rows hashed otherwise would read other coefficients.

Numbers (svmlight ids) go through the finaliser of splitmix64. Names go through one of two hashes:

    murmur32   MurmurHash3_x86_32, the hash of Vowpal Wabbit and of scikit-learn's FeatureHasher;
               for tables of up to 2^32 slots
    murmur64   MurmurHash64A; for larger tables, where 32 bits could not reach every slot

The width of a name's hash is the width of its seed: `hash_name(buffer, start, length, uint32)` gives a
uint32, with a uint64 seed a uint64. So one kernel, compiled for one type of slots, serves both.

A name is hashed under the hash of what it belongs to (namespace, column), used as the seed. A product
of features is hashed from their hashes, as Vowpal Wabbit does it: `combine(a, b) = a * prime ^ b`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lessram.data.scanning import choose, load32
from lessram.errors import SpecError
from lessram.jit import inlined, kernel, overloaded, types
from lessram.numerics.machine import add32, fold16, multiply32
from lessram.numerics.memory_words import load_word
from lessram.numerics.random import GOLDEN, finalise

NARROW, WIDE = "murmur32", "murmur64"
"""The names of the two hashes, as models store them."""

_LOW_BYTES = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)

MARGIN = 16
"""Bytes behind a name that its hash may look at; they do not change it."""

FNV_PRIME_32 = np.uint32(16777619)
FNV_PRIME_64 = np.uint64(1099511628211)


@inlined
def hash_number(number, hashed_seed):
    """A 64-bit hash of a 64-bit number; `hashed_seed` is `hash_seed(seed)` of numerics.random."""
    return finalise((number + np.uint64(1)) * GOLDEN ^ hashed_seed)


@inlined
def slot_of_hash(hashed, slots):
    """The slot of a 64-bit hash in a table of `slots` slots (uint64)."""
    return hashed % slots


@inlined
def _rotate32(x, bits):
    return (x << np.uint32(bits)) | (x >> np.uint32(32 - bits))


@inlined
def _scramble32(word):
    return multiply32(np.uint32(_rotate32(multiply32(word, np.uint32(0xCC9E2D51)), 15)), np.uint32(0x1B873593))


@inlined
def _absorb32(state, word):
    state = np.uint32(_rotate32(np.uint32(state ^ _scramble32(word)), 13))
    return add32(multiply32(state, np.uint32(5)), np.uint32(0xE6546B64))


@inlined
def _finish32(state, tail, length):
    """`tail`: the last 0 to 3 bytes; an absent tail is zero and changes nothing."""
    state = np.uint32(state ^ _scramble32(tail) ^ np.uint32(length))
    state = multiply32(fold16(state), np.uint32(0x85EBCA6B))
    state = multiply32(np.uint32(state ^ (state >> np.uint32(13))), np.uint32(0xC2B2AE35))
    return fold16(state)


@inlined
def _whole_words(buffer, start, length, seed):
    """The state behind all whole words of a name."""
    state = seed
    position = start
    whole = start + (length & ~np.uint64(3))
    while position < whole:
        state = _absorb32(state, load32(buffer, position))
        position += np.uint64(4)
    return state


@inlined
def _three_words(buffer, start, length, seed):
    """The same for at most three words, without a jump: the lengths of names cannot be predicted."""
    one = _absorb32(seed, load32(buffer, start))
    state = choose(length >= np.uint64(4), one, seed)
    two = _absorb32(state, load32(buffer, start + np.uint64(4)))
    state = choose(length >= np.uint64(8), two, state)
    three = _absorb32(state, load32(buffer, start + np.uint64(8)))
    return choose(length >= np.uint64(12), three, state)


@inlined
def murmur32(buffer, start, length, seed):
    """MurmurHash3_x86_32 of `length` bytes from `start`; looks at up to 15 bytes behind them."""
    if length < np.uint64(16):
        state = _three_words(buffer, start, length, seed)
    else:
        state = _whole_words(buffer, start, length, seed)
    tail = load32(buffer, start + (length & ~np.uint64(3)))
    return _finish32(state, np.uint32(tail & _LOW_BYTES[length & np.uint64(3)]), length)


@inlined
def _mix64(word):
    word *= np.uint64(0xC6A4A7935BD1E995)
    word ^= word >> np.uint64(47)
    return word * np.uint64(0xC6A4A7935BD1E995)


@inlined
def murmur64(buffer, start, length, seed):
    """MurmurHash64A of `length` bytes from `start`; looks at up to seven bytes behind them."""
    multiplier = np.uint64(0xC6A4A7935BD1E995)
    state = seed ^ (length * multiplier)
    position = start
    whole = start + (length & ~np.uint64(7))
    while position < whole:
        state = (state ^ _mix64(load_word(buffer, position))) * multiplier
        position += np.uint64(8)
    rest = (length & np.uint64(7)) << np.uint64(3)
    if rest:
        state = (state ^ (load_word(buffer, position) & ((np.uint64(1) << rest) - np.uint64(1)))) * multiplier
    state = (state ^ (state >> np.uint64(47))) * multiplier
    return state ^ (state >> np.uint64(47))


def hash_name(buffer: Any, start: Any, length: Any, seed: Any) -> Any:
    """The hash of a name, as wide as its seed. For kernels only.

    Looks at up to `MARGIN` bytes behind the name: `hash_names` says how that is made safe.
    """
    raise NotImplementedError


def combine(first: Any, second: Any) -> Any:
    """The hash of a product of two features; of three, `combine(combine(a, b), c)`. For kernels only."""
    raise NotImplementedError


def number_name(number: Any, seed: Any) -> Any:
    """Vowpal Wabbit's hash of a name that is all digits: the number itself plus the seed. For kernels only."""
    raise NotImplementedError


@overloaded(hash_name)
def _hash_name(buffer, start, length, seed):  # type: ignore[no-untyped-def]
    if seed == types.uint32:
        return lambda buffer, start, length, seed: murmur32(buffer, start, length, seed)
    return lambda buffer, start, length, seed: murmur64(buffer, start, length, seed)


@overloaded(combine)
def _combine(first, second):  # type: ignore[no-untyped-def]
    if first == types.uint32:
        return lambda first, second: np.uint32(multiply32(first, FNV_PRIME_32) ^ second)
    return lambda first, second: (first * FNV_PRIME_64) ^ second


@overloaded(number_name)
def _number_name(number, seed):  # type: ignore[no-untyped-def]
    if seed == types.uint32:
        return lambda number, seed: add32(np.uint32(number), seed)
    return lambda number, seed: number + seed


@inlined
def fold_into_slots(hashes, start, stop, slots):
    """Turn the hashes `start:stop` into slots of a table of `slots` (uint64) slots, where they stand.

    Powers of two, the usual case, keep the low bits, as Vowpal Wabbit does.
    """
    last = slots - np.uint64(1)
    if slots & last == np.uint64(0):
        for k in range(start, stop):
            hashes[k] &= hashes.dtype.type(last)
    else:
        for k in range(start, stop):
            hashes[k] = np.uint64(hashes[k]) % slots


@kernel
def _hash_spans(data, offsets, seeds, hashes):
    """Hash the names `data[offsets[i]:offsets[i + 1]]`, each under its own seed or all under the only one."""
    step = np.uint64(seeds.size > 1)
    for i in range(np.uint64(hashes.size)):
        start, stop = np.uint64(offsets[i]), np.uint64(offsets[i + np.uint64(1)])
        hashes[i] = hash_name(data, start, stop - start, seeds[i * step])


def hash_names(
    data: NDArray[np.uint8],
    offsets: NDArray[Any],
    seeds: NDArray[Any] | np.uint32 | np.uint64,
    hashes: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """The hashes of names that lie one behind the other in `data`, the layout of an Arrow string array.

    `seeds`: one for all, or one a name; their type, uint32 or uint64, chooses the hash. The offsets must not
    decrease and must stay inside `data`; this is checked, for they come from other libraries. Nothing behind
    `data` is looked at: its last few names are hashed in a copy with `MARGIN` bytes behind it.
    """
    seeds = np.atleast_1d(seeds)
    count = len(offsets) - 1
    if hashes is None:
        hashes = np.empty(count, seeds.dtype)
    if len(seeds) not in (1, count) or hashes.dtype != seeds.dtype or len(hashes) != count:
        raise SpecError(f"{count} names need 1 or {count} seeds and hashes of their type, got {len(seeds)} seeds")
    if count and (offsets[0] < 0 or offsets[-1] > len(data) or (offsets[1:] < offsets[:-1]).any()):
        raise SpecError(f"the offsets of names must rise from 0 to {len(data)}, the size of their data")
    safe = int(np.searchsorted(offsets[1:], len(data) - MARGIN, "right"))
    own = seeds if len(seeds) == 1 else seeds[:safe]
    _hash_spans(data, offsets[: safe + 1], own, hashes[:safe])
    if safe < count:
        copy = np.concatenate([data[offsets[safe] :], np.zeros(MARGIN, np.uint8)])
        own = seeds if len(seeds) == 1 else seeds[safe:]
        _hash_spans(copy, offsets[safe:] - offsets[safe], own, hashes[safe:])
    return hashes


def hash_texts(texts: Sequence[str | bytes], seed: int = 0, kind: str = NARROW) -> NDArray[Any]:
    """The hashes of a few names, such as those of columns.

    >>> hash_texts(["site", "city"])
    array([4265793861,  497817439], dtype=uint32)
    >>> hash_texts(["site"], kind="murmur64").dtype
    dtype('uint64')
    """
    encoded = [text.encode() if isinstance(text, str) else text for text in texts]
    offsets = np.concatenate([[0], np.cumsum([len(name) for name in encoded])]).astype(np.int64)
    data = np.frombuffer(bytearray(b"".join(encoded)), np.uint8)
    return hash_names(data, offsets, hash_dtype(kind)(seed))


def hash_dtype(kind: str) -> type[np.uint32] | type[np.uint64]:
    """The type of a hash, of its seeds and of the slots made from it."""
    if kind not in (NARROW, WIDE):
        raise SpecError(f"the hash must be '{NARROW}' or '{WIDE}', got {kind!r}")
    return np.uint32 if kind == NARROW else np.uint64


def hash_for_slots(slots: int) -> str:
    """The hash that reaches every slot of a table of this size.

    >>> hash_for_slots(2**24), hash_for_slots(2**32), hash_for_slots(2**33)
    ('murmur32', 'murmur32', 'murmur64')
    """
    return NARROW if slots <= 2**32 else WIDE
