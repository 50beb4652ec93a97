"""Figure 2: loss against bits a coordinate while training, one pass of progressive validation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any, NamedTuple

import msgspec

from lessram.experiments.datasets import TEXT, DataSet, find
from lessram.experiments.results import Claim, Findings, Mean, Setting, Table
from lessram.experiments.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, RED, SKY, tidy
from lessram.experiments.trials import Trial, best_alpha, difference, learn
from lessram.model.spec import Spec
from lessram.numerics.fixed_point import FixedPoint

NEGLIGIBLE = 0.005
"""A relative loss that nobody could see in the paper's figure; less than two standard errors is noise anyway."""
FRACTION_BITS = (13, 11, 9, 7, 5, 3)
QUICK_FRACTION_BITS = (13, 9, 7, 6)
"""All in 16-bit integers: one kernel to compile."""


GAMMAS = (1 / 64, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0)
QUICK_GAMMAS = (1 / 16, 1 / 4, 1.0)


class Method(NamedTuple):
    """A way to store coefficients and learning rates."""

    name: str
    weights: str
    rates: str
    gamma: float = 0.0
    """Of a grid that follows the rate."""

    @property
    def tuned_as(self) -> str:
        """Whose learning rate it takes: its own kind's float32 version, so that only the storage differs."""
        return "global" if self.rates == "global" else "exact32"

    @property
    def randomized(self) -> bool:
        return self.weights != "float32" or self.rates == "morris8"

    def bits(self, trial: Trial) -> float:
        """Bits a coordinate as the paper counts them: what the formats ask for."""
        if not self.weights.startswith("q"):
            return trial.bits
        grid = FixedPoint.parse(self.weights)
        return trial.bits - 8 * grid.dtype.itemsize + grid.width

    def learn(self, data: DataSet, alpha: float, seed: int) -> Trial:
        """One pass over the measured part of a stream."""
        gamma = self.gamma or msgspec.UNSET
        choices: dict[str, Any] = {"weights": self.weights, "rates": self.rates, "gamma": gamma}
        return learn(data.to_measure, Spec(slots=data.slots, alpha=alpha, seed=seed, **choices))


CONTROL = Method("float32, one global rate", "float32", "global")
GLOBAL16 = Method("q2.13, one global rate", "q2.13", "global")
EXACT64 = Method("float32 + 32-bit counts", "float32", "exact32")
MORRIS40 = Method("float32 + 8-bit randomized counts", "float32", "morris8")
RESIDENT = Method("lessram's adaptive table, resident bits", "adaptive", "ladder8")
SINGLE = (CONTROL, GLOBAL16, EXACT64, MORRIS40, RESIDENT)


def fixed_grids(quick: bool) -> list[Method]:
    """q2.m with randomized counts, from fine to coarse."""
    chosen = QUICK_FRACTION_BITS if quick else FRACTION_BITS
    return [Method(f"q2.{m} + 8-bit randomized counts", f"q2.{m}", "morris8") for m in chosen]


def following_grids(quick: bool) -> list[Method]:
    """The paper's adaptive precision, from fine to coarse."""
    chosen = QUICK_GAMMAS if quick else GAMMAS
    return [Method(f"adaptive, gamma = {gamma:g}", "gamma", "morris8", gamma) for gamma in chosen]


class Measured(NamedTuple):
    """A method on a stream, once a seed."""

    method: Method
    alpha: float
    trials: list[Trial]
    loss: Mean
    """The metric, with its standard error over seeds."""
    against_control: Mean
    """Relative to the 32-bit control with one global rate, with the error that the data leave."""
    against_exact: Mean
    """Relative to the 64-bit method."""

    @property
    def bits(self) -> float:
        return fmean(self.method.bits(trial) for trial in self.trials)

    @property
    def resident_bits(self) -> float | None:
        """None for a control that only counts its bits."""
        return None if self.method.gamma else self.trials[0].bits


Measurements = dict[Method, Measured]


