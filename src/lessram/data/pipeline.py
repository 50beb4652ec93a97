"""Chunks to batches on all cores, in the order of the stream.

Threads read chunks (and decompress them) one at a time, parse them side by side and use what they found one after
another. Any thread does any of it, whatever is next. A chunk lies on a desk, a text buffer and a parser, from reading
to the end of its use, and there is one desk more than threads: this bounds memory. Turns come in the order of the
chunks, and each chunk gives exactly the rows that one thread would have found in it: results do not depend on the
number of threads.

To use a part may be to learn from it (`Parts.use_in_turn`), or to hand it to somebody who iterates over `Parts`.
Learning goes on one row after another, and is what all wait for; so what a use can leave for later, such as scoring, is
done in turn as well, but by another thread while the next part is in use.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any, NamedTuple, Protocol

from lessram.data.rows import ParsedPart
from lessram.data.source import Place, TextBuffer

NEWS = 0.05
"""Seconds between two looks at how far the threads are."""

Rest = Callable[[], None]
Use = Callable[[ParsedPart], Rest | None]
"""Uses a part; returns what is left to be done with it, if something is."""


class Chunks(Protocol):
    """What hands out chunks, one after another: lines of text, or rows of a table."""

    def read(self, buffer: TextBuffer) -> Any:
        """The next chunk, in the buffer if it is text; None at the end. A chunk tells where it ends: `stop`."""


class Parser(Protocol):
    """What turns such a chunk into rows, possibly in several parts."""

    def parse(self, chunk: Any, start: Place | None = None, *, tolerate: int = 0) -> ParsedPart:
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
                use_wholly(use, part)
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
        desks = [_Desk(TextBuffer(), self._parser)]
        desks += [_Desk(TextBuffer(), self._make_parser()) for _ in range(threads)]
        return _Turns(self._chunks, desks, self._tolerate, use, at_end, threads)


def use_wholly(use: Callable[..., Rest | None], *what: Any) -> None:
    """Use something and leave nothing to be done."""
    rest = use(*what)
    if rest is not None:
        rest()


def _parts_of(
    chunk: Any, parser: Parser, tolerate: Callable[[], int], ahead: ParsedPart | None = None
) -> Iterator[ParsedPart]:
    """The parts of a chunk whose turn it is; the first of them may have been parsed ahead.

    Who parses ahead does not know of bad lines that come before: where they are one too many now, the part has to end
    with the one that is, which is to blame.
    """
    part = ahead
    if part is None or part.bad > tolerate():
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


class _Desk(NamedTuple):
    """What a chunk is read into and parsed with."""

    buffer: TextBuffer
    parser: Parser


class _Parsed(NamedTuple):
    """A chunk on its desk whose turn may come."""

    desk: _Desk
    chunk: Any
    first: ParsedPart
    """Its rows up to its end, or as far as one part goes."""


class _End(NamedTuple):
    """What stands in the place of a chunk that is not there."""

    error: BaseException | None = None


class _Turns:
    """Threads that parse at the same time and use what they found one after another.

    A thread that looks for work uses the chunk whose turn it is, if it is parsed and no other is in use; else it does
    what is left of one that was used; else it reads and parses the next one, if a desk is free. So nobody waits while
    there is work, and whoever uses goes on using while there is something to use, with what is learned in the cache of
    its core.
    """

    def __init__(
        self,
        chunks: Chunks,
        desks: list[_Desk],
        tolerate: Callable[[], int],
        use: Use,
        at_end: Callable[[], None],
        threads: int,
    ) -> None:
        self._chunks, self._tolerate = chunks, tolerate
        self._use, self._at_end = use, at_end
        self._changed = threading.Condition()  # holds whatever follows
        self._free = desks
        self._next, self._reading = 0, False
        self._turn, self._using = 0, False
        self._rests: deque[tuple[Rest, _Desk]] = deque()
        self._resting = False
        self._ready: dict[int, _Parsed | _End] = {}
        self._stopped = False
        self._error: BaseException | None = None
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(threads)]

    def __enter__(self) -> _Turns:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if sys.is_finalizing():  # a reader that nobody closed: its threads stand still for good, locks in their hands
            return
        self.stop()
        # Those in the midst of reading or parsing end by themselves: nothing waits for them, and they hold nothing but
        # memory.
        with self._changed:
            self._changed.wait_for(lambda: not self._using)
        self._do_rests()

    def stop(self) -> None:
        """No more chunks will be read and no more parts used."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def raise_error(self) -> None:
        """Raise what went wrong in a thread, if something did."""
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        while (task := self._next_task()) is not None:
            task()

    def _next_task(self) -> Callable[[], None] | None:
        """What to do next, as soon as there is something to do; None at the end."""
        with self._changed:
            while not self._stopped:
                if self._turn in self._ready and not self._using:
                    self._using = True
                    return partial(self._use_up, self._ready.pop(self._turn))
                if self._rests and not self._resting:
                    self._resting = True
                    return partial(self._do_rest, *self._rests.popleft())
                if self._free and not self._reading:
                    self._reading, number = True, self._next
                    self._next += 1
                    return partial(self._prepare, self._free.pop(), number)
                self._changed.wait()
            return None

    def _prepare(self, desk: _Desk, number: int) -> None:
        """Read and parse a chunk. Nobody reads behind the last one, or behind one that could not be read."""
        result: _Parsed | _End = _End()
        try:
            chunk = self._chunks.read(desk.buffer)
            if chunk is not None:
                with self._changed:
                    self._reading = False
                    self._changed.notify_all()
                result = _Parsed(desk, chunk, desk.parser.parse(chunk, tolerate=self._tolerate()))
        except BaseException as error:
            result = _End(error)
        with self._changed:
            self._ready[number] = result
            self._changed.notify_all()

    def _use_up(self, result: _Parsed | _End) -> None:
        """Use a chunk whose turn it is; its desk becomes free when nothing is left to be done."""
        rest: Rest | None = None
        try:
            if isinstance(result, _Parsed):
                rest = self._use_parts(result)
            else:
                self._do_rests()
                self._end(result.error)
        except BaseException as error:
            self._end(error)
        with self._changed:
            self._turn, self._using = self._turn + 1, False
            if isinstance(result, _Parsed):
                if rest is None:
                    self._free.append(result.desk)
                else:
                    self._rests.append((rest, result.desk))
            self._changed.notify_all()

    def _use_parts(self, result: _Parsed) -> Rest | None:
        """Use all parts; returns the rest of the last. The others are parsed into the same arrays and cannot wait."""
        for part in _parts_of(result.chunk, result.desk.parser, self._tolerate, result.first):
            if self._stopped:
                break
            rest = self._use(part)
            if rest is not None:
                if part.stop == result.chunk.stop:
                    return rest
                self._do_rests()
                rest()
        return None

    def _do_rests(self) -> None:
        """Do all that is left of earlier chunks."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: not self._resting)
                if not self._rests:
                    return
                self._resting = True
                rest, desk = self._rests.popleft()
            self._do_rest(rest, desk)

    def _do_rest(self, rest: Rest, desk: _Desk) -> None:
        try:
            rest()
        except BaseException as error:
            self._end(error)
        with self._changed:
            self._resting = False
            self._free.append(desk)
            self._changed.notify_all()

    def _end(self, error: BaseException | None) -> None:
        """Nothing more will be used: there is nothing more, or this went wrong."""
        self._error = self._error or error
        self.stop()
        self._at_end()
