"""Options that several commands share, declared once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[
    list[str],
    typer.Argument(
        metavar="DATA...", help="Files, globs, directories, URLs, or - for standard input; gz, bz2, xz, zst."
    ),
]
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="A model written by train or compress.")]
Format = Annotated[
    str, typer.Option("--format", metavar="FORMAT", help="auto, svmlight, vw, csv, tsv, jsonl or parquet.")
]
Delimiter = Annotated[
    str, typer.Option("--delimiter", metavar="CHAR", help="The character between the cells of a CSV file.")
]
Header = Annotated[
    bool, typer.Option("--header/--no-header", help="Whether CSV and TSV files begin with a line of column names.")
]
Threads = Annotated[
    int,
    typer.Option(
        "--threads", min=0, metavar="N", help="Parsing threads; 0 = one per core. Any number gives the same result."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object with every figure, for scripts.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
MaxErrors = Annotated[
    int, typer.Option("--max-errors", min=0, metavar="N", help="Skip and count up to N bad lines instead of stopping.")
]


def thread_count(asked: int) -> int:
    """How many threads to use: as asked, or one for each core that this process may run on."""
    return asked or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else asked or os.cpu_count() or 1
