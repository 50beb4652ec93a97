"""Sources: what paths stand for, chunks of whole lines, stopping and going on, bad lines and files."""

from __future__ import annotations

import gzip
import io
import os
import sys
import threading
import types
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_svmlight import read_lines
from texts import COMPRESSORS, chunks_of, example_text

from lessram.data import source
from lessram.data.batch import Batch
from lessram.data.parsing import RowBuffers, make_rules
from lessram.data.reader import BatchReader, Position, read_batches
from lessram.data.source import ChunkReader, TextBuffer, expand, identify
from lessram.data.svmlight import parse
from lessram.data.text import PADDING, count_newlines
from lessram.errors import DataError, SpecError, TooManyErrors


def rows_in(batch: Batch) -> list[tuple[float, list[int], list[float]]]:
    values = np.ones(batch.features, np.float32) if batch.values is None else batch.values
    spans = [slice(*batch.indptr[row : row + 2]) for row in range(batch.rows)]
    return [
        (float(label), batch.slots[span].tolist(), values[span].tolist())
        for label, span in zip(batch.labels, spans, strict=True)
    ]


def rows_of(reader: BatchReader) -> list[tuple[float, list[int], list[float]]]:
    return [row for batch, _ in reader for row in rows_in(batch)]


def expected_rows(text: bytes, slots: int = 4096) -> list[tuple[float, list[int], list[float]]]:
    return [(float(y), ids, [float(x) for x in xs]) for y, ids, xs in read_lines(text, slots=slots)[0]]


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> int:
    """Chunks of 1000 bytes, so that small files have many."""
    size = 1000
    monkeypatch.setattr(TextBuffer.__init__, "__defaults__", (size,))
    return size


# ---------------------------------------------------------------- what paths stand for


def test_files_globs_and_directories_in_order(tmp_path: Path) -> None:
    for name in ["b/2.svm", "b/10.svm", "b/sub/1.svm", "b/_SUCCESS", "b/.hidden/x", "a.svm", "c.svm"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"1 2:1\n")
    found = expand([str(tmp_path / "c.svm"), str(tmp_path / "b"), str(tmp_path / "?.svm"), "-"])
    assert [os.path.relpath(path, tmp_path) for path in found[:-1]] == [
        "c.svm",
        "b/10.svm",
        "b/2.svm",
        "b/sub/1.svm",
        "a.svm",
        "c.svm",
    ]
    assert found[-1] == "-"


def test_a_name_with_a_glob_character_may_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "data[1].svm"
    path.write_bytes(b"1 2:1\n")
    assert expand([str(path)]) == [str(path)]


def test_sources_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="found no source, expected at least one"):
        expand([])
    with pytest.raises(DataError, match="empty: found an empty directory, expected files in it"):
        expand([str(tmp_path / "empty")])
    with pytest.raises(DataError, match=r"\*\.svm: found no file that matches, expected at least one"):
        expand([str(tmp_path / "*.svm")])
    missing = str(tmp_path / "missing.svm")
    for attempt in (identify, lambda paths: list(read_batches(paths, slots=8))):
        with pytest.raises(DataError, match=r"missing\.svm: cannot read: No such file or directory"):
            attempt([missing])


def test_identities_change_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.svm"
    path.write_bytes(b"1 2:1\n")
    (before,) = identify([str(path)])
    assert before == msgspec.json.decode(msgspec.json.encode(before), type=source.Identity)
    assert (before.path, before.size) == (str(path), 6)
    path.write_bytes(b"1 2:1\n0 3:1\n")
    assert identify([str(path)]) != [before]
    assert identify(["-"]) == [source.Identity("-", -1, 0)]


# ---------------------------------------------------------------- chunks


@pytest.mark.parametrize("name", COMPRESSORS)
def test_compression_is_told_by_the_bytes(tmp_path: Path, name: str) -> None:
    text = example_text(300)
    path = tmp_path / "file.txt"
    path.write_bytes(COMPRESSORS[name](text))
    assert b"".join(piece for piece, _ in chunks_of([str(path)])) == text
    assert rows_of(read_batches([str(path)], slots=4096)) == expected_rows(text)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(0, 200), max_size=40), min_size=1, max_size=4), st.booleans(), st.integers(1, 300))
def test_chunks_are_the_text_in_whole_lines(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[list[int]], ended: bool, capacity: int
) -> None:
    folder = tmp_path_factory.mktemp("chunks")
    texts = []
    for number, file in enumerate(lengths):
        text = b"".join(b"x" * length + b"\n" for length in file)
        texts.append(text if ended else text[:-1])
        (folder / f"{number}").write_bytes(texts[-1])
    chunks = chunks_of([str(folder)], capacity)
    for number, text in enumerate(texts):
        mine = [(piece, chunk) for piece, chunk in chunks if chunk.start.source == number]
        assert b"".join(piece for piece, _ in mine) == text
        for piece, chunk in mine:
            done = text[: chunk.start.offset]
            assert (chunk.start.offset, chunk.start.line) == (len(done), done.count(b"\n") + 1)
            assert chunk.name == str(folder / f"{number}")
            assert piece.endswith(b"\n") or chunk.stop.offset == len(text)
            assert chunk.stop.offset == chunk.start.offset + len(piece)


