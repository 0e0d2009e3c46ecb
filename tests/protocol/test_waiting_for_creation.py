"""Applications that are yet to be made, by an ApplicationSet say, when the step begins."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kargo_py.api.stamp import AWAITED_KEY
from kargo_py.argocd.application import APPLICATIONS
from kargo_py.controllers.world import PROMOTIONS
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.resources import Key
from tests.protocol.universe import APP, REPO, SHA, Universe, universe

pytestmark = pytest.mark.looptime

WEB = {"tier": "web"}
SOURCE = {"repoURL": REPO, "desiredRevision": SHA, "updateTargetRevision": True}
NAMED: dict[str, Any] = {"name": "later", "sources": [SOURCE], "waitForCreation": "5m"}
SELECTED: dict[str, Any] = {"selector": {"matchLabels": WEB}, "sources": [SOURCE], "waitForCreation": "5m"}


def told(world: Universe) -> str:
    """What the user reads of the running step."""
    return str(world.promotion()["status"]["stepExecutionMetadata"][-1].get("message", ""))


def awaited(world: Universe) -> Any:
    return (world.promotion()["status"].get("state") or {}).get(AWAITED_KEY)


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        (NAMED, 'Argo CD Application "later" in namespace "argocd"'),
        (SELECTED, 'an Argo CD Application matching selector "tier=web" in namespace "argocd"'),
    ],
    ids=["named", "selected"],
)
async def test_it_begins_when_the_application_is_made(entry: Any, what: str) -> None:
    """The creation wakes it; until then nothing is started, of other entries neither, and the wait is told."""
    async with universe() as (world, _), world.process():
        await world.promote(apps=[{"name": APP.name}, entry])
        await asyncio.sleep(150)
        assert world.phase() == "Running"
        assert told(world) == f"waits for {what} to be created, until 2026-11-30T12:05:00Z"
        assert not world.starts()
        await world.create_application("later", labels=WEB)
        async with asyncio.timeout(0.5):
            await world.until(lambda: len(world.starts()) == 2)
        assert awaited(world) is None
        assert await world.ended() == "Succeeded"

    assert {operation["name"]: operation["state"] for operation in world.operations()} == {
        APP.name: "Succeeded", "later": "Succeeded",
    }  # fmt: skip


async def test_a_label_that_comes_later() -> None:
    """What exists already is found when its labels become those that are looked for."""
    async with universe() as (world, _), world.process():
        await world.create_application("later")
        await world.promote(apps=[SELECTED])
        await asyncio.sleep(150)
        body = encode({"metadata": {"labels": WEB}})
        await world.user.patch(APPLICATIONS, Key("argocd", "later"), body, codec=JSON)
        async with asyncio.timeout(0.5):
            await world.until(world.starts)
        assert await world.ended() == "Succeeded"


@pytest.mark.parametrize("entry", [NAMED, SELECTED], ids=["named", "selected"])
async def test_it_is_never_made(entry: Any) -> None:
    """After that time the step ends and says how long it waited; it wrote no more than it had to."""
    async with universe() as (world, _), world.process():
        written: list[Any] = []
        world.core.store.observers.append(
            lambda event: written.append(event) if event.collection.plural == PROMOTIONS.plural else None
        )
        began = world.now()
        await world.promote(apps=[entry])
        assert await world.ended() == "Errored"
        waited = (world.now() - began).total_seconds()

    assert "; it was waited for 5m0s" in world.message()
    assert 299 < waited < 302
    assert len(written) == 4
    assert awaited(world) is None


async def test_the_time_counts_across_restarts() -> None:
    """It counts from the start of the step; what another process sees being made begins the step."""
    async with universe() as (world, _):
        async with world.process() as process:
            await world.promote("p1", apps=[NAMED])
            await asyncio.sleep(100)
            await process.kill()
        await asyncio.sleep(150)
        async with world.process() as process:
            await asyncio.sleep(40)
            assert world.phase() == "Running"
            await process.kill()
        await world.create_application("later")
        async with world.process():
            assert await world.ended() == "Succeeded"


async def test_it_is_late_after_a_restart() -> None:
    """If the time is over when the next process begins, that is the end."""
    async with universe() as (world, _):
        async with world.process() as process:
            await world.promote(apps=[NAMED])
            await asyncio.sleep(100)
            await process.kill()
        await asyncio.sleep(250)
        async with world.process():
            assert await world.ended(seconds=2) == "Errored"


async def test_abort_while_waiting() -> None:
    """It ends at once; what is made afterwards is not touched."""
    async with universe() as (world, _), world.process():
        await world.promote(apps=[{"name": APP.name}, NAMED, SELECTED])
        await asyncio.sleep(100)
        await world.abort()
        assert await world.ended(seconds=2) == "Aborted"
        await world.create_application("later", labels=WEB)
        await asyncio.sleep(60)

    assert "nothing was started: it still waited for Applications to be created" in world.message()
    assert not world.starts()
    assert awaited(world) is None


async def test_the_sync_has_a_time_of_its_own() -> None:
    """The time-out of the step counts from when all was there."""
    async with universe() as (world, argo), world.process():
        await world.promote(apps=[NAMED], retry={"timeout": "1m"})
        await asyncio.sleep(200)
        argo.application("later").next_sync(hang=True)
        await world.create_application("later")
        await world.until(world.starts)
        await asyncio.sleep(50)
        assert world.phase() == "Running"
        assert await world.ended(seconds=15) == "Failed"

    assert "timed out after 1m0s" in world.message()


async def test_made_without_authorization() -> None:
    """That is no reason to wait any longer."""
    async with universe() as (world, _), world.process():
        await world.promote(apps=[SELECTED])
        await asyncio.sleep(100)
        await world.create_application("later", labels=WEB, stages=None)
        assert await world.ended(seconds=2) == "Errored"

    assert "but none are authorized for Stage shop:dev" in world.message()


async def test_an_entry_that_does_not_wait() -> None:
    """What is missing and not waited for is an error at once, though another entry waits."""
    async with universe() as (world, _), world.process():
        await world.promote(apps=[NAMED, {"name": "typo"}])
        assert await world.ended(seconds=2) == "Errored"

    assert '"typo" in namespace "argocd" does not exist' in world.message()


async def test_many_that_come_one_by_one() -> None:
    """It is not written anew for each, and nothing is asked of the server but in the end."""
    names = [f"a{number:02}" for number in range(40)]
    async with universe() as (world, _), world.process():
        written: list[Any] = []
        world.core.store.observers.append(
            lambda event: written.append(event) if event.collection.plural == PROMOTIONS.plural else None
        )
        await world.promote(apps=[{**NAMED, "name": name} for name in names])
        await asyncio.sleep(5)
        for name in names:
            await world.create_application(name)
            await asyncio.sleep(0.2)
        assert await world.ended() == "Succeeded"

    assert len(world.starts()) == 40
    assert len(written) < 16


@pytest.mark.parametrize("kept", ["nonsense", [{"step": 7}], [{"step": "sync", "namespace": "argocd", "selector": {}}]])
async def test_somebody_edits_what_is_waited_for(kept: Any) -> None:
    """It is found out anew, at the latest after a minute."""
    async with universe() as (world, _), world.process():
        await world.promote(apps=[SELECTED])
        await asyncio.sleep(5)
        body = encode({"status": {"state": {AWAITED_KEY: kept}}})
        await world.user.patch(PROMOTIONS, Key("shop", "p1"), body, codec=JSON, subresource="status")
        await world.create_application("later", labels=WEB)
        assert await world.ended(seconds=70) == "Succeeded"
