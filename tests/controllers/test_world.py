"""What the controllers share."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kargo_py.api.stage import Stage
from kargo_py.argocd.application import Application, Metadata
from kargo_py.controllers.promotion import PromotionReconciler
from kargo_py.controllers.running import Options, assemble
from kargo_py.controllers.world import (
    STAGES,
    Models,
    Responsibility,
    World,
    attempts_of,
    awaited_in,
    awaited_of,
    awaits,
    checked_by,
    left_behind,
    project_promotion,
    stage_of,
    targets_of,
)
from kargo_py.deployers.argocd import ArgoCD
from kargo_py.deployers.base import Awaited
from kargo_py.engine.execution import Answer, Patience
from kargo_py.kube.cache import Cache
from kargo_py.kube.client import Page
from kargo_py.kube.events import EventRecorder
from kargo_py.kube.resources import Key
from kargo_py.steps.base import Erred, StepContext
from kargo_py.steps.step import Work
from tests.engine.calling import Told, context_of, executor
from tests.kube.fakes import ScriptedClient

SHARD = "kargo.akuity.io/shard"


@pytest.mark.parametrize(
    ("responsibility", "labels", "spec_shard", "ours"),
    [
        (Responsibility(), {}, "", True),
        (Responsibility(), {SHARD: "eu"}, "", False),
        (Responsibility(), {}, "eu", False),
        (Responsibility("eu", default=False), {SHARD: "eu"}, "", True),
        (Responsibility("eu", default=False), {}, "eu", True),
        (Responsibility("eu", default=False), {}, "", False),
        (Responsibility("eu", default=True), {}, "", True),
        (Responsibility("eu", default=True), {SHARD: "us"}, "", False),
        (Responsibility(default=False), {}, "", False),
    ],
)
def test_responsibility(responsibility: Responsibility, labels: dict[str, str], spec_shard: str, ours: bool) -> None:
    """A controller acts on its shard, and as the default one on what has none."""
    assert ours == responsibility.covers(labels, spec_shard)


def test_projection() -> None:
    """Of a finished Promotion the cache keeps neither steps nor outputs, of others all but managedFields."""
    meta = {"name": "p", "managedFields": [1]}
    spec = {"stage": "dev", "steps": [{}], "vars": []}
    status = {"phase": "Succeeded", "state": {"x": 1}, "operations": [{}], "healthChecks": []}

    ended = project_promotion({"metadata": meta, "spec": spec, "status": status})
    fresh = project_promotion({"metadata": meta, "spec": spec})

    assert ended == {
        "metadata": {"name": "p"},
        "spec": {"stage": "dev"},
        "status": {"phase": "Succeeded", "healthChecks": []},
    }
    assert {"metadata": {"name": "p"}, "spec": spec} == fresh


def test_targets() -> None:
    """A running Promotion is found by the objects it recorded; one that has ended waits for nothing."""
    state = {"kargo-py.io/operations": [{"namespace": "argocd", "name": "a"}, {"namespace": "argocd", "name": "b"}]}

    assert {Key("argocd", "a"), Key("argocd", "b")} == set(targets_of({"status": {"phase": "Running", "state": state}}))
    assert not list(targets_of({"status": {"phase": "Failed", "state": state}}))
    assert not list(targets_of({"metadata": {}}))
    damaged: list[Any] = [[7, {}, {"namespace": "argocd"}, {"name": [], "namespace": "argocd"}], {}, "x", None]
    for records in damaged:
        broken = {"status": {"phase": "Running", "state": {"kargo-py.io/operations": records}}}
        assert not list(targets_of(broken))
        assert not attempts_of(broken)


WEB = {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["web"]}]}


def test_awaited() -> None:
    """A running Promotion is found by what it waits for: a name, or what stands in a namespace."""
    kept = [{"step": "s", "namespace": "argocd", "name": "a"}, {"step": "s", "namespace": "other", "selector": WEB}]
    running = {"status": {"phase": "Running", "state": {"kargo-py.io/awaited": kept}}}

    assert {Key("argocd", "a"), Key("other", "")} == set(awaited_of(running))
    assert not awaited_of({"status": {**running["status"], "phase": "Aborted"}})
    damaged: list[Any] = [[7], "x", {}, [{"step": "s"}], [{"step": "s", "namespace": []}]]
    for stored in damaged:
        assert not awaited_in({"status": {"phase": "Running", "state": {"kargo-py.io/awaited": stored}}})


@pytest.mark.parametrize(
    ("awaited", "wakes"),
    [
        (Awaited("s", "argocd", "a"), True),
        (Awaited("s", "argocd", "b"), False),
        (Awaited("s", "other", "a"), False),
        (Awaited("s", "argocd", selector=WEB), True),
        (Awaited("s", "other", selector=WEB), False),
        (Awaited("s", "argocd", selector={"matchLabels": {"tier": "db"}}), False),
        (Awaited("s", "argocd", selector={}), True),
    ],
)
def test_awaits(awaited: Awaited, wakes: bool) -> None:
    """Just what is waited for wakes; a selector that somebody spoilt is looked at once too often."""
    app = Application(Metadata(name="a", namespace="argocd", labels={"tier": "web"}))

    assert wakes == awaits(awaited, app)


def test_stage_of_what_cannot_be_read() -> None:
    """A Promotion without a readable Stage belongs to none, and raises nothing."""
    meta = {"name": "p", "namespace": "n"}
    specs: list[Any] = [None, {}, [], {"stage": 7}]

    assert [stage_of({"metadata": meta, "spec": spec}) for spec in specs] == [()] * 4
    assert stage_of({"metadata": meta}) == ()


CHECK = {"uses": "x", "config": {"apps": [{"name": "a"}]}}


@pytest.mark.parametrize(
    ("checks", "found"),
    [
        ([CHECK], {Key("argocd", "a")}),
        ([CHECK | {"uses": "y"}], set()),
        ([None, 7, "x", [], {}, {"uses": "x"}, CHECK | {"config": "a"}, CHECK], {Key("argocd", "a")}),
        (None, set()),
    ],
    ids=["ours", "another's", "nonsense", "none"],
)
def test_checked(checks: Any, found: set[Key]) -> None:
    """A Stage is found by what its health checks are about, a Promotion by those that it leaves; nonsense is none."""
    checker = ArgoCD(ScriptedClient())
    stage = {"status": {"lastPromotion": {"status": {"healthChecks": checks}}}}
    kept = {"status": {"health": {"config": {"checks": checks}}}}
    promotion = {"status": {"phase": "Succeeded", "healthChecks": checks}}

    assert set(checked_by(checker, "x")(stage)) == set(checked_by(checker, "x")(kept)) == found
    assert set(left_behind(checker, "x")(promotion)) == found
    assert not set(left_behind(checker, "x")({"status": {"phase": "Running", "healthChecks": checks}}))


async def test_freight_is_read_as_it_comes(logged: list[Any]) -> None:
    """Freight that cannot be read is told at once, though nothing is reconciled because of it."""
    client = ScriptedClient()
    recorder = EventRecorder(client, "kargo-py", "me")
    world = World(
        instance="me",
        client=client,
        argocd=ArgoCD(client),
        recorder=recorder,
        steps={},
        checkers={},
        executor=executor(),
    )
    meta = {"name": "f", "namespace": "n", "uid": "u", "resourceVersion": "1"}
    world.freights.observe({"metadata": meta, "commits": 7})

    assert world.unreadable["Freight"] == 1
    assert [event["kind"] for event in logged] == ["Freight"]


async def test_a_restore_wakes_a_promotion() -> None:
    """One that had ended and runs again, by an etcd restore, is worked on, though only we write its status."""
    client = ScriptedClient()
    recorder = EventRecorder(client, "kargo-py", "me")
    world = World(
        instance="me",
        client=client,
        argocd=ArgoCD(client),
        recorder=recorder,
        steps={},
        checkers={},
        executor=executor(),
    )
    controller = PromotionReconciler(world).controller()
    stage: dict[str, Any] = {"spec": {}, "status": {"currentPromotion": {"name": "p"}}}
    promotion: dict[str, Any] = {"spec": {"stage": "dev"}}

    def version(name: str, number: int, **of: Any) -> dict[str, Any]:
        return {"metadata": {"namespace": "n", "name": name, "uid": name, "resourceVersion": str(number)}, **of}

    async def take(cache: Cache[dict[str, Any]], obj: dict[str, Any], at: str) -> None:
        client.lists = [Page([obj], at)]
        await cache._list()

    await take(world.stages, version("dev", 40, **stage), "90")
    await take(world.promotions, version("p", 85, **promotion, status={"phase": "Succeeded"}), "90")
    while len(controller.queue):
        controller.queue.done(await controller.queue.get())
    await take(world.stages, version("dev", 39, spec={}), "60")
    assert not len(controller.queue)

    await take(world.promotions, version("p", 50, **promotion, status={"phase": "Running"}), "60")

    assert len(controller.queue) == 1
    assert await controller.queue.get() == Key("n", "p")


async def test_unreadable_is_told_once(logged: list[Any]) -> None:
    """An object that cannot be read is counted and told once a version, and read again when it changed."""
    recorder = EventRecorder(ScriptedClient(), "kargo-py", "me")
    models = Models(Stage, STAGES, recorder)
    broken: dict[str, Any] = {"metadata": {"name": "s", "namespace": "n", "resourceVersion": "1"}, "spec": {}}
    request = {"origin": {"kind": "Warehouse", "name": "w"}, "sources": {"direct": True}}
    mended = {"metadata": broken["metadata"] | {"resourceVersion": "2"}, "spec": {"requestedFreight": [request]}}

    assert models.read(broken) is None
    assert models.read(broken) is None
    assert models.unreadable == 1
    assert len(logged) == 1
    assert "spec.requestedFreight: " in logged[0]["why"]
    assert isinstance(models.read(mended), Stage)


@pytest.mark.looptime
async def test_bounds_of_calls() -> None:
    """Of one kind of work as many calls run at once, and each as long, as the controllers were told."""
    client: Any = ScriptedClient()
    options = Options(step_limits={Work.NETWORK: 1}, patience=Patience(longest=60), work_dir="/proc/none")
    calls = assemble(client, client, "me", options).world.executor

    async def hang(_: StepContext) -> None:
        await asyncio.Event().wait()

    async def call(key: str) -> Answer | None:
        return await calls.call(key, Told(hang), context_of(), time_left=None, done=lambda: None)

    assert [await call(key) for key in "ab"] == [None, None]
    assert [bool(calls.queued(key)) for key in "ab"] == [False, True]
    await asyncio.sleep(60)
    answer = await call("a")
    await calls.aclose()

    assert isinstance(answer, Erred)
    assert "took longer than 1m0s" in answer.message


def test_where_the_user_interface_is() -> None:
    """``ctx.uiBaseUrl`` is what the controllers were told."""
    client: Any = ScriptedClient()
    options = Options(ui_base_url="https://kargo.example.com", work_dir="/proc/none")

    assert assemble(client, client, "me", options).world.ui_base_url == "https://kargo.example.com"
