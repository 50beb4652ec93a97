"""The report of a run: a Markdown page with verdicts computed from the figures, a CSV a section, the pictures."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from lessram.experiments import style
from lessram.experiments.results import TOLERANCE, Claim, Findings, Table, summary

PAGE = "report.md"
RULE = (
    "A check *holds* if what was measured is within the limit that stands beside it and stays so with two standard "
    "errors added; it *fails* if it is beyond the limit even with two standard errors taken away; else it is "
    '*undecided*, and more data would have to decide. "Costs nothing", "as good as" and "excellent" mean one limit: '
    f"relative to the method named, the loss is at most {TOLERANCE:.1%} larger, a difference that nobody could see in "
    "the paper's figures. A limit that is no bound or figure of the paper is set here."
)
"""How verdicts come about, for the top of the page."""


def write(found: Sequence[Findings], folder: Path, how: str) -> list[Path]:
    """Write everything into a folder; returns the files, the page first. `how` is the command that was run."""
    files: list[Path] = []
    for findings in found:
        for name, draw in findings.pictures.items():
            files += style.save(name, draw, folder)
        files.append(_write_points(findings, folder))
    page = folder / PAGE
    page.write_text(page_of(found, how), encoding="utf-8")
    return [page, *files]


def _write_points(findings: Findings, folder: Path) -> Path:
    path = folder / f"{findings.name}.csv"
    columns = list(dict.fromkeys(name for point in findings.points for name in point))
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(findings.points)
    return path


def page_of(found: Sequence[Findings], how: str) -> str:
    """The page: what holds and what does not, then every experiment."""
    claims = [claim for findings in found for claim in findings.claims]
    lines = [
        "# The paper, reproduced",
        "",
        '"Large-Scale Learning with Less RAM via Randomization", Golovin, Sculley, McMahan, Young, ICML 2013.',
        f"Written by `{how}`. Verdicts are computed from the figures of this run.",
        "",
        RULE,
        "",
        f"**{summary(claims)}.**",
        *(f"- {claim.verdict}: {_statement(claim)} ({claim.evidence})" for claim in claims if not claim.holds),
    ]
    for findings in found:
        lines += ["", *_section(findings)]
    return "\n".join(lines) + "\n"


def _section(findings: Findings) -> Iterable[str]:
    yield f"## {findings.title}"
    yield ""
    yield f"*The paper*: {findings.paper}"
    yield ""
    yield f"*Here*: {findings.method}"
    yield ""
    for name in findings.pictures:
        yield f"![{findings.title}]({name}.png)"
        yield ""
    yield from _table_of_claims(findings.claims)
    for table in findings.tables:
        yield ""
        yield from _markdown(table)
    if findings.remarks:
        yield ""
        yield from (f"- {remark}" for remark in findings.remarks)
    yield ""
    yield f"Every point: [{findings.name}.csv]({findings.name}.csv)."


def _table_of_claims(claims: Sequence[Claim]) -> Iterable[str]:
    rows = [[_statement(claim), claim.limit, claim.evidence, claim.verdict] for claim in claims]
    return _markdown(Table(["check", "limit", "measured", "verdict"], rows))


def _statement(claim: Claim) -> str:
    return f"(beyond the paper) {claim.statement}" if claim.beyond else claim.statement


def _markdown(table: Table) -> Iterable[str]:
    if table.title:
        yield f"**{table.title}**"
        yield ""
    yield "| " + " | ".join(table.heading) + " |"
    yield "|" + "---|" * len(table.heading)
    for row in table.rows:
        yield "| " + " | ".join(row) + " |"
