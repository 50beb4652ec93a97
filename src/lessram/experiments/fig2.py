"""Figure 2: loss against bits a coordinate while training, one pass of progressive validation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from lessram.experiments.datasets import ERROR_RATE, TEXT, DataSet, find
from lessram.experiments.methods import (
    CONTROL,
    EXACT64,
    GLOBAL16,
    MORRIS40,
    RESIDENT,
    Measured,
    Measurements,
    grids_of,
    measure,
)
from lessram.experiments.results import SURE, TOLERANCE, Claim, Findings, Mean, Setting, Table, every
from lessram.experiments.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, RED, SKY, tidy
from lessram.experiments.trials import difference

AS_GOOD = f"at most {TOLERANCE:+.1%}"
FEWER_THAN = 24
"""Bits a coordinate of q2.13 with a randomized count, the paper's recommendation."""
NAMED = {1.0: ("gamma = 1", (-6, -3)), 1 / 4: ("1/4", (-6, -3)), 1 / 16: ("1/16", (1, -12))}
"""Choices of gamma that the picture names, and where beside their points."""


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


def costs_nothing(change: Mean) -> bool | None:
    """Whether a relative loss is surely too small to matter; None while noise hides it."""
    return change.at_most(TOLERANCE)


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
            f"{name}: with a global rate, q2.13 costs nothing against float32",
            AS_GOOD,
            costs_nothing(rounded),
            percent(rounded),
        ),
        Claim(
            f"{name}: rates by coordinate improve predictions significantly",
            f"below 0 by more than {SURE:g} standard errors",
            (-better).is_positive,
            percent(better),
        ),
        Claim(
            f"{name}: randomized counts (40 bits) are as good as exact ones (64 bits)",
            AS_GOOD,
            costs_nothing(found[MORRIS40].against_exact),
            percent(found[MORRIS40].against_exact),
        ),
        Claim(
            f"{name}: q2.13 with randomized counts (24 bits) is as good as 64 bits",
            AS_GOOD,
            costs_nothing(main.against_exact),
            f"{percent(main.against_exact)}, {len(main.trials)} seeds",
        ),
        _order(data, fixed),
        _adaptive(data, found),
        _gamma_one(data, next(m for m in following if m.method.gamma == 1.0)),
        _resident(data, found[RESIDENT]),
    ]


def _order(data: DataSet, grids: Sequence[Measured]) -> Claim:
    gains = [difference(data, fine.trials, coarse.trials) for fine, coarse in pairwise(grids)]
    whole = difference(data, grids[-1].trials, grids[0].trials)
    shown = ", ".join(f"{m.method.weights} {m.against_exact.value:+.2%}" for m in grids)
    return Claim(
        f"{data.name}: coarser grids degrade in order",
        f"no grid more than {TOLERANCE:.1%} worse than the next coarser one, the coarsest surely worse than the finest",
        every([*(costs_nothing(gain) for gain in gains), whole.is_positive]),
        f"against 64 bits: {shown}; each against the next coarser: {', '.join(map(percent, gains))}",
    )


class Good(NamedTuple):
    """A grid that is, or may be, as good as a control."""

    bits: float
    name: str
    change: Mean
    """Against the control."""

    def __str__(self) -> str:
        return f"{self.bits:.1f} bits ({self.name}, {percent(self.change)})"


class Cheapest(NamedTuple):
    """The fewest bits of a curve that are as good as a control."""

    sure: Good | None
    """Of the grids that surely are."""
    possible: Good | None
    """Of those that may be, too."""

    @classmethod
    def of(cls, data: DataSet, line: Sequence[Measured], control: Measured) -> Cheapest:
        grids = [Good(m.bits, m.method.name, difference(data, m.trials, control.trials)) for m in line]
        sure = [grid for grid in grids if costs_nothing(grid.change)]
        possible = [grid for grid in grids if costs_nothing(grid.change) is not False]
        return cls(*(min(some, key=lambda grid: grid.bits, default=None) for some in (sure, possible)))

    def __str__(self) -> str:
        """
        >>> print(Cheapest(Good(18.0, "q2.7", Mean(0.001, 0.001)), Good(16.0, "q2.5", Mean(0.004, 0.002))))
        18.0 bits (q2.7, +0.10% ± 0.10%), perhaps 16.0 bits (q2.5, +0.40% ± 0.20%)
        """
        if self.possible is None:
            return "none"
        if self.sure == self.possible:
            return str(self.sure)
        return f"{'none surely' if self.sure is None else self.sure}, perhaps {self.possible}"


def fewer_bits(ours: Cheapest, theirs: Cheapest) -> bool | None:
    """Whether one curve surely reaches the control in fewer bits than the other, or surely does not."""
    if _bits(ours.sure) < _bits(theirs.possible):
        return True
    return False if _bits(ours.possible) >= _bits(theirs.sure) else None


def _bits(grid: Good | None) -> float:
    return math.inf if grid is None else grid.bits


