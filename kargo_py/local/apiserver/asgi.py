"""From HTTP to the core and back, as an ASGI application.

Bodies are bounded while they are read, watches are sent line by line until their end, the client's or the server's,
and no traceback leaves the process.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import replace
from email.utils import formatdate
from functools import lru_cache
from typing import Any, Protocol, TypeAlias
from urllib.parse import unquote_plus

from kargo_py.local.apiserver.bodies import MAX_BODY
from kargo_py.local.apiserver.failures import Failure
from kargo_py.local.apiserver.wire import Dropped, Handler, Request, Response, Stream

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Header: TypeAlias = tuple[bytes, bytes]

ABORT = "kargo_py.abort"
"""In the scope's extensions: closes the connection at once. Where a server has none, an exception has to do."""

BODY_SECONDS = 60.0
"""For a body that trickles in. The real server waits for more than 100 s; nobody here is that slow."""
LINGER_SECONDS = 0.5
"""So long the rest of what was refused is taken in and thrown away: were the connection closed at once, the client's
kernel would drop the answer that it has not read yet."""

_BODILESS = frozenset({"GET", "HEAD", "OPTIONS"})
_BAD_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")

_MOST_WARNING_CHARACTERS = 4 * 1024
_SHORT_WARNING = 256


class Guard(Protocol):
    """Decides on a request before its body is read."""

    def refusal(self, request: Request) -> tuple[Failure, Sequence[str]] | None:
        """Why the request is refused, and warnings; None where it is let in."""

    def user(self, request: Request) -> str:
        """Whose request it is that was let in."""


