"""Tables on stdout: whole where there is room; on a narrow terminal without the columns that matter least."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any


def print_table(rows: Sequence[dict[str, str]], *, left: Collection[str] = (), spare: Sequence[str] = ()) -> None:
    """Print rows of head to cell. Columns stand to the right, but for those in `left`.

    On a terminal, columns are left out in the order of `spare` until the rest fits. Pipes and files get everything.
    """
    from rich.console import Console

    console = Console(highlight=False)
    dropped = 0
    table = _table(rows, left, ())
    while console.is_terminal and _width(console, table) > console.width and dropped < len(spare):
        dropped += 1
        table = _table(rows, left, spare[:dropped])
    if not console.is_terminal:
        console.width = _width(console, table)
    console.print(table)


def _table(rows: Sequence[dict[str, str]], left: Collection[str], without: Collection[str]) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    heads = [head for head in rows[0] if head not in without]
    for head in heads:
        table.add_column(head, justify="left" if head in left else "right")
    for row in rows:
        table.add_row(*(row[head] for head in heads))
    return table


def _width(console: Any, table: Any) -> int:
    from rich.measure import Measurement

    return Measurement.get(console, console.options.update(max_width=1000), table).maximum
