"""A server core and short ways to ask it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from urllib.parse import parse_qsl

from kargo_py.local.apiserver.server import ApiServer
from kargo_py.local.apiserver.wire import JsonObject, Request, Response, Stream

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
FOOS = "/apis/ex.io/v1/namespaces/default/foos"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
NAMESPACES = "/api/v1/namespaces"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
_STATUS_SCHEMA = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
SPEC_SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string", "default": "x"}}}
FOO_SCHEMA = {"type": "object", "properties": {"spec": SPEC_SCHEMA, "status": _STATUS_SCHEMA}}


def definition(plural: str, kind: str, *versions: JsonObject, scope: str = "Namespaced") -> JsonObject:
    """A CustomResourceDefinition of the group ex.io."""
    spec = {"group": "ex.io", "scope": scope, "names": {"plural": plural, "kind": kind}, "versions": list(versions)}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.ex.io"},
        "spec": spec,
    }


def version(name: str = "v1", schema: JsonObject | None = None, **more: Any) -> JsonObject:
    """A version of one."""
    served = {"name": name, "served": True, "storage": True, "subresources": {"status": {}}}
    return {**served, "schema": {"openAPIV3Schema": schema or FOO_SCHEMA}, **more}


FOO = definition("foos", "Foo", version())


def foo(name: str, spec: JsonObject | None = None, /, **metadata: Any) -> JsonObject:
    """A Foo."""
    made: JsonObject = {"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"name": name, **metadata}}
    if spec is not None:
        made["spec"] = spec
    return made


@dataclass
class Answer:
    """What came back; ``obj`` is its JSON, or its text."""

    code: int
    obj: Any
    warnings: list[str] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def version(self) -> str:
        """Of the object, or of the list."""
        found: str = self.obj["metadata"]["resourceVersion"]
        return found

    @property
    def names(self) -> list[str]:
        """Of the list's items."""
        return [item["metadata"]["name"] for item in self.obj["items"]]

    @property
    def told(self) -> tuple[int, str, str]:
        """Code, reason and message of a failure."""
        return self.code, self.obj.get("reason", ""), self.obj["message"]


class Driver:
    """Asks a server."""

    def __init__(self, **options: Any) -> None:
        self.seconds = 0.0
        options.setdefault("random", Random(0))
        self.server = ApiServer(now=lambda: NOON + timedelta(seconds=self.seconds), **options)

    async def ask(
        self,
        method: str,
        url: str,
        body: Any = None,
        media: str = "application/json",
        *,
        accept: str = "",
        agent: str = "tester/1",
    ) -> Answer:
        """One request that is answered at once."""
        answer = await self.server.handle(_request(method, url, body, media, accept, agent))
        assert isinstance(answer, Response)
        try:
            obj = json.loads(answer.body)
        except ValueError:
            obj = answer.body.decode()
        return Answer(answer.code, obj, list(answer.warnings), dict(answer.headers))

    async def get(self, url: str, **more: Any) -> Answer:
        """GET."""
        return await self.ask("GET", url, **more)

    async def post(self, url: str, body: Any, **more: Any) -> Answer:
        """POST."""
        return await self.ask("POST", url, body, **more)

    async def put(self, url: str, body: Any, **more: Any) -> Answer:
        """PUT."""
        return await self.ask("PUT", url, body, **more)

    async def merge(self, url: str, body: Any, **more: Any) -> Answer:
        """A merge patch."""
        return await self.ask("PATCH", url, body, MERGE, **more)

    async def apply(self, url: str, body: Any, **more: Any) -> Answer:
        """Server-side apply."""
        return await self.ask("PATCH", f"{url}?fieldManager=applier", body, APPLY, **more)

    async def delete(self, url: str, body: Any = None, **more: Any) -> Answer:
        """DELETE."""
        return await self.ask("DELETE", url, body, **more)

    async def watch(self, url: str, *, accept: str = "") -> AsyncGenerator[JsonObject]:
        """The events of a watch; the request is made now."""
        answer = await self.server.handle(_request("GET", url, None, "", accept, "tester/1"))
        assert isinstance(answer, Stream)
        return _events(answer.lines)

    async def settle(self) -> None:
        """Let the work in the background be done."""
        await self.server.background.settled()


def _request(method: str, url: str, body: Any, media: str, accept: str, agent: str) -> Request:
    path, _, query = url.partition("?")
    headers = {"user-agent": agent}
    if accept:
        headers["accept"] = accept
    data = b""
    if body is not None:
        headers["content-type"] = media
        data = (
            body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        )
    return Request(method, path, parse_qsl(query, keep_blank_values=True), headers, data)


async def _events(lines: AsyncGenerator[bytes]) -> AsyncGenerator[JsonObject]:
    try:
        async for line in lines:
            assert line.endswith(b"\n")
            yield json.loads(line)
    finally:
        await lines.aclose()


async def driver(*definitions: JsonObject, **options: Any) -> Driver:
    """A server that serves Foos, or what *definitions* say."""
    made = Driver(**options)
    for one in definitions or (FOO,):
        answer = await made.post(DEFINITIONS, one)
        assert answer.code == 201, answer.obj
    return made


def shape(event: JsonObject) -> tuple[str, str]:
    """Type and name of an event."""
    return event["type"], event["object"]["metadata"].get("name", "")
