"""One request of the step ``http`` and its answer, redirects included: bounded in time, size and where it may lead.

Imported only when a step runs: httpx takes its time and memory.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final, TypeAlias

import httpcore
import httpx

from kargo_py.messages import Shown, message
from kargo_py.steps.http_addresses import AddressRules
from kargo_py.steps.http_asking import Ask, NoAnswer, NotSent, Refused, Tls, Untrusted, Unusable
from kargo_py.steps.http_config import Method
from kargo_py.steps.http_judging import Answer
from kargo_py.steps.http_transport import (
    AddressRefused,
    CheckedNetwork,
    CheckedTransport,
    Resolve,
    Way,
    context_of,
    resolve,
)
from kargo_py.steps.http_url import Url

REFUSED = message(
    "{server} is not called: {why}",
    do="Correct the URL, or what the server redirects to. The page of the step http says which addresses it does not "
    "talk to.",
    shown=Shown.PROMOTION,
)
REDIRECT_UNUSABLE = message(
    "{server} redirects to what {why}",
    do="See what the server's header `Location` says. With `followRedirects: false` a redirect is the answer.",
    shown=Shown.PROMOTION,
)
TOO_MANY_REDIRECTS = message(
    "{server} was the end of {most} redirects, and redirects again",
    do="See where the URL leads, and give the one at the end. With `followRedirects: false` a redirect is the answer.",
    shown=Shown.PROMOTION,
)
TOO_LARGE = message(
    "{server} answered with more than {most} bytes",
    do="Ask the server for less: the step http reads no more than 2 MiB, decompressed.",
    shown=Shown.PROMOTION,
)
UNDECODABLE = message(
    "{server} answered with a body whose Content-Encoding {encoding!r} cannot be undone",
    do="The step understands `gzip` and `deflate`, and says so. See what the server sends.",
    shown=Shown.PROMOTION,
)
NO_CONNECTION = message(
    "no connection to {server}: {why}",
    do="It is tried again for a while by itself. See whether the host and the port are right, and whether the "
    "server can be reached from where the controllers run.",
    shown=Shown.PROMOTION,
)
UNTRUSTED = message(
    "{server} cannot prove that it is the one: {why}",
    do="Its certificate is not for that name, has expired, or is of an authority that is not known: give that in "
    "`caBundle`.",
    shown=Shown.PROMOTION,
)
NO_ANSWER = message(
    "{server} did not answer: {why}",
    do="What does no harm twice is tried again for a while by itself. See whether the server is well; `timeout` of "
    "the step's config is how long it has.",
    shown=Shown.PROMOTION,
)
NOT_IN_TIME = message(
    "not within {seconds:g}s",
    do="Part of *no connection* or *did not answer*: `timeout` of the step's config is how long it has.",
    shown=Shown.PROMOTION,
)
AUTHORITIES_UNREADABLE = message(
    "caBundle cannot be read: {why}",
    do="Give the certificates of the authorities in PEM form, each whole.",
    shown=Shown.PROMOTION,
)

MOST_BODY: Final = 2 * 1024 * 1024
"""Bytes of an answer's body that are read, decompressed or not."""
_MOST_PIECES: Final = 1000
"""Of a packed body; each takes its time, and may hold nothing."""
_MOST_REDIRECTS: Final = 10
_SHOWN: Final = 100
_MOST_CONTEXTS: Final = 16
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_OURS: Final = frozenset(
    {
        *("connection", "content-length", "keep-alive", "proxy-connection"),
        *("te", "trailer", "transfer-encoding", "upgrade"),
    }
)
"""Headers about the connection itself."""
_ASK_A_PROXY: Final = 2.0
"""Seconds to look up a host that a proxy is going to look up."""


Connect: TypeAlias = Callable[[Way], httpx.AsyncBaseTransport]
"""Makes what sends one request."""


