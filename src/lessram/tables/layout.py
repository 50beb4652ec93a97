"""Which cell goes with which weights and rates, and which class of table runs it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lessram.errors import SpecError
from lessram.numerics.fixed_point import FixedPoint
from lessram.numerics.minifloat import E3M6, Minifloat
from lessram.numerics.proximal import Shrinkage, shrink, threshold_and_factor
from lessram.tables import adaptive_store
from lessram.tables.adaptive import Adaptive
from lessram.tables.blocks import FIRST_SLOT
from lessram.tables.flat import Flat
from lessram.tables.graded import Graded
from lessram.tables.halfword import CELL, Halfword, packed, unpacked
from lessram.tables.memory import copy_into, drop_file_pages, zeros
from lessram.tables.squares import Squares

RATE_STATE = {
    "global": None,
    "exact32": ("count", "<u4"),
    "morris8": ("level", "u1"),
    "ladder8": ("level", "u1"),
    "squares32": ("sum", "<f4"),
    "squares8": ("level", "u1"),
    "squares6": None,  # shares a halfword with the weight
}
"""The field that each kind of rates adds to a cell."""

EXACT = ("exact32", "squares32")
SQUARES = ("squares8", "squares32", "squares6")
PROXIMAL = ("squares8", "squares32")
"""Rates whose cells can hold the averages of FTRL-Proximal and RDA."""
HALFWORD = (str(E3M6), "squares6")

ADAPTIVE = "adaptive"
"""Weights in a byte each and in cells of 24 bits where a byte is too little (tables/adaptive.py)."""

GAMMA = "gamma"
"""The paper's adaptive grids, as a control whose bits are counted (tables/graded.py)."""

Table = Flat | Squares | Halfword | Adaptive | Graded


def is_halfword_format(weights: str) -> bool:
    """Whether weights are e3m6 or a multiple of it, which has the same codes."""
    return weights.startswith("e") and dataclasses.replace(Minifloat.parse(weights), times=1) == E3M6


def cell_type(weights: str, rates: str) -> np.dtype:
    """The packed cell for these weights and rates.

    >>> cell_type("q2.13", "morris8").itemsize, cell_type("float32", "exact32").itemsize
    (3, 8)
    """
    if rates not in RATE_STATE:
        raise SpecError(f"rates must be one of {', '.join(RATE_STATE)}, got {rates!r}")
    if rates in EXACT and weights != "float32":
        raise SpecError(f"rates {rates} go with weights float32 (a 64-bit control), got weights {weights}")
    if rates == "squares6" or weights.startswith("e"):
        if rates != HALFWORD[1] or not is_halfword_format(weights):
            raise SpecError(
                f"weights {HALFWORD[0]} and rates {HALFWORD[1]} share one 16-bit cell and go together only, "
                f"got weights {weights} with rates {rates}"
            )
        return CELL
    if weights == ADAPTIVE:
        return adaptive_store.CELL  # of coordinates that have outgrown their byte
    weight = np.dtype("<f4") if weights in ("float32", GAMMA) else FixedPoint.parse(weights).dtype
    state = RATE_STATE[rates]
    return np.dtype([("weight", weight.newbyteorder("<"))] + ([state] if state else []))


def table_of(rates: str, cells: NDArray[np.void], weights: str = "") -> Table:
    """Cells as the table that their rates (and weights) need."""
    if weights == GAMMA:
        return Graded(cells)
    if rates == "squares6":
        return Halfword(cells)
    return Squares(cells) if rates in SQUARES else Flat(cells)


def allocate(weights: str, rates: str, slots: int, book: NDArray[np.void] | None = None) -> Table:
    """A table of `slots` zero coefficients with fresh rate states; adaptive ones need the `book` of their codes."""
    if weights == ADAPTIVE:
        assert book is not None
        return adaptive_store.fresh(slots, book)
    return table_of(rates, zeros(slots, cell_type(weights, rates)), weights)


# Outside kernels a table is these functions: nobody else needs to know how its bytes are laid out.


def nbytes_of(table: Table) -> int:
    """Bytes of the table, all that it allocated (of reserved memory, all that it touched)."""
    if isinstance(table, Adaptive):
        return adaptive_store.nbytes(table)
    return table.cells.nbytes


def slots_of(table: Table) -> int:
    """How many coordinates the table has."""
    return adaptive_store.slots(table) if isinstance(table, Adaptive) else len(table.cells)


