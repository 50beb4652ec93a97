"""Alpha and the range of weights chosen on the first examples: well, honestly, the same however the stream is cut."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from streams import cut, make_rows, to_batch
from typer.testing import CliRunner

from lessram import LogisticRegression, SpecError
from lessram.cli.main import app
from lessram.data.batch import Batch, owned
from lessram.data.formats import Form, Reading
from lessram.learning import auto_choice, frozen_choice
from lessram.learning.auto_choice import CANDIDATES, FIRST, LEAST_GAIN, ROOM, TIGHT, choose, first_examples
from lessram.learning.learner import Learner
from lessram.learning.metrics import Scores
from lessram.learning.training import Plan, Training, plan_sources
from lessram.model.model import Model
from lessram.model.spec import DEFAULT_ALPHA, PAPER, Spec
from lessram.numerics.loss import Loss

SPEC = Spec(slots=500, seed=4)


def stream(rows: int = 3000, noise: float = 0.3, seed: int = 5) -> Batch:
    """Ten features a row out of 500, each with an effect of its own."""
    rng = np.random.default_rng(seed)
    slots = rng.integers(0, 500, (rows, 10))
    effects = rng.normal(size=500)
    labels = effects[slots].sum(axis=1) + noise * rng.normal(size=rows) > 0
    return Batch(labels.astype(np.float32), np.arange(rows + 1) * 10, slots.astype(np.uint32).ravel())


def decisive(rows: int = 1500, seed: int = 6) -> Batch:
    """One feature a row, out of four, whose sign is the label: weights grow without end."""
    rng = np.random.default_rng(seed)
    slots, values = rng.integers(0, 4, rows).astype(np.uint32), rng.normal(size=rows).astype(np.float32)
    return Batch((values > 0).astype(np.float32), np.arange(rows + 1), slots, values)


def margins_of(spec: Spec, batch: Batch, alpha: float) -> NDArray[np.float64]:
    return Learner(Spec(slots=spec.slots, seed=spec.seed, alpha=alpha)).learn(batch)


def loss_of(margins: NDArray[np.float64], batch: Batch) -> float:
    scores = Scores.new()
    scores.add(margins, batch, Loss.logistic)
    assert scores.log_loss is not None
    return scores.log_loss


def test_the_best_candidate_wins() -> None:
    """Candidates learn in small tables of their own, and yet predict as a full table would."""
    batch = stream()
    losses = [loss_of(margins_of(SPEC, batch, alpha), batch) for alpha in CANDIDATES]
    assert choose(SPEC, batch).spec.alpha == CANDIDATES[int(np.argmin(losses))]
    assert 0 < np.argmin(losses) < len(CANDIDATES) - 1


@pytest.mark.parametrize("batch", [stream(700), decisive(700)], ids=["usual", "wide"])
def test_no_score_has_seen_its_label(batch: Batch) -> None:
    """Labels from some row on do not change what is shown for the rows up to it, nor for the row itself."""
    shown = choose(SPEC, batch, range=True).margins
    assert (shown[:64] == margins_of(SPEC, batch, FIRST)[:64]).all()
    for row in (1, 64, 100, 128, 500):
        labels = batch.labels.copy()
        labels[row:] = 1 - labels[row:]
        again = choose(SPEC, batch._replace(labels=labels), range=True).margins
        assert (again[: row + 1] == shown[: row + 1]).all()


@pytest.mark.parametrize(("weights", "rates"), [("q3.12", "squares8"), ("e3m6", "squares6")])
def test_the_range_is_widened_where_weights_need_it(weights: str, rates: str) -> None:
    """A format of as many bits that predicts better; on the narrow one, weights stand at its end."""
    spec, batch = Spec(slots=500, weights=weights, rates=rates), decisive()
    wide = choose(spec, batch, range=True).spec
    assert choose(spec, batch).spec.weights == weights
    assert (wide.grid.width, wide.rates) == (spec.grid.width, rates)
    assert wide.grid.largest > spec.grid.largest
    narrow, learned = (Learner(msgspec.structs.replace(wide, weights=w)) for w in (weights, wide.weights))
    losses = [loss_of(learner.learn(batch), batch) for learner in (narrow, learned)]
    assert np.abs(narrow.model.weights()).max() == spec.grid.largest
    assert np.abs(learned.model.weights()).max() > spec.grid.largest
    assert losses[1] < losses[0] - LEAST_GAIN
    assert choose(spec, stream(), range=True).spec.weights == weights


def test_a_wider_range_that_predicts_hardly_better_is_not_taken() -> None:
    """Features that always come with their label: weights grow, but the loss is next to nothing as it is."""
    batch = decisive()._replace(values=None, slots=(decisive().labels + 1).astype(np.uint32))
    chosen = choose(SPEC, batch, range=True).spec
    learner = Learner(chosen)
    learner.learn(batch)
    assert np.abs(learner.model.weights()).max() > TIGHT * chosen.grid.largest
    assert chosen.weights == "q3.12"


def test_the_range_for_an_alpha_that_was_given() -> None:
    spec = Spec(slots=4, alpha=5.0)
    batch = decisive()
    chosen = choose(spec, batch, alpha=False, range=True).spec
    assert (chosen.alpha, chosen.weights) == (5.0, "q4.11")
    assert choose(Spec(slots=4, alpha=0.01), batch, alpha=False, range=True).spec.weights == "q3.12"


def test_minifloats_become_narrower_where_weights_keep_room(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = stream()
    spec = Spec(slots=500, weights="e3m6", rates="squares6", alpha=0.1)
    assert choose(spec, batch, alpha=False, range=True).spec.weights == "e3m6", "too few examples to tell"
    monkeypatch.setattr(auto_choice, "ROWS", batch.rows)
    chosen = choose(spec, batch, alpha=False, range=True).spec
    learner = Learner(spec)
    learner.learn(batch)
    reach = np.abs(learner.model.weights()).max()
    assert chosen.grid.narrower.largest < ROOM * reach <= chosen.grid.largest < spec.grid.largest
    assert choose(spec, batch, alpha=False, range=False).spec.weights == "e3m6"
    assert choose(Spec(slots=500, alpha=0.1), batch, alpha=False, range=True).spec.weights == "q3.12"


@pytest.mark.parametrize("places", [[], [1, 2, 900], list(range(10, 1000, 90))])
def test_the_first_examples_are_the_same_for_any_cut(monkeypatch: pytest.MonkeyPatch, places: list[int]) -> None:
    batch = stream(1000)
    monkeypatch.setattr(auto_choice, "ROWS", 300)
    first = first_examples(cut(batch, places))
    assert first is not None
    for found, expected in zip(first, owned(batch.slice(0, 300)), strict=True):
        assert (found is None and expected is None) or (found == expected).all()
    monkeypatch.setattr(auto_choice, "FEATURES", 1005)
    fewer = first_examples(cut(batch, places))
    assert fewer is not None
    assert fewer.rows == 100
    assert first_examples([]) is None


def test_values_and_weights_and_losses_take_part() -> None:
    rows = make_rows(500, (3, 8, 0, 15) * 20, valued=True)
    batch = to_batch(rows)
    for loss in ("logistic", "squared", "hinge"):
        choice = choose(Spec(slots=500, loss=loss), batch)
        assert choice.spec.alpha in CANDIDATES
        assert np.isfinite(choice.margins).all()
    nothing = batch._replace(weights=np.zeros(batch.rows, np.float32))
    assert choose(SPEC, nothing).spec.alpha == FIRST


# From the command line ------------------------------------------------------------------------------------------------


def lessram(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    if code:
        assert isinstance(result.exception, SpecError), result.output
        return str(result.exception)
    assert result.exit_code == 0, result.output
    return result.stdout


def written(path: Path, batch: Batch) -> Path:
    values = np.ones(batch.features) if batch.values is None else batch.values
    with open(path, "w") as file:
        for r, label in enumerate(batch.labels):
            row = slice(*batch.indptr[r : r + 2])
            features = dict(zip(batch.slots[row], values[row], strict=True))
            file.write(f"{label:g} {' '.join(f'{slot}:{features[slot]:.9g}' for slot in sorted(features))}\n")
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return written(tmp_path / "data.svm", stream())


def test_training_as_if_the_alpha_had_been_given(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is the one of a run with that alpha, whatever threads and checkpoints do; the choice is in the file."""
    monkeypatch.setattr(auto_choice, "ROWS", 2000)
    small = ("--bits", 9, "--json", "--quiet")
    found = json.loads(lessram("train", data, "-o", tmp_path / "a", *small, "--threads", 1))
    lessram("train", data, "-o", tmp_path / "b", *small, "--alpha", "auto", "--threads", 2)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    given = json.loads(lessram("train", data, "-o", tmp_path / "c", *small, "--alpha", found["alpha"]))
    automatic, control = Model.load(tmp_path / "a"), Model.load(tmp_path / "c")
    assert (automatic.weights() == control.weights()).all()
    assert automatic.spec == control.spec
    assert abs(found["log_loss"] / given["log_loss"] - 1) < 0.05


