"""Broken text through every parser, as much as one likes: `python tools/fuzz_parsers.py [--lines N] [FORMAT...]`.

A case is some well-formed lines with bytes overwritten, cut out and doubled. The text ends at a page that nobody may
touch, and so does every array that a kernel writes rows to: whoever looks or writes outside ends the process. And what
comes of the whole text must be what comes of its lines one by one, which are too short for the ways of reading several
things at once.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from guarded import guarded_array, guarded_chunk

from lessram.data import parsing, rows
from lessram.data.csv import CsvOptions, CsvParser
from lessram.data.jsonl import JsonParser
from lessram.data.parsing import Parsed, RowBuffers, make_rules
from lessram.data.rows import ParsedPart
from lessram.data.schema import Schema, Tokens
from lessram.data.svmlight import parse
from lessram.data.vw import VwOptions, VwParser

SLOTS, EVERY = 1 << 18, 10**9
SCHEMA = Schema(
    columns=("click", "site", "price", "note"),
    kinds=("label", "categorical", "numeric", "text"),
    tokens=Tokens(pairs=True),
    interactions=(("site", "price"),),
)
LETTERS = b" \n\r\t|:'\"\\,.-+eE#{}[]0123456789ax\x00\xff\xc3"
HOSTILE = [
    "1e39",
    "1e-50",
    "nan",
    "inf",
    "0x1p3",
    "1" * 25,
    "0." + "3" * 30,
    "-0",
    "+.5",
    "5.",
    "",
    "18446744073709551616",
]


def number(chance: random.Random) -> str:
    if chance.random() < 0.02:
        return chance.choice(HOSTILE)
    return chance.choice(["1", str(chance.randrange(10)), f"{chance.gauss(0, 1):.{chance.randrange(1, 10)}f}"])


def word(chance: random.Random) -> str:
    return "".join(chance.choices("abcdefghijklmnop0123456789_-", k=chance.randrange(1, 18)))


def svmlight_line(chance: random.Random) -> str:
    one = chance.choice([lambda: "1", lambda: f"{chance.random():.{chance.randrange(1, 9)}f}", lambda: number(chance)])
    ids = [chance.randrange(10 ** chance.randrange(1, 9)) for _ in range(chance.randrange(20))]
    return " ".join([chance.choice(["0", "1", "-1", "+1"]), *(f"{i}:{one()}" for i in ids)])


def vw_line(chance: random.Random) -> str:
    head = chance.choice(["1", "-1", "0", "1 2.5", "-1 0.5 0.25 'tag", "", "'tag"])
    spaces = []
    for _ in range(chance.randrange(1, 4)):
        name = chance.choice(["", "a", "user", "user:0.5", word(chance)])
        valued = chance.random() < 0.3
        names = [word(chance) + (f":{number(chance)}" if valued else "") for _ in range(chance.randrange(12))]
        spaces.append(" ".join([name, *names]))
    return f"{head} |" + " |".join(spaces)


def csv_line(chance: random.Random) -> str:
    note = " ".join(word(chance) for _ in range(chance.randrange(6)))
    cells = [
        chance.choice("01"),
        word(chance),
        number(chance),
        chance.choice([note] * 40 + [f'"{note}"', f'"{note}"",x"']),
    ]
    return ",".join(cells)


def json_line(chance: random.Random) -> str:
    note = " ".join(word(chance) for _ in range(chance.randrange(6)))
    pairs = [
        f'"click":{chance.choice("01")}',
        f'"site": "{word(chance)}"',
        f'"price":{number(chance)}',
        f'"note":"{note}"',
    ]
    chance.shuffle(pairs)
    return (
        "{" + ", ".join(pairs[: chance.randrange(5)] + [f'"{word(chance)}":[1,{{"a":2}}]'] * chance.randrange(2)) + "}"
    )


def svmlight() -> Callable[[bytes], Any]:
    rules = make_rules(SLOTS)
    return lambda text: parse(guarded_chunk(text), RowBuffers(rules), rules, tolerate=EVERY)


def parser_of(make: Callable[[], Any]) -> Callable[[], Callable[[bytes], Any]]:
    return lambda: lambda text: make().parse(guarded_chunk(text), tolerate=EVERY)


FORMATS: dict[str, tuple[Callable[[random.Random], str], Callable[[], Callable[[bytes], Any]]]] = {
    "svmlight": (svmlight_line, svmlight),
    "vw": (vw_line, parser_of(lambda: VwParser(SLOTS))),
    "vw, products": (vw_line, parser_of(lambda: VwParser(SLOTS, VwOptions(interactions=("au",), hash="all")))),
    "csv": (csv_line, parser_of(lambda: CsvParser(SCHEMA, SLOTS, CsvOptions(header=False)))),
    "csv, no quotes": (csv_line, parser_of(lambda: CsvParser(SCHEMA, SLOTS, CsvOptions(header=False, quote="")))),
    "jsonl": (json_line, parser_of(lambda: JsonParser(SCHEMA, SLOTS))),
}


def broken(chance: random.Random, text: bytearray) -> bytes:
    """The text with some bytes overwritten, cut out, doubled; sometimes as it was."""
    for _ in range(chance.choice([0, 0, 1, 2, 5])):
        place, length = chance.randrange(len(text) + 1), chance.randrange(1, 20)
        kind = chance.randrange(4)
        if kind < 2:
            text[place : place + 1] = bytes([chance.choice(LETTERS) if kind else chance.randrange(256)])
        else:
            text[place : place + length] = text[place : place + length] * (2 * (kind - 2))
    return bytes(text)


def found_in(part: Parsed | ParsedPart) -> tuple[list[Any], int]:
    """The rows, numbers as their bits, and how many lines were bad."""
    batch = part.batch
    values = np.ones(batch.features, np.float32) if batch.values is None else batch.values
    weights = np.ones(batch.rows, np.float32) if batch.weights is None else batch.weights
    spans = [slice(*batch.indptr[row : row + 2]) for row in range(batch.rows)]
    rows = [
        (label.tobytes(), weight.tobytes(), batch.slots[span].tobytes(), values[span].tobytes())
        for label, weight, span in zip(batch.labels, weights, spans, strict=True)
    ]
    return rows, part.bad


def lines_apart(text: bytes, quote: bool) -> list[bytes]:
    """The lines of a text; the whole of it where a quoted cell may hold a newline."""
    return [text] if quote and b'"' in text else text.split(b"\n")


def run(name: str, lines: int, chance: random.Random) -> tuple[int, int]:
    """Run cases until so many lines were read. Returns how many those were, and how many rows they gave."""
    line, make = FORMATS[name]
    read, done, rows = make(), 0, 0
    while done < lines:
        text = "\n".join(line(chance) for _ in range(chance.randrange(1, 30)))
        text = broken(chance, bytearray((text + chance.choice(["", "\n", "\r\n", " \n"])).encode()))
        whole, parts = found_in(read(text)), lines_apart(text, quote=name == "csv")
        apart = [found_in(read(part)) for part in parts]
        expected = [row for found, _ in apart for row in found], sum(bad for _, bad in apart)
        if whole != expected:
            raise SystemExit(f"{name}: the lines of this text are read otherwise one by one: {text!r}")
        done, rows = done + text.count(b"\n") + 1, rows + len(whole[0])
    return done, rows


def guard_what_is_written() -> None:
    """Rows go to arrays as long as a parser asks for, which end at a page that nobody may touch."""

    def room(self: Any, most: int, features: int) -> rows.Rows:
        kinds = [(most, "f4"), (most, "f4"), (most + 1, "i8"), (features, self._dtype), (features, "f4")]
        return rows.Rows(*_guarded(kinds))

    def allocate(self: Any, most: int) -> parsing.Columns:
        return parsing.Columns(*_guarded([(most, "f4"), (most + 1, "i8"), (most, self._dtype), (most, "f4")]))

    rows.Room._rows = room  # type: ignore[method-assign]
    parsing.RowBuffers._allocate = allocate  # type: ignore[method-assign]
    rows.roomy = parsing.roomy = lambda most: most


_rooms = itertools.cycle(range(2))  # what is in one goes over into the next


def _guarded(kinds: list[tuple[int, Any]]) -> Iterator[NDArray[Any]]:
    room = next(_rooms)
    return (guarded_array((room, number), size, kind) for number, (size, kind) in enumerate(kinds))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("formats", nargs="*", metavar="FORMAT", help=f"any of {', '.join(FORMATS)}; default all")
    options.add_argument("--lines", type=int, default=100_000, help="of each format; default 100,000")
    options.add_argument("--seed", type=int, help="default: another one every time")
    chosen = options.parse_args()
    seed = random.randrange(10**9) if chosen.seed is None else chosen.seed
    guard_what_is_written()
    for name in chosen.formats or FORMATS:
        start = time.perf_counter()
        done, rows = run(name, chosen.lines, random.Random(f"{seed} {name}"))
        seconds = time.perf_counter() - start
        print(f"{name}: {done:,} lines, {rows:,} rows, {seconds:.0f} s, seed {seed}: nothing wrong", flush=True)


if __name__ == "__main__":
    main()
