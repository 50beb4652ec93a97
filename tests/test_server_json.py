"""The kernel for usual JSON rows: whatever it takes, the decoder of all JSON reads the same."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lessram.data.batch import Batch
from lessram.data.formats import Reading
from lessram.data.parsing import make_rules
from lessram.data.vw import VwOptions
from lessram.errors import DataError
from lessram.serving.server.feature_rows import FeatureRows, NumberedRows
from lessram.serving.server.forms import Form
from lessram.serving.server.json_kernel import LONGEST
from lessram.serving.server.usual_rows import UsualRows
from lessram.serving.server.vw_rows import NamespaceRows

SLOTS = 1000
Rows = list[tuple[list[int], list[float]]]


class Nothing(UsualRows):
    """Finds everything unusual, so that the decoder reads it."""

    def read(self, body: bytes, *, many: bool) -> Batch | None:
        return None


def plain(batch: Batch) -> Rows:
    values = np.ones(len(batch.slots), np.float32) if batch.values is None else batch.values
    pairs = zip(batch.indptr[:-1].tolist(), batch.indptr[1:].tolist(), strict=True)
    return [(batch.slots[a:b].tolist(), values[a:b].tolist()) for a, b in pairs]


def usual(reader: FeatureRows, body: bytes, *, many: bool = True) -> Rows | None:
    batch = reader._usual.read(body, many=many)
    return None if batch is None else plain(batch)


def decoded(reader: FeatureRows, body: bytes, *, many: bool = True) -> Rows | str:
    before, reader._usual = reader._usual, Nothing(make_rules(SLOTS))
    try:
        return [row for batch in reader.batches(body, Form.ROWS if many else Form.ROW) for row in plain(batch)]
    except DataError as error:
        return str(error)
    finally:
        reader._usual = before


READERS = [
    NumberedRows(Reading(hash_seed=3), SLOTS),
    NumberedRows(Reading(hash="all"), SLOTS),
    NumberedRows(Reading(), 1 << 33),
    NumberedRows(Reading(hash="none"), SLOTS),
    NamespaceRows(VwOptions(), SLOTS),
]
NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**25), 10**25) | st.integers(-2, 2)
NAMES = st.text(max_size=20) | st.integers(0, 10**20).map(str)
NAMED = st.fixed_dictionaries({"features": st.dictionaries(NAMES, NUMBERS | st.text(max_size=9) | st.booleans())})
SLOT = st.integers(0, SLOTS)
SLOTTED = st.lists(st.tuples(SLOT, NUMBERS)).map(
    lambda row: {"slots": [s for s, _ in row], "values": [v for _, v in row]}
)
ROWS = st.lists(NAMED | SLOTTED | st.fixed_dictionaries({"slots": st.lists(SLOT)}), max_size=4)
WRITTEN = [{}, {"separators": (",", ":")}, {"indent": 1}, {"ensure_ascii": False}]


@pytest.mark.parametrize("reader", READERS)
@settings(max_examples=300)
@given(ROWS, st.sampled_from(WRITTEN))
def test_what_is_usual_means_what_the_decoder_reads(reader: FeatureRows, rows: Any, how: dict[str, Any]) -> None:
    body = json.dumps(rows, **how).encode("utf-8", "replace")
    found = usual(reader, body)
    assert found is None or found == decoded(reader, body)
    for row in rows:
        one = json.dumps(row, **how).encode("utf-8", "replace")
        found = usual(reader, one, many=False)
        assert found is None or found == decoded(reader, one, many=False)


PIECES = ["[", "]", "{", "}", ",", ":", '"', " ", "\n", "\\", "0", "7", "-", "+", ".", "e", "1", "é", "\x00", "\x0b"]
PIECES += [
    '"slots"',
    '"values"',
    '"features"',
    "true",
    "false",
    "null",
    "12.5e-3",
    '"a":1',
    '"a":"b"',
    "[1,2]",
    "1e-400",
]
BODY = '[{"slots": [3, 14], "values": [0.5, -2e1]}, {"features": {"a": 1, "7": 2.25, "b": "c", "d": true}}]'
EDITS = st.lists(
    st.tuples(st.integers(0, len(BODY)), st.integers(0, 3), st.sampled_from(PIECES)), min_size=1, max_size=3
)


@settings(max_examples=3000)
@given(EDITS)
@example([(35, 0, "1")])
def test_no_damage_is_taken_that_the_decoder_refuses(edits: list[tuple[int, int, str]]) -> None:
    text = BODY
    for place, gone, new in edits:
        text = text[:place] + new + text[place + gone :]
    found = usual(READERS[0], text.encode())
    assert found is None or found == decoded(READERS[0], text.encode())


NUMBER = st.text("0123456789.eE+-", min_size=1, max_size=30) | st.floats(allow_nan=False).map(repr)


@settings(max_examples=3000)
@given(NUMBER)
@example("1.")
@example("1.e5")
@example("-.5")
@example("01")
@example("-0")
@example("1e-400")
@example("1" * 63)
@example("1" * 64)
@example("0." + "1" * 70)
def test_numbers_are_those_of_json(number: str) -> None:
    for form in ('[{"slots": [1], "values": [%s]}]', '[{"features": {"a": %s}}]', '[{"slots": [%s]}]'):
        body = (form % number).encode()
        found = usual(READERS[0], body)
        assert found is None or found == decoded(READERS[0], body)


@pytest.mark.parametrize(
    "body",
    [
        b'[{"slots": [3, 999]}, {"slots": []}]',
        b'[{"slots": [3, 9], "values": [0.25, 0]}, {"slots": [1]}]',
        b' [ { "features" : { "a" : 1 , "12" : 0.1234567890123456789 , "" : 2 } } ] \r\n',
        b'[{"features": {"city": "rome", "yes": true, "no": false, "1234567890123456": 1e-5, "0007": -3}}]',
        '[{"features": {"città": "È"}}, {"slots": [5]}, {"features": {}}]'.encode(),
        b'[{"features": {"%b": "%b", "1a": 1}}]' % (b"n" * 100, b"v" * (LONGEST - 101)),
        json.dumps([{"features": {f"name{i}": i for i in range(2000)}}]).encode(),
    ],
)
def test_usual_bodies_are_read_by_the_kernel(body: bytes) -> None:
    assert usual(READERS[0], body) == decoded(READERS[0], body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"\xff",
        b'[{"features": {"a": 1, "a": 2}}]',
        b'[{"features": {"a": "x", "a": "y"}}]',
        b'[{"features": {"\\u0061": 1}}]',
        b'[{"features": {"a": null}}]',
        b'[{"features": {"12345678901234567": 1}}]',
        b'[{"values": [1], "slots": [2]}]',
        b'[{"slots": [1]}',
        b'[{"slots": [1]}] 2',
        b'[{"features": {"%b": "%b"}}]' % (b"n" * 100, b"v" * LONGEST),
        json.dumps([{"features": {f"name{i}": i for i in range(2100)}}]).encode(),
    ],
)
def test_the_rest_is_left_to_the_decoder(body: bytes) -> None:
    assert usual(READERS[0], body) is None


def test_names_that_are_not_hashed_here_are_left_to_their_readers() -> None:
    body = b'[{"features": {"a": 1}}]'
    assert [usual(reader, body) is None for reader in READERS] == [False, False, False, True, True]
    assert [usual(reader, b'[{"slots": [9]}]') for reader in READERS] == [[([9], [1.0])]] * 5


def test_stamps_of_rows_may_run_out() -> None:
    reader = NumberedRows(Reading(), SLOTS)
    reader._usual._scratch.stamp[0] = (1 << 32) - 2
    body = b'[{"features": {"a": 1, "b": 2}}, {"features": {"a": 1, "b": 2}}, {"features": {"a": 1, "b": 2}}]'
    assert usual(reader, body) == decoded(reader, body)
    assert reader._usual._scratch.stamp[0] == 2
