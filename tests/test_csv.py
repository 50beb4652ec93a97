"""Delimited text against a slow parser in plain Python."""

from __future__ import annotations

import codecs
import csv
import io
import lzma
import re

import numpy as np
import pytest
import real_data
import reference_table
from guarded import guarded_chunk
from hypothesis import given, settings
from hypothesis import strategies as st
from texts import mutated, rows_of

from lessram.data import rows as rows_module
from lessram.data.column_scale import column_scale
from lessram.data.csv import TSV, CsvOptions, CsvParser, column_names, guess_schema
from lessram.data.csv_kernel import last_row_end, row_end
from lessram.data.lines import chunk_of
from lessram.data.row_reader import RowReader
from lessram.data.schema import Schema, Tokens
from lessram.data.source import ChunkReader, TextBuffer
from lessram.errors import DataError, SpecError

SLOTS = 2**20
PLAIN = CsvOptions(header=False)

SCHEMA = Schema(
    columns=("click", "site", "price", "note", "id", "many"),
    kinds=("label", "categorical", "numeric", "text", "ignored", "weight"),
    tokens=Tokens(pairs=True, characters=(2, 3)),
    interactions=(("site", "price"), ("site", "note"), ("price", "price", "site")),
)


def ours(text: bytes, schema: Schema = SCHEMA, options: CsvOptions = PLAIN, slots: int = SLOTS, **more):
    return CsvParser(schema, slots, options, **more).parse(guarded_chunk(text, "clicks.csv"), tolerate=10**9)


def assert_as_slow(text: bytes, schema: Schema = SCHEMA, options: CsvOptions = PLAIN):
    part = ours(text, schema, options)
    cells = reference_table.split_rows(text, options.delimiter.encode(), options.quote.encode())
    assert (rows_of(part.batch), part.bad, part.unlabelled) == reference_table.table(cells, schema, SLOTS)


LINES = [
    b"1,rome,0.5,The cat sat,7,1",
    b"0,oslo,12,,7,2.5",
    b"-1,,,,,",
    b"+1,\xec\x84\x9c\xec\x9a\xb8,-3.25e-1,\xec\x98\x81\xed\x99\x94 \xec\xb5\x9c\xea\xb3\xa0!! A,,",
    b"",
    b"1, rome , 7 ,x,,",
    b'1,"rome","0.5","The cat, ""sat""",7,1',
    b'1,"a\nb",1,"two\nlines",,',
    b'"1","","","",x,"3"',
    b'1,5" disk,2,say "hi",,',
    b",rome,1,,,",
    b"1,rome,00012345678.500,,,",
    b"1,rome,0,zero,,0",
    b"1,rome,0.000000012345678901234567890123,zero,,",
    b"1,rome,1.00000005960464477539062500000000001,zero,,",
    b"1," + b"x" * 150 + b",99999999," + b"word " * 40 + b",,",
    b"1,rome,1,x,,\r",
    b"\r",
    b"1,rome,12345678,x,,1",
    b"1,rome,1234567.8,x,,1",
]
BAD_LINES = [
    b"7,rome,0.5,x,,",
    b"nan,rome,0.5,x,,",
    b"yes,rome,0.5,x,,",
    b"1,rome,1x,x,,",
    b"1,rome,inf,x,,",
    b"1,rome,1e99,x,,",
    b"1,rome,1e,x,,",
    b"1,rome,.,x,,",
    b"1,rome, ,x,,",
    b"1,rome,1,x,,-1",
    b"1,rome,1,x,,many",
    b"1,rome,1,x,",
    b"1",
    b"1,rome,1,x,,,",
    b"1,rome,1,x,,1,",
    b'1,"rome"x,1,x,,1',
    b"1,rome,1e20,x,,1",
]


@pytest.mark.parametrize("line", LINES, ids=lambda line: repr(line[:40]))
@pytest.mark.parametrize("end", [b"\n", b""])
def test_good_lines(line, end):
    assert ours(line + end).bad == 0, ours(line + end).reports
    assert_as_slow(line + end)


@pytest.mark.parametrize("line", BAD_LINES, ids=repr)
def test_bad_lines_are_skipped_and_named(line):
    text = b"1,rome,1,x,,\n" + line + b"\n0,oslo,1,x,,\n"
    part = ours(text)
    assert (part.bad, part.batch.rows) == (1, 2)
    assert part.reports[0].place == "clicks.csv:2"
    assert part.reports[0].message.startswith("found ")
    assert "expected" in part.reports[0].message
    assert_as_slow(text)


