"""Resident memory of adaptive training, measured from outside: a child trains, its parent reads /proc."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from longtail import LongTail
from memory import growth_of

from lessram import Batch, Learner, Spec

ROWS_A_BATCH = 1 << 13
SETTINGS = os.environ | {"LESSRAM_HUGE_PAGES": "0", "MALLOC_MMAP_THRESHOLD_": "65536"}
"""Small pages and an allocator that gives memory back: what is counted is what was touched."""


class Case(NamedTuple):
    name: str
    rows: int
    slots_a_feature: int
    """Slots of the table for each distinct feature of the stream, spread evenly; 0 for dense data."""
    at_most: float
    """Bits a slot, at the peak."""


CASES = [
    Case("every slot seen", 31_000_000, 1, 11.8),
    Case("one slot in seven seen", 3_600_000, 7, 9.2),
    Case("dense: becomes flat", 4_500_000, 0, 25.5),
]
"""All of at least 2^24 slots, which become flat in parts of a bit a slot."""
DENSE_SLOTS = 1 << 24
DENSE_ROW = 64
DENSE_ROWS_A_BATCH = 1 << 10


def measure(case: Case, share: float = 1.0) -> dict[str, Any]:
    """Bits a slot by which a child's resident memory grew: when trained, and at its peak; by a share of the rows."""
    command = [sys.executable, __file__, str(case.slots_a_feature), str(int(case.rows * share))]
    grown = growth_of(command, SETTINGS)
    claimed, slots, *notes = grown.said.split(maxsplit=2)
    figures = {"resident_bits": grown.resident, "peak_bits": grown.peak, "claimed_bits": int(claimed)}
    bits = {name: 8 * size / int(slots) for name, size in figures.items()}
    return {"case": case.name, "slots": int(slots), "notes": notes} | bits


def sparse(slots_a_feature: int, rows: int) -> tuple[int, Iterable[Batch]]:
    """A long tail of which every feature has its slot. The whole stream is there, and touched, before it is learned."""
    tail = LongTail(largest=rows // 2)
    batches = [tail.draw(ROWS_A_BATCH) for _ in range(rows // ROWS_A_BATCH)]
    seen = np.zeros(tail.features, bool)
    for batch in batches:
        seen[batch.slots] = True
    places = np.cumsum(seen, dtype=np.uint32) - np.uint32(1)
    for batch in batches:
        batch.slots[:] = places[batch.slots] * np.uint32(slots_a_feature)
    return (int(places[-1]) + 1) * slots_a_feature, batches


def dense(rows: int) -> tuple[int, Iterable[Batch]]:
    """Features that are all frequent, in three slots of four."""
    slots, rng = DENSE_SLOTS * rows // CASES[-1].rows, np.random.default_rng(1)
    labels = (np.arange(DENSE_ROWS_A_BATCH) % 3 == 0).astype(np.float32)
    indptr = np.arange(DENSE_ROWS_A_BATCH + 1, dtype=np.int64) * DENSE_ROW

    def drawn() -> Iterator[Batch]:
        for _ in range(rows // DENSE_ROWS_A_BATCH):
            yield Batch(labels, indptr, rng.integers(0, 3 * slots // 4, int(indptr[-1]), np.uint32))

    return slots, drawn()


def child(slots_a_feature: int, rows: int) -> None:
    slots, batches = sparse(slots_a_feature, rows) if slots_a_feature else dense(rows)
    rehearse()
    print("ready", flush=True)
    sys.stdin.readline()
    learner = Learner(Spec(slots=slots, weights="adaptive"))
    for batch in batches:
        learner.learn(batch, trusted=True)
    print("done", learner.model.nbytes, slots, *learner.notes, flush=True)
    sys.stdin.readline()


def rehearse() -> None:
    """Compile all that will run, becoming flat included."""
    _, batches = dense(ROWS_A_BATCH)
    learner = Learner(Spec(slots=1000, weights="adaptive"))
    for batch in batches:
        learner.learn(batch._replace(slots=batch.slots % np.uint32(1000)), trusted=True)
    assert learner.notes, "the table became flat"


if __name__ == "__main__":
    child(int(sys.argv[1]), int(sys.argv[2]))
