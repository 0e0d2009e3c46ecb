"""What a Stage's status becomes: which Promotions have ended, how healthy the Stage is, and what runs next.

Pure. One call folds everything that is known into one new status, so that the end of a Promotion, the verdict on it,
its verification and the start of the next one cost one write. The parts are in modules of their own: ``stage_history``,
``stage_health``, ``stage_verification``, ``stage_queue``, ``stage_conditions`` and ``stage_size``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from kargo_py.api.names import ANNOTATION_REFRESH
from kargo_py.api.promotion import HealthCheckStep, Promotion, PromotionPhase
from kargo_py.api.stage import Stage, StageStatus
from kargo_py.controllers.stage_conditions import summary, with_conditions
from kargo_py.controllers.stage_health import judge
from kargo_py.controllers.stage_queue import following, judging_left, queue, reference, since_last
from kargo_py.controllers.stage_size import bounded, cut
from kargo_py.controllers.stage_verification import Verified, verify
from kargo_py.controllers.template import Template
from kargo_py.deployers.base import HealthVerdict

HOLD = 2.0
"""Seconds for which the end of a Promotion is not written yet while the verdict on it cannot be trusted.

A trusted verdict takes 1.2 s as a rule, and waiting for it saves two writes.
"""

MAX_TOKEN = 512
"""How many bytes of the value of the annotation ``refresh`` are kept; it is a time as a rule."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """The new status and what goes with it.

    ``write`` False: nothing changes, or the change is held back. ``look_again``: seconds until the same inputs may give
    another answer, None if only an event can. ``refresh``: what is judged should be looked at by Argo CD.
    """

    status: StageStatus
    write: bool
    look_again: float | None = None
    verified: Verified | None = None
    refresh: bool = False


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything that is known. ``verdict`` is on ``checks(...)``.

    ``promotions``: those that ended, the current one, those that run, and of the others the next one at least.
    ``ended_since``: seconds by our clock since the end of the current Promotion was first seen, None if it runs.
    ``template``: the Stage's, None if it could not be read. ``waited``: how long ago by our clock the last Promotion
    ended, None: that is what the wall clock says.
    """

    stage: Stage
    promotions: Sequence[Promotion]
    verdict: HealthVerdict
    now: datetime
    ended_since: float | None = None
    template: Template | None = None
    waited: timedelta | None = None
    by_name: dict[str, Promotion] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {p.name: p for p in self.promotions})


def outlook(situation: Situation, folded: StageStatus, held_checks: Sequence[HealthCheckStep] | None) -> Outlook:
    """Everything that follows from *folded* (see fold_ended) and the verdict on *held_checks*."""
    stage, now, verdict = situation.stage, situation.now, situation.verdict
    status = folded
    running = _running(status, situation)
    judged = running is None
    verified: Verified | None = None
    if running is None:
        status = judge(status, verdict, held_checks)
        status, verified = verify(stage, status, now)
        running = following(stage, status, situation.promotions, _waited(situation, status))
        if running is not None:
            status = status.replace(current_promotion=reference(running))
    again = _look_again(situation, status) if running is None else None
    status = with_refresh(stage, status)
    status = status.replace(freight_summary=summary(stage, status), observed_generation=stage.metadata.generation)
    status = with_conditions(stage, status, running, now, due=again is not None, template=situation.template)
    if _hold(situation, stage.status, status, verdict):
        left = HOLD - (situation.ended_since or 0.0)
        return Outlook(stage.status, write=False, look_again=min(left, verdict.recheck_after or left))
    before = stage.status.wire()
    write = status.wire() != before
    if write and (small := bounded(status)) is not status:
        status, write = small, small.wire() != before
    refresh = judged and running is None and verdict.refresh
    return Outlook(status, write, look_again=again, verified=verified, refresh=refresh)


def _running(status: StageStatus, situation: Situation) -> Promotion | None:
    current = status.current_promotion
    return situation.by_name.get(current.name) if current is not None else None


def _waited(situation: Situation, status: StageStatus) -> timedelta:
    return situation.waited if situation.waited is not None else since_last(status, situation.now)


def _look_again(situation: Situation, status: StageStatus) -> float | None:
    waiting = judging_left(status, _waited(situation, status)) if queue(situation.promotions) else None
    times = (situation.verdict.recheck_after, waiting)
    return min((seconds for seconds in times if seconds is not None), default=None)


def with_refresh(stage: Stage, status: StageStatus) -> StageStatus:
    """*status* in which the annotation ``refresh`` is answered: Kargo's command waits for that."""
    token = cut(stage.metadata.annotations.get(ANNOTATION_REFRESH, ""), MAX_TOKEN)
    return status.replace(last_handled_refresh=token) if token and token != status.last_handled_refresh else status


def _hold(situation: Situation, old: StageStatus, new: StageStatus, verdict: HealthVerdict) -> bool:
    """Hold the write back for a moment if all it says is the end of a Promotion whose result cannot be judged yet."""
    if situation.ended_since is None or situation.ended_since >= HOLD or verdict.trusted:
        return False
    last, before = new.last_promotion, old.last_promotion
    if last is None or (before is not None and before.name == last.name):
        return False
    return last.status is not None and last.status.phase == PromotionPhase.SUCCEEDED
