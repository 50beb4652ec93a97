"""Numeric columns of one size: found in the first rows, the same for all formats, kept in the model."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from lessram.cli.main import app
from lessram.data.column_scale import ROWS, column_scale
from lessram.data.formats import Choices, Form, Stream
from lessram.data.reader import read_batches
from lessram.data.schema import ColumnScale, Schema
from lessram.data.source import CHUNK
from lessram.errors import SpecError
from lessram.model.model import Model

SLOTS = 1 << 10
NAMES = ("click", "site", "miles", "clock")


def rows(count: int = 300) -> list[tuple[int, str, float, int]]:
    """Distances around 1000, clock times around 12:00; late flights are long and in the evening."""
    rng = np.random.default_rng(3)
    miles, clock = rng.integers(200, 2500, count) / 2, rng.integers(500, 2300, count)
    late = (miles / 1250 + clock / 2300 + rng.random(count) > 1.7).astype(int)
    return [(int(late[i]), f"s{i % 5}", float(miles[i]), int(clock[i])) for i in range(count)]


def write(folder: Path, ending: str, table: list[tuple[int, str, float, int]]) -> Path:
    path = folder / f"table.{ending}"
    if ending == "parquet":
        pa = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        types = pa.schema(list(zip(NAMES, (pa.int64(), pa.string(), pa.float64(), pa.int64()), strict=True)))
        parquet.write_table(pa.Table.from_pylist([dict(zip(NAMES, row, strict=True)) for row in table], types), path)
    elif ending == "jsonl":
        path.write_bytes(b"\n".join(msgspec.json.encode(dict(zip(NAMES, row, strict=True))) for row in table))
    else:
        comma = "," if ending == "csv" else "\t"
        path.write_text("".join(comma.join(map(str, row)) + "\n" for row in [NAMES, *table]))
    return path


def read(path: Path, **choices: object) -> list[tuple[list[int], list[float]]]:
    reader = read_batches([str(path)], slots=SLOTS, choices=Choices(label="click", **choices))
    return [
        (batch.slots[a:b].tolist(), batch.values[a:b].tolist())
        for batch, _ in reader
        for a, b in zip(batch.indptr[:-1], batch.indptr[1:], strict=True)
    ]


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=50), st.integers(-30, 30))
def test_values_are_centred_and_of_size_one(numbers: list[float], exponent: int) -> None:
    numbers = [math.ldexp(number, exponent) for number in numbers]
    scale = column_scale("x", numbers)
    spread, size = np.std(numbers), np.sqrt(np.mean(np.square(numbers)))
    if size == 0:
        assert scale is None
    elif spread > 1e-5 * size:
        assert scale is not None
        values = (np.array(numbers) - scale.centre) / scale.unit
        assert abs(values.mean()) <= 1 / 16
        assert 0.7 < values.std() < 1.42
        assert math.frexp(scale.unit)[0] == 0.5  # a power of two


def test_columns_that_say_little() -> None:
    assert column_scale("x", []) is None
    assert column_scale("x", [0.0, 0.0]) is None
    assert column_scale("x", [math.inf, math.nan]) is None
    assert column_scale("x", [3.0]) == ColumnScale(column="x", centre=0.0, unit=4.0)
    with pytest.raises(SpecError, match="the unit positive"):
        ColumnScale(column="x", centre=0.0, unit=0.0)


def test_all_formats_give_the_same_values(tmp_path: Path) -> None:
    table = rows()
    found = {ending: read(write(tmp_path, ending, table)) for ending in ("csv", "tsv", "jsonl", "parquet")}
    assert found["csv"] == found["tsv"] == found["jsonl"] == found["parquet"]
    scales = {name: column_scale(name, [row[k] for row in table]) for k, name in enumerate(NAMES) if k > 1}
    for row, (_, values) in zip(table, found["csv"], strict=True):
        expected = [(row[2] - scales["miles"].centre) / scales["miles"].unit]
        expected += [(row[3] - scales["clock"].centre) / scales["clock"].unit]
        assert values == [1.0, *(value for value in expected if value != 0)]


def test_raw_columns_stand_as_they_are(tmp_path: Path) -> None:
    table = rows(20)
    for ending in ("csv", "parquet"):
        found = read(write(tmp_path, ending, table), scale_columns=False)
        assert [values for _, values in found] == [[1.0, miles, clock] for _, _, miles, clock in table]


def test_only_the_first_rows_count(tmp_path: Path) -> None:
    table = rows(ROWS)
    beyond = [*table, *((1, "s", 1e9, 10**9) for _ in range(50))]
    for ending in ("csv", "jsonl", "parquet"):
        few = Stream([str(write(tmp_path, ending, table))], Form(name="auto")).decide(Choices(label="click"))
        many = Stream([str(write(tmp_path, ending, beyond))], Form(name="auto")).decide(Choices(label="click"))
        assert few.schema is not None
        assert few.schema.scales
        assert few == many


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
@pytest.mark.parametrize("short", [0, 1, 7, 300])
def test_the_first_rows_may_lie_in_several_files(tmp_path: Path, ending: str, short: int) -> None:
    table = rows(ROWS + 200)
    whole = Stream([str(write(tmp_path, ending, table))], Form(name="auto")).decide(Choices(label="click"))
    parts = []
    for name, share in (("a", table[:short]), ("b", table[short : short + 400]), ("c", table[short + 400 :])):
        (tmp_path / name).mkdir()
        parts.append(str(write(tmp_path / name, ending, share)))
    assert whole.schema is not None
    assert whole.schema.kinds == ("label", "categorical", "numeric", "numeric")
    stream = Stream(parts, Form(name="auto"))
    assert stream.decide(Choices(label="click")) == whole
    assert sum(part.batch.rows for part in stream.parts(whole, SLOTS)) == len(table)  # looking at them lost no row


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_the_first_rows_may_be_long(tmp_path: Path, ending: str) -> None:
    table = [(click, 3000 * site, miles, clock) for click, site, miles, clock in rows(ROWS)]
    path = write(tmp_path, ending, table)
    assert path.stat().st_size > CHUNK
    found = Stream([str(path)], Form(name="auto")).decide(Choices(label="click"))
    assert found.schema is not None
    assert found.schema.scales == tuple(column_scale(NAMES[k], [row[k] for row in table]) for k in (2, 3))


def test_streams_of_arrow_are_looked_at_without_losing_rows() -> None:
    pa = pytest.importorskip("pyarrow")
    from lessram.data.tabular import open_table, table_parts

    table = pa.table({"click": [1, 0] * 900, "miles": [float(i) for i in range(1800)]})
    found = []
    for data in (table, pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=70))):
        source = open_table(data)
        schema = source.guess_schema(label="click")
        assert schema.scales
        parts = table_parts(source, schema, SLOTS)
        found.append([value for part in parts for value in part.batch.values.tolist()])
    assert found[0] == found[1]
    assert len(found[0]) == 1800 - 1  # one number is the centre


def test_a_schema_without_scales_is_written_as_ever() -> None:
    schema = Schema(columns=("a",), kinds=("numeric",))
    assert b"scales" not in msgspec.json.encode(schema)
    scaled = Schema(columns=("a",), kinds=("numeric",), scales=(ColumnScale(column="a", centre=1.0, unit=2.0),))
    assert msgspec.json.decode(msgspec.json.encode(scaled), type=Schema) == scaled


def lessram(*words: str) -> str:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_model_keeps_the_scales(tmp_path: Path) -> None:
    """Prediction, and going on with other data, use those of the first rows that the model ever saw."""
    table = rows()
    monday, tuesday = write(tmp_path, "csv", table), tmp_path / "tuesday.csv"
    model, after = str(tmp_path / "model"), str(tmp_path / "after")
    lessram("train", str(monday), "-o", model, "--label", "click", "--bits", "10", "--quiet")
    shifted = [(label, site, miles + 7000, clock * 3) for label, site, miles, clock in table]
    tuesday.write_text(write(tmp_path, "tsv", shifted).read_text().replace("\t", ","))
    lessram("train", str(tuesday), "-o", after, "-i", model, "--label", "click", "--quiet")
    assert Model.load(after).reader == Model.load(model).reader
    assert [scale["unit"] for scale in Model.load(model).reader["schema"]["scales"]] == [256.0, 512.0]
    everything = lessram("predict", model, str(monday)).split()
    (tmp_path / "one.csv").write_text("".join(monday.read_text().splitlines(keepends=True)[:2]))
    assert lessram("predict", model, str(tmp_path / "one.csv")).split() == everything[:1]
