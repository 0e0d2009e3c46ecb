"""The cache against a scripted client, in simulated time. What it makes of the news is in test_store.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from typing import Any

import pytest
from tenacity import wait_exponential, wait_fixed

from kargo_py.kube.backoff import MOST_ASKED
from kargo_py.kube.cache import WATCH_SECONDS, Cache
from kargo_py.kube.client import EventType, Page, WatchEvent
from kargo_py.kube.codec import JSON
from kargo_py.kube.errors import (
    BadRequest,
    ConnectionLost,
    DecodeError,
    Forbidden,
    Gone,
    KubeError,
    NotFound,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from kargo_py.kube.resources import Key
from kargo_py.kube.store import MEMORY
from tests.kube.fakes import END, THINGS, JsonObject, ScriptedClient, thing

pytestmark = pytest.mark.looptime

Told = list[tuple[str | None, str | None]]

A = Key("ns", "a")


def page(*things: JsonObject, version: str = "10", token: str = "") -> Page[JsonObject]:
    return Page(things, version, token)


def gone() -> Gone:
    return Gone(410, "Expired", "too old resource version")


def version_of(obj: JsonObject | None) -> str | None:
    return None if obj is None else str(obj["metadata"]["resourceVersion"])


def events(logged: list[Any]) -> list[str]:
    return [event["event"] for event in logged]


class Observed:
    """A cache with what its handlers were told, as versions."""

    def __init__(self, client: ScriptedClient, **options: Any) -> None:
        self.cache: Cache[JsonObject] = Cache(client, THINGS, codec=JSON, **options)
        self.told: Told = []
        self.news = asyncio.Event()
        self.cache.subscribe(self.hear)

    def hear(self, old: JsonObject | None, new: JsonObject | None) -> None:
        self.told.append((version_of(old), version_of(new)))
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
    before = asyncio.all_tasks()
    task = asyncio.create_task(observed.cache.run())
    try:
        yield observed
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert client.open_watches == 0
        assert asyncio.all_tasks() == before


# -- list and watch


async def test_list_then_watch() -> None:
    """All pages of the list, then the changes since the list's version."""
    client = ScriptedClient()
    client.lists = [page(thing("a", 1), token="more"), page(thing("b", 2), version="12")]
    client.watches = [[("MODIFIED", thing("a", 13)), ("DELETED", thing("b", 14))]]

    async with running(client) as observed:
        await observed.until(4)
        assert [Key("ns", "a")] == list(observed.cache.keys())
        assert [thing("a", 13)] == list(observed.cache.values())

    assert observed.told == [(None, "1"), (None, "2"), ("1", "13"), ("2", None)]
    assert (client.listed, client.watched) == (["", "more"], ["12"])


async def test_a_large_list_lets_others_run() -> None:
    """While thousands of objects are taken in and told, other tasks go on."""
    client = ScriptedClient()
    client.lists = [page(*[thing(f"t{number}", number) for number in range(2000)], version="2000")]
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += observed.told != []
            await asyncio.sleep(0)

    async with running(client) as observed:
        ticking = asyncio.create_task(tick())
        await observed.cache.wait_synced()
        ticking.cancel()
        with suppress(asyncio.CancelledError):
            await ticking

    assert (len(observed.told), ticks >= 5) == (2000, True)


async def test_a_burst_of_events_lets_others_run() -> None:
    """A stream that never pauses does not keep everything else waiting."""

    class Torrent(ScriptedClient):
        async def watch(self, *_args: Any, **_options: Any) -> AsyncGenerator[WatchEvent[Any]]:
            for version in range(11, 2011):
                yield WatchEvent(EventType.MODIFIED, str(version), thing("a", version))
            await asyncio.Event().wait()

    client = Torrent()
    client.lists = [page()]
    seen: set[int] = set()

    async with running(client) as observed:
        while len(observed.told) < 2000:
            seen.add(len(observed.told))
            await asyncio.sleep(0)

    assert len(seen) >= 6


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


async def test_each_watch_ends_by_itself() -> None:
    """Every watch has an end, another one each time, and one that ended in its time is simply followed by the next."""
    client = ScriptedClient()
    client.lists = [page()]
    client.watches = [[float(WATCH_SECONDS[1]), END] for _ in range(20)]

    async with running(client):
        await asyncio.sleep(19 * WATCH_SECONDS[1] + 1)

    assert all(WATCH_SECONDS[0] <= seconds <= WATCH_SECONDS[1] for seconds in client.watch_seconds)
    assert len(set(client.watch_seconds)) > 1
    assert (client.watched, client.checks) == (["10"] * 20, 0)


