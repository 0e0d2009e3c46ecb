"""A Promotion of ten steps is killed at every await of our process, and continued by another one.

Whatever the moment, the record is the same in the end (but for times and versions), and nothing outside was done twice:
what had been done and was not on record yet is asked for again, and recognised by its key.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from kargo_py.api.promotion import StepStatus
from kargo_py.engine.execution import Executor
from kargo_py.engine.work_dirs import WorkDirs
from kargo_py.local.argocd.timing import Version
from kargo_py.steps.argocd_update import USES
from kargo_py.steps.base import Erred, Finished, StepContext, StepOutcome, Waiting
from kargo_py.steps.config import Config
from kargo_py.steps.step import Effect, Step, Work, WorkDirUse
from kargo_py.steps.work import in_thread
from kargo_py.testing.clock import simulated_time
from tests.engine.calling import executor
from tests.protocol.mortal import Life, mortal_tasks
from tests.protocol.universe import APP, REPO, SHA, Process, Universe

EVERY = int(os.environ.get("KARGO_PY_KILL_EVERY", "6"))
"""At every so-many-th await the process is killed; 1: at every one, which takes some minutes."""
FIRST = 1 if os.environ.get("CI") else random.randint(1, EVERY)
"""The first of them. CI judges by the same ones every time; a developer's runs come to all of them by and by."""


