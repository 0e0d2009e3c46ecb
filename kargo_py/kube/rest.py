"""The client over HTTP: aiohttp, with the credentials and TLS that kubernetes-asyncio set up.

Its own request path is not used: it serialises bodies itself, buffers watches line by line and parses three times. What
is added here: bytes in and out, typed errors, a time-out on everything (kubernetes-asyncio has none: a frozen server
would hang a watch for ever), one cap on the writes in flight, and 429 honoured by every request to the server at once.

Answers are asked for uncompressed: API servers compress lists above 128 KiB on request, which costs both sides more CPU
than it saves on the links a controller has to its API server.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlencode

import aiohttp

from kargo_py.kube.client import Codec, Page, PatchType, WatchEvent
from kargo_py.kube.codec import decode, encode
from kargo_py.kube.errors import (
    ConnectionLost,
    DecodeError,
    KubeError,
    OutcomeUnknown,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    error_from_status,
)
from kargo_py.kube.resources import Key, Resource

T = TypeVar("T")

_JSON = "application/json"
_WRITES = frozenset({"create", "replace", "patch", "delete"})
_METHODS = {"get": "GET", "list": "GET", "watch": "GET", "create": "POST", "replace": "PUT", "patch": "PATCH"}


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits of one client; times are in seconds.

    ``max_waits`` is how often a request that was answered 429 is sent again before TooManyRequests is raised.
    """

    connect_timeout: float = 5.0
    request_timeout: float = 30.0
    watch_margin: float = 10.0
    max_writes_in_flight: int = 32
    max_waits: int = 10
    longest_wait: float = 60.0
    renew_every: float = 60.0


@dataclass(slots=True)
class Stats:
    """What was sent: ``requests`` by "verb resource", 429s and requests that ended in an error by its class name."""

    requests: Counter[str] = field(default_factory=Counter)
    throttled: int = 0
    failed: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class _Request:
    verb: str
    resource: Resource
    path: str
    name: str = ""
    body: bytes | None = None
    content_type: str = _JSON
    params: Mapping[str, str] = field(default_factory=dict)
    subresource: str = ""

    @property
    def is_write(self) -> bool:
        return self.verb in _WRITES

    def __str__(self) -> str:
        sub = f"/{self.subresource}" if self.subresource else ""
        name = f' "{self.name}"' if self.name else ""
        return f"{self.verb} {self.resource}{sub}{name}"


