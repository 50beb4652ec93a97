"""JSON lines for tests: the reader without its kernel as an oracle, and lines of every sort, right and wrong."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import reference_table
from guarded import guarded_chunk

from lessram.data.json_objects import BadRow, JsonObjects
from lessram.data.jsonl import JsonParser
from lessram.data.parsing import REPORTS, BadLine
from lessram.data.rows import INFINITE, TOO_LARGE, ParsedPart
from lessram.data.schema import ColumnScale, Schema, Tokens

SLOTS = 2**20
EVERY = 10**9

FLAT = Schema(
    columns=("click", "site", "price", "note", "id", "many", "the longest name of all columns", "서울"),
    kinds=("label", "categorical", "numeric", "text", "ignored", "weight", "categorical", "numeric"),
    tokens=Tokens(pairs=True, characters=(2, 3)),
    interactions=(("site", "price"), ("site", "note"), ("price", "price", "site")),
    scales=(ColumnScale("price", 1.5, 0.25),),
)
NESTED = Schema(
    columns=("click", "user.age", "user.home.city", "user.home.", "a", "a.b", "a.b.c", ".x", "note"),
    kinds=("label", "numeric", "categorical", "categorical", "categorical", "categorical", "text", "numeric", "text"),
)


def by_kernel(text: bytes, schema: Schema, *, slots: int = SLOTS, tolerate: int = EVERY, **how: Any) -> ParsedPart:
    return JsonParser(schema, slots, **how).parse(guarded_chunk(text, "a.jsonl"), tolerate=tolerate)


def account(part: ParsedPart) -> tuple[Any, ...]:
    """The rows of a part, what it says of bad lines, and the number of those without a label."""
    batch = part.batch
    values = np.ones(batch.features, np.float32) if batch.values is None else batch.values
    weights = np.ones(batch.rows, np.float32) if batch.weights is None else batch.weights
    rows = [
        (_bits(label), _bits(weight), [(slot, _bits(value)) for slot, value in zip(slots, x, strict=True)])
        for label, weight, slots, x in zip(
            batch.labels,
            weights,
            np.split(batch.slots, batch.indptr[1:-1]),
            np.split(values, batch.indptr[1:-1]),
            strict=batch.rows > 0,
        )
    ]
    return rows, part.bad, part.reports, part.unlabelled


def _bits(number: np.float32) -> int:
    return int(np.float32(number).view(np.uint32))


def by_decoder(
    text: bytes, schema: Schema, *, labels: str = "binary", keep_unlabelled: bool = False
) -> tuple[Any, ...]:
    """The account of a text, each line decoded and made into a row in plain Python."""
    real, rows, bad, unlabelled = labels == "real", [], [], 0
    objects = JsonObjects(schema, real_labels=real)
    for number, line in enumerate(text.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            cells = _cells(objects, line, schema)
            label, weight, features = reference_table.row(cells, schema, SLOTS, real)
        except BadRow as error:
            bad.append(BadLine(f"a.jsonl:{number}", str(error)))
        except reference_table.Bad:
            bad.append(BadLine(f"a.jsonl:{number}", TOO_LARGE[INFINITE]))
        else:
            unlabelled += bool(np.isnan(label))
            if keep_unlabelled or not np.isnan(label):
                rows.append((_bits(label), _bits(weight), [(slot, _bits(value)) for slot, value in features]))
    return rows, len(bad), bad if len(bad) <= REPORTS else [*bad[: REPORTS - 1], bad[-1]], unlabelled


def _cells(objects: JsonObjects, line: bytes, schema: Schema) -> list[bytes | np.float32 | None]:
    """The cells of a line as the slow reader of tables takes them."""
    used = iter(objects.cells(line))
    cells = [None if kind == "ignored" else next(used) for kind in schema.kinds]
    scales = {scale.column: scale for scale in schema.scales or ()}

    def cell(name: str, value: str | float | None) -> bytes | np.float32 | None:
        if value is None or isinstance(value, str):
            return None if value is None else value.encode()
        scale = scales.get(name, ColumnScale(name, 0.0, 1.0))
        return np.float32((np.float64(np.float32(value)) - scale.centre) / scale.unit)

    return [cell(name, value) for name, value in zip(schema.columns, cells, strict=True)]


_NUMBERS = ["0", "1", "-1", "17", "0.5", "2.0", "1e5", "1E-3", "0.0001", "-3.25e-1", "12345678", "99999999.5"]
_NUMBERS += ["123456789012345678", "1234567890123456789", "0.123456789012345"]
_RARE_NUMBERS = ["-0", "-0.0", "2.50", "0.00001", "0.000", "3.4e38", "3.5e38", "1e39", "1e400", "0.1234567890123456"]
_RARE_NUMBERS += ["1.00000005960464488641292746251565404236316680908203125"]
_WRONG = [
    "01",
    "+1",
    ".5",
    "1.",
    "1e",
    "1e+",
    "-",
    "1.2.3",
    "0x10",
    "NaN",
    "Infinity",
    "nul",
    "tru",
    '"open',
    "{}",
    "[]",
]
_WRONG += ["[1", '{"a"', '{"a":}', "}", "[1,]", '{"a":1,}', '"\\ud83d"', '"\\ude00\\ud83d"', '"\\ud83dx"', '"\\u12g4"']
_WRONG += ['"\\q"', '"tab\tin it"', '"yes"', '"1_000"', '"nan"']
_STRINGS = [
    '"rome"', '"oslo"', '""', '"sixteen letters!"', '"the seventeen cat"', '"' + "word " * 30 + '"',
    '"The cat sat on \\"a\\" mat"', '"\\u00e9t\\u00e9"', '"\\ud83d\\ude00 hi"', '"\\/\\b\\f\\n\\r\\t\\\\\\""',
    '"\\u0000"', '"\\u0041\\u0800\\uffff"', '"서울 영화"', '"été"', '"😀"', '"\x7f"', '"\\u0031"',
    '"\u0080\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff"',
]  # fmt: skip
_NUMBERS_AS_STRINGS = [f'"{text}"' for text in (" 7 ", "0.5", "1e3", "+5", "5.", "1", "-1", "12345678.25")]
_KEYS = {
    FLAT: ["click", "site", "price", "note", "id", "many", "the longest name of all columns", "서울", "other", "sit"],
    NESTED: [
        "click",
        "user",
        "user.age",
        "age",
        "home",
        "city",
        "home.city",
        "a",
        "b",
        "c",
        "b.c",
        "",
        "x",
        ".x",
        "note",
    ],
}
_BYTES = b' \t\r\n\x00\x0b"\\{}[]:,0129.-+eEtfnu\x1f\x7f\x80\xc2\xe0\xed\xf0\xf4\xff'


class Lines:
    """Random lines for a schema: half of them right, the others rare or wrong in some of their parts."""

    def __init__(self, schema: Schema, seed: int) -> None:
        self._chance, self._keys, self._schema = random.Random(seed), _KEYS[schema], schema
        self._wild = False

    def _drawn(self, probability: float) -> bool:
        return self._chance.random() < probability

    def _key(self, name: str) -> str:
        key = json.dumps(name, ensure_ascii=self._drawn(0.5))
        return "".join(f"\\u{ord(c):04x}" if self._drawn(0.02) and c.isascii() and c.isalpha() else c for c in key)

    def _scalar(self, name: str) -> str:
        if self._wild and self._drawn(0.2):
            return self._chance.choice(self._chance.choice([_RARE_NUMBERS, _WRONG]))
        if name == "click":
            return self._chance.choice(["0", "1", "-1", "true", '"1"', "1.0", "null"])
        numeric = name in self._schema.columns and self._schema.of(name) in ("numeric", "weight")
        numbers = ["null", "true", *_NUMBERS, *_NUMBERS_AS_STRINGS]
        return self._chance.choice(numbers if numeric else ["false", *numbers, *_STRINGS, *_STRINGS])

    def _value(self, name: str, depth: int) -> str:
        inside = name in ("user", "home", "b", "other") or (self._wild and self._drawn(0.1))
        if depth < 4 and inside and self._drawn(0.8):
            return self._list(depth) if self._drawn(0.2) else self._object(depth + 1)
        return self._scalar(name)

    def _list(self, depth: int) -> str:
        return (
            "[" + self._comma().join([self._value("other", depth + 1) for _ in range(self._chance.randrange(3))]) + "]"
        )

    def _blank(self) -> str:
        return self._chance.choice(["", "", " ", "\t", " \r "])

    def _comma(self) -> str:
        return f"{self._blank()},{self._blank()}"

    def _object(self, depth: int) -> str:
        names = [self._chance.choice(self._keys) for _ in range(self._chance.randrange(8))]
        names = names if self._wild and self._drawn(0.2) else list(dict.fromkeys(names))
        members = [f"{self._key(name)}{self._blank()}:{self._blank()}{self._value(name, depth)}" for name in names]
        return "{" + self._blank() + self._comma().join(members) + self._blank() + "}"

    def _line(self) -> bytes:
        self._wild = self._drawn(0.4)
        line = self._object(0)
        if self._drawn(0.8) and '"click"' not in line:
            line = '{"click": ' + self._chance.choice("01") + ("" if line.strip("{} \t\r") == "" else ",") + line[1:]
        return line.encode("utf-8", "surrogatepass") + self._chance.choice([b"", b"", b"\r", b" "])

    def text(self, lines: int) -> bytes:
        text = bytearray(b"\n".join(self._line() for _ in range(lines)) + self._chance.choice([b"\n", b""]))
        for _ in range(self._chance.choice([0, 0, 0, 1, 2]) if text else 0):
            place = self._chance.randrange(len(text))
            change, byte = self._chance.randrange(3), self._chance.choice(_BYTES)
            text[place : place + (change != 1)] = bytes([byte] if change else [])
        return bytes(text)
