"""The controller loop, in simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import structlog
from tenacity import wait_exponential, wait_fixed

from kargo_py.kube.cache import Cache
from kargo_py.kube.client import Page
from kargo_py.kube.codec import JSON
from kargo_py.kube.controller import CONFLICTS_AT_ONCE, Controller, Result
from kargo_py.kube.errors import Conflict, Gone, OutcomeUnknown, TooManyRequests, Unreachable
from kargo_py.kube.predicates import Predicate, always, changed
from tests.kube.fakes import THINGS, JsonObject, ScriptedClient, thing

pytestmark = pytest.mark.looptime

Reconcile = Callable[[str], Awaitable[Result | None]]


@asynccontextmanager
async def running(reconcile: Reconcile, **options: Any) -> AsyncIterator[Controller[str]]:
    """A running controller without caches, ended without leaving anything behind."""
    before = asyncio.all_tasks()
    controller: Controller[str] = Controller("test", reconcile, **options)
    task = asyncio.create_task(controller.run())
    try:
        yield controller
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == before


def conflict() -> Conflict:
    return Conflict(409, "Conflict", "changed meanwhile")


class Attempts:
    """A reconcile that fails in the ways given, one a time, then succeeds; notes the seconds at which it was tried."""

    def __init__(self, *failures: BaseException) -> None:
        self.failures = list(failures)
        self.times: list[float] = []
        self.began = asyncio.get_running_loop().time()

    async def __call__(self, _key: str) -> None:
        self.times.append(asyncio.get_running_loop().time() - self.began)
        if self.failures:
            raise self.failures.pop(0)


# -- many at once, one at a time per key


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


async def test_a_key_added_while_it_runs_runs_once_more() -> None:
    """However often news of a key comes while it is reconciled, it is reconciled once more, after that."""
    spans: list[tuple[float, float]] = []
    loop = asyncio.get_running_loop()

    async def reconcile(_key: str) -> None:
        began = loop.time()
        await asyncio.sleep(10)
        spans.append((began, loop.time()))

    async with running(reconcile) as controller:
        controller.enqueue("a")
        for _ in range(5):
            await asyncio.sleep(1)
            controller.enqueue("a")
        await asyncio.sleep(60)

    (_, end), (begin, _) = spans
    assert begin == end


async def test_concurrency_is_bounded() -> None:
    """No more keys are worked on at once than allowed, and never fewer while there are any."""
    active = 0
    seen: list[int] = []

    async def reconcile(_key: str) -> None:
        nonlocal active
        active += 1
        await asyncio.sleep(1)
        seen.append(active)
        active -= 1

    async with running(reconcile, concurrency=3) as controller:
        for number in range(9):
            controller.enqueue(str(number))
        await asyncio.sleep(3.5)

    assert len(seen) == 9
    assert max(seen) == 3


@pytest.mark.parametrize("how", ["enqueue", "requeue", "conflict"])
async def test_nobody_starves(how: str) -> None:
    """With one slot, keys that are always there again take their turn with those that come once."""
    order: list[str] = []

    async def reconcile(key: str) -> Result | None:
        order.append(key)
        await asyncio.sleep(1)
        if not key.startswith("busy"):
            return None
        if how == "enqueue":
            controller.enqueue(key)
        elif how == "conflict":
            raise conflict()
        return Result(requeue_after=0)

    async with running(reconcile, concurrency=1, back_off=wait_fixed(0.01)) as controller:
        for key in ("busy1", "busy2", "x", "y", "z"):
            controller.enqueue(key)
        await asyncio.sleep(5.5)
        for number in range(10):
            controller.enqueue(f"late{number}")
        await asyncio.sleep(20)

    assert order[:5] == ["busy1", "busy2", "x", "y", "z"]
    late = [position for position, key in enumerate(order) if key.startswith("late")]
    assert len(late) == 10
    assert max(late) <= 5 + 3 + 10


# -- results and failures


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
    assert times[1] - times[0] == pytest.approx(5, abs=0.01)


@pytest.mark.parametrize(
    ("failure", "level", "event", "error_type"),
    [
        (Unreachable("refused"), "warning", "reconcile failed", "Unreachable"),
        (OutcomeUnknown("reset"), "warning", "reconcile failed", "OutcomeUnknown"),
        (ExceptionGroup("", [Unreachable("1"), Unreachable("2")]), "warning", "reconcile failed", "Unreachable"),
        (RuntimeError("a bug"), "error", "reconcile crashed", "RuntimeError"),
        (ExceptionGroup("", [conflict(), KeyError("a bug")]), "error", "reconcile crashed", "ExceptionGroup"),
        (asyncio.CancelledError(), "error", "reconcile crashed", "CancelledError"),
    ],
    ids=["unreachable", "unknown", "group", "bug", "group with a bug", "something awaited was cancelled"],
)
async def test_failures_are_logged_once_and_tried_again(
    failure: BaseException, level: str, event: str, error_type: str, logged: list[Any]
) -> None:
    """Whatever a reconcile raises is said once, with the key, and it is tried again after the back-off."""
    attempts = Attempts(failure)

    async with running(attempts, back_off=wait_fixed(7)) as controller:
        controller.enqueue("bad")
        await asyncio.sleep(60)

    assert attempts.times == [pytest.approx(0), pytest.approx(7)]
    (entry,) = logged
    assert {
        "log_level": level,
        "event": event,
        "error_type": error_type,
        "key": "bad",
        "controller": "test",
        "retry_in": 7.0,
    }.items() <= entry.items()
    assert (entry.get("exc_info") is failure) == (level == "error")


async def test_conflict_among_others() -> None:
    """Only conflicts and nothing else are decided again at once."""
    attempts = Attempts(ExceptionGroup("", [conflict(), Unreachable("refused")]))

    async with running(attempts, back_off=wait_fixed(7)) as controller:
        controller.enqueue("a")
        await asyncio.sleep(60)

    assert attempts.times == [pytest.approx(0), pytest.approx(7)]
    assert (controller.stats.conflicts, controller.stats.errors) == (0, 1)


@pytest.mark.parametrize(("requeue_after", "expected"), [(None, (0, 7)), (3, (0, 3)), (30, (0, 7))])
async def test_a_failure_that_cannot_wait(
    requeue_after: float | None, expected: Sequence[float], logged: list[Any]
) -> None:
    """A failure that is returned is one like any other; what is also asked for may bring the key back before that."""
    times: list[float] = []
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def reconcile(_key: str) -> Result | None:
        times.append(loop.time() - began)
        return Result(requeue_after, Unreachable("refused")) if len(times) == 1 else None

    async with running(reconcile, back_off=wait_fixed(7)) as controller:
        controller.enqueue("a")
        await asyncio.sleep(60)

    assert times == [pytest.approx(at, abs=0.01) for at in expected]
    assert [entry["event"] for entry in logged] == ["reconcile failed"]
    assert controller.stats.errors == 1


async def test_failures_stop_nobody_else() -> None:
    """While one key fails again and again the others are reconciled."""
    done: list[str] = []

    async def reconcile(key: str) -> None:
        if key == "bad":
            raise RuntimeError("a bug")
        done.append(key)

    async with running(reconcile, concurrency=1) as controller:
        for key in ("bad", "x", "bad", "y"):
            controller.enqueue(key)
        await asyncio.sleep(60)

    assert done == ["x", "y"]


async def test_back_off_grows_until_it_succeeds() -> None:
    """Each failure in a row doubles the pause; after a success the next failure begins with the shortest again."""
    attempts = Attempts(*[Unreachable("refused")] * 3)

    async with running(attempts, back_off=wait_exponential(multiplier=1, max=60)) as controller:
        controller.enqueue("a")
        await asyncio.sleep(20)
        attempts.failures.append(Unreachable("refused"))
        controller.enqueue("a")
        await asyncio.sleep(20)

    assert attempts.times == [pytest.approx(at, abs=0.001) for at in (0, 1, 3, 7, 20, 21)]


async def test_conflicts_are_decided_again_at_once() -> None:
    """A few conflicts cost next to no time and no warning; more of them fall back on the back-off."""
    attempts = Attempts(*[conflict() for _ in range(CONFLICTS_AT_ONCE + 1)])

    async with running(attempts, back_off=wait_fixed(7)) as controller:
        controller.enqueue("a")
        await asyncio.sleep(60)

    assert len(attempts.times) == CONFLICTS_AT_ONCE + 2
    assert attempts.times[CONFLICTS_AT_ONCE] < CONFLICTS_AT_ONCE * 0.05
    assert attempts.times[-1] - attempts.times[-2] == pytest.approx(7, abs=0.001)
    assert (controller.stats.conflicts, controller.stats.errors) == (CONFLICTS_AT_ONCE + 1, 1)


async def test_conflicts_do_not_add_up_over_time() -> None:
    """Only conflicts in a row count: a success in between begins a new row."""
    attempts = Attempts(*[conflict() for _ in range(CONFLICTS_AT_ONCE)])

    async with running(attempts) as controller:
        for _ in range(3):
            controller.enqueue("a")
            await asyncio.sleep(60)
            attempts.failures += [conflict() for _ in range(CONFLICTS_AT_ONCE)]

    assert controller.stats.errors == 0


async def test_the_server_says_when_to_come_back() -> None:
    """A server that asks for time gets it, however short the back-off would be."""
    busy = TooManyRequests(429, "TooManyRequests", "slow down")
    busy.retry_after = 30.0
    attempts = Attempts(busy)

    async with running(attempts, back_off=wait_fixed(1)) as controller:
        controller.enqueue("a")
        await asyncio.sleep(60)

    assert attempts.times == [pytest.approx(0), pytest.approx(30, abs=0.001)]


async def test_what_a_reconcile_logs_names_its_key(logged: list[Any]) -> None:
    """Every log line of a reconcile carries controller and key, each its own, also when many run at once."""

    async def reconcile(key: str) -> None:
        await asyncio.sleep(1)
        structlog.get_logger().info("working", on=key)

    async with running(reconcile) as controller:
        controller.enqueue("a")
        controller.enqueue("b")
        await asyncio.sleep(5)

    assert [(e["controller"], e["key"], e["on"]) for e in logged] == [("test", "a", "a"), ("test", "b", "b")]


# -- caches


def name_of(old: JsonObject | None, new: JsonObject | None) -> list[str]:
    return [(new or old or {})["metadata"]["name"]]


async def test_begins_when_the_caches_are_synced() -> None:
    """Nothing is reconciled on half a picture; what was there and what changes in the ways watched is."""
    client = ScriptedClient()
    first, more = asyncio.Event(), asyncio.Event()
    client.watches = [[more, ("MODIFIED", thing("a", 11)), ("MODIFIED", thing("b", 12, spec=1))]]
    cache: Cache[JsonObject] = Cache(client, THINGS, codec=JSON)
    seen: list[tuple[str, int]] = []

    async def reconcile(key: str) -> None:
        seen.append((key, len(cache)))

    async def later() -> None:
        await first.wait()
        client.lists = [Page([thing("a", 1), thing("b", 2)], "10")]
        await cache.run()

    filling = asyncio.create_task(later())
    async with running(reconcile) as controller:
        controller.watches(cache, changed(lambda o: o.get("spec")), name_of)
        controller.enqueue("z")
        await asyncio.sleep(5)
        assert not seen
        first.set()
        await cache.wait_synced()
        more.set()
        await asyncio.sleep(5)
    filling.cancel()
    with suppress(asyncio.CancelledError):
        await filling

    assert seen == [("z", 2), ("b", 2)]


async def test_a_mapping_that_fails(logged: list[Any]) -> None:
    """A mapping that cannot cope with an object costs this event only, and is said with the object's key."""
    client = ScriptedClient()
    client.lists = [Page([thing("a", 1), thing("b", 2, spec={"stage": "dev"})], "10")]
    cache: Cache[JsonObject] = Cache(client, THINGS, codec=JSON)
    seen: list[str] = []

    async def reconcile(key: str) -> None:
        seen.append(key)

    filling = asyncio.create_task(cache.run())
    controller: Controller[str] = Controller("test", reconcile)
    controller.watches(cache, always(), lambda _old, new: [(new or {})["spec"]["stage"]])
    task = asyncio.create_task(controller.run())
    await asyncio.sleep(5)
    for each in (task, filling):
        each.cancel()
        with suppress(asyncio.CancelledError):
            await each

    assert seen == ["dev"]
    assert [e["key"] for e in logged if e["event"] == "cache handler failed"] == ["ns/a"]


