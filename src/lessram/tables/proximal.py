"""FTRL-Proximal and RDA: a rule for the tables of tables.squares, whose cells then hold averages.

A cell stores the average a of numerics.proximal where it stored the weight, in the same bits. The weight w(a, S)
depends on the rate too, so prediction reads both. The passes are those of tables.squares, but for

    observe   a and its shrunken w are read; w joins the dot product, the pull a - c is noted (c = w, or 0 for RDA)
    prepare   the pull is multiplied by (S' - S) / S'
    move      the pull is taken off the step before it is rounded

A slot that occurs twice in a row is pulled by each occurrence, from the sum before the row, as it steps by each.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lessram.jit import inlined, overloaded
from lessram.numerics.accumulator import Accumulator
from lessram.numerics.proximal import Shrinkage, shrunk
from lessram.tables.flat import ask, has_field
from lessram.tables.squares import no_terms, weigh
from lessram.tables.table import feature_value, is_table, look


class ProximalRule(NamedTuple):
    """`SquaresRule`, and how averages become weights."""

    sums: Accumulator
    alpha: np.float32
    beta: np.float32
    limit: np.int32 | np.float32
    step: float
    shrinkage: Shrinkage


def weight_at(cells: Any, shrinkage: Any, slot: Any) -> Any:
    """The weight of one slot as float32, in units of the grid."""
    raise NotImplementedError("weight_at() is for kernels")


@overloaded(weight_at)
def _weight_at(cells, shrinkage, slot):
    if has_field(cells, "level"):

        def by_level(cells, shrinkage, slot):
            level = cells[slot].level
            return shrunk(np.float32(cells[slot].weight), shrinkage.thresholds[level], shrinkage.factors[level])

        return by_level

    def by_sum(cells, shrinkage, slot):
        rate = shrinkage.alpha / (shrinkage.beta + np.sqrt(cells[slot].sum))
        factor = np.float32(1.0) / (np.float32(1.0) + rate * shrinkage.l2)
        return shrunk(np.float32(cells[slot].weight), rate * shrinkage.l1, factor)

    return by_sum


@overloaded(weigh)
def _weigh(table, rule, slot, values, x, scratch, j):
    if not is_table(rule, ProximalRule):
        return None

    def weigh_shrunk(table, rule, slot, values, x, scratch, j):
        weight = weight_at(table.cells, rule.shrinkage, slot)
        scratch.pull[j] = np.float32(table.cells[slot].weight) - rule.shrinkage.follow * weight
        return np.float64(weight) * np.float64(x)

    return weigh_shrunk


@overloaded(no_terms)
def _no_terms(table, rule, values):
    return (lambda table, rule, values: 0.0) if is_table(rule, ProximalRule) else None


@inlined
def look_shrunk(table, rule, batch, row):
    """The dot product of a row with the table's weights."""
    dot = 0.0
    for j in range(row.length):
        ask(table, batch, row.ahead + j)
        x = feature_value(batch.values, row.start + j)
        weight = weight_at(table.cells, rule.shrinkage, batch.slots[row.start + j])
        dot += np.float64(weight) * np.float64(x)
    return dot


@overloaded(look)
def _look(table, rule, batch, row):
    if not is_table(rule, ProximalRule):
        return None
    return lambda table, rule, batch, row: look_shrunk(table, rule, batch, row)
