"""Fixed-point formats Qn.m (section 3).

A value is q * 2^-m with q a signed integer of K = n + m + 1 bits: n bits before the point, m behind
it, one for the sign. The grid's step is eps = 2^-m. The feasible set is [-R, R] with both ends on the
grid, as the paper's analysis asks, so q runs from -(2^(K-1) - 1) to 2^(K-1) - 1.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lessram.errors import SpecError

LARGEST_WIDTH = 16


@dataclass(frozen=True)
class FixedPoint:
    """The format Qn.m.

    >>> q = FixedPoint.parse("q2.13")
    >>> q.width, q.step, q.largest, q.dtype
    (16, 0.0001220703125, 3.9998779296875, dtype('int16'))
    """

    whole_bits: int
    fraction_bits: int

    def __post_init__(self) -> None:
        if self.whole_bits < 0 or self.fraction_bits < 0 or not 2 <= self.width <= LARGEST_WIDTH:
            raise SpecError(
                f"a fixed-point format qN.M must have N + M + 1 between 2 and {LARGEST_WIDTH} bits, got {self}, "
                f"which has {self.width}"
            )

    @classmethod
    def parse(cls, text: str) -> FixedPoint:
        """Read "q2.13" (or "Q2.13")."""
        match = re.fullmatch(r"[qQ](\d{1,2})\.(\d{1,2})", text)
        if match is None:
            raise SpecError(f"expected a fixed-point format such as q2.13, got {text!r}")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"q{self.whole_bits}.{self.fraction_bits}"

    @property
    def width(self) -> int:
        """K, the bits of one value."""
        return self.whole_bits + self.fraction_bits + 1

    @property
    def step(self) -> float:
        """eps, the distance of neighbouring gridpoints."""
        return 2.0**-self.fraction_bits

    @property
    def largest_units(self) -> int:
        """R / eps, the largest gridpoint as an integer."""
        return 2 ** (self.width - 1) - 1

    @property
    def largest(self) -> float:
        """R, the largest gridpoint."""
        return self.largest_units * self.step

    @property
    def wider(self) -> FixedPoint | None:
        """The format of as many bits that reaches twice as far, in steps twice as long, if there is one."""
        return FixedPoint(self.whole_bits + 1, self.fraction_bits - 1) if self.fraction_bits else None

    @property
    def dtype(self) -> np.dtype[np.signedinteger]:
        """The machine integer that holds one value."""
        return np.dtype(np.int8 if self.width <= 8 else np.int16)

    def rounded(self, units: NDArray[np.float64], uniform: NDArray[np.float64]) -> NDArray[np.float64]:
        """RandomRound: each number to one of the two integers around it, by uniform numbers in [0, 1)."""
        return np.floor(units + uniform)

    def units_within(self, radius: float | None) -> int:
        """The largest gridpoint not beyond `radius`, in units of the step.

        >>> FixedPoint(2, 3).units_within(None), FixedPoint(2, 3).units_within(1.0)
        (31, 8)
        """
        if radius is None:
            return self.largest_units
        units = math.floor(radius / self.step)
        if not 1 <= units <= self.largest_units:
            raise SpecError(f"radius must be between {self.step} and {self.largest} for {self}, got {radius}")
        return units
