"""An Application on an embedded API server, and the simulated Argo CD beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import pytest

from kargo_py.kube.client import PatchType
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.resources import Key
from kargo_py.local.apiserver.client import client_of
from kargo_py.local.apiserver.faults import Faulty, Schedule
from kargo_py.local.apiserver.store import Event
from kargo_py.local.argocd.documents import APPLICATIONS
from kargo_py.local.argocd.simulator import ArgoCD
from kargo_py.local.argocd.timing import Timing, Version
from tests.in_process import api_server, create_namespaces

JsonObject = dict[str, Any]

REPO = "https://git.example.com/shop"
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
KEY = Key("argocd", "shop-dev")


class Bench:
    """A server, a simulated Argo CD, and what a user does."""

    def __init__(self) -> None:
        """Use :meth:`make`."""
        self.versions: list[JsonObject] = []
        self.base = NOON
        self._zero: float | None = None
        self._news = asyncio.Event()
        self.server = api_server(self._server_now)
        self.server.store.observers.append(self._saw)
        self.client = client_of(self.server, user_agent="user")
        self.faults = Schedule()
        """What happens to requests of Argo CD."""

    @classmethod
    async def make(cls) -> Self:
        """A bench on which Applications can be created."""
        bench = cls()
        await create_namespaces(bench.client, KEY.namespace)
        return bench

    def _saw(self, event: Event) -> None:
        if event.collection.plural == APPLICATIONS.plural:
            self.versions.append(event.stored.obj)
            self._news.set()

    def _server_now(self) -> datetime:
        """The time stands until somebody asks: fixtures run in real time."""
        return self.base if self._zero is None else self.now()

    def now(self) -> datetime:
        """Wall-clock time: *base* when first asked, and moves with the loop's clock."""
        time = asyncio.get_running_loop().time()
        if self._zero is None:
            self._zero = time
        return self.base + timedelta(seconds=time - self._zero)

    def argo(self, version: Version = Version.V3_6, *, timing: Timing | None = None, seed: int = 0) -> ArgoCD:
        """Make an Argo CD; nothing runs yet."""
        client = client_of(Faulty(self.server, self.faults), user_agent="argocd")
        return ArgoCD(client, version=version, timing=timing, seed=seed, now=self.now)

    async def create(self, name: str = KEY.name, **parts: Any) -> JsonObject:
        """Create an Application; *parts* go into its spec, or beside it when they are metadata, operation or status."""
        beside: JsonObject = {part: parts.pop(part) for part in ("operation", "status") if part in parts}
        spec: JsonObject = {
            "project": "default",
            "destination": {"server": "https://kubernetes.default.svc", "namespace": "shop"},
            "source": {"repoURL": REPO, "path": "app", "targetRevision": "main"},
            **parts.pop("spec", {}),
        }
        body: JsonObject = {
            "apiVersion": APPLICATIONS.api_version,
            "kind": APPLICATIONS.kind,
            "metadata": {"name": name, **parts},
            "spec": spec,
            **beside,
        }
        return await self.client.create(APPLICATIONS, KEY.namespace, encode(body), codec=JSON)

    async def app(self, name: str = KEY.name) -> JsonObject:
        """Read it."""
        return await self.client.get(APPLICATIONS, Key(KEY.namespace, name), codec=JSON)

    async def patch(self, body: Any, name: str = KEY.name) -> JsonObject:
        """Merge, or with a list JSON, patch."""
        type_ = PatchType.JSON if isinstance(body, list) else PatchType.MERGE
        return await self.client.patch(
            APPLICATIONS, Key(KEY.namespace, name), encode(body), codec=JSON, patch_type=type_
        )

    async def until(self, condition: Callable[[JsonObject], Any], name: str = KEY.name) -> JsonObject:
        """Wait, without reading in between, until a stored version is as wanted."""
        async with asyncio.timeout(1000):
            while not condition(app := await self.app(name)):
                self._news.clear()
                await self._news.wait()
        return app


@pytest.fixture
async def bench() -> Bench:
    """A bench in the test's loop."""
    return await Bench.make()


def phase(app: JsonObject) -> str:
    """The phase of the operation, "" before any."""
    found: str = state(app).get("phase", "")
    return found


def state(app: JsonObject) -> JsonObject:
    """status.operationState, {} where there is none."""
    return (app.get("status") or {}).get("operationState") or {}


def ended(app: JsonObject) -> bool:
    """Whether an operation was seen, and is over."""
    return "operation" not in app and phase(app) in {"Succeeded", "Failed", "Error"}


def operation(name: str = "mine", **sync: Any) -> JsonObject:
    """An operation that carries *name*."""
    return {"info": [{"name": "id", "value": name}], "initiatedBy": {"username": "tool"}, "sync": sync}


def owner(app: JsonObject) -> str:
    """Which operation the state is about."""
    found: str = state(app)["operation"]["info"][0]["value"]
    return found
