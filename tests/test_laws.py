"""The laws that hold for every storage: predict before learning, same seed same bytes, prediction is pure."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from streams import BY_SQUARES, CELLS, LENGTHS, PROXIMAL, STORAGES, cut, make_rows, to_batch

from lessram.data.batch import Batch
from lessram.data.reader import read_batches
from lessram.learning.learner import Learner
from lessram.learning.metrics import Scores
from lessram.learning.progressive import evaluate, progressive, scores_of
from lessram.model.model import Model
from lessram.model.spec import Spec
from lessram.numerics.loss import Loss

SLOTS = 96
BATCHES = {
    "binary": to_batch(make_rows(SLOTS, LENGTHS * 4), valued=False),
    "valued": to_batch(make_rows(SLOTS, LENGTHS * 4, valued=True)),
}
UNEVEN = (1, 2, 10, 11, 40, 57)  # cuts of 64 rows into 7 batches
UNRANDOM = [("float32", "global"), ("float32", "exact32"), ("float32", "squares32"), PROXIMAL[1]]

every_storage = pytest.mark.parametrize("storage", STORAGES + BY_SQUARES + PROXIMAL, ids="-".join)
every_cell = pytest.mark.parametrize("storage", CELLS + BY_SQUARES + PROXIMAL, ids="-".join)
every_kind = pytest.mark.parametrize("kind", BATCHES)


def spec_of(storage: tuple[str, ...], seed: int = 1) -> Spec:
    choices = {"weights": storage[0], "rates": storage[1]}
    if len(storage) == 3:
        choices |= {"algorithm": storage[2], "l1": 0.2, "l2": 0.1}
    return Spec(slots=SLOTS, alpha=0.4, seed=seed, **choices)


def learn(learner: Learner, batches: list[Batch]) -> Learner:
    for _ in progressive(learner, ((batch, None) for batch in batches)):
        pass
    return learner


def file_of(learner: Learner, folder: Path) -> bytes:
    learner.model.save(folder / "model")
    return (folder / "model").read_bytes()


# Law 2: predict, score, then learn ------------------------------------------------------------------------------------


@every_kind
@every_cell
def test_no_label_is_seen_early(storage, kind):
    """Labels from some row on change nothing up to that row, and something behind it."""
    batch = BATCHES[kind]
    told = Learner(spec_of(storage)).learn(batch, trusted=True)
    for row in (0, 7, 30):
        labels = batch.labels.copy()
        labels[row:] = 1 - labels[row:]
        lied = Learner(spec_of(storage)).learn(batch._replace(labels=labels), trusted=True)
        assert lied[: row + 1].tolist() == told[: row + 1].tolist()
        assert lied.tolist() != told.tolist()


@every_kind
@every_cell
def test_scores_are_of_what_was_predicted_before_learning(storage, kind):
    batch = BATCHES[kind]
    margins = Learner(spec_of(storage)).learn(batch, trusted=True)
    expected = Scores.new()
    expected.add(margins, batch, Loss.logistic)
    scores = scores_of(learn(Learner(spec_of(storage)), cut(batch, UNEVEN)).model)
    assert scores.sums.tobytes() == expected.sums.tobytes()
    assert scores.histogram.tobytes() == expected.histogram.tobytes()
    assert scores.examples == batch.rows


# Law 3: same seed, same bytes -----------------------------------------------------------------------------------------


@every_kind
@every_storage
def test_whole_split_and_resumed_give_the_same_file(storage, kind, tmp_path):
    batch = BATCHES[kind]
    pieces = cut(batch, UNEVEN)
    assert len(pieces) == 7
    whole = file_of(learn(Learner(spec_of(storage)), [batch]), tmp_path)
    assert file_of(learn(Learner(spec_of(storage)), pieces), tmp_path) == whole
    for stop in (1, 4):
        file_of(learn(Learner(spec_of(storage)), pieces[:stop]), tmp_path)
        resumed = Learner(Model.load(tmp_path / "model", writable=True))
        assert file_of(learn(resumed, pieces[stop:]), tmp_path) == whole


@every_cell
def test_the_seed_is_in_the_bytes(storage):
    """Another seed gives other cells where anything is random, and the same where nothing is."""
    models = [learn(Learner(spec_of(storage, seed)), [BATCHES["binary"]]).model for seed in (1, 1, 2)]
    first, again, other = (model.table.cells.tobytes() for model in models)
    assert first == again
    assert (first == other) == (storage in UNRANDOM)


def test_learners_in_threads_do_not_disturb_each_other(tmp_path):
    """Kernels release the GIL; what they work with belongs to one learner."""
    batches = [BATCHES["binary"]] * 30
    alone = learn(Learner(spec_of(("q2.13", "morris8"))), batches).model.table.cells.tobytes()
    with ThreadPoolExecutor(4) as pool:
        learners = pool.map(lambda _: learn(Learner(spec_of(("q2.13", "morris8"))), batches), range(8))
        assert {learner.model.table.cells.tobytes() for learner in learners} == {alone}


# Law 9: prediction is pure --------------------------------------------------------------------------------------------


@every_kind
@every_storage
def test_prediction_changes_no_byte(storage, kind, tmp_path):
    learner = learn(Learner(spec_of(storage)), [BATCHES[kind]])
    before = file_of(learner, tmp_path)
    margins = learner.predict(BATCHES[kind])
    for _ in evaluate(learner, [(BATCHES[kind], None)]):
        pass
    assert file_of(learner, tmp_path) == before
    assert learner.predict(BATCHES[kind]).tolist() == margins.tolist()


@every_cell
def test_prediction_needs_no_lock_and_no_writable_memory(storage, tmp_path):
    """Many threads on one table mapped read-only from its file: a single write would end the process."""
    learner = learn(Learner(spec_of(storage)), [BATCHES["binary"]])
    file_of(learner, tmp_path)
    mapped = Learner(Model.load(tmp_path / "model"))
    expected = learner.predict(BATCHES["binary"]).tobytes()
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda _: mapped.predict(BATCHES["binary"], trusted=True).tobytes(), range(40))
    assert set(found) == {expected}


@every_cell
def test_prediction_in_between_does_not_disturb_learning(storage, tmp_path):
    pieces = cut(BATCHES["valued"], UNEVEN)
    undisturbed = file_of(learn(Learner(spec_of(storage)), pieces), tmp_path)
    learner = Learner(spec_of(storage))
    for _ in progressive(learner, ((piece, None) for piece in pieces)):
        learner.predict(BATCHES["valued"], trusted=True)
    assert file_of(learner, tmp_path) == undisturbed


# The paper's claim on real data ---------------------------------------------------------------------------------------


def progressive_log_loss(batches: list[Batch], weights: str, rates: str, alpha: float) -> float:
    learner = Learner(Spec(slots=1 << 20, weights=weights, rates=rates, alpha=alpha, seed=1))
    loss = scores_of(learn(learner, batches).model).log_loss
    assert loss is not None
    return loss


@pytest.mark.parametrize(
    ("name", "alpha", "alpha_global"), [("criteo_60k.svm.bz2", 0.1, 0.5), ("rcv1_15k.svm.bz2", 0.3, 5.0)]
)
def test_24_bits_lose_nothing(data_folder, name, alpha, alpha_global):
    """q2.13 with randomized counters predicts as the 64-bit control; rates by coordinate beat the global rate."""
    reader = read_batches([str(data_folder / name)], slots=1 << 20)
    batches = [Batch(*(None if array is None else np.array(array) for array in batch)) for batch, _ in reader]
    if batches[0].values is not None:  # weights of one change no byte, and those kernels are compiled already
        batches = [batch._replace(weights=np.ones(batch.rows, np.float32)) for batch in batches]
    control = progressive_log_loss(batches, "float32", "exact32", alpha)
    counted = progressive_log_loss(batches, "float32", "morris8", alpha)
    rounded = progressive_log_loss(batches, "q2.13", "morris8", alpha)
    assert counted == pytest.approx(control, rel=3e-3), "one seed of the counters moves the loss a little"
    assert rounded == pytest.approx(counted, rel=2e-4), "rounding moves it less"
    best_global = min(progressive_log_loss(batches, "float32", "global", alpha_global * f) for f in (0.5, 1, 2))
    assert best_global > 1.01 * control
