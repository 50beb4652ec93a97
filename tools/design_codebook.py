"""Make the codebooks that come with the package: `python tools/design_codebook.py [--check] [NAME…]`.

They are designed on generated streams of three rates of positive labels, so that they suit clicks as well as balanced
classes; all have a long tail. `lessram train --codebook auto` designs one from the user's own first examples instead.

What a rounding adds is there at every later visit of its coordinate, so the standard book weighs each by the number
of these; and a stream of few positive labels, whose gradients are small beside what lists must reach, by more.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from longtail import LongTail

from lessram.learning.opening import sampled
from lessram.model.spec import Spec
from lessram.numerics.codebook import FIRST_COUNTS, Book, design
from lessram.tables.book import SHIPPED

BIASES = (-3.2, -1.5, 0.0)
"""About 6, 22 and 50 % positive."""
ALPHA = 0.2


class Recipe(NamedTuple):
    rows: int
    """Of each stream."""
    largest: int
    """Values of its largest field."""
    first_seed: int
    shares: tuple[int, int, int]
    """How much each stream counts."""
    most_visits: int
    """Up to how many later visits count."""


RECIPES = {
    "standard": Recipe(300_000, 1_000_000, 11, (20, 3, 3), 1000),
    "shipped": Recipe(40_000, 100_000, 0, (1, 1, 1), 0),
}


def made(recipe: Recipe) -> Book:
    parts = []
    for number, (bias, share) in enumerate(zip(BIASES, recipe.shares, strict=True)):
        seed = recipe.first_seed + number
        stream = LongTail(largest=recipe.largest, bias=bias, seed=seed)
        spec = Spec(slots=stream.features, weights="float32", rates="exact32", alpha=ALPHA, seed=seed)
        batch = stream.draw(recipe.rows)
        found = sampled(batch, spec)
        visits = np.minimum(later_visits(batch.slots)[found.features], recipe.most_visits)
        parts.append((found.levels, found.values, share * (1 + visits)))
    levels, values, weights = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return design(levels, values, weights=weights)


def later_visits(slots: NDArray[np.integer]) -> NDArray[np.int64]:
    """How often the slot of each feature occurs after it."""
    order = np.argsort(slots, kind="stable")
    ends = np.searchsorted(slots[order], slots[order], side="right")
    later = np.empty(len(slots), np.int64)
    later[order] = ends - 1 - np.arange(len(slots))
    return later


def text_of(book: Book) -> str:
    """One line a level."""
    lists = [", ".join(str(point) for point in book.at(level)) for level in range(1, len(FIRST_COUNTS))]
    return "[\n" + ",\n".join(f"[{points}]" for points in lists) + "\n]\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(RECIPES)}; default all")
    parser.add_argument("--check", action="store_true", help="compare with the files instead of writing them")
    chosen = parser.parse_args()
    for name in chosen.names or RECIPES:
        text = text_of(made(RECIPES[name]))
        if not chosen.check:
            SHIPPED[name].write_text(text)
        elif SHIPPED[name].read_text() != text:
            sys.exit(f"{SHIPPED[name]} is not what this makes")


if __name__ == "__main__":
    main()
