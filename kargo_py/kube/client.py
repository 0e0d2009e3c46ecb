"""The verbs this program uses on a Kubernetes API, as a protocol.

Behind it stands :mod:`kargo_py.kube.rest`, which talks to a server over HTTP; tests put scripts there. Every verb is
generic over a :class:`Codec`, so that bytes are parsed once, straight into what the caller keeps.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from kargo_py.kube.resources import Key, Resource

JsonObject: TypeAlias = dict[str, Any]

T = TypeVar("T")


class PatchType(Enum):
    """How the server shall read a patch body; the value is the content type.

    The content type is always sent explicitly: kubernetes-asyncio's default for custom objects is JSON patch, to which
    a real server answers 400 for a merge patch body.
    """

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"


class EventType(Enum):
    """What a watch line says."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


@dataclass(frozen=True, slots=True)
class Meta:
    """The part of an object's metadata that a cache needs."""

    key: Key
    uid: str
    resource_version: str


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list; ``continue_token`` is "" on the last one."""

    items: Sequence[T]
    resource_version: str
    continue_token: str = ""


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """One watch line. ``object`` is None for a BOOKMARK, whose only news is the ``resource_version``.

    An ERROR line is never an event: :meth:`Client.watch` raises it (410 as :class:`~kargo_py.kube.errors.Gone`).
    """

    type: EventType
    resource_version: str
    object: T | None


class Codec(Protocol[T]):
    """Parses what the server sends, once, into what is kept; raises DecodeError."""

    def object(self, data: bytes) -> T:
        """Parse one object."""

    def page(self, data: bytes) -> Page[T]:
        """Parse a list."""

    def event(self, line: bytes) -> WatchEvent[T]:
        """Parse one line of a watch; an ERROR line is raised as the ApiError it carries."""

    def meta(self, obj: T) -> Meta:
        """Name, uid and version of a parsed object."""


class Client(Protocol):
    """The verbs. Every one may raise any :class:`~kargo_py.kube.errors.KubeError`.

    A write (create, replace, patch, delete) that ends in a 5xx, a reset or a time-out raises OutcomeUnknown; a 429 has
    been waited out and tried again before anything is raised.
    """

    async def get(self, resource: Resource, key: Key, *, codec: Codec[T]) -> T:
        """Read one object from the newest state (never from a server-side cache)."""

    async def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        codec: Codec[T],
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        continue_token: str = "",
        resource_version: str = "",
    ) -> Page[T]:
        """Read one page of a collection."""

    def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        codec: Codec[T],
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: int,
    ) -> AsyncGenerator[WatchEvent[T]]:
        """Stream changes since *resource_version*, bookmarks included, until the server ends it.

        The read time-out lies just above *timeout_seconds*, so a frozen server surfaces as ConnectionLost.
        """

    async def create(self, resource: Resource, namespace: str, body: bytes, *, codec: Codec[T]) -> T:
        """Create an object."""

    async def replace(self, resource: Resource, key: Key, body: bytes, *, codec: Codec[T], subresource: str = "") -> T:
        """Put an object."""

    async def patch(
        self,
        resource: Resource,
        key: Key,
        body: bytes,
        *,
        codec: Codec[T],
        patch_type: PatchType = PatchType.MERGE,
        subresource: str = "",
        field_manager: str = "",
    ) -> T:
        """Patch an object; the answer is the whole object as it then stands."""

    async def delete(self, resource: Resource, key: Key, *, uid: str = "", resource_version: str = "") -> None:
        """Delete an object, with preconditions where given; an absent object raises NotFound."""
