"""FTRL-Proximal and RDA with L1 and L2, on "a discretized version of a scaled gradient sum" (section 6).

Both follow the regularised leader. For one coordinate, with S_t = (beta + sqrt(sum of squared gradients)) / alpha
after t rounds and sigma_s = S_s - S_(s-1),

    FTRL-Proximal   w = argmin  sum g_s w  +  l1 |w|  +  l2 w^2 / 2  +  sum sigma_s (w - w_s)^2 / 2
    RDA             w = argmin  sum g_s w  +  l1 |w|  +  l2 w^2 / 2  +  S_t w^2 / 2

They differ in where the curvature is centred: at the weights played, or at 0. Both have the solution

    w = sgn(a) max(|a| - l1 / S, 0) / (1 + l2 / S),      a = -z / S,
    z = sum (g_s - sigma_s w_s) for FTRL-Proximal,       z = sum g_s for RDA.

Stored is the average a, not the sum z: its range is that of the weights, whatever the length of the stream, so it can
live on a fixed-point grid. From z' = z + g - sigma c, c = w for FTRL-Proximal and 0 for RDA, follows

    a' = a - g / S' - (a - c) (S' - S) / S'

and (S' - S) / S' = n / ((r' + r) (beta + r')) without cancellation, r and r' the roots of the sums before and after the
squared gradient n. With l1 = l2 = 0 FTRL-Proximal is the step a - g / S' of rates by squared gradients.

The penalties are for the whole stream, as in FTRL-Proximal as it is used. RDA as first published asks for a penalty of
lambda in every round: after t rounds that is l1 = lambda t.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.jit import inlined
from lessram.numerics.accumulator import accumulator

ALGORITHMS = ("ftrl", "rda")

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


class Shrinkage(NamedTuple):
    """How stored averages become weights."""

    alpha: np.float32
    beta: np.float32
    l1: np.float32
    """In units of the grid."""
    l2: np.float32
    follow: np.float32
    """1 where the curvature is centred at the weights played (FTRL-Proximal), 0 where it is centred at 0 (RDA)."""
    thresholds: NDArray[np.float32]
    """l1 / S at each level of the 8-bit accumulator."""
    factors: NDArray[np.float32]
    """1 / (1 + l2 / S) at each level."""


@lru_cache(maxsize=16)  # asked for again with every piece of a model that is looked at
def shrinkage(
    algorithm: str, *, l1: float, l2: float, alpha: float, beta: float, step: float, base: float = 1.1
) -> Shrinkage:
    """The shrinkage of these choices, over a grid of this step and an accumulator of this base.

    >>> made = shrinkage("ftrl", l1=1.0, l2=2.0, alpha=0.5, beta=1.0, step=0.25)
    >>> float(made.thresholds[0]), float(made.factors[0])       # S = 2: l1 / S in quarters, 1 / (1 + l2 / S)
    (2.0, 0.5)
    """
    sums = accumulator(base)
    made = Shrinkage(
        alpha=np.float32(alpha),
        beta=np.float32(beta),
        l1=np.float32(l1 / step),
        l2=np.float32(l2),
        follow=_ONE if algorithm == "ftrl" else _ZERO,
        thresholds=np.zeros(0, np.float32),
        factors=np.zeros(0, np.float32),
    )
    thresholds, factors = threshold_and_factor(made, sums.heights - sums.lowest)
    return made._replace(thresholds=thresholds, factors=factors)


def threshold_and_factor(
    shrinkage: Shrinkage, sums: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """l1 / S and 1 / (1 + l2 / S) where squared gradients have these sums; float32 throughout."""
    rates = shrinkage.alpha / (shrinkage.beta + np.sqrt(sums))
    return rates * shrinkage.l1, _ONE / (_ONE + rates * shrinkage.l2)


def shrink(
    averages: NDArray[np.float32], thresholds: NDArray[np.float32], factors: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Weights from stored averages, for whole arrays; the same bits as `shrunk`.

    >>> shrink(np.float32([-3, -1, 0.5, 4]), np.float32(1), np.float32(0.5))
    array([-1. ,  0. ,  0. ,  1.5], dtype=float32)
    """
    return (np.maximum(averages - thresholds, _ZERO) + np.minimum(averages + thresholds, _ZERO)) * factors


@inlined
def shrunk(average, threshold, factor):
    """The weight behind one stored average: sgn(a) max(|a| - threshold, 0) * factor."""
    above, below = average - threshold, average + threshold
    above = above if above > _ZERO else _ZERO
    below = below if below < _ZERO else _ZERO
    return (above + below) * factor