def test_messages():
    def message(line):
        return ours(line + b"\n").reports[0].message

    assert message(b"7,a,1,x,,") == "found '7' as the label ('click'), expected 0, 1, -1 or +1"
    assert message(b"1,a,abc,x,,") == "found 'abc' in column 'price', expected a finite number"
    assert message(b"1,a,1,x,,-2") == "found '-2' as the weight ('many'), expected a finite number, not negative"
    assert message(b"1,a") == "found 2 cells, expected 6"
    assert message(b"1,a,1,x,,,,") == "found more than 6 cells, expected 6"
    assert message(b'1,"a,1,x,,') == "found '\"a,1,x,,' in column 'site', expected a quote at the end of the cell"
    assert message(b'1,"a"b,1,x,,') == "found 'b,1,x,,' behind the quote of column 'site', expected ','"


def test_the_rest_of_a_bad_row_is_not_read_as_rows():
    """The second line of a quoted cell looks like a row of its own."""
    part = ours(b'7,rome,1,"x\n1,rome,1,x,,\n",,\n0,rome,1,x,,\n')
    assert (part.bad, part.batch.labels.tolist()) == (1, [0])


def test_an_open_quote_spoils_one_line_only():
    part = ours(b'1,"rome,1,x,,\n0,rome,1,x,,\n')
    assert (part.bad, part.batch.labels.tolist()) == (1, [0])


def test_tab_separated_cells_have_no_quotes():
    text = b'1\t"rome\t1\tsay "hi"\t\t\n'
    options = CsvOptions(delimiter="\t", quote="", header=False)
    assert ours(text, options=options).bad == 0
    assert_as_slow(text, options=options)
    assert TSV.header


@pytest.mark.parametrize("slots", [1, 1000, 2**32, 2**40])
def test_slots_of_any_number(slots):
    part = ours(b"\n".join(LINES), slots=slots)
    assert int(part.batch.slots.max(initial=0)) < slots
    if slots <= 2**32:
        cells = reference_table.split_rows(b"\n".join(LINES))
        assert rows_of(part.batch) == reference_table.table(cells, SCHEMA, slots)[0]


def test_rows_without_label_are_kept_for_prediction():
    part = ours(b",rome,1,x,,\n", keep_unlabelled=True)
    assert part.unlabelled == 1
    assert np.isnan(part.batch.labels).all()


def test_real_labels():
    assert ours(b"2.5,rome,1,x,,\n-1,rome,1,x,,\n", labels="real").batch.labels.tolist() == [2.5, -1]


# ------------------------------------------------------------------ hostile text

token = st.one_of(
    st.sampled_from([b",", b"\n", b'"', b'""', b"\r\n", b"1", b"0.5", b" ", b"1,rome,1,x,,\n", b'"a"', b"cat "]),
    st.just(b"\xec\x84"),
    st.binary(max_size=4),
)


@settings(deadline=None, max_examples=500)
@given(st.lists(token, max_size=60).map(b"".join))
def test_any_bytes_are_read_as_by_the_slow_parser(text):
    assert_as_slow(text)


@settings(deadline=None, max_examples=500)
@given(mutated(LINES + BAD_LINES, b' ,"\n\r\t019.e-'))
def test_mutated_lines_are_read_as_by_the_slow_parser(text):
    assert_as_slow(text)


cells = st.one_of(
    st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=8),
    st.integers(-99, 999).map(str),
    st.just(""),
)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(st.sampled_from(["0", "1"]), cells, cells, cells), min_size=1, max_size=8))
def test_whatever_the_standard_library_writes_is_read(rows):
    buffer = io.StringIO()
    csv.writer(buffer).writerows(rows)  # ends lines by \r\n: with \n alone it would leave a cell of \r without quotes
    schema = Schema(columns=("y", "a", "b", "c"), kinds=("label", "categorical", "text", "categorical"))
    part = ours(buffer.getvalue().encode(), schema)
    encoded = [[cell.encode() for cell in row] for row in rows]
    assert part.bad == 0
    assert rows_of(part.batch) == reference_table.table(encoded, schema, SLOTS)[0]


