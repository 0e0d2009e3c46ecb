"""A local copy of one resource, kept current by list and watch.

The rules by which news is put together are in :mod:`kargo_py.kube.store`; this module is the shell around them: it
lists, watches, reconnects and tells the handlers. What it guarantees to a caller:

* handlers see every object as a chain of (old, new), each version at most once, deletions included, also those that
  happened while the connection was down. Where the chain has a gap or goes backwards, because a watch expired, lagged,
  or the server was restored from a backup, that is said (:class:`~kargo_py.kube.store.Change`);
* the answer to an own write is in the cache before the writer goes on (:meth:`Cache.observe`);
* a frozen server costs at most a minute: each watch ends by itself after 40 to 60 seconds, and a silent one just after;
* no object's content stops the others: what the projection cannot reduce is kept whole, what an index cannot read is
  kept outside the index. What a model makes of it is for the edge of the reconcile to find out.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

import structlog
from tenacity import wait_random_exponential
from tenacity.wait import wait_base

from kargo_py.kube.backoff import pause_before
from kargo_py.kube.client import Client, Codec, EventType, Meta, Page, WatchEvent
from kargo_py.kube.errors import (
    ConfigError,
    ConnectionLost,
    DecodeError,
    Forbidden,
    Gone,
    KubeError,
    NotFound,
    Unauthorized,
    Unreachable,
)
from kargo_py.kube.health import PASSING, SHORT_WATCH, Activity, Health
from kargo_py.kube.histogram import Histogram
from kargo_py.kube.resources import Key, Resource
from kargo_py.kube.store import Change, Order, Store, version_order
from kargo_py.messages import Shown, message

LISTING_AGAIN_AFTER_CRASH = message(
    "cache crashed, listing again",
    do="A fault of kargo-py: please report it with its traceback. It lists again by itself and goes on.",
    shown=Shown.LOG,
)
LEFT_OUT = message(
    "object left out",
    do="An object without a name or version; `why` says which. The others are not affected; look at what stands "
    "between kargo-py and the API server.",
    shown=Shown.LOG,
)
KEPT_WHOLE = message(
    "object kept whole",
    do="An object of a form that nobody foresaw takes more memory than it should; nothing else happens. Correct the "
    "object, or report it with `why`.",
    shown=Shown.LOG,
)
HANDLER_FAILED = message(
    "cache handler failed",
    do="A fault of kargo-py: please report it with its traceback. Other objects and handlers are not affected.",
    shown=Shown.LOG,
)
NOT_UPDATED = message(
    "cache is not being updated",
    do="A list or watch fails, `error` says why; told once for each kind of error. It is tried again by itself with "
    "pauses of up to 30 seconds, until the log says `cache is being updated again`.",
    shown=Shown.LOG,
)
REWOUND = message(
    "{what} is at {version} only, less than it was: a restored backup it seems",
    do="The API server's database was restored from a backup. Everything is listed again by itself; look at the "
    "Promotions of the time that was lost.",
    shown=Shown.LOG,
)
WATCH_TOO_SHORT = message(
    "the server ended the watch as soon as it had begun",
    do="It is tried again by itself. If it comes again and again, a proxy before the API server cuts watches: raise "
    "its time-outs.",
    shown=Shown.LOG,
)

T = TypeVar("T")
U = TypeVar("U")

Handler: TypeAlias = Callable[[T | None, T | None], None]
Listener: TypeAlias = Callable[[Change[T]], None]

PAGE_SIZE = 500
WATCH_SECONDS = (40, 60)
DEFAULT_BACK_OFF = wait_random_exponential(multiplier=0.25, max=30)

_YIELD_EVERY = 250

_UNSHOWN_KEPT = 1000
"""How many own answers are waited for in the watch, to tell how late it is."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class CacheStats:
    """Counts since the start. ``undecodable``: answers, and single objects, that could not be read.

    ``failures``: lists and watches that failed. ``lag``: how long after the answer to a write of ours the watch showed
    it, where the answer came first; our own clock on both ends.
    """

    lists: int = 0
    watches: int = 0
    events: int = 0
    undecodable: int = 0
    handler_errors: int = 0
    failures: int = 0
    lag: Histogram = field(default_factory=Histogram)


