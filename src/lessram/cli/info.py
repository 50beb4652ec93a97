"""lessram info."""

from __future__ import annotations

from typing import Any

import msgspec
import typer

from lessram.cli.options import Json, ModelFile


def info(model: ModelFile, json: Json = False) -> None:
    """Look into a model: its choices, and what it costs in bytes under every denominator.

    \b
    Examples:
      lessram info clicks.lessram
      lessram info clicks.lessram --json
    """
    from lessram.model.ledger import account
    from lessram.model.model import Model

    ledger = account(Model.load(model), model)
    values: dict[str, Any] = msgspec.to_builtins(ledger)
    if json:
        typer.echo(msgspec.json.encode(values).decode())
        return
    spec = values.pop("spec")
    for name, value in values.items():
        typer.echo(f"{name.replace('_', ' '):<24}{_text(value)}")
    typer.echo("spec")
    for name, value in spec.items():
        typer.echo(f"  {name.replace('_', ' '):<22}{_text(value)}")


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
