"""The systems that are compared: each learns a data set in stream order, predicting before it learns.

What every one gives back is an array of margins (log-odds), one a row, and the seconds that it took.
"""

from __future__ import annotations

import importlib.util
import math
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import vowpal
from numpy.typing import NDArray
from peer_sets import DataSet
from sklearn.linear_model import LogisticRegression, SGDClassifier

from lessram import Learner, Spec

OURS = {
    "lessram q2.13+morris8": {"weights": "q2.13", "rates": "morris8"},
    "lessram q3.12+squares8": {"weights": "q3.12", "rates": "squares8"},
}
HAS_RIVER = importlib.util.find_spec("river") is not None
EDGE = 35.0
"""Margins that peers give as probabilities are cut here."""


class Run(NamedTuple):
    """One pass over a stream."""

    margins: NDArray[np.float64]
    seconds: float
    bits: float
    """Bits a coordinate while training."""


class System(NamedTuple):
    name: str
    rates: tuple[float, ...]
    """Learning rates to try; a best one at an end leads further."""
    run: Callable[[DataSet, float, Path], Run]
    note: str = ""
    clock: Callable[[DataSet, float, Path], float] | None = None
    """Seconds of a run for time alone, where `run` does more; NaN where it is too short to tell."""


def learn(data: DataSet, options: dict[str, Any], rate: float) -> tuple[Learner, Run]:
    """lessram over rows in memory."""
    learner = Learner(Spec(slots=data.slots, alpha=rate, **options))
    start = time.perf_counter()
    margins = learner.learn(data.batch, trusted=True)
    return learner, Run(margins, time.perf_counter() - start, 8 * learner.model.table.cells.nbytes / data.slots)


def _ours(options: dict[str, Any]) -> Callable[[DataSet, float, Path], Run]:
    return lambda data, rate, folder: learn(data, options, rate)[1]


def _vw(name: str, rates: tuple[float, ...], flags: str, rate_flag: str = "--learning_rate") -> System:
    def run(data: DataSet, rate: float, folder: Path) -> Run:
        text, out = folder / "data.vw", folder / "margins"
        if not text.exists():
            data.write_vw(text)
        found = vowpal.run(text, f"{flags} {rate_flag} {rate}", bits=data.bits, predictions=out)
        margins = np.array([float(line.split()[0]) for line in out.read_text().splitlines()])
        return Run(margins, found["seconds"], vowpal.BITS_PER_COORDINATE[flags])

    def clock(data: DataSet, rate: float, folder: Path) -> float:
        idle = vowpal.startup(folder, flags, bits=data.bits)["seconds"]
        runs = [vowpal.run(folder / "data.vw", f"{flags} {rate_flag} {rate}", bits=data.bits) for _ in range(2)]
        seconds = min(float(found["seconds"]) for found in runs)
        return seconds - idle if seconds > 1.25 * idle else math.nan  # too few rows to tell them from the start-up

    return System(name, rates, run, "from text", clock)


def _scikit_learn(data: DataSet, rate: float, folder: Path) -> Run:
    """One global rate, falling with the root of the examples. Rows are predicted some at a time, then learned."""
    matrix, labels = data.matrix(), data.batch.labels.astype(int)
    block = max(64, matrix.shape[0] // 1000)
    falling = {"learning_rate": "invscaling", "eta0": rate, "power_t": 0.5}
    model = SGDClassifier(loss="log_loss", penalty=None, shuffle=False, **falling)
    margins = np.zeros(matrix.shape[0])
    start = time.perf_counter()
    for first in range(0, matrix.shape[0], block):
        rows = slice(first, first + block)
        if first:
            margins[rows] = model.decision_function(matrix[rows])
        model.partial_fit(matrix[rows], labels[rows], classes=[0, 1])
    return Run(margins, time.perf_counter() - start, 8 * model.coef_.dtype.itemsize)


def _dictionaries(data: DataSet) -> Iterator[tuple[dict[int, float], bool]]:
    batch = data.batch
    values = np.ones(batch.features, np.float32) if batch.values is None else batch.values
    for r, label in enumerate(batch.labels.tolist()):
        row = slice(batch.indptr[r], batch.indptr[r + 1])
        features: dict[int, float] = {}
        for slot, value in zip(batch.slots[row].tolist(), values[row].tolist(), strict=True):
            features[slot] = features.get(slot, 0.0) + value  # a slot may occur twice in a row
        yield features, bool(label)


def _river(optimizer: str) -> Callable[[DataSet, float, Path], Run]:
    def run(data: DataSet, rate: float, folder: Path) -> Run:
        from river import linear_model, optim

        chosen = optim.FTRLProximal(alpha=rate) if optimizer == "ftrl" else optim.SGD(rate)
        model = linear_model.LogisticRegression(optimizer=chosen)
        rows = list(_dictionaries(data))
        found = []
        start = time.perf_counter()
        for features, label in rows:
            found.append(model.predict_proba_one(features).get(True, 0.5))
            model.learn_one(features, label)
        seconds = time.perf_counter() - start
        return Run(_log_odds(np.array(found)), seconds, _river_bits(chosen.clone(), rows[:1000]))

    return run


def _river_bits(optimizer: Any, rows: list[tuple[dict[int, float], bool]]) -> float:
    """What Python allocates a feature while river learns, without the features' names."""
    from river import linear_model

    model = linear_model.LogisticRegression(optimizer=optimizer)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for features, label in rows:
        model.learn_one(features, label)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return 8 * grown / max(len(model.weights), 1)


def _log_odds(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore"):
        return np.clip(np.log(probabilities) - np.log1p(-probabilities), -EDGE, EDGE)


def batch_learner(train: DataSet, test: DataSet, strength: float) -> Run:
    """LIBLINEAR's logistic regression, all rows in memory; margins of the rows held out."""
    matrix, held_out = train.matrix(), test.matrix()
    model = LogisticRegression(solver="liblinear", C=strength)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where it stops early it says so, and scores as it stands
        model.fit(matrix, train.batch.labels.astype(int))
    return Run(model.decision_function(held_out), time.perf_counter() - start, 64.0)


ALPHAS = (0.04, 0.08, 0.16, 0.3, 0.6)

SYSTEMS = [System(name, ALPHAS, _ours(options)) for name, options in OURS.items()]
if vowpal.AVAILABLE:
    SYSTEMS += [
        _vw("VW default", (0.06, 0.17, 0.5, 1.5), ""),
        _vw("VW --sgd", (0.2, 0.7, 2.5, 9.0), "--sgd"),
        _vw("VW --ftrl", (0.02, 0.06, 0.2, 0.6), "--ftrl", "--ftrl_alpha"),
    ]
SYSTEMS.append(System("scikit-learn SGD", (0.2, 0.7, 2.5, 9.0), _scikit_learn, "predicts in blocks"))

SLOW_SYSTEMS = [
    System("river SGD", (0.02, 0.1, 0.5), _river("sgd")),
    System("river FTRL", (0.02, 0.1, 0.5), _river("ftrl")),
]
"""Run over the first rows only."""
