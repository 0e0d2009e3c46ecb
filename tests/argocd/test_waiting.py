"""Whether an Application is as a step waits for it to be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from kargo_py.argocd.application import REFRESH, Application, ApplicationCodec
from kargo_py.argocd.health import SETTLE
from kargo_py.argocd.waiting import (
    PATIENCE,
    Asked,
    Asking,
    Judgement,
    Look,
    Standing,
    Start,
    WaitFor,
    completed_operation,
    decide_look,
    health_to_keep,
    judge,
    news,
)
from tests.argocd.conftest import application

JsonObject = dict[str, Any]
Build = Callable[..., Application]

SOURCE = {"repoURL": "https://git.example.com/shop", "path": ".", "targetRevision": "main"}
DESTINATION = {"server": "https://kubernetes.default.svc", "namespace": "shop"}
DEFAULT = frozenset({WaitFor.HEALTH, WaitFor.SYNC, WaitFor.OPERATION})
DONE = Asking(Look.DONE)
EARLY, LATE = "2026-11-30T12:00:02Z", "2026-11-30T12:00:07Z"


def operation(phase: str = "Succeeded", started: str = "00", *, finished: str | None = "01", **more: Any) -> JsonObject:
    """status.operationState."""
    state = {
        "operation": {"initiatedBy": {"username": "alice"}, "sync": {}},
        "phase": phase,
        "startedAt": f"2026-11-30T12:00:{started}Z",
        **more,
    }
    return {**state, "finishedAt": f"2026-11-30T12:00:{finished}Z"} if finished else state


def status(**more: Any) -> JsonObject:
    """A status with which everything is well."""
    return {
        "operationState": operation(),
        "reconciledAt": EARLY,
        "sync": {"status": "Synced", "comparedTo": {"source": SOURCE, "destination": DESTINATION}},
        "health": {"status": "Healthy"},
        **more,
    }


def out_of_sync(**more: Any) -> JsonObject:
    return status(sync={**status()["sync"], "status": "OutOfSync"}, **more)


def healthy(value: str, **more: Any) -> JsonObject:
    return status(health={"status": value, **more})


def seen(**parts: Any) -> Application:
    return ApplicationCodec().object(msgspec.json.encode(application(**parts)))


WELL = seen(status=status())
START = Start("uid-1", completed_operation(WELL), "Healthy")
FAILED = operation("Failed", "03", finished="04", message="bad hook")

CASES: list[tuple[str, JsonObject, str, Start, Standing, str]] = [
    ("all is well", status(), "health sync operation", START, Standing.READY, ""),
    ("never an operation", status(operationState=None), "health sync operation", START, Standing.READY, ""),
    ("out of sync", out_of_sync(), "health sync operation", START, Standing.NOT_YET, "sync status is OutOfSync"),
    ("out of sync, and nobody asked", out_of_sync(), "health operation", START, Standing.READY, ""),
    ("sync not known", status(sync={"status": "", "comparedTo": status()["sync"]["comparedTo"]}), "sync", START,
     Standing.NOT_YET, "sync status is not known yet"),
    ("progressing", healthy("Progressing", message="1 of 2"), "health", START, Standing.NOT_YET,
     "health is Progressing, waiting for Healthy: 1 of 2"),
    ("no health", status(health={}), "health", START, Standing.NOT_YET, "health is not known yet"),
    ("one of several healths is enough", healthy("Suspended"), "health suspended sync", START, Standing.READY, ""),
    ("another of them", healthy("Degraded"), "health degraded", START, Standing.READY, ""),
    ("healthy is not suspended", status(), "suspended degraded", START, Standing.NOT_YET,
     "health is Healthy, waiting for Degraded or Suspended"),
    ("all others must be", out_of_sync(health={"status": "Suspended"}), "suspended sync", START, Standing.NOT_YET,
     "waiting for Synced"),
    ("regressed", healthy("Degraded", message="crash"), "health", START, Standing.FAILED,
     "health has regressed from Healthy to Degraded: crash"),
    ("regressed from another", healthy("Degraded"), "health", Start("uid-1", START.operation, "Progressing"),
     Standing.FAILED, "from Progressing to Degraded"),
    *((f"degraded all the time ({was})", healthy("Degraded"), "health", Start("uid-1", START.operation, was),
       Standing.NOT_YET, "health is Degraded, waiting for Healthy") for was in ("Degraded", "Unknown", "")),
    ("degraded, and nobody waits for health", healthy("Degraded"), "sync operation", START, Standing.READY, ""),
    ("running", status(operationState=operation("Running", "03", finished=None, message="waiting for a hook")),
     "health sync operation", START, Standing.NOT_YET, "operation started by alice: waiting for a hook"),
    ("running, and nobody waits for it", status(operationState=operation("Running", "03", finished=None)),
     "health sync", START, Standing.READY, ""),
    ("terminating", status(operationState=operation("Terminating", "03", finished=None)), "operation", START,
     Standing.NOT_YET, "the end of the operation started by alice"),
    ("an operation between two attempts", status(operationState=operation("Running", "03", finished="04")),
     "operation", START, Standing.NOT_YET, "the end of the operation"),
    ("failed since", out_of_sync(operationState=FAILED), "health sync operation", START, Standing.FAILED,
     "the operation started by alice failed while the step waited: bad hook"),
    ("failed since, in error", out_of_sync(operationState=operation("Error", "03", finished="04")), "sync", START,
     Standing.FAILED, "failed while the step waited: Error"),
    ("under way at the start, failed since", out_of_sync(operationState=FAILED), "operation",
     Start("uid-1", "", "Healthy"), Standing.FAILED, "bad hook"),
    ("failed since, and nobody waits for it", out_of_sync(operationState=FAILED, reconciledAt=LATE), "health", START,
     Standing.READY, ""),
    ("failed before", out_of_sync(operationState=FAILED, reconciledAt=LATE), "health sync operation",
     Start("uid-1", completed_operation(seen(status=status(operationState=FAILED))), "Healthy"), Standing.NOT_YET,
     "waiting for Synced; its last operation, before the step, failed: bad hook"),
    ("failed before, synced since", status(operationState=FAILED, reconciledAt=LATE), "health sync operation",
     Start("uid-1", completed_operation(seen(status=status(operationState=FAILED))), "Healthy"), Standing.READY, ""),
    ("a dry run that failed", status(operationState={**FAILED, "operation": {"sync": {"dryRun": True}}}),
     "health sync operation", START, Standing.READY, ""),
    ("not refreshed since", status(operationState=operation("Succeeded", "03", finished="04")), "health", START,
     Standing.NOT_YET, "until Argo CD has judged it"),
    ("compared with another spec", status(sync={"status": "Synced", "comparedTo": {"source": {}}}), "sync", START,
     Standing.NOT_YET, "until Argo CD has judged it"),
    ("the same, and only the end of operations is waited for", status(sync={"status": "Synced"}), "operation", START,
     Standing.READY, ""),
    ("comparison error", status(conditions=[{"type": "ComparisonError", "message": "no such repo"}]), "operation",
     START, Standing.BROKEN, "Argo CD reports ComparisonError: no such repo"),
    ("another condition", status(conditions=[{"type": "SyncError", "message": "x"}]), "health", START,
     Standing.READY, ""),
    ("of a shape nobody knows", {"health": 7}, "health", START, Standing.NOT_YET, "how it stands cannot be read"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("shown", "wanted", "start", "standing", "words"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_judge(shown: JsonObject, wanted: str, start: Start, standing: Standing, words: str) -> None:
    """Each kind of condition counts where it is waited for, and is said in words."""
    subject = seen(status=shown)

    judgement = judge(subject, subject.key, frozenset(map(WaitFor, wanted.split())), start, DONE, 60)

    assert (judgement.standing, words in judgement.message) == (standing, True), judgement.message


def test_requested_operation() -> None:
    """An operation that Argo CD has not taken up is one to wait for."""
    subject = seen(status=status(), operation={"initiatedBy": {"automated": True}})

    judgement = judge(subject, subject.key, DEFAULT, START, DONE, 60)

    assert judgement.standing is Standing.NOT_YET
    assert "the operation started by Argo CD's auto-sync" in judgement.message


@pytest.mark.parametrize("app", [None, seen(metadata={"uid": "uid-2"}, status=status())], ids=["gone", "another one"])
def test_deleted(app: Application | None) -> None:
    """An Application that is gone is waited for in vain, also if one of its name was made since."""
    judgement = judge(app, WELL.key, DEFAULT, START, DONE, 60)

    assert judgement.standing is Standing.FAILED
    assert "was deleted while it was waited for" in judgement.message


def test_in_the_second_of_the_end() -> None:
    """A verdict of the same second as the end of an operation has to stand for a while."""
    subject = seen(status=status(reconciledAt="2026-11-30T12:00:01Z"))

    early = judge(subject, subject.key, DEFAULT, START, DONE, SETTLE - 0.2)

    assert (early.standing, early.passing) == (Standing.NOT_YET, True)
    assert early.look_after == pytest.approx(0.2)
    assert judge(subject, subject.key, DEFAULT, START, DONE, SETTLE).standing is Standing.READY


def test_argocd_is_asked_again_where_it_does_not_look_by_itself() -> None:
    """That is ten seconds after the last change."""
    subject = seen(status=status(operationState=operation("Succeeded", "03", finished="04")))

    early, late = (judge(subject, subject.key, DEFAULT, START, DONE, unchanged) for unchanged in (4, PATIENCE))

    assert (early.refresh, early.look_after) == (False, PATIENCE - 4)
    assert (late.refresh, late.look_after) == (True, None)


@given(st.sampled_from(CASES))
def test_nothing_is_ready_before_argocd_has_looked(case: Any) -> None:
    """Only what fails for good does so before."""
    _, shown, wanted, start, standing, _ = case
    subject = seen(status=shown)
    asking = Asking(Look.WAIT, 3)

    judgement = judge(subject, subject.key, frozenset(map(WaitFor, wanted.split())), start, asking, 60)

    assert judgement.standing is not Standing.READY
    assert judgement.standing is not Standing.BROKEN
    if standing is Standing.READY:
        assert judgement == Judgement(Standing.NOT_YET, judgement.message, 3, passing=True)


@given(st.lists(st.sampled_from(CASES), min_size=2, max_size=2))
def test_equal_news_have_equal_judgements(pair: list[Any]) -> None:
    """What wakes the step is all that it looks at."""
    one, other = (seen(status=case[1]) for case in pair)
    wanted, start = frozenset(map(WaitFor, pair[0][2].split())), pair[0][3]

    if news(one) == news(other):
        assert judge(one, one.key, wanted, start, DONE, 60) == judge(other, other.key, wanted, start, DONE, 60)


@pytest.mark.parametrize(
    ("kept", "now", "expected"),
    [
        ("", "Progressing", "Progressing"),
        ("Degraded", "Unknown", "Degraded"),
        ("Unknown", "Healthy", "Healthy"),
        ("Progressing", "Healthy", "Progressing"),
        ("Healthy", "Degraded", "Healthy"),
        ("", "", ""),
    ],
)
def test_health_to_keep(kept: str, now: str, expected: str) -> None:
    """It is written at most once more after the start: when it is first better than Degraded."""
    assert health_to_keep(kept, seen(status=status(health={"status": now}))) == expected


# -- asking ----------------------------------------------------------------------------------------------------------


def noted(value: str | None, **more: Any) -> Application:
    annotations = {} if value is None else {REFRESH: value}
    return seen(metadata={"annotations": annotations}, status=status(**more))


ASKED = Asked(100.0, EARLY)

LOOKS = [
    ("at first", noted(None), None, 90, 100, Asking(Look.ASK)),
    ("reconciled a moment ago", noted(None), None, 99.5, 100, Asking(Look.WAIT, 0.5 + SETTLE - 1)),
    ("never reconciled", noted(None, reconciledAt=None), None, 100, 100, Asking(Look.ASK)),
    ("somebody else has asked", noted("normal"), None, 90, 100, Asking(Look.WAIT, PATIENCE)),
    ("somebody else has asked, long ago", noted("normal"), None, 90, 111, Asking(Look.WAIT, None, late=True)),
    ("asked", noted("hard"), ASKED, 90, 101, Asking(Look.WAIT, PATIENCE - 1)),
    ("asked in vain", noted("hard"), ASKED, 90, 110, Asking(Look.WAIT, None, late=True)),
    ("asked, and another look has ended", noted("hard", reconciledAt=LATE), ASKED, 100, 101, Asking(Look.WAIT, 9)),
    ("looked", noted(None, reconciledAt=LATE), ASKED, 101, 101, Asking(Look.DONE)),
    ("taken away by somebody", noted(None), ASKED, 90, 101, Asking(Look.WAIT, 9)),
    ("taken away by somebody, a while ago", noted(None), ASKED, 90, 110, Asking(Look.ASK)),
    ("looked at an invalid spec", noted(None, conditions=[{"type": "InvalidSpecError", "message": "x"}]), ASKED, 90,
     101, Asking(Look.DONE)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("subject", "asked", "standing", "now", "expected"), [c[1:] for c in LOOKS], ids=[c[0] for c in LOOKS]
)
def test_decide_look(subject: Application, asked: Asked | None, standing: float, now: float, expected: Asking) -> None:
    """Argo CD has looked when the annotation is gone and reconciledAt is another one than when we asked."""
    decided = decide_look(subject, asked, standing, 100, now)

    assert (decided.look, decided.late) == (expected.look, expected.late)
    assert decided.look_after == (None if expected.look_after is None else pytest.approx(expected.look_after))


class Worker:
    """An Argo CD with a clock of its own: it reads an Application, and some time later writes what it has found."""

    def __init__(self, ahead: float) -> None:
        self._ahead = ahead
        self.annotation: str | None = None
        self.reconciled_at = EARLY
        self.reading: tuple[float, str | None] | None = None
        self.looks: list[float] = []
        """When each look that has ended began."""

    def act(self, now: float) -> None:
        """Begin a look, or end the one that is under way."""
        if self.reading is None:
            self.reading = now, self.annotation
            return
        (began, noted), self.reading = self.reading, None
        minutes, second = divmod(int(now + self._ahead), 60)
        self.reconciled_at = f"2026-11-30T12:{minutes:02}:{second:02}Z"
        if noted is not None:
            self.annotation = None
        self.looks.append(began)


@settings(max_examples=500)
@given(
    steps=st.lists(
        st.tuples(st.floats(0.01, 3), st.sampled_from(["worker", "worker", "somebody", "nobody"])), max_size=40
    ),
    ahead=st.floats(0, 1),
)
def test_what_is_judged_is_newer_than_the_question(steps: list[tuple[float, str]], ahead: float) -> None:
    """Whenever Argo CD counts as having looked, a look has ended that began after we had asked."""
    argo, asked, now = Worker(ahead), None, 100.0
    shown, standing = argo.reconciled_at, now
    for pause, who in steps:
        now += pause
        if who == "worker":
            argo.act(now)
        elif who == "somebody":
            argo.annotation = "normal"
        if argo.reconciled_at != shown:
            shown, standing = argo.reconciled_at, now
        decided = decide_look(noted(argo.annotation, reconciledAt=shown), asked, standing, 100.0, now)
        if decided.look is Look.DONE:
            assert asked is not None
            assert any(began >= asked.at for began in argo.looks)
            return
        if decided.look is Look.ASK:
            argo.annotation, asked = "hard", Asked(now, shown)
