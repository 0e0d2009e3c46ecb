"""The connections to one API server: aiohttp, TLS as kubernetes-asyncio's configuration says, and fresh credentials.

kubernetes-asyncio's own request path is not used: it serialises bodies itself, has no time-outs, and its session looks
into ``~/.netrc`` and the proxy variables for each request, in threads. What the proxy is, is decided once here; then a
request costs 0.1 ms.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import os
import socket
import ssl
import urllib.request
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import structlog
from yarl import URL

from kargo_py.kube.errors import ConfigError
from kargo_py.kube.exchange import Answer, BrokenOff, NoAnswer, NotSent, Request, TransportFailure
from kargo_py.kube.kubeconfig import Access, Source
from kargo_py.messages import Shown, message

CERTIFICATES_UNUSABLE = message(
    "the certificates for {server} cannot be loaded: {why}",
    do="Correct the certificate authority, client certificate or key in the kubeconfig: PEM, and key and certificate "
    "must belong together.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
NOT_RENEWED = message(
    "credentials not renewed",
    do="The old ones are used as long as they are accepted, and renewing is tried again by itself; `why` says what "
    "failed.",
    shown=Shown.LOG,
)

CERTIFICATE_NOT_ACCEPTED = message(
    "its certificate is not accepted: {why}",
    do="Correct `certificate-authority-data` or `server` in the kubeconfig; the certificate may have expired as well.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
TLS_FAILED = message(
    "TLS failed: {why}",
    do="Check that `server` in the kubeconfig is an address that speaks TLS, and what stands between.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
PROXY_REFUSED = message(
    "the proxy answered {code} {why}",
    do="Correct `proxy-url` in the kubeconfig, or `HTTPS_PROXY` and `NO_PROXY`.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
NO_CONNECTION_IN_TIME = message(
    "no connection in time",
    do="Check address, firewall and proxy: nothing answers there, not even with a refusal.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)

CLIENT_CLOSED = message(
    "this client has been closed",
    do="A fault of the program that embeds kargo-py: it must leave the controllers before it closes their client.",
    shown=Shown.LOG,
)

_READ_BUFFER = 2**20
_TURNS_TO_CLOSE = 100

_log = structlog.get_logger(__name__)


class _Unrepeated(Exception):
    """A request that must be sent only once got no answer; ``__cause__`` is what aiohttp raised."""


class SocketTransport:
    """Sends requests with credentials that are renewed in time; made by :func:`open_transport`.

    ``generation`` counts the renewals: whoever is answered 401 says which credentials were refused.
    """

    def __init__(self, source: Source, access: Access, line: _Line, *, pause: float) -> None:
        self._source = source
        self._access = access
        self._line = line
        self._retired: set[_Line] = set()
        self._pause = pause
        self._renewing = asyncio.Lock()
        self._due = self._next_renewal(access)
        self._refused_until = 0.0
        self.generation = 0

    @property
    def server(self) -> str:
        """The server's URL."""
        return self._line.server

    @property
    def source(self) -> str:
        """Where access comes from, as a person calls it."""
        return self._source.name

    @property
    def credentials(self) -> str:
        """What a person calls the credentials in use."""
        return f"{self._access.user} of the {self._source.name}"

    @asynccontextmanager
    async def sent(self, request: Request) -> AsyncGenerator[Answer]:
        """Send *request* and give its answer, whatever its code; raises TransportFailure."""
        line = self._line
        if line.session.closed:
            raise NotSent(CLIENT_CLOSED())
        line.users += 1
        limits = request.limits
        try:
            async with line.session.request(
                request.method,
                URL(line.server + request.path, encoded=True),
                headers=[*line.headers, *line.to_proxy, *request.headers],
                data=request.body,
                timeout=aiohttp.ClientTimeout(limits.total, limits.ready, limits.silence, limits.connect),
                allow_redirects=False,
                middlewares=(_once,) if request.once else (),
                **line.options,
            ) as response:
                try:
                    yield _Answer(response)
                finally:
                    _abandon(response)
        except (_Unrepeated, aiohttp.ClientError, TimeoutError, OSError) as error:
            cause = error.__cause__ if isinstance(error, _Unrepeated) else error
            raise _failure(cause) from cause
        finally:
            line.users -= 1
            await self._close_unused(line)

    async def renew_if_due(self) -> None:
        """Renew credentials that are about to expire; keeps the old ones, and says so in the log, if that fails."""
        if asyncio.get_running_loop().time() < self._due or self._renewing.locked():
            return
        async with self._renewing:
            try:
                await self._renew(refused=False)
            except ConfigError as error:
                self._due = asyncio.get_running_loop().time() + self._pause
                _log.warning(NOT_RENEWED(), why=str(error))

    async def renew_refused(self, generation: int) -> bool:
        """Renew credentials that the server refused; False if there can be no better ones just now.

        Raises ConfigError if they cannot be renewed.
        """
        async with self._renewing:
            now = asyncio.get_running_loop().time()
            if generation != self.generation:
                return True
            if now < self._refused_until:
                return False
            self._refused_until = now + self._pause
            await self._renew(refused=True)
            return True

    async def close(self) -> None:
        """Close all connections."""
        for line in [self._line, *self._retired]:
            await line.close()

    async def _renew(self, *, refused: bool) -> None:
        access = await self._source.load()
        options = await asyncio.to_thread(_options, access)
        old = self._line
        # A refused client certificate may have been renewed in its place, under the same name.
        if old.serves(access, options) and not (refused and access.configuration.cert_file):
            old.headers = access.headers
        else:
            self._line = _Line(access, options)
            self._retired.add(old)
            await self._close_unused(old)
        self._access = access
        self._due = self._next_renewal(access)
        self.generation += 1

    async def _close_unused(self, line: _Line) -> None:
        if line in self._retired and not line.users:
            self._retired.remove(line)
            await line.close()

    def _next_renewal(self, access: Access) -> float:
        after = float("inf") if access.renew_after is None else access.renew_after
        return asyncio.get_running_loop().time() + after


