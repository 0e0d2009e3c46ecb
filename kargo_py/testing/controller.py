"""Our controllers, as a test starts and ends them."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from kargo_py.controllers.running import Assembly, Options, assemble, available_kinds, run_assembly
from kargo_py.testing.kube_api import KubeApi

INSTANCE = "testing"


class Controller:
    """The controllers on a Kubernetes API; they start with an own client and empty caches, as a process does."""

    def __init__(self, api: KubeApi, options: Options) -> None:
        self._api = api
        self._options = options
        self._task: asyncio.Task[None] | None = None
        self.assembly: Assembly | None = None

    async def start(self) -> None:
        """Start; returns when the caches are filled. Raises StartError."""
        if self._task is not None:
            raise RuntimeError("the controllers run already; stop() them first")
        client = self._api.client_for("kargo-py")
        instance, kinds = self._options.instance or INSTANCE, await available_kinds()
        self.assembly = assemble(client, client, instance, self._options, now=self._api.clock.now, kinds=kinds)
        ready = asyncio.Event()
        self._task = asyncio.create_task(run_assembly(self.assembly, self._options, ready=ready), name="controllers")
        filled = asyncio.create_task(ready.wait())
        try:
            await asyncio.wait([self._task, filled], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.stop()
            raise
        finally:
            filled.cancel()
        if self._task.done():
            await self.stop()

    async def stop(self) -> None:
        """End in order; what was begun is finished. Raises what ended them before, if anything did."""
        if self._task is None:
            raise RuntimeError("the controllers do not run; start() them first")
        task, self._task = self._task, None
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    @property
    def is_running(self) -> bool:
        """Whether they run."""
        return self._task is not None