async def test_watches_that_end_at_once(logged: list[Any]) -> None:
    """A server that ends every watch as soon as it begins is asked again ever more rarely, not in a hot loop."""
    client = ScriptedClient()
    client.lists = [page()]
    client.watches = [[END] for _ in range(1000)]

    async with running(client) as observed:
        await asyncio.sleep(600)
        assert isinstance(observed.cache.health, ConnectionLost)

    assert 10 < len(client.watched) < 120
    assert events(logged).count("cache is not being updated") == 1


async def test_too_old() -> None:
    """410 means: list again, and tell the deletions that were missed."""
    client = ScriptedClient()
    client.lists = [page(thing("a", 1), thing("b", 2)), page(thing("b", 2), thing("c", 21), version="30")]
    client.watches = [[gone()], [("MODIFIED", thing("c", 31))]]

    async with running(client) as observed:
        await observed.until(5)

    assert observed.told == [(None, "1"), (None, "2"), (None, "21"), ("1", None), ("21", "31")]
    assert client.watched == ["10", "30"]


async def test_too_old_between_two_pages() -> None:
    """A continue token that expired starts the list over, and nothing of the half list is told."""
    client = ScriptedClient()
    client.lists = [page(thing("a", 1), token="more"), gone(), page(thing("b", 2))]

    async with running(client) as observed:
        await observed.cache.wait_synced()

    assert client.listed == ["", "more", ""]
    assert observed.told == [(None, "2")]


@pytest.mark.parametrize("where", ["list", "watch"])
async def test_too_old_again_and_again(where: str) -> None:
    """A server that finds every version too old is not listed in a hot loop, and that is no good health."""
    client = ScriptedClient()
    for _ in range(1000):
        client.lists += [gone()] if where == "list" else [page()]
        client.watches += [[gone()]]

    async with running(client) as observed:
        await asyncio.sleep(600)
        assert isinstance(observed.cache.health, Gone)

    assert 10 < len(client.listed) < 120


@pytest.mark.parametrize(
    "refusal",
    [
        BadRequest(400, "BadRequest", "invalid resourceVersion"),
        ServerError(504, "Timeout", "Too large resource version"),
        NotFound(404, "NotFound", "the server could not find the requested resource", status={"details": {}}),
    ],
    ids=["bad request", "version too large", "no such resource"],
)
async def test_watch_that_is_refused(refusal: Exception, logged: list[Any]) -> None:
    """What may not pass by itself is answered by a new list; that one works does not mean that the watch does."""
    client = ScriptedClient()
    client.lists = [page(version="10"), page(version="20"), page(version="30")]
    client.watches = [[refusal], [refusal], [("ADDED", thing("a", 31))]]

    async with running(client) as observed:
        await observed.until(1)
        assert observed.cache.health is None

    assert client.watched == ["10", "20", "30"]
    assert events(logged) == ["cache synced", "cache is not being updated", "cache is being updated again"]


async def test_undecodable_line(logged: list[Any]) -> None:
    """A line that is no JSON makes the cache list again instead of hitting the same line for ever."""
    client = ScriptedClient()
    client.lists = [page(thing("a", 1)), page(thing("a", 1), thing("b", 12))]
    client.watches = [[DecodeError("no JSON")], []]
    told: list[DecodeError] = []

    async with running(client, on_undecodable=told.append) as observed:
        await observed.until(2)

    assert observed.cache.stats.undecodable == 1
    assert [error.message for error in told] == ["no JSON"]
    assert [e["event"] for e in logged if e["log_level"] == "warning"] == ["cache is not being updated"]


async def test_object_without_a_name(logged: list[Any]) -> None:
    """An object that cannot be kept under any key is left out, counted and told; the others are not affected."""
    client = ScriptedClient()
    nameless: JsonObject = {"kind": "Thing", "metadata": {"resourceVersion": "11"}}
    client.lists = [page(nameless, thing("a", 1))]
    client.watches = [[("ADDED", nameless), ("MODIFIED", thing("a", 12))]]
    told: list[DecodeError] = []

    async with running(client, on_undecodable=told.append) as observed:
        await observed.until(2)

    assert observed.told == [(None, "1"), ("1", "12")]
    assert (observed.cache.stats.undecodable, len(told), len(client.listed)) == (2, 2, 1)
    assert events(logged).count("object left out") == 2