class _Answer:
    """An answer over a socket."""

    __slots__ = ("_response", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers

    async def read(self) -> bytes:
        return await self._response.read()

    def chunks(self) -> AsyncIterator[bytes]:
        return self._response.content.iter_any()


def _abandon(response: aiohttp.ClientResponse) -> None:
    """Cut the connection of an answer that was not read to its end (a watch that is left).

    Closing it would wait for the server's part of the TLS farewell, perhaps longer than this event loop runs.
    """
    connection = response.connection
    if connection is not None and connection.transport is not None and not response.content.at_eof():
        connection.transport.abort()


def _failure(error: BaseException | None) -> TransportFailure:
    if isinstance(error, _NEVER_SENT):
        return NotSent(_why_not_connected(error))
    if isinstance(error, TimeoutError):
        return NoAnswer()
    return BrokenOff(_one_line(error))


# TLS and DNS failures are connector errors too.
_NEVER_SENT = (
    aiohttp.ClientConnectorError,
    aiohttp.ClientHttpProxyError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.InvalidURL,
)


def _why_not_connected(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        verification = getattr(error.certificate_error, "verify_message", "") or _one_line(error.certificate_error)
        return CERTIFICATE_NOT_ACCEPTED(why=verification.rstrip("."))
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return TLS_FAILED(why=_one_line(error.os_error))
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return PROXY_REFUSED(code=error.status, why=error.message)
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return NO_CONNECTION_IN_TIME()
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        return os.strerror(number) if number and number > 0 else _one_line(error.os_error)
    return _one_line(error)


def _one_line(error: BaseException | None) -> str:
    return " ".join(str(error).split()) or type(error).__name__


async def open_transport(source: Source, *, pause: float) -> SocketTransport:
    """Load access from *source*; nothing is sent yet.

    Refused credentials are renewed at most every *pause* seconds. Raises ConfigError.
    """
    access = await source.load()
    options = await asyncio.to_thread(_options, access)
    return SocketTransport(source, access, _Line(access, options), pause=pause)


class _Line:
    """One session, with its own TLS context; a retired one lives until its last answer is read."""

    def __init__(self, access: Access, options: dict[str, Any]) -> None:
        configuration = access.configuration
        self._material = _material(configuration)
        self.server = str(configuration.host)
        self.headers = access.headers
        self.options = options
        # Without TLS there is no tunnel to open: the proxy reads the request itself.
        self.to_proxy = list(options.get("proxy_headers", {}).items()) if self.server.startswith("http:") else []
        self.users = 0
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        try:
            connector = aiohttp.TCPConnector(
                limit=configuration.connection_pool_maxsize, ssl=_tls(configuration), socket_factory=self._socket
            )
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(CERTIFICATES_UNUSABLE(server=self.server, why=error)) from error
        self.session = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), read_bufsize=_READ_BUFFER
        )

    def _socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        made = socket.socket(*address[:3])
        self._sockets.add(made)
        return made

    async def close(self) -> None:
        """Close all connections, also those that aiohttp closed and forgot.

        It waits for the server's part of the TLS farewell on each: perhaps for longer than this event loop runs.
        """
        await self.session.close()
        for _ in range(_TURNS_TO_CLOSE):
            left = [each for each in self._sockets if each.fileno() != -1]
            if not left:
                break
            for each in left:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            # Its transport reads the end of the stream, and closes, in the next turns of the loop.
            await asyncio.sleep(0)

    def serves(self, access: Access, options: dict[str, Any]) -> bool:
        """True if *access* is the same but for its headers."""
        return self._material == _material(access.configuration) and self.options == options


def _tls(configuration: Any) -> ssl.SSLContext:
    """TLS as kubernetes-asyncio sets it up; its own connector cannot be told to keep account of its sockets."""
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _material(configuration: Any) -> tuple[Any, ...]:
    names = ("host", "ssl_ca_cert", "cert_file", "key_file", "verify_ssl")
    return tuple(getattr(configuration, name) for name in names)


async def _once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Hide from aiohttp what it would answer by sending a PUT or DELETE again."""
    try:
        return await handler(request)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise _Unrepeated from error


def _options(access: Access) -> dict[str, Any]:
    """The options of aiohttp that are the same for each request."""
    configuration = access.configuration
    options: dict[str, Any] = {}
    if configuration.tls_server_name:
        options["server_hostname"] = configuration.tls_server_name
    if proxy := configuration.proxy or environment_proxy(str(configuration.host)):
        address = URL(proxy)
        options["proxy"] = address.with_user(None)
        if address.user:
            login = base64.b64encode(f"{address.user}:{address.password or ''}".encode()).decode()
            options["proxy_headers"] = {"Proxy-Authorization": f"Basic {login}"}
    return options


def environment_proxy(server: str) -> str:
    """The proxy that the environment (``HTTPS_PROXY``, ``NO_PROXY``, …) wants for *server*; "" for none.

    Unlike Python's own rule, and like that of kubectl, ``NO_PROXY`` may hold CIDRs: in a cluster it often does.
    """
    parts = urlsplit(server)
    host = parts.hostname or ""
    proxies = urllib.request.getproxies()
    proxy = proxies.get(parts.scheme, "")
    if not proxy or urllib.request.proxy_bypass(host) or _in_networks(host, proxies.get("no", "")):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _in_networks(host: str, excepted: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    for item in excepted.split(","):
        try:
            if "/" in item and address in ipaddress.ip_network(item.strip(), strict=False):
                return True
        except ValueError:
            continue
    return False
