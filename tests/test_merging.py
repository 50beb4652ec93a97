"""Levels of counters and accumulators merge without bias: exactly, over all 2^32 random words, by bisection."""

from __future__ import annotations

from fractions import Fraction

import numba
import numpy as np
import pytest

from lessram.numerics import counter
from lessram.numerics.accumulator import accumulator
from lessram.numerics.six_bits import six_bit_ladder

WORDS = 1 << 32
LADDERS = {
    "morris": counter.morris(1.1).estimates,
    "coarse": counter.morris(2.0).estimates[:40],
    "gentle": counter.gentle(1.1).estimates,
    "squares": accumulator(1.1).heights,
    "six bits": six_bit_ladder(),
}
FLAT = accumulator(16.0).heights
"""Its last levels all stand for the largest number that there is room for."""
every_ladder = pytest.mark.parametrize("ladder", LADDERS.values(), ids=LADDERS)
flat_too = pytest.mark.parametrize("ladder", [*LADDERS.values(), FLAT], ids=[*LADDERS, "ends flat"])


@numba.njit
def merge(ladder, start, levels, bits):
    return counter.merged_level(ladder, start, levels, np.uint32(bits))


@numba.njit
def split(ladder, start, levels):
    """The lower level, and how many of all words lead to the one above; it falls with the word, so by bisection."""
    base = merge(ladder, start, levels, WORDS - 1)
    low, high = 0, WORDS
    while low < high:
        middle = (low + high) // 2
        if merge(ladder, start, levels, middle) > base:
            low = middle + 1
        else:
            high = middle
    return base, low


def drawn(ladder: np.ndarray, replicas: int, seed: int) -> list[tuple[int, np.ndarray]]:
    """Starts of all heights, and levels at or above them, near and far."""
    rng = np.random.default_rng(seed)
    top = len(ladder) - 12
    starts = rng.integers(0, top, 60)
    return [
        (int(start), rng.integers(start, min(top, start + reach) + 1, replicas).astype(np.uint8))
        for start in starts
        for reach in (0, 1, 5, 300)
    ]


def exact_total(ladder: np.ndarray, start: int, levels: np.ndarray) -> Fraction:
    """What the start stands for and all that was counted since."""
    value = [Fraction(float(v)) for v in ladder]
    return value[start] + sum(value[level] - value[start] for level in levels)


@every_ladder
@pytest.mark.parametrize("replicas", [2, 3, 16])
def test_unbiased(ladder, replicas):
    values = [Fraction(float(v)) for v in ladder]
    random = 0
    for start, levels in drawn(ladder, replicas, seed=replicas):
        below, ups = split(ladder, start, levels)
        total = exact_total(ladder, start, levels)
        if total >= values[-1]:
            assert (below, ups) == (len(ladder) - 1, 0)
            continue
        gap = values[below + 1] - values[below]
        found = values[below] + Fraction(int(ups), WORDS) * gap
        assert abs(found - total) <= gap / WORDS + total / 2**50, "the last word, and the sum in double precision"
        random += 0 < ups < WORDS
    assert random > 50, "decisions that are really random"


@flat_too
def test_one_replica_changes_nothing(ladder):
    for start in range(0, len(ladder), 7):
        for level in range(start, len(ladder), 5):
            assert split(ladder, start, np.array([level], np.uint8)) == (level, 0)


@flat_too
def test_replicas_that_counted_nothing_change_nothing(ladder):
    for level in range(len(ladder)):
        assert split(ladder, level, np.full(5, level, np.uint8)) == (level, 0)


@every_ladder
def test_saturation(ladder):
    last = len(ladder) - 1
    full = np.array([last, last, last], np.uint8)
    assert split(ladder, 0, full) == (last, 0)
    assert split(ladder, last, full) == (last, 0)
    assert split(ladder, last - 1, np.array([last, last - 1], np.uint8)) == (last, 0)


def counted(made: counter.Counter, rounds: int) -> np.ndarray:
    """The distribution over levels after so many increments, by exact dynamic programming."""
    chances = np.zeros(len(made.estimates))
    chances[0] = 1.0
    leave = made.thresholds.astype(np.float64) * 2.0**-64
    for _ in range(rounds):
        moved = chances * leave
        chances -= moved
        chances[1:] += moved[:-1]
    return chances


def test_merged_counters_are_unbiased_and_quieter_than_one_counter():
    """Two replicas of 300 and 500 rounds against one counter of 800."""
    made = counter.morris(1.1)
    one, other = counted(made, 300), counted(made, 500)
    mean = square = 0.0
    for a in np.flatnonzero(one > 1e-14):
        for b in np.flatnonzero(other > 1e-14):
            below, ups = split(made.estimates, 0, np.array([a, b], np.uint8))
            chance = one[a] * other[b]
            for level, share in ((below, 1 - ups / WORDS), (below + 1, ups / WORDS)):
                mean += chance * share * made.estimates[level]
                square += chance * share * made.estimates[level] ** 2
    single = counted(made, 800)
    spread = float(single @ (made.estimates - 800) ** 2)
    assert mean == pytest.approx(800, rel=1e-9)
    assert square - mean**2 < 0.8 * spread
