"""An Application on an API server in memory, and the simulated Argo CD beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kargo_py.kube.client import PatchType
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.resources import Key
from kargo_py.local.argocd.documents import APPLICATIONS
from kargo_py.local.argocd.simulator import ArgoCD
from kargo_py.local.argocd.timing import Timing, Version
from tests.local.memory import MemoryClient

JsonObject = dict[str, Any]

REPO = "https://git.example.com/shop"
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
KEY = Key("argocd", "shop-dev")


class Bench:
    """A server, a simulated Argo CD, and what a user does."""

    def __init__(self) -> None:
        self.client = MemoryClient()
        self.versions: list[JsonObject] = []
        self.client.listeners.append(lambda _, obj: self.versions.append(obj))
        self.base = NOON
        self._zero: float | None = None

    def now(self) -> datetime:
        """Wall-clock time: *base* when first asked, and moves with the loop's clock."""
        time = asyncio.get_running_loop().time()
        if self._zero is None:
            self._zero = time
        return self.base + timedelta(seconds=time - self._zero)

    def argo(self, version: Version = Version.V3_6, *, timing: Timing | None = None, seed: int = 0) -> ArgoCD:
        """Make an Argo CD; nothing runs yet."""
        return ArgoCD(self.client, version=version, timing=timing, seed=seed, now=self.now)

    async def create(self, name: str = KEY.name, **parts: Any) -> JsonObject:
        """Create an Application; *parts* go into its spec, or beside it when they are metadata, operation or status."""
        beside: JsonObject = {part: parts.pop(part) for part in ("operation", "status") if part in parts}
        spec: JsonObject = {
            "project": "default",
            "destination": {"server": "https://kubernetes.default.svc", "namespace": "shop"},
            "source": {"repoURL": REPO, "path": "app", "targetRevision": "main"},
            **parts.pop("spec", {}),
        }
        body: JsonObject = {"metadata": {"name": name, **parts}, "spec": spec, **beside}
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
        news = asyncio.Event()
        self.client.listeners.append(lambda *_: news.set())
        try:
            async with asyncio.timeout(1000):
                while not condition(app := await self.app(name)):
                    news.clear()
                    await news.wait()
        finally:
            self.client.listeners.pop()
        return app


@pytest.fixture
async def bench() -> Bench:
    """A bench in the test's loop."""
    return Bench()


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
