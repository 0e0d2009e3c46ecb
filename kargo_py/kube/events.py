"""Kubernetes Events: what happened, for people who ask ``kubectl describe`` or ``kubectl events``.

Events are worth no delay and no failure of anything: they are queued, written in the background, and what cannot be
written is logged and counted. Their names are the caller's and deterministic, so that saying the same thing twice
(after a restart, say) makes one Event.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256

import structlog

from kargo_py.kube.client import Client, JsonObject
from kargo_py.kube.clock import utc_now
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.errors import AlreadyExists, KubeError, OutcomeUnknown, TooManyRequests, Unreachable
from kargo_py.kube.resources import Key, Resource
from kargo_py.messages import Shown, message

TOO_MANY_WAITING = message(
    "too many events are waiting to be written",
    do="Events come faster than the API server takes them, so the oldest are dropped. Nothing else suffers.",
    shown=Shown.LOG,
)
STOPPED_BEFORE = message(
    "stopped before it could be written",
    do="At the end Events are written for 5 seconds at most. Nothing to do.",
    shown=Shown.LOG,
)
NOT_WRITTEN = message(
    "event not written",
    do="A Kubernetes Event was lost, nothing else was; `why` says for which reason. If it is forbidden, allow "
    "`create` on events in that namespace.",
    shown=Shown.LOG,
)

EVENTS = Resource("", "v1", "events", "Event")

FLUSH_TIME = 5.0
"""Seconds given, when stopping, to what is still queued."""

PATIENCE = 60.0
"""Seconds for which an Event is tried again while the API server cannot be reached; its name keeps it a single one."""

REMEMBERED = 1800.0
"""Seconds for which the same thing is not told again. API servers forget Events after an hour, as a rule."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0
_PASSING = (Unreachable, OutcomeUnknown, TooManyRequests)
_MAX_MESSAGE = 1024
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Regarding:
    """The object an Event is about."""

    resource: Resource
    key: Key
    uid: str


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened; ``name`` must be the same each time the same thing is told."""

    regarding: Regarding
    name: str
    reason: str
    message: str
    type: str = "Normal"
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """An Event stands in the namespace of its object, or in ``default`` for a cluster-scoped one."""
        return Key(self.regarding.key.namespace or "default", self.name)

    def body(self, component: str, instance: str, now: datetime) -> JsonObject:
        """The core/v1 object; the message is cut to the 1,024 bytes the server takes."""
        at = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        about = self.regarding
        message = self.message.encode()[:_MAX_MESSAGE].decode(errors="ignore")
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": self.name, "namespace": self.key.namespace, "annotations": dict(self.annotations)},
            "involvedObject": {
                "apiVersion": about.resource.api_version,
                "kind": about.resource.kind,
                "namespace": about.key.namespace,
                "name": about.key.name,
                "uid": about.uid,
            },
            "reason": self.reason,
            "message": message,
            "type": self.type,
            "source": {"component": component},
            "reportingComponent": component,
            "reportingInstance": instance,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }


def event_name(about: str, reason: str, *distinct: str) -> str:
    """A name for an Event that is the same whenever the same thing is told; at most 253 characters."""
    digest = sha256("/".join((about, reason, *distinct)).encode()).hexdigest()[:16]
    return f"{about[:236].rstrip('.-')}.{digest}"


class EventRecorder:
    """Writes Events in the background, in order; keeps at most *capacity* unwritten and drops the oldest then.

    What was told in the last half hour is not told again. Of that the last *memory* Events are known.
    """

    def __init__(
        self,
        client: Client,
        component: str,
        instance: str,
        *,
        capacity: int = 1000,
        memory: int = 10_000,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._client = client
        self._component = component
        self._instance = instance
        self._capacity = capacity
        self._memory = memory
        self._now = now
        self._told: OrderedDict[Key, float] = OrderedDict()
        self._queue: deque[tuple[Event, datetime, float]] = deque()
        self._news = asyncio.Event()
        self._patience = PATIENCE
        self.written = 0
        self.dropped = 0

    def knows(self, key: Key) -> bool:
        """Whether the Event of that namespace and name was told by this process, not long ago."""
        at = self._told.get(key)
        return at is not None and asyncio.get_running_loop().time() - at < REMEMBERED

    def record(self, event: Event) -> None:
        """Queue *event*; never blocks, never raises."""
        if self.knows(event.key):
            return
        self._told[event.key] = asyncio.get_running_loop().time()
        self._told.move_to_end(event.key)
        if len(self._told) > self._memory:
            self._told.popitem(last=False)
        if len(self._queue) >= self._capacity:
            self._lost(self._queue.popleft()[0], TOO_MANY_WAITING())
        self._queue.append((event, self._now(), self._told[event.key]))
        self._news.set()

    async def run(self) -> None:
        """Write Events as they come, until cancelled; then what is queued is still written, for FLUSH_TIME at most."""
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                await self._write_queued()
        finally:
            await self._flush()

    async def _flush(self) -> None:
        self._patience = 0.0
        try:
            async with asyncio.timeout(FLUSH_TIME):
                await self._write_queued()
        except TimeoutError:
            while self._queue:
                self._lost(self._queue.popleft()[0], STOPPED_BEFORE())

    async def _write_queued(self) -> None:
        pause = _FIRST_PAUSE
        while self._queue:
            event, at, since = self._queue[0]
            if not await self._write(event, at, since):
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            pause = _FIRST_PAUSE
            # It may have been pushed out meanwhile; it is taken out only now, so that a cancelled write is repeated.
            if self._queue and self._queue[0][0] is event:
                self._queue.popleft()

    async def _write(self, event: Event, at: datetime, since: float) -> bool:
        """Whether *event* is done with, written or lost; if not, it is worth another try."""
        try:
            body = encode(event.body(self._component, self._instance, at))
            await self._client.create(EVENTS, event.key.namespace, body, codec=JSON)
            self.written += 1
        except AlreadyExists:
            pass
        except KubeError as error:
            if isinstance(error, _PASSING) and asyncio.get_running_loop().time() - since < self._patience:
                return False
            self._lost(event, str(error))
        except Exception:  # noqa: BLE001 - an Event is worth no failure of anything; it is told with its traceback
            self.dropped += 1
            self._told.pop(event.key, None)
            _log.exception(NOT_WRITTEN(), event_name=event.name, reason=event.reason)
        return True

    def _lost(self, event: Event, why: str) -> None:
        self.dropped += 1
        self._told.pop(event.key, None)
        _log.warning(NOT_WRITTEN(), event_name=event.name, reason=event.reason, why=why)
