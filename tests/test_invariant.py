"""The invariant step: against the equation that it solves, in many digits, and its laws."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from functools import cache

import numba
import numpy as np
import pytest
import reference_squares
from hypothesis import given
from hypothesis import strategies as st

from lessram.numerics import invariant
from lessram.numerics.loss import Loss, derivative

PIECES = invariant.margin_pieces()
TABLE_ERROR = 1.2e-5
"""Of differences of Y, relative to themselves; the module says 1.1e-5."""
ROUNDING = 2.0**-50
"""Of the margins before and after, whose difference the step is, relative to the larger."""

LOSSES = pytest.mark.parametrize("which", list(Loss), ids=lambda which: which.name)


@numba.njit
def step(which, z, y, weight, q, pieces):
    """The effective gradient."""
    return invariant.effective_gradient(which, z, y, weight, q, derivative(which, z, y) * weight, pieces)


@numba.njit
def plain(which, z, y, weight):
    return derivative(which, z, y) * weight


@numba.njit
def margin_at(t, pieces):
    return invariant.margin_at(t, pieces)


def gradient(which: Loss, z: float, y: float, weight: float, q: float) -> float:
    return step(int(which), z, y, weight, q, PIECES)


# Against the equation -------------------------------------------------------------------------------------------------


def moved_exactly(m: float, amount: float) -> Decimal:
    """m1 - m of m1 + e^m1 = m + e^m + amount, to forty digits."""
    with localcontext() as context:
        context.prec = 60
        before = Decimal(m)
        height = before.exp()
        total = before + height + Decimal(amount)
        # From above and convex, so that Newton's method cannot leave the root; ln is above where e^m rules.
        after = before + Decimal(amount) / (1 + height)
        if total > 1:
            after = min(after, total.ln())
        for _ in range(200):
            power = after.exp()
            change = (after + power - total) / (1 + power)
            after -= change
            if abs(change) <= Decimal("1e-45") * max(1, abs(after)):
                break
        else:
            raise ArithmeticError(f"no root for {m}, {amount}")
        return after - before


MARGINS = [0.0, 1e-6, 0.3, 1.0, 2.7, 9.0, 15.9, 16.1, 17.0, 25.0, 39.9, 40.1, 81.0, 1e3, 1e4]
WEIGHTS = [0.0, 1e-6, 1e-3, 0.3, 1.0, 7.0, 1e3, 1e6]
REACHES = [1e-10, 1e-7, 1e-3, 0.2, 1.0, 30.0, 1e3, 1e6]


@cache
def exact_moves() -> list[tuple[float, float, float, Decimal]]:
    signed = sorted({s * m for m in MARGINS for s in (-1, 1)})
    return [(m, h, q, moved_exactly(m, h * q)) for m in signed for h in WEIGHTS for q in REACHES]


def test_logistic_steps_solve_their_equation():
    for m, h, q, exact in exact_moves():
        moved = -Decimal(gradient(Loss.logistic, m, 1.0, h, q)) * Decimal(q)
        # Beyond |m| = 80 the sigmoid stops falling: what is left there is nothing.
        allowed = TABLE_ERROR * float(exact) + ROUNDING * max(abs(m), abs(m + float(exact))) + h * q * math.exp(-79.9)
        assert abs(float(moved - exact)) <= allowed, (m, h, q, moved, exact)


def test_ordinary_steps_are_good_to_the_tables_error():
    # Where |m| <= 20 and the step is no speck, rounding is no excuse, and most are far better than the worst.
    errors = [
        abs(float(-Decimal(gradient(Loss.logistic, m, 1.0, h, q)) * Decimal(q) / exact) - 1)
        for m, h, q, exact in exact_moves()
        if abs(m) <= 20 and exact > 1e-4
    ]
    assert len(errors) > 300
    assert 1e-9 < max(errors) < TABLE_ERROR
    assert np.median(errors) < 1e-6


def test_the_pieces_are_the_references_and_join_smoothly():
    count = invariant.OCTAVES * invariant.CELLS_PER_OCTAVE
    assert PIECES.shape == (4 * count,)
    chosen = [*range(0, 1200, 7), *range(1200, count, 101), count - 1]
    assert [PIECES[4 * k : 4 * k + 4].tolist() for k in chosen] == [list(reference_squares.piece(k)) for k in chosen]
    nodes = [node for node in map(reference_squares.node, range(1, count)) if node <= invariant.LAST]
    jumps = [margin_at(node, PIECES) - margin_at(np.nextafter(node, 0), PIECES) for node in nodes]
    assert np.abs(jumps).max() < 1e-13


def test_margins_rise_with_their_equation():
    t = np.concatenate([np.linspace(-50, 200, 50_001), np.geomspace(201, invariant.LAST, 50_000)])
    margins = np.array([margin_at(x, PIECES) for x in t.tolist()])
    assert np.all(np.diff(margins) > 0)
    assert margins[0] == pytest.approx(-50 - invariant.SHIFT, abs=1e-6)
    assert margins[-1] == pytest.approx(math.log(invariant.LAST), rel=1e-9)


# Laws -----------------------------------------------------------------------------------------------------------------

GRID = [(z, y) for z in (-30.0, -3.0, -0.4, 0.0, 0.7, 2.0, 12.0) for y in (0.0, 1.0)]


@LOSSES
@pytest.mark.parametrize("h", [0.5, 3.0, 40.0])
@pytest.mark.parametrize("q", [0.01, 0.8, 25.0])
def test_one_example_of_weight_h_is_many_of_less(which, h, q):
    n = 1 << 13
    for z, y in GRID:
        end = z - q * gradient(which, z, y, h, q)
        blur = 2 * TABLE_ERROR * abs(end - z) + 1e-9
        middle = z - q * gradient(which, z, y, h / 2, q)
        assert middle - q * gradient(which, middle, y, h / 2, q) == pytest.approx(end, rel=0, abs=blur), "two halves"
        coarse, fine = (abs(many_plain_steps(int(which), z, y, h, q, k) - end) for k in (n // 8, n))
        assert fine <= euler_error(which, z, y, h * q, n) + blur
        if which != Loss.hinge:
            assert fine <= coarse / 4 + blur, "the finer the steps, the nearer"


@numba.njit
def many_plain_steps(which, z, y, weight, q, n):
    for _ in range(n):
        z -= q * plain(which, z, y, weight / n)
    return z


def euler_error(which: Loss, z: float, y: float, time: float, n: int) -> float:
    """n steps along the tangent of a convex loss are at most this far behind the curve: time^2 / 2n * max |l'' l'|."""
    if which == Loss.hinge:
        return time / n  # one step may pass the kink
    return time * time / (2 * n) * (0.25 if which == Loss.logistic else abs(z - y))


