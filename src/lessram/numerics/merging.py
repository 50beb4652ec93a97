"""Replicas made one model again, without bias: what training on many machines needs beyond the paper.

K replicas begin as copies of one start and learn different parts of a stream. Then, coordinate by coordinate,

    weight   w = w_0 + sum_k (w_k - w_0) / K = the mean of all w_k, rounded at random to the grid (Algorithm 1)
    count    n = n_0 + sum_k (n_k - n_0), rounded at random to a level (`counter.merged_level`)

A mean of weights cannot diverge, as their sum does; it stays in [-R, R], so nothing is clipped and no bias added. But
it divides every step by K, while counts let rates fall as if all steps had been taken: replicas learn best with
alpha * sqrt(K). Where rare coordinates matter, the mean of those replicas that met one leaves its steps whole.

Weights are integers in units of their grid, so their mean is a quotient of integers, and one comparison decides
between the two gridpoints around it. The probability is right to 2^-32, and exact where its denominator is a power of
two. Random words are a pure function of (seed, examples learned, slot): any walk over the slots draws the same.
"""

from __future__ import annotations

import numpy as np

from lessram.jit import inlined
from lessram.numerics.random import GOLDEN, finalise, hash_seed

MOST_REPLICAS = 1 << 12
"""Up to here the decision between any two gridpoints is one of 64-bit integers."""


def merging_key(seed: int, examples: int) -> int:
    """The key of a merge after so many examples, which shares nothing with the keys of examples.

    >>> merging_key(1, 1000) != merging_key(1, 1001) != merging_key(2, 1001)
    True
    """
    return hash_seed(hash_seed(seed) ^ hash_seed(~examples))


@inlined
def slot_word(key, slot):
    """64 random bits for one slot: the upper half rounds its weight, the lower half its count."""
    return finalise(key + slot * GOLDEN)


@inlined
def chosen(part, whole, bits):
    """1 with probability part / whole over the 32 random `bits`, else 0; always 0 or 1 beyond these chances."""
    return np.int64(np.int64(bits) * np.int64(whole) < np.int64(part) << np.int64(32))


@inlined
def rounded_mean(total, count, bits):
    """total / count, integers, rounded to one of the two integers around it; unbiased over the 32 random `bits`."""
    below = total // count
    return below + chosen(total - below * count, count, bits)


@inlined
def sort_few(values, count):
    """Bring the first numbers of an array into order: sums of floats then do not depend on who comes first."""
    for i in range(1, count):
        value = values[i]
        j = i
        while j > 0 and values[j - 1] > value:
            values[j] = values[j - 1]
            j -= 1
        values[j] = value
