"""The small steps on an API server, embedded and real: what they set, and what expressions read of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.controllers.conftest import Cluster

pytestmark = [
    pytest.mark.both_definitions,
    pytest.mark.nonblocking_exempt(reason="kubernetes-asyncio reads kubeconfigs in the loop; the tests start kubectl"),
]

NAME = "dev.01k0000000000000000000000a.f1"


async def run(cluster: Cluster, *steps: dict[str, Any], phase: str = "Succeeded") -> dict[str, Any]:
    """The status of a Promotion of *steps* that has ended, in that phase."""
    await cluster.create(cluster.stage("dev"))
    await cluster.create(cluster.freight())
    promotion = cluster.promotion(NAME)
    promotion["spec"]["steps"] = list(steps)
    await cluster.create(promotion)
    async with cluster.controllers(shared_resources_namespace=cluster.project):
        await cluster.wait("promotion", NAME, ".status.finishedAt")
    status: dict[str, Any] = (await cluster.get("promotion", NAME))["status"]
    assert status["phase"] == phase, status.get("message")
    return status


def updates(**values: Any) -> dict[str, Any]:
    both = (("Stage", "${{ ctx.stage }}"), ("Freight", "${{ ctx.targetFreight.name }}"))
    return {"updates": [{"kind": kind, "name": name, "values": values} for kind, name in both]}


READ = "${{ [stageMetadata(ctx.stage), freightMetadata(ctx.targetFreight.name)] }}"


async def test_what_was_set_is_read(cluster: Cluster) -> None:
    """Metadata of a Stage and of Freight is there for the next step, exactly; what it says of Stages is kept."""
    values = {"deep": {"list": [1, None, {"x": True}]}, "nothing": None, "a/b~c": "1.30", "number": 1.5}
    status = await run(
        cluster,
        {"uses": "set-metadata", "config": updates(**values)},
        {"uses": "set-metadata", "config": updates(deep={"y": 1}, more="${{ stageMetadata(ctx.stage).number + 1 }}")},
        {"uses": "compose-output", "as": "read", "config": {"both": READ}},
        {"uses": "set-freight-alias", "config": {"name": "${{ ctx.targetFreight.name }}", "alias": "1.30"}},
    )
    wanted = {**values, "deep": {"y": 1}, "more": 2.5}
    freight, stage = await cluster.get("freight", "f1"), await cluster.get("stage", "dev")

    # An output has no nulls: names that have one are left out.
    read = {name: value for name, value in wanted.items() if value is not None}
    assert status["state"]["read"] == {"both": [read, read]}
    assert [freight["status"]["metadata"], stage["status"]["metadata"]] == [wanted, wanted]
    assert [freight["alias"], freight["metadata"]["labels"]["kargo.akuity.io/alias"]] == ["1.30", "1.30"]


async def test_what_people_keep_is_read(cluster: Cluster) -> None:
    """ConfigMaps and Secrets of the Project and the shared ones; no secret is on record."""
    meta = {"apiVersion": "v1", "kind": "ConfigMap"}
    await cluster.create({**meta, "metadata": {"name": "settings"}, "data": {"region": "eu"}})
    generic = {"kargo.akuity.io/cred-type": "generic"}
    for name, labels in (("token", {}), ("shared", generic)):
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": labels}}
        await cluster.create({**secret, "stringData": {"word": f"geheim-{name}"}})
    status = await run(
        cluster,
        {
            "uses": "compose-output",
            "as": "read",
            "config": {
                "region": "${{ configMap('settings').region + sharedConfigMap('settings').region }}",
                "lengths": "${{ [len(secret('token').word), len(sharedSecret('shared').word)] }}",
                "hidden": "${{ sharedSecret('token') }}",
                "missing": "${{ secret('none') }}",
                "secret": "the word is ${{ secret('token').word }}",
            },
        },
    )

    assert status["state"]["read"] == {
        "region": "eueu", "lengths": [12, 13], "hidden": {}, "missing": {}, "secret": "the word is ***",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("step", "phase", "words"),
    [
        ({"uses": "fail", "config": {"message": "not ${{ 'to' + 'day' }}"}}, "Failed", "failed: not today"),
        (
            {"uses": "set-metadata", "config": {"updates": [{"kind": "Stage", "name": "no", "values": {"a": 1}}]}},
            "Errored",
            'Stage "no" does not exist',
        ),
        (
            {"uses": "set-metadata", "config": updates(a="${{ repeat('x', 300000) }}")},
            "Failed",
            'the metadata of Stage "dev" would be 293 KiB, at most 256 KiB',
        ),
        (
            {"uses": "set-freight-alias", "config": {"name": "f1", "alias": "${{ 'a b' }}"}},
            "Failed",
            "'a b' cannot be an alias",
        ),
    ],
    ids=["fail", "missing", "too large", "no alias"],
)
async def test_how_it_ends_otherwise(cluster: Cluster, step: dict[str, Any], phase: str, words: str) -> None:
    """The Promotion says why."""
    status = await run(cluster, step, phase=phase)

    assert words in status["message"]
    assert words in status["stepExecutionMetadata"][0]["message"]
