"""What the steps of a Promotion do to it, as plain functions from one status to the next.

The steps run one after another. A step is *entered*, which is when its ``if`` is asked, and then *started*, which is
from when it has metadata. One that fails does not end the Promotion at once: those after it are entered, too, and
skipped unless their ``if`` says otherwise; the worst step decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from kargo_py.api.promotion import Promotion, PromotionStatus, StepExecutionMetadata, StepStatus
from kargo_py.api.types import Time
from kargo_py.engine.machine import MOST_SAID, CurrentStep, bounded, conclude, end
from kargo_py.engine.outputs import Output, OutputError, check_room, with_output
from kargo_py.engine.records import with_awaited, with_records
from kargo_py.engine.retries import Rules
from kargo_py.messages import Shown, message
from kargo_py.steps.base import Erred, Finished, Intend, StepOutcome, Waiting

STEP_FAILED = message(
    'step "{alias}": {message}',
    do="The Promotion is `Failed` and is not tried again. Correct what the message says and create a new Promotion.",
    shown=Shown.PROMOTION,
)
STEP_ERRORED = message(
    'error running step "{alias}": {message}',
    do="The Promotion is `Errored` and is not tried again. Correct what the message says and create a new Promotion.",
    shown=Shown.PROMOTION,
)
MET_THRESHOLD = message(
    'step "{alias}" met error threshold of {threshold}: {message}',
    do="It was tried as often as `retry.errorThreshold` says, and erred each time; this was the last error. Correct "
    "what the message says, then create a new Promotion.",
    shown=Shown.PROMOTION,
)
STEP_TIMED_OUT = message(
    'step "{alias}" timed out after {time}',
    do="Raise `retry.timeout` of the step (`0s`: no limit), or mend what kept it: what it waited for last stands after "
    "the colon. Then create a new Promotion.",
    shown=Shown.PROMOTION,
)
RETRIED = message(
    "{message}; step will be retried",
    do="Nothing: the step is tried again by itself, after a pause that grows. Errors in a row end it once there are as "
    "many as `retry.errorThreshold` says; those that are likely to pass do not count as long as it has time.",
    shown=Shown.PROMOTION,
)
NO_REASON = message(
    "no reason was given",
    do="Of a step that failed: its kind says nothing more. Tell the author of the kind of step.",
    shown=Shown.PROMOTION,
)

_ALL_SAID = 128 * 1024
"""Bytes that the messages of all steps may have, or little more; the first ones may be long."""

_LEAST_SAID = 200


class Then(Enum):
    """What follows a call of a step.

    *RECORD*: what is to be on record is written, then it is called again. *WAIT*: until something happens. *PAUSE*: it
    has erred, and is called again later. *NEXT*: it has ended.
    """

    RECORD = "record"
    WAIT = "wait"
    PAUSE = "pause"
    NEXT = "next"


@dataclass(frozen=True, slots=True)
class Transition:
    """A Promotion as it is after a call of its current step, and what follows."""

    promotion: Promotion
    then: Then


# -- a step begins ---------------------------------------------------------------------------------------------------


def start_step(promotion: Promotion, current: CurrentStep, now: datetime) -> Promotion:
    """Its ``if`` holds: the step runs from *now* on."""
    started = _metadata(current, status=StepStatus.RUNNING, started_at=Time.of(now))
    return promotion.replace(status=_with_metadata(_unmessaged(promotion.status), started))


def skip_step(promotion: Promotion, current: CurrentStep, now: datetime) -> Promotion:
    """Its ``if`` does not hold: go on after it."""
    return _go_on(_noted(promotion, _metadata(current, status=StepStatus.SKIPPED)), current.index + 1, now)


def refuse_step(promotion: Promotion, current: CurrentStep, why: str, now: datetime) -> Promotion:
    """The step cannot start, for the reason *why*: it is Errored, and has no times; go on after it."""
    said = _cut_for(promotion.status, STEP_ERRORED(alias=current.alias, message=why))
    return _go_on(
        _noted(promotion, _metadata(current, status=StepStatus.ERRORED, message=said)), current.index + 1, now
    )


def hold_step(promotion: Promotion, current: CurrentStep, why: str) -> Promotion:
    """Whether the step is to start cannot be told yet, for the reason *why*, which stands in the message meanwhile."""
    said = bounded(RETRIED(message=STEP_ERRORED(alias=current.alias, message=why)))
    return promotion.replace(status=promotion.status.replace(message=said))


def without_retry(message: str) -> str:
    """*message* of a step that ended instead of being tried again."""
    return message.removesuffix(RETRIED(message=""))


def _metadata(current: CurrentStep, **fields: Any) -> StepExecutionMetadata:
    made = StepExecutionMetadata(alias=current.alias, **fields)
    return made.replace(continue_on_error=True) if current.step.continue_on_error else made


def _with_metadata(status: PromotionStatus, added: StepExecutionMetadata) -> PromotionStatus:
    return status.replace(step_execution_metadata=[*status.step_execution_metadata, added])


def _noted(promotion: Promotion, added: StepExecutionMetadata) -> Promotion:
    return promotion.replace(status=_with_metadata(_unmessaged(promotion.status), added))


def _unmessaged(status: PromotionStatus) -> PromotionStatus:
    """*status* without what :func:`hold_step` said."""
    return status.replace(message="") if status.message else status


def _go_on(promotion: Promotion, index: int, now: datetime) -> Promotion:
    """Enter the step at *index*, or the next one that is not skipped since one before it has failed; or end."""
    steps, status = promotion.spec.steps or (), promotion.status
    failed = has_failed(status)
    while index < len(steps) and failed and not steps[index].if_:
        skipped = CurrentStep(index, steps[index].alias(index), steps[index])
        status = _with_metadata(status, _metadata(skipped, status=StepStatus.SKIPPED))
        index += 1
    if index < len(steps):
        return promotion.replace(status=status.replace(current_step=index))
    return end(promotion, conclude(status.replace(current_step=max(len(steps) - 1, 0))), now)


# -- a step runs -----------------------------------------------------------------------------------------------------


def advance(
    promotion: Promotion,
    current: CurrentStep,
    outcome: StepOutcome,
    now: datetime,
    rules: Rules = Rules(),  # noqa: B008 - it is frozen
    *,
    tolerant: bool = False,
    timed_out: bool = False,
) -> Transition:
    """The Promotion after a call of its *current* step, which has started, had this *outcome*.

    *tolerant*: an error that is likely to pass does not count now. *timed_out*: it was called since its time is up.
    """
    match outcome:
        case Intend():
            try:
                intended = promotion.replace(status=with_intent(promotion.status, current.alias, outcome))
                _check_output(intended, current, outcome.output)
            except OutputError as error:
                outcome = Finished(StepStatus.ERRORED, str(error))
                return Transition(finish_step(promotion, current, outcome, now, rules), Then.NEXT)
            return Transition(intended, Then.RECORD)
        case Waiting():
            forgiven = not outcome.records and errors_of(promotion) > 0
            return Transition(_with_last(promotion, error_count=0) if forgiven else promotion, Then.WAIT)
        case Erred():
            return _erred(promotion, current, outcome, now, rules, tolerant=tolerant)
        case Finished():
            errors = errors_of(promotion) if timed_out else None
            return Transition(finish_step(promotion, current, outcome, now, rules, errors=errors), Then.NEXT)


def errors_of(promotion: Promotion) -> int:
    """How many times in a row the step that runs has erred."""
    return promotion.status.step_execution_metadata[-1].error_count


def _erred(
    promotion: Promotion, current: CurrentStep, outcome: Erred, now: datetime, rules: Rules, *, tolerant: bool
) -> Transition:
    status = StepStatus.FAILED if outcome.failed else StepStatus.ERRORED
    counts = not (outcome.transient and tolerant)
    errors = errors_of(promotion) + counts
    if counts and errors >= rules.threshold:
        said = outcome.message
        if rules.threshold > 1:
            said = MET_THRESHOLD(alias=current.alias, threshold=rules.threshold, message=said or NO_REASON())
        ended = Finished(status, said, outcome.output, records=outcome.records or ())
        return Transition(finish_step(promotion, current, ended, now, rules, errors=errors), Then.NEXT)
    said = RETRIED(message=_said(current.alias, status, outcome.message))
    paused = _with_last(promotion, message=_cut_for(promotion.status, said))
    if counts:
        paused = _with_last(paused, error_count=errors)
    if outcome.records is not None:
        paused = paused.replace(status=with_records(paused.status, current.alias, outcome.records))
    if outcome.output is not None:
        try:
            added = with_output(paused.status, current.alias, outcome.output, propagates=rules.propagates)
            _check_output(paused.replace(status=added), current, outcome.output)
        except OutputError as error:
            ended = Finished(StepStatus.ERRORED, str(error), records=outcome.records or ())
            return Transition(finish_step(promotion, current, ended, now, rules), Then.NEXT)
        paused = paused.replace(status=added)
    return Transition(paused, Then.PAUSE)


def _check_output(promotion: Promotion, current: CurrentStep, output: object) -> None:
    """Raise OutputError if *promotion* is too large with what its step puts out."""
    if isinstance(output, Output):
        check_room(current.alias, output, promotion.wire())


def _with_last(promotion: Promotion, **changes: object) -> Promotion:
    """*promotion* with its running step's metadata changed."""
    *before, last = promotion.status.step_execution_metadata
    status = promotion.status.replace(step_execution_metadata=[*before, last.replace(**changes)])
    return promotion.replace(status=status)


