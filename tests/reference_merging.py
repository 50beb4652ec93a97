"""Merging in slow, obvious Python: means of weights and sums of counts as Fractions, rounded to one of two neighbours.

As tests/reference.py, on which it stands. Nothing here imports the package.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import NamedTuple

import numpy as np
from reference import GOLDEN, f32, finalise


def hash_seed(seed: int) -> int:
    return finalise((seed + GOLDEN) % 2**64)


def merging_key(seed: int, examples: int) -> int:
    """A function of the seed and of how many examples all have learned together."""
    return hash_seed(hash_seed(seed) ^ hash_seed(-1 - examples))


def slot_bits(key: int, slot: int) -> tuple[int, int]:
    """32 bits to round the weight of a slot with, and 32 to round its count."""
    word = finalise((key + slot * GOLDEN) % 2**64)
    return word >> 32, word % 2**32


def between(value: Fraction, below: Fraction, above: Fraction, bits: int) -> bool:
    """Whether to go up: with probability (value - below) / (above - below)."""
    return Fraction(bits, 2**32) < (value - below) / (above - below)


def mean(weights: Sequence[float]) -> Fraction:
    return sum((Fraction(float(weight)) for weight in weights), Fraction(0)) / len(weights)


def round_to(points: Sequence[int], value: Fraction, bits: int) -> int:
    """The point of an ascending list below a value, or the one above it."""
    k = bisect_right(points, value)
    if k == len(points):
        return points[-1]
    return points[k] if between(value, Fraction(points[k - 1]), Fraction(points[k]), bits) else points[k - 1]


def round_to_integer(value: Fraction, bits: int) -> int:
    below = value.numerator // value.denominator
    return below + between(value, Fraction(below), Fraction(below + 1), bits)


@cache
def exact(ladder: tuple[float, ...]) -> list[Fraction]:
    return [Fraction(value) for value in ladder]


def merge_levels(ladder: Sequence[float], start: int, levels: Sequence[int], bits: int) -> int:
    """What stood at the start and all that was counted since, back on the ladder; the last level is the end."""
    values = exact(tuple(ladder))
    total = values[start] + sum(values[level] - values[start] for level in levels)
    below = bisect_right(values, total) - 1
    if below >= len(values) - 1:
        return len(values) - 1
    return below + between(total, values[below], values[below + 1], bits)


def merge_counts(start: int, counts: Sequence[int]) -> int:
    return min(start + sum(count - start for count in counts), 2**32 - 1)


def merge_floats(start: float, sums: Sequence[float]) -> np.float32:
    exact = Fraction(float(start)) + sum(Fraction(float(value)) - Fraction(float(start)) for value in sums)
    return f32(float(exact))


# Adaptive tables ------------------------------------------------------------------------------------------------------


class State(NamedTuple):
    """One coordinate, wherever it is held."""

    weight: int
    level: int
    promoted: bool


def merge_states(
    lists: Sequence[Sequence[int]],
    counts: Sequence[float],
    states: Sequence[State],
    key: int,
    slot: int,
    *,
    everyone: bool,
) -> State:
    """The start and the replicas of one coordinate made one: on the list of the merged level, or promoted."""
    start, *replicas = states
    promoted = any(state.promoted for state in states)
    moved = [state for state in replicas if state[:2] != start[:2]]
    if not moved:
        return start._replace(promoted=promoted)
    round_bits, count_bits = slot_bits(key, slot)
    level = merge_levels(counts, start.level, [state.level for state in replicas], count_bits)
    value = mean([state.weight for state in (replicas if everyone else moved)])
    values = lists[level] if level < len(lists) else []
    if not promoted and len(values) > 1 and values[0] <= value < values[-1]:
        return State(round_to(values, value, round_bits), level, False)
    return State(round_to_integer(value, round_bits), level, True)
