"""Predictions by a model of any kind: as it was trained, or compressed for serving; in memory, or in a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from lessram.data.batch import Batch
from lessram.errors import SpecError
from lessram.learning.learner import Learner
from lessram.model import file
from lessram.model.given import refused
from lessram.model.model import Kind, Model
from lessram.model.spec import Spec
from lessram.numerics.loss import Loss, probabilities
from lessram.serving.predictor import Predictor
from lessram.serving.served import SERVED, Served


class Opened(NamedTuple):
    """What commands need of a model to predict with it."""

    model: Model | Served
    predictor: Learner | Predictor
    table_bytes: int

    @property
    def spec(self) -> Spec:
        return self.model.spec

    @property
    def bits_per_slot(self) -> float:
        return 8 * self.table_bytes / self.spec.slots

    def predict(self, batch: Batch, *, trusted: bool = False) -> NDArray[np.float64]:
        """The margin of each row."""
        return self.predictor.predict(batch, trusted=trusted)


def kind_of(path: Path) -> str:
    """What kind of model a file holds; only its header is read."""
    return msgspec.json.decode(file.read(path, verify=False)[1], type=Kind).kind


def open_file(path: Path) -> Model | Served:
    """The model of a file, whichever kind it is."""
    return Served.load(path, verify=True) if kind_of(path) == SERVED else Model.load(path)


def open_model(path: Path) -> Opened:
    """Open a model file to predict with it."""
    model = open_file(path)
    size = model.store.nbytes if isinstance(model, Served) else model.table_bytes
    return Opened(model, _predictor(model), size)


def predict(
    model: str | os.PathLike[str] | Model | Learner | Served | Predictor, rows: Any, *, margins: bool = False
) -> NDArray[np.float64]:
    """What `lessram predict` prints: the probability of label 1 of each row, or its margin.

    `rows`: a path or several, a data frame or another table in memory, a matrix, a list of dicts. They are read as the
    model was trained to read its data: a table needs the columns that features were made of, in any order, and no
    label. Models of squared and hinge loss have margins only.

    >>> import pyarrow
    >>> from lessram import read_batches
    >>> table = pyarrow.table({"click": [1, 0] * 500, "site": ["rome", "oslo"] * 500})
    >>> reader = read_batches(table, slots=2**10, label="click")
    >>> learner = Learner(Spec(slots=2**10))
    >>> learner.model.reader = reader.reader
    >>> for batch, _ in reader:
    ...     _ = learner.learn(batch)
    >>> predict(learner, pyarrow.table({"site": ["oslo", "rome"]})).round(1).tolist()
    [0.0, 1.0]
    """
    chosen = model_of(model)
    predictor = model if isinstance(model, (Learner, Predictor)) else _predictor(chosen)
    found = predictor.predict(rows)
    return found if margins or chosen.spec.loss != Loss.logistic.name else probabilities(found)


def save(model: Model | Learner | Served | Predictor, path: str | os.PathLike[str]) -> None:
    """Write a model to a file, whole or not at all."""
    if isinstance(model, (str, os.PathLike)):
        raise SpecError(f"lessram.save takes a model, then a path, got {type(model).__name__} first")
    if not isinstance(path, (str, os.PathLike)):
        raise SpecError(f"path must be the path of a file, got {type(path).__name__}: lessram.save(model, path)")
    model_of(model).save(path)


def model_of(given: Model | Learner | Served | Predictor | str | os.PathLike[str]) -> Model | Served:
    """The model behind whatever has one: trained or compressed, in memory or in a file."""
    if isinstance(given, (str, os.PathLike)):
        return open_file(Path(given))
    found = given.model if isinstance(given, Learner) else given.served if isinstance(given, Predictor) else given
    if not isinstance(found, (Model, Served)):
        raise refused("model", given, "a Model, a Learner, a Predictor or the path of a model")
    return found


def _predictor(model: Model | Served) -> Learner | Predictor:
    return Predictor(model) if isinstance(model, Served) else Learner(model)
