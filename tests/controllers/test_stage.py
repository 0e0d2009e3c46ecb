"""Stages under whole controllers, with a simulated Argo CD and in simulated time."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kargo_py.api.promotion import Promotion
from kargo_py.argocd.application import APPLICATIONS
from kargo_py.controllers.promotion import PromotionReconciler
from kargo_py.controllers.stage import StageReconciler
from kargo_py.controllers.world import FREIGHTS, PROMOTIONS, STAGES
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.errors import Forbidden
from kargo_py.kube.events import EVENTS
from kargo_py.kube.resources import Key, Resource
from kargo_py.steps.argocd_update import USES
from tests.protocol.universe import APP, PROJECT, REPO, SHA, Line, Universe, universe

pytestmark = pytest.mark.looptime

JsonObject = dict[str, Any]

OURS = "kargo.akuity.io/finalizer"
CONTEXT = "kargo.akuity.io/argocd-context"
DEV = Key(PROJECT, "dev")
OTHER = "b" * 40


def stage(world: Universe, name: str = "dev") -> JsonObject:
    return world._object(STAGES, Key(PROJECT, name))


def freight(world: Universe, name: str = "f1") -> JsonObject:
    return world._object(FREIGHTS, Key(PROJECT, name))


def said(world: Universe, name: str = "f1") -> JsonObject:
    """What Freight says about Stages, without times."""
    status = freight(world, name).get("status", {})
    return {where: sorted(stages) for where, stages in status.items() if stages}


def is_there(world: Universe, resource: Resource, key: Key) -> bool:
    try:
        return bool(world._object(resource, key))
    except KeyError:
        return False


def condition(obj: JsonObject, type_: str) -> tuple[str, str]:
    found = [c for c in obj.get("status", {}).get("conditions", ()) if c["type"] == type_]
    return (found[0]["status"], found[0]["reason"]) if found else ("", "")


def is_ready(world: Universe, name: str = "dev") -> bool:
    return condition(stage(world, name), "Ready")[0] == "True"


async def until_ready(world: Universe) -> None:
    """Wait until the Stage is ready, and what is written after that is, too."""
    await world.until(lambda: is_ready(world))
    await asyncio.sleep(1)


async def patch(world: Universe, resource: Resource, key: Key, body: JsonObject, subresource: str = "") -> None:
    await world.user.patch(resource, key, encode(body), codec=JSON, subresource=subresource)


async def create_stage(
    world: Universe, name: str, *, steps: bool = True, origins: tuple[str, ...] = ("wh",), **sources: Any
) -> None:
    requested = [
        {"origin": {"kind": "Warehouse", "name": origin}, "sources": sources or {"direct": True}} for origin in origins
    ]
    template = {"promotionTemplate": {"spec": {"steps": [{"uses": USES, "config": {"apps": [{"name": APP.name}]}}]}}}
    await world._create(STAGES, name, spec={"requestedFreight": requested, **(template if steps else {})})


async def create_freight(world: Universe, name: str, warehouse: str = "wh", sha: str = SHA) -> None:
    origin = {"kind": "Warehouse", "name": warehouse}
    await world._create(FREIGHTS, name, origin=origin, commits=[{"repoURL": REPO, "id": sha}])


async def promote(world: Universe, name: str, to: str = "dev", what: str = "f1", app: str = APP.name) -> None:
    source = {"repoURL": REPO, "desiredRevision": SHA, "updateTargetRevision": True}
    step = {"uses": USES, "as": "sync", "config": {"apps": [{"name": app, "sources": [source]}]}}
    await world._create(PROMOTIONS, name, spec={"stage": to, "freight": what, "steps": [step]})


async def events(world: Universe, reason: str) -> list[JsonObject]:
    page = await world.user.list(EVENTS, PROJECT, codec=JSON)
    return [event for event in page.items if event["reason"] == reason]


def writes(line: Line, since: int = 0) -> Counter[str]:
    return Counter(where for where, _, _ in line.writes[since:])


# -- what a Promotion costs ------------------------------------------------------------------------------------------


async def test_the_writes_of_a_promotion() -> None:
    """Two Stage writes, two of the Promotion, the start, the Freight; the first in a Stage one more, for metadata."""
    async with universe() as (world, _), world.process() as process:
        await asyncio.sleep(5)
        created = len(process.line.writes)
        await world.promote("p1")
        await until_ready(world)
        first = len(process.line.writes)
        await asyncio.sleep(120)
        assert len(process.line.writes) == first
        await create_freight(world, "f2")
        await promote(world, "p2", what="f2")
        await world.until(lambda: said(world).get("currentlyIn") is None and is_ready(world))
        await asyncio.sleep(120)
        second = writes(process.line, first)

    one = {"stages/status": 2, "promotions/status": 2, "applications": 1}
    assert created == 1
    assert writes(process.line, created) - second == Counter({**one, "stages": 1, "freights/status": 1})
    assert second == Counter({**one, "freights/status": 2})


# -- metadata --------------------------------------------------------------------------------------------------------


async def test_metadata_is_written_once_and_again_when_it_is_lost() -> None:
    """The finalizer and the Applications come with the first Freight; a manifest applied over them loses nothing."""
    async with universe() as (world, _), world.process() as process:
        assert "finalizers" not in stage(world)["metadata"]
        await world.promote()
        await world.until(lambda: CONTEXT in stage(world)["metadata"].get("annotations", {}))
        text = stage(world)["metadata"]["annotations"][CONTEXT]
        await asyncio.sleep(60)
        assert writes(process.line)["stages"] == 1
        await patch(world, STAGES, DEV, {"metadata": {"annotations": None, "finalizers": None}})
        await world.until(lambda: CONTEXT in stage(world)["metadata"].get("annotations", {}))
        again = stage(world)["metadata"]

    assert json.loads(text) == [{"name": APP.name, "namespace": APP.namespace}]
    assert (again["annotations"], again["finalizers"]) == ({CONTEXT: text}, [OURS])
    assert writes(process.line)["stages"] == 2


async def test_the_finalizer_comes_with_an_approval() -> None:
    """Whatever Freight says about a Stage is tidied up when it goes, also what people said."""
    async with universe() as (world, _), world.process():
        await patch(world, FREIGHTS, Key(PROJECT, "f1"), {"status": {"approvedFor": {"dev": {}}}}, "status")
        await world.until(lambda: stage(world)["metadata"].get("finalizers") == [OURS])
        await world.user.delete(STAGES, DEV)
        await world.until(lambda: not is_there(world, STAGES, DEV))

    assert said(world) == {}


async def test_a_refresh_is_answered() -> None:
    """As Kargo's command waits for."""
    async with universe() as (world, _), world.process():
        await patch(world, STAGES, DEV, {"metadata": {"annotations": {"kargo.akuity.io/refresh": "now"}}})
        await world.until(lambda: stage(world).get("status", {}).get("lastHandledRefresh") == "now")


