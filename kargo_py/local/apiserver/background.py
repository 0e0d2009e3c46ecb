"""Work that follows from a write and is done after it was answered: collecting garbage, emptying namespaces.

In the real cluster other processes do it, a moment later. Here it is queued, each thing once, and done in that order by
the event loop: at its next turn, or when *delay* says. Nothing is left when the queue is empty.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Any, TypeAlias

from kargo_py.local.apiserver.failures import Failure

Job: TypeAlias = Callable[[], None]


class Background:
    """A queue of jobs, each known by a key."""

    def __init__(self, delay: Callable[[], float] | None = None) -> None:
        """*delay* gives the seconds until the next job is begun."""
        self._delay = delay
        self._due: dict[Hashable, Job] = {}
        self._timer: asyncio.Handle | None = None
        self._closed = False
        self._watching: list[asyncio.Future[None]] = []

    def soon(self, key: Hashable, job: Job) -> None:
        """Do *job*; nothing if one with this *key* waits already."""
        if key not in self._due and not self._closed:
            self._due[key] = job
            self._schedule()

    def close(self) -> None:
        """Do nothing any more."""
        self._closed = True
        self._due.clear()
        self._tell()
        if self._timer:
            self._timer.cancel()
            self._timer = None

    async def settled(self) -> None:
        """Return when nothing waits any more."""
        if self._due:
            emptied = asyncio.get_running_loop().create_future()
            self._watching.append(emptied)
            await emptied

    def _schedule(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._delay(), self._work) if self._delay else loop.call_soon(self._work)

    def _work(self) -> None:
        self._timer = None
        if self._due:
            key = next(iter(self._due))
            job = self._due.pop(key)
            if self._due:
                self._schedule()
            try:
                job()
            except Failure as failure:  # as with the real controllers, whose writes are refused as others' are
                _log().warning("background work was refused", about=key, why=str(failure))
            finally:
                if not self._due:
                    self._tell()
        else:
            self._tell()

    def _tell(self) -> None:
        watching, self._watching = self._watching, []
        for emptied in watching:
            if not emptied.done():
                emptied.set_result(None)


def _log() -> Any:
    import structlog  # noqa: PLC0415  (only work that is refused is logged, and the import is slow)

    return structlog.get_logger(__name__)
