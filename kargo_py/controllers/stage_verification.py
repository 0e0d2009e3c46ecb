"""Whether what is in a Stage is verified. Pure.

Verification by AnalysisRuns is not built yet: where a Stage asks for it nothing is ever marked as verified.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime

from pydantic import ValidationError

from kargo_py.api.meta import Condition
from kargo_py.api.promotion import FreightCollection
from kargo_py.api.stage import MAX_HISTORY, HealthState, Stage, StageStatus, VerificationInfo, VerificationPhase
from kargo_py.api.types import Time
from kargo_py.controllers.stage_health import NOTHING_PROMOTED, REASON_NO_FREIGHT
from kargo_py.messages import Shown, message

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
VERIFICATION_ENDED_AS = message(
    "The last verification of this Freight ended as {phase}: {why}; promote again to have it verified",
    do="A real Kargo left this verification behind. Mend what it says, then promote the Freight again, or "
    "[approve](#approve-freight-by-hand) it for the Stages downstream.",
    shown=Shown.STAGE,
)
CANNOT_BE_READ = message(
    "this verification cannot be read",
    do="Part of *The last verification …*. Somebody else wrote `verificationHistory`; promote the Freight again.",
    shown=Shown.STAGE,
)
WITHOUT_MESSAGE = message(
    "it left no message",
    do="Part of *The last verification …*. Look at the AnalysisRun, if it is still there.",
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
REASON_ENDED_AS = message(
    "Verification{phase}",
    do="Of `Verified` and `Ready`: how the last verification ended, `VerificationFailed`, `VerificationError`, "
    "`VerificationAborted` or `VerificationInconclusive`. A real Kargo left it behind.",
    shown=Shown.STAGE,
)
REASON_UNKNOWN_PHASE = message(
    "UnknownVerificationPhase",
    do="Of `Verified` and `Ready`: the last verification cannot be read, or is in a phase that this version does not "
    "know. Promote the Freight again.",
    shown=Shown.STAGE,
)


@dataclass(frozen=True, slots=True)
class Verified:
    """A collection of Freight has just been verified."""

    collection: FreightCollection
    info: VerificationInfo
    promotion: str


def verify(stage: Stage, status: StageStatus, now: datetime) -> tuple[StageStatus, Verified | None]:
    """Without ``spec.verification`` Freight is verified once the Stage is healthy with it."""
    if not status.freight_history or stage.spec.verification is not None:
        return status, None
    collection, *older = status.freight_history
    healthy = status.health is not None and status.health.status == HealthState.HEALTHY
    promoted = status.last_promotion
    if not _open(latest_verification(collection)) or not healthy or promoted is None:
        return status, None
    at = Time.of(now)
    identity = uuid.uuid5(uuid.NAMESPACE_OID, f"{stage.metadata.uid}/{promoted.name}/{collection.id}")
    info = VerificationInfo(id=str(identity), phase=VerificationPhase.SUCCESSFUL, start_time=at, finish_time=at)
    history = [info.wire(), *collection.verification_history][:MAX_HISTORY]
    collection = collection.replace(verification_history=history)
    status = status.replace(freight_history=[collection, *older])
    return status, Verified(collection, info, promoted.name)


def _open(latest: VerificationInfo | None) -> bool:
    """Whether there is no outcome yet: nobody goes on with what a real Kargo had begun."""
    return latest is None or latest.phase in {VerificationPhase.PENDING, VerificationPhase.RUNNING}


def latest_verification(collection: FreightCollection) -> VerificationInfo | None:
    """The newest verification of *collection*."""
    history = collection.verification_history
    if not history:
        return None
    try:
        return VerificationInfo.model_validate(history[0])
    except ValidationError:
        # Not ours; unknown is not verified.
        return VerificationInfo(phase="Unknown", message=CANNOT_BE_READ())


def successful(status: StageStatus) -> VerificationInfo | None:
    """The verification of what is in the Stage, if it was successful."""
    if not status.freight_history:
        return None
    latest = latest_verification(status.freight_history[0])
    return latest if latest is not None and latest.phase == VerificationPhase.SUCCESSFUL else None


def verified_at(status: StageStatus) -> Time | None:
    """When what is in the Stage was verified; None if it is not."""
    info = successful(status)
    return info.finish_time if info is not None else None


def verified_condition(stage: Stage, status: StageStatus) -> Condition:
    """The condition Verified."""
    if not status.freight_history:
        return Condition(type="Verified", status="Unknown", reason=REASON_NO_FREIGHT(), message=NOTHING_PROMOTED())
    if successful(status) is not None:
        return Condition(type="Verified", status="True", reason=REASON_VERIFIED(), message=IS_VERIFIED())
    if stage.spec.verification is not None:
        why = VERIFICATION_UNSUPPORTED()
        return Condition(type="Verified", status="False", reason=REASON_UNSUPPORTED(), message=why)
    latest = latest_verification(status.freight_history[0])
    if latest is None or _open(latest):
        why = VERIFIED_ONCE_HEALTHY()
        return Condition(type="Verified", status="Unknown", reason=REASON_WAITING(), message=why)
    why = VERIFICATION_ENDED_AS(phase=latest.phase or "Unknown", why=latest.message or WITHOUT_MESSAGE())
    return Condition(type="Verified", status="False", reason=_reason(latest.phase), message=why)


def _reason(phase: str) -> str:
    """A condition's reason is one word of a restricted form, so not any phase that somebody wrote fits in."""
    known = {str(each) for each in VerificationPhase}
    return REASON_ENDED_AS(phase=phase) if phase in known else REASON_UNKNOWN_PHASE()