class Outside:
    """What is outside of all Promotions: it does what it is asked for, each thing once that has a key."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self.values: dict[str, str] = {}

    async def post(self, key: str) -> None:
        """Do it, unless it has been done."""
        await asyncio.sleep(0.3)
        self.asked[key] += 1
        if key not in self.done:
            self.done[key] += 1
        await asyncio.sleep(0.3)

    async def put(self, name: str, value: str) -> None:
        """The same again changes nothing."""
        await asyncio.sleep(0.01)
        self.values[name] = value
        await asyncio.sleep(0.01)


class NoConfig(Config):
    """Nothing."""


class Valued(Config):
    """A value."""

    value: str


class Post(Step[NoConfig]):
    """Is done once; takes longer than a beat."""

    uses = "post"
    config_model = NoConfig

    def __init__(self, outside: Outside) -> None:
        self._outside = outside

    def effect(self, config: NoConfig) -> Effect:
        return Effect.ONCE

    async def perform(self, config: NoConfig, context: StepContext) -> StepOutcome:
        key = f"{context.promotion_uid}/{context.alias}"
        await self._outside.post(key)
        return Finished(StepStatus.SUCCEEDED, output={"posted": context.alias})


class Put(Step[Valued]):
    """Can be done again."""

    uses = "put"
    config_model = Valued
    work = Work.API

    def __init__(self, outside: Outside) -> None:
        self._outside = outside

    def effect(self, config: Valued) -> Effect:
        return Effect.REPEATABLE

    async def perform(self, config: Valued, context: StepContext) -> StepOutcome:
        await self._outside.put(context.alias, config.value)
        return Finished(StepStatus.SUCCEEDED)


class Fill(Step[NoConfig]):
    """Writes a file."""

    uses = "fill"
    config_model = NoConfig
    work = Work.FILES
    work_dir_use = WorkDirUse.FILLS

    async def perform(self, config: NoConfig, context: StepContext) -> StepOutcome:
        assert context.work_dir is not None
        await in_thread((context.work_dir / context.alias).write_text, f"of {context.alias}")
        return Finished(StepStatus.SUCCEEDED, output={"file": context.alias})


class Read(Step[Valued]):
    """Reads a file."""

    uses = "read"
    config_model = Valued
    work = Work.FILES
    work_dir_use = WorkDirUse.READS

    async def perform(self, config: Valued, context: StepContext) -> StepOutcome:
        assert context.work_dir is not None
        return Finished(
            StepStatus.SUCCEEDED, output={"read": await in_thread((context.work_dir / config.value).read_text)}
        )


class Flaky(Step[NoConfig]):
    """Succeeds at the third attempt."""

    uses = "flaky"
    config_model = NoConfig

    async def perform(self, config: NoConfig, context: StepContext) -> StepOutcome:
        await asyncio.sleep(0.01)
        return Erred("not yet") if context.errors < 2 else Finished(StepStatus.SUCCEEDED)


class Wait(Step[NoConfig]):
    """Waits for some seconds."""

    uses = "wait"
    config_model = NoConfig
    work = Work.API

    async def perform(self, config: NoConfig, context: StepContext) -> StepOutcome:
        left = 5 - (context.now - context.started_at).total_seconds()
        return Waiting("for time to pass", look_after=left) if left > 0 else Finished(StepStatus.SUCCEEDED)


STEPS: list[dict[str, Any]] = [
    {"uses": "compose-output", "as": "compose", "config": {"name": "${{ ctx.promotion }}", "size": "${{ 40 + 2 }}"}},
    {"uses": "fill", "as": "fill"},
    {"uses": "post", "as": "first"},
    {"uses": "put", "as": "put", "config": {"value": "${{ outputs.first.posted }}"}},
    {"uses": "post", "as": "never", "if": "${{ outputs.compose.size == 41 }}"},
    {"uses": "flaky", "as": "flaky", "retry": {"errorThreshold": 3}},
    {"uses": "wait", "as": "wait"},
    {
        "uses": USES,
        "as": "sync",
        "config": {
            "apps": [
                {
                    "name": APP.name,
                    "sources": [{"repoURL": REPO, "desiredRevision": SHA, "updateTargetRevision": True}],
                }
            ]
        },
    },
    {"uses": "read", "as": "read", "config": {"value": "${{ outputs.fill.file }}"}},
    {"uses": "put", "as": "wrong", "config": {"value": "${{ vars.none }}"}, "continueOnError": True},
    {"uses": "post", "as": "last", "if": "${{ status('wrong') == 'Failed' && success() }}"},
]

PASSING = {
    *("startedAt", "finishedAt", "admittedAt", "lastTransitionTime", "resourceVersion", "seenStamp", "historyId"),
    *("seenState", "freeSince"),
}


def lasting(value: Any) -> Any:
    """A record without times and versions."""
    if isinstance(value, dict):
        return {name: lasting(each) for name, each in value.items() if name not in PASSING}
    return [lasting(each) for each in value] if isinstance(value, list) else value


class Proof:
    """One run: a process that dies at its *fatal* await, another one that goes on."""

    def __init__(self, disk: Path, fatal: int, *, keeps_disk: bool) -> None:
        self.outside = Outside()
        self._disk = disk
        self._fatal = fatal
        self._keeps_disk = keeps_disk
        self.awaits = 0
        self.status: Mapping[str, Any] = {}

    async def run(self) -> None:
        """Promote, die, go on, end."""
        loop = asyncio.get_running_loop()
        with simulated_time(loop), mortal_tasks(loop):
            self.world = Universe()
            async with self.world.core, self.world.argocd(Version.V3_6):
                await self.world.prepare()
                life = Life(self._fatal)
                await self.world.run(*STEPS)
                dying = asyncio.ensure_future(life.died.wait())
                with life.lived():
                    process = self.world.process(further=self._kinds(), executor=self._executor("first"))
                    living = asyncio.ensure_future(self._live(process))
                await asyncio.wait({living, dying}, return_when=asyncio.FIRST_COMPLETED)
                self.awaits = life.awaits
                if living.done() and not life.is_over:
                    living.result()
                if life.is_over:
                    name = "first" if self._keeps_disk else "second"
                    async with self.world.process(further=self._kinds(), executor=self._executor(name)):
                        await self.world.ended()
                        await asyncio.sleep(30)
                self.status = lasting(self.world.promotion()["status"])
                # Of the dead nothing but good: what they still complain of is of no interest.
                loop.set_exception_handler(lambda _loop, _context: None)
                life.bury()
                living.cancel()
                dying.cancel()
                await asyncio.wait({living, dying})

    async def _live(self, process: AbstractAsyncContextManager[Process]) -> None:
        async with process:
            await self.world.ended()
            await asyncio.sleep(30)

    def _executor(self, name: str) -> Executor:
        return executor(work_dirs=WorkDirs(self._disk / name))

    def _kinds(self) -> dict[str, Step[Any]]:
        kinds: list[Step[Any]] = [Post(self.outside), Put(self.outside), Fill(), Read(), Flaky(), Wait()]
        return {kind.uses: kind for kind in kinds}


def run(disk: Path, fatal: int, *, keeps_disk: bool) -> Proof:
    proof = Proof(disk, fatal, keeps_disk=keeps_disk)
    with asyncio.Runner() as runner:
        runner.run(proof.run())
    return proof


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Proof:
    """What comes of it if nobody dies."""
    return run(tmp_path_factory.mktemp("whole"), 0, keeps_disk=True)


def test_nobody_dies(whole: Proof) -> None:
    """The steps do what they are to prove."""
    ends = [(step["alias"], step["status"]) for step in whole.status["stepExecutionMetadata"]]
    assert [alias for alias, end in ends if end == "Succeeded"] == [
        *("compose", "fill", "first", "put", "flaky", "wait", "sync", "read", "last")
    ]
    assert dict(ends)["never"] == "Skipped"
    assert dict(ends)["wrong"] == "Failed"
    assert whole.status["state"]["read"] == {"read": "of fill"}
    assert whole.outside.asked == whole.outside.done
    assert len(whole.outside.done) == 2
    assert len(whole.world.runs()) == 1
    assert whole.awaits > 150


@pytest.mark.timeout(600)
@pytest.mark.parametrize("keeps_disk", [True, False], ids=["disk kept", "disk lost"])
def test_killed_at_every_await(whole: Proof, keeps_disk: bool, tmp_path: Path) -> None:
    """The same record, and no effect twice; what is asked for twice is recognised."""
    fatal, lived = FIRST if keeps_disk else FIRST + EVERY // 2, False
    while not lived:
        killed = run(tmp_path / str(fatal), fatal, keeps_disk=keeps_disk)
        # How many awaits a life has differs by one or two: it looks at the disk in threads. So up to one that lives on.
        lived = killed.awaits < fatal
        assert killed.status == whole.status, f"killed at await {fatal}"
        assert killed.outside.done == whole.outside.done
        assert killed.outside.values == whole.outside.values
        assert killed.world.runs() == whole.world.runs()
        assert sum((killed.outside.asked - whole.outside.asked).values()) <= 1
        fatal += EVERY
    assert fatal > 150
