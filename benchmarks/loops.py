"""Loops to measure ours against: what memory allows, and what people usually write."""

from __future__ import annotations

import numba
import numpy as np

from lessram.jit import FLAGS
from lessram.numerics.machine import prefetch

DISTANCES = (64, 128, 256, 512)
"""Features ahead at which the limits prefetch; the fastest counts."""

_bare = numba.njit(**FLAGS)  # the package's flags, but not its disk cache, which does not watch this folder


@_bare
def gather_and_mark(cells, slots, distance):
    """The limit of training: read the weight of every feature's cell and write one byte back. No arithmetic.

    `slots` must be longer than what is read by `distance`.
    """
    total = np.int64(0)
    far = np.uint64(distance)
    for k in range(np.uint64(slots.shape[0]) - far):
        prefetch(cells, np.uint64(slots[k + far]))
        slot = slots[k]
        total += cells[slot].weight
        cells[slot].level = np.uint8(k)
    return total


@_bare
def gather(cells, slots, distance):
    """The limit of prediction: read the weight of every feature's cell."""
    total = np.int64(0)
    far = np.uint64(distance)
    for k in range(np.uint64(slots.shape[0]) - far):
        prefetch(cells, np.uint64(slots[k + far]))
        total += cells[slots[k]].weight
    return total


@numba.njit(fastmath=True, nogil=True)
def two_arrays(indptr, slots, labels, weights, counts, alpha):
    """Algorithm 2 in 64 bits a coordinate the plain way: an array of weights, an array of counts."""
    for r in range(len(labels)):
        z = np.float32(0)
        for k in range(indptr[r], indptr[r + 1]):
            z += weights[slots[k]]
        p = np.float32(1) / (np.float32(1) + np.exp(-z))
        g = p - labels[r]
        for k in range(indptr[r], indptr[r + 1]):
            i = slots[k]
            counts[i] += np.uint32(1)
            weights[i] -= alpha / np.sqrt(np.float32(counts[i])) * g
