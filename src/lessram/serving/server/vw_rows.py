"""Rows of models of Vowpal Wabbit text: features by name are written as a line of it, and read as such."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from lessram.data.batch import Batch
from lessram.data.parsing import make_rules
from lessram.data.vw import VwOptions, VwParser
from lessram.errors import DataError
from lessram.serving.server.feature_rows import FeatureRows
from lessram.serving.server.forms import PREDICTING, Form, parsed
from lessram.serving.server.usual_rows import UsualRows


class NamespaceRows(FeatureRows):
    """Rows of features by namespace and name."""

    def __init__(self, options: VwOptions, slots: int) -> None:
        super().__init__(slots, UsualRows(make_rules(slots)))
        self._parser = VwParser(slots, options, **PREDICTING)

    def _text(self, body: bytes) -> Iterator[Batch]:
        return parsed(self._parser, body, Form.TEXT)

    def _named(self, rows: list[dict[str, Any]]) -> Iterator[Batch]:
        lines = [vw_line(row, f"row {number}") for number, row in enumerate(rows)]
        return parsed(self._parser, "\n".join(lines).encode(), Form.ROWS)


_WORD = re.compile(r"[^\s|:\x00-\x1f]+")


def vw_line(row: dict[str, Any], place: str = "row 0") -> str:
    """A row as Vowpal Wabbit's text.

    >>> vw_line({"tall": 1, "user": {"age": 30.5, "city": "rome"}})
    '| tall:1 |user age:30.5 city=rome'
    """
    plain = {name: value for name, value in row.items() if not isinstance(value, dict)}
    spaces = {name: value for name, value in row.items() if isinstance(value, dict)}
    parts = ["|", *(_vw_feature(name, value, place) for name, value in plain.items())]
    for space, features in spaces.items():
        parts.append(f"|{_vw_word(space, place)}")
        parts += [_vw_feature(name, value, place) for name, value in features.items()]
    return " ".join(parts)


def _vw_feature(name: str, value: Any, place: str) -> str:
    if isinstance(value, str):
        return _vw_word(f"{name}={value}", place)
    if type(value) not in (int, float):
        found = msgspec.json.encode(value).decode()[:40]
        raise DataError(f"found {found} as the value of feature {name!r}, expected a number or a string", place=place)
    return f"{_vw_word(name, place)}:{value!r}"


def _vw_word(word: str, place: str) -> str:
    if not _WORD.fullmatch(word):
        raise DataError(f"found the name {word!r}, expected one without blanks, bars and colons", place=place)
    return word
