"""JSON patch, merge patch and strategic merge patch: what they make of an object, and what does not apply."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.asking import NS, UNCHECKED, Asked, bad, case, done, invalid, not_found, outcome, patch, refused
from tests.conformance.definitions import config_map, maps, widget, widgets
from tests.conformance.servers import APPLY, JSON_PATCH, MERGE, STRATEGIC, JsonObject, Server

W, M = widgets(NS, "w"), maps(NS, "m")
DRY = "?dryRun=All"
BEFORE: JsonObject = {
    "size": 4,
    "mode": "safe",
    "tags": ["a", "b"],
    "steps": ["x", "y"],
    "labels": {"a": "1", "b": "2"},
}


def prepare(server: Server, namespace: str) -> None:
    """Make what the cases are tried on."""
    server.create(widgets(namespace), widget("w", **BEFORE))
    server.create(maps(namespace), config_map("m", a="1"))


@pytest.fixture(scope="module")
def furnished(server: Server) -> str:
    """Name of a namespace with a Widget "w" and a ConfigMap "m"."""
    namespace = server.namespace()
    prepare(server, namespace)
    return namespace


def operation(op: str, path: str, **more: Any) -> JsonObject:
    """Make one operation of a JSON patch."""
    return {"op": op, "path": path, **more}


def patched(*operations: JsonObject) -> Asked:
    """Ask for a JSON patch of the Widget."""
    return patch(W + DRY, list(operations), JSON_PATCH)


REFUSED = [
    case(
        "JSON patch that is no JSON",
        patch(W, "{", JSON_PATCH),
        bad("error decoding patch: unexpected end of JSON input"),
    ),
    case(
        "JSON patch that is an object",
        patch(W, {"spec": {}}, JSON_PATCH),
        bad("error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"),
    ),
    case(
        "JSON patch that is an object, built-in",
        patch(M, {"data": {}}, JSON_PATCH),
        bad("error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"),
    ),
    case(
        "JSON patch that is empty", patch(W, "", JSON_PATCH), bad("error decoding patch: unexpected end of JSON input")
    ),
    case("JSON patch that is null", patch(W + DRY, "null", JSON_PATCH), done(200)),
    case(
        "JSON patch of texts",
        patch(W, ["x"], JSON_PATCH),
        bad("error decoding patch: json: cannot unmarshal string into Go value of type handlers.jsonPatchOp"),
    ),
    case(
        "an unknown operation",
        patched(operation("increase", "/spec/size", value=1)),
        refused(422, "Invalid", "the server rejected our request due to an error in our request"),
    ),
    case(
        "no operation",
        patched({"path": "/spec/size", "value": 1}),
        refused(422, "Invalid", "the server rejected our request due to an error in our request"),
    ),
    case(
        "no path",
        patched({"op": "add", "value": 1}),
        refused(422, "Invalid", "the server rejected our request due to an error in our request"),
    ),
    case("no value", patched(operation("add", "/spec/size")), done(200)),
    case(
        "no from",
        patched(operation("move", "/spec/size")),
        refused(422, "Invalid", "the server rejected our request due to an error in our request"),
    ),
    case(
        "a path without slash",
        patched(operation("add", "spec/size", value=1)),
        done(200, '299 - "unknown field \\"size\\""'),
    ),
    case(
        "remove what is not there",
        patched(operation("remove", "/spec/due")),
        refused(422, "Invalid", "the server rejected our request due to an error in our request"),
    ),
    case(
        "replace what is not there",
        patched(operation("replace", "/spec/due", value="x")),
        invalid(
            "Widget",
            "w",
            ("spec.due", "TypeInvalid", 'Invalid value: "x": spec.due in body must be of type date-time: "x"'),
            UNCHECKED,
        ),
    ),
    case(
        "add under what is not there",
        patched(operation("add", "/spec/anything/a/b", value=1)),
        refused(422, "Invalid", "the server rejected our request due to an error in our request"),
    ),
    case(
        "an index beyond",
        patched(operation("add", "/spec/steps/9", value="z")),
        refused(422, "Invalid", "the server rejected our request due to an error in our request"),
    ),
    case(
        "an index that is none",
        patched(operation("add", "/spec/steps/x", value="z")),
        refused(422, "Invalid", "the server rejected our request due to an error in our request"),
    ),
    case("a negative index", patched(operation("add", "/spec/steps/-1", value="z")), done(200)),
    case(
        "remove an index beyond",
        patched(operation("remove", "/spec/steps/2")),
        refused(422, "Invalid", "the server rejected our request due to an error in our request"),
    ),
    case(
        "test that fails",
        patched(operation("test", "/spec/size", value=5)),
        refused(422, "Invalid", "the server rejected our request due to an error in our request"),
    ),
    case(
        "test of what is not there",
        patched(operation("test", "/spec/due", value="x")),
        refused(422, "Invalid", "the server rejected our request due to an error in our request"),
    ),
    case("test of what is not there, for null", patched(operation("test", "/spec/due", value=None)), done(200)),
    case(
        "test that fails, built-in",
        patch(M, [operation("test", "/data/a", value="2")], JSON_PATCH),
        refused(422, "Invalid", "the server rejected our request due to an error in our request"),
    ),
    case(
        "move from what is not there",
        patched(operation("move", "/spec/due", **{"from": "/spec/owner"})),
        refused(422, "Invalid", "the server rejected our request due to an error in our request"),
    ),
    case("copy from what is not there", patched(operation("copy", "/spec/due", **{"from": "/spec/owner"})), done(200)),
    case(
        "replace the whole",
        patched(operation("replace", "", value={})),
        invalid("", "", ("patch", "Invalid", "Invalid value: \"{}\": Object 'Kind' is missing in '{}'"), group=""),
    ),
    case(
        "remove the whole",
        patched(operation("remove", "")),
        refused(422, "Invalid", "the server rejected our request due to an error in our request"),
    ),
    case(
        "remove the kind",
        patched(operation("remove", "/kind")),
        invalid("", "", ("patch", "Invalid", "Invalid value: \"{…}\": Object 'Kind' is missing in '{…}'"), group=""),
    ),
    case(
        "remove the name",
        patched(operation("remove", "/metadata/name")),
        bad("the name of the object (w based on URL) was undeterminable: name must be provided"),
    ),
    case(
        "too many operations",
        patch(W, [operation("test", "/spec/size", value=4)] * 10001, JSON_PATCH),
        refused(
            413,
            "RequestEntityTooLarge",
            ("Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"),
        ),
    ),
    case(
        "merge patch that is no JSON", patch(W, "{", MERGE), bad("error decoding patch: unexpected end of JSON input")
    ),
    case(
        "merge patch that is no JSON, built-in",
        patch(M, "{", MERGE),
        bad("error decoding patch: unexpected end of JSON input"),
    ),
    case(
        "merge patch that is a list",
        patch(W, [], MERGE),
        bad("error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"),
    ),
    case(
        "merge patch that is a list, built-in",
        patch(M, [], MERGE),
        bad("error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"),
    ),
    case(
        "merge patch that is a text",
        patch(W, '"x"', MERGE),
        bad("error decoding patch: json: cannot unmarshal string into Go value of type map[string]interface {}"),
    ),
    case("merge patch that is null", patch(W + DRY, "null", MERGE), bad("Invalid JSON Patch")),
    case("merge patch that is empty", patch(W, "", MERGE), bad("error decoding patch: unexpected end of JSON input")),
    case(
        "merge patch with a text for data",
        patch(M, {"data": "x"}, MERGE),
        invalid(
            "",
            "",
            (
                "patch",
                "Invalid",
                (
                    'Invalid value: "{…}": json: cannot unmarshal string into Go struct field '
                    "ConfigMap.data of type map[string]string"
                ),
            ),
            group="",
        ),
    ),
    case(
        "merge patch with a number in data",
        patch(M, {"data": {"a": 1}}, MERGE),
        invalid(
            "",
            "",
            (
                "patch",
                "Invalid",
                (
                    'Invalid value: "{…}": json: cannot unmarshal number into Go struct field '
                    "ConfigMap.data of type string"
                ),
            ),
            group="",
        ),
    ),
    case(
        "merge patch with a text for metadata",
        patch(W, {"metadata": "x"}, MERGE),
        invalid(
            "",
            "",
            (
                "patch",
                "Invalid",
                ('Invalid value: "{…}": json: cannot unmarshal string into Go value of type v1.ObjectMeta'),
            ),
            group="",
        ),
    ),
    case("merge patch of what is not there", patch(widgets(NS, "nope"), {}, MERGE), not_found("widgets", "nope")),
    case(
        "merge patch of what is not there, built-in",
        patch(maps(NS, "nope"), {}, MERGE),
        not_found("configmaps", "nope", ""),
    ),
    case(
        "strategic merge of a custom resource",
        patch(W, {}, STRATEGIC),
        refused(
            415,
            "UnsupportedMediaType",
            (
                "the body of the request was in an unknown format - accepted media types include: "
                "application/json-patch+json, application/merge-patch+json, "
                "application/apply-patch+yaml"
            ),
        ),
    ),
    case("strategic merge that is no JSON", patch(M, "{", STRATEGIC), bad("unexpected end of JSON input")),
    case("strategic merge that is null", patch(M + DRY, "null", STRATEGIC), done(200)),
    case(
        "strategic merge that is a list",
        patch(M, [], STRATEGIC),
        bad("json: cannot unmarshal array into Go value of type map[string]interface {}"),
    ),
    case(
        "strategic merge with a number in data",
        patch(M, {"data": {"a": 1}}, STRATEGIC),
        invalid(
            "",
            "",
            ("patch", "Invalid", 'Invalid value: "map[data:map[a:1]]": cannot convert int64 to string'),
            group="",
        ),
    ),
    case(
        "strategic merge with an unknown directive",
        patch(M, {"data": {"$patch": "burn"}}, STRATEGIC),
        refused(500, "", "unknown patch type: burn in map: map[$patch:burn]"),
    ),
    case(
        "strategic merge with a list for a map",
        patch(M, {"data": ["x"]}, STRATEGIC),
        invalid(
            "", "", ("patch", "Invalid", 'Invalid value: "map[data:[x]]": cannot restore map from slice'), group=""
        ),
    ),
    case(
        "strategic merge with an object for a list",
        patch(M, {"metadata": {"finalizers": {"a": 1}}}, STRATEGIC),
        invalid(
            "",
            "",
            (
                "patch",
                "Invalid",
                ('Invalid value: "map[metadata:map[finalizers:map[a:1]]]": cannot restore slice from map'),
            ),
            group="",
        ),
    ),
    case(
        "strategic merge with an element without key",
        patch(M, {"metadata": {"ownerReferences": [{"name": "x"}]}}, STRATEGIC),
        refused(
            422,
            "Invalid",
            (
                'ConfigMap "m" is invalid: [metadata.ownerReferences.apiVersion: Invalid value: "": '
                'version must not be empty, metadata.ownerReferences.kind: Invalid value: "": must '
                'not be empty, metadata.ownerReferences.uid: Invalid value: "": must not be empty]'
            ),
            name="m",
            kind="ConfigMap",
            causes=[
                {
                    "reason": "FieldValueInvalid",
                    "message": 'Invalid value: "": version must not be empty',
                    "field": "metadata.ownerReferences.apiVersion",
                },
                {
                    "reason": "FieldValueInvalid",
                    "message": 'Invalid value: "": must not be empty',
                    "field": "metadata.ownerReferences.kind",
                },
                {
                    "reason": "FieldValueInvalid",
                    "message": 'Invalid value: "": must not be empty',
                    "field": "metadata.ownerReferences.uid",
                },
                {
                    "reason": "FieldValueInvalid",
                    "message": 'Invalid value: "": version must not be empty',
                    "field": "metadata.ownerReferences.apiVersion",
                },
                {
                    "reason": "FieldValueInvalid",
                    "message": 'Invalid value: "": must not be empty',
                    "field": "metadata.ownerReferences.kind",
                },
                {
                    "reason": "FieldValueInvalid",
                    "message": 'Invalid value: "": must not be empty',
                    "field": "metadata.ownerReferences.uid",
                },
                {
                    "reason": "FieldValueInvalid",
                    "message": 'Invalid value: "": version must not be empty',
                    "field": "metadata.ownerReferences.apiVersion",
                },
                {
                    "reason": "FieldValueInvalid",
                    "message": 'Invalid value: "": must not be empty',
                    "field": "metadata.ownerReferences.kind",
                },
                {
                    "reason": "FieldValueInvalid",
                    "message": 'Invalid value: "": must not be empty',
                    "field": "metadata.ownerReferences.uid",
                },
                {
                    "reason": "FieldValueInvalid",
                    "message": 'Invalid value: "": version must not be empty',
                    "field": "metadata.ownerReferences.apiVersion",
                },
                {
                    "reason": "FieldValueInvalid",
                    "message": 'Invalid value: "": must not be empty',
                    "field": "metadata.ownerReferences.kind",
                },
                {
                    "reason": "FieldValueInvalid",
                    "message": 'Invalid value: "": must not be empty',
                    "field": "metadata.ownerReferences.uid",
                },
            ],
        ),
    ),
    case(
        "no such type",
        patch(W, {}, "application/json"),
        refused(
            415,
            "UnsupportedMediaType",
            (
                "the body of the request was in an unknown format - accepted media types include: "
                "application/json-patch+json, application/merge-patch+json, "
                "application/apply-patch+yaml"
            ),
        ),
    ),
    case(
        "no such type, built-in",
        patch(M, {}, "application/json"),
        refused(415, "UnsupportedMediaType", "415: Unsupported Media Type"),
    ),
    case("no type", patch(M, {}, ""), refused(415, "UnsupportedMediaType", "415: Unsupported Media Type")),
    case(
        "apply that is no YAML",
        patch(W + "?fieldManager=a", "a: [", APPLY),
        bad("error decoding YAML: error converting YAML to JSON: yaml: line 1: did not find expected node content"),
    ),
    case("apply that is empty", patch(W + "?fieldManager=a", "", APPLY), bad("invalid object type: /, Kind=")),
    case(
        "apply that is a list",
        patch(W + "?fieldManager=a", "[]", APPLY),
        bad(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot "
            "unmarshal array into Go value of type map[string]interface {}"
        ),
    ),
    case("apply without kind", patch(W + "?fieldManager=a", {"spec": {}}, APPLY), bad("invalid object type: /, Kind=")),
    case(
        "apply of another kind",
        patch(M + "?fieldManager=a", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "m"}}, APPLY),
        bad("invalid object type: /v1, Kind=Secret"),
    ),
    case(
        "apply of another group",
        patch(W + "?fieldManager=a", {"apiVersion": "v1", "kind": "Widget", "metadata": {"name": "w"}}, APPLY),
        bad("invalid object type: /v1, Kind=Widget"),
    ),
    case(
        "apply of another name",
        patch(W + "?fieldManager=a", widget("x"), APPLY),
        bad("the name of the object (x) does not match the name on the URL (w)"),
    ),
    case(
        "apply of another namespace",
        patch(W + "?fieldManager=a", widget("w", metadata={"namespace": "x"}), APPLY),
        bad("the namespace of the provided object does not match the namespace sent on the request"),
    ),
    case(
        "apply of another uid",
        patch(W + "?fieldManager=a", widget("w", metadata={"uid": "x"}), APPLY),
        refused(
            422,
            "Invalid",
            ('Widget.conformance.example.com "w" is invalid: metadata.uid: Invalid value: "x": field is immutable'),
            name="w",
            group="conformance.example.com",
            kind="Widget",
            causes=[
                {
                    "reason": "FieldValueInvalid",
                    "message": 'Invalid value: "x": field is immutable',
                    "field": "metadata.uid",
                },
                {
                    "reason": "FieldValueInvalid",
                    "message": 'Invalid value: "x": field is immutable',
                    "field": "metadata.uid",
                },
            ],
        ),
    ),
    case(
        "apply with managed fields",
        patch(W + "?fieldManager=a", widget("w", metadata={"managedFields": [{"manager": "x"}]}), APPLY),
        bad("metadata.managedFields must be nil"),
    ),
    case(
        "apply with a broken schema",
        patch(W + "?fieldManager=a&force=true", widget("w", size=11), APPLY),
        invalid(
            "Widget",
            "w",
            ("spec.size", "Invalid", "Invalid value: 11: spec.size in body should be less than or equal to 10"),
        ),
    ),
    case(
        "apply with another type",
        patch(W + "?fieldManager=a&force=true", widget("w", size="x"), APPLY),
        refused(
            500,
            "",
            (
                "failed to create typed patch object (/w; conformance.example.com/v1, Kind=Widget): "
                ".spec.size: expected numeric (int or float), got string"
            ),
        ),
    ),
    case(
        "apply with a field that is not known",
        patch(W + "?fieldManager=a&force=true", widget("w", sizes=1), APPLY),
        refused(
            500,
            "",
            (
                "failed to create typed patch object (/w; conformance.example.com/v1, Kind=Widget): "
                ".spec.sizes: field not declared in schema"
            ),
        ),
    ),
    case(
        "apply with a field that is not known, ignored",
        patch(W + "?fieldManager=a&force=true&fieldValidation=Ignore", widget("w", sizes=1), APPLY),
        refused(
            500,
            "",
            (
                "failed to create typed patch object (/w; conformance.example.com/v1, Kind=Widget): "
                ".spec.sizes: field not declared in schema"
            ),
        ),
    ),
    case(
        "apply with a field that is not known, strict",
        patch(W + "?fieldManager=a&force=true&fieldValidation=Strict", widget("w", sizes=1), APPLY),
        refused(
            500,
            "",
            (
                "failed to create typed patch object (/w; conformance.example.com/v1, Kind=Widget): "
                ".spec.sizes: field not declared in schema"
            ),
        ),
    ),
    case(
        "apply with an unknown field of a built-in kind",
        patch(M + "?fieldManager=a&force=true", {**config_map("m"), "dta": {}}, APPLY),
        refused(
            500,
            "",
            ("failed to create typed patch object (/m; /v1, Kind=ConfigMap): .dta: field not declared in schema"),
        ),
    ),
    case(
        "apply with a number in data",
        patch(M + "?fieldManager=a&force=true", {**config_map("m"), "data": {"a": 1}}, APPLY),
        refused(
            500,
            "",
            (
                "failed to create typed patch object (/m; /v1, Kind=ConfigMap): .data.a: expected "
                "string, got &value.valueUnstructured{Value:1}"
            ),
        ),
    ),
    case(
        "apply with a key twice",
        patch(W + "?fieldManager=a&force=true", widget("w", parts=[{"name": "a"}, {"name": "a"}]), APPLY),
        refused(
            500,
            "",
            (
                "failed to create typed patch object (/w; conformance.example.com/v1, Kind=Widget): "
                '.spec.parts: duplicate entries for key [name="a"]'
            ),
        ),
    ),
    case(
        "apply with a member twice",
        patch(W + "?fieldManager=a&force=true", widget("w", tags=["a", "a"]), APPLY),
        refused(
            500,
            "",
            (
                "failed to create typed patch object (/w; conformance.example.com/v1, Kind=Widget): "
                '.spec.tags: duplicate entries for key [="a"]'
            ),
        ),
    ),
    case(
        "apply without a key",
        patch(W + "?fieldManager=a&force=true", widget("w", parts=[{"amount": 1}]), APPLY),
        refused(
            500,
            "",
            (
                "failed to create typed patch object (/w; conformance.example.com/v1, Kind=Widget): "
                ".spec.parts: element 0: associative list with keys has an element that omits all key "
                'fields ["name"] (and doesn\'t have default values for any key fields)'
            ),
        ),
    ),
    case(
        "apply of a field twice",
        patch(
            W + DRY + "&fieldManager=a&force=true",
            "apiVersion: conformance.example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: 1, size: 2}\n",
            APPLY,
        ),
        done(200, '299 - "line 4: key \\"size\\" already set in map"'),
    ),
    case(
        "apply in a namespace that is not there",
        patch(widgets("nope", "w") + "?fieldManager=a", widget("w"), APPLY),
        not_found("namespaces", "nope", ""),
    ),
    case(
        "apply of a bad name",
        patch(widgets(NS, "A_B") + "?fieldManager=a", widget("A_B"), APPLY),
        invalid(
            "Widget",
            "A_B",
            (
                "metadata.name",
                "Invalid",
                (
                    'Invalid value: "A_B": a lowercase RFC 1123 subdomain must consist of lower case '
                    "alphanumeric characters, '-' or '.', and must start and end with an alphanumeric "
                    "character (e.g. 'example.com', regex used for validation is "
                    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                ),
            ),
        ),
    ),
    case(
        "apply of a conflict",
        patch(W + "?fieldManager=a", widget("w", size=5), APPLY),
        refused(
            409,
            "Conflict",
            ('Apply failed with 1 conflict: conflict with "unknown" using conformance.example.com/v1: .spec.size'),
            causes=[
                {
                    "reason": "FieldManagerConflict",
                    "message": 'conflict with "unknown" using conformance.example.com/v1',
                    "field": ".spec.size",
                }
            ],
        ),
    ),
]


@pytest.mark.parametrize(("asked", "expected"), REFUSED)
def test_refused(server: Server, furnished: str, asked: Asked, expected: object) -> None:
    """Patches that cannot be read, or do not apply."""
    assert outcome(asked.of(server, furnished)) == expected


@pytest.mark.parametrize(
    ("change", "after"),
    [
        pytest.param({"size": 5}, {"size": 5}, id="a value"),
        pytest.param({"labels": {"a": None, "c": "3"}}, {"labels": {"b": "2", "c": "3"}}, id="null removes"),
        pytest.param({"labels": None}, {"labels": None}, id="null removes a map"),
        pytest.param({"tags": ["c"]}, {"tags": ["c"]}, id="a list is replaced"),
        pytest.param({"size": None}, {"size": 3}, id="a default comes back"),
        pytest.param({"anything": {"a": {"b": 1, "c": None}}}, {"anything": {"a": {"b": 1}}}, id="null in what is new"),
        pytest.param({"labels": {}}, {}, id="nothing"),
        pytest.param({"nothing": None}, {}, id="null of what is not there"),
    ],
)
def test_merge_patch(server: Server, namespace: str, change: JsonObject, after: JsonObject) -> None:
    """RFC 7386."""
    server.create(widgets(namespace), widget("w", **BEFORE))

    made = server.patch(widgets(namespace, "w"), {"spec": change}).ok()

    assert made["spec"] == {key: value for key, value in (BEFORE | after).items() if value is not None}
    assert server.get(widgets(namespace, "w")).ok() == made


@pytest.mark.parametrize(
    ("operations", "after"),
    [
        pytest.param([operation("add", "/spec/steps/-", value="z")], {"steps": ["x", "y", "z"]}, id="append"),
        pytest.param([operation("add", "/spec/steps/0", value="z")], {"steps": ["z", "x", "y"]}, id="insert"),
        pytest.param([operation("remove", "/spec/steps/0")], {"steps": ["y"]}, id="remove"),
        pytest.param([operation("replace", "/spec/steps/1", value="z")], {"steps": ["x", "z"]}, id="replace"),
        pytest.param(
            [operation("move", "/spec/steps/0", **{"from": "/spec/steps/1"})], {"steps": ["y", "x"]}, id="move"
        ),
        pytest.param([operation("copy", "/spec/tags", **{"from": "/spec/steps"})], {"tags": ["x", "y"]}, id="copy"),
        pytest.param(
            [operation("add", "/spec/labels/a~1b~0c", value="1")],
            {"labels": {"a": "1", "b": "2", "a/b~c": "1"}},
            id="escapes",
        ),
        pytest.param([operation("add", "/spec/size", value=5)], {"size": 5}, id="add where something is"),
        pytest.param(
            [operation("test", "/spec/tags", value=["a", "b"]), operation("remove", "/spec/tags")],
            {"tags": None},
            id="test",
        ),
        pytest.param(
            [operation("add", "/spec/size", value=9), operation("replace", "/spec/size", value=5)],
            {"size": 5},
            id="in order",
        ),
    ],
)
def test_json_patch(server: Server, namespace: str, operations: list[JsonObject], after: JsonObject) -> None:
    """RFC 6902."""
    server.create(widgets(namespace), widget("w", **BEFORE))

    made = server.patch(widgets(namespace, "w"), operations, as_=JSON_PATCH).ok()

    assert made["spec"] == {key: value for key, value in (BEFORE | after).items() if value is not None}


# Of a kind that is not served: a garbage collector lets alone what such a one owns.
OWNER: JsonObject = {"apiVersion": "other.example.com/v1", "kind": "Other", "name": "o", "uid": "1"}


@pytest.mark.parametrize(
    ("change", "after"),
    [
        pytest.param({"data": {"b": "2"}}, {"data": {"a": "1", "b": "2"}}, id="a map merges"),
        pytest.param({"data": {"a": None}}, {"data": None}, id="null removes"),
        pytest.param({"data": {"$patch": "replace", "c": "3"}}, {"data": {"c": "3"}}, id="replace a map"),
        pytest.param({"data": {"$patch": "delete"}}, {"data": None}, id="delete a map"),
        pytest.param({"data": {"$retainKeys": ["b"], "b": "2"}}, {"data": {"b": "2"}}, id="retain keys"),
        pytest.param(
            {"metadata": {"finalizers": ["example.com/b"]}},
            {"finalizers": ["example.com/b", "example.com/a"]},
            id="a list of texts merges",
        ),
        pytest.param(
            {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}},
            {"finalizers": None},
            id="delete from a list of texts",
        ),
        pytest.param(
            {"metadata": {"ownerReferences": [{"uid": "1", "name": "p"}]}},
            {"ownerReferences": [{**OWNER, "name": "p"}]},
            id="an element merges by its key",
        ),
        pytest.param(
            {"metadata": {"ownerReferences": [{**OWNER, "uid": "2"}]}},
            {"ownerReferences": [{**OWNER, "uid": "2"}, OWNER]},
            id="an element is added",
        ),
        pytest.param(
            {"metadata": {"ownerReferences": [{"uid": "1", "$patch": "delete"}]}},
            {"ownerReferences": None},
            id="an element is deleted",
        ),
        pytest.param(
            {"metadata": {"ownerReferences": [{**OWNER, "uid": "2"}, {"$patch": "replace"}]}},
            {"ownerReferences": [{**OWNER, "uid": "2"}]},
            id="a list is replaced",
        ),
        pytest.param(
            {
                "metadata": {
                    "$setElementOrder/finalizers": ["example.com/a", "example.com/c"],
                    "finalizers": ["example.com/c"],
                }
            },
            {"finalizers": ["example.com/a", "example.com/c"]},
            id="the order of elements",
        ),
    ],
)
def test_strategic_merge(server: Server, namespace: str, change: JsonObject, after: JsonObject) -> None:
    """Lists merge by key where the kind says so; directives delete, replace and put in order."""
    made = config_map("m", a="1")
    made["metadata"] |= {"finalizers": ["example.com/a"], "ownerReferences": [OWNER]}
    created = server.create(maps(namespace), made)

    changed = server.patch(maps(namespace, "m"), change, as_=STRATEGIC).ok()

    def seen(obj: JsonObject) -> JsonObject:
        return {
            "data": obj.get("data"),
            "finalizers": obj["metadata"].get("finalizers"),
            "ownerReferences": obj["metadata"].get("ownerReferences"),
        }

    server.patch(maps(namespace, "m"), {"metadata": {"finalizers": None}}).ok()
    assert seen(changed) == seen(created) | after
