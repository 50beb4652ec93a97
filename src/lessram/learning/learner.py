"""Learner: a model and the rule that moves it. Batches in, the margins predicted before learning out."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lessram.data.batch import Batch
from lessram.data.checks import Sound, sound, with_checked_numbers
from lessram.data.predicting import batches_to_predict, margins_of
from lessram.errors import SpecError
from lessram.learning.kernels import Objective, learn_rows, predict_rows
from lessram.model.given import refused
from lessram.model.model import Model
from lessram.model.spec import Spec
from lessram.numerics.invariant import margin_pieces
from lessram.numerics.loss import Loss, check_gives_probabilities, probabilities
from lessram.numerics.minifloat import Minifloat
from lessram.numerics.random import hash_seed
from lessram.numerics.rate import rates_by_level
from lessram.tables.adaptive import Adaptive, AdaptiveRule, AdaptiveScratch, adaptive_rule, adaptive_scratch
from lessram.tables.adaptive_store import flattened, outgrown, put_book, recoded
from lessram.tables.blocks import FIRST_SLOT
from lessram.tables.graded import Graded, GradedRule, graded_rule
from lessram.tables.halfword import HalfwordRule, HalfwordScratch, halfword_rule, halfword_scratch
from lessram.tables.layout import SQUARES, Table, copied, slots_of, tensors_of
from lessram.tables.proximal import ProximalRule
from lessram.tables.squares import SquaresRule, SquaresScratch, squares_rule, squares_scratch
from lessram.tables.table import Rule, Scratch, scratch

LOOK_EVERY = 1 << 12
"""How many examples go by between two looks at an adaptive table: its size, its codebook."""
OPENING = LOOK_EVERY
"""How many examples an automatic codebook is designed from."""
_FIRST_SCRATCH = 1024

AnyRule = Rule | SquaresRule | ProximalRule | HalfwordRule | AdaptiveRule | GradedRule


def rule_of(spec: Spec) -> Rule | SquaresRule | ProximalRule | HalfwordRule:
    """How the coefficients of such a model move."""
    if spec.rates == "squares6":
        return halfword_rule(spec.alpha, spec.beta, Minifloat.parse(spec.weights), spec.radius)
    if spec.rates in SQUARES:
        rule = squares_rule(spec.base, spec.alpha, spec.beta, _limit(spec), spec.step)
        return rule if spec.shrinkage is None else ProximalRule(*rule, spec.shrinkage)
    floor = spec.step if spec.rate_floor else 0.0
    counter = spec.counter
    return Rule(
        rates=rates_by_level(spec.alpha, counter.estimates, floor),
        thresholds=counter.thresholds,
        alpha=np.float32(spec.alpha),
        offset=np.float32(spec.offset),
        floor=np.float32(floor),
        limit=_limit(spec),
        step=spec.step,
    )


def rule_for(spec: Spec, table: Table) -> AnyRule:
    """How the coefficients of this very table move: an adaptive one may have become flat."""
    if isinstance(table, Adaptive):
        book = table.cells[:FIRST_SLOT]
        return adaptive_rule(book, spec.counter, spec.alpha, np.int32(_limit(spec)), spec.step)
    if isinstance(table, Graded):
        assert isinstance(spec.gamma, float | int)
        return graded_rule(spec.counter, spec.alpha, spec.gamma, spec.step)
    return rule_of(spec)


def is_mapped(table: Table) -> bool:
    """Whether a table lies in a file that is mapped read-only: kernels must not write there."""
    return not all(tensor.flags.writeable for tensor in tensors_of(table).values())


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
    """Learns a model from batches, in order. A model that is mapped from a file is copied before the first of them.

    >>> learner = Learner(Spec(slots=8, seed=1))
    >>> batch = Batch(np.float32([1, 0] * 50), np.arange(101), np.uint32([3, 5] * 50))
    >>> margins = learner.learn(batch)      # what was predicted before each label was seen
    >>> float(margins[0]), bool(margins[-2] > 0 > margins[-1])
    (0.0, True)
    """

    def __init__(self, model: Model | Spec) -> None:
        if not isinstance(model, (Model, Spec)):
            raise refused("what a Learner learns", model, "a Model or a Spec")
        self.model = Model.new(model) if isinstance(model, Spec) else model
        self.notes: list[str] = []
        """What a user should know about how learning went."""
        self._objective = objective_of(self.model.spec)
        self._mapped = is_mapped(self.model.table)
        if isinstance(self.model.table, Adaptive) and self.model.examples == 0 and not self._mapped:
            book = self.model.spec.book  # alpha may have been chosen since the table was made
            assert book is not None
            put_book(self.model.table, book)
        self._take_table(self.model.table)

    def learn(self, batch: Batch, *, trusted: bool = False) -> NDArray[np.float64]:
        """Predict each row, then learn from it; returns the margins (log-odds) that were predicted.

        `trusted` batches come from a reader of this package, which has looked at every label, weight and value: only
        what could break memory is checked again.
        """
        batch, longest = self._ready(batch, trusted)
        if self._mapped:
            self._mapped = False
            self._take_table(copied(self.model.table))
        self._fit_scratch(longest)
        margins = np.empty(batch.rows)
        if isinstance(self.model.table, Adaptive):
            self._learn_adaptive(batch, margins, longest)
        else:
            self._learn(batch, margins)
        return margins

    def predict(self, rows: Batch | Any, *, trusted: bool = False) -> NDArray[np.float64]:
        """The margin of each row. Changes nothing and needs no lock.

        `rows`: a batch, or whatever can be read as the model was trained to read its data: a path or several, a data
        frame or another table in memory, a matrix, a list of dicts.
        """
        if not isinstance(rows, Batch):
            found = batches_to_predict(rows, self.model.reader, self.model.spec.slots)
            return margins_of(partial(self.predict, trusted=True), found)
        batch, _ = self._ready(rows, trusted)
        margins = np.empty(batch.rows)
        predict_rows(self.model.table, self._rule, batch, self.model.scalars, margins)
        return margins

    def probabilities(self, rows: Batch | Any, *, trusted: bool = False) -> NDArray[np.float64]:
        """The probability of label 1 of each row; for models of log-loss only."""
        check_gives_probabilities(self.model.spec.loss)
        return probabilities(self.predict(rows, trusted=trusted))

    def _learn(self, batch: Batch, margins: NDArray[np.float64]) -> None:
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

    def _learn_adaptive(self, batch: Batch, margins: NDArray[np.float64], longest: int) -> None:
        """Learn, and look at an adaptive table at moments that do not depend on how the stream is cut into batches."""
        done = 0
        while done < batch.rows:
            stop = min(batch.rows, done + LOOK_EVERY - self.model.examples % LOOK_EVERY)
            piece = batch.slice(done, stop)
            self._learn(piece, margins[done:stop])
            if self.model.spec.codebook == "auto" and self.model.examples <= OPENING:
                self._design(piece)
            if self.model.examples % LOOK_EVERY == 0:
                self._fit_form()
            self._fit_scratch(longest)
            done = stop

    def _design(self, piece: Batch) -> None:
        """Remember the first examples; when they are complete, design the codebook from them."""
        from lessram.learning.opening import designed_book, remembered  # which learns the examples itself

        model, table = self.model, self.model.table
        model.opening = remembered(model.opening, piece)
        if model.examples == OPENING and isinstance(table, Adaptive):
            recoded(table, model.spec.scaled_book(designed_book(model.opening, model.spec)), self._objective.seed)
            model.opening = {}
            self._take_table(table)

    def _fit_form(self) -> None:
        """Dense data make an adaptive table larger than a flat one: then it becomes flat."""
        table = self.model.table
        if isinstance(table, Adaptive) and outgrown(table):
            self._take_table(flattened(table))
            self.notes.append(
                f"dense data: after {self.model.examples:,} examples the adaptive table had outgrown a flat one "
                f"and became flat, {self.model.bits_per_slot:g} bits a slot"
            )

    def _take_table(self, table: Table) -> None:
        if slots_of(table) < self.model.spec.slots:
            raise SpecError(
                f"the model's table has {slots_of(table)} slots, its spec says {self.model.spec.slots}: "
                "Model.new(spec) makes a table that fits"
            )
        self.model.table = table
        self._rule = rule_for(self.model.spec, table)
        self._scratch = self._new_scratch(_FIRST_SCRATCH)

    def _ready(self, batch: Batch, trusted: bool) -> Sound:
        """The batch as kernels take it, checked as far as nobody has done that before."""
        model = self.model
        batch, longest = sound(batch, min(model.spec.slots, slots_of(model.table)))
        if not trusted:
            batch = with_checked_numbers(batch, real_labels=model.spec.loss == "squared")
        if isinstance(model.table, Adaptive):  # which looks ahead through the slots, also behind the last row
            batch = batch.cut_short()
        return Sound(batch, longest)

    def _new_scratch(self, longest: int) -> Scratch | SquaresScratch | HalfwordScratch | AdaptiveScratch:
        if isinstance(self.model.table, Adaptive):
            return adaptive_scratch(longest)
        if self.model.spec.rates == "squares6":
            return halfword_scratch(longest)
        cell = self.model.table.cells.dtype
        if self.model.spec.rates in SQUARES:
            return squares_scratch(longest, cell, pulled=bool(self.model.spec.algorithm))
        return scratch(longest, cell)

    def _fit_scratch(self, longest: int) -> None:
        if longest > len(self._scratch.noted):
            self._scratch = self._new_scratch(2 * longest)
