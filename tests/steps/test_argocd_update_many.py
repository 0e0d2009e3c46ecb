"""argocd-update where a selector matches very many Applications: bounded, and nobody is delayed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from kargo_py.api.names import Actor
from kargo_py.api.promotion import StepStatus
from kargo_py.argocd.application import Application, ApplicationCodec
from kargo_py.deployers.argocd import ArgoCD
from kargo_py.deployers.argocd_admission import unauthorized
from kargo_py.deployers.argocd_health import check_config
from kargo_py.deployers.base import Record, TargetState, footprint
from kargo_py.kube.client import Codec, Page
from kargo_py.kube.codec import encode
from kargo_py.kube.resources import Resource
from kargo_py.steps import argocd_update_targets
from kargo_py.steps.argocd_update import ArgoCDUpdate
from kargo_py.steps.argocd_update_records import LEAST_EXTENT, bounded, extent
from kargo_py.steps.base import ROOM, Erred, Finished, Intend, StepContext
from tests.kube.fakes import ScriptedClient

pytestmark = pytest.mark.looptime

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
UID = "0b1e5a34-6c1d-4a5f-9d0a-0123456789ab"
SOURCE = {"repoURL": "https://git.example.com/shop", "desiredRevision": "a" * 40, "updateTargetRevision": True}
WEB: dict[str, Any] = {"selector": {"matchLabels": {"tier": "web"}}, "sources": [SOURCE]}


def application(name: str, stages: str | None = "shop:dev", parameters: int = 0) -> Application:
    """An Application of the tier."""
    source = {
        "repoURL": SOURCE["repoURL"],
        "targetRevision": "main",
        "helm": {"parameters": [{"name": "x" * parameters}]},
    }
    annotations = {"kargo.akuity.io/authorized-stage": stages} if stages is not None else {}
    meta = {"name": name, "namespace": "argocd", "uid": UID, "resourceVersion": "5", "labels": {"tier": "web"}}
    obj = {"metadata": {**meta, "annotations": annotations}, "spec": {"source": source, "destination": {}}}
    return ApplicationCodec().object(msgspec.json.encode(obj))


class Server(ScriptedClient):
    """Has these Applications, and takes no write."""

    def __init__(self, apps: Sequence[Application]) -> None:
        super().__init__()
        self.apps = apps
        self.selected = 0

    async def list(
        self, resource: Resource, namespace: str = "", *, codec: Codec[Any], label_selector: str = "", **options: Any
    ) -> Page[Any]:
        self.selected += bool(label_selector)
        return Page(list(self.apps), "5")


@asynccontextmanager
async def step(apps: Sequence[Application]) -> AsyncIterator[tuple[ArgoCDUpdate, ArgoCD, Server]]:
    """The step, on a server that has *apps*."""
    server = Server(apps)
    argocd = ArgoCD(server)
    task = asyncio.create_task(argocd.applications.run())
    await argocd.applications.wait_synced()
    try:
        yield ArgoCDUpdate(argocd), argocd, server
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def context(*entries: Any, room: int = ROOM, **more: Any) -> StepContext:
    name = "dev.01kbz8x4g2j3k4m5n6p7q8r9s0.0b1e5a3"
    return StepContext(UID, "shop", "dev", name, UID, Actor(None), "sync", {"apps": list(entries)}, NOON, NOON,
                       spare=lambda: room, **more)  # fmt: skip


async def test_thousands_are_refused() -> None:
    """Before they are looked at one by one; nothing is kept of them."""
    async with step([application(f"a{number}") for number in range(5000)]) as (update, argocd, server):
        outcome = await update.run(context(WEB))

        assert not argocd._attempts
    assert isinstance(outcome, Finished)
    assert outcome.status is StepStatus.ERRORED
    assert outcome.message == (
        "5000 Applications are too many for one step: there is room for the records of 403 at most"
    )
    assert server.selected == 0


async def test_a_few_among_thousands() -> None:
    """Most belong to others: that is no reason to refuse, and what is said of them does not grow with them."""
    others = [application(f"b{number:04}", "other:dev" if number % 2 else None) for number in range(5000)]
    async with step([application("a1"), *others, application("a2")]) as (update, _, _):
        outcome = await update.run(context(WEB))

    assert isinstance(outcome, Intend)
    assert [record.name for record in outcome.records] == ["a1", "a2"]
    assert outcome.output is not None
    assert outcome.output["leftOut"]["count"] == 5000
    assert len(encode(outcome.output)) < 4096
    assert len(outcome.warning) < 2048
    assert "; and 4997 more: b0003, " in outcome.warning


async def test_many_selectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is looked up once, and no Application is judged anew for each selector that matches it."""
    judged: Counter[str] = Counter()

    def counted(app: Application, stage: str) -> str | None:
        judged[app.metadata.name] += 1
        return unauthorized(app, stage)

    monkeypatch.setattr(argocd_update_targets, "unauthorized", counted)
    entries = [{"selector": {"matchLabels": {"tier": "web"}}, "sources": [SOURCE]} for _ in range(40)]
    async with step([application(f"a{number}") for number in range(200)]) as (update, _, server):
        outcome = await update.run(context(*entries))

    assert isinstance(outcome, Intend)
    assert [record.entries for record in outcome.records] == [tuple(range(40))] * 200
    assert server.selected == 40
    assert (len(judged), max(judged.values())) == (200, 2)


