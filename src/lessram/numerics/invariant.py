"""The invariant (importance-aware) step: one example of weight h acts as h / n examples of weight n, n -> 0.

A step of size h along the gradient, taken at once, overshoots when h times the rates is large; followed
continuously, the margin z obeys dz/dt = -q l'(z), q = sum of x^2 * rate, for a time h. The solution gives the
effective gradient g, such that the step ends at z - q g:

    logistic   m = s z:  m1 + e^m1 = m0 + e^m0 + h q,   g = -s (m1 - m0) / q
    squared    g = (z - y) (1 - e^(-h q)) / q
    hinge      g = -s min(h, (1 - s z) / q)

The logistic equation asks for Y(c), the m with m + e^m = c. Y is kept as cubic pieces over cells of c + 17,
64 an octave, in which Y and Y' are continuous, so that differences of Y are good to 1.1e-5 of themselves.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from lessram.jit import inlined
from lessram.numerics.loss import Loss, exponential
from lessram.numerics.machine import bits_to_double, double_to_bits

SHIFT = 17.0
CELLS_PER_OCTAVE = 64
OCTAVES = 58
LAST = 2.0**57.9
HIGH_MARGIN = 40.0  # beyond it the gradient is below 1e-17 and the plain step as good
LEAST_MOVE = 1e-9  # below it differences of Y lose their digits, and the plain step is as good

_LN2 = 0.6931471805599453
_SQUARED, _HINGE = int(Loss.squared), int(Loss.hinge)
_ZERO, _ONE, _TWO, _THREE = (np.uint64(i) for i in range(4))


@cache  # every learner asks for them
def margin_pieces() -> NDArray[np.float64]:
    """Four coefficients for each cell of c + SHIFT; below the first cell Y is the line of slope 1.

    Not to be written.
    """
    k = np.arange(OCTAVES * CELLS_PER_OCTAVE + 1)
    node = np.ldexp(1 + (k % CELLS_PER_OCTAVE) / CELLS_PER_OCTAVE, k // CELLS_PER_OCTAVE)
    margin = _solve(node - SHIFT)
    slope = 1 / (1 + _exponential(margin))
    width = np.diff(node)
    rise = np.diff(margin) / width
    left, right = slope[:-1], slope[1:]
    pieces = np.stack(
        [margin[:-1], left, (3 * rise - 2 * left - right) / width, (left + right - 2 * rise) / width**2], axis=1
    )
    pieces[0] = (margin[1] - width[0], 1.0, 0.0, 0.0)
    return np.ascontiguousarray(pieces).ravel()


def _solve(c: NDArray[np.float64]) -> NDArray[np.float64]:
    """m + e^m = c by Newton's method."""
    mantissa, exponent = np.frexp(np.maximum(c, 1.0))
    m = np.where(c > 1, (exponent - 1) * _LN2 + (2 * mantissa - 1), np.minimum(c, 0.0))  # not below the root
    for _ in range(60):
        e = _exponential(m)
        m = m - (m + e - c) / (1 + e)
    return m


def _exponential(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """e^x by IEEE operations alone: NumPy's own differs between processors in the last digit."""
    n = np.floor(x / _LN2 + 0.5)
    f = x - n * _LN2
    total = np.ones_like(x)
    for k in range(14, 0, -1):
        total = 1.0 + total * f / k
    return np.ldexp(total, n.astype(np.int64))


@inlined
def margin_at(t, pieces):
    """Y(t - SHIFT)."""
    cell = double_to_bits(min(max(t, 1.0), LAST)) >> np.int64(46)
    u = t - bits_to_double(cell << np.int64(46))
    i = np.uint64(cell - np.int64(1023 << 6)) * np.uint64(4)
    return pieces[i] + u * (pieces[i + _ONE] + u * (pieces[i + _TWO] + u * pieces[i + _THREE]))


@inlined
def effective_gradient(loss, z, y, weight, q, plain, pieces):
    """The gradient whose step, of length q, lands where many small ones would; `plain` is l'(z) * weight."""
    if q * abs(plain) < LEAST_MOVE or not q < 1e15:
        return plain
    if loss == _SQUARED:
        moved = weight * q
        return plain * (1.0 - 0.5 * moved) if moved < 1e-5 else (z - y) * (1.0 - exponential(max(-moved, -700.0))) / q
    s = 2.0 * y - 1.0
    m = s * z
    if loss == _HINGE:
        return -s * min(weight, (1.0 - m) / q)
    if m > HIGH_MARGIN:
        return plain
    start = m + exponential(max(m, -80.0)) + SHIFT
    moved = margin_at(min(start + weight * q, LAST), pieces) - margin_at(start, pieces)
    return -s * max(moved, 0.0) / q
