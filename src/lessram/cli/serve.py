"""lessram serve."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from lessram.serving.server.loaded import Predicts


def serve(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model written by train or compress.")],
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="PORT", help="Port to listen on; 0 = any free port.")] = 8000,
    workers: Annotated[
        int, typer.Option("--workers", metavar="N", help="Processes; they share the model's memory.")
    ] = 1,
    max_body: Annotated[int, typer.Option("--max-body", metavar="MB", help="Largest request body, in megabytes.")] = 16,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="Time for a body to arrive, and for its answer.")
    ] = 10.0,
    poll: Annotated[
        float, typer.Option("--poll", metavar="SECONDS", help="How often to check whether the file was replaced.")
    ] = 1.0,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Whether to compare all checksums before serving a file.")
    ] = True,
    hot_bytes: Annotated[
        int, typer.Option("--hot-bytes", metavar="BYTES", help="Each worker's cache for values of a compressed model.")
    ] = 0,
    access_log: Annotated[bool, typer.Option("--access-log", help="Log every request.")] = False,
) -> None:
    """Serve a model over HTTP, with metrics and a page to try a row.

    Answers POST /predict, /batch and /explain, and GET /model, /healthz, /metrics and / (the page). If the file is
    replaced (by rename, as lessram writes), the new model takes over between two requests. SIGTERM and Ctrl-C let
    requests in flight finish.

    \b
    Examples:
      lessram serve clicks.served --port 8000 --workers 4
      curl -d '{"features": {"site": "rome", "price": 0.5}}' http://127.0.0.1:8000/predict
    """
    from lessram.serving.server.http import Limits
    from lessram.serving.server.run import Settings
    from lessram.serving.server.run import serve as run

    settings = Settings(
        host=host,
        port=port,
        workers=workers,
        limits=Limits(body=max_body << 20, seconds=timeout),
        poll=poll,
        verify=verify,
        access_log=access_log,
    )
    run(str(model), functools.partial(open_model, hot_bytes=hot_bytes), settings)


def open_model(path: str, hot_bytes: int = 0) -> Predicts:
    """A model of either kind, as the server takes it: mapped, its checksums compared by whoever asked for that."""
    from lessram.model.model import Model
    from lessram.prediction import kind_of
    from lessram.serving.predictor import Predictor
    from lessram.serving.served import SERVED

    if kind_of(Path(path)) == SERVED:
        return Predictor.open(path, hot_bytes=hot_bytes)
    return Trained(Model.load(path, verify=False))


class Trained:
    """A trained model, mapped from its file, predicting as `lessram predict` does."""

    def __init__(self, model: Any) -> None:
        from lessram.learning.learner import Learner
        from lessram.learning.training import reading_of

        self.slots, self.loss, self.reading = model.spec.slots, model.spec.loss, reading_of(model)
        self.predict = Learner(model).predict
