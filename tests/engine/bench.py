"""What running steps costs: ``python -m tests.engine.bench``.

Promotions a second of ten steps that do nothing, on the embedded API server in this process; API writes of a Promotion
of ten steps; resident memory of a controller, in a process of its own, with 1,000 Promotions that wait.
"""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import structlog

import kargo_py
from kargo_py.api.admission import ANNOTATION_CUSTOM_STEPS
from kargo_py.api.promotion import StepStatus
from kargo_py.controllers.world import FREIGHTS, PROMOTIONS, STAGES
from kargo_py.kube.clock import utc_now
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.resources import Resource
from kargo_py.kube.rest import RestClient
from kargo_py.local.apiserver import kubeconfig
from kargo_py.local.apiserver.client import client_of
from kargo_py.local.apiserver.serve import serving
from kargo_py.local.apiserver.server import ApiServer
from kargo_py.local.argocd.timing import Version
from kargo_py.steps.argocd_update import USES
from kargo_py.steps.base import Finished, StepContext, StepOutcome, Waiting
from kargo_py.steps.config import Config
from kargo_py.steps.step import Step, Work
from kargo_py.testing.clock import simulated_time
from tests.in_process import create_namespaces, kinds
from tests.protocol.test_write_budget import RESOURCES, SETTLED, requests
from tests.protocol.universe import APP, PROJECT, REPO, SHA, Universe

NO_OP: dict[str, Any] = {"uses": "compose-output"}
STAGES_AT_ONCE = 50
PROMOTIONS_EACH = 4
WAITING = 1000
STEPS = 10


class NoConfig(Config):
    """Nothing."""


class Pause(Step[NoConfig]):
    """Waits once, for a second."""

    uses = "pause"
    config_model = NoConfig
    work = Work.API

    async def perform(self, config: NoConfig, context: StepContext) -> StepOutcome:
        left = 1 - (context.now - context.started_at).total_seconds()
        return Waiting("a second", look_after=left) if left > 0 else Finished(StepStatus.SUCCEEDED)


class Forever(Pause):
    """Waits for ever."""

    uses = "forever"

    async def perform(self, config: NoConfig, context: StepContext) -> StepOutcome:
        return Waiting("for ever")


async def create(
    client: RestClient, resource: Resource, name: str, metadata: dict[str, Any] | None = None, **parts: Any
) -> None:
    meta = {"name": name, **(metadata or {})}
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, **parts}
    await client.create(resource, PROJECT, encode(body), codec=JSON)


async def create_stages(client: RestClient, count: int) -> None:
    """So many Stages, and Freight for them."""
    await create_namespaces(client, PROJECT, APP.namespace)
    origin = {"kind": "Warehouse", "name": "wh"}
    await create(client, FREIGHTS, "f1", origin=origin, commits=[{"repoURL": REPO, "id": SHA}])
    requested = [{"origin": origin, "sources": {"direct": True}}]
    template = {"spec": {"steps": [NO_OP]}}
    spec = {"requestedFreight": requested, "promotionTemplate": template}
    allow = {"annotations": {ANNOTATION_CUSTOM_STEPS: "allow"}}
    for number in range(count):
        await create(client, STAGES, f"s{number}", allow, spec=spec)


async def promote(client: RestClient, stage: int, name: str, steps: Sequence[dict[str, Any]]) -> None:
    await create(client, PROMOTIONS, name, spec={"stage": f"s{stage}", "freight": "f1", "steps": list(steps)})


async def in_phase(core: ApiServer, phase: str, count: int) -> None:
    """Wait until so many Promotions are in *phase*, each with all its steps."""
    collection, news = core.store.collection(PROMOTIONS.group, PROMOTIONS.plural), asyncio.Event()
    core.store.observers.append(lambda _: news.set())
    while sum((each.obj.get("status") or {}).get("phase") == phase for each in collection.items.values()) < count:
        news.clear()
        await news.wait()
    run = {len(each.obj["status"]["stepExecutionMetadata"]) for each in collection.items.values()}
    if run != {STEPS}:
        raise ValueError(f"these Promotions have run {sorted(run)} steps, not {STEPS}")


def server() -> ApiServer:
    return ApiServer(now=utc_now, random=random.Random(0), kinds=kinds())


