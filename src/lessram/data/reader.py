"""Sources to batches, in order and in constant memory, with an account of what was skipped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lessram.data.batch import Batch
from lessram.data.parsing import Parsed, RowBuffers, make_rules
from lessram.data.source import ChunkReader, Place, TextBuffer
from lessram.data.svmlight import parse
from lessram.errors import DataError, SpecError, TooManyErrors

MESSAGES = 10  # bad lines that the report quotes


class Position(Place, frozen=True):
    """A place between two batches: reading can stop here and go on here."""

    skipped: int = 0
    """Bad lines so far."""
    hashed: int = 0
    """Ids hashed so far."""


class Report:
    """What happened on the way: for limits while reading, for the summary afterwards."""

    def __init__(self, max_errors: int, skipped: int = 0, hashed: int = 0) -> None:
        if max_errors < 0:
            raise SpecError(f"max_errors must not be negative, got {max_errors}")
        self.max_errors = max_errors
        self.skipped = skipped
        """Bad lines."""
        self.hashed = hashed
        """Ids that were hashed, because they are no slots or because all are."""
        self.messages: list[str] = []
        """The first few bad lines: place, what was found, what was expected."""

    def add(self, parsed: Parsed) -> None:
        """Account for one chunk; chunks come in order. Raises when there are too many bad lines."""
        self.skipped += parsed.bad
        self.hashed += parsed.hashed
        room = MESSAGES - len(self.messages)
        self.messages += [f"{place}: {message}" for place, message in parsed.reports[:room]]
        if self.skipped > self.max_errors:
            place, message = parsed.reports[-1]
            if self.max_errors == 0:
                raise DataError(message, place=place)
            raise TooManyErrors(f"{message}; {self.skipped} bad lines, {self.max_errors} allowed", place=place)


class BatchReader:
    """An iterator of (batch, position behind it).

    The arrays of a batch are used again for the next one: copy what must outlive it.
    """

    def __init__(
        self,
        sources: Sequence[str],
        *,
        slots: int,
        hash: str = "auto",
        hash_seed: int = 0,
        labels: str = "binary",
        max_errors: int = 0,
        start: Position | None = None,
    ) -> None:
        self.position = start or Position()
        self.report = Report(max_errors, self.position.skipped, self.position.hashed)
        self._rules = make_rules(slots, hash=hash, hash_seed=hash_seed, labels=labels)
        self._chunks = ChunkReader(sources, self.position)
        self._text = TextBuffer()
        self._rows = RowBuffers(self._rules)

    def __iter__(self) -> Iterator[tuple[Batch, Position]]:
        return self

    def __next__(self) -> tuple[Batch, Position]:
        while (chunk := self._chunks.read(self._text)) is not None:
            parsed = parse(chunk, self._rows, self._rules, tolerate=self.report.max_errors - self.report.skipped)
            self.report.add(parsed)
            place = chunk.stop
            self.position = Position(place.source, place.offset, place.line, self.report.skipped, self.report.hashed)
            if parsed.batch.rows:
                return parsed.batch, self.position
        raise StopIteration

    def close(self) -> None:
        self._chunks.close()


def read_batches(
    sources: Sequence[str],
    *,
    slots: int,
    hash: str = "auto",
    hash_seed: int = 0,
    labels: str = "binary",
    max_errors: int = 0,
    start: Position | None = None,
) -> BatchReader:
    """Read svmlight text from files, globs, directories and standard input (`-`), compressed or not.

    `hash`: "auto" takes ids below the number of slots as they are and hashes larger ones, "all" hashes every
    id, "none" makes a larger id an error. `labels`: "binary" or "real". `max_errors` bad lines are skipped and
    counted; one more raises `TooManyErrors`, and with 0 the first raises `DataError`.

    Iterate over the result for (batch, position) pairs; its `report` has the number of `skipped` lines, the first
    `messages` and the number of `hashed` ids. Pass a position as `start` to go on behind its batch.
    """
    return BatchReader(
        sources, slots=slots, hash=hash, hash_seed=hash_seed, labels=labels, max_errors=max_errors, start=start
    )
