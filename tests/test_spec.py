"""Choices: what can be trained with can be saved, is the same again, and is what was said."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lessram import Learner, LogisticRegression, Model, Spec, SpecError
from lessram.model.spec import PAPER, halfword_choices

INTEGERS = [int, np.int64, np.uint64, np.int32, np.array]
REALS = [float, int, np.float64, np.float32, np.float16, np.longdouble, np.int64, Fraction]
TEXTS = [str, np.str_, type("Text", (str,), {})]
FLAGS = [bool, np.bool, int, np.int64]
STRANGE = [
    None,
    True,
    np.True_,
    2.5,
    np.float64(8),
    -0.0,
    1e-320,
    10**400,
    2**64,
    1j,
    ".1",
    "mine",
    b"",
    (),
    np.ones(1),
]


def of(kinds: list[Any], values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Such values in all of these kinds; now and then something else."""

    def formed(kind: Any, value: Any) -> Any:
        with np.errstate(all="ignore"):
            try:
                return kind(value)
            except (OverflowError, ValueError):
                return value

    good = st.builds(formed, st.sampled_from(kinds), values)
    return st.integers(0, 7).flatmap(lambda chance: good if chance else st.sampled_from(STRANGE))


NUMBERS = st.sampled_from([0.1, 0.3, 1.5, 2.0, 4.0, 1e6]) | st.floats(0, 4) | st.floats()
CHOICES: dict[str, st.SearchStrategy[Any]] = {
    "slots": of(INTEGERS, st.integers(1, 2**40) | st.integers()),
    "seed": of(INTEGERS, st.integers(-(2**63), 2**64 - 1) | st.integers()),
    "offset": of(INTEGERS, st.integers(0, 1)),
    **{name: of(REALS, NUMBERS) for name in ("alpha", "beta", "base", "radius", "l1", "l2", "gamma")},
    "weights": of(TEXTS, st.sampled_from(["q3.12", "q2.5", "float32", "e3m6", "e3m6x2", "adaptive", "gamma"])),
    "rates": of(
        TEXTS, st.sampled_from(["global", "exact32", "morris8", "ladder8", "squares32", "squares8", "squares6"])
    ),
    "step_rule": of(TEXTS, st.sampled_from(["plain", "invariant"])),
    "loss": of(TEXTS, st.sampled_from(["logistic", "squared", "hinge"])),
    "scale": of(TEXTS, st.sampled_from(["rms", "none"])),
    "algorithm": of(TEXTS, st.sampled_from(["ogd", "ftrl", "rda"])),
    "codebook": of(TEXTS, st.sampled_from(["standard", "auto", "shipped"])),
    "rate_floor": of(FLAGS, st.integers(0, 1)),
    "intercept": of(FLAGS, st.integers(0, 1)),
}
STARTS = [{}, {"weights": "adaptive"}, {"weights": "gamma"}, {"algorithm": "ftrl"}]
STARTS += [{"rates": "exact32", "weights": "float32"}, {"rates": "morris8"}]


