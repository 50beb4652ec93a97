"""JSON lines: one object a line, its fields the columns of a table.

    field  a string, a number, true, false or null; missing is the same as null. `user.age` is the field `age` of the
           object in the field `user`; a field that is really called so comes first
    category  strings as they are, true and false, whole numbers without a point: as CSV and Arrow would write them
    number    a number, true = 1, false = 0, or a string that is a number

What fields become is said in `schema.py`. A line that is no JSON object, a list or an object where a value is
expected, a label that is none: each makes a bad line.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from lessram.data.cells import BLOCK, CellBlock, Unfit, number_of, numbers_among
from lessram.data.column_scale import ROWS as SAMPLE
from lessram.data.column_scale import with_scales
from lessram.data.lines import show
from lessram.data.rows import ParsedPart
from lessram.data.schema import Kind, Schema, make_schema
from lessram.data.source import Chunk, Place
from lessram.data.text import count_newlines
from lessram.errors import DataError


def _lines(chunk: Chunk, start: int, most: int) -> tuple[list[bytes], list[int], list[int]]:
    """Up to `most` lines that are not blank, where each begins, and its number; then the end of the last."""
    text = chunk.text[start : chunk.size].tobytes()
    number = chunk.start.line + int(count_newlines(chunk.text, start))
    lines: list[bytes] = []
    starts: list[int] = []
    numbers: list[int] = []
    position = 0
    while position < len(text) and len(lines) < most:
        end = text.find(b"\n", position)
        end = len(text) if end < 0 else end
        line = text[position:end]
        if line and not line.isspace():
            lines.append(line)
            starts.append(start + position)
            numbers.append(number)
        position, number = end + 1, number + 1
    return lines, [*starts, start + min(position, len(text))], [*numbers, number]


def _flatten(row: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """The fields of an object and of the objects in it, by their paths.

    >>> _flatten({"click": 1, "user": {"age": 30}})
    {'click': 1, 'user.age': 30}
    """
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def guess_schema(chunk: Chunk, *, scaled: bool = False, **choices: Any) -> Schema:
    """A schema for the lines that begin with this chunk. `choices` are those of `make_schema`.

    The columns are the fields of the first lines. One that is not said to be anything is numeric if all of its
    values are numbers, and categorical if not. `scaled`: with scales of numeric columns.
    """
    rows = _first_rows(chunk)
    if not rows:
        raise DataError("found no JSON object in the first lines, expected one a line", place=chunk.name)
    found = dict.fromkeys(itertools.chain.from_iterable(rows))
    objects = {path[:i] for path in found for i, letter in enumerate(path) if letter == "."}
    names = [path for path in found if path not in objects]  # an object that is null here has fields there

    def values(name: str) -> list[Any]:
        return [row[name] for row in rows if row.get(name) is not None]

    def guess(i: int) -> Kind:
        kinds = set(map(type, values(names[i])))
        return "numeric" if kinds and kinds <= {int, float} else "categorical"

    schema = make_schema(names, guess, **choices)
    if not scaled:
        return schema
    numeric = [name for name, kind in zip(schema.columns, schema.kinds, strict=True) if kind == "numeric"]
    return with_scales(schema, {name: numbers_among(values(name)) for name in numeric})


def _first_rows(chunk: Chunk) -> list[dict[str, Any]]:
    """The fields of the first lines, by their paths."""
    rows = []
    decoder = msgspec.json.Decoder(dict[str, Any])
    for line in _lines(chunk, 0, SAMPLE)[0]:
        try:
            rows.append(_flatten(decoder.decode(line)))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue  # a bad line; it will be reported when it is parsed
    return rows


def _category(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value).removesuffix(".0")
    raise Unfit(type(value).__name__)


def _strings(names: list[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of strings, one behind the other, and where each begins."""
    joined = "".join(names)
    lengths = map(len, names) if joined.isascii() else (len(name.encode()) for name in names)
    offsets = np.zeros(len(names) + 1, np.int64)
    np.cumsum(np.fromiter(lengths, np.int64, len(names)), out=offsets[1:])
    return np.frombuffer(bytearray(joined.encode()), np.uint8), offsets


_PLAIN_NAMES = {str, type(None)}
_PLAIN_NUMBERS = {int, float, bool, type(None)}


