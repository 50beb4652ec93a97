"""Paths, globs, directories and standard input, compressed or not, as an ordered stream of whole lines.

Text arrives in chunks of about `CHUNK` bytes, cut behind a newline, in buffers that are used again and again:
memory does not depend on the length of the input. A chunk knows where it stands (source, byte in the
decompressed text, line), so that reading can stop behind any chunk and go on there later.
"""

from __future__ import annotations

import glob
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from lessram.data.compression import decompressed
from lessram.data.text import NEWLINE, PADDING
from lessram.errors import DataError

STDIN = "-"
CHUNK = 1 << 20  # bytes of text that are parsed at once
LONGEST_LINE = 1 << 26  # a chunk grows up to this for one line

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Place(msgspec.Struct, frozen=True):
    """Where in a list of sources the next line starts."""

    source: int = 0
    """Which of the sources, from 0 on."""
    offset: int = 0
    """Bytes of its decompressed text that are done with."""
    line: int = 1
    """The number of the next line."""


class Identity(msgspec.Struct, frozen=True):
    """What a source was when reading began; a resumed run compares, and refuses a source that changed."""

    path: str
    size: int
    """Bytes on disk; -1 where there is no telling (standard input, a pipe)."""
    mtime_ns: int


class Chunk(NamedTuple):
    """Whole lines of one source, valid until their buffer is filled again."""

    text: NDArray[np.uint8]
    """The lines, then `PADDING` zero bytes."""
    size: int
    """How many bytes of `text` are lines."""
    name: str
    """The source's name, for messages."""
    start: Place
    """Where the first line stands."""
    stop: Place
    """Where the line behind the last one stands."""


class TextBuffer:
    """Memory for one chunk at a time; it grows when a line does not fit."""

    def __init__(self, capacity: int = CHUNK) -> None:
        self.bytes = bytearray(capacity + PADDING)

    @property
    def capacity(self) -> int:
        return len(self.bytes) - PADDING

    def grow(self) -> None:
        self.bytes = self.bytes[: self.capacity] + bytearray(self.capacity + PADDING)

    def chunk(self, size: int) -> NDArray[np.uint8]:
        """The first `size` bytes as text: with zeros behind them."""
        self.bytes[size : size + PADDING] = bytes(PADDING)
        return np.frombuffer(self.bytes, np.uint8, size + PADDING)


def expand(sources: Sequence[str]) -> list[str]:
    """The files that paths, globs and directories stand for, each in sorted order; `-` stays as it is.

    Directories are walked through; names that begin with a dot or an underscore are left out, as everywhere
    where jobs write their results (`_SUCCESS`, `.part-0.crc`).
    """
    if not sources:
        raise DataError("found no source, expected at least one file, directory, glob or -")
    return [path for source in sources for path in _expand_one(os.fspath(source))]


def _expand_one(source: str) -> list[str]:
    if source == STDIN:
        return [source]
    if os.path.isdir(source):
        found = _files_below(Path(source))
        if not found:
            raise DataError("found an empty directory, expected files in it", place=source)
        return found
    if os.path.exists(source) or not glob.has_magic(source):
        return [source]
    found = sorted(path for path in glob.glob(source, recursive=True) if not os.path.isdir(path))
    if not found:
        raise DataError("found no file that matches, expected at least one", place=source)
    return found


