"""The sweep: terminates operations of ours whose Promotion was deleted.

While the Promotion is there its record decides: what a forced abort left running is left alone until then.

There is no finalizer: deleting a Promotion never hangs, and what it had under way may be found long after, by another
process even. What an operation belongs to is read from its stamp. It is touched only if the stamp is of this control
plane, the Stage it was made for is of our shard, and the Promotion was found gone by two live reads 30 seconds apart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import structlog

from kargo_py.api.stamp import STAGE_KEY, Stamp, StampError, parse_stamp
from kargo_py.api.types import JsonObject
from kargo_py.argocd.application import APPLICATIONS, Application, info_value, stamp_of
from kargo_py.controllers.world import World
from kargo_py.deployers.argocd_records import UNDER_WAY, orphan_record, unfinished
from kargo_py.kube.codec import JSON
from kargo_py.kube.controller import Controller, Result
from kargo_py.kube.events import Event, Regarding, event_name
from kargo_py.kube.predicates import Predicate, deleted
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message

ORPHAN_ENDED = message(
    "The operation of Promotion {promotion}, which was deleted, was ended: {how}",
    do="A Promotion was deleted while its sync ran, so the sync was terminated. Promote again if the Application is "
    "left half synced.",
    shown=Shown.EVENT,
)
REASON_ORPHAN_ENDED = message(
    "OrphanTerminated",
    do="Normal, on an Application (in Argo CD's cluster) whose operation belonged to a deleted Promotion.",
    shown=Shown.EVENT,
)

CERTAIN = 30.0
"""Seconds between the two live reads that must both find the Promotion gone."""

_AGAIN = 5.0

_log = structlog.get_logger(__name__)


class Sweeper:
    """Reconciles Applications that carry an unfinished operation of ours without a Promotion."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._gone_since: dict[Key, float] = {}
        self._watched: dict[Key, str] = {}
        self._ending: set[Key] = set()

    def controller(self) -> Controller[Key]:
        """The loop, with what may show an orphan: a new state of an Application, or the deletion of a Promotion."""
        world = self._world
        return (
            Controller("sweep", self.reconcile)
            .watches(world.argocd.applications, Predicate(lambda _old, new: new is not None), self._suspects)
            .watches(world.promotions, deleted(), self._left_behind)
        )

    def _left_behind(self, old: JsonObject | None, _new: JsonObject | None) -> Iterable[Key]:
        """What a deleted Promotion has under way, be it that it ran, or that it was aborted by force."""
        if old is None:
            return ()
        applications = self._world.argocd.applications
        return [app.key for app in applications.indexed(UNDER_WAY, JSON.meta(old).uid)]

    def _suspects(self, _old: Application | None, new: Application | None) -> Iterable[Key]:
        if new is None:
            return ()
        stamp = self._our_unfinished(new)
        return (new.key,) if new.key in self._watched or (stamp is not None and not self._is_known(stamp)) else ()

    def _our_unfinished(self, app: Application) -> Stamp | None:
        """The stamp of the operation that *app* is asked for or goes on with, if this control plane made it."""
        operation = unfinished(app)
        text = stamp_of(operation)
        if text is None:
            return None
        try:
            stamp = parse_stamp(text)
        except StampError:
            return None
        return stamp if stamp.instance == self._world.instance else None

    def _is_known(self, stamp: Stamp) -> bool:
        raw = self._world.promotions.get(Key(stamp.namespace, stamp.name))
        return raw is not None and JSON.meta(raw).uid == stamp.uid

    async def reconcile(self, key: Key) -> Result | None:
        """Look at one Application; end what is certainly an orphan."""
        world = self._world
        app = await world.argocd.applications.read(key)
        stamp = self._our_unfinished(app) if app is not None else None
        if app is not None and stamp is None and key in self._ending:
            return await self._end(app, parse_stamp(self._watched[key]))
        if app is None or stamp is None or self._is_known(stamp) or not self._is_of_our_shard(app, stamp):
            self._forget(key)
            return None
        text = str(stamp)
        if self._watched.get(key) != text:
            self._forget(key)
            self._watched[key] = text
            world.argocd.attempt(key, text)
        found = await world.promotions.read_live(Key(stamp.namespace, stamp.name))
        if found is not None and JSON.meta(found).uid == stamp.uid:
            self._forget(key)
            return None
        now = asyncio.get_running_loop().time()
        waited = now - self._gone_since.setdefault(key, now)
        if waited < CERTAIN:
            return Result(requeue_after=CERTAIN - waited)
        return await self._end(app, stamp)

    async def _end(self, app: Application, stamp: Stamp) -> Result | None:
        self._ending.add(app.key)
        seen = await self._world.argocd.stop(orphan_record(app, stamp))
        if not seen.record.state.final:
            return Result(requeue_after=seen.look_after if seen.look_after is not None else _AGAIN)
        promotion = f"{stamp.namespace}/{stamp.name}"
        _log.info("orphaned operation ended", application=str(app.key), promotion=promotion, how=seen.message)
        recorder = self._world.argocd_recorder or self._world.recorder
        recorder.record(
            Event(
                Regarding(APPLICATIONS, app.key, app.metadata.uid),
                event_name(app.metadata.name, REASON_ORPHAN_ENDED(), str(stamp)),
                REASON_ORPHAN_ENDED(),
                ORPHAN_ENDED(promotion=promotion, how=seen.message),
            )
        )
        self._forget(app.key)
        return None

    def _is_of_our_shard(self, app: Application, stamp: Stamp) -> bool:
        """Whose shard the Stage is of; where it is gone, too, the default controller sweeps."""
        project, _, name = (info_value(unfinished(app), STAGE_KEY) or "").partition(":")
        if project != stamp.namespace:
            return False
        raw = self._world.stages.get(Key(project, name))
        stage = self._world.stage_models.read(raw)
        if stage is not None:
            return self._world.responsibility.covers(stage.metadata.labels, stage.spec.shard)
        return raw is None and self._world.responsibility.covers({})

    def _forget(self, key: Key) -> None:
        self._ending.discard(key)
        text = self._watched.pop(key, None)
        if text is None:
            return
        self._gone_since.pop(key, None)
        if not self._is_known(parse_stamp(text)):
            # Else its Promotion waits for the end.
            self._world.argocd.forget(key, text)
