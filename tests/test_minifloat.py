"""e3m6 and e3m7: their gridpoints, and rounding on them, unbiased over all random bits, exactly.

The decision of `rounded_sum` is `uniform(bits) < chance` with 2^24 uniform numbers in ascending order, so that the
probability of the upper gridpoint is the number of uniform numbers below one threshold: a bisection over their
indices counts it exactly. That the order holds is itself checked, by summation over many of them.
"""

from __future__ import annotations

from fractions import Fraction

import numba
import numpy as np
import pytest
from reference_halfword import COARSE, FINE, ordinal, round_sum

from lessram.errors import SpecError
from lessram.numerics import minifloat
from lessram.numerics.minifloat import E3M6, E3M7, Minifloat

BITS = 1 << 24
PRECISION = Fraction(1, 2**23)
"""The bias that the module's text allows, relative to the distance of the two gridpoints."""
LARGEST = FINE[-1]

both_grids = pytest.mark.parametrize("fine", [False, True], ids=["e3m6", "e3m7"])


@numba.njit
def sum_rounded(units, delta, index, fine):
    """`rounded_sum` with its uniform number given as an index; the lowest 8 bits must not matter."""
    return minifloat.rounded_sum(np.int16(units), delta, np.uint32((index << 8) | 0x5A), fine)


@numba.njit
def split(units, delta, fine):
    """The lower and upper ordinal, and for how many of the 2^24 uniform numbers the upper one is chosen."""
    base, top = sum_rounded(units, delta, BITS - 1, fine), sum_rounded(units, delta, 0, fine)
    if top == base:
        return base, base, 0
    low, high = 0, BITS  # below `low` all go up, from `high` on none does
    while low < high:
        middle = (low + high) // 2
        if sum_rounded(units, delta, middle, fine) > base:
            low = middle + 1
        else:
            high = middle
    return base, top, low


