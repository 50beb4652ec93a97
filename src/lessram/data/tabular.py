"""Tables of any origin: Parquet and Arrow files, Arrow, Polars, pandas and DuckDB in memory.

Everything comes as a stream of Arrow record batches; what speaks Arrow's C stream protocol is not copied. Files are
read row group by row group, only the columns that are used, and with strings as the dictionaries that they
are stored as.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lessram.data.arrow import ArrowParser, Dictionaries, guess_schema, import_pyarrow, numbers_in
from lessram.data.cells import BLOCK
from lessram.data.column_scale import ROWS as SCALED_ROWS
from lessram.data.column_scale import with_scales
from lessram.data.pipeline import Parts
from lessram.data.remote import is_url, open_url
from lessram.data.rows import ParsedPart
from lessram.data.schema import Schema
from lessram.data.source import Place, TextBuffer
from lessram.errors import DataError, SpecError

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 1 << 16
"""Rows that are read from a file at once, if nobody parses meanwhile: larger batches are decoded faster."""


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
        for row in range(0, self.batch.num_rows, BLOCK):
            yield TableBatch(self.batch.slice(row, BLOCK), self.name, self._behind(row))

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
        numeric = [name for name, kind in zip(schema.columns, schema.kinds, strict=True) if kind == "numeric"]
        found: dict[str, list[float]] = {name: [] for name in numeric}
        rows = 0
        for batch in self._parts[0].peek(numeric) if numeric else ():
            for name in numeric:
                found[name] += numbers_in(batch.column(name).slice(0, SCALED_ROWS - rows))
            rows += batch.num_rows
            if rows >= SCALED_ROWS:
                break
        return found

    def read(self, schema: Schema, start: Place | None = None, *, all_cores: bool = False) -> Iterator[TableBatch]:
        """The record batches from a place on, with the columns of the schema in its order.

        Columns that the schema ignores are not read; so hand parsers `used(schema)`. `all_cores`: in smaller batches,
        decoded ahead.
        """
        start = start or Place()
        columns = list(used(schema).columns)
        for i in range(start.source, len(self._parts)):
            row = 0
            skip = start.offset if i == start.source else 0
            for batch in self._parts[i].batches(columns, all_cores):
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


def _check_present(columns: Sequence[str], schema: pa.Schema, name: str) -> None:
    missing = [column for column in columns if column not in schema.names]
    if missing:
        raise DataError(f"found no column {missing[0]!r}, expected {', '.join(columns)}", place=name)


class _File:
    """A Parquet or Arrow file."""

    for_any_thread = True

    def __init__(self, path: str) -> None:
        self.name = path
        with _Blaming(path):
            with open_url(path) if is_url(path) else open(path, "rb") as file:
                magic = file.read(6)
            self._parquet = magic[:4] == b"PAR1"
            if not self._parquet and magic != b"ARROW1":
                raise DataError("found neither Parquet nor Arrow, expected one of them", place=path)
            self.schema = self._open([]).schema_arrow if self._parquet else self._arrow_file().schema

    def _open(self, columns: Sequence[str]) -> Any:
        import_pyarrow()
        from pyarrow import parquet

        source = open_url(self.name) if is_url(self.name) else self.name
        return parquet.ParquetFile(source, read_dictionary=list(columns), memory_map=False, pre_buffer=False)

    def _arrow_file(self) -> Any:
        pa = import_pyarrow()
        from pyarrow import ipc

        return ipc.open_file(open_url(self.name) if is_url(self.name) else pa.memory_map(self.name))

    def batches(self, columns: list[str], all_cores: bool = False) -> Iterator[pa.RecordBatch]:
        with _Blaming(self.name):
            _check_present(columns, self.schema, self.name)
            if not self._parquet:
                file = self._arrow_file()
                for i in range(file.num_record_batches):
                    yield file.get_batch(i).select(columns)
                return
            types = import_pyarrow().types
            strings = [
                name
                for name in columns
                if types.is_string(self.schema.field(name).type) or types.is_binary(self.schema.field(name).type)
            ]
            rows = BLOCK if all_cores else ROWS
            decoded = self._open(strings).iter_batches(rows, columns=columns, use_threads=False)
            for batch in _ahead(decoded) if all_cores else decoded:
                yield batch.select(columns)

    def peek(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """The batches from the first on, with some columns; the file can be read again from its beginning."""
        return self.batches(columns)


def _ahead(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same batches, the next of which is decoded by another thread in the meantime.

    By one thread, and not by Arrow's pool: allocations of several take 100 MB more.
    """
    other = ThreadPoolExecutor(1)
    try:
        coming = other.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = other.submit(next, batches, None)
            yield batch
    finally:
        other.shutdown(wait=False)  # whoever closes this may be any thread, at any time


class _Blaming:
    """Make an error of Arrow or of the system a `DataError` that names the file."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, DataError) or error is None:
            return
        if isinstance(error, OSError) and error.strerror:
            raise DataError(f"cannot read: {error.strerror}", place=self._path) from None
        if isinstance(error, (OSError, import_pyarrow().lib.ArrowException)):
            raise DataError(f"cannot read: {error}", place=self._path) from None


class _Memory:
    """A table in memory, or a stream that can be read once."""

    def __init__(self, data: pa.Table | pa.RecordBatchReader, name: str) -> None:
        self.name, self.schema, self._data = name, data.schema, data
        self._stream = not isinstance(data, import_pyarrow().Table)
        self.for_any_thread = not self._stream  # whoever made a stream may not be ready for other threads
        self._peeked: list[Any] = []  # of a stream: taken from it and not yet handed out
        self._read = False

    def batches(self, columns: list[str], all_cores: bool = False) -> Iterator[pa.RecordBatch]:
        _check_present(columns, self.schema, self.name)
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
        with _Blaming(self.name):
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

    def batches(self, columns: list[str], all_cores: bool = False) -> Iterator[pa.RecordBatch]:
        _check_present(columns, self.schema, self.name)
        types = import_pyarrow().schema([self.schema.field(name) for name in columns]) if self._typed else None
        labels = None if self._typed else [self._labels[name] for name in columns]
        with _Blaming(self.name):
            for row in range(0, len(self._frame), ROWS):
                yield from _from_pandas(self._frame.iloc[row : row + ROWS], labels, types).to_batches()

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
        files = [_File(str(path)) for path in data]
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
    except (pa.lib.ArrowException, TypeError, ValueError) as error:
        if isinstance(error, SpecError):
            raise
        why = "; ".join(map(str, error.args))
        raise DataError(
            f"found a {type(data).__name__} that cannot become Arrow, expected plain columns: {why}"
        ) from None


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

    blocks = TableBlocks(source.read(schema, start, all_cores=threads > 1))
    return Parts(blocks, make_parser, tolerate=tolerate, threads=threads)
