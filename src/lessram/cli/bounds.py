"""lessram bounds."""

from __future__ import annotations

import math
from typing import Annotated, Any, NamedTuple

import typer

from lessram.cli.options import Json
from lessram.cli.table import print_table


class _Line(NamedTuple):
    """One statement of the paper with its value."""

    key: str
    statement: str
    formula: str
    value: float
    meaning: str


def bounds(
    rounds: Annotated[
        float, typer.Option("--rounds", "-T", metavar="T", help="Rounds of one coordinate that have a gradient.")
    ] = 1e6,
    radius: Annotated[float, typer.Option("--radius", "-R", metavar="R", help="Coefficients lie in [-R, R].")] = 4.0,
    gradient: Annotated[float, typer.Option("--gradient", "-G", metavar="G", help="Largest gradient.")] = 1.0,
    gamma: Annotated[float, typer.Option(help="Ratio of the grid's step to the learning rate.")] = 1.0,
    base: Annotated[float, typer.Option("--base", "-b", metavar="b", help="Base of the randomized counter.")] = 1.1,
    tail: Annotated[float, typer.Option(metavar="c", help="Tails of the counter fail at most once in T^c.")] = 2.5,
    alpha: Annotated[
        float | None, typer.Option(help="For rates alpha / sqrt(t).  [the best for each bound]", show_default=False)
    ] = None,
    grid: Annotated[str | None, typer.Option(metavar="qN.M", help="Epsilon is the step of this grid.  [q2.13]")] = None,
    epsilon: Annotated[float | None, typer.Option(help="The grid's step, instead of --grid.")] = None,
    nonzeros: Annotated[float, typer.Option("--nonzeros", "-k", metavar="k", help="Features per row.")] = 40.0,
    json: Json = False,
) -> None:
    """Print every bound of the paper for given numbers: what a setting may cost at worst.

    \b
    Regret is that of one coordinate, summed over T rounds with a gradient. What rounding costs at prediction time
    is for one row of k binary features, relative to its loss; the curvature bounds go beyond the paper.

    \b
    Examples:
      lessram bounds --grid q2.7 --nonzeros 75
      lessram bounds -T 1e9 -R 4 --gamma 0.25 --json
    """
    import msgspec

    from lessram.errors import SpecError
    from lessram.numerics.fixed_point import FixedPoint

    if grid is not None and epsilon is not None:
        raise SpecError(f"choose --grid or --epsilon, got --grid {grid} and --epsilon {epsilon}")
    if epsilon is None:
        epsilon = FixedPoint.parse(grid or "q2.13").step
    given = {"T": rounds, "R": radius, "G": gradient, "gamma": gamma, "b": base, "c": tail}
    given |= {"epsilon": epsilon, "k": nonzeros}
    if not 1 <= rounds < math.inf:
        raise SpecError(f"T must be at least 1 and finite, got {rounds}")
    if not math.hypot(gradient, gamma) > 0:
        raise SpecError(f"G or gamma must be above 0, got {gradient} and {gamma}")
    try:
        lines = _regret_lines(rounds, radius, gradient, gamma, base, epsilon, alpha)
        lines += _counter_lines(rounds, base, tail) + _prediction_lines(epsilon, nonzeros)
    except OverflowError:
        raise SpecError(f"the bounds must be below 1e308, got larger ones for {_listed(given)}") from None
    if json:
        finite = {line.key: line.value if math.isfinite(line.value) else None for line in lines}
        typer.echo(msgspec.json.encode({**given, "alpha": alpha, **finite}).decode())
        return
    _print(given, lines)


def _regret_lines(
    T: float, R: float, G: float, gamma: float, b: float, epsilon: float, alpha: float | None
) -> list[_Line]:
    from lessram.numerics.bounds import regret_1d, regret_fixed_grid, regret_per_coordinate, regret_randomized_counts

    best = math.sqrt(2) * R / math.hypot(G, gamma) if alpha is None else alpha
    root = math.sqrt(T)
    one = regret_1d(T=T, R=R, G=G, gamma=gamma, eta_T=best / root, eta_sum=2 * best * root)
    exact = regret_per_coordinate(T, R=R, G=G, gamma=gamma)
    fixed = regret_fixed_grid(T=T, R=R, G=G, alpha=best, epsilon=epsilon, gamma=gamma)
    counted = regret_randomized_counts(T, R=R, G=G, gamma=gamma, b=b, alpha=alpha)
    return [
        _Line("regret_1d", "Theorem 3.1", "2R²√T/α + (G²+γ²)α√T + γR√T", one, "regret with rates α/√t"),
        _Line("regret_per_coordinate", "Corollary 3.2", "2R√(2T(G²+γ²)) + γR√T", exact, "regret, exact counts, best α"),
        _Line("regret_fixed_grid", "Theorem 3.1, fixed grid", "rates end at ε/γ", fixed, "regret on one grid"),
        _Line("regret_randomized_counts", "Theorem 3.3", "its proof's last line", counted, "regret, counter of base b"),
        _Line("regret_per_round", "", "the same / T", counted / T, "added loss a round"),
    ]


def _counter_lines(T: float, b: float, c: float) -> list[_Line]:
    from lessram.numerics.bounds import counter_lower_tail, counter_upper_tail

    low, high = counter_lower_tail(T, T=T, b=b, c=c), counter_upper_tail(T, T=T, b=b, c=c)
    return [
        _Line("counter_low", "Lemma A.1", "T/(b c log T) - 1", low.estimate, "least estimate of a count of T"),
        _Line("counter_low_probability", "", "1/T^(c-1)", low.probability, "chance of a lower one"),
        _Line("counter_high", "Lemma A.1", "eT/(b-1) b^(√(2c log_b T)+2)", high.estimate, "largest estimate of it"),
        _Line("counter_high_probability", "", "1/T^c", high.probability, "chance of a higher one"),
    ]


def _prediction_lines(epsilon: float, k: float) -> list[_Line]:
    from lessram.numerics import bounds as of

    loose, erf = of.expected_relative_error(epsilon, k, erf=False), of.expected_relative_error(epsilon, k)
    relative, additive = of.curvature_relative_error(epsilon, k), of.curvature_additive_error(epsilon, k)
    surely = of.additive_error(epsilon, k)
    moved = of.deviation_probability(3 * epsilon * math.sqrt(k), epsilon=epsilon, k=k)
    return [
        _Line("additive_error", "Lemma 4.1", "εk", surely, "added loss, surely"),
        _Line("relative_error", "Lemma 4.2", "e^(εk) - 1", of.relative_error(surely), "relative, surely"),
        _Line("deviation_probability", "Lemma A.3", "2e^(-t²/(2ε²k)), t = 3ε√k", moved, "chance of log-odds off by t"),
        _Line("expected_relative_error", "Theorem 4.3", "2√(2πk) e^(ε²k/2) ε", loose, "relative, expected"),
        _Line("expected_relative_error_erf", "", "1 + Erf(ε√(k/2)) for 2", erf, "relative, expected"),
        _Line("curvature_relative_error", "beyond the paper", "e^(ε²k/8) - 1", relative, "relative, expected"),
        _Line("curvature_additive_error", "beyond the paper", "ε²k/32", additive, "added loss, expected"),
    ]


def _listed(given: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {value:g}" for name, value in given.items())


def _print(given: dict[str, Any], lines: list[_Line]) -> None:
    typer.echo(_listed(given))
    rows = [
        {"statement": line.statement, "bound": line.formula, "value": f"{line.value:.4g}", "of what": line.meaning}
        for line in lines
    ]
    print_table(rows, left={"statement", "bound", "of what"}, spare=["bound"])
