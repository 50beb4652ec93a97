"""Bodies of requests to batches, by the model's own reading: the same slots as in training.

    a table         a row is a JSON object, column to cell, read by the reader of JSON lines
    numbered ids    {"features": {"name": number or string}} or {"slots": [...], "values": [...]}; a name that is all
                    digits is an id, as in svmlight text; a string is part of the name (`city=rome`), as in dicts
    Vowpal Wabbit   the same; an object among the features is a namespace: {"user": {"age": 30}}

Lines of text are those of the model's format: svmlight, Vowpal Wabbit, or JSON lines for tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from lessram.data.batch import Batch
from lessram.data.formats import Reading
from lessram.serving.server.feature_rows import NumberedRows
from lessram.serving.server.forms import Form
from lessram.serving.server.table_rows import TableRows
from lessram.serving.server.vw_rows import NamespaceRows


class RowReader(Protocol):
    """Reads bodies for one model. One for each thread: parsers have buffers of their own."""

    def batches(self, body: bytes, form: Form) -> Iterator[Batch]:
        """The rows of a body, in order; the arrays of a batch are valid until the next one is asked for."""


def row_reader(reading: Reading, slots: int) -> RowReader:
    """The reader of rows for a model that was trained to read this way.

    >>> [batch] = row_reader(Reading(), 1 << 20).batches(b'{"features": {"7": 0.5, "city": "rome"}}', Form.ROW)
    >>> batch.slots, batch.values
    (array([     7, 449222], dtype=uint32), array([0.5, 1. ], dtype=float32))
    """
    if reading.schema:
        return TableRows(reading.schema, slots)
    return NamespaceRows(reading.vw, slots) if reading.vw else NumberedRows(reading, slots)
