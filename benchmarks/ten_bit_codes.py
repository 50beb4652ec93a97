"""Ten-bit codes and slabs against the flat 16-bit cell, squared-gradient rates: `python benchmarks/ten_bit_codes.py`.

A simulation of a table that does not exist: weights and sums are float64 here, but take the values only that the codes
and cells of the table would stand for, and every cell of its slabs is counted. It says whether the table would pay.

    block      48 codes of 10 bits and a 32-bit pointer, one cache line: 10.67 bits a slot
    code       one of 7 levels of the sum, 0, .03, .06 .. .96, times 137 weights R_l sinh(3 k / 68) / sinh 3
    promoted   from the sum 1.92 on, or with a weight beyond R_l: 24 bits in a slab, q3.12 and an 8-bit level

The flat cells are the product's own. Features are hashed anew for every seed, into as many slots as the bytes hold.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from peer_sets import SETS, DataSet
from rich.console import Console
from rich.table import Table
from small_cells import FLOAT, SMALL, WIDE, Mean, loss, refolded

from lessram import Batch
from lessram.jit import inlined, kernel
from lessram.learning.metrics import Scores
from lessram.numerics.accumulator import accumulator
from lessram.numerics.invariant import effective_gradient, margin_pieces
from lessram.numerics.loss import Loss, derivative
from lessram.numerics.random import GOLDEN, finalise, hash_seed
from lessram.tables.slabs import capacity, garbage_limit_of

BETA = 0.3
LOADS = (0.5, 1, 2, 4)
"""Distinct features a slot of the 16-bit table."""
ALPHAS = tuple(0.02 * 2 ** (k / 2) for k in range(1, 12))
LEVELS = np.array([0.0, *(0.03 * 2.0**k for k in range(7))])
"""Sums that codes stand for; the last is the first that is promoted."""
HALF = 68
REACH, BEND = 5.0, 3.0
BLOCK, LINE_BYTES, CELL_BYTES = 48, 64, 3
FINE = 2.0**-12
TOP, FREE, HIGHEST, BY_SIZE = 0, 1, 2, 3
"""The pool: its cells, free ones among them, the most that it ever had, and free slabs by size."""

_LOGISTIC = int(Loss.logistic)
console = Console(width=None if sys.stdout.isatty() else 130)


class Rules(NamedTuple):
    """What the table rounds to."""

    alpha: float
    levels: NDArray[np.float64]
    book: NDArray[np.float64]
    """Weights, by level of a code."""
    sums: NDArray[np.float64]
    """What the 8-bit levels of promoted cells stand for."""
    exact: bool
    """Nothing is rounded: the control that shows that the simulation learns as the product does."""
    pieces: NDArray[np.float64]


class Cells(NamedTuple):
    """One of each a slot; counts of promoted slots a block; the pool and the state of the random numbers."""

    weights: NDArray[np.float64]
    sums: NDArray[np.float64]
    levels: NDArray[np.int8]
    """Of codes; -1 where promoted."""
    promoted: NDArray[np.uint64]
    pool: NDArray[np.int64]
    random: NDArray[np.uint64]


def rules(alpha: float, exact: bool = False) -> Rules:
    roots = np.sqrt(LEVELS[np.maximum(np.arange(len(LEVELS) - 1), 1)])
    shape = np.sinh(BEND * np.arange(-HALF, HALF + 1) / HALF) / math.sinh(BEND)
    book = np.outer(REACH * alpha * roots / (BETA + roots), shape)
    heights = accumulator().heights.astype(np.float64)
    return Rules(alpha, LEVELS, book, heights - heights[0], exact, margin_pieces())


def empty(slots: int, seed: int) -> Cells:
    blocks = -(-slots // BLOCK)
    pool, random = np.zeros(BY_SIZE + BLOCK + 1, np.int64), np.array([hash_seed(seed)], np.uint64)
    promoted = np.zeros(blocks, np.uint64)
    return Cells(np.zeros(slots), np.zeros(slots), np.zeros(slots, np.int8), promoted, pool, random)


def resident_bytes(cells: Cells) -> int:
    """Codes, pointers and the pool at its largest. The book, 3 kB, is left out: it could be computed."""
    return LINE_BYTES * len(cells.promoted) + CELL_BYTES * int(cells.pool[HIGHEST])


# The learner.


@inlined
def draw(cells):
    cells.random[0] += GOLDEN
    return np.float64(finalise(cells.random[0]) >> np.uint64(11)) * 2.0**-53


@inlined
def place(points, x, uniform):
    """The index of one of the two points around x, unbiased; x lies between the first and the last."""
    low, high = 0, points.shape[0] - 1
    while high - low > 1:
        middle = (low + high) >> 1
        if points[middle] <= x:
            low = middle
        else:
            high = middle
    return high if uniform * (points[high] - points[low]) < x - points[low] else low


@inlined
def grow(cells, slot):
    """A cell for a slot, as tables.slabs would find it."""
    pool, block = cells.pool, slot // BLOCK
    used = cells.promoted[block]
    old, new = capacity(used), capacity(used + np.uint64(1))
    cells.promoted[block] = used + np.uint64(1)
    if new == old:
        return
    if pool[FREE] > garbage_limit_of(pool[TOP], cells.promoted.shape[0]):
        pool[TOP] -= pool[FREE]
        pool[FREE] = 0
        pool[BY_SIZE:] = 0
    if pool[BY_SIZE + np.int64(new)] > 0:
        pool[BY_SIZE + np.int64(new)] -= 1
        pool[FREE] -= np.int64(new)
    else:
        pool[TOP] += np.int64(new)
        pool[HIGHEST] = max(pool[HIGHEST], pool[TOP])
    if old > np.uint64(0):
        pool[BY_SIZE + np.int64(old)] += 1
        pool[FREE] += np.int64(old)


@inlined
def store(cells, rules, slot, weight, total):
    """Round a weight and a sum to what the slot can hold, promoting it where a code cannot."""
    level = np.int64(cells.levels[slot])
    if level >= 0:
        last = rules.levels.shape[0] - 1
        level = place(rules.levels, total, draw(cells)) if total < rules.levels[last] else last
        total = max(total, rules.levels[last]) if level == last else rules.levels[level]
        if level < last and abs(weight) <= rules.book[level, rules.book.shape[1] - 1]:
            cells.levels[slot] = level
            cells.sums[slot] = total
            cells.weights[slot] = rules.book[level, place(rules.book[level], weight, draw(cells))]
            return
        grow(cells, slot)
        cells.levels[slot] = -1
    cells.sums[slot] = rules.sums[place(rules.sums, total, draw(cells))]
    rounded = FINE * math.floor(weight / FINE + draw(cells))
    cells.weights[slot] = min(max(rounded, FINE - 8.0), 8.0 - FINE)


@kernel
def learn(cells, rules, labels, indptr, slots, values, rates, margins):
    """One pass, rates from the sums before the row and the row's own squares, as tables.squares does it."""
    intercept = total = 0.0
    for r in range(labels.shape[0]):
        first, end = indptr[r], indptr[r + 1]
        margin = intercept
        for j in range(first, end):
            margin += cells.weights[slots[j]] * values[j]
        margins[r] = margin
        label = np.float64(labels[r])
        plain = derivative(_LOGISTIC, margin, label)
        total += plain * plain
        rate = rules.alpha / (BETA + math.sqrt(total))
        reach = rate
        for j in range(first, end):
            x = values[j]
            rates[j - first] = rules.alpha / (BETA + math.sqrt(cells.sums[slots[j]] + plain * plain * x * x))
            reach += x * x * rates[j - first]
        gradient = effective_gradient(_LOGISTIC, margin, label, 1.0, reach, plain, rules.pieces)
        for j in range(first, end):
            x, slot = values[j], np.int64(slots[j])
            weight = cells.weights[slot] - gradient * x * rates[j - first]
            square = cells.sums[slot] + plain * plain * x * x
            if rules.exact:
                cells.weights[slot] = weight
                cells.sums[slot] = square
            else:
                store(cells, rules, slot, weight, square)
        intercept -= rate * gradient


