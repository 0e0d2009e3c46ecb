"""HTTP in front of a core: bytes on a connection, through uvicorn's parser."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from kargo_py.local.apiserver import asgi, serve as serve_module
from kargo_py.local.apiserver.asgi import Application
from kargo_py.local.apiserver.failures import Failure, bad_request
from kargo_py.local.apiserver.serve import Address, serving
from kargo_py.local.apiserver.wire import Dropped, JsonObject, Request, Response, Stream
from tests.local.apiserver.stubs import Core

MIB = 1024 * 1024
PATIENCE = 20


@dataclass
class Got:
    """An answer as it came."""

    code: int
    headers: dict[str, list[str]]
    body: bytes

    @property
    def status(self) -> JsonObject:
        return msgspec.json.decode(self.body, type=dict)


class Connection:
    """Sends bytes as they are, and reads answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def ask(self, line: str, *, body: bytes = b"", headers: str = "") -> Got:
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        await self.send(f"{line} HTTP/1.1\r\nHost: x\r\n{length}{headers}\r\n".encode() + body)
        return await self.answer()

    async def head(self) -> tuple[int, dict[str, list[str]]]:
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers: dict[str, list[str]] = {}
        for line in lines[1:-2]:
            name, _, value = line.partition(": ")
            headers.setdefault(name.lower(), []).append(value)
        return int(lines[0].split()[1]), headers

    async def answer(self) -> Got:
        code, headers = await self.head()
        if "content-length" in headers:
            body = await self.reader.readexactly(int(headers["content-length"][0]))
        elif "transfer-encoding" in headers:
            body = b"".join([chunk async for chunk in self.chunks()])
        else:
            body = await self.reader.read()
        return Got(code, headers, body)

    async def chunks(self) -> AsyncIterator[bytes]:
        while size := int(await self.reader.readline(), 16):
            yield await self.reader.readexactly(size)
            await self.reader.readline()
        await self.reader.readline()

    async def ended(self) -> bytes:
        """What still comes before the server closes the connection."""
        return await self.reader.read()


@asynccontextmanager
async def connected(core: Core) -> AsyncIterator[Connection]:
    async with asyncio.timeout(PATIENCE), serving(core, secure=False) as address, connection(address) as made:
        yield made


@asynccontextmanager
async def connection(address: Address) -> AsyncIterator[Connection]:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        yield Connection(reader, writer)
    finally:
        writer.close()


async def test_request() -> None:
    """The core gets the path as it was sent, the query decoded, headers in small letters, and the body."""
    core = Core()
    async with connected(core) as client:
        got = await client.ask("POST /a%2Fb?x=a%20b+c&y&x=2", body=b"abc", headers="X-A: 1\r\nx-a: 2\r\n")

    assert got.code == 200
    assert got.status == {"method": "POST", "path": "/a%2Fb", "bytes": 3}
    (asked,) = core.asked
    assert (asked.path, asked.query, asked.body) == ("/a%2Fb", (("x", "a b c"), ("y", ""), ("x", "2")), b"abc")
    assert asked.headers["x-a"] == "1, 2"


async def test_broken_query() -> None:
    """As Go does: a pair that cannot be decoded counts as absent."""
    core = Core()
    async with connected(core) as client:
        await client.ask("GET /?a=%zz&b=1;c=2&&d=3")

    assert core.asked[0].query == (("d", "3"),)


async def test_headers() -> None:
    """What the real server sends with every answer, and what the answer itself asks for."""

    async def answer(_: Request) -> Response:
        return Response(201, b"{}", "application/x", {"X-More": "1"})

    async with connected(Core(answer)) as client:
        got = await client.ask("GET /")

    assert got.code == 201
    assert got.headers.pop("date")[0].endswith(" GMT")
    assert got.headers == {
        "cache-control": ["no-cache, private"],
        "content-type": ["application/x"],
        "content-length": ["2"],
        "x-more": ["1"],
    }


