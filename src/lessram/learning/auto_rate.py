"""The learning rate's numerator, chosen on the first examples of a stream.

The best alpha differs a hundredfold between data sets, and the first thousands of examples are enough to tell. So
several learners, one a candidate, go over them side by side, and the one with the least progressive loss wins.
Then the model learns from the first example on with the winner's alpha, as if it had been given.

A candidate's table has only the slots that occur in these examples, numbered anew. Random words do not depend on slots,
so it predicts what it would with a table of full size, and costs next to nothing beside one.

No prediction that is scored has seen its label: those of the first examples are the predictions of whichever candidate
led before them, with the lead looked at again whenever the number of examples has doubled.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

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
FEATURES = 1 << 21
"""The examples that are looked at: so many, or fewer if they have more features than this."""

_FIRST_LOOK = 64


class Choice(NamedTuple):
    """What was found."""

    alpha: float
    margins: NDArray[np.float64]
    """Of each example, predicted by the candidate that led before it."""


def look_ahead(places: Iterator[tuple[Batch, Any]]) -> tuple[list[tuple[Batch, Any]], Batch | None]:
    """Take as many batches as it needs to choose by. Returns them, and as one batch the examples that count."""
    kept: list[tuple[Batch, Any]] = []
    rows = features = 0
    for batch, place in places:
        kept.append((owned(batch), place))
        rows, features = rows + batch.rows, features + batch.features
        if rows >= ROWS or features > FEATURES:
            break
    if not kept:
        return kept, None
    first = joined([batch for batch, _ in kept])
    fitting = int(np.searchsorted(first.indptr[1:], FEATURES, side="right"))
    return kept, owned(first.slice(0, min(ROWS, max(1, fitting))))


def choose_alpha(spec: Spec, batch: Batch) -> Choice:
    """Choose the alpha of a model to come by the first examples of its stream.

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
    return _follow_the_leader(margins, small, Loss[spec.loss])


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
