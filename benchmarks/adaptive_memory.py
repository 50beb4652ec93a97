"""Resident memory of adaptive training, measured from outside: a child trains, its parent reads /proc."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np
from memory import _expect, _forget_peak, _status

ROWS_A_BATCH = 1 << 13
SETTINGS = os.environ | {"LESSRAM_HUGE_PAGES": "0", "MALLOC_MMAP_THRESHOLD_": "65536"}
"""Small pages and an allocator that gives memory back: what is counted is what was touched."""


class Case(NamedTuple):
    name: str
    slots_a_feature: int
    """Slots of the table for each distinct feature of the stream, spread evenly."""
    at_most: float
    """Bits a slot."""


CASES = [Case("every slot seen", 1, 11.8), Case("one slot in seven seen", 7, 9.2)]


def measure(case: Case, rows: int) -> dict[str, Any]:
    """Bits a slot by which a child's resident memory grew: when trained, and at its peak."""
    command = [sys.executable, __file__, str(case.slots_a_feature), str(rows)]
    with subprocess.Popen(command, env=SETTINGS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        _expect(child.stdout.readline(), "ready")
        _forget_peak(child.pid)
        ground = _status(child.pid, "VmRSS")
        child.stdin.write("go\n")
        child.stdin.flush()
        claimed, slots = (int(part) for part in _expect(child.stdout.readline(), "trained").split())
        grown, peak = _status(child.pid, "VmRSS") - ground, _status(child.pid, "VmHWM") - ground
        child.stdin.close()
    figures = {"resident_bits": grown, "peak_bits": peak, "claimed_bits": claimed}
    return {"case": case.name, "slots": slots} | {name: 8 * size / slots for name, size in figures.items()}


def child(slots_a_feature: int, rows: int) -> None:
    """The whole stream is there, and touched, before the parent takes the ground to count from."""
    from longtail import LongTail

    from lessram import Learner, Spec

    tail = LongTail(largest=2 * rows)
    batches = [tail.draw(ROWS_A_BATCH) for _ in range(rows // ROWS_A_BATCH)]
    seen = np.zeros(tail.features, bool)
    for batch in batches:
        seen[batch.slots] = True
    places = np.cumsum(seen, dtype=np.uint32) - np.uint32(1)
    count = int(places[-1]) + 1
    for batch in batches:
        batch.slots[:] = places[batch.slots] * np.uint32(slots_a_feature)
    Learner(Spec(slots=count * slots_a_feature, weights="adaptive")).learn(batches[0].slice(0, 16))
    print("ready", flush=True)
    sys.stdin.readline()
    learner = Learner(Spec(slots=count * slots_a_feature, weights="adaptive"))
    for batch in batches:
        learner.learn(batch, trusted=True)
    print("trained", learner.model.nbytes, learner.model.spec.slots, flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    child(int(sys.argv[1]), int(sys.argv[2]))
