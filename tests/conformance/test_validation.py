"""What schemas, rules and names refuse, and what becomes of what they accept."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.asking import (
    NS,
    UNCHECKED,
    Asked,
    bad,
    case,
    done,
    invalid,
    outcome,
    patch,
    post,
    refused,
)
from tests.conformance.definitions import GROUP, config_map, gadget, gadgets, maps, widget, widgets
from tests.conformance.servers import JSON_PATCH, MERGE, JsonObject, Server

WIDGETS, W = widgets(NS), widgets(NS, "w")
MAPS, M = maps(NS), maps(NS, "m")
DRY = "?dryRun=All"


def prepare(server: Server, namespace: str) -> None:
    """Make what the cases are tried on."""
    server.create(widgets(namespace), widget("w", owner="ann"))
    server.create(maps(namespace), config_map("m", a="1"))


@pytest.fixture(scope="module")
def furnished(server: Server) -> str:
    """Name of a namespace with a Widget "w" and a ConfigMap "m"."""
    namespace = server.namespace()
    prepare(server, namespace)
    return namespace


def part(**fields: Any) -> JsonObject:
    """Make a Widget with one part."""
    return widget("q", parts=[fields])


SCHEMAS = [
    case(
        "above the maximum",
        post(WIDGETS, widget("q", size=11)),
        invalid(
            "Widget",
            "q",
            ("spec.size", "Invalid", "Invalid value: 11: spec.size in body should be less than or equal to 10"),
        ),
    ),
    case(
        "below the minimum",
        post(WIDGETS, widget("q", size=0)),
        invalid(
            "Widget",
            "q",
            ("spec.size", "Invalid", "Invalid value: 0: spec.size in body should be greater than or equal to 1"),
        ),
    ),
    case(
        "text for a number",
        post(WIDGETS, widget("q", size="3")),
        invalid(
            "Widget",
            "q",
            (
                "spec.size",
                "TypeInvalid",
                'Invalid value: "string": spec.size in body must be of type integer: "string"',
            ),
            UNCHECKED,
        ),
    ),
    case(
        "a fraction for an integer",
        post(WIDGETS, widget("q", size=2.5)),
        invalid(
            "Widget",
            "q",
            (
                "spec.size",
                "TypeInvalid",
                'Invalid value: "number": spec.size in body must be of type integer: "number"',
            ),
            UNCHECKED,
        ),
    ),
    case("a whole number written as a fraction", post(WIDGETS + DRY, widget("q", size=3.0)), done(201)),
    case(
        "an integer beyond 64 bits",
        post(WIDGETS, widget("q", low=1 << 70)),
        invalid(
            "Widget",
            "q",
            ("spec.low", "TypeInvalid", 'Invalid value: "number": spec.low in body must be of type integer: "number"'),
            UNCHECKED,
        ),
    ),
    case("null for a number without default", post(WIDGETS + DRY, widget("q", low=None)), done(201)),
    case("null for a number with default", post(WIDGETS + DRY, widget("q", size=None)), done(201)),
    case("null where it may be", post(WIDGETS + DRY, widget("q", nothing=None)), done(201)),
    case(
        "not in the enumeration",
        post(WIDGETS, widget("q", mode="slow")),
        invalid(
            "Widget",
            "q",
            ("spec.mode", "NotSupported", 'Unsupported value: "slow": supported values: "fast", "safe"'),
            UNCHECKED,
        ),
    ),
    case(
        "number for an enumerated text",
        post(WIDGETS, widget("q", mode=1)),
        invalid(
            "Widget",
            "q",
            (
                "spec.mode",
                "TypeInvalid",
                'Invalid value: "integer": spec.mode in body must be of type string: "integer"',
            ),
            ("spec.mode", "NotSupported", 'Unsupported value: 1: supported values: "fast", "safe"'),
            UNCHECKED,
        ),
    ),
    case(
        "no match of the pattern",
        post(WIDGETS, widget("q", code="xx1")),
        invalid(
            "Widget",
            "q",
            ("spec.code", "Invalid", "Invalid value: \"xx1\": spec.code in body should match '^[A-Z]{2}[0-9]+$'"),
        ),
    ),
    case(
        "too long",
        post(WIDGETS, widget("q", owner="x" * 21)),
        invalid("Widget", "q", ("spec.owner", "TooLong", "Too long: may not be more than 20 bytes"), UNCHECKED),
    ),
    case(
        "too short",
        post(WIDGETS, part(name="")),
        invalid(
            "Widget",
            "q",
            (
                "spec.parts[0].name",
                "Invalid",
                'Invalid value: "": spec.parts[0].name in body should be at least 1 chars long',
            ),
        ),
    ),
    case(
        "not there",
        post(WIDGETS, part(colour="red")),
        invalid("Widget", "q", ("spec.parts[0].name", "Required", "Required value"), UNCHECKED),
    ),
    case(
        "spec is not there",
        post(WIDGETS, {key: value for key, value in widget("q").items() if key != "spec"}),
        invalid("Widget", "q", ("spec", "Required", "Required value"), UNCHECKED),
    ),
    case(
        "null for what is required",
        post(WIDGETS, part(name=None)),
        invalid("Widget", "q", ("spec.parts[0].name", "Required", "Required value"), UNCHECKED),
    ),
    case(
        "a list for an object",
        post(WIDGETS, widget("q", labels=[])),
        invalid(
            "Widget",
            "q",
            (
                "spec.labels",
                "TypeInvalid",
                'Invalid value: "array": spec.labels in body must be of type object: "array"',
            ),
            UNCHECKED,
        ),
    ),
    case(
        "an object for a list",
        post(WIDGETS, widget("q", tags={})),
        invalid(
            "Widget",
            "q",
            ("spec.tags", "TypeInvalid", 'Invalid value: "object": spec.tags in body must be of type array: "object"'),
            UNCHECKED,
        ),
    ),
    case(
        "a text for a list",
        post(WIDGETS, widget("q", tags="a")),
        invalid(
            "Widget",
            "q",
            ("spec.tags", "TypeInvalid", 'Invalid value: "string": spec.tags in body must be of type array: "string"'),
            UNCHECKED,
        ),
    ),
    case(
        "null in a list",
        post(WIDGETS, widget("q", tags=[None])),
        invalid(
            "Widget",
            "q",
            (
                "spec.tags[0]",
                "TypeInvalid",
                'Invalid value: "null": spec.tags[0] in body must be of type string: "null"',
            ),
            UNCHECKED,
        ),
    ),
    case(
        "number in a map of texts",
        post(WIDGETS, widget("q", labels={"a b": 1})),
        invalid(
            "Widget",
            "q",
            (
                "spec.labels.a b",
                "TypeInvalid",
                'Invalid value: "integer": spec.labels.a b in body must be of type string: "integer"',
            ),
            UNCHECKED,
        ),
    ),
    case(
        "neither integer nor text",
        post(WIDGETS, widget("q", limit=True)),
        invalid(
            "Widget",
            "q",
            (
                "spec.limit",
                "TypeInvalid",
                ('Invalid value: "boolean": spec.limit in body must be of type integer,string: "boolean"'),
            ),
            UNCHECKED,
        ),
    ),
    case("text for integer or text", post(WIDGETS + DRY, widget("q", limit="5%")), done(201)),
    case(
        "too many items",
        post(WIDGETS, widget("q", tags=[str(n) for n in range(11)])),
        invalid("Widget", "q", ("spec.tags", "TooMany", "Too many: 11: must have at most 10 items"), UNCHECKED),
    ),
    case(
        "a key twice",
        post(WIDGETS, widget("q", parts=[{"name": "a"}, {"name": "b"}, {"name": "a", "amount": 2}])),
        invalid("Widget", "q", ("spec.parts[2]", "Duplicate", 'Duplicate value: {"name":"a"}')),
    ),
    case(
        "a member twice",
        post(WIDGETS, widget("q", tags=["a", "b", "a"])),
        invalid("Widget", "q", ("spec.tags[2]", "Duplicate", 'Duplicate value: "a"')),
    ),
    case(
        "no time",
        post(WIDGETS, widget("q", due="tomorrow")),
        invalid(
            "Widget",
            "q",
            (
                "spec.due",
                "TypeInvalid",
                'Invalid value: "tomorrow": spec.due in body must be of type date-time: "tomorrow"',
            ),
            UNCHECKED,
        ),
    ),
    case("a time", post(WIDGETS + DRY, widget("q", due="2026-01-02T03:04:05Z")), done(201)),
    case(
        "a broken rule",
        post(WIDGETS, widget("q", low=4, high=3)),
        invalid("Widget", "q", ("spec.low", "Forbidden", "Forbidden: low is above high")),
    ),
    case("a kept rule", post(WIDGETS + DRY, widget("q", low=3, high=3)), done(201)),
    case(
        "a broken rule beside a broken schema",
        post(WIDGETS, widget("q", low=4, high=3, size=11)),
        invalid(
            "Widget",
            "q",
            ("spec.size", "Invalid", "Invalid value: 11: spec.size in body should be less than or equal to 10"),
            ("spec.low", "Forbidden", "Forbidden: low is above high"),
        ),
    ),
    case(
        "a transition that is not allowed",
        patch(W, {"spec": {"owner": "bob"}}, MERGE),
        invalid("Widget", "w", ("spec.owner", "Invalid", 'Invalid value: "string": owner may not change')),
    ),
    case("a transition from nothing", patch(W + DRY, {"spec": {"owner": None}}, MERGE), done(200)),
    case(
        "a broken rule by a patch",
        patch(W, {"spec": {"low": 4, "high": 3}}, MERGE),
        invalid("Widget", "w", ("spec.low", "Forbidden", "Forbidden: low is above high")),
    ),
    case(
        "a broken schema by a patch",
        patch(W, {"spec": {"size": 11}}, MERGE),
        invalid(
            "Widget",
            "w",
            ("spec.size", "Invalid", "Invalid value: 11: spec.size in body should be less than or equal to 10"),
        ),
    ),
    case(
        "a broken schema by a JSON patch",
        patch(W, [{"op": "add", "path": "/spec/size", "value": "x"}], JSON_PATCH),
        invalid(
            "Widget",
            "w",
            (
                "spec.size",
                "TypeInvalid",
                'Invalid value: "string": spec.size in body must be of type integer: "string"',
            ),
            UNCHECKED,
        ),
    ),
    case(
        "a required field removed by a patch",
        patch(W, {"spec": None}, MERGE),
        invalid("Widget", "w", ("spec", "Required", "Required value"), UNCHECKED),
    ),
    case(
        "a broken status",
        patch(W + "/status", {"status": {"conditions": [{"type": "A"}]}}, MERGE),
        invalid("Widget", "w", ("status.conditions[0].status", "Required", "Required value"), UNCHECKED),
    ),
    case(
        "a broken status, enumerated",
        patch(W + "/status", {"status": {"conditions": [{"type": "A", "status": "x"}]}}, MERGE),
        invalid(
            "Widget",
            "w",
            (
                "status.conditions[0].status",
                "NotSupported",
                'Unsupported value: "x": supported values: "True", "False", "Unknown"',
            ),
            UNCHECKED,
        ),
    ),
]

METADATA = [
    case(
        "no name",
        post(MAPS, {"metadata": {}}),
        invalid(
            "ConfigMap", "", ("metadata.name", "Required", "Required value: name or generateName is required"), group=""
        ),
    ),
    case(
        "no name, custom",
        post(WIDGETS, {**widget("q"), "metadata": {}}),
        invalid(
            "Widget", "", ("metadata.name", "Required", "Required value: name or generateName is required"), UNCHECKED
        ),
    ),
    case(
        "a capital",
        post(MAPS, config_map("A")),
        invalid(
            "ConfigMap",
            "A",
            (
                "metadata.name",
                "Invalid",
                (
                    'Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case '
                    "alphanumeric characters, '-' or '.', and must start and end with an alphanumeric "
                    "character (e.g. 'example.com', regex used for validation is "
                    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                ),
            ),
            group="",
        ),
    ),
    case(
        "a capital, custom",
        post(WIDGETS, widget("A")),
        invalid(
            "Widget",
            "A",
            (
                "metadata.name",
                "Invalid",
                (
                    'Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case '
                    "alphanumeric characters, '-' or '.', and must start and end with an alphanumeric "
                    "character (e.g. 'example.com', regex used for validation is "
                    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                ),
            ),
        ),
    ),
    case(
        "an underscore",
        post(WIDGETS, widget("a_b")),
        invalid(
            "Widget",
            "a_b",
            (
                "metadata.name",
                "Invalid",
                (
                    'Invalid value: "a_b": a lowercase RFC 1123 subdomain must consist of lower case '
                    "alphanumeric characters, '-' or '.', and must start and end with an alphanumeric "
                    "character (e.g. 'example.com', regex used for validation is "
                    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                ),
            ),
        ),
    ),
    case(
        "two dots",
        post(MAPS, config_map("a..b")),
        invalid(
            "ConfigMap",
            "a..b",
            (
                "metadata.name",
                "Invalid",
                (
                    'Invalid value: "a..b": a lowercase RFC 1123 subdomain must consist of lower case '
                    "alphanumeric characters, '-' or '.', and must start and end with an alphanumeric "
                    "character (e.g. 'example.com', regex used for validation is "
                    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                ),
            ),
            group="",
        ),
    ),
    case(
        "a slash",
        post(MAPS, config_map("a/b")),
        invalid(
            "ConfigMap",
            "a/b",
            (
                "metadata.name",
                "Invalid",
                (
                    'Invalid value: "a/b": a lowercase RFC 1123 subdomain must consist of lower case '
                    "alphanumeric characters, '-' or '.', and must start and end with an alphanumeric "
                    "character (e.g. 'example.com', regex used for validation is "
                    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                ),
            ),
            group="",
        ),
    ),
    case(
        "a dash in front",
        post(MAPS, config_map("-a")),
        invalid(
            "ConfigMap",
            "-a",
            (
                "metadata.name",
                "Invalid",
                (
                    'Invalid value: "-a": a lowercase RFC 1123 subdomain must consist of lower case '
                    "alphanumeric characters, '-' or '.', and must start and end with an alphanumeric "
                    "character (e.g. 'example.com', regex used for validation is "
                    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                ),
            ),
            group="",
        ),
    ),
    case(
        "a long name",
        post(MAPS, config_map("x" * 254)),
        invalid(
            "ConfigMap",
            (
                "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
                "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
                "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
            ),
            (
                "metadata.name",
                "Invalid",
                (
                    'Invalid value: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'
                    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
                    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
                    'xxxxxxxxxxxxxxx": must be no more than 253 characters'
                ),
            ),
            group="",
        ),
    ),
    case("a name with dots", post(WIDGETS + DRY, widget("a.b")), done(201)),
    case(
        "a namespace with dots",
        post("/api/v1/namespaces", {"metadata": {"name": "a.b"}}),
        invalid(
            "Namespace", "a.b", ("metadata.name", "Invalid", 'Invalid value: "a.b": must not contain dots'), group=""
        ),
    ),
    case(
        "a long namespace",
        post("/api/v1/namespaces", {"metadata": {"name": "x" * 64}}),
        invalid(
            "Namespace",
            "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
            (
                "metadata.name",
                "Invalid",
                (
                    'Invalid value: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx": '
                    "must be no more than 63 characters"
                ),
            ),
            (
                "metadata.labels",
                "Invalid",
                (
                    'Invalid value: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx": '
                    "must be no more than 63 characters"
                ),
            ),
            group="",
        ),
    ),
    case(
        "a long prefix",
        post(MAPS, {"metadata": {"name": "a", "generateName": "x" * 254}}),
        invalid(
            "ConfigMap",
            "a",
            (
                "metadata.generateName",
                "Invalid",
                (
                    'Invalid value: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'
                    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
                    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
                    'xxxxxxxxxxxxxxx": must be no more than 253 characters'
                ),
            ),
            group="",
        ),
    ),
    case("a bad prefix", post(MAPS + DRY, {"metadata": {"name": "a", "generateName": "A-"}}), done(201)),
    case(
        "a bad label",
        post(MAPS, {"metadata": {"name": "q", "labels": {"a b": "c"}}}),
        invalid(
            "ConfigMap",
            "q",
            (
                "metadata.labels",
                "Invalid",
                (
                    "Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or "
                    "'.', and must start and end with an alphanumeric character (e.g. 'MyName',  or "
                    "'my.name',  or '123-abc', regex used for validation is "
                    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
                ),
            ),
            group="",
        ),
    ),
    case(
        "a bad label value",
        post(WIDGETS, widget("q", metadata={"labels": {"a": "b c"}})),
        invalid(
            "Widget",
            "q",
            (
                "metadata.labels",
                "Invalid",
                (
                    'Invalid value: "b c": a valid label must be an empty string or consist of '
                    "alphanumeric characters, '-', '_' or '.', and must start and end with an "
                    "alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for "
                    "validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
                ),
            ),
        ),
    ),
    case(
        "a long label value",
        post(MAPS, {"metadata": {"name": "q", "labels": {"a": "x" * 64}}}),
        invalid(
            "ConfigMap",
            "q",
            (
                "metadata.labels",
                "Invalid",
                (
                    'Invalid value: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx": '
                    "must be no more than 63 characters"
                ),
            ),
            group="",
        ),
    ),
    case(
        "a label with an empty prefix",
        post(MAPS, {"metadata": {"name": "q", "labels": {"/a": ""}}}),
        invalid(
            "ConfigMap",
            "q",
            ("metadata.labels", "Invalid", 'Invalid value: "/a": prefix part must be non-empty'),
            group="",
        ),
    ),
    case(
        "a bad annotation",
        post(WIDGETS, widget("q", metadata={"annotations": {"a b": "c"}})),
        invalid(
            "Widget",
            "q",
            (
                "metadata.annotations",
                "Invalid",
                (
                    "Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or "
                    "'.', and must start and end with an alphanumeric character (e.g. 'MyName',  or "
                    "'my.name',  or '123-abc', regex used for validation is "
                    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
                ),
            ),
        ),
    ),
    case(
        "a capital in an annotation",
        post(MAPS + DRY, {"metadata": {"name": "q", "annotations": {"Example.com/A": "c"}}}),
        done(201),
    ),
    case(
        "large annotations",
        post(MAPS, {"metadata": {"name": "q", "annotations": {"a": "x" * (1 << 18)}}}),
        invalid(
            "ConfigMap",
            "q",
            ("metadata.annotations", "TooLong", "Too long: may not be more than 262144 bytes"),
            group="",
        ),
    ),
    case(
        "a bad finalizer",
        post(WIDGETS, widget("q", metadata={"finalizers": ["a b"]})),
        invalid(
            "Widget",
            "q",
            (
                "metadata.finalizers",
                "Invalid",
                (
                    "Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or "
                    "'.', and must start and end with an alphanumeric character (e.g. 'MyName',  or "
                    "'my.name',  or '123-abc', regex used for validation is "
                    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
                ),
            ),
        ),
    ),
    case(
        "a finalizer without a domain",
        post(WIDGETS + DRY, widget("q", metadata={"finalizers": ["mine"]})),
        done(
            201,
            (
                '299 - "metadata.finalizers: \\"mine\\": prefer a domain-qualified finalizer name to '
                'avoid accidental conflicts with other finalizer writers"'
            ),
        ),
    ),
    case(
        "a finalizer without a domain, built-in",
        post(MAPS, {"metadata": {"name": "q", "finalizers": ["mine"]}}),
        invalid(
            "ConfigMap",
            "q",
            (
                "metadata.finalizers[0]",
                "Invalid",
                ('Invalid value: "mine": name is neither a standard finalizer name nor is it fully qualified'),
            ),
            group="",
        ),
    ),
    case(
        "an owner without a name",
        post(
            MAPS,
            {"metadata": {"name": "q", "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "uid": "x"}]}},
        ),
        invalid(
            "ConfigMap",
            "q",
            ("metadata.ownerReferences.name", "Invalid", 'Invalid value: "": must not be empty'),
            group="",
        ),
    ),
    case(
        "an owner without anything",
        post(MAPS, {"metadata": {"name": "q", "ownerReferences": [{}]}}),
        invalid(
            "ConfigMap",
            "q",
            ("metadata.ownerReferences.apiVersion", "Invalid", 'Invalid value: "": version must not be empty'),
            ("metadata.ownerReferences.kind", "Invalid", 'Invalid value: "": must not be empty'),
            ("metadata.ownerReferences.name", "Invalid", 'Invalid value: "": must not be empty'),
            ("metadata.ownerReferences.uid", "Invalid", 'Invalid value: "": must not be empty'),
            group="",
        ),
    ),
    case(
        "an owner that may not be",
        post(
            MAPS,
            {
                "metadata": {
                    "name": "q",
                    "ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "a", "uid": "x"}],
                }
            },
        ),
        invalid(
            "ConfigMap",
            "q",
            (
                "metadata.ownerReferences",
                "Invalid",
                (
                    'Invalid value: {"apiVersion":"v1","kind":"Event","name":"a","uid":"x"}: /v1, '
                    "Kind=Event is disallowed from being an owner"
                ),
            ),
            group="",
        ),
    ),
    case(
        "an owner of a bad version",
        post(
            WIDGETS,
            widget(
                "q", metadata={"ownerReferences": [{"apiVersion": "a/b/c", "kind": "Event", "name": "a", "uid": "x"}]}
            ),
        ),
        invalid(
            "Widget",
            "q",
            ("metadata.ownerReferences.apiVersion", "Invalid", 'Invalid value: "a/b/c": version must not be empty'),
        ),
    ),
    case(
        "two controllers",
        post(
            WIDGETS,
            widget(
                "q",
                metadata={
                    "ownerReferences": [
                        {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": name, "controller": True}
                        for name in "ab"
                    ]
                },
            ),
        ),
        invalid(
            "Widget",
            "q",
            (
                "metadata.ownerReferences",
                "Invalid",
                (
                    'Invalid value: [{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"a","controlle'
                    'r":true},{"apiVersion":"v1","kind":"ConfigMap","name":"b","uid":"b","controller":true'
                    '}]: Only one reference can have Controller set to true. Found "true" in references '
                    "for ConfigMap/a and ConfigMap/b"
                ),
            ),
        ),
    ),
    case(
        "another uid",
        patch(M, {"metadata": {"uid": "x"}}, MERGE),
        refused(
            422,
            "Invalid",
            'ConfigMap "m" is invalid: metadata.uid: Invalid value: "x": field is immutable',
            name="m",
            kind="ConfigMap",
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
        "another name",
        patch(M, {"metadata": {"name": "x"}}, MERGE),
        bad("the name of the object (x) does not match the name on the URL (m)"),
    ),
    case(
        "another name, custom",
        patch(W, {"metadata": {"name": "x"}}, MERGE),
        bad("the name of the object (x) does not match the name on the URL (w)"),
    ),
    case(
        "another namespace",
        patch(W, {"metadata": {"namespace": "x"}}, MERGE),
        bad("the namespace of the provided object does not match the namespace sent on the request"),
    ),
    case(
        "another kind",
        patch(W, {"kind": "Gadget"}, MERGE),
        invalid("Gadget", "w", ("kind", "Invalid", 'Invalid value: "Gadget": must be Widget')),
    ),
    case(
        "another kind and a broken rule",
        patch(W, {"kind": "Gadget", "spec": {"low": 4, "high": 3}}, MERGE),
        invalid(
            "Gadget",
            "w",
            ("kind", "Invalid", 'Invalid value: "Gadget": must be Widget'),
            ("spec.low", "Forbidden", "Forbidden: low is above high"),
        ),
    ),
    case(
        "another kind and a broken schema",
        patch(W, {"kind": "Gadget", "spec": {"size": 11}}, MERGE),
        invalid("Gadget", "w", ("kind", "Invalid", 'Invalid value: "Gadget": must be Widget')),
    ),
    case(
        "another kind, built-in",
        patch(M, {"kind": "Secret"}, MERGE),
        invalid("", "", ("patch", "Invalid", 'Invalid value: "{…}": illegal base64 data at input byte 0'), group=""),
    ),
    case(
        "another apiVersion",
        patch(W, {"apiVersion": f"{GROUP}/v2"}, MERGE),
        invalid(
            "Widget",
            "w",
            (
                "apiVersion",
                "Invalid",
                'Invalid value: "conformance.example.com/v2": must be conformance.example.com/v1',
            ),
        ),
    ),
    case(
        "an old version",
        patch(W, {"metadata": {"resourceVersion": "1"}}, MERGE),
        refused(
            409,
            "Conflict",
            (
                'Operation cannot be fulfilled on widgets.conformance.example.com "w": the object has '
                "been modified; please apply your changes to the latest version and try again"
            ),
            name="w",
            group="conformance.example.com",
            kind="widgets",
        ),
    ),
    case(
        "an old version, built-in",
        patch(M, {"metadata": {"resourceVersion": "1"}}, MERGE),
        refused(
            409,
            "Conflict",
            (
                'Operation cannot be fulfilled on configmaps "m": the object has been modified; '
                "please apply your changes to the latest version and try again"
            ),
            name="m",
            kind="configmaps",
        ),
    ),
    case(
        "a bad label by a patch",
        patch(W, {"metadata": {"labels": {"a b": "c"}}}, MERGE),
        refused(
            422,
            "Invalid",
            (
                'Widget.conformance.example.com "w" is invalid: metadata.labels: Invalid value: "a '
                "b\": name part must consist of alphanumeric characters, '-', '_' or '.', and must "
                "start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or "
                "'123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
            ),
            name="w",
            group="conformance.example.com",
            kind="Widget",
            causes=[
                {
                    "reason": "FieldValueInvalid",
                    "message": (
                        "Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or "
                        "'.', and must start and end with an alphanumeric character (e.g. 'MyName',  or "
                        "'my.name',  or '123-abc', regex used for validation is "
                        "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
                    ),
                    "field": "metadata.labels",
                },
                {
                    "reason": "FieldValueInvalid",
                    "message": (
                        "Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or "
                        "'.', and must start and end with an alphanumeric character (e.g. 'MyName',  or "
                        "'my.name',  or '123-abc', regex used for validation is "
                        "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
                    ),
                    "field": "metadata.labels",
                },
                {
                    "reason": "FieldValueInvalid",
                    "message": (
                        "Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or "
                        "'.', and must start and end with an alphanumeric character (e.g. 'MyName',  or "
                        "'my.name',  or '123-abc', regex used for validation is "
                        "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
                    ),
                    "field": "metadata.labels",
                },
            ],
        ),
    ),
    case(
        "another creation time",
        patch(W + DRY, {"metadata": {"creationTimestamp": "2020-01-01T00:00:00Z"}}, MERGE),
        done(200),
    ),
    case(
        "a creation time that is none",
        patch(W, {"metadata": {"creationTimestamp": "x"}}, MERGE),
        invalid(
            "",
            "",
            (
                "patch",
                "Invalid",
                ('Invalid value: "{…}": parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"'),
            ),
            group="",
        ),
    ),
    case("a generation of one's own", patch(W + DRY, {"metadata": {"generation": 77}}, MERGE), done(200)),
    case(
        "managed fields that are none",
        patch(W + DRY, {"metadata": {"managedFields": [{"operation": "x"}]}}, MERGE),
        done(200),
    ),
]

UNKNOWN = widget("q", sizes=1, parts=[{"name": "a", "color": "x"}])
TWICE = (
    '{"apiVersion":"conformance.example.com/v1","kind":"Widget","metadata":{"name":"q","nme":"x"},'
    '"spec":{"size":1,"size":2}}'
)
MAP_UNKNOWN = (
    '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"q","nme":"x"},"data":{"a":"1","a":"2"},"dta":{}}'
)
FIELD_VALIDATION = [
    case(
        "unknown: Strict",
        post(WIDGETS + DRY + "&fieldValidation=Strict", UNKNOWN),
        bad(
            'Widget in version "v1" cannot be handled as a Widget: strict decoding error: unknown '
            'field "spec.parts[0].color", unknown field "spec.sizes"'
        ),
    ),
    case(
        "unknown: Warn",
        post(WIDGETS + DRY + "&fieldValidation=Warn", UNKNOWN),
        done(201, '299 - "unknown field \\"spec.parts[0].color\\""', '299 - "unknown field \\"spec.sizes\\""'),
    ),
    case("unknown: Ignore", post(WIDGETS + DRY + "&fieldValidation=Ignore", UNKNOWN), done(201)),
    case(
        "unknown: by default",
        post(WIDGETS + DRY, UNKNOWN),
        done(201, '299 - "unknown field \\"spec.parts[0].color\\""', '299 - "unknown field \\"spec.sizes\\""'),
    ),
    case(
        "unknown under preserve",
        post(WIDGETS + DRY + "&fieldValidation=Strict", widget("q", anything={"a": 1})),
        done(201),
    ),
    case(
        "unknown beside spec",
        post(WIDGETS + DRY + "&fieldValidation=Strict", {**widget("q"), "more": 1}),
        bad('Widget in version "v1" cannot be handled as a Widget: strict decoding error: unknown field "more"'),
    ),
    case(
        "twice: Strict",
        post(WIDGETS + DRY + "&fieldValidation=Strict", TWICE),
        bad(
            'Widget in version "v1" cannot be handled as a Widget: strict decoding error: '
            'duplicate field "spec.size", unknown field "metadata.nme"'
        ),
    ),
    case(
        "twice: Warn",
        post(WIDGETS + DRY + "&fieldValidation=Warn", TWICE),
        done(201, '299 - "duplicate field \\"spec.size\\""', '299 - "unknown field \\"metadata.nme\\""'),
    ),
    case("twice: Ignore", post(WIDGETS + DRY + "&fieldValidation=Ignore", TWICE), done(201)),
    case(
        "built-in: Strict",
        post(MAPS + DRY + "&fieldValidation=Strict", MAP_UNKNOWN),
        bad(
            'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: '
            'unknown field "metadata.nme", duplicate field "data.a", unknown field "dta"'
        ),
        pytest.mark.differs("Order of complaints"),
    ),
    case(
        "built-in: Warn",
        post(MAPS + DRY + "&fieldValidation=Warn", MAP_UNKNOWN),
        done(
            201,
            '299 - "unknown field \\"metadata.nme\\""',
            '299 - "duplicate field \\"data.a\\""',
            '299 - "unknown field \\"dta\\""',
        ),
        pytest.mark.differs("Order of complaints"),
    ),
    case("built-in: Ignore", post(MAPS + DRY + "&fieldValidation=Ignore", MAP_UNKNOWN), done(201)),
    case(
        "YAML: Strict",
        post(
            WIDGETS + DRY + "&fieldValidation=Strict",
            f"apiVersion: {GROUP}/v1\nkind: Widget\nmetadata: {{name: q}}\nspec: {{sizes: 1}}\n",
            "application/yaml",
        ),
        bad('Widget in version "v1" cannot be handled as a Widget: strict decoding error: unknown field "spec.sizes"'),
    ),
    case(
        "YAML twice: Strict",
        post(
            WIDGETS + DRY + "&fieldValidation=Strict",
            f"apiVersion: {GROUP}/v1\nkind: Widget\nmetadata: {{name: q}}\nspec: {{size: 1, size: 2}}\n",
            "application/yaml",
        ),
        bad(
            'Widget in version "v1" cannot be handled as a Widget: strict decoding error: yaml: '
            'unmarshal errors:\n  line 4: key "size" already set in map'
        ),
    ),
    case(
        "merge patch: Strict",
        patch(W + DRY + "&fieldValidation=Strict", {"spec": {"sizes": 1}}, MERGE),
        invalid(
            "",
            "",
            ("patch", "Invalid", 'Invalid value: "{…}": strict decoding error: unknown field "spec.sizes"'),
            group="",
        ),
    ),
    case(
        "merge patch: Warn",
        patch(W + DRY + "&fieldValidation=Warn", {"spec": {"sizes": 1}}, MERGE),
        done(200, '299 - "unknown field \\"spec.sizes\\""'),
    ),
    case(
        "merge patch, built-in: Strict",
        patch(M + DRY + "&fieldValidation=Strict", {"dta": {}}, MERGE),
        invalid(
            "", "", ("patch", "Invalid", 'Invalid value: "{…}": strict decoding error: unknown field "dta"'), group=""
        ),
    ),
    case(
        "merge patch twice: Strict",
        patch(W + DRY + "&fieldValidation=Strict", '{"spec":{"size":1,"size":2}}', MERGE),
        invalid(
            "",
            "",
            ("patch", "Invalid", 'Invalid value: "{…}": strict decoding error: duplicate field "spec.size"'),
            group="",
        ),
    ),
    case(
        "JSON patch: Strict",
        patch(W + DRY + "&fieldValidation=Strict", [{"op": "add", "path": "/spec/sizes", "value": 1}], JSON_PATCH),
        invalid(
            "",
            "",
            ("patch", "Invalid", 'Invalid value: "{…}": strict decoding error: unknown field "spec.sizes"'),
            group="",
        ),
    ),
    case(
        "JSON patch with a field too much: Strict",
        patch(
            W + DRY + "&fieldValidation=Strict",
            [{"op": "add", "path": "/spec/size", "value": 1, "more": 2}],
            JSON_PATCH,
        ),
        invalid(
            "",
            "",
            ("patch", "Invalid", 'Invalid value: "{…}": strict decoding error: json patch unknown field "[0].more"'),
            group="",
        ),
    ),
]


@pytest.mark.parametrize(("asked", "expected"), SCHEMAS)
def test_schemas(server: Server, furnished: str, asked: Asked, expected: object) -> None:
    """Types, limits, required fields, lists with keys, formats, rules, transitions."""
    assert outcome(asked.of(server, furnished)) == expected


@pytest.mark.parametrize(("asked", "expected"), METADATA)
def test_metadata(server: Server, furnished: str, asked: Asked, expected: object) -> None:
    """Names, labels, annotations, finalizers, owners, and what may not change."""
    assert outcome(asked.of(server, furnished)) == expected


@pytest.mark.parametrize(("asked", "expected"), FIELD_VALIDATION)
def test_field_validation(server: Server, furnished: str, asked: Asked, expected: object) -> None:
    """Fields that are not known or stand twice: refused, warned of, or nothing."""
    assert outcome(asked.of(server, furnished)) == expected


def test_several_causes(server: Server, furnished: str) -> None:
    """Every fault of an object is told at once."""
    wrong = widget("q", size=11, mode="x", code="z", limit=True, tags=["a", "a"], parts=[{"name": "a"}, {"name": "a"}])

    refusal = server.send("POST", widgets(furnished), wrong).refusal

    told = {(each["field"], each["reason"]) for each in refusal["details"]["causes"]}
    assert told == {
        ("spec.size", "FieldValueInvalid"),
        ("spec.mode", "FieldValueNotSupported"),
        ("spec.code", "FieldValueInvalid"),
        ("spec.limit", "FieldValueTypeInvalid"),
        ("spec.tags[1]", "FieldValueDuplicate"),
        ("spec.parts[1]", "FieldValueDuplicate"),
        ("<nil>", "FieldValueInvalid"),
    }


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        pytest.param({}, {"size": 3, "mode": "safe"}, id="defaults"),
        pytest.param({"size": 4}, {"size": 4, "mode": "safe"}, id="given"),
        pytest.param({"size": None}, {"size": 3, "mode": "safe"}, id="null is as absent"),
        pytest.param({"nothing": None}, {"size": 3, "mode": "safe", "nothing": None}, id="null that may be"),
        pytest.param({"sizes": 1}, {"size": 3, "mode": "safe"}, id="unknown"),
        pytest.param(
            {"parts": [{"name": "a", "x": 1}, {"name": "b", "amount": 0}]},
            {"size": 3, "mode": "safe", "parts": [{"name": "a", "amount": 1}, {"name": "b", "amount": 0}]},
            id="within a list",
        ),
        pytest.param(
            {"anything": {"a": [{"b": None}]}, "labels": {"any": "thing"}},
            {"size": 3, "mode": "safe", "anything": {"a": [{"b": None}]}, "labels": {"any": "thing"}},
            id="preserved",
        ),
        pytest.param(
            {"limit": "5%", "low": -0, "steps": []},
            {"size": 3, "mode": "safe", "limit": "5%", "low": 0, "steps": []},
            id="kept",
        ),
    ],
)
def test_pruning_and_defaults(server: Server, namespace: str, given: JsonObject, stored: JsonObject) -> None:
    """What is not in the schema goes, what has a default comes."""
    created = server.create(widgets(namespace), widget("w", **given))

    assert created["spec"] == stored
    assert server.get(widgets(namespace, "w")).ok() == created


def test_nothing_pruned(server: Server) -> None:
    """A schema that keeps unknown fields keeps all, nulls too."""
    made = server.send("POST", gadgets(query=DRY), gadget("q", spec={"any": [1, None]}, more=None)).ok()

    assert (made["spec"], made["more"]) == ({"any": [1, None]}, None)
