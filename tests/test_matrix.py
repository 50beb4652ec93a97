"""Matrices in memory: the same rows whatever they are stored in, no copies where none are needed, clear errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_svmlight import hash_number
from sklearn.utils import murmurhash3_32

from lessram.data import matrix as module
from lessram.data.batch import Batch
from lessram.data.checks import checked
from lessram.data.matrix import Matrix
from lessram.errors import DataError

Row = list[tuple[int, float]]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FEATURES", 50)
    monkeypatch.setattr(module, "ROWS", 7)


def rows_of(batches: list[Batch]) -> list[Row]:
    rows = []
    for batch in batches:
        values = np.ones(len(batch.slots), np.float32) if batch.values is None else batch.values
        for row in range(batch.rows):
            span = slice(*batch.indptr[row : row + 2])
            rows.append(list(zip(batch.slots[span].tolist(), values[span].tolist(), strict=True)))
    return rows


def sparse(
    rows: int = 60, columns: int = 40, *, index: type = np.int32, dtype: type = np.float32, seed: int = 0
) -> Any:
    chance = np.random.default_rng(seed)
    dense = chance.choice([0, 0, 0, 1, -2, 0.5], (rows, columns))
    if np.issubdtype(dtype, np.integer):
        dense = np.abs(dense).round()
    matrix = sp.csr_array(dense.astype(dtype))
    matrix.indices, matrix.indptr = matrix.indices.astype(index), matrix.indptr.astype(index)
    return matrix


def plain_rows(matrix: Any, slots: int = 1 << 20, hash: str = "auto", seed: int = 0) -> list[Row]:
    """Row by row, column by column."""

    def slot(column: int) -> int:
        return hash_number(column, seed) % slots if hash == "all" or column >= slots else column

    dense = np.asarray(matrix.todense() if sp.issparse(matrix) else matrix).astype(np.float32)
    return [[(slot(c), float(x)) for c, x in enumerate(row) if x] for row in dense]


# ---------------------------------------------------------------- the same rows from everything


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.int64, np.bool_])
@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil"])
@pytest.mark.parametrize("kind", [sp.csr_array, sp.csr_matrix])
def test_sparse(small_blocks: None, index: type, dtype: type, form: str, kind: type) -> None:
    matrix = kind(sparse(index=index, dtype=dtype))
    found = list(Matrix(matrix.asformat(form), 1 << 20).batches())
    assert rows_of(found) == plain_rows(matrix)
    assert all(batch.rows <= 7 for batch in found)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, np.bool_, object])
@pytest.mark.parametrize("order", ["C", "F"])
def test_dense(small_blocks: None, dtype: type, order: str) -> None:
    array = sparse(dtype=np.float64 if dtype is object else dtype).toarray().astype(dtype)
    array = np.asarray(array, order=order)
    assert rows_of(list(Matrix(array, 1 << 20).batches())) == plain_rows(array)
    assert rows_of(list(Matrix(array.tolist(), 1 << 20).batches())) == plain_rows(array)


def test_numbered_dicts(small_blocks: None) -> None:
    matrix = sparse().tocsr()
    dicts = [dict(zip(row.indices, row.data, strict=True)) for row in (matrix[[r]] for r in range(60))]
    assert rows_of(list(Matrix(dicts, 1 << 20).batches())) == plain_rows(matrix)


@pytest.mark.parametrize("hash", ["auto", "all"])
@pytest.mark.parametrize("slots", [7, 40, 2**33])
def test_columns_beyond_the_slots_are_hashed(small_blocks: None, hash: str, slots: int) -> None:
    matrix = sparse()
    expected = plain_rows(matrix, slots, hash, seed=3)
    dicts = [dict(zip(row.indices, row.data, strict=True)) for row in (matrix[[r]] for r in range(60))]
    for data in (matrix, sparse(index=np.int64, dtype=np.float64), matrix.toarray(), dicts):
        found = list(Matrix(data, slots, hash=hash, hash_seed=3).batches())
        assert rows_of(found) == expected


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 30), st.sampled_from([0.0, 1.0, 1.0, -0.0, 0.25, 1e-60])), max_size=8),
        max_size=20,
    ),
    st.sampled_from([np.float32, np.float64]),
)
def test_rows_with_zeros_and_repeated_columns(rows: list[Row], dtype: type) -> None:
    indptr = np.cumsum([0] + [len(row) for row in rows])
    ids = np.array([c for row in rows for c, _ in row], np.int32)
    data = np.array([x for row in rows for _, x in row], dtype)
    matrix = sp.csr_array((data, ids, indptr), shape=(len(rows), 31))
    found = list(Matrix(matrix, 64).batches())
    kept = [[(c, float(np.float32(x))) for c, x in row if np.float32(x)] for row in rows]
    assert rows_of(found) == kept
    for batch in found:
        assert checked(batch, 64) is batch


def test_blocks_are_bounded_but_for_one_long_row(small_blocks: None) -> None:
    matrix = sp.csr_array(2 * np.vstack([np.ones((5, 20)), np.zeros((3, 20)), np.ones((30, 20))]))
    assert [batch.rows for batch in Matrix(matrix, 64).batches()][:3] == [2, 2, 5]
    wide = sp.csr_array(2 * np.ones((4, 200)))
    assert [batch.features for batch in Matrix(wide, 256).batches()] == [200] * 4


@pytest.mark.parametrize("values", [np.float32(2), np.float64(1)])
def test_what_is_not_copied_comes_in_large_blocks(values: Any, small_blocks: None) -> None:
    matrix = sp.csr_array(np.full((8, 200), values))
    found = list(Matrix(matrix, 256).batches())
    assert sum(batch.rows for batch in found) == 8
    assert len(found) < 8
    assert all(np.shares_memory(batch.slots, matrix.indices) for batch in found)


@pytest.mark.parametrize("data", [sp.csr_array((0, 5)), sp.csr_array((3, 5)), np.empty((0, 4)), np.zeros((3, 0))])
def test_empty_matrices(data: Any) -> None:
    matrix = Matrix(data, 8)
    assert rows_of(list(matrix.batches())) == [[]] * data.shape[0]
    assert (matrix.rows, matrix.columns) == data.shape


# ---------------------------------------------------------------- labels, weights


def test_labels_and_weights_go_with_their_rows(small_blocks: None) -> None:
    labels, weights = np.arange(60) % 2, np.linspace(0, 3, 60)
    for data in (sparse(), sparse().toarray(), [{i: 1} for i in range(60)]):
        found = list(Matrix(data, 64).batches(labels, weights))
        assert np.concatenate([batch.labels for batch in found]).tolist() == labels.tolist()
        assert np.concatenate([b.weights for b in found]).tolist() == weights.astype(np.float32).tolist()
        for batch in found:
            assert checked(batch, 64) is batch


def test_labels_of_another_length() -> None:
    with pytest.raises(DataError, match=r"found labels of shape \(3,\), expected \(60,\), one a row"):
        list(Matrix(sparse(), 64).batches([0, 1, 1]))


# ---------------------------------------------------------------- no copies


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("where", ["memory", "read-only", "file"])
def test_csr_is_not_copied(tmp_path: Path, index: type, where: str) -> None:
    matrix = sparse(index=index)
    if where != "memory":
        for name in ("data", "indices", "indptr"):
            array = getattr(matrix, name)
            if where == "file":
                np.save(tmp_path / f"{name}.npy", array)
                array = np.load(tmp_path / f"{name}.npy", mmap_mode="r")
            array.flags.writeable = False
            setattr(matrix, name, array)
    for batch in Matrix(matrix, 64).batches():
        assert np.shares_memory(batch.slots, matrix.indices)
        assert np.shares_memory(batch.values, matrix.data)
        assert batch.slots.dtype == (np.uint32 if index is np.int32 else np.uint64)
        assert batch.slots.flags.writeable, "one type for compiled code, wherever the data lie"
    assert rows_of(list(Matrix(matrix, 64).batches())) == plain_rows(matrix)


def test_batches_keep_the_memory_alive() -> None:
    def batches() -> list[Batch]:
        matrix = sparse()
        matrix.data.flags.writeable = matrix.indices.flags.writeable = False
        return list(Matrix(matrix, 64).batches())

    found = batches()
    _ = [np.full(10_000, 77) for _ in range(50)]
    assert rows_of(found) == plain_rows(sparse())


def test_ones_have_no_values() -> None:
    ones = sparse()
    ones.data[:] = 1
    assert all(batch.values is None for batch in Matrix(ones, 64).batches())
    assert all(batch.values is None for batch in Matrix(ones.astype(np.float64), 64).batches())
    assert all(batch.values is None for batch in Matrix(ones.toarray(), 64).batches())


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(("slots", "seed"), [(1 << 20, 0), (1000, 0), (2**32, 7)])
def test_names_are_hashed_as_by_scikit_learn(slots: int, seed: int) -> None:
    row = {"city": "Paris", "age": 3, "näme": -0.5, "seen": True, "none": 0}
    expected = [("city=Paris", 1.0), ("age", 3.0), ("näme", -0.5), ("seen", 1.0)]
    assert rows_of(list(Matrix([row], slots, hash_seed=seed).batches())) == [
        [(murmurhash3_32(name.encode(), seed, positive=True) % slots, value) for name, value in expected]
    ]


def test_names_and_numbers_in_one_row() -> None:
    row = {"a": 2.0, 5: 1.0, "b": 1.0, np.int64(9): 0.5, 2**64 - 1: 1.0}
    for slots in (8, 2**40):
        found = rows_of(list(Matrix([row, {}], slots).batches()))
        ((a, _),), ((b, _),) = (rows_of(list(Matrix([{name: 1}], slots).batches()))[0] for name in "ab")
        nine = 9 if slots > 9 else hash_number(9, 0) % slots
        assert found == [[(a, 2.0), (5, 1.0), (b, 1.0), (nine, 0.5), (hash_number(2**64 - 1, 0) % slots, 1.0)], []]


def test_the_seed_moves_names() -> None:
    rows = [{f"name{i}": 1} for i in range(50)]
    first, second = (rows_of(list(Matrix(rows, 1 << 30, hash_seed=seed).batches())) for seed in (0, 1))
    assert first != second


# ---------------------------------------------------------------- errors

NOT_FINITE = "expected a finite number that float32 can hold"


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e39])
def test_values_that_are_not_finite(small_blocks: None, bad: float) -> None:
    for dtype in (np.float32, np.float64):
        dense = np.ones((60, 4))
        dense[37, 2] = bad
        with np.errstate(over="ignore"):
            dense = dense.astype(dtype)
        expected = f"row 37, column 2: found {dense[37, 2]}, {NOT_FINITE}"
        for data in (dense, sp.csr_array(dense), sp.csc_array(dense)):
            with pytest.raises(DataError) as caught:
                Matrix(data, 64)
            assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"a": float("nan")}, f"row 1: found nan as the value of feature 'a', {NOT_FINITE}"),
        ({7: 1e99}, f"row 1: found 1e+99 as the value of feature 7, {NOT_FINITE}"),
        ({7: None}, f"row 1: found None as the value of feature 7, {NOT_FINITE}"),
        ({-7: 1}, "row 1: found feature -7, expected a number from 0 to 2^64 - 1"),
        ({2**64: 1}, "row 1: found feature 18446744073709551616, expected a number from 0 to 2^64 - 1"),
        ({1.5: 1}, "row 1: found 1.5 as a feature, expected a name or a number"),
        ({True: 1}, "row 1: found True as a feature, expected a name or a number"),
        ({"\ud800": 1}, "row 1: found '\\ud800' as a feature, expected a name that UTF-8 can spell"),
        ({"a": "\ud800"}, "row 1: found 'a=\\ud800' as a feature, expected a name that UTF-8 can spell"),
    ],
)
def test_bad_dicts(row: dict, message: str) -> None:
    with pytest.raises(DataError) as caught:
        Matrix([{"a": 1}, row], 64)
    assert str(caught.value) == message


def test_nothing_is_hashed_where_hashing_is_off() -> None:
    assert rows_of(list(Matrix(sparse(), 40, hash="none").batches())) == plain_rows(sparse())
    for data in (sparse(), sparse().toarray()):
        with pytest.raises(DataError, match="found feature 39, expected one below 39, the number of slots"):
            Matrix(data, 39, hash="none")
    with pytest.raises(DataError, match="row 0: found feature 39, expected one below 39, the number of slots"):
        Matrix([{39: 1}], 39, hash="none")
    with pytest.raises(DataError, match="row 0: found the name 'a', expected numbers only"):
        Matrix([{"a": 1}], 39, hash="none")


def test_damaged_sparse_matrices() -> None:
    matrix = sparse()
    matrix.indices[5] = -1
    with pytest.raises(DataError, match="found column -1, expected columns from 0 to 39"):
        Matrix(matrix, 64)
    matrix = sparse()
    matrix.indices[5] = 40
    with pytest.raises(DataError, match="found column 40, expected columns from 0 to 39"):
        Matrix(matrix, 64)
    for place, start in ((30, 0), (-1, 10**6), (0, -1)):
        matrix = sparse()
        matrix.indptr[place] = start
        with pytest.raises(DataError, match="found row starts that fall or leave the features"):
            Matrix(matrix, 64)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.ones(3), "found an array of 1 dimensions, expected 2"),
        (np.ones((2, 2, 2)), "found an array of 3 dimensions, expected 2"),
        ([["a", "b"]], "found a matrix of <U1, expected numbers"),
        ([["1", "b"]], "found a matrix of <U1, expected numbers"),
        ([[object(), 1]], "found a matrix of object, expected numbers"),
        (sp.csr_array(np.ones((2, 2), complex)), "found a matrix of complex128, expected numbers"),
        (np.ones((2, 2), complex), "found a matrix of complex128, expected numbers"),
    ],
)
def test_what_is_no_matrix(data: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Matrix(data, 64)
