"""The numbers of the paper: formats, rounding, counters, rates. Unbiasedness is summed, never sampled."""

from __future__ import annotations

import math
from fractions import Fraction

import numba
import numpy as np
import pytest
import reference
from hypothesis import example, given
from hypothesis import strategies as st

from lessram.errors import SpecError
from lessram.jit import target_features
from lessram.numerics import counter, fixed_point, random, rate, rounding
from lessram.numerics.fixed_point import FixedPoint
from lessram.numerics.machine import picker

# Wrappers in plain Numba: the package's own functions exist only inside kernels.


@numba.njit
def sum_over_all_patterns(step):
    """The sum of random_round(step, bits) over all 2^25 values of the bits that it looks at."""
    total = 0
    for pattern in range(np.uint32(1 << 25)):
        total += rounding.random_round(step, np.uint32(pattern << 7))
    return total


@numba.njit
def random_round(step, bits):
    return rounding.random_round(step, np.uint32(bits))


@numba.njit
def project(value, limit):
    return rounding.project(value, limit)


@numba.njit
def steps_up_words(threshold, bits):
    return counter.steps_up(threshold, bits)


def steps_up(threshold: int, bits: int) -> int:
    return steps_up_words(np.uint64(threshold), np.uint64(bits))


@numba.njit
def level_of(estimates, count, bits):
    return counter.level_of(estimates, 0, count, np.uint32(bits))


# Qn.m -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "width", "kind"),
    [("q2.13", 16, "int16"), ("Q3.12", 16, "int16"), ("q2.5", 8, "int8"), ("q0.1", 2, "int8"), ("q2.6", 9, "int16")],
)
def test_formats(text, width, kind):
    q = FixedPoint.parse(text)
    grid = reference.Grid.parse(text)
    assert (q.width, q.dtype, str(q)) == (width, np.dtype(kind), text.lower())
    assert Fraction(q.step) == grid.eps
    assert Fraction(q.largest) == grid.units_within(None) * grid.eps
    assert q.largest_units <= np.iinfo(q.dtype).max
    assert FixedPoint.parse(str(q)) == q


@pytest.mark.parametrize("text", ["q2.14", "q0.0", "q16.0", "q2", "2.13", "q-1.5", "q2.13 ", "q2,13", "float16", ""])
def test_impossible_formats_say_what_is_possible(text):
    with pytest.raises(SpecError, match="fixed-point format"):
        FixedPoint.parse(text)


@given(st.integers(0, 15), st.integers(0, 15), st.floats(1e-9, 1e9))
def test_a_radius_is_rounded_down_to_the_grid(n, m, radius):
    if not 2 <= n + m + 1 <= fixed_point.LARGEST_WIDTH:
        return
    q = FixedPoint(n, m)
    try:
        units = q.units_within(radius)
    except SpecError:
        assert radius < q.step or radius >= q.largest + q.step
        return
    assert units * q.step <= radius < (units + 1) * q.step
    assert units == reference.Grid(n, m).units_within(radius)


# Project and RandomRound ----------------------------------------------------------------------------------------------


@given(st.integers(-(2**20), 2**20), st.integers(1, 2**15))
def test_project(value, limit):
    assert project(value, limit) == reference.project(value, limit)


EXACT = [0.0, 0.5, -0.5, 0.25, 2.0**-24, 1 - 2.0**-24, -(2.0**-24), 3.0, -7.0, 5.125, -1234.5, 2.0**-20 * 12345]
INEXACT = [0.75, -0.25, 1e-3, -1e-3, 0.3, -0.7, 1e-9, -1e-9, 2.0**-25, 2.0**-40, -(2.0**-40), 100.1, -100.1, 3e-39]


@pytest.mark.parametrize("step", EXACT + INEXACT)
def test_random_round_is_unbiased(step):
    """The mean over all patterns is the step itself, or within 2^-24 of it: where the step has more than 24 binary
    places, and for some whose fraction is above 1/2, where random numbers have no more than 24 either."""
    step = np.float32(step)
    mean = Fraction(int(sum_over_all_patterns(step)), 2**25)
    if step in np.float32(EXACT):
        assert mean == Fraction(float(step))
    assert abs(mean - Fraction(float(step))) <= Fraction(1, 2**24)


def test_the_largest_bias_is_the_one_that_is_stated():
    """1 + step takes 2^-25, and where the sum is an even multiple of 2^-24 the random numbers another 2^-24."""
    step = np.float32(-0.48579415678977966)
    mean = Fraction(int(sum_over_all_patterns(step)), 2**25)
    assert abs(mean - Fraction(float(step))) == Fraction(3, 2**25)


