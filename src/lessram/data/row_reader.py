"""Chunks of whole rows, where a quoted cell may run over several lines.

A reader of lines cuts its chunks behind a newline, which may stand inside a cell. What lies behind the last whole
row is carried over to the next chunk. Text is copied only where that happens.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from lessram.data.csv import CsvOptions
from lessram.data.csv_kernel import last_row_end
from lessram.data.lines import place_of
from lessram.data.source import Chunk, TextBuffer
from lessram.data.text import PADDING

LONGEST_ROW = 1 << 24
"""Bytes after which a quote is taken for one that never closes: its row is handed out, and will be a bad one."""


class Chunks(Protocol):
    """What hands out chunks of whole lines."""

    def read(self, buffer: TextBuffer) -> Chunk | None: ...


class RowReader:
    """Hands out chunks of whole rows, made of chunks of whole lines."""

    def __init__(self, lines: Chunks, options: CsvOptions) -> None:
        self._lines, self._options = lines, options
        self._rest: Chunk | None = None  # a row that is not whole yet
        self._waiting: Chunk | None = None  # the first lines of the next source

    def read(self, buffer: TextBuffer) -> Chunk | None:
        """The next chunk, in the buffer or in memory of its own; None when all sources are read."""
        if not self._options.quote:
            return self._lines.read(buffer)
        while True:
            chunk, self._waiting = self._waiting or self._lines.read(buffer), None
            rest, self._rest = self._rest, None
            if rest is not None:
                if chunk is None:
                    return rest
                if chunk.start.source != rest.start.source:
                    self._waiting = _copy(chunk, 0)
                    return rest
                chunk = _join(rest, chunk)
            if chunk is None:
                return None
            stop = np.uint64(chunk.size)
            end = int(last_row_end(chunk.text, np.uint64(0), stop, self._options.dialect))
            if end == chunk.size or chunk.size - end > LONGEST_ROW or chunk.text[chunk.size - 1] != ord("\n"):
                return chunk
            self._rest = _copy(chunk, end)
            if end:
                return chunk._replace(size=end, stop=place_of(chunk, end))


def _copy(chunk: Chunk, start: int) -> Chunk:
    """The chunk from a position on, in memory of its own."""
    text = np.zeros(chunk.size - start + PADDING, np.uint8)
    text[:-PADDING] = chunk.text[start : chunk.size]
    return chunk._replace(text=text, size=chunk.size - start, start=place_of(chunk, start))


def _join(first: Chunk, second: Chunk) -> Chunk:
    size = first.size + second.size
    text = np.zeros(size + PADDING, np.uint8)
    text[: first.size] = first.text[: first.size]
    text[first.size : size] = second.text[: second.size]
    return Chunk(text, size, first.name, first.start, second.stop)