@pytest.mark.parametrize("annotation", ["x" * 200_000, ",".join(f"p:{n}" for n in range(40_000)), "a:" + "*" * 99_999])
async def test_what_others_wrote_is_quoted_in_part(annotation: str) -> None:
    """An annotation can have 256 KiB, a message cannot."""
    async with step([application("a"), application("b", annotation)]) as (update, _, _):
        outcome = await update.run(context(WEB))
        alone = await update.run(context({"name": "b"}))

    assert isinstance(outcome, Intend)
    assert '"b" in namespace "argocd" is not authorized' in outcome.warning
    assert len(outcome.warning) < 1024
    assert isinstance(alone, Erred)
    assert len(alone.message) < 1024


def ended(record: Record, among: int) -> Record:
    """*record* at its end, with as much as can be said of it."""
    full = msgspec.structs.replace(
        record,
        state=TargetState.SUCCEEDED,
        message="m" * 100_000,
        revisions=("a" * 40,),
        started_at="2026-11-30T12:00:00Z",
        finished_at="2026-11-30T12:00:00Z",
        free_since="2026-11-30T12:00:00Z",
        stopping_since="2026-11-30T12:00:00Z",
    )
    return bounded(full, among)


async def test_the_most_that_is_taken_fits() -> None:
    """At the end, too: with the longest messages, the output and the health check the Promotion is as small as said."""
    async with step([application(f"application-{number:03}") for number in range(270)]) as (update, _, _):
        outcome = await update.run(context(WEB))

    assert isinstance(outcome, Intend)
    records = [ended(record, len(outcome.records)) for record in outcome.records]
    output = [{"name": record.name, "namespace": record.namespace} for record in records]
    assert (
        footprint(records) + len(encode(output)) + len(encode(check_config(records))) < extent(outcome.records) < ROOM
    )


async def test_former_values_count() -> None:
    """What is to be changed may be large, and its former value is kept."""
    change = {**SOURCE, "helm": {"images": [{"key": "k", "value": "v"}]}}
    async with step([application(f"a{number}", parameters=20_000) for number in range(40)]) as (update, argocd, _):
        outcome = await update.run(context({**WEB, "sources": [change]}))

        assert not argocd._attempts
    assert isinstance(outcome, Finished)
    assert "40 Applications are too many for one step: their records need 8" in outcome.message


@pytest.mark.parametrize("room", [0, -1_000_000])
async def test_a_few_always_have_room(room: int) -> None:
    """However large the Promotion is without them."""
    async with step([application(f"a{number}") for number in range(20)]) as (update, _, _):
        outcome = await update.run(context(WEB, room=room))

    assert isinstance(outcome, Intend)


def test_the_first_estimate_is_low() -> None:
    """Nothing is refused by it that would have had room."""
    plainest = Record("argocd", "n", "a", UID, "s", 1, "v1/i/p/d/u/s/1", "1")

    assert extent([plainest] * 1000) > LEAST_EXTENT * 1000
