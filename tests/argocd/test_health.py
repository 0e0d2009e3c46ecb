"""The verdict on an Application."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from kargo_py.api.stage import HealthState
from kargo_py.argocd.application import Application, ApplicationCodec
from kargo_py.argocd.health import PATIENCE, SETTLE, Verdict, assess_application, fingerprint
from tests.argocd.conftest import application

JsonObject = dict[str, Any]
Build = Callable[..., Application]
Recorded = Callable[[str], JsonObject]
Parse = Callable[[JsonObject], Application]

SOURCE = {"repoURL": "https://git.example.com/shop", "path": ".", "targetRevision": "main"}
DESTINATION = {"server": "https://kubernetes.default.svc", "namespace": "shop"}
SHA = "3f1a0f6a5cc6f4ca0e620d9fe9168b8eb724f66e"


def status(**more: Any) -> JsonObject:
    """A status that is trusted, Synced and Healthy unless *more* says otherwise."""
    return {
        "operationState": {
            "operation": {"sync": {}},
            "phase": "Succeeded",
            "startedAt": "2026-11-30T12:00:00Z",
            "finishedAt": "2026-11-30T12:00:01Z",
        },
        "reconciledAt": "2026-11-30T12:00:02Z",
        "sync": {"status": "Synced", "revision": SHA, "comparedTo": {"source": SOURCE, "destination": DESTINATION}},
        "health": {"status": "Healthy"},
        **more,
    }


def sync(**more: Any) -> JsonObject:
    """status.sync."""
    return {**status()["sync"], **more}


def ended(phase: str, message: str = "") -> JsonObject:
    """status.operationState."""
    return {**status()["operationState"], "phase": phase, "message": message}


HISTORY = [{"id": 6, "revision": "c" * 40}, {"id": 7, "revision": SHA}]

CASES: list[tuple[str, JsonObject, list[str], HealthState, bool, str]] = [
    ("healthy", status(), [SHA], HealthState.HEALTHY, True, ""),
    ("healthy at an abbreviated revision", status(), [SHA[:7]], HealthState.HEALTHY, True, ""),
    ("no opinion on the revision", status(), [], HealthState.HEALTHY, True, ""),
    ("drifted", status(sync=sync(status="OutOfSync")), [SHA], HealthState.HEALTHY, True, ""),
    ("at another revision", status(), ["b" * 40], HealthState.UNHEALTHY, True, f"at revision {SHA}, not at bbb"),
    ("another number of sources", status(), [SHA, SHA], HealthState.UNHEALTHY, True, "1 sources, while 2"),
    ("progressing", status(health={"status": "Progressing"}), [], HealthState.PROGRESSING, True, "Progressing"),
    ("suspended", status(health={"status": "Suspended"}), [], HealthState.PROGRESSING, True, "Suspended"),
    ("not judged", status(health={}), [], HealthState.PROGRESSING, True, "not judged"),
    ("degraded", status(health={"status": "Degraded", "message": "why"}), [], HealthState.UNHEALTHY, True, "why"),
    ("missing", status(health={"status": "Missing"}), [], HealthState.UNHEALTHY, True, "Missing"),
    ("of a health nobody knows", status(health={"status": "Sleepy"}), [], HealthState.UNHEALTHY, True, "Sleepy"),
    ("comparison error", status(conditions=[{"type": "ComparisonError", "message": "no repo"}]), [],
     HealthState.UNHEALTHY, True, "ComparisonError: no repo"),
    ("another condition", status(conditions=[{"type": "OrphanedResourceWarning", "message": "x"}]), [],
     HealthState.HEALTHY, True, ""),
    ("failed sync, though healthy", status(operationState=ended("Failed", "bad hook"), sync=sync(status="OutOfSync")),
     [SHA], HealthState.UNHEALTHY, True, "the last sync failed: bad hook"),
    ("failed dry run", status(operationState={**ended("Failed", "no"), "operation": {"sync": {"dryRun": True}}},
     sync=sync(status="OutOfSync")), [SHA], HealthState.HEALTHY, True, ""),
    ("its target moved, which nobody deploys", status(sync=sync(status="OutOfSync", revision="b" * 40),
     history=HISTORY), [SHA], HealthState.HEALTHY, True, "deployed, as promoted, but its target is at bbb"),
    ("another revision was deployed since", status(sync=sync(revision="b" * 40),
     history=[*HISTORY, {"id": 8, "revision": "b" * 40}]), [SHA], HealthState.UNHEALTHY, True, "at revision bbb"),
    ("comparison error, of before or after the sync", status(reconciledAt="2026-11-30T12:00:00Z",
     conditions=[{"type": "ComparisonError", "message": "no repo"}]), [], HealthState.UNHEALTHY, True, "no repo"),
    ("comparison error, and a sync under way", status(operationState=ended("Running"),
     conditions=[{"type": "ComparisonError", "message": "no repo"}]), [], HealthState.UNKNOWN, False, "being synced"),
    ("failed sync, mended since", status(operationState=ended("Error")), [SHA], HealthState.HEALTHY, True, ""),
    ("in progress", status(operationState=ended("Running")), [], HealthState.UNKNOWN, False, "being synced"),
    ("not refreshed", status(reconciledAt="2026-11-30T12:00:00Z"), [], HealthState.UNKNOWN, False, "not been"),
    ("never refreshed", status(reconciledAt=None), [], HealthState.UNKNOWN, False, "not been"),
    ("compared with another source", status(sync=sync(comparedTo={"source": {**SOURCE, "targetRevision": "old"},
     "destination": DESTINATION})), [], HealthState.UNKNOWN, False, "current spec"),
    ("compared with another destination", status(sync=sync(comparedTo={"source": SOURCE, "destination": {}})), [],
     HealthState.UNKNOWN, False, "current spec"),
    ("compared with what Go leaves out", status(sync=sync(comparedTo={"source": {**SOURCE, "ref": "",
     "directory": {"recurse": False}}, "destination": DESTINATION})), [SHA], HealthState.HEALTHY, True, ""),
    ("no status yet", {}, [], HealthState.UNKNOWN, False, "current spec"),
    ("never synced, but looked at", {**status(), "operationState": None}, [], HealthState.HEALTHY, True, ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("seen", "desired", "state", "trusted", "words"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_verdict(
    app: Build, seen: JsonObject, desired: list[str], state: HealthState, trusted: bool, words: str
) -> None:
    """The verdict counts errors, then doubts it, then compares revisions, then the last sync, then health."""
    subject = app(status=seen)

    verdict = assess_application(subject, subject.key, desired, unchanged_for=60)

    assert (state, trusted) == (verdict.state, verdict.trusted)
    assert words in " ".join(verdict.issues)


def test_pending_operation_is_not_trusted(app: Build) -> None:
    """What Argo CD shows while an operation is requested is about the time before it."""
    subject = app(status=status(), operation={"sync": {}})

    assert not assess_application(subject, subject.key, [], 60).trusted


def test_same_second(app: Build) -> None:
    """A refresh in the second of the operation's end is trusted once it has stood unchanged for SETTLE."""
    subject = app(status=status(reconciledAt="2026-11-30T12:00:01Z"))

    early = assess_application(subject, subject.key, [], SETTLE - 0.2)

    assert Verdict(HealthState.UNKNOWN, early.issues, trusted=False, recheck_after=early.recheck_after) == early
    assert early.recheck_after == pytest.approx(0.2)
    assert assess_application(subject, subject.key, [], SETTLE).trusted


