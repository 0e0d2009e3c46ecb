"""The store: one counter, any state that the log reaches, and a log that is bounded."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings, strategies as st

from kargo_py.local.apiserver import store as stores
from kargo_py.local.apiserver.builtin import ConfigMapRules
from kargo_py.local.apiserver.coretypes import CONFIG_MAP
from kargo_py.local.apiserver.kinds import Kind
from kargo_py.local.apiserver.store import Collection, Event, Expired, Store, Stored, TooLarge
from kargo_py.local.apiserver.wire import JsonObject

KIND = Kind("", "v1", "configmaps", "configmap", "ConfigMap", ConfigMapRules(CONFIG_MAP))


def obj(name: str, namespace: str = "n", **data: str) -> JsonObject:
    return {"metadata": {"name": name, "namespace": namespace}, "data": data}


def put(store: Store, name: str, namespace: str = "n", **data: str) -> Stored:
    return store.put(store.collection("", "configmaps"), KIND, obj(name, namespace, **data))


def keys(items: list[Stored]) -> list[str]:
    return [item.key for item in items]


def test_every_write_has_a_version_of_its_own_over_all_resources() -> None:
    """The counter is the store's, as etcd's is."""
    store = Store()
    first = put(store, "a")
    second = store.put(store.collection("", "secrets"), KIND, obj("a"))
    removed = store.remove(store.collection("", "configmaps"), first)
    assert [first.version + 1, first.version + 2] == [second.version, removed.version]
    assert str(removed.version) == removed.obj["metadata"]["resourceVersion"]


def test_objects_are_in_the_order_of_etcds_keys() -> None:
    """A namespace "a-b" comes before the objects of "a": "-" is before "/"."""
    store = Store()
    for namespace, name in (("a", "z"), ("a-b", "x"), ("b", "a"), ("a", "b")):
        put(store, name, namespace)
    collection = store.collection("", "configmaps")
    assert keys(collection.all()) == ["a-b/x", "a/b", "a/z", "b/a"]
    assert keys(collection.all("a")) == ["a/b", "a/z"]
    assert collection.all("c") == []


def test_an_object_that_etcd_would_not_take_changes_nothing() -> None:
    """Its limit is 1.5 MiB; the version counter stays."""
    store = Store()
    before = store.version
    with pytest.raises(TooLarge):
        put(store, "a", data="x" * 1_600_000)
    assert (before, []) == (store.version, store.collection("", "configmaps").all())


def test_what_an_observer_writes_is_told_after_what_it_was_told_of() -> None:
    """All observers see all writes in the order of their versions."""
    store = Store()
    seen: list[int] = []

    def write(event: Event) -> None:
        if event.stored.key == "n/a":
            put(store, "b")

    store.observers += [write, lambda event: seen.append(event.version)]
    first = put(store, "a")
    assert [first.version, first.version + 1] == seen


def test_the_log_is_bounded_by_count_and_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What falls out of it can be asked for no more."""
    store = Store()
    collection = store.collection("", "configmaps")
    monkeypatch.setattr(stores, "LOG_EVENTS", 3)
    versions = [put(store, f"a{number}").version for number in range(5)]
    assert versions[2:] == [event.version for event in collection.log]
    assert versions[1] == collection.oldest
    monkeypatch.setattr(stores, "LOG_BYTES", 1000)
    put(store, "big", a="x" * 600)
    put(store, "big", a="y" * 600)
    assert len(collection.log) == 1


def test_forgetting_keeps_the_objects_and_ends_the_past() -> None:
    """As a compaction of etcd."""
    store = Store()
    old = put(store, "a").version
    now = put(store, "b").version
    collection = store.collection("", "configmaps")
    store.forget()
    with pytest.raises(Expired):
        collection.at(old)
    with pytest.raises(Expired):
        collection.since(old)
    assert (keys(collection.at(now)), collection.since(now)) == (["n/a", "n/b"], [])


def test_a_sleeper_is_woken_once_and_in_order() -> None:
    """By the next write, or by the end; who does not care any more is not."""
    store = Store()
    collection = store.collection("", "configmaps")
    woken: list[str] = []
    calls = {name: (lambda name=name: woken.append(name)) for name in "cab"}
    for call in calls.values():
        collection.when_changed(call)
    collection.never_mind(calls["a"])
    put(store, "x")
    put(store, "y")
    assert woken == ["c", "b"]
    collection.when_changed(calls["a"])
    store.drop(collection)
    assert (woken, collection.closed, collection.waiting) == (["c", "b", "a"], True, 0)


def test_a_resource_that_is_served_anew_keeps_its_objects_and_history() -> None:
    """Only the watches end."""
    store = Store()
    old = store.collection("", "configmaps")
    version = put(store, "a").version
    store.reopen(old)
    new = store.collection("", "configmaps")
    assert old.closed
    assert not new.closed
    put(store, "b")
    assert (keys(new.all()), len(new.since(version))) == (["n/a", "n/b"], 1)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("pq"), st.booleans()), max_size=30), st.data())
def test_any_state_that_the_log_reaches_can_be_had(writes: list[tuple[str, str, bool]], data: st.DataObject) -> None:
    """`at` gives what was stored right after a version; `since` leads from it to now; nothing stored ever changes."""
    store = Store()
    collection = store.collection("", "configmaps")
    states: dict[int, list[tuple[str, int]]] = {store.version: []}
    kept: list[tuple[Stored, bytes, JsonObject]] = []
    for name, namespace, removes in writes:
        existing = collection.get(namespace, name)
        if removes and existing:
            store.remove(collection, existing)
        else:
            stored = put(store, name, namespace)
            kept.append((stored, stored.data, copy.deepcopy(stored.obj)))
        states[store.version] = [(item.key, item.version) for item in collection.all()]
    forgotten = data.draw(st.sampled_from(sorted(states)))
    store.forget(forgotten)
    for version, state in states.items():
        if version < forgotten:
            continue
        assert state == [(item.key, item.version) for item in collection.at(version)]
        assert [one for one in state if one[0].startswith("p/")] == [
            (item.key, item.version) for item in collection.at(version, "p")
        ]
        assert dict(states[store.version]) == _replayed(dict(state), collection, version)
    assert all(stored.data == data and stored.obj == obj for stored, data, obj in kept)


def _replayed(state: dict[str, int], collection: Collection, version: int) -> dict[str, int]:
    for event in collection.since(version):
        assert (event.previous is None) == (event.change == "ADDED")
        if event.change == "DELETED":
            del state[event.stored.key]
        else:
            state[event.stored.key] = event.version
    return state
