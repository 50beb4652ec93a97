"""All experiments by name, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from lessram.errors import SpecError
from lessram.experiments import counter, fig1, fig2, regret, report, table1
from lessram.experiments.results import Findings, Setting

EXPERIMENTS: dict[str, Callable[[Setting], Findings]] = {
    "fig1": fig1.run,
    "fig2": fig2.run,
    "table1": table1.run,
    "counter": counter.run,
    "regret": regret.run,
}
ALL = "all"


def chosen(names: Sequence[str]) -> list[str]:
    """The experiments that these names ask for.

    >>> chosen(["regret", "fig1", "fig1"]), len(chosen(["all"])) == len(EXPERIMENTS)
    (['fig1', 'regret'], True)
    """
    for name in names:
        if name != ALL and name not in EXPERIMENTS:
            raise SpecError(f"expected one of {', '.join([*EXPERIMENTS, ALL])}, got {name!r}")
    return [name for name in EXPERIMENTS if name in names or ALL in names]


def reproduce(names: Sequence[str], setting: Setting, folder: Path, how: str) -> tuple[list[Findings], list[Path]]:
    """Run experiments and write their report; returns what was found and the files, the page first."""
    wanted = chosen(names)
    folder.mkdir(parents=True, exist_ok=True)
    found = [EXPERIMENTS[name](setting) for name in wanted]
    setting.tell("drawing")
    return found, report.write(found, folder, how)
