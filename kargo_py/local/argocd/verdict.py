"""Refresh: when a verdict is due, what it says, and what auto-sync makes of it (spec 1.10, 1.11)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum

from kargo_py.kube.client import JsonObject, PatchType
from kargo_py.local.argocd.cluster import Resource
from kargo_py.local.argocd.documents import (
    REFRESH,
    REFRESH_TIMESTAMP,
    Patch,
    annotations_of,
    is_skipped,
    key_of,
    merge,
    moment,
    operation_state,
    timestamp,
)
from kargo_py.local.argocd.engine import Manifest, ResourceId
from kargo_py.local.argocd.sources import Target, has_multiple_sources, sources_of
from kargo_py.local.argocd.timing import Timing, Version


class Level(IntEnum):
    """How much of a verdict is made anew."""

    RECENT = 1
    """What lives, against the revision compared last; reconciledAt does not move."""
    LATEST = 2
    """Everything."""
    HARD = 3
    """Everything, and no cached manifests."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a verdict depends on beside the Application and its target state."""

    cached: Mapping[ResourceId, Resource]
    invalid: str = ""
    """An InvalidSpecError: no such project or destination."""
    health: str = ""
    """What the resources say of themselves, when they are all there."""


def compared_to(app: JsonObject) -> JsonObject:
    """The part of the spec that a verdict is about."""
    spec = app["spec"]
    found = sources_of(app)
    sources = {"sources": found} if has_multiple_sources(app) else {"source": found[0] if found else {}}
    ignored = {"ignoreDifferences": spec["ignoreDifferences"]} if spec.get("ignoreDifferences") else {}
    return {"destination": spec.get("destination") or {}, **sources, **ignored}


def due(app: JsonObject, now: datetime, age: float) -> Level | None:
    """What the Application itself asks for; None: nothing."""
    if is_skipped(app):
        return None
    match annotations_of(app).get(REFRESH):
        case "hard":
            return Level.HARD
        case str():
            return Level.LATEST
        case None:
            pass
    status = app.get("status") or {}
    reconciled = status.get("reconciledAt")
    expired = not reconciled or now >= moment(reconciled) + timedelta(seconds=age)
    changed = (status.get("sync") or {}).get("comparedTo") != compared_to(app)
    return Level.LATEST if expired or changed else None


def judge(app: JsonObject, target: Target, around: Surroundings, level: Level, now: datetime) -> JsonObject:
    """The status as it is after a refresh."""
    status = dict(app.get("status") or {})
    before = status.get("sync") or {}
    if around.invalid:
        status["sync"] = {**before, "status": "Unknown"}
        health, conditions = "Unknown", {"InvalidSpecError": around.invalid}
        return status | {"health": _health(status, health, now), "conditions": conditions_of(status, conditions, now)}
    revisions = list(target.revisions)
    named = {"revisions": revisions} if has_multiple_sources(app) else {"revision": revisions[0]}
    sync = {"comparedTo": compared_to(app), **named}
    if target.error:
        state, conditions = "Unknown", {"ComparisonError": target.error.partition(": ")[2]}
        health = (status.get("health") or {}).get("status") or "Healthy"
    else:
        plain = [manifest for manifest in target.manifests if not manifest.hook]
        rows = [_compared(manifest, app, around.cached) for manifest in plain]
        rows += _superfluous(target.manifests, app, around.cached)
        state = "OutOfSync" if any(row["status"] == "OutOfSync" for row in rows) else "Synced"
        there = not plain or any(manifest.id in around.cached for manifest in plain)
        health, conditions = (around.health or "Healthy") if there else "Missing", {}
        status["resources"] = rows
    status |= {
        "sync": {**sync, "status": state},
        "health": _health(status, health, now),
        "conditions": conditions_of(status, conditions, now),
        "controllerNamespace": app["metadata"].get("namespace") or "",
        "resourceHealthSource": "appTree",
    }
    if level is not Level.RECENT or not status.get("reconciledAt"):
        status["reconciledAt"] = timestamp(now)
    if not conditions:
        del status["conditions"]
    return status


def _health(status: JsonObject, value: str, now: datetime) -> JsonObject:
    before: JsonObject = status.get("health") or {}
    return before if before.get("status") == value else {"status": value, "lastTransitionTime": timestamp(now)}


def conditions_of(status: JsonObject, errors: Mapping[str, str], now: datetime) -> Sequence[JsonObject]:
    """The conditions for *errors*, by type; those that *status* has already keep their time."""
    since = {(c["type"], c["message"]): c.get("lastTransitionTime") for c in status.get("conditions") or ()}
    return [
        {"type": type_, "message": message, "lastTransitionTime": since.get((type_, message)) or timestamp(now)}
        for type_, message in errors.items()
    ]


def _superfluous(
    manifests: Sequence[Manifest], app: JsonObject, cached: Mapping[ResourceId, Resource]
) -> list[JsonObject]:
    """What the Application owns and no longer wants; hooks are not among it."""
    mine = {name for name, resource in cached.items() if resource.owner == key_of(app)}
    return [
        {**name._asdict(), "version": "v1", "status": "OutOfSync", "requiresPruning": True}
        for name in sorted(mine - {manifest.id for manifest in manifests})
    ]


