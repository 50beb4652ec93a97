"""JSON lines: one object a line, its fields the columns of a table.

    field  a string, a number, true, false or null; missing is the same as null. `user.age` is the field `age` of the
           object in the field `user`; a field that is really called so comes first
    category  strings as they are, true and false, whole numbers without a point: as CSV and Arrow would write them
    number    a number, true = 1, false = 0, or a string that is a number

What fields become is said in `schema.py`. A line that is no JSON object, a list or an object where a value is
expected, a label that is none: each makes a bad line.

A kernel reads nearly all lines: any order of keys, blanks, escapes, UTF-8, objects and lists within each other. The
decoder of `json_objects.py`, some thirty times slower, reads bad lines and those with one of these: a key that occurs
twice; a number that is too large, or closer to the middle between two float32 than 19 digits tell; a label or weight of
-0; a number that is a category and written as Python would not; a number in a string with escapes; text that is not
UTF-8 in a field without a column; more than 32 objects and lists within each other.
"""

from __future__ import annotations

import bisect
import functools
import itertools
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from lessram.data.cells import numbers_among
from lessram.data.column_scale import ROWS as SAMPLE
from lessram.data.column_scale import with_scales
from lessram.data.json_kernel import UNUSUAL, Line, mark_text, parse_objects
from lessram.data.json_keys import make_keys
from lessram.data.json_objects import UNDECODABLE, BadRow, JsonObjects, flatten, lines_from
from lessram.data.lines import LineParser, chunk_of
from lessram.data.rows import DONE, TOO_LARGE, ParsedPart, Progress, Room
from lessram.data.scanning import room_for_marks
from lessram.data.schema import Kind, Schema, make_layout, make_schema
from lessram.data.source import Chunk, Place
from lessram.data.tokens import MARGIN
from lessram.errors import DataError

_SHOWN = 8
_TOGETHER = 1024
"""Lines that are rewritten at once, at most."""


def guess_schema(chunks: Iterable[Chunk], *, scaled: bool = False, **choices: Any) -> Schema:
    """A schema for the lines that begin with these chunks. `choices` are those of `make_schema`.

    The columns are the fields of the first lines. One that is not said to be anything is numeric if all of its
    values are numbers, and categorical if not. `scaled`: with scales of numeric columns. No more chunks are taken
    than it takes to have enough lines.
    """
    chunks = iter(chunks)
    first = next(chunks)
    rows = list(_first_rows(itertools.chain([first], chunks)))
    if not rows:
        raise DataError("found no JSON object in the first lines, expected one a line", place=first.name)
    found = dict.fromkeys(itertools.chain.from_iterable(rows))
    objects = {path[:i] for path in found for i, letter in enumerate(path) if letter == "."}
    names = [path for path in found if path not in objects]  # an object that is null here has fields there

    @functools.cache
    def values(name: str) -> list[Any]:
        return [row[name] for row in rows if row.get(name) is not None]

    def guess(i: int) -> Kind:
        kinds = set(map(type, values(names[i])))
        return "numeric" if kinds and kinds <= {int, float} else "categorical"

    schema = make_schema(names, guess, **choices)
    if not scaled:
        return schema
    return with_scales(schema, {name: numbers_among(values(name)) for name in schema.numeric})


def _first_rows(chunks: Iterable[Chunk]) -> Iterator[dict[str, Any]]:
    """The fields of the first lines, by their paths."""
    decoder = msgspec.json.Decoder(dict[str, Any])
    lines = (line for chunk in chunks for _, line in lines_from(chunk, 0))
    for line in itertools.islice(lines, SAMPLE):
        try:
            yield flatten(decoder.decode(line))
        except UNDECODABLE:
            continue  # a bad line; it will be reported when it is parsed


def check_columns(chunk: Chunk, schema: Schema) -> None:
    """Refuse lines that are not for a model: not one of its columns occurs in the first of them.

    A field may be missing from a line, so that no single column must occur; what never occurs is told at the end.
    """
    found: dict[str, Any] = {}
    for row in _first_rows([chunk]):
        if any(name in row for name in schema.features):
            return
        found |= row
    if found and schema.features:
        expected = f"expected some of {_shortened(schema.features)}"
        message = f"found none of the model's columns in the first rows but {_shortened(found)}, {expected}"
        raise DataError(message, place=chunk.name)


