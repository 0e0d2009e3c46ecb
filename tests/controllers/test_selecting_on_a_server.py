"""argocd-update with selectors on an API server, embedded and real: kubectl on one side, Argo CD acted by hand."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from kargo_py.api.stamp import AWAITED_KEY
from tests.controllers.conftest import REPO, SHA, Cluster

pytestmark = [
    pytest.mark.nonblocking_exempt(reason="kubernetes-asyncio reads kubeconfigs in the loop; the tests start kubectl"),
]

NAME = "dev.01k0000000000000000000000a.f1"
ALICE = {"initiatedBy": {"username": "alice"}, "sync": {}}


def config(cluster: Cluster, **more: Any) -> dict[str, Any]:
    """All that carry the Project's name as a label, in a namespace that other tests share."""
    source = {"repoURL": REPO, "desiredRevision": SHA, "updateTargetRevision": True}
    selector = {"matchExpressions": [{"key": "project", "operator": "In", "values": [cluster.project]}]}
    return {"apps": [{"selector": selector, "sources": [source], **more}]}


async def create(cluster: Cluster, *names: str, stage: str = "dev") -> None:
    for name in names:
        app = cluster.application(name, authorized=f"{cluster.project}:{stage}")
        app["metadata"]["labels"] = {"project": cluster.project}
        await cluster.create(app)


async def prepare(cluster: Cluster) -> None:
    await cluster.create(cluster.stage("dev"))
    await cluster.create(cluster.freight())


async def states(cluster: Cluster) -> dict[str, str]:
    promotion = await cluster.get("promotion", NAME)
    return {op["name"].rpartition("-")[2]: op["state"] for op in promotion["status"]["operations"]}


async def test_three_of_which_one_is_busy_and_one_fails(cluster: Cluster) -> None:
    """Each stands alone, across a restart too; one more that does not authorise the Stage is named in an Event."""
    await prepare(cluster)
    await create(cluster, "a", "b", "c")
    await create(cluster, "d", stage="prod")
    await cluster.argo(
        "a", {"operation": ALICE, "status": {"operationState": {"operation": ALICE, "phase": "Running"}}}
    )
    async with cluster.controllers():
        await cluster.promote(NAME, config=config(cluster))
        for name in ("b", "c"):
            await cluster.pick_up(name)
        await cluster.complete("b", phase="Failed", message="boom")
        await cluster.complete("c")
        await cluster.wait("promotion", NAME, ".status.operations[1].state", "Failed")
    # Nobody is there: the label goes, and the Application becomes free.
    await cluster.argo("a", {"metadata": {"labels": {"project": None}}})
    await cluster.complete("a", sha="0" * 40)
    async with cluster.controllers():
        await cluster.pick_up("a")
        await cluster.complete("a")
        await cluster.wait("promotion", NAME, ".status.phase", "Failed")
    promotion = await cluster.get("promotion", NAME)
    about = f"involvedObject.name={NAME},reason=StepWarning"
    (event,) = json.loads(await cluster.kubectl("get", "events", f"--field-selector={about}", "--output=json"))["items"]

    assert await states(cluster) == {"a": "Succeeded", "b": "Failed", "c": "Succeeded"}
    assert "boom" in promotion["status"]["message"]
    assert f'"{cluster.app_name("d")}" in namespace "argocd" is not authorized' in event["message"]
    assert "operation" not in await cluster.app("d")


async def test_one_that_is_made_later(cluster: Cluster) -> None:
    """Its creation begins the step, though it happens while nobody is there."""
    await prepare(cluster)
    async with cluster.controllers():
        await cluster.promote(NAME, config=config(cluster, waitForCreation="5m"))
        await cluster.wait("promotion", NAME, ".status.stepExecutionMetadata[0].message")
    waiting = await cluster.get("promotion", NAME)
    await create(cluster, "later")
    async with cluster.controllers():
        await cluster.pick_up("later")
        await cluster.complete("later")
        await cluster.wait("promotion", NAME, ".status.phase", "Succeeded")
    ended = await cluster.get("promotion", NAME)

    message = waiting["status"]["stepExecutionMetadata"][0]["message"]
    assert message.startswith(f'waits for an Argo CD Application matching selector "project={cluster.project}" in')
    assert len(waiting["status"]["state"][AWAITED_KEY]) == 1
    assert AWAITED_KEY not in ended["status"]["state"]
    assert await states(cluster) == {"later": "Succeeded"}


async def test_abort_while_it_waits_for_one(cluster: Cluster) -> None:
    """It ends at once, and what is made then is left alone."""
    await prepare(cluster)
    async with cluster.controllers():
        await cluster.promote(NAME, config=config(cluster, waitForCreation="5m"))
        await cluster.wait("promotion", NAME, ".status.stepExecutionMetadata[0].message")
        await cluster.kubectl("annotate", "promotion", NAME, "kargo.akuity.io/abort=terminate")
        await cluster.wait("promotion", NAME, ".status.phase", "Aborted")
        await create(cluster, "later")
        await asyncio.sleep(0.5)

    assert "operation" not in await cluster.app("later")
    assert "nothing was started" in (await cluster.get("promotion", NAME))["status"]["message"]


async def test_one_failure_ends_all(cluster: Cluster) -> None:
    """With onPartialFailure: terminate the operation of the other one is terminated."""
    await prepare(cluster)
    await create(cluster, "a", "b")
    async with cluster.controllers():
        await cluster.promote(NAME, config={**config(cluster), "onPartialFailure": "terminate"})
        for name in ("a", "b"):
            await cluster.pick_up(name)
        await cluster.complete("b", phase="Failed", message="boom")
        await cluster.terminated("a")
        await cluster.wait("promotion", NAME, ".status.phase", "Failed")

    assert await states(cluster) == {"a": "Stopped", "b": "Failed"}
