"""Watches: where they begin, what they tell, how they end."""

from __future__ import annotations

import contextlib
import time
from urllib.parse import quote

import pytest

from tests.conformance.definitions import GROUP, config_map, gadget, gadgets, maps, widget, widgets
from tests.conformance.servers import JsonObject, Server, told

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def version(obj: JsonObject) -> str:
    """Return the version of an object or a list."""
    text: str = obj["metadata"]["resourceVersion"]
    return text


def test_from_a_version(server: Server, namespace: str) -> None:
    """Everything after it, and nothing before."""
    server.create(maps(namespace), config_map("before"))
    listed = server.get(maps(namespace)).ok()
    made = server.create(maps(namespace), config_map("a", n="1"))

    with server.watch(maps(namespace, query=f"?watch=true&resourceVersion={version(listed)}")) as watch:
        assert (watch.code, watch.content_type) == (200, "application/json")
        changed = server.patch(maps(namespace, "a"), {"data": {"n": "2"}}).ok()
        server.send("DELETE", maps(namespace, "a")).ok()
        events = watch.events(3)

    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert [events[0]["object"], events[1]["object"]] == [made, changed]
    last = events[2]["object"]
    assert last["data"] == {"n": "2"}
    assert int(version(last)) > int(version(changed))


@pytest.mark.parametrize("query", ["?watch=1", "?watch=1&resourceVersion=0", "?watch=1&resourceVersion="])
def test_from_what_there_is(server: Server, namespace: str, query: str) -> None:
    """Without a version, or from 0, first what exists is told as added."""
    for name in "ba":
        server.create(maps(namespace), config_map(name))

    with server.watch(maps(namespace, query=query)) as watch:
        first = watch.events(2)
        server.create(maps(namespace), config_map("c"))
        third = watch.event()

    assert sorted(told(event) for event in first) == [("ADDED", "a"), ("ADDED", "b")]
    assert told(third) == ("ADDED", "c")


@pytest.mark.parametrize("spelling", ["1", "true", "True", "TRUE", "t"])
def test_spellings_of_watch(server: Server, namespace: str, spelling: str) -> None:
    """Python's clients say True."""
    server.create(maps(namespace), config_map("a"))

    with server.watch(maps(namespace, query=f"?watch={spelling}")) as watch:
        assert told(watch.event()) == ("ADDED", "a")


@pytest.mark.parametrize("spelling", ["0", "false", "False"])
def test_no_watch(server: Server, namespace: str, spelling: str) -> None:
    """A list, then."""
    assert server.get(maps(namespace, query=f"?watch={spelling}")).ok()["kind"] == "ConfigMapList"


def test_old_paths(server: Server, namespace: str) -> None:
    """The prefix /watch/ is deprecated, and served for built-in kinds."""
    server.create(maps(namespace), config_map("a"))

    with server.watch(f"/api/v1/watch/namespaces/{namespace}/configmaps/a") as watch:
        assert told(watch.event()) == ("ADDED", "a")


def test_timeout(server: Server, namespace: str) -> None:
    """The server ends the watch when it has lasted as long as was asked, at the end of a line."""
    server.create(maps(namespace), config_map("a"))
    begun = time.monotonic()

    with server.watch(maps(namespace, query="?watch=1&timeoutSeconds=1")) as watch:
        events = watch.rest()

    assert [told(event) for event in events] == [("ADDED", "a")]
    assert 0.5 < time.monotonic() - begun < 10


def test_initial_events(server: Server, namespace: str) -> None:
    """A watch-list: what exists, then a bookmark that says so, then what comes."""
    server.create(maps(namespace), config_map("a"))
    query = "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"

    with server.watch(maps(namespace, query=query)) as watch:
        added, bookmark = watch.events(2)
        made = server.create(maps(namespace), config_map("b"))
        after = watch.event()

    assert told(added) == ("ADDED", "a")
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"] == {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {
            "resourceVersion": version(bookmark["object"]),
            "annotations": {"k8s.io/initial-events-end": "true"},
        },
    }
    assert int(version(bookmark["object"])) >= int(version(added["object"]))
    assert after == {"type": "ADDED", "object": made}


def test_initial_events_of_nothing(server: Server, namespace: str) -> None:
    """Also an empty namespace is told to be complete."""
    query = (
        "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion=0"
    )

    with server.watch(widgets(namespace, query=query)) as watch:
        bookmark = watch.event()

    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["kind"] == "Widget"
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_no_initial_events(server: Server, namespace: str) -> None:
    """Only what comes."""
    server.create(maps(namespace), config_map("a"))
    query = "?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"

    with server.watch(maps(namespace, query=query)) as watch:
        server.create(maps(namespace), config_map("b"))
        assert told(watch.event()) == ("ADDED", "b")


