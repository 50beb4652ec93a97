"""The systems of the accuracy benchmark: ours in several numbers of bits, Vowpal Wabbit's, scikit-learn's."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import vowpal
from numpy.typing import NDArray
from package_sets import NUMERIC_SETS
from peer_sets import DataSet
from peer_systems import SYSTEMS as PEERS
from peer_systems import Run
from sklearn.linear_model import SGDClassifier

from lessram import Learner, Spec, SpecError
from lessram.learning import auto_choice
from lessram.model.spec import PAPER, halfword_choices

ALPHAS = (0.02, 0.08, 0.32, 1.28)
OURS: dict[str, dict[str, Any]] = {
    "paper, 64 bits": {**PAPER, "weights": "float32", "rates": "exact32"},
    "paper, 24 bits": PAPER,
    "squares, 64 bits": {"weights": "float32", "rates": "squares32"},
    "lessram, 24 bits": {},
    "lessram, 16 bits": {"rates": "squares6"},
    "lessram, ftrl, l1 1": {"algorithm": "ftrl", "l1": 1.0},
}
FIXED = "lessram, 24 bits, alpha 0.3"


class Contender(NamedTuple):
    name: str
    rates: tuple[float, ...]
    """Learning rates to begin with."""
    run: Callable[[DataSet, float, Path], Run]
    """At a learning rate."""
    default: Callable[[DataSet, Path], Run]


def fields_of(name: str) -> dict[str, Any]:
    """The choices behind a system of ours."""
    return OURS[name]


def learned(data: DataSet, fields: dict[str, Any], rate: float, seed: int = 0) -> Run:
    """One pass over rows in memory at a learning rate."""
    return by_default(data, {**fields, "alpha": rate, "seed": seed})


def by_default(data: DataSet, fields: dict[str, Any], predict: DataSet | None = None) -> Run:
    """As `lessram train` does: what is not said is chosen on the first examples. Margins of `predict`, if any."""
    spec, ahead = chosen(data, fields)
    learner = Learner(spec)
    start = time.perf_counter()
    margins = learner.learn(data.batch, trusted=True)
    seconds = time.perf_counter() - start
    margins[: len(ahead)] = ahead
    if predict is not None:
        margins = learner.predict(predict.batch, trusted=True)
    return Run(margins, seconds, learner.model.bits_per_slot)


def chosen(data: DataSet, fields: dict[str, Any], *, frozen: bool = False) -> tuple[Spec, NDArray[np.float64]]:
    """All choices, and the margins that the first examples are scored by."""
    spec = Spec(**{"slots": data.slots, **halfword_choices(fields), **fields})
    open_alpha, open_range = "alpha" not in fields, "weights" not in fields
    if not (open_alpha or open_range):
        return spec, np.empty(0)
    first = auto_choice.first_examples([data.batch])
    assert first is not None
    return auto_choice.choose(spec, first, alpha=open_alpha, range=open_range, frozen=frozen)


def _exists(fields: dict[str, Any]) -> bool:
    """Whether this version knows such models."""
    try:
        Spec(**{"slots": 8, **halfword_choices(fields), **fields})
    except (SpecError, TypeError):
        return False
    return True


def _ours(name: str, fields: dict[str, Any]) -> Contender:
    return Contender(
        name,
        ALPHAS,
        lambda data, rate, folder: learned(data, fields, rate),
        lambda data, folder: by_default(data, fields),
    )


def _scikit_learn_default(data: DataSet, folder: Path) -> Run:
    """SGDClassifier as it comes, but for the loss; rows are predicted some at a time, then learned."""
    matrix, labels = data.matrix(), data.batch.labels.astype(int)
    model = SGDClassifier(loss="log_loss", random_state=0)
    block = max(64, matrix.shape[0] // 1000)
    margins = np.zeros(matrix.shape[0])
    for first in range(0, matrix.shape[0], block):
        rows = slice(first, first + block)
        if first:
            margins[rows] = model.decision_function(matrix[rows])
        model.partial_fit(matrix[rows], labels[rows], classes=[0, 1])
    return Run(margins, 0.0, 8 * model.coef_.dtype.itemsize)


def _peer(name: str, rates: tuple[float, ...], default: float | None) -> Contender:
    system = next(system for system in PEERS if system.name == name)
    if default is None:
        return Contender(name, rates, system.run, _scikit_learn_default)
    return Contender(name, rates, system.run, lambda data, folder: system.run(data, default, folder))


def _contenders() -> list[Contender]:
    found = [_ours(name, fields) for name, fields in OURS.items() if _exists(fields)]
    place = next(k for k, system in enumerate(found) if system.name == "lessram, 24 bits") + 1
    found.insert(place, _ours(FIXED, {"alpha": Spec(slots=1).alpha}))
    if vowpal.AVAILABLE:
        found.append(_peer("VW default", (0.03, 0.12, 0.5, 2.0), 0.5))
        found.append(_peer("VW --ftrl", (0.005, 0.02, 0.08, 0.32), 0.005))
        found.append(_peer("VW --sgd", (0.03, 0.12, 0.5, 2.0), 0.5))
    found.append(_peer("scikit-learn SGD", (0.2, 0.8, 3.2), None))
    return found


SYSTEMS = _contenders()


def raw_columns(name: str, folder: Path) -> DataSet | None:
    """A table with its numeric columns as they stand; None for data without any."""
    return NUMERIC_SETS[name](folder, None) if name in NUMERIC_SETS else None
