"""Streaming metrics against scikit-learn, and their own promises: the AUC's error bound, any split the same bits."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from lessram.data.batch import Batch
from lessram.learning.metrics import BINS, REACH, Scores
from lessram.numerics.loss import Loss


def batch_of(labels: np.ndarray, weights: np.ndarray | None) -> Batch:
    """Only labels and weights matter to metrics."""
    rows = len(labels)
    weights = None if weights is None else weights.astype(np.float32)
    return Batch(labels.astype(np.float32), np.arange(rows + 1), np.zeros(rows, np.uint32), None, weights)


def scored(margins: np.ndarray, labels: np.ndarray, weights: np.ndarray | None = None, loss=Loss.logistic) -> Scores:
    scores = Scores.new()
    scores.add(margins, batch_of(labels, weights), loss)
    return scores


def random_case(seed: int, rows: int = 3000, spread: float = 2.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Margins that say something about the labels, and weights, some of them 0."""
    rng = np.random.default_rng(seed)
    margins = rng.normal(0, spread, rows)
    labels = (rng.random(rows) < 1 / (1 + np.exp(-margins / 2))).astype(float)
    return margins, labels, rng.choice([0.0, 0.25, 1.0, 3.0], rows)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_against_scikit_learn(seed, weighted):
    margins, labels, weights = random_case(seed)
    weights = weights if weighted else None
    scores = scored(margins, labels, weights)
    probabilities = 1 / (1 + np.exp(-margins))
    errors = 1 - sklearn_metrics.accuracy_score(labels, margins > 0, sample_weight=weights)
    assert scores.log_loss == pytest.approx(sklearn_metrics.log_loss(labels, probabilities, sample_weight=weights))
    assert scores.error_rate == pytest.approx(errors)
    assert scores.calibration == pytest.approx(
        np.average(probabilities, weights=weights) / np.average(labels, weights=weights)
    )
    auc = sklearn_metrics.roc_auc_score(labels, margins, sample_weight=weights)
    assert abs(scores.auc - auc) <= scores.auc_error + 1e-12
    assert scores.auc_error < 1e-3, "bins are narrow beside the spread of margins"


def exact_auc(margins: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> float:
    """All pairs, one by one."""
    positive, negative = labels == 1, labels == 0
    difference = margins[positive][:, None] - margins[negative][None, :]
    pairs = weights[positive][:, None] * weights[negative][None, :]
    return float((pairs * ((difference > 0) + 0.5 * (difference == 0))).sum() / pairs.sum())


# Margins inside one bin, on its borders, equal, and beyond the histogram's reach.
margin = st.one_of(
    st.floats(-2 * REACH, 2 * REACH),
    st.floats(0, 0.02),
    st.sampled_from([-1e9, -REACH, 0.0, -0.0, REACH, 1e9, 2 * REACH / BINS]),
)
example = st.tuples(margin, st.sampled_from([0.0, 1.0]), st.sampled_from([0.5, 1.0, 8.0]))


@settings(max_examples=300)
@given(st.lists(example, min_size=2, max_size=40))
def test_the_true_auc_is_within_the_bound(examples):
    margins, labels, weights = (np.array(column) for column in zip(*examples, strict=True))
    scores = scored(margins, labels, weights)
    if len(set(labels)) < 2:
        assert scores.auc is None
        assert scores.auc_error is None
        return
    assert abs(scores.auc - exact_auc(margins, labels, weights)) <= scores.auc_error + 1e-12


def test_the_auc_bound_is_reached():
    """Two margins in one bin, wrongly ordered: the histogram says one half, the truth is 0, the bound is one half."""
    scores = scored(np.array([0.001, 0.002]), np.array([1.0, 0.0]))
    assert (scores.auc, scores.auc_error) == (0.5, 0.5)


@settings(max_examples=30)
@given(st.lists(st.integers(0, 3000), max_size=6))
def test_any_split_gives_the_same_bits(places):
    margins, labels, weights = random_case(7)
    whole, parts = scored(margins, labels, weights), Scores.new()
    batch = batch_of(labels, weights)
    ends = [0, *sorted(places), 3000]
    for start, stop in pairwise(ends):
        parts.add(margins[start:stop], batch.slice(start, stop), Loss.logistic)
    assert parts.sums.tobytes() == whole.sums.tobytes()
    assert parts.histogram.tobytes() == whole.histogram.tobytes()
    assert (parts.log_loss, parts.auc) == (whole.log_loss, whole.auc)


def test_since_is_what_was_added_after():
    margins, labels, _ = random_case(1)
    scores = scored(margins[:1000], labels[:1000])
    earlier = scores.copy()
    scores.add(margins[1000:], batch_of(labels[1000:], None), Loss.logistic)
    recent, alone = scores.since(earlier), scored(margins[1000:], labels[1000:])
    assert recent.examples == alone.examples == recent.features == 2000
    assert recent.log_loss == pytest.approx(alone.log_loss)
    assert recent.auc == alone.auc


def test_nothing_seen_has_no_scores():
    scores = Scores.new()
    assert (scores.examples, scores.features) == (0, 0)
    assert {scores.log_loss, scores.error_rate, scores.auc, scores.auc_error, scores.calibration} == {None}


def test_calibration_without_positives_is_unknown():
    assert scored(np.array([1.0]), np.array([0.0])).calibration is None
    assert scored(np.array([0.0, 0.0]), np.array([0.0, 1.0])).calibration == pytest.approx(1.0)


@pytest.mark.parametrize("loss", list(Loss), ids=lambda loss: loss.name)
@pytest.mark.parametrize("margin", [np.inf, -np.inf, np.nan, 1e300, -1e300])
def test_strange_margins_crash_nothing(loss, margin):
    scores = scored(np.array([margin, 0.5]), np.array([1.0, 0.0]), None, loss)
    assert scores.examples == 2
    assert scores.histogram.sum() == 2


def test_squared_loss_decides_at_one_half():
    scores = scored(np.array([0.4, 0.6, 0.4, 0.6]), np.array([0.0, 1.0, 1.0, 0.0]), None, Loss.squared)
    assert scores.error_rate == 0.5
    assert scores.log_loss == pytest.approx((0.4**2 + 0.4**2 + 0.6**2 + 0.6**2) / 8)


def test_hinge_loss():
    scores = scored(np.array([2.0, 0.5, -0.5]), np.array([1.0, 1.0, 1.0]), None, Loss.hinge)
    assert scores.log_loss == pytest.approx((0 + 0.5 + 1.5) / 3)
    assert scores.error_rate == pytest.approx(1 / 3)
