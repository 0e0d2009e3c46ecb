"""A Project on an API server in the test's process, and calls of steps there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from kargo_py.api.names import Actor
from kargo_py.kube.client import Client
from kargo_py.kube.clock import utc_now
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.resources import Key, Resource
from kargo_py.local.apiserver.client import client_of
from kargo_py.steps.base import StepContext, StepOutcome
from kargo_py.steps.objects import FREIGHTS, STAGES
from kargo_py.steps.step import Step
from tests.in_process import api_server, create_namespaces

PROJECT = "shop"
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
ORIGIN = {"kind": "Warehouse", "name": "wh"}
COMMITS = [{"repoURL": "https://git.example.com/shop", "id": "3f1a0f6"}]


def _never() -> bool:
    return False


def context(config: Any, *, called_off: Callable[[], bool] = _never) -> StepContext:
    """What a step with *config* is called with."""
    return StepContext(
        "me", PROJECT, "dev", "p1", "uid-of-p1", Actor(None), "step-1", config, NOON, NOON, called_off=called_off
    )


async def call(step: Step[Any], config: Any, *, called_off: Callable[[], bool] = _never) -> StepOutcome:
    """The answer of *step*."""
    return await step.run(context(config, called_off=called_off))


@asynccontextmanager
async def project() -> AsyncIterator[Client]:
    """A server with Stage ``dev`` and Freight ``f1`` and ``f2``."""
    async with api_server(utc_now) as server:
        client = client_of(server)
        await create_namespaces(client, PROJECT, "other")
        requested = [{"origin": ORIGIN, "sources": {"direct": True}}]
        await create(client, STAGES, "dev", spec={"requestedFreight": requested})
        for name in ("f1", "f2"):
            await create(client, FREIGHTS, name, origin=ORIGIN, commits=COMMITS)
        yield client


async def create(client: Client, resource: Resource, name: str, **parts: Any) -> None:
    """Create an object of the Project."""
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, **parts}
    await client.create(resource, PROJECT, encode(body), codec=JSON)


async def read(client: Client, resource: Resource, name: str) -> dict[str, Any]:
    """An object of the Project."""
    return await client.get(resource, Key(PROJECT, name), codec=JSON)


async def set_status(client: Client, resource: Resource, name: str, status: dict[str, Any]) -> None:
    """Merge into a status."""
    body = encode({"status": status})
    await client.patch(resource, Key(PROJECT, name), body, codec=JSON, subresource="status")
