"""The paper's adaptive grids equal Algorithm 2 in plain Python, and keep the conditions of its theorems."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from reference import OgdRand, Row, counting_bits, rounding_bits, row_key, uniform
from streams import LENGTHS, cut, make_rows, to_batch

from lessram.errors import SpecError
from lessram.learning.learner import Learner
from lessram.model.ledger import account
from lessram.model.model import Model
from lessram.model.spec import Spec
from lessram.numerics.grids import exponents
from lessram.numerics.rate import rates_by_level
from lessram.tables.graded import Graded, rounded

SLOTS = 96
ROWS = make_rows(SLOTS, LENGTHS * 3)


class GammaOgd(OgdRand):
    """eps = the largest R 2^-k that is at most gamma * eta; weights as exact fractions of R."""

    def __init__(self, gamma: float, radius: float, **choices) -> None:
        super().__init__(weights="float32", rates="morris8", **choices)
        self.gamma, self.radius, self.step = gamma, radius, radius
        self.beta = [Fraction(0)] * len(self.beta)

    def move(self, row: Row, gradient: float, t: int) -> None:
        key = row_key(self.seed, t)
        for position, (slot, x) in enumerate(row.features):
            eta = float(self.rate(slot, t, counting_bits(position, key)))
            bounded = gradient * self.inverse_scale()
            beta = float(self.beta[slot]) - eta * float(x) * (bounded / self.radius)
            beta = Fraction(min(1.0, max(-1.0, beta)))
            k = 0
            while self.radius * 2.0**-k > self.gamma * eta:
                k += 1
            below = math.floor(beta * 2**k)
            chance = uniform(rounding_bits(position, key))
            self.beta[slot] = Fraction(below + (chance < beta * 2**k - below), 2**k)


@pytest.mark.parametrize(("gamma", "radius"), [(1.0, None), (0.1, 3.0)])
def test_rows_equal_the_reference(gamma, radius):
    choices = {"slots": SLOTS, "alpha": 0.3, "seed": 5}
    learner = Learner(Spec(weights="gamma", gamma=gamma, radius=radius, **choices))
    reference = GammaOgd(gamma, 4.0 if radius is None else radius, **choices)
    assert learner.learn(to_batch(ROWS, valued=False)).tolist() == [reference.learn(row) for row in ROWS]
    assert learner.model.weights().tolist() == [float(beta) * reference.radius for beta in reference.beta]


def test_the_conditions_of_the_theorems_hold():
    """eps <= gamma eta, never less than half of it, R on every grid, and grids that only get finer."""
    rates = rates_by_level(0.2, Spec(slots=1).counter.estimates)[:180]
    for gamma in (0.05, 0.3, 1.0, 7.0):
        steps = 4.0 * 2.0 ** -exponents(rates, gamma, 4.0).astype(float)
        assert np.all(steps <= gamma * rates.astype(float))
        assert np.all((2 * steps > gamma * rates.astype(float)) | (steps == 4.0))
        assert np.all(4.0 / steps == np.round(4.0 / steps))
        assert np.all(np.diff(steps) <= 0)


def test_the_finest_grid_stays_where_a_finer_one_would_be_asked_for():
    assert exponents(np.array([1.0, 1e-6, 1e-7, 1e-12]), 1.0, 4.0).tolist() == [2, 22, 23, 23]


def test_rounding_is_unbiased():
    """Over all 2^12 chances, the mean is the number itself."""
    chances = (np.arange(4096) + 0.5) / 4096
    for beta in (0.0, 0.3, -0.77, 1.0, -1.0, 1 / 512):
        values = [rounded.py_func(beta, 64.0, chance) for chance in chances]
        assert np.mean(values) == pytest.approx(beta, abs=1 / 64 / 4096)
        assert max(values) - min(values) <= 1 / 64


def test_bits_are_counted_from_levels_and_the_table_is_saved(tmp_path):
    batch = to_batch(ROWS, valued=False)
    spec = Spec(slots=SLOTS, weights="gamma", gamma=1.0, alpha=0.3)
    whole = Learner(spec)
    whole.learn(batch)
    assert isinstance(whole.model.table, Graded)
    ledger = account(whole.model)
    grids = np.log2(2.0 ** (exponents(rates_by_level(0.3, spec.counter.estimates), 1.0, 4.0) + 1) + 1)
    expected = 8 + np.mean(grids[whole.model.table.cells["level"]])
    assert ledger.counted_bits_per_slot == pytest.approx(expected)
    split = Learner(spec)
    for piece in cut(batch, (7, 20)):
        split.learn(piece)
        split.model.save(tmp_path / "model")
        split = Learner(Model.load(tmp_path / "model", writable=True))
    assert np.array_equal(split.model.table.cells, whole.model.table.cells)


def test_choices():
    assert Spec(slots=8, weights="gamma").gamma == 1.0
    with pytest.raises(SpecError, match="gamma must be above 0"):
        Spec(slots=8, weights="gamma", gamma=0.0)
    with pytest.raises(SpecError, match="gamma needs weights gamma"):
        Spec(slots=8, gamma=1.0)
    with pytest.raises(SpecError, match="rates by randomized counts"):
        Spec(slots=8, weights="gamma", rates="global")
