"""The Stage prod, as its team wants it to behave."""

from datetime import timedelta
from pathlib import Path

import pytest

PIPELINE = Path(__file__).with_name("pipeline.yaml")


async def test_a_healthy_release_is_verified(kube_api, argocd, controller):
    await kube_api.apply(PIPELINE)
    promotion = await kube_api.promote("prod", "shop-1.1")

    assert await promotion.ended() == "Succeeded"
    await kube_api.verified("shop-1.1", "prod")


async def test_a_refused_manifest_is_explained(kube_api, argocd, controller):
    await kube_api.apply(PIPELINE)
    argocd.application("shop-prod").next_sync(fail='Service "shop" is invalid: spec.ports[0].port: Invalid value: 0')
    promotion = await kube_api.promote("prod", "shop-1.1")

    assert await promotion.ended() == "Failed"
    assert 'Service "shop" is invalid: spec.ports[0].port' in promotion.message


@pytest.mark.simulated_time
async def test_a_migration_that_hangs_is_ended_after_twenty_minutes(kube_api, argocd, controller, clock):
    await kube_api.apply(PIPELINE)
    argocd.application("shop-prod").next_sync(hang=True)
    promotion = await kube_api.promote("prod", "shop-1.1")
    await promotion.until(lambda it: "waiting for completion of hook" in it.message)
    begun = clock.now()

    assert await promotion.ended(within=3600) == "Failed"
    assert timedelta(minutes=19) < clock.now() - begun < timedelta(minutes=21)
    sync = (await kube_api.get("Application", "shop-prod"))["status"]["operationState"]
    assert (sync["phase"], sync["message"]) == ("Failed", "Operation terminated")
