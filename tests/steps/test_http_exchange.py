"""Requests of the step http over sockets: what is sent where, what is read, and what ends it."""

from __future__ import annotations

import asyncio
import gzip
import ipaddress
import socket
import ssl
import threading
import zlib
from collections.abc import Sequence
from typing import Any

import pytest
import trustme

from kargo_py.steps.http_addresses import Address, AddressRules
from kargo_py.steps.http_asking import Ask, NoAnswer, NotSent, Refused, Tls, Untrusted, Unusable
from kargo_py.steps.http_config import Method
from kargo_py.steps.http_exchange import MOST_BODY, Exchange
from kargo_py.steps.http_url import Url, read_proxy, read_url
from tests.steps.http_servers import Received, Script, Server, answers, serving, write

HOST = "api.example.com"
LOCAL = ["127.0.0.1"]


class Names:
    """A name server: what each name stands for, one answer after the other; the last one stays."""

    def __init__(self, **answers: Sequence[Sequence[str]]) -> None:
        self.answers: dict[str, list[Sequence[str]]] = {
            HOST: [LOCAL],
            **{name.replace("_", "."): list(each) for name, each in answers.items()},
        }
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[Address]:
        self.asked.append(host)
        answers = self.answers.get(host)
        if answers is None:
            try:
                return [ipaddress.ip_address(host)]
            except ValueError:
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from None
        return [ipaddress.ip_address(each) for each in (answers.pop(0) if len(answers) > 1 else answers[0])]


def exchange(names: Names | None = None, *denied: str) -> Exchange:
    rules = AddressRules([ipaddress.ip_network(each) for each in denied])
    return Exchange(rules, resolve=names or Names())


def at(server: Server, target: str = "/", host: str = HOST, scheme: str = "http") -> Url:
    return read_url(f"{scheme}://{host}:{server.port}{target}")


def ask(url: Url, method: Method = Method.GET, **fields: Any) -> Ask:
    return Ask(method, url, **{"timeout": 20.0, **fields})