def is_writable(table: Table) -> bool:
    return bool(table.cells.flags.writeable)


def tensors_of(table: Table) -> dict[str, NDArray[Any]]:
    """The table as the tensors of a file, without copying."""
    if isinstance(table, Adaptive):
        return adaptive_store.tensors(table)
    return {"cells": table.cells.view(np.uint8).reshape(len(table.cells), -1)}


def table_from(
    tensors: dict[str, NDArray[Any]], weights: str, rates: str, slots: int, *, writable: bool = False
) -> Table:
    """The table behind the tensors of a file, which are taken out of `tensors`; a copy if `writable`.

    Raises KeyError where a tensor is missing and ValueError where one does not fit.
    """
    if weights == ADAPTIVE and "blocks" in tensors:
        found = adaptive_store.from_tensors(tensors, slots)
        return copied(found) if writable else found
    cell = cell_type(weights, rates)
    stored = tensors.pop("cells")
    if stored.shape != (slots, cell.itemsize):
        raise ValueError(f"cells of shape {stored.shape}, expected {(slots, cell.itemsize)}")
    cells = stored.reshape(-1).view(cell)
    table = table_of(rates, cells, weights)
    return copied(table) if writable else table


def copied(table: Table) -> Table:
    """The same table in memory of its own, which can be written."""
    if isinstance(table, Adaptive):
        return adaptive_store.copied(table)
    cells = zeros(len(table.cells), table.cells.dtype)
    copy_into(cells, table.cells)
    return table._replace(cells=cells)


def stored_weights(table: Table, start: int = 0, stop: int | None = None) -> NDArray[Any]:
    """The weights of slots start to stop, in units of the grid, as numbers that can be computed with."""
    if isinstance(table, Halfword):
        return unpacked(table.cells[start:stop])
    if isinstance(table, Adaptive):
        return adaptive_store.weights(table, start, stop)
    return table.cells["weight"][start:stop]


def shrunken_weights(
    table: Table, shrinkage: Shrinkage, start: int = 0, stop: int | None = None
) -> NDArray[np.float32]:
    """The weights behind the stored averages of FTRL-Proximal and RDA, in units of the grid."""
    cells = table.cells[start:stop]
    averages = cells["weight"].astype(np.float32)
    if "sum" in (cells.dtype.names or ()):
        return shrink(averages, *threshold_and_factor(shrinkage, cells["sum"]))
    return shrink(averages, shrinkage.thresholds[cells["level"]], shrinkage.factors[cells["level"]])


def picked(table: Table, slots: NDArray[np.integer]) -> Table:
    """A small table of copies of these slots alone, in this order."""
    if isinstance(table, Adaptive):
        return Flat(adaptive_store.cells_at(table, slots))
    return table._replace(cells=table.cells[slots])


def put_weights(table: Table, slots: NDArray[np.integer], weights: NDArray[Any]) -> None:
    """Set the weights of these slots, given in units of the grid; rate states stay as they are."""
    if isinstance(table, Adaptive):
        adaptive_store.put_weights(table, slots, weights)
        return
    if isinstance(table, Halfword):
        table.cells[slots] = packed(weights, table.cells[slots])
    else:
        table.cells["weight"][slots] = weights


def touched(table: Table, start: int = 0, stop: int | None = None) -> NDArray[np.bool_]:
    """Which of the slots start to stop some example has touched."""
    if isinstance(table, Adaptive):
        return adaptive_store.codes(table, start, stop) != 0
    cells = table.cells[start:stop]
    if isinstance(table, Halfword):
        return cells != 0
    changed = cells["weight"] != 0
    for state in ("count", "level", "sum"):
        if state in (cells.dtype.names or ()):
            changed |= cells[state] != 0
    return changed


def codebook_of(table: Table) -> bytes | None:
    """What the codes of a table stand for; None where it has none."""
    return table.cells[:FIRST_SLOT].tobytes() if isinstance(table, Adaptive) else None


def drop_pages_of(table: Table) -> None:
    """Let go of what was read of a table that is mapped from a file."""
    drop_file_pages(table.cells)


def parts_of(table: Table) -> dict[str, int] | None:
    """Bytes of the table by what they are for; None where all are cells."""
    return adaptive_store.parts(table) if isinstance(table, Adaptive) else None
