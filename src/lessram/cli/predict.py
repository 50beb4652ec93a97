"""lessram predict."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from lessram.cli.options import Data, Delimiter, Format, Header, MaxErrors, ModelFile, Threads, thread_count
from lessram.cli.outputs import check_apart, check_outputs, is_device


def predict(
    model: ModelFile,
    data: Data,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write here instead of to stdout.")
    ] = None,
    margins: Annotated[
        bool, typer.Option("--margins", help="Print margins (log-odds) instead of probabilities.")
    ] = False,
    format: Format = "auto",
    delimiter: Delimiter = ",",
    header: Header = True,
    threads: Threads = 0,
    max_errors: MaxErrors = 0,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line: margin and probability.")
    ] = False,
) -> None:
    """Predict each row: one number per line, the probability of label 1. Labels in the data are ignored.

    \b
    Examples:
      lessram predict clicks.lessram today.svm > probabilities.txt
      zcat today.svm.gz | lessram predict clicks.lessram - --margins
    """
    from lessram.cli.summary import warn_of_bad_lines
    from lessram.data.formats import Form, Stream
    from lessram.data.predicting import read_to_predict
    from lessram.data.source import expand
    from lessram.learning.training import reading_of
    from lessram.prediction import open_model

    if output is not None and not is_device(output):
        check_outputs(output)
        check_apart([output], [model, *expand(data)])
    opened = open_model(model)
    loss = opened.spec.loss
    form = Form(name=format, delimiter=delimiter, header=header)
    reader = read_to_predict(
        Stream(data, form),
        reading_of(opened.model),
        opened.spec.slots,
        max_errors=max_errors,
        threads=thread_count(threads),
    )
    with _target(output) as target:
        for batch, _ in reader:
            target.write("".join(_lines(opened.predict(batch, trusted=True), loss, margins, json)))  # at once: faster
    warn_of_bad_lines(reader.report)


def _lines(found, loss: str, margins: bool, json: bool):  # type: ignore[no-untyped-def]
    from lessram.numerics.loss import probabilities

    likely = probabilities(found) if loss == "logistic" else None
    if json:
        pairs = zip(found.tolist(), ["null"] * len(found) if likely is None else likely.tolist(), strict=True)
        return [f'{{"margin":{z!r},"probability":{p}}}\n' for z, p in pairs]
    chosen = found if margins or likely is None else likely
    return [f"{value:.9g}\n" for value in chosen.tolist()]


def _target(output: Path | None):  # type: ignore[no-untyped-def]
    import contextlib

    from lessram.model.file import replacing

    if output is None:
        return contextlib.nullcontext(sys.stdout)
    return open(output, "w", encoding="utf-8") if is_device(output) else replacing(output)