def test_checkpoints_are_written_only_after_the_choice(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is resumed at its first checkpoint gives the bytes of one that was not, scores included."""
    monkeypatch.setattr(auto_choice, "ROWS", 2000)
    lines = data.read_text().splitlines(keepends=True)
    parts = tmp_path / "parts"
    parts.mkdir()
    for number in range(10):
        (parts / f"{number}.svm").write_text("".join(lines[300 * number : 300 * (number + 1)]))
    plan = Plan(
        sources=plan_sources([str(parts)]),
        form=Form(name="svmlight"),
        reading=Reading(),
        checkpoint=str(tmp_path / "checkpoint"),
        checkpoint_every=1,
    )
    whole = Training(Model.new(SPEC), plan, auto_alpha=True)
    early: list[bytes] = []
    for _ in whole.run():
        if not early and (tmp_path / "checkpoint").exists():
            early.append((tmp_path / "checkpoint").read_bytes())
    whole.model.save(tmp_path / "whole")
    (tmp_path / "checkpoint").write_bytes(early[0])
    resumed = Training.resumed(tmp_path / "checkpoint")
    assert 2000 <= resumed.model.examples < 3000
    for _ in resumed.run():
        pass
    resumed.model.save(tmp_path / "resumed")
    assert (tmp_path / "resumed").read_bytes() == (tmp_path / "whole").read_bytes()


def test_training_as_if_the_range_had_been_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is named is taken as it is; what is not named is chosen, stored, and gone on with."""
    monkeypatch.setattr(auto_choice, "ROWS", 1200)
    data = written(tmp_path / "wide.svm", decisive())

    def trained(*words: object) -> bytes:
        lessram("train", data, "-o", tmp_path / "model", "--bits", 9, "--quiet", *words)
        return (tmp_path / "model").read_bytes()

    def weights(*words: object) -> str:
        trained(*words)
        return Model.load(tmp_path / "model").spec.weights

    automatic = trained("--threads", 1)
    spec = Model.load(tmp_path / "model").spec
    table = Model.load(tmp_path / "model").weights().tolist()
    assert spec.weights == "q5.10"
    assert trained("--threads", 2, "--weights", "auto") == automatic
    assert weights("--weights", spec.weights, "--alpha", spec.alpha) == spec.weights
    assert Model.load(tmp_path / "model").weights().tolist() == table
    assert weights("--rates", "squares6") == "e3m6x4"
    assert weights("--weights", "e3m6") == "e3m6"
    assert weights("--weights", "q3.12") == "q3.12"
    assert weights("--radius", 7) == "q3.12"
    assert weights("--preset", "paper", "--alpha", "auto") == "q2.13"
    trained()
    lessram("train", data, "-i", tmp_path / "model", "-o", tmp_path / "further", "--quiet")
    assert Model.load(tmp_path / "further").spec == spec


@pytest.mark.parametrize("rates", ["squares8", "squares6"])
def test_weights_at_the_end_of_their_range_are_told(tmp_path: Path, rates: str) -> None:
    data = written(tmp_path / "wide.svm", decisive())
    weights, wider = ("q3.12", "q4.11") if rates == "squares8" else ("e3m6", "e3m6x2")
    train = ["train", str(data), "-o", str(tmp_path / "model"), "--bits", "9", "--rates", rates, "--alpha", "5"]
    told = CliRunner().invoke(app, [*train, "--weights", weights, "--json", "-q"])
    model = Model.load(tmp_path / "model")
    at_the_end = int((np.abs(model.weights()) == model.spec.grid.largest).sum())
    assert json.loads(told.stdout)["saturated"] == at_the_end > 1
    hint = f"{at_the_end} weights stand at the end of {weights}, +-{model.spec.grid.largest:g}: --weights {wider} might"
    assert hint in told.stderr
    shown = CliRunner().invoke(app, ["info", str(tmp_path / "model")])
    assert hint in shown.stderr
    assert f"saturated{at_the_end:>16}" in shown.stdout
    wished = CliRunner().invoke(app, [*train, "--weights", weights, "--radius", "1", "-q"])
    assert "stand at the end" not in wished.stderr
    assert json.loads(lessram("info", tmp_path / "model", "--json"))["saturated"] > 1


def test_the_paper_s_preset(data: Path, tmp_path: Path) -> None:
    small = ("--bits", 9, "--quiet")
    lessram("train", data, "-o", tmp_path / "a", *small, "--preset", "paper")
    said = ("--weights", "q2.13", "--rates", "morris8", "--step", "plain", "--alpha", 0.2)
    lessram("train", data, "-o", tmp_path / "b", *small, *said)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert Model.load(tmp_path / "a").spec == Spec.paper(slots=512)
    lessram("train", data, "-o", tmp_path / "c", *small, "--preset", "paper", "--alpha", "auto", "--weights", "q2.9")
    assert (Model.load(tmp_path / "c").spec.weights, Model.load(tmp_path / "c").spec.rates) == ("q2.9", "morris8")
    assert Model.load(tmp_path / "c").spec.alpha in set(CANDIDATES) - {PAPER["alpha"]}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--alpha", "fast"], "--alpha must be a number, auto or frozen, got 'fast'"),
        (["--preset", "fast"], "--preset must be paper, got 'fast'"),
        (["-i", "MODEL", "--preset", "paper"], "--preset cannot be changed when going on"),
        (["-i", "MODEL", "--alpha", "auto"], "--alpha cannot be changed when going on"),
        (["-i", "MODEL", "--weights", "auto"], "--weights cannot be changed when going on"),
    ],
)
def test_what_cannot_be_chosen(data: Path, tmp_path: Path, words: list[str], message: str) -> None:
    Model.new(SPEC).save(tmp_path / "MODEL")
    chosen = [str(tmp_path / word) if word == "MODEL" else word for word in words]
    assert message in lessram("train", data, "-o", tmp_path / "out", *chosen, code=2)


