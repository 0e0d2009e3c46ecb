"""What a Stage's status becomes: which Promotions have ended, how healthy the Stage is, and what runs next.

Pure. One call folds everything that is known into one new status, so that the end of a Promotion, the verdict on it,
its verification and the start of the next one cost one write. A Stage runs one Promotion at a time; they run in the
order of creation time, then ULID, then name.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pydantic import ValidationError

from kargo_py.api.freight import FreightReference
from kargo_py.api.meta import Condition, drop_condition, set_condition
from kargo_py.api.promotion import FreightCollection, HealthCheckStep, Promotion, PromotionPhase, PromotionStatus
from kargo_py.api.stage import (
    MAX_HISTORY,
    Health,
    HealthState,
    PromotionReference,
    Stage,
    StageStatus,
    VerificationInfo,
    VerificationPhase,
)
from kargo_py.api.types import JsonObject, Time
from kargo_py.deployers.base import HealthVerdict
from kargo_py.messages import Shown, message

NOT_JUDGED = message(
    "not judged yet",
    do="A Promotion has just succeeded. The Stage is judged by itself once Argo CD has looked at the Applications, but "
    "not while another Promotion runs.",
    shown=Shown.STAGE,
)
IS_ACTIVE = message(
    'Promotion "{promotion}" is active',
    do="The Stage runs this Promotion; others wait for their turn. `kubectl get promotion` shows how it goes.",
    shown=Shown.STAGE,
)
NOTHING_PROMOTED = message(
    "Nothing was promoted here yet",
    do="Create a Promotion for this Stage.",
    shown=Shown.STAGE,
)
STAGE_IS = message(
    "The Stage is {health}",
    do="The verdict where there are no issues. `Healthy` needs nothing.",
    shown=Shown.STAGE,
)
IS_VERIFIED = message(
    "Freight has been verified",
    do="It may go on to the Stages downstream, once it has soaked where they require it. Nothing to do.",
    shown=Shown.STAGE,
)
VERIFICATION_UNSUPPORTED = message(
    "spec.verification is not supported by this version of kargo-py, so Freight is never marked as verified here; "
    "remove it, or approve Freight for the downstream Stages by hand",
    do="Remove `spec.verification` from the Stage, or [approve](#approve-freight-by-hand) each piece of Freight for "
    "the Stages downstream.",
    shown=Shown.STAGE,
)
VERIFIED_ONCE_HEALTHY = message(
    "Freight is verified once the Stage is healthy",
    do="This happens by itself when the condition `Healthy` becomes True: look at its message.",
    shown=Shown.STAGE,
)
LAST_ENDED_AS = message(
    'Promotion "{promotion}" ended as {phase}',
    do="The last Promotion did not succeed and left no message. The condition comes back with the next one that "
    "succeeds.",
    shown=Shown.STAGE,
)
REASON_ACTIVE = message(
    "ActivePromotion",
    do="Of `Promoting` and `Ready`, while a Promotion runs.",
    shown=Shown.STAGE,
)
REASON_NO_FREIGHT = message(
    "NoFreight",
    do="Of `Healthy`, `Verified` and `Ready`, before the first Promotion that succeeded.",
    shown=Shown.STAGE,
)
REASON_VERIFIED = message(
    "Verified",
    do="Of `Verified` and `Ready`, when all is well.",
    shown=Shown.STAGE,
)
REASON_UNSUPPORTED = message(
    "VerificationUnsupported",
    do="Of `Verified` and `Ready`: remove `spec.verification` from the Stage, or [approve Freight by "
    "hand](#approve-freight-by-hand).",
    shown=Shown.STAGE,
)
REASON_WAITING = message(
    "WaitingForVerification",
    do="Of `Verified`, until the Stage is healthy.",
    shown=Shown.STAGE,
)
REASON_LAST_ENDED = message(
    "LastPromotion{phase}",
    do="Of `Ready`: `LastPromotionFailed`, `LastPromotionErrored` or `LastPromotionAborted`, with that Promotion's "
    "message. `Ready` comes back with the next Promotion that succeeds.",
    shown=Shown.STAGE,
)

HOLD = 2.0
"""Seconds for which the end of a Promotion is not written yet while the verdict on it cannot be trusted.