class Cache(Generic[T]):
    """The objects of one resource, in one namespace or all, chosen by a label selector or not.

    Args:
        client: where they come from.
        resource: which resource.
        codec: how they are parsed. It must not fail because of one object's content, so that no object can stop the
            stream; what cannot be read at all (no JSON) makes the cache list again.
        namespace: "" for all.
        label_selector: as in the API; *selects* must be given with it, so that own answers can be judged too.
        projection: reduces each object before it is kept.
        indexes: named functions from an object to the values it is found under.
        selects: whether an object belongs into this cache by its labels.
        on_undecodable: told what could not be read.
        back_off: how long to wait between failed tries.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        *,
        codec: Codec[T],
        namespace: str = "",
        label_selector: str = "",
        projection: Callable[[T], T] | None = None,
        indexes: Mapping[str, Callable[[T], Iterable[Hashable]]] | None = None,
        selects: Callable[[T], bool] | None = None,
        on_undecodable: Callable[[DecodeError], None] | None = None,
        back_off: wait_base = DEFAULT_BACK_OFF,
    ) -> None:
        if label_selector and selects is None:
            raise ValueError(f"a cache of {resource} with a label selector needs selects, to judge own answers by")
        self._client = client
        self.resource = resource
        self._codec = codec
        self._namespace = namespace
        self._label_selector = label_selector
        self._projection = projection
        self._on_undecodable = on_undecodable
        self._back_off = back_off
        self._store: Store[T] = Store(codec.meta, indexes=indexes, selects=selects)
        self._listeners: tuple[Listener[T], ...] = ()
        self._witnesses: tuple[Callable[[T], None], ...] = ()
        self._untold: deque[tuple[Change[T], tuple[Listener[T], ...]]] = deque()
        self._telling = False
        self._dirty: dict[Key, object] = {}
        self._unshown: OrderedDict[Key, tuple[Order, float]] = OrderedDict()
        self._version = ""
        self._health = Health()
        self._alarm: Gone | None = None
        self._following: asyncio.Timeout | None = None
        self._synced = asyncio.Event()
        self._news_of_health = asyncio.Event()
        self.stats = CacheStats()

    # -- reading -------------------------------------------------------------------------------------------------

    @property
    def synced(self) -> bool:
        """True once the first list is in."""
        return self._synced.is_set()

    @property
    def health(self) -> KubeError | None:
        """Why the cache is not being kept current, None if it is."""
        return self._health.error

    @property
    def index_errors(self) -> int:
        """How often an index function failed on an object."""
        return self._store.index_errors

    async def wait_synced(self, *, fail_fast: bool = False) -> None:
        """Wait for the first list; with *fail_fast* raise what prevents it if waiting would hardly help.

        That is: a missing CRD, missing rights, refused credentials, and a server that cannot be reached at all.
        """
        while not self._synced.is_set():
            if fail_fast and self.health is not None and _hopeless(self.health):
                raise self.health
            self._news_of_health.clear()
            await self._news_of_health.wait()

    def __len__(self) -> int:
        return len(self._store)

    def get(self, key: Key) -> T | None:
        """The object as last seen, None if there is none."""
        return self._store.get(key)

    def keys(self) -> Sequence[Key]:
        """All keys, as they are now."""
        return self._store.keys()

    def values(self) -> Sequence[T]:
        """All objects, as they are now."""
        return self._store.values()

    def indexed(self, index: str, value: Hashable) -> Sequence[T]:
        """The objects that *index* puts under *value*, as they are now. Raises KeyError for an unknown index."""
        return self._store.indexed(index, value)

    async def read(self, key: Key) -> T | None:
        """The object from the cache, or from the server if it is dirty (see :meth:`mark_dirty`)."""
        if key in self._dirty:
            return await self.read_live(key)
        return self._store.get(key)

    async def read_live(self, key: Key) -> T | None:
        """The object from the server, or what is newer by the time it answers; goes into the cache too.

        None if there is no such object, or if it does not belong into this cache. Raises KubeError, the object stays
        dirty then; among others Gone if the server shows an older version than was known when it was asked, so that
        nothing here can be relied on before the new list is in that this causes.
        """
        mark = self._dirty.get(key)
        uid, known = self._store.uid(key), self._store.order(key)
        try:
            answer = await self._client.get(self.resource, key, codec=self._codec)
        except NotFound as error:
            if error.resource_missing:
                # The server does not know the resource (yet): that says nothing about the object.
                raise
            self.observe_gone(key, uid)
        else:
            version = self._codec.meta(answer).resource_version
            if version_order(version) < known:
                self.mark_dirty(key)
                raise self._raise_alarm(_rewound(str(key), version))
            self.observe(answer)
        if self._dirty.get(key) is mark:
            # Else it was marked again, and this answer may be from before what it was marked for.
            self._dirty.pop(key, None)
        return self._store.get(key)

    # -- news of our own -----------------------------------------------------------------------------------------

    def subscribe(self, handler: Handler[T]) -> None:
        """Call *handler* with (old, new) for every change from now on, in the order of subscription.

        What is in the cache already is told at once, as (None, object). A handler may call any method of the cache:
        what changes by that is told after the change being told.
        """
        self.listen(lambda change: handler(change.old, change.new))

    def listen(self, listener: Listener[T]) -> None:
        """Like :meth:`subscribe`, for who needs to know more of a change than (old, new)."""
        self._listeners = (*self._listeners, listener)
        known = [Change(key, None, obj) for key, obj in zip(self.keys(), self.values(), strict=True)]
        self._untold.extend((change, (listener,)) for change in known)
        self._tell()

    def witness(self, see: Callable[[T], None]) -> None:
        """Call *see* with every state of every object that arrives, before anything is decided about it.

        Also with those that handlers are never told of, because a newer one was known already: what happened in
        between happened all the same.
        """
        self._witnesses = (*self._witnesses, see)

    def observe(self, answer: T) -> None:
        """Take in the answer to an own write, or a live read."""
        meta = self._codec.meta(answer)
        if self._namespace and meta.key.namespace != self._namespace:
            return
        if (order := version_order(meta.resource_version)) > self._store.furthest:
            self._unshown[meta.key] = (order, self._now())
            if len(self._unshown) > _UNSHOWN_KEPT:
                self._unshown.popitem(last=False)
        self._dispatch(self._store.answered(self._admitted(answer), self._now()))

    def observe_gone(self, key: Key, uid: str) -> None:
        """Take in that a live read or delete of ours found the object *uid* of that *key* gone."""
        self._dispatch(self._store.gone(key, uid, self._now()))

    def mark_dirty(self, key: Key) -> None:
        """After a conflict or an unknown outcome: the next :meth:`read` of *key* asks the server.

        Unless the object is shown to be gone before that.
        """
        self._dirty[key] = object()

    # -- list and watch ------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the cache current until cancelled; whatever the server does, it is tried again."""
        while True:
            activity: Activity = "list"
            try:
                await self._list()
                activity = "watch"
                await self._follow()
            except Gone as error:
                if self._health.expired():
                    _log.info("version is too old, listing again", resource=str(self.resource), why=error.message)
                else:
                    await self._failed(error, activity)
            except DecodeError as error:
                self._undecodable(error)
                await self._failed(error, activity)
            except KubeError as error:
                await self._failed(error, activity)
            except Exception as error:  # noqa: BLE001 - logged whole
                # Our bug, on some object of a form nobody foresaw: said whole, and not the end of all controllers.
                _log.exception(LISTING_AGAIN_AFTER_CRASH(), resource=str(self.resource))
                await self._failed(KubeError(f"{type(error).__name__}: {error}"), activity)

    async def _list(self) -> None:
        self.stats.lists += 1
        self._alarm = None
        self._unshown.clear()
        began, known = self._now(), self._store.furthest
        objects: list[T] = []
        page = await self._page()
        objects += self._readable(page.items)
        while page.continue_token:
            page = await self._page(continue_token=page.continue_token)
            objects += self._readable(page.items)
        for number, changes in enumerate(
            self._store.listed(objects, page.resource_version, began=began, known=known), 1
        ):
            self._dispatch(changes)
            if number % _YIELD_EVERY == 0:
                await asyncio.sleep(0)
        self._version = page.resource_version
        self._tell_recovery(self._health.listed())
        if not self._synced.is_set():
            _log.info("cache synced", resource=str(self.resource), objects=len(self._store))
            self._synced.set()
            self._news_of_health.set()

    async def _page(self, *, limit: int = PAGE_SIZE, continue_token: str = "") -> Page[T]:
        return await self._client.list(
            self.resource,
            self._namespace,
            codec=self._codec,
            label_selector=self._label_selector,
            limit=limit,
            continue_token=continue_token,
        )

    async def _follow(self) -> None:
        """Watch from the last version on, again and again; raises KubeError when only a new list helps."""
        try:
            async with asyncio.timeout(None) as self._following:
                while self._alarm is None:
                    await self._follow_once()
        except TimeoutError:
            if self._alarm is None:
                raise
        finally:
            self._following = None
        if self._alarm is not None:
            raise self._alarm

    async def _follow_once(self) -> None:
        try:
            if self._health.doubtful:
                await self._check_history()
        except (Gone, NotFound, DecodeError):
            raise
        except KubeError as error:
            # A server that has just started refuses what it will allow in a second: no reason to list all.
            await self._failed(error, "watch")
            return
        try:
            await self._watch()
        except PASSING as error:
            await self._failed(error, "watch")

    def _raise_alarm(self, error: Gone) -> Gone:
        """Have everything listed again at once, whatever the watch is doing; gives back *error*."""
        if self._alarm is None:
            self._alarm = error
            if self._following is not None:
                self._following.reschedule(self._now())
        return error

    async def _check_history(self) -> None:
        """Raise Gone if the server knows nothing of our version any more.

        A server whose etcd was restored from a backup answers a watch from a version that it has not reached yet with
        silence: no error, no bookmark, none of the changes up to there (seen with Kubernetes 1.34). Since no server is
        restored while it runs, it is enough to ask after a watch that did not end in its own time.
        """
        known = self._store.furthest
        page = await self._page(limit=1)
        if version_order(page.resource_version) < known:
            raise _rewound("the server", page.resource_version)
        self._tell_recovery(self._health.checked())

    async def _watch(self) -> None:
        """One watch. Raises ConnectionLost if it ended as soon as it had begun."""
        self.stats.watches += 1
        seconds = random.randint(*WATCH_SECONDS)  # noqa: S311 - spreads load, guards nothing
        began = self._now()
        shown = 0
        stream = self._client.watch(
            self.resource,
            self._namespace,
            codec=self._codec,
            resource_version=self._version,
            label_selector=self._label_selector,
            timeout_seconds=seconds,
        )
        try:
            async with aclosing(stream) as events:
                async for event in events:
                    self._take(event)
                    shown += 1
                    if shown % _YIELD_EVERY == 0:
                        # What is in the socket's buffer already is given without a pause.
                        await asyncio.sleep(0)
        except KubeError:
            if shown:
                self._health.broke(self._now() - began)
            raise
        lasted = self._now() - began
        self._tell_recovery(self._health.ended(lasted, seconds))
        if lasted < SHORT_WATCH:
            raise ConnectionLost(WATCH_TOO_SHORT(), request=f"watch {self.resource}")

    def _take(self, event: WatchEvent[T]) -> None:
        self._tell_recovery(self._health.shown())
        self._version = event.resource_version or self._version
        if event.object is None or event.type is EventType.BOOKMARK:
            self._store.bookmark(self._version)
            return
        self.stats.events += 1
        for obj in self._readable([event.object]):
            self._note_lag(self._codec.meta(obj))
            self._dispatch(self._store.event(event.type, obj, self._now()))

    def _note_lag(self, meta: Meta) -> None:
        """The watch shows an object: if that is what we have written, or newer, how late is it?"""
        unshown = self._unshown.get(meta.key)
        if unshown is not None and version_order(meta.resource_version) >= unshown[0]:
            del self._unshown[meta.key]
            self.stats.lag.add(self._now() - unshown[1])

    # -- objects -------------------------------------------------------------------------------------------------

    def _readable(self, objects: Iterable[T]) -> list[T]:
        """The projections of *objects*, without those that have no name or version to be kept under."""
        kept = []
        for obj in objects:
            try:
                self._codec.meta(obj)
            except DecodeError as error:
                _log.warning(LEFT_OUT(), resource=str(self.resource), why=str(error))
                self._undecodable(error)
            else:
                kept.append(self._admitted(obj))
        return kept

    def _admitted(self, obj: T) -> T:
        """What is kept of *obj*; the witnesses are told."""
        kept = self._project(obj)
        for see in self._witnesses:
            self._call(self._codec.meta(obj).key, see, kept)
        return kept

    def _project(self, obj: T) -> T:
        if self._projection is None:
            return obj
        try:
            return self._projection(obj)
        except Exception as error:  # noqa: BLE001 - whatever a function makes of input that nobody foresaw
            key = str(self._codec.meta(obj).key)
            _log.warning(KEPT_WHOLE(), resource=str(self.resource), key=key, why=f"its projection: {error!r}")
            failed = DecodeError(f"{self.resource.kind} {key} does not fit its projection: {error!r}")
            failed.__cause__ = error
            self._undecodable(failed)
            return obj

    def _undecodable(self, error: DecodeError) -> None:
        self.stats.undecodable += 1
        if self._on_undecodable is not None:
            self._on_undecodable(error)

    # -- telling -------------------------------------------------------------------------------------------------

    def _dispatch(self, changes: Sequence[Change[T]]) -> None:
        for change in changes:
            if change.backwards:
                self.mark_dirty(change.key)
            elif change.new is None:
                self._dirty.pop(change.key, None)
            self._untold.append((change, self._listeners))
        self._tell()

    def _tell(self) -> None:
        """Tell what is untold, in order; what a handler causes is told to all after what it is being told."""
        if self._telling:
            return
        self._telling = True
        try:
            while self._untold:
                change, listeners = self._untold.popleft()
                for listener in listeners:
                    self._call(change.key, listener, change)
        finally:
            self._telling = False

    def _call(self, key: Key, handler: Callable[[U], None], what: U) -> None:
        try:
            handler(what)
        except Exception:  # noqa: BLE001 - logged whole
            # A handler that fails is our bug; it must not keep the news from the others.
            self.stats.handler_errors += 1
            _log.exception(HANDLER_FAILED(), resource=str(self.resource), key=str(key))

    # -- health --------------------------------------------------------------------------------------------------

    async def _failed(self, error: KubeError, activity: Activity) -> None:
        """Note the failure, log it if it is another one than before, and wait before the next try."""
        self.stats.failures += 1
        if self._health.failed(error, activity):
            _log.warning(NOT_UPDATED(), resource=str(self.resource), error=str(error))
        self._news_of_health.set()
        await asyncio.sleep(pause_before(self._health.failures, self._back_off, error))

    def _tell_recovery(self, recovered: bool) -> None:
        if recovered:
            _log.info("cache is being updated again", resource=str(self.resource))

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _rewound(what: str, version: str) -> Gone:
    return Gone(410, "Expired", REWOUND(what=what, version=version))


def _hopeless(error: KubeError) -> bool:
    return isinstance(error, (Forbidden, Unauthorized, Unreachable, ConfigError)) or (
        isinstance(error, NotFound) and error.resource_missing
    )
