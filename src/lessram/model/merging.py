"""Models that were trained apart become one (numerics/merging.py): the table, and the few numbers beside it.

    table                          means of weights, sums of what was counted, rounded without bias (tables/merging.py)
    intercept                      the mean over the replicas that have learned anything
    its rounds or sum of squares   what the base had, and all that was added since
    examples, scale, scores        the same: the scores are those of predictions that replicas made before learning
    seed                           the smallest of the replicas'

Sums are exact before they are rounded once, so that no order of the replicas is better than another.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from lessram.errors import DataError, SpecError
from lessram.model.given import TRAINED, Trained, refused, trained_model
from lessram.model.model import INTERCEPT, INTERCEPT_STATE, NONZEROS, SQUARES, Model
from lessram.model.spec import Spec
from lessram.numerics.accumulator import accumulator
from lessram.numerics.merging import MOST_REPLICAS, merging_key
from lessram.numerics.minifloat import Minifloat
from lessram.numerics.six_bits import six_bit_ladder
from lessram.tables.adaptive import Adaptive
from lessram.tables.adaptive_merging import merged_adaptive
from lessram.tables.graded import Graded, graded_rule
from lessram.tables.halfword import Halfword, halfword_rule
from lessram.tables.layout import Table, codebook_of, copied
from lessram.tables.merging import merged_cells
from lessram.tables.merging_slots import Halves, Merge, Points, merge_rule

MEANS = ("touched", "all")
"""Whose weights a mean is of: of the replicas that met the coordinate since the base, or of all."""


def merge(
    base: Trained | None, replicas: Iterable[Trained], *, mean: str = MEANS[0], names: Sequence[str] | None = None
) -> Model:
    """One model from replicas that began as copies of `base` and learned different data; None: that began with nothing.

    Base and replicas are models, learners, or paths of trained models. The result has memory of its own, for one table;
    nothing that is given changes, and all of it may be mapped from files. One replica alone comes out as it is. `names`
    are what errors call the base and the replicas.

    >>> import numpy as np
    >>> from lessram import Batch, Learner
    >>> learners = [Learner(Spec(slots=8, seed=seed)) for seed in (1, 2)]
    >>> for learner in learners:
    ...     margins = learner.learn(Batch(np.float32([1, 0] * 50), np.arange(101), np.uint32([3, 5] * 50)))
    >>> merge(None, learners).examples
    200
    """
    given = _listed(replicas)
    names = names or ["the base", *(f"replica {k}" for k in range(1, len(given) + 1))]
    begun = None if base is None else trained_model(base, names[0])
    models = [trained_model(one, name) for one, name in zip(given, names[1:], strict=True)]
    _check_choices(begun, models, mean, names)
    return _merged(Model.new(models[0].spec) if begun is None else begun, models, mean, names)


def _merged(start: Model, replicas: Sequence[Model], mean: str, names: Sequence[str]) -> Model:
    for model, name in zip(replicas, names[1:], strict=True):
        _check_beginning(start, model, name)
    spec = msgspec.structs.replace(replicas[0].spec, seed=min(model.spec.seed for model in replicas))
    examples = sum(model.examples - start.examples for model in replicas) + start.examples
    return replace(
        replicas[0],
        spec=spec,
        table=_merged_table(start, replicas, spec, examples, mean, names),
        scalars=_merged_scalars(start, replicas),
        examples=examples,
        scores=_merged_scores(start, replicas),
        opening=dict(replicas[0].opening),  # of one replica alone, or there is none
        progress=None,
    )


# What cannot be merged ------------------------------------------------------------------------------------------------


def _listed(replicas: Iterable[Trained]) -> list[Trained]:
    if isinstance(replicas, (str, os.PathLike)) or not isinstance(replicas, Iterable):
        raise refused("replicas", replicas, f"a list, each of them {TRAINED}")
    return list(replicas)


def _check_choices(base: Model | None, replicas: Sequence[Model], mean: str, names: Sequence[str]) -> None:
    """Refuse models that do not mean the same by a coordinate, and name the first thing that differs."""
    if mean not in MEANS:
        raise SpecError(f"mean must be one of {', '.join(MEANS)}, got {mean!r}")
    if not 1 <= len(replicas) <= MOST_REPLICAS:
        raise SpecError(f"expected 1 to {MOST_REPLICAS} replicas, got {len(replicas)}")
    others = list(zip(replicas, names[1:], strict=True))
    first, first_name = others.pop(0)
    if base is not None:
        others.insert(0, (base, names[0]))
    for model, name in others:
        if found := first_difference(_choices(model.spec), _choices(first.spec)):
            path, value, expected = found
            raise SpecError(f"{name} has {path} {value}, {first_name} has {expected}: replicas need equal choices")
        if (model.reader or model.examples) and (found := first_difference(_plain(model.reader), _plain(first.reader))):
            path, value, expected = found
            raise SpecError(
                f"{name} was read with {path} {value}, {first_name} with {expected}: train replicas on from one base, "
                "which keeps how features become slots"
            )
    if len(replicas) > 1:
        _check_codebooks([(first, first_name), *others])


def _check_codebooks(models: list[tuple[Model, str]]) -> None:
    for model, name in models:
        if model.opening:
            raise SpecError(
                f"{name} waits for more examples to design its codebook from: train the base on these first"
            )
    books = {codebook_of(model.table): name for model, name in models}
    books.pop(None, None)
    if len(books) > 1:
        some, other, *_ = books.values()
        raise SpecError(
            f"{some} and {other} have different codebooks: train the base until it has designed its own, and replicas "
            "from there"
        )


def _choices(spec: Spec) -> dict[str, Any]:
    """All that replicas must share: randomness may differ, and should."""
    return {name: value for name, value in _plain(spec).items() if name != "seed"}


def _plain(value: Any) -> Any:
    """As a file would hold it: in memory, lists may still be tuples."""
    return msgspec.json.decode(msgspec.json.encode(value))


def first_difference(found: Any, expected: Any, path: str = "") -> tuple[str, Any, Any] | None:
    """Where two nested dictionaries first differ, and what stands there.

    >>> first_difference({"a": 1, "b": [{"c": 2}]}, {"a": 1, "b": [{"c": 3}]})
    ('b[0].c', 2, 3)
    """
    if isinstance(found, dict) and isinstance(expected, dict):
        names = [(f"{path}.{name}" if path else name, name) for name in {**found, **expected}]
        parts = ((place, found.get(name), expected.get(name)) for place, name in names)
    elif isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        parts = ((f"{path}[{k}]", *pair) for k, pair in enumerate(zip(found, expected, strict=True)))
    else:
        return None if found == expected else (path, found, expected)
    differences = (first_difference(one, other, place) for place, one, other in parts)
    return next((difference for difference in differences if difference), None)


def _check_beginning(start: Model, replica: Model, name: str) -> None:
    """Refuse a replica that has counted less than its base."""
    if replica.examples < start.examples:
        raise DataError(
            f"found {replica.examples:,} examples, expected at least the {start.examples:,} of its base", place=name
        )
    sums = [INTERCEPT_STATE, SQUARES, NONZEROS]
    pairs = [(start.scalars[sums], replica.scalars[sums])]
    pairs += [(scores, replica.scores.get(key, np.zeros_like(scores))) for key, scores in start.scores.items()]
    if any(np.any(after < before) for before, after in pairs):
        raise _elsewhere(name)


def _elsewhere(name: str) -> DataError:
    return DataError("found less than its base had counted: it did not begin as a copy of this base", place=name)


def is_before(one: Model, other: Model) -> bool:
    """Whether a model may be what another went on from: all that it has counted, the other has counted too."""
    scores = {key: other.scores.get(key, np.zeros_like(sums)) for key, sums in one.scores.items()}
    less = 0 < one.examples < other.examples and len(scores) > 0
    return less and all(bool(np.all(scores[key] >= sums)) for key, sums in one.scores.items())


# The merged parts -----------------------------------------------------------------------------------------------------


def _merged_table(
    start: Model, replicas: Sequence[Model], spec: Spec, examples: int, mean: str, names: Sequence[str]
) -> Table:
    tables = [model.table for model in replicas]
    rule = merge_rule(ladder_of(spec), merging_key(spec.seed, examples), len(tables), everyone=mean == "all")
    table = merged_tables(start.table, tables, rule, spec)
    for name, behind in zip(names[1:], rule.behind.tolist(), strict=True):
        if behind:
            raise _elsewhere(name)
    # One replica alone keeps its bytes, and an adaptive one would be laid anew.
    return copied(tables[0]) if len(tables) == 1 and isinstance(tables[0], Adaptive) else table


def merged_tables(start: Table, tables: Sequence[Any], rule: Merge, spec: Spec) -> Table:
    """The tables of models with this spec made one."""
    if any(isinstance(table, Adaptive) for table in (start, *tables)):
        return merged_adaptive(start, tables, rule)  # type: ignore[arg-type]
    grid: Any = None
    if isinstance(start, Graded):
        assert isinstance(spec.gamma, float | int)
        grid = Points(graded_rule(spec.counter, spec.alpha, spec.gamma, spec.step).points)
    if isinstance(start, Halfword):
        grid = Halves(halfword_rule(spec.alpha, spec.beta, Minifloat.parse(spec.weights), spec.radius).units)
    return merged_cells(start, tables, rule, grid)  # type: ignore[arg-type]


def ladder_of(spec: Spec) -> NDArray[np.float64]:
    """What the levels of such a model stand for, but for a constant."""
    if spec.rates == "squares6":
        return six_bit_ladder().astype(np.float64)
    return accumulator(spec.base).heights.astype(np.float64) if spec.rates == "squares8" else spec.counter.estimates


def _merged_scalars(start: Model, replicas: Sequence[Model]) -> NDArray[np.float64]:
    scalars = added_up(start.scalars, [model.scalars for model in replicas])
    learned = [model for model in replicas if model.examples > start.examples] or replicas
    scalars[INTERCEPT] = math.fsum(model.intercept for model in learned) / len(learned)
    return scalars


def _merged_scores(start: Model, replicas: Sequence[Model]) -> dict[str, NDArray[Any]]:
    empty = {key: np.zeros_like(scores) for model in replicas for key, scores in model.scores.items()}
    before, *after = ({**empty, **model.scores} for model in (start, *replicas))
    return {key: added_up(before[key], [scores[key] for scores in after]) for key in empty}


def added_up(start: NDArray[np.float64], replicas: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """start + the sum of (replica - start), number by number, rounded once."""
    out = np.empty_like(start)
    for place, before in np.ndenumerate(start):
        out[place] = math.fsum([*(replica[place] for replica in replicas), *[-before] * (len(replicas) - 1)])
    return out
