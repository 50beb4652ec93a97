"""Losses of a margin z = beta . x and a label y: value, derivative in z, link (section 3).

    logistic   log(1 + exp(-s z)),   s = 2y - 1,    derivative sigma(z) - y
    squared    (z - y)^2 / 2,                       derivative z - y
    hinge      max(0, 1 - s z),                     derivative -s where s z < 1, else 0

The exponential and the logarithm are our own, with IEEE operations only: the same bits on every
processor; relative error of the exponential below 8e-9. The logistic derivative is formed without
cancellation (-sigma(-z) for y = 1) and so is never 0; the others can be, and such rounds are skipped.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from lessram.errors import SpecError
from lessram.jit import inlined
from lessram.numerics.machine import bits_to_double, rarely

EXTREME_MARGIN = 80.0


class Loss(IntEnum):
    """The losses, as kernels know them."""

    logistic = 0
    squared = 1
    hinge = 2


def check_gives_probabilities(loss: str) -> None:
    """Only the logistic loss has margins that are log-odds."""
    if loss != Loss.logistic.name:
        raise SpecError(f"probabilities need a model of logistic loss, this one has {loss} loss")


def probabilities(margins: NDArray[np.float64]) -> NDArray[np.float64]:
    """sigma(z) of each margin, the probability of label 1, for those who predict: to the last digit of the library.

    >>> probabilities(np.array([0.0, 3.0, -1000.0])).round(3).tolist()
    [0.5, 0.953, 0.0]
    """
    with np.errstate(over="ignore"):
        return 1.0 / (1.0 + np.exp(-margins))


_SQUARED, _HINGE = int(Loss.squared), int(Loss.hinge)


@inlined
def exponential(x):
    """e^x for |x| <= 700 as 2^n * P(f), |f| <= 1/2."""
    t = x * 1.4426950408889634
    n = np.floor(t + 0.5)
    f = (t - n) * 0.6931471805599453
    f2 = f * f  # pairs of terms side by side: half the latency of Horner's rule, and rows wait for this
    low = (1.0 + f) + f2 * (0.5 + f * (1 / 6))
    high = (1 / 24 + f * (1 / 120)) + f2 * (1 / 720 + f * (1 / 5040))
    p = low + (f2 * f2) * high
    return p * bits_to_double((np.int64(n) + np.int64(1023)) << np.int64(52))


@inlined
def log_one_plus(t):
    """log(1 + t) for 0 <= t <= 1 as 2 artanh(t / (2 + t)): error below 1e-13."""
    s = t / (2.0 + t)
    q = s * s
    total = 0.0
    for k in range(12, -1, -1):
        total = total * q + 1.0 / (2.0 * k + 1.0)
    return 2.0 * s * total


@inlined
def sigmoid(z):
    """1 / (1 + e^-z), margins beyond +-80 taken as +-80."""
    x = -z
    if rarely(not abs(x) <= EXTREME_MARGIN):  # a branch that is foreseen costs no time, and rows wait for this
        x = min(max(x, -EXTREME_MARGIN), EXTREME_MARGIN)
    return 1.0 / (1.0 + exponential(x))


@inlined
def derivative(loss, z, y):
    """The derivative of the loss in the margin."""
    if loss == _SQUARED:
        return z - y
    if loss == _HINGE:
        s = 2.0 * y - 1.0
        return -s if s * z < 1.0 else 0.0
    return -sigmoid(-z) if y > 0.5 else sigmoid(z)


@inlined
def value(loss, z, y):
    """The loss itself."""
    if loss == _SQUARED:
        return 0.5 * (z - y) * (z - y)
    s = 2.0 * y - 1.0
    if loss == _HINGE:
        return max(0.0, 1.0 - s * z)
    m = s * z
    return max(-m, 0.0) + log_one_plus(exponential(max(-abs(m), -700.0)))
