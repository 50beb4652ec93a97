"""Additions in registers by one thread or two: what the cores of a machine give at the moment.

A core of a virtual machine is often half a core: while its other half is at work for somebody else it is only half as
fast. What these additions gain by a second thread is about what any program can.
"""

from __future__ import annotations

import threading
import time

import numpy as np

from lessram.jit import kernel

ROUNDS = 20_000_000


class Additions:
    """A run for one thread or several; its best wall time counts."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self.best = float("inf")

    def run(self) -> None:
        start = time.perf_counter()
        threads = [threading.Thread(target=add, args=[np.uint64(k), ROUNDS]) for k in range(self._threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.best = min(self.best, time.perf_counter() - start)


def gained(one: Additions, two: Additions) -> float:
    """How much more two threads did in the same time."""
    return 2 * one.best / two.best


@kernel
def add(a, rounds):
    """Four chains that do not wait for each other: they fill a core."""
    b, c, d = a + np.uint64(1), a + np.uint64(2), a + np.uint64(3)
    for k in range(rounds):
        a = (a + np.uint64(3)) ^ np.uint64(k)
        b = (b + np.uint64(5)) ^ np.uint64(k)
        c = (c + np.uint64(7)) ^ np.uint64(k)
        d = (d + np.uint64(9)) ^ np.uint64(k)
    return a ^ b ^ c ^ d
