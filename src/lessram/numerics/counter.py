"""Randomized counters (section 3.2): an 8-bit level that stands for a count.

The paper's variant of Morris's counter starts at C = 1, steps up with probability p(C) = b^-C and
estimates the count as (b^C - b) / (b - 1), which is unbiased. Stored here is the level l = C - 1, so
that memory full of zeros is a table of fresh counters.

Any increasing ladder of estimates e_0 = 0 < e_1 < ... gives an unbiased counter: from level l step
up with probability 1 / (e_(l+1) - e_l), so the estimate grows by exactly 1 in expectation. Morris's
counter is the ladder e_l = (b^(l+1) - b) / (b - 1). The last level has probability 0.

Probabilities are 64-bit fractions: 32 bits would turn the counter deaf after about 2^32 / (b - 1)
increments, and bias it long before.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate, pairwise
from operator import mul
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lessram.errors import SpecError
from lessram.jit import inlined

LEVELS = 256


class Counter(NamedTuple):
    """A ladder of counts and the probability of each step up."""

    estimates: NDArray[np.float64]
    """What each level stands for."""
    thresholds: NDArray[np.uint64]
    """The probability of leaving each level upwards, in units of 2^-64."""


def ladder(estimates: ArrayLike) -> Counter:
    """The unbiased counter over an increasing ladder of at most 256 counts, the first of them 0.

    >>> ladder([0, 1, 2, 4]).thresholds / 2.0**64
    array([1. , 1. , 0.5, 0. ])
    """
    counts = np.asarray(estimates, dtype=np.float64)
    gaps = np.diff(counts)
    if not 2 <= counts.size <= LEVELS or counts[0] != 0 or not np.all(np.isfinite(counts)) or np.any(gaps < 1):
        raise SpecError("a ladder must hold 2 to 256 finite counts that start at 0 and grow by at least 1 a level")
    certain = 2**64 - 1
    exact = [Fraction(count) for count in counts.tolist()]
    steps = [min(certain, round(2**64 / (above - below))) for below, above in pairwise(exact)]
    return Counter(counts, np.array([*steps, 0], dtype=np.uint64))


def morris(base: float = 1.1) -> Counter:
    """The paper's counter with this base, over all 256 levels.

    >>> counter = morris(2.0)
    >>> counter.estimates[:4]
    array([ 0.,  2.,  6., 14.])
    >>> counter.thresholds[:3] / 2.0**64
    array([0.5  , 0.25 , 0.125])
    """
    if not 1.0 < base <= 16.0:
        raise SpecError(f"the base of a Morris counter must be above 1 and at most 16, got {base}")
    # Integers of any length and one correctly rounded division each: floating-point powers differ between processors.
    n, d = float(base).as_integer_ratio()
    over, under = list(accumulate([n] * LEVELS, mul)), list(accumulate([1] + [d] * LEVELS, mul))
    counts = [(b - n * a) / (a * (n - d)) for a, b in zip(under, over, strict=False)]
    steps = [((a << 65) + b) // (2 * b) for a, b in zip(under[1:LEVELS], over, strict=False)]
    return Counter(np.array(counts), np.array([*steps, 0], dtype=np.uint64))


def gentle(base: float = 1.1) -> Counter:
    """Exact while counts are small, then growing by `base` a level: the same range as Morris's counter, less noise.

    Early counts matter most, since the rate falls fastest there: on text this is as good as exact counting.

    >>> gentle(1.5).estimates[:6]
    array([0.  , 1.  , 2.  , 3.  , 4.5 , 6.75])
    """
    counts = [0.0]
    while len(counts) < LEVELS:
        counts.append(counts[-1] + max(1.0, (base - 1.0) * counts[-1]))
    return ladder(counts)


@inlined
def steps_up(threshold, bits):
    """1 if a counter at this threshold steps up, else 0: an integer, since no branch could be predicted."""
    return np.uint64(bits < threshold)


@inlined
def level_of(estimates, least, count, bits):
    """The level for a known count: one of the two around it, unbiased over the 32 random `bits`.

    It is at or above `least`, and a few levels above at most, so that going up is faster than a search. Beyond the last
    level it saturates; levels that stand for no more than those below, as the highest of some bases do, are as good.
    """
    low = np.int64(least)
    while low < estimates.size - 1 and estimates[low] < estimates[low + 1] <= count:
        low += 1
    if low >= estimates.size - 1:
        return np.int64(estimates.size - 1)
    share = (count - estimates[low]) / (estimates[low + 1] - estimates[low])
    return low + np.int64(np.float64(bits) * 2.0**-32 < share)


@inlined
def merged_level(estimates, start, levels, bits):
    """One level for replicas that all stood at level `start` when they parted and now stand at `levels`.

    The count before and all counts since add up, and their sum goes back onto the ladder, unbiased over the 32
    random `bits` and with less noise than one counter that counted everything. One replica stays as it is.
    """
    total, least = np.float64(estimates[levels[0]]), levels[0]
    for k in range(1, len(levels)):
        total += np.float64(estimates[levels[k]]) - np.float64(estimates[start])
        least = max(least, levels[k])
    return level_of(estimates, least, total, bits)
