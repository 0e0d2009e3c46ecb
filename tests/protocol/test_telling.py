"""What operators see of Promotions: Events, conditions, refreshes, and what was left running; across crashes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from kargo_py.api.names import EVENT_PREFIX
from kargo_py.argocd.application import mark_of
from kargo_py.controllers.telling import RECENT
from kargo_py.controllers.world import FREIGHTS, PROMOTIONS, STAGES
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.errors import Forbidden, KubeError, OutcomeUnknown
from kargo_py.kube.resources import Key, Resource
from tests.protocol.universe import APP, PROJECT, REPO, SHA, Universe, universe

pytestmark = pytest.mark.looptime

ENDED = ["PromotionSucceeded", "FreightVerificationSucceeded"]


def told(world: Universe, reason: str) -> list[dict[str, Any]]:
    return [event for event in world.events() if event["reason"] == reason]


def conditions(world: Universe, name: str = "p1") -> dict[str, tuple[str, str]]:
    found = world.promotion(name).get("status", {}).get("conditions", [])
    return {c["type"]: (c["status"], c["reason"]) for c in found}


async def annotate(world: Universe, key: str, value: str, name: str = "p1") -> None:
    body = encode({"metadata": {"annotations": {key: value}}})
    await world.user.patch(PROMOTIONS, Key(PROJECT, name), body, codec=JSON)


async def test_events_of_a_promotion() -> None:
    """Two Events, with all that Kargo's consumers look for, and no request but these two for them."""
    async with universe() as (world, _), world.process() as process:
        body = {"alias": "happy-hippo", "metadata": {"labels": {"kargo.akuity.io/alias": "happy-hippo"}}}
        await world.user.patch(FREIGHTS, Key(PROJECT, "f1"), encode(body), codec=JSON)
        await world.promote()
        await annotate(world, "kargo.akuity.io/create-actor", "email:ann@example.com")
        await annotate(world, "kargo.akuity.io/rollback", "true")
        assert await world.ended() == "Succeeded"
        await asyncio.sleep(600)

        assert process.line.creates == ENDED
        (event,) = told(world, "PromotionSucceeded")
        promotion = world.promotion()
        freight = await world.user.get(FREIGHTS, Key(PROJECT, "f1"), codec=JSON)
    assert (event["type"], event["message"]) == ("Normal", "Promotion Succeeded")
    assert {name.removeprefix(EVENT_PREFIX): text for name, text in event["metadata"]["annotations"].items()} == {
        "actor": "email:ann@example.com",
        "project": PROJECT,
        "promotion-name": "p1",
        "promotion-create-time": promotion["metadata"]["creationTimestamp"],
        "stage-name": "dev",
        "freight-name": "f1",
        "freight-alias": "happy-hippo",
        "freight-create-time": freight["metadata"]["creationTimestamp"],
        "freight-warehouse-name": "wh",
        "freight-commits": json.dumps([{"repoURL": REPO, "id": SHA}], separators=(",", ":")),
        "applications": '[{"Namespace":"argocd","Name":"shop-dev"}]',
        "verification-pending": "false",
        "rollback": "true",
    }


async def test_conditions() -> None:
    """For kubectl wait: Finished and Succeeded change when the phase does, within the writes that are made anyway."""
    async with universe() as (world, argo), world.process() as process:
        argo.application(APP.name).next_sync(hang=True)
        await world.promote()
        await world.until(lambda: world.phase() == "Running")
        running = world.promotion()["status"]
        assert conditions(world) == {"Finished": ("False", "Running"), "Succeeded": ("Unknown", "Running")}
        assert running["admittedAt"] == running["startedAt"]
        await asyncio.sleep(100)
        await world.abort()
        assert await world.ended() == "Aborted"
        ended = world.promotion()["status"]
        assert conditions(world) == {"Finished": ("True", "Aborted"), "Succeeded": ("False", "Aborted")}
        for condition in ended["conditions"]:
            assert condition["lastTransitionTime"] == ended["finishedAt"] != running["startedAt"]
            assert condition["message"] == ended["message"]
        writes = [key for where, key, _ in process.line.writes if where == "promotions/status"]

    # Running with its intent, that a hook is waited for, the abort, and the end.
    assert len(writes) == 4


