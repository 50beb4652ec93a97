"""Project and RandomRound (Algorithm 1).

    Project(beta)          = max(-R, min(beta, R))
    RandomRound(beta, eps) = the gridpoint above beta with probability (beta - a) / eps, else the one
                             below, a = eps * floor(beta / eps): unbiased, E[RandomRound(beta)] = beta

Rounding happens in the delta domain. The stored weight is already on the grid, so rounding the step
alone and adding integers is the same as rounding the sum: w + floor(step + u). Adding the step to a
large weight in floating point first would lose small steps and so bias the rounding.

Precision. The step arrives as a float32 in units of the grid and is rounded with a 24-bit uniform
number from the odd multiples of 2^-25. Its fraction is exact, except that a small negative step may
round 1 + step to 24 bits, by 2^-25; uniform numbers above 1/2 are multiples of 2^-23, one of them 1,
which may be 2^-24 off. Together |E[random_round(s)] - s| <= 1.5 * 2^-24 units. (The relative error of
the float32 product rate * value * gradient itself, 2^-22, acts as an equal change of the rate.)
Randomness is an argument, so tests sum over all bit patterns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lessram.jit import inlined, overloaded, types
from lessram.numerics.random import uniform

LARGEST_STEP = np.float32(65536.0)  # beyond the width of any grid: a longer step saturates all the same


@inlined
def project(value, limit):
    """The point of [-limit, limit] nearest to `value`; an end for NaN, which must not get into a table."""
    value = value if value > -limit else -limit
    return value if value < limit else limit


def outside(value: Any, limit: Any) -> bool:
    """Whether `project` would move the value: rare, so that a branch on it is cheaper than projecting always."""
    raise NotImplementedError("outside() is for kernels")


@overloaded(outside)
def _outside(value, limit):
    if isinstance(value, types.Integer):
        return lambda value, limit: np.uint64(value + limit) > np.uint64(limit + limit)
    return lambda value, limit: not abs(value) <= limit


@inlined
def random_round(step, bits):
    """Round a float32 `step` to one of the two integers around it, unbiased over the 32 random `bits`."""
    # Written so that a NaN (an infinite rate times a zero value) saturates too, on every processor.
    step = step if step > -LARGEST_STEP else -LARGEST_STEP
    step = step if step < LARGEST_STEP else LARGEST_STEP
    below = np.floor(step)
    return np.int32(below) + np.int32(uniform(bits) < step - below)
