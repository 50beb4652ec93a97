"""Spec: every choice that makes a model what it is, frozen, validated, JSON both ways.

Two runs with equal specs over equal streams give equal bytes; so everything that can change a byte is
here, and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from lessram.errors import SpecError
from lessram.numerics.codebook import Book, joint_counter
from lessram.numerics.counter import Counter, gentle, morris
from lessram.numerics.fixed_point import FixedPoint
from lessram.numerics.loss import Loss
from lessram.numerics.minifloat import Minifloat
from lessram.numerics.proximal import ALGORITHMS, Shrinkage, shrinkage
from lessram.plain import flag, real, text, whole
from lessram.tables.book import packaged_book, scaled
from lessram.tables.layout import ADAPTIVE, GAMMA, HALFWORD, PROXIMAL, RATE_STATE, SQUARES, cell_type

LARGEST_SLOTS = 1 << 40
STEPS = ("plain", "invariant")
SCALES = ("rms", "none")
DEFAULT_ALPHA = 0.3
"""Where nothing is said and the first examples cannot be looked at; docs/choosing.md has the study."""
PAPER: dict[str, Any] = {"weights": "q2.13", "rates": "morris8", "step_rule": "plain", "alpha": 0.2}
"""The paper's choices, where they are not the defaults."""
CODEBOOKS = ("standard", "auto", "shipped")
GAMMA_RADIUS = 4.0
"""R of weights gamma, unless another is given."""
PROMOTED = "q2.13"
"""The grid of adaptive weights that have a cell of their own; those in a byte are multiples of its step too."""
LEAST_BETA = 1e-30
"""Below it alpha / beta may be infinite in single precision, and whatever stands behind a row in its last vector would
not be nothing any more: infinite rates times no value."""
LEAST_SQUARES_BASE = 1.01
"""Below it the accumulator's estimate of a logarithm may be more than one level low, and its sums biased."""

