"""What becoming flat takes while it happens, read by the process itself where Linux tells it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lessram.tables import adaptive_store, memory
from lessram.tables.book import packaged_book, scaled

SLOTS = 1 << 23
"""25 MB of flat cells, 9 MB of codes."""
MEASURED = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
from lessram.tables import adaptive_store
from test_adaptive_memory import SLOTS, crowded, megabytes

adaptive_store.SMALLEST_PART = 64 * adaptive_store.PAGE_OF_LINES
adaptive_store.flattened(crowded(50_000, sys.argv[1]))
table = crowded(SLOTS, sys.argv[1])
assert adaptive_store.outgrown(table)
Path("/proc/self/clear_refs").write_text("5")
before = megabytes("VmRSS")
flat = adaptive_store.flattened(table)
del table
print(before, megabytes("VmRSS"), megabytes("VmHWM"))
"""


def crowded(slots: int, where: str) -> adaptive_store.Adaptive:
    """A table two thirds of whose slots are promoted: some of every block, or all of the first."""
    table = adaptive_store.fresh(slots, scaled(packaged_book("shipped"), 0.2, 2.0**-13, 32767))
    table.codes.reshape(-1, 64)[:, :60] = 5
    for start in range(0, slots, 1 << 19):
        these = np.arange(start, min(slots, start + (1 << 19)))
        these = these[(these * 7919) % 97 < 65] if where == "everywhere" else these[these < slots * 0.68]
        adaptive_store.put_weights(table, these, these % 1000)
    return table


def megabytes(key: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:")) / 1024


@pytest.mark.parametrize("where", ["everywhere", "at the start"])
def test_becoming_flat_never_takes_more_than_before_or_after(where):
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pytest.skip("this system does not let the peak of a process be measured")
    command = [sys.executable, "-c", MEASURED, where]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    before, after, peak = (float(part) for part in found.stdout.split())
    assert peak - max(before, after) < 4.0, "the codes alone are 9 MB"


def test_memory_that_is_given_back_is_zero_and_the_rest_stays():
    array = memory.zeros(1 << 21, np.dtype(np.uint32))
    array[:] = 7
    memory.release(array[1000:], 4 * 2000, 4 * 1_000_000)
    kept = np.flatnonzero(array)
    gone = np.flatnonzero(array == 0)
    if not len(gone):
        pytest.skip("this system takes no memory back")
    assert 3000 <= gone[0] < 3000 + 1024
    assert 1_001_000 - 1024 < gone[-1] < 1_001_000
    assert len(gone) + len(kept) == len(array)
    assert len(gone) == gone[-1] - gone[0] + 1
