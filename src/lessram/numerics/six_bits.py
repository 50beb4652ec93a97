"""A 6-bit accumulator of squared gradients, for cells of 16 bits.

The levels of numerics.accumulator with b = 1.23 and u = 2^-6: all from 0 to 31, then only the even ones, 32, 34 .. 62.
Sums end at 2.5e4, where rates have fallen to alpha / 173, and stay. Among 64 codes these are 48 levels: the lowest
bit of a high level is free. It goes to the weight, which at that height has taken many steps, each smaller than the
distance of gridpoints: there a finer grid is worth more than a better sum.

Between even levels the rule is the same, with two levels for one: to V_c b^2 with probability y / (b^2 - 1), y being
what the sum exceeds V_c by, relative to it. Where the whole levels climbed are odd, one goes back down, and from
there it is (1 + y) b - 1.

Sums are unbiased, rates are not quite: high levels are 1.51 apart, so that a sum is known to a standard deviation of
half of itself, and the mean of 1 / sqrt(sum) over that is 8.5 % above the rate of the exact sum. Rates are made from
`rate_heights` therefore, where high levels stand for 1.176 = 1.085^2 times as much. On low levels, where most sums
are young and nearly exact, it is left: there the same correction costs more than it gains.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from lessram.jit import inlined
from lessram.numerics.accumulator import Accumulator, accumulator, climbed

LEVEL_BITS = 6
LEVELS = 1 << LEVEL_BITS
FIRST_HIGH = LEVELS // 2
"""From this level on there are only even ones."""
LAST = LEVELS - 2
BASE = np.float32(1.23)
PAIR_GAP = np.float32(float(Fraction(1.23) ** 2 - 1))
"""b^2 - 1"""

SPREAD = 1.176
"""(the mean of sqrt(v / v_c) over the levels c that a sum v may have)^2, for even levels"""

_ONE = np.float32(1.0)


def six_bit_accumulator() -> Accumulator:
    """Its tables; an odd code from 33 on has the height of the level below.

    >>> values = six_bit_accumulator().heights - six_bit_accumulator().lowest
    >>> float(values[1]), round(float(values[62])), bool(values[62] == values[63])
    (0.015625, 25480, True)
    """
    made = accumulator(1.23, 2.0**-6, LEVELS)
    heights = made.heights.copy()
    heights[FIRST_HIGH + 1 :: 2] = heights[FIRST_HIGH::2]
    return made._replace(heights=heights)


def rate_heights() -> NDArray[np.float32]:
    """The heights that rates are made from, by code.

    >>> plain = six_bit_accumulator().heights
    >>> [round(float(rate / height), 3) for rate, height in zip(rate_heights(), plain)][30:34]
    [1.0, 1.0, 1.176, 1.176]
    """
    made = six_bit_accumulator()
    lowest, heights = float(made.lowest), made.heights.astype(np.float64)
    heights[FIRST_HIGH:] = lowest + SPREAD * (heights[FIRST_HIGH:] - lowest)
    return heights.astype(np.float32)


def six_bit_ladder() -> NDArray[np.float32]:
    """The heights of the levels that there are, in order.

    >>> len(six_bit_ladder())
    48
    """
    heights = six_bit_accumulator().heights
    return np.concatenate([heights[:FIRST_HIGH], heights[FIRST_HIGH : LAST + 1 : 2]])


@inlined
def advanced_by_pairs(table, level, addend, uniform):
    """The level after adding `addend`, unbiased over the uniform number; float32 throughout."""
    below, y = climbed(table, level, addend)
    if below < np.int32(FIRST_HIGH):
        return below + np.int32(uniform * table.gap < y)
    if below & np.int32(1):
        below -= np.int32(1)
        y = (y + _ONE) * BASE - _ONE
    return min(below + np.int32(2) * np.int32(uniform * PAIR_GAP < y), np.int32(LAST))
