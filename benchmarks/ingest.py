"""How fast text becomes rows and rows become a model, beside real peers; and that memory stays constant.

    python benchmarks/ingest.py                  parsing by format, text file to model, memory
    python benchmarks/ingest.py --quick          the same on small files, in under a minute
    python benchmarks/ingest.py memory --large   peak memory over files of 2 GB (needs the room in the temporary folder)

parse    one core: processor time of the process while a file is read from the page cache and parsed
train    wall time from file to trained model, scored on the way; Vowpal Wabbit's start-up is taken off its time
memory   the peak resident size of `lessram train`, read from outside
Ratios are between runs in turn; the best of several counts.
"""

from __future__ import annotations

import argparse
import bz2
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import real_data
import vowpal
from additions import Additions, gained
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_svmlight_file
from text_files import (
    KINDS,
    Kind,
    criteo_csv,
    criteo_json,
    criteo_parquet,
    svmlight_ones,
    svmlight_sorted,
    svmlight_values,
    vw_numbers,
    vw_values,
    vw_words,
)
from timing import Contender, race

from lessram import Model, Spec, read_batches
from lessram.data.formats import Choices, Form, Stream
from lessram.learning.training import Plan, Training, plan_sources

console = Console(width=120)

PARSE_TARGETS = {
    "svmlight, idx:1": ("MB/s", 1200.0),
    "svmlight, tf-idf": ("MB/s", 1000.0),
    "svmlight, rcv1": ("MB/s", 1000.0),
    "VW, words": ("MB/s", 500.0),
    "CSV, Criteo": ("MB/s", 250.0),
    "JSON lines, Criteo": ("MB/s", 250.0),
    "Parquet, 26 categories": ("rows/s", 1e6),
}
TRAIN_TARGETS = {"svmlight, idx:1": 20.0, "svmlight, tf-idf": 20.0, "VW, words": 10.0}
TWO_THREADS_TARGET = 1.5
MEMORY_TARGET = 64 << 20
TABLE_BITS = 22
LEARNERS: dict[str, dict[str, Any]] = {
    "q2.13+morris8": {},
    "q3.12+squares8": {"weights": "q3.12", "rates": "squares8", "step_rule": "", "alpha": 0.35},
    "q2.13, one rate": {"rates": "global"},
}
ONE, TWO, TWO_OF_ONE_RATE = "q2.13+morris8, 1 thread", "q2.13+morris8, 2 threads", "q2.13, one rate, 2 threads"
VW_OPTIONS = {"VW --sgd": "--sgd", "VW default": "", "VW --ftrl": "--ftrl"}


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", default=["parse", "train", "memory"], metavar="parse|train|memory")
    parser.add_argument("--quick", action="store_true", help="small files, few rounds")
    parser.add_argument("--large", action="store_true", help="measure memory over 2 GB instead of 200 MB")
    parser.add_argument("--rounds", type=int, help="the best of how many [5; quick 2]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    chosen = parser.parse_args()
    chosen.rounds = chosen.rounds or (2 if chosen.quick else 5)
    return chosen


def verdict(reached: bool) -> str:
    return "[green]reached[/]" if reached else "[red]missed[/]"


def read_all(path: Path, label: str | None) -> tuple[int, int]:
    """Rows and features of a file, parsed in this thread and thrown away."""
    rows = features = 0
    for batch, _ in read_batches([str(path)], slots=1 << TABLE_BITS, choices=Choices(label=label)):
        rows, features = rows + batch.rows, features + batch.features
    return rows, features


def parse_files(folder: Path, quick: bool) -> Iterator[tuple[str, Path, str | None]]:
    for kind in KINDS:
        path = folder / f"{KINDS.index(kind)}{kind.ending}"
        short = kind.ending == ".parquet"
        kind.write(path, (10_000 if quick else 40_000) * (5 if short else 2))
        yield kind.name, path, kind.label
    rcv1 = real_data.FOLDER / "rcv1_15k.svm.bz2"
    if rcv1.exists():
        path = folder / "rcv1.svm"
        path.write_bytes(bz2.decompress(rcv1.read_bytes()))
        yield "svmlight, rcv1", path, None
    else:
        console.print(f"[yellow]{rcv1} is absent: rcv1 is not parsed[/]")


def parse_section(chosen: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    files = list(parse_files(folder, chosen.quick))
    contenders = [
        Contender(name, lambda path=path, label=label: read_all(path, label))  # type: ignore[misc]
        for name, path, label in files
    ]
    short = folder / "short.svm"
    svmlight_sorted(short, 4_000)
    contenders.append(Contender("scikit-learn load_svmlight_file, tf-idf", lambda: load_svmlight_file(str(short))))
    times = race(contenders, chosen.rounds, clock="process")
    table = Table("format", "MB/s", "Mf/s", "rows/s", "target", "", title_justify="left")
    table.title = f"parsing on one core, best of {chosen.rounds}"
    for name, path, label in [*files, (contenders[-1].name, short, None)]:
        rows, features = read_all(path, label)
        found = {
            "name": name,
            "MB/s": path.stat().st_size / 1e6 / times[name],
            "Mf/s": features / 1e6 / times[name],
            "rows/s": rows / times[name],
        }
        unit, target = PARSE_TARGETS.get(name, ("", 0.0))
        goal = [f"≥ {target:,.0f} {unit}", verdict(found[unit] >= target)] if unit else ["", ""]
        table.add_row(name, f"{found['MB/s']:,.0f}", f"{found['Mf/s']:.1f}", f"{found['rows/s']:,.0f}", *goal)
        yield found | {"target": target or None, "unit": unit or None}
    console.print(table)


class Run:
    """A run from text to model that is repeated; its best wall and processor seconds count."""

    def __init__(self) -> None:
        self.best = {"seconds": float("inf"), "cpu": float("inf")}

    def note(self, **found: float) -> None:
        self.best = {clock: min(self.best[clock], value) for clock, value in found.items()}


class OurRun(Run):
    """lessram over a file: parse, predict, score, learn. Everything but the empty table is inside the time."""

    def __init__(self, path: Path, threads: int, label: str | None = None, **choices: Any) -> None:
        super().__init__()
        self._path, self._threads, self._label = path, threads, label
        self._spec = Spec.paper(**{"slots": 1 << TABLE_BITS, **choices})

    def run(self) -> None:
        self.model = Model.new(self._spec)
        start, cpu = time.perf_counter(), time.process_time()
        sources = plan_sources([str(self._path)])
        stream = Stream([source.path for source in sources], Form(name="auto"))
        plan = Plan(
            sources=sources, form=stream.form, reading=stream.decide(Choices(label=self._label)), threads=self._threads
        )
        training = Training(self.model, plan, stream=stream)
        for _ in training.run():
            pass
        self.note(seconds=time.perf_counter() - start, cpu=time.process_time() - cpu)
        self.features = training.scores.features

    def digest(self) -> str:
        return hashlib.sha256(self.model.table.cells.tobytes() + self.model.scalars.tobytes()).hexdigest()


class VwRun(Run):
    """Vowpal Wabbit over a file, its start-up taken off."""

    def __init__(self, path: Path, flags: str, folder: Path) -> None:
        super().__init__()
        self._path, self._flags = path, flags
        self._start_up = vowpal.startup(folder, flags, bits=TABLE_BITS)

    def run(self) -> None:
        found = vowpal.run(self._path, self._flags, bits=TABLE_BITS)
        self.note(**{clock: found[clock] - seconds for clock, seconds in self._start_up.items()})


def train_kinds() -> list[tuple[Kind, Any]]:
    """What lessram reads, and who writes the same features for Vowpal Wabbit, if somebody does."""
    return [
        (Kind("svmlight, idx:1", ".svm", svmlight_ones), vw_numbers),
        (Kind("svmlight, tf-idf", ".svm", svmlight_values), vw_values),
        (Kind("VW, words", ".vw", vw_words), vw_words),
        (Kind("CSV, Criteo", ".csv", criteo_csv, "label"), None),
        (Kind("JSON lines, Criteo", ".jsonl", criteo_json, "label"), None),
        (Kind("Parquet, 26 categories", ".parquet", criteo_parquet, "label"), None),
    ]


def train_section(chosen: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    for number, (kind, twin) in enumerate(train_kinds()):
        # Files are so long that what happens once does not matter: finding a schema, making buffers.
        rows = 25_000 if chosen.quick else 800_000
        path = folder / f"train{number}{kind.ending}"
        kind.write(path, rows)
        theirs = folder / f"vw{number}.vw" if twin else None
        if theirs:
            twin(theirs, rows)
        found = measure_training(kind, path, theirs, rows, chosen.rounds)
        show_training(found)
        yield found


def measure_training(kind: Kind, path: Path, theirs: Path | None, rows: int, rounds: int) -> dict[str, Any]:
    ours = {
        f"{name}, {count}": OurRun(path, threads, kind.label, **choices)
        for name, choices in LEARNERS.items()
        for threads, count in ((1, "1 thread"), (2, "2 threads"))
    }
    peers: dict[str, VwRun] = {}
    if theirs and vowpal.AVAILABLE:
        peers = {title: VwRun(theirs, flags, path.parent) for title, flags in VW_OPTIONS.items()}
    runs: dict[str, Run] = {**ours, **peers}
    machine = Additions(1), Additions(2)
    contenders = {**runs, "one": machine[0], "two": machine[1]}
    race([Contender(title, run.run) for title, run in contenders.items()], rounds, clock="wall")  # type: ignore[attr-defined]
    for name in LEARNERS:
        one, two = ours[f"{name}, 1 thread"], ours[f"{name}, 2 threads"]
        assert one.digest() == two.digest(), f"{kind.name}: one thread and two gave different models"
    return {
        "name": kind.name,
        "rows": rows,
        "features": ours[ONE].features,
        "best": {title: run.best for title, run in runs.items()},
        "two_threads_over_one": ours[ONE].best["seconds"] / ours[TWO].best["seconds"],
        "additions_by_two_threads_over_one": gained(*machine),
        "over_vw": {title: run.best["seconds"] / ours[TWO].best["seconds"] for title, run in peers.items()},
        "one_rate_over_vw": {
            title: run.best["seconds"] / ours[TWO_OF_ONE_RATE].best["seconds"] for title, run in peers.items()
        },
        "over_vw_by_cpu": {title: run.best["cpu"] / ours[ONE].best["cpu"] for title, run in peers.items()},
        "same_bytes": True,
    }


def show_training(found: dict[str, Any]) -> None:
    table = Table("who", "examples/s", "Mf/s", "Mf a processor second", title_justify="left")
    table.title = f"{found['name']}: text file to trained model, {found['rows']:,} rows, 2^{TABLE_BITS} slots"
    millions = found["features"] / 1e6
    for title, best in found["best"].items():
        speed = f"{millions / best['seconds']:.1f}"
        table.add_row(title, f"{found['rows'] / best['seconds']:,.0f}", speed, f"{millions / best['cpu']:.1f}")
    console.print(table)
    console.print(f"  additions by two threads over one, beside it: {found['additions_by_two_threads_over_one']:.2f}x")
    goals = [("two threads over one (same bytes)", found["two_threads_over_one"], TWO_THREADS_TARGET)]
    if not vowpal.AVAILABLE:
        console.print("[yellow]vowpalwabbit is not installed: no comparison with it[/]")
    for title, ratio in found["over_vw"].items():
        goals.append((f"two threads over {title}", ratio, TRAIN_TARGETS[found["name"]] if "sgd" in title else 0.0))
    for title, ratio, target in goals:
        goal = f", target ≥ {target}x: {verdict(ratio >= target)}" if target else ""
        console.print(f"  {title}: {ratio:.2f}x{goal}")
    for title, ratio in found["one_rate_over_vw"].items():
        if "sgd" in title:
            console.print(f"  {TWO_OF_ONE_RATE} over {title}, which has one rate too: {ratio:.2f}x")
    for title, ratio in found["over_vw_by_cpu"].items():
        console.print(f"  one thread over {title}, by processor time: {ratio:.2f}x")


def peak_of_training(path: Path, model: Path, options: list[str]) -> int:
    """The peak resident size of a `lessram train`, by /proc from outside, in bytes."""
    command = [sys.executable, "-m", "lessram.cli.main", "train", str(path), "-o", str(model), "--quiet", *options]
    peak = 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as child:
        while child.poll() is None:
            try:
                status = Path(f"/proc/{child.pid}/status").read_text()
            except FileNotFoundError:
                break
            lines = [line for line in status.splitlines() if line.startswith("VmHWM")]
            peak = max([peak, *(int(line.split()[1]) * 1024 for line in lines)])
            time.sleep(0.01)
    if child.returncode:
        raise RuntimeError(f"{' '.join(command)} failed with exit code {child.returncode}")
    return peak


def repeat_lines(small: Path, large: Path, copies: int) -> None:
    """The same lines many times, under the header of the first if there is one."""
    text = small.read_bytes()
    header = text.index(b"\n") + 1 if small.suffix == ".csv" else 0
    with open(large, "wb") as file:
        file.write(text[:header])
        for _ in range(copies):
            file.write(text[header:])


def repeat_groups(small: Path, large: Path, copies: int) -> None:
    """The same rows many times, each time as a row group of its own."""
    import pyarrow.parquet as pq

    table = pq.read_table(small)
    with pq.ParquetWriter(large, table.schema) as writer:
        for _ in range(copies):
            writer.write_table(table)


MEMORY_KINDS: list[tuple[Kind, int, Callable[[Path, Path, int], None]]] = [
    (Kind("svmlight", ".svm", svmlight_ones), 60_000, repeat_lines),
    (Kind("CSV", ".csv", criteo_csv, "label"), 75_000, repeat_lines),
    (Kind("JSON lines", ".jsonl", criteo_json, "label"), 34_000, repeat_lines),
    (Kind("Parquet", ".parquet", criteo_parquet, "label"), 380_000, repeat_groups),
]
"""Files of about 20 MB, and who repeats them."""


def memory_section(chosen: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    copies = 100 if chosen.large else 10 if chosen.quick else 25
    for kind, rows, repeat in MEMORY_KINDS:
        small, large, model = (folder / f"{name}{kind.ending}" for name in ("small", "large", "model"))
        options = ["--label", kind.label] if kind.label else []
        kind.write(small, rows)
        repeat(small, large, copies)
        peak_of_training(small, model, options)  # compiles
        sizes = {path: path.stat().st_size for path in (small, large)}
        peaks = {path: peak_of_training(path, model, options) for path in (small, large)}
        large.unlink()
        grown = peaks[large] - peaks[small]
        console.print(
            f"peak resident memory of training from {kind.name}: "
            + ", ".join(f"{sizes[path] / 1e6:,.0f} MB {peaks[path] / 2**20:.0f} MiB" for path in peaks)
            + f"; difference {grown / 2**20:+.1f} MiB, target ≤ {MEMORY_TARGET >> 20} MiB: "
            + verdict(grown <= MEMORY_TARGET)
        )
        yield {
            "name": kind.name,
            "small_bytes": sizes[small],
            "large_bytes": sizes[large],
            "small_peak_bytes": peaks[small],
            "large_peak_bytes": peaks[large],
        }


def main() -> None:
    chosen = options()
    sections = {"parse": parse_section, "train": train_section, "memory": memory_section}
    results: dict[str, Any] = {"options": {key: str(value) for key, value in vars(chosen).items()}}
    for section in chosen.sections:
        with tempfile.TemporaryDirectory() as folder:
            results[section] = list(sections[section](chosen, Path(folder)))
    if chosen.json:
        chosen.json.write_text(json.dumps(results, indent=1))
        console.print(f"all figures: {chosen.json}")


if __name__ == "__main__":
    main()
