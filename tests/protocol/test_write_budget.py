"""What a Promotion costs the API server, counted; docs/explanation/write-budget.md has the same figures."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from kargo_py.controllers.world import FREIGHTS, PROMOTIONS, STAGES
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.resources import Key
from kargo_py.kube.rest import RestClient
from kargo_py.local.argocd.simulator import ArgoCD
from kargo_py.steps.argocd_update import USES
from tests.protocol.universe import APP, PROJECT, REPO, Line, Universe, universe

pytestmark = pytest.mark.looptime

PAGE = (Path(__file__).resolve().parents[2] / "docs/explanation/write-budget.md").read_text()
SETTLED = 30
"""Seconds after which nothing is left to be written."""

RESOURCES = ("stages", "promotions", "applications", "freights", "events")


def requests(line: Line) -> Counter[str]:
    """What a process has sent, but for lists and watches, which cost the same however much is promoted."""
    client = line._server
    assert isinstance(client, RestClient)
    return Counter({call: n for call, n in client.stats.requests.items() if call.split()[0] not in {"list", "watch"}})


@dataclass
class Desk:
    """Where Promotions are made: each brings Freight of its own to the same Stage."""

    world: Universe
    argo: ArgoCD
    made: int = 0

    async def create(self, *, bare: bool = False) -> str:
        """Create Freight, and a Promotion of it; its name. *bare*: as little of it as can be."""
        self.made += 1
        name, commit = f"p{self.made}", f"{self.made:040x}"
        origin = {"kind": "Warehouse", "name": "wh"}
        await self.world._create(FREIGHTS, f"of-{name}", origin=origin, commits=[{"repoURL": REPO, "id": commit}])
        if bare:
            await self.world.create(PROMOTIONS, name, {"spec": {"stage": "dev", "freight": f"of-{name}"}})
            return name
        source = {"repoURL": REPO, "desiredRevision": commit, "updateTargetRevision": True}
        step = {"uses": USES, "as": "sync", "config": {"apps": [{"name": APP.name, "sources": [source]}]}}
        await self.world._create(PROMOTIONS, name, spec={"stage": "dev", "freight": f"of-{name}", "steps": [step]})
        return name

    async def promote(self, phase: str = "Succeeded") -> None:
        """Create one, and wait until it has ended."""
        assert await self.world.ended(await self.create()) == phase

    async def hold_up(self) -> str:
        """Create one that waits for a hook."""
        self.argo.application(APP.name).next_sync(hang=True)
        name = await self.create()
        await self.world.until(lambda: "hook" in str(self.world.promotion(name).get("status")))
        return name


async def _one(desk: Desk) -> None:
    await desk.promote()


async def _bare(desk: Desk) -> None:
    assert await desk.world.ended(await desk.create(bare=True)) == "Succeeded"


async def _three_queued(desk: Desk) -> None:
    names = [await desk.create() for _ in range(3)]
    for name in names:
        assert await desk.world.ended(name) == "Succeeded"


async def _held_up(desk: Desk) -> None:
    name = await desk.hold_up()
    await asyncio.sleep(200)
    desk.argo.application(APP.name).finish_hook()
    assert await desk.world.ended(name) == "Succeeded"


async def _failed(desk: Desk) -> None:
    desk.argo.application(APP.name).next_sync(fail="no")
    await desk.promote("Failed")


async def _aborted(desk: Desk) -> None:
    name = await desk.hold_up()
    await desk.world.abort(name)
    assert await desk.world.ended(name) == "Aborted"


FIRST = "the first of a Stage"
CASES: Mapping[str, Callable[[Desk], Awaitable[None]]] = {
    FIRST: _one,
    "one": _one,
    "one that has only a Stage and Freight": _bare,
    "three, created together": _three_queued,
    "one that a hook holds up for minutes": _held_up,
    "one whose sync fails": _failed,
    "one that is aborted while a hook runs": _aborted,
}


def told() -> dict[str, list[int]]:
    """The figures of the page: for each case the writes of each resource, their sum, and the reads."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.partition("| Promotions |")[2].splitlines()[2:]
        if line.startswith("|")
    ]
    return {row[0]: [int(cell) for cell in row[1:]] for row in rows[: len(CASES)]}


@pytest.mark.parametrize("case", CASES)
async def test_what_the_page_says(case: str) -> None:
    """Each case costs what the page says, on a Stage to which something was promoted before, but for the first."""
    async with universe() as (world, argo), world.process() as process:
        desk = Desk(world, argo)
        if case != FIRST:
            await desk.promote()
        await asyncio.sleep(SETTLED)
        before = requests(process.line)
        await CASES[case](desk)
        await asyncio.sleep(SETTLED)
        spent = requests(process.line) - before

    reads = sum(n for call, n in spent.items() if call.startswith("get "))
    written = {call: n for call, n in spent.items() if not call.startswith("get ")}
    writes = [sum(n for call, n in written.items() if call.split()[1] == resource) for resource in RESOURCES]
    assert [*writes, sum(writes), reads] == told()[case]
    assert sum(spent.values()) == sum(writes) + reads


async def test_what_is_looked_at() -> None:
    """A Stage is looked at when a Promotion is made, and not again while that runs, whatever Argo CD does.

    Then when it has ended, when Argo CD has looked at what it left, and when that has stood for long enough.
    """
    async with universe() as (world, argo), world.process() as process:
        desk = Desk(world, argo)
        await desk.promote()
        await asyncio.sleep(SETTLED)
        stages = process.stages.stats.reconciles
        argo.application(APP.name).next_sync(hang=True)
        name = await desk.create()
        await world.until(lambda: "hook" in str(world.promotion(name).get("status")))
        assert process.stages.stats.reconciles - stages == 1
        argo.application(APP.name).finish_hook()
        assert await world.ended(name) == "Succeeded"
        await asyncio.sleep(SETTLED)
        assert process.stages.stats.reconciles - stages == 4


async def test_a_promotion_of_another_stage_keeps_no_stage_from_being_judged() -> None:
    """A Stage may name one as its current Promotion, by somebody else's mistake: that is not waited for."""
    dev = Key(PROJECT, "dev")
    async with universe() as (world, argo), world.process():
        await Desk(world, argo).promote()
        await asyncio.sleep(SETTLED)
        await world.create(PROMOTIONS, "other", {"spec": {"stage": "elsewhere", "freight": "f1"}})
        body = encode({"status": {"currentPromotion": {"name": "other"}}})
        await world.user.patch(STAGES, dev, body, codec=JSON, subresource="status")
        argo.application(APP.name).health("Degraded")
        await world.until(lambda: world._object(STAGES, dev)["status"]["health"]["status"] == "Unhealthy")


def test_no_other_case() -> None:
    """The page has these cases and no other."""
    assert told().keys() == CASES.keys()
