"""The Promotion controller: runs the Promotion that its Stage has acknowledged.

One pass does what can be done now: begin, record intents, start, look at what was started, record the end. In between
it holds nothing; a Promotion that waits for Argo CD is woken by the event on its Application. The order of the writes
is what makes it crash-safe: an intent is durable before its start is issued, and an end is recorded before it is
forgotten.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import structlog

from kargo_py.api.abort import ANNOTATION_ABORT, Abort, AbortError, latched_abort, read_abort
from kargo_py.api.freight import Freight
from kargo_py.api.names import ANNOTATION_CREATE_ACTOR, Actor
from kargo_py.api.promotion import FreightCollection, Promotion, PromotionPhase, PromotionStep, StepStatus
from kargo_py.api.stage import Stage
from kargo_py.api.types import JsonObject
from kargo_py.argocd.application import Application
from kargo_py.controllers.availability import unavailable
from kargo_py.controllers.control_flow import refusal
from kargo_py.controllers.events import (
    STAGE_NOT_FOUND,
    abort_not_understood_event,
    no_stage_event,
    step_warning_event,
)
from kargo_py.controllers.promotion_size import embedded
from kargo_py.controllers.promotion_waiting import MANY, gather_time, is_urgent, status_of_wait
from kargo_py.controllers.promotion_waking import (
    acknowledged,
    acknowledged_promotion,
    has_not_begun,
    itself,
    newly_chosen,
    operation_news,
    own_news,
    stage_readable,
    verdict_news,
)
from kargo_py.controllers.telling import Teller
from kargo_py.controllers.world import World, attempts_of, awaited_in, awaits
from kargo_py.deployers.base import RecordError, footprint
from kargo_py.engine.machine import (
    CurrentStep,
    abort,
    alias_fault,
    awaited_of,
    begin,
    current_step,
    fail,
    finish_step,
    held_up,
    latch_abort,
    output_of,
    records_of,
    with_intent,
    with_message,
    with_refresh,
)
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.controller import Controller, Result
from kargo_py.kube.errors import OutcomeUnknown
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message
from kargo_py.steps.base import (
    ROOM,
    Erred,
    Finished,
    Intend,
    StepContext,
    StepOutcome,
    StopOutcome,
    Waiting,
    no_expressions,
)
from kargo_py.steps.step import Step

UNKNOWN_PHASE = message(
    "status.phase {phase!r} is not known",
    do="Somebody wrote the phase into the Promotion's status. Look at the Applications to see whether a sync of it "
    "runs, then create a new Promotion.",
    shown=Shown.PROMOTION,
)
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
NO_STEP_RUNS = message(
    "status.currentStep and status.stepExecutionMetadata do not say which step is running; they were written by "
    "something else, so the Promotion cannot be continued: create a new one",
    do="Somebody edited the steps or the status of a running Promotion. Look at the Applications to see whether a "
    "sync of it runs, then create a new one.",
    shown=Shown.PROMOTION,
)
CANNOT_RUN = message(
    "the Promotion cannot run: {reason}",
    do="The Promotion is `Errored`, and nothing was started. Correct what the reason says and create a new Promotion.",
    shown=Shown.PROMOTION,
)
NO_FREIGHT_NAMED = message(
    "spec.freight is not set; name the Freight to promote (spec.origin is not supported yet)",
    do="Create a new Promotion with `spec.freight` in the place of `spec.origin`.",
    shown=Shown.PROMOTION,
)
FREIGHT_NOT_FOUND = message(
    'Freight "{freight}" does not exist in namespace "{namespace}"; spec.freight takes a name, not an alias',
    do="Create the Freight, or name another one in a new Promotion. `kubectl get freight` shows names and aliases; "
    "`kargo-py get` shows the alias where there is one.",
    shown=Shown.PROMOTION,
)
FREIGHT_UNREADABLE = message(
    'Freight "{freight}" cannot be read; an Event on it says which field is wrong',
    do="`kubectl describe freight` shows the Event. Correct the field, then create a new Promotion.",
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
EXPRESSION_USED = message(
    "{field} uses an expression, which this version cannot evaluate yet",
    do="Write the value itself into that field of the step; remove a step's `if`.",
    shown=Shown.PROMOTION,
)
NO_STEPS = message(
    'it has no steps; give it those of Stage "{stage}" (spec.promotionTemplate.spec.steps)',
    do="Copy the steps into `spec.steps` of a new Promotion: there is no webhook that would.",
    shown=Shown.PROMOTION,
)
STAGE_UNREADABLE = message(
    'Stage "{stage}" cannot be read; an Event on it says which field is wrong, and the Promotion waits',
    do="`kubectl describe stage` shows the Event. The Promotion begins by itself once the field is corrected.",
    shown=Shown.PROMOTION,
)


LOOK_TIME = 0.001
"""Seconds for each target from one look at a Promotion of many to the next.