A trusted verdict takes 1.2 s as a rule, and waiting for it saves two writes.
"""

JUDGING_LIMIT = timedelta(seconds=30)
"""How long the next Promotion waits at most for the verdict on the last one."""


@dataclass(frozen=True, slots=True)
class Verified:
    """A collection of Freight has just been verified."""

    collection: FreightCollection
    info: VerificationInfo
    promotion: str


@dataclass(frozen=True, slots=True)
class Outlook:
    """The new status and what goes with it.

    ``write`` False: nothing changes, or the change is held back. ``look_again``: seconds until the same inputs may give
    another answer, None if only an event can.
    """

    status: StageStatus
    write: bool
    look_again: float | None = None
    verified: Verified | None = None


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything that is known. ``promotions`` are all of the Stage's; ``verdict`` is on ``checks(...)``.

    ``ended_since``: seconds by our clock since the end of the current Promotion was first seen, None if it runs.
    """

    stage: Stage
    promotions: Sequence[Promotion]
    verdict: HealthVerdict
    now: datetime
    ended_since: float | None = None
    by_name: dict[str, Promotion] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {p.name: p for p in self.promotions})


def is_history(promotion: JsonObject, status: StageStatus) -> bool:
    """True if *promotion*, as JSON, ended before the last one that the Stage has taken in.

    Such Promotions change nothing any more, and there may be many: they are not even parsed.
    """
    last = status.last_promotion
    ended = (promotion.get("status") or {}).get("finishedAt")
    if last is None or last.finished_at is None or not isinstance(ended, str) or not ended:
        return False
    current = status.current_promotion
    return ended < last.finished_at and (current is None or current.name != promotion["metadata"]["name"])


def fold_ended(stage: Stage, promotions: Sequence[Promotion]) -> StageStatus:
    """The status once every Promotion that has ended since the last look is taken in, in the order of the queue."""
    status = stage.status
    current = status.current_promotion.name if status.current_promotion else None
    known = next((p for p in promotions if status.last_promotion and p.name == status.last_promotion.name), None)
    ended = sorted((p for p in promotions if p.finished), key=lambda p: p.queue_order)
    for promotion in ended:
        if promotion.name == current or _is_news(promotion, stage.status.last_promotion, known):
            status = _take_in(status, promotion)
    if current is not None:
        running = next((p for p in promotions if p.name == current), None)
        if running is None or running.finished:
            status = status.replace(
                current_promotion=None, conditions=list(drop_condition(status.conditions, "Promoting"))
            )
    return status


def _is_news(promotion: Promotion, last: PromotionReference | None, known: Promotion | None) -> bool:
    """True if *promotion* ended after *last* was taken in.

    It needs both a later place in the queue and an end that is not earlier: a clock that was set back must not make an
    older Promotion the last one.
    """
    if last is None:
        return True
    if promotion.name == last.name or not last.finished_at:
        return False
    if known is not None and promotion.queue_order <= known.queue_order:
        return False
    return (promotion.status.finished_at or "") >= last.finished_at


def _take_in(status: StageStatus, promotion: Promotion) -> StageStatus:
    reference = PromotionReference(
        name=promotion.name,
        freight=promotion.status.freight or FreightReference(name=promotion.spec.freight or ""),
        status=_remembered(promotion.status),
        finished_at=promotion.status.finished_at,
    )
    status = status.replace(last_promotion=reference)
    collection = promotion.status.freight_collection
    if promotion.phase == PromotionPhase.SUCCEEDED and collection is not None:
        kept = {"checks": [check.wire() for check in promotion.status.health_checks]}
        health = Health(status=HealthState.UNKNOWN, issues=[NOT_JUDGED()], config=kept)
        history = [collection, *status.freight_history][:MAX_HISTORY]
        status = status.replace(freight_history=history, health=health)
    return status


def _remembered(status: PromotionStatus) -> PromotionStatus:
    """The Promotion's status without the outputs of its steps: they may be large, and nothing reads them here."""
    wire = status.wire()
    for name in ("state", "operations", "lastHandledRefresh"):
        wire.pop(name, None)
    return PromotionStatus.model_validate(wire)


def checks(status: StageStatus) -> Sequence[HealthCheckStep] | None:
    """The health checks that hold: those of the last Promotion that succeeded. None: they are not known.

    A later Promotion that failed or was aborted does not take them away; they are kept in ``health.config``. One that a
    real Kargo took in has left them in ``lastPromotion`` only.
    """
    config = status.health.config if status.health is not None else None
    stored = config.get("checks") if isinstance(config, dict) else None
    if isinstance(stored, list):
        try:
            return [HealthCheckStep.model_validate(check) for check in stored]
        except ValidationError:
            return None
    last = status.last_promotion
    if last is not None and last.status is not None and last.status.phase == PromotionPhase.SUCCEEDED:
        return last.status.health_checks
    return None


