"""Several short names at once, where the processor can do it (data/byte_lanes.py).

Text in words is names with a blank between them. Sixty-four bytes hold six or seven of them; two permutations of the
bytes put their first and their other eight bytes into lanes, ready to wait for their hashes (data/short_names.py).

    the quick brown fox   ->   |the.....|quick...|brown...|fox.....|   and the same of bytes 8 to 15

Whatever is not a short name goes through the loop of data/vw_kernel.py, as does everything on other processors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from lessram.data.byte_lanes import (
    AVAILABLE,
    BYTES,
    I32,
    LANES,
    NUMBERS,
    behind_runs,
    constant,
    ends_before,
    from_second_lane,
    numbered,
    picked,
    place_of_mark,
    places_of,
    splat,
)
from lessram.data.interactions import NoProducts
from lessram.data.scanning import marks_from, mask_of, mask_of_range
from lessram.data.short_names import WAITING, hash_waiting
from lessram.jit import inlined, intrinsic, overloaded, types
from lessram.numerics.memory_words import bits_set

SEVERAL = LANES
"""How many are put aside at once; as many places of the arrays are overwritten."""

_ZERO, _ONE = np.uint64(0), np.uint64(1)
_spaces, _newlines, _digits = mask_of(b" "), mask_of(b"\n"), mask_of_range(b"0", b"9")


@inlined
def _sixteen_in_a_row(bits):
    """Where sixteen or more bits that are set begin."""
    for shift in (1, 2, 4, 8):
        bits &= bits >> np.uint64(shift)
    return bits


@inlined
def names_ahead(text, p, marks, hash_all):
    """How many names of up to 15 bytes follow each other from `p` on, each with a space or a newline behind it.

    Within 64 bytes and one line; no name is a number, unless `hash_all` says that this does not matter. Also returns
    where behind `p` the newline stands that ends the last of them; 64 if it is none.
    """
    newlines = _newlines(text, p)
    ends = _spaces(text, p) | newlines
    starts = (ends << _ONE) | _ONE
    wrong = (marks & ~ends) | (starts & ends) | _sixteen_in_a_row(~ends)
    if not hash_all:
        wrong |= ends & behind_runs(starts, _digits(text, p))
    return ends_before(wrong, ends, newlines)


@intrinsic
def put_several(typingctx, names, at, text, p, marks, seed, place):  # type: ignore[no-untyped-def]
    """Put eight names from `p` on aside, from `names[at]` on, their hashes to go to `place` and behind it.

    `marks`: where names end from `p` on. What stands behind the last name that `names_ahead` finds is of no account.
    """
    u = types.uint64
    signature = types.void(names, u, text, u, u, types.uint32, u)

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        names, at, text, p, marks, seed, place = args
        fields = dict(zip(signature.args[0].fields, signature.args[0].types, strict=True))

        def address(kind: Any, array: Any, index: Any, lanes: Any) -> Any:
            data = context.make_array(kind)(context, builder, array).data
            return builder.bitcast(builder.gep(data, [index]), lanes.as_pointer())

        def keep(name: str, lanes: Any) -> None:
            array = builder.extract_value(names, list(fields).index(name))
            builder.store(lanes, address(fields[name], array, at, lanes.type)).align = 4

        block = builder.load(address(signature.args[2], text, p, BYTES))
        block.align = 1
        places = places_of(builder, marks)
        stop = picked(builder, places, constant(lambda lane: lane))
        start = builder.add(picked(builder, places, constant(lambda lane: lane - 1)), constant(lambda lane: 1))
        start = from_second_lane(builder, start, 0)
        for name, first in (("firsts", 0), ("lasts", 8)):
            byte = builder.add(start, numbered(first))
            inside = builder.icmp_unsigned("<", byte, stop)
            kept = builder.select(inside, picked(builder, block, byte), constant(lambda lane: 0))
            keep(name, builder.bitcast(kept, NUMBERS))
        length = builder.and_(builder.bitcast(builder.sub(stop, start), NUMBERS), ir.Constant(NUMBERS, [0xFF] * LANES))
        keep("lengths", builder.trunc(length, ir.VectorType(I32, LANES)))
        keep("seeds", splat(builder, seed, LANES))
        keep("places", builder.add(splat(builder, place, LANES), ir.Constant(NUMBERS, list(range(LANES)))))
        return context.get_dummy_value()

    return signature, codegen


def several_names(
    text: Any, p: Any, marks: Any, seed: Any, hash_all: Any, products: Any, rows: Any, names: Any, k: Any, valued: Any
) -> Any:
    """Put names aside as long as there is nothing but short ones; of each the value is 1, written if any is `valued`.

    Returns where another word begins, or the newline's place; the new `k`; and whether the line has ended.
    """
    raise NotImplementedError("several_names() is for kernels")


@overloaded(several_names)
def _several_names(text, p, marks, seed, hash_all, products, rows, names, k, valued):
    plain = isinstance(products, types.BaseNamedTuple) and products.instance_class is NoProducts
    if not (AVAILABLE and seed == types.uint32 and plain):
        return lambda text, p, marks, seed, hash_all, products, rows, names, k, valued: (p, k, False)

    def several(text, p, marks, seed, hash_all, products, rows, names, k, valued):
        most = np.uint64(SEVERAL)
        while k + most <= np.uint64(rows.slots.size):
            if names.waiting[0] > np.uint64(WAITING - SEVERAL):
                hash_waiting(names, rows.slots)
            ends = marks_from(marks, p)
            there = min(bits_set(ends), most)
            good, newline = names_ahead(text, p, ends, hash_all)
            put_several(names, names.waiting[0], text, p, ends, seed, k)
            if valued:
                for i in range(SEVERAL):
                    rows.values[k + np.uint64(i)] = np.float32(1)
            # Almost always all that are there are good. Then the next place follows from the marks alone, and the
            # processor goes on from there before it knows.
            if there != _ZERO and there <= good and newline == np.uint64(64):
                p += place_of_mark(ends, there - _ONE) + _ONE
                k += there
                names.waiting[0] += there
                continue
            count = min(good, there)
            if count == _ZERO:
                break
            last = place_of_mark(ends, count - _ONE)
            k += count
            names.waiting[0] += count
            if last == newline:
                return p + last, k, True
            p += last + _ONE
            if count < there:
                break
        return p, k, False

    return several
