"""Blocks: cache lines of codes, and where in them a coordinate is.

A block is one line: `BLOCK` = 60 one-byte codes, then the 32-bit pointer to its slab (tables/slabs.py). Codes below
`FIRST_SLOT` are states of the codebook; `FIRST_SLOT` + k says that the coordinate is promoted to cell k of the slab.

`place_row` finds the places of a whole row in vectors and equals, lane by lane, `place_of`. One by one, the divisions
by 60 would be a fifth of a row's instructions: every feature needs three, for its line, its cell, and itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from lessram.jit import cgutils, inlined, intrinsic, types
from lessram.numerics.vector import I32, I64, INTS, LANES, MASK, Vector, blocks, inside, store

LINE = 64
BLOCK = 60
FIRST_SLOT = 256 - BLOCK
WORDS = LINE // 4
_POINTER = np.uint64(WORDS - 1)
_INVERSE, _SHIFT = 0x88888889, 37  # slot // 60 = slot * inverse >> shift for every slot of 32 bits
_WIDE = ir.VectorType(I64, LANES)


def blocks_for(slots: int) -> int:
    return -(-slots // BLOCK)


@inlined
def place_of(slot):
    """Where the code of a slot is: BLOCK codes a line, then the pointer."""
    slot = np.uint64(np.uint32(slot))
    return slot + (np.uint64(LINE - BLOCK)) * (slot // np.uint64(BLOCK))


@inlined
def pointer_of(block):
    """Where, among 32-bit words, the pointer of a block is."""
    return block * np.uint64(WORDS) + _POINTER


@inlined
def promoted_in(codes, block):
    """How many coordinates of a block have a cell."""
    return count_promoted(codes, block * np.uint64(LINE))


@intrinsic
def place_row(typingctx, slots, start, length, places):  # type: ignore[no-untyped-def]
    """places[j] = place_of(slots[start + j]) for a whole row."""
    signature = types.void(slots, types.uint64, types.uint64, places)

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        slots, start, length, places = args
        with blocks(builder, length) as j:
            left = builder.sub(length, j)
            slot = _slots_inside(context, builder, signature.args[0], slots, builder.add(start, j), left)
            wide = builder.mul(builder.zext(slot, _WIDE), ir.Constant(_WIDE, [_INVERSE] * LANES))
            block = builder.trunc(builder.lshr(wide, ir.Constant(_WIDE, [_SHIFT] * LANES)), INTS)
            store(
                context,
                builder,
                signature.args[3],
                places,
                j,
                Vector(builder, slot) + Vector(builder, block) * (LINE - BLOCK),
            )
        return context.get_dummy_value()

    return signature, codegen


def _slots_inside(context: Any, builder: Any, kind: Any, slots: Any, index: Any, left: Any) -> Any:
    """Slots from `index` on as 32 bits, of which only `left` exist; the others are 0 and not touched."""
    width = kind.dtype.bitwidth
    lanes = ir.VectorType(ir.IntType(width), LANES)
    address = builder.gep(context.make_array(kind)(context, builder, slots).data, [index])
    signature = ir.FunctionType(lanes, [lanes.as_pointer(), I32, MASK, lanes])
    function = cgutils.get_or_insert_function(builder.module, signature, f"llvm.masked.load.v{LANES}i{width}.p0")
    address = builder.bitcast(address, lanes.as_pointer())
    found = builder.call(function, [address, I32(width // 8), inside(builder, left), ir.Constant(lanes, [0] * LANES)])
    return found if width == 32 else builder.trunc(found, INTS)


@intrinsic
def count_promoted(typingctx, codes, first):  # type: ignore[no-untyped-def]
    """How many codes of the line that begins at `first` are those of promoted coordinates."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        line = ir.VectorType(ir.IntType(8), LINE)
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        loaded = builder.load(builder.bitcast(builder.gep(data, [args[1]]), line.as_pointer()))
        loaded.align = 4
        promoted = builder.icmp_unsigned(">=", loaded, ir.Constant(line, [FIRST_SLOT] * LINE))
        return builder.ctpop(builder.and_(builder.bitcast(promoted, I64), I64((1 << BLOCK) - 1)))

    return types.uint64(codes, types.uint64), codegen
