"""A sync that failed is an error that is counted: a new attempt follows while the step's threshold allows it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kargo_py.argocd.application import APPLICATIONS
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.resources import Key
from kargo_py.local.argocd.simulator import ArgoCD
from kargo_py.steps.argocd_wait import USES as WAIT
from tests.protocol.universe import APP, REPO, SHA, Universe, universe

pytestmark = pytest.mark.looptime

JsonObject = dict[str, Any]


def apps(*names: str) -> list[JsonObject]:
    source = {"repoURL": REPO, "desiredRevision": SHA, "updateTargetRevision": True}
    return [{"name": name, "sources": [source]} for name in names]


def tries(world: Universe, name: str = APP.name) -> list[tuple[int, str]]:
    """The attempts on an Application that are on record, with their ends."""
    return [(each["attempt"], each["state"]) for each in world.operations() if each["name"] == name]


def metadata(world: Universe) -> JsonObject:
    found: JsonObject = world.promotion()["status"]["stepExecutionMetadata"][0]
    return found


def errors(world: Universe) -> int:
    return int((world.promotion().get("status", {}).get("stepExecutionMetadata") or [{}])[0].get("errorCount", 0))


async def breaks(world: Universe, argo: ArgoCD, times: int, app: str = APP.name) -> None:
    """Have the next syncs of an Application fail, each once it has been counted."""
    for number in range(times):
        argo.application(app).next_sync(fail="boom")
        await world.until(lambda seen=number: errors(world) > seen)  # type: ignore[misc]


async def test_again_until_it_succeeds() -> None:
    """Each attempt has its own stamp and its own record; the step succeeds with the last one."""
    async with universe() as (world, argo), world.process():
        await world.promote(retry={"errorThreshold": 3})
        await breaks(world, argo, 2)
        assert "boom" in metadata(world)["message"]
        assert await world.ended() == "Succeeded"

    assert tries(world) == [(1, "Failed"), (2, "Failed"), (3, "Succeeded")]
    assert len(world.starts()) == len(set(world.starts())) == 3
    assert [phase for _, phase in world.runs()] == ["Failed", "Failed", "Succeeded"]


@pytest.mark.parametrize("threshold", [None, 1, 3])
async def test_no_more_often_than_that(threshold: int | None) -> None:
    """After as many errors in a row as the threshold says, one by default, the step is Failed with what was said."""
    async with universe() as (world, argo), world.process():
        argo.application(APP.name).next_sync(fail="boom")
        retry = {"errorThreshold": threshold} if threshold else None
        await world.promote(retry=retry)
        if threshold:
            await breaks(world, argo, threshold - 1)
            argo.application(APP.name).next_sync(fail="boom")
        assert await world.ended() == "Failed"
        await asyncio.sleep(600)

    assert [number for number, _ in tries(world)] == list(range(1, (threshold or 1) + 1))
    assert {state for _, state in tries(world)} == {"Failed"}
    assert len(world.starts()) == (threshold or 1)
    assert "boom" in world.message()


async def test_only_what_failed() -> None:
    """What has succeeded stays as it is; of several that failed each gets its new attempt."""
    async with universe() as (world, argo), world.process():
        for name in ("b", "c"):
            await world.create_application(name)
        for name in (APP.name, "c"):
            argo.application(name).next_sync(fail="boom")
        await world.promote(apps=apps(APP.name, "b", "c"), retry={"errorThreshold": 2})
        assert await world.ended() == "Succeeded"

    assert [tries(world, name) for name in (APP.name, "b", "c")] == [
        [(1, "Failed"), (2, "Succeeded")],
        [(1, "Succeeded")],
        [(1, "Failed"), (2, "Succeeded")],
    ]
    assert len(world.starts()) == 5


async def test_restart_between_attempts() -> None:
    """What has been counted is on record with the end: the next process makes the new attempt, once."""
    async with universe() as (world, argo):
        async with world.process() as first:
            argo.application(APP.name).next_sync(fail="boom")
            await world.promote(retry={"errorThreshold": 2})
            await world.until(lambda: errors(world) == 1)
            await first.kill()
        async with world.process():
            assert await world.ended() == "Succeeded"

    assert tries(world) == [(1, "Failed"), (2, "Succeeded")]
    assert len(world.starts()) == 2


@pytest.mark.parametrize("number", range(2, 9))
@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_at_each_write(number: int, when: str) -> None:
    """Whenever it dies, no attempt is started twice, none is skipped, and the end is the same."""
    async with universe() as (world, argo):
        argo.application(APP.name).next_sync(fail="boom")
        async with world.process() as first:
            first.line.last_write = (number, when)
            await world.promote(retry={"errorThreshold": 2})
            ended = asyncio.ensure_future(world.ended())
            died = asyncio.ensure_future(first.line.died.wait())
            await asyncio.wait([ended, died], return_when=asyncio.FIRST_COMPLETED)
            died.cancel()
            await first.kill()
        async with world.process():
            assert await ended == "Succeeded"

    assert tries(world) == [(1, "Failed"), (2, "Succeeded")]
    assert len(world.starts()) == len(set(world.starts())) == 2
    assert [phase for _, phase in world.runs()] == ["Failed", "Succeeded"]


async def test_abort_between_attempts() -> None:
    """After an abort there is no new attempt."""
    async with universe() as (world, argo), world.process():
        argo.application(APP.name).next_sync(fail="boom")
        await world.promote(retry={"errorThreshold": 5})
        await world.until(lambda: errors(world) == 1)
        await world.abort()
        assert await world.ended() == "Aborted"
        await asyncio.sleep(600)

    assert tries(world) == [(1, "Failed")]
    assert len(world.starts()) == 1


async def test_abort_of_a_later_attempt() -> None:
    """It is terminated as a first one is, and the records tell of both."""
    async with universe() as (world, argo), world.process():
        argo.application(APP.name).next_sync(fail="boom")
        await world.promote(retry={"errorThreshold": 2})
        await world.until(lambda: errors(world) == 1)
        argo.application(APP.name).next_sync(hang=True)
        await world.until(lambda: len(world.starts()) == 2)
        await asyncio.sleep(5)
        await world.abort()
        assert await world.ended() == "Aborted"
        assert world.at_rest()

    assert tries(world) == [(1, "Failed"), (2, "Stopped")]


async def test_others_between_attempts() -> None:
    """Somebody else's operation is waited for, not overwritten, before the new attempt; that is no error."""
    async with universe() as (world, argo), world.process():
        argo.application(APP.name).next_sync(fail="boom")
        await world.promote(retry={"errorThreshold": 2, "timeout": "1h"})
        await world.until(lambda: errors(world) == 1)
        argo.application(APP.name).next_sync(hang=True)
        alice = {"initiatedBy": {"username": "alice"}, "sync": {}}
        await world.write({"operation": alice, "status": {"operationState": None}})
        await asyncio.sleep(300)
        assert len(world.starts()) == 1
        assert "alice" in metadata(world)["message"]
        argo.application(APP.name).finish_hook()
        assert await world.ended() == "Succeeded"

    assert tries(world) == [(1, "Failed"), (2, "Succeeded")]
    assert [phase for _, phase in world.runs()] == ["Failed", "Succeeded", "Succeeded"]


