"""Replicas trained apart and merged, against one learner: `python benchmarks/merging.py [SECTION…]`.

loss     log-loss of held-out rows: K replicas merged once at the end, or ten times on the way, against one learner
speed    million slots merged a second, one thread, and how long it takes beside copying the same tables once
memory   resident growth of a process that merges model files, read from outside, beside the size of one table
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from longtail import LongTail
from memory import growth_of
from peer_sets import SETS
from rich.console import Console
from rich.table import Table
from timing import Contender, race
from workload import draw_batch

from lessram import Batch, Learner, Model, Spec, merge
from lessram.learning.metrics import Scores
from lessram.numerics.loss import Loss
from lessram.tables.layout import copied, drop_pages_of

STORAGES: dict[str, dict[str, Any]] = {
    "default": {"weights": "q3.12", "rates": "squares8"},
    "morris8": {"weights": "q2.13", "rates": "morris8"},
    "adaptive": {"weights": "adaptive"},
}
MORE_STORAGES: dict[str, dict[str, Any]] = STORAGES | {
    "16 bits": {"weights": "e3m6", "rates": "squares6"},
    "64-bit control": {"weights": "float32", "rates": "exact32"},
}
ALPHAS = {
    "long tail": {"default": 0.08, "morris8": 0.2, "adaptive": 0.2},
    "criteo": {"default": 0.08, "morris8": 0.1, "adaptive": 0.1},
    "rcv1": {"default": 0.5, "morris8": 0.3, "adaptive": 0.3},
}
"""Of one learner; near its best on each set."""
WAYS = {f"{mean}, {rate}": (mean, rate == "α√K") for rate in ("α√K", "α") for mean in ("touched", "all")}
"""Whose mean a weight is, and whether replicas have sqrt(K) times the alpha of one learner."""
REPLICAS = (2, 4, 8)
ROUNDS = (1, 10)
FILES = [("default", 24, 4), ("morris8", 24, 4), ("adaptive", 24, 4), ("default", 26, 2)]
"""Storage, slots as a power of two, replicas of what is merged while resident memory is read."""
console = Console(width=130)


class Stream:
    """Rows to learn, and rows to measure on."""

    def __init__(self, name: str, slots: int, batch: Batch) -> None:
        cut = batch.rows * 4 // 5
        self.name, self.slots = name, slots
        self.train, self.test = batch.slice(0, cut), batch.slice(cut, batch.rows)


def streams(quick: bool) -> Iterator[Stream]:
    rows = 50_000 if quick else 500_000
    batch = LongTail(largest=rows // 2).draw(rows)
    _, dense = np.unique(batch.slots, return_inverse=True)
    yield Stream("long tail", int(dense.max()) + 1, batch._replace(slots=dense.astype(np.uint32)))
    with tempfile.TemporaryDirectory() as folder:
        for name in ("criteo", "rcv1"):
            found = SETS[name](Path(folder), None)
            if found is None:
                console.print(f"[yellow]the data of {name} are absent[/]")
            else:
                yield Stream(name, found.slots, found.batch)


def held_out_loss(model: Model, stream: Stream) -> float:
    scores = Scores.new()
    scores.add(Learner(model).predict(stream.test, trusted=True), stream.test, Loss.logistic)
    assert scores.log_loss is not None
    return scores.log_loss


def went_on(base: Model, seed: int, batch: Batch) -> Model:
    """A replica of the base with random words of its own, after a batch."""
    replica = copy.deepcopy(base)
    replica.spec = Spec(**{**{name: getattr(base.spec, name) for name in base.spec.__struct_fields__}, "seed": seed})
    Learner(replica).learn(batch, trusted=True)
    return replica


def trained(stream: Stream, spec: Spec, replicas: int, rounds: int, mean: str) -> Model:
    """Replicas that learn a part each and are merged, so many times."""
    model = Model.new(spec)
    ends = np.linspace(0, stream.train.rows, replicas * rounds + 1).astype(int).tolist()
    parts = [stream.train.slice(first, last) for first, last in pairwise(ends)]
    for start in range(0, len(parts), replicas):
        seeds = range(spec.seed, spec.seed + replicas)
        some = [went_on(model, seed, part) for seed, part in zip(seeds, parts[start : start + replicas], strict=True)]
        model = merge(model, some, mean=mean)
    return model


def over_seeds(stream: Stream, choices: dict[str, Any], seeds: int, *how: Any) -> list[float]:
    return [
        held_out_loss(trained(stream, Spec(slots=stream.slots, seed=100 * seed, **choices), *how), stream)
        for seed in range(seeds)
    ]


def run_loss(chosen: argparse.Namespace) -> Iterator[dict[str, Any]]:
    heads = ("stream", "storage", "one", "half", "K", "merged", *WAYS)
    table = Table(*heads, title="held-out log-loss, added to one learner's", title_justify="left")
    for stream in streams(chosen.quick):
        for storage, choices in STORAGES.items():
            alpha = ALPHAS[stream.name][storage]
            one = fmean(over_seeds(stream, choices | {"alpha": alpha}, chosen.seeds, 1, 1, "all"))
            half = Stream(stream.name, stream.slots, stream.train)
            half.train, half.test = stream.train.slice(0, stream.train.rows // 2), stream.test
            less = fmean(over_seeds(half, choices | {"alpha": alpha}, chosen.seeds, 1, 1, "all"))
            for replicas in REPLICAS:
                for rounds in ROUNDS:
                    found: dict[str, Any] = {
                        "stream": stream.name,
                        "storage": storage,
                        "replicas": replicas,
                        "merges": rounds,
                        "one": one,
                        "half": less,
                    }
                    for way, (mean, longer) in WAYS.items():
                        rate = alpha * (replicas**0.5 if longer else 1)
                        losses = over_seeds(stream, choices | {"alpha": rate}, chosen.seeds, replicas, rounds, mean)
                        error = stdev(losses) / len(losses) ** 0.5 if len(losses) > 1 else 0.0
                        found[way] = {"log_loss": fmean(losses), "standard_error": error}
                    shown = [f"{100 * (found[way]['log_loss'] / one - 1):+.2f} %" for way in WAYS]
                    halved = f"{100 * (less / one - 1):+.2f} %"
                    often = "once" if rounds == 1 else f"{rounds} times"
                    table.add_row(stream.name, storage, f"{one:.5f}", halved, str(replicas), often, *shown)
                    yield found
    console.print(table)


# Speed ----------------------------------------------------------------------------------------------------------------


def parted(choices: dict[str, Any], bits: int, replicas: int, rows: int) -> tuple[Model, list[Model]]:
    """A base and replicas that have learned different rows of a power law."""
    base = Model.new(Spec(slots=1 << bits, **choices))
    Learner(base).learn(draw_batch("zipf", bits, rows, 40, seed=1), trusted=True)
    parts = (draw_batch("zipf", bits, rows, 40, seed=seed) for seed in range(2, 2 + replicas))
    return base, [went_on(base, seed, part) for seed, part in enumerate(parts)]


def run_speed(chosen: argparse.Namespace) -> Iterator[dict[str, Any]]:
    bits, rows = (18, 2_000) if chosen.quick else (22, 50_000)
    heads = ("storage", "K", "slots that moved", "million slots/s", "times as long as copying")
    table = Table(*heads, title=f"speed, 2^{bits} slots", title_justify="left")
    for storage, choices in MORE_STORAGES.items():
        for replicas in (2, 8):
            base, models = parted(choices, bits, replicas, rows)
            moved = np.any([model.weights() != base.weights() for model in models], axis=0).mean()
            contenders = [
                Contender("merge", partial(merge, base, models)),
                Contender("copy", lambda models=models: [copied(model.table) for model in models]),
            ]
            times = race(contenders, 3)
            speed, ratio = (1 << bits) / times["merge"] / 1e6, times["merge"] / times["copy"]
            table.add_row(storage, str(replicas), f"{100 * moved:.0f} %", f"{speed:.1f}", f"{ratio:.1f}")
            yield {
                "storage": storage,
                "replicas": replicas,
                "moved": float(moved),
                "million_slots_a_second": speed,
                "times_copying": ratio,
            }
    console.print(table)


# Memory ---------------------------------------------------------------------------------------------------------------


def run_memory(chosen: argparse.Namespace) -> Iterator[dict[str, Any]]:
    heads = ("storage", "slots", "K", "one table", "peak", "peak / table")
    table = Table(*heads, title="resident MiB while merging files", title_justify="left")
    for storage, full_bits, replicas in FILES:
        bits = full_bits - (6 if chosen.quick else 0)
        with tempfile.TemporaryDirectory() as folder:
            base, models = parted(STORAGES[storage], bits, replicas, 10_000 if chosen.quick else 300_000)
            for number, model in enumerate((base, *models)):
                model.save(Path(folder) / str(number))
            del base, models, model
            found = {"storage": storage, "slots": 1 << bits, "replicas": replicas, **measured(folder, replicas)}
        sizes = [f"{found[key] / 2**20:.1f}" for key in ("table_bytes", "peak_bytes")]
        ratio = f"{found['peak_bytes'] / found['table_bytes']:.2f}"
        table.add_row(storage, f"2^{bits}", str(replicas), *sizes, ratio)
        yield found
    console.print(table)


def measured(folder: str, replicas: int) -> dict[str, Any]:
    """How far the resident size of a child grows at most while it opens, checks and merges files."""
    settings = os.environ | {"LESSRAM_HUGE_PAGES": "0", "MALLOC_MMAP_THRESHOLD_": "65536"}
    command = [sys.executable, __file__, "--child", folder, str(replicas)]
    grown = growth_of(command, settings)
    return {"table_bytes": int(grown.said), "peak_bytes": grown.peak, "peak_is_exact": grown.peak_is_exact}


def opened(path: Path) -> Model:
    model = Model.load(path)
    drop_pages_of(model.table)
    return model


def child(folder: Path, replicas: int) -> None:
    """What the command does, but for writing the file; a small merge before lets nothing be compiled later."""
    spec = opened(folder / "0").spec
    small = {name: getattr(spec, name) for name in spec.__struct_fields__} | {"slots": 1 << 12}
    parts = [draw_batch("zipf", 12, 100, 40, seed=seed) for seed in (1, 2)]
    merge(None, [went_on(Model.new(Spec(**small)), seed, part) for seed, part in enumerate(parts)])
    print("ready", flush=True)
    sys.stdin.readline()
    base, *models = (opened(folder / str(number)) for number in range(replicas + 1))
    merged = merge(base, models)
    print("done", merged.table_bytes, flush=True)
    sys.stdin.readline()


SECTIONS = {"loss": run_loss, "speed": run_speed, "memory": run_memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], help="default all")
    parser.add_argument("--json", metavar="PATH", help="write every figure to this file")
    parser.add_argument("--quick", action="store_true", help="small streams; shows that it runs")
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    results = {name: list(SECTIONS[name](chosen)) for name in chosen.sections or SECTIONS}
    if chosen.json:
        Path(chosen.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
