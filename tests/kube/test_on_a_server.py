"""The cache and the client on an API server, embedded and real: what a script cannot prove."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

import pytest

from kargo_py.kube.cache import Cache
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.connection import connect
from kargo_py.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound, Unauthorized
from kargo_py.kube.exchange import BrokenOff
from kargo_py.kube.resources import Key, Resource
from kargo_py.kube.rest import RestClient, Settings
from kargo_py.kube.writes import contains, guarded_patch
from tests.envtest.server import ApiServer

pytestmark = [
    pytest.mark.nonblocking_exempt(reason="kubernetes-asyncio reads kubeconfigs in the loop"),
]

MAPS = Resource("", "v1", "configmaps", "ConfigMap")
JsonObject = dict[str, Any]


def config_map(name: str, **data: str) -> bytes:
    return encode({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})


def guarded(obj: JsonObject, **data: str) -> bytes:
    return encode({"metadata": {"resourceVersion": JSON.meta(obj).resource_version}, "data": data})


@pytest.fixture
async def client(apiserver: ApiServer) -> AsyncIterator[RestClient]:
    """A client of the admin, with short time-outs."""
    settings = Settings(read_timeout=5, write_timeout=5, watch_margin=0.2)
    async with await connect(kubeconfig=str(apiserver.kubeconfig("admin")), settings=settings) as connected:
        yield connected


class Watched:
    """A running cache of one namespace, with what its handlers were told."""

    def __init__(self, client: RestClient, namespace: str) -> None:
        self.cache: Cache[JsonObject] = Cache(client, MAPS, codec=JSON, namespace=namespace)
        self.told: list[tuple[str | None, str | None]] = []
        self._news = asyncio.Event()
        self.cache.subscribe(self._note)

    def _note(self, old: JsonObject | None, new: JsonObject | None) -> None:
        name = (new or old or {})["metadata"]["name"]
        self.told.append((name, new.get("data", {}).get("n") if new is not None else None))
        self._news.set()

    async def sees(self, name: str, value: str | None) -> None:
        """Wait until handlers were told this value of this object (None: that it is gone)."""
        async with asyncio.timeout(60):
            while (name, value) not in self.told:
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def watching(client: RestClient, namespace: str) -> AsyncIterator[Watched]:
    """A cache of *namespace*, running."""
    watched = Watched(client, namespace)
    task = asyncio.create_task(watched.cache.run())
    try:
        await watched.cache.wait_synced(fail_fast=True)
        yield watched
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_follows_the_server(client: RestClient, namespace: str) -> None:
    """Changes and deletions arrive; the answer to an own write is there before its event and is not told twice."""
    async with watching(client, namespace) as watched:
        made = await client.create(MAPS, namespace, config_map("a", n="1"), codec=JSON)
        watched.cache.observe(made)
        assert made == watched.cache.get(Key(namespace, "a"))
        changed = await client.patch(MAPS, Key(namespace, "a"), guarded(made, n="2"), codec=JSON)
        await watched.sees("a", "2")
        await client.delete(MAPS, Key(namespace, "a"), uid=JSON.meta(changed).uid)
        await watched.sees("a", None)

    mine = [entry for entry in watched.told if entry[0] == "a"]
    assert mine == [("a", "1"), ("a", "2"), ("a", None)]


async def test_errors_as_the_server_means_them(client: RestClient, apiserver: ApiServer, namespace: str) -> None:
    """Each refusal of a real server has its type."""
    key = Key(namespace, "a")
    made = await client.create(MAPS, namespace, config_map("a"), codec=JSON)
    await client.patch(MAPS, key, guarded(made, n="2"), codec=JSON)
    with pytest.raises(AlreadyExists):
        await client.create(MAPS, namespace, config_map("a"), codec=JSON)
    with pytest.raises(Conflict):
        await client.patch(MAPS, key, guarded(made, n="3"), codec=JSON)
    with pytest.raises(Invalid, match="metadata"):
        await client.create(MAPS, namespace, config_map("Not A Name"), codec=JSON)
    with pytest.raises(NotFound) as absent:
        await client.get(MAPS, Key(namespace, "b"), codec=JSON)
    with pytest.raises(NotFound) as unknown:
        await client.get(Resource("example.com", "v1", "nothings", "Nothing"), key, codec=JSON)
    assert (absent.value.resource_missing, unknown.value.resource_missing) == (False, True)
    config = apiserver.kubeconfig("nobody")
    stale = config.with_name("stale")
    stale.write_text(config.read_text().replace(apiserver.token("nobody"), "wrong"))
    async with await connect(kubeconfig=str(stale)) as expired:
        with pytest.raises(Unauthorized):
            await expired.get(MAPS, key, codec=JSON)


@pytest.mark.envtest
async def test_forbidden(apiserver: ApiServer, namespace: str) -> None:
    """Who has no role is told so; the embedded server has no roles."""
    async with await connect(kubeconfig=str(apiserver.kubeconfig("nobody"))) as nobody:
        with pytest.raises(Forbidden, match="nobody"):
            await nobody.get(MAPS, Key(namespace, "a"), codec=JSON)


async def test_frozen(
    client: RestClient, apiserver: ApiServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that stops answering is noticed when the watch's time is over, and taken up when it is back."""
    monkeypatch.setattr("kargo_py.kube.cache.WATCH_SECONDS", (1, 1))
    async with watching(client, namespace) as watched:
        await asyncio.to_thread(apiserver.pause)
        async with asyncio.timeout(30):
            while watched.cache.health is None:
                watched.cache._news_of_health.clear()
                await watched.cache._news_of_health.wait()
        await asyncio.to_thread(apiserver.resume)
        await client.create(MAPS, namespace, config_map("a", n="1"), codec=JSON)
        await watched.sees("a", "1")


