"""The ways to store coefficients and learning rates that Figure 2 compares, and their measurement on a stream."""

from __future__ import annotations

from statistics import fmean
from typing import Any, NamedTuple

import msgspec

from lessram.experiments.datasets import DataSet
from lessram.experiments.results import Mean, Setting
from lessram.experiments.trials import Trial, best_alpha, difference, learn
from lessram.model.spec import Spec
from lessram.numerics.fixed_point import FixedPoint

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


def grids_of(found: Measurements) -> tuple[list[Measured], list[Measured]]:
    """The two curves: fixed grids and grids that follow the rate, both from fine to coarse."""
    curves = [m for method, m in found.items() if method not in SINGLE]
    return [m for m in curves if not m.method.gamma], [m for m in curves if m.method.gamma]