@settings(deadline=None)
@given(st.lists(st.sampled_from(LINES + BAD_LINES), min_size=1, max_size=20), st.integers(0, 60))
def test_nothing_outside_the_room_is_written(lines, features):
    text = b"\n".join(lines) + b"\n"
    parser, chunk, place = CsvParser(SCHEMA, SLOTS, PLAIN), chunk_of(text), None
    sizes = [(2, "f4"), (2, "f4"), (3, "i8"), (features, "u4"), (features, "f4")]
    guarded = rows_module.Rows(*(np.full(size + 8, 77, kind) for size, kind in sizes))
    room = parser._room
    room.fit, room.grow = lambda rows, features: None, lambda rows, needed: False
    room.rows = rows_module.Rows(*(array[:-8] for array in guarded))
    room.rows.indptr[0] = 0
    room.products = room._products(features)
    found = []
    while place != chunk.stop:
        part = parser.parse(chunk, place, tolerate=10**9)
        found += rows_of(part.batch)
        place = part.stop
        assert all((array[-8:] == 77).all() for array in guarded)
    assert found == [row for row in rows_of(ours(text).batch) if row in found]


def test_batches_come_in_parts_where_they_are_large(monkeypatch):
    text = b"".join(b"1,site%d,2,%s,,\n" % (i, b"some words of text") for i in range(400))
    whole = rows_of(ours(text).batch)
    monkeypatch.setattr(rows_module, "ENOUGH", 20000)
    parser, chunk, place, found, parts = CsvParser(SCHEMA, SLOTS, PLAIN), chunk_of(text), None, [], 0
    while place != chunk.stop:
        part = parser.parse(chunk, place)
        found, place, parts = found + rows_of(part.batch), part.stop, parts + 1
    assert parts > 1
    assert found == whole


# ------------------------------------------------------------------ headers and guesses

TABLE = b"click,site,price,city\n1,a,0.5,x\n0,7,2,y\n1,,,\n"


def test_guesses_follow_the_first_rows():
    schema = guess_schema([chunk_of(TABLE)], label="click")
    assert schema.kinds == ("label", "categorical", "numeric", "categorical")
    assert guess_schema([chunk_of(TABLE)], label="click", columns=["price"]).features == ("price",)
    assert guess_schema([chunk_of(TABLE)], label="click", categorical=["price"], text=["city"]).kinds == (
        "label",
        "categorical",
        "categorical",
        "text",
    )


def test_what_only_python_takes_for_a_number_is_a_category():
    """A column of such cells would have no good row if it were numeric."""
    cells = ["\t12", "１２", "\u00a05", "1_000", "inf"]
    kinds = [guess_schema([chunk_of(f"click,x\n1,{cell}\n0,3\n".encode())], label="click").of("x") for cell in cells]
    assert kinds == ["categorical"] * len(cells)
    assert guess_schema([chunk_of(b"click,x\n1, +1.5e-3 \n0,.5E2\n")], label="click").of("x") == "numeric"


@pytest.mark.parametrize("empty", [b"\n", b"\r\n\n"])
def test_empty_lines_before_the_header_are_no_rows(empty):
    schema = guess_schema([chunk_of(empty + TABLE)], label="click")
    parts = [CsvParser(schema, SLOTS).parse(chunk_of(before + TABLE)) for before in (b"", empty)]
    assert (parts[1].bad, rows_of(parts[1].batch)) == (0, rows_of(parts[0].batch))


def test_columns_without_header_are_numbered():
    assert column_names(chunk_of(b"1,a\n"), PLAIN) == ["1", "2"]


@pytest.mark.parametrize("size", [64, 1 << 20])
@pytest.mark.parametrize("header", [b"click,site\n", b'"click","site"\r\n', b""])
def test_byte_order_marks_are_no_part_of_a_cell(tmp_path, header, size):
    text, options = b'"1",a\n' + b"0,b\n" * 40, CsvOptions(header=bool(header))
    names = ("click", "site") if header else ("1", "2")
    schema = Schema(columns=names, kinds=("label", "categorical"))
    for path, mark in ((tmp_path / "plain.csv", b""), (tmp_path / "marked.csv", codecs.BOM_UTF8)):
        path.write_bytes(mark + header + text)
    plain, marked = (read_all([str(path)] * 2, schema, options, size) for path in sorted(tmp_path.iterdir())[::-1])
    assert plain[:2] == marked[:2]
    assert (len(marked[0]), marked[1]) == (82, 0)
    chunk = ChunkReader([str(tmp_path / "marked.csv")]).read(TextBuffer())
    assert column_names(chunk, options) == list(names)


