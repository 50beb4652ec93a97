"""The vector passes of a row under squared-gradient rates.

They equal, lane by lane and bit by bit, `advanced` of numerics.accumulator and the formula
x * (alpha / (beta + sqrt(v + a))) in float32, with a = square * x * x multiplied in this order: values whose
square overflows then give infinite sums and rates of 0, but never 0 * infinity. Under FTRL-Proximal and RDA (see
numerics.proximal) the first pass also finds what a stored average loses while its rate falls.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from lessram.jit import cgutils, intrinsic, types
from lessram.numerics.accumulator import LARGEST_RATIO, LOG_CUBIC
from lessram.numerics.vector import (
    FLOATS,
    INTS,
    LANES,
    Vector,
    any_lane,
    blocks,
    gather,
    inside,
    load,
    splat,
    store,
)

LEAST_ROOTS = float(np.finfo(np.float32).tiny)
"""Keeps 0 / 0 away where nothing was added to a sum of 0."""


@intrinsic
def rate_row(typingctx, sums, values, noted, length, square, lowest, alpha, beta, pull=None):  # type: ignore[no-untyped-def]
    """noted = x * alpha / (beta + sqrt(v + square x^2)), v = sums - lowest; returns sum of x * noted as float64.

    The sum is sixteen partial sums in float32, added as a tree. An array `pull` is multiplied by the share that the
    rate falls by, square x^2 / ((r' + r) (beta + r')), r and r' the roots before and after.
    """
    f = types.float32
    signature = types.float64(sums, values, noted, types.uint64, f, f, f, f, pull or types.none)

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        sums, values, noted, length = args[:4]
        square, lowest, alpha, beta = (splat(builder, scalar) for scalar in args[4:8])
        kinds = signature.args
        total = cgutils.alloca_once_value(builder, ir.Constant(FLOATS, [0.0] * LANES))
        with blocks(builder, length) as j:
            x = load(context, builder, kinds[1], values, j, FLOATS).where(inside(builder, builder.sub(length, j)), 0.0)
            v = load(context, builder, kinds[0], sums, j, FLOATS) - lowest
            addend = square * x * x
            root = (v + addend).root()
            scale = x * (alpha / (beta + root))
            store(context, builder, kinds[2], noted, j, scale)
            if isinstance(kinds[8], types.Array):
                share = addend / ((root + v.root()).at_least(LEAST_ROOTS) * (beta + root))
                pulled = load(context, builder, kinds[8], args[8], j, FLOATS) * share.at_most(1.0)
                store(context, builder, kinds[8], args[8], j, pulled)
            builder.store((Vector(builder, builder.load(total)) + x * scale).value, total)
        return builder.fpext(Vector(builder, builder.load(total)).sum_as_tree(), ir.DoubleType())

    return signature, codegen


@intrinsic
def level_row(typingctx, scratch, length, square, sums, fraction):  # type: ignore[no-untyped-def]
    """scratch.advanced = the levels after adding square x^2, or, for exact sums, the addends themselves."""
    signature = types.void(scratch, types.uint64, types.float32, sums, types.float32)

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        arrays = fields_of(builder, signature.args[0], args[0])
        length, square, fraction = args[1], splat(builder, args[2]), splat(builder, args[4])
        tables = fields_of(builder, signature.args[3], args[3])

        def row_of(name: str, j: Any, lanes: Any) -> Vector:
            kind, array = arrays[name]
            return load(context, builder, kind, array, j, lanes)

        randomized = isinstance(arrays["advanced"][0].dtype, types.Integer)
        with blocks(builder, length) as j:
            x = row_of("values", j, FLOATS)
            result = square * x * x
            if randomized:
                levels, words = row_of("levels", j, INTS), row_of("words", j, INTS)
                ratio = result / row_of("sums", j, FLOATS)
                result = advanced_levels(context, builder, tables, levels, ratio, words, fraction)
            store(context, builder, *arrays["advanced"], j, result)
        return context.get_dummy_value()

    return signature, codegen


def fields_of(builder: Any, kind: Any, value: Any) -> dict[str, tuple[Any, Any]]:
    """The fields of a NamedTuple while code is generated, each with its type."""
    return {
        name: (field, builder.extract_value(value, i))
        for i, (name, field) in enumerate(zip(kind.fields, kind.types, strict=True))
    }


def advanced_levels(
    context: Any, builder: Any, tables: Any, levels: Vector, ratio: Vector, words: Vector, fraction: Vector
) -> Vector:
    """The levels after adding `ratio` of their heights; `tables` are the fields of an Accumulator."""
    below, y = climbed_levels(context, builder, tables, levels, ratio)
    up = (fine_uniforms(words, fraction) * splat(builder, tables["gap"][1])).below(y)
    return (below + up).smallest(splat(builder, tables["last"][1]))


def fine_uniforms(words: Vector, fraction: Vector) -> Vector:
    """fine_uniform(word, shared), `fraction` being fraction_of(shared)."""
    return ((words & 0xFFFF).to_floats() + fraction) * 2.0**-16


def climbed_levels(context: Any, builder: Any, tables: Any, levels: Vector, ratio: Vector) -> tuple[Vector, Vector]:
    """`climbed`, with addends given in ratio to heights."""
    count = cgutils.alloca_once(builder, INTS)
    rest = cgutils.alloca_once(builder, FLOATS)
    _whole_levels(context, builder, tables, ratio.at_most(float(LARGEST_RATIO)), count, rest)
    return levels + Vector(builder, builder.load(count)), Vector(builder, builder.load(rest))


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
        fall = gather(context, builder, kind, decay, k)
        y = r * fall - (splat(builder, ir.Constant(ir.FloatType(), 1.0)) - fall)
        more = y.exceeds(gap)
        y = ((y - gap) * splat(builder, tables["inverse_base"][1])).where(more, y)
        k = Vector(builder, builder.add(k.value, builder.zext(more, INTS)))
        builder.store(k.where(beyond, 0).value, count)
        builder.store(y.where(beyond, r).value, rest)
