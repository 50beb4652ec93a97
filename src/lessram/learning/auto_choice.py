"""The learning rate's numerator and the range of weights, chosen on the first examples of a stream.

**Alpha.** The best one differs a hundredfold between data sets, and the first thousands of examples are enough to tell.
So several learners, one a candidate, go over them side by side, and the one with the least progressive loss wins.
Then the model learns from the first example on with the winner's choices, as if they had been given.

Where the data are gone over several times, the winner's alpha is divided by the root of the number of passes: each adds
its steps to those of the others, and the best alpha falls about so on all data that it was measured on.

**Range.** Weights that want to go beyond the end of their format's range can cost far more than steps twice as long,
which cost nothing where weights are large. So if the winner's weights reach beyond half of the range, the candidates
are tried again on the format of as many bits that reaches twice as far, and so on, as long as that predicts better.
Minifloats also become narrower, as far as weights keep room to grow: what is gained is too little to be seen in
these examples, but it is never a loss, since a narrower minifloat only has finer steps next to zero.

A candidate's table has only the slots that occur in these examples, numbered anew. Random words do not depend on slots,
so it predicts what it would with a table of full size, and costs next to nothing beside one.

No prediction that is scored has seen its label: those of the first examples are the predictions of whichever candidate
led before them, with the lead, and the range, looked at again whenever the number of examples has doubled.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from lessram.data.batch import Batch, joined, owned
from lessram.learning.frozen_choice import frozen_alpha
from lessram.learning.learner import Learner
from lessram.learning.metrics import Scores
from lessram.model.spec import Spec
from lessram.numerics.fixed_point import FixedPoint
from lessram.numerics.loss import Loss
from lessram.numerics.minifloat import Minifloat
from lessram.tables.layout import stored_weights

CANDIDATES = tuple(0.01 * 2.0**k for k in range(2, 11))
"""0.04 to 10.24: below what clicks want and above what numeric tables want."""
FIRST = 0.32
"""Whose predictions count while nothing is known."""
ROWS = 1 << 14
FEATURES = 1 << 20
"""The examples that are looked at: so many, or fewer if they have more features than this."""

TIGHT = 0.5
"""The part of the range from which on weights are too large for it, perhaps."""
LEAST_GAIN = 0.002
"""By how much twice the range must lower the loss, or by which part of a loss above 1, to be taken."""
ROOM = 4
"""How often the largest weight after `ROWS` examples must fit into a narrower range. On seven real streams, 1.3 to 26
times as long, it went on to grow by 1.02 to 1.8."""

_FIRST_LOOK = 64

Place = TypeVar("Place")


class Choice(NamedTuple):
    """What was found."""

    spec: Spec
    """With the alpha and the weights that were chosen."""
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
    """The examples at the beginning of some batches that are chosen by."""
    first = FirstExamples[None]()
    for batch in batches:
        first.keep(batch, None)
        if first.enough:
            break
    return first.examples()


def choose(
    spec: Spec, batch: Batch, *, alpha: bool = True, range: bool = False, frozen: bool = False, passes: int = 1
) -> Choice:
    """Choose the `alpha` of a model to come, the `range` of its weights, or both, by the first examples of its stream.

    `frozen`: alpha for a model that is to predict without learning on. `passes`: how often the data will be gone over.

    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=2000).astype(np.float32)
    >>> batch = Batch(np.float32(x > 0), np.arange(2001), np.zeros(2000, np.uint32), x)
    >>> chosen = choose(Spec(slots=1 << 20), batch, range=True).spec    # a feature that decides bears large steps
    >>> chosen.alpha, chosen.weights
    (10.24, 'q5.10')
    """
    distinct, numbers = np.unique(batch.slots, return_inverse=True)
    slots: Any = numbers.astype(batch.slots.dtype)
    small = batch._replace(slots=slots)
    trial = msgspec.structs.replace(spec, slots=max(1, len(distinct)))
    candidates = CANDIDATES if alpha else (spec.alpha,)
    winner, margins = _follow_the_leader(_Ranges(trial, candidates, small, several=range), small)
    found = winner.leader.model.spec
    best = frozen_alpha(found, candidates, small) if alpha and frozen else found.alpha
    chosen = {"alpha": best / math.sqrt(passes)} if alpha else {}
    narrow = range and batch.rows >= ROWS  # of fewer examples, nobody knows how far their weights will go
    weights = str(winner.roomy_grid) if narrow else found.weights
    return Choice(msgspec.structs.replace(spec, weights=weights, **chosen), margins)


def _follow_the_leader(ranges: _Ranges, batch: Batch) -> tuple[_Trial, NDArray[np.float64]]:
    """The winner, and what those who led predicted."""
    trial, start, stop = ranges.narrowest, 0, _FIRST_LOOK
    shown = np.empty(batch.rows)
    while start < batch.rows:
        stop = min(stop, batch.rows)
        shown[start:stop] = trial.leading_margins(start, stop)
        trial = ranges.best(stop)
        start, stop = stop, 2 * stop
    return trial, shown


class _Ranges:
    """The candidates at one range and, if `several` are allowed, at twice the range, at four times ..., as needed."""

    def __init__(self, spec: Spec, alphas: tuple[float, ...], batch: Batch, *, several: bool) -> None:
        self._alphas, self._batch, self._several = alphas, batch, several
        self._trials = [_Trial(spec, alphas, batch)]

    @property
    def narrowest(self) -> _Trial:
        return self._trials[0]

    def best(self, stop: int) -> _Trial:
        """The range that predicts the examples up to `stop` best, a narrow one if in doubt."""
        found = self.narrowest
        found.learn_to(stop)
        for k in itertools.count(1):
            if not self._several or not found.is_tight:
                break
            if k == len(self._trials):
                self._trials.append(_Trial(found.wider_spec, self._alphas, self._batch))
            self._trials[k].learn_to(stop)
            if not found.loss - self._trials[k].loss > LEAST_GAIN * max(1.0, found.loss):
                break
            found = self._trials[k]
        return found


class _Trial:
    """Learners on one format, a candidate each, that learn the same examples."""

    def __init__(self, spec: Spec, alphas: tuple[float, ...], batch: Batch) -> None:
        self._spec, self._batch, self._loss = spec, batch, Loss[spec.loss]
        self._learners = [Learner(msgspec.structs.replace(spec, alpha=alpha)) for alpha in alphas]
        self._scores = [Scores.new() for _ in alphas]
        self._margins = np.empty((len(alphas), batch.rows))
        self._leader = alphas.index(FIRST) if FIRST in alphas else 0
        self._done = 0

    def learn_to(self, stop: int) -> None:
        """Let every candidate learn the examples up to `stop`, then see who leads."""
        piece = self._batch.slice(self._done, stop)
        for learner, score, margins in zip(self._learners, self._scores, self._margins, strict=True):
            margins[self._done : stop] = learner.learn(piece, trusted=True)
            score.add(margins[self._done : stop], piece, self._loss)
        losses = self._losses()
        self._leader = int(np.argmin(losses)) if np.isfinite(losses).any() else self._leader
        self._done = stop

    def leading_margins(self, start: int, stop: int) -> NDArray[np.float64]:
        """What the leader after `start` examples predicts for those up to `stop`, before it learns from each."""
        leader = self._leader
        self.learn_to(stop)
        return self._margins[leader, start:stop]

    @property
    def leader(self) -> Learner:
        return self._learners[self._leader]

    @property
    def loss(self) -> float:
        """The least so far, or infinity."""
        return min(self._losses())

    @property
    def is_tight(self) -> bool:
        """Whether the leader's weights, as they are stored, may want a wider format, and there is one."""
        grid = self._spec.grid
        return self._reach > TIGHT * grid.largest and grid.wider is not None

    @property
    def roomy_grid(self) -> FixedPoint | Minifloat:
        """The narrowest format that has room for the leader's weights to grow; even grids stay as they are."""
        grid = self._spec.grid
        while isinstance(grid, Minifloat) and grid.narrower and ROOM * self._reach <= grid.narrower.largest:
            grid = grid.narrower
        return grid

    @property
    def _reach(self) -> float:
        return float(np.abs(stored_weights(self.leader.model.table)).max(initial=0)) * self._spec.grid.step

    @property
    def wider_spec(self) -> Spec:
        return msgspec.structs.replace(self._spec, weights=str(self._spec.grid.wider))

    def _losses(self) -> list[float]:
        found = (score.log_loss for score in self._scores)
        return [np.inf if loss is None or not np.isfinite(loss) else loss for loss in found]
