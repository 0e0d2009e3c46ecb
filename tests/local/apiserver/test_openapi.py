"""OpenAPI v3 documents."""

from __future__ import annotations

from typing import Any

import msgspec

from kargo_py.local.apiserver import openapi
from kargo_py.local.apiserver.builtin import kinds
from kargo_py.local.apiserver.crdtypes import CUSTOM_RESOURCE_DEFINITION
from kargo_py.local.apiserver.kinds import Kind
from kargo_py.local.apiserver.typedrules import TypedRules
from kargo_py.local.apiserver.wire import JsonObject

RULES = TypedRules(CUSTOM_RESOURCE_DEFINITION)
KINDS = tuple(kinds(RULES))


def custom(plural: str = "widgets", schema: JsonObject | None = None, **more: Any) -> Kind:
    """A custom resource."""
    names = (plural, plural[:-1], plural[:-1].title())
    return Kind("my-group.example.com", "v1", *names, RULES, custom=True, schema=schema or {}, **more)


def references(value: Any) -> set[str]:
    """Every definition that is referred to within *value*."""
    if isinstance(value, list):
        return {name for item in value for name in references(item)}
    if not isinstance(value, dict):
        return set()
    found = {name for item in value.values() for name in references(item)}
    target = value.get("$ref")
    return found | {target.removeprefix("#/components/schemas/")} if isinstance(target, str) else found


def documents(*served: Kind) -> dict[str, JsonObject]:
    """Every document, by its path in the index."""
    made = openapi.Documents()
    paths = made.index(served)["paths"]
    return {path: msgspec.json.decode(made.document(served, path) or b"") for path in paths}


def test_the_index_has_each_group_and_version_once() -> None:
    assert list(documents(*KINDS, custom())) == [
        "api/v1",
        "apis/apiextensions.k8s.io/v1",
        "apis/authorization.k8s.io/v1",
        "apis/coordination.k8s.io/v1",
        "apis/events.k8s.io/v1",
        "apis/my-group.example.com/v1",
    ]


def test_everything_that_is_referred_to_is_there() -> None:
    for path, document in documents(*KINDS, custom()).items():
        assert references(document) - set(document["components"]["schemas"]) == set(), path


def test_every_operation_has_an_id_of_its_own() -> None:
    for document in documents(*KINDS, custom(), custom("gadgets", has_status=True)).values():
        operations = [
            operation for item in document["paths"].values() for name, operation in item.items() if name != "parameters"
        ]
        ids = [operation["operationId"] for operation in operations]
        assert len(ids) == len(set(ids))
        assert all("x-kubernetes-group-version-kind" in operation for operation in operations)


def test_every_parameter_in_a_path_is_described() -> None:
    for document in documents(*KINDS, custom()).values():
        for path, item in document["paths"].items():
            described = {each["name"] for each in item["parameters"] if each["in"] == "path"}
            assert described == {part[1:-1] for part in path.split("/") if part.startswith("{")}, path


def test_the_paths_of_a_custom_resource() -> None:
    paths = documents(custom(has_status=True))["apis/my-group.example.com/v1"]["paths"]
    base = "/apis/my-group.example.com/v1"
    operations = {path.removeprefix(base): set(item) - {"parameters"} for path, item in paths.items()}
    assert operations == {
        "/namespaces/{namespace}/widgets": {"get", "post", "delete"},
        "/namespaces/{namespace}/widgets/{name}": {"get", "put", "patch", "delete"},
        "/namespaces/{namespace}/widgets/{name}/status": {"get", "put", "patch"},
        "/widgets": {"get"},
    }
    patch = paths[f"{base}/namespaces/{{namespace}}/widgets/{{name}}"]["patch"]
    assert "application/strategic-merge-patch+json" not in patch["requestBody"]["content"]
    assert {each["name"] for each in patch["parameters"]} == {"dryRun", "fieldManager", "fieldValidation", "force"}


def test_a_kind_without_namespaces() -> None:
    paths = documents(custom(namespaced=False))["apis/my-group.example.com/v1"]["paths"]
    base = "/apis/my-group.example.com/v1/widgets"
    assert set(paths) == {base, f"{base}/{{name}}"}


def test_what_can_only_be_created() -> None:
    paths = documents(*KINDS)["apis/authorization.k8s.io/v1"]["paths"]
    assert all(set(item) == {"post", "parameters"} for item in paths.values())
    assert len(paths) == 2


def test_the_schema_of_a_custom_resource() -> None:
    schema = {"type": "object", "description": "What it is.", "properties": {"spec": {"type": "object"}}}
    kind = custom(schema=schema, field_selectors=("spec.color",))
    schemas = documents(kind)["apis/my-group.example.com/v1"]["components"]["schemas"]
    own = schemas["com.example.my-group.v1.Widget"]
    assert own["description"] == "What it is."
    assert list(own["properties"]) == ["spec", "apiVersion", "kind", "metadata"]
    assert own["x-kubernetes-group-version-kind"] == [
        {"group": "my-group.example.com", "kind": "Widget", "version": "v1"}
    ]
    assert own["x-kubernetes-selectable-fields"] == [{"fieldPath": "spec.color"}]
    assert schema == {"type": "object", "description": "What it is.", "properties": {"spec": {"type": "object"}}}
    listed = schemas["com.example.my-group.v1.WidgetList"]
    assert listed["properties"]["items"]["items"] == {"$ref": "#/components/schemas/com.example.my-group.v1.Widget"}


def test_a_kind_that_changes_has_another_hash() -> None:
    made = openapi.Documents()
    path = "apis/my-group.example.com/v1"
    first = custom(schema={"type": "object", "properties": {"a": {"type": "string"}}})
    urls = [made.index([first])["paths"][path]["serverRelativeURL"] for _ in range(2)]
    changed = custom(schema={"type": "object", "properties": {"b": {"type": "string"}}})
    urls.append(made.index([changed])["paths"][path]["serverRelativeURL"])
    assert urls[0] == urls[1] != urls[2]
    assert urls[0].startswith(f"/openapi/v3/{path}?hash=")
    assert made.index([])["paths"] == {}
    assert made.document([], path) is None


def test_a_document_is_made_once() -> None:
    made = openapi.Documents()
    assert made.document(KINDS, "api/v1") is made.document(KINDS, "api/v1")
