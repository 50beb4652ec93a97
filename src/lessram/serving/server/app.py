"""The routes.

    POST /predict   one row: {"margin": z, "probability": p}
    POST /batch     rows: {"margins": [...], "probabilities": [...]}
    POST /explain   one row: its margin taken apart
    GET  /model     what it reads
    GET  /healthz   which model answers
    GET  /metrics   for Prometheus
    GET  /          a page to try a row

Every answer of a model names it: the headers `lessram-model` (its checksum) and `lessram-generation`. A request takes
the model once, so that nothing can be answered by a mixture of two.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from typing import Any

import msgspec

from lessram.errors import DataError
from lessram.numerics.loss import probabilities
from lessram.serving.server.explain import explain
from lessram.serving.server.forms import Form
from lessram.serving.server.http import (
    Gone,
    Limits,
    Receive,
    Refused,
    Scope,
    Send,
    error_body,
    form_of,
    read_body,
    respond,
)
from lessram.serving.server.loaded import Loaded, Opener, probability
from lessram.serving.server.metrics import Metrics
from lessram.serving.server.reload import Keeper

log = logging.getLogger("lessram.serve")

INLINE = 16 << 10
"""Bodies up to this size are answered where they arrive; handing them to a thread would take longer."""

Answer = Callable[[Loaded, bytes, Form], tuple[Any, int]]
"""What an endpoint makes of a body: something JSON-able, and the number of rows."""


def predict(model: Loaded, body: bytes, form: Form) -> tuple[Any, int]:
    margins = model.margins(body, form)
    if len(margins) != 1:
        raise DataError(f"found {len(margins)} rows, expected one: /batch takes many")
    margin = float(margins[0])
    return {"margin": margin, "probability": probability(margin) if model.logistic else None}, 1


def batch(model: Loaded, body: bytes, form: Form) -> tuple[Any, int]:
    margins = model.margins(body, form)
    found = probabilities(margins).tolist() if model.logistic else None
    return {"margins": margins.tolist(), "probabilities": found}, len(margins)


def explained(model: Loaded, body: bytes, form: Form) -> tuple[Any, int]:
    return explain(model, body, form), 1


class Endpoint:
    """An ASGI application that answers bodies by the model of the moment."""

    def __init__(self, service: Service, name: str, answer: Answer, json: Form, inline: int = INLINE) -> None:
        self._service, self._name, self._answer, self._json, self._inline = service, name, answer, json, inline

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        status, rows, headers = 200, 0, []
        try:
            form = form_of(scope, self._json)
            body = await read_body(scope, receive, self._service.limits)
            model = self._service.keeper.current
            headers = model.headers
            run = self._service.run_here if len(body) <= self._inline else self._service.run_in_thread
            found, rows = await run(self._answer, model, body, form)
            content = msgspec.json.encode(found)
        except DataError as error:
            status, content = 400, error_body(str(error))
        except Refused as error:
            status, content = error.status, error_body(str(error))
            headers = [*headers, (b"connection", b"close")] if error.close else headers
        except Gone:
            return
        except Exception:
            log.exception("%s failed", self._name)
            status, content = 500, error_body("the server failed; its log says why")
        await respond(send, status, content, headers)
        self._service.metrics.request(self._name, status, time.perf_counter() - started, rows)


class Service:
    """What the endpoints share: the model of the moment, limits, metrics, threads for large bodies."""

    def __init__(self, keeper: Keeper, limits: Limits, metrics: Metrics) -> None:
        self.keeper, self.limits, self.metrics = keeper, limits, metrics
        self._threads = ThreadPoolExecutor(os.cpu_count() or 1, "lessram-batch")

    async def run_here(self, answer: Answer, *arguments: Any) -> tuple[Any, int]:
        """For what is quick."""
        return answer(*arguments)

    async def run_in_thread(self, answer: Answer, *arguments: Any) -> tuple[Any, int]:
        """For the rest, so that others are answered meanwhile: kernels release the interpreter's lock."""
        work = asyncio.get_running_loop().run_in_executor(self._threads, answer, *arguments)
        try:
            return await asyncio.wait_for(work, self.limits.seconds)
        except TimeoutError:
            message = f"found no end of the computation after {self.limits.seconds:g} s, expected a smaller body"
            raise Refused(503, message) from None

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class Pages:
    """What is read with GET: which model answers, what it reads, the metrics, the page."""

    def __init__(self, service: Service) -> None:
        self._keeper, self._metrics = service.keeper, service.metrics
        self._html = resources.files("lessram.serving.server").joinpath("page.html").read_bytes()

    async def health(self, request: Any) -> Any:
        model = self._keeper.current
        return _json({"status": "ok", "model": model.checksum, "generation": model.generation})

    async def model(self, request: Any) -> Any:
        return _json(describe(self._keeper.current))

    async def metrics(self, request: Any) -> Any:
        from starlette.responses import Response

        text, kind = self._metrics.page()
        return Response(text, media_type=kind)

    async def page(self, request: Any) -> Any:
        from starlette.responses import Response

        return Response(self._html, media_type="text/html", headers={"content-security-policy": POLICY})


POLICY = "default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""The page brings all that it needs; nothing is loaded from elsewhere."""


def describe(model: Loaded) -> dict[str, Any]:
    """What a client should know of a model before it sends rows."""
    schema = model.reading.schema
    columns = {name: schema.of(name) for name in schema.features} if schema else None
    return {
        "model": model.checksum,
        "generation": model.generation,
        "slots": model.slots,
        "reads": model.reading.kind,
        "columns": columns,
        "centres": {scale.column: scale.centre for scale in schema.scales or ()} if schema else None,
        "probabilities": model.logistic,
    }


def _json(content: Any, status: int = 200, headers: Any = None) -> Any:
    from starlette.responses import Response

    return Response(msgspec.json.encode(content), status, headers, "application/json")


async def _refuse(request: Any, error: Any) -> Any:
    return _json({"error": f"{request.method} {request.url.path}: {error.detail}"}, error.status_code, error.headers)


def make_app(
    first: Loaded, path: str, opener: Opener, *, limits: Limits, poll: float = 1.0, verify: bool = True
) -> Any:
    """The application for a model file that is loaded already and may be replaced: an ASGI callable."""
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.routing import Route

    metrics = Metrics()
    keeper = Keeper(first, path, opener, verify=verify, on_reload=metrics.reload)
    service = Service(keeper, limits, metrics)
    pages = Pages(service)

    @contextlib.asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        metrics.reload("started", first.generation)
        watching = asyncio.create_task(keeper.watch(poll))
        yield
        watching.cancel()
        service.close()

    routes = [
        Route("/predict", Endpoint(service, "predict", predict, Form.ROW), methods=["POST"]),
        Route("/batch", Endpoint(service, "batch", batch, Form.ROWS), methods=["POST"]),
        Route("/explain", Endpoint(service, "explain", explained, Form.ROW, inline=0), methods=["POST"]),
        Route("/model", pages.model),
        Route("/healthz", pages.health),
        Route("/metrics", pages.metrics),
        Route("/", pages.page),
    ]
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: _refuse})
