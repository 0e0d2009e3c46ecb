"""What a cache holds, and the rules by which news from three sources is put together. Pure and synchronous.

The sources: *lists* and *watch events*, in the server's order but late; and the *answers* to our own writes and reads,
which may be newer than anything the watch has shown so far, and may themselves arrive late. The rules:

* An answer goes in at once and is told like a watch event; the watch event of the same version is dropped, and so are
  older ones. After :data:`MEMORY` seconds the watch wins again whatever it says.
* An answer that is not newer than what lists and watch have reached is old news, whatever it says.
* What is known to be gone is not resurrected by older news: for a while it is remembered as of which version a key was
  vacant, and which uid will never be seen again. Newer news is good news: an object that left the selection can return.
* Another uid is another object; the one with the newer version is the one that exists.
* A list is the truth as of its version: what is not in it is gone, unless an answer newer than the list put it in.
* A list older than what was known when it was asked for means that the server's history was rewound (an etcd restored
  from a backup): all that is known is given up in favour of the list.

Versions are compared within one resource only, by length then text, which is the order of the numbers they are
(KEP-5504 makes that official).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

import structlog

from kargo_py.kube.client import EventType, Meta
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message

HISTORY_REWOUND = message(
    "the server's history was rewound",
    do="The API server's database was restored from a backup. Everything is taken as it is now by itself; look at "
    "the Promotions of the time that was lost.",
    shown=Shown.LOG,
)
NOT_INDEXED = message(
    "object cannot be indexed",
    do="An object of a form that nobody foresaw may not wake what it concerns. Correct the object that `key` names, "
    "or report it with the traceback.",
    shown=Shown.LOG,
)

T = TypeVar("T")

MEMORY = 300.0
"""Seconds for which what our own requests told us outranks lists and watch, and for which what is gone is remembered.

