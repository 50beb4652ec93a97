"""Model: a spec, its table, and the few numbers beside the table. Knows how to become a file and back."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from lessram.errors import FileFormatError
from lessram.model import file
from lessram.model.spec import Spec
from lessram.tables.layout import Table, allocate, cell_type, table_of
from lessram.tables.memory import zeros

TRAINED = "trained"
INTERCEPT, INTERCEPT_STATE, SQUARES, NONZEROS = range(4)
"""The scalars beside the table: the intercept, its rounds (or squared gradients), and for the scale of feature values
the sum of their squares and their number."""


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What a trained model's file says besides its tensors."""

    kind: str
    spec: Spec
    examples: int
    reader: dict[str, Any]
    progress: dict[str, Any] | None


@dataclass
class Model:
    """A linear model in training or at rest."""

    spec: Spec
    table: Table
    scalars: NDArray[np.float64] = field(default_factory=lambda: np.zeros(4))
    examples: int = 0
    """How many examples it has learned from: the number of the next one."""
    reader: dict[str, Any] = field(default_factory=dict)
    """How features became slots (hash, its seed, ...): prediction must do the same."""
    scores: dict[str, NDArray[Any]] = field(default_factory=dict)
    """The state of progressive validation over the model's life."""
    progress: dict[str, Any] | None = None
    """In a checkpoint: where in which sources training stands."""

    @classmethod
    def new(cls, spec: Spec) -> Model:
        return cls(spec, allocate(spec.weights, spec.rates, spec.slots))

    @property
    def nbytes(self) -> int:
        """Bytes of everything that grows with the model or is kept beside it."""
        return self.table.cells.nbytes + self.scalars.nbytes + sum(array.nbytes for array in self.scores.values())

    @property
    def scale(self) -> float:
        """What feature values are divided by."""
        return float(np.sqrt(self.scalars[SQUARES] / self.scalars[NONZEROS])) if self.scalars[SQUARES] > 0 else 1.0

    @property
    def intercept(self) -> float:
        return float(self.scalars[INTERCEPT])

    def coefficients(self, start: int = 0, stop: int | None = None) -> NDArray[np.float64]:
        """The coefficients of slots start to stop, as they multiply raw feature values."""
        return self.table.cells["weight"][start:stop].astype(np.float64) * (self.spec.step / self.scale)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model; readers see the old file or the new one, never a part."""
        cells = self.table.cells
        tensors: file.Tensors = {
            "cells": cells.view(np.uint8).reshape(len(cells), -1),
            "scalars": self.scalars,
            **self.scores,
        }
        about = About(kind=TRAINED, spec=self.spec, examples=self.examples, reader=self.reader, progress=self.progress)
        file.write(path, tensors, about)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, verify: bool = True, writable: bool = False) -> Model:
        """Read a model. Its table is mapped from the file, read-only, unless `writable` asks for a copy."""
        tensors, raw = file.read(path, verify=verify)
        try:
            about = msgspec.json.decode(raw, type=About)
            if about.kind != TRAINED:
                raise FileFormatError(f"{os.fspath(path)}: found a {about.kind} model, expected a trained one")
            cell = cell_type(about.spec.weights, about.spec.rates)
            cells = tensors.pop("cells")
            if cells.shape != (about.spec.slots, cell.itemsize):
                raise FileFormatError(f"{os.fspath(path)}: damaged model file: its table does not fit its spec")
            scalars = np.array(tensors.pop("scalars"))
        except (msgspec.ValidationError, KeyError) as error:
            raise FileFormatError(f"{os.fspath(path)}: cannot be understood: {error}") from None
        flat_cells = cells.reshape(-1).view(cell)
        if writable:
            copy = zeros(about.spec.slots, cell)
            copy[:] = flat_cells
            flat_cells = copy
        scores = {name: np.array(tensor) for name, tensor in tensors.items()}
        table = table_of(about.spec.rates, flat_cells)
        return cls(about.spec, table, scalars, about.examples, about.reader, scores, about.progress)
