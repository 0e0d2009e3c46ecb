"""What the CustomResourceDefinition of Applications lets be stored, on an API server, embedded and real (spec 1.1).

It is installed under another group: other tests want Applications on the same server whose schema says nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kargo_py.kube.client import PatchType
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.connection import connect
from kargo_py.kube.errors import Invalid, NotFound
from kargo_py.kube.resources import Key, Resource
from kargo_py.kube.rest import RestClient
from kargo_py.local.argocd.definition import APPLICATION
from tests.envtest import crds
from tests.envtest.server import ApiServer

pytestmark = pytest.mark.nonblocking_exempt(reason="kubernetes-asyncio reads kubeconfigs in the loop")

JsonObject = dict[str, Any]

APPLICATIONS = Resource("definition.example.com", "v1alpha1", "applications", "Application")


@pytest.fixture(scope="module")
def server(apiserver_session: ApiServer) -> ApiServer:
    """One with the definition, but for the short names, of which there is one set for all groups."""
    spec: JsonObject = APPLICATION["spec"]
    names = {name: value for name, value in spec["names"].items() if name != "shortNames"}
    copy = {
        **APPLICATION,
        "metadata": {"name": f"{APPLICATIONS.plural}.{APPLICATIONS.group}"},
        "spec": {**spec, "group": APPLICATIONS.group, "names": names},
    }
    crds.install(apiserver_session, [copy])
    return apiserver_session


class User:
    """Writes on one Application."""

    def __init__(self, client: RestClient, key: Key) -> None:
        self.client, self.key = client, key

    async def create(self) -> JsonObject:
        kind = {"apiVersion": APPLICATIONS.api_version, "kind": APPLICATIONS.kind}
        body = encode({**kind, "metadata": {"name": self.key.name}, "spec": {"colour": "red"}})
        return await self.client.create(APPLICATIONS, self.key.namespace, body, codec=JSON)

    async def patch(self, body: Any, **options: Any) -> JsonObject:
        type_ = PatchType.JSON if isinstance(body, list) else PatchType.MERGE
        return await self.client.patch(APPLICATIONS, self.key, encode(body), codec=JSON, patch_type=type_, **options)


@pytest.fixture
async def user(server: ApiServer, namespace: str) -> AsyncIterator[User]:
    """The owner of an Application that is there."""
    async with await connect(kubeconfig=str(server.kubeconfig("admin"))) as client:
        user = User(client, Key(namespace, "a"))
        await user.create()
        yield user


STATE: JsonObject = {"operation": {"sync": {}}, "phase": "Running", "startedAt": "2026-11-30T12:00:00Z"}


async def test_status_is_content(user: User) -> None:
    """It is written with the rest and moves the generation; there is no subresource."""
    app = await user.patch({"metadata": {"annotations": {"a": "b"}}})
    with_status = await user.patch({"status": {"sync": {"status": "Synced"}}})

    assert (app["metadata"]["generation"], with_status["metadata"]["generation"]) == (1, 2)
    with pytest.raises(NotFound):
        await user.patch({"status": {}}, subresource="status")


async def test_operations_are_pruned(user: User) -> None:
    """The one that is requested and the one that runs lose fields that Argo CD does not know; nothing else does."""
    operation = {"sync": {"revision": "a", "colour": "red", "source": {"colour": "red"}}, "mood": "good"}
    app = await user.patch(
        {
            "operation": operation,
            "status": {"colour": "red", "operationState": {**STATE, "operation": operation, "mood": "good"}},
        }
    )

    pruned = {"sync": {"revision": "a", "source": {"colour": "red"}}}
    assert app["operation"] == pruned
    assert app["status"] == {"colour": "red", "operationState": {**STATE, "operation": pruned}}
    assert app["spec"] == {"colour": "red"}


@pytest.mark.parametrize("missing", STATE)
async def test_what_an_operation_state_must_have(user: User, missing: str) -> None:
    """Without an operation, its phase or its beginning it is refused."""
    state = {name: value for name, value in STATE.items() if name != missing}

    with pytest.raises(Invalid, match=rf"status\.operationState\.{missing}: Required value"):
        await user.patch({"status": {"operationState": state}})


@pytest.mark.parametrize(
    ("operation", "told"),
    [
        ([], "operation: .* must be of type object"),
        ({"info": [{"name": "a"}]}, r"operation\.info\[0\]\.value: Required value"),
        ({"sync": {"resources": [{"kind": "ConfigMap"}]}}, r"operation\.sync\.resources\[0\]\.name: Required value"),
        ({"sync": {"prune": "yes"}}, r"operation\.sync\.prune: .* must be of type boolean"),
    ],
    ids=["list", "info", "resource", "type"],
)
async def test_operations_that_are_refused(user: User, operation: Any, told: str) -> None:
    """As Argo CD's definition refuses them."""
    with pytest.raises(Invalid, match=told):
        await user.patch([{"op": "add", "path": "/operation", "value": operation}])


@pytest.mark.parametrize("op", ["add", "replace"])
async def test_null_is_no_operation(user: User, op: str) -> None:
    """It is dropped, and with it what was there."""
    await user.patch({"operation": {"sync": {}}})
    app = await user.patch([{"op": op, "path": "/operation", "value": None}])

    assert "operation" not in app


async def test_the_end_of_an_operation_in_one_json_patch(user: User) -> None:
    """Adding and removing in one patch works whether there is an operation or not, and then changes nothing."""
    await user.patch({"operation": {"sync": {}}, "status": {"sync": {}}})
    end = [
        {"op": "add", "path": "/status/phase", "value": "Failed"},
        {"op": "add", "path": "/operation", "value": {}},
        {"op": "remove", "path": "/operation"},
    ]
    once = await user.patch(end)
    twice = await user.patch(end)

    assert ("operation" in once, once["status"]) == (False, {"sync": {}, "phase": "Failed"})
    assert once["metadata"]["resourceVersion"] == twice["metadata"]["resourceVersion"]
