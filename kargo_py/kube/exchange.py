"""What the client wants of a way to a server: requests out, answers in, and how each may fail.

:mod:`kargo_py.kube.transport` goes over sockets; an embedded API server is reached without any.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Limits:
    """Time-outs in seconds, None for no limit."""

    total: float | None
    """From the beginning to the last byte of the answer."""
    connect: float | None
    """Until a socket is connected."""
    ready: float | None = None
    """Until the way is ready for the request: a proxy's answer and TLS included."""
    silence: float | None = None
    """Between two pieces of the answer."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent. ``path`` is percent-encoded and has the query; ``once``: it must not be sent a second time."""

    method: str
    path: str
    headers: Sequence[tuple[str, str]]
    body: bytes | None
    limits: Limits
    once: bool


class Answer(Protocol):
    """An answer whose body has perhaps not come yet; reading may raise a :class:`TransportFailure`."""

    @property
    def status(self) -> int:
        """The HTTP code."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Looked up whatever their case."""

    async def read(self) -> bytes:
        """The whole body."""

    def chunks(self) -> AsyncIterator[bytes]:
        """The body in pieces as they come."""


class TransportFailure(Exception):
    """No answer; ``__cause__`` is what the transport met."""

    def __init__(self, why: str = "") -> None:
        super().__init__(why)
        self.why = why


class NotSent(TransportFailure):
    """There was no way to the server: it has certainly not seen the request."""


class NoAnswer(TransportFailure):
    """It took longer than the limits."""


class BrokenOff(TransportFailure):
    """The connection broke: whether the server carried the request out is not known."""


class Transport(Protocol):
    """Sends requests with credentials that are renewed in time.

    ``generation`` counts the renewals: whoever is answered 401 says which credentials were refused.
    """

    generation: int

    @property
    def server(self) -> str:
        """The server's URL."""

    @property
    def source(self) -> str:
        """Where access comes from, as a person calls it."""

    @property
    def credentials(self) -> str:
        """What a person calls the credentials in use."""

    def sent(self, request: Request) -> AbstractAsyncContextManager[Answer]:
        """Send *request* and give its answer, whatever its code; raises TransportFailure."""

    async def renew_if_due(self) -> None:
        """Renew credentials that are about to expire."""

    async def renew_refused(self, generation: int) -> bool:
        """Renew credentials that the server refused; False if there can be no better ones just now.

        Raises ConfigError if they cannot be renewed.
        """

    async def close(self) -> None:
        """Close all connections."""
