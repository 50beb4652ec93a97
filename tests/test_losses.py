"""Losses: one list, many laws; and the exponential and logarithm that they are made of."""

from __future__ import annotations

import math

import numba
import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st

from lessram.numerics import loss
from lessram.numerics.loss import Loss


@numba.njit
def exponential(x):
    return loss.exponential(x)


@numba.njit
def log_one_plus(t):
    return loss.log_one_plus(t)


@numba.njit
def sigmoid(z):
    return loss.sigmoid(z)


@numba.njit
def value(which, z, y):
    return loss.value(which, z, y)


@numba.njit
def derivative(which, z, y):
    return loss.derivative(which, z, y)


LOSSES = pytest.mark.parametrize("which", list(Loss), ids=lambda which: which.name)
LABELS = pytest.mark.parametrize("y", [0.0, 1.0])
MARGINS = [-30.0, -3.7, -1.0, -0.5, 0.0, 1e-9, 0.3, 0.9, 1.1, 2.0, 17.0]
EXTREMES = [0.0, -0.0, 1e-300, 79.9, 80.1, 700.0, 710.0, 1e5, 1e150]


def plain(which: Loss, z: float, y: float) -> float:
    """The formulas, as a textbook has them."""
    s = 2 * y - 1
    if which == Loss.logistic:
        return max(-s * z, 0) + math.log1p(math.exp(-abs(z)))
    return max(0.0, 1 - s * z) if which == Loss.hinge else (z - y) ** 2 / 2


@LOSSES
@LABELS
@pytest.mark.parametrize("z", MARGINS)
def test_values(which, y, z):
    assert value(int(which), z, y) == pytest.approx(plain(which, z, y), rel=2e-8, abs=1e-15)


@LOSSES
@LABELS
@pytest.mark.parametrize("z", MARGINS)
def test_the_derivative_is_the_slope_of_the_value(which, y, z):
    if which == Loss.hinge and abs((2 * y - 1) * z - 1) < 1e-3:
        return  # the kink has no slope
    h = 1e-4
    slope = (plain(which, z + h, y) - plain(which, z - h, y)) / (2 * h)
    assert derivative(int(which), z, y) == pytest.approx(slope, rel=1e-6, abs=1e-9)


@LOSSES
@LABELS
def test_convex(which, y):
    slopes = [derivative(int(which), float(z), y) for z in np.linspace(-90, 90, 4001)]
    assert np.all(np.diff(slopes) >= 0)


@LOSSES
@LABELS
@pytest.mark.parametrize("z", EXTREMES + [-z for z in EXTREMES])
def test_extreme_margins_stay_finite(which, y, z):
    assert math.isfinite(value(int(which), z, y))
    assert value(int(which), z, y) >= 0
    assert math.isfinite(derivative(int(which), z, y))
    if which == Loss.logistic:
        assert 0 < abs(derivative(int(which), z, y)) <= 1, "a logistic round always has a gradient"


@LOSSES
@LABELS
@given(z=st.floats(-1e6, 1e6))
def test_derivatives_equal_the_reference(which, y, z):
    assert derivative(int(which), z, y) == reference.derivative(which.name, z, y)


@given(st.floats(-700, 700))
def test_exponential(x):
    assert exponential(x) == pytest.approx(math.exp(x), rel=8e-9)
    assert exponential(x) == reference.exponential(x)


def test_the_worst_error_of_the_exponential():
    # All of one period of the reduced argument, where the polynomial is worst at both ends.
    worst = max(abs(exponential(x) / math.exp(x) - 1) for x in np.linspace(-0.35, 0.35, 20_001).tolist())
    assert 1e-10 < worst < 8e-9


@given(st.floats(0, 1))
def test_logarithm(t):
    assert log_one_plus(t) == pytest.approx(math.log1p(t), rel=1e-13, abs=1e-300)


@given(st.floats(-1e3, 1e3))
def test_sigmoid_is_the_inverse_of_log_odds(z):
    p = sigmoid(z)
    assert 0 < p <= 1
    if abs(z) < 15:
        assert math.log(p / (1 - p)) == pytest.approx(z, rel=1e-6, abs=1e-7)
    assert p == reference.sigmoid(z)
