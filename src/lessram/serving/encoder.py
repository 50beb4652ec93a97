"""Values to tensors: looked through, planned, counted, coded and solved, piece by piece.

The values are gone through three times, never held at once: to see what occurs, to count the symbols of the code
that was chosen, and to build the ribbon, segment by segment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.errors import SpecError
from lessram.numerics.fixed_point import FixedPoint
from lessram.serving.builder import Items, TooLarge, Workspace, solve
from lessram.serving.escapes import EscapeCode, count_escapes, escape_bits, longest_escape, plan_escapes, writer_of
from lessram.serving.groups import (
    ESCAPE,
    EXCEPTION,
    Dictionary,
    GroupWriter,
    escape_lengths,
    find_symbols,
    make_dictionary,
    unpacked,
    write_groups,
)
from lessram.serving.prefix import Prefix, make_prefix
from lessram.serving.ribbon import LONGEST, PADDING

Values = NDArray[np.integer] | Iterable[NDArray[np.integer]]
Units = NDArray[np.int16]

_PIECE = 1 << 20
_SAMPLE_RUN, _SAMPLE_RUNS = 1 << 14, 128
SUPERBLOCK_BITS = 768
"""Code bits that a superblock should have."""
SEGMENT_BITS = 60_000
"""Code bits that a segment should not go beyond: its columns are numbered by 16 bits."""
_MOST_SEGMENT_SLOTS = 1 << 22


class Pieces:
    """Values as arrays of int16, again and again; those that can be had only once are gathered first."""

    def __init__(self, values: Values, grid: FixedPoint) -> None:
        self._grid = grid
        if isinstance(values, np.ndarray):
            self._pieces: Iterable[NDArray[np.integer]] = [values]
        elif iter(values) is values:
            self._pieces = [self._checked(piece) for piece in values]
        else:
            self._pieces = values

    def _checked(self, piece: NDArray[np.integer]) -> Units:
        piece = np.asarray(piece)
        if piece.dtype.kind not in "iu" or piece.ndim != 1:
            raise SpecError(f"values must be 1-d arrays of integers, got {piece.ndim}-d {piece.dtype}")
        most = self._grid.largest_units
        if piece.size and (int(piece.min()) < -most or int(piece.max()) > most):
            found = int(piece.min()) if int(piece.min()) < -most else int(piece.max())
            raise SpecError(f"values on the grid {self._grid} must be between -{most} and {most}, got {found}")
        return np.ascontiguousarray(piece, np.int16)

    def __iter__(self) -> Iterator[Units]:
        for piece in self._pieces:
            for start in range(0, len(piece), _PIECE):
                yield self._checked(piece[start : start + _PIECE])

    def in_lengths(self, length: int, multiple: int) -> Iterator[Units]:
        """Cut anew into pieces of this length; the last is filled up with zeros to a multiple."""
        waiting: list[Units] = []
        size = 0
        for piece in self:
            waiting.append(piece)
            size += len(piece)
            if size < length:
                continue
            joined = np.concatenate(waiting)
            whole = size - size % length
            for start in range(0, whole, length):
                yield joined[start : start + length]
            waiting, size = [joined[whole:]], size - whole
        if size:
            yield np.concatenate([*waiting, np.zeros(-size % multiple, np.int16)])


class Survey(NamedTuple):
    """What a look through all values tells."""

    slots: int
    counts: NDArray[np.int64]
    """How often each value occurs, at value + 2^15."""
    sample: Units
    """Runs of neighbours from everywhere."""


def survey(pieces: Pieces) -> Survey:
    """Count the values, and keep a sample of bounded size: when it is full, every second run goes."""
    counts = np.zeros(1 << 16, np.int64)
    runs: list[Units] = []
    slots, stride = 0, 1
    for number, piece in enumerate(pieces.in_lengths(_SAMPLE_RUN, 1)):
        counts += np.bincount(piece.astype(np.int64) + (1 << 15), minlength=1 << 16)
        slots += len(piece)
        if number % stride == 0:
            runs.append(piece.copy())
        if len(runs) > _SAMPLE_RUNS:
            runs, stride = runs[::2], 2 * stride
    if slots == 0:
        raise SpecError("found no values to encode, expected at least one")
    return Survey(slots, counts, np.concatenate(runs))


class GroupCode(NamedTuple):
    """The code of groups, settled."""

    dictionary: Dictionary
    prefix: Prefix
    escape: int
    """The escape's place in canonical order; -1 if every group has a pattern."""
    exception: int
    """The exception's; -1 if no escape can be too long."""
    escapes: EscapeCode
    groups: int
    bits: int
    """Of all codewords together, nearly: exceptions are counted as escapes."""


