"""Applications chosen by label: which, when, and that the choice stands."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kargo_py.argocd.application import APPLICATIONS
from kargo_py.controllers.world import PROMOTIONS
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.events import EVENTS
from kargo_py.kube.resources import Key
from tests.protocol.universe import APP, REPO, SHA, Universe, universe

pytestmark = pytest.mark.looptime

WEB = {"tier": "web"}
SOURCE = {"repoURL": REPO, "desiredRevision": SHA, "updateTargetRevision": True}
ENTRY: dict[str, Any] = {"selector": {"matchLabels": WEB}, "sources": [SOURCE]}


def states(world: Universe, name: str = "p1") -> dict[str, str]:
    return {operation["name"]: operation["state"] for operation in world.operations(name)}


async def label(world: Universe, name: str, **labels: str | None) -> None:
    await world.user.patch(APPLICATIONS, Key("argocd", name), encode({"metadata": {"labels": labels}}), codec=JSON)


async def web(world: Universe, *names: str, **more: Any) -> None:
    for name in names:
        await world.create_application(name, labels=WEB, **more)


async def test_all_that_match() -> None:
    """All are synced, and nothing else; the health check is about all of them."""
    async with universe() as (world, _), world.process():
        await web(world, "a", "b", "c")
        await world.create_application("d", labels={"tier": "db"})
        await world.promote(apps=[ENTRY])
        assert await world.ended() == "Succeeded"

    status = world.promotion()["status"]
    assert states(world) == {"a": "Succeeded", "b": "Succeeded", "c": "Succeeded"}
    assert [app["name"] for app in status["healthChecks"][0]["config"]["apps"]] == ["a", "b", "c"]
    assert status["state"]["sync"] == {"apps": [{"name": name, "namespace": "argocd"} for name in "abc"]}
    assert "operation" not in world.app("d")
    assert "operation" not in world.app()


async def test_who_does_not_authorize_is_left_out_and_named() -> None:
    """In an Event, in the step's message and in its output; a wrong annotation with what is wrong with it."""
    async with universe() as (world, _), world.process():
        await web(world, "a")
        await web(world, "b", stages=None)
        await web(world, "c", stages="shop:*")
        await web(world, "d", "e", stages="shop:prod")
        await world.promote(apps=[ENTRY])
        assert await world.ended() == "Succeeded"
        await world.until(lambda: events(world))

    status = world.promotion()["status"]
    message = status["stepExecutionMetadata"][0]["message"]
    assert states(world) == {"a": "Succeeded"}
    assert '"b" in namespace "argocd" is not authorized: it has no annotation' in message
    assert "entry 'shop:*' has a wildcard" in message
    assert "names shop:prod, not shop:dev; and 1 more: e" in message
    assert [app["name"] for app in status["state"]["sync"]["leftOut"]["apps"]] == ["b", "c", "d", "e"]
    assert [message] == [event["message"].removeprefix('step "sync" goes on: ') for event in events(world)]
    assert all("operation" not in world.app(name) for name in "bcde")


def events(world: Universe) -> list[Any]:
    """The warnings of steps."""
    stored = world.core.store.collection(EVENTS.group, EVENTS.plural).items.values()
    return [each.obj for each in stored if each.obj["reason"] == "StepWarning"]


@pytest.mark.parametrize(
    ("stages", "words"),
    [
        ("shop:dev", 'no Argo CD Applications found matching selector "tier=db" in namespace "argocd"'),
        ("shop:prod", "but none are authorized for Stage shop:dev: "),
        ("shop:prod", 'found 2 Application(s) matching selector "tier=web" in namespace "argocd"'),
    ],
)
async def test_nothing_to_do_is_an_error(stages: str, words: str) -> None:
    """It is told which selector it was, and nothing is started, of other entries neither."""
    tier = "db" if stages == "shop:dev" else "web"
    async with universe() as (world, _), world.process():
        await web(world, "a", "b", stages=stages)
        await world.promote(apps=[{"name": APP.name}, {"selector": {"matchLabels": {"tier": tier}}}])
        assert await world.ended() == "Errored"

    assert words in world.message()
    assert not world.starts()


