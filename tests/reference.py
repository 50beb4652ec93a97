"""The paper in slow, obvious Python: what every kernel must equal, integer for integer.

Plain integers and Fractions wherever the mathematics is exact; Python floats (IEEE double) and NumPy float32
scalars only where that precision is part of what a model's bytes mean. Nothing here imports the package.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

f32 = np.float32


class Row(NamedTuple):
    """One example: its label, its features as (slot, value), its importance."""

    label: float
    features: Sequence[tuple[int, float]]
    weight: float = 1.0


# Random words: a pure function of (seed, example, position) -----------------------------------------------------------

GOLDEN = 0x9E3779B97F4A7C15


def finalise(z: int) -> int:
    """The finaliser of splitmix64."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
    return z ^ (z >> 31)


def row_key(seed: int, example: int) -> int:
    """The 64-bit key of an example.

    >>> hex(finalise((0 + GOLDEN) % 2**64))    # the first output of splitmix64 with seed 0
    '0xe220a8397b1dcdaf'
    """
    hashed_seed = finalise((seed + GOLDEN) % 2**64)
    return finalise((hashed_seed + example * GOLDEN) % 2**64)


def word(position: int, key: int) -> int:
    """The 32-bit word of the feature at this position of the row with this key."""
    x = (position * 0x9E3779B9 + key) % 2**32
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) % 2**32
    x = ((x ^ (x >> 15)) + (key >> 32)) % 2**32
    x = (x * 0x735A2D97) % 2**32
    x = ((x ^ (x >> 15)) * 0xAC4C1B51) % 2**32
    return x ^ (x >> 14)


def rounding_bits(position: int, key: int) -> int:
    """32 bits: the upper half of the feature's word, then 16 that the row shares."""
    return (word(position, key) >> 16 << 16) | (finalise(~key % 2**64) >> 48)


def uniform(bits: int) -> Fraction:
    """An odd multiple of 2^-25 in single precision, which has no odd ones above 1/2: there the nearest even one."""
    return Fraction(float(f32((bits >> 7) | 1))) / 2**25


def counting_bits(position: int, key: int) -> int:
    """64 bits: the lower half of the feature's word, then 48 that the row shares."""
    return ((word(position, key) % 2**16) << 48) | (finalise(~key % 2**64) % 2**48)


# Qn.m, Project and RandomRound (Algorithm 1) --------------------------------------------------------------------------


class Grid(NamedTuple):
    """Qn.m: gridpoints are integers times eps = 2^-m, of n + m + 1 bits with the sign."""

    n: int
    m: int

    @classmethod
    def parse(cls, text: str) -> Grid:
        return cls(*(int(part) for part in text[1:].split(".")))

    @property
    def eps(self) -> Fraction:
        return Fraction(1, 2**self.m)

    def units_within(self, radius: float | None) -> int:
        """R / eps."""
        return 2 ** (self.n + self.m) - 1 if radius is None else math.floor(Fraction(radius) / self.eps)


def project(beta, limit):
    """Project(beta) = max(-R, min(beta, R))."""
    return max(-limit, min(beta, limit))


def random_round(beta: np.float32, bits: int) -> int:
    """RandomRound in units of the grid: the gridpoint above with probability beta - a, else a = floor(beta).

    A step longer than any grid stays just that.
    """
    beta = beta if beta > f32(-65536) else f32(-65536)
    beta = beta if beta < f32(65536) else f32(65536)
    a = math.floor(beta)
    chance = Fraction(float(beta - f32(a)))
    return a + 1 if uniform(bits) < chance else a


# The randomized counter (section 3.2) ---------------------------------------------------------------------------------


class Morris:
    """C starts at 1, steps up with probability b^-C, and estimates (b^C - b) / (b - 1); 8 bits hold 256 values."""

    LAST = 256

    def __init__(self, base: float) -> None:
        b = Fraction(base)
        powers = [b**c for c in range(self.LAST + 1)]
        self.probability = [1 / power for power in powers]
        self.probability[self.LAST] = Fraction(0)
        self.estimate = [(power - b) / (b - 1) for power in powers]

    def increment(self, c: int, bits: int) -> int:
        return c + 1 if Fraction(bits, 2**64) < self.probability[c] else c


# Losses of a margin z and a label y: derivatives in z -----------------------------------------------------------------


def exponential(x: float) -> float:
    """e^x = 2^n P(f) by the polynomial that all processors share."""
    t = x * 1.4426950408889634
    n = math.floor(t + 0.5)
    f = (t - n) * 0.6931471805599453
    f2 = f * f
    low = (1.0 + f) + f2 * (0.5 + f * (1 / 6))
    high = (1 / 24 + f * (1 / 120)) + f2 * (1 / 720 + f * (1 / 5040))
    return (low + (f2 * f2) * high) * 2.0**n


