"""Text that ends where memory ends: a parser that looks beyond its padding is killed by the system."""

from __future__ import annotations

import ctypes
import mmap
import sys

import numpy as np

from lessram.data.source import Chunk, Place
from lessram.data.text import PADDING

_PAGES = 64
_memory: list[tuple[mmap.mmap, np.ndarray]] = []


def _room() -> np.ndarray:
    """Writable memory with a page behind it that nothing may touch; the same for every caller."""
    if not _memory:
        size = (_PAGES + 1) * mmap.PAGESIZE
        area = mmap.mmap(-1, size)
        array = np.frombuffer(area, np.uint8)
        if sys.platform == "linux":
            last = array.ctypes.data + _PAGES * mmap.PAGESIZE
            none = ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(last), mmap.PAGESIZE, 0)
            assert none == 0
        _memory.append((area, array[: _PAGES * mmap.PAGESIZE]))
    return _memory[0][1]


def guarded_chunk(text: bytes, name: str = "memory") -> Chunk:
    """The text as a chunk whose padding ends at the forbidden page."""
    buffer = _room()[-(len(text) + PADDING) :]
    buffer[: len(text)] = np.frombuffer(text, np.uint8)
    buffer[len(text) :] = 0
    lines = text.count(b"\n") + (not text.endswith(b"\n") and bool(text))
    return Chunk(buffer, len(text), name, Place(), Place(0, len(text), 1 + lines))
