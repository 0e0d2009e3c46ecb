"""How ``argocd-update`` begins: which Applications it is about, and what is going to be done to each.

All are checked before any is started.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import msgspec

from kargo_py.api.promotion import StepStatus
from kargo_py.api.stamp import StampError
from kargo_py.api.types import Time
from kargo_py.deployers.argocd import ArgoCD
from kargo_py.deployers.argocd_admission import LastingError, TargetError, UpdateRequest
from kargo_py.deployers.base import Record
from kargo_py.kube.errors import KubeError
from kargo_py.messages import Shown, message
from kargo_py.steps.argocd_update_records import LEAST_EXTENT, extent
from kargo_py.steps.argocd_update_targets import Chosen, choose, left_out_message, left_out_output
from kargo_py.steps.argocd_update_turn import LEAST_ROOM, PROMPT, Turn, timed_out
from kargo_py.steps.base import Erred, Finished, Intend, StepOutcome, Waiting, first_few
from kargo_py.steps.passes import LATE_PASS, Pass

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
NOT_CHECKED_IN_TIME = message(
    "Argo CD's API server did not answer in time what Applications there are; nothing was started",
    do="Of *timed out after …*: see that Argo CD's API server answers, then promote again.",
    shown=Shown.PROMOTION,
)

_FAULTS = 3


class Beginning:
    """Makes the first records."""

    def __init__(self, argocd: ArgoCD) -> None:
        self._argocd = argocd

    async def begin_in_time(self, turn: Turn) -> StepOutcome:
        """Begin, or end if the time is up before that: nothing was started, so there is nothing to be seen."""
        context = turn.context
        left = turn.time_to_begin
        pass_ = Pass(max(left, LATE_PASS) if left is not None else None)
        try:
            async with pass_.limit():
                outcome = await self._begin(turn)
        except TimeoutError:
            return Finished(StepStatus.ERRORED, timed_out(context, NOT_CHECKED_IN_TIME()))
        except KubeError as error:
            if left is None:
                raise
            if left > pass_.elapsed:
                return Waiting(str(error), error=error, up_in=left - pass_.elapsed)
            return Finished(StepStatus.ERRORED, timed_out(context, str(error)))
        if isinstance(outcome, Erred) and context.errors and left is not None and left <= pass_.elapsed:
            return Finished(StepStatus.ERRORED, timed_out(context, outcome.message))
        return outcome

    async def _begin(self, turn: Turn) -> StepOutcome:
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

    async def _intents(self, turn: Turn, requests: Sequence[UpdateRequest]) -> list[Record]:
        """The intents to record; raises TargetError if they cannot be carried out, or are too many."""
        context = turn.context
        stamp, room = context.stamp(1), max(context.room, LEAST_ROOM)
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
        if context.now - context.started_at > PROMPT:
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


def _check_room(records: Sequence[Record], room: int) -> None:
    """Raise LastingError if *records* will not fit into *room* bytes of the Promotion."""
    needed = extent(records)
    if needed > room:
        raise LastingError(TOO_LARGE(count=len(records), needed=needed, room=room))