async def test_projection_and_index() -> None:
    """What is kept is what the projection leaves, and the index is made of that."""
    client = ScriptedClient()
    client.lists = [page(thing("a", 1, colour="red", junk="x" * 100))]

    def drop_junk(obj: JsonObject) -> JsonObject:
        return {name: value for name, value in obj.items() if name != "junk"}

    async with running(client, projection=drop_junk, indexes={"colour": lambda o: [o["colour"]]}) as observed:
        await observed.until(1)
        (found,) = observed.cache.indexed("colour", "red")
        observed.cache.observe(thing("a", 11, colour="blue", junk="y"))
        assert not observed.cache.indexed("colour", "red")
        (own,) = observed.cache.indexed("colour", "blue")

    assert "junk" not in found
    assert "junk" not in own


async def test_projection_that_fails(logged: list[Any]) -> None:
    """An object that the projection cannot reduce is kept whole; whoever reads it must cope with it."""
    client = ScriptedClient()
    client.lists = [page(thing("a", 1), thing("b", 2, spec={"colour": "red"}))]

    async with running(
        client, projection=lambda o: {**o, "spec": o["spec"]["colour"]}, indexes={"spec": lambda o: [o["spec"]]}
    ) as observed:
        await observed.until(2)
        assert observed.cache.get(A) == thing("a", 1)
        assert [thing("b", 2, spec="red")] == observed.cache.indexed("spec", "red")

    assert (observed.cache.stats.undecodable, observed.cache.index_errors) == (1, 1)
    assert events(logged)[:2] == ["object kept whole", "object cannot be indexed"]


# -- when the server is away


async def test_outage_is_logged_once(logged: list[Any]) -> None:
    """While the server is away: one line when it begins, one when it ends, and tries that grow rarer."""
    client = ScriptedClient()
    client.lists = [*[Unreachable("refused") for _ in range(20)], page(thing("a", 1))]

    async with running(client) as observed:
        await observed.cache.wait_synced()
        assert observed.cache.health is None

    assert events(logged) == ["cache is not being updated", "cache is being updated again", "cache synced"]


async def test_outage_in_mid_watch(logged: list[Any]) -> None:
    """The list is not read again when the server comes back, and that it is back is known at once."""
    client = ScriptedClient()
    client.lists = [page(thing("a", 1))]
    client.watches = [["12", ConnectionLost("reset")], []]
    client.version = Unreachable("refused")

    async with running(client) as observed:
        await asyncio.sleep(300)
        assert isinstance(observed.cache.health, Unreachable)
        client.version = "13"
        await asyncio.sleep(40)
        assert observed.cache.health is None

    assert (client.watched, len(client.listed)) == (["10", "12"], 1)
    assert events(logged).count("cache is not being updated") == 2


async def test_server_restored_from_a_backup() -> None:
    """A server that is behind what it has shown before is listed again: a watch from there would show nothing."""
    client = ScriptedClient()
    client.lists = [page(thing("a", 40), thing("b", 60), version="70"), page(thing("a", 40), version="50")]
    client.watches = [[("MODIFIED", thing("a", 80)), ConnectionLost("reset")], [("MODIFIED", thing("a", 51))]]
    client.version = "50"

    async with running(client) as observed:
        await observed.until(6)

    assert observed.told == [(None, "40"), (None, "60"), ("40", "80"), ("80", "40"), ("60", None), ("40", "51")]
    assert client.watched == ["70", "50"]


async def test_server_stopped_in_order_is_asked_how_far_it_is() -> None:
    """A watch that a server ends before its time may be the last thing it did before a backup was restored."""
    client = ScriptedClient()
    client.lists = [page(version="70"), page(version="50")]
    client.watches = [[5.0, END], []]
    client.version = "50"

    async with running(client):
        await asyncio.sleep(6)

    assert client.watched == ["70", "50"]


async def test_the_server_says_when_to_come_back() -> None:
    """A server that asks for time gets it, however short the back-off would be."""
    client = ScriptedClient()
    busy = TooManyRequests(429, "TooManyRequests", "slow down")
    busy.retry_after = 30.0
    client.lists = [busy, page()]
    loop = asyncio.get_running_loop()
    began = loop.time()

    async with running(client, back_off=wait_fixed(1)) as observed:
        await observed.cache.wait_synced()

    assert loop.time() - began == pytest.approx(30, abs=0.1)


@pytest.mark.parametrize(
    "error",
    [
        Forbidden(403, "Forbidden", "not allowed"),
        NotFound(404, "NotFound", "the server could not find the requested resource", status={"details": {}}),
        Unreachable("refused"),
    ],
    ids=["forbidden", "no such resource", "unreachable"],
)
async def test_hopeless(error: KubeError) -> None:
    """What waiting will not mend is raised to all who want to know, and tried on all the same."""
    client = ScriptedClient()
    client.lists = [error, page()]

    async with running(client) as observed:
        waiting = [asyncio.create_task(observed.cache.wait_synced(fail_fast=True)) for _ in range(3)]
        patient = asyncio.create_task(observed.cache.wait_synced())
        assert [error] * 3 == await asyncio.gather(*waiting, return_exceptions=True)
        assert not observed.cache.synced
        await patient
        assert observed.cache.synced


