"""The container of every lessram file: safetensors, checksummed, written whole or not at all.

Any safetensors reader opens it. The tensors are little-endian and contiguous; the metadata has one
entry, "lessram", a JSON text {"checksum": ..., "content": {...}} where `checksum` is the SHA-256 of the
bytes of `content`, and `content` names the format, its version, and for each tensor its type, shape and
SHA-256. So a flip of any bit in header or data is noticed.
"""

from __future__ import annotations

import hashlib
import operator
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save_file

from lessram.data.unfinished import unfinished
from lessram.errors import FileFormatError

FORMAT = "lessram"
VERSION = 1

_NUMPY_TYPES = {"U8": "u1", "I8": "i1", "I16": "<i2", "U16": "<u2", "I32": "<i4", "U32": "<u4"} | {
    "I64": "<i8",
    "U64": "<u8",
    "F32": "<f4",
    "F64": "<f8",
}
_LONGEST_HEADER = 100_000_000  # the limit of the safetensors format

Tensors = dict[str, NDArray[Any]]


class _Description(msgspec.Struct):
    """What the header says of one tensor, and the digest of its bytes."""

    dtype: str
    shape: list[int]
    sha256: str


class _Content(msgspec.Struct):
    format: str
    version: int
    tensors: dict[str, _Description]
    about: msgspec.Raw


class _Sealed(msgspec.Struct):
    checksum: str
    content: msgspec.Raw


def write(path: str | os.PathLike[str], tensors: Tensors, about: Any) -> None:
    """Write tensors and a JSON-able description `about`; readers see the old file or the new, never a part."""
    descriptions = {
        name: _Description(_type_name(tensor), list(tensor.shape), _digest(tensor)) for name, tensor in tensors.items()
    }
    raw = msgspec.Raw(msgspec.json.encode(about, order="deterministic"))
    content = msgspec.json.encode(_Content(FORMAT, VERSION, descriptions, raw), order="deterministic")
    sealed = msgspec.json.encode(_Sealed(hashlib.sha256(content).hexdigest(), msgspec.Raw(content)))
    with replaced(path) as partial:
        save_file(tensors, partial, metadata={FORMAT: sealed.decode()})


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[TextIO]:
    """A text file that takes the place of `path` when the block ends well, and vanishes otherwise."""
    with replaced(path) as partial, open(partial, "w", encoding="utf-8") as file:
        yield file


@contextmanager
def replaced(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary name beside `path`; what is written there is synced and renamed to `path`.

    A link stays: what it leads to is replaced. Devices and pipes are refused, for a rename would put a file in their
    place.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        found = "a folder" if os.path.isdir(path) else "a device or a pipe"
        raise FileFormatError(f"{os.fspath(path)}: cannot write: found {found}, expected a file")
    target = Path(os.path.realpath(path))
    partial = unfinished(target)
    try:
        partial.touch()
        mode = partial.stat().st_mode
        yield partial
        partial.chmod(mode)  # writers may create private files; users expect their umask
        _sync(partial)
        os.replace(partial, target)
        _sync(target.parent)
    except (OSError, SafetensorError) as error:
        raise FileFormatError(f"{os.fspath(path)}: cannot write: {_reason(error)}") from None
    finally:
        partial.unlink(missing_ok=True)


def read(path: str | os.PathLike[str], *, verify: bool = True) -> tuple[Tensors, msgspec.Raw]:
    """Map a file into memory: its tensors, read-only, and the JSON description that was written with them.

    `verify` reads everything once and compares checksums; without it only the header is read.
    """
    name = os.fspath(path)
    try:
        with open(path, "rb") as file:
            header, start = _read_header(file, name)
        data = np.memmap(path, np.uint8, mode="r", offset=start) if os.path.getsize(path) > start else np.empty(0, "u1")
    except OSError as error:
        raise FileFormatError(f"{name}: cannot read: {error.strerror or error}") from None
    content, _ = _unseal(header.pop("__metadata__", None), name)
    if content.tensors.keys() != header.keys():
        raise _damaged(name, "its header and its description name different tensors")
    tensors = {key: _tensor(data, header[key], content.tensors[key], key, name, verify) for key in header}
    if sum(tensor.nbytes for tensor in tensors.values()) != data.size:
        raise _damaged(name, f"it has {data.size} bytes of tensors, expected {sum(t.nbytes for t in tensors.values())}")
    return tensors, content.about


def checksum(path: str | os.PathLike[str]) -> str:
    """The checksum of a file's description, in which are those of its tensors: equal files, equal checksums."""
    name = os.fspath(path)
    try:
        with open(path, "rb") as file:
            header, _ = _read_header(file, name)
    except OSError as error:
        raise FileFormatError(f"{name}: cannot read: {error.strerror or error}") from None
    return _unseal(header.get("__metadata__"), name)[1]


def _read_header(file: Any, name: str) -> tuple[dict[str, Any], int]:
    prefix = file.read(8)
    length = int.from_bytes(prefix, "little")
    if len(prefix) < 8 or not 2 <= length <= _LONGEST_HEADER:
        raise FileFormatError(f"{name}: not a lessram model: found no safetensors header")
    text = file.read(length)
    if len(text) < length:
        raise _damaged(name, f"it ends inside its header, after {8 + len(text)} of {8 + length} bytes")
    try:
        header = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError):
        raise FileFormatError(f"{name}: not a lessram model, or damaged: its header is no JSON") from None
    return header, 8 + length


