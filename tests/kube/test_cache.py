"""The cache against a scripted client, in simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from kargo_py.kube.cache import Cache
from kargo_py.kube.client import Page
from kargo_py.kube.codec import JSON
from kargo_py.kube.errors import ConnectionLost, DecodeError, Forbidden, Gone, NotFound, Unreachable
from kargo_py.kube.resources import Key
from tests.kube.fakes import END, THINGS, JsonObject, ScriptedClient, thing

pytestmark = pytest.mark.looptime

Told = list[tuple[str | None, str | None]]


def page(*things: JsonObject, version: str = "10", token: str = "") -> Page[JsonObject]:
    return Page(things, version, token)


def gone() -> Gone:
    return Gone(410, "Expired", "too old resource version")


class Observed:
    """A cache with what its handlers were told, as versions."""

    def __init__(self, client: ScriptedClient, **options: Any) -> None:
        self.cache: Cache[JsonObject] = Cache(client, THINGS, codec=JSON, **options)
        self.told: Told = []
        self.news = asyncio.Event()
        self.cache.subscribe(self._handle)

    def _handle(self, old: JsonObject | None, new: JsonObject | None) -> None:
        self.told.append(tuple(o and o["metadata"]["resourceVersion"] for o in (old, new)))  # type: ignore[arg-type]
        self.news.set()

    async def until(self, count: int) -> None:
        """Wait until *count* changes were told."""
        while len(self.told) < count:
            self.news.clear()
            await self.news.wait()


@asynccontextmanager
async def running(client: ScriptedClient, **options: Any) -> AsyncIterator[Observed]:
    """A running cache, ended without leaving anything behind."""
    observed = Observed(client, **options)
    task = asyncio.create_task(observed.cache.run())
    try:
        yield observed
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert client.open_watches == 0


async def test_list_then_watch() -> None:
    """All pages of the list, then the changes since the list's version."""
    client = ScriptedClient()
    client.lists = [page(thing("a", 1), token="more"), page(thing("b", 2), version="12")]
    client.watches = [[("MODIFIED", thing("a", 13)), ("DELETED", thing("b", 14))]]

    async with running(client) as observed:
        await observed.until(4)

    assert observed.told == [(None, "1"), (None, "2"), ("1", "13"), ("2", None)]
    assert (client.listed, client.watched) == (["", "more"], ["12"])


@pytest.mark.parametrize("cut", [END, ConnectionLost("frozen"), Unreachable("refused")], ids=["end", "lost", "refused"])
async def test_reconnects_where_it_was(cut: object) -> None:
    """A watch that ends, freezes or breaks is taken up from the last version seen, bookmarks included."""
    client = ScriptedClient()
    client.lists = [page()]
    client.watches = [[("ADDED", thing("a", 11)), "15", cut], [("ADDED", thing("b", 16))]]

    async with running(client) as observed:
        await observed.until(2)

    assert client.watched == ["10", "15"]
    assert len(client.listed) == 1


async def test_too_old() -> None:
    """410 means: list again, and tell the deletions that were missed."""
    client = ScriptedClient()
    client.lists = [page(thing("a", 1), thing("b", 2)), page(thing("b", 2), thing("c", 21), version="30")]
    client.watches = [[gone()], []]

    async with running(client) as observed:
        await observed.until(4)

    assert observed.told == [(None, "1"), (None, "2"), (None, "21"), ("1", None)]


async def test_too_old_between_two_pages() -> None:
    """A continue token that expired starts the list over, and nothing of the half list is told."""
    client = ScriptedClient()
    client.lists = [page(thing("a", 1), token="more"), gone(), page(thing("b", 2))]

    async with running(client) as observed:
        await observed.cache.wait_synced()

    assert client.listed == ["", "more", ""]
    assert observed.told == [(None, "2")]


async def test_undecodable_line(logged: list[Any]) -> None:
    """A line that is no JSON makes the cache list again instead of hitting the same line for ever."""
    client = ScriptedClient()
    client.lists = [page(thing("a", 1)), page(thing("a", 1), thing("b", 12))]
    client.watches = [[DecodeError("no JSON")], []]

    async with running(client) as observed:
        await observed.until(2)

    assert observed.cache.undecodable == 1
    assert [e["event"] for e in logged if e["log_level"] == "warning"] == ["cache is not being updated"]


