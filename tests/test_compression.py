"""Compressed sources: members, truncation, damage, memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import zstandard
from texts import COMPRESSORS, PACKED, chunks_of, example_text

from lessram.data import source
from lessram.data.source import ChunkReader, TextBuffer
from lessram.errors import DataError


@pytest.mark.parametrize("name", PACKED)
def test_several_members_and_zeros_behind(tmp_path: Path, name: str) -> None:
    parts = [example_text(50, seed) for seed in range(3)]
    path = tmp_path / "file"
    path.write_bytes(b"".join(map(COMPRESSORS[name], parts)) + bytes(1024))
    assert b"".join(piece for piece, _ in chunks_of([str(path)])) == b"".join(parts)


@pytest.mark.parametrize("name", PACKED)
def test_an_empty_compressed_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(COMPRESSORS[name](b""))
    assert chunks_of([str(path)]) == []


@pytest.mark.parametrize("name", PACKED)
def test_every_truncation_is_an_error(tmp_path: Path, name: str) -> None:
    packed = COMPRESSORS[name](example_text(40))
    path = tmp_path / "cut"
    for size in [*range(6, 40), *range(40, len(packed), 37), len(packed) - 1]:
        path.write_bytes(packed[:size])
        with pytest.raises(DataError, match=f"cut: found the end of the file in the middle of its {name} data"):
            chunks_of([str(path)])


@pytest.mark.parametrize("name", PACKED)
def test_damage_is_an_error(tmp_path: Path, name: str) -> None:
    text = example_text(200)
    packed = bytearray(COMPRESSORS[name](text))
    packed[len(packed) // 2] ^= 0x55
    path = tmp_path / "damaged"
    path.write_bytes(packed)
    if name == "zstd":  # which writes no checksum unless asked to
        packed = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(text))
        packed[len(packed) // 2] ^= 0x55
        path.write_bytes(packed)
    with pytest.raises(DataError, match=f"damaged: found (damaged {name} data|the end of the file)"):
        chunks_of([str(path)])


@pytest.mark.parametrize("name", PACKED)
def test_other_bytes_behind_are_an_error(tmp_path: Path, name: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(COMPRESSORS[name](b"1 2:1\n") + b"1 3:1\n")
    with pytest.raises(DataError, match=f"file: found other bytes behind the {name} data, expected nothing there"):
        chunks_of([str(path)])


def test_zstd_frames_without_text_are_skipped(tmp_path: Path) -> None:
    skippable = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"note"
    path = tmp_path / "file"
    path.write_bytes(skippable + COMPRESSORS["zstd"](b"1 2:1\n") + skippable)
    assert [piece for piece, _ in chunks_of([str(path)])] == [b"1 2:1\n"]


@pytest.mark.parametrize("name", PACKED)
def test_a_small_file_of_much_text_needs_little_memory(tmp_path: Path, name: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(COMPRESSORS[name](b"1 2:1\n" * (1 << 20)))
    reader, buffer, size = ChunkReader([str(path)]), TextBuffer(), 0
    while (chunk := reader.read(buffer)) is not None:
        size += chunk.size
        assert buffer.capacity == source.CHUNK
    assert size == 6 << 20
