"""The Promotion controller: runs the Promotion that its Stage has acknowledged.

One pass does what can be done now: begin, record intents, start, look at what was started, record the end. In between
it holds nothing; a Promotion that waits for Argo CD is woken by the event on its Application. The order of the writes
is what makes it crash-safe: an intent is durable before its start is issued, and an end is recorded before it is
forgotten.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import TypeVar

import structlog

from kargo_py.api.abort import ANNOTATION_ABORT, Abort, AbortError, latched_abort, read_abort
from kargo_py.api.freight import Freight
from kargo_py.api.names import ANNOTATION_CREATE_ACTOR, Actor
from kargo_py.api.promotion import FreightCollection, Promotion, PromotionPhase, PromotionStep, StepStatus, phase_of
from kargo_py.api.stage import Stage
from kargo_py.api.types import JsonObject
from kargo_py.argocd.application import Application
from kargo_py.argocd.operation import operation_aspect
from kargo_py.argocd.waiting import news
from kargo_py.controllers.availability import unavailable
from kargo_py.controllers.control_flow import is_control_flow, refusal
from kargo_py.controllers.world import PROMOTIONS, World, awaited_in, awaits, event_annotations, event_name
from kargo_py.deployers.base import Record, RecordError, TargetState, footprint
from kargo_py.engine.machine import (
    CurrentStep,
    abort,
    alias_fault,
    awaited_of,
    begin,
    current_step,
    fail,
    finish_step,
    latch_abort,
    output_of,
    records_of,
    with_intent,
    with_message,
    with_records,
)
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.controller import Controller, Result
from kargo_py.kube.events import Event, Regarding
from kargo_py.kube.predicates import Predicate, changed, created, deleted
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message
from kargo_py.steps.base import ROOM, Finished, Intend, StepContext, StepOutcome, StepRunner, Waiting, no_expressions

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
    'Freight "{freight}" does not exist in namespace "{namespace}"',
    do="Create the Freight, or name another one in a new Promotion.",
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
STAGE_NOT_FOUND = message(
    'Stage "{stage}" does not exist in namespace "{namespace}"; the Promotion waits for it',
    do="The Promotion begins by itself once the Stage is there. Create the Stage, or delete the Promotion.",
    shown=Shown.EVENT,
)
ENDED = message(
    "Promotion {phase}",
    do="The end of a Promotion; its `status.message` follows, where it has one, and says what to do.",
    shown=Shown.EVENT,
)
REASON_ENDED = message(
    "Promotion{phase}",
    do="On a Promotion: `PromotionSucceeded` and `PromotionAborted` are of type Normal, `PromotionFailed` and "
    "`PromotionErrored` of type Warning.",
    shown=Shown.EVENT,
)
REASON_STAGE_NOT_FOUND = message(
    "StageNotFound",
    do="Warning on a Promotion whose Stage is not there. It waits: create the Stage, or delete the Promotion.",
    shown=Shown.EVENT,
)
REASON_ABORT_NOT_UNDERSTOOD = message(
    "AbortNotUnderstood",
    do="Warning on a Promotion with a wrong annotation `kargo.akuity.io/abort`. It goes on: correct the annotation.",
    shown=Shown.EVENT,
)

REASON_STEP_WARNING = message(
    "StepWarning",
    do="Warning on a Promotion that goes on: a step has left out something that may have been meant, the message says "
    "what.",
    shown=Shown.EVENT,
)
STEP_WARNING = message(
    'step "{alias}" goes on: {message}',
    do="What follows the name of the step says what to do.",
    shown=Shown.EVENT,
)

COALESCE = 1.0
"""Seconds for which endings of some targets, or the reason of a wait, are gathered before they are written.

