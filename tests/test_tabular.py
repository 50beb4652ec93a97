"""Tables from Arrow, Parquet, DataFrames and JSON lines: the same table gives the same rows, whatever it comes in."""

from __future__ import annotations

import json
import lzma
import re
import threading

import msgspec
import numpy as np
import pyarrow as pa
import pytest
import real_data
import reference_table
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv as arrow_csv
from pyarrow import feather, parquet
from texts import rows_of

from lessram.data import arrow, cells, table_files
from lessram.data.arrow import ArrowParser, guess_schema
from lessram.data.cells import CellBlock
from lessram.data.column_scale import column_scale
from lessram.data.csv import CsvParser
from lessram.data.hashing import hash_names
from lessram.data.jsonl import JsonParser
from lessram.data.lines import chunk_of
from lessram.data.reader import read_batches
from lessram.data.schema import Schema, Tokens
from lessram.data.source import Place
from lessram.data.tabular import open_table, table_parts, used
from lessram.errors import DataError, SpecError

SLOTS = 2**20

SCHEMA = Schema(
    columns=("click", "site", "price", "note", "id", "many"),
    kinds=("label", "categorical", "numeric", "text", "ignored", "weight"),
    tokens=Tokens(pairs=True, characters=(2, 3)),
    interactions=(("site", "price"), ("site", "note")),
)
COLUMNS = {
    "click": [1, 0, 1, None, 1],
    "site": ["rome", "oslo", None, "rome", "서울"],
    "price": [0.5, None, 12.0, 3.0, 0.0],
    "note": ["The cat sat", "", None, "영화 최고!! A", "x"],
    "id": [7, 8, 9, 10, 11],
    "many": [1.0, 2.5, None, 1.0, 0.0],
}
TABLE = pa.table(COLUMNS)


def read(data, schema=SCHEMA, **more):
    rows = []
    for part in table_parts(open_table(data), schema, SLOTS, **more):
        rows += rows_of(part.batch)
    return rows


def slow(columns, schema=SCHEMA):
    """The rows by the slow parser; numbers go through the same float64 as Arrow's."""

    def cell(value, kind):
        if value is None or kind in ("categorical", "text", "ignored"):
            return None if value is None else str(value).encode()
        return np.float32(float(value))

    rows = [
        [cell(value, kind) for value, kind in zip(row, schema.kinds, strict=True)]
        for row in zip(*columns.values(), strict=True)
    ]
    return reference_table.table(rows, schema, SLOTS)[0]


def variants():
    strings = pa.table({**COLUMNS, "site": pa.array(COLUMNS["site"], pa.large_string())})
    dictionary = TABLE.set_column(1, "site", TABLE["site"].dictionary_encode())
    small = pa.DictionaryArray.from_arrays(pa.array([1, 0, None, 1, 2], pa.uint8()), ["oslo", "rome", "서울"])
    views = TABLE.set_column(1, "site", pa.array(COLUMNS["site"], pa.string_view()))
    floats = TABLE.set_column(2, "price", TABLE["price"].cast(pa.float32()))
    labels = TABLE.set_column(0, "click", pa.array([True, False, True, None, True]))
    text = TABLE.set_column(3, "note", TABLE["note"].dictionary_encode())
    return {
        "plain": TABLE,
        "large strings": strings,
        "dictionary": dictionary,
        "small dictionary": TABLE.set_column(1, "site", small),
        "string views": views,
        "float32": floats,
        "boolean label": labels,
        "label as text": TABLE.set_column(0, "click", TABLE["click"].cast(pa.string())),
        "text as dictionary": text,
        "record batch": TABLE.to_batches()[0],
        "reader": TABLE.to_reader(),
        "sliced": pa.concat_tables([TABLE, TABLE]).slice(5, 5),
        "small chunks": pa.concat_tables([TABLE.slice(0, 2), TABLE.slice(2, 1), TABLE.slice(3)]),
    }


@pytest.mark.parametrize("name", variants())
def test_every_arrow_layout_gives_the_same_rows(name):
    assert read(variants()[name]) == slow(COLUMNS)


