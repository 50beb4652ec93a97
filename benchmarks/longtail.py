"""A long-tail stream of clicks: fields of one binary feature each, from ten values to a million, Zipf inside a field.

What the paper's advertising data look like from the outside: a few features in every example, most hardly ever.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lessram import Batch

FIELDS = 32
EXPONENT = 1.05
SPREAD_OF_EFFECTS = 1.25


class LongTail:
    """A hidden logistic model over `fields` fields, and examples drawn from it."""

    def __init__(
        self,
        largest: int = 1_000_000,
        bias: float = -3.2,
        fields: int = FIELDS,
        seed: int = 1,
        exponent: float = EXPONENT,
    ) -> None:
        self._random = np.random.default_rng(seed)
        self.sizes = np.geomspace(10, largest, fields).round().astype(np.int64)
        self.features = int(self.sizes.sum())
        self._exponent = exponent
        self._bias = bias
        self._starts = np.concatenate([[0], np.cumsum(self.sizes)[:-1]])
        self._scattered = self._random.permutation(self.features).astype(np.uint32)
        spread = np.exp(0.5 * self._random.standard_normal(fields))
        spread *= SPREAD_OF_EFFECTS / np.sqrt((spread**2).sum())
        self._effects = self._random.standard_normal(self.features, np.float32)
        for start, size, scale in zip(self._starts, self.sizes, spread, strict=True):
            self._effects[start : start + size] *= scale

    def draw(self, rows: int) -> Batch:
        """The next examples."""
        chosen = np.stack([self._draw_field(f, rows) for f in range(len(self.sizes))], axis=1)
        margins = self._effects[chosen].sum(axis=1) + self._bias
        labels = (self._random.random(rows) < 1 / (1 + np.exp(-margins))).astype(np.float32)
        indptr = np.arange(rows + 1, dtype=np.int64) * len(self.sizes)
        return Batch(labels, indptr, self._scattered[chosen.reshape(-1)])

    def _draw_field(self, field: int, rows: int) -> NDArray[np.int64]:
        """Ranks by inversion of a continuous power law."""
        size, e = float(self.sizes[field]), 1.0 - self._exponent
        uniform = self._random.random(rows)
        ranks = ((((size + 1) ** e - 1) * uniform + 1) ** (1 / e)).astype(np.int64) - 1
        return self._starts[field] + ranks.clip(0, int(size) - 1)
