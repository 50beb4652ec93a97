"""Theorem 3.1, Corollary 3.2 and Theorem 3.3, measured: expected regret against adversaries, beside its bounds."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lessram.experiments.game import Adversary
from lessram.experiments.measured_regret import (
    EXACT,
    FALLS,
    FALLS_FREE,
    FIXED,
    FRACTION_BITS,
    GAMMAS,
    RANDOMIZED,
    STEPS,
    STOPS,
    against,
    growth,
    last,
    of_fixed,
    on_logistic_stream,
    series,
)
from lessram.experiments.results import Claim, Findings, Mean, Setting, Table, every
from lessram.experiments.style import BLACK, GREY, MARKS, SERIES, tidy

SURE = 3.0
"""Standard errors that must fit between a measured expectation and its bound: more than elsewhere, for many points."""
ROOT, LINEAR = 0.6, 0.9
"""Exponents of T: below the first is growth like the root, above the second like T itself."""


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
        "coarsest that the theorems allow, gamma times the rate with -R and +R gridpoints; fixed grids are played at "
        "rates that stop falling at epsilon, and at rates that go on, beside the same rates without rounding. Regret "
        f"is against the best point in hindsight. A bound holds if it is {SURE:g} standard errors or more above the "
        "measured mean.",
        points=points,
        claims=[*_bounded(points), _vanishing(points), _linear(points)],
        pictures={"regret": lambda figure: _draw(figure, points), "regret_fixed": lambda f: _draw_fixed(f, points)},
        tables=[_table(points), _table_fixed(points)],
        remarks=_remarks(points),
    )


def _bounded(points: list[dict[str, Any]]) -> list[Claim]:
    named = {
        "Theorem 3.1 and Corollary 3.2 (exact counts)": (EXACT,),
        "Theorem 3.3 (randomized counts, base 1.1)": (RANDOMIZED,),
        "Theorem 3.1 on a fixed grid": (STOPS, FALLS),
    }
    return [_below_bound(name, [point for point in points if point["rates"] in kinds]) for name, kinds in named.items()]


def _below_bound(name: str, points: list[dict[str, Any]]) -> Claim:
    verdicts = [Mean(p["regret"], p["standard_error"]).at_most(p["bound"], errors=SURE) for p in points]
    nearest = max(points, key=lambda p: p["regret"] / p["bound"])
    return Claim(
        f"{name}: no expected regret above its bound",
        f"{SURE:g} standard errors or more below its bound, at every point",
        every(verdicts),
        f"{verdicts.count(True)} of {len(points)} points are; the nearest is at "
        f"{nearest['regret'] / nearest['bound']:.0%} of its bound ({nearest['adversary']}, "
        f"gamma = {nearest['gamma']:g}, T = {nearest['T']:,})",
    )


def _vanishing(points: list[dict[str, Any]]) -> Claim:
    grown = {
        (a.name, g): growth(points, adversary=a.name, rates=EXACT, gamma=g) for a in Adversary for g in GAMMAS if g > 0
    }
    worst = max(grown, key=lambda key: grown[key])
    return Claim(
        "on the adaptive grid regret grows like the root of T: no regret in the limit",
        f"an exponent of T below {ROOT:g} over the last four doublings, against every adversary",
        grown[worst] < ROOT,
        f"fastest growth T^{grown[worst]:.2f} ({worst[0]}, gamma = {worst[1]:g})",
    )


def _linear(points: list[dict[str, Any]]) -> Claim:
    """Without rounding, a rate that goes on falling has the regret of the root: what is more comes from the grid."""
    chasing = {kind: of_fixed(kind, STEPS[0], Adversary.chasing.name) for kind in FIXED}
    grown = {kind: growth(points, **wanted) for kind, wanted in chasing.items()}
    shown = "; ".join(
        f"{kind} {last(points, **wanted)['regret']:,.1f}, T^{grown[kind]:.2f}" for kind, wanted in chasing.items()
    )
    return Claim(
        "on a fixed grid regret grows linearly, whether the rate stops at epsilon or goes on falling",
        f"over the last four doublings exponents of T above {LINEAR:g} on the grid, and below {ROOT:g} at a rate that "
        "goes on falling without rounding, against the chasing adversary on the coarsest grid",
        grown[STOPS] > LINEAR and grown[FALLS] > LINEAR and grown[FALLS_FREE] < ROOT,
        f"epsilon = 2^-{FRACTION_BITS[0]}, T = {last(points)['T']:,}: {shown}",
    )


def _table(points: list[dict[str, Any]]) -> Table:
    rows = []
    for name in dict.fromkeys(p["adversary"] for p in points):
        cells = []
        for kind in (EXACT, RANDOMIZED):
            ends = [last(points, adversary=name, rates=kind, gamma=gamma) for gamma in GAMMAS]
            cells += [f"{p['regret']:.1f} / {p['bound']:.0f}" for p in ends]
        rows.append([f"{name}, T = {ends[0]['T']:,}", *cells])
    heading = [f"{kind}, gamma = {gamma:g}" for kind, gamma in product((EXACT, RANDOMIZED), GAMMAS)]
    return Table(["adversary", *heading], rows, "Expected regret / bound at the last round")


def _table_fixed(points: list[dict[str, Any]]) -> Table:
    rows = []
    for adversary, (bits, step) in product(Adversary, zip(FRACTION_BITS, STEPS, strict=True)):
        ends = [last(points, **of_fixed(kind, step, adversary.name)) for kind in FIXED]
        cells = [f"{p['regret']:,.1f} ± {p['standard_error']:.1f}" for p in ends]
        rows.append([adversary.name, f"2^-{bits}", *cells])
    title = f"Expected regret at T = {ends[0]['T']:,} on a fixed grid, and at the same rates without rounding"
    return Table(["adversary", "epsilon", *FIXED], rows, title)


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
        f"{ratio[RANDOMIZED]:.0f} times with randomized ones, whose measured regret is nearly the same.",
        _what_the_grid_does(points),
    ]


def _what_the_grid_does(points: list[dict[str, Any]]) -> str:
    on_grid, free, falls, falls_free = (
        last(points, **of_fixed(kind, STEPS[0], Adversary.chasing.name))["regret"] for kind in FIXED
    )
    return (
        "A fixed grid against the chasing adversary at epsilon = 2^-"
        f"{FRACTION_BITS[0]}: of the regret at a rate that stops at epsilon {free / on_grid:.0%} is there without any "
        f"rounding, of that at a rate that goes on falling {falls_free / falls:.0%}; the rest comes from the grid. "
        f"On the grid, letting the rate fall on changes the regret by {falls / on_grid - 1:+.0%}. Regret against the "
        "drifting adversary can be negative, as its best point moves and that of hindsight does not; without a grid, "
        "halfway and pausing are chasing."
    )


# Pictures -------------------------------------------------------------------------------------------------------------


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
            _plot(panel, series(points, adversary=name, rates=EXACT, gamma=gamma), index, label)
        randomized = series(points, adversary=name, rates=RANDOMIZED, gamma=1.0)
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
    """Regret a round: it vanishes on the adaptive grid and without rounding, and does not on a fixed grid."""
    figure.set_size_inches(11, 4.6)
    chasing = {"adversary": Adversary.chasing.name}
    names = {STOPS: "the rate stops at epsilon", FALLS: "the rate goes on falling"}
    for axes, (kind, name) in zip(figure.subplots(1, 2, sharey=True), names.items(), strict=True):
        for index, (bits, step) in enumerate(zip(FRACTION_BITS, STEPS, strict=True)):
            line = series(points, **of_fixed(kind, step, **chasing))
            _plot(axes, line, index, f"fixed grid, epsilon = 2^-{bits}", per_round=True)
        adaptive = series(points, **chasing, rates=EXACT, gamma=1.0)
        _plot(axes, adaptive, len(FRACTION_BITS), "adaptive grid, gamma = 1", per_round=True)
        free = series(points, **chasing, rates=FALLS_FREE)
        axes.plot(free["T"], free["regret"] / free["T"], color=BLACK, linestyle=":", label="falling, no rounding")
        axes.plot([], [], color=GREY, linestyle="--", label="its bound (same colour)")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        tidy(axes, title=f"A fixed grid, {name} (chasing adversary)", xlabel="T, rounds")
    figure.axes[0].set_ylabel("expected regret a round (loss / T)")
    figure.axes[0].legend(frameon=False, loc="lower left", fontsize=8)
