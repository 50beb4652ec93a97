"""The exception tree. Everything that lessram raises on purpose derives from `LessramError`.

    LessramError
    ├── SpecError            a choice is invalid, or two choices contradict each other
    ├── DataError            an input cannot be learned from; knows its place (file and line)
    │   └── TooManyErrors    more bad lines than the user allows
    └── FileFormatError      a model file is damaged, truncated, foreign or too new

`SpecError` and `DataError` are also `ValueError`s, because that is what scikit-learn users catch.
"""

from __future__ import annotations


class LessramError(Exception):
    """Base of all errors that lessram raises on purpose."""


class SpecError(LessramError, ValueError):
    """A choice is invalid, or two choices contradict each other."""


class DataError(LessramError, ValueError):
    """An input cannot be learned from.

    >>> raise DataError("found label 7, expected 0, 1, -1 or +1", place="clicks.svm:12")
    Traceback (most recent call last):
    ...
    lessram.errors.DataError: clicks.svm:12: found label 7, expected 0, 1, -1 or +1
    """

    def __init__(self, message: str, *, place: str | None = None) -> None:
        super().__init__(message if place is None else f"{place}: {message}")
        self.place = place


class TooManyErrors(DataError):
    """More bad lines were met than `max_errors` allows."""


class FileFormatError(LessramError):
    """A model file is damaged, truncated, foreign or newer than this version reads."""
