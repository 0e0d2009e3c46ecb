"""Promotions that somebody touches while one of their steps is at work, or that somebody else has begun or edited."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kargo_py.api.promotion import StepStatus
from kargo_py.controllers.promotion_stepping import NO_STEP_RUNS
from kargo_py.controllers.world import PROMOTIONS, STAGES
from kargo_py.kube.client import PatchType
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.resources import Key
from kargo_py.steps.argocd_update import USES
from kargo_py.steps.base import Erred, Finished, Intend, StepContext, StepOutcome, Waiting
from kargo_py.steps.step import Effect
from tests.protocol.test_steps import DONE, Toy, toy
from tests.protocol.universe import APP, PROJECT, Universe, universe

pytestmark = pytest.mark.looptime


async def touch(world: Universe) -> None:
    """Somebody writes the Promotion: a label that means nothing to us."""
    key = Key(PROJECT, world.promotion()["metadata"]["name"])
    body = {"metadata": {"labels": {"touched": str(world.now().timestamp())}}}
    await world.user.patch(PROMOTIONS, key, encode(body), codec=JSON)


@pytest.mark.parametrize("seconds", [0.0, 30.0], ids=["at once", "later"])
async def test_an_effect_is_not_repeated_because_of_a_conflict(seconds: float) -> None:
    """Somebody writes the Promotion while the call is under way: its answer is recorded, and it is not repeated."""
    world = Universe()

    async def act(_: StepContext) -> StepOutcome:
        await asyncio.sleep(seconds)
        await touch(world)
        return DONE

    once = Toy(act, effect=Effect.ONCE)
    async with world.core:
        await world.prepare()
        async with world.process(further={"once": once, "toy": Toy()}):
            await world.run(toy(), toy("once"), toy())
            assert await world.ended() == "Succeeded"
    assert len(once.calls) == 1


async def edit(world: Universe, **status: Any) -> None:
    """Somebody else writes the status of the Promotion while it runs."""
    body = encode({"status": status})
    await world.user.patch(PROMOTIONS, Key(PROJECT, "p1"), body, codec=JSON, subresource="status")


@pytest.mark.parametrize("seconds", [0.0, 30.0], ids=["at once", "later"])
async def test_an_effect_is_not_repeated_because_somebody_wrote_the_status(seconds: float) -> None:
    """What has come of the call is put onto the status as it is by then; what the other one wrote stays."""
    world = Universe()

    async def act(_: StepContext) -> StepOutcome:
        await asyncio.sleep(seconds)
        first = world.promotion()["status"]["stepExecutionMetadata"]
        await edit(
            world,
            message="hands off",
            state={"theirs": {"kept": True}},
            stepExecutionMetadata=[{**first[0], "message": "theirs"}, {**first[1], "message": "theirs, too"}],
        )
        return Finished(StepStatus.SUCCEEDED, "posted", output={"posted": "yes"})

    once = Toy(act, effect=Effect.ONCE)
    async with world.core:
        await world.prepare()
        async with world.process(further={"once": once, "toy": Toy(Waiting("a moment"), DONE)}):
            await world.run(toy(), toy("once"), toy())
            assert await world.ended() == "Succeeded"
    status = world.promotion()["status"]
    assert len(once.calls) == 1
    assert status["state"]["step-2"] == {"posted": "yes"}
    assert status["state"]["theirs"] == {"kept": True}
    assert [step.get("message") for step in status["stepExecutionMetadata"]] == ["theirs", "posted", None]


async def test_an_error_that_was_counted_is_put_onto_what_somebody_wrote() -> None:
    """A call that erred was one of those that may be made, and the pause after it is kept."""
    world = Universe()
    called: list[float] = []

    async def act(_: StepContext) -> StepOutcome:
        called.append(asyncio.get_running_loop().time())
        await edit(world, message=f"edited {len(called)}")
        return Erred("no", retry_after=60.0)

    once = Toy(act, effect=Effect.ONCE)
    async with world.core:
        await world.prepare()
        async with world.process(further={"once": once}):
            await world.run(toy("once", retry={"errorThreshold": 2}))
            assert await world.ended() == "Errored"
    assert len(called) == 2
    assert called[1] - called[0] >= 60
    assert world.promotion()["status"]["stepExecutionMetadata"][0]["errorCount"] == 2


async def test_an_end_does_not_outlive_the_step() -> None:
    """Somebody else has ended the step meanwhile: what is on record then holds, and nothing is called again."""
    world = Universe()

    async def act(_: StepContext) -> StepOutcome:
        first = world.promotion()["status"]["stepExecutionMetadata"]
        ended = {**first[0], "status": "Skipped", "finishedAt": "2026-11-30T12:00:01Z"}
        await edit(world, currentStep=1, stepExecutionMetadata=[ended])
        return Finished(StepStatus.FAILED, "no")

    once = Toy(act, effect=Effect.ONCE)
    async with world.core:
        await world.prepare()
        async with world.process(further={"once": once, "toy": Toy()}):
            await world.run(toy("once"), toy())
            assert await world.ended() == "Succeeded"
    steps = world.promotion()["status"]["stepExecutionMetadata"]
    assert [step["status"] for step in steps] == ["Skipped", "Succeeded"]
    assert len(once.calls) == 1


async def test_an_effect_is_not_repeated_because_the_server_was_away() -> None:
    """What a call has done is not forgotten while its end cannot be written."""
    world = Universe()

    async def act(_: StepContext) -> StepOutcome:
        process.line.away = True
        return Finished(StepStatus.SUCCEEDED, output={"posted": "yes"})

    once = Toy(act, effect=Effect.ONCE)
    async with world.core:
        await world.prepare()
        async with world.process(further={"once": once, "toy": Toy()}) as process:
            await world.run(toy(), toy("once"), toy())
            await asyncio.sleep(60)
            assert world.phase() == "Running"
            process.line.away = False
            assert await world.ended() == "Succeeded"
    assert len(once.calls) == 1
    assert world.promotion()["status"]["state"]["step-2"] == {"posted": "yes"}


async def test_an_abort_does_not_undo_an_end() -> None:
    """The last step has ended when the abort is asked for: what could not be written by that is still true."""
    world = Universe()

    async def act(_: StepContext) -> StepOutcome:
        await world.abort()
        return DONE

    async with world.core:
        await world.prepare()
        async with world.process(further={"once": Toy(act, effect=Effect.ONCE)}):
            await world.run(toy("once"))
            assert await world.ended() == "Succeeded"


async def test_an_abort_between_two_steps() -> None:
    """The step that has ended stays Succeeded, and the next one does not begin."""
    world = Universe()

    async def act(_: StepContext) -> StepOutcome:
        await world.abort()
        return DONE

    once, after = Toy(act, effect=Effect.ONCE), Toy(effect=Effect.ONCE)
    async with world.core:
        await world.prepare()
        async with world.process(further={"once": once, "after": after}):
            await world.run(toy("once"), toy("after"))
            assert await world.ended() == "Aborted"
    steps = world.promotion()["status"]["stepExecutionMetadata"]
    assert [step["status"] for step in steps] == ["Succeeded"]
    assert (len(once.calls), len(after.calls)) == (1, 0)


class Insatiable(Toy):
    """Wants something written before it ends, again and again."""

    async def time_out(self, context: StepContext, message: str) -> StepOutcome:
        del message
        self.stopped.append(context)
        return Intend([])


async def test_a_step_that_never_ends_when_its_time_is_up() -> None:
    """It is ended all the same, when it has had its say often enough."""
    world = Universe()
    step = Insatiable(Waiting("for ever"))
    async with world.core:
        await world.prepare()
        async with world.process(further={"toy": step}):
            await world.run(toy(retry={"timeout": "30s"}))
            assert await world.ended() == "Errored"
    assert world.message() == 'step "step-1" timed out after 30s: for ever'
    assert len(step.stopped) == 21


async def written(world: Universe, **status: Any) -> None:
    """Somebody else has written the status of a Promotion whose turn it is."""
    running = {"phase": "Running", "startedAt": "2026-11-30T11:59:00Z", **status}
    for resource, name, body in (
        (PROMOTIONS, "p1", running),
        (STAGES, "dev", {"currentPromotion": {"name": "p1"}}),
    ):
        patch = encode({"status": body})
        await world.user.patch(resource, Key(PROJECT, name), patch, codec=JSON, subresource="status")


async def test_a_promotion_that_is_only_running_begins() -> None:
    """A real Kargo that was killed right after its first write leaves that, and nothing else."""
    world = Universe()
    async with world.core:
        await world.prepare()
        await world.run(toy(), toy())
        await written(world)
        async with world.process(further={"toy": Toy()}):
            assert await world.ended() == "Succeeded"
    status = world.promotion()["status"]
    assert status["startedAt"] == "2026-11-30T11:59:00Z"
    assert status["freight"]["name"] == "f1"
    assert len(status["stepExecutionMetadata"]) == 2


async def test_its_sync_is_taken_over() -> None:
    """It may have started a sync before it was killed: that one is taken for the step's."""
    async with universe() as (world, argo):
        argo.application(APP.name).next_sync(duration=90)
        info = [{"name": "kargo.akuity.io/promotion", "value": "p1"}]
        await world.write({"operation": {"info": info, "sync": {}}})
        await world.run({"uses": USES, "config": {"apps": [{"name": APP.name}]}})
        await written(world)
        async with world.process():
            assert await world.ended() == "Succeeded"
    assert not world.starts()


