"""The custom resources of the suite, made so that each thing the server does to an object can be seen on them."""

from __future__ import annotations

import copy
from typing import Any, Final

import pytest

JsonObject = dict[str, Any]

GROUP: Final = "conformance.example.com"


def definition(
    kind: str,
    schema: JsonObject,
    *,
    group: str = GROUP,
    scope: str = "Namespaced",
    status: bool = True,
    **version: Any,
) -> JsonObject:
    """A CustomResourceDefinition with one version, v1."""
    plural = f"{kind.lower()}s"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"kind": kind, "plural": plural},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": copy.deepcopy(schema)},
                    **({"subresources": {"status": {}}} if status else {}),
                    **version,
                }
            ],
        },
    }


_PART: Final[JsonObject] = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "minLength": 1, "description": "Which part it is."},
        "amount": {"type": "integer", "default": 1},
        "colour": {"type": "string"},
    },
}

_WIDGET_SPEC: Final[JsonObject] = {
    "type": "object",
    "description": "What is wanted.",
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 10, "default": 3, "description": "How big it is."},
        "mode": {"type": "string", "enum": ["fast", "safe"], "default": "safe"},
        "code": {"type": "string", "pattern": "^[A-Z]{2}[0-9]+$"},
        "limit": {"x-kubernetes-int-or-string": True},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "parts": {
            "type": "array",
            "maxItems": 5,
            "items": _PART,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 10, "x-kubernetes-list-type": "set"},
        "steps": {"type": "array", "items": {"type": "string"}},
        "anything": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "nothing": {"type": "string", "nullable": True},
        "owner": {
            "type": "string",
            "maxLength": 20,
            "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "owner may not change"}],
        },
        "low": {"type": "integer"},
        "high": {"type": "integer"},
        "due": {"type": "string", "format": "date-time"},
    },
    "x-kubernetes-validations": [
        {
            "rule": "!has(self.low) || !has(self.high) || self.low <= self.high",
            "messageExpression": "has(self.low) ? 'low is above high' : 'no low'",
            "reason": "FieldValueForbidden",
            "fieldPath": ".low",
        }
    ],
}

WIDGET_SCHEMA: Final[JsonObject] = {
    "type": "object",
    "description": "A thing to try everything on.",
    "required": ["spec"],
    "properties": {
        "spec": _WIDGET_SPEC,
        "status": {
            "type": "object",
            "properties": {
                "phase": {"type": "string"},
                "observedGeneration": {"type": "integer"},
                "conditions": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["type"],
                    "items": {
                        "type": "object",
                        "required": ["type", "status"],
                        "properties": {
                            "type": {"type": "string"},
                            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                        },
                    },
                },
            },
        },
    },
}

WIDGET: Final[JsonObject] = definition(
    "Widget",
    WIDGET_SCHEMA,
    selectableFields=[{"jsonPath": ".spec.mode"}],
    additionalPrinterColumns=[
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "description": "How big it is."},
        {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
        {"name": "Mode", "type": "string", "jsonPath": ".spec.mode", "priority": 1},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ],
)
WIDGET["spec"]["names"] |= {"shortNames": ["wd"], "categories": ["conformance"]}

# No schema to speak of, no status subresource, not in a namespace.
GADGET: Final[JsonObject] = definition(
    "Gadget",
    {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    scope="Cluster",
    status=False,
)


def widgets(namespace: str, name: str = "", query: str = "") -> str:
    """Path of a Widget, or of all in *namespace*."""
    path = f"/apis/{GROUP}/v1/namespaces/{namespace}/widgets"
    return f"{path}{'/' if name else ''}{name}{query}"


def widget(name: str = "w", *, status: JsonObject | None = None, **spec: Any) -> JsonObject:
    """A Widget to create; ``metadata`` among *spec* goes beside the name."""
    metadata = {"name": name, **spec.pop("metadata", {})}
    made: JsonObject = {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": metadata, "spec": spec}
    return made | ({"status": status} if status is not None else {})


def gadgets(name: str = "", query: str = "") -> str:
    """Path of a Gadget, or of all."""
    return f"/apis/{GROUP}/v1/gadgets{'/' if name else ''}{name}{query}"


def gadget(name: str, **parts: Any) -> JsonObject:
    """A Gadget to create."""
    return {"apiVersion": f"{GROUP}/v1", "kind": "Gadget", "metadata": {"name": name}, **parts}


def maps(namespace: str, name: str = "", query: str = "") -> str:
    """Path of a ConfigMap, or of all in *namespace*."""
    return f"/api/v1/namespaces/{namespace}/configmaps{'/' if name else ''}{name}{query}"


def config_map(name: str = "m", **data: str) -> JsonObject:
    """A ConfigMap to create."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


EMBEDDED_ONLY: Final = pytest.mark.parametrize("server", ["embedded"], indirect=True)
"""For what kube-controller-manager does in a cluster: none runs beside the real API server."""
