"""The 8-bit accumulator: unbiased over all its random bits, exactly; and its vector pass.

The uniform number is fl(fl(own + f) * 2^-16), 0 <= own < 2^16 a feature's own half word and f an odd multiple of
2^-24 below 1, from the row's shared word. Correctly rounded operations are monotone and f < 1, so the decision
`uniform * gap < y` is true for all pairs (own, f) up to some place in lexicographic order and false behind it.
Hence one bisection over the 2^16 * 2^23 pairs gives the probability of a step up as an exact fraction. That the
order holds is itself checked, by plain summation over all 2^16 halves.
"""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numba
import numpy as np
import pytest
from numpy.typing import NDArray
from reference import Morris
from reference_squares import Accumulator as Reference
from reference_squares import level_uniform

from lessram.numerics import accumulator as ours
from lessram.numerics.accumulator import Accumulator, accumulator
from lessram.numerics.random import hash_seed, word
from lessram.numerics.vector import padded
from lessram.tables import squares_passes
from lessram.tables.squares import SquaresScratch, squares_scratch

LAST = 255
OWN, SHARED = 1 << 16, 1 << 23
KEY = 0x0123456789ABCDEF
TABLE = accumulator(1.1)
FINEST = Fraction(1, 2**40)
"""Half the distance of neighbouring uniform numbers where they are closest: what a probability can be off by, at
least. Further up they are as far apart as float32 is, 2^-24 of themselves."""
PRECISION = Fraction(1, 2**20)
"""Bias, relative to what is added; found are 2^-21.1 to 2^-24."""


@numba.njit
def shared_of(index):
    """The shared word whose 24 bits for accumulators are 2 * index + 1; the others are noise that must not matter."""
    return ((np.uint64(2) * np.uint64(index) + np.uint64(1)) << np.uint64(24)) | np.uint64(0xABCD000000123456)


@numba.njit
def add(table, level, addend, own, index):
    """`advanced` with the random numbers given as the two indices."""
    uniform = ours.fine_uniform(np.uint32(own) | np.uint32(0x5A5A0000), shared_of(index))
    return ours.advanced(table, np.uint8(level), addend, uniform)


