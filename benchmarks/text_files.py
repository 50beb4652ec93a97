"""Generated files in every format that lessram reads, with the statistics of the real ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from workload import draw_batch

from lessram import Batch

ROW_LENGTH = 40
BITS = 18
"""Slots of the generated features; the tables that learn from them have more."""
NUMERIC, CATEGORICAL = 13, 26
"""The columns of Criteo's data."""


class Kind(NamedTuple):
    """One file to read: its ending, what options lessram needs for it, and who writes it."""

    name: str
    ending: str
    write: Callable[[Path, int], None]
    label: str | None = None


def _rows(batch: Batch, names: list[str], values: list[str] | None = None) -> Iterator[list[str]]:
    slots = batch.slots.tolist()
    for row in range(batch.rows):
        start, stop = row * ROW_LENGTH, (row + 1) * ROW_LENGTH
        words = [names[slot] for slot in slots[start:stop]]
        if values is not None:
            words = [f"{word}:{value}" for word, value in zip(words, values[start:stop], strict=True)]
        yield words


def _signs(batch: Batch) -> list[str]:
    return ["1" if label else "-1" for label in batch.labels.tolist()]


def _write(path: Path, batch: Batch, names: list[str], values: list[str] | None = None, bar: str = "") -> None:
    with open(path, "w") as file:
        for sign, words in zip(_signs(batch), _rows(batch, names, values), strict=True):
            file.write(f"{sign} {bar}{' '.join(words)}\n")


def _zipf(rows: int) -> Batch:
    return draw_batch("zipf", BITS, rows, ROW_LENGTH)


def _numbers() -> list[str]:
    return [str(slot) for slot in range(1 << BITS)]


def _tfidf(batch: Batch) -> list[str]:
    """Values as unit-norm tf-idf has them, with eight digits."""
    drawn = np.random.default_rng(3).lognormal(-2.3, 0.5, len(batch.slots))
    return [f"{value:.8f}".rstrip("0") for value in drawn]


def svmlight_ones(path: Path, rows: int) -> None:
    _write(path, _zipf(rows), [f"{number}:1" for number in _numbers()])


def svmlight_values(path: Path, rows: int) -> None:
    batch = _zipf(rows)
    _write(path, batch, _numbers(), _tfidf(batch))


def svmlight_sorted(path: Path, rows: int) -> None:
    """As `svmlight_values`, with the indices of a row in order and none twice: scikit-learn takes no other."""
    svmlight_values(path, rows)
    lines = []
    for line in path.read_text().splitlines():
        sign, *features = line.split()
        kept = dict(feature.split(":") for feature in features)
        lines.append(" ".join([sign, *(f"{index}:{kept[index]}" for index in sorted(kept, key=int))]))
    path.write_text("\n".join(lines) + "\n")


def vw_numbers(path: Path, rows: int) -> None:
    """The features of `svmlight_ones` as Vowpal Wabbit reads them fastest: bare numbers."""
    _write(path, _zipf(rows), _numbers(), bar="| ")


def vw_values(path: Path, rows: int) -> None:
    """The features of `svmlight_values`."""
    batch = _zipf(rows)
    _write(path, batch, _numbers(), _tfidf(batch), bar="| ")


def vw_hex(path: Path, rows: int) -> None:
    """Eight hexadecimal digits a token, as in Criteo's logs."""
    _write(path, _zipf(rows), [f"{slot * 0x9E3779B1 & 0xFFFFFFFF:08x}" for slot in range(1 << BITS)], bar="|f ")


def words(count: int) -> list[str]:
    """Made-up words of 2 to 12 letters."""
    random = np.random.default_rng(4)
    letters = "".join(map(chr, random.choice(np.frombuffer(b"etaoinshrdlucmfwyp", np.uint8), 13 * count)))
    lengths = np.clip(random.poisson(4, count) + 2, 2, 12).tolist()
    return [letters[13 * i : 13 * i + length] for i, length in enumerate(lengths)]


def vw_words(path: Path, rows: int) -> None:
    _write(path, _zipf(rows), words(1 << BITS), bar="|text ")


def _criteo_columns(rows: int) -> tuple[list[str], list[list[str]]]:
    """Criteo's columns: a label, counts with gaps, and categories between ten values and a million, with gaps."""
    random = np.random.default_rng(5)
    names, columns = ["label"], [(random.random(rows) < 0.25).astype(int).astype(str).tolist()]
    for i in range(NUMERIC):
        present = random.random(rows) < 0.8
        counts = random.geometric(10.0 ** -(1 + i % 4), rows)
        names.append(f"I{i + 1}")
        columns.append([str(count) if there else "" for count, there in zip(counts, present, strict=True)])
    for i in range(CATEGORICAL):
        ranks = (10.0 ** ((1 + i % 6) * random.random(rows))).astype(np.uint64)
        present = random.random(rows) < 0.95
        hashed = (ranks * np.uint64(0x9E3779B1) + np.uint64(i)) & np.uint64(0xFFFFFFFF)
        names.append(f"C{i + 1}")
        columns.append([f"{value:08x}" if there else "" for value, there in zip(hashed, present, strict=True)])
    return names, columns


def criteo_csv(path: Path, rows: int) -> None:
    names, columns = _criteo_columns(rows)
    with open(path, "w") as file:
        file.write(",".join(names) + "\n")
        file.writelines(",".join(cells) + "\n" for cells in zip(*columns, strict=True))


def criteo_json(path: Path, rows: int) -> None:
    names, columns = _criteo_columns(rows)
    with open(path, "w") as file:
        for cells in zip(*columns, strict=True):
            row = {name: cell if name[0] == "C" else int(cell) for name, cell in zip(names, cells, strict=True) if cell}
            file.write(json.dumps(row) + "\n")


def criteo_parquet(path: Path, rows: int) -> None:
    """The label and the categorical columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names, columns = _criteo_columns(rows)
    kept = [i for i, name in enumerate(names) if name[0] != "I"]
    arrays = [pa.array([int(cell) for cell in columns[i]] if i == 0 else columns[i]) for i in kept]
    pq.write_table(pa.table(arrays, [names[i] for i in kept]), path)


KINDS = [
    Kind("svmlight, idx:1", ".svm", svmlight_ones),
    Kind("svmlight, tf-idf", ".svm", svmlight_values),
    Kind("VW, hex tokens", ".vw", vw_hex),
    Kind("VW, words", ".vw", vw_words),
    Kind("CSV, Criteo", ".csv", criteo_csv, "label"),
    Kind("JSON lines, Criteo", ".jsonl", criteo_json, "label"),
    Kind("Parquet, 26 categories", ".parquet", criteo_parquet, "label"),
]
