"""Data sets for the comparison with peers: rows in memory, and the same rows as text for Vowpal Wabbit."""

from __future__ import annotations

import itertools
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import real_data
from scipy.sparse import csr_matrix
from workload import draw_batch

from lessram import Batch, read_batches
from lessram.data.batch import joined, owned
from lessram.data.formats import Choices

AVAZU_CATEGORIES = (
    "hour", "C1", "banner_pos", "device_type", "device_conn_type", *(f"C{k}" for k in range(14, 22))
)  # fmt: skip
"""Columns of numbers that are names."""
REVIEW_LABEL = 9
"""The rating from which on a film review counts as good."""


class DataSet(NamedTuple):
    """The rows of a stream, in its order. Everybody gets the same slots and values."""

    name: str
    bits: int
    batch: Batch

    @property
    def slots(self) -> int:
        return 1 << self.bits

    def first(self, rows: int) -> DataSet:
        return self._replace(batch=compact(self.batch.slice(0, rows)))

    def parts(self, share: float) -> tuple[DataSet, DataSet]:
        """The first part of the stream, to learn from, and the rest, to be scored on."""
        cut, rows = int(share * self.batch.rows), self.batch.rows
        return self.first(cut), self._replace(batch=compact(self.batch.slice(cut, rows)))

    def matrix(self) -> csr_matrix:
        """As scikit-learn takes it."""
        batch = self.batch
        values = np.ones(batch.features, np.float32) if batch.values is None else batch.values.copy()  # gets sorted
        columns, starts = batch.slots.astype(np.int32), batch.indptr.astype(np.int32)
        return csr_matrix((values, columns, starts), shape=(batch.rows, self.slots))

    def write_vw(self, path: Path) -> None:
        """As Vowpal Wabbit takes it: numbered features without a namespace keep their slots."""
        batch, slots = self.batch, self.batch.slots.tolist()
        values = None if batch.values is None else [f"{value:.9g}" for value in batch.values.tolist()]
        names = [str(slot) if values is None else f"{slot}:{values[k]}" for k, slot in enumerate(slots)]
        with open(path, "w") as file:
            for r, label in enumerate(batch.labels.tolist()):
                file.write(f"{1 if label else -1} | {' '.join(names[batch.indptr[r] : batch.indptr[r + 1]])}\n")


Loader = Callable[[Path, int | None], DataSet | None]
"""Loads a set, using a folder for files on the way; None where its data are absent. It may stop behind some rows."""


def compact(batch: Batch) -> Batch:
    """A slice as a batch of its own, whose features begin at 0."""
    first, last = int(batch.indptr[0]), int(batch.indptr[-1])
    values = None if batch.values is None else batch.values[first:last]
    return batch._replace(indptr=batch.indptr - first, slots=batch.slots[first:last], values=values)


def read(path: Path, name: str, bits: int, choices: Choices | None = None) -> DataSet:
    """A file of any format as a data set; `choices` say what the columns of a table are."""
    reader = read_batches([str(path)], slots=1 << bits, choices=choices)
    return DataSet(name, bits, joined([owned(batch) for batch, _ in reader]))


def _reviews(source: Path, folder: Path, most: int | None) -> DataSet:
    """Film, author and words of each review, written as Vowpal Wabbit text and read back hashed."""
    text = folder / "reviews.vw"
    letters = str.maketrans({":": " ", "|": " "})
    with lzma.open(source, "rt", encoding="utf-8", newline="\n") as lines, open(text, "w", encoding="utf-8") as file:
        for line in itertools.islice(lines, most):
            _, _, rating, film, author, words = line.rstrip("\r\n").split("\t", 5)
            label = 1 if int(rating) >= REVIEW_LABEL else -1
            kept = "".join(c if c.isprintable() else " " for c in words.translate(letters))
            file.write(f"{label} |film {film} |author {author.translate(letters)} |words {kept}\n")
    found = read(text, "film reviews", 20)
    text.unlink()
    return found


def _generated(folder: Path, most: int | None) -> DataSet:
    return DataSet("generated", 20, draw_batch("zipf", 20, 50_000, 40, seed=6))


def _file(name: str, file: str, bits: int, **said: Any) -> Loader:
    choices, path = Choices(**said) if said else None, real_data.FOLDER / file
    return lambda folder, most: read(path, name, bits, choices) if path.exists() else None


def _film_reviews(folder: Path, most: int | None) -> DataSet | None:
    source = real_data.FOLDER / "movie_reviews_427k.tsv.xz"
    return _reviews(source, folder, most) if source.exists() else None


SETS: dict[str, Loader] = {
    "criteo": _file("criteo", "criteo_60k.svm.bz2", 20),
    "rcv1": _file("rcv1", "rcv1_15k.svm.bz2", 16),
    "a9a": _file("a9a", "a9a.svm.xz", 10),
    "reviews": _film_reviews,
    "generated": _generated,
}

TABLES: dict[str, Loader] = {
    "avazu": _file("avazu", "avazu_10k.csv.xz", 18, label="click", ignore=("id",), categorical=AVAZU_CATEGORIES),
    "criteo rows": _file("criteo rows", "criteo_tiny_2k.csv.xz", 18, label="Label", ignore=("Id",)),
}
"""Raw columns, as lessram reads them."""
