"""Labels of any kind beside a matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lessram.errors import DataError


def codes_of(y: Any, classes: NDArray[Any]) -> NDArray[np.intp]:
    """The place of each label among the classes."""
    if len(classes) == 2:  # ten times as fast as a search
        codes = (y == classes[1]).astype(np.intp)
    else:
        codes = np.searchsorted(classes, y).clip(max=len(classes) - 1)
    unknown = classes[codes] != y
    if unknown.any():
        row = int(np.argmax(unknown))
        raise DataError(f"row {row}: found label {y[row : row + 1].tolist()[0]!r}, expected one of {classes}")
    return codes