def _adaptive(data: DataSet, found: Measurements) -> Claim:
    """The paper sees a benefit on clicks only, and says so. Compared with the same counts beside float32 weights."""
    fixed, following = (Cheapest.of(data, line, found[MORRIS40]) for line in grids_of(found))
    fewer = fewer_bits(following, fixed)
    evidence = f"fixed: {fixed}; adaptive: {following}"
    limit = (
        f"bits than a fixed grid, each the coarsest that loses at most {TOLERANCE:+.1%} against float32 with the same "
        "randomized counts"
    )
    if data.kind == TEXT:
        return Claim(
            f"{data.name}: adaptive precision brings nothing on text, only on clicks",
            f"no fewer {limit}",
            None if fewer is None else not fewer,
            evidence,
        )
    statement = f"{data.name}: adaptive precision is as good as float32 weights in fewer bits than any fixed grid"
    return Claim(statement, f"fewer {limit}", fewer, evidence)


def _gamma_one(data: DataSet, one: Measured) -> Claim:
    return Claim(
        f"{data.name}: simply choosing gamma = 1 yields excellent results",
        f"{AS_GOOD} against 64 bits",
        costs_nothing(one.against_exact),
        f"{percent(one.against_exact)} against 64 bits, {percent(one.against_control)} against the 32-bit control, "
        f"at {one.bits:.1f} bits",
    )


def _resident(data: DataSet, table: Measured) -> Claim:
    """Not in the paper, which counts bits; these are allocated ones."""
    return Claim(
        f"{data.name}: an adaptive table in real memory is as good as 64 bits in fewer than {FEWER_THAN}",
        f"{AS_GOOD}, and fewer than {FEWER_THAN} bits",
        every([costs_nothing(table.against_exact), table.bits < FEWER_THAN]),
        f"{percent(table.against_exact)}, {table.bits:.1f} resident bits a slot",
        beyond=True,
    )


def _why_gamma(data: DataSet, found: Measurements) -> str:
    """The price of a coarse grid beside what explains it."""
    scores = found[EXACT64].trials[0].scores
    error = 1.0 - math.exp(-(scores.log_loss or 0.0))
    losses = ", ".join(
        f"{m.method.gamma:g}: {m.against_exact.value:+.2%} ({m.against_control.value:+.2%})" for m in grids_of(found)[1]
    )
    return (
        f"{data.name}, loss against 64 bits (against the 32-bit control) by gamma: {losses}. "
        "A step is the rate times |g|, rounding it on the grid "
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
    figure.set_size_inches(5.4 * len(measured), 9.0)
    panels = figure.subplots(2, len(measured), squeeze=False)
    for (above, below), (data, found) in zip(panels.T, measured, strict=True):
        for axes in (above, below):
            _draw_set(axes, data, found)
        _name_grids(above, below, data, found)
        exact, control = (_height(found[method], data) for method in (EXACT64, CONTROL))
        below.set_ylim(exact - 0.12 * abs(control - exact), exact + 0.3 * abs(control - exact))
        below.set_xlim(6, 66)
        below.set_title(f"{data.name}, near the 64-bit method")
    figure.legend(*panels[0][0].get_legend_handles_labels(), frameon=False, ncols=4, loc="outside lower center")


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
    loss = "error rate, %" if data.metric == ERROR_RATE else "AUC loss (1 - AUC), % above 32-bit control"
    tidy(axes, title=data.name, xlabel="bits a coordinate", ylabel=f"progressive {loss}")


def _name_grids(above: Any, below: Any, data: DataSet, found: Measurements) -> None:
    """The ends of the curve of fixed grids, the paper's choice of gamma, and below, where there is room, finer ones."""
    fixed, following = grids_of(found)
    for m in (fixed[0], fixed[-1]):
        _name(above, data, m, m.method.weights, BLUE, (6, 5))
    for m in following:
        if m.method.gamma in NAMED:
            axes = above if m.method.gamma == 1.0 else below
            text, offset = NAMED[m.method.gamma]
            _name(axes, data, m, text, RED, offset)


def _name(axes: Any, data: DataSet, m: Measured, text: str, colour: str, offset: tuple[int, int]) -> None:
    side = "left" if offset[0] > 0 else "right"
    place = (m.bits, _height(m, data))
    axes.annotate(text, place, xytext=offset, textcoords="offset points", fontsize=8, color=colour, ha=side)


def _height(m: Measured, data: DataSet) -> float:
    return 100.0 * (m.loss.value if data.metric == ERROR_RATE else m.against_control.value)


def _mark(axes: Any, data: DataSet, line: Sequence[Measured], label: str, **look: Any) -> None:
    """Bars are two standard errors over seeds."""
    control = line[0].loss.value / (1.0 + line[0].against_control.value)
    unit = 1.0 if data.metric == ERROR_RATE else control
    bars = [200.0 * (m.loss.error if len(m.trials) > 1 else 0.0) / unit for m in line]
    heights = [_height(m, data) for m in line]
    axes.errorbar([m.bits for m in line], heights, yerr=bars, label=label, elinewidth=1, capsize=2, **look)
