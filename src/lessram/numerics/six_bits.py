"""A 6-bit accumulator of squared gradients, for cells of 16 bits.

The levels of numerics.accumulator with b = 1.23 and u = 2^-6: all from 0 to 31, then only the even ones, 32, 34 .. 62.
Sums end at 2.5e4, where rates have fallen to alpha / 160, and stay. Among 64 codes these are 48 levels: the lowest
bit of a high level is free. It goes to the weight, which at that height has taken many steps, each smaller than the
distance of gridpoints: there a finer grid is worth more than a better sum.

Between even levels the rule is the same, with two levels for one: to V_c b^2 with probability y / (b^2 - 1), y being
what the sum exceeds V_c by, relative to it. Where the whole levels climbed are odd, one goes back down, and from
there it is (1 + y) b - 1.
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
