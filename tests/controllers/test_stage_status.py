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
from kargo_py.controllers.stage_queue import JUDGING_LIMIT, select
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
                     "currentPromotion": {"name": "c"}})  # fmt: skip

    def history(name: str, phase: str, at: int) -> bool:
        return is_history(promotion(name, phase, at=at).wire(), settled)

    assert [
        history("a", "Succeeded", 1),
        history("c", "Succeeded", 1),
        history("d", "Succeeded", 2),
        history("e", "Succeeded", 5),
        history("f", "Pending", 0),
    ] == [True, False, False, False, False]
    assert not is_history(promotion("a", "Succeeded").wire(), stage())


def test_of_a_stage_that_was_deleted() -> None:
    """What ended before the Stage was created brought nothing into it; the current one did, whatever a clock says."""
    born = {"creationTimestamp": Time.of(NOON + timedelta(seconds=3))}
    subject = stage({"currentPromotion": {"name": "c"}}, metadata=born)
    ended = {name: promotion(name, "Succeeded", at=at).wire() for name, at in (("a", 1), ("b", 2), ("c", 0))}

    assert {name: is_history(raw, subject) for name, raw in ended.items()} == {"a": True, "b": False, "c": False}


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


def test_the_last_one_is_deleted() -> None:
    """What ended in the same second before the last Promotion is not taken in again when that is deleted."""
    first, second = promotion("a", "Succeeded", freight="f1"), promotion("b", "Succeeded", freight="f2")
    subject = after(decide(after(decide(stage(), first)), first, second))
    assert subject.status.freight_summary == "1/2 Fulfilled"
    assert [entry.names for entry in subject.status.freight_history] == [["f2"], ["f1"]]

    assert not decide(subject, first).write
    assert decide(subject, first, promotion("c", "Succeeded", at=1)).status.last_promotion.name == "c"  # type: ignore[union-attr]


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


def test_reconciling_while_time_alone_may_change_something() -> None:
    """It goes with a write that is made anyway, and comes off when nothing is due."""
    waiting = decide(promoted(PROGRESSING), promotion("a", "Succeeded"), promotion("b", at=2), verdict=UNHEALTHY)
    settled = promoted()
    foreign = decide(settled, promotion("a", "Succeeded"), verdict=UNTRUSTED, now=NOON + timedelta(hours=1))
    running = after(decide(stage(), promotion("a")))
    late = decide(running, promotion("a", "Succeeded"), verdict=UNTRUSTED, ended_since=HOLD)
    over = decide(after(late), promotion("a", "Succeeded"))

    assert condition(waiting.status, "Reconciling") == ("", "")
    assert condition(settled.status, "Reconciling") == ("", "")
    assert (foreign.write, foreign.look_again) == (False, 0.5)
    assert condition(late.status, "Reconciling") == ("True", "Reconciling")
    assert over.write
    assert condition(over.status, "Reconciling") == ("", "")


def test_only_while_time_passes() -> None:
    """A condition that is not true any more is worth a write of its own."""
    waiting = stage(
        {**promoted().status.wire(), "conditions": [{"type": "Reconciling", "status": "True", "reason": "Reconciling"}]}
    )

    out = decide(waiting, promotion("a", "Succeeded"), now=NOON + timedelta(hours=1))

    assert out.write
    assert condition(out.status, "Reconciling") == ("", "")


@pytest.mark.parametrize("token", ["2026-11-30T12:00:00Z", "x", "ä" * 100_000])
def test_refresh_is_answered_once(token: str) -> None:
    """Kargo's command waits until the Stage's status has the token; a huge one is cut, and is no endless loop."""
    settled = promoted()
    asked = settled.replace(metadata=settled.metadata.replace(annotations={"kargo.akuity.io/refresh": token}))

    out = decide(asked, promotion("a", "Succeeded"))
    again = decide(asked.replace(status=out.status), promotion("a", "Succeeded"))

    assert (out.write, again.write) == (True, False)
    assert token.startswith(out.status.last_handled_refresh.rstrip("…"))
    assert len(out.status.last_handled_refresh.encode()) <= 512


def test_what_is_remembered_of_a_promotion_is_bounded() -> None:
    """Neither outputs nor long messages; what failed is still told."""
    failed = promotion("a", "Failed")
    steps = [{"alias": "s", "status": "Failed", "message": "m" * 100_000}]
    wire = {**failed.status.wire(), "message": "n" * 100_000, "stepExecutionMetadata": steps, "conditions": []}
    failed = Promotion.model_validate({**failed.wire(), "status": wire})
    running = after(decide(stage(), promotion("a")))

    last = decide(running, failed).status.last_promotion

    assert last is not None
    assert last.status is not None
    assert [len(text.encode()) for text in (last.status.message, last.status.step_execution_metadata[0].message)] == [
        4096,
        4096,
    ]
    assert last.status.state is None


def test_one_that_never_began_keeps_the_other_origins() -> None:
    """Kargo goes on from the last Promotion's collection, and forgot the other origins after such an abort (#6810)."""
    before = promoted()
    never = promotion("b", "Aborted", at=3)
    wire = {name: value for name, value in never.status.wire().items() if name != "freightCollection"}
    never = Promotion.model_validate({**never.wire(), "status": wire})

    out = decide(before, promotion("a", "Succeeded"), never)

    last = out.status.last_promotion
    assert last is not None
    assert last.status is not None
    assert last.name == "b"
    assert last.status.freight_collection is not None
    assert last.status.freight_collection.names == ["f1"]
    assert [c.names for c in out.status.freight_history] == [["f1"]]


