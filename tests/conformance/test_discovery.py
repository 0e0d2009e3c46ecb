"""What a client reads before it does anything: groups, resources, versions, OpenAPI, health, and who may ask."""

from __future__ import annotations

import json

import pytest

from tests.conformance.asking import refused
from tests.conformance.definitions import GROUP, maps
from tests.conformance.servers import JsonObject, Server, eventually

VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


def test_versions(server: Server) -> None:
    """The core group has one version."""
    document = server.get("/api").ok()

    assert (document["kind"], document["versions"]) == ("APIVersions", ["v1"])


def test_groups(server: Server) -> None:
    """All groups that are served, ours among them."""
    document = server.get("/apis").ok()

    groups = {group["name"]: group for group in document["groups"]}
    assert (document["kind"], document["apiVersion"]) == ("APIGroupList", "v1")
    assert {"apiextensions.k8s.io", "coordination.k8s.io", "events.k8s.io", GROUP} <= groups.keys()
    version = {"groupVersion": f"{GROUP}/v1", "version": "v1"}
    assert groups[GROUP] == {"name": GROUP, "versions": [version], "preferredVersion": version}


def test_group(server: Server) -> None:
    """One of them."""
    version = {"groupVersion": f"{GROUP}/v1", "version": "v1"}
    assert server.get(f"/apis/{GROUP}").ok() == {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": GROUP,
        "versions": [version],
        "preferredVersion": version,
    }


def resources(server: Server, path: str) -> dict[str, JsonObject]:
    """Return the resources at *path* by name, without the hashes of the store."""
    document = server.get(path).ok()
    assert document["kind"] == "APIResourceList"
    found = {resource["name"]: resource for resource in document["resources"]}
    for resource in found.values():
        resource.pop("storageVersionHash", None)
        resource["verbs"] = sorted(resource["verbs"])
    return found


def test_custom_resources(server: Server) -> None:
    """Short names and categories are there, and the subresource."""
    assert resources(server, f"/apis/{GROUP}/v1") == {
        "widgets": {
            "name": "widgets",
            "singularName": "widget",
            "namespaced": True,
            "kind": "Widget",
            "verbs": VERBS,
            "shortNames": ["wd"],
            "categories": ["conformance"],
        },
        "widgets/status": {
            "name": "widgets/status",
            "singularName": "",
            "namespaced": True,
            "kind": "Widget",
            "verbs": ["get", "patch", "update"],
        },
        "gadgets": {
            "name": "gadgets",
            "singularName": "gadget",
            "namespaced": False,
            "kind": "Gadget",
            "verbs": VERBS,
        },
    }


def test_core_resources(server: Server) -> None:
    """Those that both serve are told alike."""
    found = resources(server, "/api/v1")

    for name, singular, kind, short in [
        ("configmaps", "configmap", "ConfigMap", ["cm"]),
        ("secrets", "secret", "Secret", None),
        ("events", "event", "Event", ["ev"]),
        ("serviceaccounts", "serviceaccount", "ServiceAccount", ["sa"]),
    ]:
        expected = {"name": name, "singularName": singular, "namespaced": True, "kind": kind, "verbs": VERBS}
        assert found[name] == expected | ({"shortNames": short} if short else {})
    assert found["namespaces"] == {
        "name": "namespaces",
        "singularName": "namespace",
        "namespaced": False,
        "kind": "Namespace",
        "verbs": [verb for verb in VERBS if verb != "deletecollection"],
        "shortNames": ["ns"],
    }
    assert found["namespaces/finalize"]["verbs"] == ["update"]
    assert found["namespaces/status"]["verbs"] == ["get", "patch", "update"]


def test_other_resources(server: Server) -> None:
    """Leases, the newer Events, definitions."""
    leases = resources(server, "/apis/coordination.k8s.io/v1")
    events = resources(server, "/apis/events.k8s.io/v1")
    definitions = resources(server, "/apis/apiextensions.k8s.io/v1")

    assert leases == {
        "leases": {"name": "leases", "singularName": "lease", "namespaced": True, "kind": "Lease", "verbs": VERBS}
    }
    assert events["events"]["shortNames"] == ["ev"]
    assert definitions["customresourcedefinitions"] == {
        "name": "customresourcedefinitions",
        "singularName": "customresourcedefinition",
        "namespaced": False,
        "kind": "CustomResourceDefinition",
        "verbs": VERBS,
        "shortNames": ["crd", "crds"],
        "categories": ["api-extensions"],
    }


