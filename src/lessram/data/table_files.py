"""Parquet and Arrow files as streams of record batches.

Only the columns that are used are read. Strings of a Parquet file stay the dictionaries that they are stored as, if
these are small. Where several threads may work, each decodes some of the columns, a batch ahead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from lessram.data.arrow import import_pyarrow
from lessram.data.remote import is_url, open_url
from lessram.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

ROWS, CELLS = 1 << 16, 1 << 23
"""Of a Parquet file that are decoded at once, at most."""
DICTIONARY = 1 << 19
"""Bytes of a dictionary in the file up to which it stays one, in batches of so many rows. Arrow builds every dictionary
anew for every batch, in 200 bytes an entry, and writers end dictionaries at 1 MiB and go on with plain strings, which
it would have to look up: to hash the strings of all rows is as fast or much faster then, and takes much less memory."""
BUFFER = 1 << 16
"""Bytes of a column that are read at once; all of a row group otherwise."""


class TableFile:
    """A Parquet or Arrow file."""

    for_any_thread = True

    def __init__(self, path: str) -> None:
        self.name = path
        with Blaming(path):
            with open_url(path) if is_url(path) else open(path, "rb") as file:
                magic = file.read(6)
            self._parquet = magic[:4] == b"PAR1"
            if not self._parquet and magic != b"ARROW1":
                raise DataError("found neither Parquet nor Arrow, expected one of them", place=path)
            self.schema = self._parquet_file().schema_arrow if self._parquet else self._arrow_file().schema

    def batches(self, columns: list[str], threads: int = 1) -> Iterator[pa.RecordBatch]:
        """The rows in order, with these columns."""
        with Blaming(self.name):
            check_present(columns, self.schema, self.name)
            for batch in self._decoded(columns, threads) if self._parquet else self._stored():
                yield batch.select(columns)

    def peek(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """The batches from the first on, with some columns; the file can be read again from its beginning."""
        return self.batches(columns)

    def _stored(self) -> Iterator[pa.RecordBatch]:
        file = self._arrow_file()
        for i in range(file.num_record_batches):
            yield file.get_batch(i)

    def _decoded(self, columns: list[str], threads: int) -> Iterator[pa.RecordBatch]:
        metadata = self._parquet_file().metadata
        stored, rows = _stored_columns(metadata), rows_of_a_batch(len(columns))
        most = DICTIONARY * rows // ROWS
        dictionaries = [name for name in columns if self._is_string(name) and _has_dictionary(stored.get(name), most)]
        sizes = {name: column.total_uncompressed_size for name, column in stored.items()}
        streams = [
            self._parquet_file(dictionaries, metadata).iter_batches(rows, columns=share, use_threads=False)
            for share in _shares(columns, sizes, threads)
        ]
        return streams[0] if threads == 1 else _side_by_side(streams)

    def _is_string(self, column: str) -> bool:
        types, kind = import_pyarrow().types, self.schema.field(column).type
        return bool(types.is_string(kind) or types.is_binary(kind))

    def _parquet_file(self, dictionaries: Sequence[str] = (), metadata: Any = None) -> Any:
        import_pyarrow()
        from pyarrow import parquet

        return parquet.ParquetFile(
            open_url(self.name) if is_url(self.name) else self.name,
            metadata=metadata,
            read_dictionary=list(dictionaries),
            memory_map=False,
            buffer_size=BUFFER,
            pre_buffer=False,
        )

    def _arrow_file(self) -> Any:
        pa = import_pyarrow()
        from pyarrow import ipc

        return ipc.open_file(open_url(self.name) if is_url(self.name) else pa.memory_map(self.name))


def _stored_columns(metadata: Any) -> dict[str, Any]:
    """What is known of each column in the first row group, if there is one."""
    if metadata.num_row_groups == 0:
        return {}
    group = metadata.row_group(0)
    return {column.path_in_schema: column for column in map(group.column, range(group.num_columns))}


def rows_of_a_batch(columns: int) -> int:
    """Rows of so many columns that are decoded, or taken from a frame, at once.

    >>> rows_of_a_batch(100), rows_of_a_batch(2000)
    (65536, 4194)
    """
    return max(min(ROWS, CELLS // max(columns, 1)), 1)


def _has_dictionary(column: Any, most: int) -> bool:
    """Whether a column is stored with a dictionary of so many bytes at most."""
    if column is None or not column.has_dictionary_page:
        return False
    return bool(column.data_page_offset - column.dictionary_page_offset <= most)


def _shares(columns: Sequence[str], sizes: Mapping[str, int], count: int) -> list[list[str]]:
    """The columns in at most `count` shares of about the same size.

    >>> _shares(["a", "b", "c", "d"], {"a": 5, "b": 9, "c": 3, "d": 6}, 2)
    [['b', 'c'], ['d', 'a']]
    """
    shares: list[list[str]] = [[] for _ in range(max(1, min(count, len(columns))))]
    taken = [0] * len(shares)
    for column in sorted(columns, key=lambda column: sizes.get(column, 0), reverse=True):
        least = taken.index(min(taken))
        shares[least].append(column)
        taken[least] += sizes.get(column, 0) + 1
    return shares


def _side_by_side(streams: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Streams of different columns of the same rows, together; each is decoded by a thread of its own, a batch ahead.

    Arrow could do this with its own threads, but takes 100 MB more then.
    """
    others = ThreadPoolExecutor(len(streams))
    try:
        coming = [others.submit(next, stream, None) for stream in streams]
        held: list[Any] = [None] * len(streams)
        while True:
            for i, stream in enumerate(streams):
                if held[i] is None:
                    held[i] = coming[i].result()
                    if held[i] is None:
                        return
                    coming[i] = others.submit(next, stream, None)
            rows = min(batch.num_rows for batch in held)  # each ends its batches where its dictionaries change
            yield _joined([batch.slice(0, rows) for batch in held])
            held = [batch.slice(rows) if batch.num_rows > rows else None for batch in held]
    finally:
        others.shutdown(wait=False)  # whoever closes this may be any thread, at any time


def _joined(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(parts) == 1:
        return parts[0]
    columns = [column for part in parts for column in part.columns]
    names = [name for part in parts for name in part.schema.names]
    return import_pyarrow().RecordBatch.from_arrays(columns, names)


def check_present(columns: Sequence[str], schema: pa.Schema, name: str) -> None:
    """Refuse a table that lacks one of these columns."""
    missing = [column for column in columns if column not in schema.names]
    if missing:
        raise DataError(f"found no column {missing[0]!r}, expected {', '.join(columns)}", place=name)


class Blaming:
    """Make an error of Arrow, of the system or of values that Arrow cannot take a `DataError` that names the file."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, DataError) or error is None:
            return
        if isinstance(error, OSError) and error.strerror:
            raise DataError(f"cannot read: {error.strerror}", place=self._path) from None
        if isinstance(error, (OSError, UnicodeError, OverflowError, import_pyarrow().lib.ArrowException)):
            raise DataError(f"cannot read: {words_of(error)}", place=self._path) from None


def words_of(error: BaseException) -> str:
    """What an error says; Arrow's may have several messages, those of strings have other arguments than messages."""
    return str(error) if isinstance(error, UnicodeError) else "; ".join(map(str, error.args))
