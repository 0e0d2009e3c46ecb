"""How one call of a step is made: so that no step can hold up, or bring down, anything but itself.

A call that only asks API servers (:attr:`~kargo_py.steps.step.Work.API`) is awaited, and cancelled where an abort was
asked for and it does not end by itself. Every other one runs as a task of its own, one of so many of its kind of work:
if it ends within a beat, its answer is given at once; else it goes on, the Promotion is left, and comes again when it
has ended. A call whose time is up is cancelled at once. Nothing that a step raises or answers comes out of here
unexplained.

Nothing of this is on record: a call that was under way when the process died is made again by the next one.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from collections.abc import Callable, Coroutine, Hashable, Mapping
from dataclasses import dataclass
from traceback import walk_tb
from typing import Any, Final, TypeAlias, TypedDict

import structlog

from kargo_py.api.abort import Abort
from kargo_py.api.promotion import StepStatus
from kargo_py.api.types import Duration
from kargo_py.engine.blocking import Blocking, Watchdog, running_step
from kargo_py.engine.copying import copied
from kargo_py.engine.guarding import checked, leaves, nonsense
from kargo_py.engine.retries import is_passing
from kargo_py.engine.work_dirs import WorkDirs
from kargo_py.kube.errors import KubeError
from kargo_py.messages import Shown, message
from kargo_py.steps.base import Erred, Finished, StepContext, StepOutcome
from kargo_py.steps.step import Step, StepFailed, Work

CALL_TOO_LONG = message(
    "one call of the step took longer than {limit} and was cancelled; give the step a time of its own, retry.timeout",
    do="No call of a step may take longer than `--longest-call` says. The kind of step hangs, or needs more time: give "
    "the step a `retry.timeout`, which then counts alone.",
    shown=Shown.PROMOTION,
)
NOT_ENDED = message(
    "an earlier call of the step was cancelled and has not ended, so it is not called again",
    do="A fault of the kind of step: it goes on when it is cancelled. It ends with the process; update the kind of "
    "step, then promote again.",
    shown=Shown.PROMOTION,
)
BLOCKED = message(
    "the step kept the event loop to itself for {limit}, and all else waited; it was interrupted ({where}): its author "
    "has to do such work in a thread, with kargo_py.steps.work.in_thread, or in a subprocess",
    do="A fault of the kind of step, which the place named shows to its author. Update it, then promote again.",
    shown=Shown.PROMOTION,
)
ABANDONED = message(
    "cancelled step goes on",
    do="A step of kind `uses` was cancelled and does not end. It is left alone, and what it answers does not count; it "
    "ends with the process. Tell the author of the kind of step.",
    shown=Shown.LOG,
)
RAISED = message(
    "step raised an error",
    do="`where` are the calls that led there, the innermost last. Its text stands in the message of the Promotion, "
    "masked. Errors that are likely to pass, and answers of API servers, are not logged.",
    shown=Shown.LOG,
)
QUEUED = message(
    "waiting until one of the {count} steps of kind {uses} and its like that run at once has ended",
    do="So many calls of steps of the same kind of work run already. It begins by itself; `--step-limit` says how many "
    "may run.",
    shown=Shown.PROMOTION,
)

UNSEEN = message(
    "looking at it raised {error}",
    do="Part of *the kind of step answered what it may not*: a fault of the kind of step. Tell its author.",
    shown=Shown.PROMOTION,
)

_log = structlog.get_logger(__name__)

_MOST_FRAMES: Final = 10


@dataclass(frozen=True, slots=True)
class Raised:
    """The step raised *error*: anything, BaseExceptions and CancelledError included."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The time of the step was up, and the call has been cancelled."""


@dataclass(frozen=True, slots=True)
class CalledOff:
    """The Promotion is to be aborted, or is gone, and the call has been cancelled."""


Answer: TypeAlias = StepOutcome | Raised | TimedOut | CalledOff
"""What comes of a call."""

Asked: TypeAlias = Callable[[], Abort | None]
"""Tells whether the Promotion is to be aborted by now; with force where nobody waits for the call any more."""


def nobody() -> Abort | None:
    """Nobody asks."""
    return None


