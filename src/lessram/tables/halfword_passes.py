"""The vector pass over a row of halfwords: every cell's weight rounded, its level advanced.

It equals, lane by lane and bit by bit, `rounded_sum` of numerics.minifloat, projected, and `advanced` of
numerics.accumulator.
"""

from __future__ import annotations

from typing import Any

from lessram.jit import intrinsic, types
from lessram.numerics.minifloat import BINADE_SHIFT, EXPONENT, FINE_REACH, FIRST_BINADE, INVERSE
from lessram.numerics.random import UNIFORM_STEP
from lessram.numerics.rounding import LARGEST_STEP
from lessram.numerics.vector import FLOATS, INTS, Vector, blocks, load, splat, store
from lessram.tables.squares_passes import advanced_levels, fields_of

LEVEL_BITS = 6
LEVEL = (1 << LEVEL_BITS) - 1


@intrinsic
def cell_row(typingctx, scratch, length, gradient, square, sums, limit, shared, fraction):  # type: ignore[no-untyped-def]
    """scratch.moved = the cells after a step of noted * gradient and the addition of square x^2.

    `shared` is the low half of rounding_bits, `fraction` the row's part of fine_uniform.
    """
    f = types.float32
    signature = types.void(scratch, types.uint64, f, f, sums, types.int32, types.uint32, f)

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        arrays = fields_of(builder, signature.args[0], args[0])
        tables = fields_of(builder, signature.args[4], args[4])
        gradient, square, limit, shared, fraction = (splat(builder, args[i]) for i in (2, 3, 5, 6, 7))

        def row_of(name: str, j: Any, lanes: Any) -> Vector:
            kind, array = arrays[name]
            return load(context, builder, kind, array, j, lanes)

        with blocks(builder, args[1]) as j:
            words, x = row_of("words", j, INTS), row_of("values", j, FLOATS)
            ratio = square * x * x / row_of("sums", j, FLOATS)
            levels = row_of("cells", j, INTS) & LEVEL
            levels = advanced_levels(context, builder, tables, levels, ratio, words, fraction)
            units = row_of("units", j, INTS).to_floats()
            ordinals = _rounded_sums(units, row_of("noted", j, FLOATS) * gradient, words, shared)
            ordinals = ordinals.smallest(limit).largest(limit * -1)
            store(context, builder, *arrays["moved"], j, (ordinals * (1 << LEVEL_BITS)) | levels)
        return context.get_dummy_value()

    return signature, codegen


def _rounded_sums(units: Vector, delta: Vector, words: Vector, shared: Vector) -> Vector:
    """rounded_sum(units, delta, rounding_bits(word, shared))"""
    delta = delta.at_least(-float(LARGEST_STEP)).at_most(float(LARGEST_STEP))
    below = delta.floor()
    whole = units + below
    size = (whole * -1.0 - 1.0).at_least(whole).at_least(float(FINE_REACH))
    exponent = size.cast(INTS) & EXPONENT
    inverse = (exponent * -1 + INVERSE).cast(FLOATS)
    steps = whole * inverse
    lower = steps.floor()
    bits = (words & 0xFFFF0000) | shared
    uniform = ((bits >> 7) | 1).to_floats() * float(UNIFORM_STEP)
    up = uniform.below((steps - lower) + (delta - below) * inverse)
    coarser = (exponent >> BINADE_SHIFT) - FIRST_BINADE
    return lower.to_ints() + up + coarser.where(whole.exceeds(-1.0), coarser * -1)
