"""The loop in simulated time: what asyncio promises holds, and a seed decides the rest."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any

import pytest

from kargo_py.local.simulation.loop import (
    DeadlockError,
    LivelockError,
    SimulatedLoop,
    current_process,
    running_loop,
    simulate,
)

YEAR = 365 * 24 * 3600.0


def test_time_costs_nothing() -> None:
    """A year passes at once, to the second."""

    async def main() -> float:
        await asyncio.sleep(YEAR)
        return asyncio.get_running_loop().time()

    outcome = simulate(main)
    assert (outcome.value, outcome.seconds, outcome.left) == (YEAR, YEAR, [])


def test_callbacks_keep_their_order() -> None:
    """What is scheduled first runs first, with a seed, too: asyncio promises that."""

    async def main() -> list[int]:
        seen: list[int] = []
        for number in range(200):
            asyncio.get_running_loop().call_soon(seen.append, number)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return seen

    assert simulate(main, seed=1).value == list(range(200))


async def race() -> list[str]:
    """Two tasks that do much and little, and wait for a short and a long time."""
    seen: list[str] = []

    async def run(name: str, pause: float, turns: int) -> None:
        for _ in range(20):
            await asyncio.sleep(pause)
            for _ in range(turns):
                await asyncio.sleep(0)
            seen.append(name)

    async with asyncio.TaskGroup() as group:
        group.create_task(run("a", 0.001, 10))
        group.create_task(run("b", 0.0013, 1))
    return seen


def test_a_seed_decides_who_is_first() -> None:
    """The same seed makes the same run; other seeds make others."""
    runs = {seed: "".join(simulate(race, seed=seed).value) for seed in range(20)}
    assert runs == {seed: "".join(simulate(race, seed=seed).value) for seed in range(20)}
    assert len(set(runs.values())) > 10
    assert "".join(simulate(race).value)[:6] == "ababab"


def test_random_is_seeded_and_put_back() -> None:
    """The module's functions, which libraries use, replay; outside they go on as if nothing had been."""

    async def main() -> float:
        return random.random()

    random.seed(7)
    expected = random.random()
    random.seed(7)
    assert simulate(main, seed=1).value == simulate(main, seed=1).value != simulate(main, seed=2).value
    assert random.random() == expected
    assert random.random.__self__ is random.uniform.__self__  # type: ignore[attr-defined]


def test_other_threads_draw_from_another_generator() -> None:
    """A server of other tests may run beside it: what that draws changes nothing here, nor is it changed."""

    async def main(beside: Callable[[], object]) -> list[float]:
        drawn = []
        for _ in range(3):
            other = threading.Thread(target=beside)
            other.start()
            other.join()
            drawn.append(random.uniform(0, 1))
        return drawn

    random.seed(7)
    expected = [random.random() for _ in range(3)]
    random.seed(7)
    theirs: list[float] = []
    alone = simulate(partial(main, lambda: None), seed=1).value
    assert simulate(partial(main, lambda: theirs.append(random.random())), seed=1).value == alone
    assert theirs == expected


def test_a_deadlock_is_told() -> None:
    """When nothing can happen any more it says who waits where."""

    async def waits_in_vain() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        await asyncio.create_task(waits_in_vain(), name="the forgotten one")

    with pytest.raises(DeadlockError, match=r"the forgotten one waits in .*waits_in_vain .*test_simulated_loop"):
        simulate(main)


def test_a_livelock_is_told() -> None:
    """What goes round without a pause is ended, however the clock moves by that."""

    async def main() -> None:
        while True:  # noqa: ASYNC110 - that it is busy is the point
            await asyncio.sleep(0)

    loop = SimulatedLoop(1, livelock=1000)
    task: asyncio.Task[None] = loop.create_task(main(), name="the busy one")
    with pytest.raises(LivelockError, match="the busy one"):
        loop.run_until_complete(task)
    assert loop.end() == ["the busy one"]
    loop.close()


def test_what_is_left_is_cancelled_and_named() -> None:
    """Its own end is awaited."""
    ended = []

    async def lasting() -> None:
        try:
            await asyncio.sleep(YEAR)
        finally:
            await asyncio.sleep(1)
            ended.append(True)

    async def main() -> None:
        asyncio.create_task(lasting(), name="lasting")  # noqa: RUF006 - that it is forgotten is the point
        await asyncio.sleep(1)

    assert simulate(main).left == ["lasting"]
    assert ended == [True]


def test_an_error_comes_out_and_nothing_is_left() -> None:
    """The error of the program, not one of the clearing up."""

    async def main() -> None:
        asyncio.create_task(asyncio.sleep(YEAR))  # noqa: RUF006 - that it is forgotten is the point
        await asyncio.sleep(1)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        simulate(main)