@pytest.mark.parametrize(
    ("warnings", "sent"),
    [
        (["one", "two", "one"], ['299 - "one"', '299 - "two"']),
        (['a "b" \\c'], ['299 - "a \\"b\\" \\\\c"']),
        (["ümlaut"], ['299 - "ümlaut"']),
        (["split\r\nX-Evil: 1", ""], None),
        (["x" * 4096], [f'299 - "{"x" * 4096}"']),
        (["x" * 4096, "y"], [f'299 - "{"x" * 256}"', '299 - "y"']),
        ([f"{number:0300}" for number in range(100)], [f'299 - "{f"{number:0300}"[:256]}"' for number in range(16)]),
    ],
    ids=["once each", "quoted", "unicode", "no control characters", "long", "shortened", "many"],
)
async def test_warnings(warnings: list[str], sent: list[str] | None) -> None:
    """Warnings are headers, bounded as the real server bounds them."""

    async def answer(_: Request) -> Response:
        return Response(200, b"{}", warnings=warnings)

    async with connected(Core(answer)) as client:
        got = await client.ask("GET /")

    assert got.headers.get("warning") == sent


async def test_head() -> None:
    """The length of a body that does not come; the next answer is in its place."""
    async with connected(Core()) as client:
        await client.send(b"HEAD /x HTTP/1.1\r\nHost: x\r\n\r\n")
        code, headers = await client.head()
        got = await client.ask("GET /x")
    assert (code, got.code) == (200, 200)
    assert int(headers["content-length"][0]) == len(got.body) + len("HEAD") - len("GET")


async def test_keep_alive() -> None:
    """Many requests go over one connection, also when they are sent before the answers are read."""
    async with connected(Core()) as client:
        assert [(await client.ask(f"GET /{n}")).status["path"] for n in range(3)] == ["/0", "/1", "/2"]
        await client.send(b"".join(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % n for n in range(3)))
        assert [(await client.answer()).status["path"] for _ in range(3)] == ["/0", "/1", "/2"]


async def test_body_of_a_read_is_not_looked_at() -> None:
    """As in the real server, and the next request finds its beginning."""
    async with connected(Core()) as client:
        assert (await client.ask("GET /", body=b"x" * (4 * MIB))).status["bytes"] == 0
        assert (await client.ask("GET /next")).status["path"] == "/next"


async def test_chunked_body() -> None:
    """A body without a length."""
    async with connected(Core()) as client:
        await client.send(b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await client.send(b"2\r\nde\r\n0\r\n\r\n")
        assert (await client.answer()).status["bytes"] == 5


@pytest.mark.parametrize(("size", "code"), [(3 * MIB, 200), (3 * MIB + 1, 413)])
@pytest.mark.parametrize("chunked", [False, True])
async def test_large_body(size: int, code: int, chunked: bool) -> None:
    """Three MiB are taken, a byte more is not; the client can read that even while it sends."""
    core = Core()
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {size}"
    async with connected(core) as client:
        await client.send(f"PATCH / HTTP/1.1\r\nHost: x\r\n{length}\r\n\r\n".encode())
        if chunked:
            await client.send(b"%x\r\n" % size + b"x" * size + b"\r\n0\r\n\r\n")
        else:
            await client.send(b"x" * size)
        got = await client.answer()

    assert got.code == code
    assert len(core.asked) == (code == 200)
    if code == 413:
        assert got.headers["connection"] == ["close"]
        assert got.status == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": "Request entity too large: limit is 3145728",
            "reason": "RequestEntityTooLarge",
            "code": 413,
        }


