"""Calls that hang when their Promotion is aborted or deleted, or the controller ends; and what is secret by then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from kargo_py.api.promotion import HealthCheckStep, StepStatus
from kargo_py.controllers.lookups import SECRETS
from kargo_py.controllers.world import PROMOTIONS, STAGES
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.errors import ServerError
from kargo_py.kube.resources import Key
from kargo_py.steps.base import Finished, Intend, StepContext, StepOutcome, StopOutcome, Waiting
from kargo_py.steps.step import Effect, Work
from tests.protocol.test_steps import DONE, RAN, Toy, hang, said, toy
from tests.protocol.test_steps_attacked import everything, secret
from tests.protocol.universe import PROJECT, Process, Universe

pytestmark = pytest.mark.looptime

FORCE = '{"action": "terminate", "force": true}'
PASSWORD = "hunter2-is-my-pass"


class Asks(Toy):
    """Asks API servers only, so that its calls are awaited."""

    work = Work.API


async def called(kind: Toy) -> None:
    """A call of which nothing is written has begun."""
    async with asyncio.timeout(100):
        while not kind.calls:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.5)


def clock() -> float:
    return asyncio.get_running_loop().time()


class Hanging:
    """What hangs, and when it was cancelled."""

    def __init__(self) -> None:
        self.cancelled_at: float | None = None

    async def __call__(self, *_: Any) -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled_at = clock()
            raise


@pytest.mark.parametrize(("value", "least", "most"), [("terminate", 30, 33), (FORCE, 0, 3)])
@pytest.mark.parametrize("before", [False, True])
async def test_an_abort_of_a_call_that_hangs(value: str, least: float, most: float, before: bool) -> None:
    """It may end by itself for a while, unless the abort is forced; then it is cancelled, and its step stopped."""
    hanging = Hanging()
    kind = Asks(hanging)
    world = Universe()
    async with world.core:
        await world.prepare()
        async with world.process(further={"asks": kind, "toy": Toy()}):
            await world.run(*([toy()] if before else []), toy("asks"))
            await called(kind)
            began = clock()
            await world.abort(value=value)
            assert await world.ended() == "Aborted"
            assert least <= clock() - began < most
    assert len(kind.calls) == len(kind.stopped) == 1
    assert hanging.cancelled_at is not None
    assert [m["status"] for m in world.promotion()["status"]["stepExecutionMetadata"]] == [RAN] * before + ["Aborted"]


async def test_a_call_that_ends_by_itself_once_it_is_called_off() -> None:
    """It is not cancelled, and what it answers counts; nothing more is begun."""

    async def looks(context: StepContext) -> StepOutcome:
        while not context.called_off():  # noqa: ASYNC110 - as steps do it
            await asyncio.sleep(5)
        await asyncio.sleep(10)
        return Finished(StepStatus.SUCCEEDED, output={"made": 1})

    world, kind, after = Universe(), Asks(looks, effect=Effect.ONCE), Toy(hang)
    async with world.core:
        await world.prepare()
        async with world.process(further={"asks": kind, "toy": after}):
            await world.run(toy("asks"), toy())
            await called(kind)
            await asyncio.sleep(7)
            await world.abort()
            assert await world.ended() == "Aborted"
    assert not after.calls
    assert world.promotion()["status"]["state"]["step-1"] == {"made": 1}
    assert world.promotion()["status"]["stepExecutionMetadata"][0]["status"] == RAN


async def test_an_abort_that_is_withdrawn_in_time() -> None:
    """The call goes on as if nothing had been."""
    release = asyncio.Event()

    async def waits(_: StepContext) -> StepOutcome:
        await release.wait()
        return DONE

    world, kind = Universe(), Asks(waits, effect=Effect.ONCE)
    async with world.core:
        await world.prepare()
        async with world.process(further={"asks": kind}):
            await world.run(toy("asks"))
            await called(kind)
            for _ in range(3):
                await world.abort()
                await asyncio.sleep(20)
                await world.abort(value="")
                await asyncio.sleep(2)
            release.set()
            assert await world.ended() == "Succeeded"
    assert len(kind.calls) == 1


async def test_a_promotion_that_is_deleted_while_a_call_hangs() -> None:
    hanging = Hanging()
    world, kind = Universe(), Asks(hanging)
    async with world.core:
        await world.prepare()
        async with world.process(further={"asks": kind}) as process:
            await world.run(toy("asks"))
            await called(kind)
            began = clock()
            await world.delete()
            await asyncio.sleep(5)
            assert process.promotions.longest is None
    assert hanging.cancelled_at is not None
    assert hanging.cancelled_at - began < 3


async def test_a_deletion_that_a_finalizer_holds_up() -> None:
    """It is an abort like another."""
    world, kind = Universe(), Asks(Hanging())
    async with world.core:
        await world.prepare()
        async with world.process(further={"asks": kind, "toy": Toy()}):
            await world.run(toy(), toy("asks"))
            await called(kind)
            body = encode({"metadata": {"finalizers": ["example.com/hold"]}})
            await world.user.patch(PROMOTIONS, Key(PROJECT, "p1"), body, codec=JSON)
            began = clock()
            await world.delete()
            assert await world.ended() == "Aborted"
            assert 30 <= clock() - began < 33


async def test_the_controller_ends_while_a_call_hangs() -> None:
    """It does not wait an hour; the next one makes the call again."""
    hanging = Hanging()
    world, kind = Universe(), Asks(hanging, DONE)
    async with world.core:
        await world.prepare()
        async with world.process(further={"asks": kind}):
            await world.run(toy("asks"))
            await called(kind)
            began = clock()
        assert clock() - began < 30
        assert hanging.cancelled_at is not None
        async with world.process(further={"asks": kind}):
            assert await world.ended() == "Succeeded"


@pytest.mark.parametrize("late", [False, True])
async def test_a_step_that_hangs_when_it_is_to_end(late: bool) -> None:
    """Whether it was to stop or its time was up: by force it is told to give up at once."""
    hanging = Hanging()
    give_ups = list[bool]()

    class Stuck(Toy):
        async def stop(self, context: StepContext, *, give_up: bool) -> StopOutcome:
            give_ups.append(give_up)
            stopped: StopOutcome = await super().stop(context, give_up=True) if give_up or late else await hanging()
            return stopped

        async def time_out(self, context: StepContext, message: str) -> StepOutcome:
            outcome: StepOutcome = await hanging()
            return outcome

    world, kind = Universe(), Stuck(hang)
    async with world.core:
        await world.prepare()
        async with world.process(further={"stuck": kind}):
            await world.run(toy("stuck", retry={"timeout": "10s"} if late else {}))
            await world.until(lambda: world.phase() == "Running")
            if late:
                await asyncio.sleep(15)
            else:
                await world.abort()
                await asyncio.sleep(5)
            began = clock()
            await world.abort(value=FORCE)
            assert await world.ended() == "Aborted"
            assert clock() - began < 3
    assert hanging.cancelled_at is not None
    assert give_ups == ([True] if late else [False, True])


async def test_a_stop_that_takes_longer_than_there_is_patience() -> None:
    """When it has ended at last the step is told to give up, not a minute later."""
    ended, gave_up = list[float](), list[float]()

    class Slow(Toy):
        async def stop(self, context: StepContext, *, give_up: bool) -> StopOutcome:
            if give_up:
                gave_up.append(clock())
                return Finished(StepStatus.ABORTED)
            await asyncio.sleep(100)
            ended.append(clock())
            return Waiting("it stops")

    world, kind = Universe(), Slow(hang)
    async with world.core:
        await world.prepare()
        async with world.process(further={"slow": kind}, abort_patience=timedelta(seconds=190)):
            await world.run(toy("slow"))
            await called(kind)
            await world.abort()
            assert await world.ended() == "Aborted"
    assert len(ended) == 2
    assert gave_up[0] - ended[-1] < 1


@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize("answer", [Waiting("not yet"), Intend(())], ids=["Waiting", "Intend"])
async def test_a_step_that_does_not_end_when_it_is_to(answer: StopOutcome, forced: bool) -> None:
    """Its Promotion does, and says whose fault it is; that costs no write for ever."""
    asked = list[bool]()

    class Endless(Toy):
        async def stop(self, context: StepContext, *, give_up: bool) -> StopOutcome:
            asked.append(give_up)
            return answer

    world, kind = Universe(), Endless(hang)
    async with world.core:
        await world.prepare()
        async with world.process(further={"endless": kind}, abort_patience=timedelta(seconds=80)):
            await world.run(toy("endless"))
            await called(kind)
            began = clock()
            await world.abort(value=FORCE if forced else "terminate")
            assert await world.ended() == "Aborted"
            assert clock() - began < (5 if forced or isinstance(answer, Intend) else 85)
    assert f"answered what it may not: {type(answer).__name__}, " in world.message()
    assert len(asked) <= 40


# -- secrets of steps before, after a restart --------------------------------------------------------------------------


class Blurts(Toy):
    """Tells what a step before it has used."""

    async def stop(self, context: StepContext, *, give_up: bool) -> StopOutcome:
        self.stopped.append(context)
        return Finished(StepStatus.ABORTED, f"session of {PASSWORD} closed")

    async def time_out(self, context: StepContext, message: str) -> StepOutcome:
        return Finished(StepStatus.ERRORED, f"{message}; session of {PASSWORD} left")


async def blurt(_: StepContext) -> StepOutcome:
    return Finished(StepStatus.FAILED, f"no session of {PASSWORD}")


@contextmanager
def unreadable(process: Process, while_: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """No Secret can be read."""
    get = process.line.get

    async def fail(resource: Any, key: Key, **options: Any) -> Any:
        if resource == SECRETS and while_():
            raise ServerError(500, "InternalError", "unable to transform key")
        return await get(resource, key, **options)

    process.line.get = fail  # type: ignore[method-assign]
    yield


@pytest.mark.parametrize("readable", [True, False])
async def test_an_abort_after_a_restart_tells_no_secret_of_a_step_before(readable: bool) -> None:
    """Where it is not known what is secret, what the step says is not told; it is stopped in any case, at once."""
    world, kind = Universe(), Blurts(hang)
    kinds = {"toy": Toy(), "blurts": kind}
    async with world.core:
        await world.prepare()
        await secret(world, pw=PASSWORD)
        with capture_logs() as logs:
            async with world.process(further=kinds) as first:
                await world.run(toy(config={"text": "${{ secret('s').pw }}"}), toy("blurts"))
                await world.until(lambda: world.phase() == "Running")
                await first.kill()
            await world.abort()
            began = clock()
            async with world.process(further=kinds) as second:
                with unreadable(second, lambda: not readable):
                    assert await world.ended() == "Aborted"
                reads = [kind for kind, _ in second.line.gets].count("Secret")
            assert clock() - began < 10
    assert len(kind.stopped) == 1
    assert PASSWORD not in everything(world, logs)
    assert ("session of *** closed" if readable else "is not told") in world.message()
    assert reads == readable
    assert any(entry["event"] == "Secrets of earlier steps cannot be read" for entry in logs) is not readable


async def test_no_step_goes_on_before_it_is_known_what_is_secret() -> None:
    """After one whose time was up meanwhile, and which tells nothing: the steps after it wait."""
    world = Universe()
    kinds = {"toy": Toy(), "blurts": Blurts(hang), "blurt": Toy(blurt)}
    async with world.core:
        await world.prepare()
        await secret(world, pw=PASSWORD)
        with capture_logs() as logs:
            async with world.process(further=kinds) as first:
                await world.run(
                    toy(config={"text": "${{ secret('s').pw }}"}),
                    toy("blurts", retry={"timeout": "1m"}),
                    toy("blurt", **{"if": "${{ always() }}"}),
                )
                await world.until(lambda: world.phase() == "Running")
                await first.kill()
            async with world.process(further=kinds) as second:
                until = clock() + 200
                with unreadable(second, lambda: clock() < until):
                    assert await world.ended() == "Errored"
                assert clock() >= until
    assert PASSWORD not in everything(world, logs)
    said = [m["message"] for m in world.promotion()["status"]["stepExecutionMetadata"][1:]]
    assert "what the step says is not told" in said[0]
    assert said[1] == 'step "step-3": no session of ***'


async def test_what_is_not_known_not_to_be_secret_is_not_gone_on_with() -> None:
    """A step that succeeds by then: others are not given a text that stands for its output; its check is as it was."""

    class Late(Toy):
        keeps_time = True

    check = HealthCheckStep(uses="toy", config={"app": "shop"})
    late = Late(hang, Finished(StepStatus.SUCCEEDED, output={"made": "v1"}, health_check=check))
    world, after = Universe(), Toy(said())
    kinds = {"toy": Toy(), "late": late, "after": after}
    async with world.core:
        await world.prepare()
        await secret(world, pw=PASSWORD)
        async with world.process(further=kinds) as first:
            await world.run(
                toy(config={"text": "${{ secret('s').pw }}"}),
                toy("late", retry={"timeout": "1m"}),
                toy("after", config={"say": "${{ outputs['step-2']?.made ?? 'nothing' }}"}),
            )
            await called(late)
            await first.kill()
        async with world.process(further=kinds) as second:
            until = clock() + 200
            with unreadable(second, lambda: clock() < until):
                assert await world.ended() == "Succeeded"
    status = world.promotion()["status"]
    assert status["state"]["step-3"] == {"said": "nothing"}
    assert status["healthChecks"] == [{"uses": "toy", "config": {"app": "shop"}}]


# -- effects that may not be repeated ----------------------------------------------------------------------------------


async def test_an_end_is_not_forgotten_while_there_is_no_stage() -> None:
    """That it waits for the Stage is said without losing what could not be written yet."""
    world, once = Universe(), Toy(effect=Effect.ONCE)
    async with world.core:
        await world.prepare()
        stage = world._object(STAGES, Key(PROJECT, "dev"))
        async with world.process(further={"once": once, "toy": Toy(hang)}) as process:
            failing = True

            async def fail(where: str, *_: Any) -> None:
                if where == "promotions/status" and once.calls and failing:
                    raise ServerError(503, "ServiceUnavailable", "not now")

            process.line.before_patch = fail
            await world.run(toy("once"), toy())
            await called(once)
            orphan = encode({"metadata": {"ownerReferences": None}})
            await world.user.patch(PROMOTIONS, Key(PROJECT, "p1"), orphan, codec=JSON)
            await world.user.delete(STAGES, Key(PROJECT, "dev"))
            await asyncio.sleep(5)
            failing = False
            await asyncio.sleep(300)
            meta = {name: stage["metadata"][name] for name in ("name", "namespace")}
            await world.user.create(STAGES, PROJECT, encode({**stage, "metadata": meta}), codec=JSON)
            current = {"currentPromotion": {"name": "p1", "freight": {"name": "f1"}}}
            body = encode({"status": current})
            await world.user.patch(STAGES, Key(PROJECT, "dev"), body, codec=JSON, subresource="status")
            await asyncio.sleep(300)
    assert len(once.calls) == 1
