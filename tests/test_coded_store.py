"""The coded store: every slot decodes to exactly its value, whatever the values; sizes; both ways to multiply."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import numpy as np
import pytest
from coded_values import golden_values, long_tail, strange
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_served import read_slots

from lessram.errors import DataError, SpecError
from lessram.jit import kernel
from lessram.model.model import Model
from lessram.model.spec import Spec
from lessram.numerics import carryless
from lessram.numerics.fixed_point import FixedPoint
from lessram.numerics.vector import count_at_most
from lessram.serving import encoder
from lessram.serving.lookup import Hot, new_hot
from lessram.serving.prefix import LIMIT, canonical, limited_lengths, make_prefix, symbol_table
from lessram.serving.served import Served
from lessram.serving.store import Store, encode

GRID = FixedPoint(2, 9)


# The carry-less product -----------------------------------------------------------------------------------------------


def polynomial_product(a: int, b: int) -> int:
    product = 0
    for i in range(64):
        if b >> i & 1:
            product ^= a << i
    return product


@kernel
def both_products(a, b):
    return (
        carryless.carryless_low(a, b),
        carryless.carryless_high(a, b),
        carryless.portable_low(a, b),
        carryless.portable_high(a, b),
    )


def test_products_are_those_of_polynomials():
    words = [0, 1, 3, 1 << 63, (1 << 64) - 1, *(int(x) for x in np.random.default_rng(1).integers(1 << 63, size=20))]
    for a in words:
        for b in words:
            expected = polynomial_product(a, b)
            low, high, portable_low, portable_high = both_products(np.uint64(a), np.uint64(b))
            assert low + (high << 64) == expected
            assert portable_low + (portable_high << 64) == expected


# Prefix codes ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=300))
@settings(max_examples=50)
def test_prefix_codes_are_complete_and_as_short_as_may_be(weights):
    lengths = limited_lengths(np.array(weights))
    assert lengths.max() <= LIMIT
    assert sum(2.0 ** -int(length) for length in lengths) == 1
    share = np.array(weights) / sum(weights)
    entropy = -(share * np.log2(share)).sum()
    assert share @ lengths < entropy + 1
    if len(weights) > 1:  # no exchange of two codewords helps
        order = np.argsort(weights, kind="stable")
        assert (np.diff(lengths[order]) <= 0).all()


def test_codewords_are_read_by_the_table():
    order, code = make_prefix(np.array([5, 1, 1, 100, 30, 2]))
    table = symbol_table(code)
    assert order[0] == 3
    for symbol, (length, word) in enumerate(zip(code.lengths.tolist(), code.codewords.tolist(), strict=True)):
        for rest in range(len(table) >> length):
            assert table[word | rest << length] == symbol
    with pytest.raises(ValueError, match="do not fit together"):
        canonical(np.array([0, 3] + [0] * (LIMIT - 1)))


@kernel
def counted(numbers, x):
    return count_at_most(numbers, np.int32(x))


def test_sixteen_numbers_are_compared_at_once():
    numbers = np.array([5, -3, 7, 7, 0, 2**31 - 1, -(2**31), 1, 2, 3, 4, 5, 6, 7, 8, 9], np.int32)
    for x in (-(2**31), -4, 0, 6, 7, 2**31 - 1):
        assert counted(numbers, x) == np.count_nonzero(numbers <= x)


# The store ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", strange())
def test_every_value_comes_back(name):
    values = strange()[name]
    store = encode(values, grid=GRID)
    assert np.array_equal(store.decode(), values)
    assert store.census.slots == len(values)
    assert store.census.nonzero == np.count_nonzero(values)
    assert (store.census.smallest, store.census.largest) == (values.min(), values.max())


@pytest.mark.parametrize(("fraction", "slack"), [(3, 1.17), (5, 1.07), (7, 1.06), (9, 1.05), (13, 1.06)])
def test_long_tails_come_back_and_are_near_the_entropy(fraction, slack):
    values = long_tail(1 << 20, fraction)
    store = encode(values, grid=FixedPoint(2, fraction))
    assert np.array_equal(store.decode(), values)
    assert 1 < store.bits_per_slot / store.census.entropy < slack
    assert store.nbytes == sum(tensor.nbytes for tensor in store.tensors.values())


@given(st.data())
@settings(max_examples=30)
def test_any_values_come_back(data):
    count = data.draw(st.integers(1, 3000))
    seed = data.draw(st.integers(0, 2**32 - 1))
    density = data.draw(st.sampled_from([0.0, 0.01, 0.3, 1.0]))
    most = data.draw(st.sampled_from([1, 3, 100, 2047]))
    random = np.random.default_rng(seed)
    values = np.where(random.random(count) < density, random.integers(-most, most + 1, count), 0)
    assert np.array_equal(encode(values, grid=GRID).decode(), values)


def test_pieces_and_threads_change_nothing():
    values = long_tail(300_000, 7)
    cuts = [values[:7], values[7:7], values[7:200_001], values[200_001:]]
    whole = encode(values, grid=GRID)
    for other in (
        encode(cuts, grid=GRID),
        encode(iter(cuts), grid=GRID),
        encode(values.astype(np.int64), grid=GRID, threads=3),
    ):
        assert other.parameters == whole.parameters
        assert all(np.array_equal(other.tensors[name], tensor) for name, tensor in whole.tensors.items())


def test_values_that_no_layout_suits_are_cut_smaller(monkeypatch):
    """Twelve bits a slot in one place, nothing elsewhere: no segment of the usual size can number its columns."""
    values = np.zeros(1 << 19, np.int64)
    values[1000:40_000] = np.random.default_rng(0).integers(-2047, 2048, 39_000)
    tried = []
    assemble = encoder._segments
    monkeypatch.setattr(encoder, "_segments", lambda *given: tried.append(given[2]) or assemble(*given))
    store = encode(values, grid=GRID)
    assert len(tried) > 1
    assert store.parameters.segment_shift == tried[-1].segment_shift
    assert np.array_equal(store.decode(), values)


def test_lookups_in_any_order_with_and_without_hot_values():
    values = long_tail(200_000, 7, seed=3)
    store = encode(values, grid=GRID)
    random = np.random.default_rng(2)
    ranks = np.exp2(np.log2(len(values)) * random.random(50_000)).astype(np.int64) % len(values)
    for slots in (ranks.astype(np.uint32), ranks.astype(np.uint64), ranks[:0].astype(np.uint32)):
        assert np.array_equal(store.lookup(slots), values[slots])
    hot = new_hot(1 << 11, store.slots)
    for _ in range(4):
        assert np.array_equal(store.lookup(ranks.astype(np.uint32), hot), values[ranks])
    assert np.count_nonzero(hot.words) > 400, "values were kept"


def test_hot_values_of_tables_too_large_to_name_a_slot_are_not_kept():
    assert new_hot(1 << 20, 1 << 31).mask > 0
    assert new_hot(1 << 20, 1 << 32).mask == 0
    assert new_hot(7, 1 << 10).mask == 0


def hot_slots(hot: Hot) -> set[int]:
    """The slots whose values are hot."""
    entries = np.flatnonzero(hot.words)
    return set((((hot.words[entries].astype(np.int64) >> 18) - 1 << int(hot.shift)) + entries).tolist())


def test_a_slot_that_was_met_again_outlives_three_others_that_want_its_entry():
    values = long_tail(1 << 16, 7, seed=5)
    store, hot = encode(values, grid=GRID), new_hot(1 << 10, 1 << 16)
    rivals = (5 + 256 * np.arange(1, 5)).astype(np.uint32)  # of one entry
    for _ in range(2):
        store.lookup(np.array([5], np.uint32), hot)
    for rival, kept in zip(rivals, (True, True, True, False), strict=True):
        assert np.array_equal(store.lookup(np.array([rival]), hot), values[[rival]])
        assert (5 in hot_slots(hot)) == kept
    assert rivals[3] in hot_slots(hot)


@pytest.mark.parametrize("count", [1, 75, 256, 5000])
def test_hot_values_are_learned_from_batches_of_any_length(count):
    values = long_tail(1 << 16, 7, seed=5)
    store, hot = encode(values, grid=GRID), new_hot(1 << 16, 1 << 16)
    slots = np.random.default_rng(8).choice(1 << 14, count, replace=False).astype(np.uint32)
    store.lookup(slots, hot)
    assert hot_slots(hot) == set(slots.tolist())


def test_threads_share_hot_values():
    values = long_tail(100_000, 9, seed=4)
    store = encode(values, grid=GRID)
    hot = new_hot(1 << 10, store.slots)
    random = np.random.default_rng(6)
    slots = [random.integers(0, 2000, 100_000).astype(np.uint32) for _ in range(4)]
    right = [False] * 4

    def read(thread: int) -> None:
        right[thread] = np.array_equal(store.lookup(slots[thread], hot), values[slots[thread]])

    threads = [threading.Thread(target=read, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(right)


def test_bad_values_and_slots_are_refused():
    with pytest.raises(SpecError, match=r"between -2047 and 2047, got 2048"):
        encode(np.array([0, 2048]), grid=GRID)
    with pytest.raises(SpecError, match="1-d arrays of integers, got 1-d float64"):
        encode(np.zeros(3), grid=GRID)
    with pytest.raises(SpecError, match="found no values"):
        encode([], grid=GRID)
    store = encode(np.zeros(8, np.int32), grid=GRID)
    with pytest.raises(DataError, match="found slot 8, expected slots below 8"):
        store.lookup(np.array([8], np.uint32))
    with pytest.raises(DataError, match="found slots as 1-d int64"):
        store.lookup(np.array([1]))


def test_damaged_tensors_are_refused_or_misread_but_never_left():
    """Whoever opens a file without comparing checksums gets an error or wrong numbers, not a crash."""
    values = long_tail(50_000, 5, seed=8)
    store = encode(values, grid=FixedPoint(2, 5))
    random = np.random.default_rng(0)
    for name in store.tensors:
        for _ in range(5):
            tensors = {key: tensor.copy() for key, tensor in store.tensors.items()}
            noise = tensors[name].view(np.uint8).reshape(-1)
            noise[random.integers(0, len(noise), len(noise) // 2)] = random.integers(0, 256) if len(noise) else 0
            try:
                broken = Store.of(tensors, store.parameters, store.grid)
            except ValueError:
                continue
            assert broken.decode().shape == values.shape
    for wrong in ({"group_size": 0}, {"raw_bits": 64}, {"group_shift": 33}, {"escape": -2}, {"escape": 9999}):
        with pytest.raises(ValueError, match=r"fit together|must not be below|of .* codewords"):
            Store.of(store.tensors, msgspec.structs.replace(store.parameters, **wrong), store.grid)
    with pytest.raises(ValueError, match="another size"):
        Store.of({**store.tensors, "bases": np.zeros(1, np.uint64)[:0]}, store.parameters, store.grid)
    with pytest.raises(ValueError, match="bits of type int8"):
        Store.of({**store.tensors, "bits": store.tensors["bits"].view(np.int8)}, store.parameters, store.grid)


PROGRAM = """
import hashlib, sys
from lessram.numerics import carryless
from lessram.serving.served import Served

