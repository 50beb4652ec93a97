"""Speed, memory and accuracy of training: `python benchmarks/training.py [--json PATH] [--quick]`.

Three sections, all of them ratios or figures that do not depend on how busy the machine is:

    speed      million feature updates a second (`Mf/s`), one thread, beside the limit of random memory access
    memory     resident growth of a process that trains 2^28 slots, read from outside the process
    accuracy   progressive log-loss on real data against the 64-bit control, where the data sets are at hand
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Iterator
from typing import Any

import memory
import numba
import numpy as np
import real_data
import rounding_loss
import sklearn
import speed
from llvmlite.binding import get_host_cpu_name
from rich.console import Console
from rich.table import Table
from timing import CLOCKS
from workload import SHAPES

SECTIONS = ("speed", "memory", "accuracy")
console = Console(width=None if sys.stdout.isatty() else 120)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"any of {', '.join(SECTIONS)}; default all")
    parser.add_argument("--json", metavar="PATH", help="write every figure to this file")
    parser.add_argument("--quick", action="store_true", help="a minute: small tables, few rounds; shows that it runs")
    parser.add_argument("--bits", type=int, nargs="+", help="tables of 2^BITS slots for speed; default 22 27")
    parser.add_argument("--features", type=int, default=40, help="features an example; default 40")
    parser.add_argument("--rounds", type=int, help="timed runs of each contender, the best counts; default 7")
    parser.add_argument("--clock", choices=CLOCKS, default="cpu", help="CPU time of the thread (default) or wall")
    parser.add_argument("--memory-bits", type=int, help="tables of 2^BITS slots for memory; default 28")
    chosen = parser.parse_args()
    if unknown := set(chosen.sections) - set(SECTIONS):
        parser.error(f"SECTION must be one of {', '.join(SECTIONS)}, got {', '.join(sorted(unknown))}")
    chosen.sections = chosen.sections or list(SECTIONS)
    chosen.bits = chosen.bits or ([22] if chosen.quick else [22, 27])
    chosen.rounds = chosen.rounds or (3 if chosen.quick else 7)
    chosen.memory_bits = chosen.memory_bits or (24 if chosen.quick else 28)
    return chosen


def verdict(reached: bool) -> str:
    return "[green]reached[/]" if reached else "[red]missed[/]"


def run_speed(chosen: argparse.Namespace) -> Iterator[dict[str, Any]]:
    rows = (1_000_000 if chosen.quick else 4_000_000) // chosen.features
    for bits in chosen.bits:
        for shape in SHAPES:
            speeds = speed.measure(bits, shape, rows, chosen.features, chosen.rounds, chosen.clock)
            ratios = [target._asdict() | {"ratio": ratio} for target, ratio in speed.judged(bits, shape, speeds)]
            show_speed(bits, shape, chosen, speeds, ratios)
            yield {"bits": bits, "shape": shape, "million_features_per_second": speeds, "ratios": ratios}


def show_speed(
    bits: int, shape: str, chosen: argparse.Namespace, speeds: dict[str, float], ratios: list[dict[str, Any]]
) -> None:
    title = f"2^{bits} slots, {shape}, {chosen.features} features a row, best of {chosen.rounds}, {chosen.clock} time"
    table = Table("who", "Mf/s", "of the limit", title=title, title_justify="left")
    for name, value in speeds.items():
        table.add_row(name, f"{value:.0f}", f"{value / speeds[speed.LIMIT]:.2f}")
    console.print(table)
    judged = Table("ratio", "measured", "target", "")
    for ratio in ratios:
        reached = ratio["ratio"] >= ratio["at_least"]
        judged.add_row(ratio["name"], f"{ratio['ratio']:.3f}", f"≥ {ratio['at_least']}", verdict(reached))
    console.print(judged)
    if bits == 22 and speed.OUR_FIT not in speeds:
        console.print("[yellow]lessram.LogisticRegression cannot be imported: not compared with scikit-learn[/]")


def run_memory(chosen: argparse.Namespace) -> Iterator[dict[str, Any]]:
    table = Table("weights", "rates", "resident", "at peak", "nbytes says", "target", "", title_justify="left")
    table.title = f"bits a slot while training 2^{chosen.memory_bits} slots, measured from outside the process"
    for case in memory.CASES:
        found = memory.measure(case, chosen.memory_bits)
        reached = found["resident_bits_per_slot"] <= case.at_most and abs(found["claimed_over_resident"] - 1) <= 0.02
        keys = ("resident_bits_per_slot", "peak_bits_per_slot", "claimed_bits_per_slot")
        figures = [f"{found[key]:.2f}" for key in keys]
        table.add_row(case.weights, case.rates, *figures, f"≤ {case.at_most}", verdict(reached))
        yield found
    console.print(table)


def run_accuracy(chosen: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for name, file in rounding_loss.SETS.items():
        batches = rounding_loss.read(name)
        if batches is None:
            console.print(f"[yellow]{real_data.FOLDER / file} is absent: no accuracy on {name}[/]")
            continue
        title = f"{name}: progressive log-loss, each method at its best alpha; bits of the formats and of a cell"
        table = Table("method", "format", "stored", "alpha", "log-loss", "against 64 bits", "target", "", title=title)
        table.title_justify = "left"
        for row in rounding_loss.measure(name, batches, 1 if chosen.quick else 5):
            table.add_row(*accuracy_cells(row))
            yield row
        console.print(table)


def accuracy_cells(row: dict[str, Any]) -> list[str]:
    excess = f"{100 * row['relative_to_control']:+.3f} %"
    if row["standard_error"] is not None:
        excess += f" ± {100 * row['standard_error']:.3f}"
    alpha = f"{row['alpha']:.3f}" + (" (edge)" if row["alpha_at_edge"] else "")
    goal = ["", ""]
    if row["method"] in rounding_loss.MAIN:
        goal = [f"≤ +{100 * rounding_loss.WITHIN:.1f} %", verdict(row["relative_to_control"] <= rounding_loss.WITHIN)]
    return [
        row["method"],
        str(row["format_bits"]),
        str(row["stored_bits"]),
        alpha,
        f"{row['log_loss']:.5f}",
        excess,
        *goal,
    ]


def environment() -> dict[str, str]:
    return {
        "machine": platform.machine(),
        "processor": numba.core.config.CPU_NAME or get_host_cpu_name(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "scikit-learn": sklearn.__version__,
    }


def main() -> None:
    chosen = options()
    results: dict[str, Any] = {"environment": environment(), "options": vars(chosen)}
    runners = {"speed": run_speed, "memory": run_memory, "accuracy": run_accuracy}
    for section in chosen.sections:
        results[section] = list(runners[section](chosen))
    if chosen.json:
        with open(chosen.json, "w") as file:
            json.dump(results, file, indent=1)
        console.print(f"all figures: {chosen.json}")


if __name__ == "__main__":
    main()
