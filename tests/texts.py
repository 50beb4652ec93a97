"""For tests of readers: random svmlight lines, hostile text, compressors, all chunks of some files, plain rows."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable

import numpy as np
import zstandard
from hypothesis import strategies as st

from lessram.data.batch import Batch
from lessram.data.source import PADDING, Chunk, ChunkReader, Place, TextBuffer

COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda text: text,
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}
PACKED = [name for name in COMPRESSORS if name != "plain"]


def example_text(rows: int, seed: int = 0) -> bytes:
    chance = np.random.default_rng(seed)
    lines = []
    for _ in range(rows):
        ids = chance.integers(0, 5000, chance.integers(0, 30))
        values = chance.choice(["1", "0.5", "-2.25", "1e-3"], len(ids))
        lines.append(f"{chance.integers(2)} " + " ".join(f"{i}:{v}" for i, v in zip(ids, values, strict=True)))
    return "".join(f"{line}\n" for line in lines).encode()


def chunks_of(paths: list[str], capacity: int = 1000, start: Place | None = None) -> list[tuple[bytes, Chunk]]:
    reader, buffer = ChunkReader(paths, start), TextBuffer(capacity)
    chunks = []
    while (chunk := reader.read(buffer)) is not None:
        assert len(chunk.text) == chunk.size + PADDING
        assert not chunk.text[chunk.size :].any()
        chunks.append((chunk.text[: chunk.size].tobytes(), chunk))
    return chunks


def rows_of(batch: Batch) -> list[tuple[float, float, list[tuple[int, float]]]]:
    """The label, the weight and the features of each row."""
    values = np.ones(batch.features, np.float32) if batch.values is None else batch.values
    weights = np.ones(batch.rows, np.float32) if batch.weights is None else batch.weights
    return [
        (label, weight, list(zip(batch.slots[a:b].tolist(), values[a:b], strict=True)))
        for label, weight, a, b in zip(batch.labels, weights, batch.indptr[:-1], batch.indptr[1:], strict=True)
    ]


@st.composite
def mutated(draw: st.DrawFn, lines: list[bytes], letters: bytes) -> bytes:
    """Some of these lines with up to four bytes overwritten, mostly by letters that mean something."""
    text = bytearray(b"\n".join(draw(st.lists(st.sampled_from(lines), min_size=1, max_size=6))) + b"\n")
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(text) - 1))
        text[place] = draw(st.one_of(st.sampled_from(letters), st.integers(0, 255)))
    return bytes(text)
