"""Decisions about operations in states that no recording shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kargo_py.api.stamp import STAMP_KEY
from kargo_py.argocd.application import Application, OperationState
from kargo_py.argocd.operation import (
    NUDGE_AGAIN,
    PICK_UP_TIME,
    SETTLED,
    Decision,
    Intent,
    Knowledge,
    Verb,
    Waiting,
    decide_operation,
    state_identity,
)

JsonObject = dict[str, Any]
Build = Callable[..., Application]

STAMP = "v1/instance/shop/dev.01k/uid/update/1"
OURS: JsonObject = {"info": [{"name": STAMP_KEY, "value": STAMP}], "sync": {}}
THEIRS: JsonObject = {"initiatedBy": {"username": "alice"}, "sync": {}}
ANNOTATED: JsonObject = {"annotations": {STAMP_KEY: STAMP}}


def state(operation: JsonObject, phase: str, **more: Any) -> JsonObject:
    """An operationState."""
    return {"operationState": {"operation": operation, "phase": phase, "startedAt": "2026-11-30T12:00:00Z", **more}}


def intent(app: Application, *desired: str, **more: Any) -> Intent:
    """Our attempt on exactly this Application."""
    return Intent(app.key, app.metadata.uid, STAMP, desired, initiator="kargo-controller", **more)


def decide(app: Application | None, intended: Intent, **known: Any) -> Decision:
    return decide_operation(app, intended, Knowledge(**known))


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
     Waiting.HELD_UP, "'Paused', which this version does not know"),
    ("ours overwritten before pick-up", {"operation": THEIRS, "metadata": ANNOTATED}, Verb.WAIT, Waiting.FOREIGN,
     "replaced by that of alice before Argo CD took it up"),
    ("ours given skip-reconcile", {"operation": OURS, "metadata": {"annotations": {STAMP_KEY: STAMP,
     "argocd.argoproj.io/skip-reconcile": "true"}}}, Verb.WAIT, Waiting.HELD_UP, "remove it to go on"),
    ("ours on what is being deleted", {"operation": OURS, "metadata": {**ANNOTATED,
     "deletionTimestamp": "2026-11-30T12:00:00Z"}}, Verb.WAIT, Waiting.HELD_UP, "is being deleted"),
    ("ours being terminated", {"operation": OURS, "status": state(OURS, "Terminating")}, Verb.WAIT, Waiting.STOPPING,
     "is being terminated"),
    ("ours orphaned", {"status": state(OURS, "Running"), "metadata": ANNOTATED}, Verb.WAIT, Waiting.HELD_UP,
     "somebody removed the operation while it was Running"),
    ("ours replaced", {"operation": THEIRS, "status": state(THEIRS, "Running"), "metadata": ANNOTATED},
     Verb.SUPERSEDED, None, "alice"),
    ("ours gone, theirs done", {"status": state(THEIRS, "Succeeded"), "metadata": ANNOTATED}, Verb.SUPERSEDED, None,
     "alice"),
    ("ours gone, nothing left", {"metadata": ANNOTATED}, Verb.WAIT, Waiting.FOREIGN, "removed by somebody"),
    ("another stamp than the one seen", {"metadata": {"annotations": {STAMP_KEY: "other"}}}, Verb.WAIT,
     Waiting.FOREIGN, "another sync was started since"),
    ("another stamp, and its state", {"metadata": {"annotations": {STAMP_KEY: "other"}},
     "status": state(THEIRS, "Running")}, Verb.SUPERSEDED, None, "cannot be told any more"),
    ("ours failed without a message", {"status": state(OURS, "Failed")}, Verb.FAILED, None, "ended as Failed without"),
    ("ours succeeded without a result", {"status": state(OURS, "Succeeded")}, Verb.SUCCEEDED, None, "synced"),
    ("skip-reconcile", {"metadata": {"annotations": {"argocd.argoproj.io/skip-reconcile": "true"}}}, Verb.REFUSED,
     None, "skip-reconcile"),
    ("being deleted", {"metadata": {"deletionTimestamp": "2026-11-30T12:00:00Z"}}, Verb.REFUSED, None, "being deleted"),
    ("no source", {"spec": {"source": None}}, Verb.REFUSED, None, "neither spec.source nor spec.sources"),
    ("an empty list of sources", {"spec": {"source": None, "sources": []}}, Verb.REFUSED, None, "nothing to sync"),
    ("no status at all", {"status": {}}, Verb.START, None, "starting"),
    ("a half-written state", {"status": {"operationState": {}}}, Verb.START, None, "starting"),
    ("an empty phase", {"status": state(THEIRS, "")}, Verb.START, None, "starting"),
    ("an empty phase beside a request", {"operation": THEIRS, "status": state(THEIRS, "")}, Verb.WAIT, Waiting.FOREIGN,
     "requested by alice"),
    ("an empty phase under our request", {"operation": OURS, "status": state(THEIRS, ""), "metadata": ANNOTATED},
     Verb.WAIT, Waiting.PICK_UP, "not picked up"),
    ("unreadable", {"status": {"operationState": 7}}, Verb.WAIT, Waiting.HELD_UP, "operationState"),
]  # fmt: skip


@pytest.mark.parametrize(("parts", "verb", "waiting", "words"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_decide(app: Build, parts: JsonObject, verb: Verb, waiting: Waiting | None, words: str) -> None:
    """Each state of `.operation`, operationState and stamp annotation has one answer, and a sentence for it."""
    seen = app(**parts)

    decision = decide(seen, intent(seen))

    assert (verb, waiting) == (decision.verb, decision.waiting)
    assert words in decision.message
    assert 'Argo CD Application "shop-dev" in namespace "argocd"' in decision.message


def test_deleted(app: Build) -> None:
    """An Application that is gone, or is another one of the same name, has taken our operation with it."""
    before = app()
    again = app(metadata={"uid": "uid-2"})

    assert Verb.LOST is decide(None, intent(before)).verb
    assert Verb.LOST is decide(again, intent(before)).verb


def test_latched_ending_wins(app: Build) -> None:
    """An ending that was seen counts, though another operation's state has replaced it since."""
    seen = app(operation=THEIRS, status=state(THEIRS, "Running"), metadata=ANNOTATED)
    ended = OperationState(OURS, "Succeeded", "successfully synced", "t0", "t1")

    decision = decide(seen, intent(seen), latched=ended)

    assert (decision.verb, decision.started_at, decision.finished_at) == (Verb.SUCCEEDED, "t0", "t1")


