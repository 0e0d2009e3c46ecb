"""One call of a step: at once or in the background, one at a time, limited, cancelled, and never unexplained."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kargo_py.api.promotion import StepStatus
from kargo_py.engine.execution import Answer, Executor, Patience, Raised, TimedOut
from kargo_py.steps.base import Erred, Finished, StepContext
from kargo_py.steps.step import StepFailed, Work
from tests.engine.calling import Told, context_of, executor

pytestmark = pytest.mark.looptime

DONE = Finished(StepStatus.SUCCEEDED, "done")
Act = Callable[[StepContext], Awaitable[Any]]
BACKGROUND = (Work.NETWORK, Work.PROCESS, Work.FILES)


@asynccontextmanager
async def opened(limits: Mapping[Work, int] | None = None, **patience: float) -> AsyncIterator[Executor]:
    made = executor(limits=limits or {}, patience=Patience(**patience))
    try:
        yield made
    finally:
        await made.aclose()
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert [task.get_name() for task in left if task.get_name().startswith("step ")] == []


class Caller:
    """Calls a step under one key as the Promotion controller does."""

    def __init__(self, executor: Executor, act: Act, work: Work = Work.NETWORK, key: str = "p1") -> None:
        self.executor = executor
        self.step = Told(act, work)
        self.key = key
        self.woken = asyncio.Event()

    async def call(self, time_left: float | None = None) -> Answer | None:
        return await self.executor.call(self.key, self.step, context_of(), time_left=time_left, done=self.woken.set)

    async def wait(self, time_left: float | None = None) -> Answer:
        """Call, and call again when woken, until there is an answer."""
        while (answer := await self.call(time_left)) is None:
            await self.woken.wait()
        return answer


def takes(seconds: float, answer: object = DONE) -> Act:
    async def act(_: StepContext) -> object:
        await asyncio.sleep(seconds)
        return answer

    return act


@pytest.mark.parametrize("work", Work)
async def test_a_short_call(work: Work) -> None:
    """It is answered at once, and nobody is woken."""
    async with opened() as made:
        caller = Caller(made, takes(0.1), work)
        assert await caller.call() == DONE
        assert not caller.woken.is_set()


@pytest.mark.parametrize("work", BACKGROUND)
async def test_a_long_call(work: Work) -> None:
    """It goes on in the background; who asks meanwhile is sent away, and the first after its end gets the answer."""
    began = asyncio.get_running_loop().time()
    async with opened() as made:
        caller = Caller(made, takes(50), work)
        assert await caller.call() is None
        assert asyncio.get_running_loop().time() - began == pytest.approx(0.2)
        assert await caller.call() is None
        await caller.woken.wait()
        assert asyncio.get_running_loop().time() - began == pytest.approx(50)
        assert await caller.call() == DONE


async def test_a_call_that_asks_api_servers_only() -> None:
    """It is awaited."""
    async with opened() as made:
        assert await Caller(made, takes(50), Work.API).call() == DONE


async def test_never_two_at_once() -> None:
    """However often it is asked for, there is one call of a key at a time; then there may be another."""
    running, most, calls = 0, 0, 0

    async def act(_: StepContext) -> Finished:
        nonlocal running, most, calls
        running, calls = running + 1, calls + 1
        most = max(most, running)
        await asyncio.sleep(5)
        running -= 1
        return DONE

    async with opened() as made:
        caller = Caller(made, act)
        await asyncio.gather(*(caller.call() for _ in range(5)))
        assert await caller.wait() == DONE
        assert (most, calls) == (1, 1)
        caller.woken.clear()
        assert await caller.wait() == DONE
        assert (most, calls) == (1, 2)


@pytest.mark.parametrize("work", Work)
@pytest.mark.parametrize("limit", [0.05, 7, -1])
async def test_the_time_is_up(work: Work, limit: float) -> None:
    """The call is cancelled just then, also in the background."""
    cancelled_at = None

    async def act(_: StepContext) -> None:
        nonlocal cancelled_at
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            cancelled_at = asyncio.get_running_loop().time()
            raise

    async with opened() as made:
        began = asyncio.get_running_loop().time()
        assert await Caller(made, act, work).wait(time_left=limit) == TimedOut()
        assert asyncio.get_running_loop().time() - began == pytest.approx(max(limit, 0))
        if limit > 0:
            assert cancelled_at is not None
            assert cancelled_at - began == pytest.approx(limit)


@pytest.mark.parametrize("work", Work)
async def test_no_call_takes_for_ever(work: Work) -> None:
    """One without a time of its own has an hour, and the answer says what to do."""
    async with opened() as made:
        answer = await Caller(made, takes(10**9), work).wait()
        assert isinstance(answer, Erred)
        assert "longer than 1h0m0s" in answer.message
        assert "retry.timeout" in answer.message


@pytest.mark.parametrize("work", BACKGROUND)
async def test_limits_hold_for_each_kind_of_work(work: Work) -> None:
    """No more than that run at once; the others wait in their order, say so, and hold nobody up."""
    other = Work.FILES if work is not Work.FILES else Work.NETWORK
    running, most = 0, 0
    begun: list[str] = []

    def act(key: str) -> Act:
        async def run(_: StepContext) -> Finished:
            nonlocal running, most
            begun.append(key)
            running += 1
            most = max(most, running)
            await asyncio.sleep(10)
            running -= 1
            return DONE

        return run

    async with opened({work: 2}) as made:
        callers = [Caller(made, act(f"{n}"), work, f"{n}") for n in range(6)]
        waiting = [asyncio.ensure_future(caller.wait()) for caller in callers]
        await asyncio.sleep(1)
        assert [bool(made.queued(f"{n}")) for n in range(6)] == [False, False, True, True, True, True]
        assert "one of the 2 steps" in made.queued("5")
        assert await Caller(made, takes(0.1), other, "other").call() == DONE
        assert await asyncio.gather(*waiting) == [DONE] * 6
        assert most == 2
        assert begun == [f"{n}" for n in range(6)]


async def test_the_time_is_up_in_the_queue() -> None:
    """Waiting for others counts as time of the step, and what was never begun leaves nothing behind."""
    async with opened({Work.NETWORK: 1}) as made:
        first, second = Caller(made, takes(100), key="1"), Caller(made, takes(1), key="2")
        assert await first.call() is None
        assert await second.wait(time_left=5) == TimedOut()
        assert await first.wait() == DONE
        assert await Caller(made, takes(1), key="3").wait() == DONE


class Nasty(Exception):
    """Cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no")


