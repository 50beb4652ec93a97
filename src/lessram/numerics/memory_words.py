"""Words of memory at any address, and questions about their bits: what the text parsers are made of.

All of it is portable LLVM: one instruction where the processor has it, a short sequence where not. Words
are little-endian, as is every machine that Numba compiles for: the first byte in memory is the lowest.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from lessram.jit import cgutils, intrinsic, types

_BIT, _I8, _I64, _I128 = ir.IntType(1), ir.IntType(8), ir.IntType(64), ir.IntType(128)


def byte_address(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    """Where a byte of an array of bytes lies, for those who write instructions."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(builder.bitcast(data, _I8.as_pointer()), [index])


@intrinsic
def load_word(typingctx, text, index):  # type: ignore[no-untyped-def]
    """The 8 bytes of `text` (uint8) from `index` on as one uint64, aligned or not; nothing is checked."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        address = byte_address(context, builder, signature.args[0], args[0], args[1])
        word = builder.load(builder.bitcast(address, _I64.as_pointer()))
        word.align = 1
        return word

    return types.uint64(text, types.uint64), codegen


@intrinsic
def store_word(typingctx, text, index, word):  # type: ignore[no-untyped-def]
    """Write a uint64 to the 8 bytes of `text` (uint8) from `index` on, aligned or not; nothing is checked."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        address = byte_address(context, builder, signature.args[0], args[0], args[1])
        builder.store(args[2], builder.bitcast(address, _I64.as_pointer())).align = 1
        return context.get_dummy_value()

    return types.void(text, types.uint64, types.uint64), codegen


@intrinsic
def trailing_zeros(typingctx, x):  # type: ignore[no-untyped-def]
    """How many of the low bits of a uint64 are 0; 64 for 0."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        kind = ir.FunctionType(_I64, [_I64, _BIT])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.cttz.i64")
        return builder.call(function, [args[0], _BIT(0)])

    return types.uint64(types.uint64), codegen


@intrinsic
def bits_set(typingctx, x):  # type: ignore[no-untyped-def]
    """How many bits of a uint64 are 1."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), codegen


@intrinsic
def leading_zeros(typingctx, x):  # type: ignore[no-untyped-def]
    """How many of the high bits of a uint64 are 0; 64 for 0."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        kind = ir.FunctionType(_I64, [_I64, _BIT])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.ctlz.i64")
        return builder.call(function, [args[0], _BIT(0)])

    return types.uint64(types.uint64), codegen


@intrinsic
def multiply_high(typingctx, x, y):  # type: ignore[no-untyped-def]
    """The high 64 bits of the 128-bit product of two uint64; the low ones are `x * y`."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        product = builder.mul(builder.zext(args[0], _I128), builder.zext(args[1], _I128))
        return builder.trunc(builder.lshr(product, _I128(64)), _I64)

    return types.uint64(types.uint64, types.uint64), codegen
