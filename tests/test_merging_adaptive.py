"""Adaptive tables of replicas become one as the slab-free reference says, and learning goes on from there alike."""

from __future__ import annotations

import copy
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numba
import numpy as np
import pytest
import reference_merging as plain
from reference import Row
from reference_adaptive import AdaptiveOgd
from streams import make_rows, to_batch
from test_adaptive import BINARY, SLOTS, adaptive, assert_same, pair, spec_of
from test_slabs import check

from lessram.errors import SpecError
from lessram.learning import learner as learning
from lessram.learning.learner import Learner
from lessram.model.merging import merge
from lessram.model.model import Model
from lessram.tables import adaptive_merging, adaptive_store, merging
from lessram.tables.adaptive import Adaptive
from lessram.tables.adaptive_merging import mean_code
from lessram.tables.blocks import FIRST_SLOT
from lessram.tables.flat import Flat
from lessram.tables.slabs import FREE, START, TOP

WORDS = 1 << 32
CUTS = (40, 55, 60, 90)
"""The rows of a base end at the first; those of three replicas follow."""


@pytest.fixture(autouse=True)
def _stay_adaptive(monkeypatch):
    """These streams are so short and dense that every table would soon become flat."""
    for module in (learning, adaptive_merging):
        monkeypatch.setattr(module, "outgrown", lambda table: False)


def parted(rows=BINARY, **choices: Any) -> tuple[list[Model], list[AdaptiveOgd]]:
    """A base and replicas that went on from it, as the package and the reference have them."""
    learner, reference = pair(**choices)
    learn(learner, reference, rows[: CUTS[0]])
    models, references = [learner.model], [reference]
    for first, last in pairwise(CUTS):
        models.append(copy.deepcopy(learner.model))
        references.append(copy.deepcopy(reference))
        learn(Learner(models[-1]), references[-1], rows[first:last])
    return models, references


def learn(learner: Learner, reference: AdaptiveOgd, rows: list[Row]) -> None:
    assert learner.learn(to_batch(rows, valued=False)).tolist() == [reference.learn(row) for row in rows]


def plainly_merged(references: list[AdaptiveOgd], seed: int, mean: str) -> AdaptiveOgd:
    start, *replicas = references
    merged = copy.deepcopy(start)
    merged.examples = start.examples + sum(one.examples - start.examples for one in replicas)
    key = plain.merging_key(seed, merged.examples)
    for slot in range(len(start.beta)):
        states = [plain.State(one.beta[slot], one.level[slot], one.promoted[slot]) for one in references]
        found = plain.merge_states(start.lists, start.counts, states, key, slot, everyone=mean == "all")
        merged.beta[slot], merged.level[slot], merged.promoted[slot] = found
    merged.intercept = sum(one.intercept for one in replicas) / len(replicas)
    for name in ("intercept_rounds", "squares", "nonzeros"):
        before = getattr(start, name)
        setattr(merged, name, before + sum(getattr(one, name) - before for one in replicas))
    return merged


@pytest.mark.parametrize("mean", ["touched", "all"])
@pytest.mark.parametrize("choices", [{}, {"alpha": 5.0}, {"base": 2.0, "alpha": 0.05}], ids=str)
def test_equals_the_reference_and_goes_on_from_there(choices, mean):
    models, references = parted(**choices)
    merged = Learner(merge(models[0], models[1:], mean=mean))
    reference = plainly_merged(references, 5, mean)
    reference.intercept = merged.model.intercept  # a sum rounded once, which this one is not
    assert_same(merged, reference)
    table = adaptive(merged)
    check(table, {})
    assert table.pool[FREE] == 0
    assert sum(reference.promoted) > max(sum(one.promoted) for one in references), "some are promoted by the merge"
    assert sum(reference.promoted) < SLOTS
    learn(merged, reference, BINARY[CUTS[-1] :])
    assert_same(merged, reference)
    check(table, {})


def test_slabs_that_were_pushed_together_and_will_be_again():
    """Replicas with free slabs in their pools; the merged table has none, and makes some while it goes on."""
    rows = make_rows(1200, [300] * 130, seed=3)
    models, references = parted(rows, slots=1200, alpha=0.5)
    assert any(model.table.pool[FREE] > 0 for model in models)
    merged, reference = Learner(merge(models[0], models[1:])), plainly_merged(references, 5, "touched")
    reference.intercept = merged.model.intercept
    assert_same(merged, reference)
    check(adaptive(merged), {})
    shrunk = 0
    for row in rows[CUTS[-1] :]:
        before = int(adaptive(merged).pool[TOP])
        learn(merged, reference, [row])
        shrunk += int(adaptive(merged).pool[TOP]) < before
    assert shrunk > 0
    assert_same(merged, reference)
    check(adaptive(merged), {})


def test_neither_order_nor_blocks_matter(monkeypatch):
    models, _ = parted()
    whole = adaptive(Learner(merge(models[0], models[1:])))
    for room in (merging.ROOM, 1, 2500):
        monkeypatch.setattr(merging, "ROOM", room)
        other = adaptive(Learner(merge(models[0], [models[3], models[1], models[2]])))
        for name, tensor in adaptive_store.tensors(whole).items():
            assert tensor.tobytes() == adaptive_store.tensors(other)[name].tobytes()