@pytest.mark.parametrize("seconds", [float("9" * 400), 1e9], ids=["infinite", "years"])
async def test_the_server_does_not_say_when_to_give_up(seconds: float) -> None:
    """A server that asks for an absurd time is asked again before long."""
    client = ScriptedClient()
    busy = TooManyRequests(429, "TooManyRequests", "slow down")
    busy.retry_after = seconds
    client.lists = [busy, page()]

    async with running(client) as observed:
        await asyncio.sleep(MOST_ASKED + 1)
        assert observed.cache.synced


async def never_hot(client: ScriptedClient) -> int:
    """How many watches there are in ten minutes of a cache of *client*."""
    client.lists += [page(thing("a", 1)) for _ in range(1000)]
    async with running(client):
        await asyncio.sleep(600)
    return len(client.watched)


@pytest.mark.parametrize(
    "script",
    [
        [Unreachable("refused")],
        [ConnectionLost("reset")],
        ["12", END],
        ["12", ConnectionLost("reset")],
        ["12", ("MODIFIED", thing("a", 13)), gone()],
        [("MODIFIED", thing("a", 13)), BadRequest(400, "BadRequest", "no")],
    ],
    ids=[
        "refused",
        "lost",
        "bookmark, then the end",
        "bookmark, then lost",
        "event, then too old",
        "event, then refused",
    ],
)
async def test_no_hot_loop(script: list[Any]) -> None:
    """However little a watch works, and whatever the server says in between, it is tried ever more rarely."""
    client = ScriptedClient()
    client.watches = [list(script) for _ in range(1000)]

    assert 10 < await never_hot(client) < 120


async def test_a_watch_that_lasted_makes_pauses_short_again() -> None:
    """What failed long ago does not slow down what fails now, be it a watch or its version."""
    times: list[float] = []

    class Timed(ScriptedClient):
        async def list(self, *arguments: Any, limit: int = 0, **options: Any) -> Page[Any]:
            if limit != 1:
                times.append(asyncio.get_running_loop().time())
            return await super().list(*arguments, limit=limit, **options)

    client = Timed()
    client.lists = [page(thing("a", 1)) for _ in range(3)]
    lost = [[ConnectionLost("reset")] for _ in range(6)]
    client.watches = [[gone()], *lost, ["12", 5.0, ConnectionLost("reset")], [10.0, gone()], []]

    async with running(client, back_off=wait_exponential(multiplier=1, max=100)):
        await asyncio.sleep(600)

    # Six pauses, each twice as long, 5 s, a pause of 1 s since it is the first failure again, 10 s, no pause any more.
    assert [later - earlier for earlier, later in pairwise(times)] == [
        pytest.approx(0, abs=0.1),
        pytest.approx(63 + 5 + 1 + 10, abs=0.1),
    ]


async def test_version_that_is_no_version_of_ours() -> None:
    """An event without a version does not make the next watch begin anywhere."""
    client = ScriptedClient()
    client.lists = [page()]
    client.watches = [["", 40.0, END], []]

    async with running(client):
        await asyncio.sleep(60)

    assert client.watched == ["10", "10"]


async def test_bookmark_makes_answers_old() -> None:
    """What a bookmark has passed is old news, also when an answer brings it."""
    client = ScriptedClient()
    client.lists = [page()]
    client.watches = [["20"]]

    async with running(client) as observed:
        await asyncio.sleep(1)
        observed.cache.observe(thing("a", 15))

    assert not observed.told


async def test_history_is_checked_once() -> None:
    """A server that knows our version is not asked for it again before the next watch that breaks."""
    client = ScriptedClient()
    client.lists = [page()]
    client.watches = [[2.0, ConnectionLost("reset")], [60.0, END], [60.0, END], []]

    async with running(client):
        await asyncio.sleep(150)

    assert (len(client.watched), client.checks) == (4, 1)


@pytest.mark.parametrize(
    "refusal",
    [
        NotFound(404, "NotFound", "the server could not find the requested resource", status={"details": {}}),
        DecodeError("no JSON"),
    ],
    ids=["no such resource", "undecodable"],
)
async def test_check_that_is_refused(refusal: Exception) -> None:
    """A server that does not even answer how far it is with sense is listed again."""
    client = ScriptedClient()
    client.lists = [page(), page(version="20")]
    client.watches = [[2.0, ConnectionLost("reset")], []]
    client.version = refusal

    async with running(client):
        await asyncio.sleep(60)

    assert client.watched == ["10", "20"]


