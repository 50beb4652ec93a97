"""A reader of served files written from docs/served-format.md alone, in plain Python integers."""

from __future__ import annotations

from typing import Any

MASK = (1 << 64) - 1


def read_slots(tensors: dict[str, Any], store: dict[str, Any], slots: list[int]) -> list[int]:
    """The values of slots, in units of the grid."""
    common = patterns(tensors, store)
    return [read_slot(tensors, store, common, slot) for slot in slots]


def read_slot(tensors: dict[str, Any], store: dict[str, Any], common: list[list[int]], slot: int) -> int:
    """The value of a slot; `common` are the patterns."""
    size = store["group_size"]
    group, position = divmod(slot, size)
    bits = codeword(tensors, store, group)
    symbol, length = read_symbol(bits, tensors["lengths"][0])
    if symbol == store["exception"]:
        row = tensors["exception_groups"].tolist().index(group)
        return int(tensors["exception_values"][row * size + position])
    if symbol == store["escape"]:
        values, _ = read_escape(bits >> length, tensors, store)
        return values[position]
    special = (store["escape"], store["exception"])
    number = symbol - sum(0 <= place < symbol for place in special)
    return common[number][position]


def codeword(tensors: dict[str, Any], store: dict[str, Any], group: int) -> int:
    """The first 64 bits of a group's codeword, bit by bit."""
    superblock = group >> store["group_shift"]
    segment = superblock >> store["segment_shift"]
    fraction = (group << (32 - store["group_shift"])) & 0xFFFFFFFF
    first, behind = (int(tensors["anchors"][superblock + segment + k]) for k in (0, 1))
    start = int(tensors["bases"][segment]) + first + (fraction * (behind - first) >> 32)
    low = group * 0x9E3779B97F4A7C15 & MASK
    low = (low ^ low >> 32) * 0xBF58476D1CE4E5B9 & MASK
    low ^= low >> 29
    high = low * 0x94D049BB133111EB & MASK
    high ^= high >> 31
    polynomial = ((high & (1 << 44) - 1) | 1 << 43) << 64 | low
    mirrored = int(f"{polynomial:0108b}"[::-1], 2)
    window = int.from_bytes(tensors["bits"][start // 8 : start // 8 + 24].tobytes(), "little") >> start % 8
    return sum(((window >> j & mirrored).bit_count() & 1) << j for j in range(64))


def read_symbol(bits: int, lengths: Any) -> tuple[int, int]:
    """The symbol that bits begin with, first bit lowest, and the length of its codeword."""
    code = symbol = 0
    for length, count in enumerate(int(count) for count in lengths):
        if length:
            code <<= 1
        prefix = int(f"{bits & (1 << length) - 1:0{length}b}"[::-1] or "0", 2) if length else 0
        if prefix - code < count:
            return symbol + prefix - code, length
        code += count
        symbol += count
    raise AssertionError("no codeword fits")


def read_escape(bits: int, tensors: dict[str, Any], store: dict[str, Any]) -> tuple[list[int], int]:
    """The values of a group that is written as an escape, and its length."""
    values: list[int] = []
    total = 0
    while len(values) < store["group_size"]:
        symbol, length = read_symbol(bits, tensors["lengths"][1])
        bits, total = bits >> length, total + length
        zeros = int(tensors["runs"][symbol])
        if zeros == store["group_size"]:
            values += [0] * (zeros - len(values))
            break
        values += [0] * zeros
        symbol, length = read_symbol(bits, tensors["lengths"][2])
        bits, total = bits >> length, total + length
        value = int(tensors["values"][symbol])
        if value == 0:
            raw = store["raw_bits"]
            value = bits & (1 << raw) - 1
            value -= (value >> raw - 1) << raw
            bits, total = bits >> raw, total + raw
        values.append(value)
    return values, total


def patterns(tensors: dict[str, Any], store: dict[str, Any]) -> list[list[int]]:
    """All common groups."""
    string = int.from_bytes(tensors["patterns"].tobytes(), "little")
    count = int(tensors["lengths"][0].sum()) - (store["escape"] >= 0) - (store["exception"] >= 0)
    found = []
    for _ in range(count):
        values, length = read_escape(string & MASK, tensors, store)
        string >>= length
        found.append(values)
    return found