def _unseal(metadata: Any, name: str) -> tuple[_Content, str]:
    if not isinstance(metadata, dict) or FORMAT not in metadata:
        raise FileFormatError(f"{name}: a safetensors file, but not written by lessram")
    try:
        sealed = msgspec.json.decode(metadata[FORMAT], type=_Sealed)
        if hashlib.sha256(sealed.content).hexdigest() != sealed.checksum:
            raise _damaged(name, "the checksum of its description is wrong")
        version = msgspec.json.decode(sealed.content, type=dict[str, Any]).get("version")
        if version != VERSION:
            raise FileFormatError(
                f"{name}: found format version {version}, expected {VERSION}: written by another version of lessram"
            )
        return msgspec.json.decode(sealed.content, type=_Content), sealed.checksum
    except (msgspec.DecodeError, UnicodeError, TypeError):
        raise _damaged(name, "its description cannot be read") from None


def _tensor(
    data: NDArray[np.uint8], entry: Any, description: _Description, key: str, name: str, verify: bool
) -> NDArray[Any]:
    try:
        first, last = (operator.index(offset) for offset in entry["data_offsets"])
        dtype = np.dtype(_NUMPY_TYPES[entry["dtype"]])
        agrees = entry["dtype"] == description.dtype and entry["shape"] == description.shape
        expected = dtype.itemsize * int(np.prod(description.shape, dtype=object))
    except (KeyError, TypeError, ValueError):
        raise _damaged(name, f"tensor {key!r} is not described as expected") from None
    if not agrees or not 0 <= first <= last or last - first != expected:
        raise _damaged(name, f"tensor {key!r} is not described as expected")
    if last > data.size:
        raise _damaged(name, f"it ends inside tensor {key!r}, after {data.size} of {last} bytes of tensors")
    tensor = data[first:last].view(dtype).reshape(description.shape)
    if verify and _digest(tensor) != description.sha256:
        raise _damaged(name, f"the checksum of tensor {key!r} is wrong")
    return tensor


def _reason(error: Exception) -> str:
    """Why a file could not be written; safetensors puts the system's words between its own."""
    text = getattr(error, "strerror", None) or str(error)
    return re.sub(r"^.*I/O error: (.*) \(os error \d+\)$", r"\1", text)


def _type_name(tensor: NDArray[Any]) -> str:
    names = {np.dtype(kind): name for name, kind in _NUMPY_TYPES.items()}
    return names[tensor.dtype]


def _digest(tensor: NDArray[Any]) -> str:
    flat = tensor.reshape(-1).view(np.uint8)
    return hashlib.sha256(flat.data if flat.size else b"").hexdigest()


def _damaged(name: str, how: str) -> FileFormatError:
    return FileFormatError(f"{name}: damaged model file: {how}")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
