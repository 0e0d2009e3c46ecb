"""`kargo-py why`: how an explanation is shown, and what is said of what may not be read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from kargo_py.cli import why
from kargo_py.cli.objects import Session, Where
from kargo_py.cli.options import check_answer, wait_timeout
from kargo_py.cli.why import Options, explanation, lines
from kargo_py.controllers.why import Explanation, Statement
from kargo_py.controllers.world import FREIGHTS, PROMOTIONS, STAGES
from kargo_py.kube.clock import utc_now
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.errors import Forbidden, NotFound, Unreachable
from kargo_py.kube.resources import Key, Resource
from kargo_py.kube.rest import RestClient
from kargo_py.local.apiserver.client import client_of
from tests.in_process import api_server, create_namespaces

JsonObject = dict[str, Any]
IN_THE_CLUSTER = Options()
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def told(*reasons: Statement, unseen: tuple[str, ...] = ()) -> list[str]:
    return lines(Explanation("Promotion", "shop", "dev.1", "Running", "2026-11-30T11:56:00Z", reasons, unseen), NOON)


class TestLines:
    """How it is shown."""

    def test_headline(self) -> None:
        """What it is about, how it stands and since when; and that nothing keeps it back where nothing does."""
        assert told() == [
            'Promotion "dev.1" in namespace "shop" is Running, since 2026-11-30T11:56:00Z (4m)',
            "- nothing keeps it back",
        ]

    @pytest.mark.parametrize(
        ("statement", "line"),
        [
            (Statement("it waits"), "- it waits"),
            (Statement("it waits", since="2026-11-30T11:59:00Z"), "- it waits, since 2026-11-30T11:59:00Z (60s)"),
            (Statement("it ended", at="2026-11-30T11:59:00Z"), "- it ended, at 2026-11-30T11:59:00Z (60s ago)"),
            (
                Statement("it runs", since="2026-11-30T12:03:04Z", clock="Argo CD"),
                "- it runs, since 2026-11-30T12:03:04Z (Argo CD's clock)",
            ),
            (
                Statement("it ended", at="2026-11-30T12:03:04Z", clock="Argo CD"),
                "- it ended, at 2026-11-30T12:03:04Z (Argo CD's clock)",
            ),
            (Statement("it waits", since="yesterday"), "- it waits, since yesterday (?)"),
            (Statement("a\r\x1b[2Jb"), "- a [2Jb"),
        ],
    )
    def test_times(self, statement: Statement, line: str) -> None:
        """How long ago is told by clocks that may be compared with ours, and Argo CD's time as it is."""
        assert told(statement)[1] == line

    def test_lines(self) -> None:
        """Faults stand below each other, and a caret where it points."""
        text = "it cannot run: steps[0].uses: no\nsteps[1].config.a: no\n | ${{  1 + }}\n | ........^\n\n"
        assert told(Statement(text, at="2026-11-30T11:59:00Z"), Statement("b"))[1:] == [
            "- it cannot run: steps[0].uses: no, at 2026-11-30T11:59:00Z (60s ago)",
            "  steps[1].config.a: no",
            "   | ${{  1 + }}",
            "   | ........^",
            "- b",
        ]
        assert told(Statement("a\n" * 1000))[-2:] == ["  a", "  …"]

    def test_long(self) -> None:
        """A message as long as an object may be is cut; the JSON has it whole."""
        statement = Statement("x" * 100_000)
        assert len(told(statement)[1]) == 2002
        assert len(statement.wire()["text"]) == 100_000

    def test_unseen(self) -> None:
        """What could not be seen stands apart."""
        assert told(Statement("it waits"), unseen=("the queue could not be seen: no",))[1:] == [
            "- it waits",
            "? the queue could not be seen: no",
        ]

    @given(st.text(), st.text(), st.text(), st.sampled_from(["", "Argo CD"]))
    def test_any(self, text: str, since: str, at: str, clock: str) -> None:
        """Whatever somebody wrote into an object, each reason is printable, and where it begins can be seen."""
        found = told(Statement(text, since, at, clock))
        assert found[1].startswith("- ")
        assert all(line.startswith("  ") for line in found[2:])
        assert all(line.isprintable() for line in found)


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RestClient]:
    """A server with a Stage, Freight, a Promotion that waits and one that runs on an Application."""
    client = client_of(api_server(utc_now))
    await create_namespaces(client, "shop", "argocd")
    origin = {"kind": "Warehouse", "name": "wh"}
    steps = [{"uses": "argocd-update", "as": "update", "config": {"apps": [{"name": "shop-dev"}]}}]
    promotion = {"spec": {"stage": "dev", "freight": "f1", "steps": steps}}
    stage = {
        "requestedFreight": [{"origin": origin, "sources": {"direct": True}}],
        "promotionTemplate": {"spec": {"steps": steps}},
    }
    for resource, name, parts in (
        (STAGES, "dev", {"spec": stage}),
        (FREIGHTS, "f1", {"origin": origin, "alias": "brave-bear", "images": [{"repoURL": "r.example.com/shop"}]}),
        (PROMOTIONS, "dev.1", promotion),
        (PROMOTIONS, "dev.2", promotion),
    ):
        head = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}
        await client.create(resource, "shop", encode({**head, **parts}), codec=JSON)
    record = {
        "kind": "argocd",
        "namespace": "argocd",
        "name": "shop-dev",
        "uid": "a1",
        "step": "update",
        "attempt": 1,
        "stamp": "v1/here/shop/dev.1/u/update/1",
        "resourceVersion": "1",
    }
    entered = {"alias": "update", "status": "Running", "startedAt": "2026-11-30T11:59:00Z"}
    running = {
        "phase": "Running",
        "currentStep": 0,
        "stepExecutionMetadata": [entered],
        "state": {"kargo-py.io/operations": [record]},
    }
    here = {"items": {"Warehouse/wh": {"name": "f1"}}}
    check = {"uses": "argocd-update", "config": {"apps": [{"name": "shop-dev"}]}}
    on = {
        "currentPromotion": {"name": "dev.1"},
        "freightHistory": [here],
        "health": {"status": "Healthy", "config": {"checks": [check]}},
    }
    for resource, name, status in ((PROMOTIONS, "dev.1", running), (STAGES, "dev", on)):
        await client.patch(resource, Key("shop", name), encode({"status": status}), codec=JSON, subresource="status")

    @asynccontextmanager
    async def connected(_where: Where) -> AsyncIterator[Session]:
        yield Session(client, "shop")

    monkeypatch.setattr(why, "connected", connected)
    yield client
    await client.close()


