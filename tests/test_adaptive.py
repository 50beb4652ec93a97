"""Adaptive tables equal their slab-free reference bit for bit, obey the laws, and become flat when they outgrow it."""

from __future__ import annotations

import copy
import hashlib
import json
import pickle
from typing import Any

import numpy as np
import pytest
from commands import lessram
from reference import Row
from reference_adaptive import AdaptiveOgd
from streams import LENGTHS, cut, make_rows, to_batch

from lessram.data.batch import Batch
from lessram.data.matrix import Matrix
from lessram.errors import SpecError
from lessram.estimators import LogisticRegression
from lessram.learning import learner as learning
from lessram.learning.learner import Learner
from lessram.model.ledger import account
from lessram.model.model import Model
from lessram.model.spec import Spec
from lessram.tables import adaptive_store
from lessram.tables.adaptive import Adaptive
from lessram.tables.blocks import BLOCK, FIRST_SLOT, LINE
from lessram.tables.flat import Flat
from lessram.tables.slabs import FREE, HIGHEST, START, TOP

SLOTS = 250
"""Five blocks, the last of them in part."""
LONG = [*LENGTHS, 400, 250, 40, 40, 120]
BINARY = make_rows(SLOTS, LONG * 6)
VALUED = make_rows(SLOTS, LONG * 3, valued=True)


@pytest.fixture(autouse=True)
def _stay_adaptive(monkeypatch):
    """These streams are so short and dense that every table would soon become flat."""
    monkeypatch.setattr(learning, "outgrown", lambda table: False)


def spec_of(slots: int = SLOTS, **choices: Any) -> Spec:
    return Spec(slots=slots, weights="adaptive", **{"alpha": 0.3, "seed": 5, **choices})


def adaptive(learner: Learner) -> Adaptive:
    table = learner.model.table
    assert isinstance(table, Adaptive)
    return table


def pair(slots: int = SLOTS, **choices: Any) -> tuple[Learner, AdaptiveOgd]:
    learner = Learner(spec_of(slots, **choices))
    table = adaptive(learner)
    book = table.cells[:FIRST_SLOT]
    lists = [sorted(book["weight"][book["level"] == level].tolist()) for level in range(7)]
    lists[0] = [0]
    return learner, AdaptiveOgd(lists, slots=slots, **{"alpha": 0.3, "seed": 5, **choices})


def levels_of(table: Adaptive) -> list[int]:
    flat = adaptive_store.flattened(adaptive_store.copied(table))
    return flat.cells["level"].tolist()


def assert_same(learner: Learner, reference: AdaptiveOgd) -> None:
    table = adaptive(learner)
    assert learner.model.weights().tolist() == [beta * reference.step for beta in reference.beta]
    promoted = adaptive_store.codes(table, 0, None) >= FIRST_SLOT
    assert promoted.tolist() == reference.promoted
    assert levels_of(table) == reference.level
    assert learner.model.scalars.tolist()[:2] == [reference.intercept, reference.intercept_rounds]


# Equality with the reference ------------------------------------------------------------------------------------------


def test_binary_rows_through_promotions_and_compactions():
    learner, reference = pair()
    assert learner.learn(to_batch(BINARY, valued=False)).tolist() == [reference.learn(row) for row in BINARY]
    assert_same(learner, reference)
    assert 40 < sum(reference.promoted) < SLOTS, "some coordinates are promoted, some are not"


def test_valued_and_weighted_rows():
    learner, reference = pair(alpha=0.1)
    assert learner.learn(to_batch(VALUED)).tolist() == [reference.learn(row) for row in VALUED]
    assert_same(learner, reference)


@pytest.mark.parametrize("choices", [{"alpha": 20.0}, {"alpha": 1e-4}, {"radius": 0.05}, {"base": 3.0}], ids=str)
def test_extreme_choices(choices):
    """Lists that are clipped at the radius, or collapse to a point or two: everything is promoted sooner."""
    learner, reference = pair(**choices)
    rows = BINARY[:40]
    assert learner.learn(to_batch(rows, valued=False)).tolist() == [reference.learn(row) for row in rows]
    assert_same(learner, reference)


