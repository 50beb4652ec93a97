"""The first examples of a stream, learned once in floating point to see where their coefficients go.

A codebook wants to know, for each level of the counter, which values coordinates at this level have. So the examples
are learned one by one with unrounded weights and the counter of adaptive tables, and what every step leads to is noted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from lessram.data.batch import Batch
from lessram.learning.learner import Learner
from lessram.model.spec import Spec
from lessram.numerics.codebook import FIRST_COUNTS, UNITS, Book, design, joint_counter
from lessram.numerics.rate import rates_by_level
from lessram.tables.book import packaged_book
from lessram.tables.flat import Flat
from lessram.tables.table import Rule

Opening = dict[str, NDArray[Any]]

_LARGEST = 8 * UNITS  # beyond any list: eight times the longest first step


def remembered(opening: Opening, batch: Batch) -> Opening:
    """The examples so far and those of a batch, as arrays that a model keeps until its codebook is designed."""
    features = slice(*batch.indptr[[0, -1]])
    new = {
        "labels": batch.labels,
        "lengths": np.diff(batch.indptr),
        "slots": batch.slots[features].astype(np.uint64),
        "values": _or_ones(batch.values, batch.features, features),
        "weights": _or_ones(batch.weights, batch.rows, slice(None)),
    }
    return {name: np.concatenate([opening[name], part]) if opening else np.array(part) for name, part in new.items()}


def _or_ones(given: NDArray[np.float32] | None, count: int, part: slice) -> NDArray[np.float32]:
    return np.ones(count, np.float32) if given is None else given[part]


def designed_book(opening: Opening, spec: Spec) -> Book:
    """The codebook for what the coefficients of these examples did; levels that they hardly reached as shipped."""
    ones = bool((opening["values"] == 1).all() and (opening["weights"] == 1).all())
    batch = Batch(
        opening["labels"],
        np.concatenate([[0], np.cumsum(opening["lengths"])]),
        opening["slots"],
        None if ones else opening["values"],
        None if ones else opening["weights"],
    )
    found = sampled(batch, spec)
    return design(found.levels, found.values, fallback=packaged_book("shipped"))


class Samples(NamedTuple):
    """Steps that ended at a level of the codebook."""

    levels: NDArray[np.uint8]
    values: NDArray[np.int64]
    """In units of alpha / 1024."""
    features: NDArray[np.intp]
    """Which features of the batch took them."""


def sampled(batch: Batch, spec: Spec) -> Samples:
    """The level and the new value of every step that ends at a level of the codebook."""
    slots, places = np.unique(batch.slots, return_inverse=True)
    batch = batch._replace(slots=places.astype(np.uint32))
    learner = _unrounded(spec, max(1, len(slots)))
    assert isinstance(learner.model.table, Flat)
    cells = learner.model.table.cells
    levels, values = np.empty(len(places), np.uint8), np.empty(len(places), np.float32)
    for r in range(batch.rows):
        learner.learn(batch.slice(r, r + 1), trusted=True)
        features = slice(*batch.indptr[r : r + 2])
        seen = cells[batch.slots[features]]
        levels[features], values[features] = seen["level"], seen["weight"]
    small = (levels > 0) & (levels < len(FIRST_COUNTS))
    units = np.rint(values[small].astype(np.float64) * (UNITS / spec.alpha)).clip(-_LARGEST, _LARGEST)
    return Samples(levels[small], units.astype(np.int64), np.flatnonzero(small))


def _unrounded(spec: Spec, slots: int) -> Learner:
    """A learner with floating-point weights that counts as adaptive tables do."""
    plain = msgspec.structs.replace(
        spec, slots=slots, weights="float32", rates="ladder8", codebook=msgspec.UNSET, radius=None
    )
    learner = Learner(plain)
    counter = joint_counter(spec.base)
    assert isinstance(learner._rule, Rule)
    learner._rule = learner._rule._replace(
        rates=rates_by_level(spec.alpha, counter.estimates), thresholds=counter.thresholds
    )
    return learner
