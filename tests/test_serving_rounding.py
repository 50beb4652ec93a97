"""Rounding a finished model: exactly unbiased, a function of seed and slot, piece by piece."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from lessram.errors import SpecError
from lessram.model.model import Model
from lessram.model.spec import Spec
from lessram.numerics.bounds import entropy
from lessram.numerics.fixed_point import FixedPoint
from lessram.serving import rounding
from lessram.serving.rounding import NEAREST, Rounded, Rounding, round_piece, rounds_up, slot_words, survey
from lessram.tables.layout import put_weights

Q3 = FixedPoint.parse("q2.3")
SLOTS = 5000


def model_of(weights: str = "q2.13", seed: int = 1) -> Model:
    """A model with a long tail of weights, half of them 0."""
    rng = np.random.default_rng(seed)
    model = Model.new(Spec(slots=SLOTS, weights=weights, seed=7))
    values = np.where(rng.random(SLOTS) < 0.5, 0.0, rng.laplace(0, 0.4, SLOTS))
    units = values if weights == "float32" else np.clip(np.rint(values / model.spec.step), -32767, 32767)
    put_weights(model.table, np.arange(SLOTS), units)
    return model


@pytest.mark.parametrize(
    "share", [Fraction(0), Fraction(1, 2**53), Fraction(2**40 - 1, 2**45), Fraction(7, 8), Fraction(2**53 - 1, 2**53)]
)
def test_the_chance_to_round_up_is_exactly_the_share(share):
    """Of the 2^53 words those below share * 2^53 round up, and no others: no sampling is needed."""
    ups = int(share * 2**53)
    around = np.array([w for w in (0, ups - 1, ups, ups + 1, 2**53 - 1) if 0 <= w < 2**53], np.uint64)
    assert rounds_up(np.array(float(share)), around).tolist() == [int(w) < ups for w in around]


def test_shares_of_every_fixed_point_weight_are_exact():
    """All 65,535 values of q2.13: rounded down plus share is the weight, to the last bit."""
    weights = np.arange(-32767, 32768) * 2.0**-13
    exact = weights / Q3.step
    below = np.floor(exact)
    up = (exact - below) * 2.0**53
    assert (up == np.rint(up)).all()
    assert ((below + up * 2.0**-53) * Q3.step == weights).all()


def test_rounding_takes_a_gridpoint_next_to_the_weight_and_gridpoints_stay():
    weights = np.linspace(-3.8, 3.8, 4001)
    units = Rounding(Q3, seed=3).units(weights, np.arange(4001))
    assert (np.abs(units * Q3.step - weights) < Q3.step).all()
    points = np.arange(-31, 32) * Q3.step
    for seed in range(20):
        assert (Rounding(Q3, seed=seed).units(points, np.arange(63)) == np.arange(-31, 32)).all()


def test_the_mean_over_seeds_is_the_weight():
    seeds = 4000
    found = np.array([Rounding(Q3, seed=s).units(np.array([0.2, -0.2, 1.01]), np.arange(3)) for s in range(seeds)])
    deviation = 0.5 / np.sqrt(seeds)
    assert (np.abs(found.mean(axis=0) - np.array([1.6, -1.6, 8.08])) < 4 * deviation).all()


def test_nearest_is_never_further_than_half_a_step():
    weights = np.linspace(-3.8, 3.8, 4001)
    units = Rounding(Q3, NEAREST).units(weights, np.arange(4001))
    assert (np.abs(units * Q3.step - weights) <= Q3.step / 2).all()


def test_words_look_independent_of_slot_and_seed():
    words = np.concatenate([slot_words(np.arange(1 << 16), seed) for seed in range(4)])
    assert len(np.unique(words)) == 1 << 18
    bits = np.unpackbits(words.astype("<u8").view(np.uint8)).reshape(-1, 64).mean(axis=0)
    assert (np.abs(bits[bits > 0] - 0.5) < 5 / np.sqrt(4 * len(words))).all()
    assert np.count_nonzero(bits) == 53


@pytest.mark.parametrize("weights", ["q2.13", "float32"])
def test_pieces_of_any_size_give_the_same_values(weights, monkeypatch):
    model = model_of(weights)
    whole = Rounded(model, Rounding(Q3, seed=5)).piece(0, SLOTS)
    monkeypatch.setattr(rounding, "PIECE", 333)
    again = Rounded(model, Rounding(Q3, seed=5))
    assert (np.concatenate(list(again)) == whole).all()
    assert (np.concatenate(list(again)) == whole).all(), "it can be gone through twice"
    assert (again.piece(100, 200) == whole[100:200]).all()
    assert (Rounded(model, Rounding(Q3, seed=6)).piece(0, SLOTS) != whole).any()


def test_single_slots_are_rounded_as_in_their_piece():
    """What the planner measures by rows is what is stored later."""
    model = model_of()
    some = np.random.default_rng(0).integers(0, SLOTS, 700)
    way = Rounding(Q3, seed=9)
    assert (way.units(model.weights_at(some), some) == Rounded(model, way).piece(0, SLOTS)[some]).all()


@pytest.mark.parametrize("weights", ["q2.13", "float32"])
def test_weights_of_single_slots(weights):
    model = model_of(weights)
    some = np.random.default_rng(0).integers(0, SLOTS, 900, dtype=np.uint32)
    some[0] = SLOTS - 1
    assert (model.weights_at(some) == model.weights()[some]).all()
    assert model.weights_at(some[:0]).shape == (0,)


def test_a_survey_counts_what_rounding_makes():
    model = model_of("float32")
    put_weights(model.table, np.array([3, 4, 5]), np.array([4.0, -70.0, 3.875]))
    ways = [Rounding(FixedPoint.parse(name), seed=2) for name in ("q2.3", "q2.7", "q7.3")]
    seen = []
    for way, found in zip(ways, survey(model, ways, lambda *done: seen.append(done)), strict=True):
        units = Rounded(model, way).piece(0, SLOTS)
        assert found.grid == str(way.grid)
        assert found.nonzero == np.count_nonzero(units)
        assert found.entropy == pytest.approx(entropy(np.unique(units, return_counts=True)[1]))
        assert found.clipped == (np.abs(model.weights()) > way.grid.largest).sum()
        assert found.moved == (units * way.grid.step != model.weights()).sum()
    assert found.clipped == 0
    assert seen == [(SLOTS, SLOTS)]


def test_zeros_stay_zero_and_extremes_are_clipped():
    units = round_piece(np.array([0.0, -0.0, 100.0, -100.0]), 0, Rounding(Q3))
    assert units.tolist() == [0, 0, 31, -31]


def test_a_finer_grid_than_the_model_has_is_refused():
    model = model_of("q2.5")
    assert (Rounded(model, Rounding(FixedPoint(2, 5))).piece(0, SLOTS) * 2.0**-5 == model.weights()).all()
    with pytest.raises(SpecError, match=r"q2\.6 is finer than the model's own q2\.5"):
        Rounded(model, Rounding(FixedPoint(2, 6)))
    with pytest.raises(SpecError, match="rounding must be random or nearest, got 'up'"):
        Rounding(Q3, "up").units(np.zeros(1), np.zeros(1, int))
