"""Telling the story: it stops, and says why, as soon as something is not as told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kargo_py.controllers.world import PROMOTIONS
from kargo_py.demo.acts import Act, Annotate, Create, Hang, Look, Ref, Scene, Wait
from kargo_py.demo.picture import Picture
from kargo_py.demo.telling import ClientHands, NotAsTold, Sight, Teller
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.resources import Key
from tests.local.memory import MemoryClient

pytestmark = pytest.mark.looptime

JsonObject = dict[str, Any]

DEV = Ref(PROMOTIONS, Key("shop", "dev.1"))
PROMOTION: JsonObject = {
    "apiVersion": PROMOTIONS.api_version,
    "kind": "Promotion",
    "metadata": {"name": "dev.1", "namespace": "shop", "creationTimestamp": "2026-11-30T12:00:00Z"},
    "spec": {"freight": "f1"},
}


class Paper:
    """A screen that keeps what is shown."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.pictures: list[Picture] = []

    def scene(self, number: int, scene: Scene) -> None:
        self.lines.append(f"{number}. {scene.title}")

    def command(self, command: str) -> None:
        self.lines.append(f"$ {command}")

    def answer(self, text: str) -> None:
        self.lines += text.splitlines()

    def aside(self, text: str) -> None:
        self.lines.append(f"({text})")

    def show(self, picture: Picture) -> None:
        self.pictures.append(picture)


class Stand:
    """A story of one scene, told on an API server in memory."""

    def __init__(self, directory: Path) -> None:
        self.client = MemoryClient()
        self.paper = Paper()
        self.directory = directory
        self.hung: list[str] = []

    async def tell(self, *acts: Act, then: Sequence[tuple[float, JsonObject]] = ()) -> None:
        """Perform *acts*; *then* patches the Promotion so many seconds after the beginning."""
        sight = Sight(self.client)
        teller = Teller(self.paper, ClientHands(self.client), sight, self.directory, self.hung.append)
        async with sight.following(self.paper.show):
            telling = asyncio.create_task(teller.tell([Scene("Scene", "Told.", acts)]))
            for seconds, status in then:
                await asyncio.sleep(seconds)
                await self.client.patch(DEV.resource, DEV.key, encode({"status": status}), codec=JSON)
            await telling


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    return Stand(tmp_path)


async def test_a_story_that_goes_as_told(stand: Stand) -> None:
    """Everything is done, shown with what it answers, and written where the command says."""
    await stand.tell(
        Create("dev-1.yaml", [PROMOTION]),
        Hang("shop-dev"),
        Annotate(DEV, {"a/b": "c"}),
        Wait(DEV, ("status", "phase"), "Failed"),
        Look(DEV, ("status", "message"), ["because"]),
        then=[(1, {"phase": "Running"}), (1, {"phase": "Failed", "message": "just because"})],
    )

    assert [line for line in stand.paper.lines if not line.startswith("$")] == [
        "1. Scene",
        "promotion.kargo.akuity.io/dev.1 created",
        "(the next sync of Application shop-dev will hang)",
        "promotion.kargo.akuity.io/dev.1 annotated",
        "promotion.kargo.akuity.io/dev.1 condition met",
        "just because",
    ]
    assert stand.hung == ["shop-dev"]
    assert "name: dev.1" in await asyncio.to_thread((stand.directory / "dev-1.yaml").read_text)
    made = await stand.client.get(DEV.resource, DEV.key, codec=JSON)
    assert (made["metadata"]["annotations"], made["spec"]) == ({"a/b": "c"}, {"freight": "f1"})
    assert [picture.promotions[0].phase for picture in stand.paper.pictures] == ["", "", "Running", "Failed"]


SUCCEEDS = Wait(DEV, ("status", "phase"), "Succeeded", ["Failed", "Errored", "Aborted"])


@pytest.mark.parametrize(
    ("acts", "then", "seen"),
    [
        ([SUCCEEDS], [(1, {"phase": "Running"})], "expected Succeeded within 20 seconds; seen: Running"),
        (
            [SUCCEEDS],
            [(1, {"phase": "Failed", "message": "no way"})],
            "expected Succeeded within 20 seconds; seen: Failed: no way",
        ),
        ([Wait(DEV, ("status", "phase"))], [], "expected something within 20 seconds; seen: nothing there"),
        ([Look(DEV, ("spec", "freight"), ["f2", "f1"])], [], "expected “f2”; seen: f1"),
        ([Look(DEV, ("spec", "stage"), ["dev"])], [], "expected “dev”; seen: nothing"),
        ([Create("again.yaml", [PROMOTION])], [], "kubectl create -f again.yaml: "),
        ([Wait(Ref(PROMOTIONS, Key("shop", "x")), ("status",))], [], "seen: no promotion/x"),
    ],
    ids=["late", "in vain", "nothing", "other words", "no words", "refused", "no object"],
)
async def test_a_story_that_does_not(
    stand: Stand, acts: Sequence[Act], then: Sequence[tuple[float, JsonObject]], seen: str
) -> None:
    """What was expected and what is seen instead is said, with the command by which a user would see it."""
    with pytest.raises(NotAsTold) as told:
        await stand.tell(Create("dev-1.yaml", [PROMOTION]), *acts, then=then)

    assert seen in str(told.value)
    assert str(told.value).startswith(stand.paper.lines[-1].removeprefix("$ "))


async def test_a_vain_wait_is_given_up_at_once(stand: Stand) -> None:
    """A Promotion that has ended otherwise is not waited for any longer."""
    begun = asyncio.get_running_loop().time()
    with pytest.raises(NotAsTold):
        await stand.tell(Create("dev-1.yaml", [PROMOTION]), SUCCEEDS, then=[(1, {"phase": "Aborted"})])

    assert asyncio.get_running_loop().time() - begun < 2
