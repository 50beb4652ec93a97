"""Delimited text: CSV and TSV, with or without a header.

    row     cells parted by the delimiter; an empty line is none. Every row has as many cells as the schema
    cell    as it stands, blanks included; or between quotes, where delimiters, newlines and doubled quotes
            are text. A quote inside a cell that does not begin with one is a letter
    number  a decimal number that is finite in float32; blanks around it are fine
    missing a cell that is one of the schema's missing words, such as NA, is an empty cell
    header  the first row of every file, the same in all of them

What cells become is said in `schema.py`. A row with too few or too many cells, a cell that is no number in
a numeric column, a label that is none, a quote that does not close: each makes a bad row.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

import msgspec
import numpy as np

from lessram.data import csv_kernel
from lessram.data.cells import numbers_among
from lessram.data.column_scale import ROWS as SAMPLE
from lessram.data.column_scale import with_scales
from lessram.data.csv_kernel import Dialect, parse_rows, row_end
from lessram.data.lines import LineParser, line_behind, rest_of_line, show
from lessram.data.missing_words import missing_words
from lessram.data.rows import LONG_NUMBER, TOO_LARGE, Progress, Room
from lessram.data.schema import Kind, Schema, make_layout, make_schema
from lessram.data.source import Chunk
from lessram.data.tokens import MARGIN
from lessram.errors import DataError, SpecError


class CsvOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the cells of a file are parted; not part of a model, for the same table may come in another file."""

    delimiter: str = ","
    quote: str = '"'
    """Empty = cells are never quoted, which is how tab separated files are meant."""
    header: bool = True

    def __post_init__(self) -> None:
        if len(self.delimiter.encode()) != 1 or self.delimiter in "\r\n":
            raise SpecError(f"delimiter must be one ASCII character, not a newline, got {self.delimiter!r}")
        if len(self.quote.encode()) > 1 or self.quote in (self.delimiter, "\r", "\n", "\0"):
            raise SpecError(f"quote must be one ASCII character, not the delimiter, or empty, got {self.quote!r}")

    @property
    def dialect(self) -> Dialect:
        return Dialect(np.uint8(ord(self.delimiter)), np.uint8(ord(self.quote) if self.quote else 0))


_NUMERALS = frozenset("0123456789+-.eE ")
"""All that numbers are made of."""

_NEARLY, _ENOUGH = 10, 10
"""Cells of which one may be no number where nearly all are; numbers that this takes at least."""

TSV = CsvOptions(delimiter="\t", quote="")


def _rows(chunk: Chunk, options: CsvOptions, most: int) -> list[list[str]]:
    """The cells of the first rows of a chunk: for headers and guesses, a thousandth as fast as the kernel."""
    text, position = chunk.text[: chunk.size].tobytes(), 0
    quote = options.quote.encode()
    taken: list[list[str]] = []
    while position < len(text) and len(taken) < most:
        end = text.find(b"\n", position) + 1 or len(text)
        quoted = bool(quote) and text.find(quote, position, end) >= 0
        if quoted:
            end = int(row_end(chunk.text, np.uint64(position), np.uint64(len(text)), options.dialect, False))
        row = text[position:end].removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "surrogateescape")
        position = end
        if row:
            taken.append(_quoted_cells(row, options) if quoted else row.split(options.delimiter))
    return taken


def _quoted_cells(row: str, options: CsvOptions) -> list[str]:
    """The cells of a row, some of which are quoted; what stands behind a closing quote is taken as it is."""
    quote, delimiter = re.escape(options.quote), re.escape(options.delimiter)
    quoted = f"{quote}([^{quote}]*(?:{quote}{quote}[^{quote}]*)*){quote}?"
    cells = []
    for found in re.finditer(f"(?:{quoted})?([^{delimiter}]*)({delimiter}|\\Z)", row):
        within, rest, behind = found.groups(default="")
        cells.append(within.replace(2 * options.quote, options.quote) + rest)
        if not behind:
            break
    return cells


def _rows_behind_header(chunk: Chunk, options: CsvOptions, most: int) -> list[list[str]]:
    header = int(options.header and chunk.start.line == 1)
    return _rows(chunk, options, header + most)[header:]