def test_desired_revision_needs_a_result(app: Build) -> None:
    """Without a record of what was applied a desired revision is not taken to be met."""
    seen = app(status=state(OURS, "Succeeded"))

    decision = decide(seen, intent(seen, "a" * 40))

    assert Verb.MISMATCHED is decision.verb
    assert "did not record which revision" in decision.message


def test_stamp_of_another_attempt_is_foreign(app: Build) -> None:
    """Another attempt, another control plane: not ours, and never started over while it runs."""
    other: JsonObject = {"info": [{"name": STAMP_KEY, "value": STAMP.replace("instance", "other")}]}
    seen = app(operation=other, status=state(other, "Running"))

    assert Verb.WAIT is decide(seen, intent(seen)).verb


def test_messages_are_bounded(app: Build) -> None:
    """A message of megabytes does not end up in the Promotion."""
    rows = [{"kind": "Job", "name": f"j{i}", "status": "SyncFailed", "message": "y" * 5000} for i in range(50)]
    seen = app(status=state(OURS, "Failed", message="x" * 100_000, syncResult={"resources": rows}))

    message = decide(seen, intent(seen)).message

    assert len(message) < 4000
    assert "and 7 more" in message


STOPPING: list[tuple[str, JsonObject, JsonObject, Verb, str]] = [
    ("running", {"operation": OURS, "status": state(OURS, "Running")}, {}, Verb.TERMINATE, "terminating the sync"),
    ("waiting for a retry", {"operation": OURS, "status": state(OURS, "Running", finishedAt="t")}, {}, Verb.TERMINATE,
     "terminating"),
    ("another request over ours", {"operation": THEIRS, "status": state(OURS, "Running")}, {}, Verb.TERMINATE,
     "terminating"),
    ("of a phase we do not know", {"operation": OURS, "status": state(OURS, "Paused")}, {}, Verb.TERMINATE,
     "terminating"),
    ("orphaned", {"status": state(OURS, "Running")}, {}, Verb.TERMINATE, "ending it"),
    ("orphaned while it ended", {"status": state(OURS, "Terminating")}, {}, Verb.TERMINATE, "ending it"),
    ("being terminated", {"operation": OURS, "status": state(OURS, "Terminating")}, {}, Verb.WAIT, "being terminated"),
    ("not taken for ten seconds", {"operation": OURS, "status": state(OURS, "Terminating")},
     {"unchanged": PICK_UP_TIME}, Verb.NUDGE, "asking"),
    ("requested", {"operation": OURS}, {}, Verb.TERMINATE, "before Argo CD takes it up"),
    ("requested over a complete one", {"operation": OURS, "status": state(THEIRS, "Failed")}, {}, Verb.TERMINATE,
     "before Argo CD takes it up"),
    ("requested while theirs runs", {"operation": OURS, "status": state(THEIRS, "Running")}, {}, Verb.WAIT, "alice"),
    ("terminated", {"status": state(OURS, "Failed", message="Operation terminated")}, {}, Verb.STOPPED, "terminated"),
    ("failed by itself", {"status": state(OURS, "Failed", message="boom")}, {}, Verb.FAILED, "boom"),
    ("the operation was quicker", {"status": state(OURS, "Succeeded")}, {}, Verb.SUCCEEDED, "synced"),
    ("overwritten, perhaps read", {"operation": THEIRS, "metadata": ANNOTATED}, {}, Verb.WAIT, "what comes of it"),
    ("superseded", {"operation": THEIRS, "status": state(THEIRS, "Running"), "metadata": ANNOTATED}, {},
     Verb.SUPERSEDED, "alice"),
    ("no trace", {}, {}, Verb.FENCE, "on its way"),
    ("no trace, theirs running", {"operation": THEIRS, "status": state(THEIRS, "Running")}, {}, Verb.FENCE, "its way"),
    ("no trace, and none can come", {}, {"fenced": True}, Verb.NOT_STARTED, "not started"),
    ("never sent", {}, {"never_issued": True}, Verb.NOT_STARTED, "not started"),
]  # fmt: skip


