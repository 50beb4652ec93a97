"""Several features at once, where the processor can do it (data/byte_lanes.py).

Most svmlight text is one of a few kinds:

    12345:1 678:1 9:1             things that are there or not, or a few times
    12345:0.0862 678:-1.7552      words weighed, numbers scaled
    12345:12 678:0.5 9:-317.25    any short numbers

Of eight features at a time the eight bytes before each colon, those behind it and, of a fraction, those before its end
are put into lanes; where delimiters stand is known (data/delimiters.py). Three multiplications turn the digits of all
lanes into numbers:

    12345:0.0862 678:0.1755   ->   |00012345|00000678| ...   |.0862|.1755| ...   |00000862|00001755| ...

Whatever is wrong with a feature leaves bits in its lane that should be 0. What is not of these forms goes through the
loop of data/svmlight_kernel.py, as does everything on other processors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir

from lessram.data.byte_lanes import (
    BIT,
    BYTES,
    I8,
    I16,
    I32,
    I64,
    LANES,
    NUMBERS,
    all_lanes,
    bytes_above,
    call,
    splat,
    word_of,
)
from lessram.jit import intrinsic, types
from lessram.numerics.memory_words import byte_address

SEVERAL = LANES
"""How many are written at once; as many places of the arrays are overwritten."""
LONGEST = 8
"""Digits of an index, and of a fraction. As many bytes before the first delimiter are read."""

_PAIRS, _FOURS = ir.VectorType(ir.IntType(16), 32), ir.VectorType(I32, 16)
_COUPLES = ir.VectorType(I16, LANES)
_FLOATS, _DOUBLES = ir.VectorType(ir.FloatType(), LANES), ir.VectorType(ir.DoubleType(), LANES)


class _Words(NamedTuple):
    """Eight features as they stand in the text, as code is generated: a lane each."""

    index: Any
    """The eight bytes before the colon."""
    index_length: Any
    value: Any
    """The eight bytes behind the colon."""
    value_length: Any
    last: Callable[[], Any]
    """The eight bytes before the end."""


class _Found(NamedTuple):
    """What they say."""

    indexes: Any
    values: Any
    wrong: Any
    """Not 0 where something else stands."""


def _kept(builder: Any, length: Any) -> Any:
    """The bits of the last so many bytes of each lane; none for a length that is not 1 to 8."""
    bits = builder.sub(all_lanes(64), builder.shl(length, all_lanes(3)))
    return call(builder, "llvm.x86.avx512.psllv.q.512", NUMBERS, all_lanes(-1), bits)


def _not_1_to_8(builder: Any, length: Any) -> Any:
    """Not 0 in lanes with any other length."""
    return builder.and_(builder.sub(length, all_lanes(1)), all_lanes(~(LONGEST - 1)))


def _number(builder: Any, digits: Any) -> Any:
    """The number that eight digits make: they become numbers in pairs, then in fours, then all eight."""
    digits = builder.bitcast(digits, BYTES)
    pairs = call(builder, "llvm.x86.avx512.pmaddubs.w.512", _PAIRS, digits, ir.Constant(BYTES, [10, 1] * 32))
    fours = call(builder, "llvm.x86.avx512.pmaddw.d.512", _FOURS, pairs, ir.Constant(_PAIRS, [100, 1] * 16))
    fours = builder.bitcast(fours, NUMBERS)
    high, low = builder.and_(fours, all_lanes(0xFFFFFFFF)), builder.lshr(fours, all_lanes(32))
    return builder.add(builder.mul(high, all_lanes(10**4)), low)


def _spelled(builder: Any, word: Any, length: Any) -> tuple[Any, Any]:
    """The number that the last so many bytes of each lane spell, and what is not 0 if these are not 1 to 8 digits."""
    digits = builder.and_(builder.xor(word, all_lanes(word_of(b"00000000"))), _kept(builder, length))
    wrong = builder.or_(bytes_above(builder, digits, word_of(b"\t" * 8)), _not_1_to_8(builder, length))
    return _number(builder, digits), wrong


def _digit_features(builder: Any, words: _Words) -> _Found:
    """Values of one digit."""
    indexes, wrong = _spelled(builder, words.index, words.index_length)
    value = builder.and_(builder.xor(words.value, all_lanes(ord("0"))), all_lanes(0xFF))
    wrong = builder.or_(wrong, builder.xor(words.value_length, all_lanes(1)))
    wrong = builder.or_(wrong, bytes_above(builder, value, 9))
    return _Found(indexes, builder.sitofp(value, _FLOATS), wrong)


def _decimal_features(builder: Any, words: _Words) -> _Found:
    """A digit, a point, a fraction: (digit * 10^n + fraction) / 10^n, one rounding of two exact numbers."""
    indexes, wrong = _spelled(builder, words.index, words.index_length)
    negative = builder.icmp_unsigned("==", builder.and_(words.value, all_lanes(0xFF)), all_lanes(ord("-")))
    head = builder.select(negative, builder.lshr(words.value, all_lanes(8)), words.value)
    head = builder.xor(head, all_lanes(word_of(b"0.")))
    head = builder.and_(head, all_lanes(0xFFFF))  # the digit, and 0 for the point
    before = builder.select(negative, all_lanes(3), all_lanes(2))
    length = builder.sub(words.value_length, before)
    fraction, wrong_fraction = _spelled(builder, words.last(), length)
    wrong = builder.or_(builder.or_(wrong, wrong_fraction), bytes_above(builder, head, 9))
    power = ir.Constant(_DOUBLES, [10.0 ** (n + 1) for n in range(LONGEST)])
    power = call(builder, "llvm.x86.avx512.permvar.df.512", _DOUBLES, power, builder.sub(length, all_lanes(1)))
    unit, fraction = (builder.sitofp(lanes, _DOUBLES) for lanes in (builder.and_(head, all_lanes(0xFF)), fraction))
    value = builder.fdiv(builder.fadd(builder.fmul(unit, power), fraction), power)
    value = builder.select(negative, builder.fneg(value), value)
    return _Found(indexes, builder.fptrunc(value, _FLOATS), wrong)


def _number_features(builder: Any, words: _Words) -> _Found:
    """Up to eight digits, one of which may be a point, and perhaps a minus: whole number / 10^n."""
    indexes, wrong = _spelled(builder, words.index, words.index_length)
    negative = builder.icmp_unsigned("==", builder.and_(words.value, all_lanes(0xFF)), all_lanes(ord("-")))
    length = builder.sub(words.value_length, builder.select(negative, all_lanes(1), all_lanes(0)))
    kept, last = _kept(builder, length), words.last()
    points = builder.icmp_unsigned("==", builder.bitcast(last, BYTES), ir.Constant(BYTES, [ord(".")] * 64))
    points = builder.and_(builder.bitcast(builder.sext(points, BYTES), NUMBERS), kept)
    lowest = builder.and_(points, builder.sub(all_lanes(0), points))
    one = builder.sub(builder.shl(lowest, all_lanes(8)), lowest)
    there = builder.icmp_unsigned("!=", points, all_lanes(0))
    digits = builder.xor(last, all_lanes(word_of(b"00000000")))
    digits = builder.and_(builder.and_(digits, kept), builder.xor(points, all_lanes(-1)))
    before = builder.and_(digits, builder.select(there, builder.sub(lowest, all_lanes(1)), all_lanes(0)))
    together = builder.or_(builder.xor(digits, before), builder.shl(before, all_lanes(8)))
    how_many = builder.sub(length, builder.select(there, all_lanes(1), all_lanes(0)))
    for more in (
        builder.xor(points, one),
        bytes_above(builder, digits, word_of(b"\t" * 8)),
        _not_1_to_8(builder, length),
        _not_1_to_8(builder, how_many),
    ):
        wrong = builder.or_(wrong, more)
    behind = builder.lshr(call(builder, "llvm.ctlz.v8i64", NUMBERS, points, BIT(0)), all_lanes(3))
    power = ir.Constant(_DOUBLES, [10.0**n for n in range(LONGEST)])  # n modulo 8: without a point it is 8
    power = call(builder, "llvm.x86.avx512.permvar.df.512", _DOUBLES, power, behind)
    value = builder.fdiv(builder.sitofp(_number(builder, together), _DOUBLES), power)
    value = builder.select(negative, builder.fneg(value), value)
    return _Found(indexes, builder.fptrunc(value, _FLOATS), wrong)


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any, kind: Any) -> Any:
    """Where `array[index]` lies, as what is to be read or written there."""
    size = context.get_abi_sizeof(context.get_data_type(array_type.dtype))
    byte = byte_address(context, builder, array_type, array, builder.mul(index, I64(size)))
    return builder.bitcast(byte, kind.as_pointer())


def _loaded(context: Any, builder: Any, array_type: Any, array: Any, index: Any, kind: Any) -> Any:
    """What stands there, which need not be aligned."""
    found = builder.load(_pointer(context, builder, array_type, array, index, kind))
    found.align = 1
    return found


def _words_of(builder: Any, load: Callable[[int, Any, Any], Any], start: Any, number: Any) -> _Words:
    """The eight features whose delimiters are those from `number` on. `load(argument, index, type)` looks at arrays."""

    def place(lane: int, which: int) -> Any:
        index = builder.add(number, I64(2 * lane + which))
        return builder.add(start, builder.zext(load(_PLACES, index, I16), I64))

    def words(which: int, offset: int) -> Any:
        """Eight bytes some way behind the first or the second delimiter of each feature."""
        lanes: Any = ir.Constant(NUMBERS, ir.Undefined)
        for lane in range(LANES):
            word = load(_TEXT, builder.add(place(lane, which), I64(offset)), I64)
            lanes = builder.insert_element(lanes, word, I32(lane))
        return lanes

    pairs = ir.VectorType(I32, LANES)
    here, earlier = (
        builder.zext(load(_PLACES, index, pairs), NUMBERS) for index in (number, builder.sub(number, I64(1)))
    )
    before, colon, end = (
        builder.and_(pair, all_lanes(0xFFFF)) for pair in (earlier, here, builder.lshr(here, all_lanes(16)))
    )
    index_length, value_length = (
        builder.sub(builder.sub(stop, begin), all_lanes(1)) for begin, stop in ((before, colon), (colon, end))
    )
    return _Words(words(0, -8), index_length, words(0, 1), value_length, lambda: words(1, -8))


def _are_delimited(builder: Any, kinds: Any) -> Any:
    """Whether a colon stands behind the index, and a space or a newline behind the value."""
    usual, last = (
        builder.icmp_unsigned("==", kinds, ir.Constant(kinds.type, [word_of(pair)] * LANES)) for pair in (b": ", b":\n")
    )
    return builder.or_(usual, last)


_TEXT, _PLACES, _KINDS, _SLOTS, _VALUES = 0, 2, 3, 5, 6  # arguments that are arrays


def _writer(read: Callable[[Any, _Words], _Found], meaning: str) -> Any:
    def write(typingctx, text, start, places, kinds, number, slots, values, k, at, limit):  # type: ignore[no-untyped-def]
        u = types.uint64
        signature = types.UniTuple(u, 4)(text, u, places, kinds, u, slots, values, u, u, u)

        def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
            _, start, _, _, number, _, _, k, at, limit = args

            def load(argument: int, index: Any, kind: Any) -> Any:
                return _loaded(context, builder, signature.args[argument], args[argument], index, kind)

            def store(argument: int, index: Any, lanes: Any) -> None:
                place = _pointer(context, builder, signature.args[argument], args[argument], index, lanes.type)
                builder.store(lanes, place).align = 4

            found = read(builder, _words_of(builder, load, start, number))
            slot = context.get_data_type(signature.args[_SLOTS].dtype)
            indexes = found.indexes if slot == I64 else builder.trunc(found.indexes, ir.VectorType(slot, LANES))
            store(_SLOTS, k, indexes)
            store(_VALUES, at, found.values)
            wrong = builder.icmp_unsigned("!=", found.wrong, all_lanes(0))
            wrong = builder.or_(wrong, builder.not_(_are_delimited(builder, load(_KINDS, number, _COUPLES))))
            zero = builder.fcmp_ordered("==", found.values, ir.Constant(_FLOATS, [0.0] * LANES))
            large = builder.icmp_unsigned(">=", found.indexes, splat(builder, limit, LANES))
            other = builder.fcmp_ordered("!=", found.values, ir.Constant(_FLOATS, [1.0] * LANES))
            masks = [builder.zext(builder.bitcast(mask, I8), I64) for mask in (wrong, zero, large, other)]
            return context.make_tuple(builder, signature.return_type, masks)

        return signature, codegen

    write.__doc__ = meaning
    return intrinsic(write)


write_digit_features = _writer(
    _digit_features,
    """slots[k:] and values[at:] = eight features `index:digit`, whose delimiters are those from `number` on.

    `start`: where in the text places are counted from. Returns four masks: of what is no such feature, of value 0, of
    indexes that are not below `limit`, and of values other than 1.
    """,
)
write_decimal_features = _writer(
    _decimal_features,
    "As `write_digit_features`, for `index:digit.digits` with up to 8 digits behind the point and perhaps a minus.",
)
write_number_features = _writer(
    _number_features,
    "As `write_digit_features`, for values of up to 8 digits, or 7 around a point, perhaps with a minus.",
)