async def throughput() -> tuple[float, float]:
    """Promotions a second, and the seconds of CPU of one; the API server's part is in them."""
    async with server() as core:
        client = client_of(core, user_agent="user")
        await create_stages(client, STAGES_AT_ONCE)
        async with kargo_py.Controllers(client_of(core), instance="bench"):
            began, used = time.perf_counter(), time.process_time()
            for number in range(STAGES_AT_ONCE * PROMOTIONS_EACH):
                await promote(client, number % STAGES_AT_ONCE, f"p{number}", [NO_OP] * STEPS)
            await in_phase(core, "Succeeded", STAGES_AT_ONCE * PROMOTIONS_EACH)
            seconds, used = time.perf_counter() - began, time.process_time() - used
    return STAGES_AT_ONCE * PROMOTIONS_EACH / seconds, used / STAGES_AT_ONCE / PROMOTIONS_EACH


async def writes(*steps: dict[str, Any]) -> dict[str, int]:
    """What a second Promotion of these steps, of Freight that is there already, writes to each kind of object."""
    loop = asyncio.get_running_loop()
    with simulated_time(loop):
        world = Universe()
        async with world.core, world.argocd(Version.V3_6):
            await world.prepare()
            async with world.process(further={"pause": Pause()}) as process:
                await world.run(*steps, name="p1")
                assert await world.ended("p1") == "Succeeded"
                await asyncio.sleep(SETTLED)
                before = requests(process.line)
                await world.run(*steps, name="p2")
                assert await world.ended("p2") == "Succeeded"
                await asyncio.sleep(SETTLED)
                spent = requests(process.line) - before
    return {name: sum(n for call, n in spent.items() if call.split()[1] == name) for name in RESOURCES}


@asynccontextmanager
async def controller(path: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A controller in a process of its own, which tells its memory when it is asked."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.engine.bench", str(path)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield child
    finally:
        child.terminate()
        await child.wait()


async def memory_of(child: asyncio.subprocess.Process) -> float:
    """Resident, in MiB."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(b"\n")
    return float(await child.stdout.readline())


async def memory() -> tuple[float, float]:
    """Of a controller with nothing to do, and with Promotions that wait."""
    async with server() as core, serving(core) as address:
        client = client_of(core, user_agent="user")
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "kubeconfig")
            kubeconfig.write(path, address.kubeconfig())
            await create_stages(client, WAITING)
            async with controller(path) as child:
                empty = await memory_of(child)
                for number in range(WAITING):
                    await promote(client, number, f"p{number}", [*[NO_OP] * (STEPS - 1), {"uses": "forever"}])
                await in_phase(core, "Running", WAITING)
                await asyncio.sleep(5)
                full = await memory_of(child)
    return empty, full


async def be_controller(path: str) -> None:
    """Run until ended; a line on standard input asks for the memory."""
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    steps: dict[str, Step[Any]] = {"forever": Forever()}
    async with (
        await kargo_py.connect(kubeconfig=path) as client,
        kargo_py.Controllers(client, instance="bench", steps=steps),
    ):
        while await lines.readline():
            gc.collect()
            sys.stdout.write(f"{psutil.Process().memory_info().rss / 2**20:.1f}\n")
            sys.stdout.flush()


def main() -> None:
    """Measure, and print."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    if len(sys.argv) > 1:
        asyncio.run(be_controller(sys.argv[1]))
        return
    sync = {
        "uses": USES,
        "config": {
            "apps": [
                {"name": APP.name, "sources": [{"repoURL": REPO, "desiredRevision": SHA, "updateTargetRevision": True}]}
            ],
        },
    }
    say = sys.stdout.write
    for name, steps in {
        "ten steps that do nothing": [NO_OP] * 10,
        "nine, and one that waits": [*[NO_OP] * 5, {"uses": "pause"}, *[NO_OP] * 4],
        "nine, and argocd-update": [*[NO_OP] * 5, sync, *[NO_OP] * 4],
    }.items():
        counts = asyncio.run(writes(*steps))
        say(f"writes, {name}: {sum(counts.values())} ({', '.join(f'{n} {what}' for what, n in counts.items())})\n")
    rate, cpu = asyncio.run(throughput())
    say(f"Promotions a second, ten steps that do nothing: {rate:.0f}, of {cpu * 1000:.0f} ms of CPU each\n")
    empty, waiting = asyncio.run(memory())
    say(f"resident memory: {empty:.0f} MiB with {WAITING} Stages, {waiting:.0f} MiB with a waiting Promotion on each\n")


if __name__ == "__main__":
    main()
