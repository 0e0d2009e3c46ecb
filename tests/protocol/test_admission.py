"""Promotions that somebody created with kubectl: they are completed or refused before they begin, whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kargo_py.api.admission import ADMITTED_KEY, ANNOTATION_CUSTOM_STEPS
from kargo_py.api.names import ANNOTATION_AUTHORIZED_STAGE as AUTHORIZED
from kargo_py.controllers.world import CLUSTER_TASKS, FREIGHTS, PROMOTIONS, STAGES, TASKS
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.errors import Invalid
from kargo_py.kube.resources import Key
from kargo_py.local.argocd.simulator import ArgoCD
from kargo_py.steps.argocd_update import USES
from kargo_py.steps.base import Waiting
from tests import in_process
from tests.protocol.test_steps import DONE, Toy, toy
from tests.protocol.universe import APP, PROJECT, REPO, SHA, Line, Universe, owned_by, universe

pytestmark = pytest.mark.looptime

JsonObject = dict[str, Any]

ORIGIN = {"kind": "Warehouse", "name": "wh"}
OTHER_SHA = "9270b3a35b2035af81cf1a142376c2798ccae77b"


def step(revision: str = f'${{{{ commitFrom("{REPO}").ID }}}}') -> JsonObject:
    """One that syncs the Application at *revision*."""
    source = {"repoURL": REPO, "desiredRevision": revision, "updateTargetRevision": True}
    return {"uses": USES, "as": "sync", "config": {"apps": [{"name": APP.name, "sources": [source]}]}}


def template(*steps: JsonObject, **spec: Any) -> JsonObject:
    """The spec of a Stage."""
    return {
        "requestedFreight": [{"origin": ORIGIN, "sources": {"direct": True}}],
        "promotionTemplate": {"spec": {"steps": list(steps) or [step()]}},
        **spec,
    }


async def change(world: Universe, resource: Any, name: str, body: JsonObject, **options: Any) -> JsonObject:
    key = Key(PROJECT if resource.namespaced else "", name)
    return await world.user.patch(resource, key, encode(body), codec=JSON, **options)


async def create(world: Universe, name: str = "p1", **spec: Any) -> JsonObject:
    """Create a Promotion of which nothing is given but what must be."""
    if not {"freight", "origin"} & spec.keys():
        spec["freight"] = "f1"
    return await world.create(PROMOTIONS, name, {"spec": {"stage": "dev", **spec}})


async def strict_stage(world: Universe, *steps: JsonObject, **spec: Any) -> None:
    """Have the Stage allow no steps but its own, which are these."""
    await change(world, STAGES, "dev", {"metadata": {"annotations": None}, "spec": template(*steps, **spec)})


@asynccontextmanager
async def prepared(*steps: JsonObject, **spec: Any) -> AsyncIterator[tuple[Universe, ArgoCD]]:
    """A universe with a Stage that allows no steps but its own."""
    async with universe() as (world, argo):
        await strict_stage(world, *steps, **spec)
        yield world, argo


async def runs_hook(world: Universe) -> None:
    """Wait until the operation that is to hang does."""
    await world.until(lambda: "hook" in str((world.app().get("status") or {}).get("operationState")))


def reasons(world: Universe, name: str = "p1") -> list[str]:
    return [event["reason"] for event in world.events() if event["involvedObject"]["name"] == name]


def said(world: Universe, reason: str) -> str:
    (event,) = [event for event in world.events() if event["reason"] == reason]
    return str(event["message"])


def condition(world: Universe, kind: str = "PromotionTemplateValid") -> JsonObject:
    stage = world._object(STAGES, Key(PROJECT, "dev"))
    found = [c for c in (stage.get("status") or {}).get("conditions", ()) if c["type"] == kind]
    return found[0] if found else {}


def patches(line: Line) -> list[JsonObject]:
    """What a process has written of Promotions beside their status."""
    return [body for where, _, body in line.writes if where == "promotions"]


# --- completed --------------------------------------------------------------------------------------------------------


async def test_the_least_that_can_be_given() -> None:
    """Stage and Freight are enough: all else is filled in by one write, and what was deployed is what was asked for."""
    async with prepared(vars=[{"name": "env", "value": "dev"}]) as (world, _), world.process() as process:
        await create(world)
        assert await world.ended() == "Succeeded"

    promotion, stage = world.promotion(), world._object(STAGES, Key(PROJECT, "dev"))
    assert promotion["spec"]["steps"] == [step()]
    assert promotion["spec"]["vars"] == [{"name": "env", "value": "dev"}]
    assert world.app()["spec"]["source"]["targetRevision"] == SHA
    owned = owned_by(stage)
    assert {name: promotion["metadata"][name] for name in owned} == owned
    assert len(patches(process.line)) == 1
    assert [kind for kind, _ in process.line.gets] == ["Stage"]
    assert "StepsReplaced" not in reasons(world)


async def test_a_complete_one() -> None:
    """With the steps of the Stage, be they evaluated, nothing is written or read for it."""
    async with prepared() as (world, _), world.process() as process:
        await world.run(step(SHA))
        assert await world.ended() == "Succeeded"

    assert patches(process.line) == []
    assert process.line.gets == []
    assert world.promotion()["spec"]["steps"] == [step(SHA)]


async def test_the_newest_freight() -> None:
    """An origin becomes the newest Freight from there, also if it was created a moment before."""
    async with prepared() as (world, _), world.process(delay=0.05) as process:
        await world._create(FREIGHTS, "f2", origin=ORIGIN, commits=[{"repoURL": REPO, "id": OTHER_SHA}])
        await create(world, origin=ORIGIN)
        assert await world.ended() == "Succeeded"

    spec = world.promotion()["spec"]
    assert (spec["freight"], "origin" in spec) == ("f2", False)
    assert world.app()["spec"]["source"]["targetRevision"] == OTHER_SHA
    assert process.line.lists.count(("Freight", PROJECT)) == 1
    assert len(patches(process.line)) == 1
    assert {b["status"]["currentPromotion"]["freight"]["name"] for where, _, b in process.line.writes
            if where == "stages/status" and b["status"].get("currentPromotion")} == {"f2"}  # fmt: skip


async def test_what_is_upstream() -> None:
    """With MatchUpstream an origin becomes what the Stage upstream has."""
    sources = {"stages": ["test"], "autoPromotionOptions": {"selectionPolicy": "MatchUpstream"}}
    async with prepared() as (world, _), world.process() as process:
        await world._create(STAGES, "test", spec=template())
        await world.write({"metadata": {"annotations": {AUTHORIZED: f"{PROJECT}:dev,{PROJECT}:test"}}})
        await create(world, "first", stage="test")
        assert await world.ended("first") == "Succeeded"
        await world.until(lambda: "verifiedIn" in str(world._object(FREIGHTS, Key(PROJECT, "f1"))))
        await world._create(FREIGHTS, "f2", origin=ORIGIN, commits=[{"repoURL": REPO, "id": OTHER_SHA}])
        await change(world, STAGES, "dev", {"spec": {"requestedFreight": [{"origin": ORIGIN, "sources": sources}]}})
        await create(world, origin=ORIGIN)
        assert await world.ended() == "Succeeded"

    assert world.promotion()["spec"]["freight"] == "f1"
    assert ("Freight", PROJECT) not in process.line.lists


async def test_freight_that_is_gone() -> None:
    """Freight that was deleted a moment before is not chosen, though the caches still have it."""
    async with prepared() as (world, _), world.process() as process:
        await world._create(FREIGHTS, "f2", origin=ORIGIN, commits=[{"repoURL": REPO, "id": OTHER_SHA}])
        await asyncio.sleep(1)
        process.line.deaf.add("Freight")
        await world.user.delete(FREIGHTS, Key(PROJECT, "f2"))
        await create(world, origin=ORIGIN)
        assert await world.ended() == "Succeeded"

    assert world.promotion()["spec"]["freight"] == "f1"


async def test_an_alias_for_a_name() -> None:
    """The refusal says which Freight is meant, whether the field has the alias or the label."""
    for fields in ({"alias": "first"}, {"metadata": {"labels": {"kargo.akuity.io/alias": "first"}}}):
        async with prepared() as (world, _), world.process():
            await change(world, FREIGHTS, "f1", fields)
            await create(world, freight="first")
            assert await world.ended() == "Errored"

        assert 'spec.freight takes a name, and that is the alias of Freight "f1"' in world.message()


async def test_steps_of_somebody_else() -> None:
    """They are replaced, which is told; whoever creates Promotions does not decide how is promoted."""
    async with prepared() as (world, _), world.process():
        await world.run(step(OTHER_SHA))
        assert await world.ended() == "Succeeded"

    assert world.promotion()["spec"]["steps"] == [step()]
    assert world.app()["spec"]["source"]["targetRevision"] == SHA
    assert f'desiredRevision is "{OTHER_SHA}"' in said(world, "StepsReplaced")


async def test_steps_that_are_allowed() -> None:
    """The Stage may allow them; labels of the Promotion that say so do not count."""
    async with prepared() as (world, _), world.process():
        body = {"metadata": {"annotations": {ANNOTATION_CUSTOM_STEPS: "allow"}}}
        spec = {"stage": "dev", "freight": "f1", "steps": [step(OTHER_SHA)]}
        await world.create(PROMOTIONS, "p0", {**body, "spec": spec})
        assert await world.ended("p0") == "Succeeded"
        assert world.promotion("p0")["spec"]["steps"] == [step()]
        await change(world, STAGES, "dev", body)
        await world.create(PROMOTIONS, "p1", {"spec": spec})
        assert await world.ended() == "Succeeded"

    assert world.promotion()["spec"]["steps"] == [step(OTHER_SHA)]
    assert "StepsReplaced" not in reasons(world)


# --- tasks ------------------------------------------------------------------------------------------------------------

TASK: JsonObject = {"task": {"name": "deploy"}, "as": "deploy"}
DEPLOY: JsonObject = {"spec": {"vars": [{"name": "app"}], "steps": [step()]}}
GIVEN = {**TASK, "vars": [{"name": "app", "value": APP.name}]}


@pytest.mark.parametrize("resource", [TASKS, CLUSTER_TASKS], ids=lambda resource: resource.kind)
async def test_a_task_that_was_just_created(resource: Any) -> None:
    """Task, Stage and Promotion may be applied together: what the caches do not have yet is looked for."""
    named = {**GIVEN, "task": {"name": "deploy", "kind": resource.kind}}
    async with prepared() as (world, _), world.process(delay=0.05):
        await world.create(resource, "deploy", DEPLOY)
        await strict_stage(world, named)
        await create(world)
        assert await world.ended() == "Succeeded"

    assert [s["as"] for s in world.promotion()["spec"]["steps"]] == ["deploy::sync"]


async def test_a_task_that_comes_later() -> None:
    """What was refused stays so; the Stage says what is missing, and that it is there."""
    async with prepared(GIVEN) as (world, _), world.process() as process:
        await world.until(lambda: condition(world).get("status") == "False")
        assert "PromotionTask" in condition(world)["message"]
        ready = condition(world, "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "InvalidPromotionTemplate")
        await create(world)
        assert await world.ended() == "Errored"
        assert 'Stage "dev": spec.promotionTemplate.spec.steps[0].task: there is no' in world.message()
        await world.create(TASKS, "deploy", DEPLOY)
        await world.until(lambda: condition(world).get("status") == "True")
        await asyncio.sleep(100)
        assert world.phase() == "Errored"
        before = len(process.line.writes), len(process.line.gets)
        await asyncio.sleep(1000)
        await create(world, "p2")
        assert await world.ended("p2") == "Succeeded"
        asked = [key.name for kind, key in process.line.gets[before[1] :] if kind == "PromotionTask"]
        assert asked == ["deploy"]
        await world.user.delete(TASKS, Key(PROJECT, "deploy"))
        await world.until(lambda: condition(world).get("status") == "False")
        await change(world, STAGES, "dev", {"metadata": {"annotations": {"kargo.akuity.io/refresh": "now"}}})
        await asyncio.sleep(10)

    assert condition(world)["status"] == "False"


async def test_a_cluster_without_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the kinds are missing there simply are no tasks."""
    kinds = [kind for kind in in_process.kinds() if not kind.plural.endswith("promotiontasks")]
    monkeypatch.setattr(in_process, "kinds", lambda **_: kinds)
    async with universe() as (world, _):
        await strict_stage(world, GIVEN)
        async with world.process(without_tasks=True):
            await world.until(lambda: condition(world).get("status") == "False")
            await create(world)
            assert await world.ended() == "Errored"
            assert 'there is no PromotionTask "deploy"' in world.message()
            await strict_stage(world)
            await create(world, "p2")
            assert await world.ended("p2") == "Succeeded"