async def test_watch_that_is_undecodable_is_closed() -> None:
    """A watch is closed before anything else is done, however it ends."""
    open_when_listed: list[int] = []

    class Counting(ScriptedClient):
        async def list(self, *arguments: Any, **options: Any) -> Page[Any]:
            open_when_listed.append(self.open_watches)
            return await super().list(*arguments, **options)

        async def watch(self, *arguments: Any, **options: Any) -> AsyncGenerator[WatchEvent[Any]]:
            async for event in super().watch(*arguments, **options):
                yield event

    client = Counting()
    client.lists = [page(), page()]
    client.watches = [[("ADDED", thing("a", 11))], []]
    cache: Cache[JsonObject] = Cache(client, THINGS, codec=JSON)
    take = cache._take

    def take_one(event: WatchEvent[JsonObject]) -> None:
        take(event)
        raise DecodeError("a crash in the middle of a stream")

    cache._take = take_one  # type: ignore[method-assign]
    task = asyncio.create_task(cache.run())
    await asyncio.sleep(5)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task

    assert open_when_listed == [0, 0]


# -- a server that was restored from a backup


async def test_live_read_that_goes_backwards(logged: list[Any]) -> None:
    """A server that has caught up looks like any other; but an object older than it was proves that it was restored."""
    client = ScriptedClient()
    client.lists = [page(thing("a", 80), thing("b", 70), version="90"), page(thing("a", 40), version="1000001")]
    client.watches = [[("MODIFIED", thing("a", 91))], []]
    client.objects[A] = thing("a", 40)

    async with running(client) as observed:
        await observed.until(3)
        with pytest.raises(Gone, match="ns/a is at 40 only"):
            await observed.cache.read_live(A)
        with pytest.raises(Gone):
            await observed.cache.read(A)
        await observed.until(5)
        assert version_of(await observed.cache.read(A)) == "40"

    assert observed.told == [(None, "80"), (None, "70"), ("80", "91"), ("91", "40"), ("70", None)]
    assert (len(client.listed), client.watched) == (2, ["90", "1000001"])
    assert "version is too old, listing again" in events(logged)


async def test_time_out_that_is_no_alarm(logged: list[Any]) -> None:
    """A time-out of nobody's making is a fault of ours, and said whole."""
    client = ScriptedClient()
    client.lists = [page(thing("a", 1)), page(thing("a", 1))]
    client.watches = [[TimeoutError("stray")], []]

    async with running(client):
        await asyncio.sleep(5)

    assert len(client.listed) == 2
    assert "cache crashed, listing again" in events(logged)


async def test_live_read_that_goes_backwards_while_a_list_is_on_its_way() -> None:
    """The alarm is not lost when there is no watch to be ended."""
    client = ScriptedClient()
    arrived = asyncio.Event()

    class Slow(ScriptedClient):
        async def list(self, *arguments: Any, **options: Any) -> Page[Any]:
            if self.listed:
                await arrived.wait()
            return await super().list(*arguments, **options)

    client = Slow()
    client.lists = [page(thing("a", 80), version="90"), page(thing("a", 80), version="90"), page(thing("a", 40))]
    client.watches = [[gone()], []]
    client.objects[A] = thing("a", 40)

    async with running(client) as observed:
        await observed.until(1)
        await asyncio.sleep(1)
        for _ in range(2):
            with pytest.raises(Gone):
                await observed.cache.read_live(A)
        arrived.set()
        await observed.until(2)

    assert observed.told == [(None, "80"), ("80", "40")]
    assert len(client.listed) == 3


async def test_reads_that_go_backwards_all_the_time() -> None:
    """Servers that contradict each other are not listed in a hot loop."""
    client = ScriptedClient()
    client.lists = [page(thing("a", 80), version="90") for _ in range(1000)]
    client.objects[A] = thing("a", 40)

    async with running(client) as observed:
        for _ in range(6000):
            await asyncio.sleep(0.1)
            with suppress(Gone):
                await observed.cache.read_live(A)

    assert 10 < len(client.listed) < 200


async def test_live_read_while_a_rewound_list_is_taken_in() -> None:
    """It finds what the server has, though the list has not come that far."""
    client = ScriptedClient()
    again = asyncio.Event()
    restored = [thing(f"o{number:03}", number + 1) for number in range(600)]
    last = Key("ns", "o599")
    client.lists = [page(thing("a", 5), thing("o599", 1500), version="2000"), page(*restored, version="1000")]
    client.watches = [[again, gone()]]
    client.objects = {last: restored[-1]}
    reads: list[asyncio.Task[JsonObject | None]] = []

    def look(_old: JsonObject | None, new: JsonObject | None) -> None:
        if new == restored[0]:
            reads.append(asyncio.create_task(observed.cache.read_live(last)))

    async with running(client) as observed:
        await observed.until(2)
        observed.cache.subscribe(look)
        again.set()
        await asyncio.sleep(1)
        assert await reads[0] == restored[-1]


