"""Which kinds are served now, and where their objects are kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from weakref import WeakKeyDictionary

from kargo_py.local.apiserver.fieldtypes import Types
from kargo_py.local.apiserver.kinds import Kind
from kargo_py.local.apiserver.store import Collection, Store

_types: WeakKeyDictionary[Kind, Types] = WeakKeyDictionary()  # of all servers: tests make many that share their kinds


class Catalogue:
    """Kinds by group, version and plural, in the order they came; ``generation`` counts the changes."""

    def __init__(self, store: Store, kinds: Iterable[Kind]) -> None:
        self._store = store
        self._kinds: dict[tuple[str, str, str], Kind] = {}
        self.generation = 0
        self.install(kinds)

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """The kind that a path means."""
        return self._kinds.get((group, version, plural))

    @property
    def kinds(self) -> Sequence[Kind]:
        """All kinds."""
        return tuple(self._kinds.values())

    def versions(self, kind: Kind) -> Sequence[Kind]:
        """All versions that *kind* is served in."""
        return [one for one in self._kinds.values() if (one.group, one.plural) == (kind.group, kind.plural)]

    def named(self, group: str, kind: str) -> Kind | None:
        """The kind with a name, as references to objects have it, in whichever version comes first."""
        return next((one for one in self._kinds.values() if (one.group, one.kind) == (group, kind)), None)

    def install(self, kinds: Iterable[Kind]) -> None:
        """Serve *kinds* from now on."""
        for kind in kinds:
            self._kinds[kind.group, kind.version, kind.plural] = kind
            if kind.view_of is None and kind.answer is None:
                self._store.collection(kind.group, kind.plural)  # its history begins now
        self.generation += 1

    def remove(self, group: str, plural: str) -> None:
        """Serve no version of a resource any more."""
        gone = [key for key in self._kinds if (key[0], key[2]) == (group, plural)]
        for key in gone:
            del self._kinds[key]
        self.generation += 1

    def base(self, kind: Kind) -> Kind:
        """The kind that objects of *kind* are kept as."""
        if kind.view_of is None:
            return kind
        found = self.find(kind.view_of.group, kind.view_of.version, kind.view_of.plural)
        assert found is not None, f"{kind.qualified} shows objects of a kind that is not served"  # noqa: S101 - a fault of ours if not
        return found

    def collection(self, kind: Kind) -> Collection:
        """Where the objects of *kind* are."""
        base = self.base(kind)
        return self._store.collection(base.group, base.plural)

    def types(self, kind: Kind) -> Types:
        """The kind's schema as field management needs it."""
        types = _types.get(kind)
        if types is None:
            types = _types[kind] = Types.of(kind.schema)
        return types
