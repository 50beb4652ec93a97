"""Values that are gone through piece by piece, more than once, and never held at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.errors import SpecError
from lessram.numerics.fixed_point import FixedPoint

Values = NDArray[np.integer] | Iterable[NDArray[np.integer]]
Units = NDArray[np.int16]

PIECE = 1 << 20
"""Slots that are looked at together."""
_SAMPLE_RUN, _SAMPLE_RUNS = 1 << 14, 128


class Pieces:
    """Values as arrays of int16, again and again; those that can be had only once are gathered first."""

    def __init__(self, values: Values, grid: FixedPoint) -> None:
        self._grid = grid
        if isinstance(values, np.ndarray):
            self._pieces: Iterable[NDArray[np.integer]] = [values]
        elif iter(values) is values:
            self._pieces = [self._checked(piece) for piece in values]
        else:
            self._pieces = values

    def _checked(self, piece: NDArray[np.integer]) -> Units:
        piece = np.asarray(piece)
        if piece.dtype.kind not in "iu" or piece.ndim != 1:
            raise SpecError(f"values must be 1-d arrays of integers, got {piece.ndim}-d {piece.dtype}")
        most = self._grid.largest_units
        if piece.size and (int(piece.min()) < -most or int(piece.max()) > most):
            found = int(piece.min()) if int(piece.min()) < -most else int(piece.max())
            raise SpecError(f"values on the grid {self._grid} must be between -{most} and {most}, got {found}")
        return np.ascontiguousarray(piece, np.int16)

    def __iter__(self) -> Iterator[Units]:
        for piece in self._pieces:
            for start in range(0, len(piece), PIECE):
                yield self._checked(piece[start : start + PIECE])

    def in_lengths(self, length: int, multiple: int) -> Iterator[Units]:
        """Cut anew into pieces of this length; the last is filled up with zeros to a multiple."""
        waiting: list[Units] = []
        size = 0
        for piece in self:
            waiting.append(piece)
            size += len(piece)
            if size < length:
                continue
            joined = np.concatenate(waiting)
            whole = size - size % length
            for start in range(0, whole, length):
                yield joined[start : start + length]
            waiting, size = [joined[whole:]], size - whole
        if size:
            yield np.concatenate([*waiting, np.zeros(-size % multiple, np.int16)])


class Survey(NamedTuple):
    """What a look through all values tells."""

    slots: int
    counts: NDArray[np.int64]
    """How often each value occurs, at value + 2^15."""
    sample: Units
    """Runs of neighbours from everywhere."""


def survey(pieces: Pieces) -> Survey:
    """Count the values, and keep a sample of bounded size: when it is full, every second run goes."""
    counts = np.zeros(1 << 16, np.int64)
    runs: list[Units] = []
    slots, stride = 0, 1
    for number, piece in enumerate(pieces.in_lengths(_SAMPLE_RUN, 1)):
        counts += np.bincount(piece.astype(np.int64) + (1 << 15), minlength=1 << 16)
        slots += len(piece)
        if number % stride == 0:
            runs.append(piece.copy())
        if len(runs) > _SAMPLE_RUNS:
            runs, stride = runs[::2], 2 * stride
    if slots == 0:
        raise SpecError("found no values to encode, expected at least one")
    return Survey(slots, counts, np.concatenate(runs))
