"""The vector passes equal the scalar functions, lane by lane and bit by bit."""

from __future__ import annotations

import numba
import numpy as np
import pytest
import reference

from lessram.numerics import random, rate, rounding
from lessram.numerics.vector import LANES, padded
from lessram.tables import passes

LENGTHS = [0, 1, 7, 15, 16, 17, 40, 300]
KEY = 0x0123456789ABCDEF


@numba.njit
def draw_row(words, at, counting, length, key):
    shared = random.shared_word(np.uint64(key))
    passes.draw_row(words, np.uint64(at), counting, np.uint64(length), np.uint64(key), shared)


@numba.njit
def counted_one(own, key):
    return random.counting_bits(np.uint32(own), random.shared_word(np.uint64(key)))


@numba.njit
def any_outside(numbers, length, limit):
    return passes.any_outside(numbers, np.uint64(length), np.int32(limit))


@numba.njit
def mark_equal(numbers, length, value, masks):
    passes.mark_equal(numbers, np.uint64(length), np.uint32(value), masks)


@numba.njit
def draw_one(position, key):
    return random.word(np.uint32(position), np.uint64(key))


@numba.njit
def step_row(noted, rates, values, start, words, at, steps, length, gradient, shared):
    start, at, length, shared = np.uint64(start), np.uint64(at), np.uint64(length), np.uint32(shared)
    passes.step_row(noted, rates, values, start, words, at, steps, length, gradient, shared)


@numba.njit
def sum_of_squares(values, start, length):
    return passes.sum_of_squares(values, np.uint64(start), np.uint64(length))


@numba.njit
def rounded(step, own, shared):
    bits = random.rounding_bits(np.uint32(own), np.uint64(shared) << np.uint64(48))
    return rounding.random_round(step, bits)


@numba.njit
def exact_rate(alpha, count, offset, floor):
    return rate.exact_rate(alpha, count, offset, floor)


@pytest.mark.parametrize("at", [0, 304])
@pytest.mark.parametrize("length", LENGTHS)
def test_random_words(length, at):
    words = np.full(at + padded(length) + LANES, 0xDEADBEEF, np.uint32)
    draw_row(words, at, None, length, KEY)
    row, rest = words[at : at + length].tolist(), np.delete(words, slice(at, at + padded(length)))
    assert row == [reference.word(position, KEY) for position in range(length)]
    assert row == [draw_one(position, KEY) for position in range(length)]
    assert np.all(rest == 0xDEADBEEF), "nothing is written before the first block or behind the last one"


@pytest.mark.parametrize("at", [0, 304])
@pytest.mark.parametrize("length", LENGTHS)
def test_random_words_and_bits_to_count_with(length, at):
    words = np.full(at + padded(length), 0xDEADBEEF, np.uint32)
    counting = np.full(at + padded(length) + LANES, 0xDEADBEEF, np.uint64)
    draw_row(words, at, counting, length, KEY)
    row, bits = words[at : at + length].tolist(), counting[at : at + length].tolist()
    rest = np.delete(counting, slice(at, at + padded(length)))
    assert row == [draw_one(position, KEY) for position in range(length)]
    assert bits == [counted_one(own, KEY) for own in row]
    assert bits == [reference.counting_bits(position, KEY) for position in range(length)]
    assert np.all(rest == 0xDEADBEEF), "nothing is written before the first block or behind the last one"