@LOSSES
@pytest.mark.parametrize(("z", "y"), GRID)
def test_small_steps_are_the_plain_gradient(which, z, y):
    for h, q in ((1.0, 0.0), (1.0, 1e-12), (1.0, 1e-8), (1e-7, 1e-2)):
        assert gradient(which, z, y, h, q) == pytest.approx(plain(int(which), z, y, h), rel=2e-5, abs=0)


def test_squared_steps_have_a_closed_form():
    for h in (1e-9, 1e-6, 9e-6, 1.1e-5, 0.1, 1.0, 50.0, 1e4):
        for q in (1e-5, 0.3, 1.0, 200.0):
            for z, y in ((0.0, 1.0), (-7.3, 2.5), (1e4, -3.0), (0.1, 0.1)):
                expected = (z - y) * -math.expm1(-h * q) / q
                assert gradient(Loss.squared, z, y, h, q) == pytest.approx(expected, rel=1e-7, abs=1e-300)


def test_hinge_steps_stop_at_the_kink():
    for y, s in ((0.0, -1), (1.0, 1)):
        assert gradient(Loss.hinge, 0.0, y, 1.0, 0.25) == -s, "a quarter of the way: the plain step"
        assert gradient(Loss.hinge, 0.0, y, 1.0, 4.0) == -s / 4, "four times too far: as far as the kink"
        assert gradient(Loss.hinge, 2.0 * s, y, 1.0, 4.0) == 0.0, "behind the kink there is no gradient"
        assert -gradient(Loss.hinge, -9.0 * s, y, 1e6, 1e3) * 1e3 == pytest.approx(10.0 * s)


@given(
    z=st.floats(-1e4, 1e4),
    y=st.sampled_from([0.0, 1.0]),
    weight=st.floats(1e-6, 1e6),
    q=st.floats(1e-10, 1e6),
    which=st.sampled_from(list(Loss)),
)
def test_right_direction_and_never_too_far(z, y, weight, q, which):
    straight = plain(int(which), z, y, weight)
    g = gradient(which, z, y, weight, q)
    assert g * straight >= 0
    # Convex losses flatten along the path, so no step is longer than the plain one.
    blur = 2.0**-48 * max(abs(z), 1.0) / q
    assert abs(g) <= abs(straight) * (1 + TABLE_ERROR) + blur
    end, s = z - q * g, 2 * y - 1
    if which == Loss.squared:
        assert (end - y) * (z - y) >= -1e-9 * max(1.0, abs(z)), "the margin does not pass the label"
    if which == Loss.hinge:
        assert s * end <= max(1.0, s * z) + 1e-9 * max(1.0, abs(z)), "nor the kink"
    assert g == reference_squares.effective_gradient(which.name, z, y, weight, q)


@given(z=st.floats(-1e4, 1e4), weight=st.floats(1e-6, 1e6), q=st.floats(1e-10, 1e6), which=st.sampled_from(list(Loss)))
def test_both_labels_mirror_each_other(z, weight, q, which):
    if which == Loss.squared:
        assert gradient(which, -z, 0.0, weight, q) == -gradient(which, z, 0.0, weight, q)
    else:
        assert gradient(which, -z, 0.0, weight, q) == -gradient(which, z, 1.0, weight, q)


@LOSSES
@pytest.mark.parametrize(("z", "y"), GRID)
def test_more_weight_and_longer_reach_move_further(which, z, y):
    weights = np.geomspace(1e-6, 1e6, 200).tolist()
    for q in (1e-3, 1.0, 1e3):
        moved = np.array([abs(q * gradient(which, z, y, h, q)) for h in weights])
        assert np.all(np.diff(moved) >= -1e-9 * moved[1:] - 1e-13)
        reached = np.array([abs(h * gradient(which, z, y, q, h)) for h in weights])
        assert np.all(np.diff(reached) >= -1e-9 * reached[1:] - 1e-13)


@given(
    z=st.floats(-1e150, 1e150),
    y=st.sampled_from([0.0, 1.0]),
    weight=st.floats(0, float(np.finfo(np.float32).max)),
    q=st.floats(0, 10) | st.floats(0) | st.just(math.nan),
    which=st.sampled_from(list(Loss)),
)
def test_finite_everywhere(z, y, weight, q, which):
    g = gradient(which, z, y, weight, q)
    assert math.isfinite(g)
    assert g * plain(int(which), z, y, weight) >= 0