class Exchange:
    """Sends requests. It keeps TLS contexts, which are the same for many, and nothing else between two of them."""

    def __init__(self, rules: AddressRules, *, resolve: Resolve = resolve, connect: Connect | None = None) -> None:
        self._network = CheckedNetwork(rules, resolve)
        self._rules = rules
        self._connect = connect or (lambda way: CheckedTransport(way, self._network))
        self._contexts: dict[Tls, ssl.SSLContext] = {}

    async def send(self, ask: Ask) -> Answer:
        """The answer to *ask*. Raises Refused, NotSent, Untrusted, NoAnswer and Unusable; each text names the server.

        A caller that is cancelled leaves no connection behind.
        """
        sending = _Sending(ask.url)
        try:
            async with asyncio.timeout(ask.timeout) as limit:
                return await self._follow(ask, sending)
        except TimeoutError as error:
            why = NOT_IN_TIME(seconds=ask.timeout) if limit.expired() else _words(error)
            raise sending.failed(why) from None
        except AddressRefused as error:
            raise Refused(REFUSED(server=sending.server, why=error)) from None
        except (httpx.TransportError, *_FAILURES) as error:
            raise sending.failure(error) from error

    async def _follow(self, ask: Ask, sending: _Sending) -> Answer:
        for _ in range(_MOST_REDIRECTS + 1):
            sending.begin(ask.url)
            answer = await self._exchange(ask, sending)
            location = answer.header("location")
            if not (ask.follow and answer.status in _REDIRECTS and location):
                return answer
            try:
                then = ask.redirected(answer.status, ask.url.joined(location))
            except ValueError as error:
                raise Refused(REDIRECT_UNUSABLE(server=sending.server, why=error)) from None
            sending.carried_out = sending.carried_out or then.method is not ask.method
            ask = then
        raise Unusable(TOO_MANY_REDIRECTS(server=sending.server, most=_MOST_REDIRECTS))

    async def _exchange(self, ask: Ask, sending: _Sending) -> Answer:
        if (why := self._rules.name_refusal(ask.url.host)) is not None:
            raise AddressRefused(why)
        if ask.proxy is not None:
            await self._check_behind_proxy(ask.url)
        async with self._connect(await self._way(ask)) as transport:
            response = await transport.handle_async_request(_request(ask, sending))
            try:
                headers = [(name.decode("latin-1"), _text(value)) for name, value in response.headers.raw]
                answer = Answer(response.status_code, headers)
                moves = ask.follow and answer.status in _REDIRECTS and answer.header("location")
                if moves or ask.method is Method.HEAD:
                    return answer
                return replace(answer, body=await _body(response, answer, sending.server))
            finally:
                await response.aclose()

    async def _check_behind_proxy(self, url: Url) -> None:
        """As far as is known here what the proxy is going to connect to; it may be that only the proxy knows it."""
        try:
            async with asyncio.timeout(_ASK_A_PROXY):
                await self._network.addresses(url.host, url.port)
        except (httpcore.ConnectError, TimeoutError):
            return

    async def _way(self, ask: Ask) -> Way:
        tls = await self._context(ask.tls) if ask.url.scheme == "https" else None
        proxy_tls = await self._context(Tls()) if ask.proxy is not None and ask.proxy.url.scheme == "https" else None
        return Way(tls, ask.proxy, proxy_tls)

    async def _context(self, tls: Tls) -> ssl.SSLContext:
        context = self._contexts.get(tls)
        if context is None:
            try:
                context = await asyncio.to_thread(context_of, tls)
            except (OSError, ValueError) as error:
                raise Refused(AUTHORITIES_UNREADABLE(why=error)) from error
            while len(self._contexts) >= _MOST_CONTEXTS:
                self._contexts.pop(next(iter(self._contexts)))
            self._contexts[tls] = context
        return context


_FAILURES: Final = (
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpcore.TimeoutException,
    httpcore.UnsupportedProtocol,
    OSError,
)