@numba.njit
def summed(units, delta, fine, stride):
    """How often the upper gridpoint is chosen, over every `stride`-th uniform number."""
    base = sum_rounded(units, delta, BITS - 1, fine)
    ups = 0
    for index in range(stride // 2, BITS, stride):
        ups += sum_rounded(units, delta, index, fine) > base
    return ups


def point(n: int) -> int:
    return FINE[n + FINE.index(0)]


ORDINALS = [0, 1, 10, 127, 128, 129, 254, 255, 256, 257, 258, 383, 384, 386, 511, 512, 640, 767, 896, 1000, 1021]
DELTAS = [
    *(2.0**-k for k in (40, 26, 25, 24, 12, 3, 1)),
    *(0.3, 0.999, 1.0, 1.25, 2.0, 7.5, 31.4159, 63.99, 64.0, 64.01, 100.7, 1000.3, 5000.0, 16256.0, 24000.7),
]


def every_pair() -> list[tuple[int, np.float32]]:
    """Steps from both sides of zero in both directions: within a binade, across one seam and across many."""
    starts = [point(n) for n in ORDINALS]
    return [
        (s * start, np.float32(t * delta)) for start in starts for delta in DELTAS for s in (1, -1) for t in (1, -1)
    ]


@both_grids
def test_unbiased_between_the_two_gridpoints_around_the_sum(fine):
    points = FINE if fine else COARSE
    seams = worst = 0
    for units, delta in every_pair():
        target = units + Fraction(float(delta))
        if not points[0] < target < points[-1]:
            continue
        below, above, ups = split(units, delta, fine)
        lo, hi = point(below), point(above)
        assert {lo, hi} <= set(points)
        assert not any(lo < other < hi for other in points), "neighbours"
        mean = lo + Fraction(ups, BITS) * (hi - lo)
        distance = max(hi - lo, 1)
        worst = max(worst, abs(mean - target) / distance)
        seams += abs(units) < 256 and abs(lo) >= 512
    assert 0 < worst < PRECISION
    assert seams > 50, "coarser binades were reached from finer ones"


@both_grids
def test_the_bisection_is_the_sum_over_the_uniform_numbers(fine):
    # Every 64th uniform number, in the middle of its 64: their sum is within 1/2 of the bisection's divided by 64.
    for units, delta in [(0, 0.3), (252, 3.7), (-252, -3.7), (260, -4.7), (-8192, 80.0), (8192, -2.0), (16128, 65.0)]:
        *_, exact = split(units, np.float32(delta), fine)
        assert abs(summed(units, np.float32(delta), fine, 64) - Fraction(exact, 64)) <= Fraction(1, 2)
        assert 0 < exact < BITS, "a decision that is really random"


@both_grids
def test_equals_the_reference(fine):
    rng = np.random.default_rng(3)
    limit = ordinal((FINE if fine else COARSE)[-1])
    for units, delta in every_pair():
        for index in rng.integers(0, BITS, 4).tolist():
            found = sum_rounded(units, delta, index, fine)
            assert point(max(-limit, min(found, limit))) == round_sum(units, delta, index << 8, fine)


def test_a_step_of_zero_changes_nothing():
    for points, fine in ((COARSE, False), (FINE, True)):
        assert [split(units, np.float32(0), fine)[1:] for units in points] == [(ordinal(u), 0) for u in points]


@pytest.mark.parametrize("delta", [1e9, 3e38, np.inf, -1e9, -np.inf, np.nan])
def test_absurd_steps_end_beyond_the_range(delta):
    for units in (0, LARGEST, -LARGEST):
        assert all(abs(sum_rounded(units, np.float32(delta), 77, fine)) > 1023 for fine in (False, True))


def test_gridpoints():
    coarse, fine = np.arange(-511, 512), np.arange(-1023, 1024)
    assert (2 * E3M6.units(coarse)).tolist() == COARSE
    assert E3M7.units(fine).tolist() == FINE
    assert E3M7.units(2 * coarse).tolist() == COARSE, "those of e3m6 have even ordinals in e3m7"
    assert E3M6.ordinals(np.array(COARSE) / 2).tolist() == coarse.tolist()
    assert (E3M6.step, E3M6.largest, E3M6.width) == (2.0**-10, 7.9375, 10)
    steps = np.diff(E3M6.units(np.arange(512))) * E3M6.step
    assert set(steps[:128]) == {2.0**-10}, "below 1/8"
    assert set(steps[448:]) == {2.0**-4}, "from 4 on"


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
    assert set(rounded.ravel().tolist()) <= {units / 2 for units in COARSE}
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
    for text in ("e3", "q3.6", "m6e3", "e3m6 ", "e0m9", "E3M6", "e3m6x", "e3m6x02", "e3m6x-2", "e3m6x.5", "e3m6x16384"):
        with pytest.raises(SpecError, match="such as e3m6"):
            Minifloat.parse(text)


def test_wider_formats_are_the_same_grid_times_a_power_of_two():
    ordinals = np.arange(-E3M6.largest_ordinal, E3M6.largest_ordinal + 1)
    grid = E3M6
    for times in (2, 4, 8):
        grid = grid.wider
        assert (str(grid), grid.step, grid.largest) == (f"e3m6x{times}", times * E3M6.step, times * E3M6.largest)
        assert Minifloat.parse(str(grid)) == grid
        assert (grid.units(ordinals) == E3M6.units(ordinals)).all()
        assert grid.units_within(times * 1.01) == E3M6.units_within(1.01)
    for times in (1, 3, 6, 1024, "0.50", 0.75, 0.0, "0.06"):
        with pytest.raises(SpecError, match=f"power of two, 0.125 to 512 but not 1, got 'e3m6x{times}'"):
            Minifloat.parse(f"e3m6x{times}")


def test_narrower_formats_have_all_gridpoints_of_e3m6_within_their_reach_and_finer_ones():
    def weights(grid):
        return set((grid.units(np.arange(grid.largest_ordinal + 1)) * grid.step).tolist())

    grid = E3M6
    for times in (0.5, 0.25, 0.125):
        grid = grid.narrower
        assert (str(grid), grid.step, grid.largest) == (f"e3m6x{times}", times * E3M6.step, times * E3M6.largest)
        assert Minifloat.parse(str(grid)) == grid
        assert grid.wider.narrower == grid
        assert {w for w in weights(E3M6) if w <= grid.largest} < weights(grid)
    assert grid.narrower is None