# --- refused ----------------------------------------------------------------------------------------------------------


async def test_refused_though_another_runs() -> None:
    """What cannot succeed ends at once, and the one that runs is not touched by that."""
    async with universe() as (world, argo), world.process() as process:
        argo.application(APP.name).next_sync(hang=True)
        await world.promote("p0")
        await runs_hook(world)
        bad = {**step(SHA), "config": {"apps": [{"name": 7}], "more": 1}}
        await create(world, "p1", steps=[bad, {"uses": "no-such-kind"}])
        assert await world.ended("p1", seconds=5) == "Errored"
        await create(world, "p2", freight="absent")
        assert await world.ended("p2", seconds=5) == "Errored"
        argo.application(APP.name).finish_hook()
        assert await world.ended("p0") == "Succeeded"
        await asyncio.sleep(30)

    for where in ("spec.steps[0].config.apps[0].name: ", "spec.steps[0].config.more: ", "spec.steps[1].uses: "):
        assert where in world.message("p1")
    assert 'Freight "absent" does not exist' in world.message("p2")
    assert {"PromotionErrored"} == set(reasons(world, "p1"))
    assert world._object(STAGES, Key(PROJECT, "dev"))["status"]["freightSummary"] == "f1"
    assert patches(process.line) == []


async def test_no_freight_of_that_origin() -> None:
    """It is told why of each piece of Freight not."""
    sources = {"stages": ["test"]}
    async with prepared(requestedFreight=[{"origin": ORIGIN, "sources": sources}]) as (world, _), world.process():
        await create(world, origin=ORIGIN)
        assert await world.ended() == "Errored"

    assert 'Freight "f1" has not been verified in test' in world.message()


