"""What the controllers share: the client, the clock, the destination, and what a test has said."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

import structlog

from kargo_py.kube.client import Client, JsonObject
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.errors import OutcomeUnknown, Unreachable
from kargo_py.kube.resources import Key
from kargo_py.local.argocd.application_set import RollingSync, Template
from kargo_py.local.argocd.cluster import Cluster
from kargo_py.local.argocd.documents import APPLICATIONS, Patch
from kargo_py.local.argocd.repositories import Repository
from kargo_py.local.argocd.scripts import Obstacles, Project, SyncScript, script_in
from kargo_py.local.argocd.sources import sources_of
from kargo_py.local.argocd.timing import Timing, Version

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Play:
    """The scripts of one Application, and the one that is being played."""

    scripts: deque[SyncScript] = field(default_factory=deque)
    current: SyncScript = field(default_factory=SyncScript)
    operation: JsonObject | None = None
    """What is played, None when it is over."""
    attempt: int = 0
    health: str = ""

    def begins(self, operation: JsonObject, app: JsonObject) -> None:
        """A new operation begins; one that starts over goes on with its script."""
        self.attempt = 0
        if operation != self.operation:
            self.current = self.scripts.popleft() if self.scripts else script_in(app)
            self.operation = operation


@dataclass(slots=True)
class World:
    """What exists whether the controller runs or not."""

    client: Client
    version: Version
    timing: Timing
    random: random.Random
    now: Callable[[], datetime]
    cluster: Cluster = field(default_factory=Cluster)
    repositories: dict[str, Repository] = field(default_factory=dict)
    projects: dict[str, Project] = field(default_factory=dict)
    missing_destinations: set[str] = field(default_factory=set)
    plays: dict[Key, Play] = field(default_factory=dict)
    templates: dict[Key, Template] = field(default_factory=dict)
    rolling: list[RollingSync] = field(default_factory=list)

    async def pause(self, seconds: float) -> None:
        """Let the time go by that something takes."""
        spread = self.timing.jitter
        await asyncio.sleep(seconds * self.random.uniform(1 - spread, 1 + spread))

    async def read(self, key: Key) -> JsonObject:
        """The Application as it stands."""
        return await self.client.get(APPLICATIONS, key, codec=JSON)

    async def write(self, key: Key, patch: Patch) -> JsonObject:
        """Send a patch."""
        return await self.client.patch(APPLICATIONS, key, encode(patch.body), codec=JSON, patch_type=patch.type)

    async def insist(self, key: Key, patch: Patch) -> None:
        """Send a patch until it is known to have arrived, which may be more often than once."""
        while True:
            try:
                await self.write(key, patch)
            except (OutcomeUnknown, Unreachable) as error:
                _log.warning("write is repeated", application=str(key), error=str(error))
                await self.pause(self.timing.after_failure)
            else:
                return

    def play(self, key: Key) -> Play:
        """The scripts of an Application."""
        return self.plays.setdefault(key, Play())

    def project(self, name: str) -> Project:
        """A project; without a word about it, it exists and lets everything pass."""
        return self.projects.setdefault(name, Project(name))

    def obstacles(self, app: JsonObject) -> Obstacles:
        """What stands in the way of syncs of an Application."""
        name = app["spec"].get("project") or "default"
        project = self.project(name)
        missing = f'error getting app project "{name}": appproject.argoproj.io "{name}" not found'
        server = (app["spec"].get("destination") or {}).get("server") or ""
        wrong = "" if sources_of(app) else "spec.source or spec.sources is required"
        if server in self.missing_destinations:
            unknown = f'rpc error: code = NotFound desc = cluster "{server}" not found'
            wrong = f'error getting cluster by server "{server}": {unknown}'
        return Obstacles(
            project=missing if project.is_missing else "",
            spec=wrong,
            blocked=project.blocks(app),
            holds_automation=project.denies,
        )


class Alarm:
    """Wakes one waiter at the earliest of the times it was set for."""

    def __init__(self) -> None:
        self._rings = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def set(self, after: float) -> None:
        """Ring in *after* seconds, or earlier if it was to ring earlier anyway."""
        loop = asyncio.get_running_loop()
        at = loop.time() + after
        if self._timer is None or at < self._timer.when():
            self.stop()
            self._timer = loop.call_at(at, self._ring)

    def stop(self) -> None:
        """Do not ring by time any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def wait(self) -> None:
        """Return when it rings."""
        await self._rings.wait()
        self._rings.clear()

    def _ring(self) -> None:
        self._timer = None
        self._rings.set()
