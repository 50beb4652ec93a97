"""Random words, tested jointly over what one feature, its neighbours, rows and seeds draw.

A feature rounds with the upper half of its word and counts with the lower. Words that pass one at a time can
still be related, and related decisions bias a model; so every test here looks at pairs. Fixed seeds: nothing
can flake. Deliberately weak generators go through the same tests and must fail them.
"""

from __future__ import annotations

from collections.abc import Callable

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from lessram.numerics import random

ROWS, POSITIONS = 4096, 64
SEEDS = (0, 1, 2, 12345)
LIMIT = 6.5
"""Standard deviations: chance passes it once in 10^10 looks, a real relation by far."""

Words = NDArray[np.uint32]


@numba.njit
def fill(words, hashed_seed, first_example):
    for r in range(words.shape[0]):
        key = random.row_key(hashed_seed, np.uint64(first_example) + np.uint64(r))
        for j in range(words.shape[1]):
            words[r, j] = random.word(np.uint32(j), key)


@numba.njit
def fill_decisions(rounds, counts, hashed_seed, step, threshold):
    """What a row of equal steps and equal counters decides."""
    for r in range(rounds.shape[0]):
        key = random.row_key(hashed_seed, np.uint64(r))
        shared = random.shared_word(key)
        for j in range(rounds.shape[1]):
            own = random.word(np.uint32(j), key)
            rounds[r, j] = random.uniform(random.rounding_bits(own, shared)) < step
            counts[r, j] = random.counting_bits(own, shared) < threshold


def good(seed: int) -> Words:
    """The words of the package: rows are examples, columns positions."""
    words = np.empty((ROWS, POSITIONS), np.uint32)
    fill(words, np.uint64(random.hash_seed(seed)), 0)
    return words


def places() -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    return np.arange(ROWS, dtype=np.uint64)[:, None], np.arange(POSITIONS, dtype=np.uint64)[None, :]


def one_multiplication(seed: int) -> Words:
    """Weak: the halves of a product are related to each other, and neighbours to neighbours."""
    example, position = places()
    return (((example * np.uint64(64) + position + np.uint64(seed)) * random.GOLDEN) >> np.uint64(32)).astype(np.uint32)


def halves_from_one_round(seed: int) -> Words:
    """Weak in one way only: each half is good, but the lower is the upper with a few bits turned by the position."""
    upper = good(seed) >> np.uint32(16)
    position = np.arange(POSITIONS, dtype=np.uint32)[None, :]
    return (upper << np.uint32(16)) | (upper ^ (position * np.uint32(0x9E37) & np.uint32(0x0FFF)))


def no_hash_of_the_seed(seed: int) -> Words:
    """Weak in one way only: seed 1 is seed 0 moved by one position."""
    wide = np.empty((ROWS, POSITIONS + 3), np.uint32)
    fill(wide, np.uint64(random.hash_seed(99)), 0)
    return np.ascontiguousarray(wide[:, seed % 3 : seed % 3 + POSITIONS])


