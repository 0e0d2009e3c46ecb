"""The HTTP client against a scripted peer: what each way of failing is taken to mean."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from kargo_py.kube.backoff import MOST_ASKED
from kargo_py.kube.client import EventType, PatchType
from kargo_py.kube.codec import JSON
from kargo_py.kube.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    ConnectionLost,
    DecodeError,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    NotFound,
    OutcomeUnknown,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from kargo_py.kube.resources import Key, Resource
from kargo_py.kube.rest import RestClient
from tests.kube.fakes import THINGS, JsonObject, thing
from tests.kube.peer import Peer, client_of, line, serving

KEY = Key("ns", "a")
BODY = b'{"spec":{}}'


async def read(client: RestClient) -> JsonObject:
    return await client.get(THINGS, KEY, codec=JSON)


async def write(client: RestClient) -> JsonObject:
    return await client.patch(THINGS, KEY, BODY, codec=JSON, subresource="status")


async def watch(client: RestClient, **options: Any) -> list[tuple[EventType, str]]:
    settings: dict[str, Any] = {"resource_version": "5", "timeout_seconds": 50, **options}
    async with aclosing(client.watch(THINGS, "ns", codec=JSON, **settings)) as events:
        return [(event.type, event.resource_version) async for event in events]


async def test_requests_as_the_server_expects_them() -> None:
    """Paths, parameters, content types and credentials of every verb; nothing is left to a library's defaults."""
    async with serving() as peer, client_of(peer) as client:
        peer.plays(
            *[peer.answers(thing("a", 1))] * 2, peer.answers({"metadata": {"resourceVersion": "9"}, "items": []})
        )
        peer.plays(*[peer.answers(thing("a", 1))] * 5)
        await read(client)
        await write(client)
        await client.list(THINGS, "ns", codec=JSON, limit=5, continue_token="t", label_selector="x=y")
        await client.create(THINGS, "ns", BODY, codec=JSON)
        await client.replace(THINGS, KEY, BODY, codec=JSON)
        await client.patch(THINGS, KEY, b"[]", codec=JSON, patch_type=PatchType.JSON)
        await client.patch(THINGS, KEY, BODY, codec=JSON, patch_type=PatchType.APPLY, field_manager="me")
        await client.delete(THINGS, KEY, uid="u", resource_version="3")

    base = "/apis/example.com/v1/namespaces/ns/things"
    assert [
        ("GET", f"{base}/a", {}, None),
        ("PATCH", f"{base}/a/status", {}, "application/merge-patch+json"),
        ("GET", base, {"limit": "5", "continue": "t", "labelSelector": "x=y"}, None),
        ("POST", base, {}, "application/json"),
        ("PUT", f"{base}/a", {}, "application/json"),
        ("PATCH", f"{base}/a", {}, "application/json-patch+json"),
        ("PATCH", f"{base}/a", {"fieldManager": "me", "force": "true"}, "application/apply-patch+yaml"),
        ("DELETE", f"{base}/a", {}, "application/json"),
    ] == [(r.method, r.path, r.query, r.headers.get("Content-Type")) for r in peer.received]
    assert {"Bearer secret"} == {r.headers["Authorization"] for r in peer.received}
    assert peer.received[1].body == BODY
    assert json.loads(peer.received[-1].body)["preconditions"] == {"uid": "u", "resourceVersion": "3"}


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", BadRequest),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (405, "MethodNotAllowed", ApiError),
        (409, "Conflict", Conflict),
        (409, "AlreadyExists", AlreadyExists),
        (410, "Expired", Gone),
        (422, "Invalid", Invalid),
    ],
)
async def test_refusals(code: int, reason: str, kind: type[ApiError]) -> None:
    """A refusal is the same error for reads and writes, with the server's message and what was asked."""
    async with serving() as peer, client_of(peer) as client:
        peer.plays(*[peer.refuses(code, reason, "because")] * 2)
        for ask, what in ((read, 'get things "ns/a"'), (write, 'patch things/status "ns/a"')):
            with pytest.raises(kind) as caught:
                await ask(client)
            assert (code, "because", what) == (caught.value.code, caught.value.message, caught.value.request)


