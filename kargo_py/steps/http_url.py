"""The URLs of the step ``http``: read strictly, and shown without what may be secret in them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Final
from urllib.parse import SplitResult, quote, unquote, urlencode, urljoin, urlsplit

from kargo_py.messages import Shown, message

NOT_A_URL = message(
    "is no URL that can be called: {why}",
    do="Part of *invalid configuration*, or of what is wrong with a redirect. Give a whole URL, like "
    "`https://api.example.com/status`.",
    shown=Shown.PROMOTION,
)
CONTROL_CHARACTER = message(
    "contains a control character, perhaps a newline at its end",
    do="Part of *invalid configuration*. Values of Secrets often end in a newline: `trim()` in the expression takes "
    "it away.",
    shown=Shown.PROMOTION,
)
OTHER_SCHEME = message(
    "it must begin with http:// or https://",
    do="Part of *is no URL that can be called*. The step http speaks nothing else.",
    shown=Shown.PROMOTION,
)
NO_HOST = message(
    "it has no host, or one that is no host name",
    do="Part of *is no URL that can be called*. Correct what stands behind `//`.",
    shown=Shown.PROMOTION,
)
NO_PORT = message(
    "its port is not a number from 1 to 65535",
    do="Part of *is no URL that can be called*. Correct what stands behind the host's `:`.",
    shown=Shown.PROMOTION,
)
USER_IN_URL = message(
    "it has a user or a password in it; give them in the header Authorization",
    do="Part of *is no URL that can be called*. URLs end up in logs. Take what stands before the `@` away, and give a "
    "header `Authorization` with its value from a Secret.",
    shown=Shown.PROMOTION,
)
TOO_LONG = message(
    "it has more than {most} characters",
    do="Part of *is no URL that can be called*. Send long values in the body.",
    shown=Shown.PROMOTION,
)

_MOST: Final = 8192
_LONGEST_NAME: Final = 253
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?")
_BRACKETED: Final = re.compile(r"\[[0-9A-Fa-f:.]+\](?::[0-9]*)?")
_PORTS: Final = {"http": 80, "https": 443}
_SAFE: Final = "%/:@!$&'()*+,;=~-._"
_SAFE_IN_QUERY: Final = f"{_SAFE}?[]"


@dataclass(frozen=True, slots=True)
class Url:
    """A URL in parts: the host in lower case ASCII, an address of IPv6 without brackets, and a target with query."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def origin(self) -> str:
        """Scheme, host and port: what may be shown, since paths and queries have secrets in them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + ("" if self.port == _PORTS[self.scheme] else f":{self.port}")

    def joined(self, location: str) -> Url:
        """Where *location*, relative or not, leads from here. Raises ValueError."""
        if control_character(location):
            raise ValueError(CONTROL_CHARACTER())
        return read_url(urljoin(self.origin + self.target, location))

    def with_query(self, parameters: Sequence[tuple[str, str]]) -> Url:
        """With *parameters* behind those that it has."""
        if not parameters:
            return self
        joint = "&" if not self.target.endswith(("?", "&")) else ""
        joint = joint if "?" in self.target else "?"
        return Url(self.scheme, self.host, self.port, self.target + joint + urlencode(parameters))

    def keeps_secrets_for(self, other: Url) -> bool:
        """Whether what was meant for here may be sent to *other*: the same server, and no less protected."""
        if self.host != other.host:
            return False
        if self.scheme == other.scheme:
            return self.port == other.port
        return (self.scheme, self.port, other.port) == ("http", _PORTS["http"], _PORTS["https"])


def control_character(text: str) -> bool:
    """Whether *text* could break out of the line it is written into."""
    return _CONTROL.search(text) is not None


def read_url(text: str) -> Url:
    """The URL that *text* is. Raises ValueError, which says what is wrong but nothing of the text."""
    parts = _split(text)
    if "@" in parts.netloc:
        raise ValueError(NOT_A_URL(why=USER_IN_URL()))
    return _read(parts)


@dataclass(frozen=True, slots=True)
class ProxyUrl:
    """A proxy, and what it wants to know of us."""

    url: Url
    user: str = ""
    password: str = ""


def read_proxy(text: str) -> ProxyUrl:
    """The proxy that *text* names, with user and password where it has them. Raises ValueError."""
    parts = _split(text)
    credentials, _, netloc = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    return ProxyUrl(_read(parts._replace(netloc=netloc)), unquote(user), unquote(password))


def _split(text: str) -> SplitResult:
    if control_character(text):
        raise ValueError(CONTROL_CHARACTER())
    if len(text) > _MOST:
        raise ValueError(NOT_A_URL(why=TOO_LONG(most=_MOST)))
    try:
        parts = urlsplit(text)
    except ValueError:
        # Half a pair of brackets, or a host that another spelling of Unicode would cut elsewhere
        raise ValueError(NOT_A_URL(why=NO_HOST())) from None
    if parts.scheme not in _PORTS:
        raise ValueError(NOT_A_URL(why=OTHER_SCHEME()))
    return parts


def _read(parts: SplitResult) -> Url:
    try:
        port = parts.port
    except ValueError:
        raise ValueError(NOT_A_URL(why=NO_PORT())) from None
    if port == 0:
        raise ValueError(NOT_A_URL(why=NO_PORT()))
    target = quote(parts.path, safe=_SAFE) or "/"
    if parts.query:
        target += "?" + quote(parts.query, safe=_SAFE_IN_QUERY)
    return Url(parts.scheme, _host(parts), port or _PORTS[parts.scheme], target)


def _host(parts: SplitResult) -> str:
    host = _host_or_none(parts)
    if host is None:
        raise ValueError(NOT_A_URL(why=NO_HOST()))
    return host


def _host_or_none(parts: SplitResult) -> str | None:
    host = parts.hostname or ""
    try:
        if "[" in parts.netloc:
            return str(IPv6Address(host)) if _BRACKETED.fullmatch(parts.netloc) else None
        host = host.encode("idna").decode().lower()
    except ValueError:
        return None
    return host if len(host) <= _LONGEST_NAME and _HOST.fullmatch(host) else None
