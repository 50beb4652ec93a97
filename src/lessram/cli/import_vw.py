"""lessram import-vw."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lessram.cli.options import Json
from lessram.cli.outputs import check_apart, check_outputs


def import_vw(
    readable: Annotated[
        str, typer.Argument(metavar="READABLE", help="Written by `vw --readable_model` (or `--invert_hash`).")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="MODEL", help="Where to write the model.")],
    weights: Annotated[
        str, typer.Option(metavar="FORMAT", help="float32, fixed point qN.M, or e3m6 (with rates squares6).")
    ] = "q3.12",
    rates: Annotated[str, typer.Option(metavar="RATES", help="For further training; rates start fresh.")] = "squares8",
    alpha: Annotated[float, typer.Option(help="For further training: the learning rate's numerator.")] = 0.3,
    loss: Annotated[
        str, typer.Option(metavar="LOSS", help="logistic, squared or hinge; the file does not name it.")
    ] = "logistic",
    clip: Annotated[
        bool, typer.Option("--clip", help="Move weights beyond the format's range to its ends, instead of stopping.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of all randomness.")] = 0,
    json: Json = False,
) -> None:
    """Turn a readable Vowpal Wabbit model into a lessram model with the same predictions.

    \b
    Both predict the same on the same VW text, but for rounding: weights are rounded at random, without bias, to the
    grid of the format. Learning rates start fresh: further training (`train -i`) takes first steps as large as those
    of a new model.

    \b
    Examples:
      vw -d clicks.vw --loss_function logistic --readable_model clicks.txt
      lessram import-vw clicks.txt -o clicks.lessram
      lessram import-vw clicks.txt -o clicks.lessram --weights float32
      lessram predict clicks.lessram today.vw --margins
    """
    import msgspec

    from lessram.model.vw_model import import_vw as load

    check_outputs(output)
    check_apart([output], [readable])
    found = load(readable, clip=clip, weights=weights, rates=rates, alpha=alpha, loss=loss, seed=seed)
    model = found.model
    model.save(output)
    values = {
        "weights": found.weights,
        "clipped": found.clipped,
        "largest": found.largest,
        "intercept": model.intercept,
        "slots": model.spec.slots,
        "bits_per_slot": model.bits_per_slot,
        "table_bytes": model.table_bytes,
    }
    if json:
        typer.echo(msgspec.json.encode(values).decode())
        return
    typer.echo(f"{found.weights:,} weights into {model.spec.slots:,} slots of {values['bits_per_slot']:g} bits")
    typer.echo(f"largest {found.largest:g}, clipped {found.clipped:,}, intercept {model.intercept:g}")
    typer.echo("rates start fresh: training on begins with steps as large as those of a new model")