def test_slabs_are_pushed_together_while_learning():
    """Many blocks growing at once leave many free slabs behind; the pool shrinks now and then, and nothing is lost."""
    learner, reference = pair(slots=1200, alpha=0.5)
    rows = make_rows(1200, [300] * 60, seed=3)
    shrunk = 0
    for row in rows:
        before = int(adaptive(learner).pool[TOP])
        assert learner.learn(to_batch([row], valued=False))[0] == reference.learn(row)
        shrunk += int(adaptive(learner).pool[TOP]) < before
    assert shrunk > 2
    assert_same(learner, reference)


@pytest.mark.parametrize("alpha", [0.02, 0.3, 1.0])
def test_the_smallest_steps_away_from_the_end_of_a_list(alpha):
    """A step of 2^-33 of the grid or so, down from a list's last value: next to the end, and inside by a hair."""
    learner, reference = pair(slots=240, alpha=alpha)
    table = adaptive(learner)
    places = [(level, tiny) for level in range(1, 7) for tiny in range(40)]
    for slot, (level, _) in enumerate(places):
        code = int(np.flatnonzero(table.cells["level"][:FIRST_SLOT] == level)[-1])
        table.codes[slot + slot // BLOCK * (LINE - BLOCK)] = code
        reference.beta[slot], reference.level[slot] = int(table.cells["weight"][code]), level
    rows = [Row(0.0, [(slot, 1.0)], 2.0 ** -(30 + tiny)) for slot, (_, tiny) in enumerate(places)]
    assert learner.learn(to_batch(rows)).tolist() == [reference.learn(row) for row in rows]
    assert_same(learner, reference)


# The laws -------------------------------------------------------------------------------------------------------------


def test_any_split_and_a_stop_give_the_same_file(tmp_path):
    batch = to_batch(BINARY, valued=False)
    whole, split = Learner(spec_of()), Learner(spec_of())
    whole.learn(batch)
    for k, piece in enumerate(cut(batch, (1, 2, 30, 31, 90))):
        split.learn(piece)
        if k == 3:
            split.model.save(tmp_path / "stopped")
            split = Learner(Model.load(tmp_path / "stopped", writable=True))
    whole.model.save(tmp_path / "whole")
    split.model.save(tmp_path / "split")
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "split").read_bytes()


def test_pickles_and_copies_hold_what_is_used_and_go_on_alike(tmp_path):
    learner = Learner(spec_of())
    learner.learn(to_batch(BINARY[:50], valued=False))
    twins = [Learner(pickle.loads(pickle.dumps(learner.model))), Learner(copy.deepcopy(learner.model))]
    assert len(pickle.dumps(learner.model)) < 3 * learner.model.nbytes + 4096
    files = []
    for each in (learner, *twins):
        each.learn(to_batch(BINARY[50:], valued=False))
        each.model.save(tmp_path / "model")
        files.append((tmp_path / "model").read_bytes())
    assert files[0] == files[1] == files[2]


def test_a_mapped_file_predicts_the_same_and_cannot_be_written(tmp_path):
    learner = Learner(spec_of())
    batch = to_batch(BINARY, valued=False)
    learner.learn(batch)
    learner.model.save(tmp_path / "model")
    mapped = Learner(Model.load(tmp_path / "model"))
    assert not adaptive(mapped).codes.flags.writeable
    assert mapped.predict(batch).tolist() == learner.predict(batch).tolist()


def test_every_byte_is_accounted_for(tmp_path):
    learner = Learner(spec_of())
    learner.learn(to_batch(BINARY, valued=False))
    table = adaptive(learner)
    parts = adaptive_store.parts(table)
    assert sum(parts.values()) == learner.model.table_bytes
    assert parts["codes"] + parts["pointers"] == table.codes.nbytes
    ledger = account(learner.model)
    assert ledger.bits_by_part["cells"] == pytest.approx(8 * parts["cells"] / SLOTS)
    assert ledger.promoted == np.count_nonzero(adaptive_store.codes(table, 0, None) >= FIRST_SLOT)
    assert ledger.promoted_fraction == ledger.promoted / SLOTS
    assert ledger.seen == np.count_nonzero(adaptive_store.codes(table, 0, None))


def test_the_first_codebook_gives_what_it_always_gave():
    """A model names its book, so this one stays beside the standard one."""
    learners = [Learner(spec_of(codebook=book)) for book in ("shipped", "standard")]
    for learner in learners:
        learner.learn(to_batch(BINARY, valued=False))
    codes = [adaptive(learner).codes.tobytes() for learner in learners]
    assert hashlib.sha256(codes[0]).hexdigest()[:10] == "55fa3da67a"
    assert codes[1] != codes[0]
    assert Learner(spec_of()).model.spec.codebook == "standard"


