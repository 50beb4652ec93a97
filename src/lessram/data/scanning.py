"""Looking at text many bytes at a time: unaligned words, 64 bytes compared at once, marks for a whole text.

Kernels that scan text walk from delimiter to delimiter; byte loops would be five times slower. All
loads are unaligned and little-endian. They may touch up to 64 bytes behind their position, so that every
text has `PADDING` readable bytes behind it; none of them looks at memory before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from lessram.jit import inlined, intrinsic, types
from lessram.numerics.memory_words import byte_address, load_word, trailing_zeros

LANES = 64
"""Bytes that one mask looks at."""

_I8, _I32, _I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_VECTOR = ir.VectorType(_I8, LANES)


@intrinsic
def load32(typingctx, buffer, index):  # type: ignore[no-untyped-def]
    """The four bytes from `buffer[index]` on as one uint32, aligned or not; nothing is checked."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        address = byte_address(context, builder, signature.args[0], *args)
        word = builder.load(builder.bitcast(address, _I32.as_pointer()))
        word.align = 1
        return word

    return types.uint32(buffer, types.uint64), codegen


@intrinsic
def choose(typingctx, condition, first, second):  # type: ignore[no-untyped-def]
    """`first if condition else second` without a jump: both are computed, so neither is ever mispredicted."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.select(args[0], args[1], args[2])

    return first(types.boolean, first, first), codegen


def mask_of(characters: Iterable[int], up_to: int | None = None, from_on: int | None = None) -> Any:
    """An intrinsic `mask(buffer, index)`: bit i says whether `buffer[index + i]` is one of the characters.

    With `up_to`, all bytes not above it count too: `up_to=32` is white space and all control characters. With
    `from_on`, all bytes not below it: `from_on=128` is all that is not ASCII.
    """
    chosen = tuple(characters)

    def operation(typingctx, buffer, index):  # type: ignore[no-untyped-def]
        def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
            address = byte_address(context, builder, signature.args[0], *args)
            block = builder.load(builder.bitcast(address, _VECTOR.as_pointer()))
            block.align = 1
            tests = [builder.icmp_unsigned("==", block, ir.Constant(_VECTOR, [c] * LANES)) for c in chosen]
            if up_to is not None:
                tests.append(builder.icmp_unsigned("<=", block, ir.Constant(_VECTOR, [up_to] * LANES)))
            if from_on is not None:
                tests.append(builder.icmp_unsigned(">=", block, ir.Constant(_VECTOR, [from_on] * LANES)))
            found = tests[0]
            for test in tests[1:]:
                found = builder.or_(found, test)
            return builder.bitcast(found, _I64)

        return types.uint64(buffer, types.uint64), codegen

    operation.__doc__ = (
        f"Which of the 64 bytes from `buffer[index]` on are among {chosen!r}, at most {up_to} or at least {from_on}."
    )
    return intrinsic(operation)


def mask_of_range(first: bytes, last: bytes) -> Any:
    """An intrinsic `mask(buffer, index)`: bit i says whether `buffer[index + i]` is from `first` to `last`."""
    lowest, width = first[0], last[0] - first[0]

    def operation(typingctx, buffer, index):  # type: ignore[no-untyped-def]
        def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
            block = builder.load(
                builder.bitcast(byte_address(context, builder, signature.args[0], *args), _VECTOR.as_pointer())
            )
            block.align = 1
            above = builder.sub(block, ir.Constant(_VECTOR, [lowest] * LANES))
            return builder.bitcast(builder.icmp_unsigned("<=", above, ir.Constant(_VECTOR, [width] * LANES)), _I64)

        return types.uint64(buffer, types.uint64), codegen

    operation.__doc__ = f"Which of the 64 bytes from `buffer[index]` on are from {first!r} to {last!r}."
    return intrinsic(operation)


@intrinsic
def mask_equal(typingctx, buffer, index, character):  # type: ignore[no-untyped-def]
    """Which of the 64 bytes from `buffer[index]` on equal `character`, known only when the kernel runs."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        address = byte_address(context, builder, signature.args[0], args[0], args[1])
        block = builder.load(builder.bitcast(address, _VECTOR.as_pointer()))
        block.align = 1
        lane = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), args[2], _I32(0))
        lanes = ir.Constant(ir.VectorType(_I32, LANES), None)
        wanted = builder.shuffle_vector(lane, ir.Constant(_VECTOR, ir.Undefined), lanes)
        return builder.bitcast(builder.icmp_unsigned("==", block, wanted), _I64)

    return types.uint64(buffer, types.uint64, types.uint8), codegen


def room_for_marks(size: int) -> NDArray[np.uint64]:
    """Room for the marks of a text of so many bytes."""
    return np.empty(size // LANES + 2, np.uint64)


def marking(mask: Any) -> Any:
    """An inlined function `mark(text, start, size, marks, *more)`: bit i of `marks` says if `mask` finds `text[i]`.

    From `start` to `size`, inclusive. Walking along marks that are there already needs no jump that depends on where a
    block of 64 bytes ends. `more`: further arguments of the mask.
    """

    @inlined
    def mark(text, start, size, marks, *more):  # type: ignore[no-untyped-def]
        behind = size // np.uint64(LANES) + np.uint64(1)
        for block in range(start // np.uint64(LANES), behind):
            marks[block] = mask(text, block * np.uint64(LANES), *more)
        marks[behind] = np.uint64(0)

    return mark


@inlined
def marks_from(marks, p):  # type: ignore[no-untyped-def]
    """The marks from `p` on, at least 57 of them: bit i is that of `p + i`."""
    return load_word(marks, p >> np.uint64(3)) >> (p & np.uint64(7))


@inlined
def next_mark(marks, p):  # type: ignore[no-untyped-def]
    """The first place from `p` on that is marked; there must be one."""
    found = marks_from(marks, p)
    while found == np.uint64(0):
        p = (p | np.uint64(7)) + np.uint64(57)
        found = load_word(marks, p >> np.uint64(3))
    return p + trailing_zeros(found)
