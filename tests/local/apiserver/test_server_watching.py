"""Watches in simulated time. The expected events are those of kube-apiserver 1.34.3."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from kargo_py.local.apiserver import store as stores
from kargo_py.local.apiserver.wire import JsonObject, Request, Stream
from tests.local.apiserver.driving import (
    CONFIG_MAPS,
    DEFINITIONS,
    FOO,
    FOOS,
    NAMESPACES,
    TABLE,
    Driver,
    driver,
    foo,
    shape,
)

pytestmark = pytest.mark.looptime
END = {"k8s.io/initial-events-end": "true"}
INITIAL = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"


async def take(events: AsyncGenerator[JsonObject], count: int) -> list[JsonObject]:
    return [await anext(events) for _ in range(count)]


async def all_of(events: AsyncGenerator[JsonObject]) -> list[JsonObject]:
    return [event async for event in events]


async def filled() -> tuple[Driver, list[str]]:
    """A server with o0, o1, o2, of which o1 has the label p=1; their versions."""
    api = await driver()
    made = [await api.post(FOOS, foo(f"o{number}", labels={"p": str(number % 2)})) for number in range(3)]
    return api, [answer.version for answer in made]


@pytest.mark.parametrize(
    ("query", "shapes"),
    [
        ("", [("ADDED", "o0"), ("ADDED", "o1"), ("ADDED", "o2")]),
        ("resourceVersion=0", [("ADDED", "o0"), ("ADDED", "o1"), ("ADDED", "o2")]),
        ("resourceVersion={0}", [("ADDED", "o1"), ("ADDED", "o2")]),
        ("resourceVersion={0}&labelSelector=p=0", [("ADDED", "o2")]),
        ("resourceVersion={2}&allowWatchBookmarks=true", []),
        ("resourceVersion=0&fieldSelector=metadata.name=o1", [("ADDED", "o1")]),
        ("resourceVersion=0&allowWatchBookmarks=1&labelSelector=p=1", [("ADDED", "o1"), ("BOOKMARK", "")]),
        (INITIAL, [("ADDED", "o0"), ("ADDED", "o1"), ("ADDED", "o2"), ("BOOKMARK", "")]),
        (
            INITIAL.replace("&allowWatchBookmarks=true", ""),
            [("ADDED", "o0"), ("ADDED", "o1"), ("ADDED", "o2")],
        ),
        (INITIAL.replace("=true&r", "=false&r") + "&resourceVersion={1}", [("ADDED", "o2")]),
        ("resourceVersion=99999", []),
    ],
)
async def test_how_a_watch_begins(query: str, shapes: list[tuple[str, str]]) -> None:
    """From what is there, or from a version on; it ends when it is told to."""
    api, versions = await filled()
    events = await api.watch(f"{FOOS}?watch=1&timeoutSeconds=1&{query.format(*versions)}")
    assert [shape(event) for event in await all_of(events)] == shapes
    assert asyncio.get_running_loop().time() == 1


async def test_the_end_of_the_initial_events_is_marked() -> None:
    """With the version that the watch goes on from."""
    api, versions = await filled()
    events = await api.watch(f"{FOOS}?watch=1&{INITIAL}")
    mark = (await take(events, 4))[3]
    metadata = {"annotations": END, "resourceVersion": versions[2]}
    assert mark == {"type": "BOOKMARK", "object": {"kind": "Foo", "apiVersion": "ex.io/v1", "metadata": metadata}}
    await events.aclose()


async def test_each_write_is_told_with_the_object_as_it_was_then() -> None:
    """A deletion shows the last state under a version of its own; a change of nothing is not told."""
    api, versions = await filled()
    events = await api.watch(f"{FOOS}?watch=1&resourceVersion={versions[2]}")
    changed = await api.merge(f"{FOOS}/o1", {"spec": {"a": 1}})
    await api.merge(f"{FOOS}/o1", {"spec": {"a": 1}})
    await api.merge(f"{FOOS}/o1", {"spec": {"a": 2}})
    await api.delete(f"{FOOS}/o1")
    modified, again, deleted = await take(events, 3)
    assert modified == {"type": "MODIFIED", "object": changed.obj}
    assert again["object"]["spec"]["a"] == 2
    version = str(api.server.store.version)
    again["object"]["metadata"]["resourceVersion"] = version
    assert deleted == {"type": "DELETED", "object": again["object"]}
    await events.aclose()


async def test_to_a_selector_objects_come_and_go() -> None:
    """What no longer matches is deleted, as it was when it did; what now matches is added."""
    api, versions = await filled()
    events = await api.watch(f"{FOOS}?watch=1&labelSelector=p%3D1&resourceVersion={versions[2]}")
    await api.merge(f"{FOOS}/o0", {"metadata": {"labels": {"q": "1"}}})
    came = await api.merge(f"{FOOS}/o0", {"metadata": {"labels": {"p": "1"}}})
    went = await api.merge(f"{FOOS}/o0", {"metadata": {"labels": {"p": "2"}}})
    await api.delete(f"{FOOS}/o0")
    await api.delete(f"{FOOS}/o1")
    added, deleted, last = await take(events, 3)
    assert added == {"type": "ADDED", "object": came.obj}
    came.obj["metadata"]["resourceVersion"] = went.version
    assert deleted == {"type": "DELETED", "object": came.obj}
    assert shape(last) == ("DELETED", "o1")
    await events.aclose()


async def test_bookmarks_come_about_each_minute_and_before_the_end() -> None:
    """With the newest version, also when the watched resource has none of it."""
    api, _ = await filled()
    loop = asyncio.get_running_loop()
    events = await api.watch(
        f"{FOOS}?watch=1&resourceVersion={api.server.store.version}&allowWatchBookmarks=true&timeoutSeconds=130"
    )
    await api.post(CONFIG_MAPS, {"metadata": {"name": "c"}})
    told = [(loop.time(), event["type"], event["object"]["metadata"]) async for event in events]
    version = {"resourceVersion": str(api.server.store.version)}
    assert told == [(60, "BOOKMARK", version), (120, "BOOKMARK", version), (128, "BOOKMARK", version)]
    assert loop.time() == 130


@pytest.mark.parametrize("began", [0.011768, 0.017042])
async def test_simulated_time_may_stand_just_before_a_bookmark(began: float) -> None:
    """So close that no number of the loop's clock lies between: it is sent all the same."""
    api, _ = await filled()
    loop = asyncio.get_running_loop()
    await asyncio.sleep(began)
    assert loop.time() == began
    events = await api.watch(f"{FOOS}?watch=1&resourceVersion=99&allowWatchBookmarks=true&timeoutSeconds=90")
    bookmarks = [loop.time() async for _ in events]
    assert bookmarks == pytest.approx([began + 60, began + 88])