def test_one_replica_changes_nothing():
    models, _ = parted()
    for model in (models[1], models[0]):
        before = adaptive_store.tensors(model.table)
        after = adaptive_store.tensors(merge(models[0], [model]).table)
        assert {name: tensor.tobytes() for name, tensor in before.items()} == {
            name: tensor.tobytes() for name, tensor in after.items()
        }


def test_the_long_way_one_replica_changes_no_coordinate_either():
    models, _ = parted()
    for replicas in ([models[1]], [models[0]] * 3):
        rule = merging_rule(len(replicas))
        found = adaptive_merging.merged_adaptive(models[0].table, [model.table for model in replicas], rule)
        assert isinstance(found, Adaptive)
        same = adaptive_store.codes(replicas[0].table, 0, None) >= FIRST_SLOT
        assert (adaptive_store.codes(found, 0, None) >= FIRST_SLOT).tolist() == same.tolist()
        flat, expected = (adaptive_store.flattened(adaptive_store.copied(t)) for t in (found, replicas[0].table))
        assert flat.cells.tobytes() == expected.cells.tobytes()


def merging_rule(replicas: int):
    from lessram.tables.merging_slots import merge_rule

    return merge_rule(spec_of().counter.estimates, 7, replicas, everyone=False)


def test_replicas_that_became_flat_make_the_result_flat():
    """Slot by slot the same as flat tables of the same coordinates."""
    models, _ = parted()
    flat = [
        Model(m.spec, adaptive_store.flattened(adaptive_store.copied(m.table)), m.scalars, m.examples) for m in models
    ]
    expected = merge(flat[0], flat[1:]).table.cells
    for mixed in ([models[0], flat[1], models[2], flat[3]], [flat[0], models[1], models[2], models[3]]):
        found = merge(mixed[0], mixed[1:]).table
        assert isinstance(found, Flat)
        assert found.cells.tobytes() == expected.tobytes()


def test_a_result_that_outgrew_the_flat_table_is_flat(monkeypatch):
    models, _ = parted()
    assert isinstance(merge(models[0], models[1:]).table, Adaptive)
    monkeypatch.undo()
    found = merge(models[0], models[1:])
    assert isinstance(found.table, Flat)
    assert found.bits_per_slot == 24


def test_without_a_base_coordinates_start_at_nothing():
    learners = [Learner(spec_of(seed=seed)) for seed in (5, 6)]
    for learner, part in zip(learners, (BINARY[:20], BINARY[20:50]), strict=True):
        learner.learn(to_batch(part, valued=False))
    models = [learner.model for learner in learners]
    found = adaptive_store.tensors(merge(None, models).table)
    given = adaptive_store.tensors(merge(Model.new(spec_of()), models).table)
    assert {name: tensor.tobytes() for name, tensor in found.items()} == {
        name: tensor.tobytes() for name, tensor in given.items()
    }


def test_codebooks_must_be_the_same(monkeypatch):
    monkeypatch.setattr(learning, "LOOK_EVERY", 16)
    monkeypatch.setattr(learning, "OPENING", 16)
    learners = [Learner(spec_of(codebook="auto", seed=seed)) for seed in (1, 2)]
    for learner, rows in zip(learners, (BINARY[:20], BINARY[60:80]), strict=True):
        learner.learn(to_batch(rows, valued=False))
    models = [learner.model for learner in learners]
    with pytest.raises(SpecError, match="replica 1 and replica 2 have different codebooks"):
        merge(None, models)
    waiting = Learner(spec_of(codebook="auto"))
    waiting.learn(to_batch(BINARY[:10], valued=False))
    with pytest.raises(SpecError, match="replica 2 waits for more examples to design its codebook from"):
        merge(None, [models[0], waiting.model])
    assert merge(None, [waiting.model]).opening.keys() == waiting.model.opening.keys()
    base, *replicas = (copy.deepcopy(models[0]) for _ in range(3))
    for replica, part in zip(replicas, (BINARY[20:30], BINARY[30:50]), strict=True):
        Learner(replica).learn(to_batch(part, valued=False))
    book = merge(base, replicas).table.cells[:START]
    assert book.tobytes() == base.table.cells[:START].tobytes()


@numba.njit
def code_of(book, below, total, count, bits):
    return np.int64(mean_code(book, np.uint64(below), total, count, np.uint32(bits)))


def test_means_on_lists_are_unbiased():
    """Over all 2^32 words, by bisection."""
    book = spec_of().book
    rng = np.random.default_rng(3)
    for level in range(1, 7):
        codes = np.flatnonzero(book["level"][:FIRST_SLOT] == level)
        for below in codes[:-1:3].tolist():
            a, b = (int(book["weight"][code]) for code in (below, below + 1))
            for count in (1, 2, 3, 16):
                total = int(rng.integers(a * count, b * count))
                low, high = 0, WORDS
                while low < high:
                    middle = (low + high) // 2
                    up = code_of(book, below, total, count, middle) == below + 1
                    low, high = (middle + 1, high) if up else (low, middle)
                found = a + Fraction(low, WORDS) * (b - a)
                assert abs(found - Fraction(total, count)) < Fraction(b - a, WORDS)
