"""Algorithm 2 with a grid that follows the rate: the adaptive-precision method of the paper's Figure 2, as a control.

    eta_i = alpha / sqrt(estimate_i + 1),   eps_i = the largest power of two not above gamma eta_i

Powers of two keep -R and +R gridpoints and every finer grid a refinement. Values are held in float64 here, one array,
one counter each: what is counted is the bits that the paper counts, n + m_i + 1 for a coefficient whose grid has the
step 2^-m_i, and 8 for its counter. Everything else (scale, intercept, losses) is as in `learning/kernels.py`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.data.batch import Batch
from lessram.experiments.game import round_at_random, unit
from lessram.jit import kernel, overloaded, types
from lessram.learning.kernels import include_in_scale, scale_inverse
from lessram.model.model import INTERCEPT, INTERCEPT_STATE
from lessram.numerics.counter import morris, steps_up
from lessram.numerics.loss import Loss, derivative
from lessram.numerics.random import GOLDEN, finalise, hash_seed, row_key
from lessram.numerics.rounding import project
from lessram.tables.table import locate

WHOLE_BITS, COUNTER_BITS = 2, 8
RADIUS = 2.0**WHOLE_BITS
_LOGISTIC = int(Loss.logistic)


class Grids(NamedTuple):
    """What each level of the counter stands for."""

    rates: NDArray[np.float64]
    steps: NDArray[np.float64]
    thresholds: NDArray[np.uint64]


def grids(alpha: float, gamma: float, base: float = 1.1) -> Grids:
    """The schedule of Theorem 3.3, on grids of powers of two.

    >>> found = grids(alpha=0.5, gamma=1.0)
    >>> found.steps[:2].tolist(), bool(np.all(found.steps <= found.rates))
    ([0.5, 0.25], True)
    """
    counter = morris(base)
    rates = alpha / np.sqrt(counter.estimates + 1.0)
    steps = np.minimum(2.0 ** np.floor(np.log2(gamma * rates)), 1.0)
    return Grids(rates, steps, counter.thresholds)


class FollowingLearner:
    """Learns like `Learner`, with a grid for each coordinate that gets finer as its rate falls."""

    def __init__(self, slots: int, alpha: float, gamma: float, seed: int = 0) -> None:
        self.grids = grids(alpha, gamma)
        self.weights = np.zeros(slots)
        self.levels = np.zeros(slots, np.uint8)
        self._alpha = alpha
        self._seed = np.uint64(hash_seed(seed))
        self._scalars = np.zeros(4)
        self._examples = 0

    def learn(self, batch: Batch) -> NDArray[np.float64]:
        """Predict each row, then learn from it; returns the margins that were predicted."""
        margins = np.empty(batch.rows)
        state = (self.weights, self.levels, self._scalars)
        follow_rows(state, self.grids, self._alpha, batch, self._seed, self._examples, margins)
        self._examples += batch.rows
        return margins

    @property
    def bits(self) -> float:
        """Bits a coordinate as the paper counts them, over all slots."""
        return COUNTER_BITS + WHOLE_BITS + 1 - float(np.log2(self.grids.steps)[self.levels].mean())


@kernel
def follow_rows(state, grids, alpha, batch, seed, first_example, margins):
    """Predict each row, write its margin, then learn from it."""
    weights, levels, scalars = state
    for r in range(batch.labels.shape[0]):
        key = row_key(seed, np.uint64(first_example + r))
        row = locate(batch, r, key, np.uint64(first_example + r))
        include_in_scale(batch.values, row, scalars)
        inverse = scale_inverse(scalars)
        margin = scalars[INTERCEPT]
        for k in range(batch.indptr[r], batch.indptr[r + 1]):
            margin += weights[batch.slots[k]] * value_at(batch.values, k) * inverse
        margins[r] = margin
        gradient = derivative(_LOGISTIC, margin, np.float64(batch.labels[r]))
        for k in range(batch.indptr[r], batch.indptr[r + 1]):
            slot = batch.slots[k]
            word = finalise(key + np.uint64(k - batch.indptr[r]) * GOLDEN)
            levels[slot] += steps_up(grids.thresholds[levels[slot]], finalise(~word))
            level = levels[slot]
            step = grids.rates[level] * gradient * value_at(batch.values, k) * inverse
            target = project(weights[slot] - step, RADIUS)
            weights[slot] = round_at_random(target, grids.steps[level], unit(word))
        scalars[INTERCEPT_STATE] += 1.0
        scalars[INTERCEPT] -= alpha / np.sqrt(scalars[INTERCEPT_STATE] + 1.0) * gradient


def value_at(values: object, k: int) -> float:
    """The value of feature k; 1 where the batch has none."""
    raise NotImplementedError("value_at() is for kernels")


@overloaded(value_at)
def _value_at(values, k):
    if isinstance(values, types.NoneType):
        return lambda values, k: 1.0
    return lambda values, k: np.float64(values[k])
