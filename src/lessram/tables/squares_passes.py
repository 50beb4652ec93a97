"""The vector passes of a row under squared-gradient rates.

They equal, lane by lane and bit by bit, `advanced` of numerics.accumulator and the formula
x * (alpha / (beta + sqrt(v + a))) in float32, with a = square * x * x multiplied in this order: values whose
square overflows then give infinite sums and rates of 0, but never 0 * infinity. Values are read where the batch has
them; where it has none, all are 1 and nothing is multiplied. Under FTRL-Proximal and RDA (see numerics.proximal) the
first pass also finds what a stored average loses while its rate falls.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from lessram.jit import cgutils, intrinsic, types
from lessram.numerics.accumulator import LARGEST_RATIO, LOG_CUBIC
from lessram.numerics.vector import (
    FLOATS,
    I32,
    INTS,
    LANES,
    Vector,
    any_lane,
    blocks,
    fields_of,
    inside,
    load,
    look_up,
    random_words,
    splat,
    store,
    store_mask,
)
from lessram.tables.passes import values_at

LEAST_ROOTS = float(np.finfo(np.float32).tiny)
"""Keeps 0 / 0 away where nothing was added to a sum of 0."""


def addends(square: Vector, x: Vector | None) -> Vector:
    """What a row adds to its sums."""
    return square if x is None else square * x * x


@intrinsic
def rate_row(typingctx, sums, values, start, noted, length, square, lowest, alpha, beta, pull=None):  # type: ignore[no-untyped-def]
    """noted = x * alpha / (beta + sqrt(v + square x^2)), v = sums - lowest; returns sum of x * noted as float64.

    The sum is sixteen partial sums in float32, added as a tree. An array `pull` is multiplied by the share that the
    rate falls by, square x^2 / ((r' + r) (beta + r')), r and r' the roots before and after.
    """
    f, u = types.float32, types.uint64
    signature = types.float64(sums, values, u, noted, u, f, f, f, f, pull or types.none)

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        sums, values, start, noted, length = args[:5]
        square, lowest, alpha, beta = (splat(builder, scalar) for scalar in args[5:9])
        kinds = signature.args
        total = cgutils.alloca_once_value(builder, ir.Constant(FLOATS, [0.0] * LANES))
        with blocks(builder, length) as j:
            left = builder.sub(length, j)
            x = values_at(context, builder, kinds[1], values, builder.add(start, j), left)
            v = load(context, builder, kinds[0], sums, j, FLOATS) - lowest
            addend = addends(square, x)
            root = (v + addend).root()
            scale = alpha / (beta + root)
            scale = scale.where(inside(builder, left), 0.0) if x is None else x * scale
            store(context, builder, kinds[3], noted, j, scale)
            if isinstance(kinds[9], types.Array):
                share = addend / ((root + v.root()).at_least(LEAST_ROOTS) * (beta + root))
                pulled = load(context, builder, kinds[9], args[9], j, FLOATS) * share.at_most(1.0)
                store(context, builder, kinds[9], args[9], j, pulled)
            reach = scale if x is None else x * scale
            builder.store((Vector(builder, builder.load(total)) + reach).value, total)
        return builder.fpext(Vector(builder, builder.load(total)).sum_as_tree(), ir.DoubleType())

    return signature, codegen


@intrinsic
def level_row(typingctx, scratch, values, start, length, square, sums, key, fraction):  # type: ignore[no-untyped-def]
    """scratch.words drawn, scratch.added = how many levels square x^2 adds, scratch.risen = where it adds any.

    For exact sums only scratch.added = square x^2.
    """
    f, u = types.float32, types.uint64
    signature = types.void(scratch, values, u, u, f, sums, u, f)

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        _, values, start, length, _, _, key, _ = args
        arrays = fields_of(builder, signature.args[0], args[0])
        tables = fields_of(builder, signature.args[5], args[5])
        square, fraction = splat(builder, args[4]), splat(builder, args[7])
        randomized = isinstance(arrays["added"][0].dtype, types.Integer)
        with blocks(builder, length) as j:
            left = builder.sub(length, j)
            x = values_at(context, builder, signature.args[1], values, builder.add(start, j), left)
            result = addends(square, x)
            if randomized:
                words = random_words(builder, builder.trunc(j, I32), key)
                store(context, builder, *arrays["words"], j, words)
                ratio = result / load(context, builder, *arrays["sums"], j, FLOATS)
                result = added_levels(context, builder, tables, ratio, words, fraction)
                risen = builder.and_(result.over(0), inside(builder, left))
                store_mask(context, builder, *arrays["risen"], j, risen)
            store(context, builder, *arrays["added"], j, result)
        return context.get_dummy_value()

    return signature, codegen


def added_levels(context: Any, builder: Any, tables: Any, ratio: Vector, words: Vector, fraction: Vector) -> Vector:
    """How many levels go with `ratio` of a height; `tables` are the fields of an Accumulator."""
    whole, y = climbed_levels(context, builder, tables, ratio)
    return whole + (fine_uniforms(words, fraction) * splat(builder, tables["gap"][1])).below(y)


def fine_uniforms(words: Vector, fraction: Vector) -> Vector:
    """fine_uniform(word, shared), `fraction` being fraction_of(shared)."""
    return ((words & 0xFFFF).to_floats() + fraction) * 2.0**-16


def climbed_levels(context: Any, builder: Any, tables: Any, ratio: Vector) -> tuple[Vector, Vector]:
    """`climbed` from level 0, with addends given in ratio to heights."""
    count = cgutils.alloca_once(builder, INTS)
    rest = cgutils.alloca_once(builder, FLOATS)
    _whole_levels(context, builder, tables, ratio.at_most(float(LARGEST_RATIO)), count, rest)
    return Vector(builder, builder.load(count)), Vector(builder, builder.load(rest))


def _whole_levels(context: Any, builder: Any, tables: Any, r: Vector, count: Any, rest: Any) -> None:
    """count = k whole levels and rest = y of numerics.accumulator; the logarithm only where some lane needs it."""
    gap = splat(builder, tables["gap"][1])
    builder.store(ir.Constant(INTS, [0] * LANES), count)
    builder.store(r.value, rest)
    beyond = r.exceeds(gap)
    with builder.if_then(any_lane(builder, beyond)):
        bits = (r + 1.0).cast(INTS)
        mantissa = ((bits & 0x7FFFFF) | 0x3F800000).cast(FLOATS)
        c3, c2, c1, c0 = (float(c) for c in LOG_CUBIC)
        log = (bits >> 23).to_floats() + (((mantissa * c3 + c2) * mantissa + c1) * mantissa + c0)
        k = (log * splat(builder, tables["levels_per_octave"][1])).at_least(0.0)
        k = k.at_most(splat(builder, tables["last"][1]).to_floats()).to_ints()
        kind, decay = tables["decay"]
        fall = look_up(context, builder, kind, decay, k)
        y = r * fall - (splat(builder, ir.Constant(ir.FloatType(), 1.0)) - fall)
        more = y.exceeds(gap)
        y = ((y - gap) * splat(builder, tables["inverse_base"][1])).where(more, y)
        k = Vector(builder, builder.add(k.value, builder.zext(more, INTS)))
        builder.store(k.where(beyond, 0).value, count)
        builder.store(y.where(beyond, r).value, rest)