@pytest.mark.parametrize(("parts", "known", "verb", "words"), [c[1:] for c in STOPPING], ids=[c[0] for c in STOPPING])
def test_stopping(app: Build, parts: JsonObject, known: JsonObject, verb: Verb, words: str) -> None:
    """What is to be stopped is never started, what runs is ended, and what others run is left alone."""
    seen = app(**parts)

    decision = decide(seen, intent(seen), stopping=True, **known)

    assert verb is decision.verb
    assert words in decision.message


PATIENCE: list[tuple[str, JsonObject, float, int, Verb, float | None]] = [
    ("not picked up", {"operation": OURS}, 0, 0, Verb.WAIT, PICK_UP_TIME),
    ("not for nine seconds", {"operation": OURS}, 9, 0, Verb.WAIT, 1),
    ("not for ten", {"operation": OURS}, PICK_UP_TIME, 0, Verb.NUDGE, None),
    ("nudged", {"operation": OURS}, PICK_UP_TIME, 1, Verb.WAIT, NUDGE_AGAIN),
    ("nudged in vain", {"operation": OURS}, PICK_UP_TIME + NUDGE_AGAIN, 1, Verb.NUDGE, None),
    ("ours orphaned", {"status": state(OURS, "Running")}, SETTLED - 1, 0, Verb.WAIT, 1),
    ("ours orphaned for long", {"status": state(OURS, "Running")}, SETTLED, 0, Verb.TERMINATE, None),
    ("theirs orphaned", {"status": state(THEIRS, "Running")}, SETTLED - 1, 0, Verb.WAIT, 1),
    ("theirs orphaned for long", {"status": state(THEIRS, "Running")}, SETTLED, 0, Verb.START, None),
    ("theirs running for long", {"operation": THEIRS, "status": state(THEIRS, "Running")}, 9999, 0, Verb.WAIT, None),
    ("another stamp", {"metadata": {"annotations": {STAMP_KEY: "other"}}}, SETTLED - 1, 0, Verb.WAIT, 1),
    ("another stamp for long", {"metadata": {"annotations": {STAMP_KEY: "other"}}}, SETTLED, 0, Verb.SUPERSEDED, None),
    ("removed", {"metadata": ANNOTATED}, SETTLED - 1, 0, Verb.WAIT, 1),
    ("removed for long", {"metadata": ANNOTATED}, SETTLED, 0, Verb.SUPERSEDED, None),
    ("overwritten for long", {"operation": THEIRS, "metadata": ANNOTATED}, SETTLED, 0, Verb.SUPERSEDED, None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("parts", "unchanged", "nudges", "verb", "again"), [c[1:] for c in PATIENCE], ids=[c[0] for c in PATIENCE]
)
def test_patience(
    app: Build, parts: JsonObject, unchanged: float, nudges: int, verb: Verb, again: float | None
) -> None:
    """What time alone changes, and when to look again for it."""
    seen = app(**parts)

    decision = decide(seen, intent(seen), unchanged=unchanged, nudges=nudges)

    assert (verb, again) == (decision.verb, decision.look_after)


def test_a_worker_that_sleeps_on_is_told(app: Build) -> None:
    """Once a nudge was in vain the user reads that Argo CD does not process operations."""
    seen = app(operation=OURS)

    assert "is its application controller running?" not in decide(seen, intent(seen)).message
    nudged = decide(seen, intent(seen), nudges=1)
    assert "is its application controller running?" in nudged.message
    assert nudged.waiting is Waiting.ASLEEP


def entry(number: int, username: str = "", **more: Any) -> JsonObject:
    by = {"username": username} if username else {"automated": True}
    return {"id": number, "revision": "a" * 40, "initiatedBy": by, **more}


@pytest.mark.parametrize(
    ("spec", "history", "repeatable", "words"),
    [
        ({}, [], True, "before it could succeed"),
        ({}, [entry(4, "kargo-controller")], True, "before it could succeed"),
        ({}, [entry(4), entry(5, "alice")], True, "before it could succeed"),
        ({}, [entry(4), entry(5)], True, "before it could succeed"),
        ({}, [entry(5, "kargo-controller")], False, "the history has sync 5 by kargo-controller since"),
        ({}, [{"id": 5}], False, "the history has sync 5 by somebody unnamed since"),
        ({}, [entry(6, "alice")], False, "not complete any more, it begins with 6"),
        ({"revisionHistoryLimit": 0}, [], False, "keeps no history"),
    ],
    ids=["none", "old", "theirs", "auto-sync's", "ours", "of an old Argo CD", "cut", "switched off"],
)
def test_superseded(app: Build, spec: JsonObject, history: list[JsonObject], repeatable: bool, words: str) -> None:
    """A new attempt is offered only where the history shows that ours did not succeed unseen."""
    seen = app(spec=spec, status={**state(THEIRS, "Succeeded"), "history": history}, metadata=ANNOTATED)

    decision = decide(seen, intent(seen, history_id=4))

    assert (Verb.SUPERSEDED, repeatable) == (decision.verb, decision.repeatable)
    assert "superseded by an operation started by alice" in decision.message
    assert words in decision.message


@pytest.mark.parametrize(
    ("revisions", "words"),
    [
        (["a" * 40, "b" * 40], "it applied 2 sources"),
        ([], "did not record which revision it applied"),
        (["a" * 40, "b" * 40, ""], "it applied revision unknown, not the desired " + "c" * 40),
    ],
)
def test_revisions_that_do_not_fit_the_sources(app: Build, revisions: list[str], words: str) -> None:
    """Three sources and two revisions, or one that is empty: not what was desired, and said in numbers."""
    seen = app(status=state(OURS, "Succeeded", syncResult={"revisions": revisions}))

    decision = decide(seen, intent(seen, "a" * 40, "", "c" * 40))

    assert decision.verb is Verb.MISMATCHED
    assert words in decision.message


@pytest.mark.parametrize(
    "stamp",
    [
        STAMP.replace("instance", "other"),
        STAMP.replace("v1", "v2"),
        STAMP[:-1] + "2",
        STAMP + "/x",
        "v1",
        "",
        "x" * 5000,
    ],
)
def test_stamps_that_are_not_ours(app: Build, stamp: str) -> None:
    """Those of another control plane, of a newer version, of another attempt, and forged ones are other people's."""
    operation: JsonObject = {"info": [{"name": STAMP_KEY, "value": stamp}], "sync": {}}
    seen = app(operation=operation, status=state(operation, "Running"))

    assert decide(seen, intent(seen)).waiting is Waiting.FOREIGN
    assert decide(seen, intent(seen), stopping=True).verb is Verb.FENCE


def test_a_state_that_was_not_there(app: Build) -> None:
    """Where an ApplicationSet removes the annotation, another operation's state leaves it open what became of ours."""
    known = app(status=state(THEIRS, "Succeeded"))
    same = app(status=state(THEIRS, "Succeeded", finishedAt="t"))
    other = app(status=state({"initiatedBy": {"username": "bob"}}, "Running"))
    gone = app(status={})
    ours = intent(known, seen_state=state_identity(known))

    assert decide(same, ours).verb is Verb.START
    assert decide(other, ours).verb is Verb.SUPERSEDED
    assert "an ApplicationSet removes the annotation" in decide(other, ours).message
    assert decide(other, ours, never_issued=True).verb is Verb.WAIT
    assert decide(gone, ours).verb is Verb.WAIT
    assert decide(gone, ours, unchanged=SETTLED).verb is Verb.SUPERSEDED
    nothing = intent(gone, seen_state=state_identity(gone))
    assert decide(gone, nothing, never_issued=True).verb is Verb.START
    assert decide(gone, nothing, unchanged=SETTLED).verb is Verb.SUPERSEDED


KARGOS: JsonObject = {"info": [{"name": "kargo.akuity.io/promotion", "value": "dev.01k"}], "sync": {}}


@pytest.mark.parametrize(
    ("parts", "stopping", "verb"),
    [
        ({"operation": KARGOS}, False, Verb.WAIT),
        ({"operation": KARGOS, "status": state(KARGOS, "Running")}, False, Verb.WAIT),
        ({"operation": KARGOS, "status": state(KARGOS, "Running")}, True, Verb.TERMINATE),
        ({"status": state(KARGOS, "Succeeded")}, False, Verb.SUCCEEDED),
        ({"status": state(THEIRS, "Succeeded")}, False, Verb.SUPERSEDED),
        ({"operation": OURS, "status": state(OURS, "Running")}, True, Verb.SUPERSEDED),
    ],
)
def test_adopted(app: Build, parts: JsonObject, stopping: bool, verb: Verb) -> None:
    """An operation that a real Kargo started for the Promotion is watched and stopped like our own, never started."""
    seen = app(**parts)
    adopted = Intent(seen.key, seen.metadata.uid, "kargo:dev.01k", initiator="kargo-controller", adopted=True)

    decision = decide(seen, adopted, stopping=stopping)
    assert verb is decision.verb
    assert not decision.repeatable


def test_newer_is_accepted(app: Build) -> None:
    """Another revision than the desired one is accepted if asked for, and if the history shows that it came later."""
    wanted, later = "a" * 40, "b" * 40
    source = {"repoURL": "r", "path": "p", "targetRevision": "main"}
    history = [{"id": 1, "revision": wanted, "source": source}, {"id": 2, "revision": later, "source": source}]
    result = {"revision": later, "source": source}
    ended = state(OURS, "Succeeded", syncResult=result)

    def verb(*, accept: bool = True, entries: list[JsonObject] = history) -> Verb:
        seen = app(spec={"source": source}, status={**ended, "history": entries})
        return decide(seen, intent(seen, wanted, accept_newer=accept)).verb

    assert verb() is Verb.SUCCEEDED
    assert verb(accept=False) is Verb.MISMATCHED
    assert verb(entries=[]) is Verb.MISMATCHED
    assert verb(entries=history[1:]) is Verb.MISMATCHED
    assert verb(entries=[{**history[0], "id": 3}, history[1]]) is Verb.MISMATCHED
    assert verb(entries=[{**history[0], "source": {**source, "repoURL": "other"}}, history[1]]) is Verb.MISMATCHED