_LOOK: Final = 1.0
"""Seconds after which it is looked, again and again, whether a call that is awaited is called off."""

LIMITS: Final[Mapping[Work, int]] = {Work.NETWORK: 64, Work.PROCESS: 4, Work.FILES: 8}
"""How many calls run at once, for each kind of work; those that only ask API servers are not limited here."""


BLOCKED_AFTER: Final = 30.0
"""Seconds for which a step may keep the event loop, in a controller that watches over that."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long calls of steps may take, in seconds.

    ``beat``: for so long the Promotion waits for the end of a call, before it is left. ``longest``: no call without a
    time of its own may take longer. ``stopping``: nor may one that stops or ends the step. ``cancelled``: so long a
    call may tidy up when it is cancelled. ``blocked``: so long a step may keep the event loop to itself, None for ever.
    ``called_off``: so long a call that is awaited may go on since an abort was asked for, unless that is forced.
    """

    beat: float = 0.2
    longest: float = 3600.0
    stopping: float = 120.0
    cancelled: float = 10.0
    blocked: float | None = None
    called_off: float = 30.0


class _Cancelled:
    """Stands for the answer of a call that was cancelled and gave none."""


_CANCELLED: Final = _Cancelled()


class Executor:
    """Makes calls of steps; for one event loop. Closing it cancels and awaits those under way."""

    def __init__(
        self,
        limits: Mapping[Work, int] = LIMITS,
        patience: Patience = Patience(),
        *,
        work_dirs: WorkDirs,
        interrupts: bool = False,
    ) -> None:
        """*interrupts*: a step that blocks the event loop is interrupted, by a signal in the main thread.

        Else that is only logged: in a program of somebody else signals are not ours.
        """
        self.work_dirs = work_dirs
        self._limits = {**LIMITS, **limits}
        self._slots = {work: asyncio.Semaphore(count) for work, count in self._limits.items()}
        self._patience = patience
        self._calls: dict[Hashable, _Call] = {}
        self._abandoned: dict[Hashable, asyncio.Task[Any]] = {}
        self._watchdog = Watchdog(patience.blocked, interrupts=interrupts) if patience.blocked else None

    async def call(
        self,
        key: Hashable,
        step: Step[Any],
        context: StepContext,
        *,
        time_left: float | None,
        done: Callable[[], None],
        asked: Asked = nobody,
    ) -> Answer | None:
        """Call *step*, or take the answer of the call of *key* that was begun before; None: it is still under way.

        *key* names the call: there is never more than one of it. *time_left*: seconds after which it is cancelled, also
        while it is under way. *done* is called when a call that was left under way has ended. *asked* is looked at
        while a call is awaited; whoever aborts cancels one that was left under way.
        """
        call = self._calls.get(key)
        if call is None and key in self._abandoned:
            return Erred(NOT_ENDED())
        if step.work is Work.API:
            run = dataclasses.replace(self._run(step, context, time_left), asked=asked)
            return await self._in_line(self._begin(key, step, context, run))
        if call is None:
            run = self._run(step, context, time_left)
            call = self._calls[key] = self._begin(key, step, context, run, self._slots[step.work])
            try:
                await asyncio.wait({call.answer}, timeout=self._patience.beat)
            finally:
                call.leave(done)
        if not call.answer.done():
            return None
        self._calls.pop(key, None)
        return _answer(call)

    async def stop(self, step: Step[Any], context: StepContext, *, give_up: bool, asked: Asked = nobody) -> Answer:
        """Have *step* stop what it has under way."""
        run = _Run(lambda: step.stop(_own(context), give_up=give_up), stopping=True, asked=asked, **self._soon())
        return await self._in_line(self._begin(object(), step, context, run))

    async def time_out(self, step: Step[Any], context: StepContext, message: str, *, asked: Asked = nobody) -> Answer:
        """Have *step* end with *message*, since its time is up."""
        run = _Run(lambda: step.time_out(_own(context), message), asked=asked, **self._soon())
        return await self._in_line(self._begin(object(), step, context, run))

    def queued(self, key: Hashable) -> str:
        """What the user should know of a call that has not begun, since so many others run; "" if it has."""
        call = self._calls.get(key)
        if call is None or call.began or call.answer.done():
            return ""
        return QUEUED(count=self._limits[call.step.work], uses=call.step.uses)

    async def cancel(self, key: Hashable) -> Answer | None:
        """Cancel the call of *key*, if there is one, and wait for its end; the answer, if it gave one all the same."""
        call = self._calls.get(key)
        if call is None:
            return None
        call.cancel(_CANCELLED)
        # Until then it is under way: whoever closes this waits for it, too.
        answer = await asyncio.shield(call.answer)
        self._calls.pop(key, None)
        return None if isinstance(answer, _Cancelled) else answer

    async def aclose(self) -> None:
        """Cancel all calls, and wait for their ends."""
        await asyncio.gather(*(self.cancel(key) for key in list(self._calls)))
        if self._watchdog is not None:
            self._watchdog.stop()

    def _run(self, step: Step[Any], context: StepContext, time_left: float | None) -> _Run:
        if time_left is not None:
            return _Run(lambda: step.run(_own(context)), max(time_left, 0.0), TimedOut(), counts_in_queue=True)
        longest = self._patience.longest
        return _Run(lambda: step.run(_own(context)), longest, Erred(CALL_TOO_LONG(limit=Duration.of(longest))))

    def _soon(self) -> _Soon:
        return {"seconds": self._patience.stopping, "late": Raised(TimeoutError())}

    def _begin(
        self, key: Hashable, step: Step[Any], context: StepContext, run: _Run, slots: asyncio.Semaphore | None = None
    ) -> _Call:
        call = _Call(step, context, run, self._patience, slots, lambda task: self._abandon(key, task))
        if self._watchdog is not None:
            self._watchdog.watch(call.task)
        return call

    async def _in_line(self, call: _Call) -> Answer:
        """Wait for the end of *call*; when that is cancelled, cancel it, too."""
        try:
            await asyncio.shield(call.answer)
        except asyncio.CancelledError:
            call.cancel(_CANCELLED)
            await asyncio.shield(call.answer)
            raise
        return _answer(call)

    def _abandon(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        self._abandoned[key] = task
        task.add_done_callback(lambda _: self._abandoned.pop(key, None))


def _own(context: StepContext) -> StepContext:
    """*context* for one call: a step that changes its configuration in place is called with it unchanged again."""
    return dataclasses.replace(context, config=copied(context.config), output=copied(context.output))


class _Soon(TypedDict):
    seconds: float
    late: Answer


@dataclass(frozen=True, slots=True)
class _Run:
    """What is called, and for how long: after *seconds* it is cancelled, and *late* is the answer."""

    method: Callable[[], Coroutine[Any, Any, object]]
    seconds: float
    late: Answer
    counts_in_queue: bool = False
    stopping: bool = False
    asked: Asked = nobody


class _Call:
    """One call, under way or ended; ``answer`` never fails."""

    def __init__(
        self,
        step: Step[Any],
        context: StepContext,
        run: _Run,
        patience: Patience,
        slots: asyncio.Semaphore | None,
        abandon: Callable[[asyncio.Task[Any]], None],
    ) -> None:
        """*abandon* gets the task if that has not ended in time after it was cancelled."""
        self._loop = asyncio.get_running_loop()
        self.step = step
        self.began = False
        self.answer: asyncio.Future[Answer | _Cancelled] = self._loop.create_future()
        self._context = context
        self._run = run
        self._patience = patience
        self._slots = slots
        self._abandon = abandon
        self._instead: Answer | _Cancelled | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._asked_at: float | None = None
        self._look: asyncio.TimerHandle | None = None
        name = f"step {context.alias} of {context.project}/{context.promotion}"
        with running_step(name):
            self.task = self._loop.create_task(self._in_slot(), name=name)
        self.task.add_done_callback(self._ended)
        if run.counts_in_queue:
            self._cancel_in(run.seconds, run.late)
        if run.asked is not nobody:
            self._look_soon()

    def leave(self, done: Callable[[], None]) -> None:
        """Call *done* when it has ended, if it has not yet."""
        if not self.answer.done():
            self.answer.add_done_callback(lambda _: done())

    def cancel(self, instead: Answer | _Cancelled) -> None:
        """Cancel it; its answer is *instead*, unless it ends with one all the same."""
        if self._instead is not None or self.answer.done():
            return
        self._instead = instead
        self.task.cancel()
        self._timers.append(self._loop.call_later(self._patience.cancelled, self._give_up))

    def _cancel_in(self, seconds: float, instead: Answer) -> None:
        self._timers.append(self._loop.call_later(seconds, self.cancel, instead))

    def _look_soon(self) -> None:
        self._look = self._loop.call_later(_LOOK, self._look_whether_asked)

    def _look_whether_asked(self) -> None:
        """Cancel it if that was asked for, and it has had the time to end by itself; else look again."""
        asked, now = self._run.asked(), self._loop.time()
        if asked is None:
            self._asked_at = None
        elif self._asked_at is None:
            self._asked_at = now
        since = self._asked_at if self._asked_at is not None else now
        if asked is not None and (asked.force or now - since >= self._patience.called_off):
            self.cancel(CalledOff())
        else:
            self._look_soon()

    async def _in_slot(self) -> Answer:
        if self._slots is not None:
            slots = self._slots
            await slots.acquire()
            # With the answer, not with the task: one that does not end when it is cancelled holds no slot.
            self.answer.add_done_callback(lambda _: slots.release())
        self.began = True
        if not self._run.counts_in_queue:
            self._cancel_in(self._run.seconds, self._run.late)
        return await _guarded(self._run, self._context)

    def _ended(self, task: asyncio.Task[Answer]) -> None:
        if task.cancelled():
            self._settle(self._instead or _CANCELLED)
            return
        # What was cancelled and ends with "I am through" was quicker; any other answer tells of a call cut short.
        given = task.result()
        self._settle(given if self._instead is None or isinstance(given, Finished) else self._instead)

    def _give_up(self) -> None:
        context = self._context
        promotion = f"{context.project}/{context.promotion}"
        _log.error(ABANDONED(), uses=self.step.uses, promotion=promotion, step=context.alias)
        self._abandon(self.task)
        self._settle(self._instead or _CANCELLED)

    def _settle(self, answer: Answer | _Cancelled) -> None:
        for timer in (*self._timers, *([self._look] if self._look is not None else [])):
            timer.cancel()
        if not self.answer.done():
            self.answer.set_result(answer)


def _answer(call: _Call) -> Answer:
    """The answer of a call that has ended and was not called off."""
    answer = call.answer.result()
    return Raised(asyncio.CancelledError()) if isinstance(answer, _Cancelled) else answer


async def _guarded(run: _Run, context: StepContext) -> Answer:
    """Make the call; whatever it raises or answers becomes an answer."""
    try:
        outcome = await run.method()
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return Raised(error)
    except BaseException as error:  # noqa: BLE001 - SystemExit, too: a step does not end the program
        blocking = next((each for each in leaves(error) if isinstance(each, Blocking)), None)
        if blocking is None:
            _tell(error, context)
            return Raised(error)
        status = StepStatus.ABORTED if run.stopping else StepStatus.ERRORED
        return Finished(status, BLOCKED(limit=Duration.of(blocking.seconds), where=blocking.where))
    if inspect.iscoroutine(outcome):
        outcome.close()
    try:
        return checked(outcome, context, stopping=run.stopping)
    except Exception as error:  # noqa: BLE001 - to look at it runs code of the step's
        return nonsense(UNSEEN(error=type(error).__name__), stopping=run.stopping)


def _tell(error: BaseException, context: StepContext) -> None:
    """Log where it was raised, for the author of the step; not its text, which may have secrets in it."""
    if isinstance(error, StepFailed | KubeError) or is_passing(error):
        return
    frames = [f"{f.f_code.co_filename}:{line} in {f.f_code.co_name}" for f, line in walk_tb(error.__traceback__)]
    promotion = f"{context.project}/{context.promotion}"
    _log.warning(
        RAISED(), error=type(error).__name__, promotion=promotion, step=context.alias, where=frames[1:][-_MOST_FRAMES:]
    )
