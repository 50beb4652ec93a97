"""svmlight text in the plainest Python: what the fast parser is compared with. Imports nothing of lessram."""

from __future__ import annotations

import re

import numpy as np

NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
WORDS = 1 << 64


def hash_number(number: int, seed: int) -> int:
    """The splitmix64 finaliser of the number, under a spread seed."""

    def finalise(z: int) -> int:
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORDS
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORDS
        return z ^ (z >> 31)

    golden = 0x9E3779B97F4A7C15
    return finalise((number + 1) * golden % WORDS ^ finalise((seed + golden) % WORDS))


def read_float32(word: str) -> np.float32:
    if not NUMBER.fullmatch(word):
        raise ValueError(word)
    with np.errstate(over="ignore", under="ignore"):
        value = np.float32(float(word))
    if not np.isfinite(value):
        raise ValueError(word)
    return value


def read_label(word: str, labels: str) -> np.float32:
    label = read_float32(word)
    if labels == "real":
        return label
    if label not in (-1, 0, 1):
        raise ValueError(word)
    return np.float32(1 if label == 1 else 0)


def read_slot(word: str, slots: int, hash: str, seed: int) -> tuple[int, bool]:
    """The slot, and whether the index was hashed for it."""
    if not re.fullmatch("[0-9]+", word) or int(word) >= WORDS:
        raise ValueError(word)
    index = int(word)
    if hash == "all" or (hash == "auto" and index >= slots):
        return hash_number(index, seed) % slots, True
    if index >= slots:
        raise ValueError(word)
    return index, False


def read_lines(
    text: bytes, *, slots: int, hash: str = "auto", seed: int = 0, labels: str = "binary"
) -> tuple[list[tuple[np.float32, list[int], list[np.float32]]], list[int], int]:
    """All rows (label, slots, values), the numbers of the bad lines, and how many ids were hashed."""
    rows, bad, hashed = [], [], 0
    for number, line in enumerate(text.decode("latin-1").split("\n"), 1):
        words = re.split("[ \t\v\f\r]+", line.partition("#")[0].strip(" \t\v\f\r"))
        if words == [""]:
            continue
        try:
            label = read_label(words[0], labels)
            found = [word for word in words[1:] if not word.startswith("qid:")]
            pairs = [word.split(":", 1) if ":" in word else (word, "1") for word in found]
            placed = [read_slot(index, slots, hash, seed) for index, _ in pairs]
            values = [read_float32(value) for _, value in pairs]
        except ValueError:
            bad.append(number)
            continue
        kept = [(slot, value) for (slot, _), value in zip(placed, values, strict=True) if value != 0]
        rows.append((label, [slot for slot, _ in kept], [value for _, value in kept]))
        hashed += sum(was_hashed for _, was_hashed in placed)
    return rows, bad, hashed
