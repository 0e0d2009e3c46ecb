"""Objects of files as a client reads them, and of a cluster those that no file has."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, TypeVar, cast

from kargo_py.api.types import JsonObject
from kargo_py.controllers.lookups import CONFIG_MAPS, SECRETS
from kargo_py.controllers.world import CLUSTER_TASKS, FREIGHTS, STAGES, TASKS
from kargo_py.engine.problems import written
from kargo_py.kube.client import Client, Codec
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.errors import Forbidden, NotFound
from kargo_py.kube.resources import Key, Resource
from kargo_py.messages import Shown, message
from kargo_py.offline.crossing import Objects, objects
from kargo_py.offline.manifests import Manifest

IN_NO_FILE = message(
    '{kind} "{name}" is in none of the files',
    do="Add the file that has it with `-f`, or let it be read from the cluster with `--live`.",
    shown=Shown.LINT,
)
MAY_NOT_READ = message(
    '{kind} "{name}" may not be read: {why}',
    do="Use a kubeconfig with that right, or add a file that has the object with `-f`.",
    shown=Shown.LINT,
)

STATUS_IN_NO_FILE = message(
    'the status of {kind} "{name}" is not in its file',
    do="Put the `status` into the file, or let it be read from the cluster with `--live`.",
    shown=Shown.LINT,
)
NO_TEXT = message(
    "{object}: {path} must be a text, in quotes ({place})",
    do="An API server refuses the object. `data` of a ConfigMap and `stringData` of a Secret have only texts: put "
    "numbers and booleans in quotes.",
    shown=Shown.LINT,
)
NO_BASE64 = message(
    "{object}: {path} must be base64 ({place})",
    do="An API server refuses the Secret. Put plain text into `stringData`.",
    shown=Shown.LINT,
)

_READ: Final = {one.kind: one for one in (STAGES, FREIGHTS, TASKS, CLUSTER_TASKS, CONFIG_MAPS, SECRETS)}

_WITH_STATUS: Final = frozenset({STAGES.kind, FREIGHTS.kind})
_PAGE: Final = 500

T = TypeVar("T")


class NotKnown(Exception):
    """What is asked for cannot be known here; the text says why."""


class Shelf:
    """Reads as a client does: from files, and from *live* what they lack."""

    def __init__(self, manifests: Iterable[Manifest], live: Client | None = None) -> None:
        kept = (one for one in manifests if (known := _READ.get(one.kind)) and known.api_version == one.api_version)
        self._files: Objects = objects(kept)
        self._live = live
        self.live = live is not None

    def manifest(self, kind: str, name: str, namespace: str) -> Manifest | None:
        """The file's object of that name."""
        return self._files.find(kind, name, "" if kind == CLUSTER_TASKS.kind else namespace)

    async def get(self, resource: Resource, key: Key, *, codec: Codec[T]) -> T:
        """One object. Raises NotKnown, and KubeError of a cluster."""
        found = self.manifest(resource.kind, key.name, key.namespace)
        if found is None:
            if self._live is None:
                raise NotKnown(IN_NO_FILE(kind=resource.kind, name=key.name))
            return await self._get_live(resource, key, codec)
        there: JsonObject | None = None
        if self._lacks_status(found) and self._live is not None:
            with suppress(NotKnown):  # what the status would say is then not known, and told where it is needed
                there = await self._there(resource, key)
        return codec.object(encode(_as_served(found, key, there)))

    async def get_with_status(self, resource: Resource, key: Key, *, codec: Codec[T]) -> T:
        """One object of which the status is wanted. Raises NotKnown, and KubeError of a cluster."""
        found = self.manifest(resource.kind, key.name, key.namespace)
        if found is None or not self._lacks_status(found):
            return await self.get(resource, key, codec=codec)
        if self._live is None:
            raise NotKnown(STATUS_IN_NO_FILE(kind=resource.kind, name=key.name))
        return codec.object(encode(_as_served(found, key, await self._there(resource, key))))

    async def _there(self, resource: Resource, key: Key) -> JsonObject | None:
        """The cluster's object, None if it has none. Raises NotKnown and KubeError."""
        try:
            return await self._get_live(resource, key, JSON)
        except NotFound as error:
            if error.resource_missing:
                raise
            return None

    async def _get_live(self, resource: Resource, key: Key, codec: Codec[T]) -> T:
        assert self._live is not None  # noqa: S101  (asked by who has looked)
        try:
            return await self._live.get(resource, key, codec=codec)
        except Forbidden as error:
            raise NotKnown(MAY_NOT_READ(kind=resource.kind, name=key.name, why=error.message)) from error

    @staticmethod
    def _lacks_status(manifest: Manifest) -> bool:
        return manifest.kind in _WITH_STATUS and "status" not in manifest.value

    async def list(self, resource: Resource, namespace: str) -> list[JsonObject]:
        """All of a namespace, those of files in the place of the cluster's. Raises KubeError of a cluster."""
        found: dict[str, JsonObject] = {}
        token, first = "", True
        while self._live is not None and (first or token):
            page = await self._live.list(resource, namespace, codec=JSON, limit=_PAGE, continue_token=token)
            found |= {one["metadata"]["name"]: one for one in page.items}
            token, first = page.continue_token, False
        for manifest in self._files.by_kind.get(resource.kind, ()):
            if manifest.name and (manifest.namespace in {namespace, ""} or not namespace):
                there = found.get(manifest.name)
                found[manifest.name] = _as_served(manifest, Key(namespace, manifest.name), there)
        return [*found.values()]

    def as_client(self) -> Client:
        """For who reads one object after the other, of Stages and Freight for what their status says."""
        return cast("Client", _Reading(self))


class _Reading:
    def __init__(self, shelf: Shelf) -> None:
        self.get = shelf.get_with_status


def _as_served(manifest: Manifest, key: Key, there: JsonObject | None = None) -> JsonObject:
    """As an API server gives it back: with its namespace, and all data of a Secret in one form. Raises NotKnown.

    What an author does not write is that of the cluster's object, *there*: the status, and since when it is there.
    """
    metadata = {"namespace": key.namespace, **manifest.value["metadata"]}
    value = {**manifest.value, "metadata": metadata}
    if there is not None:
        created = there["metadata"].get("creationTimestamp")
        value["metadata"] = ({"creationTimestamp": created} if created else {}) | metadata
        value = ({"status": there["status"]} if "status" in there else {}) | value
    if manifest.kind in {CONFIG_MAPS.kind, SECRETS.kind}:
        plain = _texts(manifest, "stringData") if manifest.kind == SECRETS.kind else {}
        value["data"] = _texts(manifest, "data") | {
            name: base64.b64encode(text.encode()).decode() for name, text in plain.items()
        }
    return value


def _texts(manifest: Manifest, field: str) -> dict[str, str]:
    """What stands in a field that has texts by names; raises NotKnown if it is no such thing."""
    value = manifest.value.get(field) or {}
    for name, text in value.items() if isinstance(value, dict) else [("", None)]:
        path = (field, name) if name else (field,)
        if not isinstance(text, str) or (manifest.kind == SECRETS.kind and field == "data" and not _is_base64(text)):
            where, place = written(path), manifest.place(path)
            if field == "data" and manifest.kind == SECRETS.kind:
                raise NotKnown(NO_BASE64(object=manifest.title, path=where, place=place))
            raise NotKnown(NO_TEXT(object=manifest.title, path=where, place=place))
    return dict(value)


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        return False
    return True
