"""Cores to stand in for the server, whose answers a test decides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from urllib.parse import parse_qsl

import msgspec

from kargo_py.local.apiserver.wire import Dropped, JsonObject, Request, Response, Stream, encode


class Core:
    """Answers with what it was asked, or as *answer* says; watches give the lines that a test puts in."""

    def __init__(self, answer: Callable[[Request], Awaitable[Response | Stream]] | None = None) -> None:
        self.asked: list[Request] = []
        self.lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.begun = asyncio.Event()
        self.closed = asyncio.Event()
        self._answer = answer

    async def handle(self, request: Request) -> Response | Stream:
        self.asked.append(request)
        if self._answer is not None:
            return await self._answer(request)
        if request.parameter("watch"):
            return Stream(200, self.watched())
        return Response(200, encode({"method": request.method, "path": request.path, "bytes": len(request.body)}))

    async def watched(self) -> AsyncGenerator[bytes]:
        """The lines in the queue, up to None."""
        self.begun.set()
        try:
            while (line := await self.lines.get()) is not None:
                yield line
        finally:
            self.closed.set()


def request(line: str, *, agent: str = "test", body: bytes = b"", **headers: str) -> Request:
    """``GET /api/v1/pods?watch=1``."""
    method, _, target = line.partition(" ")
    path, _, query = target.partition("?")
    return Request(method, path, parse_qsl(query, keep_blank_values=True), {"user-agent": agent, **headers}, body)


def content(answer: Response | Stream) -> JsonObject:
    """The JSON in an answer."""
    assert isinstance(answer, Response)
    return msgspec.json.decode(answer.body, type=dict)


async def collect(answer: Response | Stream) -> tuple[Sequence[bytes], bool]:
    """The lines of a stream to its end, and whether it broke off."""
    assert isinstance(answer, Stream)
    lines = []
    try:
        async for line in answer.lines:
            lines.append(line)  # noqa: PERF401 - those before the break count, too
    except Dropped:
        return lines, True
    return lines, False
