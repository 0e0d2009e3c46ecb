"""What the API server in memory and a real one have in common: the same acts on both."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from kargo_py.kube.client import Client, PatchType
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.connection import connect
from kargo_py.kube.errors import AlreadyExists, Conflict, Invalid, NotFound
from kargo_py.kube.resources import Key
from kargo_py.local.argocd.documents import APPLICATIONS
from tests.local.memory import MemoryClient

JsonObject = dict[str, Any]


@pytest.fixture(params=["memory", pytest.param("server", marks=pytest.mark.envtest)])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    """One of the two."""
    if request.param == "memory":
        yield MemoryClient()
        return
    server = request.getfixturevalue("crds")
    async with await connect(kubeconfig=str(server.kubeconfig("admin"))) as connected:
        yield connected


@pytest.fixture
def key(request: pytest.FixtureRequest) -> Key:
    """An Application that is not there yet."""
    on_server = "server" in request.node.name
    return Key(request.getfixturevalue("namespace") if on_server else "argocd", "a")


class User:
    """Writes on one Application."""

    def __init__(self, client: Client, key: Key) -> None:
        self.client, self.key = client, key

    async def create(self, **parts: Any) -> JsonObject:
        body = {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Application",
            "metadata": {"name": "a", **parts},
            "spec": {},
        }
        return await self.client.create(APPLICATIONS, self.key.namespace, encode(body), codec=JSON)

    async def patch(self, body: Any, **options: Any) -> JsonObject:
        type_ = PatchType.JSON if isinstance(body, list) else PatchType.MERGE
        return await self.client.patch(APPLICATIONS, self.key, encode(body), codec=JSON, patch_type=type_, **options)


def marks(app: JsonObject) -> tuple[int, int]:
    """Version and generation."""
    return int(app["metadata"]["resourceVersion"]), app["metadata"]["generation"]


@pytest.mark.nonblocking_exempt(reason="kubernetes-asyncio reads kubeconfigs in the loop")
async def test_versions_and_generations(client: Client, key: Key) -> None:
    """Status counts as content, metadata does not, and a patch that changes nothing is no version."""
    user = User(client, key)
    made = await user.create()
    noted = await user.patch({"metadata": {"annotations": {"a": "b"}}})
    with_status = await user.patch({"status": {"sync": {"status": "Synced"}}})
    same = await user.patch({"status": {"sync": {"status": "Synced"}}})

    versions, generations = zip(*(marks(app) for app in (made, noted, with_status, same)), strict=True)
    assert generations == (1, 1, 2, 2)
    assert versions[0] < versions[1] < versions[2] == versions[3]


@pytest.mark.nonblocking_exempt(reason="kubernetes-asyncio reads kubeconfigs in the loop")
async def test_refusals(client: Client, key: Key) -> None:
    """Each has its type."""
    user = User(client, key)
    with pytest.raises(NotFound):
        await user.patch({"spec": {}})
    made = await user.create()
    await user.patch({"operation": {"sync": {}}})
    with pytest.raises(AlreadyExists):
        await user.create()
    with pytest.raises(Conflict):
        await user.patch({"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "operation": None})
    with pytest.raises(Invalid):
        await user.patch([{"op": "test", "path": "/operation", "value": {}}])
    with pytest.raises(Invalid):
        await user.patch([{"op": "add", "path": "/status/operationState", "value": {}}])
    with pytest.raises(NotFound):
        await user.patch({"status": {}}, subresource="status")
    with pytest.raises(Conflict):
        await client.delete(APPLICATIONS, key, uid="00000000-0000-0000-0000-000000000000")


@pytest.mark.nonblocking_exempt(reason="kubernetes-asyncio reads kubeconfigs in the loop")
async def test_the_end_of_an_operation_in_one_json_patch(client: Client, key: Key) -> None:
    """Adding and removing in one patch works whether there is an operation or not."""
    user = User(client, key)
    await user.create()
    await user.patch({"operation": {"sync": {}}, "status": {"sync": {}}})
    end = [
        {"op": "add", "path": "/status/phase", "value": "Failed"},
        {"op": "add", "path": "/operation", "value": {}},
        {"op": "remove", "path": "/operation"},
    ]
    once = await user.patch(end)
    twice = await user.patch(end)

    assert ("operation" in once, once["status"]) == (False, {"sync": {}, "phase": "Failed"})
    assert marks(once) == marks(twice)


@pytest.mark.nonblocking_exempt(reason="kubernetes-asyncio reads kubeconfigs in the loop")
async def test_a_watch_shows_every_version(client: Client, key: Key) -> None:
    """From the given one on, in order, to the deletion; one with a finalizer goes when that is removed."""
    user = User(client, key)
    made = await user.create(finalizers=["example.com/wait"])
    await user.patch({"operation": {"sync": {}}})
    await user.patch({"operation": None})
    await client.delete(APPLICATIONS, key)
    await user.patch({"metadata": {"finalizers": None}})
    page = await client.list(APPLICATIONS, key.namespace, codec=JSON)
    seen = []
    events = client.watch(
        APPLICATIONS,
        key.namespace,
        codec=JSON,
        resource_version=made["metadata"]["resourceVersion"],
        timeout_seconds=10,
    )
    async with aclosing(events):
        async for event in events:
            if event.object is not None:
                seen.append((event.type.value, "operation" in event.object))
            if event.type.value == "DELETED":
                break

    assert page.items == []
    assert seen == [("MODIFIED", True), ("MODIFIED", False), ("MODIFIED", False), ("DELETED", False)]


async def test_what_the_definition_of_applications_says() -> None:
    """Only in memory: the definition on the test server has no schema (spec 1.1)."""
    user = User(MemoryClient(), Key("argocd", "a"))
    await user.create()
    app = await user.patch({"operation": {"sync": {"revision": "a", "colour": "red"}, "mood": "good"}})

    assert app["operation"] == {"sync": {"revision": "a"}}
    with pytest.raises(Invalid, match=r"operationState\.operation: Required value"):
        await user.patch({"status": {"operationState": {"phase": "Terminating"}}})
    with pytest.raises(Invalid, match="must be of type object"):
        await user.patch([{"op": "replace", "path": "/operation", "value": None}])
