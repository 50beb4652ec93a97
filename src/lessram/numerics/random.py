"""Random words as a pure function of (seed, example number, position in the example).

Law 3 rests on this: no generator state is carried from row to row, so any split into batches, any
number of threads and any stop and resume draws the same words.

    key     = splitmix64_finaliser(hashed seed + example * golden)         one 64-bit key a row
    word(j) = a keyed 32-bit finaliser of j, the feature's position        one 32-bit word a feature
    shared  = splitmix64_finaliser(~key)                                   one more 64-bit word a row

A feature needs two independent random numbers, one to round its weight and one for its counter. The
upper half of its word leads the first, the lower half the second; both are completed by bits of the
shared word, so that each alone is exactly uniform and every decision exactly unbiased:

    rounding   16 bits of its own, then 9 shared     counting   16 bits of its own, then 48 shared

Sharing correlates decisions within a row by at most 2^-16 of their variance: given the shared bits a
probability changes by less than 2^-16. It halves the work on random numbers, the largest cost of a row
whose cells are in cache.
"""

from __future__ import annotations

import numpy as np

from lessram.jit import inlined
from lessram.numerics.machine import add32, fold14, fold15, fold16, multiply32, small_to_float

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
UNIFORM_STEP = np.float32(2.0**-25)


@inlined
def finalise(z):
    """The finaliser of splitmix64: a bijection of 64-bit words whose output bits look independent."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@inlined
def row_key(hashed_seed, example):
    """The key of one example. `hashed_seed` is `hash_seed(seed)`, so that nearby seeds share nothing."""
    return finalise(hashed_seed + example * GOLDEN)


@inlined
def word(position, key):
    """The random word of the feature at this position (uint32) of the row with this key."""
    x = add32(multiply32(position, np.uint32(0x9E3779B9)), np.uint32(key))
    x = fold15(multiply32(fold16(x), np.uint32(0x21F0AAAD)))
    x = add32(x, np.uint32(key >> np.uint64(32)))
    x = fold15(multiply32(x, np.uint32(0x735A2D97)))
    return fold14(multiply32(x, np.uint32(0xAC4C1B51)))


@inlined
def shared_word(key):
    """The word that all features of the row share."""
    return finalise(~key)


@inlined
def rounding_bits(own, shared):
    """32 random bits to round with, from a feature's word and the row's shared word."""
    return (own & np.uint32(0xFFFF0000)) | np.uint32(shared >> np.uint64(48))


@inlined
def counting_bits(own, shared):
    """64 random bits to count with."""
    return (np.uint64(own) << np.uint64(48)) | (shared & np.uint64(0x0000FFFFFFFFFFFF))


@inlined
def uniform(bits):
    """A word as a float32: odd multiples of 2^-25, rounded to multiples of 2^-23 above 1/2. The mean is exactly 1/2."""
    return small_to_float((bits >> np.uint32(7)) | np.uint32(1)) * UNIFORM_STEP


def hash_seed(seed: int) -> int:
    """A user's seed spread over 64 bits.

    >>> hex(hash_seed(0)), hash_seed(1) != hash_seed(2)
    ('0xe220a8397b1dcdaf', True)
    """
    mask = (1 << 64) - 1
    z = (seed + int(GOLDEN)) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)
