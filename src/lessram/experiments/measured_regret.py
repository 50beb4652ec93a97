"""Expected regret of Algorithms 1 and 2, played many times against every adversary, as points beside their bounds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.experiments.game import (
    Adversary,
    Schedule,
    exact_schedule,
    fixed_schedule,
    play,
    play_logistic,
    randomized_schedule,
    unrounded,
)
from lessram.experiments.results import Mean
from lessram.numerics import bounds
from lessram.numerics.random import hash_seed

R = G = 1.0
BASE = 1.1
GAMMAS = (0.0, 0.25, 1.0, 4.0)
FRACTION_BITS = (3, 5, 7)
STEPS = tuple(2.0**-m for m in FRACTION_BITS)
"""Grids of the fixed discretisation: eps = 2^-m."""
EXACT, RANDOMIZED = "exact counts", "randomized counts"
STOPS, FALLS = "rate stops at epsilon, fixed grid", "rate goes on falling, fixed grid"
STOPS_FREE, FALLS_FREE = "rate stops at epsilon, no rounding", "rate goes on falling, no rounding"
FIXED = (STOPS, STOPS_FREE, FALLS, FALLS_FREE)
"""The fixed discretisation, and the same rates without a grid: what the grid does, and what the rate alone."""


class Stream(NamedTuple):
    """Rows of binary features with labels from a logistic model, a few features frequent and most rare."""

    slots: NDArray[np.int64]
    labels: NDArray[np.float32]
    dimension: int

    def counts(self, rounds: int) -> NDArray[np.int64]:
        """tau_i: logistic gradients are never 0, so every occurrence counts."""
        return np.bincount(self.slots[:rounds].ravel(), minlength=self.dimension)


def draw_stream(rounds: int, dimension: int = 64, width: int = 6, seed: int = 1) -> Stream:
    """One feature of each of `width` fields; within a field feature j has probability proportional to 1 / j."""
    generator = np.random.default_rng(seed)
    size = dimension // width
    shares = 1.0 / np.arange(1, size + 1)
    slots = generator.choice(size, (rounds, width), p=shares / shares.sum()) + size * np.arange(width)
    truth = generator.normal(0.0, 0.8, dimension)
    odds = truth[slots].sum(1) - 1.0
    return Stream(slots, (generator.random(rounds) < 1 / (1 + np.exp(-odds))).astype(np.float32), dimension)


class Way(NamedTuple):
    """A way to play."""

    kind: str
    gamma: float
    step: float
    """Of a fixed grid, or where the rate stops; 0 for none."""
    schedule: Schedule

    def gamma_of(self, rounds: int) -> float:
        """The least for which eps <= gamma eta_t holds so long: it grows where the rate falls and eps does not."""
        return self.step / float(self.schedule.rates[rounds]) if self.kind == FALLS else self.gamma

    def bound(self, rounds: int) -> float:
        """The bound on the expected regret of one coordinate after so many rounds."""
        gamma = self.gamma_of(rounds)
        if self.kind == RANDOMIZED:
            return bounds.regret_randomized_counts(rounds, R=R, G=G, gamma=gamma, b=BASE)
        if self.kind == STOPS:
            return bounds.regret_fixed_grid(T=rounds, R=R, G=G, alpha=best_alpha(EXACT, gamma), epsilon=self.step)
        rates = self.schedule.rates[1 : rounds + 1]
        return bounds.regret_1d(T=rounds, R=R, G=G, gamma=gamma, eta_T=rates[-1], eta_sum=rates.sum())


def ways(rounds: int) -> Iterator[Way]:
    """Every way to play."""
    for gamma in GAMMAS:
        yield Way(EXACT, gamma, 0.0, exact_schedule(best_alpha(EXACT, gamma), gamma, R, rounds))
        yield Way(RANDOMIZED, gamma, 0.0, randomized_schedule(best_alpha(RANDOMIZED, gamma), gamma, R, BASE))
    alpha = best_alpha(EXACT, 1.0)
    for step in STEPS:
        stops, falls = (fixed_schedule(alpha, step, rounds, stops=it_stops) for it_stops in (True, False))
        yield Way(STOPS, 1.0, step, stops)
        yield Way(STOPS_FREE, 0.0, step, unrounded(stops))
        yield Way(FALLS, 1.0, step, falls)
    yield Way(FALLS_FREE, 0.0, 0.0, unrounded(falls))


def best_alpha(kind: str, gamma: float) -> float:
    """The learning rate for which a theorem states its bound."""
    return (1.0 if kind == RANDOMIZED else np.sqrt(2.0)) * R / np.hypot(G, gamma)


def against(adversary: Adversary, horizons: NDArray[np.int64], repetitions: int) -> Iterator[dict[str, Any]]:
    """Expected regret of every way to play against one adversary."""
    for way in ways(int(horizons[-1])):
        regrets = np.empty((repetitions, len(horizons)))
        play(int(adversary), way.schedule, R, np.uint64(hash_seed(adversary)), horizons, regrets)
        for rounds, column in zip(horizons.tolist(), regrets.T, strict=True):
            marks = way.kind, way.gamma_of(rounds), way.step
            yield _point(adversary.name, marks, rounds, column, way.bound(rounds))


def on_logistic_stream(horizons: NDArray[np.int64], repetitions: int) -> Iterator[dict[str, Any]]:
    """Expected regret of Algorithm 2 on logistic losses."""
    stream = draw_stream(int(horizons[-1]))
    best = [least_loss(stream, int(rounds)) for rounds in horizons]
    room = np.zeros(stream.dimension), np.zeros(stream.dimension, np.int64)
    for kind, gamma in product((EXACT, RANDOMIZED), GAMMAS):
        alpha = best_alpha(kind, gamma)
        schedule = (
            exact_schedule(alpha, gamma, R, int(horizons[-1]))
            if kind == EXACT
            else randomized_schedule(alpha, gamma, R, BASE)
        )
        losses = np.empty((repetitions, len(horizons)))
        play_logistic(schedule, R, stream.slots, stream.labels, np.uint64(hash_seed(7)), horizons, *room, losses)
        for rounds, column, least in zip(horizons.tolist(), losses.T, best, strict=True):
            tau = stream.counts(rounds)
            bound = (
                bounds.regret_per_coordinate(tau, R=R, G=G, gamma=gamma)
                if kind == EXACT
                else bounds.regret_randomized_counts(tau, R=R, G=G, gamma=gamma, b=BASE)
            )
            yield _point("logistic stream", (kind, gamma, 0.0), rounds, column - least, bound)


def least_loss(stream: Stream, rounds: int) -> float:
    """The least logistic loss over the first rows that one point of [-R, R]^d can have."""
    from scipy.optimize import minimize
    from scipy.sparse import csr_matrix

    slots, signs = stream.slots[:rounds], 2.0 * stream.labels[:rounds] - 1.0
    starts = np.arange(rounds + 1) * slots.shape[1]
    matrix = csr_matrix((np.ones(slots.size), slots.ravel(), starts), shape=(rounds, stream.dimension))

    def loss(point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        margins = signs * (matrix @ point)
        return np.logaddexp(0.0, -margins).sum(), matrix.T @ (-signs / (1.0 + np.exp(margins)))

    start, box = np.zeros(stream.dimension), [(-R, R)] * stream.dimension
    return float(minimize(loss, start, jac=True, method="L-BFGS-B", bounds=box).fun)


def _point(
    adversary: str, marks: tuple[str, float, float], rounds: int, regrets: NDArray[np.float64], bound: float
) -> dict[str, Any]:
    mean = Mean.of(regrets.tolist())
    kind, gamma, step = marks
    return {
        "adversary": adversary,
        "rates": kind,
        "gamma": gamma,
        "epsilon": step,
        "T": rounds,
        "regret": mean.value,
        "standard_error": mean.error,
        "repetitions": len(regrets),
        "bound": bound,
    }


# Points, chosen by what marks them ------------------------------------------------------------------------------------


def chosen(points: list[dict[str, Any]], **wanted: Any) -> list[dict[str, Any]]:
    return [p for p in points if all(p[k] == v for k, v in wanted.items())]


def series(points: list[dict[str, Any]], **wanted: Any) -> dict[str, NDArray[np.float64]]:
    """A line of a picture."""
    line = chosen(points, **wanted)
    return {name: np.array([p[name] for p in line]) for name in ("T", "regret", "standard_error", "bound")}


def last(points: list[dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    return max(chosen(points, **wanted), key=lambda p: p["T"])


def growth(points: list[dict[str, Any]], **wanted: Any) -> float:
    """The exponent of T by which regret grows over the last four doublings."""
    line = series(points, **wanted)
    return float(np.polyfit(np.log(line["T"][-5:]), np.log(line["regret"][-5:]), 1)[0])


def of_fixed(kind: str, step: float, adversary: str) -> dict[str, Any]:
    """What marks the points of one way of the fixed discretisation; a falling rate without a grid is one for all."""
    return {"adversary": adversary, "rates": kind, "epsilon": 0.0 if kind == FALLS_FREE else step}
