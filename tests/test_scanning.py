"""Marks of a text against a walk byte by byte."""

from __future__ import annotations

import numpy as np
from guarded import guarded_chunk
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lessram.data.scanning import marking, mask_equal, next_mark, room_for_marks
from lessram.jit import kernel

mark = marking(mask_equal)


@kernel
def places_of(text, start, size, character, marks, places):
    """Write the places of a character from `start` to `size`, where it stands; returns how many there are."""
    mark(text, start, size, marks, character)
    count, p = 0, start
    while p <= size:
        p = next_mark(marks, p)
        places[count] = p
        count += 1
        p += np.uint64(1)
    return count


@settings(deadline=None)
@given(st.lists(st.integers(0, 150), max_size=8), st.integers(0, 300))
@example([63, 0, 63, 64, 127], 0)
@example([], 0)
def test_marks_are_found_in_order_and_nothing_behind_the_text_is_looked_at(gaps, start):
    text = b"".join(b"." * gap + b"," for gap in gaps)
    start = min(start, len(text))
    chunk, places = guarded_chunk(text), np.zeros(len(text) + 1, np.uint64)
    chunk.text[len(text)] = ord(",")
    marks = room_for_marks(len(text))
    count = places_of(chunk.text, np.uint64(start), np.uint64(len(text)), np.uint8(ord(",")), marks, places)
    assert places[:count].tolist() == [i for i, c in enumerate(text + b",") if c == ord(",") and i >= start]