def test_pandas():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame(COLUMNS)
    assert read(frame) == slow(COLUMNS)
    frame["site"] = frame["site"].astype("category")
    assert read(frame.set_index(np.arange(5) * 3)) == slow(COLUMNS)


def test_polars():
    polars = pytest.importorskip("polars", reason="polars is not installed")
    frame = polars.DataFrame(COLUMNS)
    assert read(frame) == slow(COLUMNS)
    assert read(frame.lazy()) == slow(COLUMNS)
    assert read(frame.with_columns(polars.col("site").cast(polars.Categorical))) == slow(COLUMNS)


def test_duckdb():
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    connection = duckdb.connect()
    connection.register("clicks", TABLE)
    assert read(connection.sql("select * from clicks")) == slow(COLUMNS)


def test_parquet_and_arrow_files(tmp_path):
    parquet.write_table(TABLE, tmp_path / "a.parquet", row_group_size=2)
    parquet.write_table(TABLE.select(TABLE.column_names[::-1]), tmp_path / "b.parquet", use_dictionary=False)
    feather.write_feather(TABLE, tmp_path / "c.arrow", compression="uncompressed")
    paths = [str(tmp_path / name) for name in ("a.parquet", "b.parquet", "c.arrow")]
    assert read(paths) == 3 * slow(COLUMNS)
    assert read(tmp_path / "a.parquet") == slow(COLUMNS)


def csv_text(table) -> bytes:
    sink = pa.BufferOutputStream()
    arrow_csv.write_csv(table, sink)
    return sink.getvalue().to_pybytes()


def json_text(columns) -> bytes:
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return b"".join(json.dumps(row, ensure_ascii=i % 2 == 0).encode() + b"\n" for i, row in enumerate(rows))


def test_csv_and_json_give_the_rows_of_arrow():
    part = CsvParser(SCHEMA, SLOTS).parse(chunk_of(csv_text(TABLE)))
    assert (part.bad, part.unlabelled) == (0, 1)
    assert rows_of(part.batch) == slow(COLUMNS)
    part = JsonParser(SCHEMA, SLOTS).parse(chunk_of(json_text(COLUMNS)))
    assert (part.bad, part.unlabelled) == (0, 1)
    assert rows_of(part.batch) == slow(COLUMNS)


letters = st.characters(blacklist_categories=["Cs"], blacklist_characters="\0\r")
cell = st.one_of(st.none(), st.text(letters, max_size=6))
price = st.one_of(st.none(), st.floats(-1e6, 1e6, width=32), st.integers(-(2**60), 2**60).map(float))


@settings(max_examples=150)
@given(st.lists(st.tuples(st.sampled_from([0, 1, -1]), cell, price, cell, cell, st.just(1.0)), min_size=1, max_size=20))
def test_all_formats_agree_on_any_table(rows):
    columns = dict(zip(SCHEMA.columns, map(list, zip(*rows, strict=True)), strict=True))
    types = [pa.int64(), pa.string(), pa.float64(), pa.string(), pa.string(), pa.float64()]
    table = pa.table({name: pa.array(columns[name], kind) for name, kind in zip(columns, types, strict=True)})
    expected = slow(columns)
    assert read(table) == expected
    assert read(table.set_column(1, "site", table["site"].dictionary_encode())) == expected
    part = CsvParser(SCHEMA, SLOTS).parse(chunk_of(csv_text(table)))
    assert part.bad == 0
    assert rows_of(part.batch) == expected
    part = JsonParser(SCHEMA, SLOTS).parse(chunk_of(json_text(columns)))
    assert part.bad == 0
    assert rows_of(part.batch) == expected


def test_categories_that_are_no_strings():
    """Whole numbers and booleans are hashed as their text, the same in every format."""
    columns = {"click": [1, 0, 1], "hour": [17, -3, None], "app": [True, False, None], "size": [0.5, 2.0, None]}
    schema = Schema(columns=tuple(columns), kinds=("label", "categorical", "categorical", "categorical"))
    text = "click,hour,app,size\n1,17,true,0.5\n0,-3,false,2\n1,,,\n"
    expected = rows_of(CsvParser(schema, SLOTS).parse(chunk_of(text.encode())).batch)
    assert read(pa.table(columns), schema) == expected
    assert rows_of(JsonParser(schema, SLOTS).parse(chunk_of(json_text(columns))).batch) == expected


