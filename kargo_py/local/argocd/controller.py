"""The controllers as a whole: they follow the Applications, and give each its workers."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import structlog

from kargo_py.kube.client import EventType, JsonObject
from kargo_py.kube.codec import JSON
from kargo_py.kube.errors import KubeError
from kargo_py.kube.resources import Key
from kargo_py.local.argocd.documents import APPLICATIONS, key_of, misshapen
from kargo_py.local.argocd.workers import ApplicationSetWorker, ApplicationWorkers
from kargo_py.local.argocd.world import World

_log = structlog.get_logger(__name__)

_PAGE = 500
_WATCH_SECONDS = 300


class Controller:
    """Argo CD's controllers, from their start to their end."""

    def __init__(self, world: World, namespace: str) -> None:
        self._world = world
        self._namespace = namespace
        self._sets = ApplicationSetWorker(world)
        self._workers: dict[Key, tuple[ApplicationWorkers, asyncio.Task[None]]] = {}
        self.listed = asyncio.Event()

    async def run(self) -> None:
        """Work until cancelled."""
        await self._world.pause(self._world.timing.start)
        self._world.cluster.catch_up()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._sets.run())
            tasks.create_task(self._resync())
            tasks.create_task(self._follow(tasks))

    def workers(self) -> list[ApplicationWorkers]:
        """Those of all Applications that are known."""
        return [workers for workers, _ in self._workers.values()]

    async def _follow(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            try:
                version = await self._list(tasks)
                while True:
                    version = await self._watch(tasks, version)
            except KubeError as error:
                _log.warning("watch failed", namespace=self._namespace, error=str(error))
                await self._world.pause(self._world.timing.after_failure)

    async def _list(self, tasks: asyncio.TaskGroup) -> str:
        there: set[Key] = set()
        token = ""
        while True:
            page = await self._world.client.list(
                APPLICATIONS, self._namespace, codec=JSON, limit=_PAGE, continue_token=token
            )
            for app in page.items:
                self._see(app, tasks)
                there.add(key_of(app))
            if not (token := page.continue_token):
                break
        for key in self._workers.keys() - there:
            self._forget(key)
        self.listed.set()
        return page.resource_version

    async def _watch(self, tasks: asyncio.TaskGroup, version: str) -> str:
        events = self._world.client.watch(
            APPLICATIONS, self._namespace, codec=JSON, resource_version=version, timeout_seconds=_WATCH_SECONDS
        )
        async with aclosing(events):
            async for event in events:
                version = event.resource_version
                if event.object is None:
                    continue
                if event.type is EventType.DELETED:
                    self._forget(key_of(event.object))
                else:
                    self._see(event.object, tasks)
        return version

    def _see(self, app: JsonObject, tasks: asyncio.TaskGroup) -> None:
        key = key_of(app)
        if wrong := misshapen(app):
            _log.warning("application cannot be read", application=str(key), field=wrong)
            self._forget(key)
            return
        first = key not in self._workers
        if first:
            workers = ApplicationWorkers(self._world, key)
            self._workers[key] = workers, tasks.create_task(workers.run())
        elif self._workers[key][0].is_known(app):
            return
        self._workers[key][0].see(app, first=first)
        self._sets.see(app)

    def _forget(self, key: Key) -> None:
        self._sets.forget(key)
        if known := self._workers.pop(key, None):
            known[1].cancel()

    async def _resync(self) -> None:
        while True:
            await self._world.pause(self._world.timing.resync)
            for workers in self.workers():
                workers.resync()
