"""Carry-less products: multiplication of polynomials over GF(2), whose coefficients are the bits of words.

    (a * b)[n] = XOR over i of a[i] AND b[n - i],    0 <= n < 128

so one product holds the parities of b's mirror image against every shift of a. x86-64 has an instruction for it
(PCLMULQDQ); everywhere else the same bits come from integer products of words whose coefficients stand four bits
apart: up to sixteen of them add up in a field before a carry reaches the next coefficient that is looked at.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from lessram.jit import cgutils, inlined, intrinsic, target_features, types

_I8, _I32, _I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_PAIR = ir.VectorType(_I64, 2)

HAS_INSTRUCTION = "pclmul" in target_features()
"""Whether kernels are compiled with the processor's own instruction."""


def _by_instruction(half: int) -> Any:
    """One 64-bit half of the product by PCLMULQDQ."""

    def product(typingctx, a, b):  # type: ignore[no-untyped-def]
        def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
            kind = ir.FunctionType(_PAIR, [_PAIR, _PAIR, _I8])
            multiply = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.pclmulqdq")
            a, b = (builder.insert_element(ir.Constant(_PAIR, ir.Undefined), word, _I32(0)) for word in args)
            return builder.extract_element(builder.call(multiply, [a, b, _I8(0)]), _I32(half))

        return types.uint64(types.uint64, types.uint64), codegen

    return intrinsic(product)


@intrinsic
def reverse_bits(typingctx, x):  # type: ignore[no-untyped-def]
    """The bits of a uint64, last to first."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.bitreverse(args[0])

    return types.uint64(types.uint64), codegen


@intrinsic
def parity(typingctx, x):  # type: ignore[no-untyped-def]
    """1 if an odd number of bits of a uint64 are set."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.and_(builder.ctpop(args[0]), _I64(1))

    return types.uint64(types.uint64), codegen


_EVERY_FOURTH = 0x1111111111111111
_M0, _M1, _M2, _M3 = (np.uint64(_EVERY_FOURTH << shift) for shift in range(4))


@inlined
def portable_low(a, b):
    """The low 64 bits of the carry-less product, with integer products only."""
    a0, a1, a2, a3 = a & _M0, a & _M1, a & _M2, a & _M3
    b0, b1, b2, b3 = b & _M0, b & _M1, b & _M2, b & _M3
    c0 = (a0 * b0) ^ (a1 * b3) ^ (a2 * b2) ^ (a3 * b1)
    c1 = (a0 * b1) ^ (a1 * b0) ^ (a2 * b3) ^ (a3 * b2)
    c2 = (a0 * b2) ^ (a1 * b1) ^ (a2 * b0) ^ (a3 * b3)
    c3 = (a0 * b3) ^ (a1 * b2) ^ (a2 * b1) ^ (a3 * b0)
    return (c0 & _M0) | (c1 & _M1) | (c2 & _M2) | (c3 & _M3)


@inlined
def portable_high(a, b):
    """The high 64 bits: mirrored, they are the low ones of the mirrored words."""
    return reverse_bits(portable_low(reverse_bits(a), reverse_bits(b))) >> np.uint64(1)


carryless_low = _by_instruction(0) if HAS_INSTRUCTION else portable_low
carryless_high = _by_instruction(1) if HAS_INSTRUCTION else portable_high
