"""Formats: told by name and by content, read as the model was trained to read them."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import sys
import threading
import types
from pathlib import Path

import numpy as np
import pytest
import zstandard
from typer.testing import CliRunner

from lessram.cli.main import app
from lessram.data.batch import Batch
from lessram.data.formats import Choices, Form, Reading, Stream
from lessram.data.predicting import read_to_predict
from lessram.data.reader import BatchReader, read_batches
from lessram.errors import DataError, SpecError
from lessram.learning.learner import Learner
from lessram.learning.training import Plan, Training, plan_sources, reading_of
from lessram.model.model import Model
from lessram.model.spec import Spec

AUTO = Form(name="auto")
SLOTS = 4096

CONTENTS = {
    "svmlight": b"1 3:1 17:0.5\n-1 4:2\n",
    "vw": b"1 |a rome x:2\n-1 |b\n",
    "csv": b"click,site,price\n1,rome,2\n0,oslo,\n",
    "tsv": b"click\tsite\tprice\n1\trome\t2\n0\toslo\t\n",
    "jsonl": b'{"click": 1, "site": "rome"}\n{"click": 0, "site": "oslo"}\n',
}
ENDINGS = {
    "svmlight": ("svm", "svmlight", "libsvm"),
    "vw": ("vw",),
    "csv": ("csv",),
    "tsv": ("tsv",),
    "jsonl": ("jsonl", "ndjson", "json"),
    "parquet": ("parquet", "arrow", "feather"),
}
PACKERS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstandard.ZstdCompressor().compress}


def form_of(path: Path | str) -> str:
    return Stream([str(path)], AUTO).form.name


def features_of(batch: Batch) -> list[tuple[float, list[tuple[int, float]]]]:
    """Labels and features; the order of columns is no part of a row."""
    values = np.ones(len(batch.slots)) if batch.values is None else batch.values
    spans = [slice(*batch.indptr[row : row + 2]) for row in range(batch.rows)]
    return [
        (float(label), sorted(zip(batch.slots[span].tolist(), values[span].tolist(), strict=True)))
        for label, span in zip(batch.labels, spans, strict=True)
    ]


# Detection ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ENDINGS)
def test_the_name_tells(tmp_path: Path, form: str) -> None:
    """Whatever is inside, compressed or not, in capitals or not."""
    for ending in ENDINGS[form]:
        for name in (f"a.{ending}", f"A.{ending.upper()}", *(f"a.b.{ending}.{packed}" for packed in PACKERS)):
            path = tmp_path / name
            path.write_bytes(b"1 |a x\n")
            assert form_of(path) == form


@pytest.mark.parametrize("form", CONTENTS)
def test_the_content_tells(tmp_path: Path, form: str) -> None:
    path = tmp_path / "data.txt"
    path.write_bytes(CONTENTS[form])
    assert form_of(path) == form
    for name, pack in PACKERS.items():
        path = tmp_path / f"packed.{name}"
        path.write_bytes(pack(CONTENTS[form]))
        assert form_of(path) == form


@pytest.mark.parametrize(
    ("line", "form"),
    [
        (b"", "svmlight"),
        (b"1", "svmlight"),
        (b"+1 qid:3 1:0.5 # a, b | c", "svmlight"),
        (b"0 5 7 9", "svmlight"),
        (b"1 2:1e-3", "svmlight"),
        (b"1 'tag|a x:1,2", "vw"),
        (b"|a x", "vw"),
        (b'{"a": "x|y, z"}', "jsonl"),
        (b"a,b\tc", "tsv"),
        (b"label", "svmlight"),
    ],
)
def test_first_lines(tmp_path: Path, line: bytes, form: str) -> None:
    path = tmp_path / "data"
    path.write_bytes(line + b"\n1 2:1\n")
    assert form_of(path) == form


def test_columnar_files_are_known_by_their_first_bytes(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import feather, parquet

    table = pa.table({"click": [1, 0], "site": ["rome", "oslo"]})
    parquet.write_table(table, tmp_path / "one")
    feather.write_feather(table, str(tmp_path / "two"), compression="uncompressed")
    assert (form_of(tmp_path / "one"), form_of(tmp_path / "two")) == ("parquet", "parquet")


@pytest.mark.parametrize("form", CONTENTS)
def test_a_pipe_is_looked_at_and_then_read_whole(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read to tell the format is not lost, and nothing is opened twice."""
    choices = Choices() if form in ("svmlight", "vw") else Choices(label="click")
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_bytes(CONTENTS[form]))
    writer.start()
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(CONTENTS[form])))
    try:
        for source in (str(path), "-"):
            stream = Stream([source], AUTO)
            assert stream.form.name == form
            reader = BatchReader(stream, stream.decide(choices), slots=SLOTS)
            assert [batch.labels.tolist() for batch, _ in reader] == [[1.0, 0.0]]
    finally:
        writer.join()


