"""e3m6: its gridpoints, and rounding on them, unbiased over all random bits, exactly.

The decision of `rounded_sum` is `uniform(bits) < chance` with 2^24 uniform numbers in ascending order, so that the
probability of the upper gridpoint is the number of uniform numbers below one threshold: a bisection over their
indices counts it exactly. That the order holds is itself checked, by summation over many of them.
"""

from __future__ import annotations

from fractions import Fraction

import numba
import numpy as np
import pytest
from reference_halfword import POINTS, SIZES, ordinal, round_sum

from lessram.errors import SpecError
from lessram.numerics import minifloat
from lessram.numerics.minifloat import E3M6, Minifloat

BITS = 1 << 24
PRECISION = Fraction(1, 2**23)
"""The bias that the module's text allows, relative to the distance of the two gridpoints."""


@numba.njit
def sum_rounded(units, delta, index):
    """`rounded_sum` with its uniform number given as an index; the lowest 8 bits must not matter."""
    return minifloat.rounded_sum(np.int16(units), delta, np.uint32((index << 8) | 0x5A))


@numba.njit
def split(units, delta):
    """The lower ordinal, and for how many of the 2^24 uniform numbers the upper one is chosen."""
    base = sum_rounded(units, delta, BITS - 1)
    if sum_rounded(units, delta, 0) == base:
        return base, 0
    low, high = 0, BITS  # below `low` all go up, from `high` on none does
    while low < high:
        middle = (low + high) // 2
        if sum_rounded(units, delta, middle) > base:
            low = middle + 1
        else:
            high = middle
    return base, low


@numba.njit
def summed(units, delta, stride):
    """How often the upper gridpoint is chosen, over every `stride`-th uniform number."""
    base = sum_rounded(units, delta, BITS - 1)
    ups = 0
    for index in range(stride // 2, BITS, stride):
        ups += sum_rounded(units, delta, index) - base
    return ups


def point(n: int) -> int:
    return POINTS[n + len(SIZES) - 1]


STARTS = [point(n) for n in (0, 1, 5, 63, 64, 65, 127, 128, 129, 191, 192, 193, 255, 256, 320, 383, 448, 500, 510)]
DELTAS = [
    *(2.0**-k for k in (40, 26, 25, 24, 12, 3, 1)),
    *(0.3, 0.999, 1.0, 1.25, 7.5, 31.4159, 63.99, 64.0, 64.01, 100.7, 1000.3, 5000.0, 8128.0, 12000.7),
]


def every_pair() -> list[tuple[int, np.float32]]:
    """Steps from both sides of zero in both directions: within a binade, across one seam and across many."""
    return [
        (s * start, np.float32(t * delta)) for start in STARTS for delta in DELTAS for s in (1, -1) for t in (1, -1)
    ]


def test_unbiased_between_the_two_gridpoints_around_the_sum():
    seams = worst = 0
    for units, delta in every_pair():
        target = units + Fraction(float(delta))
        if not -SIZES[-1] < target < SIZES[-1]:
            continue
        below, ups = split(units, delta)
        lo, hi = point(below), point(below + 1)
        assert lo <= target <= hi or abs(float(delta)) < 2.0**-24, "nothing between them and the sum"
        mean = lo + Fraction(ups, BITS) * (hi - lo)
        worst = max(worst, abs(mean - target) / (hi - lo))
        seams += hi - lo > 1 and abs(units) < 128
    assert 0 < worst < PRECISION
    assert seams > 50, "coarser binades were reached from finer ones"


def test_the_bisection_is_the_sum_over_the_uniform_numbers():
    # Every 64th uniform number, in the middle of its 64: their sum is within 1/2 of the bisection's divided by 64.
    for units, delta in [(0, 0.3), (126, 1.7), (-126, -1.7), (130, -2.3), (-4096, 40.0), (4096, -1.0), (8064, 63.0)]:
        _, exact = split(units, np.float32(delta))
        assert abs(summed(units, np.float32(delta), 64) - Fraction(exact, 64)) <= Fraction(1, 2)
        assert 0 < exact < BITS, "a decision that is really random"


def test_equals_the_reference():
    rng = np.random.default_rng(3)
    for units, delta in every_pair():
        for index in rng.integers(0, BITS, 4).tolist():
            expected = round_sum(units, delta, index << 8)
            found = sum_rounded(units, delta, index)
            assert point(max(-511, min(found, 511))) == expected


def test_a_step_of_zero_changes_nothing():
    assert [split(units, np.float32(0)) for units in POINTS] == [(ordinal(units), 0) for units in POINTS]


@pytest.mark.parametrize("delta", [1e9, 3e38, np.inf, -1e9, -np.inf, np.nan])
def test_absurd_steps_end_beyond_the_range(delta):
    for units in (0, 8128, -8128):
        assert abs(sum_rounded(units, np.float32(delta), 77)) > 511


def test_gridpoints():
    ordinals = np.arange(-511, 512)
    assert E3M6.units(ordinals).tolist() == POINTS
    assert E3M6.ordinals(np.array(POINTS)).tolist() == ordinals.tolist()
    assert (E3M6.step, E3M6.largest, E3M6.width) == (2.0**-10, 7.9375, 10)
    steps = np.diff(SIZES) * E3M6.step
    assert set(steps[: SIZES.index(128)]) == {2.0**-10}, "below 1/8"
    assert set(steps[SIZES.index(4096) :]) == {2.0**-4}, "from 4 on"
    assert np.all(steps <= np.maximum(2.0**-10, np.array(SIZES[:-1]) * 2.0**-16)), "1/64 of the weight at most"


def test_nearest_gridpoints():
    assert E3M6.ordinals(np.array([0.4, -0.6, 128.9, 129.1, -8e3, 1e6, -1e6])).tolist() == [
        0,
        -1,
        128,
        129,
        -509,
        511,
        -511,
    ]


def test_rounding_of_arrays_is_unbiased():
    # floor(s + u) over equally spaced u in [0, 1): the mean is off by less than their distance.
    numbers = np.array([0.0, 0.3, -0.3, 127.5, -127.5, 128.5, 129.7, -255.9, 4097.0, -4097.0, 8127.0, 8128.0, -8128.0])
    uniform = np.arange(4096) / 4096
    rounded = np.array([E3M6.rounded(np.full(4096, number), uniform) for number in numbers])
    assert set(rounded.ravel().tolist()) <= set(POINTS)
    steps = np.maximum(rounded.max(axis=1) - rounded.min(axis=1), 1)
    assert np.all(np.abs(rounded.mean(axis=1) - numbers) <= steps / 4096)


@pytest.mark.parametrize(("radius", "units"), [(None, 8128), (7.9375, 8128), (7.9, 8064), (0.125, 128), (2.0**-10, 1)])
def test_the_radius_is_a_gridpoint(radius, units):
    assert E3M6.units_within(radius) == units


@pytest.mark.parametrize("radius", [8.0, 0.0005])
def test_a_radius_off_the_grid_is_refused(radius):
    with pytest.raises(SpecError, match=f"between 0.0009765625 and 7.9375 for e3m6, got {radius}"):
        E3M6.units_within(radius)


def test_other_formats_and_names():
    assert str(Minifloat.parse("e4m5")) == "e4m5"
    assert Minifloat.parse("e4m5").step == 2.0**-17
    for text in ("e3", "q3.6", "m6e3", "e3m6 ", "e0m9", "E3M6"):
        with pytest.raises(SpecError, match="such as e3m6"):
            Minifloat.parse(text)
