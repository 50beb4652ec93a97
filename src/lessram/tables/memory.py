"""Where large tables come from: zeroed, anonymous, and on huge pages unless told otherwise.

Random access is bound by address translation as much as by memory: 2 MB pages are worth 1.4x at
2^27 slots. Their price is that one touched cell makes 2 MB resident, so a giant table of which little
is ever touched is smaller in RAM without them (`LESSRAM_HUGE_PAGES=0`).
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lessram.errors import SpecError

SMALLEST_MAPPING = 1 << 22  # below this the allocator's own pages are as good
_COLLAPSE = 25  # MADV_COLLAPSE, which Python has no name for


def huge_pages() -> bool:
    """The user's choice, from the environment."""
    chosen = os.environ.get("LESSRAM_HUGE_PAGES", "1")
    if chosen not in ("0", "1"):
        raise SpecError(f"LESSRAM_HUGE_PAGES must be 0 or 1, got {chosen!r}")
    return chosen == "1"


def zeros(count: int, dtype: np.dtype, *, small_pages: bool = False) -> NDArray:
    """`count` zero elements; pages become resident when they are first touched."""
    size = count * dtype.itemsize
    if size < SMALLEST_MAPPING or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.zeros(count, dtype)
    try:
        region = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        raise MemoryError(
            f"cannot allocate {size / 2**30:,.1f} GiB for a table: take fewer slots (slots of Spec, n_slots of "
            "LogisticRegression), features are hashed into them"
        ) from None
    region.madvise(mmap.MADV_HUGEPAGE if huge_pages() and not small_pages else mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(region, dtype)


def copy_into(target: NDArray[Any], source: NDArray[Any]) -> None:
    """Copy cells of one type as the bytes that they are; field by field NumPy takes ten times as long."""
    target.view(np.uint8)[:] = source.view(np.uint8)


def enlarge_pages(array: NDArray[Any]) -> None:
    """Let an array that was filled on small pages have huge ones, unless told otherwise; nothing is copied twice."""
    region = _mapping(array)
    if region is None or not huge_pages():
        return
    region.madvise(mmap.MADV_HUGEPAGE)
    with contextlib.suppress(OSError):  # before Linux 6.1 the kernel does it when it finds the time
        region.madvise(_COLLAPSE)


def release(array: NDArray[Any], start: int, stop: int) -> None:
    """Give the memory behind the bytes start to stop of such an array back: they are 0 from now on.

    Only whole pages go, and nothing of arrays too small for a mapping.
    """
    region = _mapping(array)
    if region is None:
        return
    before = array.ctypes.data - np.frombuffer(region, np.uint8).ctypes.data
    first = -(-(before + start) // mmap.PAGESIZE) * mmap.PAGESIZE
    last = (before + stop) // mmap.PAGESIZE * mmap.PAGESIZE
    if first < last:
        region.madvise(mmap.MADV_DONTNEED, first, last - first)


def drop_file_pages(*arrays: NDArray[Any]) -> None:
    """Let go of what was read of arrays that are mapped from files; the system reads it again where it is asked for."""
    for array in arrays:
        region, owner = _mapping(array), array
        while isinstance(owner, np.ndarray) and not isinstance(owner, np.memmap):
            owner = owner.base  # type: ignore[assignment]
        if region is not None and isinstance(owner, np.memmap):  # other memory would be lost
            region.madvise(mmap.MADV_DONTNEED)


def _mapping(array: NDArray[Any]) -> mmap.mmap | None:
    """The mapping that an array of `zeros`, or a part of one, lies in; None where it has none."""
    owner: Any = array
    while isinstance(owner, np.ndarray | memoryview):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    return owner if isinstance(owner, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED") else None
