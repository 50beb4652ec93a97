"""Sixteen-lane expressions: write `a * b + c` in Python, get one vector instruction each.

Used inside code generators (intrinsics) where the automatic vectoriser cannot be relied upon. Only
IEEE add, subtract, multiply, divide, square root, floor, compare, convert and bit operations are
offered, none of them fused or reassociated, so every instruction set computes the same bits as the
scalar functions of this folder, which remain the specification. Beside them stand the scratch arrays that they
read and write (`padded`, `spread_arrays`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from lessram.jit import cgutils, intrinsic, target_features, types

LANES = 16
_ALIASES = 4096  # addresses this far apart look the same to a load that searches the stores before it

I32, I64 = ir.IntType(32), ir.IntType(64)
INTS = ir.VectorType(I32, LANES)
FLOATS = ir.VectorType(ir.FloatType(), LANES)
DOUBLES = ir.VectorType(ir.DoubleType(), LANES)
LONGS = ir.VectorType(I64, LANES)
MASK = ir.VectorType(ir.IntType(1), LANES)


def padded(length: int) -> int:
    """The length of a scratch array whose last block is whole."""
    return -(-length // LANES) * LANES


def spread_arrays(count: int, kinds: Sequence[type[np.generic]], doubled: int = 0) -> list[NDArray[Any]]:
    """Zeroed arrays of `count` numbers each, up to eight, for passes that read some of them while they write others.

    The first `doubled` of them have twice as many.

    Each begins on a cache line of its own, and at an eighth of a page of its own: a load waits for stores before it
    whose addresses end in the same twelve bits, if to other arrays. Worth 1 to 4 % of a row, and up to 20 % where the
    allocator's places are unlucky.
    """
    sizes = [count * np.dtype(kind).itemsize * (1 + (k < doubled)) for k, kind in enumerate(kinds)]
    room = np.zeros(sum(sizes) + (len(kinds) + 1) * _ALIASES, np.uint8)
    arrays, start = [], 0
    for k, (kind, size) in enumerate(zip(kinds, sizes, strict=True)):
        start += (k * _ALIASES // 8 - room.ctypes.data - start) % _ALIASES
        arrays.append(room[start : start + size].view(kind))
        start += size
    return arrays


class Vector:
    """One vector value while code is generated; Python numbers become constants in every lane."""

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder = builder
        self.value = value

    def _lift(self, other: Any) -> Any:
        if isinstance(other, Vector):
            return other.value
        if self.value.type in (FLOATS, DOUBLES):
            return ir.Constant(self.value.type, [float(other)] * LANES)
        kind = self.value.type
        return ir.Constant(kind, [int(other) & ((1 << kind.element.width) - 1)] * LANES)

    def _apply(self, operation: str, other: Any) -> Vector:
        return Vector(self.builder, getattr(self.builder, operation)(self.value, self._lift(other)))

    def _real(self, real: str, whole: str) -> str:
        return real if self.value.type in (FLOATS, DOUBLES) else whole

    def __add__(self, other: Any) -> Vector:
        return self._apply(self._real("fadd", "add"), other)

    def __sub__(self, other: Any) -> Vector:
        return self._apply(self._real("fsub", "sub"), other)

    def __mul__(self, other: Any) -> Vector:
        return self._apply(self._real("fmul", "mul"), other)

    def __truediv__(self, other: Any) -> Vector:
        return self._apply("fdiv", other)

    def __xor__(self, other: Any) -> Vector:
        return self._apply("xor", other)

    def __or__(self, other: Any) -> Vector:
        return self._apply("or_", other)

    def __and__(self, other: Any) -> Vector:
        return self._apply("and_", other)

    def __lshift__(self, other: Any) -> Vector:
        return self._apply("shl", other)

    def __rshift__(self, other: Any) -> Vector:
        return self._apply("lshr", other)

    def rotated(self, bits: int) -> Vector:
        """Every lane with its bits moved up by so many, those that leave at the top coming in again below."""
        return (self << bits) | (self >> (32 - bits))

    def below(self, other: Any) -> Vector:
        """1 in the lanes that are less than `other`, else 0 (floats; false for NaN)."""
        mask = self.builder.fcmp_ordered("<", self.value, self._lift(other))
        return Vector(self.builder, self.builder.zext(mask, INTS))

    def exceeds(self, other: Any) -> Any:
        """A mask of the lanes that are greater than `other` (floats; false for NaN)."""
        return self.builder.fcmp_ordered(">", self.value, self._lift(other))

    def where(self, mask: Any, other: Any) -> Vector:
        """These lanes where the mask is set, `other` elsewhere."""
        return Vector(self.builder, self.builder.select(mask, self.value, self._lift(other)))

    def smallest(self, other: Any) -> Vector:
        """min(self, other) of signed integers."""
        mask = self.builder.icmp_signed("<", self.value, self._lift(other))
        return Vector(self.builder, self.builder.select(mask, self.value, self._lift(other)))

    def largest(self, other: Any) -> Vector:
        """max(self, other) of signed integers."""
        return Vector(self.builder, self.builder.select(self.over(other), self.value, self._lift(other)))

    def over(self, other: Any) -> Any:
        """A mask of the lanes that are greater than `other` (signed integers)."""
        return self.builder.icmp_signed(">", self.value, self._lift(other))

    def largest_unsigned(self, other: Any) -> Vector:
        """max(self, other) of unsigned integers."""
        return Vector(self.builder, self.builder.select(self.over_unsigned(other), self.value, self._lift(other)))

    def over_unsigned(self, other: Any) -> Any:
        """A mask of the lanes that are greater than `other` (unsigned integers)."""
        return self.builder.icmp_unsigned(">", self.value, self._lift(other))

    def cast(self, kind: Any) -> Vector:
        """The same bits as another type of lanes."""
        return Vector(self.builder, self.builder.bitcast(self.value, kind))

    def at_least(self, other: Any) -> Vector:
        """max(self, other); `other` in the lanes of NaN."""
        mask = self.builder.fcmp_ordered(">", self.value, self._lift(other))
        return Vector(self.builder, self.builder.select(mask, self.value, self._lift(other)))

    def at_most(self, other: Any) -> Vector:
        """min(self, other); `other` in the lanes of NaN."""
        mask = self.builder.fcmp_ordered("<", self.value, self._lift(other))
        return Vector(self.builder, self.builder.select(mask, self.value, self._lift(other)))

    def fold(self, shift: int) -> Vector:
        return self ^ (self >> shift)

    def to_floats(self) -> Vector:
        return Vector(self.builder, self.builder.sitofp(self.value, FLOATS))

    def to_longs(self) -> Vector:
        """Unsigned integers in 64 bits a lane."""
        return Vector(self.builder, self.builder.zext(self.value, LONGS))

    def to_ints(self) -> Vector:
        return Vector(self.builder, self.builder.fptosi(self.value, INTS))

    def to_doubles(self) -> Vector:
        return Vector(self.builder, self.builder.fpext(self.value, DOUBLES))

    def sum_as_tree(self) -> Any:
        """The sum of all lanes, always in the same order: lane i + lane i + 8, then 4, 2 and 1 apart."""
        total = self.value
        for apart in (8, 4, 2, 1):
            order = ir.Constant(INTS, [(lane + apart) % LANES for lane in range(LANES)])
            total = self.builder.fadd(total, self.builder.shuffle_vector(total, total, order))
        return self.builder.extract_element(total, I32(0))

    def floor(self) -> Vector:
        return self._unary("llvm.floor.v16f32")

    def root(self) -> Vector:
        return self._unary("llvm.sqrt.v16f32")

    def _unary(self, name: str) -> Vector:
        function = cgutils.get_or_insert_function(self.builder.module, ir.FunctionType(FLOATS, [FLOATS]), name)
        return Vector(self.builder, self.builder.call(function, [self.value]))


def fields_of(builder: Any, kind: Any, value: Any) -> dict[str, tuple[Any, Any]]:
    """The fields of a NamedTuple while code is generated, each with its type."""
    return {
        name: (field, builder.extract_value(value, i))
        for i, (name, field) in enumerate(zip(kind.fields, kind.types, strict=True))
    }


def splat(builder: Any, scalar: Any) -> Vector:
    """The same scalar in all lanes."""
    kind = ir.VectorType(scalar.type, LANES)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, I32(0))
    return Vector(builder, builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), ir.Constant(INTS, [0] * LANES)))


def lane_numbers(builder: Any) -> Vector:
    return Vector(builder, ir.Constant(INTS, list(range(LANES))))


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any, kind: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), kind.as_pointer())


def load(context: Any, builder: Any, array_type: Any, array: Any, index: Any, kind: Any) -> Vector:
    """Lanes `array[index : index + 16]` of a 4-byte type."""
    value = builder.load(_address(context, builder, array_type, array, index, kind))
    value.align = 4
    return Vector(builder, value)


def load_inside(context: Any, builder: Any, array_type: Any, array: Any, index: Any, left: Any) -> Vector:
    """Float lanes from `index` on, of which only `left` exist; the others are 0 and not touched."""
    mask = inside(builder, left)
    signature = ir.FunctionType(FLOATS, [FLOATS.as_pointer(), I32, MASK, FLOATS])
    function = cgutils.get_or_insert_function(builder.module, signature, "llvm.masked.load.v16f32.p0")
    address = _address(context, builder, array_type, array, index, FLOATS)
    return Vector(builder, builder.call(function, [address, I32(4), mask, ir.Constant(FLOATS, [0.0] * LANES)]))


def inside(builder: Any, left: Any) -> Any:
    """A mask of the first `left` lanes."""
    count = builder.trunc(builder.select(builder.icmp_unsigned("<", left, I64(LANES)), left, I64(LANES)), I32)
    return builder.icmp_unsigned("<", lane_numbers(builder).value, splat(builder, count).value)


def any_lane(builder: Any, mask: Any) -> Any:
    """Whether a mask is set in some lane."""
    return builder.icmp_unsigned("!=", builder.bitcast(mask, ir.IntType(LANES)), ir.IntType(LANES)(0))


class _VectorGep(ir.instructions.Instruction):  # type: ignore[misc]
    """The addresses base[lane of index]: a form of getelementptr that llvmlite's builder does not know."""

    def descr(self, buf: list[str]) -> None:
        base, index = self.operands
        kinds = f"{base.type} {base.get_reference()}, {index.type} {index.get_reference()}"
        buf.append(f"getelementptr float, {kinds}\n")