# The codebook designed from the first examples ------------------------------------------------------------------------


def test_an_automatic_codebook_is_the_same_for_any_split_and_stop(monkeypatch, tmp_path):
    monkeypatch.setattr(learning, "LOOK_EVERY", 64)
    monkeypatch.setattr(learning, "OPENING", 64)
    batch = to_batch(BINARY, valued=False)
    whole, split, shipped = (Learner(spec_of(codebook=book)) for book in ("auto", "auto", "shipped"))
    whole.learn(batch)
    shipped.learn(batch)
    for k, piece in enumerate(cut(batch, (1, 30, 31, 90))):
        split.learn(piece)
        assert bool(split.model.opening) == (split.model.examples < 64)
        if k == 1:
            split.model.save(tmp_path / "stopped")
            split = Learner(Model.load(tmp_path / "stopped", writable=True))
    whole.model.save(tmp_path / "whole")
    split.model.save(tmp_path / "split")
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "split").read_bytes()
    assert adaptive(whole).cells[:FIRST_SLOT].tobytes() != adaptive(shipped).cells[:FIRST_SLOT].tobytes()


def test_recoding_is_unbiased_and_keeps_levels():
    """Over all blocks, the mean of what a value became is the value: half a million coordinates stand at one value."""
    learner = Learner(spec_of(slots=60 * 8000))
    table = adaptive(learner)
    code = int(np.flatnonzero(table.cells["level"][:START] == 3)[5])
    table.codes.reshape(-1, LINE)[:, :BLOCK] = code
    value = int(table.cells["weight"][code])
    book = table.cells[:START].copy()
    book["weight"][book["level"] == 3] += 17
    adaptive_store.recoded(table, book, np.uint64(7))
    weights = adaptive_store.weights(table, 0, None)
    points = np.unique(weights)
    assert len(points) == 2
    assert points[0] < value < points[1]
    error = np.sqrt((value - points[0]) * (points[1] - value) / len(weights))
    assert abs(weights.mean() - value) < 5 * error
    assert set(table.cells["level"][adaptive_store.codes(table, 0, None)]) == {3}


def test_a_step_too_small_to_see_from_the_end_of_a_list_changes_nothing():
    """Parts of the index have odd widths: a value next to the end rounds up to it, where no part begins any more."""
    stayed = 0
    for importance in np.geomspace(1e-16, 1e-15, 12):
        learner = Learner(spec_of(slots=60, alpha=0.35, intercept=False))
        table = adaptive(learner)
        top = np.flatnonzero(table.cells["level"][:START] == 4)[-1]
        table.codes[:BLOCK] = top
        before = learner.model.weights()
        rows = Batch(np.zeros(60, np.float32), np.arange(61), np.arange(60, dtype=np.uint32))
        learner.learn(rows._replace(weights=np.full(60, importance, np.float32)))
        # A counter may step up to a point of the next list, near by; what rounds to the end itself is promoted.
        assert learner.model.weights() == pytest.approx(before, rel=0.3)
        stayed += np.count_nonzero(table.codes[:BLOCK] == top)
    assert stayed > 0


# Slices, weights set by hand ------------------------------------------------------------------------------------------


def test_slices_are_those_of_the_whole():
    learner = Learner(spec_of())
    learner.learn(to_batch(BINARY, valued=False))
    table = adaptive(learner)
    weights, codes = adaptive_store.weights(table, 0, None), adaptive_store.codes(table, 0, None)
    assert len(weights) == len(codes) == SLOTS
    for start, stop in [(0, 1), (59, 61), (60, 120), (13, 200), (240, 1000), (250, 260), (7, 7)]:
        assert adaptive_store.weights(table, start, stop).tolist() == weights[start:stop].tolist()
        assert adaptive_store.codes(table, start, stop).tolist() == codes[start:stop].tolist()