def settle(pieces: Pieces, dictionary: Dictionary, limit: int, raw_bits: int) -> GroupCode:
    """Count the symbols of a dictionary over everything, and make the best code for them."""
    size = int(dictionary.shape.size)
    counts = np.zeros(len(dictionary.patterns) // int(dictionary.shape.words), np.int64)
    runs, values = np.zeros(size + 1, np.int64), np.zeros(1 << 16, np.int64)
    groups = 0
    for units in pieces.in_lengths(_PIECE // size * size, size):
        symbols = symbols_of(units, dictionary)
        groups += len(symbols)
        counts += np.bincount(symbols[symbols >= 0], minlength=len(counts))
        count_escapes(units, size, np.flatnonzero(symbols == ESCAPE), runs, values)
    return _code(dictionary, limit, counts, runs, values, groups, raw_bits)


def symbols_of(units: Units, dictionary: Dictionary) -> NDArray[np.int32]:
    symbols = np.empty(len(units) // int(dictionary.shape.size), np.int32)
    find_symbols(units, dictionary, np.zeros(int(dictionary.shape.words), np.uint64), symbols)
    return symbols


def _code(
    dictionary: Dictionary,
    limit: int,
    counts: NDArray[np.int64],
    runs: NDArray[np.int64],
    values: NDArray[np.int64],
    groups: int,
    raw_bits: int,
) -> GroupCode:
    shape = dictionary.shape
    used = np.flatnonzero(counts)
    patterns = dictionary.patterns.reshape(-1, int(shape.words))[used]
    units = unpacked(patterns.reshape(-1), shape)
    escaped_runs, escaped_values = runs.copy(), values.copy()
    count_escapes(units, int(shape.size), np.arange(len(used)), runs, values)  # patterns are written as escapes
    escapes = plan_escapes(runs, values, raw_bits)
    writer = writer_of(escapes)
    lengths = np.empty(len(used), np.uint64)
    escape_lengths(units, np.arange(len(used)), writer, lengths)
    short = lengths <= LONGEST
    weights, patterns = counts[used[short]], patterns[short]
    escaped = groups - int(weights.sum())
    if escaped:
        exceptions = int(counts[used[~short]].sum())
        weights = np.append(weights, max(escaped - exceptions, 1))
        if longest_escape(writer) > LONGEST - limit:
            weights = np.append(weights, max(exceptions, escaped >> 10, 1))
    order, prefix = make_prefix(weights, limit)
    special = len(patterns)
    bits = int(weights @ prefix.lengths[np.argsort(order)]) + escape_bits(writer, escaped_runs, escaped_values)
    return GroupCode(
        make_dictionary(shape, patterns[order[order < special]].reshape(-1)),
        prefix,
        _place(order, special),
        _place(order, special + 1),
        escapes,
        groups,
        bits,
    )


def _place(order: NDArray[np.int64], symbol: int) -> int:
    return int(np.flatnonzero(order == symbol)[0]) if symbol < len(order) else -1


def group_writer(code: GroupCode) -> GroupWriter:
    """The codewords by the numbers of patterns."""
    lengths, codewords = code.prefix.lengths, code.prefix.codewords
    special = [place for place in (code.escape, code.exception) if place >= 0]
    return GroupWriter(
        np.delete(lengths, special),
        np.delete(codewords, special),
        np.uint64(lengths[code.escape]),  # where there is no escape, some codeword's: it is never asked for
        codewords[code.escape],
        np.uint64(lengths[code.exception]),
        codewords[code.exception],
        writer_of(code.escapes),
    )


class Layout(NamedTuple):
    """How many groups make a superblock, and how many superblocks a segment: powers of two."""

    group_shift: int
    segment_shift: int

    @property
    def segment_groups(self) -> int:
        return 1 << (self.group_shift + self.segment_shift)


def layouts(code: GroupCode) -> Iterator[Layout]:
    """The layout that suits the code, then ever smaller ones for values that are very unevenly spread."""
    mean = max(code.bits / code.groups, 1e-9)
    most = max((_MOST_SEGMENT_SLOTS // int(code.dictionary.shape.size)).bit_length() - 1, 0)
    group_shift = min(max(round(np.log2(SUPERBLOCK_BITS / mean)), 0), most)
    segment_shift = min(max(int(np.log2(SEGMENT_BITS / mean)) - group_shift, 0), most - group_shift)
    for smaller in range(group_shift + segment_shift + 1):
        taken = min(smaller, segment_shift)
        yield Layout(group_shift - (smaller - taken), segment_shift - taken)


class Built(NamedTuple):
    """A solved ribbon, and the groups beside it."""

    layout: Layout
    bits: NDArray[np.uint8]
    bases: NDArray[np.uint64]
    anchors: NDArray[np.uint16]
    exception_groups: NDArray[np.uint64]
    exception_units: Units


class Segment(NamedTuple):
    """A solved segment."""

    words: NDArray[np.uint64]
    anchors: NDArray[np.uint16]
    exception_groups: NDArray[np.uint64]
    exception_units: Units


def build(pieces: Pieces, code: GroupCode, threads: int) -> Built:
    """Code all groups and solve for the ribbon."""
    for layout in layouts(code):
        try:
            return _assemble(layout, list(_segments(pieces, code, layout, threads)))
        except TooLarge:
            continue
    raise AssertionError("a group by itself always finds room")


def _assemble(layout: Layout, segments: list[Segment]) -> Built:
    sizes = np.array([64 * len(segment.words) for segment in segments])
    words = np.concatenate([segment.words for segment in segments])
    return Built(
        layout,
        np.concatenate([words.view(np.uint8), np.zeros(PADDING, np.uint8)]),
        (np.cumsum(sizes) - sizes).astype(np.uint64),
        np.concatenate([segment.anchors for segment in segments]),
        np.concatenate([segment.exception_groups for segment in segments]),
        np.concatenate([segment.exception_units for segment in segments]),
    )


def _segments(pieces: Pieces, code: GroupCode, layout: Layout, threads: int) -> Iterator[Segment]:
    size = int(code.dictionary.shape.size)
    writer = group_writer(code)
    parts = enumerate(pieces.in_lengths(layout.segment_groups * size, size))
    workspaces = [Workspace.new() for _ in range(threads)]

    def segment(number: int, units: Units) -> Segment:
        work = workspaces.pop()
        try:
            return _segment(units, number * layout.segment_groups, code, writer, layout, work)
        finally:
            workspaces.append(work)

    yield from in_order(parts, segment, threads)


def in_order(
    parts: Iterable[tuple[int, Units]], work: Callable[[int, Units], Segment], threads: int
) -> Iterator[Segment]:
    """Work on parts with several threads, a few parts ahead; results in order."""
    if threads == 1:
        yield from (work(*part) for part in parts)
        return
    with ThreadPoolExecutor(threads) as pool:
        running: deque[Future[Segment]] = deque()
        for part in parts:
            running.append(pool.submit(work, *part))
            if len(running) > 2 * threads:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()


def _segment(
    units: Units, first_group: int, code: GroupCode, writer: GroupWriter, layout: Layout, work: Workspace
) -> Segment:
    symbols = symbols_of(units, code.dictionary)
    count = len(symbols)
    lengths, codewords = np.empty(count, np.uint8), np.empty(count, np.uint64)
    write_groups(units, symbols, writer, lengths, codewords)
    identities = np.arange(first_group, first_group + count, dtype=np.uint64)
    shift = 32 - layout.group_shift
    fractions = (identities << np.uint64(shift)) & np.uint64(0xFFFFFFFF)
    superblock = 1 << layout.group_shift
    counts = np.full(-(-count // superblock), superblock, np.int64)
    counts[-1] = count - superblock * (len(counts) - 1)
    anchors = np.zeros(len(counts) + 1, np.uint16)
    words = solve(Items(identities, fractions, lengths, codewords, counts, counts << shift), anchors, work)
    excepted = np.flatnonzero(symbols == EXCEPTION)
    beside = units.reshape(count, -1)[excepted].reshape(-1)
    return Segment(words, anchors, (excepted + first_group).astype(np.uint64), beside)
