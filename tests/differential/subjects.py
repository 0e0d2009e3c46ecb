"""What the fuzzer writes: kinds, where their objects are, and schemas to draw values from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.differential.steps import SEQ, JsonObject
from tests.envtest import crds

GROUP: Final = "fuzz.example.com"


def _text(**more: Any) -> JsonObject:
    return {"type": "string", **more}


def _object(**properties: JsonObject) -> JsonObject:
    return {"type": "object", "properties": properties}


def _list(items: JsonObject, kind: str = "", **more: Any) -> JsonObject:
    return {"type": "array", "items": items} | ({"x-kubernetes-list-type": kind} if kind else {}) | more


INTEGER: Final[JsonObject] = {"type": "integer"}
BOOLEAN: Final[JsonObject] = {"type": "boolean"}
ANYTHING: Final[JsonObject] = {"x-kubernetes-preserve-unknown-fields": True}

_PORT: Final = {
    **_object(name=_text(), proto=_text(default="TCP"), port=INTEGER, note=_text(nullable=True)),
    "required": ["name"],
}
_CONDITION: Final = {**_object(type=_text(), status=_text(enum=["True", "False"])), "required": ["type", "status"]}
_SPEC: Final[JsonObject] = {
    "type": "object",
    "required": ["text"],
    "properties": {
        "text": _text(minLength=1, maxLength=5, pattern="^[a-c]*$"),
        "mode": _text(enum=["on", "off", ""], default="on"),
        "count": {"type": "integer", "minimum": 0, "maximum": 10, "default": 2},
        "limit": {"type": "integer", "format": "int32"},
        "big": {"type": "integer", "format": "int64"},
        "ratio": {"type": "number", "minimum": 0, "exclusiveMinimum": True, "multipleOf": 0.5},
        "flag": {"type": "boolean", "default": False},
        "port": {"x-kubernetes-int-or-string": True},
        "when": _text(format="date-time"),
        "open": {"type": "object", **ANYTHING},
        "half": {**_object(a=INTEGER, b=_text(default="x")), **ANYTHING},
        "raw": {"type": "object", "x-kubernetes-embedded-resource": True, **ANYTHING},
        "tags": _list(_text(), "set", maxItems=3),
        "ports": _list(_PORT, "map", **{"x-kubernetes-list-map-keys": ["name", "proto"]}),
        "atoms": _list(INTEGER, "atomic", minItems=1),
        "matrix": _list(_list(INTEGER)),
        "labels": {"type": "object", "additionalProperties": _text(maxLength=3), "maxProperties": 2},
        "sizes": {
            "type": "object",
            "additionalProperties": _object(n={"type": "integer", "default": 1}, s=_text()),
        },
        "atom": {**_object(a=INTEGER, b=_text()), "x-kubernetes-map-type": "atomic"},
        "nil": _text(nullable=True),
        "nild": _text(nullable=True, default="d"),
        "deep": {**_object(er=_object(est=_text(default="!"), x=INTEGER)), "default": {"er": {"x": 1}}},
        "choice": {
            **_object(a=INTEGER, b=_text()),
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
        "fixed": _text(**{"x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "is fixed"}]}),
    },
    "x-kubernetes-validations": [
        {"rule": "!has(self.limit) || self.count <= self.limit", "message": "count is above limit"},
        {
            "rule": "!has(self.tags) || self.tags.all(t, t != self.text)",
            "messageExpression": "'text ' + self.text + ' is a tag'",
            "reason": "FieldValueForbidden",
            "fieldPath": ".tags",
        },
    ],
}
_STATUS: Final = _object(
    phase=_text(default="New"),
    n=INTEGER,
    conditions=_list(_CONDITION, "map", **{"x-kubernetes-list-map-keys": ["type"]}),
    seen=_list(_text()),
)
GAUGE_SCHEMA: Final = _object(spec=_SPEC, status=_STATUS)


def definition(plural: str, kind: str, versions: Sequence[JsonObject], scope: str = "Namespaced") -> JsonObject:
    """Make a CustomResourceDefinition."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": scope, "names": {"plural": plural, "kind": kind}, "versions": versions},
    }