async def test_the_time_is_that_of_all_attempts() -> None:
    """A time-out ends the step, however many errors it might still have; no attempt is begun after it."""
    async with universe() as (world, argo), world.process():
        argo.application(APP.name).next_sync(fail="boom")
        await world.promote(retry={"errorThreshold": 100, "timeout": "1m"})
        await world.until(lambda: errors(world) == 1)
        argo.application(APP.name).next_sync(hang=True)
        assert await world.ended(seconds=70) == "Failed"
        await asyncio.sleep(600)

    assert "timed out after 1m0s" in world.message()
    assert tries(world)[-1][1] == "Detached"
    assert len(world.starts()) == 2


async def test_failing_until_the_time_is_up() -> None:
    """It ends in time, also while it pauses between two attempts."""
    async with universe() as (world, argo), world.process():
        began = asyncio.get_running_loop().time()
        await world.promote(retry={"errorThreshold": 1000, "timeout": "5m"})

        breaking = asyncio.create_task(breaks(world, argo, 1000))
        assert await world.ended() == "Failed"
        took = asyncio.get_running_loop().time() - began
        breaking.cancel()

    assert 290 < took < 310
    assert "timed out after 5m0s" in world.message()
    assert "boom" in world.message()
    assert {state for _, state in tries(world)} == {"Failed"}


