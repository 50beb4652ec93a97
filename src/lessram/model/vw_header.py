"""The header of a model that Vowpal Wabbit wrote as text (`--readable_model`, `--invert_hash`).

    Version 9.11.9              these lines in this order, others between them
    bits:18                     2^18 slots
    lda:0
    0 ngram:                    must be none, as must skips: lessram's reader makes no such features
    options: --hash all ...     what the model remembers of its command line
    :1
    l1_state 0.0113             pending regularisation: a weight w counts as trunc(w, l1_state) * l2_state
    l2_state 0.893
    116060:0.219263 5.17 1      from here on the weights: slot, weight, and the rate's state, or name:slot:weight

Options that only say how it was trained are passed over. Those that change what a feature or a prediction is, and
that lessram does not have, are refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from lessram.data.vw import VwOptions
from lessram.errors import FileFormatError

MOST_BITS = 32
"""Vowpal Wabbit hashes names to 32 bits; lessram's larger tables use another hash."""

WEIGHT_LINE = re.compile(r"(?:.*:)?(\d+):([-+0-9.a-zA-Z]+)(?: .*)?")
"""A weight: slot and number, perhaps with a name before them and other numbers behind them."""

_LEARNERS = {"sgd", "adaptive", "invariant", "normalized", "ftrl", "pistol", "coin", "bfgs", "conjugate_gradient"}
_LEARNING = {"power_t", "initial_t", "learning_rate", "l1", "l2", "ftrl_alpha", "ftrl_beta", "loss_function"}
_UNDERSTOOD = {"hash", "hash_seed", "ignore", "keep", "quadratic", "cubic", "interactions", "link", "noconstant"}
_KNOWN = _LEARNERS | _LEARNING | _UNDERSTOOD | {"random_seed", "bit_precision"}
_LINKS = ("identity", "logistic")

Lines = Iterator[tuple[str, str]]
"""Lines, each with its place (file and number)."""


class VwHeader(NamedTuple):
    """What the weights of a Vowpal Wabbit model mean."""

    bits: int
    constant: bool
    reading: VwOptions
    gravity: float
    """What every weight is still to be drawn towards 0 by (`--l1`)."""
    contraction: float
    """What every weight is still to be multiplied by (`--l2`)."""


def read_header(lines: Lines, name: str) -> tuple[VwHeader, tuple[str, str] | None]:
    """The header, and the first line behind it: a weight, or None where there are no weights."""
    fields, first = _fields(lines, name)
    for feature in ("ngram", "skip"):
        if fields.get(feature):
            raise FileFormatError(f"{name}: trained with --{feature} {fields[feature]}, which lessram does not have")
    if fields.get("lda", "0") != "0":
        raise FileFormatError(f"{name}: an --lda model, expected a linear one")
    options = _options(fields.get("options", ""))
    _check_options(options, name)
    header = VwHeader(
        bits=_bits(fields.get("bits"), name),
        constant="noconstant" not in options,
        reading=_reading(options, name),
        gravity=_number(fields, "l1_state", 0.0, name),
        contraction=_number(fields, "l2_state", 1.0, name),
    )
    return header, first


def _fields(lines: Lines, name: str) -> tuple[dict[str, str], tuple[str, str] | None]:
    """Header lines as key and value, up to the first weight."""
    fields: dict[str, str] = {}
    _, version = next(lines, ("", ""))
    if not re.match(r"Version \d+\.", version):
        raise FileFormatError(
            f"{name}: not a readable Vowpal Wabbit model: found {version[:40]!r}, expected 'Version ...' "
            "(write one with `vw --readable_model FILE`; the binary file of `vw -f` cannot be read)"
        )
    marked = False
    for place, line in lines:
        if marked and WEIGHT_LINE.fullmatch(line):
            return fields, (place, line)
        marked |= bool(re.fullmatch(r":\d+", line))
        form = r"(\S+) (.*)" if marked else r"(?:\d+ )?([^:]+):(.*)"  # behind the mark stand words and numbers
        if match := re.fullmatch(form, line):
            fields[match[1].strip()] = match[2].strip()
    if not marked:
        raise FileFormatError(f"{name}: a cut Vowpal Wabbit model: found no end of its header, expected ':0' or ':1'")
    return fields, None


def _bits(found: str | None, name: str) -> int:
    if found is None or not found.isdigit() or not 0 <= int(found) <= MOST_BITS:
        raise FileFormatError(f"{name}: found bits {found!r}, expected a number from 0 to {MOST_BITS}")
    return int(found)


def _number(fields: dict[str, str], key: str, default: float, name: str) -> float:
    try:
        return float(fields.get(key, default))
    except ValueError:
        raise FileFormatError(f"{name}: found {key} {fields[key]!r}, expected a number") from None


def _options(text: str) -> dict[str, list[str]]:
    """The options by name, with all values that each was given.

    >>> _options("--hash all --quadratic ab --quadratic bc --noconstant")
    {'hash': ['all'], 'quadratic': ['ab', 'bc'], 'noconstant': []}
    """
    options: dict[str, list[str]] = {}
    values: list[str] = []
    for word in text.split():
        if word.startswith("--"):
            option, _, value = word[2:].partition("=")
            values = options.setdefault(option, [])
            word = value
        if word:
            values.append(word)
    return options


def _check_options(options: dict[str, list[str]], name: str) -> None:
    unknown = [option for option in options if option not in _KNOWN]
    if unknown:
        listed = ", ".join(f"--{option}" for option in unknown)
        raise FileFormatError(f"{name}: trained with {listed}, which lessram does not have: it would predict otherwise")
    for link in options.get("link", []):
        if link not in _LINKS:
            raise FileFormatError(f"{name}: trained with --link {link}, expected {' or '.join(_LINKS)}")


def _reading(options: dict[str, list[str]], name: str) -> VwOptions:
    interactions = [letters for kind in ("quadratic", "cubic", "interactions") for letters in options.get(kind, [])]
    for letters in interactions:
        if ":" in letters:
            raise FileFormatError(
                f"{name}: trained with products of any namespaces ({letters}), expected named ones such as ab: "
                "which namespaces they stood for is not written in the model"
            )
        if len(letters) not in (2, 3):
            raise FileFormatError(f"{name}: trained with products {letters!r}, expected two or three namespaces")
    try:
        return VwOptions(
            hash="all" if options.get("hash") == ["all"] else "strings",
            seed=int(options.get("hash_seed", ["0"])[-1]),
            ignore="".join(options.get("ignore", [])),
            keep="".join(options.get("keep", [])),
            interactions=tuple(interactions),
        )
    except ValueError:
        raise FileFormatError(f"{name}: found --hash_seed {options['hash_seed'][-1]!r}, expected a number") from None
