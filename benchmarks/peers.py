"""Accuracy beside speed and memory: lessram and its peers on the same rows, each at its best learning rate.

    python benchmarks/peers.py                     all data sets
    python benchmarks/peers.py --quick             the first 1,500 rows of each, in under a minute
    python benchmarks/peers.py criteo rcv1 --json peers.json

Progressive: every row is predicted, scored, then learned, once, in the order of the stream. Learning rates come from
a small grid for each system that grows while the best is at its end; one that is there still is marked. Speeds are
those of the fastest run. lessram, scikit-learn and river learn from rows in memory, so their speeds lack parsing;
Vowpal Wabbit reads text (start-up taken off) and parses in a second thread. For equal work from text: ingest.py.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import vowpal
from numpy.typing import NDArray
from peer_sets import SETS, DataSet
from peer_systems import ALPHAS, HAS_RIVER, OURS, SLOW_SYSTEMS, SYSTEMS, Run, System, batch_learner, learn
from rich.console import Console
from rich.table import Table

from lessram import Batch
from lessram.learning.metrics import Scores
from lessram.numerics.loss import Loss

console = Console(width=120)

QUICK_ROWS = 1_500
SLOW_ROWS = 3_000
"""Rows that the slow systems see."""
SHARE = 0.8
"""The part of a stream that is learned from where the rest is held out."""
STRENGTHS = (0.1, 1.0)
MOST_FURTHER = 3
"""How often a grid may grow."""


def parser_of(description: str | None, sets: dict[str, Any], quick_rows: int) -> argparse.ArgumentParser:
    """What every comparison over data sets is asked."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=list(sets), metavar="SET", help=", ".join(sets))
    parser.add_argument("--quick", action="store_true", help=f"only the first {quick_rows:,} rows")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    return parser


def parsed(parser: argparse.ArgumentParser, sets: dict[str, Any]) -> argparse.Namespace:
    chosen = parser.parse_args()
    if unknown := set(chosen.sets) - sets.keys():
        parser.error(f"found data set {unknown.pop()!r}, expected {', '.join(sets)}")
    return chosen


def scored(margins: NDArray[np.float64], batch: Batch) -> dict[str, Any]:
    """Everybody is scored by the same code."""
    scores = Scores.new()
    scores.add(np.ascontiguousarray(margins), batch, Loss.logistic)
    return {"log_loss": scores.log_loss, "error": scores.error_rate, "auc": scores.auc}


def figures(name: str, data: DataSet, rate: float, run: Run, **more: Any) -> dict[str, Any]:
    speed = None if math.isnan(run.seconds) else data.batch.rows / run.seconds
    return {
        "system": name,
        "rate": rate,
        **scored(run.margins, data.batch),
        "examples_per_second": speed,
        "bits_per_coordinate": run.bits,
        **more,
    }


def search(run: Callable[[float], Run], rates: tuple[float, ...], labels: Batch) -> tuple[float, Run, float, bool]:
    """The rate with the least log-loss, its run, the best time of all runs, and whether the rate is still at an end.

    While the best rate is the lowest or the highest that was tried, the grid grows by one on that side.
    """
    losses: dict[float, float] = {}
    best, seconds = (math.inf, rates[0], None), math.inf
    todo, ratio = list(rates), rates[1] / rates[0]
    while todo:
        for rate in todo:
            found = run(rate)
            losses[rate] = scored(found.margins, labels)["log_loss"]
            seconds = min(seconds, found.seconds)
            if losses[rate] < best[0]:
                best = (losses[rate], rate, found)  # type: ignore[assignment]
        edge = best[1] in (min(losses), max(losses))
        further = best[1] / ratio if best[1] == min(losses) else best[1] * ratio
        todo = [further] if edge and len(losses) < len(rates) + MOST_FURTHER else []
    assert best[2] is not None
    return best[1], best[2], seconds, edge


def at_best(system: System, data: DataSet, folder: Path) -> dict[str, Any]:
    """A system's figures at its best learning rate."""
    rate, run, seconds, edge = search(lambda rate: system.run(data, rate, folder), system.rates, data.batch)
    if system.clock is not None:
        seconds = system.clock(data, rate, folder)
    return figures(system.name, data, rate, run._replace(seconds=seconds), rate_at_edge=edge, note=system.note)


def progressive(data: DataSet, folder: Path) -> list[dict[str, Any]]:
    for system in SYSTEMS[: len(OURS)]:
        system.run(data.first(64), system.rates[0], folder)  # compiles
    found = [at_best(system, data, folder) for system in SYSTEMS]
    show(f"{data.name}: progressive, {data.batch.rows:,} rows, 2^{data.bits} slots", found)
    return found


