"""The coefficients of a served model: integers on a coarse grid, entropy-coded, looked up by slot where they lie.

group prefix code   consecutive slots are one symbol, common groups have short codewords    (groups, prefix)
ribbon              a string of bits that gives any group's codeword in one load            (ribbon, builder)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from lessram.errors import DataError
from lessram.model.ledger import entropy
from lessram.numerics.fixed_point import FixedPoint
from lessram.serving.encoder import build
from lessram.serving.escapes import EscapeCode, writer_of
from lessram.serving.group_code import settle
from lessram.serving.groups import MOST_VALUES, read_patterns, write_patterns
from lessram.serving.lookup import ESCAPED, EXCEPTED, Coded, Hot, Scratch, look_up, no_hot
from lessram.serving.patterns import plan_groups
from lessram.serving.pieces import Pieces, Survey, Values, survey
from lessram.serving.prefix import LIMIT, canonical, symbol_table
from lessram.serving.ribbon import PADDING, Ribbon

_TYPES = {
    "bits": "u1",
    "bases": "<u8",
    "anchors": "<u2",
    "lengths": "<u2",
    "patterns": "u1",
    "runs": "<u2",
    "values": "<i2",
    "exception_groups": "<u8",
    "exception_values": "<i2",
}
_GROUPS, _RUNS, _VALUES = range(3)  # rows of the tensor `lengths`


class Census(msgspec.Struct, frozen=True):
    """What is known of the values without decoding them."""

    slots: int
    nonzero: int
    smallest: int
    largest: int
    entropy: float
    """Bits a slot that an ideal code would need (section 4)."""


class Parameters(msgspec.Struct, frozen=True):
    """The numbers beside the tensors."""

    census: Census
    group_size: int
    group_shift: int
    segment_shift: int
    escape: int
    """The escape's place among the codewords of groups; -1 if there is none."""
    exception: int
    """The exception's; -1 if there is none."""
    raw_bits: int

    def __post_init__(self) -> None:
        shifts = self.group_shift >= 0 <= self.segment_shift and self.group_shift + self.segment_shift <= 32
        if not (1 <= self.group_size <= 256 and 1 <= self.raw_bits <= 16 and self.census.slots >= 1 and shifts):
            raise ValueError(f"the numbers of a store do not fit together: {msgspec.to_builtins(self)}")
        if min(self.escape, self.exception) < -1:
            raise ValueError(
                f"places of escape and exception must not be below -1, got {self.escape}, {self.exception}"
            )


