"""Labels of any kind beside a matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lessram.errors import DataError


def codes_of(y: Any, classes: NDArray[Any]) -> NDArray[np.intp]:
    """The place of each label among the classes."""
    if len(classes) == 2:  # two comparisons take less than a tenth of a search
        second = y == classes[1]
        codes, known = second.astype(np.intp), second | (y == classes[0])
    else:
        try:
            codes = np.searchsorted(classes, y).clip(max=len(classes) - 1)
            known = classes[codes] == y
        except TypeError:  # a label that has no place in the order of the classes, such as None among strings
            labels = classes.tolist()
            known = np.array([label in labels for label in y.tolist()])
    if not known.all():
        row = int(np.argmin(known))
        raise DataError(f"row {row}: found label {y[row : row + 1].tolist()[0]!r}, expected one of {classes}")
    return codes