_COLUMNS: Final = [
    {"name": "Mode", "type": "string", "jsonPath": ".spec.mode"},
    {"name": "Count", "type": "integer", "jsonPath": ".spec.count"},
    {"name": "Flag", "type": "boolean", "jsonPath": ".spec.flag"},
    {"name": "Ports", "type": "string", "jsonPath": ".spec.ports[*].name", "priority": 1},
    {"name": "When", "type": "date", "jsonPath": ".spec.when"},
]
GAUGE: Final = definition(
    "gauges",
    "Gauge",
    [
        {
            "name": "v1",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": GAUGE_SCHEMA},
            "subresources": {"status": {}},
            "selectableFields": [{"jsonPath": ".spec.mode"}, {"jsonPath": ".spec.count"}],
            "additionalPrinterColumns": _COLUMNS,
        },
        {
            "name": "v2",
            "served": True,
            "storage": False,
            "deprecated": True,
            "schema": {"openAPIV3Schema": {"description": "Not the same as v1.", **GAUGE_SCHEMA}},
            "subresources": {"status": {}},
        },
    ],
)
LOOSE_SCHEMA: Final[JsonObject] = {"type": "object", **ANYTHING}
LOOSE: Final = definition(
    "looses",
    "Loose",
    [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": LOOSE_SCHEMA}}],
    scope="Cluster",
)


@dataclass(frozen=True, slots=True)
class Subject:
    """A kind that objects are made of."""

    api_version: str
    kind: str
    plural: str
    schema: JsonObject
    namespaced: bool = True
    strategic: bool = False
    status: bool = False
    weight: int = 1
    field_selectors: Sequence[str] = ()
    names: Sequence[str] = ("a", "b", "c")
    verbs: Sequence[str] = ("create", "update", "patch", "delete", "deletecollection", "read", "watch")

    @property
    def collection(self) -> str:
        """Path of the collection."""
        root = "/apis" if "/" in self.api_version else "/api"
        return f"{root}/{self.api_version}{f'/namespaces/{SEQ}' if self.namespaced else ''}/{self.plural}"


_MAP: Final[JsonObject] = {"type": "object", "additionalProperties": _text()}
_BASE64: Final = _text(enum=["", "YQ==", "YWI=", "not base64!", "YQ"])
_TIME: Final = _text(enum=["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.123456Z", "yesterday", ""])
_REFERENCE: Final = _object(kind=_text(), name=_text(), namespace=_text(enum=[SEQ, "other"]), fieldPath=_text())
_CORE_EVENT: Final = _object(
    involvedObject=_REFERENCE,
    reason=_text(enum=["Made", "Ended"]),
    message=_text(),
    type=_text(enum=["Normal", "Warning", "Odd"]),
    count=INTEGER,
    firstTimestamp=_TIME,
    source=_object(component=_text(), host=_text()),
    reportingComponent=_text(),
    eventTime=_TIME,
    series=_object(count=INTEGER, lastObservedTime=_TIME),
)
_NEW_EVENT: Final = _object(
    regarding=_REFERENCE,
    reason=_text(enum=["Made", "Ended"]),
    note=_text(),
    type=_text(enum=["Normal", "Warning", "Odd"]),
    eventTime=_TIME,
    reportingController=_text(enum=["x.io/c", "c", ""]),
    reportingInstance=_text(enum=["i", ""]),
    action=_text(enum=["Do", ""]),
    deprecatedCount=INTEGER,
)
_LEASE: Final = _object(
    spec=_object(
        holderIdentity=_text(),
        leaseDurationSeconds=INTEGER,
        leaseTransitions=INTEGER,
        acquireTime=_TIME,
        renewTime=_TIME,
        strategy=_text(),
        preferredHolder=_text(),
    )
)


def ours() -> list[JsonObject]:
    """Our own definitions."""
    return crds.read(crds.OURS)


def subjects() -> list[Subject]:
    """All that is fuzzed."""
    gauge = {"schema": GAUGE_SCHEMA, "status": True, "field_selectors": ("spec.mode", "spec.count")}
    found = [
        Subject(f"{GROUP}/v1", "Gauge", "gauges", weight=10, **gauge),  # type: ignore[arg-type]
        Subject(f"{GROUP}/v2", "Gauge", "gauges", GAUGE_SCHEMA, status=True, weight=2),
        Subject(
            f"{GROUP}/v1",
            "Loose",
            "looses",
            _object(spec=ANYTHING, x=ANYTHING),
            namespaced=False,
            weight=2,
            names=(f"{SEQ}-a", f"{SEQ}-b"),
            verbs=("create", "update", "patch", "delete"),
        ),
        Subject(
            "v1",
            "ConfigMap",
            "configmaps",
            _object(data=_MAP, binaryData={"type": "object", "additionalProperties": _BASE64}, immutable=BOOLEAN),
            strategic=True,
            weight=4,
        ),
        Subject(
            "v1",
            "Secret",
            "secrets",
            _object(
                data={"type": "object", "additionalProperties": _BASE64},
                stringData=_MAP,
                immutable=BOOLEAN,
                type=_text(enum=["Opaque", "x/y", "kubernetes.io/tls", "kubernetes.io/basic-auth", ""]),
            ),
            strategic=True,
            weight=4,
            field_selectors=("type",),
        ),
        Subject(
            "v1",
            "ServiceAccount",
            "serviceaccounts",
            _object(
                secrets=_list(_REFERENCE),
                imagePullSecrets=_list(_object(name=_text())),
                automountServiceAccountToken=BOOLEAN,
            ),
            strategic=True,
            weight=3,
        ),
        Subject(
            "v1",
            "Namespace",
            "namespaces",
            _object(spec=_object(finalizers=_list(_text(enum=["kubernetes", "x.io/a", "bad"])))),
            namespaced=False,
            strategic=True,
            status=True,
            weight=2,
            names=(f"{SEQ}-a", f"{SEQ}-b"),
            verbs=("create", "update", "patch"),
        ),
        Subject("coordination.k8s.io/v1", "Lease", "leases", _LEASE, strategic=True, weight=3),
        Subject("v1", "Event", "events", _CORE_EVENT, strategic=True, weight=3, field_selectors=("reason", "type")),
        Subject("events.k8s.io/v1", "Event", "events", _NEW_EVENT, strategic=True, weight=2),
    ]
    for made in ours():
        spec = made["spec"]
        version = spec["versions"][0]
        found.append(
            Subject(
                f"{spec['group']}/{version['name']}",
                spec["names"]["kind"],
                spec["names"]["plural"],
                version["schema"]["openAPIV3Schema"],
                namespaced=spec["scope"] == "Namespaced",
                status="status" in version.get("subresources", {}),
                names=("a", "b") if spec["scope"] == "Namespaced" else (f"{SEQ}-a", f"{SEQ}-b"),
                verbs=Subject.__dataclass_fields__["verbs"].default
                if spec["scope"] == "Namespaced"
                else ("create", "update", "patch", "delete"),
            )
        )
    return found
