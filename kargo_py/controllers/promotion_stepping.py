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

from kargo_py.api.promotion import PromotionPhase, StepStatus
from kargo_py.controllers.events import step_warning_event
from kargo_py.controllers.lookups import LookupRefused
from kargo_py.controllers.promotion_calling import Calling
from kargo_py.controllers.promotion_filling import Filling, outcome_of_answer, work_dir_use
from kargo_py.controllers.promotion_runs import Owed, StepRun, Turn
from kargo_py.controllers.promotion_waiting import gather_time, is_urgent, status_of_wait
from kargo_py.controllers.promotion_writing import DeletedError, Writer
from kargo_py.controllers.telling import Teller
from kargo_py.controllers.world import World
from kargo_py.deployers.base import WaitCause
from kargo_py.engine.evaluation import (
    EvaluationError,
    condition,
    configuration_for,
    has_expressions,
    may_look_up,
)
from kargo_py.engine.execution import CalledOff, TimedOut
from kargo_py.engine.guarding import nonsense
from kargo_py.engine.machine import CurrentStep, current_step, fail, with_refresh
from kargo_py.engine.masking import recordable
from kargo_py.engine.records import records_of
from kargo_py.engine.retries import (
    TOLERATED,
    Rules,
    asked_of,
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
from kargo_py.kube.clock import Steady
from kargo_py.kube.codec import JSON
from kargo_py.kube.controller import Result
from kargo_py.kube.errors import KubeError
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message
from kargo_py.steps.base import Erred, Finished, Intend, StepContext, StepOutcome, Waiting
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

MOST_INTENTS = 20
"""How often in one pass a step may have something written; then others have their turn, and an abort is seen."""

_MOST_IDLE = 5
"""How often in a row a step may have something written that is there already; it would do so for ever."""

T = TypeVar("T")


class Stepping:
    """Runs steps; *enqueue* makes a Promotion come again at once."""

    def __init__(
        self, world: World, writer: Writer, teller: Teller, calling: Calling, enqueue: Callable[[Key], None]
    ) -> None:
        self._world = world
        self._writer = writer
        self._teller = teller
        self._enqueue = enqueue
        self._calling = calling
        self._filling = Filling(world, calling, enqueue)

    async def go_on(self, turn: Turn) -> Result | None:
        """Step after step, until one waits or all are through. Raises DeletedError, RecordError and KubeError."""
        intents = 0
        while not turn.promotion.finished:
            if turn.run.knows_secrets is None and (result := await self._secrets_known(turn)) is not None:
                return result
            if turn.promotion.finished:
                break
            current = current_step(turn.promotion)
            if current is None:
                turn.promotion = fail(turn.promotion, PromotionPhase.ERRORED, NO_STEP_RUNS(), self._world.now())
                break
            if turn.run.owed is not None and may_look_up(current.step, turn.promotion.spec.vars):
                # To read takes a while, in which this process may die.
                await self._writer.record(turn)
            if not current.started:
                result = await self._enter(turn, current)
                # Many that are skipped, or are of no kind, would hold up all else: nothing is waited for in between.
                await asyncio.sleep(0)
            else:
                result, intends = await self._run(turn, current)
                intents = intents + 1 if intends else 0
                if intents > MOST_INTENTS:
                    return Result(requeue_after=LEAST_PAUSE)
            if result is not None:
                return result
        await self._writer.end(turn.raw, turn.promotion)
        return None

    async def _secrets_known(self, turn: Turn) -> Result | None:
        """Learn what must not be told; a Result if that has to be tried again. The step has its time meanwhile, too."""
        run = turn.run
        try:
            await self._calling.learn_secrets(turn)
        except KubeError as error:
            run.learning_since = _loop_time() if run.learning_since is None else run.learning_since
            current = current_step(turn.promotion)
            kind = self._world.steps.get(current.step.uses or "") if current is not None and current.started else None
            left = None
            if current is not None and kind is not None:
                left = _time_left(self._calling.context(turn, current, kind), kind)
            if left is not None and left <= 0:
                # It ends now, and nothing of what it says is told.
                return None
            if turn.is_unwritten:
                await self._writer.record(turn)
            if is_passing(error) and _loop_time() - run.learning_since < TOLERATED.total_seconds():
                return Result(requeue_after=left, error=error)
            why = SECRETS_UNREADABLE(why=error)
            turn.promotion = fail(turn.promotion, PromotionPhase.ERRORED, why, self._world.now())
        return None

    # -- entering -------------------------------------------------------------------------------------------------

    async def _enter(self, turn: Turn, current: CurrentStep) -> Result | None:
        """Start the step, or go on after it, as its ``if`` says; a Result if that cannot be told yet."""
        world, uses = self._world, current.step.uses
        run = turn.run.at(current.alias)
        try:
            if current.step.if_:
                wanted = await self._calling.evaluated(turn, current, condition, run.lookups)
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

    # -- running --------------------------------------------------------------------------------------------------

    async def _run(self, turn: Turn, current: CurrentStep) -> tuple[Result | None, bool]:
        """Call the step once; a Result if it waits, and whether it has had something written."""
        world, run = self._world, turn.run.at(current.alias)
        kind = world.steps.get(current.step.uses or "")
        if kind is None:
            why = KIND_NOT_REGISTERED(uses=current.step.uses, known=", ".join(sorted(world.steps)))
            return await self._after(turn, current, Finished(StepStatus.ERRORED, why), Rules()), False
        rules = rules_of(current.step, kind)
        context = self._calling.context(turn, current, kind)
        left = _time_left(context, kind)
        limit = None if kind.keeps_time else left
        if limit is not None and limit <= 0:
            return await self._after_time(turn, current, kind, rules)
        is_fresh = with_refresh(turn.promotion) is not turn.promotion
        if (pause := run.again_at - _loop_time()) > 0 and (left is None or left > 0) and not is_fresh:
            return _again(pause, left), False
        faulty, work_dir = None, None
        if not run.is_evaluated:
            try:
                # What expressions look up may take long. What runs already ends as its kind says, which needs them.
                async with asyncio.timeout(left if limit is not None or not context.records else None):
                    faulty = await self._evaluate(turn, current, kind)
            except TimeoutError:
                return await self._after_time(turn, current, kind, rules)
            context = self._calling.context(turn, current, kind)
            left = _time_left(context, kind)
            limit = None if kind.keeps_time else left
        if faulty is None:
            await self._record_before(turn, current, kind)
        if faulty is None and work_dir_use(kind, current.step) is not WorkDirUse.NONE:
            found = await self._filling.work_dir(turn, current)
            if found is None:
                return await self._under_way(turn, current, limit), False
            work_dir, faulty = (found, None) if isinstance(found, Path) else (None, found)
        if faulty is None:
            spare = self._calling.spare(turn, context)
            context = dataclasses.replace(context, config=run.config, spare=spare, work_dir=work_dir)
            done = partial(self._enqueue, turn.key)
            asked = partial(self._calling.asked, turn.promotion)
            answer = await world.executor.call(turn.run.call, kind, context, time_left=limit, done=done, asked=asked)
            if isinstance(answer, CalledOff):
                return await self._called_off(turn), False
            if answer is None:
                return await self._under_way(turn, current, limit), False
            if isinstance(answer, TimedOut):
                return await self._after_time(turn, current, kind, rules)
            outcome = self._calling.told(turn, current, outcome_of_answer(answer))
        else:
            outcome = faulty
        result = await self._after(turn, current, outcome, rules, left=left, limit=limit)
        return result, isinstance(outcome, Intend)

    async def _evaluate(self, turn: Turn, current: CurrentStep, kind: Step[Any]) -> StepOutcome | None:
        """Evaluate the configuration; an outcome if that cannot be done."""
        run, config = turn.run.at(current.alias), current.step.config
        if has_expressions(config):
            evaluate = partial(configuration_for, type(kind))
            try:
                run.config = await self._calling.evaluated(turn, current, evaluate, run.lookups)
            except EvaluationError as error:
                return Finished(StepStatus.ERRORED, str(error))
            except LookupRefused as error:
                return Erred(str(error))
            except KubeError as error:
                return outcome_of(error)
        else:
            run.config = config
        run.is_evaluated = True
        return None

    async def _record_before(self, turn: Turn, current: CurrentStep, kind: Step[Any]) -> None:
        """Write what must be on record before the step is called."""
        run = turn.run.at(current.alias)
        if run.effect is None:
            run.effect = _effect(kind, run.config)
        begins = turn.recorded.status.freight is None and run.effect in {Effect.REPEATABLE, Effect.ONCE}
        if turn.run.owed is not None or begins or (run.effect is Effect.ONCE and turn.is_unwritten):
            await self._writer.record(turn)

    # -- time -----------------------------------------------------------------------------------------------------

    async def _after_time(
        self, turn: Turn, current: CurrentStep, kind: Step[Any], rules: Rules
    ) -> tuple[Result | None, bool]:
        """As :meth:`_run`, of a step whose time is up."""
        outcome = await self._timed_out(turn, current, kind)
        if isinstance(outcome, CalledOff):
            return await self._called_off(turn), False
        intends = isinstance(outcome, Intend)
        turn.run.at(current.alias).late += intends
        left = self._patience - self._overdue(turn, current, kind)
        return await self._after(turn, current, outcome, rules, limit=left, timed_out=True), intends

    async def _timed_out(self, turn: Turn, current: CurrentStep, kind: Step[Any]) -> StepOutcome | CalledOff:
        """The time of the step is up: how it ends."""
        run = turn.run.at(current.alias)
        context = await self._calling.context_to_stop(turn, current, kind, give_up=True)
        given = await self._world.executor.cancel(turn.run.call)
        if isinstance(given, Finished):
            # It ended while it was being cancelled.
            return self._calling.told(turn, current, given)
        noted = turn.promotion.status.step_execution_metadata[-1].message
        last = without_retry(noted) or run.said
        text = STEP_TIMED_OUT(alias=context.alias, time=context.time) + (f": {last}" if last else "")
        asked = partial(self._calling.asked, turn.promotion)
        answer = await self._world.executor.time_out(kind, context, text, asked=asked)
        if isinstance(answer, CalledOff):
            return answer
        outcome = self._calling.told(turn, current, outcome_of_answer(answer), text)
        match outcome:
            case Erred():
                text = f"{text}; {outcome.message}"
            case Intend() if run.late >= MOST_INTENTS:
                pass
            case Waiting() if self._overdue(turn, current, kind) >= self._patience:
                pass
            case _:
                return outcome
        return await Step.time_out(kind, context, text)

    def _overdue(self, turn: Turn, current: CurrentStep, kind: Step[Any]) -> float:
        """Seconds since the time of the step was up."""
        return -(_time_left(self._calling.context(turn, current, kind), kind) or 0.0)

    async def _called_off(self, turn: Turn) -> Result:
        """The call was called off: the next pass aborts the Promotion, and has to know that the step runs."""
        raw = self._world.promotions.get(turn.key)
        if raw is None or JSON.meta(raw).uid != turn.promotion.metadata.uid:
            raise DeletedError
        if turn.is_unwritten and raw.get("status") == turn.raw.get("status"):
            # Whoever asked for the abort has written meanwhile, but not the status.
            turn.raw = raw
            await self._writer.record(turn)
        return Result(requeue_after=LEAST_PAUSE)

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
