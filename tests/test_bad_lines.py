"""What a bad line costs: its own length, not that of the chunk. Work is counted here, findings stand elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lessram.data import csv, lines, svmlight, vw
from lessram.data.csv import CsvParser
from lessram.data.lines import chunk_of
from lessram.data.parsing import REPORTS, RowBuffers, make_rules
from lessram.data.scanning import LANES
from lessram.data.schema import make_schema

_UNSEEN = np.uint64(1 << 63)  # the last mark behind a text, which only marking overwrites and nobody looks at

SCHEMA = make_schema(["label", "a"], lambda i: "categorical", label="label")
RULES = make_rules(64)


Parse = Callable[[bytes], Any]


def svmlight_parser() -> Parse:
    buffers = RowBuffers(RULES)
    return lambda text: svmlight.parse(chunk_of(text), buffers, RULES, tolerate=10**9)


def vw_parser() -> Parse:
    parser = vw.VwParser(64)
    return lambda text: parser.parse(chunk_of(text), tolerate=10**9)


def csv_parser() -> Parse:
    parser = CsvParser(SCHEMA, 64)
    return lambda text: parser.parse(chunk_of(b"label,a\n" + text), tolerate=10**9)


FORMATS: dict[str, tuple[Any, str, Callable[[], Parse], bytes, bytes]] = {
    "svmlight": (svmlight, "parse_lines", svmlight_parser, b"1 3:1\n", b"7 3:1\n"),
    "vw": (vw, "parse_lines", vw_parser, b"1 |a x\n", b"7 |a x\n"),
    "csv": (csv, "parse_rows", csv_parser, b"1,x\n", b"1,x,y\n"),
    "csv, wrong quotes": (csv, "parse_rows", csv_parser, b"1,x\n", b'1,"x" y\n'),
}


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str], list[bool]]:
    """Of every call of a kernel, whether it marked the text."""

    def watch(module: Any, name: str) -> list[bool]:
        kernel, found = getattr(module, name), list[bool]()

        def watched(text: Any, size: int, marks: Any, *more: Any) -> Any:
            behind = size // LANES + 1
            marks[behind] |= _UNSEEN
            made = kernel(text, size, marks, *more)
            found.append(not marks[behind] & _UNSEEN)
            return made

        monkeypatch.setattr(module, name, watched)
        return found

    return watch


@pytest.mark.parametrize("name", FORMATS)
def test_a_chunk_is_marked_once(marked: Callable[[Any, str], list[bool]], name: str) -> None:
    module, kernel, make, good, bad = FORMATS[name]
    calls = marked(module, kernel)
    parsed = make()((good + bad) * 50)
    assert (parsed.bad, parsed.batch.rows) == (50, 50)
    assert len(calls) > 50
    assert calls == [True] + [False] * (len(calls) - 1)


@pytest.mark.parametrize("name", FORMATS)
def test_a_parser_marks_every_chunk(marked: Callable[[Any, str], list[bool]], name: str) -> None:
    """The chunk before may have ended with a bad line."""
    module, kernel, make, good, bad = FORMATS[name]
    calls = marked(module, kernel)
    parse = make()
    for _ in range(2):
        assert parse(good + bad).bad == 1
    assert sum(calls) == 2


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("count", [1, REPORTS - 1, REPORTS, REPORTS + 1, 200])
def test_newlines_are_counted_once_and_few_lines_described(
    monkeypatch: pytest.MonkeyPatch, name: str, count: int
) -> None:
    _, _, make, good, bad = FORMATS[name]
    counted, described = [0], [0]
    count_newlines = lines.count_newlines

    def counting(text: Any, size: int) -> Any:
        counted[0] += size
        return count_newlines(text, size)

    def describing(describe: Callable[..., str]) -> Callable[..., str]:
        def described_too(*arguments: Any) -> str:
            described[0] += 1
            return describe(*arguments)

        return described_too

    monkeypatch.setattr(lines, "count_newlines", counting)
    monkeypatch.setattr(svmlight, "_describe", describing(svmlight._describe))
    for parser in (vw.VwParser, CsvParser):
        monkeypatch.setattr(parser, "_describe", describing(parser._describe))
    text = (good + bad) * count
    parsed = make()(text)
    header = 1 if name.startswith("csv") else 0
    places = [f"memory:{header + 2 * i}" for i in range(1, count + 1)]
    assert parsed.bad == count
    assert [report.place for report in parsed.reports] == (
        places if count <= REPORTS else places[: REPORTS - 1] + places[-1:]
    )
    assert described[0] == len(parsed.reports)
    assert counted[0] <= len(text) + len("label,a\n")
