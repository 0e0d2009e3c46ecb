"""How the step ``http`` connects: only to addresses that were checked, whatever their name is said to stand for next.

A name is resolved once for a connection, every address is checked, and the connection is made to one of those: so no
second answer of a name server can lead elsewhere. TLS still checks the name, and so does the header ``Host``.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import httpcore
import httpx

from kargo_py.messages import Shown, message
from kargo_py.steps.http_addresses import Address, AddressRules
from kargo_py.steps.http_asking import Tls
from kargo_py.steps.http_url import ProxyUrl
from kargo_py.steps.step import Work
from kargo_py.steps.work import in_thread_for

NO_ADDRESS = message(
    "its name stands for no address",
    do="Part of *no connection*. See whether the host is right, and what the name server says of it.",
    shown=Shown.PROMOTION,
)

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[Address]]]
"""The addresses of a host, as the operating system knows them. Raises OSError."""

_PATIENCE: Final = 3.0
"""Seconds that an address gets as long as there is another one to try."""
_MOST_ADDRESSES: Final = 8


class AddressRefused(Exception):
    """An address is not talked to; the text says which and why."""


async def resolve(host: str, port: int) -> Sequence[Address]:
    """Ask the operating system.

    Not by the loop's own few threads: name servers that do not answer would keep these from all others.
    """
    found = await in_thread_for(Work.NETWORK, socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(ipaddress.ip_address(place[0]) for *_, place in found))


def context_of(tls: Tls) -> ssl.SSLContext:
    """A context for clients; making one reads files. Raises OSError for authorities that are none."""
    if tls.authorities is not None:
        context = ssl.create_default_context(cadata=tls.authorities)
    elif _system_has_authorities():
        context = ssl.create_default_context()
    else:
        context = httpx.create_ssl_context(trust_env=False)
    if tls.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _system_has_authorities() -> bool:
    """Whether there are any where OpenSSL looks, or where the environment says; slim images often have none."""
    paths = ssl.get_default_verify_paths()
    return paths.cafile is not None or (paths.capath is not None and any(Path(paths.capath).iterdir()))


class CheckedNetwork(httpcore.AsyncNetworkBackend):
    """Connects to addresses that :class:`AddressRules` do not refuse. Raises AddressRefused."""

    def __init__(self, rules: AddressRules, resolve: Resolve = resolve) -> None:
        self._rules = rules
        self._resolve = resolve
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - of httpcore; ours is around all
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first address of *host* that answers."""
        *others, last = await self.addresses(host, port)
        for address in others:
            try:
                async with asyncio.timeout(_PATIENCE):
                    return await self._inner.connect_tcp(str(address), port)
            except (httpcore.ConnectError, httpcore.ConnectTimeout, TimeoutError):
                continue
        return await self._inner.connect_tcp(str(last), port)

    async def addresses(self, host: str, port: int) -> Sequence[Address]:
        """The addresses of *host*, at least one, all of them checked. Raises AddressRefused and ConnectError."""
        if (why := self._rules.name_refusal(host)) is not None:
            raise AddressRefused(why)
        try:
            found = await self._resolve(host, port)
        except OSError as error:
            raise httpcore.ConnectError(error.strerror or str(error)) from error
        for address in found:
            if (why := self._rules.refusal(address)) is not None:
                raise AddressRefused(why)
        if not found:
            raise httpcore.ConnectError(NO_ADDRESS())
        return found[:_MOST_ADDRESSES]

    async def sleep(self, seconds: float) -> None:
        """For the pauses of httpcore."""
        await asyncio.sleep(seconds)


class _Remembering(httpcore.AsyncNetworkBackend):
    """Connects by *network*, and closes what httpcore does not: it forgets what is cancelled amid a TLS handshake."""

    def __init__(self, network: CheckedNetwork) -> None:
        self._network = network
        self._streams: list[httpcore.AsyncNetworkStream] = []

    async def connect_tcp(self, host: str, port: int, *args: Any, **options: Any) -> httpcore.AsyncNetworkStream:
        stream = await self._network.connect_tcp(host, port, *args, **options)
        self._streams.append(stream)
        return stream

    async def sleep(self, seconds: float) -> None:
        await self._network.sleep(seconds)

    async def aclose(self) -> None:
        """Close all connections; those that are closed stay so."""
        for stream in self._streams:
            await stream.aclose()


@dataclass(frozen=True, slots=True)
class Way:
    """How to get to a server; ``tls`` is there for those that speak it."""

    tls: ssl.SSLContext | None
    proxy: ProxyUrl | None = None
    proxy_tls: ssl.SSLContext | None = None


class CheckedTransport(httpx.AsyncBaseTransport):
    """One connection for one request."""

    def __init__(self, way: Way, network: CheckedNetwork) -> None:
        self._network = _Remembering(network)
        proxy = None
        if way.proxy is not None:
            user = (way.proxy.user, way.proxy.password)
            proxy = httpcore.Proxy(
                way.proxy.url.origin,
                auth=user if any(user) else None,
                ssl_context=way.proxy_tls,
            )
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=way.tls,
            proxy=proxy,
            max_connections=1,
            max_keepalive_connections=0,
            network_backend=self._network,
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send *request*; the body of the answer is still to be read."""
        url = request.url
        answer = await self._pool.handle_async_request(
            httpcore.Request(
                request.method,
                httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        return httpx.Response(answer.status, headers=answer.headers, stream=_Body(answer))

    async def aclose(self) -> None:
        """Close the connection."""
        try:
            await self._pool.aclose()
        finally:
            await self._network.aclose()


@dataclass(slots=True)
class _Body(httpx.AsyncByteStream):
    answer: httpcore.Response = field(repr=False)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self.answer.aiter_stream():
            yield part

    async def aclose(self) -> None:
        await self.answer.aclose()