def test_unknown_formats_and_choices_that_do_not_go_together(tmp_path: Path) -> None:
    path = tmp_path / "a.svm"
    path.write_bytes(CONTENTS["svmlight"])
    with pytest.raises(SpecError, match=r"format must be one of auto, svmlight, .*, parquet, got 'xml'"):
        Stream([str(path)], Form(name="xml"))
    with pytest.raises(SpecError, match="--label does not go with svmlight data"):
        Stream([str(path)], AUTO).decide(Choices(label="click"))
    with pytest.raises(SpecError, match="--columns does not go with vw data"):
        Stream([str(path)], Form(name="vw")).decide(Choices(columns=("a",)))
    path.write_text("click,site\n1,a\n")
    with pytest.raises(SpecError, match=r"csv data need --label COLUMN; the columns are 'click', 'site'$"):
        Stream([str(path)], Form(name="csv")).decide(Choices())
    path.write_text(",".join(f"c{i}" for i in range(50)) + "\n")
    with pytest.raises(SpecError, match=r"the columns are 'c0', .*, 'c19', \.\.\.$"):
        Stream([str(path)], Form(name="csv")).decide(Choices())


def test_an_empty_table(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"")
    with pytest.raises(DataError, match=r"a\.csv: found nothing in it, expected a table"):
        Stream([str(path)], AUTO).decide(Choices(label="click"))


# A model reads as it was trained --------------------------------------------------------------------------------------


def trained(tmp_path: Path, form: str, data: bytes | None = None, **choices: object) -> Model:
    path = tmp_path / f"train.{form}"
    path.write_bytes(CONTENTS[form] if data is None else data)
    stream = Stream([str(path)], Form(name=form))
    if form not in ("svmlight", "vw"):
        choices = {"label": "click", **choices}
    plan = Plan(sources=plan_sources([str(path)]), form=stream.form, reading=stream.decide(Choices(**choices)))
    training = Training(Model.new(Spec(slots=SLOTS, alpha=2.0)), plan, stream=stream)
    for _ in training.run():
        pass
    return training.model


def margins(model: Model, path: Path, **choices: object) -> list[float]:
    found: list[float] = []
    learner = Learner(model)
    for batch, _ in read_to_predict(Stream([str(path)], AUTO), reading_of(model), model.spec.slots, **choices):
        found += learner.predict(batch, trusted=True).tolist()
    return found


KINDS = {"svmlight": "svmlight text", "vw": "Vowpal Wabbit text", "csv": "a table"}


@pytest.mark.parametrize("form", KINDS)
@pytest.mark.parametrize("other", CONTENTS)
def test_data_of_another_kind_are_an_error(tmp_path: Path, form: str, other: str) -> None:
    """Tables of all formats are one kind."""
    model = trained(tmp_path, form)
    path = tmp_path / f"other.{other}"
    path.write_bytes(CONTENTS[other])
    if other == form or {form, other} <= {"csv", "tsv", "jsonl"}:
        if other != "jsonl":
            assert len(margins(model, path)) == 2
        return
    with pytest.raises(SpecError, match=f"the model was trained on {KINDS[form]}, got {other} data"):
        margins(model, path)


