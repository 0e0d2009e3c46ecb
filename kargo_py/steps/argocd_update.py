"""The step ``argocd-update``: edits the sources of Argo CD Applications, syncs them, and ends when the syncs have.

The configuration is Kargo's. Entries that name one Application several times are merged into one start; entries that
contradict each other are refused. All Applications are checked before any is started; each start then stands alone.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import msgspec
from tenacity import wait_exponential, wait_random

from kargo_py.api.promotion import HealthCheckStep, StepStatus
from kargo_py.api.stamp import Stamp, StampError, make_stamp
from kargo_py.api.types import Duration, Time
from kargo_py.argocd.application import describe
from kargo_py.argocd.operation import NOT_STARTED
from kargo_py.deployers.argocd import ArgoCD, Origin
from kargo_py.deployers.argocd_admission import TargetError, UpdateRequest
from kargo_py.deployers.argocd_health import check_config
from kargo_py.deployers.base import Observation, Record, TargetState
from kargo_py.kube.backoff import pause_before
from kargo_py.kube.errors import Forbidden, Invalid, KubeError
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message
from kargo_py.steps.argocd_update_config import ArgoCDUpdateConfig, read_config, requests
from kargo_py.steps.base import Finished, Intend, StepContext, StepOutcome, Waiting

INVALID_CONFIGURATION = message(
    "invalid configuration: {faults}",
    do="Nothing was started, unless the steps were edited while they ran: then the message goes on with what was left "
    "to run. Correct the fields named in the step's `config`, in the Stage's template too, then create a new "
    "Promotion.",
    shown=Shown.PROMOTION,
)
EACH_TIME = message(
    "{message}, {count} times",
    do="It was tried as often as it is tried at most, and ended so each time. See who else syncs or changes the "
    "Application, then promote again.",
    shown=Shown.PROMOTION,
)
NO_NEW_ATTEMPT = message(
    "no new attempt is made: {why}",
    do="The last attempt was undone by others and would have been made again. Mend what is named, then promote again.",
    shown=Shown.PROMOTION,
)
TRYING_AGAIN = message(
    "{message}; trying again",
    do="A new sync is started by itself after a pause of some seconds, which grows from try to try.",
    shown=Shown.PROMOTION,
)
TIMED_OUT_AFTER = message(
    "timed out after {time}; {message}",
    do="Raise `retry.timeout` of the step (`0s`: no limit), or mend what kept it. With `onTimeout: detach` the sync "
    "goes on alone, with `onTimeout: terminate` it is ended first.",
    shown=Shown.PROMOTION,
)
TIMED_OUT = message(
    "timed out; {message}",
    do="As above; the step has no time-out any more, it was changed while the sync was being ended.",
    shown=Shown.PROMOTION,
)
KEEPS_CHANGE = message(
    "{app} keeps the change of {pointers}",
    do="After an abort: the Application's spec stays as the start left it. Promote other Freight, or change these "
    "fields by hand; with `onAbort: revert` the step puts them back.",
    shown=Shown.PROMOTION,
)
NOT_TAKEN_BACK = message(
    "the change of {pointers} could not be taken back: {why}",
    do="After an abort with `onAbort: revert`. Change these fields of the Application by hand.",
    shown=Shown.PROMOTION,
)
LEFT_TO_RUN = message(
    "{app}: the sync was left to run",
    do="Argo CD goes on with it, and nobody waits for its end. Look at the Application, or set `onTimeout: "
    "terminate` to have it ended.",
    shown=Shown.PROMOTION,
)
LEFT_AS_IT_WAS = message(
    "{message}; it was left as it is",
    do="The end of the sync was not waited for any longer, since the abort was forced or took too long. Look at the "
    "Application.",
    shown=Shown.PROMOTION,
)
NOT_ASKED_FOR = message(
    "{app} is not in spec.steps any more; they were changed",
    do="Somebody edited the steps of a running Promotion. Create a new Promotion with the steps as they should be.",
    shown=Shown.PROMOTION,
)

USES = "argocd-update"

ATTEMPTS = 3
"""How often an attempt that other work has undone is made, at most."""

_BETWEEN_ATTEMPTS = wait_exponential(multiplier=5, exp_base=3, max=60) + wait_random(0, 2)
_PROMPT = timedelta(seconds=10)
_ALL_MESSAGES = 64 * 1024
_LEAST_MESSAGE = 200
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class _Look:
    """How one target stands: all attempts on it, the last one being the one that counts.

    ``intends``: the last one is new and must be written before anything else is done. ``wait``: it has not ended, and
    ``error`` says what kept us from bringing it further. ``refusal``: why no new attempt follows the last one.
    """

    attempts: Sequence[Record]
    intends: bool = False
    wait: Observation | None = None
    error: KubeError | None = None
    refusal: str = ""


class ArgoCDUpdate:
    """Runs the step."""

    default_timeout = timedelta(minutes=5)

    def __init__(self, argocd: ArgoCD) -> None:
        self._argocd = argocd

    # -- towards success ------------------------------------------------------------------------------------------

    async def run(self, context: StepContext) -> StepOutcome:
        """Record the intents, start what may be started, and see how far it got."""
        try:
            config = read_config(context.config)
            wanted = requests(config, context.stage_key, self._argocd.default_namespace)
        except ValueError as error:
            left = [_left(record, self._argocd.observe(record).present) for record in context.records]
            said = [INVALID_CONFIGURATION(faults=error), *(record.message for record in _latest(left))]
            return Finished(StepStatus.FAILED, _joined(said), records=left)
        if not context.records:
            return await self._intend(context, wanted)
        if any(record.stopping_since for record in context.records):
            return await self._end_late(context)
        return await self._go_on(context, config, {request.key: request for request in wanted})

    async def _intend(self, context: StepContext, wanted: Sequence[UpdateRequest]) -> StepOutcome:
        """Check all Applications before any is touched, and say what is going to be done to each."""
        try:
            stamp, origin = _stamp(context, 1), _origin(context)
        except StampError as error:
            return Finished(StepStatus.ERRORED, str(error))
        intend = partial(self._argocd.intend, stamp=stamp, origin=origin, taken_over=context.taken_over)
        try:
            return Intend([await intend(request) for request in wanted])
        except BaseException as error:
            for request in wanted:
                self._argocd.forget(request.key, str(stamp))
            if not isinstance(error, TargetError):
                raise
            return Finished(StepStatus.ERRORED, str(error))

    async def _go_on(
        self, context: StepContext, config: ArgoCDUpdateConfig, wanted: Mapping[Key, UpdateRequest]
    ) -> StepOutcome:
        """Bring each target further; each stands alone, whatever becomes of the others."""
        looks = [await self._look(context, wanted, attempts) for attempts in _by_target(context.records)]
        records = [record for look in looks for record in look.attempts]
        records = [_bounded(record, len(records)) for record in records]
        waits = [look.wait for look in looks if look.wait is not None]
        if any(look.intends for look in looks):
            return Intend(records)
        if not waits:
            unchecked = {key for key, request in wanted.items() if not request.health_check}
            return _finish(records, [look.refusal for look in looks if look.refusal], unchecked)
        left = [_time_left(context, look) for look in looks if look.wait is not None]
        if (
            least := min((seconds for seconds in left if seconds is not None), default=None)
        ) is not None and least <= 0:
            return await self._time_out(context, config, records, waits)
        again = [*left, *(wait.look_after for wait in waits)]
        return Waiting(
            _joined([wait.message for wait in waits]),
            records,
            any(wait.notable for wait in waits),
            min((seconds for seconds in again if seconds is not None), default=None),
            next((look.error for look in looks if look.error is not None), None),
        )

    async def _look(
        self, context: StepContext, wanted: Mapping[Key, UpdateRequest], attempts: Sequence[Record]
    ) -> _Look:
        *past, record = attempts
        if record.state.final and record.state is not TargetState.WRONG_REVISION:
            return _Look(attempts)
        try:
            request = _request(wanted, record)
            if record.state.final:
                return await self._repeat(context, request, attempts)
            seen = await self._argocd.pursue(record, request, _origin(context))
            if seen.fresh is not None:
                return _Look([*past, seen.fresh], intends=True)
            if seen.repeatable:
                return await self._repeat(context, request, [*past, seen.record])
        except (TargetError, StampError) as error:
            if record.state.final:
                return _Look(attempts, refusal=str(error))
            present = self._argocd.observe(record).present
            return _Look([*past, _left(record, present, str(error)) if present else _refused(record, error)])
        except KubeError as error:
            present = self._argocd.observe(record).present
            return _Look(attempts, wait=Observation(record, str(error), present=present), error=error)
        record = self._with_time_of_its_own(context, seen)
        return _Look([*past, record], wait=None if record.state.final else seen)

    async def _repeat(self, context: StepContext, request: UpdateRequest, attempts: Sequence[Record]) -> _Look:
        """Make a new attempt after one that other work has undone; not at once, and not for ever."""
        *past, last = attempts
        count = sum(record.state is last.state for record in attempts)
        known = any(
            (record.key, record.stamp) == (last.key, last.stamp) and record.state.final for record in context.records
        )
        if count >= ATTEMPTS:
            said = EACH_TIME(message=last.message, count=count)
            return _Look(attempts if known else [*past, last.ended(last.state, said)])
        if last.state is TargetState.WRONG_REVISION:
            now = asyncio.get_running_loop().time()
            kept = self._argocd.attempt(last.key, last.stamp)
            if kept.repeat_at is None:
                kept.repeat_at = now + pause_before(count, _BETWEEN_ATTEMPTS)
            if now < kept.repeat_at:
                said = TRYING_AGAIN(message=last.message)
                return _Look(attempts, wait=Observation(last, said, notable=True, look_after=kept.repeat_at - now))
        try:
            stamp = _stamp(context, max(record.attempt for record in attempts) + 1)
            new = await self._argocd.intend(request, stamp, _origin(context))
        except (TargetError, StampError, Forbidden) as error:
            # The last attempt ended as it did; that there is no other is not its end.
            return _Look(attempts, refusal=NO_NEW_ATTEMPT(why=error))
        return _Look([*attempts, new], intends=True)

    def _with_time_of_its_own(self, context: StepContext, seen: Observation) -> Record:
        """The record of *seen*, whose time begins when it could run: not while others held the Application."""
        record = seen.record
        if record.state.final:
            return record
        kept = self._argocd.attempt(record.key, record.stamp)
        if seen.held:
            kept.held = True
            return record
        late = seen.issued and record.free_since is None and context.now - context.started_at > _PROMPT
        if kept.held or late:
            kept.held, kept.free_since = False, str(Time.of(context.now))
        # Until it is written it is known here only.
        return msgspec.structs.replace(record, free_since=kept.free_since or record.free_since)

    # -- towards an end -------------------------------------------------------------------------------------------

    async def _time_out(
        self,
        context: StepContext,
        config: ArgoCDUpdateConfig,
        records: Sequence[Record],
        waits: Sequence[Observation],
    ) -> Waiting | Finished:
        """The step has had its time: let go of what is under way, or end it."""
        present = {(wait.record.key, wait.record.stamp): wait.present for wait in waits}
        if config.on_timeout == "terminate":
            now = str(Time.of(context.now))
            marked = [
                msgspec.structs.replace(record, stopping_since=now) if (record.key, record.stamp) in present else record
                for record in records
            ]
            # Durable first: what follows must not be taken for somebody else's doing.
            return Waiting(_timed_out(context, _joined([wait.message for wait in waits])), marked, True, 0.0)
        ended = [
            _left(record, present[record.key, record.stamp]) if (record.key, record.stamp) in present else record
            for record in records
        ]
        said = [record.message for record in ended if (record.key, record.stamp) in present]
        return Finished(StepStatus.FAILED, _timed_out(context, _joined(said)), records=ended)

    async def _end_late(self, context: StepContext) -> Waiting | Finished:
        """Terminate what was under way when the step had had its time."""
        outcome = await self._end_all(context, give_up=self._out_of_patience(context))
        if isinstance(outcome, Waiting):
            return dataclasses.replace(outcome, message=_timed_out(context, outcome.message))
        said = _joined([record.message for record in _latest(outcome)])
        return Finished(StepStatus.FAILED, _timed_out(context, said), records=outcome)

    def _out_of_patience(self, context: StepContext) -> bool:
        """Whether the end was waited for long enough; by our own clock from when this process first saw that it is."""
        marked = [record for record in context.records if record.stopping_since]
        kept = self._argocd.attempt(marked[0].key, marked[0].stamp)
        now = asyncio.get_running_loop().time()
        if kept.give_up_at is None:
            used = context.now - min(Time(record.stopping_since or "").datetime for record in marked)
            kept.give_up_at = now + min(max(context.patience - used, timedelta()), context.patience).total_seconds()
        return now >= kept.give_up_at

    async def stop(self, context: StepContext, *, give_up: bool) -> StepOutcome:
        """Terminate what runs, let nothing begin, and put the spec back if the step asks for that."""
        if not context.records and (found := await self._adopted(context)):
            return Intend(found)
        outcome = await self._end_all(context, give_up=give_up)
        if isinstance(outcome, Waiting):
            return outcome
        said = [record.message for record in _latest(outcome)]
        said += await self._taken_back(context, _changes(outcome), give_up=give_up)
        return Finished(StepStatus.ABORTED, _joined(said), records=outcome)

    async def _adopted(self, context: StepContext) -> list[Record]:
        """What a real Kargo has started for this step before we took it over."""
        try:
            config = read_config(context.config)
            wanted = requests(config, context.stage_key, self._argocd.default_namespace)
        except ValueError:
            return []
        found = [await self._argocd.adopt(request, context.alias, context.promotion) for request in wanted]
        return [record for record in found if record is not None]

    async def _end_all(self, context: StepContext, *, give_up: bool) -> Waiting | list[Record]:
        """Terminate what runs and let nothing begin; the records once all have ended."""
        records: list[Record] = []
        waits: list[Observation] = []
        failure: KubeError | None = None
        for record in context.records:
            if record.state.final:
                records.append(record)
                continue
            try:
                seen = await self._argocd.stop(record)
            except KubeError as error:
                # Each stands alone: the others are stopped, and what became of them is written.
                failure = failure or error
                seen = Observation(record, str(error), present=self._argocd.observe(record).present)
            if seen.record.state.final:
                records.append(seen.record)
            elif give_up:
                records.append(_left(seen.record, seen.present, seen.message))
            else:
                records.append(record)
                waits.append(seen)
        if waits:
            again = min((wait.look_after for wait in waits if wait.look_after is not None), default=None)
            return Waiting(_joined([wait.message for wait in waits]), records, True, again, failure)
        return records

    async def _taken_back(self, context: StepContext, records: Sequence[Record], *, give_up: bool) -> list[str]:
        """What became of the fields of the spec that the starts have changed, in words."""
        changed = [record for record in records if record.before]
        wanted: dict[Key, UpdateRequest] = {}
        try:
            config = read_config(context.config)
            wanted = {r.key: r for r in requests(config, context.stage_key, self._argocd.default_namespace)}
        except ValueError:
            config = None
        if config is None or config.on_abort == "keep":
            return [KEEPS_CHANGE(app=describe(r.key), pointers=_pointers(r)) for r in changed]
        said = []
        for record in changed:
            try:
                done = await self._argocd.revert(record, _request(wanted, record))
            except (KubeError, TargetError) as error:
                if isinstance(error, KubeError) and not isinstance(error, (Invalid, Forbidden)) and not give_up:
                    raise
                done = NOT_TAKEN_BACK(pointers=_pointers(record), why=error)
            said.append(f"{describe(record.key)}: {done}")
        return said


def _stamp(context: StepContext, attempt: int) -> Stamp:
    return make_stamp(
        context.instance, context.project, context.promotion, context.promotion_uid, context.alias, attempt
    )


def _origin(context: StepContext) -> Origin:
    return Origin(context.promotion, context.actor)


def _by_target(records: Sequence[Record]) -> list[list[Record]]:
    """The attempts on each target, oldest first, in the order in which the targets were first named."""
    grouped: dict[Key, list[Record]] = {}
    for record in records:
        grouped.setdefault(record.key, []).append(record)
    return [sorted(attempts, key=lambda record: record.attempt) for attempts in grouped.values()]


def _latest(records: Sequence[Record]) -> list[Record]:
    return [attempts[-1] for attempts in _by_target(records)]


def _changes(records: Sequence[Record]) -> list[Record]:
    """The latest attempt on each target, with all that the attempts have changed; the latest former value counts."""
    merged = []
    for attempts in _by_target(records):
        begun = [record for record in attempts if record.state not in {TargetState.NOT_STARTED, TargetState.REFUSED}]
        before = {field.pointer: field for record in begun for field in record.before}
        merged.append(msgspec.structs.replace(attempts[-1], before=tuple(before.values())))
    return merged


def _time_left(context: StepContext, look: _Look) -> float | None:
    """Seconds that the target may still take; None while its time does not run."""
    if context.timeout is None or look.wait is None or look.wait.held:
        return None
    free = [Time(record.free_since).datetime for record in look.attempts if record.free_since]
    since = max([context.started_at, *(time for time in free if time <= context.now)])
    return (context.timeout - (context.now - since)).total_seconds()


def _refused(record: Record, error: Exception) -> Record:
    return record.ended(TargetState.REFUSED, str(error))


def _left(record: Record, present: bool, message: str = "") -> Record:
    """*record* as it is when nobody waits for it any longer."""
    if record.state.final:
        return record
    if not present:
        return record.ended(TargetState.NOT_STARTED, NOT_STARTED(app=describe(record.key)))
    said = LEFT_AS_IT_WAS(message=message) if message else LEFT_TO_RUN(app=describe(record.key))
    return record.ended(TargetState.DETACHED, said)


def _timed_out(context: StepContext, said: str) -> str:
    if context.timeout is None:
        return TIMED_OUT(message=said)
    return TIMED_OUT_AFTER(time=Duration.of(context.timeout.total_seconds()), message=said)


def _pointers(record: Record) -> str:
    return ", ".join(field.pointer for field in record.before)


def _request(by_key: Mapping[Key, UpdateRequest], record: Record) -> UpdateRequest:
    """What the step asks of the target of *record*; raises TargetError if it does not ask for it any more."""
    request = by_key.get(record.key)
    if request is None:
        raise TargetError(NOT_ASKED_FOR(app=describe(record.key)))
    return request


def _bounded(record: Record, among: int) -> Record:
    """*record* with its share of the room that the messages of one step may take: an object has 1.5 MiB in all."""
    room = max(_LEAST_MESSAGE, _ALL_MESSAGES // among)
    if len(record.message.encode()) <= room:
        return record
    return record.ended(record.state, record.message.encode()[: room - 3].decode(errors="ignore") + "…")


def _joined(messages: Sequence[str]) -> str:
    """The first few of *messages*, and how many more there are."""
    more = f"; and {len(messages) - _SHOWN} more" if len(messages) > _SHOWN else ""
    return "; ".join(messages[:_SHOWN]) + more


def _finish(records: Sequence[Record], refusals: Sequence[str], unchecked: Collection[Key]) -> Finished:
    """All Applications have ended: the step is what the worst of them is; a dry run says nothing of what is there."""
    latest = _latest(records)
    output = {"apps": [{"name": r.name, "namespace": r.namespace} for r in latest]}
    bad = [r for r in latest if r.state is not TargetState.SUCCEEDED]
    if bad:
        return Finished(StepStatus.FAILED, _joined([*(r.message for r in bad), *refusals]), output, records=records)
    judged = [r for r in latest if r.key not in unchecked and not r.sync.dry_run]
    check = HealthCheckStep(uses=USES, config=check_config(judged)) if judged else None
    return Finished(StepStatus.SUCCEEDED, "", output, check, records)
