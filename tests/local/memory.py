"""An API server in memory, as far as Argo CD's kinds need one: a test double behind the Client protocol.

It is honest about what the races depend on: one version counter, conflicts, a watch that shows every version,
``metadata.generation`` that moves with everything but metadata, status as an ordinary field (spec 1.1), unknown fields
of operations pruned, and 422 for an operationState without what it must have. Selectors are refused.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, TypeVar

from kargo_py.kube.client import Codec, EventType, Page, PatchType, WatchEvent
from kargo_py.kube.errors import AlreadyExists, BadRequest, Conflict, Invalid, NotFound
from kargo_py.kube.resources import Key, Resource

JsonObject = dict[str, Any]
T = TypeVar("T")

OPERATION_FIELDS = {"info", "initiatedBy", "retry", "sync"}
SYNC_FIELDS = {
    "autoHealAttemptsCount",
    "dryRun",
    "manifests",
    "prune",
    "resources",
    "revision",
    "revisions",
    "source",
    "sources",
    "syncOptions",
    "syncStrategy",
}


class MemoryClient:
    """A Client whose server is this object."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, Key], JsonObject] = {}
        self.history: list[tuple[int, str, EventType, JsonObject]] = []
        self.listeners: list[Callable[[EventType, JsonObject], None]] = []
        self._version = 0
        self._watchers: set[asyncio.Queue[tuple[int, str, EventType, JsonObject]]] = set()

    # -- the verbs ----------------------------------------------------------------------------------------------------

    async def get(self, resource: Resource, key: Key, *, codec: Codec[T]) -> T:
        await asyncio.sleep(0)
        return codec.object(json.dumps(self._found(resource, key)).encode())

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
        _no_selectors(label_selector, field_selector)
        await asyncio.sleep(0)
        items = [o for (kind, key), o in self.objects.items() if kind == str(resource) and namespace in {"", key[0]}]
        meta = {"resourceVersion": str(self._version)}
        body = {"apiVersion": resource.api_version, "kind": f"{resource.kind}List", "metadata": meta, "items": items}
        return codec.page(json.dumps(body).encode())

    async def watch(
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
        _no_selectors(label_selector, field_selector)
        queue: asyncio.Queue[tuple[int, str, EventType, JsonObject]] = asyncio.Queue()
        for entry in self.history:
            queue.put_nowait(entry)
        self._watchers.add(queue)
        try:
            async with asyncio.timeout(timeout_seconds):
                while True:
                    version, kind, type_, obj = await queue.get()
                    here = namespace in {"", obj["metadata"].get("namespace")}
                    if kind == str(resource) and here and version > int(resource_version):
                        yield codec.event(json.dumps({"type": type_.value, "object": obj}).encode())
        except TimeoutError:
            return
        finally:
            self._watchers.discard(queue)

    async def create(self, resource: Resource, namespace: str, body: bytes, *, codec: Codec[T]) -> T:
        await asyncio.sleep(0)
        obj = json.loads(body)
        name = obj["metadata"]["name"]
        if (str(resource), Key(namespace, name)) in self.objects:
            raise AlreadyExists(409, "AlreadyExists", f'{resource} "{name}" already exists')
        uid = f"00000000-0000-4000-8000-{self._version + 1:012d}"
        obj["metadata"] |= {"namespace": namespace, "uid": uid, "generation": 1}
        obj = _admitted({"apiVersion": resource.api_version, "kind": resource.kind, **obj})
        return codec.object(json.dumps(self._store(resource, EventType.ADDED, obj)).encode())

    async def replace(self, resource: Resource, key: Key, body: bytes, *, codec: Codec[T], subresource: str = "") -> T:
        await asyncio.sleep(0)
        old = self._found(resource, key, subresource)
        return codec.object(json.dumps(self._update(resource, old, json.loads(body))).encode())

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
        await asyncio.sleep(0)
        old = self._found(resource, key, subresource)
        patch = json.loads(body)
        new = merged(old, patch) if patch_type is PatchType.MERGE else json_patched(old, patch)
        return codec.object(json.dumps(self._update(resource, old, new)).encode())

    async def delete(self, resource: Resource, key: Key, *, uid: str = "", resource_version: str = "") -> None:
        await asyncio.sleep(0)
        old = self._found(resource, key)
        metadata = old["metadata"]
        if uid not in {"", metadata["uid"]} or resource_version not in {"", metadata["resourceVersion"]}:
            raise Conflict(409, "Conflict", f'{resource} "{key.name}": the precondition does not hold')
        if metadata.get("finalizers"):
            deleting = metadata | {"deletionTimestamp": "2026-11-30T12:00:00Z"}
            self._store(resource, EventType.MODIFIED, old | {"metadata": deleting})
        else:
            self._store(resource, EventType.DELETED, old)

    # -- the store ----------------------------------------------------------------------------------------------------

    def _found(self, resource: Resource, key: Key, subresource: str = "") -> JsonObject:
        found = self.objects.get((str(resource), key))
        if found is None or subresource:
            raise NotFound(
                404, "NotFound", f'{resource} "{key.name}" not found', status={"details": {"name": key.name}}
            )
        return found

    def content(self, obj: JsonObject) -> JsonObject:
        """What moves ``metadata.generation``; of an Application status too, which is no subresource there."""
        return {name: value for name, value in obj.items() if name != "metadata"}

    def _update(self, resource: Resource, old: JsonObject, new: JsonObject) -> JsonObject:
        named = new["metadata"].get("resourceVersion") or old["metadata"]["resourceVersion"]
        if named != old["metadata"]["resourceVersion"]:
            message = f'{resource} "{old["metadata"]["name"]}": the object has been modified'
            raise Conflict(409, "Conflict", message)
        new = _admitted(new)
        if new == old:
            return old
        if self.content(old) != self.content(new):
            new["metadata"]["generation"] = old["metadata"]["generation"] + 1
        gone = new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers")
        return self._store(resource, EventType.DELETED if gone else EventType.MODIFIED, new)

    def _store(self, resource: Resource, type_: EventType, obj: JsonObject) -> JsonObject:
        self._version += 1
        stored = copy.deepcopy(obj)
        stored["metadata"]["resourceVersion"] = str(self._version)
        place = str(resource), Key(stored["metadata"]["namespace"], stored["metadata"]["name"])
        if type_ is EventType.DELETED:
            del self.objects[place]
        else:
            self.objects[place] = stored
        entry = self._version, str(resource), type_, stored
        self.history.append(entry)
        for queue in self._watchers:
            queue.put_nowait(entry)
        for listener in self.listeners:
            listener(type_, stored)
        return stored


def _no_selectors(*selectors: str) -> None:
    if any(selectors):
        raise BadRequest(400, "BadRequest", "the API server in memory knows no selectors")


def _admitted(obj: JsonObject) -> JsonObject:
    """The object as the CRD of Applications lets it be stored."""
    if obj.get("kind") != "Application":
        return obj
    obj = copy.deepcopy(obj)
    if not isinstance(obj.get("operation", {}), dict):
        raise Invalid(422, "Invalid", "operation: Invalid value: must be of type object")
    for place in (obj.get("operation") or {}, _state(obj).get("operation") or {}):
        _prune(place, OPERATION_FIELDS)
        _prune(place.get("sync") or {}, SYNC_FIELDS)
    state = _state(obj)
    if state and (missing := [name for name in ("operation", "phase", "startedAt") if name not in state]):
        raise Invalid(422, "Invalid", f"status.operationState.{missing[0]}: Required value")
    return obj


def _state(obj: JsonObject) -> JsonObject:
    return (obj.get("status") or {}).get("operationState") or {}


def _prune(place: JsonObject, known: set[str]) -> None:
    for name in place.keys() - known:
        del place[name]


def merged(target: Any, patch: Any) -> Any:
    """Apply a merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def json_patched(target: JsonObject, patch: Sequence[JsonObject]) -> JsonObject:
    """Apply a JSON patch (RFC 6902): add, replace, remove and test; anything that does not fit is a 422."""
    result = copy.deepcopy(target)
    for step in patch:
        *way, last = (part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:])
        try:
            place: Any = result
            for part in way:
                place = place[int(part)] if isinstance(place, list) else place[part]
            _carry_out(step, place, last)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise Invalid(422, "Invalid", f"{step['op']} {step['path']}: {error!r}") from error
    return result


def _carry_out(step: JsonObject, place: Any, last: str) -> None:
    name: Any = int(last) if isinstance(place, list) and last != "-" else last
    match step["op"]:
        case "test":
            if place[name] != step["value"]:
                raise ValueError("the value is another one")
        case "remove":
            del place[name]
        case "replace":
            place[name]
            place[name] = copy.deepcopy(step["value"])
        case "add" if isinstance(place, list):
            place.insert(len(place) if last == "-" else name, copy.deepcopy(step["value"]))
        case "add":
            place[name] = copy.deepcopy(step["value"])
        case other:
            raise ValueError(f"operation {other} is not played")
