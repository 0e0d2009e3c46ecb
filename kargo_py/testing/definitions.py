"""What a pipeline needs on an API server: Kargo's kinds, from the models, Argo CD's Application, and its namespace."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Final

from kargo_py.api.crd import crd
from kargo_py.api.kinds import KINDS
from kargo_py.controllers.world import NAMESPACES
from kargo_py.kube.client import Client, JsonObject
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.errors import AlreadyExists, NotFound, TooManyRequests
from kargo_py.kube.resources import Resource
from kargo_py.local.argocd.definition import APPLICATION, NAMESPACE

DEFINITIONS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
ARGOCD_NAMESPACE: Final = str(NAMESPACE["metadata"]["name"])

_LOOK_SECONDS: Final = 0.02
_SERVED_SECONDS: Final = 60.0


@cache
def definitions(*, strict: bool = False) -> Sequence[JsonObject]:
    """Every CustomResourceDefinition; *strict*: Kargo's kinds as Kargo defines them."""
    return [*[crd(kind, strict=strict) for kind in KINDS], APPLICATION]


async def install(client: Client) -> None:
    """Create what is missing; returns when objects of every kind can be stored."""
    for definition in definitions():
        with suppress(AlreadyExists):
            await client.create(DEFINITIONS, "", encode(definition), codec=JSON)
    with suppress(AlreadyExists):
        await client.create(NAMESPACES, "", encode(NAMESPACE), codec=JSON)
    for definition in definitions():
        await await_served(client, resource_of(definition))


async def await_served(client: Client, resource: Resource) -> None:
    """Return when objects of a resource can be stored. Raises TimeoutError."""
    try:
        async with asyncio.timeout(_SERVED_SECONDS):
            while not await _is_served(client, resource):  # noqa: ASYNC110 - nothing tells when a real one has storage
                await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError:
        name = f"{resource.plural}.{resource.group}"
        raise TimeoutError(
            f"CustomResourceDefinition {name}: {resource.api_version} is not served after {_SERVED_SECONDS:g} s: "
            "its status.conditions say why"
        ) from None


def resource_of(definition: JsonObject) -> Resource:
    """The resource that a CustomResourceDefinition defines, in the first version that is served."""
    spec = definition["spec"]
    names = spec["names"]
    namespaced = spec["scope"] == "Namespaced"
    version = next(version["name"] for version in spec["versions"] if version["served"])
    return Resource(spec["group"], version, names["plural"], names["kind"], namespaced)


async def _is_served(client: Client, resource: Resource) -> bool:
    """Until its storage is set up a real server answers 404, then 429."""
    try:
        await client.list(resource, codec=JSON, limit=1)
    except (NotFound, TooManyRequests):
        return False
    return True
