"""The controllers as objects of another program: who waits for whom, who ends whom, and what can be handed in."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from inspect import signature
from typing import Any, NoReturn, Unpack

import pytest

import kargo_py
from kargo_py.api.promotion import HealthCheckStep, StepStatus
from kargo_py.controllers.embedding import Controllers, PromotionController, Settings, Shared, StageController
from kargo_py.controllers.running import StartError
from kargo_py.controllers.world import FREIGHTS, PROMOTIONS, STAGES
from kargo_py.deployers.base import HealthVerdict, Record, TargetState
from kargo_py.kube.cache import Cache
from kargo_py.kube.client import JsonObject
from kargo_py.kube.clock import utc_now
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.resources import Key, Resource
from kargo_py.local.apiserver.client import client_of
from kargo_py.local.apiserver.server import ApiServer
from kargo_py.steps.base import Finished, Intend, StepContext, StepOutcome, Waiting, Watch
from kargo_py.steps.config import Config
from kargo_py.steps.step import Step
from tests.in_process import create_namespaces
from tests.protocol.universe import APP, PROJECT, Line, Universe, universe

pytestmark = pytest.mark.looptime

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")


class Trouble(Exception):
    """What a part dies of here."""


class Dying(Cache[JsonObject]):
    """A cache with a fault that nobody foresaw."""

    async def run(self) -> NoReturn:
        await asyncio.sleep(0)
        self._synced.set()
        self._news_of_health.set()
        await asyncio.sleep(10)
        raise Trouble


def settings(world: Universe, **more: Unpack[Settings]) -> Settings:
    return {"instance": "me", "now": world.now, **more}


def tasks() -> set[asyncio.Task[Any]]:
    """What runs, but for this test and the simulated Argo CD."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    return {task for task in others if "/local/" not in f"{getattr(task.get_coro(), 'cr_code', None)}"}


async def verified(world: Universe) -> None:
    await world.until(
        lambda: "dev" in (world._object(FREIGHTS, Key(PROJECT, "f1")).get("status") or {}).get("verifiedIn", {})
    )


# --- running -------------------------------------------------------------------------------------------------------


async def test_all_of_it() -> None:
    """In the body Promotions run and Stages are judged; after it nothing is left, and the client still serves."""
    async with universe() as (world, _):
        client = client_of(world.core)
        before = tasks()
        async with Controllers(client, **settings(world)) as controllers:
            caches = controllers.shared.assembly.caches
            assert all(cache.synced for cache in caches)
            assert controllers.shared.applications.get(APP) is not None
            await world.promote()
            assert await world.ended() == "Succeeded"
            await verified(world)
        assert tasks() == before
        assert (await client.get(PROMOTIONS, Key(PROJECT, "p1"), codec=JSON))["status"]["phase"] == "Succeeded"


@asynccontextmanager
async def sharing(world: Universe) -> AsyncIterator[None]:
    async with (
        Shared(client_of(world.core), **settings(world)) as shared,
        PromotionController(shared) as promotions,
        StageController(shared) as stages,
    ):
        assert promotions.shared is stages.shared is shared
        assert len(shared.assembly.controllers) == 3
        yield


@asynccontextmanager
async def apart(world: Universe) -> AsyncIterator[None]:
    client = client_of(world.core)
    async with (
        StageController(client, **settings(world)) as stages,
        PromotionController(client, **settings(world)) as promotions,
    ):
        assert promotions.shared is not stages.shared
        yield


@pytest.mark.parametrize("halves", [sharing, apart])
async def test_the_halves(halves: Callable[[Universe], Any]) -> None:
    """Promotions and Stages may be two objects, on the same caches or each on its own."""
    async with universe() as (world, _), halves(world):
        await world.promote()
        assert await world.ended() == "Succeeded"
        await verified(world)


async def test_one_half() -> None:
    """Without a Stage controller no Promotion begins; without a Promotion controller it is acknowledged only."""
    async with universe() as (world, _):
        await world.promote()
        async with PromotionController(client_of(world.core), **settings(world)):
            await asyncio.sleep(60)
            assert world.phase() == "Pending"
        async with StageController(client_of(world.core), **settings(world)):
            stage = Key(PROJECT, "dev")
            await world.until(lambda: (world._object(STAGES, stage).get("status") or {}).get("currentPromotion"))
            await asyncio.sleep(60)
            assert world.phase() == "Pending"


async def test_a_deployer_of_ones_own_making() -> None:
    """One that is handed in is used, with its client and its namespaces."""
    async with universe() as (world, _):
        argocd = kargo_py.ArgoCD(client_of(world.core), namespace=APP.namespace, now=world.now)
        async with Controllers(client_of(world.core), **settings(world, argocd=argocd)) as controllers:
            assert controllers.shared.applications is argocd.applications
            assert set(controllers.shared.assembly.servers) == {"kargo", "argocd"}
            await world.promote()
            assert await world.ended() == "Succeeded"


