"""lessram merge."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lessram.cli.options import Json
from lessram.cli.outputs import check_apart, check_outputs
from lessram.errors import SpecError

if TYPE_CHECKING:
    from lessram.model.model import Model


def merge(
    replicas: Annotated[
        list[Path], typer.Argument(metavar="REPLICA...", help="Models that learned different parts of the data.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="MODEL", help="Where to write the merged model.")],
    base: Annotated[
        Path | None,
        typer.Option("--base", "-b", metavar="MODEL", help="The model that all replicas continued from.  [nothing]"),
    ] = None,
    mean: Annotated[
        str,
        typer.Option(
            metavar="WHOSE", help="A weight is the mean of the replicas that met its feature (touched), or of all."
        ),
    ] = "touched",
    json: Json = False,
) -> None:
    """Make one model of replicas that were trained separately, on different parts of the data.

    \b
    Replicas continue from one base (`train -i`), or all start from nothing and are then given the same --alpha,
    --weights and so on. Give them different seeds. Weights are averaged and counts added up, both rounded at random
    without bias. Averaging shortens steps: K replicas learn best with sqrt(K) times the alpha of a single model.

    \b
    Examples:
      lessram train part-1.svm -o 1.lessram --alpha 0.11 --weights q3.12 --seed 1
      lessram train part-2.svm -o 2.lessram --alpha 0.11 --weights q3.12 --seed 2
      lessram merge 1.lessram 2.lessram -o both.lessram
      lessram train more-1.svm -i both.lessram -o 1.lessram --seed 1
      lessram train more-2.svm -i both.lessram -o 2.lessram --seed 2
      lessram merge 1.lessram 2.lessram --base both.lessram -o all.lessram --json
    """
    import msgspec

    from lessram.cli.summary import Stopwatch
    from lessram.model.merging import is_before
    from lessram.model.merging import merge as carry_out

    check_outputs(output)
    check_apart([output], [*replicas, *([base] if base else [])])
    _check_once(replicas)
    watch = Stopwatch()
    start = _open(base) if base else None
    models = [_open(path) for path in replicas]
    if start is None:
        for path, model in zip(replicas, models, strict=True):
            if len(models) > 1 and all(is_before(model, other) for other in models if other is not model):
                typer.echo(f"is {path} what the others went on from? Then give it with --base", err=True)
    names = [str(base), *map(str, replicas)]
    merged = carry_out(start, models, mean=mean, names=names)
    merged.save(output)
    values = _figures(merged, models, start, watch.seconds)
    typer.echo(msgspec.json.encode(values).decode() if json else "\n".join(_lines(values)))


def _check_once(replicas: Sequence[Path]) -> None:
    """Refuse a model that is given twice: what it learned would count twice."""
    from lessram.model.file import checksum

    seen: dict[str, Path] = {}
    for path in replicas:
        other = seen.setdefault(checksum(path), path)
        if other is not path:
            raise SpecError(f"{path}: the same model as {other}, expected replicas that learned different data")


def _open(path: Path) -> Model:
    from lessram.model.model import Model
    from lessram.tables.layout import drop_pages_of

    model = Model.load(path)
    drop_pages_of(model.table)  # which checking its sums has made resident
    return model


def _figures(merged: Model, replicas: Sequence[Model], base: Model | None, seconds: float) -> dict[str, Any]:
    from lessram.cli.summary import peak_rss_bytes
    from lessram.learning.progressive import scores_of

    scores = scores_of(merged)
    return {
        "replicas": len(replicas),
        "examples": merged.examples,
        "examples_of_base": base.examples if base else 0,
        "log_loss": scores.log_loss,
        "error_rate": scores.error_rate,
        "auc": scores.auc,
        "loss": merged.spec.loss,
        "seed": merged.spec.seed,
        "alpha": merged.spec.alpha,
        "intercept": merged.intercept,
        "scale": merged.scale,
        "slots": merged.spec.slots,
        "bits_per_slot": merged.bits_per_slot,
        "table_bytes": merged.table_bytes,
        "peak_rss_bytes": peak_rss_bytes(),
        "seconds": seconds,
    }


def _lines(values: dict[str, Any]) -> list[str]:
    from lessram.cli.summary import loss_name

    plural = "s" if values["replicas"] > 1 else ""
    loss = "-" if values["log_loss"] is None else f"{values['log_loss']:.6f}"
    table = f"{values['table_bytes']:,} bytes, {values['bits_per_slot']:g} bits/slot x {values['slots']:,} slots"
    rows = {
        "merged": f"{values['replicas']} replica{plural}",
        "examples": f"{values['examples']:,} ({values['examples_of_base']:,} of them before the replicas parted)",
        loss_name(values["loss"]): f"{loss} (of what was predicted before learning, by each replica)",
        "table": table,
        "peak memory": f"{values['peak_rss_bytes'] / 2**20:,.0f} MiB resident",
        "time": f"{values['seconds']:.2f} s",
    }
    return [f"{name:<14}{text}" for name, text in rows.items()]