Of many targets it is up to :data:`_COALESCE_MANY` times that long: each write has the records of all of them.
"""

_COALESCE_MANY = 5
_MANY = 20

LOOK_AGAIN = 60.0
"""Seconds after which a Promotion that waits is looked at even if no event woke it."""

_LEAST_PAUSE = 0.05
_ITS_DELETION = "its deletion"

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

    def controller(self) -> Controller[Key]:
        """The loop, with everything that wakes a Promotion."""
        world = self._world
        controller = (
            Controller("promotion", self.reconcile)
            .watches(world.stages, _acknowledged(), _acknowledged_promotion)
            .watches(world.stages, changed(is_control_flow), self._queued)
            .watches(world.promotions, _own_news(), _itself)
            .watches(world.argocd.applications, _operation_news(), self._waiting_for(lambda app: app.key))
            .watches(world.argocd.applications, _verdict_news(), self._waiting_for_verdict)
            .watches(world.argocd.applications, _newly_chosen(), self._waiting_for_creation)
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
        return [JSON.meta(p).key for p in queued if phase_of(p) == PromotionPhase.PENDING]

    # -- one pass -------------------------------------------------------------------------------------------------

    async def reconcile(self, key: Key) -> Result | None:
        """Bring one Promotion as far as it gets now."""
        world = self._world
        raw = await world.promotions.read(key)
        promotion = world.promotion_models.read(raw)
        if raw is None or promotion is None or promotion.finished:
            self._pending_since.pop(key, None)
            self._give_up_at.pop(key, None)
            return None
        stage_raw = await world.stages.read(Key(key.namespace, promotion.spec.stage))
        stage = world.stage_models.read(stage_raw)
        if not self._ours(promotion, stage):
            return None
        if (asked := self._asked_to_abort(promotion)) is not None:
            return await self._abort(raw, promotion, asked)
        if stage_raw is None:
            world.recorder.record(_no_stage_event(promotion))
        if stage is None or promotion.metadata.deletion_timestamp:
            return None
        if (why := refusal(stage, promotion)) is not None:
            await self._end(raw, fail(promotion, PromotionPhase.ERRORED, why, world.now()))
            return None
        current = stage.status.current_promotion
        if current is None or current.name != promotion.name:
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
            self._world.recorder.record(_warning(promotion, REASON_ABORT_NOT_UNDERSTOOD(), str(error)))
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

    async def _stop(self, raw: JsonObject, promotion: Promotion, asked: Abort) -> StepOutcome:
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
                        world.recorder.record(_step_warning(promotion, current.alias, outcome.warning))
                    intended = promotion.replace(status=with_intent(promotion.status, current.alias, outcome))
                    raw, promotion = await self._write(raw, intended)
                case Waiting():
                    return await self._wait(raw, promotion, current, outcome)
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
        return begin(promotion, freight.reference(), _collection(stage, freight), now)

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
        runner: StepRunner,
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
            room=ROOM - (len(encode(raw)) - footprint(records)),
        )

    async def _wait(
        self, raw: JsonObject, promotion: Promotion, current: CurrentStep, outcome: Waiting
    ) -> Result | None:
        """Write what the user should know of the wait, but neither at once nor again and again."""
        known = records_of(promotion.status, current.alias)
        status = with_records(promotion.status, current.alias, outcome.records) if _tells(known, outcome) else None
        message = outcome.message if outcome.notable else ""
        shown = promotion.status.step_execution_metadata[-1].message
        if message != shown and (message or shown):
            status = with_message(status or promotion.status, message)
        if promotion.wire().get("status") != raw.get("status"):
            # The step before this one has ended, which is not written yet.
            status = status or promotion.status
        key = Key(promotion.namespace, promotion.name)
        again = min(LOOK_AGAIN, max(outcome.look_after, _LEAST_PAUSE)) if outcome.look_after is not None else LOOK_AGAIN
        if status is None:
            self._pending_since.pop(key, None)
            return _again(outcome, again)
        now = asyncio.get_running_loop().time()
        since = self._pending_since.setdefault(key, now)
        gather = COALESCE * min(max(len(known) / _MANY, 1), _COALESCE_MANY)
        if now - since < gather and not _urgent(known, outcome):
            return _again(outcome, min(again, gather - (now - since)))
        self._pending_since.pop(key, None)
        await self._write(raw, promotion.replace(status=status))
        return _again(outcome, again)

    # -- writing --------------------------------------------------------------------------------------------------

    async def _write(self, raw: JsonObject, promotion: Promotion) -> tuple[JsonObject, Promotion]:
        """Write the status; returns the object as it stands then."""
        world = self._world
        await world.write_status(world.promotions, raw, promotion.status.wire())
        written = world.promotions.get(Key(promotion.namespace, promotion.name))
        model = world.promotion_models.read(written)
        if written is None or model is None:
            raise _DeletedError
        return written, model

    async def _end(self, raw: JsonObject, promotion: Promotion) -> None:
        """Write the final status and tell it."""
        world = self._world
        await world.write_status(world.promotions, raw, promotion.status.wire())
        key = Key(promotion.namespace, promotion.name)
        self._pending_since.pop(key, None)
        self._give_up_at.pop(key, None)
        phase = promotion.status.phase
        _log.info(
            "promotion ended",
            promotion=str(key),
            phase=str(phase),
            **({"message": promotion.status.message} if promotion.status.message else {}),
        )
        world.recorder.record(_ended_event(promotion))


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


def _no_stage_event(promotion: Promotion) -> Event:
    message = STAGE_NOT_FOUND(stage=promotion.spec.stage, namespace=promotion.namespace)
    return _warning(promotion, REASON_STAGE_NOT_FOUND(), message)


def _warning(promotion: Promotion, reason: str, message: str) -> Event:
    return Event(
        Regarding(PROMOTIONS, Key(promotion.namespace, promotion.name), promotion.metadata.uid),
        event_name(promotion.name, reason, promotion.metadata.uid),
        reason,
        message,
        type="Warning",
    )


def _step_warning(promotion: Promotion, alias: str, message: str) -> Event:
    reason = REASON_STEP_WARNING()
    return Event(
        Regarding(PROMOTIONS, Key(promotion.namespace, promotion.name), promotion.metadata.uid),
        event_name(promotion.name, reason, promotion.metadata.uid, alias),
        reason,
        STEP_WARNING(alias=alias, message=message),
        type="Warning",
    )


def _ended_event(promotion: Promotion) -> Event:
    phase, message = promotion.status.phase, promotion.status.message
    key = Key(promotion.namespace, promotion.name)
    reference = promotion.status.freight
    reason = REASON_ENDED(phase=phase)
    said = ENDED(phase=phase) + (f": {message}" if message else "")
    return Event(
        Regarding(PROMOTIONS, key, promotion.metadata.uid),
        event_name(promotion.name, reason, promotion.metadata.uid),
        reason,
        said,
        type="Normal" if phase in {PromotionPhase.SUCCEEDED, PromotionPhase.ABORTED} else "Warning",
        annotations=event_annotations(
            actor=promotion.metadata.annotations.get(ANNOTATION_CREATE_ACTOR, "controller:promotion-controller"),
            project=promotion.namespace,
            promotion_name=promotion.name,
            promotion_create_time=promotion.metadata.creation_timestamp or "",
            stage_name=promotion.spec.stage,
            freight_name=reference.name if reference is not None else promotion.spec.freight or "",
        ),
    )


def _collection(stage: Stage, freight: Freight) -> FreightCollection:
    """What the Stage has once this Freight is in: it, and what is there of other origins that are still requested."""
    current = stage.current_freight or FreightCollection()
    kept = {origin: reference for origin, reference in current.items.items() if origin in stage.origins}
    return FreightCollection(items=kept).with_freight(freight.reference())


def _again(outcome: Waiting, seconds: float) -> Result:
    """Come back in *seconds*; after an error when the queue's back-off says. Raises that error."""
    if outcome.error is not None:
        raise outcome.error
    return Result(requeue_after=seconds)


