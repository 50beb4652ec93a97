"""What Python cannot say to the processor: prefetches, rare branches, 32-bit wrapping arithmetic, bit casts.

Every function here is pure on numbers or has no effect but speed. 32-bit operations exist because
Numba widens uint32 products to uint64, which gives other results and halves the vector width; these
emit the plain 32-bit instruction, so that LLVM vectorises the loops around them. None of them may be
fused or reassociated: AVX-512, AVX2, SSE2 and NEON compute the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from llvmlite import ir

from lessram.jit import cgutils, intrinsic, overloaded, target_features, target_processor, types

CACHE_LINE = 64

_I8, _I32, _I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_F32, _F64 = ir.FloatType(), ir.DoubleType()

_READ, _INTO_L2, _DATA = _I32(0), _I32(2), _I32(1)  # operands of llvm.prefetch


def _prefetch_address(builder: Any, address: Any) -> None:
    signature = ir.FunctionType(ir.VoidType(), [_I8.as_pointer(), _I32, _I32, _I32])
    function = cgutils.get_or_insert_function(builder.module, signature, "llvm.prefetch.p0")
    builder.call(function, [address, _READ, _INTO_L2, _DATA])


@intrinsic
def prefetch(typingctx, array, index):  # type: ignore[no-untyped-def]
    """Ask for `array[index]` to be brought into L2, long before it is used.

    An element that lies on two cache lines costs a whole memory latency if only its first line was
    asked for; for packed 3-byte cells that is one in 32, and asking for both is worth 1.5x at 2^27 slots.
    Both ends are asked for always: a second request for one line costs less than finding out.
    """
    signature = types.void(array, types.uint64)

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        array_type = signature.args[0]
        data = context.make_array(array_type)(context, builder, args[0]).data
        size = context.get_abi_sizeof(context.get_data_type(array_type.dtype))
        start = builder.add(builder.ptrtoint(data, _I64), builder.mul(args[1], _I64(size)))
        _prefetch_address(builder, builder.inttoptr(start, _I8.as_pointer()))
        if CACHE_LINE % size:  # elements whose size does not divide a line may straddle two
            last = builder.add(start, _I64(size - 1))
            _prefetch_address(builder, builder.inttoptr(last, _I8.as_pointer()))
        return context.get_dummy_value()

    return signature, codegen


def prefetch_run(array: Any, start: Any, count: Any) -> None:
    """Ask for `array[start : start + count]`, one request a cache line; of None there is nothing to ask for.

    Nothing is read, so the run may end beyond the array.
    """
    raise NotImplementedError("prefetch_run() is for kernels")


@overloaded(prefetch_run)
def _prefetch_run(array, start, count):  # type: ignore[no-untyped-def]
    if isinstance(array, types.NoneType):
        return lambda array, start, count: None
    elements_a_line = np.uint64(CACHE_LINE // (array.dtype.bitwidth // 8))

    def ask_for_lines(array, start, count):  # type: ignore[no-untyped-def]
        for k in range(np.uint64(0), np.uint64(count), elements_a_line):
            prefetch(array, np.uint64(start) + k)

    return ask_for_lines


@intrinsic
def move_elements(typingctx, array, source, target, count):  # type: ignore[no-untyped-def]
    """array[target : target + count] = array[source : source + count], which may overlap."""
    signature = types.void(array, types.uint64, types.uint64, types.uint64)

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        array_type = signature.args[0]
        data = builder.bitcast(context.make_array(array_type)(context, builder, args[0]).data, _I8.as_pointer())
        size = _I64(context.get_abi_sizeof(context.get_data_type(array_type.dtype)))
        source, target, count = (builder.mul(number, size) for number in args[1:])
        kind = ir.FunctionType(ir.VoidType(), [_I8.as_pointer(), _I8.as_pointer(), _I64, ir.IntType(1)])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.memmove.p0.p0.i64")
        ends = [builder.gep(data, [target]), builder.gep(data, [source])]
        builder.call(function, [*ends, count, ir.IntType(1)(0)])
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def rarely(typingctx, condition):  # type: ignore[no-untyped-def]
    """The condition, and the news that it seldom holds: what is done then is kept out of the loop's way."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        bit = ir.IntType(1)
        expect = cgutils.get_or_insert_function(builder.module, ir.FunctionType(bit, [bit, bit]), "llvm.expect.i1")
        return builder.call(expect, [args[0], bit(0)])

    return types.boolean(types.boolean), codegen


