"""FTRL-Proximal and RDA with L1 in 24 bits: `python benchmarks/proximal.py [loss|speed …] [--json PATH]`.

loss     progressive log-loss and nonzero coefficients at l1 = 1 on real data, 24 bits against the 64-bit float
         control, five seeds, where the data sets are at hand
speed    million feature updates a second beside q2.13 + morris8, one thread, in one run
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import real_data
from rich.console import Console
from rich.table import Table
from timing import Contender, race
from workload import SHAPES, draw_batch

from lessram import Batch, Learner, Model, Spec, read_batches
from lessram.learning.metrics import Scores
from lessram.numerics.loss import Loss

SETS = {"criteo": ("criteo_60k.svm.bz2", 20, 0.1), "rcv1": ("rcv1_15k.svm.bz2", 16, 0.5)}
"""File, slots as a power of two, alpha."""
WITHIN_LOSS, WITHIN_NONZEROS = 0.001, 0.01
CONTROL = {"weights": "float32", "rates": "squares32"}
SMALL = {"24 bits, q2.13 + squares8": ("q2.13", "squares8"), "24 bits, q3.12 + squares8": ("q3.12", "squares8")}

PLAIN = "q2.13 + morris8"
AT_LEAST = 0.5
RACERS: dict[str, dict[str, Any]] = {
    PLAIN: {"rates": "morris8"},
    "q2.13 + squares8, invariant step": {"rates": "squares8"},
    "FTRL-Proximal, l1 = 1": {"rates": "squares8", "algorithm": "ftrl", "l1": 1.0},
    "RDA, l1 = 1": {"rates": "squares8", "algorithm": "rda", "l1": 1.0},
    "FTRL-Proximal, float32 + squares32": {**CONTROL, "algorithm": "ftrl", "l1": 1.0},
}
console = Console(width=None if sys.stdout.isatty() else 120)


def read(file: str, bits: int) -> list[Batch]:
    reader = read_batches([str(real_data.FOLDER / file)], slots=1 << bits, hash="none")
    return [Batch._make(None if part is None else part.copy() for part in batch) for batch, _ in reader]


def loss_and_nonzeros(batches: list[Batch], spec: Spec) -> tuple[float, int]:
    learner, scores = Learner(spec), Scores.new()
    for batch in batches:
        scores.add(learner.learn(batch, trusted=True), batch, Loss.logistic)
    assert scores.log_loss is not None
    return scores.log_loss, int(np.count_nonzero(learner.model.weights()))


def measure_loss(name: str, batches: list[Batch], algorithm: str, seeds: int) -> Iterator[dict[str, Any]]:
    """The control, then what 24 bits make of it."""
    _, bits, alpha = SETS[name]
    common = {"slots": 1 << bits, "alpha": alpha, "algorithm": algorithm, "l1": 1.0}
    loss, nonzero = loss_and_nonzeros(batches, Spec(**common, **CONTROL))
    whole = {"set": name, "algorithm": algorithm, "alpha": alpha}
    yield whole | {"method": "64 bits, float32 + squares32", "log_loss": loss, "nonzero": nonzero, "seeds": 1}
    for method, (weights, rates) in SMALL.items():
        runs = [
            loss_and_nonzeros(batches, Spec(**common, weights=weights, rates=rates, seed=seed)) for seed in range(seeds)
        ]
        losses, counts = zip(*runs, strict=True)
        yield whole | {
            "method": method,
            "log_loss": fmean(losses),
            "nonzero": fmean(counts),
            "seeds": seeds,
            "added_loss": fmean(losses) / loss - 1.0,
            "added_loss_error": stdev(losses) / seeds**0.5 / loss,
            "added_nonzeros": fmean(counts) / nonzero - 1.0,
        }


def run_loss(chosen: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for name, (file, bits, alpha) in SETS.items():
        if not (real_data.FOLDER / file).exists():
            console.print(f"[yellow]{real_data.FOLDER / file} is absent: no losses on {name}[/]")
            continue
        batches = read(file, bits)
        title = f"{name}, l1 = 1, alpha {alpha}: mean of {chosen.seeds} seeds"
        table = Table("algorithm", "method", "log-loss", "added", "nonzeros", "added", "", title=title)
        table.title_justify = "left"
        for algorithm in ("ftrl", "rda"):
            for row in measure_loss(name, batches, algorithm, chosen.seeds):
                table.add_row(*loss_cells(row))
                yield row
        console.print(table)


def loss_cells(row: dict[str, Any]) -> list[str]:
    cells = [row["algorithm"], row["method"], f"{row['log_loss']:.5f}", "", f"{row['nonzero']:,.0f}", "", ""]
    if "added_loss" in row:
        cells[3] = f"{100 * row['added_loss']:+.3f} % ± {100 * row['added_loss_error']:.3f}"
        cells[5] = f"{100 * row['added_nonzeros']:+.2f} %"
        reached = row["added_loss"] <= WITHIN_LOSS and abs(row["added_nonzeros"]) <= WITHIN_NONZEROS
        cells[6] = "[green]reached[/]" if reached else "[red]missed[/]"
    return cells


def contender(name: str, choices: dict[str, Any], batch: Batch, bits: int) -> Contender:
    """Trains a table that is cleared before each run."""
    model = Model.new(Spec(**{"weights": "q2.13", "slots": 1 << bits, "alpha": 0.1, **choices}))
    learner, cells = Learner(model), model.table.cells.view(np.uint8)
    return Contender(name, lambda: learner.learn(batch, trusted=True), lambda: cells.fill(0))


def run_speed(chosen: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for shape in SHAPES:
        batch = draw_batch(shape, chosen.bits, 2_000_000 // chosen.features, chosen.features)
        racers = [contender(name, choices, batch, chosen.bits) for name, choices in RACERS.items()]
        speeds = {name: batch.features / seconds / 1e6 for name, seconds in race(racers, chosen.rounds).items()}
        title = f"2^{chosen.bits} slots, {shape}, {chosen.features} features a row, best of {chosen.rounds}"
        table = Table("who", "Mf/s", f"of {PLAIN}", "target", title=title, title_justify="left")
        for name, speed in speeds.items():
            goal = f"≥ {AT_LEAST}" if "l1" in RACERS[name] and "weights" not in RACERS[name] else ""
            table.add_row(name, f"{speed:.0f}", f"{speed / speeds[PLAIN]:.2f}", goal)
        console.print(table)
        yield {"bits": chosen.bits, "shape": shape, "million_features_per_second": speeds}


def main() -> None:
    runners = {"loss": run_loss, "speed": run_speed}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help="loss or speed; default both")
    parser.add_argument("--json", metavar="PATH", help="write every figure to this file")
    parser.add_argument("--seeds", type=int, default=5, help="seeds of each randomized method; default 5")
    parser.add_argument("--bits", type=int, default=22, help="tables of 2^BITS slots for speed; default 22")
    parser.add_argument("--features", type=int, default=40, help="features a row for speed; default 40")
    parser.add_argument("--rounds", type=int, default=7, help="timed runs of each contender; default 7")
    chosen = parser.parse_args()
    if unknown := set(chosen.sections) - set(runners):
        parser.error(f"SECTION must be loss or speed, got {', '.join(sorted(unknown))}")
    results = {section: list(runners[section](chosen)) for section in chosen.sections or runners}
    if chosen.json:
        Path(chosen.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
