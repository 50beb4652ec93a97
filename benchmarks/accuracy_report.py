"""The tables and the picture of the accuracy benchmark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

OURS = "lessram, 24 bits"
PAIRS = (
    ("paper, 64 bits", "paper, 24 bits"),
    ("squares, 64 bits", OURS),
    ("squares, 64 bits", "lessram, 16 bits"),
)
"""Float controls, and what is compared with them."""

_MARKS = "o^sDvP*Xd"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"


def _losses(results: dict[str, Any], kind: str, key: str = "log_loss") -> str:
    """A row a system, a column a data set; the best of each column is bold."""
    sets = list(results)
    systems = list(next(iter(results.values()))["progressive"])
    found = {s: {n: results[n]["progressive"][s][kind][key] for n in sets} for s in systems}
    better = max if key == "auc" else min
    best = {name: better(found[system][name] for system in systems) for name in sets}

    def cell(system: str, name: str) -> str:
        text = f"{found[system][name]:.4f}"
        return f"**{text}**" if found[system][name] == best[name] else text

    bits = {s: results[sets[0]]["progressive"][s][kind]["bits_per_coordinate"] for s in systems}
    rows = [[system, f"{bits[system]:g}", *(cell(system, name) for name in sets)] for system in systems]
    return _table(["system", "bits", *sets], rows)


def _summary(excesses: dict[str, Any]) -> str:
    parts = ("median", "mean", "worst", "confirmed_median", "confirmed_worst")
    head = ["system", *(f"{kind}: {part.replace('_', ' ')}" for kind in ("default", "tuned") for part in parts)]
    rows = [
        [system, *(_percent(kinds[kind][part]) for kind in ("default", "tuned") for part in parts)]
        for system, kinds in excesses.items()
    ]
    return _table(head, rows)


def _bits(results: dict[str, Any]) -> str:
    names = [small for _, small in PAIRS if any(small in found["cost_of_bits"] for found in results.values())]

    def cell(found: dict[str, Any], name: str) -> str:
        cost = found["cost_of_bits"][name]
        return f"{100 * cost['mean']:+.2f} ± {100 * cost['standard_error']:.2f}"

    rows = [[name, *(cell(found, small) for small in names)] for name, found in results.items()]
    return _table(["% over float32", *names], rows)


def _columns(results: dict[str, Any]) -> str:
    found = {name: result["columns"] for name, result in results.items() if result["columns"]}
    if not found:
        return ""
    head = list(next(iter(found.values())))
    return _table(["", *head], [[name, *(f"{losses[h]:.4f}" for h in head)] for name, losses in found.items()])


def _held_out(results: dict[str, Any]) -> str:
    head = list(next(iter(results.values()))["held_out"])
    rows = [[n, *(f"{found['held_out'][h]['log_loss']:.4f}" for h in head)] for n, found in results.items()]
    return _table(["", *head], rows)


def markdown(results: dict[str, Any], excesses: dict[str, Any]) -> str:
    """All tables."""
    sections = {
        "Log-loss at defaults": _losses(results, "default"),
        "Log-loss, tuned": _losses(results, "tuned"),
        "AUC at defaults": _losses(results, "default", "auc"),
        "Error rate at defaults": _losses(results, "default", "error"),
        "Excess over the best system of each set, %": _summary(excesses),
        "What few bits cost, 5 seeds": _bits(results),
        "Numeric columns brought to one size, log-loss, tuned": _columns(results),
        "On the last 20 %, held out: log-loss": _held_out(results),
    }
    return "\n".join(f"### {title}\n\n{text}" for title, text in sections.items() if text)


def draw(excesses: dict[str, Any], path: Path) -> None:
    """Excesses at defaults, a row a data set, a mark a system."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [s for s in excesses if s != "squares, 64 bits"]
    sets = list(excesses[shown[0]]["default"]["excess"])
    figure, axes = pyplot.subplots(figsize=(9, 0.42 * len(sets) + 1.6))
    for k, system in enumerate(shown):
        values = [max(100 * excesses[system]["default"]["excess"][name], 0.05) for name in sets]
        ours = system == OURS
        axes.plot(
            values,
            range(len(sets)),
            _MARKS[k % len(_MARKS)],
            label=system,
            markersize=9 if ours else 6,
            color="#d62728" if ours else None,
            markerfacecolor="none" if ours else None,  # nothing hides behind it
            markeredgewidth=2.5 if ours else 1,
            alpha=1.0 if ours else 0.65,
            zorder=3 if ours else 2,
        )
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_yticks(range(len(sets)), sets)
    axes.invert_yaxis()
    axes.set_xlabel("log-loss at defaults, % over the best tuned system (log scale)")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.tight_layout()
    figure.savefig(path, dpi=130)
