"""Lines of JSON by a decoder of all JSON: what the kernel leaves to it, right or wrong.

It reads every line, and alone has words for those that are bad. A good one it writes anew in the plainest form, every
cell a string under the name of its column, so that the same kernel makes the features of all lines.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from lessram.data.cells import Unfit, number_of, unfit_cell
from lessram.data.lines import show
from lessram.data.schema import Kind, Schema
from lessram.data.source import Chunk

_PIECE = 1 << 14
_INFINITE = (2 - 2.0**-24) * 2.0**127
"""From here on, numbers are infinite in float32."""

UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What the decoder raises for a line that is no JSON."""


def lines_from(chunk: Chunk, start: int) -> Iterator[tuple[int, bytes]]:
    """The lines from a position on that are not blank: where each begins, and its text."""
    text, base, position = b"", start, 0
    while base + position < chunk.size:
        end = text.find(b"\n", position)
        if end < 0 and base + len(text) < chunk.size:  # the line is not whole: take more of the text
            size = max(_PIECE, 2 * (len(text) - position))
            base, position = base + position, 0
            text = chunk.text[base : min(base + size, chunk.size)].tobytes()
            continue
        end = len(text) if end < 0 else end
        line = text[position:end]
        if line and not line.isspace():
            yield base + position, line
        position = end + 1


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


class BadRow(Exception):
    """What is wrong with a line, and what was expected."""


class JsonObjects:
    """Decodes lines one by one."""

    def __init__(self, schema: Schema, *, real_labels: bool) -> None:
        self._schema, self._real_labels = schema, real_labels
        used = [(i, name) for i, name in enumerate(schema.columns) if schema.kinds[i] != "ignored"]
        paths = {name: name.split(".", 1) for _, name in used}
        tops = list(dict.fromkeys(itertools.chain.from_iterable([name, path[0]] for name, path in paths.items())))
        fields = {top: f"f{i}" for i, top in enumerate(tops)}
        names = {field: top for top, field in fields.items()}
        row = msgspec.defstruct("Row", [(field, Any, None) for field in names], rename=names)
        self._encode = msgspec.json.Encoder().encode
        self._decoder = msgspec.json.Decoder(row)  # what has no column is skipped, not built
        self._columns = [(i, schema.kinds[i]) for i, _ in used]
        self._keys = [self._encode(name) + b":" for _, name in used]
        self._inside = [(k, fields[path[0]], path[1]) for k, path in enumerate(paths.values()) if len(path) > 1]
        # one getter for all, with one more field so that it always gives a tuple
        self._fields = operator.attrgetter(*(fields[name] for _, name in used), "__class__")

    def rewritten(self, line: bytes) -> bytes:
        """The line as the kernel reads it without fail; raises `BadRow`."""
        cells = zip(self._keys, self.cells(line), strict=True)
        present = [key + self._encode(str(cell)) for key, cell in cells if cell is not None]
        return b"{" + b",".join(present) + b"}\n"

    def cells(self, line: bytes) -> list[str | float | None]:
        """The cells of the columns that are not ignored: names, numbers, None for empty ones; raises `BadRow`."""
        try:
            row = self._decoder.decode(line)
        except UNDECODABLE as error:
            raise BadRow(f"found {show(line.strip())}, expected a JSON object ({error})") from None
        cells = list(self._fields(row)[:-1])
        flats: dict[str, dict[str, Any]] = {}
        for k, top, below in self._inside:
            if cells[k] is None:
                if top not in flats:
                    found = getattr(row, top)
                    flats[top] = flatten(found) if isinstance(found, dict) else {}
                cells[k] = flats[top].get(below)
        return self._checked(cells)

    def _checked(self, cells: list[Any]) -> list[str | float | None]:
        """The cells by the kinds of their columns. Of several that will not do, one that is of no use at all is named
        before one that is out of range."""
        made: list[str | float | None] = []
        unfit = wrong = ""
        for (column, kind), cell in zip(self._columns, cells, strict=True):
            value: str | float | None = None
            try:
                if cell is None or cell == "":
                    pass
                elif kind in ("categorical", "text"):
                    value = _category(cell)
                else:
                    value = number_of(cell)
                    if not self._fits(value, kind):
                        wrong = wrong or self._unfit(_shown(value), column)
            except Unfit as error:
                unfit = self._unfit(str(error), column)
            made.append(value)
        if unfit or wrong:
            raise BadRow(unfit or wrong)
        return made

    def _unfit(self, found: str, column: int) -> str:
        return unfit_cell(self._schema, column, found, real_labels=self._real_labels)

    def _fits(self, number: float, kind: Kind) -> bool:
        if not abs(number) < _INFINITE:
            return False
        if kind == "label":
            return self._real_labels or bool(np.float32(number) in (0, 1, -1))
        return kind != "weight" or bool(np.float32(number) >= 0)


def _shown(number: float) -> str:
    with np.errstate(over="ignore"):
        return f"{np.float32(number):g}"
