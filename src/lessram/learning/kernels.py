"""The two loops over rows, for every table (Algorithm 2; predict, score, then learn).

Besides the table a model has four numbers, kept outside it in float64: the intercept with its exact
count, and the running scale of feature values. The scale is the root mean square of all nonzero values
seen so far; values are divided by it, so that one learning rate serves raw counts and unit-norm text
alike. It depends on features alone, is updated before a row is predicted, and is frozen in prediction.
Data of ones have scale 1 exactly.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.jit import inlined, kernel, overloaded, types
from lessram.model.model import INTERCEPT, INTERCEPT_STATE, NONZEROS, SQUARES
from lessram.numerics.invariant import effective_gradient
from lessram.numerics.loss import Loss, derivative
from lessram.numerics.machine import prefetch_run, rarely
from lessram.numerics.random import row_key
from lessram.tables.halfword import HalfwordRule
from lessram.tables.passes import sum_of_squares
from lessram.tables.proximal import ProximalRule
from lessram.tables.squares import SquaresRule
from lessram.tables.table import FAR, draw_ahead, is_table, locate, look, move, observe, prepare

_LOGISTIC = int(Loss.logistic)
LARGEST_GRADIENT = 1e30
ROWS_AHEAD = 64
"""How many rows ahead labels, weights, margins and the places of rows are asked for."""


class Objective(NamedTuple):
    """What is minimised, and how the numbers beside the table behave."""

    loss: int
    seed: np.uint64
    """The user's seed, hashed."""
    intercept: bool
    scaled: bool
    """Whether values are divided by their running scale."""
    one_rate: bool
    """Whether the intercept, like all features, follows the global rate."""
    invariant: bool
    """Whether large steps end where many small ones would."""
    pieces: NDArray[np.float64]
    """The table behind the invariant step."""


@kernel
def learn_rows(table, rule, objective, batch, scalars, first_example, scratch, margins):
    """Predict each row, write its margin, then learn from it. Labels are never read before."""
    rows = margins.shape[0]
    if rows == 0:
        return
    following = learned_row(batch, 0, objective, first_example)
    draw_ahead(following, scratch)
    for r in range(rows):
        row = following
        ask_for_batch(batch, row, r, margins)
        weight = row_weight(batch.weights, r)
        if objective.scaled and weight != 0.0:
            include_in_scale(batch.values, row, scalars)
        inverse = scale_inverse(scalars)
        # Rounds without a gradient are not counted. The logistic gradient is never 0, so its rows are counted
        # and summed in one pass; other losses look first.
        at_once = objective.loss == _LOGISTIC and weight != 0.0
        dot = observe(table, rule, batch, row, scratch) if at_once else look(table, rule, batch, row)
        margin = dot * (rule.step * inverse) + scalars[INTERCEPT]
        margins[r] = margin
        label = np.float64(batch.labels[r])
        slope = derivative(objective.loss, margin, label)
        gradient = slope * weight
        # Not before the slope: its exponential would begin later, and the row waits for that.
        if r + 1 < rows:
            following = learned_row(batch, r + 1, objective, first_example)
            draw_ahead(following, scratch)
        if gradient == 0.0 or weight == 0.0:  # which may have any label
            continue
        if not at_once:
            observe(table, rule, batch, row, scratch)
        square = bounded(slope * slope * weight)
        square_seen = bounded(over_squared_scale(square, inverse))
        reach = over_squared_scale(prepare(table, rule, batch, row, scratch, square_seen), inverse)
        intercept_rate = step_intercept_state(scalars, rule, objective, row.example, square)
        if objective.invariant:
            reach += intercept_rate
            gradient = effective_gradient(objective.loss, margin, label, weight, reach, gradient, objective.pieces)
        move(table, rule, batch, row, scratch, downhill(gradient, inverse, rule.step), square_seen)
        scalars[INTERCEPT] = bounded(scalars[INTERCEPT] - intercept_rate * gradient)


@inlined
def learned_row(batch, r, objective, first_example):
    """The place of row r, with the key of its example."""
    example = np.uint64(first_example) + np.uint64(r)
    return locate(batch, r, row_key(objective.seed, example), example)


@kernel
def predict_rows(table, rule, batch, scalars, margins):
    """The margin of each row; changes nothing but `margins`."""
    inverse = scale_inverse(scalars)
    for r in range(margins.shape[0]):
        row = locate(batch, r, np.uint64(0), np.uint64(0))
        ask_for_batch(batch, row, r, margins)
        margins[r] = look(table, rule, batch, row) * rule.step * inverse + scalars[INTERCEPT]


