"""Kernels equal tests/reference.py: cells, margins and scalars, bit for bit, on every table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from comparing import check_prediction_is_pure, state_of
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import OgdRand, Row
from streams import ABSURD, CELLS, FIXED, LENGTHS, STORAGES, cut, make_crowded_rows, make_rows, to_batch

from lessram.data.batch import Batch
from lessram.learning.learner import Learner
from lessram.model.spec import Spec

SLOTS = 96
BINARY = make_rows(SLOTS, LENGTHS * 3)
VALUED = make_rows(SLOTS, LENGTHS * 3, valued=True)


def ids(storage: tuple[str, str]) -> str:
    return "-".join(storage)


def pair(weights: str, rates: str, **choices: Any) -> tuple[Learner, OgdRand]:
    """A learner and the reference, both fresh, with the same choices."""
    common = {"slots": SLOTS, "weights": weights, "rates": rates, "seed": 5, "alpha": 0.3, **choices}
    return Learner(Spec(**common)), OgdRand(**common)


def set_state(learner: Learner, reference: OgdRand, slot: int, weight: float, state: int) -> None:
    """Put a coefficient and its count (or the paper's C) into both."""
    cells = learner.model.table.cells
    cells["weight"][slot] = reference.beta[slot] = weight if reference.fixed else np.float32(weight)
    reference.state[slot] = state
    if "count" in cells.dtype.names:
        cells["count"][slot] = state
    if "level" in cells.dtype.names:
        cells["level"][slot] = state - 1


def assert_same_state(learner: Learner, reference: OgdRand) -> None:
    cells = learner.model.table.cells
    expected = np.array(reference.beta, cells.dtype["weight"])
    np.testing.assert_array_equal(cells["weight"], expected)
    assert cells["weight"].tobytes() == expected.tobytes()
    if "count" in cells.dtype.names:
        assert cells["count"].tolist() == reference.state
    if "level" in cells.dtype.names:
        assert [level + 1 for level in cells["level"].tolist()] == reference.state
    scalars = [reference.intercept, reference.intercept_rounds, reference.squares, reference.nonzeros]
    assert learner.model.scalars.tolist() == scalars
    assert learner.model.examples == reference.examples


def learn_both(learner: Learner, reference: OgdRand, rows: list[Row], batch: Batch) -> None:
    margins = learner.learn(batch, trusted=True)
    assert margins.tolist() == [reference.learn(row) for row in rows]
    assert_same_state(learner, reference)


@pytest.mark.parametrize("storage", STORAGES, ids=ids)
def test_binary_rows(storage):
    learner, reference = pair(*storage)
    learn_both(learner, reference, BINARY, to_batch(BINARY, valued=False))


@pytest.mark.parametrize("storage", STORAGES, ids=ids)
def test_valued_and_weighted_rows(storage):
    learner, reference = pair(*storage)
    learn_both(learner, reference, VALUED, to_batch(VALUED))


@pytest.mark.parametrize("loss", ["squared", "hinge"])
@pytest.mark.parametrize("storage", CELLS, ids=ids)
def test_other_losses(storage, loss):
    learner, reference = pair(*storage, loss=loss, alpha=0.03)
    learn_both(learner, reference, VALUED, to_batch(VALUED))


def test_rows_without_gradient_are_not_counted():
    learner, reference = pair("float32", "exact32", loss="hinge", intercept=False)
    rows = [Row(1.0, [(3, 1.0)])] * 400
    learn_both(learner, reference, rows, to_batch(rows))
    assert 0 < learner.model.table.cells["count"][3] < 100, "the margin passes 1 early, and learning stops"


@pytest.mark.parametrize("storage", FIXED, ids=ids)
def test_rate_floor(storage):
    # A small alpha, so that the floor at the grid's step is soon reached.
    learner, reference = pair(*storage, rate_floor=True, alpha=reference_step(storage) * 3)
    learn_both(learner, reference, VALUED, to_batch(VALUED))
    unfloored, _ = pair(*storage, alpha=reference_step(storage) * 3)
    unfloored.learn(to_batch(VALUED), trusted=True)
    assert state_of(unfloored.model) != state_of(learner.model)


def reference_step(storage: tuple[str, str]) -> float:
    return 2.0 ** -int(storage[0].split(".")[1])


def test_offset_zero_is_algorithm_2_as_printed():
    learner, reference = pair("float32", "exact32", offset=0)
    learn_both(learner, reference, VALUED, to_batch(VALUED))


@pytest.mark.parametrize("storage", [("float32", "global"), ("float32", "morris8"), ("q2.13", "morris8")], ids=ids)
def test_without_intercept_and_scale(storage):
    learner, reference = pair(*storage, intercept=False, scale="none", alpha=0.05, base=2.0)
    learn_both(learner, reference, VALUED, to_batch(VALUED))
    assert learner.model.scalars.tolist() == [0.0] * 4


BOUNDED = [(cell, 0.4) for cell in CELLS] + [(cell, None) for cell in FIXED]


@pytest.mark.parametrize(("storage", "radius"), BOUNDED, ids=str)
def test_saturation(storage, radius):
    learner, reference = pair(*storage, radius=radius, alpha=40.0)
    learn_both(learner, reference, VALUED, to_batch(VALUED))
    weights = learner.model.table.cells["weight"]
    assert {reference.limit, -reference.limit} <= set(weights.tolist() if reference.fixed else list(weights))
    assert np.abs(weights.astype(float)).max() <= reference.limit


@pytest.mark.parametrize(("storage", "radius"), BOUNDED, ids=str)
def test_a_slot_that_leaves_and_comes_back_within_a_row(storage, radius):
    """Sums that wrap on the way must come out as if each had been projected at once."""
    rows = make_crowded_rows(valued=True)
    learner, reference = pair(*storage, radius=radius, alpha=40.0)
    learn_both(learner, reference, rows, to_batch(rows))
    weights = learner.model.table.cells["weight"][:8].tolist()
    assert any(abs(weight) == reference.limit for weight in weights)


@pytest.mark.parametrize("storage", CELLS, ids=ids)
def test_full_and_nearly_full_counters(storage):
    learner, reference = pair(*storage, base=1.02)
    if storage[1] != "global":
        last = {"morris8": 256, "exact32": 2**32 - 1}[storage[1]]
        for slot in range(SLOTS):
            set_state(learner, reference, slot, 0.0, last - slot % 4)
    learn_both(learner, reference, BINARY, to_batch(BINARY, valued=False))
    if storage[1] != "global":
        assert reference.state[0] == last, "a full counter stays full"
        assert any(a != last - slot % 4 for slot, a in enumerate(reference.state)), "the others still step"


@pytest.mark.parametrize("storage", STORAGES, ids=ids)
def test_a_slot_many_times_in_a_row(storage):
    learner, reference = pair(*storage, alpha=2.0)
    rows = [Row(1.0, [(7, 1.0)] * 40 + [(8, 1.0), (7, 1.0)]), Row(0.0, [(7, 1.0)] * 2), Row(1.0, [(8, 1.0), (8, 1.0)])]
    learn_both(learner, reference, rows * 3, to_batch(rows * 3, valued=False))


def test_rows_longer_than_the_scratch():
    rows = make_rows(SLOTS, (5, 1023, 1024, 1025, 3000, 1))
    learner, reference = pair("q2.13", "morris8")
    learn_both(learner, reference, rows, to_batch(rows, valued=False))


@pytest.mark.parametrize("storage", [("q2.13", "morris8"), ("float32", "global")], ids=ids)
def test_examples_beyond_32_bits(storage):
    learner, reference = pair(*storage, alpha=3.0)
    learner.model.examples = reference.examples = 2**33 + 12345
    learn_both(learner, reference, BINARY, to_batch(BINARY, valued=False))


@pytest.mark.parametrize("seed", [0, 1, -(2**63), 2**64 - 1])
def test_seeds_of_all_sizes(seed):
    learner, reference = pair("q2.5", "morris8", seed=seed)
    learn_both(learner, reference, BINARY, to_batch(BINARY, valued=False))


@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize("storage", CELLS, ids=ids)
def test_absurd_values_and_weights_saturate(storage, loss):
    rows = ABSURD
    learner, reference = pair(*storage, loss=loss, scale="none", alpha=1000.0, intercept=False)
    learn_both(learner, reference, rows * 3, to_batch(rows * 3))
    assert np.isfinite(learner.model.table.cells["weight"].astype(float)).all()


@pytest.mark.parametrize("storage", [("float32", "exact32"), ("q2.13", "morris8")], ids=ids)
def test_64_bit_slots_give_the_same_bytes(storage):
    narrow, wide = pair(*storage)[0], pair(*storage)[0]
    rows = to_batch(VALUED), to_batch(VALUED, slot_type=np.uint64)
    assert narrow.learn(rows[0]).tolist() == wide.learn(rows[1]).tolist()
    assert narrow.predict(rows[0]).tolist() == wide.predict(rows[1]).tolist()
    assert state_of(narrow.model) == state_of(wide.model)


@pytest.mark.parametrize("storage", CELLS, ids=ids)
def test_no_values_equal_values_of_one(storage):
    implied, explicit = pair(*storage)[0], pair(*storage)[0]
    rows = to_batch(BINARY, valued=False), to_batch(BINARY, valued=True)
    assert implied.learn(rows[0]).tolist() == explicit.learn(rows[1]).tolist()
    assert implied.predict(rows[0]).tolist() == explicit.predict(rows[1]).tolist()
    assert state_of(implied.model) == state_of(explicit.model)


@pytest.mark.parametrize("storage", CELLS, ids=ids)
@pytest.mark.parametrize("valued", [False, True], ids=["binary", "valued"])
@settings(max_examples=15)
@given(places=st.lists(st.integers(0, len(VALUED)), max_size=8))
def test_any_split_into_batches_gives_the_same_bytes(storage, valued, places):
    batch = to_batch(VALUED if valued else BINARY, valued=valued)
    whole, parts = pair(*storage)[0], pair(*storage)[0]
    margins = whole.learn(batch, trusted=True)
    pieces = [parts.learn(piece, trusted=True) for piece in cut(batch, places)]
    assert np.concatenate(pieces).tolist() == margins.tolist()
    assert state_of(parts.model) == state_of(whole.model)


@pytest.mark.parametrize("storage", CELLS, ids=ids)
@pytest.mark.parametrize("valued", [False, True], ids=["binary", "valued"])
def test_predict_is_pure_and_is_what_learning_predicts_first(storage, valued):
    learner, reference = pair(*storage, scale="none")
    check_prediction_is_pure(learner, reference, VALUED if valued else BINARY, valued=valued)


@pytest.mark.parametrize("storage", CELLS, ids=ids)
def test_the_scale_is_frozen_in_prediction(storage):
    learner, reference = pair(*storage)
    learn_both(learner, reference, VALUED, to_batch(VALUED))
    before = state_of(learner.model)
    others = make_rows(SLOTS, LENGTHS, valued=True, seed=7)
    assert learner.predict(to_batch(others), trusted=True).tolist() == [reference.play(row) for row in others]
    assert state_of(learner.model) == before