def _binary32(build: Callable[[Any, Any, Any], Any], meaning: str) -> Any:
    def operation(typingctx, a, b):  # type: ignore[no-untyped-def]
        def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
            return build(builder, args[0], args[1])

        return types.uint32(types.uint32, types.uint32), codegen

    operation.__doc__ = meaning
    return intrinsic(operation)


multiply32 = _binary32(lambda b, x, y: b.mul(x, y), "x * y modulo 2^32")
add32 = _binary32(lambda b, x, y: b.add(x, y), "x + y modulo 2^32")


def _cast(source: Any, target: Any, build: Callable[[Any, Any], Any], meaning: str) -> Any:
    def operation(typingctx, x):  # type: ignore[no-untyped-def]
        def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
            return build(builder, args[0])

        return target(source), codegen

    operation.__doc__ = meaning
    return intrinsic(operation)


def _fold(shift: int) -> Any:
    return _cast(
        types.uint32, types.uint32, lambda b, x: b.xor(x, b.lshr(x, _I32(shift))), f"x ^ (x >> {shift}) of 32 bits"
    )


fold14, fold15, fold16 = _fold(14), _fold(15), _fold(16)
small_to_float = _cast(
    types.uint32,
    types.float32,
    lambda b, x: b.sitofp(x, _F32),
    "a word below 2^31 as float32, one instruction everywhere",
)
float_to_bits = _cast(types.float32, types.uint32, lambda b, x: b.bitcast(x, _I32), "the bits of a float32")
bits_to_float = _cast(types.uint32, types.float32, lambda b, x: b.bitcast(x, _F32), "the float32 with these bits")
double_to_bits = _cast(types.float64, types.int64, lambda b, x: b.bitcast(x, _I64), "the bits of a float64")
bits_to_double = _cast(types.int64, types.float64, lambda b, x: b.bitcast(x, _F64), "the float64 with these bits")


_SLOW_PICKS = ("bdver4", "znver1", "znver2")
"""Processors of AMD that take a hundred instructions for PEXT."""


def picker(mask: int, by_instruction: bool | None = None) -> Any:
    """The function of a uint64 that moves the bits under `mask` together, the lowest first.

    One instruction (PEXT) where the processor has a fast one, unless `by_instruction` says otherwise.
    """
    if by_instruction is None:
        by_instruction = "bmi2" in target_features() and target_processor() not in _SLOW_PICKS

    def picked(typingctx, word):  # type: ignore[no-untyped-def]
        def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
            if by_instruction:
                kind = ir.FunctionType(_I64, [_I64, _I64])
                pick = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.bmi.pext.64")
                return builder.call(pick, [args[0], _I64(mask)])
            found = _I64(0)
            for shift, run in _runs_of(mask):
                found = builder.or_(found, builder.and_(builder.lshr(args[0], _I64(shift)), _I64(run)))
            return found

        return types.uint64(types.uint64), codegen

    return intrinsic(picked)


def _runs_of(mask: int) -> Iterator[tuple[int, int]]:
    """For each run of ones in a mask, how far its bits move down and a mask of where they are then.

    >>> [(shift, hex(run)) for shift, run in _runs_of(0xFFE1)]
    [(0, '0x1'), (4, '0xffe')]
    """
    bit = place = 0
    while rest := mask >> bit:
        ones = (~rest & (rest + 1)).bit_length() - 1  # at the lower end
        if ones:
            yield bit - place, ((1 << ones) - 1) << place
        bit, place = bit + max(ones, 1), place + ones
