"""Products of features (`--interactions ab`), made row by row while the rows are read.

Features belong to groups: namespaces of Vowpal Wabbit text, columns of a table. An interaction names two
or three groups; every pair or triple of their features becomes one more feature, whose value is the
product of theirs and whose hash is `combine` of theirs. Within one group each unordered choice is made
once, a feature with itself included. Order, hashes and number are those of Vowpal Wabbit.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from lessram.data.hashing import combine
from lessram.errors import SpecError
from lessram.jit import inlined, overloaded

NO_GROUP = 255
"""The group of features that take part in no interaction."""

MOST_GROUPS = 254

Name = TypeVar("Name", bound=Hashable)


class NoProducts(NamedTuple):
    """No interactions: kernels compiled for this have no code for them."""

    terms: NDArray[np.uint8]


class Products(NamedTuple):
    """Which products to make, and room to gather a row's features by group. For one thread at a time."""

    terms: NDArray[np.uint8]
    """The groups of each interaction, three columns, `NO_GROUP` in the last one for a pair."""
    groups: NDArray[np.uint8]
    """The group of each feature of the batch; as long as its slots."""
    hashes: NDArray[Any]
    """Room for the hashes of a row's features, sorted by group."""
    values: NDArray[np.float32]
    """Room for their values."""
    starts: NDArray[np.uint64]
    """Where each group starts in that room, and the end of the last."""


def canonical(interactions: Sequence[Sequence[Name]]) -> list[tuple[Name, ...]]:
    """The interactions without repetitions, pairs before triples, equal groups side by side.

    Of `ab` and `ba`, which are the same pairs, the first by the alphabet stays. The order within one that
    stays is kept, because the hash depends on it.

    >>> canonical([("b", "a"), ("a", "b"), ("b", "a", "b"), ("c", "c")])
    [('a', 'b'), ('c', 'c'), ('a', 'b', 'b')]
    """
    kept: dict[tuple[Name, ...], tuple[Name, ...]] = {}
    for terms in sorted(map(tuple, interactions), key=lambda terms: (len(terms), terms)):
        if len(terms) not in (2, 3):
            raise SpecError(f"an interaction must name two or three groups of features, got {terms!r}")
        ordered = tuple(sorted(terms))  # type: ignore[type-var]
        repeated = len(set(terms)) < len(terms)
        kept.setdefault(ordered, ordered if repeated else terms)
    return list(kept.values())


def group_numbers(interactions: Sequence[tuple[Name, ...]]) -> dict[Name, int]:
    """Small numbers for the groups that take part in interactions, in the order of their first appearance.

    >>> group_numbers([("b", "a"), ("a", "c")])
    {'b': 0, 'a': 1, 'c': 2}
    """
    names = dict.fromkeys(itertools.chain.from_iterable(interactions))
    if len(names) > MOST_GROUPS:
        raise SpecError(f"interactions may name at most {MOST_GROUPS} groups of features, got {len(names)}")
    return {name: number for number, name in enumerate(names)}


def term_table(interactions: Sequence[tuple[Name, ...]], numbers: dict[Name, int]) -> NDArray[np.uint8]:
    """The interactions as `Products.terms`."""
    table = np.full((len(interactions), 3), NO_GROUP, np.uint8)
    for row, terms in zip(table, interactions, strict=True):
        row[: len(terms)] = [numbers[name] for name in terms]
    return table


def room_for_products(terms: NDArray[np.uint8], groups: int, features: int, dtype: Any) -> Products | NoProducts:
    """Products with room for batches of so many features."""
    if not len(terms):
        return NoProducts(terms)
    return Products(
        terms,
        np.empty(features, np.uint8),
        np.empty(features, dtype),
        np.empty(features, np.float32),
        np.zeros(groups + 1, np.uint64),
    )