def column_names(chunk: Chunk, options: CsvOptions) -> list[str]:
    """The names of the columns, from the header of the first chunk; `1`, `2`, ... where there is none."""
    rows = _rows(chunk, options, 1)
    if not rows:
        raise DataError("found an empty file, expected a table", place=chunk.name)
    if not options.header:
        return [str(i + 1) for i in range(len(rows[0]))]
    try:
        "".join(rows[0]).encode()
    except UnicodeEncodeError:
        header = options.delimiter.join(rows[0]).encode("utf-8", "surrogateescape")
        raise DataError(f"found {show(header)} as the header, expected UTF-8", place=f"{chunk.name}:1") from None
    return rows[0]


class Sample:
    """The first rows of the table that begins with these chunks, column by column.

    No more chunks are taken than it takes to have enough rows. `missing`: words that are read as empty cells.
    """

    def __init__(
        self, chunks: Iterable[Chunk], options: CsvOptions | None = None, *, missing: Collection[str] = ()
    ) -> None:
        options = options or CsvOptions()
        chunks = iter(chunks)
        first = next(chunks)
        self.names = column_names(first, options)
        rows: list[list[str]] = []
        for chunk in itertools.chain([first], chunks):
            rows += _rows_behind_header(chunk, options, SAMPLE - len(rows))
            if len(rows) == SAMPLE:
                break
        columns = itertools.islice(itertools.zip_longest(self.names, *rows), len(self.names))  # bad rows may be longer
        self._cells = [list(filter(None, cells)) for _, *cells in columns]
        if missing:
            self._cells = [[cell for cell in cells if cell.strip(" ") not in missing] for cells in self._cells]
        self._missing = missing
        self._numbers = functools.cache(lambda i: _numbers(self._cells[i]))

    def schema(self, *, scaled: bool = False, **choices: Any) -> Schema:
        """A schema for the table. `choices` are those of `make_schema`. `scaled`: with scales of numeric columns.

        A column that is not said to be anything is numeric if all of its cells are numbers, and categorical if not.
        """
        schema = make_schema(self.names, self._guess, missing=self._missing, **choices)
        if not scaled:
            return schema
        numeric = [i for i, kind in enumerate(schema.kinds) if kind == "numeric"]
        found = {self.names[i]: self._numbers(i) or numbers_among(self._cells[i]) for i in numeric}
        return with_scales(schema, found)

    def _guess(self, column: int) -> Kind:
        return "numeric" if self._numbers(column) else "categorical"

    def nearly_numeric(self, schema: Schema) -> dict[str, list[str]]:
        """Categorical columns nearly all of whose cells are numbers, and the cells of each that are not."""
        kinds = zip(schema.columns, schema.kinds, self._cells, strict=True)
        found = {name: _exceptions(cells) for name, kind, cells in kinds if kind == "categorical"}
        return {name: words for name, words in found.items() if words}


def guess_schema(
    chunks: Iterable[Chunk],
    options: CsvOptions | None = None,
    *,
    scaled: bool = False,
    missing: Collection[str] = (),
    **choices: Any,
) -> Schema:
    """A schema for the table that begins with these chunks, by its first rows."""
    return Sample(chunks, options, missing=missing).schema(scaled=scaled, **choices)


def _exceptions(cells: list[str]) -> list[str]:
    """The cells that are no numbers, each once, where they are few beside numbers; the most frequent ones first."""
    most, others = len(cells) // _NEARLY, Counter[str]()
    for cell in cells:
        if _numbers([cell]) is None:
            others[cell.strip(" ")] += 1
            if others.total() > most:
                return []
    return [word for word, _ in others.most_common()] if len(cells) - others.total() >= _ENOUGH else []


def _numbers(cells: list[str]) -> list[float] | None:
    """The numbers that cells are; None if one is none. Python takes more for numbers than the kernel does."""
    try:
        numbers = list(map(float, cells))
    except ValueError:
        return None
    return numbers if all(map(math.isfinite, numbers)) and _NUMERALS.issuperset("".join(cells)) else None


