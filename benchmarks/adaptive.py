"""Adaptive weights against flat 24 bits and the 64-bit control: `python benchmarks/adaptive.py [SECTION…]`.

loss     progressive log-loss at equal slots, over several seeds, beside the bits that are really held
bytes    the same at equal bytes: hashed into as many slots as a number of bytes holds
gamma    the paper's method over gamma, its bits counted, beside the fixed q2.m (a picture with --plot PATH)
speed    million feature updates a second of tables that have learned the stream, one thread
memory   resident growth of a process that trains, read from outside the process
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import adaptive_memory
import numpy as np
from longtail import LongTail
from peer_sets import SETS, DataSet
from rich.console import Console
from rich.table import Table
from scipy.sparse import csr_matrix
from sklearn.linear_model import SGDClassifier
from timing import Contender, race

from lessram import Batch, Learner, Spec
from lessram.learning.metrics import Scores
from lessram.model.ledger import account
from lessram.numerics.loss import Loss

CONTROL = {"weights": "float32", "rates": "exact32"}
FLAT = {"weights": "q2.13", "rates": "morris8"}
STANDARD = {"weights": "adaptive"}
AUTO = {"weights": "adaptive", "codebook": "auto"}
METHODS = {"64-bit control": CONTROL, "flat 24-bit": FLAT, "adaptive": STANDARD, "adaptive, auto": AUTO}
ALPHAS = tuple(2.0 ** (k / 4) for k in range(-18, 5))
"""Learning rates, 0.04 to 2, from which each stream takes the one that is best for the 64-bit control."""
GAMMAS = (4.0, 2.0, 1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125)
LARGEST_FIELDS = {22: 1_070_000, 27: 43_300_000}
"""Values of the largest of 40 fields whose features nearly fill so many slots, as a power of two."""
FRACTIONS = (5, 6, 7, 8, 9, 11, 13)
console = Console(width=130)


class Stream(NamedTuple):
    """The rows of a set in memory, and the learning rate of all methods on it."""

    name: str
    slots: int
    batch: Batch
    alpha: float = ALPHAS[0]

    def hashed(self, slots: int) -> Stream:
        """The same features in another number of slots."""
        spread = self.batch.slots.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(20)
        return self._replace(
            slots=slots, batch=self.batch._replace(slots=(spread % np.uint64(slots)).astype(np.uint32))
        )

    def tuned(self) -> Stream:
        """With the learning rate that is best for the 64-bit control."""
        rates = [self._replace(alpha=alpha) for alpha in ALPHAS]
        return min(rates, key=lambda stream: learned(stream, 0, **CONTROL)[1])


def streams(chosen: argparse.Namespace) -> Iterator[Stream]:
    """The long tail, every feature of which is seen, then real data where they are at hand."""
    rows = 200_000 if chosen.quick else 2_000_000
    tail = LongTail(largest=rows // 2)
    batch = tail.draw(rows)
    _, dense = np.unique(batch.slots, return_inverse=True)
    yield Stream("long tail", int(dense.max()) + 1, batch._replace(slots=dense.astype(np.uint32))).tuned()
    with tempfile.TemporaryDirectory() as folder:
        for name in ("criteo", "reviews"):
            found: DataSet | None = SETS[name](Path(folder), 50_000 if chosen.quick else None)
            if found is None:
                console.print(f"[yellow]the data of {name} are absent[/]")
                continue
            yield Stream(found.name, found.slots, found.batch).tuned()


def learned(stream: Stream, seed: int, **choices: Any) -> tuple[Learner, float]:
    """A learner that went over a stream once, and its progressive log-loss."""
    learner = Learner(Spec(slots=stream.slots, alpha=stream.alpha, seed=seed, **choices))
    scores = Scores.new()
    scores.add(learner.learn(stream.batch, trusted=True), stream.batch, Loss.logistic)
    assert scores.log_loss is not None
    return learner, scores.log_loss


def over_seeds(stream: Stream, seeds: int, **choices: Any) -> dict[str, Any]:
    runs = [learned(stream, seed, **choices) for seed in range(seeds if choices != CONTROL else 1)]
    losses = [loss for _, loss in runs]
    model = runs[0][0].model
    return {
        "slots": stream.slots,
        "alpha": stream.alpha,
        "bits_per_slot": model.bits_per_slot,
        "table_bytes": model.table_bytes,
        "log_loss": fmean(losses),
        "standard_error": stdev(losses) / len(losses) ** 0.5 if len(losses) > 1 else 0.0,
        "seeds": len(losses),
        "form": type(model.table).__name__,
    }


def added(found: dict[str, Any], control: float) -> str:
    return f"{100 * (found['log_loss'] / control - 1):+.3f} ± {100 * found['standard_error'] / control:.3f} %"


def run_loss(chosen: argparse.Namespace) -> Iterator[dict[str, Any]]:
    table = Table("stream", "method", "bits a slot", "log-loss", "added", title="equal slots", title_justify="left")
    for stream in streams(chosen):
        control = 0.0
        for name, choices in METHODS.items():
            found = {"stream": stream.name, "method": name, **over_seeds(stream, chosen.seeds, **choices)}
            control = control or found["log_loss"]
            found["added"] = found["log_loss"] / control - 1
            shown = [f"{found['bits_per_slot']:.2f}", f"{found['log_loss']:.5f}", added(found, control)]
            table.add_row(f"{stream.name}, alpha {stream.alpha:.2f}", name, *shown)
            yield found
    console.print(table)


def run_bytes(chosen: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Flat tables of about one slot for four, two and one distinct features, and adaptive ones of the same bytes."""
    table = Table("stream", "bytes", "method", "slots", "log-loss", title="equal bytes, hashed", title_justify="left")
    for stream in list(streams(chosen))[1:]:
        distinct = len(np.unique(stream.batch.slots))
        for share in (4, 2, 1):
            flat = stream.hashed(distinct // share)
            entries = {"flat 24-bit": over_seeds(flat, chosen.seeds, **FLAT)}
            size, slots = entries["flat 24-bit"]["table_bytes"], flat.slots * 2
            for _ in range(3):  # bits a slot depend on how many slots share the features
                bits = learned(stream.hashed(slots), 0, **AUTO)[0].model.bits_per_slot
                slots = int(8 * size / bits)
            entries["adaptive, auto"] = over_seeds(stream.hashed(slots), chosen.seeds, **AUTO)
            for name, found in entries.items():
                loss = f"{found['log_loss']:.5f} ± {found['standard_error']:.5f}"
                table.add_row(stream.name, f"{found['table_bytes']:,}", name, f"{found['slots']:,}", loss)
                yield {"stream": stream.name, "method": name, "distinct": distinct, **found}
    console.print(table)


def run_gamma(chosen: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Bits against added loss on the long tail: the paper's Figure 2 for the part that it leaves to theory."""
    stream = next(iter(streams(chosen)))
    control = learned(stream, 0, **CONTROL)[1]
    methods: dict[str, dict[str, Any]] = {f"q2.{m}": {"weights": f"q2.{m}", "rates": "morris8"} for m in FRACTIONS}
    methods |= {f"gamma {gamma:g}": {"weights": "gamma", "gamma": gamma} for gamma in GAMMAS}
    methods |= {"adaptive": STANDARD}
    table = Table("method", "bits", "added", title="long tail: bits and loss", title_justify="left")
    for name, choices in methods.items():
        runs = [learned(stream, seed, **choices) for seed in range(min(2, chosen.seeds))]
        ledger = account(runs[0][0].model)
        bits = ledger.bits_per_slot
        if name.startswith("gamma"):
            bits = ledger.counted_bits_per_slot
        elif name.startswith("q"):
            bits = 8 + 3 + int(name[3:])
        found = {"method": name, "bits": bits, "added": fmean(loss for _, loss in runs) / control - 1}
        table.add_row(name, f"{bits:.2f}", f"{100 * found['added']:+.3f} %")
        yield found
    console.print(table)


def plot(found: list[dict[str, Any]], path: str) -> None:
    """The picture over gamma."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.5, 4.6), layout="constrained")
    kinds = {
        "q2.": ("fixed q2.m + 8-bit counter", "o-", "#0072B2"),
        "gamma": ("paper's grids, step ≤ $\\gamma$ · rate, bits counted", "s-", "#D55E00"),
        "adaptive": ("lessram adaptive, bits resident", "*", "#009E73"),
    }
    for start, (label, style, colour) in kinds.items():
        points = [entry for entry in found if entry["method"].startswith(start)]
        bits, loss = [p["bits"] for p in points], [max(100 * p["added"], 0.002) for p in points]
        axes.plot(bits, loss, style, color=colour, label=label, markersize=14 if style == "*" else 6)
        for point, x, y in zip(points, bits, loss, strict=True):
            text = point["method"].replace("gamma ", "$\\gamma$ = ") if start != "adaptive" else f"{x:.1f} bits"
            below = start == "gamma"
            axes.annotate(
                text,
                (x, y),
                xytext=(-6 if below else 6, -12 if below else 5),
                fontsize=8,
                textcoords="offset points",
                ha="right" if below else "left",
                color=colour,
            )
    axes.set(yscale="log", xlabel="bits a coefficient, counter included", ylabel="added log-loss, %")
    axes.set_title("Bits against loss on a long-tail stream", loc="left")
    axes.grid(alpha=0.3)
    axes.margins(0.09)
    axes.legend(frameon=False, loc="upper right")
    figure.savefig(path, dpi=110)


def contenders(tail: LongTail, slots: int, warm: int, batches: list[Batch]) -> list[Contender]:
    """Tables that have learned `warm` batches of a stream and go on with the next; scikit-learn where it can."""
    learners = {name: Learner(Spec(slots=slots, alpha=0.2, **METHODS[name])) for name in list(METHODS)[:3]}
    for _ in range(warm):
        batch = tail.draw(batches[0].rows)
        for learner in learners.values():
            learner.learn(batch, trusted=True)
    racing = [Contender(name, partial(learn_next, learner, iter(batches))) for name, learner in learners.items()]
    if slots <= 1 << 22:
        matrices = [csr_matrix((np.ones(b.features, np.float32), b.slots.astype(np.int32), b.indptr)) for b in batches]
        for matrix in matrices:
            matrix.resize(matrix.shape[0], slots)
        peer = SGDClassifier(loss="log_loss", penalty=None, learning_rate="constant", eta0=0.05)
        peer.partial_fit(matrices[0][:2], [0, 1], classes=[0, 1])
        pairs = iter(zip(matrices, (batch.labels for batch in batches), strict=True))
        racing.append(Contender("scikit-learn partial_fit", lambda: peer.partial_fit(*next(pairs))))
    return racing


def learn_next(learner: Learner, batches: Iterator[Batch]) -> None:
    learner.learn(next(batches), trusted=True)


def run_speed(chosen: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """40 features a row, every round the next rows of the stream."""
    table = Table("stream", "method", "Mf/s", "of flat", title="speed", title_justify="left")
    rows = 25_000
    for bits, largest in {20: 230_000}.items() if chosen.quick else LARGEST_FIELDS.items():
        tail, slots = LongTail(largest=largest, fields=40), 1 << bits
        rounds = 3 if chosen.quick else 8
        batches = [tail.draw(rows) for _ in range(rounds + 1)]
        times = race(contenders(tail, slots, 4 if chosen.quick else 20, batches), rounds)
        for name, seconds in times.items():
            ratio, speed = times["flat 24-bit"] / seconds, 40 * rows / seconds / 1e6
            table.add_row(f"2^{bits} slots", name, f"{speed:.0f}", f"{ratio:.2f}")
            yield {"slots": slots, "method": name, "ratio": ratio, "million_features_a_second": speed}
    console.print(table)


def run_memory(chosen: argparse.Namespace) -> Iterator[dict[str, Any]]:
    heads = ("stream", "slots", "resident", "at peak", "nbytes says", "target")
    table = Table(*heads, title="bits a slot", title_justify="left")
    for case in adaptive_memory.CASES:
        found = adaptive_memory.measure(case, 0.1 if chosen.quick else 1.0)
        shown = [f"{found[key]:.2f}" for key in ("resident_bits", "peak_bits", "claimed_bits")]
        table.add_row(case.name, f"{found['slots']:,}", *shown, f"≤ {case.at_most}")
        yield found
    console.print(table)


SECTIONS = {"loss": run_loss, "bytes": run_bytes, "gamma": run_gamma, "speed": run_speed, "memory": run_memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], help="default all")
    parser.add_argument("--json", metavar="PATH", help="write every figure to this file")
    parser.add_argument("--plot", metavar="PATH", help="of section gamma: draw the picture")
    parser.add_argument("--quick", action="store_true", help="small streams; shows that it runs")
    parser.add_argument("--seeds", type=int, default=6)
    chosen = parser.parse_args()
    results = {name: list(SECTIONS[name](chosen)) for name in chosen.sections or SECTIONS}
    if chosen.plot and "gamma" in results:
        plot(results["gamma"], chosen.plot)
    if chosen.json:
        Path(chosen.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
