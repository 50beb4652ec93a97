"""Kernels under squared-gradient rates equal tests/reference_squares.py: cells, margins and scalars, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from comparing import check_prediction_is_pure, state_of
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import Row
from reference_squares import SquaresLearner
from streams import ABSURD, LENGTHS, cut, make_crowded_rows, make_rows, to_batch

from lessram.data.batch import Batch
from lessram.learning.learner import Learner
from lessram.model.model import Model
from lessram.model.spec import Spec

SLOTS = 96
BINARY = make_rows(SLOTS, LENGTHS * 3)
VALUED = make_rows(SLOTS, LENGTHS * 3, valued=True)
STORAGES = [
    ("q2.13", "squares8"),
    ("q3.12", "squares8"),
    ("q2.5", "squares8"),
    ("float32", "squares8"),
    ("float32", "squares32"),
]
CELLS = [storage for storage in STORAGES if storage[0] != "q3.12"]
"""One storage for each type of cell: what differs in machine code."""
LEVELLED = [storage for storage in CELLS if storage[1] == "squares8"]


def ids(storage: tuple[str, str]) -> str:
    return "-".join(storage)


every_storage = pytest.mark.parametrize("storage", STORAGES, ids=ids)
every_cell = pytest.mark.parametrize("storage", CELLS, ids=ids)
levels_only = pytest.mark.parametrize("storage", LEVELLED, ids=ids)
both_steps = pytest.mark.parametrize("step_rule", ["plain", "invariant"])


def pair(weights: str, rates: str, **choices: Any) -> tuple[Learner, SquaresLearner]:
    """A learner and the reference, both fresh, with the same choices."""
    common = {"slots": SLOTS, "weights": weights, "rates": rates, "seed": 5, "alpha": 0.3, **choices}
    return Learner(Spec(**common)), SquaresLearner(**common)


def set_state(learner: Learner, reference: SquaresLearner, slot: int, weight: float, state: float) -> None:
    """Put a coefficient and its level (or sum) into both."""
    cells = learner.model.table.cells
    cells["weight"][slot] = reference.coefficient[slot] = weight if reference.fixed else np.float32(weight)
    if reference.exact:
        cells["sum"][slot] = reference.state[slot] = np.float32(state)
    else:
        cells["level"][slot] = reference.state[slot] = int(state)


def assert_same_state(learner: Learner, reference: SquaresLearner) -> None:
    cells = learner.model.table.cells
    for name, expected in [("weight", reference.coefficient), ("sum" if reference.exact else "level", reference.state)]:
        wanted = np.array(expected, cells.dtype[name])
        np.testing.assert_array_equal(cells[name], wanted)
        assert cells[name].tobytes() == wanted.tobytes()
    scalars = [reference.intercept, reference.intercept_sum, reference.squares, reference.nonzeros]
    assert learner.model.scalars.tolist() == scalars
    assert learner.model.examples == reference.examples


def learn_both(learner: Learner, reference: SquaresLearner, rows: list[Row], batch: Batch) -> None:
    margins = learner.learn(batch, trusted=True)
    assert margins.tolist() == [reference.learn(row) for row in rows]
    assert_same_state(learner, reference)


@every_storage
@both_steps
def test_binary_rows(storage, step_rule):
    learner, reference = pair(*storage, step_rule=step_rule)
    learn_both(learner, reference, BINARY, to_batch(BINARY, valued=False))


@every_storage
@both_steps
def test_valued_and_weighted_rows(storage, step_rule):
    assert 0.0 in {row.weight for row in VALUED}
    learner, reference = pair(*storage, step_rule=step_rule)
    learn_both(learner, reference, VALUED, to_batch(VALUED))


@pytest.mark.parametrize("loss", ["squared", "hinge"])
@both_steps
@every_cell
def test_other_losses(storage, step_rule, loss):
    learner, reference = pair(*storage, loss=loss, step_rule=step_rule, alpha=0.05)
    learn_both(learner, reference, VALUED, to_batch(VALUED))


def test_rows_without_gradient_are_not_counted():
    learner, reference = pair("float32", "squares32", loss="hinge", intercept=False)
    rows = [Row(1.0, [(3, 1.0)], 0.5)] * 100
    learn_both(learner, reference, rows, to_batch(rows))
    assert 0 < learner.model.table.cells["sum"][3] < 20, "the margin passes 1 early, and learning stops"


@pytest.mark.parametrize("storage", [("q2.13", "squares8"), ("float32", "squares32")], ids=ids)
@pytest.mark.parametrize("base", [1.02, 2.0])
def test_without_intercept_and_scale(storage, base):
    learner, reference = pair(*storage, intercept=False, scale="none", alpha=0.05, beta=1.0, base=base)
    learn_both(learner, reference, VALUED, to_batch(VALUED))
    assert learner.model.scalars.tolist() == [0.0] * 4


@every_cell
@pytest.mark.parametrize("radius", [0.4, None])
def test_weights_saturate(storage, radius):
    if storage[0] == "float32" and radius is None:
        return  # has no end to reach
    # The plain step: the invariant one stops before it gets there.
    learner, reference = pair(*storage, radius=radius, alpha=60.0, step_rule="plain")
    learn_both(learner, reference, VALUED, to_batch(VALUED))
    weights = learner.model.table.cells["weight"]
    assert {reference.limit, -reference.limit} <= set(weights.tolist() if reference.fixed else list(weights))


@levels_only
def test_levels_saturate(storage):
    learner, reference = pair(*storage, step_rule="plain")
    for slot in range(SLOTS):
        set_state(learner, reference, slot, slot % 5, 255 - slot % 4)
    rows = [row._replace(weight=1e9) for row in VALUED]
    learn_both(learner, reference, rows, to_batch(rows))
    assert set(learner.model.table.cells["level"][:8].tolist()) == {255}


@levels_only
def test_large_jumps_and_small_addends(storage):
    # From fresh levels to the last in one row, and onto high levels with next to nothing.
    learner, reference = pair(*storage)
    for slot in range(0, SLOTS, 2):
        set_state(learner, reference, slot, 0.0, 3 * slot % 200)
    weights = [float(np.float32(10.0 ** (3 * (number % 9) - 12))) for number in range(len(VALUED))]
    rows = [row._replace(weight=weight) for row, weight in zip(VALUED, weights, strict=True)]
    learn_both(learner, reference, rows, to_batch(rows))
    assert len(set(learner.model.table.cells["level"].tolist())) > 10, "levels of many heights"


@every_cell
@both_steps
@pytest.mark.parametrize("valued", [False, True], ids=["binary", "valued"])
def test_a_slot_many_times_in_one_row(storage, step_rule, valued):
    rows = make_crowded_rows(valued=valued)
    learner, reference = pair(*storage, step_rule=step_rule, alpha=0.1)
    learn_both(learner, reference, rows, to_batch(rows, valued=valued))


def test_duplicates_lose_no_squared_gradient():
    # One slot 100 times in each row, against its squares added up by hand.
    learner, _ = pair("float32", "squares32", intercept=False)
    row = Row(1.0, [(7, 1.0)] * 100)
    margins = learner.learn(to_batch([row] * 3, valued=False), trusted=True)
    expected = sum(100 * (1 / (1 + np.exp(margin))) ** 2 for margin in margins)
    assert learner.model.table.cells["sum"][7] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("storage", [("q2.13", "squares8"), ("float32", "squares8"), ("float32", "squares32")], ids=ids)
def test_rates_of_all_occurrences_come_from_the_sum_before_the_row(storage):
    # Were the second occurrence's rate to follow the first one's square, its step would be a fifth shorter.
    moved = []
    for times in (1, 2):
        learner, _ = pair(*storage, step_rule="plain", intercept=False)
        learner.learn(to_batch([Row(1.0, [(4, 1.0)] * times)], valued=False), trusted=True)
        moved.append(float(learner.model.table.cells["weight"][4]))
    assert moved[1] == pytest.approx(2 * moved[0], rel=0, abs=1 if storage[0] == "q2.13" else 0)
    assert moved[0] > 0.1


@every_cell
def test_far_along_the_stream(storage):
    learner, reference = pair(*storage)
    learner.model.examples = reference.examples = 2**33 + 12345
    learn_both(learner, reference, BINARY, to_batch(BINARY, valued=False))


def test_seeds_differ():
    states = set()
    for seed in (0, 1, -(2**63), 2**64 - 1):
        learner, reference = pair("q2.13", "squares8", seed=seed)
        learn_both(learner, reference, BINARY, to_batch(BINARY, valued=False))
        states.add(state_of(learner.model))
    assert len(states) == 4


@every_cell
def test_no_values_equal_values_of_one(storage):
    implied, explicit = pair(*storage)[0], pair(*storage)[0]
    rows = to_batch(BINARY, valued=False, weighted=False), to_batch(BINARY, valued=True, weighted=True)
    assert implied.learn(rows[0]).tolist() == explicit.learn(rows[1]).tolist()
    assert implied.predict(rows[0]).tolist() == explicit.predict(rows[1]).tolist()
    assert state_of(implied.model) == state_of(explicit.model)


@every_cell
@pytest.mark.parametrize("valued", [False, True], ids=["binary", "valued"])
@settings(max_examples=10)
@given(places=st.lists(st.integers(0, len(VALUED)), max_size=8))
def test_any_split_into_batches_gives_the_same_bytes(storage, valued, places):
    batch = to_batch(VALUED if valued else BINARY, valued=valued)
    whole, parts = pair(*storage)[0], pair(*storage)[0]
    margins = whole.learn(batch, trusted=True)
    pieces = [parts.learn(piece, trusted=True) for piece in cut(batch, places)]
    assert np.concatenate(pieces).tolist() == margins.tolist()
    assert state_of(parts.model) == state_of(whole.model)


@pytest.mark.parametrize("storage", [*CELLS, ("e3m6", "squares6")], ids=ids)
def test_the_largest_rates_leave_no_trace_behind_their_row(storage):
    """What the row before has left in the scratch is never infinite times nothing."""
    rows = VALUED[:40]
    spec = Spec(slots=SLOTS, weights=storage[0], rates=storage[1], alpha=1e6, beta=1e-30)
    whole, split = Learner(spec), Learner(spec)
    margins = whole.learn(to_batch(rows)).tolist()
    assert np.isfinite(margins).all()
    for r, row in enumerate(rows):
        split = Learner(split.model)  # with fresh scratch
        assert split.learn(to_batch([row])).tolist() == margins[r : r + 1]
    assert state_of(split.model) == state_of(whole.model)


@every_cell
def test_saved_and_loaded_in_the_middle(storage, tmp_path):
    batch = to_batch(VALUED)
    whole, first = pair(*storage)[0], pair(*storage)[0]
    margins = whole.learn(batch, trusted=True)
    before = first.learn(batch.slice(0, 20), trusted=True)
    first.model.save(tmp_path / "half")
    second = Learner(Model.load(tmp_path / "half", writable=True))
    after = second.learn(batch.slice(20, batch.rows), trusted=True)
    assert [*before, *after] == margins.tolist()
    assert state_of(second.model) == state_of(whole.model)
    second.model.save(tmp_path / "resumed")
    whole.model.save(tmp_path / "whole")
    assert (tmp_path / "resumed").read_bytes() == (tmp_path / "whole").read_bytes()


@every_cell
@pytest.mark.parametrize("valued", [False, True], ids=["binary", "valued"])
def test_predict_is_pure_and_is_what_learning_predicts_first(storage, valued):
    learner, reference = pair(*storage, scale="none")
    check_prediction_is_pure(learner, reference, VALUED if valued else BINARY, valued=valued)


@every_cell
@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize("scale", ["none", "rms"])
def test_absurd_values_and_weights_saturate(storage, loss, scale):
    rows = ABSURD * 3
    learner, reference = pair(*storage, loss=loss, scale=scale, alpha=1000.0, intercept=False)
    learn_both(learner, reference, rows, to_batch(rows))
    assert np.isfinite(learner.model.table.cells["weight"].astype(float)).all()


def test_the_invariant_step_never_overshoots_where_the_plain_one_does():
    # One coordinate, absurd importance, squared loss: the margin must not pass the label.
    rows = [Row(1.0, [(0, 1.0)], 1e6)]
    ends = {}
    for rule in ("plain", "invariant"):
        learner, _ = pair("float32", "squares32", loss="squared", step_rule=rule, alpha=1e5, intercept=False)
        learner.learn(to_batch(rows), trusted=True)
        ends[rule] = learner.model.coefficients()[0]
    assert ends["plain"] > 100
    assert ends["invariant"] == pytest.approx(1.0, rel=1e-6)
