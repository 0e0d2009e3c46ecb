"""Control-flow Stages: those without steps, which deploy nothing and pass on all Freight that they may take. Pure."""

from __future__ import annotations

from datetime import datetime

from kargo_py.api.meta import Condition, set_condition
from kargo_py.api.promotion import Promotion, PromotionPhase
from kargo_py.api.stage import Health, HealthState, Stage, StageStatus
from kargo_py.api.types import JsonObject, Time
from kargo_py.controllers.stage_status import with_refresh
from kargo_py.messages import Shown, message

NOTHING_TO_RUN = message(
    'Stage "{stage}" has no steps: it only controls the flow of Freight, and nothing is promoted to it; promote to a '
    "Stage downstream",
    do="Such a Stage marks all Freight that it may take as verified by itself. Promote to a Stage that takes Freight "
    "from it, or give it `spec.promotionTemplate.spec.steps`.",
    shown=Shown.PROMOTION,
)
PASSES_ON = message(
    "The Stage passes on all Freight that it may take",
    do="A Stage without steps. All is well.",
    shown=Shown.STAGE,
)
REASON_READY = message(
    "Ready",
    do="Of `Ready`, on a Stage without steps: all is well.",
    shown=Shown.STAGE,
)

NOT_APPLICABLE = "N/A"

_WIPED = frozenset(
    {
        "autoPromotionEnabled",
        "autoPromotionHolds",
        "currentPromotion",
        "effectiveAutoPromotionHolds",
        "freightHistory",
        "lastPromotion",
    }
)


def control_flow_status(stage: Stage, now: datetime) -> StageStatus:
    """The status of a Stage without steps: nothing of Promotions is left in it."""
    kept = {name: value for name, value in stage.status.wire().items() if name not in _WIPED}
    status = StageStatus.model_validate(kept)
    ready = Condition(
        type="Ready",
        status="True",
        reason=REASON_READY(),
        message=PASSES_ON(),
        observed_generation=stage.metadata.generation,
    )
    conditions = [condition for condition in status.conditions if condition.type == ready.type]
    status = status.replace(
        conditions=list(set_condition(conditions, ready, now)),
        freight_summary=NOT_APPLICABLE,
        health=Health(status=HealthState.NOT_APPLICABLE),
        observed_generation=stage.metadata.generation,
    )
    return with_refresh(stage, status)


def passed_on(stage: Stage, now: Time) -> JsonObject:
    """The merge patch for the status of Freight that *stage* passes on."""
    return {"verifiedIn": {stage.name: {"verifiedAt": now}}}


def refusal(stage: Stage, promotion: Promotion) -> str | None:
    """Why *promotion*, which has not begun, can never be run on *stage*; None if it can."""
    if stage.is_control_flow and promotion.phase == PromotionPhase.PENDING:
        return NOTHING_TO_RUN(stage=stage.name)
    return None


def is_control_flow(stage: JsonObject) -> bool:
    """As Stage.is_control_flow, of JSON that may be of any form."""
    template = _mapping(_mapping(stage.get("spec")).get("promotionTemplate"))
    return not _mapping(template.get("spec")).get("steps")


def origins_passed_on(stage: JsonObject) -> list[tuple[str, str]]:
    """Index: namespace and origin of the Freight that a Stage without steps passes on."""
    requests = _mapping(stage.get("spec")).get("requestedFreight")
    if not is_control_flow(stage) or not isinstance(requests, list):
        return []
    origins = [_mapping(_mapping(request).get("origin")) for request in requests]
    return [(stage["metadata"]["namespace"], f"{origin.get('kind')}/{origin.get('name')}") for origin in origins]


def _mapping(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}
