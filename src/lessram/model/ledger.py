"""The ledger: what a model costs, in bytes that are really there, under every denominator."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from lessram.model.model import TRAINED, Model
from lessram.model.spec import Spec
from lessram.numerics.bounds import entropy
from lessram.tables.graded import Graded, counted_bits, graded_rule
from lessram.tables.layout import ADAPTIVE, GAMMA, cell_type, parts_of, stored_weights, touched

_PIECE = 1 << 20  # slots looked at together, so that the account itself needs little memory
_MANY = 1 << 16  # different weights; a grid has no more


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """An account of a model; the keys of `lessram info --json`."""

    kind: str
    spec: Spec
    examples: int
    slots: int
    seen: int
    """Slots that some example has touched."""
    nonzero: int
    """Slots whose coefficient is not 0."""
    bits_per_slot: float
    bits_per_nonzero: float | None
    entropy_bits_per_slot: float
    """What an ideal code would need for the coefficients alone (section 4)."""
    intercept: float
    scale: float
    largest: float
    """The largest absolute coefficient."""
    saturated: int | None = None
    """Slots whose weight stands at the end of its range; None where weights have no grid, or one of each its own."""
    resident_bytes: int
    """Table and everything beside it, as held in memory while training."""
    file_bytes: int | None = None
    counted_bits_per_slot: float | msgspec.UnsetType = msgspec.UNSET
    """Of weights gamma: what the grids and counters would take, the logarithm of their states."""
    promoted: int | msgspec.UnsetType = msgspec.UNSET
    """Of adaptive tables: slots that have outgrown their byte,"""
    promoted_fraction: float | msgspec.UnsetType = msgspec.UNSET
    """and which part of all slots these are."""
    bits_by_part: dict[str, float] | msgspec.UnsetType = msgspec.UNSET
    """Of adaptive tables: bits a slot for codes, pointers, cells in use, spare room in slabs, and garbage."""


def account(model: Model, path: str | os.PathLike[str] | None = None) -> Ledger:
    """Walk through a model's table and count."""
    slots = model.spec.slots
    seen = nonzero = 0
    largest = 0.0
    few: _Counted | None = _Counted(np.empty(0), np.empty(0, np.int64))
    for start in range(0, slots, _PIECE):
        weights = model.weights(start, start + _PIECE)
        seen += int(np.count_nonzero(touched(model.table, start, start + _PIECE)))
        nonzero += int(np.count_nonzero(weights))
        largest = max(largest, float(np.abs(weights).max(initial=0.0)))
        few = few and few.with_more(weights)
    table_bits = 8 * model.table_bytes
    return Ledger(
        kind=TRAINED,
        spec=model.spec,
        examples=model.examples,
        slots=slots,
        seen=seen,
        nonzero=nonzero,
        bits_per_slot=table_bits / slots,
        bits_per_nonzero=table_bits / nonzero if nonzero else None,
        entropy_bits_per_slot=entropy(few.counts) if few else _entropy_of_many(model, nonzero),
        intercept=model.intercept,
        scale=model.scale,
        largest=largest,
        saturated=saturated(model),
        resident_bytes=model.nbytes,
        file_bytes=None if path is None else os.path.getsize(path),
        **_parts(model),
    )


class _Counted(NamedTuple):
    """How often each weight occurs, where there are few different ones."""

    weights: NDArray[np.float64]
    counts: NDArray[np.int64]

    def with_more(self, weights: NDArray[np.float64]) -> _Counted | None:
        """These and more; None if there are too many."""
        more, counts = np.unique(weights, return_counts=True)
        found, which = np.unique(np.concatenate([self.weights, more]), return_inverse=True)
        counts = np.bincount(which, np.concatenate([self.counts, counts])).astype(np.int64)
        return _Counted(found, counts) if len(found) <= _MANY else None


def _entropy_of_many(model: Model, nonzero: int) -> float:
    """The entropy of weights that have no grid to stand on, sorted: four bytes for each that is not 0."""
    slots, step = model.spec.slots, model.spec.step
    units, done = np.empty(nonzero, np.float32), 0  # no cell holds more than a float32
    for start in range(0, slots, _PIECE):
        weights = model.weights(start, start + _PIECE)
        found = weights[weights != 0]
        units[done : done + len(found)] = found / step
        done += len(found)
    units.sort()
    repeated = 0.0
    for counts in itertools.chain([np.array([max(1, slots - nonzero)])], _runs(units)):
        repeated += float((counts * np.log2(counts)).sum())
    return float(np.log2(slots)) - repeated / slots


def _runs(ordered: NDArray[np.float32]) -> Iterator[NDArray[np.int64]]:
    """How often each of the numbers occurs, a piece at a time."""
    begun, size = 0, len(ordered)
    for start in range(1, size, _PIECE):
        stop = min(start + _PIECE, size)
        ends = start + np.flatnonzero(ordered[start:stop] != ordered[start - 1 : stop - 1])
        yield np.diff(ends, prepend=begun)
        begun = int(ends[-1]) if len(ends) else begun
    yield np.array([size - begun])


def saturated(model: Model) -> int | None:
    """How many stored weights stand at -R or R; None where they are not cells of one grid."""
    if model.spec.weights in ("float32", GAMMA, ADAPTIVE):
        return None
    limit = model.spec.grid.units_within(model.spec.radius)
    pieces = (stored_weights(model.table, k, k + _PIECE) for k in range(0, model.spec.slots, _PIECE))
    return sum(int(np.count_nonzero(np.abs(piece) >= limit)) for piece in pieces)


def _parts(model: Model) -> dict[str, Any]:
    """What there is to say about one kind of table only."""
    spec = model.spec
    if isinstance(model.table, Graded):
        assert isinstance(spec.gamma, float | int)
        bits = counted_bits(model.table, graded_rule(spec.counter, spec.alpha, spec.gamma, spec.step))
        return {"counted_bits_per_slot": bits / spec.slots}
    parts = parts_of(model.table)
    if parts is None:
        return {}
    promoted = parts["cells"] // cell_type(spec.weights, spec.rates).itemsize
    by_part = {name: 8 * size / spec.slots for name, size in parts.items()}
    return {"promoted": promoted, "promoted_fraction": promoted / spec.slots, "bits_by_part": by_part}
