"""What the step of a Promotion that runs waits for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from kargo_py.api.abort import latched_abort
from kargo_py.api.promotion import Promotion, StepExecutionMetadata
from kargo_py.api.types import Time
from kargo_py.argocd.application import Application, describe
from kargo_py.argocd.operation import Decision, Knowledge, Verb, Waiting, decide_operation
from kargo_py.argocd.waiting import Asking, Look, Standing, Start, judge
from kargo_py.controllers.promotion_stepping import NO_STEP_RUNS
from kargo_py.controllers.why import ARGOCD_CLOCK, Answer, Hidden, Seen
from kargo_py.controllers.why_promotion_targets import MOST_TARGETS, by_target, tell_attempts
from kargo_py.deployers.argocd_records import KIND as ARGOCD, intent_of
from kargo_py.deployers.base import Record, RecordError
from kargo_py.engine.evaluation import EvaluationError, configuration_for, position_of, program_of
from kargo_py.engine.machine import CurrentStep, current_step, is_only_running
from kargo_py.engine.records import records_of
from kargo_py.engine.retries import time_limit
from kargo_py.expressions.lookups import Lookups, Missing
from kargo_py.kube.clock import in_short
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message
from kargo_py.steps.argocd_update import USES as ARGOCD_UPDATE
from kargo_py.steps.argocd_wait import NOT_CHOSEN_ANY_MORE, USES as ARGOCD_WAIT, ArgoCDWait, read_config, wanted_of
from kargo_py.steps.config import INVALID_CONFIGURATION
from kargo_py.steps.registry import BUILT_IN

STEP_RUNS = message(
    'step {number} of {count}, "{alias}" of kind {uses}, runs',
    do="Nothing to do; what it waits for follows.",
    shown=Shown.ANSWER,
)
STEP_NOT_BEGUN = message(
    'step {number} of {count}, "{alias}", has not begun; a controller that runs asks its `if` and begins it at once',
    do="Nothing to do, unless something that the `if` looks up cannot be read; then that follows.",
    shown=Shown.ANSWER,
)
CONTROLLER_SAYS = message(
    "the controller says of it: {message}",
    do="The message of the step in `status.stepExecutionMetadata`; look it up under [In a Promotion](#in-a-promotion).",
    shown=Shown.ANSWER,
)
NOTHING_RECORDED = message(
    "the step has nothing on record that it has started elsewhere",
    do="A step that acts on Applications records what it is going to do before it does it. Without a record nothing "
    "was started, unless a real Kargo runs this Promotion.",
    shown=Shown.ANSWER,
)
ENDED_UNSEEN = message(
    "{message}; a controller that runs takes this in within a second",
    do="If the Promotion does not go on, see that a controller runs that acts on its Stage.",
    shown=Shown.ANSWER,
)
READY_UNSEEN = message(
    "{app} is as it is waited for; a controller that runs takes this in within a second",
    do="If the Promotion does not go on, see that a controller runs that acts on its Stage.",
    shown=Shown.ANSWER,
)
NOT_WRITTEN = message(
    "{message}; the Application shows nothing of it yet",
    do="The sync is on record and is written into the Application next, by a controller that runs.",
    shown=Shown.ANSWER,
)
TIME_LEFT = message(
    "the step times out in {left}; it may take {limit}",
    do="`retry.timeout` of the step says how long it may take; `onTimeout` of argocd-update what becomes of the sync.",
    shown=Shown.ANSWER,
)
TIME_OVER = message(
    "the step may take {limit}, and has had its time",
    do="It times out when a controller looks at it, within a minute. If it does not, no controller runs.",
    shown=Shown.ANSWER,
)
TIME_STANDS_STILL = message(
    "the step may take {limit}; that time does not run while others hold the Application",
    do="Wait, or end the operation that is waited for in Argo CD.",
    shown=Shown.ANSWER,
)
NO_TIME_LIMIT = message(
    "the step has no time-out",
    do="Set `retry.timeout` of the step in the Stage's template if it should have one.",
    shown=Shown.ANSWER,
)

_WITHOUT_RECORDS: Final = BUILT_IN.keys() - {ARGOCD_UPDATE, ARGOCD_WAIT}
"""Kinds of steps that are done with all they started when a call of theirs ends."""


@dataclass(frozen=True, slots=True)
class Running:
    """A Promotion that runs, and the Applications that it has on record."""

    answer: Answer
    promotion: Promotion
    applications: Mapping[Key, Seen[Application]]
    now: datetime

    def explain(self) -> None:
        """Say what the step that runs waits for."""
        promotion = self.promotion
        current, steps = current_step(promotion), promotion.spec.steps or ()
        if current is None and is_only_running(promotion) and steps:
            current = CurrentStep(0, steps[0].alias(0), steps[0], started=False)
        if current is None:
            self.answer.say(NO_STEP_RUNS())
            return
        if not current.started:
            self.answer.say(STEP_NOT_BEGUN(number=current.index + 1, count=len(steps), alias=current.alias))
            if promotion.status.message:
                self.answer.say(CONTROLLER_SAYS(message=promotion.status.message))
            return
        metadata = promotion.status.step_execution_metadata[-1]
        try:
            records = records_of(promotion.status, current.alias)
        except RecordError as error:
            self.answer.say(str(error))
            records = ()
        for record in [each for each in records if each.kind == ARGOCD_WAIT][:MOST_TARGETS]:
            self._tell_wait(current, record)
        looks = [(attempts, self._look(attempts[-1])) for attempts in by_target(records)[:MOST_TARGETS]]
        for attempts, decision in looks:
            if decision is not None:
                self._tell_decision(attempts[-1], decision)
        told = {statement.text for statement in self.answer.reasons}
        if metadata.message and metadata.message not in told:
            self.answer.say(CONTROLLER_SAYS(message=metadata.message))
        if not records and current.step.uses not in _WITHOUT_RECORDS:
            self.answer.say(NOTHING_RECORDED())
        self.answer.say(_step_runs(current, len(steps)), metadata.started_at)
        for attempts, _ in looks:
            tell_attempts(self.answer, attempts)
        waits = [decision.waiting for _, decision in looks if decision is not None]
        held = bool(waits) and all(wait is Waiting.FOREIGN for wait in waits)
        self._tell_time(current, metadata, records, held=held)

    def _look(self, record: Record) -> Decision | None:
        """How the attempt stands on its Application; None if that cannot be told or is on record already.

        It can be told of an operation only. What argocd-wait waits for is told by _tell_wait; what a step of somebody's
        own waits for stands in its message.
        """
        if record.state.final or record.kind != ARGOCD:
            return None
        seen = self.applications.get(record.key)
        if isinstance(seen, Hidden):
            self.answer.hidden(describe(record.key), seen)
            return None
        stopping = latched_abort(self.promotion.status.state) is not None or record.stopping_since is not None
        return decide_operation(seen, intent_of(record), Knowledge(stopping=stopping))

    def _tell_wait(self, current: CurrentStep, record: Record) -> None:
        """What keeps an Application from being as the step waits for; as if it had not changed for long."""
        seen = self.applications.get(record.key)
        if isinstance(seen, Hidden):
            self.answer.hidden(describe(record.key), seen)
            return
        program, position = program_of(self.promotion), position_of(self.promotion, current.index)
        try:
            config = configuration_for(ArgoCDWait, program, position, Lookups(), self.now)
        except (EvaluationError, Missing):
            # What it became is not on record; the controller's message is.
            return
        try:
            wanted = wanted_of(read_config(config), record, record.namespace)
        except ValueError as error:
            self.answer.say(ENDED_UNSEEN(message=INVALID_CONFIGURATION(faults=error)))
            return
        if wanted is None:
            self.answer.say(ENDED_UNSEEN(message=NOT_CHOSEN_ANY_MORE(app=describe(record.key))))
            return
        start = Start(record.uid, record.seen_state or "", record.seen_health)
        asking = Asking(Look.DONE if record.looked else Look.WAIT)
        judged = [judge(seen, record.key, kinds, start, asking, math.inf) for kinds in wanted]
        for text in dict.fromkeys(each.message for each in judged if each.standing is Standing.NOT_YET):
            self.answer.say(text)
        for text in dict.fromkeys(
            each.message for each in judged if each.standing in {Standing.FAILED, Standing.BROKEN}
        ):
            self.answer.say(ENDED_UNSEEN(message=text))
        if all(each.standing is Standing.READY for each in judged):
            self.answer.say(READY_UNSEEN(app=describe(record.key)))

    def _tell_decision(self, record: Record, decision: Decision) -> None:
        if decision.verb is Verb.START:
            self.answer.say(NOT_WRITTEN(message=decision.message))
            return
        over = {Verb.SUCCEEDED, Verb.FAILED, Verb.STOPPED, Verb.MISMATCHED, Verb.LOST, Verb.SUPERSEDED}
        if decision.verb in over:
            self.answer.tell(ENDED_UNSEEN(message=decision.message), decision.finished_at, ARGOCD_CLOCK)
        else:
            self.answer.say(decision.message, self._since(decision, record), ARGOCD_CLOCK)

    def _since(self, decision: Decision, record: Record) -> str:
        """Since when it has been so, by Argo CD's clock: when the operation that is waited for began."""
        app = self.applications.get(record.key)
        if decision.started_at or decision.waiting is not Waiting.FOREIGN or not isinstance(app, Application):
            return decision.started_at or ""
        state = app.status.operation_state
        return state.started_at if state is not None and state.in_progress else ""

    def _tell_time(
        self,
        current: CurrentStep,
        metadata: StepExecutionMetadata,
        records: Sequence[Record],
        *,
        held: bool,
    ) -> None:
        uses = current.step.uses or ""
        if uses not in BUILT_IN:
            return
        limit = time_limit(current.step, BUILT_IN[uses].default_timeout)
        if limit is None:
            self.answer.say(NO_TIME_LIMIT())
            return
        allowed = in_short(limit)
        if held:
            self.answer.say(TIME_STANDS_STILL(limit=allowed))
            return
        times = [Time(record.free_since) for record in records if record.free_since and not record.state.final]
        begun = max((time.datetime for time in [metadata.started_at, *times] if time), default=None)
        if begun is None:
            return
        left = limit - (self.now - begun)
        self.answer.say(
            TIME_LEFT(left=in_short(left), limit=allowed) if left > timedelta() else TIME_OVER(limit=allowed)
        )


def _step_runs(current: CurrentStep, count: int) -> str:
    return STEP_RUNS(number=current.index + 1, count=count, alias=current.alias, uses=current.step.uses or "none")
