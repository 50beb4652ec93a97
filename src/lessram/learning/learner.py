"""Learner: a model and the rule that moves it. Batches in, the margins predicted before learning out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lessram.data.batch import Batch
from lessram.data.checks import checked
from lessram.learning.kernels import Objective, learn_rows, predict_rows
from lessram.model.model import Model
from lessram.model.spec import Spec
from lessram.numerics.counter import gentle, morris
from lessram.numerics.invariant import margin_pieces
from lessram.numerics.loss import Loss
from lessram.numerics.random import hash_seed
from lessram.numerics.rate import rates_by_level
from lessram.tables.halfword import HalfwordRule, HalfwordScratch, halfword_rule, halfword_scratch
from lessram.tables.layout import SQUARES
from lessram.tables.proximal import ProximalRule, ProximalScratch, proximal_scratch
from lessram.tables.squares import SquaresRule, SquaresScratch, squares_rule, squares_scratch
from lessram.tables.table import Rule, Scratch, scratch

_FIRST_SCRATCH = 1024


def rule_of(spec: Spec) -> Rule | SquaresRule | ProximalRule | HalfwordRule:
    """How the coefficients of such a model move."""
    if spec.rates == "squares6":
        return halfword_rule(spec.alpha, spec.beta, spec.radius)
    if spec.rates in SQUARES:
        rule = squares_rule(spec.base, spec.alpha, spec.beta, _limit(spec), spec.step)
        return rule if spec.shrinkage is None else ProximalRule(*rule, spec.shrinkage)
    floor = spec.step if spec.rate_floor else 0.0
    counter = gentle(spec.base) if spec.rates == "ladder8" else morris(spec.base)
    return Rule(
        rates=rates_by_level(spec.alpha, counter.estimates, floor),
        thresholds=counter.thresholds,
        alpha=np.float32(spec.alpha),
        offset=np.float32(spec.offset),
        floor=np.float32(floor),
        limit=_limit(spec),
        step=spec.step,
    )


def _limit(spec: Spec) -> np.int32 | np.float32:
    if spec.weights != "float32":
        return np.int32(spec.grid.units_within(spec.radius))
    return np.float32(np.finfo(np.float32).max if spec.radius is None else spec.radius)


def objective_of(spec: Spec) -> Objective:
    """What such a model minimises, and where its randomness starts."""
    return Objective(
        loss=int(Loss[spec.loss]),
        seed=np.uint64(hash_seed(spec.seed)),
        intercept=spec.intercept,
        scaled=spec.scale == "rms",
        one_rate=spec.rates == "global",
        invariant=spec.step_rule == "invariant",
        pieces=margin_pieces() if spec.step_rule == "invariant" else np.zeros(4),
    )


class Learner:
    """Learns a model from batches, in order.

    >>> learner = Learner(Spec(slots=8, seed=1))
    >>> batch = Batch(np.float32([1, 0] * 50), np.arange(101), np.uint32([3, 5] * 50))
    >>> margins = learner.learn(batch)      # what was predicted before each label was seen
    >>> float(margins[0]), bool(margins[-2] > 0 > margins[-1])
    (0.0, True)
    """

    def __init__(self, model: Model | Spec) -> None:
        self.model = Model.new(model) if isinstance(model, Spec) else model
        self._rule = rule_of(self.model.spec)
        self._objective = objective_of(self.model.spec)
        self._scratch = self._new_scratch(_FIRST_SCRATCH)

    def learn(self, batch: Batch, *, trusted: bool = False) -> NDArray[np.float64]:
        """Predict each row, then learn from it; returns the margins (log-odds) that were predicted.

        `trusted` batches come from a reader of this package and are not checked again.
        """
        if not trusted:
            batch = self._checked(batch)
        self._fit_scratch(batch)
        margins = np.empty(batch.rows)
        learn_rows(
            self.model.table,
            self._rule,
            self._objective,
            batch,
            self.model.scalars,
            self.model.examples,
            self._scratch,
            margins,
        )
        self.model.examples += batch.rows
        return margins

    def predict(self, batch: Batch, *, trusted: bool = False) -> NDArray[np.float64]:
        """The margin of each row. Changes nothing and needs no lock."""
        if not trusted:
            batch = self._checked(batch)
        margins = np.empty(batch.rows)
        predict_rows(self.model.table, self._rule, batch, self.model.scalars, margins)
        return margins

    def _checked(self, batch: Batch) -> Batch:
        return checked(batch, self.model.spec.slots, real_labels=self.model.spec.loss == "squared")

    def _new_scratch(self, longest: int) -> Scratch | SquaresScratch | ProximalScratch | HalfwordScratch:
        if self.model.spec.rates == "squares6":
            return halfword_scratch(longest)
        cell = self.model.table.cells.dtype
        if self.model.spec.algorithm:
            return proximal_scratch(longest, cell)
        if self.model.spec.rates in SQUARES:
            return squares_scratch(longest, cell)
        return scratch(longest, cell["weight"])

    def _fit_scratch(self, batch: Batch) -> None:
        longest = int(np.diff(batch.indptr).max(initial=0))
        if longest > len(self._scratch.words):
            self._scratch = self._new_scratch(2 * longest)
