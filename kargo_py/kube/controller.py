"""The controller loop: events become keys, keys are reconciled, many at once but each by one task at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

import structlog

from kargo_py.kube.cache import Cache
from kargo_py.kube.errors import Conflict, KubeError
from kargo_py.kube.predicates import Predicate
from kargo_py.kube.queue import QueueShutDownError, WorkQueue

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

CONFLICTS_AT_ONCE = 5
"""How many conflicts in a row on one key are tried again at once, before the back-off."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Result:
    """What a reconcile wants next: ``requeue_after`` in seconds, or None to wait for an event."""

    requeue_after: float | None = None


@dataclass(slots=True)
class ControllerStats:
    """Counts since the start."""

    reconciles: int = 0
    errors: int = 0
    conflicts: int = 0


class Controller(Generic[K]):
    """Reconciles keys; made inside a running event loop.

    Args:
        name: appears in logs.
        reconcile: brings the world of one key nearer to what it should be. What it raises is logged and tried again.
        concurrency: how many keys may be worked on at once.
        grace: seconds that reconciles in progress get to end by themselves when the controller is stopped.
    """

    def __init__(
        self,
        name: str,
        reconcile: Callable[[K], Awaitable[Result | None]],
        *,
        concurrency: int = 64,
        grace: float = 20.0,
    ) -> None:
        self.name = name
        self._reconcile = reconcile
        self._slots = asyncio.Semaphore(concurrency)
        self._grace = grace
        self._caches: list[Cache[Any]] = []
        self._conflicts: dict[K, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.queue: WorkQueue[K] = WorkQueue()
        self.stats = ControllerStats()

    def watches(
        self, cache: Cache[T], predicate: Predicate[T], keys: Callable[[T | None, T | None], Iterable[K]]
    ) -> Self:
        """Enqueue the keys that *keys* names for every change of *cache* that passes *predicate*."""

        def handler(old: T | None, new: T | None) -> None:
            if predicate(old, new):
                for key in keys(old, new):
                    self.queue.add(key)

        if cache not in self._caches:
            self._caches.append(cache)
        cache.subscribe(handler)
        return self

    def enqueue(self, key: K, after: float = 0.0) -> None:
        """Reconcile *key* now, or in *after* seconds."""
        self.queue.add_after(key, after)

    async def run(self) -> None:
        """Reconcile until cancelled; begins once all watched caches are synced.

        When cancelled no further key is begun; what is in progress may end within the grace period, then it is
        cancelled, and all is awaited before the cancellation goes on.
        """
        try:
            for cache in self._caches:
                await cache.wait_synced()
            while True:
                await self._slots.acquire()
                try:
                    key = await self.queue.get()
                except (asyncio.CancelledError, QueueShutDownError):
                    self._slots.release()
                    raise
                task = asyncio.create_task(self._work(key), name=f"{self.name} {key}")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        finally:
            await self._stop()

    async def _stop(self) -> None:
        self.queue.shut_down()
        if not self._tasks:
            return
        _log.info("waiting for reconciles to end", controller=self.name, count=len(self._tasks))
        _, late = await asyncio.wait(set(self._tasks), timeout=self._grace)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

    async def _work(self, key: K) -> None:
        """Reconcile *key* once and decide when it comes up again."""
        self.stats.reconciles += 1
        with structlog.contextvars.bound_contextvars(controller=self.name, key=str(key)):
            try:
                result = await self._reconcile(key)
            except Conflict as error:
                self._conflict(key, error)
            except KubeError as error:
                self._error(key, error)
            except Exception as error:  # noqa: BLE001 - a bug on one key must not stop the others; it is logged whole
                self._error(key, error)
            else:
                self.queue.forget(key)
                self._conflicts.pop(key, None)
                if result is not None and result.requeue_after is not None:
                    self.queue.add_after(key, result.requeue_after)
            finally:
                self.queue.done(key)
                self._slots.release()

    def _conflict(self, key: K, error: Conflict) -> None:
        """Somebody else wrote first: look again at once, a few times."""
        self.stats.conflicts += 1
        count = self._conflicts[key] = self._conflicts.get(key, 0) + 1
        if count <= CONFLICTS_AT_ONCE:
            _log.debug("conflict, deciding again", error=str(error))
            self.queue.add(key)
            return
        self._conflicts.pop(key, None)
        self._error(key, error)

    def _error(self, key: K, error: Exception) -> None:
        self.stats.errors += 1
        delay = self.queue.retry(key)
        if isinstance(error, KubeError):
            _log.warning(
                "reconcile failed", error=str(error), error_type=type(error).__name__, retry_in=round(delay, 2)
            )
        else:
            _log.error("reconcile crashed", retry_in=round(delay, 2), exc_info=error)
