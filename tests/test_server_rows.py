"""Bodies of requests become the slots and values that the model was trained on."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lessram.data.batch import Batch
from lessram.data.formats import Reading
from lessram.data.matrix import Matrix
from lessram.data.schema import Schema
from lessram.data.vw import VwOptions
from lessram.errors import DataError
from lessram.numerics.loss import probabilities
from lessram.serving.server.forms import Form
from lessram.serving.server.loaded import probability
from lessram.serving.server.rows import row_reader
from lessram.serving.server.vw_rows import vw_line

SLOTS = 1000
TABLE = Reading(schema=Schema(columns=("click", "site", "user.age"), kinds=("label", "categorical", "numeric")))
WORDS = Reading(vw=VwOptions())


def plain(batch: Batch) -> list[tuple[list[int], list[float]]]:
    values = np.ones(len(batch.slots), np.float32) if batch.values is None else batch.values
    pairs = zip(batch.indptr[:-1].tolist(), batch.indptr[1:].tolist(), strict=True)
    return [(batch.slots[a:b].tolist(), values[a:b].tolist()) for a, b in pairs]


def rows(reading: Reading, body: bytes, form: Form) -> list[tuple[list[int], list[float]]]:
    return [row for batch in row_reader(reading, SLOTS).batches(body, form) for row in plain(batch)]


NAMES = st.text(max_size=20).filter(lambda name: not name.isdecimal()) | st.integers(0, 2**64 - 1)
VALUES = st.floats(-1e30, 1e30) | st.integers(-9, 9) | st.booleans() | st.text(max_size=5)


@given(st.lists(st.dictionaries(NAMES, VALUES, max_size=8), min_size=1, max_size=5), st.sampled_from(["auto", "all"]))
def test_named_features_are_hashed_as_dicts_are(dicts: list[dict[Any, Any]], hash: str) -> None:
    expected = [row for batch in Matrix(dicts, SLOTS, hash=hash, hash_seed=3).batches() for row in plain(batch)]
    body = json.dumps([{"features": {str(name): value for name, value in row.items()}} for row in dicts]).encode()
    if any(str(name) in row for row in dicts for name in row if isinstance(name, int)):
        return  # a number and its digits as a name are one in JSON
    reading = Reading(hash=hash, hash_seed=3)
    numbered = [{n: v for n, v in row.items() if not (isinstance(n, int) and isinstance(v, str))} for row in dicts]
    if numbered == dicts:  # `7=x` is a name for both, but only a dict may have it besides `7`
        assert rows(reading, body, Form.ROWS) == expected


def test_rows_of_slots_and_rows_of_features_keep_their_order() -> None:
    body = b'[{"slots": [3, 9]}, {"features": {"7": 2}}, {"slots": [1, 2], "values": [0.5, 0]}, {"slots": []}]'
    assert rows(Reading(), body, Form.ROWS) == [([3, 9], [1, 1]), ([7], [2]), ([1], [0.5]), ([], [])]


def test_forms_agree() -> None:
    text = b"1 7:2 1000000:0.5\n0 9"
    expected = rows(Reading(), text, Form.TEXT)
    assert expected[1] == ([9], [1.0])
    lines = b'{"features": {"7": 2, "1000000": 0.5}}\n\n{"features": {"9": 1}}\n'
    assert rows(Reading(), lines, Form.JSON_LINES) == expected
    assert rows(Reading(), b'{"features": {"9": 1}}', Form.ROW) == expected[1:]


def test_namespaces_are_lines_of_vowpal_wabbit_text() -> None:
    row = {"tall": 1, "user": {"age": 30.5, "city": "rome"}, "page": {"x": 2}}
    assert vw_line(row) == "| tall:1 |user age:30.5 city=rome |page x:2"
    expected = rows(WORDS, b"| tall |user age:30.5 city=rome |page x:2", Form.TEXT)
    assert len(expected[0][0]) == 4
    assert rows(WORDS, json.dumps([{"features": row}]).encode(), Form.ROWS) == expected


def test_cells_of_a_table() -> None:
    lines = b'{"site": "rome", "user": {"age": 3}}\n{"site": null, "other": 1}\n{"user.age": 2}\n'
    expected = rows(TABLE, lines, Form.JSON_LINES)
    assert [values for _, values in expected] == [[1, 3], [], [2]]
    array = json.dumps([json.loads(line) for line in lines.splitlines()], indent=1).encode()
    assert rows(TABLE, array, Form.ROWS) == expected
    assert rows(TABLE, b'{\n"site": "rome",\n"user": {"age": 3}}', Form.ROW) == expected[:1]


DEEP = b"[" * 100_000
WRONG = [
    (Reading(), b"[", Form.ROWS, "found JSON that will not do .*truncated.*expected an array of"),
    (Reading(), b"\xff", Form.ROW, "found JSON that will not do"),
    (Reading(), b'{"feature": {}}', Form.ROW, r"unknown field `feature`.*expected .\"features\""),
    (Reading(), b"{}", Form.ROW, 'expected either "features" or "slots"'),
    (Reading(), b'[{"slots": [1]}, {"slots": [1], "values": []}]', Form.ROWS, r"0 values for 1 slots.*`\$\[1\]`"),
    (Reading(), b'[{"slots": [1.5]}]', Form.ROWS, r"Expected `int`, got `float`.*`\$\[0\].slots\[0\]`"),
    (Reading(), b'[{"slots": [1]}, {"slots": [1, 1000]}]', Form.ROWS, "^row 1: found slot 1000, expected 0 to 999$"),
    (Reading(), b'[{"slots": [-1]}]', Form.ROWS, "^row 0: found slot -1"),
    (Reading(), b'[{"slots": [%d]}]' % 2**70, Form.ROWS, "found a slot of more than 63 bits|got an integer"),
    (Reading(), b'[{"slots": [1], "values": [1e39]}]', Form.ROWS, r"^row 0: found 1e\+39 as a value"),
    (Reading(), b'[{"slots": [1]}, {"features": {"a": [1]}}]', Form.ROWS, r"^row 1: found \[1\] as the value of .*'a'"),
    (Reading(), b'{"features": {"a": null}}', Form.ROW, "^found None as the value of feature 'a'"),
    (Reading(), b'{"features": {"a": 1e39}}', Form.ROW, "^found 1e.39 as the value of feature 'a'"),
    (Reading(), b'{"features": {"%d": 1}}' % 2**64, Form.ROW, r"found feature 18446744073709551616, expected a number"),
    (Reading(hash="none"), b'{"features": {"a": 1}}', Form.ROW, "^found the name 'a', expected numbers only"),
    (Reading(hash="none"), b'{"features": {"1000": 1}}', Form.ROW, "^found feature 1000, expected one below 1000"),
    (Reading(), b"0 1:1\n0 1:x\n", Form.TEXT, "^line 2: found 'x' as the value of feature 1"),
    (WORDS, b"|a b:1\n|a b:\n", Form.TEXT, "^line 2: found .* behind a colon"),
    (WORDS, b'[{"features": {}}, {"features": {"a b": 1}}]', Form.ROWS, "^row 1: found the name 'a b', expected"),
    (WORDS, b'{"features": {"a": [1]}}', Form.ROW, r"^found \[1\] as the value of feature 'a', expected a number"),
    (TABLE, b'[{"site": "x"}, {"site": [1]}]', Form.ROWS, "^row 1: found list in column 'site', expected a string"),
    (TABLE, b'{"user.age": "old"}', Form.ROW, "^found 'old' in column 'user.age', expected a finite number"),
    (TABLE, b'[{"site": "x"}, {"town": "x"}]', Form.ROWS, "^row 1: found none of the model's columns among town; exp"),
    (TABLE, b'{"site": "x"}\nnonsense\n', Form.JSON_LINES, "^line 2: found 'nonsense', expected a JSON object"),
    (TABLE, b"rome,3", Form.TEXT, "^found text, expected JSON"),
    (TABLE, b"7", Form.ROWS, "expected an array of objects"),
    (Reading(), b'{"slots": [1]}\n\nxx\n', Form.JSON_LINES, "^line 3: found JSON that will not do .*byte 0"),
    (Reading(), b'{"slots": [1]}\n\n{"slots": [1000]}', Form.JSON_LINES, "^line 3: found slot 1000, expected"),
    (Reading(), b'{"slots": [1]}, {"slots": [2]}', Form.JSON_LINES, "^line 1: found JSON that will not do .*trailing"),
    (Reading(), b'{"features": {"a": 1\n"b": 1}}', Form.JSON_LINES, "^line 1: found JSON that will not do .*truncated"),
    (TABLE, b'{"site": "x"}\n\n{"town": "x"}', Form.JSON_LINES, "^line 3: found none of the model's columns"),
    (TABLE, b'{"town": 1e400}', Form.ROW, "^found none of the model's columns among town"),
    (TABLE, b'{"town": "\xff"}', Form.ROW, "^found none of the model's columns among town"),
    (TABLE, b'{"town": %s}' % (b"9" * 5000), Form.ROW, "^found none of the model's columns among town"),
    (Reading(), b'{"features": {"a": %s}}' % DEEP, Form.ROW, "^found JSON that will not do .*recursion"),
    (WORDS, b'[{"features": {"a": %s}}]' % DEEP, Form.ROWS, "^found JSON that will not do .*recursion"),
    (TABLE, b'[{"site": %s}]' % DEEP, Form.ROWS, "^found JSON that will not do .*recursion"),
]


def test_labels_of_table_rows_are_not_looked_at() -> None:
    expected = rows(TABLE, b'{"site": "rome", "user": {"age": 3}}', Form.ROW)
    assert len(expected[0][0]) == 2
    assert rows(TABLE, b'{"site": "rome", "user": {"age": 3}, "click": "unknown"}', Form.ROW) == expected


@pytest.mark.parametrize(("reading", "body", "form", "message"), WRONG)
def test_bad_rows_are_described(reading: Reading, body: bytes, form: Form, message: str) -> None:
    with pytest.raises(DataError, match=message):
        rows(reading, body, form)


@pytest.mark.parametrize("reading", [Reading(), WORDS, TABLE])
def test_no_rows_are_no_error(reading: Reading) -> None:
    assert rows(reading, b"[]", Form.ROWS) == []
    assert rows(reading, b"", Form.JSON_LINES) == []


def test_one_probability_is_that_of_many() -> None:
    margins = np.concatenate([np.linspace(-800, 800, 401), np.random.default_rng(1).normal(0, 5, 400), [0.0, -700.0]])
    assert [probability(margin) for margin in margins.tolist()] == probabilities(margins).tolist()
