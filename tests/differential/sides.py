"""The two servers, as what answers a step."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from random import Random
from typing import Any, Protocol
from urllib.parse import urlsplit

import looptime

from kargo_py.local.apiserver.garbage import GarbageCollector
from kargo_py.local.apiserver.namespaces import Namespaces
from kargo_py.local.apiserver.server import ApiServer
from kargo_py.local.apiserver.wire import Request, Response
from tests.differential.steps import (
    CONTINUE,
    LIST_VERSION,
    OLD_VERSION,
    SEQ,
    UID,
    VERSION,
    Answer,
    JsonObject,
    Step,
    merged,
)
from tests.envtest.server import ApiServer as RealServer

AGENT = "fuzz/1"
CLOSED = 0
"""For a code: the server has closed the connection, because it panicked."""


class Side(Protocol):
    """One of the servers."""

    def ask(self, step: Step) -> Answer:
        """Answer *step*, in which nothing stands for anything else any more."""


class Real:
    """kube-apiserver, on a connection that is kept."""

    def __init__(self, server: RealServer) -> None:
        address = urlsplit(server.url)
        assert address.hostname
        context = ssl.create_default_context(cafile=str(server.ca_file))
        self._connect: Callable[[], http.client.HTTPSConnection] = lambda: http.client.HTTPSConnection(
            address.hostname or "", address.port, context=context, timeout=30
        )
        self._token = server.token("admin")
        self._connection = self._connect()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def ask(self, step: Step) -> Answer:
        """Send the request."""
        connection = self._connect() if step.watch else self._connection
        headers = {"Authorization": f"Bearer {self._token}", "Accept": step.accept, "User-Agent": AGENT}
        body = _payload(step)
        if body:
            headers["Content-Type"] = step.media
        try:
            connection.request(step.method, step.target, body, headers)
            answer = connection.getresponse()
        except http.client.RemoteDisconnected:  # Go has closed it meanwhile, and not read the request
            connection.close()
            connection.request(step.method, step.target, body, headers)
            try:
                answer = connection.getresponse()
            except http.client.RemoteDisconnected:
                connection.close()
                return Answer(CLOSED, "")
        data = answer.read()
        warnings = [_unquoted(each) for each in answer.headers.get_all("Warning") or ()]
        if step.watch:
            connection.close()
        return Answer(answer.status, _decoded(data, step), warnings, answer.headers.get("Content-Type", ""))


class Embedded:
    """Our server, in-process, without what the real one leaves to its controller-manager. Its time is simulated."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC)
        self._loop = looptime.new_event_loop()
        self.server = self._loop.run_until_complete(self._made())

    async def _made(self) -> ApiServer:
        server = ApiServer(now=lambda: self.now, random=Random(1))
        absent = (GarbageCollector, Namespaces)
        server.store.observers = [
            each for each in server.store.observers if not isinstance(getattr(each, "__self__", None), absent)
        ]
        return server

    def close(self) -> None:
        """End it."""
        self.server.close()
        self._loop.close()

    def ask(self, step: Step) -> Answer:
        """Handle the request, and what follows it in the background."""
        return self._loop.run_until_complete(self._answer(step))

    async def _answer(self, step: Step) -> Answer:
        headers = {"accept": step.accept, "user-agent": AGENT}
        body = _payload(step)
        if body:
            headers["content-type"] = step.media
        answer = await self.server.handle(Request(step.method, step.path, step.query, headers, body))
        if not isinstance(answer, Response):
            return Answer(answer.code, [json.loads(line) async for line in _all(answer.lines)], answer.warnings)
        await self.server.background.settled()
        return Answer(answer.code, _decoded(answer.body, step), answer.warnings, answer.content_type)


async def _all(lines: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    async with contextlib.aclosing(lines):
        async for line in lines:
            yield line


def _payload(step: Step) -> bytes:
    if step.body is None:
        return b""
    return (step.body if isinstance(step.body, str) else json.dumps(step.body)).encode()


def _decoded(data: bytes, step: Step) -> Any:
    try:
        if step.watch:
            lines = [json.loads(line) for line in data.splitlines()]
            if len(lines) == 1 and lines[0].get("kind") == "Status":
                return lines[0]
            return lines
        return json.loads(data)
    except ValueError:
        return data.decode(errors="replace")


def _unquoted(header: str) -> str:
    text = header.removeprefix('299 - "').removesuffix('"')
    return text.replace('\\"', '"').replace("\\\\", "\\")


@dataclass
class Memory:
    """What one server has told in a sequence, and so what a later step's ``@`` stands for there."""

    name: str
    objects: dict[str, JsonObject] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)
    list_version: str = ""
    token: str = ""

    def resolved(self, step: Step) -> Step:
        """The request itself."""
        path = step.path.replace(SEQ, self.name)
        body = self._resolve(step.body)
        if step.onto:
            body = merged(self.objects.get(path.removesuffix("/status"), {}), body)
        query = [(key, self._resolve(value)) for key, value in step.query]
        return replace(step, path=path, query=query, body=body)

    def _resolve(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value.replace(SEQ, self.name))
        if isinstance(value, list):
            return [self._resolve(item) for item in value]
        if isinstance(value, dict):
            return {name.replace(SEQ, self.name): self._resolve(item) for name, item in value.items()}
        return value

    def _text(self, text: str) -> str:
        if text == LIST_VERSION:
            return self.list_version or "0"
        if text == CONTINUE:
            return self.token
        for mark, of in ((VERSION, self._version), (OLD_VERSION, self._old_version), (UID, self._uid)):
            if text.startswith(mark):
                return of(text.removeprefix(mark))
        return text

    def _version(self, path: str) -> str:
        return str(self.objects.get(path, {}).get("metadata", {}).get("resourceVersion", "1"))

    def _old_version(self, path: str) -> str:
        return self.first.get(path, "1")

    def _uid(self, path: str) -> str:
        return str(self.objects.get(path, {}).get("metadata", {}).get("uid", "6f0f3fd7-0000-4000-8000-000000000000"))

    def note(self, step: Step, answer: Answer) -> None:
        """Keep what *answer* to the resolved *step* told."""
        body = answer.body
        if step.watch or answer.code >= 300 or not isinstance(body, dict) or "metadata" not in body:
            return
        metadata = body["metadata"]
        if "items" in body or "rows" in body:
            self.list_version = self.list_version or metadata.get("resourceVersion", "")
            self.token = metadata.get("continue") or self.token
        elif metadata.get("resourceVersion") and "uid" in metadata:  # a dry run's creation has no version
            path = step.path.removesuffix("/status")
            if step.method == "POST":
                path = f"{path}/{metadata['name']}"
            self.objects[path] = body
            self.first.setdefault(path, metadata["resourceVersion"])