def test_a_long_line_makes_its_chunk_grow_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "long.svm"
    path.write_bytes(b"1 2:1\n" + b"1 " + b"3:1 " * 5000 + b"\n" + b"0 4:1\n" * 2000)
    reader, buffer, capacities = ChunkReader([str(path)]), TextBuffer(1000), []
    while reader.read(buffer) is not None:
        capacities.append(buffer.capacity)
    assert max(capacities) > 20000
    assert capacities[-1] == 1000


def test_a_line_beyond_the_limit_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "LONGEST_LINE", 5000)
    path = tmp_path / "long.svm"
    path.write_bytes(b"1 2:1\n1 3:1\n" + b"x" * 100_000)
    with pytest.raises(DataError, match=r"long\.svm:3: found a line of more than 5000 bytes, expected a shorter one"):
        chunks_of([str(path)])


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.svm"
    path.write_bytes(b"\xef\xbb\xbf1 2:1\n")
    assert rows_of(read_batches([str(path)], slots=8)) == [(1.0, [2], [1.0])]


def test_a_directory_as_a_file_and_a_forbidden_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.svm"
    path.write_bytes(b"1 2:1\n")

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(DataError, match=r"a\.svm: cannot read: Permission denied"):
        chunks_of([str(path)])


# ---------------------------------------------------------------- standard input and pipes


def stdin_of(monkeypatch: pytest.MonkeyPatch, stream: io.IOBase) -> None:
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=stream))


@pytest.mark.parametrize("name", COMPRESSORS)
def test_standard_input(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    text = example_text(100)
    stdin_of(monkeypatch, io.BytesIO(COMPRESSORS[name](text)))
    assert rows_of(read_batches(["-"], slots=4096)) == expected_rows(text)


@pytest.mark.parametrize("name", COMPRESSORS)
def test_a_pipe_that_gives_one_byte_at_first(name: str, tmp_path: Path) -> None:
    text = example_text(3000)
    path = tmp_path / "pipe"
    os.mkfifo(path)

    def write() -> None:
        packed = COMPRESSORS[name](text)
        with open(path, "wb", buffering=0) as pipe:
            pipe.write(packed[:1])
            rest = memoryview(packed)[1:]
            while rest:
                rest = rest[pipe.write(rest) :]

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert rows_of(read_batches([str(path)], slots=4096)) == expected_rows(text)
    finally:
        writer.join()


# ---------------------------------------------------------------- batches, positions, bad lines


@pytest.mark.parametrize("name", COMPRESSORS)
def test_going_on_from_every_position(tmp_path: Path, small_chunks: int, name: str) -> None:
    texts = [b"bad\n" + example_text(60, seed)[:-1] for seed in range(3)]
    for number, text in enumerate(texts):
        (tmp_path / f"{number}").write_bytes(COMPRESSORS[name](text))
    rows = [row for text in texts for row in expected_rows(text)]

    def reader(start: Position | None = None) -> BatchReader:
        return read_batches([str(tmp_path)], slots=4096, max_errors=3, start=start)

    whole = reader()
    stops = [(position, batch.rows) for batch, position in whole]
    assert len(stops) > 10
    assert whole.report.hashed > 0
    done = 0
    for position, count in stops:
        done += count
        packed = msgspec.json.encode(position)
        resumed = reader(msgspec.json.decode(packed, type=Position))
        assert rows_of(resumed) == rows[done:]
        assert (resumed.report.skipped, resumed.report.hashed) == (3, whole.report.hashed)
        assert resumed.position == whole.position


def test_going_on_behind_the_end_is_an_error(tmp_path: Path) -> None:
    for name, compress in COMPRESSORS.items():
        path = tmp_path / name
        path.write_bytes(compress(b"1 2:1\n"))
        with pytest.raises(DataError, match=f"{name}: found fewer than 7 bytes of text, expected to go on behind them"):
            list(read_batches([str(path)], slots=8, start=Position(offset=7)))


def test_going_on_in_damaged_data_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(example_text(100))[:-20])
    with pytest.raises(DataError, match=r"cut\.gz: found the end of the file in the middle"):
        list(read_batches([str(path)], slots=8, start=Position(offset=10**6)))


def test_the_first_bad_line_raises(tmp_path: Path) -> None:
    path = tmp_path / "file.svm"
    path.write_bytes(b"1 2:1\n\n1 17:abc\n")
    with pytest.raises(DataError) as caught:
        list(read_batches([str(path)], slots=8))
    assert str(caught.value) == f"{path}:3: found 'abc' as the value of feature 17, expected a finite number"
    assert not isinstance(caught.value, TooManyErrors)


