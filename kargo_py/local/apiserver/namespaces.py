"""Namespaces that are being deleted: their contents go first, then they do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Final

from kargo_py.local.apiserver.background import Background
from kargo_py.local.apiserver.catalogue import Catalogue
from kargo_py.local.apiserver.garbage import MANAGER
from kargo_py.local.apiserver.kinds import NAMESPACES, Kind
from kargo_py.local.apiserver.objectmeta import KUBERNETES_FINALIZER
from kargo_py.local.apiserver.options import DeleteOptions, WriteOptions
from kargo_py.local.apiserver.store import Event, Store, Stored
from kargo_py.local.apiserver.views import private
from kargo_py.local.apiserver.wire import JsonObject
from kargo_py.local.apiserver.writing import Target, Writer, stamp

INITIAL: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_OPTIONS: Final = WriteOptions(manager=MANAGER)


class Namespaces:
    """Follows the namespaces in the store."""

    def __init__(
        self, store: Store, catalogue: Catalogue, writer: Writer, background: Background, now: Callable[[], datetime]
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._writer = writer
        self._background = background
        self._now = now
        self._leaving: dict[str, None] = {}

    def observe(self, event: Event) -> None:
        """Queue what a deletion of, or in, a namespace asks for."""
        metadata = event.stored.obj["metadata"]
        if (event.collection.group, event.collection.plural) == NAMESPACES:
            name = metadata["name"]
            if event.change == "DELETED":
                self._leaving.pop(name, None)
            elif "deletionTimestamp" in metadata:
                self._leaving[name] = None
                self._empty_soon(name)
        elif self._leaving and metadata.get("namespace") in self._leaving:
            self._empty_soon(metadata["namespace"])

    def _empty_soon(self, name: str) -> None:
        self._background.soon(("namespace", name), lambda: self._empty(name))

    def _empty(self, name: str) -> None:
        stored = self._store.collection(*NAMESPACES).items.get(name)
        if stored is None or "deletionTimestamp" not in stored.obj["metadata"]:
            return
        if KUBERNETES_FINALIZER not in stored.obj["spec"].get("finalizers", ()):
            return
        for kind, item in self._contents(name):
            if "deletionTimestamp" not in item.obj["metadata"]:
                self._writer.delete(Target(kind, name, item.obj["metadata"]["name"]), DeleteOptions())
        left = list(self._contents(name))
        if left:
            self._tell(stored, left)
        else:
            obj = private(stored)
            kept = [one for one in obj["spec"]["finalizers"] if one != KUBERNETES_FINALIZER]
            obj["spec"]["finalizers"] = kept
            self._writer.update(Target(stored.kind, "", name, "finalize"), obj, _OPTIONS)

    def _contents(self, namespace: str) -> Iterator[tuple[Kind, Stored]]:
        seen: set[tuple[str, str]] = set()
        for kind in self._catalogue.kinds:
            resource = kind.group, kind.plural
            if not kind.namespaced or kind.view_of or kind.answer or resource in seen:
                continue
            seen.add(resource)
            for item in self._catalogue.collection(kind).all(namespace):
                yield kind, item

    def _tell(self, stored: Stored, left: list[tuple[Kind, Stored]]) -> None:
        """Write into the namespace's status what it waits for."""
        obj = private(stored)
        moment = stamp(self._now())
        before = {one["type"]: one for one in obj["status"].get("conditions", ())}
        conditions = []
        for new in _conditions(left):
            old = before.get(new["type"])
            same = old is not None and old["status"] == new["status"]
            conditions.append({**new, "lastTransitionTime": old["lastTransitionTime"] if old and same else moment})
        obj["status"]["conditions"] = conditions
        self._writer.update(Target(stored.kind, "", obj["metadata"]["name"], "status"), obj, _OPTIONS)


def _conditions(left: list[tuple[Kind, Stored]]) -> list[JsonObject]:
    """As the namespace controller words them."""
    resources: dict[str, int] = {}
    finalizers: dict[str, int] = {}
    for kind, item in left:
        resources[kind.qualified] = resources.get(kind.qualified, 0) + 1
        for finalizer in item.obj["metadata"].get("finalizers", ()):
            finalizers[finalizer] = finalizers.get(finalizer, 0) + 1
    told = ", ".join(f"{name} has {count} resource instances" for name, count in sorted(resources.items()))
    held = ", ".join(f"{name} in {count} resource instances" for name, count in sorted(finalizers.items()))
    fine = (
        ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
        ("NamespaceDeletionGroupVersionParsingFailure", "ParsedGroupVersions",
         "All legacy kube types successfully parsed"),
        ("NamespaceDeletionContentFailure", "ContentDeleted",
         "All content successfully deleted, may be waiting on finalization"),
    )  # fmt: skip
    conditions = [
        {"type": name, "status": "False", "reason": reason, "message": message} for name, reason, message in fine
    ]
    remaining = f"Some resources are remaining: {told}"
    conditions.append(
        {"type": "NamespaceContentRemaining", "status": "True", "reason": "SomeResourcesRemain", "message": remaining}
    )
    if held:
        message = f"Some content in the namespace has finalizers remaining: {held}"
        conditions.append(
            {
                "type": "NamespaceFinalizersRemaining",
                "status": "True",
                "reason": "SomeFinalizersRemain",
                "message": message,
            }
        )
    return conditions
