"""CustomResourceDefinitions at work: what a write of one installs, changes and removes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from kargo_py.local.apiserver.background import Background
from kargo_py.local.apiserver.catalogue import Catalogue
from kargo_py.local.apiserver.crdkinds import kinds_of
from kargo_py.local.apiserver.crdstatus import condition, established
from kargo_py.local.apiserver.kinds import DEFINITIONS, Kind
from kargo_py.local.apiserver.options import DeleteOptions, WriteOptions
from kargo_py.local.apiserver.store import Event, Store, Stored
from kargo_py.local.apiserver.views import private
from kargo_py.local.apiserver.wire import JsonObject
from kargo_py.local.apiserver.writing import CLEANUP, Target, Writer, stamp

_OPTIONS: Final = WriteOptions(manager="kube-apiserver")


class Definitions:
    """Follows the CustomResourceDefinitions in the store."""

    def __init__(
        self, store: Store, catalogue: Catalogue, writer: Writer, background: Background, now: Callable[[], datetime]
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._writer = writer
        self._background = background
        self._now = now
        self._served: dict[str, JsonObject] = {}
        """What is served, by the definition's name."""

    def observe(self, event: Event) -> None:
        """Serve, or stop serving, what *event* says; look after definitions that are being deleted."""
        collection = event.collection
        if (collection.group, collection.plural) == DEFINITIONS:
            if event.change == "DELETED":
                self._gone(event.stored)
            else:
                self._written(event.stored)
            return
        if event.change == "DELETED":
            name = f"{collection.plural}.{collection.group}"
            if name in self._served:
                self._clean_soon(name)

    def _written(self, stored: Stored) -> None:
        crd = stored.obj
        name = crd["metadata"]["name"]
        if "deletionTimestamp" in crd["metadata"]:
            self._clean_soon(name)
            return
        if self._is_stale(stored):
            return
        others = [other.obj for other in self._store.collection(*DEFINITIONS).items.values() if other is not stored]
        judged = established(crd, stamp(self._now()), others)
        if judged.get("status") != crd.get("status"):
            self._write_status(stored, judged["status"])
        if condition(judged, "Established") == "True":
            self._serve(name, judged)

    def _is_stale(self, stored: Stored) -> bool:
        return self._store.collection(*DEFINITIONS).items.get(stored.key) is not stored

    def _serve(self, name: str, crd: JsonObject) -> None:
        before = self._served.get(name)
        served = {"spec": crd["spec"], "names": crd["status"]["acceptedNames"]}
        if before == served:
            return
        self._served[name] = served
        group, plural = crd["spec"]["group"], crd["spec"]["names"]["plural"]
        self._catalogue.remove(group, plural)
        self._catalogue.install(kinds_of(crd))
        if before is not None:
            self._store.reopen(self._store.collection(group, plural))

    def _write_status(self, stored: Stored, status: JsonObject) -> None:
        obj = private(stored)
        obj["status"] = status
        self._writer.update(Target(stored.kind, "", obj["metadata"]["name"], "status"), obj, _OPTIONS)

    def _clean_soon(self, name: str) -> None:
        self._background.soon(("definition", name), lambda: self._clean(name))

    def _clean(self, name: str) -> None:
        """Delete the objects of a definition that is being deleted; when there are none, let it go."""
        stored = self._store.collection(*DEFINITIONS).items.get(name)
        if stored is None or "deletionTimestamp" not in stored.obj["metadata"]:
            return
        if CLEANUP not in stored.obj["metadata"].get("finalizers", ()):
            return
        spec = stored.obj["spec"]
        collection = self._store.collection(spec["group"], spec["names"]["plural"])
        kind = self._kind(spec)
        if kind is not None:
            for item in collection.all():
                metadata = item.obj["metadata"]
                if "deletionTimestamp" not in metadata:
                    self._writer.delete(Target(kind, metadata.get("namespace", ""), metadata["name"]), DeleteOptions())
            if collection.items:
                return
        obj = private(stored)
        kept = [finalizer for finalizer in obj["metadata"]["finalizers"] if finalizer != CLEANUP]
        obj["metadata"]["finalizers"] = kept
        self._writer.update(Target(stored.kind, "", name), obj, _OPTIONS)

    def _kind(self, spec: JsonObject) -> Kind | None:
        found = (
            self._catalogue.find(spec["group"], version["name"], spec["names"]["plural"])
            for version in spec["versions"]
        )
        return next((kind for kind in found if kind is not None), None)

    def _gone(self, stored: Stored) -> None:
        spec = stored.obj["spec"]
        if self._served.pop(stored.obj["metadata"]["name"], None) is not None:
            self._catalogue.remove(spec["group"], spec["names"]["plural"])
            self._store.drop(self._store.collection(spec["group"], spec["names"]["plural"]))
