"""A client that reaches an embedded API server without a socket: what simulated time needs.

It is the ordinary client over another transport, so requests, errors and what is known after them are the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import parse_qsl, urlsplit

from kargo_py.kube.exchange import Answer, BrokenOff, Limits, NoAnswer, Request as Outgoing
from kargo_py.kube.rest import RestClient, Settings
from kargo_py.local.apiserver import wire
from kargo_py.local.apiserver.wire import Dropped, Handler

SERVER = "in-process"


def client_of(handler: Handler, *, user_agent: str = "kargo-py", settings: Settings | None = None) -> RestClient:
    """A client for *handler*; *user_agent* is what the server knows its writes by."""
    return RestClient(InProcessTransport(handler, user_agent=user_agent), settings or Settings())


class InProcessTransport:
    """A :class:`~kargo_py.kube.exchange.Transport` that calls *handler* and has no credentials."""

    def __init__(self, handler: Handler, *, user_agent: str) -> None:
        self._handler = handler
        self._user_agent = user_agent
        self.generation = 0

    @property
    def server(self) -> str:
        return SERVER

    @property
    def source(self) -> str:
        return SERVER

    @property
    def credentials(self) -> str:
        return self._user_agent

    @asynccontextmanager
    async def sent(self, request: Outgoing) -> AsyncGenerator[Answer]:
        """Hand *request* over, and give its answer; raises TransportFailure."""
        answer = None
        try:
            async with asyncio.timeout(request.limits.total):
                answer = _Answer(await self._handler.handle(self._incoming(request)), request.limits)
                yield answer
        except TimeoutError as error:
            raise NoAnswer from error
        except Dropped as error:
            raise BrokenOff(str(error)) from error
        finally:
            if answer is not None:
                await answer.close()

    async def renew_if_due(self) -> None:
        """There is nothing to renew."""

    async def renew_refused(self, generation: int) -> bool:
        return False

    async def close(self) -> None:
        """There is nothing to close."""

    def _incoming(self, request: Outgoing) -> wire.Request:
        url = urlsplit(request.path)
        headers = {name.lower(): value for name, value in request.headers} | {"user-agent": self._user_agent}
        query = parse_qsl(url.query, keep_blank_values=True)
        return wire.Request(request.method, url.path, query, headers, request.body or b"")


class _Answer:
    def __init__(self, given: wire.Response | wire.Stream, limits: Limits) -> None:
        self._given = given
        self._silence = limits.silence
        self.status = given.code
        self.headers: Mapping[str, str] = _Headers(given.headers if isinstance(given, wire.Response) else {})

    async def read(self) -> bytes:
        if isinstance(self._given, wire.Response):
            return self._given.body
        return b"".join([chunk async for chunk in self])

    def chunks(self) -> AsyncIterator[bytes]:
        return self

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if isinstance(self._given, wire.Response):
            body, self._given = self._given.body, wire.Response(self.status, b"")
            if body:
                return body
            raise StopAsyncIteration
        async with asyncio.timeout(self._silence):
            return await anext(self._given.lines)

    async def close(self) -> None:
        if isinstance(self._given, wire.Stream):
            await self._given.lines.aclose()


class _Headers(dict[str, str]):
    """Header names in lower case, looked up whatever their case."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        super().__init__((name.lower(), value) for name, value in headers.items())

    def get(self, key: str, default: str | None = None) -> str | None:  # type: ignore[override]
        return super().get(key.lower(), default)
