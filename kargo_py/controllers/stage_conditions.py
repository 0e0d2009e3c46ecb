"""The conditions of a Stage, and the few words on what is in it. Pure.

Reasons are Kargo's; ``lastTransitionTime`` moves when the status does, as everywhere in Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from kargo_py.api.meta import Condition, drop_condition, set_condition
from kargo_py.api.promotion import Promotion, PromotionPhase
from kargo_py.api.stage import Stage, StageStatus
from kargo_py.controllers.stage_health import healthy_condition
from kargo_py.controllers.stage_size import cut
from kargo_py.controllers.stage_template import TEMPLATE_VALID, template_condition
from kargo_py.controllers.stage_verification import REASON_VERIFIED, verified_condition
from kargo_py.controllers.template import Template
from kargo_py.messages import Shown, message

IS_ACTIVE = message(
    'Promotion "{promotion}" is active',
    do="The Stage runs this Promotion; others wait for their turn. `kubectl get promotion` shows how it goes.",
    shown=Shown.STAGE,
)
DELETED_AFTER = message(
    'The Stage is being deleted, and waits for Promotion "{promotion}" to end',
    do="What runs is not cut off. Abort the Promotion to have the Stage deleted sooner.",
    shown=Shown.STAGE,
)
LAST_ENDED_AS = message(
    'Promotion "{promotion}" ended as {phase}',
    do="The last Promotion did not succeed and left no message. The condition comes back with the next one that "
    "succeeds.",
    shown=Shown.STAGE,
)
LOOKS_AGAIN = message(
    "The Stage is looked at again by itself",
    do="Nothing to do: time alone may change the verdict, or let the next Promotion begin.",
    shown=Shown.STAGE,
)
REASON_ACTIVE = message(
    "ActivePromotion",
    do="Of `Promoting` and `Ready`, while a Promotion runs.",
    shown=Shown.STAGE,
)
REASON_DELETING = message(
    "Deleting",
    do="Of `Ready`, while a Stage that was deleted waits for the Promotion that runs.",
    shown=Shown.STAGE,
)
REASON_LAST_ENDED = message(
    "LastPromotion{phase}",
    do="Of `Ready`: `LastPromotionFailed`, `LastPromotionErrored` or `LastPromotionAborted`, with that Promotion's "
    "message. `Ready` comes back with the next Promotion that succeeds.",
    shown=Shown.STAGE,
)
REASON_RECONCILING = message(
    "Reconciling",
    do="Of `Reconciling`, while time alone may change something. Nothing to do.",
    shown=Shown.STAGE,
)

_MOST_OF_PROBLEMS = 1024
"""Bytes of what is wrong with the template that `Ready` repeats."""


def with_conditions(
    stage: Stage,
    status: StageStatus,
    running: Promotion | None,
    now: datetime,
    *,
    due: bool,
    template: Template | None = None,
) -> StageStatus:
    """*status* with its conditions; *due*: time alone may change something; *template* None: as it was.

    That alone is never worth a write: Reconciling becomes True together with something else only.
    """
    conditions = _told(stage, status, running, now, template)
    was_due = any(c.type == "Reconciling" and c.status == "True" for c in stage.status.conditions)
    if not due:
        conditions = drop_condition(conditions, "Reconciling")
    elif was_due or _replaced(status, conditions).wire() != stage.status.wire():
        condition = Condition(type="Reconciling", status="True", reason=REASON_RECONCILING(), message=LOOKS_AGAIN())
        conditions = _set(stage, conditions, condition, now)
    return _replaced(status, conditions)


def _told(
    stage: Stage, status: StageStatus, running: Promotion | None, now: datetime, template: Template | None
) -> tuple[Condition, ...]:
    """The conditions, but for Reconciling."""
    if template is not None:
        valid: Condition | None = template_condition(template)
    else:
        valid = next((c for c in status.conditions if c.type == TEMPLATE_VALID), None)
    healthy = healthy_condition(status)
    verified = verified_condition(stage, status)
    conditions: tuple[Condition, ...] = tuple(status.conditions)
    if running is not None:
        promoting = Condition(
            type="Promoting", status="True", reason=REASON_ACTIVE(), message=IS_ACTIVE(promotion=running.name)
        )
        ready = promoting.replace(type="Ready", status="False")
        if stage.metadata.deletion_timestamp is not None:
            ready = ready.replace(reason=REASON_DELETING(), message=DELETED_AFTER(promotion=running.name))
        told: Sequence[Condition] = (ready, healthy, promoting, verified)
    else:
        conditions = drop_condition(conditions, "Promoting")
        told = (_ready_condition(status, healthy, verified, valid), healthy, verified)
    for condition in (*told, valid) if valid is not None and template is not None else told:
        conditions = _set(stage, conditions, condition, now)
    return conditions


def _set(stage: Stage, conditions: Iterable[Condition], condition: Condition, now: datetime) -> tuple[Condition, ...]:
    return set_condition(conditions, condition.replace(observed_generation=stage.metadata.generation), now)


def _replaced(status: StageStatus, conditions: tuple[Condition, ...]) -> StageStatus:
    """*status* itself where nothing changes, so that a field that was absent stays so."""
    if [c.wire() for c in conditions] == [c.wire() for c in status.conditions]:
        return status
    return status.replace(conditions=list(conditions))


def _ready_condition(
    status: StageStatus, healthy: Condition, verified: Condition, valid: Condition | None
) -> Condition:
    if valid is not None and valid.status == "False":
        return valid.replace(type="Ready", message=cut(valid.message, _MOST_OF_PROBLEMS), last_transition_time=None)
    last = status.last_promotion
    if last is not None and last.status is not None and last.status.phase != PromotionPhase.SUCCEEDED:
        # A condition's reason is one word of a restricted form: not any phase that somebody wrote fits in.
        phase = last.status.phase if last.status.phase in set(PromotionPhase) else "Unknown"
        message = last.status.message or LAST_ENDED_AS(promotion=last.name, phase=phase)
        return Condition(type="Ready", status="False", reason=REASON_LAST_ENDED(phase=phase), message=message)
    if healthy.status != "True":
        return Condition(type="Ready", status="False", reason=healthy.reason, message=healthy.message)
    if verified.status != "True":
        return Condition(type="Ready", status="False", reason=verified.reason, message=verified.message)
    return Condition(type="Ready", status="True", reason=REASON_VERIFIED(), message=verified.message)


def summary(stage: Stage, status: StageStatus) -> str:
    """What is in the Stage, in a few words."""
    requested = stage.origins
    if not status.freight_history:
        return f"0/{len(requested)} Fulfilled"
    items = status.freight_history[0].items
    filled = [origin for origin in requested if origin in items]
    if len(requested) == 1 and filled:
        return items[filled[0]].name
    return f"{len(filled)}/{len(requested)} Fulfilled"