# -- deletion --------------------------------------------------------------------------------------------------------


async def test_deletion_tidies_up() -> None:
    """Freight forgets the Stage, and nothing that it says about others."""
    async with universe() as (world, _), world.process():
        await world.promote()
        await until_ready(world)
        more: JsonObject = {"verifiedIn": {"qa": {}}, "approvedFor": {"dev": {}, "qa": {}}}
        await patch(world, FREIGHTS, Key(PROJECT, "f1"), {"status": more}, "status")
        await world.user.delete(STAGES, DEV)
        await world.until(lambda: not is_there(world, STAGES, DEV))

    assert said(world) == {"verifiedIn": ["qa"], "approvedFor": ["qa"]}


async def test_created_again() -> None:
    """What was promoted to a Stage that was deleted is in no other one of its name, and says nothing of it."""
    async with universe() as (world, _):
        async with world.process():
            await world.promote()
            await until_ready(world)
            await world.user.delete(STAGES, DEV)
            await world.until(lambda: not is_there(world, STAGES, DEV))
            await asyncio.sleep(5)
            await create_stage(world, "dev")
            await asyncio.sleep(30)
            assert "freightHistory" not in stage(world)["status"]
            assert condition(stage(world), "Ready") == ("False", "NoFreight")
        async with world.process():
            await asyncio.sleep(30)
            assert said(world) == {}
            await promote(world, "p2")
            await until_ready(world)
            assert said(world) == {"currentlyIn": ["dev"], "verifiedIn": ["dev"]}


