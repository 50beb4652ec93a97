"""The online game: its arithmetic is the paper's, and no measured regret is above its bound."""

from __future__ import annotations

import math

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st

from lessram.experiments import game, measured_regret, regret
from lessram.experiments.game import Adversary
from lessram.numerics import bounds
from lessram.numerics.random import hash_seed

CASES = max(200, settings.default.max_examples)
"""More in the nightly profile."""
HORIZONS = 2 ** np.arange(3, 9)


def unit(bits: int) -> float:
    return (bits >> 11) * 2.0**-53


def plain_game(adversary: Adversary, schedule: game.Schedule, radius: float, seed: int, rounds: int) -> float:
    """Algorithm 1 in plain Python, with the same random words: the regret after `rounds`."""
    key = reference.finalise(seed)
    point = error = suffered = total = 0.0
    state = 0
    for t in range(1, rounds + 1):
        word = reference.finalise((key + t * reference.GOLDEN) % 2**64)
        step = schedule.steps[state]
        reach = min(1.0, 0.5 * step / schedule.rates[state]) if step > 0 else 1.0
        toward = 1.0 if point >= 0 else -1.0
        g = {
            Adversary.alternating: 1.0 if t % 2 else -1.0,
            Adversary.random: -1.0 if reference.finalise(~word % 2**64) >> 63 else 1.0,
            Adversary.drifting: 1.0 if int(2 * math.sqrt(t)) % 2 == 0 else -1.0,
            Adversary.chasing: toward,
            Adversary.halfway: toward * reach,
            Adversary.pausing: toward * (2.0**-20 if error > 0 else reach),
        }[adversary]
        suffered += g * point
        total += g
        state += unit(reference.finalise(word ^ reference.GOLDEN)) < schedule.climbs[state]
        step = schedule.steps[state]
        beta = max(-radius, min(point - schedule.rates[state] * g, radius))
        if step == 0:
            point = beta
        else:
            below = math.floor(beta / step)
            point = (below + (unit(word) < beta / step - below)) * step
        error = beta - point
    return suffered + radius * abs(total)


@pytest.mark.parametrize("adversary", Adversary)
@pytest.mark.parametrize("kind", ["exact", "randomized", "fixed", "falling", "unrounded"])
def test_games_equal_the_plain_algorithm(adversary: Adversary, kind: str) -> None:
    schedule = {
        "exact": game.exact_schedule(1.0, 0.5, 1.0, 256),
        "randomized": game.randomized_schedule(1.0, 1.0, 1.0, 1.1),
        "fixed": game.fixed_schedule(1.0, 2.0**-3, 256),
        "falling": game.fixed_schedule(1.0, 2.0**-3, 256, stops=False),
        "unrounded": game.unrounded(game.fixed_schedule(1.0, 2.0**-3, 256)),
    }[kind]
    regrets = np.empty((1, len(HORIZONS)))
    game.play(int(adversary), schedule, 1.0, np.uint64(12345), HORIZONS, regrets)
    assert regrets[0].tolist() == [plain_game(adversary, schedule, 1.0, 12345, int(T)) for T in HORIZONS]


@given(gamma=st.floats(1 / 16, 8), alpha=st.floats(0.05, 4), radius=st.floats(0.25, 8))
@settings(max_examples=CASES)
def test_grids_meet_the_conditions_of_theorem_3_1(gamma: float, alpha: float, radius: float) -> None:
    schedule = game.exact_schedule(alpha, gamma, radius, 100)
    assert np.all(np.diff(schedule.rates) <= 0)
    assert np.all(schedule.steps <= gamma * schedule.rates * (1 + 1e-12))
    ends = radius / schedule.steps
    assert np.allclose(ends, np.round(ends), rtol=1e-12, atol=0)


def test_rounding_is_unbiased() -> None:
    """Summed over 2^16 equally spaced chances."""
    chances = (np.arange(2**16) + 0.5) / 2**16
    for target, step in ((0.3, 0.25), (-0.7, 0.5), (0.5, 0.25), (-1.0, 1 / 3)):
        rounded = [game.round_at_random.py_func(target, step, chance) for chance in chances]
        assert np.mean(rounded) == pytest.approx(target, abs=step * 2**-16)
        assert len(set(rounded)) <= 2
        assert max(abs(value - target) for value in rounded) < step


@given(
    adversary=st.sampled_from(Adversary),
    gamma=st.sampled_from([0.0, 0.1, 0.5, 1.0, 3.0, 10.0]),
    radius=st.floats(0.1, 4),
    alpha=st.floats(0.1, 4),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=CASES)
def test_no_expected_regret_above_theorem_3_1(adversary, gamma, radius, alpha, seed) -> None:
    schedule = game.exact_schedule(alpha, gamma, radius, 256)
    regrets = np.empty((64, len(HORIZONS)))
    game.play(int(adversary), schedule, radius, np.uint64(hash_seed(seed)), HORIZONS, regrets)
    for T, column in zip(HORIZONS.tolist(), regrets.T, strict=True):
        rates = schedule.rates[1 : T + 1]
        bound = bounds.regret_1d(T=T, R=radius, G=1.0, gamma=gamma, eta_T=rates[-1], eta_sum=rates.sum())
        assert column.mean() - 4 * column.std() / 8 <= bound


def test_a_bound_that_is_broken_is_reported() -> None:
    points = list(measured_regret.against(Adversary.chasing, 2 ** np.arange(4, 10), 20))
    for point in points:
        point["bound"] = point["regret"] / 2
    claims = regret._bounded(points)
    assert claims
    assert all(claim.holds is False for claim in claims)


def test_a_bound_within_the_noise_decides_nothing() -> None:
    point = {"adversary": "random", "gamma": 1.0, "T": 16, "regret": 1.0, "standard_error": 0.1}
    verdicts = {0.5: False, 0.8: None, 1.2: None, 1.5: True}
    assert {bound: regret._below_bound("a", [{**point, "bound": bound}]).holds for bound in verdicts} == verdicts


def test_the_rates_of_a_fixed_grid_stop_or_go_on_falling() -> None:
    ways = {way.kind: way for way in measured_regret.ways(1024) if way.step in (0.0, 2.0**-3)}
    stops, falls = ways[measured_regret.STOPS], ways[measured_regret.FALLS]
    assert stops.schedule.rates[[1, 64, 100, 1024]].tolist() == [1.0, 0.125, 0.125, 0.125]
    assert falls.schedule.rates[[1, 64, 100, 1024]].tolist() == [1.0, 0.125, 0.1, 2.0**-5]
    assert set(falls.schedule.steps) == set(stops.schedule.steps) == {2.0**-3}
    assert (falls.gamma_of(1024), stops.gamma_of(1024)) == (4.0, 1.0)
    for kind, same in ((measured_regret.STOPS_FREE, stops), (measured_regret.FALLS_FREE, falls)):
        assert ways[kind].schedule.rates.tolist() == same.schedule.rates.tolist()
        assert not ways[kind].schedule.steps.any()


def test_the_comparator_is_the_best_point() -> None:
    """No random point of the box does better."""
    stream = measured_regret.draw_stream(400, seed=5)
    least = measured_regret.least_loss(stream, 400)
    generator = np.random.default_rng(0)
    signs = 2 * stream.labels - 1
    for _ in range(200):
        point = generator.uniform(-1, 1, stream.dimension)
        assert np.logaddexp(0, -signs * point[stream.slots].sum(1)).sum() >= least
