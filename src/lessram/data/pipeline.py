"""Chunks to batches on all cores, in the order of the stream.

Every worker owns a text buffer and a parser. It takes the next chunk (reading and decompressing happen one at a
time, under a lock), parses it, and waits until its batch has been used before it goes on: so memory is bounded by
the number of workers. There is one worker more than threads, because one is always waiting while its batch is
learned from. Batches leave in the order of their chunks, and each holds exactly the rows that one thread would
have found in it: results do not depend on the number of threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from lessram.data.rows import ParsedPart
from lessram.data.source import Chunk, Place, TextBuffer


class Chunks(Protocol):
    """What hands out chunks, one after another."""

    def read(self, buffer: TextBuffer) -> Chunk | None:
        """The next chunk, in the buffer; None at the end."""


class Parser(Protocol):
    """What turns a chunk into rows, possibly in several parts."""

    def parse(self, chunk: Chunk, start: Place | None = None, *, tolerate: int = 0) -> ParsedPart:
        """Parse from the start, or from where the last part stopped."""


def parsed_parts(
    chunks: Chunks, make_parser: Callable[[], Parser], *, tolerate: Callable[[], int], threads: int = 1
) -> Iterator[ParsedPart]:
    """The parts of all chunks, in order. A part is valid until the next one is asked for.

    `tolerate` says how many more bad lines are allowed; who uses the parts stops asking when there were too many.
    """
    if threads == 1:
        return _in_this_thread(chunks, make_parser(), tolerate)
    return _Pool(chunks, make_parser, tolerate, threads + 1).parts()


def _in_this_thread(chunks: Chunks, parser: Parser, tolerate: Callable[[], int]) -> Iterator[ParsedPart]:
    buffer = TextBuffer()
    while (chunk := chunks.read(buffer)) is not None:
        yield from _parts_of(chunk, parser, tolerate)


def _parts_of(chunk: Chunk, parser: Parser, tolerate: Callable[[], int]) -> Iterator[ParsedPart]:
    part = parser.parse(chunk, tolerate=tolerate())
    yield part
    while part.stop != chunk.stop:
        part = parser.parse(chunk, part.stop, tolerate=tolerate())
        yield part


class _Ready(NamedTuple):
    """A part whose turn has to come; `used` tells its worker to go on."""

    part: ParsedPart | BaseException | None
    last: bool
    used: threading.Event


class _Pool:
    """Workers that parse ahead of the one who uses what they found."""

    def __init__(
        self, chunks: Chunks, make_parser: Callable[[], Parser], tolerate: Callable[[], int], workers: int
    ) -> None:
        self._chunks = chunks
        self._make_parser = make_parser
        self._tolerate = tolerate
        self._reading = threading.Lock()
        self._next = 0
        self._changed = threading.Condition()
        self._ready: dict[int, _Ready] = {}
        self._stopped = False
        self._workers = [threading.Thread(target=self._work, daemon=True) for _ in range(workers)]

    def parts(self) -> Iterator[ParsedPart]:
        """Hand out parts in order until the end, or until nobody asks any more."""
        for worker in self._workers:
            worker.start()
        number, ready = 0, None
        try:
            while True:
                ready = self._take(number)
                if ready.part is None:
                    return
                if isinstance(ready.part, BaseException):
                    raise ready.part
                yield ready.part
                ready.used.set()
                number += ready.last
        finally:
            self._stop()
            if ready is not None:  # its worker waits for a turn that will not come
                ready.used.set()

    def _take(self, number: int) -> _Ready:
        with self._changed:
            self._changed.wait_for(lambda: number in self._ready)
            return self._ready.pop(number)

    def _stop(self) -> None:
        with self._changed:
            self._stopped = True
            for ready in self._ready.values():
                ready.used.set()
        # Those in the midst of parsing end by themselves: nothing waits for them, and they hold nothing but memory.

    def _work(self) -> None:
        buffer, used = TextBuffer(), threading.Event()
        try:
            parser = self._make_parser()
        except BaseException as error:
            return self._post(self._number(), _Ready(error, True, used))
        while not self._stopped:
            with self._reading:
                number = self._number()
                try:
                    chunk = self._chunks.read(buffer)
                except BaseException as error:
                    return self._post(number, _Ready(error, True, used))
            if chunk is None:
                return self._post(number, _Ready(None, True, used))
            try:
                self._hand_out(number, chunk, parser, used)
            except BaseException as error:
                return self._post(number, _Ready(error, True, used))
        return None

    def _number(self) -> int:
        number, self._next = self._next, self._next + 1
        return number

    def _hand_out(self, number: int, chunk: Chunk, parser: Parser, used: threading.Event) -> None:
        for part in _parts_of(chunk, parser, self._tolerate):
            used.clear()
            self._post(number, _Ready(part, part.stop == chunk.stop, used))
            used.wait()
            if self._stopped:
                return

    def _post(self, number: int, ready: _Ready) -> None:
        with self._changed:
            if self._stopped:
                ready.used.set()
            self._ready[number] = ready
            self._changed.notify_all()
