"""Rows of features by name, or of slots: of models of numbered ids, and what those of Vowpal Wabbit text share.

Names among numbered ids are hashed as those of dicts are (`data/matrix.py`), all of a body in one kernel. Usual JSON
never gets that far (`usual_rows.py`); what does is decoded here.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from lessram.data.batch import Batch
from lessram.data.checks import without_zeros
from lessram.data.formats import Reading
from lessram.data.hashing import MARGIN, hash_dtype, hash_for_slots, hash_name
from lessram.data.lines import chunk_of
from lessram.data.matrix import Matrix, place_ids
from lessram.data.parsing import RowBuffers, make_rules, slot_type
from lessram.data.rows import LARGEST
from lessram.data.svmlight import parse as parse_svmlight
from lessram.errors import DataError
from lessram.jit import kernel
from lessram.serving.server.forms import Form, decode, numbered_lines, placed, refuse
from lessram.serving.server.usual_rows import UsualRows


class Row(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A row of a model that was not trained on a table."""

    features: dict[str, Any] | None = None
    slots: list[int] | None = None
    values: list[float] | None = None

    def __post_init__(self) -> None:
        if (self.features is None) == (self.slots is None):
            raise ValueError('expected either "features" or "slots"')
        if self.values is not None and len(self.values) != len(self.slots or ()):
            raise ValueError(f"found {len(self.values)} values for {len(self.slots or ())} slots, expected as many")


_SHAPE = '{"features": {name: number or string}} or {"slots": [...], "values": [...]}'
_PLAIN = {int, float, bool, str}
_ROW, _ROWS = msgspec.json.Decoder(Row), msgspec.json.Decoder(list[Row])


class FeatureRows:
    """Rows that hold features by name or slots by number."""

    def __init__(self, slots: int, usual: UsualRows) -> None:
        self.slots = slots
        self._usual = usual

    def batches(self, body: bytes, form: Form) -> Iterator[Batch]:
        if form is Form.TEXT:
            yield from self._text(body)
            return
        lines = numbered_lines(body) if form is Form.JSON_LINES else None
        usual = self._usual.read(body if lines is None else _array_of(lines), many=form is not Form.ROW)
        if usual is not None and (lines is None or usual.rows == len(lines)):  # a comma between two rows ends no line
            yield usual
            return
        numbers, rows = _decoded_lines(lines) if lines is not None else (None, _decoded(body, form))
        first = 0
        for slotted, part in _alike(rows):
            try:
                yield from [self._slotted(part)] if slotted else self._named([row.features or {} for row in part])
            except DataError as error:
                raise placed(str(error), form, (numbers or range(len(rows)))[first:]) from None
            first += len(part)

    def _slotted(self, rows: list[Row]) -> Batch:
        starts = _starts(len(row.slots or ()) for row in rows)
        try:
            ids = np.array([*itertools.chain.from_iterable(row.slots or () for row in rows)], np.int64)
        except OverflowError:
            raise DataError(f"found a slot of more than 63 bits, expected 0 to {self.slots - 1}") from None
        slots: NDArray[Any] = np.empty(len(ids), slot_type(self.slots))
        bad = place_slots(ids, self.slots, slots)
        if bad < len(ids):
            message = f"found slot {ids[bad]}, expected 0 to {self.slots - 1}"
            raise DataError(message, place=f"row {_row_of(bad, starts)}")
        batch = Batch(_labels(rows), starts, slots)
        if all(row.values is None for row in rows):
            return batch
        each = (row.values or [1.0] * len(row.slots or ()) for row in rows)
        numbers = np.array([*itertools.chain.from_iterable(each)], np.float64)
        values = np.empty(len(numbers), np.float32)
        _, zeros, strange = to_float32(numbers, values)
        if strange:
            bad = int(np.argmin(np.isfinite(values)))
            message = f"found {numbers[bad]} as a value, expected one that float32 can hold"
            raise DataError(message, place=f"row {_row_of(bad, starts)}")
        batch = batch._replace(values=values)
        return without_zeros(batch) if zeros else batch

    def _named(self, rows: list[dict[str, Any]]) -> Iterator[Batch]:
        """The batches of rows of features by name; errors begin with `row N: `."""
        raise NotImplementedError

    def _text(self, body: bytes) -> Iterator[Batch]:
        """The batches of lines in the format that the model was trained on."""
        raise NotImplementedError


@kernel
def place_names(data, lengths, seed, slots, found):
    """Write the slots of names that lie one behind the other, with `MARGIN` bytes behind the last."""
    start = np.uint64(0)
    for i in range(np.uint64(lengths.shape[0])):
        length = np.uint64(lengths[i])
        found[i] = np.uint64(hash_name(data, start, length, seed)) % slots
        start += length


@kernel
def place_slots(ids, slots, found):
    """Write the ids as slots; which of them is the first that is none, or their number."""
    bad = np.int64(ids.shape[0])
    for k in range(np.int64(ids.shape[0])):
        bad = k if (ids[k] < 0 or ids[k] >= slots) and k < bad else bad
        found[k] = np.uint64(ids[k])
    return bad