async def test_a_watch_that_is_told_nothing_lasts_as_long_as_chance_says() -> None:
    """Between half an hour and an hour; ``timeoutSeconds=0`` is nothing."""
    api, _ = await filled()
    loop = asyncio.get_running_loop()
    ends = []
    for query in ("", "&timeoutSeconds=0"):
        began = loop.time()
        await all_of(await api.watch(f"{FOOS}?watch=true&resourceVersion=99{query}"))
        ends.append(loop.time() - began)
    assert all(1800 <= end <= 3600 for end in ends)
    assert ends[0] != ends[1]


GONE = "too old resource version: 1 ({oldest})"


async def test_a_version_that_is_forgotten_is_an_event() -> None:
    """410 within the stream, whose HTTP status is 200."""
    api, _ = await filled()
    api.server.store.forget()
    oldest = api.server.store.version
    events = await all_of(await api.watch(f"{FOOS}?watch=1&resourceVersion=1"))
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    gone = {**status, "message": GONE.format(oldest=oldest), "reason": "Expired", "code": 410}
    assert events == [{"type": "ERROR", "object": gone}]


async def test_initial_events_as_of_the_future_are_refused_in_the_stream() -> None:
    """504, as an event."""
    api, _ = await filled()
    events = await all_of(await api.watch(f"{FOOS}?watch=1&{INITIAL}&resourceVersion=99999"))
    assert [(event["type"], event["object"]["code"]) for event in events] == [("ERROR", 504)]


