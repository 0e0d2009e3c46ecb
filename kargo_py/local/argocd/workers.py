"""The workers: they read, ask the pure modules, and write, in the time that takes.

Every Application has two workers, as in Argo CD: one for its operation and one for its verdict. Each decides on what it
has read, and writes a little later without a precondition; the races of spec 1.8 and 1.9 come from nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta

import structlog

from kargo_py.kube.client import JsonObject
from kargo_py.kube.errors import Conflict, KubeError, NotFound
from kargo_py.kube.resources import Key
from kargo_py.local.argocd import application_set, operation, sync, verdict
from kargo_py.local.argocd.documents import (
    IN_PROGRESS,
    Patch,
    difference,
    is_skipped,
    key_of,
    merge,
    moment,
    operation_state,
)
from kargo_py.local.argocd.operation import Beginning, Turn, Wait
from kargo_py.local.argocd.repositories import load
from kargo_py.local.argocd.scripts import SyncScript
from kargo_py.local.argocd.sources import Target, Wanted, wanted_by_spec
from kargo_py.local.argocd.verdict import AutoSync, Held, Later, Level, Surroundings
from kargo_py.local.argocd.world import Alarm, Play, World

_log = structlog.get_logger(__name__)


class ApplicationWorkers:
    """The two workers of one Application."""

    def __init__(self, world: World, key: Key) -> None:
        self._world = world
        self.key = key
        self._operation = Alarm()
        self._refresh = Alarm()
        self._level: Level | None = None
        self._age = world.timing.reconciliation + world.random.uniform(0, world.timing.reconciliation_jitter)
        self.app: JsonObject = {}
        """The newest version the watch has shown."""

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._loop(self._operation, self._turn))
                tasks.create_task(self._loop(self._refresh, self._reconcile))
        finally:
            self._operation.stop()
            self._refresh.stop()

    # -- what wakes them ----------------------------------------------------------------------------------------------

    def see(self, app: JsonObject, *, first: bool) -> None:
        """Take note of a version. The first one wakes no operation: only an update does (spec 1.4)."""
        self.app = app
        self._if_due()
        if not first:
            self._wake()
        elif self._world.version.refresh_wakes_operation:
            self._refresh.set(self._world.timing.notice)
        else:
            self._refresh.set(self._age)

    def is_known(self, app: JsonObject) -> bool:
        """Whether this very version was the last one."""
        return bool(self.app["metadata"]["resourceVersion"] == app["metadata"]["resourceVersion"])

    def resync(self) -> None:
        """Take the last version for a new one."""
        self._if_due()
        self._wake()

    def live_changed(self) -> None:
        """Something the Application manages has changed, and the cache has seen it."""
        self._look_again(Level.RECENT)

    def project_changed(self) -> None:
        """The project of the Application is another one now."""
        self._look_again(Level.LATEST)

    def _look_again(self, level: Level) -> None:
        self.refresh(level)
        if self.app.get("operation") and not self._world.version.refresh_wakes_operation:
            self._operation.set(self._world.timing.batching)

    def refresh(self, level: Level, after: float | None = None) -> None:
        """Ask for a verdict."""
        self._level = max(level, self._level or level)
        self._refresh.set(self._world.timing.notice if after is None else after)

    def _wake(self) -> None:
        if self.app.get("operation"):
            self._operation.set(self._world.timing.notice)

    def _if_due(self) -> None:
        if level := verdict.due(self.app, self._world.now(), self._age):
            self.refresh(level)

    async def _loop(self, alarm: Alarm, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await alarm.wait()
            try:
                await work()
            except NotFound:
                continue
            except KubeError as error:
                _log.warning("request failed", application=str(self.key), error=str(error))
                alarm.set(self._world.timing.after_failure)
            except Exception as error:
                error.add_note(f"the simulated Argo CD worked on Application {self.key}")
                raise

    # -- the operation ------------------------------------------------------------------------------------------------

    async def _turn(self) -> None:
        world = self._world
        app = await world.read(self.key)
        now = world.now()
        begun = operation.begin(app, now, sync_timeout=world.timing.sync_timeout)
        match begun:
            case None:
                return
            case Wait(until):
                self._again((until - now).total_seconds())
                return
            case Turn():
                pass
        play = world.play(self.key)
        written = operation_state(app)
        if begun.beginning is not Beginning.RESUME:
            await world.pause(world.timing.gap)
            await world.insist(self.key, operation.state_patch(app, begun.state, world.version))
            written = begun.state
            self._count(begun, app, play)
        outcome = await self._sync(begun, app, play)
        state = operation.conclude(begun, outcome.state, world.now())
        if operation.is_recorded(state):
            await world.write(self.key, operation.history_patch(app, state, world.now()))
        if outcome.state["phase"] == "Running":
            state = operation.terminating_if_asked(state, await world.read(self.key))
        await world.pause(world.timing.gap)
        if state != written:
            await world.insist(self.key, operation.state_patch(app, state, world.version))
        if state["phase"] not in IN_PROGRESS and play.current.ends_twice:
            await world.pause(world.timing.gap)
            await world.insist(self.key, operation.state_patch(app, state, world.version))
        self._follow_up(state, play)

    @staticmethod
    def _count(turn: Turn, app: JsonObject, play: Play) -> None:
        if turn.beginning is Beginning.NEW:
            play.begins(turn.state["operation"], app)
        elif turn.beginning is Beginning.RETRY:
            play.attempt += 1

    async def _sync(self, turn: Turn, app: JsonObject, play: Play) -> sync.Outcome:
        world = self._world
        if outcome := sync.stopped(turn, app, world.obstacles(app)):
            return outcome
        target = await load(app, sync.wanted_in(turn.state, app), world.repositories, world.version)
        await world.pause(world.timing.compare)
        script = play.current
        outcome = sync.perform(turn, app, target, world.cluster.live(self.key), script, play.attempt)
        if done := outcome.done:
            if done.applied or done.hooks_started:
                await world.pause(world.timing.apply if script.duration is None else script.duration)
            if world.cluster.carry_out(self.key, done):
                asyncio.get_running_loop().call_later(world.timing.live_cache, self._catch_up)
            if done.pauses:
                await world.pause(world.timing.wave)
        return outcome

    def _catch_up(self) -> None:
        self._world.cluster.catch_up()
        self.live_changed()

    def _follow_up(self, state: JsonObject, play: Play) -> None:
        if state["phase"] in IN_PROGRESS:
            self._operation.set(self._world.timing.poll)
            if timeout := self._world.timing.sync_timeout:
                over = moment(state["startedAt"]) + timedelta(seconds=timeout) - self._world.now()
                self._again(max(over.total_seconds(), 0.0))
            return
        play.current, play.operation = SyncScript(), None
        if operation.is_followed_by_refresh(state):
            self.refresh(Level.LATEST)

    def _again(self, after: float) -> None:
        """Look at the operation again; in 3.5 by way of a refresh."""
        if self._world.version.refresh_wakes_operation:
            self.refresh(Level.LATEST, after)
        else:
            self._operation.set(after)

    # -- the verdict --------------------------------------------------------------------------------------------------

    async def _reconcile(self) -> None:
        world = self._world
        asked, self._level = self._level, None
        try:
            app = await world.read(self.key)
            now = world.now()
            levels = [level for level in (asked, verdict.due(app, now, self._age)) if level]
            if levels and not is_skipped(app):
                await self._refresh_status(app, max(levels), now)
        except KubeError:
            self._level = asked
            raise
        self._refresh.set(self._age)
        if world.version.refresh_wakes_operation:
            self._wake()

    async def _refresh_status(self, app: JsonObject, level: Level, now: datetime) -> None:
        world = self._world
        obstacles = world.obstacles(app)
        target = Target(()) if obstacles.spec else await self._target(app, level)
        await world.pause(world.timing.hard_refresh if level is Level.HARD else world.timing.refresh)
        name = app["spec"].get("project")
        invalid = f"Application referencing project {name} which does not exist" if obstacles.project else ""
        around = Surroundings(world.cluster.cached, invalid or obstacles.spec, world.play(self.key).health)
        status = verdict.judge(app, target, around, level, now)
        if not obstacles.holds_automation:
            await self._auto_sync(app, status)
        if changed := difference(app.get("status") or {}, status):
            await world.write(self.key, merge({"status": changed}))
        if patch := verdict.refreshed_patch(app, world.version):
            with suppress(KubeError):  # another request has come: it is served next
                await world.write(self.key, patch)

    async def _target(self, app: JsonObject, level: Level) -> Target:
        wanted = wanted_by_spec(app)
        compared = (app.get("status") or {}).get("sync") or {}
        if level is Level.RECENT and compared.get("comparedTo") == verdict.compared_to(app):
            known = compared.get("revisions") or [compared.get("revision")]
            wanted = [Wanted(one.source, revision) for one, revision in zip(wanted, known, strict=True)]
        return await load(app, wanted, self._world.repositories, self._world.version)

    async def _auto_sync(self, app: JsonObject, status: JsonObject) -> None:
        now = self._world.now()
        match verdict.auto_sync(app, status, now, self._world.timing):
            case AutoSync(requested):
                await self._request(requested)
            case Later(until):
                self.refresh(Level.RECENT, (until - now).total_seconds())
            case Held(why):
                status["conditions"] = verdict.conditions_of(app["status"], {"SyncError": why}, now)
            case None:
                pass

    async def _request(self, requested: JsonObject) -> None:
        """Write an operation of auto-sync, unless another has come by now."""
        while not (fresh := await self._world.read(self.key)).get("operation"):
            with suppress(Conflict):
                await self._world.write(self.key, verdict.request_patch(fresh, requested))
                await self._world.pause(self._world.timing.auto_sync)
                return


class ApplicationSetWorker:
    """Acts on the Applications that ApplicationSets own."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._alarm = Alarm()
        self._changed: dict[Key, JsonObject] = {}
        self._apps: dict[Key, JsonObject] = {}

    def see(self, app: JsonObject) -> None:
        """Take note of a version."""
        key = key_of(app)
        if key in self._world.templates or any(key in step for roll in self._world.rolling for step in roll.steps):
            self._changed[key] = self._apps[key] = app
            self._alarm.set(0)

    def forget(self, key: Key) -> None:
        """The Application is deleted."""
        self._changed.pop(key, None)
        self._apps.pop(key, None)

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            while True:
                await self._alarm.wait()
                await self._world.pause(self._world.timing.application_set)
                changed, self._changed = self._changed, {}
                for key, patch in self._decided(changed):
                    await self._write(key, patch)
        finally:
            self._alarm.stop()

    async def _write(self, key: Key, patch: Patch) -> None:
        try:
            await self._world.write(key, patch)
        except NotFound:
            self.forget(key)
        except KubeError as error:
            _log.warning("request failed", application=str(key), error=str(error))
            self._changed.setdefault(key, self._apps[key])
            self._alarm.set(self._world.timing.after_failure)

    def _decided(self, changed: dict[Key, JsonObject]) -> list[tuple[Key, Patch]]:
        templates = self._world.templates
        reverts = [
            (key, patch)
            for key, app in changed.items()
            if key in templates and (patch := application_set.revert(app, templates[key]))
        ]
        now = self._world.now()
        return reverts + [found for roll in self._world.rolling for found in roll.advance(self._apps, now)]
