"""Runs the steps of a Promotion: one after another, until one of them waits or all are through.

What a call of a step means is decided in :mod:`kargo_py.engine.stepping`; here it is made, and what it means is
written. There is one write for each wait, not for each step: what was done since the last write can be done again, or
was no effect outside the Promotion. Steps of which that does not hold say so (:class:`~kargo_py.steps.step.Effect`).
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from kargo_py.api.abort import ANNOTATION_ABORT, AbortError, read_abort
from kargo_py.api.freight import FreightReference
from kargo_py.api.names import ANNOTATION_CREATE_ACTOR, Actor
from kargo_py.api.promotion import Promotion, PromotionPhase, StepStatus
from kargo_py.controllers.events import step_warning_event
from kargo_py.controllers.lookups import LookupReader, LookupRefused
from kargo_py.controllers.promotion_filling import Filling, outcome_of_answer, work_dir_use
from kargo_py.controllers.promotion_runs import Owed, StepRun, Turn
from kargo_py.controllers.promotion_waiting import gather_time, is_urgent, status_of_wait
from kargo_py.controllers.promotion_writing import Writer
from kargo_py.controllers.telling import Teller
from kargo_py.controllers.world import World
from kargo_py.deployers.base import WaitCause, footprint
from kargo_py.engine.evaluation import (
    EvaluationError,
    Program,
    condition,
    configuration,
    configuration_for,
    has_expressions,
    is_long,
    may_look_up,
    may_use_secrets,
    position_of,
    program_of,
)
from kargo_py.engine.execution import TimedOut
from kargo_py.engine.guarding import nonsense
from kargo_py.engine.machine import CurrentStep, current_step, fail, with_refresh
from kargo_py.engine.masking import masked_error, recordable
from kargo_py.engine.outputs import output_of
from kargo_py.engine.records import awaited_of, records_of
from kargo_py.engine.retries import (
    TOLERATED,
    Rules,
    asked_of,
    asked_threshold,
    is_passing,
    outcome_of,
    pause_after,
    rules_of,
)
from kargo_py.engine.stepping import (
    STEP_TIMED_OUT,
    Then,
    advance,
    has_failed,
    hold_step,
    refuse_step,
    skip_step,
    start_step,
    without_retry,
)
from kargo_py.expressions.lookups import Lookups, TooManyLookups, resolved
from kargo_py.kube.clock import Steady
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.controller import Result
from kargo_py.kube.errors import KubeError
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message
from kargo_py.steps.base import ROOM, Erred, Finished, Intend, StepContext, StepOutcome, Waiting
from kargo_py.steps.step import Effect, Step, WorkDirUse

NO_STEP_RUNS = message(
    "status.currentStep and status.stepExecutionMetadata do not say which step is running; they were written by "
    "something else, so the Promotion cannot be continued: create a new one",
    do="Somebody edited the steps or the status of a running Promotion. Look at the Applications to see whether a "
    "sync of it runs, then create a new one.",
    shown=Shown.PROMOTION,
)
NO_USES = message(
    "the step has no uses; tasks must be replaced by their steps first",
    do="Write the steps of the task into the Promotion: kargo-py has no webhook that would do it.",
    shown=Shown.PROMOTION,
)
KIND_NOT_REGISTERED = message(
    'the kind of step "{uses}" is not registered; there are: {known}',
    do="Correct `uses` of the step, in the Stage's template too, to one of those that are there.",
    shown=Shown.PROMOTION,
)

SECRETS_UNREADABLE = message(
    "a Secret that steps before have used cannot be read again, so what must not be told is not known: {why}",
    do="After a restart the controller reads the Secrets that earlier steps have used, to mask them. Mend what the API "
    "server says of it, then create a new Promotion.",
    shown=Shown.PROMOTION,
)
NOTHING_NEW = message(
    "Intend, again and again, with what is on record already",
    do="Part of *the kind of step answered what it may not*: it has to go on once its intents are on record. A fault "
    "of the kind of step. Tell its author.",
    shown=Shown.PROMOTION,
)

LOOK_AGAIN = 60.0
"""Seconds after which a Promotion that waits is looked at even if no event woke it."""

LEAST_PAUSE = 0.05
"""Seconds; a step that wants to be called again at once is not called in a busy loop."""

_MOST_INTENTS = 20
"""How often in one pass a step may have something written; then others have their turn, and an abort is seen."""

_MOST_IDLE = 5
"""How often in a row a step may have something written that is there already; it would do so for ever."""

T = TypeVar("T")


class Stepping:
    """Runs steps; *enqueue* makes a Promotion come again at once."""

    def __init__(self, world: World, writer: Writer, teller: Teller, enqueue: Callable[[Key], None]) -> None:
        self._world = world
        self._writer = writer
        self._teller = teller
        self._enqueue = enqueue
        self._filling = Filling(world, self._context_again, enqueue)
        self._reader = LookupReader(world.client, world.shared_resources_namespace)

    async def go_on(self, turn: Turn) -> Result | None:
        """Step after step, until one waits or all are through. Raises DeletedError, RecordError and KubeError."""
        intents = 0
        if turn.run.knows_secrets is None and (result := await self._secrets_known(turn)) is not None:
            return result
        while not turn.promotion.finished:
            current = current_step(turn.promotion)
            if current is None:
                turn.promotion = fail(turn.promotion, PromotionPhase.ERRORED, NO_STEP_RUNS(), self._world.now())
                break
            if turn.run.owed is not None and may_look_up(current.step, turn.promotion.spec.vars):
                # To read takes a while, in which this process may die.
                await self._writer.record(turn)
            if not current.started:
                result = await self._enter(turn, current)
            else:
                result, intends = await self._run(turn, current)
                intents = intents + 1 if intends else 0
                if intents > _MOST_INTENTS:
                    return Result(requeue_after=LEAST_PAUSE)
            if result is not None:
                return result
        await self._writer.end(turn.raw, turn.promotion)
        return None

    async def _secrets_known(self, turn: Turn) -> Result | None:
        """Learn what must not be told; a Result if that has to be tried again. The step has its time meanwhile, too."""
        run = turn.run
        try:
            await self._learn_secrets(turn)
        except KubeError as error:
            run.learning_since = _loop_time() if run.learning_since is None else run.learning_since
            current = current_step(turn.promotion)
            kind = self._world.steps.get(current.step.uses or "") if current is not None and current.started else None
            left = None
            if current is not None and kind is not None:
                left = _time_left(self.context(turn, current, kind), kind)
            if left is not None and left <= 0:
                return None
            if is_passing(error) and _loop_time() - run.learning_since < TOLERATED.total_seconds():
                return Result(requeue_after=left, error=error)
            why = SECRETS_UNREADABLE(why=error)
            turn.promotion = fail(turn.promotion, PromotionPhase.ERRORED, why, self._world.now())
        return None

    async def _learn_secrets(self, turn: Turn) -> None:
        """Read the Secrets that the steps of a process before this one have used: what they know may be put out yet."""
        promotion = turn.promotion
        # There may be more of the one than of the other: where somebody has edited them.
        begun = zip(promotion.spec.steps or (), promotion.status.step_execution_metadata, strict=False)
        for index, (step, metadata) in enumerate(begun):
            if metadata.started_at is None or not may_use_secrets(step, promotion.spec.vars):
                continue
            kind = self._world.steps.get(step.uses or "")
            evaluate = configuration if kind is None else partial(configuration_for, type(kind))
            at = CurrentStep(index, metadata.alias, step)
            try:
                await self._evaluated(turn, at, evaluate, Lookups(turn.run.secrets))
            except (EvaluationError, LookupRefused):
                # It has been read once, and somebody has changed that since: what is read there now is no secret of it.
                continue
        turn.run.knows_secrets = True

    # -- entering -------------------------------------------------------------------------------------------------

    async def _enter(self, turn: Turn, current: CurrentStep) -> Result | None:
        """Start the step, or go on after it, as its ``if`` says; a Result if that cannot be told yet."""
        world, uses = self._world, current.step.uses
        run = turn.run.at(current.alias)
        try:
            if current.step.if_:
                wanted = await self._evaluated(turn, current, condition, run.lookups)
            else:
                wanted = not has_failed(turn.promotion.status)
        except (EvaluationError, LookupRefused) as error:
            turn.promotion = refuse_step(turn.promotion, current, turn.run.secrets.mask(str(error)), world.now())
            return None
        except KubeError as error:
            return await self._not_entered(turn, current, run, error)
        now = world.now()
        if not wanted:
            turn.promotion = skip_step(turn.promotion, current, now)
        elif uses is None:
            turn.promotion = refuse_step(turn.promotion, current, NO_USES(), now)
        elif uses not in world.steps:
            why = KIND_NOT_REGISTERED(uses=uses, known=", ".join(sorted(world.steps)))
            turn.promotion = refuse_step(turn.promotion, current, why, now)
        else:
            run.clock, run.errs, run.failing_since = Steady(now, _loop_time()), 0, None
            turn.promotion = start_step(turn.promotion, current, now)
        return None

    async def _not_entered(self, turn: Turn, current: CurrentStep, run: StepRun, error: KubeError) -> Result | None:
        """What the ``if`` needs could not be read: try again, unless that is of no use any more."""
        now = _loop_time()
        run.failing_since = now if run.failing_since is None else run.failing_since
        said = turn.run.secrets.mask(str(error))
        if not is_passing(error) or now - run.failing_since >= TOLERATED.total_seconds():
            turn.promotion = refuse_step(turn.promotion, current, said, self._world.now())
            return None
        run.errs += 1
        turn.promotion = hold_step(turn.promotion, current, said)
        await self._writer.record(turn)
        return Result(requeue_after=pause_after(run.errs, asked_of(error)))

    async def _evaluated(self, turn: Turn, step: CurrentStep, evaluate: Callable[..., T], lookups: Lookups) -> T:
        """What *evaluate* makes of the step, with all that its expressions look up read into *lookups*.

        Raises EvaluationError, LookupRefused and KubeError.
        """
        project, now = turn.promotion.namespace, self._world.now()
        program, position = self._program(turn.promotion), position_of(turn.promotion, step.index)
        try:
            return await resolved(
                lambda: evaluate(program, position, lookups, now),
                lookups,
                partial(self._reader.read, project),
                aside=partial(self._world.aside.call, project),
                long=is_long(program, position),
            )
        except TooManyLookups as error:
            raise EvaluationError(str(error)) from error
        except KubeError as error:
            # It names what was asked for, and may end up in the log.
            raise masked_error(error, turn.run.secrets) from None

    def _program(self, promotion: Promotion) -> Program:
        freights, models = self._world.freights, self._world.freight_models
        freight = models.read(freights.get(Key(promotion.namespace, promotion.spec.freight or "")))
        program = program_of(promotion, freight=freight, ui_base_url=self._world.ui_base_url)
        return dataclasses.replace(program, freight=[self._whole(promotion, each) for each in program.freight])

    def _whole(self, promotion: Promotion, reference: FreightReference) -> FreightReference:
        """*reference* with what there was no room for in the Promotion."""
        if reference.commits or reference.images or reference.charts or reference.artifacts:
            return reference
        found = self._world.freights.get(Key(promotion.namespace, reference.name))
        freight = self._world.freight_models.read(found)
        return freight.reference() if freight is not None else reference

    # -- running --------------------------------------------------------------------------------------------------

    async def _run(self, turn: Turn, current: CurrentStep) -> tuple[Result | None, bool]:
        """Call the step once; a Result if it waits, and whether it has had something written."""
        world, run = self._world, turn.run.at(current.alias)
        kind = world.steps.get(current.step.uses or "")
        if kind is None:
            why = KIND_NOT_REGISTERED(uses=current.step.uses, known=", ".join(sorted(world.steps)))
            return await self._after(turn, current, Finished(StepStatus.ERRORED, why), Rules()), False
        rules = rules_of(current.step, kind)
        context = self.context(turn, current, kind)
        left = _time_left(context, kind)
        limit = None if kind.keeps_time else left
        if limit is not None and limit <= 0:
            return await self._after_time(turn, current, kind, rules)
        is_fresh = with_refresh(turn.promotion) is not turn.promotion
        if (pause := run.again_at - _loop_time()) > 0 and (left is None or left > 0) and not is_fresh:
            return _again(pause, left), False
        faulty, work_dir = await self._prepare(turn, current, kind), None
        if faulty is None and work_dir_use(kind, current.step) is not WorkDirUse.NONE:
            found = await self._filling.work_dir(turn, current)
            if found is None:
                return await self._under_way(turn, current, limit), False
            work_dir, faulty = (found, None) if isinstance(found, Path) else (None, found)
        if faulty is None:
            spare = self._spare(turn, context)
            context = dataclasses.replace(context, config=run.config, spare=spare, work_dir=work_dir)
            done = partial(self._enqueue, turn.key)
            answer = await world.executor.call(turn.run.call, kind, context, time_left=limit, done=done)
            if answer is None:
                return await self._under_way(turn, current, limit), False
            if isinstance(answer, TimedOut):
                return await self._after_time(turn, current, kind, rules)
            outcome = outcome_of_answer(answer)
        else:
            outcome = faulty
        result = await self._after(turn, current, outcome, rules, left=left, limit=limit)
        return result, isinstance(outcome, Intend)

    async def _prepare(self, turn: Turn, current: CurrentStep, kind: Step[Any]) -> StepOutcome | None:
        """Evaluate the configuration, and write what must be on record before the call; an outcome if there is none."""
        run, config = turn.run.at(current.alias), current.step.config
        if not run.is_evaluated and has_expressions(config):
            evaluate = partial(configuration_for, type(kind))
            try:
                run.config = await self._evaluated(turn, current, evaluate, run.lookups)
            except EvaluationError as error:
                return Finished(StepStatus.ERRORED, str(error))
            except LookupRefused as error:
                return Erred(str(error))
            except KubeError as error:
                return outcome_of(error)
            run.is_evaluated = True
        elif not run.is_evaluated:
            run.config = config
        if run.effect is None:
            run.effect = _effect(kind, run.config)
        begins = turn.recorded.status.freight is None and run.effect in {Effect.REPEATABLE, Effect.ONCE}
        if turn.run.owed is not None or begins or (run.effect is Effect.ONCE and turn.is_unwritten):
            await self._writer.record(turn)
        return None

    async def context_to_stop(self, turn: Turn, current: CurrentStep, kind: Step[Any], *, give_up: bool) -> StepContext:
        """What a step that is to stop is called with: its configuration evaluated, if it still can be.

        After a restart that is done anew. Raises KubeError, unless it is given up.
        """
        context, run = self.context(turn, current, kind), turn.run.at(current.alias)
        if run.is_evaluated:
            return dataclasses.replace(context, config=run.config)
        if not has_expressions(context.config):
            return context
        try:
            config = await self._evaluated(turn, current, partial(configuration_for, type(kind)), run.lookups)
        except (EvaluationError, LookupRefused):
            return context
        except KubeError:
            if not give_up:
                raise
            return context
        run.config, run.is_evaluated = config, True
        return dataclasses.replace(context, config=config)

    def context(self, turn: Turn, current: CurrentStep, kind: Step[Any]) -> StepContext:
        """What the current step is called with, but for its configuration as it is evaluated."""
        return self._context(turn, current, kind, self._clock(turn, current))

    def _context(self, turn: Turn, current: CurrentStep, kind: Step[Any], clock: Steady) -> StepContext:
        promotion = turn.promotion
        metadata = promotion.status.step_execution_metadata[current.index]
        context = StepContext(
            instance=self._world.instance,
            project=promotion.namespace,
            stage=promotion.spec.stage,
            promotion=promotion.name,
            promotion_uid=promotion.metadata.uid,
            actor=Actor.of(promotion.metadata.annotations.get(ANNOTATION_CREATE_ACTOR)),
            alias=current.alias,
            config=current.step.config,
            now=clock.now(_loop_time()),
            started_at=clock.began,
            wall_clock=self._world.now(),
            timeout=rules_of(current.step, kind).timeout,
            patience=self._world.abort_patience,
            records=records_of(promotion.status, current.alias),
            taken_over=turn.taken_over,
            awaited=awaited_of(promotion.status, current.alias),
            output=output_of(promotion.status, current.alias),
            called_off=partial(self._called_off, promotion),
            errors=metadata.error_count,
            threshold=asked_threshold(current.step),
            freight=promotion.status.freight,
            collection=promotion.status.freight_collection,
            mask=turn.run.secrets.mask,
        )
        return dataclasses.replace(context, spare=self._spare(turn, context))

    async def _context_again(self, turn: Turn, step: CurrentStep, kind: Step[Any]) -> StepContext:
        """What a *step* that has ended is called with once more; raises as :meth:`_evaluated`."""
        lookups = Lookups(turn.run.secrets)
        config = await self._evaluated(turn, step, partial(configuration_for, type(kind)), lookups)
        context = self._context(turn, step, kind, Steady(self._world.now(), _loop_time()))
        return dataclasses.replace(context, config=config, records=(), awaited=(), errors=0)

    def _spare(self, turn: Turn, context: StepContext) -> Callable[[], int]:
        raw, records = turn.raw, context.records
        return lambda: ROOM - (len(encode(raw)) - footprint(records))

    def _called_off(self, promotion: Promotion) -> bool:
        """Whether *promotion*, which is being worked on, is to be aborted by now, or is gone.

        A pass over many targets may take minutes where Argo CD's API server is slow.
        """
        meta = promotion.metadata
        raw = self._world.promotions.get(Key(meta.namespace, meta.name))
        if raw is None or JSON.meta(raw).uid != meta.uid:
            return True
        try:
            asked = read_abort((raw["metadata"].get("annotations") or {}).get(ANNOTATION_ABORT))
        except AbortError:
            asked = None
        return asked is not None or raw["metadata"].get("deletionTimestamp") is not None

    # -- time -----------------------------------------------------------------------------------------------------

    def _clock(self, turn: Turn, current: CurrentStep) -> Steady:
        """The step's own, from when this process started it or first saw that it runs."""
        run, now = turn.run.at(current.alias), self._world.now()
        if run.clock is None:
            started_at = turn.promotion.status.step_execution_metadata[current.index].started_at
            run.clock = Steady.since(started_at.datetime if started_at is not None else now, now, _loop_time())
        return run.clock

    async def _after_time(
        self, turn: Turn, current: CurrentStep, kind: Step[Any], rules: Rules
    ) -> tuple[Result | None, bool]:
        """As :meth:`_run`, of a step whose time is up."""
        outcome = await self._timed_out(turn, current, kind)
        intends = isinstance(outcome, Intend)
        turn.run.at(current.alias).late += intends
        return await self._after(turn, current, outcome, rules, timed_out=True), intends

    async def _timed_out(self, turn: Turn, current: CurrentStep, kind: Step[Any]) -> StepOutcome:
        """The time of the step is up: how it ends."""
        run, context = turn.run.at(current.alias), await self.context_to_stop(turn, current, kind, give_up=True)
        given = await self._world.executor.cancel(turn.run.call)
        if isinstance(given, Finished):
            # It ended while it was being cancelled.
            return given
        noted = turn.promotion.status.step_execution_metadata[-1].message
        last = without_retry(noted) or run.said
        text = STEP_TIMED_OUT(alias=context.alias, time=context.time) + (f": {last}" if last else "")
        outcome = outcome_of_answer(await self._world.executor.time_out(kind, context, text))
        overdue = -(_time_left(context, kind) or 0.0)
        match outcome:
            case Erred():
                text = f"{text}; {outcome.message}"
            case Intend() if run.late >= _MOST_INTENTS:
                pass
            case Waiting() if overdue >= self._patience:
                pass
            case _:
                return outcome
        return await Step.time_out(kind, context, text)

    @property
    def _patience(self) -> float:
        """Seconds for which it is waited that a step ends whose time is up."""
        return self._world.abort_patience.total_seconds()

    # -- what follows a call --------------------------------------------------------------------------------------

    async def _after(
        self,
        turn: Turn,
        current: CurrentStep,
        outcome: StepOutcome,
        rules: Rules,
        *,
        left: float | None = None,
        limit: float | None = None,
        timed_out: bool = False,
    ) -> Result | None:
        """Go on as *outcome* says; a Result if the Promotion waits.

        *left*: seconds that the step may still take. *limit*: the same, if the step does not see to that itself.
        """
        world, run = self._world, turn.run.at(current.alias)
        outcome = recordable(outcome, current.alias, turn.run.secrets, used_secrets=run.lookups.has_secrets)
        self._note(run, outcome)
        tolerant = self._is_tolerant(run, rules, left)
        transition = advance(
            turn.promotion, current, outcome, world.now(), rules, tolerant=tolerant, timed_out=timed_out
        )
        turn.promotion = transition.promotion
        match transition.then:
            case Then.RECORD:
                run.idle = run.idle + 1 if turn.promotion.status == turn.recorded.status else 0
                if run.idle > _MOST_IDLE and not timed_out:
                    ended = nonsense(NOTHING_NEW())
                    return await self._after(turn, current, ended, rules, left=left, limit=limit)
                if isinstance(outcome, Intend) and outcome.warning:
                    world.recorder.record(step_warning_event(turn.promotion, current.alias, outcome.warning))
                await self._writer.record(turn)
            case Then.WAIT:
                assert isinstance(outcome, Waiting)  # noqa: S101 - as advance says
                if outcome.polls:
                    run.again_at = _loop_time() + _again_in(outcome)
                return await self.wait(turn, current, outcome, limit)
            case Then.PAUSE:
                assert isinstance(outcome, Erred)  # noqa: S101 - as advance says
                pause = pause_after(run.errs, outcome.retry_after)
                run.again_at = _loop_time() + pause
                self._owe(turn, run)
                await self._writer.record(turn)
                world.stats.waits(turn.key, WaitCause.OTHER.value)
                return _again(pause, left if left is not None and left > 0 else None)
            case Then.NEXT:
                turn.taken_over = False
                turn.run.step, turn.run.filling = None, ""
                self._owe(turn, run)
        return None

    def _owe(self, turn: Turn, run: StepRun) -> None:
        """What has come of a call that may not be made again is kept until it is on record."""
        if run.effect is Effect.ONCE:
            turn.run.owed = Owed(turn.recorded.status, turn.promotion.status)

    def _note(self, run: StepRun, outcome: StepOutcome) -> None:
        """Remember what the step has said, and how often it has erred."""
        if isinstance(outcome, Erred):
            run.errs += 1
            run.failing_since = _loop_time() if run.failing_since is None else run.failing_since
        else:
            run.errs, run.failing_since, run.again_at = 0, None, 0.0
        if isinstance(outcome, Waiting | Erred):
            run.said = outcome.message

    def _is_tolerant(self, run: StepRun, rules: Rules, left: float | None) -> bool:
        """Whether an error that is likely to pass does not count now: nothing is tried for ever."""
        if rules.timeout is not None:
            return left is not None and left > 0
        since = run.failing_since
        return since is None or timedelta(seconds=_loop_time() - since) < TOLERATED

    async def _under_way(self, turn: Turn, current: CurrentStep, limit: float | None) -> Result | None:
        """The call goes on by itself, and the Promotion comes again when it has ended."""
        said = self._world.executor.queued(turn.run.call)
        if said:
            records = records_of(turn.promotion.status, current.alias)
            return await self.wait(turn, current, Waiting(said, records, notable=True), limit)
        if turn.is_unwritten:
            await self._writer.record(turn)
        self._world.stats.waits(turn.key, WaitCause.OTHER.value)
        return _again(LOOK_AGAIN, limit)

    async def wait(
        self, turn: Turn, current: CurrentStep, outcome: Waiting, limit: float | None = None
    ) -> Result | None:
        """Write what the user should know of the wait, but neither at once nor again and again."""
        promotion = turn.promotion
        known = records_of(promotion.status, current.alias)
        status = status_of_wait(promotion, current.alias, known, outcome)
        self._world.stats.waits(turn.key, outcome.cause.value)
        self._teller.waiting(promotion, outcome.records, outcome.causes, outcome.message)
        again = _again_in(outcome)
        if status is None and not turn.is_unwritten:
            turn.run.unwritten_since = None
            return _after_wait(outcome, again, limit)
        now = _loop_time()
        if turn.run.unwritten_since is None:
            turn.run.unwritten_since = now
        waited, gather = now - turn.run.unwritten_since, gather_time(len(known))
        gathers = not (outcome.polls or turn.is_unwritten or is_urgent(known, outcome))
        if waited < gather and gathers:
            return _after_wait(outcome, min(again, gather - waited), limit)
        turn.run.unwritten_since = None
        turn.promotion = promotion.replace(status=status or promotion.status)
        await self._writer.record(turn)
        return _after_wait(outcome, again, limit)