def on_first_rows(data: DataSet, folder: Path) -> list[dict[str, Any]]:
    """The slow systems over the first rows, and ours over the same."""
    if not HAS_RIVER:
        console.print("[yellow]river is not installed: not compared with it[/]")
        return []
    data = data.first(min(SLOW_ROWS, data.batch.rows))
    found = [at_best(system, data, folder) for system in [*SYSTEMS[: len(OURS)], *SLOW_SYSTEMS]]
    show(f"{data.name}: progressive, the first {data.batch.rows:,} rows only", found)
    return found


def held_out(data: DataSet) -> list[dict[str, Any]]:
    """One pass of ours against as many as a batch learner wants; the rows held out choose the rate, for both."""
    train, test = data.parts(SHARE)

    def ours(name: str, rate: float) -> Run:
        learner, run = learn(train, OURS[name], rate)
        return run._replace(margins=learner.predict(test.batch, trusted=True))

    contenders = {name: (lambda rate, name=name: ours(name, rate), ALPHAS, "") for name in OURS} | {
        "liblinear, batch": (lambda rate: batch_learner(train, test, rate), STRENGTHS, "rate: C")
    }
    found = []
    for name, (run, rates, note) in contenders.items():
        rate, best, seconds, edge = search(run, rates, test.batch)
        found.append(figures(name, test, rate, best._replace(seconds=seconds), rate_at_edge=edge, note=note))
    for figure in found:  # the time is that of learning, so the rows are those that were learned
        figure["examples_per_second"] *= train.batch.rows / test.batch.rows
    show(f"{data.name}: learned on the first {SHARE:.0%}, scored on the rest ({test.batch.rows:,} rows)", found)
    return found


def show(title: str, rows: list[dict[str, Any]]) -> None:
    table = Table("system", "rate", "log-loss", "error", "AUC", "examples/s", "bits/coordinate", "", title=title)
    table.title_justify = "left"
    best = min(row["log_loss"] for row in rows)
    for row in rows:
        loss = f"{row['log_loss']:.5f}"
        table.add_row(
            row["system"],
            f"{row['rate']:g}" + (" (edge)" if row.get("rate_at_edge") else ""),
            f"[bold]{loss}[/]" if row["log_loss"] == best else loss,
            f"{row['error']:.4f}",
            f"{row['auc']:.4f}",
            "-" if row["examples_per_second"] is None else f"{row['examples_per_second']:,.0f}",
            f"{row['bits_per_coordinate']:,.0f}",
            row.get("note", ""),
        )
    console.print(table)


def against_default(data: DataSet, rows: list[dict[str, Any]]) -> None:
    """The target: a progressive log-loss not above that of Vowpal Wabbit's default."""
    losses = {row["system"]: row["log_loss"] for row in rows}
    if "VW default" not in losses:
        return
    ours = min(losses[name] for name in OURS)
    excess = ours / losses["VW default"] - 1
    reached = "[green]reached[/]" if excess <= 0 else "[red]missed[/]"
    console.print(f"  {data.name}: our best against VW default: {excess:+.2%}, target ≤ 0: {reached}")


def compare(name: str, quick: bool, folder: Path) -> dict[str, Any] | None:
    data = SETS[name](folder, QUICK_ROWS if quick else None)
    if data is None:
        console.print(f"[yellow]the data of {name} are absent: not compared[/]")
        return None
    if quick:
        data = data.first(min(QUICK_ROWS, data.batch.rows))
    rows = progressive(data, folder)
    against_default(data, rows)
    return {
        "rows": data.batch.rows,
        "slots": data.slots,
        "progressive": rows,
        "first_rows": on_first_rows(data, folder),
        "held_out": held_out(data),
    }


def main() -> None:
    chosen = parsed(parser_of(__doc__, SETS, QUICK_ROWS), SETS)
    if not vowpal.AVAILABLE:
        console.print("[yellow]vowpalwabbit is not installed: not compared with it[/]")
    results: dict[str, Any] = {}
    for name in chosen.sets:
        with tempfile.TemporaryDirectory() as folder:
            results[name] = compare(name, chosen.quick, Path(folder))
    if chosen.json:
        chosen.json.write_text(json.dumps(results, indent=1))
        console.print(f"all figures: {chosen.json}")


if __name__ == "__main__":
    main()