# --- ending --------------------------------------------------------------------------------------------------------


def dying(world: Universe) -> Watch[JsonObject]:
    cache = Dying(client_of(world.core), CONFIG_MAPS, codec=JSON)
    return Watch(cache, lambda obj: JSON.meta(obj).key)


async def test_a_part_that_dies_ends_the_body() -> None:
    """The body is cancelled, all else is stopped, and the error of the part comes out as it is."""
    reached = []

    async def body(world: Universe) -> None:
        async with Controllers(client_of(world.core), **settings(world, watches=[dying(world)])):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                reached.append("cancelled")
                raise

    async with universe() as (world, _):
        before = tasks()
        with pytest.raises(Trouble):
            await body(world)
        assert tasks() == before

    assert reached == ["cancelled"]


async def test_an_error_of_the_body() -> None:
    """It comes out as it is."""

    async def body(world: Universe) -> None:
        async with Controllers(client_of(world.core), **settings(world)):
            raise Trouble

    async with universe() as (world, _):
        before = tasks()
        with pytest.raises(Trouble):
            await body(world)
        assert tasks() == before


@pytest.mark.parametrize("cancelled", [False, True], ids=["left", "cancelled"])
@pytest.mark.parametrize("moment", range(0, 120, 3))
async def test_left_or_cancelled_at_any_moment(moment: int, cancelled: bool) -> None:
    """What was begun is finished, so that the next instance goes on from there: one start, one end."""
    async with universe() as (world, _):
        line = Line(client_of(world.core), 0.005)
        world.lines.append(line)
        await world.promote()
        before = tasks()

        async def program(seconds: float) -> None:
            async with Controllers(line, **settings(world)):
                await asyncio.sleep(seconds)

        if cancelled:
            task = asyncio.create_task(program(1000))
            await asyncio.sleep(moment / 1000)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
        else:
            await program(moment / 1000)
        assert tasks() == before
        async with Controllers(line, **settings(world)):
            assert await world.ended() == "Succeeded"
            await verified(world)
        assert len(world.starts()) == 1


@pytest.mark.parametrize("turn", range(20))
async def test_cancelled_at_any_await(turn: int) -> None:
    """Cancelled in any turn of the loop while it is entered or left, it leaves no task behind, and says only that."""
    async with universe() as (world, _):
        before = tasks()

        async def program() -> None:
            async with Controllers(client_of(world.core), **settings(world)):
                await asyncio.sleep(0)

        task = asyncio.create_task(program())
        for _ in range(turn):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

        assert task.cancelled() or task.exception() is None
        assert tasks() == before


# --- what is refused -----------------------------------------------------------------------------------------------


async def enter(controllers: Controllers | Shared) -> None:
    async with controllers:
        pass


async def test_entered_once() -> None:
    """Neither while it is entered nor after can it be entered again; what is there goes on."""
    async with universe() as (world, _):
        controllers = Controllers(client_of(world.core), **settings(world))
        async with controllers:
            with pytest.raises(RuntimeError, match="Controllers can be entered once only: make a new one"):
                await enter(controllers)
            await world.promote()
            assert await world.ended() == "Succeeded"
        with pytest.raises(RuntimeError, match="once only"):
            await enter(controllers)


async def test_one_of_a_kind_on_one_shared() -> None:
    """Two that do the same would work on the same objects at once."""
    async with universe() as (world, _):
        shared = Shared(client_of(world.core), **settings(world))
        with pytest.raises(RuntimeError, match="this Shared has no parts yet: enter it first"):
            await enter(StageController(shared))
        async with shared, StageController(shared):
            with pytest.raises(RuntimeError, match="there is a StageReconciler already"):
                await enter(Controllers(shared))
        with pytest.raises(RuntimeError, match="this Shared has been left"):
            await enter(PromotionController(shared))


async def test_wrong_arguments() -> None:
    """They are told where they are given."""
    client = client_of(ApiServer(now=utc_now))
    with pytest.raises(TypeError, match=r"client is of type str; give what `await kargo_py\.connect"):
        Controllers("~/.kube/config")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="argocd is of type str"):
        Controllers(client, argocd="argocd")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="instance: give that to the Shared"):
        StageController(Shared(client), instance="me")
    for wrong in (Copy, print):
        with pytest.raises(TypeError, match=r"steps\['copy'\]: give an instance of"):
            Controllers(client, steps={"copy": wrong})  # type: ignore[dict-item]


