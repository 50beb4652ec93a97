"""Sources to batches, in order and in constant memory, with an account of what was skipped."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any

import msgspec
import numpy as np

from lessram.data.batch import Batch
from lessram.data.cache import Cache
from lessram.data.formats import Choices, Form, Reading, Stream, TableStream
from lessram.data.parsing import QUOTED, BadLine, slot_count
from lessram.data.pipeline import Parts, Rest, use_wholly
from lessram.data.rows import ParsedPart
from lessram.data.schema import Schema
from lessram.data.source import Place, as_paths
from lessram.errors import DataError, SpecError, TooManyErrors


class Position(Place, frozen=True):
    """A place between two batches: reading can stop here and go on here."""

    skipped: int = 0
    """Bad lines so far."""
    hashed: int = 0
    """Ids hashed so far."""
    unlabelled: int = 0
    """Examples without a label so far."""


class Report:
    """What happened on the way: for limits while reading, for the summary afterwards."""

    def __init__(self, max_errors: int, start: Position | None = None) -> None:
        if max_errors < 0:
            raise SpecError(f"max_errors must not be negative, got {max_errors}")
        start = start or Position()
        if max_errors < start.skipped:
            raise SpecError(f"max_errors must cover the {start.skipped} bad lines before the start, got {max_errors}")
        self.max_errors = max_errors
        self.skipped = start.skipped
        """Bad lines."""
        self.hashed = start.hashed
        """Features that were hashed, because they are no slots or because all are."""
        self.unlabelled = start.unlabelled
        """Examples without a label, which were left out."""
        self.messages: list[str] = []
        """The first few bad lines: place, what was found, what was expected."""
        self.columns: dict[str, bool] = {}
        """Of JSON lines, in which columns may be missing: whether each that features are made of had a value."""
        self.featureless = 0
        """Rows of JSON lines that gave no feature."""

    def add(self, bad: int, reports: list[BadLine], hashed: int, unlabelled: int) -> None:
        """Account for one part; parts come in order. Raises when there are too many bad lines."""
        allowed = self.left()
        self.skipped += bad
        self.hashed += hashed
        self.unlabelled += unlabelled
        room = QUOTED - len(self.messages)
        self.messages += [f"{place}: {message}" for place, message in reports[:room]]
        if bad > allowed:
            place, message = reports[-1]  # parsers give up behind the first line that is one too many
            if self.max_errors == 0:
                raise DataError(message, place=place)
            raise TooManyErrors(f"{message}; {self.skipped} bad lines, {self.max_errors} allowed", place=place)

    def look_at_columns(self, schema: Schema, part: ParsedPart) -> None:
        """Account for what is missing from the rows of JSON lines."""
        if part.met is None or not part.batch.rows:
            return
        met = dict(zip(schema.columns, part.met.tolist(), strict=True))
        self.columns = {name: met[name] or self.columns.get(name, False) for name in schema.features}
        self.featureless += int(np.count_nonzero(np.diff(part.batch.indptr) == 0))

    def left(self) -> int:
        """How many more bad lines are allowed."""
        return self.max_errors - self.skipped


class BatchReader:
    """An iterator of (batch, position behind it).

    The arrays of a batch are used again for the next one: copy what must outlive it.
    """

    def __init__(
        self,
        stream: Stream,
        reading: Reading,
        *,
        slots: int,
        labels: str = "binary",
        keep_unlabelled: bool = False,
        max_errors: int = 0,
        start: Position | None = None,
        threads: int = 1,
        cache: Cache | None = None,
    ) -> None:
        slots = slot_count(slots)
        if threads < 1:
            raise SpecError(f"threads must be at least 1, got {threads}")
        self.report = Report(max_errors, start)
        self.reader = msgspec.to_builtins(reading)
        """How features become slots: keep it as `model.reader`, and the model's files know it."""
        self.position = start or Position()
        self._schema, self._keeps_unlabelled = reading.schema, keep_unlabelled
        tolerate = self.report.left
        cached = cache.parts(self.position, tolerate=tolerate, threads=threads) if cache else None
        self._parts: Iterable[ParsedPart] = cached or stream.parts(
            reading, slots, labels=labels, keep_unlabelled=keep_unlabelled, tolerate=tolerate, threads=threads
        )
        if cache and not cached and self.position == Position():  # a part of the sources is of no use to others
            self._parts = cache.recording(self._parts)
        self._iterator: Iterator[ParsedPart] | None = None

    def __iter__(self) -> Iterator[tuple[Batch, Position]]:
        return self

    def __next__(self) -> tuple[Batch, Position]:
        self._iterator = self._iterator or iter(self._parts)
        for part in self._iterator:
            try:
                self._account(part)
            except DataError:
                self.close()
                raise
            if part.batch.rows:
                return part.batch, self.position
        raise StopIteration

    def use_in_turn(self, use: Callable[[Batch, Position], Rest | None]) -> Generator[None]:
        """Have every batch used, in order; yields from time to time.

        Several threads use the batches themselves, one after another: faster than iterating. What `use` returns is
        called in order, too, maybe by another thread while the next batch is in use.
        Everything of this object may be looked at meanwhile, but changes.
        """

        def use_part(part: ParsedPart) -> Rest | None:
            self._account(part)
            return use(part.batch, self.position) if part.batch.rows else None

        if isinstance(self._parts, Parts):
            yield from self._parts.use_in_turn(use_part)
            return
        for part in self._parts:
            use_wholly(use_part, part)
            yield

    def _account(self, part: ParsedPart) -> None:
        report, place = self.report, part.stop
        left_out = 0 if self._keeps_unlabelled else part.unlabelled
        report.add(part.bad, part.reports, part.hashed, left_out)
        if self._schema is not None:
            report.look_at_columns(self._schema, part)
        self.position = Position(
            place.source, place.offset, place.line, report.skipped, report.hashed, report.unlabelled
        )

    def close(self) -> None:
        """Stop reading: threads end and open files are closed."""
        for parts in (self._iterator, self._parts):
            if isinstance(parts, Generator):
                parts.close()
        self._iterator = iter(())


