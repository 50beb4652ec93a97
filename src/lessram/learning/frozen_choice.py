"""The learning rate's numerator for a model that will predict for long without learning on.

Where the world drifts, the alpha that is best for predicting the next example is larger than the one that is best for
a model that is then frozen: it follows what holds for the moment. So each candidate learns the first quarter of the
examples and predicts the rest as it stands, then learns on to the half, and to three quarters: the least loss, relative
to that of the alpha that predicts the next example best and averaged over the three, wins. A gain below `LEAST_GAIN` is
no gain: single parts of a stream differ by as much, and where nothing drifts both alphas are the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from lessram.data.batch import Batch
from lessram.learning.learner import Learner
from lessram.learning.metrics import Scores
from lessram.model.spec import Spec
from lessram.numerics.loss import Loss

SHARES = (0.25, 0.5, 0.75)
"""How much of the examples has been learned when a candidate is frozen."""
LEAST_GAIN = 0.02


def frozen_alpha(spec: Spec, alphas: Sequence[float], batch: Batch) -> float:
    """Of these alphas and that of the spec, the one whose frozen models predict the rest of the examples best."""
    usual = _frozen_losses(spec, batch)

    def relative(alpha: float) -> float:
        losses = _frozen_losses(msgspec.structs.replace(spec, alpha=alpha), batch)
        mean = float(np.mean(losses / usual))
        return mean if np.isfinite(mean) else np.inf

    found = {alpha: relative(alpha) for alpha in alphas}
    best = min(found, key=lambda alpha: found[alpha])
    return best if found[best] < 1.0 - LEAST_GAIN else spec.alpha


def _frozen_losses(spec: Spec, batch: Batch) -> NDArray[np.float64]:
    """Of the examples behind each share, predicted by what was learned from those before."""
    learner, losses = Learner(spec), np.empty(len(SHARES))
    edges = [0, *(int(share * batch.rows) for share in SHARES)]
    for k, edge in enumerate(edges[1:]):
        learner.learn(batch.slice(edges[k], edge), trusted=True)
        rest, scores = batch.slice(edge, batch.rows), Scores.new()
        scores.add(learner.predict(rest, trusted=True), rest, Loss[spec.loss])
        losses[k] = np.nan if scores.log_loss is None else scores.log_loss
    return losses
