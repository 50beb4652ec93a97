"""Minifloats eXmY: a grid that is fine near zero and coarse far from it, beside the even grids of section 3.

A weight has a sign, X bits of exponent and Y bits of mantissa, with subnormals, and reaches up to 8. Its finest
step is the unit; in units every weight is an integer:

    0 .. 2^(Y+1) in steps of 1, then 2^Y gridpoints in steps of 2 up to 2^(Y+2), in steps of 4 up to 2^(Y+3) ...

e3m6: step 2^-10 below 1/8, doubling with every binade, 2^-4 below 8. eXmYxT is the same T times as large, T a power of
two: e3m6x4 reaches up to 32 and has steps of 2^-8 below 1/2, e3m6x0.25 up to 2 and steps of 2^-12 below 1/32. Counted
in units they are one.

A weight is stored as its ordinal on the grid, ... -2, -1, 0, 1, 2 ..., so that neighbours differ by one and zeroed
memory holds zeros. One more bit of mantissa halves every step: the gridpoints of e3m6 are those of e3m7 with even
ordinals.

RandomRound on an uneven grid takes the two gridpoints around w + delta, lo <= w + delta < hi, and chooses hi with
probability (w + delta - lo) / (hi - lo): unbiased. Single precision is enough, since w is an integer of units:

    delta = n + f, n = floor(delta);  T = w + n, exact;  h = the step of the binade that T lies in
    lo = h floor(T / h), exact;       the probability is (T - lo) / h + f / h, one rounded sum

h is a power of two and binades end on multiples of it, so that only the sum is rounded, by 2^-25, and f, by 2^-25
where delta is small and negative. With a 24-bit uniform number the bias is below 2^-23 of a step.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lessram.errors import SpecError
from lessram.jit import inlined
from lessram.numerics.machine import bits_to_float, float_to_bits
from lessram.numerics.merging import chosen
from lessram.numerics.random import uniform
from lessram.numerics.rounding import LARGEST_STEP

REACH = 8.0
"""Where every format ends, but for its factor; weights stay below."""
LEAST_TIMES, MOST_TIMES = 0.125, 512


@dataclass(frozen=True)
class Minifloat:
    """The format eXmY, or eXmYxT.

    >>> e3m6 = Minifloat.parse("e3m6")
    >>> e3m6.width, e3m6.step * 1024, e3m6.largest
    (10, 1.0, 7.9375)
    >>> e3m6.units(np.array([0, 1, 127, 128, 129, -129, 511]))
    array([   0,    1,  127,  128,  130, -130, 8128])
    >>> Minifloat.parse("e3m6x4").largest
    31.75
    >>> str(e3m6.narrower), e3m6.narrower.largest
    ('e3m6x0.5', 3.96875)
    """

    exponent_bits: int
    mantissa_bits: int
    times: float = 1
    """How much larger everything is than in eXmY."""

    @classmethod
    def parse(cls, text: str) -> Minifloat:
        """Read "e3m6", "e3m6x4" or "e3m6x0.25"."""
        match = re.fullmatch(r"e([1-4])m(\d)(?:x([1-9]\d{0,3}|0\.\d{1,3}))?", text)
        if match is None:
            raise SpecError(f"expected a minifloat format such as e3m6, got {text!r}")
        found = cls(int(match[1]), int(match[2]), 1 if match[3] is None else float(match[3]))
        if str(found) != text or not LEAST_TIMES <= found.times <= MOST_TIMES or math.frexp(found.times)[0] != 0.5:
            expected = f"a power of two, {LEAST_TIMES} to {MOST_TIMES} but not 1"
            raise SpecError(f"the factor of a minifloat format must be {expected}, got {text!r}")
        return found

    def __str__(self) -> str:
        return f"e{self.exponent_bits}m{self.mantissa_bits}" + ("" if self.times == 1 else f"x{self.times:g}")

    @property
    def width(self) -> int:
        """The bits of one value."""
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def step(self) -> float:
        """The unit: the distance of gridpoints next to zero."""
        return self.times * REACH / 2 ** (self.mantissa_bits + 2**self.exponent_bits - 1)

    @property
    def wider(self) -> Minifloat | None:
        """The format of as many bits that reaches twice as far, in steps twice as long, if there is one."""
        return replace(self, times=2 * self.times) if self.times < MOST_TIMES else None

    @property
    def narrower(self) -> Minifloat | None:
        """The format of as many bits that reaches half as far, in steps half as long, if there is one."""
        return replace(self, times=self.times / 2) if self.times > LEAST_TIMES else None

    @property
    def largest_ordinal(self) -> int:
        return 2 ** (self.width - 1) - 1

    @property
    def largest(self) -> float:
        """R, the largest gridpoint."""
        return float(self.units(np.array([self.largest_ordinal]))[0]) * self.step

    def units(self, ordinals: NDArray[np.integer]) -> NDArray[np.int64]:
        """The gridpoints with these ordinals, in units."""
        size = np.abs(ordinals.astype(np.int64))
        shift = np.maximum((size >> self.mantissa_bits) - 1, 0)
        return np.sign(ordinals) * ((size - (shift << self.mantissa_bits)) << shift)

    def ordinals(self, units: NDArray[np.integer] | NDArray[np.floating]) -> NDArray[np.int64]:
        """The ordinals of the gridpoints nearest to these numbers of units."""
        return self._ordinals(units, np.rint)

    def rounded(self, units: NDArray[np.float64], uniform: NDArray[np.float64]) -> NDArray[np.float64]:
        """RandomRound: each number to one of the two gridpoints around it, by uniform numbers in [0, 1)."""
        # Away from zero with the probability of the rest: floor(s + u) for sizes s on either side of zero.
        return self.units(self._ordinals(units, lambda size: np.floor(size + uniform))).astype(np.float64)

    def _ordinals(self, units, to_whole):  # type: ignore[no-untyped-def]
        size = np.abs(units).astype(np.float64)
        shift = np.maximum(np.frexp(size)[1] - 1 - self.mantissa_bits, 0)
        found = to_whole(np.ldexp(size, -shift)).astype(np.int64) + (shift << self.mantissa_bits)
        return (np.sign(units) * np.minimum(found, self.largest_ordinal)).astype(np.int64)

    def units_within(self, radius: float | None) -> int:
        """The largest gridpoint not beyond `radius`, in units.

        >>> Minifloat(3, 6).units_within(None), Minifloat(3, 6).units_within(1.01)
        (8128, 1024)
        """
        points = self.units(np.arange(1, self.largest_ordinal + 1))
        if radius is None:
            return int(points[-1])
        if not self.step <= radius <= self.largest:
            raise SpecError(f"radius must be between {self.step} and {self.largest} for {self}, got {radius}")
        return int(points[points <= math.floor(radius / self.step)][-1])


E3M6, E3M7 = Minifloat(3, 6), Minifloat(3, 7)
"""The formats that `rounded_sum` and the vector pass equal to it are written for."""

E3M7_MANTISSA = E3M7.mantissa_bits
FINE_REACH = np.float32(2 ** (E3M7.mantissa_bits + 1) - 1)
"""Up to here, in units of e3m7 and in both directions, its gridpoints are one unit apart."""
EXPONENT = 0x7F800000
"""The bits of a float32's exponent."""
INVERSE = (2 * 127 + E3M7.mantissa_bits) << 23
"""Less the exponent of a size, the bits of 1 / h: 2^mantissa_bits / 2^exponent."""
HALF = 1 << 23
"""Less in the exponent: half of it."""
BINADE_SHIFT = 23 - E3M7.mantissa_bits
"""From a float32's exponent to the ordinals that binades are apart."""
FIRST_BINADE = (127 + E3M7.mantissa_bits) << E3M7.mantissa_bits