async def test_at_most_three_faults_are_told() -> None:
    """All are checked before any is started."""
    other = {"repoURL": "https://git.example.com/other", "path": "app"}
    async with universe() as (world, _), world.process():
        await web(world, "a")
        await web(world, *"bcdefg", source=other)
        await world.promote(apps=[ENTRY])
        assert await world.ended() == "Errored"

    assert world.message().count("has no source with") == 3
    assert world.message().endswith("; and 3 more")
    assert not world.starts()


async def test_the_choice_stands() -> None:
    """Labels that change, a new match and a deletion change nothing but the end of what was deleted."""
    async with universe() as (world, argo), world.process():
        await web(world, "a", "b", "c")
        for name in "abc":
            argo.application(name).next_sync(hang=True)
        await world.promote(apps=[ENTRY], retry={"timeout": "1h"})
        await world.until(lambda: len(world.starts()) == 3)
        await label(world, "a", tier="db")
        await web(world, "later")
        await world.user.delete(APPLICATIONS, Key("argocd", "c"))
        await asyncio.sleep(5)
        for name in "ab":
            argo.application(name).finish_hook()
        assert await world.ended() == "Failed"

    assert states(world) == {"a": "Succeeded", "b": "Succeeded", "c": "Lost"}
    assert "operation" not in world.app("later")


async def test_the_choice_stands_after_a_restart() -> None:
    """Before anything was started, too: what is on record is started, whatever the labels are by then."""
    async with universe() as (world, _):
        await web(world, "a", "b")
        async with world.process() as process:
            process.line.fault = lambda _key, _body: TimeoutError("never answered")
            await world.promote(apps=[ENTRY])
            await world.until(world.operations)
            await process.kill()
        await label(world, "a", tier=None)
        await web(world, "later")
        async with world.process():
            assert await world.ended() == "Succeeded"

    assert states(world) == {"a": "Succeeded", "b": "Succeeded"}
    assert world.app("a")["spec"]["source"]["targetRevision"] == SHA


async def test_named_and_selected() -> None:
    """What several entries ask of one Application is done by one start."""
    helm = {"repoURL": REPO, "helm": {"images": [{"key": "tag", "value": "v1"}]}}
    async with universe() as (world, _), world.process():
        await web(world, "a", "b")
        await world.promote(apps=[ENTRY, {"name": "a", "sources": [helm]}])
        assert await world.ended() == "Succeeded"

    assert len(world.starts()) == 2
    assert world.app("a")["spec"]["source"]["helm"] == {"parameters": [{"name": "tag", "value": "v1"}]}
    assert "helm" not in world.app("b")["spec"]["source"]


async def test_two_entries_that_contradict_each_other() -> None:
    """An error before anything is started, though most of the Applications are asked for one thing only."""
    other = {**SOURCE, "desiredRevision": "0" * 40}
    async with universe() as (world, _), world.process():
        await web(world, "a", "b", "c")
        await label(world, "c", app="shop")
        await world.promote(apps=[ENTRY, {"selector": {"matchLabels": {"app": "shop"}}, "sources": [other]}])
        assert await world.ended() == "Errored"

    assert '"c" in namespace "argocd" is asked for two revisions' in world.message()
    assert not world.starts()


async def test_busy_ones_are_waited_for_and_failures_stand_alone() -> None:
    """One is held by somebody else, one fails, one succeeds: each as if it were alone."""
    async with universe() as (world, argo), world.process():
        await web(world, "a", "b", "c")
        argo.application("a").next_sync(hang=True)
        argo.application("b").next_sync(fail="boom")
        alice = {"operation": {"initiatedBy": {"username": "alice"}, "sync": {}}}
        await world.user.patch(APPLICATIONS, Key("argocd", "a"), encode(alice), codec=JSON)
        await asyncio.sleep(1)
        await world.promote(apps=[ENTRY])
        await asyncio.sleep(30)
        assert states(world) == {"a": "Pending", "b": "Failed", "c": "Succeeded"}
        assert "alice" in world.promotion()["status"]["stepExecutionMetadata"][0]["message"]
        argo.application("a").finish_hook()
        assert await world.ended() == "Failed"

    assert states(world) == {"a": "Succeeded", "b": "Failed", "c": "Succeeded"}
    assert "boom" in world.message()


