"""Paths, globs, directories, URLs and standard input, compressed or not, as an ordered stream of whole lines.

Text arrives in chunks of about `CHUNK` bytes, cut behind a newline, in buffers that are used again and again:
memory does not depend on the length of the input. A chunk knows where it stands (source, byte of the
decompressed text, line), so that reading can stop behind any chunk and go on there later.
"""

from __future__ import annotations

import codecs
import glob
import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from lessram.data.compression import Stream, decompressed
from lessram.data.remote import describe_url, expand_url, is_url, open_url
from lessram.data.text import NEWLINE, PADDING, count_newlines
from lessram.errors import DataError

STDIN = "-"
CHUNK = 3 << 19
"""Bytes of text that are read and parsed at once: little beside a core's L2, much beside what happens once a chunk.
With 1 or 2 MiB two threads learn words 5 to 10 % slower."""
LONGEST_LINE = 1 << 26
"""A line may have this many bytes; its chunk grows for it."""


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
    """When it last changed; of a URL, a number that changes with the file if its filesystem tells."""


class Chunk(NamedTuple):
    """Whole lines of one source, valid until their buffer is filled again."""

    text: NDArray[np.uint8]
    """The lines, then `PADDING` zero bytes."""
    size: int
    """How many bytes of `text` are lines."""
    name: str
    """The source's name, for messages."""
    start: Place
    """Where the first line stands: at line 1, behind the byte order mark if the source has one."""
    stop: Place
    """Where the line behind the last one stands."""


def as_paths(sources: Any) -> list[str] | None:
    """A path as a list of one, a list of paths as it is; None for whatever is neither."""
    if isinstance(sources, (str, os.PathLike)):
        return [os.fspath(sources)]
    if isinstance(sources, Sequence) and all(isinstance(path, (str, os.PathLike)) for path in sources):
        return [os.fspath(path) for path in sources]
    return None


def expand(sources: Sequence[str]) -> list[str]:
    """The files that paths, globs and directories stand for, each in sorted order; `-` stays as it is.

    Directories are walked through. Names in them that begin with a dot or an underscore are left out: such are the
    marks that jobs leave beside their results (`_SUCCESS`, `.part-0.crc`).
    """
    if not sources:
        raise DataError("found no source, expected at least one file, directory, glob or -")
    return [path for source in sources for path in _expand_one(os.fspath(source))]


def _expand_one(source: str) -> list[str]:
    if source == STDIN:
        return [source]
    if is_url(source):
        return expand_url(source)
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
    def hidden(path: Path) -> bool:
        return any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)

    return [str(path) for path in sorted(folder.rglob("*")) if path.is_file() and not hidden(path)]


def identify(sources: Sequence[str]) -> list[Identity]:
    """What each file of the sources is now: its path, size and time of change."""
    return [_identify_one(path) for path in expand(sources)]


def _identify_one(path: str) -> Identity:
    if path == STDIN:
        return Identity(STDIN, -1, 0)
    if is_url(path):
        return Identity(path, *describe_url(path))
    with _blaming(path):
        status = os.stat(path)
    return Identity(path, status.st_size if os.path.isfile(path) else -1, status.st_mtime_ns)


@contextmanager
def _blaming(path: str) -> Iterator[None]:
    """Make an error of the system or of a decompressor a `DataError` that names the source."""
    try:
        yield
    except DataError as error:
        raise (error if error.place else DataError(str(error), place=path)) from None
    except OSError as error:
        raise DataError(f"cannot read: {error.strerror or error}", place=path) from None


class TextBuffer:
    """Memory for one chunk at a time, of `CHUNK` bytes unless a longer line is in it."""

    def __init__(self, capacity: int = CHUNK) -> None:
        self._usual = capacity
        self.bytes = bytearray(capacity + PADDING)

    @property
    def capacity(self) -> int:
        return len(self.bytes) - PADDING

    def start(self, beginning: bytes) -> None:
        """Begin a chunk with the rest of the last one."""
        if self.capacity > self._usual:
            self.bytes = bytearray(self._usual + PADDING)
        while self.capacity <= len(beginning):
            self.grow()
        self.bytes[: len(beginning)] = beginning

    def grow(self) -> None:
        self.bytes = self.bytes[: self.capacity] + bytearray(self.capacity + PADDING)

    def text(self, size: int) -> NDArray[np.uint8]:
        """The first `size` bytes as text, with zeros behind them."""
        self.bytes[size : size + PADDING] = bytes(PADDING)
        return np.frombuffer(self.bytes, np.uint8, size + PADDING)