def test_dates_and_decimals():
    table = pa.table(
        {
            "click": [1, 0],
            "day": pa.array([0, 15000], pa.date32()),
            "sum": pa.array(["1.25", "-3.50"]).cast(pa.decimal128(8, 2)),
        }
    )
    schema = guess_schema(table.schema, label="click")
    assert schema.kinds == ("label", "categorical", "numeric")
    text = b"click,day,sum\n1,1970-01-01,1.25\n0,2011-01-26,-3.5\n"
    assert read(table, schema) == rows_of(CsvParser(schema, SLOTS).parse(chunk_of(text)).batch)
    assert len(read(table, guess_schema(table.schema, label="click", numeric=["day"]))) == 2


def test_wide_slots():
    parts = list(table_parts(open_table(TABLE), SCHEMA, 2**40))
    assert parts[0].batch.slots.dtype == np.uint64
    assert (parts[0].batch.slots > 2**32).any()
    text = CsvParser(SCHEMA, 2**40).parse(chunk_of(csv_text(TABLE)))
    assert rows_of(text.batch) == rows_of(parts[0].batch)


# ------------------------------------------------------------------ bad rows, places, blocks


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("click", 7, r"table:2: found 7 as the label \('click'\), expected 0, 1, -1 or \+1"),
        ("price", float("inf"), "table:2: found inf in column 'price', expected a finite number"),
        ("price", 1e300, "table:2: found inf in column 'price', expected a finite number"),
        ("many", -1.0, r"table:2: found -1 as the weight \('many'\), expected a finite number, not negative"),
    ],
)
def test_bad_rows_are_skipped_and_named(column, value, message):
    columns = {**COLUMNS, column: [COLUMNS[column][0], value, *COLUMNS[column][2:]]}
    parts = list(table_parts(open_table(pa.table(columns)), SCHEMA, SLOTS, tolerate=lambda: 1))
    assert [part.bad for part in parts] == [1]
    report = parts[0].reports[0]
    assert re.fullmatch(message, f"{report.place}: {report.message}")
    assert rows_of(parts[0].batch) == slow({name: [v[0], *v[2:]] for name, v in COLUMNS.items()})
    given_up = next(iter(table_parts(open_table(pa.table(columns)), SCHEMA, SLOTS)))
    assert (given_up.bad, given_up.batch.rows) == (1, 1)


def test_nan_is_an_empty_cell_but_no_label():
    columns = {"click": [1.0, float("nan")], "price": [float("nan"), 1.0]}
    schema = Schema(columns=("click", "price"), kinds=("label", "numeric"))
    part = next(iter(table_parts(open_table(pa.table(columns)), schema, SLOTS)))
    assert part.unlabelled == 1
    assert rows_of(part.batch) == [(1, 1, [])]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64(), "dictionary"])
def test_nan_is_no_category(kind):
    schema = Schema(columns=("click", "size"), kinds=("label", "categorical"))
    with_nan, with_null = (pa.table({"click": [1, 0, 1], "size": [0.5, gap, None]}) for gap in (float("nan"), None))

    def in_kind(table):
        sizes = table["size"].combine_chunks()
        return table.set_column(1, "size", sizes.dictionary_encode() if kind == "dictionary" else sizes.cast(kind))

    found, expected = (read(in_kind(table), schema) for table in (with_nan, with_null))
    assert found == expected
    assert [len(features) for _, _, features in found] == [1, 0, 0]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_strings_that_are_no_numbers_make_bad_rows_whatever_stands_beside_them(kind):
    schema = Schema(columns=("click", "price"), kinds=("label", "numeric"))
    for prices, bad in ((["1.5", "nan", "2"], 1), (["1.5", "nan", "x"], 2), ([None, "", "2"], 0)):
        table = pa.table({"click": [1, 0, 1], "price": pa.array(prices, kind)})
        part = next(iter(table_parts(open_table(table), schema, SLOTS, tolerate=lambda: 9)))
        assert (part.bad, part.batch.rows) == (bad, 3 - bad)


