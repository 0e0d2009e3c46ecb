"""The simulated Argo CD, as a test or a program uses it.

argo = ArgoCD(client)
argo.repository("https://git.example.com/shop").commit("3f1a0f6")
async with argo:
    argo.application("shop-dev").next_sync(hang=True)
    ...
    argo.application("shop-dev").finish_hook(ok=False)
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from kargo_py.kube.client import Client, JsonObject
from kargo_py.kube.clock import utc_now
from kargo_py.kube.resources import Key
from kargo_py.local.argocd.application_set import RollingSync, Template
from kargo_py.local.argocd.cluster import Resource
from kargo_py.local.argocd.controller import Controller
from kargo_py.local.argocd.engine import Manifest
from kargo_py.local.argocd.repositories import GitRepository, ScriptedRepository
from kargo_py.local.argocd.scripts import SyncScript
from kargo_py.local.argocd.timing import Timing, Version
from kargo_py.local.argocd.workers import ApplicationWorkers
from kargo_py.local.argocd.world import World


class ArgoCD:
    """Argo CD's application and ApplicationSet controllers on an API server.

    Delays are in the event loop's time; what is written into Applications is what *now* says. The same *seed* and the
    same acts make the same history. Nothing is done before :meth:`start`; what a test says is remembered over restarts.
    """

    def __init__(
        self,
        client: Client,
        *,
        namespace: str = "argocd",
        version: Version = Version.V3_6,
        timing: Timing | None = None,
        seed: int = 0,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        """Prepare; an empty *namespace* means Applications in all of them."""
        chance = random.Random(seed)  # noqa: S311 - a repeatable history is the point
        self._namespace = namespace
        self._world = World(client, version, timing or Timing(), chance, now)
        self._controller: Controller | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the controllers; returns when they have listed the Applications."""
        if self._task is not None:
            raise RuntimeError("the simulated Argo CD runs already; stop() it first")
        self._controller = Controller(self._world, self._namespace)
        self._task = asyncio.create_task(self._controller.run(), name="simulated Argo CD")
        listed = asyncio.create_task(self._controller.listed.wait())
        try:
            await asyncio.wait({self._task, listed}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.stop()
            raise
        finally:
            listed.cancel()
        if self._task.done():
            await self._task

    async def stop(self) -> None:
        """Let the controllers be down, in the middle of whatever they did; hooks and live resources stay."""
        if self._task is None:
            raise RuntimeError("the simulated Argo CD does not run; start() it first")
        task, self._task, self._controller = self._task, None, None
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def serve(self) -> None:
        """After :meth:`start`: wait until the controllers fail; they end otherwise only with :meth:`stop`."""
        if self._task is None:
            raise RuntimeError("the simulated Argo CD does not run; start() it first")
        await asyncio.shield(self._task)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            await self.stop()

    def application(self, name: str, *, namespace: str = "") -> ScriptedApplication:
        """The Application of this name, whether it exists yet or not; in the namespace of Argo CD if none is given."""
        return ScriptedApplication(self._world, self._key(name, namespace), self._workers)

    def project(self, name: str) -> ScriptedProject:
        """An AppProject; without a word about it, it exists and has no sync windows."""
        return ScriptedProject(self._world, name, self._workers)

    def destination(self, server: str) -> ScriptedDestination:
        """A destination cluster; without a word about it, it is known."""
        return ScriptedDestination(self._world, server)

    def repository(self, url: str) -> ScriptedRepository:
        """A repository to script. Without a word about it, a repository has every revision."""
        found = self._world.repositories.setdefault(url, ScriptedRepository(url))
        if not isinstance(found, ScriptedRepository):
            raise TypeError(f"repository {url} is the git repository {found}; commit with git there")
        return found

    def git_repository(self, url: str, directory: Path) -> None:
        """Let *url* be a git repository on this machine."""
        self._world.repositories[url] = GitRepository(directory)

    def unplayed(self) -> Sequence[str]:
        """What was said with ``next_sync`` and no operation has come for: a text for each Application."""
        waiting = {key: play.scripts for key, play in self._world.plays.items() if play.scripts}
        return [
            f"Application {key}: no operation came for {', '.join(map(str, scripts))}"
            for key, scripts in waiting.items()
        ]

    def application_set(self) -> ScriptedApplicationSet:
        """An ApplicationSet; it acts on the Applications that it is told to own."""
        return ScriptedApplicationSet(self._world, self._key)

    def _key(self, name: str, namespace: str = "") -> Key:
        if not (namespace or self._namespace):
            raise ValueError(f"Application {name}: give its namespace, this Argo CD serves all of them")
        return Key(namespace or self._namespace, name)

    def _workers(self) -> list[ApplicationWorkers]:
        return self._controller.workers() if self._controller else []


class ScriptedApplication:
    """What a test says about one Application."""

    def __init__(self, world: World, key: Key, workers: Callable[[], list[ApplicationWorkers]]) -> None:
        self._world = world
        self._key = key
        self._workers = workers

    def next_sync(
        self,
        *,
        hang: bool = False,
        fail: str = "",
        error: str = "",
        times: int | None = None,
        duration: float | None = None,
        ends_twice: bool = False,
        resources: Sequence[JsonObject] | None = None,
    ) -> None:
        """Say how the next operation goes for which nothing is said yet; the words are those of :class:`SyncScript`."""
        script = SyncScript(hang, fail, error, times, duration, ends_twice, resources)
        self._world.play(self._key).scripts.append(script)

    def finish_hook(self, *, ok: bool = True, name: str = "") -> None:
        """Let the running hooks end, or the one of this name."""
        hooks = self._world.cluster.hooks.get(self._key, {})
        running = [hook for hook, phase in hooks.items() if phase == "Running" and name in {"", hook.name}]
        if not running:
            which = f"no hook {name!r}" if name else "no hook"
            raise LookupError(
                f"Application {self._key} runs {which}: say next_sync(hang=True) before the operation is written, and "
                "wait until status.operationState.message is 'waiting for completion of hook …'"
            )
        hooks |= dict.fromkeys(running, "Succeeded" if ok else "Failed")
        self._live_changed()

    def hold_deleted_hooks(self) -> None:
        """From now on a hook that is deleted stays, as with a finalizer that nobody removes."""
        self._world.cluster.held.add(self._key)

    def health(self, status: str = "") -> None:
        """Let the resources be of this health; "" makes them Healthy again."""
        known = ("", "Healthy", "Suspended", "Progressing", "Missing", "Degraded", "Unknown")
        if status not in known:
            raise ValueError(f"Application {self._key}: health is one of {', '.join(known[1:])}, not {status!r}")
        self._world.play(self._key).health = status
        self._live_changed()

    def deployed(self, *manifests: Manifest) -> None:
        """Let these resources live as if a sync of the Application had applied them before."""
        self._world.cluster.apply(self._key, manifests)
        self._live_changed()

    def drift(self) -> None:
        """Let somebody change every live resource of the Application by hand."""
        resources = self._world.cluster.resources
        mine = {name: resource for name, resource in resources.items() if resource.owner == self._key}
        if not mine:
            raise LookupError(f"Application {self._key} has nothing that lives: let it sync first")
        resources |= {name: Resource(f"{one.content} edited", one.owner) for name, one in mine.items()}
        self._live_changed()

    def _live_changed(self) -> None:
        self._world.cluster.catch_up()
        for workers in self._workers():
            if workers.key == self._key:
                workers.live_changed()


class ScriptedProject:
    """What a test says about one AppProject."""

    def __init__(self, world: World, name: str, workers: Callable[[], list[ApplicationWorkers]]) -> None:
        self._project = world.project(name)
        self._workers = workers

    def deny(self, *, manual_sync: bool = False) -> None:
        """Let a sync window block syncs; *manual_sync* lets those pass that are not automated."""
        self._project.denies, self._project.lets_manual_pass = True, manual_sync
        self._changed()

    def allow(self) -> None:
        """Remove the sync window."""
        self._project.denies = False
        self._changed()

    def missing(self) -> None:
        """Let there be no such project."""
        self._project.is_missing = True
        self._changed()

    def _changed(self) -> None:
        for workers in self._workers():
            if (workers.app["spec"].get("project") or "default") == self._project.name:
                workers.project_changed()


class ScriptedDestination:
    """What a test says about one destination cluster."""

    def __init__(self, world: World, server: str) -> None:
        self._world = world
        self._server = server

    def missing(self) -> None:
        """Let Argo CD not know this cluster."""
        self._world.missing_destinations.add(self._server)


class ScriptedApplicationSet:
    """What a test says about one ApplicationSet."""

    def __init__(self, world: World, key: Callable[[str, str], Key]) -> None:
        self._world = world
        self._key = key

    def owns(
        self,
        name: str,
        *,
        namespace: str = "",
        spec: JsonObject | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        ignore: Sequence[str] = (),
    ) -> None:
        """Keep an Application as this template says; *ignore* has JSON pointers of ignoreApplicationDifferences."""
        if spec is None and labels is None and annotations is None:
            raise ValueError(f"Application {name}: say what its ApplicationSet keeps: spec, labels or annotations")
        self._world.templates[self._key(name, namespace)] = Template(spec, labels, annotations, ignore)

    def rolling_sync(self, *steps: Sequence[str], namespace: str = "") -> None:
        """Sync the Applications of these names step by step whenever they are OutOfSync with a new revision."""
        if not steps:
            raise ValueError("rolling_sync: give the names of the Applications of each step")
        self._world.rolling.append(RollingSync([[self._key(name, namespace) for name in step] for step in steps]))
