"""One pass of progressive validation, learning rates chosen beforehand, differences with their noise (section 5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from lessram.data.batch import Batch
from lessram.errors import DataError
from lessram.experiments.datasets import DataSet
from lessram.experiments.results import Mean
from lessram.learning.learner import Learner
from lessram.learning.metrics import Scores
from lessram.model.ledger import account
from lessram.model.model import Model
from lessram.model.spec import Spec
from lessram.numerics.loss import Loss

PARTS = 20
"""Consecutive parts of a stream whose scores are kept apart: how much they differ is the noise of the data."""
COARSE = tuple(2.0 ** (k / 2) for k in range(-10, 8))
FINE = tuple(2.0 ** (k / 8) for k in (-3, -2, -1, 1, 2, 3))


class Trial(NamedTuple):
    """One pass over a stream."""

    parts: list[Scores]
    bits: float
    """Bits a coordinate: resident ones a slot, or for a control that only counts them, those that it counts."""

    @property
    def scores(self) -> Scores:
        return added(self.parts)


def added(parts: Sequence[Scores]) -> Scores:
    """The scores of several parts together."""
    return Scores(sum(part.sums for part in parts), sum(part.histogram for part in parts))  # type: ignore[arg-type]


def learn(batch: Batch, spec: Spec, parts: int = PARTS) -> Trial:
    """Predict, score, then learn each row."""
    learner = Learner(spec)
    edges = np.linspace(0, batch.rows, parts + 1).astype(int).tolist()
    scores = [_learn_part(learner, batch.slice(a, b)) for a, b in pairwise(edges)]
    return Trial(scores, bits_of(learner.model))


def _learn_part(learner: Learner, batch: Batch) -> Scores:
    scores = Scores.new()
    scores.add(learner.learn(batch, trusted=True), batch, Loss.logistic)
    return scores


def bits_of(model: Model) -> float:
    """Bits a coordinate: resident ones, but of weights gamma those that the grids and counters would take."""
    if model.spec.weights != "gamma":
        return model.bits_per_slot
    counted = account(model).counted_bits_per_slot
    assert isinstance(counted, float)
    return counted


def best_alpha(batch: Batch, slots: int, **choices: Any) -> float:
    """The learning rate with the least progressive log-loss on a part of the data that is not measured later."""
    found: dict[float, float] = {}

    def best(alphas: Iterable[float]) -> float:
        for alpha in alphas:
            loss = learn(batch, Spec(slots=slots, alpha=alpha, **choices), parts=1).scores.log_loss
            found[alpha] = np.inf if loss is None or not np.isfinite(loss) else loss
        return min(found, key=lambda alpha: found[alpha])

    around = best(COARSE)
    return best(around * factor for factor in FINE)


def difference(data: DataSet, ours: Sequence[Trial], control: Sequence[Trial]) -> Mean:
    """The relative difference in the metric, averaged over seeds, and its standard error from the data.

    The error is a jackknife: each part of the stream is left out in turn, for both at once, so that what is hard for
    both cancels.
    """

    def relative(left_out: int | None) -> float:
        mine, other = (_mean_loss(data, trials, left_out) for trials in (ours, control))
        return over(mine, other)

    parts = len(ours[0].parts)
    without = np.array([relative(part) for part in range(parts)])
    spread = (parts - 1) / parts * float(((without - without.mean()) ** 2).sum())
    return Mean(relative(None), spread**0.5)


def over(loss: float, control: float) -> float:
    """A loss relative to a control's: 0.01 is 1 % more."""
    if control == 0.0:
        raise DataError("found a control without any loss, expected a stream that is harder to learn")
    return loss / control - 1.0


def _mean_loss(data: DataSet, trials: Sequence[Trial], left_out: int | None) -> float:
    totals = [trial.scores if left_out is None else trial.scores.since(trial.parts[left_out]) for trial in trials]
    return float(np.mean([data.loss(total) for total in totals]))
