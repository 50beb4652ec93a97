"""Codebooks: one byte for a counter's level and a coefficient together (section 3: resolution follows the rate).

A rare coordinate has taken few steps, each of them as long as its rate is large, so it needs few values; the paper
takes a grid of step gamma * eta. A codebook goes on from there: for each of the first levels of the counter it lists
the values that a coordinate at this level may have, closest where coordinates really are. Rounding stays unbiased:

    a <= beta < b neighbours in the list of the new level: b with probability (beta - a) / (b - a), else a

which adds the variance (beta - a)(b - beta). A list of n points that minimises the sum of this over a sample of
coefficients is found by dynamic programming over points of a linear grid, and `CODES` points are handed out to the
levels one by one, each to where it saves most. A coefficient beyond the ends of its list is never clipped: it is
promoted to a cell of its own, as is one whose counter has passed the last of these levels.

Points are whole multiples of alpha / 1024: steps are proportional to alpha, so one book serves every alpha. All sums
over samples are of integers below 2^63, so every processor designs the same book.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.numerics.counter import LEVELS, Counter, ladder

FIRST_COUNTS = (0, 1, 2, 3, 5, 8, 12)
"""What the levels stand for that a byte can hold; the counter goes on from there in a cell."""
CODES = 196
"""How many states (level, value) a byte tells apart; the first is that of a coordinate never seen."""
UNITS = 1024
"""Points are multiples of alpha / UNITS."""
TAIL = 0.002
"""The share of coefficients beyond each end of a list."""
FEWEST_SAMPLES = 64
_GRID = 200  # candidates a level: ends and steps of a list, and never two points within 1/256 of its range
_MOST_POINTS = 64


class Book(NamedTuple):
    """The states behind the codes: code c stands for a coordinate at level levels[c] with value points[c]."""

    points: NDArray[np.int16]
    levels: NDArray[np.uint8]

    def at(self, level: int) -> NDArray[np.int16]:
        """The values that a coordinate at this level may have, ascending."""
        return self.points[self.levels == level]


def book_of(lists: list[NDArray[np.integer]]) -> Book:
    """One book from the lists of the levels 1, 2, ...; level 0 holds the value 0 alone.

    >>> book_of([np.array([-5, 5]), np.array([-9, 0, 9])]).levels
    array([0, 1, 1, 2, 2, 2], dtype=uint8)
    """
    every = [np.zeros(1, np.int16), *(points.astype(np.int16) for points in lists)]
    levels = [np.full(len(points), level, np.uint8) for level, points in enumerate(every)]
    return Book(np.concatenate(every), np.concatenate(levels))


def joint_counter(base: float) -> Counter:
    """The counter of adaptive tables: the levels of the codebook, then counts that grow by `base`.

    >>> joint_counter(1.5).estimates[5:9]
    array([ 8., 12., 18., 27.])
    """
    counts = [float(count) for count in FIRST_COUNTS]
    while len(counts) < LEVELS:
        counts.append(counts[-1] + max(1.0, (base - 1.0) * counts[-1]))
    return ladder(counts)


def design(
    levels: NDArray[np.integer],
    values: NDArray[np.integer],
    fallback: Book | None = None,
    weights: NDArray[np.integer] | None = None,
) -> Book:
    """The book for a sample of coefficients: the level of each and its value in units of alpha / UNITS.

    A level with hardly any sample takes its list from `fallback`. `weights` are whole numbers that say how much the
    variance of each counts; the ends of lists do not depend on them.
    """
    weights = np.ones(len(values), np.int64) if weights is None else weights
    plans = [_Plan(values[levels == level], weights[levels == level]) for level in range(1, len(FIRST_COUNTS))]
    kept = [
        fallback.at(level) if fallback is not None and plan.samples.size < FEWEST_SAMPLES else None
        for level, plan in enumerate(plans, start=1)
    ]
    counts = [2 if points is None else len(points) for points in kept]
    while sum(counts) + 1 < CODES:
        gains = [
            plan.gain(count) if points is None else -1.0
            for plan, count, points in zip(plans, counts, kept, strict=True)
        ]
        best = int(np.argmax(gains))
        if gains[best] < 0.0:
            break
        counts[best] += 1
    return book_of(
        [plan.points(count) if own is None else own for plan, count, own in zip(plans, counts, kept, strict=True)]
    )


class _Plan:
    """The best lists of 2, 3, ... points for the samples of one level."""

    def __init__(self, samples: NDArray[np.integer], weights: NDArray[np.integer]) -> None:
        order = np.argsort(samples, kind="stable")
        self.samples, self._weights = samples[order].astype(np.int64), weights[order].astype(np.int64)
        if self.samples.size:
            self._solve()

    def gain(self, count: int) -> float:
        """By how much one point more lowers the added variance; -1 where there is none to add."""
        if not self.samples.size or count >= min(_MOST_POINTS, len(self._grid)):
            return -1.0
        return float(self._costs[count - 2] - self._costs[count - 1])

    def points(self, count: int) -> NDArray[np.int64]:
        if not self.samples.size:
            return np.array([-1, 1])
        place = len(self._grid) - 1
        chosen = [place]
        for origin in reversed(self._origins[: count - 1]):
            place = int(origin[place])
            chosen.append(place)
        return self._grid[chosen[::-1]]

    def _solve(self) -> None:
        cost = self._interval_costs()
        best = cost[0]  # of lists of two points: the first of the grid, and each other
        self._costs = [best[-1]]
        self._origins = [np.zeros(len(best), np.int64)]
        for _ in range(3, min(_MOST_POINTS, len(self._grid)) + 1):
            through = best[:, None] + cost
            origin = np.argmin(through, axis=0)
            best = through[origin, np.arange(len(best))]
            self._costs.append(best[-1])
            self._origins.append(origin)

    def _interval_costs(self) -> NDArray[np.float64]:
        """The weighted sum of (x - a)(b - x) over the samples x of [a, b), for all a < b of the grid."""
        x = self.samples
        outside = int(TAIL * len(x))
        low, high = int(x[outside]), int(x[len(x) - 1 - outside]) + 1
        step = -(-(high - low) // _GRID)
        self._grid = low + step * np.arange(-(-(high - low) // step) + 1)
        upto = np.searchsorted(x, self._grid, side="left")
        sums = (np.concatenate([[0], np.cumsum(self._weights * x**power)])[upto] for power in range(3))
        a, b = self._grid[:, None], self._grid[None, :]
        n, s, q = (part[None, :] - part[:, None] for part in sums)
        return np.where(b > a, (a + b) * s - q - a * b * n, np.inf)
