"""What the steps of a Promotion do to it: the table of outcomes, and what holds for any run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, strategies as st

from kargo_py.api.promotion import HealthCheckStep, Promotion, StepStatus
from kargo_py.engine.machine import CurrentStep, current_step
from kargo_py.engine.outputs import MOST_OUTPUT, Output
from kargo_py.engine.records import records_of
from kargo_py.engine.retries import Rules, is_passing, outcome_of, pause_after, rules_of, time_limit
from kargo_py.engine.stepping import (
    Then,
    advance,
    errors_of,
    finish_step,
    hold_step,
    refuse_step,
    skip_step,
    start_step,
)
from kargo_py.kube.codec import encode
from kargo_py.kube.errors import (
    BadRequest,
    Conflict,
    ConnectionLost,
    Forbidden,
    NotFound,
    OutcomeUnknown,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from kargo_py.steps.argocd_update import ArgoCDUpdate
from kargo_py.steps.base import Erred, Finished, Intend, StepOutcome, Waiting
from kargo_py.steps.step import StepFailed
from tests.engine.test_machine import NOON, S, begun, promotion, record, started


def current_of(p: Promotion) -> CurrentStep:
    current = current_step(p)
    assert current is not None
    return current


def after(*outcomes: StepOutcome, rules: Rules = Rules(), **how: Any) -> tuple[Promotion, Then]:  # noqa: B008
    """The Promotion after these outcomes of its first step, and what follows the last one."""
    p, then = begun({}, {}), Then.NEXT
    for outcome in outcomes:
        transition = advance(p, current_of(p), outcome, NOON, rules, **how)
        p, then = transition.promotion, transition.then
    return p, then


def first(p: Promotion) -> tuple[str, int, str]:
    """Status, errors and message of the first step."""
    metadata = p.status.step_execution_metadata[0]
    return metadata.status, metadata.error_count, metadata.message


BAD, NO, PASSING = Erred("bad"), Erred("no", failed=True), Erred("gone", transient=True)
THREE = Rules(threshold=3)


@pytest.mark.parametrize(
    ("outcomes", "rules", "tolerant", "then", "expected"),
    [
        ([Finished(S.SUCCEEDED)], Rules(), False, Then.NEXT, ("Succeeded", 0, "")),
        ([Finished(S.SKIPPED, "nothing to do")], Rules(), False, Then.NEXT, ("Skipped", 0, "nothing to do")),
        ([Finished(S.FAILED, "no")], THREE, False, Then.NEXT, ("Failed", 0, 'step "step-1": no')),
        ([Finished(S.FAILED)], Rules(), False, Then.NEXT, ("Failed", 0, 'step "step-1": no reason was given')),
        ([Finished(S.ERRORED, "x")], THREE, False, Then.NEXT, ("Errored", 1, 'error running step "step-1": x')),
        ([BAD], Rules(), False, Then.NEXT, ("Errored", 1, 'error running step "step-1": bad')),
        ([NO], Rules(), False, Then.NEXT, ("Failed", 1, 'step "step-1": no')),
        ([BAD], THREE, False, Then.PAUSE,
         ("Running", 1, 'error running step "step-1": bad; step will be retried')),
        ([NO], THREE, False, Then.PAUSE, ("Running", 1, 'step "step-1": no; step will be retried')),
        ([BAD, BAD], THREE, False, Then.PAUSE,
         ("Running", 2, 'error running step "step-1": bad; step will be retried')),
        ([BAD, NO, BAD], THREE, False, Then.NEXT,
         ("Errored", 3, 'step "step-1" met error threshold of 3: bad')),
        ([BAD, BAD, NO], THREE, False, Then.NEXT, ("Failed", 3, 'step "step-1" met error threshold of 3: no')),
        ([BAD, BAD, Waiting("waits")], THREE, False, Then.WAIT,
         ("Running", 0, 'error running step "step-1": bad; step will be retried')),
        ([BAD, Waiting("waits"), BAD, BAD], THREE, False, Then.PAUSE,
         ("Running", 2, 'error running step "step-1": bad; step will be retried')),
        ([BAD, BAD, Intend([record()]), Waiting("waits", [record()]), BAD], THREE, False, Then.NEXT,
         ("Errored", 3, 'step "step-1" met error threshold of 3: bad')),
        ([PASSING], Rules(), True, Then.PAUSE,
         ("Running", 0, 'error running step "step-1": gone; step will be retried')),
        ([PASSING] * 9, Rules(), True, Then.PAUSE,
         ("Running", 0, 'error running step "step-1": gone; step will be retried')),
        ([PASSING], Rules(), False, Then.NEXT, ("Errored", 1, 'error running step "step-1": gone')),
        ([PASSING], THREE, False, Then.PAUSE,
         ("Running", 1, 'error running step "step-1": gone; step will be retried')),
        ([BAD], Rules(), True, Then.NEXT, ("Errored", 1, 'error running step "step-1": bad')),
        ([Intend([record()])], Rules(), False, Then.RECORD, ("Running", 0, "")),
        ([Erred("")], THREE, False, Then.PAUSE,
         ("Running", 1, 'error running step "step-1": no reason was given; step will be retried')),
        ([BAD, Finished(S.SUCCEEDED)], THREE, False, Then.NEXT, ("Succeeded", 1, "")),
    ],
)  # fmt: skip
def test_outcomes(
    outcomes: Sequence[StepOutcome], rules: Rules, tolerant: bool, then: Then, expected: tuple[str, int, str]
) -> None:
    p, got = after(*outcomes, rules=rules, tolerant=tolerant)

    assert got is then
    assert first(p) == expected


def test_a_time_out_is_no_error() -> None:
    """It says its name but once, and is not counted."""
    said = 'step "step-1" timed out after 5m0s: waiting for godot'
    p, then = after(BAD, Finished(S.ERRORED, said), rules=THREE, timed_out=True)

    assert then is Then.NEXT
    assert first(p) == ("Errored", 1, said)


def test_what_an_error_brings() -> None:
    """Outputs and records of an attempt that failed are kept."""
    p, _ = after(Erred("no", output=Output({"a": 1}, {}), records=[record(message="m")]), rules=THREE)

    assert p.status.state["step-1"] == {"a": 1}
    assert [r.message for r in records_of(p.status)] == ["m"]


@pytest.mark.parametrize("kind", [Intend, Erred, Finished])
def test_there_is_no_room(kind: type) -> None:
    """An output for which there is no room ends the step; what is on record stays."""
    big = Output({"a": "x" * (MOST_OUTPUT - 100)}, {})
    p = begun({"continueOnError": True}, {"continueOnError": True}, {})
    for _ in range(2):
        p = finish_step(p, current_of(p), Finished(S.SUCCEEDED, output=big), NOON)
        p = started(p) if not p.finished else p
        last = current_of(p)
    made: dict[type, StepOutcome] = {
        Intend: Intend([record("step-2")], output=big),
        Erred: Erred("no", output=big),
        Finished: Finished(S.SUCCEEDED, output=big),
    }
    before = len(encode(p.wire()))
    transition = advance(p, last, made[kind], NOON, Rules(threshold=9))
    ended = transition.promotion.status

    assert transition.then is Then.NEXT
    assert "and with it the Promotion would be 1.1 MiB, at most 1 MiB" in ended.step_execution_metadata[-1].message
    assert ended.step_execution_metadata[-1].status == "Errored"
    assert last.alias not in ended.state
    assert len(encode(transition.promotion.wire())) < before + 2000


def test_steps_that_do_not_start() -> None:
    """Skipped or refused they have no times, and the next one is entered."""
    p = promotion({}, {}, {"if": "x"}, {"continueOnError": True, "if": "x"}, phase="Running", freight={"name": "f"})
    p = skip_step(p, current_of(p), NOON)
    held = hold_step(p, current_of(p), "no answer")
    assert held.status.message == 'error running step "step-2": no answer; step will be retried'
    p = refuse_step(held, current_of(held), "no such kind", NOON)
    p = skip_step(p, current_of(p), NOON)
    p = refuse_step(p, current_of(p), "again", NOON)

    assert [m.wire() for m in p.status.step_execution_metadata] == [
        {"alias": "step-1", "status": "Skipped"},
        {"alias": "step-2", "status": "Errored", "message": 'error running step "step-2": no such kind'},
        {"alias": "step-3", "status": "Skipped"},
        {
            "alias": "step-4",
            "status": "Errored",
            "message": 'error running step "step-4": again',
            "continueOnError": True,
        },
    ]
    assert (p.status.phase, p.status.message) == ("Errored", 'error running step "step-2": no such kind')


def test_the_message_while_entering_goes_away() -> None:
    p = promotion({}, phase="Running", freight={"name": "f"})
    held = hold_step(p, current_of(p), "no answer")

    assert start_step(held, current_of(held), NOON).status.message == ""


STATUSES = st.sampled_from([S.SUCCEEDED, S.SKIPPED, S.FAILED, S.ERRORED])
STEPS = st.fixed_dictionaries({}, optional={"continueOnError": st.booleans(), "if": st.just("${{ always() }}")})
OUTCOMES = st.one_of(
    st.builds(Finished, STATUSES, st.text(max_size=3)),
    st.builds(Erred, st.text(max_size=3), failed=st.booleans(), transient=st.booleans()),
    st.builds(Waiting, st.text(max_size=3)),
)


@given(
    st.lists(st.tuples(STEPS, st.sampled_from(["run", "skip", "refuse"]), st.lists(OUTCOMES)), min_size=1, max_size=6),
    st.integers(1, 4),
    st.booleans(),
)
def test_any_run(plan: list[tuple[dict[str, Any], str, list[StepOutcome]]], threshold: int, tolerant: bool) -> None:
    """Each step is seen at most once and in order; the worst that counts decides; errors stay below the threshold."""
    p = promotion(*(step for step, _, _ in plan), phase="Running", freight={"name": "f"})
    entered: list[int] = []
    while not p.finished:
        current = current_of(p)
        entered.append(current.index)
        step, how, outcomes = plan[current.index]
        failed = any(
            m.status in {"Failed", "Errored"} and not m.continue_on_error for m in p.status.step_execution_metadata
        )
        assert not failed or "if" in step
        if how != "run":
            p = skip_step(p, current, NOON) if how == "skip" else refuse_step(p, current, "why", NOON)
            continue
        p = start_step(p, current, NOON)
        for outcome in [*outcomes, Finished(S.SUCCEEDED)]:
            transition = advance(p, current_of(p), outcome, NOON, Rules(threshold), tolerant=tolerant)
            p = transition.promotion
            if transition.then is Then.NEXT:
                break
            assert errors_of(p) < threshold
    metadata = p.status.step_execution_metadata
    assert entered == sorted(set(entered))
    assert [m.alias for m in metadata] == [f"step-{n + 1}" for n in range(len(plan))]
    assert p.status.current_step == len(plan) - 1
    counting = [StepStatus(m.status) for m in metadata if not m.continue_on_error]
    worst = max((each.severity for each in counting), default=0)
    assert p.status.phase == {0: "Succeeded", 1: "Succeeded", 4: "Failed", 5: "Errored"}[worst]
    assert bool(p.status.message) == (worst > 1)


def test_messages_leave_room() -> None:
    """However many steps fail with however much to say."""
    p = begun(*({"if": "${{ always() }}"} for _ in range(300)))
    while not p.finished:
        p = finish_step(p, current_of(p), Finished(S.FAILED, "é" * 100_000), NOON)
        p = p if p.finished else started(p)

    assert len(p.status.step_execution_metadata[0].message.encode()) == 16 * 1024
    assert len(encode(p.wire())) < 400_000


def test_health_checks_of_successes() -> None:
    check = HealthCheckStep(uses="x", config={})
    p = begun({}, {"if": "${{ always() }}"})
    p = started(finish_step(p, current_of(p), Finished(S.SUCCEEDED, health_check=check), NOON))
    p = finish_step(p, current_of(p), Finished(S.FAILED, "no", health_check=check), NOON)

    assert list(p.status.health_checks) == [check]


# -- retries -----------------------------------------------------------------------------------------------------------


class TransportError(Exception):
    """As httpx has it."""


TransportError.__module__ = "httpx._exceptions"


class ReadTimeout(TransportError):
    """Derived from it."""


def _too_many(seconds: float | None) -> TooManyRequests:
    error = TooManyRequests(429, "TooManyRequests", "slow down")
    error.retry_after = seconds
    return error


@pytest.mark.parametrize(
    ("error", "passing"),
    [
        (Unreachable("x"), True),
        (ConnectionLost("x"), True),
        (OutcomeUnknown("x"), True),
        (ServerError(503, "x", "x"), True),
        (Conflict(409, "x", "x"), True),
        (_too_many(None), True),
        (NotFound(404, "NotFound", "x"), True),
        (NotFound(404, "NotFound", "x", status={"details": {"name": "n"}}), False),
        (Forbidden(403, "x", "x"), False),
        (BadRequest(400, "x", "x"), False),
        (TimeoutError(), True),
        (ConnectionResetError(), True),
        (ReadTimeout(), True),
        (ValueError(), False),
        (ExceptionGroup("x", [TimeoutError(), ReadTimeout()]), True),
        (ExceptionGroup("x", [TimeoutError(), ValueError()]), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_errors_that_pass(error: BaseException, passing: bool) -> None:
    assert is_passing(error) is passing
    outcome = outcome_of(error)
    assert isinstance(outcome, Erred)
    assert outcome.transient is passing


class Mute(Exception):
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (StepFailed("not: today"), Finished(S.FAILED, "not: today")),
        (StepFailed(), Finished(S.FAILED, "")),
        (Mute(), Erred("Mute, whose text cannot be shown: that raises RuntimeError")),
        (ValueError("x"), Erred("ValueError: x")),
        (Forbidden(403, "x", "you may not", request="get pods a/b"), Erred("get pods a/b: you may not")),
        (_too_many(7), Erred("slow down", transient=True, retry_after=7)),
        (_too_many(9999), Erred("slow down", transient=True, retry_after=120)),
    ],
)
def test_what_errors_mean(error: BaseException, outcome: StepOutcome) -> None:
    assert outcome_of(error) == outcome


@pytest.mark.parametrize(
    ("errors", "asked", "least"),
    [(1, None, 1), (2, None, 2), (3, None, 4), (99, None, 60), (1, 30, 30), (0, None, 1), (1, float("nan"), 1),
     (1, float("inf"), 1), (1, -5, 1)],
)  # fmt: skip
def test_pauses(errors: int, asked: float | None, least: float) -> None:
    assert least <= pause_after(errors, asked) <= least + 1


def test_pauses_differ() -> None:
    """What fails at the same time is not tried again at the same time."""
    pauses = [pause_after(3, None) for _ in range(100)]

    assert max(pauses) - min(pauses) > 0.5


@pytest.mark.parametrize(
    ("retry", "threshold", "timeout"),
    [
        (None, 1, timedelta(minutes=5)),
        ({}, 1, timedelta(minutes=5)),
        ({"errorThreshold": 0}, 1, timedelta(minutes=5)),
        ({"errorThreshold": 4, "timeout": "0s"}, 4, None),
        ({"timeout": "1ns"}, 1, timedelta.resolution),
        ({"timeout": "1h"}, 1, timedelta(hours=1)),
    ],
)
def test_rules(retry: dict[str, Any] | None, threshold: int, timeout: timedelta | None) -> None:
    (step,) = promotion({"retry": retry} if retry is not None else {}).spec.steps or ()

    assert rules_of(step, ArgoCDUpdate.__new__(ArgoCDUpdate)) == Rules(threshold, timeout)
    assert time_limit(step, timedelta(minutes=5)) == timeout