@pytest.mark.parametrize("kind", [np.int64, np.uint32, np.uint64])
def test_weights_of_single_slots(kind, tmp_path):
    """Of codes and of cells, in any order, in memory and from a file."""
    learner, _ = pair()
    learner.learn(to_batch(BINARY[:40], valued=False))
    promoted = adaptive_store.codes(adaptive(learner), 0, None) >= FIRST_SLOT
    assert 0 < promoted.sum() < SLOTS
    learner.model.save(tmp_path / "model")
    some = np.random.default_rng(0).integers(0, SLOTS, 900).astype(kind)
    for model in (learner.model, Model.load(tmp_path / "model")):
        assert (model.weights_at(some) == model.weights()[some]).all()
        assert model.weights_at(some[:0]).shape == (0,)
        with pytest.raises(IndexError, match=f"{SLOTS} is out of bounds"):
            model.weights_at(np.array([3, SLOTS], kind))


def test_weights_can_be_set():
    learner = Learner(spec_of())
    learner.learn(to_batch(BINARY[:20], valued=False))
    slots = np.array([0, 59, 60, 61, 249, 3])
    before = adaptive_store.weights(adaptive(learner), 0, None)
    adaptive_store.put_weights(adaptive(learner), slots, np.array([5, -7, 30000, 0, 1, 2]))
    before[slots] = [5, -7, 30000, 0, 1, 2]
    assert adaptive_store.weights(adaptive(learner), 0, None).tolist() == before.tolist()


# Dense data -----------------------------------------------------------------------------------------------------------


def test_a_table_that_outgrew_the_flat_one_becomes_flat(monkeypatch, tmp_path):
    """At the same example for any split, with every weight and level kept, and the file says so."""
    monkeypatch.undo()
    monkeypatch.setattr(learning, "LOOK_EVERY", 16)
    batch = to_batch(BINARY, valued=False)
    whole, split = Learner(spec_of()), Learner(spec_of())
    margins = whole.learn(batch)
    assert isinstance(whole.model.table, Flat)
    pieces = cut(batch, (3, 17, 33, 50))
    assert np.concatenate([split.learn(piece) for piece in pieces]).tolist() == margins.tolist()
    for learner in (whole, split):
        learner.model.save(tmp_path / "model")
        learner.model.save(tmp_path / str(id(learner)))
    assert (tmp_path / str(id(whole))).read_bytes() == (tmp_path / str(id(split))).read_bytes()
    again = Learner(Model.load(tmp_path / "model", writable=True))
    assert isinstance(again.model.table, Flat)
    assert again.learn(batch).tolist() == whole.learn(batch).tolist()
    assert whole.model.bits_per_slot == 24


def test_becoming_flat_keeps_every_coordinate():
    learner, reference = pair()
    rows = BINARY[:100]
    learner.learn(to_batch(rows, valued=False))
    for row in rows:
        reference.learn(row)
    flat = adaptive_store.flattened(adaptive(learner))
    assert flat.cells["weight"].tolist() == reference.beta
    assert flat.cells["level"].tolist() == reference.level


# Choices --------------------------------------------------------------------------------------------------------------


def test_choices_that_do_not_go_together_are_refused():
    with pytest.raises(SpecError, match="weights adaptive have rates by randomized counts"):
        spec_of(rates="global")
    with pytest.raises(SpecError, match="codebook must be one of standard, auto, shipped, got 'mine'"):
        spec_of(codebook="mine")
    with pytest.raises(SpecError, match="codebook needs weights adaptive"):
        Spec(slots=8, codebook="auto")
    with pytest.raises(SpecError, match="at most 4000000000"):
        Model.new(spec_of(slots=4_000_000_001))


def test_blocks_are_lines():
    table = adaptive(Learner(spec_of()))
    assert len(table.codes) == LINE * 5
    assert table.codes.ctypes.data % LINE == 0
    assert BLOCK + 4 == LINE
    assert table.pool[FREE] == 0
    assert table.pool[HIGHEST] == table.pool[TOP]


def test_the_estimator_pickles_and_goes_on_alike():
    """Features 0 to 79, each often enough that some are promoted."""
    rng = np.random.default_rng(1)
    X = (rng.random((400, 80)) < 0.2).astype(np.float32)
    y = X[:, 0] + X[:, 1] > X[:, 2]
    clf = LogisticRegression(weights="adaptive", n_slots=80).partial_fit(X[:200], y[:200], classes=[False, True])
    twin = pickle.loads(pickle.dumps(clf))
    assert isinstance(twin.models_[0].table, Adaptive)
    for each in (clf, twin):
        each.partial_fit(X[200:], y[200:])
    assert clf.predict_proba(X).tolist() == twin.predict_proba(X).tolist()
    assert clf.coef_.toarray().tolist() == [clf.models_[0].coefficients().tolist()]
    assert clf.score(X, y) > 0.8


