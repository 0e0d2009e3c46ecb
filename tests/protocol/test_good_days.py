"""A Promotion from end to end in simulated time."""

from __future__ import annotations

import pytest

from kargo_py.local.argocd.timing import Version
from tests.protocol.universe import SHA, universe

pytestmark = [pytest.mark.looptime, pytest.mark.usefixtures("both_definitions")]


@pytest.mark.parametrize("version", list(Version))
async def test_a_promotion(version: Version) -> None:
    """One start, one sync, Succeeded, and the Stage is Healthy."""
    async with universe(version) as (world, _), world.process():
        await world.promote()
        assert await world.ended() == "Succeeded"

    assert world.runs()[-1][1] == "Succeeded"
    assert len(world.starts()) == 1
    (operation,) = world.operations()
    assert (operation["state"], operation["revision"]) == ("Succeeded", SHA)
