"""What Kubernetes' OpenAPI says of ``ObjectMeta``, as far as types, patches and field ownership go."""

from __future__ import annotations

from typing import Final

from kargo_py.local.apiserver.wire import JsonObject

_STRING: Final[JsonObject] = {"type": "string"}
_TIME: Final[JsonObject] = {"type": "string", "format": "date-time"}
_INTEGER: Final[JsonObject] = {"type": "integer", "format": "int64"}
_STRINGS: Final[JsonObject] = {"type": "object", "additionalProperties": {"type": "string"}}

OWNER_REFERENCE: Final[JsonObject] = {
    "type": "object",
    "required": ["apiVersion", "kind", "name", "uid"],
    "properties": {
        "apiVersion": _STRING,
        "blockOwnerDeletion": {"type": "boolean"},
        "controller": {"type": "boolean"},
        "kind": _STRING,
        "name": _STRING,
        "uid": _STRING,
    },
    "x-kubernetes-map-type": "atomic",
}

MANAGED_FIELDS_ENTRY: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "apiVersion": _STRING,
        "fieldsType": _STRING,
        "fieldsV1": {"type": "object"},
        "manager": _STRING,
        "operation": _STRING,
        "subresource": _STRING,
        "time": _TIME,
    },
}

OBJECT_META: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "annotations": _STRINGS,
        "creationTimestamp": _TIME,
        "deletionGracePeriodSeconds": _INTEGER,
        "deletionTimestamp": _TIME,
        "finalizers": {
            "type": "array",
            "items": _STRING,
            "x-kubernetes-list-type": "set",
            "x-kubernetes-patch-strategy": "merge",
        },
        "generateName": _STRING,
        "generation": _INTEGER,
        "labels": _STRINGS,
        "managedFields": {
            "type": "array",
            "items": MANAGED_FIELDS_ENTRY,
            "x-kubernetes-list-type": "atomic",
        },
        "name": _STRING,
        "namespace": _STRING,
        "ownerReferences": {
            "type": "array",
            "items": OWNER_REFERENCE,
            "x-kubernetes-list-map-keys": ["uid"],
            "x-kubernetes-list-type": "map",
            "x-kubernetes-patch-merge-key": "uid",
            "x-kubernetes-patch-strategy": "merge",
        },
        "resourceVersion": _STRING,
        "selfLink": _STRING,
        "uid": _STRING,
    },
}