@asynccontextmanager
async def waking(client: ScriptedClient, predicate: Predicate[JsonObject], keys: Any) -> AsyncIterator[list[str]]:
    """The keys that a controller reconciles, which watches a cache of *client*."""
    cache: Cache[JsonObject] = Cache(client, THINGS, codec=JSON)
    woken: list[str] = []

    async def reconcile(key: str) -> None:
        woken.append(key)

    filling = asyncio.create_task(cache.run())
    async with running(reconcile) as controller:
        controller.watches(cache, predicate, keys)
        await cache.wait_synced()
        await asyncio.sleep(1)
        woken.clear()
        yield woken
    filling.cancel()
    with suppress(asyncio.CancelledError):
        await filling


async def test_a_restore_wakes_what_it_changed() -> None:
    """Also in a way that nobody but us makes changes in, and which is not watched therefore; but nothing else."""
    client = ScriptedClient()
    before = [thing("a", 10, status="Ended"), thing("b", 20), thing("c", 30)]
    after = [thing("a", 5, status="Running"), thing("b", 20), thing("d", 25)]
    client.lists = [Page(before, "40"), Page(after, "30")]
    client.watches = [[5.0, Gone(410, "Expired", "too old")], [5.0, ("MODIFIED", thing("b", 31, status="Ended"))]]

    async with waking(client, changed(lambda o: o.get("spec")), name_of) as woken:
        await asyncio.sleep(20)

    assert sorted(woken) == ["a", "c"]


