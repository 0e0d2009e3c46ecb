"""On a real API server: it takes the manifests, and with exactly their rights everything works."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import kargo_py
from kargo_py.api.abort import ANNOTATION_ABORT
from kargo_py.argocd.applicationset import APPLICATION_SETS
from kargo_py.kube.resources import Key
from tests.controllers.conftest import SHA, Cluster
from tests.deploy.manifests import DEPLOY, VARIANTS, JsonObject, rendered, rules

pytestmark = [
    pytest.mark.envtest,
    pytest.mark.nonblocking_exempt(reason="kubernetes-asyncio reads kubeconfigs in the loop; the tests start kubectl"),
]

APPLY = ("--namespace=", "apply", "--kustomize")
ACCOUNT = "system:serviceaccount:kargo-py:kargo-py"
GOOD = "dev.01k0000000000000000000000a.f1"
ABORTED = "dev.01k0000000000000000000000b.f1"
WITHOUT_FREIGHT = "dev.01k0000000000000000000000c.f1"
FILLED_IN = "last.01k0000000000000000000000e.f1"
UNAUTHORIZED = "other.01k0000000000000000000000d.f1"

Right = tuple[str, str, str]
"""Verb, API group, and resource with its subresource."""


@pytest.mark.parametrize("variant", VARIANTS)
async def test_the_server_takes_it(cluster: Cluster, variant: str) -> None:
    """All of it is valid to a real API server, and nothing needs a warning."""
    await cluster.kubectl("--namespace=", "create", "namespace", "kargo-py", "--save-config", check=False)
    said = await cluster.kubectl(*APPLY, str(DEPLOY / variant), "--dry-run=server", "--warnings-as-errors", check=False)

    assert len(said.splitlines()) == len(rendered(variant)), said
    assert all(line.endswith("(server dry run)") for line in said.splitlines()), said


async def token_of(cluster: Cluster) -> str:
    """A token of the service account, as the kubelet asks for one."""
    path = "/api/v1/namespaces/kargo-py/serviceaccounts/kargo-py/token"
    wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    answer = await asyncio.to_thread(cluster.server.request, "POST", path, wanted)
    token: str = answer["status"]["token"]
    return token


@asynccontextmanager
async def deployed(
    cluster: Cluster, directory: Path, variant: str = ".", **settings: Any
) -> AsyncIterator[kargo_py.Controllers]:
    """The controllers with the rights of a folder of ``deploy/``, and no other."""
    await cluster.kubectl("delete", "clusterrolebinding", "kargo-py-applications", "--ignore-not-found")
    await cluster.kubectl(*APPLY, str(DEPLOY / variant))
    kubeconfig = json.loads(await asyncio.to_thread(cluster.server.kubeconfig("nobody").read_text))
    kubeconfig["users"][0]["user"]["token"] = await token_of(cluster)
    path = directory / "kubeconfig"
    await asyncio.to_thread(path.write_text, json.dumps(kubeconfig))
    async with (
        await kargo_py.connect(kubeconfig=str(path)) as client,
        kargo_py.Controllers(client, **settings) as controllers,
    ):
        yield controllers


def granted() -> set[Right]:
    return {
        (verb, group, resource)
        for rule in rules(rendered())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def asked(event: JsonObject) -> Right:
    about = event["objectRef"]
    subresource = f"/{about['subresource']}" if about.get("subresource") else ""
    return event["verb"], about.get("apiGroup", ""), about["resource"] + subresource


async def requests(cluster: Cluster) -> list[JsonObject]:
    """What the service account has asked for, in this test and those before it."""
    events = await asyncio.to_thread(cluster.server.audited)
    return [event for event in events if event["user"].get("username") == ACCOUNT]


async def everything_else(cluster: Cluster) -> None:
    """A Promotion that is filled in from tasks, reads what expressions can, and names its Freight."""
    for kind, named in (("PromotionTask", "name-it"), ("ClusterPromotionTask", cluster.project)):
        alias = "told" if kind == "PromotionTask" else "told-again"
        rename = {"uses": "set-freight-alias", "config": {"name": "f1", "alias": f"{cluster.project}-{alias}"}}
        task = {"apiVersion": "kargo.akuity.io/v1alpha1", "kind": kind, "metadata": {"name": named}}
        await cluster.create({**task, "spec": {"steps": [rename]}})
    read = {"a": "${{ configMap('none').a ?? 'none' }}", "b": "${{ secret('none').b ?? 'none' }}"}
    steps = [
        {"uses": "compose-output", "config": read},
        {"task": {"name": "name-it"}},
        {"task": {"name": cluster.project, "kind": "ClusterPromotionTask"}},
    ]
    stage = cluster.stage("last")
    stage["spec"]["promotionTemplate"]["spec"]["steps"] = steps
    await cluster.create(stage)
    promotion = cluster.promotion(FILLED_IN, "last")
    promotion["spec"] = {"stage": "last", "origin": {"kind": "Warehouse", "name": "wh"}}
    await cluster.create(promotion)
    await cluster.wait("promotion", FILLED_IN, ".status.phase", "Succeeded")
    await cluster.kubectl("delete", "clusterpromotiontask", cluster.project)


async def test_with_these_rights(cluster: Cluster, tmp_path: Path, logged: list[Any]) -> None:
    """A whole life passes: success, verification, abort, refusals, what follows a conflict. No right is unused."""
    before = len(await requests(cluster))
    await cluster.prepare()
    owner = {"apiVersion": APPLICATION_SETS.api_version, "kind": "ApplicationSet", "name": "set", "uid": "u"}
    owned = {"metadata": {"ownerReferences": [{**owner, "controller": True}]}}
    await cluster.argo("dev", owned)
    await cluster.create(cluster.stage("other"))
    await cluster.create(cluster.application("other", authorized=""))
    async with deployed(cluster, tmp_path) as controllers:
        await cluster.promote(GOOD)
        await cluster.pick_up()
        await cluster.complete()
        await cluster.wait("promotion", GOOD, ".status.phase", "Succeeded")
        await cluster.refresh()
        await cluster.wait("freight", "f1", ".status.verifiedIn.dev.verifiedAt")
        # As after a conflict: what they decide next rests on what is live.
        controllers.shared.stages.mark_dirty(Key(cluster.project, "dev"))
        controllers.shared.promotions.mark_dirty(Key(cluster.project, ABORTED))

        await cluster.promote(ABORTED)
        await cluster.pick_up()
        await cluster.kubectl("annotate", "promotion", ABORTED, f"{ANNOTATION_ABORT}=terminate")
        await cluster.terminated()
        await cluster.wait("promotion", ABORTED, ".status.phase", "Aborted")

        await cluster.create({**cluster.promotion(WITHOUT_FREIGHT, freight="absent")})
        await cluster.wait("promotion", WITHOUT_FREIGHT, ".status.phase", "Errored")
        await cluster.promote(UNAUTHORIZED, "other")
        await cluster.wait("promotion", UNAUTHORIZED, ".status.phase", "Errored")
        await cluster.wait("stage", "dev", ".status.lastPromotion.name", WITHOUT_FREIGHT)
        await cluster.wait("stage", "other", ".status.lastPromotion.name", UNAUTHORIZED)
        await everything_else(cluster)
    events = json.loads(await cluster.kubectl("get", "events", "--output=json"))["items"]
    ours = (await requests(cluster))[before:]

    assert {"PromotionSucceeded", "FreightVerificationSucceeded", "PromotionAborted", "PromotionErrored"} <= {
        event["reason"] for event in events
    }
    assert (await cluster.app())["spec"]["source"]["targetRevision"] == SHA
    assert [event for event in ours if event["responseStatus"]["code"] == 403] == []
    assert [event for event in logged if event["log_level"] in {"error", "critical"}] == []
    assert {asked(event) for event in ours} == granted()


async def test_applications_of_one_namespace(cluster: Cluster, tmp_path: Path) -> None:
    """With rights on the Applications of that namespace alone it promotes there, and asks for no other."""
    before = len(await requests(cluster))
    await cluster.prepare()
    async with deployed(cluster, tmp_path, "argocd-namespace-only", watch_argocd_namespace_only=True):
        await cluster.promote(GOOD)
        await cluster.pick_up()
        await cluster.complete()
        await cluster.refresh()
        await cluster.wait("freight", "f1", ".status.verifiedIn.dev.verifiedAt")
    ours = (await requests(cluster))[before:]

    assert [event for event in ours if event["responseStatus"]["code"] == 403] == []


async def test_without_one_of_them(cluster: Cluster, tmp_path: Path) -> None:
    """The server does keep to these rights: without that on Freight, it cannot begin, and says which is missing."""
    async with deployed(cluster, tmp_path):
        pass
    role = {"rules": [rule for rule in rules(rendered("separate-argocd")) if "freights" not in rule["resources"]]}
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/kargo-py"
    await asyncio.to_thread(cluster.server.request, "PATCH", path, role, content_type="application/merge-patch+json")
    with pytest.raises(kargo_py.StartError, match=r"allow get, list, watch and patch on"):
        async with deployed_already(tmp_path):
            pytest.fail("it began")


@asynccontextmanager
async def deployed_already(directory: Path) -> AsyncIterator[None]:
    path = str(directory / "kubeconfig")
    async with await kargo_py.connect(kubeconfig=path) as client, kargo_py.Controllers(client, instance="me"):
        yield
