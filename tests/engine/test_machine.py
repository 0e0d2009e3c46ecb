"""The state machine of a Promotion."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kargo_py.api.abort import ABORT_KEY, Abort, latched_abort
from kargo_py.api.freight import FreightOrigin, FreightReference
from kargo_py.api.promotion import (
    FreightCollection,
    HealthCheckStep,
    Promotion,
    PromotionPhase,
    PromotionStep,
    StepExecutionMetadata,
    StepStatus,
)
from kargo_py.api.stamp import AWAITED_KEY, STATE_KEY
from kargo_py.api.types import Time
from kargo_py.deployers.base import Awaited, Before, Record, RecordError, TargetState
from kargo_py.engine.machine import (
    abort,
    alias_fault,
    begin,
    current_step,
    fail,
    held_up,
    latch_abort,
    with_message,
    with_refresh,
)
from kargo_py.engine.outputs import output_of
from kargo_py.engine.records import awaited_of, newly_ended, readable_records, records_of, with_records
from kargo_py.engine.stepping import finish_step, start_step, with_intent
from kargo_py.steps.base import Finished, Intend

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
FREIGHT = FreightReference(name="f", origin=FreightOrigin(kind="Warehouse", name="w"))
S = StepStatus


def promotion(*steps: dict[str, Any], **status: Any) -> Promotion:
    """A Promotion of these steps."""
    spec = {"stage": "dev", "freight": "f", "steps": [{"uses": "x", **step} for step in steps]}
    return Promotion.model_validate({"metadata": {"name": "p"}, "spec": spec, "status": status})


def begun(*steps: dict[str, Any]) -> Promotion:
    """A Promotion whose first step runs."""
    return started(begin(promotion(*steps), FREIGHT, FreightCollection().with_freight(FREIGHT), NOON))


def started(p: Promotion) -> Promotion:
    """The step that was entered, started."""
    current = current_step(p)
    assert current is not None
    assert not current.started
    return start_step(p, current, NOON)


def record(step: str = "step-1", **more: Any) -> Record:
    """A recorded intent."""
    base: dict[str, Any] = {
        "kind": "argocd", "namespace": "argocd", "name": "shop", "uid": "u", "step": step, "attempt": 1,
        "stamp": "s", "resource_version": "7",
    }  # fmt: skip
    return Record(**{**base, **more})


def run(*steps: tuple[dict[str, Any], StepStatus]) -> Promotion:
    """Run all steps, each ending as given; those the machine skips are not asked."""
    p = begun(*(step for step, _ in steps))
    while (current := current_step(p)) is not None and not p.finished:
        status = steps[current.index][1]
        p = finish_step(p, current, Finished(status, f"{status} {current.index}" if status.severity > 1 else ""), NOON)
        p = p if p.finished else started(p)
    return p


def test_begin() -> None:
    """The first step runs, and what is promoted is on record."""
    p = begun({}, {"as": "two"})

    assert {
        "phase": "Running",
        "startedAt": "2026-11-30T12:00:00Z",
        "freight": {"name": "f", "origin": {"kind": "Warehouse", "name": "w"}},
        "currentStep": 0,
        "stepExecutionMetadata": [{"alias": "step-1", "startedAt": "2026-11-30T12:00:00Z", "status": "Running"}],
    }.items() <= p.status.wire().items()


COC = {"continueOnError": True}


@pytest.mark.parametrize(
    ("steps", "phase", "message", "statuses"),
    [
        ([({}, S.SUCCEEDED)], "Succeeded", "", ["Succeeded"]),
        ([({}, S.SUCCEEDED), ({}, S.SUCCEEDED)], "Succeeded", "", ["Succeeded", "Succeeded"]),
        ([({}, S.SKIPPED)], "Succeeded", "", ["Skipped"]),
        ([({}, S.FAILED)], "Failed", 'step "step-1": Failed 0', ["Failed"]),
        ([({}, S.ERRORED)], "Errored", 'error running step "step-1": Errored 0', ["Errored"]),
        ([({"as": "a"}, S.FAILED), ({}, S.SUCCEEDED), ({}, S.SUCCEEDED)], "Failed", 'step "a": Failed 0',
         ["Failed", "Skipped", "Skipped"]),
        ([({}, S.SUCCEEDED), ({}, S.FAILED)], "Failed", 'step "step-2": Failed 1', ["Succeeded", "Failed"]),
        ([(COC, S.FAILED), ({}, S.SUCCEEDED)], "Succeeded", "", ["Failed", "Succeeded"]),
        ([(COC, S.ERRORED), ({}, S.FAILED)], "Failed", 'step "step-2": Failed 1', ["Errored", "Failed"]),
        ([(COC, S.FAILED)], "Succeeded", "", ["Failed"]),
    ],
    ids=["one", "two", "skipped", "failed", "errored", "the rest is skipped", "second fails", "failure that is allowed",
         "an allowed one and one that is not", "only allowed ones"],
)  # fmt: skip
def test_run(steps: list[tuple[dict[str, Any], StepStatus]], phase: str, message: str, statuses: list[str]) -> None:
    """A failed step skips the later ones; the worst step that counts decides, and lends its message."""
    status = run(*steps).status

    assert (phase, message) == (status.phase, status.message)
    assert statuses == [m.status for m in status.step_execution_metadata]
    assert ("2026-11-30T12:00:00Z", len(steps) - 1) == (status.finished_at, status.current_step)


def test_outputs_checks_and_records() -> None:
    """Outputs stand under the alias, also of a failed step; a health check is kept of a successful one only."""
    p = begun({"as": "a"}, {})
    check = HealthCheckStep(uses="x", config={})
    current = current_step(p)
    assert current is not None
    good = finish_step(p, current, Finished(S.SUCCEEDED, "", {"k": 1}, check, [record("a")]), NOON)
    bad = finish_step(p, current, Finished(S.FAILED, "no", {"k": 2}, check, [record("a")]), NOON)

    assert good.status.state["a"] == {"k": 1}
    assert [check] == list(good.status.health_checks)
    assert [record("a")] == list(records_of(good.status, "a"))
    assert bad.status.state["a"] == {"k": 2}
    assert list(bad.status.health_checks) == []


def test_records() -> None:
    """Records of one step replace each other and leave those of other steps and all outputs alone."""
    status = promotion({}, phase="Running", state={"other": {"out": 1}}).status
    status = with_records(status, "a", [record("a")])
    status = with_records(status, "b", [record("b", name="two")])
    status = with_records(status, "a", [record("a", state=TargetState.FAILED, message="no", before=(Before("/x", 1),))])

    assert {"other", STATE_KEY} == set(status.state)
    assert [r.step for r in records_of(status)] == ["b", "a"]
    assert [(o.name, o.state, list(o.changed_fields)) for o in status.operations] == [
        ("two", "Pending", []),
        ("shop", "Failed", ["/x"]),
    ]


@pytest.mark.parametrize("stored", [7, [{}], [{"kind": "argocd", "attempt": "one"}]])
def test_damaged_records(stored: object) -> None:
    """Records that cannot be read back are an error, never taken for none: that would start a second sync."""
    with pytest.raises(RecordError, match="cannot be read back"):
        records_of(promotion({}, phase="Running", state={STATE_KEY: stored}).status)


@pytest.mark.parametrize(
    "status",
    [
        {"phase": "Running"},
        {"phase": "Running", "currentStep": 5},
        {"phase": "Running", "currentStep": -1},
        {"phase": "Running", "stepExecutionMetadata": [{"status": "Succeeded"}]},
        {"phase": "Running", "currentStep": 1, "stepExecutionMetadata": [{"status": "Running"}]},
    ],
)
def test_a_status_that_contradicts_itself(status: dict[str, Any]) -> None:
    """If the status does not say which step runs, none is run."""
    assert current_step(promotion({}, {}, **status)) is None


@pytest.mark.parametrize(
    ("aliases", "words"),
    [
        ([None, None], None),
        (["a", "b"], None),
        (["a", "a"], "spec.steps[1] has the alias 'a' of spec.steps[0]"),
        (["step-2", None], "spec.steps[1] has the alias 'step-2' of spec.steps[0]"),
        ([STATE_KEY], "is reserved"),
    ],
)
def test_aliases_tell_steps_apart(aliases: list[str | None], words: str | None) -> None:
    """Steps that share an alias would share outputs and records: one would take the other's sync for its own."""
    steps = promotion(*({"as": alias} if alias else {} for alias in aliases)).spec.steps
    assert steps is not None

    fault = alias_fault(steps)

    assert words is None or words in (fault or "")
    assert (words is None) == (fault is None)


