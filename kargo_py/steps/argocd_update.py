"""The step ``argocd-update``: edits the sources of Argo CD Applications, syncs them, and ends when the syncs have.

The configuration is Kargo's. Entries that name one Application several times are merged into one start; entries that
contradict each other are refused. All Applications are checked before any is started; each start then stands alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Self

from kargo_py.api.promotion import HealthCheckStep, StepStatus
from kargo_py.deployers.argocd import ArgoCD
from kargo_py.deployers.argocd_health import check_config
from kargo_py.deployers.base import Observation, Record, TargetState
from kargo_py.kube.backoff import pause_before
from kargo_py.kube.errors import KubeError
from kargo_py.messages import Shown, message
from kargo_py.steps.argocd_update_beginning import Beginning
from kargo_py.steps.argocd_update_config import ArgoCDUpdateConfig
from kargo_py.steps.argocd_update_ending import Ending, marked
from kargo_py.steps.argocd_update_looking import Targets
from kargo_py.steps.argocd_update_records import bounded, by_target, in_doubt, latest, left, to_be_ended
from kargo_py.steps.argocd_update_targets import left_out_message, left_out_of
from kargo_py.steps.argocd_update_turn import Look, TargetPass, Turn, is_over, timed_out
from kargo_py.steps.base import Erred, Finished, Intend, StepContext, StepOutcome, StopOutcome, Waiting, first_few
from kargo_py.steps.config import INVALID_CONFIGURATION
from kargo_py.steps.passes import BETWEEN_ATTEMPTS, look_last, settle_last
from kargo_py.steps.step import Effect, Services, Step, Work

UNSEEN_WHEN_TIME_WAS_UP = message(
    "the time of {time} is up, and whether the sync ended in it cannot be seen: {why}",
    do="Argo CD's API server does not answer. The step stays Running until it does, and then is what the sync was. To "
    "end it before that, abort the Promotion.",
    shown=Shown.PROMOTION,
)
ENDING_THE_OTHERS = message(
    "{failures}; so the others are ended: {waits}",
    do="The step has `onPartialFailure: terminate`, and one of its Applications failed. Mend what is said first, then "
    "promote again.",
    shown=Shown.PROMOTION,
)

USES = "argocd-update"


class ArgoCDUpdate(Step[ArgoCDUpdateConfig]):
    """Edits the sources of Argo CD Applications, syncs them, and ends when the syncs have ended."""

    uses = USES
    config_model = ArgoCDUpdateConfig
    default_timeout = timedelta(minutes=5)
    keeps_time = True
    work = Work.API

    @classmethod
    def make(cls, services: Services) -> Self:
        """With the deployer of Argo CD."""
        return cls(services.argocd)

    def effect(self, config: ArgoCDUpdateConfig) -> Effect:
        """What it starts is on record before, and recognised after."""
        del config
        return Effect.INTENDED

    def __init__(self, argocd: ArgoCD) -> None:
        self._argocd = argocd
        self._beginning = Beginning(argocd)
        self._targets = Targets(argocd)
        self._ending = Ending(argocd)

    # -- towards success ------------------------------------------------------------------------------------------

    async def run(self, context: StepContext) -> StepOutcome:
        """Record the intents, start what may be started, and see how far it got."""
        try:
            turn = Turn.of(context, self._argocd.default_namespace)
        except ValueError as error:
            under_way = [record for record in context.records if not record.state.final]
            unknown = await settle_last(self._argocd, under_way)
            ended = [self._let_go(record, unknown.get((record.key, record.stamp))) for record in context.records]
            said = [INVALID_CONFIGURATION(faults=error), *(record.message for record in latest(ended))]
            return Finished(StepStatus.FAILED, first_few(said), records=ended)
        if not context.records:
            return await self._beginning.begin_in_time(turn)
        if to_be_ended(context.records, context.errors):
            return await self._end_rest(turn)
        return await self._go_on(turn)

    async def _go_on(self, turn: Turn) -> StepOutcome:
        """Bring each target further; each stands alone, unless the failure of one is to end all."""
        turn = turn.with_records([self._targets.as_known(record) for record in turn.context.records])
        context, pass_ = turn.context, TargetPass(self._argocd, self._targets.time_of_pass(turn))
        looks = await self._targets.looks(turn, pass_)
        left = _least_left(context, looks, pass_.elapsed)
        if left is not None and left <= 0 and not any(look.intends for look in looks):
            unseen = await look_last(self._argocd, [look.attempts[-1] for look in looks if look.under_way])
            if unseen is not None:
                for look in looks:
                    if look.under_way:
                        self._targets.kept_of(look).one_more_try = True
                said = UNSEEN_WHEN_TIME_WAS_UP(time=context.time, why=unseen)
                return Waiting(said, _records(looks), notable=True, error=unseen)
            looks = [self._targets.glance(look.attempts) if look.under_way else look for look in looks]
            if self._targets.to_be_tried_once_more(looks):
                said = first_few([look.wait.message for look in looks if look.wait is not None])
                return Waiting(said, _records(looks), look_after=0.0)
        records, waits = _records(looks), [look.wait for look in looks if look.wait is not None]
        if any(look.intends for look in looks):
            return Intend(records)
        if not waits:
            return self._finish(turn, records, [look.refusal for look in looks if look.refusal], pass_.elapsed)
        if turn.config.on_partial_failure == "terminate" and any(look.failed for look in looks):
            return self._terminating(turn, records, waits)
        if left is not None and left <= 0:
            return await self._time_out(turn, records, waits)
        again = [left, *(wait.look_after for wait in waits)]
        return Waiting(
            first_few([wait.message for wait in waits]),
            records,
            any(wait.notable for wait in waits),
            min((seconds for seconds in again if seconds is not None), default=None),
            next((look.error for look in looks if look.error is not None), None),
            {wait.record.key: wait.cause for wait in waits},
            left,
        )

    def _failed(self, turn: Turn, failed: Finished, elapsed: float = 0.0) -> Erred | Finished:
        """*failed* as an error, after which those of the targets that ended badly are tried again; else final."""
        context = turn.context
        bad = [each for each in by_target(failed.records) if each[-1].state is not TargetState.SUCCEEDED]
        if turn.full or not all(self._targets.may_follow(attempts[-1]) for attempts in bad):
            return failed
        if any(is_over(context, attempts, elapsed) for attempts in bad):
            late = any(attempts[-1].after_errors < context.errors for attempts in bad)
            return dataclasses.replace(failed, message=timed_out(context, failed.message)) if late else failed
        pause = pause_before(context.errors + 1, BETWEEN_ATTEMPTS)
        return Erred(failed.message, failed=True, retry_after=pause, output=failed.output, records=failed.records)

    def _finish(
        self, turn: Turn, records: Sequence[Record], refusals: Sequence[str], elapsed: float
    ) -> Finished | Erred:
        """All Applications have ended: the step is what the worst is; a dry run says nothing of what is there."""
        ends, output = latest(records), _output(records, turn.context.output)
        bad = [r for r in ends if r.state is not TargetState.SUCCEEDED]
        if bad:
            said = [*(r.message for r in bad), *refusals]
            failed = Finished(StepStatus.FAILED, first_few(said), output, records=records)
            return self._failed(turn, failed, elapsed)
        judged = [r for r in ends if not r.sync.dry_run and turn.wishes.judges(r)]
        check = HealthCheckStep(uses=USES, config=check_config(judged)) if judged else None
        return Finished(StepStatus.SUCCEEDED, left_out_message(output), output, check, records)

    # -- towards an end -------------------------------------------------------------------------------------------

    async def _time_out(
        self, turn: Turn, records: Sequence[Record], waits: Sequence[Observation]
    ) -> Waiting | Finished:
        """The step has had its time: let go of what is under way, or end it."""
        context = turn.context
        if turn.config.on_timeout == "terminate":
            message = timed_out(context, first_few([wait.message for wait in waits]))
            return marked(context, records, waits, message)
        unknown = await settle_last(self._argocd, [wait.record for wait in waits if not wait.present])
        waited_for = {(wait.record.key, wait.record.stamp) for wait in waits}
        ended = [
            self._let_go(record, unknown.get((record.key, record.stamp)))
            if (record.key, record.stamp) in waited_for
            else record
            for record in records
        ]
        said = [record.message for record in ended if (record.key, record.stamp) in waited_for]
        return Finished(StepStatus.FAILED, timed_out(context, first_few(said)), records=ended)

    def _let_go(self, record: Record, unknown: KubeError | None) -> Record:
        """*record* as it is when nobody waits for it any longer; *unknown*: why a start of it may land yet."""
        present = self._argocd.observe(record).present
        return in_doubt(record, unknown) if unknown is not None and not present else left(record, present)

    def _terminating(self, turn: Turn, records: Sequence[Record], waits: Sequence[Observation]) -> Waiting:
        """One target has failed: end the others, too."""
        said = ENDING_THE_OTHERS(failures=first_few(_failures(records)), waits=first_few([w.message for w in waits]))
        return marked(turn.context, records, waits, said)

    async def _end_rest(self, turn: Turn) -> Waiting | Finished | Erred:
        """Terminate what was under way when the step had had its time, or when one target had failed."""
        context = turn.context
        failures = _failures(context.records)
        # What had failed before the others were asked to end is the reason for that, if the step wants it so.
        reasons = failures if turn.config.on_partial_failure == "terminate" else []
        outcome = await self._ending.end_all(context, give_up=self._ending.patience_left(context) <= 0)
        if isinstance(outcome, Waiting):
            said = _said_of_end(context, reasons, outcome.message)
            again = [outcome.look_after, max(self._ending.patience_left(context), 0.0)]
            return dataclasses.replace(outcome, message=said, look_after=min(s for s in again if s is not None))
        stopped = {(record.key, record.stamp) for record in to_be_ended(context.records, context.errors)}
        others = [record.message for record in latest(outcome) if (record.key, record.stamp) in stopped]
        failed = Finished(
            StepStatus.FAILED,
            _said_of_end(context, reasons, first_few(others if reasons else [*others, *failures])),
            _output(outcome, context.output),
            records=outcome,
        )
        # A time-out is final.
        return self._failed(turn, failed) if reasons else failed

    async def stop(self, context: StepContext, *, give_up: bool) -> StopOutcome:
        """Terminate what runs, let nothing begin, and put the spec back if the step asks for that."""
        return await self._ending.stop(context, give_up=give_up)


def _records(looks: Sequence[Look]) -> list[Record]:
    records = [record for look in looks for record in look.attempts]
    return [bounded(record, len(records)) for record in records]


def _least_left(context: StepContext, looks: Sequence[Look], elapsed: float) -> float | None:
    """Seconds until the first target that is waited for has had its time; that of one that is held does not run."""
    times = [context.time_left(look.attempts) for look in looks if look.wait is not None and not look.wait.held]
    return min((seconds - elapsed for seconds in times if seconds is not None), default=None)


def _failures(records: Sequence[Record]) -> list[str]:
    """What is said of the targets that failed by themselves."""
    ended = [r for r in latest(records) if r.state.final and not r.stopping_since]
    return [record.message for record in ended if record.state is not TargetState.SUCCEEDED]


def _said_of_end(context: StepContext, reasons: Sequence[str], others: str) -> str:
    """What is said of a step that ends what it has under way, for these *reasons* or because of its time-out."""
    if reasons:
        return ENDING_THE_OTHERS(failures=first_few(reasons), waits=others)
    return timed_out(context, others)


def _output(records: Sequence[Record], before: Any) -> dict[str, Any]:
    """What the step puts out in the end; *before* is what it has put out so far."""
    return {"apps": [{"name": r.name, "namespace": r.namespace} for r in latest(records)], **left_out_of(before)}
