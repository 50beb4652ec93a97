"""Which grid a finished model is served on: a given one, or the coarsest that a hold-out, a bound or a size allows.

A hold-out is the way to choose: it measures what rounding really costs. Without one there is the bound
exp(epsilon^2 k / 8) - 1 on the expected relative loss of a row of k features (`numerics.bounds`); Theorem 4.3 is
too loose to plan with, by two orders of magnitude and more, and is reported beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec
import numpy as np

from lessram.data.batch import Batch
from lessram.errors import SpecError
from lessram.model.model import NONZEROS, Model
from lessram.numerics.bounds import expected_relative_error
from lessram.numerics.fixed_point import LARGEST_WIDTH, FixedPoint
from lessram.serving.holdout import Measured, bound_for, measure
from lessram.serving.rounding import PIECE, RANDOM, Rounded, Rounding, Survey, survey
from lessram.serving.served import Served
from lessram.serving.store import Store, encode
from lessram.tables.layout import touched

MAX_LOSS = 0.001
"""The relative loss that may be added where the user does not say: 0.1 %."""
HEADER_BYTES = 8192
"""What a size leaves for the header of the file."""
_LEAST_WHOLE_BITS = 2  # the paper's q2.m, wherever the weights fit
_FINEST = 13  # bits behind the point, for weights that are on no grid of their own

Progress = Callable[[str, int, int], None]
"""Is told what is being done, and how many slots of how many are done."""


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asks for."""

    grid: str | None = None
    max_loss: float | None = None
    """The relative loss that may be added."""
    nonzeros: float | None = None
    """Features in a row, for the bound."""
    size: int | None = None
    """Bytes of the file."""
    rounding: str = RANDOM
    seed: int = 0

    def __post_init__(self) -> None:
        if self.grid is not None and (self.size is not None or self.max_loss is not None):
            raise SpecError("grid leaves nothing to choose: leave out size and max_loss, or grid")
        if self.size is not None and self.max_loss is not None:
            raise SpecError("choose by size or by max_loss, got both")
        if self.max_loss is not None and not 0 <= self.max_loss < math.inf:
            raise SpecError(f"max_loss must be at least 0, got {self.max_loss}")
        if self.nonzeros is not None and not 0 < self.nonzeros < math.inf:
            raise SpecError(f"nonzeros must be above 0, got {self.nonzeros}")
        if self.size is not None and self.size <= HEADER_BYTES:
            raise SpecError(f"size must be above {HEADER_BYTES:,} bytes, which the header may take, got {self.size:,}")


class Trial(NamedTuple):
    """One grid that was considered."""

    survey: Survey
    measured: Measured | None
    bound: float | None
    """The expected relative loss is at most this."""
    theorem: float | None
    """The same by Theorem 4.3."""


class Compressed(NamedTuple):
    """A model as it will be served, and how its grid was chosen."""

    served: Served
    trials: list[Trial]
    chosen: Trial
    why: str
    nonzeros: float | None
    """Features in a row, as the bound was computed for."""


def compress(
    model: Model, wish: Wish, holdout: Iterable[Batch] | None = None, progress: Progress | None = None
) -> Compressed:
    """Round a model at random to a coarse grid and encode it."""
    k = wish.nonzeros or mean_nonzeros(model)
    ways = [Rounding(FixedPoint.parse(wish.grid), wish.rounding, wish.seed)] if wish.grid else candidates(model, wish)
    surveys = survey(model, ways, _telling(progress, "surveying"))
    measured = measure(model, ways, holdout) if holdout is not None else [None] * len(ways)
    trials = [
        Trial(found, cost, *_bounds(model, way, k, found, cost))
        for way, found, cost in zip(ways, surveys, measured, strict=True)
    ]
    if wish.size is not None:
        at, store = _finest_within(model, ways, surveys, wish.size, progress)
        why = f"the finest grid within {wish.size:,} bytes"
    else:
        at, why = _coarsest(trials, wish, k)
        store = encode(Rounded(model, ways[at], _telling(progress, "encoding")), grid=ways[at].grid)
    served = Served.of(model, store, seen=_seen(model), metrics=_metrics(trials[at], wish))
    return Compressed(served, trials, trials[at], why, k)