def test_the_bias_of_steps_and_of_opposite_steps_is_the_same():
    # What little bias there is must not push weights in one direction: over +-s it cancels to within 2^-24.
    for step in np.float32(INEXACT):
        both = int(sum_over_all_patterns(step)) + int(sum_over_all_patterns(np.float32(-step)))
        assert abs(Fraction(both, 2**25)) <= Fraction(1, 2**24)


@given(st.floats(width=32), st.integers(0, 2**32 - 1))
@example(-(2.0**-80), 2**32 - 1)  # the fraction and the random number are both 1
@example(0.75, ((3 << 23) - 1) << 7)
def test_random_round_equals_the_reference(step, bits):
    with np.errstate(invalid="ignore"):
        assert random_round(np.float32(step), bits) == reference.random_round(np.float32(step), bits)


def test_steps_beyond_every_grid_saturate():
    for step, expected in [(np.inf, 65536), (-np.inf, -65536), (1e30, 65536), (-1e30, -65536), (np.nan, -65536)]:
        assert random_round(np.float32(step), 0) == expected


# Counters -------------------------------------------------------------------------------------------------------------

LADDERS = {
    "doubling": [0, 1, 2, 4, 8, 16],
    "uneven": [0, 1, 3, 3 + 2**40, 2**45],
    "thirds": [0, 3, 6, 9],
}
COUNTERS = {f"morris {base}": counter.morris(base) for base in (1.001, 1.1, 1.5, 2.0, 16.0)} | {
    name: counter.ladder(levels) for name, levels in LADDERS.items()
}


def accepted(threshold: int) -> Fraction:
    """The share of 64-bit patterns that step up, from `steps_up` itself: it is monotone, so one border says all."""
    assert steps_up(threshold, 2**64 - 1) == 0
    if threshold == 0:
        assert steps_up(threshold, 0) == 0
    else:
        assert (steps_up(threshold, 0), steps_up(threshold, threshold - 1), steps_up(threshold, threshold)) == (1, 1, 0)
    return Fraction(threshold, 2**64)


@pytest.mark.parametrize("name", COUNTERS)
def test_counters_are_unbiased(name):
    """The estimate grows by 1 in expectation from every level but the last, to the precision of a 64-bit fraction."""
    estimates = [Fraction(estimate) for estimate in COUNTERS[name].estimates.tolist()]
    thresholds = COUNTERS[name].thresholds.tolist()
    full = max(level for level in range(len(estimates)) if level == 0 or estimates[level] > estimates[level - 1])
    for level in range(full):
        gap = estimates[level + 1] - estimates[level]
        growth = accepted(thresholds[level]) * gap
        # A unit of the threshold, and two estimates rounded to float64.
        assert abs(growth - 1) <= gap / 2**64 + 2 * estimates[level + 1] / gap / 2**53
    assert not any(thresholds[full:]), "a full counter never steps"


@pytest.mark.parametrize("base", [1.1, 2.0])
def test_the_estimate_is_unbiased_after_many_increments(base):
    """The exact distribution of the counter after n increments, in Fractions."""
    morris = counter.morris(base)
    shares = [Fraction(1)]
    for n in range(1, 41):
        up = [share * Fraction(int(morris.thresholds[level]), 2**64) for level, share in enumerate(shares)]
        stay = [share - rise for share, rise in zip(shares, up, strict=True)]
        shares = [a + b for a, b in zip([*stay, 0], [0, *up], strict=True)]
        mean = sum(share * Fraction(float(morris.estimates[level])) for level, share in enumerate(shares))
        assert abs(mean - n) <= n * Fraction(1, 2**44)


@pytest.mark.parametrize("base", [1.001, 1.1, 1.5, 2.0, 16.0])
def test_morris_is_the_papers(base):
    """p(C) = b^-C and (b^C - b) / (b - 1) with C = level + 1, both correctly rounded: the same on every machine."""
    ours, paper = counter.morris(base), reference.Morris(base)
    assert ours.estimates.tolist() == [float(estimate) for estimate in paper.estimate[1:]]
    assert ours.thresholds.tolist() == [math.floor(2**64 * chance + Fraction(1, 2)) for chance in paper.probability[1:]]


@pytest.mark.parametrize(
    "levels",
    [[], [0], [1, 2], [0, 0.5], [0, 1, 1], [0, 2, 1], [0, np.inf], [0, np.nan], list(range(257))],
)
def test_impossible_ladders_are_refused(levels):
    with pytest.raises(SpecError, match="a ladder must hold"):
        counter.ladder(levels)


