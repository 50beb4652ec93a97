"""Where large tables come from: zeroed, anonymous, and on huge pages unless told otherwise.

Random access is bound by address translation as much as by memory: 2 MB pages are worth 1.4x at
2^27 slots. Their price is that one touched cell makes 2 MB resident, so a giant table of which little
is ever touched is smaller in RAM without them (`LESSRAM_HUGE_PAGES=0`).
"""

from __future__ import annotations

import mmap
import os

import numpy as np
from numpy.typing import NDArray

from lessram.errors import SpecError

SMALLEST_MAPPING = 1 << 22  # below this the allocator's own pages are as good


def huge_pages() -> bool:
    """The user's choice, from the environment."""
    chosen = os.environ.get("LESSRAM_HUGE_PAGES", "1")
    if chosen not in ("0", "1"):
        raise SpecError(f"LESSRAM_HUGE_PAGES must be 0 or 1, got {chosen!r}")
    return chosen == "1"


def zeros(count: int, dtype: np.dtype) -> NDArray:
    """`count` zero elements; pages become resident when they are first touched."""
    size = count * dtype.itemsize
    if size < SMALLEST_MAPPING or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.zeros(count, dtype)
    region = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    region.madvise(mmap.MADV_HUGEPAGE if huge_pages() else mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(region, dtype)