class RestClient:
    """A :class:`~kargo_py.kube.client.Client` for one API server; made by :func:`kargo_py.kube.connection.connect`.

    Close it, or use it as an async context manager.
    """

    def __init__(
        self,
        configuration: Any,
        rest: Any,
        *,
        renew: Callable[[], Awaitable[None]] | None,
        settings: Settings,
        source: str = "",
    ) -> None:
        self._configuration = configuration
        self._rest = rest
        self._session: aiohttp.ClientSession = rest.pool_manager
        self._renew = renew
        self._renewed = time.monotonic()
        self._renewing = asyncio.Lock()
        self._settings = settings
        self._writes = asyncio.Semaphore(settings.max_writes_in_flight)
        self._open_at = 0.0
        self._timeout = aiohttp.ClientTimeout(
            total=settings.request_timeout, sock_connect=settings.connect_timeout, sock_read=settings.request_timeout
        )
        self.source = source
        self.stats = Stats()

    @property
    def host(self) -> str:
        """The server's URL."""
        return str(self._configuration.host)

    async def close(self) -> None:
        """Close all connections."""
        await self._rest.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- the verbs -----------------------------------------------------------------------------------------------

    async def get(self, resource: Resource, key: Key, *, codec: Codec[T]) -> T:
        """Read one object from the newest state."""
        request = _Request("get", resource, resource.path(key.namespace, key.name), str(key))
        return self._decode(request, codec.object, await self._answer(request))

    async def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        codec: Codec[T],
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        continue_token: str = "",
        resource_version: str = "",
    ) -> Page[T]:
        """Read one page of a collection."""
        params = _params(
            labelSelector=label_selector,
            fieldSelector=field_selector,
            limit=str(limit) if limit else "",
            resourceVersion=resource_version,
        )
        if continue_token:
            params["continue"] = continue_token
        request = _Request("list", resource, resource.path(namespace), namespace, params=params)
        return self._decode(request, codec.page, await self._answer(request))

    async def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        codec: Codec[T],
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: int,
    ) -> AsyncGenerator[WatchEvent[T]]:
        """Stream changes until the server ends it; a silent server is given up just after *timeout_seconds*."""
        params = _params(
            watch="true",
            allowWatchBookmarks="true",
            resourceVersion=resource_version,
            labelSelector=label_selector,
            fieldSelector=field_selector,
            timeoutSeconds=str(timeout_seconds),
        )
        request = _Request("watch", resource, resource.path(namespace), namespace, params=params)
        timeout = aiohttp.ClientTimeout(
            total=None,
            sock_connect=self._settings.connect_timeout,
            sock_read=timeout_seconds + self._settings.watch_margin,
        )
        try:
            async with self._sent(request, timeout) as response:
                async for line in _lines(response):
                    yield self._decode(request, codec.event, line)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._transport_error(request, error) from error

    async def create(self, resource: Resource, namespace: str, body: bytes, *, codec: Codec[T]) -> T:
        """Create an object."""
        request = _Request("create", resource, resource.path(namespace), namespace, body)
        return self._decode(request, codec.object, await self._answer(request))

    async def replace(self, resource: Resource, key: Key, body: bytes, *, codec: Codec[T], subresource: str = "") -> T:
        """Put an object."""
        path = resource.path(key.namespace, key.name, subresource)
        request = _Request("replace", resource, path, str(key), body, subresource=subresource)
        return self._decode(request, codec.object, await self._answer(request))

    async def patch(
        self,
        resource: Resource,
        key: Key,
        body: bytes,
        *,
        codec: Codec[T],
        patch_type: PatchType = PatchType.MERGE,
        subresource: str = "",
        field_manager: str = "",
    ) -> T:
        """Patch an object."""
        path = resource.path(key.namespace, key.name, subresource)
        params = _params(fieldManager=field_manager, force="true" if patch_type is PatchType.APPLY else "")
        request = _Request("patch", resource, path, str(key), body, patch_type.value, params, subresource)
        return self._decode(request, codec.object, await self._answer(request))

    async def delete(self, resource: Resource, key: Key, *, uid: str = "", resource_version: str = "") -> None:
        """Delete an object."""
        preconditions = _params(uid=uid, resourceVersion=resource_version)
        body = encode({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions})
        request = _Request("delete", resource, resource.path(key.namespace, key.name), str(key), body)
        await self._answer(request)

    # -- sending -------------------------------------------------------------------------------------------------

    async def _answer(self, request: _Request) -> bytes:
        """The body of a good answer; every other outcome as the error that says what is known of it."""
        if not request.is_write:
            return await self._body(request)
        async with self._writes:
            return await self._body(request)

    async def _body(self, request: _Request) -> bytes:
        try:
            async with self._sent(request, self._timeout) as response:
                return await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._transport_error(request, error) from error

    @asynccontextmanager
    async def _sent(self, request: _Request, limits: aiohttp.ClientTimeout) -> AsyncGenerator[aiohttp.ClientResponse]:
        """Send, wait out 429, renew credentials once on 401; yields a response with a 2xx code."""
        renewed = False
        waits = 0
        while True:
            await self._gate()
            response = await self._send(request, limits)
            async with response:
                if response.status < 300:
                    yield response
                    return
                error = await self._error(request, response)
            if isinstance(error, TooManyRequests) and waits < self._settings.max_waits:
                waits += 1
                self._close_gate(error.retry_after, waits)
                continue
            if isinstance(error, Unauthorized) and not renewed and self._renew is not None:
                renewed = True
                await self._renew_credentials(force=True)
                continue
            self.stats.failed[type(error).__name__] += 1
            if request.is_write and isinstance(error, ServerError):
                raise OutcomeUnknown(
                    f"the server answered {error.code}: {error.message}", request=str(request)
                ) from error
            raise error

    async def _send(self, request: _Request, limits: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        self.stats.requests[f"{request.verb} {request.resource.plural}"] += 1
        await self._renew_credentials()
        headers = {"Accept": _JSON, "Accept-Encoding": "identity", "User-Agent": "kargo-py"}
        for auth in (await self._configuration.auth_settings()).values():
            headers[auth["key"]] = auth["value"]
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        url = self.host + request.path
        if request.params:
            url += "?" + urlencode(request.params)
        options: dict[str, Any] = {"headers": headers, "data": request.body, "timeout": limits}
        if self._rest.proxy:
            options["proxy"] = self._rest.proxy
        if self._rest.server_hostname:
            options["server_hostname"] = self._rest.server_hostname
        return await self._session.request(_METHODS.get(request.verb, "DELETE"), url, **options)

    async def _error(self, request: _Request, response: aiohttp.ClientResponse) -> KubeError:
        raw = await response.read()
        try:
            status = decode(raw)
        except DecodeError:
            status = {"message": raw[:300].decode(errors="replace")}
        error = error_from_status(status, request=str(request), code=response.status)
        if isinstance(error, TooManyRequests):
            self.stats.throttled += 1
            error.retry_after = _seconds(response.headers.get("Retry-After"))
        return error

    def _transport_error(self, request: _Request, error: Exception) -> KubeError:
        """Not sent, lost, or (for a write) unknown."""
        self.stats.failed[type(error).__name__] += 1
        why = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)):
            text = f"cannot reach the API server {self.host}: {why}; is it running, and is the kubeconfig right?"
            return Unreachable(text, request=str(request))
        if isinstance(error, TimeoutError):
            why = f"no answer in time ({why})" if str(error) else "no answer in time"
        if request.is_write:
            return OutcomeUnknown(f"the connection to {self.host} broke off: {why}", request=str(request))
        return ConnectionLost(f"the connection to {self.host} broke off: {why}", request=str(request))

    # -- 429 and credentials --------------------------------------------------------------------------------------

    async def _gate(self) -> None:
        """Wait while the server asked not to be sent anything."""
        while (wait := self._open_at - asyncio.get_running_loop().time()) > 0:  # noqa: ASYNC110 - the time may move
            await asyncio.sleep(wait)

    def _close_gate(self, retry_after: float | None, waits: int) -> None:
        wait = min(retry_after if retry_after is not None else 2.0 ** (waits - 2), self._settings.longest_wait)
        # Jitter, so that not every client of a recovering server comes back in the same instant.
        wait *= 1 + random.random() / 4  # noqa: S311
        self._open_at = max(self._open_at, asyncio.get_running_loop().time() + wait)

    async def _renew_credentials(self, *, force: bool = False) -> None:
        if self._renew is None or not (force or self._stale()):
            return
        seen = self._renewed
        async with self._renewing:
            if self._renewed == seen or (not force and self._stale()):
                await self._renew()
                self._renewed = time.monotonic()

    def _stale(self) -> bool:
        return time.monotonic() - self._renewed > self._settings.renew_every

    def _decode(self, request: _Request, parse: Callable[[bytes], T], data: bytes) -> T:
        try:
            return parse(data)
        except DecodeError as error:
            raise DecodeError(error.message, request=str(request)) from error


def _params(**given: str) -> dict[str, str]:
    return {name: value for name, value in given.items() if value}


def _seconds(header: str | None) -> float | None:
    try:
        return max(0.0, float(header)) if header is not None else None
    except ValueError:
        return None


async def _lines(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes]:
    """The lines of a stream, however long they are (an object may have 1.5 MiB and more)."""
    pending: list[bytes] = []
    async for chunk in response.content.iter_any():
        first, *more = chunk.split(b"\n")
        pending.append(first)
        for piece in more:
            if line := b"".join(pending):
                yield line
            pending = [piece]
    if line := b"".join(pending):
        yield line
