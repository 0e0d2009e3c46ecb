"""Time in tests: the machine's, or a simulated one that passes only while there is nothing else to do.

Simulated time is put upon the running event loop. Wherever that would wait for its next timer, the time of that timer
is there at once; so an hour passes in an instant, and everything that was to happen in it happens in order. While a
thread works for the loop (``asyncio.to_thread``), time stands still. Sockets and subprocesses do not fit into it: what
they bring arrives after any length of simulated time.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kargo_py.kube.clock import utc_now

BEGINNING: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""When simulated time begins."""


class Clock:
    """What the machine says."""

    simulated: bool = False

    def now(self) -> datetime:
        """The time of day, as it is written into objects."""
        return utc_now()

    async def advance(
        self,
        delta: timedelta | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> None:
        """Let so much time pass. Raises RuntimeError unless time is simulated."""
        if not self.simulated:
            raise RuntimeError("time cannot be moved here: mark the test with @pytest.mark.simulated_time")
        length = (delta or timedelta()) + timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        if length < timedelta():
            raise ValueError(f"time cannot be moved back, and this would be {length}")
        await asyncio.sleep(length.total_seconds())


class SimulatedClock(Clock):
    """The event loop's simulated time."""

    simulated = True

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._zero = loop.time()

    def now(self) -> datetime:
        return BEGINNING + timedelta(seconds=self._loop.time() - self._zero)


@contextmanager
def simulated_time(loop: asyncio.AbstractEventLoop) -> Iterator[SimulatedClock]:
    """Simulate time on *loop*. Raises TypeError for a loop that is not asyncio's own, uvloop for one."""
    patched: Any = loop
    inner = getattr(loop, "_selector", None)
    if not isinstance(inner, selectors.BaseSelector):
        raise TypeError(f"time cannot be simulated on a {type(loop).__name__}: use the event loop of asyncio")
    selector = _Selector(inner, loop.time(), patched.run_in_executor)
    patched._selector = selector  # noqa: SLF001 - where an event loop of asyncio waits
    patched.time = selector.time
    patched.run_in_executor = selector.run_in_executor
    try:
        yield SimulatedClock(loop)
    finally:
        patched._selector = inner  # noqa: SLF001 - as it was
        del patched.time, patched.run_in_executor


class _Selector:
    """Waits for no timer: it says that their time has come."""

    def __init__(self, inner: selectors.BaseSelector, now: float, run: Callable[..., asyncio.Future[Any]]) -> None:
        self._inner = inner
        self._now = now
        self._run = run
        self._threads: set[asyncio.Future[Any]] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def time(self) -> float:
        """The loop's time."""
        return self._now

    def run_in_executor(self, *arguments: Any) -> asyncio.Future[Any]:
        """As the loop's, but known here until it is done."""
        future = self._run(*arguments)
        self._threads.add(future)
        future.add_done_callback(self._threads.discard)
        return future

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready; where nothing is, time passes."""
        if timeout is None or (timeout > 0 and self._threads):
            return self._inner.select(None)
        ready = self._inner.select(0)
        if not ready and timeout > 0:
            self._now += timeout
        return ready