@pytest.mark.parametrize("again", [1, 3], ids=["one restart", "three restarts"])
async def test_an_event_that_a_crash_prevented(again: int) -> None:
    """The next process tells it, whole; however often it is looked at, it is there once."""
    async with universe() as (world, _):
        async with world.process() as process:
            await world.promote()
            await world.ended()
            await process.kill()
        assert told(world, "PromotionSucceeded") == []
        for _ in range(again):
            async with world.process():
                await asyncio.sleep(20)
        (event,) = told(world, "PromotionSucceeded")

    assert (
        event["metadata"]["annotations"][f"{EVENT_PREFIX}applications"] == '[{"Namespace":"argocd","Name":"shop-dev"}]'
    )
    assert event["metadata"]["annotations"][f"{EVENT_PREFIX}freight-name"] == "f1"


async def test_an_end_whose_answer_was_lost() -> None:
    """The API server goes away with the answer to the last write; once it is back, the end is told."""
    async with universe() as (world, _), world.process() as process:
        line, patch = process.line, process.line.patch
        await world.promote()
        assert await world.ended() == "Succeeded"
        await annotate(world, "looked", "back")
        await asyncio.sleep(60)

        async def lost(resource: Resource, key: Key, body: bytes, **options: Any) -> Any:
            answer = await patch(resource, key, body, **options)
            if resource == PROMOTIONS and b'"phase":"Succeeded"' in body and not line.away:
                line.away = True
                raise OutcomeUnknown("connection reset")
            return answer

        line.patch = lost  # type: ignore[method-assign]
        await world.promote("p2")
        assert await world.ended("p2") == "Succeeded"
        await asyncio.sleep(300)
        assert [event["involvedObject"]["name"] for event in told(world, "PromotionSucceeded")] == ["p1"]
        line.patch, line.away = patch, False  # type: ignore[method-assign]
        await asyncio.sleep(300)
        assert [event["involvedObject"]["name"] for event in told(world, "PromotionSucceeded")] == ["p1", "p2"]


async def test_what_ended_long_ago_is_no_news() -> None:
    """An end of before the last ten minutes is not told any more, and costs no request."""
    async with universe() as (world, _):
        async with world.process() as process:
            await world.promote()
            await world.ended()
            await process.kill()
        await asyncio.sleep(RECENT.total_seconds())
        async with world.process() as process:
            await asyncio.sleep(20)
            assert "PromotionSucceeded" not in process.line.creates
            assert ("Promotion", Key(PROJECT, "p1")) not in process.line.gets


async def test_a_look_at_what_has_ended_costs_nothing() -> None:
    """An annotation on a Promotion that has ended brings no request."""
    async with universe() as (world, _), world.process() as process:
        await world.promote()
        await world.ended()
        await asyncio.sleep(10)
        before = list(process.line.creates), list(process.line.gets)
        await annotate(world, "example.com/note", "well done")
        await asyncio.sleep(10)

        assert (process.line.creates, process.line.gets) == before


@pytest.mark.parametrize(
    "error",
    [None, Forbidden(403, "Forbidden", "events is forbidden"), OutcomeUnknown("no answer", request="create events")],
    ids=["never answers", "forbidden", "outcome unknown"],
)
async def test_events_that_cannot_be_written(error: KubeError | None, logged: list[Any]) -> None:
    """Whatever becomes of Events, Promotions go on at their pace."""
    never = asyncio.Event()

    async def fail() -> None:
        if error is not None:
            raise error
        await never.wait()

    async with universe() as (world, _), world.process() as process:
        process.line.before_create = fail
        loop = asyncio.get_running_loop()
        began = loop.time()
        for name in ("p1", "p2", "p3"):
            await world.promote(name)
            assert await world.ended(name, seconds=20) == "Succeeded"
        took = loop.time() - began
        never.set()
        process.line.before_create = None

    assert took < 40
    lost = {e["event_name"] for e in logged if e["event"] == "event not written"}
    assert bool(lost) == isinstance(error, Forbidden)