class Outcome(NamedTuple):
    log_loss: float
    bytes: int
    promoted: float
    """The share of slots."""


def scaled_values(batch: Batch) -> NDArray[np.float64]:
    """Divided by their running root mean square, as the learner does."""
    if batch.values is None:
        return np.ones(batch.features)
    values = batch.values.astype(np.float64)
    ends = batch.indptr[1:]
    scale = np.sqrt(np.cumsum(values**2)[ends - 1] / ends)
    return values / np.repeat(scale, np.diff(batch.indptr))


def simulate(batch: Batch, slots: int, alpha: float, seed: int, exact: bool = False) -> Outcome:
    cells, margins = empty(slots, seed), np.zeros(batch.rows)
    rates = np.zeros(int(np.diff(batch.indptr).max()))
    values = scaled_values(batch)
    learn(cells, rules(alpha, exact), batch.labels, batch.indptr, batch.slots, values, rates, margins)
    scores = Scores.new()
    scores.add(margins, batch, Loss.logistic)
    assert scores.log_loss is not None
    return Outcome(scores.log_loss, resident_bytes(cells), float((cells.levels < 0).mean()))


# Measurements.


def fitted(batch: Batch, size: int, alpha: float, slots: int, rounds: int) -> int:
    """How many slots of the simulated table fill so many bytes; promoted ones depend on how many features share one."""
    for _ in range(rounds):
        found = simulate(refolded(batch, slots), slots, alpha, 0)
        slots = int(slots * size / found.bytes)
    return slots


