"""Theorem 3.1, Corollary 3.2 and Theorem 3.3, measured: expected regret against adversaries, beside its bounds."""

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
)
from lessram.experiments.results import Claim, Findings, Mean, Setting, Table
from lessram.experiments.style import GREY, MARKS, SERIES, tidy
from lessram.numerics import bounds
from lessram.numerics.random import hash_seed

R = G = 1.0
BASE = 1.1
GAMMAS = (0.0, 0.25, 1.0, 4.0)
FRACTION_BITS = (3, 5, 7)
"""Grids of the fixed discretisation: eps = 2^-m."""
EXACT, RANDOMIZED, FIXED = "exact counts", "randomized counts", "fixed grid"
SURE = 3.0
"""Standard errors that must fit between a measured expectation and its bound."""


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


def run(setting: Setting) -> Findings:
    """Play every game."""
    longest, repetitions = (12, 100) if setting.quick else (16, 400)
    horizons = 2 ** np.arange(4, longest + 1)
    points: list[dict[str, Any]] = []
    for adversary in Adversary:
        setting.tell(f"regret: {adversary.name} adversary, {repetitions} games of {horizons[-1]:,} rounds")
        points += against(adversary, horizons, repetitions)
    setting.tell("regret: logistic stream")
    points += on_logistic_stream(2 ** np.arange(4, longest - 2), max(20, repetitions // 4))
    return Findings(
        name="regret",
        title="Regret, measured against its bounds",
        paper="Theorem 3.1, Corollary 3.2 and Theorem 3.3 bound the expected regret of rounding at random; a fixed "
        "grid adds a term linear in T. The paper proves this and measures nothing.",
        method=f"Algorithm 1 on [-1, 1] with |g| <= 1 against {len(Adversary)} adversaries, {repetitions} games of "
        f"{horizons[-1]:,} rounds each; Algorithm 2 on a generated logistic stream of 60 features. The grid is the "
        "coarsest that the theorems allow, gamma times the rate with -R and +R gridpoints. Regret is against the best "
        f"point in hindsight. A bound holds if it is {SURE:g} standard errors or more above the measured mean.",
        points=points,
        claims=[*_bounded(points), _vanishing(points), _linear(points)],
        pictures={"regret": lambda figure: _draw(figure, points), "regret_fixed": lambda f: _draw_fixed(f, points)},
        tables=[_table(points)],
        remarks=_remarks(points),
    )


def schedules(rounds: int) -> Iterator[tuple[str, float, float, Schedule]]:
    """Every way to play: its kind, gamma, the step of a fixed grid, the schedule."""
    for gamma in GAMMAS:
        yield EXACT, gamma, 0.0, exact_schedule(best_alpha(EXACT, gamma), gamma, R, rounds)
        yield RANDOMIZED, gamma, 0.0, randomized_schedule(best_alpha(RANDOMIZED, gamma), gamma, R, BASE)
    for bits in FRACTION_BITS:
        yield FIXED, 1.0, 2.0**-bits, fixed_schedule(best_alpha(EXACT, 1.0), 2.0**-bits, rounds)


def best_alpha(kind: str, gamma: float) -> float:
    """The learning rate for which a theorem states its bound."""
    return (1.0 if kind == RANDOMIZED else np.sqrt(2.0)) * R / np.hypot(G, gamma)


def bound_of(kind: str, gamma: float, step: float, rounds: int, schedule: Schedule) -> float:
    """The bound on the expected regret of one coordinate after so many rounds."""
    if kind == RANDOMIZED:
        return bounds.regret_randomized_counts(rounds, R=R, G=G, gamma=gamma, b=BASE)
    if kind == FIXED:
        return bounds.regret_fixed_grid(T=rounds, R=R, G=G, alpha=best_alpha(EXACT, gamma), epsilon=step)
    rates = schedule.rates[1 : rounds + 1]
    return bounds.regret_1d(T=rounds, R=R, G=G, gamma=gamma, eta_T=rates[-1], eta_sum=rates.sum())


def against(adversary: Adversary, horizons: NDArray[np.int64], repetitions: int) -> Iterator[dict[str, Any]]:
    """Expected regret of every way to play against one adversary."""
    for kind, gamma, step, schedule in schedules(int(horizons[-1])):
        regrets = np.empty((repetitions, len(horizons)))
        play(int(adversary), schedule, R, np.uint64(hash_seed(adversary)), horizons, regrets)
        for rounds, column in zip(horizons.tolist(), regrets.T, strict=True):
            bound = bound_of(kind, gamma, step, rounds, schedule)
            yield _point(adversary.name, (kind, gamma, step), rounds, column, bound)


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
    adversary: str, way: tuple[str, float, float], rounds: int, regrets: NDArray[np.float64], bound: float
) -> dict[str, Any]:
    mean = Mean.of(regrets.tolist())
    kind, gamma, step = way
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


def _bounded(points: list[dict[str, Any]]) -> list[Claim]:
    named = {
        EXACT: "Theorem 3.1 and Corollary 3.2 (exact counts)",
        RANDOMIZED: "Theorem 3.3 (randomized counts, base 1.1)",
        FIXED: "Theorem 3.1 on a fixed grid",
    }
    found = []
    for kind, name in named.items():
        mine = [point for point in points if point["rates"] == kind]
        above = [p for p in mine if p["regret"] + SURE * p["standard_error"] > p["bound"]]
        nearest = max(mine, key=lambda p: p["regret"] / p["bound"])
        found.append(
            Claim(
                f"{name}: no expected regret above its bound",
                not above,
                f"{len(above)} of {len(mine)} points above; the nearest is at "
                f"{nearest['regret'] / nearest['bound']:.0%} of its bound ({nearest['adversary']}, "
                f"gamma = {nearest['gamma']:g}, T = {nearest['T']:,})",
            )
        )
    return found


def _last(points: list[dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    return max((p for p in points if all(p[k] == v for k, v in wanted.items())), key=lambda p: p["T"])


def _growth(points: list[dict[str, Any]], **wanted: Any) -> float:
    """The exponent of T by which regret grows over the last four doublings."""
    line = _series(points, **wanted)
    return float(np.polyfit(np.log(line["T"][-5:]), np.log(line["regret"][-5:]), 1)[0])


def _vanishing(points: list[dict[str, Any]]) -> Claim:
    grown = {
        (a.name, g): _growth(points, adversary=a.name, rates=EXACT, gamma=g) for a in Adversary for g in GAMMAS if g > 0
    }
    worst = max(grown, key=lambda key: grown[key])
    return Claim(
        "on the adaptive grid regret grows like the root of T: no regret in the limit",
        grown[worst] < 0.75,
        f"fastest growth T^{grown[worst]:.2f} ({worst[0]}, gamma = {worst[1]:g})",
    )


def _linear(points: list[dict[str, Any]]) -> Claim:
    coarse = {"adversary": Adversary.chasing.name, "rates": FIXED, "epsilon": 2.0 ** -FRACTION_BITS[0]}
    last = _last(points, **coarse)
    growth = _growth(points, **coarse)
    return Claim(
        "on a fixed grid a linear term O(epsilon T) is unavoidable",
        growth > 0.9,
        f"epsilon = 2^-{FRACTION_BITS[0]}, chasing adversary: regret grows like T^{growth:.2f}, "
        f"{last['regret'] / last['T'] / last['epsilon']:.2f} epsilon a round at T = {last['T']:,}",
    )


def _table(points: list[dict[str, Any]]) -> Table:
    rows = []
    for name in dict.fromkeys(p["adversary"] for p in points):
        cells = []
        for kind in (EXACT, RANDOMIZED):
            last = [_last(points, adversary=name, rates=kind, gamma=gamma) for gamma in GAMMAS]
            cells += [f"{p['regret']:.1f} / {p['bound']:.0f}" for p in last]
        rows.append([f"{name}, T = {last[0]['T']:,}", *cells])
    heading = [f"{kind}, gamma = {gamma:g}" for kind, gamma in product((EXACT, RANDOMIZED), GAMMAS)]
    return Table(["adversary", *heading], rows, "Expected regret / bound at the last round")


def _remarks(points: list[dict[str, Any]]) -> list[str]:
    ratio = {
        kind: max(
            p["bound"] / p["regret"]
            for p in points
            if p["rates"] == kind and p["gamma"] == 1.0 and p["adversary"] == Adversary.chasing.name and p["T"] >= 1024
        )
        for kind in (EXACT, RANDOMIZED)
    }
    return [
        "gamma = 0 is no rounding. Both bounds are loose, that of randomized counting far more: at gamma = 1 against "
        f"the chasing adversary up to {ratio[EXACT]:.0f} times the measured regret with exact counts and "
        f"{ratio[RANDOMIZED]:.0f} times with randomized ones, whose measured regret is nearly the same."
    ]


# Pictures -------------------------------------------------------------------------------------------------------------


def _series(points: list[dict[str, Any]], **wanted: Any) -> dict[str, NDArray[np.float64]]:
    chosen = [p for p in points if all(p[k] == v for k, v in wanted.items())]
    return {name: np.array([p[name] for p in chosen]) for name in ("T", "regret", "standard_error", "bound")}


def _plot(axes: Any, line: dict[str, NDArray[np.float64]], index: int, label: str, per_round: bool = False) -> None:
    scale = line["T"] if per_round else 1.0
    half = 1.96 * line["standard_error"]
    colour = SERIES[index]
    axes.plot(line["T"], line["regret"] / scale, color=colour, marker=MARKS[index], markersize=3, label=label)
    low, high = (line["regret"] - half) / scale, (line["regret"] + half) / scale
    axes.fill_between(line["T"], np.maximum(low, 1e-9), high, color=colour, alpha=0.25, linewidth=0)
    axes.plot(line["T"], line["bound"] / scale, color=colour, linestyle="--", linewidth=1)


def _draw(figure: Any, points: list[dict[str, Any]]) -> None:
    """A panel an adversary."""
    names = list(dict.fromkeys(p["adversary"] for p in points))
    figure.set_size_inches(12, 6.4)
    panels = figure.subplots(2, 4).ravel()
    for panel, name in zip(panels, names, strict=False):
        for index, gamma in enumerate(GAMMAS):
            label = "no rounding" if gamma == 0 else f"gamma = {gamma:g}"
            _plot(panel, _series(points, adversary=name, rates=EXACT, gamma=gamma), index, label)
        randomized = _series(points, adversary=name, rates=RANDOMIZED, gamma=1.0)
        _plot(panel, randomized, len(GAMMAS), "gamma = 1, randomized counts")
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        tidy(panel, title=name, xlabel="T, rounds", ylabel="expected regret (loss)")
    legend = panels[-1]
    legend.axis("off")
    handles, labels = panels[0].get_legend_handles_labels()
    bound = panels[0].plot([], [], color=GREY, linestyle="--", label="its bound")
    title = "measured, with 95 % interval"
    legend.legend([*handles, *bound], [*labels, "its bound (same colour)"], loc="center", frameon=False, title=title)


def _draw_fixed(figure: Any, points: list[dict[str, Any]]) -> None:
    """Regret a round: it vanishes on the adaptive grid, and does not on a fixed one."""
    figure.set_size_inches(7, 4.5)
    axes = figure.subplots()
    chasing = {"adversary": Adversary.chasing.name}
    for index, bits in enumerate(FRACTION_BITS):
        line = _series(points, **chasing, rates=FIXED, epsilon=2.0**-bits)
        _plot(axes, line, index, f"fixed grid, epsilon = 2^-{bits}", per_round=True)
    adaptive = _series(points, **chasing, rates=EXACT, gamma=1.0)
    _plot(axes, adaptive, len(FRACTION_BITS), "adaptive grid, gamma = 1", per_round=True)
    axes.plot([], [], color=GREY, linestyle="--", label="its bound (same colour)")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    tidy(axes, title="The linear term of a fixed grid (chasing adversary)")
    axes.set(xlabel="T, rounds", ylabel="expected regret a round (loss / T)")
    axes.legend(frameon=False, loc="upper right")
