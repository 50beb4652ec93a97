"""Bodies of requests to batches, by the model's own reading: the same slots as in training.

    a table         a row is a JSON object, column to cell, read by the reader of JSON lines
    numbered ids    {"features": {"name": number or string}} or {"slots": [...], "values": [...]}; a name that is all
                    digits is an id, as in svmlight text; a string is part of the name (`city=rome`), as in dicts
    Vowpal Wabbit   the same; an object among the features is a namespace: {"user": {"age": 30}}

Lines of text are those of the model's format: svmlight, Vowpal Wabbit, or JSON lines for tables.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from lessram.data.batch import Batch
from lessram.data.checks import without_zeros
from lessram.data.formats import Reading
from lessram.data.hashing import MARGIN, hash_dtype, hash_for_slots, hash_name
from lessram.data.jsonl import JsonParser
from lessram.data.lines import chunk_of
from lessram.data.matrix import Matrix, place_ids
from lessram.data.parsing import BadLine, RowBuffers, make_rules, slot_type
from lessram.data.pipeline import Parser
from lessram.data.rows import LARGEST
from lessram.data.schema import Schema
from lessram.data.svmlight import parse as parse_svmlight
from lessram.data.vw import VwOptions, VwParser
from lessram.errors import DataError
from lessram.jit import kernel

_PREDICTING: dict[str, Any] = {"labels": "real", "keep_unlabelled": True}  # labels may be anything, or missing


class Form(Enum):
    """What a body holds."""

    ROW = "one row as a JSON object"
    ROWS = "rows as a JSON array"
    JSON_LINES = "one JSON object a line"
    TEXT = "one row of text a line"


class RowReader(Protocol):
    """Reads bodies for one model. One for each thread: parsers have buffers of their own."""

    def batches(self, body: bytes, form: Form) -> Iterator[Batch]:
        """The rows of a body, in order; the arrays of a batch are valid until the next one is asked for."""


def row_reader(reading: Reading, slots: int) -> RowReader:
    """The reader of rows for a model that was trained to read this way.

    >>> [batch] = row_reader(Reading(), 1 << 20).batches(b'{"features": {"7": 0.5, "city": "rome"}}', Form.ROW)
    >>> batch.slots, batch.values
    (array([     7, 343230], dtype=uint32), array([0.5, 1. ], dtype=float32))
    """
    if reading.schema:
        return TableRows(reading.schema, slots)
    return NamespaceRows(reading.vw, slots) if reading.vw else NumberedRows(reading, slots)


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


class _FeatureRows:
    """Rows that hold features by name or slots by number."""

    def __init__(self, slots: int) -> None:
        self.slots = slots

    def batches(self, body: bytes, form: Form) -> Iterator[Batch]:
        if form is Form.TEXT:
            yield from self._text(body)
            return
        if form is Form.JSON_LINES:
            body = b"[%b]" % b",".join(line for line in body.split(b"\n") if line.strip())
        rows = [_decode(_ROW, body, _SHAPE)] if form is Form.ROW else _decode(_ROWS, body, f"an array of {_SHAPE}")
        if not rows:
            return
        first = 0
        for slotted, group in itertools.groupby(rows, lambda row: row.features is None):
            part = list(group)
            try:
                yield from [self._slotted(part)] if slotted else self._named([row.features or {} for row in part])
            except DataError as error:
                raise _placed(str(error), first, form) from None
            first += len(part)

    def _slotted(self, rows: list[Row]) -> Batch:
        lengths = [len(row.slots or ()) for row in rows]
        try:
            slots = np.array([*itertools.chain.from_iterable(row.slots or () for row in rows)], np.int64)
        except OverflowError:
            raise DataError(f"found a slot of more than 63 bits, expected 0 to {self.slots - 1}") from None
        if slots.size and (slots.min() < 0 or slots.max() >= self.slots):
            bad = int(np.argmax((slots < 0) | (slots >= self.slots)))
            row = int(np.searchsorted(_starts(lengths), bad, side="right")) - 1
            raise DataError(f"found slot {slots[bad]}, expected 0 to {self.slots - 1}", place=f"row {row}")
        fitting: NDArray[Any] = slots.astype(slot_type(self.slots))
        batch = Batch(_labels(rows), _starts(lengths), fitting)
        if all(row.values is None for row in rows):
            return batch
        each = (row.values or [1.0] * length for row, length in zip(rows, lengths, strict=True))
        numbers = np.array([*itertools.chain.from_iterable(each)], np.float64)
        values = np.empty(len(numbers), np.float32)
        _, zeros, strange = to_float32(numbers, values)
        if strange:
            bad = int(np.argmin(np.isfinite(values)))
            row = int(np.searchsorted(batch.indptr, bad, side="right")) - 1
            raise DataError(f"found {numbers[bad]} as a value, expected one that float32 can hold", place=f"row {row}")
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


class NumberedRows(_FeatureRows):
    """Rows for models of numbered ids; names among them are hashed as those of dicts are."""

    def __init__(self, reading: Reading, slots: int) -> None:
        super().__init__(slots)
        self._reading = reading
        self._rules = make_rules(slots, hash=reading.hash, hash_seed=reading.hash_seed, labels="real")
        self._seed = hash_dtype(hash_for_slots(slots))(reading.hash_seed % (1 << 32))
        self._buffers = RowBuffers(self._rules)

    def _text(self, body: bytes) -> Iterator[Batch]:
        parsed = parse_svmlight(chunk_of(body), self._buffers, self._rules)
        _refuse(parsed.reports, Form.TEXT)
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
        try:
            if not kinds <= _PLAIN or not self._rules.hashing:
                raise OverflowError
            ones, zeros, strange = to_float32(np.array(values, np.float64), numbers)
            slots = self._slots(names)
        except OverflowError:  # a number of more digits than any type has
            strange = 1
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


class NamespaceRows(_FeatureRows):
    """Rows for models of Vowpal Wabbit text: features by name are written as a line of it, and read as such."""

    def __init__(self, options: VwOptions, slots: int) -> None:
        super().__init__(slots)
        self._parser = VwParser(slots, options, **_PREDICTING)

    def _text(self, body: bytes) -> Iterator[Batch]:
        return _parsed(self._parser, body, Form.TEXT)

    def _named(self, rows: list[dict[str, Any]]) -> Iterator[Batch]:
        lines = [vw_line(row, f"row {number}") for number, row in enumerate(rows)]
        return _parsed(self._parser, "\n".join(lines).encode(), Form.ROWS)


_WORD = re.compile(r"[^\s|:\x00-\x1f]+")


def vw_line(row: dict[str, Any], place: str = "row 0") -> str:
    """A row as Vowpal Wabbit's text.

    >>> vw_line({"tall": 1, "user": {"age": 30.5, "city": "rome"}})
    '| tall:1 |user age:30.5 city=rome'
    """
    plain = {name: value for name, value in row.items() if not isinstance(value, dict)}
    spaces = {name: value for name, value in row.items() if isinstance(value, dict)}
    parts = ["|", *(_vw_feature(name, value, place) for name, value in plain.items())]
    for space, features in spaces.items():
        parts.append(f"|{_vw_word(space, place)}")
        parts += [_vw_feature(name, value, place) for name, value in features.items()]
    return " ".join(parts)


def _vw_feature(name: str, value: Any, place: str) -> str:
    if isinstance(value, str):
        return _vw_word(f"{name}={value}", place)
    if type(value) not in (int, float):
        found = msgspec.json.encode(value).decode()[:40]
        raise DataError(f"found {found} as the value of feature {name!r}, expected a number or a string", place=place)
    return f"{_vw_word(name, place)}:{value!r}"


def _vw_word(word: str, place: str) -> str:
    if not _WORD.fullmatch(word):
        raise DataError(f"found the name {word!r}, expected one without blanks, bars and colons", place=place)
    return word


class TableRows:
    """Rows for models of tables: JSON objects, column to cell, as the reader of JSON lines takes them."""

    def __init__(self, schema: Schema, slots: int) -> None:
        self._columns = schema.features
        self._parser = JsonParser(schema, slots, **_PREDICTING)

    def batches(self, body: bytes, form: Form) -> Iterator[Batch]:
        if form is Form.TEXT:
            raise DataError("found text, expected JSON: the model was trained on a table, a row is column to cell")
        if form is Form.ROWS:
            body = b"\n".join(
                row.replace(b"\n", b" ") for row in map(bytes, _decode(_RAW_ROWS, body, "an array of objects"))
            )
        elif form is Form.ROW:
            body = body.replace(b"\n", b" ")
        lines = [line for line in body.split(b"\n") if line.strip()]
        first = 0
        for batch in _parsed(self._parser, body, form):
            for row in np.flatnonzero(np.diff(batch.indptr) == 0):
                self._check_known(lines[first + int(row)], first + int(row), form)
            yield batch
            first += batch.rows

    def _check_known(self, line: bytes, row: int, form: Form) -> None:
        """A row without a feature may have empty cells, but not only columns that the model does not know."""
        names = msgspec.json.decode(line, type=dict[str, Any])
        if names and not any(column in names or column.partition(".")[0] in names for column in self._columns):
            shown = ", ".join(self._columns[:8]) + (", ..." if len(self._columns) > 8 else "")
            message = f"found none of the model's columns among {', '.join(names)[:80]}; expected {shown}"
            raise _placed(f"row {row}: {message}", 0, form)


_RAW_ROWS = msgspec.json.Decoder(list[msgspec.Raw])


def _parsed(parser: Parser, body: bytes, form: Form) -> Iterator[Batch]:
    chunk = chunk_of(body)
    place = None
    while place != chunk.stop:
        part = parser.parse(chunk, place)
        _refuse(part.reports, form)
        place = part.stop
        yield part.batch


def _refuse(reports: list[BadLine], form: Form) -> None:
    if reports:
        line = int(reports[0].place.rpartition(":")[2])
        raise _placed(f"row {line - 1}: {reports[0].message}", 0, form)


_PLACE = re.compile(r"row (\d+)(?:, |: )")


def _placed(message: str, first: int, form: Form) -> DataError:
    """The error with its place as the sender knows it: which line, which row of the array, or the only one."""
    match = _PLACE.match(message)
    if match is None or form is Form.ROW:
        return DataError(message[match.end() :] if match else message)
    number, rest = int(match[1]) + first, message[match.end() :]
    return DataError(rest, place=f"row {number}" if form is Form.ROWS else f"line {number + 1}")


def _decode(decoder: Any, body: bytes, expected: str) -> Any:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(f"found JSON that will not do ({error}), expected {expected}") from None


def _is_id(name: str) -> bool:
    return name.isdecimal() and name.isascii()


def _labels(rows: list[Any]) -> NDArray[np.float32]:
    return np.zeros(len(rows), np.float32)


def _starts(lengths: Iterable[int]) -> NDArray[np.int64]:
    return np.fromiter(itertools.accumulate(lengths, initial=0), np.int64)
