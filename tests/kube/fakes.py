"""A client that plays a script, for tests of the cache and the controllers without a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from kargo_py.kube.client import Codec, EventType, Page, PatchType, WatchEvent
from kargo_py.kube.errors import NotFound
from kargo_py.kube.resources import Key, Resource

JsonObject = dict[str, Any]
THINGS = Resource("example.com", "v1", "things", "Thing")


def thing(name: str, version: int, uid: str = "", **more: Any) -> JsonObject:
    """A Thing in namespace ns."""
    meta = {"namespace": "ns", "name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": meta, **more}


END = object()
"""In a watch script: the server ends the watch."""


class ScriptedClient:
    """Answers lists and watches from queues; an exception in a script is raised, an asyncio.Event waited for.

    ``lists`` holds pages; ``watches`` one list of steps for each watch: (type, object), a bookmark's version as text,
    an exception, END, an Event, or a number of seconds of silence. When a script is used up the watch stays silent.
    ``objects`` is what live reads find; an Event among ``gates`` holds the read of its key up. ``version`` is what the
    server says when it is asked for one object only, to learn how far it is; an exception is raised.
    """

    def __init__(self) -> None:
        self.lists: list[Page[JsonObject] | Exception] = []
        self.watches: list[list[Any]] = []
        self.objects: dict[Key, JsonObject | Exception] = {}
        self.gates: dict[Key, asyncio.Event] = {}
        self.version: str | Exception = "1000000"
        self.listed: list[str] = []
        self.watched: list[str] = []
        self.watch_seconds: list[int] = []
        self.checks = 0
        self.reads: list[Key] = []
        self.open_watches = 0

    async def get(self, resource: Resource, key: Key, *, codec: Codec[Any]) -> Any:
        self.reads.append(key)
        await asyncio.sleep(0)
        found = self.objects.get(key)
        if key in self.gates:
            await self.gates[key].wait()
        if isinstance(found, Exception):
            raise found
        if found is None:
            raise NotFound(404, "NotFound", f"{resource} {key} not found", status={"details": {"name": key.name}})
        return found

    async def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        codec: Codec[Any],
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        continue_token: str = "",
        resource_version: str = "",
    ) -> Page[Any]:
        await asyncio.sleep(0)
        if limit == 1:
            self.checks += 1
            if isinstance(self.version, Exception):
                raise self.version
            return Page((), self.version)
        self.listed.append(continue_token)
        if not self.lists:
            await asyncio.Event().wait()
        answer = self.lists.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        codec: Codec[Any],
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: int,
    ) -> AsyncGenerator[WatchEvent[Any]]:
        self.watched.append(resource_version)
        self.watch_seconds.append(timeout_seconds)
        script = self.watches.pop(0) if self.watches else []
        self.open_watches += 1
        try:
            for step in script:
                await asyncio.sleep(0)
                if step is END:
                    return
                if isinstance(step, Exception):
                    raise step
                if isinstance(step, asyncio.Event):
                    await step.wait()
                elif isinstance(step, float):
                    await asyncio.sleep(step)
                elif isinstance(step, str):
                    yield WatchEvent(EventType.BOOKMARK, step, None)
                else:
                    type_, obj = step
                    raw = isinstance(obj, dict)  # it may be one without a name
                    version = obj["metadata"]["resourceVersion"] if raw else codec.meta(obj).resource_version
                    yield WatchEvent(EventType(type_), version, obj)
            await asyncio.Event().wait()
        finally:
            self.open_watches -= 1

    async def create(self, resource: Resource, namespace: str, body: bytes, *, codec: Codec[Any]) -> Any:
        raise NotImplementedError

    async def replace(
        self, resource: Resource, key: Key, body: bytes, *, codec: Codec[Any], subresource: str = ""
    ) -> Any:
        raise NotImplementedError

    async def patch(
        self,
        resource: Resource,
        key: Key,
        body: bytes,
        *,
        codec: Codec[Any],
        patch_type: PatchType = PatchType.MERGE,
        subresource: str = "",
        field_manager: str = "",
    ) -> Any:
        raise NotImplementedError

    async def delete(self, resource: Resource, key: Key, *, uid: str = "", resource_version: str = "") -> None:
        raise NotImplementedError
