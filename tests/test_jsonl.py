"""JSON lines: the kernel against the decoder, which reads every line; and columns that need not occur."""

from __future__ import annotations

import json

import numpy as np
import pytest
from commands import lessram
from guarded import guarded_chunk
from hypothesis import given, settings
from hypothesis import strategies as st
from json_lines import EVERY, FLAT, NESTED, SLOTS, Lines, account, by_decoder, by_kernel

from lessram import read_batches
from lessram.data import jsonl
from lessram.data import rows as rows_module
from lessram.data.csv import CsvOptions, CsvParser
from lessram.data.formats import Choices
from lessram.data.json_keys import make_keys
from lessram.data.json_objects import JsonObjects, lines_from
from lessram.data.jsonl import JsonParser
from lessram.data.lines import chunk_of
from lessram.data.schema import Schema
from lessram.errors import DataError

PREDICTING = {"labels": "real", "keep_unlabelled": True}
PAIR = Schema(columns=("click", "site"), kinds=("label", "categorical"))

# Lines that every reader takes ----------------------------------------------------------------------------------------

USUAL = [
    b'{"click": 1, "site": "rome", "price": 0.5, "note": "The cat sat", "id": 7, "many": 2.5}',
    b'{"many":1,"note":"","price":-3.25e-1,"site":"oslo","click":0}',
    b' { "click" : true , "site" : null , "price" : false }\t\r',
    b"{}",
    b'{"click": "1", "price": " 12.5 ", "many": "2"}',
    b'{"click": -1, "site": 17, "the longest name of all columns": true}',
    b'{"click": 1.0, "site": 2.0, "the longest name of all columns": -0.25}',
    b'{"click": 1, "site": "a \\"quoted\\" \\u00e9\\ud83d\\ude00\\n", "note": "\\uc11c\\uc6b8 x"}',
    '{"click": 1, "site": "서울", "note": "영화 최고!! été 😀", "서울": 3}'.encode(),
    b'{"click": 1, "\\uc11c\\uc6b8": 4, "\\u0073ite": "x"}',
    b'{"click": 1, "other": {"site": "no", "list": [1, [], {}, {"a": [true, null]}, "\\\\"]}, "site": "yes"}',
    b'{"click": 1, "price": 0.1234567890123456789, "site": 123456789012345678}',
    '{"click": 1, "서울": -0.0, "price": -0}'.encode(),
    b'{"click": 0, "site": "' + b"x" * 150 + b'", "note": "' + b"word " * 40 + b'"}',
    b"",
    b" \t\r",
]
RARE = [
    b'{"click": 1, "site": "a", "site": "b"}',
    b'{"click": 1, "site": 1e5}',
    b'{"click": 1, "site": 0.00001}',
    b'{"click": 1, "site": 2.50}',
    b'{"click": 1, "site": 12345678901234567890}',
    b'{"click": -0}',
    b'{"click": 1, "many": -0.0}',
    b'{"click": 1, "price": "\\u0031"}',
    b'{"click": 1, "price": 1.00000005960464488641292746251565404236316680908203125}',
    b'{"click": 1, "other": 1e400}',
    b'{"click": 1, "other": "\xff"}',
    b'{"click": 1, "other": ' + b"[" * 40 + b"]" * 40 + b"}",
]


@pytest.mark.parametrize("line", USUAL, ids=lambda line: repr(line[:40]))
def test_the_kernel_reads_what_is_usual(line, monkeypatch):
    expected = by_decoder(line, FLAT)
    monkeypatch.setattr(JsonObjects, "rewritten", lambda self, line: pytest.fail("the kernel left it to the decoder"))
    for end in (b"", b"\n", b"\r\n"):
        assert account(by_kernel(line + end, FLAT)) == expected
    assert expected[1] == 0


