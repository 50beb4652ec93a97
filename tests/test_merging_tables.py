"""Tables of replicas become one: slot by slot what plain Fractions say, for every cell, in any order and any blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import numba
import numpy as np
import pytest
import reference_merging as plain
from numpy.typing import NDArray
from reference_halfword import COARSE, FINE, ordinal

from lessram.model.merging import ladder_of, merged_tables
from lessram.model.spec import Spec
from lessram.numerics.merging import merging_key, rounded_mean
from lessram.numerics.minifloat import rounded_quotient
from lessram.numerics.six_bits import six_bit_ladder
from lessram.tables import merging
from lessram.tables.graded import graded_rule
from lessram.tables.layout import Table, allocate, table_of
from lessram.tables.memory import SMALLEST_MAPPING, drop_file_pages, zeros
from lessram.tables.merging_slots import Merge, merge_rule

SLOTS = 400
SEED, EXAMPLES = 3, 12345
WORDS = 1 << 32

STORAGES: dict[str, dict[str, Any]] = {
    "float32-global": {"weights": "float32", "rates": "global"},
    "float32-exact32": {"weights": "float32", "rates": "exact32"},
    "float32-squares32": {"weights": "float32", "rates": "squares32"},
    "float32-morris8": {"weights": "float32", "rates": "morris8"},
    "q2.5-global": {"weights": "q2.5", "rates": "global"},
    "q2.13-morris8": {"weights": "q2.13", "rates": "morris8"},
    "q2.13-ladder8": {"weights": "q2.13", "rates": "ladder8"},
    "q3.12-squares8": {"weights": "q3.12", "rates": "squares8"},
    "q2.13-squares8-ftrl": {"weights": "q2.13", "rates": "squares8", "algorithm": "ftrl", "l1": 0.5},
    "e3m6-squares6": {"weights": "e3m6", "rates": "squares6"},
    "gamma-morris8": {"weights": "gamma", "rates": "morris8", "gamma": 0.5},
}
every_storage = pytest.mark.parametrize("storage", STORAGES)
Cells = NDArray[Any]


def spec_of(storage: str, slots: int = SLOTS) -> Spec:
    return Spec(slots=slots, seed=SEED, **STORAGES[storage])


def rule_of(spec: Spec, replicas: int, mean: str = "touched") -> Merge:
    return merge_rule(ladder_of(spec), merging_key(SEED, EXAMPLES), replicas, everyone=mean == "all")


def merged(start: Cells, replicas: Sequence[Cells], spec: Spec, mean: str = "touched") -> Cells:
    tables: list[Table] = [table_of(spec.rates, cells, spec.weights) for cells in (start, *replicas)]
    rule = rule_of(spec, len(replicas), mean)
    found = merged_tables(tables[0], tables[1:], rule, spec)
    assert not rule.behind.any()
    return found.cells


@cache
def steps_of(spec: Spec) -> tuple[float, ...]:
    return tuple(ladder_of(spec).tolist())


@cache
def points_of(spec: Spec) -> NDArray[np.float64]:
    return graded_rule(spec.counter, spec.alpha, float(spec.gamma), spec.step).points


# Cells as learning might leave them -----------------------------------------------------------------------------------


def levels_from(rng: np.random.Generator, least: Cells, most: int) -> Cells:
    """Levels at or above these, near, far, and at the end."""
    reach = rng.choice([0, 1, 5, most + 1], len(least))
    return np.minimum(least + rng.integers(0, reach + 1), most)


def weights_of(rng: np.random.Generator, spec: Spec, count: int) -> Cells:
    """Weights of all sizes; every tenth stands at an end."""
    if spec.weights == "float32":
        return np.ldexp(rng.uniform(-1, 1, count), rng.integers(-20, 20, count)).astype(np.float32)
    limit = spec.grid.units_within(None)
    return np.where(rng.random(count) < 0.1, rng.choice([-limit, limit], count), rng.integers(-limit, limit + 1, count))


def halfwords(weights: Cells, steps: Cells) -> Cells:
    """Cells of these ordinals in e3m7, made even where levels are low; levels by their place among those there are."""
    levels = np.where(steps < 32, steps, 2 * steps - 32)
    ordinals = np.where(steps < 32, weights & ~1, weights)
    return (((ordinals & ~1) << 5) | levels | (ordinals & 1)).astype(np.uint16)


def advanced(rng: np.random.Generator, cells: Cells, spec: Spec) -> Cells:
    """The cells after learning that changed about half of them."""
    count, new = len(cells), cells.copy()
    if spec.rates == "squares6":
        steps = cells.astype(int) & 63
        steps = np.where(steps < 32, steps, ((steps & ~1) + 32) // 2)
        new = halfwords(rng.integers(-1022, 1023, count), levels_from(rng, steps, 47))
    elif spec.weights == "gamma":
        new["level"] = levels_from(rng, cells["level"].astype(int), 255)
        points = points_of(spec)[new["level"]]
        new["weight"] = rng.integers(-points, points + 1) / points
    else:
        new["weight"] = weights_of(rng, spec, count)
        if "level" in (cells.dtype.names or ()):
            new["level"] = levels_from(rng, cells["level"].astype(int), 255)
        if "count" in (cells.dtype.names or ()):
            new["count"] = cells["count"] + rng.integers(0, 3, count) * rng.choice([1, 700_000_000], count)
        if "sum" in (cells.dtype.names or ()):
            new["sum"] = cells["sum"] + np.ldexp(rng.random(count), rng.integers(-9, 20, count)).astype(np.float32)
    return np.where(rng.random(count) < 0.5, new, cells)


def drawn(storage: str, replicas: int, seed: int = 1) -> tuple[Cells, list[Cells]]:
    """A start that has learned something, and replicas that went on from it."""
    rng = np.random.default_rng(seed)
    spec = spec_of(storage)
    start = advanced(rng, allocate(spec.weights, spec.rates, SLOTS).cells, spec)
    return start, [advanced(rng, start, spec) for _ in range(replicas)]


# Equality with plain Fractions ----------------------------------------------------------------------------------------


def plain_state(spec: Spec, cells: list[Any], bits: int) -> dict[str, Any]:
    """The state of one slot, of which `cells` are the start's and the replicas'."""
    names = cells[0].dtype.names
    if "level" in names:
        start, *levels = (int(cell["level"]) for cell in cells)
        return {"level": plain.merge_levels(steps_of(spec), start, levels, bits)}
    if "count" in names:
        start, *counts = (int(cell["count"]) for cell in cells)
        return {"count": plain.merge_counts(start, counts)}
    if "sum" in names:
        start, *sums = (float(cell["sum"]) for cell in cells)
        return {"sum": plain.merge_floats(start, sums)}
    return {}


def plain_record(spec: Spec, cells: list[Any], voters: list[Any], round_bits: int, count_bits: int) -> tuple[Any, ...]:
    state = plain_state(spec, cells, count_bits)
    mean = plain.mean([cell["weight"] for cell in voters])
    if spec.weights == "float32":
        return np.float32(float(mean)), *state.values()
    if spec.weights == "gamma":
        points = int(points_of(spec)[state["level"]])
        return plain.round_to_integer(mean * points, round_bits) / points, *state.values()
    return plain.round_to_integer(mean, round_bits), *state.values()


def plain_halfword(cells: list[int], voters: list[int], round_bits: int, count_bits: int) -> int:
    def unpacked(cell: int) -> tuple[int, int]:
        low = cell % 64
        number = (cell >> 6) * 2 + (low & 1 if low >= 32 else 0)
        units = FINE[FINE.index(0) + (number - 2048 if number >= 1024 else number)]
        return units, low if low < 32 else ((low & ~1) + 32) // 2

    start, *steps = (unpacked(cell)[1] for cell in cells)
    step = plain.merge_levels(six_bit_ladder().tolist(), start, steps, count_bits)
    points = FINE if step >= 32 else COARSE
    units = plain.round_to(points, plain.mean([unpacked(cell)[0] for cell in voters]), round_bits)
    number = ordinal(units) % 2048
    return number // 2 * 64 + (step if step < 32 else 2 * step - 32) + number % 2


def plainly_merged(spec: Spec, start: Cells, replicas: list[Cells], mean: str) -> Cells:
    key, out = plain.merging_key(SEED, EXAMPLES), start.copy()
    for slot in range(len(start)):
        cells = [cells[slot] for cells in (start, *replicas)]
        moved = [cell for cell in cells[1:] if cell != cells[0]]
        if moved:
            voters = cells[1:] if mean == "all" else moved
            bits = plain.slot_bits(key, slot)
            if spec.rates == "squares6":
                out[slot] = plain_halfword([int(c) for c in cells], [int(c) for c in voters], *bits)
            else:
                out[slot] = plain_record(spec, cells, voters, *bits)
    return out


@pytest.mark.parametrize("mean", ["touched", "all"])
@every_storage
def test_every_slot_is_what_fractions_say(storage, mean):
    spec = spec_of(storage)
    for replicas in (2, 5):
        start, parts = drawn(storage, replicas, seed=replicas)
        assert merged(start, parts, spec, mean).tolist() == plainly_merged(spec, start, parts, mean).tolist()


# The laws -------------------------------------------------------------------------------------------------------------


@every_storage
def test_one_replica_keeps_every_byte(storage):
    start, (replica,) = drawn(storage, 1)
    assert replica.tobytes() != start.tobytes()
    for mean in ("touched", "all"):
        assert merged(start, [replica], spec_of(storage), mean).tobytes() == replica.tobytes()


@every_storage
def test_slots_that_nobody_changed_keep_their_bytes(storage):
    start, parts = drawn(storage, 3)
    found = merged(start, parts, spec_of(storage))
    same = np.all([part == start for part in parts], axis=0)
    assert 20 < same.sum() < SLOTS
    assert found[same].tobytes() == start[same].tobytes()
    assert merged(start, [start] * 4, spec_of(storage), "all").tobytes() == start.tobytes()


@every_storage
def test_neither_order_nor_blocks_matter(storage, monkeypatch):
    start, parts = drawn(storage, 5)
    spec = spec_of(storage)
    whole = merged(start, parts, spec).tobytes()
    for order in ([4, 3, 2, 1, 0], [2, 0, 4, 1, 3]):
        assert merged(start, [parts[k] for k in order], spec).tobytes() == whole
    for room in (1, 5000, 9000):
        monkeypatch.setattr(merging, "ROOM", room)
        assert merged(start, parts, spec).tobytes() == whole


def test_pages_are_let_go_of_files_only(tmp_path, monkeypatch):
    """Mapped tables are read again where they are asked for; memory of no file keeps what it holds."""
    monkeypatch.setattr(merging, "DROP_EVERY", 64)
    monkeypatch.setattr(merging, "ROOM", 1)
    start, parts = drawn("q2.13-morris8", 2)
    spec = spec_of("q2.13-morris8")
    mapped = []
    for number, cells in enumerate((start, *parts)):
        cells.tofile(tmp_path / str(number))
        mapped.append(np.memmap(tmp_path / str(number), cells.dtype, mode="r"))
    whole = merged(start, parts, spec).tobytes()
    assert merged(mapped[0], mapped[1:], spec).tobytes() == whole
    large = zeros(SMALLEST_MAPPING, np.dtype(np.uint8))
    large[:] = 7
    drop_file_pages(large, large[5:], mapped[0])
    assert np.all(large == 7)
    assert mapped[0].tobytes() == start.tobytes()


@every_storage
def test_equal_weights_stay_and_ends_are_not_left(storage):
    """Means of equal numbers are that number, saturated ones included; full counters stay full."""
    start, (replica,) = drawn(storage, 1, seed=8)
    moved = replica != start
    found = merged(start, [replica] * 3, spec_of(storage))
    if spec_of(storage).rates == "squares6":
        assert ((found[moved] >> 6) == (replica[moved] >> 6)).mean() > 0.5, "others went to a finer grid"
    else:
        assert found["weight"].tolist() == replica["weight"].tolist()
        if "level" in found.dtype.names:
            assert np.all(found["level"][replica["level"] == 255] == 255)
            assert np.any(replica["level"] == 255)


@pytest.mark.parametrize("storage", [name for name in STORAGES if not name.endswith("global")])
def test_a_replica_that_stands_behind_the_start_is_told(storage):
    """Where anything is counted."""
    start, parts = drawn(storage, 2)
    spec = spec_of(storage)
    tables = [table_of(spec.rates, cells, spec.weights) for cells in (parts[0], start, parts[0])]
    rule = rule_of(spec, 2)
    merged_tables(tables[0], tables[1:], rule, spec)
    assert rule.behind[0] > 20
    assert rule.behind[1] == 0


# Unbiased, over all 2^32 words, by bisection --------------------------------------------------------------------------


@numba.njit
def mean_of(total, count, bits):
    return rounded_mean(total, count, np.uint32(bits))


@numba.njit
def fine_of(total, count, bits):
    return rounded_quotient(total, count, np.uint32(bits), True)


@numba.njit
def coarse_of(total, count, bits):
    return rounded_quotient(total, count, np.uint32(bits), False)


def split(function: Callable[..., int], *numbers: int) -> tuple[int, int]:
    """The lower of the two results, and how many of all words lead to the upper one, which the smaller ones do."""
    base = function(*numbers, WORDS - 1)
    low, high = 0, WORDS
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if function(*numbers, middle) > base else (low, middle)
    return base, low


@pytest.mark.parametrize("count", [1, 2, 3, 7, 16, 4096])
def test_means_on_even_grids_are_unbiased(count):
    rng = np.random.default_rng(count)
    for total in [*rng.integers(-32767 * count, 32767 * count, 60).tolist(), 0, -1, count, 32767 * count]:
        below, ups = split(mean_of, total, count)
        error = abs(below + Fraction(ups, WORDS) - Fraction(total, count))
        assert error < Fraction(1, WORDS)
        assert count & (count - 1) or error == 0, "exact where the denominator is a power of two"


@pytest.mark.parametrize(("function", "points"), [(fine_of, FINE), (coarse_of, COARSE)], ids=["e3m7", "e3m6"])
def test_means_on_uneven_grids_are_unbiased(function, points):
    zero = FINE.index(0)
    rng = np.random.default_rng(5)
    for count in (1, 2, 3, 16):
        ends = points[-1] * count
        totals = [*(rng.integers(-ends, ends, 60) >> rng.integers(0, 14, 60)).tolist(), *np.array(points[::40]) * count]
        for total in totals:
            below, ups = split(function, int(total), count)
            mean = Fraction(int(total), count)
            lower = FINE[zero + below]
            assert lower in points
            if ups == 0:
                assert lower == mean
                continue
            upper = points[points.index(lower) + 1]
            found = lower + Fraction(ups, WORDS) * (upper - lower)
            assert abs(found - mean) < Fraction(upper - lower, WORDS)
