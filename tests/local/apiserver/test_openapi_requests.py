"""What the OpenAPI documents promise, asked at random by schemathesis: of the built-in kinds, and of a custom one."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from random import Random
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import hypothesis
import pytest
import requests
import schemathesis
from hypothesis import strategies as st
from schemathesis.core.result import Ok
from schemathesis.core.transport import Response as Received
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from kargo_py.local.apiserver.server import ApiServer
from kargo_py.local.apiserver.wire import Request, Response
from tests.local.apiserver.driving import DEFINITIONS, FOO

BASE = "http://127.0.0.1"
NAMES = ("default", "kube-system", "a", "A", "a b")
CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]
MODES = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
AS_THE_REAL_SERVER = re.compile(
    "json: cannot unmarshal |no kind |failed to create typed patch object |strconv.ParseUint: |resourceVersion: Invalid value: "
    "|resourceVersion should not be set on objects to be created|Timeout: Too large resource version"
)
"""The messages of its 5xx: it answers so, too."""


class Site:
    """The server's core, and what it says of itself."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.server = self.loop.run_until_complete(self._made())
        made = self.answer(Request("POST", DEFINITIONS, (), {}, json.dumps(FOO).encode()))
        assert made.code == 201, made.body
        self.documents = {name: self.document(name) for name in self.document("")["paths"]}

    async def _made(self) -> ApiServer:
        return ApiServer(now=lambda: datetime(2026, 1, 1, tzinfo=UTC), random=Random(1))

    def document(self, name: str) -> dict[str, Any]:
        """One of the OpenAPI documents; "" is the list of them."""
        found: dict[str, Any] = json.loads(self.answer(Request("GET", f"/openapi/v3/{name}".rstrip("/"))).body)
        return found

    def close(self) -> None:
        """End the server."""
        self.server.close()
        self.loop.close()

    def answer(self, request: Request) -> Response:
        """Answer one request; a watch is ended at once."""
        return self.loop.run_until_complete(self._answer(request))

    async def _answer(self, request: Request) -> Response:
        answer = await self.server.handle(request)
        await self.server.background.settled()
        if isinstance(answer, Response):
            return answer
        await answer.lines.aclose()
        return Response(answer.code, b"", "")


@pytest.fixture
def site() -> Iterator[Site]:
    """One for each test, as random requests may delete all definitions."""
    made = Site()
    yield made
    made.close()


def _received(answer: Response, request: requests.PreparedRequest) -> Received:
    headers = {"Content-Type": [answer.content_type], **{name: [value] for name, value in answer.headers.items()}}
    return Received(answer.code, headers, answer.body, request, 0.0, verify=False)


def _sent(prepared: requests.PreparedRequest, media: str | None) -> Request:
    parts = urlsplit(prepared.url or "")
    body = prepared.body or b""
    headers: Mapping[str, str] = {name.lower(): str(value) for name, value in prepared.headers.items()}
    if media and "*" in media:
        headers = {**headers, "content-type": "application/json"}
    data = body if isinstance(body, bytes) else str(body).encode()
    return Request(prepared.method or "", parts.path, parse_qsl(parts.query, keep_blank_values=True), headers, data)


@pytest.mark.nonblocking_exempt(reason="hypothesis looks at paths when an example fails, between the loop's turns")
@pytest.mark.parametrize(
    "name",
    [
        "api/v1",
        "apis/apiextensions.k8s.io/v1",
        "apis/authorization.k8s.io/v1",
        "apis/coordination.k8s.io/v1",
        "apis/events.k8s.io/v1",
        "apis/ex.io/v1",
    ],
)
def test_what_is_answered_is_as_described(site: Site, name: str) -> None:
    """No 5xx, codes and content types that the document names, and bodies as its schemas say."""
    schema = schemathesis.openapi.from_dict(site.documents[name])
    operations = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
    cases = st.one_of([operation.as_strategy(mode) for operation in operations for mode in MODES])

    @hypothesis.given(st.data())
    @hypothesis.settings(max_examples=25, suppress_health_check=list(hypothesis.HealthCheck))
    def ask(data: st.DataObject) -> None:
        case = data.draw(cases)
        for parameter in case.path_parameters or {}:
            if data.draw(st.booleans()):
                case.path_parameters[parameter] = data.draw(st.sampled_from(NAMES))
        prepared = requests.Request(**case.as_transport_kwargs(base_url=BASE)).prepare()
        answer = site.answer(_sent(prepared, case.media_type))
        assert answer.code < 500 or AS_THE_REAL_SERVER.match(json.loads(answer.body)["message"]), answer.body
        if answer.content_type:
            case.validate_response(_received(answer, prepared), checks=CHECKS)

    ask()
