"""A training run that can be stopped at any moment and gone on with: sources, passes, checkpoints.

What a run is (`Plan`) and where it stands (`Standing`) are written into every checkpoint. Going on from
one gives the same bytes as never having stopped; sources that changed since are refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import closing
from functools import partial

import msgspec

from lessram.data.batch import Batch
from lessram.data.cache import Cache, DamagedCache, Key
from lessram.data.formats import COMPRESSED, Form, Reading, Stream
from lessram.data.pipeline import Rest, use_wholly
from lessram.data.reader import BatchReader, Position, Report
from lessram.data.remote import is_url
from lessram.data.schema import MISSING_COLUMN
from lessram.data.shuffle import Shuffler
from lessram.data.source import STDIN, Identity, identify
from lessram.errors import DataError, FileFormatError, SpecError
from lessram.learning import auto_choice
from lessram.learning.learner import Learner
from lessram.learning.metrics import Scores
from lessram.learning.progressive import scored_learning, scores_of
from lessram.model.model import Described, Model

CHECKPOINT_EVERY = 1_000_000


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a run does."""

    sources: list[Identity]
    form: Form
    reading: Reading
    passes: int = 1
    max_errors: int = 0
    checkpoint: str | None = None
    checkpoint_every: int = CHECKPOINT_EVERY
    threads: int = 1
    cache: str | None = None
    """Where parsed batches are kept for further passes and runs."""
    shuffle: int = 0
    """How many examples the shuffling buffer holds; 0 for the order of the stream."""

    def __post_init__(self) -> None:
        if self.passes < 1:
            raise SpecError(f"passes must be at least 1, got {self.passes}")
        reads_stdin = any(source.path == STDIN for source in self.sources)
        if reads_stdin and self.passes > 1:
            raise SpecError("standard input can be read once only: use --passes 1, or a file")
        if reads_stdin and self.checkpoint is not None:
            raise SpecError("a run over standard input cannot be resumed: leave out --checkpoint, or use a file")
        if self.cache is not None and any(source.size < 0 for source in self.sources):
            raise SpecError("what comes through a pipe cannot be cached: leave out --cache, or use a file")
        if self.shuffle < 0 or self.shuffle == 1:
            raise SpecError(f"shuffle must be 0 or at least 2 examples, got {self.shuffle}")
        if self.shuffle and self.checkpoint is not None:
            raise SpecError("a checkpoint has no place for a shuffling buffer: leave out --checkpoint or --shuffle")


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run stands: the pass, from 0 on, and the place in its sources."""

    plan: Plan
    pass_number: int
    position: Position


def plan_sources(sources: list[str]) -> list[Identity]:
    """The files behind a list of sources, as they are now, by absolute path."""
    return [
        identity
        if identity.path == STDIN or is_url(identity.path)
        else msgspec.structs.replace(identity, path=os.path.abspath(identity.path))
        for identity in identify(sources)
    ]


class Training:
    """Carries out a plan on a model, batch by batch. `stream` is the plan's sources, if they are open already.

    `auto_alpha`, `auto_range`: the first examples choose the model's alpha and how far its weights may reach
    (`auto_choice.py`), with `frozen` for a model that will not learn on; what they chose stands in every checkpoint.
    """

    def __init__(
        self,
        model: Model,
        plan: Plan,
        standing: Standing | None = None,
        stream: Stream | None = None,
        auto_alpha: bool = False,
        auto_range: bool = False,
        frozen: bool = False,
    ) -> None:
        if model.reader and reading_of(model) != plan.reading:
            raise SpecError(_difference(reading_of(model), plan.reading, plan.sources[0].path))
        model.reader = msgspec.to_builtins(plan.reading)
        self._stream = stream
        self.model = model
        self.learner = Learner(model)
        self._choices = {"alpha": auto_alpha, "range": auto_range, "frozen": frozen}
        self._choosing = auto_alpha or auto_range
        self.plan = plan
        self.report = Report(plan.max_errors)
        self.position = standing.position if standing else Position()
        self.pass_number = standing.pass_number if standing else 0
        self.buffer_bytes = 0
        """The most memory that the shuffling buffer has taken."""
        self._saved_at = model.examples
        self._foreign = None if standing else _file_number(plan.checkpoint)
        self._cache = self._open_cache()

    @classmethod
    def resumed(cls, checkpoint: str | os.PathLike[str]) -> Training:
        """Go on where a checkpoint stands."""
        model = Model.load(checkpoint, writable=True)
        if model.progress is None:
            raise FileFormatError(f"{os.fspath(checkpoint)}: a finished model, expected a checkpoint")
        try:
            standing = msgspec.convert(model.progress, Standing)
        except msgspec.ValidationError as error:
            raise FileFormatError(f"{os.fspath(checkpoint)}: cannot be resumed: {error}") from None
        model.progress = None
        for source in standing.plan.sources:
            _check_unchanged(source)
        return cls(model, standing.plan, standing)

    @property
    def scores(self) -> Scores:
        """Progressive validation over the model's life."""
        return scores_of(self.model)

    def run(self) -> Generator[float | None]:
        """Learn everything; yields from time to time, with the share of the input that is done, if known."""
        self._saved_at = self.model.examples
        while self.pass_number < self.plan.passes:
            reader = self._reader()
            try:
                with closing(self._steps(reader)) as steps:
                    for _ in steps:
                        yield self._share()
            except DamagedCache as error:
                assert self._cache is not None
                self._cache.remove(str(error))
                continue  # from the sources, at the place up to which the cache was good
            finally:
                reader.close()
            self.report = reader.report
            self.pass_number += 1
            self.position = Position()  # what a pass skips and hashes, the next one skips and hashes again

    @property
    def notes(self) -> list[str]:
        """What a user should know about the cache and about learning."""
        return (self._cache.notes if self._cache else []) + self.learner.notes

    @property
    def resumable(self) -> bool:
        """Whether there is a checkpoint of this run; one of an earlier run may lie at the same place."""
        return _file_number(self.plan.checkpoint) not in (None, self._foreign)

    def save_checkpoint(self) -> None:
        """Write the model together with where the run stands."""
        assert self.plan.checkpoint is not None
        standing = Standing(plan=self.plan, pass_number=self.pass_number, position=self.position)
        self.model.progress = msgspec.to_builtins(standing)
        try:
            self.model.save(self.plan.checkpoint)
        finally:
            self.model.progress = None

    def _reader(self) -> BatchReader:
        stream, self._stream = self._stream, None
        reader = BatchReader(
            stream or Stream([source.path for source in self.plan.sources], self.plan.form, self.position),
            self.plan.reading,
            slots=self.model.spec.slots,
            labels=labels_of(self.model),
            max_errors=self.plan.max_errors,
            start=self.position,
            threads=self.plan.threads,
            cache=self._cache,
        )
        self.report = reader.report
        return reader

    def _open_cache(self) -> Cache | None:
        plan = self.plan
        if plan.cache is None:
            return None
        key = Key(
            sources=plan.sources,
            form=plan.form,
            reading=plan.reading,
            slots=self.model.spec.slots,
            labels=labels_of(self.model),
            max_errors=plan.max_errors,
        )
        return Cache(plan.cache, key)

    def _steps(self, reader: BatchReader) -> Generator[None]:
        """Learn a pass; yields from time to time."""
        # A later pass has seen the labels: only the first is scored.
        self._learn: Callable[[Batch], Rest | None] = (
            scored_learning(self.learner) if self.pass_number == 0 else self._learn_unscored
        )
        first = auto_choice.FirstExamples[Position]()
        use = partial(self._look_ahead, first) if self._choosing else self._use
        yield from self._shuffled(reader, use) if self.plan.shuffle else reader.use_in_turn(use)
        if self._choosing:  # there were not more
            self._begin(first)
            yield

    def _learn_unscored(self, batch: Batch) -> None:
        self.learner.learn(batch, trusted=True)

    def _use(self, batch: Batch, place: Position) -> Rest | None:
        """Learn a batch; what scores it may wait, except for a checkpoint."""
        if not self.plan.checkpoint:
            score = self._learn(batch)
            self.position = place
            return score
        use_wholly(self._learn, batch)
        self.position = place
        self._save_if_due()
        return None

    def _save_if_due(self) -> None:
        if self.plan.checkpoint and self.model.examples - self._saved_at >= self.plan.checkpoint_every:
            self.save_checkpoint()
            self._saved_at = self.model.examples

    def _look_ahead(self, first: auto_choice.FirstExamples[Position], batch: Batch, place: Position) -> Rest | None:
        """Keep batches until there are enough to choose by."""
        if not self._choosing:
            return self._use(batch, place)
        first.keep(batch, place)
        if first.enough:
            self._begin(first)
        return None

    def _begin(self, first: auto_choice.FirstExamples[Position]) -> None:
        """Choose by the first examples, then learn them."""
        self._choosing = False
        examples = first.examples()
        if examples is not None:
            choice = auto_choice.choose(self.model.spec, examples, passes=self.plan.passes, **self._choices)
            self.model.spec = choice.spec
            self.learner = Learner(self.model)
            self._learn = scored_learning(self.learner, choice.margins)
        for batch, place in first.hand_out():
            use_wholly(self._learn, batch)
            self.position = place
        self._save_if_due()  # not before: what they are scored by is in no checkpoint

    def _shuffled(self, reader: BatchReader, use: Callable[[Batch, Position], Rest | None]) -> Generator[None]:
        # Salted by the number of examples: every pass has an order of its own.
        shuffler = Shuffler(self.plan.shuffle, self.model.spec.seed, self.model.examples)
        for batch, place in shuffler.stream(reader):
            self.buffer_bytes = max(self.buffer_bytes, shuffler.nbytes)
            use_wholly(use, batch, place)
            yield

    def _share(self) -> float | None:
        """The part of all bytes that is done; unknown for compressed input and pipes."""
        sizes = [source.size for source in self.plan.sources]
        total = sum(sizes)
        packed = self.plan.form.name == "parquet" or any(s.path.endswith(COMPRESSED) for s in self.plan.sources)
        if packed or min(sizes) < 0 or total == 0 or self.position.offset > sizes[self.position.source]:
            return None
        done = sum(sizes[: self.position.source]) + self.position.offset
        return (self.pass_number + done / total) / self.plan.passes


