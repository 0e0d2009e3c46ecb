"""What a cache holds, and the rules by which news from three sources is put together. Pure and synchronous.

The sources: *lists* and *watch events*, in the server's order but late; and the *answers* to our own writes and reads,
which are newer than anything the watch has shown so far, but may themselves arrive late. The rules:

* An answer goes in at once and is dispatched like a watch event; the watch event of the same version is dropped, and so
  are older ones. After :data:`OWN_ANSWER_RANK` seconds the watch wins again whatever it says: an etcd that was restored
  from a backup moves versions backwards.
* An answer that is not newer than what lists and watch have reached is old news, whatever it says.
* A deleted object is not resurrected by a late answer: its uid is remembered for a while.
* Another uid is another object. The watch and lists say so with authority; an answer only if its version is newer.
* A list is the truth as of its version: what is not in it is gone, unless an answer newer than the list put it in.

Versions are compared within one resource only, by length then text, which is the order of the numbers they are
(KEP-5504 makes that official).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog

from kargo_py.kube.client import EventType, Meta
from kargo_py.kube.resources import Key

T = TypeVar("T")

OWN_ANSWER_RANK = 10.0
"""Seconds for which an answer to our own request outranks the watch."""

TOMBSTONE_LIFE = 300.0
"""Seconds for which a deleted object is kept from coming back; longer than any request takes with all its retries."""

_log = structlog.get_logger(__name__)


def version_order(version: str) -> tuple[int, str]:
    """Sort key of a resourceVersion."""
    return (len(version), version)


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """One change to tell the handlers; ``old`` None: new, ``new`` None: gone."""

    old: T | None
    new: T | None


@dataclass(slots=True)
class _Entry(Generic[T]):
    obj: T
    uid: str
    order: tuple[int, str]
    own_until: float
    indexed: tuple[tuple[str, Hashable], ...]


class Store(Generic[T]):
    """The objects by key, indexed; every method that may change something returns the changes to dispatch."""

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
        self._entries: dict[Key, _Entry[T]] = {}
        self._tombstones: dict[str, float] = {}
        self._as_of = version_order("")
        self._index: dict[tuple[str, Hashable], dict[Key, None]] = {}
        self.index_errors = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key) -> T | None:
        """The object, or None."""
        entry = self._entries.get(key)
        return entry.obj if entry is not None else None

    def uid(self, key: Key) -> str:
        """The uid of the object, "" if there is none."""
        entry = self._entries.get(key)
        return entry.uid if entry is not None else ""

    def keys(self) -> Iterable[Key]:
        """All keys."""
        return self._entries.keys()

    def values(self) -> Iterable[T]:
        """All objects."""
        return (entry.obj for entry in self._entries.values())

    def indexed(self, index: str, value: Hashable) -> Sequence[T]:
        """The objects for which *index* gives *value*."""
        if index not in self._indexers:
            raise KeyError(f"no index {index!r}; there are: {', '.join(self._indexers) or 'none'}")
        return [self._entries[key].obj for key in self._index.get((index, value), ())]

    # -- news ----------------------------------------------------------------------------------------------------

    def event(self, type_: EventType, obj: T, now: float) -> Sequence[Change[T]]:
        """A watch event (not a bookmark)."""
        meta = self._meta(obj)
        self._as_of = version_order(meta.resource_version)
        entry = self._entries.get(meta.key)
        if type_ is EventType.DELETED:
            return self._deleted(meta, entry, now)
        if entry is None and self._buried(meta.uid, now):
            return ()
        return self._upsert(obj, meta, entry, now)

    def listed(self, objects: Sequence[T], version: str, now: float) -> Sequence[Change[T]]:
        """A complete list as of *version*; also emits the deletions that were missed."""
        changes: list[Change[T]] = []
        present = set()
        for obj in objects:
            meta = self._meta(obj)
            present.add(meta.key)
            entry = self._entries.get(meta.key)
            if entry is None and self._buried(meta.uid, now):
                continue
            changes += self._upsert(obj, meta, entry, now)
        self._as_of = listed_at = version_order(version)
        for key in [key for key in self._entries if key not in present]:
            entry = self._entries[key]
            if now < entry.own_until and entry.order > listed_at:
                continue
            changes += self._remove(key, entry, now)
        return changes

    def answered(self, obj: T, now: float) -> Sequence[Change[T]]:
        """The answer to a write or live read of ours."""
        if self._selects is not None and not self._selects(obj):
            return ()
        meta = self._meta(obj)
        entry = self._entries.get(meta.key)
        order = version_order(meta.resource_version)
        if order <= self._as_of or now < self._tombstones.get(meta.uid, 0.0):
            return ()
        if entry is not None and order <= entry.order:
            return ()
        return self._put(obj, meta, entry, own_until=now + OWN_ANSWER_RANK, now=now)

    def gone(self, key: Key, uid: str, now: float) -> Sequence[Change[T]]:
        """A live read or delete of ours said that the object *uid* does not exist any more."""
        entry = self._entries.get(key)
        if entry is None or entry.uid != uid:
            return ()
        return self._remove(key, entry, now)

    # -- the rules -----------------------------------------------------------------------------------------------

    def _upsert(self, obj: T, meta: Meta, entry: _Entry[T] | None, now: float) -> Sequence[Change[T]]:
        order = version_order(meta.resource_version)
        if entry is not None:
            if entry.uid == meta.uid and order == entry.order:
                return ()
            if order < entry.order and now < entry.own_until:
                return ()
        return self._put(obj, meta, entry, own_until=0.0, now=now)

    def _deleted(self, meta: Meta, entry: _Entry[T] | None, now: float) -> Sequence[Change[T]]:
        if entry is None:
            self._bury(meta.uid, now)
            return ()
        if entry.uid != meta.uid:
            return ()
        if version_order(meta.resource_version) < entry.order and now < entry.own_until:
            return ()
        return self._remove(meta.key, entry, now)

    def _put(self, obj: T, meta: Meta, entry: _Entry[T] | None, *, own_until: float, now: float) -> Sequence[Change[T]]:
        changes: list[Change[T]] = []
        if entry is not None and entry.uid != meta.uid:
            changes += self._remove(meta.key, entry, now)
            entry = None
        indexed = self._values(obj)
        if entry is None:
            self._entries[meta.key] = _Entry(obj, meta.uid, version_order(meta.resource_version), own_until, indexed)
            self._link(meta.key, (), indexed)
            changes.append(Change(None, obj))
            return changes
        changes.append(Change(entry.obj, obj))
        self._link(meta.key, entry.indexed, indexed)
        entry.obj, entry.order, entry.own_until, entry.indexed = (
            obj,
            version_order(meta.resource_version),
            own_until,
            indexed,
        )
        return changes

    def _remove(self, key: Key, entry: _Entry[T], now: float) -> Sequence[Change[T]]:
        del self._entries[key]
        self._link(key, entry.indexed, ())
        self._bury(entry.uid, now)
        return (Change(entry.obj, None),)

    def _bury(self, uid: str, now: float) -> None:
        self._tombstones.pop(uid, None)
        self._tombstones[uid] = now + TOMBSTONE_LIFE
        while (oldest := next(iter(self._tombstones))) != uid and self._tombstones[oldest] <= now:
            del self._tombstones[oldest]

    def _buried(self, uid: str, now: float) -> bool:
        """True for news of an object that we know to be gone; from the watch that holds as long as an answer ranks."""
        return now < self._tombstones.get(uid, 0.0) - TOMBSTONE_LIFE + OWN_ANSWER_RANK

    def _values(self, obj: T) -> tuple[tuple[str, Hashable], ...]:
        found: list[tuple[str, Hashable]] = []
        for name, indexer in self._indexers.items():
            try:
                found += [(name, value) for value in indexer(obj)]
            except Exception:  # noqa: BLE001 - logged whole
                # An object of a form nobody foresaw must not stop the others; it is kept, only not under this index.
                self.index_errors += 1
                _log.warning("object cannot be indexed", index=name, key=str(self._meta(obj).key), exc_info=True)
        return tuple(found)

    def _link(self, key: Key, old: tuple[tuple[str, Hashable], ...], new: tuple[tuple[str, Hashable], ...]) -> None:
        if old == new:
            return
        for value in old:
            keys = self._index[value]
            keys.pop(key, None)
            if not keys:
                del self._index[value]
        for value in new:
            self._index.setdefault(value, {})[key] = None