async def test_deletion_waits_for_what_runs() -> None:
    """The running Promotion ends, then the Stage is gone, and with it the queued one, which never began."""
    async with universe() as (world, argo), world.process():
        await world.promote("p0")
        await until_ready(world)
        argo.application(APP.name).next_sync(hang=True)
        await world.promote("p1")
        await world.until(lambda: world.phase() == "Running")
        await world.promote("p2")
        await world.user.delete(STAGES, DEV)
        await world.until(lambda: condition(stage(world), "Ready") == ("False", "Deleting"))
        await asyncio.sleep(60)
        assert is_there(world, STAGES, DEV)
        argo.application(APP.name).finish_hook()
        assert await world.ended() == "Succeeded"
        await world.until(lambda: not is_there(world, STAGES, DEV))
        assert world.phase("p2") == "Pending"
        await world.until(lambda: not is_there(world, PROMOTIONS, Key(PROJECT, "p2")))

    assert said(world) == {}


async def test_deletion_while_nobody_runs() -> None:
    """It waits for us, and Freight still says what it said: that is what the finalizer is for."""
    async with universe() as (world, _):
        async with world.process():
            await world.promote()
            await until_ready(world)
        await world.user.delete(STAGES, DEV)
        await asyncio.sleep(10)
        assert is_there(world, STAGES, DEV)
        async with world.process():
            await world.until(lambda: not is_there(world, STAGES, DEV))

    assert said(world) == {}


async def test_a_finalizer_taken_off_by_hand_blocks_nothing() -> None:
    """Freight keeps what it says; a new Stage of that name works."""
    async with universe() as (world, _):
        async with world.process():
            await world.promote()
            await until_ready(world)
        await patch(world, STAGES, DEV, {"metadata": {"finalizers": None}})
        await world.user.delete(STAGES, DEV)
        async with world.process():
            await asyncio.sleep(5)
            await create_stage(world, "dev")
            await create_freight(world, "f2")
            await promote(world, "p2", what="f2")
            await world.until(lambda: is_ready(world) and said(world, "f2").get("verifiedIn") == ["dev"])


async def test_somebody_elses_finalizer() -> None:
    """Ours goes, theirs stays, and nothing is done any more to the Stage."""
    async with universe() as (world, _), world.process() as process:
        await world.promote()
        await until_ready(world)
        await patch(world, STAGES, DEV, {"metadata": {"finalizers": [OURS, "example.com/theirs"]}})
        await world.user.delete(STAGES, DEV)
        await world.until(lambda: stage(world)["metadata"].get("finalizers") == ["example.com/theirs"])
        before = len(process.line.writes)
        await world.promote("p2")
        await asyncio.sleep(60)

    assert {where for where, _, _ in process.line.writes[before:]} == {"promotions/status"}
    assert world.phase("p2") == "Pending"


# -- control flow ----------------------------------------------------------------------------------------------------


async def test_a_stage_without_steps_passes_freight_on() -> None:
    """All of it at once, and what comes later when it comes; each is told once, and a Stage downstream can take it."""
    async with universe() as (world, _):
        for number in range(2, 12):
            await create_freight(world, f"f{number}")
        await create_freight(world, "other", "elsewhere")
        async with world.process() as process:
            await create_stage(world, "gate", steps=False)
            await create_stage(world, "prod", stages=["gate"])
            await world.until(lambda: all(said(world, f"f{n}") == {"verifiedIn": ["gate"]} for n in range(1, 12)))
            await create_freight(world, "late")
            await world.until(lambda: said(world, "late") == {"verifiedIn": ["gate"]})
            await asyncio.sleep(60)
            told = await events(world, "FreightVerificationSucceeded")
            counted = writes(process.line)

    assert said(world, "other") == {}
    assert sorted(event["involvedObject"]["name"] for event in told) == sorted(
        [*(f"f{n}" for n in range(1, 12)), "late"]
    )
    assert told[0]["metadata"]["annotations"]["event.kargo.akuity.io/stage-name"] == "gate"
    gate = stage(world, "gate")
    assert condition(gate, "Ready") == ("True", "Ready")
    assert (gate["status"]["freightSummary"], gate["status"]["health"]["status"]) == ("N/A", "NotApplicable")
    assert gate["metadata"]["finalizers"] == [OURS]
    assert (counted["freights/status"], counted["stages"]) == (12, 1)


