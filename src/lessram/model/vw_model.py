"""A model that Vowpal Wabbit wrote as text (`--readable_model`) becomes one of lessram's.

Slots are Vowpal Wabbit's own, so the weights move over one by one, each rounded at random to a gridpoint next to it
(section 3): unbiased, and a pure function of seed and slot. Its constant becomes the intercept, which lives outside
the table in float64 and is not rounded. What the file says about rates is left behind: those start fresh.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from lessram.data.formats import Reading
from lessram.data.source import ChunkReader, TextBuffer, expand
from lessram.errors import FileFormatError, SpecError
from lessram.model.model import INTERCEPT, Model
from lessram.model.spec import Spec
from lessram.model.vw_header import WEIGHT_LINE, Lines, VwHeader, read_header
from lessram.numerics.random import GOLDEN, finalise, hash_seed
from lessram.tables.layout import put_weights

CONSTANT = 11650396
"""The hash that Vowpal Wabbit gives to its constant feature."""

_BLOCK = 1 << 16  # weights that are rounded and stored together


class Imported(NamedTuple):
    """A model, and what became of the weights on the way."""

    model: Model
    weights: int
    """How many weights the file has, the constant included."""
    clipped: int
    """How many of them lay beyond the range of the grid and were moved to its end."""
    largest: float
    """The largest absolute weight in the file, the constant excluded."""


class _Weights(NamedTuple):
    slots: NDArray[np.int64]
    values: NDArray[np.float64]


def import_vw(path: str | os.PathLike[str], *, clip: bool = False, **choices: object) -> Imported:
    """Read a readable Vowpal Wabbit model. `choices` are those of `Spec`; slots and intercept the file decides.

    Weights beyond the range of the grid are an error, unless `clip` moves them to its ends.
    """
    name = os.fspath(path)
    lines = _lines(name)
    header, first = read_header(lines, name)
    fixed = {"slots": 1 << header.bits, "intercept": header.constant, "scale": "none"}
    for choice in fixed.keys() & choices.keys():
        raise SpecError(f"{choice} cannot be chosen for an imported model: it is {fixed[choice]!r} there")
    model = Model.new(Spec(**choices, **fixed))  # type: ignore[arg-type]
    model.reader = msgspec.to_builtins(Reading(vw=header.reading))
    rest = itertools.chain([] if first is None else [first], lines)
    number, clipped, largest = 0, 0, 0.0
    for read in _blocks(rest, header):
        beyond, size = _store(model, read, header)
        number, clipped, largest = number + len(read.slots), clipped + beyond, max(largest, size)
    if clipped and not clip:
        raise SpecError(
            f"{name}: found {clipped} of {number} weights beyond {model.spec.weights}'s range of "
            f"{_range(model.spec):g}, the largest {largest:g}: choose --weights with more bits before the point, "
            "or float32, or --clip them"
        )
    return Imported(model, number, clipped, largest)


def _lines(name: str) -> Lines:
    """The lines of a file, compressed or not, each with its place."""
    reader, buffer = ChunkReader(expand([name])), TextBuffer()
    while (chunk := reader.read(buffer)) is not None:
        text = chunk.text[: chunk.size].tobytes().decode("utf-8", "replace")
        for number, line in enumerate(text.split("\n"), chunk.start.line):
            if line:
                yield f"{chunk.name}:{number}", line.rstrip("\r")


def _blocks(lines: Lines, header: VwHeader) -> Iterator[_Weights]:
    while block := list(itertools.islice(lines, _BLOCK)):
        pairs = [_weight(place, line, 1 << header.bits) for place, line in block]
        slots, values = zip(*pairs, strict=True)
        found = np.array(values)
        found = np.sign(found) * np.maximum(np.abs(found) - header.gravity, 0.0) * header.contraction
        yield _Weights(np.array(slots, np.int64), found)


def _weight(place: str, line: str, slots: int) -> tuple[int, float]:
    match = WEIGHT_LINE.fullmatch(line)
    try:
        slot, value = (int(match[1]), float(match[2])) if match else (-1, math.nan)
    except ValueError:
        slot, value = -1, math.nan
    if not (0 <= slot < slots and math.isfinite(value)):
        raise FileFormatError(
            f"{place}: found {line[:40]!r}, expected slot:weight with a slot below {slots} and a finite weight"
        )
    return slot, value


def _range(spec: Spec) -> float:
    if spec.weights == "float32":
        return spec.radius or float(np.finfo(np.float32).max)
    return spec.grid.units_within(spec.radius) * spec.step


def _store(model: Model, read: _Weights, header: VwHeader) -> tuple[int, float]:
    """Put weights into the table; returns how many lay beyond its range, and the largest.

    The constant's weight stays in the table too: a feature may share its slot, and Vowpal Wabbit would use it.
    """
    spec, reach = model.spec, _range(model.spec)
    constant = header.constant & (read.slots == CONSTANT & (spec.slots - 1))
    if constant.any():
        model.scalars[INTERCEPT] = read.values[constant][-1]
    sizes = np.abs(read.values[~constant])
    kept = np.clip(read.values, -reach, reach)
    if spec.weights != "float32":
        kept = spec.grid.rounded(kept / spec.step, _uniform(read.slots, spec.seed))
    put_weights(model.table, read.slots, kept)
    return int(np.count_nonzero(sizes > reach)), float(sizes.max(initial=0.0))


def _uniform(slots: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
    """A uniform number in [0, 1) for each slot."""
    words = finalise.py_func(np.uint64(hash_seed(seed)) + slots.astype(np.uint64) * GOLDEN)
    return (words >> np.uint64(11)) * 2.0**-53
