"""Parsed batches on disk, for further passes over text that need not be parsed again.

    head      magic, CRC-32 and length of the key, the key: JSON of all that decides what a parser finds
    records   one for each part: 16 numbers (`_RECORD`), then labels, row starts, slots, values, weights, the words
              about bad lines and the columns met, each begun at a multiple of 8 bytes
    index     for each record: the place behind it (source, offset, line) and where it begins in this file
    tail      CRC-32 of the index, number of records, magic

Every record has a checksum and every place of the text at which a part ended is in the index, so that a run can go
on from a checkpoint in the middle. A cache is written beside its name and renamed when it is whole. It is
not compressed: zstd at level 1 saves a fifth of the bytes and takes as long to decompress as the text to parse.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
from numpy.typing import NDArray

from lessram.data.batch import Batch
from lessram.data.formats import Form, Reading
from lessram.data.parsing import BadLine
from lessram.data.pipeline import Parts
from lessram.data.rows import ParsedPart
from lessram.data.source import Chunk, Identity, Place, TextBuffer
from lessram.data.text import PADDING
from lessram.data.unfinished import unfinished
from lessram.errors import DataError
from lessram.jit import fingerprint

_MAGIC = b"lessramP"
_HEAD = struct.Struct("<8sQQ")
_TAIL = struct.Struct("<QQ8s")
_FIELDS = "size crc rows features slot_bytes valued weighted bad hashed unlabelled based source offset line words met"
_RECORD = np.dtype([(name, "<i8") for name in _FIELDS.split()])
_ENTRY = np.dtype([(name, "<i8") for name in ("source", "offset", "line", "begin")])


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """All that decides what a parser finds: a cache with another key is of no use."""

    sources: list[Identity]
    form: Form
    reading: Reading
    slots: int
    labels: str
    max_errors: int
    """A part with more bad lines is cut short where the run ends."""
    parsers: str = msgspec.field(default_factory=fingerprint)
    """The version of the parsers."""


class DamagedCache(DataError):
    """A cache whose checksums are wrong; the text has to be read from here on."""


class Cache:
    """The parsed parts of some sources, in one file."""

    def __init__(self, path: str, key: Key) -> None:
        self.path = path
        self.notes: list[str] = []
        """What a user should know: why a cache is of no use, or cannot be written."""
        self._key = msgspec.json.encode(key)

    def parts(self, start: Place, *, tolerate: Callable[[], int], threads: int = 1) -> Parts | None:
        """The parts behind a place; None where there is no cache that knows it."""
        try:
            file = open(self.path, "rb")  # noqa: SIM115 (read for as long as somebody asks for parts)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._useless(f"cannot be read ({error.strerror})")
            return None
        try:
            index = self._index(file)
            first = _first_behind(start, index)
        except (OSError, ValueError) as error:
            file.close()
            self._useless(str(error))
            return None
        if first is None:
            file.close()
            return None
        chunks = _Records(file, self.path, index[first:], start)
        return Parts(chunks, _Unpacker, tolerate=tolerate, threads=threads)

    def recording(self, parts: Iterable[ParsedPart]) -> Iterator[ParsedPart]:
        """The same parts, which are written down on the way. The cache is there when the last one has been used."""
        writer = None
        try:
            writer = _Writer(self.path, self._key)
        except OSError as error:
            self._unwritten(error)
        try:
            for part in parts:
                if writer is not None:
                    try:
                        writer.add(part)
                    except OSError as error:  # a full disk ends the cache, not the training
                        writer.discard()
                        writer = None
                        self._unwritten(error)
                yield part
            if writer is not None:
                try:
                    writer.finish()
                except OSError as error:
                    self._unwritten(error)
        finally:
            if writer is not None:
                writer.discard()

    def remove(self, why: str) -> None:
        """Take a cache away that turned out to be damaged."""
        self._useless(why)
        if os.path.exists(self.path):
            os.unlink(self.path)

    def _index(self, file: BinaryIO) -> NDArray[Any]:
        """The index; a ValueError that says why there is none."""
        magic, crc, length = _HEAD.unpack(_exactly(file, _HEAD.size))
        end = file.seek(0, os.SEEK_END)
        if magic != _MAGIC:
            raise ValueError("is no cache of parsed batches")
        file.seek(_HEAD.size)
        key = _exactly(file, min(length, end))
        if zlib.crc32(key) != crc:
            raise ValueError("is damaged")
        if key != self._key:
            raise ValueError("is of other sources, other options or another version of lessram")
        file.seek(max(0, end - _TAIL.size))
        crc, count, magic = _TAIL.unpack(_exactly(file, _TAIL.size))
        begin = end - _TAIL.size - count * _ENTRY.itemsize
        if magic != _MAGIC or begin < 0:
            raise ValueError("is damaged")
        file.seek(begin)
        raw = _exactly(file, count * _ENTRY.itemsize)
        if zlib.crc32(raw) != crc:
            raise ValueError("is damaged")
        return np.frombuffer(raw, _ENTRY)

    def _useless(self, why: str) -> None:
        self.notes.append(f"{self.path}: the cache {why}; reading the sources instead")

    def _unwritten(self, error: OSError) -> None:
        self.notes.append(f"{self.path}: the cache cannot be written ({error.strerror}); going on without it")


def _first_behind(start: Place, index: NDArray[Any]) -> int | None:
    """The number of the first record behind a place; None if no part ended there."""
    if (start.source, start.offset) == (0, 0):
        return 0
    found = np.flatnonzero((index["source"] == start.source) & (index["offset"] == start.offset))
    return int(found[-1]) + 1 if len(found) else None


class _Records:
    """Hands out records as chunks, so that the pipeline's workers read ahead and unpack them."""

    def __init__(self, file: BinaryIO, name: str, index: NDArray[Any], start: Place) -> None:
        self._file, self._name, self._place = file, name, start
        self._left = iter(index.tolist())

    def __del__(self) -> None:
        self._file.close()  # for records that nobody reads to their end

    def read(self, buffer: TextBuffer) -> Chunk | None:
        entry = next(self._left, None)
        if entry is None:
            self._file.close()
            return None
        source, offset, line, begin = entry
        start, self._place = self._place, Place(source, offset, line)
        try:
            self._file.seek(begin)
            size = int(np.frombuffer(_exactly(self._file, _RECORD.itemsize), _RECORD)["size"][0])
            if not _RECORD.itemsize <= size <= os.fstat(self._file.fileno()).st_size - begin:
                raise ValueError("is damaged")
            while buffer.capacity < size:
                buffer.grow()
            self._file.seek(begin)
            with memoryview(buffer.bytes)[:size] as view:
                if self._file.readinto(view) != size:  # type: ignore[attr-defined]
                    raise ValueError("is damaged")
        except (OSError, ValueError) as error:
            raise DamagedCache(str(error)) from None
        return Chunk(np.frombuffer(buffer.bytes, np.uint8, size + PADDING), size, self._name, start, self._place)


