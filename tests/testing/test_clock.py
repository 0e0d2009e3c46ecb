"""Simulated time: it passes only while there is nothing else to do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kargo_py.testing.clock import BEGINNING, Clock, SimulatedClock, simulated_time


@pytest.fixture
async def clock() -> AsyncIterator[SimulatedClock]:
    with simulated_time(asyncio.get_running_loop()) as simulated:
        yield simulated


async def test_time_is_moved(clock: SimulatedClock) -> None:
    """A day passes in an instant; what was to happen in it has happened, in its order and at its time."""
    happened: list[tuple[str, datetime]] = []

    async def happens(name: str, hours: float) -> None:
        await asyncio.sleep(hours * 3600)
        happened.append((name, clock.now()))

    tasks = [asyncio.create_task(happens(name, hours)) for name, hours in [("c", 25), ("b", 2.5), ("a", 1)]]
    begun = time.monotonic()
    await clock.advance(days=1)

    assert time.monotonic() - begun < 5
    assert clock.now() == BEGINNING + timedelta(days=1)
    assert happened == [("a", BEGINNING + timedelta(hours=1)), ("b", BEGINNING + timedelta(hours=2.5))]
    tasks[0].cancel()


async def test_every_unit(clock: SimulatedClock) -> None:
    """Lengths add up."""
    await clock.advance(timedelta(minutes=1), days=1, hours=1, minutes=1, seconds=1)

    assert clock.now() - BEGINNING == timedelta(days=1, hours=1, minutes=2, seconds=1)


async def test_time_outs_come(clock: SimulatedClock) -> None:
    """A time-out is one of simulated time."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1000):
            await asyncio.Event().wait()

    assert clock.now() - BEGINNING == timedelta(seconds=1000)


async def test_time_stands_still_for_threads(clock: SimulatedClock) -> None:
    """While a thread works, no timer fires, however short it is."""
    fired: list[str] = []
    asyncio.get_running_loop().call_later(0.001, fired.append, "timer")
    await asyncio.to_thread(time.sleep, 0.05)

    assert (fired, clock.now()) == ([], BEGINNING)
    await asyncio.sleep(0.002)
    assert fired == ["timer"]


@pytest.mark.usefixtures("clock")
async def test_what_is_ready_comes_first() -> None:
    """Tasks that can go on go on before time passes."""
    order: list[int] = []

    async def count() -> None:
        for number in range(100):
            order.append(number)
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await asyncio.sleep(0.000001)

    assert order == list(range(100))
    await counting


async def test_time_is_not_moved_back(clock: SimulatedClock) -> None:
    """And that is said."""
    with pytest.raises(ValueError, match="cannot be moved back"):
        await clock.advance(seconds=-1)


async def test_afterwards() -> None:
    """The loop has the machine's time again, and waits again."""
    loop = asyncio.get_running_loop()
    before = loop.time()
    with simulated_time(loop):
        await asyncio.sleep(1000)
        assert loop.time() >= before + 1000

    assert before <= loop.time() < before + 100
    await asyncio.sleep(0.001)
    assert await asyncio.to_thread(int, "1") == 1


async def test_the_machines_time() -> None:
    """It goes by itself and cannot be moved; the error says how it could be."""
    clock = Clock()

    assert abs(clock.now() - datetime.now(UTC)) < timedelta(seconds=5)
    with pytest.raises(RuntimeError, match=r"@pytest.mark.simulated_time"):
        await clock.advance(hours=1)


def test_another_loop() -> None:
    """A loop that does not wait as asyncio's does is refused by name."""
    loop: Any = object()
    with pytest.raises(TypeError, match="on a object: use the event loop of asyncio"), simulated_time(loop):
        pass
