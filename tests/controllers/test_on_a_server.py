"""The whole of it on an API server, embedded and real: kubectl on one side, Argo CD acted by hand on the other."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from kargo_py.api.promotion import phase_of
from kargo_py.api.stamp import STATE_KEY, parse_stamp
from kargo_py.controllers.world import Responsibility
from tests.controllers.conftest import SHA, Cluster, operations

pytestmark = [
    pytest.mark.both_definitions,
    pytest.mark.nonblocking_exempt(reason="kubernetes-asyncio reads kubeconfigs in the loop; the tests start kubectl"),
]

NAME = "dev.01k0000000000000000000000a.f1"
OTHER = "dev.01k0000000000000000000000b.f1"


async def test_a_promotion_from_creation_to_verified(cluster: Cluster) -> None:
    """Created with kubectl, a Promotion syncs the Application, ends with its operation, and its Freight is verified."""
    for each in (cluster.stage("dev"), cluster.freight(), cluster.application("dev")):
        await cluster.create_with_kubectl(each)
    async with cluster.controllers():
        await cluster.create_with_kubectl(cluster.promotion(NAME))
        operation = await cluster.requested()
        running = await cluster.get("promotion", NAME)
        stage = await cluster.get("stage", "dev")
        app = await cluster.app()
        await cluster.pick_up()
        await cluster.complete()
        await cluster.wait("promotion", NAME, ".status.phase", "Succeeded")
        await cluster.refresh()
        await cluster.wait("stage", "dev", ".status.health.status", "Healthy")
        await cluster.wait("freight", "f1", ".status.verifiedIn.dev.verifiedAt")
        await cluster.wait("stage", "dev", ".status.conditions[?(@.type=='Verified')].status", "True")
        after = await cluster.get("stage", "dev")

    (recorded,) = running["status"]["state"][STATE_KEY]
    stamp = parse_stamp(recorded["stamp"])
    assert running["status"]["phase"] == "Running"
    assert stage["status"]["currentPromotion"]["name"] == NAME
    assert ("test", cluster.project, NAME, running["metadata"]["uid"], "update", 1) == (
        stamp.instance,
        stamp.namespace,
        stamp.name,
        stamp.uid,
        stamp.step,
        stamp.attempt,
    )
    assert {"name": "kargo.akuity.io/promotion", "value": NAME} in operation["info"]
    assert recorded["stamp"] == app["metadata"]["annotations"]["kargo-py.io/stamp"]
    assert app["spec"]["source"]["targetRevision"] == SHA
    assert "operationState" not in app["status"]
    ended = await cluster.get("promotion", NAME)
    assert [{"uses": "argocd-update", "config": {"apps": [
        {"name": cluster.app_name("dev"), "namespace": "argocd", "desiredRevisions": [SHA]}]}}] == ended["status"][
        "healthChecks"]  # fmt: skip
    (told,) = operations(ended)
    assert (
        told["state"],
        told["revision"],
        told["changedFields"],
    ) == ("Succeeded", SHA, ["/spec/source/targetRevision"])
    assert "currentPromotion" not in after["status"]
    assert after["status"]["freightSummary"] == "f1"
    reasons = {e["reason"] for e in json.loads(await cluster.kubectl("get", "events", "--output=json"))["items"]}
    assert {"PromotionSucceeded", "FreightVerificationSucceeded"} <= reasons


async def test_kubectl_wait(cluster: Cluster) -> None:
    """Whoever waits for the conditions is told of the end, and kubectl shows the Events.

    Kargo's own definitions have no conditions of a Promotion: there one waits for the time of its end.
    """
    strict = cluster.server.strict
    finished = "--for=jsonpath={.status.finishedAt}" if strict else "--for=condition=Finished"
    succeeded = "--for=jsonpath={.status.phase}=Succeeded" if strict else "--for=condition=Succeeded"
    await cluster.prepare()
    async with cluster.controllers(created_events=True, operation_events=True):
        await cluster.promote(NAME)
        waiting = cluster.kubectl("wait", f"promotion/{NAME}", finished, "--timeout=30s")
        waiter = asyncio.create_task(waiting)
        await cluster.pick_up()
        assert not waiter.done()
        await cluster.complete()
        assert "condition met" in await waiter
        await cluster.kubectl("wait", f"promotion/{NAME}", succeeded, "--timeout=30s")
        shown = ""
        while "PromotionSucceeded" not in shown:
            shown = await cluster.kubectl("events", "--for", f"promotion/{NAME}")

    assert {"PromotionCreated", "OperationRequested", "PromotionSucceeded"} <= set(shown.split())


async def test_metrics_and_probes_of_a_program_that_runs(cluster: Cluster) -> None:
    """After a Promotion a scrape shows it, and all is alive and ready."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    await cluster.prepare()
    async with (
        cluster.controllers(metrics_address=address, health_address=address),
        aiohttp.ClientSession(f"http://{address}") as session,
    ):
        await cluster.promote(NAME)
        await cluster.pick_up()
        await cluster.complete()
        await cluster.wait("promotion", NAME, ".status.phase", "Succeeded")
        answers = {}
        for path in ("/healthz", "/readyz", "/metrics"):
            async with session.get(path) as answer:
                answers[path] = await answer.text()
                assert answer.status == 200, answers[path]

    assert {line[:3] for line in answers["/readyz"].splitlines()[:-1]} == {"[+]"}
    assert "[+]task/controller/promotion ok" in answers["/healthz"]
    found = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answers["/metrics"])
        for sample in family.samples
    }
    assert found["kargo_promotions_started_total",] == found["kargo_promotions_operation_attempts_total",] == 1
    assert found["kargo_promotions_finished_total", "Succeeded"] == 1
    assert found["kargo_promotions_operations_ended_total", "Succeeded"] == 1
    assert found["kargo_promotions_duration_seconds_count", "Succeeded"] == 1
    assert found["kargo_promotions_waiting_seconds_total", "queue"] > 0
    assert found["kargo_api_answers_total", "200", "kargo", "patch"] >= 4
    assert found["kargo_api_seconds_count", "kargo", "watch"] >= 4
    assert found["kargo_reconcile_seconds_count", "promotion"] > 0


