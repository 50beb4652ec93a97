"""Served: a model as it is deployed. Knows how to become a file and back; cannot learn."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from lessram.errors import FileFormatError
from lessram.model import file
from lessram.model.ledger import Ledger
from lessram.model.model import NONZEROS, SQUARES, Model, described
from lessram.model.spec import Spec
from lessram.numerics.fixed_point import FixedPoint
from lessram.serving.store import Parameters, Store

SERVED = "served"


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What a served model's file says besides its tensors."""

    kind: str
    spec: Spec
    grid: str
    store: Parameters
    intercept: float
    inverse_scale: float
    examples: int
    seen: int
    reader: dict[str, Any]
    metrics: dict[str, Any]


@dataclass(frozen=True)
class Served:
    """A linear model at rest, its coefficients rounded to a coarse grid."""

    store: Store
    spec: Spec
    """The choices behind the trained model."""
    intercept: float
    inverse_scale: float
    """What feature values are multiplied by."""
    examples: int
    """How many examples the trained model had learned from."""
    seen: int
    """How many slots the trained model had touched."""
    reader: dict[str, Any]
    """How features became slots: prediction must do the same."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """What was measured when it was made: any JSON."""

    @classmethod
    def of(cls, model: Model, store: Store, *, seen: int, metrics: dict[str, Any] | None = None) -> Served:
        """A trained model with its rounded and stored coefficients (`model.weights()` on the store's grid)."""
        scalars = model.scalars
        inverse = float(np.sqrt(scalars[NONZEROS] / scalars[SQUARES])) if scalars[SQUARES] > 0 else 1.0
        return cls(store, model.spec, model.intercept, inverse, model.examples, seen, dict(model.reader), metrics or {})

    @property
    def scale(self) -> float:
        """What feature values are divided by."""
        return 1.0 / self.inverse_scale

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file; readers see the old one or the new one, never a part."""
        about = About(
            kind=SERVED,
            spec=self.spec,
            grid=str(self.store.grid),
            store=self.store.parameters,
            intercept=self.intercept,
            inverse_scale=self.inverse_scale,
            examples=self.examples,
            seen=self.seen,
            reader=self.reader,
            metrics=self.metrics,
        )
        file.write(path, self.store.tensors, about)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, verify: bool = False) -> Served:
        """Map a file into memory, reading its header only; `verify` reads everything and compares checksums."""
        tensors, raw = file.read(path, verify=verify)
        name = os.fspath(path)
        about = described(raw, SERVED, About, path, " (see `lessram compress`)")
        try:
            store = Store.of(tensors, about.store, FixedPoint.parse(about.grid))
        except KeyError as error:
            raise FileFormatError(f"{name}: cannot be understood: {error}") from None
        except ValueError as error:
            raise FileFormatError(f"{name}: damaged model file: its tensors do not fit: {error}") from None
        return cls(
            store,
            about.spec,
            about.intercept,
            about.inverse_scale,
            about.examples,
            about.seen,
            about.reader,
            about.metrics,
        )

    def ledger(self, path: str | os.PathLike[str] | None = None) -> Ledger:
        """What it costs, under every denominator; nothing is decoded for it."""
        census, bits = self.store.census, 8 * self.store.nbytes
        largest = max(-census.smallest, census.largest) * self.store.grid.step
        return Ledger(
            kind=SERVED,
            spec=self.spec,
            examples=self.examples,
            slots=census.slots,
            seen=self.seen,
            nonzero=census.nonzero,
            bits_per_slot=self.store.bits_per_slot,
            bits_per_nonzero=bits / census.nonzero if census.nonzero else None,
            entropy_bits_per_slot=census.entropy,
            intercept=self.intercept,
            scale=self.scale,
            largest=largest,
            resident_bytes=self.store.resident_bytes,
            file_bytes=None if path is None else os.path.getsize(path),
        )
