"""Argo CD's Application and its namespace, for API servers on which Argo CD is only simulated.

As Argo CD's own it has no status subresource and the same columns; it prunes operations, and demands of an
operationState the same fields. Of everything else the schema lets anything pass.
"""

from __future__ import annotations

from typing import Final

from kargo_py.kube.client import JsonObject

_STRING: Final[JsonObject] = {"type": "string"}
_BOOLEAN: Final[JsonObject] = {"type": "boolean"}
_INT64: Final[JsonObject] = {"type": "integer", "format": "int64"}
_DATE_TIME: Final[JsonObject] = {"type": "string", "format": "date-time"}
_ANYTHING: Final[JsonObject] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def _object(*required: str, **properties: JsonObject) -> JsonObject:
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}


def _array(items: JsonObject) -> JsonObject:
    return {"type": "array", "items": items}


_FORCE: Final = _object(force=_BOOLEAN)
_RESOURCE: Final = _object("kind", "name", group=_STRING, kind=_STRING, name=_STRING, namespace=_STRING)
_SYNC: Final = _object(
    autoHealAttemptsCount=_INT64,
    dryRun=_BOOLEAN,
    manifests=_array(_STRING),
    prune=_BOOLEAN,
    resources=_array(_RESOURCE),
    revision=_STRING,
    revisions=_array(_STRING),
    source=_ANYTHING,
    sources=_array(_ANYTHING),
    syncOptions=_array(_STRING),
    syncStrategy=_object(apply=_FORCE, hook=_FORCE),
)
_OPERATION: Final = _object(
    info=_array(_object("name", "value", name=_STRING, value=_STRING)),
    initiatedBy=_object(automated=_BOOLEAN, username=_STRING),
    retry=_object(
        backoff=_object(duration=_STRING, factor=_INT64, maxDuration=_STRING), limit=_INT64, refresh=_BOOLEAN
    ),
    sync=_SYNC,
)
_OPERATION_STATE: Final = _object(
    "operation",
    "phase",
    "startedAt",
    finishedAt=_DATE_TIME,
    message=_STRING,
    operation=_OPERATION,
    phase=_STRING,
    retryCount=_INT64,
    startedAt=_DATE_TIME,
    syncResult=_ANYTHING,
)

NAMESPACE: Final[JsonObject] = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "argocd"}}

APPLICATION: Final[JsonObject] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "applications.argoproj.io"},
    "spec": {
        "group": "argoproj.io",
        "scope": "Namespaced",
        "names": {
            "kind": "Application",
            "listKind": "ApplicationList",
            "plural": "applications",
            "singular": "application",
            "shortNames": ["app", "apps"],
        },
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "additionalPrinterColumns": [
                    {"name": "Sync Status", "type": "string", "jsonPath": ".status.sync.status"},
                    {"name": "Health Status", "type": "string", "jsonPath": ".status.health.status"},
                    {"name": "Revision", "type": "string", "jsonPath": ".status.sync.revision", "priority": 10},
                    {"name": "Project", "type": "string", "jsonPath": ".spec.project", "priority": 10},
                ],
                "schema": {
                    "openAPIV3Schema": {
                        **_object(
                            spec=_ANYTHING,
                            operation=_OPERATION,
                            status={**_object(operationState=_OPERATION_STATE), **_ANYTHING},
                        ),
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}
