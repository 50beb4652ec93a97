"""Sixty-four bytes of text in eight lanes, and masks of them: what reading several things at a time is made of.

Needs a processor that permutes and compresses bytes across a register (AVX-512 VBMI); `AVAILABLE` says whether this is
one. Readers have a loop that does without, which is the specification.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir

from lessram.jit import cgutils, inlined, intrinsic, target_features, types
from lessram.numerics.memory_words import bits_set, trailing_zeros

AVAILABLE = {"avx512bw", "avx512cd", "avx512dq", "avx512vbmi", "avx512vbmi2", "bmi2"} <= target_features()

_ONE = np.uint64(1)

# Masks: bit i is about the byte i behind some place.


@inlined
def behind_runs(starts, bits):
    """The places behind the runs of bits that begin at these places: an addition carries through each run."""
    return (starts + bits) & ~bits


@inlined
def ends_before(wrong, ends, newlines):
    """How many ends there are before the first wrong bit and up to the first newline; the newline's place, or 64."""
    right = (wrong & (np.uint64(0) - wrong)) - _ONE
    newline = newlines & right
    line = newline ^ (newline - _ONE)
    return bits_set(ends & right & line), trailing_zeros(newline)


# Lanes, while code is generated.

LANES = 8
BIT, I8, I16, I32, I64 = (ir.IntType(width) for width in (1, 8, 16, 32, 64))
BYTES, BITS, NUMBERS = ir.VectorType(I8, 64), ir.VectorType(BIT, 64), ir.VectorType(I64, LANES)


def call(builder: Any, name: str, result: Any, *arguments: Any) -> Any:
    """Call an instruction by the name that LLVM has for it."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


def word_of(text: bytes) -> int:
    """The number that these bytes are in memory."""
    return int.from_bytes(text, "little")


def all_lanes(number: int) -> Any:
    """The same number in all lanes."""
    return ir.Constant(NUMBERS, [number & (1 << 64) - 1] * LANES)


def bytes_above(builder: Any, lanes: Any, most: int) -> Any:
    """Not 0 in lanes with a byte above that of the same place in `most`."""
    largest = builder.bitcast(all_lanes(most), BYTES)
    above = call(builder, "llvm.usub.sat.v64i8", BYTES, builder.bitcast(lanes, BYTES), largest)
    return builder.bitcast(above, NUMBERS)


def constant(number: Callable[[int], int]) -> Any:
    """number(lane) in all bytes of each lane."""
    return ir.Constant(BYTES, [number(byte // LANES) & 0xFF for byte in range(64)])


def numbered(first: int) -> Any:
    """first, first + 1 ... in the bytes of each lane."""
    return ir.Constant(BYTES, [(byte % 8 + first) & 0xFF for byte in range(64)])


def splat(builder: Any, scalar: Any, count: int) -> Any:
    """The same scalar in all lanes."""
    undefined = ir.Constant(ir.VectorType(scalar.type, count), ir.Undefined)
    one = builder.insert_element(undefined, scalar, I32(0))
    return builder.shuffle_vector(one, undefined, ir.Constant(ir.VectorType(I32, count), [0] * count))


def picked(builder: Any, source: Any, places: Any) -> Any:
    """source[place of each byte], places modulo 64."""
    return call(builder, "llvm.x86.avx512.permvar.qi.512", BYTES, source, places)


def places_of(builder: Any, marks: Any) -> Any:
    """The places of the bits of a word, lowest first, then zeros."""
    numbers, mask = ir.Constant(BYTES, list(range(64))), builder.bitcast(marks, BITS)
    return call(builder, "llvm.x86.avx512.mask.compress.v64i8", BYTES, numbers, ir.Constant(BYTES, [0] * 64), mask)


def from_second_lane(builder: Any, lanes: Any, first: int) -> Any:
    """The lanes, but `first` in all bytes of the first one."""
    return builder.select(ir.Constant(BITS, [byte >= 8 for byte in range(64)]), lanes, constant(lambda lane: first))


@intrinsic
def place_of_mark(typingctx, marks, n):  # type: ignore[no-untyped-def]
    """The place of the n-th bit, from 0 on, that is set in a word."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        marks, n = args
        return builder.cttz(call(builder, "llvm.x86.bmi.pdep.64", I64, builder.shl(I64(1), n), marks), BIT(0))

    return types.uint64(types.uint64, types.uint64), codegen
