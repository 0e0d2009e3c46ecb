"""Argo CD in another cluster than Kargo: each API server may be away for minutes, and nobody draws false conclusions.

An API server is away in three ways: it refuses connections, everything to it breaks, or it is silent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any

import pytest

import kargo_py
from kargo_py.controllers.world import FREIGHTS, STAGES
from kargo_py.deployers.argocd import ArgoCD
from kargo_py.deployers.base import Record
from kargo_py.kube.errors import KubeError
from kargo_py.kube.exchange import Answer, BrokenOff, NoAnswer, NotSent, Request
from kargo_py.kube.resources import Key
from kargo_py.kube.rest import RestClient, Settings
from kargo_py.local.apiserver import wire
from kargo_py.local.apiserver.client import InProcessTransport
from kargo_py.local.argocd.simulator import ArgoCD as SimulatedArgoCD
from kargo_py.steps import argocd_update
from kargo_py.steps.passes import look_last
from tests.protocol.universe import APP, PROJECT, Universe

pytestmark = pytest.mark.looptime

AWAY = ["refused", "broken", "silent"]
MINUTE = 60.0


class Door:
    """Stands before a server: open watches break, or are silent, while it is away."""

    def __init__(self, server: wire.Handler) -> None:
        self._server = server
        self.away = ""
        self.changed = asyncio.Event()

    async def handle(self, request: wire.Request) -> wire.Response | wire.Stream:
        answer = await self._server.handle(request)
        if isinstance(answer, wire.Stream):
            return wire.Stream(answer.code, self._lines(answer), answer.content_type, answer.warnings)
        return answer

    async def _lines(self, stream: wire.Stream) -> AsyncGenerator[bytes]:
        async with aclosing(stream.lines) as lines:
            while True:
                line = asyncio.ensure_future(anext(lines, b""))
                cut = asyncio.ensure_future(self._cut())
                try:
                    await asyncio.wait([line, cut], return_when=asyncio.FIRST_COMPLETED)
                    if cut.done():
                        raise wire.Dropped(carried_out=False)
                    if not (text := await line):
                        return
                finally:
                    for task in (line, cut):
                        task.cancel()
                    await asyncio.wait([line, cut])
                if self.away:
                    # Silent: what is on its way does not arrive, until the receiver has given up.
                    await asyncio.Event().wait()
                yield text

    def leave(self, how: str) -> None:
        """Be away in one of the three ways."""
        self.away = how
        self.changed.set()

    def come_back(self) -> None:
        """Serve again."""
        self.away = ""

    async def _cut(self) -> None:
        while self.away not in {"refused", "broken"}:
            self.changed.clear()
            await self.changed.wait()


class Line(InProcessTransport):
    """The way to a server that may be away."""

    def __init__(self, door: Door) -> None:
        super().__init__(door, user_agent="kargo-py")
        self._door = door

    @asynccontextmanager
    async def sent(self, request: Request) -> AsyncGenerator[Answer]:
        match self._door.away:
            case "refused":
                raise NotSent("Connection refused")
            case "broken":
                raise BrokenOff("reset by peer")
            case "silent":
                await asyncio.sleep(request.limits.total or request.limits.ready or 0)
                raise NoAnswer
        async with super().sent(request) as answer:
            yield answer


class Pair:
    """Two clusters: Kargo's objects are *here*, Argo CD and its Application *there*."""

    def __init__(self, argo: SimulatedArgoCD, here: Universe, there: Universe) -> None:
        self.argo = argo
        self.here, self.there = here, there
        self.kargos, self.argocds = Door(here.core), Door(there.core)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[kargo_py.Controllers]:
        clients = [RestClient(Line(door), Settings()) for door in (self.kargos, self.argocds)]
        controllers = kargo_py.Controllers(clients[0], argocd=clients[1], instance="me", now=self.here.now)
        async with controllers:
            yield controllers

    async def verified(self) -> None:
        freight = Key(PROJECT, "f1")
        await self.here.until(
            lambda: "dev" in (self.here._object(FREIGHTS, freight).get("status") or {}).get("verifiedIn", {})
        )

    def stage(self) -> Any:
        return self.here._object(STAGES, Key(PROJECT, "dev")).get("status") or {}

    def operation_state(self) -> Any:
        return (self.there.app().get("status") or {}).get("operationState") or {}