async def test_the_columns_of_kubectl_get(cluster: Cluster) -> None:
    """A Promotion just created is Pending without a write of ours, and kubectl shows and explains it."""
    await cluster.prepare()
    await cluster.promote(NAME)

    table = await cluster.kubectl("get", "promo")
    explained = await cluster.kubectl("explain", "promotions.spec.steps.uses")

    assert table.split()[:5] == ["NAME", "SHARD", "STAGE", "FREIGHT", "PHASE"]
    assert ("Pending" in table) is not cluster.server.strict
    assert "Kind of step to run" in explained


async def test_options_of_a_start(cluster: Cluster) -> None:
    """How to sync is recorded and stands in the operation; the start is told on the Application, once."""
    resources = [{"group": "apps", "kind": "Deployment", "name": "web"}]
    options = {"prune": True, "resources": resources, "revision": SHA, "operationStartedEvent": True}
    config = {"apps": [{"name": cluster.app_name("dev"), "healthCheck": False, **options}]}
    await cluster.prepare()
    async with cluster.controllers():
        await cluster.promote(NAME, config=config)
        operation = await cluster.requested()
        recorded = (await cluster.get("promotion", NAME))["status"]["state"][STATE_KEY][0]
    async with cluster.controllers():
        await cluster.pick_up()
        await cluster.complete()
        await cluster.wait("promotion", NAME, ".status.phase", "Succeeded")
        ended = await cluster.get("promotion", NAME)
    about = f"involvedObject.name={cluster.app_name('dev')},reason=OperationStarted"
    events = json.loads(
        await cluster.kubectl("get", "events", "--namespace=argocd", f"--field-selector={about}", "--output=json")
    )

    asked = {"prune": True, "resources": resources, "revision": SHA}
    assert (operation["sync"], recorded["sync"]) == (asked, asked)
    assert "healthChecks" not in ended["status"]
    assert [event["message"] for event in events["items"]] == [f"kargo-controller initiated sync to {SHA}"]


