"""JSON lines: one object a line, its fields the columns of a table.

    field  a string, a number, true, false or null; missing is the same as null. `user.age` is the field `age` of the
           object in the field `user`; a field that is really called so comes first
    category  strings as they are, true and false, whole numbers without a point: as CSV and Arrow would write them
    number    a number, true = 1, false = 0, or a string that is a number

What fields become is said in `schema.py`. A line that is no JSON object, a list or an object where a value is
expected, a label that is none: each makes a bad line.

A kernel reads nearly all lines: any order of keys, blanks, escapes, UTF-8, objects and lists within each other. The
decoder of `json_objects.py`, some ten times slower, reads bad lines and those with one of these: a key that occurs
twice; a number that is too large, or closer to the middle between two float32 than 19 digits tell; a number that is a
category and written as Python would not; a string with escapes as a number; more than 32 objects within each other.
"""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import numpy as np

from lessram.data.cells import BLOCK, CellBlock, assemble, numbers_among
from lessram.data.column_scale import ROWS as SAMPLE
from lessram.data.column_scale import with_scales
from lessram.data.json_kernel import UNUSUAL, Line, parse_objects
from lessram.data.json_keys import make_keys
from lessram.data.json_objects import UNDECODABLE, JsonObjects, flatten, lines_from
from lessram.data.lines import LineParser
from lessram.data.rows import DONE, ParsedPart, Progress
from lessram.data.schema import Kind, Schema, make_schema
from lessram.data.source import Chunk, Place
from lessram.data.tokens import MARGIN
from lessram.errors import DataError


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
    for line in lines_from(chunk, 0, SAMPLE)[0]:
        try:
            rows.append(flatten(decoder.decode(line)))
        except UNDECODABLE:
            continue  # a bad line; it will be reported when it is parsed
    return rows


class JsonParser(LineParser):
    """Parses chunks of JSON lines for a table of `slots` slots. One for each thread.

    >>> from lessram.data.lines import chunk_of
    >>> chunk = chunk_of(b'{"click": 1, "site": "rome", "price": 0.5}\\n{"click": 0, "price": 2}\\n')
    >>> part = JsonParser(guess_schema(chunk, label="click"), 2**18).parse(chunk)
    >>> part.batch.labels, part.batch.indptr, part.batch.values
    (array([1., 0.], dtype=float32), array([0, 2, 3]), array([1. , 0.5, 2. ], dtype=float32))
    """

    def __init__(self, schema: Schema, slots: int, *, labels: str = "binary", keep_unlabelled: bool = False) -> None:
        self._block = CellBlock(schema, slots, labels=labels, keep_unlabelled=keep_unlabelled)
        self._objects = JsonObjects(self._block)
        used = [(i, name) for i, name in enumerate(schema.columns) if schema.kinds[i] != "ignored"]
        self._keys = make_keys(used)
        self._line = Line.new(len(schema.columns), self._keys.node_count, 0)
        self._most = 1  # lines that are decoded at once
        self._starts, self._ahead = list[int](), dict[int, int]()  # the lines that are: where they begin; their rows
        self._message = ""
        super().__init__(self._block.room)

    def parse(self, chunk: Chunk, start: Place | None = None, *, tolerate: int = 0) -> ParsedPart:
        """As every parser of lines."""
        if len(self._line.decoded) < chunk.size + MARGIN:
            room = np.empty((2, chunk.size + MARGIN), np.uint8)
            self._line = self._line._replace(decoded=room[0], tokens=room[1])
        self._most, self._ahead = 1, {}  # whatever came before, this chunk is parsed in the same steps
        return super().parse(chunk, start, tolerate=tolerate)

    def _step(self, chunk: Chunk, progress: Progress) -> Progress:
        """Run the kernel; lines that it leaves alone are decoded: one, and more where many of them come together."""
        while True:
            if progress.position not in self._ahead:
                before, progress = progress.rows, self._run_kernel(chunk, progress)
                if progress.status != UNUSUAL:
                    return progress
                few = progress.rows - before < self._most
                self._most = min(2 * self._most, BLOCK) if few else max(self._most // 2, 1)
                self._decode(chunk, progress.position)
            progress = self._assemble(progress)
            if progress.status != DONE:
                return progress

    def _run_kernel(self, chunk: Chunk, progress: Progress) -> Progress:
        room, layout, self._message = self._room, self._block.layout, ""
        return Progress(
            *parse_objects(
                chunk.text,
                chunk.size,
                room.marks,
                self._keys,
                self._line,
                layout,
                room.products,
                room.rows,
                room.names,
                progress,
            )
        )

    def _decode(self, chunk: Chunk, position: int) -> None:
        """Decode the next lines into the block."""
        lines, self._starts = lines_from(chunk, position, self._most)
        self._ahead = {start: row for row, start in enumerate(self._starts[:-1])}
        self._objects.put(lines)

    def _assemble(self, progress: Progress) -> Progress:
        """Make rows of the lines that are decoded."""
        block, room = self._block, self._room
        made = progress._replace(position=self._ahead[progress.position], status=DONE)
        made = Progress(*assemble(len(self._ahead), block.layout, block.cells, room.products, room.rows, made))
        self._message = block.describe(made) if made.status != DONE else ""
        return made._replace(position=self._starts[made.position])

    def _describe(self, chunk: Chunk, progress: Progress) -> str:
        return self._message or self._block.describe(progress)