async def test_outage_is_logged_once(logged: list[Any]) -> None:
    """While the server is away: one line when it begins, one when it ends, and tries that grow rarer."""
    client = ScriptedClient()
    client.lists = [*[Unreachable("refused") for _ in range(20)], page(thing("a", 1))]

    async with running(client) as observed:
        await observed.cache.wait_synced()
        assert observed.cache.health is None

    assert [e["event"] for e in logged] == [
        "cache is not being updated",
        "cache is being updated again",
        "cache synced",
    ]


@pytest.mark.parametrize(
    "error",
    [
        Forbidden(403, "Forbidden", "not allowed"),
        NotFound(404, "NotFound", "the server could not find the requested resource", status={"details": {}}),
        Unreachable("refused"),
    ],
    ids=["forbidden", "no such resource", "unreachable"],
)
async def test_hopeless(error: Exception) -> None:
    """What waiting will not mend is raised to whoever wants to know, and tried on all the same."""
    client = ScriptedClient()
    client.lists = [error, page()]

    async with running(client) as observed:
        with pytest.raises(type(error)):
            await observed.cache.wait_synced(fail_fast=True)
        await observed.cache.wait_synced()


async def test_own_answer_is_there_at_once() -> None:
    """The answer to an own write is told and kept at once, and its watch event is not told again."""
    client = ScriptedClient()
    client.lists = [page(thing("a", 1))]
    written = asyncio.Event()
    client.watches = [[written, ("MODIFIED", thing("a", 11)), ("MODIFIED", thing("a", 12))]]

    async with running(client) as observed:
        await observed.until(1)
        observed.cache.observe(thing("a", 11))
        assert observed.told == [(None, "1"), ("1", "11")]
        written.set()
        await observed.until(3)

    assert observed.told[-1] == ("11", "12")


async def test_dirty_is_read_live_once() -> None:
    """After a conflict the next read asks the server, and what it says goes into the cache."""
    client = ScriptedClient()
    client.lists = [page(thing("a", 1))]
    client.objects[Key("ns", "a")] = thing("a", 15)

    async with running(client) as observed:
        await observed.until(1)
        key = Key("ns", "a")
        observed.cache.mark_dirty(key)
        first, second = await observed.cache.read(key), await observed.cache.read(key)

    assert first is not None
    assert first is second
    assert ("15", [key]) == (first["metadata"]["resourceVersion"], client.reads)
    assert observed.told[-1] == ("1", "15")


async def test_dirty_stays_dirty_when_the_read_fails() -> None:
    """A live read that failed is made again at the next look."""
    client = ScriptedClient()
    client.lists = [page(thing("a", 1))]
    key = Key("ns", "a")
    client.objects[key] = ConnectionLost("reset")

    async with running(client) as observed:
        await observed.until(1)
        observed.cache.mark_dirty(key)
        with pytest.raises(ConnectionLost):
            await observed.cache.read(key)
        del client.objects[key]
        assert await observed.cache.read(key) is None

    assert observed.told[-1] == ("1", None)


async def test_projection_and_index() -> None:
    """What is kept is what the projection leaves, and the index is made of that."""
    client = ScriptedClient()
    client.lists = [page(thing("a", 1, colour="red", junk="x" * 100))]

    def drop_junk(obj: JsonObject) -> JsonObject:
        return {name: value for name, value in obj.items() if name != "junk"}

    async with running(client, projection=drop_junk, indexes={"colour": lambda o: [o["colour"]]}) as observed:
        await observed.until(1)
        (found,) = observed.cache.indexed("colour", "red")

    assert "junk" not in found


async def test_a_handler_that_fails(logged: list[Any]) -> None:
    """A bug in one handler keeps no news from the others, and does not stop the cache."""
    client = ScriptedClient()
    client.lists = [page(thing("a", 1))]
    observed = Observed(client)
    cache: Cache[JsonObject] = Cache(client, THINGS, codec=JSON)

    def broken(_old: JsonObject | None, _new: JsonObject | None) -> None:
        raise RuntimeError("a bug")

    cache.subscribe(broken)
    cache.subscribe(observed._handle)
    task = asyncio.create_task(cache.run())
    await observed.until(1)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task

    assert "cache handler failed" in [e["event"] for e in logged]