def _tells(known: Sequence[Record], outcome: Waiting) -> bool:
    """True if the records say something worth a write: an end, or since when something counts."""
    return any(
        (new.state.final and not old.state.final)
        or (new.free_since, new.stopping_since) != (old.free_since, old.stopping_since)
        or (new.looked, new.seen_health) != (old.looked, old.seen_health)
        for old, new in zip(known, outcome.records, strict=True)
    )


def _urgent(known: Sequence[Record], outcome: Waiting) -> bool:
    """True for the first bad end, and when work was asked to end: what follows must not be taken for its own doing."""
    spoilt = any(_is_bad_end(old) for old in known)
    return any(
        (_is_bad_end(new) and not old.state.final and not spoilt) or new.stopping_since != old.stopping_since
        for old, new in zip(known, outcome.records, strict=True)
    )


def _is_bad_end(record: Record) -> bool:
    return record.state.final and record.state is not TargetState.SUCCEEDED


# --- what wakes a Promotion ----------------------------------------------------------------------------------------


def _itself(_old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
    return (JSON.meta(new).key,) if new is not None else ()


def _own_news() -> Predicate[JsonObject]:
    """A Promotion new to us (after a restart: one that runs), or one whose annotations or labels changed.

    Not its status: that is written by us alone, and each write is followed up where it is made.
    """
    return created() | changed(
        lambda p: tuple(
            p["metadata"].get(name) for name in ("annotations", "labels", "generation", "deletionTimestamp")
        )
    )


def _current_name(stage: JsonObject | None) -> str:
    status = (stage or {}).get("status") or {}
    return str((status.get("currentPromotion") or {}).get("name") or "")


def _acknowledged() -> Predicate[JsonObject]:
    """The Stage names a current Promotion, and it or what decides whose Stage it is has changed."""
    return Predicate(lambda old, new: new is not None and _current_name(new) != "" and _call(old) != _call(new))


def _call(stage: JsonObject | None) -> object:
    if stage is None:
        return None
    meta = stage["metadata"]
    return (_current_name(stage), meta.get("labels"), meta.get("generation"))


def _acknowledged_promotion(_old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
    name = _current_name(new)
    return (Key(new["metadata"]["namespace"], name),) if new is not None and name else ()


def _verdict_news() -> Predicate[Application]:
    """Anything that the step argocd-wait looks at; of interest only to a Promotion that is in such a step."""
    return changed(news)


def _newly_chosen() -> Predicate[Application]:
    """An Application that was made, or whose labels are others now: a selector may match it that did not."""
    return created() | changed(lambda app: app.metadata.labels)


def _operation_news() -> Predicate[Application]:
    """Anything that a decision about an operation rests on; refreshes, health and the like do not pass."""
    return changed(operation_aspect) | created() | deleted()