@pytest.mark.parametrize("limit", [127, 1000, 32767])
@pytest.mark.parametrize("length", LENGTHS)
def test_any_outside(length, limit):
    numbers = np.random.default_rng(length).integers(-limit, limit + 1, padded(length) + LANES, dtype=np.int32)
    numbers[length:] = 2 * limit  # what stands behind the row does not count
    numbers[: min(length, 2)] = [limit, -limit][: min(length, 2)]
    assert not any_outside(numbers, length, limit)
    for place in {0, length // 2, length - 1} & set(range(length)):
        for beyond in (limit + 1, -limit - 1, limit + 65536, -limit - 65536):
            inside, numbers[place] = numbers[place], beyond
            assert any_outside(numbers, length, limit)
            numbers[place] = inside
    assert not any_outside(numbers, length, limit)


@pytest.mark.parametrize("length", LENGTHS)
def test_marks(length):
    numbers = np.random.default_rng(length).integers(0, 3, padded(length) + LANES).astype(np.uint32)
    used = -(-length // 64)
    masks = np.full(used + 2, 0xABCD_ABCD_ABCD_ABCD, np.uint64)  # what a longer row may have left there
    mark_equal(numbers, length, 2, masks)
    found = ((masks[:used, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)).ravel()
    assert found[:length].tolist() == (numbers[:length] == 2).tolist()
    assert not found[length:].any(), "lanes behind the row are not marked"
    assert np.all(masks[used:] == 0xABCD_ABCD_ABCD_ABCD), "nothing is written behind the last number"


def test_padded_lengths_are_whole_blocks():
    assert [padded(n) for n in (0, 1, 15, 16, 17, 300)] == [0, 16, 16, 16, 32, 304]


def lanes(seed: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What a row notes (positive, over many magnitudes), its values, its words."""
    rng = np.random.default_rng(seed)
    noted = np.exp(rng.normal(0, 6, 304)).astype(np.float32)
    values = (rng.choice([-1, 1], 304) * np.exp(rng.normal(0, 2, 304))).astype(np.float32)
    return noted, values, rng.integers(0, 2**32, 304, dtype=np.uint32)


def rates_by_the_scalar_functions(noted: np.ndarray, rates: object) -> np.ndarray:
    if rates is None or isinstance(rates, np.ndarray):
        return noted
    if isinstance(rates, tuple):
        return np.array([exact_rate(rates[0], n, *rates[1:]) for n in noted], np.float32)
    return np.full_like(noted, rates)


RATES = {
    "noted": None,
    "global": np.float32(0.037),
    "exact": (np.float32(0.3), np.float32(1), np.float32(0)),
    "floored": (np.float32(0.3), np.float32(0), np.float32(0.05)),
    "pulled": np.linspace(-9, 9, 304, dtype=np.float32),
}


@pytest.mark.parametrize("kind", [np.int32, np.float32], ids=["rounded", "floating"])
@pytest.mark.parametrize("start", [None, 0, 7], ids=["ones", "values", "values of a later row"])
@pytest.mark.parametrize("at", [0, 304])
@pytest.mark.parametrize("rates", RATES.values(), ids=RATES)
def test_steps(rates, at, start, kind):
    noted, values, words = lanes()
    g, shared = np.float32(-321.123), 0xBEEF
    steps = np.zeros(304, kind)
    batch = None if start is None else np.concatenate([np.full(start, np.nan, np.float32), values])
    drawn = np.concatenate([np.full(at, 0xDEADBEEF, np.uint32), words])
    step_row(noted, rates, batch, start or 0, drawn, at, steps, 300, g, shared)
    expected = rates_by_the_scalar_functions(noted, rates)[:300] * (1 if start is None else values[:300]) * g
    if isinstance(rates, np.ndarray):
        expected -= rates[:300]
    if kind is np.int32:
        assert steps[:300].tolist() == [rounded(d, w, shared) for d, w in zip(expected, words, strict=False)]
        sizes = 2 if start is None and isinstance(rates, np.float32) else 20
        assert len(set(steps[:300].tolist())) >= sizes, "steps of many sizes, not all 0 or saturated"
    else:
        assert steps[:300].tobytes() == expected.tobytes()


def test_strange_steps_saturate_as_in_the_scalar_function():
    strange = [np.nan, np.inf, -np.inf, 65536, -65536, 65535.5, -65535.5, 1e-45, -1e-45, 0, -0.0, 1e38, 1, 2, 3, 4]
    noted = np.array(strange).astype(np.float32)
    words = np.arange(16, dtype=np.uint32) * np.uint32(0x11111111)
    steps = np.zeros(16, np.int32)
    step_row(noted, None, None, 0, words, 0, steps, 16, np.float32(1), 7)
    assert steps.tolist() == [rounded(d, w, 7) for d, w in zip(noted, words, strict=True)]
    assert steps[:3].tolist() == [-65536, 65536, -65536]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("start", [0, 5])
def test_sum_of_squares(length, start):
    values = lanes()[1]
    padding = np.concatenate([np.full(start, np.nan, np.float32), values[:length], np.full(3, np.nan, np.float32)])
    expected = reference.sum_of_squares(values[:length].tolist())
    assert sum_of_squares(padding, start, length) == expected, "exactly the row, in a fixed order"
    assert expected == pytest.approx(float((values[:length].astype(float) ** 2).sum()), rel=1e-14)