async def test_a_warning() -> None:
    """What may not be meant is told, and does not keep the Promotion from running."""
    optional = {"uses": "no-such-kind", "continueOnError": True}
    async with prepared(step(), optional) as (world, _), world.process():
        await create(world)
        assert await world.ended() == "Succeeded"
        await world.until(lambda: condition(world))

    assert "no-such-kind" in said(world, "AdmissionWarning")
    assert (condition(world)["status"], condition(world)["reason"]) == ("True", "ValidWithWarnings")


# --- what comes between -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delay", [0.001, 0.05])
async def test_a_stage_that_comes_after_its_promotion(delay: float) -> None:
    """In whatever order they are applied: the Promotion waits, and begins with the steps of the Stage."""
    async with universe() as (world, _), world.process(delay=delay):
        stage = {"metadata": {}, "spec": template()}
        await world.user.delete(STAGES, Key(PROJECT, "dev"))
        await asyncio.sleep(1)
        await create(world)
        await asyncio.sleep(delay)
        await world.create(STAGES, "dev", stage)
        assert await world.ended() == "Succeeded"

    assert world.promotion()["spec"]["steps"] == [step()]


async def test_a_template_that_was_changed_just_before() -> None:
    """The newest template counts, not the one in the cache."""
    async with prepared(step(OTHER_SHA)) as (world, _), world.process(delay=0.2):
        await asyncio.sleep(5)
        await strict_stage(world)
        await create(world)
        assert await world.ended() == "Succeeded"

    assert world.promotion()["spec"]["steps"] == [step()]


