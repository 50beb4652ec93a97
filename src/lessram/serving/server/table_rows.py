"""Rows of models of tables: JSON objects, column to cell, as the reader of JSON lines takes them."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from lessram.data.batch import Batch
from lessram.data.jsonl import JsonParser
from lessram.data.schema import Schema
from lessram.errors import DataError
from lessram.serving.server.forms import PREDICTING, Form, decode, numbered_lines, parsed, placed

_RAW_ROWS = msgspec.json.Decoder(list[msgspec.Raw])
_RAW_CELLS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class TableRows:
    """Rows of cells by column."""

    def __init__(self, schema: Schema, slots: int) -> None:
        self._columns = schema.features
        self._parser = JsonParser(schema.to_predict(), slots, **PREDICTING)

    def batches(self, body: bytes, form: Form) -> Iterator[Batch]:
        if form is Form.TEXT:
            raise DataError("found text, expected JSON: the model was trained on a table, a row is column to cell")
        if form is Form.ROWS:
            body = b"\n".join(
                row.replace(b"\n", b" ") for row in map(bytes, decode(_RAW_ROWS, body, "an array of objects"))
            )
        elif form is Form.ROW:
            body = body.replace(b"\n", b" ")
        lines = numbered_lines(body)
        first = 0
        for batch in parsed(self._parser, body, form):
            for row in np.flatnonzero(np.diff(batch.indptr) == 0):
                self._check_known(*lines[first + int(row)], form)
            yield batch
            first += batch.rows

    def _check_known(self, row: int, line: bytes, form: Form) -> None:
        """A row without a feature may have empty cells, but not only columns that the model does not know."""
        names = decode(_RAW_CELLS, line, "an object")
        if names and not any(column in names or column.partition(".")[0] in names for column in self._columns):
            shown = ", ".join(self._columns[:8]) + (", ..." if len(self._columns) > 8 else "")
            message = f"found none of the model's columns among {', '.join(names)[:80]}; expected {shown}"
            raise placed(f"row {row}: {message}", form)
