"""Size and speed of the coded store: `python benchmarks/serving.py [--json PATH] [--quick] [--folder FOLDER]`.

A model with the statistics of a long tail (features seen by a power law, seldom seen ones near 0) is rounded at
random to q2.3, q2.5, q2.7 and q2.9, coded, and read in the same run as the float32 array that it replaces:

    size       bits a slot of the whole file, header and directories included, against the entropy
    lookups    random slots, uniform: against a plain gather from float32, and against one that prefetches
    rows       75 features a row with frequencies 1/rank: against the same loop over float32, with hot values or not
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from timing import CLOCKS, Contender, race
from workload import draw_batch, draw_slots, placed

from lessram import Batch, Model, Spec
from lessram.jit import FLAGS
from lessram.numerics.fixed_point import FixedPoint
from lessram.numerics.machine import prefetch
from lessram.serving.lookup import Scratch, look_up, no_hot
from lessram.serving.predictor import Predictor
from lessram.serving.served import Served
from lessram.serving.store import Store, encode
from lessram.tables.memory import zeros

FRACTIONS = (3, 5, 7, 9)
OVERHEADS = {3: 0.12, 5: 0.06, 7: 0.06, 9: 0.06}
LOOKUPS = {24: 1.6, 26: 2.5}
ROWS = 1.3
ROW_LENGTH = 75
HOT_BYTES = (1 << 19, 1 << 21)
BATCHES = 4
AHEAD = 64
console = Console(width=None if sys.stdout.isatty() else 120)
_bare = numba.njit(**FLAGS)


@_bare
def gather(weights, slots, found):
    for k in range(np.uint64(slots.shape[0])):
        found[k] = weights[slots[k]]


@_bare
def gather_ahead(weights, slots, found):
    """The same, asking for each weight `AHEAD` slots before it is read; `slots` is longer by so many."""
    for k in range(np.uint64(slots.shape[0]) - np.uint64(AHEAD)):
        prefetch(weights, np.uint64(slots[k + np.uint64(AHEAD)]))
        found[k] = weights[slots[k]]


@_bare
def sum_rows(weights, indptr, slots, margins):
    for r in range(margins.shape[0]):
        total = 0.0
        for k in range(np.uint64(indptr[r]), np.uint64(indptr[r + 1])):
            total += np.float64(weights[slots[k]])
        margins[r] = total


def coefficients(bits: int, seed: int = 0) -> NDArray[np.float32]:
    """What a model has learned: the coefficient of a feature seen n times shrinks like sqrt(n / (n + 123))."""
    random = np.random.default_rng(seed)
    slots = 1 << bits
    weights = zeros(slots, np.dtype(np.float32))
    for start in range(0, slots, 1 << 20):
        ranks = np.arange(start, min(start + (1 << 20), slots))
        seen = random.poisson(np.minimum(0.32 * ((ranks + 1) / slots) ** -1.34, 1e6))
        spread = 0.026 * np.sqrt(seen / (seen + 123.0)) * np.exp(0.05 * random.standard_normal(len(ranks)))
        weights[placed(ranks.astype(np.uint64), bits)] = spread * random.laplace(size=len(ranks))
    return weights


def rounded(weights: NDArray[np.float32], grid: FixedPoint, seed: int = 1) -> NDArray[np.int16]:
    """The weights on a grid, up or down at random."""
    random = np.random.default_rng(seed)
    units = np.empty(len(weights), np.int16)
    for start in range(0, len(weights), 1 << 20):
        part = weights[start : start + (1 << 20)] / np.float32(grid.step)
        up = random.random(len(part), dtype=np.float32)
        units[start : start + (1 << 20)] = np.clip(np.floor(part + up), -grid.largest_units, grid.largest_units)
    return units


def served(weights: NDArray[np.float32], fraction: int, folder: Path) -> tuple[Path, float | None]:
    """The file of the coded model, made unless it is there, and the seconds that took."""
    path = folder / f"{len(weights)}-q2.{fraction}.lessram"
    if path.exists():
        return path, None
    grid = FixedPoint(2, fraction)
    units = rounded(weights, grid)
    start = time.perf_counter()
    store = encode(units, grid=grid)
    seconds = time.perf_counter() - start
    wrong = sum(
        int(np.count_nonzero(store.decode(a, a + (1 << 20)) != units[a : a + (1 << 20)]))
        for a in range(0, len(units), 1 << 20)
    )
    if wrong:
        raise SystemExit(f"{wrong} of {len(units)} slots decode to another value")
    model = Model.new(Spec(slots=len(weights)))
    Served.of(model, store, seen=0).save(path)
    return path, seconds


def measure(bits: int, chosen: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    """Everything about one size of table."""
    weights = coefficients(bits)
    files = {fraction: served(weights, fraction, folder) for fraction in chosen.fractions}
    if chosen.build_only:
        return
    random = np.random.default_rng(7)
    slots = draw_slots("uniform", bits, chosen.lookups + AHEAD, random)
    rows = chosen.lookups // ROW_LENGTH
    batches = [draw_batch("zipf", bits, rows, ROW_LENGTH, seed) for seed in range(BATCHES)]
    plain, margins = np.empty(chosen.lookups, np.float32), np.empty(rows)
    contenders = [
        Contender("gather", lambda: gather(weights, slots[:-AHEAD], plain)),
        Contender("gather ahead", lambda: gather_ahead(weights, slots, plain)),
        over_rows("rows", batches, lambda batch: sum_rows(weights, batch.indptr, batch.slots, margins)),
    ]
    for fraction, (path, _) in files.items():
        contenders += coded(fraction, path, slots[:-AHEAD], batches)
    times = race(contenders, chosen.rounds, chosen.clock)
    for fraction, (path, seconds) in files.items():
        store = Served.load(path).store
        yield figures(bits, fraction, store, path, seconds, times, len(plain))


def over_rows(name: str, batches: list[Batch], run: Callable[[Batch], Any]) -> Contender:
    """Every run takes another batch, in turn: what a hot table keeps must come from the stream, not from repetition."""
    turn = cycle(batches)
    return Contender(name, lambda: run(next(turn)))


def coded(fraction: int, path: Path, slots: NDArray[np.uint32], batches: list[Batch]) -> list[Contender]:
    cold = Predictor.open(path)
    coded_store, scratch, units = cold.served.store.coded, Scratch.new(), np.empty(len(slots), np.int32)
    return [
        # As the plain gather, into memory that is there: fresh pages cost more than many lookups.
        Contender(f"lookup {fraction}", lambda: look_up(coded_store, no_hot(), slots, scratch, units)),
        over_rows(f"rows {fraction}", batches, partial(cold.predict, trusted=True)),
        *(
            over_rows(
                f"rows {fraction} {size}",
                batches,
                partial(Predictor.open(path, hot_bytes=size).predict, trusted=True),
            )
            for size in HOT_BYTES
        ),
    ]


def figures(
    bits: int, fraction: int, store: Store, path: Path, seconds: float | None, times: dict[str, float], count: int
) -> dict[str, Any]:
    real = 8 * path.stat().st_size / store.slots
    return {
        "bits": bits,
        "grid": f"q2.{fraction}",
        "entropy": store.census.entropy,
        "bits_per_slot": real,
        "overhead": real / store.census.entropy - 1,
        "million_values_built_per_second": None if seconds is None else store.slots / seconds / 1e6,
        "lookup_ns": times[f"lookup {fraction}"] / count * 1e9,
        "float32_ns": times["gather"] / count * 1e9,
        "lookup": times[f"lookup {fraction}"] / times["gather"],
        "lookup_ahead": times[f"lookup {fraction}"] / times["gather ahead"],
        "rows": times[f"rows {fraction}"] / times["rows"],
        "hot_rows": {size: times[f"rows {fraction} {size}"] / times["rows"] for size in HOT_BYTES},
        "targets": {
            "overhead": OVERHEADS.get(fraction) if bits >= 24 else None,
            "lookup": LOOKUPS.get(bits),
            "hot_rows": ROWS if bits == 24 else None,
        },
    }


def show(bits: int, found: list[dict[str, Any]], chosen: argparse.Namespace) -> None:
    first = found[0]
    title = f"2^{bits} slots; float32 gather {first['float32_ns']:.1f} ns; best of {chosen.rounds}, {chosen.clock} time"
    table = Table(
        "grid",
        "entropy",
        "bits",
        "over",
        "built M/s",
        "lookup ns",
        "/ gather",
        "/ prefetched",
        "rows",
        *(f"{size >> 10} KB hot" for size in HOT_BYTES),
        title=title,
        title_justify="left",
    )
    for row in found:
        built = row["million_values_built_per_second"]
        table.add_row(
            row["grid"],
            f"{row['entropy']:.4f}",
            f"{row['bits_per_slot']:.4f}",
            judged(f"{row['overhead']:.1%}", row["overhead"], row["targets"]["overhead"]),
            "-" if built is None else f"{built:.1f}",
            f"{row['lookup_ns']:.1f}",
            judged(f"{row['lookup']:.2f}", row["lookup"], row["targets"]["lookup"]),
            f"{row['lookup_ahead']:.2f}",
            f"{row['rows']:.2f}",
            *(judged(f"{ratio:.2f}", ratio, row["targets"]["hot_rows"]) for ratio in row["hot_rows"].values()),
        )
    console.print(table)


def judged(text: str, value: float, target: float | None) -> str:
    return text if target is None else f"[{'green' if value <= target else 'red'}]{text}[/]"


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="PATH", help="write every figure to this file")
    parser.add_argument("--quick", action="store_true", help="a small table, few rounds: shows that it runs")
    parser.add_argument("--bits", type=int, nargs="+", help="tables of 2^BITS slots; default 24 26")
    parser.add_argument("--fractions", type=int, nargs="+", default=list(FRACTIONS), help="the M of q2.M")
    parser.add_argument("--rounds", type=int, help="timed runs of each contender, the best counts; default 7")
    parser.add_argument("--lookups", type=int, default=3_000_000, help="slots looked up a run")
    parser.add_argument("--clock", choices=CLOCKS, default="cpu", help="CPU time of the thread (default) or wall")
    parser.add_argument("--folder", type=Path, help="keep the coded models here, and use those that are there")
    parser.add_argument("--build-only", action="store_true", help="make the models and check every slot; no race")
    chosen = parser.parse_args()
    chosen.bits = chosen.bits or ([20] if chosen.quick else [24, 26])
    chosen.rounds = chosen.rounds or (3 if chosen.quick else 7)
    return chosen


def main() -> None:
    chosen = options()
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        for bits in chosen.bits:
            found = list(measure(bits, chosen, chosen.folder or Path(temporary)))
            if found:
                show(bits, found, chosen)
            results += found
    if chosen.json:
        Path(chosen.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