def test_strings_that_are_not_utf8_are_no_numbers():
    """Arrow does not look whether the bytes of a file's strings are what it calls them."""
    raw = pa.array([b"1.5", b"\xff", b"2"])
    strings = pa.Array.from_buffers(pa.string(), 3, raw.buffers())
    source = open_table(pa.table({"click": [1, 0, 1], "price": strings}))
    schema = source.guess_schema(label="click", numeric=["price"])
    assert schema.scales == (column_scale("price", [1.5, 2.0]),)
    part = next(iter(table_parts(source, schema, SLOTS, tolerate=lambda: 9)))
    assert (part.bad, part.batch.rows) == (1, 2)
    assert part.reports[0].message == "found '\ufffd' in column 'price', expected a finite number"


def test_a_batch_without_rows_but_with_a_dictionary():
    site = pa.array(["a", "b"]).dictionary_encode()
    batch = pa.record_batch({"click": pa.array([1, 0]), "site": site}).slice(0, 0)
    parser = ArrowParser(Schema(columns=("click", "site"), kinds=("label", "categorical")), SLOTS)
    assert parser.parse(batch).batch.rows == 0


@pytest.mark.parametrize("index", [-1, 2, 100])
def test_indexes_outside_of_a_dictionary_are_refused(index):
    site = pa.DictionaryArray.from_arrays(pa.array([0, index, 1], pa.int8()), pa.array(["a", "b"]), safe=False)
    table = open_table(pa.table({"click": [1, 0, 1], "site": site}))
    with pytest.raises(DataError, match="found an index beyond the dictionary in column 'site'"):
        list(table_parts(table, table.guess_schema(label="click"), SLOTS))


def large(count=30_000):
    r = np.random.default_rng(1)
    return pa.table(
        {
            "click": r.integers(0, 2, count),
            "site": [f"s{i}" for i in r.integers(0, 5000, count)],
            "price": r.random(count),
        }
    )


def test_blocks_and_places(tmp_path):
    """Reading may stop behind any part and go on there."""
    table = large()
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=11_000)
    parquet.write_table(table, tmp_path / "b.parquet", row_group_size=7_000)
    source = open_table([tmp_path / "a.parquet", tmp_path / "b.parquet"])
    schema = source.guess_schema(label="click", interactions=[("site", "price")])
    parts, places = [], []
    for part in table_parts(source, schema, SLOTS):
        parts.append(rows_of(part.batch))
        places.append(part.stop)
    assert sum(map(len, parts)) == 60_000
    assert len(parts) > 6
    text = CsvParser(schema, SLOTS).parse(chunk_of(csv_text(table)))
    assert [row for part in parts for row in part][:30_000] == rows_of(text.batch)[:30_000]
    for i in (0, 2, len(parts) - 2):
        again = [row for part in table_parts(source, schema, SLOTS, start=places[i]) for row in rows_of(part.batch)]
        assert again == [row for part in parts[i + 1 :] for row in part]