async def test_created() -> None:
    """Only where it is asked for, once, also across a restart."""
    async with universe() as (world, argo):
        argo.application(APP.name).next_sync(hang=True)
        async with world.process(created_events=True):
            await world.promote()
            await world.until(lambda: world.phase() == "Running")
            await asyncio.sleep(5)
            await world.promote("p2")
            await asyncio.sleep(5)
            await annotate(world, "example.com/note", "again", "p2")
            await asyncio.sleep(5)
        async with world.process(created_events=True):
            await asyncio.sleep(5)
        messages = [event["message"] for event in told(world, "PromotionCreated")]

    assert messages == ['Promotion created for Stage "dev" by "controller:promotion-controller"'] * 2


async def test_events_about_operations() -> None:
    """Requested, picked up, what holds it up, terminated: each once, and only where that is asked for."""
    async with universe() as (world, argo), world.process(operation_events=True):
        argo.application(APP.name).next_sync(hang=True)
        await world.promote()
        await world.until(lambda: world.phase() == "Running")
        await asyncio.sleep(120)
        await world.abort()
        await world.ended()
        await asyncio.sleep(5)
        found = [event["reason"] for event in world.events() if event["reason"].startswith("Operation")]

    assert sorted(found) == ["OperationPickedUp", "OperationRequested", "OperationTerminated", "OperationWaiting"]


async def test_a_stage_that_is_not_there() -> None:
    """The Promotion says so, by one write; it begins by itself when the Stage comes, and says it no more."""
    async with universe() as (world, _):
        stage = await world.user.get(STAGES, Key(PROJECT, "dev"), codec=JSON)
        await world.user.delete(STAGES, Key(PROJECT, "dev"))
        async with world.process() as process:
            await world.promote()
            await asyncio.sleep(60)
            assert world.phase() == "Pending"
            assert 'Stage "dev" does not exist' in world.message()
            assert conditions(world)["Finished"] == ("False", "StageNotFound")
            assert len(told(world, "StageNotFound")) == 1
            await annotate(world, "example.com/note", "still there?")
            await asyncio.sleep(60)
            assert len([where for where, _, _ in process.line.writes if where == "promotions/status"]) == 1
            again = {part: stage[part] for part in ("apiVersion", "kind", "spec")} | {"metadata": {"name": "dev"}}
            await world.user.create(STAGES, PROJECT, encode(again), codec=JSON)
            assert await world.ended() == "Succeeded"

    assert world.message() == ""
    assert conditions(world) == {"Finished": ("True", "Succeeded"), "Succeeded": ("True", "Succeeded")}


async def test_a_stage_that_comes_but_is_busy() -> None:
    """A Promotion that was held up and has to queue now does not go on saying that the Stage is not there."""
    async with universe() as (world, argo):
        stage = await world.user.get(STAGES, Key(PROJECT, "dev"), codec=JSON)
        await world.user.delete(STAGES, Key(PROJECT, "dev"))
        async with world.process():
            await world.promote("p1")
            await world.promote("p2")
            await world.until(lambda: world.promotion("p2").get("status", {}).get("message"))
            argo.application(APP.name).next_sync(hang=True)
            again = {part: stage[part] for part in ("apiVersion", "kind", "spec")} | {"metadata": {"name": "dev"}}
            await world.user.create(STAGES, PROJECT, encode(again), codec=JSON)
            await world.until(lambda: world.phase("p1") == "Running")
            await asyncio.sleep(5)

        assert (world.phase("p2"), world.message("p2")) == ("Pending", "")
        assert conditions(world, "p2")["Finished"] == ("False", "Pending")


