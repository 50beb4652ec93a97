"""Kernels stay within their arrays: whatever a batch holds, trusted or not, it is learned from or refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from guarded import guarded_array
from streams import BY_SQUARES, CELLS, PROXIMAL, make_rows, to_batch
from test_laws import spec_of

from lessram import Batch, DataError, Learner, Model, Spec, SpecError, read_batches
from lessram.data.checks import checked, sound
from lessram.learning.metrics import Scores
from lessram.numerics.loss import Loss
from lessram.serving.planner import Wish, compress
from lessram.serving.predictor import Predictor
from lessram.tables.adaptive import LARGEST_CACHED
from lessram.tables.layout import allocate
from lessram.tables.slabs import TOP

SLOTS = 96
STORAGES = [*CELLS, *BY_SQUARES, *PROXIMAL, ("adaptive", "ladder8")]
ROWS = make_rows(SLOTS, (3, 0, 40, 17) * 3, valued=True)
BATCH = to_batch(ROWS)
PLAIN = to_batch(ROWS, valued=False)

every_storage = pytest.mark.parametrize("storage", STORAGES, ids="-".join)
trust = pytest.mark.parametrize("trusted", [False, True], ids=["checked", "trusted"])


def uses(learner: Learner, trusted: bool) -> list[Any]:
    return [lambda batch: learner.learn(batch, trusted=trusted), lambda batch: learner.predict(batch, trusted=trusted)]


def with_entry(array: np.ndarray, place: int, value: int) -> np.ndarray:
    changed = array.copy()
    changed[place] = value
    return changed


@trust
@every_storage
@pytest.mark.parametrize("kind", [np.uint32, np.uint64])
def test_slots_beyond_the_table_are_refused_and_nothing_is_learned(storage, trusted, kind):
    learner = Learner(spec_of(storage))
    for place in (0, 41, -1):
        slots = with_entry(BATCH.slots.astype(kind), place, SLOTS)
        for use in uses(learner, trusted):
            with pytest.raises(DataError, match=f"found slot {SLOTS}, expected slots below {SLOTS}, the size of the"):
                use(BATCH._replace(slots=slots))
    assert learner.model.examples == 0
    assert not learner.model.weights().any()


@trust
def test_a_batch_that_was_read_for_a_larger_table_is_refused(trusted, tmp_path):
    (tmp_path / "rows.svm").write_text("1 4194303:1 7:1\n0 8:1\n" * 50)
    learner = Learner(Spec(slots=1 << 18))
    for batch, _ in read_batches([str(tmp_path / "rows.svm")], slots=1 << 22):
        for use in uses(learner, trusted):
            with pytest.raises(DataError, match="found slot 4194303, expected slots below 262144"):
                use(batch)


FALLING = "found row starts that fall or leave the features"
BROKEN = {
    "falls": ({"indptr": with_entry(BATCH.indptr, 3, 1)}, FALLING),
    "ends behind the features": ({"indptr": with_entry(BATCH.indptr, -1, 10**6)}, FALLING),
    "begins before the features": ({"indptr": with_entry(BATCH.indptr, 0, -1)}, FALLING),
    "leaves on the way": ({"indptr": with_entry(BATCH.indptr, 4, 2**62)}, FALLING),
    "leaves and wraps": ({"indptr": np.array([0, 2**63 - 1, -2, *BATCH.indptr[3:]])}, FALLING),
    "fewer labels": ({"labels": BATCH.labels[1:]}, "found 13 row starts for 11 labels, expected 12"),
    "no row starts": ({"indptr": BATCH.indptr[:0]}, "found 0 row starts for 12 labels, expected 13"),
    "fewer weights": ({"weights": np.ones(3, np.float32)}, "found 3 weights for 12 labels, expected as many"),
    "fewer values": ({"values": np.ones(3, np.float32)}, "found 3 values for 180 slots, expected as many"),
    "fewer slots": ({"slots": BATCH.slots[:-1], "values": None}, FALLING),
    "labels of a list": ({"labels": [1.0]}, "found labels as list, expected a 1-d array of float32"),
    "labels of whole numbers": ({"labels": np.ones(12, int)}, "found labels as 1-d int64, expected a 1-d array of fl"),
    "short row starts": ({"indptr": BATCH.indptr.astype(np.int32)}, "found indptr as 1-d int32, expected a 1-d array"),
    "signed slots": ({"slots": BATCH.slots.astype(np.int64)}, "slots as 1-d int64, expected .* of uint32 or uint64"),
    "slots of two dimensions": ({"slots": BATCH.slots[None]}, "found slots as 2-d uint32"),
    "double values": ({"values": BATCH.values.astype(float)}, "found values as 1-d float64, expected .* of float32"),
    "foreign values": ({"values": BATCH.values.astype(">f4")}, "found values as 1-d >f4, expected .* of float32"),
    "double weights": ({"weights": np.ones(12)}, "found weights as 1-d float64, expected a 1-d array of float32"),
}


@trust
@pytest.mark.parametrize("broken", BROKEN)
def test_arrays_that_do_not_fit_each_other_are_refused(broken, trusted):
    fields, message = BROKEN[broken]
    learner = Learner(Spec(slots=SLOTS))
    for use in uses(learner, trusted):
        with pytest.raises(DataError, match=message):
            use(BATCH._replace(**fields))
    assert learner.model.examples == 0


@pytest.fixture(scope="module")
def compressed() -> Predictor:
    learner = Learner(Spec(slots=SLOTS))
    learner.learn(BATCH)
    return Predictor(compress(learner.model, Wish(grid="q2.7")).served)


@trust
@pytest.mark.parametrize("broken", BROKEN)
def test_compressed_models_refuse_the_same(compressed, broken, trusted):
    fields, message = BROKEN[broken]
    with pytest.raises(DataError, match=message):
        compressed.predict(BATCH._replace(**fields), trusted=trusted)


@trust
def test_compressed_models_keep_to_their_slots_and_to_the_elements_of_arrays(compressed, trusted):
    slots = with_entry(BATCH.slots, 41, 2**32 - 1)
    with pytest.raises(DataError, match=f"found slot 4294967295, expected slots below {SLOTS}, the size of the table"):
        compressed.predict(BATCH._replace(slots=slots), trusted=trusted)
    turned = Batch(*(array[::-1].copy()[::-1] for array in BATCH))
    assert compressed.predict(turned, trusted=trusted).tolist() == compressed.predict(BATCH).tolist()


@trust
@pytest.mark.parametrize("given", [np.ones((2, 2)), [[1.0]], (BATCH, 3), "rows.svm", None])
def test_what_is_no_batch_is_not_learned(given, trusted):
    with pytest.raises(SpecError, match=f"expected a Batch, as read_batches makes them, got {type(given).__name__}"):
        Learner(Spec(slots=8)).learn(given, trusted=trusted)


@trust
@every_storage
def test_arrays_with_gaps_teach_the_same(storage, trusted):
    """Kernels go from one element to the next: every second one, or all from the last on, lie elsewhere."""

    def spread(name: str, array: np.ndarray) -> np.ndarray:
        wide = guarded_array(name, 2 * len(array), array.dtype)
        wide[1::2] = array
        return wide[1::2]

    def backwards(name: str, array: np.ndarray) -> np.ndarray:
        turned = guarded_array(name, len(array), array.dtype)
        turned[:] = array[::-1]
        return turned[::-1]

    expected = Learner(spec_of(storage))
    margins = expected.learn(BATCH)
    for change in (spread, backwards):
        batch = Batch(*(change(name, array) for name, array in BATCH._asdict().items()))
        learner = Learner(spec_of(storage))
        assert learner.learn(batch, trusted=trusted).tolist() == margins.tolist()
        assert learner.predict(batch, trusted=trusted).tolist() == expected.predict(BATCH).tolist()


@every_storage
def test_slots_behind_the_last_row_are_never_followed(storage):
    """They may hold anything, and kernels look ahead."""
    slots = np.concatenate([PLAIN.slots, np.full(2000, 2**32 - 1, np.uint32)])
    values = np.concatenate([BATCH.values, np.full(2000, np.nan, np.float32)])
    for batch, more in ((PLAIN, {"slots": slots}), (BATCH, {"slots": slots, "values": values})):
        expected, learner = Learner(spec_of(storage)), Learner(spec_of(storage))
        assert learner.learn(batch._replace(**more), trusted=True).tolist() == expected.learn(batch).tolist()
        assert learner.predict(batch._replace(**more)).tolist() == expected.predict(batch).tolist()


def test_adaptive_tables_of_many_cells_do_not_follow_them_either():
    """Beyond some size of the pool, what is looked ahead at is read, not only asked for."""
    rows, length = LARGEST_CACHED // 100 + 1, 100
    slots = np.random.default_rng(1).permutation(rows * length).astype(np.uint32)
    batch = Batch(np.float32(np.arange(rows) % 2), np.arange(rows + 1) * length, slots)
    learner = Learner(Spec(slots=rows * length, weights="adaptive", alpha=100.0))
    learner.learn(batch, trusted=True)
    assert learner.model.table.pool[TOP] > LARGEST_CACHED
    more = batch._replace(slots=np.concatenate([slots, np.full(2000, 2**32 - 1, np.uint32)]))
    assert learner.predict(more, trusted=True).tolist() == learner.predict(batch).tolist()


def test_a_batch_can_be_cut_short():
    assert BATCH.cut_short() is BATCH
    first = BATCH.slice(0, 3).cut_short()
    assert (len(first.slots), len(first.values), first.features) == (43, 43, 43)
    assert PLAIN.slice(0, 3).cut_short().values is None


def test_batches_that_a_reader_has_used_again_are_refused(tmp_path):
    """Whoever keeps them has the row starts of one batch and the features of another."""
    (tmp_path / "1.svm").write_text("1 1:1\n" * 60)
    (tmp_path / "2.svm").write_text("1 " + " ".join(f"{i}:1" for i in range(50)) + "\n")
    kept = [batch for batch, _ in read_batches([str(tmp_path)], slots=64)]
    with pytest.raises(DataError, match="of a batch that is kept, take a copy: readers use its arrays again"):
        Learner(Spec(slots=64)).learn(kept[0], trusted=True)


def test_a_table_smaller_than_its_spec_is_refused():
    for weights, rates in (("q3.12", "squares8"), ("adaptive", "ladder8")):
        small = Spec(slots=16, weights=weights, rates=rates)
        large = Spec(slots=64, weights=weights, rates=rates)
        with pytest.raises(SpecError, match="the model's table has 16 slots, its spec says 64"):
            Learner(Model(large, allocate(weights, rates, 16, small.book)))
        learner = Learner(small)
        learner.model.spec = large
        with pytest.raises(DataError, match="expected slots below 16"):
            learner.learn(to_batch(make_rows(64, (40,) * 3)))


def test_the_longest_row_is_known():
    assert sound(BATCH, SLOTS).longest == 40
    assert sound(BATCH.slice(0, 2), SLOTS).longest == 3
    assert sound(BATCH.slice(1, 2), SLOTS).longest == 0
    assert sound(Batch(BATCH.labels[:0], BATCH.indptr[:1], BATCH.slots), 1).longest == 0


def test_good_batches_are_not_copied():
    assert checked(BATCH, SLOTS) is BATCH
    assert sound(PLAIN, SLOTS).batch is PLAIN


def test_only_as_many_margins_as_rows_are_scored():
    with pytest.raises(DataError, match="found 13 margins for a batch of 12 rows, expected one a row"):
        Scores.new().add(np.zeros(13), BATCH, Loss.logistic)