# -- one failure ends all ----------------------------------------------------------------------------------------------


async def test_terminate_on_failure() -> None:
    """What is under way is terminated, what is held by others never starts, what had succeeded did."""
    async with universe() as (world, argo), world.process():
        await web(world, *"abcd")
        argo.application("a").next_sync(hang=True)
        argo.application("b").next_sync(hang=True)
        alice = {"operation": {"initiatedBy": {"username": "alice"}, "sync": {}}}
        await world.user.patch(APPLICATIONS, Key("argocd", "a"), encode(alice), codec=JSON)
        await asyncio.sleep(1)
        argo.application("c").next_sync(hang=True)
        await world.promote(apps=[ENTRY], onPartialFailure="terminate", retry={"timeout": "1h"})
        await asyncio.sleep(10)
        argo.application("c").finish_hook(ok=False)
        assert await world.ended() == "Failed"
        await asyncio.sleep(60)

    assert states(world) == {"a": "NotStarted", "b": "Stopped", "c": "Failed", "d": "Succeeded"}
    assert "c-hook" in world.message()
    assert "so the others are ended" in world.message()
    assert len(world.starts()) == 3
    assert [operation.get("message", "") != "" for operation in world.operations()] == [True] * 4


async def test_terminate_on_failure_survives_a_restart() -> None:
    """Killed after the failure was recorded, before the others were asked to end."""
    async with universe() as (world, argo):
        await web(world, "a", "b")
        argo.application("a").next_sync(hang=True)
        argo.application("b").next_sync(hang=True)
        async with world.process() as process:
            await world.promote(apps=[ENTRY], onPartialFailure="terminate", retry={"timeout": "1h"})
            await world.until(lambda: len(world.starts()) == 2)
            await asyncio.sleep(5)
            process.line.fault = lambda _key, _body: TimeoutError("never answered")
            argo.application("b").finish_hook(ok=False)
            await world.until(lambda: states(world)["b"] == "Failed")
            await process.kill()
        async with world.process():
            assert await world.ended() == "Failed"

    assert states(world) == {"a": "Stopped", "b": "Failed"}
    assert "b-hook" in world.message()
    assert "so the others are ended" in world.message()


async def test_a_repeatable_end_is_no_failure() -> None:
    """An attempt that others have undone is made again, and ends nothing."""
    async with universe() as (world, argo), world.process():
        await web(world, "a", "b")
        argo.application("a").next_sync(hang=True)
        argo.application("b").next_sync(hang=True)
        repository = argo.repository(REPO)
        repository.commit("b" * 40, branch="main")
        source = {"repoURL": REPO, "desiredRevision": "a" * 40}
        await world.promote(
            apps=[{**ENTRY, "sources": [source]}], onPartialFailure="terminate", retry={"timeout": "1h"}
        )
        await asyncio.sleep(5)
        argo.application("a").finish_hook()
        argo.application("b").finish_hook()
        await world.until(lambda: [op["state"] for op in world.operations()] == ["WrongRevision"] * 2)
        repository.commit("a" * 40, branch="main")
        assert await world.ended() == "Succeeded"

    assert sorted(operation["state"] for operation in world.operations()) == [
        *["Succeeded"] * 2,
        *["WrongRevision"] * 2,
    ]


# -- many --------------------------------------------------------------------------------------------------------------


async def test_fifty_endings_are_few_writes() -> None:
    """Endings at random times are gathered; the first failure is told at once, and the Promotion ends with the last."""
    names = [f"a{number:02}" for number in range(50)]
    async with universe() as (world, argo), world.process():
        await web(world, *names)
        for name in names:
            argo.application(name).next_sync(hang=True)
        written = []
        world.core.store.observers.append(
            lambda event: written.append(event) if event.collection.plural == PROMOTIONS.plural else None
        )
        await world.promote(apps=[ENTRY], retry={"timeout": "1h"})
        await world.until(lambda: len(world.starts()) == 50)
        await asyncio.sleep(10)
        for name in names:
            argo.application(name).finish_hook(ok=name not in {"a10", "a20", "a30"})
            await asyncio.sleep(0.3)
        assert await world.ended() == "Failed"

    assert len(written) <= 12
    assert world.message().count("failed") == 3
