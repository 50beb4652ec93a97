"""JSON rows of the usual shape to a batch by one kernel: no object of Python for a row, a name or a number."""

from __future__ import annotations

from typing import Any

import numpy as np

from lessram.data.batch import Batch
from lessram.data.parsing import RowBuffers, Rules
from lessram.data.text import PADDING
from lessram.serving.server.json_kernel import UNUSUAL, make_scratch, read_rows


class UsualRows:
    """Reads bodies whose rows are all usual; of names, only if they are hashed under a seed."""

    def __init__(self, rules: Rules, seed: np.uint32 | np.uint64 | None = None) -> None:
        self._names = seed is not None and rules.hashing
        self._seed: Any = np.uint32(0) if seed is None else seed
        self._rules, self._buffers, self._scratch = rules, RowBuffers(rules), make_scratch()

    def read(self, body: bytes, *, many: bool) -> Batch | None:
        """The rows of an array, or the only one; None where something is wrong or just unusual."""
        if not _is_text(body):
            return None
        columns = self._buffers.fit(len(body) // 2 + 1)  # a slot has two bytes at least
        text = np.frombuffer(body + bytes(PADDING), np.uint8)
        rows, features, ones = read_rows(
            text, len(body), many, self._names, self._rules, self._seed, columns, self._scratch
        )
        if rows == UNUSUAL:
            return None
        values = None if ones else columns.values[:features]
        return Batch(columns.labels[:rows], columns.indptr[: rows + 1], columns.slots[:features], values)


def _is_text(body: bytes) -> bool:
    if body.isascii():
        return True
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True