def candidates(model: Model, wish: Wish) -> list[Rounding]:
    """The grids to choose from, the coarsest first: wide enough for every weight, no finer than the model's own.

    Bits before the point cost nothing once values are coded, and clipping would not be unbiased.
    """
    largest = _largest(model)
    own = model.spec.fixed_point
    finest = _FINEST if own is None else own.fraction_bits
    grids = []
    for fraction in range(finest + 1):
        whole = _LEAST_WHOLE_BITS
        while 2.0**whole - 2.0**-fraction < largest:
            whole += 1
        if whole + fraction + 1 <= LARGEST_WIDTH:
            grids.append(FixedPoint(whole, fraction))
    if not grids:
        raise SpecError(f"found a weight of {largest:g}, expected at most {2**15 - 1}: choose a grid, which clips it")
    return [Rounding(grid, wish.rounding, wish.seed) for grid in grids]


def mean_nonzeros(model: Model) -> float | None:
    """Features in a row of the training data, if the model counted them."""
    counted = float(model.scalars[NONZEROS])
    return counted / model.examples if counted > 0 and model.examples > 0 else None


def _coarsest(trials: list[Trial], wish: Wish, k: float | None) -> tuple[int, str]:
    """The coarsest grid from which on all finer ones, too, cost no more than is allowed."""
    if wish.grid is not None:
        return 0, "as asked"
    allowed = MAX_LOSS if wish.max_loss is None else wish.max_loss
    if trials[0].measured is not None:
        costs = [trial.measured.relative_loss for trial in trials if trial.measured]
        why = f"the coarsest grid that adds at most {allowed:.3%} on the hold-out"
    else:
        costs = [trial.bound for trial in trials if trial.bound is not None]
        if k is None or len(costs) < len(trials):
            raise SpecError(
                "found neither a hold-out nor a bound to choose a grid by: give data, a grid or a size "
                "(the bound needs logistic loss, random rounding and the number of nonzeros in a row)"
            )
        why = f"the coarsest grid whose expected added loss is bounded by {allowed:.3%} for rows of {k:g} features"
    good = [cost <= allowed for cost in costs]
    if not good[-1]:
        raise SpecError(
            f"even the finest grid, {trials[-1].survey.grid}, adds {costs[-1]:.3%}, expected at most {allowed:.3%}"
        )
    return len(good) - good[::-1].index(False) if False in good else 0, why


def _finest_within(
    model: Model, ways: list[Rounding], surveys: list[Survey], size: int, progress: Progress | None
) -> tuple[int, Store]:
    room = size - HEADER_BYTES
    store = None
    for at in reversed(range(len(ways))):
        if surveys[at].entropy * model.spec.slots / 8 > room:
            continue
        store = encode(Rounded(model, ways[at], _telling(progress, "encoding")), grid=ways[at].grid)
        if store.nbytes <= room:
            return at, store
    least = store.nbytes if store else math.ceil(surveys[0].entropy * model.spec.slots / 8)
    raise SpecError(
        f"even on the coarsest grid, {surveys[0].grid}, the model needs {least + HEADER_BYTES:,} bytes, "
        f"expected at most {size:,}"
    )


def _bounds(
    model: Model, way: Rounding, k: float | None, found: Survey, cost: Measured | None
) -> tuple[float | None, float | None]:
    """The bound on the expected relative loss, and Theorem 4.3 in its tighter form; none where weights are clipped."""
    bound = cost.bound if cost else bound_for(model, way, k)
    if bound is None or found.clipped:
        return None, None
    theorem = None if k is None else expected_relative_error(way.grid.step, k)
    return bound if found.moved else 0.0, theorem


def _metrics(trial: Trial, wish: Wish) -> dict[str, Any]:
    """What the file remembers of how it was made."""
    measured = trial.measured
    return {
        "rounding": wish.rounding,
        "seed": wish.seed,
        "clipped": trial.survey.clipped,
        "expected_relative_loss_bound": trial.bound,
        "measured_relative_loss": measured.relative_loss if measured else None,
        "log_loss": measured.log_loss if measured else None,
    }


def _largest(model: Model) -> float:
    slots = model.spec.slots
    return max(float(np.abs(model.weights(start, start + PIECE)).max()) for start in range(0, slots, PIECE))


def _seen(model: Model) -> int:
    slots = model.spec.slots
    return sum(int(np.count_nonzero(touched(model.table, start, start + PIECE))) for start in range(0, slots, PIECE))


def _telling(progress: Progress | None, what: str) -> Callable[[int, int], None] | None:
    return None if progress is None else lambda done, total: progress(what, done, total)
