"""Long calculations beside the event loop: few at a time, and no namespace before all others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from kargo_py.engine.aside import Aside


class Held:
    """Calculations that end when they are let go."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._release = threading.Event()
        self._news = asyncio.Event()
        self.begun: list[str] = []
        self.threads: set[int] = set()

    def of(self, name: str) -> Callable[[], str]:
        def calculate() -> str:
            self.threads.add(threading.get_ident())
            self._loop.call_soon_threadsafe(self._begin, name)
            assert self._release.wait(60)
            return name

        return calculate

    def _begin(self, name: str) -> None:
        self.begun.append(name)
        self._news.set()

    async def until(self, count: int) -> None:
        while len(self.begun) < count:
            self._news.clear()
            await self._news.wait()

    def let_go(self) -> None:
        self._release.set()


async def test_what_comes_of_it() -> None:
    """Results and errors are those of the function, which runs in another thread."""
    aside = Aside()

    assert await aside.call("shop", threading.get_ident) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        await aside.call("shop", lambda: 1 // 0)
    assert await aside.call("shop", lambda: "next") == "next"


async def test_in_turn() -> None:
    """Many of one namespace leave room for another's, and no more than two are made at once."""
    aside, held = Aside(), Held()
    many = [asyncio.ensure_future(aside.call("many", held.of(f"many {n}"))) for n in range(5)]
    await held.until(1)
    others = [asyncio.ensure_future(aside.call(name, held.of(name))) for name in ("one", "two")]

    await held.until(2)
    assert held.begun == ["many 0", "one"]
    held.let_go()

    assert await asyncio.gather(*many, *others) == [*(f"many {n}" for n in range(5)), "one", "two"]
    assert held.begun.index("two") < held.begun.index("many 4")
    assert threading.get_ident() not in held.threads


async def test_cancelled() -> None:
    """Who does not wait any more is let go at once; what goes on without him counts until it has ended."""
    aside, held = Aside(), Held()
    tasks = [asyncio.ensure_future(aside.call(name, held.of(name))) for name in ("one", "two")]
    await held.until(2)
    for task in tasks:
        task.cancel()
    assert await asyncio.gather(*tasks, return_exceptions=True) != ["one", "two"]

    third = asyncio.ensure_future(aside.call("one", held.of("third")))
    for _ in range(20):
        await asyncio.sleep(0)
    assert held.begun == ["one", "two"]
    held.let_go()

    assert await third == "third"