def run(setting: Setting) -> Findings:
    """Measure every method on every stream."""
    sets = find(setting.data, quick=setting.quick)
    measured = [(data, measure(data, setting)) for data in sets]
    return Findings(
        name="fig2",
        title="Figure 2: rounding at training time",
        paper="With one global rate q2.13 halves the memory of the 32-bit control at no loss. Rates by coordinate "
        "improve predictions significantly and cost 64 bits; randomized counting makes that 40, and q2.13 24 at the "
        "same loss; coarser grids trade loss for bits, and grids that follow the rate (gamma) do so better on clicks.",
        method="One pass, every row predicted before it is learned. "
        + ". ".join(f"{data.name}: {data.description}" for data in sets)
        + f". The two float32 versions (one global rate, exact counts) are tuned for log-loss; all others take their "
        f"learning rates, so that only the storage differs. {setting.seeds} seeds for randomized methods.",
        points=[point for data, found in measured for point in _points(data, found)],
        claims=[claim for data, found in measured for claim in _claims(data, found)],
        pictures={"fig2": lambda figure: _draw(figure, measured)},
        tables=[_table(data, found) for data, found in measured],
        remarks=[
            "Bits are those that the formats ask for, as in the paper; what is resident is a whole number of bytes "
            "(`resident_bits` in the CSV: q2.9 with a counter takes 24 bits, like q2.13).",
            "Resident bits are the bytes that a table has allocated and touched, as it counts them itself. Read from "
            "outside, with all that a learner holds besides, a process that trains an adaptive table of 18 million "
            "slots grows by 1 % more (`benchmarks/adaptive.py memory`, docs/adaptive.md), one of 71 million by 0.3 %.",
            "Errors behind a relative loss come from the data: the stream in 20 parts, each left out in turn.",
            "Adaptive grids are the paper's, counted and not stored: eps is the largest power of two not above gamma "
            "times the rate; bits are averaged over all slots.",
            *(_why_gamma(data, found) for data, found in measured),
        ],
    )


def measure(data: DataSet, setting: Setting) -> Measurements:
    """All methods on one stream."""
    setting.tell(f"fig2: {data.name}, choosing learning rates on {data.tuning:,} rows")
    alphas = {
        rates: best_alpha(data.to_tune, data.slots, weights="float32", rates=rates) for rates in ("global", "exact32")
    }
    trials: dict[Method, list[Trial]] = {}
    for method in (*SINGLE, *fixed_grids(setting.quick), *following_grids(setting.quick)):
        setting.tell(f"fig2: {data.name}, {method.name}")
        seeds = range(setting.seeds if method.randomized else 1)
        trials[method] = [method.learn(data, alphas[method.tuned_as], seed) for seed in seeds]
    return {
        method: Measured(
            method,
            alphas[method.tuned_as],
            found,
            Mean.of([data.loss(trial.scores) for trial in found]),
            difference(data, found, trials[CONTROL]),
            difference(data, found, trials[EXACT64]),
        )
        for method, found in trials.items()
    }


def _points(data: DataSet, found: Measurements) -> list[dict[str, Any]]:
    return [
        {
            "data": data.name,
            "method": m.method.name,
            "weights": m.method.weights,
            "rates": m.method.rates,
            "gamma": m.method.gamma or None,
            "bits": m.bits,
            "resident_bits": m.resident_bits,
            "alpha": m.alpha,
            "seeds": len(m.trials),
            "metric": data.metric,
            "loss": m.loss.value,
            "standard_error": m.loss.error,
            "relative_to_control": m.against_control.value,
            "relative_to_control_error": m.against_control.error,
            "relative_to_64_bits": m.against_exact.value,
            "relative_to_64_bits_error": m.against_exact.error,
            "log_loss": Mean.of([trial.scores.log_loss or 0.0 for trial in m.trials]).value,
        }
        for m in found.values()
    ]


# What the paper says, decided by the figures --------------------------------------------------------------------------


def costs_nothing(change: Mean) -> bool:
    """Whether a relative loss is noise, or too small to matter."""
    return change.value <= max(2.0 * change.error, NEGLIGIBLE)


def percent(change: Mean) -> str:
    return f"{change.value:+.2%} ± {change.error:.2%}"


