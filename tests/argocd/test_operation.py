"""Decisions about operations in states that no recording shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kargo_py.api.stamp import STAMP_KEY
from kargo_py.argocd.application import Application, OperationState
from kargo_py.argocd.operation import Intent, Verb, Waiting, decide_operation

JsonObject = dict[str, Any]
Build = Callable[..., Application]

STAMP = "v1/instance/shop/dev.01k/uid/update/1"
OURS: JsonObject = {"info": [{"name": STAMP_KEY, "value": STAMP}], "sync": {}}
THEIRS: JsonObject = {"initiatedBy": {"username": "alice"}, "sync": {}}
ANNOTATED: JsonObject = {"annotations": {STAMP_KEY: STAMP}}


def state(operation: JsonObject, phase: str, **more: Any) -> JsonObject:
    """An operationState."""
    return {"operationState": {"operation": operation, "phase": phase, "startedAt": "2026-11-30T12:00:00Z", **more}}


def intent(app: Application, *desired: str) -> Intent:
    """Our attempt on exactly this Application."""
    return Intent(app.key, app.metadata.uid, STAMP, desired)


CASES: list[tuple[str, JsonObject, Verb, Waiting | None, str]] = [
    ("nothing there", {}, Verb.START, None, "starting"),
    ("foreign request", {"operation": THEIRS}, Verb.WAIT, Waiting.FOREIGN, "requested by alice"),
    ("foreign running", {"operation": THEIRS, "status": state(THEIRS, "Running")}, Verb.WAIT, Waiting.FOREIGN, "alice"),
    ("foreign orphan", {"status": state(THEIRS, "Running")}, Verb.WAIT, Waiting.FOREIGN, "alice"),
    ("foreign of a phase we do not know", {"operation": THEIRS, "status": state(THEIRS, "Paused")}, Verb.WAIT,
     Waiting.FOREIGN, "Paused"),
    ("foreign done", {"status": state(THEIRS, "Error")}, Verb.START, None, "starting"),
    ("ours requested", {"operation": OURS, "metadata": ANNOTATED}, Verb.WAIT, Waiting.PICK_UP, "not picked up"),
    ("ours requested over a complete one", {"operation": OURS, "status": state(THEIRS, "Succeeded"),
     "metadata": ANNOTATED}, Verb.WAIT, Waiting.PICK_UP, "not picked up"),
    ("ours requested, theirs stored", {"operation": OURS, "status": state(THEIRS, "Running"), "metadata": ANNOTATED},
     Verb.WAIT, Waiting.FOREIGN, "alice is Running before ours"),
    ("theirs requested, ours stored", {"operation": THEIRS, "status": state(OURS, "Running"), "metadata": ANNOTATED},
     Verb.WAIT, Waiting.RUNNING, "running"),
    ("ours of a phase we do not know", {"operation": OURS, "status": state(OURS, "Paused")}, Verb.WAIT,
     Waiting.RUNNING, "running"),
    ("ours overwritten before pick-up", {"operation": THEIRS, "metadata": ANNOTATED}, Verb.SUPERSEDED, None,
     "superseded by an operation started by alice"),
    ("ours replaced", {"operation": THEIRS, "status": state(THEIRS, "Running"), "metadata": ANNOTATED},
     Verb.SUPERSEDED, None, "alice"),
    ("ours gone, theirs done", {"status": state(THEIRS, "Succeeded"), "metadata": ANNOTATED}, Verb.SUPERSEDED, None,
     "alice"),
    ("ours gone, nothing left", {"metadata": ANNOTATED}, Verb.SUPERSEDED, None, "removed by somebody"),
    ("another stamp than the one seen", {"metadata": {"annotations": {STAMP_KEY: "other"}}}, Verb.SUPERSEDED, None,
     "cannot be told any more"),
    ("ours failed without a message", {"status": state(OURS, "Failed")}, Verb.FAILED, None, "ended as Failed without"),
    ("ours succeeded without a result", {"status": state(OURS, "Succeeded")}, Verb.SUCCEEDED, None, "synced"),
    ("skip-reconcile", {"metadata": {"annotations": {"argocd.argoproj.io/skip-reconcile": "true"}}}, Verb.REFUSED,
     None, "skip-reconcile"),
    ("being deleted", {"metadata": {"deletionTimestamp": "2026-11-30T12:00:00Z"}}, Verb.REFUSED, None, "being deleted"),
    ("no source", {"spec": {"source": None}}, Verb.REFUSED, None, "neither spec.source nor spec.sources"),
    ("an empty list of sources", {"spec": {"source": None, "sources": []}}, Verb.REFUSED, None, "nothing to sync"),
    ("no status at all", {"status": {}}, Verb.START, None, "starting"),
    ("a half-written state", {"status": {"operationState": {}}}, Verb.START, None, "starting"),
    ("unreadable", {"status": {"operationState": 7}}, Verb.REFUSED, None, "operationState"),
]  # fmt: skip


@pytest.mark.parametrize(("parts", "verb", "waiting", "words"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_decide(app: Build, parts: JsonObject, verb: Verb, waiting: Waiting | None, words: str) -> None:
    """Each state of `.operation`, operationState and stamp annotation has one answer, and a sentence for it."""
    seen = app(**parts)

    decision = decide_operation(seen, intent(seen))

    assert (verb, waiting) == (decision.verb, decision.waiting)
    assert words in decision.message
    assert 'Argo CD Application "shop-dev" in namespace "argocd"' in decision.message


def test_deleted(app: Build) -> None:
    """An Application that is gone, or is another one of the same name, has taken our operation with it."""
    before = app()
    again = app(metadata={"uid": "uid-2"})

    assert Verb.LOST is decide_operation(None, intent(before)).verb
    assert Verb.LOST is decide_operation(again, intent(before)).verb


def test_latched_ending_wins(app: Build) -> None:
    """An ending that was seen counts, though another operation's state has replaced it since."""
    seen = app(operation=THEIRS, status=state(THEIRS, "Running"), metadata=ANNOTATED)
    ended = OperationState(OURS, "Succeeded", "successfully synced", "t0", "t1")

    decision = decide_operation(seen, intent(seen), ended)

    assert (decision.verb, decision.started_at, decision.finished_at) == (Verb.SUCCEEDED, "t0", "t1")


def test_desired_revision_needs_a_result(app: Build) -> None:
    """Without a record of what was applied a desired revision is not taken to be met."""
    seen = app(status=state(OURS, "Succeeded"))

    decision = decide_operation(seen, intent(seen, "a" * 40))

    assert Verb.FAILED is decision.verb
    assert "did not record which revision" in decision.message


def test_stamp_of_another_attempt_is_foreign(app: Build) -> None:
    """Another attempt, another control plane: not ours, and never started over while it runs."""
    other: JsonObject = {"info": [{"name": STAMP_KEY, "value": STAMP.replace("instance", "other")}]}
    seen = app(operation=other, status=state(other, "Running"))

    assert Verb.WAIT is decide_operation(seen, intent(seen)).verb


def test_messages_are_bounded(app: Build) -> None:
    """A message of megabytes does not end up in the Promotion."""
    rows = [{"kind": "Job", "name": f"j{i}", "status": "SyncFailed", "message": "y" * 5000} for i in range(50)]
    seen = app(status=state(OURS, "Failed", message="x" * 100_000, syncResult={"resources": rows}))

    message = decide_operation(seen, intent(seen)).message

    assert len(message) < 4000
    assert "and 7 more" in message
