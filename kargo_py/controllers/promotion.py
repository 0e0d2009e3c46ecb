"""The Promotion controller: runs the Promotion that its Stage has acknowledged.

One pass does what can be done now: begin, record intents, start, look at what was started, record the end. In between
it holds nothing; a Promotion that waits for Argo CD is woken by the event on its Application. The order of the writes
is what makes it crash-safe: an intent is durable before its start is issued, and an end is recorded before it is
forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from kargo_py.api.promotion import Promotion, PromotionPhase
from kargo_py.api.stage import Stage
from kargo_py.api.types import JsonObject
from kargo_py.argocd.application import Application
from kargo_py.controllers.admission import collection_with, with_admission
from kargo_py.controllers.events import STAGE_NOT_FOUND, no_stage_event
from kargo_py.controllers.freight_choice import freight_of
from kargo_py.controllers.promotion_aborting import Aborting
from kargo_py.controllers.promotion_admission import Admission, Admitted, Held, Refused
from kargo_py.controllers.promotion_calling import Calling
from kargo_py.controllers.promotion_filling import work_dir_use
from kargo_py.controllers.promotion_runs import Run, Runs, Turn
from kargo_py.controllers.promotion_size import embedded
from kargo_py.controllers.promotion_stepping import Stepping
from kargo_py.controllers.promotion_waiting import MANY
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
from kargo_py.controllers.promotion_writing import DeletedError, Writer
from kargo_py.controllers.telling import Teller
from kargo_py.controllers.world import World, attempts_of, awaited_in, awaits
from kargo_py.deployers.base import RecordError
from kargo_py.engine.machine import (
    alias_fault,
    begin,
    current_step,
    fail,
    held_up,
    is_only_running,
    with_message,
    with_refresh,
)
from kargo_py.engine.records import records_of
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.controller import Controller, Result
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message
from kargo_py.steps.base import ROOM
from kargo_py.steps.step import WorkDirUse

UNKNOWN_PHASE = message(
    "status.phase {phase!r} is not known",
    do="Somebody wrote the phase into the Promotion's status. Look at the Applications to see whether a sync of it "
    "runs, then create a new Promotion.",
    shown=Shown.PROMOTION,
)
CANNOT_RUN = message(
    "the Promotion cannot run: {reason}",
    do="The Promotion is `Errored`, and nothing was started. Correct what the reason says and create a new Promotion.",
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

_NOT_ADMITTED = "NotAdmitted"
_STAGE_NOT_FOUND = "StageNotFound"
_STAGE_UNREADABLE = "StageUnreadable"

T = TypeVar("T")


class PromotionReconciler:
    """Reconciles Promotions."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._next_look: dict[Key, float] = {}
        self._runs = Runs()
        self._controller: Controller[Key] | None = None
        self._admission = Admission(world)
        self.teller = Teller(world)
        self._writer = Writer(world, self.teller)
        calling = Calling(world)
        self._stepping = Stepping(world, self._writer, self.teller, calling, self._enqueue)
        self._aborting = Aborting(world, self._writer, calling, self._stepping)

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
        self._controller = controller
        return controller

    def _enqueue(self, key: Key) -> None:
        """Have the Promotion come again at once: a call of its step that was left under way has ended."""
        if self._controller is not None:
            self._controller.enqueue(key)

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
            await self._forget(key)
        if raw is None or promotion is None:
            return None
        if not promotion.finished and (early := self._too_early(key, raw)) > 0:
            return Result(requeue_after=early)
        stage_raw = await world.stages.read(Key(key.namespace, promotion.spec.stage))
        stage = world.stage_models.read(stage_raw)
        if not self._ours(promotion, stage):
            await self._forget(key)
            return None
        if promotion.finished:
            await self.teller.missed(promotion)
            return None
        if not promotion.running:
            self.teller.created(promotion)
        if (asked := self._aborting.asked(promotion)) is not None:
            turn = await self._turn(raw, promotion)
            return await self._left(turn, await self._aborting.abort(turn, asked))
        if promotion.metadata.deletion_timestamp:
            return None
        if stage is None:
            await self._lacks_stage(raw, promotion)
            return None
        if promotion.phase == PromotionPhase.PENDING:
            admitted = await self._admission.admit(raw, promotion, stage)
            if not isinstance(admitted, Admitted):
                return await self._not_admitted(raw, promotion, admitted)
            raw, promotion = admitted.raw, admitted.promotion
        current = stage.status.current_promotion
        if current is None or current.name != promotion.name:
            return await self._wait_for_turn(raw, promotion, stage)
        if promotion.phase not in {PromotionPhase.PENDING, PromotionPhase.RUNNING}:
            why = UNKNOWN_PHASE(phase=promotion.phase)
            await self._end(raw, fail(promotion, PromotionPhase.ERRORED, why, world.now()))
            return None
        try:
            return await self._run(raw, promotion, stage)
        except DeletedError:
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

    async def _not_admitted(self, raw: JsonObject, promotion: Promotion, why: Refused | Held | None) -> Result | None:
        """End a Promotion that was refused, say why one cannot be admitted now."""
        now = self._world.now()
        if isinstance(why, Refused):
            reason = CANNOT_RUN(reason=why.reason)
            await self._end(raw, fail(promotion, PromotionPhase.ERRORED, reason, now))
        elif why is not None:
            await self._writer.write_if_news(raw, promotion, held_up(promotion, _NOT_ADMITTED, why.reason, now))
            return Result(error=why.error)
        return None

    async def _wait_for_turn(self, raw: JsonObject, promotion: Promotion, stage: Stage) -> Result | None:
        """It is not its turn, which costs no write at first; but what was said before may not be true any more."""
        now = self._world.now()
        waiting = held_up(promotion, "", "", now)
        left = self._admission.unrecorded(promotion, stage)
        if left is not None and left <= 0:
            waiting = waiting.replace(status=with_admission(waiting, stage, now))
        await self._writer.write_if_news(raw, promotion, waiting)
        return Result(requeue_after=left) if left is not None and left > 0 else None

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
            await self._writer.write_if_news(raw, promotion, held_up(promotion, reason, why, world.now()))
            return
        # What could not be written yet must not get lost: by a write without it a step would be called once more.
        running = (await self._turn(raw, promotion)).promotion
        if (current := current_step(running)) is not None and current.started:
            await self._writer.write_if_news(raw, promotion, running.replace(status=with_message(running.status, why)))

    async def _forget(self, key: Key) -> None:
        """The Promotion has ended, or is gone: nothing of it goes on, and nothing is kept."""
        self._next_look.pop(key, None)
        self._admission.forget(key)
        await self._drop(self._runs.pop(key))
        self._world.stats.waits(key, None)

    async def _drop(self, run: Run | None) -> None:
        if run is None:
            return
        if run.call is not None:
            await self._world.executor.cancel(run.call)
        if run.uses_work_dir:
            await self._world.executor.work_dirs.remove(run.uid)

    async def _turn(self, raw: JsonObject, promotion: Promotion) -> Turn:
        """A pass over *promotion*; what is kept of another one, or of how it was, is dropped."""
        await self._drop(self._runs.pop_other(promotion))
        run = self._runs.of(promotion)
        if run.uses_work_dir is None:
            kinds = [(self._world.steps.get(step.uses or ""), step) for step in promotion.spec.steps or ()]
            run.uses_work_dir = any(
                kind is not None and work_dir_use(kind, step) is not WorkDirUse.NONE for kind, step in kinds
            )
        return Turn.of(raw, promotion, run)

    async def _left(self, turn: Turn, result: Result | None) -> Result | None:
        """A pass is over, with *result*; nothing is kept of what has ended."""
        if turn.promotion.finished:
            await self._forget(turn.key)
        return result

    async def _end(self, raw: JsonObject, promotion: Promotion) -> None:
        """Write the final status and tell it."""
        await self._writer.end(raw, promotion)
        await self._forget(Key(promotion.namespace, promotion.name))

    def _ours(self, promotion: Promotion, stage: Stage | None) -> bool:
        """Whether this controller acts on *promotion*: its Stage decides, its own label where that cannot be read."""
        covers = self._world.responsibility.covers
        if stage is not None:
            return covers(stage.metadata.labels, stage.spec.shard)
        return covers(promotion.metadata.labels)

    # -- running --------------------------------------------------------------------------------------------------

    async def _run(self, raw: JsonObject, promotion: Promotion, stage: Stage) -> Result | None:
        """Begin if it has not begun; then step after step until one waits or all are through."""
        turn = await self._turn(raw, promotion)
        if with_refresh(promotion) is not promotion:
            # Somebody suspects that an event was missed.
            for record in records_of(promotion.status):
                self._world.argocd.applications.mark_dirty(record.key)
        if promotion.running:
            turn.taken_over = not records_of(promotion.status)
        if not promotion.running or is_only_running(promotion):
            begun = await self._begin(raw, promotion, stage)
            if begun is None:
                return None
            turn.promotion = begun
        return await self._left(turn, await self._stepping.go_on(turn))

    async def _begin(self, raw: JsonObject, promotion: Promotion, stage: Stage) -> Promotion | None:
        """The Promotion in phase Running, not written yet; None if it ended instead."""
        now = self._world.now()
        freight = await freight_of(self._world, promotion, stage)
        reason = cannot_run(promotion, stage) or (freight if isinstance(freight, str) else None)
        if reason is not None or isinstance(freight, str):
            ended = fail(promotion, PromotionPhase.ERRORED, CANNOT_RUN(reason=reason), now)
            await self._end(raw, ended)
            return None
        room = ROOM - len(encode(raw))
        reference, collection = embedded(freight.reference(), collection_with(stage, freight), room)
        return begin(promotion, reference, collection, now)


def cannot_run(promotion: Promotion, stage: Stage) -> str | None:
    """Why *promotion* as it is written cannot run; None if it can."""
    if not promotion.spec.steps:
        return NO_STEPS(stage=stage.name)
    return alias_fault(promotion.spec.steps)