def best_codes(batch: Batch, size: int, near: float) -> tuple[float, int]:
    """The best alpha around that of flat cells, and the slots that it leaves room for."""
    slots = fitted(batch, size, near, int(0.6 * size), 4)
    folded = refolded(batch, slots)
    tried = [alpha for alpha in ALPHAS if 0.49 < alpha / near < 2.1]
    alpha = min(tried, key=lambda alpha: simulate(folded, slots, alpha, 0).log_loss)
    return alpha, fitted(batch, size, alpha, slots, 2)  # the book follows alpha, so that slots hardly change


def measure_slots(found: DataSet, alpha: float, seeds: int) -> dict[str, Any]:
    """Equal slots: what each storage adds to the float version; the first entry is the simulation's own."""
    batch, slots = found.batch, found.slots
    control = loss(batch, slots, FLOAT, alpha)
    runs = [simulate(batch, slots, alpha, seed) for seed in range(seeds)]
    added = {
        "exact": Mean(simulate(batch, slots, alpha, 0, exact=True).log_loss / control - 1, 0.0),
        "24 bits": Mean.of([loss(batch, slots, WIDE, alpha, seed) / control - 1 for seed in range(seeds)]),
        "16 bits": Mean.of([loss(batch, slots, SMALL, alpha, seed) / control - 1 for seed in range(seeds)]),
        "codes": Mean.of([run.log_loss / control - 1 for run in runs]),
    }
    seen = len(np.unique(batch.slots)) / slots
    bits = 8 * runs[0].bytes / slots
    return {"set": found.name, "alpha": alpha, "log_loss": control, "added": added, "bits": bits, "seen": seen}


def measure_bytes(found: DataSet, load: float, hashings: int) -> dict[str, Any]:
    """Equal bytes, each at its best alpha; every hashing is another meeting of features."""
    batch, flat = found.batch, int(len(np.unique(found.batch.slots)) / load)
    folded = refolded(batch, flat)
    flat_alpha = min(ALPHAS, key=lambda alpha: loss(folded, flat, SMALL, alpha))
    alpha, slots = best_codes(batch, 2 * flat, flat_alpha)
    runs = [simulate(refolded(batch, slots, seed), slots, alpha, seed) for seed in range(hashings)]
    codes = Mean.of([run.log_loss for run in runs])
    cells = Mean.of([loss(refolded(batch, flat, seed), flat, SMALL, flat_alpha, seed) for seed in range(hashings)])
    size = float(np.mean([run.bytes for run in runs]))
    return {
        "set": found.name,
        "load": load,
        "bytes": 2 * flat,
        "bytes_of_codes": size,
        "slots": (flat, slots),
        "alphas": (flat_alpha, alpha),
        "bits": 8 * size / slots,
        "promoted": runs[0].promoted,
        "log_loss": (cells, codes),
        "change": Mean(codes.value / cells.value - 1, (codes.error**2 + cells.error**2) ** 0.5 / cells.value),
    }


def show_slots(rows: list[dict[str, Any]]) -> None:
    table = Table("set", "alpha", "float", "simulation, exact", "24 bits", "16 bits", "codes", "bits", "slots seen")
    table.title = "equal slots: added log-loss"
    for row in rows:
        added = [mean.percent() for mean in row["added"].values()]
        shown = [f"{row['alpha']:g}", f"{row['log_loss']:.5f}", *added, f"{row['bits']:.2f}", f"{row['seen']:.2f}"]
        table.add_row(row["set"], *shown)
    console.print(table)


def show_bytes(rows: list[dict[str, Any]]) -> None:
    table = Table(
        "set", "load", "bytes", "16 bits: slots", "loss", "codes: slots", "bits", "promoted", "loss", "change"
    )
    table.title = "equal bytes, hashed, each at its best alpha"
    for row in rows:
        (flat, slots), (cells, codes) = row["slots"], row["log_loss"]
        shown = [f"{flat:,}", f"{cells.value:.5f}", f"{slots:,}", f"{row['bits']:.2f}", f"{row['promoted']:.3f}"]
        table.add_row(
            row["set"], f"{row['load']:g}", f"{row['bytes']:,}", *shown, f"{codes.value:.5f}", row["change"].percent()
        )
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", metavar="SET", help="criteo, reviews; default both")
    parser.add_argument("--hashings", type=int, default=12)
    parser.add_argument("--loads", type=float, nargs="+", default=LOADS)
    parser.add_argument("--json", metavar="PATH", help="write every figure to this file")
    chosen = parser.parse_args()
    results: dict[str, list[dict[str, Any]]] = {"slots": [], "bytes": []}
    for name, alpha in (("criteo", 0.08), ("reviews", 0.3)):
        if chosen.sets and name not in chosen.sets:
            continue
        with tempfile.TemporaryDirectory() as folder:
            found = SETS[name](Path(folder), None)
        if found is None:
            console.print(f"[yellow]the data of {name} are absent[/]")
            continue
        results["slots"].append(measure_slots(found, alpha, 5))
        show_slots(results["slots"][-1:])
        for load in chosen.loads:
            results["bytes"].append(measure_bytes(found, load, chosen.hashings))
            show_bytes(results["bytes"][-1:])
    if chosen.json:
        Path(chosen.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