@pytest.mark.parametrize("phase", ["Failed", "Error"])
async def test_a_failing_operation(cluster: Cluster, phase: str) -> None:
    """A sync that fails makes the Promotion Failed with what Argo CD said, and the Stage tells it."""
    await cluster.prepare()
    async with cluster.controllers():
        await cluster.promote(NAME)
        await cluster.pick_up()
        await cluster.complete(phase=phase, message="one or more objects failed to apply")
        await cluster.wait("promotion", NAME, ".status.phase", "Failed")
        await cluster.wait("stage", "dev", ".status.lastPromotion.status.phase", "Failed")
        promotion, stage = await cluster.get("promotion", NAME), await cluster.get("stage", "dev")
        freight = await cluster.get("freight", "f1")

    app = f'Argo CD Application "{cluster.app_name("dev")}" in namespace "argocd"'
    assert f'step "update": {app}: sync failed: one or more objects failed to apply' == promotion["status"]["message"]
    ready = next(c for c in stage["status"]["conditions"] if c["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "LastPromotionFailed")
    assert "freightHistory" not in stage["status"]
    assert "verifiedIn" not in freight.get("status", {})


async def test_queued_promotions_run_one_after_another(cluster: Cluster) -> None:
    """The second Promotion starts only when the first has ended and its health is known."""
    await cluster.prepare()
    async with cluster.controllers():
        await cluster.promote(NAME)
        await cluster.promote(OTHER)
        await cluster.pick_up()
        waiting = await cluster.get("promotion", OTHER)
        await cluster.complete()
        await cluster.wait("promotion", NAME, ".status.phase", "Succeeded")
        await cluster.wait("stage", "dev", ".status.lastPromotion.name", NAME)
        unjudged = await cluster.get("promotion", OTHER)
        await cluster.refresh()
        await cluster.wait("promotion", OTHER, ".status.phase", "Running")
        await cluster.pick_up()
        await cluster.complete()
        await cluster.wait("promotion", OTHER, ".status.phase", "Succeeded")

    assert phase_of(waiting) == "Pending"
    assert phase_of(unjudged) == "Pending"


async def test_somebody_elses_operation_is_waited_for(cluster: Cluster) -> None:
    """An operation of another, requested or running, is neither overwritten nor joined; ours follows it."""
    other = {"initiatedBy": {"username": "alice"}, "sync": {}}
    await cluster.prepare()
    await cluster.argo("dev", {"operation": other})
    async with cluster.controllers():
        await cluster.promote(NAME)
        await cluster.wait("promotion", NAME, ".status.stepExecutionMetadata[0].message")
        told = await cluster.get("promotion", NAME)
        state = {"operation": other, "phase": "Running", "startedAt": "2026-11-30T11:59:00Z"}
        await cluster.argo("dev", {"status": {"operationState": state}})
        during = await cluster.app()
        await cluster.argo("dev", {"operation": None, "status": {"operationState": {"phase": "Succeeded"}}})
        await cluster.pick_up()
        await cluster.complete()
        await cluster.wait("promotion", NAME, ".status.phase", "Succeeded")

    assert "requested by alice" in told["status"]["stepExecutionMetadata"][0]["message"]
    assert other == during["operation"]


@pytest.mark.parametrize("when", ["requested", "running", "ended"])
async def test_a_restart_does_not_start_twice(cluster: Cluster, when: str) -> None:
    """Whatever happened to the operation while the controllers were down, it is found again by its stamp."""
    await cluster.prepare()
    async with cluster.controllers():
        await cluster.promote(NAME)
        operation = await cluster.requested()
        if when != "requested":
            await cluster.pick_up()
    if when == "ended":
        await cluster.complete()
    async with cluster.controllers():
        if when == "requested":
            await cluster.pick_up()
        if when != "ended":
            await cluster.complete()
        await cluster.wait("promotion", NAME, ".status.phase", "Succeeded")
    starts = [
        event
        for event in await asyncio.to_thread(cluster.server.audited, "controller")
        if event["objectRef"].get("name") == cluster.app_name("dev") and event["verb"] == "patch"
    ]

    assert operation["info"]
    assert len(starts) == 1


@pytest.mark.parametrize(
    ("prepared", "step", "phase", "words"),
    [
        ({"authorized": ""}, {}, "Errored", "is not authorized: it has no annotation"),
        ({"authorized": "other:dev"}, {}, "Errored", "names other:dev, not"),
        ({"authorized": "shop:*"}, {}, "Errored", "wildcard"),
        ({"spec": {"project": "default"}}, {}, "Errored", "neither spec.source nor spec.sources"),
        ({"status": {"operationState": 7}}, {}, "Errored", "cannot be read"),
        ({}, {"config": {"apps": [{"name": "nowhere"}]}}, "Errored", 'Application "nowhere" in namespace "argocd"'),
        ({}, {"config": {"apps": []}}, "Errored", "spec.steps[0].config.apps: must not be empty"),
        ({}, {"config": {"apps": [{"name": "x", "labels": "y"}]}}, "Errored", "spec.steps[0].config.apps[0].labels: "),
        ({}, {"config": None}, "Errored", "spec.steps[0].config.apps: must be given"),
        ({}, {"config": {"apps": [{"name": "${{ vars.app }}"}]}}, "Failed", "must be a string, and is null"),
        ({}, {"as": STATE_KEY}, "Errored", "is reserved"),
        ({}, {"uses": "git-clone"}, "Errored", "spec.steps[0].uses: there is no kind of step 'git-clone'"),
    ],
    ids=["no annotation", "another stage", "wildcard", "no source", "unreadable", "missing", "no apps", "unknown field",
         "no config", "expression", "reserved alias", "unknown step"],
)  # fmt: skip
async def test_bad_input(
    cluster: Cluster, prepared: dict[str, Any], step: dict[str, Any], phase: str, words: str
) -> None:
    """What cannot be promoted ends the Promotion at once with the precise reason, and nothing was touched."""
    await cluster.prepare(**prepared)
    before = await cluster.app()
    async with cluster.controllers():
        await cluster.promote(NAME, **step)
        await cluster.wait("promotion", NAME, ".status.phase", phase)
        promotion = await cluster.get("promotion", NAME)

    assert words in promotion["status"]["message"]
    assert before == await cluster.app()


async def test_freight_that_is_not_there(cluster: Cluster) -> None:
    """A Promotion of Freight that does not exist is Errored and says so."""
    await cluster.prepare()
    async with cluster.controllers():
        await cluster.create(cluster.promotion(NAME, freight="f2"))
        await cluster.wait("promotion", NAME, ".status.phase", "Errored")
        promotion = await cluster.get("promotion", NAME)

    assert (
        f'Freight "f2" does not exist in namespace "{cluster.project}"; spec.freight takes a name'
        in promotion["status"]["message"]
    )


async def test_a_stage_that_is_not_there(cluster: Cluster) -> None:
    """A Promotion to a Stage that does not exist waits for it, and an Event says so."""
    await cluster.prepare()
    async with cluster.controllers():
        await cluster.create(cluster.promotion("qa.01k.f1", "qa"))
        await cluster.promote(NAME)
        await cluster.requested()
    events = json.loads(await cluster.kubectl("get", "events", "--output=json"))["items"]
    waiting = await cluster.get("promotion", "qa.01k.f1")

    assert phase_of(waiting) == "Pending"
    assert [f'Stage "qa" does not exist in namespace "{cluster.project}"; the Promotion waits for it'] == [
        e["message"] for e in events if e["reason"] == "StageNotFound"
    ]


@pytest.mark.envtest  # the embedded server takes nothing that is so deep
async def test_an_unreadable_object_stops_nobody(cluster: Cluster, logged: list[Any]) -> None:
    """An object that cannot be read, here one nested too deeply, gets an Event; everything else goes on."""
    await cluster.prepare()
    marker = "DEEP"
    deep = cluster.promotion("qa.01k.f1", "qa", config=marker)
    text = json.dumps(deep).replace(f'"{marker}"', '{"a":' * 1500 + "1" + "}" * 1500)
    async with cluster.controllers():
        await cluster.kubectl("create", "--filename=-", "--validate=false", stdin=text)
        await cluster.promote(NAME)
        await cluster.requested()
    async with cluster.controllers():
        await cluster.pick_up()
        await cluster.complete()
        await cluster.wait("promotion", NAME, ".status.phase", "Succeeded")
    events = json.loads(await cluster.kubectl("get", "events", "--output=json"))["items"]
    await cluster.kubectl("delete", "promotion", "qa.01k.f1", "--wait=false")  # too deep for the harness to read, too

    (event,) = (e for e in events if e["reason"] == "Unreadable")
    assert event["involvedObject"]["name"] == "qa.01k.f1"
    assert "Promotion cannot be read: spec: " in event["message"]
    assert not [line for line in logged if line["log_level"] == "error"]


async def test_an_unreadable_application_is_told(cluster: Cluster) -> None:
    """An Event on the Application says what to correct, also while nobody promotes to it."""
    await cluster.prepare(status={"operationState": 7})
    async with cluster.controllers():
        pass
    path = f"/api/v1/namespaces/argocd/events?fieldSelector=involvedObject.name={cluster.app_name('dev')}"
    (event,) = (await asyncio.to_thread(cluster.server.request, "GET", path))["items"]

    assert event["reason"] == "Unreadable"
    assert event["involvedObject"]["kind"] == "Application"
    assert "cannot be read: Expected `object | null`, got `int`" in event["message"]


async def test_two_control_planes(cluster: Cluster) -> None:
    """A controller of another shard leaves the Stages of this one alone."""
    await cluster.prepare()
    await cluster.create(cluster.stage("qa") | {"metadata": {"name": "qa", "labels": {"kargo.akuity.io/shard": "eu"}}})
    await cluster.create(cluster.application("qa"))
    async with cluster.controllers(responsibility=Responsibility("eu", default=False)):
        await cluster.promote(NAME)
        await cluster.promote("qa.01k.f1", "qa")
        await cluster.requested("qa")
        untouched = await cluster.get("promotion", NAME)

    assert "startedAt" not in untouched.get("status", {})


async def test_restarted_server(cluster: Cluster) -> None:
    """A server that is killed and comes back costs time and nothing else."""
    await cluster.prepare()
    async with cluster.controllers():
        await cluster.promote(NAME)
        await cluster.pick_up()
        await asyncio.to_thread(cluster.server.restart)
        await cluster.complete()
        await cluster.wait("promotion", NAME, ".status.phase", "Succeeded")


async def test_forgotten_history(cluster: Cluster, logged: list[Any]) -> None:
    """After 410 the caches list again; what ended meanwhile is seen."""
    await cluster.prepare()
    async with cluster.controllers():
        await cluster.promote(NAME)
        await cluster.pick_up()
        await asyncio.to_thread(cluster.server.forget_history)
        await cluster.complete()
        await cluster.wait("promotion", NAME, ".status.phase", "Succeeded")

    assert "version is too old, listing again" in [event["event"] for event in logged]


async def test_a_wait_after_an_update(cluster: Cluster) -> None:
    """The wait asks Argo CD to look once the sync has ended, and judges what it shows then; also over a restart."""
    app = cluster.app_name("dev")
    steps = [
        *cluster.promotion(NAME)["spec"]["steps"],
        {"uses": "argocd-wait", "as": "settled", "config": {"apps": [{"name": app}]}},
    ]
    await cluster.prepare()
    async with cluster.controllers():
        await cluster.create(cluster.promotion(NAME) | {"spec": {"stage": "dev", "freight": "f1", "steps": steps}})
        await cluster.pick_up()
        await cluster.complete()
        await cluster.wait("promotion", NAME, ".status.currentStep", "1")
        await cluster.refresh(health="Healthy")
        await cluster.refreshing()
        waiting = await cluster.get("promotion", NAME)
        await cluster.refresh(health="Progressing", second=9)
        await cluster.wait("promotion", NAME, ".status.stepExecutionMetadata[1].message")
    told = await cluster.get("promotion", NAME)
    async with cluster.controllers():
        await cluster.argo("dev", {"status": {"health": {"status": "Healthy"}}})
        await cluster.wait("promotion", NAME, ".status.phase", "Succeeded")
    ended = await cluster.get("promotion", NAME)

    assert waiting["status"]["state"][STATE_KEY][1]["kind"] == "argocd-wait"
    assert "health is Progressing, waiting for Healthy" in told["status"]["stepExecutionMetadata"][1]["message"]
    assert ended["status"]["state"]["settled"]["healthStatus"] == {f"argocd/{app}": "Healthy"}
    assert [check["uses"] for check in ended["status"]["healthChecks"]] == ["argocd-update"]
    assert "refresh" not in str((await cluster.app())["metadata"]["annotations"])


async def test_a_wait_that_is_in_vain(cluster: Cluster) -> None:
    """Health that regresses ends it at once."""
    await cluster.prepare()
    config = {"apps": [{"name": cluster.app_name("dev"), "waitFor": ["health"]}]}
    async with cluster.controllers():
        await cluster.promote(NAME, uses="argocd-wait", config=config)
        await cluster.refreshing()
        await cluster.refresh(health="Degraded")
        await cluster.wait("promotion", NAME, ".status.phase", "Failed")
    ended = await cluster.get("promotion", NAME)

    assert "health has regressed from Healthy to Degraded" in ended["status"]["message"]


async def test_the_life_of_a_stage(cluster: Cluster) -> None:
    """Its finalizer and its Applications stand in it once Freight says anything about it; deleted, it is forgotten.

    A Stage without steps beside it passes on what the other one has verified.
    """
    await cluster.prepare()
    gate = cluster.stage("gate")
    del gate["spec"]["promotionTemplate"]
    gate["spec"]["requestedFreight"][0]["sources"] = {"stages": ["dev"]}
    async with cluster.controllers():
        await cluster.create(gate)
        await cluster.wait("stage", "gate", ".status.freightSummary", "N/A")
        await cluster.promote(NAME)
        await cluster.pick_up()
        await cluster.complete()
        await cluster.refresh()
        await cluster.wait("freight", "f1", ".status.verifiedIn.gate.verifiedAt")
        stage = await cluster.get("stage", "dev")
        await cluster.create(cluster.promotion("gate.01k.f1", "gate"))
        await cluster.wait("promotion", "gate.01k.f1", ".status.phase", "Errored")
        await cluster.kubectl("annotate", "stage", "dev", "kargo.akuity.io/refresh=now")
        await cluster.wait("stage", "dev", ".status.lastHandledRefresh", "now")
        await cluster.kubectl("delete", "stage", "dev", "gate", "--timeout=40s")
        freight = await cluster.get("freight", "f1")

    assert stage["metadata"]["finalizers"] == ["kargo.akuity.io/finalizer"]
    context = json.loads(stage["metadata"]["annotations"]["kargo.akuity.io/argocd-context"])
    assert context == [{"name": cluster.app_name("dev"), "namespace": "argocd"}]
    assert {place: stages for place, stages in freight["status"].items() if stages} == {}
