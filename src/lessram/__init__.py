"""lessram: linear models learned on streams of any length with as little RAM as possible.

The public names are imported on first use, so that `import lessram` costs nothing.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PLACES = {
    "Batch": "lessram.data.batch",
    "DataError": "lessram.errors",
    "FileFormatError": "lessram.errors",
    "Learner": "lessram.learning.learner",
    "LessramError": "lessram.errors",
    "LogisticRegression": "lessram.estimators",
    "Model": "lessram.model.model",
    "Predictor": "lessram.serving.predictor",
    "Spec": "lessram.model.spec",
    "SpecError": "lessram.errors",
    "merge": "lessram.model.merging",
    "predict": "lessram.prediction",
    "read_batches": "lessram.data.reader",
    "save": "lessram.prediction",
}

__all__ = [
    "Batch",
    "DataError",
    "FileFormatError",
    "Learner",
    "LessramError",
    "LogisticRegression",
    "Model",
    "Predictor",
    "Spec",
    "SpecError",
    "__version__",
    "load",
    "merge",
    "predict",
    "read_batches",
    "save",
]

if TYPE_CHECKING:
    from lessram.data.batch import Batch
    from lessram.data.reader import read_batches
    from lessram.errors import DataError, FileFormatError, LessramError, SpecError
    from lessram.estimators import LogisticRegression
    from lessram.learning.learner import Learner
    from lessram.model.merging import merge
    from lessram.model.model import Model
    from lessram.model.spec import Spec
    from lessram.prediction import predict, save
    from lessram.serving.predictor import Predictor


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'lessram' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


def load(path: str | os.PathLike[str]) -> Model:
    """Read a model from a file; its table stays mapped from the file."""
    from lessram.errors import SpecError
    from lessram.model.model import Model

    if not isinstance(path, (str, os.PathLike)):
        raise SpecError(f"path must be the path of a model file, got {type(path).__name__}")
    return Model.load(path)
