"""The loop around a kernel that parses lines: grow, shorten, report, go on; the same for every text format."""

from __future__ import annotations

import re

import numpy as np

from lessram.data.parsing import REPORTS, BadLine
from lessram.data.rows import DONE, FULL, LONG_NUMBER, ParsedPart, Progress, Room
from lessram.data.source import Chunk, Place
from lessram.data.text import PADDING, count_newlines

_SHOWN = 40


class LineParser:
    """A parser of chunks of text. A format gives the kernel (`_step`) and the words for bad lines (`_describe`).

    A kernel is called again behind every bad line, so nothing that it does before the first line may be as long as the
    chunk: delimiters are marked where the progress that it is given is that of a beginning, `DONE`, and no more.
    """

    def __init__(self, room: Room) -> None:
        self._room = room

    def _step(self, chunk: Chunk, progress: Progress) -> Progress:
        """Run the kernel from where it stands."""
        raise NotImplementedError

    def _describe(self, chunk: Chunk, progress: Progress) -> str:
        """What was found at the word where the kernel stopped, and what was expected."""
        raise NotImplementedError

    def _line_behind(self, chunk: Chunk, progress: Progress) -> int:
        """Where to go on behind a bad line."""
        return line_behind(chunk, progress.position)

    def parse(self, chunk: Chunk, start: Place | None = None, *, tolerate: int = 0) -> ParsedPart:
        """Parse a chunk from its start, or from a place in it, up to its end or as far as one batch goes.

        Gives up behind the first bad line that is one more than `tolerate`. If the `stop` of what comes back is not
        the chunk's, call again with it as the start.
        """
        self._room.fit(chunk.size // 16 + 16, chunk.size // 2 + 16)
        self._room.fit_text(chunk.size)
        chunk.text[chunk.size] = ord("\n")  # where the last line of a source has none
        progress = Progress(position=start.offset - chunk.start.offset if start else 0)
        bad, reports, lines = 0, list[BadLine](), Lines(chunk)
        last = progress
        while bad <= tolerate:
            progress = self._step(chunk, progress)
            if progress.status == DONE:
                break
            if progress.status == FULL:
                if self._room.grow(progress.rows, progress.needed):
                    continue
                if progress.rows:
                    break
            if progress.status == LONG_NUMBER and shorten_number(chunk, progress.word):
                continue
            bad, last = bad + 1, progress
            if bad < REPORTS:
                reports.append(lines.bad(progress.position, self._describe(chunk, progress)))
            progress = progress._replace(position=self._line_behind(chunk, progress))
        if bad >= REPORTS:
            reports.append(lines.bad(last.position, self._describe(chunk, last)))
        batch = self._room.batch(progress.rows, valued=progress.valued, weighted=progress.weighted)
        stop = chunk.stop if progress.position >= chunk.size else lines.place(progress.position)
        return ParsedPart(batch, bad, reports, batch.features, stop, progress.unlabelled, progress.based)


def rest_of_line(chunk: Chunk, position: int) -> bytes:
    """The text from a position to the end of its line."""
    piece = 1 << 12
    while True:
        text = chunk.text[position : position + piece].tobytes()
        end = text.find(b"\n")
        if end >= 0 or len(text) < piece:
            return text[: max(end, 0)].removesuffix(b"\r")
        piece *= 8


def line_behind(chunk: Chunk, position: int) -> int:
    """Where the line behind the one at a position begins."""
    end = position + len(rest_of_line(chunk, position))
    return end + (2 if chunk.text[end] != ord("\n") else 1)


def place_of(chunk: Chunk, position: int) -> Place:
    """The place of a position of the chunk, for going on there and for messages."""
    return Lines(chunk).place(position)


class Lines:
    """Counts the lines of a chunk, each once: positions are asked for in the order of the text."""

    def __init__(self, chunk: Chunk) -> None:
        self._chunk = chunk
        self._position, self._line = 0, chunk.start.line

    def place(self, position: int) -> Place:
        """The place of a position that is not before the last one."""
        self._line += int(count_newlines(self._chunk.text[self._position :], position - self._position))
        self._position = position
        start = self._chunk.start
        return Place(start.source, start.offset + position, self._line)

    def bad(self, position: int, message: str) -> BadLine:
        """The report of a bad line that begins there."""
        return BadLine(f"{self._chunk.name}:{self.place(position).line}", message)


def show(word: bytes) -> str:
    """A word of the text for a message, cut where it is long.

    >>> show(b"7"), show(b""), len(show(b"x" * 1000))
    ("'7'", 'nothing', 45)
    """
    text = repr(word[:_SHOWN].decode("utf-8", "backslashreplace"))
    return "nothing" if not word else text if len(word) <= _SHOWN else text + "..."


_NUMBER = re.compile(rb"[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?")


def shorten_number(chunk: Chunk, position: int) -> bool:
    """Rewrite a number of 20 digits or more, where it stands, by digits that name the same float32.

    Kernels leave to Python the few numbers that lie next to the middle between two float32. The new
    digits fill the same place: the exponent gets as many zeros as that takes.
    """
    rest = rest_of_line(chunk, position)
    position += len(rest) - len(rest.lstrip(b" "))
    match = _NUMBER.match(rest.lstrip(b" "))
    assert match is not None
    with np.errstate(over="ignore"):
        value = np.float32(float(match[0]))
    if not np.isfinite(value):
        return False
    mantissa, exponent = (b"%.8e" % value).split(b"e")
    width = match.end() - len(mantissa) - 2
    digits = mantissa + b"e" + exponent[:1] + exponent[1:].rjust(width, b"0")
    chunk.text[position : position + match.end()] = np.frombuffer(digits, np.uint8)
    return True


def chunk_of(text: bytes, name: str = "memory") -> Chunk:
    """Text that is in memory already, as a chunk."""
    buffer = np.frombuffer(bytearray(text + bytes(PADDING)), np.uint8)
    lines = text.count(b"\n") + (not text.endswith(b"\n") and bool(text))
    return Chunk(buffer, len(text), name, Place(), Place(0, len(text), 1 + lines))
