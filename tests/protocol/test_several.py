"""One step over several Applications: each stands alone, though all are started under one stamp."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from kargo_py.argocd.application import APPLICATIONS
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.errors import Forbidden, Invalid, KubeError, TooManyRequests
from kargo_py.kube.resources import Key
from tests.protocol.universe import APP, REPO, SHA, Universe, universe

pytestmark = [pytest.mark.looptime, pytest.mark.usefixtures("both_definitions")]


def apps(*names: str) -> list[dict[str, Any]]:
    source = {"repoURL": REPO, "desiredRevision": SHA, "updateTargetRevision": True}
    return [{"name": name, "sources": [source]} for name in names]


def state(world: Universe, name: str) -> tuple[str, bool]:
    """The phase of the operation, and whether `.operation` stands."""
    shown = (world.app(name).get("status") or {}).get("operationState") or {}
    return shown.get("phase", ""), "operation" in world.app(name)


def states(world: Universe, name: str = "p1") -> dict[str, str]:
    return {operation["name"]: operation["state"] for operation in world.operations(name)}


async def test_the_end_of_one_is_not_the_end_of_all() -> None:
    """While one still runs the Promotion does; each record has its own end and message."""
    async with universe() as (world, argo), world.process():
        await world.create_application("b")
        argo.application(APP.name).next_sync(fail="boom")
        argo.application("b").next_sync(hang=True)
        await world.promote(apps=apps(APP.name, "b"), retry={"timeout": "1h"})
        await asyncio.sleep(60)
        assert world.phase() == "Running"
        argo.application("b").finish_hook()
        assert await world.ended() == "Failed"

    assert states(world) == {APP.name: "Failed", "b": "Succeeded"}
    assert "boom" in world.message()


async def test_abort_ends_all() -> None:
    """Each of forty operations is terminated and waited for."""
    names = [f"a{number}" for number in range(40)]
    async with universe() as (world, argo), world.process():
        for name in names:
            await world.create_application(name)
            argo.application(name).next_sync(hang=True)
        await world.promote(apps=apps(*names))
        await asyncio.sleep(5)
        await world.abort()
        assert await world.ended() == "Aborted"

        assert {state(world, name) for name in names} == {("Failed", False)}
    assert set(states(world).values()) == {"Stopped"}


async def test_each_is_nudged() -> None:
    """Where Argo CD is down each Application is nudged by a clock of its own."""
    async with universe() as (world, argo), world.process():
        await world.create_application("b")
        await argo.stop()
        await world.promote(apps=apps(APP.name, "b"))
        await asyncio.sleep(20)

    nudged = [key.name for key, body in world.lines[0].patches if "operation" not in body]
    assert sorted(nudged) == sorted([APP.name, "b"])


async def test_an_error_about_one_does_not_hide_the_end_of_another() -> None:
    """What has ended is on record while requests about the other one fail; then that one goes on, too."""
    async with universe() as (world, _), world.process():
        await world.create_application("b")
        busy = TooManyRequests(429, "TooManyRequests", "busy")
        world.lines[0].fault = lambda key, body: busy if key.name == "b" and "operation" in body else None
        await world.promote(apps=apps(APP.name, "b"))
        await asyncio.sleep(30)
        assert states(world) == {APP.name: "Succeeded", "b": "Pending"}
        world.lines[0].fault = lambda _key, _body: None
        assert await world.ended() == "Succeeded"

    assert len(world.starts()) == 2


async def test_errors_do_not_put_the_time_out_off() -> None:
    """However long the back-off has become, the step ends when its time is up."""
    async with universe() as (world, _), world.process():
        busy = TooManyRequests(429, "TooManyRequests", "busy")
        world.lines[0].fault = lambda _key, body: busy if "operation" in body else None
        began = asyncio.get_running_loop().time()
        await world.promote(retry={"timeout": "2m"})
        assert await world.ended() == "Failed"
        assert asyncio.get_running_loop().time() - began < 125

    assert states(world) == {APP.name: "NotStarted"}


async def test_one_that_is_refused_keeps_no_change() -> None:
    """After an abort only what was touched is said to keep its change."""
    async with universe() as (world, argo), world.process():
        await world.create_application("b")
        argo.application(APP.name).next_sync(hang=True)
        argo.application("b").next_sync(hang=True)
        await to_b(world, {"operation": {"initiatedBy": {"username": "alice"}, "sync": {}}})
        await asyncio.sleep(1)
        await world.promote(apps=apps("b", APP.name))
        await asyncio.sleep(2)
        await to_b(world, {"metadata": {"annotations": {"kargo.akuity.io/authorized-stage": "x:y"}}})
        argo.application("b").finish_hook()
        await asyncio.sleep(3)
        await world.abort()
        assert await world.ended() == "Aborted"

    assert states(world) == {"b": "Refused", APP.name: "Stopped"}
    assert '"b" in namespace "argocd" keeps the change' not in world.message()


async def to_b(world: Universe, body: Any) -> None:
    await world.user.patch(APPLICATIONS, Key("argocd", "b"), encode(body), codec=JSON)


async def test_a_refused_step_leaves_nothing_in_memory() -> None:
    """Where the second Application is missing, nothing is kept about the first."""
    async with universe() as (world, _), world.process() as process:
        for number in range(5):
            await world.promote(f"p{number}", apps=apps(APP.name, "missing"))
            assert await world.ended(f"p{number}") == "Errored"

        assert not process.argocd._attempts


# -- one Application, and requests that are refused ------------------------------------------------------------------


@pytest.mark.parametrize("error", [Forbidden(403, "Forbidden", "no"), Invalid(422, "Invalid", "webhook")])
async def test_a_nudge_that_is_refused(error: KubeError) -> None:
    """It ends nothing: the sync is requested, and is waited for."""
    async with universe() as (world, argo), world.process():
        await argo.stop()
        world.lines[0].fault = lambda _key, body: error if "operation" not in body else None
        await world.promote()
        await asyncio.sleep(60)
        assert world.phase() == "Running"
        await argo.start()
        assert await world.ended() == "Succeeded"


async def test_a_start_that_is_answered_429_was_not_made() -> None:
    """When the time is over it is recorded as not started, and nothing was."""
    async with universe() as (world, _), world.process():
        busy = TooManyRequests(429, "TooManyRequests", "busy")
        world.lines[0].fault = lambda _key, body: busy if "operation" in body else None
        await world.promote(retry={"timeout": "1m"})
        assert await world.ended() == "Failed"

    assert "operation" not in world.app()
    assert states(world) == {APP.name: "NotStarted"}


async def test_put_back_only_in_that_source() -> None:
    """If somebody moves the sources about, nothing is written into another one."""
    zero = {"repoURL": "https://git.example.com/zero", "path": "z", "targetRevision": "v0"}
    ours = {"repoURL": REPO, "path": "app", "targetRevision": "main"}
    async with universe() as (world, argo), world.process():
        await world.write({"spec": {"source": None, "sources": [zero, ours]}})
        argo.application(APP.name).next_sync(hang=True)
        await world.promote(onAbort="revert")
        await world.until(lambda: "waiting for" in json.dumps(world.app().get("status", {})))
        moved = [zero, zero, {**ours, "targetRevision": SHA}]
        await world.write({"spec": {"sources": moved}})
        await world.abort()
        assert await world.ended() == "Aborted"

    assert world.app()["spec"]["sources"] == moved
    assert "left as somebody else changed them: /spec/sources/1/targetRevision" in world.message()


@pytest.mark.parametrize("hours", [1, -24])
async def test_the_wall_clock_jumps_during_an_abort(hours: int) -> None:
    """How long an abort is waited for is measured by our own clock."""
    async with universe() as (world, argo), world.process():
        argo.application(APP.name).next_sync(hang=True)
        await world.promote()
        await world.until(lambda: "waiting for" in json.dumps(world.app().get("status", {})))
        await argo.stop()
        await world.abort()
        await asyncio.sleep(5)
        world.zero -= 3600 * hours
        await asyncio.sleep(400)
        assert world.phase() == "Running"
        await asyncio.sleep(300)
        assert world.phase() == "Aborted"
