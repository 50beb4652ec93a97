"""Rounding a finished model to a coarser grid (section 4).

    random    each weight to one of the two gridpoints around it, E[rounded] = weight: errors cancel over a row,
              and the bounds of section 4 hold
    nearest   each weight to the gridpoint next to it: smaller errors, but all on one side where weights are alike

Nothing accumulates errors any more, so the grid may be much coarser than the one that was trained on. Randomness is a
pure function of (seed, slot): any piece of a model can be rounded alone, twice, or in any order, to the same values.

Precision. A weight in units of the grid is exact (a division by a power of two), and so is its fraction, which is
compared with 53 random bits: exactly unbiased for every fixed-point model, within 2^-53 of a step for others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from lessram.errors import SpecError
from lessram.model.model import Model
from lessram.numerics.bounds import entropy
from lessram.numerics.fixed_point import FixedPoint
from lessram.numerics.random import GOLDEN, finalise, hash_seed

RANDOM, NEAREST = "random", "nearest"
PIECE = 1 << 18
"""Slots that are rounded together: all that is ever expanded of a model."""

Progress = Callable[[int, int], None]
"""Is told how many slots are done, of how many."""


class Rounding(NamedTuple):
    """How weights become gridpoints.

    >>> Rounding(FixedPoint.parse("q2.3"), NEAREST).units(np.array([0.3, -0.3, 99.0]), np.arange(3)).tolist()
    [2, -2, 31]
    """

    grid: FixedPoint
    how: str = RANDOM
    seed: int = 0

    def units(self, weights: NDArray[np.float64], slots: NDArray[np.integer]) -> NDArray[np.int32]:
        """The weights of these slots as gridpoints, in units of the step, moved into the range of the grid."""
        return self.units_by(weights, slot_words(slots, self.seed))

    def units_by(self, weights: NDArray[np.float64], words: NDArray[np.uint64]) -> NDArray[np.int32]:
        """The same, given the random words of the slots."""
        if self.how not in (RANDOM, NEAREST):
            raise SpecError(f"rounding must be {RANDOM} or {NEAREST}, got {self.how!r}")
        exact = weights / self.grid.step
        if self.how == RANDOM:
            below = np.floor(exact)
            rounded = below + rounds_up(exact - below, words)
        else:
            rounded = np.rint(exact)
        reach = self.grid.largest_units
        return np.clip(rounded, -reach, reach).astype(np.int32)

    def is_outside(self, weights: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which weights lie beyond the range of the grid, and are clipped: no rounding, and not unbiased."""
        return np.abs(weights) > self.grid.largest


def slot_words(slots: NDArray[np.integer], seed: int) -> NDArray[np.uint64]:
    """53 random bits a slot. The seed is hashed twice, to share nothing with the words of training."""
    start = np.uint64(hash_seed(hash_seed(seed)))
    return finalise.py_func(start + np.asarray(slots).astype(np.uint64) * GOLDEN) >> np.uint64(11)


def words_by_seed(slots: NDArray[np.integer], roundings: Sequence[Rounding]) -> dict[int, NDArray[np.uint64]]:
    """The words of these slots for each seed: roundings to several grids share them."""
    return {seed: slot_words(slots, seed) for seed in {rounding.seed for rounding in roundings}}


def rounds_up(share: NDArray[np.float64], words: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Whether to take the gridpoint above, with probability `share`, given 53 random bits each."""
    return words * 2.0**-53 < share


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """What rounding makes of a model, known without storing it."""

    grid: str
    nonzero: int
    clipped: int
    """Weights beyond the range of the grid, moved to its ends."""
    moved: int
    """Weights that are no gridpoints, and so are changed; 0 if nothing is lost."""
    entropy: float
    """Bits a slot that an ideal code needs."""


class Rounded:
    """A model on a coarser grid, made piece by piece each time it is gone through."""

    def __init__(self, model: Model, rounding: Rounding, progress: Progress | None = None) -> None:
        check_coarser(model, rounding.grid)
        self.model = model
        self.rounding = rounding
        self._progress = progress

    @property
    def slots(self) -> int:
        return self.model.spec.slots

    def __iter__(self) -> Iterator[NDArray[np.int16]]:
        """All values in order, in units of the grid."""
        for start in range(0, self.slots, PIECE):
            stop = min(start + PIECE, self.slots)
            yield self.piece(start, stop)
            if self._progress:
                self._progress(stop, self.slots)

    def piece(self, start: int, stop: int) -> NDArray[np.int16]:
        """The values of slots start to stop."""
        return round_piece(self.model.weights(start, stop), start, self.rounding)


def round_piece(weights: NDArray[np.float64], start: int, rounding: Rounding) -> NDArray[np.int16]:
    """The weights of the slots from `start` on as gridpoints; zeros, most of many models, stay 0 and cost nothing."""
    units = np.zeros(len(weights), np.int16)
    used = np.flatnonzero(weights)
    units[used] = rounding.units(weights[used], used + start)
    return units


def survey(model: Model, roundings: Sequence[Rounding], progress: Progress | None = None) -> list[Survey]:
    """What each rounding would make of a model: one walk through its table for all of them."""
    slots = model.spec.slots
    counts = [np.zeros(2 * rounding.grid.largest_units + 1, np.int64) for rounding in roundings]
    clipped, moved = ([0] * len(roundings) for _ in range(2))
    for start in range(0, slots, PIECE):
        stop = min(start + PIECE, slots)
        weights = model.weights(start, stop)
        used = np.flatnonzero(weights)
        weights, words = weights[used], words_by_seed(used + start, roundings)
        for k, rounding in enumerate(roundings):
            units = rounding.units_by(weights, words[rounding.seed])
            counts[k] += np.bincount(units + rounding.grid.largest_units, minlength=len(counts[k]))
            counts[k][rounding.grid.largest_units] += stop - start - len(used)
            clipped[k] += int(np.count_nonzero(rounding.is_outside(weights)))
            moved[k] += int(np.count_nonzero(weights != units * rounding.grid.step))
        if progress:
            progress(stop, slots)
    return [
        Survey(
            grid=str(rounding.grid),
            nonzero=slots - int(counts[k][rounding.grid.largest_units]),
            clipped=clipped[k],
            moved=moved[k],
            entropy=entropy(counts[k]),
        )
        for k, rounding in enumerate(roundings)
    ]


def check_coarser(model: Model, grid: FixedPoint) -> None:
    """Refuse a grid that is finer than the model's own: it would only cost bits."""
    own = model.spec.fixed_point
    if own is not None and grid.fraction_bits > own.fraction_bits:
        raise SpecError(f"grid {grid} is finer than the model's own {own}, expected at most {own}, which loses nothing")
