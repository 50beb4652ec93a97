"""Predictor: predicts from a served file as it lies on disk, mapped into memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from lessram.data.batch import Batch
from lessram.data.checks import checked, sound
from lessram.data.formats import Form, Reading, Stream
from lessram.data.predicting import batches_to_predict, margins_of, read_to_predict
from lessram.data.reader import BatchReader
from lessram.errors import SpecError
from lessram.model.given import refused
from lessram.numerics.loss import check_gives_probabilities, probabilities
from lessram.serving.lookup import Scratch, new_hot, predict_rows
from lessram.serving.served import Served


class Predictor:
    """Predicts; changes no byte of its model and needs no lock, whatever the number of threads."""

    def __init__(self, served: Served, *, hot_bytes: int = 0) -> None:
        if not isinstance(served, Served):
            raise refused("the model of a Predictor", served, "a compressed one, as Predictor.open(path) has it")
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
        """Rows as batches: a data frame or another table, a matrix, a list of dicts {name or number: value}, a path."""
        return batches_to_predict(data, self.served.reader, self.slots)

    def read(
        self, sources: list[str], form: Form | None = None, *, max_errors: int = 0, threads: int = 1
    ) -> BatchReader:
        """Rows of text or tables as batches, read as the model was trained to read them; labels may be missing."""
        stream = Stream(sources, form or Form(name="auto"))
        return read_to_predict(stream, self.reading, self.slots, max_errors=max_errors, threads=threads)

    def predict(self, rows: Batch | Any, *, trusted: bool = False) -> NDArray[np.float64]:
        """The margin of each row: of a batch, or of whatever can be read as the model was trained to read its data.

        That is a path or several, a data frame or another table in memory, a matrix, a list of dicts. `trusted` batches
        come from a reader of this package: only what could break memory is looked at again.
        """
        if not isinstance(rows, Batch):
            return margins_of(partial(self.predict, trusted=True), self.batches(rows))
        batch = sound(rows, self.slots).batch if trusted else checked(rows, self.slots, real_labels=True)
        margins = np.empty(batch.rows)
        predict_rows(self.served.store.coded, self._hot, batch, Scratch.new(), self._factors, margins)
        return margins

    def probabilities(self, rows: Batch | Any, *, trusted: bool = False) -> NDArray[np.float64]:
        """The probability of label 1 of each row; for models of log-loss only."""
        check_gives_probabilities(self.loss)
        return probabilities(self.predict(rows, trusted=trusted))

    def contributions(self, batch: Batch) -> NDArray[np.float64]:
        """What each feature of a batch adds to the margin of its row, in the order of its features of value not 0."""
        batch = checked(batch, self.slots, real_labels=True)
        start, stop = int(batch.indptr[0]), int(batch.indptr[-1])
        units = self.served.store.lookup(batch.slots[start:stop], self._hot).astype(np.float64)
        step, inverse_scale, _ = self._factors
        return (units if batch.values is None else units * batch.values[start:stop]) * step * inverse_scale
