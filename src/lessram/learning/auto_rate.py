"""The learning rate's numerator, chosen on the first examples of a stream.

The best alpha differs a hundredfold between data sets, and the first thousands of examples are enough to tell. So
several learners, one a candidate, go over them side by side, and the one with the least progressive loss wins.
Then the model learns from the first example on with the winner's alpha, as if it had been given.

A candidate's table has only the slots that occur in these examples, numbered anew. Random words do not depend on slots,
so it predicts what it would with a table of full size, and costs next to nothing beside one.

Where the data are gone over several times, the winner's alpha is divided by the root of the number of passes: each adds
its steps to those of the others, and the best alpha falls about so on all data that it was measured on.

No prediction that is scored has seen its label: those of the first examples are the predictions of whichever candidate
led before them, with the lead looked at again whenever the number of examples has doubled.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from lessram.data.batch import Batch, joined, owned
from lessram.learning.learner import Learner
from lessram.learning.metrics import Scores
from lessram.model.spec import Spec
from lessram.numerics.loss import Loss

CANDIDATES = tuple(0.01 * 2.0**k for k in range(2, 11))
"""0.04 to 10.24: below what clicks want and above what numeric tables want."""
FIRST = 0.32
"""Whose predictions count while nothing is known."""
ROWS = 1 << 14
FEATURES = 1 << 20
"""The examples that are looked at: so many, or fewer if they have more features than this."""

_FIRST_LOOK = 64

Place = TypeVar("Place")


class Choice(NamedTuple):
    """What was found."""

    alpha: float
    margins: NDArray[np.float64]
    """Of each example, predicted by the candidate that led before it."""


class FirstExamples(Generic[Place]):
    """The first batches of a stream, each with its place, kept until there are enough to choose by."""

    def __init__(self) -> None:
        self._kept: list[tuple[Batch, Place]] = []
        self._rows = self._features = 0

    def keep(self, batch: Batch, place: Place) -> None:
        """Copy a batch, whose arrays may be used again."""
        self._kept.append((owned(batch), place))
        self._rows, self._features = self._rows + batch.rows, self._features + batch.features

    @property
    def enough(self) -> bool:
        return self._rows >= ROWS or self._features > FEATURES

    def examples(self) -> Batch | None:
        """Those that count, as one batch: the same however the stream was cut. None if there are none."""
        if not self._kept:
            return None
        first = joined([batch for batch, _ in self._kept])
        fitting = int(np.searchsorted(first.indptr[1:], FEATURES, side="right"))
        return owned(first.slice(0, min(ROWS, max(1, fitting))))

    def hand_out(self) -> Iterator[tuple[Batch, Place]]:
        """Every batch and its place, each given up as it goes."""
        while self._kept:
            yield self._kept.pop(0)


def first_examples(batches: Iterable[Batch]) -> Batch | None:
    """The examples at the beginning of some batches that alpha is chosen by."""
    first = FirstExamples[None]()
    for batch in batches:
        first.keep(batch, None)
        if first.enough:
            break
    return first.examples()


def choose_alpha(spec: Spec, batch: Batch, passes: int = 1) -> Choice:
    """Choose the alpha of a model to come by the first examples of its stream, for so many passes over it.

    >>> rng = np.random.default_rng(1)
    >>> slots = rng.integers(0, 4, 2000).astype(np.uint32)
    >>> batch = Batch((slots < 2).astype(np.float32), np.arange(2001), slots)
    >>> choose_alpha(Spec(slots=1 << 20), batch).alpha      # slots that decide everything bear large steps
    10.24
    """
    distinct, numbers = np.unique(batch.slots, return_inverse=True)
    slots: Any = numbers.astype(batch.slots.dtype)
    small = batch._replace(slots=slots)
    trial = msgspec.structs.replace(spec, slots=max(1, len(distinct)))
    learners = [Learner(msgspec.structs.replace(trial, alpha=alpha)) for alpha in CANDIDATES]
    margins = [learner.learn(small, trusted=True) for learner in learners]
    choice = _follow_the_leader(margins, small, Loss[spec.loss])
    return choice._replace(alpha=choice.alpha / math.sqrt(passes))


def _follow_the_leader(margins: list[NDArray[np.float64]], batch: Batch, loss: Loss) -> Choice:
    scores = [Scores.new() for _ in margins]
    leader, start, stop = CANDIDATES.index(FIRST), 0, _FIRST_LOOK
    shown = np.empty(batch.rows)
    while start < batch.rows:
        stop = min(stop, batch.rows)
        shown[start:stop] = margins[leader][start:stop]
        for score, margin in zip(scores, margins, strict=True):
            score.add(margin[start:stop], batch.slice(start, stop), loss)
        losses = [np.inf if score.log_loss is None else score.log_loss for score in scores]
        leader = int(np.argmin(losses)) if np.isfinite(losses).any() else leader
        start, stop = stop, 2 * stop
    return Choice(CANDIDATES[leader], shown)
