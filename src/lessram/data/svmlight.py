"""svmlight text: `label index:value index:value ... # comment`, one example a line.

    line     words with blanks between them; one without words, or with a comment only, is no example
    label    a number: 0, 1, -1 (taken as 0), or any finite one where real labels are allowed
    feature  index:value, or a bare index, whose value is 1; `qid:...` is left out
    index    digits, below 2^64
    value    a decimal number that is finite in float32; features of value 0 are left out

Anything else makes a bad line. The kernel stops there and says where; Python says what was found, and goes on
behind the line or gives up.
"""

from __future__ import annotations

import re

from lessram.data.batch import Batch
from lessram.data.lines import Lines, line_behind, rest_of_line, shorten_number, show
from lessram.data.parsing import REPORTS, Columns, Parsed, RowBuffers, Rules
from lessram.data.source import Chunk
from lessram.data.svmlight_kernel import (
    DONE,
    INDEX,
    LABEL,
    LARGE_INDEX,
    LARGE_SLOT,
    LONG_LABEL,
    LONG_VALUE,
    Integer,
    Progress,
    parse_lines,
)
from lessram.data.text import NEWLINE

_BLANK = re.compile(rb"[ \t\v\f\r#]")
_NUMBER = re.compile(rb"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")


def parse(chunk: Chunk, buffers: RowBuffers, rules: Rules, *, tolerate: int = 0) -> Parsed:
    """Parse a chunk into the buffers. Gives up at the first bad line that is one more than `tolerate`.

    Needs no lock and releases the GIL: threads parse side by side, each with a chunk and buffers of its own.
    """
    columns = buffers.fit(chunk.size // 2 + 1)  # a row and a feature have two bytes at least
    chunk.text[chunk.size] = NEWLINE  # the last line of a source may have none
    progress, bad = Progress(), 0
    described: list[Progress] = []
    while bad <= tolerate:
        progress = parse_lines(chunk.text, chunk.size, buffers.marks, buffers.delimiters, rules, columns, progress)
        if progress.status == DONE:
            break
        if progress.status in (LONG_LABEL, LONG_VALUE) and _shorten(chunk, progress):
            continue
        bad += 1
        described[REPORTS - 1 :] = [progress]
        progress = progress._replace(position=line_behind(chunk, int(progress.position)))
    lines = Lines(chunk)
    reports = [lines.bad(int(at.position), _describe(_word(chunk, at), rules, at.status)) for at in described]
    return Parsed(_batch(columns, progress, bad), bad, reports, int(progress.hashed))


def _batch(columns: Columns, progress: Progress, bad: int) -> Batch:
    rows, features = progress.rows, progress.features
    values = columns.values[:features]
    # The one that mattered may have been on a bad line.
    ones = not progress.valued or (bad > 0 and bool((values == 1).all()))
    return Batch(columns.labels[:rows], columns.indptr[: rows + 1], columns.slots[:features], None if ones else values)


def _shorten(chunk: Chunk, progress: Progress) -> bool:
    """Rewrite the number that the kernel cannot decide; False if it is too large."""
    index = _word(chunk, progress).partition(b":")[0]
    return shorten_number(chunk, int(progress.word) + (len(index) + 1 if progress.status == LONG_VALUE else 0))


def _word(chunk: Chunk, progress: Progress) -> bytes:
    """The word that made the kernel stop."""
    return _BLANK.split(rest_of_line(chunk, int(progress.word)), maxsplit=1)[0]


def _describe(word: bytes, rules: Rules, status: Integer) -> str:
    """What was found and what was expected."""
    index, _, value = word.partition(b":")
    if status in (LABEL, LONG_LABEL):
        expected = "a finite number" if rules.real_labels else "0, 1, -1 or +1"
        return f"found {show(word)} as the label, expected {expected}"
    if status in (INDEX, LARGE_INDEX):
        expected = "a whole number, not negative" if status == INDEX else "a number below 2^64"
        return f"found {show(index)} as the index of a feature, expected {expected}"
    if status == LARGE_SLOT:
        return f"found {show(index)} as the index of a feature, expected one below {rules.slots}, the number of slots"
    expected = "one that float32 can hold, at most 3.4e38" if _NUMBER.fullmatch(value) else "a finite number"
    return f"found {show(value)} as the value of feature {index[:40].decode()}, expected {expected}"
