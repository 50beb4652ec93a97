"""Rows to be predicted, whatever they come in, read as a model was trained to read its own.

Labels and weights of tables are not looked at, and may be missing; what text says of them is read over. Everything
comes in batches of bounded size, so memory beside the rows does not grow with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from lessram.data.batch import Batch
from lessram.data.formats import Form, Reading, Stream, TableStream
from lessram.data.matrix import Matrix, NothingHashed
from lessram.data.reader import BatchReader
from lessram.data.source import as_paths
from lessram.data.tabular import is_table
from lessram.errors import DataError, SpecError

_REMEMBER = "before it is saved or predicts, give it what its reader knows, model.reader = read_batches(...).reader"
_SHOWN = 5  # columns that a message names


def read_to_predict(
    stream: Stream, reading: Reading, slots: int, *, max_errors: int = 0, threads: int = 1
) -> BatchReader:
    """The rows of files, or of a table in memory, as batches."""
    if reading.schema:
        reading = msgspec.structs.replace(reading, schema=reading.schema.to_predict())
    return BatchReader(
        stream,
        reading,
        slots=slots,
        labels="real",
        keep_unlabelled=True,
        max_errors=max_errors,
        threads=threads,
    )


def batches_to_predict(rows: Any, reader: Mapping[str, Any], slots: int) -> Iterator[Batch]:
    """The batches of anything: a path or several, a table in memory, a matrix, a list of dicts.

    `reader`: what a model remembers of how features became slots. A batch may be used until the next is asked for.
    """
    if isinstance(rows, Sequence) and not isinstance(rows, (str, bytes)) and not len(rows):
        return iter(())
    reading = msgspec.convert(reader, Reading)
    paths = as_paths(rows)
    if paths is not None:
        return _batches(read_to_predict(Stream(paths, Form(name="auto")), reading, slots))
    if reading.schema:
        if not is_table(rows):
            found = type(rows).__name__
            raise SpecError(f"the model was trained on a table: expected a data frame or Arrow to predict, got {found}")
        columns = reading.schema.features
        return _batches(read_to_predict(TableStream(rows, columns=columns), reading, slots))
    if reading.vw:
        found = type(rows).__name__
        raise SpecError(f"the model was trained on Vowpal Wabbit text: expected a file of it to predict, got {found}")
    if is_table(rows):
        _check_columns(rows, known=bool(reader))
    return _numbered(rows, reading, slots, known=bool(reader)).batches()


def _check_columns(rows: Any, *, known: bool) -> None:
    """Refuse a table whose columns have names: to a model of numbered features these mean nothing."""
    if not known:
        raise SpecError(f"the model does not know how the columns of a table become features: {_REMEMBER}")
    may_be_numbered = hasattr(rows, "iloc") and hasattr(rows, "columns")  # by pandas: elsewhere names are strings
    columns = list(rows.columns) if may_be_numbered else []
    if not may_be_numbered or columns != list(range(len(columns))):
        names = ", ".join(map(repr, columns[:_SHOWN])) + (", ..." if len(columns) > _SHOWN else "")
        raise SpecError(
            "the model was trained on numbered features and knows no columns by name: expected a matrix, or a frame "
            f"with the columns 0, 1, 2 ..., got {type(rows).__name__}{names and f' with {names}'}; frame.to_numpy() "
            "takes columns by their place, which must be that of training"
        )


def _numbered(rows: Any, reading: Reading, slots: int, *, known: bool) -> Matrix:
    """Rows of numbered features. Where nobody has told what became of others, only slots are taken."""
    try:
        return Matrix(rows, slots, hash=reading.hash if known else "none", hash_seed=reading.hash_seed)
    except NothingHashed as error:
        if known:
            raise
        raise DataError(f"{error}. The model does not know how other features became slots: {_REMEMBER}") from None


def margins_of(predict: Callable[[Batch], NDArray[np.float64]], batches: Iterator[Batch]) -> NDArray[np.float64]:
    """The margins of all rows of some batches, in their order."""
    return np.concatenate([np.empty(0), *map(predict, batches)])


def _batches(reader: BatchReader) -> Iterator[Batch]:
    return (batch for batch, _ in reader)
