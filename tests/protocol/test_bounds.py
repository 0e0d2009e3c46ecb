"""What a step does when it is long: an abort amid many starts, a server that does not answer, and texts of any size."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from kargo_py.argocd.application import APPLICATIONS
from kargo_py.controllers import promotion_calling
from kargo_py.engine.machine import MOST_SAID
from kargo_py.kube.errors import OutcomeUnknown
from kargo_py.kube.resources import Key
from kargo_py.steps.argocd_wait import USES as WAIT
from tests.protocol.universe import APP, REPO, Line, Universe, universe

pytestmark = pytest.mark.looptime

WEB = {"tier": "web"}
MANY = [f"a{number:02}" for number in range(40)]
ALL: dict[str, Any] = {"selector": {"matchLabels": WEB}}


async def many(world: Universe) -> None:
    for name in MANY:
        await world.create_application(name, labels=WEB)


def silence(line: Line, seconds: float = 30.0) -> None:
    """From now on no write of *line* to an Application is answered."""
    answer = line.patch

    async def silent(resource: Any, key: Key, body: bytes, **options: Any) -> Any:
        if resource != APPLICATIONS:
            return await answer(resource, key, body, **options)
        await asyncio.sleep(seconds)
        raise OutcomeUnknown("no answer")

    line.patch = silent  # type: ignore[method-assign]


async def test_abort_amid_the_starts() -> None:
    """What was not started when it was asked for is never started."""
    async with universe() as (world, argo), world.process(delay=0.1):
        await many(world)
        for name in MANY:
            argo.application(name).next_sync(hang=True)
        await world.promote(apps=[ALL], retry={"timeout": "1h"})
        await world.until(lambda: len(world.starts()) == 3)
        await world.abort()
        assert await world.ended() == "Aborted"

    # One may have been on its way.
    assert len(world.starts()) <= 4
    states = sorted(operation["state"] for operation in world.operations())
    assert states.count("NotStarted") == len(MANY) - len(world.starts())


async def test_deleted_amid_the_starts() -> None:
    """A Promotion that is gone starts nothing more."""
    async with universe() as (world, argo), world.process(delay=0.1):
        await many(world)
        for name in MANY:
            argo.application(name).next_sync(hang=True)
        await world.promote(apps=[ALL], retry={"timeout": "1h"})
        await world.until(lambda: len(world.starts()) == 3)
        await world.delete()
        await asyncio.sleep(100)

    assert len(world.starts()) <= 4


async def test_a_forced_abort_where_no_start_is_answered() -> None:
    """It does not wait until each target has had its turn: that would take hours."""
    async with universe() as (world, _), world.process() as process:
        await many(world)
        silence(process.line)
        await world.promote(apps=[ALL], retry={"timeout": "24h"})
        await asyncio.sleep(1000)
        await world.abort(value='{"action": "terminate", "force": true}')
        assert await world.ended(seconds=400) == "Aborted"


async def test_force_where_no_termination_is_answered() -> None:
    async with universe() as (world, argo), world.process() as process:
        await many(world)
        for name in MANY:
            argo.application(name).next_sync(hang=True)
        await world.promote(apps=[ALL], retry={"timeout": "24h"})
        await world.until(lambda: len(world.starts()) == len(MANY))
        await asyncio.sleep(5)
        silence(process.line)
        await world.abort()
        await asyncio.sleep(200)
        assert world.phase() == "Running"
        await world.abort(value='{"action": "terminate", "force": true}')
        assert await world.ended(seconds=130) == "Aborted"

    assert {operation["state"] for operation in world.operations()} == {"Detached"}


async def test_one_that_is_slow_to_fail_keeps_no_other() -> None:
    """The others have their turn before it has another one."""
    async with universe() as (world, _), world.process() as process:
        await many(world)
        answer = process.line.patch

        async def slow(resource: Any, key: Key, body: bytes, **options: Any) -> Any:
            if key.name == MANY[0]:
                await asyncio.sleep(30)
                raise OutcomeUnknown("no answer")
            return await answer(resource, key, body, **options)

        process.line.patch = slow  # type: ignore[method-assign]
        await world.promote(apps=[ALL], retry={"timeout": "24h"})
        await world.until(lambda: len(world.starts()) == len(MANY) - 1, seconds=400)


async def test_waiting_where_no_request_is_answered() -> None:
    async with universe() as (world, _), world.process() as process:
        await many(world)
        silence(process.line)
        await world.run({"uses": WAIT, "config": {"apps": [ALL]}})
        await asyncio.sleep(40)
        await world.abort()
        assert await world.ended(seconds=100) == "Aborted"


LONG = "v" * 56
VALUES = [f"{LONG}{number:05}" for number in range(3000)]
LISTED: dict[str, Any] = {"selector": {"matchExpressions": [{"key": "tier", "operator": "In", "values": VALUES}]}}


@pytest.mark.parametrize(
    "config",
    [
        {"apps": [{"name": "x" * 400_000}]},
        {"apps": [LISTED, LISTED]},
        {"apps": [{**LISTED, "waitForCreation": "5m"}, LISTED, {**LISTED, "waitForCreation": "4m", "prune": True}]},
        {"apps": [{"name": APP.name}], "y" * 400_000: 1},
        {"apps": [{"name": APP.name, "sources": [{"repoURL": "z" * 400_000}]}]},
        {
            "apps": [
                {"name": APP.name, "sources": [{"repoURL": REPO, "desiredRevision": letter * 200_000}]}
                for letter in "uv"
            ]
        },
    ],
    ids=["name", "selector", "waiting", "field", "source", "revisions"],
)
async def test_texts_of_any_size(config: dict[str, Any]) -> None:
    """What the message quotes of them is not more than the object can hold."""
    async with universe() as (world, _), world.process():
        await world.promote(**config)
        assert await world.ended(seconds=10) in {"Failed", "Errored"}

    assert 0 < len(world.message().encode()) <= MOST_SAID
    assert len(json.dumps(world.promotion()["status"])) < 4 * MOST_SAID


async def test_a_selector_longer_than_a_url() -> None:
    """It chooses all the same, also what the cache has not seen yet."""
    values = [*VALUES, "web"]
    entry = {"selector": {"matchExpressions": [{"key": "tier", "operator": "In", "values": values}]}}
    async with universe() as (world, _), world.process():
        await world.create_application("a", labels=WEB)
        await world.promote(apps=[entry])
        assert await world.ended(seconds=30) == "Succeeded"

    assert [operation["name"] for operation in world.operations()] == ["a"]


async def test_selectors_that_are_too_long_to_wait_for() -> None:
    """They would be in the Promotion twice."""
    entries = [
        {
            "selector": {"matchExpressions": [{"key": f"key-{number}", "operator": "In", "values": VALUES}]},
            "waitForCreation": "5m",
        }
        for number in range(2)
    ]
    async with universe() as (world, _), world.process():
        await world.promote(apps=entries)
        assert await world.ended(seconds=10) == "Errored"

    assert "the selectors of entries with waitForCreation need" in world.message()


@pytest.mark.parametrize(
    "step", [{"uses": "fail", "if": "${{ failure() }}"}, {"uses": "fail", "if": "${{ vars.none }}"}]
)
async def test_many_steps_that_are_not_called_hold_up_nothing(
    monkeypatch: pytest.MonkeyPatch, step: dict[str, Any]
) -> None:
    """Others have their turn after each, though nothing is waited for."""
    world, turns = Universe(), set[int]()
    evaluate, calls = promotion_calling.Calling.evaluated, list[int]()

    async def evaluated(self: Any, *arguments: Any) -> Any:
        asyncio.get_running_loop().call_soon(lambda: turns.add(len(calls)))
        calls.append(len(calls))
        return await evaluate(self, *arguments)

    monkeypatch.setattr(promotion_calling.Calling, "evaluated", evaluated)
    async with world.core:
        await world.prepare()
        async with world.process():
            await world.run(*[{**step, "continueOnError": True}] * 50)
            await world.ended()
    assert len(calls) == len(turns) == 50