class _Unpacker:
    """Turns a record into the part that it was made of."""

    def parse(self, chunk: Chunk, start: Place | None = None, *, tolerate: int = 0) -> ParsedPart:
        record = chunk.text[: _RECORD.itemsize].view(_RECORD)[0]
        crc, record["crc"] = int(record["crc"]), 0
        if zlib.crc32(chunk.text[: chunk.size].data) != crc:
            raise DamagedCache("is damaged")
        rows, features = int(record["rows"]), int(record["features"])
        position = _RECORD.itemsize

        def take(count: int, dtype: Any) -> NDArray[Any]:
            nonlocal position
            array = np.frombuffer(chunk.text, dtype, count, position)
            position += _rounded(array.nbytes)
            return array

        labels, indptr = take(rows, np.float32), take(rows + 1, np.int64)
        slots = take(features, np.uint32 if record["slot_bytes"] == 4 else np.uint64)
        values = take(features, np.float32) if record["valued"] else None
        weights = take(rows, np.float32) if record["weighted"] else None
        words = take(int(record["words"]), np.uint8).tobytes()
        return ParsedPart(
            Batch(labels, indptr, slots, values, weights),
            int(record["bad"]),
            [BadLine(*pair) for pair in msgspec.json.decode(words)] if words else [],
            int(record["hashed"]),
            chunk.stop,
            int(record["unlabelled"]),
            int(record["based"]),
            take(int(record["met"]), np.bool_).copy() if record["met"] else None,
        )


class _Writer:
    """Writes a cache under a name of its own, which becomes the real one at the end."""

    def __init__(self, path: str, key: bytes) -> None:
        self._path = path
        self._partial = unfinished(Path(os.path.abspath(path)))
        self._entries: list[tuple[int, int, int, int]] = []
        self._file: BinaryIO = open(self._partial, "wb")  # noqa: SIM115 (closed by finish and discard)
        self._size = 0
        self._write(_HEAD.pack(_MAGIC, zlib.crc32(key), len(key)))
        self._write(key)

    def add(self, part: ParsedPart) -> None:
        batch, stop = part.batch, part.stop
        span = slice(int(batch.indptr[0]), int(batch.indptr[-1]))
        words = msgspec.json.encode(part.reports) if part.reports else b""
        arrays = [batch.labels, batch.indptr - batch.indptr[0], batch.slots[span]]
        arrays += [] if batch.values is None else [batch.values[span]]
        arrays += [] if batch.weights is None else [batch.weights]
        arrays.append(np.frombuffer(words, np.uint8))
        arrays += [] if part.met is None else [part.met]
        record = np.zeros(1, _RECORD)
        record["size"] = _RECORD.itemsize + sum(_rounded(array.nbytes) for array in arrays)
        record["rows"], record["features"] = batch.rows, batch.features
        record["slot_bytes"] = batch.slots.itemsize
        record["valued"], record["weighted"] = batch.values is not None, batch.weights is not None
        record["bad"], record["hashed"], record["words"] = part.bad, part.hashed, len(words)
        record["unlabelled"], record["based"] = part.unlabelled, part.based
        record["met"] = 0 if part.met is None else len(part.met)
        record["source"], record["offset"], record["line"] = stop.source, stop.offset, stop.line
        padded = [piece for array in arrays for piece in (_bytes_of(array), bytes(-array.nbytes % 8))]
        crc = zlib.crc32(record.tobytes())
        for piece in padded:
            crc = zlib.crc32(piece, crc)
        record["crc"] = crc
        self._entries.append((stop.source, stop.offset, stop.line, self._size))
        for piece in (record.tobytes(), *padded):
            self._write(piece)

    def finish(self) -> None:
        index = np.array(self._entries, _ENTRY).tobytes()
        self._write(index)
        self._write(_TAIL.pack(zlib.crc32(index), len(self._entries), _MAGIC))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._partial, self._path)

    def discard(self) -> None:
        """Leave nothing behind, if the cache is not finished."""
        self._file.close()
        if os.path.exists(self._partial):
            os.unlink(self._partial)

    def _write(self, data: Any) -> None:
        self._size += self._file.write(data)


def _bytes_of(array: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(array).data.cast("B") if array.size else memoryview(b"")


def _rounded(size: int) -> int:
    return size + -size % 8


def _exactly(file: BinaryIO, count: int) -> bytes:
    data = file.read(count)
    if len(data) != count:
        raise ValueError("is damaged")
    return data
