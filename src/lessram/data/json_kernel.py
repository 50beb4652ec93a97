"""The kernel that reads JSON lines; `jsonl.py` describes the format and calls it.

A line is walked through once, and the place of every cell is noted; then the cells become features in the order of
the columns, whatever the order of the keys. The kernel takes what it fully understands and decides nothing else: a line
with anything that is wrong or merely rare is `UNUSUAL`, and left to the decoder, which alone has words for errors.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.data.csv_kernel import cell_number, is_label
from lessram.data.hashing import hash_name
from lessram.data.interactions import set_group
from lessram.data.json_keys import NONE, TOP, find_key
from lessram.data.json_text import (
    BEGIN,
    CLOSE,
    COMMA,
    END,
    NOWHERE,
    OPEN,
    QUOTE,
    behind_blanks,
    behind_colon,
    decode_string,
    end_of_name,
    json_number,
    mark_string_stops,
)
from lessram.data.rows import DONE, FULL, Progress, complete, end_row
from lessram.data.scanning import load32, next_mark
from lessram.data.schema import CATEGORICAL, LABEL, NUMERIC, TEXT, scaled_number
from lessram.data.short_names import LONGEST, hash_waiting, put_name
from lessram.data.text import MINUS, NEWLINE, is_blank
from lessram.data.tokens import tokenise
from lessram.jit import inlined, kernel

UNUSUAL = 98
"""What the kernel says of a line that it leaves to the decoder."""

DEPTH = 32
"""Objects and lists within each other that the kernel follows."""

EMPTY, PLAIN, DECODED, NUMBER = range(4)
"""What a cell is: nothing; a string, as it stands in the text or decoded; a number, true or false."""

_UNKNOWN, _LIST = -1, -2
"""In the place of a node: an object without columns, a list."""
_ZERO, _ONE, _FOUR, _FIVE = (np.uint64(n) for n in (0, 1, 4, 5))
_TRUE, _FALS, _NULL = (np.uint32(int.from_bytes(word, "little")) for word in (b"true", b"fals", b"null"))
_E = np.uint8(ord("e"))


class Line(NamedTuple):
    """What is known of the line that is being read, and of those before it. For one thread at a time."""

    stamp: NDArray[np.uint64]
    """The number of the line, one number; what carries another is from a line before it."""
    seen: NDArray[np.uint64]
    """By column: the last line that has its key."""
    entered: NDArray[np.uint64]
    """By node: the last line that has its key."""
    met: NDArray[np.bool_]
    """By column: whether a line had a value for it."""
    kinds: NDArray[np.uint8]
    """By column: what its cell is."""
    starts: NDArray[np.uint64]
    stops: NDArray[np.uint64]
    """Where it stands; of numbers too, for they may be categories."""
    numbers: NDArray[np.float32]
    stack: NDArray[np.int64]
    """The nodes around the one that is being read."""
    decoded: NDArray[np.uint8]
    """Strings that do not stand in the text as they are; as large as a text and `MARGIN`."""
    tokens: NDArray[np.uint8]
    """Room to take text apart, as large."""

    @classmethod
    def new(cls, columns: int, nodes: int) -> Line:
        """For so many columns and nodes; the scratch has no room yet."""
        numbers, places = np.zeros(columns, np.float32), np.zeros((3, columns), np.uint64)
        return cls(
            stamp=np.zeros(1, np.uint64),
            seen=places[0],
            entered=np.zeros(nodes, np.uint64),
            met=np.zeros(columns, np.bool_),
            kinds=np.zeros(columns, np.uint8),
            starts=places[1],
            stops=places[2],
            numbers=numbers,
            stack=np.zeros(DEPTH, np.int64),
            decoded=np.empty(0, np.uint8),
            tokens=np.empty(0, np.uint8),
        )


@inlined
def _note(line, column, kind, start, stop):
    line.kinds[column] = np.uint8(kind)
    line.starts[column], line.stops[column] = start, stop


@inlined
def _string(text, p, marks, line, column, k):
    """The string whose quote stands at `p`, as the cell of a column if there is one. Returns its end and the end of
    the decoded ones."""
    start = p + _ONE
    stop = next_mark(marks, start)
    if text[stop] == QUOTE:
        if column >= 0:
            _note(line, column, PLAIN if stop > start else EMPTY, start, stop)
        return stop + _ONE, k
    stop, end = decode_string(text, start, marks, line.decoded, k)
    if stop == NOWHERE or column < 0:
        return (NOWHERE if stop == NOWHERE else stop + _ONE), k
    _note(line, column, DECODED, k, end)
    return stop + _ONE, end


@inlined
def _scalar(text, p, line, column):
    """A number, true, false or null. Returns its end."""
    word, start, number = load32(text, p), p, np.float32(0)
    if word == _NULL:
        if column >= 0:
            line.kinds[column] = np.uint8(EMPTY)
        return p + _FOUR
    if word == _TRUE:
        number, p = np.float32(1), p + _FOUR
    elif word == _FALS and text[p + _FOUR] == _E:
        p += _FIVE
    else:
        number, p = json_number(text, p)
    if column >= 0:
        _note(line, column, NUMBER, start, p)
        line.numbers[column] = number
    return p


@inlined
def _step(keys, line, entry, stamp):
    """The column and the node that an entry leads to; the last number is False if the line has been there."""
    column, child = keys.columns[entry], keys.children[entry]
    if column >= 0:
        if line.seen[column] == stamp:
            return column, child, False
        line.seen[column] = stamp
    if child >= 0:
        if line.entered[child] == stamp:
            return column, child, False
        line.entered[child] = stamp
    return column, child, True


@inlined
def _key(text, p, marks, keys, node, line, k):
    """The entry of the key whose quote should stand at `p`, and where its value begins."""
    if text[p] != QUOTE:
        return NONE, NOWHERE
    start, entry = p + _ONE, np.int64(NONE)
    stop = next_mark(marks, start)
    if text[stop] == QUOTE:
        if node >= 0:
            entry = find_key(keys, node, text, start, stop - start)
    else:
        stop, end = decode_string(text, start, marks, line.decoded, k)
        if stop == NOWHERE:
            return NONE, NOWHERE
        if node >= 0:
            entry = find_key(keys, node, line.decoded, k, end - k)
    return entry, behind_colon(text, stop + _ONE)


@kernel
def _walk(text, p, marks, keys, line, stamp):
    """Note the cells of the object whose brace stands at `p`. Returns its end."""
    node, depth, k = np.int64(TOP), 0, _ZERO
    p = behind_blanks(text, p + _ONE)
    if text[p] == END:
        return p + _ONE
    while True:
        column, child = np.int64(NONE), np.int64(_UNKNOWN)
        if node != _LIST:
            entry, p = _key(text, p, marks, keys, node, line, k)
            if p == NOWHERE:
                return NOWHERE
            if entry >= 0:
                column, child, new = _step(keys, line, entry, stamp)
                if not new:
                    return NOWHERE
        first = text[p]
        if first == QUOTE:
            p, k = _string(text, p, marks, line, column, k)
        elif first in (BEGIN, OPEN):
            if column >= 0 or depth == DEPTH:
                return NOWHERE
            line.stack[depth] = node
            depth += 1
            node = child if first == BEGIN else np.int64(_LIST)
            p = behind_blanks(text, p + _ONE)
            if text[p] != (CLOSE if node == _LIST else END):
                continue
        else:
            p = _scalar(text, p, line, column)
        if p == NOWHERE:
            return NOWHERE
        while True:
            p = behind_blanks(text, p)
            if text[p] == COMMA:
                break
            if text[p] != (CLOSE if node == _LIST else END):
                return NOWHERE
            p += _ONE
            if depth == 0:
                return p
            depth -= 1
            node = line.stack[depth]
        p = behind_blanks(text, p + _ONE)


@inlined
def _number(text, line, column):
    """The number of a cell that is not empty, and whether it is one for sure."""
    kind, start, stop = line.kinds[column], line.starts[column], line.stops[column]
    if kind == np.uint8(NUMBER):
        return line.numbers[column], True
    if kind == np.uint8(DECODED):
        return np.float32(0), False
    value, trouble = cell_number(text, start, stop)
    return value, trouble == DONE


@inlined
def _keeps_sign(text, line, column, value):
    """False for the number -0, of which a decoder may drop the sign."""
    return value != np.float32(0) or line.kinds[column] != np.uint8(NUMBER) or text[line.starts[column]] != MINUS


@inlined
def _name(text, line, names, layout, column, rows, k):
    """Make the cell of a categorical column feature `k`. Returns whether its name is sure."""
    kind, start, stop = line.kinds[column], line.starts[column], line.stops[column]
    rows.values[k] = np.float32(1)
    if kind == np.uint8(DECODED):
        rows.slots[k] = hash_name(line.decoded, start, stop - start, layout.hashes[column])
        return True
    if kind == np.uint8(NUMBER):
        stop = end_of_name(text, start, stop)
        if stop == NOWHERE:
            return False
    if stop - start <= np.uint64(LONGEST):
        put_name(names, text, start, stop - start, layout.hashes[column], rows.slots, k)
    else:
        rows.slots[k] = hash_name(text, start, stop - start, layout.hashes[column])
    return True


@kernel
def _text(text, line, layout, column, rows, k):
    """Make the tokens of a text cell features from `k` on. Returns the new `k`, beyond the room if that is full, and
    whether the text is sure."""
    kind, start, stop, first = line.kinds[column], line.starts[column], line.stops[column], k
    if kind == np.uint8(DECODED):
        k = tokenise(line.decoded, start, stop, layout, column, line.tokens, rows.slots, k)
    else:
        if kind == np.uint8(NUMBER):
            stop = end_of_name(text, start, stop)
            if stop == NOWHERE:
                return first, False
        k = tokenise(text, start, stop, layout, column, line.tokens, rows.slots, k)
    for i in range(first, min(k, np.uint64(rows.slots.size))):
        rows.values[i] = np.float32(1)
    return k, True


@inlined
def _features(text, line, stamp, layout, products, rows, names, k):
    """Make features of the cells that were noted. Returns what is wrong, the new `k`, label and weight."""
    label, weight = np.float32(np.nan), np.float32(1)
    room = np.uint64(rows.slots.size)
    for column in range(np.uint64(layout.kinds.size)):
        if line.seen[column] != stamp or line.kinds[column] == np.uint8(EMPTY):
            continue
        line.met[column] = True
        kind, before, sure = layout.kinds[column], k, True
        if k >= room:
            return FULL, k, label, weight
        if kind == np.uint8(CATEGORICAL):
            sure = _name(text, line, names, layout, column, rows, k)
            k += _ONE
        elif kind == np.uint8(TEXT):
            k, sure = _text(text, line, layout, column, rows, k)
            if k > room:
                return FULL, before, label, weight
        else:
            value, sure = _number(text, line, column)
            if kind == np.uint8(NUMERIC):
                rows.slots[k] = layout.hashes[column]
                rows.values[k] = scaled_number(layout, column, value)
                k += np.uint64(rows.values[k] != np.float32(0))
            elif kind == np.uint8(LABEL):
                label = value if layout.real_labels else max(value, np.float32(0))
                sure &= is_label(value, layout) and _keeps_sign(text, line, column, value)
            else:
                weight = value
                sure &= value >= np.float32(0) and _keeps_sign(text, line, column, value)
        if not sure:
            return UNUSUAL, before, label, weight
        for i in range(before, k):
            set_group(products, i, layout.groups[column])
    return DONE, k, label, weight


@inlined
def _line(text, p, marks, keys, line, layout, products, rows, names, k):
    """The line at `p`. Returns what is wrong, where the next line begins, the new `k`, label and weight."""
    stamp = line.stamp[0] + _ONE
    line.stamp[0] = stamp
    p = behind_blanks(text, p)
    end = _walk(text, p, marks, keys, line, stamp) if text[p] == BEGIN else NOWHERE
    last = behind_blanks(text, end)
    if end == NOWHERE or text[last] != NEWLINE:
        return UNUSUAL, p, k, np.float32(np.nan), np.float32(1)
    trouble, k, label, weight = _features(text, line, stamp, layout, products, rows, names, k)
    return trouble, last + _ONE, k, label, weight


@inlined
def _behind_blank_line(text, p):
    """The line behind the one at `p` if that is blank, else `p`."""
    end = p
    while is_blank(text[end]):
        end += _ONE
    return end + _ONE if text[end] == NEWLINE else p


@kernel
def mark_text(text, size, marks):
    """Mark where strings may end; `parse_objects` needs the marks of its text."""
    mark_string_stops(text, _ZERO, np.uint64(size), marks)


@kernel
def parse_objects(text, size, marks, keys, line, layout, products, rows, names, progress):
    """Parse lines up to `size`, behind which stands a newline, until all are done or one is not for this kernel.

    Nothing of the line at which it stops is kept.
    """
    p, stop = np.uint64(progress.position), np.uint64(size)
    row, k = np.uint64(progress.rows), np.uint64(progress.features)
    unlabelled, weighted, valued = progress.unlabelled, progress.weighted, progress.valued
    while p < stop:
        start, first, needed, others = p, k, _ZERO, False
        label, weight = np.float32(np.nan), np.float32(1)
        if text[p] != BEGIN:
            p = _behind_blank_line(text, p)
            if p != start:
                continue
        trouble = FULL
        if row < np.uint64(rows.labels.size):
            trouble, p, k, label, weight = _line(text, p, marks, keys, line, layout, products, rows, names, k)
            hash_waiting(names, rows.slots)
        if trouble == DONE:
            trouble, k, needed, others = complete(products, rows, first, k)
        if trouble != DONE:
            counts = (np.int64(start), np.int64(row), np.int64(first), unlabelled, 0, weighted, valued)
            return Progress(*counts, trouble, np.int64(start), 0, np.int64(needed))
        unlabelled += np.isnan(label)
        done = row
        row, k = end_row(rows, row, first, k, label, weight, layout.slots, layout.keep_unlabelled)
        if row != done:
            weighted |= weight != np.float32(1)
            valued |= others
    position = np.int64(p)
    return Progress(position, np.int64(row), np.int64(k), unlabelled, 0, weighted, valued, DONE, position, 0, 0)