async def test_endless_body(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who announces a huge body gets the answer at once, and the connection ends though the body never comes."""
    monkeypatch.setattr(asgi, "LINGER_SECONDS", 0.02)
    async with connected(Core()) as client:
        got = await client.ask("POST /", headers="Content-Length: 99999999999\r\n")
        assert got.code == 413
        assert await client.ended() == b""


async def test_body_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not waited for for ever."""
    monkeypatch.setattr(asgi, "BODY_SECONDS", 0.02)
    monkeypatch.setattr(asgi, "LINGER_SECONDS", 0.02)
    async with connected(Core()) as client:
        await client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{")
        got = await client.answer()
        assert (got.code, got.status["reason"]) == (504, "Timeout")
        assert await client.ended() == b""


async def test_client_gone_in_its_body() -> None:
    """A half request reaches nobody."""
    core = Core()
    async with asyncio.timeout(PATIENCE), serving(core, secure=False) as address:
        async with connection(address) as client:
            await client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{")
        async with connection(address) as client:
            await client.ask("GET /")

    assert [asked.method for asked in core.asked] == ["GET"]


@pytest.mark.parametrize(
    ("sent", "code", "text"),
    [
        (b"GARBAGE\r\n\r\n", 400, b"400 Bad Request"),
        (b"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400, b"400 Bad Request"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, b"400 Bad Request: missing required Host header"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: abc\r\n\r\n", 400, b"400 Bad Request"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * (2 * MIB), 431, b"431 Request Header Fields Too Large"),
        (b"GET /" + b"a" * (2 * MIB), 431, b"431 Request Header Fields Too Large"),
    ],
    ids=["garbage", "path", "no host", "length", "header without end", "line without end"],
)
async def test_no_http(sent: bytes, code: int, text: bytes) -> None:
    """What is no HTTP gets Go's short answers, and the connection ends."""
    core = Core()
    async with connected(core) as client:
        await client.send(sent)
        got = await client.answer()
        assert (got.code, got.body, got.headers["connection"]) == (code, text, ["close"])
        assert core.asked == []


async def test_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection on which no request begins is closed after a while."""
    monkeypatch.setattr(serve_module, "_HEAD_SECONDS", 0.02)
    async with connected(Core()) as client:
        await client.send(b"GET / HT")
        assert await client.ended() == b""


async def test_upgrade() -> None:
    """Who asks for another protocol gets an answer in this one."""
    async with connected(Core()) as client:
        got = await client.ask("GET /exec", headers="Connection: Upgrade\r\nUpgrade: websocket\r\n")
        assert got.status["path"] == "/exec"


async def test_refusal() -> None:
    """A Failure that the core raises is an answer."""

    async def answer(_: Request) -> Response:
        raise bad_request("no")

    async with connected(Core(answer)) as client:
        got = await client.ask("GET /")

    assert (got.code, got.status["message"]) == (400, "no")


async def test_fault_of_ours(logged: list[MutableMapping[str, Any]]) -> None:
    """A fault in the core is told without a word of it, logged once, and the connection goes on."""
    fail = True

    async def answer(_: Request) -> Response:
        if fail:
            raise KeyError("private")
        return Response(200, b"{}")

    async with connected(Core(answer)) as client:
        got = await client.ask("GET /x")
        assert (got.code, got.status["reason"]) == (500, "InternalError")
        assert b"private" not in got.body
        fail = False
        assert (await client.ask("GET /")).code == 200

    assert [(event["event"], event["path"]) for event in logged] == [("request failed", "/x")]


async def test_watch() -> None:
    """Each line is sent when it comes, in a chunk of its own; the end of the stream is the end of the answer."""
    core = Core()
    async with connected(core) as client:
        await client.send(b"GET /?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n")
        code, headers = await client.head()
        assert (code, headers["transfer-encoding"]) == (200, ["chunked"])
        chunks = client.chunks()
        for line in (b'{"a":1}\n', b'{"b":2}\n'):
            core.lines.put_nowait(line)
            assert await anext(chunks) == line
        core.lines.put_nowait(None)
        assert [chunk async for chunk in chunks] == []
        assert (await client.ask("GET /next")).status["path"] == "/next"


async def test_watch_of_a_client_that_goes_away() -> None:
    """Its stream is closed at once, though nothing is to be sent."""
    core = Core()
    async with asyncio.timeout(PATIENCE), serving(core, secure=False) as address:
        async with connection(address) as client:
            await client.send(b"GET /?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n")
            await client.head()
            await core.begun.wait()
            assert not core.closed.is_set()
        await core.closed.wait()


async def test_watch_that_is_not_read() -> None:
    """Who does not read is not read for: what waits in the process is bounded by the core, not by the client."""
    core = Core()
    line = b"x" * MIB
    async with connected(core) as client:
        await client.send(b"GET /?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n")
        await client.head()
        for _ in range(64):
            core.lines.put_nowait(line)
        size = 64
        while core.lines.qsize() < size:  # as long as lines are still taken between two looks
            size = core.lines.qsize()
            for _ in range(100):
                await asyncio.sleep(0)
        assert core.lines.qsize() > 32


async def test_watch_that_fails(logged: list[MutableMapping[str, Any]]) -> None:
    """A fault in the middle cuts the connection: an orderly end would say that all was well."""

    async def broken() -> Any:
        yield b"{}\n"
        raise KeyError("private")

    async def answer(_: Request) -> Stream:
        return Stream(200, broken())

    async with connected(Core(answer)) as client:
        await client.send(b"GET /?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n")
        await client.head()
        assert await client.ended() == b"3\r\n{}\n\r\n"

    assert [event["event"] for event in logged] == ["watch failed"]


@pytest.mark.parametrize("begun", [False, True])
async def test_dropped(begun: bool, logged: list[MutableMapping[str, Any]]) -> None:
    """A played break ends the connection without an answer, or in the middle of it; it is nobody's fault."""

    async def lines() -> Any:
        yield b'{"half'
        raise Dropped(carried_out=True)

    async def answer(_: Request) -> Stream:
        if begun:
            return Stream(200, lines())
        raise Dropped(carried_out=False)

    async with connected(Core(answer)) as client:
        await client.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        got = await client.ended()

    assert got.partition(b"\r\n\r\n")[2] == (b'6\r\n{"half\r\n' if begun else b"")
    assert got.startswith(b"HTTP/1.1 200 OK\r\n") is begun
    assert logged == []


async def test_another_asgi_server() -> None:
    """Where a server cannot cut connections, a break is an exception; no websocket is served."""

    async def answer(_: Request) -> Response:
        raise Dropped(carried_out=False)

    async def nothing(*_: Any) -> Any:
        raise AssertionError("not to be called")

    application = Application(Core(answer))
    scope = {"type": "http", "method": "GET", "raw_path": b"/", "query_string": b"", "headers": [(b"host", b"x")]}
    with pytest.raises(ConnectionAbortedError):
        await application(scope, nothing, nothing)
    with pytest.raises(RuntimeError, match="websocket is not served"):
        await application({"type": "websocket"}, nothing, nothing)


class _Refusing:
    def refusal(self, request: Request) -> tuple[Failure, list[str]] | None:
        return (Failure(401, "Unauthorized", "Unauthorized"), ["why"]) if request.path == "/no" else None

    def user(self, request: Request) -> str:
        return ""


async def test_guard() -> None:
    """The guard decides before the body is read, and what the core gets has no credentials."""
    core = Core()
    application = Application(core, guard=_Refusing())
    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"abc", "more_body": False}

    async def unread() -> MutableMapping[str, Any]:
        raise AssertionError("the body was asked for")

    headers = [(b"host", b"x"), (b"authorization", b"Bearer secret"), (b"content-length", b"3")]
    scope = {"type": "http", "method": "POST", "raw_path": b"/no", "query_string": b"", "headers": headers}
    await application(scope, unread, send)
    assert (sent[0]["status"], core.asked) == (401, [])
    assert (b"warning", b'299 - "why"') in sent[0]["headers"]
    await application({**scope, "raw_path": b"/"}, receive, send)
    assert core.asked[0].body == b"abc"
    assert "authorization" not in core.asked[0].headers