class Application:
    """Serves *core*; *guard* stands before it."""

    def __init__(self, core: Handler, *, guard: Guard | None = None) -> None:
        self._core = core
        self._guard = guard
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """End the watches, those that begin from now on included."""
        self._stopping.set()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"{scope['type']} is not served here")
        request = _request(scope)
        if (wrong := _malformed(scope, request)) is not None:
            await _send_whole(send, request, wrong, ())
            return
        try:
            await self._answer(request, receive, send)
        except Dropped:
            await _abort(scope, receive)

    async def _answer(self, request: Request, receive: Receive, send: Send) -> None:
        if self._guard is not None and (refused := self._guard.refusal(request)) is not None:
            failure, warnings = refused
            await _send_whole(send, request, failure.response(), warnings)
            return
        headers = {name: value for name, value in request.headers.items() if name != "authorization"}
        user = self._guard.user(request) if self._guard is not None else ""
        request = replace(request, headers=headers, user=user)
        if request.method not in _BODILESS:
            try:
                request = await _with_body(request, receive)
            except Failure as failure:
                await _refuse_body(receive, send, failure)
                return
            except _Gone:
                return
        answer = await self._handled(request)
        if isinstance(answer, Stream):
            await self._send_stream(request, answer, receive, send)
        else:
            await _send_whole(send, request, answer, answer.warnings)

    async def _handled(self, request: Request) -> Response | Stream:
        try:
            return await self._core.handle(request)
        except Failure as failure:
            return failure.response()
        except Dropped:
            raise
        except Exception:  # noqa: BLE001 - whatever it is, the client gets a Status and the others their answers
            _log().exception("request failed", method=request.method, path=request.path)
            return _internal_error().response()

    async def _send_stream(self, request: Request, stream: Stream, receive: Receive, send: Send) -> None:
        """Until the stream ends, the client goes away, or the server stops."""
        pump = asyncio.create_task(_pump(stream, send))
        others = [asyncio.create_task(_until_gone(receive)), asyncio.create_task(self._stopping.wait())]
        try:
            await asyncio.wait([pump, *others], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (pump, *others):
                task.cancel()
            await asyncio.wait([pump, *others])
            await stream.lines.aclose()
        error = None if pump.cancelled() else pump.exception()
        if isinstance(error, Dropped):
            raise error
        if error is not None:
            # The answer has begun: all that can still be said is that it is not whole.
            _log().error("watch failed", method=request.method, path=request.path, exc_info=error)
            raise Dropped(carried_out=True)
        await send({"type": "http.response.body", "body": b""})


def _log() -> Any:
    import structlog  # noqa: PLC0415  (only a fault of this server is logged, and the import is slow)

    return structlog.get_logger(__name__)


class _Gone(Exception):
    """The client went away."""


async def _pump(stream: Stream, send: Send) -> None:
    await send({"type": "http.response.start", "status": stream.code, "headers": _headers(stream, stream.warnings)})
    async for line in stream.lines:
        await send({"type": "http.response.body", "body": line, "more_body": True})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _abort(scope: MutableMapping[str, Any], receive: Receive) -> None:
    abort = scope.get("extensions", {}).get(ABORT)
    if abort is None:
        raise ConnectionAbortedError("the connection is to be cut, and this server cannot do it")
    abort()
    await _until_gone(receive)


def _request(scope: MutableMapping[str, Any]) -> Request:
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        if name not in headers:
            headers[name] = value
        elif name != "authorization":  # of which the first counts
            headers[name] += f", {value}"
    query = tuple(_pairs(scope["query_string"].decode("latin-1"))) if scope["query_string"] else ()
    return Request(scope["method"], scope["raw_path"].decode("latin-1"), query, headers)


def _malformed(scope: MutableMapping[str, Any], request: Request) -> Response | None:
    """Go's answer to what its HTTP parser does not take and uvicorn's does."""
    if _BAD_ESCAPE.search(request.path):
        text = b"400 Bad Request"
    elif "host" not in request.headers and scope.get("http_version") == "1.1":
        text = b"400 Bad Request: missing required Host header"
    else:
        return None
    return Response(400, text, "text/plain; charset=utf-8", {"Connection": "close"})


def _pairs(query: str) -> Iterator[tuple[str, str]]:
    """The pairs as Go reads them: one with a broken escape or a semicolon counts as absent."""
    for pair in query.split("&"):
        if pair and ";" not in pair and not _BAD_ESCAPE.search(pair):
            name, _, value = pair.partition("=")
            yield unquote_plus(name), unquote_plus(value)


async def _with_body(request: Request, receive: Receive) -> Request:
    """The request with its body; raises Failure (413, 504) or _Gone."""
    try:
        announced = int(request.headers.get("content-length", "0"))
    except ValueError:
        announced = 0
    if announced > MAX_BODY:
        raise _too_large()
    first = await _part(receive) if announced else None
    if first is None and "transfer-encoding" not in request.headers:
        return request
    if first is not None and not first["more_body"]:
        return replace(request, body=first["body"])
    body = bytearray(first["body"] if first is not None else b"")
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while len(body) <= MAX_BODY:
                part = await _part(receive)
                body += part["body"]
                if not part["more_body"]:
                    break
    except TimeoutError:
        message = "Timeout: request did not complete within the allotted timeout"
        raise Failure(504, "Timeout", message, headers={"Connection": "close"}) from None
    if len(body) > MAX_BODY:
        raise _too_large()
    return replace(request, body=bytes(body))


async def _part(receive: Receive) -> Message:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise _Gone
    return {"body": message.get("body", b""), "more_body": message.get("more_body", False)}


async def _refuse_body(receive: Receive, send: Send, failure: Failure) -> None:
    answer = failure.response()
    await send({"type": "http.response.start", "status": answer.code, "headers": _headers(answer, ())})
    await send({"type": "http.response.body", "body": answer.body, "more_body": True})
    with suppress(TimeoutError, _Gone):
        async with asyncio.timeout(LINGER_SECONDS):
            while (await _part(receive))["more_body"]:
                pass
    await send({"type": "http.response.body", "body": b""})


async def _send_whole(send: Send, request: Request, answer: Response, warnings: Sequence[str]) -> None:
    await send({"type": "http.response.start", "status": answer.code, "headers": _headers(answer, warnings)})
    await send({"type": "http.response.body", "body": b"" if request.method == "HEAD" else answer.body})


@lru_cache(maxsize=1)
def _date(second: int) -> bytes:
    return formatdate(second, usegmt=True).encode()


def _headers(answer: Response | Stream, warnings: Sequence[str]) -> list[Header]:
    headers: list[Header] = [
        (b"cache-control", b"no-cache, private"),
        (b"date", _date(int(time.time()))),
    ]
    if answer.content_type:
        headers.append((b"content-type", answer.content_type.encode("latin-1")))
    if isinstance(answer, Response):
        headers.append((b"content-length", b"%d" % len(answer.body)))
        headers += [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers.items()]
    if warnings:
        headers += [(b"warning", text) for text in _warnings(dict.fromkeys(warnings))]
    return headers


def _warnings(texts: Iterable[str]) -> Iterator[bytes]:
    """Values of the header, as the real server shortens many and leaves out what cannot stand in a header."""
    sayable = [text for text in texts if text and not _CONTROL.search(text)]
    if sum(map(len, sayable)) > _MOST_WARNING_CHARACTERS:
        sayable = [text[:_SHORT_WARNING] for text in sayable][: _MOST_WARNING_CHARACTERS // _SHORT_WARNING]
    for text in sayable:
        quoted = text.replace("\\", "\\\\").replace('"', '\\"')
        yield f'299 - "{quoted}"'.encode()


def _too_large() -> Failure:
    message = f"Request entity too large: limit is {MAX_BODY}"
    return Failure(413, "RequestEntityTooLarge", message, headers={"Connection": "close"})


def _internal_error() -> Failure:
    why = "the server failed at this request; its log says more"
    return Failure(500, "InternalError", f"Internal error occurred: {why}", {"causes": [{"message": why}]})
