"""A kind that has every type of list and map that there is, and random contents for its objects."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from kargo_py.local.apiserver.wire import JsonObject

GROUP: Final = "managed.test"
STRING: Final[JsonObject] = {"type": "string"}
SPEC: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "text": STRING,
        "number": {"type": "integer"},
        "flag": {"type": "boolean"},
        "either": {"x-kubernetes-int-or-string": True},
        "struct": {"type": "object", "properties": {"a": STRING, "b": STRING}},
        "whole": {"type": "object", "properties": {"a": STRING, "b": STRING}, "x-kubernetes-map-type": "atomic"},
        "map": {"type": "object", "additionalProperties": STRING},
        "wholeMap": {"type": "object", "additionalProperties": STRING, "x-kubernetes-map-type": "atomic"},
        "mapOfStructs": {
            "type": "object",
            "additionalProperties": {"type": "object", "properties": {"a": STRING, "b": STRING}},
        },
        "list": {"type": "array", "items": STRING},
        "set": {"type": "array", "items": STRING, "x-kubernetes-list-type": "set"},
        "numbers": {"type": "array", "items": {"type": "integer"}, "x-kubernetes-list-type": "set"},
        "items": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": STRING,
                    "value": STRING,
                    "tags": {"type": "array", "items": STRING, "x-kubernetes-list-type": "set"},
                    "struct": {"type": "object", "properties": {"a": STRING, "b": STRING}},
                },
            },
        },
        "ports": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["port", "protocol"],
            "items": {
                "type": "object",
                "required": ["port"],
                "properties": {
                    "port": {"type": "integer"},
                    "protocol": {"type": "string", "default": "TCP"},
                    "name": STRING,
                },
            },
        },
        "defaulted": {"type": "object", "properties": {"a": {"type": "string", "default": "x"}, "b": STRING}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "partlyFree": {
            "type": "object",
            "properties": {"a": STRING, "list": {"type": "array", "items": STRING, "x-kubernetes-list-type": "set"}},
            "x-kubernetes-preserve-unknown-fields": True,
        },
        "anything": {"x-kubernetes-preserve-unknown-fields": True},
        "embedded": {
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "x-kubernetes-preserve-unknown-fields": True,
        },
        "nullable": {"type": "string", "nullable": True},
    },
}
STATUS: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "phase": STRING,
        "conditions": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
            "items": {"type": "object", "required": ["type"], "properties": {"type": STRING, "status": STRING}},
        },
    },
}
SCHEMA: Final[JsonObject] = {"type": "object", "properties": {"spec": SPEC, "status": STATUS}}
VERSIONS: Final = ("v1", "v2")
CRD: Final[JsonObject] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"things.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
        "versions": [
            {
                "name": version,
                "served": True,
                "storage": version == "v1",
                "schema": {"openAPIV3Schema": SCHEMA},
                "subresources": {"status": {}},
            }
            for version in VERSIONS
        ],
    },
}

a_word = st.sampled_from(["a", "b", "c"])
a_struct = st.fixed_dictionaries({}, optional={"a": a_word, "b": a_word})
anything = st.recursive(
    st.one_of(a_word, st.integers(0, 2), st.booleans(), st.just(1.5)),
    lambda inner: st.one_of(st.dictionaries(a_word, inner, max_size=2), st.lists(inner, max_size=2)),
    max_leaves=5,
)


def unique(items: st.SearchStrategy[Any], *keys: str) -> st.SearchStrategy[list[Any]]:
    def key(item: Any) -> Any:
        return tuple(item.get(name, "TCP") for name in keys) if keys else item

    return st.lists(items, max_size=3, unique_by=key)


an_item = st.fixed_dictionaries(
    {"name": a_word}, optional={"value": a_word, "tags": unique(a_word), "struct": a_struct}
)
a_port = st.fixed_dictionaries(
    {"port": st.sampled_from([80, 443, 1_000_000])},
    optional={"protocol": st.sampled_from(["TCP", "UDP"]), "name": a_word},
)
spec_fields: Final[dict[str, st.SearchStrategy[Any]]] = {
    "text": a_word,
    "number": st.integers(0, 3),
    "flag": st.booleans(),
    "either": st.one_of(st.integers(0, 2), a_word),
    "struct": a_struct,
    "whole": a_struct,
    "map": st.dictionaries(a_word, a_word, max_size=3),
    "wholeMap": st.dictionaries(a_word, a_word, max_size=3),
    "mapOfStructs": st.dictionaries(a_word, a_struct, max_size=2),
    "list": st.lists(a_word, max_size=3),
    "set": unique(a_word),
    "numbers": unique(st.integers(0, 12)),
    "items": unique(an_item, "name"),
    "ports": unique(a_port, "port", "protocol"),
    "defaulted": a_struct,
    "free": st.dictionaries(a_word, anything, max_size=2),
    "partlyFree": st.fixed_dictionaries({}, optional={"a": a_word, "list": unique(a_word), "c": anything}),
    "anything": anything,
    "embedded": st.fixed_dictionaries(
        {"apiVersion": st.just("v1"), "kind": st.just("Thing")},
        optional={
            "metadata": st.fixed_dictionaries({"labels": st.dictionaries(a_word, a_word, min_size=1, max_size=2)}),
            "c": anything,
        },
    ),
    "nullable": st.one_of(st.none(), a_word),
}
specs = st.fixed_dictionaries({}, optional=spec_fields)
statuses = st.fixed_dictionaries(
    {},
    optional={
        "phase": a_word,
        "conditions": unique(st.fixed_dictionaries({"type": a_word}, optional={"status": a_word}), "type"),
    },
)
owner_references = st.fixed_dictionaries(
    {"apiVersion": st.just("v1"), "kind": st.just("ConfigMap"), "name": a_word, "uid": a_word},
    optional={"blockOwnerDeletion": st.booleans()},
)
metadatas = st.fixed_dictionaries(
    {},
    optional={
        "labels": st.dictionaries(a_word, a_word, max_size=2),
        "annotations": st.dictionaries(a_word, a_word, max_size=2),
        "finalizers": unique(st.sampled_from(["x.y/a", "x.y/b", "x.y/c"])),
        "ownerReferences": unique(owner_references, "uid"),
    },
)


def contents(*, sparse: bool) -> st.SearchStrategy[JsonObject]:
    parts: dict[str, st.SearchStrategy[Any]] = {"metadata": metadatas, "spec": specs, "status": statuses}
    return st.fixed_dictionaries({}, optional=parts) if sparse else st.fixed_dictionaries(parts)