def test_bad_lines_are_counted_across_chunks_and_files(tmp_path: Path, small_chunks: int) -> None:
    good, bad = b"1 2:1\n", b"1 2:x\n"
    (tmp_path / "0").write_bytes((good * 99 + bad) * 10)
    (tmp_path / "1").write_bytes((good * 99 + bad) * 10)
    reader = read_batches([str(tmp_path)], slots=8, max_errors=20)
    assert sum(batch.rows for batch, _ in reader) == 1980
    assert (reader.report.skipped, reader.position.skipped) == (20, 20)
    assert len(reader.report.messages) == 10
    assert (
        reader.report.messages[1] == f"{tmp_path}/0:200: found 'x' as the value of feature 2, expected a finite number"
    )

    reader = read_batches([str(tmp_path)], slots=8, max_errors=14)
    with pytest.raises(TooManyErrors) as caught:
        list(reader)
    assert str(caught.value) == (
        f"{tmp_path}/1:500: found 'x' as the value of feature 2, expected a finite number; 15 bad lines, 14 allowed"
    )


@pytest.mark.parametrize("size", [24, 100, 5000])
def test_the_first_bad_lines_are_quoted_however_text_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(TextBuffer.__init__, "__defaults__", (size,))
    for name, good, bad in (
        ("svm", b"1 2:1\n", b"1 2:x\n"),
        ("vw", b"1 | a\n", b"7 | a\n"),
        ("csv", b"1,2\n", b"7,2\n"),
    ):
        path = tmp_path / f"file.{name}"
        path.write_bytes((b"y,x\n" if name == "csv" else good) + (bad + good) * 40)
        reader = read_batches([str(path)], slots=8, max_errors=40, **({"label": "y"} if name == "csv" else {}))
        assert sum(batch.rows for batch, _ in reader) == 40 + (name != "csv")
        places = [message.split(": ")[0] for message in reader.report.messages]
        assert places == [f"{path}:{2 + 2 * i}" for i in range(10)]


def test_bad_lines_before_the_start_count(tmp_path: Path) -> None:
    path = tmp_path / "file.svm"
    path.write_bytes(b"x\n1 2:1\nx\n0 3:1\n")
    start = Position(offset=2, line=2, skipped=1)
    with pytest.raises(SpecError, match="max_errors must cover the 1 bad lines before the start, got 0"):
        read_batches([str(path)], slots=8, start=start)
    with pytest.raises(TooManyErrors, match=r"file\.svm:3: .*; 2 bad lines, 1 allowed"):
        list(read_batches([str(path)], slots=8, start=start, max_errors=1))
    assert [batch.rows for batch, _ in read_batches([str(path)], slots=8, start=start, max_errors=2)] == [2]


def test_lines_that_are_no_examples_give_no_batch(tmp_path: Path, small_chunks: int) -> None:
    path = tmp_path / "file.svm"
    path.write_bytes(b"# nothing\n" * 1000 + b"1\n" + b"\n" * 3000)
    reader = read_batches([str(path)], slots=8)
    assert [(batch.rows, batch.features) for batch, _ in reader] == [(1, 0)]
    assert reader.position == Position(source=0, offset=13002, line=4002)


def test_threads_parse_side_by_side(tmp_path: Path) -> None:
    """Chunks are read in turn and parsed all at once, by threads that own their buffers."""
    text = example_text(3000)
    (tmp_path / "file.svm").write_bytes(text)
    reader, turn = ChunkReader([str(tmp_path)]), threading.Lock()
    rules, parts = make_rules(4096), dict[int, list]()

    def work() -> None:
        buffer, rows = TextBuffer(1000), RowBuffers(rules)
        while True:
            with turn:
                chunk = reader.read(buffer)
            if chunk is None:
                return
            parts[chunk.start.offset] = rows_in(parse(chunk, rows, rules).batch)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [row for offset in sorted(parts) for row in parts[offset]] == expected_rows(text)


def test_whether_ids_were_hashed_is_known(tmp_path: Path) -> None:
    path = tmp_path / "file.svm"
    path.write_bytes(b"1 2:1 8:1\n0 9:1\n")
    for hash, hashed in (("auto", 2), ("all", 3)):
        reader = read_batches([str(path)], slots=8, hash=hash)
        assert [position.hashed for _, position in reader] == [hashed]
        assert reader.report.hashed == hashed
    with pytest.raises(DataError, match=r"file\.svm:1: found '8' as the index of a feature, expected one below 8"):
        list(read_batches([str(path)], slots=8, hash="none"))


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"slots": 0}, "slots must be from 1 to 2\\^48, got 0"),
        ({"hash": "maybe"}, "hash must be one of 'auto', 'all', 'none', got 'maybe'"),
        ({"labels": "three"}, "labels must be one of 'binary', 'real', got 'three'"),
        ({"max_errors": -1}, "max_errors must not be negative, got -1"),
    ],
)
def test_wrong_choices(choices: dict, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        read_batches(["-"], format="svmlight", **{"slots": 8, **choices})


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 128, 1000])
def test_newlines_are_counted(size: int) -> None:
    text = np.random.default_rng(size).choice([10, 32], size + PADDING).astype(np.uint8)
    assert count_newlines(text, size) == np.count_nonzero(text[:size] == 10)


def test_text_in_utf16_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.svm"
    path.write_bytes("1 1:1\n".encode("utf-16"))
    with pytest.raises(DataError, match=r"a\.svm: found text in UTF-16, expected UTF-8"):
        rows_of(read_batches([str(path)], slots=4096))
