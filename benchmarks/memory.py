"""Resident memory of training, measured from outside: a child trains, its parent reads /proc.

The child compiles and learns with a tiny table first. Only then is its size taken as the ground to
count from, so that what is counted is the table and whatever training needs beside it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

PAGE = 4096
MEASURED_ROWS = 1 << 12
ROW_LENGTH = 40


class Case(NamedTuple):
    weights: str
    rates: str
    at_most: float
    """Bits a slot that resident memory may grow by."""


CASES = [
    Case("q2.13", "morris8", 24.5),
    Case("e3m6", "squares6", 16.5),
    Case("q2.13", "global", 16.5),
    Case("float32", "exact32", 64.5),
]


class Growth(NamedTuple):
    """By how many bytes a process grew, and what it said then."""

    resident: int
    peak: int
    peak_is_exact: bool
    said: str


def growth_of(command: list[str], env: dict[str, str] | None = None) -> Growth:
    """Watch a child that says `ready`, waits for a line, and says `done ...` when what is to be measured is done."""
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        _expect(child.stdout.readline(), "ready")
        exact = _forget_peak(child.pid)
        ground = _status(child.pid, "VmRSS")
        child.stdin.write("go\n")
        child.stdin.flush()
        said = _expect(child.stdout.readline(), "done")
        grown, peak = _status(child.pid, "VmRSS") - ground, _status(child.pid, "VmHWM") - ground
        child.stdin.close()
    return Growth(grown, peak, exact, said)


def measure(case: Case, bits: int) -> dict[str, Any]:
    """Bits a slot by which a child's resident memory grew: when trained, and at its peak."""
    grown = growth_of([sys.executable, __file__, case.weights, case.rates, str(bits)])
    claimed = int(grown.said)
    slots = 1 << bits
    return {
        "weights": case.weights,
        "rates": case.rates,
        "slots": slots,
        "resident_bits_per_slot": 8 * grown.resident / slots,
        "peak_bits_per_slot": 8 * grown.peak / slots,
        "peak_is_exact": grown.peak_is_exact,
        "claimed_bits_per_slot": 8 * claimed / slots,
        "claimed_over_resident": claimed / grown.resident,
        "at_most": case.at_most,
    }


def _expect(line: str, word: str) -> str:
    found, _, rest = line.strip().partition(" ")
    if found != word:
        raise RuntimeError(f"the measured process said {line!r}, expected {word!r}: see its error above")
    return rest


def _status(pid: int, key: str) -> int:
    """A size in bytes from /proc/PID/status."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0]) * 1024
    raise RuntimeError(f"/proc/{pid}/status has no {key}")


def _forget_peak(pid: int) -> bool:
    """Let the peak of a process start again from its present size; False where the kernel does not allow it."""
    try:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _batches(slots: int, cell_bytes: int) -> Iterator[Any]:
    """Rows over random slots, then rows that touch every page of the table, in small batches."""
    from lessram import Batch

    labels = (np.arange(MEASURED_ROWS) % 3 == 0).astype(np.float32)
    indptr = np.arange(MEASURED_ROWS + 1, dtype=np.int64) * ROW_LENGTH
    features = int(indptr[-1])
    yield Batch(labels, indptr, np.random.default_rng(0).integers(0, slots, features, dtype=np.uint32))
    pages = np.arange(features, dtype=np.uint64) * np.uint64(PAGE)
    for start in range(0, slots * cell_bytes, features * PAGE):
        touched = np.minimum((pages + np.uint64(start)) // np.uint64(cell_bytes), np.uint64(slots - 1))
        yield Batch(labels, indptr, touched.astype(np.uint32))


def train(weights: str, rates: str, slots: int) -> Any:
    """A model every page of which has been learned on."""
    from lessram import Learner, Spec

    learner = Learner(Spec(slots=slots, weights=weights, rates=rates))
    for batch in _batches(slots, learner.model.table.cells.itemsize):
        learner.learn(batch)
    return learner.model


def child(weights: str, rates: str, bits: int) -> None:
    train(weights, rates, 1 << 12)
    print("ready", flush=True)
    sys.stdin.readline()
    model = train(weights, rates, 1 << bits)
    print("done", model.nbytes, flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    child(sys.argv[1], sys.argv[2], int(sys.argv[3]))
