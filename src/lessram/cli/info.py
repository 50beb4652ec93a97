"""lessram info."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import typer

from lessram.cli.options import Json, ModelFile


def info(model: ModelFile, json: Json = False) -> None:
    """Describe a model: its options, and its size in bytes, per slot and per nonzero weight.

    \b
    Examples:
      lessram info clicks.lessram
      lessram info clicks.lessram --json
    """
    from lessram.cli.summary import hint_at_range
    from lessram.model.spec import Spec

    values = account_of(model)
    if json:
        typer.echo(msgspec.json.encode(values).decode())
        return
    parts = {name: value for name, value in values.items() if isinstance(value, dict)}
    _print({name: value for name, value in values.items() if name not in parts}, "")
    for part, entries in parts.items():
        typer.echo(part.replace("_", " "))
        _print(entries, "  ")
    if hint := hint_at_range(msgspec.convert(values["spec"], Spec), values.get("saturated")):
        typer.echo(hint, err=True)


def _print(entries: dict[str, Any], indent: str) -> None:
    width = max(24 - len(indent), *(len(name) + 2 for name in entries))
    for name, value in entries.items():
        typer.echo(f"{indent}{name.replace('_', ' '):<{width}}{_text(value)}")


def account_of(path: Path) -> dict[str, Any]:
    """Every figure of a model file; a served one also has its grid and what was measured when it was made."""
    from lessram.model.ledger import account
    from lessram.model.model import Model
    from lessram.prediction import open_file

    model = open_file(path)
    if isinstance(model, Model):
        return msgspec.to_builtins(account(model, path))
    values = msgspec.to_builtins(model.ledger(path))
    return {**values, "grid": str(model.store.grid), "overhead": overhead(values), "made": model.metrics}


def overhead(values: dict[str, Any]) -> float | None:
    """How much more than the entropy a served model takes: 0.05 is 5 %."""
    ideal = values["entropy_bits_per_slot"]
    return values["bits_per_slot"] / ideal - 1 if ideal > 0 else None


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
