"""What is read of files and of a cluster behind them, on an API server in the test's process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio
import yaml

from kargo_py.controllers.lookups import LookupReader
from kargo_py.controllers.world import FREIGHTS, STAGES
from kargo_py.expressions.lookups import Lookup, Source
from kargo_py.kube.client import Client
from kargo_py.kube.clock import utc_now
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.errors import Forbidden
from kargo_py.kube.resources import Key
from kargo_py.local.apiserver.client import client_of
from kargo_py.offline.files import load
from kargo_py.offline.manifests import Manifest, manifests
from kargo_py.offline.shelf import NotKnown, Shelf
from tests.in_process import api_server, create_namespaces
from tests.kube.fakes import ScriptedClient

ORIGIN = {"kind": "Warehouse", "name": "wh"}
COMMITS = [{"repoURL": "https://git.example.com/shop", "id": "3f1a0f6"}]
OBJECTS: dict[str, dict[str, Any]] = {
    "stages": {
        "apiVersion": STAGES.api_version,
        "kind": "Stage",
        "metadata": {"name": "dev"},
        "spec": {"requestedFreight": [{"origin": ORIGIN, "sources": {"direct": True}}]},
    },
    "freights": {
        "apiVersion": FREIGHTS.api_version,
        "kind": "Freight",
        "metadata": {"name": "f1"},
        "origin": ORIGIN,
        "commits": COMMITS,
    },
}
DEV = Lookup(Source.STAGE_METADATA, "dev")
F1 = Lookup(Source.FREIGHT_METADATA, "f1")


@pytest_asyncio.fixture
async def client() -> AsyncIterator[Client]:
    """A server with the Stage and the Freight, which have metadata."""
    async with api_server(utc_now) as server:
        made = client_of(server)
        await create_namespaces(made, "shop")
        for resource, value in ((STAGES, 1), (FREIGHTS, 2)):
            body = OBJECTS[resource.plural]
            there = {**body, "metadata": {**body["metadata"], "labels": {"is": "older"}}}
            await made.create(resource, "shop", encode(there), codec=JSON)
            patch = encode({"status": {"metadata": {"x": value}}})
            key = Key("shop", body["metadata"]["name"])
            await made.patch(resource, key, patch, codec=JSON, subresource="status")
        yield made


@pytest.fixture
def files(tmp_path: Path) -> list[Manifest]:
    """The two as files, without a status."""
    return _written(tmp_path)


@pytest.fixture
def complete(tmp_path: Path) -> list[Manifest]:
    """The two as files, with a status in which nothing is."""
    return _written(tmp_path, status={})


def _written(folder: Path, **more: Any) -> list[Manifest]:
    for name, body in OBJECTS.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump({**body, **more}))
    return list(manifests(load([str(folder)])))


def reader(shelf: Shelf) -> LookupReader:
    return LookupReader(shelf.as_client())


async def test_the_status_of_the_cluster(client: Client, files: list[Manifest]) -> None:
    """A file without a status leaves it to the cluster, and what else it says goes before what is there."""
    shelf = Shelf(files, client)

    assert (await reader(shelf).read("shop", DEV), await reader(shelf).read("shop", F1)) == ({"x": 1}, {"x": 2})
    stage = await shelf.get(STAGES, Key("shop", "dev"), codec=JSON)
    assert stage["status"]["metadata"] == {"x": 1}
    assert "labels" not in stage["metadata"]
    (freight,) = await shelf.list(FREIGHTS, "shop")
    assert freight["status"]["metadata"] == {"x": 2}
    assert freight["metadata"]["creationTimestamp"]


async def test_the_status_of_the_file(client: Client, complete: list[Manifest]) -> None:
    """A status that is in the file is the one that counts, an empty one too."""
    shelf = Shelf(complete, client)

    assert await reader(shelf).read("shop", DEV) is None
    assert (await shelf.list(FREIGHTS, "shop"))[0]["status"] == {}


async def test_not_in_the_cluster(client: Client, files: list[Manifest]) -> None:
    """An object that is yet to be created has no metadata."""
    assert await reader(Shelf(files, client)).read("other", DEV) is None


async def test_without_a_cluster(files: list[Manifest]) -> None:
    """Nobody knows the status then; the object itself is there."""
    shelf = Shelf(files)

    with pytest.raises(NotKnown, match='the status of Stage "dev" is not in its file'):
        await reader(shelf).read("shop", DEV)
    assert "status" not in await shelf.get(STAGES, Key("shop", "dev"), codec=JSON)


async def test_not_allowed(files: list[Manifest]) -> None:
    """Who may not read the Stage still has the file; only what the status would say is not known."""
    cluster = ScriptedClient()
    cluster.objects[Key("shop", "dev")] = Forbidden(403, "Forbidden", "no")
    shelf = Shelf(files, cast("Client", cluster))

    assert "status" not in await shelf.get(STAGES, Key("shop", "dev"), codec=JSON)
    with pytest.raises(NotKnown, match='Stage "dev" may not be read: no'):
        await reader(shelf).read("shop", DEV)