@inlined
def _gather(products, slots, values, first, last):
    """Copy the features `first:last` into the room, sorted by group (a counting sort)."""
    starts = products.starts
    for group in range(np.uint64(starts.size)):
        starts[group] = np.uint64(0)
    for k in range(first, last):
        if products.groups[k] != np.uint8(NO_GROUP):
            starts[np.uint64(products.groups[k]) + np.uint64(1)] += np.uint64(1)
    for group in range(np.uint64(1), np.uint64(starts.size)):
        starts[group] += starts[group - np.uint64(1)]
    for k in range(first, last):
        group = np.uint64(products.groups[k])
        if group != np.uint64(NO_GROUP):
            products.hashes[starts[group]] = slots[k]
            products.values[starts[group]] = values[k]
            starts[group] += np.uint64(1)
    for group in range(np.uint64(starts.size - 1), np.uint64(0), -1):  # every start has moved to its end
        starts[group] = starts[group - np.uint64(1)]
    starts[0] = np.uint64(0)


@inlined
def _group(products, term):
    return products.starts[term], products.starts[np.uint64(term) + np.uint64(1)]


@inlined
def _pairs(products, a, b):
    """How many pairs two groups make; as a float64, which cannot overflow."""
    first, last = _group(products, a)
    if a == b:
        return np.float64(last - first) * (np.float64(last - first) + 1.0) / 2.0
    start, stop = _group(products, b)
    return np.float64(last - first) * np.float64(stop - start)


@inlined
def _number(products):
    """How many products the gathered row makes."""
    total = 0.0
    for i in range(products.terms.shape[0]):
        a, b, c = products.terms[i, 0], products.terms[i, 1], products.terms[i, 2]
        pairs = _pairs(products, a, b)
        if c == np.uint8(NO_GROUP):
            total += pairs
        else:
            start, stop = _group(products, c)
            size = np.float64(stop - start)
            if a == c:
                total += pairs * (size + 2.0) / 3.0
            elif b == c:
                first, last = _group(products, a)
                total += np.float64(last - first) * size * (size + 1.0) / 2.0
            else:
                total += pairs * size
    return total


@inlined
def _multiply(products, i, slots, values, k):
    """Write the products of interaction `i` from feature `k` on. Returns the feature behind the last."""
    a, b, c = products.terms[i, 0], products.terms[i, 1], products.terms[i, 2]
    first_a, last_a = _group(products, a)
    first_b, last_b = _group(products, b)
    for x in range(first_a, last_a):
        for y in range(x if a == b else first_b, last_b):
            hashed = combine(products.hashes[x], products.hashes[y])
            value = products.values[x] * products.values[y]
            if c == np.uint8(NO_GROUP):
                slots[k] = hashed
                values[k] = value
                k += np.uint64(1)
            else:
                first_c, last_c = _group(products, c)
                for z in range(y if b == c else first_c, last_c):
                    slots[k] = combine(hashed, products.hashes[z])
                    values[k] = value * products.values[z]
                    k += np.uint64(1)
    return k


@inlined
def _append_products(products, slots, values, first, last):
    _gather(products, slots, values, first, last)
    total = np.float64(last) + _number(products)
    if total > np.float64(slots.size):
        return np.uint64(min(total, 2.0**62))
    k = last
    for i in range(products.terms.shape[0]):
        k = _multiply(products, np.uint64(i), slots, values, k)
    return k


@inlined
def _set_group(products, k, group):
    products.groups[k] = group


def append_products(products: Any, slots: Any, values: Any, first: Any, last: Any) -> Any:
    """Write the products of the features `first:last` behind them: hashes into `slots`, and their values.

    Returns the feature behind the last product. Where there is not room enough nothing is written, and the
    number that is returned is larger than the room: the size that would do. For kernels only.
    """
    raise NotImplementedError


def set_group(products: Any, k: Any, group: Any) -> None:
    """Say to which group feature `k` belongs. For kernels only."""
    raise NotImplementedError


@overloaded(append_products)
def _choose_append_products(products, slots, values, first, last):  # type: ignore[no-untyped-def]
    if products.instance_class is NoProducts:
        return lambda products, slots, values, first, last: last
    return lambda products, slots, values, first, last: _append_products(products, slots, values, first, last)


@overloaded(set_group)
def _choose_set_group(products, k, group):  # type: ignore[no-untyped-def]
    if products.instance_class is NoProducts:
        return lambda products, k, group: None
    return lambda products, k, group: _set_group(products, k, group)