@pytest.mark.parametrize("threads", [2, 3, 7])
def test_any_number_of_threads_gives_the_same(tmp_path, threads):
    table = large(60_000)
    price = np.arange(60_000, dtype=np.float64)
    price[25_000] = np.inf
    table = table.set_column(2, "price", pa.array(price))
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=11_000)
    parquet.write_table(table, tmp_path / "b.parquet", row_group_size=7_000)
    found = {}
    for data in ([str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")], table):
        for count in (1, threads):
            reader = read_batches(data, slots=SLOTS, label="click", max_errors=2, threads=count)
            rows = [row for batch, _ in reader for row in rows_of(batch)]
            found[count] = rows, reader.position, reader.report.messages
        assert found[1] == found[threads]
        assert len(found[1][2]) == (1 if data is table else 2)
        reader = read_batches(data, slots=SLOTS, label="click", threads=threads)
        with pytest.raises(DataError, match=r":25001: found inf in column 'price', expected a finite number"):
            list(reader)


def test_streams_are_read_by_the_thread_that_asks():
    table, threads = large(40_000), set()

    def batches():
        for batch in table.to_batches(max_chunksize=5000):
            threads.add(threading.get_ident())
            yield batch

    stream = pa.RecordBatchReader.from_batches(table.schema, batches())
    assert sum(batch.rows for batch, _ in read_batches(stream, slots=SLOTS, label="click", threads=3)) == 40_000
    assert threads == {threading.get_ident()}


def test_a_dictionary_is_hashed_once(monkeypatch):
    calls = []
    monkeypatch.setattr(arrow, "hash_names", lambda *arguments: calls.append(1) or hash_names(*arguments))
    table = large()
    encoded = table.set_column(1, "site", table["site"].dictionary_encode())
    schema = guess_schema(table.schema, label="click")
    assert read(encoded, schema) == read(table, schema)
    assert len(calls) == 1


@pytest.mark.parametrize("threads", [1, 2])
def test_a_dictionary_of_a_file_is_hashed_once_a_row_group(tmp_path, monkeypatch, threads):
    """Though every record batch has it anew."""
    calls = []
    monkeypatch.setattr(arrow, "hash_names", lambda *arguments: calls.append(1) or hash_names(*arguments))
    monkeypatch.setattr(table_files, "ROWS", 1000)
    parquet.write_table(large(), tmp_path / "a.parquet", row_group_size=10_000)
    source = open_table(tmp_path / "a.parquet")
    parts = table_parts(source, source.guess_schema(label="click"), SLOTS, threads=threads)
    assert sum(part.batch.rows for part in parts) == 30_000
    at_most = 3 if threads == 1 else 15  # threads may miss the same one at once
    assert 3 <= len(calls) <= at_most, "there are 30 record batches"


@pytest.mark.parametrize("threads", [1, 2, 3, 9])
def test_columns_that_are_decoded_side_by_side_are_those_of_one_table(tmp_path, monkeypatch, threads):
    """Streams of numbers and of dictionaries end their batches in different places."""
    monkeypatch.setattr(table_files, "ROWS", 1000)
    table = large()
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=2_700)
    schema = guess_schema(table.schema, label="click")
    assert read(tmp_path / "a.parquet", schema, threads=threads) == read(table, schema)


@pytest.mark.parametrize("threads", [1, 2])
def test_of_many_columns_fewer_rows_are_taken_at_once(tmp_path, monkeypatch, threads):
    """However many columns there are, memory stays the same; and so do the rows."""
    table = large()
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=2_700)
    schema = guess_schema(table.schema, label="click", interactions=[("site", "price")])
    expected = read(table, schema)
    monkeypatch.setattr(cells, "MOST_CELLS", 301)
    monkeypatch.setattr(table_files, "CELLS", 2_000)
    assert (cells.rows_of_a_block(3), table_files.rows_of_a_batch(3)) == (100, 666)
    taken = table_files.TableFile(str(tmp_path / "a.parquet")).batches(list(schema.columns), threads)
    assert max(batch.num_rows for batch in taken) == 666
    assert CellBlock(schema, SLOTS, labels="binary", keep_unlabelled=False).cells.values.size < 1_000
    parts = [rows_of(part.batch) for part in table_parts(open_table([tmp_path / "a.parquet"]), schema, SLOTS)]
    assert max(map(len, parts)) == 100
    assert [row for part in parts for row in part] == expected
    assert read(tmp_path / "a.parquet", schema, threads=threads) == expected
    assert read(table.to_pandas(), schema) == expected