async def test_what_a_restore_changed_is_a_leap() -> None:
    """Listeners are told which changes are no steps of one history."""
    client = ScriptedClient()
    client.lists = [page(thing("a", 40), version="70"), page(thing("a", 41), thing("b", 42), version="50")]
    client.watches = [[("MODIFIED", thing("a", 80)), gone()], [("MODIFIED", thing("a", 51))]]
    heard: list[tuple[str | None, str | None, bool]] = []

    async with running(client) as observed:
        observed.cache.listen(lambda c: heard.append((version_of(c.old), version_of(c.new), c.leap)))
        await observed.until(5)

    assert heard == [
        (None, "40", False),
        ("40", "80", False),
        ("80", "41", True),
        (None, "42", False),
        ("41", "51", False),
    ]


async def test_late_answer_while_a_long_sweep_lets_others_run() -> None:
    """What an answer from before the list puts in then does not stay for good."""
    client = ScriptedClient()
    again = asyncio.Event()
    client.lists = [page(*[thing(f"o{n}", n + 1) for n in range(600)], version="1000"), page(version="2000")]
    client.watches = [[again, gone()]]

    def answer_late(_old: JsonObject | None, new: JsonObject | None) -> None:
        if new is None:
            asyncio.get_running_loop().call_soon(observed.cache.observe, thing("ghost", 1500))

    async with running(client) as observed:
        await observed.until(600)
        observed.cache.subscribe(answer_late)
        again.set()
        await asyncio.sleep(60)
        assert (None, "1500") in observed.told
        assert not observed.cache.keys()


# -- news of our own


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


async def test_own_answer_while_a_list_is_taken_in() -> None:
    """An own answer that falls between two steps of a list is told after what the list says, never before it."""
    client = ScriptedClient()
    client.lists = [page(*[thing(f"t{number}", number) for number in range(1000)], version="1000")]
    chains: dict[str, list[str | None]] = {}

    def hear(old: JsonObject | None, new: JsonObject | None) -> None:
        name = (old or new or {})["metadata"]["name"]
        chain = chains.setdefault(name, [None])
        assert chain[-1] == version_of(old)
        chain.append(version_of(new))

    async with running(client) as observed:
        observed.cache.subscribe(hear)
        await observed.until(1)
        assert len(observed.told) < 1000
        observed.cache.observe(thing("t0", 2000))
        observed.cache.observe(thing("t999", 2001))
        await observed.cache.wait_synced()

    assert observed.cache.stats.handler_errors == 0
    assert [chains["t0"], chains["t999"]] == [[None, "0", "2000"], [None, "2001"]]


async def test_answers_of_another_namespace_or_selection() -> None:
    """An own answer that the cache's list would not show is not put in, and takes out what it was."""
    client = ScriptedClient()
    client.lists = [page(thing("a", 1, shard="x"))]
    options: dict[str, Any] = {"label_selector": "shard=x", "selects": lambda o: o["shard"] == "x"}

    async with running(client, namespace="ns", **options) as observed:
        await observed.until(1)
        elsewhere = thing("b", 11, shard="x")
        elsewhere["metadata"]["namespace"] = "other"
        observed.cache.observe(elsewhere)
        observed.cache.observe(thing("c", 12, shard="y"))
        observed.cache.observe(thing("a", 13, shard="y"))

    assert observed.told == [(None, "1"), ("1", None)]


def test_selector_needs_selects() -> None:
    """A cache with a label selector must be able to judge own answers; that is said when it is made."""
    with pytest.raises(ValueError, match=r"things\.example\.com with a label selector needs selects"):
        Cache(ScriptedClient(), THINGS, codec=JSON, label_selector="shard=x")


async def test_dirty_is_read_live_once() -> None:
    """After a conflict the next read asks the server, and what it says goes into the cache."""
    client = ScriptedClient()
    client.lists = [page(thing("a", 1))]
    client.objects[A] = thing("a", 15)

    async with running(client) as observed:
        await observed.until(1)
        observed.cache.mark_dirty(A)
        first, second = await observed.cache.read(A), await observed.cache.read(A)

    assert first is not None
    assert first is second
    assert (version_of(first), client.reads) == ("15", [A])
    assert observed.told[-1] == ("1", "15")


