"""Garbage collection by ownerReferences, as the controller-manager's: in the background, orphaning, foreground.

An object goes when all of its owners that can be looked up are gone. References to kinds that are not served here are
left alone, as the real collector leaves those that it cannot resolve.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kargo_py.local.apiserver.background import Background
from kargo_py.local.apiserver.catalogue import Catalogue
from kargo_py.local.apiserver.kinds import Kind
from kargo_py.local.apiserver.objectmeta import FOREGROUND, ORPHAN
from kargo_py.local.apiserver.options import DeleteOptions, WriteOptions
from kargo_py.local.apiserver.store import Event, Store, Stored
from kargo_py.local.apiserver.views import private, shown
from kargo_py.local.apiserver.wire import JsonObject
from kargo_py.local.apiserver.writing import Target, Writer

MANAGER: Final = "kube-controller-manager"
_OPTIONS: Final = WriteOptions(manager=MANAGER)


class Place(NamedTuple):
    """Where an object is."""

    group: str
    plural: str
    key: str


class GarbageCollector:
    """Knows who owns whom, and acts on it."""

    def __init__(self, store: Store, catalogue: Catalogue, writer: Writer, background: Background) -> None:
        self._store = store
        self._catalogue = catalogue
        self._writer = writer
        self._background = background
        self._dependents: dict[str, dict[Place, None]] = {}
        self._owners: dict[str, Place] = {}

    def observe(self, event: Event) -> None:
        """Note what *event* changes, and queue what it asks for."""
        stored, previous = event.stored, event.previous
        place = Place(event.collection.group, event.collection.plural, stored.key)
        metadata = stored.obj["metadata"]
        old = previous.obj["metadata"].get("ownerReferences", ()) if previous else ()
        new = metadata.get("ownerReferences", ()) if event.change != "DELETED" else ()
        if old or new:
            self._note_owners(place, [ref["uid"] for ref in old], [ref["uid"] for ref in new])
        if event.change == "DELETED":
            self._gone(metadata["uid"], [ref["uid"] for ref in old])
            return
        self._owners[metadata["uid"]] = place
        if new and new != old:
            self._look_at(place)
        if "deletionTimestamp" in metadata and {ORPHAN, FOREGROUND}.intersection(metadata.get("finalizers", ())):
            self._release_soon(place)

    def _note_owners(self, place: Place, old: list[str], new: list[str]) -> None:
        for uid in old:
            if uid not in new and uid in self._dependents:
                self._dependents[uid].pop(place, None)
                if not self._dependents[uid]:
                    del self._dependents[uid]
        for uid in new:
            self._dependents.setdefault(uid, {})[place] = None

    def _gone(self, uid: str, owners: list[str]) -> None:
        self._owners.pop(uid, None)
        for place in self._dependents.get(uid, ()):
            self._look_at(place)
        for owner in owners:
            if there := self._owners.get(owner):
                self._release_soon(there)

    def _look_at(self, place: Place) -> None:
        self._background.soon(("owners", place), lambda: self._judge(place))

    def _release_soon(self, place: Place) -> None:
        self._background.soon(("release", place), lambda: self._release(place))

    def _judge(self, place: Place) -> None:
        """Delete the object if nobody owns it any more, or take the owners that are gone off it."""
        if not (found := self._find(place)):
            return
        kind, stored = found
        metadata = stored.obj["metadata"]
        references = metadata.get("ownerReferences", [])
        state = [self._state(reference, metadata.get("namespace", "")) for reference in references]
        if not references or all(one == "there" for one in state):
            return
        target = Target(kind, metadata.get("namespace", ""), metadata["name"])
        if "there" in state:
            kept = [reference for reference, one in zip(references, state, strict=True) if one == "there"]
            self._own(target, stored, kept)
        elif "deletionTimestamp" not in metadata:
            waits = "leaving" in state and self._dependents.get(metadata["uid"])
            policy = "Foreground" if waits else None
            self._writer.delete(target, DeleteOptions(uid=metadata["uid"], policy=policy))

    def _state(self, reference: JsonObject, namespace: str) -> str:
        """Whether an owner is "there", "gone", or "leaving" as soon as its dependents have left."""
        group = reference["apiVersion"].rpartition("/")[0]
        kind = self._catalogue.named(group, reference["kind"])
        if kind is None or (kind.namespaced and not namespace):
            return "there"
        owner = self._catalogue.collection(kind).get(namespace if kind.namespaced else "", reference["name"])
        if owner is None or owner.obj["metadata"]["uid"] != reference["uid"]:
            return "gone"
        metadata = owner.obj["metadata"]
        leaving = "deletionTimestamp" in metadata and FOREGROUND in metadata.get("finalizers", ())
        return "leaving" if leaving else "there"

    def _release(self, place: Place) -> None:
        """Do for an object that is being deleted what its finalizers of the collector stand for."""
        if not (found := self._find(place)):
            return
        kind, stored = found
        metadata = stored.obj["metadata"]
        finalizers = metadata.get("finalizers", [])
        if "deletionTimestamp" not in metadata:
            return
        dependents = list(self._dependents.get(metadata["uid"], ()))
        if ORPHAN in finalizers:
            for dependent in dependents:
                self._disown(dependent, metadata["uid"])
            self._finalize(kind, stored, ORPHAN)
        elif FOREGROUND in finalizers:
            if any(self._blocks(dependent, metadata["uid"]) for dependent in dependents):
                for dependent in dependents:
                    self._look_at(dependent)
            else:
                self._finalize(kind, stored, FOREGROUND)

    def _blocks(self, place: Place, owner: str) -> bool:
        found = self._find(place)
        references = found[1].obj["metadata"].get("ownerReferences", []) if found else []
        return any(one["uid"] == owner and one.get("blockOwnerDeletion") for one in references)

    def _disown(self, place: Place, owner: str) -> None:
        if found := self._find(place):
            kind, stored = found
            metadata = stored.obj["metadata"]
            kept = [one for one in metadata.get("ownerReferences", []) if one["uid"] != owner]
            self._own(Target(kind, metadata.get("namespace", ""), metadata["name"]), stored, kept)

    def _own(self, target: Target, stored: Stored, references: list[JsonObject]) -> None:
        obj = private(stored)
        if references:
            obj["metadata"]["ownerReferences"] = references
        else:
            obj["metadata"].pop("ownerReferences", None)
        self._writer.update(target, obj, _OPTIONS)

    def _finalize(self, kind: Kind, stored: Stored, finalizer: str) -> None:
        obj = private(stored)
        metadata = obj["metadata"]
        kept = [name for name in metadata["finalizers"] if name != finalizer]
        if kept:
            metadata["finalizers"] = kept
        else:
            del metadata["finalizers"]
        self._writer.update(Target(kind, metadata.get("namespace", ""), metadata["name"]), obj, _OPTIONS)

    def _find(self, place: Place) -> tuple[Kind, Stored] | None:
        stored = self._store.collection(place.group, place.plural).items.get(place.key)
        if stored is None:
            return None
        kind = self._catalogue.find(place.group, stored.kind.version, place.plural)
        return (kind, shown(stored, kind)) if kind else None
