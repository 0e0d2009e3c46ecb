"""The writes that stop a sync, and those that have Argo CD look at an Application.

Argo CD ends an operation when it finds ``status.operationState.phase`` to be Terminating while ``.operation`` is set.
``.operation`` is never removed: the worker may have read it already, and would carry it out all the same. Each form is
guarded by what it was decided on, so that it cannot hit another operation; that it was accepted proves nothing, since
the worker overwrites without looking: it is written again until a completed state of ours is seen.
"""

from __future__ import annotations

from dataclasses import dataclass

from kargo_py.argocd.application import REFRESH, Application, JsonObject
from kargo_py.kube.client import PatchType

TERMINATING = "Terminating"


@dataclass(frozen=True, slots=True)
class Patch:
    """A patch of an Application: JSON for the body, and how it is meant."""

    body: JsonObject | list[JsonObject]
    type: PatchType


def terminate_patch(app: Application, mark: str, now: str) -> Patch:
    """The guarded patch that ends the operation *mark*, which stands in *app*; *now* is an RFC3339 time.

    Three forms, each tried on real controllers:

    * running: JSON patch with tests, so that the progress the worker writes all the time is no conflict;
    * orphaned (somebody removed ``.operation``): the stored operation is put back with the phase, in one guarded patch;
    * not picked up yet: a whole new ``operationState`` of that operation, which the worker then ends unrun.
    """
    state = app.status.operation_state
    if state is None or state.mark != mark:
        return _before_pick_up(app, now)
    if app.operation is None:
        return Patch(
            {
                "metadata": {"resourceVersion": app.metadata.resource_version},
                "operation": state.operation,
                "status": {"operationState": {"phase": TERMINATING}},
            },
            PatchType.MERGE,
        )
    return Patch(
        [
            {"op": "test", "path": "/metadata/uid", "value": app.metadata.uid},
            {"op": "test", "path": "/operation", "value": app.operation},
            {"op": "test", "path": "/status/operationState/operation", "value": state.operation},
            {"op": "test", "path": "/status/operationState/phase", "value": state.phase},
            {"op": "replace", "path": "/status/operationState/phase", "value": TERMINATING},
        ],
        PatchType.JSON,
    )


def _before_pick_up(app: Application, now: str) -> Patch:
    ending = {"operation": app.operation, "phase": TERMINATING, "startedAt": now}
    if app.status.operation_state is None:
        return Patch(
            {
                "metadata": {"resourceVersion": app.metadata.resource_version},
                "status": {"operationState": ending},
            },
            PatchType.MERGE,
        )
    # A merge would leave fields of the previous operation's state standing.
    return Patch(
        [
            {"op": "test", "path": "/metadata/resourceVersion", "value": app.metadata.resource_version},
            {"op": "replace", "path": "/status/operationState", "value": ending},
        ],
        PatchType.JSON,
    )


def nudge_patch(app: Application) -> Patch:
    """A patch that is a change whatever stands there, so that the worker gets an update event.

    A refresh is what anybody may ask for at any time; it says nothing about operations and needs no guard.
    """
    kind = "hard" if app.metadata.annotations.refresh == "normal" else "normal"
    return Patch({"metadata": {"annotations": {REFRESH: kind}}}, PatchType.MERGE)


def refresh_patch(app: Application, *, hard: bool = False) -> Patch:
    """The guarded patch that asks Argo CD to look at exactly this version of *app*; *hard*: manifests included."""
    annotations = {REFRESH: "hard" if hard else "normal"}
    meta = {"resourceVersion": app.metadata.resource_version, "annotations": annotations}
    return Patch({"metadata": meta}, PatchType.MERGE)
