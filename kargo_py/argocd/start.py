"""The one write that starts a sync, and the one that takes its edit of the spec back.

A merge patch guarded by resourceVersion that carries, in one version of the Application: the spec edit, the operation
with the stamp in its info, the stamp as an annotation (it survives when the operation is superseded), a hard refresh,
and a reset of ``operationState``. The reset matters twice: nobody sees the previous operation's result beside the new
request, and Argo CD 3.5 would otherwise count the previous operation's retries against this one (argo-cd#20875).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kargo_py.api.names import INFO_PROMOTION
from kargo_py.api.stamp import STAGE_KEY, STAMP_KEY
from kargo_py.argocd.application import REFRESH, Application, JsonObject
from kargo_py.argocd.sources import SourceEdit
from kargo_py.argocd.stop import Patch
from kargo_py.kube.client import PatchType

REASON = "Promotion triggered a sync of this Application resource."


@dataclass(frozen=True, slots=True)
class Initiator:
    """Who appears as the one who started the sync.

    ``automated`` False lets the sync through a window that allows manual syncs (Argo CD 2.11 and newer).
    """

    username: str
    automated: bool


def start_patch(
    app: Application, *, stamp: str, promotion: str, stage: str, initiator: Initiator, edit: SourceEdit
) -> JsonObject:
    """The merge patch that starts the attempt *stamp* on exactly this version of *app*; *stage* is "<project>:<stage>".

    syncOptions and retry are copied from the spec because Argo CD does not apply them to hand-written operations. A dry
    run asks for no refresh: that might make auto-sync deploy what was only to be tried.
    """
    policy = app.spec.sync_policy
    by: JsonObject = {"username": initiator.username}
    if initiator.automated:
        by["automated"] = True
    operation: JsonObject = {
        "initiatedBy": by,
        "info": [
            {"name": "Reason", "value": REASON},
            {"name": INFO_PROMOTION, "value": promotion},
            {"name": STAMP_KEY, "value": stamp},
            {"name": STAGE_KEY, "value": stage},
        ],
        "sync": edit.sync.wire(),
    }
    if policy is not None and policy.sync_options:
        operation["sync"]["syncOptions"] = policy.sync_options
    if policy is not None and policy.retry:
        operation["retry"] = policy.retry
    patch: JsonObject = {
        "metadata": {
            "resourceVersion": app.metadata.resource_version,
            "annotations": {STAMP_KEY: stamp} if edit.sync.dry_run else {REFRESH: "hard", STAMP_KEY: stamp},
        },
        "operation": operation,
        "status": {"operationState": None},
    }
    if edit.spec_patch:
        patch["spec"] = edit.spec_patch
    return patch


def revert_patch(app: Application, fields: Sequence[tuple[str, Any]]) -> Patch:
    """Put *fields* (JSON pointers with their former values, None for absent) back in exactly this version of *app*."""
    changes = [
        {"op": "remove", "path": pointer} if value is None else {"op": "add", "path": pointer, "value": value}
        for pointer, value in fields
    ]
    guard = {"op": "test", "path": "/metadata/resourceVersion", "value": app.metadata.resource_version}
    return Patch([guard, *changes], PatchType.JSON)
