"""The embedded API server behind ``kube_api``: in this process, without a socket, new for every test."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from kargo_py.kube.client import EventType
from kargo_py.kube.resources import Key, Resource
from kargo_py.local.apiserver import kubeconfig
from kargo_py.local.apiserver.client import client_of
from kargo_py.local.apiserver.serve import serving
from kargo_py.local.apiserver.server import ApiServer
from kargo_py.local.apiserver.store import Event
from kargo_py.testing.clock import Clock
from kargo_py.testing.definitions import install
from kargo_py.testing.history import History, Write
from kargo_py.testing.kube_api import KubeApi


@asynccontextmanager
async def kube_api(clock: Clock) -> AsyncIterator[KubeApi]:
    """The API of a server that ends with the context."""
    history = History()
    core = ApiServer(now=clock.now, random=random.Random(0))  # noqa: S311 - the same names and uids every time
    core.store.observers.append(lambda event: history.append(_write(event)))
    async with core:
        api = KubeApi(lambda agent: client_of(core, user_agent=agent), history, clock, lambda: _served(core))
        await install(api.client)
        yield api


@asynccontextmanager
async def _served(core: ApiServer) -> AsyncIterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kargo-py-testing-") as directory:
        path = Path(directory, "kubeconfig")
        async with serving(core) as address:
            await asyncio.to_thread(kubeconfig.write, path, address.kubeconfig())
            yield path


def _write(event: Event) -> Write:
    kind, metadata = event.stored.kind, event.stored.obj["metadata"]
    resource = Resource(kind.group, kind.version, kind.plural, kind.kind, kind.namespaced)
    key = Key(metadata.get("namespace", ""), metadata["name"])
    return Write(EventType(event.change), resource, key, event.stored.obj)
