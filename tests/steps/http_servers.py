"""Servers that answer a test as it says, and note what they were sent."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeAlias

Script: TypeAlias = Callable[["Received", asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Received:
    """A request."""

    line: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Server:
    """One that listens on this machine."""

    port: int
    received: list[Received] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client has closed its side."""
    begun: asyncio.Event = field(default_factory=asyncio.Event)


@asynccontextmanager
async def serving(script: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """In the body a server follows *script* for each request."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if tls is not None:
                # Not the server's: where a handshake fails nothing else would close the connection in time.
                with suppress(ConnectionError, ssl.SSLError):
                    await writer.start_tls(tls)
            request = await _request(reader)
            if request is None:
                return
            server.received.append(request)
            server.begun.set()
            telling = asyncio.ensure_future(script(request, writer))
            try:
                with suppress(ConnectionError):
                    # What comes now is the end, and is not missed while the script sleeps.
                    await reader.read()
                server.gone.set()
            finally:
                telling.cancel()
                await asyncio.gather(telling, return_exceptions=True)
        finally:
            writer.transport.abort()

    talks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks.add(asyncio.ensure_future(talk(reader, writer)))

    listening = await asyncio.start_server(connected, "127.0.0.1")
    server = Server(listening.sockets[0].getsockname()[1])
    try:
        yield server
    finally:
        listening.close()
        for each in talks:
            each.cancel()
        await asyncio.gather(*talks, return_exceptions=True)
        # Aborted connections are closed in the next turn of the loop.
        await asyncio.sleep(0)


async def _request(reader: asyncio.StreamReader) -> Received | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
        return None
    line, *rest = head.removesuffix("\r\n\r\n").split("\r\n")
    headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in rest)}
    return Received(line, headers, await reader.readexactly(int(headers.get("content-length", "0"))))


def answers(status: int, body: bytes = b"", **headers: str) -> Script:
    """Always the same answer."""

    async def script(_: Received, writer: asyncio.StreamWriter) -> None:
        await write(writer, status, body, **headers)

    return script


async def write(writer: asyncio.StreamWriter, status: int, body: bytes = b"", **headers: str) -> None:
    """Send an answer; names of headers with ``_`` for ``-``."""
    lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)
    await writer.drain()
