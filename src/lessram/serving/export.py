"""A model's coefficients for other programs.

    safetensors   integers of the grid and its step (floats where the weights are on no grid):
                  margin = sum of weights[slot] * step * value / scale, + intercept
    parquet, csv  slot, weight of all coefficients that are not 0, as they multiply raw values; slot -1 is the intercept
    vw            the text that Vowpal Wabbit writes with --readable_model; `lessram import-vw` reads it back

All are written piece by piece, whole or not at all; safetensors alone holds its tensor, 1 to 4 bytes a slot.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from lessram.data.formats import Reading
from lessram.errors import SpecError
from lessram.model.file import replaced, replacing
from lessram.model.model import Model
from lessram.model.vw_header import MOST_BITS
from lessram.model.vw_model import CONSTANT
from lessram.numerics.fixed_point import FixedPoint
from lessram.serving.rounding import PIECE
from lessram.serving.served import Served

ENDINGS = {"safetensors": ".safetensors", "parquet": ".parquet", "csv": ".csv", "vw": ".txt"}
FORMATS = tuple(ENDINGS)
INTERCEPT_SLOT = -1

_VW_HEADER = """Version 9.11.9
Id lessram
Min label:-50
Max label:50
bits:{bits}
lda:0
0 ngram:
0 skip:
options:{options}
Checksum: 0
:0
"""


class Exported(NamedTuple):
    """What was written."""

    format: str
    weights: int
    """Coefficients that are not 0, the intercept not counted."""
    note: str = ""
    """What a user should know."""


def export(model: Model | Served, path: str | os.PathLike[str], format: str | None = None) -> Exported:
    """Write a model's coefficients; the format is told by the ending of the file, unless it is given."""
    chosen = format or _format_of(path)
    writers = {"safetensors": _write_tensors, "parquet": _write_parquet, "csv": _write_csv, "vw": _write_vw}
    if chosen not in writers:
        raise SpecError(f"format must be one of {', '.join(FORMATS)}, got {chosen!r}")
    return writers[chosen](_Coefficients(model), Path(path))


def _format_of(path: str | os.PathLike[str]) -> str:
    ending = Path(path).suffix.lower()
    for name, known in ENDINGS.items():
        if ending == known:
            return name
    raise SpecError(f"{os.fspath(path)}: expected a name that ends in {', '.join(ENDINGS.values())}, or a format")