# From Python ----------------------------------------------------------------------------------------------------------


def test_the_estimator_chooses_for_its_passes() -> None:
    batch = stream(2000)
    X = np.zeros((2000, 500))
    X[np.repeat(np.arange(2000), 10), batch.slots] = 1.0
    single = LogisticRegression(passes=1, random_state=4).fit(X, batch.labels)
    given = LogisticRegression(passes=1, random_state=4, alpha=single.models_[0].spec.alpha).fit(X, batch.labels)
    assert (single.models_[0].weights() == given.models_[0].weights()).all()
    assert single.models_[0].spec.alpha != DEFAULT_ALPHA
    fourfold = LogisticRegression(passes=4, random_state=4).fit(X, batch.labels)
    assert fourfold.models_[0].spec.alpha == single.models_[0].spec.alpha / 2
    streaming = LogisticRegression().partial_fit(X, batch.labels, classes=[0, 1])
    assert streaming.models_[0].spec.alpha == DEFAULT_ALPHA
    several = LogisticRegression(passes=1).fit(X, batch.slots.reshape(-1, 10)[:, 0] % 3)
    assert len(several.models_) == 3
    assert all(model.spec.alpha in CANDIDATES for model in several.models_)


def test_the_estimator_chooses_a_range() -> None:
    batch = decisive()
    X = np.eye(4)[batch.slots] * batch.values[:, None]
    found = LogisticRegression(passes=1).fit(X, batch.labels).models_[0].spec
    assert found.weights == choose(Spec(slots=4), batch, range=True).spec.weights == "q5.10"
    assert LogisticRegression(passes=1, weights="q3.12").fit(X, batch.labels).models_[0].spec.weights == "q3.12"
    assert LogisticRegression(passes=1, alpha=0.05).fit(X, batch.labels).models_[0].spec.weights == "q3.12"
    small = LogisticRegression(passes=1, rates="squares6").fit(X, batch.labels).models_[0].spec
    assert (small.weights, small.rates) == ("e3m6x4", "squares6")
    streaming = LogisticRegression().partial_fit(X, batch.labels, classes=[0, 1])
    assert streaming.models_[0].spec.weights == "q3.12"


