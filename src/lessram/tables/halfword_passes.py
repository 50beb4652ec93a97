"""The vector pass over a row of halfwords: every cell's level advanced, its weight rounded.

It equals, lane by lane and bit by bit, `advanced_by_pairs` of numerics.six_bits and `rounded_sum` of
numerics.minifloat, projected.
"""

from __future__ import annotations

from typing import Any

from lessram.jit import intrinsic, types
from lessram.numerics.minifloat import BINADE_SHIFT, EXPONENT, FINE_REACH, FIRST_BINADE, HALF, INVERSE
from lessram.numerics.random import UNIFORM_STEP
from lessram.numerics.rounding import LARGEST_STEP
from lessram.numerics.six_bits import BASE, FIRST_HIGH, LAST, LEVEL_BITS, LEVELS, PAIR_GAP
from lessram.numerics.vector import FLOATS, INTS, Vector, blocks, load, splat, store
from lessram.tables.squares_passes import climbed_levels, fields_of, fine_uniforms


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
        gap = splat(builder, tables["gap"][1])

        def row_of(name: str, j: Any, lanes: Any) -> Vector:
            kind, array = arrays[name]
            return load(context, builder, kind, array, j, lanes)

        with blocks(builder, args[1]) as j:
            words, cells, x = row_of("words", j, INTS), row_of("cells", j, INTS), row_of("values", j, FLOATS)
            ratio = square * x * x / row_of("sums", j, FLOATS)
            levels = (cells & (LEVELS - 1)) ^ (cells & (cells >> (LEVEL_BITS - 1)) & 1)
            climbed = climbed_levels(context, builder, tables, levels, ratio)
            levels = _advanced_by_pairs(*climbed, fine_uniforms(words, fraction), gap)
            delta = row_of("noted", j, FLOATS) * gradient
            fine = levels.over(FIRST_HIGH - 1)
            ordinals = _rounded_sums(row_of("units", j, INTS).to_floats(), delta, (words & 0xFFFF0000) | shared, fine)
            ordinals = ordinals.smallest(limit).largest(limit * -1)
            upper = (ordinals & ~1) * (1 << (LEVEL_BITS - 1))
            store(context, builder, *arrays["moved"], j, upper | levels | (ordinals & 1))
        return context.get_dummy_value()

    return signature, codegen


def _advanced_by_pairs(below: Vector, y: Vector, uniform: Vector, gap: Vector) -> Vector:
    """The levels after those climbed, one or two further at random."""
    odd = below & 1
    from_even = ((y + 1.0) * float(BASE) - 1.0).where(odd.over(0), y)
    high = below - odd + (uniform * float(PAIR_GAP)).below(from_even) * 2
    return high.where(below.over(FIRST_HIGH - 1), below + (uniform * gap).below(y)).smallest(LAST)


def _rounded_sums(units: Vector, delta: Vector, bits: Vector, fine: Any) -> Vector:
    """rounded_sum(units, delta, bits, fine), `fine` a mask"""
    delta = delta.at_least(-float(LARGEST_STEP)).at_most(float(LARGEST_STEP))
    below = delta.floor()
    whole = units + below
    size = (whole * -1.0 - 1.0).at_least(whole).at_least(float(FINE_REACH))
    exponent = size.cast(INTS) & EXPONENT
    inverse = exponent * -1 + INVERSE
    inverse = inverse.where(fine, inverse - HALF).cast(FLOATS)
    steps = whole * inverse
    lower = steps.floor()
    uniform = ((bits >> 7) | 1).to_floats() * float(UNIFORM_STEP)
    ordinals = lower.to_ints() + uniform.below((steps - lower) + (delta - below) * inverse)
    coarser = (exponent >> BINADE_SHIFT) - FIRST_BINADE
    return ordinals.where(fine, ordinals + ordinals) + coarser.where(whole.exceeds(-1.0), coarser * -1)