def test_version(server: Server) -> None:
    """What kubectl version shows."""
    version = server.get("/version").ok()

    assert (version["major"], version["minor"]) == ("1", "34")
    assert version["gitVersion"].startswith("v1.34.")


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
def test_health(server: Server, path: str) -> None:
    """It is well, and says so to anybody."""
    answer = server.get(path, Authorization="")

    assert (answer.code, answer.body) == (200, b"ok")


def test_openapi_index(server: Server) -> None:
    """Each group and version has a document, under an address that changes with it.

    The real server goes on changing them for a while after a definition was made, and sends who comes late elsewhere.
    """
    for path in ("api/v1", f"apis/{GROUP}/v1", "apis/apiextensions.k8s.io/v1", "apis/coordination.k8s.io/v1"):

        def is_there(path: str = path) -> bool:
            url = server.get("/openapi/v3").ok()["paths"][path]["serverRelativeURL"]
            assert url.startswith(f"/openapi/v3/{path}?hash=")
            answer = server.get(url)
            assert answer.code in {200, 301}
            return answer.code == 200

        eventually(is_there)


def test_openapi_of_custom_resources(server: Server) -> None:
    """The schema of the definition, with what kubectl needs to explain, validate and create."""
    document = server.get(f"/openapi/v3/apis/{GROUP}/v1").ok()

    assert document["openapi"] == "3.0.0"
    widget = document["components"]["schemas"]["com.example.conformance.v1.Widget"]
    assert widget["x-kubernetes-group-version-kind"] == [{"group": GROUP, "kind": "Widget", "version": "v1"}]
    assert widget["description"] == "A thing to try everything on."
    assert widget["required"] == ["spec"]
    size = widget["properties"]["spec"]["properties"]["size"]
    assert (size["type"], size["minimum"], size["maximum"], size["default"]) == ("integer", 1, 10, 3)
    assert "ObjectMeta" in json.dumps(widget["properties"]["metadata"])
    collection = document["paths"][f"/apis/{GROUP}/v1/namespaces/{{namespace}}/widgets"]
    create = collection["post"]
    assert create["x-kubernetes-action"] == "post"
    assert create["x-kubernetes-group-version-kind"] == {"group": GROUP, "kind": "Widget", "version": "v1"}
    assert {"dryRun", "fieldManager", "fieldValidation"} <= {parameter["name"] for parameter in create["parameters"]}
    one = document["paths"][f"/apis/{GROUP}/v1/namespaces/{{namespace}}/widgets/{{name}}"]
    assert {"get", "put", "patch", "delete"} <= one.keys()


def test_openapi_of_built_in_kinds(server: Server) -> None:
    """Names and types of fields, and which kind a schema is of."""
    schemas = server.get("/openapi/v3/api/v1").ok()["components"]["schemas"]

    config_map = schemas["io.k8s.api.core.v1.ConfigMap"]
    assert config_map["x-kubernetes-group-version-kind"] == [{"group": "", "kind": "ConfigMap", "version": "v1"}]
    assert {"apiVersion", "kind", "metadata", "data", "binaryData", "immutable"} == set(config_map["properties"])
    assert config_map["properties"]["data"]["additionalProperties"]["type"] == "string"


@pytest.mark.parametrize("path", ["/api", "/version", "/healthz", "/openapi/v3", maps("default")])
def test_a_wrong_token(server: Server, path: str) -> None:
    """Nobody with a wrong token is let in, to anything."""
    answer = server.get(path, Authorization="Bearer wrong")

    assert answer.refusal == refused(401, "Unauthorized", "Unauthorized")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/api", 'forbidden: User "system:anonymous" cannot get path "/api"'),
        ("/openapi/v3", 'forbidden: User "system:anonymous" cannot get path "/openapi/v3"'),
        (
            "/api/v1/namespaces",
            (
                'namespaces is forbidden: User "system:anonymous" cannot list resource "namespaces" in API group "" '
                "at the cluster scope"
            ),
        ),
        (
            f"/apis/{GROUP}/v1/namespaces/x/widgets/w",
            (
                f'widgets.{GROUP} "w" is forbidden: User "system:anonymous" cannot get resource "widgets" in API group '
                f'"{GROUP}" in the namespace "x"'
            ),
        ),
    ],
)
def test_no_token(server: Server, path: str, message: str) -> None:
    """Who has none may see that the server is well, and no more."""
    refusal = server.get(path, Authorization="").refusal

    assert (refusal["code"], refusal["reason"], refusal["message"]) == (403, "Forbidden", message)