def test_a_status_nobody_knows_is_no_success() -> None:
    """A step status written by something else does not crash the end, and does not count as success."""
    p = begun({}, {})
    odd = [
        StepExecutionMetadata(alias="step-1", status="Odd"),
        StepExecutionMetadata(alias="step-2", status=StepStatus.RUNNING),
    ]
    p = p.replace(status=p.status.replace(step_execution_metadata=odd, current_step=1))
    current = current_step(p)
    assert current is not None

    assert finish_step(p, current, Finished(S.SUCCEEDED), NOON).status.phase == "Errored"


def test_times_that_are_none() -> None:
    """What Argo CD says of times is told only if it is one."""
    assert "startedAt" not in record(started_at="soon").mirror()
    assert record(started_at="2026-11-30T12:00:00Z").mirror()["startedAt"] == "2026-11-30T12:00:00Z"


def test_a_step_that_was_renamed() -> None:
    """A step whose alias was edited while it runs is not taken for one that has not started."""
    p = begun({"as": "a"})
    renamed = p.replace(spec=promotion({"as": "b"}).spec)

    assert current_step(p) is not None
    assert current_step(renamed) is None


def test_fail() -> None:
    """An end from outside the steps ends the running step too."""
    status = fail(begun({}), PromotionPhase.ERRORED, "why", NOON).status

    assert (status.phase, status.message, status.finished_at) == ("Errored", "why", "2026-11-30T12:00:00Z")
    (step,) = status.step_execution_metadata
    assert (step.status, step.message) == ("Errored", "why")


