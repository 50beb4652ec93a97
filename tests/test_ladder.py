"""The gentle ladder: exact while counts are small, unbiased always, and through the learner in the same cells."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from lessram import Batch, Learner, Spec
from lessram.numerics.counter import gentle


@pytest.mark.parametrize("base", [1.05, 1.1, 1.5, 2.0])
def test_every_step_adds_one_in_expectation(base: float) -> None:
    counter = gentle(base)
    for level, threshold in enumerate(counter.thresholds[:-1]):
        gap = Fraction(float(counter.estimates[level + 1])) - Fraction(float(counter.estimates[level]))
        gained = gap * Fraction(int(threshold), 2**64)
        assert abs(gained - 1) <= gap * Fraction(1, 2**63)


def test_small_counts_are_exact() -> None:
    assert gentle(1.1).estimates[:11].tolist() == list(range(11))
    labels = np.float32([1, 0] * 4)
    learner = Learner(Spec(slots=4, rates="ladder8", seed=3))
    learner.learn(Batch(labels, np.arange(9), np.full(8, 2, np.uint32)))
    assert learner.model.table.cells["level"].tolist() == [0, 0, 8, 0]


def test_the_top_lies_as_high_as_that_of_the_paper() -> None:
    assert gentle(1.1).estimates[-1] > 1e11
    assert gentle(1.1).thresholds[-1] == 0