def refuse(monkeypatch: pytest.MonkeyPatch, error: Exception, *resources: str) -> None:
    """Let reads of *resources* fail."""
    get, listing = RestClient.get, RestClient.list

    async def refused_get(client: RestClient, resource: Resource, key: Key, **options: Any) -> Any:
        if resource.plural in resources:
            raise error
        return await get(client, resource, key, **options)

    async def refused_list(client: RestClient, resource: Resource, *args: Any, **options: Any) -> Any:
        if resource.plural in resources or f"list {resource.plural}" in resources:
            raise error
        return await listing(client, resource, *args, **options)

    monkeypatch.setattr(RestClient, "get", refused_get)
    monkeypatch.setattr(RestClient, "list", refused_list)


async def explained(resource: Resource, name: str, options: Options = IN_THE_CLUSTER) -> str:
    found = await explanation(resource, name, Where(), options)
    return "\n".join(lines(found, NOON))


@pytest.mark.usefixtures("server")
class TestReading:
    """What is read, and what is said where that is not allowed."""

    async def test_everything_seen(self) -> None:
        """Queue, Stage, Freight and Application are looked at."""
        assert "number 1 of 1 that wait" in await explained(PROMOTIONS, "dev.2")
        assert 'Application "shop-dev" in namespace "argocd" does not exist any more' in await explained(
            PROMOTIONS, "dev.1"
        )
        stage = await explained(STAGES, "dev")
        assert "Freight brave-bear (f1) of Warehouse/wh is here" in stage
        assert 'Promotion "dev.1" runs' in stage
        assert '1 more in the queue, the next one is "dev.2"' in stage
        assert "\n?" not in stage

    @pytest.mark.parametrize(
        ("error", "told"),
        [
            (Forbidden(403, "Forbidden", "ann may not"), "ann may not; ask for the right to do that"),
            (NotFound(404, "NotFound", "the server could not find the requested resource"), "does not serve"),
            (Unreachable("connection refused"), "connection refused"),
        ],
    )
    async def test_nothing_but_the_object(self, monkeypatch: pytest.MonkeyPatch, error: Exception, told: str) -> None:
        """What may not be read is named with the reason, and the rest is told all the same."""
        refuse(monkeypatch, error, "stages", "freights", "applications", "list promotions")
        running = await explained(PROMOTIONS, "dev.1")
        assert '? Argo CD Application "shop-dev" in namespace "argocd" could not be seen: ' in running
        assert '? Stage "dev" could not be seen: ' in running
        assert 'step 1 of 1, "update" of kind argocd-update, runs' in running
        assert told in running
        assert told in await explained(PROMOTIONS, "dev.2")

    async def test_a_stage_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The same for a Stage."""
        refuse(monkeypatch, Forbidden(403, "Forbidden", "ann may not"), "freights", "applications", "promotions")
        stage = await explained(STAGES, "dev")
        assert "its health is Healthy, as it was last judged" in stage
        for what in ("the queue", 'Freight "f1"', 'Argo CD Application "shop-dev" in namespace "argocd"'):
            assert f"? {what} could not be seen: ann may not" in stage

    async def test_argocd_elsewhere(self, tmp_path: Path) -> None:
        """A kubeconfig of Argo CD's cluster that cannot be used hides the Applications only."""
        options = Options(argocd_kubeconfig=str(tmp_path / "absent"))
        running = await explained(PROMOTIONS, "dev.1", options)
        assert f"could not be seen: kubeconfig {tmp_path / 'absent'}: no such file" in running
        assert "runs" in running


class TestWords:
    """Values of options."""

    def test_output(self) -> None:
        """Text or JSON, in any case."""
        assert [check_answer(word) for word in ("text", "JSON")] == ["text", "json"]
        with pytest.raises(ValueError, match=r"--output 'yaml': must be text or json"):
            check_answer("yaml")

    def test_timeout(self) -> None:
        """A duration; none stands for no end."""
        assert wait_timeout("0s") is None
        waited = wait_timeout("1m30s")
        assert waited is not None
        assert waited.total_seconds() == 90
        for wrong in ("soon", "-1s", ""):
            with pytest.raises(ValueError, match="--timeout"):
                wait_timeout(wrong)