class _Sending:
    """How far a request has got.

    ``sent``: its headers were, or are being. ``carried_out``: what was asked for first was, and it is to be seen
    elsewhere what came of it.
    """

    def __init__(self, url: Url) -> None:
        self.carried_out = False
        self.begin(url)

    def begin(self, url: Url) -> None:
        """A request to *url* is begun."""
        self.server = url.origin
        self.sent = False

    async def trace(self, event: str, info: Any) -> None:
        """Told by httpcore what it does."""
        del info
        self.sent = self.sent or event.endswith(".send_request_headers.started")

    def failed(self, why: str) -> Exception:
        """No answer came because of *why*."""
        if self.sent or self.carried_out:
            return NoAnswer(NO_ANSWER(server=self.server, why=why))
        return NotSent(NO_CONNECTION(server=self.server, why=why))

    def failure(self, error: Exception) -> Exception:
        """No answer came because of *error*."""
        for each in _causes(error):
            if isinstance(each, ssl.SSLCertVerificationError):
                return Untrusted(UNTRUSTED(server=self.server, why=each.verify_message))
        if isinstance(error, httpcore.ProxyError):
            # To the proxy something was sent, to the server nothing.
            self.sent = False
        return self.failed(_words(error))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _words(error: Exception) -> str:
    """What *error* says, in the operating system's words if they are to be had."""
    systems = [each.strerror for each in _causes(error) if isinstance(each, OSError) and each.strerror]
    return next(iter(systems), "") or str(error) or type(error).__name__


def _request(ask: Ask, sending: _Sending) -> httpx.Request:
    given = {name.lower() for name, _ in ask.headers}
    headers = [(name, value) for name, value in ask.headers if name.lower() not in _OURS]
    if "user-agent" not in given:
        headers.append(("User-Agent", "kargo-py"))
    if "accept-encoding" not in given:
        headers.append(("Accept-Encoding", "gzip"))
    headers.append(("Connection", "close"))
    url = httpx.URL(
        scheme=ask.url.scheme, host=ask.url.host, port=ask.url.port, raw_path=ask.url.target.encode("ascii")
    )
    encoded = [(name.encode("ascii"), value.strip().encode()) for name, value in headers]
    return httpx.Request(
        ask.method.value, url, headers=encoded, content=ask.body or None, extensions={"trace": sending.trace}
    )


def _text(value: bytes) -> str:
    """The value of a header: mostly ASCII, else mostly UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


async def _body(response: httpx.Response, answer: Answer, server: str) -> bytes:
    """The body, decompressed. Raises Unusable."""
    encoding = answer.header("content-encoding").strip().lower()
    length = answer.header("content-length")
    if re.fullmatch(r"[0-9]{1,19}", length) and int(length) > MOST_BODY:
        raise Unusable(TOO_LARGE(server=server, most=MOST_BODY))
    unpacking = _Unpacking() if encoding in {"gzip", "x-gzip", "deflate"} else None
    read = 0
    body = bytearray()
    async for part in response.stream:  # type: ignore[union-attr]  # of an async transport it is async
        read += len(part)
        try:
            body += part if unpacking is None else unpacking.unpacked(part, MOST_BODY + 1 - len(body))
        except zlib.error:
            raise Unusable(UNDECODABLE(server=server, encoding=encoding[:_SHOWN])) from None
        if max(read, len(body)) > MOST_BODY:
            raise Unusable(TOO_LARGE(server=server, most=MOST_BODY))
    if not read:
        return b""
    if encoding not in {"", "identity"} and (unpacking is None or not unpacking.is_whole):
        raise Unusable(UNDECODABLE(server=server, encoding=encoding[:_SHOWN]))
    return bytes(body)


class _Unpacking:
    """Undoes ``gzip`` and ``deflate``, told by its first bytes; what is packed in several pieces is one body."""

    def __init__(self) -> None:
        self._piece = zlib.decompressobj(zlib.MAX_WBITS | 32)
        self._pieces = 1

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing at the end."""
        return self._piece.eof

    def unpacked(self, part: bytes, most: int) -> bytes:
        """What *part* adds to the body, and not much more than *most* bytes. Raises zlib.error."""
        body = bytearray()
        while part and len(body) < most:
            if self._piece.eof:
                self._pieces += 1
                if self._pieces > _MOST_PIECES:
                    raise zlib.error
                self._piece = zlib.decompressobj(zlib.MAX_WBITS | 16)
            body += self._piece.decompress(part, most - len(body))
            part = self._piece.unused_data
        return bytes(body)
