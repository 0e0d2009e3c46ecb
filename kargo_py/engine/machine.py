"""The state machine of a Promotion: from one status to the next, as plain functions.

What its steps do to it is :mod:`kargo_py.engine.stepping`. Everything here takes and returns a Promotion or its
:class:`~kargo_py.api.promotion.PromotionStatus`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from kargo_py.api.abort import ABORT_KEY, Abort
from kargo_py.api.freight import FreightReference
from kargo_py.api.names import ANNOTATION_REFRESH
from kargo_py.api.promotion import (
    FreightCollection,
    Promotion,
    PromotionPhase,
    PromotionStatus,
    PromotionStep,
    StepExecutionMetadata,
    StepStatus,
)
from kargo_py.api.stamp import OUR_PREFIX
from kargo_py.api.types import Time
from kargo_py.engine.conditions import with_conditions
from kargo_py.engine.records import with_awaited, with_records
from kargo_py.messages import Shown, message
from kargo_py.steps.base import Finished

ALIAS_RESERVED = message(
    "spec.steps[{index}].as: {alias!r} is reserved; choose another alias",
    do="kargo-py keeps its own records under that name. Change `as` of the step, in the Stage's template too, and "
    "create a new Promotion.",
    shown=Shown.PROMOTION,
)
ALIAS_TWICE = message(
    "spec.steps[{index}] has the alias {alias!r} of spec.steps[{other}]; give it another one (as)",
    do="Give each step an alias of its own, in the Stage's template too; the default of the second step is `step-2`. "
    "Then create a new Promotion.",
    shown=Shown.PROMOTION,
)
ABORTING = message(
    "aborting, as {actor} asked",
    do='What runs is being ended, and waited for; the Promotion becomes `Aborted` by itself. An abort with `"force": '
    "true` does not wait.",
    shown=Shown.PROMOTION,
)
TERMINATED = message(
    "Promotion terminated by {actor}",
    do="Somebody aborted it with the annotation `kargo.akuity.io/abort`. What follows says what became of the sync; "
    "create a new Promotion to promote again.",
    shown=Shown.PROMOTION,
)
_MAX_REFRESH = 1024
"""How much of the annotation that asks for a refresh counts; people write a time."""

MOST_SAID = 16 * 1024
"""Bytes that one message in the status may have: it quotes what people wrote, and it stands in the status twice."""

_PHASES = {
    StepStatus.SUCCEEDED: PromotionPhase.SUCCEEDED,
    StepStatus.SKIPPED: PromotionPhase.SUCCEEDED,
    StepStatus.ABORTED: PromotionPhase.ABORTED,
    StepStatus.FAILED: PromotionPhase.FAILED,
    StepStatus.ERRORED: PromotionPhase.ERRORED,
}


@dataclass(frozen=True, slots=True)
class CurrentStep:
    """The step a Promotion is at; one that has not *started* has done nothing yet."""

    index: int
    alias: str
    step: PromotionStep
    started: bool = True


def current_step(promotion: Promotion) -> CurrentStep | None:
    """The step it is at; None if the status does not say so consistently (somebody else wrote it)."""
    steps = promotion.spec.steps or ()
    status = promotion.status
    index = status.current_step
    metadata = status.step_execution_metadata
    if not 0 <= index < len(steps):
        return None
    alias = steps[index].alias(index)
    if len(metadata) == index and status.freight is not None:
        entered = all(m.status != StepStatus.RUNNING for m in metadata)
        return CurrentStep(index, alias, steps[index], started=False) if entered else None
    if len(metadata) != index + 1 or metadata[-1].status != StepStatus.RUNNING or metadata[-1].alias != alias:
        return None
    return CurrentStep(index, alias, steps[index])


def alias_fault(steps: Sequence[PromotionStep]) -> str | None:
    """Why the aliases of *steps* cannot tell them apart; None if they do.

    Outputs and recorded intents are kept by alias: two steps of one alias would take each other's for their own.
    """
    seen: dict[str, int] = {}
    for index, step in enumerate(steps):
        alias = step.alias(index)
        if alias.startswith(OUR_PREFIX):
            return ALIAS_RESERVED(index=index, alias=alias)
        if alias in seen:
            return ALIAS_TWICE(index=index, alias=alias, other=seen[alias])
        seen[alias] = index
    return None


def is_only_running(promotion: Promotion) -> bool:
    """Whether it is Running, and nothing says that it has begun: a real Kargo writes that first, and may end there."""
    status = promotion.status
    return promotion.running and status.freight is None and not (status.step_execution_metadata or status.current_step)


def begin(promotion: Promotion, freight: FreightReference, collection: FreightCollection, now: datetime) -> Promotion:
    """Pending → Running, with the first step entered; from then on the spec counts as admitted.

    One that a real Kargo has begun, without having come to an end of a step, keeps its time.
    """
    status = promotion.status.replace(
        phase=PromotionPhase.RUNNING,
        started_at=(promotion.status.started_at if promotion.running else None) or Time.of(now),
        admitted_at=promotion.status.admitted_at or Time.of(now),
        freight=freight,
        freight_collection=collection,
        current_step=0,
    )
    if status.message:
        status = status.replace(message="")
    return promotion.replace(status=with_conditions(status, now, promotion.metadata.generation))


def bounded(message: str, most: int = MOST_SAID) -> str:
    """*message*, cut to *most* bytes."""
    data = message.encode(errors="replace")
    return data.decode() if len(data) <= most else data[: most - 3].decode(errors="ignore") + "…"


def held_up(promotion: Promotion, reason: str, message: str, now: datetime) -> Promotion:
    """A Promotion that has not begun, with why it cannot ("" and "": it can, as soon as it is its turn)."""
    status, message = promotion.status, bounded(message)
    if status.message == message:
        return promotion
    status = with_conditions(status.replace(message=message), now, promotion.metadata.generation, reason=reason or None)
    return promotion.replace(status=status)


def with_refresh(promotion: Promotion) -> Promotion:
    """*promotion* with the refresh that its annotation asks for on record as handled."""
    token = promotion.metadata.annotations.get(ANNOTATION_REFRESH, "")[:_MAX_REFRESH]
    if not token or token == promotion.status.last_handled_refresh:
        return promotion
    return promotion.replace(status=promotion.status.replace(last_handled_refresh=token))


def with_message(status: PromotionStatus, message: str) -> PromotionStatus:
    """*status* with what the running step waits for."""
    *before, last = status.step_execution_metadata
    return status.replace(step_execution_metadata=[*before, last.replace(message=bounded(message))])


def fail(promotion: Promotion, phase: PromotionPhase, message: str, now: datetime) -> Promotion:
    """End the Promotion for a reason that lies outside its steps."""
    status, message = promotion.status, bounded(message)
    metadata = status.step_execution_metadata
    if metadata and metadata[-1].status == StepStatus.RUNNING:
        ended = metadata[-1].replace(status=StepStatus.ERRORED, finished_at=Time.of(now), message=message)
        status = status.replace(step_execution_metadata=[*metadata[:-1], ended])
    return end(promotion, status.replace(phase=phase, message=message), now)


def end(promotion: Promotion, status: PromotionStatus, now: datetime) -> Promotion:
    """*promotion* with the final *status*."""
    status = status.replace(finished_at=Time.of(now))
    return promotion.replace(status=with_conditions(status, now, promotion.metadata.generation))


def latch_abort(status: PromotionStatus, abort: Abort, now: datetime) -> PromotionStatus:
    """*status* with the request to abort kept in it, and told."""
    kept = dataclasses.replace(abort, since=abort.since or Time.of(now))
    state = dict(status.state) if isinstance(status.state, dict) else {}
    status = status.replace(state={**state, ABORT_KEY: kept.wire()})
    metadata = status.step_execution_metadata
    if metadata and metadata[-1].status == StepStatus.RUNNING:
        status = with_message(status, ABORTING(actor=abort.by))
    return status


def abort(promotion: Promotion, asked: Abort, outcome: Finished, now: datetime) -> Promotion:
    """End the Promotion as Aborted; *outcome* says how what it had under way has ended."""
    status, said = promotion.status, bounded(outcome.message)
    metadata = status.step_execution_metadata
    if metadata and metadata[-1].status == StepStatus.RUNNING:
        ended = metadata[-1].replace(status=StepStatus.ABORTED, finished_at=Time.of(now), message=said)
        if outcome.records:
            status = with_records(status, metadata[-1].alias, outcome.records)
        status = with_awaited(status.replace(step_execution_metadata=[*metadata[:-1], ended]), ())
    message = TERMINATED(actor=asked.by) + (f": {said}" if said else "")
    return end(promotion, status.replace(phase=PromotionPhase.ABORTED, message=bounded(message)), now)


def _step_status(metadata: StepExecutionMetadata) -> StepStatus:
    """The status on record; one that we do not know was written by something else, and is no success."""
    try:
        return StepStatus(metadata.status)
    except ValueError:
        return StepStatus.ERRORED


def conclude(status: PromotionStatus) -> PromotionStatus:
    """The end of the Promotion: the worst step that counts decides, and its message is the Promotion's."""
    counting = [m for m in status.step_execution_metadata if not m.continue_on_error]
    bad = max(counting, key=lambda m: _step_status(m).severity, default=None)
    worst = _step_status(bad) if bad is not None else StepStatus.SUCCEEDED
    status = status.replace(phase=_PHASES[worst])
    said = bad.message if bad is not None and _PHASES[worst] is not PromotionPhase.SUCCEEDED else ""
    # What a real Kargo has said there meanwhile is not how it ended.
    return status.replace(message=said) if said != status.message else status
