"""Promotions of steps that do as they are told: what the loop makes of what they answer, raise and put out."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from kargo_py.api.promotion import StepStatus
from kargo_py.controllers.lookups import SECRETS
from kargo_py.controllers.world import PROMOTIONS, STAGES
from kargo_py.engine.work_dirs import WorkDirs
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.errors import Forbidden, Unreachable
from kargo_py.kube.resources import Key
from kargo_py.steps.base import Erred, Finished, StepContext, StepOutcome, StopOutcome, Waiting
from kargo_py.steps.config import Config
from kargo_py.steps.step import Effect, Step, StepFailed, Work, WorkDirUse
from tests.engine.calling import executor
from tests.protocol.universe import PROJECT, Universe

pytestmark = pytest.mark.looptime

Act = Callable[[StepContext], Awaitable[StepOutcome]]
DONE = Finished(StepStatus.SUCCEEDED)


class ToyConfig(Config):
    """What a toy is told."""

    say: Any = None
    """Anything."""
    text: str | None = None
    """A text."""
    times: int = 1
    """A number."""


class Toy(Step[ToyConfig]):
    """Does what the test says; remembers what it was called with."""

    uses = "toy"
    config_model = ToyConfig
    work = Work.NETWORK

    def __init__(self, *acts: Any, effect: Effect = Effect.NONE, use: WorkDirUse = WorkDirUse.NONE) -> None:
        self.acts = list(acts)
        self.calls: list[StepContext] = []
        self.times: list[float] = []
        self.stopped: list[StepContext] = []
        self._effect = effect
        setattr(self, "work_dir_use", use)  # noqa: B010 - of this one alone

    def effect(self, config: ToyConfig) -> Effect:
        del config
        return self._effect

    async def perform(self, config: ToyConfig, context: StepContext) -> StepOutcome:
        del config
        self.calls.append(context)
        self.times.append(asyncio.get_running_loop().time())
        act = self.acts.pop(0) if len(self.acts) > 1 else self.acts[0] if self.acts else DONE
        if isinstance(act, BaseException):
            raise act
        answer: StepOutcome = await act(context) if callable(act) else act
        return answer

    async def stop(self, context: StepContext, *, give_up: bool) -> StopOutcome:
        self.stopped.append(context)
        return await super().stop(context, give_up=give_up)


def said(**say: Any) -> Act:
    """Put out what the configuration says."""

    async def act(context: StepContext) -> StepOutcome:
        return Finished(StepStatus.SUCCEEDED, output={"said": (context.config or {}).get("say"), **say})

    return act


async def hang(context: StepContext) -> StepOutcome:
    await asyncio.Event().wait()
    raise AssertionError(context)


class Play:
    """A universe without Argo CD, with one process of ours."""

    def __init__(self, world: Universe) -> None:
        self.world = world

    def steps(self) -> list[tuple[str, str]]:
        """Alias and status of each step."""
        status = self.world.promotion()["status"]
        return [(m["alias"], m["status"]) for m in status["stepExecutionMetadata"]]

    def step(self, index: int) -> dict[str, Any]:
        metadata: dict[str, Any] = self.world.promotion()["status"]["stepExecutionMetadata"][index]
        return metadata

    @property
    def state(self) -> dict[str, Any]:
        return dict(self.world.promotion()["status"].get("state") or {})


async def played(*steps: dict[str, Any], seconds: float = 2000, vars: Any = (), **kinds: Toy) -> Play:  # noqa: A002
    """Run a Promotion of *steps* to its end."""
    world = Universe()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(world.core)
        await world.prepare()
        await stack.enter_async_context(world.process(further=kinds))
        spec = {"stage": "dev", "freight": "f1", "steps": list(steps), "vars": list(vars)}
        await world._create(PROMOTIONS, "p1", spec=spec)
        await world.ended(seconds=seconds)
        return Play(world)


def toy(uses: str = "toy", **more: Any) -> dict[str, Any]:
    return {"uses": uses, **more}


# -- which steps run ---------------------------------------------------------------------------------------------------

FAILS = Finished(StepStatus.FAILED, "no")
RAN = "Succeeded"


@pytest.mark.parametrize(
    ("steps", "statuses", "phase", "message"),
    [
        ([toy("bad"), toy()], ["Failed", "Skipped"], "Failed", 'step "step-1": no'),
        ([toy("bad"), toy(**{"if": "${{ always() }}"})], ["Failed", RAN], "Failed", 'step "step-1": no'),
        ([toy("bad"), toy(**{"if": "${{ failure() }}"})], ["Failed", RAN], "Failed", 'step "step-1": no'),
        ([toy(), toy(**{"if": "${{ failure() }}"}), toy()], [RAN, "Skipped", RAN], "Succeeded", ""),
        ([toy("bad", continueOnError=True), toy()], ["Failed", RAN], "Succeeded", ""),
        (
            [toy("bad", continueOnError=True, **{"as": "b"}), toy(**{"if": "${{ status('b') == 'Failed' }}"})],
            ["Failed", RAN],
            "Succeeded",
            "",
        ),
        ([toy(**{"if": "${{ vars.go }}"})], [RAN], "Succeeded", ""),
        (
            [toy(**{"if": "${{ vars.text }}"}), toy()],
            ["Errored", "Skipped"],
            "Errored",
            "error running step \"step-1\": if: the result must be true or false, and it is 'go on'",
        ),
        (
            [toy(**{"if": "${{ int(vars.text) > 1 }}"}), toy(**{"if": "${{ always() }}"})],
            ["Errored", RAN],
            "Errored",
            'error running step "step-1": if: ',
        ),
        (
            [toy("none", **{"if": "${{ vars.go }}"}), toy()],
            ["Errored", "Skipped"],
            "Errored",
            'the kind of step "none" is not registered',
        ),
        ([toy("none", **{"if": "${{ false }}"}), toy()], ["Skipped", RAN], "Succeeded", ""),
        ([toy("none", continueOnError=True), toy()], ["Errored", RAN], "Succeeded", ""),
        (
            [toy(**{"as": "x"}), toy(config={"say": "${{ outputs.x.y.z }}"})],
            [RAN, "Errored"],
            "Errored",
            'error running step "step-2": config: say: cannot fetch y from <nil>',
        ),
        ([toy(config={"times": "${{ vars.text }}"})], ["Failed"], "Failed", "invalid configuration: config.times: "),
    ],
)
async def test_which_steps_run(steps: list[dict[str, Any]], statuses: list[str], phase: str, message: str) -> None:
    variables = [{"name": "go", "value": "${{ 1 < 2 }}"}, {"name": "text", "value": "go on"}]
    play = await played(*steps, toy=Toy(), bad=Toy(FAILS), vars=variables)

    assert [status for _, status in play.steps()] == statuses
    assert play.world.phase() == phase
    assert message in play.world.message()
    assert play.world.promotion()["status"]["currentStep"] == len(steps) - 1
    for metadata in play.world.promotion()["status"]["stepExecutionMetadata"]:
        started = metadata["status"] in {RAN, "Failed"} or "config:" in metadata.get("message", "")
        assert ("startedAt" in metadata) == ("finishedAt" in metadata) == started


async def test_one_write_for_ten_steps() -> None:
    """Steps that do nothing outside are written together with the end."""
    world = Universe()
    async with world.core:
        await world.prepare()
        async with world.process(further={"toy": Toy()}) as process:
            await world.run(*(toy() for _ in range(10)))
            assert await world.ended() == "Succeeded"
            writes = Counter(where for where, key, _ in process.line.writes if key.name == "p1")

    assert writes == {"promotions/status": 1}


@pytest.mark.parametrize(("effect", "count"), [(Effect.NONE, 1), (Effect.INTENDED, 1), (Effect.REPEATABLE, 2)])
async def test_writes_of_steps_with_effects(effect: Effect, count: int) -> None:
    """Before a step does something outside it is on record that the Promotion runs."""
    world = Universe()
    async with world.core:
        await world.prepare()
        async with world.process(further={"toy": Toy(effect=effect)}) as process:
            await world.run(*(toy() for _ in range(3)))
            assert await world.ended() == "Succeeded"
            bodies = [body["status"] for where, key, body in process.line.writes if where == "promotions/status"]

    assert len(bodies) == count
    assert bodies[0]["phase"] == ("Running" if count > 1 else "Succeeded")


async def test_effects_that_may_not_be_repeated() -> None:
    """The start of such a step is on record before it is called, its end before anything else is."""
    world = Universe()
    known: list[tuple[str, ...]] = []

    async def look(_: StepContext) -> StepOutcome:
        metadata = world.promotion()["status"].get("stepExecutionMetadata") or []
        known.append(tuple(m["status"] for m in metadata))
        return DONE

    async with world.core:
        await world.prepare()
        async with world.process(further={"once": Toy(look, effect=Effect.ONCE), "toy": Toy(look)}):
            await world.run(toy(), toy("once"), toy("once"), toy(), toy())
            assert await world.ended() == "Succeeded"

    assert known == [
        (),
        (RAN, "Running"),
        (RAN, RAN, "Running"),
        (RAN, RAN, RAN, "Running"),
        (RAN, RAN, RAN, "Running"),
    ]


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("act", "phase", "message"),
    [
        (StepFailed("not today"), "Failed", 'step "step-1": not today'),
        (RuntimeError("boom"), "Errored", 'error running step "step-1": RuntimeError: boom'),
        (asyncio.CancelledError(), "Errored", 'error running step "step-1": CancelledError'),
        (SystemExit(3), "Errored", 'error running step "step-1": SystemExit: 3'),
        (ExceptionGroup("two", [ValueError("a"), KeyError("b")]), "Errored", "ExceptionGroup: "),
        (Forbidden(403, "Forbidden", "you may not"), "Errored", 'error running step "step-1": you may not'),
        (None, "Errored", "the kind of step answered what it may not"),
        (7, "Errored", "the kind of step answered what it may not"),
        (Finished(StepStatus.RUNNING), "Errored", "the kind of step answered what it may not"),
        (Finished(StepStatus.FAILED), "Failed", 'step "step-1": no reason was given'),
        (Finished(StepStatus.SUCCEEDED, output={"x": {1, 2}}), "Errored", "output.x of step step-1 is of type set"),
        (
            Finished(StepStatus.SUCCEEDED, output={"x": [float("nan")]}),
            "Errored",
            "output.x[0] of step step-1 is the number",
        ),
        (Finished(StepStatus.SUCCEEDED, output={"x": {1: 2}}), "Errored", "output.x of step step-1 is an object with"),
        (
            Finished(StepStatus.SUCCEEDED, output={"x": "y" * 2_400_000}),
            "Errored",
            "output of step step-1 is 2.3 MiB, at most 512 KiB",
        ),
        (asyncio.Event().wait, "Errored", "one call of the step took longer than 1h0m0s and was cancelled"),
    ],
)
async def test_what_a_step_may_do(act: Any, phase: str, message: str) -> None:
    """Whatever a step raises or answers ends in an explained Promotion, and the controller goes on."""

    async def answers(_: StepContext) -> StepOutcome:
        if isinstance(act, BaseException):
            raise act
        answer: StepOutcome = await act() if callable(act) else act
        return answer

    play = await played(toy(), toy=Toy(answers), seconds=4000)

    assert play.world.phase() == phase
    assert message in play.world.message()


async def test_errors_are_counted_in_a_row() -> None:
    """A wait without records in between begins the count anew; a pause follows each error."""
    waits = Waiting("looking", look_after=5)
    bad = Erred("no luck")
    kind = Toy(bad, bad, waits, bad, bad, bad, DONE)
    play = await played(toy(retry={"errorThreshold": 3}), toy=kind)

    assert play.world.message() == 'step "step-1" met error threshold of 3: no luck'
    assert play.step(0)["errorCount"] == 3
    assert [context.errors for context in kind.calls] == [0, 1, 2, 0, 1, 2]
    pauses = [later - before for before, later in pairwise(kind.times)]
    assert all(low <= pause <= low + 1.5 for low, pause in zip((1, 2, 5, 1, 2), pauses, strict=True))


async def test_an_error_that_is_retried_is_told() -> None:
    world = Universe()
    async with world.core:
        await world.prepare()
        kind = Toy(Erred("no", failed=True, output={"tried": 1}, retry_after=50), DONE)
        async with world.process(further={"toy": kind}):
            await world.run(toy(retry={"errorThreshold": 2}))
            await world.until(lambda: world.promotion().get("status", {}).get("stepExecutionMetadata"))
            (step,) = world.promotion()["status"]["stepExecutionMetadata"]
            assert step["message"] == 'step "step-1": no; step will be retried'
            assert (step["status"], step["errorCount"]) == ("Running", 1)
            assert world.promotion()["status"]["state"] == {"step-1": {"tried": 1}}
            assert await world.ended() == "Succeeded"
            assert kind.times[1] - kind.times[0] >= 50


class Punctual(Toy):
    """Sees to its time itself, and does not."""

    keeps_time = True


@pytest.mark.parametrize(
    ("made", "retry", "last"),
    [(Toy, {}, 600.0), (Toy, {"timeout": "40s"}, 40.0), (Punctual, {"timeout": "40s"}, 40.0)],
    ids=["without a time-out", "with one", "with one that the step keeps itself"],
)
async def test_errors_that_pass(made: type[Toy], retry: dict[str, str], last: float) -> None:
    """They do not count as long as the step has time; then they end it. Nothing goes on for ever."""
    kind = made(Unreachable("connection refused"))
    play = await played(toy(retry=retry), toy=kind)

    assert play.world.phase() == "Errored"
    assert "connection refused" in play.world.message()
    assert last - 62 <= kind.times[-1] - kind.times[0] <= last + 62
    assert len(kind.times) > 4


# -- time --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", [hang, Waiting("somebody else"), Erred("no", retry_after=500)])
async def test_time_outs_are_on_time(act: Any) -> None:
    """Also while a call is running, and during a pause."""
    kind = Toy(act)
    play = await played(toy(retry={"timeout": "90s", "errorThreshold": 9}), toy=kind)

    assert play.world.message().startswith('step "step-1" timed out after 1m30s')
    assert play.world.phase() == "Errored"
    ended = play.step(0)["finishedAt"]
    assert ended in {"2026-11-30T12:01:30Z", "2026-11-30T12:01:31Z"}


async def test_what_follows_a_time_out() -> None:
    """The call that is under way is cancelled just then; after that the step ends as it says itself."""
    did: list[tuple[str, float]] = []

    async def hangs(context: StepContext) -> StepOutcome:
        try:
            return await hang(context)
        finally:
            did.append(("cancelled", asyncio.get_running_loop().time()))

    class Tidy(Toy):
        async def time_out(self, context: StepContext, message: str) -> StepOutcome:
            did.append(("ends", asyncio.get_running_loop().time()))
            return Finished(StepStatus.FAILED, f"{message}; tidied up")

    tidy = Tidy(hangs)
    play = await played(toy(retry={"timeout": "90s"}), toy=tidy)

    assert (play.world.phase(), play.world.message()) == ("Failed", 'step "step-1" timed out after 1m30s; tidied up')
    assert [what for what, _ in did] == ["cancelled", "ends"]
    assert all(at - tidy.times[0] == pytest.approx(90, abs=0.5) for _, at in did)


async def test_a_time_in_the_past_means_now() -> None:
    """But not in a busy loop."""
    kind = Toy(*[Waiting("a moment", look_after=-3600)] * 5, DONE)
    play = await played(toy(), toy=kind)

    assert play.world.phase() == "Succeeded"
    assert all(0.04 < later - before < 1 for before, later in pairwise(kind.times))


async def test_an_abort_ends_a_call() -> None:
    """The call is cancelled, and then the step is told to stop."""
    world = Universe()
    async with world.core:
        await world.prepare()
        cancelled = asyncio.Event()

        async def hangs(context: StepContext) -> StepOutcome:
            try:
                return await hang(context)
            finally:
                cancelled.set()

        kind = Toy(hangs)
        async with world.process(further={"toy": kind}):
            await world.run(toy())
            await world.until(lambda: world.phase() == "Running")
            await world.abort()
            assert await world.ended(seconds=20) == "Aborted"
    assert cancelled.is_set()
    assert len(kind.stopped) == 1


async def test_a_long_call_holds_up_nobody() -> None:
    """Neither Promotions to other Stages, more of them than work at once, nor the end of the process."""
    world = Universe()
    async with world.core:
        await world.prepare()
        stage = world._object(STAGES, Key(PROJECT, "dev"))["spec"]
        names = [f"s{number}" for number in range(20)]
        long, short = Toy(hang), Toy()
        async with world.process(further={"long": long, "short": short}):
            for name in names:
                await world._create(STAGES, name, spec=stage)
                steps = [toy("long"), toy("short")]
                await world._create(PROMOTIONS, f"{name}.1", spec={"stage": name, "freight": "f1", "steps": steps})
            await world.until(lambda: all(world.phase(f"{name}.1") == "Running" for name in names), seconds=30)
            began = asyncio.get_running_loop().time()
            await world.run(toy("short"))
            assert await world.ended() == "Succeeded"
            assert asyncio.get_running_loop().time() - began < 1
            leaving = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - leaving < 1
        assert [world.phase(f"{name}.1") for name in names] == ["Running"] * len(names)
    assert (len(long.calls), len(short.calls)) == (len(names), 1)


# -- values ------------------------------------------------------------------------------------------------------------


async def test_texts_of_guesses_survive() -> None:
    """An output that was guessed from a text is that text where a string is needed, for another process, too."""
    world = Universe()
    async with world.core:
        await world.prepare()
        second = Toy(said())
        compose = {"uses": "compose-output", "as": "c", "config": {"tag": "${{ '1.30' }}", "deep": [{"n": "${{ 7 }}"}]}}
        later = toy("second", **{"as": "s"}, config={"say": "${{ outputs.c.tag }}", "text": "${{ outputs.c.tag }}"})
        async with world.process(further={"toy": Toy(hang), "second": second}) as process:
            await world.run(compose, toy(), later)
            await world.until(lambda: world.phase() == "Running")
            await process.kill()
        assert world.promotion()["status"]["state"] == {
            "c": {"tag": 1.3, "deep": [{"n": 7}]},
            "kargo-py.io/texts": {"c": {"/tag": "1.30", "/deep/0/n": "7"}},
        }
        async with world.process(further={"toy": Toy(), "second": second}):
            assert await world.ended() == "Succeeded"
    assert second.calls[0].config == {"say": 1.3, "text": "1.30"}


async def test_secrets_are_recorded_nowhere() -> None:
    """Not in outputs, messages, Events or the log; nor after a restart by a step that does not use it itself."""
    secret = "hunter2-is-my-pass"
    world = Universe()
    got: list[str] = []

    async def leak(context: StepContext) -> StepOutcome:
        got.append(context.config["text"])
        return Finished(StepStatus.SUCCEEDED, output={"said": context.config["text"], secret: 1})

    async def blurt(_: StepContext) -> StepOutcome:
        raise RuntimeError(f"could not log in with {got[0]}")

    async with world.core:
        await world.prepare()
        data = {"token": base64.b64encode(secret.encode()).decode()}
        await world.user.create(SECRETS, PROJECT, encode({"metadata": {"name": "s"}, "data": data}), codec=JSON)
        with capture_logs() as logs:
            async with world.process(further={"leak": Toy(leak), "toy": Toy(hang), "blurt": Toy(blurt)}) as process:
                await world.run(toy("leak", config={"text": "${{ secret('s').token }}"}), toy(), toy("blurt"))
                await world.until(lambda: world.phase() == "Running")
                await process.kill()
            async with world.process(further={"leak": Toy(leak), "toy": Toy(), "blurt": Toy(blurt)}):
                assert await world.ended() == "Errored"
                await asyncio.sleep(10)
    assert got == [secret]
    assert world.promotion()["status"]["state"] == {"step-1": {"said": "***", "***": 1}}
    assert "could not log in with ***" in world.message()
    everything = json.dumps([world.promotion(), world.events(), [str(entry) for entry in logs]])
    assert "could not log in with ***" in json.dumps(world.events())
    assert secret not in everything


async def test_a_secret_is_read_once_for_a_step() -> None:
    world = Universe()
    async with world.core:
        await world.prepare()
        data = {"a": base64.b64encode(b"one").decode(), "b": base64.b64encode(b"two").decode()}
        await world.user.create(SECRETS, PROJECT, encode({"metadata": {"name": "s"}, "data": data}), codec=JSON)
        kind = Toy(Waiting("a", look_after=1), Waiting("b", look_after=1), DONE)
        async with world.process(further={"toy": kind}) as process:
            condition = "${{ secret('s').a == 'one' }}"
            await world.run(toy(**{"if": condition}, config={"say": "${{ secret('s').a + secret('s').b }}"}))
            assert await world.ended() == "Succeeded"
            assert [kind for kind, _ in process.line.gets].count("Secret") == 1
    assert kind.calls[-1].config == {"say": "onetwo"}


# -- from process to process -------------------------------------------------------------------------------------------


async def test_goes_on_from_what_is_on_record() -> None:
    """Killed while the third step runs: the first two are not run again."""
    world = Universe()
    async with world.core:
        await world.prepare()
        first, last = Toy(said()), Toy(said())
        async with world.process(further={"first": first, "toy": Toy(hang), "last": last}) as process:
            await world.run(toy("first", config={"say": 1}), toy("first"), toy(), toy("last"))
            await world.until(lambda: world.phase() == "Running")
            await process.kill()
        async with world.process(further={"first": first, "toy": Toy(), "last": last}):
            assert await world.ended() == "Succeeded"
    assert (len(first.calls), len(last.calls)) == (2, 1)


@pytest.mark.parametrize("needed", [True, False])
async def test_a_lost_working_directory(tmp_path: Path, needed: bool) -> None:
    """What fills it is run again, in order, and only if a step still to come needs it."""
    seen: list[str] = []

    def fill(name: str) -> Act:
        async def act(context: StepContext) -> StepOutcome:
            assert context.work_dir is not None
            await asyncio.to_thread((context.work_dir / name).write_text, name)
            return Finished(StepStatus.SUCCEEDED, output={"filled": name})

        return act

    async def read(context: StepContext) -> StepOutcome:
        assert context.work_dir is not None
        seen.extend(sorted(await asyncio.to_thread(os.listdir, context.work_dir)))
        return DONE

    async def other(context: StepContext) -> StepOutcome:
        assert context.work_dir is None
        return DONE

    one, two = Toy(fill("one"), use=WorkDirUse.FILLS), Toy(fill("two"), use=WorkDirUse.FILLS)
    plain = Toy(other)
    kinds = {"one": one, "two": two, "plain": plain, "read": Toy(read, use=WorkDirUse.READS), "other": Toy(other)}
    world = Universe()
    async with world.core:
        await world.prepare()
        here = executor(work_dirs=WorkDirs(tmp_path / "here"))
        async with world.process(further={**kinds, "toy": Toy(hang)}, executor=here) as process:
            await world.run(toy("one"), toy("plain"), toy("two"), toy(), toy("read" if needed else "other"))
            await world.until(lambda: world.phase() == "Running")
            await process.kill()
        await asyncio.to_thread((tmp_path / "there").mkdir)
        there = executor(work_dirs=WorkDirs(tmp_path / "there"))
        async with world.process(further={**kinds, "toy": Toy()}, executor=there):
            assert await world.ended() == "Succeeded"
            await asyncio.sleep(1)
            left = await asyncio.to_thread(os.listdir, tmp_path / "there")
    assert left == []
    assert seen == (["one", "two"] if needed else [])
    assert (len(one.calls), len(two.calls), len(plain.calls)) == ((2, 2, 1) if needed else (1, 1, 1))


async def test_a_time_out_that_passed_meanwhile() -> None:
    """The time runs on while no process does."""
    world = Universe()
    async with world.core:
        await world.prepare()
        async with world.process(further={"toy": Toy(Waiting("for godot", notable=True))}) as process:
            await world.run(toy(retry={"timeout": "1m"}))
            await world.until(
                lambda: "godot" in str(world.promotion()["status"]) if world.phase() == "Running" else False
            )
            await process.kill()
        await asyncio.sleep(timedelta(hours=1).total_seconds())
        kind = Toy()
        async with world.process(further={"toy": kind}):
            assert await world.ended() == "Errored"
    assert world.message() == 'step "step-1" timed out after 1m0s: for godot'
    assert kind.calls == []
