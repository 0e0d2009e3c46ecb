"""Argo CD on an API server of its own, over sockets: that server is killed and started again while a Promotion runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.controllers.conftest import Cluster
from tests.envtest import crds as definitions
from tests.envtest.embedded import embedded
from tests.envtest.server import poll

pytestmark = [
    pytest.mark.nonblocking_exempt(reason="kubernetes-asyncio reads kubeconfigs in the loop; the tests start kubectl"),
]

NAME = "dev.01k0000000000000000000000a.f1"


@pytest.fixture
def argocds(cluster: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    """Argo CD's cluster, with the same names in it."""
    with embedded(tmp_path / "argocd") as server:
        definitions.install(server, [definitions.APPLICATION])
        server.request("POST", "/api/v1/namespaces", {"metadata": {"name": "argocd"}})
        yield Cluster(server, cluster.project, cluster.kubectl_path)


async def eventually(condition: Callable[[], bool], complaint: str) -> None:
    await asyncio.to_thread(poll, condition, complaint)


async def test_argocds_server_is_killed_while_a_sync_runs(
    cluster: Cluster, argocds: Cluster, logged: list[Any]
) -> None:
    """What reaches each cluster is its own; the sync that ended after the outage is seen, and its Freight verified."""
    await cluster.create(cluster.stage("dev"))
    await cluster.create(cluster.freight())
    await argocds.create(argocds.application("dev"))
    kubeconfig = str(argocds.server.kubeconfig("controller"))

    def said(words: str) -> bool:
        return any(line["event"] == words and "applications" in line["resource"] for line in list(logged))

    async with cluster.controllers(argocd_kubeconfig=kubeconfig):
        await cluster.promote(NAME)
        await argocds.pick_up()
        await asyncio.to_thread(argocds.server.kill)
        await eventually(lambda: said("cache is not being updated"), "the outage was not noticed")
        running = await cluster.get("promotion", NAME)
        await asyncio.to_thread(argocds.server.restart)
        await argocds.complete()
        await cluster.wait("promotion", NAME, ".status.phase", "Succeeded")
        await argocds.refresh()
        await cluster.wait("freight", "f1", ".status.verifiedIn.dev.verifiedAt")
        await eventually(lambda: said("cache is being updated again"), "the end of the outage was not noticed")

    ended = await cluster.get("promotion", NAME)
    assert running["status"]["phase"] == "Running"
    assert [operation["attempt"] for operation in ended["status"]["operations"]] == [1]
    asked = [event["objectRef"]["resource"] for event in await asyncio.to_thread(argocds.server.audited, "controller")]
    assert set(asked) == {"applications"}
