"""What parsers of numbered features take and give: rules for ids and labels, columns to write into, bad lines."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.data.batch import Batch
from lessram.data.delimiters import Delimiters
from lessram.data.hashing import hash_number, slot_of_hash
from lessram.data.scanning import room_for_marks
from lessram.errors import SpecError
from lessram.jit import inlined
from lessram.numerics.random import hash_seed as spread_seed
from lessram.plain import whole

HASH_MODES = ("auto", "all", "none")
LABEL_KINDS = ("binary", "real")
MOST_SLOTS = 1 << 48


class Rules(NamedTuple):
    """How ids become slots and which labels are taken; kernels read it."""

    slots: np.uint64
    """The number of slots of the table."""
    direct: np.uint64
    """Ids below this are slots as they are."""
    hashing: bool
    """Whether the other ids are hashed; if not, they are errors."""
    hashed_seed: np.uint64
    real_labels: bool
    """Whether any finite label is taken; if not, 0, 1 and -1."""


def make_rules(slots: int, *, hash: str = "auto", hash_seed: int = 0, labels: str = "binary") -> Rules:
    """Check the choices of a user and put them in the form that kernels read.

    >>> make_rules(1024, hash="none").hashing
    False
    >>> make_rules(1024, hash="some")
    Traceback (most recent call last):
    ...
    lessram.errors.SpecError: hash must be one of 'auto', 'all', 'none', got 'some'
    """
    for name, found, choices in (("hash", hash, HASH_MODES), ("labels", labels, LABEL_KINDS)):
        if found not in choices:
            raise SpecError(f"{name} must be one of {', '.join(map(repr, choices))}, got {found!r}")
    slots = slot_count(slots)
    direct = 0 if hash == "all" else slots
    seed = np.uint64(spread_seed(hash_seed))
    return Rules(np.uint64(slots), np.uint64(direct), hash != "none", seed, labels == "real")


def slot_count(slots: int) -> int:
    """The number of slots to read for, checked."""
    slots = whole("slots", slots)
    if not 1 <= slots <= MOST_SLOTS:
        raise SpecError(f"slots must be from 1 to 2^{MOST_SLOTS.bit_length() - 1}, got {slots}")
    return slots


def slot_type(slots: int | np.uint64) -> type[np.uint32] | type[np.uint64]:
    """The smallest type that holds every slot of a table."""
    return np.uint32 if slots <= 1 << 32 else np.uint64


@inlined
def hashed_slot(number, rules):
    """The slot of an id that is not a slot as it is."""
    return slot_of_hash(hash_number(number, rules.hashed_seed), rules.slots)


class Columns(NamedTuple):
    """Where a parser writes its rows: the arrays of a batch, as long as they may ever have to be."""

    labels: NDArray[np.float32]
    indptr: NDArray[np.int64]
    slots: NDArray[np.uint32] | NDArray[np.uint64]
    values: NDArray[np.float32]


def roomy(most: int) -> int:
    """The next power of two: chunks differ by some bytes, and not each that is the longest so far needs new arrays.

    >>> roomy(0), roomy(1000)
    (1, 1024)
    """
    return 1 << max(0, most - 1).bit_length()


class RowBuffers:
    """Columns that one thread parses into, chunk after chunk; they grow when a chunk could hold more.

    They are sized for the shortest rows and features that a text may have. The system hands out only
    the part that is written to.
    """

    def __init__(self, rules: Rules) -> None:
        self._dtype = slot_type(rules.slots)
        self.columns = self._allocate(0)
        self.marks = room_for_marks(0)
        self.delimiters = Delimiters.new()

    def fit(self, most: int) -> Columns:
        """Columns with room for `most` rows and as many features."""
        if len(self.columns.labels) < most:
            self.columns = self._allocate(roomy(most))
            self.marks = room_for_marks(2 * roomy(most))
        return self.columns

    def _allocate(self, most: int) -> Columns:
        slots: NDArray[Any] = np.empty(most, self._dtype)
        return Columns(np.empty(most, np.float32), np.zeros(most + 1, np.int64), slots, np.empty(most, np.float32))


QUOTED = 10
"""Bad lines of a stream that its summary quotes, the first ones."""
REPORTS = QUOTED + 1
"""Bad lines of a chunk that are described: as many, and the last one, behind which the parser may have given up."""


class BadLine(NamedTuple):
    """A line that is no example."""

    place: str
    """file:line"""
    message: str
    """What was found, what was expected."""


class Parsed(NamedTuple):
    """What a parser makes of one chunk."""

    batch: Batch
    """The good lines; its arrays are those of the row buffers, valid until the next chunk is parsed into them."""
    bad: int
    """How many lines were bad."""
    reports: list[BadLine]
    """The first few of them, and the last."""
    hashed: int
    """How many ids of the batch were hashed."""
