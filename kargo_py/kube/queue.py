"""The work queue: keys to reconcile.

A key stands in it once, however often it is added; while it is worked on it is handed to nobody else, and a key added
meanwhile comes up again afterwards. First come, first served. Failed keys come back with an exponential back-off of
their own.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import count
from typing import Generic, TypeVar

from tenacity import wait_random_exponential
from tenacity.wait import wait_base

from kargo_py.kube.backoff import pause_before

K = TypeVar("K", bound=Hashable)

DEFAULT_BACK_OFF = wait_random_exponential(multiplier=0.1, max=60)

_MIN_STALE = 64
_LEAST_DELAY = 0.001  # what is left of a time, after rounding, may be less than the clock can tell: that would spin


class QueueShutDownError(Exception):
    """The queue hands out no more keys."""


@dataclass(slots=True)
class QueueStats:
    """Counts since the start; each key that is added counts, also one that stands in the queue already."""

    adds: int = 0
    retries: int = 0
    handed_out: int = 0


class WorkQueue(Generic[K]):
    """A queue of keys for one event loop; all methods must be called from it. ``len`` is how many keys are ready.

    A key that is added while it waits for a delay or a back-off is ready at once: news outranks both.
    """

    def __init__(self, *, back_off: wait_base = DEFAULT_BACK_OFF) -> None:
        self._back_off = back_off
        self._ready: OrderedDict[K, float] = OrderedDict()
        self._active: set[K] = set()
        self._again: set[K] = set()
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = count()
        self._failures: dict[K, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._news = asyncio.Event()
        self._closed = False
        self._handed_out_at = float("-inf")
        self.stats = QueueStats()

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def delayed(self) -> int:
        """How many keys wait for a time."""
        return len(self._due)

    @property
    def active(self) -> int:
        """How many keys are being worked on."""
        return len(self._active)

    @property
    def oldest(self) -> float:
        """For how many seconds the key that is to be handed out next has been ready; 0 if none is."""
        return self._now() - next(iter(self._ready.values())) if self._ready else 0.0

    @property
    def stalled(self) -> float:
        """For how many seconds a key has been ready and none was handed out."""
        return min(self.oldest, self._now() - self._handed_out_at)

    def add(self, key: K) -> None:
        """*key* needs work now; a delayed wake-up of it is not needed any more."""
        if self._closed:
            return
        self.stats.adds += 1
        self._due.pop(key, None)
        if key in self._active:
            self._again.add(key)
        else:
            self._make_ready(key)

    def add_after(self, key: K, seconds: float) -> None:
        """*key* needs work in *seconds*; of several wake-ups the earliest counts. A time in the past means now."""
        if seconds <= 0:
            self.add(key)
            return
        if self._closed or key in self._ready or key in self._again:
            return
        due = asyncio.get_running_loop().time() + max(seconds, _LEAST_DELAY)
        if due >= self._due.get(key, float("inf")):
            return
        self._due[key] = due
        heapq.heappush(self._heap, (due, next(self._order), key))
        self._drop_stale()
        self._arm()

    def retry(self, key: K, error: BaseException | None = None) -> float:
        """*key* failed with *error*: it comes back after its back-off, whose length in seconds is returned.

        That is 0 if there has been news of it meanwhile, since news outranks a back-off.
        """
        self.stats.retries += 1
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        if key in self._again or key in self._ready:
            return 0.0
        delay = pause_before(failures, self._back_off, error)
        self.add_after(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """*key* succeeded: its next failure starts with the shortest back-off again."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """The next key; it is yours until :meth:`done`. Raises QueueShutDownError after :meth:`shut_down`."""
        while not self._ready:
            if self._closed:
                raise QueueShutDownError
            self._news.clear()
            await self._news.wait()
        key, _ = self._ready.popitem(last=False)
        self._active.add(key)
        self._handed_out_at = self._now()
        self.stats.handed_out += 1
        return key

    def done(self, key: K) -> None:
        """The work on *key* has ended; if it was added meanwhile it comes up again."""
        self._active.discard(key)
        if key in self._again:
            self._again.discard(key)
            self._make_ready(key)

    def shut_down(self) -> None:
        """Hand out nothing more; whoever waits in :meth:`get` is released."""
        self._closed = True
        self._ready.clear()
        self._again.clear()
        self._due.clear()
        self._heap.clear()
        self._arm()
        self._news.set()

    def _make_ready(self, key: K) -> None:
        self._ready.setdefault(key, self._now())
        self._news.set()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    def _drop_stale(self) -> None:
        """Keep the heap in proportion to the keys that wait: wake-ups that news made needless stay in it till due."""
        if len(self._heap) > 2 * len(self._due) + _MIN_STALE:
            self._heap = [(due, order, key) for due, order, key in self._heap if self._due.get(key) == due]
            heapq.heapify(self._heap)

    def _arm(self) -> None:
        """Let the timer go off when the first of the delayed keys is due."""
        due = self._heap[0][0] if self._heap else None
        if self._timer is not None:
            if due is not None and self._timer.when() <= due:
                return
            self._timer.cancel()
            self._timer = None
        if due is not None:
            self._timer = asyncio.get_running_loop().call_at(due, self._fire, due)

    def _fire(self, due: float) -> None:
        self._timer = None
        # A timer may go off early by the resolution of the clock.
        now = max(due, asyncio.get_running_loop().time())
        while self._heap and self._heap[0][0] <= now:
            due, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == due:
                self.add(key)
        self._arm()
