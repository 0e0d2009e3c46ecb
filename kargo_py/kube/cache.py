"""A local copy of one resource, kept current by list and watch.

The rules by which news is put together are in :mod:`kargo_py.kube.store`; this module is the shell around them: it
lists, watches, reconnects and tells the handlers. What it guarantees to a caller:

* handlers see every object as a chain of (old, new), each version at most once, deletions included, also those that
  happened while the connection was down;
* the answer to an own write is in the cache before the writer goes on (:meth:`Cache.observe`);
* a frozen server costs at most a minute: each watch ends by itself after 40 to 60 seconds, and a silent one just after.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Generic, TypeVar

import structlog
from tenacity import RetryCallState, wait_random_exponential

from kargo_py.kube.client import Client, Codec, EventType, Page
from kargo_py.kube.errors import (
    ConfigError,
    DecodeError,
    Forbidden,
    Gone,
    KubeError,
    NotFound,
    Unauthorized,
    Unreachable,
)
from kargo_py.kube.resources import Key, Resource
from kargo_py.kube.store import Change, Store

T = TypeVar("T")

Handler = Callable[[T | None, T | None], None]

PAGE_SIZE = 500
WATCH_SECONDS = (40, 60)
_BACK_OFF = wait_random_exponential(multiplier=0.25, max=30)

_log = structlog.get_logger(__name__)


class Cache(Generic[T]):
    """The objects of one resource, in one namespace or all, chosen by a label selector or not.

    Args:
        client: where they come from.
        resource: which resource.
        codec: how they are parsed. A codec never fails because of one object's content, so no object can stop the
            stream; what cannot be read at all (no JSON) makes the cache list again.
        namespace: "" for all.
        label_selector: as in the API; give *selects* with it, so that answers to own writes can be judged too.
        projection: reduces each object before it is kept.
        indexes: named functions from an object to the values it is found under.
        selects: whether an object belongs into this cache.
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
    ) -> None:
        self._client = client
        self.resource = resource
        self._codec = codec
        self._namespace = namespace
        self._label_selector = label_selector
        self._projection = projection
        self._store: Store[T] = Store(codec.meta, indexes=indexes, selects=selects)
        self._handlers: list[Handler[T]] = []
        self._witnesses: list[Callable[[T], None]] = []
        self._synced = asyncio.Event()
        self._dirty: set[Key] = set()
        self._failures = 0
        self.health: KubeError | None = None
        self._news_of_health = asyncio.Event()
        self.undecodable = 0

    # -- reading -------------------------------------------------------------------------------------------------

    @property
    def synced(self) -> bool:
        """True once the first list is in."""
        return self._synced.is_set()

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

    def keys(self) -> Iterable[Key]:
        """All keys."""
        return self._store.keys()

    def values(self) -> Iterable[T]:
        """All objects."""
        return self._store.values()

    def indexed(self, index: str, value: Hashable) -> Sequence[T]:
        """The objects that *index* puts under *value*."""
        return self._store.indexed(index, value)

    async def read(self, key: Key) -> T | None:
        """The object from the cache, or from the server if it is dirty (see :meth:`mark_dirty`)."""
        if key in self._dirty:
            return await self.read_live(key)
        return self._store.get(key)

    async def read_live(self, key: Key) -> T | None:
        """The object from the server; what it says goes into the cache too."""
        uid = self._store.uid(key)
        try:
            obj = await self._client.get(self.resource, key, codec=self._codec)
        except NotFound:
            self._dispatch(self._store.gone(key, uid, self._now()))
            self._dirty.discard(key)
            return self._store.get(key) if self._store.uid(key) != uid else None
        self.observe(obj)
        self._dirty.discard(key)
        known = self._store.get(key)
        # The store may refuse an answer as older than its news; if it has none of this object, the server is right.
        return known if known is not None else self._project(obj)

    # -- news of our own -----------------------------------------------------------------------------------------

    def subscribe(self, handler: Handler[T]) -> None:
        """Call *handler* with (old, new) for every change from now on, in the order of subscription."""
        self._handlers.append(handler)

    def witness(self, see: Callable[[T], None]) -> None:
        """Call *see* with every state of every object that arrives, before anything is decided about it.

        Also with those that handlers are never told of, because a newer one was known already: what happened in
        between happened all the same.
        """
        self._witnesses.append(see)

    def observe(self, answer: T) -> None:
        """Take in the answer to an own write."""
        self._dispatch(self._store.answered(self._seen(answer), self._now()))

    def mark_dirty(self, key: Key) -> None:
        """After a conflict or an unknown outcome: the next :meth:`read` of *key* asks the server."""
        self._dirty.add(key)

    # -- list and watch ------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the cache current until cancelled."""
        while True:
            try:
                version = await self._list()
                await self._follow(version)
            except Gone:
                _log.info("watch is too old, listing again", resource=str(self.resource))
            except DecodeError as error:
                self.undecodable += 1
                await self._failed(error)
            except KubeError as error:
                await self._failed(error)
            except Exception as error:  # noqa: BLE001 - logged whole
                # Our bug, on some object of a form nobody foresaw: said whole, and not the end of all controllers.
                _log.exception("cache crashed, listing again", resource=str(self.resource))
                await self._failed(KubeError(f"{type(error).__name__}: {error}"))

    async def _list(self) -> str:
        objects: list[T] = []
        token = ""
        while True:
            page: Page[T] = await self._client.list(
                self.resource,
                self._namespace,
                codec=self._codec,
                label_selector=self._label_selector,
                limit=PAGE_SIZE,
                continue_token=token,
            )
            objects += [self._seen(obj) for obj in page.items]
            token = page.continue_token
            if not token:
                break
        self._dispatch(self._store.listed(objects, page.resource_version, self._now()))
        self._recovered()
        if not self._synced.is_set():
            self._synced.set()
            self._news_of_health.set()
            _log.info("cache synced", resource=str(self.resource), objects=len(self._store))
        return page.resource_version

    async def _follow(self, version: str) -> None:
        """Watch from *version* on, again and again; raises Gone or DecodeError when only a new list helps."""
        while True:
            try:
                version = await self._watch(version)
                self._recovered()
            except (Gone, DecodeError):
                raise
            except _BrokenWatchError as broken:
                version = broken.version
                await self._failed(broken.error)

    async def _watch(self, version: str) -> str:
        """One watch; returns the version to go on from."""
        stream = self._client.watch(
            self.resource,
            self._namespace,
            codec=self._codec,
            resource_version=version,
            label_selector=self._label_selector,
            timeout_seconds=random.randint(*WATCH_SECONDS),  # noqa: S311
        )
        try:
            async with aclosing(stream) as events:
                async for event in events:
                    self._recovered()
                    version = event.resource_version or version
                    if event.object is not None and event.type is not EventType.BOOKMARK:
                        changes = self._store.event(event.type, self._seen(event.object), self._now())
                        self._dispatch(changes)
        except (Gone, DecodeError):
            raise
        except KubeError as error:
            raise _BrokenWatchError(version, error) from error
        return version

    # -- the rest ------------------------------------------------------------------------------------------------

    def _project(self, obj: T) -> T:
        return self._projection(obj) if self._projection is not None else obj

    def _seen(self, obj: T) -> T:
        kept = self._project(obj)
        for see in self._witnesses:
            self._guarded(see, kept)
        return kept

    def _guarded(self, call: Callable[..., None], *arguments: T | None) -> None:
        try:
            call(*arguments)
        except Exception:  # noqa: BLE001 - logged whole
            # A handler that fails is our bug; it must not keep the news from the others.
            _log.exception("cache handler failed", resource=str(self.resource))

    def _dispatch(self, changes: Sequence[Change[T]]) -> None:
        for change in changes:
            for handler in self._handlers:
                self._guarded(handler, change.old, change.new)

    async def _failed(self, error: KubeError) -> None:
        """Note the failure, log it if it is another one than before, and wait before the next try."""
        if self.health is None or type(self.health) is not type(error):
            _log.warning("cache is not being updated", resource=str(self.resource), error=str(error))
        self.health = error
        self._news_of_health.set()
        self._failures += 1
        state = RetryCallState(retry_object=None, fn=None, args=(), kwargs={})  # type: ignore[arg-type]
        state.attempt_number = self._failures
        await asyncio.sleep(_BACK_OFF(state))

    def _recovered(self) -> None:
        if self.health is not None:
            _log.info("cache is being updated again", resource=str(self.resource))
            self.health = None
        self._failures = 0

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


class _BrokenWatchError(Exception):
    """A watch that broke off; it can be taken up again from ``version``."""

    def __init__(self, version: str, error: KubeError) -> None:
        super().__init__(str(error))
        self.version = version
        self.error = error


def _hopeless(error: KubeError) -> bool:
    return isinstance(error, (Forbidden, Unauthorized, Unreachable, ConfigError)) or (
        isinstance(error, NotFound) and error.resource_missing
    )
