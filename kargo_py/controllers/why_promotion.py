"""What a Promotion waits for, and how one that has ended did."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from kargo_py.api.abort import ANNOTATION_ABORT, Abort, AbortError, latched_abort, read_abort
from kargo_py.api.promotion import Promotion, PromotionPhase, StepExecutionMetadata, phase_of
from kargo_py.api.stage import HealthState, Stage
from kargo_py.api.types import JsonObject, Time
from kargo_py.argocd.application import Application, describe
from kargo_py.argocd.operation import Decision, Knowledge, Verb, Waiting, decide_operation
from kargo_py.argocd.waiting import Asking, Look, Standing, Start, judge
from kargo_py.controllers.availability import unavailable
from kargo_py.controllers.events import STAGE_NOT_FOUND
from kargo_py.controllers.freight_choice import FREIGHT_NOT_FOUND, FREIGHT_UNREADABLE, NO_FREIGHT_NAMED
from kargo_py.controllers.promotion import (
    UNKNOWN_PHASE,
    cannot_run,
)
from kargo_py.controllers.promotion_stepping import NO_STEP_RUNS, NO_USES
from kargo_py.controllers.stage_queue import judging_left, since_last
from kargo_py.controllers.why import (
    ARGOCD_CLOCK,
    IS_BEING_DELETED,
    NOT_SEEN,
    NOTHING_HAPPENS,
    STILL_NAMED,
    Explanation,
    Hidden,
    Seen,
    Statement,
    freight_model,
    model_of,
    of_shard,
    queued,
    quiet_for,
    text_at,
)
from kargo_py.deployers.argocd_records import KIND as ARGOCD, intent_of
from kargo_py.deployers.base import Record, RecordError, TargetState
from kargo_py.engine.evaluation import EvaluationError, configuration_for, position_of, program_of
from kargo_py.engine.machine import CurrentStep, current_step, is_only_running
from kargo_py.engine.records import records_of
from kargo_py.engine.retries import time_limit
from kargo_py.expressions.lookups import Lookups, Missing
from kargo_py.kube.clock import in_short
from kargo_py.kube.codec import encode
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message
from kargo_py.steps.argocd_update import USES as ARGOCD_UPDATE
from kargo_py.steps.argocd_wait import NOT_CHOSEN_ANY_MORE, USES as ARGOCD_WAIT, ArgoCDWait, read_config, wanted_of
from kargo_py.steps.config import INVALID_CONFIGURATION
from kargo_py.steps.registry import BUILT_IN

ABORT_NOT_SEEN = message(
    "it is to be aborted, as {actor} asked; a controller that runs sees that at once",
    do="The Promotion becomes `Aborted` by itself. If it does not, no controller runs that acts on its Stage.",
    shown=Shown.ANSWER,
)
ABORT_UNDER_WAY = message(
    "it is being aborted, as {actor} asked; what runs is ended and waited for, as long as --abort-timeout of the "
    "controller says",
    do="The Promotion becomes `Aborted` by itself. `kargo-py abort promotion NAME --force` does not wait.",
    shown=Shown.ANSWER,
)
ABORT_FORCED = message(
    "it is being aborted by force, as {actor} asked; what runs is asked to end, and not waited for",
    do="The Promotion becomes `Aborted` at the next look of a controller, and says what was left to run.",
    shown=Shown.ANSWER,
)
WAS_ABORTED = message(
    "{actor} asked for the abort",
    do="The time is when a controller first saw the request. Create a new Promotion to promote again.",
    shown=Shown.ANSWER,
)
STAGE_GOES = message(
    'Stage "{stage}" is being deleted, so nothing begins there any more',
    do="The Promotion waits for good. Delete it, or create the Stage again once it is gone.",
    shown=Shown.ANSWER,
)
STAGE_WITHOUT_STEPS = message(
    'Stage "{stage}" has no steps: it only passes Freight on, and no Promotion begins there',
    do="Delete the Promotion, or give the Stage `spec.promotionTemplate` with steps.",
    shown=Shown.ANSWER,
)
BEHIND = message(
    'Promotion "{other}" runs on Stage "{stage}", and only one does at a time; kargo-py why promotion {other} says '
    "what it waits for",
    do="The Promotions of a Stage run one after another. Wait, or abort the one that runs.",
    shown=Shown.ANSWER,
)
IN_THE_QUEUE = message(
    'it is number {position} of {count} that wait for Stage "{stage}"',
    do="They run in the order in which they were created. An abort takes one out of the queue at once.",
    shown=Shown.ANSWER,
)
ANOTHER_FIRST = message(
    'Promotion "{other}" comes first on Stage "{stage}", and has not begun',
    do="The Promotions of a Stage run in the order in which they were created. Look at the one that is named.",
    shown=Shown.ANSWER,
)
STAGE_JUDGES = message(
    'Stage "{stage}" is {health}, and waits for a verdict on its last Promotion before the next one begins: {left} '
    "at most",
    do="Nothing to do. So Freight is not replaced before it was ever judged.",
    shown=Shown.ANSWER,
)
ITS_TURN = message(
    'it is its turn on Stage "{stage}"; a controller that runs begins it at once',
    do="Nothing to do. If it does not begin, see that a controller runs that acts on this Stage.",
    shown=Shown.ANSWER,
)
WILL_NOT_RUN = message(
    "as things are now it ends as Errored: {why}",
    do="Correct what is named before its turn comes, or abort it and create a new Promotion.",
    shown=Shown.ANSWER,
)
NOT_NAMED = message(
    'Stage "{stage}" does not name it as the Promotion that runs; it goes on when it does',
    do="The Stage's status was lost or edited. A controller that runs names it again at once.",
    shown=Shown.ANSWER,
)
ANOTHER_NAMED = message(
    'Stage "{stage}" names Promotion "{other}" as the one that runs; this one goes on when that has ended',
    do="The status of the Stage or of a Promotion was edited. Wait, or abort one of the two.",
    shown=Shown.ANSWER,
)
KIND_NOT_OURS = message(
    'the kind of step "{uses}" is none of those that kargo-py has by itself ({known}): unless the controller was given '
    "it, the Promotion ends as Errored there",
    do="Correct `uses` of the step, in the Stage's template too, and create a new Promotion; or see that the "
    "controller has this kind of step.",
    shown=Shown.ANSWER,
)
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
ATTEMPT = message(
    "{app}: this is attempt {number}",
    do="Earlier attempts were undone by others; three are made at most. See who else syncs the Application.",
    shown=Shown.ANSWER,
)
EARLIER_ATTEMPT = message(
    "{app}: attempt {number} ended as {state}: {message}",
    do="What became of an earlier attempt; look its message up under [In a Promotion](#in-a-promotion).",
    shown=Shown.ANSWER,
)
TARGET_ENDED = message(
    "{app}: {state}: {message}",
    do="How the sync of this Application ended; look the message up under [In a Promotion](#in-a-promotion).",
    shown=Shown.ANSWER,
)
TARGET_IS = message(
    "{app}: {state}",
    do="What is on record of the sync of this Application, for which there is no message.",
    shown=Shown.ANSWER,
)
TARGET_APPLIED = message(
    "{app}: {state} at {revision}",
    do="How the sync of this Application ended, and the revision that Argo CD applied.",
    shown=Shown.ANSWER,
)
OF_ANOTHER_KIND = message(
    '{kind} "{name}" in namespace "{namespace}"',
    do="What a step of another kind than kargo-py's own has on record; that step's author knows what it is.",
    shown=Shown.ANSWER,
)
CHANGED = message(
    "{app}: the start changed {pointer}, which was {value}",
    do="The spec stays so unless the message says that it was put back. Promote other Freight, or change it by hand.",
    shown=Shown.ANSWER,
)
ADDED = message(
    "{app}: the start added {pointer}",
    do="The spec stays so unless the message says that it was taken back. Promote other Freight, or remove it by hand.",
    shown=Shown.ANSWER,
)
STEP_ENDED = message(
    'step {number} of {count}, "{alias}", is {status}',
    do="How the step ended; the first step that failed decides how the Promotion did.",
    shown=Shown.ANSWER,
)
SAYING = message(
    "{text}: {message}",
    do="As above, with the message of the step; look that up under [In a Promotion](#in-a-promotion).",
    shown=Shown.ANSWER,
)
ASK_THE_STAGE = message(
    "whether what it brought is healthy and verified: kargo-py why stage {stage}",
    do="A Promotion ends with its syncs. Health and verification are the Stage's.",
    shown=Shown.ANSWER,
)

_WITHOUT_RECORDS: Final = BUILT_IN.keys() - {ARGOCD_UPDATE, ARGOCD_WAIT}
"""Kinds of steps that are done with all they started when a call of theirs ends."""
STEP_TIMES: Final[Mapping[str, timedelta | None]] = {uses: kind.default_timeout for uses, kind in BUILT_IN.items()}
"""The kinds of steps that the controllers of this version have, with how long a step takes at most by default."""

_MOST_TARGETS = 20
_LONGEST_VALUE = 120
_REACHED_NOTHING = frozenset({TargetState.NOT_STARTED, TargetState.REFUSED})


@dataclass(frozen=True, slots=True)
class PromotionFacts:
    """What was read. ``promotions``: those of the namespace; ``applications``: at least those of :func:`targets`."""

    promotion: JsonObject
    stage: Seen[JsonObject]
    freight: Seen[JsonObject]
    promotions: Sequence[JsonObject] | Hidden
    applications: Mapping[Key, Seen[Application]]
    now: datetime


def targets(promotion: JsonObject) -> Sequence[Key]:
    """The Applications that *promotion* has on record, the first few of them."""
    model = model_of(Promotion, promotion)
    try:
        records = records_of(model.status) if isinstance(model, Promotion) else ()
    except RecordError:
        return []
    return list(dict.fromkeys(record.key for record in records if record.kind == ARGOCD))[:_MOST_TARGETS]


def explain_promotion(facts: PromotionFacts) -> Explanation:
    """The answer."""
    raw = facts.promotion
    namespace, name = text_at(raw, "metadata", "namespace"), text_at(raw, "metadata", "name")
    promotion = model_of(Promotion, raw)
    if isinstance(promotion, str):
        return Explanation("Promotion", namespace, name, phase_of(raw), reasons=[Statement(promotion)])
    answer = _Answer(facts, promotion)
    answer.give()
    return Explanation(
        "Promotion",
        namespace,
        name,
        str(promotion.phase),
        answer.since,
        answer.reasons,
        list(dict.fromkeys(answer.unseen)),
    )


@dataclass(slots=True)
class _Answer:
    """An answer in the making."""

    facts: PromotionFacts
    promotion: Promotion
    reasons: list[Statement] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)

    @property
    def since(self) -> str:
        """Since when the Promotion is in its phase."""
        status, created = self.promotion.status, self.promotion.metadata.creation_timestamp
        if self.promotion.finished:
            return status.finished_at or ""
        return (status.started_at if self.promotion.running else created) or ""

    def give(self) -> None:
        """Find out everything."""
        promotion = self.promotion
        if promotion.finished:
            self._how_it_ended()
            return
        if promotion.metadata.deletion_timestamp:
            self.say(IS_BEING_DELETED(), promotion.metadata.deletion_timestamp)
        aborting = self._abort_asked()
        if promotion.phase not in {PromotionPhase.PENDING, PromotionPhase.RUNNING}:
            self.say(UNKNOWN_PHASE(phase=promotion.phase))
            return
        stage = self._stage()
        if promotion.running:
            self._how_it_runs()
            self._whose_turn(stage)
        elif stage is not None and not aborting:
            self._what_keeps_it(stage)

    def say(self, text: str, since: str | None = "", clock: str = "") -> None:
        """Something that is so."""
        self.reasons.append(Statement(text, since=since or "", clock=clock if since else ""))

    def tell(self, text: str, at: str | None = "", clock: str = "") -> None:
        """Something that has happened."""
        self.reasons.append(Statement(text, at=at or "", clock=clock if at else ""))

    def hidden(self, what: str, hidden: Hidden) -> None:
        self.unseen.append(NOT_SEEN(what=what, why=hidden.why))

    # -- what there is ----------------------------------------------------------------------------------------------

    def _abort_asked(self) -> bool:
        """Whether an abort was asked for, kept by the controller or not seen yet."""
        kept = latched_abort(self.promotion.status.state)
        try:
            new = read_abort(self.promotion.metadata.annotations.get(ANNOTATION_ABORT))
        except AbortError as error:
            self.say(str(error))
            new = None
        if kept is not None:
            forced = kept.force or (new is not None and new.force)
            self.say(_under_way(kept, forced=forced), kept.since)
        elif new is not None:
            self.say(ABORT_NOT_SEEN(actor=new.by))
        return kept is not None or new is not None

    def _stage(self) -> Stage | None:
        """The Stage if it could be seen and lets Promotions begin."""
        name, namespace = self.promotion.spec.stage, self.promotion.namespace
        seen = self.facts.stage
        if isinstance(seen, Hidden):
            self.hidden(f'Stage "{name}"', seen)
            return None
        if seen is None:
            self.say(STAGE_NOT_FOUND(stage=name, namespace=namespace))
            return None
        stage = model_of(Stage, seen)
        if isinstance(stage, str):
            self.say(stage)
            return None
        if stage.metadata.deletion_timestamp:
            self.say(STAGE_GOES(stage=name), stage.metadata.deletion_timestamp)
        elif stage.is_control_flow:
            self.say(STAGE_WITHOUT_STEPS(stage=name))
        else:
            return stage
        return None

    def _whose_turn(self, stage: Stage | None) -> None:
        """A Promotion that runs goes on only as long as its Stage names it."""
        if stage is None:
            return
        current = stage.status.current_promotion
        if current is None:
            self.say(NOT_NAMED(stage=stage.name))
        elif current.name != self.promotion.name:
            self.say(ANOTHER_NAMED(stage=stage.name, other=current.name))

    # -- pending ----------------------------------------------------------------------------------------------------

    def _what_keeps_it(self, stage: Stage) -> None:
        """Why it has not begun."""
        current = stage.status.current_promotion
        turn = self._turn(stage)
        if (why := self._fault(stage)) is not None:
            self.say(WILL_NOT_RUN(why=why))
        kinds = dict.fromkeys(step.uses for step in self.promotion.spec.steps or () if step.uses)
        for uses in kinds.keys() - STEP_TIMES.keys():
            self.say(KIND_NOT_OURS(uses=uses, known=", ".join(sorted(STEP_TIMES))))
        if not turn:
            return
        promoting = next((c.last_transition_time for c in stage.status.conditions if c.type == "Promoting"), None)
        mine = current is not None and current.name == self.promotion.name
        since = (promoting if mine else None) or self.promotion.metadata.creation_timestamp
        if (quiet := quiet_for(since, self.facts.now)) is not None:
            self.say(NOTHING_HAPPENS(time=quiet, whose=of_shard(stage)), since)

    def _turn(self, stage: Stage) -> bool:
        """Whether nothing but a controller keeps it from beginning; says what else does."""
        name, current = self.promotion.name, stage.status.current_promotion
        hidden = isinstance(self.facts.promotions, Hidden)
        if isinstance(self.facts.promotions, Hidden):
            self.hidden("the queue", self.facts.promotions)
            waiting = [self.facts.promotion]
        else:
            waiting = queued(self.facts.promotions, stage.name)
        names = [text_at(p, "metadata", "name") for p in waiting]
        if current is not None and current.name == name:
            self.say(ITS_TURN(stage=stage.name))
            return True
        behind = [other for other in names if current is None or other != current.name]
        position = behind.index(name) + 1 if name in behind else 1
        if current is not None and not hidden and current.name not in names:
            self.say(STILL_NAMED(stage=stage.name, other=current.name))
        elif current is not None:
            since = next((text_at(p, "status", "startedAt") for p in waiting if _is(p, current.name)), "")
            self.say(BEHIND(other=current.name, stage=stage.name), since)
        elif position > 1:
            self.say(ANOTHER_FIRST(other=behind[0], stage=stage.name))
        if current is not None or position > 1:
            if not hidden:
                self.say(IN_THE_QUEUE(position=position, count=max(len(behind), 1), stage=stage.name))
            return False
        if (left := judging_left(stage.status, since_last(stage.status, self.facts.now))) is not None:
            health = stage.status.health.status if stage.status.health is not None else HealthState.UNKNOWN
            self.say(STAGE_JUDGES(stage=stage.name, health=health, left=in_short(timedelta(seconds=left))))
            return False
        self.say(ITS_TURN(stage=stage.name))
        return True

    def _fault(self, stage: Stage) -> str | None:
        """Why it will not run as it is, as far as that can be told now; a controller fills in what is not there."""
        if self.promotion.spec.steps and (why := cannot_run(self.promotion, stage)) is not None:
            return why
        for step in self.promotion.spec.steps or ():
            if step.uses is None and step.task is None and not step.continue_on_error and not step.if_:
                return NO_USES()
        return self._freight_fault(stage)

    def _freight_fault(self, stage: Stage) -> str | None:
        name, seen = self.promotion.spec.freight, self.facts.freight
        if not name:
            return NO_FREIGHT_NAMED() if self.promotion.spec.origin is None else None
        if isinstance(seen, Hidden):
            self.hidden(f'Freight "{name}"', seen)
            return None
        if seen is None:
            return FREIGHT_NOT_FOUND(freight=name, namespace=self.promotion.namespace)
        freight = freight_model(seen)
        if freight is None:
            return FREIGHT_UNREADABLE(freight=name)
        return unavailable(stage, freight, self.facts.now)

    # -- running ----------------------------------------------------------------------------------------------------

    def _how_it_runs(self) -> None:
        """What the step that runs waits for."""
        promotion = self.promotion
        current, steps = current_step(promotion), promotion.spec.steps or ()
        if current is None and is_only_running(promotion) and steps:
            current = CurrentStep(0, steps[0].alias(0), steps[0], started=False)
        if current is None:
            self.say(NO_STEP_RUNS())
            return
        if not current.started:
            self.say(STEP_NOT_BEGUN(number=current.index + 1, count=len(steps), alias=current.alias))
            if promotion.status.message:
                self.say(CONTROLLER_SAYS(message=promotion.status.message))
            return
        metadata = promotion.status.step_execution_metadata[-1]
        try:
            records = records_of(promotion.status, current.alias)
        except RecordError as error:
            self.say(str(error))
            records = ()
        for record in [each for each in records if each.kind == ARGOCD_WAIT][:_MOST_TARGETS]:
            self._tell_wait(current, record)
        looks = [(attempts, self._look(attempts[-1])) for attempts in _by_target(records)[:_MOST_TARGETS]]
        for attempts, decision in looks:
            if decision is not None:
                self._tell_decision(attempts[-1], decision)
        told = {statement.text for statement in self.reasons}
        if metadata.message and metadata.message not in told:
            self.say(CONTROLLER_SAYS(message=metadata.message))
        if not records and current.step.uses not in _WITHOUT_RECORDS:
            self.say(NOTHING_RECORDED())
        self.say(_step_runs(current, len(promotion.spec.steps or ())), metadata.started_at)
        for attempts, _ in looks:
            self._tell_attempts(attempts)
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
        seen = self.facts.applications.get(record.key)
        if isinstance(seen, Hidden):
            self.hidden(describe(record.key), seen)
            return None
        stopping = latched_abort(self.promotion.status.state) is not None or record.stopping_since is not None
        return decide_operation(seen, intent_of(record), Knowledge(stopping=stopping))

    def _tell_wait(self, current: CurrentStep, record: Record) -> None:
        """What keeps an Application from being as the step waits for; as if it had not changed for long."""
        seen = self.facts.applications.get(record.key)
        if isinstance(seen, Hidden):
            self.hidden(describe(record.key), seen)
            return
        program, position = program_of(self.promotion), position_of(self.promotion, current.index)
        try:
            config = configuration_for(ArgoCDWait, program, position, Lookups(), self.facts.now)
        except (EvaluationError, Missing):
            # What it became is not on record; the controller's message is.
            return
        try:
            wanted = wanted_of(read_config(config), record, record.namespace)
        except ValueError as error:
            self.say(ENDED_UNSEEN(message=INVALID_CONFIGURATION(faults=error)))
            return
        if wanted is None:
            self.say(ENDED_UNSEEN(message=NOT_CHOSEN_ANY_MORE(app=describe(record.key))))
            return
        start = Start(record.uid, record.seen_state or "", record.seen_health)
        asking = Asking(Look.DONE if record.looked else Look.WAIT)
        judged = [judge(seen, record.key, kinds, start, asking, math.inf) for kinds in wanted]
        for text in dict.fromkeys(each.message for each in judged if each.standing is Standing.NOT_YET):
            self.say(text)
        for text in dict.fromkeys(
            each.message for each in judged if each.standing in {Standing.FAILED, Standing.BROKEN}
        ):
            self.say(ENDED_UNSEEN(message=text))
        if all(each.standing is Standing.READY for each in judged):
            self.say(READY_UNSEEN(app=describe(record.key)))

    def _tell_decision(self, record: Record, decision: Decision) -> None:
        if decision.verb is Verb.START:
            self.say(NOT_WRITTEN(message=decision.message))
            return
        over = {Verb.SUCCEEDED, Verb.FAILED, Verb.STOPPED, Verb.MISMATCHED, Verb.LOST, Verb.SUPERSEDED}
        if decision.verb in over:
            self.tell(ENDED_UNSEEN(message=decision.message), decision.finished_at, ARGOCD_CLOCK)
        else:
            self.say(decision.message, self._since(decision, record), ARGOCD_CLOCK)

    def _since(self, decision: Decision, record: Record) -> str:
        """Since when it has been so, by Argo CD's clock: when the operation that is waited for began."""
        app = self.facts.applications.get(record.key)
        if decision.started_at or decision.waiting is not Waiting.FOREIGN or not isinstance(app, Application):
            return decision.started_at or ""
        state = app.status.operation_state
        return state.started_at if state is not None and state.in_progress else ""

    def _tell_attempts(self, attempts: Sequence[Record]) -> None:
        *earlier, last = attempts
        app = _target(last)
        if last.state.final:
            self._tell_end(last)
        elif earlier:
            self.say(ATTEMPT(app=app, number=last.attempt))
        for record in earlier:
            said = EARLIER_ATTEMPT(app=app, number=record.attempt, state=record.state.value, message=record.message)
            self.tell(said, record.finished_at, _clock(record))

    def _tell_time(
        self, current: CurrentStep, metadata: StepExecutionMetadata, records: Sequence[Record], *, held: bool
    ) -> None:
        uses = current.step.uses or ""
        if uses not in STEP_TIMES:
            return
        limit = time_limit(current.step, STEP_TIMES[uses])
        if limit is None:
            self.say(NO_TIME_LIMIT())
            return
        allowed = in_short(limit)
        if held:
            self.say(TIME_STANDS_STILL(limit=allowed))
            return
        times = [Time(record.free_since) for record in records if record.free_since and not record.state.final]
        begun = max((time.datetime for time in [metadata.started_at, *times] if time), default=None)
        if begun is None:
            return
        left = limit - (self.facts.now - begun)
        self.say(TIME_LEFT(left=in_short(left), limit=allowed) if left > timedelta() else TIME_OVER(limit=allowed))

    # -- ended ------------------------------------------------------------------------------------------------------

    def _how_it_ended(self) -> None:
        """What the record says of the end."""
        promotion = self.promotion
        if promotion.status.message:
            self.tell(promotion.status.message, promotion.status.finished_at)
        kept = latched_abort(promotion.status.state)
        if kept is not None and promotion.phase == PromotionPhase.ABORTED:
            self.tell(WAS_ABORTED(actor=kept.by), kept.since)
        self._tell_steps()
        try:
            grouped = _by_target(records_of(promotion.status))
        except RecordError as error:
            self.say(str(error))
            grouped = []
        for attempts in grouped[:_MOST_TARGETS]:
            self._tell_attempts(attempts)
            if promotion.phase != PromotionPhase.SUCCEEDED:
                self._tell_changes(attempts)
        if promotion.phase == PromotionPhase.SUCCEEDED:
            self.say(ASK_THE_STAGE(stage=promotion.spec.stage))

    def _tell_steps(self) -> None:
        steps = self.promotion.status.step_execution_metadata
        count = max(len(self.promotion.spec.steps or ()), len(steps))
        for number, step in enumerate(steps, 1):
            text = STEP_ENDED(number=number, count=count, alias=step.alias, status=step.status or "not begun")
            if step.message and step.message not in self.promotion.status.message:
                text = SAYING(text=text, message=step.message)
            self.tell(text, step.finished_at)

    def _tell_end(self, record: Record) -> None:
        app, state = _target(record), record.state.value
        said = record.message.removeprefix(f"{app}: ")
        if record.state is TargetState.SUCCEEDED and record.revisions:
            text = TARGET_APPLIED(app=app, state=state, revision=", ".join(record.revisions))
        else:
            text = TARGET_ENDED(app=app, state=state, message=said) if said else TARGET_IS(app=app, state=state)
        self.tell(text, record.finished_at, _clock(record))

    def _tell_changes(self, attempts: Sequence[Record]) -> None:
        """What the starts have changed in the spec; of several attempts the last one's former value counts."""
        begun = [record for record in attempts if record.state not in _REACHED_NOTHING]
        told = {change.pointer: change for record in begun for change in record.before}
        app = _target(attempts[-1])
        for pointer, change in told.items():
            if change.value is None:
                self.say(ADDED(app=app, pointer=pointer))
            else:
                self.say(CHANGED(app=app, pointer=pointer, value=_shown(change.value)))


def _is(promotion: JsonObject, name: str) -> bool:
    return text_at(promotion, "metadata", "name") == name


def _under_way(kept: Abort, *, forced: bool) -> str:
    return ABORT_FORCED(actor=kept.by) if forced else ABORT_UNDER_WAY(actor=kept.by)


def _step_runs(current: CurrentStep, count: int) -> str:
    return STEP_RUNS(number=current.index + 1, count=count, alias=current.alias, uses=current.step.uses or "none")


def _target(record: Record) -> str:
    """What the record is about, in words."""
    if record.kind in {ARGOCD, ARGOCD_WAIT}:
        return describe(record.key)
    return OF_ANOTHER_KIND(kind=record.kind, name=record.name, namespace=record.namespace)


def _clock(record: Record) -> str:
    return ARGOCD_CLOCK if record.kind == ARGOCD else ""


def _by_target(records: Sequence[Record]) -> list[list[Record]]:
    """The attempts of each step on each target, oldest first."""
    grouped: dict[tuple[str, str, Key], list[Record]] = {}
    for record in records:
        grouped.setdefault((record.step, record.kind, record.key), []).append(record)
    return [sorted(attempts, key=lambda record: record.attempt) for attempts in grouped.values()]


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else encode(value).decode()
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"