def spec_of(obj: JsonObject) -> object:
    return obj["spec"]["stage"]


@pytest.mark.parametrize("what", ["predicate", "mapping"])
async def test_an_old_version_that_nobody_can_read(what: str, logged: list[Any]) -> None:
    """It must not hide its successor: that is woken, and what failed is said with the object's key."""
    client = ScriptedClient()
    client.lists = [Page([thing("a", 1)], "10")]
    client.watches = [[5.0, ("MODIFIED", thing("a", 11, spec={"stage": "dev"}))]]

    def stages(old: JsonObject | None, new: JsonObject | None) -> list[object]:
        return [spec_of(obj) for obj in (old, new) if obj is not None]

    predicate, keys = (changed(spec_of), name_of) if what == "predicate" else (always(), stages)
    async with waking(client, predicate, keys) as woken:
        await asyncio.sleep(20)

    assert woken == (["a"] if what == "predicate" else ["dev"])
    failed = [e for e in logged if e["event"].startswith(f"{what} failed")]
    assert [(e["controller"], e["key"]) for e in failed] == [("test", "ns/a")]


# -- the end


async def test_stop_lets_work_end() -> None:
    """What is in progress may end within the grace period; nothing new is begun."""
    ended: list[str] = []

    async def reconcile(key: str) -> Result:
        await asyncio.sleep(3)
        ended.append(key)
        return Result(requeue_after=0)

    controller: Controller[str] = Controller("test", reconcile, concurrency=1, grace=10)
    task = asyncio.create_task(controller.run())
    controller.enqueue("a")
    controller.enqueue("b")
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert ended == ["a"]


@pytest.mark.parametrize("again", [False, True], ids=["after the grace", "when told again"])
async def test_stop_cancels_what_takes_too_long(again: bool, logged: list[Any]) -> None:
    """After the grace period, or at once when cancelled again, work in progress is cancelled and awaited."""
    loop = asyncio.get_running_loop()
    ended: list[tuple[str, float]] = []

    async def reconcile(key: str) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(1)
            ended.append((key, round(loop.time() - began)))

    controller: Controller[str] = Controller("test", reconcile, grace=5)
    task = asyncio.create_task(controller.run())
    controller.enqueue("a")
    await asyncio.sleep(1)
    began = loop.time()
    task.cancel()
    if again:
        await asyncio.sleep(2)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert ended == [("a", 3 if again else 6)]
    assert controller.stats.errors == 0
    assert logged[0]["event"] == "waiting for reconciles to end"
    assert not controller.queue.delayed