def gather(context: Any, builder: Any, array_type: Any, array: Any, index: Vector) -> Vector:
    """Float lanes array[index], the index below the array's length in every lane."""
    base = context.make_array(array_type)(context, builder, array).data
    pointers = ir.VectorType(ir.FloatType().as_pointer(), LANES)
    wide = builder.sext(index.value, ir.VectorType(I64, LANES))
    addresses = _VectorGep(builder.block, pointers, "getelementptr", [base, wide])
    builder._insert(addresses)
    signature = ir.FunctionType(FLOATS, [pointers, I32, MASK, FLOATS])
    function = cgutils.get_or_insert_function(builder.module, signature, "llvm.masked.gather.v16f32.v16p0")
    every = ir.Constant(MASK, [True] * LANES)
    return Vector(builder, builder.call(function, [addresses, I32(4), every, ir.Constant(FLOATS, [0.0] * LANES)]))


_IN_REGISTERS = 4 * LANES


def look_up(context: Any, builder: Any, array_type: Any, array: Any, index: Vector) -> Vector:
    """Float lanes array[index], the array of at least 64, the index below its length in every lane and mostly below 64.

    AVX-512 picks from 64 numbers in four registers in a sixth of the time of a gather.
    """
    if "avx512f" not in target_features():
        return gather(context, builder, array_type, array, index)
    found = cgutils.alloca_once(builder, FLOATS)
    with builder.if_else(any_lane(builder, index.over(_IN_REGISTERS - 1))) as (beyond, within):
        with beyond:
            builder.store(gather(context, builder, array_type, array, index).value, found)
        with within:
            starts = [I64(start) for start in range(0, _IN_REGISTERS, LANES)]
            parts = [load(context, builder, array_type, array, start, FLOATS).value for start in starts]
            signature, name = ir.FunctionType(FLOATS, [FLOATS, INTS, FLOATS]), "llvm.x86.avx512.vpermi2var.ps.512"
            pick = cgutils.get_or_insert_function(builder.module, signature, name)
            low, high = (builder.call(pick, [parts[i], index.value, parts[i + 1]]) for i in (0, 2))
            builder.store(builder.select(index.over(2 * LANES - 1), high, low), found)
    return Vector(builder, builder.load(found))


