"""Which Promotion runs next on a Stage: one at a time, in the order of creation time, then ULID, then name. Pure.

A Stage may have a thousand Promotions. They are told apart as JSON, and only those are parsed that matter now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from kargo_py.api.freight import FreightReference
from kargo_py.api.promotion import Promotion, PromotionPhase, phase_of, queue_order
from kargo_py.api.stage import HealthState, PromotionReference, Stage, StageStatus
from kargo_py.api.types import JsonObject
from kargo_py.controllers.stage_history import is_history

JUDGING_LIMIT = timedelta(seconds=30)
"""How long the next Promotion waits at most for the verdict on the last one."""

_ENDED = frozenset(str(phase) for phase in PromotionPhase if phase.terminal)


@dataclass(frozen=True, slots=True)
class Selection:
    """The Promotions of a Stage, as JSON, without those taken in long ago.

    ``matter``: the current one, those that run, and those that have ended. ``waiting``: the others, in no order.
    """

    matter: Sequence[JsonObject]
    waiting: Sequence[JsonObject]

    def in_order(self) -> Iterator[JsonObject]:
        """Those that wait, the next one first."""
        return iter(sorted(self.waiting, key=_order))


def current_name(stage: JsonObject | None) -> str:
    """The name of the Promotion that *stage* says is its current one; "" if it names none."""
    status = (stage or {}).get("status") or {}
    return str((status.get("currentPromotion") or {}).get("name") or "")


def has_ended(promotion: JsonObject) -> bool:
    """Whether the phase of *promotion* is a final one."""
    return phase_of(promotion) in _ENDED


def select(promotions: Iterable[JsonObject], stage: Stage) -> Selection:
    """Tell the Promotions of a Stage apart."""
    current = stage.status.current_promotion.name if stage.status.current_promotion is not None else ""
    matter: list[JsonObject] = []
    waiting: list[JsonObject] = []
    for promotion in promotions:
        meta = promotion["metadata"]
        phase = phase_of(promotion)
        if meta["name"] == current or phase == PromotionPhase.RUNNING:
            matter.append(promotion)
        elif phase in _ENDED:
            if not is_history(promotion, stage):
                matter.append(promotion)
        elif not meta.get("deletionTimestamp"):
            waiting.append(promotion)
    return Selection(matter, waiting)


def _order(promotion: JsonObject) -> tuple[str, str, str]:
    meta = promotion["metadata"]
    return queue_order(meta["name"], meta.get("creationTimestamp"))


def queue(promotions: Sequence[Promotion]) -> list[Promotion]:
    """Those that have not ended: what runs first, then the others in their order."""
    waiting = [p for p in promotions if not p.finished and p.metadata.deletion_timestamp is None]
    return sorted(waiting, key=lambda p: (not p.running, p.queue_order))


def following(
    stage: Stage, status: StageStatus, promotions: Sequence[Promotion], waited: timedelta
) -> Promotion | None:
    """The Promotion that may start now; what runs already goes on.

    None starts while the Stage is being deleted or the last one is being judged, nor where there is nothing to run, nor
    before its Freight is known. *waited*: how long ago the last one ended.
    """
    first = next(iter(queue(promotions)), None)
    if first is None or first.running:
        return first
    if stage.metadata.deletion_timestamp is not None or stage.is_control_flow or not first.spec.freight:
        return None
    return None if judging_left(status, waited) else first


def since_last(status: StageStatus, now: datetime) -> timedelta:
    """How long ago, by the wall clock, the last Promotion ended; nothing if there was none."""
    last = status.last_promotion
    return now - last.finished_at.datetime if last is not None and last.finished_at is not None else timedelta()


def judging_left(status: StageStatus, waited: timedelta) -> float | None:
    """Seconds for which the next Promotion has to wait at most for the verdict on the last one; None: not at all.

    *waited*: how long ago the last one ended.
    """
    last = status.last_promotion
    if last is None or last.finished_at is None or last.status is None:
        return None
    if last.status.phase != PromotionPhase.SUCCEEDED or status.health is None:
        return None
    if status.health.status not in {HealthState.UNKNOWN, HealthState.PROGRESSING}:
        return None
    left = (JUDGING_LIMIT - waited).total_seconds()
    return min(left, JUDGING_LIMIT.total_seconds()) if left > 0 else None


def reference(promotion: Promotion) -> PromotionReference:
    """How the Stage names the Promotion that runs."""
    return PromotionReference(name=promotion.name, freight=FreightReference(name=promotion.spec.freight or ""))
