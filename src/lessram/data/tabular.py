"""Tables of any origin: Parquet and Arrow files, Arrow, Polars, pandas and DuckDB in memory.

Everything comes as a stream of Arrow record batches; what speaks Arrow's C stream protocol is not copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lessram.data.arrow import ArrowParser, Dictionaries, guess_schema, import_pyarrow, numbers_in
from lessram.data.cells import rows_of_a_block
from lessram.data.column_scale import ROWS as SCALED_ROWS
from lessram.data.column_scale import with_scales
from lessram.data.pipeline import Parts
from lessram.data.rows import ParsedPart
from lessram.data.schema import Schema
from lessram.data.source import Place, TextBuffer
from lessram.data.table_files import Blaming, TableFile, check_present, rows_of_a_batch, words_of
from lessram.errors import DataError, SpecError

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 1 << 16
"""Rows of an Arrow table in memory that are taken at once, without copying."""


class TableBatch(NamedTuple):
    """A record batch and where it stands."""

    batch: pa.RecordBatch
    name: str
    """Of the table, for messages."""
    start: Place
    """Offset = rows of its source before it; line = the number of its first row, from 1 on."""

    @property
    def stop(self) -> Place:
        """Where the row behind the last one stands."""
        return self._behind(self.batch.num_rows)

    def blocks(self) -> Iterator[TableBatch]:
        """The same rows in as many blocks as a parser needs for them."""
        rows = rows_of_a_block(self.batch.num_columns)
        for row in range(0, self.batch.num_rows, rows):
            yield TableBatch(self.batch.slice(row, rows), self.name, self._behind(row))

    def _behind(self, rows: int) -> Place:
        return Place(self.start.source, self.start.offset + rows, self.start.line + rows)


class TableSource:
    """One table, or several files of one table, as record batches in order."""

    def __init__(self, schema: pa.Schema, parts: Sequence[Any]) -> None:
        self.arrow_schema = schema
        self._parts = parts

    @property
    def for_any_thread(self) -> bool:
        """Whether other threads than the one that has the table may read it."""
        return all(part.for_any_thread for part in self._parts)

    def guess_schema(self, *, scaled: bool = True, **choices: Any) -> Schema:
        """A schema of these columns; `choices` are those of `make_schema`. `scaled`: with scales of numeric columns."""
        schema = guess_schema(self.arrow_schema, **choices)
        return with_scales(schema, self._first_numbers(schema)) if scaled else schema

    def _first_numbers(self, schema: Schema) -> dict[str, list[float]]:
        """The numbers of the numeric columns in the first rows, by column."""
        numeric = schema.numeric
        found: dict[str, list[float]] = {name: [] for name in numeric}
        rows = 0
        parts = self._parts if numeric else ()
        for batch in (batch for part in parts for batch in part.peek(numeric)):
            for name in numeric:
                found[name] += numbers_in(batch.column(name).slice(0, SCALED_ROWS - rows))
            rows += batch.num_rows
            if rows >= SCALED_ROWS:
                break
        return found

    def read(self, schema: Schema, start: Place | None = None, *, threads: int = 1) -> Iterator[TableBatch]:
        """The record batches from a place on, with the columns of the schema in its order.

        Columns that the schema ignores are not read; so hand parsers `used(schema)`.
        """
        start = start or Place()
        columns = list(used(schema).columns)
        for i in range(start.source, len(self._parts)):
            row = 0
            skip = start.offset if i == start.source else 0
            for batch in self._parts[i].batches(columns, threads):
                if row + batch.num_rows > skip:
                    cut = max(0, skip - row)
                    yield TableBatch(batch.slice(cut), self._parts[i].name, Place(i, row + cut, row + cut + 1))
                row += batch.num_rows


def used(schema: Schema) -> Schema:
    """The schema without the columns that it ignores.

    >>> used(Schema(columns=("click", "id", "site"), kinds=("label", "ignored", "categorical"))).columns
    ('click', 'site')
    """
    kept = [name for name, kind in zip(schema.columns, schema.kinds, strict=True) if kind != "ignored"]
    return schema.arranged(kept)


class _Memory:
    """A table in memory, or a stream that can be read once."""

    def __init__(self, data: pa.Table | pa.RecordBatchReader, name: str) -> None:
        self.name, self.schema, self._data = name, data.schema, data
        self._stream = not isinstance(data, import_pyarrow().Table)
        self.for_any_thread = not self._stream  # whoever made a stream may not be ready for other threads
        self._peeked: list[Any] = []  # of a stream: taken from it and not yet handed out
        self._read = False

    def batches(self, columns: list[str], threads: int = 1) -> Iterator[pa.RecordBatch]:
        check_present(columns, self.schema, self.name)
        if self._stream and self._read:
            raise DataError("found a stream that has been read, expected a table or another stream", place=self.name)
        self._read = True
        while self._peeked:
            yield self._peeked.pop(0).select(columns)
        for batch in self._rest():
            yield batch.select(columns)

    def peek(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """The batches from the first on, with some columns; `batches` will give them again."""
        yield from [batch.select(columns) for batch in self._peeked]
        for batch in self._rest():
            if self._stream:
                self._peeked.append(batch)
            yield batch.select(columns)

    def _rest(self) -> Iterator[pa.RecordBatch]:
        with Blaming(self.name):
            # Not `yield from`, which closes a stream when nobody asks for more.
            for batch in self._data if self._stream else self._data.to_batches(max_chunksize=ROWS):  # noqa: UP028
                yield batch


class _Objects:
    """A pandas frame with columns of Python objects, which Arrow must copy: some rows at a time.

    The type of such a column is known when all of it has been looked at. Who knows what the columns mean does not ask
    for it, and takes each part by what it holds.
    """

    for_any_thread = False  # Python objects are one thread's work

    def __init__(self, frame: Any, name: str, labels: Sequence[Any], *, typed: bool) -> None:
        pa = import_pyarrow()
        self.name, self._frame, self._typed = name, frame, typed
        self._labels = {str(label): label for label in labels}
        types = (_from_pandas(frame, [label]).schema.types[0] if typed else pa.null() for label in labels)
        self.schema = pa.schema(list(zip(self._labels, types, strict=True)))

    def batches(self, columns: list[str], threads: int = 1) -> Iterator[pa.RecordBatch]:
        check_present(columns, self.schema, self.name)
        types = import_pyarrow().schema([self.schema.field(name) for name in columns]) if self._typed else None
        labels = None if self._typed else [self._labels[name] for name in columns]
        with Blaming(self.name):
            rows = rows_of_a_batch(len(columns))
            for row in range(0, len(self._frame), rows):
                yield from _from_pandas(self._frame.iloc[row : row + rows], labels, types).to_batches()

    def peek(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """The batches from the first on, with some columns."""
        return self.batches(columns)


def open_table(data: Any, *, name: str = "table", columns: Sequence[str] | None = None) -> TableSource:
    """A table: paths of Parquet or Arrow files, or anything in memory that speaks Arrow.

    Arrow tables, record batches and their readers, frames of Polars and pandas, relations of DuckDB, and all else with
    `__arrow_c_stream__`. Files must have the same columns, in any order. `columns`: those that will be asked for; what
    others hold need not be anything that Arrow knows.
    """
    if isinstance(data, (str, Path)):
        data = [data]
    if isinstance(data, (list, tuple)) and all(isinstance(path, (str, Path)) for path in data):
        files = [TableFile(str(path)) for path in data]
        if not files:
            raise SpecError("a table must have at least one file, got none")
        return TableSource(files[0].schema, files)
    memory = _in_memory(data, name, columns)
    return TableSource(memory.schema, [memory])


def is_table(data: Any) -> bool:
    """Whether something in memory is a table, whose columns have names."""
    speaks_arrow = hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")
    return speaks_arrow or _library(data) in ("pandas", "polars")


def _library(data: Any) -> str:
    """Where a frame comes from; nothing for whatever has no columns."""
    kind = type(data)
    return kind.__module__.split(".")[0] if hasattr(kind, "columns") else ""


def _in_memory(data: Any, name: str, columns: Sequence[str] | None) -> _Memory | _Objects:
    pa = import_pyarrow()
    try:
        if _library(data) != "pandas":
            return _Memory(_frame(data), name)
        chosen = [label for label in data.columns if columns is None or str(label) in columns]
        if any(data.dtypes[label].name == "object" for label in chosen if data.columns.is_unique):
            return _Objects(data, name, chosen, typed=columns is None)
        return _Memory(_from_pandas(data, chosen), name)
    except (pa.lib.ArrowException, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, SpecError):
            raise
        found = f"found a {type(data).__name__} that cannot become Arrow"
        raise DataError(f"{found}, expected plain columns: {words_of(error)}") from None


def _from_pandas(frame: Any, columns: Sequence[Any] | None, schema: pa.Schema | None = None) -> pa.Table:
    return import_pyarrow().Table.from_pandas(frame, schema, preserve_index=False, columns=columns)


def _frame(data: Any) -> pa.Table | pa.RecordBatchReader:
    """The data as Arrow has them: a table where they are in memory, a stream where they may not be."""
    pa = import_pyarrow()
    if isinstance(data, (pa.Table, pa.RecordBatchReader)):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if _library(data) == "polars":
        return pa.table(data.collect() if hasattr(data, "collect") else data)  # of a lazy frame, all
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    kind = type(data).__name__
    raise SpecError(f"a table must be a path, or speak Arrow (Arrow, Polars, pandas, DuckDB), got {kind}")


class TableParser:
    """Makes rows of the blocks of a table. For one thread at a time."""

    def __init__(self, parser: ArrowParser) -> None:
        self._parser = parser

    def parse(self, block: TableBatch, start: Place | None = None, *, tolerate: int = 0) -> ParsedPart:
        """Parse from the start, or from where the last part stopped."""
        return self._parser.parse(block.batch, start, name=block.name, first=block.start, tolerate=tolerate)


class TableBlocks:
    """Hands out the rows of a table, a block at a time."""

    def __init__(self, batches: Iterator[TableBatch]) -> None:
        self._blocks = (block for batch in batches for block in batch.blocks())

    def read(self, _: TextBuffer) -> TableBatch | None:
        """The next block; None at the end."""
        return next(self._blocks, None)


def table_parts(
    source: TableSource,
    schema: Schema,
    slots: int,
    *,
    labels: str = "binary",
    keep_unlabelled: bool = False,
    tolerate: Callable[[], int] = lambda: 0,
    start: Place | None = None,
    threads: int = 1,
) -> Parts:
    """The parts (rows and their account) of a table, in order.

    >>> import pyarrow
    >>> table = open_table(pyarrow.table({"click": [1, 0, 1], "site": ["a", "b", "a"]}))
    >>> [part.batch.rows for part in table_parts(table, table.guess_schema(label="click"), 2**18)]
    [3]
    """
    dictionaries = Dictionaries()
    threads = threads if source.for_any_thread else 1

    def make_parser() -> TableParser:
        read = ArrowParser(
            used(schema), slots, labels=labels, keep_unlabelled=keep_unlabelled, dictionaries=dictionaries
        )
        return TableParser(read)

    blocks = TableBlocks(source.read(schema, start, threads=threads))
    return Parts(blocks, make_parser, tolerate=tolerate, threads=threads)
