"""Several features at once, where the processor can do it (data/byte_lanes.py).

Most svmlight text is one of two kinds, and a line of either is as regular as text gets:

    12345:1 678:1 9:1             things that are there or not, or a few times       up to eight features a time
    12345:0.0862 678:-1.7552      words weighed, numbers scaled                      up to four

Sixty-four bytes are looked at together. How many of the features in them are well-formed is told by a few operations on
masks of these bytes (`digit_features`, `decimal_features`). One permutation of the bytes then puts the digits of every
number at the end of a lane of its own, and three multiplications turn all lanes into numbers (`write_...`):

    12345:0.0862 678:0.1755   ->   |00012345|00000678| ... |00000862|00001755| ...

Whatever is not of these forms goes through the loop of data/svmlight_kernel.py, as does everything on other processors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from lessram.data.byte_lanes import (
    BYTES,
    I32,
    I64,
    LANES,
    NUMBERS,
    behind_runs,
    call,
    constant,
    ends_before,
    from_second_lane,
    numbered,
    picked,
    places_of,
    splat,
)
from lessram.data.scanning import mask_of, mask_of_range
from lessram.jit import inlined, intrinsic, types

DIGIT_FEATURES, DECIMAL_FEATURES = 8, 4
"""How many are written at once; as many places of the arrays are overwritten."""
LONGEST = 8
"""Digits of an index, and of a fraction."""

_ONE, _TWO = np.uint64(1), np.uint64(2)
_colons, _points, _minuses, _spaces, _newlines = (mask_of(character) for character in (b":", b".", b"-", b" ", b"\n"))
_digits = mask_of_range(b"0", b"9")


@inlined
def _nine_in_a_row(bits):
    """Where nine or more bits that are set begin."""
    two = bits & (bits >> _ONE)
    four = two & (two >> _TWO)
    return four & (four >> np.uint64(4)) & (bits >> np.uint64(8))


@inlined
def digit_features(text, p):
    """How many features `index:digit` follow each other from `p` on, within 64 bytes and one line.

    The index has up to 8 digits, a space or a newline stands behind the value. Also returns where behind `p` the
    newline stands that ends the last of them; 64 if it is none.
    """
    colons, digits, newlines = _colons(text, p), _digits(text, p), _newlines(text, p)
    ends = _spaces(text, p) | newlines
    starts = (ends << _ONE) | _ONE
    wrong = (starts & ~digits) | (colons ^ behind_runs(starts, digits)) | _nine_in_a_row(digits)
    wrong |= ((colons << _ONE) & ~digits) | (ends ^ (colons << _TWO))
    return ends_before(wrong, ends, newlines)


@inlined
def decimal_features(text, p):
    """As `digit_features`, for `index:digit.digits` with up to 8 digits behind the point and perhaps a minus before."""
    colons, digits, newlines = _colons(text, p), _digits(text, p), _newlines(text, p)
    ends, points = _spaces(text, p) | newlines, _points(text, p)
    starts, fractions = (ends << _ONE) | _ONE, points << _ONE
    values = colons << _ONE
    negative = values & _minuses(text, p)
    units = (values ^ negative) | (negative << _ONE)
    wrong = (starts & ~digits) | (colons ^ behind_runs(starts, digits)) | _nine_in_a_row(digits)
    wrong |= (units & ~digits) | (points ^ (units << _ONE))
    wrong |= (fractions & ~digits) | (ends ^ behind_runs(fractions, digits))
    return ends_before(wrong, ends, newlines)


_PAIRS, _FOURS = ir.VectorType(ir.IntType(16), 32), ir.VectorType(I32, 16)


def _spelled(builder: Any, text: Any, before: Any, behind: Any) -> Any:
    """The number between two places in each lane: digits in pairs, then in fours, then all eight."""
    byte = builder.add(behind, numbered(-8))
    digits = builder.xor(picked(builder, text, byte), constant(lambda lane: ord("0")))
    digits = builder.select(builder.icmp_signed(">", byte, before), digits, constant(lambda lane: 0))
    pairs = call(builder, "llvm.x86.avx512.pmaddubs.w.512", _PAIRS, digits, ir.Constant(BYTES, [10, 1] * 32))
    fours = call(builder, "llvm.x86.avx512.pmaddw.d.512", _FOURS, pairs, ir.Constant(_PAIRS, [100, 1] * 16))
    fours = builder.bitcast(fours, NUMBERS)
    high = builder.and_(fours, ir.Constant(NUMBERS, [0xFFFFFFFF] * LANES))
    low = builder.lshr(fours, ir.Constant(NUMBERS, [32] * LANES))
    return builder.add(builder.mul(high, ir.Constant(NUMBERS, [10**4] * LANES)), low)


def _first_lanes(builder: Any, lanes: Any, first: int, count: int) -> Any:
    order = ir.Constant(ir.VectorType(I32, count), list(range(first, first + count)))
    return builder.shuffle_vector(lanes, ir.Constant(lanes.type, ir.Undefined), order)


def _small(builder: Any, lanes: Any, kind: Any, count: int) -> Any:
    """Whole numbers below 2^31 as floats of some kind."""
    return builder.sitofp(builder.trunc(lanes, ir.VectorType(I32, count)), ir.VectorType(kind, count))


def _digit_lanes(builder: Any, text: Any, marks: Any) -> tuple[Any, Any]:
    """Eight indexes and eight values of one digit."""
    places = places_of(builder, marks)
    colon = picked(builder, places, constant(lambda lane: 2 * lane))
    before = picked(builder, places, constant(lambda lane: 2 * lane - 1))
    before = from_second_lane(builder, before, -1)
    value = picked(builder, text, builder.add(colon, constant(lambda lane: 1)))
    value = builder.and_(builder.bitcast(value, NUMBERS), ir.Constant(NUMBERS, [0x0F] * LANES))
    return _spelled(builder, text, before, colon), _small(builder, value, ir.FloatType(), LANES)


def _decimal_lanes(builder: Any, text: Any, marks: Any) -> tuple[Any, Any]:
    """Four indexes and four decimal values: (digit * 10^n + fraction) / 10^n, one rounding of two exact numbers."""
    places, half = places_of(builder, marks), LANES // 2
    behind = picked(builder, places, constant(lambda lane: 2 * lane if lane < half else 2 * (lane - half) + 1))
    before = picked(builder, places, constant(lambda lane: 2 * lane - 1 if lane < half else 2 * (lane - half)))
    first = picked(builder, text, builder.add(before, constant(lambda lane: 1)))  # of the value
    negative = builder.icmp_unsigned("==", first, constant(lambda lane: ord("-") if lane >= half else 0))
    before = builder.add(before, constant(lambda lane: 0 if lane < half else 2))  # the point, with a digit before it
    before = builder.sub(before, builder.sext(negative, BYTES))
    before = from_second_lane(builder, before, -1)
    numbers = _spelled(builder, text, before, behind)
    unit = picked(builder, text, builder.sub(before, constant(lambda lane: 1)))
    length = builder.sub(builder.sub(behind, before), constant(lambda lane: 2))  # of the fraction, less 1
    power = ir.Constant(ir.VectorType(ir.DoubleType(), LANES), [10.0 ** (n + 1) for n in range(LONGEST)])
    power = call(builder, "llvm.x86.avx512.permvar.df.512", power.type, power, builder.bitcast(length, NUMBERS))
    unit = builder.and_(builder.bitcast(unit, NUMBERS), ir.Constant(NUMBERS, [0x0F] * LANES))
    negative = builder.bitcast(builder.sext(negative, BYTES), NUMBERS)
    fraction, unit, power, negative = (
        _first_lanes(builder, lanes, half, half) for lanes in (numbers, unit, power, negative)
    )
    fraction, unit = (_small(builder, lanes, ir.DoubleType(), half) for lanes in (fraction, unit))
    value = builder.fdiv(builder.fadd(builder.fmul(unit, power), fraction), power)
    negative = builder.icmp_signed("<", negative, ir.Constant(negative.type, [0] * half))
    value = builder.select(negative, builder.fneg(value), value)
    floats = builder.fptrunc(value, ir.VectorType(ir.FloatType(), half))
    return _first_lanes(builder, numbers, 0, half), floats


def _writer(lanes_of: Any, meaning: str) -> Any:
    def write(typingctx, text, p, marks, slots, values, k, at, limit):  # type: ignore[no-untyped-def]
        u = types.uint64
        signature = types.UniTuple(u, 3)(text, u, u, slots, values, u, u, u)

        def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
            _, p, marks, _, _, k, at, limit = args

            def address(argument: int, index: Any, kind: Any) -> Any:
                array = context.make_array(signature.args[argument])(context, builder, args[argument])
                return builder.bitcast(builder.gep(array.data, [index]), kind.as_pointer())

            block = builder.load(address(0, p, BYTES))
            block.align = 1
            numbers, floats = lanes_of(builder, block, marks)
            count, kind = floats.type.count, context.get_data_type(signature.args[3].dtype)
            found = numbers if kind == I64 else builder.trunc(numbers, ir.VectorType(kind, count))
            builder.store(found, address(3, k, found.type)).align = kind.width // 8
            builder.store(floats, address(4, at, floats.type)).align = 4
            zero = builder.fcmp_ordered("==", floats, ir.Constant(floats.type, [0.0] * count))
            large = builder.icmp_unsigned(">=", numbers, splat(builder, limit, count))
            other = builder.fcmp_ordered("!=", floats, ir.Constant(floats.type, [1.0] * count))
            masks = [builder.zext(builder.bitcast(mask, ir.IntType(count)), I64) for mask in (zero, large, other)]
            return context.make_tuple(builder, signature.return_type, masks)

        return signature, codegen

    write.__doc__ = meaning
    return intrinsic(write)


write_digit_features = _writer(
    _digit_lanes,
    """slots[k:] and values[at:] = eight features from `p` on, as far as `digit_features` says that they are there.

    `marks`: the delimiters from `p` on. Returns three masks of them: those of value 0, those whose index is not below
    `limit`, and those whose value is not 1.
    """,
)
write_decimal_features = _writer(_decimal_lanes, "As `write_digit_features`, for four features of `decimal_features`.")
