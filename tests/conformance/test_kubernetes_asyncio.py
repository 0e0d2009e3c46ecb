"""The official client, as programs use it: typed and untyped, watching, and by discovery."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from kubernetes_asyncio import client, config, dynamic, watch
from kubernetes_asyncio.client import ApiException

from tests.conformance.definitions import GROUP, widget
from tests.conformance.servers import Server

pytestmark = pytest.mark.nonblocking_exempt(
    reason="kubernetes-asyncio reads files in the loop; the fixtures speak plain HTTP"
)

MERGE = "application/merge-patch+json"
OF_WIDGETS: dict[str, Any] = {"group": GROUP, "version": "v1", "plural": "widgets"}


@pytest.fixture
async def api(server: Server) -> AsyncIterator[Any]:
    """The client, from the kubeconfig."""
    configuration = client.Configuration()
    await config.load_kube_config(str(server.kubeconfig), client_configuration=configuration)
    async with client.ApiClient(configuration) as connected:
        yield connected


async def test_custom_objects(api: Any, namespace: str) -> None:
    """Create, read, patch, replace, list, delete."""
    objects: Any = client.CustomObjectsApi(api)  # its types do not know _content_type
    here = OF_WIDGETS | {"namespace": namespace}

    made = await objects.create_namespaced_custom_object(body=widget(size=4), **here)
    patched = await objects.patch_namespaced_custom_object(
        name="w", body={"spec": {"size": 5}}, _content_type=MERGE, **here
    )
    patched["spec"]["size"] = 6
    replaced = await objects.replace_namespaced_custom_object(name="w", body=patched, **here)
    status = await objects.patch_namespaced_custom_object_status(
        name="w", body={"status": {"phase": "x"}}, _content_type=MERGE, **here
    )
    listed = await objects.list_namespaced_custom_object(**here)
    everywhere = await objects.list_cluster_custom_object(
        field_selector=f"metadata.namespace={namespace}", **OF_WIDGETS
    )
    deleted = await objects.delete_namespaced_custom_object(name="w", **here)

    assert [each["spec"]["size"] for each in (made, replaced)] == [4, 6]
    assert status["status"] == {"phase": "x"}
    assert listed["items"] == everywhere["items"] == [status]
    assert deleted["status"] == "Success"


async def test_its_default_patch(api: Any, namespace: str) -> None:
    """A dict is sent as JSON patch unless it is told otherwise, and refused."""
    objects: Any = client.CustomObjectsApi(api)  # its types do not know _content_type
    here = OF_WIDGETS | {"namespace": namespace}
    await objects.create_namespaced_custom_object(body=widget(), **here)

    with pytest.raises(ApiException) as raised:
        await objects.patch_namespaced_custom_object(name="w", body={"spec": {"size": 5}}, **here)

    assert raised.value.status == 400


async def test_errors(api: Any, namespace: str) -> None:
    """They come as ApiException with the status."""
    core = client.CoreV1Api(api)

    with pytest.raises(ApiException) as raised:
        await core.read_namespaced_config_map("nope", namespace)

    assert (raised.value.status, raised.value.reason) == (404, "Not Found")
    assert '"reason":"NotFound"' in (raised.value.body or "")


async def test_typed(api: Any, namespace: str) -> None:
    """Built-in kinds as objects, with times as times."""
    core = client.CoreV1Api(api)
    body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="m", labels={"a": "b"}), data={"k": "v"})

    made = await core.create_namespaced_config_map(namespace, body)
    made.data["k"] = "w"
    replaced = await core.replace_namespaced_config_map("m", namespace, made)
    listed = await core.list_namespaced_config_map(namespace, label_selector="a=b", limit=5)
    secret = await core.create_namespaced_secret(
        namespace, client.V1Secret(metadata=client.V1ObjectMeta(name="s"), string_data={"a": "1"})
    )
    deleted = await core.delete_namespaced_config_map("m", namespace)

    assert replaced.data == {"k": "w"}
    assert abs((datetime.now(UTC) - made.metadata.creation_timestamp).total_seconds()) < 3600
    assert [item.metadata.name for item in listed.items] == ["m"]
    assert (secret.type, secret.data) == ("Opaque", {"a": "MQ=="})
    assert deleted.status == "Success"


async def test_lease(api: Any, namespace: str) -> None:
    """Leader election reads and writes times with microseconds."""
    coordination = client.CoordinationV1Api(api)
    now = datetime(2026, 11, 30, 12, 0, 0, 123456, tzinfo=UTC)
    spec = client.V1LeaseSpec(holder_identity="me", lease_duration_seconds=15, renew_time=now, acquire_time=now)

    made = await coordination.create_namespaced_lease(
        namespace, client.V1Lease(metadata=client.V1ObjectMeta(name="l"), spec=spec)
    )
    made.spec.holder_identity = "other"
    replaced = await coordination.replace_namespaced_lease("l", namespace, made)
    with pytest.raises(ApiException) as raised:
        await coordination.replace_namespaced_lease("l", namespace, made)

    assert (made.spec.renew_time, replaced.spec.holder_identity) == (now, "other")
    assert raised.value.status == 409


async def test_events(api: Any, namespace: str) -> None:
    """An Event as controllers write it."""
    events = client.EventsV1Api(api)
    body = client.EventsV1Event(
        metadata=client.V1ObjectMeta(generate_name="e-"),
        event_time=datetime(2026, 11, 30, 12, 0, 0, 123456, tzinfo=UTC),  # without a fraction the server refuses it
        reporting_controller="example.com/c",
        reporting_instance="c-0",
        action="Try",
        reason="Tried",
        type="Normal",
        regarding=client.V1ObjectReference(api_version="v1", kind="ConfigMap", name="m", namespace=namespace),
    )

    made = await events.create_namespaced_event(namespace, body)
    core = await client.CoreV1Api(api).list_namespaced_event(namespace)

    assert made.metadata.name.startswith("e-")
    assert [(item.reason, item.involved_object.name) for item in core.items] == [("Tried", "m")]


async def test_definitions(api: Any) -> None:
    """The definitions of the suite, typed."""
    extensions = client.ApiextensionsV1Api(api)

    read = await extensions.read_custom_resource_definition(f"widgets.{GROUP}")

    assert read.status.accepted_names.kind == "Widget"
    assert {condition.type: condition.status for condition in read.status.conditions} == {
        "NamesAccepted": "True",
        "Established": "True",
    }


async def test_watch(api: Any, namespace: str) -> None:
    """It says watch=True, and gets events."""
    objects: Any = client.CustomObjectsApi(api)  # its types do not know _content_type
    here = OF_WIDGETS | {"namespace": namespace}
    await objects.create_namespaced_custom_object(body=widget(), **here)
    seen: list[tuple[str, str]] = []

    async with watch.Watch() as watching:
        async for event in watching.stream(objects.list_namespaced_custom_object, timeout_seconds=20, **here):
            seen.append((event["type"], event["object"]["metadata"]["name"]))
            if len(seen) == 1:
                await objects.create_namespaced_custom_object(body=widget("x"), **here)
            elif len(seen) == 2:
                await objects.delete_namespaced_custom_object(name="w", **here)
            else:
                break

    assert seen == [("ADDED", "w"), ("ADDED", "x"), ("DELETED", "w")]


async def test_typed_watch(api: Any, namespace: str) -> None:
    """The end of the time is the end of the stream."""
    core = client.CoreV1Api(api)
    await core.create_namespaced_config_map(namespace, client.V1ConfigMap(metadata=client.V1ObjectMeta(name="m")))

    async with watch.Watch() as watching:
        events = [
            (event["type"], event["object"].metadata.name)
            async for event in watching.stream(core.list_namespaced_config_map, namespace, timeout_seconds=1)
        ]

    assert events == [("ADDED", "m")]


async def test_dynamic(api: Any, namespace: str) -> None:
    """A client that knows nothing but what discovery tells."""
    async with asyncio.timeout(30):
        found = await dynamic.DynamicClient(api)
        resource = await found.resources.get(api_version=f"{GROUP}/v1", kind="Widget")
        made = await found.create(resource, body=widget(size=4), namespace=namespace)
        listed = await found.get(resource, namespace=namespace)
        applied = await found.server_side_apply(
            resource, body=widget(size=5), namespace=namespace, name="w", field_manager="dyn", force_conflicts=True
        )

    assert made.spec.size == 4
    assert [item.metadata.name for item in listed.items] == ["w"]
    assert applied.spec.size == 5
