"""The paper's adaptive grids as a control: what Algorithm 2 computes, in storage that makes no attempt to be small.

    weights    rates              cell                    counted
    gamma      morris8, ladder8   float32, uint8 level    8 bits and the logarithm of the grid's points, by level

The grid of a coordinate follows its counter: eps = R * 2^-k(level) <= gamma * eta(level) (numerics/grids.py). Weights
are stored as multiples of R, so that gridpoints are exact for every R; every step is rounded in double precision:

    beta = Project(w - eta g), then RandomRound(beta, eps)

How many bits a coefficient would take is counted from the levels (`counted_bits`); tables/adaptive.py is the table
that really takes few.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.jit import inlined, overloaded
from lessram.numerics.counter import Counter, steps_up
from lessram.numerics.grids import exponents, value_bits
from lessram.numerics.random import rounding_bits, shared_word, uniform
from lessram.numerics.rate import rates_by_level
from lessram.numerics.rounding import project
from lessram.tables.table import feature_value, is_table, look, move, observe, prepare, words_at

COUNTER_BITS = 8


class Graded(NamedTuple):
    """A record array with the fields `weight`, in units of R, and `level`."""

    cells: NDArray[np.void]


class GradedRule(NamedTuple):
    """How coefficients move."""

    rates: NDArray[np.float32]
    thresholds: NDArray[np.uint64]
    points: NDArray[np.float64]
    """Gridpoints between 0 and R at each level: 2^k."""
    alpha: np.float32
    offset: np.float32
    floor: np.float32
    step: float
    """R, the unit of the weights."""


def graded_rule(counter: Counter, alpha: float, gamma: float, radius: float) -> GradedRule:
    """The rule for these choices."""
    rates = rates_by_level(alpha, counter.estimates)
    points = np.exp2(exponents(rates, gamma, radius).astype(np.float64))
    one, none = np.float32(1.0), np.float32(0.0)
    return GradedRule(rates, counter.thresholds, points, np.float32(alpha), one, none, radius)


def counted_bits(table: Graded, rule: GradedRule) -> float:
    """Bits that all coefficients of a table take on their grids, counters included: those never seen at level 0."""
    present = np.bincount(table.cells["level"], minlength=len(rule.points))
    return float(present @ (COUNTER_BITS + value_bits(np.log2(rule.points))))


@inlined
def dot_of(table, batch, row):
    dot = 0.0
    for j in range(row.length):
        x = feature_value(batch.values, row.start + j)
        dot += np.float64(table.cells[batch.slots[row.start + j]].weight) * np.float64(x)
    return dot


@inlined
def rounded(beta, points, chance):
    """RandomRound of a number in [-1, 1] to the grid of 1 / points, which is a power of two: exact but for `chance`."""
    below = np.floor(beta * points)
    return (below + np.float64(chance < beta * points - below)) / points


@overloaded(look)
def _look(table, rule, batch, row):
    if not is_table(table, Graded):
        return None
    return lambda table, rule, batch, row: dot_of(table, batch, row)


@overloaded(observe)
def _observe(table, rule, batch, row, scratch):
    if not is_table(table, Graded):
        return None
    return lambda table, rule, batch, row, scratch: dot_of(table, batch, row)


@overloaded(prepare)
def _prepare(table, rule, batch, row, scratch, square):
    if not is_table(table, Graded):
        return None
    return lambda table, rule, batch, row, scratch, square: 0.0  # rates by counts go with the plain step


@overloaded(move)
def _move(table, rule, batch, row, scratch, g, square):
    if not is_table(table, Graded):
        return None

    def move_graded(table, rule, batch, row, scratch, g, square):
        at, shared = words_at(row, scratch), shared_word(row.key)
        for j in range(row.length):
            slot = batch.slots[row.start + j]
            level = table.cells[slot].level
            level = np.uint8(level + steps_up(rule.thresholds[level], scratch.counting[at + j]))
            table.cells[slot].level = level
            x = np.float64(feature_value(batch.values, row.start + j))
            beta = np.float64(table.cells[slot].weight) + np.float64(rule.rates[level]) * x * g
            chance = np.float64(uniform(rounding_bits(scratch.words[at + j], shared)))
            table.cells[slot].weight = np.float32(rounded(project(beta, 1.0), rule.points[level], chance))

    return move_graded
