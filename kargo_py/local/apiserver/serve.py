"""The embedded server on a port: uvicorn's HTTP protocol on the running event loop.

Only the protocol is used, not uvicorn's server, which takes the process's signal handlers, looks ten times a second
whether it is to end, and waits for watches that never end.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any
from weakref import WeakSet

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from kargo_py.local.apiserver import asgi, kubeconfig, tls
from kargo_py.local.apiserver.access import Guard, make_token
from kargo_py.local.apiserver.asgi import ABORT, Application
from kargo_py.local.apiserver.wire import Handler
from kargo_py.messages import Shown, message

NOT_AN_ADDRESS = message(
    "{host!r} is no IP address; the API server listens on 127.0.0.1 where nothing else is said",
    do="Give an address of this machine with `--host`, or leave it out.",
    shown=Shown.COMMAND_LINE,
)
NOT_LOCAL = message(
    "{host} can be reached from other machines, and whoever has the token may do everything; if that is wanted, say "
    "--allow-remote",
    do="Leave `--host` out, or add `--allow-remote`.",
    shown=Shown.COMMAND_LINE,
)
CANNOT_LISTEN = message(
    "cannot listen on {host} port {port}: {why}",
    do="Another program has that port, or the address is not one of this machine. With `--port 0` any free port is "
    "taken.",
    shown=Shown.COMMAND_LINE,
)

ADMIN = "admin"

_GRACE_SECONDS = 1.0
"""For requests that are being answered when the server ends."""
_FAREWELL_SECONDS = 0.2
"""For connections to be closed by both sides."""
_HANDSHAKE_SECONDS = 5.0
"""For TLS to begin."""
_LOOK_SECONDS = 0.001
"""Between looks whether the last sockets are closed, which asyncio tells nobody."""
_KEEP_ALIVE_SECONDS = 90
"""Of idle connections; the real server's. A short time would cut requests that were just being sent."""
_HEAD_SECONDS = 32.0
"""For a request's head; the real server's."""
_MOST_HEAD_BYTES = 1024 * 1024 + 4096
"""The real server's: Go's default."""
_MOST_UNSENT_BYTES = 64 * 1024
"""That wait for the end of a turn of the loop."""

# In no hierarchy: to set the level of uvicorn's own logger would silence a program that runs uvicorn beside us.
_SILENT = logging.Logger("silent", logging.CRITICAL + 1)  # noqa: LOG001 - see above


class ListenError(Exception):
    """The server cannot listen there; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server is, and what a client needs."""

    url: str
    host: str
    port: int
    token: str | None = field(repr=False)
    """None: no credentials are asked for."""
    authority: bytes | None
    """The certificate of the CA, as PEM; None for plain HTTP."""

    def kubeconfig(self) -> bytes:
        """The content of a kubeconfig file."""
        return kubeconfig.render(self.url, token=self.token, authority=self.authority)


@asynccontextmanager
async def serving(
    core: Handler,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    secure: bool = True,
    token: str | None = None,
    users: Mapping[str, str] | None = None,
    credentials: tls.Credentials | None = None,
    allow_remote: bool = False,
) -> AsyncIterator[Address]:
    """Serve *core* while the context lasts; leaving it takes a second at most, whatever clients do.

    Args:
        core: who answers.
        host: an IP address of this machine, or localhost.
        port: 0 for any that is free.
        secure: TLS with a CA made for this server, and a bearer token; else plain HTTP for everybody.
        token: the bearer token of the administrator; a new one where none is given.
        users: further tokens, and whose they are. What a user may do is the same for all.
        credentials: for TLS; new ones where none are given.
        allow_remote: let *host* be one that other machines reach.

    Raises:
        ListenError: the address is none, is not local, or is taken.
    """
    listener = listen(host, port, allow_remote=allow_remote)
    bound_host, bound_port = listener.getsockname()[:2]
    try:
        token = (token or make_token()) if secure else None
        application = Application(core, guard=Guard({**(users or {}), token: ADMIN}) if token is not None else None)
        if credentials is None and secure:
            credentials = await asyncio.to_thread(tls.issue, _names(bound_host))
        context = await asyncio.to_thread(tls.server_context, credentials) if credentials is not None else None
        state = _State()
        config = _config(application)
        server = await asyncio.get_running_loop().create_server(
            partial(_Protocol, config, state, {}),
            sock=listener,
            ssl=context,
            ssl_handshake_timeout=_HANDSHAKE_SECONDS if context is not None else None,
            ssl_shutdown_timeout=_FAREWELL_SECONDS if context is not None else None,
        )
    except BaseException:
        listener.close()
        raise
    reachable = _reachable(bound_host)
    url = f"{'https' if secure else 'http'}://{_in_url(reachable)}:{bound_port}"
    try:
        yield Address(url, reachable, bound_port, token, credentials.authority if credentials is not None else None)
    finally:
        server.close()
        application.stop()
        await state.end()
        await listener.end()


