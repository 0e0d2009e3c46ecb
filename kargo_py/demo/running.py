"""All of it in one process: API server, simulated Argo CD, controllers, and the story that is told on them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from kargo_py.controllers.running import Options, run_controllers
from kargo_py.demo.pipeline import ARGOCD, PATH, REPOSITORY, commits
from kargo_py.demo.story import scenes
from kargo_py.demo.telling import ClientHands, Hands, Screen, Sight, Teller
from kargo_py.kube.client import Client
from kargo_py.kube.connection import connect
from kargo_py.local.argocd.simulator import ArgoCD
from kargo_py.local.argocd.timing import Timing
from kargo_py.testing.definitions import install

PACE: Final = replace(Timing(), compare=0.1, apply=0.5, batching=0.5, start=0.05)
"""As the real one, but for the waits in which a spectator sees nothing."""


@dataclass(frozen=True, slots=True)
class Cast:
    """Who acts: a user by a client of their own, Argo CD and the controllers by their tasks."""

    user: Client
    argocd: ArgoCD
    at_work: tuple[asyncio.Task[None], ...]


@asynccontextmanager
async def cast(kubeconfig: Path, pace: Timing) -> AsyncIterator[Cast]:
    """Argo CD and the controllers, at work on an API server, each with a client of its own."""
    async with AsyncExitStack() as stack:
        user, argocds = [await stack.enter_async_context(await connect(kubeconfig=str(kubeconfig))) for _ in "ab"]
        await install(user)
        argocd = ArgoCD(argocds, namespace=ARGOCD, timing=pace)
        repository = argocd.repository(REPOSITORY)
        for commit, manifests in commits().items():
            repository.commit(commit, paths={PATH: manifests})
        await stack.enter_async_context(argocd)
        ready = asyncio.Event()
        tasks = (
            asyncio.create_task(run_controllers(Options(kubeconfig=str(kubeconfig)), ready=ready), name="controllers"),
            asyncio.create_task(argocd.serve(), name="simulated Argo CD"),
        )
        for task in tasks:
            stack.push_async_callback(_ended, task)
        await first(ready.wait(), tasks)
        yield Cast(user, argocd, tasks)


@asynccontextmanager
async def told(
    cast: Cast, directory: Path, screen: Screen, hands: Callable[[Client], Hands] = ClientHands
) -> AsyncIterator[None]:
    """Tell the story, then go on showing what happens. Raises NotAsTold, and whatever ends one of the cast."""
    sight = Sight(cast.user)

    def hang(application: str) -> None:
        cast.argocd.application(application).next_sync(hang=True)

    async with sight.following(screen.show):
        await first(Teller(screen, hands(cast.user), sight, directory, hang).tell(scenes()), cast.at_work)
        yield


async def first(work: Any, others: tuple[asyncio.Task[None], ...]) -> None:
    """Wait until *work* is done; if one of *others* ends before it, which none should, raise why."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task, *others], return_when=asyncio.FIRST_COMPLETED)
        for other in others:
            if other.done() and not task.done():
                await other
                raise RuntimeError(f"{other.get_name()} ended by itself")
        await task
    finally:
        await _ended(task)


async def _ended(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
