"""A model that is being served: its predictor, its readers of rows, and what tells it from every other model."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from lessram.data.batch import Batch
from lessram.data.formats import Reading
from lessram.data.parsing import slot_type
from lessram.errors import DataError, FileFormatError
from lessram.model import file
from lessram.numerics.loss import Loss, probabilities
from lessram.serving.server.forms import Form
from lessram.serving.server.rows import RowReader, row_reader

_TRIES = 5
_LARGE = 700.0
_WARMING = (
    b'{"features": {"name": 1, "1": 0.5}}',
    b'{"features": {"\\u006eame": 1, "1": 0.5}}',  # an escape, as what follows, is not for the kernel of usual rows
    b'{"values": [0.5], "slots": [0]}',
)


class Predicts(Protocol):
    """What the server asks of a model; reading it needs no lock."""

    @property
    def slots(self) -> int: ...

    @property
    def reading(self) -> Reading: ...

    @property
    def loss(self) -> str: ...

    def predict(self, batch: Batch, *, trusted: bool = False) -> NDArray[np.float64]:
        """The margins of rows; `trusted` ones come from a reader of this package."""


Opener = Callable[[str], Predicts]
"""Opens a model by its path."""


class Signature(NamedTuple):
    """What changes when a file is replaced."""

    device: int
    inode: int
    size: int
    modified: int

    @classmethod
    def of(cls, path: str) -> Signature:
        try:
            found = os.stat(path)
        except OSError as error:
            raise FileFormatError(f"{path}: cannot read: {error.strerror or error}") from None
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


class Loaded:
    """One model in service. A request takes it once and is answered by nothing else."""

    def __init__(self, predictor: Predicts, generation: int, checksum: str, signature: Signature) -> None:
        self.generation = generation
        """1 for the model that the server started with, one more for each that took its place."""
        self.checksum = checksum
        """Of the file's description, which holds those of all tensors: equal for equal models."""
        self.signature = signature
        self.headers = [
            (b"lessram-model", checksum[:16].encode()),
            (b"lessram-generation", str(generation).encode()),
        ]
        self.reading = predictor.reading
        self.slots = predictor.slots
        self.logistic = Loss[predictor.loss] is Loss.logistic
        """Whether margins are log-odds, so that there are probabilities."""
        self._predictor = predictor
        self._threads = threading.local()

    def margins(self, body: bytes, form: Form) -> NDArray[np.float64]:
        """The margin of each row of a body. Any thread may ask."""
        found = [self._predictor.predict(batch, trusted=True) for batch in self._reader().batches(body, form)]
        return found[0] if len(found) == 1 else np.concatenate([np.empty(0), *found])

    def _reader(self) -> RowReader:
        try:
            reader: RowReader = self._threads.reader
        except AttributeError:
            reader = self._threads.reader = row_reader(self.reading, self.slots)
        return reader

    def warm_up(self) -> None:
        """Compile or load all kernels now, so that no request waits for them."""
        slots: NDArray[Any] = np.zeros(1, slot_type(self.slots))
        for values in (None, np.ones(1, np.float32)):  # two kinds of batches: of ones, and of values
            self._predictor.predict(Batch(np.zeros(1, np.float32), np.array([0, 1]), slots, values), trusted=True)
        for row in (b"{}",) if self.reading.schema else _WARMING:
            with contextlib.suppress(DataError):  # a model may be trained to take no names
                self.margins(row, Form.ROW)
        with contextlib.suppress(DataError):
            self.margins(b"0 | 1:1" if self.reading.vw else b"0 1:1", Form.TEXT)


def load(path: str, opener: Opener, generation: int = 1, *, verify: bool = True) -> Loaded:
    """Open a model; with `verify`, after comparing every checksum in its file.

    The file may be replaced at any moment. What was checked and what was opened are the same file if it is still the
    same when all is done; if not, all is done again.
    """
    for _ in range(_TRIES):
        signature = Signature.of(path)
        if verify:
            file.read(path, verify=True)
        checksum = file.checksum(path)
        predictor = opener(path)
        if Signature.of(path) == signature:
            loaded = Loaded(predictor, generation, checksum, signature)
            loaded.warm_up()
            return loaded
    raise FileFormatError(f"{path}: was replaced {_TRIES} times while it was being opened")


def probability(margin: float) -> float:
    """The probability of one margin, in a fraction of the time that an array takes."""
    if margin < -_LARGE:  # where the exponential may overflow
        return float(probabilities(np.array([margin]))[0])
    return 1.0 / (1.0 + float(np.exp(-margin)))
