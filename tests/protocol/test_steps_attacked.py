"""Steps whose end cannot be written, whose answers cannot be looked at, and Promotions that come in odd states."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

import pytest
from structlog.testing import capture_logs

from kargo_py.api.promotion import HealthCheckStep, StepStatus
from kargo_py.controllers.lookups import CONFIG_MAPS, SECRETS
from kargo_py.controllers.world import PROMOTIONS, STAGES
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.errors import ServerError
from kargo_py.kube.resources import Key
from kargo_py.steps.base import Erred, Finished, Intend, StepContext, StepOutcome, StopOutcome, Waiting
from kargo_py.steps.step import Effect
from tests.protocol.test_steps import DONE, RAN, Toy, hang, toy
from tests.protocol.universe import PROJECT, Universe

pytestmark = pytest.mark.looptime

FREIGHT = {"name": "f1", "origin": {"kind": "Warehouse", "name": "wh"}}
THEN = "2026-11-30T12:00:00Z"


async def in_state(world: Universe, status: dict[str, Any], *steps: dict[str, Any], **spec: Any) -> None:
    """A Promotion that something else has brought so far."""
    await world._create(PROMOTIONS, "p1", spec={"stage": "dev", "freight": "f1", "steps": list(steps), **spec})
    current = {"currentPromotion": {"name": "p1", "freight": FREIGHT}}
    for resource, name, written in ((PROMOTIONS, "p1", status), (STAGES, "dev", current)):
        body = encode({"status": written})
        await world.user.patch(resource, Key(PROJECT, name), body, codec=JSON, subresource="status")


async def secret(world: Universe, **data: str) -> None:
    encoded = {name: base64.b64encode(value.encode()).decode() for name, value in data.items()}
    await world.user.create(SECRETS, PROJECT, encode({"metadata": {"name": "s"}, "data": encoded}), codec=JSON)


# -- effects that may not be repeated ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "phase"),
    [(DONE, "Succeeded"), (Finished(StepStatus.FAILED, "no"), "Failed"), (Erred("boom"), "Errored")],
)
@pytest.mark.parametrize("last", [True, False])
async def test_an_end_that_cannot_be_written_is_not_sought_again(answer: StepOutcome, phase: str, last: bool) -> None:
    """The API server is away for a while after the effect: the answer of the step is written once that can be done."""
    world = Universe()
    async with world.core:
        await world.prepare()
        once = Toy(answer, effect=Effect.ONCE)
        async with world.process(further={"once": once, "toy": Toy()}) as process:
            failures = 3

            async def fail(where: str, *_: Any) -> None:
                nonlocal failures
                if where == "promotions/status" and once.calls and failures:
                    failures -= 1
                    raise ServerError(503, "ServiceUnavailable", "not now")

            process.line.before_patch = fail
            await world.run(toy("once"), *([] if last else [toy(**{"if": "${{ always() }}"})]))
            assert await world.ended() == phase
            assert not failures
    assert len(once.calls) == 1


@pytest.mark.parametrize("place", ["if", "config", "vars"])
async def test_an_end_is_on_record_before_anything_is_read(place: str) -> None:
    """A process that dies while it reads what the next step needs has left no effect that would be had again."""
    template = "${{ configMap('absent').x == 'y' }}"
    values: dict[str, Any] = {
        "if": template,
        "config": {"say": template},
        "vars": [{"name": "x", "value": template}],
    }
    step = toy(**{"config": {"say": "${{ vars.x }}"}, place: values[place]})
    world = Universe()
    async with world.core:
        await world.prepare()
        known: list[list[str]] = []
        async with world.process(further={"once": Toy(effect=Effect.ONCE), "toy": Toy()}) as process:
            get = process.line.get

            async def looks(resource: Any, key: Key, **options: Any) -> Any:
                if resource == CONFIG_MAPS:
                    known.append([m["status"] for m in world.promotion()["status"]["stepExecutionMetadata"]])
                return await get(resource, key, **options)

            process.line.get = looks  # type: ignore[method-assign]
            await world.run(toy("once"), step)
            assert await world.ended(seconds=60) in {"Succeeded", "Errored"}
    assert [statuses[:1] for statuses in known] == [[RAN]]


# -- answers that cannot be looked at ----------------------------------------------------------------------------------


class Broken(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise RuntimeError("broken")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("broken")

    def __len__(self) -> int:
        return 1


@pytest.mark.parametrize(
    "answer",
    [
        Waiting("x", look_after=10**400),
        Erred("x", retry_after=10**400),
        Finished(StepStatus.SUCCEEDED, output=Broken()),
        Finished(StepStatus.SUCCEEDED, health_check=HealthCheckStep(uses="x", config={"a": float("nan")})),
        Finished(StepStatus.SUCCEEDED, health_check=HealthCheckStep(uses="x", config={"a": object()})),
        Finished(StepStatus.SUCCEEDED, health_check=HealthCheckStep(uses="x", config={"a": "\ud800"})),
        Finished(StepStatus.FAILED, "half \ud800 of it"),
        Erred("half \ud800 of it"),
        RuntimeError("half \ud800 of it"),
    ],
)
async def test_answers_that_cannot_be_recorded(answer: Any) -> None:
    world = Universe()
    async with world.core:
        await world.prepare()
        async with world.process(further={"toy": Toy(answer)}):
            await world.run(toy())
            assert await world.ended(seconds=60) in {"Errored", "Failed"}
    assert "step-1" in world.message() or "kind of step" in world.message()


async def test_intents_that_are_nothing_new() -> None:
    """Nothing loops for ever: not a step either that always wants to be called again, once that is written."""
    world = Universe()
    async with world.core:
        await world.prepare()
        kind = Toy(Intend([]))
        async with world.process(further={"toy": kind}):
            await world.run(toy())
            assert await world.ended(seconds=60) == "Errored"
    assert "Intend, again and again" in world.message()
    assert len(kind.calls) < 20


async def test_intents_that_are_always_new() -> None:
    """A step that has ever more written before it goes on can be aborted."""
    world = Universe()
    numbers = count()

    async def intend(_: StepContext) -> StepOutcome:
        return Intend([], output={"number": next(numbers)})

    async with world.core:
        await world.prepare()
        async with world.process(further={"toy": Toy(intend)}):
            await world.run(toy())
            await world.until(lambda: world.phase() == "Running")
            await world.abort()
            assert await world.ended(seconds=60) == "Aborted"


# -- taken over --------------------------------------------------------------------------------------------------------


async def test_a_kargo_that_ended_in_its_first_pass() -> None:
    """It writes Running first, and all else after the first steps: so it begins with the first step, as Kargo does."""
    world = Universe()
    async with world.core:
        await world.prepare()
        kind = Toy()
        await in_state(world, {"phase": "Running", "startedAt": THEN}, toy(), toy())
        async with world.process(further={"toy": kind}):
            assert await world.ended() == "Succeeded", world.message()
    assert world.promotion()["status"]["freight"]["name"] == "f1"
    assert len(kind.calls) == 2


async def test_what_kargo_said_meanwhile_is_not_the_end() -> None:
    world = Universe()
    async with world.core:
        await world.prepare()
        running = {
            "alias": "step-1",
            "startedAt": THEN,
            "status": "Running",
            "errorCount": 1,
            "message": "x; step will be retried",
        }
        status = {
            "phase": "Running",
            "currentStep": 0,
            "freight": FREIGHT,
            "message": "could not do it",
            "stepExecutionMetadata": [running],
        }
        await in_state(world, status, toy())
        async with world.process(further={"toy": Toy()}):
            assert await world.ended() == "Succeeded"
    assert world.message() == ""


async def test_more_metadata_than_steps() -> None:
    world = Universe()
    async with world.core:
        await world.prepare()
        done = [{"alias": f"step-{n}", "startedAt": THEN, "status": "Succeeded"} for n in (1, 2, 3)]
        await in_state(
            world, {"phase": "Running", "currentStep": 2, "freight": FREIGHT, "stepExecutionMetadata": done}, toy()
        )
        async with world.process(further={"toy": Toy()}):
            assert await world.ended(seconds=60) == "Errored"


async def test_hand_edited_texts() -> None:
    world = Universe()
    async with world.core:
        await world.prepare()
        state = {"kargo-py.io/texts": {"a": {"x": "y", "": "z"}, "a::b": 7}, "a": {"k": 1}}
        running = {"alias": "a::c", "startedAt": THEN, "status": "Running"}
        status = {
            "phase": "Running",
            "currentStep": 0,
            "freight": FREIGHT,
            "state": state,
            "stepExecutionMetadata": [running],
        }
        await in_state(world, status, {"uses": "compose-output", "as": "a::c", "config": {"v": "${{ outputs.a }}"}})
        async with world.process(further={"toy": Toy()}):
            assert await world.ended(seconds=60) == "Succeeded", world.message()


# -- secrets -----------------------------------------------------------------------------------------------------------

LONG = "".join(f"{n:04x}" for n in range(40, 700, 7))
QUOTED = 'it\'s "it" \\ and\nmore of it'


def everything(world: Universe, logs: Any) -> str:
    stage = world._object(STAGES, Key(PROJECT, "dev"))
    return json.dumps([world.promotion(), stage, world.events(), [str(entry) for entry in logs]])


@pytest.mark.parametrize(
    "step",
    [
        toy(**{"if": "${{ secret('s').long }}"}),
        toy(config={"say": "${{ int(secret('s').long) }}"}),
        toy(config={"say": "${{ configMap(secret('s').long).x }}"}),
        toy(config={"say": "${{ {}[secret('s').long].x.y }}"}),
        toy(config={"say": "${{ semverParse(secret('s').long) }}"}),
        toy(config={"say": "${{ commitFrom(secret('s').long).ID }}"}),
        toy(config={"say": "${{ 'a' matches secret('s').long + '(' }}"}),
        toy(config={"say": "${{ date(secret('s').long) }}"}),
        toy(config={"say": "${{ duration(secret('s').long) }}"}),
        {"uses": "argocd-update", "config": {"apps": [{"name": "${{ secret('s').long }}"}]}},
        {
            "uses": "set-metadata",
            "config": {"updates": [{"kind": "${{ secret('s').long }}", "name": "x", "values": {}}]},
        },
        {"uses": "http", "config": {"url": "${{ secret('s').long }}"}},
        {"uses": "http", "config": {"url": "http://127.0.0.1:1/${{ secret('s').long }}"}},
        {"uses": "http", "config": {"url": "http://127.0.0.1:1/", "method": "${{ secret('s').long }}"}},
        {"uses": "http", "config": {"url": "http://127.0.0.1:1/", "timeout": "${{ secret('s').long }}"}},
        {"uses": "http", "config": {"url": "http://127.0.0.1:1/", "successExpression": "${{ secret('s').long }}"}},
        {"uses": "fail", "config": {"message": "x${{ secret('s').long }}"}},
        {"uses": "set-freight-alias", "config": {"freightName": "f1", "newAlias": "${{ secret('s').long }}"}},
    ],
)
async def test_no_part_of_a_secret_is_told(step: dict[str, Any]) -> None:
    """Texts that quote values quote the beginning only, which is as secret."""
    world = Universe()
    async with world.core:
        await world.prepare()
        await secret(world, long=LONG, quoted=QUOTED)
        with capture_logs() as logs:
            async with world.process(further={"toy": Toy()}):
                await world.run(step, {**toy(), "if": "${{ always() }}"})
                await world.ended()
                await asyncio.sleep(10)
    assert LONG[:16] not in everything(world, logs)


async def test_what_is_made_of_a_secret_variable_is_secret() -> None:
    """Also where the expression itself looks up nothing; other variables stay readable."""
    world = Universe()

    async def blurt(context: StepContext) -> StepOutcome:
        return Finished(StepStatus.FAILED, f"header was {context.config['text']}", output={"h": context.config["text"]})

    async with world.core:
        await world.prepare()
        await secret(world, pw="hunter2-is-my-pass")
        with capture_logs() as logs:
            async with world.process(further={"toy": Toy(blurt)}):
                spec = {
                    "stage": "dev",
                    "freight": "f1",
                    "vars": [
                        {"name": "pw", "value": "${{ secret('s').pw }}"},
                        {"name": "tag", "value": "v1.2.3-alpha"},
                    ],
                    "steps": [
                        toy(config={"text": "Basic ${{ toBase64('root:' + vars.pw) }} ${{ vars.tag + '-more' }}"}),
                    ],
                }
                await world._create(PROMOTIONS, "p1", spec=spec)
                await world.ended()
    assert base64.b64encode(b"root:hunter2-is-my-pass").decode() not in everything(world, logs)
    assert "v1.2.3-alpha-more" in world.message()


async def test_an_error_of_a_stop_is_masked_in_the_log() -> None:
    class Sticky(Toy):
        async def stop(self, context: StepContext, *, give_up: bool) -> StopOutcome:
            raise ServerError(500, "InternalError", f"{context.config['text']} {give_up}")

    world = Universe()
    async with world.core:
        await world.prepare()
        await secret(world, pw="hunter2-is-my-pass")
        with capture_logs() as logs:
            async with world.process(further={"toy": Sticky(hang)}):
                await world.run(toy(config={"text": "${{ secret('s').pw }}"}))
                await world.until(lambda: world.phase() == "Running")
                await world.abort()
                assert await world.ended() == "Aborted"
    assert "ServerError: *** True" in world.message()
    assert any(entry.get("error") == "*** False" for entry in logs)
    assert "hunter2" not in everything(world, logs)


@pytest.mark.parametrize(
    ("retry", "seconds", "message"),
    [({"timeout": "1m"}, 60, "timed out after 1m0s"), ({}, 600, "cannot be read again")],
)
async def test_secrets_of_steps_before_that_cannot_be_read(retry: dict[str, str], seconds: int, message: str) -> None:
    """After a restart: neither is the time of the step that runs forgotten, nor is it tried for ever."""
    world = Universe()
    async with world.core:
        await world.prepare()
        await secret(world, pw="hunter2-is-my-pass")
        kinds = {"toy": Toy(), "slow": Toy(hang)}
        async with world.process(further=kinds) as first:
            await world.run(toy(config={"text": "${{ secret('s').pw }}"}), toy("slow", retry=retry))
            await world.until(lambda: world.phase() == "Running")
            await first.kill()
        began = asyncio.get_running_loop().time()
        async with world.process(further=kinds) as second:
            get = second.line.get

            async def fail(resource: Any, key: Key, **options: Any) -> Any:
                if resource == SECRETS:
                    raise ServerError(500, "InternalError", "unable to transform key")
                return await get(resource, key, **options)

            second.line.get = fail  # type: ignore[method-assign]
            assert await world.ended() == "Errored"
    assert seconds - 2 <= asyncio.get_running_loop().time() - began < seconds + 70
    assert message in world.message()


async def test_health_checks_that_are_too_much() -> None:
    """Whatever makes a Promotion larger than etcd takes it: that is no outage that passes."""
    world = Universe()
    async with world.core:
        await world.prepare()
        check = HealthCheckStep(uses="x", config={"a": "b" * 400_000})
        async with world.process(further={"toy": Toy(Finished(StepStatus.SUCCEEDED, health_check=check))}):
            await world.run(*(toy() for _ in range(6)))
            assert await world.ended(seconds=60) == "Errored"
    assert "request is too large" in world.message()


async def test_a_step_after_one_that_failed() -> None:
    """Something else has written so: it does not run, as if we had written it."""
    world = Universe()
    async with world.core:
        await world.prepare()
        kind = Toy()
        failed = {"alias": "step-1", "status": "Failed", "startedAt": THEN, "message": "no"}
        status = {"phase": "Running", "currentStep": 1, "freight": FREIGHT, "stepExecutionMetadata": [failed]}
        await in_state(world, status, toy(), toy())
        async with world.process(further={"toy": kind}):
            assert await world.ended() == "Failed"
    assert not kind.calls


async def test_texts_of_a_tasks_outputs_that_are_put_out_anew() -> None:
    """The text 1.30 is of the first value, not of the second."""
    steps = [
        {"uses": "compose-output", "as": "t::a", "config": {"v": "${{ '1.30' }}", "w": "${{ '1.40' }}"}},
        {"uses": "compose-output", "as": "t::b", "config": {"v": 7}},
        {"uses": "compose-output", "as": "c", "config": {"is": "${{ outputs.t.v }}/${{ outputs.t.w }}"}},
    ]
    world = Universe()
    async with world.core:
        await world.prepare()
        async with world.process():
            await world.run(*steps)
            assert await world.ended() == "Succeeded"
    assert world.promotion()["status"]["state"]["c"] == {"is": "7/1.40"}
