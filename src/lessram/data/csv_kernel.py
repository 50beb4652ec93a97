"""The kernel that reads delimited text; `csv.py` describes the format and calls it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lessram.data.hashing import hash_name
from lessram.data.interactions import set_group
from lessram.data.missing_words import is_missing
from lessram.data.rows import DONE, FULL, LONG_NUMBER, Progress, complete, end_row
from lessram.data.scanning import marking, mask_equal, mask_of, next_mark
from lessram.data.schema import CATEGORICAL, LABEL, NUMERIC, TEXT, scaled_number
from lessram.data.short_names import LONGEST, hash_waiting, put_name
from lessram.data.text import (
    DECIDED,
    NEWLINE,
    POINT,
    RETURN,
    UNDECIDED,
    any_number,
    digit_run,
    first_digits,
    is_line_end,
    load_digits,
    without_blanks,
)
from lessram.data.tokens import tokenise
from lessram.jit import inlined, kernel
from lessram.numerics.memory_words import trailing_zeros

FEW_CELLS, MANY_CELLS, OPEN_QUOTE, BEHIND_QUOTE, BAD_LABEL, BAD_WEIGHT, BAD_NUMBER = range(4, 11)
"""What is wrong with the row at which the kernel stopped."""

_ZERO, _ONE, _BLOCK = np.uint64(0), np.uint64(1), np.uint64(64)
_TENS = 10.0 ** np.arange(9)

_newlines = mask_of(b"\n")


class Dialect(NamedTuple):
    """How cells are parted."""

    delimiter: np.uint8
    quote: np.uint8
    """Around cells that hold delimiters, newlines or quotes; 0 = no cell is quoted."""


@inlined
def _cell_ends(text, p, delimiter):
    """Which of the 64 bytes from `p` on end a cell that is not quoted."""
    return mask_equal(text, p, delimiter) | _newlines(text, p)


_mark_cell_ends = marking(_cell_ends)


@inlined
def _quote_behind(text, p, stop, quote):
    """The first quote from `p` on; `stop` if there is none before it."""
    while p < stop:
        found = mask_equal(text, p, quote)
        if found:
            return min(p + trailing_zeros(found), stop)
        p += _BLOCK
    return stop


@inlined
def _closing_quote(text, p, stop, quote):
    """The quote that closes the cell whose text begins at `p`, and whether there are doubled quotes before it."""
    doubled = False
    while True:
        p = _quote_behind(text, p, stop, quote)
        if p == stop or text[p + _ONE] != quote:
            return p, doubled
        p += np.uint64(2)
        doubled = True


@kernel
def row_end(text, p, stop, dialect, strict):
    """Where the row that begins at `p` ends, behind its newline; beyond `stop` if it is not whole.

    `strict`: nor if something else than a delimiter stands behind a closing quote.
    """
    at_start = True
    while p < stop:
        if at_start and dialect.quote and text[p] == dialect.quote:
            p, _ = _closing_quote(text, p + _ONE, stop, dialect.quote)
            if p == stop:
                break
            p += _ONE
            if strict and text[p] != dialect.delimiter and not is_line_end(text, p):
                break
        found = _cell_ends(text, p, dialect.delimiter) if dialect.quote else _newlines(text, p)
        if found == _ZERO:
            p += _BLOCK
            at_start = False
            continue
        p += trailing_zeros(found)
        if p >= stop:
            break
        if text[p] == NEWLINE:
            return p + _ONE
        p += _ONE
        at_start = True
    return stop + _ONE


@inlined
def _behind_newline(text, start, stop):
    """Behind the last newline of `text[start:stop]`; `start` if there is none."""
    while stop > start and text[stop - _ONE] != NEWLINE:
        stop -= _ONE
    return stop


@inlined
def _next_line(text, p, stop):
    """Behind the first newline from `p` on; `stop` if there is none before it."""
    while p < stop:
        found = _newlines(text, p)
        if found:
            return min(p + trailing_zeros(found) + _ONE, stop)
        p += _BLOCK
    return stop


@kernel
def last_row_end(text, p, stop, dialect):
    """Where the last whole row of `text[p:stop]` ends, `p` being the start of a row; `p` if none is whole.

    Goes from one quoted cell to the next: where there are no quotes, every newline ends a row. A row with a quote that
    closes in the wrong place ends with its first line, as for who reads the rows: else that quote would turn all that
    follows inside out, and the text be cut within good cells.
    """
    end, outside = p, p
    while True:
        first = _quote_behind(text, p, stop, dialect.quote)
        begins = first == outside or text[first - _ONE] == dialect.delimiter or text[first - _ONE] == NEWLINE
        if first < stop and not begins:
            p = first + _ONE
            continue
        found = _behind_newline(text, outside, first)
        end = found if found > outside else end
        if first == stop:
            return end
        outside, _ = _closing_quote(text, first + _ONE, stop, dialect.quote)
        outside += _ONE
        if outside >= stop:
            return end
        if text[outside] != dialect.delimiter and not is_line_end(text, outside):
            end = outside = _next_line(text, end, stop)
        p = outside


@kernel
def _unquote(text, p, stop, quote, unquoted):
    """Copy a cell with its doubled quotes made single, and a newline behind it. Returns its length."""
    length = _ZERO
    while p < stop:
        unquoted[length] = text[p]
        p += _ONE + np.uint64(text[p] == quote)
        length += _ONE
    unquoted[length] = NEWLINE
    return length


@inlined
def cell_number(text, p, stop):
    """The number that fills `text[p:stop]`, and what became of it; blanks around it are left out."""
    p, stop = without_blanks(text, p, stop)
    length = stop - p
    word = load_digits(text, p)
    whole = digit_run(word)
    if length - _ONE < np.uint64(8) and whole >= length:
        return np.float32(np.int64(first_digits(word, length))), DONE
    if whole - _ONE < np.uint64(7) and length <= np.uint64(9) and text[p + whole] == POINT:
        kept = (_ONE << (whole << np.uint64(3))) - _ONE
        word = (word & kept) | (load_digits(text, p + _ONE) & ~kept)  # without the point
        count = length - _ONE
        if digit_run(word) >= count >= whole:
            return np.float32(np.float64(np.int64(first_digits(word, count))) / _TENS[count - whole]), DONE
    value, end, state = any_number(text, p)
    if state == UNDECIDED and end == stop:
        return value, LONG_NUMBER
    return value, (DONE if state == DECIDED and end == stop else BAD_NUMBER)


@inlined
def is_label(value, layout):
    return layout.real_labels or value == np.float32(0) or abs(value) == np.float32(1)


@kernel
def _cell(text, p, stop, layout, missing, column, products, rows, room_for_tokens, k, head):
    """One cell that is not empty. Returns what is wrong, the new `k`, and label and weight."""
    label, weight = head
    kind = layout.kinds[column]
    before = k
    if is_missing(text, p, stop, kind, missing):
        return DONE, k, head
    if k >= np.uint64(rows.slots.size):
        return FULL, k, head
    if kind == np.uint8(CATEGORICAL):
        rows.slots[k] = hash_name(text, p, stop - p, layout.hashes[column])
        rows.values[k] = np.float32(1)
        k += _ONE
    elif kind == np.uint8(TEXT):
        k = tokenise(text, p, stop, layout, column, room_for_tokens, rows.slots, k)
        if k > np.uint64(rows.slots.size):
            return FULL, before, head
        for i in range(before, k):
            rows.values[i] = np.float32(1)
    else:
        value, trouble = cell_number(text, p, stop)
        if trouble == LONG_NUMBER:
            return LONG_NUMBER, k, head
        if kind == np.uint8(NUMERIC):
            rows.slots[k] = layout.hashes[column]
            rows.values[k] = scaled_number(layout, column, value)
            k += np.uint64(rows.values[k] != np.float32(0))
        elif kind == np.uint8(LABEL):
            label = value if layout.real_labels else max(value, np.float32(0))
            trouble = DONE if trouble == DONE and is_label(value, layout) else BAD_LABEL
        else:
            weight = value
            trouble = DONE if trouble == DONE and value >= np.float32(0) else BAD_WEIGHT
        if trouble != DONE:
            return trouble, k, head
    for i in range(before, k):
        set_group(products, i, layout.groups[column])
    return DONE, k, (label, weight)


@inlined
def _row(text, p, stop, marks, dialect, layout, missing, products, rows, names, scratch, k):
    """The cells of a row. Returns what is wrong, where it stopped, in which column, the new `k`, label and weight."""
    head = (np.float32(np.nan), np.float32(1))
    columns = np.uint64(layout.kinds.size)
    for column in range(columns):
        start = p
        used = layout.kinds[column] != np.uint8(0)
        if dialect.quote and text[p] == dialect.quote:
            end, doubled = _closing_quote(text, p + _ONE, stop, dialect.quote)
            if end == stop:
                return OPEN_QUOTE, start, column, k, head
            p += _ONE
            trouble = DONE
            if used and doubled:
                length = _unquote(text, p, end, dialect.quote, scratch[0])
                trouble, k, head = _cell(
                    scratch[0], _ZERO, length, layout, missing, column, products, rows, scratch[1], k, head
                )
            elif used and end > p:
                trouble, k, head = _cell(text, p, end, layout, missing, column, products, rows, scratch[1], k, head)
            if trouble != DONE:
                return trouble, p, column, k, head
            end += _ONE
            if text[end] == RETURN and text[end + _ONE] == NEWLINE:
                end += _ONE
            if text[end] != dialect.delimiter and text[end] != NEWLINE:
                return BEHIND_QUOTE, end, column, k, head
        else:
            end = last = next_mark(marks, p)
            if text[end] == NEWLINE and end > p and text[end - _ONE] == RETURN:
                last -= _ONE
            if (
                last > p
                and layout.kinds[column] == np.uint8(CATEGORICAL)
                and k < np.uint64(rows.slots.size)
                and not is_missing(text, p, last, np.uint8(CATEGORICAL), missing)
            ):
                if last - p <= np.uint64(LONGEST):
                    put_name(names, text, p, last - p, layout.hashes[column], rows.slots, k)
                else:
                    rows.slots[k] = hash_name(text, p, last - p, layout.hashes[column])
                rows.values[k] = np.float32(1)
                set_group(products, k, layout.groups[column])
                k += _ONE
            elif used and last > p:
                trouble, k, head = _cell(text, p, last, layout, missing, column, products, rows, scratch[1], k, head)
                if trouble != DONE:
                    return trouble, start, column, k, head
        if text[end] == NEWLINE:
            return (DONE if column + _ONE == columns else FEW_CELLS), end + _ONE, column, k, head
        p = end + _ONE
    return MANY_CELLS, p, columns, k, head


@kernel
def parse_rows(text, size, marks, dialect, layout, missing, products, rows, names, scratch, progress):
    """Parse whole rows up to `size`, behind which stands a newline, until all are done or one is not good.

    Nothing of the row at which it stops is kept. Behind it, the marks are those that were made at the beginning.
    `missing`: `MissingWords` or None. `scratch`: two rooms as large as the text.
    """
    p, stop = np.uint64(progress.position), np.uint64(size)
    row, k = np.uint64(progress.rows), np.uint64(progress.features)
    unlabelled, weighted, valued = progress.unlabelled, progress.weighted, progress.valued
    if progress.status == DONE:
        _mark_cell_ends(text, p, stop, marks, dialect.delimiter)
    while p < stop:
        line, first, needed, column, others = p, k, _ZERO, _ZERO, False
        if is_line_end(text, p):
            p += _ONE + np.uint64(text[p] == RETURN)
            continue
        trouble, head = FULL, (np.float32(np.nan), np.float32(1))
        if row < np.uint64(rows.labels.size):
            trouble, p, column, k, head = _row(
                text, p, stop, marks, dialect, layout, missing, products, rows, names, scratch, k
            )
            hash_waiting(names, rows.slots)
        if trouble == DONE:
            trouble, k, needed, others = complete(products, rows, first, k)
        if trouble != DONE:
            counts = (np.int64(line), np.int64(row), np.int64(first), unlabelled, 0, weighted, valued)
            return Progress(*counts, trouble, np.int64(p), np.int64(column), np.int64(needed))
        label, weight = head
        unlabelled += np.isnan(label)
        done = row
        row, k = end_row(rows, row, first, k, label, weight, layout.slots, layout.keep_unlabelled)
        if row != done:
            weighted |= weight != np.float32(1)
            valued |= others
    position = np.int64(p)
    return Progress(position, np.int64(row), np.int64(k), unlabelled, 0, weighted, valued, DONE, position, 0, 0)
