"""The Stage controller: decides which Promotion runs, judges health, and marks Freight as being here and verified.

The order of its writes is Stage status, Stage metadata, Freight, Events. Each is derived from the one before at every
look, so a crash between any two mends itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import TypeVar

import structlog

from kargo_py.api.meta import ObjectMeta
from kargo_py.api.names import FINALIZER
from kargo_py.api.promotion import HealthCheckStep, Promotion, phase_of
from kargo_py.api.stage import HealthState, Stage, StageStatus, worst
from kargo_py.api.types import JsonObject, Time
from kargo_py.argocd.application import Application
from kargo_py.argocd.health import fingerprint
from kargo_py.controllers.control_flow import control_flow_status
from kargo_py.controllers.promotion_waking import has_not_begun, itself
from kargo_py.controllers.stage_context import argocd_context, metadata_patch, without_finalizer
from kargo_py.controllers.stage_freight import agree, forget, pass_on, tell_verified
from kargo_py.controllers.stage_health import checks
from kargo_py.controllers.stage_history import fold_ended, is_running
from kargo_py.controllers.stage_queue import current_name, has_ended, select
from kargo_py.controllers.stage_status import Outlook, Situation, outlook
from kargo_py.controllers.stage_verification import Verified, successful
from kargo_py.controllers.template import Template
from kargo_py.controllers.world import World, freight_mentions, freight_origin, stage_of
from kargo_py.deployers.base import HealthVerdict
from kargo_py.kube.clock import Steady
from kargo_py.kube.codec import JSON
from kargo_py.kube.controller import Controller, Result
from kargo_py.kube.errors import KubeError, NotFound
from kargo_py.kube.predicates import Predicate, changed, created, deleted
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message
from kargo_py.steps.argocd_update import USES as ARGOCD_UPDATE
from kargo_py.steps.base import Watch

CHECKS_NOT_KNOWN = message(
    "which health checks hold here is not known; promote again",
    do="`status.health.config` of the Stage cannot be read, or another program took the last Promotion in. A "
    "Promotion that succeeds leaves new checks.",
    shown=Shown.STAGE,
)
KIND_OF_CHECK_NOT_KNOWN = message(
    'the kind of health check "{uses}" is not known to this controller',
    do="Another version of kargo-py, or a Kargo, left this check. Promote again with the steps that this version has.",
    shown=Shown.STAGE,
)
_AT_ONCE = 0.001
"""Seconds."""
RETELL = timedelta(minutes=10)
"""How far back a process that has just begun tells of what was verified: one before it may not have come to that."""

T = TypeVar("T")

_log = structlog.get_logger(__name__)


class StageReconciler:
    """Reconciles Stages."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ended_since: dict[Key, tuple[str, float]] = {}
        self._since_last: dict[Key, tuple[tuple[str, Time], Steady]] = {}
        self._known: dict[Key, str] = {}
        self._untold: dict[Key, Verified] = {}

    def controller(self) -> Controller[Key]:
        """The loop, with everything that wakes a Stage."""
        world = self._world
        controller = (
            Controller("stage", self.reconcile)
            .watches(world.stages, _own_news(), itself)
            .watches(world.stages, _current_news(), self._if_bereft)
            .watches(world.promotions, _promotion_news(), self._stages_of_promotion)
            .watches(world.freights, _freight_news(), self._stages_of_freight)
            .watches(world.argocd.applications, _verdict_news(), self._stages_checking)
        )
        for tasks in world.task_caches:
            # A cluster that has no such kind has no such tasks: that is not waited for.
            controller.watches(tasks, _task_news(), self._stages_using, needed=False)
        for watch in world.watches:
            controller.watches(watch.cache, watch.predicate, self._stages_concerned(watch))
        return controller

    def _if_bereft(self, old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
        """The Stage, if it does not name a Promotion any more that has not ended: that was not written by us."""
        current = current_name(old)
        if old is None or new is None or not current:
            return ()
        key = JSON.meta(old).key
        named = self._world.promotions.get(Key(key.namespace, current))
        return (key,) if named is not None and not has_ended(named) else ()

    def _current(self, key: Key) -> JsonObject | None:
        """The Promotion of the Stage that it names as its current one; None also if the Stage cannot be read."""
        stage = self._world.stage_models.read(self._world.stages.get(key))
        current = stage.status.current_promotion if stage is not None else None
        named = self._world.promotions.get(Key(key.namespace, current.name)) if current is not None else None
        return named if named is not None and key in stage_of(named) else None

    def _is_judged(self, key: Key) -> bool:
        """Whether a verdict counts for the Stage now: not while its current Promotion runs, whose end wakes it."""
        current = self._current(key)
        return current is None or has_ended(current)

    def _stages_of_promotion(self, old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
        """The Stage, unless all that is new is that its current Promotion has begun."""
        promotion = new if new is not None else old
        if promotion is None:
            return ()
        stages = stage_of(promotion)
        if old is None or new is None or not (has_not_begun(old) and is_running(new)) or _spec_differs(old, new):
            return stages
        return [key for key in stages if self._current(key) is not new]

    def _stages_concerned(self, watch: Watch[T]) -> Callable[[T | None, T | None], Iterable[Key]]:
        """The Stages of which some check, of whatever kind, is about the changed object."""

        def concerned(old: T | None, new: T | None) -> Iterable[Key]:
            target = new if new is not None else old
            if target is None:
                return ()
            key = watch.key(target)
            return {stage for uses in self._world.checkers for stage in self._stages_with_check(uses, key)}

        return concerned

    def _stages_with_check(self, uses: str, target: Key) -> Iterable[Key]:
        """Those that are judged by such a check now."""
        index = f"checked:{uses}"
        holding = [JSON.meta(stage).key for stage in self._world.stages.indexed(index, target)]
        holding += [key for p in self._world.promotions.indexed(index, target) for key in stage_of(p)]
        return [key for key in dict.fromkeys(holding) if self._is_judged(key)]

    def _stages_checking(self, old: Application | None, new: Application | None) -> Iterable[Key]:
        app = new or old
        return self._stages_with_check(ARGOCD_UPDATE, app.key) if app is not None else ()

    def _stages_using(self, old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
        """The Stages whose templates name the changed task."""
        task = new if new is not None else old
        if task is None:
            return ()
        named = self._world.stages.indexed("tasks", (task["kind"], JSON.meta(task).key))
        return [JSON.meta(stage).key for stage in named]

    def _stages_of_freight(self, old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
        """Those that Freight which comes back is in, those that may pass it on, and those it is the first to name."""
        freight = new if new is not None else old
        if freight is None:
            return
        stages = self._world.stages
        if old is None or new is None:
            yield from (JSON.meta(stage).key for stage in stages.indexed("freight", JSON.meta(freight).key))
        for origin in freight_origin(freight):
            yield from (JSON.meta(stage).key for stage in stages.indexed("passing", origin))
        for key in freight_mentions(freight):
            stage = stages.get(key)
            if stage is not None and FINALIZER not in (stage["metadata"].get("finalizers") or ()):
                yield key

    # -- one pass -------------------------------------------------------------------------------------------------

    async def reconcile(self, key: Key) -> Result | None:
        """Bring one Stage up to date."""
        world = self._world
        raw = await world.stages.read(key)
        if raw is None or not world.is_ours(raw):
            self._forget(key)
            return None
        stage = world.stage_models.read(raw)
        going = bool(raw["metadata"].get("deletionTimestamp"))
        if (going or (stage is not None and stage.is_control_flow)) and not self._runs_something(key):
            if going:
                await self._let_go(key, raw)
                return None
            if stage is not None:
                return await self._pass_on(raw, stage)
        return await self._promote(key, raw, stage) if stage is not None else None

    def _forget(self, key: Key) -> None:
        self._ended_since.pop(key, None)
        self._since_last.pop(key, None)
        self._known.pop(key, None)
        self._untold.pop(key, None)

    def _runs_something(self, key: Key) -> bool:
        """What runs is not cut off: it goes on to its end before the Stage goes, or becomes one without steps."""
        return any(is_running(promotion) for promotion in self._world.promotions.indexed("stage", key))

    async def _let_go(self, key: Key, raw: JsonObject) -> None:
        """Tidy up after a Stage that is being deleted, whatever else is in it, and let it go."""
        patch = without_finalizer(ObjectMeta.model_validate(raw["metadata"]))
        if not patch:
            return
        await forget(self._world, key)
        try:
            await self._world.write_metadata(self._world.stages, raw, patch)
        except NotFound:
            await self._world.stages.read_live(key)

    async def _pass_on(self, raw: JsonObject, stage: Stage) -> Result | None:
        """A Stage without steps: pass on what it may take."""
        world = self._world
        now = world.now()
        status = control_flow_status(stage, now)
        if status.wire() != stage.status.wire():
            await world.write_status(world.stages, raw, status.wire())
            stage = stage.replace(status=status)
        if not await self._keep_metadata(stage, None):
            return None
        await agree(world, stage)
        # Not known again before all is told: what an error keeps from being told now is told at the next look.
        since = now - RETELL if self._is_new(stage) else None
        self._known.pop(JSON.meta(raw).key, None)
        again = await pass_on(world, stage, since)
        self._known[JSON.meta(raw).key] = stage.metadata.uid
        return Result(requeue_after=again) if again is not None else None

    async def _promote(self, key: Key, raw: JsonObject, stage: Stage) -> Result | None:
        """A Stage with steps: take in what has ended, judge, and let the next Promotion begin."""
        world = self._world
        template, error = await self._template(stage)
        if world.stages.get(key) is not raw:
            # It has changed meanwhile. There was time for that, and the template, once read, takes none.
            return Result(requeue_after=_AT_ONCE)
        promotions = await self._promotions(key, stage)
        if promotions is None:
            return None
        folded = fold_ended(stage, promotions)
        held = checks(folded)
        situation = Situation(
            stage,
            promotions,
            self._verdict(held),
            world.now(),
            self._since(key, stage, promotions),
            template,
            self._waited(key, folded),
        )
        next_ = outlook(situation, folded, held)
        if next_.write:
            if next_.verified is not None:
                self._untold[key] = next_.verified
            await world.write_status(world.stages, raw, next_.status.wire())
            _tell_log(stage, next_)
            stage = stage.replace(status=next_.status)
        if not await self._keep_metadata(stage, checks(stage.status)):
            return None
        await agree(world, stage)
        if (verified := self._to_tell(key, stage)) is not None:
            tell_verified(world, stage, verified)
        if next_.refresh:
            await self._refresh(held)
        return Result(next_.look_again, error) if next_.look_again is not None or error is not None else None

    async def _template(self, stage: Stage) -> tuple[Template | None, KubeError | None]:
        """The Stage's template; or why its tasks cannot be read, which is no reason not to go on with the rest."""
        if stage.is_control_flow:
            return None, None
        try:
            return await self._world.templates.of(stage), None
        except KubeError as error:
            return None, error

    async def _promotions(self, key: Key, stage: Stage) -> list[Promotion] | None:
        """The Stage's Promotions that matter now; None if one that may be running cannot be read.

        Then nothing else may start, until somebody corrects or deletes it. What may be outdated is read live.
        """
        world = self._world
        found = []
        selection = select(world.promotions.indexed("stage", key), stage)
        for raw in selection.matter:
            now = await world.promotions.read(JSON.meta(raw).key)
            if (promotion := world.promotion_models.read(now)) is not None:
                found.append(promotion)
            elif now is not None and (is_running(now) or _is_current(now, stage)):
                return None
        for raw in () if any(not p.finished for p in found) else selection.in_order():
            promotion = world.promotion_models.read(await world.promotions.read(JSON.meta(raw).key))
            if promotion is not None:
                found.append(promotion)
                if not promotion.finished:
                    break
        return found

    def _since(self, key: Key, stage: Stage, promotions: Sequence[Promotion]) -> float | None:
        """Seconds since the end of the current Promotion was first seen."""
        current = stage.status.current_promotion
        ended = current is not None and any(p.name == current.name and p.finished for p in promotions)
        if current is None or not ended:
            self._ended_since.pop(key, None)
            return None
        now = asyncio.get_running_loop().time()
        name, since = self._ended_since.get(key, (current.name, now))
        if name != current.name:
            since = now
        self._ended_since[key] = (current.name, since)
        return now - since

    def _waited(self, key: Key, status: StageStatus) -> timedelta | None:
        """How long ago the last Promotion ended: by our own clock from when this process first saw that it has."""
        last = status.last_promotion
        if last is None or last.finished_at is None:
            self._since_last.pop(key, None)
            return None
        time = asyncio.get_running_loop().time()
        end = (last.name, last.finished_at)
        known = self._since_last.get(key)
        if known is None or known[0] != end:
            known = self._since_last[key] = (end, Steady.since(last.finished_at.datetime, self._world.now(), time))
        return known[1].passed(time)

    # -- health ---------------------------------------------------------------------------------------------------

    def _verdict(self, held: Sequence[HealthCheckStep] | None) -> HealthVerdict:
        """The worst of all checks; a kind of check that is not known gives Unknown, and so do checks that are not."""
        if held is None:
            return HealthVerdict(HealthState.UNKNOWN, (CHECKS_NOT_KNOWN(),))
        verdicts = []
        for uses, configs in _by_kind(held).items():
            checker = self._world.checkers.get(uses)
            if checker is None:
                verdicts.append(HealthVerdict(HealthState.UNKNOWN, (KIND_OF_CHECK_NOT_KNOWN(uses=uses),)))
            else:
                verdicts.append(checker.assess(configs))
        again = [v.recheck_after for v in verdicts if v.recheck_after is not None]
        return HealthVerdict(
            worst(HealthState(v.state) for v in verdicts),
            tuple(issue for v in verdicts for issue in v.issues),
            trusted=all(v.trusted for v in verdicts),
            recheck_after=min(again, default=None),
            refresh=any(v.refresh for v in verdicts),
        )

    async def _refresh(self, held: Sequence[HealthCheckStep] | None) -> None:
        for uses, configs in _by_kind(held or ()).items():
            if (checker := self._world.checkers.get(uses)) is not None:
                await checker.refresh(configs)

    # -- metadata and Events --------------------------------------------------------------------------------------

    async def _keep_metadata(self, stage: Stage, held: Sequence[HealthCheckStep] | None) -> bool:
        """Write the finalizer once it is needed, and the Applications behind the Stage when they change.

        Returns False if the Stage is gone: then no Freight must be told of it any more.
        """
        world = self._world
        key = Key(stage.namespace, stage.name)
        raw = world.stages.get(key)
        if raw is None:
            return False
        meta = ObjectMeta.model_validate(raw["metadata"])
        if meta.deletion_timestamp is not None:
            return FINALIZER in meta.finalizers
        applications = [app for uses, configs in _by_kind(held or ()).items() for app in self._checked(uses, configs)]
        says = stage.is_control_flow or stage.status.freight_history or world.freights.indexed("mentions", key)
        patch = metadata_patch(meta, argocd_context(applications), finalizer=bool(says))
        if not patch:
            return True
        try:
            await world.write_metadata(world.stages, raw, patch)
        except NotFound:
            return await world.stages.read_live(key) is not None
        return True

    def _checked(self, uses: str, configs: Sequence[JsonObject]) -> Iterable[Key]:
        checker = self._world.checkers.get(uses)
        return [key for config in configs for key in checker.checked(config)] if checker is not None else ()

    def _is_new(self, stage: Stage) -> bool:
        """Whether this process has not been through with the Stage yet."""
        return self._known.get(Key(stage.namespace, stage.name)) != stage.metadata.uid

    def _to_tell(self, key: Key, stage: Stage) -> Verified | None:
        """What has been verified and was not told, be it that the Freight could not be written at first.

        For a process that has just begun, also what was verified a short time before.
        """
        is_new, untold = self._is_new(stage), self._untold.pop(key, None)
        self._known[key] = stage.metadata.uid
        info, last = successful(stage.status), stage.status.last_promotion
        if info is None or last is None:
            return None
        if untold is not None and untold.info.id == info.id:
            return untold
        if not is_new or info.finish_time is None or info.finish_time.datetime < self._world.now() - RETELL:
            return None
        return Verified(stage.status.freight_history[0], info, last.name)


def _is_current(promotion: JsonObject, stage: Stage) -> bool:
    current = stage.status.current_promotion
    return current is not None and current.name == promotion["metadata"]["name"]


def _by_kind(held: Sequence[HealthCheckStep]) -> dict[str, list[JsonObject]]:
    """The configurations of the checks by their kind, in their order."""
    found: dict[str, list[JsonObject]] = {}
    for check in held:
        found.setdefault(check.uses, []).append(check.config if isinstance(check.config, dict) else {})
    return found


def _tell_log(before: Stage, next_: Outlook) -> None:
    name = f"{before.namespace}/{before.name}"
    old, new = before.status.current_promotion, next_.status.current_promotion
    if new is not None and (old is None or old.name != new.name):
        _log.info("promotion acknowledged", stage=name, promotion=new.name)
    was = before.status.health.status if before.status.health else ""
    health = next_.status.health
    if health is not None and health.status != was:
        _log.info("stage health changed", stage=name, health=health.status, was=was or None, issues=list(health.issues))


# --- what wakes a Stage --------------------------------------------------------------------------------------------


def _own_news() -> Predicate[JsonObject]:
    """A Stage new to us, gone, or whose spec, annotations or labels changed; its status is mostly written by us."""
    return (
        created()
        | deleted()
        | changed(
            lambda s: (
                s["metadata"].get("generation"),
                s["metadata"].get("annotations"),
                s["metadata"].get("labels"),
                s["metadata"].get("deletionTimestamp"),
            )
        )
    )


def _current_news() -> Predicate[JsonObject]:
    """A Stage names another Promotion as its current one, or none any more."""
    return changed(current_name)


def _task_news() -> Predicate[JsonObject]:
    """A task was created, deleted, or has another spec."""
    return created() | deleted() | changed(lambda task: task.get("spec"))


def _freight_news() -> Predicate[JsonObject]:
    """Freight was created, deleted, or says something else about Stages."""
    return changed(_said) | created() | deleted()


def _said(freight: JsonObject) -> object:
    """What Freight says about Stages."""
    status = freight.get("status") or {}
    return [status.get(name) for name in ("currentlyIn", "verifiedIn", "approvedFor")]


def _promotion_news() -> Predicate[JsonObject]:
    """A Promotion was created, deleted, or changed its phase."""
    return changed(_phase) | created() | deleted()


def _phase(promotion: JsonObject) -> object:
    """Its phase; and its generation, since one that could not be read may have been corrected."""
    return (phase_of(promotion), promotion["metadata"].get("generation"))


def _spec_differs(old: JsonObject, new: JsonObject) -> bool:
    return bool(old["metadata"].get("generation") != new["metadata"].get("generation"))


def _verdict_news() -> Predicate[Application]:
    """Anything that a verdict rests on."""
    return changed(fingerprint) | created() | deleted()