def sigmoid(z: float) -> float:
    return 1.0 / (1.0 + exponential(min(max(-z, -80.0), 80.0)))


def derivative(loss: str, z: float, y: float) -> float:
    if loss == "squared":
        return z - y
    if loss == "hinge":
        s = 2.0 * y - 1.0
        return -s if s * z < 1.0 else 0.0
    return -sigmoid(-z) if y > 0.5 else sigmoid(z)


# The running scale: root mean square of all values so far -------------------------------------------------------------


def sum_of_squares(values: Sequence[float]) -> float:
    """In double precision: sixteen partial sums in turn, added lane i + lane i + 8, then 4, 2 and 1 apart."""
    lanes = [0.0] * 16
    for place, x in enumerate(values):
        lanes[place % 16] += float(x) * float(x)
    for apart in (8, 4, 2, 1):
        lanes = [lanes[lane] + lanes[(lane + apart) % 16] for lane in range(16)]
    return lanes[0]


# Algorithm 2 ----------------------------------------------------------------------------------------------------------


class OgdRand:
    """OGD-Rand with everything around it: counters, scale, intercept. One row at a time."""

    def __init__(
        self,
        *,
        slots: int,
        weights: str = "q2.13",
        rates: str = "morris8",
        loss: str = "logistic",
        alpha: float = 0.2,
        base: float = 1.1,
        offset: int = 1,
        rate_floor: bool = False,
        radius: float | None = None,
        intercept: bool = True,
        scale: str = "rms",
        seed: int = 0,
    ) -> None:
        self.rates, self.loss, self.alpha, self.offset, self.seed = rates, loss, alpha, offset, seed
        self.has_intercept, self.scaled = intercept, scale == "rms"
        self.fixed = weights != "float32"
        self.step = float(Grid.parse(weights).eps) if self.fixed else 1.0
        if self.fixed:
            self.limit = Grid.parse(weights).units_within(radius)
        else:
            self.limit = np.finfo(f32).max if radius is None else f32(radius)
        self.floor = self.step if rate_floor else 0.0
        self.counter = Morris(base)
        self.beta = [0 if self.fixed else f32(0)] * slots
        self.state = [1 if rates == "morris8" else 0] * slots  # C, or tau
        self.intercept = self.intercept_rounds = 0.0
        self.squares = self.nonzeros = 0.0
        self.examples = 0

    def play(self, row: Row) -> float:
        """The margin z = sum of x_i beta_i, and the intercept; nothing changes."""
        dot = 0.0
        for slot, x in row.features:
            dot += float(self.beta[slot]) * float(x)
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
        gradient = derivative(self.loss, margin, float(row.label)) * float(row.weight)
        if gradient != 0:
            with np.errstate(all="ignore"):
                self.move(row, gradient, t)
            if self.has_intercept:
                self.move_intercept(gradient, t)
        return margin

    def move(self, row: Row, gradient: float, t: int) -> None:
        """For each i with g_i != 0: count, take the rate, move, round, project."""
        key = row_key(self.seed, t)
        bounded = min(max(gradient * self.inverse_scale(), -1e30), 1e30)
        g = f32(-bounded / self.step)
        for position, (slot, x) in enumerate(row.features):
            eta = self.rate(slot, t, counting_bits(position, key))
            delta = eta * f32(x) * g
            if self.fixed:
                delta = random_round(delta, rounding_bits(position, key))
            self.beta[slot] = project(self.beta[slot] + delta, self.limit)

    def rate(self, slot: int, t: int, bits: int) -> np.float32:
        """The rate of a coordinate after its counter took this round in."""
        if self.rates == "global":
            return f32(max(float(f32(self.alpha)) / math.sqrt(t + 1), self.floor))
        if self.rates == "exact32":
            self.state[slot] = min(self.state[slot] + 1, 2**32 - 1)
            return max(f32(self.alpha) / np.sqrt(f32(self.state[slot]) + f32(self.offset)), f32(self.floor))
        self.state[slot] = self.counter.increment(self.state[slot], bits)
        estimate = float(self.counter.estimate[self.state[slot]])
        return f32(max(self.alpha / math.sqrt(estimate + 1), self.floor))

    def move_intercept(self, gradient: float, t: int) -> None:
        """A feature of value 1 in double precision, counted exactly, never rounded."""
        self.intercept_rounds += 1
        rounds = t + 1 if self.rates == "global" else self.intercept_rounds + self.offset
        self.intercept -= max(float(f32(self.alpha)) / math.sqrt(rounds), self.floor) * gradient

    def inverse_scale(self) -> float:
        return math.sqrt(self.nonzeros / self.squares) if self.squares > 0 else 1.0
