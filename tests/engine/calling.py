"""Steps that do as they are told, and what they are called with; for tests of how calls are made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kargo_py.api.names import Actor
from kargo_py.engine.execution import Executor
from kargo_py.engine.work_dirs import WorkDirs
from kargo_py.steps.base import StepContext, StepOutcome, StopOutcome
from kargo_py.steps.config import Config
from kargo_py.steps.step import Step, Work

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class NoConfig(Config):
    """Nothing."""


class Told(Step[NoConfig]):
    """Does what it is given."""

    uses = "told"
    config_model = NoConfig

    def __init__(self, act: Callable[[StepContext], Awaitable[Any]], work: Work = Work.NETWORK) -> None:
        """*act* answers every call, and every stop."""
        self._act = act
        # As a class derived from this one would say it.
        vars(self)["work"] = work

    async def run(self, context: StepContext) -> StepOutcome:
        answer: StepOutcome = await self._act(context)
        return answer

    async def stop(self, context: StepContext, *, give_up: bool) -> StopOutcome:
        answer: StopOutcome = await self._act(context)
        return answer

    async def time_out(self, context: StepContext, message: str) -> StepOutcome:
        answer: StepOutcome = await self._act(context)
        return answer


def executor(**options: Any) -> Executor:
    """One that makes no working directories, unless it is given a place for them."""
    return Executor(**{"work_dirs": WorkDirs(Path("/proc/none")), **options})


def context_of(alias: str = "one", **values: Any) -> StepContext:
    """What a step is called with."""
    return StepContext(
        instance="me",
        project="shop",
        stage="dev",
        promotion="p1",
        promotion_uid="uid-1",
        actor=Actor.of(None),
        alias=alias,
        config={},
        now=NOW,
        started_at=NOW,
        **values,
    )
