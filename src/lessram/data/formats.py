"""Which format a source has, how its features become slots, and the parser that does it.

Form       how the rows of a source are written: svmlight, vw, csv, tsv, jsonl, parquet; not part of a model
Reading    how features become slots: part of a model, because prediction must do the same
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from lessram.data import csv, jsonl
from lessram.data.lines import show
from lessram.data.parsing import RowBuffers, make_rules
from lessram.data.pipeline import Chunks, Parser, Parts
from lessram.data.remote import is_url
from lessram.data.row_reader import RowReader
from lessram.data.rows import ParsedPart
from lessram.data.schema import Schema, Tokens
from lessram.data.source import Chunk, ChunkReader, Place, TextBuffer, expand
from lessram.data.svmlight import parse as parse_svmlight
from lessram.data.vw import VwOptions, VwParser
from lessram.errors import DataError, SpecError

FORMATS = ("auto", "svmlight", "vw", "csv", "tsv", "jsonl", "parquet")
TABLES = ("csv", "tsv", "jsonl", "parquet")
_SHOWN_COLUMNS = 20
_SHOWN_WORDS = 5
_LOOK_AHEAD = 16 << 20
"""Bytes of text that the meaning of columns is looked for in, at most, however long rows are."""

_ENDINGS = {
    "svmlight": (".svm", ".svmlight", ".libsvm"),
    "vw": (".vw",),
    "csv": (".csv",),
    "tsv": (".tsv",),
    "jsonl": (".jsonl", ".ndjson", ".json"),
    "parquet": (".parquet", ".arrow", ".feather"),
}
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
_SVMLIGHT_LINE = re.compile(rb"[-+]?[0-9.]+([ \t]+(qid:)?[0-9]+(:[-+.0-9eE]+)?)*[ \t]*(#.*)?")


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """How the rows of a source are written."""

    name: str
    delimiter: str = ","
    header: bool = True

    @property
    def csv(self) -> csv.CsvOptions:
        """How the cells of a delimited file are parted."""
        if self.name == "tsv":
            return msgspec.structs.replace(csv.TSV, header=self.header)
        return csv.CsvOptions(delimiter=self.delimiter, header=self.header)


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """How features become slots."""

    hash: str = "auto"
    """Of numbered features: auto, all or none. Of Vowpal Wabbit's names: strings (as auto) or all."""
    hash_seed: int = 0
    vw: VwOptions | None = None
    """For Vowpal Wabbit text."""
    schema: Schema | None = None
    """For tables."""

    @property
    def kind(self) -> str:
        return "a table" if self.schema else "Vowpal Wabbit text" if self.vw else "svmlight text"


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """What a user says about features: of columns for tables, of namespaces for Vowpal Wabbit text."""

    hash: str = "auto"
    hash_seed: int = 0
    label: str | None = None
    weight: str | None = None
    columns: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    interactions: tuple[str, ...] = ()
    tokens: Tokens = Tokens()
    scale_columns: bool = True
    """Whether numeric columns are centred and brought to one size (`column_scale.py`)."""
    missing: tuple[str, ...] = ()
    """Words in CSV and TSV that stand for an empty cell."""


class _Peeked:
    """Chunks of which the first can be looked at before they are read."""

    def __init__(self, chunks: Chunks) -> None:
        self._chunks = chunks
        self._seen: list[Chunk] = []

    def peek(self) -> Chunk | None:
        return next(self.ahead(), None)

    def ahead(self) -> Iterator[Chunk]:
        """The next chunks, each looked at when it is asked for: few of them, since all stay in memory until they are
        read."""
        yield from list(self._seen)
        while sum(chunk.size for chunk in self._seen) < _LOOK_AHEAD:
            chunk = self._chunks.read(TextBuffer())
            if chunk is None:
                return
            self._seen.append(chunk)
            yield chunk

    def read(self, buffer: TextBuffer) -> Chunk | None:
        return self._seen.pop(0) if self._seen else self._chunks.read(buffer)


