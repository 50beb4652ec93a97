"""Adaptive tables in slow, obvious Python: every coordinate has a level and a value, and no byte is shared.

Nothing here knows of codes, blocks or slabs: what the package stores in them must come to the same.
"""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction

import numpy as np
from reference import OgdRand, Row, counting_bits, f32, project, random_round, rounding_bits, row_key, uniform

FIRST_COUNTS = [0, 1, 2, 3, 5, 8, 12]


def counts_of(base: float) -> list[float]:
    """What each of the 256 levels stands for."""
    counts = [float(count) for count in FIRST_COUNTS]
    while len(counts) < 256:
        counts.append(counts[-1] + max(1.0, (base - 1.0) * counts[-1]))
    return counts


class AdaptiveOgd(OgdRand):
    """OGD-Rand whose values, while the counter is low, are those of a list a level (`lists`, in units of the grid)."""

    def __init__(self, lists: list[list[int]], *, slots: int, base: float = 1.1, **choices) -> None:
        super().__init__(slots=slots, weights="q2.13", rates="morris8", base=base, **choices)
        self.lists = lists
        self.counts = counts_of(base)
        self.level = [0] * slots
        self.promoted = [False] * slots

    def move(self, row: Row, gradient: float, t: int) -> None:
        key = row_key(self.seed, t)
        g = f32(-min(max(gradient * self.inverse_scale(), -1e30), 1e30) / self.step)
        for position, (slot, x) in enumerate(row.features):
            self.count(slot, counting_bits(position, key))
            delta = f32(self.alpha / np.sqrt(self.counts[self.level[slot]] + 1)) * f32(x) * g
            self.step_to(slot, delta, rounding_bits(position, key))

    def count(self, slot: int, bits: int) -> None:
        level = self.level[slot]
        if level == 255:
            return
        chance = 1 / (Fraction(self.counts[level + 1]) - Fraction(self.counts[level]))
        self.level[slot] += Fraction(bits, 2**64) < chance

    def step_to(self, slot: int, delta: np.float32, bits: int) -> None:
        values = self.lists[self.level[slot]] if self.level[slot] < len(FIRST_COUNTS) else []
        target = float(self.beta[slot]) + float(delta)
        if not self.promoted[slot] and len(values) > 1 and values[0] <= target < values[-1]:
            k = bisect_right(values, target)
            a, b = values[k - 1], values[k]
            chance = float(uniform(bits))
            self.beta[slot] = b if chance * (b - a) < target - a else a
        else:
            self.promoted[slot] = True
            self.beta[slot] = project(self.beta[slot] + random_round(delta, bits), self.limit)
