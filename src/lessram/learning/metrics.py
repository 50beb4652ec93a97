"""Streaming metrics of margins against labels: log-loss, error rate, AUC, calibration; of real labels, the loss.

Everything is kept in two small arrays: seven sums, and a histogram of margins by label. Rows are added
one after another in stream order, so the sums have the same bits for any split into batches.

AUC comes from the histogram: `BINS` bins of equal width over margins of -16 to 16, the outer ones open.
Pairs in different bins are ordered exactly; pairs in one bin count one half. So the true AUC is within
+- (pairs that share a bin) / (2 * all pairs) of the value, and that bound is reported beside it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.data.batch import Batch
from lessram.errors import DataError
from lessram.jit import inlined, kernel
from lessram.learning.kernels import row_weight
from lessram.numerics.loss import Loss, sigmoid, value

BINS = 4096
REACH = 16.0
BLOCK = 64
"""Rows that are judged at once, before they are added up one after another."""

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
        if not len(margins) == batch.rows == (batch.rows if batch.weights is None else len(batch.weights)):
            raise DataError(f"found {len(margins)} margins for a batch of {batch.rows} rows, expected one a row")
        add_rows(self, margins, batch.labels, batch.weights, int(loss), np.empty((3, BLOCK)))
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
    def rmse(self) -> float | None:
        """Root of the mean squared error, under squared loss, which is half of the square."""
        loss = self.log_loss
        return None if loss is None else math.sqrt(2 * loss)

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
def add_rows(scores, margins, labels, weights, loss, judged):
    """Add rows in order; `judged` is room for a block of them."""
    sums = scores.sums
    weight_sum, loss_sum, errors = sums[_WEIGHT], sums[_LOSS], sums[_ERRORS]
    positives, predicted = sums[_POSITIVES], sums[_PREDICTED]
    threshold = 0.5 if loss == _SQUARED else 0.0
    rows = margins.shape[0]
    for first in range(0, rows, BLOCK):
        count = min(BLOCK, rows - first)
        judge(judged, margins[first : first + count], labels[first : first + count], loss, threshold)
        for k in range(count):
            z = margins[first + k]
            positive = labels[first + k] > 0.5
            weight = row_weight(weights, first + k)
            weight_sum += weight
            loss_sum += weight * judged[0, k]
            errors += weight * np.float64((z > threshold) != positive)
            positives += weight * np.float64(positive)
            predicted += weight * judged[1, k]
            scores.histogram[int(positive), int(judged[2, k])] += weight
    sums[_EXAMPLES] += np.float64(rows)
    sums[_WEIGHT], sums[_LOSS], sums[_ERRORS] = weight_sum, loss_sum, errors
    sums[_POSITIVES], sums[_PREDICTED] = positives, predicted


@inlined
def judge(judged, margins, labels, loss, threshold):
    """The loss, the prediction and the bin of every row: nothing depends on another row, so these become vectors."""
    if loss == _LOGISTIC:
        for k in range(margins.shape[0]):
            judged[0, k] = value(_LOGISTIC, margins[k], np.float64(labels[k]))
            judged[1, k] = sigmoid(margins[k])
    else:
        for k in range(margins.shape[0]):
            judged[0, k] = value(loss, margins[k], np.float64(labels[k]))
            judged[1, k] = np.float64(margins[k] > threshold)
    for k in range(margins.shape[0]):
        place = (margins[k] + REACH) * _BINS_PER_UNIT
        place = place if place > 0.0 else 0.0  # so that NaN, too, has a place inside
        judged[2, k] = min(place, BINS - 1.0)
