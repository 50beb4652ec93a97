"""What users give for a choice, as plain Python: files know no other numbers, and no others compare equal everywhere.

NumPy's numbers and strings become Python's. What cannot mean the choice is refused here, not when a file is written.
"""

from __future__ import annotations

import operator
from numbers import Integral, Real
from typing import Any

import numpy as np

from lessram.errors import SpecError


def whole(name: str, given: Any) -> int:
    """A whole number.

    >>> whole("slots", np.int64(8))
    8
    >>> whole("slots", 8.0)
    Traceback (most recent call last):
    ...
    lessram.errors.SpecError: slots must be a whole number, got 8.0
    """
    try:
        if isinstance(given, bool):
            raise TypeError
        return operator.index(given)
    except TypeError:
        raise _refused(name, "a whole number", given) from None


def real(name: str, given: Any) -> float:
    """A number; whether infinity and NaN will do is for the caller to say."""
    try:
        if not isinstance(given, Real) or isinstance(given, bool):
            raise TypeError
        return float(given)
    except (TypeError, OverflowError):
        raise _refused(name, "a number", given) from None


def text(name: str, given: Any) -> str:
    """A string."""
    if not isinstance(given, str):
        raise _refused(name, "a string", given)
    return str(given)


def flag(name: str, given: Any) -> bool:
    """True or False; 1 and 0 are these."""
    if isinstance(given, np.bool) or (isinstance(given, Integral) and given in (0, 1)):
        return bool(given)
    raise _refused(name, "True or False", given)


def _refused(name: str, expected: str, given: Any) -> SpecError:
    return SpecError(f"{name} must be {expected}, got {given!r}")
