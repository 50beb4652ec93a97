"""What the columns of a table mean: the label, categories, numbers, text, or nothing.

    categorical  one feature of value 1 for each pair of column and cell: hash(cell, seed = hash(column))
    numeric      one feature for the column, hash(column), whose value is the cell, centred and brought to size where
                 the schema has a scale for the column (`column_scale.py`); 0 is left out
    text         one feature of value 1 for each token of the cell, hashed like a category
    label        0, 1 or -1 (any finite number where real labels are allowed)
    weight       the importance of the row, finite and not negative
    ignored      nothing

An empty cell gives no feature, whatever its column is. Features stand in the order of the columns, then come
the interactions. CSV, Arrow and JSON agree on all of this: the same table gives the same rows. Only delimited text,
which has no null, may have words for empty cells.

A schema is part of a model, and is checked against the columns of whatever the model is to predict.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from lessram.data.hashing import hash_for_slots, hash_texts
from lessram.data.interactions import NO_GROUP, canonical, group_numbers, term_table
from lessram.errors import SpecError
from lessram.jit import inlined

Kind = Literal["categorical", "numeric", "text", "label", "weight", "ignored"]

IGNORED, CATEGORICAL, NUMERIC, TEXT, LABEL, WEIGHT = range(6)
"""The kinds as kernels know them."""
_CODES = {
    "ignored": IGNORED,
    "categorical": CATEGORICAL,
    "numeric": NUMERIC,
    "text": TEXT,
    "label": LABEL,
    "weight": WEIGHT,
}

MISSING_COLUMN = "the table must have the columns that the model was trained on, {!r} is missing"

_GRAMS = b"\0characters"
"""Under this name within a column, so that the gram `cat` is another feature than the word `cat`."""


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """How text columns are taken apart. Words are letters, digits and `_`, ASCII letters in lower case."""

    words: bool = True
    pairs: bool = False
    """Pairs of neighbouring words."""
    characters: tuple[int, int] | None = None
    """Runs of so many characters, from the first number to the second, within a word and its two ends."""

    def __post_init__(self) -> None:
        if self.characters is not None and not 1 <= self.characters[0] <= self.characters[1] <= 64:
            raise SpecError(f"characters must be two numbers, 1 <= least <= most <= 64, got {self.characters!r}")
        if not (self.words or self.pairs or self.characters):
            raise SpecError("text columns must give words, pairs or characters, got none of them")


class ColumnScale(msgspec.Struct, frozen=True):
    """What the numbers of a column are taken relative to: the value of a cell is (number - centre) / unit."""

    column: str
    centre: float
    unit: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.centre) and math.isfinite(self.unit) and self.unit > 0):
            raise SpecError(f"a column's centre and unit must be finite and the unit positive, got {self}")


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of a table and what they mean; JSON both ways with `msgspec`.

    >>> schema = Schema(columns=("click", "site", "hour"), kinds=("label", "categorical", "numeric"))
    >>> msgspec.json.decode(msgspec.json.encode(schema), type=Schema) == schema
    True
    >>> schema.of("hour"), schema.label
    ('numeric', 'click')
    """

    columns: tuple[str, ...]
    kinds: tuple[Kind, ...]
    tokens: Tokens = Tokens()
    interactions: tuple[tuple[str, ...], ...] = ()
    """Pairs and triples of columns."""
    seed: int = 0
    """What the names of columns are hashed under."""
    scales: tuple[ColumnScale, ...] | msgspec.UnsetType = msgspec.UNSET
    """Of numeric columns; the others are taken as they stand."""
    missing: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    """Words that a cell of delimited text is if it has no value, where that is not the empty cell alone."""

    def __post_init__(self) -> None:
        if len(self.columns) != len(self.kinds):
            raise SpecError(f"a schema needs one kind for each column, got {len(self.kinds)} for {len(self.columns)}")
        repeated = [name for name, count in Counter(self.columns).items() if count > 1]
        if repeated:
            raise SpecError(f"columns must have different names, got {min(repeated)!r} more than once")
        for kind in ("label", "weight"):
            if self.kinds.count(kind) > 1:
                raise SpecError(f"at most one column can be the {kind}, got {self.kinds.count(kind)}")
        if not 0 <= self.seed < 2**32:
            raise SpecError(f"seed must be from 0 to 2^32 - 1, got {self.seed}")
        for word in self.missing or ():
            if not word or word != word.strip(" ") or not _is_text(word):
                raise SpecError(f"missing must be words of UTF-8 without blanks around them, got {word!r}")
        for name in {name for terms in self.interactions for name in terms}:
            if name not in self.columns or self.of(name) not in ("categorical", "numeric", "text"):
                raise SpecError(f"interactions must be of categorical, numeric or text columns, got {name!r}")
        canonical(self.interactions)

    def of(self, column: str) -> Kind:
        """The kind of a column."""
        return self.kinds[self.columns.index(column)]

    def _only(self, kind: str) -> str | None:
        return self.columns[self.kinds.index(kind)] if kind in self.kinds else None

    @property
    def label(self) -> str | None:
        """The column of the label, if there is one."""
        return self._only("label")

    @property
    def weight(self) -> str | None:
        """The column of the importance, if there is one."""
        return self._only("weight")

    @property
    def features(self) -> tuple[str, ...]:
        """The columns that features are made of."""
        chosen = ("categorical", "numeric", "text")
        return tuple(name for name, kind in zip(self.columns, self.kinds, strict=True) if kind in chosen)

    @property
    def numeric(self) -> list[str]:
        """The columns of numbers."""
        return [name for name, kind in zip(self.columns, self.kinds, strict=True) if kind == "numeric"]

    def to_predict(self) -> Schema:
        """The same for rows whose labels and weights are not to be looked at."""
        kinds: tuple[Kind, ...] = tuple("ignored" if kind in ("label", "weight") else kind for kind in self.kinds)
        return msgspec.structs.replace(self, kinds=kinds)

    def arranged(self, columns: Sequence[str], place: str = "") -> Schema:
        """The same meaning for a table with its columns in another order; columns unknown here are ignored.

        The label and the weight may be missing, for that is how tables to be predicted come; no feature may. `place`:
        the name of the table, for the message.

        >>> schema = Schema(columns=("click", "site", "hour"), kinds=("label", "categorical", "numeric"))
        >>> schema.arranged(["hour", "id", "site"]).kinds
        ('numeric', 'ignored', 'categorical')
        >>> schema.arranged(["hour"])
        Traceback (most recent call last):
        ...
        lessram.errors.SpecError: the table must have the columns that the model was trained on, 'site' is missing
        """
        there = set(columns)
        for name in self.features:
            if name not in there:
                raise SpecError(f"{place and f'{place}: '}{MISSING_COLUMN.format(name)}")
        known = dict(zip(self.columns, self.kinds, strict=True))
        kinds: tuple[Kind, ...] = tuple(known.get(name, "ignored") for name in columns)
        return msgspec.structs.replace(self, columns=tuple(columns), kinds=kinds)


