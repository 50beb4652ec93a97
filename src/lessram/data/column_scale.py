"""Numeric columns brought to one size: each has a centre and a unit, found in the first rows and then fixed.

A distance in miles beside a clock time needs another learning rate for every column, or columns of one size. So the
value of a numeric cell is (number - centre) / unit, with the mean of the column's first numbers as the centre
and their standard deviation as the unit. An empty cell, which gives no feature, then stands for the mean.

Units are rounded to powers of two and centres to sixteenths of a unit: the division is exact, the numbers in a model
are short, and they are the same wherever a table comes from and on every processor. They are part of the
schema, so that prediction, further passes and any number of threads use the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from lessram.data.schema import ColumnScale, Schema

ROWS = 1000
"""The first rows, in which centres and units are found."""

_SIXTEENTHS = 16
_CONSTANT = 1e-6
"""A column whose numbers differ by less, relative to their size, is taken as constant: its mean says nothing."""
_LARGEST = 2.0**100


def column_scale(name: str, numbers: Sequence[float]) -> ColumnScale | None:
    """The centre and unit of a column from some of its numbers; None where they say nothing.

    >>> column_scale("miles", [200.0, 1000.0, 2400.0])
    ColumnScale(column='miles', centre=1216.0, unit=1024.0)
    >>> column_scale("year", [2013.0, 2013.0])      # nothing to be seen but the size
    ColumnScale(column='year', centre=0.0, unit=2048.0)
    """
    finite = np.array(numbers, np.float64)
    finite = finite[np.abs(finite) < _LARGEST]
    if not len(finite):
        return None
    mean = _mean(finite)
    deviation = math.sqrt(_mean((finite - mean) ** 2))
    size = math.sqrt(_mean(finite**2))
    if size == 0:
        return None
    if deviation <= _CONSTANT * size:
        return ColumnScale(column=name, centre=0.0, unit=_power_of_two(size))
    unit = _power_of_two(deviation)
    return ColumnScale(column=name, centre=round(_SIXTEENTHS * mean / unit) * unit / _SIXTEENTHS, unit=unit)


def _mean(numbers: NDArray[np.float64]) -> float:
    """Of an exact sum, which is the same in any order."""
    return math.fsum(numbers.tolist()) / len(numbers)


def _power_of_two(size: float) -> float:
    """The nearest one, of sizes from 1.42 to 2.82 for instance 2."""
    mantissa, exponent = math.frexp(size)
    return math.ldexp(1.0, exponent - (mantissa < math.sqrt(0.5)))


def with_scales(schema: Schema, numbers: Mapping[str, Sequence[float]]) -> Schema:
    """The schema with scales for its numeric columns, from the first numbers of each."""
    found = [column_scale(name, numbers.get(name, ())) for name in schema.numeric]
    return msgspec.structs.replace(schema, scales=tuple(scale for scale in found if scale is not None) or msgspec.UNSET)
