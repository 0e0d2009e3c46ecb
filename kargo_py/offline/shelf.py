"""Objects of files as a client reads them, and of a cluster those that no file has."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Final, TypeVar, cast

from kargo_py.api.types import JsonObject
from kargo_py.controllers.lookups import CONFIG_MAPS, SECRETS
from kargo_py.controllers.world import CLUSTER_TASKS, FREIGHTS, STAGES, TASKS
from kargo_py.kube.client import Client, Codec
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.errors import Forbidden
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

_READ: Final = {one.kind: one for one in (STAGES, FREIGHTS, TASKS, CLUSTER_TASKS, CONFIG_MAPS, SECRETS)}

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
        if found is not None:
            return codec.object(encode(_as_served(found, key)))
        if self._live is None:
            raise NotKnown(IN_NO_FILE(kind=resource.kind, name=key.name))
        try:
            return await self._live.get(resource, key, codec=codec)
        except Forbidden as error:
            raise NotKnown(MAY_NOT_READ(kind=resource.kind, name=key.name, why=error.message)) from error

    async def list(self, resource: Resource, namespace: str) -> list[JsonObject]:
        """All of a namespace, those of files in the place of the cluster's. Raises KubeError of a cluster."""
        found: dict[str, JsonObject] = {}
        token, first = "", True
        while self._live is not None and (first or token):
            page = await self._live.list(resource, namespace, codec=JSON, limit=_PAGE, continue_token=token)
            found |= {one["metadata"]["name"]: one for one in page.items}
            token, first = page.continue_token, False
        for manifest in self._files.by_kind.get(resource.kind, ()):
            if manifest.namespace in {namespace, ""} or not namespace:
                found[manifest.name] = _as_served(manifest, Key(namespace, manifest.name))
        return [*found.values()]

    def as_client(self) -> Client:
        """For who reads one object after the other, and does nothing else."""
        return cast("Client", self)


def _as_served(manifest: Manifest, key: Key) -> JsonObject:
    """As an API server gives it back: with its namespace, and all data of a Secret in one form."""
    metadata = {"namespace": key.namespace, **(manifest.value.get("metadata") or {})}
    value = {**manifest.value, "metadata": metadata}
    plain = value.pop("stringData", None)
    if manifest.kind == SECRETS.kind and isinstance(plain, dict):
        data = value.get("data")
        made = {name: base64.b64encode(str(text).encode()).decode() for name, text in plain.items()}
        value["data"] = {**(data if isinstance(data, dict) else {}), **made}
    return value
