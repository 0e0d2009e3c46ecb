"""Refresh and auto-sync as decisions (spec 1.10, 1.11)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kargo_py.kube.resources import Key
from kargo_py.local.argocd.cluster import Resource
from kargo_py.local.argocd.documents import REFRESH, REFRESH_TIMESTAMP, SKIP_RECONCILE, timestamp
from kargo_py.local.argocd.engine import Manifest
from kargo_py.local.argocd.sources import Target
from kargo_py.local.argocd.timing import Timing, Version
from kargo_py.local.argocd.verdict import (
    AutoSync,
    Held,
    Later,
    Level,
    Surroundings,
    auto_sync,
    compared_to,
    due,
    judge,
    refreshed_patch,
    request_patch,
)

JsonObject = dict[str, Any]

NOW = datetime(2026, 11, 30, 12, 0, 30, tzinfo=UTC)
SOURCE = {"repoURL": "r", "path": "p", "targetRevision": "main"}
OWNER = Key("argocd", "a")
A, B = (Manifest("ConfigMap", name, content="1") for name in "ab")
HOOK = Manifest("Job", "j", "batch", hook="Sync")


def app(
    *, noted: JsonObject | None = None, sync: JsonObject | None = None, age: float = 10, spec: JsonObject | None = None
) -> JsonObject:
    """An Application with a verdict so many seconds old."""
    obj: JsonObject = {
        "metadata": {"name": "a", "namespace": "argocd", "resourceVersion": "1", "annotations": noted or {}},
        "spec": {"source": SOURCE, "destination": {"server": "s"}, **(spec or {})},
    }
    verdict = {"status": "Synced", "revision": "old", "comparedTo": compared_to(obj), **(sync or {})}
    obj["status"] = {
        "sync": verdict,
        "health": {"status": "Healthy"},
        "reconciledAt": timestamp(NOW - timedelta(seconds=age)),
    }
    return obj


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        pytest.param(app(), None, id="fresh"),
        pytest.param(app(age=120), Level.LATEST, id="old"),
        pytest.param({**app(), "status": {}}, Level.LATEST, id="none yet"),
        pytest.param(app(sync={"comparedTo": {}}), Level.LATEST, id="the spec is another"),
        pytest.param(app(noted={REFRESH: "normal"}), Level.LATEST, id="asked for"),
        pytest.param(app(noted={REFRESH: "hard"}), Level.HARD, id="asked for a hard one"),
        pytest.param(app(noted={REFRESH: "hard", SKIP_RECONCILE: "true"}), None, id="skipped"),
    ],
)
def test_due(obj: JsonObject, expected: Level | None) -> None:
    """When a verdict is made anew."""
    assert due(obj, NOW, 120) == expected


MINE, OLD, FOREIGN = Resource("1", OWNER), Resource("0", OWNER), Resource("1", Key("argocd", "b"))


@pytest.mark.parametrize(
    ("target", "around", "expected"),
    [
        pytest.param(Target(["new"], [A]), Surroundings({A.id: MINE}), ("Synced", "Healthy", "new"), id="all there"),
        pytest.param(Target(["new"], [A]), Surroundings({}), ("OutOfSync", "Missing", "new"), id="nothing there"),
        pytest.param(Target(["new"], [A, B]), Surroundings({A.id: MINE}), ("OutOfSync", "Healthy", "new"), id="part"),
        pytest.param(Target(["new"], [A]), Surroundings({A.id: OLD}), ("OutOfSync", "Healthy", "new"), id="old"),
        pytest.param(
            Target(["new"], [A]), Surroundings({A.id: FOREIGN}), ("OutOfSync", "Healthy", "new"), id="foreign"
        ),
        pytest.param(Target(["new"]), Surroundings({A.id: MINE}), ("OutOfSync", "Healthy", "new"), id="superfluous"),
        pytest.param(Target(["new"]), Surroundings({A.id: FOREIGN}), ("Synced", "Healthy", "new"), id="empty"),
        pytest.param(Target(["new"], [A, HOOK]), Surroundings({A.id: MINE}), ("Synced", "Healthy", "new"), id="hook"),
        pytest.param(
            Target(["new"], [A]), Surroundings({A.id: MINE}, health="Degraded"), ("Synced", "Degraded", "new"), id="ill"
        ),
        pytest.param(
            Target(["gone"], error="ComparisonError: no"), Surroundings({}), ("Unknown", "Healthy", "gone"), id="error"
        ),
        pytest.param(Target(()), Surroundings({}, invalid="no"), ("Unknown", "Unknown", "old"), id="invalid"),
    ],
)
def test_judge(target: Target, around: Surroundings, expected: tuple[str, str, str]) -> None:
    """Sync, health, and the revision that was compared."""
    status = judge(app(), target, around, Level.LATEST, NOW)

    assert (status["sync"]["status"], status["health"]["status"], status["sync"]["revision"]) == expected


@pytest.mark.parametrize(("level", "moves"), [(Level.RECENT, False), (Level.LATEST, True), (Level.HARD, True)])
def test_reconciled_at(level: Level, moves: bool) -> None:
    """What only looks at live resources does not count as reconciled."""
    obj = app()
    status = judge(obj, Target(["new"], [A]), Surroundings({}), level, NOW)

    assert (status["reconciledAt"] == timestamp(NOW)) is moves


AUTO: JsonObject = {"syncPolicy": {"automated": {}}}
HEALS: JsonObject = {"syncPolicy": {"automated": {"selfHeal": True}}}


def last(phase: str, revision: str, ago: float = 60, **more: Any) -> JsonObject:
    """The state of an operation that ended."""
    return {
        "operation": {"sync": more},
        "phase": phase,
        "message": "no",
        "finishedAt": timestamp(NOW - timedelta(seconds=ago)),
        "syncResult": {"revision": revision, "source": SOURCE},
    }


def out_of_sync(revision: str, **row: Any) -> JsonObject:
    """A verdict just made."""
    return {"sync": {"status": "OutOfSync", "revision": revision}, "resources": [{"status": "OutOfSync", **row}]}


def with_last(state: JsonObject, *deployed: str, spec: JsonObject) -> JsonObject:
    """An automated Application after an operation, and what was deployed before."""
    obj = app(spec=spec)
    history = [{"revision": revision, "source": SOURCE} for revision in deployed]
    obj["status"] |= {"operationState": state, "history": history}
    return obj


@pytest.mark.parametrize(
    ("obj", "status", "expected"),
    [
        pytest.param(app(), out_of_sync("new"), None, id="not automated"),
        pytest.param(
            app(spec={"syncPolicy": {"automated": {"enabled": False}}}), out_of_sync("new"), None, id="switched off"
        ),
        pytest.param(app(spec=AUTO), {"sync": {"status": "Synced"}}, None, id="synced"),
        pytest.param(app(spec=AUTO) | {"operation": {}}, out_of_sync("new"), AutoSync, id="an empty operation is none"),
        pytest.param(app(spec=AUTO) | {"operation": {"sync": {}}}, out_of_sync("new"), None, id="busy"),
        pytest.param(app(spec=AUTO), out_of_sync("new"), AutoSync, id="first"),
        pytest.param(app(spec=AUTO), out_of_sync("new", requiresPruning=True), None, id="only pruning"),
        pytest.param(
            app(spec={"syncPolicy": {"automated": {"prune": True}}}),
            out_of_sync("new", requiresPruning=True),
            AutoSync,
            id="prunes",
        ),
        pytest.param(with_last(last("Succeeded", "old"), spec=AUTO), out_of_sync("new"), AutoSync, id="new commit"),
        pytest.param(with_last(last("Failed", "new"), spec=AUTO), out_of_sync("new"), Held, id="failed before"),
        pytest.param(with_last(last("Succeeded", "new"), spec=AUTO), out_of_sync("new"), None, id="drift"),
        pytest.param(
            with_last(last("Succeeded", "older"), "old", "older", spec=AUTO),
            out_of_sync("old"),
            None,
            id="older by hand",
        ),
        pytest.param(
            with_last(last("Succeeded", "older"), spec=AUTO), out_of_sync("old"), AutoSync, id="held up before"
        ),
        pytest.param(with_last(last("Succeeded", "old"), spec=HEALS), out_of_sync("old"), AutoSync, id="heals"),
        pytest.param(with_last(last("Succeeded", "old", 1), spec=HEALS), out_of_sync("old"), Later, id="heals later"),
        pytest.param(
            with_last(last("Succeeded", "old", 60, autoHealAttemptsCount=4), spec=HEALS),
            out_of_sync("old"),
            Later,
            id="heals much later",
        ),
    ],
)
def test_auto_sync(obj: JsonObject, status: JsonObject, expected: type | None) -> None:
    """Each revision and source once, and again only to heal."""
    assert type(auto_sync(obj, status, NOW, Timing())) is (expected or type(None))


def test_the_operation_of_auto_sync() -> None:
    """It is guarded, resets the state, and takes options and retry from the spec."""
    policy = {"automated": {"prune": True}, "syncOptions": ["X=true"], "retry": {"limit": 1}}
    found = auto_sync(app(spec={"syncPolicy": policy}), out_of_sync("new"), NOW, Timing())

    assert isinstance(found, AutoSync)
    assert request_patch(app(), found.operation).body == {
        "metadata": {"resourceVersion": "1"},
        "operation": {
            "initiatedBy": {"automated": True},
            "retry": {"limit": 1},
            "sync": {"revision": "new", "source": SOURCE, "syncOptions": ["X=true"], "prune": True},
        },
        "status": {"operationState": None},
    }


@pytest.mark.parametrize(
    ("noted", "version", "kind"),
    [
        ({}, Version.V3_6, None),
        ({REFRESH: "hard"}, Version.V3_6, dict),
        ({REFRESH: "hard", REFRESH_TIMESTAMP: "1"}, Version.V3_6, list),
        ({REFRESH: "hard", REFRESH_TIMESTAMP: "1"}, Version.V3_5, dict),
    ],
    ids=["none", "bare", "pair", "pair in 3.5"],
)
def test_dropping_the_annotation(noted: dict[str, str], version: Version, kind: type | None) -> None:
    """A pair is dropped only while its timestamp stands: that takes a JSON patch with a test."""
    patch = refreshed_patch(app(noted=noted), version)

    assert (type(patch.body) if patch else None) is kind