async def queue(world: Universe, argo: ArgoCD) -> None:
    """Have p1 wait for p0, which runs."""
    argo.application(APP.name).next_sync(hang=True)
    await create(world, "p0")
    await runs_hook(world)
    await create(world)
    await asyncio.sleep(1)


async def test_a_template_that_changes_while_it_waits() -> None:
    """What was admitted stays, over a restart, too; and from what is on record on the server keeps it so."""
    async with prepared() as (world, argo):
        async with world.process() as process:
            await queue(world, argo)
            assert "admittedAt" not in world.promotion()["status"]
            await strict_stage(world, step(OTHER_SHA))
            await asyncio.sleep(5)
            status = world.promotion()["status"]
            assert status["admittedAt"]
            assert status["state"][ADMITTED_KEY]["generation"] == world.promotion()["metadata"]["generation"]
            writes = [where for where, key, _ in process.line.writes if key.name == "p1"]
            assert writes == ["promotions", "promotions/status"]
            for spec in ({"steps": [step(OTHER_SHA)]}, {"vars": [{"name": "a"}]}, {"freight": "f2"}):
                with pytest.raises(Invalid, match="cannot change any more"):
                    await change(world, PROMOTIONS, "p1", {"spec": spec})
        async with world.process():
            argo.application(APP.name).finish_hook()
            assert await world.ended() == "Succeeded"

    assert world.promotion()["spec"]["steps"] == [step()]
    assert world.promotion()["status"]["admittedAt"] == status["admittedAt"]
    assert "StepsReplaced" not in reasons(world)


