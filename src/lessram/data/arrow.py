"""Arrow record batches to batches, without going through text.

Columns that are dictionaries are hashed once an entry. Strings are hashed where they lie. Everything else that is said
to be categorical is hashed as the text that Arrow makes of it (`true`, `17`, `2013-01-01`), so that a
CSV file of the same table gives the same rows. A null gives no feature, NaN neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lessram.data.cells import CellBlock, number_of, numbers_among
from lessram.data.hashing import hash_names
from lessram.data.rows import ParsedPart
from lessram.data.schema import Kind, Schema, make_schema
from lessram.data.source import Place
from lessram.errors import DataError, LessramError, SpecError

if TYPE_CHECKING:
    import pyarrow as pa


def import_pyarrow() -> Any:
    """pyarrow, or an error that says how to get it."""
    try:
        import pyarrow
    except ImportError:
        raise LessramError("tables need pyarrow: pip install 'lessram[arrow]'") from None
    return pyarrow


def guess_kind(name: str, kind: Any) -> Kind:
    """What a column of an Arrow type is, if nothing is said about it."""
    types = import_pyarrow().types
    if types.is_null(kind):
        return "ignored"
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "numeric"
    if types.is_nested(kind):
        raise SpecError(f"columns must be of plain values, got {kind} in {name!r}: ignore it, or flatten it")
    return "categorical"


def guess_schema(schema: pa.Schema, **choices: Any) -> Schema:
    """A schema for a table with these columns. `choices` are those of `make_schema`.

    A column that is not said to be anything is numeric if it is of numbers, and categorical if not.
    """
    return make_schema(schema.names, lambda i: guess_kind(schema.names[i], schema.types[i]), **choices)


def _validity(array: pa.Array) -> NDArray[np.bool_] | bool:
    """Which values are not null."""
    if array.null_count == 0:
        return True
    return array.is_valid().to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _strings(array: pa.Array) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    """The bytes of an array of strings or binaries, and where each begins."""
    pa = import_pyarrow()
    if pa.types.is_fixed_size_binary(array.type):
        array = array.cast(pa.binary())
    _, offsets, data = array.buffers()
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    dtype = np.dtype(np.int64 if large else np.int32)
    if offsets is None or len(array) == 0:
        return np.zeros(0, np.uint8), np.zeros(len(array) + 1, dtype)
    places = np.frombuffer(offsets, dtype, len(array) + 1, array.offset * dtype.itemsize)
    return (np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)), places


def _is_strings(kind: pa.DataType) -> bool:
    types = import_pyarrow().types
    tests = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    return any(test(kind) for test in tests)


def _as_strings(array: pa.Array) -> pa.Array:
    """The array as plain strings or binaries: views are laid out, and other values become their text."""
    pa = import_pyarrow()
    types, kind = pa.types, array.type
    if _is_strings(kind):
        return array
    if types.is_fixed_size_binary(kind) or types.is_binary_view(kind):
        return array.cast(pa.large_binary())
    return array.cast(pa.large_string())


def _nan_as_null(array: pa.Array) -> pa.Array:
    """The array with nulls in place of NaN, which is no category either."""
    pa = import_pyarrow()
    if not pa.types.is_float32(array.type) and not pa.types.is_float64(array.type):
        return array
    nan = np.isnan(array.fill_null(0).to_numpy(zero_copy_only=False))
    if not nan.any():
        return array
    from pyarrow.compute import if_else

    return if_else(pa.array(nan), None, array)


def _is_spelled(kind: pa.DataType) -> bool:
    """Whether an array of this type holds strings, as they are or in a dictionary."""
    types = import_pyarrow().types
    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _texts(array: pa.Array) -> list[str | None]:
    """The strings of an array; nobody has looked yet whether they are UTF-8."""
    pa = import_pyarrow()
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    texts = _as_strings(array).cast(pa.large_binary()).to_pylist()
    return [None if text is None else text.decode("utf-8", "replace") for text in texts]


class Dictionaries:
    """The hashes of the dictionaries that came lately, by column; for all parsers of a table.

    Files hand out the same dictionary with every record batch, in other memory, until their next row group: to compare
    it takes a tenth of hashing it. The one before the last is kept too, since threads are not all at the same batch.
    Two that miss the same dictionary at once both hash it, to no harm.
    """

    def __init__(self) -> None:
        self._lately: dict[int, list[tuple[Any, NDArray[Any], NDArray[np.bool_]]]] = {}

    def find(self, column: int, dictionary: pa.Array) -> tuple[NDArray[Any], NDArray[np.bool_]] | None:
        lately = self._lately.get(column, [])
        for known, hashes, empty in lately:
            if _same_memory(known, dictionary):
                return hashes, empty
        for known, hashes, empty in lately:
            # Strings only: numbers may be equal and have another text.
            if known.type == dictionary.type and _is_strings(known.type) and known.equals(dictionary):
                # In its place, for the next blocks of its batch; and the memory of the other becomes free.
                others = [entry for entry in lately if entry[1] is not hashes]
                self._lately[column] = [(dictionary, hashes, empty), *others]
                return hashes, empty
        return None

    def keep(self, column: int, dictionary: pa.Array, hashes: NDArray[Any], empty: NDArray[np.bool_]) -> None:
        self._lately[column] = [(dictionary, hashes, empty), *self._lately.get(column, [])[:1]]


class ArrowParser:
    """Makes rows of record batches for a table of `slots` slots. For one thread at a time.

    >>> import pyarrow
    >>> table = pyarrow.table({"click": [1, 0], "site": ["rome", None], "price": [0.5, 2]})
    >>> schema = guess_schema(table.schema, label="click")
    >>> part = ArrowParser(schema, 2**18).parse(table.to_batches()[0])
    >>> part.batch.labels, part.batch.indptr, part.batch.values
    (array([1., 0.], dtype=float32), array([0, 2, 3]), array([1. , 0.5, 2. ], dtype=float32))
    """

    def __init__(
        self,
        schema: Schema,
        slots: int,
        *,
        labels: str = "binary",
        keep_unlabelled: bool = False,
        dictionaries: Dictionaries | None = None,
    ) -> None:
        self._block = CellBlock(schema, slots, labels=labels, keep_unlabelled=keep_unlabelled)
        self._dictionaries = Dictionaries() if dictionaries is None else dictionaries
        self._loaded: tuple[Any, int] = (None, -1)
        self._name = "table"

    def parse(
        self, batch: pa.RecordBatch, start: Place | None = None, *, name: str = "table", first: Place | None = None,
        tolerate: int = 0,
    ) -> ParsedPart:  # fmt: skip
        """Make rows of a record batch from its start, or from a place in it, as far as one block goes.

        `first`: the place of the batch's first row (offset = rows before it, line = its number). If the `stop` of what
        comes back is not behind the batch's last row, call again with it as the start.
        """
        first = first or Place()
        done = start.offset - first.offset if start else 0
        base = done - done % self._block.most_rows
        part = batch.slice(base, self._block.most_rows)
        if self._loaded[0] is not batch or self._loaded[1] != base:
            self._load(part, name)
            self._loaded = (batch, base)
        source, offset, line = first.source, first.offset + base, first.line + base
        made = self._block.finish(
            part.num_rows, done - base, tolerate, name, lambda i: Place(source, offset + i, line + i)
        )
        if made.stop.offset == offset + part.num_rows:
            self._loaded = (None, -1)  # batches have large dictionaries: nobody holds on to one that is done with
        return made

    def _load(self, batch: pa.RecordBatch, name: str) -> None:
        schema = self._block.schema
        if tuple(batch.schema.names) != schema.columns:
            raise DataError(f"found the columns {batch.schema.names}, expected {list(schema.columns)}", place=name)
        self._name = name
        self._block.start()
        for i, kind in enumerate(schema.kinds):
            if kind == "ignored":
                continue
            array = batch.column(i)
            if kind == "categorical":
                array = _nan_as_null(array)
            self._block.put_present(i, _validity(array), batch.num_rows)
            try:
                self._put(i, kind, array)
            except import_pyarrow().lib.ArrowException as error:
                found = f"found {array.type} in column {schema.columns[i]!r}"
                raise DataError(f"{found}, expected what can be {kind}: {error}", place=name) from None

    def _put(self, column: int, kind: Kind, array: pa.Array) -> None:
        pa = import_pyarrow()
        if kind == "categorical":
            self._put_categories(column, array)
        elif kind == "text":
            if pa.types.is_dictionary(array.type):
                array = array.dictionary_decode()
            self._block.put_text(column, *_strings(_as_strings(array)))
        else:
            self._block.put_numbers(column, self._numbers(column, array))

    def _numbers(self, column: int, array: pa.Array) -> NDArray[Any]:
        """An array as numbers; of strings one by one where some are none, so that only their rows are bad."""
        if not _is_spelled(array.type):
            return _numbers(array)
        try:
            numbers = _numbers(array)
            if not np.isnan(numbers).any():  # a string "nan" is no number, as in CSV and JSON
                return numbers
        except import_pyarrow().lib.ArrowInvalid:
            pass
        return np.array(self._block.converted(column, _texts(array), number_of, None), np.float64)

    def _put_categories(self, column: int, array: pa.Array) -> None:
        pa = import_pyarrow()
        if pa.types.is_boolean(array.type):
            array = pa.DictionaryArray.from_arrays(array.cast(pa.int8()), pa.array(["false", "true"]))
        if not pa.types.is_dictionary(array.type):
            self._block.put_names(column, *_strings(_as_strings(array)))
            return
        hashes, empty = self._hashed(column, array.dictionary)
        count = len(array)
        if len(hashes) == 0:
            self._block.put_present(column, False, count)
            return
        indices = array.indices
        indices = (indices.fill_null(0) if indices.null_count else indices).to_numpy()
        if indices.min(initial=0) < 0 or indices.max(initial=0) >= len(hashes):
            message = f"found an index beyond the dictionary in column {self._block.schema.columns[column]!r}"
            raise DataError(f"{message}, expected none", place=self._name)
        # Nothing is left to be clipped; the usual mode would check once more, and write by way of a buffer.
        np.take(hashes, indices, out=self._block.cells.hashes[column, :count], mode="clip")
        if empty.any():
            self._block.cells.present[column, :count] &= ~empty[indices]

    def _hashed(self, column: int, dictionary: pa.Array) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """The hashes of a dictionary's entries, and which are empty or null."""
        kept = self._dictionaries.find(column, dictionary)
        if kept is not None:
            return kept
        entries = _nan_as_null(dictionary)
        data, offsets = _strings(_as_strings(entries))
        hashes = hash_names(data, offsets, self._block.layout.hashes[column])
        empty = (offsets[1:] == offsets[:-1]) | ~np.broadcast_to(_validity(entries), len(entries))
        self._dictionaries.keep(column, dictionary, hashes, empty)
        return hashes, empty


