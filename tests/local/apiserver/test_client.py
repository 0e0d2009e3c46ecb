"""The client without a socket: the same verbs and errors as over one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

import pytest

from kargo_py.kube.codec import JSON
from kargo_py.kube.errors import Conflict, ConnectionLost, KubeError, OutcomeUnknown
from kargo_py.kube.resources import Key, Resource
from kargo_py.kube.rest import Settings
from kargo_py.local.apiserver.client import client_of
from kargo_py.local.apiserver.failures import Failure, conflict
from kargo_py.local.apiserver.wire import Dropped, Request, Response, Stream, encode

MAPS = Resource("", "v1", "configmaps", "ConfigMap")
KEY = Key("ns", "a")
THING = {"metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7"}}


class Server:
    """Answers as it is told, and keeps what it was asked."""

    def __init__(self, *answers: Callable[[], Response | Stream]) -> None:
        self.answers = list(answers)
        self.requests: list[Request] = []

    async def handle(self, request: Request) -> Response | Stream:
        self.requests.append(request)
        return self.answers.pop(0)()


def fails(failure: Failure | Dropped) -> Callable[[], Response]:
    def answer() -> Response:
        if isinstance(failure, Failure):
            return failure.response()
        raise failure

    return answer


async def test_a_request() -> None:
    """The server gets method, path, query, headers and body, and its answer is parsed."""
    server = Server(lambda: Response(200, encode(THING)))
    answer = await client_of(server, user_agent="me").patch(MAPS, KEY, b"{}", codec=JSON, field_manager="a b")

    assert answer == THING
    [request] = server.requests
    assert (request.method, request.path) == ("PATCH", "/api/v1/namespaces/ns/configmaps/a")
    assert (request.parameter("fieldManager"), request.body) == ("a b", b"{}")
    assert (request.headers["user-agent"], request.headers["content-type"]) == ("me", "application/merge-patch+json")


async def test_a_status() -> None:
    """What the server refuses is the typed error."""
    server = Server(fails(conflict("", "configmaps", "a", "it was changed")))
    with pytest.raises(Conflict, match='configmaps "a": it was changed'):
        await client_of(server).patch(MAPS, KEY, b"{}", codec=JSON)


@pytest.mark.looptime
async def test_retry_after() -> None:
    """429 is waited out for as long as its header says."""
    busy = Failure(429, "TooManyRequests", "later", headers={"Retry-After": "7"})
    server = Server(fails(busy), lambda: Response(200, encode(THING)))
    began = asyncio.get_running_loop().time()
    await client_of(server).get(MAPS, KEY, codec=JSON)

    assert 7 <= asyncio.get_running_loop().time() - began <= 8.1


@pytest.mark.parametrize(("write", "error"), [(True, OutcomeUnknown), (False, ConnectionLost)])
async def test_a_broken_connection(write: bool, error: type[KubeError]) -> None:
    """Whether a write was carried out is not known, whatever the server knows."""
    client = client_of(Server(fails(Dropped(carried_out=False))))
    with pytest.raises(error):
        await (client.patch(MAPS, KEY, b"{}", codec=JSON) if write else client.get(MAPS, KEY, codec=JSON))


@pytest.mark.looptime
async def test_no_answer() -> None:
    """A server that hangs is given up at the limit."""

    class Hangs:
        async def handle(self, request: Request) -> Response:
            await asyncio.Event().wait()
            raise AssertionError

    with pytest.raises(ConnectionLost, match="gave no answer in time"):
        await client_of(Hangs(), settings=Settings(read_timeout=3)).get(MAPS, KEY, codec=JSON)


@pytest.mark.looptime
async def test_a_watch_that_falls_silent() -> None:
    """Events come one by one; after too long a silence the watch is lost, and the server's stream is closed."""
    closed = []

    async def lines() -> AsyncGenerator[bytes]:
        try:
            yield encode({"type": "ADDED", "object": THING}) + b"\n"
            await asyncio.Event().wait()
        finally:
            closed.append(True)

    watch = client_of(Server(lambda: Stream(200, lines()))).watch(
        MAPS, codec=JSON, resource_version="1", timeout_seconds=5
    )
    assert (await anext(watch)).object == THING
    with pytest.raises(ConnectionLost, match="gave no answer in time"):
        await anext(watch)
    assert closed == [True]


async def test_leaving_a_watch() -> None:
    """Who leaves a watch closes the server's stream."""
    closed = []

    async def lines() -> AsyncGenerator[bytes]:
        try:
            while True:
                yield encode({"type": "ADDED", "object": THING}) + b"\n"
        finally:
            closed.append(True)

    watch = client_of(Server(lambda: Stream(200, lines()))).watch(
        MAPS, codec=JSON, resource_version="1", timeout_seconds=5
    )
    await anext(watch)
    await watch.aclose()
    assert closed == [True]
