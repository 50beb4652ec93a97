"""Bodies in, answers out, and the errors between them: the part of ASGI that the endpoints need."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

from lessram.serving.server.forms import Form

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

JSON = b"application/json"
_LINES = {b"application/x-ndjson", b"application/ndjson", b"application/jsonl", b"application/x-jsonlines"}
_UNSAID = {b"", b"application/x-www-form-urlencoded"}  # curl's word for whatever -d is given


class Refused(Exception):
    """A request that gets an error for its answer."""

    def __init__(self, status: int, message: str, *, close: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.close = close
        """Whether the connection ends, for what is left of the request is not wanted."""


class Gone(Exception):
    """The client went away before its request was whole."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a request may take."""

    body: int = 16 << 20
    """Bytes."""
    seconds: float = 10.0
    """For the body to arrive, and again for the answer to be computed."""


def header(scope: Scope, name: bytes) -> bytes:
    for found, value in scope["headers"]:
        if found == name:
            return bytes(value)
    return b""


def form_of(scope: Scope, json: Form) -> Form:
    """What a body holds, by its Content-Type; `json` is what JSON means at this endpoint."""
    kind = header(scope, b"content-type").partition(b";")[0].strip().lower()
    if kind == JSON or kind in _UNSAID:
        return json
    if kind == b"text/plain":
        return Form.TEXT
    if kind in _LINES:
        return Form.JSON_LINES
    expected = "application/json, application/x-ndjson or text/plain"
    raise Refused(415, f"found Content-Type {kind.decode('latin-1')}, expected {expected}", close=True)


async def read_body(scope: Scope, receive: Receive, limits: Limits) -> bytes:
    """The whole body, if it is small enough and comes soon enough."""
    encoding = header(scope, b"content-encoding")
    if encoding not in (b"", b"identity"):
        raise Refused(415, f"found Content-Encoding {encoding.decode('latin-1')}, expected none", close=True)
    declared = header(scope, b"content-length")
    if declared.isdigit() and int(declared) > limits.body:
        raise _too_large(int(declared), limits)
    body = b""
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(limits.seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Gone
                body = message.get("body", b"")
                size += len(body)
                if size > limits.body:
                    raise _too_large(size, limits)
                parts.append(body)
                if not message.get("more_body"):
                    return body if len(parts) == 1 else b"".join(parts)
    except TimeoutError:
        wanted = f" of {declared.decode()}" if declared else ""
        message_ = f"found {size}{wanted} bytes of the body after {limits.seconds:g} s, expected all of it"
        raise Refused(408, message_, close=True) from None


def _too_large(size: int, limits: Limits) -> Refused:
    return Refused(413, f"found a body of {size} bytes or more, expected at most {limits.body}", close=True)


async def respond(
    send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]] | None = None, kind: bytes = JSON
) -> None:
    """Send an answer."""
    lines = [(b"content-type", kind), (b"content-length", str(len(body)).encode()), *(headers or ())]
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": body})


def error_body(message: str) -> bytes:
    return msgspec.json.encode({"error": message})
