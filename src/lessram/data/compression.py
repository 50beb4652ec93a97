"""gzip, bzip2, xz and zstd, told apart by their first bytes, as plain streams in constant memory.

A file may hold several members one after another (`cat a.gz b.gz`), and zeros behind the last. Anything else
behind it, an end before the end mark, and damage are errors: half a file is never taken for a whole one.
"""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import zstandard

from lessram.errors import DataError

Stream = io.RawIOBase | io.BufferedIOBase

_READ = 1 << 16  # compressed bytes read at once
_MOST = 1 << 18  # decompressed bytes made at once, where the library lets one say so
_DAMAGE = (zlib.error, OSError, EOFError, ValueError, lzma.LZMAError, zstandard.ZstdError)


class _Gzip:
    """zlib's decompressor with the manners of the one in `bz2`."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(wbits=31)

    def decompress(self, data: bytes, most: int) -> bytes:
        return self._zlib.decompress(self._zlib.unconsumed_tail + data, most)

    @property
    def needs_input(self) -> bool:
        return not self._zlib.unconsumed_tail

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data


class _Zstd:
    """zstandard's decompressor with the manners of the one in `bz2`.

    It makes all it can of what it gets, so it gets little at once.
    """

    _PIECE = 1 << 13

    def __init__(self) -> None:
        self._zstd = zstandard.ZstdDecompressor().decompressobj()
        self._waiting = memoryview(b"")

    def decompress(self, data: bytes, most: int) -> bytes:
        if data:
            self._waiting = memoryview(data)
        piece, self._waiting = self._waiting[: self._PIECE], self._waiting[self._PIECE :]
        return self._zstd.decompress(piece)

    @property
    def needs_input(self) -> bool:
        return not self._waiting

    @property
    def eof(self) -> bool:
        return self._zstd.eof

    @property
    def unused_data(self) -> bytes:
        return self._zstd.unused_data + bytes(self._waiting)


class _Format(NamedTuple):
    name: str
    magic: tuple[bytes, ...]
    decoder: Callable[[], Any]


_SKIPPABLE = tuple(bytes([0x50 + n, 0x2A, 0x4D, 0x18]) for n in range(16))  # zstd frames that hold no text

_FORMATS = (
    _Format("gzip", (b"\x1f\x8b",), _Gzip),
    _Format("bzip2", (b"BZh",), bz2.BZ2Decompressor),
    _Format("xz", (b"\xfd7zXZ\x00",), lzma.LZMADecompressor),
    _Format("zstd", (b"\x28\xb5\x2f\xfd", *_SKIPPABLE), _Zstd),
)
_LONGEST_MAGIC = 6


def _members(file: Stream, form: _Format) -> Iterator[bytes]:
    """Decompress one member after another, some bytes at a time."""
    data = file.read(_READ)
    while data:
        if not data.startswith(form.magic):
            raise DataError(f"found other bytes behind the {form.name} data, expected nothing there")
        yield from _member(file, form, decoder := form.decoder(), data)
        data = decoder.unused_data.lstrip(b"\0")
        while len(data) < _LONGEST_MAGIC and (more := file.read(_READ)):
            data = (data + more).lstrip(b"\0")


def _member(file: Stream, form: _Format, decoder: Any, data: bytes) -> Iterator[bytes]:
    while not decoder.eof:
        if decoder.needs_input and not data:
            data = file.read(_READ) or b""
            if not data:
                raise DataError(f"found the end of the file in the middle of its {form.name} data, expected all of it")
        try:
            made = decoder.decompress(data, _MOST)
        except _DAMAGE as error:
            raise DataError(f"found damaged {form.name} data ({error}), expected it whole") from None
        data = b""
        if made:
            yield made


class _Over(io.RawIOBase):
    """A stream over another: hands out what is left of its bytes, and closes the other with itself."""

    def __init__(self, file: Stream) -> None:
        self._file = file
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        count = min(len(self._left), len(target))
        target[:count] = self._left[:count]
        self._left = self._left[count:]
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


class _Decompressed(_Over):
    """The decompressed text as a stream."""

    def __init__(self, file: Stream, form: _Format) -> None:
        super().__init__(file)
        self._made = _members(file, form)

    def readinto(self, target: Any) -> int:
        if not self._left:
            self._left = memoryview(next(self._made, b""))
        return super().readinto(target)


class _Joined(_Over):
    """Bytes that were read ahead from a stream that cannot go back, then the rest of it."""

    def __init__(self, head: bytes, file: Stream) -> None:
        super().__init__(file)
        self._left = memoryview(head)

    def readinto(self, target: Any) -> int:
        return super().readinto(target) or self._file.readinto(target) or 0


def decompressed(file: Stream) -> Stream:
    """The text in an open binary file, whatever it is compressed with; the file itself if it is not."""
    head = file.read(_LONGEST_MAGIC) or b""
    if file.seekable():
        file.seek(-len(head), io.SEEK_CUR)
    else:
        file = _Joined(head, file)
    for form in _FORMATS:
        if head.startswith(form.magic):
            return _Decompressed(file, form)
    return file