class _Coefficients:
    """The coefficients of a model of either kind, by pieces."""

    def __init__(self, model: Model | Served) -> None:
        self.model = model
        self.slots = model.spec.slots

    def weights(self, start: int, stop: int) -> NDArray[np.float64]:
        """As they multiply scaled values."""
        if isinstance(self.model, Model):
            return self.model.weights(start, stop)
        return self.model.store.decode(start, stop).astype(np.float64) * self.model.store.grid.step

    def pieces(self) -> Iterator[tuple[int, NDArray[np.float64]]]:
        for start in range(0, self.slots, PIECE):
            yield start, self.weights(start, min(start + PIECE, self.slots))

    def nonzero(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """Slots and coefficients, as these multiply raw values."""
        for start, weights in self.pieces():
            used = np.flatnonzero(weights)
            yield used + start, weights[used] / self.model.scale

    def grid(self) -> FixedPoint | None:
        """The grid that all weights are on, if there is one."""
        if isinstance(self.model, Served):
            return self.model.store.grid
        grid = self.model.spec.fixed_point
        if grid is None:
            return None
        on_it = all((weights == np.rint(weights / grid.step) * grid.step).all() for _, weights in self.pieces())
        return grid if on_it else None


def _write_tensors(coefficients: _Coefficients, path: Path) -> Exported:
    model, grid = coefficients.model, coefficients.grid()
    step = grid.step if grid else 1.0
    weights = np.empty(coefficients.slots, grid.dtype if grid else np.float32)
    for start, piece in coefficients.pieces():
        weights[start : start + len(piece)] = piece / step
    numbers = {"step": step, "scale": model.scale, "intercept": model.intercept}
    tensors = {"weights": weights, **{name: np.array([number]) for name, number in numbers.items()}}
    about = {
        "formula": "margin = sum(weights[slot] * step * value / scale) + intercept",
        "loss": model.spec.loss,
        "reader": msgspec.json.encode(model.reader).decode(),
    }
    with replaced(path) as partial:
        save_file(tensors, partial, metadata=about)
    return Exported("safetensors", int(np.count_nonzero(weights)))


def _write_parquet(coefficients: _Coefficients, path: Path) -> Exported:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise SpecError("Parquet needs pyarrow: pip install 'lessram[arrow]'") from None
    schema = pa.schema([("slot", pa.int64()), ("weight", pa.float64())])
    number = 0
    with replaced(path) as partial, pq.ParquetWriter(partial, schema) as writer:
        writer.write_table(pa.table([[INTERCEPT_SLOT], [coefficients.model.intercept]], schema=schema))
        for slots, weights in coefficients.nonzero():
            writer.write_table(pa.table([slots, weights], schema=schema))
            number += len(slots)
    return Exported("parquet", number)


def _write_csv(coefficients: _Coefficients, path: Path) -> Exported:
    number = 0
    with replacing(path) as file:
        file.write(f"slot,weight\n{INTERCEPT_SLOT},{coefficients.model.intercept!r}\n")
        for slots, weights in coefficients.nonzero():
            file.writelines(f"{slot},{weight!r}\n" for slot, weight in _pairs(slots, weights))
            number += len(slots)
    return Exported("csv", number)


def _write_vw(coefficients: _Coefficients, path: Path) -> Exported:
    spec = coefficients.model.spec
    bits = spec.slots.bit_length() - 1
    if spec.slots != 1 << bits or bits > MOST_BITS:
        raise SpecError(f"Vowpal Wabbit's tables have 2^b slots, b at most {MOST_BITS}, this model has {spec.slots:,}")
    options = _vw_options(coefficients.model)
    constant = CONSTANT & (spec.slots - 1) if spec.intercept else None
    number, note = 0, ""
    with replacing(path) as file:
        file.write(_VW_HEADER.format(bits=bits, options=options))
        if constant is not None:
            file.write(f"{constant}:{coefficients.model.intercept!r}\n")
        for slots, weights in coefficients.nonzero():
            number += len(slots)
            for slot, weight in _pairs(slots, weights):
                if slot == constant:
                    note = f"slot {slot} is that of Vowpal Wabbit's constant: its weight {weight:g} was left out"
                else:
                    file.write(f"{slot}:{weight!r}\n")
    return Exported("vw", number, note)


def _vw_options(model: Model | Served) -> str:
    """The options that say how features become slots."""
    reading = msgspec.convert(model.reader, Reading)
    if reading.schema is not None or (reading.vw is None and reading.hash == "all"):
        raise SpecError(
            f"the model was trained on {reading.kind}, whose hashes Vowpal Wabbit does not have: "
            "export to csv, parquet or safetensors"
        )
    words = [] if model.spec.intercept else ["--noconstant"]
    if (vw := reading.vw) is not None:
        words += ["--hash all"] if vw.hash == "all" else []
        words += [f"--hash_seed {vw.seed}"] if vw.seed else []
        words += [f"--ignore {letter}" for letter in vw.ignore] + [f"--keep {letter}" for letter in vw.keep]
        words += [f"--{'quadratic' if len(letters) == 2 else 'cubic'} {letters}" for letters in vw.interactions]
    return "".join(f" {word}" for word in words)


def _pairs(slots: NDArray[Any], weights: NDArray[Any]) -> Iterator[tuple[int, float]]:
    return zip(slots.tolist(), weights.tolist(), strict=True)
