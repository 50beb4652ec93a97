"""Feature updates a second against what memory allows, against 64-bit controls and against scikit-learn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from loops import DISTANCES, gather, gather_and_mark, two_arrays
from numpy.typing import NDArray
from timing import Contender, race
from workload import draw_batch, with_values

from lessram import Batch, Learner, Model, Spec
from lessram.tables.layout import cell_type, table_of
from lessram.tables.memory import zeros

LIMIT, READ_16, READ_24 = "limit: gather, write a byte", "read limit, 16-bit cells", "read limit, 24-bit cells"
OURS, VALUES = "q2.13 + morris8 (24 bits)", "q2.13 + morris8, real values"
CONTROL, TWO_ARRAYS = "float32 + exact32, one cell (64)", "float32 + uint32, two arrays (64)"
PREDICT_16, PREDICT_24 = "predict q2.13 (16)", "predict q2.13 + morris8 (24)"
DEFAULT = "q3.12 + squares8, invariant step (24)"
OUR_FIT, PEER_FIT = "LogisticRegression.partial_fit", "sklearn SGDClassifier.partial_fit"
DEFAULT_FIT = "LogisticRegression().partial_fit"

OTHERS = {
    CONTROL: ("float32", "exact32"),
    "float32 + morris8 (40)": ("float32", "morris8"),
    "float32, global rate (32)": ("float32", "global"),
    "q2.13, global rate (16)": ("q2.13", "global"),
    DEFAULT: ("q3.12", "squares8"),
    "e3m6 + squares6, invariant step (16)": ("e3m6", "squares6"),
}


class Target(NamedTuple):
    """A ratio of speeds that should be reached."""

    name: str
    fast: str
    slow: str
    bits: int
    shape: str | None
    """The slots that the target is stated for; None for both."""
    at_least: float


TARGETS = [
    Target("24 bits / limit of memory", OURS, LIMIT, 22, "zipf", 0.28),
    Target("24 bits / limit of memory", OURS, LIMIT, 27, "zipf", 0.6),
    Target("24 bits / 64 bits in one cell", OURS, CONTROL, 22, "zipf", 0.9),
    Target("24 bits / 64 bits in one cell", OURS, CONTROL, 27, "zipf", 1.15),
    Target("24 bits / 64 bits in two arrays", OURS, TWO_ARRAYS, 22, None, 4.0),
    Target("24 bits / 64 bits in two arrays", OURS, TWO_ARRAYS, 27, None, 4.0),
    Target("partial_fit, ours / scikit-learn's", OUR_FIT, PEER_FIT, 22, None, 3.5),
    Target("partial_fit, our default / scikit-learn's", DEFAULT_FIT, PEER_FIT, 22, None, 2.8),
    Target("default / 24 bits", DEFAULT, OURS, 22, None, 0.6),
    Target("default / 24 bits", DEFAULT, OURS, 27, None, 0.6),
    Target("prediction / read limit, 16 bits", PREDICT_16, READ_16, 22, None, 0.8),
    Target("prediction / read limit, 16 bits", PREDICT_16, READ_16, 27, None, 0.8),
    Target("prediction / read limit, 24 bits", PREDICT_24, READ_24, 22, None, 0.8),
    Target("prediction / read limit, 24 bits", PREDICT_24, READ_24, 27, None, 0.8),
]


class Bench:
    """One region of memory that every table takes in turn: it is cleared before each run."""

    def __init__(self, bits: int, batch: Batch) -> None:
        self.slots = 1 << bits
        self.batch = batch
        self.region = zeros(8 * self.slots, np.dtype(np.uint8))

    def clear(self, size: int) -> None:
        self.region[: size * self.slots] = 0

    def table(self, weights: str, rates: str) -> NDArray[Any]:
        cell = cell_type(weights, rates)
        return self.region[: cell.itemsize * self.slots].view(cell)

    def learner(self, weights: str, rates: str) -> Learner:
        spec = Spec(slots=self.slots, weights=weights, rates=rates, alpha=0.1)
        return Learner(Model(spec, table_of(rates, self.table(weights, rates))))

    def training(self, name: str, weights: str, rates: str, batch: Batch | None = None) -> Contender:
        learner = self.learner(weights, rates)
        rows = batch or self.batch
        size = learner.model.table.cells.itemsize
        return Contender(name, lambda: learner.learn(rows, trusted=True), lambda: self.clear(size))

    def prediction(self, name: str, weights: str, rates: str) -> Contender:
        learner = self.learner(weights, rates)
        size = learner.model.table.cells.itemsize
        return Contender(name, lambda: learner.predict(self.batch, trusted=True), lambda: self.clear(size))

    def limits(self, name: str, loop: Any, weights: str, rates: str) -> list[Contender]:
        cells = self.table(weights, rates)

        def at(distance: int) -> Contender:
            slots = np.concatenate([self.batch.slots, self.batch.slots[:distance]])
            run = lambda: loop(cells, slots, distance)  # noqa: E731
            return Contender(f"{name} @{distance}", run, lambda: self.clear(cells.itemsize))

        return [at(distance) for distance in DISTANCES]

    def two_arrays(self) -> Contender:
        weights = self.region[: 4 * self.slots].view(np.float32)
        counts = self.region[4 * self.slots :].view(np.uint32)
        rows, alpha = self.batch, np.float32(0.1)
        run = lambda: two_arrays(rows.indptr, rows.slots, rows.labels, weights, counts, alpha)  # noqa: E731
        return Contender(TWO_ARRAYS, run, lambda: self.clear(8))


def field(bench: Bench) -> list[Contender]:
    """Everybody who runs on one stream."""
    return [
        *bench.limits(LIMIT, gather_and_mark, "q2.13", "morris8"),
        bench.training(OURS, "q2.13", "morris8"),
        bench.training(VALUES, "q2.13", "morris8", with_values(bench.batch)),
        *(bench.training(name, *choice) for name, choice in OTHERS.items()),
        bench.two_arrays(),
        *bench.limits(READ_16, gather, "q2.13", "global"),
        bench.prediction(PREDICT_16, "q2.13", "global"),
        *bench.limits(READ_24, gather, "q2.13", "morris8"),
        bench.prediction(PREDICT_24, "q2.13", "morris8"),
    ]


def peers(bits: int, batch: Batch) -> list[Contender]:
    """Both estimators over the same float32 CSR matrix, scikit-learn's with its cheapest settings."""
    from scipy.sparse import csr_array
    from sklearn.linear_model import SGDClassifier

    values = np.ones(len(batch.slots), np.float32)
    matrix = csr_array(
        (values, batch.slots.astype(np.int32), batch.indptr.astype(np.int32)), shape=(batch.rows, 1 << bits)
    )
    peer = SGDClassifier(loss="log_loss", penalty=None, learning_rate="constant", eta0=0.05)
    peer.partial_fit(matrix[:2], batch.labels[:2], classes=[0, 1])
    contenders = [Contender(PEER_FIT, lambda: peer.partial_fit(matrix, batch.labels))]
    try:
        from lessram import LogisticRegression
    except ImportError:
        return contenders
    ours = {
        OUR_FIT: LogisticRegression(weights="q2.13", rates="morris8", n_slots=1 << bits, alpha=0.1, random_state=0),
        DEFAULT_FIT: LogisticRegression(),
    }
    for name, estimator in ours.items():
        estimator.partial_fit(matrix[:2], batch.labels[:2], classes=[0, 1])
        contenders.append(Contender(name, lambda e=estimator: e.partial_fit(matrix, batch.labels)))
    return contenders


def best_limits(times: dict[str, float]) -> dict[str, float]:
    """Of each limit, its best prefetch distance only."""
    best: dict[str, float] = {}
    for name, seconds in times.items():
        plain = name.partition(" @")[0]
        best[plain] = min(seconds, best.get(plain, float("inf")))
    return best


def measure(bits: int, shape: str, rows: int, row_length: int, rounds: int, clock: str) -> dict[str, float]:
    """Million features a second of everybody, on one stream."""
    batch = draw_batch(shape, bits, rows, row_length)
    times = race(field(Bench(bits, batch)), rounds, clock)
    if bits == 22:
        times |= race(peers(bits, batch), rounds, clock)
    return {name: batch.features / seconds / 1e6 for name, seconds in best_limits(times).items()}


def judged(bits: int, shape: str, speeds: dict[str, float]) -> Iterator[tuple[Target, float]]:
    """The targets that this stream has something to say about, each with the ratio reached."""
    for target in TARGETS:
        if target.bits == bits and target.shape in (None, shape) and {target.fast, target.slow} <= speeds.keys():
            yield target, speeds[target.fast] / speeds[target.slow]
