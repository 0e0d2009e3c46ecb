"""The steps that write to Stages and Freight, while the Stage controller writes there, too."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kargo_py.controllers.world import FREIGHTS, STAGES
from kargo_py.kube.client import JsonObject
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.resources import Key
from kargo_py.local.apiserver.client import client_of
from kargo_py.steps.argocd_update import USES
from kargo_py.steps.base import Finished, StepContext
from kargo_py.steps.set_metadata import SetMetadata
from tests.protocol.universe import APP, PROJECT, Universe, universe
from tests.steps.small_steps import context

pytestmark = [pytest.mark.looptime, pytest.mark.usefixtures("both_definitions")]

STAGE, FREIGHT = Key(PROJECT, "dev"), Key(PROJECT, "f1")
UPDATE = {"uses": USES, "config": {"apps": [{"name": APP.name}]}}


def updates(**values: Any) -> JsonObject:
    names = (("Stage", "dev"), ("Freight", "f1"))
    return {"updates": [{"kind": kind, "name": name, "values": values} for kind, name in names]}


def step(**values: Any) -> JsonObject:
    return {"uses": "set-metadata", "config": updates(**values)}


def status(world: Universe, key: Key) -> JsonObject:
    found: JsonObject = world._object(STAGES if key == STAGE else FREIGHTS, key).get("status") or {}
    return found


def told(world: Universe) -> tuple[JsonObject, JsonObject]:
    """What the Stage and the Freight say beside the metadata, without what is another one each time."""
    stage, freight = ({k: v for k, v in status(world, key).items() if k != "metadata"} for key in (STAGE, FREIGHT))
    stage.pop("lastHandledRefresh", None)
    return stage, freight


async def verified(world: Universe) -> None:
    await world.until(lambda: "dev" in status(world, FREIGHT).get("verifiedIn", {}))


async def test_a_promotion_that_sets_metadata() -> None:
    """It is there in the end, beside all that the Stage controller says, and an alias in the field and the label."""
    alias = {"uses": "set-freight-alias", "config": {"name": "f1", "alias": "spring"}}
    async with universe() as (world, _), world.process():
        await world.run(step(before={"deep": [None]}), UPDATE, step(after=1), alias)
        phase = await world.ended()
        await verified(world)
        await world.run(step(again=True), UPDATE, name="p2")
        again = await world.ended("p2")
        await world.until(lambda: status(world, STAGE)["lastPromotion"]["name"] == "p2")
        freight = world._object(FREIGHTS, FREIGHT)

        wanted = {"before": {"deep": [None]}, "after": 1, "again": True}
        assert (phase, again) == ("Succeeded", "Succeeded")
        assert [status(world, key)["metadata"] for key in (STAGE, FREIGHT)] == [wanted, wanted]
        assert [freight["alias"], freight["metadata"]["labels"]["kargo.akuity.io/alias"]] == ["spring", "spring"]


@pytest.mark.parametrize("uses", [("fail", "Failed"), ("compose-output", "Succeeded")], ids=str)
async def test_steps_that_do_nothing_outside(uses: tuple[str, str]) -> None:
    """They end at once, with their message or their output."""
    kind, phase = uses
    config = {"message": "not today"} if kind == "fail" else {"deep": {"list": [1, None]}}
    async with universe() as (world, _), world.process():
        await world.run({"uses": kind, "as": "it", "config": config})
        assert await world.ended() == phase
        promotion = world.promotion()

        if kind == "fail":
            assert "failed: not today" in promotion["status"]["message"]
        else:
            assert promotion["status"]["state"]["it"] == config


async def interleaved(world: Universe, *, metadata: bool, refreshes: bool) -> int:
    """A Promotion, with others writing before each write to the Stage and the Freight; how many writes those were.

    Before each write of ours, another set-metadata sets a key of its own (*metadata*), and before each of the step the
    Stage controller has something to write (*refreshes*). What is sent again after that gets through.
    """
    other = SetMetadata(client_of(world.core, user_agent="other"))
    count = 0
    disturbed: set[tuple[str, bool]] = set()

    async def before(where: str, _key: Key, body: Any) -> None:
        nonlocal count
        if where not in {"stages/status", "freights/status"}:
            return
        writer = where, isinstance(body, list)
        if writer in disturbed:
            disturbed.remove(writer)
            return
        disturbed.add(writer)
        count += 1
        number = count
        if metadata:
            made: StepContext = context(updates(**{f"other-{number}": {"number": number}}))
            assert isinstance(await other.run(made), Finished)
        if refreshes and isinstance(body, list):
            token = encode({"metadata": {"annotations": {"kargo.akuity.io/refresh": f"t{number}"}}})
            await world.user.patch(STAGES, STAGE, token, codec=JSON)
            await world.until(lambda: status(world, STAGE).get("lastHandledRefresh") == f"t{number}", 5)

    async with world.process() as process:
        process.line.before_patch = before
        await world.run(step(mine=1), UPDATE, step(mine=2, too={"deep": [None]}))
        assert await world.ended() == "Succeeded"
        await verified(world)
        await world.until(lambda: "currentPromotion" not in status(world, STAGE))
    return count


@pytest.mark.parametrize(
    ("metadata", "refreshes"), [(True, False), (False, True), (True, True)], ids=["steps", "stage", "both"]
)
async def test_others_write_before_each_write(metadata: bool, refreshes: bool) -> None:
    """Nothing is lost: neither a key of any step, nor anything that the Stage controller says."""
    async with universe() as (world, _):
        await interleaved(world, metadata=False, refreshes=False)
        alone = told(world)
    async with universe() as (world, _):
        count = await interleaved(world, metadata=metadata, refreshes=refreshes)
        mine = {"mine": 2, "too": {"deep": [None]}}
        theirs = {f"other-{number}": {"number": number} for number in range(1, count + 1)} if metadata else {}

        assert count > 6
        assert [status(world, key)["metadata"] for key in (STAGE, FREIGHT)] == [{**mine, **theirs}] * 2
        assert _without_times(told(world)) == _without_times(alone)


async def test_an_abort_between_two_objects() -> None:
    """What was set stays, what was not is not begun, and the Promotion is Aborted."""
    async with universe() as (world, _), world.process() as process:

        async def before(where: str, _key: Key, body: Any) -> None:
            if where == "stages/status" and isinstance(body, list):
                await world.abort()
                await asyncio.sleep(1)  # until the cache has it

        process.line.before_patch = before
        await world.run(step(mine=1), UPDATE)
        phase = await world.ended()

        assert phase == "Aborted"
        assert [status(world, key).get("metadata") for key in (STAGE, FREIGHT)] == [{"mine": 1}, None]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_at_every_write(when: str) -> None:
    """Whichever write was the last of a process, the next one brings it to the same end."""
    alias = {"uses": "set-freight-alias", "config": {"name": "f1", "alias": "spring"}}
    number, died = 0, True
    while died:
        number += 1
        async with universe() as (world, _):
            async with world.process() as first:
                first.line.last_write = (number, when)
                await world.run(step(one={"deep": [None]}), alias, step(two=2))
                ends = [asyncio.create_task(first.line.died.wait()), asyncio.create_task(verified(world))]
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                died = first.line.died.is_set()
                for end in ends:
                    end.cancel()
                await asyncio.gather(*ends, return_exceptions=True)
                await first.kill()
            async with world.process():
                assert await world.ended() == "Succeeded"
                await verified(world)
                freight = world._object(FREIGHTS, FREIGHT)
                wanted = {"one": {"deep": [None]}, "two": 2}
                assert [status(world, key)["metadata"] for key in (STAGE, FREIGHT)] == [wanted, wanted]
                assert freight["alias"] == freight["metadata"]["labels"]["kargo.akuity.io/alias"] == "spring"

    assert number > 8


def _without_times(value: Any) -> Any:
    """Times and ids are others each time."""
    if isinstance(value, dict):
        return {
            name: _without_times(each)
            for name, each in value.items()
            if not name.endswith(("At", "Time")) and name not in {"since", "id"}
        }
    return [_without_times(each) for each in value] if isinstance(value, list | tuple) else value
