"""Which learner is best without tuning? Real data sets x systems, at their defaults and at their best learning rate.

    python benchmarks/accuracy.py                               every data set at hand: about a quarter of an hour
    python benchmarks/accuracy.py rcv1 weather --quick          the first 3,000 rows, in a minute: shows that it runs
    python benchmarks/accuracy.py --json a.json --markdown a.md --picture docs/accuracy.png

Progressive: every row is predicted, scored, then learned, once, in the order of the stream; everybody gets the same
features. Learning rates are tuned by factors of 4, beyond the ends if need be, then by a factor of 2 around the best.
The excess of a system on a set is its log-loss over that of the best system, tuned, on this set. Three more tables say
what numbers of few bits cost against float32 at the same rate, what scales of columns bring, and how one pass compares
with a batch learner on rows held out. The data sets of `CHOSEN_ON` served to choose the defaults; the others confirm.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import accuracy_report
import vowpal
from accuracy_systems import FIXED, SYSTEMS, Contender, by_default, fields_of, learned, raw_columns
from package_sets import PACKAGE_SETS
from peer_sets import SETS, TABLES, DataSet
from peer_systems import Run, batch_learner
from peers import parsed, parser_of, scored
from rich.console import Console

console = Console(width=140)

ALL = {name: loader for name, loader in (SETS | TABLES | PACKAGE_SETS).items() if name != "generated"}
CHOSEN_ON = ("rcv1", "tweets", "criteo", "a9a", "flights", "weather")
QUICK_ROWS = 3_000
SHARE = 0.8
"""The part of a stream that is learned from where the rest is held out."""
STRENGTHS = (0.03, 0.3, 1.0, 3.0)
SEEDS = range(5)
MOST_FURTHER = 4
"""How often a grid of learning rates may grow."""


def options() -> argparse.Namespace:
    parser = parser_of(__doc__, ALL, QUICK_ROWS)
    parser.add_argument("--update", action="store_true", help="keep the figures in --json, run only what they lack")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables here")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the excesses here")
    chosen = parsed(parser, ALL)
    if chosen.update and not (chosen.json and chosen.json.exists()):
        parser.error("--update needs --json with a file of an earlier run")
    return chosen


def figures(run: Run, data: DataSet, **more: Any) -> dict[str, Any]:
    return {**scored(run.margins, data.batch), "bits_per_coordinate": run.bits, **more}


def tuned(run: Callable[[float], Run], rates: tuple[float, ...], data: DataSet) -> dict[str, Any]:
    """The figures at the best learning rate: first by factors of 4, then by 2 around the best."""
    found: dict[float, dict[str, Any]] = {}

    def best(tried: list[float]) -> float:
        for rate in tried:
            if rate not in found:
                found[rate] = figures(run(rate), data, rate=rate)
        return min(found, key=lambda rate: found[rate]["log_loss"])

    at = best(list(rates))
    for _ in range(MOST_FURTHER):
        if min(found) < at < max(found):
            break
        at = best([at / 4 if at == min(found) else at * 4])
    return found[best([at / 2, at * 2])]


def progressive(data: DataSet, folder: Path, known: dict[str, Any]) -> dict[str, Any]:
    """Every system on a data set, at its default and tuned, unless it is known."""
    results: dict[str, Any] = {}
    for system in SYSTEMS:
        if system.name in known:
            results[system.name] = known[system.name]
            continue
        at_default = system.default(data, folder)
        same = results.get(accuracy_report.OURS) if system.name == FIXED else None
        results[system.name] = {
            "default": figures(at_default, data),
            "tuned": same["tuned"]
            if same
            else tuned(lambda rate, system=system: system.run(data, rate, folder), system.rates, data),
        }
        pair = [results[system.name][kind]["log_loss"] for kind in ("default", "tuned")]
        console.print(f"  {data.name:12} {system.name:28} {pair[0]:.5f} {pair[1]:.5f}")
    return results


def cost_of_bits(data: DataSet, results: dict[str, Any]) -> dict[str, Any]:
    """What randomized numbers of few bits add to the log-loss of float32, at the rate that is best for float32."""
    found = {}
    for control, small in accuracy_report.PAIRS:
        if small not in results:
            continue
        rate, exact = results[control]["tuned"]["rate"], results[control]["tuned"]["log_loss"]
        losses = [scored(learned(data, fields_of(small), rate, seed).margins, data.batch)["log_loss"] for seed in SEEDS]
        excess = [loss / exact - 1 for loss in losses]
        found[small] = {"rate": rate, "mean": fmean(excess), "standard_error": stdev(excess) / len(excess) ** 0.5}
    return found


def held_out(data: DataSet) -> dict[str, Any]:
    """One pass of ours at its defaults against a batch learner at its default and its best strength."""
    train, test = data.parts(SHARE)
    strengths = {c: scored(batch_learner(train, test, c).margins, test.batch) for c in STRENGTHS}
    best = min(STRENGTHS, key=lambda c: strengths[c]["log_loss"])
    return {
        "lessram, one pass": scored(by_default(train, {}, predict=test).margins, test.batch),
        "scikit-learn, batch": strengths[1.0],
        "scikit-learn, batch, best C": {"C": best, **strengths[best]},
    }


def columns(data: DataSet, raw: DataSet | None, folder: Path) -> dict[str, float] | None:
    """Log-loss with numeric columns as they stand and brought to one size, tuned in both cases."""
    if raw is None:
        return None
    ours, vw = (next((s for s in SYSTEMS if s.name == name), None) for name in (accuracy_report.OURS, "VW default"))
    assert ours is not None

    def loss(system: Contender, of: DataSet, name: str) -> float:
        place = folder / name
        place.mkdir(exist_ok=True)
        return float(tuned(lambda rate: system.run(of, rate, place), system.rates, of)["log_loss"])

    found = {"lessram, raw": loss(ours, raw, "raw"), "lessram, scaled": loss(ours, data, "scaled")}
    return found | ({"VW, raw": loss(vw, raw, "raw"), "VW, scaled": loss(vw, data, "scaled")} if vw else {})


def compare(name: str, quick: bool, folder: Path, known: dict[str, Any]) -> dict[str, Any] | None:
    data = ALL[name](folder, None)
    if data is None:
        console.print(f"[yellow]the data of {name} are absent: not compared[/]")
        return None
    raw = raw_columns(name, folder)
    if quick:
        data, raw = (part and part.first(min(QUICK_ROWS, part.batch.rows)) for part in (data, raw))
    assert data is not None
    results = progressive(data, folder, known.get("progressive", {}))
    return {
        "rows": data.batch.rows,
        "features": data.batch.features / data.batch.rows,
        "slots": data.slots,
        "chosen_on": name in CHOSEN_ON,
        "progressive": results,
        "cost_of_bits": cost_of_bits(data, results),
        "columns": known["columns"] if "columns" in known else columns(data, raw, folder),
        "held_out": known["held_out"] if "held_out" in known else held_out(data),
    }


def summary(results: dict[str, Any]) -> dict[str, Any]:
    """Excesses over the best system on each set: of each system, at its defaults and tuned."""
    best = {
        name: min(row["tuned"]["log_loss"] for row in found["progressive"].values()) for name, found in results.items()
    }
    rows: dict[str, Any] = {}
    for system in (system.name for system in SYSTEMS):
        for kind in ("default", "tuned"):
            excess = {
                name: found["progressive"][system][kind]["log_loss"] / best[name] - 1 for name, found in results.items()
            }
            others = [excess[name] for name in excess if name not in CHOSEN_ON]
            rows.setdefault(system, {})[kind] = {
                "median": median(excess.values()),
                "mean": fmean(excess.values()),
                "worst": max(excess.values()),
                "confirmed_median": median(others) if others else None,
                "confirmed_worst": max(others) if others else None,
                "excess": excess,
            }
    return rows


def main() -> None:
    chosen = options()
    if not vowpal.AVAILABLE:
        console.print("[yellow]vowpalwabbit is not installed: not compared with it[/]")
    known = json.loads(chosen.json.read_text())["sets"] if chosen.update else {}
    results: dict[str, Any] = {}
    for name in chosen.sets:
        with tempfile.TemporaryDirectory() as folder:
            found = compare(name, chosen.quick, Path(folder), known.get(name, {}))
        if found is not None:
            results[name] = found
        if chosen.json:  # as far as it is known: a long run may be stopped
            chosen.json.write_text(json.dumps({"sets": results, "summary": summary(results)}, indent=1))
    excesses = summary(results)
    text = accuracy_report.markdown(results, excesses)
    console.print(text, markup=False)
    if chosen.markdown:
        chosen.markdown.write_text(text)
    if chosen.picture:
        accuracy_report.draw(excesses, chosen.picture)


if __name__ == "__main__":
    main()