async def test_all_again_after_a_partial_failure() -> None:
    """With onPartialFailure: terminate the others are ended, and then tried again with the one that failed."""
    async with universe() as (world, argo), world.process():
        await world.create_application("b")
        argo.application(APP.name).next_sync(fail="boom")
        argo.application("b").next_sync(hang=True)
        await world.promote(apps=apps(APP.name, "b"), retry={"errorThreshold": 2}, onPartialFailure="terminate")
        assert await world.ended() == "Succeeded"

    assert tries(world) == [(1, "Failed"), (2, "Succeeded")]
    assert tries(world, "b") == [(1, "Stopped"), (2, "Succeeded")]


async def test_a_partial_failure_twice() -> None:
    """The second time is the last one, and what was ended then is not tried again."""
    async with universe() as (world, argo), world.process():
        await world.create_application("b")
        argo.application(APP.name).next_sync(fail="boom")
        argo.application("b").next_sync(hang=True)
        await world.promote(apps=apps(APP.name, "b"), retry={"errorThreshold": 2}, onPartialFailure="terminate")
        await world.until(lambda: errors(world) == 1)
        argo.application(APP.name).next_sync(fail="boom")
        argo.application("b").next_sync(hang=True)
        assert await world.ended() == "Failed"
        await asyncio.sleep(600)

    assert tries(world) == [(1, "Failed"), (2, "Failed")]
    assert tries(world, "b") == [(1, "Stopped"), (2, "Stopped")]
    assert "so the others are ended" in world.message()


async def test_a_terminated_time_out_is_final() -> None:
    """With onTimeout: terminate the sync is ended, and no other follows."""
    async with universe() as (world, argo), world.process():
        argo.application(APP.name).next_sync(hang=True)
        await world.promote(retry={"errorThreshold": 5, "timeout": "1m"}, onTimeout="terminate")
        assert await world.ended() == "Failed"
        await asyncio.sleep(600)
        assert world.at_rest()

    assert tries(world) == [(1, "Stopped")]


async def test_an_application_that_is_yet_to_come() -> None:
    """That there is none is an error that is counted, too: made meanwhile, it is synced."""
    async with universe() as (world, _), world.process():
        await world.promote(apps=apps("late"), retry={"errorThreshold": 10})
        await world.until(lambda: errors(world) == 2)
        await world.create_application("late")
        assert await world.ended() == "Succeeded"

    assert tries(world, "late") == [(1, "Succeeded")]


async def test_an_application_that_never_comes() -> None:
    """The step ends when its time is up, with the reason."""
    async with universe() as (world, _), world.process():
        began = asyncio.get_running_loop().time()
        await world.promote(apps=apps("late"), retry={"errorThreshold": 1000, "timeout": "2m"})
        assert await world.ended() == "Errored"
        took = asyncio.get_running_loop().time() - began

    assert took < 130
    assert "does not exist" in world.message()


async def test_what_cannot_come_true_is_final() -> None:
    """Entries that contradict each other do so the next time, too."""
    one, other = apps(APP.name, APP.name)
    selector = {"matchLabels": {"a": "b"}}
    config = [{**one, "name": "", "selector": selector, "prune": True}, {**other, "prune": False}]
    async with universe() as (world, _), world.process():
        await world.user.patch(APPLICATIONS, Key(*APP), encode({"metadata": {"labels": {"a": "b"}}}), codec=JSON)
        await world.promote(apps=config, retry={"errorThreshold": 1000})
        assert await world.ended(seconds=10) == "Errored"

    assert "contradict each other" in world.message()


async def test_waiting_again() -> None:
    """argocd-wait counts what it waits for as failed once, looks anew, and ends well when that comes true."""
    async with universe() as (world, argo), world.process():
        wait = {"uses": WAIT, "as": "wait", "config": {"apps": [{"name": APP.name}]}, "retry": {"errorThreshold": 3}}
        argo.application(APP.name).next_sync(fail="boom")
        await world.run(wait)
        await asyncio.sleep(5)
        await world.write({"operation": {"initiatedBy": {"username": "alice"}, "sync": {}}})
        await world.until(lambda: errors(world) == 1)
        await asyncio.sleep(20)
        await world.write({"operation": {"initiatedBy": {"username": "alice"}, "sync": {}}})
        assert await world.ended() == "Succeeded"
