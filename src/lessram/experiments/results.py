"""What an experiment is asked and what it answers: points for a CSV, a table, claims with their evidence, pictures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

TOLERANCE = 0.005
"""The largest relative loss that counts as none: one that nobody could see in the paper's figures."""
SURE = 2.0
"""Standard errors that must lie between a measured value and a limit, on either side, to decide."""

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
    limit: str
    """What must be measured for it to hold."""
    holds: bool | None
    """None where the limit lies within the noise: more data would have to decide."""
    evidence: str
    """The figures that decide, as measured."""
    beyond: bool = False
    """No statement of the paper, but one about what is built here."""

    @property
    def verdict(self) -> str:
        """
        >>> Claim("pigs fly", "more than half", False, "none of 12").verdict
        'fails'
        """
        return "undecided" if self.holds is None else "holds" if self.holds else "fails"


def every(verdicts: Iterable[bool | None]) -> bool | None:
    """Whether all hold: no if one surely does not, undecided if one is.

    >>> every([True, True]), every([True, None]), every([None, False])
    (True, None, False)
    """
    found = set(verdicts)
    return False if False in found else None if None in found else True


def summary(claims: Sequence[Claim]) -> str:
    """How many checks hold, those of the paper's statements apart from those of what goes beyond it.

    >>> pigs = Claim("pigs fly", "more than half", False, "none of 12")
    >>> summary([pigs, pigs._replace(holds=True), pigs._replace(beyond=True)])
    "1 of 2 checks of the paper's statements holds, 1 fails; of 1 check beyond the paper 0 hold, 1 fails"
    """
    paper, beyond = ([claim for claim in claims if claim.beyond is own] for own in (False, True))
    parts = []
    if paper:
        parts.append(f"{_held(paper)} of {_checks(paper)} of the paper's statements {_verdicts(paper)}")
    if beyond:
        parts.append(f"of {_checks(beyond)} beyond the paper {_held(beyond)} {_verdicts(beyond)}")
    return "; ".join(parts)


def _held(claims: Sequence[Claim]) -> int:
    return sum(claim.holds is True for claim in claims)


def _checks(claims: Sequence[Claim]) -> str:
    return f"{len(claims)} check{'s' if len(claims) > 1 else ''}"


def _verdicts(claims: Sequence[Claim]) -> str:
    """The verb of those that hold, and the numbers of all others."""
    failed, undecided = (sum(claim.holds is verdict for claim in claims) for verdict in (False, None))
    others = f", {failed} fail{'s' if failed == 1 else ''}" if failed else ""
    others += f", {undecided} {'is' if undecided == 1 else 'are'} undecided" if undecided else ""
    return ("holds" if _held(claims) == 1 else "hold") + others


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
        >>> Mean.of([0.3]).is_positive  # a single one says nothing about the noise
        """
        return self.value > 0.0 if abs(self.value) > SURE * self.error else None

    def at_most(self, limit: float, errors: float = SURE) -> bool | None:
        """Whether it is surely at most `limit`, or surely above; None while the limit lies within the noise.

        >>> Mean(0.1, 0.1).at_most(0.5), Mean(0.4, 0.1).at_most(0.5), Mean(0.9, 0.1).at_most(0.5)
        (True, None, False)
        """
        if self.value + errors * self.error <= limit:
            return True
        return False if self.value - errors * self.error > limit else None

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