async def test_freight_that_may_be_taken_no_more() -> None:
    """Whether the Stage may take it is looked at again when the Promotion begins, and no more while it runs."""
    sources = {"stages": ["test"]}
    async with prepared(requestedFreight=[{"origin": ORIGIN, "sources": sources}]) as (world, argo), world.process():
        await change(world, FREIGHTS, "f1", {"status": {"approvedFor": {"dev": {}}}}, subresource="status")
        await queue(world, argo)
        await world.until(lambda: "admittedAt" in world.promotion()["status"])
        await change(world, FREIGHTS, "f1", {"status": {"approvedFor": None}}, subresource="status")
        await asyncio.sleep(100)  # what runs is looked at meanwhile
        argo.application(APP.name).finish_hook()
        assert await world.ended("p0") == "Succeeded"
        assert await world.ended() == "Errored"

    assert 'Freight "f1" has not been verified in test' in world.message()
    assert len(world.starts()) == 1


async def test_edited_before_it_is_on_record() -> None:
    """Its author may still correct it; what it says then is what counts."""
    async with prepared() as (world, argo), world.process():
        await world._create(FREIGHTS, "f2", origin=ORIGIN, commits=[{"repoURL": REPO, "id": OTHER_SHA}])
        await queue(world, argo)
        await change(world, PROMOTIONS, "p1", {"spec": {"freight": "f2", "steps": [step(SHA)]}})
        await asyncio.sleep(10)
        argo.application(APP.name).finish_hook()
        assert await world.ended() == "Succeeded"

    assert world.promotion()["spec"]["steps"] == [step()]
    assert world.app()["spec"]["source"]["targetRevision"] == OTHER_SHA
    assert reasons(world).count("StepsReplaced") == 1


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(1, 6))
async def test_killed(number: int, when: str) -> None:
    """However far the process came, the next one goes on, and nothing is started twice."""
    async with prepared() as (world, _):
        async with world.process() as first:
            first.line.last_write = (number, when)
            await create(world, steps=[step(OTHER_SHA)])
            await asyncio.wait_for(first.line.died.wait(), 100)
            await first.kill()
        async with world.process():
            assert await world.ended() == "Succeeded"
            await asyncio.sleep(10)

    assert world.promotion()["spec"]["steps"] == [step()]
    assert len(world.starts()) == len(set(world.starts()))
    assert world.app()["spec"]["source"]["targetRevision"] == SHA