@inlined
def rounded_sum(units, delta, bits, fine):
    """`units` + `delta` (float32), both in units of e3m7, rounded to a gridpoint of e3m7 if `fine`, else of e3m6.

    Returns its ordinal in e3m7, which may lie beyond R; unbiased over the 32 random `bits`.
    """
    delta = delta if delta > -LARGEST_STEP else -LARGEST_STEP  # NaN saturates too
    delta = delta if delta < LARGEST_STEP else LARGEST_STEP
    below = np.floor(delta)
    whole = np.float32(units) + below
    # Between T and T + 1 sizes run from T up, or from -T - 1 up: the lower end says which binade it is.
    size = max(max(whole, np.float32(-1.0) - whole), FINE_REACH)
    exponent = float_to_bits(size) & np.uint32(EXPONENT)
    inverse = bits_to_float(np.uint32(np.uint32(INVERSE if fine else INVERSE - HALF) - exponent))
    steps = whole * inverse
    lower = np.floor(steps)
    up = uniform(bits) < (steps - lower) + (delta - below) * inverse
    coarser = np.int32(exponent >> np.uint32(BINADE_SHIFT)) - np.int32(FIRST_BINADE)
    ordinal = (np.int32(lower) + np.int32(up)) << np.int32(0 if fine else 1)
    return ordinal + (coarser if whole >= np.float32(0.0) else -coarser)


@inlined
def rounded_quotient(total, count, bits, fine):
    """total / count, integers in units of e3m7, rounded to a gridpoint of e3m7 if `fine`, else of e3m6.

    Returns its ordinal in e3m7; unbiased over the 32 random `bits`.
    """
    whole = total // count
    size = max(whole, -1 - whole)  # the lower end says which binade it is, as in `rounded_sum`
    binade = 0
    while size >> binade > FINE_REACH:
        binade += 1
    coarse = 0 if fine else 1
    shift = binade + coarse
    lower = whole >> shift
    up = chosen(total - count * (lower << shift), count << shift, bits)
    coarser = binade << E3M7_MANTISSA
    return ((lower + up) << coarse) + (coarser if whole >= 0 else -coarser)