async def test_a_soak_that_ends_by_itself() -> None:
    """A Stage without steps takes Freight on time, without any event."""
    async with universe() as (world, _), world.process():
        await create_stage(world, "gate", steps=False, stages=["dev"], requiredSoakTime="3h")
        await world.promote()
        await until_ready(world)
        since = asyncio.get_running_loop().time()
        await world.until(lambda: "gate" in said(world).get("verifiedIn", ()), seconds=20_000)
        took = asyncio.get_running_loop().time() - since

    assert 3 * 3600 - 10 < took < 3 * 3600 + 10


async def test_one_piece_of_freight_that_cannot_be_written() -> None:
    """The others do not wait for it; it is tried again."""
    async with universe() as (world, _):
        await create_freight(world, "f2")
        async with world.process() as process:
            refuse = process.line.refuse = {Key(PROJECT, "f1")}
            await create_stage(world, "gate", steps=False)
            await world.until(lambda: said(world, "f2") == {"verifiedIn": ["gate"]})
            await asyncio.sleep(5)
            assert said(world) == {}
            refuse.clear()
            await world.until(lambda: said(world) == {"verifiedIn": ["gate"]})


async def test_a_promotion_to_a_stage_without_steps() -> None:
    """It is told at once that nothing can be promoted there."""
    async with universe() as (world, _), world.process():
        await create_stage(world, "gate", steps=False)
        await promote(world, "p1", to="gate")
        assert await world.ended() == "Errored"

    assert 'Stage "gate" has no steps' in world.message()
    assert "operation" not in world.app()


async def test_a_stage_that_loses_its_steps() -> None:
    """What runs ends as it would; what waits is told; then nothing of Promotions is left in the Stage."""
    async with universe() as (world, argo), world.process():
        argo.application(APP.name).next_sync(hang=True)
        await world.promote("p1")
        await world.until(lambda: world.phase() == "Running")
        await world.promote("p2")
        await patch(world, STAGES, DEV, {"spec": {"promotionTemplate": None}})
        assert await world.ended("p2") == "Errored"
        await asyncio.sleep(60)
        assert stage(world)["status"]["currentPromotion"]["name"] == "p1"
        argo.application(APP.name).finish_hook()
        assert await world.ended("p1") == "Succeeded"
        await world.until(lambda: stage(world)["status"].get("freightSummary") == "N/A")
        await world.until(lambda: "verifiedIn" in said(world) and "currentlyIn" not in said(world))

    assert {"currentPromotion", "lastPromotion", "freightHistory"} & set(stage(world)["status"]) == set()


# -- health ----------------------------------------------------------------------------------------------------------


async def test_woken_without_the_annotation() -> None:
    """A Stage hears of the Applications that it checks, whatever they say of it."""
    async with universe() as (world, argo), world.process():
        await world.promote()
        await until_ready(world)
        await world.write({"metadata": {"annotations": {"kargo.akuity.io/authorized-stage": None}}})
        await argo.stop()
        await world.write({"status": {"health": {"status": "Degraded", "message": "it broke"}}})
        await world.until(lambda: condition(stage(world), "Healthy") == ("False", "Unhealthy"), seconds=2)

    assert "it broke" in stage(world)["status"]["health"]["issues"][0]
    assert condition(stage(world), "Ready") == ("False", "Unhealthy")


@pytest.mark.parametrize("how", ["Failed", "Aborted", "Errored"])
async def test_checks_of_the_last_success_stay(how: str) -> None:
    """A Promotion that did not succeed does not end the judging of what is there."""
    async with universe() as (world, argo), world.process():
        await world.promote("p1")
        await until_ready(world)
        if how == "Failed":
            argo.application(APP.name).next_sync(fail="no")
        await promote(world, "p2", what="f1" if how != "Errored" else "absent")
        if how == "Aborted":
            await world.abort("p2")
        assert await world.ended("p2") == how
        await world.until(lambda: stage(world)["status"]["lastPromotion"]["name"] == "p2")
        await asyncio.sleep(5)
        await argo.stop()
        await world.write({"status": {"health": {"status": "Degraded"}}})
        await world.until(lambda: condition(stage(world), "Healthy") == ("False", "Unhealthy"))

    assert condition(stage(world), "Ready") == ("False", f"LastPromotion{how}")
    assert stage(world)["status"]["freightHistory"][0]["items"]["Warehouse/wh"]["name"] == "f1"


