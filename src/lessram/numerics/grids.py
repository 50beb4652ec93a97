"""The paper's adaptive grids (section 3, Algorithm 2): eps_i <= gamma * eta_i, from powers of two.

Theorem 3.1 and Corollary 3.2 ask for eps_t <= gamma * eta_t with -R and R on the grid, and rates that do not grow.
Grids of R * 2^-k do: k is the least for which R * 2^-k <= gamma * eta, so that also eps > gamma * eta / 2 (unless
eps = R). Finer grids contain coarser ones, so a coefficient is already on the next grid when its counter steps up.
No k is above FINEST: where gamma * eta falls below R * 2^-FINEST, the grid stays, and the theorems hold no longer.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from lessram.errors import SpecError

FINEST = 23
"""Multiples of 2^-23 between -1 and 1 are exact in float32."""


def exponents(rates: NDArray[np.floating], gamma: float, radius: float) -> NDArray[np.int32]:
    """k of the grid R * 2^-k for each of these rates.

    >>> exponents(np.array([1.0, 0.5, 0.3]), gamma=1.0, radius=4.0)
    array([2, 3, 4], dtype=int32)
    """
    chosen = np.array([_exponent(gamma * float(rate), radius) for rate in rates], np.int32)
    check_condition(rates[chosen < FINEST], chosen[chosen < FINEST], gamma, radius)
    return chosen


def _exponent(largest_step: float, radius: float) -> int:
    k = 0
    while math.ldexp(radius, -k) > largest_step and k < FINEST:
        k += 1
    return k


def check_condition(rates: NDArray[np.floating], chosen: NDArray[np.int32], gamma: float, radius: float) -> None:
    """The conditions of Theorem 3.1: eps <= gamma * eta, and eta and eps do not grow."""
    steps = radius * np.exp2(-chosen.astype(np.float64))
    if np.any(steps > gamma * rates.astype(np.float64)) or np.any(np.diff(rates) > 0) or np.any(np.diff(steps) > 0):
        raise SpecError(f"no grid with eps <= gamma * eta for gamma {gamma}, radius {radius}")


def value_bits(chosen: NDArray[np.integer]) -> NDArray[np.float64]:
    """Bits of one coefficient on each grid: the logarithm of its 2^(k+1) + 1 points.

    >>> value_bits(np.array([0, 5]))
    array([1.5849625 , 6.02236781])
    """
    return np.log2(np.exp2(chosen + 1.0) + 1.0)
