"""The 16-bit cell in slow, obvious Python: e3m6 as a list of gridpoints, its rounding, and the learner on it.

As tests/reference_squares.py, on which it stands. Nothing here imports the package.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from fractions import Fraction
from typing import Any

import numpy as np
from reference import f32, project
from reference_squares import Accumulator, SquaresLearner

UNIT = Fraction(1, 1024)
"""The step of e3m6 next to zero; gridpoints below are integers times it."""


def minifloat(exponent: int, mantissa: int) -> Fraction:
    """A number of 3 exponent bits and 6 mantissa bits, as IEEE 754 would read them but for the bias of 5."""
    if exponent == 0:
        return Fraction(mantissa, 64) * Fraction(2) ** (1 - 5)
    return (1 + Fraction(mantissa, 64)) * Fraction(2) ** (exponent - 5)


SIZES = [int(minifloat(exponent, mantissa) / UNIT) for exponent in range(8) for mantissa in range(64)]
POINTS = [-size for size in SIZES[:0:-1]] + SIZES
"""All gridpoints of e3m6 in units, ascending, 0 in the middle."""
ZERO_AT = len(SIZES) - 1


def ordinal(units: int) -> int:
    """How many gridpoints lie between 0 and this one."""
    return POINTS.index(units) - ZERO_AT


def round_sum(units: int, delta: np.float32, bits: int) -> int:
    """RandomRound(units + delta) on the uneven grid: hi with probability (units + delta - lo) / (hi - lo), else lo.

    The sum of the two parts of that probability, and the fraction of delta, are single-precision numbers.
    """
    delta = delta if delta > f32(-65536) else f32(-65536)
    delta = delta if delta < f32(65536) else f32(65536)
    whole = units + math.floor(delta)
    fraction = delta - f32(math.floor(delta))
    if not POINTS[0] <= whole < POINTS[-1]:
        return project(whole, POINTS[-1])
    above = bisect_right(POINTS, whole)
    lo, hi = POINTS[above - 1], POINTS[above]
    chance = f32((whole - lo) / (hi - lo)) + fraction / f32(hi - lo)
    return hi if Fraction((bits >> 7) | 1, 2**25) < Fraction(float(chance)) else lo


def limit_within(radius: float | None) -> int:
    """The largest gridpoint not beyond the radius, in units."""
    return POINTS[-1] if radius is None else max(point for point in POINTS if point * UNIT <= Fraction(radius))


class HalfwordLearner(SquaresLearner):
    """Weights are gridpoints of e3m6 in units, sums are one of 64 levels; all else as for 24 bits."""

    def __init__(self, *, slots: int, weights: str, rates: str, radius: float | None = None, **choices: Any) -> None:
        assert (weights, rates) == ("e3m6", "squares6")
        super().__init__(slots=slots, weights="q2.10", rates="squares8", **choices)
        self.limit = limit_within(radius)
        self.accumulator = Accumulator(1.23, Fraction(1, 64), 63)

    def stepped(self, coefficient: int, delta: np.float32, bits: int) -> int:
        return project(round_sum(coefficient, delta, bits), self.limit)

    def cells(self) -> list[int]:
        """What the table holds: the weight's ordinal in the upper 10 bits, the level in the lower 6."""
        return [ordinal(w) % 1024 * 64 + level for w, level in zip(self.coefficient, self.state, strict=True)]
