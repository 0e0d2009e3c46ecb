"""The writes that stop a sync."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kargo_py.api.stamp import STAMP_KEY
from kargo_py.argocd.application import Application
from kargo_py.argocd.start import revert_patch
from kargo_py.argocd.stop import nudge_patch, refresh_patch, terminate_patch
from kargo_py.kube.client import PatchType

Build = Callable[..., Application]

STAMP = "v1/instance/shop/dev.01k/uid/update/1"
OURS: dict[str, Any] = {"info": [{"name": STAMP_KEY, "value": STAMP}], "sync": {"syncOptions": ["x=y"]}}
THEIRS: dict[str, Any] = {"initiatedBy": {"username": "alice"}, "sync": {}}
NOW = "2026-11-30T12:00:00Z"
ENDING = {"operation": OURS, "phase": "Terminating", "startedAt": NOW}


def state(operation: dict[str, Any], phase: str) -> dict[str, Any]:
    return {"operationState": {"operation": operation, "phase": phase, "startedAt": "t"}}


def test_running(app: Build) -> None:
    """The phase is replaced only where operation, stored operation and phase are as they were seen."""
    patch = terminate_patch(app(operation=OURS, status=state(OURS, "Running")), STAMP, NOW)

    assert patch.type is PatchType.JSON
    assert patch.body == [
        {"op": "test", "path": "/metadata/uid", "value": "uid-1"},
        {"op": "test", "path": "/operation", "value": OURS},
        {"op": "test", "path": "/status/operationState/operation", "value": OURS},
        {"op": "test", "path": "/status/operationState/phase", "value": "Running"},
        {"op": "replace", "path": "/status/operationState/phase", "value": "Terminating"},
    ]


def test_orphaned(app: Build) -> None:
    """The stored operation comes back together with the phase, so that a worker takes notice of it."""
    patch = terminate_patch(app(status=state(OURS, "Running")), STAMP, NOW)

    assert patch.type is PatchType.MERGE
    assert patch.body == {
        "metadata": {"resourceVersion": "7"},
        "operation": OURS,
        "status": {"operationState": {"phase": "Terminating"}},
    }


def test_not_picked_up(app: Build) -> None:
    """The worker finds a state of ours that is ending; `.operation` is left where it is."""
    patch = terminate_patch(app(operation=OURS, status={}), STAMP, NOW)

    assert patch.type is PatchType.MERGE
    assert patch.body == {"metadata": {"resourceVersion": "7"}, "status": {"operationState": ENDING}}


def test_not_picked_up_over_a_complete_one(app: Build) -> None:
    """Nothing of the previous operation's state is left standing beside ours."""
    patch = terminate_patch(app(operation=OURS, status=state(THEIRS, "Succeeded")), STAMP, NOW)

    assert patch.type is PatchType.JSON
    assert patch.body == [
        {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "replace", "path": "/status/operationState", "value": ENDING},
    ]


@pytest.mark.parametrize(("there", "asked"), [(None, "normal"), ("hard", "normal"), ("normal", "hard")])
def test_nudge(app: Build, there: str | None, asked: str) -> None:
    """A nudge changes something whatever stands there, else no event would wake the worker."""
    annotations = {"argocd.argoproj.io/refresh": there} if there else {}

    patch = nudge_patch(app(metadata={"annotations": annotations}))

    assert patch.body == {"metadata": {"annotations": {"argocd.argoproj.io/refresh": asked}}}


@pytest.mark.parametrize(("hard", "asked"), [(False, "normal"), (True, "hard")])
def test_refresh(app: Build, hard: bool, asked: str) -> None:
    """It is refused if anything has happened since the decision."""
    patch = refresh_patch(app(), hard=hard)

    assert patch.body == {"metadata": {"resourceVersion": "7", "annotations": {"argocd.argoproj.io/refresh": asked}}}


def test_revert(app: Build) -> None:
    """Each field gets its former value, or goes where it had none; the version decided on is the guard."""
    patch = revert_patch(app(), [("/spec/source/targetRevision", "v1"), ("/spec/source/helm/parameters", None)])

    assert patch.type is PatchType.JSON
    assert patch.body == [
        {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "add", "path": "/spec/source/targetRevision", "value": "v1"},
        {"op": "remove", "path": "/spec/source/helm/parameters"},
    ]