def test_last_bookmark(server: Server, namespace: str) -> None:
    """Before its time is over, a watch with bookmarks tells the version it has come to."""
    made = server.create(widgets(namespace), widget())

    with server.watch(widgets(namespace, query="?watch=1&allowWatchBookmarks=true&timeoutSeconds=4")) as watch:
        added, *bookmarks = watch.rest()

    assert told(added) == ("ADDED", "w")
    for bookmark in bookmarks:
        assert bookmark["type"] == "BOOKMARK"
        assert bookmark["object"].keys() == {"kind", "apiVersion", "metadata"}
        assert int(version(bookmark["object"])) >= int(version(made))
    assert bookmarks


def test_label_transitions(server: Server, namespace: str) -> None:
    """An object that comes to be selected is added, one that is no more is deleted; others are not heard of."""
    listed = server.get(maps(namespace)).ok()
    query = f"?watch=1&resourceVersion={version(listed)}&labelSelector=" + quote("tier=web")
    path = maps(namespace, "a")

    def label(tier: str | None) -> JsonObject:
        return server.patch(path, {"metadata": {"labels": {"tier": tier}}}).ok()

    with server.watch(maps(namespace, query=query)) as watch:
        server.create(maps(namespace), config_map("a", n="1"))
        entered = label("web")
        changed = server.patch(path, {"data": {"n": "2"}}).ok()
        left = label("db")
        server.patch(path, {"data": {"n": "3"}}).ok()
        again = label("web")
        server.send("DELETE", path).ok()
        events = watch.events(5)

    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]
    assert [events[0]["object"], events[1]["object"], events[3]["object"]] == [entered, changed, again]
    out = events[2]["object"]
    assert (out["metadata"]["labels"], out["data"]) == ({"tier": "web"}, {"n": "2"})
    assert version(out) == version(left)


def test_field_selection(server: Server, namespace: str) -> None:
    """One object by its name; and by a selectable field, with transitions."""
    listed = server.get(widgets(namespace)).ok()
    begin = f"?watch=1&resourceVersion={version(listed)}&fieldSelector="

    with (
        server.watch(widgets(namespace, query=begin + quote("metadata.name=b"))) as one,
        server.watch(widgets(namespace, query=begin + quote("spec.mode=fast"))) as fast,
    ):
        server.create(widgets(namespace), widget("a"))
        server.create(widgets(namespace), widget("b"))
        server.patch(widgets(namespace, "a"), {"spec": {"mode": "fast"}}).ok()
        server.patch(widgets(namespace, "a"), {"spec": {"mode": "safe"}}).ok()
        server.send("DELETE", widgets(namespace, "b")).ok()

        assert [told(event) for event in one.events(2)] == [("ADDED", "b"), ("DELETED", "b")]
        assert [told(event) for event in fast.events(2)] == [("ADDED", "a"), ("DELETED", "a")]


def test_one_object(server: Server, namespace: str) -> None:
    """A watch of a name is a watch of the collection with that name selected; the object's own path is no watch."""
    server.create(maps(namespace), config_map("a"))

    answer = server.get(maps(namespace, "a", query="?watch=1&timeoutSeconds=1"))

    assert answer.code == 200


def test_across_namespaces(server: Server, namespace: str) -> None:
    """One watch of all."""
    listed = server.get(f"/apis/{GROUP}/v1/widgets?limit=1").ok()
    other = server.namespace()

    with server.watch(f"/apis/{GROUP}/v1/widgets?watch=1&resourceVersion={version(listed)}") as watch:
        server.create(widgets(namespace), widget("x1"))
        server.create(widgets(other), widget("x2"))
        seen: list[tuple[str, str]] = []
        while len(seen) < 2:
            event = watch.event()
            if event["object"]["metadata"]["namespace"] in {namespace, other}:
                seen.append(told(event))

    assert seen == [("ADDED", "x1"), ("ADDED", "x2")]


def test_cluster_scoped(server: Server, namespace: str) -> None:
    """Objects outside namespaces are watched the same way."""
    listed = server.get(gadgets()).ok()
    selector = quote(f"metadata.name=w-{namespace}")

    with server.watch(gadgets(query=f"?watch=1&resourceVersion={version(listed)}&fieldSelector={selector}")) as watch:
        server.create(gadgets(), gadget(f"w-{namespace}"))
        server.send("DELETE", gadgets(f"w-{namespace}")).ok()
        assert [event["type"] for event in watch.events(2)] == ["ADDED", "DELETED"]