@dataclass(frozen=True)
class Store:
    """Integers by slot.

    >>> store = encode(np.array([0, 0, 3, 0, 0, 0, -1, 0] * 500), grid=FixedPoint(2, 7))
    >>> store.lookup(np.array([2, 3, 3998], np.uint32)).tolist(), store.decode(0, 3).tolist()
    ([3, 0, -1], [0, 0, 3])
    """

    grid: FixedPoint
    parameters: Parameters
    tensors: dict[str, NDArray[Any]]
    """What a file holds."""
    coded: Coded
    """The same, with the tables of codewords written out: what kernels read."""

    @property
    def census(self) -> Census:
        return self.parameters.census

    @property
    def slots(self) -> int:
        return self.census.slots

    @property
    def nbytes(self) -> int:
        """Bytes of everything that is stored."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    @property
    def bits_per_slot(self) -> float:
        """Real bits a slot, directories and tables included."""
        return 8 * self.nbytes / self.slots

    @property
    def resident_bytes(self) -> int:
        """Bytes in memory once every slot was read: what is stored, and the tables of codewords written out."""
        return self.nbytes + self.coded.starts.nbytes + self.coded.patterns.nbytes

    def lookup(self, slots: NDArray[np.unsignedinteger], hot: Hot | None = None) -> NDArray[np.int32]:
        """The values of these slots, in units of the grid."""
        slots = np.ascontiguousarray(slots)
        if slots.dtype not in (np.uint32, np.uint64) or slots.ndim != 1:
            raise DataError(f"found slots as {slots.ndim}-d {slots.dtype}, expected a 1-d array of uint32 or uint64")
        if slots.size and int(slots.max()) >= self.slots:
            raise DataError(f"found slot {int(slots.max())}, expected slots below {self.slots}, the size of the table")
        units = np.empty(len(slots), np.int32)
        look_up(self.coded, hot or no_hot(), slots, Scratch.new(), units)
        return units

    def decode(self, start: int = 0, stop: int | None = None) -> NDArray[np.int32]:
        """The values of slots start to stop."""
        start, stop, _ = slice(start, stop).indices(self.slots)
        return self.lookup(np.arange(start, max(start, stop), dtype=np.uint64))

    @classmethod
    def of(cls, tensors: dict[str, NDArray[Any]], parameters: Parameters, grid: FixedPoint) -> Store:
        """The store behind the tensors of a file. Raises KeyError or ValueError where they do not fit."""
        tensors = {name: _typed(name, tensors[name]) for name in _TYPES}
        return cls(grid, parameters, tensors, _coded(tensors, parameters))


def encode(values: Values, *, grid: FixedPoint, threads: int = 1) -> Store:
    """The store of these values, in units of the grid: one array, or pieces of it in order.

    Pieces are gone through three times; those that can be had only once are gathered first.
    """
    pieces = Pieces(values, grid)
    found = survey(pieces)
    plan = plan_groups(found.sample, found.slots, grid.width)
    code = settle(pieces, plan.dictionary, plan.limit, grid.width)
    built = build(pieces, code, threads)
    parameters = Parameters(
        _census(found),
        int(plan.dictionary.shape.size),
        built.layout.group_shift,
        built.layout.segment_shift,
        code.escape,
        code.exception,
        grid.width,
    )
    tensors: dict[str, NDArray[Any]] = {
        "bits": built.bits,
        "bases": built.bases,
        "anchors": built.anchors,
        "lengths": np.stack([code.prefix.counts, code.escapes.run_counts, code.escapes.value_counts]).astype("<u2"),
        "patterns": write_patterns(code.dictionary, writer_of(code.escapes)),
        "runs": code.escapes.runs,
        "values": code.escapes.values,
        "exception_groups": built.exception_groups,
        "exception_values": built.exception_units,
    }
    return Store.of(tensors, parameters, grid)


def _census(found: Survey) -> Census:
    present = np.flatnonzero(found.counts) - (1 << 15)
    return Census(
        found.slots,
        found.slots - int(found.counts[1 << 15]),
        int(present[0]),
        int(present[-1]),
        entropy(found.counts[found.counts > 0]),
    )


def _typed(name: str, tensor: NDArray[Any]) -> NDArray[Any]:
    """A tensor as kernels take it: read-only, whether it lies in a file or not, so that they are compiled once."""
    if tensor.dtype != np.dtype(_TYPES[name]):
        raise ValueError(f"{name} of type {tensor.dtype}, expected {np.dtype(_TYPES[name])}")
    if not tensor.flags.aligned:
        tensor = tensor.copy()
    tensor = tensor.view()
    tensor.flags.writeable = False
    return tensor


def _coded(tensors: dict[str, NDArray[Any]], parameters: Parameters) -> Coded:
    lengths = tensors["lengths"].astype(np.int64)
    if lengths.shape != (3, LIMIT + 1):
        raise ValueError(f"lengths of shape {lengths.shape}, expected {(3, LIMIT + 1)}")
    escape_code = EscapeCode(
        parameters.group_size,
        lengths[_RUNS],
        tensors["runs"],
        lengths[_VALUES],
        tensors["values"],
        parameters.raw_bits,
    )
    escapes = escape_code.reader()
    groups = -(-parameters.census.slots // parameters.group_size)
    starts, count = _starts(lengths[_GROUPS], parameters)
    ribbon = _ribbon(tensors, parameters, groups)
    excepted = len(tensors["exception_groups"])
    if tensors["exception_values"].shape != (excepted * parameters.group_size,):
        raise ValueError(f"{len(tensors['exception_values'])} values of {excepted} groups beside the ribbon")
    return Coded(
        ribbon,
        np.uint64(parameters.group_size),
        np.uint64(-(-(1 << 63) // parameters.group_size)),
        np.uint64(parameters.group_shift),
        starts,
        np.uint64(len(starts) - 1),
        read_patterns(tensors["patterns"], count, escapes),
        escapes,
        np.uint64(canonical(lengths[_GROUPS]).lengths[parameters.escape]) if parameters.escape >= 0 else np.uint64(0),
        tensors["exception_groups"],
        tensors["exception_values"],
    )


def _starts(lengths: NDArray[np.int64], parameters: Parameters) -> tuple[NDArray[np.uint16], int]:
    """Where the pattern begins that each codeword stands for, and how many patterns there are."""
    prefix = canonical(lengths)
    special = np.zeros(len(prefix.lengths), np.uint16)
    for place, meaning in ((parameters.escape, ESCAPED), (parameters.exception, EXCEPTED)):
        if place >= len(special):
            raise ValueError(f"escape or exception at {place} of {len(special)} codewords")
        if place >= 0:
            special[place] = meaning
    count = int(np.count_nonzero(special == 0))
    if count * parameters.group_size > MOST_VALUES:
        raise ValueError(f"{count} patterns of {parameters.group_size} slots are too many")
    starts = np.where(special, special, (np.cumsum(special == 0) - 1) * parameters.group_size).astype(np.uint16)
    return starts[symbol_table(prefix)], count


def _ribbon(tensors: dict[str, NDArray[Any]], parameters: Parameters, groups: int) -> Ribbon:
    superblocks = -(-groups // (1 << parameters.group_shift))
    segments = -(-superblocks // (1 << parameters.segment_shift))
    if len(tensors["bases"]) != segments or len(tensors["anchors"]) != superblocks + segments:
        raise ValueError("the directory of columns has another size than the slots ask for")
    if len(tensors["bits"]) < PADDING:
        raise ValueError("the ribbon ends early")
    last = np.uint64(8 * (len(tensors["bits"]) - PADDING) + 7)
    return Ribbon(tensors["bits"], tensors["bases"], tensors["anchors"], np.uint64(parameters.segment_shift), last)
