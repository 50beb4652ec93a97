"""A model file of any kind, opened to predict with: as it was trained, or compressed for serving."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from lessram.data.batch import Batch
from lessram.learning.learner import Learner
from lessram.model import file
from lessram.model.model import Kind, Model
from lessram.model.spec import Spec
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
    if isinstance(model, Served):
        return Opened(model, Predictor(model), model.store.nbytes)
    return Opened(model, Learner(model), model.table_bytes)
