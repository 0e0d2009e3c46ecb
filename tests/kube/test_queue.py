"""The work queue."""

from __future__ import annotations

import asyncio

import pytest
from tenacity import wait_exponential

from kargo_py.kube.queue import QueueShutDownError, WorkQueue


async def take(queue: WorkQueue[str]) -> str:
    """The next key, or "" if there is none within a (simulated) second."""
    try:
        async with asyncio.timeout(1):
            return await queue.get()
    except TimeoutError:
        return ""


@pytest.mark.looptime
class TestWorkQueue:
    """Deduplicating, exclusive per key, fair, with delays and back-off."""

    async def test_once_and_in_order(self) -> None:
        """A key added many times is handed out once, in the order of the first."""
        queue: WorkQueue[str] = WorkQueue()
        for key in "abab":
            queue.add(key)

        assert [await take(queue) for _ in range(3)] == ["a", "b", ""]

    async def test_exclusive(self) -> None:
        """A key added while it is worked on comes up again only after done."""
        queue: WorkQueue[str] = WorkQueue()
        queue.add("a")
        await queue.get()
        queue.add("a")

        assert await take(queue) == ""
        queue.done("a")
        assert await take(queue) == "a"

    async def test_the_earliest_wake_up_counts(self) -> None:
        """Of several delayed adds the earliest wins, and there is one hand-out."""
        queue: WorkQueue[str] = WorkQueue()
        loop = asyncio.get_running_loop()
        start = loop.time()
        queue.add_after("a", 30)
        queue.add_after("a", 10)
        queue.add_after("a", 20)

        assert await queue.get() == "a"
        assert pytest.approx(loop.time() - start) == 10
        queue.done("a")
        await asyncio.sleep(60)
        assert await take(queue) == ""

    async def test_past_means_now(self) -> None:
        """A wake-up in the past is one now, never none."""
        queue: WorkQueue[str] = WorkQueue()
        queue.add_after("a", -5)

        assert await take(queue) == "a"

    async def test_an_add_makes_a_delayed_one_needless(self) -> None:
        """News now replaces the wake-up later."""
        queue: WorkQueue[str] = WorkQueue()
        queue.add_after("a", 10)
        queue.add("a")
        await queue.get()
        queue.done("a")
        await asyncio.sleep(60)

        assert await take(queue) == ""

    async def test_back_off_grows_and_is_forgotten(self) -> None:
        """Each failure of a key doubles its delay until it succeeds; other keys are not affected."""
        queue: WorkQueue[str] = WorkQueue(back_off=wait_exponential(multiplier=1, max=60))

        delays = [queue.retry("a") for _ in range(3)]
        assert delays[0] < delays[1] < delays[2]
        assert delays[0] == queue.retry("b")
        queue.forget("a")
        assert delays[0] == queue.retry("a")

    async def test_shut_down_releases_the_waiting(self) -> None:
        """Whoever waits is told that nothing more comes; later adds and timers are harmless."""
        queue: WorkQueue[str] = WorkQueue()
        queue.add_after("a", 5)
        waiting = asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        queue.shut_down()
        queue.add("b")

        with pytest.raises(QueueShutDownError):
            await waiting
        assert len(queue) == 0