def test_a_paused_process_goes_on_where_it_was() -> None:
    """Its timers are late, in their order; nobody else waits for it."""

    async def main() -> list[tuple[str, float]]:
        seen: list[tuple[str, float]] = []

        async def tick(name: str) -> None:
            for _ in range(4):
                await asyncio.sleep(1)
                seen.append((name, asyncio.get_running_loop().time()))

        loop = running_loop()
        one, two = loop.process("one"), loop.process("two")
        tasks = [one.spawn(tick("one")), two.spawn(tick("two"))]
        await asyncio.sleep(1.5)
        one.pause()
        await asyncio.sleep(10)
        one.resume()
        await asyncio.gather(*tasks)
        return seen

    seen = simulate(main).value
    assert [time for name, time in seen if name == "one"] == [1, 11.5, 12.5, 13.5]
    assert [time for name, time in seen if name == "two"] == [1, 2, 3, 4]


def test_a_killed_process_tidies_nothing() -> None:
    """No ``finally`` of it runs, what it has scheduled either; in the end it is cleared away."""
    trace: list[Any] = []

    async def child() -> None:
        trace.append(current_process())
        try:
            await asyncio.sleep(5)
            trace.append("not killed")
        finally:
            trace.append(asyncio.get_running_loop().time())

    async def parent() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(child())

    async def main() -> str:
        process = running_loop().process("victim")
        process.spawn(parent())
        await asyncio.sleep(1)
        process.kill()
        await asyncio.sleep(YEAR)
        return repr(process)

    outcome = simulate(main)
    assert outcome.value == repr(trace[0]).replace("running", "killed")
    assert trace[1:] == [YEAR + 1]
    assert len(outcome.left) == 2


def test_sets_of_tasks_replay() -> None:
    """The order in which a TaskGroup cancels its tasks does not depend on where they lie in memory."""

    async def main() -> list[int]:
        ended: list[int] = []

        async def wait(number: int) -> None:
            try:
                await asyncio.sleep(YEAR)
            finally:
                ended.append(number)

        async def group() -> None:
            async with asyncio.TaskGroup() as tasks:
                for number in range(50):
                    tasks.create_task(wait(number))

        task = asyncio.create_task(group())
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait([task])
        return ended

    rubbish = [object() for _ in range(10)]
    assert simulate(main).value == simulate(main).value
    assert rubbish


def test_generators_are_closed() -> None:
    """One that was left off is ended by the loop, as by any."""
    ended = []

    async def numbers() -> AsyncGenerator[int]:
        try:
            yield 1
            yield 2
        finally:
            ended.append(True)

    async def main() -> None:
        async for _ in numbers():
            break
        await asyncio.sleep(1)

    simulate(main)
    assert ended == [True]


def test_what_runs_in_a_thread() -> None:
    """It runs while others go on, off the loop, and its caller gets what it returns or raises."""
    order: list[str] = []

    def work(name: str) -> str:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        order.append(name)
        return name.upper()

    async def main() -> None:
        task = asyncio.create_task(asyncio.to_thread(work, "aside"))
        await asyncio.sleep(0)
        order.append("goes on")
        assert await task == "ASIDE"
        assert asyncio.get_running_loop().time() == 0
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        assert asyncio.get_running_loop() is running_loop()

    simulate(main)
    assert order == ["goes on", "aside"]


def test_a_thread_that_nobody_waits_for() -> None:
    """Cancelled before its turn it does not run; after that it has run, and its result is nobody's."""
    ran: list[str] = []

    async def main() -> None:
        early = running_loop().run_in_executor(None, ran.append, "early")
        early.cancel()
        late = running_loop().run_in_executor(None, ran.append, "late")
        running_loop().call_soon(late.cancel)
        await asyncio.sleep(1)
        assert late.cancelled()

    simulate(main)
    assert ran == ["late"]


def test_a_thread_of_a_killed_process() -> None:
    """What it had not done is never done, as by a process that is gone."""
    ran: list[str] = []

    async def main() -> None:
        process = running_loop().process("ours")
        process.spawn(asyncio.to_thread(ran.append, "killed"))
        await asyncio.sleep(0)
        process.kill()
        await asyncio.sleep(1)
        assert not ran

    simulate(main)


def test_errors_that_nobody_awaits_come_out() -> None:
    """A callback that fails is no line on the terminal."""

    async def main() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await asyncio.sleep(1)

    with pytest.raises(RuntimeError, match="Exception in callback"):
        simulate(main)
