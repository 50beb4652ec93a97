"""Hashes of short names, sixteen at a time.

To hash a name takes longer than to find it. So a name of up to 15 bytes is put aside where it is found, and at the end
of a row all that wait are hashed side by side, one name a lane. `murmur32` of `hashing.py` stays the specification.
Under a 64-bit hash nothing waits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from lessram.data.hashing import murmur64
from lessram.jit import inlined, intrinsic, overloaded, types
from lessram.numerics.memory_words import load_word
from lessram.numerics.vector import I32, INTS, LANES, Vector, blocks, fields_of, load, spread_arrays, store_inside

LONGEST = 15
"""Bytes that a short name may have."""

WAITING = 256
"""Names that can wait; a multiple of the lanes."""

_NONE, _ONE = np.uint64(0), np.uint64(1)
_FIRST_BYTES = np.array([(1 << 8 * min(n, 8)) - 1 for n in range(LONGEST + 1)], np.uint64)
_LAST_BYTES = np.array([(1 << 8 * max(n - 8, 0)) - 1 for n in range(LONGEST + 1)], np.uint64)


class Names(NamedTuple):
    """Names that wait to be hashed. For one thread at a time."""

    firsts: NDArray[np.uint64]
    """Their first eight bytes, zeros behind a shorter name."""
    lasts: NDArray[np.uint64]
    """Their other bytes, likewise."""
    lengths: NDArray[np.uint32]
    seeds: NDArray[np.uint32]
    hashes: NDArray[np.uint32]
    """Room for what they become."""
    places: NDArray[np.uint64]
    """Where that goes."""
    waiting: NDArray[np.uint64]
    """How many there are, one number."""

    @classmethod
    def new(cls) -> Names:
        kinds = (np.uint64, np.uint64, np.uint32, np.uint32, np.uint32, np.uint64)
        firsts, lasts, lengths, seeds, hashes, places = spread_arrays(WAITING, kinds)
        return cls(firsts, lasts, lengths, seeds, hashes, places, waiting=np.zeros(1, np.uint64))


def put_name(names: Any, text: Any, start: Any, length: Any, seed: Any, hashes: Any, place: Any) -> None:
    """Have `hashes[place]` become the hash of a short name, at the latest when `hash_waiting` is called.

    Whatever is written there meanwhile is lost. Looks at 16 bytes from the start. For kernels only.
    """
    raise NotImplementedError


@inlined
def _put_aside(names, text, start, length, seed, hashes, place):
    last = names.waiting[0]
    names.firsts[last] = load_word(text, start) & _FIRST_BYTES[length]
    names.lasts[last] = load_word(text, start + np.uint64(8)) & _LAST_BYTES[length]
    names.lengths[last] = np.uint32(length)
    names.seeds[last] = seed
    names.places[last] = place
    names.waiting[0] = last + np.uint64(1)
    if last + np.uint64(1) == np.uint64(WAITING):
        hash_waiting(names, hashes)


@overloaded(put_name)
def _put_name(names, text, start, length, seed, hashes, place):  # type: ignore[no-untyped-def]
    if seed == types.uint32:
        return lambda names, text, start, length, seed, hashes, place: _put_aside(
            names, text, start, length, seed, hashes, place
        )

    def put(names, text, start, length, seed, hashes, place):  # type: ignore[no-untyped-def]
        hashes[place] = murmur64(text, start, length, seed)

    return put


@inlined
def hash_waiting(names, hashes):
    """Hash all names that wait, and put their hashes into their places."""
    count, first = names.waiting[0], names.places[0]
    # Places go up. Most rows have nothing else, so that they follow each other, and the hashes can go there at once.
    if count != _NONE and names.places[count - _ONE] - first == count - _ONE:
        _hash_all(names, hashes, first, count)
    else:
        _hash_all(names, names.hashes, _NONE, count)
        for i in range(count):
            hashes[names.places[i]] = names.hashes[i]
    names.waiting[0] = _NONE


def _scramble(word: Vector) -> Vector:
    return (word * 0xCC9E2D51).rotated(15) * 0x1B873593


def _absorb(state: Vector, word: Vector) -> Vector:
    return (state ^ _scramble(word)).rotated(13) * 5 + 0xE6546B64


def _two_words(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> list[Vector]:
    """The low and the high halves of sixteen numbers of 64 bits."""
    data = context.make_array(kind)(context, builder, array).data
    both = ir.VectorType(I32, 2 * LANES)
    loaded = builder.load(builder.bitcast(builder.gep(data, [index]), both.as_pointer()))
    loaded.align = 8
    orders = ([2 * lane + half for lane in range(LANES)] for half in (0, 1))
    return [Vector(builder, builder.shuffle_vector(loaded, loaded, ir.Constant(INTS, order))) for order in orders]


@intrinsic
def _hash_all(typingctx, names, hashes, first, count):  # type: ignore[no-untyped-def]
    """hashes[first : first + count] = `murmur32` of the first `count` names."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        arrays = fields_of(builder, signature.args[0], args[0])
        _, _, first, count = args
        with blocks(builder, count) as index:
            words = [
                word for name in ("firsts", "lasts") for word in _two_words(context, builder, *arrays[name], index)
            ]
            length = load(context, builder, *arrays["lengths"], index, INTS)
            state = load(context, builder, *arrays["seeds"], index, INTS)
            tail = words[0]
            for whole, word in enumerate(words[:3], 1):
                there = length.over(4 * whole - 1)
                state = _absorb(state, word).where(there, state)
                tail = words[whole].where(there, tail)
            state = (state ^ _scramble(tail) ^ length).fold(16) * 0x85EBCA6B
            state = (state.fold(13) * 0xC2B2AE35).fold(16)
            place, left = builder.add(first, index), builder.sub(count, index)
            store_inside(context, builder, signature.args[1], args[1], place, left, state)
        return context.get_dummy_value()

    return types.void(names, hashes, types.uint64, types.uint64), codegen
