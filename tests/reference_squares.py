"""Rates by squared gradients in slow, obvious Python: the accumulator, the invariant step, the learner.

As tests/reference.py, on which it stands: plain integers and Python floats, NumPy float32 scalars where single
precision is part of what a model's bytes mean. Nothing here imports the package.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

import numpy as np
from reference import (
    Grid,
    Row,
    derivative,
    exponential,
    f32,
    finalise,
    project,
    random_round,
    rounding_bits,
    row_key,
    sum_of_squares,
    word,
)

ZERO, ONE = f32(0), f32(1)


# The accumulator: 256 levels, level c standing for v_c = u (b^c - 1) / (b - 1), u = 2^-10 -----------------------------


class Accumulator:
    """Levels are kept as heights V_c = v_c + V_0 = V_0 b^c, so that what is added is seen relative to the height."""

    def __init__(self, base: float = 1.1, unit: Fraction = Fraction(1, 1024), last: int = 255) -> None:
        self.last = last
        powers = [Fraction(base) ** c for c in range(last + 1)]
        lowest = unit / (Fraction(base) - 1)
        self.height = [f32(float(min(lowest * power, Fraction(2**100)))) for power in powers]
        self.fall = [f32(float(1 / power)) for power in powers]
        self.gap, self.inverse_base = f32(base - 1.0), f32(1.0 / base)
        self.levels_per_octave = f32(math.log(2.0) / math.log(base))

    def value(self, level: int) -> np.float32:
        return self.height[level] - self.height[0]

    def add(self, level: int, addend: np.float32, uniform: np.float32) -> int:
        """The level after adding: k whole levels and, with probability y / (b - 1), one more."""
        r = addend / self.height[level]
        r = r if r < f32(2.0**60) else f32(2.0**60)  # infinite and undefined ones saturate
        k, y = (0, r) if not r > self.gap else self.whole_levels(r)
        return min(level + k + int(uniform * self.gap < y), self.last)

    def whole_levels(self, r: np.float32) -> tuple[int, np.float32]:
        """k = floor(log_b(1 + r)) and y = (1 + r) b^-k - 1, by a logarithm that may be one level too low."""
        k = min(math.floor(max(self.logarithm(r + ONE) * self.levels_per_octave, ZERO)), self.last)
        y = r * self.fall[k] - (ONE - self.fall[k])
        if y > self.gap:
            return k + 1, (y - self.gap) * self.inverse_base
        return k, y

    @staticmethod
    def logarithm(x: np.float32) -> np.float32:
        """log2 from the exponent and a cubic of the mantissa, a little too low; the exponent as float32 keeps it."""
        half, exponent = math.frexp(x)
        m = f32(2 * half)
        cubic = ((m * f32(0.15545) + f32(-1.03926)) * m + f32(3.02948)) * m + f32(-2.14494 - 0.002 - 127.0)
        return f32(exponent - 1 + 127) + cubic


def level_uniform(position: int, key: int) -> np.float32:
    """16 bits of the feature's own word, then 24 that the row shares, never 0."""
    own, shared = word(position, key) % 2**16, (finalise(~key % 2**64) >> 24) % 2**24
    return (f32(own) + f32(shared | 1) * f32(2.0**-24)) * f32(2.0**-16)


# The invariant step: where many small steps would end -----------------------------------------------------------------

LN2 = 0.6931471805599453
SHIFT, CELLS, LAST_T = 17.0, 64, 2.0**57.9


def series(x: float) -> float:
    """e^x by fourteen terms of its series."""
    n = math.floor(x / LN2 + 0.5)
    f = x - n * LN2
    total = 1.0
    for k in range(14, 0, -1):
        total = 1.0 + total * f / k
    return math.ldexp(total, n)


