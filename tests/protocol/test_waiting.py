"""The step argocd-wait with real controllers and a simulated Argo CD: what ends it, what wakes it, what survives."""

from __future__ import annotations

import asyncio
import json
from itertools import count
from typing import Any

import pytest

from kargo_py.api.stamp import STATE_KEY
from kargo_py.argocd.application import APPLICATIONS, REFRESH
from kargo_py.controllers.world import PROMOTIONS
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.errors import Forbidden
from kargo_py.kube.resources import Key, Resource
from kargo_py.local.apiserver.store import Event
from kargo_py.local.argocd.timing import Version
from tests.protocol.universe import APP, PROJECT, REPO, SHA, Universe, universe

pytestmark = pytest.mark.looptime

JsonObject = dict[str, Any]
HOOK = "waiting for completion of hook"


def update(*names: str, **options: Any) -> JsonObject:
    source = {"repoURL": REPO, "desiredRevision": SHA, "updateTargetRevision": True}
    apps = [{"name": name, "sources": [source]} for name in names or [APP.name]]
    return {"uses": "argocd-update", "as": "sync", "config": {"apps": apps}, "retry": {"timeout": "1h"}, **options}


def wait(*entries: JsonObject, timeout: str = "1h") -> JsonObject:
    config = {"apps": list(entries) or [{"name": APP.name}]}
    return {"uses": "argocd-wait", "as": "wait", "config": config, "retry": {"timeout": timeout}}


def asked(world: Universe, *, since: int = 0) -> list[str]:
    """The Applications that Argo CD was asked to look at, beside starts."""
    return [
        key.name
        for line in world.lines
        for key, body in line.patches[since:]
        if isinstance(body, dict) and "operation" not in body and REFRESH in body["metadata"]["annotations"]
    ]


def step(world: Universe, index: int = 0, name: str = "p1") -> JsonObject:
    found: JsonObject = world.promotion(name)["status"]["stepExecutionMetadata"][index]
    return found


def records(world: Universe, alias: str = "wait") -> list[JsonObject]:
    state = world.promotion().get("status", {}).get("state") or {}
    return [record for record in state.get(STATE_KEY) or [] if record["step"] == alias]


def health(world: Universe, name: str = APP.name) -> str:
    return str((world.app(name).get("status") or {}).get("health", {}).get("status"))


async def settle(world: Universe, name: str = APP.name) -> None:
    """Let the Application be synced and judged."""
    await world.user.patch(APPLICATIONS, Key("argocd", name), encode({"operation": {"sync": {}}}), codec=JSON)
    await world.until(lambda: "operation" not in world.app(name) and "reconciledAt" in world.app(name)["status"])
    await asyncio.sleep(5)


@pytest.mark.parametrize("version", list(Version))
async def test_all_is_well(version: Version) -> None:
    """Argo CD is asked once, by a guarded write; then it is judged, and the output is Kargo's."""
    async with universe(version) as (world, _), world.process():
        await settle(world)
        await world.run(wait())
        assert await world.ended() == "Succeeded"

    assert asked(world) == [APP.name]
    ((_, body),) = world.lines[0].patches
    assert body["metadata"]["annotations"] == {REFRESH: "hard"}
    status = world.promotion()["status"]
    assert status["state"]["wait"] == {
        "apps": [{"name": APP.name, "namespace": "argocd"}],
        "healthStatus": {f"argocd/{APP.name}": "Healthy"},
    }
    assert "healthChecks" not in status
    assert [operation["state"] for operation in world.operations()] == ["Succeeded"]


async def test_the_writes_of_a_quick_wait() -> None:
    """The intent and the end: the same two writes that a step with nothing to wait for takes."""
    async with universe() as (world, _), world.process():
        written: list[str] = []

        def saw(event: Event) -> None:
            if event.collection.plural == "promotions":
                written.append(event.stored.obj.get("status", {}).get("phase", ""))

        world.core.store.observers.append(saw)
        await settle(world)
        await world.run(wait())
        assert await world.ended() == "Succeeded"

    assert written == ["Pending", "Running", "Succeeded"]


