"""Values by raw key: exact for every seen key, 0 for nearly every other, near the entropy, refused when damaged."""

from __future__ import annotations

import numpy as np
import pytest
from coded_values import long_tail

from lessram.data.hashing import hash_texts
from lessram.errors import DataError, FileFormatError, SpecError
from lessram.numerics.fixed_point import FixedPoint
from lessram.serving.keyed import KeyedStore, encode_keys

GRID = FixedPoint(2, 9)


def some_keys(count: int, seed: int = 0) -> np.ndarray:
    return np.unique(np.random.default_rng(seed).integers(0, 2**64, count, dtype=np.uint64))


@pytest.mark.parametrize(("fraction", "slack"), [(3, 1.6), (9, 1.09)])
def test_every_key_reads_its_value_in_little_more_than_the_entropy(fraction, slack):
    keys = some_keys(200_000)
    values = long_tail(len(keys), fraction)
    store = encode_keys(keys, values, grid=FixedPoint(2, fraction))
    assert np.array_equal(store.lookup(keys), values)
    assert store.bits_per_key < slack * store.about.entropy


@pytest.mark.parametrize(
    "values",
    [
        np.zeros(0, np.int64),
        np.zeros(1, np.int64),
        np.array([-2047]),
        np.zeros(3000, np.int64),
        np.full(3000, 7),
        np.random.default_rng(1).integers(-2047, 2048, 3000),
        np.eye(1, 3000, 5, dtype=np.int64)[0],
    ],
    ids=["none", "a zero", "a value", "all zero", "all the same", "incompressible", "one in a desert"],
)
@pytest.mark.parametrize("bits", [0, 12])
def test_strange_values_come_back(values, bits):
    keys = np.arange(len(values), dtype=np.uint64)  # small numbers are as good as hashes
    store = encode_keys(keys, values, grid=GRID, fingerprint_bits=bits)
    assert np.array_equal(store.lookup(keys), values)


def test_unseen_keys_read_as_zero_but_for_the_fingerprint():
    keys = some_keys(20_000)
    values = np.random.default_rng(3).integers(1, 100, len(keys))
    store = encode_keys(keys, values, grid=GRID, fingerprint_bits=8)
    assert store.about.filter_bits == 8
    others = np.setdiff1d(some_keys(200_000, seed=9), keys)
    wrong = np.count_nonzero(store.lookup(others)) / len(others)
    assert 0.5 / 256 < wrong < 1.5 / 256
    without = encode_keys(keys, values, grid=GRID)
    assert np.count_nonzero(without.lookup(others)) > 0.9 * len(others), "noise, as documented"
    assert 8 < 8 * (store.nbytes - without.nbytes) / len(keys) < 9


def test_names_as_keys(tmp_path):
    """The documented use: features by name, their hashes as keys."""
    weights = {"site=news": 0.75, "site=shop": -0.5, "hour=7": 0.0, "user=ann": 1.0}
    keys = hash_texts(list(weights), kind="murmur64")
    units = np.rint(np.array(list(weights.values())) / GRID.step).astype(np.int64)
    encode_keys(keys, units, grid=GRID, fingerprint_bits=24).save(tmp_path / "names")
    store = KeyedStore.load(tmp_path / "names", verify=True)
    row = hash_texts(["user=ann", "site=shop", "user=bob"], kind="murmur64")
    assert (store.lookup(row) * store.grid.step).tolist() == [1.0, -0.5, 0.0]


def test_bad_keys_and_files_are_refused(tmp_path):
    keys = some_keys(100)
    with pytest.raises(DataError, match="found the key 7 twice"):
        encode_keys(np.array([7, 8, 7], np.uint64), np.array([1, 2, 3]), grid=GRID)
    with pytest.raises(DataError, match="found keys as 1-d int64"):
        encode_keys(np.array([7]), np.array([1]), grid=GRID)
    with pytest.raises(DataError, match="expected 100 integers, one a key"):
        encode_keys(keys, np.zeros(99, np.int64), grid=GRID)
    with pytest.raises(SpecError, match="between -2047 and 2047, got 3000"):
        encode_keys(keys, np.full(100, -3000), grid=GRID)
    with pytest.raises(SpecError, match="fingerprint_bits must be between 0 and 32"):
        encode_keys(keys, np.zeros(100, np.int64), grid=GRID, fingerprint_bits=33)
    path = tmp_path / "keyed"
    encode_keys(keys, np.arange(100), grid=GRID).save(path)
    good = path.read_bytes()
    for place in np.linspace(0, len(good) - 1, 30).astype(int):
        path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        with pytest.raises(FileFormatError):
            KeyedStore.load(path, verify=True)
    path.write_bytes(good[:-1])
    with pytest.raises(FileFormatError, match="damaged"):
        KeyedStore.load(path)
