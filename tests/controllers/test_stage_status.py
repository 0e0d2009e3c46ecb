"""What a Stage's status becomes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kargo_py.api.promotion import Promotion
from kargo_py.api.stage import HealthState, Stage, StageStatus
from kargo_py.api.types import Time
from kargo_py.controllers.stage_health import checks
from kargo_py.controllers.stage_history import fold_ended, is_history
from kargo_py.controllers.stage_queue import JUDGING_LIMIT
from kargo_py.controllers.stage_status import HOLD, Outlook, Situation, outlook
from kargo_py.deployers.base import HealthVerdict

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
JsonObject = dict[str, Any]
HEALTHY = HealthVerdict(HealthState.HEALTHY)
PROGRESSING = HealthVerdict(HealthState.PROGRESSING, ("rolling out",))
UNHEALTHY = HealthVerdict(HealthState.UNHEALTHY, ("broken",))
UNTRUSTED = HealthVerdict(HealthState.UNKNOWN, ("not refreshed",), trusted=False, recheck_after=0.5)

CHECK = {"uses": "argocd-update", "config": {"apps": [{"name": "shop-dev"}]}}


def stage(status: JsonObject | None = None, **spec: Any) -> Stage:
    """A Stage that takes Freight of two Warehouses."""
    requested = [{"origin": {"kind": "Warehouse", "name": n}, "sources": {"direct": True}} for n in ("w", "v")]
    meta = {"name": "dev", "namespace": "shop", "uid": "stage-uid", "generation": 3}
    steps = [{"uses": "argocd-update"}]
    obj = {
        "metadata": {**meta, **spec.pop("metadata", {})},
        "spec": {"requestedFreight": requested, "promotionTemplate": {"spec": {"steps": steps}}, **spec},
        "status": status or {},
    }
    return Stage.model_validate(obj)


def promotion(name: str, phase: str = "Pending", at: int = 0, freight: str = "f1", **meta: Any) -> Promotion:
    """A Promotion created at second *at*; one that has ended did so a second later."""
    status: JsonObject = {"phase": phase}
    if phase not in {"Pending", "Running"}:
        status["finishedAt"] = Time.of(NOON + timedelta(seconds=at + 1))
        status["freight"] = {"name": freight}
        status["freightCollection"] = {"id": freight, "items": {"Warehouse/w": {"name": freight}}}
        status["state"] = {"update": {"big": "output"}}
        if phase == "Succeeded":
            status["healthChecks"] = [CHECK]
    created = Time.of(NOON + timedelta(seconds=at))
    return Promotion.model_validate(
        {
            "metadata": {"name": name, "namespace": "shop", "creationTimestamp": created, **meta},
            "spec": {"stage": "dev", "freight": freight},
            "status": status,
        }
    )


def decide(
    subject: Stage,
    *promotions: Promotion,
    verdict: HealthVerdict = HEALTHY,
    now: datetime = NOON + timedelta(seconds=5),
    ended_since: float | None = None,
) -> Outlook:
    """One look at the Stage."""
    folded = fold_ended(subject, promotions)
    situation = Situation(subject, promotions, verdict, now, ended_since)
    return outlook(situation, folded, checks(folded))


def after(out: Outlook) -> Stage:
    """The Stage with that status, as read back from the server."""
    return stage(out.status.wire())


def condition(status: StageStatus, type_: str) -> tuple[str, str]:
    """Status and reason of a condition."""
    found = next((c for c in status.conditions if c.type == type_), None)
    return (found.status, found.reason) if found else ("", "")


def current(out: Outlook) -> str | None:
    """Name of the current Promotion."""
    return out.status.current_promotion.name if out.status.current_promotion else None


def promoted(verdict: HealthVerdict = HEALTHY) -> Stage:
    """A Stage to which a has been promoted."""
    running = after(decide(stage(), promotion("a")))
    return after(decide(running, promotion("a", "Succeeded"), verdict=verdict, ended_since=HOLD))


def test_the_oldest_starts() -> None:
    """Of the queued Promotions the oldest starts; one at a time."""
    out = decide(stage(), promotion("b", at=1), promotion("a", at=2), promotion("z", at=0))

    assert (out.write, current(out)) == (True, "z")
    assert condition(out.status, "Promoting") == ("True", "ActivePromotion")
    assert condition(out.status, "Ready") == ("False", "ActivePromotion")
    again = decide(after(out), promotion("z", "Running"), promotion("b", at=1))
    assert (again.write, current(again)) == (False, "z")


def test_a_running_one_goes_on() -> None:
    """A Promotion that runs though the Stage does not know it (a lost status) is taken up before any queued one."""
    assert current(decide(stage(), promotion("a"), promotion("b", "Running", at=9))) == "b"


def test_nothing_starts_in_a_stage_that_is_deleted() -> None:
    """Nor does a Promotion that is being deleted start anywhere."""
    deleted = stage(metadata={"deletionTimestamp": Time.of(NOON)})

    assert current(decide(deleted, promotion("a"))) is None
    assert current(decide(stage(), promotion("a", deletionTimestamp=Time.of(NOON)), promotion("b", at=1))) == "b"


def test_success_verdict_verification_and_the_next_in_one_write() -> None:
    """The end of a Promotion, health, verification and the next Promotion cost one write."""
    running = after(decide(stage(), promotion("a")))

    out = decide(running, promotion("a", "Succeeded"), promotion("b", at=1, freight="f2"), ended_since=0.1)

    assert (out.write, current(out)) == (True, "b")
    assert out.verified is not None
    assert (out.verified.promotion, out.verified.collection.names) == ("a", ["f1"])
    assert [name for c in out.status.freight_history for name in c.names] == ["f1"]
    assert condition(out.status, "Healthy") == ("True", "Healthy")
    assert condition(out.status, "Verified") == ("True", "Verified")
    assert out.status.freight_summary == "1/2 Fulfilled"
    last = out.status.last_promotion
    assert last is not None
    assert last.status is not None
    assert (last.name, last.status.phase, last.status.state) == ("a", "Succeeded", None)


def test_the_end_is_held_back_for_the_verdict() -> None:
    """While the verdict cannot be trusted the end is not written, but only for a moment."""
    running = after(decide(stage(), promotion("a")))
    ended = promotion("a", "Succeeded")

    early = decide(running, ended, verdict=UNTRUSTED, ended_since=0.0)
    late = decide(running, ended, verdict=UNTRUSTED, ended_since=HOLD)

    assert (early.write, early.look_again) == (False, 0.5)
    assert running.status.wire() == early.status.wire()
    assert (late.write, current(late)) == (True, None)
    assert condition(late.status, "Healthy") == ("Unknown", "Unknown")
    assert late.verified is None


def test_a_failure_is_not_held_back() -> None:
    """A Promotion that failed is told at once, and changes neither history nor health of what is there."""
    before = promoted()

    running = after(decide(before, promotion("b", at=2)))
    out = decide(running, promotion("a", "Succeeded"), promotion("b", "Failed", at=2), ended_since=0.0)

    assert out.write
    assert condition(out.status, "Ready") == ("False", "LastPromotionFailed")
    assert condition(out.status, "Healthy") == ("True", "Healthy")
    assert [name for c in out.status.freight_history for name in c.names] == ["f1"]


def test_checks_survive_a_failure() -> None:
    """What is deployed is still judged by the checks of the last Promotion that succeeded."""
    before = promoted()
    running = after(decide(before, promotion("b", at=2)))
    failed = decide(running, promotion("a", "Succeeded"), promotion("b", "Failed", at=2), ended_since=0.0)

    assert [c.wire() for c in checks(failed.status) or ()] == [CHECK]
    assert condition(decide(after(failed), promotion("b", "Failed", at=2), verdict=UNHEALTHY).status, "Healthy") == (
        "False",
        "Unhealthy",
    )


@pytest.mark.parametrize(
    ("verdict", "seconds", "starts"),
    [
        (HEALTHY, 5, True),
        (UNHEALTHY, 5, True),
        (PROGRESSING, 5, False),
        (UNTRUSTED, 5, False),
        (PROGRESSING, JUDGING_LIMIT.total_seconds() + 2, True),
        (UNTRUSTED, JUDGING_LIMIT.total_seconds() + 2, True),
    ],
    ids=["healthy", "unhealthy", "progressing", "untrusted", "progressing for too long", "untrusted for too long"],
)
def test_the_next_waits_for_the_verdict(verdict: HealthVerdict, seconds: float, starts: bool) -> None:
    """The next Promotion starts once the last one's health is known, or after a bounded time."""
    out = decide(
        promoted(verdict),
        promotion("a", "Succeeded"),
        promotion("b", at=2),
        verdict=verdict,
        now=NOON + timedelta(seconds=seconds),
    )

    assert ("b" if starts else None) == current(out)
    assert starts or (out.look_again is not None and 0 < out.look_again <= JUDGING_LIMIT.total_seconds())