def outlook(situation: Situation, folded: StageStatus, held_checks: Sequence[HealthCheckStep] | None) -> Outlook:
    """Everything that follows from *folded* (see fold_ended) and the verdict on *held_checks*."""
    stage, now, verdict = situation.stage, situation.now, situation.verdict
    status = folded
    running = _running(status, situation)
    verified: Verified | None = None
    if running is None:
        status = _judge(status, verdict, held_checks)
        status, verified = _verify(stage, status, now)
        following = _following(stage, status, situation)
        if following is not None:
            status = status.replace(current_promotion=_reference(following))
            running = following
    status = _conditions(stage, status, running, now)
    status = status.replace(freight_summary=_summary(stage, status), observed_generation=stage.metadata.generation)
    if _hold(situation, stage.status, status, verdict):
        left = HOLD - (situation.ended_since or 0.0)
        return Outlook(stage.status, write=False, look_again=min(left, verdict.recheck_after or left))
    again = verdict.recheck_after if running is None else None
    waiting = judging_left(status, now) if running is None and _queue(situation) else None
    again = min((seconds for seconds in (again, waiting) if seconds is not None), default=None)
    return Outlook(status, write=status.wire() != stage.status.wire(), look_again=again, verified=verified)


def _running(status: StageStatus, situation: Situation) -> Promotion | None:
    current = status.current_promotion
    return situation.by_name.get(current.name) if current is not None else None


def _hold(situation: Situation, old: StageStatus, new: StageStatus, verdict: HealthVerdict) -> bool:
    """Hold the write back for a moment if all it says is the end of a Promotion whose result cannot be judged yet."""
    if situation.ended_since is None or situation.ended_since >= HOLD or verdict.trusted:
        return False
    last, before = new.last_promotion, old.last_promotion
    if last is None or (before is not None and before.name == last.name):
        return False
    return last.status is not None and last.status.phase == PromotionPhase.SUCCEEDED


# --- health and verification --------------------------------------------------------------------------------------


def _judge(status: StageStatus, verdict: HealthVerdict, held_checks: Sequence[HealthCheckStep] | None) -> StageStatus:
    if not status.freight_history:
        return status
    old = status.health
    state: JsonObject = {"status": verdict.state}
    if verdict.issues:
        state["issues"] = list(verdict.issues)
    if held_checks is not None:
        state["config"] = {"checks": [check.wire() for check in held_checks]}
    if not verdict.trusted and old is not None and old.status != HealthState.UNKNOWN:
        # A sync by somebody else is under way: what was known stays until the next verdict that can be trusted.
        return status
    return status.replace(health=Health.model_validate(state))


def _verify(stage: Stage, status: StageStatus, now: datetime) -> tuple[StageStatus, Verified | None]:
    """Without ``spec.verification`` Freight is verified once the Stage is healthy with it."""
    if not status.freight_history or stage.spec.verification is not None:
        return status, None
    collection, *older = status.freight_history
    latest = latest_verification(collection)
    healthy = status.health is not None and status.health.status == HealthState.HEALTHY
    promoted = status.last_promotion
    if latest is not None or not healthy or promoted is None:
        return status, None
    at = Time.of(now)
    identity = uuid.uuid5(uuid.NAMESPACE_OID, f"{stage.metadata.uid}/{promoted.name}/{collection.id}")
    info = VerificationInfo(id=str(identity), phase=VerificationPhase.SUCCESSFUL, start_time=at, finish_time=at)
    history = [info.wire(), *collection.verification_history][:MAX_HISTORY]
    collection = collection.replace(verification_history=history)
    status = status.replace(freight_history=[collection, *older])
    return status, Verified(collection, info, promoted.name)


def latest_verification(collection: FreightCollection) -> VerificationInfo | None:
    """The newest verification of *collection*."""
    history = collection.verification_history
    if not history:
        return None
    try:
        return VerificationInfo.model_validate(history[0])
    except ValidationError:
        # Not ours; unknown is not verified.
        return VerificationInfo(phase="Unknown", message="this verification cannot be read")


def verified_at(status: StageStatus) -> Time | None:
    """When what is in the Stage was verified; None if it is not."""
    if not status.freight_history:
        return None
    latest = latest_verification(status.freight_history[0])
    if latest is None or latest.phase != VerificationPhase.SUCCESSFUL:
        return None
    return latest.finish_time


# --- the queue ----------------------------------------------------------------------------------------------------


def _queue(situation: Situation) -> list[Promotion]:
    waiting = [p for p in situation.promotions if not p.finished and p.metadata.deletion_timestamp is None]
    return sorted(waiting, key=lambda p: (not p.running, p.queue_order))


def _following(stage: Stage, status: StageStatus, situation: Situation) -> Promotion | None:
    """The Promotion that may start now; none while the Stage is being deleted or the last one is being judged."""
    queue = _queue(situation)
    if not queue or stage.metadata.deletion_timestamp is not None:
        return None
    if queue[0].running:
        return queue[0]
    return None if judging_left(status, situation.now) else queue[0]


