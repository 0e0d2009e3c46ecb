"""What the Laws promise when things go wrong, tried at every moment of a short life, in simulated time.

Each moment is a universe of its own: the act falls so many milliseconds after the start (or the creation), while the
simulated worker reads, waits its gap, and writes without looking.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from kargo_py.argocd.application import APPLICATIONS, mark_of
from kargo_py.kube.codec import JSON
from kargo_py.local.argocd.simulator import ArgoCD as SimulatedArgoCD
from kargo_py.local.argocd.timing import Version
from tests.protocol import others
from tests.protocol.others import ALICE
from tests.protocol.universe import APP, Universe, is_ours, universe

pytestmark = pytest.mark.looptime

JsonObject = dict[str, Any]
MILLISECOND = 0.001


def assert_laws(world: Universe, name: str = "p1") -> None:
    """What holds after every end: nothing of ours runs, no stamp was started twice, no sync of ours succeeded twice."""
    starts = world.starts()
    assert len(starts) == len(set(starts)), starts
    succeeded = [mark for mark, phase in world.runs() if is_ours(mark) and phase == "Succeeded"]
    assert len(succeeded) <= 1, world.runs()
    if world.phase(name) == "Succeeded":
        assert succeeded == [starts[-1]]
    recorded = {operation["stamp"]: operation["state"] for operation in world.operations(name)}
    assert set(starts) <= set(recorded)
    for mark, phase in world.runs():
        if is_ours(mark) and mark in recorded and recorded[mark] != "Superseded":
            assert (phase == "Succeeded") == (recorded[mark] == "Succeeded"), (world.runs(), recorded)


@pytest.mark.parametrize("version", list(Version))
@pytest.mark.parametrize("hang", [False, True], ids=["short", "hook"])
async def test_two_hundred_aborts(version: Version, hang: bool) -> None:
    """Abort 0 to 10 ms after the start: it ends Aborted, its operation has ended, and the next Promotion succeeds."""
    for moment in range(50):
        async with universe(version, gap=0.004) as (world, argo), world.process():
            argo.application(APP.name).next_sync(hang=hang)
            await world.promote()
            await world.started()
            await asyncio.sleep(moment * MILLISECOND / 5)
            await world.abort()
            assert await world.ended() == "Aborted", moment
            await asyncio.sleep(1)
            assert world.at_rest(), (moment, world.app())
            assert_laws(world)
            (operation,) = world.operations()
            assert operation["state"] in ({"Stopped"} if hang else {"Stopped", "Succeeded"}), (moment, operation)
            await world.promote("p2")
            await asyncio.sleep(2)
            finish_hooks(argo)  # one that was ended before it was picked up leaves its script to the next
            assert await world.ended("p2") == "Succeeded"


@pytest.mark.parametrize("moment", range(20))
async def test_abort_while_it_begins(moment: int) -> None:
    """Abort 0 to 19 ms after the creation, before, during and after the start: it stops, or is never begun."""
    async with universe() as (world, argo), world.process():
        argo.application(APP.name).next_sync(hang=True)
        await world.promote()
        await asyncio.sleep(moment * MILLISECOND)
        await world.abort()
        assert await world.ended() == "Aborted"
        await asyncio.sleep(60)

        assert world.at_rest(), world.app()
        assert len(world.starts()) <= 1
        assert "Succeeded" not in {phase for mark, phase in world.runs() if is_ours(mark)}


@pytest.mark.parametrize("version", list(Version))
@pytest.mark.parametrize("first", range(0, 400, 50))
async def test_killed_at_any_moment(version: Version, first: int) -> None:
    """Killed at any moment from creation to end, and started again: one sync, Succeeded."""
    for moment in range(first, first + 50, 2):
        async with universe(version) as (world, _):
            async with world.process() as process:
                await world.promote()
                await asyncio.sleep(moment * MILLISECOND)
                await process.kill()
            await asyncio.sleep(0.05)
            async with world.process():
                assert await world.ended() == "Succeeded", moment
            assert len(world.starts()) == 1, moment
            assert_laws(world)


@pytest.mark.parametrize("first", range(0, 40, 10))
async def test_killed_while_it_aborts(first: int) -> None:
    """Killed at any moment after the abort was asked for, and started again: Aborted, and the operation has ended."""
    for moment in range(first, first + 10):
        async with universe() as (world, argo):
            argo.application(APP.name).next_sync(hang=True)
            async with world.process() as process:
                await world.promote()
                await world.started()
                await asyncio.sleep(0.003)
                await world.abort()
                await asyncio.sleep(moment * MILLISECOND)
                await process.kill()
            async with world.process():
                assert await world.ended() == "Aborted", moment
            await asyncio.sleep(1)
            assert world.at_rest(), (moment, world.app())
            assert_laws(world)


async def meddle(world: Universe, act: str) -> bool:
    """Let somebody else act; False if there was nothing to do."""
    if act == "recreate":
        return await recreate(world)
    body = others.ACTS[act](world.app())
    if body is not None:
        await world.write(body)
    return body is not None


async def recreate(world: Universe) -> bool:
    """As somebody who begins afresh."""
    await world.user.delete(APPLICATIONS, APP)
    await world.create_application()
    return True


# How often each act finds something to do in 26 moments, at least.
ACTS = {"start": 8, "overwrite": 26, "replace": 20, "remove operation": 10, "terminate": 8, "recreate": 26}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("hang", [False, True], ids=["short", "hook"])
async def test_somebody_else_at_any_moment(act: str, hang: bool) -> None:
    """Whatever others do, whenever, its end included: an end that is true, nothing of ours twice, theirs untouched."""
    acted = 0
    for moment in range(0, 260, 10):
        async with universe() as (world, argo), world.process():
            if hang:
                argo.application(APP.name).next_sync(hang=True)
            await world.promote()
            await asyncio.sleep(moment * MILLISECOND)
            acted += await meddle(world, act)
            for _ in range(120):
                await asyncio.sleep(1)
                finish_hooks(argo)
            assert world.phase() in {"Succeeded", "Failed", "Errored"}, moment
            assert world.at_rest(), (moment, world.app())
            assert_laws(world)
            assert not trespasses(world), (moment, trespasses(world))

    assert acted >= (ACTS[act] if not hang or act != "start" else 1)


def finish_hooks(argo: SimulatedArgoCD) -> None:
    """Let hooks that hang end, where there are any."""
    with suppress(LookupError):
        argo.application(APP.name).finish_hook()


def trespasses(world: Universe) -> list[Any]:
    """Our patches of the Application that name an operation which is not ours, or take one away."""
    found = []
    for line in world.lines:
        for _, body in line.patches:
            text = json.dumps(body)
            parts = body if isinstance(body, list) else [body]
            taken = any(
                (isinstance(part, dict) and "operation" in part and part["operation"] is None)
                or (part.get("op") == "remove" and part.get("path") == "/operation")
                for part in parts
            )
            if "alice" in text or taken:
                found.append(body)
    return found


@pytest.mark.parametrize("moment", range(0, 60, 3))
async def test_deleted_at_any_moment(moment: int) -> None:
    """The operation of a Promotion that was deleted, whenever that was, has ended two minutes later."""
    async with universe() as (world, argo), world.process():
        argo.application(APP.name).next_sync(hang=True)
        await world.promote()
        await asyncio.sleep(moment * MILLISECOND)
        await world.delete()
        await asyncio.sleep(120)

        assert world.at_rest(), world.app()
        assert not trespasses(world)
        await world.promote("p2")
        await asyncio.sleep(2)
        finish_hooks(argo)
        assert await world.ended("p2") == "Succeeded"


async def test_deleted_while_nothing_of_ours_ran() -> None:
    """It is found by its stamp, by a process that never saw the Promotion."""
    async with universe() as (world, argo):
        argo.application(APP.name).next_sync(hang=True)
        async with world.process():
            await world.promote()
            await world.until(lambda: "waiting for" in json.dumps(world.app().get("status", {})))
        await world.delete()
        async with world.process():
            await asyncio.sleep(120)

        assert world.at_rest()


@pytest.mark.parametrize(
    ("stamp", "stage"),
    [
        ("v1/other/shop/gone/u/sync/1", "shop:dev"),
        ("v2/me/shop/gone/u/sync/1", "shop:dev"),
        ("v1/me/shop/gone/u/sync/1", "elsewhere:dev"),
    ],
    ids=["another control plane's", "of a newer version", "forged"],
)
async def test_the_sweep_leaves_others_alone(stamp: str, stage: str) -> None:
    """A stamp of another control plane, of a newer version, or with a Stage of another Project is not ours to end."""
    info = [{"name": "kargo-py.io/stamp", "value": stamp}, {"name": "kargo-py.io/stage", "value": stage}]
    async with universe() as (world, argo), world.process():
        argo.application(APP.name).next_sync(hang=True)
        await world.write({"operation": {"info": info, "sync": {}}})
        await asyncio.sleep(200)

        assert mark_of(world.app()["operation"]) == stamp
        assert world.app()["status"]["operationState"]["phase"] == "Running"
        assert not world.lines[0].patches


async def test_argo_cd_is_down() -> None:
    """An operation that nobody picks up is nudged, the user reads why, and it goes on when Argo CD is back."""
    async with universe() as (world, argo), world.process():
        await argo.stop()
        await world.promote()
        await asyncio.sleep(60)
        nudges = [body for _, body in world.lines[0].patches if "operation" not in body]
        told = world.promotion()["status"]["stepExecutionMetadata"][-1].get("message", "")
        await argo.start()
        assert await world.ended() == "Succeeded"

    assert len(nudges) == 2
    assert "is its application controller running?" in told
    assert len(world.starts()) == 1


async def test_a_revision_that_moves_on() -> None:
    """Three attempts with pauses, each with a stamp of its own, then Failed with both revisions."""
    async with universe() as (world, argo), world.process():
        repository = argo.repository("https://git.example.com/shop")
        repository.commit("b" * 40, branch="main")
        source = {"repoURL": "https://git.example.com/shop", "desiredRevision": "a" * 40}
        await world.promote(apps=[{"name": APP.name, "sources": [source]}])
        assert await world.ended() == "Failed"

    assert [mark.rsplit("/", 1)[1] for mark in world.starts()] == ["1", "2", "3"]
    assert "b" * 40 in world.message()
    assert "a" * 40 in world.message()
    assert "3 times" in world.message()
    assert [operation["state"] for operation in world.operations()] == ["WrongRevision"] * 3


async def test_superseded_again_and_again() -> None:
    """After the third time the Promotion is Failed and names who was in the way."""
    async with universe() as (world, argo), world.process():
        for hangs in (True, False) * 3:
            argo.application(APP.name).next_sync(hang=hangs)
        await world.promote()
        for attempt in ("/1", "/2", "/3"):
            await world.until(partial(_waits_for_hook, world, attempt))
            await asyncio.sleep(1)  # the worker writes once more what it has just found
            await world.write({"operation": ALICE, "status": {"operationState": None}})
        assert await world.ended() == "Failed"

    assert "superseded by an operation started by alice before it could succeed, 3 times" in world.message()
    assert len(world.starts()) == 3


def _waits_for_hook(world: Universe, attempt: str) -> bool:
    return running_mark(world).endswith(attempt) and "waiting for" in json.dumps(world.app()["status"])


def running_mark(world: Universe) -> str:
    """The mark of the operation that Argo CD goes on with, "" if there is none."""
    state = (world.app().get("status") or {}).get("operationState") or {}
    return (mark_of(state["operation"]) or "") if state.get("phase") == "Running" else ""


async def test_put_back_after_two_attempts() -> None:
    """An abort puts back what the first attempt changed, though the second found it changed already."""
    async with universe() as (world, argo), world.process():
        for hangs in (True, False, True):
            argo.application(APP.name).next_sync(hang=hangs)
        await world.promote(onAbort="revert")
        await world.until(partial(_waits_for_hook, world, "/1"))
        await asyncio.sleep(1)
        await world.write({"operation": ALICE, "status": {"operationState": None}})
        await world.until(partial(_waits_for_hook, world, "/2"))
        await world.abort()
        assert await world.ended() == "Aborted"

    assert world.app()["spec"]["source"]["targetRevision"] == "main"
    assert "put back: /spec/source/targetRevision" in world.message()


async def test_time_out_between_two_attempts() -> None:
    """An attempt that has ended keeps its end, though the step's time is over while it waits for the next one."""
    async with universe() as (world, argo), world.process():
        argo.repository("https://git.example.com/shop").commit("b" * 40, branch="main")
        source = {"repoURL": "https://git.example.com/shop", "desiredRevision": "a" * 40}
        await world.promote(retry={"timeout": "3s"}, apps=[{"name": APP.name, "sources": [source]}])
        assert await world.ended() == "Failed"

    assert [operation["state"] for operation in world.operations()] == ["WrongRevision"]
    assert "timed out after 3s" in world.message()


