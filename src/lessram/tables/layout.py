"""Which cell goes with which weights and rates, and which class of table runs it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lessram.errors import SpecError
from lessram.numerics.fixed_point import FixedPoint
from lessram.tables.flat import Flat
from lessram.tables.memory import zeros
from lessram.tables.squares import Squares

RATE_STATE = {
    "global": None,
    "exact32": ("count", "<u4"),
    "morris8": ("level", "u1"),
    "ladder8": ("level", "u1"),
    "squares32": ("sum", "<f4"),
    "squares8": ("level", "u1"),
}
"""The field that each kind of rates adds to a cell."""

EXACT = ("exact32", "squares32")
SQUARES = ("squares8", "squares32")

Table = Flat | Squares


def cell_type(weights: str, rates: str) -> np.dtype:
    """The packed cell for these weights and rates.

    >>> cell_type("q2.13", "morris8").itemsize, cell_type("float32", "exact32").itemsize
    (3, 8)
    """
    if rates not in RATE_STATE:
        raise SpecError(f"rates must be one of {', '.join(RATE_STATE)}, got {rates!r}")
    if rates in EXACT and weights != "float32":
        raise SpecError(f"rates {rates} go with weights float32 (a 64-bit control), got weights {weights}")
    weight = np.dtype("<f4") if weights == "float32" else FixedPoint.parse(weights).dtype
    state = RATE_STATE[rates]
    return np.dtype([("weight", weight.newbyteorder("<"))] + ([state] if state else []))


def table_of(rates: str, cells: NDArray[np.void]) -> Table:
    """Cells as the table that their rates need."""
    return Squares(cells) if rates in SQUARES else Flat(cells)


def allocate(weights: str, rates: str, slots: int) -> Table:
    """A table of `slots` zero coefficients with fresh rate states."""
    return table_of(rates, zeros(slots, cell_type(weights, rates)))