def judging_left(status: StageStatus, now: datetime) -> float | None:
    """Seconds for which the next Promotion has to wait at most for the verdict on the last one; None: not at all."""
    last = status.last_promotion
    if last is None or last.finished_at is None or last.status is None:
        return None
    if last.status.phase != PromotionPhase.SUCCEEDED or status.health is None:
        return None
    if status.health.status not in {HealthState.UNKNOWN, HealthState.PROGRESSING}:
        return None
    left = (JUDGING_LIMIT - (now - last.finished_at.datetime)).total_seconds()
    return left if left > 0 else None


def _reference(promotion: Promotion) -> PromotionReference:
    return PromotionReference(name=promotion.name, freight=FreightReference(name=promotion.spec.freight or ""))


# --- conditions ---------------------------------------------------------------------------------------------------


def _summary(stage: Stage, status: StageStatus) -> str:
    requested = stage.origins
    if not status.freight_history:
        return f"0/{len(requested)} Fulfilled"
    items = status.freight_history[0].items
    filled = [origin for origin in requested if origin in items]
    if len(requested) == 1 and filled:
        return items[filled[0]].name
    return f"{len(filled)}/{len(requested)} Fulfilled"


def _conditions(stage: Stage, status: StageStatus, running: Promotion | None, now: datetime) -> StageStatus:
    healthy = _healthy_condition(status)
    verified = _verified_condition(stage, status)
    if running is not None:
        message = IS_ACTIVE(promotion=running.name)
        promoting = Condition(type="Promoting", status="True", reason=REASON_ACTIVE(), message=message)
        ready = Condition(type="Ready", status="False", reason=promoting.reason, message=promoting.message)
    else:
        promoting = None
        ready = _ready_condition(status, healthy, verified)
    conditions: tuple[Condition, ...] = tuple(status.conditions)
    generation = stage.metadata.generation
    for condition in filter(None, (ready, healthy, promoting, verified)):
        conditions = set_condition(conditions, condition.replace(observed_generation=generation), now)
    if promoting is None:
        conditions = drop_condition(conditions, "Promoting")
    if tuple(c.wire() for c in conditions) == tuple(c.wire() for c in status.conditions):
        return status
    return status.replace(conditions=list(conditions))


def _healthy_condition(status: StageStatus) -> Condition:
    health = status.health
    if health is None or not status.freight_history:
        return Condition(type="Healthy", status="Unknown", reason=REASON_NO_FREIGHT(), message=NOTHING_PROMOTED())
    truth = {HealthState.HEALTHY: "True", HealthState.UNHEALTHY: "False"}.get(_state(health), "Unknown")
    message = "; ".join(health.issues) or STAGE_IS(health=health.status)
    return Condition(type="Healthy", status=truth, reason=health.status, message=message)


def _state(health: Health) -> HealthState:
    try:
        return HealthState(health.status)
    except ValueError:
        return HealthState.UNKNOWN


def _verified_condition(stage: Stage, status: StageStatus) -> Condition:
    if not status.freight_history:
        return Condition(type="Verified", status="Unknown", reason=REASON_NO_FREIGHT(), message=NOTHING_PROMOTED())
    latest = latest_verification(status.freight_history[0])
    if latest is not None and latest.phase == VerificationPhase.SUCCESSFUL:
        return Condition(type="Verified", status="True", reason=REASON_VERIFIED(), message=IS_VERIFIED())
    if stage.spec.verification is not None:
        return Condition(
            type="Verified",
            status="False",
            reason=REASON_UNSUPPORTED(),
            message=VERIFICATION_UNSUPPORTED(),
        )
    message = VERIFIED_ONCE_HEALTHY()
    return Condition(type="Verified", status="Unknown", reason=REASON_WAITING(), message=message)


def _ready_condition(status: StageStatus, healthy: Condition, verified: Condition) -> Condition:
    last = status.last_promotion
    if last is not None and last.status is not None and last.status.phase != PromotionPhase.SUCCEEDED:
        phase = last.status.phase
        message = last.status.message or LAST_ENDED_AS(promotion=last.name, phase=phase)
        return Condition(type="Ready", status="False", reason=REASON_LAST_ENDED(phase=phase), message=message)
    if healthy.status != "True":
        return Condition(type="Ready", status="False", reason=healthy.reason, message=healthy.message)
    if verified.status != "True":
        return Condition(type="Ready", status="False", reason=verified.reason, message=verified.message)
    return Condition(type="Ready", status="True", reason=REASON_VERIFIED(), message=verified.message)