@pytest.mark.parametrize(
    ("latest", "spec", "expected", "verifies"),
    [
        ({"phase": "Failed", "message": "no"}, {}, ("False", "VerificationFailed"), False),
        ({"phase": "Error"}, {}, ("False", "VerificationError"), False),
        ({"phase": "Aborted"}, {}, ("False", "VerificationAborted"), False),
        ({"phase": "Inconclusive"}, {}, ("False", "VerificationInconclusive"), False),
        ({"phase": "Strange Phase!"}, {}, ("False", "UnknownVerificationPhase"), False),
        ({"phase": 7}, {}, ("False", "UnknownVerificationPhase"), False),
        ({"phase": "Running"}, {}, ("True", "Verified"), True),
        ({"phase": "Running"}, {"verification": {}}, ("False", "VerificationUnsupported"), False),
        ({"phase": "Failed"}, {"verification": {}}, ("False", "VerificationUnsupported"), False),
        ({"phase": "Successful"}, {"verification": {}}, ("True", "Verified"), False),
    ],
)
def test_verifications_that_a_real_kargo_left(
    latest: JsonObject, spec: JsonObject, expected: tuple[str, str], verifies: bool
) -> None:
    """What has ended stays as it ended; what nobody goes on with is no verification."""
    wire = promoted().status.wire()
    wire["freightHistory"][0]["verificationHistory"] = [latest]

    out = decide(stage(wire, **spec), promotion("a", "Succeeded"))

    assert condition(out.status, "Verified") == expected
    assert (out.verified is not None) is verifies


def test_reasons_are_words() -> None:
    """Whatever another program wrote, a condition's reason is of the form that the API server takes."""
    wire = {
        **promoted().status.wire(),
        "lastPromotion": {"name": "a", "finishedAt": Time.of(NOON + timedelta(days=1)), "status": {"phase": "a b!"}},
        "health": {"status": "so so", "config": {"checks": []}},
    }
    for verdict in (HEALTHY, UNTRUSTED):
        out = decide(stage(wire), verdict=verdict)
        assert all(c.reason.isidentifier() for c in out.status.conditions)
        assert condition(out.status, "Ready") == ("False", "LastPromotionUnknown")


def test_issues_are_bounded() -> None:
    """A Stage with a thousand broken Applications names the first ones, and says how many more there are."""
    many = HealthVerdict(HealthState.UNHEALTHY, tuple(f"{number} " + "x" * 5000 for number in range(1000)))

    health = promoted(many).status.health

    assert health is not None
    assert len(health.issues) == 51
    assert health.issues[-1] == "and 950 more issues"
    assert max(len(issue.encode()) for issue in health.issues) <= 2048


def test_a_stage_that_is_deleted_waits_for_what_runs() -> None:
    """It says so, and starts nothing more."""
    deleted = {"deletionTimestamp": Time.of(NOON)}
    running = stage(decide(stage(), promotion("a")).status.wire(), metadata=deleted)

    out = decide(running, promotion("a", "Running"), promotion("b", at=1))
    done = decide(stage(out.status.wire(), metadata=deleted), promotion("a", "Succeeded"), promotion("b", at=1))

    assert condition(out.status, "Ready") == ("False", "Deleting")
    assert (current(out), current(done)) == ("a", None)


def test_a_stage_that_lost_its_steps_ends_what_runs() -> None:
    """Nothing else starts there."""
    running = decide(stage(), promotion("a")).status.wire()
    without = stage(running, promotionTemplate=None)

    out = decide(without, promotion("a", "Running"), promotion("b", at=1))
    done = decide(without, promotion("a", "Succeeded"), promotion("b", at=1), ended_since=HOLD)

    assert (current(out), current(done)) == ("a", None)
    assert done.write


def test_origins_that_changed() -> None:
    """What is here stays here until the next Promotion; the summary speaks of what is requested now."""
    wire = promoted().status.wire()
    other = [{"origin": {"kind": "Warehouse", "name": n}, "sources": {"direct": True}} for n in ("x", "x", "w")]

    out = decide(stage(wire, requestedFreight=other), promotion("a", "Succeeded"))

    assert out.status.freight_summary == "1/2 Fulfilled"
    assert [c.names for c in out.status.freight_history] == [["f1"]]
    assert condition(out.status, "Healthy") == ("True", "Healthy")


def test_what_matters_of_many() -> None:
    """The current one, what runs and what has ended since; the others wait, the next one first."""
    raws = [
        promotion(name, phase, at=at).wire()
        for name, phase, at in [
            ("old", "Succeeded", 0), ("last", "Succeeded", 4), ("new", "Failed", 9), ("cur", "Pending", 2),
            ("run", "Running", 3), ("z", "Pending", 5), ("y", "Nonsense", 6), ("x", "", 1),
        ]
    ]  # fmt: skip
    raws.append(promotion("gone", at=0, deletionTimestamp=Time.of(NOON)).wire())
    known = {
        "lastPromotion": {"name": "last", "finishedAt": Time.of(NOON + timedelta(seconds=5))},
        "currentPromotion": {"name": "cur"},
    }

    selection = select(raws, stage(known))

    assert [raw["metadata"]["name"] for raw in selection.matter] == ["last", "new", "cur", "run"]
    assert [raw["metadata"]["name"] for raw in selection.in_order()] == ["x", "z", "y"]
