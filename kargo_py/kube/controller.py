"""The controller loop: events become keys, keys are reconciled, many at once but each by one task at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

import structlog
from tenacity import wait_random
from tenacity.wait import wait_base

from kargo_py.kube.backoff import pause_before
from kargo_py.kube.cache import Cache
from kargo_py.kube.errors import Conflict, KubeError
from kargo_py.kube.histogram import Histogram
from kargo_py.kube.predicates import Predicate
from kargo_py.kube.queue import DEFAULT_BACK_OFF, WorkQueue
from kargo_py.kube.store import Change
from kargo_py.messages import Shown, message

CANCELLED = message(
    "reconciles cancelled",
    do="At the end: what was in progress took longer than 20 seconds. The next process goes on from what is on record.",
    shown=Shown.LOG,
)
PREDICATE_FAILED = message(
    "predicate failed, taken as passed",
    do="A fault of kargo-py, on an object of a form that nobody foresaw: please report it with its traceback. The "
    "object is looked at all the same.",
    shown=Shown.LOG,
)
MAPPING_FAILED = message(
    "mapping failed, trying the new object alone",
    do="As above. What the former state of the object belonged to is not woken by it.",
    shown=Shown.LOG,
)
FAILED = message(
    "reconcile failed",
    do="A request failed, `error` says which. It is tried again by itself after `retry_in` seconds, about a minute "
    "at most; a missing right is named in it.",
    shown=Shown.LOG,
)
CRASHED = message(
    "reconcile crashed",
    do="A fault of kargo-py: please report it with its traceback. It is tried again by itself, and other objects are "
    "not affected.",
    shown=Shown.LOG,
)

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

CONFLICTS_AT_ONCE = 5
"""How many conflicts in a row on one key are tried again at once, before the back-off."""

_AT_ONCE = wait_random(0, 0.05)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Result:
    """What a reconcile wants next: ``requeue_after`` in seconds, or None to wait for an event.

    ``error``: it failed, and is repeated as after any failure, but not later than ``requeue_after``.
    """

    requeue_after: float | None = None
    error: Exception | None = None


@dataclass(slots=True)
class ControllerStats:
    """Counts since the start; ``conflicts`` are not counted as ``errors`` unless there were too many in a row.

    ``seconds``: how long reconciles took, the failed ones included.
    """

    reconciles: int = 0
    errors: int = 0
    conflicts: int = 0
    seconds: Histogram = field(default_factory=Histogram)


class Controller(Generic[K]):
    """Reconciles keys; can be run once.

    Args:
        name: appears in logs.
        reconcile: brings the world of one key nearer to what it should be. What it raises is logged and tried again.
        concurrency: how many keys may be worked on at once.
        grace: seconds that reconciles in progress get to end by themselves when the controller is stopped.
        back_off: how long a key that failed waits.
    """

    def __init__(
        self,
        name: str,
        reconcile: Callable[[K], Awaitable[Result | None]],
        *,
        concurrency: int = 64,
        grace: float = 20.0,
        back_off: wait_base = DEFAULT_BACK_OFF,
    ) -> None:
        self.name = name
        self._reconcile = reconcile
        self._slots = asyncio.Semaphore(concurrency)
        self._grace = grace
        self._caches: list[Cache[Any]] = []
        self._conflicts: dict[K, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._began: dict[K, float] = {}
        self._open_since: float | None = None
        self.queue: WorkQueue[K] = WorkQueue(back_off=back_off)
        self.stats = ControllerStats()

    def watches(
        self,
        cache: Cache[T],
        predicate: Predicate[T],
        keys: Callable[[T | None, T | None], Iterable[K]],
        *,
        needed: bool = True,
    ) -> Self:
        """Enqueue the keys that *keys* names for every change of *cache* that passes *predicate*.

        A cache that is *needed* must be synced before any key is worked on.

        A leap (see :class:`~kargo_py.kube.store.Change`) passes every predicate: "only we write this" is true of no
        server that was restored from a backup. So *keys* must cope with any (old, new).
        """

        def listener(change: Change[T]) -> None:
            if change.leap or self._passes(predicate, change):
                for key in self._named(keys, change):
                    self.queue.add(key)

        if needed and cache not in self._caches:
            self._caches.append(cache)
        cache.listen(listener)
        return self

    def _passes(self, predicate: Predicate[T], change: Change[T]) -> bool:
        """One that cannot cope with an object's content must not hide what comes after it."""
        try:
            return predicate(change.old, change.new)
        except Exception:  # noqa: BLE001 - logged whole
            _log.exception(PREDICATE_FAILED(), controller=self.name, key=str(change.key))
            return True

    def _named(self, keys: Callable[[T | None, T | None], Iterable[K]], change: Change[T]) -> Sequence[K]:
        """The keys for *change*; for the new object alone if there is something about the old one."""
        try:
            return list(keys(change.old, change.new))
        except Exception:
            if change.old is None or change.new is None:
                raise
            _log.exception(MAPPING_FAILED(), controller=self.name, key=str(change.key))
            return list(keys(None, change.new))

    @property
    def is_open(self) -> bool:
        """True from when the caches are synced, which is when keys begin to be worked on."""
        return self._open_since is not None

    @property
    def stalled(self) -> float:
        """For how many seconds keys have been ready and none was begun; 0 before the caches are synced."""
        if self._open_since is None:
            return 0.0
        return min(self.queue.stalled, asyncio.get_running_loop().time() - self._open_since)

    @property
    def longest(self) -> tuple[K, float] | None:
        """The key that has been worked on for the longest time, and for how many seconds; None if none is."""
        if not self._began:
            return None
        key, began = next(iter(self._began.items()))
        return key, asyncio.get_running_loop().time() - began

    def enqueue(self, key: K, after: float = 0.0) -> None:
        """Reconcile *key* now, or in *after* seconds."""
        self.queue.add_after(key, after)

    async def run(self) -> None:
        """Reconcile until cancelled; begins once all watched caches are synced.

        When cancelled no further key is begun; what is in progress may end within the grace period, then, or when
        cancelled once more, it is cancelled, and all is awaited before the cancellation goes on.
        """
        async with asyncio.TaskGroup() as group:
            try:
                for cache in self._caches:
                    await cache.wait_synced()
                self._open_since = asyncio.get_running_loop().time()
                while True:
                    await self._slots.acquire()
                    self._begin(await self.queue.get(), group)
            finally:
                self.queue.shut_down()
                await self._let_end()

    def _begin(self, key: K, group: asyncio.TaskGroup) -> None:
        task = group.create_task(self._work(key), name=f"{self.name} {key}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._slots.release()

    async def _let_end(self) -> None:
        if not self._tasks:
            return
        _log.info("waiting for reconciles to end", controller=self.name, count=len(self._tasks))
        _, late = await asyncio.wait(set(self._tasks), timeout=self._grace)
        if late:
            names = sorted(task.get_name() for task in late)
            _log.warning(CANCELLED(), controller=self.name, count=len(late), tasks=names[:10])

    async def _work(self, key: K) -> None:
        """Reconcile *key* once and decide when it comes up again."""
        self.stats.reconciles += 1
        now = asyncio.get_running_loop().time
        began = self._began[key] = now()
        with structlog.contextvars.bound_contextvars(controller=self.name, key=str(key)):
            try:
                result = await self._reconcile(key)
            except asyncio.CancelledError as error:
                if _is_cancelled():
                    raise
                # Something that was awaited had been cancelled, not this task: a failure like any other.
                self._failed(key, error)
            except Exception as error:  # noqa: BLE001 - it is logged, and must not stop the other keys
                self._failed(key, error)
            else:
                if result is not None and result.requeue_after is not None:
                    self.queue.add_after(key, result.requeue_after)
                if result is not None and result.error is not None:
                    self._failed(key, result.error)
                else:
                    self.queue.forget(key)
                    self._conflicts.pop(key, None)
            finally:
                del self._began[key]
                self.stats.seconds.add(now() - began)
                self.queue.done(key)

    def _failed(self, key: K, error: BaseException) -> None:
        """Log the failure once, and let *key* come back: at once after a conflict, else after its back-off."""
        known = list(_kube_errors(error))
        if known and all(isinstance(each, Conflict) for each in known):
            self.stats.conflicts += 1
            in_a_row = self._conflicts[key] = self._conflicts.get(key, 0) + 1
            if in_a_row <= CONFLICTS_AT_ONCE:
                _log.debug("conflict, deciding again", error=str(error))
                self.queue.add_after(key, pause_before(in_a_row, _AT_ONCE))
                return
        self._conflicts.pop(key, None)
        self.stats.errors += 1
        delay = round(self.queue.retry(key, next(iter(known), None)), 2)
        if known:
            text = "; ".join(str(each) for each in known)
            _log.warning(FAILED(), error=text, error_type=type(known[0]).__name__, retry_in=delay)
        else:
            _log.error(CRASHED(), error_type=type(error).__name__, retry_in=delay, exc_info=error)


def _kube_errors(error: BaseException) -> Iterator[KubeError]:
    """The errors in *error* if it is one of talking to the API, or a group of nothing but such; else none."""
    if isinstance(error, KubeError):
        yield error
    elif isinstance(error, BaseExceptionGroup) and error.split(KubeError)[1] is None:
        for each in error.exceptions:
            yield from _kube_errors(each)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