RAISED: Mapping[str, Callable[[], BaseException]] = {
    "an error": lambda: ValueError("no"),
    "the end of the program": lambda: SystemExit(3),
    "an interrupt": KeyboardInterrupt,
    "the end of a generator": GeneratorExit,
    "a cancellation of its own": asyncio.CancelledError,
    "a time-out": TimeoutError,
    "a group": lambda: ExceptionGroup("several", [ValueError("a"), TypeError("b")]),
    "a group of worse": lambda: BaseExceptionGroup("several", [SystemExit(3), ValueError("b")]),
    "one without a text": Nasty,
    "the end of an iteration": StopAsyncIteration,
}


@pytest.mark.parametrize("raised", RAISED)
@pytest.mark.parametrize("seconds", [0, 5])
@pytest.mark.parametrize("work", [Work.API, Work.NETWORK])
async def test_whatever_is_raised(raised: str, seconds: float, work: Work) -> None:
    """It is handed to who called, and to nobody else."""
    error = RAISED[raised]()

    async def act(_: StepContext) -> None:
        await asyncio.sleep(seconds)
        raise error

    async with opened() as made:
        answer = await Caller(made, act, work).wait()
        assert isinstance(answer, Raised)
        assert answer.error is error or isinstance(answer.error, asyncio.CancelledError)


async def test_where_it_was_raised_is_logged(logged: list[Any]) -> None:
    """For the author of the step, without the text; what is no fault of the step is not."""

    async def looks_up(_: StepContext) -> None:
        raise RuntimeError("s3cret")

    def raises(error: Exception) -> Act:
        async def act(_: StepContext) -> None:
            raise error

        return act

    async with opened() as made:
        await Caller(made, looks_up).wait()
        await Caller(made, raises(StepFailed("no"))).wait()
        await Caller(made, raises(ConnectionResetError())).wait()
    (told,) = logged
    assert (told["event"], told["error"]) == ("step raised an error", "RuntimeError")
    assert told["where"][-1].endswith("in looks_up")
    assert "s3cret" not in str(told)


@pytest.mark.parametrize("work", [Work.API, Work.NETWORK])
async def test_nonsense(work: Work) -> None:
    """An answer that is none is explained; a coroutine that was forgotten to be awaited is closed."""
    async with opened() as made:
        for nonsense in (None, "done", takes(1)(context_of()), Finished(StepStatus.RUNNING)):
            answer = await Caller(made, takes(0, nonsense), work).wait()
            assert isinstance(answer, Finished)
            assert answer.status is StepStatus.ERRORED
            assert "report this to its author" in answer.message


