"""Watches: what was, what happens, and when they end.

A watch keeps nothing but how far it has come; what happens is read from the resource's log. So a consumer that does
not read costs nothing, and its watch ends when the log has moved on, as the real server ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from random import Random
from typing import Final, TypeAlias

from kargo_py.local.apiserver import selectors
from kargo_py.local.apiserver.failures import Failure, expired
from kargo_py.local.apiserver.kinds import Kind
from kargo_py.local.apiserver.options import ListOptions
from kargo_py.local.apiserver.reading import parse_version, too_large
from kargo_py.local.apiserver.store import Collection, Event, Expired, Stored
from kargo_py.local.apiserver.views import shown
from kargo_py.local.apiserver.wire import JsonObject, encode

MIN_SECONDS: Final = 1800
BOOKMARK_SECONDS: Final = 60.0
_BEFORE_END: Final = 2.0  # the real server sends a last bookmark this long before a watch ends
Render: TypeAlias = Callable[[Stored], bytes]
"""An object as the client wants it."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is watched."""

    collection: Collection
    kind: Kind
    namespace: str
    predicate: selectors.Predicate | None

    def has(self, stored: Stored | None) -> Stored | None:
        """*stored* as the watch shows it, if it is one of those watched."""
        if stored is None or (self.namespace and not stored.key.startswith(f"{self.namespace}/")):
            return None
        view = shown(stored, self.kind)
        return view if self.predicate is None or self.predicate(view.obj) else None


def subject(collection: Collection, kind: Kind, namespace: str, options: ListOptions, *, name: str = "") -> Subject:
    """What *options* select; of one object only, if a *name* is given. Raises Failure."""
    predicate = selectors.both(
        selectors.labels(options.label_selector),
        selectors.fields(options.field_selector, kind),
        (lambda obj: bool(obj["metadata"]["name"] == name)) if name else None,
    )
    return Subject(collection, kind, namespace, predicate)


def lines(
    watched: Subject,
    options: ListOptions,
    *,
    now: Callable[[], int],
    random: Random,
    render: Render,
) -> AsyncGenerator[bytes]:
    """The lines of a watch; the first part is decided now, and the generator only tells it. Raises Failure.

    *now* gives the store's version.
    """
    since = parse_version(options.version) if options.version else 0
    seconds = options.timeout or random.uniform(MIN_SECONDS, 2 * MIN_SECONDS)
    version = now()
    if options.initial_events:
        if since > version:
            return _refused(too_large(since, version))
        mark = version if options.bookmarks else None
        first = _at_first(watched.kind, _there(watched), render, mark)
        return _followed(watched, first, version, seconds, options, now, render)
    if since == 0 and options.initial_events is False:
        return _followed(watched, [], version, seconds, options, now, render)
    if since == 0:
        first = _at_first(watched.kind, _there(watched), render, None)
        return _followed(watched, first, version, seconds, options, now, render)
    if since < watched.collection.oldest:
        return _refused(expired(f"too old resource version: {since} ({watched.collection.oldest})"))
    return _followed(watched, [], since, seconds, options, now, render)


def _there(watched: Subject) -> Sequence[Stored]:
    return [view for item in watched.collection.all(watched.namespace) if (view := watched.has(item))]


def _at_first(kind: Kind, there: Iterable[Stored], render: Render, mark: int | None) -> Iterator[bytes]:
    """Lines for what is there, made when they are wanted: a client that does not read holds no copies of it."""
    for view in there:
        yield _line("ADDED", render(view))
    if mark is not None:
        yield _bookmark(kind, mark, render, initial=True)


async def _refused(failure: Failure) -> AsyncGenerator[bytes]:
    yield _line("ERROR", encode(failure.status()))


async def _followed(
    watched: Subject,
    first: Iterable[bytes],
    position: int,
    seconds: float,
    options: ListOptions,
    now: Callable[[], int],
    render: Render,
) -> AsyncGenerator[bytes]:
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    mark = _next_mark(loop.time(), end) if options.bookmarks else end
    for line in first:
        yield line
    collection = watched.collection
    with closing(_Sleep(collection)) as sleep:
        while True:
            try:
                happened = collection.since(position)
            except Expired:
                return
            for event in happened:
                position = event.version
                if told := _told(watched, event, render):
                    yield told
            # A consumer that reads slowly may have let time pass; what happened meanwhile comes first.
            if happened:
                continue
            if collection.closed:
                return
            moment = max(loop.time(), sleep.reached)
            if moment >= end:
                return
            if moment >= mark:
                mark = _next_mark(moment, end)
                position = max(position, now())
                yield _bookmark(watched.kind, position, render)
                continue
            await sleep.until(min(mark, end))


def _next_mark(moment: float, end: float) -> float:
    """When to send the next bookmark; *end* if none is due any more."""
    mark = min(moment + BOOKMARK_SECONDS, end - _BEFORE_END)
    return mark if mark > moment else end


class _Sleep:
    """The pauses of one watch, each until the next write or a moment, which is mostly the same one."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._loop = asyncio.get_running_loop()
        self._moment = 0.0
        self.reached = float("-inf")
        """The moment of the last timer that went off: a clock of coarse grain may still be a little short of it."""
        self._timer: asyncio.TimerHandle | None = None
        self._changed = self._loop.create_future()

    async def until(self, moment: float) -> None:
        """Return at the next write, or at *moment*."""
        if self._timer is None or self._moment != moment:
            self.close()
            self._moment, self._timer = moment, self._loop.call_at(moment, self._ring)
        self._changed = self._loop.create_future()
        self._collection.when_changed(self._wake)
        try:
            await self._changed
        finally:
            self._collection.never_mind(self._wake)

    def close(self) -> None:
        """Let nothing be left."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        self.reached = self._moment
        self._wake()

    def _wake(self) -> None:
        if not self._changed.done():
            self._changed.set_result(None)


def _told(watched: Subject, event: Event, render: Render) -> bytes | None:
    """What a watch says of *event*: to it, an object that no longer matches is deleted, one that now does is added."""
    before = watched.has(event.previous)
    if event.change == "DELETED":
        last = watched.has(event.stored)
        return _line("DELETED", render(last)) if last else None
    after = watched.has(event.stored)
    if after:
        return _line("MODIFIED" if before else "ADDED", render(after))
    return _line("DELETED", render(before.as_of(event.version))) if before else None


def _line(change: str, data: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (change.encode(), data)


def _bookmark(kind: Kind, version: int, render: Render, *, initial: bool = False) -> bytes:
    metadata: JsonObject = {"resourceVersion": str(version)}
    if initial:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    obj = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
    if kind.struct is not None:
        obj = kind.struct.decode(obj, [])
    return _line("BOOKMARK", render(Stored("", kind, obj, encode(obj), version)))


def renderer(make: Callable[[Sequence[JsonObject], bool], JsonObject] | None) -> Render:
    """A renderer that gives objects as they are, or as *make* makes them (a Table: with headers the first time)."""
    if make is None:
        return lambda stored: stored.data
    headers = True

    def render(stored: Stored) -> bytes:
        nonlocal headers
        made = make([stored.obj], headers)
        headers = False
        return encode(made)

    return render
