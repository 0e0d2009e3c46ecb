"""How ``argocd-update`` ends what it has under way: after an abort, a time-out, or the failure of another target."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from datetime import timedelta

import msgspec

from kargo_py.api.promotion import StepStatus
from kargo_py.api.types import Time
from kargo_py.argocd.application import describe
from kargo_py.argocd.targets import resolve
from kargo_py.deployers.argocd import ArgoCD
from kargo_py.deployers.argocd_admission import TargetError
from kargo_py.deployers.base import Observation, Record, TargetState
from kargo_py.kube.errors import Forbidden, Invalid, KubeError
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message
from kargo_py.steps.argocd_update_records import bounded, changes, in_doubt, latest, left, pointers, to_be_ended
from kargo_py.steps.argocd_update_targets import target_request
from kargo_py.steps.argocd_update_turn import TargetPass, Turn
from kargo_py.steps.base import Finished, Intend, StepContext, StopOutcome, Waiting, first_few

KEEPS_CHANGE = message(
    "{app} keeps the change of {pointers}",
    do="After an abort: the Application's spec stays as the start left it. Promote other Freight, or change these "
    "fields by hand; with `onAbort: revert` the step puts them back.",
    shown=Shown.PROMOTION,
)
NOTHING_STARTED = message(
    "nothing was started: it still waited for Applications to be created",
    do="After an abort, of a step with `waitForCreation`. Nothing to do.",
    shown=Shown.PROMOTION,
)
NOT_TAKEN_BACK = message(
    "the change of {pointers} could not be taken back: {why}",
    do="After an abort with `onAbort: revert`. Change these fields of the Application by hand.",
    shown=Shown.PROMOTION,
)


class Ending:
    """Has operations terminated, and waits for their ends."""

    def __init__(self, argocd: ArgoCD) -> None:
        self._argocd = argocd

    async def stop(self, context: StepContext, *, give_up: bool) -> StopOutcome:
        """Terminate what runs, let nothing begin, and put the spec back if the step asks for that."""
        if not context.records and (found := await self._adopted(context)):
            return Intend(found)
        outcome = await self.end_all(context, give_up=give_up)
        if isinstance(outcome, Waiting):
            return outcome
        said = [record.message for record in latest(outcome)]
        said += [NOTHING_STARTED()] if context.awaited and not outcome else []
        said += await self._taken_back(context, changes(outcome), give_up=give_up)
        return Finished(StepStatus.ABORTED, first_few(said), records=outcome)

    async def end_all(self, context: StepContext, *, give_up: bool) -> Waiting | list[Record]:
        """Terminate what runs and let nothing begin; the records once all have ended."""
        records: list[Record] = []
        waits: list[Observation] = []
        failure: KubeError | None = None
        pass_ = TargetPass(self._argocd)
        stopped: dict[tuple[Key, str], Observation] = {}
        for record in sorted(context.records, key=pass_.failed_at):
            if record.state.final:
                continue
            error: KubeError | None = None
            if pass_.is_over:
                seen = dataclasses.replace(self._argocd.observe(record), record=record)
            else:
                seen, error = await self._stopped(record)
                pass_.note_of(record, error)
            failure = failure or error
            stopped[record.key, record.stamp] = seen
        for record in context.records:
            if record.state.final:
                records.append(record)
                continue
            seen = stopped[record.key, record.stamp]
            if seen.record.state.final:
                records.append(seen.record)
            elif give_up and not seen.present and self._argocd.may_land(record):
                records.append(in_doubt(record, failure or seen.message))
            elif give_up:
                records.append(left(seen.record, seen.present, seen.message))
            else:
                records.append(record)
                waits.append(seen)
        if waits:
            again = min((wait.look_after for wait in waits if wait.look_after is not None), default=None)
            causes = {wait.record.key: wait.cause for wait in waits}
            return Waiting(first_few([wait.message for wait in waits]), records, True, again, failure, causes)
        return [bounded(record, len(records)) for record in records]

    async def _stopped(self, record: Record) -> tuple[Observation, KubeError | None]:
        """Terminate one; each stands alone: where that fails the others are stopped, and their ends told."""
        try:
            return await self._argocd.stop(record), None
        except KubeError as error:
            return Observation(record, str(error), present=self._argocd.observe(record).present), error

    def _has_begun(self, record: Record) -> bool:
        """False of one that ended before it was known whether its start lands."""
        return record.state is not TargetState.DETACHED or self._argocd.observe(record).present

    def patience_left(self, context: StepContext) -> float:
        """Seconds for which the end is waited for yet; by our own clock from when this process first saw that it is."""
        asked = to_be_ended(context.records, context.errors)
        kept = self._argocd.attempt(asked[0].key, asked[0].stamp)
        now = asyncio.get_running_loop().time()
        if kept.give_up_at is None:
            used = context.now - min(Time(record.stopping_since or "").datetime for record in asked)
            kept.give_up_at = now + min(max(context.patience - used, timedelta()), context.patience).total_seconds()
        return kept.give_up_at - now

    async def _adopted(self, context: StepContext) -> list[Record]:
        """What a real Kargo has started for this step before we took it over."""
        try:
            wishes = Turn.of(context, self._argocd.default_namespace).wishes
            found = [self._argocd.admission.find(choice) for choice in wishes.choices]
            there = resolve(wishes.choices, found, lambda _app: None)
            requests = [target_request(wishes, target) for target in there.targets.items()]
        except ValueError:
            return []
        adopted = [await self._argocd.adopt(request, context.alias, context.promotion) for request in requests]
        return [record for record in adopted if record is not None]

    async def _taken_back(self, context: StepContext, records: Sequence[Record], *, give_up: bool) -> list[str]:
        """What became of the fields of the spec that the starts have changed, in words."""
        changed = [record for record in records if record.before]
        try:
            turn = Turn.of(context, self._argocd.default_namespace)
        except ValueError:
            turn = None
        if turn is None or turn.config.on_abort == "keep":
            return [KEEPS_CHANGE(app=describe(r.key), pointers=pointers(r)) for r in changed if self._has_begun(r)]
        said = []
        for record in changed:
            try:
                done = await self._argocd.revert(record, turn.wishes.request(record.key, record.entries))
            except (KubeError, TargetError) as error:
                if isinstance(error, KubeError) and not isinstance(error, (Invalid, Forbidden)) and not give_up:
                    raise
                done = NOT_TAKEN_BACK(pointers=pointers(record), why=error)
            said.append(f"{describe(record.key)}: {done}")
        return said


def marked(context: StepContext, records: Sequence[Record], waits: Sequence[Observation], message: str) -> Waiting:
    """Mark what is waited for as to be ended, durably first: its end must not be taken for somebody else's doing."""
    now = str(Time.of(context.now))
    waited_for = {(wait.record.key, wait.record.stamp) for wait in waits}
    asked = [
        msgspec.structs.replace(record, stopping_since=now) if (record.key, record.stamp) in waited_for else record
        for record in records
    ]
    return Waiting(message, asked, notable=True, look_after=0.0)
