"""What each part of a row adds to its margin.

The model is linear: z = intercept + Σ contributions. So a part of a row (a column, a word of a text, a named feature)
contributes the margin of a row that has only this part, less that of an empty row. What is left over comes from
features that are made of several parts: interactions, pairs of words. No names need to be kept by readers for this,
and any reading is explained by what it does.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from lessram.data.formats import Reading
from lessram.data.schema import Schema
from lessram.errors import DataError
from lessram.serving.server.forms import Form, decode
from lessram.serving.server.loaded import Loaded, probability

_ANY: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_WORDS = re.compile(r"\w+")
MOST_PARTS = 10_000


class Part(msgspec.Struct, frozen=True):
    """A part of a row and what it adds to the margin."""

    name: str
    contribution: float


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """A margin taken apart: margin = intercept + the contributions + rest."""

    margin: float
    probability: float | None
    intercept: float
    parts: list[Part]
    """The largest contribution first."""
    rest: float
    """What comes from several parts together."""


def explain(model: Loaded, body: bytes, form: Form) -> Explanation:
    """Take the prediction of one row apart."""
    total = model.margins(body, form)
    if len(total) != 1:
        raise DataError(f"found {len(total)} rows, expected one")
    names, empty, rows, plural = _split(model.reading, body, form)
    if len(names) > MOST_PARTS:
        raise DataError(f"found a row of {len(names)} parts, expected at most {MOST_PARTS} for taking it apart")
    whole = b"\n".join([empty, *rows]) if plural is not Form.ROWS else b"[%b]" % b",".join([empty, *rows])
    margins = model.margins(whole, plural)
    intercept = float(margins[0])
    sums: dict[str, float] = {}
    for name, margin in zip(names, margins[1:].tolist(), strict=True):
        sums[name] = sums.get(name, 0.0) + margin - intercept
    parts = [Part(name, amount) for name, amount in sorted(sums.items(), key=lambda item: -abs(item[1]))]
    return Explanation(
        margin=float(total[0]),
        probability=probability(float(total[0])) if model.logistic else None,
        intercept=intercept,
        parts=parts,
        rest=float(total[0]) - intercept - sum(sums.values()),
    )


def _split(reading: Reading, body: bytes, form: Form) -> tuple[list[str], bytes, list[bytes], Form]:
    """The names of a row's parts, an empty row, a row for each part, and the form of all of these together."""
    if form is Form.TEXT:
        pairs = _vw_parts(body) if reading.vw else _svmlight_parts(body)
        return [name for name, _ in pairs], b"|" if reading.vw else b"0", [row for _, row in pairs], Form.TEXT
    row = decode(_ANY, body, "an object")
    named = _table_parts(row, reading.schema) if reading.schema else _feature_parts(row)
    empty: Any = {} if reading.schema else {"features": {}}
    encode = msgspec.json.encode
    return [name for name, _ in named], encode(empty), [encode(part) for _, part in named], Form.ROWS


def _svmlight_parts(body: bytes) -> list[tuple[str, bytes]]:
    words = body.partition(b"#")[0].split()[1:]
    return [(word.decode("utf-8", "replace"), b"0 " + word) for word in words]


def _vw_parts(body: bytes) -> list[tuple[str, bytes]]:
    parts = []
    for namespace in body.strip().split(b"|")[1:]:
        words = namespace.split()
        head = words.pop(0) if words and not namespace[:1].isspace() else b""
        for word in words:
            name = b"^".join(filter(None, [head.partition(b":")[0], word]))
            parts.append((name.decode("utf-8", "replace"), b"|%b %b" % (head, word)))
    return parts


def _feature_parts(row: dict[str, Any]) -> list[tuple[str, Any]]:
    if row.get("slots") is not None:
        values = row.get("values") or [1] * len(row["slots"])
        pairs = zip(row["slots"], values, strict=True)
        return [(f"slot {slot}", {"slots": [slot], "values": [value]}) for slot, value in pairs]
    parts = []
    for name, value in row["features"].items():
        if isinstance(value, dict):
            parts += [(f"{name}^{_shown(key, v)}", {"features": {name: {key: v}}}) for key, v in value.items()]
        else:
            parts.append((_shown(name, value), {"features": {name: value}}))
    return parts


def _table_parts(row: dict[str, Any], schema: Schema) -> list[tuple[str, Any]]:
    parts: list[tuple[str, Any]] = []
    for column in schema.features:
        path = column.split(".", 1)
        cell, holder = row.get(column), row.get(path[0])
        if cell is None and len(path) == 2 and isinstance(holder, dict):
            cell = _below(holder, path[1])
        if cell is None or cell == "":
            continue
        if schema.of(column) == "text" and isinstance(cell, str):
            parts += [(f"{column}: {word.lower()}", {column: word}) for word in _WORDS.findall(cell)]
        else:
            parts.append((_shown(column, cell), {column: cell}))
    return parts


def _below(holder: dict[str, Any], path: str) -> Any:
    first, _, rest = path.partition(".")
    found = holder.get(path, holder.get(first) if rest else None)
    return _below(found, rest) if rest and isinstance(found, dict) else found


def _shown(name: str, value: Any) -> str:
    return f"{name} = {value}"
