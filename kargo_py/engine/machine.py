"""The state machine of a Promotion: from one status to the next, as plain functions.

The steps run one after another. One that fails does not end the Promotion at once: the later steps are skipped, and the
worst step decides. Everything here takes and returns a :class:`~kargo_py.api.promotion.PromotionStatus`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kargo_py.api.abort import ABORT_KEY, Abort
from kargo_py.api.freight import FreightReference
from kargo_py.api.names import ANNOTATION_REFRESH
from kargo_py.api.promotion import (
    FreightCollection,
    OperationRecord,
    Promotion,
    PromotionPhase,
    PromotionStatus,
    PromotionStep,
    StepExecutionMetadata,
    StepStatus,
)
from kargo_py.api.stamp import AWAITED_KEY, STATE_KEY
from kargo_py.api.types import Time
from kargo_py.deployers.argocd_records import KIND as OPERATION
from kargo_py.deployers.base import Awaited, Record, RecordError, read_awaited, read_records
from kargo_py.engine.conditions import with_conditions
from kargo_py.messages import Shown, message
from kargo_py.steps.base import Finished, Intend

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
STEP_FAILED = message(
    'step "{alias}": {message}',
    do="The Promotion is `Failed` and is not tried again. Correct what the message says and create a new Promotion.",
    shown=Shown.PROMOTION,
)
STEP_ERRORED = message(
    'error running step "{alias}": {message}',
    do="The Promotion is `Errored` and is not tried again; this step started nothing. Correct what the message says "
    "and create a new Promotion.",
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
    """The step a Promotion is at."""

    index: int
    alias: str
    step: PromotionStep


def current_step(promotion: Promotion) -> CurrentStep | None:
    """The step that runs now; None if the status does not say so consistently (somebody else wrote it)."""
    steps = promotion.spec.steps or ()
    status = promotion.status
    index = status.current_step
    metadata = status.step_execution_metadata
    if not 0 <= index < len(steps) or len(metadata) != index + 1 or metadata[-1].status != StepStatus.RUNNING:
        return None
    alias = steps[index].alias(index)
    if metadata[-1].alias != alias:
        return None
    return CurrentStep(index, alias, steps[index])


def alias_fault(steps: Sequence[PromotionStep]) -> str | None:
    """Why the aliases of *steps* cannot tell them apart; None if they do.

    Outputs and recorded intents are kept by alias: two steps of one alias would take each other's for their own.
    """
    seen: dict[str, int] = {}
    for index, step in enumerate(steps):
        alias = step.alias(index)
        if alias in {STATE_KEY, AWAITED_KEY, ABORT_KEY}:
            return ALIAS_RESERVED(index=index, alias=alias)
        if alias in seen:
            return ALIAS_TWICE(index=index, alias=alias, other=seen[alias])
        seen[alias] = index
    return None


def begin(promotion: Promotion, freight: FreightReference, collection: FreightCollection, now: datetime) -> Promotion:
    """Pending → Running at the first step; from then on the spec counts as admitted."""
    status = promotion.status.replace(
        phase=PromotionPhase.RUNNING,
        started_at=Time.of(now),
        admitted_at=Time.of(now),
        freight=freight,
        freight_collection=collection,
        current_step=0,
    )
    if status.message:
        status = status.replace(message="")
    status = with_conditions(status, now, promotion.metadata.generation)
    return promotion.replace(status=_enter(status, promotion.spec.steps or (), 0, now))


def _bounded(message: str) -> str:
    """*message*, cut to :data:`MOST_SAID`."""
    data = message.encode()
    return message if len(data) <= MOST_SAID else data[: MOST_SAID - 3].decode(errors="ignore") + "…"


def held_up(promotion: Promotion, reason: str, message: str, now: datetime) -> Promotion:
    """A Promotion that has not begun, with why it cannot ("" and "": it can, as soon as it is its turn)."""
    status, message = promotion.status, _bounded(message)
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


def _enter(status: PromotionStatus, steps: Sequence[PromotionStep], index: int, now: datetime) -> PromotionStatus:
    """Mark the step at *index* as the running one."""
    if index >= len(steps):
        return status
    entered = StepExecutionMetadata(alias=steps[index].alias(index), started_at=Time.of(now), status=StepStatus.RUNNING)
    if steps[index].continue_on_error:
        entered = entered.replace(continue_on_error=True)
    return status.replace(current_step=index, step_execution_metadata=[*status.step_execution_metadata, entered])


def records_of(status: PromotionStatus, alias: str | None = None) -> tuple[Record, ...]:
    """The recorded intents, of one step or of all; raises RecordError."""
    state = status.state if isinstance(status.state, dict) else {}
    records = read_records(state.get(STATE_KEY))
    return tuple(r for r in records if alias is None or r.step == alias)


def readable_records(promotion: Promotion) -> tuple[Record, ...]:
    """All recorded intents; none where they cannot be read. For telling, not for deciding."""
    try:
        return records_of(promotion.status)
    except RecordError:
        return ()


def operations_of(promotion: Promotion) -> list[Record]:
    """Those recorded intents that are of operations: not of what a step only waits for. For telling, as above."""
    return [record for record in readable_records(promotion) if record.kind == OPERATION]


def newly_ended(before: Promotion, after: Promotion) -> list[Record]:
    """The operations of which *after* says how they ended and *before* does not."""
    known = {(record.key, record.stamp) for record in operations_of(before) if record.state.final}
    return [r for r in operations_of(after) if r.state.final and (r.key, r.stamp) not in known]


def with_records(status: PromotionStatus, alias: str, records: Sequence[Record]) -> PromotionStatus:
    """*status* with *records* as those of the step *alias*."""
    others = [r for r in records_of(status) if r.step != alias]
    every = [*others, *records]
    if not every:
        return status
    state = dict(status.state) if isinstance(status.state, dict) else {}
    return status.replace(
        state={**state, STATE_KEY: [r.wire() for r in every]},
        operations=[OperationRecord.model_validate(r.mirror()) for r in every],
    )


def awaited_of(status: PromotionStatus, alias: str) -> tuple[Awaited, ...]:
    """What the step *alias* is recorded to wait for until it is made."""
    state = status.state if isinstance(status.state, dict) else {}
    return tuple(a for a in read_awaited(state.get(AWAITED_KEY)) if a.step == alias)


def with_awaited(status: PromotionStatus, awaited: Sequence[Awaited]) -> PromotionStatus:
    """*status* with what the running step waits for; that of other steps, which have ended, is of no interest."""
    state = dict(status.state) if isinstance(status.state, dict) else {}
    if not awaited and AWAITED_KEY not in state:
        return status
    state.pop(AWAITED_KEY, None)
    if awaited:
        state[AWAITED_KEY] = [a.wire() for a in awaited]
    return status.replace(state=state)


def output_of(status: PromotionStatus, alias: str) -> Any:
    """What the step *alias* has put out so far, None if nothing."""
    return status.state.get(alias) if isinstance(status.state, dict) else None


def with_intent(status: PromotionStatus, alias: str, intent: Intend) -> PromotionStatus:
    """*status* with all that is to be on record before the step *alias* goes on."""
    status = with_awaited(with_records(status, alias, intent.records), intent.awaited)
    if intent.output is None:
        return status
    state = dict(status.state) if isinstance(status.state, dict) else {}
    return status.replace(state={**state, alias: dict(intent.output)})


def with_message(status: PromotionStatus, message: str) -> PromotionStatus:
    """*status* with what the running step waits for."""
    *before, last = status.step_execution_metadata
    return status.replace(step_execution_metadata=[*before, last.replace(message=_bounded(message))])


def finish_step(promotion: Promotion, current: CurrentStep, outcome: Finished, now: datetime) -> Promotion:
    """Record how the current step ended and go on: to the next step, or to the end of the Promotion."""
    steps = promotion.spec.steps or ()
    status = _end_step(promotion.status, current, outcome, now)
    following = current.index + 1
    if following < len(steps) and not _failed(status):
        return promotion.replace(status=_enter(status, steps, following, now))
    skipped = [
        StepExecutionMetadata(alias=steps[i].alias(i), status=StepStatus.SKIPPED) for i in range(following, len(steps))
    ]
    status = status.replace(
        step_execution_metadata=[*status.step_execution_metadata, *skipped], current_step=max(len(steps) - 1, 0)
    )
    return _end(promotion, _conclude(status), now)


def fail(promotion: Promotion, phase: PromotionPhase, message: str, now: datetime) -> Promotion:
    """End the Promotion for a reason that lies outside its steps."""
    status, message = promotion.status, _bounded(message)
    metadata = status.step_execution_metadata
    if metadata and metadata[-1].status == StepStatus.RUNNING:
        ended = metadata[-1].replace(status=StepStatus.ERRORED, finished_at=Time.of(now), message=message)
        status = status.replace(step_execution_metadata=[*metadata[:-1], ended])
    return _end(promotion, status.replace(phase=phase, message=message), now)


def _end(promotion: Promotion, status: PromotionStatus, now: datetime) -> Promotion:
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
    status, said = promotion.status, _bounded(outcome.message)
    metadata = status.step_execution_metadata
    if metadata and metadata[-1].status == StepStatus.RUNNING:
        ended = metadata[-1].replace(status=StepStatus.ABORTED, finished_at=Time.of(now), message=said)
        if outcome.records:
            status = with_records(status, metadata[-1].alias, outcome.records)
        status = with_awaited(status.replace(step_execution_metadata=[*metadata[:-1], ended]), ())
    message = TERMINATED(actor=asked.by) + (f": {said}" if said else "")
    return _end(promotion, status.replace(phase=PromotionPhase.ABORTED, message=_bounded(message)), now)


def _end_step(status: PromotionStatus, current: CurrentStep, outcome: Finished, now: datetime) -> PromotionStatus:
    *before, last = status.step_execution_metadata
    message = outcome.message
    if message and outcome.status is StepStatus.FAILED:
        message = STEP_FAILED(alias=current.alias, message=message)
    elif message and outcome.status is StepStatus.ERRORED:
        message = STEP_ERRORED(alias=current.alias, message=message)
    message = _bounded(message)
    ended = last.replace(status=outcome.status, finished_at=Time.of(now))
    if message or last.message:
        ended = ended.replace(message=message)
    if not message:
        ended = StepExecutionMetadata.model_validate({k: v for k, v in ended.wire().items() if k != "message"})
    if outcome.status is StepStatus.ERRORED:
        ended = ended.replace(error_count=last.error_count + 1)
    state: dict[str, Any] = dict(status.state) if isinstance(status.state, dict) else {}
    if outcome.output is not None:
        state[current.alias] = dict(outcome.output)
    if state:
        status = status.replace(state=state)
    if outcome.records:
        status = with_records(status, current.alias, outcome.records)
    status = with_awaited(status, ())
    if outcome.health_check is not None and outcome.status is StepStatus.SUCCEEDED:
        status = status.replace(health_checks=[*status.health_checks, outcome.health_check])
    return status.replace(step_execution_metadata=[*before, ended])


def _failed(status: PromotionStatus) -> bool:
    """True if a step that counts has failed; the default condition of every later step."""
    return any(
        m.status in {StepStatus.FAILED, StepStatus.ERRORED} and not m.continue_on_error
        for m in status.step_execution_metadata
    )


def _step_status(metadata: StepExecutionMetadata) -> StepStatus:
    """The status on record; one that we do not know was written by something else, and is no success."""
    try:
        return StepStatus(metadata.status)
    except ValueError:
        return StepStatus.ERRORED


def _conclude(status: PromotionStatus) -> PromotionStatus:
    """The end of the Promotion: the worst step that counts decides, and its message is the Promotion's."""
    counting = [m for m in status.step_execution_metadata if not m.continue_on_error]
    bad = max(counting, key=lambda m: _step_status(m).severity, default=None)
    worst = _step_status(bad) if bad is not None else StepStatus.SUCCEEDED
    status = status.replace(phase=_PHASES[worst])
    if bad is not None and bad.message and _PHASES[worst] is not PromotionPhase.SUCCEEDED:
        status = status.replace(message=bad.message)
    return status