class Stream:
    """Sources opened at a place: to be looked at, then read once."""

    def __init__(self, sources: Sequence[str], form: Form, start: Place | None = None) -> None:
        if form.name not in FORMATS:
            raise SpecError(f"format must be one of {', '.join(FORMATS)}, got {form.name!r}")
        self.paths = expand(sources)
        self._start = start or Place()
        self.notes: list[str] = []
        """What a user should know about what was decided."""
        lines = _Peeked(ChunkReader(self.paths, self._start))
        if form.name == "auto":
            form = msgspec.structs.replace(form, name=_detect(self.paths[0], lines))
        self.form, self._kind = form, form.name
        self._chunks: _Peeked = _Peeked(RowReader(lines, form.csv)) if form.name == "csv" and form.csv.quote else lines

    def decide(self, choices: Choices, *, in_python: bool = False) -> Reading:
        """How the features of these sources become slots, from what the user says and what the first rows show.

        `in_python`: whether errors name arguments, not options.
        """
        self._check(choices, in_python)
        if self.form.name == "svmlight":
            return Reading(hash=choices.hash, hash_seed=choices.hash_seed)
        if self.form.name == "vw":
            return Reading(vw=_vw_options(choices))
        schema = self._guess(choices)
        if not schema.features:
            raise SpecError(f"{self.paths[0]}: no column is left to make features of")
        return Reading(schema=schema)

    def _check(self, choices: Choices, in_python: bool) -> None:
        tables = ("label", "weight", "columns", "categorical", "numeric", "text")
        named = ("ignore", "keep", "interactions")
        delimited = self.form.name in ("csv", "tsv")
        refused = {"svmlight": (*tables, *named), "vw": tables}.get(self.form.name, ("keep",))
        for name in refused if delimited else (*refused, "missing"):
            if getattr(choices, name):
                said = f"{name}=" if in_python else f"--{name}"
                raise SpecError(f"{said} does not go with {self._kind} data")
        if self.form.name in TABLES and choices.label is None:
            columns = _shown(self._guess(choices).columns, _SHOWN_COLUMNS)
            needed = 'label="COLUMN"' if in_python else "--label COLUMN"
            raise SpecError(f"{self._kind} data need {needed}; the columns are {columns}")
        if choices.tokens != Tokens() and not choices.text:
            said = "tokens= goes" if in_python else "--text-pairs and --text-characters go"
            raise SpecError(f"{said} with columns of text, and no column is one")

    def _guess(self, choices: Choices) -> Schema:
        said: dict[str, Any] = {
            "label": choices.label,
            "weight": choices.weight,
            "columns": list(choices.columns) or None,
            "categorical": choices.categorical,
            "numeric": choices.numeric,
            "text": choices.text,
            "ignore": choices.ignore,
            "tokens": choices.tokens,
            "interactions": [tuple(terms.split("*")) for terms in choices.interactions],
            "seed": choices.hash_seed,
            "scaled": choices.scale_columns,
        }
        try:
            if self.form.name == "parquet":
                return self._table().guess_schema(**said)  # type: ignore[no-any-return]
            if self.form.name == "jsonl":
                return jsonl.guess_schema(self._first_chunks(), **said)
            sample = csv.Sample(self._first_chunks(), self.form.csv, missing=choices.missing)
            schema = sample.schema(**said)
            self._note(sample.nearly_numeric(schema), choices)
            return schema
        except SpecError as error:  # what was said does not go with the columns of the first file
            raise SpecError(f"{self.paths[0]}: {error}") from None

    def _note(self, nearly_numeric: dict[str, list[str]], choices: Choices) -> None:
        """Tell which columns nobody has called categorical are so by a few words only."""
        found = {name: words for name, words in nearly_numeric.items() if name not in choices.categorical}
        if found:
            self.notes = [_advice(found, choices.missing)]

    def _first_chunk(self) -> Chunk:
        return next(self._first_chunks())

    def _first_chunks(self) -> Iterator[Chunk]:
        """As many as are asked for: the first file may be short, or have no row at all."""
        if self._chunks.peek() is None:
            raise DataError("found nothing in it, expected a table", place=self.paths[0])
        return self._chunks.ahead()

    def _table(self) -> Any:
        from lessram.data.tabular import open_table

        return open_table(self.paths)

    def parts(
        self,
        reading: Reading,
        slots: int,
        *,
        labels: str = "binary",
        keep_unlabelled: bool = False,
        tolerate: Callable[[], int] = lambda: 0,
        threads: int = 1,
    ) -> Iterable[ParsedPart]:
        """Parse everything, in order; `tolerate` says how many more bad lines are allowed."""
        expected = Reading(schema=reading.schema) if self.form.name in TABLES else reading
        if (expected.schema is None) != (self.form.name not in TABLES) or (reading.vw is None) != (
            self.form.name != "vw"
        ):
            raise SpecError(f"the model was trained on {reading.kind}, got {self._kind} data")
        options = {"labels": labels, "keep_unlabelled": keep_unlabelled}
        if self.form.name == "parquet":
            return self._table_parts(reading, slots, {**options, "tolerate": tolerate, "threads": threads})
        return Parts(self._chunks, self._maker(reading, slots, options), tolerate=tolerate, threads=threads)

    def _table_parts(self, reading: Reading, slots: int, options: dict[str, Any]) -> Parts:
        from lessram.data.tabular import table_parts

        assert reading.schema is not None
        table = self._table()
        schema = _arranged(reading.schema, table.arrow_schema.names, self.paths[0], options)
        return table_parts(table, schema, slots, start=self._start, **options)

    def _maker(self, reading: Reading, slots: int, options: dict[str, Any]) -> Callable[[], Parser]:
        if self.form.name == "svmlight":
            return lambda: _SvmlightParser(reading, slots, options["labels"])
        if self.form.name == "vw":
            return lambda: VwParser(slots, reading.vw, **options)
        assert reading.schema is not None
        schema = reading.schema
        if self.form.name == "jsonl":
            if (chunk := self._chunks.peek()) is not None:
                jsonl.check_columns(chunk, schema)
            return lambda: jsonl.JsonParser(schema, slots, **options)
        if self._start.line == 1:  # behind its beginning, a file has no header to look at
            first = self._first_chunk()
            schema = _arranged(schema, csv.column_names(first, self.form.csv), first.name, options)
        return lambda: csv.CsvParser(schema, slots, self.form.csv, **options)


