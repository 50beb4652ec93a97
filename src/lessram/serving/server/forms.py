"""What bodies hold, and what is shared by all who read them: JSON, lines, and the place of an error."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any

import msgspec

from lessram.data.batch import Batch
from lessram.data.lines import chunk_of
from lessram.data.parsing import BadLine
from lessram.data.pipeline import Parser
from lessram.errors import DataError

PREDICTING: dict[str, Any] = {"labels": "real", "keep_unlabelled": True}
"""For parsers: labels may be anything, or missing."""


class Form(Enum):
    """What a body holds."""

    ROW = "one row as a JSON object"
    ROWS = "rows as a JSON array"
    JSON_LINES = "one JSON object a line"
    TEXT = "one row of text a line"


def parsed(parser: Parser, body: bytes, form: Form) -> Iterator[Batch]:
    chunk = chunk_of(body)
    place = None
    while place != chunk.stop:
        part = parser.parse(chunk, place)
        refuse(part.reports, form)
        place = part.stop
        yield part.batch


def refuse(reports: list[BadLine], form: Form) -> None:
    if reports:
        line = int(reports[0].place.rpartition(":")[2])
        raise placed(f"row {line - 1}: {reports[0].message}", form)


_PLACE = re.compile(r"row (\d+)(?:, |: )")


def placed(message: str, form: Form, numbers: Sequence[int] | None = None) -> DataError:
    """The error with its place as the sender knows it: which line, which row of the array, or the only one.

    `numbers` are those of the rows, from 0, where they are not those of the message.
    """
    match = _PLACE.match(message)
    if match is None or form is Form.ROW:
        return DataError(message[match.end() :] if match else message)
    number, rest = int(match[1]), message[match.end() :]
    number = number if numbers is None else numbers[number]
    return DataError(rest, place=f"row {number}" if form is Form.ROWS else f"line {number + 1}")


def numbered_lines(body: bytes) -> list[tuple[int, bytes]]:
    """The lines that are not blank, and their numbers from 0."""
    return [(number, line) for number, line in enumerate(body.split(b"\n")) if line.strip()]


def decode(decoder: Any, body: bytes, expected: str) -> Any:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"found JSON that will not do ({error}), expected {expected}") from None
