"""What a cache holds, and the rules by which news from three sources is put together. Pure and synchronous.

The sources: *lists* and *watch events*, in the server's order but late; and the *answers* to our own writes and reads,
which may be newer than anything the watch has shown so far, and may themselves arrive late. The rules:

* An answer goes in at once and is told like a watch event; the watch event of the same version is dropped, and so are
  older ones. After :data:`MEMORY` seconds the watch wins again whatever it says.
* An answer that is not newer than what lists and watch have reached is old news, whatever it says.
* What is known to be gone is not resurrected by older news: for a while it is remembered as of which version a key was
  vacant, and which uid will never be seen again. Newer news is good news: an object that left the selection can return.
* Another uid is another object; the one with the newer version is the one that exists.
* A list is the truth as of its version, whatever was known before it was asked for: what it shows is there, also if
  that was thought gone or was newer, and what it does not show is gone. Only an answer newer than the list, and a death
  learned after it was asked for, stand against it. So a server that was restored from a backup is believed, also if its
  versions have caught up with ours or jumped ahead of them.
* A list older than what was known when it was asked for means that the server's history was rewound: all that is known
  is given up in favour of the list.

Versions are compared within one resource only, by length then text, which is the order of the numbers they are
(KEP-5504 makes that official).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
"""Seconds for which what our own requests told us outranks the watch.