class ChunkReader:
    """Reads the sources from a place on, one chunk a call, into buffers that the callers own.

    Threads may share a reader if they take turns: the order of calls is the order of the text.
    """

    def __init__(self, sources: Sequence[str], start: Place | None = None) -> None:
        self._stream: Stream | None = None
        self.paths = expand(sources)
        self.place = start or Place()
        self._rest = b""  # the beginning of a line whose end was not in the last chunk

    def read(self, buffer: TextBuffer) -> Chunk | None:
        """The next chunk, in the buffer; None when all sources are read."""
        while self.place.source < len(self.paths):
            path = self.paths[self.place.source]
            with _blaming(path):
                if self._stream is None:
                    self._stream = _open_at(path, self.place.offset)
                size = self._fill(buffer, self._stream)
            if size:
                return self._advance(buffer, size)
            self.close()
            self.place = Place(self.place.source + 1)
        return None

    def close(self) -> None:
        """Close the open source; a further `read` opens it again, at the place."""
        if self._stream is not None:
            _close(self._stream, self.paths[self.place.source])
        self._stream, self._rest = None, b""

    def __del__(self) -> None:
        self.close()  # for a stream that nobody reads to its end

    def _fill(self, buffer: TextBuffer, stream: Stream) -> int:
        """Read whole lines. Returns how many bytes they have; 0 at the end of the source."""
        size = len(self._rest)
        buffer.start(self._rest)
        self._rest = b""
        while True:
            filled = _read_until_full(stream, memoryview(buffer.bytes)[: buffer.capacity], size)
            if filled < buffer.capacity:
                return filled
            end = buffer.bytes.rfind(b"\n", size, filled) + 1
            if end:
                self._rest = bytes(memoryview(buffer.bytes)[end:filled])
                return end
            if filled >= LONGEST_LINE:
                place = f"{self.paths[self.place.source]}:{self.place.line}"
                raise DataError(f"found a line of more than {LONGEST_LINE} bytes, expected a shorter one", place=place)
            size = filled
            buffer.grow()

    def _advance(self, buffer: TextBuffer, size: int) -> Chunk:
        start, text = self.place, buffer.text(size)
        if start.offset == 0:
            if buffer.bytes.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                raise DataError("found text in UTF-16, expected UTF-8", place=self.paths[start.source])
            mark = len(codecs.BOM_UTF8) if buffer.bytes.startswith(codecs.BOM_UTF8) else 0
            start, text, size = Place(start.source, mark), text[mark:], size - mark
        lines = int(count_newlines(text, size)) + bool(text[size - 1] != NEWLINE) if size else 0
        self.place = Place(start.source, start.offset + size, start.line + lines)
        return Chunk(text, size, self.paths[start.source], start, self.place)


def _read_until_full(stream: Stream, view: memoryview, filled: int) -> int:
    with view:
        while filled < len(view):
            with view[filled:] as free:
                count = stream.readinto(free)
            if not count:
                break
            filled += count
    return filled


def _open_at(path: str, offset: int) -> Stream:
    """The decompressed text of a source from a byte on."""
    file: Any = _open_stdin() if path == STDIN else open_url(path) if is_url(path) else open(path, "rb")  # noqa: SIM115
    try:
        stream = decompressed(file)
        if _skip(stream, offset) < offset:
            raise DataError(f"found fewer than {offset} bytes of text, expected to go on behind them")
    except BaseException:
        _close(file, path)
        raise
    return stream


def _open_stdin() -> Any:
    """Standard input, as a file of its own: when a process ends, Python locks `sys.stdin`, and dies of it if a thread
    still waits there for input."""
    if sys.stdin is None:
        raise DataError("found no standard input, expected one")
    try:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except (AttributeError, io.UnsupportedOperation):
        return sys.stdin.buffer  # in a notebook, or a test


def _close(stream: Stream, path: str) -> None:
    if path != STDIN:  # which belongs to the process
        stream.close()


def _skip(stream: Stream, count: int) -> int:
    """Go `count` bytes on, by seeking in a plain file, by reading otherwise. Returns how many there were."""
    if stream.seekable():
        here = stream.tell()
        there = min(here + count, stream.seek(0, io.SEEK_END))
        return stream.seek(there) - here
    scratch, skipped = memoryview(bytearray(min(count, CHUNK))), 0
    while skipped < count and (got := stream.readinto(scratch[: count - skipped])):
        skipped += got
    return skipped
