"""What the rows of a class count: scikit-learn's `class_weight`, multiplied into the weights of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.class_weight import compute_class_weight

from lessram.errors import SpecError

BALANCED = "balanced"

_ADVICE = (
    "class_weight 'balanced' is not supported for partial_fit, which sees only some labels: compute the weights "
    "first, from all labels or a large sample of them, by sklearn.utils.class_weight.compute_class_weight('balanced', "
    "classes=classes, y=y), and pass dict(zip(classes, weights)) as class_weight"
)


def with_class_weights(
    class_weight: Any, weights: NDArray[np.float32] | None, codes: NDArray[np.intp], classes: NDArray[Any]
) -> NDArray[np.float32] | None:
    """The weights of rows, each times that of its class; `codes` are the places of the rows' labels among `classes`.

    >>> codes, classes = np.array([0, 0, 0, 1]), np.array(["no", "yes"])
    >>> with_class_weights("balanced", None, codes, classes)    # rows / (classes * rows of the class)
    array([0.6666667, 0.6666667, 0.6666667, 2.       ], dtype=float32)
    >>> with_class_weights({"yes": 5}, np.float32([1, 1, 1, 2]), codes, classes)
    array([ 1.,  1.,  1., 10.], dtype=float32)
    """
    if class_weight is None:
        return weights
    if isinstance(class_weight, str) and class_weight == BALANCED:
        by_class = _balanced(weights, codes, len(classes))
    else:
        by_class = _said(class_weight, classes)
    by_row = by_class.astype(np.float32)[codes]
    return by_row if weights is None else by_row * weights


def refuse_balanced(class_weight: Any) -> None:
    """A part of the rows does not tell how frequent classes are."""
    if isinstance(class_weight, str) and class_weight == BALANCED:
        raise SpecError(_ADVICE)


def _balanced(weights: NDArray[np.float32] | None, codes: NDArray[np.intp], classes: int) -> NDArray[np.float64]:
    """As much weight for each class as for any other; a class whose rows weigh nothing keeps nothing."""
    counts = np.bincount(codes, weights, minlength=classes).astype(np.float64)
    return np.divide(counts.sum(), classes * counts, out=np.zeros(classes), where=counts > 0)


def _said(class_weight: Any, classes: NDArray[Any]) -> NDArray[np.float64]:
    """The weights that a dict gives; 1 for classes that it does not name."""
    if not isinstance(class_weight, Mapping):
        raise SpecError(f"class_weight must be None, 'balanced' or a dict from class to weight, got {class_weight!r}")
    try:
        found = np.asarray(compute_class_weight(dict(class_weight), classes=classes, y=classes), np.float64)
    except (TypeError, ValueError) as error:
        raise SpecError(f"class_weight must be a dict from class to weight, got {class_weight!r}: {error}") from None
    if not (np.isfinite(found) & (found >= 0)).all():
        raise SpecError(f"class_weight must be of finite weights, none negative, got {class_weight!r}")
    return found
