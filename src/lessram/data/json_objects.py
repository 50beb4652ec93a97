"""Lines of JSON by a decoder of all JSON, as a block of cells: what the kernel leaves to it, right or wrong.

It reads every line, and is the only one with words for those that are bad. The kernel must give the same rows wherever
it gives any, and is tested against this.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from lessram.data.cells import CellBlock, Unfit, number_of
from lessram.data.lines import show
from lessram.data.source import Chunk

_PIECE = 1 << 14
_PLAIN_NAMES = {str, type(None)}
_PLAIN_NUMBERS = {int, float, bool, type(None)}

UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What the decoder raises for a line that is no JSON."""


def lines_from(chunk: Chunk, start: int, most: int) -> tuple[list[bytes], list[int]]:
    """Up to `most` lines that are not blank, and where each begins; then the end of the last."""
    lines: list[bytes] = []
    starts: list[int] = []
    text, base, position = b"", start, 0
    while base + position < chunk.size and len(lines) < most:
        end = text.find(b"\n", position)
        if end < 0 and base + len(text) < chunk.size:  # the line is not whole: take more of the text
            size = max(_PIECE, 2 * (len(text) - position))
            base, position = base + position, 0
            text = chunk.text[base : min(base + size, chunk.size)].tobytes()
            continue
        end = len(text) if end < 0 else end
        line = text[position:end]
        if line and not line.isspace():
            lines.append(line)
            starts.append(base + position)
        position = end + 1
    return lines, [*starts, min(base + position, chunk.size)]


def flatten(row: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """The fields of an object and of the objects in it, by their paths.

    >>> flatten({"click": 1, "user": {"age": 30}})
    {'click': 1, 'user.age': 30}
    """
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


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


class JsonObjects:
    """Puts lines into a block of cells."""

    def __init__(self, block: CellBlock) -> None:
        schema = block.schema
        self._block = block
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

    def put(self, lines: list[bytes]) -> None:
        """Begin a new block with these lines as its rows, at most as many as a block has."""
        self._block.start()
        rows = self._decode(lines)
        if rows and self._columns:
            columns = zip(*map(self._fields, rows), strict=True)
            flats: dict[str, list[dict[str, Any]]] = {}
            for (i, _, path), values in zip(self._columns, columns, strict=False):
                self._put(i, self._column(values, path, rows, flats))

    def _decode(self, lines: list[bytes]) -> list[Any]:
        """The objects of the lines; an empty one, and a message, for those that are none."""
        try:
            return [self._decoder.decode(line) for line in lines]
        except UNDECODABLE:
            rows = []
        for i, line in enumerate(lines):
            try:
                rows.append(self._decoder.decode(line))
            except UNDECODABLE as error:
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
            flats[top] = [flatten(found) if isinstance(found, dict) else {} for found in objects]
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
