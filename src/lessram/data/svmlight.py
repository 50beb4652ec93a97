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

import numpy as np

from lessram.data.batch import Batch
from lessram.data.parsing import BadLine, Columns, Parsed, RowBuffers, Rules
from lessram.data.source import Chunk
from lessram.data.svmlight_kernel import (
    DONE,
    INDEX,
    LABEL,
    LARGE_INDEX,
    LARGE_SLOT,
    LONG_LABEL,
    LONG_VALUE,
    Progress,
    parse_lines,
)
from lessram.data.text import NEWLINE

REPORTS = 10  # bad lines of a chunk that are described
SHOWN = 40  # bytes of a word that a message shows

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
        progress = parse_lines(chunk.text, chunk.size, rules, columns, progress)
        if progress.status == DONE:
            break
        if progress.status in (LONG_LABEL, LONG_VALUE) and _shorten(chunk, progress):
            continue
        bad += 1
        described[REPORTS - 1 :] = [progress]
        progress = progress._replace(position=progress.position + len(_line(chunk, progress.position)) + 1)
    reports = [_report(chunk, rules, each) for each in described]
    return Parsed(_batch(columns, progress), bad, reports, int(progress.hashed))


def _batch(columns: Columns, progress: Progress) -> Batch:
    rows, features = progress.rows, progress.features
    values = columns.values[:features]
    ones = bool((values == 1).all())
    return Batch(columns.labels[:rows], columns.indptr[: rows + 1], columns.slots[:features], None if ones else values)


def _shorten(chunk: Chunk, progress: Progress) -> bool:
    """Rewrite a number of 20 digits or more, where it stands, as the nine digits that name the same float32.

    Returns False where there is no such number, because something else hangs on it or because it is too large.
    """
    word = _word(chunk, progress.word)
    number = word.partition(b":")[2] if progress.status == LONG_VALUE else word
    if not _NUMBER.fullmatch(number):
        return False
    with np.errstate(over="ignore"):
        value = np.float32(float(number))
    if not np.isfinite(value):
        return False
    stop = progress.word + len(word)
    short = (b"%.8e" % value).ljust(len(number))
    chunk.text[stop - len(number) : stop] = np.frombuffer(short, np.uint8)
    return True


def _line(chunk: Chunk, position: int | np.int64) -> bytes:
    """The text from the position to the end of its line."""
    length = 1 << 12
    while True:
        text = chunk.text[position : position + length].tobytes()
        end = text.find(b"\n")
        if end >= 0:
            return text[:end]
        length *= 8


def _word(chunk: Chunk, position: int | np.int64) -> bytes:
    return _BLANK.split(_line(chunk, position), maxsplit=1)[0]


def _report(chunk: Chunk, rules: Rules, progress: Progress) -> BadLine:
    line = chunk.start.line + int(np.count_nonzero(chunk.text[: progress.position] == NEWLINE))
    message = _describe(_word(chunk, progress.word), rules, int(progress.status))
    return BadLine(f"{chunk.name}:{line}", message)


def _describe(word: bytes, rules: Rules, status: int) -> str:
    """What was found and what was expected."""
    index, _, value = word.partition(b":")
    if status in (LABEL, LONG_LABEL):
        expected = "a finite number" if rules.real_labels else "0, 1, -1 or +1"
        return f"found {_show(word)} as the label, expected {expected}"
    if status in (INDEX, LARGE_INDEX):
        expected = "a whole number, not negative" if status == INDEX else "a number below 2^64"
        return f"found {_show(index)} as the index of a feature, expected {expected}"
    if status == LARGE_SLOT:
        return f"found {_show(index)} as the index of a feature, expected one below {rules.slots}, the number of slots"
    expected = "one that float32 can hold, at most 3.4e38" if _NUMBER.fullmatch(value) else "a finite number"
    return f"found {_show(value)} as the value of feature {index[:SHOWN].decode()}, expected {expected}"


def _show(word: bytes) -> str:
    if not word:
        return "nothing"
    return repr(word[:SHOWN].decode("utf-8", "backslashreplace")) + ("..." if len(word) > SHOWN else "")
