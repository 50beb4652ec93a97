"""Options that several commands share, declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[
    list[str],
    typer.Argument(metavar="DATA...", help="Files, globs, directories, or - for standard input; gz, bz2, xz, zst."),
]
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="A model written by train.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object with every figure, for scripts.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
MaxErrors = Annotated[
    int, typer.Option("--max-errors", min=0, metavar="N", help="Skip and count up to N bad lines instead of stopping.")
]
