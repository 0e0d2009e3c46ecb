"""Connections to one server: credentials that stay fresh, certificates, proxies."""

from __future__ import annotations

import asyncio
import re
import ssl
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import trustme
from aiohttp import web

from kargo_py.kube.codec import JSON
from kargo_py.kube.errors import ConfigError, Unauthorized, Unreachable
from kargo_py.kube.resources import Key
from kargo_py.kube.rest import RestClient
from kargo_py.kube.transport import SocketTransport, environment_proxy
from tests.kube.fakes import THINGS, thing
from tests.kube.peer import Credentials, Peer, client_of, serving

KEY = Key("ns", "a")


async def read(client: RestClient) -> None:
    await client.get(THINGS, KEY, codec=JSON)


async def write(client: RestClient) -> None:
    await client.patch(THINGS, KEY, b"{}", codec=JSON)


def authorizations(peer: Peer) -> list[str]:
    return [r.headers["Authorization"].removeprefix("Bearer ") for r in peer.received]


# -- credentials ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ask", [read, write])
async def test_refused_credentials(ask: Any) -> None:
    """A 401 loads the configuration again and tries once more, for a write too: it was certainly not done."""
    async with serving() as peer:
        credentials = Credentials(peer.url, ["old", "new"])
        async with client_of(peer, credentials) as client:
            peer.plays(peer.refuses(401), peer.answers(thing("a", 1)), peer.answers(thing("a", 1)))
            await ask(client)
            await ask(client)

    assert authorizations(peer) == ["old", "new", "new"]
    assert (credentials.loads, client.stats.retried) == (2, 1)


async def test_credentials_refused_twice() -> None:
    """Credentials that are refused also afresh are told, by file, user and server, and not loaded over and over."""
    async with serving() as peer:
        credentials = Credentials(peer.url)
        async with client_of(peer, credentials) as client:
            peer.plays(*[peer.refuses(401, "Unauthorized", "Unauthorized")] * 3)
            for _ in range(2):
                with pytest.raises(Unauthorized) as caught:
                    await read(client)

    assert str(caught.value) == (
        f'get things "ns/a": the API server {peer.url} does not accept user "tester" of the kubeconfig /test'
        " (Unauthorized); log in again or renew them"
    )
    assert (caught.value.code, len(peer.received), credentials.loads) == (401, 3, 2)


async def test_many_are_refused_at_once() -> None:
    """However many requests meet the 401, the configuration is loaded once."""
    both = asyncio.Barrier(2)

    async def refuse(request: web.Request) -> web.StreamResponse:
        await both.wait()
        return await Peer.refuses(401)(request)

    async with serving() as peer:
        credentials = Credentials(peer.url, ["old", "new", "newer"])
        async with client_of(peer, credentials, renewal_pause=0) as client:
            peer.plays(refuse, refuse, *[peer.answers(thing("a", 1))] * 2)
            await asyncio.gather(read(client), write(client))

    assert authorizations(peer) == ["old", "old", "new", "new"]


async def test_credentials_that_cannot_be_renewed() -> None:
    """If loading fails after a 401, both are told."""
    async with serving() as peer:
        credentials = Credentials(peer.url)
        async with client_of(peer, credentials) as client:
            credentials.failure = ConfigError("the plugin says: session over")
            peer.plays(peer.refuses(401))
            with pytest.raises(ConfigError) as caught:
                await read(client)

    assert str(caught.value) == (
        f'get things "ns/a": {peer.url} refused user "tester" of the kubeconfig /test,'
        " and renewing failed: the plugin says: session over"
    )


async def test_credentials_are_renewed_in_time(logged: list[Any]) -> None:
    """Credentials that are about to end are replaced before the next request, over the same connection."""
    async with serving() as peer:
        credentials = Credentials(peer.url, ["one", "two", "three"], renew_after=0)
        async with client_of(peer, credentials) as client:
            peer.plays(*[peer.answers(thing("a", 1))] * 3)
            await read(client)
            await read(client)
            credentials.failure = ConfigError("not now")
            await read(client)

    assert authorizations(peer) == ["two", "three", "three"]
    assert len(set(peer.connections)) == 1
    assert [(entry["event"], entry["why"]) for entry in logged] == [("credentials not renewed", "not now")]


# -- TLS --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ca(authority: trustme.CA, tmp_path: Path) -> str:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return str(tmp_path / "ca.pem")


