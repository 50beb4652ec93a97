"""The allocator behind adaptive tables: no overlap, no leak, no lost slot, whatever the order of promotions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lessram.jit import kernel
from lessram.tables import adaptive_store, slabs
from lessram.tables.adaptive import Adaptive
from lessram.tables.blocks import BLOCK, FIRST_SLOT, LINE, WORDS, place_row
from lessram.tables.book import packaged_book, scaled

BLOCKS = 7
SLOTS = BLOCKS * BLOCK - 13
BOOK = scaled(packaged_book("shipped"), 0.2, 2.0**-13, 32767)


def capacity(used: int) -> int:
    step = 1 if used <= 16 else 2 if used <= 32 else 4
    return max(2, -(-used // step) * step)


def place(slot: int) -> int:
    return slot // BLOCK * LINE + slot % BLOCK


def live_slabs(table: Adaptive) -> list[tuple[int, int]]:
    """(start, size) of every block's slab."""
    lines = table.codes.reshape(-1, LINE)[:, :BLOCK]
    pointers = table.pointers.reshape(-1, WORDS)[:, -1]
    used = (lines >= FIRST_SLOT).sum(axis=1)
    assert [bool(pointer) for pointer in pointers] == [bool(count) for count in used]
    return [
        (int(start) + FIRST_SLOT, capacity(int(count))) for start, count in zip(pointers, used, strict=True) if count
    ]


def free_slabs(table: Adaptive) -> list[tuple[int, int]]:
    found = []
    for size in range(slabs.SIZES):
        offset = int(table.pool[slabs.HEADS + size])
        while offset:
            found.append((offset, size))
            low, high = table.cells["weight"][offset : offset + 2].astype(np.uint16)
            offset = int(low) | int(high) << 16
    return found


def check(table: Adaptive, expected: dict[int, tuple[int, int]]) -> None:
    """Live and free slabs tile the pool without gap or overlap, and every promoted slot has its cell."""
    live, free = live_slabs(table), free_slabs(table)
    tiles = sorted(live + free)
    ends = [slabs.START, *(start + size for start, size in tiles)]
    assert [start for start, _ in tiles] == ends[:-1]
    assert ends[-1] == table.pool[slabs.TOP] <= table.pool[slabs.HIGHEST] <= len(table.cells)
    assert sum(size for _, size in free) == table.pool[slabs.FREE]
    for block in table.codes.reshape(-1, LINE)[:, :BLOCK]:
        taken = sorted(code - FIRST_SLOT for code in block.tolist() if code >= FIRST_SLOT)
        assert taken == list(range(len(taken)))
    for slot, (weight, level) in expected.items():
        code = int(table.codes[place(slot)])
        pointer = int(table.pointers[slot // BLOCK * WORDS + WORDS - 1])
        cell = table.cells[pointer + code]
        assert (int(cell["weight"]), int(cell["level"])) == (weight, level)


def promote(table: Adaptive, slot: int, weight: int, level: int) -> None:
    word = np.uint64(place(slot))
    slabs.promote(table.codes, table.pointers, table.cells, table.pool, word, np.int64(weight), np.uint8(level))


promotions = st.lists(
    st.tuples(st.integers(0, SLOTS - 1), st.integers(-32767, 32767), st.integers(0, 255)), max_size=300
)


@settings(max_examples=60, deadline=None)
@given(promotions, st.integers(1, 60))
def test_promotions_in_any_order_tile_the_pool(order, compact_every):
    table = adaptive_store.fresh(SLOTS, BOOK)
    expected: dict[int, tuple[int, int]] = {}
    for number, (slot, weight, level) in enumerate(order, start=1):
        if slot in expected:
            continue
        promote(table, slot, weight, level)
        expected[slot] = (weight, level)
        if number % compact_every == 0:
            slabs.compact(table.codes, table.pointers, table.cells, table.pool)
            assert table.pool[slabs.FREE] == 0
            assert table.pool[slabs.TOP] == slabs.START + sum(size for _, size in live_slabs(table))
    check(table, expected)
    again = adaptive_store.unpacked(adaptive_store.packed(table))
    check(again, expected)


def test_a_full_table_fits_into_what_was_reserved():
    """Blocks in turn, so that every slab outgrows every size: the most garbage that can be."""
    table = adaptive_store.fresh(SLOTS, BOOK)
    expected = {}
    for slot in sorted(range(SLOTS), key=lambda slot: (slot % BLOCK, slot)):
        promote(table, slot, slot, slot % 256)
        expected[slot] = (slot, slot % 256)
    check(table, expected)
    flat = adaptive_store.flattened(table)
    assert flat.cells["weight"].tolist() == list(range(SLOTS))


@pytest.mark.parametrize("in_turn", [False, True])
def test_a_full_large_table_needs_no_more_than_is_reserved(in_turn):
    """The more blocks, the more garbage is let be: a share of the pool, of which garbage is a part itself."""
    slots = BLOCK << 14
    order = np.arange(slots).reshape(-1, BLOCK).T.ravel() if in_turn else np.random.default_rng(1).permutation(slots)
    table = adaptive_store.fresh(slots, BOOK)
    reserved = len(table.cells)
    table = table._replace(cells=np.concatenate([table.cells, np.zeros(reserved // 8, table.cells.dtype)]))
    adaptive_store.put_weights(table, order, np.full(slots, 5))
    assert table.pool[slabs.HIGHEST] <= reserved
    assert (adaptive_store.weights(table, 0, None) == 5).all()


def test_sizes_of_slabs():
    for used in range(1, BLOCK + 1):
        assert slabs.capacity.py_func(np.uint64(used)) == capacity(used) >= used
        assert used == 1 or capacity(used) - used <= used / 8, "little room is spare"


def test_what_slabs_left_behind_never_comes_back():
    """Room that slabs keep for more holds the same in a table that went on and in one that was stopped meanwhile."""
    table = adaptive_store.fresh(SLOTS, BOOK)
    for k in range(16):
        adaptive_store.put_weights(table, np.arange(5) * BLOCK + k, np.full(5, 1000 + k))
    slabs.compact(table.codes, table.pointers, table.cells, table.pool)
    twin = adaptive_store.copied(table)
    for each in (table, twin):
        adaptive_store.put_weights(each, np.array([5, 6]) * BLOCK, np.array([77, 78]))
    assert adaptive_store.tensors(table)["cells"].tolist() == adaptive_store.tensors(twin)["cells"].tolist()


@kernel
def places_of(slots, start, length, places):
    place_row(slots, start, length, places)


@pytest.mark.parametrize("kind", [np.uint32, np.uint64])
def test_the_places_of_a_row_are_those_of_its_slots(kind):
    """At multiples of 60 and around them, up to the last slot of all; the row ends where its array does."""
    edges = np.array([0, 60 * 12345, 2**31, adaptive_store.LARGEST_SLOTS - 60], np.uint64)[:, None]
    slots = (edges // 60 * 60 + np.arange(60, dtype=np.uint64)).reshape(-1)[:227].astype(kind)
    places = np.full(240, 7, np.uint32)
    places_of(slots, np.uint64(3), np.uint64(224), places)
    assert places[:224].tolist() == [place(int(slot)) for slot in slots[3:]]
