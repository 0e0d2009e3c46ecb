"""Aborts Promotions: stops what runs, waits for it, and writes how it ended."""

from __future__ import annotations

import asyncio
import dataclasses
from functools import partial
from typing import Any

import structlog

from kargo_py.api.abort import ANNOTATION_ABORT, Abort, AbortError, latched_abort, read_abort
from kargo_py.api.promotion import Promotion, StepStatus
from kargo_py.controllers.events import abort_not_understood_event
from kargo_py.controllers.promotion_calling import Calling
from kargo_py.controllers.promotion_runs import Turn
from kargo_py.controllers.promotion_stepping import LEAST_PAUSE, MOST_INTENTS, Stepping
from kargo_py.controllers.promotion_writing import DeletedError, Writer
from kargo_py.controllers.world import World
from kargo_py.deployers.base import RecordError
from kargo_py.engine.execution import Answer, CalledOff, Raised, nobody
from kargo_py.engine.guarding import described, nonsense
from kargo_py.engine.machine import abort, current_step, latch_abort
from kargo_py.engine.masking import masked_error, recordable
from kargo_py.engine.records import records_of
from kargo_py.engine.retries import is_passing
from kargo_py.engine.stepping import with_intent
from kargo_py.kube.clock import Steady
from kargo_py.kube.controller import Result
from kargo_py.kube.errors import KubeError
from kargo_py.messages import Shown, message
from kargo_py.steps.base import Finished, Intend, StepContext, StepOutcome, StopOutcome, Waiting
from kargo_py.steps.step import Step

LOOK_YOURSELF = message(
    "{fault}; look yourself what is left running",
    do="The Promotion was aborted, but its records cannot be read. Look at the operations of the Applications of its "
    "steps, and terminate what should not run.",
    shown=Shown.PROMOTION,
)
ABORTING_AND_WAITING = message(
    "aborting, as {actor} asked: {message}",
    do="What runs is waited for, as long as `--abort-timeout` says, 10 minutes by default; then the Promotion becomes "
    "`Aborted` by itself. An abort with "
    '`"force": true` does not wait.',
    shown=Shown.PROMOTION,
)
LEFT_RUNNING = message(
    "which step runs cannot be told, and this may be left running: {targets}",
    do="The Promotion was aborted after somebody had edited its steps or its status. Look at the operations of these "
    "objects, and terminate what should not run.",
    shown=Shown.PROMOTION,
)

NOT_STOPPED = message(
    "what the step had under way could not be stopped: {why}",
    do="The Promotion was aborted, and its step did not stop. Look at what the step works on, and end it by hand.",
    shown=Shown.PROMOTION,
)

WAITS_ON = message(
    "Waiting, though it is to end now",
    do="Part of *the kind of step answered what it may not*: its Promotion is aborted, and is not waited for any more. "
    "A fault of the kind of step. Tell its author.",
    shown=Shown.PROMOTION,
)
INTENDS_ON = message(
    "Intend, again and again, though it is to end",
    do="Part of *the kind of step answered what it may not*: when its Promotion is aborted it may find what is under "
    "way and not on record, but not for ever. A fault of the kind of step. Tell its author.",
    shown=Shown.PROMOTION,
)
SECRETS_NOT_READ = message(
    "Secrets of earlier steps cannot be read",
    do="A Promotion is aborted after a restart, and what its steps say is not told, since that might be secret. "
    "`error` says why; what runs is stopped all the same.",
    shown=Shown.LOG,
)

_log = structlog.get_logger(__name__)

_ITS_DELETION = "its deletion"
_AGAIN = 5.0