@settings(max_examples=2000)
@given(
    start=st.sampled_from(STARTS),
    chosen=st.sets(st.sampled_from([*CHOICES]), max_size=4).flatmap(
        lambda names: st.fixed_dictionaries({name: CHOICES[name] for name in sorted(names)})
    ),
)
def test_every_spec_that_can_be_is_the_same_behind_json(start: dict[str, Any], chosen: dict[str, Any]) -> None:
    try:
        spec = Spec(**{"slots": 8, **start, **chosen})
    except SpecError:
        return
    text = msgspec.json.encode(spec)
    assert msgspec.json.decode(text, type=Spec) == spec
    assert msgspec.json.encode(msgspec.json.decode(text, type=Spec)) == text
    assert msgspec.convert(msgspec.to_builtins(spec), Spec) == spec
    assert msgspec.structs.replace(spec) == spec
    assert {type(value) for value in msgspec.structs.asdict(spec).values()} <= {
        *(int, float, str, bool, type(None), msgspec.UnsetType)
    }


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        ({"slots": np.int64(300), "seed": np.uint64(2**64 - 1)}, {"slots": 300, "seed": 2**64 - 1}),
        (
            {"alpha": np.float64(0.25), "beta": np.float32(0.5), "radius": 2},
            {"alpha": 0.25, "beta": 0.5, "radius": 2.0},
        ),
        ({"weights": np.str_("q2.13"), "rates": np.str_("morris8")}, {"weights": "q2.13", "rates": "morris8"}),
        ({"intercept": 0}, {"intercept": False}),
        ({"intercept": np.True_, "rate_floor": 0}, {"intercept": True, "rate_floor": False}),
        ({"weights": "gamma", "gamma": np.float32(0.5)}, {"weights": "gamma", "gamma": 0.5}),
        ({"algorithm": np.str_("ftrl"), "l1": np.int64(1)}, {"algorithm": "ftrl", "l1": 1.0}),
    ],
)
def test_numbers_and_strings_of_numpy_are_saved_as_those_of_python(given, plain, tmp_path):
    spec = Spec(**{"slots": 8, **given})
    Learner(spec).model.save(tmp_path / "given")
    Model.new(Spec(**{"slots": 8, **plain})).save(tmp_path / "plain")
    assert Model.load(tmp_path / "given").spec == spec
    assert (tmp_path / "given").read_bytes() == (tmp_path / "plain").read_bytes()


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"slots": 2.5}, r"slots must be a whole number, got 2\.5"),
        ({"slots": None}, r"slots must be a whole number, got None"),
        ({"slots": True}, r"slots must be a whole number, got True"),
        ({"offset": 1.0}, r"offset must be a whole number, got 1\.0"),
        ({"alpha": ".1"}, r"alpha must be a number, got '\.1'"),
        ({"alpha": None}, r"alpha must not be None: leave it out for its default"),
        ({"beta": True}, r"beta must be a number, got True"),
        ({"beta": 0.0}, r"beta must be between 1e-30 and 1e6, got 0\.0"),
        ({"beta": 1e-40}, r"beta must be between 1e-30 and 1e6, got 1e-40"),
        ({"base": 10**400}, r"base must be a number"),
        ({"alpha": float("nan")}, r"alpha must be above 0 and at most 1e6, got nan"),
        ({"weights": None}, r"weights must not be None: leave it out for its default"),
        ({"rates": b"morris8"}, r"rates must be a string, got b'morris8'"),
        ({"intercept": 2}, r"intercept must be True or False, got 2"),
        ({"rate_floor": "no"}, r"rate_floor must be True or False, got 'no'"),
    ],
)
def test_what_is_no_choice_is_told(choice, message):
    with pytest.raises(SpecError, match=message):
        Spec(**{"slots": 8, **choice})


# Rates that go with weights -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "rates"),
    [("adaptive", "squares8"), ("adaptive", "morris8"), ("gamma", "squares8"), ("gamma", "exact32")],
)
def test_rates_that_were_said_are_never_replaced(weights, rates):
    message = f"weights {weights} have rates by randomized counts, got rates {rates}: leave rates out, or say"
    with pytest.raises(SpecError, match=message):
        Spec(slots=8, weights=weights, rates=rates)
    with pytest.raises(SpecError, match=message):
        msgspec.structs.replace(Spec(slots=8, weights="float32", rates=rates), weights=weights)


def test_rates_that_were_not_said_are_those_of_the_weights():
    for choose in (lambda **choices: Spec(slots=8, **choices), lambda **choices: Spec.paper(slots=8, **choices)):
        assert choose(weights="adaptive").rates == "ladder8"
        assert choose(weights="gamma").rates == "morris8"
        assert choose(weights="gamma", rates="ladder8").rates == "ladder8"
        assert choose(weights="adaptive", rates="ladder8").rates == "ladder8"
    assert (Spec(slots=8).rates, Spec.paper(slots=8).rates) == ("squares8", "morris8")
    chosen = {"weights": "adaptive"}
    assert Spec(**{"slots": 8, **PAPER, **halfword_choices(chosen), **chosen}).rates == "ladder8"


def test_the_estimator_has_the_same_rates():
    X, y = [[0.0], [1.0]] * 4, [0, 1] * 4
    for choices, rates in (({}, "squares8"), ({"weights": "adaptive"}, "ladder8"), ({"preset": "paper"}, "morris8")):
        assert LogisticRegression(**choices).fit(X, y).models_[0].spec.rates == rates
    assert LogisticRegression(preset="paper", weights="adaptive").fit(X, y).models_[0].spec.rates == "ladder8"
    with pytest.raises(SpecError, match="weights adaptive have rates by randomized counts, got rates squares8"):
        LogisticRegression(weights="adaptive", rates="squares8").fit(X, y)
