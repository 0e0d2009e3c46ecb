"""What the step ``http`` sends, and why there may be no answer. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kargo_py.steps.http_config import Method
from kargo_py.steps.http_url import ProxyUrl, Url

_HARMLESS: Final = frozenset({"accept", "accept-encoding", "accept-language", "content-type", "user-agent"})
"""Headers that any server may see."""
_KEEPING_METHOD: Final = frozenset({307, 308})


class Refused(Exception):
    """The request is not made, and never will be."""


class NotSent(Exception):
    """The server has not got the request."""


class Untrusted(Exception):
    """The server has not got the request, since it could not prove who it is."""


class NoAnswer(Exception):
    """The server may have got the request, but no answer came."""


class Unusable(Exception):
    """The answer cannot be read."""


@dataclass(frozen=True, slots=True)
class Tls:
    """How the server has to prove who it is."""

    insecure: bool = False
    authorities: str | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """What to send, where and how; ``timeout`` is in seconds."""

    method: Method
    url: Url
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""
    timeout: float = 10.0
    tls: Tls = field(default_factory=Tls)
    proxy: ProxyUrl | None = None
    follow: bool = True

    def redirected(self, status: int, url: Url) -> Ask:
        """What to send to *url* after a redirect with *status*: as browsers do, and without secrets for others."""
        headers = [(name, value) for name, value in self.headers if name.lower() != "host"]
        if not self.url.keeps_secrets_for(url):
            headers = [(name, value) for name, value in headers if name.lower() in _HARMLESS]
        if status in _KEEPING_METHOD or self.method.safe:
            return replace(self, url=url, headers=headers)
        headers = [(name, value) for name, value in headers if name.lower() not in {"content-type", "idempotency-key"}]
        return replace(self, method=Method.GET, url=url, headers=headers, body=b"")
