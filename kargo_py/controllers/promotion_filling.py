"""The working directory of a Promotion: where it was lost, the steps that fill it are run again.

It is on the disk of one process. A Promotion that another one goes on with misses it only if a step still to come needs
it: then the steps that have filled it are called once more, in their order. What is on record of them stays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from kargo_py.api.promotion import PromotionStep, StepStatus
from kargo_py.controllers.lookups import LookupRefused
from kargo_py.controllers.promotion_calling import Calling
from kargo_py.controllers.promotion_runs import Turn
from kargo_py.controllers.world import World
from kargo_py.engine.evaluation import EvaluationError
from kargo_py.engine.execution import CalledOff, Raised, TimedOut
from kargo_py.engine.machine import CurrentStep
from kargo_py.engine.retries import is_passing, outcome_of, rules_of
from kargo_py.engine.work_dirs import WorkDirError
from kargo_py.kube.errors import KubeError
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message
from kargo_py.steps.base import Erred, Finished, Intend, StepOutcome, Waiting
from kargo_py.steps.step import Step, WorkDirUse

NOT_FILLED_AGAIN = message(
    "the working directory was lost with the process that ran the Promotion, and step {alias}, which fills it, could "
    "not be run again: {why}",
    do="Create a new Promotion, which runs all steps anew. What the steps before have done outside stays.",
    shown=Shown.PROMOTION,
)

STILL_WAITS = message(
    "it waits, which a step that fills a working directory may not",
    do="A fault of the kind of step. Tell its author.",
    shown=Shown.PROMOTION,
)


class Filling:
    """Sees that the steps find in the working directory what those before have put there."""

    def __init__(self, world: World, calling: Calling, enqueue: Callable[[Key], None]) -> None:
        self._world = world
        self._calling = calling
        self._enqueue = enqueue

    async def work_dir(self, turn: Turn, current: CurrentStep) -> Path | StepOutcome | None:
        """The directory; an outcome of the current step if there can be none; None: a step fills it, and goes on."""
        run = turn.run
        if run.work_dir is not None:
            return run.work_dir
        dirs = self._world.executor.work_dirs
        try:
            path, is_whole = await dirs.ensure(run.uid)
            if not is_whole:
                outcome = await self._fill(turn, current, path)
                if not _is_success(outcome):
                    return outcome
                await dirs.mark_whole(run.uid)
        except WorkDirError as error:
            return Erred(str(error))
        run.work_dir = path
        return path

    async def _fill(self, turn: Turn, current: CurrentStep, path: Path) -> StepOutcome | None:
        """Run the steps that have filled the directory again; None if one goes on."""
        steps = turn.promotion.spec.steps or ()
        for index, metadata in enumerate(turn.promotion.status.step_execution_metadata[: current.index]):
            kind = self._world.steps.get(steps[index].uses or "")
            fills = kind is not None and work_dir_use(kind, steps[index]) is WorkDirUse.FILLS
            if (
                kind is None
                or not fills
                or metadata.status != StepStatus.SUCCEEDED
                or metadata.alias in turn.run.filled
            ):
                continue
            outcome = await self._run_again(turn, CurrentStep(index, metadata.alias, steps[index]), kind, path)
            if not _is_success(outcome):
                return outcome
            turn.run.filled.add(metadata.alias)
        return Finished(StepStatus.SUCCEEDED)

    async def _run_again(self, turn: Turn, step: CurrentStep, kind: Step[Any], path: Path) -> StepOutcome | None:
        timeout = rules_of(step.step, kind).timeout
        turn.run.filling = step.alias
        try:
            context = dataclasses.replace(await self._calling.context_again(turn, step, kind), work_dir=path)
        except (EvaluationError, LookupRefused, KubeError) as error:
            return _not_filled(step, Erred(str(error), transient=is_passing(error)))
        answer = await self._world.executor.call(
            turn.run.call,
            kind,
            context,
            time_left=timeout.total_seconds() if timeout is not None else None,
            done=partial(self._enqueue, turn.key),
            asked=partial(self._calling.asked, turn.promotion),
        )
        if answer is None or isinstance(answer, CalledOff):
            return None
        turn.run.filling = ""
        outcome = outcome_of_answer(answer)
        return outcome if _is_success(outcome) else _not_filled(step, outcome)


def _not_filled(step: CurrentStep, outcome: StepOutcome) -> Erred | Finished:
    """What it means for the current step that *step* could not fill the directory again."""
    why = STILL_WAITS() if isinstance(outcome, Intend | Waiting) else outcome.message
    said = NOT_FILLED_AGAIN(alias=step.alias, why=why)
    if isinstance(outcome, Erred) and outcome.transient:
        return Erred(said, transient=True, retry_after=outcome.retry_after)
    return Finished(StepStatus.ERRORED, said)


def _is_success(outcome: StepOutcome | None) -> bool:
    return isinstance(outcome, Finished) and outcome.status is StepStatus.SUCCEEDED


def outcome_of_answer(answer: StepOutcome | Raised | TimedOut) -> StepOutcome:
    """What the answer of the executor means for the step."""
    if isinstance(answer, Raised):
        return outcome_of(answer.error)
    return outcome_of(TimeoutError()) if isinstance(answer, TimedOut) else answer


def work_dir_use(kind: Step[Any], step: PromotionStep) -> WorkDirUse:
    """What *step*, which is of that kind, has to do with the working directory."""
    try:
        return kind.work_dir_use_of(step.config)
    except Exception:  # noqa: BLE001 - a fault of the kind of step: it gets the directory that its class asks for
        return kind.work_dir_use