class JsonParser:
    """Parses chunks of JSON lines for a table of `slots` slots. One for each thread.

    >>> from lessram.data.lines import chunk_of
    >>> chunk = chunk_of(b'{"click": 1, "site": "rome", "price": 0.5}\\n{"click": 0, "price": 2}\\n')
    >>> part = JsonParser(guess_schema(chunk, label="click"), 2**18).parse(chunk)
    >>> part.batch.labels, part.batch.indptr, part.batch.values
    (array([1., 0.], dtype=float32), array([0, 2, 3]), array([1. , 0.5, 2. ], dtype=float32))
    """

    def __init__(self, schema: Schema, slots: int, *, labels: str = "binary", keep_unlabelled: bool = False) -> None:
        self._block = CellBlock(schema, slots, labels=labels, keep_unlabelled=keep_unlabelled)
        used = [(i, name) for i, name in enumerate(schema.columns) if schema.kinds[i] != "ignored"]
        paths = {name: name.split(".", 1) for _, name in used}
        tops = list(dict.fromkeys(itertools.chain.from_iterable([name, path[0]] for name, path in paths.items())))
        fields = {top: f"f{i}" for i, top in enumerate(tops)}
        names = {field: top for top, field in fields.items()}
        row = msgspec.defstruct("Row", [(field, Any, None) for field in names], rename=names)
        self._decoder = msgspec.json.Decoder(row)  # what has no column is skipped, not built
        self._columns = [(i, fields[name], (fields[paths[name][0]], paths[name][1:])) for i, name in used]
        # one getter for all, with one more field so that it always gives a tuple
        self._fields = operator.attrgetter(*(field for _, field, _ in self._columns), "__class__")

    def parse(self, chunk: Chunk, start: Place | None = None, *, tolerate: int = 0) -> ParsedPart:
        """Parse a chunk from its start, or from a place in it, up to its end or as far as one block of lines goes.

        Gives up behind the first bad line that is one more than `tolerate`. If the `stop` of what comes back is not
        the chunk's, call again with it as the start.
        """
        position = start.offset - chunk.start.offset if start else 0
        lines, starts, numbers = _lines(chunk, position, BLOCK)
        block, source, base = self._block, chunk.start.source, chunk.start.offset
        block.start()
        rows = self._decode(lines)
        if rows and self._columns:
            columns = zip(*map(self._fields, rows), strict=True)
            flats: dict[str, list[dict[str, Any]]] = {}
            for (i, _, path), values in zip(self._columns, columns, strict=False):
                self._put(i, self._column(values, path, rows, flats))

        def place_of(i: int) -> Place:
            return chunk.stop if starts[i] >= chunk.size else Place(source, base + starts[i], numbers[i])

        return block.finish(len(lines), 0, tolerate, chunk.name, place_of)

    def _decode(self, lines: list[bytes]) -> list[Any]:
        """The objects of the lines; an empty one, and a message, for those that are none."""
        try:
            return [self._decoder.decode(line) for line in lines]
        except (msgspec.MsgspecError, UnicodeDecodeError):
            rows = []
        for i, line in enumerate(lines):
            try:
                rows.append(self._decoder.decode(line))
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                self._block.put_broken(i, f"found {show(line.strip())}, expected a JSON object ({error})")
                rows.append(self._decoder.decode(b"{}"))
        return rows

    def _column(
        self,
        values: tuple[Any, ...],
        path: tuple[str, list[str]],
        rows: list[Any],
        flats: dict[str, list[dict[str, Any]]],
    ) -> Sequence[Any]:
        """The values of a column, those found in objects included. `flats`: the objects of each field, once flat."""
        top, below = path
        if not below:
            return values
        if top not in flats:
            objects = (getattr(row, top) for row in rows)
            flats[top] = [_flatten(found) if isinstance(found, dict) else {} for found in objects]
        pairs = zip(values, flats[top], strict=True)
        return [flat.get(below[0]) if value is None else value for value, flat in pairs]

    def _put(self, column: int, values: Sequence[Any]) -> None:
        block, kind = self._block, self._block.schema.kinds[column]
        kinds = set(map(type, values))
        block.put_present(column, True, len(values))
        if kind in ("categorical", "text"):
            plain = kinds <= _PLAIN_NAMES
            names = [value or "" for value in values] if plain else block.converted(column, values, _category, "")
            (block.put_names if kind == "categorical" else block.put_text)(column, *_strings(names))
            return
        try:  # None becomes NaN, an empty cell
            numbers = np.array(values, np.float64) if kinds <= _PLAIN_NUMBERS else None
        except OverflowError:  # a whole number of more than 308 digits
            numbers = None
        if numbers is None:
            numbers = np.array(block.converted(column, values, number_of, None), np.float64)
        block.put_numbers(column, numbers)
