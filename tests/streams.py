"""Streams of examples for tests, as plain rows for the reference and as batches for the package."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from reference import Row

from lessram.data.batch import Batch

FLOATING = [("float32", "global"), ("float32", "exact32"), ("float32", "morris8")]
FIXED = [(grid, rates) for grid in ("q2.13", "q2.9", "q2.5", "q0.7", "q3.12") for rates in ("global", "morris8")]
STORAGES = FLOATING + FIXED
"""Every (weights, rates) that has a table, in grids of 8 and 16 bits and of widths in between."""
CELLS = [*FLOATING, ("q2.13", "global"), ("q2.13", "morris8"), ("q2.5", "global"), ("q2.5", "morris8")]
"""One storage for each type of cell: what differs in machine code."""

BY_SQUARES = [("q2.13", "squares8"), ("float32", "squares32"), ("e3m6", "squares6")]
"""Rates by squared gradients: a randomized and an exact kind, and the kind that shares a halfword with the weight."""

PROXIMAL = [("q2.13", "squares8", "ftrl"), ("float32", "squares32", "rda")]
"""Averages that L1 shrinks to weights, again a randomized and an exact kind, one of each algorithm."""

LENGTHS = (0, 1, 15, 16, 17, 40, 0, 300, 3, 16, 2, 257, 8, 31, 32, 33)
"""Around the vector width of 16, the prefetch distance of 256, and nothing at all."""
WEIGHTS = (1.0, 0.0, 0.3, 2.5, 1.0, 7.0, 0.0, 1.0, 1e-3)

_HUGE, _TINY = float(np.float32(3e38)), float(np.float32(1e-45))
ABSURD = [
    Row(1.0, [(0, _HUGE), (1, _TINY), (2, -_HUGE)], 1.0),
    Row(0.0, [(0, _HUGE), (3, 1.0)], _HUGE),
    Row(1.0, [(1, _TINY), (4, _TINY)], _TINY),
    Row(1.0, [(5, _HUGE)], _TINY),  # an infinite rate * value meets a gradient of 0 in single precision
]
"""Values and weights at the ends of what float32 holds: they must saturate, not overflow."""


def make_rows(slots: int, lengths: Sequence[int] = LENGTHS, *, valued: bool = False, seed: int = 42) -> list[Row]:
    """Rows of these lengths over skewed slots, so that many meet again, often within one row.

    Made by exact operations alone: NumPy's exponential, say, differs between processors in the last digit.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for number, length in enumerate(lengths):
        chosen = (slots * rng.random(length) ** 2).astype(int).tolist()
        sizes = np.ldexp(rng.uniform(1, 2, length), rng.integers(-6, 6, length)) * rng.choice([-1, 1], length)
        values = sizes.astype(np.float32).tolist() if valued else [1.0] * length
        weight = WEIGHTS[number % len(WEIGHTS)] if valued else 1.0
        label = float(rng.random() < (0.7 if length and chosen[0] < slots / 4 else 0.3))
        rows.append(Row(label, list(zip(chosen, values, strict=True)), float(np.float32(weight))))
    return rows


def make_crowded_rows(*, valued: bool) -> list[Row]:
    """Few slots, long rows: each slot occurs up to forty times, next to itself and far apart; signs differ."""
    rng = np.random.default_rng(11)
    rows = []
    for length in (2, 16, 17, 40, 120, 300) * 4:
        values = rng.choice([-3.0, -0.5, 0.25, 2.0], length) if valued else np.ones(length)
        slots = rng.integers(0, 8, length)
        rows.append(Row(float(rng.random() < 0.5), list(zip(slots.tolist(), values.tolist(), strict=True))))
    return rows


def to_batch(rows: Sequence[Row], *, valued: bool = True, weighted: bool | None = None, slot_type=np.uint32) -> Batch:
    """The same rows as the package takes them; binary and unweighted ones as None where so asked."""
    weighted = valued if weighted is None else weighted
    features = [feature for row in rows for feature in row.features]
    return Batch(
        labels=np.array([row.label for row in rows], np.float32),
        indptr=np.cumsum([0] + [len(row.features) for row in rows], dtype=np.int64),
        slots=np.array([slot for slot, _ in features], slot_type),
        values=np.array([value for _, value in features], np.float32) if valued else None,
        weights=np.array([row.weight for row in rows], np.float32) if weighted else None,
    )


def cut(batch: Batch, places: Sequence[int]) -> list[Batch]:
    """The batch in pieces, cut at these rows."""
    ends = [0, *sorted(places), batch.rows]
    return [batch.slice(start, stop) for start, stop in pairwise(ends)]
