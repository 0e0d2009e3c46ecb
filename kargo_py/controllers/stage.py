"""The Stage controller: decides which Promotion runs, judges health, and marks Freight as being here and verified.

The order of its writes is Stage, then Freight, then Events. Freight is derived from the Stage at every look, so a crash
between these two mends itself; an Event that a crash prevents is not told later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import structlog

from kargo_py.api.freight import Freight
from kargo_py.api.promotion import HealthCheckStep, Promotion, phase_of
from kargo_py.api.stage import HealthState, Stage, worst
from kargo_py.api.types import JsonObject, Time
from kargo_py.argocd.application import Application
from kargo_py.argocd.health import fingerprint
from kargo_py.controllers.events import verified_event
from kargo_py.controllers.freight_status import freight_patch
from kargo_py.controllers.stage_status import (
    Outlook,
    Situation,
    Verified,
    checks,
    fold_ended,
    is_history,
    outlook,
)
from kargo_py.controllers.world import World, stage_of
from kargo_py.deployers.base import HealthVerdict
from kargo_py.kube.codec import JSON
from kargo_py.kube.controller import Controller, Result
from kargo_py.kube.errors import NotFound
from kargo_py.kube.predicates import Predicate, changed, created, deleted
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message
from kargo_py.steps.argocd_update import USES as ARGOCD_UPDATE

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

_log = structlog.get_logger(__name__)


class StageReconciler:
    """Reconciles Stages."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ended_since: dict[Key, tuple[str, float]] = {}

    def controller(self) -> Controller[Key]:
        """The loop, with everything that wakes a Stage."""
        world = self._world
        return (
            Controller("stage", self.reconcile)
            .watches(world.stages, _own_news(), _itself)
            .watches(world.promotions, _promotion_news(), _stages_of_promotion)
            .watches(world.freights, created() | deleted(), self._stages_of_freight)
            .watches(world.argocd.applications, _verdict_news(), self._stages_checking)
        )

    def _stages_checking(self, old: Application | None, new: Application | None) -> Iterable[Key]:
        app = new or old
        if app is None:
            return ()
        index = f"checked:{ARGOCD_UPDATE}"
        holding = [JSON.meta(stage).key for stage in self._world.stages.indexed(index, app.key)]
        return holding + [key for p in self._world.promotions.indexed(index, app.key) for key in stage_of(p)]

    def _stages_of_freight(self, old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
        """Freight that comes back may have to be told again where it is."""
        freight = new if new is not None else old
        if freight is None:
            return ()
        return [JSON.meta(stage).key for stage in self._world.stages.indexed("freight", JSON.meta(freight).key)]

    # -- one pass -------------------------------------------------------------------------------------------------

    async def reconcile(self, key: Key) -> Result | None:
        """Bring one Stage up to date."""
        world = self._world
        raw = await world.stages.read(key)
        stage = world.stage_models.read(raw)
        if raw is None or stage is None:
            self._ended_since.pop(key, None)
            return None
        if not world.responsibility.covers(stage.metadata.labels, stage.spec.shard) or stage.is_control_flow:
            return None
        promotions, unreadable = await self._promotions(key, stage)
        current = stage.status.current_promotion
        if current is not None and current.name in unreadable:
            # It may well be running: nothing else may, until somebody corrects or deletes it.
            return None
        folded = fold_ended(stage, promotions)
        held = checks(folded)
        situation = Situation(stage, promotions, self._verdict(held), world.now(), self._since(key, stage, promotions))
        next_ = outlook(situation, folded, held)
        if next_.write:
            await world.write_status(world.stages, raw, next_.status.wire())
            _tell_log(stage, next_)
            stage = stage.replace(status=next_.status)
        await self._agree_freight(stage)
        if next_.verified is not None and next_.write:
            self._tell_verified(stage, next_.verified)
        return Result(requeue_after=next_.look_again) if next_.look_again is not None else None

    async def _promotions(self, key: Key, stage: Stage) -> tuple[list[Promotion], set[str]]:
        """The Stage's Promotions without those taken in long ago, and the names of those that cannot be read.

        What may be outdated is read live.
        """
        world = self._world
        found = []
        unreadable = set()
        for raw in world.promotions.indexed("stage", key):
            if is_history(raw, stage.status):
                continue
            current = await world.promotions.read(JSON.meta(raw).key)
            if (promotion := world.promotion_models.read(current)) is not None:
                found.append(promotion)
            elif current is not None:
                unreadable.add(JSON.meta(current).key.name)
        return found, unreadable

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

    def _verdict(self, held: Sequence[HealthCheckStep] | None) -> HealthVerdict:
        """The worst of all checks; a kind of check that is not known gives Unknown, and so do checks that are not."""
        if held is None:
            return HealthVerdict(HealthState.UNKNOWN, (CHECKS_NOT_KNOWN(),))
        verdicts = []
        for check in held:
            checker = self._world.checkers.get(check.uses)
            if checker is None:
                issue = KIND_OF_CHECK_NOT_KNOWN(uses=check.uses)
                verdicts.append(HealthVerdict(HealthState.UNKNOWN, (issue,)))
            else:
                verdicts.append(checker.assess(check.config if isinstance(check.config, dict) else {}))
        again = [v.recheck_after for v in verdicts if v.recheck_after is not None]
        return HealthVerdict(
            worst(HealthState(v.state) for v in verdicts),
            tuple(issue for v in verdicts for issue in v.issues),
            trusted=all(v.trusted for v in verdicts),
            recheck_after=min(again, default=None),
        )

    # -- Freight and Events ---------------------------------------------------------------------------------------

    async def _agree_freight(self, stage: Stage) -> None:
        """Make what Freight says about this Stage agree with the Stage."""
        world = self._world
        key = Key(stage.namespace, stage.name)
        current = stage.current_freight
        names = list(current.names) if current is not None else []
        names += [f["metadata"]["name"] for f in world.freights.indexed("stage", key)]
        now = Time.of(world.now())
        for name in dict.fromkeys(names):
            freight = world.freight_models.read(await world.freights.read(Key(stage.namespace, name)))
            if freight is None:
                continue
            if patch := freight_patch(stage, freight, now):
                await self._write_freight(freight, patch)

    async def _write_freight(self, freight: Freight, patch: JsonObject) -> None:
        world = self._world
        key = Key(freight.namespace, freight.name)
        try:
            await world.merge_status(world.freights, key, patch)
        except NotFound:
            await world.freights.read_live(key)

    def _tell_verified(self, stage: Stage, verified: Verified) -> None:
        for reference in verified.collection.items.values():
            key = Key(stage.namespace, reference.name)
            freight = self._world.freight_models.read(self._world.freights.get(key))
            if freight is None:
                continue
            info = verified.info
            event = verified_event(
                freight, stage, info.id, at=info.finish_time, started=info.start_time, promotion=verified.promotion
            )
            self._world.recorder.record(event)


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


def _itself(_old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
    return (JSON.meta(new).key,) if new is not None else ()


def _own_news() -> Predicate[JsonObject]:
    """A Stage new to us, or one whose spec, annotations or labels changed; its status is written by us alone."""
    return created() | changed(
        lambda s: (
            s["metadata"].get("generation"),
            s["metadata"].get("annotations"),
            s["metadata"].get("labels"),
            s["metadata"].get("deletionTimestamp"),
        )
    )


def _promotion_news() -> Predicate[JsonObject]:
    """A Promotion was created, deleted, or changed its phase."""
    return changed(_phase) | created() | deleted()


def _phase(promotion: JsonObject) -> object:
    """Its phase; and its generation, since one that could not be read may have been corrected."""
    return (phase_of(promotion), promotion["metadata"].get("generation"))


def _stages_of_promotion(old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
    promotion = new if new is not None else old
    return stage_of(promotion) if promotion is not None else ()


def _verdict_news() -> Predicate[Application]:
    """Anything that a verdict rests on."""
    return changed(fingerprint) | created() | deleted()
