"""Progressive log-loss on real data, each method at its best learning rate (the paper's Figure 2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import fmean, stdev
from typing import Any, NamedTuple

import real_data

from lessram import Batch, Learner, Spec, read_batches
from lessram.learning.metrics import Scores
from lessram.numerics.fixed_point import FixedPoint
from lessram.numerics.loss import Loss
from lessram.tables.layout import cell_type

SETS = {"criteo": "criteo_60k.svm.bz2", "rcv1": "rcv1_15k.svm.bz2"}
BITS = {"criteo": 20, "rcv1": 16}

COARSE = tuple(2.0 ** (k / 2) for k in range(-10, 4))
FINE = tuple(2.0 ** (k / 16) for k in range(-7, 8))
"""Learning rates: first 0.03 to 2.8, then finer around the best. On text the loss is so sharp in alpha that steps of
2^(1/4) alone would cost more than the randomness that is to be measured."""
CONTROL = "float32 + exact32"
MAIN = ("q2.13 + morris8", "q2.13 + morris8, base 1.02")
WITHIN = 0.001
"""What the randomized 24 bits may lose against the 64-bit control. A base of 1.1 counts to 4e11, one of 1.02 to 7,900,
with less than half the noise."""


class Method(NamedTuple):
    name: str
    options: dict[str, Any]

    @property
    def stored_bits(self) -> int:
        """Bits of one cell in memory."""
        return 8 * cell_type(self.options["weights"], self.options["rates"]).itemsize

    @property
    def format_bits(self) -> int:
        """Bits that the formats ask for: less where a grid leaves bits of its machine integer unused."""
        if self.options["weights"] == "float32":
            return self.stored_bits
        grid = FixedPoint.parse(self.options["weights"])
        return self.stored_bits - 8 * grid.dtype.itemsize + grid.width

    @property
    def randomized(self) -> bool:
        return self.options["weights"] != "float32" or self.options["rates"] in ("morris8", "ladder8", "squares8")


def _method(weights: str, rates: str, name: str = "", **options: Any) -> Method:
    return Method(name or f"{weights} + {rates}", {"weights": weights, "rates": rates, **options})


METHODS = [
    _method("float32", "global"),
    _method("q2.13", "global"),
    _method("float32", "exact32"),
    _method("float32", "exact32", "float32 + exact32, alpha/sqrt(tau)", offset=0),
    _method("float32", "morris8"),
    _method("q2.13", "morris8"),
    _method("q2.13", "morris8", "q2.13 + morris8, base 1.02", base=1.02),
    _method("q2.13", "ladder8"),
    _method("q3.12", "morris8"),
    _method("q2.9", "morris8"),
    _method("q2.7", "morris8"),
    _method("q2.5", "morris8"),
    _method("float32", "squares32", "float32 + squares32, invariant step"),
    _method("q2.13", "squares8", "q2.13 + squares8, invariant step"),
]


def read(name: str) -> list[Batch] | None:
    """A data set in memory, parsed once; None where it is absent."""
    path = real_data.FOLDER / SETS[name]
    if not path.exists():
        return None
    reader = read_batches([str(path)], slots=1 << BITS[name], hash="none")
    return [Batch._make(None if part is None else part.copy() for part in batch) for batch, _ in reader]


def progressive_loss(batches: list[Batch], slots: int, method: Method, alpha: float, seed: int) -> float:
    learner = Learner(Spec(slots=slots, alpha=alpha, seed=seed, **method.options))
    scores = Scores.new()
    for batch in batches:
        scores.add(learner.learn(batch, trusted=True), batch, Loss.logistic)
    assert scores.log_loss is not None
    return scores.log_loss


def losses_at_best(batches: list[Batch], slots: int, method: Method, seeds: int) -> tuple[float, list[float]]:
    """The learning rate with the least mean loss, and the losses there, one a seed."""
    runs = seeds if method.randomized else 1
    found: dict[float, list[float]] = {}

    def best(alphas: Iterable[float]) -> float:
        for alpha in alphas:
            if alpha not in found:
                found[alpha] = [progressive_loss(batches, slots, method, alpha, seed) for seed in range(runs)]
        return min(found, key=lambda alpha: fmean(found[alpha]))

    around = best(COARSE)
    chosen = best(around * factor for factor in FINE)
    return chosen, found[chosen]


def measure(name: str, batches: list[Batch], seeds: int) -> Iterator[dict[str, Any]]:
    """The methods one after another, each compared with the 64-bit control."""
    slots = 1 << BITS[name]
    control = fmean(losses_at_best(batches, slots, next(m for m in METHODS if m.name == CONTROL), seeds)[1])
    for method in METHODS:
        alpha, losses = losses_at_best(batches, slots, method, seeds)
        error = stdev(losses) / len(losses) ** 0.5 / control if len(losses) > 1 else None
        yield {
            "set": name,
            "method": method.name,
            "format_bits": method.format_bits,
            "stored_bits": method.stored_bits,
            "alpha": alpha,
            "alpha_at_edge": not COARSE[0] < alpha < COARSE[-1],
            "log_loss": fmean(losses),
            "relative_to_control": fmean(losses) / control - 1.0,
            "standard_error": error,
            "seeds": len(losses),
        }