@asynccontextmanager
async def two_clusters() -> AsyncIterator[Pair]:
    here, there = Universe(), Universe()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(here.core)
        await stack.enter_async_context(there.core)
        argo = await stack.enter_async_context(there.argocd())
        await here.prepare()
        await there.prepare()
        yield Pair(argo, here, there)


def starts(pair: Pair) -> list[str]:
    """The operations that were asked for there, each once."""
    marks = []
    for version in pair.there.versions:
        info = (version.get("operation") or {}).get("info") or []
        marks += [each["value"] for each in info if each["name"] == "kargo-py.io/stamp"]
    return list(dict.fromkeys(marks))


async def test_all_is_well() -> None:
    """The Application there is synced, its namesake here is left alone, and only the Promotion here was written."""
    async with two_clusters() as pair, pair.running() as controllers:
        before = pair.here.app()
        await pair.here.promote()
        assert await pair.here.ended() == "Succeeded"
        await pair.verified()
        assert pair.here.app() == before
        assert len(starts(pair)) == 1
        assert set(controllers.shared.assembly.servers) == {"kargo", "argocd"}


@pytest.mark.parametrize("how", AWAY)
@pytest.mark.parametrize("minutes", [3, 12], ids=["less than the time-out", "more"])
async def test_argocds_server_is_away_while_a_sync_ends(how: str, minutes: int) -> None:
    """The Promotion runs on, whatever its time-out: nothing is said to be lost. Back, it is what the sync was."""
    async with two_clusters() as pair, pair.running() as controllers:
        pair.argo.application(APP.name).next_sync(duration=90)
        await pair.here.promote()
        await pair.there.until(lambda: pair.operation_state().get("phase") == "Running")
        pair.argocds.leave(how)
        await asyncio.sleep(2 * MINUTE)
        assert pair.operation_state()["phase"] == "Succeeded"
        well, said = controllers.shared.ready()
        assert (well, "[-]cache/applications.argoproj.io" in said) == (False, True)
        assert "[+]cache/promotions.kargo.akuity.io" in said
        await asyncio.sleep((minutes - 2) * MINUTE)
        assert pair.here.phase() == "Running"
        pair.argocds.come_back()
        assert await pair.here.ended() == "Succeeded"
        await pair.verified()
        await asyncio.sleep(MINUTE)  # so long may it be until the watch is tried again
        assert controllers.shared.ready()[0]
        assert len(starts(pair)) == 1


@pytest.mark.parametrize("how", AWAY)
async def test_a_sync_that_did_not_end_in_its_time(how: str) -> None:
    """While its server is away that is not said; the message says why. Back, the time-out counts."""
    async with two_clusters() as pair, pair.running():
        pair.argo.application(APP.name).next_sync(hang=True)
        await pair.here.promote()
        await pair.there.until(lambda: pair.operation_state().get("phase") == "Running")
        pair.argocds.leave(how)
        await asyncio.sleep(12 * MINUTE)
        assert pair.here.phase() == "Running"
        told = pair.here.promotion()["status"]["stepExecutionMetadata"][-1]["message"]
        assert told.startswith("the time of 5m0s is up, and whether the sync ended in it cannot be seen: ")
        pair.argocds.come_back()
        assert await pair.here.ended(seconds=120) == "Failed"
        assert "timed out after 5m0s" in pair.here.message()


@pytest.mark.parametrize("how", AWAY)
async def test_argocds_server_is_away_while_it_is_waited_for(how: str) -> None:
    """Nor does an argocd-wait say that something did not come true before it has looked; back, it sees that it has."""
    async with two_clusters() as pair, pair.running():
        pair.argo.application(APP.name).health("Progressing")
        config = {"apps": [{"name": APP.name}]}
        await pair.here.run(*({"uses": uses, "config": config} for uses in ("argocd-update", "argocd-wait")))
        await asyncio.sleep(20)
        pair.argocds.leave(how)
        await asyncio.sleep(MINUTE)
        pair.argo.application(APP.name).health("Healthy")
        await asyncio.sleep(12 * MINUTE)
        assert pair.here.phase() == "Running"
        told = pair.here.promotion()["status"]["stepExecutionMetadata"][-1]["message"]
        assert told.startswith("the time of 5m0s is up, and whether it came true cannot be seen: ")
        pair.argocds.come_back()
        assert await pair.here.ended(seconds=120) == "Succeeded"


