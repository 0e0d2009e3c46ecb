"""With what the steps of a Promotion are called: their configuration evaluated, and what they know of all else.

And what must not be told of it: what came from Secrets, whichever step has read them.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from kargo_py.api.abort import ANNOTATION_ABORT, Abort, AbortError, read_abort
from kargo_py.api.freight import FreightReference
from kargo_py.api.names import ANNOTATION_CREATE_ACTOR, Actor
from kargo_py.api.promotion import Promotion
from kargo_py.controllers.lookups import LookupReader, LookupRefused
from kargo_py.controllers.promotion_runs import Turn
from kargo_py.controllers.world import World
from kargo_py.deployers.base import footprint
from kargo_py.engine.evaluation import (
    EvaluationError,
    Program,
    configuration,
    configuration_for,
    has_expressions,
    is_long,
    may_use_secrets,
    position_of,
    program_of,
)
from kargo_py.engine.machine import CurrentStep, current_step
from kargo_py.engine.masking import masked_error, recordable
from kargo_py.engine.outputs import output_of
from kargo_py.engine.records import awaited_of, records_of
from kargo_py.engine.retries import asked_threshold, rules_of
from kargo_py.expressions.hiding import AllSecret, Secrets
from kargo_py.expressions.lookups import Lookups, TooManyLookups, resolved
from kargo_py.kube.clock import Steady
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.errors import KubeError
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message
from kargo_py.steps.base import ROOM, Finished, StepContext, StepOutcome, Waiting
from kargo_py.steps.passes import LAST_LOOK
from kargo_py.steps.step import Step

NOT_TOLD = message(
    "what the step says is not told: Secrets that steps before have used cannot be read, and it may say what is in "
    "them",
    do="The Promotion was aborted, or its step had had its time, after a restart of the controller, which could not "
    "read the Secrets of earlier steps anew to mask them; the log has why. The step has no output then. Look at its "
    "objects for what became of them.",
    shown=Shown.PROMOTION,
)

T = TypeVar("T")


class Calling:
    """Makes what steps are called with."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._reader = LookupReader(world.client, world.shared_resources_namespace)

    async def evaluated(self, turn: Turn, step: CurrentStep, evaluate: Callable[..., T], lookups: Lookups) -> T:
        """What *evaluate* makes of the step, with all that its expressions look up read into *lookups*.

        Raises EvaluationError, LookupRefused and KubeError.
        """
        project, now = turn.promotion.namespace, self._world.now()
        program, position = self._program(turn.promotion), position_of(turn.promotion, step.index)
        try:
            return await resolved(
                lambda: evaluate(program, position, lookups, now),
                lookups,
                partial(self._reader.read, project),
                aside=partial(self._world.aside.call, project),
                long=is_long(program, position),
            )
        except TooManyLookups as error:
            raise EvaluationError(str(error)) from error
        except KubeError as error:
            # It names what was asked for, and may end up in the log.
            raise masked_error(error, turn.run.secrets) from None

    def _program(self, promotion: Promotion) -> Program:
        freights, models = self._world.freights, self._world.freight_models
        freight = models.read(freights.get(Key(promotion.namespace, promotion.spec.freight or "")))
        program = program_of(promotion, freight=freight, ui_base_url=self._world.ui_base_url)
        return dataclasses.replace(program, freight=[self._whole(promotion, each) for each in program.freight])

    def _whole(self, promotion: Promotion, reference: FreightReference) -> FreightReference:
        """*reference* with what there was no room for in the Promotion."""
        if reference.commits or reference.images or reference.charts or reference.artifacts:
            return reference
        found = self._world.freights.get(Key(promotion.namespace, reference.name))
        freight = self._world.freight_models.read(found)
        return freight.reference() if freight is not None else reference

    async def learn_secrets(self, turn: Turn) -> None:
        """Read the Secrets that the steps of a process before this one have used: what they know may be put out yet."""
        promotion = turn.promotion
        # There may be more of the one than of the other: where somebody has edited them.
        begun = zip(promotion.spec.steps or (), promotion.status.step_execution_metadata, strict=False)
        for index, (step, metadata) in enumerate(begun):
            if metadata.started_at is None or not may_use_secrets(step, promotion.spec.vars):
                continue
            kind = self._world.steps.get(step.uses or "")
            evaluate = configuration if kind is None else partial(configuration_for, type(kind))
            at = CurrentStep(index, metadata.alias, step)
            try:
                await self.evaluated(turn, at, evaluate, _lookups(turn, at))
            except (EvaluationError, LookupRefused):
                # It has been read once, and somebody has changed that since: what is read there now is no secret of it.
                continue
        turn.run.knows_secrets = True

    async def context_to_stop(self, turn: Turn, current: CurrentStep, kind: Step[Any], *, give_up: bool) -> StepContext:
        """What a step that is to stop is called with: its configuration evaluated, if it still can be.

        After a restart that is done anew. Raises KubeError, unless it is given up: then it is not waited for long, too.
        """
        context, run = self.context(turn, current, kind), turn.run.at(current.alias)
        if run.is_evaluated:
            return dataclasses.replace(context, config=run.config)
        if not has_expressions(context.config):
            return context
        try:
            async with asyncio.timeout(LAST_LOOK if give_up else None):
                config = await self.evaluated(turn, current, partial(configuration_for, type(kind)), run.lookups)
        except (EvaluationError, LookupRefused, TimeoutError):
            return context
        except KubeError:
            if not give_up:
                raise
            return context
        run.config, run.is_evaluated = config, True
        return dataclasses.replace(context, config=config)

    def context(self, turn: Turn, current: CurrentStep, kind: Step[Any]) -> StepContext:
        """What the current step is called with, but for its configuration as it is evaluated."""
        return self._context(turn, current, kind, self._clock(turn, current))

    def _context(self, turn: Turn, current: CurrentStep, kind: Step[Any], clock: Steady) -> StepContext:
        promotion = turn.promotion
        metadata = promotion.status.step_execution_metadata[current.index]
        context = StepContext(
            instance=self._world.instance,
            project=promotion.namespace,
            stage=promotion.spec.stage,
            promotion=promotion.name,
            promotion_uid=promotion.metadata.uid,
            actor=Actor.of(promotion.metadata.annotations.get(ANNOTATION_CREATE_ACTOR)),
            alias=current.alias,
            config=current.step.config,
            now=clock.now(_loop_time()),
            started_at=clock.began,
            wall_clock=self._world.now(),
            timeout=rules_of(current.step, kind).timeout,
            patience=self._world.abort_patience,
            records=records_of(promotion.status, current.alias),
            taken_over=turn.taken_over,
            awaited=awaited_of(promotion.status, current.alias),
            output=output_of(promotion.status, current.alias),
            called_off=lambda: self.asked(promotion) is not None,
            errors=metadata.error_count,
            threshold=asked_threshold(current.step),
            freight=promotion.status.freight,
            collection=promotion.status.freight_collection,
            mask=turn.run.secrets.mask,
        )
        return dataclasses.replace(context, spare=self.spare(turn, context))

    async def context_again(self, turn: Turn, step: CurrentStep, kind: Step[Any]) -> StepContext:
        """What a *step* that has ended is called with once more; raises as :meth:`evaluated`."""
        lookups = Lookups(turn.run.secrets)
        config = await self.evaluated(turn, step, partial(configuration_for, type(kind)), lookups)
        context = self._context(turn, step, kind, Steady(self._world.now(), _loop_time()))
        return dataclasses.replace(context, config=config, records=(), awaited=(), errors=0)

    def _clock(self, turn: Turn, current: CurrentStep) -> Steady:
        """The step's own, from when this process started it or first saw that it runs."""
        run, now = turn.run.at(current.alias), self._world.now()
        if run.clock is None:
            started_at = turn.promotion.status.step_execution_metadata[current.index].started_at
            run.clock = Steady.since(started_at.datetime if started_at is not None else now, now, _loop_time())
        return run.clock

    def spare(self, turn: Turn, context: StepContext) -> Callable[[], int]:
        """What tells the room that is left for the records of the step."""
        raw, records = turn.raw, context.records
        return lambda: ROOM - (len(encode(raw)) - footprint(records))

    def asked(self, promotion: Promotion) -> Abort | None:
        """Whether *promotion*, which is being worked on, is to be aborted by now; by force, if it is gone.

        A pass over many targets may take minutes where Argo CD's API server is slow.
        """
        meta = promotion.metadata
        raw = self._world.promotions.get(Key(meta.namespace, meta.name))
        if raw is None or JSON.meta(raw).uid != meta.uid:
            return Abort(force=True)
        try:
            asked = read_abort((raw["metadata"].get("annotations") or {}).get(ANNOTATION_ABORT))
        except AbortError:
            asked = None
        return asked or (Abort() if raw["metadata"].get("deletionTimestamp") is not None else None)

    def secrets(self, turn: Turn, *ours: str) -> Secrets:
        """What must not be told of what a step says: all of it, but for texts of *ours*, as long as that is not known.

        That is so after a restart, if the Secrets of the steps before cannot be read.
        """
        if turn.run.knows_secrets is not None:
            return turn.run.secrets
        return AllSecret(NOT_TOLD(), [*ours, *(record.message for record in records_of(turn.promotion.status))])

    def told(self, turn: Turn, current: CurrentStep, outcome: StepOutcome, *ours: str) -> StepOutcome:
        """*outcome* of the step without what it says and puts out, as long as it is not known what of that is secret.

        An output whose texts are replaced would be what the steps after it go on with. A health check has nothing of
        other steps in it (:mod:`~kargo_py.engine.masking`), so it stays if the step itself has used no Secret.
        """
        run = turn.run.at(current.alias)
        if turn.run.knows_secrets is not None:
            return outcome
        if not isinstance(outcome, Waiting):
            outcome = dataclasses.replace(outcome, output=None)
        is_plain = run.is_evaluated or not has_expressions(current.step.config)
        used_secrets = run.lookups.has_secrets or not is_plain
        if isinstance(outcome, Finished) and used_secrets:
            outcome = dataclasses.replace(outcome, health_check=None)
        return recordable(outcome, current.alias, self.secrets(turn, *ours), used_secrets=used_secrets)


def _lookups(turn: Turn, step: CurrentStep) -> Lookups:
    """What is read for *step*: for the one that runs once, since it is called after that."""
    current = current_step(turn.promotion)
    if current is not None and current.index == step.index:
        return turn.run.at(current.alias).lookups
    return Lookups(turn.run.secrets)


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
