"""The last pass of a row: every weight takes its step, Project(weight + step) of Algorithm 1.

    floating point   each sum is projected as it is made
    fixed point      sums wrap into their cells and replace the steps, `some_left` looks over them in vectors, and a
                     row with a sum beyond R is taken back and moved again, its sums projected one by one

Hardly any row has a sum beyond R, and looking for one at every feature is a tenth of a row's time. Taking back is
exact: sums modulo the width of a cell come out the same in any order, a slot that occurs twice included.
"""

from __future__ import annotations

from typing import Any

from lessram.jit import inlined, overloaded, types
from lessram.numerics.machine import rarely
from lessram.numerics.rounding import outside, project
from lessram.tables.passes import any_outside


def has_integer_weights(cells: Any) -> bool:
    """Whether the weights of this compile-time type are fixed-point."""
    return isinstance(cells.dtype.fields["weight"].type, types.Integer)


@inlined
def add_step(cells, rule, slot, step):
    """Project(weight + step), the weight read again: its slot may occur twice in the row."""
    moved = cells[slot].weight + step
    if rarely(outside(moved, rule.limit)):
        moved = project(moved, rule.limit)
    cells[slot].weight = moved


def move_one(cells: Any, rule: Any, slot: Any, steps: Any, j: Any) -> None:
    """A weight takes step j of its row, whose `some_left` is to be asked afterwards."""
    raise NotImplementedError("move_one() is for kernels")


@overloaded(move_one)
def _move_one(cells, rule, slot, steps, j):
    if not has_integer_weights(cells):
        return lambda cells, rule, slot, steps, j: add_step(cells, rule, slot, steps[j])

    def move_and_wrap(cells, rule, slot, steps, j):
        moved = cells[slot].weight + steps[j]
        steps[j] = moved
        cells[slot].weight = moved

    return move_and_wrap


def some_left(cells: Any, rule: Any, steps: Any, length: Any) -> bool:
    """Whether a weight of the row has left [-R, R]: `steps` must then be found once more, for `move_again`."""
    raise NotImplementedError("some_left() is for kernels")


@overloaded(some_left)
def _some_left(cells, rule, steps, length):
    if not has_integer_weights(cells):
        return lambda cells, rule, steps, length: False
    return lambda cells, rule, steps, length: rarely(any_outside(steps, length, rule.limit))


@inlined
def move_again(cells, rule, slots, start, steps, length):
    """The row slots[start : start + length] goes back to where it was and takes its steps, each sum projected."""
    for j in range(length):
        slot = slots[start + j]
        cells[slot].weight = cells[slot].weight - steps[j]
    for j in range(length):
        add_step(cells, rule, slots[start + j], steps[j])
