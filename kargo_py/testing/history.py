"""Everything that was written, in order: what a test asks afterwards, and what it is woken by while it waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kargo_py.kube.client import EventType, JsonObject
from kargo_py.kube.resources import Key, Resource


@dataclass(frozen=True, slots=True)
class Write:
    """One write: what the object was after it, or, for a deletion, before it. Read ``object``, never change it."""

    change: EventType
    resource: Resource
    key: Key
    object: JsonObject


class History:
    """The writes to an API server, oldest first."""

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self._newest: dict[tuple[str, Key], Write] = {}
        self._waiting: list[asyncio.Event] = []

    def append(self, write: Write) -> None:
        """Another one has happened."""
        self.writes.append(write)
        self._newest[str(write.resource), write.key] = write
        for event in self._waiting:
            event.set()

    async def follow(self, resource: Resource) -> None:
        """Record a resource, too, if it is not yet; a server in this process shows every write by itself."""

    def version(self, resource: Resource, key: Key) -> int:
        """The version of the newest write to an object, 0 if there is none."""
        write = self._newest.get((str(resource), key))
        return 0 if write is None else int(write.object["metadata"]["resourceVersion"])

    def of(self, resource: Resource, key: Key | None = None) -> Sequence[Write]:
        """Those to one object, or to all objects of a resource."""
        return [each for each in self.writes if str(each.resource) == str(resource) and key in {None, each.key}]

    def newest(self, resource: Resource, key: Key) -> JsonObject | None:
        """The object as it is now; None if there is none."""
        write = self._newest.get((str(resource), key))
        return None if write is None or write.change is EventType.DELETED else write.object

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until *condition* is true; it is asked at once and after every write."""
        news = asyncio.Event()
        self._waiting.append(news)
        try:
            while not condition():
                news.clear()
                await news.wait()
        finally:
            self._waiting.remove(news)