@inlined
def ask_for_batch(batch, row, r, margins):
    """Ask for the parts of the batch that come up, so that no row waits for its own input.

    They are read in order, but among so many requests for cells some processors do not notice. Slots are read `FAR`
    features before they are learned, hence are asked for as much earlier.
    """
    prefetch_run(batch.slots, row.ahead + FAR, row.length)
    prefetch_run(batch.values, row.ahead, row.length)
    prefetch_run(batch.indptr, r + ROWS_AHEAD, 1)
    prefetch_run(batch.labels, r + ROWS_AHEAD, 1)
    prefetch_run(batch.weights, r + ROWS_AHEAD, 1)
    prefetch_run(margins, r + ROWS_AHEAD, 1)


@inlined
def downhill(gradient, inverse, step):
    """Minus the gradient in w x, bounded, in units of the grid.

    The grid's step is a power of two, so that all orders of these factors give the same bits: in this one only one
    product waits for the gradient.
    """
    g = -gradient * (inverse * (1.0 / step))
    if rarely(not abs(gradient * inverse) <= LARGEST_GRADIENT):
        g = -bounded(gradient * inverse) * (1.0 / step)
    return g


@inlined
def over_squared_scale(x, inverse):
    """x / scale^2. Rows wait for these products, and data of ones need none."""
    if rarely(inverse != 1.0):
        x = x * inverse * inverse
    return x


@inlined
def bounded(x):
    """Keeps float32 steps finite under absurd weights; they saturate long before."""
    if rarely(not abs(x) <= LARGEST_GRADIENT):
        x = min(max(x, -LARGEST_GRADIENT), LARGEST_GRADIENT)
    return x


def step_intercept_state(scalars: Any, rule: Any, objective: Any, example: Any, square: Any) -> float:
    """The intercept learns like a feature of value 1, with exact state and no rounding. Returns its rate."""
    raise NotImplementedError("step_intercept_state() is for kernels")


@overloaded(step_intercept_state)
def _step_intercept_state(scalars, rule, objective, example, square):
    if any(is_table(rule, kind) for kind in (SquaresRule, ProximalRule, HalfwordRule)):

        def step_sum(scalars, rule, objective, example, square):
            if not objective.intercept:
                return 0.0
            scalars[INTERCEPT_STATE] += square
            return np.float64(rule.alpha) / (np.float64(rule.beta) + np.sqrt(scalars[INTERCEPT_STATE]))

        return step_sum

    def step_count(scalars, rule, objective, example, square):
        if not objective.intercept:
            return 0.0
        scalars[INTERCEPT_STATE] += 1.0
        rounds = scalars[INTERCEPT_STATE] + np.float64(rule.offset)
        rounds = np.float64(example) + 1.0 if objective.one_rate else rounds
        return max(np.float64(rule.alpha) / np.sqrt(rounds), np.float64(rule.floor))

    return step_count


@inlined
def scale_inverse(scalars):
    """1 / root mean square of the nonzero values; 1 before any was seen."""
    return np.sqrt(scalars[NONZEROS] / scalars[SQUARES]) if scalars[SQUARES] > 0.0 else 1.0


def include_in_scale(values: Any, row: Any, scalars: Any) -> None:
    """Add a row's values, none of them 0, to the running scale."""
    raise NotImplementedError("include_in_scale() is for kernels")


@overloaded(include_in_scale)
def _include_in_scale(values, row, scalars):
    if isinstance(values, types.NoneType):

        def include_ones(values, row, scalars):
            scalars[SQUARES] += np.float64(row.length)
            scalars[NONZEROS] += np.float64(row.length)

        return include_ones

    def include_values(values, row, scalars):
        scalars[SQUARES] += sum_of_squares(values, row.start, row.length)
        scalars[NONZEROS] += np.float64(row.length)

    return include_values


def row_weight(weights: Any, r: Any) -> Any:
    """The importance of row r; 1 where the batch has none."""
    raise NotImplementedError("row_weight() is for kernels")


@overloaded(row_weight)
def _row_weight(weights, r):
    if isinstance(weights, types.NoneType):
        return lambda weights, r: 1.0
    return lambda weights, r: np.float64(weights[r])
