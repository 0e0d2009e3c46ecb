"""Faults before the embedded server: what a client then knows, and what is really there."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random

import msgspec
import pytest

from kargo_py.local.apiserver.faults import Drop, Faulty, Forget, Match, Refuse, Rule, Schedule, Stale
from kargo_py.local.apiserver.server import ApiServer
from kargo_py.local.apiserver.wire import JSON, Dropped, Response
from tests.local.apiserver.stubs import collect, content, request

pytestmark = pytest.mark.looptime

MAPS = "/api/v1/namespaces/default/configmaps"
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


class Bench:
    """A server and the faults before it."""

    def __init__(self, *rules: Rule) -> None:
        self.server = ApiServer(now=lambda: NOON, random=Random(1))
        self.faulty = Faulty(self.server, Schedule(rules), history=self.server.store)

    async def create(self, name: str) -> Response:
        body = msgspec.json.encode({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
        answer = await self.faulty.handle(request(f"POST {MAPS}", body=body, **{"content-type": JSON}))
        assert isinstance(answer, Response)
        return answer

    async def names(self, query: str = "") -> list[str]:
        found = content(await self.faulty.handle(request(f"GET {MAPS}{query}")))
        return [item["metadata"]["name"] for item in found["items"]]


@pytest.mark.parametrize("fault", [Refuse(504), Refuse(504, after=True), Drop(), Drop(after=True)])
async def test_write(fault: Drop | Refuse) -> None:
    """The client cannot tell whether a write was carried out; the server can."""
    bench = Bench(Rule(fault, Match(verb="create")))
    if isinstance(fault, Drop):
        with pytest.raises(Dropped) as dropped:
            await bench.create("a")
        assert dropped.value.carried_out is fault.after
    else:
        assert (await bench.create("a")).code == 504
    assert await bench.names() == (["a"] if fault.after else [])


async def test_stale() -> None:
    """A list and a get show an older state, and a list never one that is older than what it asks for."""
    bench = Bench(Rule(Stale(2), Match(verb="list"), first=2), Rule(Stale(2), Match(verb="get")))
    versions = [content(await bench.create(name))["metadata"]["resourceVersion"] for name in "abc"]

    assert await bench.names() == ["a", "b", "c"]
    assert await bench.names("?resourceVersion=0") == ["a"]
    assert await bench.names(f"?resourceVersion={versions[1]}") == ["a", "b"]
    assert content(await bench.faulty.handle(request(f"GET {MAPS}/b")))["reason"] == "NotFound"
    shown = content(await bench.faulty.handle(request(f"GET {MAPS}/a")))
    assert shown == content(await bench.server.handle(request(f"GET {MAPS}/a")))


async def test_forget() -> None:
    """Who watches from before is told to list again; who is current is not."""
    bench = Bench(Rule(Forget(), Match(verb="watch")))
    versions = [content(await bench.create(name))["metadata"]["resourceVersion"] for name in "ab"]

    answer = await bench.faulty.handle(request(f"GET {MAPS}?watch=1&resourceVersion={versions[0]}&timeoutSeconds=1"))
    if isinstance(answer, Response):
        assert (answer.code, content(answer)["reason"]) == (410, "Expired")
    else:
        (line,), _ = await collect(answer)
        assert msgspec.json.decode(line)["object"]["code"] == 410
    answer = await bench.faulty.handle(request(f"GET {MAPS}?watch=1&resourceVersion={versions[1]}&timeoutSeconds=1"))
    assert await collect(answer) == ([], False)


async def test_what_cannot_be_shown_late() -> None:
    """It is answered as ever: YAML of one object, a version that is none, and what is no object."""
    bench = Bench(Rule(Stale(2)))
    for name in "abc":
        await bench.create(name)

    answer = await bench.faulty.handle(request(f"GET {MAPS}/c", accept="application/yaml"))
    assert (answer.code, answer.content_type) == (200, "application/yaml")
    answer = await bench.faulty.handle(request(f"GET {MAPS}?resourceVersion={'1' * 5000}"))
    assert answer.code == 400
    assert content(await bench.faulty.handle(request("GET /apis")))["kind"] == "APIGroupList"
