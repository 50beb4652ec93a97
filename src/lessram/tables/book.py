"""A codebook in units of a table's grid, and the index that finds the neighbours of a value without a search.

The books that come with the package were made by `tools/design_codebook.py`.
"""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from lessram.jit import inlined
from lessram.numerics.codebook import FIRST_COUNTS, UNITS, Book, book_of
from lessram.numerics.counter import LEVELS

PACKAGED = {name: Path(__file__).with_name(f"codebook_{name}.json") for name in ("standard", "shipped")}
"""`standard`, and the one before it, whose models must come out the same for ever."""
PARTS = 256
CELL = np.dtype([("weight", "<i2"), ("level", "u1")])
"""A weight in units of the grid and the level of its counter."""


@functools.cache
def packaged_book(name: str) -> Book:
    """A book that comes with the package, in units of alpha / 1024."""
    lists = msgspec.json.decode(PACKAGED[name].read_bytes(), type=list[list[int]])
    return book_of([np.array(points) for points in lists])


def scaled(book: Book, alpha: float, step: float, limit: int) -> NDArray[np.void]:
    """The book for this alpha as 256 cells: what each code stands for, in whole units of the grid."""
    exact = (book.at(level) * (alpha / UNITS / step) for level in range(1, len(FIRST_COUNTS)))
    lists = [_on_parts(np.rint(points).clip(-limit, limit).astype(np.int64)) for points in exact]
    made = book_of([points[points <= limit] for points in lists])
    cells = np.zeros(256, CELL)
    cells["weight"][: len(made.points)] = made.points
    cells["level"][: len(made.levels)] = made.levels
    return cells


def _on_parts(points: NDArray[np.int64]) -> NDArray[np.int64]:
    """The points moved to where parts of the index begin, so that no part has a point inside."""
    width = _width(points)
    return np.unique(points[0] + (points - points[0] + width // 2) // width * width)


def _width(points: NDArray[np.integer]) -> int:
    """Units of the grid that one part of the index covers, for a list with these ends."""
    return int(points[-1] - points[0]) // (PARTS - 1) + 1


class Index(NamedTuple):
    """For each level of a counter the ends of its list; for each of up to 255 equal parts in between the code below."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    parts: NDArray[np.float64]
    """Parts a unit of the grid."""
    below: NDArray[np.uint8]


def index_of(book: NDArray[np.void]) -> Index:
    """The index of a book as cells. Levels that are not in the book, and levels of one value, hold nothing.

    A ValueError if there is none: values of a level rise, on fewer than `PARTS` equal parts.
    """
    listed = len(FIRST_COUNTS)
    index = Index(np.full(LEVELS, np.inf), np.full(LEVELS, -np.inf), np.zeros(listed), np.zeros(listed * PARTS, "u1"))
    for level in range(1, listed):
        codes = np.flatnonzero(book["level"] == level)
        points = book["weight"][codes].astype(np.int64)
        if len(points) < 2:
            continue
        width = math.gcd(*np.diff(points).tolist())
        if np.diff(points).min() <= 0 or points[-1] - points[0] >= PARTS * width:
            raise ValueError(f"the values of level {level} are not those of a codebook")
        index.low[level], index.high[level], index.parts[level] = points[0], points[-1], 1.0 / width
        starts = points[0] + width * np.arange((points[-1] - points[0]) // width + 1)
        place = np.searchsorted(points, starts, side="right") - 1
        below = codes[np.minimum(place, len(points) - 2)]  # a value next to the end may round up to the part behind it
        index.below[level * PARTS : level * PARTS + len(below)] = below
    return index


@inlined
def is_inside(index, level, value):
    """Whether the list of this level reaches around a value; not for NaN."""
    return (value >= index.low[level]) & (value < index.high[level])


@inlined
def code_below(index, level, value):
    """The code below a value inside the list of this level, or the one above where the value is nearly that.

    Never the last of its list, which has none above: there is a part for a value that is nearly the end.
    """
    part = np.uint64(np.int64((value - index.low[level]) * index.parts[level]))
    return np.uint64(index.below[np.uint64(level) * np.uint64(PARTS) + part])


@inlined
def rounded_code(book, index, level, value, chance):
    """One of the two codes around a value inside the list of this level; unbiased over `chance`, uniform in (0, 1).

    At the very start of a part the index may round up: then value - a is -2^-30 or so, and a the right answer.
    """
    code = code_below(index, level, value)
    a, b = np.int64(book[code].weight), np.int64(book[code + np.uint64(1)].weight)
    return np.uint8(code + np.uint64(chance * np.float64(b - a) < value - np.float64(a)))