@pytest.fixture
def tls(authority: trustme.CA) -> ssl.SSLContext:
    """A server known as 127.0.0.1 and as kube.test, which accepts client certificates of the same authority."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1", "kube.test").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


@pytest.fixture
def certificates(authority: trustme.CA, tmp_path: Path) -> list[dict[str, str]]:
    """Two client certificates, as attributes of a configuration."""
    made = []
    for name in ("first", "second"):
        issued = authority.issue_cert(f"{name}.test", common_name=name)
        attributes = {"cert_file": str(tmp_path / f"{name}.pem"), "key_file": str(tmp_path / f"{name}.key")}
        issued.cert_chain_pems[0].write_to_path(attributes["cert_file"])
        issued.private_key_pem.write_to_path(attributes["key_file"])
        made.append(attributes)
    return made


def who(request: web.Request) -> str:
    assert request.transport is not None
    subject = request.transport.get_extra_info("peercert")["subject"]
    return str(dict(pair for part in subject for pair in part)["commonName"])


async def test_nothing_stays_open(tls: ssl.SSLContext, ca: str) -> None:
    """A request given up before its answer began leaves no connection open, though the server bids no farewell."""

    async def deaf(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.pause_reading()
        try:
            return await peer.freezes()(request)
        finally:
            request.transport.abort()

    async with serving(tls) as peer:
        peer.plays(deaf)
        async with client_of(peer, Credentials(peer.url, attributes={"ssl_ca_cert": ca})) as client:
            waiting = asyncio.create_task(read(client))
            await peer.until(1)
            waiting.cancel()
            await asyncio.wait([waiting])
            assert outgoing(peer) == 1
        assert outgoing(peer) == 0


def outgoing(peer: Peer) -> int:
    """How many connections to *peer* are open at this side."""
    port = int(peer.url.rpartition(":")[2])
    transports = asyncio.get_running_loop()._transports.values()  # type: ignore[attr-defined]
    return sum(t.get_extra_info("peername")[1] == port for t in transports if t._sock is not None)


async def test_certificate_authority(tls: ssl.SSLContext, ca: str) -> None:
    """The server is talked to if the CA of the configuration knows it, and gets nothing otherwise."""
    async with serving(tls) as peer:
        peer.plays(peer.answers(thing("a", 1)))
        async with client_of(peer, Credentials(peer.url, attributes={"ssl_ca_cert": ca})) as client:
            await read(client)
        async with client_of(peer) as client:
            with pytest.raises(Unreachable) as caught:
                await write(client)

    text = str(caught.value)
    assert re.search(
        "its certificate is not accepted: self.signed certificate in certificate chain; is it running", text
    )
    assert "\n" not in text
    assert len(peer.received) == 1


@pytest.mark.parametrize(("name", "accepted"), [("kube.test", True), ("other.test", False)])
async def test_tls_server_name(tls: ssl.SSLContext, ca: str, name: str, accepted: bool) -> None:
    """tls-server-name is the name that the certificate must bear."""
    async with serving(tls) as peer:
        peer.plays(peer.answers(thing("a", 1)))
        attributes = {"ssl_ca_cert": ca, "tls_server_name": name}
        async with client_of(peer, Credentials(peer.url, attributes=attributes)) as client:
            if accepted:
                await read(client)
            else:
                with pytest.raises(Unreachable, match=r"Hostname mismatch, certificate is not valid for 'other\.test'"):
                    await read(client)


async def test_no_tls_at_all(ca: str) -> None:
    """A server that speaks plain HTTP where TLS is expected is told as that."""
    async with serving() as peer:
        url = peer.url.replace("http:", "https:")
        async with client_of(peer, Credentials(url, attributes={"ssl_ca_cert": ca})) as client:
            with pytest.raises(Unreachable, match=rf"cannot reach the API server {url}: TLS failed: .*; is it running"):
                await write(client)


async def test_a_handshake_that_freezes() -> None:
    """A server that accepts connections and then says nothing is given up; nothing was sent, so a write is not done."""
    hold = asyncio.Event()

    async def accept(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await hold.wait()
        writer.close()

    async with await asyncio.start_server(accept, "127.0.0.1") as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with client_of(Peer(url=url), connect_timeout=0.05) as client:
            with pytest.raises(Unreachable, match="no connection in time"):
                await write(client)
        hold.set()


async def test_certificates_that_cannot_be_loaded(tmp_path: Path) -> None:
    """A CA file that holds no certificate is told when connecting."""
    await asyncio.to_thread((tmp_path / "ca.pem").write_text, "nonsense")
    credentials = Credentials("https://127.0.0.1:1", attributes={"ssl_ca_cert": str(tmp_path / "ca.pem")})
    with pytest.raises(ConfigError, match=r"the certificates for https://127\.0\.0\.1:1 cannot be loaded: "):
        async with client_of(Peer(url=credentials.server), credentials):
            pass


async def test_new_client_certificate(tls: ssl.SSLContext, ca: str, certificates: list[dict[str, str]]) -> None:
    """A client certificate that is refused is replaced on new connections; what is under way on old ones goes on."""
    seen: list[str] = []
    go_on = asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        seen.append(who(request))
        await go_on.wait()
        return web.json_response(thing("a", 1))

    async def refuse(request: web.Request) -> web.StreamResponse:
        seen.append(who(request))
        return await Peer.refuses(401)(request)

    async def accept(request: web.Request) -> web.StreamResponse:
        seen.append(who(request))
        return web.json_response(thing("a", 1))

    async with serving(tls) as peer:
        credentials = Credentials(peer.url, attributes={"ssl_ca_cert": ca, **certificates[0]})
        async with client_of(peer, credentials) as client:
            peer.plays(slow, refuse, accept)
            under_way = asyncio.create_task(read(client))
            await peer.until(1)
            credentials.attributes |= certificates[1]
            await read(client)
            go_on.set()
            await under_way
            assert isinstance(client._transport, SocketTransport)
            assert not client._transport._retired

    assert seen == ["first", "first", "second"]


async def test_one_tls_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """All requests share one session: a TLS context costs 29 ms to make."""
    make = Mock(wraps=ssl.create_default_context)
    monkeypatch.setattr(ssl, "create_default_context", make)
    async with serving() as peer, client_of(peer, Credentials(peer.url, renew_after=0)) as client:
        peer.plays(*[peer.answers(thing("a", 1))] * 5)
        for _ in range(5):
            await read(client)

    assert (make.call_count, len(set(peer.connections))) == (1, 1)


# -- proxies ----------------------------------------------------------------------------------------------------------


async def test_proxy() -> None:
    """Requests go through the proxy of the configuration, with the login that stands in its address."""
    async with serving() as peer:
        peer.plays(peer.answers(thing("a", 1)))
        proxy = peer.url.replace("http://", "http://me:p@")
        credentials = Credentials("http://kube.test:1", attributes={"proxy": proxy})
        async with client_of(peer, credentials) as client:
            await read(client)

    received = peer.received[0]
    assert (received.headers["Host"], received.path) == ("kube.test:1", "/apis/example.com/v1/namespaces/ns/things/a")
    assert (received.headers["Proxy-Authorization"], received.headers["Authorization"]) == (
        "Basic bWU6cA==",
        "Bearer secret",
    )


async def test_proxy_for_tls() -> None:
    """To a TLS server a proxy opens a tunnel; what it says against that means that nothing was sent."""
    heard: list[bytes] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1") as server:
        proxy = f"http://me:p@127.0.0.1:{server.sockets[0].getsockname()[1]}"
        credentials = Credentials("https://kube.test", attributes={"proxy": proxy})
        async with client_of(Peer(url=credentials.server), credentials) as client:
            with pytest.raises(Unreachable, match="the proxy answered 403 Forbidden"):
                await write(client)

    assert heard[0].startswith(b"CONNECT kube.test:443 ")
    assert b"Proxy-Authorization: Basic bWU6cA==" in heard[0]
    assert b"secret" not in heard[0]


@pytest.mark.parametrize(
    ("server", "excepted", "proxy"),
    [
        ("https://kube.test:6443", "", "http://proxy:1"),
        ("http://kube.test", "", "http://plain:2"),
        ("https://kube.test", "other.test,kube.test", ""),
        ("https://kube.test", ".test", ""),
        ("https://kube.test", "*", ""),
        ("https://10.1.2.3", "10.0.0.0/8", ""),
        ("https://[fd00::1]", " fd00::/8", ""),
        ("https://11.1.2.3", "10.0.0.0/8,nonsense/9", "http://proxy:1"),
        ("https://kube.test", "10.0.0.0/8", "http://proxy:1"),
    ],
)
def test_environment_proxy(monkeypatch: pytest.MonkeyPatch, server: str, excepted: str, proxy: str) -> None:
    """The variables that kubectl knows count, with networks in NO_PROXY."""
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:1")
    monkeypatch.setenv("http_proxy", "plain:2")
    monkeypatch.setenv("NO_PROXY", excepted)
    for name in ("https_proxy", "no_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)

    assert environment_proxy(server) == proxy


async def test_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that the environment names is used."""
    async with serving() as peer:
        monkeypatch.setenv("http_proxy", peer.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        peer.plays(peer.answers(thing("a", 1)))
        async with client_of(peer, Credentials("http://kube.test")) as client:
            await read(client)

    assert peer.received[0].headers["Host"] == "kube.test"


async def test_no_netrc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What ~/.netrc says of the host does not replace, or collide with, our credentials."""
    netrc = tmp_path / "netrc"
    await asyncio.to_thread(netrc.write_text, "machine 127.0.0.1 login me password p\n")
    monkeypatch.setenv("NETRC", str(netrc))
    async with serving() as peer, client_of(peer) as client:
        peer.plays(peer.answers(thing("a", 1)))
        await read(client)

    assert authorizations(peer) == ["secret"]


@pytest.mark.parametrize("ask", [read, write])
async def test_a_client_that_was_closed(ask: Any) -> None:
    """Who goes on using it is told so, as of a server that cannot be reached: nothing was sent."""
    async with serving() as peer:
        async with client_of(peer, Credentials(peer.url)) as client:
            pass
        with pytest.raises(Unreachable, match="this client has been closed"):
            await ask(client)
    assert peer.received == []
