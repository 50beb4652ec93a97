"""Make the codebook that is shipped: `python tools/design_codebook.py [--check]`.

It is designed on generated streams of three rates of positive labels, so that it suits clicks as well as balanced
classes; all have a long tail. `lessram train --codebook auto` designs one from the user's own first examples instead.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from longtail import LongTail

from lessram.learning.opening import sampled
from lessram.model.spec import Spec
from lessram.numerics.codebook import FIRST_COUNTS, Book, design
from lessram.tables.book import SHIPPED

BIASES = (-3.2, -1.5, 0.0)
"""About 6, 22 and 50 % positive."""
ROWS = 40_000
ALPHA = 0.2


def made() -> Book:
    levels, values = [], []
    for seed, bias in enumerate(BIASES):
        stream = LongTail(largest=100_000, bias=bias, seed=seed)
        spec = Spec(slots=stream.features, weights="float32", rates="exact32", alpha=ALPHA, seed=seed)
        found = sampled(stream.draw(ROWS), spec)
        levels.append(found[0])
        values.append(found[1])
    return design(np.concatenate(levels), np.concatenate(values))


def text_of(book: Book) -> str:
    """One line a level."""
    lists = [", ".join(str(point) for point in book.at(level)) for level in range(1, len(FIRST_COUNTS))]
    return "[\n" + ",\n".join(f"[{points}]" for points in lists) + "\n]\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the shipped file instead of writing it")
    text = text_of(made())
    if parser.parse_args().check:
        sys.exit(0 if SHIPPED.read_text() == text else f"{SHIPPED} is not what this makes")
    SHIPPED.write_text(text)


if __name__ == "__main__":
    main()