@pytest.mark.parametrize("version", list(Version))
async def test_after_an_update_with_a_slow_rollout(version: Version) -> None:
    """The update ends with its sync, the wait when the Application is healthy, a moment after that."""
    async with universe(version) as (world, argo), world.process():
        argo.application(APP.name).health("Progressing")
        await world.run(update(), wait())
        await world.until(lambda: records(world) and step(world, 1).get("message"))
        assert "health is Progressing, waiting for Healthy" in step(world, 1)["message"]
        await asyncio.sleep(300)
        assert world.phase() == "Running"
        argo.application(APP.name).health("Healthy")
        assert await world.ended(seconds=3) == "Succeeded"

    assert [check["uses"] for check in world.promotion()["status"]["healthChecks"]] == ["argocd-update"]
    assert asked(world) == [APP.name]


async def test_after_an_update_with_a_slow_hook() -> None:
    """The hook is the update's to wait for; the wait begins after it."""
    async with universe() as (world, argo), world.process():
        argo.application(APP.name).next_sync(hang=True)
        await world.run(update(), wait())
        await world.until(lambda: HOOK in json.dumps(world.app().get("status", {})))
        await asyncio.sleep(60)
        assert records(world) == []
        argo.application(APP.name).finish_hook()
        assert await world.ended(seconds=30) == "Succeeded"


async def test_an_operation_of_somebody_else() -> None:
    """It is waited for, its hook named; Synced and Healthy while it runs are not enough."""
    async with universe() as (world, argo), world.process():
        argo.application(APP.name).next_sync(hang=True)
        await world.write({"operation": {"initiatedBy": {"username": "alice"}, "sync": {}}})
        await world.until(lambda: HOOK in json.dumps(world.app().get("status", {})))
        await world.run(wait())
        await asyncio.sleep(60)
        assert (health(world), world.app()["status"]["sync"]["status"]) == ("Healthy", "Synced")
        assert world.phase() == "Running"
        assert f"the operation started by alice: {HOOK}" in step(world)["message"]
        argo.application(APP.name).finish_hook()
        assert await world.ended(seconds=30) == "Succeeded"


async def test_an_operation_that_fails_meanwhile() -> None:
    """The step fails at once, with Argo CD's message; Kargo waits for the time-out."""
    async with universe() as (world, argo), world.process():
        await settle(world)
        argo.application(APP.name).next_sync(hang=True)
        await world.write({"operation": {"initiatedBy": {"username": "alice"}, "sync": {}}})
        await world.until(lambda: HOOK in json.dumps(world.app().get("status", {})))
        await world.run(wait())
        await asyncio.sleep(20)
        argo.application(APP.name).finish_hook(ok=False)
        assert await world.ended(seconds=10) == "Failed"

    assert "the operation started by alice failed while the step waited: one or more" in world.message()


async def test_an_operation_that_had_failed_before() -> None:
    """It counts as not synced, no more: when somebody mends it the step succeeds."""
    async with universe() as (world, argo), world.process():
        argo.application(APP.name).next_sync(fail="boom")
        await settle(world)
        await world.run(wait())
        await asyncio.sleep(60)
        assert world.phase() == "Running"
        assert "its last operation, before the step, failed: one or more" in step(world)["message"]
        await world.write({"operation": {"sync": {}}, "status": {"operationState": None}})
        assert await world.ended(seconds=10) == "Succeeded"


async def test_health_that_regresses() -> None:
    """From anything better to Degraded is an end; it is seen at once."""
    async with universe() as (world, argo), world.process():
        argo.application(APP.name).health("Progressing")
        await settle(world)
        await world.run(wait())
        await asyncio.sleep(30)
        argo.application(APP.name).health("Degraded")
        assert await world.ended(seconds=5) == "Failed"

    assert "health has regressed from Progressing to Degraded" in world.message()


async def test_health_that_was_degraded_before() -> None:
    """Degraded all the time is waited through; once it was better, Degraded again is an end, also after a restart."""
    async with universe() as (world, argo), world.process() as process:
        argo.application(APP.name).health("Degraded")
        await settle(world)
        await world.run(wait())
        await asyncio.sleep(30)
        assert world.phase() == "Running"
        argo.application(APP.name).health("Progressing")
        await asyncio.sleep(10)
        await process.kill()
        argo.application(APP.name).health("Degraded")
        await asyncio.sleep(10)
        async with world.process():
            assert await world.ended(seconds=10) == "Failed"

    assert "health has regressed from Progressing to Degraded" in world.message()


