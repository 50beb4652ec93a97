"""Words such as NA that stand for an empty cell, and the note where they were not said."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
import reference_table
from commands import lessram
from guarded import guarded_chunk
from hypothesis import given, settings
from hypothesis import strategies as st
from texts import mutated, rows_of

from lessram import predict, read_batches
from lessram.data.csv import CsvOptions, CsvParser, guess_schema
from lessram.data.formats import Choices
from lessram.data.lines import chunk_of
from lessram.data.schema import Schema, Tokens
from lessram.errors import DataError, SpecError
from lessram.model.model import Model

SLOTS = 2**20
PLAIN = CsvOptions(header=False)
TSV = CsvOptions(delimiter="\t", quote="", header=False)
SCHEMA = Schema(
    columns=("click", "site", "price", "note", "id", "many"),
    kinds=("label", "categorical", "numeric", "text", "ignored", "weight"),
    tokens=Tokens(pairs=True, characters=(2, 3)),
    interactions=(("site", "price"), ("site", "note")),
)
WORDS = ("-999", "?", "N A", "NA", '\\"N', "null", "été", "x" * 70)
WITH_WORDS = msgspec.structs.replace(SCHEMA, missing=WORDS)
ENCODED = [word.encode() for word in WORDS]


def emptied(row: list[bytes] | None, schema: Schema) -> list[bytes] | None:
    """A row with empty cells for the words."""
    if row is None or len(row) != len(schema.kinds):
        return row
    exact = ("categorical", "text")
    words = [cell if kind in exact else cell.strip(b" ") for cell, kind in zip(row, schema.kinds, strict=True)]
    return [b"" if word in ENCODED else cell for cell, word in zip(row, words, strict=True)]


def assert_as_slow(text: bytes, options: CsvOptions = PLAIN, slots: int = SLOTS) -> int:
    part = CsvParser(WITH_WORDS, slots, options).parse(guarded_chunk(text, "clicks.csv"), tolerate=10**9)
    rows = reference_table.split_rows(text, options.delimiter.encode(), options.quote.encode())
    expected = reference_table.table([emptied(row, WITH_WORDS) for row in rows], SCHEMA, slots)
    assert (rows_of(part.batch), part.bad, part.unlabelled) == expected
    return part.bad


QUOTED = [b'"%b"' % word.replace(b'"', b'""') for word in ENCODED]
CELLS = [
    *ENCODED,
    *QUOTED,
    b'" NA "',
    b'"NANA"',
    b'"""NA"""',
    b"",
    b"NAN",
    b"N",
    b" NA",
    b"NA ",
    b"na",
    b"two NA words",
]
CELLS += [b"x" * 69, b"x" * 71, b"1", b"-999.0", b" "]


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: repr(cell[:12]))
@pytest.mark.parametrize("options", [PLAIN, TSV], ids=["csv", "tsv"])
def test_a_word_is_an_empty_cell_in_every_column(cell: bytes, options: CsvOptions) -> None:
    usual = [b"1", b"rome", b"0.5", b"the cat", b"7", b"2"]
    rows = [[*usual[:i], cell, *usual[i + 1 :]] for i in range(len(usual))] + [[cell] * 6, [b"1"] + [cell] * 5]
    for end in (b"\n", b"\r\n"):
        text = end.join(options.delimiter.encode().join(row) for row in rows)
        bad = assert_as_slow(text, options)
        if cell in ENCODED or (options.quote and cell in QUOTED):
            assert bad == 0


def test_wide_tables_hash_the_same_cells() -> None:
    schema = Schema(columns=("y", "a", "b"), kinds=("label", "categorical", "numeric"), missing=("NA",))
    for text in (b'1,NA,2\n0,"NA",NA\n1,x,NA\n', b"1,,2\n0,,\n1,x,\n"):
        part = CsvParser(schema, 2**40, PLAIN).parse(chunk_of(text))
        assert part.batch.indptr.tolist() == [0, 1, 1, 2]


cells = st.one_of(st.sampled_from(CELLS), st.binary(max_size=4), st.sampled_from([b"0", b"0.5", b"-1"]))
lines = st.lists(st.lists(cells, min_size=5, max_size=7).map(b",".join), max_size=12)


@settings(deadline=None, max_examples=300)
@given(lines.map(b"\n".join))
def test_any_table_is_read_as_by_the_slow_parser(text: bytes) -> None:
    assert_as_slow(text)


LINES = [b"1,NA,null,?,NA,NA", b'"NA","N A"," NA ","?",x,-999', b"NA,a,1,b,c,2"]
LINES += [b'0,"\\""N",-999,' + b"x" * 70 + b",,1"]


@settings(deadline=None, max_examples=300)
@given(mutated(LINES, b' ,"\n\rNAx?9-'))
def test_mutated_lines_are_read_as_by_the_slow_parser(text: bytes) -> None:
    assert_as_slow(text)


def test_a_column_of_numbers_and_words_is_numeric() -> None:
    text, plain = b"y,p,q\n1,2.5,a\n0, NA ,NA\n1,3,b\n", b"y,p,q\n1,2.5,a\n0,,\n1,3,b\n"
    assert guess_schema([chunk_of(text)], label="y").kinds == ("label", "categorical", "categorical")
    found = guess_schema([chunk_of(text)], label="y", missing=["null", "NA", "NA"], scaled=True)
    assert found.missing == ("NA", "null")
    assert msgspec.structs.replace(found, missing=msgspec.UNSET) == guess_schema(
        [chunk_of(plain)], label="y", scaled=True
    )
    assert found.arranged(["q", "p"]).to_predict().missing == ("NA", "null")


def test_a_schema_without_words_is_written_as_ever() -> None:
    assert b"missing" not in msgspec.json.encode(guess_schema([chunk_of(b"y,p\n1,2\n")], label="y"))
    assert msgspec.json.decode(msgspec.json.encode(WITH_WORDS), type=Schema) == WITH_WORDS


@pytest.mark.parametrize("word", ["", " NA", "NA ", "\udcff"])
def test_words_that_no_cell_can_be_are_refused(word: str) -> None:
    with pytest.raises(SpecError, match="missing must be words of UTF-8 without blanks around them"):
        Schema(columns=("a",), kinds=("numeric",), missing=(word,))


# Files, commands ------------------------------------------------------------------------------------------------------


def table(word: str, *, rows: int = 3000, delimiter: str = ",") -> str:
    """Labels that follow a number and a category, a seventh of which are missing."""
    rng = np.random.default_rng(5)
    written = [delimiter.join(("y", "p", "city"))]
    for _ in range(rows):
        number, city = round(float(rng.normal()), 3), ["rome", "oslo"][int(rng.integers(2))]
        label = str(int(number + (city == "rome") > 0.5))
        chosen = rng.random(3) < [0.01, 0.14, 0.14]
        cells = (label, str(number), city)
        written.append(delimiter.join(word if gone else cell for gone, cell in zip(chosen, cells, strict=True)))
    return "\n".join(written) + "\n"


def run(*words: object) -> str:
    result = lessram(*words)
    assert result.code == 0, result.err
    return result.out


@pytest.mark.parametrize(("ending", "delimiter"), [("csv", ","), ("tsv", "\t")])
def test_words_are_as_empty_cells_from_training_to_prediction(tmp_path: Path, ending: str, delimiter: str) -> None:
    found = {}
    for name, word, options in [("words", "NA", ["--missing", "null,NA"]), ("empty", "", [])]:
        data, model = tmp_path / f"{name}.{ending}", tmp_path / name
        data.write_text(table(word, delimiter=delimiter))
        run("train", data, "-o", model, "--label", "y", "--bits", 12, "-q", *options)
        scores = msgspec.json.decode(run("evaluate", model, data, "--json"))
        figures = {key: scores[key] for key in ("examples", "log_loss", "error_rate", "auc")}
        found[name] = run("predict", model, data), figures, predict(str(model), str(data)).tolist()
    assert found["words"] == found["empty"]
    remembered = Model.load(tmp_path / "words").reader["schema"]
    assert remembered["missing"] == ["NA", "null"]
    assert "missing" not in Model.load(tmp_path / "empty").reader["schema"]
    assert remembered["kinds"] == ["label", "numeric", "categorical"]


def test_threads_and_resumed_runs_give_the_same_bytes(tmp_path: Path) -> None:
    checkpoint, sources = tmp_path / "c", [tmp_path / f"{day}.csv" for day in range(3)]
    for source in sources:
        source.write_text(table("NA", rows=20_000))
    said = ["train", *sources, "--label", "y", "--missing", "NA", "--bits", 12, "-q"]
    run(*said, "-o", tmp_path / "one", "--threads", 1)
    run(*said, "-o", tmp_path / "three", "--threads", 3, "--checkpoint", checkpoint, "--checkpoint-every", 30_000)
    assert Model.load(checkpoint).examples < Model.load(tmp_path / "one").examples
    run("resume", checkpoint, "-o", tmp_path / "resumed", "-q")
    one = (tmp_path / "one").read_bytes()
    assert (tmp_path / "three").read_bytes() == one
    assert (tmp_path / "resumed").read_bytes() == one


def test_going_on_keeps_the_words(tmp_path: Path) -> None:
    data, model, after = tmp_path / "a.csv", tmp_path / "model", tmp_path / "after"
    data.write_text(table("NA"))
    run("train", data, "-o", model, "--label", "y", "--missing", "NA", "--bits", 12, "-q")
    run("train", data, "-o", after, "-i", model, "-q")
    assert Model.load(after).reader == Model.load(model).reader
    other = lessram("train", data, "-o", after, "-i", model, "--label", "y", "--missing", "NA,null", "-q")
    assert (other.code, "the model was trained with other missing words" in other.err) == (2, True)


def test_batches_in_python(tmp_path: Path) -> None:
    data, plain = tmp_path / "a.csv", tmp_path / "b.csv"
    data.write_text(table("NA"))
    plain.write_text(table(""))
    choices = Choices(label="y", missing=("NA",))
    reader = read_batches(str(data), slots=SLOTS, choices=choices)
    found = [row for batch, _ in reader for row in rows_of(batch)]
    assert found == [row for batch, _ in read_batches(str(plain), slots=SLOTS, label="y") for row in rows_of(batch)]
    again = read_batches(str(data), slots=SLOTS, reader=reader.reader)
    assert [row for batch, _ in again for row in rows_of(batch)] == found


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.jsonl", '{"y": 1, "p": 2}\n'), ("a.svm", "1 3:1\n"), ("a.vw", "1 |a x\n")],
)
def test_other_formats_have_no_missing_words(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    label = ["--label", "y"] if name == "a.jsonl" else []
    told = lessram("train", tmp_path / name, "-o", tmp_path / "m", "--missing", "NA", *label)
    assert told.code == 2
    assert "--missing does not go with" in told.err
    with pytest.raises(SpecError, match="missing= does not go with"):
        read_batches(str(tmp_path / name), slots=64, choices=Choices(label="y" if label else None, missing=("NA",)))


def test_in_json_lines_a_word_is_a_value(tmp_path: Path) -> None:
    data, lines = tmp_path / "a.csv", tmp_path / "a.jsonl"
    data.write_text(table("NA"))
    run("train", data, "-o", tmp_path / "m", "--label", "y", "--missing", "NA", "--bits", 12, "-q")
    lines.write_text('{"p": null, "city": null}\n')
    assert len(predict(str(tmp_path / "m"), str(lines))) == 1
    lines.write_text('{"p": "NA", "city": "rome"}\n')
    with pytest.raises(DataError, match="found 'NA' in column 'p', expected a finite number"):
        predict(str(tmp_path / "m"), str(lines))


# The note -------------------------------------------------------------------------------------------------------------


def notes(tmp_path: Path, text: str, *options: object) -> list[str]:
    (tmp_path / "a.csv").write_text(text)
    told = lessram("train", tmp_path / "a.csv", "-o", tmp_path / "m", "--label", "y", "--bits", 10, "-q", *options)
    assert told.code == 0, told.err
    return [line for line in told.err.splitlines() if "became categories" in line]


def columns_of(*columns: list[object]) -> str:
    names = ["y", "p", "q"][: len(columns) + 1]
    rows = [[i % 2, *cells] for i, cells in enumerate(zip(*columns, strict=True))]
    return "".join(",".join(map(str, row)) + "\n" for row in [names, *rows])


def test_words_among_numbers_are_told(tmp_path: Path) -> None:
    text = columns_of([*range(18), "NA", "NA"], [*range(18), "?", ""])
    assert notes(tmp_path, text) == [
        "columns 'p', 'q' became categories, since a few of the first cells are no numbers ('NA', '?'): "
        "--missing 'NA,?' reads these as empty cells, --categorical p,q says that categories are meant"
    ]
    assert notes(tmp_path, text, "--missing", "NA") == [
        "column 'q' became categories, since a few of the first cells are no numbers ('?'): "
        "--missing 'NA,?' reads these as empty cells, --categorical q says that categories are meant"
    ]
    assert notes(tmp_path, text, "--missing", "NA,?") == []
    assert notes(tmp_path, text, "--categorical", "p,q") == []
    assert notes(tmp_path, text, "--categorical", "q", "--ignore", "p") == []


def test_words_that_no_option_can_say_are_not_advised(tmp_path: Path) -> None:
    (note,) = notes(tmp_path, columns_of([*range(20), '"1,000"']))
    assert "('1,000'): --categorical p says" in note
    (note,) = notes(tmp_path, columns_of([*range(90), *(f"x{i}" for i in range(7))]))
    assert "('x0', 'x1', 'x2', 'x3', 'x4', ...): --categorical p says" in note


@pytest.mark.parametrize(
    ("numbers", "words", "told"), [(10, 1, True), (9, 1, False), (18, 2, True), (17, 2, False), (30, 0, False)]
)
def test_a_note_needs_numbers_enough(tmp_path: Path, numbers: int, words: int, told: bool) -> None:
    text = columns_of([*range(numbers), *["NA"] * words, *[""] * 5])
    assert bool(notes(tmp_path, text)) == told
