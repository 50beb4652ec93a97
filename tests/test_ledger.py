"""The ledger: what is counted of the weights, and the memory that counting takes."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from lessram.model import ledger
from lessram.model.ledger import account
from lessram.model.model import Model
from lessram.model.spec import Spec
from lessram.numerics.bounds import entropy

SLOTS = 1 << 20


SUMS = {"weights": "float32", "rates": "squares32"}
ALGORITHMS = {"gradient": SUMS, "ftrl": {**SUMS, "algorithm": "ftrl", "l1": 0.1, "l2": 0.01}}


def model_of(numbers: np.ndarray, options: dict[str, Any]) -> Model:
    model = Model.new(Spec(slots=len(numbers), alpha=0.1, **options))
    cells = model.table.cells
    cells["weight"] = numbers
    if "sum" in cells.dtype.names:
        cells["sum"] = np.arange(len(numbers)) % 3
    return model


def some_weights(different: int | None) -> np.ndarray:
    """As many different ones, or nearly all; one in eight is 0."""
    rng = np.random.default_rng(5)
    weights = rng.normal(size=SLOTS).astype(np.float32)
    if different is not None:
        weights = weights[rng.integers(different, size=SLOTS)]
    weights[rng.random(SLOTS) < 1 / 8] = 0
    return weights


@pytest.mark.parametrize("different", [2, 60_000, 70_000, 200_000, None])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_entropy_is_that_of_the_weights(monkeypatch: pytest.MonkeyPatch, algorithm: str, different: int | None) -> None:
    """Whether few are counted or many sorted, and wherever the walk is cut into pieces."""
    monkeypatch.setattr(ledger, "_PIECE", 99_991)
    model = model_of(some_weights(different), ALGORITHMS[algorithm])
    found, weights = account(model), model.weights()
    assert found.entropy_bits_per_slot == pytest.approx(entropy(np.unique(weights, return_counts=True)[1]), rel=1e-9)
    assert found.nonzero == np.count_nonzero(weights)
    assert found.largest == np.abs(weights).max()


def test_entropy_of_weights_that_are_all_different() -> None:
    model = model_of(np.arange(1, SLOTS + 1).astype(np.float32), {"weights": "float32", "rates": "exact32"})
    assert account(model).entropy_bits_per_slot == pytest.approx(20)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_account_takes_less_than_twice_the_memory_of_the_weights(
    monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    monkeypatch.setattr(ledger, "_PIECE", 1 << 15)
    model = model_of(some_weights(None), ALGORITHMS[algorithm])
    tracemalloc.start()
    try:
        account(model)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * 4 * SLOTS
