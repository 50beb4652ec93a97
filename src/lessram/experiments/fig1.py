"""Figure 1: the coefficients of a trained model crowd around zero, so that a large dynamic range is superfluous."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.experiments.datasets import DataSet, find
from lessram.experiments.results import Claim, Findings, Setting
from lessram.experiments.style import BLUE, GREY, ORANGE, tidy
from lessram.experiments.trials import best_alpha
from lessram.learning.learner import Learner
from lessram.model.spec import Spec
from lessram.numerics.fixed_point import FixedPoint
from lessram.tables.layout import touched

GRID = "q2.13"
BINS = 120
GROUPED = 0.95
"""Tightly grouped: more than this share lies within a quarter of the range."""
OUTSIDE = 1e-3
"""A range is large enough if a smaller share lies beyond it."""


class Coefficients(NamedTuple):
    """The weights of the slots that a stream has touched."""

    data: DataSet
    alpha: float
    weights: NDArray[np.float64]
    control: NDArray[np.float64]
    """The same from float32 with exact counts."""


def run(setting: Setting) -> Findings:
    """Train a model on every stream and count its coefficients by size."""
    found = [_train(data, setting) for data in find(setting.data, quick=setting.quick)]
    edges = np.linspace(-4.0, 4.0, BINS + 1)
    return Findings(
        name="fig1",
        title="Figure 1: coefficients of a trained model",
        paper="A histogram of a large model's coefficients: values are tightly grouped near zero; a large dynamic "
        "range is superfluous.",
        method=f"{GRID} with 8-bit randomized counts, and float32 with exact counts, one pass. "
        + ". ".join(f"{c.data.name}: {c.data.description}" for c in found)
        + ". Only slots that occur are counted; values are those that multiply features of size 1.",
        points=[point for c in found for point in _points(c, edges)],
        claims=[claim for c in found for claim in _claims(c)],
        pictures={"fig1": lambda figure: _draw(figure, found, edges)},
        remarks=[_remark(c) for c in found],
    )


def _train(data: DataSet, setting: Setting) -> Coefficients:
    setting.tell(f"fig1: {data.name}")
    alpha = best_alpha(data.to_tune, data.slots, weights="float32", rates="exact32")
    models = []
    for format, rates in ((GRID, "morris8"), ("float32", "exact32")):
        learner = Learner(Spec(slots=data.slots, alpha=alpha, weights=format, rates=rates))
        learner.learn(data.to_measure, trusted=True)
        models.append(learner.model)
    # Exact counts know every slot that occurs; a randomized counter may still stand at 0, beside a weight of 0.
    occurring = touched(models[1].table)
    return Coefficients(data, alpha, *(model.weights()[occurring] for model in models))


def _points(c: Coefficients, edges: NDArray[np.float64]) -> list[dict[str, Any]]:
    counts = [np.histogram(weights, edges)[0].tolist() for weights in (c.weights, c.control)]
    return [
        {"data": c.data.name, "alpha": c.alpha, "from": a, "to": b, GRID: ours, "float32": other}
        for a, b, ours, other in zip(edges[:-1].tolist(), edges[1:].tolist(), *counts, strict=True)
    ]


def _claims(c: Coefficients) -> list[Claim]:
    grid = FixedPoint.parse(GRID)
    near = float(np.mean(np.abs(c.control) < grid.largest / 4))
    outside = float(np.mean(np.abs(c.control) > grid.largest))
    return [
        Claim(
            f"{c.data.name}: coefficients are tightly grouped near zero",
            f"more than {GROUPED:.0%} within a quarter of the range",
            near > GROUPED,
            f"{near:.2%} of {len(c.control):,} lie within a quarter of the range of q2.m, ±1; standard deviation "
            f"{c.control.std():.3f}",
        ),
        Claim(
            f"{c.data.name}: a large dynamic range is superfluous; {GRID} holds the model",
            f"less than {OUTSIDE:.1%} beyond ±{grid.largest:.4f}",
            outside < OUTSIDE,
            f"{outside:.4%} of the float32 coefficients lie beyond, the largest is {np.abs(c.control).max():.2f}",
        ),
    ]


def _remark(c: Coefficients) -> str:
    return (
        f"{c.data.name}: {len(c.weights):,} of {c.data.slots:,} slots occur; {np.mean(c.weights == 0):.1%} of those "
        f"have a coefficient of exactly 0 in {GRID}."
    )


def _draw(figure: Any, found: list[Coefficients], edges: NDArray[np.float64]) -> None:
    figure.set_size_inches(5.2 * len(found), 4)
    for axes, c in zip(figure.subplots(1, len(found), squeeze=False)[0], found, strict=True):
        axes.hist(np.clip(c.control, -4, 4), edges, color=GREY, alpha=0.5, label="float32 + exact counts, 64 bits")
        label = f"{GRID} + randomized counts, 24 bits"
        axes.hist(np.clip(c.weights, -4, 4), edges, histtype="step", color=BLUE, linewidth=1.3, label=label)
        for end in (-4, 4):
            axes.axvline(end, color=ORANGE, linewidth=1, linestyle="--")
        axes.plot([], [], color=ORANGE, linestyle="--", label="ends of q2.m")
        axes.set_yscale("log")
        axes.set_ylim(top=axes.get_ylim()[1] * 30)
        tidy(axes, title=f"{c.data.name}: {len(c.weights):,} coefficients")
        axes.set(
            xlabel="coefficient (change of log-odds)", ylabel=f"coefficients in each bin of {edges[1] - edges[0]:.3f}"
        )
        axes.legend(frameon=False, loc="upper center", fontsize=8)
