"""Text for tests of readers: random svmlight lines, compressors, all chunks of some files."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable

import numpy as np
import zstandard

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