def test_status_and_finalizers(server: Server, namespace: str) -> None:
    """Every write is an event; a deletion that waits is a change, and its end the deletion."""
    listed = server.get(widgets(namespace)).ok()
    path = widgets(namespace, "w")

    with server.watch(widgets(namespace, query=f"?watch=1&resourceVersion={version(listed)}")) as watch:
        server.create(widgets(namespace), widget(metadata={"finalizers": ["example.com/a"]}))
        server.patch(path + "/status", {"status": {"phase": "x"}}).ok()
        server.patch(path, {"spec": {"size": 3}}).ok()  # nothing new
        server.send("DELETE", path).ok()
        server.patch(path, {"metadata": {"finalizers": None}}).ok()
        events = watch.events(4)

    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
    assert events[1]["object"]["status"] == {"phase": "x"}
    assert "deletionTimestamp" in events[2]["object"]["metadata"]
    assert "deletionTimestamp" in events[3]["object"]["metadata"]


def test_dry_runs_are_silent(server: Server, namespace: str) -> None:
    """Nothing happened, so nothing is told."""
    listed = server.get(maps(namespace)).ok()

    with server.watch(maps(namespace, query=f"?watch=1&resourceVersion={version(listed)}")) as watch:
        server.send("POST", maps(namespace, query="?dryRun=All"), config_map("x")).ok()
        server.create(maps(namespace), config_map("y"))
        assert told(watch.event()) == ("ADDED", "y")


def test_replay(server: Server, namespace: str) -> None:
    """Who comes later hears the same story from the same version."""
    listed = server.get(maps(namespace)).ok()
    server.create(maps(namespace), config_map("a"))
    server.patch(maps(namespace, "a"), {"data": {"n": "2"}}).ok()
    server.send("DELETE", maps(namespace, "a")).ok()
    server.create(maps(namespace), config_map("b"))
    path = maps(namespace, query=f"?watch=1&resourceVersion={version(listed)}")

    with server.watch(path) as one, server.watch(path) as two:
        first, second = one.events(4), two.events(4)
    middle = first[1]["object"]["metadata"]["resourceVersion"]
    with server.watch(maps(namespace, query=f"?watch=1&resourceVersion={middle}")) as rest:
        third = rest.events(2)

    assert first == second
    assert [told(event) for event in first] == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "b")]
    assert third == first[2:]


def test_tables(server: Server, namespace: str) -> None:
    """A watch as a table: one row an event, the columns told once."""
    server.create(widgets(namespace), widget("a", size=4))

    with server.watch(widgets(namespace, query="?watch=1"), Accept=TABLE) as watch:
        first = watch.event()
        server.patch(widgets(namespace, "a"), {"spec": {"size": 5}}).ok()
        second = watch.event()

    assert (first["type"], first["object"]["kind"], first["object"]["apiVersion"]) == (
        "ADDED",
        "Table",
        "meta.k8s.io/v1",
    )
    assert [column["name"] for column in first["object"]["columnDefinitions"]] == [
        "Name",
        "Size",
        "Phase",
        "Mode",
        "Age",
    ]
    assert first["object"]["rows"][0]["cells"][:2] == ["a", 4]
    assert first["object"]["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    assert second["type"] == "MODIFIED"
    assert second["object"]["columnDefinitions"] is None
    assert second["object"]["rows"][0]["cells"][:2] == ["a", 5]


def test_metadata_only(server: Server, namespace: str) -> None:
    """A watch of metadata."""
    server.create(maps(namespace), config_map("a", n="1"))

    accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    with server.watch(maps(namespace, query="?watch=1"), Accept=accept) as watch:
        event = watch.event()

    assert event["object"].keys() == {"kind", "apiVersion", "metadata"}
    assert (event["object"]["kind"], event["object"]["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")


def test_a_version_that_is_not_yet(server: Server, namespace: str) -> None:
    """A watch of the future is a watch on which nothing comes yet; a watch-list says that it cannot begin."""
    path = maps(namespace, query="?watch=1&resourceVersion=999999999999&timeoutSeconds=1")
    with server.watch(path) as watch:
        assert (watch.code, watch.rest()) == (200, [])

    listing = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    with server.watch(path.replace("Seconds=1", "Seconds=9") + listing) as watch:
        (event,) = watch.rest()
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (504, "Timeout")
    assert event["object"]["message"].startswith("Timeout: Too large resource version: 999999999999, current: ")


def test_many_watchers(server: Server, namespace: str) -> None:
    """Twenty see the same."""
    listed = server.get(maps(namespace)).ok()
    with contextlib.ExitStack() as stack:
        path = maps(namespace, query=f"?watch=1&resourceVersion={version(listed)}")
        watches = [stack.enter_context(server.watch(path)) for _ in range(20)]
        made = server.create(maps(namespace), config_map("a"))
        assert [watch.event() for watch in watches] == [{"type": "ADDED", "object": made}] * 20
