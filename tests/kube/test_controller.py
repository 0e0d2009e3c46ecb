"""The controller loop, in simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from kargo_py.kube.controller import CONFLICTS_AT_ONCE, Controller, Result
from kargo_py.kube.errors import Conflict, Unreachable

pytestmark = pytest.mark.looptime

Reconcile = Callable[[str], Awaitable[Result | None]]


@asynccontextmanager
async def running(reconcile: Reconcile, **options: Any) -> AsyncIterator[Controller[str]]:
    """A running controller without caches."""
    controller: Controller[str] = Controller("test", reconcile, **options)
    task = asyncio.create_task(controller.run())
    try:
        yield controller
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_one_at_a_time_per_key() -> None:
    """A key is never reconciled twice at once; other keys go on meanwhile."""
    active: dict[str, int] = {"a": 0, "b": 0}
    most = dict(active)
    both = 0

    async def reconcile(key: str) -> None:
        nonlocal both
        active[key] += 1
        most[key] = max(most[key], active[key])
        both = max(both, sum(active.values()))
        await asyncio.sleep(1)
        active[key] -= 1

    async with running(reconcile) as controller:
        for _ in range(5):
            controller.enqueue("a")
            controller.enqueue("b")
            await asyncio.sleep(0.5)

    assert most == {"a": 1, "b": 1}
    assert both == 2


async def test_concurrency_is_bounded_and_fair() -> None:
    """With one slot, keys come in the order they were added, and one that is always added again starves nobody."""
    order: list[str] = []

    async def reconcile(key: str) -> None:
        order.append(key)
        if key == "busy" and len(order) < 10:
            controller.enqueue("busy")
        await asyncio.sleep(1)

    async with running(reconcile, concurrency=1) as controller:
        for key in ("busy", "x", "y"):
            controller.enqueue(key)
        await asyncio.sleep(8)

    assert order[:4] == ["busy", "x", "y", "busy"]


async def test_errors_are_tried_again_and_stop_nobody(logged: list[Any]) -> None:
    """A crash of one key is logged whole and tried again with growing delay; a known error in one line."""
    times: list[float] = []
    done = []

    async def reconcile(key: str) -> None:
        if key == "good":
            done.append(key)
            return
        times.append(asyncio.get_running_loop().time())
        if len(times) == 1:
            raise RuntimeError("a bug")
        if len(times) == 2:
            raise Unreachable("refused")

    async with running(reconcile) as controller:
        controller.enqueue("bad")
        controller.enqueue("good")
        await asyncio.sleep(60)

    assert len(times) == 3
    assert done == ["good"]
    assert [(e["log_level"], e["event"]) for e in logged] == [
        ("error", "reconcile crashed"),
        ("warning", "reconcile failed"),
    ]
    assert {"key": "bad", "controller": "test"}.items() <= logged[0].items()


async def test_conflicts_are_decided_again_at_once() -> None:
    """A few conflicts cost no time; more of them fall back on the back-off."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    times: list[float] = []

    async def reconcile(_key: str) -> None:
        times.append(loop.time() - start)
        if len(times) <= CONFLICTS_AT_ONCE + 1:
            raise Conflict(409, "Conflict", "changed meanwhile")

    async with running(reconcile) as controller:
        controller.enqueue("a")
        await asyncio.sleep(60)

    assert len(times) == CONFLICTS_AT_ONCE + 2
    assert pytest.approx(times[CONFLICTS_AT_ONCE], abs=0.01) == 0
    assert controller.stats.conflicts == CONFLICTS_AT_ONCE + 1


async def test_requeue_after() -> None:
    """A reconcile comes up again when it asked to, and not otherwise."""
    loop = asyncio.get_running_loop()
    times: list[float] = []

    async def reconcile(_key: str) -> Result | None:
        times.append(loop.time())
        return Result(requeue_after=5) if len(times) == 1 else None

    async with running(reconcile) as controller:
        controller.enqueue("a")
        await asyncio.sleep(100)

    assert len(times) == 2
    assert pytest.approx(times[1] - times[0], abs=0.01) == 5


async def test_stop_lets_work_end() -> None:
    """What is in progress may end within the grace period; nothing new is begun."""
    ended: list[str] = []

    async def reconcile(key: str) -> None:
        await asyncio.sleep(3)
        ended.append(key)

    controller: Controller[str] = Controller("test", reconcile, concurrency=1, grace=10)
    task = asyncio.create_task(controller.run())
    controller.enqueue("a")
    controller.enqueue("b")
    await asyncio.sleep(1)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task

    assert ended == ["a"]


async def test_stop_cancels_what_takes_too_long() -> None:
    """After the grace period work in progress is cancelled and awaited."""
    cancelled: list[str] = []

    async def reconcile(key: str) -> None:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            cancelled.append(key)
            raise

    controller: Controller[str] = Controller("test", reconcile, grace=5)
    task = asyncio.create_task(controller.run())
    controller.enqueue("a")
    await asyncio.sleep(1)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task

    assert cancelled == ["a"]