@pytest.mark.parametrize("line", RARE, ids=lambda line: repr(line[:40]))
def test_the_decoder_reads_what_is_rare(line, monkeypatch):
    calls = []
    rewritten = JsonObjects.rewritten
    monkeypatch.setattr(JsonObjects, "rewritten", lambda self, line: calls.append(line) or rewritten(self, line))
    found = account(by_kernel(b"\n".join([USUAL[0], line, USUAL[1]]), FLAT))
    assert calls == [line]
    assert found == by_decoder(b"\n".join([USUAL[0], line, USUAL[1]]), FLAT)
    assert len(found[0]) == 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"click": 7}', r"found 7 as the label ('click'), expected 0, 1, -1 or +1"),
        (b'{"click": "yes"}', "found 'yes' as the label ('click'), expected 0, 1, -1 or +1"),
        (b'{"click": 1, "price": "a"}', "found 'a' in column 'price', expected a finite number"),
        (b'{"click": 1, "price": 1e99}', "found inf in column 'price', expected a finite number"),
        (b'{"click": 1, "price": ' + b"9" * 400 + b"}", "found inf in column 'price', expected a finite number"),
        (b'{"click": 1, "site": [1]}', "found list in column 'site', expected a string, a number, true or false"),
        (b'{"click": 1, "note": {}}', "found dict in column 'note', expected a string"),
        (b'{"click": 1, "many": -1}', "found -1 as the weight ('many'), expected a finite number, not negative"),
        (b'{"click": 7, "note": {}, "site": []}', "found dict in column 'note', expected a string"),
        (b'{"click": 1, "price": 1e30, "site": "a"}', "found numbers whose products are too large, expected less"),
        (b"[1]", "found '[1]', expected a JSON object"),
        (b'{"click": 1', "found '{\"click\": 1', expected a JSON object"),
        (b'{"click": 1} {"click": 0}', 'found \'{"click": 1} {"click": 0}\', expected a JSON object'),
        (b'{"click": NaN}', "found '{\"click\": NaN}', expected a JSON object"),
        (b'{"other": ' + b"[" * 9999 + b"]" * 9999 + b"}", "expected a JSON object (maximum recursion depth exceeded"),
        (b"\xff\xfe", "expected a JSON object"),
    ],
)
def test_bad_json_lines_are_skipped_and_named(line, message):
    part = by_kernel(b'{"click": 1, "site": "a"}\n\n' + line + b'\n{"click": 0, "site": "b"}\n', FLAT)
    assert (part.bad, part.batch.labels.tolist()) == (1, [1, 0])
    assert part.reports[0].place == "a.jsonl:3"
    assert message in part.reports[0].message
    stopped = by_kernel(b'{"click": 1}\n' + line + b'\n{"click": 0}\n', FLAT, tolerate=0)
    assert (stopped.bad, stopped.batch.rows, stopped.stop.line) == (1, 1, 3)


# Any lines ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", [FLAT, NESTED], ids=["flat", "nested"])
@pytest.mark.parametrize("how", [{}, PREDICTING], ids=["training", "predicting"])
def test_the_kernel_gives_the_rows_of_the_decoder(schema, how):
    for seed in range(25):
        text = Lines(schema, seed).text(12)
        assert account(by_kernel(text, schema, **how)) == by_decoder(text, schema, **how), (seed, text)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.one_of(st.binary(max_size=30), st.sampled_from(USUAL + RARE)), max_size=8).map(b"\n".join))
def test_any_bytes_are_read_as_by_the_decoder(text):
    assert account(by_kernel(text, FLAT)) == by_decoder(text, FLAT)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.sampled_from(USUAL + RARE), min_size=1, max_size=4), st.data())
def test_mutated_lines_are_read_as_by_the_decoder(lines, data):
    text = bytearray(b"\n".join(lines) + b"\n")
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(text) - 1))
        text[place] = data.draw(st.one_of(st.sampled_from(b' ,"\\{}[]:\n0.e-u'), st.integers(0, 255)))
    assert account(by_kernel(bytes(text), FLAT)) == by_decoder(bytes(text), FLAT)


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=8,
)


@settings(deadline=None, max_examples=200)
@given(st.dictionaries(st.one_of(st.sampled_from(FLAT.columns), st.text(max_size=5)), values), st.booleans())
def test_whatever_the_standard_library_writes_is_read(row, escaped):
    text = json.dumps(row, ensure_ascii=escaped).encode("utf-8", "surrogatepass")
    assert account(by_kernel(text, FLAT)) == by_decoder(text, FLAT)


spelled = st.from_regex(r"\A-?(0|[1-9][0-9]{0,12})(\.[0-9]{1,25})?(e-?[0-9]{1,2})?\Z")
numbers = st.one_of(
    st.floats(-1e38, 1e38), st.integers(-(10**30), 10**30), spelled.filter(lambda text: abs(float(text)) < 1e38)
)