def with_intent(status: PromotionStatus, alias: str, intent: Intend) -> PromotionStatus:
    """*status* with all that is to be on record before the step *alias* goes on."""
    status = with_awaited(with_records(status, alias, intent.records), intent.awaited)
    return status if intent.output is None else with_output(status, alias, intent.output)


def finish_step(
    promotion: Promotion,
    current: CurrentStep,
    outcome: Finished,
    now: datetime,
    rules: Rules = Rules(),  # noqa: B008 - it is frozen
    *,
    errors: int | None = None,
) -> Promotion:
    """Record how the current step ended and go on: to the next step, or to the end of the Promotion.

    *errors*: how many times in a row it has erred by that, where that is not to be concluded.
    """
    status = _end_step(promotion.status, current, outcome, now, errors)
    if outcome.output is not None:
        try:
            added = with_output(status, current.alias, outcome.output, propagates=rules.propagates)
            _check_output(promotion.replace(status=added), current, outcome.output)
        except OutputError as error:
            # What it said of itself is of no use to the steps after it, which miss its output.
            outcome = Finished(StepStatus.ERRORED, str(error), records=outcome.records)
            added = _end_step(promotion.status, current, outcome, now, errors)
        status = added
    return _go_on(promotion.replace(status=status), current.index + 1, now)