class TestRequest:
    async def test_what_is_sent(self) -> None:
        """Method, target, headers and body arrive as given, the host by its name, and nothing else is added."""
        headers = [("X-One", " ü "), ("x-one", "two"), ("Content-Length", "99"), ("Transfer-Encoding", "chunked")]
        async with serving(answers(201, b"made", X_Thing="here")) as server:
            answer = await exchange().send(
                ask(at(server, "/a/%2e%2e/b?x=%20&y"), Method.POST, headers=headers, body=b"{}")
            )

        assert (answer.status, answer.body, answer.header("x-thing")) == (201, b"made", "here")
        (request,) = server.received
        assert request.line == "POST /a/%2e%2e/b?x=%20&y HTTP/1.1"
        assert request.body == b"{}"
        assert request.headers == {
            "host": f"{HOST}:{server.port}",
            "content-length": "2",
            "x-one": "two",
            "user-agent": "kargo-py",
            "accept-encoding": "gzip",
            "connection": "close",
        }

    async def test_own_words(self) -> None:
        """Headers that we would add can be given, the host too."""
        headers = [("Host", "other.example.com"), ("User-Agent", "me"), ("Accept-Encoding", "identity")]
        async with serving(answers(200)) as server:
            await exchange().send(ask(at(server), headers=headers))

        (request,) = server.received
        assert [request.headers[name.lower()] for name, _ in headers] == [value for _, value in headers]

    async def test_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A proxy of the environment is none of ours."""
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
        monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
        async with serving(answers(200)) as server:
            assert (await exchange().send(ask(at(server)))).status == 200

    async def test_text_in_headers(self) -> None:
        """It is mostly UTF-8; an address in it leads where it says."""

        async def script(request: Received, writer: asyncio.StreamWriter) -> None:
            fields = b"X-New: \xc3\xa9\r\nX-Old: \xe9" if "men" in request.line else "Location: /menü?ü".encode()
            writer.write(b"HTTP/1.1 302 Found\r\n" + fields + b"\r\nContent-Length: 0\r\n\r\n")

        async with serving(script) as server:
            answer = await exchange().send(ask(at(server)))
        assert [request.line for request in server.received][1] == "GET /men%C3%BC?%C3%BC HTTP/1.1"
        assert (answer.header("x-new"), answer.header("x-old")) == ("é", "é")

    async def test_head(self) -> None:
        """An answer without a body may say how long it would be."""

        async def script(_request: Received, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\nContent-Encoding: gzip\r\n\r\n")

        async with serving(script) as server:
            assert (await exchange().send(ask(at(server), Method.HEAD))).body == b""


class TestAddresses:
    @pytest.mark.parametrize(
        "host",
        ["169.254.169.254", "2852039166", "0xa9fea9fe", "[::ffff:a9fe:a9fe]", "[fe80::1]", "metadata.google.internal"],
    )
    async def test_spellings(self, host: str) -> None:
        """Nothing is sent to what is refused, and nobody asked for its address."""
        names = Names()
        with pytest.raises(Refused, match=r"link-local|metadata"):
            await exchange(names).send(ask(read_url(f"http://{host}/")))

        assert names.asked == []

    @pytest.mark.parametrize(
        "found",
        [
            ["169.254.169.254"],
            ["127.0.0.1", "169.254.1.1"],
            ["fe80::1%lo"],
            ["::ffff:169.254.1.1"],
            ["64:ff9b::a9fe:a9fe"],
        ],
    )
    async def test_names_of_them(self, found: list[str]) -> None:
        """A name that stands for one of them is none that is called, whatever else it stands for."""
        async with serving(answers(200)) as server:
            with pytest.raises(Refused, match="link-local"):
                await exchange(Names(evil_example=[found])).send(ask(at(server, host="evil.example")))

        assert server.received == []

    async def test_second_answer_of_a_name_server(self) -> None:
        """The connection is made to the address that was checked: the name is looked up once."""
        names = Names(evil_example=[LOCAL, ["169.254.169.254"]])
        async with serving(answers(200)) as server:
            one = exchange(names)
            assert (await one.send(ask(at(server, host="evil.example")))).status == 200
            assert names.asked == ["evil.example"]
            with pytest.raises(Refused, match="link-local"):
                await one.send(ask(at(server, host="evil.example")))

    async def test_excluded(self) -> None:
        """So is what the controllers exclude."""
        async with serving(answers(200)) as server:
            with pytest.raises(Refused, match=r"127\.0\.0\.1 is in 127\.0\.0\.0/8, which --http-deny excludes"):
                await exchange(None, "127.0.0.0/8").send(ask(at(server)))

    async def test_several(self) -> None:
        """If the first address does not answer, the next one is tried."""
        async with serving(answers(200)) as server:
            names = Names(both_example=[["127.0.0.2", "::1", "127.0.0.1"]])
            assert (await exchange(names).send(ask(at(server, host="both.example")))).status == 200

    @pytest.mark.parametrize("found", [None, []])
    async def test_no_address(self, found: list[str] | None) -> None:
        """A name that stands for nothing may stand for something later."""
        names = Names() if found is None else Names(none_example=[found])
        with pytest.raises(NotSent, match=r"no connection to http://none\.example: (Name or|its name stands)"):
            await exchange(names).send(ask(read_url("http://none.example/secret?token=s3cret")))

    async def test_of_the_system(self) -> None:
        """Without a name server of ours the system is asked."""
        async with serving(answers(200)) as server:
            assert (await Exchange(AddressRules()).send(ask(at(server, host="localhost")))).status == 200


class TestRedirects:
    @pytest.mark.parametrize(
        "location",
        [
            *(
                "http://169.254.169.254/latest",
                "http://0xa9fea9fe/",
                "//metadata.google.internal/",
                "http://evil.example/",
            ),
            *("file:///etc/passwd", "gopher://a/", "http://u:p@api.example.com/", "https://api.example.com:0/"),
        ],
    )
    async def test_to_what_is_refused(self, location: str) -> None:
        """Each hop is judged as the first one."""
        names = Names(evil_example=[["169.254.169.254"]])
        async with serving(answers(302, Location=location)) as server:
            with pytest.raises(Refused):
                await exchange(names).send(ask(at(server)))

    async def test_endless(self) -> None:
        """Ten are followed."""
        async with serving(answers(302, Location="/again")) as server:
            with pytest.raises(Unusable, match="the end of 10 redirects"):
                await exchange().send(ask(at(server)))

        assert len(server.received) == 11

    async def test_not_followed(self) -> None:
        """With followRedirects: false, or without a place to go, it is the answer."""
        async with serving(answers(302, b"there", Location="/b")) as server:
            answer = await exchange().send(ask(at(server), follow=False))
        assert (answer.status, answer.body, answer.header("location")) == (302, b"there", "/b")
        async with serving(answers(302, b"nowhere")) as server:
            assert (await exchange().send(ask(at(server)))).body == b"nowhere"

    @pytest.mark.parametrize(
        ("status", "method", "then"),
        [
            *(
                (301, "POST", "GET"),
                (302, "PUT", "GET"),
                (303, "DELETE", "GET"),
                (301, "HEAD", "HEAD"),
                (302, "GET", "GET"),
            ),
            *((307, "POST", "POST"), (308, "PUT", "PUT"), (307, "GET", "GET")),
        ],
    )
    async def test_methods(self, status: int, method: str, then: str) -> None:
        """As browsers do it; the body goes along with the method."""
        headers = [("Content-Type", "text/plain"), ("Idempotency-Key", "k"), ("Authorization", "a")]
        async with serving(moves(status, "/b")) as server:
            await exchange().send(ask(at(server, "/a"), Method(method), headers=headers, body=b"x"))

        first, second = server.received
        kept = {name for name in ("content-type", "idempotency-key", "authorization") if name in second.headers}
        assert first.line == f"{method} /a HTTP/1.1"
        assert second.line == f"{then} /b HTTP/1.1"
        assert (second.body == b"x") is (method == then)
        assert kept == ({name.lower() for name, _ in headers} if method == then else {"authorization"})

    @pytest.mark.parametrize(("status", "error"), [(302, NoAnswer), (303, NoAnswer), (307, NotSent)])
    async def test_to_where_nobody_is(self, status: int, error: type[Exception]) -> None:
        """What was carried out before the redirect is not taken for something that was never sent."""
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            location = f"http://{HOST}:{bound.getsockname()[1]}/"
            async with serving(answers(status, Location=location)) as server:
                with pytest.raises(error):
                    await exchange().send(ask(at(server), Method.POST))

    async def test_to_somebody_else(self) -> None:
        """Another server, or another port, gets none of the headers but those that say nothing."""
        headers = [("Authorization", "a"), ("Cookie", "c"), ("X-Token", "t"), ("Host", "virtual"), ("Accept", "text/x")]
        async with serving(answers(200)) as other, serving(answers(307, Location=str_of(at(other)))) as server:
            await exchange().send(ask(at(server), headers=headers))

        assert server.received[0].headers["authorization"] == "a"
        assert set(other.received[0].headers) == {"host", "accept", "user-agent", "accept-encoding", "connection"}
        assert other.received[0].headers["host"] == f"{HOST}:{other.port}"


def moves(status: int, location: str) -> Script:
    """A redirect, and an answer at its end."""

    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        if request.line.split()[1] == location:
            await write(writer, 200)
        else:
            await write(writer, status, Location=location)

    return script


def str_of(url: Url) -> str:
    return url.origin + url.target


class TestBody:
    @pytest.mark.parametrize(
        ("encoding", "pack"),
        [
            ("gzip", gzip.compress),
            ("x-gzip", gzip.compress),
            ("deflate", zlib.compress),
            ("identity", bytes),
            ("GZIP", gzip.compress),
            ("gzip", lambda body: gzip.compress(body[:4]) + gzip.compress(b"") + gzip.compress(body[4:])),
        ],
    )
    async def test_compressed(self, encoding: str, pack: Any) -> None:
        """It is unpacked."""
        async with serving(answers(200, pack(b"some text"), Content_Encoding=encoding)) as server:
            assert (await exchange().send(ask(at(server)))).body == b"some text"

    @pytest.mark.parametrize("size", [MOST_BODY, MOST_BODY + 1])
    @pytest.mark.parametrize("encoding", ["", "gzip"])
    async def test_most(self, size: int, encoding: str) -> None:
        """Two MiB are taken, and not a byte more."""
        body = gzip.compress(b"x" * size, 1) if encoding else b"x" * size
        async with serving(answers(200, body, **({"Content_Encoding": encoding} if encoding else {}))) as server:
            if size <= MOST_BODY:
                assert len((await exchange().send(ask(at(server)))).body) == size
                return
            with pytest.raises(Unusable, match=f"more than {MOST_BODY} bytes"):
                await exchange().send(ask(at(server)))

    @pytest.mark.parametrize("chunked", [True, False])
    async def test_without_end(self, chunked: bool) -> None:
        """What has no end is read no further, and the connection closed."""

        async def script(_request: Received, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\n" + (b"Transfer-Encoding: chunked\r\n\r\n" if chunked else b"\r\n"))
            while True:
                writer.write((b"10000\r\n" if chunked else b"") + b"x" * 0x10000 + (b"\r\n" if chunked else b""))
                await writer.drain()

        async with serving(script) as server:
            with pytest.raises(Unusable, match="more than"):
                await exchange().send(ask(at(server)))
            await server.gone.wait()

    async def test_bomb(self) -> None:
        """A GiB in a MiB is not unpacked."""
        packer = zlib.compressobj(9, wbits=31)
        chunk = packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH)
        repeated = packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH)
        async with serving(answers(200, chunk + repeated * 1000, Content_Encoding="gzip")) as server:
            with pytest.raises(Unusable, match="more than"):
                await exchange().send(ask(at(server)))

    @pytest.mark.parametrize(
        ("encoding", "body"),
        [
            ("gzip", b"plain"),
            ("gzip", gzip.compress(b"cut short", mtime=0)[:-9]),
            ("gzip", gzip.compress(b"x", mtime=0) + gzip.compress(b"cut short", mtime=0)[:-9]),
            ("gzip", gzip.compress(b"x", mtime=0) + b"more"),
            ("gzip", gzip.compress(b"", mtime=0) * 1001),
            ("br", b"x"),
            ("gzip, gzip", gzip.compress(b"x", mtime=0)),
        ],
    )
    async def test_not_as_said(self, encoding: str, body: bytes) -> None:
        """A body that is not encoded as the header says, or as nobody asked for, is told."""
        async with serving(answers(200, body, Content_Encoding=encoding)) as server:
            with pytest.raises(Unusable, match=f"whose Content-Encoding '{encoding}' cannot be undone"):
                await exchange().send(ask(at(server)))


class TestNoAnswer:
    async def test_nobody_there(self) -> None:
        """A port that is closed has got nothing; neither path nor query are shown."""
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            url = read_url(f"http://{HOST}:{bound.getsockname()[1]}/s3cret?token=s3cret")
            with pytest.raises(NotSent, match=r"no connection to http://api\.example\.com:") as caught:
                await exchange().send(ask(url))

        assert "s3cret" not in str(caught.value)

    @pytest.mark.parametrize(
        "said",
        [
            *(
                b"",
                b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx",
                b"HTTP/1.1 20",
                b"nonsense\r\n\r\n",
                b"\x00" * 100,
            ),
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"HTTP/1.1 200 OK\r\nA: " + b"x" * 200_000 + b"\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        ],
        ids=lambda said: said[-12:].decode("latin-1").encode("unicode_escape").decode(),
    )
    async def test_cut_off(self, said: bytes) -> None:
        """One that is cut off, or no HTTP, is none; the server may have done what was asked."""

        async def script(_request: Received, writer: asyncio.StreamWriter) -> None:
            writer.write(said)
            writer.close()

        async with serving(script) as server:
            with pytest.raises(NoAnswer, match=rf"http://api\.example\.com:{server.port} did not answer: "):
                await exchange().send(ask(at(server), Method.POST))

    @pytest.mark.parametrize("where", ["head", "body"])
    async def test_too_late(self, where: str) -> None:
        """A server that says nothing, or a byte now and then, is left when the time is up."""

        async def script(_request: Received, writer: asyncio.StreamWriter) -> None:
            if where == "body":
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            while True:
                writer.write(b"x" if where == "body" else b"")
                await asyncio.sleep(0.02)

        async with serving(script) as server:
            with pytest.raises(NoAnswer, match=r"did not answer: not within 0\.2s"):
                await exchange().send(ask(at(server), timeout=0.2))
            await server.gone.wait()

    async def test_too_late_for_a_name(self) -> None:
        """A name server that does not answer takes no longer either, and nothing was sent."""

        async def never(_host: str, _port: int) -> Sequence[Address]:
            await asyncio.Event().wait()
            raise AssertionError

        with pytest.raises(NotSent, match=r"not within 0\.05s"):
            await Exchange(AddressRules(), resolve=never).send(ask(read_url("http://slow.example/"), timeout=0.05))

    async def test_names_that_are_looked_up_for_ever(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """However many there are, what else needs a thread gets one."""
        end = threading.Event()

        def hang(*_: Any, **_options: Any) -> list[Any]:
            end.wait(60)
            return []

        monkeypatch.setattr(socket, "getaddrinfo", hang)
        sender = Exchange(AddressRules())
        urls = [read_url(f"http://slow{number}.example/") for number in range(40)]
        try:
            errors = await asyncio.gather(*(sender.send(ask(url, timeout=0.2)) for url in urls), return_exceptions=True)
            assert {type(error) for error in errors} == {NotSent}
            assert await asyncio.wait_for(asyncio.to_thread(int), 10) == 0
        finally:
            end.set()

    async def test_cancelled(self) -> None:
        """A call that is cancelled closes its connection."""

        async def script(_request: Received, _writer: asyncio.StreamWriter) -> None:
            await asyncio.Event().wait()

        async with serving(script) as server:
            sending = asyncio.ensure_future(exchange().send(ask(at(server))))
            await server.begun.wait()
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            await server.gone.wait()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def tls_of(authority: trustme.CA, name: str = HOST) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


def trusting(authority: trustme.CA) -> Tls:
    return Tls(authorities=authority.cert_pem.bytes().decode())


@pytest.mark.nonblocking_exempt(reason="the certificates of the servers of the tests are loaded from files")
class TestTls:
    async def test_of_ones_own_authority(self, authority: trustme.CA) -> None:
        """The certificate is judged by the name, though an address is connected to."""
        async with serving(answers(200, b"safe"), tls_of(authority)) as server:
            answer = await exchange().send(ask(at(server, scheme="https"), tls=trusting(authority)))

        assert answer.body == b"safe"

    async def test_not_trusted(self, authority: trustme.CA) -> None:
        """One of an authority that is not known, or for another name, is told as such; nothing was sent."""
        async with serving(answers(200), tls_of(authority)) as server:
            with pytest.raises(Untrusted, match=r"cannot prove that it is the one: .*unable to get local issuer"):
                await exchange().send(ask(at(server, scheme="https"), Method.POST))
        async with serving(answers(200), tls_of(authority, "other.example.com")) as server:
            with pytest.raises(Untrusted, match=r"not valid for 'api\.example\.com'"):
                await exchange().send(ask(at(server, scheme="https"), tls=trusting(authority)))

        assert server.received == []

    async def test_insecure(self, authority: trustme.CA) -> None:
        """If any will do, any does; and it is so for this request only."""
        one = exchange()
        async with serving(answers(200), tls_of(authority, "other.example.com")) as server:
            assert (await one.send(ask(at(server, scheme="https"), tls=Tls(insecure=True)))).status == 200
            with pytest.raises(Untrusted):
                await one.send(ask(at(server, scheme="https")))

    async def test_no_tls(self) -> None:
        """A server that does not speak TLS has got nothing."""
        async with serving(answers(200)) as server:
            with pytest.raises(NotSent, match="no connection"):
                await exchange().send(ask(at(server, scheme="https"), tls=Tls(insecure=True), timeout=0.3))

    async def test_authorities_that_are_none(self) -> None:
        """They are refused with the reason."""
        broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"
        with pytest.raises(Refused, match="caBundle cannot be read"):
            await exchange().send(ask(read_url("https://api.example.com/"), tls=Tls(authorities=broken)))

    async def test_many_settings(self, authority: trustme.CA) -> None:
        """What is kept of them is bounded."""
        one = exchange()
        pem = authority.cert_pem.bytes().decode()
        async with serving(answers(200), tls_of(authority)) as server:
            for count in range(20):
                await one.send(ask(at(server, scheme="https"), tls=Tls(authorities=pem + "\n" * count)))

        assert len(one._contexts) == 16


def forwarding() -> Script:
    """A proxy that answers itself, and opens no tunnel."""

    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        if not request.line.startswith("CONNECT"):
            await write(writer, 200, b"by proxy")
            return
        writer.write(
            b"HTTP/1.1 407 Wanted\r\n\r\n"
            if "proxy-authorization" not in request.headers
            else b"HTTP/1.1 502 No\r\n\r\n"
        )
        await writer.drain()
        writer.close()

    return script


class TestProxy:
    async def test_plain(self) -> None:
        """The proxy gets the whole URL, by name, and what it wants to know of us; the name may be known to it alone."""
        async with serving(forwarding()) as proxy:
            through = read_proxy(f"http://us%40er:pass@127.0.0.1:{proxy.port}")
            answer = await exchange().send(ask(read_url("http://inside.example/x?y"), proxy=through))

        assert answer.body == b"by proxy"
        (request,) = proxy.received
        assert request.line == "GET http://inside.example/x?y HTTP/1.1"
        assert request.headers["host"] == "inside.example"
        assert request.headers["proxy-authorization"] == "Basic dXNAZXI6cGFzcw=="

    async def test_refused_by_it(self) -> None:
        """A proxy that does not let us through has sent nothing on."""
        async with serving(forwarding()) as proxy:
            through = read_proxy(f"http://127.0.0.1:{proxy.port}")
            with pytest.raises(NotSent, match=r"no connection to https://inside\.example: 407"):
                await exchange().send(ask(read_url("https://inside.example/"), Method.POST, proxy=through))

        assert proxy.received[0].line == "CONNECT inside.example:443 HTTP/1.1"

    @pytest.mark.parametrize(
        "url",
        ["http://169.254.169.254/", "http://2852039166/", "http://metadata.google.internal/", "https://evil.example/"],
    )
    async def test_targets(self, url: str) -> None:
        """The target is judged as far as it is known here."""
        names = Names(evil_example=[["169.254.169.254"]])
        async with serving(answers(200)) as proxy:
            with pytest.raises(Refused):
                await exchange(names).send(ask(read_url(url), proxy=read_proxy(f"http://127.0.0.1:{proxy.port}")))

        assert proxy.received == []

    async def test_proxy_that_is_refused(self) -> None:
        """So is the proxy."""
        for proxy in ("http://169.254.169.254:80", "http://evil.example:3128"):
            names = Names(evil_example=[["169.254.169.254"]])
            with pytest.raises(Refused, match="link-local"):
                await exchange(names).send(ask(read_url("http://inside.example/"), proxy=read_proxy(proxy)))