@settings(deadline=None, max_examples=300)
@given(st.lists(numbers, min_size=1, max_size=20))
def test_numbers_equal_those_of_python(numbers):
    schema = Schema(columns=("y", "x"), kinds=("label", "numeric"))
    words = [str(number) for number in numbers]
    lines = "".join(f'{{"y": {word}, "x": "{word}"}}\n' for word in words).encode()
    batch = by_kernel(lines, schema, labels="real").batch
    expected = np.array([float(word) for word in words]).astype(np.float32)
    assert np.array_equal(batch.labels, expected)
    values = np.ones(batch.features) if batch.values is None else batch.values
    assert np.array_equal(values, expected[expected != 0])


@settings(deadline=None, max_examples=200)
@given(st.lists(st.text(st.characters(blacklist_categories=["Cs"])), max_size=10), st.booleans())
def test_strings_equal_those_of_python(names, escaped):
    rows = [json.dumps({"click": 1, "site": name}, ensure_ascii=escaped).encode() for name in names]
    found = by_kernel(b"\n".join(rows), PAIR).batch
    quoted = b"".join(b'1,"%s"\n' % name.encode().replace(b'"', b'""') for name in names)
    expected = CsvParser(PAIR, SLOTS, CsvOptions(header=False)).parse(chunk_of(quoted)).batch
    assert found.slots.tolist() == expected.slots.tolist()


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 1000), st.integers(0, 60))
def test_nothing_outside_the_room_is_written(seed, features):
    text = Lines(FLAT, seed).text(10)
    parser, chunk, place = JsonParser(FLAT, SLOTS), guarded_chunk(text), None
    sizes = [(2, "f4"), (2, "f4"), (3, "i8"), (features, "u4"), (features, "f4")]
    guarded = [np.full(size + 8, 77, kind) for size, kind in sizes]
    scratch = np.full((2, len(text) + jsonl.MARGIN + 8), 77, np.uint8)
    parser._line = parser._line._replace(decoded=scratch[0, :-8], tokens=scratch[1, :-8])
    room = parser._room
    room.fit, room.grow = lambda rows, features: None, lambda rows, needed: False
    room.rows = rows_module.Rows(*(array[:-8] for array in guarded))
    room.rows.indptr[0] = 0
    room.products = room._products(features)
    whole, found = by_decoder(text, FLAT)[0], []
    while place != chunk.stop:
        part = parser.parse(chunk, place, tolerate=EVERY)
        found += account(part)[0]
        place = part.stop
        assert all((array[-8:] == 77).all() for array in [*guarded, *scratch])
    assert found == [row for row in whole if row in found]


# Objects in objects ---------------------------------------------------------------------------------------------------


def test_fields_of_objects_in_objects():
    text = b'{"click": 1, "user": {"age": 30, "home": {"city": "rome"}}}\n{"click": 0, "user.age": 5, "user": null}\n'
    schema = jsonl.guess_schema([chunk_of(text)], label="click")
    assert schema.columns == ("click", "user.age", "user.home.city")
    part = by_kernel(text, schema)
    assert part.bad == 0
    assert part.batch.values.tolist() == [30, 1, 5]


@pytest.mark.parametrize(
    "line",
    [
        b'{"user": {"home": {"city": "rome"}}}',
        b'{"user": {"home.city": "rome"}}',
        b'{"user.home.city": "rome"}',
        b'{"user": {"home": {"city": "oslo"}}, "user.home.city": "rome"}',
        b'{"user": {"home": {"city": "rome"}}, "user.home.city": null}',
        b'{"user": {"home": {"city": "oslo"}, "home.city": "rome"}}',
        b'{"user": {"home": {"city": "oslo"}}, "user": {"home": {"city": "rome"}}}',
        b'{"user": {"home": {"city": "oslo", "city": "rome"}}}',
    ],
)
def test_ways_to_a_column(line):
    schema = Schema(columns=("user.home.city",), kinds=("categorical",))
    expected = by_kernel(b'{"user.home.city": "rome"}', schema, **PREDICTING).batch.slots
    assert by_kernel(line, schema, **PREDICTING).batch.slots == expected
    for other in (b'{"user.home": {"city": "rome"}}', b'{"user": [{"home.city": "rome"}]}', b'{"user": 3}'):
        assert by_kernel(other, schema, **PREDICTING).batch.features == 0


def test_many_long_keys_are_told_apart():
    names = [f"a name that begins as all others do, number {i}" for i in range(500)]
    schema = Schema(columns=("y", *names), kinds=("label", *["numeric"] * 500))
    row = json.dumps({"y": 1, **{name: i for i, name in enumerate(names, 1)}, names[7] + "x": 3}).encode()
    assert by_kernel(row, schema).batch.values.tolist() == list(range(1, 501))
    places = make_keys(list(enumerate(names))).places
    runs = np.diff(np.flatnonzero(places == 0))
    assert runs.max() < 12, "keys are found in a few steps"