def _is_text(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:  # bytes of another encoding, as the operating system hands them over
        return False
    return True


@inlined
def scaled_number(layout, column, number):
    """The value of a numeric cell."""
    return np.float32((np.float64(number) - layout.centres[column]) * layout.inverses[column])


class Layout(NamedTuple):
    """A schema in the form that kernels read, one entry a column; the type of the hashes chooses the hash."""

    kinds: NDArray[np.uint8]
    hashes: NDArray[Any]
    """Of the columns: the features of numeric ones, the seeds of the others."""
    gram_seeds: NDArray[Any]
    groups: NDArray[np.uint8]
    """In interactions."""
    centres: NDArray[np.float64]
    inverses: NDArray[np.float64]
    """Of numeric columns: 1 / unit."""
    words: bool
    pairs: bool
    least: np.uint64
    """Characters in a run of characters; 0 = no such runs."""
    most: np.uint64
    slots: np.uint64
    """The size of the table of coefficients."""
    real_labels: bool
    keep_unlabelled: bool


def make_layout(
    schema: Schema, slots: int, *, labels: str = "binary", keep_unlabelled: bool = False
) -> tuple[Layout, NDArray[np.uint8], int]:
    """The layout, the table of interactions and the number of their groups."""
    if labels not in ("binary", "real"):
        raise SpecError(f"labels must be 'binary' or 'real', got {labels!r}")
    interactions = canonical(schema.interactions)
    numbers = group_numbers(interactions)
    kind = hash_for_slots(slots)
    hashes = hash_texts(schema.columns, schema.seed, kind)
    grams = np.array([hash_texts([_GRAMS], int(hashed), kind)[0] for hashed in hashes], hashes.dtype)
    least, most = schema.tokens.characters or (0, 0)
    scales = {scale.column: scale for scale in schema.scales or ()}
    layout = Layout(
        np.array([_CODES[kind] for kind in schema.kinds], np.uint8),
        hashes,
        grams,
        np.array([numbers.get(name, NO_GROUP) for name in schema.columns], np.uint8),
        np.array([scales[name].centre if name in scales else 0.0 for name in schema.columns], np.float64),
        np.array([1.0 / scales[name].unit if name in scales else 1.0 for name in schema.columns], np.float64),
        schema.tokens.words,
        schema.tokens.pairs,
        np.uint64(least),
        np.uint64(most),
        np.uint64(slots),
        labels == "real",
        keep_unlabelled,
    )
    return layout, term_table(interactions, numbers), len(numbers)


def make_schema(
    names: Sequence[str],
    guess: Callable[[int], Kind],
    *,
    label: str | None = None,
    weight: str | None = None,
    columns: Iterable[str] | None = None,
    categorical: Iterable[str] = (),
    numeric: Iterable[str] = (),
    text: Iterable[str] = (),
    ignore: Iterable[str] = (),
    tokens: Tokens | None = None,
    interactions: Iterable[Iterable[str]] = (),
    seed: int = 0,
    missing: Iterable[str] = (),
) -> Schema:
    """A schema from what a user says about some columns; `guess(i)` decides the rest.

    `columns`: the only ones that features are made of. Every name must be one of the table's.
    """
    said: dict[str, Kind] = {}
    for kind, chosen in (
        ("categorical", categorical),
        ("numeric", numeric),
        ("text", text),
        ("ignored", ignore),
        ("label", [label] if label is not None else []),
        ("weight", [weight] if weight is not None else []),
    ):
        for name in chosen:
            if name not in names:
                raise SpecError(f"{kind} must name columns of the table ({', '.join(names)}), got {name!r}")
            if said.setdefault(name, kind) != kind:  # type: ignore[arg-type]
                raise SpecError(f"a column must have one meaning, got {said[name]} and {kind} for {name!r}")
    chosen_columns = None if columns is None else list(columns)
    for name in chosen_columns or ():
        if name not in names:
            raise SpecError(f"columns must name columns of the table ({', '.join(names)}), got {name!r}")
    kinds: list[Kind] = []
    for i, name in enumerate(names):
        feature = name not in said or said[name] not in ("label", "weight")
        if feature and chosen_columns is not None and name not in chosen_columns:
            kinds.append("ignored")
        else:
            kinds.append(said[name] if name in said else guess(i))
    return Schema(
        columns=tuple(names),
        kinds=tuple(kinds),
        tokens=tokens or Tokens(),
        interactions=tuple(tuple(terms) for terms in interactions),
        seed=seed,
        missing=tuple(sorted(set(missing))) or msgspec.UNSET,
    )
