"""Words that stand for a missing value, such as `NA`: cells that are nothing else are read as empty ones.

Whether there are such words is part of the type that a kernel is compiled for. One that reads files without them does
not ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.data.schema import CATEGORICAL, TEXT
from lessram.data.text import without_blanks
from lessram.jit import inlined, overloaded, types

_ONE = np.uint64(1)
_MOST = np.uint64(63)


class MissingWords(NamedTuple):
    """The words as kernels read them."""

    letters: NDArray[np.uint8]
    """Of all words, one behind the other."""
    ends: NDArray[np.uint64]
    """Where in `letters` each word ends."""
    lengths: np.uint64
    """Bit n: some word has n bytes; bit 63: or more. Few cells need another look."""


def missing_words(words: Sequence[str]) -> MissingWords | None:
    """The words for a kernel; None if there is none."""
    if not words:
        return None
    encoded = [word.encode() for word in words]
    return MissingWords(
        np.array(list(b"".join(encoded)), np.uint8),
        np.cumsum([len(word) for word in encoded]).astype(np.uint64),
        np.bitwise_or.reduce([_ONE << min(np.uint64(len(word)), _MOST) for word in encoded]),
    )


def is_missing(text: Any, start: Any, stop: Any, kind: Any, missing: Any) -> Any:
    """Whether a cell of a column of that kind is one of the words; never where there are none. For kernels only.

    Numbers, labels and weights may have blanks around them, and so may what stands for them.
    """
    raise NotImplementedError


@inlined
def _is_one_of(text, start, stop, kind, missing):
    if kind != np.uint8(CATEGORICAL) and kind != np.uint8(TEXT):
        start, stop = without_blanks(text, start, stop)
    if not (missing.lengths >> min(stop - start, _MOST)) & _ONE:
        return False
    first = np.uint64(0)
    for i in range(np.uint64(missing.ends.size)):
        end = missing.ends[i]
        if end - first == stop - start:
            k = first
            while k < end and missing.letters[k] == text[start + k - first]:
                k += _ONE
            if k == end:
                return True
        first = end
    return False


@overloaded(is_missing)
def _is_missing(text, start, stop, kind, missing):  # type: ignore[no-untyped-def]
    if missing == types.none:
        return lambda text, start, stop, kind, missing: False
    return lambda text, start, stop, kind, missing: _is_one_of(text, start, stop, kind, missing)
