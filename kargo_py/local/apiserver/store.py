"""Objects, their versions, and what happened to them: etcd and the watch cache in one.

One counter numbers all writes. Each resource has its objects in the order of their keys, and a log of its last writes,
bounded by count and bytes; from both together any state that the log still reaches can be had again. Nobody changes an
object that is in here: a write replaces it, and who wants another one decodes its bytes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from kargo_py.local.apiserver.kinds import Kind
from kargo_py.local.apiserver.wire import JsonObject, encode

OBJECT_BYTES: Final = 1_572_864 - 1024  # etcd counts key and framing, too
Change: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]
LOG_EVENTS: Final = 10_000
LOG_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """One state of one object: read ``obj``, never change it. ``kind`` is the version it was written in."""

    key: str
    kind: Kind
    obj: JsonObject
    data: bytes
    version: int
    views: dict[Kind, Stored] = field(default_factory=dict, repr=False)
    """The same object as other versions of its kind show it; see :mod:`~kargo_py.local.apiserver.views`."""

    def as_of(self, version: int) -> Stored:
        """The same state under another resourceVersion: what a watch shows when an object goes."""
        obj = {**self.obj, "metadata": {**self.obj["metadata"], "resourceVersion": str(version)}}
        return Stored(self.key, self.kind, obj, encode(obj), version)


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """One write. A deletion shows the last state, under the version of the deletion."""

    version: int
    change: Change
    stored: Stored
    previous: Stored | None
    collection: Collection


Observer: TypeAlias = Callable[[Event], None]


class TooLarge(Exception):
    """The object is larger than etcd takes."""


class Expired(Exception):
    """The log does not reach back that far; ``oldest`` is where it begins."""

    def __init__(self, oldest: int) -> None:
        super().__init__(oldest)
        self.oldest = oldest


def object_key(namespace: str, name: str) -> str:
    """How objects of a resource are told apart, and in what order they are listed."""
    return f"{namespace}/{name}" if namespace else name


@dataclass(eq=False)
class Collection:
    """All objects of one resource."""

    group: str
    plural: str
    oldest: int
    closed: bool = False
    """The resource is served no longer, or otherwise than before: its watches end."""
    items: dict[str, Stored] = field(default_factory=dict)
    log: deque[Event] = field(default_factory=deque)
    _keys: list[str] = field(default_factory=list)
    _log_bytes: int = 0
    _waiting: dict[Callable[[], None], None] = field(default_factory=dict)

    def get(self, namespace: str, name: str) -> Stored | None:
        """The object as it is now."""
        return self.items.get(object_key(namespace, name))

    def all(self, namespace: str = "") -> list[Stored]:
        """Objects of a namespace, or of all, in order."""
        items = self.items
        return [items[key] for key in self._keys_in(namespace)]

    def _keys_in(self, namespace: str) -> Sequence[str]:
        if not namespace:
            return self._keys
        # "0" is the character after "/"
        return self._keys[bisect_left(self._keys, f"{namespace}/") : bisect_left(self._keys, f"{namespace}0")]

    def at(self, version: int, namespace: str = "") -> list[Stored]:
        """Objects as they were right after *version*. Raises Expired."""
        if version < self.oldest:
            raise Expired(self.oldest)
        undone: dict[str, Stored | None] = {}
        for event in reversed(self.log):
            if event.version <= version:
                break
            undone[event.stored.key] = event.previous
        if not undone:
            return self.all(namespace)
        state = {**self.items, **undone}
        prefix = f"{namespace}/" if namespace else ""
        return [item for key in sorted(state) if key.startswith(prefix) and (item := state[key]) is not None]

    def since(self, version: int) -> list[Event]:
        """What happened after *version*. Raises Expired."""
        if version < self.oldest:
            raise Expired(self.oldest)
        happened: list[Event] = []
        for event in reversed(self.log):
            if event.version <= version:
                break
            happened.append(event)
        happened.reverse()
        return happened

    def forget(self, before: int) -> None:
        """Drop what happened up to *before*."""
        while self.log and self.log[0].version <= before:
            self._drop_first()
        self.oldest = max(self.oldest, before)

    def close(self) -> None:
        """End all watches."""
        self.closed = True
        self._wake()

    def when_changed(self, call: Callable[[], None]) -> None:
        """Call *call* once, at the next write or at the end."""
        self._waiting[call] = None

    def never_mind(self, call: Callable[[], None]) -> None:
        """Do not call *call*."""
        self._waiting.pop(call, None)

    @property
    def waiting(self) -> int:
        """How many watches sleep."""
        return len(self._waiting)

    def record(self, event: Event) -> None:
        """Let *event* have happened."""
        key = event.stored.key
        if event.change == "DELETED":
            del self.items[key]
            del self._keys[bisect_left(self._keys, key)]
        else:
            if key not in self.items:
                insort(self._keys, key)
            self.items[key] = event.stored
        self.log.append(event)
        self._log_bytes += len(event.stored.data)
        while len(self.log) > LOG_EVENTS or (self._log_bytes > LOG_BYTES and len(self.log) > 1):
            self.oldest = self._drop_first()
        self._wake()

    def _drop_first(self) -> int:
        event = self.log.popleft()
        self._log_bytes -= len(event.stored.data)
        return event.version

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for call in waiting:
            call()


class Store:
    """All resources under one version counter."""

    def __init__(self) -> None:
        self.version = 1  # a list of nothing has to have a version that a watch can begin at, and 0 means "any"
        self.observers: list[Observer] = []
        self._collections: dict[tuple[str, str], Collection] = {}
        self._untold: deque[Event] = deque()
        self._telling = False

    def __iter__(self) -> Iterator[Collection]:
        return iter(list(self._collections.values()))

    def collection(self, group: str, plural: str) -> Collection:
        """The objects of a resource; there are none at first."""
        found = self._collections.get((group, plural))
        if found is None:
            found = self._collections[group, plural] = Collection(group, plural, self.version)
        return found

    def drop(self, collection: Collection) -> None:
        """Forget a resource that is served no longer, and end its watches."""
        collection.close()
        if self._collections.get((collection.group, collection.plural)) is collection:
            del self._collections[collection.group, collection.plural]

    def reopen(self, collection: Collection) -> None:
        """End the watches of a resource that is served otherwise from now on; its objects and history stay."""
        collection.close()
        self._collections[collection.group, collection.plural] = Collection(
            collection.group,
            collection.plural,
            collection.oldest,
            items=collection.items,
            log=collection.log,
            _keys=collection._keys,  # noqa: SLF001 - one collection becomes another
            _log_bytes=collection._log_bytes,  # noqa: SLF001 - the same
        )

    def put(self, collection: Collection, kind: Kind, obj: JsonObject) -> Stored:
        """Create or replace an object, which is the store's from now on; its resourceVersion is set here.

        Raises TooLarge.
        """
        metadata = obj["metadata"]
        key = object_key(metadata.get("namespace", ""), metadata["name"])
        previous = collection.items.get(key)
        version = self.version + 1
        metadata["resourceVersion"] = str(version)
        data = encode(obj)
        if len(data) > OBJECT_BYTES:
            raise TooLarge
        stored = Stored(key, kind, obj, data, version)
        self.version = version
        self._record(Event(version, "MODIFIED" if previous else "ADDED", stored, previous, collection))
        return stored

    def remove(self, collection: Collection, previous: Stored) -> Stored:
        """Delete an object; its last state is shown to watches under the version of the deletion."""
        self.version += 1
        stored = previous.as_of(self.version)
        self._record(Event(self.version, "DELETED", stored, previous, collection))
        return stored

    def forget(self, before: int | None = None) -> None:
        """Drop what happened up to *before*, or up to now, as a compaction of etcd does."""
        for collection in self._collections.values():
            collection.forget(self.version if before is None else before)

    def _record(self, event: Event) -> None:
        event.collection.record(event)
        self._untold.append(event)
        if self._telling:  # an observer writes: all are to see its write after the one that it was told of
            return
        self._telling = True
        try:
            while self._untold:
                event = self._untold.popleft()
                for observe in self.observers:
                    observe(event)
        finally:
            self._telling = False
