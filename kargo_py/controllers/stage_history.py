"""What a Stage remembers of the Promotions that have ended: the last one, and what those that succeeded brought.

Pure. Promotions are taken in once, in the order of the queue.
"""

from __future__ import annotations

from collections.abc import Sequence

from kargo_py.api.freight import FreightReference
from kargo_py.api.meta import drop_condition
from kargo_py.api.promotion import Promotion, PromotionPhase, PromotionStatus, phase_of
from kargo_py.api.stage import MAX_HISTORY, Health, HealthState, PromotionReference, Stage, StageStatus
from kargo_py.api.types import JsonObject
from kargo_py.controllers.stage_health import NOT_JUDGED
from kargo_py.controllers.stage_size import cut

MAX_MESSAGE = 4096
"""How many bytes of the message of a Promotion, and of each of its steps, the Stage remembers."""


def is_history(promotion: JsonObject, stage: Stage) -> bool:
    """True if *promotion*, as JSON, ended before the last one that the Stage has taken in, or before the Stage was.

    Such Promotions change nothing any more, and there may be many: they are not even parsed. Those of a Stage that was
    deleted brought nothing into another one of its name.
    """
    ended = (promotion.get("status") or {}).get("finishedAt")
    if not isinstance(ended, str) or not ended:
        return False
    current, last = stage.status.current_promotion, stage.status.last_promotion
    if current is not None and current.name == promotion["metadata"]["name"]:
        return False
    return any(time and ended < time for time in (stage.metadata.creation_timestamp, last and last.finished_at))


def is_running(promotion: JsonObject) -> bool:
    """True if *promotion*, as JSON, is in phase Running."""
    return phase_of(promotion) == PromotionPhase.RUNNING


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
    ended = promotion.status.finished_at or ""
    if known is None:
        # It was deleted, and with it its place in the queue: of the same second is what was taken in before it, too.
        return ended > last.finished_at
    return promotion.queue_order > known.queue_order and ended >= last.finished_at


def _take_in(status: StageStatus, promotion: Promotion) -> StageStatus:
    reference = PromotionReference(
        name=promotion.name,
        freight=promotion.status.freight or FreightReference(name=promotion.spec.freight or ""),
        status=_remembered(promotion.status, status),
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


def _remembered(ended: PromotionStatus, stage: StageStatus) -> PromotionStatus:
    """The Promotion's status without the outputs of its steps: they may be large, and nothing reads them here."""
    wire = ended.wire()
    for name in ("state", "operations", "conditions", "lastHandledRefresh"):
        wire.pop(name, None)
    for told in (wire, *wire.get("stepExecutionMetadata", ())):
        if told.get("message"):
            told["message"] = cut(told["message"], MAX_MESSAGE)
    if "freightCollection" not in wire and stage.freight_history:
        # It never began. A real Kargo that takes over goes on from here, and would forget the other origins (#6810).
        wire["freightCollection"] = stage.freight_history[0].wire()
    return PromotionStatus.model_validate(wire)
