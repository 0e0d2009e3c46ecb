"""What a step may ask of a sync beside syncing everything: it stands in the operation, and the end means that."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kargo_py.kube.codec import JSON
from kargo_py.kube.errors import TooManyRequests
from kargo_py.kube.events import EVENTS
from kargo_py.local.argocd.engine import Manifest
from kargo_py.local.argocd.simulator import ArgoCD
from tests.protocol.universe import APP, REPO, SHA, Universe, universe

pytestmark = pytest.mark.looptime

JsonObject = dict[str, Any]
OLD, NEW = "a" * 40, "b" * 40
WEB, DB = Manifest("Service", "web", namespace="shop"), Manifest("Service", "db", namespace="shop")


def repository(argo: ArgoCD) -> None:
    """Two commits; the later one drops the database and changes the rest."""
    scripted = argo.repository(REPO)
    scripted.commit(OLD, paths={"app": [WEB, DB]})
    scripted.commit(NEW, paths={"app": [Manifest("Service", "web", namespace="shop", content="new")]})


def entry(**options: Any) -> list[JsonObject]:
    return [{"name": APP.name, **options}]


def sync(world: Universe) -> JsonObject:
    """What the last operation was told."""
    found: JsonObject = world.app()["status"]["operationState"]["operation"]["sync"]
    return found


def checks(world: Universe, name: str = "p1") -> list[JsonObject]:
    found: list[JsonObject] = world.promotion(name)["status"].get("healthChecks") or []
    return found


def live(argo: ArgoCD) -> dict[str, str]:
    return {name.name: resource.content for name, resource in argo._world.cluster.resources.items()}


async def test_an_explicit_revision() -> None:
    """Argo CD deploys it though the spec says otherwise; that it did is looked at, and the spec is left alone."""
    async with universe() as (world, argo), world.process():
        repository(argo)
        await world.promote(apps=entry(revision=OLD))
        assert await world.ended() == "Succeeded"

    assert (sync(world), live(argo)) == ({"revision": OLD}, {"web": "", "db": ""})
    assert world.app()["spec"]["source"]["targetRevision"] == "main"
    assert world.operations()[0]["revision"] == OLD
    assert checks(world)[0]["config"]["apps"][0]["desiredRevisions"] == []


async def test_revisions_of_several_sources() -> None:
    """One for each source, "" for that of the spec; the list is as long as Argo CD needs it."""
    other = "https://git.example.com/other"
    sources = [{"repoURL": REPO, "path": "app", "targetRevision": "main"}, {"repoURL": other, "path": "x"}]
    async with universe() as (world, argo), world.process():
        repository(argo)
        await world.write({"spec": {"source": None, "sources": sources}})
        await world.promote(apps=entry(revisions=[OLD, ""]))
        assert await world.ended() == "Succeeded"
        assert sync(world) == {"revisions": [OLD, ""]}
        await world.promote("p2", apps=entry(revision=OLD))
        assert await world.ended("p2") == "Errored"

    assert world.app()["status"]["operationState"]["syncResult"]["revisions"][0] == OLD
    assert "has 2 sources, so that revision does not say which" in world.message("p2")
    assert len(world.starts()) == 1


async def test_a_revision_that_argocd_passes_over() -> None:
    """If the sources are changed in the moment of the start, its success is none; the next attempt fits them."""
    async with universe() as (world, argo), world.process():
        repository(argo)
        await argo.stop()
        await world.promote(apps=entry(revision=OLD))
        await world.started()
        source = {"repoURL": REPO, "path": "app", "targetRevision": "main"}
        await world.write({"spec": {"source": None, "sources": [source]}})
        await argo.start()
        assert await world.ended() == "Succeeded"

    assert [operation["state"] for operation in world.operations()] == ["WrongRevision", "Succeeded"]
    assert sync(world) == {"revisions": [OLD]}


async def test_prune() -> None:
    """What is not wanted any more goes, with the option only."""
    async with universe() as (world, argo), world.process():
        repository(argo)
        await world.promote(apps=entry(revision=OLD))
        assert await world.ended() == "Succeeded"
        await world.promote("p2", apps=entry())
        assert await world.ended("p2") == "Succeeded"
        assert live(argo) == {"web": "new", "db": ""}
        await world.promote("p3", apps=entry(prune=True))
        assert await world.ended("p3") == "Succeeded"

    assert live(argo) == {"web": "new"}


async def test_a_dry_run_deploys_nothing() -> None:
    """It ends with what Argo CD says, leaves no health check, and no trace in the spec, the history or the cluster."""
    async with universe() as (world, argo), world.process():
        repository(argo)
        before = world.app()["spec"]
        await world.promote(apps=entry(dryRun=True, revision=OLD))
        assert await world.ended() == "Succeeded"

    assert (sync(world), live(argo), checks(world)) == ({"dryRun": True, "revision": OLD}, {}, [])
    assert (world.app()["spec"], world.app()["status"].get("history")) == (before, None)
    assert all("refresh" not in str(body["metadata"]) for _, body in world.lines[0].patches)


async def test_a_dry_run_that_fails() -> None:
    """That is what it is for: the step fails with Argo CD's words."""
    async with universe() as (world, argo), world.process():
        argo.application(APP.name).next_sync(error="no such field")
        await world.promote(apps=entry(dryRun=True))
        assert await world.ended() == "Failed"

    assert "no such field" in world.message()