def test_headers_in_another_encoding_are_refused():
    with pytest.raises(DataError, match=r"a\.csv:1: found 'click,caf\\\\xe9' as the header, expected UTF-8"):
        guess_schema([chunk_of("click,café\n1,a\n".encode("latin-1"), "a.csv")])


def test_names_are_the_whole_cells_of_the_header():
    header = 'a\x0cb\u2028c,"d ""e"",\nf",,g"h,' + '"' + "i" * 200_000 + '"'
    names = column_names(chunk_of(header.encode() + b"\r\n1,2,3,4,5\r\n"), CsvOptions())
    assert names == ["a\x0cb\u2028c", 'd "e",\nf', "", 'g"h', "i" * 200_000]


def test_columns_with_some_numbers_are_scaled_by_those():
    text = b"click,price,size\n" + b"1,100,\n0,1_000,x\n1,nan,\n0,300,y\n1,oops,\n0\n"
    schema = guess_schema([chunk_of(text)], label="click", numeric=["price", "size"], scaled=True)
    assert schema.scales == (column_scale("price", [100.0, 300.0]),)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"label": "clack"}, "label must name columns of the table .*, got 'clack'"),
        ({"columns": ["x"]}, "columns must name columns of the table .*, got 'x'"),
        ({"label": "click", "numeric": ["click"]}, "a column must have one meaning, got numeric and label for 'click'"),
        ({"interactions": [("site", "x")]}, "interactions must be of categorical, numeric or text columns, got 'x'"),
        ({"interactions": [("site",)]}, "an interaction must name two or three"),
        ({"seed": -1}, "seed must be from 0"),
    ],
)
def test_bad_choices_are_refused(choice, message):
    with pytest.raises(SpecError, match=message):
        guess_schema([chunk_of(TABLE)], **choice)


@pytest.mark.parametrize("options", [{"delimiter": ""}, {"delimiter": "\n"}, {"delimiter": "é"}, {"quote": ","}])
def test_bad_dialects_are_refused(options):
    with pytest.raises(SpecError, match="must be one ASCII character"):
        CsvOptions(**options)


def test_an_empty_file_is_refused():
    with pytest.raises(DataError, match="clicks: found an empty file, expected a table"):
        column_names(chunk_of(b"\n\n", "clicks"), CsvOptions())


def test_headers_must_agree():
    schema = guess_schema([chunk_of(TABLE)], label="click")
    with pytest.raises(DataError, match=r"b\.csv:1: found column 'town' in the header, expected column 'city'"):
        CsvParser(schema, 64).parse(chunk_of(b"click,site,price,town\n", "b.csv"))
    with pytest.raises(DataError, match="found no further column in the header, expected column 'city'"):
        CsvParser(schema, 64).parse(chunk_of(b"click,site,price\n", "b.csv"))


def test_a_schema_finds_its_columns_in_another_order():
    schema = guess_schema([chunk_of(TABLE)], label="click")
    other = b"city,extra,price,site\nx,?,0.5,a\n"
    moved = schema.arranged(column_names(chunk_of(other), CsvOptions()))
    part = CsvParser(moved, SLOTS, keep_unlabelled=True).parse(chunk_of(other))
    first = ours(b"1,a,0.5,x\n", schema).batch
    assert sorted(rows_of(part.batch)[0][2]) == sorted(rows_of(first)[0][2])


# ------------------------------------------------------------------ files


QUOTED, BARE = re.compile(rb'"(?:[^"]|"")*"(?!")'), re.compile(rb"[^,\n]*")


def ends_within_quotes(text: bytes, p: int) -> bool:
    """Whether the row that begins at `p` has a cell whose quotes nothing closes."""
    while p < len(text):
        quoted = text[p] == ord('"')
        cell = (QUOTED if quoted else BARE).match(text, p)
        if cell is None:
            return True
        p = cell.end()
        if text[p : p + 1] != b",":
            return False
        p += 1
    return False


def test_rows_end_at_a_newline_outside_of_quotes():
    text = b'a,"b\n""c""\r\n",d"\r\n"e"\r\nf\n"g'
    chunk, ends, p = chunk_of(text), [], 0
    while (p := int(row_end(chunk.text, np.uint64(p), np.uint64(len(text)), PLAIN.dialect, True))) <= len(text):
        ends.append(p)
    assert ends == [18, 23, 25]


