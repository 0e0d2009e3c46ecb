"""How healthy a Stage is: which checks hold, and what the verdict on them makes of what was known.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

from kargo_py.api.meta import Condition
from kargo_py.api.promotion import HealthCheckStep, PromotionPhase
from kargo_py.api.stage import Health, HealthState, StageStatus
from kargo_py.api.types import JsonObject
from kargo_py.controllers.stage_size import cut
from kargo_py.deployers.base import HealthVerdict
from kargo_py.messages import Shown, message

NOT_JUDGED = message(
    "not judged yet",
    do="A Promotion has just succeeded. The Stage is judged by itself once Argo CD has looked at the Applications, but "
    "not while another Promotion runs.",
    shown=Shown.STAGE,
)
STAGE_IS = message(
    "The Stage is {health}",
    do="The verdict where there are no issues. `Healthy` needs nothing.",
    shown=Shown.STAGE,
)
AND_MORE = message(
    "and {count} more issues",
    do="There is not room for all of them: look at the Applications in Argo CD.",
    shown=Shown.STAGE,
)
NOTHING_PROMOTED = message(
    "Nothing was promoted here yet",
    do="Create a Promotion for this Stage.",
    shown=Shown.STAGE,
)
REASON_NO_FREIGHT = message(
    "NoFreight",
    do="Of `Healthy`, `Verified` and `Ready`, before the first Promotion that succeeded.",
    shown=Shown.STAGE,
)

MAX_ISSUES = 50
"""How many issues are told of a Stage; there is one for each Application at least."""

MAX_ISSUE = 2048
"""How many bytes of each."""


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


def judge(status: StageStatus, verdict: HealthVerdict, held_checks: Sequence[HealthCheckStep] | None) -> StageStatus:
    """*status* with the verdict; one that cannot be trusted takes the place of none that can."""
    if not status.freight_history:
        return status
    old = status.health
    if not verdict.trusted and old is not None and old.status != HealthState.UNKNOWN:
        # A sync by somebody else is under way: what was known stays until the next verdict that can be trusted.
        return status
    state: JsonObject = {"status": verdict.state}
    if verdict.issues:
        state["issues"] = _bounded(verdict.issues)
    if held_checks is not None:
        state["config"] = {"checks": [check.wire() for check in held_checks]}
    return status.replace(health=Health.model_validate(state))


def _bounded(issues: Sequence[str]) -> list[str]:
    told = [cut(issue, MAX_ISSUE) for issue in issues[:MAX_ISSUES]]
    return [*told, AND_MORE(count=len(issues) - MAX_ISSUES)] if len(issues) > MAX_ISSUES else told


def health_state(health: Health) -> HealthState:
    """What was written into the status, which may be somebody else's word."""
    try:
        return HealthState(health.status)
    except ValueError:
        return HealthState.UNKNOWN


def healthy_condition(status: StageStatus) -> Condition:
    """The condition Healthy."""
    health = status.health
    if health is None or not status.freight_history:
        return Condition(type="Healthy", status="Unknown", reason=REASON_NO_FREIGHT(), message=NOTHING_PROMOTED())
    state = health_state(health)
    truth = {HealthState.HEALTHY: "True", HealthState.UNHEALTHY: "False"}.get(state, "Unknown")
    message = "; ".join(health.issues) or STAGE_IS(health=state)
    return Condition(type="Healthy", status=truth, reason=state, message=message)
