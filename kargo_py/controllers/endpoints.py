"""What an instance serves over HTTP: ``/metrics`` for Prometheus, ``/healthz`` and ``/readyz`` for probes.

It is served by the event loop that the controllers run in, on purpose: one that hangs answers no probe.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeAlias

import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.aiohttp import make_aiohttp_handler

from kargo_py.messages import Shown, message

ADDRESS_TAKEN = message(
    "cannot serve {what} at {address!r}: {why}; choose another address",
    do="Another program has that port, or the address is not one of this machine. Give another "
    "`--metrics-bind-address` or `--health-bind-address`.",
    shown=Shown.COMMAND_LINE,
)
ADDRESS_MALFORMED = message(
    "cannot serve {what} at {address!r}: write HOST:PORT or :PORT, for example :9090",
    do="Correct `--metrics-bind-address` or `--health-bind-address`; `0` serves nothing.",
    shown=Shown.COMMAND_LINE,
)

METRICS = "/metrics"
HEALTHZ = "/healthz"
READYZ = "/readyz"

_SHUTDOWN = 0.5
"""Seconds that a request in progress gets to end; nobody waits for answers of a program that stops."""

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
Check: TypeAlias = Callable[[], tuple[bool, str]]

_log = structlog.get_logger(__name__)


class BindError(Exception):
    """An address cannot be used; the text says why."""


def metrics_handler(metrics: CollectorRegistry) -> Handler:
    """Answers a scrape."""
    serve = make_aiohttp_handler(metrics)

    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            return await serve(request)
        except Exception:  # noqa: BLE001 - what the library makes of an Accept header that it cannot parse
            plain = request.clone(headers={}, rel_url=request.rel_url.with_query(None))
            return await serve(plain)

    return handle


def check_handler(check: Check) -> Handler:
    """Answers a probe: 200 or 503, and the parts in words."""

    async def handle(_request: web.Request) -> web.StreamResponse:
        well, text = check()
        return web.Response(status=200 if well else 503, text=text, headers={"Cache-Control": "no-store"})

    return handle


@asynccontextmanager
async def serving_all(wanted: Mapping[str, tuple[str, Handler]]) -> AsyncIterator[Mapping[str, str]]:
    """Serve each path of *wanted* at its address; those of one address share a port, and "" is nowhere.

    Gives the addresses in use by path. Raises BindError.
    """
    by_address: dict[str, dict[str, Handler]] = {}
    for path, (address, handler) in wanted.items():
        if address:
            by_address.setdefault(address, {})[path] = handler
    async with AsyncExitStack() as stack:
        used = {}
        for address, handlers in by_address.items():
            taken = await stack.enter_async_context(serving(address, handlers))
            used.update(dict.fromkeys(handlers, taken))
        yield used


@asynccontextmanager
async def serving(address: str, handlers: Mapping[str, Handler]) -> AsyncIterator[str]:
    """Serve *handlers* by path at *address* (``HOST:PORT`` or ``:PORT``; port 0: any free one).

    Gives the address in use. Raises BindError.
    """
    what = ", ".join(handlers)
    host, port = _split(address, what)
    app = web.Application()
    for path, handler in handlers.items():
        app.router.add_get(path, handler)
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=_SHUTDOWN)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host or None, port)
        try:
            await site.start()
        except (OSError, ValueError) as error:  # the latter, UnicodeError among them, for a host that can be none
            why = (error.strerror if isinstance(error, OSError) else None) or error
            raise BindError(ADDRESS_TAKEN(what=what, address=address, why=why)) from error
        shown, number = runner.addresses[0][:2]
        _log.info("serving", paths=sorted(handlers), address=f"{shown}:{number}")
        yield f"{shown}:{number}"
    finally:
        await runner.cleanup()


def _split(address: str, what: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise BindError(ADDRESS_MALFORMED(what=what, address=address))
    return host.strip("[]"), int(port)
