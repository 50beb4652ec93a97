"""Chunks to batches on all cores, in the order of the stream.

Every thread owns a text buffer and a parser. It takes the next chunk (reading and decompressing happen one at a
time, under a lock), parses it, waits for its turn, and uses what it found before it goes on: so memory is bounded by
the number of threads, and what was just parsed is used while it is in the cache of the same core. Turns come in the
order of the chunks, and each chunk gives exactly the rows that one thread would have found in it: results do not
depend on the number of threads.

To use a part may be to learn from it (`Parts.use_in_turn`), or to hand it to somebody who iterates over `Parts`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Protocol

from lessram.data.rows import ParsedPart
from lessram.data.source import Chunk, Place, TextBuffer

NEWS = 0.05
"""Seconds between two looks at how far the threads are."""

Use = Callable[[ParsedPart], None]


class Chunks(Protocol):
    """What hands out chunks, one after another."""

    def read(self, buffer: TextBuffer) -> Chunk | None:
        """The next chunk, in the buffer; None at the end."""


class Parser(Protocol):
    """What turns a chunk into rows, possibly in several parts."""

    def parse(self, chunk: Chunk, start: Place | None = None, *, tolerate: int = 0) -> ParsedPart:
        """Parse from the start, or from where the last part stopped."""


class Parts:
    """The parts of all chunks, once: iterate over them, or have them used by the threads that parse them.

    `tolerate` says how many more bad lines are allowed; who uses the parts stops when there were too many.
    """

    def __init__(
        self, chunks: Chunks, make_parser: Callable[[], Parser], *, tolerate: Callable[[], int], threads: int = 1
    ) -> None:
        self._chunks, self._tolerate, self._threads = chunks, tolerate, threads
        self._make_parser = make_parser
        self._parser = make_parser()  # wrong choices are refused at once

    def __iter__(self) -> Generator[ParsedPart]:
        """The parts in order. Each is valid until the next one is asked for."""
        return self._in_this_thread() if self._threads == 1 else self._from_threads()

    def use_in_turn(self, use: Use) -> Generator[None]:
        """Have every part used, in order; yields from time to time. What `use` raises comes out here.

        If the iteration is closed early, it waits for the part that is just being used.
        """
        if self._threads == 1:
            for part in self._in_this_thread():
                use(part)
                yield
            return
        ended = threading.Event()
        with self._turns(self._threads, use, ended.set) as turns:
            while not ended.wait(NEWS):
                yield
            turns.raise_error()
        yield

    def _in_this_thread(self) -> Generator[ParsedPart]:
        buffer = TextBuffer()
        while (chunk := self._chunks.read(buffer)) is not None:
            yield from _parts_of(chunk, self._parser, self._tolerate)

    def _from_threads(self) -> Generator[ParsedPart]:
        hatch = _Hatch()
        # One thread more, because one is always waiting while its part is in use here.
        with self._turns(self._threads + 1, hatch.put, hatch.end) as turns:
            try:
                yield from hatch.parts()
            finally:
                turns.stop()  # before the hatch lets go: whoever waits there would go on and read
                hatch.close()
            turns.raise_error()

    def _turns(self, threads: int, use: Use, at_end: Callable[[], None]) -> _Turns:
        parsers = [self._parser, *(self._make_parser() for _ in range(1, threads))]
        return _Turns(self._chunks, parsers, self._tolerate, use, at_end)


def _parts_of(chunk: Chunk, parser: Parser, tolerate: Callable[[], int]) -> Iterator[ParsedPart]:
    part = parser.parse(chunk, tolerate=tolerate())
    yield part
    while part.stop != chunk.stop:
        part = parser.parse(chunk, part.stop, tolerate=tolerate())
        yield part


class _Hatch:
    """Where one thread puts a part and waits until another has used it."""

    def __init__(self) -> None:
        self._part: ParsedPart | None = None
        self._offered, self._used = threading.Semaphore(0), threading.Semaphore(0)
        self._closed = False

    def put(self, part: ParsedPart) -> None:
        if not self._closed:
            self._part = part
            self._offered.release()
            self._used.acquire()

    def end(self) -> None:
        """No more parts will come."""
        self._part = None
        self._offered.release()

    def close(self) -> None:
        """No more parts will be used."""
        self._closed = True
        self._used.release()

    def parts(self) -> Iterator[ParsedPart]:
        while True:
            self._offered.acquire()
            if self._part is None:
                return
            yield self._part
            self._used.release()


class _Turns:
    """Threads that parse at the same time and use what they found one after another."""

    def __init__(
        self,
        chunks: Chunks,
        parsers: list[Parser],
        tolerate: Callable[[], int],
        use: Use,
        at_end: Callable[[], None],
    ) -> None:
        self._chunks, self._tolerate = chunks, tolerate
        self._use, self._at_end = use, at_end
        self._reading, self._using = threading.Lock(), threading.Lock()
        self._next = 0
        self._turn, self._changed = 0, threading.Condition()
        self._stopped = False
        self._error: BaseException | None = None
        self._threads = [threading.Thread(target=self._work, args=[parser], daemon=True) for parser in parsers]

    def __enter__(self) -> _Turns:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if sys.is_finalizing():  # a reader that nobody closed: its threads stand still for good, locks in their hands
            return
        self.stop()
        # Those in the midst of parsing end by themselves: nothing waits for them, and they hold nothing but memory.
        with self._using:
            pass

    def stop(self) -> None:
        """No more chunks will be read and no more parts used."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def raise_error(self) -> None:
        """Raise what went wrong in a thread, if something did."""
        if self._error is not None:
            raise self._error

    def _work(self, parser: Parser) -> None:
        buffer, number, error = TextBuffer(), 0, None
        try:
            while not self._stopped:
                with self._reading:
                    number, self._next = self._next, self._next + 1
                    chunk = self._chunks.read(buffer)
                if chunk is None:
                    break
                self._use_parts(number, _parts_of(chunk, parser, self._tolerate))
        except BaseException as raised:
            error = raised
        self._end(number, error)

    def _use_parts(self, number: int, parts: Iterator[ParsedPart]) -> None:
        first = next(parts)  # parsed before the turn comes
        if not self._my_turn(number):
            return
        self._use_one(first)
        for part in parts:
            self._use_one(part)
        with self._changed:
            self._turn += 1
            self._changed.notify_all()

    def _use_one(self, part: ParsedPart) -> None:
        with self._using:
            if not self._stopped:
                self._use(part)

    def _my_turn(self, number: int) -> bool:
        """Wait for the turn of a chunk; False if it will not come."""
        with self._changed:
            self._changed.wait_for(lambda: self._turn == number or self._stopped)
            return not self._stopped

    def _end(self, number: int, error: BaseException | None) -> None:
        if self._my_turn(number):
            self._error = error
            self.stop()
            self._at_end()
