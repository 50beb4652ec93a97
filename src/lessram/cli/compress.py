"""lessram compress."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lessram.cli.live_line import LiveLine
from lessram.cli.options import Delimiter, Format, Header, Json, MaxErrors, Quiet, Threads, thread_count
from lessram.cli.outputs import check_apart, check_outputs
from lessram.cli.table import print_table
from lessram.errors import SpecError

if TYPE_CHECKING:
    from lessram.data.batch import Batch
    from lessram.data.reader import BatchReader
    from lessram.serving.planner import Compressed, Trial

_MEASURED = "measured added loss"
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


def compress(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model written by train.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="SERVED", help="Where to write it.")],
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data", metavar="HOLDOUT", help="Labelled rows to measure the loss on; may be given more than once."
        ),
    ] = None,
    max_loss: Annotated[
        str | None,
        typer.Option(metavar="SHARE", help="Take the coarsest grid that adds at most this to the loss.  [0.1%]"),
    ] = None,
    grid: Annotated[str | None, typer.Option(metavar="qN.M", help="Take this grid, such as q2.7.")] = None,
    size: Annotated[
        str | None, typer.Option(metavar="BYTES", help="Take the finest grid whose file fits, such as 20MB.")
    ] = None,
    nonzeros: Annotated[
        float | None, typer.Option(metavar="K", help="Features per row, for the bound.  [the mean in training]")
    ] = None,
    rounding: Annotated[str, typer.Option(metavar="HOW", help="random (unbiased; bounds hold) or nearest.")] = "random",
    seed: Annotated[int, typer.Option(help="Seed of the rounding.")] = 0,
    format: Format = "auto",
    delimiter: Delimiter = ",",
    header: Header = True,
    threads: Threads = 0,
    max_errors: MaxErrors = 0,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Round a trained model to a coarse grid and write it compressed, ready to predict from.

    \b
    By default the grid is the coarsest that adds at most --max-loss to the log-loss: as measured on a hold-out with
    --data, which is the recommended way, or else by a bound on the expected loss. Or choose with --grid or --size.

    \b
    Examples:
      lessram compress clicks.lessram -o clicks.served --data holdout.svm
      lessram compress clicks.lessram -o clicks.served --data holdout.svm --max-loss 0.01%
      lessram compress clicks.lessram -o clicks.served --grid q2.7
      lessram compress clicks.lessram -o clicks.served --size 20MB --json
    """
    import msgspec

    from lessram.cli.info import account_of
    from lessram.cli.summary import Stopwatch, warn_of_bad_lines
    from lessram.data.formats import Form
    from lessram.data.source import expand
    from lessram.learning.training import open_reader
    from lessram.model.model import Model
    from lessram.serving.planner import Wish
    from lessram.serving.planner import compress as carry_out

    wish = Wish(
        grid=grid,
        max_loss=None if max_loss is None else share_of(max_loss),
        nonzeros=nonzeros,
        size=None if size is None else bytes_of(size),
        rounding=rounding,
        seed=seed,
    )
    check_outputs(output)
    check_apart([output], [model, *(expand(data) if data else [])])
    watch = Stopwatch()
    loaded = Model.load(model)
    progress = _Progress(quiet)
    holdout: Iterable[Batch] | None = None
    if data:
        form = Form(name=format, delimiter=delimiter, header=header)
        reader = open_reader(data, loaded, form, max_errors=max_errors, threads=thread_count(threads))
        holdout = progress.counted(reader, ", ".join(data))
    try:
        made = carry_out(loaded, wish, holdout, progress.show)
    finally:
        progress.close()
    if data:
        warn_of_bad_lines(reader.report)
    made.served.save(output)
    values = {**account_of(output), **_figures(made), "seconds": watch.seconds}
    if json:
        typer.echo(msgspec.json.encode(values).decode())
    else:
        _print(made, values, loaded.table_bytes)


def share_of(text: str) -> float:
    """A share such as 0.1% or 0.001."""
    match = re.fullmatch(r"\s*([0-9.eE+-]+)\s*(%?)\s*", text)
    try:
        return float(match[1]) / (100 if match[2] else 1)  # type: ignore[index]
    except (TypeError, ValueError):
        raise SpecError(f"expected a share such as 0.1% or 0.001, got {text!r}") from None


