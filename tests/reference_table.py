"""Tables to rows in plain Python: slow, obvious, and without anything of ours."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
from sklearn.utils import murmurhash3_32

NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


class Bad(Exception):
    """The row is bad."""


def murmur(name: bytes, seed: int) -> int:
    return murmurhash3_32(name, seed, positive=True)


def combine(a: int, b: int) -> int:
    return (a * 16777619 ^ b) % 2**32


def number(cell: bytes) -> np.float32:
    cell = cell.strip(b" ")
    with np.errstate(over="ignore"):
        value = np.float32(float(cell)) if NUMBER.fullmatch(cell) else np.float32(np.nan)
    if not np.isfinite(value):
        raise Bad
    return value


def split_rows(text: bytes, delimiter: bytes = b",", quote: bytes = b'"') -> list[list[bytes] | None]:
    """The rows of delimited text, letter by letter; None for one whose quotes are wrong, up to its first newline."""
    text = text if text.endswith(b"\n") else text + b"\n"
    rows: list[list[bytes] | None] = []
    p = 0
    while p < len(text):
        start, cells, wrong = p, [], False
        while True:
            if quote and text[p : p + 1] == quote:
                cell, p = b"", p + 1
                while p < len(text) and (text[p : p + 1] != quote or text[p + 1 : p + 2] == quote):
                    cell += text[p : p + 1]
                    p += 2 if text[p : p + 1] == quote else 1
                if p >= len(text):
                    wrong = True
                    break
                p += 1
                if text[p : p + 2] == b"\r\n":
                    p += 1
                if text[p : p + 1] not in (delimiter, b"\n"):
                    wrong = True
                    break
            else:
                end = p
                while text[end : end + 1] not in (delimiter, b"\n"):
                    end += 1
                cell, p = text[p:end], end
                if text[p : p + 1] == b"\n":
                    cell = cell.removesuffix(b"\r")
            cells.append(cell)
            p += 1
            if text[p - 1 : p] == b"\n":
                break
        if wrong:
            rows.append(None)
            p = text.index(b"\n", start) + 1
        elif text[start:p] not in (b"\n", b"\r\n"):
            rows.append(cells)
    return rows


def words(cell: bytes) -> list[bytes]:
    small = bytes(c + 32 if 65 <= c <= 90 else c for c in cell)
    return re.findall(rb"[a-z0-9_\x80-\xff]+", small)


def tokens(cell: bytes, seed: int, schema) -> list[int]:
    found, before = [], None
    for word in words(cell):
        hashed = murmur(word, seed)
        if schema.tokens.words:
            found.append(hashed)
        if schema.tokens.pairs and before is not None:
            found.append(combine(before, hashed))
        before = hashed
        if schema.tokens.characters:
            letters = [bytes([c]) for c in b"\0" + word + b"\0"]
            letters = re.findall(rb"(?s).[\x80-\xbf]*", b"".join(letters))
            least, most = schema.tokens.characters
            for size in range(least, most + 1):
                for i in range(max(1, len(letters) - size + 1)):
                    found.append(murmur(b"".join(letters[i : i + size]), murmur(b"\0characters", seed)))
                if len(letters) < size:
                    break
    return found


def row(cells: list[bytes | np.float32 | None], schema, slots: int, real_labels: bool = False):
    """Label, weight and features of one row; raises Bad."""
    if len(cells) != len(schema.columns):
        raise Bad
    label, weight = np.float32(np.nan), np.float32(1)
    groups: dict[str, list[tuple[int, np.float32]]] = {name: [] for name in schema.columns}
    for name, kind, cell in zip(schema.columns, schema.kinds, cells, strict=True):
        if kind == "ignored" or cell is None or cell == b"":
            continue
        hashed = murmur(name.encode(), schema.seed)
        if kind == "categorical":
            groups[name] = [(murmur(cell, hashed), np.float32(1))]
        elif kind == "text":
            groups[name] = [(token, np.float32(1)) for token in tokens(cell, hashed, schema)]
        else:
            value = number(cell) if isinstance(cell, bytes) else cell
            if kind == "numeric":
                groups[name] = [(hashed, value)] if value != 0 else []
            elif kind == "label":
                if not real_labels and value not in (0, 1, -1):
                    raise Bad
                label = value if real_labels else max(value, np.float32(0))
            else:
                if value < 0:
                    raise Bad
                weight = value
    features = list(itertools.chain.from_iterable(groups.values()))
    for terms in sorted(schema.interactions, key=lambda terms: (len(terms), terms)):
        same = [i > 0 and terms[i] == terms[i - 1] for i in range(len(terms))]
        features += products([groups[name] for name in terms], same)
    if any(not np.isfinite(value) for _, value in features):
        raise Bad
    return label, weight, [(hashed % slots, value) for hashed, value in features]


def products(groups, same) -> list[tuple[int, np.float32]]:
    """All choices of one feature from each group, in order; `same[i]`: group i is group i - 1."""

    def choose(depth, start, hashed, value):
        for i in range(start if same[depth] else 0, len(groups[depth])):
            feature, x = groups[depth][i]
            joined = feature if depth == 0 else combine(hashed, feature)
            with np.errstate(over="ignore"):
                product = np.float32(x) if depth == 0 else value * np.float32(x)
            if depth + 1 == len(groups):
                yield joined, product
            else:
                yield from choose(depth + 1, i, joined, product)

    return list(choose(0, 0, 0, np.float32(1)))


def table(rows, schema, slots: int, real_labels: bool = False):
    """The good rows, the number of bad ones, and of those without a label."""
    good, bad, unlabelled = [], 0, 0
    for cells in rows:
        try:
            if cells is None:
                raise Bad
            made = row(cells, schema, slots, real_labels)
        except Bad:
            bad += 1
            continue
        if math.isnan(made[0]):
            unlabelled += 1
        else:
            good.append(made)
    return good, bad, unlabelled