def test_verified_only_when_healthy() -> None:
    """Freight is verified when the Stage is healthy with it, once, and stays so when the Stage gets worse."""
    progressing = promoted(PROGRESSING)
    assert condition(progressing.status, "Verified") == ("Unknown", "WaitingForVerification")

    healthy = decide(progressing, promotion("a", "Succeeded"))
    worse = decide(after(healthy), promotion("a", "Succeeded"), verdict=UNHEALTHY)

    assert healthy.verified is not None
    assert worse.verified is None
    assert condition(worse.status, "Verified") == ("True", "Verified")
    assert condition(worse.status, "Healthy") == ("False", "Unhealthy")


def test_verification_that_is_asked_for_is_not_skipped() -> None:
    """With spec.verification nothing is ever marked as verified, and the condition says what to do."""
    running = stage(decide(stage(), promotion("a")).status.wire(), verification={"analysisTemplates": []})

    out = decide(running, promotion("a", "Succeeded"), ended_since=HOLD)

    assert out.verified is None
    assert condition(out.status, "Verified") == ("False", "VerificationUnsupported")
    assert condition(out.status, "Ready") == ("False", "VerificationUnsupported")


def test_idle() -> None:
    """Looking again at a Stage about which nothing changed writes nothing and asks for no further look."""
    settled = promoted()

    out = decide(settled, promotion("a", "Succeeded"), now=NOON + timedelta(hours=1))

    assert (out.write, out.look_again, out.verified) == (False, None, None)