def bytes_of(text: str) -> int:
    """A size such as 20MB, 1.5GiB or 4096."""
    match = re.fullmatch(r"\s*([0-9.]+)\s*([kmg]?i?)b?\s*", text.lower())
    try:
        return int(float(match[1]) * _UNITS[match[2]])  # type: ignore[index]
    except (TypeError, ValueError, KeyError):
        raise SpecError(f"expected a size such as 20MB, 1.5GiB or 4096, got {text!r}") from None


class _Progress:
    """Which part of the work is being done, and how far it is."""

    def __init__(self, quiet: bool) -> None:
        self._line = LiveLine(quiet=quiet)

    def show(self, what: str, done: int, total: int) -> None:
        self._line.show(f"{what} {done / total:4.0%} of {total:,} slots")

    def counted(self, reader: BatchReader, place: str) -> Iterator[Batch]:
        """The batches of a reader; how many rows they had is shown, and that there was none is an error."""
        from lessram.cli.summary import no_example

        rows = 0
        for batch, _ in reader:
            yield batch
            rows += batch.rows
            self._line.show(f"measuring on {rows:,} rows of the hold-out")
        if rows == 0:
            raise no_example(reader.report, place)

    def close(self) -> None:
        self._line.wipe()


def _figures(made: Compressed) -> dict[str, Any]:
    """What is known of the choice, besides the account of the file."""
    chosen = made.chosen
    return {
        "why": made.why,
        "clipped": chosen.survey.clipped,
        "nonzeros": made.nonzeros,
        "expected_relative_loss_bound": chosen.bound,
        "theorem_4_3_bound": chosen.theorem,
        "measured_relative_loss": chosen.measured.relative_loss if chosen.measured else None,
        "measured_standard_error": chosen.measured.standard_error if chosen.measured else None,
        "log_loss": chosen.measured.log_loss if chosen.measured else None,
        "trials": [_trial(trial) for trial in made.trials],
    }


def _trial(trial: Trial) -> dict[str, Any]:
    return {
        "grid": trial.survey.grid,
        "entropy_bits_per_slot": trial.survey.entropy,
        "nonzero": trial.survey.nonzero,
        "clipped": trial.survey.clipped,
        "measured_relative_loss": trial.measured.relative_loss if trial.measured else None,
        "expected_relative_loss_bound": trial.bound,
        "theorem_4_3_bound": trial.theorem,
    }


def _print(made: Compressed, values: dict[str, Any], table_bytes: int) -> None:
    rows = [_row(trial, trial is made.chosen) for trial in made.trials]
    less = ["Theorem 4.3", "clipped", "nonzero", "bound"] if made.chosen.measured else [_MEASURED, "Theorem 4.3"]
    print_table(rows, left={""}, spare=[*less, "clipped", "nonzero"])
    typer.echo(f"{values['grid']}: {made.why}")
    more = "" if values["overhead"] is None else f", {values['overhead']:+.1%} over the entropy"
    typer.echo(f"{values['bits_per_slot']:.3f} bits/slot{more}; {values['file_bytes']:,} bytes, {table_bytes:,} before")
    if made.chosen.bound is not None and made.chosen.theorem is not None:
        looser = made.chosen.theorem / made.chosen.bound if made.chosen.bound else 1.0
        typer.echo(f"Theorem 4.3 is {looser:,.0f} times looser than the bound beside it: too loose to plan with")
    if made.chosen.survey.clipped:
        typer.echo(f"{made.chosen.survey.clipped:,} weights lie beyond {values['grid']} and were clipped", err=True)


def _row(trial: Trial, chosen: bool) -> dict[str, str]:
    measured = trial.measured
    return {
        "grid": trial.survey.grid,
        "entropy, bits/slot": f"{trial.survey.entropy:.3f}",
        "nonzero": f"{trial.survey.nonzero:,}",
        "clipped": f"{trial.survey.clipped:,}",
        _MEASURED: f"{measured.relative_loss:+.4%} ± {measured.standard_error:.4%}" if measured else "-",
        "bound": _percent(trial.bound),
        "Theorem 4.3": _percent(trial.theorem),
        "": "<- chosen" if chosen else "",
    }


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.4%}" if share < 10 else "> 1000%"