A look takes about a quarter of that, and each event on one of hundreds of targets asks for a look at all of them: the
other Promotions need the rest.
"""

LOOK_AGAIN = 60.0
"""Seconds after which a Promotion that waits is looked at even if no event woke it."""

_LEAST_PAUSE = 0.05
_ITS_DELETION = "its deletion"
_STAGE_NOT_FOUND = "StageNotFound"
_STAGE_UNREADABLE = "StageUnreadable"

T = TypeVar("T")

_log = structlog.get_logger(__name__)


class _DeletedError(Exception):
    """The Promotion was deleted while it was being worked on."""


class PromotionReconciler:
    """Reconciles Promotions."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._pending_since: dict[Key, float] = {}
        self._give_up_at: dict[Key, float] = {}
        self._next_look: dict[Key, float] = {}
        self.teller = Teller(world)

    def controller(self) -> Controller[Key]:
        """The loop, with everything that wakes a Promotion."""
        world = self._world
        controller = (
            Controller("promotion", self.reconcile)
            .watches(world.stages, acknowledged(), acknowledged_promotion)
            .watches(world.stages, stage_readable(), self._queued)
            .watches(world.promotions, own_news(), itself)
            .watches(world.argocd.applications, operation_news(), self._waiting_for(lambda app: app.key))
            .watches(world.argocd.applications, verdict_news(), self._waiting_for_verdict)
            .watches(world.argocd.applications, newly_chosen(), self._waiting_for_creation)
        )
        for watch in world.watches:
            controller.watches(watch.cache, watch.predicate, self._waiting_for(watch.key))
        return controller

    def _waiting_for(self, key: Callable[[T], Key]) -> Callable[[T | None, T | None], Iterable[Key]]:
        """The Promotions that have the changed object on record; *key* is that object's."""

        def waiting(old: T | None, new: T | None) -> Iterable[Key]:
            target = new if new is not None else old
            if target is None:
                return ()
            return [JSON.meta(promotion).key for promotion in self._world.promotions.indexed("target", key(target))]

        return waiting

    def _waiting_for_verdict(self, _old: Application | None, new: Application | None) -> Iterable[Key]:
        return [JSON.meta(p).key for p in self._world.promotions.indexed("waited", new.key)] if new else ()

    def _waiting_for_creation(self, _old: Application | None, new: Application | None) -> Iterable[Key]:
        if new is None:
            return ()
        places = (new.key, Key(new.metadata.namespace, ""))
        waiting = [p for place in places for p in self._world.promotions.indexed("awaited", place)]
        return [JSON.meta(p).key for p in waiting if any(awaits(each, new) for each in awaited_in(p))]

    def _queued(self, _old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
        queued = self._world.promotions.indexed("stage", JSON.meta(new).key) if new is not None else ()
        return [JSON.meta(p).key for p in queued if has_not_begun(p)]

    # -- one pass -------------------------------------------------------------------------------------------------

    async def reconcile(self, key: Key) -> Result | None:
        """Bring one Promotion as far as it gets now."""
        world = self._world
        raw = await world.promotions.read(key)
        promotion = world.promotion_models.read(raw)
        if raw is None or promotion is None or promotion.finished:
            self._forget(key)
        if raw is None or promotion is None:
            return None
        if (early := self._too_early(key, raw)) > 0:
            return Result(requeue_after=early)
        stage_raw = await world.stages.read(Key(key.namespace, promotion.spec.stage))
        stage = world.stage_models.read(stage_raw)
        if not self._ours(promotion, stage):
            return None
        if promotion.finished:
            await self.teller.missed(promotion)
            return None
        if not promotion.running:
            self.teller.created(promotion)
        if (asked := self._asked_to_abort(promotion)) is not None:
            return await self._abort(raw, promotion, asked)
        if promotion.metadata.deletion_timestamp:
            return None
        if stage is None:
            await self._lacks_stage(raw, promotion)
            return None
        if (why := refusal(stage, promotion)) is not None:
            await self._end(raw, fail(promotion, PromotionPhase.ERRORED, why, world.now()))
            return None
        current = stage.status.current_promotion
        if current is None or current.name != promotion.name:
            # It is not its turn, which costs no write; but what was said before may not be true any more.
            await self._put_if_news(raw, promotion, held_up(promotion, "", "", world.now()))
            return None
        if promotion.phase not in {PromotionPhase.PENDING, PromotionPhase.RUNNING}:
            why = UNKNOWN_PHASE(phase=promotion.phase)
            await self._end(raw, fail(promotion, PromotionPhase.ERRORED, why, world.now()))
            return None
        try:
            return await self._run(raw, promotion, stage)
        except _DeletedError:
            return None
        except RecordError as error:
            await self._end(raw, fail(promotion, PromotionPhase.ERRORED, str(error), world.now()))
            return None

    def _too_early(self, key: Key, raw: JsonObject) -> float:
        """Seconds for which a Promotion of many targets is left alone, since it was looked at just now."""
        targets = len(attempts_of(raw))
        if targets < MANY:
            return 0.0
        now = asyncio.get_running_loop().time()
        early = self._next_look.get(key, now) - now
        if early <= 0:
            self._next_look[key] = now + targets * LOOK_TIME
        return early

    async def _lacks_stage(self, raw: JsonObject, promotion: Promotion) -> None:
        """Say, once, that *promotion* waits for its Stage; that is never said from the cache alone."""
        world = self._world
        found = await world.stages.read_live(Key(promotion.namespace, promotion.spec.stage))
        if world.stage_models.read(found) is not None:
            # What has changed in the cache by that wakes it.
            return
        if found is None:
            why = STAGE_NOT_FOUND(stage=promotion.spec.stage, namespace=promotion.namespace)
            world.recorder.record(no_stage_event(promotion))
        else:
            why = STAGE_UNREADABLE(stage=promotion.spec.stage)
        if promotion.phase == PromotionPhase.PENDING:
            reason = _STAGE_NOT_FOUND if found is None else _STAGE_UNREADABLE
            await self._put_if_news(raw, promotion, held_up(promotion, reason, why, world.now()))
        elif current_step(promotion) is not None:
            await self._put_if_news(raw, promotion, promotion.replace(status=with_message(promotion.status, why)))

    def _forget(self, key: Key) -> None:
        for times in (self._pending_since, self._give_up_at, self._next_look):
            times.pop(key, None)
        self._world.stats.waits(key, None)

    def _ours(self, promotion: Promotion, stage: Stage | None) -> bool:
        """Whether this controller acts on *promotion*: its Stage decides, its own label where that cannot be read."""
        covers = self._world.responsibility.covers
        if stage is not None:
            return covers(stage.metadata.labels, stage.spec.shard)
        return covers(promotion.metadata.labels)

    # -- aborting -------------------------------------------------------------------------------------------------

    def _asked_to_abort(self, promotion: Promotion) -> Abort | None:
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

    async def _abort(self, raw: JsonObject, promotion: Promotion, asked: Abort) -> Result | None:
        """Stop what runs, wait for it, then end; a Promotion that has not begun ends at once."""
        world = self._world
        if not promotion.running:
            await self._end(raw, abort(promotion, asked, Finished(StepStatus.ABORTED), world.now()))
            return None
        try:
            if asked.since is None:
                latched = promotion.replace(status=latch_abort(promotion.status, asked, world.now()))
                raw, promotion = await self._write(raw, latched)
                asked = latched_abort(promotion.status.state) or asked
            outcome = await self._stop(raw, promotion, asked)
            if isinstance(outcome, Intend) and (current := current_step(promotion)) is not None:
                intended = promotion.replace(status=with_intent(promotion.status, current.alias, outcome))
                raw, promotion = await self._write(raw, intended)
                outcome = await self._stop(raw, promotion, asked)
        except _DeletedError:
            return None
        except RecordError as error:
            outcome = Finished(StepStatus.ABORTED, LOOK_YOURSELF(fault=error))
        if isinstance(outcome, Waiting):
            current = current_step(promotion)
            assert current is not None  # noqa: S101 - _stop waits for the current step only
            message = ABORTING_AND_WAITING(actor=asked.by, message=outcome.message)
            told = dataclasses.replace(outcome, message=message)
            return await self._wait(raw, promotion, current, told)
        if isinstance(outcome, Intend):
            return Result(requeue_after=_LEAST_PAUSE)
        await self._end(raw, abort(promotion, asked, outcome, world.now()))
        return None

    async def _stop(self, raw: JsonObject, promotion: Promotion, asked: Abort) -> StopOutcome:
        """Have the current step end what it has under way."""
        current = current_step(promotion)
        runner = self._world.steps.get(current.step.uses or "") if current is not None else None
        if current is None or runner is None:
            left = [f"{record.kind} {record.key}" for record in records_of(promotion.status) if not record.state.final]
            return Finished(StepStatus.ABORTED, LEFT_RUNNING(targets=", ".join(left)) if left else "")
        give_up = asked.force or self._out_of_patience(promotion, asked)
        return await runner.stop(self._context(raw, promotion, current, runner), give_up=give_up)

    def _out_of_patience(self, promotion: Promotion, asked: Abort) -> bool:
        """Whether the abort was waited for long enough.

        Measured by our own clock from when this process first saw it; the wall clock says only how much of the time a
        process before this one has used.
        """
        key = Key(promotion.namespace, promotion.name)
        now, patience = asyncio.get_running_loop().time(), self._world.abort_patience
        if key not in self._give_up_at:
            used = self._world.now() - asked.since.datetime if asked.since is not None else timedelta()
            left = min(max(patience - used, timedelta()), patience)
            self._give_up_at[key] = now + left.total_seconds()
        return now >= self._give_up_at[key]

    # -- running --------------------------------------------------------------------------------------------------

    async def _run(self, raw: JsonObject, promotion: Promotion, stage: Stage) -> Result | None:
        """Begin if it has not begun; then step after step until one waits or all are through."""
        world = self._world
        taken_over = promotion.running and not records_of(promotion.status)
        if with_refresh(promotion) is not promotion:
            # Somebody suspects that an event was missed.
            for record in records_of(promotion.status):
                self._world.argocd.applications.mark_dirty(record.key)
        if not promotion.running:
            begun = await self._begin(raw, promotion, stage)
            if begun is None:
                return None
            promotion = begun
        while not promotion.finished:
            current = current_step(promotion)
            if current is None:
                await self._end(raw, fail(promotion, PromotionPhase.ERRORED, NO_STEP_RUNS(), world.now()))
                return None
            outcome = await self._step(raw, promotion, current, taken_over=taken_over)
            match outcome:
                case Intend():
                    if outcome.warning:
                        world.recorder.record(step_warning_event(promotion, current.alias, outcome.warning))
                    intended = promotion.replace(status=with_intent(promotion.status, current.alias, outcome))
                    raw, promotion = await self._write(raw, intended)
                case Waiting():
                    return await self._wait(raw, promotion, current, outcome)
                case Erred():
                    status = StepStatus.FAILED if outcome.failed else StepStatus.ERRORED
                    ended = Finished(status, outcome.message, outcome.output, records=outcome.records or ())
                    promotion = finish_step(promotion, current, ended, world.now())
                case Finished():
                    promotion = finish_step(promotion, current, outcome, world.now())
                    taken_over = False
        await self._end(raw, promotion)
        return None

    async def _begin(self, raw: JsonObject, promotion: Promotion, stage: Stage) -> Promotion | None:
        """The Promotion in phase Running, not written yet; None if it ended instead."""
        now = self._world.now()
        freight, reason = await self._freight(promotion, stage)
        reason = cannot_run(promotion, stage) or reason
        if reason is not None or freight is None:
            ended = fail(promotion, PromotionPhase.ERRORED, CANNOT_RUN(reason=reason), now)
            await self._end(raw, ended)
            return None
        reference, collection = embedded(freight.reference(), _collection(stage, freight), ROOM - len(encode(raw)))
        return begin(promotion, reference, collection, now)

    async def _freight(self, promotion: Promotion, stage: Stage) -> tuple[Freight | None, str | None]:
        """The Freight, or why it cannot be promoted; that is never said from the cache alone."""
        world = self._world
        if not promotion.spec.freight:
            return None, NO_FREIGHT_NAMED()
        key = Key(promotion.namespace, promotion.spec.freight)
        freight = world.freight_models.read(await world.freights.read(key))
        if freight is not None and unavailable(stage, freight, world.now()) is None:
            return freight, None
        raw = await world.freights.read_live(key)
        if raw is None:
            return None, FREIGHT_NOT_FOUND(freight=key.name, namespace=key.namespace)
        freight = world.freight_models.read(raw)
        if freight is None:
            return None, FREIGHT_UNREADABLE(freight=key.name)
        return freight, unavailable(stage, freight, world.now())

    # -- steps ----------------------------------------------------------------------------------------------------

    async def _step(
        self, raw: JsonObject, promotion: Promotion, current: CurrentStep, *, taken_over: bool
    ) -> StepOutcome:
        """Call the current step once."""
        step = current.step
        if step.uses is None:
            return Finished(StepStatus.ERRORED, NO_USES())
        runner = self._world.steps.get(step.uses)
        if runner is None:
            known = ", ".join(sorted(self._world.steps))
            return Finished(StepStatus.ERRORED, KIND_NOT_REGISTERED(uses=step.uses, known=known))
        if where := no_expressions(step.config) or ("if" if step.if_ else None):
            return Finished(StepStatus.ERRORED, EXPRESSION_USED(field=where))
        return await runner.run(self._context(raw, promotion, current, runner, taken_over=taken_over))

    def _context(
        self,
        raw: JsonObject,
        promotion: Promotion,
        current: CurrentStep,
        runner: Step[Any],
        *,
        taken_over: bool = False,
    ) -> StepContext:
        now = self._world.now()
        records = records_of(promotion.status, current.alias)
        started = promotion.status.step_execution_metadata[-1].started_at
        return StepContext(
            instance=self._world.instance,
            project=promotion.namespace,
            stage=promotion.spec.stage,
            promotion=promotion.name,
            promotion_uid=promotion.metadata.uid,
            actor=Actor.of(promotion.metadata.annotations.get(ANNOTATION_CREATE_ACTOR)),
            alias=current.alias,
            config=current.step.config,
            now=now,
            started_at=started.datetime if started is not None else now,
            timeout=time_limit(current.step, runner.default_timeout),
            patience=self._world.abort_patience,
            records=records,
            taken_over=taken_over,
            awaited=awaited_of(promotion.status, current.alias),
            output=output_of(promotion.status, current.alias),
            spare=lambda: ROOM - (len(encode(raw)) - footprint(records)),
            called_off=partial(self._called_off, promotion),
            threshold=error_threshold(current.step),
        )

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

    async def _wait(
        self, raw: JsonObject, promotion: Promotion, current: CurrentStep, outcome: Waiting
    ) -> Result | None:
        """Write what the user should know of the wait, but neither at once nor again and again."""
        known = records_of(promotion.status, current.alias)
        status = status_of_wait(raw, promotion, current.alias, known, outcome)
        key = Key(promotion.namespace, promotion.name)
        self._world.stats.waits(key, outcome.cause.value)
        self.teller.waiting(promotion, outcome.records, outcome.causes, outcome.message)
        again = min(LOOK_AGAIN, max(outcome.look_after, _LEAST_PAUSE)) if outcome.look_after is not None else LOOK_AGAIN
        if status is None:
            self._pending_since.pop(key, None)
            return _again(outcome, again)
        now = asyncio.get_running_loop().time()
        since = self._pending_since.setdefault(key, now)
        gather = gather_time(len(known))
        if now - since < gather and not is_urgent(known, outcome):
            return _again(outcome, min(again, gather - (now - since)))
        self._pending_since.pop(key, None)
        await self._write(raw, promotion.replace(status=status))
        return _again(outcome, again)

    # -- writing --------------------------------------------------------------------------------------------------

    async def _write(self, raw: JsonObject, promotion: Promotion) -> tuple[JsonObject, Promotion]:
        """Write the status; returns the object as it stands then."""
        world = self._world
        await self._put(raw, promotion)
        written = world.promotions.get(Key(promotion.namespace, promotion.name))
        model = world.promotion_models.read(written)
        if written is None or model is None:
            raise _DeletedError
        return written, model

    async def _put_if_news(self, raw: JsonObject, before: Promotion, promotion: Promotion) -> None:
        """Write the status if it is another, or if a refresh is to be acknowledged."""
        if with_refresh(promotion) is not before:
            await self._put(raw, promotion)

    async def _put(self, raw: JsonObject, promotion: Promotion) -> Promotion:
        """Write the status, and count and tell what that means; returns what was written."""
        world = self._world
        before = world.promotion_models.read(raw) or promotion
        queued_since = world.stats.queued_since(Key(promotion.namespace, promotion.name))
        promotion = with_refresh(promotion)
        try:
            await world.write_status(world.promotions, raw, promotion.status.wire())
        except OutcomeUnknown:
            self.teller.may_have_ended(promotion)
            raise
        world.stats.wrote(before, promotion, queued_since)
        self.teller.wrote(before, promotion)
        return promotion

    async def _end(self, raw: JsonObject, promotion: Promotion) -> None:
        """Write the final status and tell it."""
        promotion = await self._put(raw, promotion)
        key = Key(promotion.namespace, promotion.name)
        self._forget(key)
        _log.info(
            "promotion ended",
            promotion=str(key),
            phase=str(promotion.status.phase),
            # Not "message": where structlog hands its fields to logging, that is a field of every record already.
            **({"why": promotion.status.message} if promotion.status.message else {}),
        )
        self.teller.ended(promotion)


def cannot_run(promotion: Promotion, stage: Stage) -> str | None:
    """Why *promotion* as it is written cannot run; None if it can."""
    if not promotion.spec.steps:
        return NO_STEPS(stage=stage.name)
    return alias_fault(promotion.spec.steps)


def time_limit(step: PromotionStep, default: timedelta | None) -> timedelta | None:
    """How long *step* may take, None without limit; a time-out of 0 means that, too."""
    asked = step.retry.timeout if step.retry is not None else None
    if asked is None:
        return default
    return max(timedelta(seconds=asked.seconds), timedelta.resolution) if asked.nanoseconds > 0 else None


def error_threshold(step: PromotionStep) -> int | None:
    """After how many errors in a row *step* says that it ends, None if it does not say."""
    return (step.retry.error_threshold or None) if step.retry is not None else None


def _collection(stage: Stage, freight: Freight) -> FreightCollection:
    """What the Stage has once this Freight is in: it, and what is there of other origins that are still requested."""
    current = stage.current_freight or FreightCollection()
    kept = {origin: reference for origin, reference in current.items.items() if origin in stage.origins}
    return FreightCollection(items=kept).with_freight(freight.reference())


def _again(outcome: Waiting, seconds: float) -> Result:
    """Come back in *seconds*; after an error when the queue's back-off says, or when the time of the step is up."""
    if outcome.error is not None:
        return Result(requeue_after=outcome.up_in, error=outcome.error)
    return Result(requeue_after=seconds)