async def test_a_failed_sync_by_somebody_else() -> None:
    """Argo CD goes on to call the Application healthy; the Stage does not, until a sync has mended it."""
    async with universe() as (world, argo), world.process():
        await world.promote()
        await until_ready(world)
        argo.application(APP.name).next_sync(fail="hook said no")
        await world.write(
            {
                "spec": {"source": {"targetRevision": OTHER}},
                "operation": {"initiatedBy": {"username": "alice"}, "sync": {"revision": OTHER}},
            }
        )
        await world.until(lambda: condition(stage(world), "Healthy") == ("False", "Unhealthy"))
        issues = stage(world)["status"]["health"]["issues"]
        await world.write(
            {
                "spec": {"source": {"targetRevision": SHA}},
                "operation": {"initiatedBy": {"username": "alice"}, "sync": {"revision": SHA}},
            }
        )
        await until_ready(world)

    assert "the last sync failed" in issues[0]


async def test_one_refresh_for_an_argocd_that_does_not_look() -> None:
    """After ten seconds of doubt it is asked once; nobody asks about Applications that no Stage checks."""
    async with universe() as (world, argo), world.process() as process:
        await world.create_application("unrelated")
        await world.promote()
        await until_ready(world)
        await argo.stop()
        before = len(process.line.writes)
        for name in (APP.name, "unrelated"):
            await patch(world, APPLICATIONS, Key("argocd", name), {"spec": {"source": {"path": "elsewhere"}}})
        await asyncio.sleep(9)
        assert len(process.line.writes) == before
        await asyncio.sleep(300)
        asked = [(key.name, body) for where, key, body in process.line.writes[before:] if where == "applications"]

    assert [(name, body["metadata"]["annotations"]) for name, body in asked] == [
        (APP.name, {"argocd.argoproj.io/refresh": "normal"})
    ]
    assert len(process.line.writes) == before + 1
    assert condition(stage(world), "Healthy") == ("True", "Healthy")


async def test_several_origins_survive_an_abort() -> None:
    """What is here of one origin stays, whatever becomes of a Promotion of the other (kargo#6810)."""
    async with universe() as (world, argo), world.process():
        requested = [
            {"origin": {"kind": "Warehouse", "name": name}, "sources": {"direct": True}} for name in ("wh", "v")
        ]
        await patch(world, STAGES, DEV, {"spec": {"requestedFreight": requested}})
        for name in ("g1", "g2"):
            await create_freight(world, name, "v")
        await promote(world, "p1")
        await promote(world, "p2", what="g1")
        assert await world.ended("p2") == "Succeeded"
        argo.application(APP.name).next_sync(hang=True)
        await until_ready(world)
        await promote(world, "p3", what="g2")
        await promote(world, "p4", what="f1")
        await world.until(lambda: world.phase("p3") == "Running")
        await world.abort("p4")
        await world.abort("p3")
        assert await world.ended("p4") == await world.ended("p3") == "Aborted"
        await promote(world, "p5", what="g2")
        assert await world.ended("p5") == "Succeeded"
        await until_ready(world)

    items = stage(world)["status"]["freightHistory"][0]["items"]
    assert {origin: item["name"] for origin, item in items.items()} == {"Warehouse/wh": "f1", "Warehouse/v": "g2"}


# -- many, and nonsense ----------------------------------------------------------------------------------------------


