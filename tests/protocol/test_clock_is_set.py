"""Somebody sets the wall clock of our machine, by a day, while something is waited for: nothing ends for that."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from kargo_py.steps.argocd_wait import USES as WAIT
from kargo_py.steps.base import StepContext, StepOutcome, Waiting
from kargo_py.steps.step import Step, Work
from tests.engine.calling import NoConfig
from tests.protocol.universe import APP, REPO, SHA, Universe, universe

pytestmark = pytest.mark.looptime

JsonObject = dict[str, Any]
SOURCE = {"repoURL": REPO, "desiredRevision": SHA, "updateTargetRevision": True}
TIME = {"retry": {"timeout": "5m"}}
HOOK = "waiting for completion of hook"


def step(uses: str, *apps: JsonObject, **options: Any) -> JsonObject:
    return {"uses": uses, "as": "sync", "config": {"apps": list(apps) or [{"name": APP.name}]}, **TIME, **options}


class Poll(Step[NoConfig]):
    """A step of somebody else, which leaves its time to the engine."""

    uses = "poll"
    config_model = NoConfig
    work = Work.API

    async def run(self, context: StepContext) -> StepOutcome:
        return Waiting("not yet", context.records, look_after=10.0, polls=True)


STEPS = [
    pytest.param(step("argocd-update", {"name": APP.name, "sources": [SOURCE]}), id="argocd-update"),
    pytest.param(step(WAIT), id="argocd-wait"),
    pytest.param(
        step("argocd-update", {"name": "later", "waitForCreation": "5m"}, retry={"timeout": "1s"}), id="later"
    ),
    pytest.param({"uses": "poll", **TIME}, id="any other"),
]

DAYS = pytest.mark.parametrize("days", [1, -1])


@asynccontextmanager
async def hanging() -> AsyncIterator[tuple[Universe, Any]]:
    """Argo CD's syncs do not end, and it is not synced."""
    async with universe() as (world, argo):
        argo.application(APP.name).next_sync(hang=True)
        await world.write({"spec": {"source": {"targetRevision": "other"}}})
        yield world, argo


async def seconds_to_its_end(world: Universe) -> float:
    began = asyncio.get_running_loop().time()
    assert await world.ended(seconds=4 * 86400) in {"Failed", "Errored"}
    return asyncio.get_running_loop().time() - began


@DAYS
@pytest.mark.parametrize("running", STEPS)
async def test_during_a_step(running: JsonObject, days: int) -> None:
    """It has its time, neither less nor more."""
    async with hanging() as (world, _), world.process(further={"poll": Poll()}):
        await world.run(running)
        await asyncio.sleep(60)
        assert world.phase() == "Running", world.message()
        world.ahead += timedelta(days=days)
        assert 239 <= await seconds_to_its_end(world) < 255


@DAYS
async def test_while_somebody_else_has_the_application(days: int) -> None:
    """The time of a target begins when that is free, which is on record by the clock of the step."""
    async with universe() as (world, argo), world.process():
        argo.application(APP.name).next_sync(hang=True)
        await world.write({"operation": {"initiatedBy": {"username": "alice"}, "sync": {}}})
        await world.until(lambda: HOOK in json.dumps(world.app().get("status", {})))
        await world.run(step("argocd-update", {"name": APP.name, "sources": [SOURCE]}))
        await asyncio.sleep(200)
        world.ahead += timedelta(days=days)
        argo.application(APP.name).next_sync(hang=True)
        argo.application(APP.name).finish_hook()
        await world.started()
        await asyncio.sleep(100)
        world.ahead += timedelta(days=days)
        assert 190 <= await seconds_to_its_end(world) < 215


@pytest.mark.parametrize(("days", "least", "most"), [(1, 0, 15), (-1, 299, 315)])
async def test_before_a_restart(days: int, least: float, most: float) -> None:
    """What is on record, and the wall clock, are all that the next process has; less than no time has not passed."""
    async with hanging() as (world, _):
        async with world.process() as first:
            await world.run(step(WAIT))
            await asyncio.sleep(60)
            await first.kill()
        world.ahead += timedelta(days=days)
        async with world.process():
            assert least <= await seconds_to_its_end(world) < most


@DAYS
async def test_while_the_last_promotion_is_judged(days: int) -> None:
    """The next one waits for the verdict on it for half a minute at most."""
    async with universe() as (world, argo), world.process():
        await world.promote()
        assert await world.ended() == "Succeeded"
        argo.application(APP.name).health("Progressing")
        await asyncio.sleep(5)
        await world.promote("p2")
        await world.promote("p3")
        assert await world.ended("p2") == "Succeeded"
        await asyncio.sleep(2)
        world.ahead += timedelta(days=days)
        began = asyncio.get_running_loop().time()
        await world.until(lambda: world.phase("p3") != "Pending", seconds=2 * 86400)
        assert 20 < asyncio.get_running_loop().time() - began < 30