async def test_nothing_old_is_believed() -> None:
    """While Argo CD does not look, what it showed before is no success; after ten seconds the user is told."""
    async with universe() as (world, argo), world.process():
        await settle(world)
        await argo.stop()
        await world.run(wait())
        await asyncio.sleep(5)
        assert "message" not in step(world)
        await asyncio.sleep(55)
        assert "was asked to look at it and has not; is its application controller running?" in step(world)["message"]
        argo.application(APP.name).health("Progressing")
        await argo.start()
        await asyncio.sleep(60)
        assert world.phase() == "Running"
        argo.application(APP.name).health("Healthy")
        assert await world.ended(seconds=5) == "Succeeded"

    assert asked(world) == [APP.name]


async def test_a_restart_in_the_middle() -> None:
    """Argo CD is not asked again once it has looked."""
    async with universe() as (world, argo), world.process() as process:
        argo.application(APP.name).health("Progressing")
        await world.run(update(), wait())
        await world.until(lambda: any(record.get("looked") for record in records(world)))
        await asyncio.sleep(5)
        await process.kill()
        argo.application(APP.name).health("Healthy")
        await asyncio.sleep(60)
        async with world.process():
            assert await world.ended(seconds=10) == "Succeeded"

    assert asked(world) == [APP.name]


async def test_a_restart_before_argocd_has_looked() -> None:
    """Then it is not known whether what it shows is new: it is asked again."""
    async with universe() as (world, argo), world.process() as process:
        await settle(world)
        await argo.stop()
        await world.run(wait())
        await world.until(lambda: asked(world))
        await asyncio.sleep(1)
        await process.kill()
        await argo.start()
        await asyncio.sleep(60)
        async with world.process():
            assert await world.ended(seconds=10) == "Succeeded"

    assert asked(world) == [APP.name, APP.name]


async def test_who_is_woken() -> None:
    """News of health wakes who waits for it, and not who waits for an operation."""
    async with universe() as (world, argo), world.process() as process:
        argo.application(APP.name).next_sync(hang=True)
        await world.run(update(), wait())
        await world.until(lambda: HOOK in json.dumps(world.app().get("status", {})))
        await asyncio.sleep(5)
        before = process.promotions.stats.reconciles
        for number in range(20):
            argo.application(APP.name).health(["Progressing", "Healthy"][number % 2])
            await asyncio.sleep(1)
        assert process.promotions.stats.reconciles - before <= 1  # a look of each minute
        argo.application(APP.name).health("Progressing")
        argo.application(APP.name).finish_hook()
        await world.until(lambda: any(record.get("looked") for record in records(world)))
        await asyncio.sleep(5)
        before = process.promotions.stats.reconciles
        for number in range(10):
            argo.application(APP.name).health(["Suspended", "Progressing"][number % 2])
            await asyncio.sleep(2)
        assert process.promotions.stats.reconciles - before >= 10
        argo.application(APP.name).health("Healthy")
        assert await world.ended(seconds=5) == "Succeeded"


async def test_abort() -> None:
    """Nothing runs, so it ends at once; nothing is written to the Application."""
    async with universe() as (world, argo), world.process():
        argo.application(APP.name).health("Progressing")
        await settle(world)
        await world.run(wait())
        await asyncio.sleep(20)
        written = len(world.lines[0].patches)
        await world.abort()
        assert await world.ended(seconds=1) == "Aborted"

    assert len(world.lines[0].patches) == written
    assert [operation["state"] for operation in world.operations()] == ["Stopped"]


async def test_nothing_is_told_of_operations() -> None:
    """None was requested, none has ended, and the Applications of the Events are those that were acted on."""
    async with universe() as (world, argo), world.process(operation_events=True) as process:
        await world.create_application("seen", stages=None)
        await settle(world, "seen")
        argo.application("seen").health("Progressing")
        await world.run(update(), wait({"name": "seen"}))
        await world.until(lambda: records(world))
        await world.abort()
        assert await world.ended() == "Aborted"
        await asyncio.sleep(5)

        assert dict(process.world.stats.operations) == {"Succeeded": 1}
        events = world.events()
    reasons = [event["reason"] for event in events]
    assert reasons.count("OperationRequested") == 1
    assert "OperationTerminated" not in reasons
    ended = events[reasons.index("PromotionAborted")]["metadata"]["annotations"]
    assert json.loads(ended["event.kargo.akuity.io/applications"]) == [{"Namespace": "argocd", "Name": APP.name}]


