"""Garbage collection and the end of namespaces, as Kubernetes documents them.

In a cluster kube-controller-manager does this. None runs beside the real API server here, so only the embedded server
is asked.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.definitions import EMBEDDED_ONLY, config_map, gadget, gadgets, maps, widget, widgets
from tests.conformance.servers import JsonObject, Server, eventually, names

pytestmark = EMBEDDED_ONLY


def owner(obj: JsonObject, **more: Any) -> JsonObject:
    """Make a reference to *obj*."""
    metadata = obj["metadata"]
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        **more,
    }


def owned(name: str, *owners: JsonObject, **metadata: Any) -> JsonObject:
    """Make a ConfigMap with these owners."""
    return {
        **config_map(name),
        "metadata": {"name": name, "ownerReferences": [owner(each) for each in owners], **metadata},
    }


def gone(server: Server, path: str) -> None:
    """Wait until nothing is at *path*."""
    eventually(lambda: server.get(path).code == 404 or None)


def test_background(server: Server, namespace: str) -> None:
    """What an object owns goes after it, and what that owns."""
    root = server.create(widgets(namespace), widget())
    child = server.create(maps(namespace), owned("child", root))
    server.create(maps(namespace), owned("grandchild", child))
    server.create(maps(namespace), config_map("stranger"))

    server.send("DELETE", widgets(namespace, "w"), {"propagationPolicy": "Background"}).ok()

    gone(server, maps(namespace, "grandchild"))
    assert names(server.get(maps(namespace)).ok()) == ["stranger"]


def test_by_default(server: Server, namespace: str) -> None:
    """Background is what happens when nothing is said."""
    root = server.create(maps(namespace), config_map("root"))
    server.create(maps(namespace), owned("child", root))

    server.send("DELETE", maps(namespace, "root")).ok()

    gone(server, maps(namespace, "child"))


@pytest.mark.parametrize("options", [{"propagationPolicy": "Orphan"}, {"orphanDependents": True}])
def test_orphan(server: Server, namespace: str, options: JsonObject) -> None:
    """What it owned stays, and forgets it."""
    root = server.create(widgets(namespace), widget())
    other = server.create(maps(namespace), config_map("other"))
    server.create(maps(namespace), owned("child", root, other))

    server.send("DELETE", widgets(namespace, "w"), options).ok()

    gone(server, widgets(namespace, "w"))
    child = server.get(maps(namespace, "child")).ok()
    assert child["metadata"]["ownerReferences"] == [owner(other)]


def test_two_owners(server: Server, namespace: str) -> None:
    """It lives as long as one of them does; the reference to the other goes."""
    one = server.create(maps(namespace), config_map("one"))
    two = server.create(maps(namespace), config_map("two"))
    server.create(maps(namespace), owned("child", one, two))

    server.send("DELETE", maps(namespace, "one")).ok()

    def references() -> bool | None:
        return server.get(maps(namespace, "child")).ok()["metadata"]["ownerReferences"] == [owner(two)] or None

    eventually(references)
    server.send("DELETE", maps(namespace, "two")).ok()
    gone(server, maps(namespace, "child"))


def test_an_owner_that_never_was(server: Server, namespace: str) -> None:
    """An object whose owner is not there is collected."""
    root = server.create(maps(namespace), config_map("root"))
    server.send("DELETE", maps(namespace, "root")).ok()

    server.create(maps(namespace), owned("late", root))

    gone(server, maps(namespace, "late"))


def test_another_of_the_same_name(server: Server, namespace: str) -> None:
    """An owner is known by its uid: its successor owns nothing."""
    root = server.create(maps(namespace), config_map("root"))
    server.create(maps(namespace), owned("child", root))
    server.send("DELETE", maps(namespace, "root")).ok()
    server.create(maps(namespace), config_map("root"))

    gone(server, maps(namespace, "child"))
    assert server.get(maps(namespace, "root")).code == 200


def test_owner_outside_namespaces(server: Server, namespace: str) -> None:
    """A cluster's object may own a namespace's."""
    root = server.create(gadgets(), gadget(f"o-{namespace}"))
    server.create(maps(namespace), owned("child", root))

    server.send("DELETE", gadgets(f"o-{namespace}")).ok()

    gone(server, maps(namespace, "child"))


def test_finalizers_of_what_is_collected(server: Server, namespace: str) -> None:
    """What is collected is deleted as by anybody: it may hold on."""
    root = server.create(maps(namespace), config_map("root"))
    server.create(maps(namespace), owned("child", root, finalizers=["example.com/a"]))

    server.send("DELETE", maps(namespace, "root")).ok()

    child = maps(namespace, "child")
    eventually(lambda: "deletionTimestamp" in server.get(child).ok()["metadata"] or None)
    server.patch(child, {"metadata": {"finalizers": None}}).ok()
    gone(server, child)


def test_owner_with_finalizers(server: Server, namespace: str) -> None:
    """As long as the owner is dying it is there, and what it owns stays."""
    root = server.create(maps(namespace), {"metadata": {"name": "root", "finalizers": ["example.com/a"]}})
    server.create(maps(namespace), owned("child", root))
    server.send("DELETE", maps(namespace, "root")).ok()

    assert server.get(maps(namespace, "child")).code == 200
    server.patch(maps(namespace, "root"), {"metadata": {"finalizers": None}}).ok()
    gone(server, maps(namespace, "child"))


def test_deleted_namespace(server: Server, namespace: str) -> None:
    """With a namespace goes what is in it, of every kind; then the namespace."""
    server.create(maps(namespace), config_map())
    server.create(widgets(namespace), widget())

    deleted = server.send("DELETE", f"/api/v1/namespaces/{namespace}").ok()

    assert deleted["status"]["phase"] == "Terminating"
    gone(server, f"/api/v1/namespaces/{namespace}")
    assert server.get(maps(namespace)).ok()["items"] == []
    assert server.get(widgets(namespace)).ok()["items"] == []
    server.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    assert server.get(maps(namespace)).ok()["items"] == []


def test_namespace_that_is_held(server: Server, namespace: str) -> None:
    """One object that may not go keeps the namespace."""
    server.create(widgets(namespace), widget(metadata={"finalizers": ["example.com/a"]}))
    server.send("DELETE", f"/api/v1/namespaces/{namespace}").ok()

    path = widgets(namespace, "w")
    eventually(lambda: "deletionTimestamp" in server.get(path).ok()["metadata"] or None)
    assert server.get(f"/api/v1/namespaces/{namespace}").ok()["status"]["phase"] == "Terminating"
    server.patch(path, {"metadata": {"finalizers": None}}).ok()
    gone(server, f"/api/v1/namespaces/{namespace}")


def test_watchers_see_it(server: Server, namespace: str) -> None:
    """The end of a namespace is events as any deletion is."""
    server.create(maps(namespace), config_map())
    with server.watch(maps(namespace, query="?watch=1")) as watch:
        added = watch.event()
        server.send("DELETE", f"/api/v1/namespaces/{namespace}").ok()
        deleted = watch.event()

    assert [(event["type"], event["object"]["metadata"]["name"]) for event in (added, deleted)] == [
        ("ADDED", "m"),
        ("DELETED", "m"),
    ]


def test_foreground(server: Server, namespace: str) -> None:
    """The owner stays, marked, until what it owns and what blocks it is gone."""
    root = server.create(maps(namespace), config_map("root"))
    held = owned("held", root, finalizers=["example.com/a"])
    held["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = True
    server.create(maps(namespace), held)
    server.create(maps(namespace), owned("free", root))

    dying = server.send("DELETE", maps(namespace, "root"), {"propagationPolicy": "Foreground"}).ok()

    assert dying["metadata"]["finalizers"] == ["foregroundDeletion"]
    gone(server, maps(namespace, "free"))
    eventually(lambda: "deletionTimestamp" in server.get(maps(namespace, "held")).ok()["metadata"] or None)
    assert server.get(maps(namespace, "root")).code == 200
    server.patch(maps(namespace, "held"), {"metadata": {"finalizers": None}}).ok()
    gone(server, maps(namespace, "held"))
    gone(server, maps(namespace, "root"))
