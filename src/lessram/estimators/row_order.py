"""The order of rows: who learns row by row forgets the classes that it has not met for long."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEAST_CHANGES = 0.02
"""Of the changes of label that random order has. With fewer losses rise: measured, from 0.011 downwards."""


def warn_of_sorted_labels(codes: NDArray[np.intp], classes: NDArray[Any]) -> None:
    """Tell where rows come sorted by label, or in long runs of one; `codes` are the labels' places among `classes`.

    >>> with warnings.catch_warnings(record=True) as told:
    ...     warnings.simplefilter("always")
    ...     warn_of_sorted_labels(np.arange(1000) // 500, np.array(["no", "yes"]))
    >>> print(told[0].message)
    the labels of neighbouring rows differ 1 time, about 500 times in random order: what is learned row by row forgets \
the classes that it has not met for long. Shuffle sorted rows: X, y = sklearn.utils.shuffle(X, y, random_state=0)
    """
    shares = np.bincount(codes, minlength=len(classes)) / len(codes)
    expected = (len(codes) - 1) * (1 - float(shares @ shares))
    found = int(np.count_nonzero(codes[1:] != codes[:-1]))
    if found < LEAST_CHANGES * expected:
        warnings.warn(
            f"the labels of neighbouring rows differ {found:,} time{'' if found == 1 else 's'}, about {expected:,.0f} "
            "times in random order: what is learned row by row forgets the classes that it has not met for long. "
            "Shuffle sorted rows: X, y = sklearn.utils.shuffle(X, y, random_state=0)",
            stacklevel=3,  # the line that called `fit`
        )
