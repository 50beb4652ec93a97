"""Figure 2: loss against bits a coordinate while training, one pass of progressive validation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from lessram.experiments.datasets import TEXT, DataSet, find
from lessram.experiments.results import Claim, Findings, Mean, Setting, Table
from lessram.experiments.style import BLACK, BLUE, GREEN, GREY, ORANGE, SKY, tidy
from lessram.experiments.trials import Trial, best_alpha, difference, learn
from lessram.model.spec import Spec
from lessram.numerics.fixed_point import FixedPoint
from lessram.tables.layout import cell_type

NEGLIGIBLE = 0.005
"""A relative loss that nobody could see in the paper's figure; less than two standard errors is noise anyway."""
FRACTION_BITS = (13, 11, 9, 7, 5, 3)
QUICK_FRACTION_BITS = (13, 9, 7, 6)
"""All in 16-bit integers: one kernel to compile."""


class Method(NamedTuple):
    """A way to store coefficients and learning rates."""

    name: str
    weights: str
    rates: str

    @property
    def tuned_as(self) -> str:
        """Whose learning rate it takes: its own kind's float32 version, so that only the storage differs."""
        return "global" if self.rates == "global" else "exact32"

    @property
    def bits(self) -> float:
        """Bits a coordinate as the paper counts them: what the formats ask for."""
        cell = cell_type(self.weights, self.rates)
        if self.weights == "float32":
            return 8 * cell.itemsize
        grid = FixedPoint.parse(self.weights)
        return 8 * (cell.itemsize - grid.dtype.itemsize) + grid.width

    @property
    def randomized(self) -> bool:
        return self.weights != "float32" or self.rates == "morris8"


CONTROL = Method("float32, one global rate", "float32", "global")
GLOBAL16 = Method("q2.13, one global rate", "q2.13", "global")
EXACT64 = Method("float32 + 32-bit counts", "float32", "exact32")
MORRIS40 = Method("float32 + 8-bit randomized counts", "float32", "morris8")
SINGLE = (CONTROL, GLOBAL16, EXACT64, MORRIS40)


def curve(quick: bool) -> list[Method]:
    """q2.m with randomized counts, from fine to coarse."""
    chosen = QUICK_FRACTION_BITS if quick else FRACTION_BITS
    return [Method(f"q2.{m} + 8-bit randomized counts", f"q2.{m}", "morris8") for m in chosen]


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
        "same loss; coarser grids trade loss for bits.",
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
            "Errors behind a relative loss come from the data: the stream in 20 parts, each left out in turn.",
        ],
    )


def measure(data: DataSet, setting: Setting) -> Measurements:
    """All methods on one stream."""
    setting.tell(f"fig2: {data.name}, choosing learning rates on {data.tuning:,} rows")
    alphas = {
        rates: best_alpha(data.to_tune, data.slots, weights="float32", rates=rates) for rates in ("global", "exact32")
    }
    trials: dict[Method, list[Trial]] = {}
    for method in (*SINGLE, *curve(setting.quick)):
        setting.tell(f"fig2: {data.name}, {method.name}")
        spec = Spec(slots=data.slots, weights=method.weights, rates=method.rates, alpha=alphas[method.tuned_as])
        trials[method] = repeat(data, spec, setting.seeds if method.randomized else 1)
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


def repeat(data: DataSet, spec: Spec, seeds: int) -> list[Trial]:
    """The measured part of a stream, once a seed."""
    from msgspec.structs import replace

    return [learn(data.to_measure, replace(spec, seed=seed)) for seed in range(seeds)]


def _points(data: DataSet, found: Measurements) -> list[dict[str, Any]]:
    return [
        {
            "data": data.name,
            "method": m.method.name,
            "weights": m.method.weights,
            "rates": m.method.rates,
            "bits": m.method.bits,
            "resident_bits": m.trials[0].model.bits_per_slot,
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
    grids = [m for method, m in found.items() if method.rates == "morris8" and method.weights != "float32"]
    main = grids[0]
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
        _order(data, grids),
    ]


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


def _table(data: DataSet, found: Measurements) -> Table:
    heading = ["method", "bits", "resident bits", "alpha", data.metric, "vs 32-bit control", "vs 64 bits", "seeds"]
    rows = [
        [
            m.method.name,
            f"{m.method.bits:g}",
            f"{m.trials[0].model.bits_per_slot:.1f}",
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
    figure.set_size_inches(6.2 * len(measured), 4.8)
    panels = figure.subplots(1, len(measured), squeeze=False)[0]
    for axes, (data, found) in zip(panels, measured, strict=True):
        _draw_set(axes, data, found)
    panels[0].legend(frameon=False, fontsize=8)


def _draw_set(axes: Any, data: DataSet, found: Measurements) -> None:
    text = data.kind == TEXT
    looks = {CONTROL: (BLACK, "s"), GLOBAL16: (ORANGE, "D"), EXACT64: (GREEN, "^"), MORRIS40: (BLUE, "v")}
    for method, (colour, mark) in looks.items():
        _mark(axes, [found[method]], text, method.name, color=colour, marker=mark, linestyle="none", markersize=8)
    grids = [m for method, m in found.items() if method not in looks]
    _mark(axes, grids, text, "q2.m + 8-bit randomized counts", color=SKY, marker="o", linestyle="-", markersize=5)
    for m in grids:
        place = (m.method.bits, _height(m, text))
        axes.annotate(m.method.weights, place, xytext=(5, 4), textcoords="offset points", fontsize=7, color=GREY)
    axes.axhline(_height(found[EXACT64], text), color=GREEN, linewidth=0.8, linestyle=":")
    axes.set_xlim(left=0)
    loss = "progressive error rate, %" if text else "progressive AUC loss (1 - AUC), % above 32-bit control"
    tidy(axes, title=data.name, xlabel="bits a coordinate", ylabel=loss)


def _height(m: Measured, text: bool) -> float:
    return 100.0 * (m.loss.value if text else m.against_control.value)


def _mark(axes: Any, line: Sequence[Measured], text: bool, label: str, **look: Any) -> None:
    """Bars are two standard errors over seeds."""
    control = line[0].loss.value / (1.0 + line[0].against_control.value)
    bars = [200.0 * (m.loss.error if len(m.trials) > 1 else 0.0) / (1.0 if text else control) for m in line]
    heights = [_height(m, text) for m in line]
    axes.errorbar([m.method.bits for m in line], heights, yerr=bars, label=label, elinewidth=1, capsize=2, **look)
