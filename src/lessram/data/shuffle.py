"""A shuffling buffer: examples in another order, by a window over the stream.

Rows gather in a buffer of N. Whenever it is full, a random half of it leaves and the rest waits for N/2 new rows: so a
row moves about N places on average, and any distance is possible. At the end all that is left leaves.

Which rows leave and in which order follows from the seed and the number of rows alone. The buffer is cut at exact
numbers of rows, however the stream comes in batches: neither they nor the number of threads change the order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lessram.data.batch import Batch, joined, owned
from lessram.errors import SpecError
from lessram.jit import kernel
from lessram.numerics.random import finalise, hash_seed, row_key

PIECE = 4096
"""Rows that leave in one batch."""


class Shuffler:
    """Shuffles one stream of (batch, place) pairs.

    >>> batch = Batch(np.float32([0, 1, 2, 3, 4]), np.arange(6), np.uint32([0, 1, 2, 3, 4]))
    >>> [out.slots.tolist() for out, _ in Shuffler(5, seed=1).stream([(batch, None)])]
    [[3, 1], [4, 2, 0]]
    """

    def __init__(self, examples: int, seed: int = 0, salt: int = 0) -> None:
        if examples < 2:
            raise SpecError(f"a shuffling buffer must be of at least 2 examples, got {examples}")
        self._capacity = examples
        self._seed = np.uint64(hash_seed(hash_seed(seed) ^ salt))
        self._mixes = 0
        self._waiting: list[Batch] = []
        self._rows = 0
        self.nbytes = 0
        """The most memory that the buffer has taken so far."""

    def stream(self, places: Iterable[tuple[Batch, Any]]) -> Iterator[tuple[Batch, Any]]:
        """All rows, each once; with the place up to which the stream has been read."""
        place = None
        for batch, place in places:
            start = 0
            while start < batch.rows:
                stop = min(batch.rows, start + self._capacity - self._rows)
                self._waiting.append(owned(batch.slice(start, stop)))
                self._rows += stop - start
                start = stop
                if self._rows == self._capacity:
                    yield from ((out, place) for out in self._mix(self._capacity // 2))
        if self._rows:
            yield from ((out, place) for out in self._mix(self._rows))

    def _mix(self, leaving: int) -> Iterator[Batch]:
        """Let so many rows leave, in random order; the others wait."""
        buffer = joined(self._waiting)
        self._remember(buffer, *self._waiting)
        self._waiting = []
        keys = np.empty(self._rows, np.uint64)
        random_keys(self._seed, np.uint64(self._mixes), keys)
        order = np.argsort(keys, kind="stable")
        self._mixes += 1
        kept = gathered(buffer, np.sort(order[leaving:]))
        self._remember(buffer, kept)
        self._rows = kept.rows
        for start in range(0, leaving, PIECE):
            yield gathered(buffer, order[start : min(start + PIECE, leaving)])
        self._waiting = [kept] if kept.rows else []

    def _remember(self, *batches: Batch) -> None:
        rows = 2 * 8 * self._capacity  # keys and order
        self.nbytes = max(self.nbytes, rows + sum(_nbytes(batch) for batch in batches))


def gathered(batch: Batch, rows: NDArray[np.int64]) -> Batch:
    """These rows of a batch, in this order, in memory of their own."""
    lengths = batch.indptr[rows + 1] - batch.indptr[rows]
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
    slots = np.empty(int(indptr[-1]), batch.slots.dtype)
    gather(batch.indptr, batch.slots, rows, slots)
    values = None
    if batch.values is not None:
        values = np.empty(len(slots), np.float32)
        gather(batch.indptr, batch.values, rows, values)
    weights = None if batch.weights is None else batch.weights[rows]
    return Batch(batch.labels[rows], indptr, slots, values, weights)


@kernel
def random_keys(hashed_seed, mix, keys):
    """A random word for each row of the buffer, to sort it by."""
    key = row_key(hashed_seed, mix)
    for i in range(np.uint64(keys.shape[0])):
        keys[i] = finalise(key + np.uint64(i) * np.uint64(0x9E3779B97F4A7C15))


@kernel
def gather(indptr, source, rows, target):
    """Copy the features of these rows, one row behind the other."""
    k = 0
    for i in range(rows.shape[0]):
        for j in range(indptr[rows[i]], indptr[rows[i] + 1]):
            target[k] = source[j]
            k += 1


def _nbytes(batch: Batch) -> int:
    return sum(array.nbytes for array in batch if array is not None)
