"""The shuffling buffer: a permutation that depends on the seed and the stream alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from streams import LENGTHS, cut, make_rows, to_batch
from test_cache import plan_of, train
from test_source import example_text

from lessram.data.batch import Batch
from lessram.data.shuffle import PIECE, Shuffler
from lessram.data.source import TextBuffer
from lessram.errors import SpecError

ROWS = make_rows(96, LENGTHS * 8, valued=True)
WHOLE = to_batch(ROWS)


def rows_of(batches: list[Batch]) -> list[tuple[object, ...]]:
    rows = []
    for batch in batches:
        values = np.ones(len(batch.slots), np.float32) if batch.values is None else batch.values
        weights = np.ones(batch.rows, np.float32) if batch.weights is None else batch.weights
        for row in range(batch.rows):
            span = slice(*batch.indptr[row : row + 2])
            features = (tuple(batch.slots[span].tolist()), tuple(values[span].tolist()))
            rows.append((float(batch.labels[row]), float(weights[row]), *features))
    return rows


def shuffled(batches: Sequence[Batch], examples: int, seed: int = 0, salt: int = 0) -> list[tuple[object, ...]]:
    stream = Shuffler(examples, seed, salt).stream((batch, None) for batch in batches)
    return rows_of([batch for batch, _ in stream])


@pytest.mark.parametrize("examples", [2, 3, 10, 127, 128, 129, 1000])
def test_every_row_once_in_another_order(examples: int) -> None:
    found = shuffled([WHOLE], examples)
    assert sorted(found) == sorted(rows_of([WHOLE]))
    assert found != rows_of([WHOLE])


def test_the_order_depends_on_seed_and_salt_and_not_on_batches() -> None:
    whole = shuffled([WHOLE], 30, seed=3)
    for places in ([64], [1, 2, 30, 31, 100], list(range(1, len(ROWS)))):
        assert shuffled(cut(WHOLE, places), 30, seed=3) == whole
    assert shuffled([WHOLE], 30, seed=4) != whole
    assert shuffled([WHOLE], 30, seed=3, salt=1) != whole


def test_batches_with_and_without_values_and_weights_mix() -> None:
    pieces = cut(WHOLE, [40, 80])
    pieces[1] = pieces[1]._replace(values=None, weights=None)
    assert sorted(shuffled(pieces, 100)) == sorted(rows_of(pieces))


def test_buffers_of_a_reader_may_be_used_again() -> None:
    """A reader overwrites its arrays as soon as the next batch is asked for."""

    def reader():
        for piece in cut(WHOLE, [5, 17, 90]):
            copy = Batch(*(None if array is None else array.copy() for array in piece))
            yield copy, None
            for array in copy[:1] + copy[2:]:
                array[:] = 77

    found = [row for batch, _ in Shuffler(30).stream(reader()) for row in rows_of([batch])]
    assert sorted(found) == sorted(rows_of([WHOLE]))


def test_it_mixes_well() -> None:
    """Of many rows, distances moved are about N, some are far; both ends of a buffer are equally likely to leave."""
    count, examples = 20_000, 1000
    batch = Batch(np.zeros(count, np.float32), np.arange(count + 1), np.arange(count, dtype=np.uint32))
    order = np.concatenate([out.slots for out, _ in Shuffler(examples, 9).stream([(batch, None)])]).astype(np.int64)
    assert sorted(order.tolist()) == list(range(count))
    moved = order - np.arange(count)
    assert 300 < np.abs(moved).mean() < 1000
    assert moved.min() < -3 * examples
    assert np.corrcoef(order[:500], np.arange(500))[0, 1] < 0.2


def test_what_leaves_comes_in_small_batches_and_memory_is_known() -> None:
    count = 3 * PIECE
    batch = Batch(np.zeros(count, np.float32), 10 * np.arange(count + 1), np.zeros(10 * count, np.uint32))
    shuffler = Shuffler(count)
    assert [out.rows for out, _ in shuffler.stream([(batch, None)])] == [4096, 2048, 4096, 2048]
    row = 4 + 8 + 10 * 4
    assert 2 * count * row <= shuffler.nbytes <= 2 * count * (row + 8) + 100


def test_training_does_not_depend_on_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "0.svm"
    path.write_bytes(example_text(300))
    plain = train(plan_of([str(path)]))[1]
    models = []
    for threads, chunk in ((1, 1000), (2, 1000), (3, 3000)):
        monkeypatch.setattr(TextBuffer.__init__, "__defaults__", (chunk,))
        training, model = train(plan_of([str(path)], shuffle=100, threads=threads))
        models.append(model)
        assert training.buffer_bytes > 100 * 100
        assert training.model.examples == 900
    assert models[0] == models[1] == models[2] != plain


def test_what_does_not_go_together(tmp_path: Path) -> None:
    path = tmp_path / "0.svm"
    path.write_bytes(b"1 2:1\n")
    with pytest.raises(SpecError, match="a checkpoint has no place for a shuffling buffer: leave out --checkpoint or"):
        plan_of([str(path)], shuffle=100, checkpoint="c")
    with pytest.raises(SpecError, match="shuffle must be 0 or at least 2 examples, got 1"):
        plan_of([str(path)], shuffle=1)
    with pytest.raises(SpecError, match="must be of at least 2 examples, got 0"):
        Shuffler(0)