async def test_a_thousand_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is parsed when it comes, and when it is put on record as admitted; a Stage beside is not kept waiting."""
    parsed: Counter[str] = Counter()
    validate = Promotion.model_validate

    def counting(obj: Any, **options: Any) -> Promotion:
        parsed[obj["metadata"]["name"]] += 1
        return validate(obj, **options)

    monkeypatch.setattr(Promotion, "model_validate", counting)
    async with universe() as (world, argo), world.process() as process:
        argo.application(APP.name).next_sync(hang=True)
        await world.promote("p")
        await world.until(lambda: world.phase("p") == "Running")
        for number in range(1000):
            await promote(world, f"q{number:04}")
        await create_stage(world, "qa")
        await world.create_application("b")
        await patch(world, APPLICATIONS, Key("argocd", "b"), {"metadata": {"annotations": {
            "kargo.akuity.io/authorized-stage": f"{PROJECT}:qa"}}})  # fmt: skip
        await promote(world, "beside", to="qa", app="b")
        began = asyncio.get_running_loop().time()
        assert await world.ended("beside") == "Succeeded"
        assert asyncio.get_running_loop().time() - began < 10
        argo.application(APP.name).finish_hook()
        assert await world.ended("q0002") == "Succeeded"
        stage_writes = writes(process.line)["stages/status"]

    queued = [count for name, count in parsed.items() if name.startswith("q") and name > "q0005"]
    assert len(queued) == 994
    assert max(queued) == 2
    assert sum(parsed.values()) < 2100
    assert stage_writes < 20


async def test_freight_that_is_gone() -> None:
    """A history that names Freight which somebody deleted stops nobody; Freight that comes back is told again."""
    async with universe() as (world, _), world.process():
        await world.promote("p1")
        await until_ready(world)
        await world.user.delete(FREIGHTS, Key(PROJECT, "f1"))
        await create_freight(world, "f2")
        await promote(world, "p2", what="f2")
        await world.until(lambda: said(world, "f2").get("verifiedIn") == ["dev"])
        await world.user.delete(FREIGHTS, Key(PROJECT, "f2"))
        await asyncio.sleep(5)
        await create_freight(world, "f2")
        await world.until(lambda: said(world, "f2") == {"currentlyIn": ["dev"], "verifiedIn": ["dev"]})

    assert is_ready(world)


async def test_freight_that_names_stages_that_are_not_there() -> None:
    """It is left as it is: the Stage may be on its way, as after a restore."""
    nowhere: JsonObject = {name: {"nowhere": {}} for name in ("currentlyIn", "verifiedIn", "approvedFor")}
    async with universe() as (world, _):
        await patch(world, FREIGHTS, Key(PROJECT, "f1"), {"status": nowhere}, "status")
        async with world.process():
            await world.promote()
            await until_ready(world)

    assert said(world) == {
        "currentlyIn": ["dev", "nowhere"], "verifiedIn": ["dev", "nowhere"], "approvedFor": ["nowhere"]
    }  # fmt: skip


@pytest.mark.parametrize(
    "annotations",
    [
        {CONTEXT: ""},
        {CONTEXT: "[" * 1000},
        {CONTEXT: "null"},
        {"kargo.akuity.io/refresh": ""},
        {"kargo.akuity.io/refresh": "x" * 200_000},
        {"kargo.akuity.io/abort": "}{", "kargo.akuity.io/reverify": "}{"},
    ],
)
async def test_annotations_of_every_shape(annotations: JsonObject) -> None:
    """None of them stops a Stage, or makes it write again and again."""
    async with universe() as (world, _), world.process() as process:
        await patch(world, STAGES, DEV, {"metadata": {"annotations": annotations}})
        await world.promote()
        await until_ready(world)
        await asyncio.sleep(5)
        before = len(process.line.writes)
        await asyncio.sleep(120)

    assert len(process.line.writes) == before
    assert json.loads(stage(world)["metadata"]["annotations"][CONTEXT])


# -- Events ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("minutes", [1, 30])
async def test_what_was_verified_is_told_once_its_freight_can_be_written(minutes: int) -> None:
    """However long that takes: the status that says so was written long before."""
    async with universe() as (world, _), world.process() as process:
        refuse = process.line.refuse = {Key(PROJECT, "f1")}
        await world.promote()
        await until_ready(world)
        await asyncio.sleep(minutes * 60)
        assert await events(world, "FreightVerificationSucceeded") == []
        refuse.clear()
        await world.until(lambda: said(world) == {"currentlyIn": ["dev"], "verifiedIn": ["dev"]})
        await asyncio.sleep(60)
        (told,) = await events(world, "FreightVerificationSucceeded")
    assert told["involvedObject"]["name"] == "f1"


async def test_what_was_passed_on_is_told_though_the_answer_was_lost() -> None:
    async with universe() as (world, _), world.process() as process:
        await create_stage(world, "gate", steps=False)
        await asyncio.sleep(60)
        process.line.lose_answer = True
        await create_freight(world, "f2")
        await world.until(lambda: said(world, "f2") == {"verifiedIn": ["gate"]})
        await asyncio.sleep(60)
        told = await events(world, "FreightVerificationSucceeded")
    assert [event["involvedObject"]["name"] for event in told] == ["f1", "f2"]


async def test_nothing_is_kept_of_what_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a process grows with each Stage and Promotion that there ever was."""
    made: list[Any] = []
    for kind in (StageReconciler, PromotionReconciler):
        monkeypatch.setattr(kind, "__init__", _noting(kind.__init__, made))
    async with universe() as (world, argo), world.process() as process:
        argo.application(APP.name).next_sync(hang=True)
        await world.promote()
        await asyncio.sleep(10)
        process.line.fault = lambda _key, _body: Forbidden(403, "Forbidden", "no")
        await world.abort()
        await asyncio.sleep(10)
        before = _kept(made)
        await world.delete()
        await asyncio.sleep(10)
        await world.user.delete(STAGES, DEV)
        await asyncio.sleep(10)
    assert any(before.values())
    assert not any(_kept(made).values())