class CsvParser(LineParser):
    """Parses chunks of delimited text for a table of `slots` slots. For one thread at a time.

    >>> from lessram.data.lines import chunk_of
    >>> chunk = chunk_of(b"click,site,price\\n1,rome,0.5\\n0,,2\\n")
    >>> schema = guess_schema([chunk], label="click")
    >>> schema.kinds
    ('label', 'categorical', 'numeric')
    >>> batch = CsvParser(schema, 2**18).parse(chunk).batch
    >>> batch.labels, batch.indptr, batch.values
    (array([1., 0.], dtype=float32), array([0, 2, 3]), array([1. , 0.5, 2. ], dtype=float32))
    """

    def __init__(
        self,
        schema: Schema,
        slots: int,
        options: CsvOptions | None = None,
        *,
        labels: str = "binary",
        keep_unlabelled: bool = False,
    ) -> None:
        self._schema, self._options = schema, options or CsvOptions()
        self._dialect = self._options.dialect
        self._missing = missing_words(schema.missing or ())
        self._layout, terms, groups = make_layout(schema, slots, labels=labels, keep_unlabelled=keep_unlabelled)
        self._scratch = (np.empty(0, np.uint8), np.empty(0, np.uint8))
        super().__init__(Room(self._layout.hashes.dtype, terms, groups))

    def _step(self, chunk: Chunk, progress: Progress) -> Progress:
        if len(self._scratch[0]) < chunk.size + MARGIN:
            self._scratch = (np.empty(chunk.size + MARGIN, np.uint8), np.empty(chunk.size + MARGIN, np.uint8))
        if self._options.header and progress.position == 0 and chunk.start.line == 1:
            progress = progress._replace(position=self._behind_header(chunk))
        room = self._room
        return Progress(
            *parse_rows(
                chunk.text,
                chunk.size,
                room.marks,
                self._dialect,
                self._layout,
                self._missing,
                room.products,
                room.rows,
                room.names,
                self._scratch,
                progress,
            )
        )

    def _behind_header(self, chunk: Chunk) -> int:
        names = column_names(chunk, self._options)
        for ours, theirs in itertools.zip_longest(self._schema.columns, names):
            if ours != theirs:
                raise DataError(
                    f"found {_column(theirs)} in the header, expected {_column(ours)}, as in the first file",
                    place=f"{chunk.name}:1",
                )
        row, end = b"", 0
        while row in (b"", b"\n", b"\r\n"):  # empty lines are no rows
            start, end = end, int(row_end(chunk.text, np.uint64(end), np.uint64(chunk.size), self._dialect, False))
            row = chunk.text[start:end].tobytes()
        return end

    def _line_behind(self, chunk: Chunk, progress: Progress) -> int:
        """Behind the whole row, whose cells may have several lines; behind its first line if its quotes are wrong."""
        stop = chunk.size + 1  # with the newline behind the last line
        end = int(row_end(chunk.text, np.uint64(progress.position), np.uint64(stop), self._dialect, True))
        return end if end <= stop else line_behind(chunk, progress.position)

    def _describe(self, chunk: Chunk, progress: Progress) -> str:
        status, columns = progress.status, len(self._schema.columns)
        if status == csv_kernel.FEW_CELLS:
            return f"found {progress.column + 1} cells, expected {columns}"
        if status == csv_kernel.MANY_CELLS:
            return f"found more than {columns} cells, expected {columns}"
        if status in TOO_LARGE:
            return TOO_LARGE[status]
        name = repr(self._schema.columns[progress.column])
        rest = rest_of_line(chunk, progress.word)
        if status == csv_kernel.OPEN_QUOTE:
            return f"found {show(rest)} in column {name}, expected a quote at the end of the cell"
        if status == csv_kernel.BEHIND_QUOTE:
            return f"found {show(rest)} behind the quote of column {name}, expected {self._options.delimiter!r}"
        cell = show(rest.split(self._options.delimiter.encode())[0].strip())
        if status == csv_kernel.BAD_LABEL and not self._layout.real_labels:
            return f"found {cell} as the label ({name}), expected 0, 1, -1 or +1"
        if status == csv_kernel.BAD_WEIGHT:
            return f"found {cell} as the weight ({name}), expected a finite number, not negative"
        assert status in (csv_kernel.BAD_LABEL, csv_kernel.BAD_NUMBER, LONG_NUMBER)
        return f"found {cell} in column {name}, expected a finite number"


def _column(name: str | None) -> str:
    return "no further column" if name is None else f"column {name!r}"
