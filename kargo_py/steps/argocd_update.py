"""The step ``argocd-update``: edits the sources of Argo CD Applications, syncs them, and ends when the syncs have.

The configuration is Kargo's. Entries that name one Application several times are merged into one start; entries that
contradict each other are refused. All Applications are checked before any is started; each start then stands alone.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property, partial
from typing import Any, Self

import msgspec

from kargo_py.api.promotion import HealthCheckStep, StepStatus
from kargo_py.api.stamp import StampError
from kargo_py.api.types import Time
from kargo_py.argocd.application import describe
from kargo_py.argocd.targets import resolve
from kargo_py.deployers.argocd import ArgoCD, Origin
from kargo_py.deployers.argocd_admission import LastingError, TargetError, UpdateRequest
from kargo_py.deployers.argocd_health import check_config
from kargo_py.deployers.argocd_records import Attempt
from kargo_py.deployers.base import Observation, Record, TargetState
from kargo_py.kube.backoff import pause_before
from kargo_py.kube.errors import Forbidden, Invalid, KubeError
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message
from kargo_py.steps.argocd_update_config import ArgoCDUpdateConfig, Wishes, read_config
from kargo_py.steps.argocd_update_records import (
    LEAST_EXTENT,
    bounded,
    by_target,
    came_to_nothing,
    changes,
    extent,
    in_doubt,
    latest,
    left,
    pointers,
    refused,
    to_be_ended,
)
from kargo_py.steps.argocd_update_targets import (
    Chosen,
    choose,
    left_out_message,
    left_out_of,
    left_out_output,
    target_request,
)
from kargo_py.steps.base import Erred, Finished, Intend, StepContext, StepOutcome, StopOutcome, Waiting, first_few
from kargo_py.steps.config import INVALID_CONFIGURATION
from kargo_py.steps.passes import BETWEEN_ATTEMPTS, LATE_PASS, Pass, look_last, settle_last
from kargo_py.steps.step import Effect, Services, Step, Work

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
UNSEEN_WHEN_TIME_WAS_UP = message(
    "the time of {time} is up, and whether the sync ended in it cannot be seen: {why}",
    do="Argo CD's API server does not answer. The step stays Running until it does, and then is what the sync was. To "
    "end it before that, abort the Promotion.",
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
ENDING_THE_OTHERS = message(
    "{failures}; so the others are ended: {waits}",
    do="The step has `onPartialFailure: terminate`, and one of its Applications failed. Mend what is said first, then "
    "promote again.",
    shown=Shown.PROMOTION,
)
TOO_MANY = message(
    "{count} Applications are too many for one step: there is room for the records of {most} at most",
    do="A Promotion has to stay far below the 1.5 MiB that an object can have. Narrow the `selector`, or spread the "
    "Applications over several Stages.",
    shown=Shown.PROMOTION,
)
TOO_LARGE = message(
    "{count} Applications are too many for one step: their records need {needed} bytes of the {room} there are",
    do="As above; the former values of the fields that are changed count, too.",
    shown=Shown.PROMOTION,
)
NO_ROOM = message(
    "there is no room for the record of one more",
    do="Of *no new attempt is made*: the Promotion would become too large. Promote again.",
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
NOT_CHECKED_IN_TIME = message(
    "Argo CD's API server did not answer in time what Applications there are; nothing was started",
    do="Of *timed out after …*: see that Argo CD's API server answers, then promote again.",
    shown=Shown.PROMOTION,
)

USES = "argocd-update"

ATTEMPTS = 3
"""How often an attempt that other work has undone is made, at most."""

_FAULTS = 3
_YIELD_EVERY = 50
_LEAST_ROOM = 64 * 1024
_PROMPT = timedelta(seconds=10)


@dataclass(frozen=True)
class _Turn:
    """One call of the step: what it is asked for, and what is known."""

    context: StepContext
    config: ArgoCDUpdateConfig
    wishes: Wishes

    @property
    def origin(self) -> Origin:
        """On whose behalf starts are made."""
        return Origin(self.context.promotion, self.context.actor)

    def with_records(self, records: Sequence[Record]) -> _Turn:
        """The same with *records* in the place of those that are written."""
        return dataclasses.replace(self, context=dataclasses.replace(self.context, records=records))

    @property
    def time_to_begin(self) -> float | None:
        """Seconds in which it has to be known which Applications it is about; None without limit."""
        context = self.context
        if context.timeout is None:
            return None
        patience = max(self.wishes.patience(index) for index in range(len(self.config.apps)))
        return (context.timeout + patience - (context.now - context.started_at)).total_seconds()

    @cached_property
    def full(self) -> bool:
        """Whether there is no room for the record of one more attempt."""
        return extent(self.context.records) > max(2 * self.context.room, _LEAST_ROOM)


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

    @property
    def under_way(self) -> bool:
        """The last attempt has not ended, as far as is known."""
        return self.wait is not None and not self.wait.record.state.final

    @property
    def failed(self) -> bool:
        """It has ended for good, and not well."""
        return self.wait is None and not self.intends and self.attempts[-1].state is not TargetState.SUCCEEDED


class _Pass(Pass):
    """A pass that also knows whose requests failed in the one before."""

    def __init__(self, argocd: ArgoCD, left: float | None = None) -> None:
        super().__init__(left)
        self._argocd = argocd

    def failed_at(self, record: Record) -> float:
        """When a request about the target last failed; those are the last to have their turn."""
        return 0.0 if record.state.final else self._argocd.attempt(record.key, record.stamp).failed_at

    def note_of(self, record: Record | None, error: KubeError | None) -> None:
        """A request about the target of *record*, None if that has ended, failed with *error*, or none did."""
        self.note(error)
        if record is not None and not record.state.final:
            failed_at = asyncio.get_running_loop().time() if error is not None else 0.0
            self._argocd.attempt(record.key, record.stamp).failed_at = failed_at


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

    # -- towards success ------------------------------------------------------------------------------------------

    async def run(self, context: StepContext) -> StepOutcome:
        """Record the intents, start what may be started, and see how far it got."""
        try:
            turn = self._turn(context)
        except ValueError as error:
            under_way = [record for record in context.records if not record.state.final]
            unknown = await settle_last(self._argocd, under_way)
            ended = [self._let_go(record, unknown.get((record.key, record.stamp))) for record in context.records]
            said = [INVALID_CONFIGURATION(faults=error), *(record.message for record in latest(ended))]
            return Finished(StepStatus.FAILED, first_few(said), records=ended)
        if not context.records:
            return await self._begin_in_time(turn)
        if to_be_ended(context.records, context.errors):
            return await self._end_rest(turn)
        return await self._go_on(turn)

    def _turn(self, context: StepContext) -> _Turn:
        """Raises ValueError if the configuration is wrong."""
        config = read_config(context.config)
        return _Turn(context, config, Wishes(config, context.stage_key, self._argocd.default_namespace))

    async def _begin_in_time(self, turn: _Turn) -> StepOutcome:
        """Begin, or end if the time is up before that: nothing was started, so there is nothing to be seen."""
        context = turn.context
        left = turn.time_to_begin
        pass_ = Pass(max(left, LATE_PASS) if left is not None else None)
        try:
            async with pass_.limit():
                outcome = await self._begin(turn)
        except TimeoutError:
            return Finished(StepStatus.ERRORED, _timed_out(context, NOT_CHECKED_IN_TIME()))
        except KubeError as error:
            if left is None:
                raise
            if left > pass_.elapsed:
                return Waiting(str(error), error=error, up_in=left - pass_.elapsed)
            return Finished(StepStatus.ERRORED, _timed_out(context, str(error)))
        if isinstance(outcome, Erred) and context.errors and left is not None and left <= pass_.elapsed:
            return Finished(StepStatus.ERRORED, _timed_out(context, outcome.message))
        return outcome

    async def _begin(self, turn: _Turn) -> StepOutcome:
        """Find out which Applications it is about, check them all, and say what is going to be done to each."""
        context = turn.context
        try:
            chosen = await choose(self._argocd.admission, turn.wishes, context)
            if not isinstance(chosen, Chosen):
                return chosen
            records = await self._intents(turn, chosen.requests)
        except (LastingError, StampError) as error:
            return Finished(StepStatus.ERRORED, str(error))
        except TargetError as error:
            return Erred(str(error))
        output = left_out_output(chosen.left_out)
        return Intend(records, output=output or None, warning=left_out_message(output))

    async def _intents(self, turn: _Turn, requests: Sequence[UpdateRequest]) -> list[Record]:
        """The intents to record; raises TargetError if they cannot be carried out, or are too many."""
        context = turn.context
        stamp, room = context.stamp(1), max(context.room, _LEAST_ROOM)
        if len(requests) * LEAST_EXTENT > room:
            raise LastingError(TOO_MANY(count=len(requests), most=room // LEAST_EXTENT))
        intend = partial(self._argocd.intend, stamp=stamp, origin=turn.origin, taken_over=context.taken_over)
        try:
            records = await self._all_or_none(requests, intend)
            _check_room(records, room)
        except BaseException:
            for request in requests:
                self._argocd.forget(request.key, str(stamp))
            raise
        if context.now - context.started_at > _PROMPT:
            # Its time begins now: until here it was waited for what others had to make.
            now = str(Time.of(context.now))
            records = [msgspec.structs.replace(record, free_since=now) for record in records]
        return [msgspec.structs.replace(record, after_errors=context.errors) for record in records]

    async def _all_or_none(
        self, requests: Sequence[UpdateRequest], intend: Callable[[UpdateRequest], Awaitable[Record]]
    ) -> list[Record]:
        """What *intend* makes of each; raises TargetError that tells the first few that are refused, and how many."""
        records: list[Record] = []
        faults: list[str] = []
        for request in requests:
            try:
                records.append(await intend(request))
            except TargetError as error:
                faults.append(str(error))
            if len(faults) == _FAULTS:
                break
        if faults:
            unseen = requests[len(records) + len(faults) :]
            more = sum(self._argocd.admission.refuses(request) for request in unseen)
            raise TargetError(first_few(faults, len(faults) + more))
        return records

    async def _go_on(self, turn: _Turn) -> StepOutcome:
        """Bring each target further; each stands alone, unless the failure of one is to end all."""
        turn = turn.with_records([self._as_known(record) for record in turn.context.records])
        context, pass_ = turn.context, _Pass(self._argocd, self._time_of_pass(turn))
        looks = await self._looks(turn, pass_)
        left = _least_left(context, looks, pass_.elapsed)
        if left is not None and left <= 0 and not any(look.intends for look in looks):
            unseen = await look_last(self._argocd, [look.attempts[-1] for look in looks if look.under_way])
            if unseen is not None:
                for look in looks:
                    if look.under_way:
                        self._kept(look).one_more_try = True
                said = UNSEEN_WHEN_TIME_WAS_UP(time=context.time, why=unseen)
                return Waiting(said, _records(looks), notable=True, error=unseen)
            looks = [self._glance(look.attempts) if look.under_way else look for look in looks]
            if self._to_be_tried_once_more(looks):
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

    def _to_be_tried_once_more(self, looks: Sequence[_Look]) -> bool:
        """Whether one of *looks* is to be begun late, since Argo CD's API server was away when it should have been.

        That came back between a start that it did not answer and the look that followed.
        """
        kept = [self._kept(look) for look in looks if look.wait is not None and look.wait.start]
        late = [each for each in kept if each.one_more_try]
        for each in late:
            each.one_more_try = False
        return bool(late)

    def _kept(self, look: _Look) -> Attempt:
        return self._argocd.attempt(look.attempts[-1].key, look.attempts[-1].stamp)

    def _as_known(self, record: Record) -> Record:
        """*record* with since when its time counts, which may not be written yet."""
        if record.state.final:
            return record
        since = self._argocd.attempt(record.key, record.stamp).free_since
        return msgspec.structs.replace(record, free_since=since) if since is not None else record

    def _time_of_pass(self, turn: _Turn) -> float | None:
        """Seconds that a pass may last: until the first of the targets has had its time; None without limit.

        What could not be begun is begun yet, though it is late: its own time begins then.
        """
        times, late = list[float](), False
        for attempts in by_target(turn.context.records):
            left = turn.context.time_left(attempts) if not attempts[-1].state.final else None
            if left is None:
                continue
            seen = self._argocd.observe(attempts[-1]) if left <= 0 else None
            if seen is None or not seen.held:
                times.append(left)
            late = late or (seen is not None and seen.start)
        least = min(times, default=None)
        return max(least, LATE_PASS) if least is not None and late else least

    async def _looks(self, turn: _Turn, pass_: _Pass) -> list[_Look]:
        """Each target in its turn. Where one failure ends all: what has ended first, and nothing is begun after it."""
        groups = by_target(turn.context.records)
        alone = turn.config.on_partial_failure == "wait"
        order = groups if alone else sorted(groups, key=self._order_of_begin)
        looks: dict[Key, _Look] = {}
        failed = False
        for number, attempts in enumerate(sorted(order, key=lambda group: pass_.failed_at(group[-1])), 1):
            if failed:
                look = self._glance(attempts)
            elif pass_.is_over or turn.context.called_off():
                look = self._later(turn, attempts)
            else:
                look = await self._look_in_time(turn, attempts, pass_)
                pass_.note_of(look.wait.record if look.wait is not None else None, look.error)
            failed = failed or (look.failed and not alone)
            looks[attempts[-1].key] = look
            if number % _YIELD_EVERY == 0:
                await asyncio.sleep(0)
        return [looks[attempts[-1].key] for attempts in groups]

    def _order_of_begin(self, attempts: Sequence[Record]) -> int:
        last = attempts[-1]
        return 0 if last.state.final else 1 if self._argocd.observe(last).present else 2

    def _later(self, turn: _Turn, attempts: Sequence[Record]) -> _Look:
        """A target that is left to the next pass: nothing is done about it, and nothing is concluded."""
        last = attempts[-1]
        if last.state is TargetState.WRONG_REVISION or self._is_to_be_tried_again(turn, attempts):
            return _Look(attempts, wait=Observation(last, TRYING_AGAIN(message=last.message)))
        if last.state.final:
            return _Look(attempts)
        return _Look(attempts, wait=dataclasses.replace(self._argocd.observe(last), record=last))

    def _glance(self, attempts: Sequence[Record]) -> _Look:
        """How a target stands, where nothing is begun on it any more."""
        *past, last = attempts
        if last.state.final:
            return _Look(attempts)
        seen = self._argocd.observe(last)
        return _Look([*past, seen.record], wait=None if seen.record.state.final else seen)

    async def _look_in_time(self, turn: _Turn, attempts: Sequence[Record], pass_: Pass) -> _Look:
        last, look = attempts[-1], None
        try:
            async with pass_.limit():
                look = await self._look(turn, attempts)
        except TimeoutError:
            pass
        if not last.state.final and (look is None or look.error is not None):
            # What was seen of it before may not be true any more: a start that was not answered may have been made.
            self._argocd.attempt(last.key, last.stamp).seen_at_end = False
        return look if look is not None else self._later(turn, attempts)

    async def _look(self, turn: _Turn, attempts: Sequence[Record]) -> _Look:
        *past, record = attempts
        again = self._is_to_be_tried_again(turn, attempts)
        if record.state.final and record.state is not TargetState.WRONG_REVISION and not again:
            return _Look(attempts)
        try:
            request = turn.wishes.request(record.key, record.entries)
            if again:
                return await self._try_again(turn, request, attempts)
            if record.state.final:
                return await self._repeat(turn, request, attempts)
            seen = await self._argocd.pursue(record, request, turn.origin)
            if seen.fresh is not None:
                return _Look([*past, seen.fresh], intends=True)
            if seen.repeatable:
                return await self._repeat(turn, request, [*past, seen.record])
        except (TargetError, StampError) as error:
            if record.state.final:
                return _Look(attempts, refusal=str(error))
            return await self._refused(attempts, error)
        except KubeError as error:
            present = self._argocd.observe(record).present
            return _Look(attempts, wait=Observation(record, str(error), present=present), error=error)
        record = self._with_time_of_its_own(turn.context, seen)
        return _Look([*past, record], wait=None if record.state.final else seen)

    async def _refused(self, attempts: Sequence[Record], error: Exception) -> _Look:
        """The start was refused: that is the end of the attempt, unless one that was sent before it has landed."""
        *past, record = attempts
        if self._argocd.may_land(record):
            try:
                await self._argocd.settle(record)
            except (Forbidden, Invalid):
                return _Look([*past, in_doubt(record, error)])
            except KubeError as failure:
                return _Look(attempts, wait=Observation(record, str(error), notable=True), error=failure)
            seen = self._argocd.observe(record)
            if seen.present:
                return _Look([*past, seen.record], wait=None if seen.record.state.final else seen)
        return _Look([*past, refused(record, error)])

    async def _repeat(self, turn: _Turn, request: UpdateRequest, attempts: Sequence[Record]) -> _Look:
        """Make a new attempt after one that other work has undone; not at once, and not for ever."""
        *past, last = attempts
        context = turn.context
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
                kept.repeat_at = now + pause_before(count, BETWEEN_ATTEMPTS)
            if now < kept.repeat_at:
                said = TRYING_AGAIN(message=last.message)
                return _Look(attempts, wait=Observation(last, said, notable=True, look_after=kept.repeat_at - now))
        return await self._anew(turn, request, attempts)

    async def _anew(self, turn: _Turn, request: UpdateRequest, attempts: Sequence[Record]) -> _Look:
        """Intend a new attempt."""
        context = turn.context
        if turn.full:
            return _Look(attempts, refusal=NO_NEW_ATTEMPT(why=NO_ROOM()))
        try:
            stamp = context.stamp(max(record.attempt for record in attempts) + 1)
            new = await self._argocd.intend(request, stamp, turn.origin)
        except (TargetError, StampError, Forbidden) as error:
            # The last attempt ended as it did; that there is no other is not its end.
            return _Look(attempts, refusal=NO_NEW_ATTEMPT(why=error))
        return _Look([*attempts, msgspec.structs.replace(new, after_errors=context.errors)], intends=True)

    # -- after an error that was counted ----------------------------------------------------------------------------

    def _is_to_be_tried_again(self, turn: _Turn, attempts: Sequence[Record]) -> bool:
        """Whether the last attempt ended badly, that has been counted, and another may follow."""
        last, context = attempts[-1], turn.context
        return last.after_errors < context.errors and self._may_follow(last) and not _is_over(context, attempts)

    def _may_follow(self, last: Record) -> bool:
        """Whether an attempt may follow *last*, which has ended badly.

        Not where it is not known that it came to nothing: what runs must not be doubled, and what is deployed, and
        maybe was replaced by something newer since, not be deployed again.
        """
        if last.state is TargetState.SUPERSEDED:
            return self._argocd.observe(last).repeatable
        return came_to_nothing(last)

    async def _try_again(self, turn: _Turn, request: UpdateRequest, attempts: Sequence[Record]) -> _Look:
        """Make a new attempt, on what is certainly as it is."""
        last = attempts[-1]
        if last.state is TargetState.SUPERSEDED:
            await self._argocd.applications.read_live(last.key)
            if not self._may_follow(last):
                return _Look(attempts)
        return await self._anew(turn, request, attempts)

    def _failed(self, turn: _Turn, failed: Finished, elapsed: float = 0.0) -> Erred | Finished:
        """*failed* as an error, after which those of the targets that ended badly are tried again; else final."""
        context = turn.context
        bad = [each for each in by_target(failed.records) if each[-1].state is not TargetState.SUCCEEDED]
        if turn.full or not all(self._may_follow(attempts[-1]) for attempts in bad):
            return failed
        if any(_is_over(context, attempts, elapsed) for attempts in bad):
            late = any(attempts[-1].after_errors < context.errors for attempts in bad)
            return dataclasses.replace(failed, message=_timed_out(context, failed.message)) if late else failed
        pause = pause_before(context.errors + 1, BETWEEN_ATTEMPTS)
        return Erred(failed.message, failed=True, retry_after=pause, output=failed.output, records=failed.records)

    def _finish(
        self, turn: _Turn, records: Sequence[Record], refusals: Sequence[str], elapsed: float
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

    def _with_time_of_its_own(self, context: StepContext, seen: Observation) -> Record:
        """The record of *seen*, whose time begins when it could run: not while others held the Application."""
        record = seen.record
        if record.state.final:
            return record
        kept = self._argocd.attempt(record.key, record.stamp)
        if seen.held:
            kept.held = True
            return record
        # An attempt after an error has what is left of the time.
        first = record.after_errors == 0 and record.free_since is None
        late = seen.issued and first and context.now - context.started_at > _PROMPT
        if kept.held or late:
            kept.held, kept.free_since = False, str(Time.of(context.now))
        return self._as_known(record)

    # -- towards an end -------------------------------------------------------------------------------------------

    async def _time_out(
        self, turn: _Turn, records: Sequence[Record], waits: Sequence[Observation]
    ) -> Waiting | Finished:
        """The step has had its time: let go of what is under way, or end it."""
        context = turn.context
        if turn.config.on_timeout == "terminate":
            message = _timed_out(context, first_few([wait.message for wait in waits]))
            return _marked(context, records, waits, message)
        unknown = await settle_last(self._argocd, [wait.record for wait in waits if not wait.present])
        waited_for = {(wait.record.key, wait.record.stamp) for wait in waits}
        ended = [
            self._let_go(record, unknown.get((record.key, record.stamp)))
            if (record.key, record.stamp) in waited_for
            else record
            for record in records
        ]
        said = [record.message for record in ended if (record.key, record.stamp) in waited_for]
        return Finished(StepStatus.FAILED, _timed_out(context, first_few(said)), records=ended)

    def _let_go(self, record: Record, unknown: KubeError | None) -> Record:
        """*record* as it is when nobody waits for it any longer; *unknown*: why a start of it may land yet."""
        present = self._argocd.observe(record).present
        return in_doubt(record, unknown) if unknown is not None and not present else left(record, present)

    def _terminating(self, turn: _Turn, records: Sequence[Record], waits: Sequence[Observation]) -> Waiting:
        """One target has failed: end the others, too."""
        said = ENDING_THE_OTHERS(failures=first_few(_failures(records)), waits=first_few([w.message for w in waits]))
        return _marked(turn.context, records, waits, said)

    async def _end_rest(self, turn: _Turn) -> Waiting | Finished | Erred:
        """Terminate what was under way when the step had had its time, or when one target had failed."""
        context = turn.context
        failures = _failures(context.records)
        # What had failed before the others were asked to end is the reason for that, if the step wants it so.
        reasons = failures if turn.config.on_partial_failure == "terminate" else []
        outcome = await self._end_all(context, give_up=self._out_of_patience(context))
        if isinstance(outcome, Waiting):
            said = _said_of_end(context, reasons, outcome.message)
            return dataclasses.replace(outcome, message=said)
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

    def _out_of_patience(self, context: StepContext) -> bool:
        """Whether the end was waited for long enough; by our own clock from when this process first saw that it is."""
        marked = to_be_ended(context.records, context.errors)
        kept = self._argocd.attempt(marked[0].key, marked[0].stamp)
        now = asyncio.get_running_loop().time()
        if kept.give_up_at is None:
            used = context.now - min(Time(record.stopping_since or "").datetime for record in marked)
            kept.give_up_at = now + min(max(context.patience - used, timedelta()), context.patience).total_seconds()
        return now >= kept.give_up_at

    async def stop(self, context: StepContext, *, give_up: bool) -> StopOutcome:
        """Terminate what runs, let nothing begin, and put the spec back if the step asks for that."""
        if not context.records and (found := await self._adopted(context)):
            return Intend(found)
        outcome = await self._end_all(context, give_up=give_up)
        if isinstance(outcome, Waiting):
            return outcome
        said = [record.message for record in latest(outcome)]
        said += [NOTHING_STARTED()] if context.awaited and not outcome else []
        said += await self._taken_back(context, changes(outcome), give_up=give_up)
        return Finished(StepStatus.ABORTED, first_few(said), records=outcome)

    async def _adopted(self, context: StepContext) -> list[Record]:
        """What a real Kargo has started for this step before we took it over."""
        try:
            wishes = self._turn(context).wishes
            found = [self._argocd.admission.find(choice) for choice in wishes.choices]
            there = resolve(wishes.choices, found, lambda _app: None)
            requests = [target_request(wishes, target) for target in there.targets.items()]
        except ValueError:
            return []
        adopted = [await self._argocd.adopt(request, context.alias, context.promotion) for request in requests]
        return [record for record in adopted if record is not None]

    async def _end_all(self, context: StepContext, *, give_up: bool) -> Waiting | list[Record]:
        """Terminate what runs and let nothing begin; the records once all have ended."""
        records: list[Record] = []
        waits: list[Observation] = []
        failure: KubeError | None = None
        pass_ = _Pass(self._argocd)
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

    async def _taken_back(self, context: StepContext, records: Sequence[Record], *, give_up: bool) -> list[str]:
        """What became of the fields of the spec that the starts have changed, in words."""
        changed = [record for record in records if record.before]
        try:
            turn = self._turn(context)
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


def _records(looks: Sequence[_Look]) -> list[Record]:
    records = [record for look in looks for record in look.attempts]
    return [bounded(record, len(records)) for record in records]


def _least_left(context: StepContext, looks: Sequence[_Look], elapsed: float) -> float | None:
    """Seconds until the first target that is waited for has had its time; that of one that is held does not run."""
    times = [context.time_left(look.attempts) for look in looks if look.wait is not None and not look.wait.held]
    return min((seconds - elapsed for seconds in times if seconds is not None), default=None)


def _is_over(context: StepContext, attempts: Sequence[Record], elapsed: float = 0.0) -> bool:
    """Whether a target with these *attempts* has had its time."""
    left = context.time_left(attempts)
    return left is not None and left <= elapsed


def _timed_out(context: StepContext, said: str) -> str:
    if context.timeout is None:
        return TIMED_OUT(message=said)
    return TIMED_OUT_AFTER(time=context.time, message=said)


def _check_room(records: Sequence[Record], room: int) -> None:
    """Raise LastingError if *records* will not fit into *room* bytes of the Promotion."""
    needed = extent(records)
    if needed > room:
        raise LastingError(TOO_LARGE(count=len(records), needed=needed, room=room))


def _marked(context: StepContext, records: Sequence[Record], waits: Sequence[Observation], message: str) -> Waiting:
    """Mark what is waited for as to be ended, durably first: its end must not be taken for somebody else's doing."""
    now = str(Time.of(context.now))
    waited_for = {(wait.record.key, wait.record.stamp) for wait in waits}
    marked = [
        msgspec.structs.replace(record, stopping_since=now) if (record.key, record.stamp) in waited_for else record
        for record in records
    ]
    return Waiting(message, marked, notable=True, look_after=0.0)


def _failures(records: Sequence[Record]) -> list[str]:
    """What is said of the targets that failed by themselves."""
    ended = [r for r in latest(records) if r.state.final and not r.stopping_since]
    return [record.message for record in ended if record.state is not TargetState.SUCCEEDED]


def _said_of_end(context: StepContext, reasons: Sequence[str], others: str) -> str:
    """What is said of a step that ends what it has under way, for these *reasons* or because of its time-out."""
    if reasons:
        return ENDING_THE_OTHERS(failures=first_few(reasons), waits=others)
    return _timed_out(context, others)


def _output(records: Sequence[Record], before: Any) -> dict[str, Any]:
    """What the step puts out in the end; *before* is what it has put out so far."""
    return {"apps": [{"name": r.name, "namespace": r.namespace} for r in latest(records)], **left_out_of(before)}
