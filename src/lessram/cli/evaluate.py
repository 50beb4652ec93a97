"""lessram evaluate."""

from __future__ import annotations

from lessram.cli.options import (
    Data,
    Delimiter,
    Format,
    Header,
    Json,
    MaxErrors,
    ModelFile,
    Quiet,
    Threads,
    thread_count,
)


def evaluate(
    model: ModelFile,
    data: Data,
    format: Format = "auto",
    delimiter: Delimiter = ",",
    header: Header = True,
    threads: Threads = 0,
    max_errors: MaxErrors = 0,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Score a model on labelled data without learning from it.

    \b
    Examples:
      lessram evaluate clicks.lessram tomorrow.svm.zst
      lessram evaluate clicks.lessram holdout/ --json
    """
    from lessram.cli.progress import Progress
    from lessram.cli.summary import Stopwatch, figures, no_example, show
    from lessram.data.formats import Form
    from lessram.learning import progressive
    from lessram.learning.training import open_reader
    from lessram.prediction import open_model

    opened = open_model(model)
    form = Form(name=format, delimiter=delimiter, header=header)
    reader = open_reader(data, opened.model, form, max_errors=max_errors, threads=thread_count(threads))
    progress = Progress(opened.bits_per_slot, loss=opened.spec.loss, quiet=quiet)
    watch = Stopwatch()
    scores = None
    try:
        for scores in progressive.evaluate(opened, reader):
            progress.update(scores.examples, scores.copy)
    finally:
        progress.close()
    if scores is None:
        raise no_example(reader.report, ", ".join(data))
    show(figures(opened, scores, reader.report, watch.elapsed, scores), reader.report, json)
