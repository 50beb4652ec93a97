"""The vector passes of a row: random words, steps rounded at random, and whether a weight is beyond R.

Both work on scratch arrays whose lengths are whole blocks of lanes; what stands in the lanes behind
the row is computed and never used. They equal, lane by lane and bit by bit, `word` of
numerics.random, `exact_rate` of numerics.rate and `random_round` of numerics.rounding.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from lessram.jit import cgutils, intrinsic, types
from lessram.numerics.random import UNIFORM_STEP
from lessram.numerics.rounding import LARGEST_STEP
from lessram.numerics.vector import (
    DOUBLES,
    FLOATS,
    I32,
    I64,
    INTS,
    LANES,
    Vector,
    any_lane,
    blocks,
    inside,
    load,
    load_inside,
    random_words,
    splat,
    store,
    store_mask,
)


@intrinsic
def draw_row(typingctx, words, at, counting, length, key, shared):  # type: ignore[no-untyped-def]
    """words[at + j] = word(j, key) for a whole row, and counting[at + j] = counting_bits(word, shared) if not None."""
    u = types.uint64
    signature = types.void(words, u, counting, u, u, u)

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        words, at, counting, length, key, shared = args
        low = splat(builder, builder.and_(shared, I64(0xFFFFFFFFFFFF)))
        with blocks(builder, length) as j:
            drawn = random_words(builder, builder.trunc(j, I32), key)
            place = builder.add(at, j)
            store(context, builder, signature.args[0], words, place, drawn)
            if isinstance(signature.args[2], types.Array):
                store(context, builder, signature.args[2], counting, place, (drawn.to_longs() << 48) | low)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def sum_of_squares(typingctx, values, start, length):  # type: ignore[no-untyped-def]
    """Sum of values[start : start + length]^2 in float64: sixteen partial sums, added as a tree."""
    signature = types.float64(values, types.uint64, types.uint64)

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        values, start, length = args
        total = cgutils.alloca_once_value(builder, ir.Constant(DOUBLES, [0.0] * LANES))
        with blocks(builder, length) as j:
            left = builder.sub(length, j)
            x = load_inside(context, builder, signature.args[0], values, builder.add(start, j), left).to_doubles()
            builder.store((Vector(builder, builder.load(total)) + x * x).value, total)
        return Vector(builder, builder.load(total)).sum_as_tree()

    return signature, codegen


def _rounded(delta: Vector, words: Vector, shared: Vector) -> Vector:
    """random_round(delta, rounding_bits(word, shared))"""
    delta = delta.at_least(-float(LARGEST_STEP)).at_most(float(LARGEST_STEP))
    below = delta.floor()
    bits = (words & 0xFFFF0000) | shared
    uniform = ((bits >> 7) | 1).to_floats() * float(UNIFORM_STEP)
    return below.to_ints() + uniform.below(delta - below)


def values_at(context: Any, builder: Any, kind: Any, values: Any, index: Any, left: Any) -> Vector | None:
    """A batch's values from `index` on, of which `left` are the row's and the others 0; None where all are 1."""
    return None if isinstance(kind, types.NoneType) else load_inside(context, builder, kind, values, index, left)


@intrinsic
def step_row(typingctx, noted, rates, values, start, words, at, steps, length, gradient, shared):  # type: ignore[no-untyped-def]
    """steps[j] = rate[j] * values[start + j] * gradient, rounded by words[at + j] where `steps` holds integers.

    `rates` says what `noted` holds: None if the rates, a tuple (alpha, offset, floor) if exact counts, an array if the
    rates again, the array then holding what is taken off each step. One rate for all is a float, and nothing is noted.
    `values` are None where all are 1 or in the rates already. `shared` is the low half of rounding_bits.
    """
    u = types.uint64
    signature = types.void(noted, rates, values, u, words, u, steps, u, types.float32, types.uint32)

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        noted, rates, values, start, words, at, steps, length, gradient, shared = args
        kinds = signature.args
        g, low = splat(builder, gradient), splat(builder, shared)

        def row_of(kind: Any, array: Any, j: Any, lanes: Any) -> Vector:
            return load(context, builder, kind, array, j, lanes)

        with blocks(builder, length) as j:
            one_rate = isinstance(kinds[1], types.Float)
            scale = splat(builder, rates) if one_rate else row_of(kinds[0], noted, j, FLOATS)
            if isinstance(kinds[1], types.BaseTuple):
                alpha, offset, floor = (splat(builder, builder.extract_value(rates, i)) for i in range(3))
                scale = (alpha / (scale + offset).root()).at_least(floor)
            x = values_at(context, builder, kinds[2], values, builder.add(start, j), builder.sub(length, j))
            delta = (scale if x is None else scale * x) * g
            if isinstance(kinds[1], types.Array):
                delta = delta - row_of(kinds[1], rates, j, FLOATS)
            if isinstance(kinds[6].dtype, types.Integer):
                delta = _rounded(delta, row_of(kinds[4], words, builder.add(at, j), INTS), low)
            store(context, builder, kinds[6], steps, j, delta)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def mark_equal(typingctx, numbers, length, value, masks):  # type: ignore[no-untyped-def]
    """masks = for each block of a row, where numbers[j] (uint32) is `value`."""
    signature = types.void(numbers, types.uint64, types.uint32, masks)

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        numbers, length, value, masks = args
        wanted = splat(builder, value).value
        with blocks(builder, length) as j:
            found = load(context, builder, signature.args[0], numbers, j, INTS).value
            here = builder.and_(builder.icmp_unsigned("==", found, wanted), inside(builder, builder.sub(length, j)))
            store_mask(context, builder, signature.args[3], masks, j, here)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def any_outside(typingctx, numbers, length, limit):  # type: ignore[no-untyped-def]
    """Whether some numbers[j] of a row (int32, far from overflow) are outside of [-limit, limit]."""
    signature = types.boolean(numbers, types.uint64, types.int32)

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        numbers, length, limit = args
        farthest = cgutils.alloca_once_value(builder, ir.Constant(INTS, [0] * LANES))
        end = splat(builder, limit)
        with blocks(builder, length) as j:
            above = load(context, builder, signature.args[0], numbers, j, INTS) + end
            above = above.where(inside(builder, builder.sub(length, j)), 0)
            builder.store(Vector(builder, builder.load(farthest)).largest_unsigned(above).value, farthest)
        beyond = Vector(builder, builder.load(farthest)).over_unsigned(end + end)
        return any_lane(builder, beyond)

    return signature, codegen
