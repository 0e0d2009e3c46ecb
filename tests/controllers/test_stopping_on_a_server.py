"""Abort, time-out, deletion, supersession and adoption on a server, embedded and real; Argo CD is acted by hand."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from kargo_py.api.abort import ANNOTATION_ABORT
from kargo_py.controllers import sweep
from kargo_py.controllers.world import Responsibility
from tests.controllers.conftest import RECORDS, SHA, Cluster, operations

pytestmark = [
    pytest.mark.both_definitions,
    pytest.mark.nonblocking_exempt(reason="kubernetes-asyncio reads kubeconfigs in the loop; the tests start kubectl"),
]

NAME = "dev.01k0000000000000000000000a.f1"
OTHER = "dev.01k0000000000000000000000b.f1"
THEIRS = {"initiatedBy": {"username": "alice"}, "sync": {}}


async def abort(cluster: Cluster, value: str = "terminate", name: str = NAME) -> None:
    await cluster.kubectl("annotate", "--overwrite", "promotion", name, f"{ANNOTATION_ABORT}={value}")


async def operations_written(cluster: Cluster) -> list[dict[str, Any]]:
    """The patches that the controller sent to the Application, oldest first."""
    events = await asyncio.to_thread(cluster.server.audited, "controller")
    return [
        event
        for event in events
        if event["objectRef"].get("name") == cluster.app_name("dev") and event["verb"] == "patch"
    ]


async def test_abort_of_a_running_promotion(cluster: Cluster) -> None:
    """Its operation is terminated and waited for, the record says how it ended, and the next Promotion runs."""
    await cluster.prepare()
    async with cluster.controllers():
        await cluster.promote(NAME)
        await cluster.promote(OTHER)
        await cluster.pick_up()
        await abort(cluster, json.dumps({"action": "terminate", "actor": "email:a@b", "controlPlane": False}))
        await cluster.terminating()
        meanwhile = await cluster.get("promotion", NAME)
        await cluster.terminated()
        await cluster.wait("promotion", NAME, ".status.phase", "Aborted")
        ended = await cluster.get("promotion", NAME)
        await cluster.pick_up()
        await cluster.complete()
        await cluster.wait("promotion", OTHER, ".status.phase", "Succeeded")
        await cluster.wait("stage", "dev", ".status.lastPromotion.name", OTHER)

    assert meanwhile["status"]["phase"] == "Running"
    assert meanwhile["status"]["stepExecutionMetadata"][-1]["message"].startswith("aborting, as email:a@b asked")
    assert ended["status"]["message"].startswith("Promotion terminated by email:a@b: Argo CD Application")
    assert "Operation terminated" in ended["status"]["message"]
    assert "keeps the change of /spec/source/targetRevision" in ended["status"]["message"]
    assert [step["status"] for step in ended["status"]["stepExecutionMetadata"]] == ["Aborted"]
    assert [operation["state"] for operation in operations(ended)] == ["Stopped"]
    reasons = {e["reason"] for e in json.loads(await cluster.kubectl("get", "events", "--output=json"))["items"]}
    assert "PromotionAborted" in reasons


async def test_abort_before_the_operation_is_picked_up(cluster: Cluster) -> None:
    """The worker finds a state of ours that is ending; `.operation` was never taken away."""
    await cluster.prepare()
    async with cluster.controllers():
        await cluster.promote(NAME)
        operation = await cluster.requested()
        await abort(cluster)
        await cluster.terminating()
        app = await cluster.app()
        await cluster.terminated()
        await cluster.wait("promotion", NAME, ".status.phase", "Aborted")

    assert app["operation"] == app["status"]["operationState"]["operation"] == operation


async def test_abort_of_a_pending_promotion(cluster: Cluster) -> None:
    """It ends at once, whether or not its turn has come, and nothing is started."""
    await cluster.prepare()
    await cluster.promote(NAME)
    await abort(cluster)
    async with cluster.controllers():
        await cluster.wait("promotion", NAME, ".status.phase", "Aborted")
        ended = await cluster.get("promotion", NAME)
        await cluster.promote(OTHER)
        await cluster.pick_up()

    assert ended["status"]["message"] == "Promotion terminated by controller:kargo-py"
    assert len(await operations_written(cluster)) == 1


async def test_abort_is_latched(cluster: Cluster) -> None:
    """Taking the annotation away does not bring the Promotion back; nor does a restart in between."""
    await cluster.prepare()
    async with cluster.controllers():
        await cluster.promote(NAME)
        await cluster.pick_up()
        await abort(cluster)
        await cluster.terminating()
    await cluster.kubectl("annotate", "promotion", NAME, f"{ANNOTATION_ABORT}-")
    async with cluster.controllers():
        await cluster.terminated()
        await cluster.wait("promotion", NAME, ".status.phase", "Aborted")


async def test_abort_that_comes_too_late(cluster: Cluster) -> None:
    """If the operation wins the race the Promotion is Aborted all the same, and the record has the truth."""
    await cluster.prepare()
    async with cluster.controllers():
        await cluster.promote(NAME)
        await cluster.pick_up()
        await abort(cluster)
        await cluster.terminating()
        await cluster.complete()
        await cluster.wait("promotion", NAME, ".status.phase", "Aborted")
        ended = await cluster.get("promotion", NAME)

    (operation,) = operations(ended)
    assert (operation["state"], operation["revision"]) == ("Succeeded", SHA)
    assert "successfully synced" in ended["status"]["message"]


async def test_abort_by_force(cluster: Cluster) -> None:
    """Force ends the Promotion at once, and it says what was left as it is."""
    await cluster.prepare()
    async with cluster.controllers():
        await cluster.promote(NAME)
        await cluster.pick_up()
        await abort(cluster, json.dumps({"action": "terminate", "force": True}))
        await cluster.wait("promotion", NAME, ".status.phase", "Aborted")
        ended, app = await cluster.get("promotion", NAME), await cluster.app()

    assert app["status"]["operationState"]["phase"] == "Terminating"
    assert "is being terminated; it was left as it is" in ended["status"]["message"]
    assert [operation["state"] for operation in operations(ended)] == ["Detached"]


async def test_abort_that_argo_cd_does_not_carry_out(cluster: Cluster) -> None:
    """After its time the abort ends the Promotion and says what it left."""
    await cluster.prepare()
    async with cluster.controllers(abort_patience=timedelta(seconds=2)):
        await cluster.promote(NAME)
        await cluster.pick_up()
        await abort(cluster)
        await cluster.wait("promotion", NAME, ".status.phase", "Aborted")
        ended = await cluster.get("promotion", NAME)

    assert "it was left as it is" in ended["status"]["message"]


async def test_abort_and_put_back(cluster: Cluster) -> None:
    """With onAbort: revert the spec is as it was before the start, once the operation has ended."""
    await cluster.prepare()
    config = cluster.promotion(NAME)["spec"]["steps"][0]["config"]
    async with cluster.controllers():
        await cluster.promote(NAME, config={**config, "onAbort": "revert"})
        await cluster.pick_up()
        during = await cluster.app()
        await abort(cluster)
        await cluster.terminated()
        await cluster.wait("promotion", NAME, ".status.phase", "Aborted")
        ended, after = await cluster.get("promotion", NAME), await cluster.app()

    assert during["spec"]["source"]["targetRevision"] == SHA
    assert after["spec"]["source"]["targetRevision"] == "main"
    assert "put back: /spec/source/targetRevision" in ended["status"]["message"]


async def test_nonsense_in_the_annotation(cluster: Cluster) -> None:
    """It aborts nothing, and an Event says what to write."""
    await cluster.prepare()
    async with cluster.controllers():
        await cluster.promote(NAME)
        await cluster.pick_up()
        await abort(cluster, "please")
        await cluster.complete()
        await cluster.wait("promotion", NAME, ".status.phase", "Succeeded")
    events = json.loads(await cluster.kubectl("get", "events", "--output=json"))["items"]

    (event,) = (e for e in events if e["reason"] == "AbortNotUnderstood")
    assert "set it to terminate" in event["message"]


async def test_time_out(cluster: Cluster) -> None:
    """By default the operation is left to run, and the Promotion is Failed and says so."""
    await cluster.prepare()
    async with cluster.controllers():
        await cluster.promote(NAME, retry={"timeout": "2s"})
        await cluster.pick_up()
        await cluster.wait("promotion", NAME, ".status.phase", "Failed")
        ended, app = await cluster.get("promotion", NAME), await cluster.app()

    assert app["status"]["operationState"]["phase"] == "Running"
    assert 'step "update": timed out after 2s; Argo CD Application' in ended["status"]["message"]
    assert "the sync was left to run" in ended["status"]["message"]
    assert [operation["state"] for operation in operations(ended)] == ["Detached"]


async def test_time_out_that_terminates(cluster: Cluster) -> None:
    """With onTimeout: terminate the operation is ended before the Promotion is."""
    await cluster.prepare()
    config = cluster.promotion(NAME)["spec"]["steps"][0]["config"]
    async with cluster.controllers():
        await cluster.promote(NAME, retry={"timeout": "1s"}, config={**config, "onTimeout": "terminate"})
        await cluster.pick_up()
        await cluster.terminated()
        await cluster.wait("promotion", NAME, ".status.phase", "Failed")
        ended = await cluster.get("promotion", NAME)

    assert "timed out after 1s" in ended["status"]["message"]
    assert [operation["state"] for operation in operations(ended)] == ["Stopped"]


async def test_a_superseded_sync_is_made_again(cluster: Cluster) -> None:
    """The new attempt has a stamp of its own, is recorded before it is issued, and the record keeps both."""
    await cluster.prepare()
    async with cluster.controllers():
        await cluster.promote(NAME)
        await cluster.pick_up()
        state = {"operation": THEIRS, "phase": "Running", "startedAt": "2026-11-30T12:00:03Z"}
        await cluster.argo("dev", {"operation": None, "status": {"operationState": None}})
        await cluster.argo("dev", {"operation": THEIRS, "status": {"operationState": state}})
        await cluster.wait("promotion", NAME, RECORDS + "[1].attempt", "2")
        during = await cluster.app()
        await cluster.argo("dev", {"operation": None, "status": {"operationState": {"phase": "Succeeded"}}})
        await cluster.pick_up()
        await cluster.complete()
        await cluster.wait("promotion", NAME, ".status.phase", "Succeeded")
        ended = await cluster.get("promotion", NAME)

    assert during["operation"] == THEIRS
    first, second = operations(ended)
    assert (first["state"], second["state"]) == ("Superseded", "Succeeded")
    assert "alice" in first["message"]
    assert first["stamp"] != second["stamp"]


async def test_deletion_ends_the_operation(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operation of a Promotion that is gone is terminated, also if it went while the controllers were down."""
    monkeypatch.setattr(sweep, "CERTAIN", 0.5)
    await cluster.prepare()
    async with cluster.controllers():
        await cluster.promote(NAME)
        await cluster.pick_up()
    await cluster.kubectl("delete", "promotion", NAME)
    async with cluster.controllers():
        await cluster.terminating()
        app = await cluster.app()
        await cluster.terminated()

    assert app["operation"] == app["status"]["operationState"]["operation"]