def test_an_untrusted_verdict_does_not_overwrite_a_known_one() -> None:
    """While somebody else syncs the Application, what was known of the Stage's health stays."""
    out = decide(promoted(), promotion("a", "Succeeded"), verdict=UNTRUSTED, now=NOON + timedelta(hours=1))

    assert (out.write, out.status.health and out.status.health.status) == (False, "Healthy")


def test_transition_times_are_true() -> None:
    """A condition's lastTransitionTime moves when its status does, not when its reason does."""
    settled = promoted()
    at = {c.type: c.last_transition_time for c in settled.status.conditions}

    out = decide(settled, promotion("a", "Succeeded"), verdict=UNHEALTHY, now=NOON + timedelta(hours=1))

    moved = {c.type: c.last_transition_time for c in out.status.conditions}
    assert moved["Healthy"] == "2026-11-30T13:00:00Z"
    assert at["Verified"] == moved["Verified"]


def test_current_promotion_that_was_deleted() -> None:
    """If the current Promotion is gone, the Stage is free again."""
    running = after(decide(stage(), promotion("a")))

    assert current(decide(running, promotion("b", at=1))) == "b"
    assert current(decide(running)) is None


def test_everything_that_ended_is_taken_in_order() -> None:
    """After an outage the Promotions that ended meanwhile are taken in by the time of their end."""
    ended = [promotion(n, "Succeeded", at=i, freight=f"f{i}") for i, n in enumerate("abc")]

    out = decide(stage(), ended[2], ended[0], ended[1])

    assert [c.names for c in out.status.freight_history] == [["f2"], ["f1"], ["f0"]]
    assert out.status.last_promotion is not None
    assert out.status.last_promotion.name == "c"
    assert not decide(after(out), *ended).write


def test_what_is_history() -> None:
    """A Promotion that ended before the last one is history; the current one, and one of the same second, are not."""
    settled = stage({"lastPromotion": {"name": "b", "finishedAt": Time.of(NOON + timedelta(seconds=3))},
                     "currentPromotion": {"name": "c"}}).status  # fmt: skip

    def history(name: str, phase: str, at: int) -> bool:
        return is_history(promotion(name, phase, at=at).wire(), settled)

    assert [
        history("a", "Succeeded", 1),
        history("c", "Succeeded", 1),
        history("d", "Succeeded", 2),
        history("e", "Succeeded", 5),
        history("f", "Pending", 0),
    ] == [True, False, False, False, False]
    assert not is_history(promotion("a", "Succeeded").wire(), stage().status)


def test_history_is_bounded() -> None:
    """Ten collections are remembered."""
    ended = [promotion(f"p{i:02}", "Succeeded", at=i, freight=f"f{i}") for i in range(15)]

    assert len(decide(stage(), *ended).status.freight_history) == 10


def test_a_clock_that_was_set_back() -> None:
    """A Promotion that comes before the last one in the queue is never taken in after it, whatever its end says."""
    ahead = promotion("a", "Succeeded", at=100)
    ahead = ahead.replace(metadata=ahead.metadata.replace(creation_timestamp=Time.of(NOON)))
    running = after(decide(after(decide(stage(), ahead)), ahead, promotion("b", at=2, freight="f2")))
    ended = promotion("b", "Succeeded", at=2, freight="f2")

    taken = decide(running, ahead, ended, ended_since=HOLD)
    again = decide(after(taken), ahead, ended)

    assert [c.names for c in taken.status.freight_history] == [["f2"], ["f1"]]
    assert not again.write


def test_checks_that_are_not_known_verify_nothing() -> None:
    """A Stage taken over after a failed Promotion has no known checks: that is no reason to call it healthy."""
    taken_over = {
        "lastPromotion": {"name": "x", "finishedAt": Time.of(NOON), "status": {"phase": "Failed"}},
        "freightHistory": [{"id": "f1", "items": {"Warehouse/w": {"name": "f1"}}}],
        "health": {"status": "Unhealthy", "config": {"theirs": True}},
    }
    assert checks(stage(taken_over).status) is None
    damaged = {**taken_over, "health": {"status": "Healthy", "config": {"checks": [{"foo": 1}]}}}
    assert checks(stage(damaged).status) is None


def test_nothing_promoted_yet() -> None:
    """A Stage without Freight says so."""
    out = decide(stage())

    assert condition(out.status, "Healthy") == ("Unknown", "NoFreight")
    assert (out.status.freight_summary, out.status.health) == ("0/2 Fulfilled", None)