async def test_killed_in_mid_watch(client: RestClient, apiserver: ApiServer, namespace: str) -> None:
    """A server that is killed and started again is followed from where the cache was."""
    async with watching(client, namespace) as watched:
        await client.create(MAPS, namespace, config_map("a", n="1"), codec=JSON)
        await watched.sees("a", "1")
        await asyncio.to_thread(apiserver.restart)
        await client.create(MAPS, namespace, config_map("b", n="1"), codec=JSON)
        await watched.sees("b", "1")

    assert watched.told.count(("a", "1")) == 1


async def test_deletions_missed_while_away(
    client: RestClient, apiserver: ApiServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was deleted while the cache could not watch, and the history is lost, is told after the new list."""
    back = asyncio.Event()
    lists = 0
    list_, watch = client.list, client.watch

    async def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal lists
        lists += 1
        return await list_(*arguments, **options)

    async def held(*arguments: Any, **options: Any) -> AsyncIterator[Any]:
        await back.wait()
        async with aclosing(watch(*arguments, **options)) as events:
            async for event in events:
                yield event

    monkeypatch.setattr(client, "list", counted)
    monkeypatch.setattr(client, "watch", held)
    await client.create(MAPS, namespace, config_map("a", n="1"), codec=JSON)
    async with watching(client, namespace) as watched:
        await watched.sees("a", "1")
        await client.delete(MAPS, Key(namespace, "a"))
        await asyncio.to_thread(apiserver.forget_history)
        back.set()
        await watched.sees("a", None)

    assert lists == 2


@pytest.mark.envtest
async def test_restored_from_a_backup(client: RestClient, apiserver: ApiServer, namespace: str) -> None:
    """After an etcd restore the cache holds what the server holds, though a watch from before it is silent for ever."""
    made = await client.create(MAPS, namespace, config_map("a", n="1"), codec=JSON)
    await asyncio.to_thread(apiserver.back_up)
    async with watching(client, namespace) as watched:
        watched.cache.observe(await client.patch(MAPS, Key(namespace, "a"), guarded(made, n="2"), codec=JSON))
        # More than the server writes by itself when it starts: one that has caught up looks like any other.
        lost = [config_map(f"lost-{number}", n="1") for number in range(100)]
        await asyncio.gather(*(client.create(MAPS, namespace, body, codec=JSON) for body in lost))
        await watched.sees("lost-99", "1")

        await asyncio.to_thread(apiserver.roll_back)
        new = await client.create(MAPS, namespace, config_map("new", n="1"), codec=JSON)

        await watched.sees("lost-99", None)
        await watched.sees("new", "1")
        held = {JSON.meta(obj).key.name: obj for obj in watched.cache.values()}
        assert held == {"a": made, "new": new}


async def test_answer_that_got_lost(client: RestClient, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A guarded write whose answer was lost is sent again; the conflict it meets is its own doing, and is seen so."""
    key = Key(namespace, "a")
    made = await client.create(MAPS, namespace, config_map("a"), codec=JSON)
    body = guarded(made, n="2")
    send = client._body
    lost = 0

    async def loses_the_first_answer(call: Any, limits: Any) -> bytes:
        nonlocal lost
        answer = await send(call, limits)
        if call.verb == "patch" and not lost:
            lost += 1
            raise client._unanswered(call, BrokenOff("reset by the test"))
        return answer

    monkeypatch.setattr(client, "_body", loses_the_first_answer)
    answer = await guarded_patch(
        client, MAPS, key, body, codec=JSON, landed=lambda found: contains(found, json.loads(body))
    )

    assert (answer["data"]["n"], lost) == ("2", 1)
    assert client.stats.requests["patch configmaps"] == 2