def _files_below(folder: Path) -> list[str]:
    hidden = (".", "_")
    return [
        str(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(part.startswith(hidden) for part in path.relative_to(folder).parts)
    ]


def identify(sources: Sequence[str]) -> list[Identity]:
    """What each file of the sources is now: its path, size and time of change."""
    return [_identify_one(path) for path in expand(sources)]


def _identify_one(path: str) -> Identity:
    if path == STDIN:
        return Identity(STDIN, -1, 0)
    try:
        status = os.stat(path)
    except OSError as error:
        raise _cannot_read(path, error) from None
    return Identity(path, status.st_size if os.path.isfile(path) else -1, status.st_mtime_ns)


def _cannot_read(path: str, error: OSError) -> DataError:
    return DataError(f"cannot read: {error.strerror or error}", place=path)


class ChunkReader:
    """Reads the sources from a place on. `read` fills a buffer with the next chunk; callers own the buffers."""

    def __init__(self, sources: Sequence[str], start: Place | None = None) -> None:
        self.paths = expand(sources)
        self.place = start or Place()
        self._stream: BinaryIO | None = None
        self._rest = b""  # the beginning of a line whose end was not in the last chunk

    def read(self, buffer: TextBuffer) -> Chunk | None:
        """The next chunk, in the buffer; None when all sources are read."""
        while self.place.source < len(self.paths):
            if self._stream is None:
                self._stream = self._open()
            size, ended = self._fill(buffer)
            if size:
                return self._advance(buffer, size)
            if ended:
                self.close()
                self.place = Place(self.place.source + 1)
        return None

    def close(self) -> None:
        if self._stream is not None and self._name != STDIN:
            self._stream.close()
        self._stream, self._rest = None, b""

    @property
    def _name(self) -> str:
        return self.paths[self.place.source]

    def _open(self) -> BinaryIO:
        try:
            stream = _open_decompressed(self._name)
            _skip(stream, self.place.offset)
        except EOFError:
            raise DataError(
                f"found fewer than {self.place.offset} bytes of text, expected to go on behind them", place=self._name
            ) from None
        except OSError as error:
            raise _cannot_read(self._name, error) from None
        return stream

    def _fill(self, buffer: TextBuffer) -> tuple[int, bool]:
        """Read whole lines. Returns how many bytes they have, and whether the source has ended."""
        size = len(self._rest)
        while size > buffer.capacity:
            buffer.grow()
        buffer.bytes[:size] = self._rest
        self._rest = b""
        while True:
            filled = size + self._read_into(memoryview(buffer.bytes)[size : buffer.capacity])
            if filled < buffer.capacity:
                return filled, True
            end = buffer.bytes.rfind(b"\n", size, filled) + 1
            if end:
                self._rest = bytes(memoryview(buffer.bytes)[end:filled])
                return end, False
            size = filled
            if buffer.capacity >= LONGEST_LINE:
                place = f"{self._name}:{self.place.line}"
                raise DataError(f"found a line of more than {LONGEST_LINE} bytes, expected shorter ones", place=place)
            buffer.grow()

    def _read_into(self, view: memoryview) -> int:
        assert self._stream is not None
        filled = 0
        try:
            while filled < len(view):
                count = self._stream.readinto(view[filled:])  # type: ignore[attr-defined]
                if not count:
                    break
                filled += count
        except DataError as error:
            raise DataError(str(error), place=self._name) from None
        except OSError as error:
            raise _cannot_read(self._name, error) from None
        finally:
            view.release()
        return filled

    def _advance(self, buffer: TextBuffer, size: int) -> Chunk:
        start = self.place
        if start.offset == 0 and buffer.bytes.startswith(_BYTE_ORDER_MARK):
            buffer.bytes[: len(_BYTE_ORDER_MARK)] = b" " * len(_BYTE_ORDER_MARK)
        text = buffer.chunk(size)
        lines = int(np.count_nonzero(text[:size] == NEWLINE)) + bool(text[size - 1] != NEWLINE)
        self.place = Place(start.source, start.offset + size, start.line + lines)
        return Chunk(text, size, self._name, start, self.place)


def _open_decompressed(path: str) -> BinaryIO:
    return decompressed(sys.stdin.buffer if path == STDIN else open(path, "rb"))


def _skip(stream: BinaryIO, count: int) -> None:
    """Go `count` bytes on: by seeking in a plain file, by reading otherwise. EOFError if there are not so many."""
    if stream.seekable():
        if stream.seek(0, io.SEEK_END) < count:
            raise EOFError
        stream.seek(count)
        return
    scratch = memoryview(bytearray(min(count, CHUNK)))
    while count:
        got = stream.readinto(scratch[: min(count, len(scratch))])  # type: ignore[attr-defined]
        if not got:
            raise EOFError
        count -= got
