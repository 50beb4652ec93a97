"""Every inequality of the paper holds: expectations and probabilities are summed exactly, never sampled."""

from __future__ import annotations

import json
import math
from functools import cache

import hypothesis.strategies as st
import numpy as np
import pytest
from commands import lessram
from hypothesis import given, settings
from numpy.typing import NDArray
from scipy.special import gammaln

from lessram.errors import SpecError
from lessram.numerics import bounds

CASES = settings(max_examples=max(200, settings.default.max_examples))
SLACK = 1 + 1e-9  # of the test's own arithmetic

steps = st.sampled_from([2.0**-m for m in range(-2, 14)])
margins = st.floats(-40, 40)
shares = st.floats(0, 1)


def loss(z: NDArray[np.float64] | float, y: int) -> NDArray[np.float64]:
    return np.logaddexp(0.0, np.where(y == 1, -1.0, 1.0) * z)


# Regret ---------------------------------------------------------------------------------------------------------------


def expected_regrets(gradients: NDArray[np.float64], rates: NDArray[np.float64], R: float) -> tuple[float, float]:
    """Algorithm 1 on the fixed grid of `gradients.shape[1]` points from -R to R, exactly.

    The adversary plays gradients[t, i] when the learner stands on gridpoint i in round t. The distribution over
    gridpoints is carried on from round to round; returned is the expected regret against -R and against R.
    """
    points = gradients.shape[1]
    grid = np.linspace(-R, R, points)
    epsilon = grid[1] - grid[0]
    at = np.zeros(points)
    at[points // 2] = 1.0
    suffered, total = 0.0, 0.0
    for g, eta in zip(gradients, rates, strict=True):
        suffered += at @ (g * grid)
        total += at @ g
        place = np.clip((grid - eta * g + R) / epsilon, 0, points - 1)
        low = np.minimum(place.astype(int), points - 2)
        up = place - low
        nxt = np.zeros(points)
        np.add.at(nxt, low, at * (1 - up))
        np.add.at(nxt, low + 1, at * up)
        at = nxt
    return suffered + R * total, suffered - R * total


ADVERSARIES = {
    "random": lambda rng, t, grid: rng.uniform(-1, 1, (t, len(grid))),
    "signs": lambda rng, t, grid: rng.choice([-1.0, 1.0], (t, len(grid))),
    "outwards": lambda rng, t, grid: np.tile(np.sign(grid) + (grid == 0), (t, 1)),
    "inwards": lambda rng, t, grid: np.tile(-np.sign(grid), (t, 1)),
    "alternating": lambda rng, t, grid: np.where(np.arange(t) % 2, 1.0, -1.0)[:, None] * np.ones(len(grid)),
    "one side": lambda rng, t, grid: np.full((t, len(grid)), rng.uniform(0, 1)),
}


@CASES
@given(
    name=st.sampled_from(sorted(ADVERSARIES)),
    half=st.integers(1, 12),
    R=st.sampled_from([0.5, 1.0, 4.0]),
    T=st.integers(1, 80),
    alpha=st.floats(0.01, 20),
    gamma=st.floats(0.05, 8),
    G=st.floats(0.01, 4),
    seed=st.integers(0, 2**32 - 1),
)
def test_no_adversary_makes_rounded_descent_regret_more_than_theorem_3_1_says(name, half, R, T, alpha, gamma, G, seed):
    grid = np.linspace(-R, R, 2 * half + 1)
    epsilon = R / half
    rates = np.maximum(alpha / np.sqrt(np.arange(1, T + 1)), epsilon / gamma)
    gradients = G * ADVERSARIES[name](np.random.default_rng(seed), T, grid)
    worst = max(expected_regrets(gradients, rates, R))
    exact = bounds.regret_1d(T=T, R=R, G=G, gamma=gamma, eta_T=rates[-1], eta_sum=rates.sum())
    assert worst <= exact * SLACK
    assert exact <= bounds.regret_fixed_grid(T=T, R=R, G=G, alpha=alpha, epsilon=epsilon, gamma=gamma) * SLACK


def test_the_exact_regret_can_come_near_the_bound():
    """Else the test above could not fail: one constant gradient, a rate that is best for it."""
    T, half = 100, 100
    rates = np.full(T, 2.0 / math.sqrt(T))
    worst = max(expected_regrets(np.ones((T, 2 * half + 1)), rates, 1.0))
    assert worst > 0.1 * bounds.regret_1d(T=T, R=1, G=1, gamma=0.1, eta_T=rates[-1], eta_sum=rates.sum())


@CASES
@given(T=st.integers(1, 10**6), R=st.floats(0.1, 8), G=st.floats(0.01, 4), gamma=st.floats(0, 4))
def test_corollary_3_2_is_theorem_3_1_at_the_best_alpha(T, R, G, gamma):
    alpha = math.sqrt(2) * R / math.hypot(G, gamma)
    eta_sum = 2 * alpha * math.sqrt(T)  # the paper's bound of the sum of alpha / sqrt(t)
    single = bounds.regret_1d(T=T, R=R, G=G, gamma=gamma, eta_T=alpha / math.sqrt(T), eta_sum=eta_sum)
    assert bounds.regret_per_coordinate(T, R=R, G=G, gamma=gamma) == pytest.approx(single)


def test_regret_adds_up_over_coordinates():
    choices = {"R": 2.0, "G": 1.0, "gamma": 0.5}
    for regret in (bounds.regret_per_coordinate, lambda tau, **k: bounds.regret_randomized_counts(tau, b=1.1, **k)):
        one_by_one = sum(regret(t, **choices) for t in (0, 1, 7, 7, 100))
        assert regret([0, 1, 7, 7, 100], **choices) == pytest.approx(one_by_one)
    assert bounds.regret_randomized_counts([0, 1], b=1.1, **choices) == 2 * 2.0 * 1.0


@CASES
@given(
    T=st.integers(2, 10**9), R=st.floats(0.1, 8), G=st.floats(0.01, 4), gamma=st.floats(0, 4), b=st.floats(1.001, 16)
)
def test_theorem_3_3_is_the_regret_of_the_worst_rates_that_lemma_a1_leaves(T, R, G, gamma, b):
    """Rates between those of both tails at c = 2.5; whatever happens outside costs 4 R G sqrt(T)."""
    alpha = R / math.hypot(G, gamma)
    slow, fast = (tail(T, T=T, b=b, c=2.5) for tail in (bounds.counter_upper_tail, bounds.counter_lower_tail))
    eta_T = alpha / math.sqrt(slow.estimate + 1)
    eta_sum = 2 * alpha * math.sqrt(T) / math.sqrt((fast.estimate + 1) / T)
    inside = bounds.regret_1d(T=T, R=R, G=G, gamma=gamma, eta_T=eta_T, eta_sum=eta_sum)
    outside = (T * fast.probability + slow.probability) * 2 * R * G * T
    found = bounds.regret_randomized_counts(T, R=R, G=G, gamma=gamma, b=b)
    assert inside + outside <= found * SLACK
    assert found <= (inside + 4 * R * G * math.sqrt(T)) * SLACK


def test_theorem_3_3_has_less_than_any_power_above_one_half():
    regrets = [bounds.regret_randomized_counts(10.0**n, R=1, G=1, gamma=1, b=1.1) for n in range(10, 300, 10)]
    powers = np.diff(np.log10(regrets)) / 10
    assert (np.diff(powers) < 0).all()
    assert powers[-1] < 0.53


# The counter ----------------------------------------------------------------------------------------------------------

LONGEST = 400


@cache
def counter_distributions(b: float) -> NDArray[np.float64]:
    """Row t: the distribution of the paper's counter C = 1, 2, ... after t increments, exactly."""
    levels = np.arange(LONGEST + 2)  # index j is C = j + 1
    up = b ** -(levels + 1.0)
    found = np.zeros((LONGEST + 1, len(levels)))
    found[0, 0] = 1.0
    for t in range(LONGEST):
        found[t + 1] = found[t] * (1 - up)
        found[t + 1, 1:] += (found[t] * up)[:-1]
    return found


@CASES
@given(
    b=st.sampled_from([1.001, 1.02, 1.1, 1.5, 2.0, 4.0]),
    t=st.integers(0, LONGEST),
    beyond=st.floats(1, 1000),
    c=st.floats(0.01, 6),
)
def test_both_tails_of_the_counter_hold(b, t, beyond, c):
    T = max(2.0, t * beyond)
    with np.errstate(over="ignore"):
        estimates = (b ** np.arange(1.0, LONGEST + 3) - b) / (b - 1)
    chances = counter_distributions(b)[t]
    low, high = (tail(t, T=T, b=b, c=c) for tail in (bounds.counter_lower_tail, bounds.counter_upper_tail))
    assert chances[estimates < low.estimate].sum() <= low.probability * SLACK
    assert chances[estimates > high.estimate].sum() <= high.probability * SLACK


def test_the_counter_of_the_test_is_unbiased():
    estimates = (1.1 ** np.arange(1.0, LONGEST + 3) - 1.1) / 0.1
    np.testing.assert_allclose(counter_distributions(1.1) @ estimates, np.arange(LONGEST + 1), atol=1e-9)


# Rounding at prediction time ------------------------------------------------------------------------------------------


@CASES
@given(z=st.floats(-700, 700), moved=st.floats(-700, 700), y=st.integers(0, 1))
def test_loss_grows_no_more_than_lemmas_4_1_and_4_2_say(z, moved, y):
    before, after, delta = loss(z, y), loss(moved, y), abs(z - moved)
    assert after - before <= bounds.additive_error(delta or 1e-300, 1) * SLACK + 1e-12
    assert after <= before * (1 + bounds.relative_error(delta)) * SLACK


def rounding_errors(up: list[float], epsilon: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """All errors of the log-odds of a row, with their chances: feature i is rounded up with probability up[i]."""
    errors, chances = np.zeros(1), np.ones(1)
    for share in up:
        errors = np.concatenate([errors - share * epsilon, errors + (1 - share) * epsilon])
        chances = np.concatenate([chances * (1 - share), chances * share])
    return errors, chances


def equal_rounding_errors(share: float, k: int, epsilon: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The same for k features with one share, however many: binomial."""
    ups = np.arange(k + 1)
    ways = gammaln(k + 1) - gammaln(ups + 1) - gammaln(k - ups + 1)
    chances = np.exp(ways + ups * math.log(share) + (k - ups) * math.log1p(-share))
    return (ups - share * k) * epsilon, chances


def check_prediction_bounds(errors, chances, z, y, epsilon, k):
    before = loss(z, y)
    added = chances @ (loss(z + errors, y) - before)
    tightest = bounds.curvature_relative_error(epsilon, k)
    theorem = bounds.expected_relative_error(epsilon, k)
    numerical = 1e-13 * (1 + abs(z) / before)
    assert added / before <= tightest * SLACK + numerical
    assert added <= bounds.curvature_additive_error(epsilon, k) * SLACK + 1e-12
    assert tightest <= theorem <= bounds.expected_relative_error(epsilon, k, erf=False)
    assert np.abs(errors).max() <= bounds.additive_error(epsilon, k) * SLACK
    for t in np.unique(np.abs(errors))[:: max(1, len(errors) // 16)]:
        beyond = chances[np.abs(errors) >= t].sum()
        assert beyond <= bounds.deviation_probability(float(t) / SLACK, epsilon=epsilon, k=k) * SLACK


@CASES
@given(up=st.lists(shares, min_size=1, max_size=10), epsilon=steps, z=margins, y=st.integers(0, 1))
def test_random_rounding_costs_no_more_than_the_bounds_of_section_4(up, epsilon, z, y):
    check_prediction_bounds(*rounding_errors(up, epsilon), z, y, epsilon, len(up))


@CASES
@given(share=st.floats(1e-6, 1 - 1e-6), k=st.integers(1, 2000), epsilon=steps, z=margins, y=st.integers(0, 1))
def test_the_bounds_hold_for_long_rows(share, k, epsilon, z, y):
    check_prediction_bounds(*equal_rounding_errors(share, k, epsilon), z, y, epsilon, k)


def test_the_curvature_bound_is_nearly_met():
    """Rows that are surely right, rounded as badly as possible: the factor exp(e^2 k / 8) is what really happens."""
    epsilon, k = 2.0**-3, 64
    errors, chances = equal_rounding_errors(0.5, k, epsilon)
    grown = chances @ loss(20 + errors, 1) / loss(20.0, 1) - 1
    assert 0.99 < grown / bounds.curvature_relative_error(epsilon, k) <= 1
    assert bounds.expected_relative_error(epsilon, k) > 20 * grown


@CASES
@given(values=st.lists(st.integers(-3, 3), min_size=1, max_size=60))
def test_entropy_is_the_mean_surprise_of_the_values(values):
    d = len(values)
    expected = -sum(math.log2(values.count(v) / d) for v in values) / d
    counts = np.unique(values, return_counts=True)[1]
    assert bounds.entropy(counts) == pytest.approx(expected, abs=1e-12)
    assert bounds.entropy(counts) <= math.log2(len(counts)) + 1e-12


def test_large_arguments_give_infinity_instead_of_an_error():
    assert bounds.relative_error(1e4) == math.inf
    assert bounds.curvature_relative_error(4.0, 10**6) == math.inf
    assert bounds.expected_relative_error(4.0, 10**6) == math.inf


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bounds.regret_1d(T=0, R=1, G=1, gamma=1, eta_T=1, eta_sum=1), "T must be at least 1"),
        (lambda: bounds.regret_1d(T=1, R=0, G=1, gamma=1, eta_T=1, eta_sum=1), "R must be above 0"),
        (lambda: bounds.regret_per_coordinate([3, -1], R=1, G=1, gamma=1), "tau must be at least 0"),
        (lambda: bounds.regret_randomized_counts(10, R=1, G=1, gamma=1, b=1), "b must be above 1"),
        (lambda: bounds.counter_lower_tail(10, T=5, b=1.1, c=1), "t must be at most T = 5, got 10"),
        (lambda: bounds.counter_upper_tail(1, T=1, b=1.1, c=1), "T must be at least 2"),
        (lambda: bounds.additive_error(0, 1), "epsilon must be above 0"),
        (lambda: bounds.relative_error(math.nan), "delta must be at least 0"),
        (lambda: bounds.deviation_probability(-1, epsilon=1, k=1), "t must be at least 0"),
        (lambda: bounds.expected_relative_error(0.1, -1), "k must be at least 0"),
        (lambda: bounds.entropy([1, -1]), "counts must not be negative"),
    ],
)
def test_senseless_arguments_are_refused(call, message):
    with pytest.raises(SpecError, match=message):
        call()


# The command ----------------------------------------------------------------------------------------------------------


def test_the_command_prints_every_bound():
    found = json.loads(lessram("bounds", "--grid", "q2.7", "-k", "75", "-T", "1e4", "--json").out)
    assert found["epsilon"] == 2**-7
    assert found["expected_relative_error"] == bounds.expected_relative_error(2**-7, 75, erf=False)
    assert found["counter_high"] == bounds.counter_upper_tail(1e4, T=1e4, b=1.1, c=2.5).estimate
    assert found["regret_randomized_counts"] == bounds.regret_randomized_counts(1e4, R=4, G=1, gamma=1, b=1.1)
    table = lessram("bounds", "--grid", "q2.7", "-k", "75", "-T", "1e4").out
    for name in ("Theorem 3.1", "Corollary 3.2", "Theorem 3.3", "A.1", "4.1", "4.2", "A.3", "Theorem 4.3", "0.0005724"):
        assert name in table


def test_the_command_refuses_senseless_choices():
    both = lessram("bounds", "--grid", "q2.7", "--epsilon", "0.1")
    assert (both.code, both.out) == (2, "")
    assert "choose --grid or --epsilon" in both.err
    assert lessram("bounds", "-b", "1")[::2] == (2, "lessram: b must be above 1, got 1.0\n")