def _same_memory(one: pa.Array, other: pa.Array) -> bool:
    """Whether two arrays are the same memory. The kept one holds on to its own, so no other can take its place."""
    if one.type != other.type or len(one) != len(other) or one.offset != other.offset:
        return False
    addresses = [[buffer and buffer.address for buffer in array.buffers()] for array in (one, other)]
    return addresses[0] == addresses[1]


def numbers_in(array: pa.Array) -> list[float]:
    """The numbers of an array that are neither null nor NaN, those that strings spell included."""
    try:
        numbers = _numbers(array).astype(np.float64)
    except import_pyarrow().lib.ArrowException:
        return numbers_among(_texts(array)) if _is_spelled(array.type) else []
    return numbers[np.broadcast_to(_validity(array), len(array)) & ~np.isnan(numbers)].tolist()  # type: ignore[no-any-return]


def _numbers(array: pa.Array) -> NDArray[Any]:
    """An array as numbers; what null is does not matter."""
    pa = import_pyarrow()
    kind = array.type
    if pa.types.is_dictionary(kind):
        array = array.dictionary_decode()
    if pa.types.is_temporal(kind):
        array = array.cast(pa.int64() if kind.bit_width == 64 else pa.int32())
    if not (pa.types.is_integer(array.type) or pa.types.is_float32(array.type) or pa.types.is_float64(array.type)):
        array = array.cast(pa.float64())
    if array.null_count:
        array = array.fill_null(0)
    return array.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