def test_estimators_take_a_codebook(monkeypatch):
    monkeypatch.setattr(learning, "LOOK_EVERY", 64)
    monkeypatch.setattr(learning, "OPENING", 64)
    batch = to_batch(BINARY, valued=False)
    X = np.zeros((batch.rows, SLOTS), np.float32)
    X[np.repeat(np.arange(batch.rows), np.diff(batch.indptr)), batch.slots] = 1
    for book in ("shipped", "auto"):
        clf = LogisticRegression(weights="adaptive", codebook=book, alpha=0.3, passes=1).fit(X, batch.labels)
        learner = Learner(Spec(slots=SLOTS, weights="adaptive", codebook=book, alpha=0.3))
        for rows, piece in Matrix(X, SLOTS).pieces():
            learner.learn(piece._replace(labels=batch.labels[rows]))
        assert clf.models_[0].spec.codebook == book
        assert clf.models_[0].weights().tolist() == learner.model.weights().tolist()


def test_the_command_line_says_when_a_table_became_flat(tmp_path, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(learning, "LOOK_EVERY", 64)
    monkeypatch.setattr(learning, "OPENING", 64)
    lines = [
        f"{row.label:g} " + " ".join(f"{slot}:1" for slot in sorted({s for s, _ in row.features})) for row in BINARY
    ]
    (tmp_path / "dense.svm").write_text("\n".join(lines) + "\n")
    found = lessram("train", tmp_path / "dense.svm", "-o", tmp_path / "m", "--weights", "adaptive", "--bits", "8")
    assert (found.code, "became flat, 24 bits a slot" in found.err) == (0, True)
    found = lessram("info", tmp_path / "m", "--json")
    assert json.loads(found.out)["bits_per_slot"] == 24
    words = ("--weights", "adaptive", "--codebook", "auto", "--bits", "16", "--json")
    found = lessram("train", tmp_path / "dense.svm", "-o", tmp_path / "m", *words)
    assert json.loads(found.out)["bits_per_slot"] < 9
    found = json.loads(lessram("info", tmp_path / "m", "--json").out)
    assert list(found["bits_by_part"]) == ["codes", "pointers", "cells", "spare", "garbage", "codebook"]
    assert found["promoted_fraction"] == found["promoted"] / 2**16 > 0
    assert f"promoted fraction       {found['promoted_fraction']:.6g}\n" in lessram("info", tmp_path / "m").out


def test_an_alpha_that_was_chosen_later_has_its_own_codebook():
    """The command line and the estimator choose alpha by the first examples, when the table is there already."""
    late = Model.new(spec_of(alpha=0.3))
    late.spec = spec_of(alpha=0.04)
    batch = to_batch(BINARY, valued=False)
    assert Learner(late).learn(batch).tolist() == Learner(spec_of(alpha=0.04)).learn(batch).tolist()


# Damaged files --------------------------------------------------------------------------------------------------------


def filled(tensor: str, filling: Any) -> dict[str, np.ndarray]:
    """The tensors of a trained table, one of them overwritten."""
    learner = Learner(spec_of())
    learner.learn(to_batch(BINARY[:40], valued=False))
    stored = {name: found.copy() for name, found in adaptive_store.tensors(adaptive(learner)).items()}
    stored[tensor].reshape(-1).view(np.uint8)[:] = filling
    return stored


@pytest.mark.parametrize(("tensor", "filling"), [("blocks", 0xFF), ("blocks", 0xC8), ("cells", 0xFF)])
def test_damaged_tensors_are_misread_but_never_left(tensor, filling):
    """Whoever opens a file without comparing checksums gets wrong numbers, not a crash."""
    model = Model.new(spec_of())
    model.table = adaptive_store.from_tensors(filled(tensor, filling), SLOTS)
    assert model.weights().shape == (SLOTS,)
    assert Learner(model).predict(to_batch(BINARY, valued=False)).shape == (len(BINARY),)


def test_a_damaged_codebook_is_refused():
    size = START * 3
    noise = np.resize(np.random.default_rng(0).integers(0, 256, size, np.uint8), filled("cells", 0)["cells"].size)
    with pytest.raises(ValueError, match="not those of a codebook"):
        adaptive_store.from_tensors(filled("cells", noise), SLOTS)
