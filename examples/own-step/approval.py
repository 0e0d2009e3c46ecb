"""A kind of step of one's own: ``approval`` waits until somebody has said yes in a ConfigMap.

    - uses: approval
      config:
        configMap: release-1.1

It ends when ``data.approved`` of that ConfigMap, in the Project's namespace, is "true":

    $ kubectl create configmap release-1.1 --from-literal approved=true
"""

import asyncio
import signal
from datetime import timedelta

import kargo_py
from kargo_py.api.promotion import StepStatus
from kargo_py.deployers.base import Record, TargetState
from kargo_py.kube.cache import Cache
from kargo_py.kube.codec import JSON
from kargo_py.kube.resources import Key, Resource
from kargo_py.steps.base import Finished, Intend, Waiting, Watch
from kargo_py.steps.config import Config
from kargo_py.steps.step import Step

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")


class ApprovalConfig(Config):
    config_map: str
    """Name of the ConfigMap."""


class Approval(Step[ApprovalConfig]):
    """Waits until somebody has said yes in a ConfigMap."""

    uses = "approval"
    config_model = ApprovalConfig
    default_timeout = timedelta(days=3)
    keeps_time = True

    def __init__(self, config_maps):
        self._config_maps = config_maps

    async def perform(self, config, context):
        name = config.config_map
        if not context.records:
            # What is waited for is written first: from then on news of that object wakes this Promotion.
            stamp = f"approval/{context.promotion_uid}/{context.alias}"
            return Intend([Record("approval", context.project, name, "", context.alias, 1, stamp, "")])
        (record,) = context.records
        found = self._config_maps.get(record.key) or {}
        if found.get("data", {}).get("approved") == "true":
            return Finished(StepStatus.SUCCEEDED, records=[record.ended(TargetState.SUCCEEDED, "approved")])
        waited = context.now - context.started_at
        if context.timeout is not None and waited >= context.timeout:
            said = f"nobody approved in {context.timeout}"
            return Finished(StepStatus.FAILED, said, records=[record.ended(TargetState.FAILED, said)])
        left = (context.timeout - waited).total_seconds() if context.timeout is not None else None
        return Waiting(f"waiting for data.approved of ConfigMap {record.key}", [record], notable=True, look_after=left)

    async def stop(self, context, *, give_up):
        # Nothing runs anywhere, so nothing has to be ended.
        ended = [record.ended(TargetState.NOT_STARTED, "not approved") for record in context.records]
        return Finished(StepStatus.ABORTED, records=ended)


async def main():
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with await kargo_py.connect() as client:
        config_maps = Cache(client, CONFIG_MAPS, codec=JSON)
        watch = Watch(config_maps, key_of)
        async with kargo_py.Controllers(client, steps={"approval": Approval(config_maps)}, watches=[watch]):
            await stop.wait()


def key_of(config_map):
    return Key(config_map["metadata"]["namespace"], config_map["metadata"]["name"])


if __name__ == "__main__":
    asyncio.run(main())