@pytest.mark.parametrize("code", [500, 502, 503, 504])
async def test_server_errors(code: int) -> None:
    """A 5xx to a read is an error; to a write it means that nobody knows."""
    async with serving() as peer, client_of(peer) as client:
        peer.plays(*[peer.text("gateway says no", code)] * 2)
        with pytest.raises(ServerError, match="gateway says no"):
            await read(client)
        with pytest.raises(OutcomeUnknown, match=f"answered {code}"):
            await write(client)


@pytest.mark.parametrize("after", [b"", b'{"half'], ids=["before the answer", "in mid-answer"])
async def test_reset(after: bytes) -> None:
    """A broken connection is a lost read, and an unknown write; what was seen is the cause."""
    async with serving() as peer, client_of(peer) as client:
        # aiohttp sends a read again by itself when a connection breaks before the answer.
        peer.plays(*[peer.resets(after)] * 2)
        with pytest.raises(ConnectionLost) as lost:
            await read(client)
        peer.script.clear()
        peer.plays(peer.resets(after))
        with pytest.raises(OutcomeUnknown) as unknown:
            await write(client)

    assert isinstance(lost.value.__cause__, aiohttp.ClientError)
    assert isinstance(unknown.value.__cause__, aiohttp.ClientError)


async def create(client: RestClient) -> JsonObject:
    return await client.create(THINGS, "ns", BODY, codec=JSON)


async def replace(client: RestClient) -> JsonObject:
    return await client.replace(THINGS, KEY, BODY, codec=JSON)


async def delete(client: RestClient) -> None:
    await client.delete(THINGS, KEY)


@pytest.mark.parametrize("ask", [create, replace, write, delete])
async def test_a_write_is_sent_once(ask: Callable[[RestClient], Awaitable[object]]) -> None:
    """No layer below sends a write again by itself: whether it landed would be lost (a PUT would see a conflict)."""
    async with serving() as peer, client_of(peer) as client:
        peer.plays(peer.answers(thing("a", 1)), peer.resets(), peer.answers(thing("a", 1)))
        await read(client)
        with pytest.raises(OutcomeUnknown):
            await ask(client)

    assert len(peer.received) == 2


async def test_a_strange_answer_to_a_write() -> None:
    """A 200 that is no Kubernetes answer leaves a write unknown: who knows who sent it."""
    async with serving() as peer, client_of(peer) as client:
        peer.plays(peer.text("<html>welcome</html>", 200), peer.text("", 408))
        with pytest.raises(OutcomeUnknown, match="no JSON"):
            await write(client)
        with pytest.raises(OutcomeUnknown, match="answered 408"):
            await write(client)


async def test_redirects_are_not_followed() -> None:
    """A server that points elsewhere gets neither our credentials nor our writes delivered there."""
    async with serving() as peer, client_of(peer) as client:
        peer.plays(peer.answers({}, 307, Location=f"{peer.url}/login"))
        with pytest.raises(ApiError) as caught:
            await write(client)

    assert (caught.value.code, len(peer.received)) == (307, 1)


