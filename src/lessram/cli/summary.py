"""What train, resume and evaluate print at the end: the same figures, for people or for scripts."""

from __future__ import annotations

import resource
import sys
import time
from typing import Any, NamedTuple, Protocol

import msgspec
import typer

from lessram.data.reader import Report
from lessram.errors import DataError
from lessram.jit import compile_seconds
from lessram.learning.metrics import Scores
from lessram.model.spec import Spec

_SHOWN = 8
"""Columns that a warning names."""


_LOSS_NOTES = {"squared": " (mean of (prediction - label)^2 / 2)"}


def has_classes(loss: str) -> bool:
    """Whether labels are classes; under squared loss they are any numbers, of which error rate and AUC say nothing."""
    return loss != "squared"


def loss_name(loss: str) -> str:
    """What people call the mean loss, which is the log-loss only where the loss is logistic."""
    return "log-loss" if loss == "logistic" else f"{loss} loss"


class Costed(Protocol):
    """A model, of any kind, with what it costs."""

    @property
    def spec(self) -> Spec: ...
    @property
    def bits_per_slot(self) -> float: ...
    @property
    def table_bytes(self) -> int: ...


class Elapsed(NamedTuple):
    """Wall time, and the part of it in which kernels were compiled."""

    seconds: float
    compiling: float


class Stopwatch:
    """Wall time, from when it is made."""

    def __init__(self) -> None:
        self._start, self._compiled_before = time.perf_counter(), compile_seconds()

    @property
    def elapsed(self) -> Elapsed:
        seconds = self.seconds
        return Elapsed(seconds, min(compile_seconds() - self._compiled_before, seconds))

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start


def figures(model: Costed, scores: Scores, report: Report, elapsed: Elapsed, worked: Scores) -> dict[str, Any]:
    """Every figure of a run; these keys are stable. `worked` are the scores of this process alone.

    Speeds leave out the time in which kernels were compiled, which a machine spends once. Under squared loss, error
    rate, AUC and calibration count labels above 1/2 as positive.
    """
    working = max(elapsed.seconds - elapsed.compiling, 1e-9)
    return {
        "examples": scores.examples,
        "skipped": report.skipped,
        "unlabelled": report.unlabelled,
        "log_loss": scores.log_loss,
        "rmse": None if has_classes(model.spec.loss) else scores.rmse,
        "error_rate": scores.error_rate,
        "auc": scores.auc,
        "auc_error": scores.auc_error,
        "calibration": scores.calibration,
        "features": scores.features,
        "hashed": report.hashed,
        "loss": model.spec.loss,
        "alpha": model.spec.alpha,
        "slots": model.spec.slots,
        "bits_per_slot": model.bits_per_slot,
        "table_bytes": model.table_bytes,
        "peak_rss_bytes": peak_rss_bytes(),
        "seconds": elapsed.seconds,
        "compile_seconds": elapsed.compiling,
        "examples_per_second": worked.examples / working,
        "features_per_second": worked.features / working,
    }


def peak_rss_bytes() -> int:
    """The largest resident size of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def show(values: dict[str, Any], report: Report, json: bool) -> None:
    """Print the figures."""
    warn_of_bad_lines(report)
    if json:
        typer.echo(msgspec.json.encode(values).decode())
        return
    for name, text in _lines(values):
        typer.echo(f"{name:<14}{text}")


def no_example(report: Report, place: str) -> DataError:
    """What to say of data in which there was nothing to learn from or to score."""
    if report.unlabelled:
        message = f"found {report.unlabelled:,} examples without a label, expected some with one"
        return DataError(message, place=place)
    return DataError("found no example, expected at least one", place=place)


def warn_of_bad_lines(report: Report) -> None:
    """Say on stderr what was left out or missing, if something was."""
    if report.unlabelled:
        plural = "s" if report.unlabelled > 1 else ""
        typer.echo(f"left out {report.unlabelled:,} example{plural} without a label", err=True)
    unmet = [name for name, met in report.columns.items() if not met]
    if unmet:
        names = ", ".join(map(repr, unmet[:_SHOWN])) + (", ..." if len(unmet) > _SHOWN else "")
        typer.echo(f"found no value in any row for {len(unmet)} of {len(report.columns)} columns: {names}", err=True)
    if report.featureless:
        plural = "s" if report.featureless > 1 else ""
        typer.echo(f"found {report.featureless:,} row{plural} without a feature, only the intercept", err=True)
    if not report.skipped:
        return
    typer.echo(f"skipped {report.skipped:,} bad line{'s' if report.skipped > 1 else ''}, such as", err=True)
    for message in report.messages:
        typer.echo(f"  {message}", err=True)


def hint_at_range(spec: Spec, saturated: int | None) -> str | None:
    """What to say of weights that stand at the end of their format's range; None if there are none, or by wish."""
    if not saturated or spec.radius is not None:
        return None
    found = "1 weight stands" if saturated == 1 else f"{saturated:,} weights stand"
    advice = f": --weights {spec.grid.wider} might predict better" if spec.grid.wider else ""
    return f"{found} at the end of {spec.weights}, +-{spec.grid.largest:g}{advice}"


def _lines(values: dict[str, Any]) -> list[tuple[str, str]]:
    def number(key: str, form: str) -> str:
        return "-" if values[key] is None else format(values[key], form)

    speed = f"{values['examples_per_second']:,.0f} examples/s, {values['features_per_second'] / 1e6:,.1f} M features/s"
    compiled = f" ({values['compile_seconds']:.1f} s compiling, once)" if values["compile_seconds"] > 0.05 else ""
    quality = [
        ("error rate", number("error_rate", ".4%")),
        ("AUC", f"{number('auc', '.5f')} (+- {number('auc_error', '.5f')})"),
        ("calibration", f"{number('calibration', '.4f')} (predicted / actual positives)"),
    ]
    if not has_classes(values["loss"]):
        quality = [("RMSE", f"{number('rmse', '.6g')} (root of the mean of (prediction - label)^2)")]
    lines = [
        ("examples", f"{values['examples']:,} ({values['features']:,} features)"),
        (loss_name(values["loss"]), number("log_loss", ".6f") + _LOSS_NOTES.get(values["loss"], "")),
        *quality,
        (
            "table",
            f"{values['table_bytes']:,} bytes, {values['bits_per_slot']:g} bits/slot x {values['slots']:,} slots",
        ),
        ("alpha", f"{values['alpha']:g}"),
        ("peak memory", f"{values['peak_rss_bytes'] / 2**20:,.0f} MiB resident"),
        ("time", f"{values['seconds']:.2f} s{compiled}, {speed}"),
    ]
    if values["hashed"]:
        which = "names, numbers beyond the table (or all, as asked)"
        lines.insert(1, ("hashed", f"{values['hashed']:,} features: {which}"))
    return lines