async def test_refresh() -> None:
    """What asks for a refresh has the Applications read anew, and is acknowledged, whether it runs or queues."""
    async with universe() as (world, argo), world.process() as process:
        argo.application(APP.name).next_sync(hang=True)
        await world.promote("p1")
        await world.until(lambda: world.phase("p1") == "Running")
        await world.promote("p2")
        await asyncio.sleep(10)
        process.line.gets.clear()
        for name in ("p1", "p2"):
            await annotate(world, "kargo.akuity.io/refresh", "2026-11-30T12:00:00Z", name)
        await asyncio.sleep(10)

        for name in ("p1", "p2"):
            assert world.promotion(name)["status"]["lastHandledRefresh"] == "2026-11-30T12:00:00Z"
        assert ("Application", APP) in process.line.gets
        before = len(process.line.writes)
        await asyncio.sleep(120)
        assert len(process.line.writes) == before


async def test_a_refresh_of_any_size() -> None:
    """Of a token that is none the beginning counts, so that no status grows by it."""
    async with universe() as (world, argo), world.process():
        argo.application(APP.name).next_sync(hang=True)
        await world.promote()
        await world.until(lambda: world.phase() == "Running")
        await annotate(world, "kargo.akuity.io/refresh", "x" * 200_000)
        await asyncio.sleep(10)

        assert world.promotion()["status"]["lastHandledRefresh"] == "x" * 1024


@pytest.mark.parametrize("restarted", [False, True])
async def test_left_running_by_force(restarted: bool) -> None:
    """As long as the Promotion is there what it left is left alone; once it is deleted its operation is ended.

    By the process that saw all of it as well as by one that came later.
    """
    async with universe() as (world, argo):
        argo.application(APP.name).next_sync(hang=True)
        async with world.process() as process:
            await world.promote()
            await world.until(lambda: "waiting for" in json.dumps(world.app().get("status", {})))
            process.line.fault = _no_termination
            await world.abort(value='{"action": "terminate", "force": true}')
            assert await world.ended() == "Aborted"
            process.line.fault = lambda _key, _body: None
            assert [operation["state"] for operation in world.operations()] == ["Detached"]
            if restarted:
                await process.kill()
            else:
                await _left_alone_then_swept(world)
        if restarted:
            async with world.process():
                await _left_alone_then_swept(world)


def _no_termination(_key: Key, body: Any) -> Exception | None:
    return Forbidden(403, "Forbidden", "not allowed") if "Terminating" in json.dumps(body) else None


async def _left_alone_then_swept(world: Universe) -> None:
    await asyncio.sleep(300)
    assert world.app()["status"]["operationState"]["phase"] == "Running"
    assert mark_of(world.app()["operation"]) is not None
    await world.delete()
    await asyncio.sleep(60)
    assert world.at_rest()
    assert told(world, "OrphanTerminated")


async def test_what_is_counted() -> None:
    """Promotions started and finished, how long they ran and waited and why, and what became of their operations."""
    async with universe() as (world, argo), world.process() as process:
        stats = process.world.stats
        argo.application(APP.name).next_sync(hang=True)
        await world.promote("p1")
        await world.until(lambda: world.phase("p1") == "Running")
        await world.promote("p2")
        await asyncio.sleep(100)
        during = stats.queues(process.world.acts_on)
        oldest = stats.oldest(process.world.acts_on)
        await world.abort("p1")
        await world.ended("p1")
        assert await world.ended("p2") == "Succeeded"
        await asyncio.sleep(10)

        assert during == [(Key(PROJECT, "dev"), 1)]
        assert (round(oldest["queue"], -1), round(oldest["held-up"], -1)) == (100, 100)
        assert (stats.started, dict(stats.finished)) == (2, {"Aborted": 1, "Succeeded": 1})
        assert stats.seconds["Aborted"].total == pytest.approx(100, abs=5)
        waited = stats.waited()
        assert waited["queue"] == pytest.approx(100, abs=5)
        assert waited["held-up"] == pytest.approx(100, abs=5)
        assert dict(stats.operations) == {"Stopped": 1, "Succeeded": 1}
        assert (process.argocd.stats.starts, process.argocd.stats.terminates) == (2, 1)
        assert stats.queues(process.world.acts_on) == []
        assert stats.oldest(process.world.acts_on) == {}