def node(k: int) -> float:
    """Where cell k of t = c + 17 begins: 64 cells an octave."""
    return math.ldexp(1 + (k % CELLS) / CELLS, k // CELLS)


@cache
def margin_at_node(k: int) -> float:
    """The m of m + e^m = node(k) - 17, by Newton's method from above."""
    c = node(k) - SHIFT
    half, exponent = math.frexp(max(c, 1.0))
    m = (exponent - 1) * LN2 + (2 * half - 1) if c > 1 else min(c, 0.0)
    for _ in range(60):
        e = series(m)
        m = m - (m + e - c) / (1 + e)
    return m


@cache
def piece(k: int) -> tuple[float, float, float, float]:
    """The cubic over cell k that has the right values and slopes at both ends; the first is a line of slope 1."""
    width = node(k + 1) - node(k)
    low, high = margin_at_node(k), margin_at_node(k + 1)
    if k == 0:
        return high - width, 1.0, 0.0, 0.0
    left, right = (1 / (1 + series(m)) for m in (low, high))
    rise = (high - low) / width
    return low, left, (3 * rise - 2 * left - right) / width, (left + right - 2 * rise) / (width * width)


def margin_at(t: float) -> float:
    half, exponent = math.frexp(min(max(t, 1.0), LAST_T))
    k = (exponent - 1) * CELLS + math.floor((2 * half - 1) * CELLS)
    u = t - node(k)
    a, b, c, d = piece(k)
    return a + u * (b + u * (c + u * d))


def effective_gradient(loss: str, z: float, y: float, weight: float, q: float) -> float:
    """g, such that the step ends at z - q g: the end of dz/dt = -q l'(z) after a time `weight`."""
    plain = derivative(loss, z, y) * weight
    if q * abs(plain) < 1e-9 or not q < 1e15:
        return plain
    s = 2.0 * y - 1.0
    m = s * z
    if loss == "squared":
        moved = weight * q
        return plain * (1.0 - 0.5 * moved) if moved < 1e-5 else (z - y) * (1.0 - exponential(max(-moved, -700.0))) / q
    if loss == "hinge":
        return -s * min(weight, (1.0 - m) / q)
    if m > 40.0:
        return plain
    start = m + exponential(max(m, -80.0)) + SHIFT
    return -s * max(margin_at(min(start + weight * q, LAST_T)) - margin_at(start), 0.0) / q


# The learner ----------------------------------------------------------------------------------------------------------


def bounded(x: float) -> float:
    return min(max(x, -1e30), 1e30)


class SquaresLearner:
    """Rates alpha / (beta + sqrt(squared gradients so far, this row's included)). One row at a time."""

    def __init__(
        self,
        *,
        slots: int,
        weights: str = "q2.13",
        rates: str = "squares8",
        step_rule: str = "invariant",
        loss: str = "logistic",
        alpha: float = 0.2,
        beta: float = 0.3,
        base: float = 1.1,
        radius: float | None = None,
        intercept: bool = True,
        scale: str = "rms",
        seed: int = 0,
    ) -> None:
        self.exact, self.invariant, self.loss, self.seed = rates == "squares32", step_rule == "invariant", loss, seed
        self.alpha, self.beta = f32(alpha), f32(beta)
        self.has_intercept, self.scaled = intercept, scale == "rms"
        self.fixed = weights != "float32"
        self.step = float(Grid.parse(weights).eps) if self.fixed else 1.0
        if self.fixed:
            self.limit = Grid.parse(weights).units_within(radius)
        else:
            self.limit = np.finfo(f32).max if radius is None else f32(radius)
        self.accumulator = Accumulator(base)
        self.coefficient = [0 if self.fixed else ZERO] * slots
        self.state = [ZERO if self.exact else 0] * slots  # the sum, or its level
        self.intercept = self.intercept_sum = 0.0
        self.squares = self.nonzeros = 0.0
        self.examples = 0

    def inverse_scale(self) -> float:
        return math.sqrt(self.nonzeros / self.squares) if self.squares > 0 else 1.0

    def weight(self, slot: int) -> float:
        """What multiplies a feature, in units of the grid: what is stored, here."""
        return self.coefficient[slot]

    def pull(self, slot: int, addend: np.float32) -> np.float32:
        """What is taken off a step besides the gradient: nothing, here."""
        return ZERO

    def play(self, row: Row) -> float:
        """The margin; nothing changes."""
        dot = 0.0
        for slot, x in row.features:
            dot += float(self.weight(slot)) * float(x)
        return dot * self.step * self.inverse_scale() + self.intercept

    def learn(self, row: Row) -> float:
        """One round: play, observe the loss, move. Returns the margin that was played."""
        t = self.examples
        self.examples += 1
        if row.weight == 0:
            return self.play(row)
        if self.scaled:
            self.squares += sum_of_squares([x for _, x in row.features])
            self.nonzeros += len(row.features)
        margin = self.play(row)
        slope = derivative(self.loss, margin, float(row.label))
        if slope * float(row.weight) != 0:
            with np.errstate(all="ignore"):
                self.move(row, margin, slope, row_key(self.seed, t))
        return margin

    def move(self, row: Row, margin: float, slope: float, key: int) -> None:
        """All rates first, from the sums before the row; then every occurrence steps, one after another."""
        inverse, weight = self.inverse_scale(), float(row.weight)
        square = bounded(slope * slope * weight)
        seen = f32(bounded(square * inverse * inverse))
        addends = [seen * f32(x) * f32(x) for _, x in row.features]
        scales = [self.rate_times_value(slot, f32(x), a) for (slot, x), a in zip(row.features, addends, strict=True)]
        pulls = [self.pull(slot, a) for (slot, _), a in zip(row.features, addends, strict=True)]
        intercept_rate = self.count_intercept(square)
        gradient = slope * weight
        if self.invariant:
            reach = self.reach(row, scales) * inverse * inverse + intercept_rate
            gradient = effective_gradient(self.loss, margin, float(row.label), weight, reach)
        g = f32(-bounded(gradient * inverse) / self.step)
        for position, (slot, _) in enumerate(row.features):
            self.accumulate(slot, addends[position], position, key)
            bits = rounding_bits(position, key)
            self.coefficient[slot] = self.stepped(slot, scales[position] * g - pulls[position], bits)
        self.intercept -= intercept_rate * gradient

    def stepped(self, slot: int, delta: np.float32, bits: int) -> int | np.float32:
        return project(self.coefficient[slot] + (random_round(delta, bits) if self.fixed else delta), self.limit)

    def rate_times_value(self, slot: int, x: np.float32, addend: np.float32) -> np.float32:
        """The rate takes this round's square in before the sum is rounded to a level."""
        before = self.state[slot] if self.exact else self.accumulator.value(self.state[slot])
        return x * (self.alpha / (self.beta + np.sqrt(before + addend)))

    @staticmethod
    def reach(row: Row, scales: list[np.float32]) -> float:
        """The sum of x^2 * rate in single precision: sixteen partial sums, added 8, 4, 2 and 1 apart."""
        lanes = [ZERO] * 16
        for place, ((_, x), scale) in enumerate(zip(row.features, scales, strict=True)):
            lanes[place % 16] = lanes[place % 16] + f32(x) * scale
        for apart in (8, 4, 2, 1):
            lanes = [lanes[lane] + lanes[(lane + apart) % 16] for lane in range(16)]
        return float(lanes[0])

    def accumulate(self, slot: int, addend: np.float32, position: int, key: int) -> None:
        if self.exact:
            self.state[slot] = self.state[slot] + addend
        else:
            self.state[slot] = self.accumulator.add(self.state[slot], addend, level_uniform(position, key))

    def count_intercept(self, square: float) -> float:
        """A feature of value 1, its sum exact in double precision; returns its rate."""
        if not self.has_intercept:
            return 0.0
        self.intercept_sum += square
        return float(self.alpha) / (float(self.beta) + math.sqrt(self.intercept_sum))