async def test_time_of_others_does_not_count() -> None:
    """While somebody else's operation holds the Application, the time of ours does not run."""
    async with universe() as (world, argo), world.process():
        argo.application(APP.name).next_sync(hang=True)
        await meddle(world, "start")
        await asyncio.sleep(1)
        await world.promote(retry={"timeout": "1m"})
        await asyncio.sleep(600)
        assert world.phase() == "Running"
        assert "alice" in world.promotion()["status"]["stepExecutionMetadata"][0]["message"]
        argo.application(APP.name).finish_hook()
        assert await world.ended() == "Succeeded"


async def test_time_out_and_termination() -> None:
    """With onTimeout: terminate the sync that hangs is ended first; by default it is left, and the next one waits."""
    async with universe() as (world, argo), world.process():
        argo.application(APP.name).next_sync(hang=True)
        await world.promote(retry={"timeout": "1m"}, onTimeout="terminate")
        assert await world.ended() == "Failed"
        assert world.at_rest()
        argo.application(APP.name).next_sync(hang=True)
        await world.promote("p2", retry={"timeout": "1m"})
        assert await world.ended("p2") == "Failed"
        assert not world.at_rest()
        await world.promote("p3")
        await asyncio.sleep(100)
        assert world.phase("p3") == "Running"
        argo.application(APP.name).finish_hook()
        assert await world.ended("p3") == "Succeeded"

    assert "timed out after 1m0s; Argo CD Application" in world.message()
    assert world.operations()[0]["state"] == "Stopped"
    assert world.operations("p2")[0]["state"] == "Detached"


