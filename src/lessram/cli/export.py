"""lessram export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lessram.cli.options import Json, ModelFile
from lessram.cli.outputs import check_apart, check_outputs


def export(
    model: ModelFile,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where to write.")],
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="FORMAT", help="safetensors, parquet, csv or vw.  [by the ending of FILE; .txt is vw]"
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Write a model's coefficients for other programs.

    \b
    safetensors holds the integers of the grid with step, scale and intercept. Parquet and CSV have the columns slot and
    weight, nonzero weights only, as they multiply raw values; slot -1 is the intercept. vw is the text of
    `vw --readable_model`, which `lessram import-vw` reads.

    \b
    Examples:
      lessram export clicks.lessram -o clicks.safetensors
      lessram export clicks.served -o clicks.parquet
      lessram export clicks.lessram -o clicks.txt --to vw
    """
    import msgspec

    from lessram.prediction import open_file
    from lessram.serving.export import export as write

    check_outputs(output)
    check_apart([output], [model])
    written = write(open_file(model), output, to)
    if written.note:
        typer.echo(written.note, err=True)
    size = output.stat().st_size
    if json:
        values = {"format": written.format, "weights": written.weights, "file_bytes": size, "note": written.note}
        typer.echo(msgspec.json.encode(values).decode())
    else:
        typer.echo(f"{written.weights:,} weights that are not 0, {size:,} bytes of {written.format}")