@numba.njit
def split(table, level, addend):
    """The level below, and for how many of the pairs (own, f) it is the one above, by bisection."""
    base = add(table, level, addend, OWN - 1, SHARED - 1)
    low, high = np.int64(0), np.int64(OWN) * np.int64(SHARED)  # below `low` all go up, from `high` on none does
    while low < high:
        middle = (low + high) // 2
        if add(table, level, addend, middle // SHARED, middle % SHARED) > base:
            low = middle + 1
        else:
            high = middle
    return base, low


@numba.njit
def summed(table, level, addend, fractions):
    """How often the level rises above the lowest one reached, over all own halves and some shared fractions."""
    base = add(table, level, addend, OWN - 1, SHARED - 1)
    ups = np.int64(0)
    for index in fractions:
        for own in range(OWN):
            ups += add(table, level, addend, own, index) - base
    return ups


def exact_values(base: float) -> list[Fraction]:
    """v_c = u (b^c - 1) / (b - 1)"""
    b = Fraction(base)
    return [(b**c - 1) / (b - 1) / 1024 for c in range(LAST + 1)]


def expected_value(table: Accumulator, values: list[Fraction], level: int, addend: np.float32) -> Fraction:
    """E[v_new] over all 2^39 pairs of random numbers."""
    below, ups = split(table, level, addend)
    chance = Fraction(ups, OWN * SHARED)
    return values[below] if ups == 0 else (1 - chance) * values[below] + chance * values[below + 1]


def addends(level: int, values: list[Fraction]) -> list[np.float32]:
    """From far below one level to jumps over most of the ladder, and around the seams between levels."""
    width = values[level + 1] - values[level]
    parts = [float(width * Fraction(part)) for part in (2.0**-20, 1e-4, 0.01, 0.3, 0.999999, 1, 1.000001, 1.5)]
    seams = [float(values[to] - values[level]) for to in (level + 2, level + 3, level + 10, level + 70) if to < LAST]
    jumps = [1e-4, 0.05, 1.0, 37.0, 5e4, 1e7]
    around = [seam * factor for seam in seams for factor in (1 - 1e-6, 1, 1 + 1e-6)]
    top = min(values[LAST], Fraction(2**40))
    return [np.float32(a) for a in parts + around + jumps if values[level] + Fraction(a) < top]


@pytest.mark.parametrize("base", [1.02, 1.1, 2.0])
def test_unbiased(base):
    # Two errors only: of the float32 operations, relative to the addend, and of the spacing of uniform numbers,
    # which is absolute: FINEST of the distance to the next level. Base 2 leaves float32 early.
    table, values = accumulator(base), exact_values(base)
    worst = Fraction(0)
    for level in range(0, 60 if base == 2.0 else LAST, 3 if base == 1.1 else 11):
        for addend in addends(level, values):
            a = Fraction(float(addend))
            bias = abs(expected_value(table, values, level, addend) - values[level] - a)
            spacing = FINEST * (values[level + 1] - values[level])
            worst = max(worst, (bias - spacing) / a)
    assert PRECISION / 32 < worst < PRECISION


def test_tiny_addends_are_not_lost():
    # Addends that move one level with a chance of 2^-16 to 2^-34, well below one own half: only shared bits see them.
    values = exact_values(1.1)
    for level in (0, 40, 200, 254):
        width = values[level + 1] - values[level]
        for exponent in range(16, 36, 2):
            addend = np.float32(float(width / 2**exponent))
            gain = expected_value(TABLE, values, level, addend) - values[level]
            assert abs(gain - Fraction(float(addend))) <= PRECISION * Fraction(float(addend)) + FINEST * width
            assert gain > 0


PAIRS = [(0, 1e-7), (0, 5e-4), (0, 0.25), (3, 1000.0), (57, 0.01), (57, 0.7), (130, 1.0), (200, 3e5), (254, 10.0)]


@pytest.mark.parametrize(("level", "addend"), PAIRS)
def test_the_bisection_is_the_sum_over_all_own_halves(level, addend):
    # For each own half the share of fractions that go up is 1 but for one half, where it falls from 1 to 0: the sum
    # over own halves is a monotone function of f that falls by at most 1. Its mean over 16 cells' midpoints is then
    # within 1/16 of the mean over all f, in units of 2^-16.
    cells = 16
    fractions = np.array([(2 * cell + 1) * SHARED // (2 * cells) for cell in range(cells)])
    ups = Fraction(int(summed(TABLE, level, np.float32(addend), fractions)), cells)
    _, exact = split(TABLE, level, np.float32(addend))
    assert abs(ups - Fraction(exact, SHARED)) <= Fraction(1, cells)
    assert 0 < exact < OWN * SHARED, "a decision that is really random"


def test_adding_nothing_changes_nothing():
    assert [split(TABLE, level, np.float32(0)) for level in range(LAST + 1)] == [(c, 0) for c in range(LAST + 1)]


def test_levels_never_fall_and_grow_with_the_addend():
    rng = np.random.default_rng(8)
    sizes = np.sort(np.exp(rng.normal(0, 9, 300))).astype(np.float32)
    for level in (0, 1, 17, 100, 180, 254, 255):
        own, index = int(rng.integers(OWN)), int(rng.integers(SHARED))
        reached = [add(TABLE, level, size, own, index) for size in sizes]
        assert reached[0] >= level
        assert np.all(np.diff(reached) >= 0)
        assert reached[-1] == LAST


STRANGE = [0.0, 1e-45, 3.5e8, 1e18, 1e25, 3e38, np.inf, np.nan]


@pytest.mark.parametrize("base", [1.001, 1.1, 2.0, 16.0])
@pytest.mark.parametrize("level", [0, 1, 128, 254, 255])
def test_saturation(base, level):
    table, reference = accumulator(base), Reference(base)
    with np.errstate(all="ignore"):
        for size in (np.float32(size) for size in STRANGE):
            for own, index in ((0, 0), (OWN - 1, SHARED - 1)):
                uniform = (np.float32(own) + np.float32(2 * index + 1) * np.float32(2.0**-24)) * np.float32(2.0**-16)
                assert add(table, level, size, own, index) == reference.add(level, size, uniform)
                assert level <= add(table, level, size, own, index) <= LAST
    if base == 1.1:
        assert all(add(table, level, np.float32(size), 0, 0) == LAST for size in STRANGE[3:])


def test_uniform_numbers():
    # In (0, 1], 1 only by rounding at the very top; 16 own bits lead, 24 shared ones follow.
    @numba.njit
    def uniform(own, index):
        return ours.fine_uniform(np.uint32(own), shared_of(index))

    assert uniform(0, 0) == 2.0**-40
    assert uniform(0, SHARED - 1) == np.float32((1 - 2.0**-24) * 2.0**-16)
    assert uniform(OWN - 1, SHARED - 1) == 1.0
    assert uniform(OWN // 2, 0) == 0.5, "23 bits below the leading one: the shared tail rounds away"
    assert uniform(7 | 0xFFFF0000, 3) == uniform(7, 3), "the upper half belongs to rounding"
    key = hash_seed(12)
    words = np.array([float(level_uniform(position, key)) for position in range(2000)])
    assert abs(words.mean() - 0.5) < 0.02


def test_the_logarithm_is_low_by_less_than_a_level():
    # Every float32 in [1, 2), on which the cubic repeats for all exponents.
    x = np.arange(0x3F800000, 0x40000000, 1, dtype=np.uint32).view(np.float32)
    c3, c2, c1, c0 = ours.LOG_CUBIC
    low = np.log2(x.astype(float)) - (((x * c3 + c2) * x + c1) * x + c0).astype(float) - 127
    assert low.min() > 2e-5, "never too high, even where a larger exponent costs digits: 2^-16 is 1.5e-5"
    assert low.max() * float(accumulator(1.01).levels_per_octave) < 1


def test_adding_the_unit_over_the_base_is_the_papers_counter():
    # a = 1 and u = b of the module's text, both divided by 1024 b to keep the unit: C = c + 1 steps up with b^-C.
    # The ladder's unit is not b / b but a float32 of it, so equality is within the float32 error of the addend.
    b = 1.1
    paper = Morris(b)
    addend = np.float32(2.0**-10 / b)
    for level in range(LAST):
        below, ups = split(TABLE, level, addend)
        chance = below - level + Fraction(ups, OWN * SHARED)
        wanted = paper.probability[level + 1]
        assert abs(chance - wanted) <= PRECISION * wanted + FINEST
        assert below == level
    estimates = [estimate / (1024 * Fraction(b)) for estimate in paper.estimate[1:]]
    assert [float(value) for value in exact_values(b)] == pytest.approx([float(e) for e in estimates], rel=1e-12)


# The vector pass ------------------------------------------------------------------------------------------------------


@numba.njit
def level_row(scratch, values, length, square, table, index):
    fraction = ours.fraction_of(shared_of(index))
    start, length, key = np.uint64(0), np.uint64(length), np.uint64(KEY)
    squares_passes.level_row(scratch, values, start, length, square, table, key, fraction)


@numba.njit
def levels_by_the_scalar_function(levels, values, square, table, index):
    new = np.empty(len(levels), np.int32)
    for j in range(len(levels)):
        addend = square if values is None else square * values[j] * values[j]
        uniform = ours.fine_uniform(word(np.uint32(j), np.uint64(KEY)), shared_of(index))
        new[j] = ours.advanced(table, np.uint8(levels[j]), addend, uniform)
    return new


Row = tuple[SquaresScratch, NDArray[np.int64], NDArray[np.float32]]


def filled(length: int, table: Accumulator, spread: float, seed: int) -> Row:
    """Scratch for a row of random levels, these levels, and the row's values."""
    rng = np.random.default_rng(seed)
    scratch = squares_scratch(length, np.dtype([("weight", "<i2"), ("level", "u1")]))
    levels = rng.integers(0, LAST + 1, padded(length))
    scratch.sums[:] = table.heights[levels]
    values = np.exp(rng.normal(0, spread, length)) * rng.choice([-1, 1], length)
    return scratch, levels[:length], values.astype(np.float32)


def check_levels(
    scratch: SquaresScratch, levels: NDArray[np.int64], values: Any, square: float, table: Accumulator, index: int
) -> None:
    length = len(levels)
    level_row(scratch, values, length, np.float32(square), table, index)
    added = scratch.added[:length]
    expected = levels_by_the_scalar_function(levels, values, np.float32(square), table, index)
    np.testing.assert_array_equal(np.minimum(levels + added, LAST), expected)
    assert np.all(added >= 0)
    risen = ((scratch.risen[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)).ravel()
    assert risen.tolist() == [*(added > 0), *[0] * (len(risen) - length)]


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 40, 300, 5000])
@pytest.mark.parametrize("base", [1.02, 1.1, 2.0])
def test_the_vector_pass_equals_the_scalar_function(length, base):
    table = accumulator(base)
    for spread, square, index in ((0.0, 1.0, 0), (0.5, 1e-3, 12345), (3.0, 0.25, SHARED - 1), (12.0, 1e3, 77)):
        scratch, levels, values = filled(length, table, spread, seed=length)
        check_levels(scratch, levels, values, square, table, index)
        check_levels(scratch, levels, None, square, table, index)


def test_the_vector_pass_saturates_like_the_scalar_function():
    scratch, levels, _ = filled(16, TABLE, 0.0, seed=1)
    values = np.float32([0, 1e-30, 1e-23, 1e4, 1e9, 1e15, 1e19, 1e20, 3e38, -3e38, np.inf, np.nan, 1, 2, 3, 4])
    for square in (0.0, 1e-45, 1.0, 1e30):
        check_levels(scratch, levels, values, square, TABLE, 5)


def test_what_leaves_a_level_as_it_is_leaves_higher_ones():
    """So that an occurrence whose level stays need not be looked at again when its slot has gone up before."""
    rng = np.random.default_rng(3)
    for addend in np.float32(np.exp(rng.uniform(-20, 5, 200))):
        for own in rng.integers(0, OWN, 5):
            rises = np.array([add(TABLE, level, addend, own, 7) > level for level in range(LAST)])
            assert not np.any(rises[1:] & ~rises[:-1])


@numba.njit
def rate_row(scratch, values, length, square, lowest, alpha, beta):
    start, length = np.uint64(0), np.uint64(length)
    return squares_passes.rate_row(scratch.sums, values, start, scratch.noted, length, square, lowest, alpha, beta)


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 40, 300])
def test_rates_and_their_reach(length):
    scratch, _, values = filled(length, TABLE, 1.0, seed=2)
    choice = SimpleNamespace(square=np.float32(0.11), alpha=np.float32(0.3), beta=np.float32(0.7))
    for x in (values, None):
        reach = rate_row(scratch, x, length, choice.square, TABLE.lowest, choice.alpha, choice.beta)
        x, v = np.ones(length, np.float32) if x is None else x, scratch.sums[:length] - TABLE.lowest
        expected = x * (choice.alpha / (choice.beta + np.sqrt(v + choice.square * x * x)))
        assert scratch.noted[:length].tobytes() == expected.tobytes()
        assert reach == pytest.approx(float((x.astype(float) * expected).sum()), rel=1e-6)
        assert np.all(scratch.noted[length:] == 0), "lanes behind the row reach nowhere"
