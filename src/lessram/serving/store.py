"""The coefficients of a served model: integers on a coarse grid, looked up by slot."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from lessram.errors import SpecError
from lessram.model.ledger import entropy
from lessram.numerics.fixed_point import FixedPoint

Pieces = NDArray[np.integer] | Iterable[NDArray[np.integer]]


class Census(msgspec.Struct, frozen=True):
    """What is known of the values without decoding them."""

    slots: int
    nonzero: int
    smallest: int
    largest: int
    entropy: float
    """Bits a slot that an ideal code would need (section 4)."""


@dataclass(frozen=True)
class Store:
    """Integers by slot."""

    grid: FixedPoint
    census: Census
    units: NDArray[np.int16]

    @property
    def slots(self) -> int:
        return self.census.slots

    @property
    def nbytes(self) -> int:
        """Bytes of everything that is stored."""
        return self.units.nbytes

    @property
    def bits_per_slot(self) -> float:
        """Real bits a slot, directories and tables included."""
        return 8 * self.nbytes / max(self.slots, 1)

    def lookup(self, slots: NDArray[np.unsignedinteger]) -> NDArray[np.int32]:
        """The values of these slots, in units of the grid."""
        return self.units[slots].astype(np.int32)

    def decode(self, start: int = 0, stop: int | None = None) -> NDArray[np.int32]:
        """The values of slots start to stop."""
        start, stop, _ = slice(start, stop).indices(self.slots)
        return self.lookup(np.arange(start, max(start, stop), dtype=np.uint64))

    def tensors(self) -> dict[str, NDArray[Any]]:
        """What a file holds of it."""
        return {"units": self.units}

    @classmethod
    def from_tensors(cls, tensors: dict[str, NDArray[Any]], grid: FixedPoint, census: Census) -> Store:
        return cls(grid, census, tensors["units"])


def encode(values: Pieces, *, grid: FixedPoint) -> Store:
    """The store of these values, in units of the grid: one array, or pieces of it in order.

    Pieces are gone through more than once; those that can be had only once are gathered first.
    """
    pieces = [values] if isinstance(values, np.ndarray) else values
    units = np.concatenate([np.zeros(0, np.int16), *(np.asarray(piece, np.int16) for piece in pieces)])
    if units.size == 0:
        raise SpecError("found no values to encode, expected at least one")
    found, counts = np.unique(units, return_counts=True)
    census = Census(len(units), int(np.count_nonzero(units)), int(found[0]), int(found[-1]), entropy(counts))
    return Store(grid, census, units)
