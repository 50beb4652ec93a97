"""Streaming metrics of margins against labels: log-loss, error rate, AUC, calibration.

Everything is kept in two small arrays: seven sums, and a histogram of margins by label. Rows are added
one after another in stream order, so the sums have the same bits for any split into batches.

AUC comes from the histogram: `BINS` bins of equal width over margins of -16 to 16, the outer ones open.
Pairs in different bins are ordered exactly; pairs in one bin count one half. So the true AUC is within
+- (pairs that share a bin) / (2 * all pairs) of the value, and that bound is reported beside it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.data.batch import Batch
from lessram.jit import kernel
from lessram.learning.kernels import row_weight
from lessram.numerics.loss import Loss, sigmoid, value

BINS = 4096
REACH = 16.0

_EXAMPLES, _WEIGHT, _LOSS, _ERRORS, _POSITIVES, _PREDICTED, _FEATURES = range(7)
_LOGISTIC = int(Loss.logistic)
_SQUARED = int(Loss.squared)
_BINS_PER_UNIT = BINS / (2 * REACH)


class Scores(NamedTuple):
    """The state of the metrics."""

    sums: NDArray[np.float64]
    histogram: NDArray[np.float64]

    @classmethod
    def new(cls) -> Scores:
        return cls(np.zeros(7), np.zeros((2, BINS)))

    def add(self, margins: NDArray[np.float64], batch: Batch, loss: Loss) -> None:
        """Add the predictions for a batch."""
        add_rows(self, margins, batch.labels, batch.weights, int(loss))
        self.sums[_FEATURES] += batch.features

    def copy(self) -> Scores:
        return Scores(self.sums.copy(), self.histogram.copy())

    def since(self, earlier: Scores) -> Scores:
        """What was added after `earlier` was copied from this."""
        return Scores(self.sums - earlier.sums, self.histogram - earlier.histogram)

    @property
    def examples(self) -> int:
        return int(self.sums[_EXAMPLES])

    @property
    def features(self) -> int:
        return int(self.sums[_FEATURES])

    @property
    def log_loss(self) -> float | None:
        """Mean loss an example: the log-loss under logistic loss."""
        return self._mean(_LOSS)

    @property
    def error_rate(self) -> float | None:
        """Share of examples on the wrong side of the decision."""
        return self._mean(_ERRORS)

    @property
    def calibration(self) -> float | None:
        """Predicted over actual positives: 1 is perfect."""
        positives = self.sums[_POSITIVES]
        return float(self.sums[_PREDICTED] / positives) if positives > 0 else None

    @property
    def auc(self) -> float | None:
        """Area under the ROC curve; None while one class is missing."""
        negative, positive = self.histogram
        pairs = negative.sum() * positive.sum()
        if pairs <= 0:
            return None
        below = np.concatenate([[0.0], np.cumsum(negative)[:-1]])
        return float((positive * (below + 0.5 * negative)).sum() / pairs)

    @property
    def auc_error(self) -> float | None:
        """The true AUC is at most this far from `auc`."""
        negative, positive = self.histogram
        pairs = negative.sum() * positive.sum()
        return float(0.5 * (positive * negative).sum() / pairs) if pairs > 0 else None

    def _mean(self, which: int) -> float | None:
        weight = self.sums[_WEIGHT]
        return float(self.sums[which] / weight) if weight > 0 else None


@kernel
def add_rows(scores, margins, labels, weights, loss):
    """Add rows in order."""
    for r in range(margins.shape[0]):
        z = margins[r]
        y = np.float64(labels[r])
        weight = row_weight(weights, r)
        positive = y > 0.5
        threshold = 0.5 if loss == _SQUARED else 0.0
        scores.sums[_EXAMPLES] += 1.0
        scores.sums[_WEIGHT] += weight
        scores.sums[_LOSS] += weight * value(loss, z, y)
        scores.sums[_ERRORS] += weight * np.float64((z > threshold) != positive)
        scores.sums[_POSITIVES] += weight * np.float64(positive)
        scores.sums[_PREDICTED] += weight * (sigmoid(z) if loss == _LOGISTIC else np.float64(z > threshold))
        place = (z + REACH) * _BINS_PER_UNIT
        place = place if place > 0.0 else 0.0  # so that NaN, too, has a place inside
        scores.histogram[int(positive), int(min(place, BINS - 1.0))] += weight
