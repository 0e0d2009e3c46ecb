"""The time of a step is kept to within seconds, also while requests to Argo CD's API server hang or take long."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kargo_py.argocd.application import APPLICATIONS
from kargo_py.controllers.lookups import SECRETS
from kargo_py.kube.resources import Key, Resource
from kargo_py.steps.argocd_update import USES as UPDATE
from kargo_py.steps.argocd_wait import USES as WAIT
from tests.protocol.test_steps import Toy, hang
from tests.protocol.test_steps_attacked import secret
from tests.protocol.universe import APP, Line, Universe, universe

pytestmark = pytest.mark.looptime

LATE = 15.0

SECRET = "${{ secret('s').pw }}"


def slow(
    line: Line,
    monkeypatch: pytest.MonkeyPatch,
    verbs: str,
    seconds: float,
    *names: str,
    about: Resource = APPLICATIONS,
) -> None:
    """From now on requests about these Applications, or all, take so long; so does what they do."""
    for verb in verbs.split():
        asked = getattr(line, verb)

        async def late(resource: Resource, key: Key, *arguments: Any, asked: Any = asked, **options: Any) -> Any:
            if resource == about and (not names or key.name in names):
                await asyncio.sleep(seconds)
            return await asked(resource, key, *arguments, **options)

        monkeypatch.setattr(line, verb, late)


async def took(world: Universe, phase: str) -> float:
    """Seconds until the Promotion ends so."""
    began = asyncio.get_running_loop().time()
    assert await world.ended() == phase
    return asyncio.get_running_loop().time() - began


async def test_a_start_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The write is let go of; what is there is seen, and the step ends."""
    async with universe() as (world, _), world.process() as ours:
        slow(ours.line, monkeypatch, "patch", 1000)
        await world.promote(retry={"timeout": "1m"})

        assert 55 < await took(world, "Failed") < 60 + LATE
    assert "timed out after 1m0s" in world.message()


async def test_many_that_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass over forty Applications would take six minutes; the step has two."""
    names = [f"a{number}" for number in range(40)]
    async with universe() as (world, argo), world.process() as ours:
        for name in names:
            await world.create_application(name)
            argo.application(name).next_sync(hang=True)
        slow(ours.line, monkeypatch, "patch", 9)
        await world.promote(apps=[{"name": name} for name in names], retry={"timeout": "2m"})

        assert 115 < await took(world, "Failed") < 120 + LATE

    states = {each["name"]: each["state"] for each in world.operations()}
    assert set(states.values()) == {"Detached", "NotStarted"}


async def test_a_wait_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is with argocd-wait, which asks Argo CD to look."""
    async with universe() as (world, _), world.process() as ours:
        await world.write({"operation": {"initiatedBy": {"username": "alice"}, "sync": {}}})
        slow(ours.line, monkeypatch, "patch", 1000)
        step = {"uses": WAIT, "config": {"apps": [{"name": APP.name}]}, "retry": {"timeout": "1m"}}
        await world.run(step)
        seconds = await took(world, "Failed")

    assert 55 < seconds < 60 + LATE


async def test_what_is_named_cannot_be_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was started then, so there is nothing to be seen first."""
    async with universe() as (world, _), world.process() as ours:
        slow(ours.line, monkeypatch, "get", 1000)
        await world.promote(apps=[{"name": "absent"}], retry={"timeout": "1m"})

        assert 55 < await took(world, "Errored") < 60 + LATE
    assert "nothing was started" in world.message()


@pytest.mark.parametrize(("uses", "config"), [("toy", {"text": SECRET}), (UPDATE, {"apps": [{"name": SECRET}]})])
async def test_what_expressions_look_up_takes_long(monkeypatch: pytest.MonkeyPatch, uses: str, config: Any) -> None:
    """The step was not called; it has had its time all the same."""
    toy = Toy()
    async with universe() as (world, _), world.process(further={"toy": toy}) as ours:
        slow(ours.line, monkeypatch, "get", 1000, about=SECRETS)
        await world.run({"uses": uses, "config": config, "retry": {"timeout": "1m"}})

        assert 55 < await took(world, "Errored") < 60 + LATE
    assert "timed out after 1m0s" in world.message()
    assert not toy.calls


async def test_the_time_of_a_step_counts_from_before_it_was_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    """What looking up has taken is not there for the call any more."""
    async with universe() as (world, _), world.process(further={"toy": Toy(hang)}) as ours:
        slow(ours.line, monkeypatch, "get", 40, about=SECRETS)
        await secret(world, pw="x")
        await world.run({"uses": "toy", "config": {"text": SECRET}, "retry": {"timeout": "1m"}})

        assert 55 < await took(world, "Errored") < 60 + LATE


async def test_what_cannot_be_seen_is_not_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where reads hang too, the step stays Running until they do not; then it is what the sync was."""
    async with universe() as (world, argo), world.process() as ours:
        argo.application(APP.name).next_sync(hang=True)
        await world.promote(retry={"timeout": "1m"})
        await world.started()
        with monkeypatch.context() as hanging:
            slow(ours.line, hanging, "get patch", 1000)
            await asyncio.sleep(200)
            assert world.phase() == "Running"
        assert await took(world, "Failed") < 120
    assert "the sync was left to run" in world.message()
