"""Model: a spec, its table, and the few numbers beside the table. Knows how to become a file and back."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from lessram.errors import FileFormatError
from lessram.model import file
from lessram.model.spec import Spec
from lessram.tables.layout import (
    Table,
    allocate,
    nbytes_of,
    picked,
    shrunken_weights,
    stored_weights,
    table_from,
    tensors_of,
)

TRAINED = "trained"
_OPENING = "opening."
INTERCEPT, INTERCEPT_STATE, SQUARES, NONZEROS = range(4)
"""The scalars beside the table: the intercept, its rounds (or squared gradients), and for the scale of feature values
the sum of their squares and their number."""


class Kind(msgspec.Struct, frozen=True):
    """The one thing that every kind of model says of itself."""

    kind: str


Description = TypeVar("Description")


def described(raw: bytes, kind: str, form: type[Description], path: str | os.PathLike[str], other: str) -> Description:
    """What a model's file says of it, if it holds a model of this kind; `other` is what to say if not."""
    try:
        found = msgspec.json.decode(raw, type=Kind).kind
        if found != kind:
            raise FileFormatError(f"{os.fspath(path)}: found a {found} model, expected a {kind} one{other}")
        return msgspec.json.decode(raw, type=form)
    except msgspec.ValidationError as error:
        raise FileFormatError(f"{os.fspath(path)}: cannot be understood: {error}") from None


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What a trained model's file says besides its tensors."""

    kind: str
    spec: Spec
    examples: int
    reader: dict[str, Any]
    progress: dict[str, Any] | None


class Described(Protocol):
    """A model of any kind: its choices, and how features became its slots."""

    @property
    def spec(self) -> Spec: ...
    @property
    def reader(self) -> dict[str, Any]: ...


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
    opening: dict[str, NDArray[Any]] = field(default_factory=dict)
    """The first examples, while an automatic codebook waits to be designed from them."""

    @classmethod
    def new(cls, spec: Spec) -> Model:
        return cls(spec, allocate(spec.weights, spec.rates, spec.slots, spec.book))

    @property
    def table_bytes(self) -> int:
        """Bytes of the table alone."""
        return nbytes_of(self.table)

    @property
    def bits_per_slot(self) -> float:
        """Bits of the table alone, a slot."""
        return 8 * self.table_bytes / self.spec.slots

    @property
    def nbytes(self) -> int:
        """Bytes of everything that grows with the model or is kept beside it."""
        return self.table_bytes + self.scalars.nbytes + sum(map(_nbytes, (self.scores, self.opening)))

    @property
    def scale(self) -> float:
        """What feature values are divided by."""
        return float(np.sqrt(self.scalars[SQUARES] / self.scalars[NONZEROS])) if self.scalars[SQUARES] > 0 else 1.0

    @property
    def intercept(self) -> float:
        return float(self.scalars[INTERCEPT])

    def weights(self, start: int = 0, stop: int | None = None) -> NDArray[np.float64]:
        """The weights of slots start to stop, as they multiply feature values divided by the scale."""
        shrinkage = self.spec.shrinkage
        if shrinkage is None:
            return stored_weights(self.table, start, stop).astype(np.float64) * self.spec.step
        return shrunken_weights(self.table, shrinkage, start, stop).astype(np.float64) * self.spec.step

    def weights_at(self, slots: NDArray[np.integer]) -> NDArray[np.float64]:
        """The weights of these slots, in any order, as `weights` gives them."""
        return replace(self, table=picked(self.table, slots)).weights()

    def coefficients(self, start: int = 0, stop: int | None = None) -> NDArray[np.float64]:
        """The coefficients of slots start to stop, as they multiply raw feature values."""
        return self.weights(start, stop) / self.scale

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model; readers see the old file or the new one, never a part."""
        tensors: file.Tensors = {**tensors_of(self.table), "scalars": self.scalars, **self.scores}
        tensors |= {_OPENING + name: array for name, array in self.opening.items()}
        about = About(kind=TRAINED, spec=self.spec, examples=self.examples, reader=self.reader, progress=self.progress)
        file.write(path, tensors, about)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, verify: bool = True, writable: bool = False) -> Model:
        """Read a model. Its table is mapped from the file, read-only, unless `writable` asks for a copy."""
        tensors, raw = file.read(path, verify=verify)
        about = described(raw, TRAINED, About, path, " (lessram.Predictor opens served ones)")
        try:
            spec = about.spec
            table = table_from(tensors, spec.weights, spec.rates, spec.slots, writable=writable)
            scalars = np.array(tensors.pop("scalars"))
        except KeyError as error:
            raise FileFormatError(f"{os.fspath(path)}: cannot be understood: {error}") from None
        except ValueError as error:
            reason = f"damaged model file: its table does not fit its spec: {error}"
            raise FileFormatError(f"{os.fspath(path)}: {reason}") from None
        found = {name: np.array(tensor) for name, tensor in tensors.items()}
        opening = {name.removeprefix(_OPENING): found.pop(name) for name in list(found) if name.startswith(_OPENING)}
        return cls(spec, table, scalars, about.examples, about.reader, found, about.progress, opening)


def _nbytes(arrays: dict[str, NDArray[Any]]) -> int:
    return sum(array.nbytes for array in arrays.values())
