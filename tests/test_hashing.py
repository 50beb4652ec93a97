"""Hashes against the libraries that they must agree with, and against plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from guarded import guarded_chunk
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction import FeatureHasher
from sklearn.utils import murmurhash3_32

from lessram.data.hashing import (
    combine,
    fold_into_slots,
    hash_dtype,
    hash_for_slots,
    hash_names,
    hash_texts,
    number_name,
)
from lessram.data.short_names import LONGEST, WAITING, Names, hash_waiting, put_name
from lessram.errors import SpecError
from lessram.jit import kernel

MASK64 = 2**64 - 1
compiling = settings(deadline=None)  # the first call of a kernel takes its time
names = st.lists(st.binary(max_size=40), min_size=1, max_size=12)
seeds32 = st.integers(0, 2**32 - 1)
seeds64 = st.integers(0, MASK64)


def murmur64a(name: bytes, seed: int) -> int:
    """MurmurHash64A in Python integers."""
    m = 0xC6A4A7935BD1E995
    h = seed ^ (len(name) * m & MASK64)
    whole = len(name) & ~7
    for i in range(0, whole, 8):
        k = int.from_bytes(name[i : i + 8], "little") * m & MASK64
        k = (k ^ k >> 47) * m & MASK64
        h = (h ^ k) * m & MASK64
    if name[whole:]:
        h = (h ^ int.from_bytes(name[whole:], "little")) * m & MASK64
    h = (h ^ h >> 47) * m & MASK64
    return h ^ h >> 47


@compiling
@given(names, seeds32)
def test_murmur32_is_that_of_scikit_learn(texts, seed):
    expected = [murmurhash3_32(text, seed, positive=True) for text in texts]
    assert hash_texts(texts, seed).tolist() == expected


def test_known_values_of_murmur32():
    assert hash_texts(["", "hello", "hello, world"], 0).tolist() == [0, 0x248BFA47, 0x149BBB7F]


@kernel
def put_all(text, offsets, seed, waiting, hashes):
    for i in range(np.uint64(hashes.size)):
        start, stop = np.uint64(offsets[i]), np.uint64(offsets[i + np.uint64(1)])
        put_name(waiting, text, start, stop - start, seed, hashes, i)
    hash_waiting(waiting, hashes)


def hashed_together(texts: list[bytes], seed: np.uint32 | np.uint64) -> list[int]:
    """The hashes of short names that were put aside."""
    chunk = guarded_chunk(b"".join(texts))
    hashes = np.zeros(len(texts), seed.dtype)
    put_all(chunk.text, np.cumsum([0, *map(len, texts)]), seed, Names.new(), hashes)
    return hashes.tolist()


short_names = st.lists(st.binary(max_size=LONGEST), max_size=70)


@compiling
@given(short_names, seeds32)
def test_short_names_hashed_together_are_hashed_as_one_by_one(texts, seed):
    assert hashed_together(texts, np.uint32(seed)) == [murmurhash3_32(text, seed, positive=True) for text in texts]


def test_more_names_than_can_wait():
    texts = [b"name %d" % i for i in range(2 * WAITING + 3)]
    assert hashed_together(texts, np.uint32(7)) == [murmurhash3_32(text, 7, positive=True) for text in texts]
    assert hashed_together(texts, np.uint64(7)) == [murmur64a(text, 7) for text in texts]


@compiling
@given(names, seeds64)
def test_murmur64_is_that_of_plain_python(texts, seed):
    assert hash_texts(texts, seed, "murmur64").tolist() == [murmur64a(text, seed) for text in texts]


@compiling
@given(st.dictionaries(st.text(min_size=1, max_size=20), st.floats(0.5, 2), max_size=8))
def test_slots_are_those_of_feature_hasher(row):
    """FeatureHasher takes the same hash as a signed number, and its absolute value modulo the size."""
    matrix = FeatureHasher(2**20, alternate_sign=False).transform([row]).tocoo()
    ours = np.zeros(2**20)
    signed = hash_texts(list(row)).astype(np.int64) if row else np.zeros(0, np.int64)
    signed = np.where(signed >= 2**31, signed - 2**32, signed)
    np.add.at(ours, np.abs(signed) % 2**20, list(row.values()))
    assert np.array_equal(ours.nonzero()[0], np.unique(matrix.col))


@compiling
@given(names, st.data())
def test_every_name_may_have_its_own_seed(texts, data):
    seeds = np.array(data.draw(st.lists(seeds32, min_size=len(texts), max_size=len(texts))), np.uint32)
    offsets = np.concatenate([[0], np.cumsum([len(text) for text in texts])])
    hashed = hash_names(np.frombuffer(bytearray(b"".join(texts)), np.uint8), offsets, seeds)
    assert hashed.tolist() == [
        murmurhash3_32(text, int(seed), positive=True) for text, seed in zip(texts, seeds, strict=True)
    ]


def test_names_in_the_middle_of_a_buffer_and_at_its_end_hash_alike():
    data = np.frombuffer(bytearray(b"clickclick"), np.uint8)
    first, second = hash_names(data, np.array([0, 5, 10]), np.uint32(3))
    assert first == second


@pytest.mark.parametrize("offsets", [[0, 11], [-1, 3], [0, 5, 4]])
def test_offsets_outside_the_data_are_refused(offsets):
    with pytest.raises(SpecError, match="offsets of names must rise from 0 to 10"):
        hash_names(np.zeros(10, np.uint8), np.array(offsets), np.uint32(0))


def test_seeds_must_fit_the_names():
    with pytest.raises(SpecError, match="3 names need 1 or 3 seeds"):
        hash_names(np.zeros(10, np.uint8), np.array([0, 1, 2, 3]), np.zeros(2, np.uint32))


def test_unknown_hash_is_refused():
    with pytest.raises(SpecError, match="'murmur32' or 'murmur64', got 'md5'"):
        hash_dtype("md5")


def test_the_hash_follows_the_table():
    assert [hash_for_slots(2**b) for b in (18, 32, 33)] == ["murmur32", "murmur32", "murmur64"]


@kernel
def _combine(first, second):
    return combine(first, second)


@kernel
def _number_name(number, seed):
    return number_name(number, seed)


@kernel
def _fold(hashes, slots):
    fold_into_slots(hashes, np.uint64(0), np.uint64(hashes.size), slots)


@compiling
@given(seeds64, seeds64)
def test_combine_and_numbers_wrap_in_both_widths(a, b):
    low, high = 2**32 - 1, MASK64
    assert int(_combine(np.uint32(a & low), np.uint32(b & low))) == (a * 16777619 ^ b) & low
    assert int(_combine(np.uint64(a), np.uint64(b))) == (a * 1099511628211 ^ b) & high
    assert int(_number_name(np.uint64(a), np.uint32(b & low))) == (a + b) & low
    assert int(_number_name(np.uint64(a), np.uint64(b))) == (a + b) & high


@compiling
@given(st.lists(seeds64, max_size=40), st.integers(1, 2**40))
def test_folding_is_the_remainder(hashes, slots):
    wide = np.array(hashes, np.uint64)
    _fold(wide, np.uint64(slots))
    assert wide.tolist() == [h % slots for h in hashes]
    slots = min(slots, 2**32)
    narrow = np.array([h & 0xFFFFFFFF for h in hashes], np.uint32)
    _fold(narrow, np.uint64(slots))
    assert narrow.tolist() == [(h & 0xFFFFFFFF) % slots for h in hashes]