Longer than any request takes with all its retries, and than any watch can lag. It ends at all because a server that was
restored from a backup and has caught up with our versions by the time we see it again cannot be told from another.
"""

Order: TypeAlias = tuple[int, str]

_log = structlog.get_logger(__name__)


def version_order(version: str) -> Order:
    """Sort key of a resourceVersion."""
    return (len(version), version)


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """One change to tell the handlers; ``old`` None: new, ``new`` None: gone.

    ``backwards``: this is older news than an own answer that was told before; so far behind is the watch. Nobody should
    rest a decision on it.
    """

    key: Key
    old: T | None
    new: T | None
    backwards: bool = False


@dataclass(slots=True)
class _Entry:
    """What is known of an object beside itself; ``own_until``: an own answer, which outranks others until then."""

    uid: str
    order: Order
    own_until: float
    indexed: Sequence[tuple[str, Hashable]]


@dataclass(slots=True)
class _Tombstone:
    """What is remembered of a vacant key: news up to version ``order``, and any of the uid ``dead``, is old."""

    order: Order
    dead: str
    at: float

    def covers(self, uid: str, order: Order) -> bool:
        return order <= self.order or uid == self.dead


class Store(Generic[T]):
    """The objects by key, indexed; every method that may change something returns the changes to tell.

    ``now`` is in seconds of a monotonic clock. *selects* tells whether an object belongs here; it judges answers only,
    since lists and watch are selected by the server.
    """

    def __init__(
        self,
        meta: Callable[[T], Meta],
        *,
        indexes: Mapping[str, Callable[[T], Iterable[Hashable]]] | None = None,
        selects: Callable[[T], bool] | None = None,
    ) -> None:
        self._meta = meta
        self._indexers = dict(indexes or {})
        self._selects = selects
        self._objects: dict[Key, T] = {}
        self._entries: dict[Key, _Entry] = {}
        self._index: dict[tuple[str, Hashable], dict[Key, None]] = {}
        self._tombstones: dict[Key, _Tombstone] = {}
        self._burials: deque[tuple[float, Key]] = deque()
        self._as_of = version_order("")
        self._told = version_order("")
        self._not_indexed: set[tuple[str, Key]] = set()
        self.index_errors = 0

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: Key) -> T | None:
        """The object, or None."""
        return self._objects.get(key)

    def uid(self, key: Key) -> str:
        """The uid of the object, "" if there is none."""
        entry = self._entries.get(key)
        return entry.uid if entry is not None else ""

    def keys(self) -> Sequence[Key]:
        """All keys, as they are now."""
        return list(self._objects)

    def values(self) -> Sequence[T]:
        """All objects, as they are now."""
        return list(self._objects.values())

    @property
    def furthest(self) -> Order:
        """The newest version that any news has shown; no list asked for from now on may be older."""
        return max(self._as_of, self._told)

    def indexed(self, index: str, value: Hashable) -> Sequence[T]:
        """The objects for which *index* gives *value*, as they are now."""
        if index not in self._indexers:
            raise KeyError(f"no index {index!r}; there are: {', '.join(self._indexers) or 'none'}")
        return [self._objects[key] for key in self._index.get((index, value), ())]

    # -- news ----------------------------------------------------------------------------------------------------

    def event(self, type_: EventType, obj: T, now: float) -> Sequence[Change[T]]:
        """A watch event (not a bookmark)."""
        meta = self._meta(obj)
        self._as_of = version_order(meta.resource_version)
        if type_ is EventType.DELETED:
            return self._deleted(meta, now)
        return self._seen(obj, meta, now)

    def bookmark(self, version: str) -> None:
        """The watch has shown everything up to *version*."""
        self._as_of = version_order(version)

    def listed(
        self, objects: Sequence[T], version: str, *, began: float, known: Order
    ) -> Iterator[Sequence[Change[T]]]:
        """A complete list as of *version*; also emits the deletions that were missed.

        It was asked for at *began*, when :attr:`furthest` was *known*.

        Each step of the iterator takes in one object. Between two steps other news than that of the watch may be taken
        in and told; that of the list counts as a whole once the iterator has ended.
        """
        listed_at = version_order(version)
        if listed_at < known:
            self._rewind(listed_at, known)
        present = set()
        for obj in objects:
            meta = self._meta(obj)
            present.add(meta.key)
            yield self._seen(obj, meta, began)
        for key in self.keys():
            entry = self._entries.get(key)
            if entry is None or key in present or entry.order > listed_at:
                continue
            yield self._remove(key, entry, listed_at, began)
        self._as_of = listed_at

    def answered(self, obj: T, now: float) -> Sequence[Change[T]]:
        """The answer to a write or live read of ours."""
        meta = self._meta(obj)
        order = version_order(meta.resource_version)
        entry = self._entries.get(meta.key)
        self._told = max(self._told, order)
        if order <= self._as_of or (entry is not None and order <= entry.order):
            return ()
        tombstone = self._tombstones.get(meta.key)
        if tombstone is not None and tombstone.covers(meta.uid, order) and now < tombstone.at + MEMORY:
            return ()
        if self._selects is None or self._selects(obj):
            return self._put(obj, meta, own_until=now + MEMORY, now=now)
        if entry is not None:
            return self._remove(meta.key, entry, order, now)
        self._bury(meta.key, order, now)
        return ()

    def gone(self, key: Key, uid: str, now: float) -> Sequence[Change[T]]:
        """A live read or delete of ours said that the object *uid* does not exist any more, and so never will again.

        An empty *uid* says nothing: an object that was not known before may have been created meanwhile.
        """
        if not uid:
            return ()
        entry = self._entries.get(key)
        if entry is None:
            self._bury(key, version_order(""), now, dead=uid)
        elif entry.uid == uid:
            return self._remove(key, entry, entry.order, now, dead=uid)
        return ()

    # -- the rules -----------------------------------------------------------------------------------------------

    def _seen(self, obj: T, meta: Meta, now: float) -> Sequence[Change[T]]:
        """A list or an event that is no deletion shows *obj*."""
        order = version_order(meta.resource_version)
        entry = self._entries.get(meta.key)
        if entry is not None:
            if order == entry.order and meta.uid == entry.uid:
                entry.own_until = 0.0
                return ()
            if order < entry.order and now < entry.own_until:
                return ()
        backwards = entry is not None and order < entry.order
        if (tombstone := self._tombstones.get(meta.key)) is not None:
            old_news = tombstone.covers(meta.uid, order)
            if old_news and now < tombstone.at + MEMORY:
                return ()
            backwards = backwards or old_news
            del self._tombstones[meta.key]
        return self._put(obj, meta, own_until=0.0, now=now, backwards=backwards)

    def _deleted(self, meta: Meta, now: float) -> Sequence[Change[T]]:
        order = version_order(meta.resource_version)
        entry = self._entries.get(meta.key)
        if entry is None or entry.uid != meta.uid or (order < entry.order and now < entry.own_until):
            return ()
        return self._remove(meta.key, entry, order, now)

    def _put(self, obj: T, meta: Meta, *, own_until: float, now: float, backwards: bool = False) -> Sequence[Change[T]]:
        changes: list[Change[T]] = []
        order = version_order(meta.resource_version)
        entry = self._entries.get(meta.key)
        if entry is not None and entry.uid != meta.uid:
            changes += self._remove(meta.key, entry, order, now)
            entry = None
        indexed = self._index_values(obj, meta.key)
        self._link(meta.key, entry.indexed if entry is not None else (), indexed)
        changes.append(Change(meta.key, self._objects.get(meta.key), obj, backwards))
        self._objects[meta.key] = obj
        self._entries[meta.key] = _Entry(meta.uid, order, own_until, indexed)
        return changes

    def _remove(self, key: Key, entry: _Entry, order: Order, now: float, dead: str = "") -> Sequence[Change[T]]:
        backwards = order < entry.order
        old = self._objects.pop(key)
        del self._entries[key]
        self._link(key, entry.indexed, ())
        if self._not_indexed:
            self._not_indexed.difference_update([(name, key) for name in self._indexers])
        self._bury(key, order, now, dead)
        return (Change(key, old, None, backwards),)

    def _bury(self, key: Key, order: Order, now: float, dead: str = "") -> None:
        self._tombstones[key] = _Tombstone(order, dead, now)
        self._burials.append((now, key))
        while self._burials[0][0] + MEMORY <= now:
            at, old = self._burials.popleft()
            if (tombstone := self._tombstones.get(old)) is not None and tombstone.at == at:
                del self._tombstones[old]

    def _rewind(self, listed_at: Order, known: Order) -> None:
        """What was shown, answered and buried belongs to a history that did not happen."""
        _log.warning(HISTORY_REWOUND(), seen=known[1], now=listed_at[1])
        self._as_of = self._told = listed_at
        self._tombstones.clear()
        self._burials.clear()
        for entry in self._entries.values():
            # The same version may have another content now.
            entry.order = version_order("")

    # -- indexes -------------------------------------------------------------------------------------------------

    def _index_values(self, obj: T, key: Key) -> Sequence[tuple[str, Hashable]]:
        found: list[tuple[str, Hashable]] = []
        for name, indexer in self._indexers.items():
            try:
                found += dict.fromkeys((name, value) for value in indexer(obj))
            except Exception as error:  # noqa: BLE001 - whatever a function makes of input that nobody foresaw
                # The object is kept, only not under this index: it must not stop the others.
                self._cannot_index(name, key, error)
            else:
                self._not_indexed.discard((name, key))
        return tuple(found)

    def _cannot_index(self, name: str, key: Key, error: Exception) -> None:
        self.index_errors += 1
        if (name, key) not in self._not_indexed:
            self._not_indexed.add((name, key))
            _log.warning(NOT_INDEXED(), index=name, key=str(key), exc_info=error)

    def _link(self, key: Key, old: Sequence[tuple[str, Hashable]], new: Sequence[tuple[str, Hashable]]) -> None:
        if old == new:
            return
        for value in old:
            keys = self._index[value]
            del keys[key]
            if not keys:
                del self._index[value]
        for value in new:
            self._index.setdefault(value, {})[key] = None
