"""Following a resource for somebody who watches: caches that run meanwhile, and outages told in a line each."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import structlog

from kargo_py.kube.background import background
from kargo_py.kube.cache import NOT_UPDATED, Cache
from kargo_py.messages import Shown, message

OUT_OF_SIGHT = message(
    "what happens to {resource} cannot be seen at the moment: {why}; trying again",
    do="Nothing is lost: what has changed meanwhile is shown when the API server answers again.",
    shown=Shown.COMMAND_LINE,
)
IN_SIGHT_AGAIN = message(
    "{resource} can be seen again",
    do="Nothing to do.",
    shown=Shown.COMMAND_LINE,
)

_RECOVERED = "cache is being updated again"


def tell_outages() -> None:
    """Say on standard error what the caches log of outages, and of what else is logged the warnings."""
    structlog.configure(
        processors=[structlog.processors.add_log_level, structlog.processors.format_exc_info, _line],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _line(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
    said, resource = event.get("event"), event.get("resource")
    if said == NOT_UPDATED():
        return f"kargo-py: {OUT_OF_SIGHT(resource=resource, why=event.get('error'))}"
    if said == _RECOVERED:
        return f"kargo-py: {IN_SIGHT_AGAIN(resource=resource)}"
    if event.get("level") in {"debug", "info"}:
        raise structlog.DropEvent
    details = [f"{name}={value}" for name, value in event.items() if name not in {"event", "level"}]
    return " ".join(["kargo-py:", str(said), *details])


@asynccontextmanager
async def following(*caches: Cache[Any]) -> AsyncIterator[None]:
    """Keep *caches* current; each is filled when this begins. Raises the KubeError that keeps one from being filled."""
    async with background((str(cache.resource), cache.run) for cache in caches):
        for cache in caches:
            await cache.wait_synced(fail_fast=True)
        yield


class News:
    """Wakes who waits for changes; many at once are one piece of news."""

    def __init__(self) -> None:
        self._happened = asyncio.Event()

    def of(self, cache: Cache[Any], note: Callable[[Any, Any], None]) -> None:
        """Have *note* called for each change of *cache*, then wake who waits."""

        def handler(old: Any, new: Any) -> None:
            note(old, new)
            self._happened.set()

        cache.subscribe(handler)

    async def wait(self) -> None:
        """Wait for the next piece."""
        await self._happened.wait()
        self._happened.clear()
