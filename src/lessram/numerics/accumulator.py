"""An 8-bit randomized accumulator of squared gradients: the counter of section 3.2 for real addends.

Level c = 0..255 stands for v_c = u (b^c - 1) / (b - 1) = V_c - V_0 with the height V_c = V_0 b^c and
V_0 = u / (b - 1). To add a >= 0, let X = v_c + a, go to the largest level at or below X, and one further
with probability (X - below) / (above - below): E[v_new] = v_c + a exactly, below saturation at 3.5e8.
With a = 1 and u = b it is Morris's counter, C = c + 1.

Relative to the present height nothing is lost when a is small beside it: with r = a / V_c,

    k = floor(log_b(1 + r)) whole levels, and one more with probability y / (b - 1), y = (1 + r) b^-k - 1

where y = r for k = 0, the common case. The logarithm is a cubic that is at most one level too low, which
the comparison y > b - 1 mends. The uniform number has 16 bits of the feature's own and 24 of the row's,
placed so that small probabilities keep their relative precision.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from operator import mul
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.jit import inlined
from lessram.numerics.machine import bits_to_float, float_to_bits, small_to_float

LEVELS = 256
UNIT = 2.0**-10
LARGEST_RATIO = np.float32(2.0**60)

# log2 on [1, 2) by a cubic, error below 0.0008; lowered by 0.002, and by the bias of float32's exponent.
LOG_CUBIC = (np.float32(0.15545), np.float32(-1.03926), np.float32(3.02948), np.float32(-2.14494 - 0.002 - 127.0))

_C3, _C2, _C1, _C0 = LOG_CUBIC
_ONE = np.float32(1.0)


class Accumulator(NamedTuple):
    """The tables of an accumulator with base b."""

    heights: NDArray[np.float32]
    """V_c, what a level stands for plus `lowest`."""
    decay: NDArray[np.float32]
    """b^-k"""
    lowest: np.float32
    """V_0"""
    gap: np.float32
    """b - 1"""
    inverse_base: np.float32
    levels_per_octave: np.float32
    """1 / log2(b)"""
    last: np.int32
    """The highest level, at which the accumulator saturates."""


@lru_cache(maxsize=16)  # asked for by every learner
def accumulator(base: float = 1.1, unit: float = UNIT, levels: int = LEVELS) -> Accumulator:
    """The accumulator with this base, unit u and number of levels; the caller checks that the base is above 1.

    Its arrays are not to be written.

    >>> values = accumulator(1.1).heights - accumulator(1.1).lowest
    >>> (values[:3] * 1024).round(3)
    array([0. , 1. , 2.1], dtype=float32)
    """
    # Exact rationals, rounded once: floating-point powers differ between processors.
    ratio = Fraction(base)
    lowest = Fraction(unit) / (ratio - 1)
    powers = list(accumulate([ratio] * (levels - 1), mul, initial=Fraction(1)))
    heights = np.array([float(min(lowest * power, Fraction(2**100))) for power in powers]).astype(np.float32)
    return Accumulator(
        heights=heights,
        decay=np.array([float(1 / power) for power in powers]).astype(np.float32),
        lowest=heights[0],
        gap=np.float32(base - 1.0),
        inverse_base=np.float32(1.0 / base),
        levels_per_octave=np.float32(math.log(2.0) / math.log(base)),
        last=np.int32(levels - 1),
    )


@inlined
def fine_uniform(own, shared):
    """A float32 in (0, 1) whose relative precision holds down to 2^-40: 16 own bits, then 24 shared."""
    return (small_to_float(own & np.uint32(0xFFFF)) + fraction_of(shared)) * np.float32(2.0**-16)


@inlined
def fraction_of(shared):
    """24 bits of a row's shared word as a float32 in (0, 1)."""
    return small_to_float(np.uint32((shared >> np.uint64(24)) & np.uint64(0xFFFFFF)) | np.uint32(1)) * np.float32(
        2.0**-24
    )


@inlined
def climbed(table, level, addend):
    """The highest level not above the sum with `addend`, and y, by how much of its height it is below; float32."""
    r = addend / table.heights[level]
    r = r if r < LARGEST_RATIO else LARGEST_RATIO
    k = np.int32(0)
    y = r
    if r > table.gap:
        bits = float_to_bits(r + _ONE)
        mantissa = bits_to_float((bits & np.uint32(0x7FFFFF)) | np.uint32(0x3F800000))
        log = small_to_float(bits >> np.uint32(23)) + (((mantissa * _C3 + _C2) * mantissa + _C1) * mantissa + _C0)
        levels = log * table.levels_per_octave
        levels = levels if levels > np.float32(0.0) else np.float32(0.0)
        last = np.float32(table.last)
        k = np.int32(levels if levels < last else last)  # a jump beyond all levels saturates
        fall = table.decay[k]
        y = r * fall - (_ONE - fall)
        if y > table.gap:
            y = (y - table.gap) * table.inverse_base
            k += np.int32(1)
    return np.int32(level) + k, y


@inlined
def advanced(table, level, addend, uniform):
    """The level after adding `addend`, unbiased over the uniform number."""
    below, y = climbed(table, level, addend)
    return min(below + np.int32(uniform * table.gap < y), table.last)
