"""The online game of section 3, in the paper's own arithmetic: Algorithms 1 and 2 against adversaries.

Each round the learner plays a point, an adversary who has seen it answers with a gradient, and the point moves:

    beta_(t+1)     = Project(point_t - eta_t g_t)
    point_(t+1)    = RandomRound(beta_(t+1), eps_t),   eps_t <= gamma eta_t, -R and +R gridpoints

Tables of the package keep one grid for life; here the grid follows the rate, as the theorems allow, in double
precision. A whole game is a few dozen nanoseconds a round, so expectations come from hundreds of repetitions.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.jit import inlined, kernel
from lessram.numerics.counter import morris
from lessram.numerics.loss import derivative, value
from lessram.numerics.random import GOLDEN, finalise
from lessram.numerics.rounding import project

LOGISTIC = 0
_NEXT_TO_NOTHING = 2.0**-20
_UNIT = 2.0**-53


class Schedule(NamedTuple):
    """What a coordinate does at each state of its counter, which starts at 0 and advances before it is read."""

    rates: NDArray[np.float64]
    """eta."""
    steps: NDArray[np.float64]
    """eps, the resolution of the grid; 0 for no rounding."""
    climbs: NDArray[np.float64]
    """The probability of the next state: 1 for exact counting."""


def resolution(rates: NDArray[np.float64], gamma: float, radius: float) -> NDArray[np.float64]:
    """The coarsest grids that the theorems allow: eps <= gamma eta with -R and +R gridpoints.

    >>> resolution(np.array([0.5, 0.3]), gamma=1.0, radius=1.0)
    array([0.5 , 0.25])
    """
    return radius / np.ceil(radius / (gamma * rates)) if gamma > 0 else np.zeros_like(rates)


def exact_schedule(alpha: float, gamma: float, radius: float, rounds: int) -> Schedule:
    """Corollary 3.2: eta = alpha / sqrt(tau), tau counted exactly."""
    rates = alpha / np.sqrt(np.maximum(np.arange(rounds + 1.0), 1.0))
    return Schedule(rates, resolution(rates, gamma, radius), np.ones(rounds + 1))


def randomized_schedule(alpha: float, gamma: float, radius: float, base: float) -> Schedule:
    """Theorem 3.3: eta = alpha / sqrt(estimate + 1) from the 8-bit counter that the tables use."""
    counter = morris(base)
    rates = alpha / np.sqrt(counter.estimates + 1.0)
    return Schedule(rates, resolution(rates, gamma, radius), counter.thresholds.astype(np.float64) * 2.0**-64)


def fixed_schedule(alpha: float, step: float, rounds: int, *, stops: bool = True) -> Schedule:
    """Fixed discretisation: one grid for life, and a rate that stops falling at its step (so gamma = 1) or goes on."""
    exact = exact_schedule(alpha, 0.0, 1.0, rounds)
    rates = np.maximum(exact.rates, step) if stops else exact.rates
    return Schedule(rates, np.full_like(rates, step), exact.climbs)


def unrounded(schedule: Schedule) -> Schedule:
    """The same rates without a grid."""
    return schedule._replace(steps=np.zeros_like(schedule.steps))


class Adversary(IntEnum):
    """Who chooses the gradients, |g| <= 1."""

    alternating = 0
    """+1, -1, +1, ..."""
    random = 1
    """A fair coin."""
    drifting = 2
    """One sign for about sqrt(t) rounds, then the other: the best point moves as fast as the rate lets the learner."""
    chasing = 3
    """Looks at the point and pushes it through zero, back and forth."""
    halfway = 4
    """Chases too, but aims half-way between gridpoints, where rounding is noisiest. The point stays near zero, so the
    gradients must add up to what the rounding errors add up to: they correlate."""
    pausing = 5
    """Halfway, but holds still after every rounding downwards (the paper's footnote): errors depend on each other."""


_ALTERNATING, _RANDOM, _DRIFTING, _CHASING, _HALFWAY = (int(Adversary[name]) for name in (
    "alternating", "random", "drifting", "chasing", "halfway"
))  # fmt: skip


@inlined
def unit(bits):
    """A 64-bit word as a double in [0, 1)."""
    return np.float64(bits >> np.uint64(11)) * _UNIT


@inlined
def round_at_random(target, step, chance):
    """RandomRound(target, step): `chance` is uniform in [0, 1)."""
    if step == 0.0:
        return target
    place = target / step
    below = np.floor(place)
    return (below + np.float64(chance < place - below)) * step


@inlined
def gradient(adversary, t, point, error, reach, bits):
    """What the adversary answers in round t to this point. `reach` is the gradient that moves it half a grid step."""
    if adversary == _ALTERNATING:
        return 1.0 if t % 2 == 1 else -1.0
    if adversary == _RANDOM:
        return 1.0 if bits >> np.uint64(63) == np.uint64(0) else -1.0
    if adversary == _DRIFTING:
        return 1.0 if np.int64(2.0 * np.sqrt(np.float64(t))) % 2 == 0 else -1.0
    direction = 1.0 if point >= 0.0 else -1.0
    if adversary == _CHASING:
        return direction
    if adversary == _HALFWAY or error <= 0.0:
        return direction * reach
    return direction * _NEXT_TO_NOTHING


@kernel
def play(adversary, schedule, radius, seed, horizons, regrets):
    """Play Algorithm 1 once a row of `regrets`; column k is the regret after `horizons[k]` rounds.

    Losses are linear, so the best point in hindsight is an end of [-R, R]: regret = sum g point + R |sum g|.
    """
    for r in range(regrets.shape[0]):
        key = finalise(seed + np.uint64(r) * GOLDEN)
        point, error, suffered, total = 0.0, 0.0, 0.0, 0.0
        state, k = 0, 0
        for t in range(1, horizons[-1] + 1):
            word = finalise(key + np.uint64(t) * GOLDEN)
            rate, step = schedule.rates[state], schedule.steps[state]
            reach = min(1.0, 0.5 * step / rate) if step > 0.0 else 1.0
            g = gradient(adversary, t, point, error, reach, finalise(~word))
            suffered += g * point
            total += g
            state += np.int64(unit(finalise(word ^ GOLDEN)) < schedule.climbs[state])
            target = project(point - schedule.rates[state] * g, radius)
            point = round_at_random(target, schedule.steps[state], unit(word))
            error = target - point
            if t == horizons[k]:
                regrets[r, k] = suffered + radius * abs(total)
                k += 1


@kernel
def play_logistic(schedule, radius, slots, labels, seed, horizons, points, states, losses):
    """Play Algorithm 2 on a stream of binary rows once a row of `losses`: the logistic loss summed up to each horizon.

    `slots[t]` are the features of row t; `points` and `states` are room for the coefficients and their counters.
    """
    for r in range(losses.shape[0]):
        key = finalise(seed + np.uint64(r) * GOLDEN)
        points[:] = 0.0
        states[:] = 0
        suffered, k = 0.0, 0
        for t in range(horizons[-1]):
            z = 0.0
            for j in range(slots.shape[1]):
                z += points[slots[t, j]]
            y = np.float64(labels[t])
            suffered += value(LOGISTIC, z, y)
            g = derivative(LOGISTIC, z, y)
            for j in range(slots.shape[1]):
                i = slots[t, j]
                word = finalise(key + np.uint64(t * slots.shape[1] + j) * GOLDEN)
                states[i] += np.int64(unit(finalise(word ^ GOLDEN)) < schedule.climbs[states[i]])
                target = project(points[i] - schedule.rates[states[i]] * g, radius)
                points[i] = round_at_random(target, schedule.steps[states[i]], unit(word))
            if t + 1 == horizons[k]:
                losses[r, k] = suffered
                k += 1