@kernel
def to_float32(numbers, values):
    """Write the numbers as float32; how many of these are 1, are 0, are not finite."""
    ones, zeros, strange = np.int64(0), np.int64(0), np.int64(0)
    for k in range(np.uint64(numbers.shape[0])):
        value = np.float32(numbers[k])
        ones += value == np.float32(1)
        zeros += value == np.float32(0)
        strange += not (abs(value) <= LARGEST)
        values[k] = value
    return ones, zeros, strange


class NumberedRows(FeatureRows):
    """Rows for models of numbered ids; names among them are hashed as those of dicts are."""

    def __init__(self, reading: Reading, slots: int) -> None:
        self._reading = reading
        self._rules = make_rules(slots, hash=reading.hash, hash_seed=reading.hash_seed, labels="real")
        self._seed = hash_dtype(hash_for_slots(slots))(reading.hash_seed % (1 << 32))
        super().__init__(slots, UsualRows(self._rules, self._seed))
        self._buffers = RowBuffers(self._rules)

    def _text(self, body: bytes) -> Iterator[Batch]:
        parsed = parse_svmlight(chunk_of(body), self._buffers, self._rules)
        refuse(parsed.reports, Form.TEXT)
        yield parsed.batch

    def _named(self, rows: list[dict[str, Any]]) -> Iterator[Batch]:
        values = [*itertools.chain.from_iterable(row.values() for row in rows)]
        kinds = set(map(type, values))
        if str in kinds:
            items = itertools.chain.from_iterable(row.items() for row in rows)
            names = [f"{name}={value}" if type(value) is str else name for name, value in items]
            values = [1.0 if type(value) is str else value for value in values]
        else:
            names = [*itertools.chain.from_iterable(rows)]
        numbers = np.empty(len(values), np.float32)
        ones, zeros, strange = 0, 0, not (kinds <= _PLAIN and self._rules.hashing)
        try:
            if not strange:
                ones, zeros, strange = to_float32(np.array(values, np.float64), numbers)
                slots = self._slots(names)
        except OverflowError:  # a number of more digits than any type has
            strange = True
        if strange:
            yield from self._one_by_one(rows)
            return
        starts = _starts(map(len, rows))
        batch = Batch(_labels(rows), starts, slots, None if ones == len(values) else numbers)
        yield without_zeros(batch) if zeros else batch

    def _slots(self, names: list[str]) -> NDArray[Any]:
        """The slots of names: few calls for all of them, since most requests have but one row."""
        text = "".join(names)
        data = text.encode()
        lengths = map(len, names) if len(data) == len(text) else (len(name.encode()) for name in names)
        slots: NDArray[Any] = np.empty(len(names), slot_type(self.slots))
        place_names(
            np.frombuffer(bytearray(data + bytes(MARGIN)), np.uint8),
            np.fromiter(lengths, np.int64, len(names)),
            self._seed,
            self._rules.slots,
            slots,
        )
        if any(map(str.isdecimal, names)):
            ids = np.array([int(name) for name in names if _is_id(name)], np.uint64)
            found = np.empty(len(ids), slots.dtype)
            place_ids(ids, self._rules, found)
            slots[[_is_id(name) for name in names]] = found
        return slots

    def _one_by_one(self, rows: list[dict[str, Any]]) -> Iterator[Batch]:
        """The same, feature by feature, for a message that names the one that will not do."""
        numbered = [{int(name) if _is_id(name) else name: value for name, value in row.items()} for row in rows]
        return Matrix(numbered, self.slots, hash=self._reading.hash, hash_seed=self._reading.hash_seed).batches()


def _array_of(lines: list[tuple[int, bytes]]) -> bytes:
    return b"[%b]" % b",".join(line for _, line in lines)


def _decoded_lines(lines: list[tuple[int, bytes]]) -> tuple[list[int], list[Row]]:
    """The numbers and the rows of lines that hold one each."""
    rows = []
    for number, line in lines:
        try:
            rows.append(decode(_ROW, line, _SHAPE))
        except DataError as error:
            raise placed(f"row {number}: {error}", Form.JSON_LINES) from None
    return [number for number, _ in lines], rows


def _decoded(body: bytes, form: Form) -> list[Row]:
    return [decode(_ROW, body, _SHAPE)] if form is Form.ROW else decode(_ROWS, body, f"an array of {_SHAPE}")


def _alike(rows: list[Row]) -> Iterator[tuple[bool, list[Row]]]:
    """The rows in runs of those by slot and those by name."""
    if len(rows) == 1:
        yield rows[0].features is None, rows
        return
    for slotted, group in itertools.groupby(rows, lambda row: row.features is None):
        yield slotted, list(group)


def _row_of(feature: int, starts: NDArray[np.int64]) -> int:
    return int(np.searchsorted(starts, feature, side="right")) - 1


def _is_id(name: str) -> bool:
    return name.isdecimal() and name.isascii()


def _labels(rows: list[Any]) -> NDArray[np.float32]:
    return np.zeros(len(rows), np.float32)


def _starts(lengths: Iterable[int]) -> NDArray[np.int64]:
    return np.fromiter(itertools.accumulate(lengths, initial=0), np.int64)