@pytest.mark.parametrize(
    "failure",
    [
        ConnectionLost("reset"),
        NotFound(404, "NotFound", "the server could not find the requested resource", status={"details": {}}),
    ],
    ids=["reset", "no such resource"],
)
async def test_dirty_stays_dirty_when_the_read_fails(failure: Exception) -> None:
    """A live read that failed is made again at the next look, and says nothing about the object."""
    client = ScriptedClient()
    client.lists = [page(thing("a", 1))]
    client.objects[A] = failure

    async with running(client) as observed:
        await observed.until(1)
        observed.cache.mark_dirty(A)
        with pytest.raises(type(failure)):
            await observed.cache.read(A)
        assert observed.told == [(None, "1")]
        del client.objects[A]
        assert await observed.cache.read(A) is None

    assert observed.told[-1] == ("1", None)


async def test_deleted_is_not_dirty() -> None:
    """An object that is gone needs no live read, and costs no memory."""
    client = ScriptedClient()
    client.lists = [page(thing("a", 1))]
    client.watches = [[1.0, ("DELETED", thing("a", 11))]]

    async with running(client) as observed:
        await observed.until(1)
        observed.cache.mark_dirty(A)
        await observed.until(2)
        assert await observed.cache.read(A) is None

    assert not client.reads
    assert not observed.cache._dirty


async def test_marked_dirty_while_being_read() -> None:
    """A read that was sent before the latest conflict does not count for that conflict."""
    client = ScriptedClient()
    client.lists = [page(thing("a", 1))]
    client.objects[A] = thing("a", 15)
    gate = client.gates[A] = asyncio.Event()

    async with running(client) as observed:
        await observed.until(1)
        observed.cache.mark_dirty(A)
        early = asyncio.create_task(observed.cache.read(A))
        await asyncio.sleep(1)
        observed.cache.mark_dirty(A)
        client.objects[A] = thing("a", 16)
        gate.set()
        assert version_of(await early) == "15"
        assert version_of(await observed.cache.read(A)) == "16"
        await observed.cache.read(A)

    assert client.reads == [A, A]


async def test_live_reads_at_the_same_time() -> None:
    """Of two live reads of one object the newer answer stands, also for the one whose own answer was older."""
    client = ScriptedClient()
    client.lists = [page(thing("a", 1))]
    client.objects[A] = thing("a", 15)
    gate = client.gates[A] = asyncio.Event()

    async with running(client) as observed:
        await observed.until(1)
        slow = asyncio.create_task(observed.cache.read_live(A))
        await asyncio.sleep(1)
        del client.gates[A]
        client.objects[A] = thing("a", 16)
        assert version_of(await observed.cache.read_live(A)) == "16"
        gate.set()
        assert version_of(await slow) == "16"

    assert observed.told == [(None, "1"), ("1", "16")]


async def test_live_read_that_found_nothing_yet() -> None:
    """Not found is the answer of its time: what has been created since stays, and is what the reader gets."""
    client = ScriptedClient()
    client.lists = [page()]
    created = asyncio.Event()
    client.watches = [[created, ("ADDED", thing("a", 11))]]
    gate = client.gates[A] = asyncio.Event()

    async with running(client) as observed:
        await observed.cache.wait_synced()
        reading = asyncio.create_task(observed.cache.read_live(A))
        created.set()
        await observed.until(1)
        gate.set()
        assert version_of(await reading) == "11"

    assert observed.told == [(None, "11")]


async def test_gone_by_our_own_word() -> None:
    """An object that we found or made gone leaves at once, and late news does not bring it back."""
    client = ScriptedClient()
    client.lists = [page(thing("a", 1), thing("b", 2))]
    deleted = asyncio.Event()
    client.watches = [
        [deleted, ("MODIFIED", thing("a", 11)), ("DELETED", thing("a", 12)), ("MODIFIED", thing("b", 13))]
    ]

    async with running(client) as observed:
        await observed.until(2)
        observed.cache.observe_gone(A, "uid-a")
        assert observed.cache.get(A) is None
        deleted.set()
        await observed.until(4)

    assert observed.told == [(None, "1"), (None, "2"), ("1", None), ("2", "13")]


async def test_watch_far_behind_makes_dirty() -> None:
    """When the watch is so far behind that an own answer loses its rank, decisions read the server instead."""
    client = ScriptedClient()
    client.lists = [page(thing("a", 1))]
    client.objects[A] = thing("a", 20)
    client.watches = [[MEMORY + 1, ("MODIFIED", thing("a", 11))]]

    async with running(client) as observed:
        await observed.until(1)
        observed.cache.observe(thing("a", 20))
        assert version_of(await observed.cache.read(A)) == "20"
        await observed.until(3)
        assert version_of(observed.cache.get(A)) == "11"
        assert version_of(await observed.cache.read(A)) == "20"

    assert client.reads == [A]