def _claims(data: DataSet, found: Measurements) -> list[Claim]:
    rounded = difference(data, found[GLOBAL16].trials, found[CONTROL].trials)
    better = found[EXACT64].against_control
    fixed, following = grids_of(found)
    main = fixed[0]
    name = data.name
    return [
        Claim(
            f"{name}: with a global rate, q2.13 costs nothing against float32", costs_nothing(rounded), percent(rounded)
        ),
        Claim(
            f"{name}: rates by coordinate improve predictions significantly",
            (-better).is_positive,
            percent(better),
        ),
        Claim(
            f"{name}: randomized counts (40 bits) are as good as exact ones (64 bits)",
            costs_nothing(found[MORRIS40].against_exact),
            percent(found[MORRIS40].against_exact),
        ),
        Claim(
            f"{name}: q2.13 with randomized counts (24 bits) is as good as 64 bits",
            costs_nothing(main.against_exact),
            f"{percent(main.against_exact)}, {len(main.trials)} seeds",
        ),
        _order(data, fixed),
        _adaptive(data, found),
        _gamma_one(data, next(m for m in following if m.method.gamma == 1.0)),
        _resident(data, found[RESIDENT]),
    ]


def grids_of(found: Measurements) -> tuple[list[Measured], list[Measured]]:
    """The two curves: fixed grids and grids that follow the rate, both from fine to coarse."""
    curves = [m for method, m in found.items() if method not in SINGLE]
    return [m for m in curves if not m.method.gamma], [m for m in curves if m.method.gamma]


def _order(data: DataSet, grids: Sequence[Measured]) -> Claim:
    """Fails where a coarser grid is better than a finer one beyond noise; decided if the coarsest is surely worse."""
    steps = [difference(data, coarse.trials, fine.trials) for fine, coarse in pairwise(grids)]
    in_order = all(step.is_positive is not False for step in steps)
    shown = ", ".join(f"{m.method.weights} {m.against_exact.value:+.2%}" for m in grids)
    return Claim(
        f"{data.name}: coarser grids degrade in order",
        in_order and grids[-1].against_exact.is_positive,
        f"against 64 bits: {shown}",
    )


def _adaptive(data: DataSet, found: Measurements) -> Claim:
    """The paper sees a benefit on clicks only, and says so. Compared with the same counts beside float32 weights."""
    fixed, following = (_cheapest(data, line, found[MORRIS40]) for line in grids_of(found))
    shown = " against ".join(
        "no such grid" if m is None else f"{m.bits:.1f} bits ({m.method.name})" for m in (fixed, following)
    )
    fewer = fixed is None or (following is not None and following.bits < fixed.bits)
    if data.kind == TEXT:
        return Claim(
            f"{data.name}: adaptive precision brings nothing on text, only on clicks", not fewer, f"fixed: {shown}"
        )
    statement = f"{data.name}: adaptive precision is as good as float32 weights in fewer bits than any fixed grid"
    return Claim(statement, fewer, f"fixed: {shown}")


def _cheapest(data: DataSet, line: Sequence[Measured], control: Measured) -> Measured | None:
    good = [m for m in line if costs_nothing(difference(data, m.trials, control.trials))]
    return min(good, key=lambda m: m.bits, default=None)


def _gamma_one(data: DataSet, one: Measured) -> Claim:
    return Claim(
        f"{data.name}: simply choosing gamma = 1 yields excellent results",
        costs_nothing(one.against_exact),
        f"{percent(one.against_exact)} against 64 bits, at {one.bits:.1f} bits",
    )


def _resident(data: DataSet, table: Measured) -> Claim:
    """Not in the paper, which counts bits; these are allocated ones."""
    return Claim(
        f"{data.name}: beyond the paper, an adaptive table in real memory is as good as 64 bits in fewer than 24",
        costs_nothing(table.against_exact) and table.bits < 24.0,
        f"{percent(table.against_exact)}, {table.bits:.1f} resident bits a slot",
    )


def _why_gamma(data: DataSet, found: Measurements) -> str:
    """The price of a coarse grid beside what explains it."""
    scores = found[EXACT64].trials[0].scores
    error = 1.0 - math.exp(-(scores.log_loss or 0.0))
    losses = ", ".join(f"{m.method.gamma:g}: {m.against_exact.value:+.2%}" for m in grids_of(found)[1])
    return (
        f"{data.name}, loss against 64 bits by gamma: {losses}. A step is the rate times |g|, rounding it on the grid "
        f"of gamma = 1 adds noise of up to half a rate, and |g| is typically {error:.2f} here: noise as large as the "
        "step itself, at every step. The bound of Theorem 3.1 has G in the place of |g| and does not see this."
    )