def test_message_of_a_wait() -> None:
    """What a step waits for stands at that step, and goes away with its end."""
    p = begun({})
    p = p.replace(status=with_message(p.status, "waiting for alice"))
    current = current_step(p)
    assert current is not None

    ended = finish_step(p, current, Finished(S.SUCCEEDED), NOON)

    assert p.status.step_execution_metadata[0].message == "waiting for alice"
    assert ended.status.step_execution_metadata[0].message == ""


def test_abort() -> None:
    """The running step is Aborted with how its work ended, the message names who asked, and the latch stays."""
    asked = Abort("email:a@b")
    p = begun({}, {})
    p = p.replace(status=with_records(p.status, "step-1", [record()]))
    latched = latch_abort(p.status, asked, NOON)
    stopped = record().ended(TargetState.STOPPED, "Operation terminated")

    ended = abort(p.replace(status=latched), asked, Finished(S.ABORTED, "it was ended", records=[stopped]), NOON)

    assert latched.step_execution_metadata[-1].message == "aborting, as email:a@b asked"
    assert latched_abort(latched.state) == Abort("email:a@b", since=Time.of(NOON))
    assert latched_abort(latch_abort(latched, asked, NOON).state) == Abort("email:a@b", since=Time.of(NOON))
    assert (ended.status.phase, ended.status.message) == (
        PromotionPhase.ABORTED,
        "Promotion terminated by email:a@b: it was ended",
    )
    assert [(m.alias, m.status, m.message) for m in ended.status.step_execution_metadata] == [
        ("step-1", "Aborted", "it was ended")
    ]
    assert [r.state for r in records_of(ended.status)] == [TargetState.STOPPED]
    assert ended.status.operations[0].state == "Stopped"


def test_abort_before_the_start() -> None:
    """What has not begun ends without steps."""
    ended = abort(promotion({}), Abort(), Finished(S.ABORTED), NOON)

    assert (ended.status.phase, ended.status.message, list(ended.status.step_execution_metadata)) == (
        PromotionPhase.ABORTED,
        "Promotion terminated by controller:kargo-py",
        [],
    )


@pytest.mark.parametrize("alias", [STATE_KEY, ABORT_KEY, AWAITED_KEY])
def test_reserved_aliases(alias: str) -> None:
    """Our own keys of the state cannot be taken by a step."""
    assert "is reserved" in (alias_fault([PromotionStep.model_validate({"uses": "x", "as": alias})]) or "")


AWAITED = Awaited("step-1", "argocd", selector={"matchLabels": {"tier": "web"}})


def test_what_is_awaited() -> None:
    """It is on record as long as the step waits for it, and not beyond what was waited for."""
    waiting = begun({}, {})
    waiting = waiting.replace(status=with_intent(waiting.status, "step-1", Intend((), awaited=[AWAITED])))
    there = waiting.replace(status=with_intent(waiting.status, "step-1", Intend([record()], output={"a": 1})))

    assert awaited_of(waiting.status, "step-1") == (AWAITED,)
    assert awaited_of(waiting.status, "step-2") == ()
    assert isinstance(there.status.state, dict)
    assert AWAITED_KEY not in there.status.state
    assert output_of(there.status, "step-1") == {"a": 1}
    assert records_of(there.status, "step-1") == (record(),)


def test_nothing_is_awaited_after_the_end() -> None:
    """Neither after that of the step nor after an abort."""
    waiting = begun({}, {})
    waiting = waiting.replace(status=with_intent(waiting.status, "step-1", Intend((), awaited=[AWAITED])))
    current = current_step(waiting)
    assert current is not None

    ended = finish_step(waiting, current, Finished(S.ERRORED, "no"), NOON)
    aborted = abort(waiting, Abort("alice"), Finished(S.ABORTED), NOON)

    assert AWAITED_KEY not in (ended.status.state or {})
    assert AWAITED_KEY not in (aborted.status.state or {})


