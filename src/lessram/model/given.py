"""What users give as a model: a `Model`, a learner that has one, the path of a file; and what else they are told."""

from __future__ import annotations

import os
from typing import Any, Protocol

from lessram.errors import SpecError
from lessram.model.model import Model


class HasModel(Protocol):
    """A learner."""

    model: Model


Trained = Model | HasModel | str | os.PathLike[str]

TRAINED = "a Model, a Learner or the path of a trained model"


def trained_model(given: Trained, name: str) -> Model:
    """The trained model behind what was given as `name`."""
    if isinstance(given, (str, os.PathLike)):
        return Model.load(given)
    found = getattr(given, "model", given)
    if not isinstance(found, Model):
        raise refused(name, given, TRAINED)
    return found


def refused(name: str, given: Any, expected: str) -> SpecError:
    """What to say of something of another kind.

    >>> refused("replica 1", 7, TRAINED)
    SpecError('replica 1 must be a Model, a Learner or the path of a trained model, got int')
    """
    way = ""
    if isinstance(given, (str, os.PathLike)):
        way = ": lessram.load opens a trained model, lessram.Predictor.open a compressed one"
    elif hasattr(given, "models_"):
        way = ": an estimator predicts by itself (predict_proba), and its trained models are in models_"
    elif hasattr(given, "partial_fit"):
        way = ": fit it first; its trained models are in models_ then"
    return SpecError(f"{name} must be {expected}, got {type(given).__name__}{way}")
