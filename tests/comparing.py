"""What tests of every table ask of a learner and of the plain reference beside it."""

from __future__ import annotations

from typing import Any

from reference import Row
from streams import to_batch

from lessram.learning.learner import Learner
from lessram.model.model import Model


def state_of(model: Model) -> bytes:
    """All that learning changes."""
    return model.table.cells.tobytes() + model.scalars.tobytes() + str(model.examples).encode()


def check_prediction_is_pure(learner: Learner, reference: Any, rows: list[Row], *, valued: bool) -> None:
    """Predicting a row changes nothing, and gives what learning it predicts first, as the reference does.

    For learners without the running scale, which takes a row's values in before the row is predicted.
    """
    batch = to_batch(rows, valued=valued)
    for r, row in enumerate(rows):
        before = state_of(learner.model)
        predicted = learner.predict(batch.slice(r, r + 1), trusted=True)
        assert state_of(learner.model) == before
        assert predicted.tolist() == [reference.play(row)]
        assert learner.learn(batch.slice(r, r + 1), trusted=True).tolist() == predicted.tolist()
        reference.learn(row)