class Aborting:
    """Aborts Promotions."""

    def __init__(self, world: World, writer: Writer, calling: Calling, stepping: Stepping) -> None:
        self._world = world
        self._calling = calling
        self._writer = writer
        self._stepping = stepping

    def asked(self, promotion: Promotion) -> Abort | None:
        """The request to abort, kept or new; one that cannot be understood is told and is none."""
        kept = latched_abort(promotion.status.state)
        try:
            new = read_abort(promotion.metadata.annotations.get(ANNOTATION_ABORT))
        except AbortError as error:
            new = None
            self._world.recorder.record(abort_not_understood_event(promotion, str(error)))
        if kept is not None:
            return dataclasses.replace(kept, force=kept.force or (new is not None and new.force))
        if new is None and promotion.running and promotion.metadata.deletion_timestamp:
            return Abort(_ITS_DELETION)
        return new

    async def abort(self, turn: Turn, asked: Abort) -> Result | None:
        """Stop what runs, wait for it, then end; a Promotion that has not begun ends at once. Raises KubeError."""
        if turn.promotion.finished:
            # Its last step had ended before.
            await self._writer.end(turn.raw, turn.promotion)
            return None
        if not turn.promotion.running:
            await self._end(turn, asked, Finished(StepStatus.ABORTED))
            return None
        if turn.run.call is not None:
            await self._world.executor.cancel(turn.run.call)
        try:
            if asked.since is None:
                turn.promotion = turn.promotion.replace(
                    status=latch_abort(turn.promotion.status, asked, self._world.now())
                )
                await self._writer.record(turn)
                asked = latched_abort(turn.promotion.status.state) or asked
            outcome = await self._stop(turn, asked)
            if isinstance(outcome, Intend) and (current := current_step(turn.promotion)) is not None:
                turn.run.at(current.alias).late += 1
                intended = with_intent(turn.promotion.status, current.alias, outcome)
                turn.promotion = turn.promotion.replace(status=intended)
                await self._writer.record(turn)
                outcome = await self._stop(turn, asked)
        except DeletedError:
            return None
        except RecordError as error:
            outcome = Finished(StepStatus.ABORTED, LOOK_YOURSELF(fault=error))
        if isinstance(outcome, Waiting):
            current = current_step(turn.promotion)
            assert current is not None  # noqa: S101 - _stop waits for the current step only
            message = ABORTING_AND_WAITING(actor=asked.by, message=outcome.message)
            limit = self._patience_left(turn)
            return await self._stepping.wait(turn, current, dataclasses.replace(outcome, message=message), limit)
        if isinstance(outcome, Intend | CalledOff):
            return Result(requeue_after=LEAST_PAUSE)
        await self._end(turn, asked, outcome)
        return None

    async def _end(self, turn: Turn, asked: Abort, outcome: Finished) -> None:
        turn.promotion = abort(turn.promotion, asked, outcome, self._world.now())
        await self._writer.end(turn.raw, turn.promotion)

    async def _stop(self, turn: Turn, asked: Abort) -> StopOutcome | CalledOff:
        """Have the current step end what it has under way; by force it is to be told so again. Raises KubeError."""
        promotion = turn.promotion
        current = current_step(promotion)
        kind = self._world.steps.get(current.step.uses or "") if current is not None and current.started else None
        if current is None or kind is None:
            left = [f"{record.kind} {record.key}" for record in records_of(promotion.status) if not record.state.final]
            return Finished(StepStatus.ABORTED, LEFT_RUNNING(targets=", ".join(left)) if left else "")
        give_up = asked.force or self._out_of_patience(turn, asked)
        if turn.run.knows_secrets is None:
            try:
                await self._calling.learn_secrets(turn)
            except KubeError as unread:
                # What runs is stopped all the same.
                _log.warning(SECRETS_NOT_READ(), promotion=str(turn.key), error=str(unread))
        context = await self._calling.context_to_stop(turn, current, kind, give_up=give_up)
        forced = partial(self._forced, turn) if not give_up else nobody
        answer = await self._world.executor.stop(kind, context, give_up=give_up, asked=forced)
        if isinstance(answer, CalledOff):
            return answer
        secrets = self._calling.secrets(turn)
        if isinstance(answer, Raised):
            error = answer.error
            if isinstance(error, KubeError):
                error = masked_error(error, secrets)
            outcome = await self._not_stopped(context, kind, error, give_up=give_up)
        else:
            outcome = answer if isinstance(answer, Intend | Waiting) else _finished(answer)
        if isinstance(outcome, Waiting) and give_up:
            outcome = await self._ended(context, kind, nonsense(WAITS_ON()).message)
        elif isinstance(outcome, Intend) and turn.run.at(current.alias).late >= MOST_INTENTS:
            outcome = await self._ended(context, kind, nonsense(INTENDS_ON()).message)
        masked = recordable(outcome, current.alias, secrets)
        return masked if isinstance(masked, Intend | Waiting) else _finished(masked)

    def _forced(self, turn: Turn) -> Abort | None:
        """The request not to wait, if there is one by now."""
        asked = self._calling.asked(turn.promotion)
        return asked if asked is not None and asked.force else None

    async def _not_stopped(
        self, context: StepContext, kind: Step[Any], error: BaseException, *, give_up: bool
    ) -> StopOutcome:
        """What to do since the step could not be stopped: try again, unless that is of no use. Raises KubeError."""
        if isinstance(error, KubeError) and not give_up:
            raise error
        said = described(error)
        if is_passing(error) and not give_up:
            return Waiting(said, context.records, notable=True, look_after=_AGAIN)
        return await self._ended(context, kind, said)

    async def _ended(self, context: StepContext, kind: Step[Any], why: str) -> Finished:
        """The end of a step that does not end by itself."""
        ended = await Step.stop(kind, context, give_up=True)
        assert isinstance(ended, Finished)  # noqa: S101 - that is what the base class does
        return dataclasses.replace(ended, message=NOT_STOPPED(why=why))

    def _out_of_patience(self, turn: Turn, asked: Abort) -> bool:
        """Whether the abort was waited for long enough.

        Measured by our own clock from when this process first saw it; the wall clock says only how much of the time a
        process before this one has used.
        """
        time = asyncio.get_running_loop().time()
        if turn.run.abort is None:
            now = self._world.now()
            turn.run.abort = Steady.since(asked.since.datetime if asked.since is not None else now, now, time)
        return turn.run.abort.passed(time) >= self._world.abort_patience

    def _patience_left(self, turn: Turn) -> float | None:
        """Seconds until the abort was waited for long enough; None if it is not waited for."""
        if turn.run.abort is None:
            return None
        passed = turn.run.abort.passed(asyncio.get_running_loop().time())
        return (self._world.abort_patience - passed).total_seconds()


def _finished(answer: Answer | StepOutcome) -> Finished:
    """The end that the executor makes of whatever a step answers that is to stop."""
    return answer if isinstance(answer, Finished) else Finished(StepStatus.ABORTED)
