"""The ApplicationSet controller, as it acts on the Applications it owns (spec 4).

It makes their spec, labels and annotations what its template says, and leaves operation and status alone. With
RollingSync it writes operations, over whatever operation is there.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from kargo_py.kube.client import JsonObject, PatchType
from kargo_py.kube.resources import Key
from kargo_py.local.argocd.documents import (
    IN_PROGRESS,
    REFRESH,
    Patch,
    difference,
    merge,
    moment,
    operation_state,
    timestamp,
)

KEPT_ANNOTATIONS: Final = (REFRESH, "argocd.argoproj.io/hydrate", "notified.notifications.argoproj.io")


@dataclass(frozen=True, slots=True)
class Template:
    """What an owned Application shall look like; what is None is left alone."""

    spec: JsonObject | None = None
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None
    ignored: Sequence[str] = ()
    """JSON pointers of ignoreApplicationDifferences."""


def revert(app: JsonObject, template: Template) -> Patch | None:
    """The patch that undoes what differs from the template.

    Ignored fields keep what they have, unless something else in the same list differs: a merge patch replaces lists as
    wholes, so the edit is undone with it.
    """
    metadata = app["metadata"]
    current = {
        "spec": app["spec"],
        "metadata": {"labels": metadata.get("labels") or {}, "annotations": _judged(metadata.get("annotations"))},
    }
    desired = copy.deepcopy(current)
    if template.spec is not None:
        desired["spec"] = copy.deepcopy(template.spec)
    if template.labels is not None:
        desired["metadata"]["labels"] = dict(template.labels)
    if template.annotations is not None:
        desired["metadata"]["annotations"] = _judged(template.annotations)
    judged_current, judged_desired = _without(current, template.ignored), _without(desired, template.ignored)
    changed = _whole_lists(difference(judged_current, judged_desired), desired)
    return merge(changed) if changed else None


def _judged(noted: Mapping[str, str] | None) -> dict[str, str]:
    return {name: value for name, value in (noted or {}).items() if name not in KEPT_ANNOTATIONS}


def _without(document: JsonObject, pointers: Sequence[str]) -> JsonObject:
    reduced = copy.deepcopy(document)
    for pointer in pointers:
        *way, last = (part.replace("~1", "/").replace("~0", "~") for part in pointer.removeprefix("/").split("/"))
        place: Any = reduced
        for part in way:
            place = _child(place, part)
        if isinstance(place, dict):
            place.pop(last, None)
        elif isinstance(place, list) and last.isdigit() and int(last) < len(place):
            del place[int(last)]
    return reduced


def _child(place: Any, part: str) -> Any:
    if isinstance(place, dict):
        return place.get(part)
    if isinstance(place, list) and part.isdigit() and int(part) < len(place):
        return place[int(part)]
    return None


def _whole_lists(changed: JsonObject, desired: JsonObject) -> JsonObject:
    """*changed* with its lists as the template has them, ignored fields included."""
    return {
        name: _whole_lists(value, desired[name])
        if isinstance(value, dict) and isinstance(desired.get(name), dict)
        else copy.deepcopy(desired.get(name))
        for name, value in changed.items()
    }


@dataclass(slots=True)
class Rollout:
    """Where an Application is in a RollingSync; ``since`` is when it became Pending, in whole seconds."""

    step: str = "Healthy"
    revision: object = None
    since: str = ""


@dataclass(slots=True)
class RollingSync:
    """Progressive syncs: one group of Applications after the other."""

    steps: Sequence[Sequence[Key]]
    rollouts: dict[Key, Rollout] = field(default_factory=dict)

    def advance(self, apps: Mapping[Key, JsonObject], now: datetime) -> list[tuple[Key, Patch]]:
        """Look at every Application; returns the operations to write.

        A Pending one is synced again at every look until an operation has started in a later second than it became
        Pending, so in practice two or three times in a row (spec 4).
        """
        for key, app in apps.items():
            self._follow(self.rollouts.setdefault(key, Rollout()), app)
        for step in self.steps:
            rollouts = [self.rollouts.setdefault(key, Rollout()) for key in step]
            for rollout in rollouts:
                if rollout.step == "Waiting":
                    rollout.step, rollout.since = "Pending", timestamp(now)
            if any(rollout.step != "Healthy" for rollout in rollouts):
                return [
                    (key, request())
                    for key, rollout in zip(step, rollouts, strict=True)
                    if rollout.step == "Pending" and key in apps
                ]
        return []

    @staticmethod
    def _follow(rollout: Rollout, app: JsonObject) -> None:
        status = app.get("status") or {}
        sync = status.get("sync") or {}
        revision = sync.get("revisions") or sync.get("revision")
        state = operation_state(app) or {}
        if sync.get("status") == "OutOfSync" and rollout.step == "Healthy" and revision != rollout.revision:
            rollout.step, rollout.revision = "Waiting", revision
        begun = state.get("phase") in {*IN_PROGRESS, "Succeeded"} and "startedAt" in state
        if rollout.step == "Pending" and begun and moment(state["startedAt"]) > moment(rollout.since):
            rollout.step = "Progressing"
        healthy = (status.get("health") or {}).get("status") == "Healthy" and sync.get("status") == "Synced"
        if rollout.step == "Progressing" and healthy and state.get("phase") == "Succeeded":
            rollout.step = "Healthy"


def request() -> Patch:
    """The operation that RollingSync writes, whether another is there or not."""
    operation = {
        "info": [
            {"name": "Reason", "value": "ApplicationSet RollingSync triggered a sync of this Application resource"}
        ],
        "initiatedBy": {"username": "applicationset-controller", "automated": True},
        "retry": {"limit": 5},
        "sync": {},
    }
    return Patch(PatchType.JSON, [{"op": "add", "path": "/operation", "value": operation}])