def _compared(manifest: Manifest, app: JsonObject, cached: Mapping[ResourceId, Resource]) -> JsonObject:
    same = cached.get(manifest.id) == Resource(manifest.content, key_of(app))
    row = {"kind": manifest.kind, "name": manifest.name, "namespace": manifest.namespace, "version": manifest.version}
    return row | ({"group": manifest.group} if manifest.group else {}) | {"status": "Synced" if same else "OutOfSync"}


def refreshed_patch(app: JsonObject, version: Version) -> Patch | None:
    """Drop the refresh annotation.

    3.6 drops a pair of refresh and refresh-timestamp only while that timestamp stands, so no request is lost.
    """
    noted = annotations_of(app)
    if REFRESH not in noted:
        return None
    since = noted.get(REFRESH_TIMESTAMP)
    if since is None or version is Version.V3_5:
        return merge({"metadata": {"annotations": {REFRESH: None}}})
    path = "/metadata/annotations/argocd.argoproj.io~1"
    return Patch(
        PatchType.JSON,
        [
            {"op": "test", "path": f"{path}refresh-timestamp", "value": since},
            {"op": "remove", "path": f"{path}refresh-timestamp"},
            {"op": "remove", "path": f"{path}refresh"},
        ],
    )


@dataclass(frozen=True, slots=True)
class AutoSync:
    """Auto-sync writes this operation."""

    operation: JsonObject


@dataclass(frozen=True, slots=True)
class Later:
    """A self-heal is not due yet."""

    until: datetime


@dataclass(frozen=True, slots=True)
class Held:
    """This revision failed once; it is not tried again."""

    why: str


def auto_sync(app: JsonObject, status: JsonObject, now: datetime, timing: Timing) -> AutoSync | Later | Held | None:
    """What auto-sync does about a verdict: each revision and source is tried once (spec 1.11).

    So an operation to an older revision is not undone at once, but by the next commit, or by self-heal.
    """
    policy: JsonObject | None = (app["spec"].get("syncPolicy") or {}).get("automated")
    busy = app.get("operation") or app["metadata"].get("deletionTimestamp")
    if policy is None or not policy.get("enabled", True) or busy or status["sync"]["status"] != "OutOfSync":
        return None
    wrong = [row for row in status["resources"] if row["status"] == "OutOfSync"]
    if not policy.get("prune") and all(row.get("requiresPruning") for row in wrong):
        return None
    named = {name: status["sync"][name] for name in ("revision", "revisions") if name in status["sync"]}
    last = operation_state(app)
    heals = 0
    if last and _is_attempted(app, last, named):
        if last.get("phase") != "Succeeded":
            return Held(f"Failed last sync attempt to {next(iter(named.values()))}: {last.get('message', '')}")
        if not policy.get("selfHeal"):
            return None
        heals = ((last.get("operation") or {}).get("sync") or {}).get("autoHealAttemptsCount", 0)
        delay = min(timing.self_heal * 3**heals, timing.self_heal_most)
        until = moment(last["finishedAt"]) + timedelta(seconds=delay)
        if now < until:
            return Later(until)
        heals += 1
    return AutoSync(_operation(app, policy, named, heals))


def _operation(app: JsonObject, policy: JsonObject, named: JsonObject, heals: int) -> JsonObject:
    sync = {**named, **_named_sources(app)}
    if options := app["spec"]["syncPolicy"].get("syncOptions"):
        sync["syncOptions"] = options
    if policy.get("prune"):
        sync["prune"] = True
    if heals:
        sync["autoHealAttemptsCount"] = heals
    return {
        "initiatedBy": {"automated": True},
        "retry": app["spec"]["syncPolicy"].get("retry") or {"limit": 5},
        "sync": sync,
    }


def request_patch(app: JsonObject, operation: JsonObject) -> Patch:
    """Write an operation of auto-sync: guarded, and with the state of the last one reset (spec 1.11)."""
    empty = {} if app.get("status") else {"sync": {"status": ""}, "health": {}}
    guard = {"resourceVersion": app["metadata"]["resourceVersion"]}
    return merge({"metadata": guard, "operation": operation, "status": {**empty, "operationState": None}})


def _is_attempted(app: JsonObject, last: JsonObject, named: JsonObject) -> bool:
    """Whether this was deployed, or tried, from the same sources.

    Of a revision that has moved since the last verdict only the last operation tells; one that has not is not tried
    again if it is in the history, either.
    """
    status = app.get("status") or {}
    wanted = {**named, **_named_sources(app)}
    tried = [last.get("syncResult") or {}]
    if all((status.get("sync") or {}).get(name) == value for name, value in named.items()):
        tried += status.get("history") or ()
    return any(all(one.get(name) == value for name, value in wanted.items()) for one in tried)


def _named_sources(app: JsonObject) -> JsonObject:
    sources = sources_of(app)
    return {"sources": sources} if has_multiple_sources(app) else {"source": sources[0]}