@given(st.text(alphabet='",\n\ra', max_size=300), st.integers(0, 5))
@settings(max_examples=300, deadline=None)
def test_the_last_row_ends_where_a_walk_from_row_to_row_does(text, start):
    text = text.encode() + b"\n"
    chunk, dialect, size = guarded_chunk(text, "clicks.csv"), PLAIN.dialect, len(text)
    start = walked = min(start, size)
    while walked < size and not ends_within_quotes(text, walked):
        end = int(row_end(chunk.text, np.uint64(walked), np.uint64(size), dialect, True))
        walked = end if end <= size else text.index(b"\n", walked) + 1  # behind a bad row's first line
    assert last_row_end(chunk.text, np.uint64(start), np.uint64(size), dialect) == walked


@pytest.mark.parametrize("size", [20, 32, 47, 1 << 20])
def test_good_cells_behind_a_bad_quote_are_not_cut(tmp_path, size):
    (tmp_path / "a.csv").write_bytes(b"1,x\n" + b'1,"y"z,"\n1,"a\nb"\n' * 20)
    schema = Schema(columns=("1", "2"), kinds=("label", "categorical"))
    rows, bad, *_ = read_all([str(tmp_path / "a.csv")], schema, PLAIN, size)
    assert (len(rows), bad) == (21, 20)


def read_all(paths, schema, options, size):
    reader, buffer, parser = RowReader(ChunkReader(paths), options), TextBuffer(size), CsvParser(schema, SLOTS, options)
    rows, bad, places = [], 0, []
    while (chunk := reader.read(buffer)) is not None:
        place = None
        while place != chunk.stop:
            part = parser.parse(chunk, place, tolerate=10**9)
            rows, bad, place = rows + rows_of(part.batch), bad + part.bad, part.stop
            places += [report.place for report in part.reports]
    return rows, bad, places


@pytest.mark.parametrize("size", [64, 100, 333, 5000, 1 << 20])
def test_cells_over_many_lines_and_many_chunks(tmp_path, size):
    text = b"click,site,note\n" + b"".join(
        b'1,site%d,"first ""line""\nline %d\n%s"\n0,b,c\n' % (i, i, b"x\n" * (i % 40)) for i in range(60)
    )
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for path in paths:
        path.write_bytes(text)
    schema = guess_schema([chunk_of(text)], label="click", text=["note"])
    rows, bad, _ = read_all([str(path) for path in paths], schema, CsvOptions(), size)
    assert bad == 0
    assert len(rows) == 240
    assert rows == 2 * rows_of(CsvParser(schema, SLOTS).parse(chunk_of(text)).batch)


def test_a_quote_that_never_closes_is_named_and_the_next_file_is_read(tmp_path):
    (tmp_path / "a.csv").write_bytes(b'click,site\n1,a\n0,"b\n' + b"1,c\n" * 50)
    (tmp_path / "b.csv").write_bytes(b"click,site\n1,a\n")
    schema = Schema(columns=("click", "site"), kinds=("label", "categorical"))
    rows, bad, places = read_all([str(tmp_path / "a.csv"), str(tmp_path / "b.csv")], schema, CsvOptions(), 64)
    assert (len(rows), bad, places) == (52, 1, [f"{tmp_path / 'a.csv'}:3"])


def load(name):
    path = real_data.FOLDER / name
    if not path.exists():
        pytest.skip(f"{path} is absent")
    return lzma.decompress(path.read_bytes())


def test_criteo_and_avazu():
    for name, label, ignored in [("criteo_tiny_2k.csv.xz", "Label", "Id"), ("avazu_10k.csv.xz", "click", "id")]:
        text = load(name)
        schema = guess_schema([chunk_of(text)], label=label, ignore=[ignored])
        part = CsvParser(schema, SLOTS).parse(chunk_of(text))
        cells = reference_table.split_rows(text)[1:500]
        assert part.bad == 0
        assert rows_of(part.batch)[:499] == reference_table.table(cells, schema, SLOTS)[0]


def test_movie_reviews():
    text = b"".join(load("movie_reviews_427k.tsv.xz").splitlines(keepends=True)[:2000])
    options = CsvOptions(delimiter="\t", quote="", header=False)
    choices = {"label": "3", "ignore": ["1", "2"], "categorical": ["4", "5"], "text": ["6"]}
    schema = guess_schema([chunk_of(text)], options, **choices, tokens=Tokens(pairs=True))
    part = CsvParser(schema, SLOTS, options, labels="real").parse(chunk_of(text))
    cells = reference_table.split_rows(text, b"\t", b"")
    assert part.bad == 0
    assert rows_of(part.batch) == reference_table.table(cells, schema, SLOTS, True)[0]
