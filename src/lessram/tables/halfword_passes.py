"""The vector passes over a row of halfwords: every cell's height looked up, its level advanced, its weight rounded.

They equal, lane by lane and bit by bit, `advanced_by_pairs` of numerics.six_bits and `rounded_sum` of
numerics.minifloat, projected.
"""

from __future__ import annotations

from typing import Any

from lessram.jit import intrinsic, types
from lessram.numerics.minifloat import (
    BINADE_SHIFT,
    E3M7_MANTISSA,
    EXPONENT,
    FINE_REACH,
    FIRST_BINADE,
    HALF,
    INVERSE,
)
from lessram.numerics.random import UNIFORM_STEP
from lessram.numerics.rounding import LARGEST_STEP
from lessram.numerics.six_bits import BASE, FIRST_HIGH, LAST, LEVEL_BITS, LEVELS, PAIR_GAP
from lessram.numerics.vector import (
    FLOATS,
    I32,
    INTS,
    Vector,
    blocks,
    fields_of,
    load,
    look_up,
    random_words,
    splat,
    store,
)
from lessram.tables.passes import values_at
from lessram.tables.squares_passes import addends, climbed_levels, fine_uniforms

_SIGN = 1 << (16 - LEVEL_BITS)
"""The highest of the 11 bits of an ordinal."""


@intrinsic
def height_row(typingctx, scratch, length, heights):  # type: ignore[no-untyped-def]
    """scratch.sums = these heights of the cells' levels, which AVX-512 has in registers."""
    signature = types.void(scratch, types.uint64, heights)

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        arrays = fields_of(builder, signature.args[0], args[0])
        with blocks(builder, args[1]) as j:
            codes = load(context, builder, *arrays["cells"], j, INTS) & (LEVELS - 1)
            store(context, builder, *arrays["sums"], j, look_up(context, builder, signature.args[2], args[2], codes))
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def pair_level_row(typingctx, scratch, values, start, length, square, sums, key, fraction):  # type: ignore[no-untyped-def]
    """scratch.words drawn, scratch.levels = the levels after the addition of square x^2.

    `fraction` is the row's part of fine_uniform.
    """
    f, u = types.float32, types.uint64
    signature = types.void(scratch, values, u, u, f, sums, u, f)

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        _, values, start, length, _, _, key, _ = args
        arrays = fields_of(builder, signature.args[0], args[0])
        tables = fields_of(builder, signature.args[5], args[5])
        square, fraction, gap = splat(builder, args[4]), splat(builder, args[7]), splat(builder, tables["gap"][1])
        with blocks(builder, length) as j:
            words = random_words(builder, builder.trunc(j, I32), key)
            cells = load(context, builder, *arrays["cells"], j, INTS)
            levels = (cells & (LEVELS - 1)) ^ (cells & (cells >> (LEVEL_BITS - 1)) & 1)
            left = builder.sub(length, j)
            x = values_at(context, builder, signature.args[1], values, builder.add(start, j), left)
            ratio = addends(square, x) / look_up(context, builder, *tables["heights"], levels)
            whole, y = climbed_levels(context, builder, tables, ratio)
            levels = _advanced_by_pairs(levels + whole, y, fine_uniforms(words, fraction), gap)
            store(context, builder, *arrays["words"], j, words)
            store(context, builder, *arrays["levels"], j, levels)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def cell_row(typingctx, scratch, length, gradient, limit, shared):  # type: ignore[no-untyped-def]
    """scratch.moved = cells of these levels, their weights after a step of noted * gradient.

    `shared` is the low half of rounding_bits.
    """
    signature = types.void(scratch, types.uint64, types.float32, types.int32, types.uint32)

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        arrays = fields_of(builder, signature.args[0], args[0])
        gradient, limit, shared = (splat(builder, scalar) for scalar in args[2:])

        def row_of(name: str, j: Any, lanes: Any) -> Vector:
            kind, array = arrays[name]
            return load(context, builder, kind, array, j, lanes)

        with blocks(builder, args[1]) as j:
            words, levels = row_of("words", j, INTS), row_of("levels", j, INTS)
            units = _units_in(row_of("cells", j, INTS)).to_floats()
            delta = row_of("noted", j, FLOATS) * gradient
            fine = levels.over(FIRST_HIGH - 1)
            ordinals = _rounded_sums(units, delta, (words & 0xFFFF0000) | shared, fine)
            ordinals = ordinals.smallest(limit).largest(limit * -1)
            upper = (ordinals & ~1) * (1 << (LEVEL_BITS - 1))
            store(context, builder, *arrays["moved"], j, upper | levels | (ordinals & 1))
        return context.get_dummy_value()

    return signature, codegen


def _units_in(cells: Vector) -> Vector:
    """The weights of cells in units of e3m7, computed: cheaper than a store for each in `observe`."""
    code = (cells >> (LEVEL_BITS - 1)) & (cells | ~1)
    ordinals = (code ^ _SIGN) - _SIGN
    size = ordinals.largest(ordinals * -1)
    binade = ((size >> E3M7_MANTISSA) - 1).largest(0)
    units = (size - (binade << E3M7_MANTISSA)) << binade
    return units.where(ordinals.over(-1), units * -1)


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
