"""Merging: the cells of replicas that parted at a common start become one table (numerics/merging.py).

    weights   their mean goes to                     rates                what was added since the start
    qN.M      one of two integers, at random         morris8, ladder8     adds up, to one of two levels, at random
    e3m6      one of two gridpoints, at random,      squares8, squares6   the same
    gamma     of the grid that the new level has     exact32              adds up, as far as 32 bits reach
    float32   the nearest                            squares32            adds up

Averages of FTRL-Proximal and RDA are merged as the weights that they stand for. Adaptive tables: adaptive_merging.py.

Slots are walked in blocks of at most `ROOM` bytes, all replicas of a block side by side: so one kernel serves any
number of replicas, which may lie in mapped files, and nothing else is held but the result. What a slot becomes depends
on the slot alone: not on the blocks, nor on the order of the replicas. A slot that no replica changed keeps its bytes,
and one replica alone keeps all of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lessram.jit import kernel
from lessram.numerics.merging import slot_word
from lessram.tables.blocks import BLOCK
from lessram.tables.flat import Flat
from lessram.tables.graded import Graded
from lessram.tables.halfword import Halfword
from lessram.tables.memory import copy_into, drop_file_pages, zeros
from lessram.tables.merging_slots import REPLICAS, RESULT, START, Merge, is_moved, merge_cell
from lessram.tables.squares import Squares

ROOM = 1 << 20
"""Bytes for some slots of the start, of the result and of all replicas,"""
LEAST = BLOCK
"""but a multiple of so many slots, at least this one: a block of adaptive tables."""
DROP_EVERY = 1 << 18
"""Slots after which the pages of mapped files are given back."""

CellTable = Flat | Squares | Halfword | Graded


def merged_cells(start: CellTable, replicas: Sequence[CellTable], rule: Merge, grid: Any = None) -> CellTable:
    """The merged table, in memory of its own; `grid` is that of weights gamma or of halfwords."""
    out = zeros(len(start.cells), start.cells.dtype)
    block = room_for(len(replicas), out.dtype)
    for first, last in pieces(len(out), block):
        count = last - first
        for row, table in zip((START, *range(REPLICAS, len(block))), (start, *replicas), strict=True):
            copy_into(block[row, :count], table.cells[first:last])
        copy_into(block[RESULT], block[START])
        merge_block(grid, rule, block, np.uint64(first), count)
        copy_into(out[first:last], block[RESULT, :count])
        if first // DROP_EVERY < last // DROP_EVERY:
            drop_file_pages(start.cells, *(table.cells for table in replicas))
    return start._replace(cells=out)


def room_for(replicas: int, cell: np.dtype) -> NDArray[Any]:
    """A block: a row for some slots of the start, one for the result, and one for each replica."""
    rows = REPLICAS + replicas
    return np.zeros((rows, max(LEAST, ROOM // cell.itemsize // rows // LEAST * LEAST)), cell)


def pieces(slots: int, block: NDArray[Any]) -> Iterator[tuple[int, int]]:
    """All slots in pieces that fit into a block."""
    size = block.shape[1]
    return ((first, min(slots, first + size)) for first in range(0, slots, size))


@kernel
def merge_block(grid, rule, block, first, count):
    """Merge the first slots of a block, which are those of a table from `first` on; the result begins as the start."""
    for j in range(count):
        if is_moved(block, j):
            merge_cell(grid, rule, block, j, slot_word(rule.key, first + np.uint64(j)))
