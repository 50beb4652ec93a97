"""Whole models become one: what may be merged, what the numbers beside the table become, and what it is worth."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import lessram
from streams import LENGTHS, make_rows, to_batch
from test_source import example_text

from lessram import merge
from lessram.data.batch import Batch
from lessram.data.reader import read_batches
from lessram.errors import DataError, SpecError
from lessram.learning.learner import Learner
from lessram.learning.metrics import Scores
from lessram.learning.progressive import evaluate, progressive, scores_of
from lessram.model.model import Model
from lessram.model.spec import Spec

SLOTS = 96
BATCH = to_batch(make_rows(SLOTS, LENGTHS * 4, valued=True))
BASE, PARTS = BATCH.slice(0, 20), [BATCH.slice(20, 30), BATCH.slice(30, 31), BATCH.slice(31, 64)]
CHOICES = {"weights": "q3.12", "rates": "squares8", "alpha": 0.3}


def learned(model: Model, *batches: Batch) -> Model:
    for _ in progressive(Learner(model), ((batch, None) for batch in batches)):
        pass
    return model


def parted(**choices: Any) -> tuple[Model, list[Model]]:
    base = learned(Model.new(Spec(slots=SLOTS, **{**CHOICES, **choices})), BASE)
    return base, [learned(copy.deepcopy(base), part) for part in PARTS]


def bytes_of(model: Model, folder: Path) -> bytes:
    model.save(folder / "saved")
    return (folder / "saved").read_bytes()


# The laws, on files ---------------------------------------------------------------------------------------------------


def test_one_replica_is_written_byte_for_byte(tmp_path):
    base, replicas = parted()
    for replica in (*replicas, base):
        assert bytes_of(merge(base, [replica]), tmp_path) == bytes_of(replica, tmp_path)


def test_the_order_of_replicas_is_not_in_the_file(tmp_path):
    base, replicas = parted()
    whole = bytes_of(merge(base, replicas), tmp_path)
    assert bytes_of(merge(base, replicas[::-1]), tmp_path) == whole
    assert bytes_of(merge(base, replicas, mean="all"), tmp_path) != whole


def test_nothing_that_is_given_changes_and_files_may_be_mapped(tmp_path):
    base, replicas = parted()
    for number, model in enumerate((base, *replicas)):
        model.save(tmp_path / str(number))
    before = [(tmp_path / str(number)).read_bytes() for number in range(4)]
    mapped = [Model.load(tmp_path / str(number)) for number in range(4)]
    merged = merge(mapped[0], mapped[1:])
    assert bytes_of(merged, tmp_path) == bytes_of(merge(base, replicas), tmp_path)
    assert [bytes_of(model, tmp_path) for model in (base, *replicas)] == before


def test_a_merged_model_is_saved_loaded_learned_on_and_predicted_with(tmp_path):
    base, replicas = parted()
    merged = merge(base, replicas)
    merged.save(tmp_path / "merged")
    again = Model.load(tmp_path / "merged", writable=True)
    assert Learner(again).predict(BATCH).tolist() == Learner(merged).predict(BATCH).tolist()
    assert bytes_of(learned(again, BATCH), tmp_path) == bytes_of(learned(merged, BATCH), tmp_path)


# The numbers beside the table -----------------------------------------------------------------------------------------


def test_what_was_counted_adds_up_and_the_intercept_is_a_mean():
    base, replicas = parted()
    merged = merge(base, replicas)
    assert merged.examples == BATCH.rows
    assert merged.intercept == pytest.approx(np.mean([model.intercept for model in replicas]), rel=1e-15)
    expected = base.scalars + sum(model.scalars - base.scalars for model in replicas)
    np.testing.assert_allclose(merged.scalars[1:], expected[1:], rtol=1e-14)
    one = learned(Model.new(base.spec), BATCH)
    assert merged.scale == pytest.approx(one.scale, rel=1e-12), "of all values, whoever saw them"
    assert scores_of(merged).examples == scores_of(one).examples == BATCH.rows
    assert scores_of(merged).histogram.sum() == pytest.approx(scores_of(one).histogram.sum())


def test_a_replica_that_learned_nothing_has_no_say():
    base, replicas = parted()
    idle = merge(base, [*replicas, copy.deepcopy(base)])
    assert idle.intercept == merge(base, replicas).intercept
    assert idle.examples == merge(base, replicas).examples


def test_replicas_may_be_of_different_seeds_and_the_smallest_stays():
    base, _ = parted()
    replicas = []
    for seed, part in zip((9, 4, 6), PARTS, strict=True):
        model = copy.deepcopy(base)
        model.spec = Spec(slots=SLOTS, seed=seed, **CHOICES)
        replicas.append(learned(model, part))
    assert merge(base, replicas).spec.seed == 4
    assert merge(base, replicas[:1]).spec.seed == 9


def test_the_words_of_a_merge_follow_the_seed_and_the_examples():
    """Replicas that differ in nothing but their number of examples are rounded by other words."""
    base, replicas = parted()
    cells = merge(base, replicas).table.cells
    later = copy.deepcopy(replicas)
    later[0].examples += 1
    assert merge(base, later).table.cells.tobytes() != cells.tobytes()
    assert np.abs(merge(base, later).table.cells["weight"].astype(int) - cells["weight"]).max() <= 1


# What cannot be merged ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alpha": 0.2}, "replica 2 has alpha 0.2, replica 1 has 0.3: replicas need equal choices"),
        ({"weights": "q2.13"}, "replica 2 has weights q2.13, replica 1 has q3.12"),
        (
            {"algorithm": "ftrl", "l1": 1.0, "step_rule": "invariant"},
            "replica 2 has algorithm ftrl, replica 1 has None",
        ),
        ({"loss": "hinge"}, "replica 2 has loss hinge, replica 1 has logistic"),
    ],
    ids=str,
)
def test_choices_must_be_equal(change, message):
    _, (replica, *_) = parted()
    other = Model.new(Spec(slots=SLOTS, **{**CHOICES, **change}))
    with pytest.raises(SpecError, match=message):
        merge(None, [replica, other])


def test_features_must_have_become_slots_alike():
    base, replicas = parted()
    for model, seed in zip((base, *replicas), (0, 0, 7, 0), strict=True):
        model.reader = {"hash": "auto", "hash_seed": seed, "schema": {"scales": [1.0, seed]}}
    replicas[2].reader["schema"] = {"scales": (1.0, 0)}
    assert merge(base, [replicas[0], replicas[2]]).reader == base.reader
    with pytest.raises(
        SpecError, match=r"replica 2 was read with hash_seed 7, replica 1 with 0: train replicas on from"
    ):
        merge(base, replicas)


def test_counts_of_replicas_and_means_are_checked():
    base, replicas = parted()
    with pytest.raises(SpecError, match="expected 1 to 4096 replicas, got 0"):
        merge(base, [])
    with pytest.raises(SpecError, match="mean must be one of touched, all, got 'sum'"):
        merge(base, replicas, mean="sum")


def test_replicas_of_another_base_are_refused():
    base, replicas = parted()
    other = learned(Model.new(base.spec), BATCH.slice(40, 64))
    with pytest.raises(DataError, match="replica 1: found 20 examples, expected at least the 53 of its base"):
        merge(replicas[2], [base])
    with pytest.raises(DataError, match="replica 4: found less than its base had counted: it did not begin as a copy"):
        merge(base, [*replicas, other])
    for model in (base, other, *replicas):
        model.scores = {}
        model.scalars[1:] = 0  # so that only the table can tell
    with pytest.raises(DataError, match="replica 4: found less than its base had counted"):
        merge(base, [*replicas, other])
    with pytest.raises(DataError, match="replica 1: found less than its base had counted"):
        merge(base, [other])


# What it is worth -----------------------------------------------------------------------------------------------------


def log_loss(model: Model, test: list[Batch]) -> float:
    scores = Scores.new()
    for found in evaluate(Learner(model), [(batch, None) for batch in test]):
        scores = found
    assert scores.log_loss is not None
    return scores.log_loss


def test_two_halves_of_criteo_are_worth_nearly_one_whole(data_folder):
    """Trained apart and merged once: within 0.5 % of one learner, where half of the data costs 1 % and more."""
    reader = read_batches([str(data_folder / "criteo_60k.svm.bz2")], slots=1 << 18)
    batches = [Batch._make(None if part is None else part.copy() for part in batch) for batch, _ in reader]
    train, test = batches[: -len(batches) // 5], batches[-len(batches) // 5 :]
    assert sum(batch.rows for batch in test) > 10_000
    half = len(train) // 2

    def model(alpha: float, seed: int, *parts: Batch) -> Model:
        return learned(Model.new(Spec(slots=1 << 18, alpha=alpha, seed=seed)), *parts)

    one = log_loss(model(0.08, 0, *train), test)
    halves = [model(0.08 * 2**0.5, 1, *train[:half]), model(0.08 * 2**0.5, 2, *train[half:])]
    both = log_loss(merge(None, halves), test)
    assert both < one * 1.005
    assert all(log_loss(each, test) > one * 1.01 for each in halves)


# The command ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """Two replicas from nothing, and one that went on from the first."""
    monkeypatch.chdir(tmp_path)
    for seed in (1, 2):
        Path(f"{seed}.svm").write_bytes(example_text(300, seed))
        words = ("--bits", "12", "--alpha", "0.2", "--weights", "q3.12", "--seed", seed, "-q")
        assert lessram("train", f"{seed}.svm", "-o", seed, *words).code == 0
    assert lessram("train", "2.svm", "-i", "1", "-o", "on", "--seed", "7", "-q").code == 0
    return tmp_path


def test_the_command_from_nothing_and_from_a_base(place):
    found = lessram("merge", "1", "2", "-o", "both", "--json")
    assert (found.code, found.err) == (0, "")
    values = json.loads(found.out)
    assert (values["replicas"], values["examples"], values["examples_of_base"], values["seed"]) == (2, 600, 0, 1)
    assert values["bits_per_slot"] == 24
    assert values["table_bytes"] == 3 << 12
    assert Model.load("both").examples == 600
    assert lessram("evaluate", "both", "1.svm", "-q").code == 0
    text = lessram("merge", "2", "1", "-o", "again").out
    assert "merged        2 replicas\nexamples      600 (0 of them before the replicas parted)" in text
    assert Path("both").read_bytes() == Path("again").read_bytes()
    for seed in (3, 4):
        assert lessram("train", f"{seed - 2}.svm", "-i", "both", "-o", seed, "--seed", seed, "-q").code == 0
        assert Model.load(str(seed)).spec.seed == seed
    found = lessram("merge", "3", "4", "--base", "both", "-o", "all", "--json", "--mean", "all")
    assert json.loads(found.out)["examples"] == 1200
    assert lessram("merge", "on", "-b", "1", "-o", "same").code == 0
    assert Path("same").read_bytes() == Path("on").read_bytes()


def test_the_command_hints_at_a_base_among_the_replicas(place):
    found = lessram("merge", "1", "on", "-o", "new")
    assert (found.code, found.err) == (0, "is 1 what the others went on from? Then give it with --base\n")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("merge -o new", 2, "Missing argument 'REPLICA...'"),
        ("merge 1 2", 2, "Missing option '--output'"),
        ("merge 1 2 -o 2", 2, "2: cannot write over what is read"),
        ("merge 1 2 -b both -o new", 1, "both: cannot read"),
        ("merge 1 2 1 -o new", 2, "1: the same model as 1, expected replicas that learned different data"),
        ("merge 1 2 -o new --mean sum", 2, "mean must be one of touched, all, got 'sum'"),
        ("merge 1 2 -b on -o new", 1, "1: found 300 examples, expected at least the 600 of its base"),
        ("merge 2 -b 1 -o new", 1, "2: found less than its base had counted: it did not begin as a copy of this base"),
        ("merge 1 1.svm -o new", 1, "1.svm: not a lessram model"),
        ("merge 1 2 -o none/new", 1, "none/new: cannot write"),
    ],
)
def test_mistakes(place, words, code, message):
    found = lessram(*words.split())
    assert (found.code, found.out) == (code, "")
    assert message in found.err
    assert not Path("new").exists()
