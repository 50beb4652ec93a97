"""FTRL-Proximal and RDA in slow, obvious Python, twice: as printed, on the sums z, and as stored, on the averages.

The second stands on tests/reference_squares.py and is what kernels must equal bit for bit. The first says that the
second is the algorithm that it claims to be: exact but for rounding, in double precision.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from reference import Row, derivative, f32
from reference_squares import ONE, ZERO, SquaresLearner


class Printed:
    """The algorithms as printed, one float64 sum z and one n a coordinate; logistic loss, no intercept, no scale."""

    def __init__(self, algorithm: str, *, slots: int, alpha: float, beta: float, l1: float, l2: float) -> None:
        self.algorithm, self.alpha, self.beta, self.l1, self.l2 = algorithm, alpha, beta, l1, l2
        self.z, self.n = [0.0] * slots, [0.0] * slots

    def weight(self, i: int) -> float:
        if abs(self.z[i]) <= self.l1:
            return 0.0
        curvature = (self.beta + math.sqrt(self.n[i])) / self.alpha + self.l2
        return -(self.z[i] - math.copysign(self.l1, self.z[i])) / curvature

    def learn(self, row: Row) -> float:
        weights = [self.weight(slot) for slot, _ in row.features]
        margin = sum(w * x for w, (_, x) in zip(weights, row.features, strict=True))
        slope = derivative("logistic", margin, row.label)
        for w, (slot, x) in zip(weights, row.features, strict=True):
            gradient = slope * x
            sigma = (math.sqrt(self.n[slot] + gradient**2) - math.sqrt(self.n[slot])) / self.alpha
            self.z[slot] += gradient - (sigma * w if self.algorithm == "ftrl" else 0.0)
            self.n[slot] += gradient**2
        return margin


class ProximalLearner(SquaresLearner):
    """The same on stored averages a = -z / S, in the cells and the single precision of a model."""

    def __init__(self, *, algorithm: str, l1: float = 0.0, l2: float = 0.0, **choices: Any) -> None:
        super().__init__(**{"step_rule": "plain" if l1 else "invariant", **choices})
        self.l1, self.l2 = f32(l1 / self.step), f32(l2)
        self.follow = ONE if algorithm == "ftrl" else ZERO

    def before(self, slot: int) -> np.float32:
        return self.state[slot] if self.exact else self.accumulator.value(self.state[slot])

    def weight(self, slot: int) -> np.float32:
        """sgn(a) max(|a| - l1 / S, 0) / (1 + l2 / S)"""
        average = f32(self.coefficient[slot])
        rate = self.alpha / (self.beta + np.sqrt(self.before(slot)))
        shrunk = max(average - rate * self.l1, ZERO) + min(average + rate * self.l1, ZERO)
        return shrunk * (ONE / (ONE + rate * self.l2))

    def pull(self, slot: int, addend: np.float32) -> np.float32:
        """(a - c) (S' - S) / S', c the weight or 0"""
        old, new = np.sqrt(self.before(slot)), np.sqrt(self.before(slot) + addend)
        share = addend / (max(new + old, np.finfo(f32).tiny) * (self.beta + new))
        share = share if share < ONE else ONE  # undefined where both are infinite: all of it
        return (f32(self.coefficient[slot]) - self.follow * self.weight(slot)) * share