@pytest.mark.parametrize("how", AWAY)
async def test_argocds_server_is_away_at_the_beginning(how: str) -> None:
    """A Promotion that cannot start anything waits; back, it starts once, and has its whole time."""
    async with two_clusters() as pair, pair.running():
        pair.argocds.leave(how)
        await pair.here.promote()
        await asyncio.sleep(12 * MINUTE)
        assert pair.here.phase() in {"Pending", "Running"}
        pair.argocds.come_back()
        assert await pair.here.ended() == "Succeeded"
        await pair.verified()
        assert len(starts(pair)) == 1


async def test_argocds_server_is_back_between_a_start_and_the_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start that was not answered is tried once more where the look that follows it is: it could begin now."""
    async with two_clusters() as pair, pair.running():
        looks: list[KubeError | None] = []

        async def back(argocd: ArgoCD, records: Iterable[Record]) -> KubeError | None:
            if looks:
                pair.argocds.come_back()
            looks.append(await look_last(argocd, records))
            return looks[-1]

        monkeypatch.setattr(argocd_update, "look_last", back)
        pair.argocds.leave("silent")
        await pair.here.promote()
        assert await pair.here.ended() == "Succeeded"
        assert len(starts(pair)) == 1
    assert looks[0] is not None
    assert looks[1] is None


@pytest.mark.parametrize("how", AWAY)
async def test_an_abort_while_argocds_server_is_away(how: str) -> None:
    """It is waited for as long as aborts are; the end says that the operation was left, and does not pretend."""
    async with two_clusters() as pair, pair.running():
        pair.argo.application(APP.name).next_sync(hang=True)
        await pair.here.promote()
        await pair.there.until(lambda: pair.operation_state().get("phase") == "Running")
        pair.argocds.leave(how)
        await pair.here.abort()
        await asyncio.sleep(5 * MINUTE)
        assert pair.here.phase() == "Running"
        assert await pair.here.ended(seconds=10 * MINUTE) == "Aborted"
        assert "it was left as it is" in pair.here.message()
        assert pair.operation_state()["phase"] == "Running"


@pytest.mark.parametrize("how", AWAY)
async def test_an_abort_that_can_be_carried_out_after_all(how: str) -> None:
    """Back in time, the operation is terminated, and only then the Promotion is Aborted."""
    async with two_clusters() as pair, pair.running():
        pair.argo.application(APP.name).next_sync(hang=True)
        await pair.here.promote()
        await pair.there.until(lambda: pair.operation_state().get("phase") == "Running")
        pair.argocds.leave(how)
        await pair.here.abort()
        await asyncio.sleep(4 * MINUTE)
        pair.argocds.come_back()
        assert await pair.here.ended(seconds=3 * MINUTE) == "Aborted"
        assert pair.operation_state()["phase"] == "Failed"
        assert "Operation terminated" in pair.here.message()


@pytest.mark.parametrize("how", AWAY)
@pytest.mark.parametrize("seconds", [0.02, 1.0], ids=["in the first writes", "while it runs"])
async def test_kargos_server_is_away(how: str, seconds: float) -> None:
    """The sync goes on without us; when the server is back its end is written, and the Freight verified."""
    async with two_clusters() as pair, pair.running() as controllers:
        pair.argo.application(APP.name).next_sync(duration=90)
        await pair.here.promote()
        await asyncio.sleep(seconds)
        pair.kargos.leave(how)
        await asyncio.sleep(10 * MINUTE)
        well, said = controllers.shared.ready()
        assert (well, "[-]cache/promotions.kargo.akuity.io" in said) == (False, True)
        pair.kargos.come_back()
        assert await pair.here.ended() == "Succeeded"
        await pair.verified()
        assert len(starts(pair)) == 1


@pytest.mark.parametrize("how", AWAY)
async def test_both_are_away(how: str) -> None:
    """They come back one after the other, in either order."""
    for first in (0, 1):
        async with two_clusters() as pair, pair.running():
            doors = [pair.kargos, pair.argocds]
            await pair.here.promote()
            await pair.there.until(lambda: pair.operation_state().get("phase") == "Running")
            for door in doors:
                door.leave(how)
            await asyncio.sleep(3 * MINUTE)
            doors[first].come_back()
            await asyncio.sleep(3 * MINUTE)
            doors[1 - first].come_back()
            assert await pair.here.ended() == "Succeeded"
            await pair.verified()
            assert len(starts(pair)) == 1
