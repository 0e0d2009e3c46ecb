"""The server on a port: where it listens, TLS and token, and how it ends."""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
from collections.abc import MutableMapping
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest

from kargo_py.local.apiserver import serve
from kargo_py.local.apiserver.serve import Address, ListenError, serving
from kargo_py.local.apiserver.wire import Request, Response
from tests.local.apiserver.stubs import Core

PATIENCE = 20


def strict(address: Address) -> ssl.SSLContext:
    """A client that looks at everything in the certificate."""
    assert address.authority is not None
    context = ssl.create_default_context(cadata=address.authority.decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_secure(host: str) -> None:
    """TLS with a CA of its own, and only the token lets in."""
    async with asyncio.timeout(PATIENCE), serving(Core(), host=host) as address:
        assert address.url == f"https://127.0.0.1:{address.port}"
        assert f"{address.token}" not in repr(address)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=strict(address))) as session:
            for token, code in ((address.token, 200), ("nope", 401)):
                headers = {"Authorization": f"Bearer {token}"}
                async with session.get(f"{address.url}/api", headers=headers) as answer:
                    assert answer.status == code
            async with session.get(f"{address.url}/api") as answer:
                assert answer.status == 403


async def test_given_token() -> None:
    """A token can be chosen; another server has another one where none is."""
    async with serving(Core(), token="mine") as one, serving(Core()) as other:
        assert one.token == "mine"
        assert b'"token": "mine"' in one.kubeconfig()
        assert other.token not in {None, "mine"}
        assert one.authority != other.authority


async def test_plain() -> None:
    """Plain HTTP asks for no credentials."""
    async with serving(Core(), secure=False) as address, aiohttp.ClientSession() as session:
        assert (address.url, address.token, address.authority) == (f"http://127.0.0.1:{address.port}", None, None)
        async with session.get(f"{address.url}/api") as answer:
            assert answer.status == 200


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("0.0.0.0", "can be reached from other machines.*--allow-remote"),
        ("::", "can be reached from other machines"),
        ("192.0.2.1", "can be reached from other machines"),
        ("cluster.example", "'cluster.example' is no IP address"),
        ("", "'' is no IP address"),
    ],
)
async def test_not_local(host: str, text: str) -> None:
    """It listens for other machines only when told, and asks no name server."""
    with pytest.raises(ListenError, match=text):
        async with serving(Core(), host=host, secure=False):
            pass


async def test_remote() -> None:
    """When told it does; clients here use the address of this machine."""
    async with serving(Core(), host="0.0.0.0", secure=False, allow_remote=True) as address:
        assert address.url == f"http://127.0.0.1:{address.port}"


async def test_port() -> None:
    """A port that is taken, or none, is told with the reason; a chosen one is used and can be had again at once."""
    async with serving(Core(), secure=False) as address:
        with pytest.raises(
            ListenError, match=f"cannot listen on 127.0.0.1 port {address.port}: Address already in use"
        ):
            async with serving(Core(), port=address.port):
                pass
    async with serving(Core(), secure=False, port=address.port) as again:
        _, writer = await asyncio.open_connection(again.host, again.port)
        writer.close()
    with pytest.raises(ListenError, match="port 65536: "):
        serve.listen("127.0.0.1", 65536)


async def test_no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are sent at once: an answer in two parts would else wait for the client's delayed acknowledgement."""
    accepted = []
    accept = serve.Listener.accept

    def accepting(listener: serve.Listener) -> tuple[socket.socket, Any]:
        accepted.append(accept(listener))
        return accepted[-1]

    monkeypatch.setattr(serve.Listener, "accept", accepting)
    async with (
        serving(Core(), secure=False) as address,
        aiohttp.ClientSession() as session,
        session.get(address.url),
    ):
        assert [made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for made, _ in accepted] == [1]


async def test_signals_stay() -> None:
    """A program that embeds the server keeps its own signal handlers."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    async with serving(Core(), secure=False):
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


async def test_end_with_open_watches() -> None:
    """Watches end in order when the server does, secure or not, read or not, and idle connections do not hold it up."""
    for secure in (True, False):
        core = Core()
        async with asyncio.timeout(PATIENCE), AsyncExitStack() as stack:
            server = await stack.enter_async_context(AsyncExitStack())
            address = await server.enter_async_context(serving(core, secure=secure))
            connector = aiohttp.TCPConnector(ssl=strict(address) if secure else False)
            session = await stack.enter_async_context(
                aiohttp.ClientSession(connector=connector, headers={"Authorization": f"Bearer {address.token}"})
            )
            async with session.get(f"{address.url}/idle") as answer:
                await answer.read()
            watch = await stack.enter_async_context(session.get(f"{address.url}/?watch=1"))
            _, unread = await asyncio.open_connection("127.0.0.1", address.port)
            stack.callback(unread.close)
            core.lines.put_nowait(b"{}\n")
            assert await watch.content.readline() == b"{}\n"
            begun = asyncio.get_running_loop().time()
            await server.aclose()
            assert asyncio.get_running_loop().time() - begun < 1.5
            assert await watch.content.read() == b""
            assert core.closed.is_set()


@pytest.mark.parametrize("quick", [True, False])
async def test_end_with_a_request(
    quick: bool, monkeypatch: pytest.MonkeyPatch, logged: list[MutableMapping[str, Any]]
) -> None:
    """A request that is being answered gets its answer, if that does not take too long."""
    monkeypatch.setattr(serve, "_GRACE_SECONDS", PATIENCE if quick else 0.02)
    begun, proceed = asyncio.Event(), asyncio.Event()

    async def answer(_: Request) -> Response:
        begun.set()
        await proceed.wait()
        return Response(200, b"{}")

    async with asyncio.timeout(PATIENCE), aiohttp.ClientSession() as session:
        async with AsyncExitStack() as server:
            address = await server.enter_async_context(serving(Core(answer), secure=False))
            asked = asyncio.ensure_future(session.get(address.url))
            await begun.wait()
            if quick:
                asyncio.get_running_loop().call_soon(proceed.set)
        if quick:
            assert (await asked).status == 200
        else:
            with pytest.raises(aiohttp.ClientError):
                await asked
    assert logged == []


async def test_nothing_is_left() -> None:
    """The port is closed, and no task goes on."""
    before = asyncio.all_tasks()
    async with serving(Core()) as address:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", address.port, ssl=strict(address), ssl_handshake_timeout=PATIENCE
        )
    assert asyncio.all_tasks() == before
    assert await reader.read() == b""
    writer.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", address.port)


@pytest.mark.parametrize(
    ("head", "trailer", "code"),
    [
        ("", "Authorization: Bearer {token}\r\n", b"403"),
        ("Authorization: Bearer {token}\r\n", "Authorization: Bearer nope\r\n", b"200"),
        ("Authorization: Bearer {token}\r\nAuthorization: Bearer nope\r\n", "", b"200"),
        ("Authorization: Bearer nope\r\nAuthorization: Bearer {token}\r\n", "", b"401"),
    ],
)
async def test_whose_request_it_is(head: str, trailer: str, code: bytes) -> None:
    """The first credentials of the head say it; what stands after the body is no header."""
    async with asyncio.timeout(PATIENCE), serving(Core()) as address:
        reader, writer = await asyncio.open_connection(address.host, address.port, ssl=strict(address))
        request = (
            f"POST /api HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n{head}\r\n"
            f"2\r\n{{}}\r\n0\r\n{trailer}\r\n"
        )
        writer.write(request.replace("{token}", str(address.token)).encode())
        assert (await reader.readline()).split()[1] == code
        writer.close()
