"""Text and arrays that end where memory ends: a parser that looks or writes beyond them is killed by the system."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lessram.data.source import Chunk, Place
from lessram.data.text import PADDING

_areas: dict[Hashable, NDArray[np.uint8]] = {}


def _area(key: Hashable, size: int) -> NDArray[np.uint8]:
    """Writable memory, some of it at least so large, with a page behind it that nothing may touch; one for each key."""
    pages = -(-max(size, 1) // mmap.PAGESIZE)
    if len(_areas.get(key, ())) < size or key not in _areas:
        memory = np.frombuffer(mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE), np.uint8)
        if sys.platform == "linux":
            last = memory.ctypes.data + pages * mmap.PAGESIZE
            none = ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(last), mmap.PAGESIZE, 0)
            assert none == 0
        _areas[key] = memory[: pages * mmap.PAGESIZE]
    return _areas[key]


def guarded_array(key: Hashable, count: int, kind: Any) -> NDArray[Any]:
    """So many zeros that end at a forbidden page. What was asked for under the same key before lies there, too."""
    size = count * np.dtype(kind).itemsize
    area = _area(key, size)
    array = area[len(area) - size :].view(kind)
    array[:] = 0
    return array


def guarded_chunk(text: bytes, name: str = "memory") -> Chunk:
    """The text as a chunk whose padding ends at the forbidden page."""
    buffer = guarded_array("text", len(text) + PADDING, np.uint8)
    buffer[: len(text)] = np.frombuffer(text, np.uint8)
    lines = text.count(b"\n") + (not text.endswith(b"\n") and bool(text))
    return Chunk(buffer, len(text), name, Place(), Place(0, len(text), 1 + lines))