FORBIDDEN = 'ListOptions.meta.k8s.io "" is invalid: '
REFUSED: dict[str, tuple[int, str]] = {
    "resourceVersion=abc": (
        500,
        'resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax',
    ),
    "sendInitialEvents=true": (
        422,
        FORBIDDEN
        + "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
    ),
    "sendInitialEvents=true&resourceVersionMatch=Exact": (
        422,
        FORBIDDEN
        + "[resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan, "
        'resourceVersionMatch: Unsupported value: "Exact": supported values: "NotOlderThan"]',
    ),
    "resourceVersion=5&resourceVersionMatch=NotOlderThan": (
        422,
        FORBIDDEN
        + "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is "
        "provided",
    ),
    "continue=x": (
        422,
        FORBIDDEN + "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided",
    ),
    "labelSelector===": (400, "found '==', expected: !, identifier, or 'end of string'"),
    "fieldSelector=spec.a=1": (400, "field label not supported: spec.a"),
    "timeoutSeconds=x": (400, 'strconv.ParseInt: parsing "x": invalid syntax'),
}


@pytest.mark.parametrize("query", REFUSED)
async def test_a_watch_that_is_refused(query: str) -> None:
    """Before anything is streamed."""
    api = await driver()
    answer = await api.get(f"{FOOS}?watch=1&{query}")
    assert (answer.code, answer.obj["message"]) == REFUSED[query]


async def test_what_asks_for_a_watch() -> None:
    """Any value but no and 0; the old path, too; for one object only the old path or a selector."""
    api, _ = await filled()
    for url in (
        f"{FOOS}?watch=True",
        f"{FOOS}?watch",
        f"{FOOS}?watch=x",
        "/apis/ex.io/v1/watch/foos?",
        "/apis/ex.io/v1/foos?watch=1",
    ):
        assert len(await all_of(await api.watch(f"{url}&timeoutSeconds=1"))) == 3
    one = await all_of(await api.watch("/apis/ex.io/v1/watch/namespaces/default/foos/o1?timeoutSeconds=1"))
    assert [shape(event) for event in one] == [("ADDED", "o1")]
    assert (await api.get(f"{FOOS}?watch=false")).names == ["o0", "o1", "o2"]
    assert (await api.get(f"{FOOS}/o1?watch=1")).obj["kind"] == "Foo"


async def test_a_watch_of_tables_has_headers_once() -> None:
    """As `kubectl get -w` asks for it; bookmarks are tables, too."""
    api, _ = await filled()
    events = await all_of(await api.watch(f"{FOOS}?watch=1&timeoutSeconds=1&{INITIAL}", accept=TABLE))
    assert [event["object"]["kind"] for event in events] == ["Table"] * 4
    assert [event["object"]["columnDefinitions"] is None for event in events] == [False, True, True, True]
    assert [event["object"]["rows"][0]["cells"][0] for event in events] == ["o0", "o1", "o2", ""]
    assert events[3]["object"]["rows"][0]["object"]["metadata"]["annotations"] == END


async def test_a_watch_sees_only_its_namespace() -> None:
    """Others are none of its business."""
    api, versions = await filled()
    await api.post(NAMESPACES, {"metadata": {"name": "other"}})
    events = await api.watch(f"{FOOS}?watch=1&resourceVersion={versions[2]}&timeoutSeconds=1")
    await api.post(FOOS.replace("default", "other"), foo("x"))
    assert await all_of(events) == []


# Ends