@pytest.mark.parametrize("base", [1.0, 0.5, 16.1, math.nan, math.inf, -2.0])
def test_impossible_bases_are_refused(base):
    with pytest.raises(SpecError, match="base"):
        counter.morris(base)


@pytest.mark.parametrize("count", [0.0, 0.25, 1.0, 7.3, 1000.0, 123456.789, 1e9])
def test_a_merged_count_goes_back_onto_the_ladder_unbiased(count):
    estimates = counter.morris(1.1).estimates
    low = level_of(estimates, count, 2**32 - 1)
    first, last = 0, 2**32  # the patterns below `first` go up, those from `last` on do not
    while first < last:
        middle = (first + last) // 2
        if level_of(estimates, count, middle) > low:
            first = middle + 1
        else:
            last = middle
    levels = {level_of(estimates, count, bits) for bits in range(0, 2**32, 2**26)}
    assert levels <= {low, low + 1}, "only the two levels around the count are possible"
    gap = Fraction(estimates[low + 1]) - Fraction(estimates[low])
    mean = Fraction(estimates[low]) + Fraction(first, 2**32) * gap
    assert abs(mean - Fraction(count)) <= gap / 2**32 + Fraction(count) / 2**50


def test_counts_beyond_the_ladder_saturate():
    estimates = counter.ladder(LADDERS["doubling"]).estimates
    assert level_of(estimates, 16.0, 0) == level_of(estimates, 1e300, 0) == 5


# Rates ----------------------------------------------------------------------------------------------------------------


@numba.njit
def global_rate(alpha, example, floor):
    return rate.global_rate(alpha, example, floor)


@given(st.floats(1e-3, 1e3), st.integers(0, 2**40), st.sampled_from([0.0, 2.0**-13]))
def test_the_global_rate(alpha, example, floor):
    ours = global_rate(np.float32(alpha), np.uint64(example), np.float32(floor))
    assert ours == np.float32(max(float(np.float32(alpha)) / math.sqrt(example + 1), floor))


def test_rates_by_level_fall_to_the_floor():
    rates = rate.rates_by_level(0.5, counter.morris(1.1).estimates, floor=2.0**-13)
    assert rates[0] == 0.5
    assert np.all(np.diff(rates) <= 0)
    assert rates[-1] == np.float32(2.0**-13)


# Bits -----------------------------------------------------------------------------------------------------------------


@numba.njit
def words_of(seed, example, position):
    key = random.row_key(seed, example)
    shared = random.shared_word(key)
    own = random.word(position, key)
    return key, own, random.rounding_bits(own, shared), random.counting_bits(own, shared)


@given(st.integers(-(2**63), 2**64 - 1), st.integers(0, 2**50), st.integers(0, 2**32 - 1))
def test_random_words_equal_the_reference(seed, example, position):
    hashed = np.uint64(random.hash_seed(seed))
    key, own, rounding_bits, counting_bits = words_of(hashed, np.uint64(example), np.uint32(position))
    assert key == reference.row_key(seed, example)
    assert own == reference.word(position, key)
    assert rounding_bits == reference.rounding_bits(position, key)
    assert counting_bits == reference.counting_bits(position, key)


def test_a_row_s_words_are_all_different():
    # word() is a bijection of the position for every key, so within one row no two features share their word.
    key = reference.row_key(1, 2)
    assert len({reference.word(position, key) for position in range(20_000)}) == 20_000


# Bits picked from words -----------------------------------------------------------------------------------------------


def picked(word: int, mask: int) -> int:
    """The bits of `word` under `mask`, the lowest first, one by one."""
    bits = [(word >> place) & 1 for place in range(64) if (mask >> place) & 1]
    return sum(bit << place for place, bit in enumerate(bits))


@pytest.mark.parametrize("by_instruction", [False, True])
@pytest.mark.parametrize("mask", [0xFFE1, 1, 1 << 63, 0, 2**64 - 1, 0x5555_0000_FF00_A00A])
def test_picked_bits(mask, by_instruction):
    if by_instruction and "bmi2" not in target_features():
        pytest.skip("this processor has no instruction for it")
    pick = picker(mask, by_instruction)

    @numba.njit
    def pick_all(words, found):
        for k in range(len(words)):
            found[k] = pick(words[k])

    words = np.random.default_rng(mask % 997).integers(0, 2**64, 100, dtype=np.uint64)
    words[:2] = 0, 2**64 - 1
    found = np.zeros_like(words)
    pick_all(words, found)
    assert found.tolist() == [picked(int(word), mask) for word in words]