class Listener(socket.socket):
    """Knows the connections it accepted: while TLS begins on one, nobody else does."""

    def __init__(self, family: int) -> None:
        # With the protocol named, asyncio sets TCP_NODELAY; without that, answers wait 40 ms for the client's ACK.
        super().__init__(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._accepted: WeakSet[socket.socket] = WeakSet()

    def accept(self) -> tuple[socket.socket, Any]:
        accepted = super().accept()
        self._accepted.add(accepted[0])
        return accepted

    async def end(self) -> None:
        """End the connections that are left."""
        for accepted in self._open():
            with suppress(OSError):
                accepted.shutdown(socket.SHUT_RDWR)
        deadline = asyncio.get_running_loop().time() + _FAREWELL_SECONDS
        while self._open() and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(_LOOK_SECONDS)

    def _open(self) -> list[socket.socket]:
        return [accepted for accepted in self._accepted if accepted.fileno() >= 0]


def check_address(host: str, *, allow_remote: bool) -> IPv4Address | IPv6Address:
    """The address; raises ListenError for one that may not be listened on."""
    try:
        address = ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise ListenError(NOT_AN_ADDRESS(host=host)) from None
    if not (address.is_loopback or allow_remote):
        raise ListenError(NOT_LOCAL(host=host))
    return address


def listen(host: str, port: int, *, allow_remote: bool = False) -> Listener:
    """A listening socket; raises ListenError."""
    address = check_address(host, allow_remote=allow_remote)
    listener = Listener(socket.AF_INET if address.version == 4 else socket.AF_INET6)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((str(address), port))
        listener.listen(2048)
    except (OSError, OverflowError) as error:
        listener.close()
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ListenError(CANNOT_LISTEN(host=host, port=port, why=why)) from error
    listener.setblocking(False)
    return listener


def _config(application: Application) -> Config:
    config = Config(
        application,
        loop="none",
        http=_Protocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
    )
    config.load()
    return config


def _names(host: str) -> list[str]:
    """What clients may call the server in TLS."""
    return [*dict.fromkeys([*tls.LOCAL_NAMES, socket.gethostname(), host])]


def _reachable(host: str) -> str:
    """The address that a client here connects to."""
    address = ip_address(host)
    if not address.is_unspecified:
        return host
    return "127.0.0.1" if address.version == 4 else "::1"


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class _State(ServerState):
    """What the connections share."""

    def __init__(self) -> None:
        super().__init__()
        self.emptied = asyncio.Event()

    async def end(self) -> None:
        """End all connections: after the answers that are being given, if these do not take too long."""
        for connection in [*self.connections]:
            connection.shutdown()
        if self.tasks:
            await asyncio.wait([*self.tasks], timeout=_GRACE_SECONDS)
        if not self.tasks:
            await self._emptied(_FAREWELL_SECONDS)
        for connection in [*self.connections]:
            connection.transport.abort()
        await self._emptied(_FAREWELL_SECONDS)
        # Not before the connections are gone: uvicorn would answer for a task that is cancelled.
        for task in (late := [*self.tasks]):
            task.cancel()
        if late:
            await asyncio.wait(late)

    async def _emptied(self, seconds: float) -> None:
        self.emptied.clear()
        if self.connections:
            try:
                async with asyncio.timeout(seconds):
                    await self.emptied.wait()
            except TimeoutError:
                return


class _Joining(asyncio.Transport):
    """Sends what is written in one turn of the loop at once: head and body of an answer are one system call."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._unsent: list[bytes] = []
        self._size = 0
        for name in (
            "get_extra_info",
            "is_closing",
            "pause_reading",
            "resume_reading",
            "can_write_eof",
            "set_protocol",
        ):
            setattr(self, name, getattr(transport, name))

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._unsent:
            self._loop.call_soon(self._send)
        self._unsent.append(bytes(data))
        self._size += len(data)
        if self._size > _MOST_UNSENT_BYTES:
            self._send()

    def write_eof(self) -> None:
        self._send()
        self._transport.write_eof()

    def close(self) -> None:
        self._send()
        self._transport.close()

    def abort(self) -> None:
        self._send()  # what was written before a played break is to arrive
        self._transport.abort()

    def _send(self) -> None:
        if self._unsent:
            data = b"".join(self._unsent)
            self._unsent.clear()
            self._size = 0
            self._transport.write(data)


class _Protocol(HttpToolsProtocol):
    """uvicorn's, with the bounds of the real server, its answer to what is no HTTP, and a way to cut the connection."""

    server_state: _State

    def __init__(self, config: Config, server_state: _State, app_state: dict[str, Any]) -> None:
        super().__init__(config, server_state, app_state)
        self.logger = _SILENT
        self.access_log = False
        self._unread_head = 0
        self._refused = False
        self._head_is_read = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(_Joining(transport, self.loop))
        self._timer = self.loop.call_later(_HEAD_SECONDS, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)
        if not self.server_state.connections:
            self.server_state.emptied.set()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._unread_head += len(data)
        super().data_received(data)
        if self._unread_head > _MOST_HEAD_BYTES and not self._refused:
            self._say_no("431 Request Header Fields Too Large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_is_read = False
        self.scope["extensions"] = {ABORT: self.transport.abort}  # type: ignore[dict-item]

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._head_is_read:  # else it stands after the body, where it is nobody's credentials
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._head_is_read = True
        self._stop_timer()
        self._unread_head = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unread_head = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unread_head = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._say_no("400 Bad Request")

    def _say_no(self, status: str) -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
        self.transport.write(f"{head}{status}".encode())
        self._refused = True
        self._stop_timer()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._timer = self.loop.call_later(asgi.LINGER_SECONDS, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