A compromise: late answers, and a watch that lags behind them, are a matter of seconds as a rule, but nothing bounds
them; and as long as this lasts, the watch of a server that was restored unnoticed is not believed. News that an answer
loses its rank to is marked as going backwards.
"""

_REMEMBERED = 2 * MEMORY
"""Seconds for which it is known of news that it is older than a burial; what is older still looks like any other."""

_BURIALS_KEPT = 16
"""How many burials of one key are kept at most."""

Order: TypeAlias = tuple[int, str]

_log = structlog.get_logger(__name__)


def version_order(version: str) -> Order:
    """Sort key of a resourceVersion."""
    return (len(version), version)


_NO_VERSION = version_order("")


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """One change to tell the handlers; ``old`` None: new, ``new`` None: gone.

    ``backwards``: this is older than what was told before. Either the watch is far behind an own answer, or the server
    was restored from a backup; nobody should rest a decision on it.

    ``leap``: what lies between old and new is not known, since this goes backwards, or a list showed it after a time
    without a watch. It may be anybody's doing: who watches for some changes only should take this for one of them.
    """

    key: Key
    old: T | None
    new: T | None
    backwards: bool = False
    leap: bool = False


@dataclass(slots=True)
class _Entry:
    """What is known of an object beside itself: since when, and whether by an own answer, which outranks the watch."""

    uid: str
    order: Order
    since: float
    own: bool
    indexed: Sequence[tuple[str, Hashable]]

    def outranks(self, order: Order, now: float) -> bool:
        return self.own and order < self.order and now < self.since + MEMORY


@dataclass(frozen=True, slots=True)
class _Burial:
    """What was learned at ``at`` of a vacant key: news up to version ``order``, or any of the uid ``dead``, is old.

    ``since``: when that version was learned.
    """

    order: Order
    dead: str
    at: float
    since: float

    def covers(self, uid: str, order: Order) -> bool:
        return order <= self.order or uid == self.dead

    def stands_against(self, uid: str, *, listed_at: Order, began: float) -> bool:
        """Whether it is newer than a list as of *listed_at*, asked for at *began*, that shows the object *uid*."""
        return self.order > listed_at or (uid == self.dead and self.at >= began)

    def makes_needless(self, earlier: _Burial) -> bool:
        return earlier.order <= self.order and earlier.dead in {"", self.dead}


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
        self._buried: dict[Key, tuple[_Burial, ...]] = {}
        self._burials: deque[tuple[float, Key]] = deque()
        self._as_of = _NO_VERSION
        self._answered = _NO_VERSION
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

    def order(self, key: Key) -> Order:
        """The version of the object; older than any if there is none, or if it is of a history that was rewound."""
        entry = self._entries.get(key)
        return entry.order if entry is not None else _NO_VERSION

    def keys(self) -> Sequence[Key]:
        """All keys, as they are now."""
        return list(self._objects)

    def values(self) -> Sequence[T]:
        """All objects, as they are now."""
        return list(self._objects.values())

    @property
    def furthest(self) -> Order:
        """The newest version that any news has shown; no list asked for from now on may be older."""
        return max(self._as_of, self._answered)

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
        return self._shown(obj, meta, now)

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
            self._rewind(listed_at, known, began)
        self._answered = max(self._answered, listed_at)
        present = set()
        for obj in objects:
            meta = self._meta(obj)
            present.add(meta.key)
            yield self._listed(obj, meta, listed_at, began)
        # What an answer from before the list has put in meanwhile is removed like the rest.
        while stale := [k for k, e in self._entries.items() if k not in present and e.order <= listed_at]:
            for key in stale:
                entry = self._entries.get(key)
                if entry is not None and entry.order <= listed_at:
                    yield self._remove(key, entry, listed_at, began, leap=True)
        self._as_of = listed_at
        self._forget_burials(began)

    def answered(self, obj: T, now: float) -> Sequence[Change[T]]:
        """The answer to a write or live read of ours."""
        meta = self._meta(obj)
        order = version_order(meta.resource_version)
        entry = self._entries.get(meta.key)
        self._answered = max(self._answered, order)
        if order <= self._as_of or (entry is not None and order <= entry.order):
            return ()
        if any(burial.at + MEMORY > now for burial in self._burials_over(meta, now)):
            return ()
        if self._selects is None or self._selects(obj):
            return self._put(obj, meta, now, own=True)
        if entry is not None:
            return self._remove(meta.key, entry, order, now)
        self._bury(meta.key, _Burial(order, "", now, since=now))
        return ()

    def gone(self, key: Key, uid: str, now: float) -> Sequence[Change[T]]:
        """A live read or delete of ours said that the object *uid* does not exist any more, and so never will again.

        An empty *uid* says nothing: an object that was not known before may have been created meanwhile.
        """
        if not uid:
            return ()
        entry = self._entries.get(key)
        if entry is None:
            self._bury(key, _Burial(_NO_VERSION, uid, now, since=now))
        elif entry.uid == uid:
            return self._remove(key, entry, entry.order, now, dead=uid)
        return ()

    # -- the rules -----------------------------------------------------------------------------------------------

    def _shown(self, obj: T, meta: Meta, now: float) -> Sequence[Change[T]]:
        """An event that is no deletion shows *obj*."""
        order = version_order(meta.resource_version)
        entry = self._entries.get(meta.key)
        if entry is not None:
            if order == entry.order and meta.uid == entry.uid:
                entry.own = False
                return ()
            if entry.outranks(order, now):
                return ()
        burials = self._burials_over(meta, now)
        if any(burial.at + MEMORY > now for burial in burials):
            return ()
        backwards = bool(burials) or (entry is not None and order < entry.order)
        return self._put(obj, meta, now, backwards=backwards, leap=backwards)

    def _listed(self, obj: T, meta: Meta, listed_at: Order, began: float) -> Sequence[Change[T]]:
        """A list as of *listed_at*, asked for at *began*, shows *obj*."""
        order = version_order(meta.resource_version)
        entry = self._entries.get(meta.key)
        if entry is not None:
            if entry.order > listed_at:
                return ()
            if meta.uid == entry.uid and obj == self._objects[meta.key]:
                entry.order, entry.own = order, False
                return ()
        burials = self._burials_over(meta, began)
        if any(b.stands_against(meta.uid, listed_at=listed_at, began=began) for b in burials):
            return ()
        backwards = bool(burials) or (entry is not None and order < entry.order)
        leap = backwards or entry is not None
        return self._put(obj, meta, began, backwards=backwards, leap=leap)

    def _deleted(self, meta: Meta, now: float) -> Sequence[Change[T]]:
        order = version_order(meta.resource_version)
        entry = self._entries.get(meta.key)
        if entry is None or entry.uid != meta.uid or entry.outranks(order, now):
            return ()
        return self._remove(meta.key, entry, order, now)

    def _put(
        self,
        obj: T,
        meta: Meta,
        now: float,
        *,
        own: bool = False,
        backwards: bool = False,
        leap: bool = False,
    ) -> Sequence[Change[T]]:
        changes: list[Change[T]] = []
        order = version_order(meta.resource_version)
        entry = self._entries.get(meta.key)
        if entry is not None and entry.uid != meta.uid:
            changes += self._remove(meta.key, entry, order, now, leap=leap)
            entry = None
        indexed = self._index_values(obj, meta.key)
        self._link(meta.key, entry.indexed if entry is not None else (), indexed)
        changes.append(Change(meta.key, self._objects.get(meta.key), obj, backwards, leap))
        self._objects[meta.key] = obj
        self._entries[meta.key] = _Entry(meta.uid, order, now, own, indexed)
        return changes

    def _remove(
        self, key: Key, entry: _Entry, order: Order, now: float, *, dead: str = "", leap: bool = False
    ) -> Sequence[Change[T]]:
        backwards = order < entry.order
        old = self._objects.pop(key)
        del self._entries[key]
        self._link(key, entry.indexed, ())
        if self._not_indexed:
            self._not_indexed.difference_update([(name, key) for name in self._indexers])
        self._bury(key, _Burial(order, dead, now, since=entry.since if dead else now))
        return (Change(key, old, None, backwards, leap or backwards),)

    def _bury(self, key: Key, burial: _Burial) -> None:
        earlier = [each for each in self._buried.get(key, ()) if not burial.makes_needless(each)]
        self._buried[key] = (*earlier, burial)[-_BURIALS_KEPT:]
        self._burials.append((burial.at, key))
        while self._burials[0][0] + _REMEMBERED <= burial.at:
            _, old = self._burials.popleft()
            if left := [each for each in self._buried.get(old, ()) if each.at + _REMEMBERED > burial.at]:
                self._buried[old] = tuple(left)
            else:
                self._buried.pop(old, None)

    def _forget_burials(self, began: float) -> None:
        """Forget the burials before a list: no older news than the list will come, and no other may be held back."""
        for key, burials in list(self._buried.items()):
            if left := tuple(burial for burial in burials if burial.at >= began):
                self._buried[key] = left
            else:
                del self._buried[key]

    def _burials_over(self, meta: Meta, now: float) -> Sequence[_Burial]:
        """The burials that make news of that object old, if they are remembered *now*."""
        order = version_order(meta.resource_version)
        return [
            burial
            for burial in self._buried.get(meta.key, ())
            if burial.covers(meta.uid, order) and burial.at + _REMEMBERED > now
        ]

    def _rewind(self, listed_at: Order, known: Order, began: float) -> None:
        """What was shown, answered and buried before *began* belongs to a history that did not happen."""
        _log.warning(HISTORY_REWOUND(), seen=known[1], now=listed_at[1])
        # Until the list is in, what an answer says is no old news, whatever its version.
        self._as_of = _NO_VERSION
        for key, burials in list(self._buried.items()):
            kept = [burial for burial in burials if burial.at >= began]
            self._buried[key] = tuple(b if b.since >= began else replace(b, order=_NO_VERSION) for b in kept)
        for entry in self._entries.values():
            if not (entry.own and entry.since >= began):
                # The same version may have another content now.
                entry.order = _NO_VERSION
        orders = [each.order for burials in self._buried.values() for each in burials]
        self._answered = max([_NO_VERSION, *orders, *(entry.order for entry in self._entries.values())])

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
