"""Brings the targets of ``argocd-update`` further, one by one: each stands alone."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence

import msgspec

from kargo_py.api.stamp import StampError
from kargo_py.api.types import Time
from kargo_py.deployers.argocd import ArgoCD
from kargo_py.deployers.argocd_admission import TargetError, UpdateRequest
from kargo_py.deployers.argocd_records import Attempt
from kargo_py.deployers.base import Observation, Record, TargetState
from kargo_py.kube.backoff import pause_before
from kargo_py.kube.errors import Forbidden, Invalid, KubeError
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message
from kargo_py.steps.argocd_update_records import by_target, came_to_nothing, in_doubt, refused
from kargo_py.steps.argocd_update_turn import PROMPT, Look, TargetPass, Turn, is_over
from kargo_py.steps.base import StepContext
from kargo_py.steps.passes import BETWEEN_ATTEMPTS, LATE_PASS, Pass

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
NO_ROOM = message(
    "there is no room for the record of one more",
    do="Of *no new attempt is made*: the Promotion would become too large. Promote again.",
    shown=Shown.PROMOTION,
)
TRYING_AGAIN = message(
    "{message}; trying again",
    do="A new sync is started by itself after a pause of some seconds, which grows from try to try.",
    shown=Shown.PROMOTION,
)

ATTEMPTS = 3
"""How often an attempt that other work has undone is made, at most."""

_YIELD_EVERY = 50


class Targets:
    """Brings targets further, and says how they stand."""

    def __init__(self, argocd: ArgoCD) -> None:
        self._argocd = argocd

    # -- all of them ----------------------------------------------------------------------------------------------

    def time_of_pass(self, turn: Turn) -> float | None:
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

    async def looks(self, turn: Turn, pass_: TargetPass) -> list[Look]:
        """Each target in its turn. Where one failure ends all: what has ended first, and nothing is begun after it."""
        groups = by_target(turn.context.records)
        alone = turn.config.on_partial_failure == "wait"
        order = groups if alone else sorted(groups, key=self._order_of_begin)
        looks: dict[Key, Look] = {}
        failed = False
        for number, attempts in enumerate(sorted(order, key=lambda group: pass_.failed_at(group[-1])), 1):
            if failed:
                look = self.glance(attempts)
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

    def _later(self, turn: Turn, attempts: Sequence[Record]) -> Look:
        """A target that is left to the next pass: nothing is done about it, and nothing is concluded."""
        last = attempts[-1]
        if last.state is TargetState.WRONG_REVISION or self._is_to_be_tried_again(turn, attempts):
            return Look(attempts, wait=Observation(last, TRYING_AGAIN(message=last.message)))
        if last.state.final:
            return Look(attempts)
        return Look(attempts, wait=dataclasses.replace(self._argocd.observe(last), record=last))

    def to_be_tried_once_more(self, looks: Sequence[Look]) -> bool:
        """Whether one of *looks* is to be begun late, since Argo CD's API server was away when it should have been.

        That came back between a start that it did not answer and the look that followed.
        """
        kept = [self.kept_of(look) for look in looks if look.wait is not None and look.wait.start]
        late = [each for each in kept if each.one_more_try]
        for each in late:
            each.one_more_try = False
        return bool(late)

    def kept_of(self, look: Look) -> Attempt:
        """What this process keeps of the last attempt."""
        return self._argocd.attempt(look.attempts[-1].key, look.attempts[-1].stamp)

    # -- one of them ----------------------------------------------------------------------------------------------

    def glance(self, attempts: Sequence[Record]) -> Look:
        """How a target stands, where nothing is begun on it any more."""
        *past, last = attempts
        if last.state.final:
            return Look(attempts)
        seen = self._argocd.observe(last)
        return Look([*past, seen.record], wait=None if seen.record.state.final else seen)

    async def _look_in_time(self, turn: Turn, attempts: Sequence[Record], pass_: Pass) -> Look:
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

    async def _look(self, turn: Turn, attempts: Sequence[Record]) -> Look:
        *past, record = attempts
        again = self._is_to_be_tried_again(turn, attempts)
        if record.state.final and record.state is not TargetState.WRONG_REVISION and not again:
            return Look(attempts)
        try:
            request = turn.wishes.request(record.key, record.entries)
            if again:
                return await self._try_again(turn, request, attempts)
            if record.state.final:
                return await self._repeat(turn, request, attempts)
            seen = await self._argocd.pursue(record, request, turn.origin)
            if seen.fresh is not None:
                return Look([*past, seen.fresh], intends=True)
            if seen.repeatable:
                return await self._repeat(turn, request, [*past, seen.record])
        except (TargetError, StampError) as error:
            if record.state.final:
                return Look(attempts, refusal=str(error))
            return await self._refused(attempts, error)
        except KubeError as error:
            present = self._argocd.observe(record).present
            return Look(attempts, wait=Observation(record, str(error), present=present), error=error)
        record = self._with_time_of_its_own(turn.context, seen)
        return Look([*past, record], wait=None if record.state.final else seen)

    async def _refused(self, attempts: Sequence[Record], error: Exception) -> Look:
        """The start was refused: that is the end of the attempt, unless one that was sent before it has landed."""
        *past, record = attempts
        if self._argocd.may_land(record):
            try:
                await self._argocd.settle(record)
            except (Forbidden, Invalid):
                return Look([*past, in_doubt(record, error)])
            except KubeError as failure:
                return Look(attempts, wait=Observation(record, str(error), notable=True), error=failure)
            seen = self._argocd.observe(record)
            if seen.present:
                return Look([*past, seen.record], wait=None if seen.record.state.final else seen)
        return Look([*past, refused(record, error)])

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
        late = seen.issued and first and context.now - context.started_at > PROMPT
        if kept.held or late:
            kept.held, kept.free_since = False, str(Time.of(context.now))
        return self.as_known(record)

    def as_known(self, record: Record) -> Record:
        """*record* with since when its time counts, which may not be written yet."""
        if record.state.final:
            return record
        since = self._argocd.attempt(record.key, record.stamp).free_since
        return msgspec.structs.replace(record, free_since=since) if since is not None else record

    async def _repeat(self, turn: Turn, request: UpdateRequest, attempts: Sequence[Record]) -> Look:
        """Make a new attempt after one that other work has undone; not at once, and not for ever."""
        *past, last = attempts
        context = turn.context
        count = sum(record.state is last.state for record in attempts)
        known = any(
            (record.key, record.stamp) == (last.key, last.stamp) and record.state.final for record in context.records
        )
        if count >= ATTEMPTS:
            said = EACH_TIME(message=last.message, count=count)
            return Look(attempts if known else [*past, last.ended(last.state, said)])
        if last.state is TargetState.WRONG_REVISION:
            now = asyncio.get_running_loop().time()
            kept = self._argocd.attempt(last.key, last.stamp)
            if kept.repeat_at is None:
                kept.repeat_at = now + pause_before(count, BETWEEN_ATTEMPTS)
            if now < kept.repeat_at:
                said = TRYING_AGAIN(message=last.message)
                return Look(attempts, wait=Observation(last, said, notable=True, look_after=kept.repeat_at - now))
        return await self._anew(turn, request, attempts)

    async def _anew(self, turn: Turn, request: UpdateRequest, attempts: Sequence[Record]) -> Look:
        """Intend a new attempt."""
        context = turn.context
        if turn.full:
            return Look(attempts, refusal=NO_NEW_ATTEMPT(why=NO_ROOM()))
        try:
            stamp = context.stamp(max(record.attempt for record in attempts) + 1)
            new = await self._argocd.intend(request, stamp, turn.origin)
        except (TargetError, StampError, Forbidden) as error:
            # The last attempt ended as it did; that there is no other is not its end.
            return Look(attempts, refusal=NO_NEW_ATTEMPT(why=error))
        return Look([*attempts, msgspec.structs.replace(new, after_errors=context.errors)], intends=True)

    # -- after an error that was counted ----------------------------------------------------------------------------

    def _is_to_be_tried_again(self, turn: Turn, attempts: Sequence[Record]) -> bool:
        """Whether the last attempt ended badly, that has been counted, and another may follow."""
        last, context = attempts[-1], turn.context
        return last.after_errors < context.errors and self.may_follow(last) and not is_over(context, attempts)

    def may_follow(self, last: Record) -> bool:
        """Whether an attempt may follow *last*, which has ended badly.

        Not where it is not known that it came to nothing: what runs must not be doubled, and what is deployed, and
        maybe was replaced by something newer since, not be deployed again.
        """
        if last.state is TargetState.SUPERSEDED:
            return self._argocd.observe(last).repeatable
        return came_to_nothing(last)

    async def _try_again(self, turn: Turn, request: UpdateRequest, attempts: Sequence[Record]) -> Look:
        """Make a new attempt, on what is certainly as it is."""
        last = attempts[-1]
        if last.state is TargetState.SUPERSEDED:
            await self._argocd.applications.read_live(last.key)
            if not self.may_follow(last):
                return Look(attempts)
        return await self._anew(turn, request, attempts)