def store(context: Any, builder: Any, array_type: Any, array: Any, index: Any, vector: Vector) -> None:
    """array[index : index + 16] = vector, of elements of one size."""
    builder.store(vector.value, _address(context, builder, array_type, array, index, vector.value.type)).align = 4


def store_inside(
    context: Any, builder: Any, array_type: Any, array: Any, index: Any, left: Any, vector: Vector
) -> None:
    """array[index : index + left] = the first lanes of the vector, integers; all sixteen if `left` is more."""
    signature = ir.FunctionType(ir.VoidType(), [INTS, INTS.as_pointer(), I32, MASK])
    function = cgutils.get_or_insert_function(builder.module, signature, "llvm.masked.store.v16i32.p0")
    address = _address(context, builder, array_type, array, index, INTS)
    builder.call(function, [vector.value, address, I32(4), inside(builder, left)])


def store_mask(context: Any, builder: Any, array_type: Any, array: Any, index: Any, mask: Any) -> None:
    """The lanes of the block that begins at `index` as bits of a row's mask, 64 a number, the first lane lowest.

    Blocks are to be stored in order: the first one of a number clears the others. Whole numbers are written, so that
    who reads one next need not wait until the parts of it have left the processor's queue of stores.
    """
    data = context.make_array(array_type)(context, builder, array).data
    place = builder.gep(data, [builder.lshr(index, I64(6))])
    shift = builder.and_(index, I64(63))
    bits = builder.shl(builder.zext(builder.bitcast(mask, ir.IntType(LANES)), I64), shift)
    earlier = builder.select(builder.icmp_unsigned("==", shift, I64(0)), I64(0), builder.load(place))
    builder.store(builder.or_(earlier, bits), place)


