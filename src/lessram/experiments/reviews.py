"""Korean film reviews in the order of time: a long tail of words, films and authors; good or not.

Each line has date, id, rating, film, author and text. It is written as Vowpal Wabbit text and read back by the
package's own reader, which hashes.
"""

from __future__ import annotations

import contextlib
import lzma
import tempfile
from collections.abc import Iterator
from pathlib import Path

GOOD = 9
"""The rating from which on a review is a good one."""
_PARTING = str.maketrans({":": " ", "|": " "})


def write_as_vw(source: Path, target: Path) -> None:
    """Film, author and words of each review as Vowpal Wabbit text."""
    with lzma.open(source, "rt", encoding="utf-8", newline="\n") as lines, open(target, "w", encoding="utf-8") as file:
        for line in lines:
            _, _, rating, film, author, words = line.rstrip("\r\n").split("\t", 5)
            label = 1 if int(rating) >= GOOD else -1
            plain = "".join(letter if letter.isprintable() else " " for letter in words.translate(_PARTING))
            file.write(f"{label} |film {film} |author {author.translate(_PARTING)} |words {plain}\n")


@contextlib.contextmanager
def written(source: Path) -> Iterator[Path]:
    """The reviews in a file that is there as long as the context."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "reviews.vw"
        write_as_vw(source, target)
        yield target
