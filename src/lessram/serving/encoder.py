"""Groups to a ribbon: coded and solved segment by segment, by several threads if asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.serving.builder import SEGMENT_BITS, SUPERBLOCK_BITS, Items, TooLarge, Workspace, solve
from lessram.serving.group_code import GroupCode, group_writer, symbols_of
from lessram.serving.groups import EXCEPTION, GroupWriter, write_groups
from lessram.serving.pieces import Pieces, Units
from lessram.serving.ribbon import PADDING

_MOST_SEGMENT_SLOTS = 1 << 22  # so that memory stays small where values cost next to nothing


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
