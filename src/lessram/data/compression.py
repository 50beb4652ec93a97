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
from typing import Any, BinaryIO, NamedTuple

from lessram.errors import DataError

_READ = 1 << 16  # compressed bytes read at once
_MOST = 1 << 18  # decompressed bytes made at once, where the library lets one say so


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
    """zstandard's decompressor with the manners of the one in `bz2`. It makes all it can of what it gets, so it
    gets little at once."""

    _PIECE = 1 << 13

    def __init__(self) -> None:
        import zstandard

        self._zstd = zstandard.ZstdDecompressor().decompressobj()
        self._waiting = b""

    def decompress(self, data: bytes, most: int) -> bytes:
        data = self._waiting + data
        self._waiting = data[self._PIECE :]
        return self._zstd.decompress(data[: self._PIECE])

    @property
    def needs_input(self) -> bool:
        return not self._waiting

    @property
    def eof(self) -> bool:
        return self._zstd.eof

    @property
    def unused_data(self) -> bytes:
        return self._zstd.unused_data + self._waiting


class _Format(NamedTuple):
    name: str
    magic: tuple[bytes, ...]
    decoder: Callable[[], Any]


_FORMATS = (
    _Format("gzip", (b"\x1f\x8b",), _Gzip),
    _Format("bzip2", (b"BZh",), bz2.BZ2Decompressor),
    _Format("xz", (b"\xfd7zXZ\x00",), lzma.LZMADecompressor),
    _Format("zstd", (b"\x28\xb5\x2f\xfd", *(bytes([0x50 + n]) + b"\x2a\x4d\x18" for n in range(16))), _Zstd),
)


def _damage() -> tuple[type[Exception], ...]:
    """What the libraries raise on damaged data."""
    import sys

    zstandard = sys.modules.get("zstandard")
    return (zlib.error, OSError, lzma.LZMAError, EOFError, *([zstandard.ZstdError] if zstandard else []))


def _members(file: BinaryIO, form: _Format) -> Iterator[bytes]:
    """Decompress one member after another, some bytes at a time."""
    data = file.read(_READ)
    while data:
        if not data.startswith(form.magic):
            raise DataError(f"found other bytes behind the {form.name} data, expected its end")
        decoder = form.decoder()
        while not decoder.eof:
            if decoder.needs_input and not data:
                data = file.read(_READ)
                if not data:
                    raise DataError(f"found the end of the file inside its {form.name} data, expected all of it")
            try:
                made = decoder.decompress(data, _MOST)
            except _damage() as error:
                raise DataError(f"found damaged {form.name} data ({error}), expected it whole") from None
            data = b""
            if made:
                yield made
        data = decoder.unused_data.lstrip(b"\0") or file.read(_READ).lstrip(b"\0")


class _Decompressed(io.RawIOBase):
    """The decompressed text as a stream."""

    def __init__(self, file: BinaryIO, form: _Format) -> None:
        self._file = file
        self._made = _members(file, form)
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        if not self._left:
            self._left = memoryview(next(self._made, b""))
        count = min(len(self._left), len(target))
        target[:count] = self._left[:count]
        self._left = self._left[count:]
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def decompressed(file: Any) -> BinaryIO:
    """The text in an open binary file (one that can `peek`), whatever it is compressed with."""
    head = file.peek(6)[:6]
    for form in _FORMATS:
        if head.startswith(form.magic):
            return _Decompressed(file, form)  # type: ignore[return-value]
    return file  # type: ignore[no-any-return]