def _time_left(context: StepContext, kind: Step[Any]) -> float | None:
    """Seconds that the step may still take, None without limit.

    Of one that keeps its time itself they are those of the target that was free last.
    """
    return context.time_left(context.records if kind.keeps_time else ())


def _again_in(outcome: Waiting) -> float:
    """Seconds after which a step that waits is called again if no event wakes it."""
    if outcome.look_after is None:
        return LOOK_AGAIN
    after = max(outcome.look_after, LEAST_PAUSE)
    return after if outcome.polls else min(LOOK_AGAIN, after)


def _effect(kind: Step[Any], config: Any) -> Effect:
    """What a step of that kind does outside its Promotion; nothing, if its configuration is wrong."""
    if type(kind).effect is Step.effect:
        return Effect.NONE
    try:
        return kind.effect(kind.read_config(config))
    except Exception:  # noqa: BLE001 - the call meets it again, and there it is told
        return Effect.NONE


def _after_wait(outcome: Waiting, seconds: float, limit: float | None) -> Result:
    """Come back in *seconds*; after an error when the queue's back-off says, or when the time of the step is up."""
    if outcome.error is None:
        return _again(seconds, limit)
    up_in = min((each for each in (outcome.up_in, limit) if each is not None), default=None)
    return Result(requeue_after=up_in, error=outcome.error)


def _again(seconds: float, left: float | None) -> Result:
    """Come back in *seconds*, or when the time of the step is up."""
    return Result(requeue_after=max(seconds if left is None else min(seconds, left), 0.001))


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
