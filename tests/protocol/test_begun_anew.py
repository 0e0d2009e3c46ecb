"""Steps that meet another Application, or another's operation, than they might take for their own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kargo_py.argocd.application import APPLICATIONS
from kargo_py.controllers.world import PROMOTIONS, STAGES
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.resources import Key
from kargo_py.steps.argocd_update import USES
from kargo_py.steps.argocd_wait import USES as WAIT
from tests.protocol.universe import APP, PROJECT, REPO, Universe, universe

pytestmark = pytest.mark.looptime

HELM = {"repoURL": REPO, "helm": {"images": [{"key": "image.tag", "value": "v2"}]}}
LATER = Key(APP.namespace, "later")
STEP = {"alias": "one", "startedAt": "2026-11-30T12:00:00Z"}


async def taken_over(world: Universe) -> None:
    """A real Kargo has run the first of two steps that sync the Application, and has begun the second."""
    info = [{"name": "kargo.akuity.io/promotion", "value": "p1"}]
    await world.write({"operation": {"info": info, "sync": {}}, "status": {"operationState": None}})
    await world.until(lambda: world.runs() == [("kargo:p1", "Succeeded")])
    one = {"uses": USES, "as": "one", "config": {"apps": [{"name": APP.name}]}}
    two = {"uses": USES, "as": "two", "config": {"apps": [{"name": APP.name, "sources": [HELM]}]}}
    await world.run(one, two)
    reference = {"name": "f1", "origin": {"kind": "Warehouse", "name": "wh"}}
    steps = [{**STEP, "status": "Succeeded"}, {**STEP, "alias": "two", "status": "Running"}]
    running = {"phase": "Running", "currentStep": 1, "freight": reference, "stepExecutionMetadata": steps}
    for resource, name, status in (
        (PROMOTIONS, "p1", running),
        (STAGES, "dev", {"currentPromotion": {"name": "p1", "freight": reference}}),
    ):
        body = encode({"status": status})
        await world.user.patch(resource, Key(PROJECT, name), body, codec=JSON, subresource="status")


async def test_the_sync_of_an_earlier_step_is_not_that_of_the_next() -> None:
    """Kargo names the Promotion only. As long as the spec is not as the step asks, its sync was not made."""
    async with universe() as (world, _):
        await taken_over(world)
        async with world.process():
            assert await world.ended() == "Succeeded"

    assert world.app()["spec"]["source"]["helm"] == {"parameters": [{"name": "image.tag", "value": "v2"}]}
    assert len(world.starts()) == 1


async def test_the_sync_of_the_step_itself_is_taken_over() -> None:
    async with universe() as (world, _):
        helm = {"parameters": [{"name": "image.tag", "value": "v2"}]}
        await world.write({"spec": {"source": {"helm": helm}}})
        await taken_over(world)
        async with world.process():
            assert await world.ended() == "Succeeded"

    assert not world.starts()


async def held(world: Universe) -> None:
    """A Promotion waits for somebody else's operation."""
    await world.write({"operation": {"initiatedBy": {"username": "alice"}, "sync": {}}})
    await world.until(lambda: world.app().get("status", {}).get("operationState", {}).get("phase") == "Running")
    await world.promote()
    await asyncio.sleep(20)
    assert not world.starts()


async def test_recreated_before_the_start() -> None:
    """Nothing of ours went with the old one: the new one is synced."""
    async with universe() as (world, argo), world.process():
        argo.application(APP.name).next_sync(hang=True)
        await held(world)
        await world.user.delete(APPLICATIONS, APP)
        await world.create_application()
        assert await world.ended(seconds=60) == "Succeeded"

    assert len(world.starts()) == 1


async def test_recreated_without_authorization_before_the_start() -> None:
    async with universe() as (world, argo), world.process():
        argo.application(APP.name).next_sync(hang=True)
        await held(world)
        await world.user.delete(APPLICATIONS, APP)
        await world.create_application(stages=None)
        assert await world.ended(seconds=60) == "Failed"

    assert "is not authorized" in world.message()
    assert not world.starts()


@pytest.mark.parametrize("uses", [USES, WAIT])
async def test_one_that_is_being_deleted_is_not_what_is_waited_for(uses: str) -> None:
    """With waitForCreation its successor is; without it, that it is being deleted is the end."""
    async with universe() as (world, _), world.process():
        await world.create_application(LATER.name)
        kept: dict[str, Any] = {"metadata": {"finalizers": ["example.com/kept"]}}
        await world.user.patch(APPLICATIONS, LATER, encode(kept), codec=JSON)
        await world.user.delete(APPLICATIONS, LATER)
        await world.run({"uses": uses, "config": {"apps": [{"name": LATER.name, "waitForCreation": "5m"}]}})
        await asyncio.sleep(100)
        assert "to be created" in world.promotion()["status"]["stepExecutionMetadata"][0]["message"]
        kept["metadata"]["finalizers"] = None
        await world.user.patch(APPLICATIONS, LATER, encode(kept), codec=JSON)
        await world.create_application(LATER.name)
        if uses == USES:
            async with asyncio.timeout(1):
                await world.until(world.starts)
            assert await world.ended() == "Succeeded"
        else:
            await world.until(
                lambda: world.app(LATER.name)["metadata"]["annotations"].get("argocd.argoproj.io/refresh")
            )


async def test_it_is_never_deleted() -> None:
    """When the time is over, that is what is said."""
    async with universe() as (world, _), world.process():
        await world.create_application(LATER.name)
        kept = {"metadata": {"finalizers": ["example.com/kept"]}}
        await world.user.patch(APPLICATIONS, LATER, encode(kept), codec=JSON)
        await world.user.delete(APPLICATIONS, LATER)
        await world.run({"uses": USES, "config": {"apps": [{"name": LATER.name, "waitForCreation": "1m"}]}})
        assert await world.ended(seconds=62) == "Errored"

    assert world.message().endswith('"later" in namespace "argocd" is being deleted')