# For a model that is then frozen


def drifting(rows: int = 4000, seed: int = 8) -> Batch:
    """Ten features out of 500; their effects hold, but a mood of a hundred rows says more than they do."""
    rng = np.random.default_rng(seed)
    slots, effects = rng.integers(0, 400, (rows, 10)), rng.normal(size=500)
    slots[:, 0] = 400 + rng.integers(0, 3, rows)
    mood = np.repeat(rng.choice([-6.0, 6.0], rows // 100), 100) * (1 + (slots[:, 0] - 400))
    labels = effects[slots[:, 1:]].sum(axis=1) + mood > 0
    return Batch(labels.astype(np.float32), np.arange(rows + 1) * 10, slots.astype(np.uint32).ravel())


def frozen_loss(alpha: float, batch: Batch, learned: int) -> float:
    learner, rest = Learner(msgspec.structs.replace(SPEC, alpha=alpha)), batch.slice(learned, batch.rows)
    learner.learn(batch.slice(0, learned))
    return loss_of(learner.predict(rest), rest)


def test_a_frozen_model_gets_an_alpha_of_its_own_where_the_world_drifts() -> None:
    first, whole = drifting(), drifting(12_000)
    auto, frozen = (choose(SPEC, first, frozen=frozen) for frozen in (False, True))
    assert frozen.spec.alpha < auto.spec.alpha
    assert (frozen.margins == auto.margins).all(), "what is shown has not seen the choice"
    assert frozen_loss(frozen.spec.alpha, whole, 4000) < 0.9 * frozen_loss(auto.spec.alpha, whole, 4000)


def test_where_nothing_drifts_both_are_the_same() -> None:
    assert choose(SPEC, stream(), frozen=True).spec == choose(SPEC, stream()).spec


def test_a_gain_that_is_too_small_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen_choice, "LEAST_GAIN", 0.9)
    assert choose(SPEC, drifting(), frozen=True).spec == choose(SPEC, drifting()).spec


def test_the_command_and_the_estimator_choose_for_a_frozen_model(tmp_path: Path) -> None:
    batch = drifting()
    rows = batch.slots.reshape(batch.rows, -1).tolist()
    lines = [f"{int(y)} {' '.join(map(str, row))}\n" for y, row in zip(batch.labels, rows, strict=True)]
    (tmp_path / "rows.svm").write_text("".join(lines))
    alphas = {}
    for alpha in ("auto", "frozen"):
        words = ["train", str(tmp_path / "rows.svm"), "-o", str(tmp_path / "model"), "--alpha", alpha, "--bits", "12"]
        assert CliRunner().invoke(app, words).exit_code == 0
        alphas[alpha] = Model.load(tmp_path / "model").spec.alpha
    assert alphas["frozen"] < alphas["auto"]
    X = sp.csr_array((np.ones(batch.features, np.float32), batch.slots, batch.indptr), shape=(batch.rows, 500))
    for alpha, expected in alphas.items():
        assert LogisticRegression(alpha=alpha, passes=1).fit(X, batch.labels).models_[0].spec.alpha == expected
    streamed = LogisticRegression(alpha="frozen").partial_fit(X, batch.labels, classes=[0, 1])
    assert streamed.models_[0].spec.alpha == DEFAULT_ALPHA