def read_batches(
    sources: Any,
    *,
    slots: int,
    format: str = "auto",
    label: str | None = None,
    choices: Choices | None = None,
    reader: Mapping[str, Any] | None = None,
    hash: str = "auto",
    hash_seed: int = 0,
    labels: str = "binary",
    max_errors: int = 0,
    start: Position | None = None,
    threads: int = 1,
) -> BatchReader:
    """Read files, globs, directories and standard input (`-`), compressed or not, of any format; or a table in memory.

    `sources`: one path or several; or Arrow, a frame of Polars or pandas, a relation of DuckDB, or what else speaks
    Arrow. Tables need the `label`, the column to be predicted; `choices` say more about columns and namespaces, in the
    place of `label` and `hash`; `reader=model.reader` reads as a model was trained to read, with its label, columns and
    scales: for further data of the same kind. `hash`: "auto" takes numbers below the number of slots as they are and
    hashes everything else, "all" hashes every id, "none" makes a larger id an error. `labels`: "binary" or "real".
    `max_errors` bad lines are skipped and counted; one more raises `TooManyErrors`, and with 0 the first `DataError`.

    Iterate over the result for (batch, position) pairs; its `report` has the number of `skipped` lines, the first
    `messages` and the number of `hashed` ids, its `reader` what a model must remember to read the like again. Pass a
    position as `start` to go on behind its batch.

    >>> import pyarrow
    >>> table = pyarrow.table({"click": [1, 0, 1], "site": ["a", "b", "a"]})
    >>> [batch.rows for batch, _ in read_batches(table, slots=2**18, label="click")]
    [3]
    """
    given = {"label": label, "hash": hash, "hash_seed": hash_seed}
    _check_said_once(given, {"reader": reader, "choices": choices})
    paths = as_paths(sources)
    stream = TableStream(sources, start) if paths is None else Stream(paths, Form(name=format), start)
    if reader is not None:
        reading = msgspec.convert(reader, Reading)
    else:
        reading = stream.decide(choices or Choices(hash=hash, hash_seed=hash_seed, label=label), in_python=True)
    return BatchReader(stream, reading, slots=slots, labels=labels, max_errors=max_errors, start=start, threads=threads)


def _check_said_once(given: dict[str, Any], others: dict[str, Any]) -> None:
    """What says all about features leaves nothing to be said beside it, which would not be heard."""
    used = [name for name, value in others.items() if value is not None]
    usual = {"label": None, "hash": "auto", "hash_seed": 0}
    beside = [name for name, value in given.items() if used and value != usual[name]] + used[1:]
    if beside:
        raise SpecError(f"{used[0]} says how features become slots: leave out {', '.join(beside)}")
