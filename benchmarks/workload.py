"""Synthetic streams of binary features with known statistics."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lessram.data.batch import Batch

SHAPES = ("zipf", "uniform")

_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # odd: a permutation of the slots of any power of two
_EFFECT = np.uint64(0xD6E8FEB86659FD93)


def draw_slots(shape: str, bits: int, count: int, random: np.random.Generator) -> NDArray[np.uint32]:
    """Slots below 2^bits: uniform, or with frequency 1/rank, neighbouring ranks far apart in memory."""
    if shape == "uniform":
        return random.integers(0, 1 << bits, count, dtype=np.uint32)
    return placed(np.exp2(bits * random.random(count)).astype(np.uint64) - np.uint64(1), bits)


def placed(ranks: NDArray[np.uint64], bits: int) -> NDArray[np.uint32]:
    """The slots of the features with these ranks by frequency."""
    return ((ranks * _SPREAD) & np.uint64((1 << bits) - 1)).astype(np.uint32)


def draw_batch(shape: str, bits: int, rows: int, row_length: int, seed: int = 1) -> Batch:
    """Rows of equal length whose labels follow a logistic model with a hidden weight for every slot."""
    random = np.random.default_rng(seed)
    slots = draw_slots(shape, bits, rows * row_length, random)
    effects = ((slots * _EFFECT) >> np.uint64(44)).astype(np.float32) * np.float32(1.5 * 2.0**-20) - np.float32(0.75)
    margins = effects.reshape(rows, row_length).sum(axis=1) - 1.5
    labels = random.random(rows) < 1.0 / (1.0 + np.exp(-margins))
    return Batch(labels.astype(np.float32), np.arange(rows + 1, dtype=np.int64) * row_length, slots)


def with_values(batch: Batch, seed: int = 2) -> Batch:
    """The same rows, their features valued between 1/2 and 3/2."""
    values = np.random.default_rng(seed).random(len(batch.slots), dtype=np.float32) + np.float32(0.5)
    return batch._replace(values=values)
