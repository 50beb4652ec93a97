"""The 16-bit cell in slow, obvious Python: grids as lists of gridpoints, rounding on them, and the learner.

As tests/reference_squares.py, on which it stands. Nothing here imports the package.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from fractions import Fraction
from typing import Any

import numpy as np
from reference import f32, project, uniform
from reference_squares import ONE, Accumulator, SquaresLearner

UNIT = Fraction(1, 2048)
"""The step of e3m7 next to zero, half that of e3m6; gridpoints below are integers times it."""


def minifloat(exponent: int, mantissa: int, bits: int) -> Fraction:
    """A number of 3 exponent bits and so many mantissa bits, as IEEE 754 would read them but for the bias of 5."""
    if exponent == 0:
        return Fraction(mantissa, 2**bits) * Fraction(2) ** (1 - 5)
    return (1 + Fraction(mantissa, 2**bits)) * Fraction(2) ** (exponent - 5)


def gridpoints(bits: int) -> list[int]:
    """All of e3m6 or e3m7 in units, ascending, 0 in the middle."""
    sizes = [int(minifloat(e, m, bits) / UNIT) for e in range(8) for m in range(2**bits)]
    return [-size for size in sizes[:0:-1]] + sizes


COARSE, FINE = gridpoints(6), gridpoints(7)


def ordinal(units: int) -> int:
    """How many gridpoints of e3m7 lie between 0 and this one."""
    return FINE.index(units) - FINE.index(0)


def round_sum(units: int, delta: np.float32, bits: int, fine: bool) -> int:
    """RandomRound(units + delta) on an uneven grid: hi with probability (units + delta - lo) / (hi - lo), else lo.

    The sum of the two parts of that probability, and the fraction of delta, are single-precision numbers.
    """
    points = FINE if fine else COARSE
    delta = delta if delta > f32(-65536) else f32(-65536)
    delta = delta if delta < f32(65536) else f32(65536)
    whole = units + math.floor(delta)
    fraction = delta - f32(math.floor(delta))
    if not points[0] <= whole < points[-1]:
        return project(whole, points[-1])
    above = bisect_right(points, whole)
    lo, hi = points[above - 1], points[above]
    chance = f32((whole - lo) / (hi - lo)) + fraction / f32(hi - lo)
    return hi if uniform(bits) < Fraction(float(chance)) else lo


def limit_within(radius: float | None) -> int:
    """The largest gridpoint of e3m6 not beyond the radius, in units."""
    return COARSE[-1] if radius is None else max(point for point in COARSE if point * UNIT <= Fraction(radius))


class SixBits(Accumulator):
    """Base 1.23, unit 2^-6, levels 0 to 31 and then the even ones up to 62, which stand for more in rates."""

    def __init__(self) -> None:
        super().__init__(1.23, Fraction(1, 64), 63)
        self.pair_gap = f32(float(Fraction(1.23) ** 2 - 1))
        lowest = float(self.height[0])
        self.rated = [
            f32(lowest + 1.176 * (float(height) - lowest)) if level >= 32 else height
            for level, height in enumerate(self.height)
        ]

    def value(self, level: int) -> np.float32:
        return self.rated[level] - self.height[0]

    def add(self, level: int, addend: np.float32, uniform: np.float32) -> int:
        r = addend / self.height[level]
        r = r if r < f32(2.0**60) else f32(2.0**60)
        k, y = (0, r) if not r > self.gap else self.whole_levels(r)
        if level + k < 32:
            return level + k + int(uniform * self.gap < y)
        if (level + k) % 2 == 1:
            k, y = k - 1, (y + ONE) * f32(1.23) - ONE
        return min(level + k + 2 * int(uniform * self.pair_gap < y), 62)


class HalfwordLearner(SquaresLearner):
    """Weights are gridpoints of e3m6, or of e3m7 once their sums are high; all else as for 24 bits."""

    def __init__(self, *, slots: int, weights: str, rates: str, radius: float | None = None, **choices: Any) -> None:
        k = {"e3m6x0.25": -2, "e3m6": 0, "e3m6x2": 1, "e3m6x4": 2}[weights]  # so often doubled
        assert rates == "squares6"
        super().__init__(slots=slots, weights=f"q{2 + k}.{11 - k}", rates="squares8", **choices)
        self.limit = limit_within(None if radius is None else radius / 2.0**k)
        self.accumulator = SixBits()

    def stepped(self, slot: int, delta: np.float32, bits: int) -> int:
        return project(round_sum(self.coefficient[slot], delta, bits, self.state[slot] >= 32), self.limit)

    def cells(self) -> list[int]:
        """What the table holds: the weight's ordinal in the upper 10 bits, the level in the lower 6.

        The ordinal has an 11th bit, its last, where the level is high and even.
        """
        return [
            ordinal(w) % 2048 // 2 * 64 + level + ordinal(w) % 2
            for w, level in zip(self.coefficient, self.state, strict=True)
        ]
