"""A scripted HTTP peer on 127.0.0.1: what an API server may do to a client, one behaviour a request."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from kargo_py.kube._kubernetes_asyncio import load
from kargo_py.kube.errors import ConfigError
from kargo_py.kube.kubeconfig import Access
from kargo_py.kube.rest import RestClient, Settings
from kargo_py.kube.transport import open_transport

JsonObject = dict[str, Any]
Behaviour = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Received:
    """One request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass
class Peer:
    """Plays ``script`` in order, then answers 500; keeps what it received."""

    script: list[Behaviour] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    connections: list[int] = field(default_factory=list)
    """The port of the client at each request."""
    url: str = ""
    hold: asyncio.Event = field(default_factory=asyncio.Event)
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        assert request.transport is not None
        self.connections.append(request.transport.get_extra_info("peername")[1])
        self.received.append(Received(request.method, request.path, dict(request.query), dict(request.headers), body))
        async with self.arrived:
            self.arrived.notify_all()
        if not self.script:
            return web.Response(status=500, text="the script has ended")
        return await self.script.pop(0)(request)

    async def until(self, count: int) -> None:
        """Wait until *count* requests have arrived."""
        async with self.arrived:
            await self.arrived.wait_for(lambda: len(self.received) >= count)

    def plays(self, *behaviours: Behaviour) -> None:
        self.script += behaviours

    # -- behaviours ----------------------------------------------------------------------------------------------

    @staticmethod
    def answers(body: object, code: int = 200, **headers: str) -> Behaviour:
        """A JSON answer."""

        async def behave(_request: web.Request) -> web.StreamResponse:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return web.json_response(body, status=code, headers=named)

        return behave

    @classmethod
    def refuses(cls, code: int, reason: str = "", message: str = "no", **headers: str) -> Behaviour:
        """A Status."""
        status = {"kind": "Status", "code": code, "reason": reason, "message": message}
        return cls.answers(status, code, **headers)

    @staticmethod
    def text(body: str, code: int) -> Behaviour:
        """What a proxy in between may say."""

        async def behave(_request: web.Request) -> web.StreamResponse:
            return web.Response(status=code, text=body)

        return behave

    @staticmethod
    def resets(after: bytes = b"") -> Behaviour:
        """The connection breaks, perhaps in the middle of the body."""

        async def behave(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            if after:
                await response.prepare(request)
                await response.write(after)
            assert request.transport is not None
            request.transport.abort()
            return response

        return behave

    def freezes(self, after: bytes = b"") -> Behaviour:
        """Nothing more comes, until the peer is stopped."""

        async def behave(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            if after:
                await response.prepare(request)
                await response.write(after)
            await self.hold.wait()
            return response

        return behave

    @staticmethod
    def streams(*chunks: bytes) -> Behaviour:
        """Chunks as they are, then the end."""

        async def behave(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            for chunk in chunks:
                await response.write(chunk)
            return response

        return behave


@asynccontextmanager
async def serving(tls: ssl.SSLContext | None = None) -> AsyncIterator[Peer]:
    """A peer on a free port."""
    peer = Peer()
    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{rest:.*}", peer.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    host, port = runner.addresses[0][:2]
    peer.url = f"{'https' if tls else 'http'}://{host}:{port}"
    try:
        yield peer
    finally:
        peer.hold.set()
        await runner.cleanup()


@dataclass
class Credentials:
    """A source of access to *server*; each load takes the next token, the last one again and again."""

    server: str
    tokens: list[str] = field(default_factory=lambda: ["secret"])
    renew_after: float | None = None
    failure: ConfigError | None = None
    loads: int = 0
    name: str = "kubeconfig /test"
    attributes: dict[str, Any] = field(default_factory=dict)

    async def load(self) -> Access:
        self.loads += 1
        if self.failure is not None:
            raise self.failure
        token = self.tokens.pop(0) if len(self.tokens) > 1 else self.tokens[0]
        configuration = load().Configuration()
        configuration.host = self.server
        for name, value in self.attributes.items():
            setattr(configuration, name, value)
        return Access(configuration, [("Authorization", f"Bearer {token}")], self.renew_after, 'user "tester"')


@asynccontextmanager
async def client_of(peer: Peer, credentials: Credentials | None = None, **settings: Any) -> AsyncIterator[RestClient]:
    """A client for *peer*; *settings* are those of Settings."""
    chosen = Settings(**settings)
    transport = await open_transport(credentials or Credentials(peer.url), pause=chosen.renewal_pause)
    async with RestClient(transport, chosen) as client:
        yield client


def line(type_: str, obj: JsonObject) -> bytes:
    """A watch line."""
    return json.dumps({"type": type_, "object": obj}).encode() + b"\n"