async def test_time_out() -> None:
    """The step fails with what it still waited for."""
    async with universe() as (world, argo), world.process():
        argo.application(APP.name).health("Missing")
        await settle(world)
        await world.run(wait(timeout="1m"))
        assert await world.ended(seconds=65) == "Failed"

    assert 'step "wait": not so after 1m0s: Argo CD Application "shop-dev"' in world.message()
    assert "health is Missing, waiting for Healthy" in world.message()


async def test_time_out_among_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """An Application that has changed whenever it is looked at does not hold up the end."""
    async with universe() as (world, argo), world.process():
        argo.application(APP.name).health("Missing")
        await settle(world)
        looks = count(1)
        get = world.lines[0].get

        async def changed(resource: Resource, key: Key, **options: Any) -> Any:
            if resource == APPLICATIONS:
                await world.write({"status": {"health": {"status": "Missing", "message": f"look {next(looks)}"}}})
            return await get(resource, key, **options)

        monkeypatch.setattr(world.lines[0], "get", changed)
        await world.run(wait(timeout="1m"))
        assert await world.ended(seconds=65) == "Failed"

    assert "health is Missing, waiting for Healthy: look 1" in world.message()


async def test_a_look_that_was_refused_and_came_by_itself() -> None:
    """What kept us from asking is no longer told once there is nothing to ask for."""
    async with universe() as (world, argo), world.process():
        argo.application(APP.name).health("Progressing")
        await settle(world)
        await world.run(wait())
        await world.until(lambda: any(record.get("looked") for record in records(world)))
        await argo.stop()
        world.lines[0].fault = lambda _key, _body: Forbidden(403, "Forbidden", "no right to patch")
        await world.write({"spec": {"source": {"path": "elsewhere"}}})
        await asyncio.sleep(30)
        assert "no right to patch" in step(world)["message"]
        await argo.start()
        await asyncio.sleep(30)
        assert "health is Missing, waiting for Healthy" in step(world)["message"]


async def test_suspended_or_healthy() -> None:
    """Of the kinds of health one is enough."""
    async with universe() as (world, argo), world.process():
        argo.application(APP.name).health("Progressing")
        await settle(world)
        await world.run(wait({"name": APP.name, "waitFor": ["suspended", "health", "operation"]}))
        await asyncio.sleep(20)
        argo.application(APP.name).health("Suspended")
        assert await world.ended(seconds=5) == "Succeeded"


async def test_several_applications() -> None:
    """By label, without asking whether they authorise the Stage; all must be well at the same time."""
    async with universe() as (world, argo), world.process():
        for name in ("a", "b"):
            source = {"repoURL": REPO, "path": name, "targetRevision": "main"}
            await world.create_application(name, labels={"tier": "web"}, stages=None, source=source)
            await settle(world, name)
        argo.application("b").health("Progressing")
        await world.run(wait({"selector": {"matchLabels": {"tier": "web"}}}))
        await asyncio.sleep(20)
        argo.application("a").health("Progressing")
        await asyncio.sleep(5)
        argo.application("b").health("Healthy")
        await asyncio.sleep(5)
        assert world.phase() == "Running"
        argo.application("a").health("Healthy")
        assert await world.ended(seconds=5) == "Succeeded"

    assert sorted(asked(world)) == ["a", "b"]
    assert set(world.promotion()["status"]["state"]["wait"]["healthStatus"]) == {"argocd/a", "argocd/b"}


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"name": "nobody"}, 'Argo CD Application "nobody" in namespace "argocd" does not exist'),
        ({"selector": {"matchLabels": {"a": "b"}}}, 'no Argo CD Applications found matching selector "a=b"'),
    ],
)
async def test_nothing_there(entry: JsonObject, words: str) -> None:
    """What does not exist cannot be waited for, unless its creation is."""
    async with universe() as (world, _), world.process():
        await world.run(wait(entry))
        assert await world.ended() == "Errored"
        await world.run(wait({**entry, "waitForCreation": "1m"}), name="p2")
        assert await world.ended("p2", seconds=70) == "Errored"

    assert words in world.message()
    assert words in world.message("p2")


