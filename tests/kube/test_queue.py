"""The work queue."""

from __future__ import annotations

import asyncio

import pytest
from tenacity import wait_exponential

from kargo_py.kube.backoff import MOST_ASKED
from kargo_py.kube.errors import TooManyRequests
from kargo_py.kube.queue import QueueShutDownError, WorkQueue


@pytest.mark.looptime
async def test_a_delay_too_short_for_the_clock() -> None:
    """What is left of a time may be next to nothing: the clock moves on before the key comes up again."""
    queue: WorkQueue[str] = WorkQueue()
    await asyncio.sleep(1000)
    before = asyncio.get_running_loop().time()
    queue.add_after("a", 1e-13)
    assert await queue.get() == "a"
    assert asyncio.get_running_loop().time() > before


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

    async def test_no_infinite_back_off(self) -> None:
        """A server that asks to be left alone for ever is asked again within minutes."""
        queue: WorkQueue[str] = WorkQueue()
        busy = TooManyRequests(429, "TooManyRequests", "slow down")
        busy.retry_after = float("inf")

        assert queue.retry("a", busy) == MOST_ASKED
        await asyncio.sleep(MOST_ASKED)
        assert await take(queue) == "a"

    async def test_failure_of_a_key_with_news(self) -> None:
        """News outranks a back-off: the key comes up at once, and that is what is said."""
        queue: WorkQueue[str] = WorkQueue(back_off=wait_exponential(multiplier=1, max=60))
        queue.add("a")
        await queue.get()
        queue.add("a")

        assert queue.retry("a") == 0
        queue.done("a")
        assert await take(queue) == "a"
        queue.done("a")
        assert queue.delayed == 0
        assert queue.retry("a") == 2

    @pytest.mark.parametrize("active", [False, True], ids=["ready", "to be worked on again"])
    async def test_a_delayed_add_of_a_key_that_is_ready(self, active: bool) -> None:
        """A key that comes up anyway needs no wake-up later."""
        queue: WorkQueue[str] = WorkQueue()
        queue.add("a")
        if active:
            await queue.get()
            queue.add("a")
        queue.add_after("a", 10)

        assert queue.delayed == 0

    async def test_needless_wake_ups_do_not_pile_up(self) -> None:
        """Wake-ups that news made needless cost no memory until they are due."""
        queue: WorkQueue[str] = WorkQueue()
        for number in range(1000):
            queue.add_after(f"k{number}", 3600)
            queue.add(f"k{number}")

        assert len(queue._heap) < 200
        assert [await take(queue) for _ in range(2)] == ["k0", "k1"]

    async def test_a_timer_that_goes_off_early(self) -> None:
        """It may, by the resolution of the clock: the wake-up is not lost, nor put off."""
        queue: WorkQueue[str] = WorkQueue()
        queue.add_after("a", 10)
        queue._fire(queue._heap[0][0])

        assert (len(queue), queue.delayed) == (1, 0)

    async def test_shut_down_while_worked_on(self) -> None:
        """What was added while it was worked on does not come up after the end."""
        queue: WorkQueue[str] = WorkQueue()
        queue.add("a")
        await queue.get()
        queue.add("a")
        queue.shut_down()
        queue.done("a")

        assert len(queue) == 0

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