def test_going_on_with_another_reading_is_an_error(tmp_path: Path) -> None:
    model = trained(tmp_path, "svmlight")
    sources = plan_sources([str(tmp_path / "train.svmlight")])
    plan = Plan(sources=sources, form=Form(name="svmlight"), reading=Reading(hash_seed=7))
    with pytest.raises(SpecError, match="trained with another hash_seed: leave the options out"):
        Training(model, plan)


@pytest.mark.parametrize("form", ["csv", "tsv"])
def test_columns_in_another_order_and_without_the_label(tmp_path: Path, form: str) -> None:
    comma = b"," if form == "csv" else b"\t"

    def table(columns: list[bytes], *rows: dict[bytes, bytes]) -> bytes:
        return b"\n".join(comma.join(row[name] for name in columns) for row in ({n: n for n in columns}, *rows)) + b"\n"

    names = [b"click", b"site", b"price", b"hour"]
    rows = [dict(zip(names, [b"%d" % (i % 2), b"s%d" % (i % 3), b"%d" % (i + 1), b"h"], strict=True)) for i in range(9)]
    model = trained(tmp_path, form, table(names, *rows))
    expected = margins(model, tmp_path / f"train.{form}")
    assert len(set(expected)) > 3
    for number, columns in enumerate([names[::-1], names[1:], [b"hour", b"site", b"price"]]):
        path = tmp_path / f"other{number}.{form}"
        path.write_bytes(table(columns, *rows))
        assert margins(model, path) == expected
        assert margins(model, path, threads=3) == expected
    path.write_bytes(table([b"click", b"site"], *rows))
    with pytest.raises((DataError, SpecError), match=r"price|hour"):
        margins(model, path)


def test_all_formats_of_a_table_give_the_same_rows(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [(i % 2, f"s{i % 7}", float(i)) for i in range(1, 50)]
    (tmp_path / "a.csv").write_text("click,site,price\n" + "".join(f"{y},{s},{p}\n" for y, s, p in rows))
    (tmp_path / "a.tsv").write_text("click\tsite\tprice\n" + "".join(f"{y}\t{s}\t{p}\n" for y, s, p in rows))
    lines = (f'{{"click": {y}, "site": "{s}", "price": {p}}}\n' for y, s, p in rows)
    (tmp_path / "a.jsonl").write_text("".join(lines))
    columns = dict(zip(("click", "site", "price"), map(list, zip(*rows, strict=True)), strict=True))
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    found = []
    for ending in ("csv", "tsv", "jsonl", "parquet"):
        choices = Choices(label="click", categorical=("site",), numeric=("price",))
        reader = read_batches([str(tmp_path / f"a.{ending}")], slots=SLOTS, choices=choices)
        found.append([row for batch, _ in reader for row in features_of(batch)])
    assert found[0] == found[1] == found[2] == found[3]


def test_tables_in_memory_give_the_rows_of_files_and_models_that_read_files(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"click": [1, 0] * 50, "site": list("abcde") * 20, "price": [0.5, 3.25, 1, 2] * 25})
    path = tmp_path / "clicks.csv"
    frame.to_csv(path, index=False)
    learner = Learner(Spec(slots=SLOTS, alpha=0.1))
    reader = read_batches(frame, slots=SLOTS, label="click")
    learner.model.reader = reader.reader
    for batch, _ in reader:
        learner.learn(batch, trusted=True)
    learner.model.save(tmp_path / "frame.lessram")
    said = ["train", str(path), "-o", str(tmp_path / "file.lessram"), "--label", "click", "--alpha", "0.1"]
    assert CliRunner().invoke(app, [*said, "--bits", str(SLOTS.bit_length() - 1)]).exit_code == 0
    outputs = [
        CliRunner().invoke(app, ["predict", str(tmp_path / name), str(path)])
        for name in ("frame.lessram", "file.lessram")
    ]
    assert outputs[0].exit_code == 0
    assert outputs[0].stdout == outputs[1].stdout