# Chunks, parts, threads -----------------------------------------------------------------------------------------------


def test_guesses_skip_bad_lines():
    assert jsonl.guess_schema([chunk_of(b'oops\n{"a": 1, "b": true}\n{"a": 2.5, "c": null}\n')]).kinds == (
        "numeric",
        "categorical",
        "categorical",
    )
    with pytest.raises(DataError, match="found no JSON object in the first lines"):
        jsonl.guess_schema([chunk_of(b"oops\n")])


def test_lines_are_found_whatever_their_length():
    lines = [b"x" * length for length in (1, 16_383, 16_384, 16_385, 70_000, 3)]
    text = b"\n \n".join(lines)
    found = list(lines_from(chunk_of(text), 0))
    assert [line for _, line in found] == lines
    assert all(text[start:].startswith(line) for start, line in found)
    assert list(lines_from(chunk_of(b""), 0)) == []


def test_parts_of_a_chunk_give_the_rows_of_the_whole(monkeypatch):
    text = b"".join(
        b'{"click": 1, "site": "s%d", "price": 2, "note": "some words", "id": %d}\n' % (i, i) for i in range(400)
    )
    whole = account(by_kernel(text, FLAT))[0]
    monkeypatch.setattr(rows_module, "ENOUGH", 10_000)
    parser, chunk, place, found, parts = JsonParser(FLAT, SLOTS), chunk_of(text), None, [], 0
    while place != chunk.stop:
        part = parser.parse(chunk, place)
        found, place, parts = found + account(part)[0], part.stop, parts + 1
    assert parts > 1
    assert found == whole


def test_any_number_of_threads_reads_the_same(tmp_path):
    lines = [line for line in USUAL + RARE if line.strip()] + [b'{"click": 7}']
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join(USUAL[:1] + lines * 1400 + [b""]))
    assert path.stat().st_size > 2 << 20

    def read(threads: int):
        choices = Choices(
            label="click", weight="many", text=("note",), numeric=("price",), ignore=("id", "other.site", "other.list")
        )
        reader = read_batches([path], slots=SLOTS, choices=choices, max_errors=EVERY, threads=threads)
        found = [(batch.labels.tolist(), batch.slots.tobytes(), position) for batch, position in reader]
        return found, reader.report.skipped, reader.report.messages, reader.report.columns

    one = read(1)
    assert one[1] == 1400
    assert read(3) == one


# Columns that need not occur ------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"click": i % 2, "site": f"s{i % 3}", "user": {"age": i}} for i in range(30)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = ["train", "train.jsonl", "-o", "model", "--label", "click", "--bits", "12", "--alpha", "0.1", "-q"]
    assert lessram(*said).code == 0
    return tmp_path


def test_lines_for_another_model_are_refused(place):
    (place / "other.jsonl").write_text('{"id": 7, "town": "rome"}\n{"id": 8}\n')
    refused = lessram("predict", "model", "other.jsonl")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err == (
        "lessram: other.jsonl: found none of the model's columns in the first rows but 'id', 'town', "
        "expected some of 'site', 'user.age'\n"
    )


def test_what_never_occurs_is_told(place):
    (place / "some.jsonl").write_text('{"id": 1}\n{"site": "s1"}\n{"user": {"age": null}, "site": ""}\n')
    told = lessram("predict", "model", "some.jsonl", "--threads", 2)
    assert (told.code, told.out.count("\n")) == (0, 3)
    assert told.err == (
        "found no value in any row for 1 of 2 columns: 'user.age'\nfound 2 rows without a feature, only the intercept\n"
    )
    assert lessram("predict", "model", "train.jsonl").err == ""


def test_tables_without_a_column_are_named(place):
    pytest.importorskip("pyarrow")
    import pyarrow as pa
    from pyarrow import parquet

    (place / "some.csv").write_text("site\nrome\n")
    parquet.write_table(pa.table({"site": ["rome"]}), place / "some.parquet")
    for name in ("some.csv", "some.parquet"):
        refused = lessram("predict", "model", name)
        expected = f"{name}: the table must have the columns that the model was trained on, 'user.age' is missing"
        assert (refused.code, refused.err) == (2, f"lessram: {expected}\n")
