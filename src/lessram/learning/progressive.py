"""Progressive validation, the only loop over batches: predict, score, then learn (section 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lessram.data.batch import Batch
from lessram.data.pipeline import Rest
from lessram.learning.learner import Learner
from lessram.learning.metrics import Scores
from lessram.model.model import Described, Model
from lessram.numerics.loss import Loss

Places = Iterable[tuple[Batch, Any]]
"""Batches, each with the place right behind it."""


class Predicts(Protocol):
    """A model with the means to predict: a learner, or a predictor of compressed models."""

    @property
    def model(self) -> Described: ...
    def predict(self, batch: Batch, *, trusted: bool = False) -> NDArray[np.float64]: ...


def scores_of(model: Model) -> Scores:
    """The scores that a model carries with it, over its whole life; begun if it has none."""
    if not model.scores:
        model.scores.update(Scores.new()._asdict())
    return Scores(**model.scores)


def scored_learning(learner: Learner, ahead: NDArray[np.float64] | None = None) -> Callable[[Batch], Rest]:
    """What learns a batch and returns what scores its rows by the margins that were predicted before.

    `ahead`: margins by which the first rows are scored instead, also predicted before their labels were seen.
    """
    scores = scores_of(learner.model)
    loss = Loss[learner.model.spec.loss]

    def learn(batch: Batch) -> Rest:
        nonlocal ahead
        margins = learner.learn(batch, trusted=True)
        if ahead is not None:
            known = min(len(ahead), batch.rows)
            margins[:known] = ahead[:known]
            ahead = ahead[known:] if known < len(ahead) else None
        return partial(scores.add, margins, batch, loss)

    return learn


def progressive(learner: Learner, places: Places) -> Iterator[Any]:
    """Learn all batches, scoring each row before it is learned; yields the place behind each batch."""
    learn = scored_learning(learner)
    for batch, place in places:
        score = learn(batch)
        score()
        yield place


def evaluate(predictor: Predicts, places: Places) -> Iterator[Scores]:
    """Predict all batches without learning; yields the scores so far after each."""
    scores = Scores.new()
    loss = Loss[predictor.model.spec.loss]
    for batch, _ in places:
        scores.add(predictor.predict(batch, trusted=True), batch, loss)
        yield scores