def _advice(columns: dict[str, list[str]], missing: Sequence[str]) -> str:
    """What to say about columns that some words keep from being numeric."""
    words = list(dict.fromkeys(word for found in columns.values() for word in found))
    names = list(columns)
    ways = []
    if len(words) <= _SHOWN_WORDS and all(map(_sayable, words)):
        ways += [f"--missing {shlex.quote(','.join([*missing, *words]))} reads these as empty cells"]
    if len(names) <= _SHOWN_COLUMNS and all(map(_sayable, names)):
        ways += [f"--categorical {shlex.quote(','.join(names))} says that categories are meant"]
    else:
        ways += ["--categorical says that categories are meant"]
    begin = f"columns {_shown(names, _SHOWN_COLUMNS)}" if len(names) > 1 else f"column {_shown(names, 1)}"
    others = _shown(words, _SHOWN_WORDS)
    return f"{begin} became categories, since a few of the first cells are no numbers ({others}): {', '.join(ways)}"


def _sayable(name: str) -> bool:
    """Whether a name can be one of those that an option takes, and be copied from a terminal."""
    return bool(name) and name.isprintable() and "," not in name


def _shown(names: Sequence[str], most: int) -> str:
    more = ", ..." if len(names) > most else ""
    return ", ".join(show(name.encode("utf-8", "surrogateescape")) for name in names[:most]) + more


def _arranged(schema: Schema, columns: Sequence[str], place: str, options: dict[str, Any]) -> Schema:
    if schema.label not in columns and not options["keep_unlabelled"]:
        raise SpecError(f"{place}: the table must have the label, {schema.label!r} is missing")
    return schema.arranged(columns, place)


class TableStream(Stream):
    """A table in memory, or a stream of Arrow, in the place of files."""

    def __init__(self, data: Any, start: Place | None = None, *, columns: Sequence[str] | None = None) -> None:
        from lessram.data.tabular import open_table

        self.paths, self.form, self._kind, self._start = ["table"], Form(name="parquet"), "table", start or Place()
        self.notes = []
        self._source = open_table(data, columns=columns)

    def _table(self) -> Any:
        return self._source


class _SvmlightParser:
    """The svmlight parser with its rules and buffers. For one thread at a time."""

    def __init__(self, reading: Reading, slots: int, labels: str) -> None:
        self._rules = make_rules(slots, hash=reading.hash, hash_seed=reading.hash_seed, labels=labels)
        self._buffers = RowBuffers(self._rules)

    def parse(self, chunk: Chunk, start: Place | None = None, *, tolerate: int = 0) -> ParsedPart:
        parsed = parse_svmlight(chunk, self._buffers, self._rules, tolerate=tolerate)
        return ParsedPart(parsed.batch, parsed.bad, parsed.reports, parsed.hashed, chunk.stop)


def _vw_options(choices: Choices) -> VwOptions:
    return VwOptions(
        hash="all" if choices.hash == "all" else "strings",
        seed=choices.hash_seed,
        ignore="".join(choices.ignore),
        keep="".join(choices.keep),
        interactions=choices.interactions,
    )


def _detect(path: str, lines: _Peeked) -> str:
    """The format of a source, by its name, else by its first line."""
    name = os.path.basename(path.partition("?")[0] if is_url(path) else path).lower()
    for ending in COMPRESSED:
        name = name.removesuffix(ending)
    for form, endings in _ENDINGS.items():
        if name.endswith(endings):
            return form
    if os.path.isfile(path) and _is_columnar(path):  # a pipe must not be opened twice
        return "parquet"
    chunk = lines.peek()
    line = b"" if chunk is None else bytes(chunk.text[: min(chunk.size, 1 << 16)]).split(b"\n", 1)[0].strip()
    if not line or _SVMLIGHT_LINE.fullmatch(line):
        return "svmlight"
    if line.startswith(b"{"):
        return "jsonl"
    if b"|" in line:
        return "vw"
    return "tsv" if b"\t" in line else "csv" if b"," in line else "svmlight"


def _is_columnar(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(6).startswith((b"PAR1", b"ARROW1"))
    except OSError:
        return False  # whoever reads it will say what is wrong