async def test_a_dry_run_that_is_superseded_is_made_again() -> None:
    """It cannot deploy anything twice, so that nobody saw its end does not matter."""
    async with universe() as (world, argo), world.process() as process:
        argo.application(APP.name).next_sync(hang=True)
        await world.promote(apps=entry(dryRun=True))
        await world.started()
        await process.kill()
        foreign = {"initiatedBy": {"username": "kargo-controller"}, "sync": {}}
        await asyncio.sleep(60)
        await world.write({"operation": foreign, "status": {"operationState": None}})
        await asyncio.sleep(60)
        async with world.process():
            assert await world.ended() == "Succeeded"

    assert len(world.starts()) == 2


async def test_some_resources_only() -> None:
    """The others stay as they are; the history says nothing of it, and the step succeeds all the same."""
    resources = [{"kind": "Service", "name": "web", "namespace": "shop"}]
    async with universe() as (world, argo), world.process():
        repository(argo)
        await world.promote(apps=entry(resources=resources, revision=OLD))
        assert await world.ended() == "Succeeded"

    assert (sync(world)["resources"], live(argo)) == (resources, {"web": ""})
    assert world.app()["status"].get("history") is None
    assert len(checks(world)) == 1


async def test_some_resources_only_and_superseded_unseen() -> None:
    """Whether it was carried out no history can say: it is not made again, and the user is told to look."""
    async with universe() as (world, _), world.process() as process:
        await world.promote(apps=entry(resources=[{"kind": "Service", "name": "web"}]))
        await world.started()
        await process.kill()
        await asyncio.sleep(5)
        await world.write({"operation": {"sync": {}}, "status": {"operationState": None}})
        await asyncio.sleep(60)
        async with world.process():
            assert await world.ended() == "Failed"

    assert len(world.starts()) == 1
    assert "a sync of some resources only leaves none in the history; look before promoting again" in world.message()


async def test_no_health_check() -> None:
    """With healthCheck: false the Stage does not judge the Application."""
    async with universe() as (world, _), world.process():
        await world.create_application("b")
        await world.promote(apps=[*entry(healthCheck=False), {"name": "b"}])
        assert await world.ended() == "Succeeded"
        await world.promote("p2", apps=entry(healthCheck=False))
        assert await world.ended("p2") == "Succeeded"

    assert [app["name"] for check in checks(world) for app in check["config"]["apps"]] == ["b"]
    assert checks(world, "p2") == []


async def test_what_was_recorded_is_what_is_started() -> None:
    """The record says how to sync, and a process that comes after a crash starts exactly that."""
    async with universe() as (world, argo), world.process() as process:
        repository(argo)
        busy = TooManyRequests(429, "TooManyRequests", "busy")
        world.lines[0].fault = lambda _key, body: busy if "operation" in body else None
        await world.promote(apps=entry(prune=True))
        await world.until(lambda: world.phase() == "Running")
        await process.kill()
        stored = world.promotion()["status"]["state"]["kargo-py.io/operations"]
        assert stored[0]["sync"] == {"prune": True}
        async with world.process("me"):
            assert await world.ended() == "Succeeded"

    assert sync(world) == {"prune": True}


async def events(world: Universe) -> list[JsonObject]:
    page = await world.user.list(EVENTS, APP.namespace, codec=JSON)
    return [event for event in page.items if event["reason"] == "OperationStarted"]


async def test_an_event_on_the_application() -> None:
    """One for each start, in Kargo's words, however often we look at it."""
    async with universe() as (world, argo), world.process() as process:
        argo.application(APP.name).next_sync(hang=True)
        await world.promote(apps=entry(operationStartedEvent=True))
        await world.started()
        await asyncio.sleep(2)
        await process.kill()
        async with world.process():
            await asyncio.sleep(5)
            argo.application(APP.name).finish_hook()
            assert await world.ended() == "Succeeded"
            await world.promote("p2", apps=entry(operationStartedEvent=True, revision=SHA))
            assert await world.ended("p2") == "Succeeded"
            await world.promote("p3", apps=entry())
            assert await world.ended("p3") == "Succeeded"
            told = await events(world)

    assert sorted(event["message"] for event in told) == [
        f"kargo-controller initiated sync to {SHA}",
        "kargo-controller initiated sync to main",
    ]
    assert {event["involvedObject"]["name"] for event in told} == {APP.name}