async def test_abort_that_a_sync_window_holds_up() -> None:
    """Terminating waits for the window; the Promotion says so, and is Aborted when it opens."""
    async with universe() as (world, argo), world.process():
        argo.project("default").deny()
        await world.promote()
        await world.until(lambda: "blocked by sync window" in json.dumps(world.app().get("status", {})))
        await world.abort()
        await asyncio.sleep(60)
        assert world.phase() == "Running"
        assert "is being terminated" in world.promotion()["status"]["stepExecutionMetadata"][-1]["message"]
        argo.project("default").allow()
        assert await world.ended() == "Aborted"

    assert world.at_rest()
    assert world.operations()[0]["state"] == "Stopped"


async def test_an_end_that_nobody_carries_out() -> None:
    """The time was up, and the sync is to be ended: after ten minutes, and not at some later look, it is left."""
    async with universe() as (world, argo), world.process():
        argo.application(APP.name).next_sync(hang=True)
        await world.promote(retry={"timeout": "1m7s"}, onTimeout="terminate")
        await world.until(lambda: "waiting for" in json.dumps(world.app().get("status", {})))
        await argo.stop()
        await world.until(lambda: "stoppingSince" in json.dumps(world.promotion()))
        before = asyncio.get_running_loop().time()
        assert await world.ended() == "Failed"
        waited = asyncio.get_running_loop().time() - before

    assert 598 <= waited < 602
    assert "it was left as it is" in world.message()


async def test_abort_that_nobody_carries_out() -> None:
    """After ten minutes, and not at some later look, the Promotion is Aborted and says what it left."""
    async with universe() as (world, argo), world.process():
        argo.application(APP.name).next_sync(hang=True)
        await world.promote()
        await world.until(lambda: "waiting for" in json.dumps(world.app().get("status", {})))
        await argo.stop()
        await world.abort()
        before = asyncio.get_running_loop().time()
        assert await world.ended() == "Aborted"
        waited = asyncio.get_running_loop().time() - before

    assert 599 <= waited < 601  # its beginning is on record to the second
    assert "it was left as it is" in world.message()
    app = await world.user.get(APPLICATIONS, APP, codec=JSON)
    assert "operation" in app