async def test_fewer_steps_than_have_run() -> None:
    """Somebody has taken steps away from a Promotion that runs: it ends, and says so."""
    world = Universe()
    async with world.core:
        await world.prepare()
        await world.run(toy())
        steps = [
            {"alias": f"step-{number}", "status": "Succeeded", "startedAt": "2026-11-30T12:00:00Z"} for number in (1, 2)
        ]
        freight = {"name": "f1", "origin": {"kind": "Warehouse", "name": "wh"}}
        await written(world, currentStep=2, stepExecutionMetadata=steps, freight=freight)
        async with world.process(further={"toy": Toy()}):
            assert await world.ended() == "Errored"
    assert world.message() == NO_STEP_RUNS()


@pytest.mark.parametrize("found", [{}, {"currentPromotion": {"name": "gone"}}], ids=["nothing", "another"])
async def test_a_stage_that_was_made_to_forget_what_runs(found: dict[str, Any]) -> None:
    """Somebody writes the Stage's status while its Promotion runs: the Stage names it again, and it ends."""
    world, go_on = Universe(), asyncio.Event()

    async def act(_: StepContext) -> StepOutcome:
        await go_on.wait()
        return DONE

    async with world.core:
        await world.prepare()
        async with world.process(further={"toy": Toy(act)}):
            await world.run(toy(), toy())
            await world.until(lambda: world.phase() == "Running")
            await asyncio.sleep(5)
            body, stage = encode([{"op": "replace", "path": "/status", "value": found}]), Key(PROJECT, "dev")
            await world.user.patch(STAGES, stage, body, codec=JSON, subresource="status", patch_type=PatchType.JSON)
            await asyncio.sleep(5)
            assert world._object(STAGES, stage)["status"]["currentPromotion"]["name"] == "p1"
            go_on.set()
            assert await world.ended(seconds=5) == "Succeeded"