def _table(data: DataSet, found: Measurements) -> Table:
    heading = ["method", "bits", "resident bits", "alpha", data.metric, "vs 32-bit control", "vs 64 bits", "seeds"]
    rows = [
        [
            m.method.name,
            f"{m.bits:.1f}",
            "-" if m.resident_bits is None else f"{m.resident_bits:.1f}",
            f"{m.alpha:.3g}",
            f"{m.loss.value:.4%}",
            percent(m.against_control),
            percent(m.against_exact),
            str(len(m.trials)),
        ]
        for m in found.values()
    ]
    return Table(heading, rows, data.name)


# The picture ----------------------------------------------------------------------------------------------------------


def _draw(figure: Any, measured: Sequence[tuple[DataSet, Measurements]]) -> None:
    """Above everything, below the part near the 64-bit method."""
    figure.set_size_inches(5.4 * len(measured), 8.4)
    panels = figure.subplots(2, len(measured), squeeze=False)
    for (above, below), (data, found) in zip(panels.T, measured, strict=True):
        for axes in (above, below):
            _draw_set(axes, data, found)
        _name_grids(above, data, found)
        exact, control = (_height(found[method], data) for method in (EXACT64, CONTROL))
        below.set_ylim(exact - 0.12 * abs(control - exact), exact + 0.3 * abs(control - exact))
        below.set_xlim(6, 66)
        below.set_title(f"{data.name}, near the 64-bit method")
    panels[0][0].legend(frameon=False, fontsize=8, loc="upper right")


def _draw_set(axes: Any, data: DataSet, found: Measurements) -> None:
    looks = {CONTROL: (BLACK, "s"), GLOBAL16: (ORANGE, "D"), EXACT64: (GREEN, "^"), MORRIS40: (BLUE, "v")}
    looks[RESIDENT] = (PURPLE, "*")
    for method, (colour, mark) in looks.items():
        _mark(axes, data, [found[method]], method.name, color=colour, marker=mark, linestyle="none", markersize=8)
    fixed, following = grids_of(found)
    label = "q2.m + 8-bit randomized counts"
    _mark(axes, data, fixed, label, color=SKY, marker="o", linestyle="-", markersize=5)
    label = "adaptive grid + 8-bit randomized counts"
    _mark(axes, data, following, label, color=RED, marker="P", linestyle="-", markersize=5)
    axes.axhline(_height(found[EXACT64], data), color=GREEN, linewidth=0.8, linestyle=":")
    axes.set_xlim(left=0)
    loss = "error rate, %" if data.kind == TEXT else "AUC loss (1 - AUC), % above 32-bit control"
    tidy(axes, title=data.name, xlabel="bits a coordinate", ylabel=f"progressive {loss}")


def _name_grids(axes: Any, data: DataSet, found: Measurements) -> None:
    """The ends of the curve of fixed grids, and the paper's choice of gamma."""
    fixed, following = grids_of(found)
    for m in (fixed[0], fixed[-1]):
        _name(axes, data, m, m.method.weights, BLUE, (6, 5))
    for m in following:
        if m.method.gamma == 1.0:
            _name(axes, data, m, "gamma = 1", RED, (-6, -3))


def _name(axes: Any, data: DataSet, m: Measured, text: str, colour: str, offset: tuple[int, int]) -> None:
    side = "left" if offset[0] > 0 else "right"
    place = (m.bits, _height(m, data))
    axes.annotate(text, place, xytext=offset, textcoords="offset points", fontsize=8, color=colour, ha=side)


def _height(m: Measured, data: DataSet) -> float:
    return 100.0 * (m.loss.value if data.kind == TEXT else m.against_control.value)


def _mark(axes: Any, data: DataSet, line: Sequence[Measured], label: str, **look: Any) -> None:
    """Bars are two standard errors over seeds."""
    control = line[0].loss.value / (1.0 + line[0].against_control.value)
    unit = 1.0 if data.kind == TEXT else control
    bars = [200.0 * (m.loss.error if len(m.trials) > 1 else 0.0) / unit for m in line]
    heights = [_height(m, data) for m in line]
    axes.errorbar([m.bits for m in line], heights, yerr=bars, label=label, elinewidth=1, capsize=2, **look)