async def test_a_cancelled_write() -> None:
    """Cancelling a write in flight is just that; the place it took among the writes is free again."""
    async with serving() as peer, client_of(peer, max_writes_in_flight=1) as client:
        peer.plays(peer.freezes(), peer.answers(thing("a", 1)))
        task = asyncio.create_task(write(client))
        await peer.until(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await write(client)


async def test_frozen_server() -> None:
    """A server that does not answer is given up after the time-out, for reads and writes."""
    async with serving() as peer, client_of(peer, read_timeout=0.05, write_timeout=0.05) as client:
        peer.plays(peer.freezes(), peer.freezes())
        with pytest.raises(ConnectionLost, match="gave no answer in time"):
            await read(client)
        with pytest.raises(OutcomeUnknown, match="gave no answer in time"):
            await write(client)


async def test_refused_connection() -> None:
    """A refused connection is the one transport error after which a write is certainly not done."""
    async with serving() as peer, client_of(peer) as client:
        url, peer.url = peer.url, ""
    gone = Peer(url=url)
    async with client_of(gone) as client:
        for ask in (read, write):
            with pytest.raises(Unreachable, match=f"cannot reach the API server {url}"):
                await ask(client)


async def test_throttled(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a 429 no request is sent to that API for a while, half a second if the server does not say; then all go."""
    loop = asyncio.get_running_loop()
    async with serving() as peer, client_of(peer) as client:
        peer.plays(peer.refuses(429, "TooManyRequests", "slow down"))
        peer.plays(*[peer.answers(thing("a", 1))] * 3)
        shut = asyncio.Event()
        close = client._gates.close

        def close_and_tell(seconds: float, resource: Resource, error: TooManyRequests) -> None:
            close(seconds, resource, error)
            shut.set()

        monkeypatch.setattr(client._gates, "close", close_and_tell)
        first = asyncio.create_task(write(client))
        await shut.wait()
        start = loop.time()
        others = [asyncio.create_task(read(client)), asyncio.create_task(write(client))]
        await peer.until(2)
        waited = loop.time() - start
        await asyncio.gather(first, *others)

    assert (len(peer.received), client.stats.throttled, client.stats.retried) == (4, 1, 1)
    assert sorted((code, count) for (_, code), count in client.stats.answers.items()) == [
        ("200", 1),
        ("200", 2),
        ("429", 1),
    ]
    assert sum(seconds.count for seconds in client.stats.seconds.values()) == 4
    assert waited >= 0.45


@pytest.mark.parametrize(
    ("settings", "retry_after", "tries"),
    [({"throttled_tries": 2}, "0", 2), ({"throttled_time": 5}, "6", 1)],
    ids=["too often", "too long"],
)
async def test_throttled_for_too_long(settings: dict[str, Any], retry_after: str, tries: int) -> None:
    """A server that only says 429, or asks for more time than we have, ends in TooManyRequests: not done."""
    async with serving() as peer, client_of(peer, **settings) as client:
        peer.plays(*[peer.refuses(429, "TooManyRequests", "slow down", Retry_After=retry_after)] * 3)
        with pytest.raises(TooManyRequests, match="slow down") as caught:
            await write(client)

    assert (caught.value.retry_after, len(peer.received)) == (float(retry_after), tries)


async def test_throttled_for_ever() -> None:
    """An absurd time that the server asks for is cut down to one after which it can be asked again."""
    async with serving() as peer, client_of(peer) as client:
        peer.plays(peer.refuses(429, "TooManyRequests", "slow down", Retry_After="9" * 400))
        with pytest.raises(TooManyRequests) as caught:
            await write(client)

    assert caught.value.retry_after == MOST_ASKED


async def test_a_gate_that_stays_shut() -> None:
    """While the server wants to be left alone for longer than a request may wait, requests fail without being sent."""
    async with serving() as peer, client_of(peer, throttled_time=5) as client:
        peer.plays(peer.refuses(429, Retry_After="60"))
        for ask in (write, read):
            with pytest.raises(TooManyRequests) as caught:
                await ask(client)

    assert len(peer.received) == 1
    assert caught.value.request == 'get things "ns/a"'
    assert caught.value.retry_after == pytest.approx(60, abs=5)


async def test_a_kind_that_cannot_be_listed_yet() -> None:
    """After a restart the server fills its watch caches; one that takes long does not hold up what needs none."""
    async with serving() as peer, client_of(peer, throttled_time=5) as client:
        peer.plays(peer.refuses(429, "TooManyRequests", "storage is (re)initializing", Retry_After="30"))
        peer.plays(*[peer.answers(thing("a", 1))] * 2)
        for _ in range(2):
            with pytest.raises(TooManyRequests):
                await watch(client)
        await read(client)
        await write(client)

    assert [r.method for r in peer.received] == ["GET", "GET", "PATCH"]


async def test_writes_in_flight_are_capped() -> None:
    """No more writes than allowed are under way at once; reads are not held up by them."""
    async with serving() as peer, client_of(peer, max_writes_in_flight=2) as client:
        peer.plays(peer.freezes(), peer.freezes())
        writes = [asyncio.create_task(write(client)) for _ in range(5)]
        await peer.until(2)
        peer.plays(peer.answers(thing("a", 1)))
        await read(client)
        assert [r.method for r in peer.received] == ["PATCH", "PATCH", "GET"]
        for task in writes:
            task.cancel()
        await asyncio.gather(*writes, return_exceptions=True)


async def test_watch_lines() -> None:
    """Lines are put together from chunks however they are cut, also lines of several MiB."""
    big = line("ADDED", thing("a", 6, junk="x" * 3_000_000))
    small = line("MODIFIED", thing("a", 7)) + line("BOOKMARK", {"metadata": {"resourceVersion": "8"}})
    async with serving() as peer, client_of(peer) as client:
        peer.plays(peer.streams(big[:100_000], big[100_000:] + small[:20], small[20:], b"\n"))
        events = await watch(client)

    assert events == [(EventType.ADDED, "6"), (EventType.MODIFIED, "7"), (EventType.BOOKMARK, "8")]
    assert peer.received[0].query == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "5",
        "timeoutSeconds": "50",
    }


@pytest.mark.parametrize(
    ("behave", "kind"),
    [
        (lambda p: p.resets(line("ADDED", thing("a", 6))), ConnectionLost),
        (lambda p: p.freezes(line("ADDED", thing("a", 6))), ConnectionLost),
        (lambda p: p.refuses(410, "Expired"), Gone),
        (lambda p: p.refuses(403, "Forbidden"), Forbidden),
        (lambda p: p.streams(line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})), Gone),
        (lambda p: p.streams(line("ERROR", {"kind": "Status", "code": 500, "message": "etcd"})), ServerError),
        (lambda p: p.streams(b"{not json}\n"), DecodeError),
        (lambda p: p.streams(line("ADDED", thing("a", 6)), line("ADDED", thing("a", 7))[:-1]), ConnectionLost),
        (lambda p: p.freezes(), ConnectionLost),
    ],
    ids=["reset", "frozen", "410", "403", "410 in the stream", "500 in the stream", "garbage", "ends within an event",
         "frozen before the answer"],
)  # fmt: skip
async def test_broken_watches(behave: Any, kind: type[KubeError]) -> None:
    """Each way in which a watch ends badly is told by its type; a frozen one is given up just after its time."""
    async with serving() as peer, client_of(peer, watch_margin=0.05) as client:
        peer.plays(behave(peer))
        with pytest.raises(kind) as caught:
            await watch(client, timeout_seconds=0)

    assert caught.value.request == 'watch things in "ns"'


async def test_an_abandoned_watch_closes_its_connection() -> None:
    """Leaving a watch early ends the request; the connection is not left to the garbage collector."""
    closed = asyncio.Event()

    async def watched(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(line("ADDED", thing("a", 6)))
        try:
            await peer.hold.wait()
        finally:
            closed.set()
        return response

    async with serving() as peer, client_of(peer) as client:
        peer.plays(watched)
        async with aclosing(client.watch(THINGS, "ns", codec=JSON, resource_version="5", timeout_seconds=50)) as events:
            assert EventType.ADDED is (await anext(events)).type
        await closed.wait()

    assert dict(client.stats.requests) == {"watch things": 1}


async def test_what_is_no_json() -> None:
    """An answer that is no JSON names the request."""
    async with serving() as peer, client_of(peer) as client:
        peer.plays(peer.text("<html>", 200))
        with pytest.raises(DecodeError, match=r'get things "ns/a"'):
            await read(client)
