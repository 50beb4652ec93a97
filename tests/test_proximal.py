"""FTRL-Proximal and RDA: kernels equal tests/reference_proximal.py bit for bit, which equals the printed algorithms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from comparing import state_of
from reference import Row
from reference_proximal import Printed, ProximalLearner
from streams import ABSURD, LENGTHS, make_rows, to_batch
from test_squares import assert_same_state, learn_both, set_state

from lessram.errors import SpecError
from lessram.learning.learner import Learner
from lessram.model.ledger import account
from lessram.model.model import Model
from lessram.model.spec import Spec

SLOTS = 96
BINARY = make_rows(SLOTS, LENGTHS * 3)
VALUED = make_rows(SLOTS, LENGTHS * 3, valued=True)
CELLS = [("q2.13", "squares8"), ("q2.5", "squares8"), ("float32", "squares8"), ("float32", "squares32")]
every_cell = pytest.mark.parametrize("storage", CELLS, ids="-".join)
both_kinds = pytest.mark.parametrize("storage", [CELLS[0], CELLS[-1]], ids="-".join)
both_algorithms = pytest.mark.parametrize("algorithm", ["ftrl", "rda"])


def pair(weights: str, rates: str, **choices: Any) -> tuple[Learner, ProximalLearner]:
    """A learner and the reference, both fresh, with the same choices; penalties that matter, unless told."""
    common = {"slots": SLOTS, "weights": weights, "rates": rates, "seed": 5, "alpha": 0.3, "l1": 0.4, "l2": 0.7}
    common |= {"algorithm": "ftrl", **choices}
    return Learner(Spec(**common)), ProximalLearner(**common)


def units(model: Model) -> list[float]:
    return (model.weights() / model.spec.step).tolist()


def assert_same_weights(learner: Learner, reference: ProximalLearner) -> None:
    weights = units(learner.model)
    assert weights == [float(reference.weight(slot)) for slot in range(SLOTS)]
    assert 0 < weights.count(0.0) < SLOTS, "some are shrunk to nothing, some are not"


# Kernels and the reference --------------------------------------------------------------------------------------------


@both_kinds
@both_algorithms
def test_binary_rows(storage, algorithm):
    learner, reference = pair(*storage, algorithm=algorithm, l1=0.8)
    learn_both(learner, reference, BINARY, to_batch(BINARY, valued=False))
    assert_same_weights(learner, reference)


@every_cell
@both_algorithms
def test_valued_and_weighted_rows(storage, algorithm):
    learner, reference = pair(*storage, algorithm=algorithm)
    learn_both(learner, reference, VALUED, to_batch(VALUED))
    assert_same_weights(learner, reference)


@both_kinds
@pytest.mark.parametrize("loss", ["squared", "hinge"])
@pytest.mark.parametrize("step_rule", ["plain", "invariant"])
def test_other_losses_and_steps(storage, loss, step_rule):
    learner, reference = pair(*storage, loss=loss, step_rule=step_rule, alpha=0.05)
    learn_both(learner, reference, VALUED, to_batch(VALUED))


@both_kinds
def test_a_slot_many_times_in_one_row(storage):
    rng = np.random.default_rng(11)
    rows = []
    for length in (2, 16, 17, 40, 120, 300) * 4:
        values = rng.choice([-3.0, -0.5, 0.25, 2.0], length)
        rows.append(Row(float(rng.random() < 0.5), list(zip(rng.integers(0, 8, length), values, strict=True))))
    learner, reference = pair(*storage, l1=0.05)
    learn_both(learner, reference, rows, to_batch(rows))


@both_kinds
@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_absurd_values_and_weights_saturate(storage, loss):
    rows = ABSURD * 3
    learner, reference = pair(*storage, loss=loss, scale="none", alpha=1000.0, intercept=False, l1=1e-3)
    learn_both(learner, reference, rows, to_batch(rows))
    assert np.isfinite(learner.model.weights()).all()


@both_kinds
def test_averages_saturate_at_the_ends_of_the_grid(storage):
    learner, reference = pair(*storage, radius=0.4, alpha=60.0, l1=1e-3)
    learn_both(learner, reference, VALUED, to_batch(VALUED))
    stored = set(learner.model.table.cells["weight"].tolist())
    assert {float(reference.limit), -float(reference.limit)} <= stored


def test_levels_at_the_top():
    learner, reference = pair(*CELLS[0])
    for slot in range(SLOTS):
        set_state(learner, reference, slot, 100 * (slot % 5), 255 - slot % 4)
    rows = [row._replace(weight=1e9) for row in VALUED]
    learn_both(learner, reference, rows, to_batch(rows))
    assert set(learner.model.table.cells["level"][:8].tolist()) == {255}


@both_kinds
@pytest.mark.parametrize("valued", [False, True], ids=["binary", "valued"])
def test_prediction_is_what_learning_predicts_first_and_what_the_weights_say(storage, valued):
    rows = VALUED if valued else BINARY
    batch = to_batch(rows, valued=valued)
    learner, reference = pair(*storage, scale="none")
    for r, row in enumerate(rows):
        before = state_of(learner.model)
        predicted = learner.predict(batch.slice(r, r + 1), trusted=True)
        assert state_of(learner.model) == before
        assert predicted.tolist() == [reference.play(row)]
        by_hand = sum(learner.model.coefficients()[slot] * x for slot, x in row.features) + learner.model.intercept
        assert predicted[0] == pytest.approx(by_hand, rel=1e-9, abs=1e-12)
        assert learner.learn(batch.slice(r, r + 1), trusted=True).tolist() == predicted.tolist()
        reference.learn(row)
    assert_same_state(learner, reference)


# The reference and the algorithms -------------------------------------------------------------------------------------


@both_algorithms
@pytest.mark.parametrize(("l1", "l2"), [(0.0, 0.0), (0.3, 0.0), (0.0, 2.0), (0.3, 2.0)])
def test_stored_averages_are_the_algorithm_as_printed(algorithm, l1, l2):
    # Slots once a row, since a row's rates come from the sums before it; the float control, since it does not round.
    rng = np.random.default_rng(3)
    rows = [
        Row(float(rng.random() < 0.4), list(zip(rng.permutation(40)[:9].tolist(), rng.normal(0, 1, 9), strict=True)))
        for _ in range(400)
    ]
    rows = [row._replace(features=[(s, float(np.float32(x))) for s, x in row.features]) for row in rows]
    choices = {"slots": 40, "alpha": 0.5, "beta": 1.0, "l1": l1, "l2": l2}
    printed = Printed(algorithm, **choices)
    spec = {"weights": "float32", "rates": "squares32", "scale": "none", "intercept": False, "step_rule": "plain"}
    learner = Learner(Spec(algorithm=algorithm, **spec, **choices))
    margins = learner.learn(to_batch(rows), trusted=True)
    assert margins == pytest.approx([printed.learn(row) for row in rows], rel=1e-4, abs=1e-5)
    weights = np.array([printed.weight(i) for i in range(40)])
    assert learner.model.weights() == pytest.approx(weights, rel=1e-4, abs=1e-5)
    assert (learner.model.weights() == 0).tolist() == (weights == 0).tolist()
    assert bool((weights == 0).any()) == (l1 > 0)


@both_kinds
def test_without_penalties_it_is_the_step_of_squared_gradients(storage):
    learner = Learner(Spec(slots=SLOTS, weights=storage[0], rates=storage[1], algorithm="ftrl", seed=5))
    plain = Learner(Spec(slots=SLOTS, weights=storage[0], rates=storage[1], seed=5))
    assert learner.model.spec.step_rule == "invariant"
    assert learner.learn(to_batch(VALUED)).tolist() == plain.learn(to_batch(VALUED)).tolist()
    assert state_of(learner.model) == state_of(plain.model)
    assert learner.model.weights().tolist() == plain.model.weights().tolist()


def test_heavier_penalties_leave_fewer_and_smaller_weights():
    nonzero, sizes = [], []
    for l1, l2 in ((0.0, 0.0), (0.5, 0.0), (2.0, 0.0), (2.0, 20.0), (1e6, 0.0)):
        learner = Learner(Spec(slots=SLOTS, rates="squares8", algorithm="ftrl", l1=l1, l2=l2))
        learner.learn(to_batch(BINARY, valued=False))
        weights = learner.model.weights()
        nonzero.append(int(np.count_nonzero(weights)))
        sizes.append(float(np.abs(weights).sum()))
    assert nonzero[0] > nonzero[1] > nonzero[2] > nonzero[4] == 0
    assert sizes[2] > sizes[3]


# Choices, files, accounts ---------------------------------------------------------------------------------------------


def test_accounts_tell_true_nonzeros():
    learner, reference = pair(*CELLS[0], l1=0.8)
    learn_both(learner, reference, BINARY, to_batch(BINARY, valued=False))
    ledger = account(learner.model)
    stored = int(np.count_nonzero(learner.model.table.cells["weight"]))
    assert ledger.nonzero == sum(reference.weight(slot) != 0 for slot in range(SLOTS)) < stored
    assert ledger.seen >= stored
    assert ledger.largest == np.abs(learner.model.weights()).max()


@both_kinds
def test_saved_and_loaded_in_the_middle(storage, tmp_path):
    batch = to_batch(VALUED)
    whole, first = pair(*storage)[0], pair(*storage)[0]
    whole.learn(batch, trusted=True)
    first.learn(batch.slice(0, 20), trusted=True)
    first.model.save(tmp_path / "half")
    second = Learner(Model.load(tmp_path / "half", writable=True))
    second.learn(batch.slice(20, batch.rows), trusted=True)
    second.model.save(tmp_path / "resumed")
    whole.model.save(tmp_path / "whole")
    assert (tmp_path / "resumed").read_bytes() == (tmp_path / "whole").read_bytes()
    assert Model.load(tmp_path / "whole").weights().tolist() == whole.model.weights().tolist()


def test_files_name_the_algorithm_only_where_there_is_one(tmp_path):
    for choices, expected in (({}, False), ({"algorithm": "ogd", "l1": 0}, False), ({"algorithm": "rda"}, True)):
        learner = Learner(Spec(slots=4, rates="squares8", **choices))
        learner.learn(to_batch(make_rows(4, (2,))))
        learner.model.save(tmp_path / "model")
        assert (b"algorithm" in (tmp_path / "model").read_bytes()) == expected
        assert (b"l1" in (tmp_path / "model").read_bytes()) == expected
        assert Model.load(tmp_path / "model").spec == learner.model.spec


def test_the_step_is_plain_under_l1_unless_told():
    chosen = {"slots": 4, "rates": "squares8", "algorithm": "ftrl"}
    assert Spec(**chosen, l2=1.0).step_rule == "invariant"
    assert Spec(**chosen, l1=0.1).step_rule == "plain"
    assert Spec(**chosen, l1=0.1, step_rule="invariant").step_rule == "invariant"


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"algorithm": "adam"}, r"algorithm must be one of ogd, ftrl, rda, got 'adam'"),
        ({"algorithm": "ftrl", "rates": "morris8"}, r"needs rates squares8 or squares32, got rates morris8"),
        ({"l1": 1.0}, r"l1 and l2 need algorithm ftrl or rda, got algorithm ogd"),
        ({"algorithm": "ogd", "l2": 1.0}, r"l1 and l2 need algorithm ftrl or rda"),
        ({"algorithm": "ftrl", "l1": -1.0}, r"l1 must be between 0 and 1e6, got -1.0"),
        ({"algorithm": "rda", "l2": float("nan")}, r"l2 must be between 0 and 1e6, got nan"),
    ],
)
def test_choices_that_cannot_be(choices, message):
    with pytest.raises(SpecError, match=message):
        Spec(**{"slots": 4, "rates": "squares8", **choices})