def _file_number(path: str | None) -> int | None:
    """What tells a file from another that had the same name before; None where there is none."""
    try:
        return None if path is None else os.stat(path).st_mtime_ns
    except OSError:
        return None


def reading_of(model: Described) -> Reading:
    """How the features of a model became slots."""
    return msgspec.convert(model.reader, Reading)


def as_before(reading: Reading, model: Model) -> Reading:
    """A reading of new data for a model that goes on: numeric columns keep the scales that it was trained with."""
    before = reading_of(model).schema if model.reader else None
    if before is None or reading.schema is None:
        return reading
    return msgspec.structs.replace(reading, schema=msgspec.structs.replace(reading.schema, scales=before.scales))


def _difference(before: Reading, now: Reading, place: str) -> str:
    """What is not as it was when a model was trained, in a sentence. `place`: where the new data begin."""
    if before.kind != now.kind:
        return f"the model was trained on {before.kind}, got {now.kind}"
    was, found = before.schema, now.schema
    if was is None or found is None:
        changed = [name for name in ("hash", "hash_seed", "vw") if getattr(before, name) != getattr(now, name)]
        return f"the model was trained with another {' and '.join(changed)}: leave the options out, it knows them"
    for name in was.columns:
        if name not in found.columns:
            return f"{place}: {MISSING_COLUMN.format(name)}"
        if was.of(name) != found.of(name):
            return f"column {name!r} is {found.of(name)} here and was {was.of(name)}: leave it to the model (-i)"
    if was.missing != found.missing:
        return "the model was trained with other missing words: leave them to the model (-i)"
    return "columns, tokens or interactions differ from those that the model was trained with: leave them to the model"


def labels_of(model: Described) -> str:
    """The labels that a model takes."""
    return "real" if model.spec.loss == "squared" else "binary"


def open_reader(
    sources: list[str],
    model: Described,
    form: Form,
    *,
    max_errors: int = 0,
    threads: int = 1,
) -> BatchReader:
    """Read labelled sources as a model was trained to read them."""
    return BatchReader(
        Stream(sources, form),
        reading_of(model),
        slots=model.spec.slots,
        labels=labels_of(model),
        max_errors=max_errors,
        threads=threads,
    )


def _check_unchanged(source: Identity) -> None:
    try:
        (now,) = identify([source.path])
    except DataError as error:
        raise DataError(f"cannot resume: {error}") from None
    if (now.size, now.mtime_ns) != (source.size, source.mtime_ns):
        raise DataError("cannot resume: the file changed since the checkpoint was written", place=source.path)
