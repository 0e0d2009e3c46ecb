"""The HTTP client against a scripted peer: what each way of failing is taken to mean."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import Any

import pytest

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
    Unauthorized,
    Unreachable,
)
from kargo_py.kube.resources import Key
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
        (401, "Unauthorized", Unauthorized),
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
        for ask, what in ((read, 'get things.example.com "ns/a"'), (write, 'patch things.example.com/status "ns/a"')):
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
    """A broken connection is a lost read, and an unknown write."""
    async with serving() as peer, client_of(peer) as client:
        # aiohttp sends an idempotent request again by itself when a kept-alive connection breaks before the answer.
        peer.plays(*[peer.resets(after)] * 3)
        with pytest.raises(ConnectionLost):
            await read(client)
        peer.script.clear()
        peer.plays(*[peer.resets(after)] * 2)
        with pytest.raises(OutcomeUnknown):
            await write(client)


async def test_frozen_server() -> None:
    """A server that does not answer is given up after the time-out, for reads and writes."""
    async with serving() as peer, client_of(peer, request_timeout=0.05) as client:
        peer.plays(peer.freezes(), peer.freezes())
        with pytest.raises(ConnectionLost, match="no answer in time"):
            await read(client)
        with pytest.raises(OutcomeUnknown, match="no answer in time"):
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
    """After a 429 no request is sent to that API until the time the server named is over; then all go on."""
    loop = asyncio.get_running_loop()
    closed = asyncio.Event()
    close_gate = RestClient._close_gate

    def noted(client: RestClient, retry_after: float | None, waits: int) -> None:
        close_gate(client, retry_after, waits)
        closed.set()

    monkeypatch.setattr(RestClient, "_close_gate", noted)
    async with serving() as peer, client_of(peer) as client:
        peer.plays(peer.refuses(429, "TooManyRequests", "slow down", Retry_After="0.2"))
        peer.plays(*[peer.answers(thing("a", 1))] * 3)
        first = asyncio.create_task(write(client))
        await closed.wait()
        start = loop.time()
        others = [asyncio.create_task(read(client)), asyncio.create_task(write(client))]
        await peer.until(2)
        waited = loop.time() - start
        await asyncio.gather(first, *others)

    assert (len(peer.received), client.stats.throttled) == (4, 1)
    assert waited >= 0.2


async def test_throttled_for_too_long() -> None:
    """A server that only says 429 ends in TooManyRequests, which means: not done."""
    async with serving() as peer, client_of(peer, max_waits=2) as client:
        peer.plays(*[peer.refuses(429, "TooManyRequests", "slow down", Retry_After="0")] * 3)
        with pytest.raises(TooManyRequests) as caught:
            await write(client)

    assert (caught.value.retry_after, len(peer.received)) == (0.0, 3)


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


async def test_expired_credentials_are_renewed_once() -> None:
    """A 401 renews the credentials and tries once more, for a write too: it was certainly not done."""
    renewals = 0

    async def renew() -> None:
        nonlocal renewals
        renewals += 1

    async with serving() as peer, client_of(peer, renew=renew) as client:
        peer.plays(peer.refuses(401), peer.answers(thing("a", 1)), peer.refuses(401), peer.refuses(401))
        await write(client)
        with pytest.raises(Unauthorized):
            await write(client)

    assert (renewals, len(peer.received)) == (2, 4)


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
    ],
    ids=["reset", "frozen", "410", "403", "410 in the stream", "500 in the stream", "garbage"],
)
async def test_broken_watches(behave: Any, kind: type[KubeError]) -> None:
    """Each way in which a watch ends badly is told by its type; a frozen one is given up just after its time."""
    async with serving() as peer, client_of(peer, watch_margin=0.05) as client:
        peer.plays(behave(peer))
        with pytest.raises(kind):
            await watch(client, timeout_seconds=0)


async def test_an_abandoned_watch_closes_its_connection() -> None:
    """Leaving a watch early ends the request; the connection is not left to the garbage collector."""
    async with serving() as peer, client_of(peer) as client:
        peer.plays(peer.freezes(line("ADDED", thing("a", 6))), peer.answers(thing("a", 1)))
        async with aclosing(client.watch(THINGS, "ns", codec=JSON, resource_version="5", timeout_seconds=50)) as events:
            assert EventType.ADDED is (await anext(events)).type
        await read(client)

    assert dict(client.stats.requests) == {"watch things": 1, "get things": 1}


async def test_what_is_no_json() -> None:
    """An answer that is no JSON names the request."""
    async with serving() as peer, client_of(peer) as client:
        peer.plays(peer.text("<html>", 200))
        with pytest.raises(DecodeError, match=r'get things\.example\.com "ns/a"'):
            await read(client)