# -- telling


async def test_handlers_in_the_order_of_subscription() -> None:
    """Each change is told to all, in the order in which they subscribed, before the next one."""
    client = ScriptedClient()
    client.lists = [page(thing("a", 1), thing("b", 2))]
    order: list[tuple[str, str | None]] = []

    async with running(client) as observed:
        observed.cache.subscribe(lambda _old, new: order.append(("first", version_of(new))))
        observed.cache.subscribe(lambda _old, new: order.append(("second", version_of(new))))
        await observed.cache.wait_synced()

    assert order == [("first", "1"), ("second", "1"), ("first", "2"), ("second", "2")]


async def test_late_subscriber() -> None:
    """Who subscribes late is told what there is, and then the same as everybody."""
    client = ScriptedClient()
    client.lists = [page(thing("a", 1))]
    later = asyncio.Event()
    client.watches = [[later, ("MODIFIED", thing("a", 11))]]
    heard: Told = []

    async with running(client) as observed:
        await observed.until(1)
        observed.cache.subscribe(lambda old, new: heard.append((version_of(old), version_of(new))))
        assert heard == [(None, "1")]
        later.set()
        await observed.until(2)

    assert observed.told == heard == [(None, "1"), ("1", "11")]


async def test_handler_that_changes_the_cache() -> None:
    """What a handler causes is told to all after the change it was told, so that everybody's chain holds."""
    client = ScriptedClient()
    client.lists = [page(thing("a", 1))]
    cache: Cache[JsonObject] = Cache(client, THINGS, codec=JSON)
    heard: Told = []

    def write(_old: JsonObject | None, new: JsonObject | None) -> None:
        if version_of(new) == "1":
            cache.observe(thing("a", 11))

    cache.subscribe(write)
    cache.subscribe(lambda old, new: heard.append((version_of(old), version_of(new))))
    task = asyncio.create_task(cache.run())
    await cache.wait_synced()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task

    assert heard == [(None, "1"), ("1", "11")]


async def test_subscribing_within_a_handler() -> None:
    """Who subscribes while a change is being told hears what there is after that, not in the midst of it."""
    client = ScriptedClient()
    client.lists = [page(thing("a", 1))]
    order: list[tuple[str, str | None]] = []

    def first(_old: JsonObject | None, new: JsonObject | None) -> None:
        if version_of(new) == "1":
            observed.cache.subscribe(lambda _old, new: order.append(("late", version_of(new))))
        order.append(("first", version_of(new)))

    async with running(client) as observed:
        observed.cache.subscribe(first)
        await observed.cache.wait_synced()
        observed.cache.observe(thing("a", 11))

    assert order == [("first", "1"), ("late", "1"), ("first", "11"), ("late", "11")]


async def test_a_handler_that_fails(logged: list[Any]) -> None:
    """A bug in one handler keeps no news from the others, and does not stop the cache."""
    client = ScriptedClient()
    client.lists = [page(thing("a", 1))]
    client.watches = [[("MODIFIED", thing("a", 11))]]

    def broken(_old: JsonObject | None, _new: JsonObject | None) -> None:
        raise RuntimeError("a bug")

    observed = Observed(client)
    cache: Cache[JsonObject] = Cache(client, THINGS, codec=JSON)
    cache.subscribe(broken)
    cache.subscribe(observed.hear)
    task = asyncio.create_task(cache.run())
    await observed.until(2)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task

    assert [(e["event"], e["key"]) for e in logged if "key" in e] == [("cache handler failed", "ns/a")] * 2
    assert cache.stats.handler_errors == 2


async def test_watch_lag() -> None:
    """How long after the answer to our write the watch shows it; what the watch had shown before is no measure."""
    client = ScriptedClient()
    client.lists = [page(thing("a", 10), version="10")]
    shown = asyncio.Event()
    client.watches = [[("MODIFIED", thing("b", 11)), shown, ("MODIFIED", thing("a", 12))]]
    async with running(client) as observed:
        await observed.until(2)
        observed.cache.observe(thing("a", 10))
        observed.cache.observe(thing("a", 12))
        assert observed.cache.stats.lag.count == 0
        await asyncio.sleep(2)
        shown.set()
        await asyncio.sleep(0.1)
        lag = observed.cache.stats.lag

    assert lag.count == 1
    assert lag.total == pytest.approx(2, abs=0.1)