async def test_an_answer_that_is_lost() -> None:
    """Whether the write was carried out is found out."""
    async with prepared() as (world, _), world.process() as process:
        process.line.lose_answer = True
        await create(world, origin=ORIGIN)
        assert await world.ended() == "Succeeded"

    assert world.promotion()["spec"]["steps"] == [step()]


async def test_two_at_once() -> None:
    """Two processes that both take it for theirs complete it once."""
    async with prepared() as (world, _), world.process(delay=0.01) as one, world.process(delay=0.013) as other:
        await create(world, origin=ORIGIN)
        assert await world.ended() == "Succeeded"

    assert world.promotion()["spec"]["steps"] == [step()]
    versions = {body["metadata"]["resourceVersion"] for line in (one.line, other.line) for body in patches(line)}
    assert len(versions) == 1
    assert len(world.starts()) == 1


async def test_without_the_right() -> None:
    """The Promotion says which right is missing, and is admitted once it is there."""
    async with prepared() as (world, _), world.process() as process:
        process.line.forbidden = {"promotions"}
        await create(world)
        await world.until(lambda: "is not allowed to admit" in str(world.promotion().get("status")))
        assert world.phase() == "Pending"
        process.line.forbidden.clear()
        assert await world.ended() == "Succeeded"

    assert world.message() == ""


async def test_a_stage_that_is_made_anew_while_it_waits() -> None:
    """What was admitted to a Stage is not admitted to another one of its name: steps that only that one allowed."""
    async with universe() as (world, argo), world.process():
        await queue(world, argo)
        await change(world, PROMOTIONS, "p1", {"spec": {"steps": [step(OTHER_SHA)]}})
        await world.until(lambda: (world.promotion().get("status") or {}).get("admittedAt"))
        for name in ("p0", "p1"):  # as --cascade=orphan does it; else they go with the Stage, but later than it
            await change(world, PROMOTIONS, name, {"metadata": {"ownerReferences": []}})
        await world.user.delete(STAGES, Key(PROJECT, "dev"))
        await world.create(STAGES, "dev", {"spec": template()})
        argo.application(APP.name).finish_hook()
        assert await world.ended("p0") == "Succeeded"
        assert await world.ended() == "Errored"

    assert "cannot change any more" in world.message()
    assert len(world.starts()) == 1


async def test_edited_while_it_begins() -> None:
    """Nothing of how it was before is left: the step is called with what the spec says that is on record."""
    kind = Toy(Waiting("not yet", look_after=1, polls=True), DONE)
    async with universe() as (world, _), world.process(further={"toy": kind}) as process:
        edited: list[JsonObject] = []

        async def edit(where: str, key: Key, _body: Any) -> None:
            if (where, key.name) == ("promotions/status", "p1") and not edited:
                steps = [toy(config={"text": "${{ 'after' }}"})]
                edited.append(await change(world, PROMOTIONS, "p1", {"spec": {"steps": steps}}))

        process.line.before_patch = edit
        await create(world, steps=[toy(config={"text": "${{ 'before' }}"})])
        assert await world.ended() == "Succeeded"

    assert edited
    assert [call.config["text"] for call in kind.calls] == ["before", "after"]
