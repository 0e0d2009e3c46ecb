"""The embedded server's core and a real API server, asked the same, and what of their answers can be compared.

The core is asked in-process, the real server over its socket. No two servers have UIDs, versions, times of creation and
managed fields alike; descriptions are our own.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from datetime import UTC, datetime
from difflib import unified_diff
from http.client import HTTPSConnection
from random import Random
from ssl import create_default_context
from typing import Any
from urllib.parse import parse_qsl

from kargo_py.local.apiserver.server import ApiServer as EmbeddedServer
from kargo_py.local.apiserver.wire import JsonObject, Request, Response
from tests.envtest.server import HOST, ApiServer

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
UNLIKE = {"uid", "resourceVersion", "creationTimestamp", "managedFields", "description", "continue"}


class Both:
    """A real server and the embedded one, and a namespace in both."""

    def __init__(self, real: ApiServer) -> None:
        self.real = real
        self.loop = asyncio.new_event_loop()
        self.embedded = self.loop.run_until_complete(embedded_server())
        context = create_default_context(cafile=str(real.ca_file))
        self.connection = HTTPSConnection(HOST, int(real.url.rpartition(":")[2]), context=context, timeout=30)
        self.namespace = f"n{uuid.uuid4().hex[:10]}"
        self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})

    def close(self) -> None:
        self.connection.close()
        self.loop.run_until_complete(self.embedded.__aexit__(None, None, None))
        self.loop.close()

    def ask(self, method: str, path: str, body: Any = None, accept: str = "application/json") -> tuple[Any, Any]:
        """What the embedded server answers, and what the real one does."""
        raw = b"" if body is None else json.dumps(body).encode()
        return self.loop.run_until_complete(self._embedded(method, path, raw, accept)), self._real(
            method, path, raw, accept
        )

    async def _embedded(self, method: str, target: str, body: bytes, accept: str) -> tuple[int, Any, list[str]]:
        path, _, query = target.partition("?")
        headers = {"content-type": "application/json", "accept": accept, "user-agent": "test"}
        answer = await self.embedded.handle(Request(method, path, parse_qsl(query, True), headers, body))
        assert isinstance(answer, Response)
        for _ in range(5):  # what follows a write in the background
            await asyncio.sleep(0)
        return answer.code, _decoded(answer.body), [f"299 - {json.dumps(each)}" for each in answer.warnings]

    def _real(self, method: str, target: str, body: bytes, accept: str) -> tuple[int, Any, list[str]]:
        headers = {"Authorization": f"Bearer {self.real.token('admin')}", "Content-Type": "application/json"}
        self.connection.request(method, target, body, {**headers, "Accept": accept, "User-Agent": "test"})
        answer = self.connection.getresponse()
        return answer.status, _decoded(answer.read()), answer.headers.get_all("Warning") or []

    def same(self, method: str, path: str, body: Any = None, accept: str = "application/json") -> None:
        """Ask both, and compare."""
        embedded, real = self.ask(method, path, body, accept)
        ours, theirs = comparable(embedded), comparable(real)
        assert ours == theirs, _difference(ours, theirs)

    def update(self, path: str, change: JsonObject) -> None:
        """Change an object by an update in both, and compare."""
        embedded, real = self.ask("GET", path)
        bodies = [merged(answer[1], change) for answer in (embedded, real)]
        first = self.loop.run_until_complete(self._embedded("PUT", path, json.dumps(bodies[0]).encode(), "*/*"))
        second = self._real("PUT", path, json.dumps(bodies[1]).encode(), "*/*")
        own = [answer[1]["metadata"].get("uid", "") for answer in (embedded, real)]
        assert _without(comparable(first), own[0]) == _without(comparable(second), own[1])


async def embedded_server() -> EmbeddedServer:
    return EmbeddedServer(now=lambda: datetime.now(UTC), random=Random(1))


def _difference(ours: str, theirs: str) -> str:
    return "\n".join(unified_diff(ours.splitlines(), theirs.splitlines(), "embedded", "real", lineterm="", n=2))


def _decoded(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return raw.decode()


def _without(text: str, uid: str) -> str:
    return text.replace(uid, "UID") if uid else text


def merged(obj: JsonObject, change: JsonObject) -> JsonObject:
    """*obj* with the fields of *change*, those of metadata one by one."""
    return {**obj, **change, "metadata": {**obj["metadata"], **change.get("metadata", {})}}


def comparable(answer: Any) -> str:
    """An answer without what differs between any two servers. Go tells what is wrong with a map in any order."""
    return json.dumps(_cleaned(list(answer)), sort_keys=True, indent=1)


def _cleaned(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _cleaned(item, name) for name, item in value.items() if name not in UNLIKE}
    if isinstance(value, list):
        items = [_cleaned(item) for item in value]
        return sorted(items, key=json.dumps) if key == "causes" else items
    if key == "message" and isinstance(value, str) and "is invalid: [" in value:
        head, _, listed = value.partition("is invalid: [")
        return [head, *sorted(listed.removesuffix("]").split(", metadata."))]
    return value