@pytest.mark.parametrize("work", BACKGROUND)
@pytest.mark.parametrize("after", [0.1, 5])
async def test_cancelling(work: Work, after: float) -> None:
    """A call that is called off is cancelled, and its end is awaited; another may be made then."""
    tidied = asyncio.Event()

    async def act(_: StepContext) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(2)
            tidied.set()

    async with opened() as made:
        caller = Caller(made, act, work)
        waiting = asyncio.ensure_future(caller.call())
        await asyncio.sleep(after)
        assert await made.cancel(caller.key) is None
        assert tidied.is_set()
        waiting.cancel()
        assert await made.cancel(caller.key) is None
        assert await Caller(made, takes(1), work).wait() == DONE


async def test_cancelling_what_has_ended() -> None:
    """Its answer is not lost: what was done is to be recorded."""
    async with opened() as made:
        caller = Caller(made, takes(5))
        assert await caller.call() is None
        await caller.woken.wait()
        assert await made.cancel(caller.key) == DONE


async def test_ending_in_spite_of_being_cancelled() -> None:
    """A step that finishes what it was at has finished; one that answers anything else was cut short."""

    def act(answer: object) -> Act:
        async def run(_: StepContext) -> object:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                return answer
            raise AssertionError

        return run

    async with opened() as made:
        for answer, expected in ((DONE, DONE), (Erred("no"), None)):
            caller = Caller(made, act(answer))
            assert await caller.call() is None
            assert await made.cancel(caller.key) == expected
        assert await Caller(made, act(Erred("no"))).wait(time_left=5) == TimedOut()


async def test_not_ending_when_cancelled(logged: list[Any]) -> None:
    """It is left alone after some seconds, logged once, holds no slot, and is not called again while it goes on."""
    release = asyncio.Event()

    async def act(_: StepContext) -> Finished:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return DONE

    async with opened({Work.NETWORK: 1}) as made:
        began = asyncio.get_running_loop().time()
        caller = Caller(made, act)
        assert await caller.wait(time_left=5) == TimedOut()
        assert asyncio.get_running_loop().time() - began == pytest.approx(15)
        assert [(event["event"], event["uses"]) for event in logged] == [("cancelled step goes on", "told")]
        answer = await caller.call()
        assert isinstance(answer, Erred)
        assert "has not ended" in answer.message
        assert await Caller(made, takes(1), key="other").wait() == DONE
        release.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert await caller.wait() == DONE


async def test_a_cancelled_caller() -> None:
    """Who asks may be cancelled: what is awaited is cancelled with him, what runs in the background is not."""
    ended: list[str] = []

    def act(name: str) -> Act:
        async def run(_: StepContext) -> Finished:
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                ended.append(name)
                raise
            return DONE

        return run

    async with opened() as made:
        in_line = asyncio.ensure_future(Caller(made, act("in line"), Work.API).call())
        caller = Caller(made, act("in the background"))
        waiting = asyncio.ensure_future(caller.call())
        await asyncio.sleep(0.1)
        for task in (in_line, waiting):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert ended == ["in line"]
        await caller.woken.wait()
        assert await caller.call() == DONE


async def test_closing() -> None:
    """All that is under way is cancelled and awaited, at once."""
    made = executor()
    callers = [Caller(made, takes(1000), key=f"{n}") for n in range(20)]
    assert await asyncio.gather(*(caller.call() for caller in callers)) == [None] * 20
    await made.aclose()
    assert [task for task in asyncio.all_tasks() if task.get_name().startswith("step ")] == []


async def test_stopping_and_ending() -> None:
    """A step that is to stop, or to end, is guarded and limited, too."""
    ended = Finished(StepStatus.ABORTED)
    async with opened() as made:
        assert await made.stop(Told(takes(1, ended)), context_of(), give_up=True) == ended
        assert await made.time_out(Told(takes(1)), context_of(), "late") == DONE
        hanging = await made.stop(Told(takes(10**9, ended)), context_of(), give_up=False)
        assert isinstance(hanging, Raised)
        assert isinstance(hanging.error, TimeoutError)
        nonsense = await made.stop(Told(takes(1, Erred("no"))), context_of(), give_up=False)
        assert isinstance(nonsense, Finished)
        assert nonsense.status is StepStatus.ABORTED