@pytest.mark.parametrize(
    ("automated", "healthy"), [(None, True), ({"enabled": False}, True), ({}, False), ({"prune": True}, False)]
)
def test_a_target_that_moved_under_auto_sync(app: Build, automated: JsonObject | None, healthy: bool) -> None:
    """What runs is what was promoted, but not for long."""
    spec = {"syncPolicy": {"automated": automated}} if automated is not None else {}
    subject = app(spec=spec, status=status(sync=sync(revision="b" * 40), history=HISTORY))

    assert (assess_application(subject, subject.key, [SHA], 60).state is HealthState.HEALTHY) is healthy


@pytest.mark.parametrize(
    ("desired", "promoted", "issue"),
    [
        ([], [SHA], ""),
        ([], ["b" * 40], "by now, while bbb"),
        ([""], ["b" * 40], "by now, while bbb"),
        ([SHA], ["b" * 40], ""),
        ([], [], ""),
        ([], ["b" * 40, SHA], ""),
    ],
)
def test_a_later_revision_where_any_will_do(app: Build, desired: list[str], promoted: list[str], issue: str) -> None:
    """Without a desired revision a later one is told, and is no fault."""
    subject = app(status=status())

    verdict = assess_application(subject, subject.key, desired, 60, promoted)

    assert verdict.state is HealthState.HEALTHY
    assert issue in " ".join(verdict.issues)
    assert bool(issue) == bool(verdict.issues)