@contextmanager
def blocks(builder: Any, length: Any) -> Iterator[Any]:
    """Generate a loop over whole blocks of lanes; yields the index of a block's first lane."""
    with cgutils.for_range_slice(builder, I64(0), length, I64(LANES), I64) as (index, _):
        yield index


def random_words(builder: Any, first: Any, key: Any) -> Vector:
    """word(first + lane, key) of numerics.random; `first` an i32, `key` an i64."""
    low, high = builder.trunc(key, I32), builder.trunc(builder.lshr(key, I64(32)), I32)
    x = (splat(builder, first) + lane_numbers(builder)) * 0x9E3779B9 + splat(builder, low)
    x = (x.fold(16) * 0x21F0AAAD).fold(15) + splat(builder, high)
    return ((x * 0x735A2D97).fold(15) * 0xAC4C1B51).fold(14)


@intrinsic
def count_at_most(typingctx, numbers, x):  # type: ignore[no-untyped-def]
    """How many of sixteen numbers (int32) are at most x."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        loaded = builder.load(builder.bitcast(data, INTS.as_pointer()))
        loaded.align = 4
        first = builder.insert_element(ir.Constant(INTS, ir.Undefined), args[1], I32(0))
        everywhere = builder.shuffle_vector(first, first, ir.Constant(INTS, [0] * LANES))
        found = builder.bitcast(builder.icmp_signed("<=", loaded, everywhere), ir.IntType(LANES))
        return builder.zext(builder.ctpop(found), I64)

    return types.uint64(numbers, types.int32), codegen
