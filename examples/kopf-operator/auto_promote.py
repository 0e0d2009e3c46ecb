"""A kopf operator that promotes Freight by itself, and runs the controllers that carry the Promotions out.

Freight that is verified in a Stage is promoted to each Stage that takes it from there and has the annotation
``example.com/auto-promote: "true"``. Run it with the kubeconfig that kubectl uses:

    $ python auto_promote.py
"""

import asyncio
import contextlib
import logging

import kopf
import structlog

import kargo_py
from kargo_py.controllers.world import PROMOTIONS
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.errors import AlreadyExists


@kopf.on.event("kargo.akuity.io", "v1alpha1", "freights")
async def promote_onwards(body, name, namespace, memo, **_):
    verified_in = body.get("status", {}).get("verifiedIn", {})
    for stage in memo.kargo.stages.values():
        if stage["metadata"]["namespace"] == namespace and takes(stage, verified_in):
            await promote(memo.client, stage, name)


def takes(stage, verified_in):
    wanted = stage["metadata"].get("annotations", {}).get("example.com/auto-promote") == "true"
    upstream = [up for each in stage["spec"]["requestedFreight"] for up in each["sources"].get("stages", [])]
    return wanted and any(up in verified_in for up in upstream)


async def promote(client, stage, freight):
    # The name is the same every time: this Freight is promoted to this Stage by itself once.
    name, namespace = f"auto.{stage['metadata']['name']}.{freight}", stage["metadata"]["namespace"]
    promotion = {
        "apiVersion": PROMOTIONS.api_version,
        "kind": PROMOTIONS.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"stage": stage["metadata"]["name"], "freight": freight},
    }
    with contextlib.suppress(AlreadyExists):
        await client.create(PROMOTIONS, namespace, encode(promotion), codec=JSON)


@kopf.on.login()
def login(**arguments):
    return kopf.login_with_service_account(**arguments) or kopf.login_with_kubeconfig(**arguments)


async def main():
    # kargo-py logs through structlog; here that goes where kopf's own log goes.
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, structlog.stdlib.render_to_log_kwargs],
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
    kopf.configure(verbose=False)
    async with await kargo_py.connect() as client, kargo_py.Controllers(client) as controllers:
        memo = kopf.Memo(client=client, kargo=controllers.shared)
        # It handles SIGTERM and SIGINT. Should a controller die, it is cancelled, and the program ends with the error.
        await kopf.operator(standalone=True, clusterwide=True, memo=memo)
    logging.getLogger(__name__).info("the operator and the controllers have ended")


if __name__ == "__main__":
    asyncio.run(main())