async def test_deletion_is_not_for_others_to_sweep(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither another control plane nor another shard touches what a deleted Promotion has left."""
    monkeypatch.setattr(sweep, "CERTAIN", 0.1)
    await cluster.prepare()
    async with cluster.controllers():
        await cluster.promote(NAME)
        await cluster.pick_up()
    await cluster.kubectl("delete", "promotion", NAME)
    before = await cluster.app()
    written = len(await operations_written(cluster))
    other_shard = Responsibility("eu", default=False)
    async with cluster.controllers(instance="other"), cluster.controllers(responsibility=other_shard):
        # They are awake: a Promotion of another Stage goes all the way meanwhile.
        await cluster.create(cluster.stage("qa"))
        await cluster.create(cluster.application("qa"))
        await cluster.promote("qa.01k.f1", "qa")
        await cluster.pick_up("qa")
        await cluster.complete("qa")
        await cluster.wait("promotion", "qa.01k.f1", ".status.phase", "Succeeded")
    after = await cluster.app()

    assert before["status"]["operationState"] == after["status"]["operationState"]
    assert len(await operations_written(cluster)) == written


async def test_a_kargos_promotion_is_taken_over(cluster: Cluster) -> None:
    """The operation that a real Kargo has started is watched to its end; no other is started."""
    await cluster.prepare()
    await cluster.promote(NAME)
    theirs = {
        "initiatedBy": {"username": "kargo-controller", "automated": True},
        "info": [{"name": "kargo.akuity.io/promotion", "value": NAME}],
        "sync": {},
    }
    # By our clock: a step has its time-out.
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    running = {
        "phase": "Running",
        "startedAt": now,
        "currentStep": 0,
        "stepExecutionMetadata": [{"alias": "update", "startedAt": now, "status": "Running"}],
    }
    base = f"/apis/kargo.akuity.io/v1alpha1/namespaces/{cluster.project}"
    merge = partial(cluster.server.request, content_type="application/merge-patch+json")
    stage = {"status": {"currentPromotion": {"name": NAME}}}
    for path, body in (("stages/dev/status", stage), (f"promotions/{NAME}/status", {"status": running})):
        await asyncio.to_thread(merge, "PATCH", f"{base}/{path}", body)
    await cluster.argo("dev", {"operation": theirs})
    async with cluster.controllers():
        await cluster.wait("promotion", NAME, RECORDS + "[0].stamp")
        await cluster.pick_up()
        await cluster.complete()
        await cluster.wait("promotion", NAME, ".status.phase", "Succeeded")
        ended = await cluster.get("promotion", NAME)

    (operation,) = operations(ended)
    assert (operation.get("attempt", 0), operation["stamp"]) == (0, f"kargo:{NAME}")
    assert not await operations_written(cluster)