async def test_cannot_begin() -> None:
    """What keeps it from running is raised as one sentence when it is entered, and nothing stays behind."""
    async with ApiServer(now=utc_now) as server:
        before = tasks()
        with pytest.raises(StartError, match=r"does not serve stages.*apply the CRDs"):
            await enter(Controllers(client_of(server), instance="me"))
        with pytest.raises(StartError, match="instance id 'a/b'"):
            await enter(Controllers(client_of(server), instance="a/b"))
        assert tasks() == before


def test_settings() -> None:
    """All controllers take what Shared takes."""
    assert set(signature(Shared).parameters) == {"client", *Settings.__annotations__}


async def test_it_changes_nothing_of_the_program() -> None:
    """Neither signals nor logging: these are the program's."""
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
    root = (list(logging.getLogger().handlers), logging.getLogger().level)
    async with universe() as (world, _), Controllers(client_of(world.core), **settings(world)):
        assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)] == handlers
        assert (list(logging.getLogger().handlers), logging.getLogger().level) == root


def test_the_public_names() -> None:
    """Each name that the package offers is there, and no other is."""
    assert {name for name in kargo_py.__all__ if getattr(kargo_py, name) is None} == set()
    assert set(kargo_py.__all__) <= set(dir(kargo_py))
    with pytest.raises(AttributeError, match="has no attribute 'controller'"):
        _ = kargo_py.controller  # type: ignore[attr-defined]


# --- a kind of step from outside -----------------------------------------------------------------------------------


class CopyConfig(Config):
    name: str


@dataclass
class Copy(Step[CopyConfig]):
    """A step that asks somebody, by a ConfigMap, for a copy, and waits until ``data.done`` is there."""

    cache: Cache[JsonObject]
    client: Any
    uses = "copy"
    config_model = CopyConfig
    default_timeout = timedelta(minutes=5)

    async def perform(self, config: CopyConfig, context: StepContext) -> StepOutcome:
        name = config.name
        key = Key(context.project, name)
        if not context.records:
            return Intend([Record("copy", key.namespace, name, "", context.alias, 1, f"copy/{name}", "")])
        (record,) = context.records
        if self.cache.get(key) is None:
            made = await self.client.create(
                CONFIG_MAPS, key.namespace, encode({"metadata": {"name": name}}), codec=JSON
            )
            self.cache.observe(made)
        done = ((self.cache.get(key) or {}).get("data") or {}).get("done")
        if done is None:
            return Waiting("being copied", [record])
        check = HealthCheckStep.model_validate({"uses": "copy", "config": {"namespace": key.namespace, "name": name}})
        ended = [record.ended(TargetState.SUCCEEDED, "copied")]
        return Finished(StepStatus.SUCCEEDED, records=ended, health_check=check, output={"copied": done})

    async def stop(self, context: StepContext, *, give_up: bool) -> Finished:
        return Finished(StepStatus.ABORTED, "the copy was left", records=context.records)

    def assess(self, configs: Sequence[Mapping[str, Any]]) -> HealthVerdict:
        """Judge by ``data.health``."""
        (config,) = configs
        data = (self.cache.get(Key(config["namespace"], config["name"])) or {}).get("data") or {}
        return HealthVerdict(data.get("health", "Unknown"))

    async def refresh(self, configs: Sequence[Mapping[str, Any]]) -> None:
        """There is nobody to ask."""

    def checked(self, config: Mapping[str, Any]) -> Sequence[Key]:
        return [Key(config["namespace"], config["name"])]


async def test_a_step_from_outside() -> None:
    """It runs beside ours; events on its targets wake its Promotion and, by its health check, its Stage."""
    async with universe() as (world, _):
        await create_namespaces(world.user, "elsewhere")
        client = client_of(world.core)
        cache = Cache(client, CONFIG_MAPS, codec=JSON)
        copy = Copy(cache, client)
        watch = Watch(cache, lambda obj: JSON.meta(obj).key)
        target = Key(PROJECT, "c1")

        async def set_data(**data: str) -> None:
            await world.user.patch(CONFIG_MAPS, target, encode({"data": data}), codec=JSON)

        handed_in = settings(world, steps={"copy": copy}, checkers={"copy": copy}, watches=[watch])
        async with Controllers(client, **handed_in):
            step = {"uses": "copy", "as": "copy", "config": {"name": "c1"}}
            await world._create(PROMOTIONS, "p1", spec={"stage": "dev", "freight": "f1", "steps": [step]})
            await world.until(lambda: cache.get(target) is not None and world.phase() == "Running")
            await set_data(done="yes", health="Progressing")
            began = asyncio.get_running_loop().time()
            assert await world.ended() == "Succeeded"
            assert asyncio.get_running_loop().time() - began < 2
            await asyncio.sleep(5)
            await set_data(health="Healthy")
            began = asyncio.get_running_loop().time()
            await verified(world)
            assert asyncio.get_running_loop().time() - began < 2
