"""The ledger: what a model costs, in bytes that are really there, under every denominator."""

from __future__ import annotations

import os
from typing import Any

import msgspec
import numpy as np

from lessram.model.model import TRAINED, Model
from lessram.model.spec import Spec
from lessram.numerics.bounds import entropy
from lessram.tables.graded import Graded, counted_bits, graded_rule
from lessram.tables.layout import ADAPTIVE, GAMMA, cell_type, parts_of, stored_weights, touched

_PIECE = 1 << 20  # slots looked at together, so that the account itself needs little memory


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
    occurrences: dict[Any, int] = {}
    for start in range(0, slots, _PIECE):
        weights = model.weights(start, start + _PIECE)
        seen += int(np.count_nonzero(touched(model.table, start, start + _PIECE)))
        nonzero += int(np.count_nonzero(weights))
        largest = max(largest, float(np.abs(weights).max(initial=0.0)))
        for value, count in zip(*np.unique(weights, return_counts=True), strict=True):
            occurrences[value] = occurrences.get(value, 0) + int(count)
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
        entropy_bits_per_slot=entropy(np.array(list(occurrences.values()))),
        intercept=model.intercept,
        scale=model.scale,
        largest=largest,
        saturated=saturated(model),
        resident_bytes=model.nbytes,
        file_bytes=None if path is None else os.path.getsize(path),
        **_parts(model),
    )


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
