"""Predictor: predicts from a served file as it lies on disk, mapped into memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from lessram.data.batch import Batch
from lessram.data.checks import checked
from lessram.data.formats import Form, Reading, Stream
from lessram.data.matrix import Matrix
from lessram.data.reader import BatchReader
from lessram.errors import SpecError
from lessram.serving.lookup import Scratch, new_hot, predict_rows
from lessram.serving.served import Served


class Predictor:
    """Predicts; changes no byte of its model and needs no lock, whatever the number of threads."""

    def __init__(self, served: Served, *, hot_bytes: int = 0) -> None:
        if hot_bytes < 0:
            raise SpecError(f"hot_bytes must not be negative, got {hot_bytes}")
        self.served = served
        self._hot = new_hot(hot_bytes, served.store.slots)
        self._factors = np.array([served.store.grid.step, served.inverse_scale, served.intercept])
        self._path: str | None = None

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, hot_bytes: int = 0, verify: bool = False) -> Predictor:
        """Open a served file: its header is read, the rest is mapped."""
        predictor = cls(Served.load(path, verify=verify), hot_bytes=hot_bytes)
        predictor._path = os.fspath(path)
        return predictor

    @property
    def slots(self) -> int:
        return self.served.store.slots

    @property
    def hot_bytes(self) -> int:
        """Bytes of the table of hot values."""
        return self._hot.words.nbytes if self._hot.mask else 0

    @property
    def loss(self) -> str:
        return self.served.spec.loss

    @property
    def reading(self) -> Reading:
        """How features become slots."""
        return msgspec.convert(self.served.reader, Reading)

    def info(self) -> dict[str, Any]:
        """The account of the model, as `lessram info` gives it."""
        return msgspec.to_builtins(self.served.ledger(self._path))

    def batches(self, data: Any) -> Iterator[Batch]:
        """Rows in memory as batches: a sparse or dense matrix, or a list of dicts {name or number: value}."""
        reading = self.reading
        return Matrix(data, self.slots, hash=reading.hash, hash_seed=reading.hash_seed).batches()

    def read(
        self, sources: list[str], form: Form | None = None, *, max_errors: int = 0, threads: int = 1
    ) -> BatchReader:
        """Rows of text or tables as batches, read as the model was trained to read them; labels may be missing."""
        return BatchReader(
            Stream(sources, form or Form(name="auto")),
            self.reading,
            slots=self.slots,
            labels="real",
            keep_unlabelled=True,
            max_errors=max_errors,
            threads=threads,
        )

    def predict(self, batch: Batch, *, trusted: bool = False) -> NDArray[np.float64]:
        """The margin of each row; `trusted` batches come from a reader of this package."""
        if not trusted:
            batch = checked(batch, self.slots, real_labels=True)
        margins = np.empty(batch.rows)
        predict_rows(self.served.store.coded, self._hot, batch, Scratch.new(), self._factors, margins)
        return margins

    def probabilities(self, batch: Batch, *, trusted: bool = False) -> NDArray[np.float64]:
        """The probability of label 1 of each row; for models of log-loss only."""
        if self.loss != "logistic":
            raise SpecError(f"probabilities need a model of logistic loss, this one has {self.loss} loss")
        with np.errstate(over="ignore"):
            return 1.0 / (1.0 + np.exp(-self.predict(batch, trusted=trusted)))

    def contributions(self, batch: Batch) -> NDArray[np.float64]:
        """What each feature of a batch adds to the margin of its row, in the order of its features of value not 0."""
        batch = checked(batch, self.slots, real_labels=True)
        start, stop = int(batch.indptr[0]), int(batch.indptr[-1])
        units = self.served.store.lookup(batch.slots[start:stop], self._hot).astype(np.float64)
        step, inverse_scale, _ = self._factors
        return (units if batch.values is None else units * batch.values[start:stop]) * step * inverse_scale