@pytest.mark.parametrize("stored", ["x", 7, [7], [{}], [{"step": "s", "namespace": 1}], {"step": "s"}])
def test_what_is_awaited_was_edited(stored: object) -> None:
    """What cannot be read is nothing: the step finds out anew."""
    edited = begun({}).status.replace(state={AWAITED_KEY: stored})

    assert awaited_of(edited, "step-1") == ()


# -- conditions, refreshes, what is told -----------------------------------------------------------------------------


def conditions(made: Promotion) -> dict[str, tuple[str, str, str, str]]:
    return {c.type: (c.status, c.reason, c.message, str(c.last_transition_time)) for c in made.status.conditions}


def test_conditions_from_begin_to_end() -> None:
    """They say what the phase says, and their times are those at which their status changed."""
    later = NOON + timedelta(minutes=5)
    at_noon, at_the_end = "2026-11-30T12:00:00Z", "2026-11-30T12:05:00Z"
    running = begun({})
    assert conditions(running) == {
        "Finished": ("False", "Running", "", at_noon),
        "Succeeded": ("Unknown", "Running", "", at_noon),
    }
    assert running.status.admitted_at == running.status.started_at == at_noon
    current = current_step(running)
    assert current is not None

    good = finish_step(running, current, Finished(S.SUCCEEDED), later)
    bad = finish_step(running, current, Finished(S.FAILED, "no"), later)
    broken = fail(running, PromotionPhase.ERRORED, "gone", later)
    aborted = abort(running, Abort("ann"), Finished(S.ABORTED), later)

    assert conditions(good) == {
        "Finished": ("True", "Succeeded", "", at_the_end),
        "Succeeded": ("True", "Succeeded", "", at_the_end),
    }
    for ended in (bad, broken, aborted):
        assert conditions(ended) == {
            kind: (status, ended.status.phase, ended.status.message, at_the_end)
            for kind, status in (("Finished", "True"), ("Succeeded", "False"))
        }


def test_conditions_of_others_stay() -> None:
    """And a long message is not there three times over."""
    theirs = {"type": "Audited", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    ended = fail(promotion({}, conditions=[theirs]), PromotionPhase.ERRORED, "é" * 5000, NOON)

    assert [c.type for c in ended.status.conditions] == ["Audited", "Finished", "Succeeded"]
    assert ended.status.conditions[0].wire() == theirs
    assert ended.status.conditions[1].message == "é" * 512


def test_held_up() -> None:
    """Why it cannot begin is said once; when that is over it is as any other that queues."""
    waiting = promotion({})
    assert held_up(waiting, "", "", NOON) is waiting
    held = held_up(waiting, "StageNotFound", "no Stage", NOON)
    assert held.phase == PromotionPhase.PENDING
    assert held.status.message == "no Stage"
    assert conditions(held)["Finished"][:3] == ("False", "StageNotFound", "no Stage")
    assert held_up(held, "StageNotFound", "no Stage", NOON + timedelta(hours=1)) is held
    free = held_up(held, "", "", NOON + timedelta(hours=1))
    assert free.status.message == ""
    assert conditions(free)["Finished"] == ("False", "Pending", "", "2026-11-30T12:00:00Z")
    running = begin(held, FREIGHT, FreightCollection().with_freight(FREIGHT), NOON)
    assert running.status.message == ""


@pytest.mark.parametrize(
    ("token", "handled", "expected"),
    [
        ("", "", ""),
        ("t1", "", "t1"),
        ("t1", "t1", "t1"),
        ("t2", "t1", "t2"),
        ("", "t1", "t1"),
        ("x" * 2000, "", "x" * 1024),
    ],
)
def test_refresh(token: str, handled: str, expected: str) -> None:
    """A new token goes on record; anything else changes nothing."""
    made = promotion({}, lastHandledRefresh=handled)
    made.metadata.annotations["kargo.akuity.io/refresh"] = token

    done = with_refresh(made)

    assert done.status.last_handled_refresh == expected
    assert (done is made) == (expected == handled)


def test_newly_ended() -> None:
    """Each operation counts once, by target and stamp; what is only waited for is none."""

    def holding(*records: Record) -> Promotion:
        return promotion({}, state={STATE_KEY: [each.wire() for each in records]})

    open_, ended = record(), record(state=TargetState.LOST)
    other = record(name="other", state=TargetState.SUCCEEDED)
    assert newly_ended(holding(open_), holding(ended, other)) == [ended, other]
    assert newly_ended(holding(ended), holding(ended, other)) == [other]
    assert newly_ended(holding(ended), holding(open_)) == []
    waited = record(kind="argocd-wait", state=TargetState.STOPPED)
    assert newly_ended(holding(), holding(ended, waited)) == [ended]
    assert readable_records(promotion({}, state={STATE_KEY: 7})) == ()
