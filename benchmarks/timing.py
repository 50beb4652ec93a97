"""Races: competing callables timed in turn, the best of several rounds counting.

Figures on a shared machine drift by tens of percent within minutes; ratios of runs that stand next to
each other do not. So every contender runs once a round, and only ratios of best times are judged.
The clock counts CPU time of the calling thread, where all contenders do their work: other processes do
not add to it, nor do idle pool threads that spin (BLAS threads would double scikit-learn's time).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

CLOCKS: dict[str, Callable[[], float]] = {
    "cpu": time.thread_time,
    "process": time.process_time,
    "wall": time.perf_counter,
}


def _nothing() -> None:
    pass


class Contender(NamedTuple):
    """Something to be timed."""

    name: str
    run: Callable[[], Any]
    prepare: Callable[[], Any] = _nothing
    """Called before every run, outside the time: puts back the state that the run starts from."""


def race(contenders: Sequence[Contender], rounds: int, clock: str = "cpu") -> dict[str, float]:
    """The best time of each contender in seconds. A round before the first is not timed: kernels compile there."""
    now = CLOCKS[clock]
    best = dict.fromkeys((contender.name for contender in contenders), float("inf"))
    for number in range(rounds + 1):
        for contender in contenders:
            contender.prepare()
            start = now()
            contender.run()
            seconds = now() - start
            if number > 0:
                best[contender.name] = min(best[contender.name], seconds)
    return best
