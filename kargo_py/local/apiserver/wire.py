"""What goes into the server's core and what comes out of it: no framework's types."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Protocol, TypeAlias

import msgspec

JsonObject: TypeAlias = dict[str, Any]

JSON = "application/json"

_encoder = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request. ``path`` is percent-encoded as it came, ``query`` decoded, header names are lower-case."""

    method: str
    path: str
    query: Sequence[tuple[str, str]] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    user: str = ""
    """Who sent it, "" where nobody asked for credentials."""

    def parameter(self, name: str) -> str:
        """The first value of a query parameter, "" if it is absent."""
        return next((value for key, value in self.query if key == name), "")


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer. ``warnings`` become ``Warning`` headers (code 299)."""

    code: int
    body: bytes
    content_type: str = JSON
    """"" where nothing is said of it."""
    headers: Mapping[str, str] = field(default_factory=dict)
    warnings: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Stream:
    """A watch: *lines* go on until the server ends it, or its consumer closes the generator."""

    code: int
    lines: AsyncGenerator[bytes]
    content_type: str = JSON
    warnings: Sequence[str] = ()


class Absent(Enum):
    """Where there is no value, which is not the same as null."""

    ABSENT = "absent"

    def __bool__(self) -> bool:
        return False


ABSENT: Final = Absent.ABSENT


class Handler(Protocol):
    """The server, or what stands before it: faults, authentication."""

    async def handle(self, request: Request) -> Response | Stream:
        """Answer *request*; raises Dropped where a played network breaks."""


class Dropped(Exception):
    """The connection breaks instead of an answer; a stream's generator may raise it too."""

    def __init__(self, *, carried_out: bool) -> None:
        super().__init__("after the request was carried out" if carried_out else "before the request was read")
        self.carried_out = carried_out


def encode(value: Any) -> bytes:
    """Compact JSON; a ``msgspec.Raw`` within *value* is put in as it is."""
    return _encoder.encode(value)


def identical(left: Any, right: Any) -> bool:
    """Whether two values are the same JSON, 1 and 1.0 and true being different."""
    if type(left) is not type(right):
        return False
    if type(left) is dict:
        return len(left) == len(right) and all(
            key in right and identical(item, right[key]) for key, item in left.items()
        )
    if type(left) is list:
        return len(left) == len(right) and all(map(identical, left, right))
    return bool(left == right)


def copied(value: Any) -> Any:
    """A copy of JSON that shares nothing that can be changed."""
    if isinstance(value, dict):
        return {name: copied(below) if isinstance(below, (dict, list)) else below for name, below in value.items()}
    if isinstance(value, list):
        return [copied(item) if isinstance(item, (dict, list)) else item for item in value]
    return value