def test_only_small_dictionaries_of_a_file_stay_dictionaries(tmp_path, monkeypatch):
    few, many = [f"few{i % 7}" for i in range(5000)], [f"many{i}" for i in range(5000)]
    table = pa.table({"few": few, "many": many, "plain": few})
    parquet.write_table(table, tmp_path / "a.parquet", use_dictionary=["few", "many"])
    monkeypatch.setattr(table_files, "DICTIONARY", 1000)
    (batch,) = table_files.TableFile(str(tmp_path / "a.parquet")).batches(["few", "many", "plain"])
    assert [pa.types.is_dictionary(kind) for kind in batch.schema.types] == [True, False, False]
    assert pa.Table.from_batches([batch]).cast(table.schema).equals(table)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_file_without_rows_and_one_without_columns(tmp_path, threads):
    parquet.write_table(TABLE.slice(0, 0), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet", threads=threads) == []
    parquet.write_table(TABLE, tmp_path / "b.parquet")
    batches = table_files.TableFile(str(tmp_path / "b.parquet")).batches([], threads)
    assert [(batch.num_rows, batch.num_columns) for batch in batches] == [(5, 0)]


def test_unused_columns_are_left_out():
    assert used(SCHEMA).columns == ("click", "site", "price", "note", "many")
    nested = TABLE.set_column(4, "id", pa.array([[1], [2], [3], [4], [5]]))
    assert read(nested) == slow(COLUMNS)


def test_refusals(tmp_path):
    with pytest.raises(SpecError, match=r"must be a path, or speak Arrow .*, got dict"):
        open_table({"a": [1]})
    with pytest.raises(SpecError, match=r"columns must be of plain values, got list<.*> in 'a': ignore it"):
        guess_schema(pa.table({"a": [[1]]}).schema)
    with pytest.raises(DataError, match="found no column 'site', expected click, site"):
        read(TABLE.drop_columns(["site"]))
    with pytest.raises(DataError, match=r"absent\.parquet: cannot read: No such file"):
        open_table(tmp_path / "absent.parquet")
    (tmp_path / "x.parquet").write_bytes(b"hello world")
    with pytest.raises(DataError, match=r"x\.parquet: found neither Parquet nor Arrow"):
        open_table(tmp_path / "x.parquet")
    parquet.write_table(TABLE, tmp_path / "cut.parquet")
    whole = (tmp_path / "cut.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"cut\.parquet: cannot read"):
        open_table(tmp_path / "cut.parquet")
    with pytest.raises(DataError, match=r"found binary in column 'click', expected what can be label"):
        read(TABLE.set_column(0, "click", pa.array([b"a", b"b", b"c", b"d", b"e"])))
    with pytest.raises(DataError, match=r"found the columns .* expected"):
        ArrowParser(SCHEMA, SLOTS).parse(TABLE.select(["click"]).to_batches()[0])


class Stream:
    """What can be read once and dies when it is closed, as the results of databases do."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return pa.RecordBatchReader.from_batches(
            self._table.schema, iter(self._table.to_batches(100))
        ).__arrow_c_stream__()


def test_streams_are_looked_at_before_they_are_read_and_read_once():
    table = large(3000)
    whole = open_table(table).guess_schema(label="click")
    source = open_table(Stream(table))
    assert source.guess_schema(label="click") == source.guess_schema(label="click") == whole
    assert sum(part.batch.rows for part in table_parts(source, whole, SLOTS)) == 3000
    with pytest.raises(DataError, match="table: found a stream that has been read, expected a table or another stream"):
        list(table_parts(source, whole, SLOTS))


def test_results_of_duckdb():
    duckdb = pytest.importorskip("duckdb")
    source = open_table(duckdb.sql("select i % 2 as click, 'a' || i as site, i::double as price from range(5000) t(i)"))
    schema = source.guess_schema(label="click")
    assert schema.kinds == ("label", "categorical", "numeric")
    assert sum(part.batch.rows for part in table_parts(source, schema, SLOTS)) == 5000


def test_frames_of_polars_are_read_as_often_as_one_likes():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"click": [1, 0], "site": ["a", None]})
    for data in (frame, frame.lazy()):
        source = open_table(data)
        schema = source.guess_schema(label="click")
        assert [sum(part.batch.rows for part in table_parts(source, schema, SLOTS)) for _ in range(2)] == [2, 2]


def test_frames_that_arrow_cannot_take():
    pandas = pytest.importorskip("pandas")
    for frame, why in [
        (pandas.DataFrame({"a": ["x", 1]}), "Conversion failed for column a with type object"),
        (pandas.DataFrame({"a": ["x", "\ud800"]}, dtype=object), r"can't encode character '\\ud800'"),
        (pandas.DataFrame({"a": [1, 2**80]}), "too large"),
        (pandas.DataFrame([[1, 2]], columns=["a", "a"]), "Duplicate column names"),
        (pandas.DataFrame({"a": pandas.arrays.SparseArray([0, 1])}), "Sparse pandas data"),
    ]:
        with pytest.raises(DataError, match=f"found a DataFrame that cannot become Arrow, .*{why}"):
            open_table(frame)


@pytest.mark.parametrize("value", ["\ud800", 2**80])
def test_objects_that_arrow_cannot_take_are_refused_when_they_are_read(value):
    frame = pytest.importorskip("pandas").DataFrame({"a": [value]}, dtype=object)
    table = open_table(frame, columns=["a"])
    with pytest.raises(DataError, match="table: cannot read: "):
        list(table.read(Schema(columns=("a",), kinds=("categorical",))))


@pytest.mark.parametrize("encode", [False, True])
def test_strings_that_are_numbers(encode):
    def column(*strings):
        return pa.array(strings).dictionary_encode() if encode else pa.array(strings)

    table = pa.table({"click": column("1", "0", "yes", "1", "0"), "price": column("0.5", "", "1", "1_0", "2")})
    source = open_table(table)
    schema = source.guess_schema(label="click", numeric=["price"])
    assert schema.scales == (column_scale("price", [0.5, 1.0, 2.0]),)
    (part,) = table_parts(source, msgspec.structs.replace(schema, scales=msgspec.UNSET), SLOTS, tolerate=lambda: 5)
    assert [report.message for report in part.reports] == [
        "found 'yes' as the label ('click'), expected 0, 1, -1 or +1",
        "found '1_0' in column 'price', expected a finite number",
    ]
    assert part.batch.labels.tolist() == [1, 0, 0]
    assert part.batch.values.tolist() == [0.5, 2.0]


def test_a_table_in_memory_goes_on_at_a_place():
    whole = read(large(20_000), Schema(columns=("click", "site", "price"), kinds=("label", "categorical", "numeric")))
    schema = guess_schema(large(10).schema, label="click")
    assert read(large(20_000), schema, start=Place(0, 12_345, 12_346)) == whole[12_345:]


# ------------------------------------------------------------------ schema


def test_schema_is_json_both_ways():
    assert msgspec.json.decode(msgspec.json.encode(SCHEMA), type=Schema) == SCHEMA
    assert msgspec.convert(msgspec.to_builtins(SCHEMA), Schema) == SCHEMA


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"columns": ("a",), "kinds": ()}, "one kind for each column, got 0 for 1"),
        ({"columns": ("a", "a"), "kinds": ("label", "numeric")}, "different names, got 'a' more than once"),
        ({"columns": ("a", "b"), "kinds": ("label", "label")}, "at most one column can be the label, got 2"),
        ({"columns": ("a",), "kinds": ("label",), "interactions": (("a", "a"),)}, "must be of .*, got 'a'"),
    ],
)
def test_bad_schemas_are_refused(fields, message):
    with pytest.raises(SpecError, match=message):
        Schema(**fields)


def test_bad_tokens_are_refused():
    with pytest.raises(SpecError, match="characters must be two numbers"):
        Tokens(characters=(3, 2))
    with pytest.raises(SpecError, match="must give words, pairs or characters"):
        Tokens(words=False)


# ------------------------------------------------------------------ real data


def test_criteo_in_every_format(tmp_path):
    path = real_data.FOLDER / "criteo_tiny_2k.csv.xz"
    if not path.exists():
        pytest.skip(f"{path} is absent")
    text = lzma.decompress(path.read_bytes())
    columns = text.split(b"\n", 1)[0].decode().split(",")
    types = {name: pa.string() if name.startswith("C") else pa.float64() for name in columns}
    options = arrow_csv.ConvertOptions(column_types=types, strings_can_be_null=True, null_values=[""])
    table = arrow_csv.read_csv(pa.BufferReader(text), convert_options=options)
    schema = guess_schema(table.schema, label="Label", ignore=["Id"], interactions=[("C1", "C2"), ("I1", "C3")])
    expected = rows_of(CsvParser(schema, SLOTS).parse(chunk_of(text)).batch)
    parquet.write_table(table, tmp_path / "criteo.parquet")
    assert read(tmp_path / "criteo.parquet", schema) == expected
    assert read(table, schema) == expected
    rows = b"".join(json.dumps(row).encode() + b"\n" for row in table.to_pylist())
    assert rows_of(JsonParser(schema, SLOTS).parse(chunk_of(rows)).batch) == expected