@pytest.mark.parametrize(
    "seen", [status(reconciledAt="2026-11-30T12:00:00Z"), status(sync=sync(comparedTo={}))], ids=["sync", "spec"]
)
def test_doubt_is_worth_one_refresh_after_a_while(app: Build, seen: JsonObject) -> None:
    """Argo CD looks by itself; only where it has not for a while, and nobody asked yet, it should be asked."""
    subject = app(status=seen)
    asked = app(status=seen, metadata={"annotations": {"argocd.argoproj.io/refresh": "normal"}})

    early = assess_application(subject, subject.key, [], 4)
    late = assess_application(subject, subject.key, [], PATIENCE)

    assert (early.trusted, early.refresh, early.recheck_after) == (False, False, PATIENCE - 4)
    assert (late.trusted, late.refresh, late.recheck_after) == (False, True, None)
    assert not assess_application(asked, asked.key, [], PATIENCE).refresh


def test_a_sync_under_way_is_not_hurried(app: Build) -> None:
    """No refresh would end it."""
    subject = app(status=status(), operation={"sync": {}})

    assert not assess_application(subject, subject.key, [], 1000).refresh


def test_an_error_that_may_be_over(app: Build) -> None:
    """An error condition that may be older than the last sync counts only once it has stood for a while."""
    error = [{"type": "ComparisonError", "message": "no repo"}]
    subject = app(status=status(reconciledAt="2026-11-30T12:00:00Z", conditions=error))

    assert not assess_application(subject, subject.key, [], 1).trusted
    assert assess_application(subject, subject.key, [], PATIENCE).state is HealthState.UNHEALTHY


def test_absent(app: Build) -> None:
    """An Application that does not exist makes the Stage Unknown, and says so."""
    verdict = assess_application(None, app().key, [], 60)

    assert HealthState.UNKNOWN is verdict.state
    assert verdict.issues == ('Argo CD Application "shop-dev" in namespace "argocd" does not exist',)


@pytest.mark.parametrize("name", ["12-after-refresh", "63-multi-source", "90-kust", "90-helm"])
def test_recorded_comparison_is_of_the_current_spec(recorded: Recorded, parse: Parse, name: str) -> None:
    """What a real Argo CD writes into comparedTo equals the spec it is about."""
    subject = parse(recorded(name))

    verdict = assess_application(subject, subject.key, [], 60)

    assert not any("current spec" in issue for issue in verdict.issues)


@pytest.mark.parametrize(
    "changed",
    [
        {"health": {"status": "Degraded"}},
        {"health": {"status": "Healthy", "message": "x"}},
        {"conditions": [{"type": "ComparisonError", "message": "x"}]},
        {"sync": sync(comparedTo={})},
        {"sync": sync(status="OutOfSync")},
        {"operationState": ended("Failed")},
        {"reconciledAt": "2026-11-30T12:00:09Z"},
    ],
)
def test_fingerprint(app: Build, changed: JsonObject) -> None:
    """Whatever a verdict rests on changes the fingerprint; what it does not look at, does not."""
    before = app(status=status())

    assert fingerprint(before) != fingerprint(app(status=status(**changed)))
    assert fingerprint(before) == fingerprint(app(status=status(history=[{"id": 7}]), metadata={"labels": {"a": "b"}}))


@given(st.lists(st.sampled_from(CASES), min_size=2, max_size=2))
def test_equal_fingerprints_have_equal_verdicts(pair: list[Any]) -> None:
    """A verdict can change without an event only by the passing of time."""
    one, other = (ApplicationCodec().object(msgspec.json.encode(application(status=case[1]))) for case in pair)

    if fingerprint(one) == fingerprint(other):
        assert assess_application(one, one.key, [], 60) == assess_application(other, other.key, [], 60)