units = Served.load(sys.argv[1]).store.decode()
print(carryless.HAS_INSTRUCTION, hashlib.sha256(units.tobytes()).hexdigest())
"""


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="needs an x86-64 processor")
def test_without_the_instruction_the_same_values(tmp_path):
    """Building does not multiply without carry; reading does."""
    values = long_tail(60_000, 7)
    values[::500] = 300  # escapes
    store = encode(values, grid=GRID)
    Served.of(Model.new(Spec(slots=len(values))), store, seen=0).save(tmp_path / "served")
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    settings = {"PYTHONPATH": path, "LESSRAM_CACHE_DIR": str(tmp_path), "NUMBA_CPU_NAME": "x86-64"}
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, str(tmp_path / "served")],
        env=os.environ | settings | {"NUMBA_CPU_FEATURES": ""},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert found == ["False", hashlib.sha256(values.astype(np.int32).tobytes()).hexdigest()]


# The format -----------------------------------------------------------------------------------------------------------


def test_a_reader_made_from_the_documentation_reads_the_same():
    for name, values in {**strange(), "long tail": long_tail(20_000, 5)}.items():
        store = encode(values, grid=GRID)
        slots = np.unique(np.random.default_rng(0).integers(0, len(values), 200))
        found = read_slots(store.tensors, msgspec.to_builtins(store.parameters), slots.tolist())
        assert found == values[slots].tolist(), name


def test_files_of_the_first_version_are_read_forever():
    """The file is never written again: whoever changes the format must still read it."""
    served = Served.load(Path(__file__).parent / "golden" / "q2.9.served", verify=True)
    assert str(served.store.grid) == "q2.9"
    assert np.array_equal(served.store.decode(), golden_values())
