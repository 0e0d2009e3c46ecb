"""What somebody else does to an Application: the patch that each act is, None where there is nothing to do.

A list is a JSON patch, anything else a merge patch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

JsonObject = dict[str, Any]
Body: TypeAlias = "JsonObject | list[JsonObject]"

ALICE: JsonObject = {"initiatedBy": {"username": "alice"}, "info": [{"name": "by", "value": "alice"}], "sync": {}}


def state_of(app: JsonObject) -> JsonObject:
    """The operationState, {} if there is none."""
    return (app.get("status") or {}).get("operationState") or {}


def start(app: JsonObject) -> Body | None:
    """As Argo CD's own API server starts an operation."""
    if "operation" in app or state_of(app).get("phase") in {"Running", "Terminating"}:
        return None
    guard = {"resourceVersion": app["metadata"]["resourceVersion"]}
    return {"metadata": guard, "operation": ALICE, "status": {"operationState": None}}


def overwrite(_app: JsonObject) -> Body | None:
    """As a careless tool does."""
    return [{"op": "add", "path": "/operation", "value": ALICE}]


def replace(app: JsonObject) -> Body | None:
    """As RollingSync does: whatever is there, and as if it were new."""
    if app.get("status") is None:
        return None
    return [
        {"op": "add", "path": "/operation", "value": ALICE},
        {"op": "add", "path": "/status/operationState", "value": None},
        {"op": "remove", "path": "/status/operationState"},
    ]


def remove(app: JsonObject) -> Body | None:
    """As somebody who wants it to stop."""
    return {"operation": None} if "operation" in app else None


def terminate(app: JsonObject) -> Body | None:
    """As ``argocd app terminate-op`` does."""
    if "operation" not in app or state_of(app).get("phase") != "Running":
        return None
    return {"status": {"operationState": {"phase": "Terminating"}}}


ACTS: Mapping[str, Callable[[JsonObject], Body | None]] = {
    "start": start,
    "overwrite": overwrite,
    "replace": replace,
    "remove operation": remove,
    "terminate": terminate,
}
