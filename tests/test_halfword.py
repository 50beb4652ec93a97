"""The 16-bit cell equals tests/reference_halfword.py: cells, margins and scalars, bit for bit."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numba
import numpy as np
import pytest
from comparing import state_of
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import Row
from reference_halfword import COARSE, FINE, HalfwordLearner, SixBits, ordinal
from streams import ABSURD, LENGTHS, cut, make_crowded_rows, make_rows, to_batch

from lessram.data.batch import Batch
from lessram.errors import SpecError
from lessram.learning.learner import Learner
from lessram.model.spec import Spec
from lessram.numerics import six_bits as ours
from lessram.numerics.accumulator import fine_uniform
from lessram.tables.halfword import Halfword, halfword_scratch
from lessram.tables.layout import allocate, nbytes_of, put_weights, stored_weights, touched

SLOTS = 96
LAST = 62
LADDER = [*range(32), *range(32, 64, 2)]
BINARY = make_rows(SLOTS, LENGTHS * 3)
VALUED = make_rows(SLOTS, LENGTHS * 3, valued=True)
CHOICES = {"slots": SLOTS, "weights": "e3m6", "rates": "squares6", "seed": 5, "alpha": 0.3}

both_steps = pytest.mark.parametrize("step_rule", ["plain", "invariant"])
both_kinds = pytest.mark.parametrize("valued", [False, True], ids=["binary", "valued"])


def pair(**choices: Any) -> tuple[Learner, HalfwordLearner]:
    """A learner and the reference, both fresh, with the same choices."""
    return Learner(Spec(**{**CHOICES, **choices})), HalfwordLearner(**{**CHOICES, **choices})


def cells_of(learner: Learner) -> np.ndarray:
    return learner.model.table.cells


def set_state(learner: Learner, reference: HalfwordLearner, slot: int, weight: int, level: int) -> None:
    """Put a weight, in units, and a level into both."""
    reference.coefficient[slot], reference.state[slot] = weight, level
    cells_of(learner)[slot] = reference.cells()[slot]


def learn_both(learner: Learner, reference: HalfwordLearner, rows: list[Row], batch: Batch) -> None:
    margins = learner.learn(batch, trusted=True)
    assert margins.tolist() == [reference.learn(row) for row in rows]
    assert cells_of(learner).tolist() == reference.cells()
    scalars = [reference.intercept, reference.intercept_sum, reference.squares, reference.nonzeros]
    assert learner.model.scalars.tolist() == scalars
    assert learner.model.examples == reference.examples


# Rows ---------------------------------------------------------------------------------------------------------------


@both_steps
@both_kinds
def test_rows(step_rule, valued):
    learner, reference = pair(step_rule=step_rule)
    rows = VALUED if valued else BINARY
    learn_both(learner, reference, rows, to_batch(rows, valued=valued))
    assert learner.predict(to_batch(rows, valued=valued)).tolist() == [reference.play(row) for row in rows]


@pytest.mark.parametrize(
    "choices",
    [
        {"weights": "e3m6x2"},
        {"weights": "e3m6x4", "radius": 1.3, "alpha": 5.0},
        {"weights": "e3m6x0.25", "alpha": 60.0, "step_rule": "plain"},
    ],
)
def test_wider_and_narrower_formats(choices):
    """The same cells, with another unit: the reference is given a grid whose step is that unit."""
    learner, reference = pair(**choices)
    learn_both(learner, reference, VALUED, to_batch(VALUED))
    if "radius" in choices:
        assert np.abs(learner.model.weights()).max() == 4 * 0.32421875, "the largest gridpoint within 1.3"
    if choices["weights"] == "e3m6x0.25":
        assert np.abs(learner.model.weights()).max() == 1.984375, "weights end there"


@pytest.mark.parametrize("loss", ["squared", "hinge"])
@both_steps
def test_other_losses(step_rule, loss):
    learner, reference = pair(loss=loss, step_rule=step_rule, alpha=0.05)
    learn_both(learner, reference, VALUED, to_batch(VALUED))


def test_without_intercept_and_scale():
    learner, reference = pair(intercept=False, scale="none", alpha=0.05, beta=1.0)
    learn_both(learner, reference, VALUED, to_batch(VALUED))
    assert learner.model.scalars.tolist() == [0.0] * 4


def test_long_rows_and_late_examples():
    rows = make_rows(SLOTS, (5, 1023, 1024, 1025, 3000, 1))
    learner, reference = pair()
    learner.model.examples = reference.examples = 2**33 + 12345
    learn_both(learner, reference, rows, to_batch(rows, valued=False))


@both_kinds
@both_steps
def test_a_slot_many_times_in_one_row(step_rule, valued):
    rows = make_crowded_rows(valued=valued)
    learner, reference = pair(step_rule=step_rule, alpha=0.1)
    learn_both(learner, reference, rows, to_batch(rows, valued=valued))


def test_rates_of_all_occurrences_come_from_the_sum_before_the_row():
    # Were the second occurrence's rate to follow the first one's square, its step would be a fifth shorter.
    moved = []
    for times in (1, 2):
        learner, _ = pair(step_rule="plain", intercept=False, alpha=0.05)
        learner.learn(to_batch([Row(1.0, [(4, 1.0)] * times)], valued=False), trusted=True)
        moved.append(float(learner.model.weights(4, 5)[0]))
    assert moved[0] == pytest.approx(0.05 * 0.5 / (0.3 + 0.5), abs=2.0**-10)
    assert moved[1] == pytest.approx(2 * moved[0], rel=0, abs=2.0**-9)


@both_steps
def test_weights_of_all_sizes_take_steps_across_binades(step_rule):
    learner, reference = pair(step_rule=step_rule, alpha=1.0, scale="none", intercept=False)
    for slot in range(SLOTS):
        set_state(learner, reference, slot, COARSE[slot * 1022 // (SLOTS - 1)], LADDER[slot * 7 % 48])
    learn_both(learner, reference, VALUED, to_batch(VALUED))
    assert len({abs(w).bit_length() for w in reference.coefficient}) > 6


@pytest.mark.parametrize("radius", [0.4, None])
def test_weights_saturate(radius):
    # The plain step: the invariant one stops before it gets there.
    learner, reference = pair(radius=radius, alpha=60.0, step_rule="plain")
    learn_both(learner, reference, VALUED, to_batch(VALUED))
    largest = (408 if radius else 8128) / 1024
    assert {largest, -largest} <= set(learner.model.weights().tolist())


@pytest.mark.parametrize("radius", [0.4, None])
def test_finer_weights_end_at_the_same_gridpoint(radius):
    learner, reference = pair(radius=radius, alpha=600.0, step_rule="plain")
    for slot in range(SLOTS):
        set_state(learner, reference, slot, FINE[1024 + slot], 32 + 2 * (slot % 4))
    learn_both(learner, reference, VALUED, to_batch(VALUED))
    assert max(reference.coefficient) == (816 if radius else 16256)


def test_weights_become_finer_when_their_sums_are_high():
    # Slot 3 meets every row: its level passes 32 in time, and then odd ordinals occur.
    learner, reference = pair()
    rows = [row._replace(features=[(3, 1.0), *row.features]) for row in BINARY] * 8
    learn_both(learner, reference, rows, to_batch(rows, valued=False))
    high = [slot for slot in range(SLOTS) if reference.state[slot] >= 32]
    assert 3 in high
    assert any(ordinal(reference.coefficient[slot]) % 2 for slot in high)
    assert not any(ordinal(reference.coefficient[slot]) % 2 for slot in range(SLOTS) if slot not in high)


def test_levels_saturate():
    learner, reference = pair(step_rule="plain")
    for slot in range(SLOTS):
        set_state(learner, reference, slot, slot % 5, LAST - 2 * (slot % 4))
    rows = [row._replace(weight=1e9) for row in VALUED]
    learn_both(learner, reference, rows, to_batch(rows))
    assert set((cells_of(learner)[:8] & 62).tolist()) == {LAST}


@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize("scale", ["none", "rms"])
def test_absurd_values_and_weights_saturate(loss, scale):
    rows = ABSURD * 3
    learner, reference = pair(loss=loss, scale=scale, alpha=1000.0, intercept=False)
    learn_both(learner, reference, rows, to_batch(rows))


def test_no_values_equal_values_of_one():
    implied, explicit = pair()[0], pair()[0]
    rows = to_batch(BINARY, valued=False, weighted=False), to_batch(BINARY, valued=True, weighted=True)
    assert implied.learn(rows[0]).tolist() == explicit.learn(rows[1]).tolist()
    assert implied.predict(rows[0]).tolist() == explicit.predict(rows[1]).tolist()
    assert state_of(implied.model) == state_of(explicit.model)


@both_kinds
@settings(max_examples=10)
@given(places=st.lists(st.integers(0, len(VALUED)), max_size=8))
def test_any_split_into_batches_gives_the_same_bytes(valued, places):
    batch = to_batch(VALUED if valued else BINARY, valued=valued)
    whole, parts = pair()[0], pair()[0]
    margins = whole.learn(batch, trusted=True)
    pieces = [parts.learn(piece, trusted=True) for piece in cut(batch, places)]
    assert np.concatenate(pieces).tolist() == margins.tolist()
    assert state_of(parts.model) == state_of(whole.model)


# The 64 levels ------------------------------------------------------------------------------------------------------

SIX = ours.six_bit_accumulator()
OWN, SHARED = 1 << 16, 1 << 23


@numba.njit
def ups(level, addend, base):
    """For how many of the 2^39 random numbers, in ascending order, the level ends above `base`."""
    low, high = np.int64(0), np.int64(OWN) * np.int64(SHARED)
    while low < high:
        middle = (low + high) // 2
        shared = np.uint64(2 * (middle % SHARED) + 1) << np.uint64(24)
        uniform = fine_uniform(np.uint32(middle // SHARED), shared)
        if ours.advanced_by_pairs(SIX, np.uint8(level), addend, uniform) > base:
            low = middle + 1
        else:
            high = middle
    return low


def test_levels_are_unbiased_over_all_random_numbers():
    # That decisions are ordered by their random number is shown in tests/test_accumulator.py.
    b = Fraction(1.23)
    values = {c: Fraction(1, 64) * (b**c - 1) / (b - 1) for c in LADDER}
    worst = Fraction(0)
    for place, level in enumerate(LADDER[:-1]):
        width = values[LADDER[place + 1]] - values[level]
        sizes = [float(width) * part for part in (2.0**-20, 1e-4, 0.3, 0.999999, 1, 1.5, 7)] + [1e-4, 0.25, 37.0, 5e3]
        for addend in (np.float32(size) for size in sizes):
            target = values[level] + Fraction(float(addend))
            if target >= values[LAST]:
                continue
            steps = list(pairwise(LADDER[place:]))
            beyond = [Fraction(int(ups(level, addend, below)), OWN * SHARED) for below, _ in steps]
            rises = [values[above] - values[below] for below, above in steps]
            mean = values[level] + sum(p * rise for p, rise in zip(beyond, rises, strict=True))
            worst = max(worst, (abs(mean - target) - width / 2**40) / Fraction(float(addend)))
    assert 0 < worst < Fraction(1, 2**20)


def test_the_ladder():
    reference = SixBits()
    assert [SIX.heights[c] for c in LADDER] == [reference.height[c] for c in LADDER]
    assert [SIX.heights[c + 1] for c in LADDER[32:]] == [reference.height[c] for c in LADDER[32:]]
    assert len(SIX.heights) == len(SIX.decay) == 64
    assert 2.5e4 < SIX.heights[-1] - SIX.lowest < 2.6e4


def test_only_levels_of_the_ladder_are_reached():
    rng = np.random.default_rng(8)
    reached = set()
    for level in LADDER:
        for addend in np.exp(rng.normal(0, 9, 60)).astype(np.float32):
            uniform = np.float32(rng.random())
            found = jitted_advance(level, addend, uniform)
            assert found == SixBits().add(level, addend, uniform)
            assert found >= level
            reached.add(int(found))
    assert reached == set(LADDER)


def test_rates_of_high_sums_are_right_in_the_mean():
    # The probability of every level after each of many equal additions, exactly: no sampling.
    values = np.array([float(SIX.heights[c]) for c in LADDER]) - float(SIX.lowest)
    rated = ours.rate_heights()[LADDER].astype(np.float64) - float(SIX.lowest)
    addend, total = 0.125, 0.0
    of_level = np.zeros(len(LADDER))
    of_level[0] = 1.0
    excess = []
    while total < 4000.0:  # far from the last level
        of_level = added(of_level, values, addend)
        total += addend
        if total > 300.0:
            mean = [float(of_level @ (1.0 / np.sqrt(sums + addend))) for sums in (rated, values)]
            excess.append([rate * np.sqrt(total) - 1.0 for rate in mean])
    corrected, plain = np.array(excess).T
    assert np.abs(corrected).max() < 0.002
    assert 0.08 < plain.min() <= plain.max() < 0.09, "what rates would gain by noise alone"


def added(of_level, values, addend):
    """The distribution over levels after one more addition: each goes to the two levels around its sum."""
    targets = values + addend
    below = np.minimum(np.searchsorted(values, targets, side="right") - 1, len(values) - 2)
    up = of_level * (targets - values[below]) / (values[below + 1] - values[below])
    return np.bincount(below, of_level - up, len(values)) + np.bincount(below + 1, up, len(values))


@numba.njit
def jitted_advance(level, addend, uniform):
    return ours.advanced_by_pairs(SIX, np.uint8(level), addend, uniform)


@pytest.mark.parametrize("addend", [1e18, 1e25, 3e38, np.inf, np.nan])
def test_absurd_addends_saturate(addend):
    assert {int(jitted_advance(level, np.float32(addend), np.float32(0.5))) for level in LADDER} == {LAST}


# Cells outside kernels ----------------------------------------------------------------------------------------------


def test_two_bytes_a_slot():
    table = allocate("e3m6", "squares6", 1000)
    assert isinstance(table, Halfword)
    assert nbytes_of(table) == 2000
    assert not touched(table).any()
    assert not stored_weights(table).any()
    assert table.cells.dtype.itemsize == table.cells.dtype.alignment == 2


@pytest.mark.parametrize("longest", [1, 1000, 1024, 5000])
def test_scratch_arrays_lie_apart(longest):
    arrays = halfword_scratch(longest)
    starts = [array.ctypes.data for array in arrays]
    assert all(start % 64 == 0 for start in starts)
    assert len({start % 4096 // 512 for start in starts}) == len(arrays), "no two at one place of a page"
    assert all(a + x.nbytes <= b for (a, x), (b, _) in pairwise(zip(starts, arrays, strict=True)))
    assert all(len(array) >= longest and not array.any() for array in arrays)


@pytest.mark.parametrize("high", [False, True])
def test_weights_can_be_read_and_set_and_levels_stay(high):
    points = FINE[1:-1] if high else COARSE
    levels = LADDER[32:] if high else LADDER[:32]
    table = allocate("e3m6", "squares6", len(points))
    table.cells[:] = np.resize(levels, len(points))
    slots = np.arange(len(points))
    put_weights(table, slots, np.array(points) / 2)
    assert (2 * stored_weights(table)).tolist() == points, "in units of e3m6"
    assert (2 * stored_weights(table, 5, 9)).tolist() == points[5:9]
    expected = [ordinal(units) % 2048 // 2 * 64 + ordinal(units) % 2 for units in points]
    assert table.cells.tolist() == (np.array(expected) + np.resize(levels, len(points))).tolist()
    put_weights(table, slots[:3], np.array([128.9, -4097.0, 1e9]))
    assert stored_weights(table, 0, 3).tolist() == [129 if high else 128, -4096, 8128], "to the nearest gridpoint"
    put_weights(table, slots, np.zeros(len(points)))
    assert table.cells.tolist() == np.resize(levels, len(points)).tolist()
    assert touched(table).tolist() == [level != 0 for level in np.resize(levels, len(points))]


def test_models_give_weights_in_their_own_scale():
    learner, reference = pair()
    learn_both(learner, reference, VALUED, to_batch(VALUED))
    model = learner.model
    assert model.weights().tolist() == [units / 2048 for units in reference.coefficient]
    assert model.coefficients().tolist() == (model.weights() / model.scale).tolist()
    assert (model.bits_per_slot, model.table_bytes) == (16.0, 2 * SLOTS)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"weights": "e3m6", "rates": "squares8"}, "go together only, got weights e3m6 with rates squares8"),
        ({"weights": "e3m6"}, "go together only, got weights e3m6 with rates squares8"),
        ({"weights": "q2.13", "rates": "squares6"}, "go together only, got weights q2.13 with rates squares6"),
        ({"weights": "float32", "rates": "squares6"}, "go together only, got weights float32 with rates squares6"),
        ({"weights": "e4m5", "rates": "squares6"}, "go together only, got weights e4m5 with rates squares6"),
        ({"weights": "e4m5x2", "rates": "squares6"}, "go together only, got weights e4m5x2 with rates squares6"),
        ({"weights": "e3m6x2"}, "go together only, got weights e3m6x2 with rates squares8"),
        ({"weights": "e3m6x3", "rates": "squares6"}, "must be a power of two, 0.125 to 512 but not 1, got 'e3m6x3'"),
        ({"weights": "e3m6x2", "rates": "squares6", "radius": 16.0}, "radius must be between 0.001953125 and 15.875"),
        ({"weights": "e3m", "rates": "squares6"}, "expected a minifloat format such as e3m6, got 'e3m'"),
        ({"weights": "e3m6", "rates": "squares6", "base": 1.2}, "base cannot be chosen with rates squares6"),
        ({"weights": "e3m6", "rates": "squares6", "radius": 9.0}, "radius must be between"),
        ({"weights": "e3m6", "rates": "squares6", "rate_floor": True}, "rate_floor needs fixed-point weights"),
    ],
)
def test_choices_that_do_not_fit_are_refused(choices, message):
    with pytest.raises(SpecError, match=message):
        Spec(slots=8, **choices)
