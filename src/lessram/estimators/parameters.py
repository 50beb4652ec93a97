"""What the parameters of an estimator mean: its models' specs, what `fit` is to find out, how often it reads the rows.

Parameters are looked at when learning begins, not before, as scikit-learn's contract asks.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import msgspec
import numpy as np
from sklearn.utils import check_random_state

from lessram.errors import SpecError
from lessram.model.spec import PAPER, Spec, halfword_choices
from lessram.plain import flag

AUTO = "auto"
FROZEN = "frozen"
ENOUGH_ROWS = 20_000
MOST_PASSES = 100
"""By default `fit` goes over small data again and again, until it has learned from `ENOUGH_ROWS` rows."""

_SEEDS = 1 << 64


def specs_of(estimator: Any, models: int) -> list[Spec]:
    """A spec for each of so many models; they differ in their seeds."""
    spec = Spec(**_choices(estimator))
    others = (msgspec.structs.replace(spec, seed=(spec.seed + k) % _SEEDS) for k in range(1, models))
    return [spec, *others]


def automatic(estimator: Any) -> dict[str, bool]:
    """What `fit` chooses on the first rows: alpha, the range of weights."""
    unsaid = estimator.preset is None
    return {
        "alpha": (unsaid and estimator.alpha == AUTO) or estimator.alpha == FROZEN,
        "range": unsaid and estimator.weights == AUTO and estimator.radius is None,
        "frozen": estimator.alpha == FROZEN,
    }


def passes_of(estimator: Any, rows: int) -> int:
    """How often `fit` goes over so many rows."""
    if estimator.passes is None:
        return min(MOST_PASSES, -(-ENOUGH_ROWS // rows))
    return _integer("passes", estimator.passes, at_least=1)


def slots_of(estimator: Any) -> int:
    """How many coefficients a table has."""
    if estimator.n_slots is None:
        return int(estimator.n_features_in_)
    return _integer("n_slots", estimator.n_slots, at_least=1)


def _choices(estimator: Any) -> dict[str, Any]:
    """The fields of a spec: what was said, then what that or the preset implies."""
    if estimator.preset not in (None, "paper"):
        raise SpecError(f"preset must be None or paper, got {estimator.preset!r}")
    if not isinstance(estimator.weights, str):
        raise SpecError(f"weights must be auto, float32 or a format such as q3.12, got {estimator.weights!r}")
    left_out = {"weights": AUTO, "alpha": AUTO, "codebook": None, "rates": None, "step": None}
    said = {name: getattr(estimator, name) for name in left_out if getattr(estimator, name) != left_out[name]}
    if estimator.alpha == FROZEN:
        del said["alpha"]
    if "alpha" in said:
        said["alpha"] = _number("alpha", said["alpha"], "a number, auto or frozen")
    if "step" in said:
        said["step_rule"] = said.pop("step")
    return {
        **(PAPER if estimator.preset else {}),
        **halfword_choices(said),
        **said,
        "slots": slots_of(estimator),
        "beta": _number("beta", estimator.beta),
        "algorithm": estimator.algorithm,
        "l1": _number("l1", estimator.l1),
        "l2": _number("l2", estimator.l2),
        "base": _number("base", estimator.base),
        "radius": None if estimator.radius is None else _number("radius", estimator.radius),
        "intercept": flag("fit_intercept", estimator.fit_intercept),
        "scale": estimator.scale,
        "seed": _seed(estimator.random_state),
    }


def _seed(random_state: Any) -> int:
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def _number(name: str, value: Any, expected: str = "a number") -> float:
    if not isinstance(value, Real) or isinstance(value, bool):
        raise SpecError(f"{name} must be {expected}, got {value!r}")
    return float(value)


def _integer(name: str, value: Any, at_least: int) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < at_least:
        raise SpecError(f"{name} must be None or a whole number, at least {at_least}, got {value!r}")
    return int(value)