def _shortened(names: Collection[str]) -> str:
    shown = ", ".join(repr(name) for name in itertools.islice(names, _SHOWN))
    return shown if len(names) <= _SHOWN else f"{shown}, ..."


class JsonParser(LineParser):
    """Parses chunks of JSON lines for a table of `slots` slots. For one thread at a time.

    >>> from lessram.data.lines import chunk_of
    >>> chunk = chunk_of(b'{"click": 1, "site": "rome", "price": 0.5}\\n{"click": 0, "price": 2}\\n')
    >>> part = JsonParser(guess_schema([chunk], label="click"), 2**18).parse(chunk)
    >>> part.batch.labels, part.batch.indptr, part.batch.values
    (array([1., 0.], dtype=float32), array([0, 2, 3]), array([1. , 0.5, 2. ], dtype=float32))
    """

    def __init__(self, schema: Schema, slots: int, *, labels: str = "binary", keep_unlabelled: bool = False) -> None:
        self._layout, terms, groups = make_layout(schema, slots, labels=labels, keep_unlabelled=keep_unlabelled)
        self._objects = JsonObjects(schema, real_labels=self._layout.real_labels)
        used = [(i, name) for i, name in enumerate(schema.columns) if schema.kinds[i] != "ignored"]
        self._keys = make_keys(used)
        self._line = Line.new(len(schema.columns), self._keys.node_count)
        self._marked = False  # the chunk that is being parsed
        self._most = 1  # lines that are rewritten at once
        self._message = ""
        super().__init__(Room(self._layout.hashes.dtype, terms, groups))

    def parse(self, chunk: Chunk, start: Place | None = None, *, tolerate: int = 0) -> ParsedPart:
        """As every parser of lines."""
        self._marked, self._most = False, 1  # whatever came before, this chunk is parsed in the same steps
        return super().parse(chunk, start, tolerate=tolerate)._replace(met=self._line.met)

    def _step(self, chunk: Chunk, progress: Progress) -> Progress:
        """Run the kernel; lines that it leaves alone are rewritten: one, or more where many of them come together."""
        if not self._marked:
            mark_text(chunk.text, chunk.size, self._room.marks)
            self._marked = True
        while True:
            before, progress = progress.rows, self._run_kernel(chunk, self._room.marks, progress)
            if progress.status != UNUSUAL:
                return progress
            few = progress.rows - before < self._most
            self._most = min(2 * self._most, _TOGETHER) if few else max(self._most // 2, 1)
            progress = self._rewrite(chunk, progress)
            if progress.status != DONE:
                return progress

    def _run_kernel(self, chunk: Chunk, marks: NDArray[np.uint64], progress: Progress) -> Progress:
        if len(self._line.decoded) < chunk.size + MARGIN:
            scratch = np.empty((2, chunk.size + MARGIN), np.uint8)
            self._line = self._line._replace(decoded=scratch[0], tokens=scratch[1])
        room, keys, layout = self._room, self._keys, self._layout
        places = (chunk.text, chunk.size, marks, keys, self._line, layout)
        return Progress(*parse_objects(*places, room.products, room.rows, room.names, progress))

    def _rewrite(self, chunk: Chunk, progress: Progress) -> Progress:
        """Have the kernel read the next lines as the decoder writes them, up to one that is bad."""
        starts, written, behind = list[int](), list[bytes](), chunk.size
        for start, line in itertools.islice(lines_from(chunk, progress.position), self._most):
            try:
                written.append(self._objects.rewritten(line))
            except BadRow as error:
                if not written:
                    self._message = str(error)
                    return progress
                break
            starts.append(start)
            behind = start + len(line) + 1
        text = chunk_of(b"".join(written))
        marks = room_for_marks(text.size)
        mark_text(text.text, text.size, marks)
        made = self._run_kernel(text, marks, progress._replace(position=0))
        assert made.status != UNUSUAL
        done = bisect.bisect(list(itertools.accumulate(map(len, written))), made.position)
        return made._replace(position=[*starts, behind][done])

    def _describe(self, chunk: Chunk, progress: Progress) -> str:
        return TOO_LARGE.get(progress.status, self._message)