def rows_share_a_key(seed: int) -> Words:
    """Weak in one way only: every other row repeats the one before."""
    return np.repeat(good(seed)[: ROWS // 2], 2, axis=0)


Pair = Callable[[Words, Words], tuple[Words, Words]]
UPPER, LOWER = np.uint32(16), np.uint32(0)


def half(words: Words, shift: np.uint32) -> Words:
    return (words >> shift) & np.uint32(0xFFFF)


# Which two 16-bit halves are looked at together; `other` is what the next seed draws.
PAIRS: dict[str, Pair] = {
    "the two uses of a feature": lambda words, other: (half(words, UPPER), half(words, LOWER)),
    "rounding of neighbours": lambda words, other: (half(words[:, :-1], UPPER), half(words[:, 1:], UPPER)),
    "counting of neighbours": lambda words, other: (half(words[:, :-1], LOWER), half(words[:, 1:], LOWER)),
    "rounding, then counting": lambda words, other: (half(words[:, :-1], UPPER), half(words[:, 1:], LOWER)),
    "counting, then rounding": lambda words, other: (half(words[:, :-1], LOWER), half(words[:, 1:], UPPER)),
    "sixteen positions apart": lambda words, other: (half(words[:, :-16], UPPER), half(words[:, 16:], UPPER)),
    "rounding in the next example": lambda words, other: (half(words[:-1], UPPER), half(words[1:], UPPER)),
    "counting in the next example": lambda words, other: (half(words[:-1], LOWER), half(words[1:], LOWER)),
    "one further in the next example": lambda words, other: (half(words[:-1, 1:], UPPER), half(words[1:, :-1], UPPER)),
    "rounding with the next seed": lambda words, other: (half(words, UPPER), half(other, UPPER)),
    "counting with the next seed": lambda words, other: (half(words, LOWER), half(other, LOWER)),
    "one further with the next seed": lambda words, other: (half(words[:, 1:], UPPER), half(other[:, :-1], UPPER)),
}


def chi_square(a: Words, b: Words) -> float:
    """The joint histogram of the top 5 bits of two halves against a flat one, in standard deviations."""
    cells = np.bincount(((a >> 11) * 32 + (b >> 11)).ravel(), minlength=1024)
    expected = a.size / 1024
    return float((((cells - expected) ** 2 / expected).sum() - 1023) / np.sqrt(2 * 1023))


def bit_correlation(a: Words, b: Words) -> float:
    """The largest correlation of a bit of one half with a bit of the other, in standard deviations."""
    bits = np.arange(16, dtype=np.uint32)
    signs = [((half.ravel()[:, None] >> bits) & 1).astype(np.float32) * 2 - 1 for half in (a, b)]
    return float(np.abs(signs[0].T @ signs[1]).max() / np.sqrt(a.size))


def worst(generator: Callable[[int], Words], pair: str, seed: int) -> float:
    a, b = PAIRS[pair](generator(seed), generator(seed + 1))
    return max(abs(chi_square(a, b)), bit_correlation(a, b))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("pair", PAIRS)
def test_pairs_look_independent(pair, seed):
    assert worst(good, pair, seed) < LIMIT


WEAK = [
    (one_multiplication, "the two uses of a feature"),
    (one_multiplication, "rounding of neighbours"),
    (one_multiplication, "rounding in the next example"),
    (halves_from_one_round, "the two uses of a feature"),
    (no_hash_of_the_seed, "one further with the next seed"),
    (rows_share_a_key, "rounding in the next example"),
    (rows_share_a_key, "counting in the next example"),
]


@pytest.mark.parametrize(("generator", "pair"), WEAK)
def test_weak_words_are_found_out(generator, pair):
    assert worst(generator, pair, 0) > 3 * LIMIT


def test_only_a_joint_test_finds_halves_from_one_round():
    """Each half of that weak generator is as good as any; looking at one at a time says nothing."""
    words = halves_from_one_round(0)
    for shift in (UPPER, LOWER):
        a = half(words, shift)
        counts = np.bincount((a >> 11).ravel(), minlength=32)
        assert abs((counts - a.size / 32).max()) < LIMIT * np.sqrt(a.size / 32)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("bit", range(32))
def test_every_bit_of_a_word_is_fair(seed, bit):
    ones = int(((good(seed) >> np.uint32(bit)) & 1).sum())
    total = ROWS * POSITIONS
    assert abs(2 * ones - total) < LIMIT * np.sqrt(total)


@pytest.mark.parametrize("step", [0.5, 0.01])
@pytest.mark.parametrize("chance", [0.5, 1.1**-20])
def test_decisions_are_independent_though_they_share_bits(step, chance):
    """Rounding and counting of one feature, and each between neighbours, have the covariance of a fair draw: none."""
    rounds, counts = np.empty((2, ROWS, POSITIONS), np.bool_)
    fill_decisions(rounds, counts, np.uint64(random.hash_seed(3)), np.float32(step), np.uint64(int(chance * 2**64)))
    pairs = [
        (rounds, step, counts, chance),
        (rounds[:, :-1], step, rounds[:, 1:], step),
        (counts[:, :-1], chance, counts[:, 1:], chance),
    ]
    for a, p, b, q in pairs:
        both, n = np.count_nonzero(a & b), a.size
        assert abs(both - n * p * q) < LIMIT * np.sqrt(n * p * q)
        assert abs(np.count_nonzero(a) - n * p) < LIMIT * np.sqrt(n * p)