async def test_wait_for_creation() -> None:
    """The Application's creation wakes the step; its time counts from then."""
    async with universe() as (world, _), world.process():
        await world.run(wait({"name": "late", "waitForCreation": "10m"}, timeout="1m"))
        await asyncio.sleep(300)
        assert 'waits for Argo CD Application "late"' in step(world)["message"]
        await world.create_application("late")
        await world.until(lambda: records(world), 5)
        await settle(world, "late")
        assert await world.ended(seconds=60) == "Succeeded"


async def test_an_application_that_is_deleted_meanwhile() -> None:
    """It will not come back as what it was."""
    async with universe() as (world, argo), world.process():
        argo.application(APP.name).health("Progressing")
        await settle(world)
        await world.run(wait())
        await asyncio.sleep(20)
        await world.user.delete(APPLICATIONS, APP)
        assert await world.ended(seconds=5) == "Failed"

    assert "was deleted while it was waited for" in world.message()


async def test_an_error_of_comparison() -> None:
    """What Argo CD cannot compare will not become well by waiting."""
    async with universe() as (world, argo), world.process():
        argo.repository(REPO).commit(SHA)
        await settle(world)
        await world.write({"spec": {"source": {"targetRevision": "no-such-branch"}}})
        await world.run(wait())
        assert await world.ended(seconds=30) == "Errored"

    assert "Argo CD reports ComparisonError" in world.message()


async def test_argocd_is_not_to_be_asked() -> None:
    """Where the request is refused the user reads so, and the step ends at its time-out."""
    async with universe() as (world, _), world.process():
        await settle(world)
        no = Forbidden(403, "Forbidden", "no right to patch")
        world.lines[0].fault = lambda _key, _body: no
        await world.run(wait(timeout="2m"))
        await asyncio.sleep(30)
        assert "no right to patch" in step(world)["message"]
        assert await world.ended(seconds=160) == "Failed"

    assert "no right to patch" in world.message()


async def test_skipped_by_argocd() -> None:
    """An Application that Argo CD does not look at is an error at once."""
    async with universe() as (world, _), world.process():
        await world.write({"metadata": {"annotations": {"argocd.argoproj.io/skip-reconcile": "true"}}})
        await world.run(wait())
        assert await world.ended(seconds=5) == "Errored"

    assert "would never look at it" in world.message()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"apps": []}, "config.apps: "),
        ({"apps": [{"name": "a", "waitFor": []}]}, "config.apps[0].waitFor: "),
        ({"apps": [{"name": "a", "waitFor": ["peace"]}]}, "config.apps[0].waitFor[0]: "),
        ({"apps": [{"name": "a", "waitFor": ["sync", "sync"]}]}, "config.apps[0].waitFor: names sync twice"),
        ({"apps": [{"name": "a", "selector": {"matchLabels": {"a": "b"}}}]}, "exactly one of name and selector"),
        ({"apps": [{"name": "a"}], "prune": True}, "config.prune: "),
    ],
)
async def test_invalid(config: JsonObject, words: str) -> None:
    """A wrong configuration is named by its field."""
    async with universe() as (world, _), world.process():
        await world.run({"uses": "argocd-wait", "config": config})
        assert await world.ended(seconds=5) == "Errored"

    assert words in world.message()


async def test_steps_that_are_edited_meanwhile() -> None:
    """What was chosen by other entries is not taken for what stands there now."""
    async with universe() as (world, argo), world.process() as process:
        argo.application(APP.name).health("Progressing")
        await settle(world)
        await world.run(wait())
        await asyncio.sleep(10)
        await process.kill()
        record = {**records(world)[0], "entries": [3]}
        body = {"status": {"state": {STATE_KEY: [record]}}}
        await world.user.patch(PROMOTIONS, Key(PROJECT, "p1"), encode(body), codec=JSON, subresource="status")
        async with world.process():
            assert await world.ended(seconds=5) == "Failed"

    assert "is not among the apps of the step any more" in world.message()
