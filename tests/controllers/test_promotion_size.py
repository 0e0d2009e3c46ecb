"""How much of its Freight a Promotion embeds, and Promotions of Freight as large as an object can be."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kargo_py.api.freight import FreightOrigin, FreightReference, GitCommit
from kargo_py.api.promotion import FreightCollection
from kargo_py.controllers.promotion_size import embedded
from kargo_py.controllers.world import FREIGHTS, PROMOTIONS
from kargo_py.steps.argocd_update import USES
from tests.protocol.universe import APP, PROJECT, REPO, SHA, universe

ORIGIN = FreightOrigin(kind="Warehouse", name="wh")
SLIM = FreightReference(name="f1", origin=ORIGIN)


def whole(size: int) -> FreightReference:
    return SLIM.replace(commits=[GitCommit(repo_url=REPO, id=SHA, message="m" * size)])


def collection(of: FreightReference) -> FreightCollection:
    return FreightCollection().with_freight(of)


@pytest.mark.parametrize(
    ("room", "freight", "kept"),
    [
        (5000, whole(1000), whole(1000)),
        (2000, whole(1000), SLIM),
        (100, SLIM, SLIM),
        (-1, SLIM, SLIM),
    ],
)
def test_what_is_embedded(room: int, freight: FreightReference, kept: FreightReference) -> None:
    """The copy in the collection goes first, then the other; names and origins stay."""
    expected = (freight, collection(kept))
    assert embedded(whole(1000), collection(whole(1000)), room) == expected


@pytest.mark.looptime
@pytest.mark.parametrize("size", [700, 1400])
async def test_freight_of_a_megabyte(size: int) -> None:
    """It is promoted as any other, though twice its content would be more than the Promotion can be."""
    async with universe() as (world, _), world.process() as process:
        origin = ORIGIN.wire()
        commits: list[Any] = [{"repoURL": REPO, "id": SHA, "message": "m" * 900} for _ in range(size)]
        await world._create(FREIGHTS, "big", origin=origin, commits=commits)
        source = {"repoURL": REPO, "desiredRevision": SHA, "updateTargetRevision": True}
        step = {"uses": USES, "config": {"apps": [{"name": APP.name, "sources": [source]}]}}
        await world._create(PROMOTIONS, "p1", spec={"stage": "dev", "freight": "big", "steps": [step]})
        assert await world.ended() == "Succeeded"
        assert world.promotion()["status"]["freight"]["name"] == "big"
        await asyncio.sleep(60)
        written = len(process.line.writes)
        await asyncio.sleep(600)
        assert len(process.line.writes) == written
        stage = next(iter(world.core.store.collection("kargo.akuity.io", "stages").items.values())).obj
        assert stage["status"]["freightSummary"] == "big"
        assert {"namespace": PROJECT, "name": "dev"}.items() <= stage["metadata"].items()