def _noting(init: Callable[..., None], made: list[Any]) -> Callable[..., None]:
    def noted(self: Any, *arguments: Any) -> None:
        init(self, *arguments)
        made.append(self)

    return noted


def _kept(made: list[Any]) -> dict[str, int]:
    """How much each reconciler keeps by key."""
    kept = {f"{type(each).__name__}.{name}": value for each in made for name, value in vars(each).items()}
    return {name: len(value) for name, value in kept.items() if isinstance(value, dict)}


# -- crashes ---------------------------------------------------------------------------------------------------------


def outcome(world: Universe) -> JsonObject:
    """What is left in the end, without what differs from run to run: times, versions and uids."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(inner) for name, inner in value.items() if name not in DIFFERS}
        return [plain(inner) for inner in value] if isinstance(value, list) else value

    return {
        "stage": plain(stage(world)["status"]),
        "metadata": plain({name: stage(world)["metadata"][name] for name in ("annotations", "finalizers")}),
        "promotions": [plain(world.promotion(name)["status"]) for name in ("p1", "p2")],
        "freight": [plain(freight(world, name).get("status")) for name in ("f1", "f2")],
    }


DIFFERS = {
    *("since", "verifiedAt", "longestSoak", "startedAt", "finishedAt", "startTime", "finishTime", "lastTransitionTime"),
    *("admittedAt", "uid", "stamp", "id", "state", "operations"),
}


async def live(world: Universe, line: tuple[int, str] | None) -> tuple[JsonObject, int]:
    """Two Promotions one after the other; our process dies at *line* and another one takes over."""
    await create_freight(world, "f2")
    await world.promote("p1")
    await promote(world, "p2", what="f2")
    sent = 0
    if line is not None:
        async with world.process() as process:
            process.line.last_write = line
            async with asyncio.timeout(1000):
                await process.line.died.wait()
            await process.kill()
    async with world.process() as process:
        await world.until(lambda: said(world, "f2") == {"currentlyIn": ["dev"], "verifiedIn": ["dev"]})
        await world.until(lambda: said(world, "f1") == {"verifiedIn": ["dev"]} and is_ready(world))
        await asyncio.sleep(30)
        sent = len(process.line.writes)
        told = await events(world, "FreightVerificationSucceeded")
    assert sorted(event["involvedObject"]["name"] for event in told) == ["f1", "f2"]
    return outcome(world), sent


async def test_killed_between_each_two_writes() -> None:
    """Whichever write was the last one, sent or not: the Stage, its Promotions and its Freight end up the same."""
    async with universe() as (world, _):
        expected, sent = await live(world, None)
    assert sent >= 12
    for number in range(1, sent + 1):
        for when in ("before", "after"):
            async with universe() as (world, _):
                found, _ = await live(world, (number, when))
            assert found == expected, (number, when)
