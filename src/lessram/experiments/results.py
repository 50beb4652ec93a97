"""What an experiment is asked and what it answers: points for a CSV, a table, claims with their evidence, pictures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

Draw = Callable[[Any], None]
"""Draws into a matplotlib figure."""


class Setting(NamedTuple):
    """How much work an experiment may do, and to whom it tells how it goes."""

    quick: bool = False
    seeds: int = 10
    data: Sequence[str] = ()
    """Files or folders given by the user, instead of those that are found."""
    tell: Callable[[str], None] = lambda message: None


class Claim(NamedTuple):
    """A statement of the paper, and whether the measurement bears it out."""

    statement: str
    holds: bool | None
    """None where the difference drowns in noise: more data would have to decide."""
    evidence: str
    """The figures that decide, as measured."""

    @property
    def verdict(self) -> str:
        """
        >>> Claim("pigs fly", False, "none of 12").verdict
        'FAILED'
        """
        return "undecided" if self.holds is None else "holds" if self.holds else "FAILED"


class Table(NamedTuple):
    heading: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""


@dataclass(frozen=True)
class Findings:
    """The answer of one experiment."""

    name: str
    title: str
    paper: str
    """What the paper shows at this place."""
    method: str
    """What was done here: data, tuning, repetitions."""
    points: list[dict[str, Any]]
    """Everything measured, a row a point."""
    claims: list[Claim]
    pictures: dict[str, Draw]
    tables: list[Table] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    """Where this differs from the paper, and why."""


class Mean(NamedTuple):
    """A mean over repetitions and its standard error, which is NaN for a single one."""

    value: float
    error: float

    @property
    def is_positive(self) -> bool | None:
        """Whether it is above 0; None while that is within two standard errors.

        >>> Mean(0.3, 0.1).is_positive, Mean(0.3, 0.2).is_positive, Mean(-1.0, 0.0).is_positive
        (True, None, False)
        """
        return None if abs(self.value) <= 2.0 * self.error else self.value > 0.0

    def __neg__(self) -> Mean:
        return Mean(-self.value, self.error)

    @classmethod
    def of(cls, values: Sequence[float]) -> Mean:
        """
        >>> Mean.of([1.0, 3.0])
        Mean(value=2.0, error=1.0)
        """
        error = float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan
        return cls(float(np.mean(values)), error)
