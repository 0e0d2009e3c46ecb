"""Promotions made with kubectl create and nothing more, on an API server, embedded and real."""

from __future__ import annotations

import json

import pytest

from kargo_py.api.admission import ADMITTED_KEY
from kargo_py.api.types import JsonObject
from tests.controllers.conftest import REPO, SHA, Cluster

pytestmark = [
    pytest.mark.both_definitions,
    pytest.mark.nonblocking_exempt(reason="kubernetes-asyncio reads kubeconfigs in the loop; the tests start kubectl"),
]

RECORD = r".status.state.kargo-py\.io/admitted.generation"


def bare(name: str, **spec: object) -> JsonObject:
    """A Promotion that says where to, and what."""
    return {
        "apiVersion": "kargo.akuity.io/v1alpha1",
        "kind": "Promotion",
        "metadata": {"name": name},
        "spec": {"stage": "dev", **spec},
    }


def template(cluster: Cluster) -> JsonObject:
    """A Stage whose steps are in a task, and that allows no others."""
    stage = cluster.stage("dev")
    stage["metadata"].pop("annotations")
    step = {"task": {"name": "deploy"}, "vars": [{"name": "app", "value": cluster.app_name("dev")}]}
    stage["spec"]["promotionTemplate"] = {"spec": {"steps": [step]}}
    return stage


def task() -> JsonObject:
    """The steps of a deployment."""
    source = {"repoURL": REPO, "desiredRevision": f'${{{{ commitFrom("{REPO}").ID }}}}', "updateTargetRevision": True}
    step = {"uses": "argocd-update", "config": {"apps": [{"name": "${{ vars.app }}", "sources": [source]}]}}
    return {
        "apiVersion": "kargo.akuity.io/v1alpha1",
        "kind": "PromotionTask",
        "metadata": {"name": "deploy"},
        "spec": {"vars": [{"name": "app"}], "steps": [step]},
    }


async def test_admitted_and_kept(cluster: Cluster) -> None:
    """An origin becomes Freight, a task its steps; from what is on record on nobody changes it, nor a new template."""
    await cluster.create(cluster.freight())
    await cluster.create(cluster.application("dev"))
    async with cluster.controllers():
        await cluster.create_with_kubectl(bare("p1", origin={"kind": "Warehouse", "name": "wh"}))
        await cluster.create_with_kubectl(template(cluster))
        await cluster.create_with_kubectl(task())
        await cluster.wait("promotion", "p1", ".status.phase")
        if (await cluster.get("promotion", "p1"))["status"]["phase"] == "Errored":
            # It was seen before its task was there.
            await cluster.create_with_kubectl(bare("p2", origin={"kind": "Warehouse", "name": "wh"}))
        running = (await cluster.pick_up())["operation"]["info"][1]["value"]
        await cluster.create_with_kubectl(bare("queued", freight="f1"))
        await cluster.wait("promotion", "queued", RECORD)
        queued = await cluster.get("promotion", "queued")
        patch = {"spec": {"promotionTemplate": {"spec": {"steps": [{"uses": "argocd-wait", "config": {"apps": []}}]}}}}
        await cluster.kubectl("patch", "stage", "dev", "--type=merge", f"--patch={json.dumps(patch)}")
        await cluster.wait("stage", "dev", ".status.conditions[?(@.type=='PromotionTemplateValid')].status", "False")
        edit = {"spec": {"steps": [{**queued["spec"]["steps"][0], "config": {"apps": [{"name": "other"}]}}]}}
        said = await cluster.kubectl(
            "patch", "promotion", "queued", "--type=merge", f"--patch={json.dumps(edit)}", check=False
        )
        await cluster.complete()
        await cluster.wait("promotion", running, ".status.phase", "Succeeded")
        await cluster.refresh()  # until Argo CD has looked at what the last one did, the next waits, for half a minute
        if cluster.server.strict:
            # Kargo's definition has no such rule; what was edited is not what was admitted, and no template fits it.
            await cluster.wait("promotion", "queued", ".status.phase", "Errored")
            return
        assert "cannot change any more once status.admittedAt is set" in said
        await cluster.pick_up()
        await cluster.complete()
        await cluster.wait("promotion", "queued", ".status.phase", "Succeeded")
    after = await cluster.get("promotion", "queued")

    assert (await cluster.app())["spec"]["source"]["targetRevision"] == SHA
    assert [step["as"] for step in after["spec"]["steps"]] == ["task-1::step-1"]
    assert after["spec"] == queued["spec"]
    assert queued["status"]["state"][ADMITTED_KEY]["generation"] == queued["metadata"]["generation"]
    assert after["status"]["admittedAt"] == queued["status"]["admittedAt"]
    assert after["metadata"]["labels"] == {"kargo.akuity.io/stage": "dev"}
    assert after["metadata"]["ownerReferences"][0]["name"] == "dev"


async def test_refused(cluster: Cluster) -> None:
    """All that is wrong is said at once, where it is written; the Promotion never begins."""
    stage = cluster.stage("dev")
    stage["metadata"].pop("annotations")
    wrong = [{"uses": "argocd-update", "config": {"apps": [{"name": 7}]}}, {"uses": "no-such-kind"}]
    stage["spec"]["promotionTemplate"]["spec"]["steps"] = wrong
    await cluster.create(cluster.freight())
    await cluster.create(stage)
    async with cluster.controllers():
        await cluster.create(bare("p1", freight="f1"))
        await cluster.wait("promotion", "p1", ".status.phase", "Errored")
        await cluster.wait("stage", "dev", ".status.conditions[?(@.type=='PromotionTemplateValid')].status", "False")
        shown = await cluster.kubectl("get", "stage", "dev")
    message = (await cluster.get("promotion", "p1"))["status"]["message"]

    assert 'Stage "dev": spec.promotionTemplate.spec.steps[0].config.apps[0].name: ' in message
    assert 'Stage "dev": spec.promotionTemplate.spec.steps[1].uses: ' in message
    assert "The promotion template cannot be run" in shown
