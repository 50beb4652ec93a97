"""How pictures look: a palette that colour-blind readers can tell apart, labels with units, PNG and SVG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lessram.errors import LessramError
from lessram.experiments.results import Draw

BLACK, ORANGE, SKY, GREEN, BLUE, RED, PURPLE = (
    "#000000",
    "#e69f00",
    "#56b4e9",
    "#009e73",
    "#0072b2",
    "#d55e00",
    "#cc79a7",
)
"""Okabe and Ito's colours."""
GREY = "#777777"
SERIES = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY)
MARKS = ("o", "s", "^", "D", "v", "P")


def tidy(axes: Any, **labels: Any) -> None:
    """Labels, a light grid, no box."""
    axes.set(**labels)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def save(name: str, draw: Draw, folder: Path) -> list[Path]:
    """Draw a picture and write it as PNG and SVG."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise LessramError("pictures need matplotlib, which cannot be imported: pip install 'lessram[plot]'") from None

    # Fixed ids and no date: the same results give the same SVG.
    with matplotlib.rc_context({"svg.hashsalt": "lessram", "font.size": 9, "axes.titlesize": 10}):
        figure = Figure(layout="constrained")
        draw(figure)
        paths = [folder / f"{name}.png", folder / f"{name}.svg"]
        figure.savefig(paths[0], dpi=150)
        figure.savefig(paths[1], metadata={"Date": None})
    return paths