_DEFAULT_BASE = 1.1
_DEFAULT_RATES = "squares8"
_RATES_BY_COUNTS = {ADAPTIVE: ("ladder8",), GAMMA: ("morris8", "ladder8")}
"""Of weights whose resolution follows a counter, the rates that go with them, the default first. In adaptive weights
the counter is a part of the bytes, and exact at first as ladder8 is."""
_FORMS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(("slots", "offset", "seed"), whole),
    **dict.fromkeys(("alpha", "beta", "base", "radius", "l1", "l2", "gamma"), real),
    **dict.fromkeys(("weights", "rates", "step_rule", "loss", "scale", "algorithm", "codebook"), text),
    **dict.fromkeys(("rate_floor", "intercept"), flag),
}
"""What each choice is."""


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The choices behind a model.

    >>> spec = Spec(slots=1 << 20)
    >>> spec.weights, spec.rates, spec.grid.step
    ('q3.12', 'squares8', 0.000244140625)
    >>> Spec(slots=0)
    Traceback (most recent call last):
    ...
    lessram.errors.SpecError: slots must be between 1 and 1099511627776, got 0
    """

    slots: int
    """How many coefficients the table has."""
    weights: str = "q3.12"
    """float32, a fixed-point format qN.M of at most 16 bits, e3m6, a 10-bit minifloat that goes with squares6 (e3m6x2,
    e3m6x0.5 ...: the same, so many times as wide), or adaptive: a byte for a rare coordinate, more for others.
    gamma is a control: the paper's grids of gamma times the rate, whose bits are counted but not saved."""
    rates: str = ""
    """global: alpha / sqrt(t). By counts: exact32; morris8, the paper's 8-bit randomized counter; ladder8, one that is
    exact for small counts. By squared gradients: squares32, or squares8, an 8-bit randomized accumulator,
    or squares6, one of 6 bits that shares a 16-bit cell with weights e3m6. By default squares8; ladder8 with weights
    adaptive, morris8 with gamma."""
    step_rule: str = ""
    """plain, or invariant: a large step ends where many small ones would. By default invariant with squares."""
    loss: str = "logistic"
    """logistic, squared or hinge."""
    alpha: float = DEFAULT_ALPHA
    """The learning rate's numerator."""
    beta: float = 0.3
    """Added to the root of squared gradients in the rate's denominator."""
    base: float = _DEFAULT_BASE
    """The base of the randomized counter or accumulator."""
    offset: int = 1
    """What is added to an exact count under the root: 1, or 0 as Algorithm 2 prints it."""
    rate_floor: bool = False
    """Whether the rate stops falling at the grid's step (the paper's fixed discretisation)."""
    radius: float | None = None
    """R: coefficients stay in [-R, R]; None for all that the format holds."""
    intercept: bool = True
    """Whether to learn a constant term, kept outside the table in float64."""
    scale: str = "rms"
    """rms: values are divided by the running root mean square of all values; none: taken as they are."""
    seed: int = 0
    """Where all randomness comes from."""
    algorithm: str | msgspec.UnsetType = msgspec.UNSET
    """ogd, by default: steps along the gradient. ftrl or rda: FTRL-Proximal or regularised dual averaging, which need
    rates by squared gradients and take l1 and l2. Left out of files where it is ogd."""
    l1: float | msgspec.UnsetType = msgspec.UNSET
    """How much the absolute size of a coefficient costs, over the whole stream; the intercept costs nothing."""
    l2: float | msgspec.UnsetType = msgspec.UNSET
    """How much half the square of a coefficient costs, over the whole stream."""
    codebook: str | msgspec.UnsetType = msgspec.UNSET
    """Of adaptive weights: what the bytes stand for. standard; auto: designed from the first examples; shipped: as
    standard was at first."""
    gamma: float | msgspec.UnsetType = msgspec.UNSET
    """Of weights gamma: the grid's step is at most gamma times the rate."""

    def __post_init__(self) -> None:
        self._settle_types()
        self._settle_algorithm()
        self._settle_resolution()
        if self.step_rule == "":
            # Under L1 many small steps end elsewhere than the invariant step supposes.
            steps_freely = self.rates in SQUARES and not self.l1
            msgspec.structs.force_setattr(self, "step_rule", "invariant" if steps_freely else "plain")
        self._check_choices()
        self._check_numbers()
        if self.weights not in ("float32", GAMMA):
            self.grid.units_within(self.radius)
        cell_type(self.weights, self.rates)
        if self.step_rule == "invariant" and self.rates not in SQUARES:
            raise SpecError(f"step_rule invariant needs rates by squared gradients, got rates {self.rates}")
        if self.algorithm and self.rates not in PROXIMAL:
            raise SpecError(f"algorithm {self.algorithm} needs rates {' or '.join(PROXIMAL)}, got rates {self.rates}")
        if self.offset == 0 and self.rates != "exact32":
            raise SpecError("offset 0 needs rates exact32: a randomized counter may still stand at 0")
        if self.rate_floor and (self.weights in ("float32", ADAPTIVE, GAMMA) or self.rates in SQUARES):
            raise SpecError("rate_floor needs fixed-point weights and a global rate or counts")

    def _settle_types(self) -> None:
        """Everything as a file gives it back, so that what can be trained can be saved and opened."""
        for name, form in _FORMS.items():
            given = getattr(self, name)
            if given is msgspec.UNSET or (name == "radius" and given is None):
                continue
            if given is None and name != "slots":
                raise SpecError(f"{name} must not be None: leave it out for its default")
            msgspec.structs.force_setattr(self, name, form(name, given))

    def _settle_algorithm(self) -> None:
        """One form for each choice, so that equal choices are equal bytes: unset under ogd, numbers elsewhere."""
        penalties = {"l1": self.l1 or 0.0, "l2": self.l2 or 0.0}
        for name, value in penalties.items():
            if not 0 <= value <= 1e6:
                raise SpecError(f"{name} must be between 0 and 1e6, got {value}")
        if self.algorithm in (msgspec.UNSET, "ogd"):
            if any(penalties.values()):
                raise SpecError("l1 and l2 need algorithm ftrl or rda, got algorithm ogd")
            settled: dict[str, Any] = dict.fromkeys(("algorithm", "l1", "l2"), msgspec.UNSET)
        elif self.algorithm in ALGORITHMS:
            settled = penalties
        else:
            raise SpecError(f"algorithm must be one of ogd, {', '.join(ALGORITHMS)}, got {self.algorithm!r}")
        for name, value in settled.items():
            msgspec.structs.force_setattr(self, name, value)

    def _settle_resolution(self) -> None:
        """Weights whose resolution follows a counter have its rates; what was left open gets its default."""
        by_counts = _RATES_BY_COUNTS.get(self.weights, ())
        if by_counts and self.rates not in ("", *by_counts):
            raise SpecError(
                f"weights {self.weights} have rates by randomized counts, got rates {self.rates}: "
                f"leave rates out, or say {' or '.join(by_counts)}"
            )
        settled: dict[str, Any] = {"rates": self.rates or (*by_counts, _DEFAULT_RATES)[0]}
        if self.weights == ADAPTIVE:
            settled["codebook"] = CODEBOOKS[0] if self.codebook is msgspec.UNSET else self.codebook
        if self.weights == GAMMA:
            settled["gamma"] = 1.0 if self.gamma is msgspec.UNSET else self.gamma
        for name, value in settled.items():
            msgspec.structs.force_setattr(self, name, value)
        for name, weights in {"codebook": ADAPTIVE, "gamma": GAMMA}.items():
            if name not in settled and getattr(self, name) is not msgspec.UNSET:
                raise SpecError(f"{name} needs weights {weights}, got weights {self.weights}")
        if self.codebook not in (msgspec.UNSET, *CODEBOOKS):
            raise SpecError(f"codebook must be one of {', '.join(CODEBOOKS)}, got {self.codebook!r}")
        if self.gamma is not msgspec.UNSET and not 0 < self.gamma <= 1e6:
            raise SpecError(f"gamma must be above 0 and at most 1e6, got {self.gamma}")

    def _check_choices(self) -> None:
        choices = {
            "rates": tuple(RATE_STATE),
            "step_rule": STEPS,
            "loss": tuple(Loss.__members__),
            "scale": SCALES,
            "offset": (0, 1),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                options = ", ".join(str(option) for option in allowed)
                raise SpecError(f"{name} must be one of {options}, got {getattr(self, name)!r}")

    def _check_numbers(self) -> None:
        if not 1 <= self.slots <= LARGEST_SLOTS:
            raise SpecError(f"slots must be between 1 and {LARGEST_SLOTS}, got {self.slots}")
        if not 0 < self.alpha <= 1e6:
            raise SpecError(f"alpha must be above 0 and at most 1e6, got {self.alpha}")
        if not LEAST_BETA <= self.beta <= 1e6:
            raise SpecError(f"beta must be between {LEAST_BETA} and 1e6, got {self.beta}")
        if not 1 < self.base <= 16:
            raise SpecError(f"base must be above 1 and at most 16, got {self.base}")
        if self.rates == "squares8" and self.base < LEAST_SQUARES_BASE:
            raise SpecError(f"base must be at least {LEAST_SQUARES_BASE} with rates squares8, got {self.base}")
        if self.rates == "squares6" and self.base != _DEFAULT_BASE:
            raise SpecError(f"base cannot be chosen with rates squares6, whose 64 levels are fixed, got {self.base}")
        if not -(2**63) <= self.seed < 2**64:
            raise SpecError(f"seed must fit in 64 bits, got {self.seed}")
        if self.radius is not None and not (self.radius > 0 and math.isfinite(self.radius)):
            raise SpecError(f"radius must be above 0 and finite, got {self.radius}")

    @classmethod
    def paper(cls, **choices: Any) -> Spec:
        """The paper's method (Algorithm 2, section 4.2), unless `choices` say otherwise.

        >>> spec = Spec.paper(slots=8)
        >>> spec.weights, spec.rates, spec.step_rule, spec.alpha
        ('q2.13', 'morris8', 'plain', 0.2)
        """
        return cls(**{**PAPER, **halfword_choices(choices), **choices})

    @property
    def shrinkage(self) -> Shrinkage | None:
        """How stored averages become weights; None where weights are stored."""
        if not isinstance(self.algorithm, str):
            return None
        assert isinstance(self.l1, float)
        assert isinstance(self.l2, float)
        choices = {"alpha": self.alpha, "beta": self.beta, "step": self.step, "base": self.base}
        return shrinkage(self.algorithm, l1=self.l1, l2=self.l2, **choices)

    @property
    def fixed_point(self) -> FixedPoint | None:
        """The weights' format where it is a fixed-point one; of adaptive weights, that of the promoted."""
        if self.weights in ("float32", GAMMA) or self.weights.startswith("e"):
            return None
        return FixedPoint.parse(PROMOTED if self.weights == ADAPTIVE else self.weights)

    @property
    def grid(self) -> FixedPoint | Minifloat:
        """The format of the weights; an error for float32."""
        return self.fixed_point or Minifloat.parse(self.weights)

    @property
    def step(self) -> float:
        """The unit of stored weights: the grid's step; 1 for float32, R for gamma."""
        if self.weights == GAMMA:
            return GAMMA_RADIUS if self.radius is None else self.radius
        return 1.0 if self.weights == "float32" else self.grid.step

    @property
    def counter(self) -> Counter:
        """The randomized counter behind the rates; of no meaning where they are exact or by squared gradients."""
        if self.weights == ADAPTIVE:
            return joint_counter(self.base)
        return gentle(self.base) if self.rates == "ladder8" else morris(self.base)

    @property
    def book(self) -> NDArray[np.void] | None:
        """The codebook that learning starts with, as cells; None where weights are not adaptive."""
        if self.weights != ADAPTIVE:
            return None
        return self.scaled_book(packaged_book("standard" if self.codebook == "standard" else "shipped"))

    def scaled_book(self, book: Book) -> NDArray[np.void]:
        """A codebook for this alpha, as cells in units of the grid."""
        return scaled(book, self.alpha, self.step, self.grid.units_within(self.radius))


def halfword_choices(chosen: dict[str, Any]) -> dict[str, str]:
    """What weights and rates say of each other where only one of them was chosen, and the other cannot be any.

    >>> halfword_choices({"rates": "squares6"}), halfword_choices({"weights": "e3m6x2"}), halfword_choices({})
    ({'weights': 'e3m6', 'rates': 'squares6'}, {'weights': 'e3m6', 'rates': 'squares6'}, {})
    >>> halfword_choices({"weights": "adaptive"})
    {'rates': 'ladder8'}
    """
    weights, rates = HALFWORD
    if chosen.get("rates") == rates or str(chosen.get("weights", "")).startswith(weights):
        return {"weights": weights, "rates": rates}
    by_counts = _RATES_BY_COUNTS.get(chosen.get("weights", ""))
    return {"rates": by_counts[0]} if by_counts else {}