async def test_a_consumer_that_does_not_read_is_cut_when_the_log_has_moved_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It costs nothing meanwhile."""
    monkeypatch.setattr(stores, "LOG_EVENTS", 3)
    api, versions = await filled()
    events = await api.watch(f"{FOOS}?watch=1&resourceVersion={versions[2]}")
    await api.merge(f"{FOOS}/o0", {"spec": {"a": 0}})
    assert (await anext(events))["object"]["spec"]["a"] == 0
    for number in range(1, 6):
        await api.merge(f"{FOOS}/o0", {"spec": {"a": number}})
    assert await all_of(events) == []


async def test_a_watch_that_is_level_survives_forgetting() -> None:
    """Only what lies behind is gone."""
    api, versions = await filled()
    events = await api.watch(f"{FOOS}?watch=1&resourceVersion={versions[2]}")
    waiting = asyncio.create_task(anext(events))
    await asyncio.sleep(0)
    api.server.store.forget()
    await api.merge(f"{FOOS}/o0", {"spec": {"a": 5}})
    assert shape(await waiting) == ("MODIFIED", "o0")
    await events.aclose()


async def test_watches_end_with_their_kind_and_with_the_server() -> None:
    """After telling what happened; a definition that changes ends them, too."""
    api, _ = await filled()
    changed = await api.watch(f"{FOOS}?watch=1&resourceVersion=0")
    await take(changed, 3)
    await api.merge(f"{DEFINITIONS}/foos.ex.io", {"spec": {"names": {"shortNames": ["f"]}}})
    assert await all_of(changed) == []
    removed = await api.watch(f"{FOOS}?watch=1&resourceVersion=0")
    await take(removed, 3)
    await api.delete(f"{DEFINITIONS}/foos.ex.io")
    assert [shape(event) for event in await all_of(removed)] == [("DELETED", f"o{number}") for number in range(3)]
    last = await api.watch(f"{CONFIG_MAPS}?watch=1")
    async with api.server:
        pass
    assert await all_of(last) == []


async def test_a_watch_that_is_closed_or_cancelled_leaves_nothing() -> None:
    """Neither a sleeper in the store nor a timer that wakes the loop."""
    api, _ = await filled()
    collection = api.server.store.collection("ex.io", "foos")
    for end in ("close", "cancel"):
        events = await api.watch(f"{FOOS}?watch=1&resourceVersion={api.server.store.version}")
        waiting = asyncio.create_task(anext(events))
        await asyncio.sleep(0)
        assert collection.waiting == 1
        waiting.cancel()
        await asyncio.wait([waiting])
        assert (collection.waiting, waiting.cancelled()) == (0, True), end
        await events.aclose()
    unread = await api.server.handle(Request("GET", FOOS, [("watch", "1")]))
    assert isinstance(unread, Stream)
    await unread.lines.aclose()
    assert collection.waiting == 0


async def test_many_watchers_are_told_in_the_order_they_came() -> None:
    """So that a run repeats."""
    api, versions = await filled()
    order: list[int] = []

    async def follow(number: int, events: AsyncGenerator[Any]) -> None:
        await anext(events)
        order.append(number)
        await events.aclose()

    url = f"{FOOS}?watch=1&resourceVersion={versions[2]}"
    followers = [asyncio.create_task(follow(number, await api.watch(url))) for number in range(20)]
    await asyncio.sleep(0)
    await api.merge(f"{FOOS}/o0", {"spec": {"a": 5}})
    await asyncio.gather(*followers)
    assert order == list(range(20))


async def test_a_definition_that_is_written_again_unchanged_ends_no_watch() -> None:
    """Nor does a change of its labels."""
    api, versions = await filled()
    events = await api.watch(f"{FOOS}?watch=1&resourceVersion={versions[2]}")
    await api.apply(f"{DEFINITIONS}/foos.ex.io", {**FOO, "metadata": {"name": "foos.ex.io", "labels": {"l": "1"}}})
    await api.merge(f"{FOOS}/o0", {"spec": {"a": 5}})
    assert shape(await anext(events)) == ("MODIFIED", "o0")
    await events.aclose()


@pytest.mark.parametrize("query", ["watch=1", "watch=1&resourceVersion=0", f"watch=1&{INITIAL}"])
async def test_watches_that_are_not_read_hold_no_copies(query: str) -> None:
    """What there was when they began is held once, however many there are."""
    api = await driver()
    await api.post(CONFIG_MAPS, {"metadata": {"name": "m"}, "data": {"a": "x" * 100_000}})
    tracemalloc.start()
    try:
        watches = [await api.watch(f"{CONFIG_MAPS}?{query}") for _ in range(50)]
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1_000_000
    assert (await anext(watches[0]))["object"]["metadata"]["name"] == "m"
