"""Vowpal Wabbit text: `label importance base 'tag|namespace:weight name name:value ... |namespace ...`.

    line       nothing at all: no example. There are no comments; `#` is a letter like any other
    head       words parted by spaces before the first bar: label, importance (not negative, 1 if absent), base.
               The last word is a tag if it begins with a quote or touches the bar: `1|a b` has the tag 1 and
               no label. Of a head with a tab, what stands before the first tab is left out
    label      0, 1 or -1 (taken as 0), or any finite number where real labels are allowed. An example without
               one is left out and counted when a model is trained or evaluated, kept when it is to be predicted
    base       read and counted, not used
    namespace  `|name`, `|name:weight`, or `| ` for the one without a name; empty ones and repeated ones are fine
    feature    `name` (value 1), `name:number`, `:number` (named by its place), or `name:word`, one feature for
               each pair; blanks may follow the colon. Features of value 0 are left out

Hashes, slots and number of features are Vowpal Wabbit's own (`--hash strings`; a model of 2^b slots reads the
coefficients that `-b b` writes). Its constant is not among them: lessram's intercept lives outside the table, so
Vowpal Wabbit reports one feature more for every example.

Where Vowpal Wabbit warns and trains on what is left, lessram calls the line bad: numbers that are not
numbers (`a:1x`), not finite, or missing (`a:` at the end), control characters, a head of more than three words.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec
import numpy as np

from lessram.data import vw_kernel
from lessram.data.hashing import hash_dtype, hash_for_slots, hash_texts
from lessram.data.interactions import NO_GROUP, canonical, group_numbers, term_table
from lessram.data.lines import LineParser, rest_of_line, show
from lessram.data.namespaces import Namespaces
from lessram.data.parsing import LABEL_KINDS
from lessram.data.rows import FULL, INFINITE, LONG_NUMBER, MOST, Progress, Room
from lessram.data.source import Chunk
from lessram.data.vw_kernel import Reading, parse_lines
from lessram.errors import SpecError

_EXPECTED = {
    vw_kernel.LABEL: "as the label, expected 0, 1, -1 or +1",
    vw_kernel.WEIGHT: "as the importance, expected a finite number, not negative",
    vw_kernel.BASE: "as the base, expected a finite number",
    vw_kernel.WORDS: "as the fourth word, expected at most label, importance and base before the bar",
    vw_kernel.CONTROL: "in a name, expected no control characters",
    vw_kernel.VALUE: "as a value, expected a finite number or a word",
    vw_kernel.NO_VALUE: "behind a colon, expected a finite number or a word",
    vw_kernel.NAMESPACE: "behind a bar, expected the name of a namespace or a space",
    vw_kernel.NAMESPACE_WEIGHT: "as the weight of a namespace, expected a finite number",
    INFINITE: "whose products with its weight or with other values are too large, expected less than 3.4e38",
    LONG_NUMBER: "as a number, expected one that is finite",
    FULL: f"which makes too many products, expected at most {MOST} features in one row",
}


class VwOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The choices that a model must remember: rows read under others would mean other coefficients."""

    hash: Literal["strings", "all"] = "strings"
    """`strings`: a name that is all digits is its own number plus the hash of its namespace. `all`: it is hashed."""
    seed: int = 0
    """Vowpal Wabbit's `--hash_seed`."""
    ignore: str = ""
    """First letters of the namespaces that are left out; a space is the one without a name."""
    keep: str = ""
    """First letters of the only namespaces that are kept; empty = all."""
    interactions: tuple[str, ...] = ()
    """Pairs and triples of first letters: `ab`, `aa`, `abc`."""


def _first_bytes(letters: str, name: str) -> list[int]:
    try:
        return list(letters.encode("latin-1"))
    except UnicodeEncodeError:
        raise SpecError(f"{name} must name namespaces by first letters below U+0100, got {letters!r}") from None


def _reading(slots: int, options: VwOptions, numbers: dict[int, int], real: bool, keep_unlabelled: bool) -> Reading:
    kind = hash_for_slots(slots)
    dtype = hash_dtype(kind)
    if options.hash not in ("strings", "all"):
        raise SpecError(f"hash must be 'strings' or 'all', got {options.hash!r}")
    if not 0 <= options.seed < 2**32:
        raise SpecError(f"seed must be from 0 to 2^32 - 1, got {options.seed}")
    kept = np.full(256, not options.keep)
    kept[_first_bytes(options.keep, "keep")] = True
    kept[_first_bytes(options.ignore, "ignore")] = False
    group = np.full(256, NO_GROUP, np.uint8)
    for letter, number in numbers.items():
        group[letter] = number
    nameless = hash_texts([b""], options.seed, kind)[0] if options.seed else 0
    seeds = dtype(nameless), dtype(options.seed)
    return Reading(
        *seeds, options.hash == "all", real, keep_unlabelled, np.uint64(slots), kept, group, Namespaces.unknown(dtype)
    )


class VwParser(LineParser):
    """Parses chunks of Vowpal Wabbit text for a table of `slots` slots. For one thread at a time.

    >>> from lessram.data.lines import chunk_of
    >>> part = VwParser(2**18).parse(chunk_of(b"1 |user age:0.5 city=rome\\n-1 |user city=oslo\\n"))
    >>> part.batch.labels, part.batch.indptr, part.batch.values
    (array([1., 0.], dtype=float32), array([0, 2, 3]), array([0.5, 1. , 1. ], dtype=float32))
    """

    def __init__(
        self, slots: int, options: VwOptions | None = None, *, labels: str = "binary", keep_unlabelled: bool = False
    ) -> None:
        options = options or VwOptions()
        if labels not in LABEL_KINDS:
            raise SpecError(f"labels must be 'binary' or 'real', got {labels!r}")
        interactions = canonical([tuple(_first_bytes(letters, "interactions")) for letters in options.interactions])
        numbers = group_numbers(interactions)
        self._reading = _reading(slots, options, numbers, labels == "real", keep_unlabelled)
        super().__init__(Room(type(self._reading.seed), term_table(interactions, numbers), len(numbers)))

    def _step(self, chunk: Chunk, progress: Progress) -> Progress:
        room = self._room
        return Progress(
            *parse_lines(
                chunk.text, chunk.size, room.marks, self._reading, room.products, room.rows, room.names, progress
            )
        )

    def _describe(self, chunk: Chunk, progress: Progress) -> str:
        word = rest_of_line(chunk, progress.word)
        if progress.status not in (FULL, INFINITE):  # which are about the whole line
            word = re.split(rb"[ \t]", word, maxsplit=1)[0]
        expected = _EXPECTED[progress.status]
        if progress.status == vw_kernel.LABEL and self._reading.real_labels:
            expected = "as the label, expected a finite number"
        return f"found {show(word)} {expected}"