def _end_step(
    status: PromotionStatus, current: CurrentStep, outcome: Finished, now: datetime, errors: int | None
) -> PromotionStatus:
    *before, last = status.step_execution_metadata
    message = _said(current.alias, outcome.status, outcome.message)
    message = _cut_for(status.replace(step_execution_metadata=before), message)
    ended = last.replace(status=outcome.status, finished_at=Time.of(now))
    if message:
        ended = ended.replace(message=message)
    else:
        ended = StepExecutionMetadata.model_validate({k: v for k, v in ended.wire().items() if k != "message"})
    if errors is None and outcome.status is StepStatus.ERRORED:
        errors = last.error_count + 1
    if errors is not None and errors != last.error_count:
        ended = ended.replace(error_count=errors)
    if outcome.records:
        status = with_records(status, current.alias, outcome.records)
    status = with_awaited(status, ())
    if outcome.health_check is not None and outcome.status is StepStatus.SUCCEEDED:
        status = status.replace(health_checks=[*status.health_checks, outcome.health_check])
    return status.replace(step_execution_metadata=[*before, ended])


def _said(alias: str, status: StepStatus, message: str) -> str:
    """What a step that has ended so says, with its name unless that stands there already."""
    if status not in {StepStatus.FAILED, StepStatus.ERRORED}:
        return message
    message = message or NO_REASON()
    if message.startswith(f'step "{alias}" '):
        return message
    if status is StepStatus.FAILED:
        return STEP_FAILED(alias=alias, message=message)
    return STEP_ERRORED(alias=alias, message=message)


def _cut_for(status: PromotionStatus, message: str) -> str:
    """*message*, cut so that there is room for those of the steps to come."""
    said = sum(len(m.message.encode()) for m in status.step_execution_metadata)
    return bounded(message, max(min(MOST_SAID, (_ALL_SAID - said) // 4), _LEAST_SAID))


def has_failed(status: PromotionStatus) -> bool:
    """True if a step that counts has failed; the default condition of every later step."""
    return any(
        m.status in {StepStatus.FAILED, StepStatus.ERRORED} and not m.continue_on_error
        for m in status.step_execution_metadata
    )
