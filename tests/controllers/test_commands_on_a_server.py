"""The commands for people beside running controllers, on a server, embedded and real; Argo CD is acted by hand."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from kargo_py.cli.abort import ask, until_aborted
from kargo_py.cli.get import Request, once
from kargo_py.cli.objects import Session, Where, connected
from kargo_py.cli.why import Options, explanation, lines
from kargo_py.controllers.world import PROMOTIONS, STAGES
from kargo_py.kube.clock import utc_now
from kargo_py.kube.errors import Forbidden
from kargo_py.kube.resources import Resource
from tests.controllers.conftest import Cluster
from tests.envtest.access import UserName

pytestmark = [
    pytest.mark.nonblocking_exempt(reason="kubernetes-asyncio reads kubeconfigs in the loop; the tests start kubectl"),
]

NAME = "dev.01k0000000000000000000000a.f1"
OTHER = "dev.01k0000000000000000000000b.f1"
THEIRS = {"initiatedBy": {"username": "alice"}, "sync": {}}


def where(cluster: Cluster, user: UserName = "admin") -> Where:
    return Where(str(cluster.server.kubeconfig(user)), None, cluster.project)


async def why(cluster: Cluster, resource: Resource, name: str, user: UserName = "admin") -> str:
    found = await explanation(resource, name, where(cluster, user), Options())
    return "\n".join(lines(found, utc_now()))


@asynccontextmanager
async def session(cluster: Cluster) -> AsyncIterator[Session]:
    async with connected(where(cluster)) as opened:
        yield opened


async def test_from_the_queue_to_the_abort(cluster: Cluster) -> None:
    """What `why` and `get` say at each stop of a Promotion that waits for others, runs, and is aborted."""
    await cluster.prepare()
    await cluster.argo("dev", {"operation": THEIRS})
    await cluster.argo(
        "dev",
        {"status": {"operationState": {"operation": THEIRS, "phase": "Running", "startedAt": "2026-11-30T12:03:04Z"}}},
    )
    out: list[str] = []
    async with cluster.controllers(), session(cluster) as opened:
        await cluster.promote(NAME)
        await cluster.promote(OTHER)
        await cluster.wait("promotion", NAME, ".status.stepExecutionMetadata[0].message")
        held = await why(cluster, PROMOTIONS, NAME)
        queued = await why(cluster, PROMOTIONS, OTHER)
        promoting = await why(cluster, STAGES, "dev")
        await once(Request(PROMOTIONS), opened, out.append, out.append)
        await cluster.complete()
        await cluster.pick_up()
        running = await why(cluster, PROMOTIONS, NAME)
        assert await ask(opened, NAME, out.append, force=False) is False
        waiting = asyncio.create_task(until_aborted(opened, NAME, out.append, None))
        await cluster.terminating()
        aborting = await why(cluster, PROMOTIONS, NAME)
        await cluster.terminated()
        await waiting
        ended = await why(cluster, PROMOTIONS, NAME)
        written = await cluster.get("promotion", NAME)

    assert "waiting for the operation started by alice" in held
    assert "since 2026-11-30T12:03:04Z (Argo CD's clock)" in held
    assert "that time does not run while others hold the Application" in held
    assert f'Promotion "{NAME}" runs on Stage "dev"' in queued
    assert "it is number 1 of 1 that wait" in queued
    assert f'Promotion "{NAME}" runs; kargo-py why promotion {NAME}' in promoting
    assert f'1 more in the queue, the next one is "{OTHER}"' in promoting
    assert [re.split(r"\s{2,}", row)[0::3][:2] for row in out[:3]] == [
        ["NAME", "PHASE"],
        [NAME, "Running"],
        [OTHER, "Pending"],
    ]
    assert "waiting for the operation started by alice" in out[1]
    assert out[2].endswith("1 of 1 in the queue")
    assert "the sync is running, since 2026-11-30T12:00:00Z (Argo CD's clock)" in running
    assert re.search(r"the step times out in [0-9m]+s?; it may take 5m", running)
    assert "it is being aborted, as kube" in aborting
    assert "the sync is being terminated" in aborting
    assert "Stopped: Operation terminated, at 2026-11-30T12:00:05Z (Argo CD's clock)" in ended
    assert "the start changed /spec/source/targetRevision, which was main" in ended
    actor = json.loads(written["metadata"]["annotations"]["kargo.akuity.io/abort"])["actor"]
    assert f"{actor} asked for the abort" in ended
    assert out[-1].startswith(f'Promotion "{NAME}" is Aborted: Promotion terminated by {actor}')


async def test_a_healthy_stage(cluster: Cluster) -> None:
    """What is there and since when; and what `why` says of the Promotion that brought it."""
    await cluster.prepare()
    async with cluster.controllers():
        await cluster.promote(NAME)
        await cluster.pick_up()
        await cluster.complete()
        await cluster.refresh()
        await cluster.wait("stage", "dev", ".status.health.status", "Healthy")
        await cluster.wait("freight", "f1", ".status.currentlyIn.dev.since")
        stage = await why(cluster, STAGES, "dev")
        promotion = await why(cluster, PROMOTIONS, NAME)

    assert 'Stage "dev" in namespace' in stage
    assert "is Ready, since" in stage
    assert re.search(r"Freight f1 of Warehouse/wh is here, since \S+ \(\d+s\)", stage)
    assert "is healthy, at what was promoted" in stage
    assert "what is here is verified, since" in stage
    assert "Succeeded at 3f1a0f6a5cc6f4ca0e620d9fe9168b8eb724f66e" in promotion


async def test_without_controllers(cluster: Cluster) -> None:
    """Nothing runs: what would happen is told, and what will not."""
    await cluster.prepare()
    await cluster.create(cluster.promotion(NAME, freight="f2"))
    text = await why(cluster, PROMOTIONS, NAME)
    assert 'it is its turn on Stage "dev"; a controller that runs begins it at once' in text
    assert f'it ends as Errored: Freight "f2" does not exist in namespace "{cluster.project}"' in text
    assert "no controller has looked at it yet" in await why(cluster, STAGES, "dev")


@pytest.mark.envtest
async def test_who_asks(cluster: Cluster) -> None:
    """A real server says who asks."""
    await cluster.prepare()
    await cluster.promote(NAME)
    out: list[str] = []
    async with session(cluster) as opened:
        await ask(opened, NAME, out.append, force=False)
    assert out == [f'Promotion "{NAME}": its abort is asked for, by kubernetes:admin']


@pytest.mark.envtest
async def test_rights(cluster: Cluster) -> None:
    """Somebody who may read what the controller reads gets the whole answer; somebody without rights is told."""
    await cluster.prepare()
    await cluster.promote(NAME)
    assert "it is its turn" in await why(cluster, PROMOTIONS, NAME, "controller")
    with pytest.raises(Forbidden, match="nobody"):
        await why(cluster, PROMOTIONS, NAME, "nobody")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Children take SIGINT: a background job of a shell, as this may be one, is started with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
async def test_watching_through_an_outage(cluster: Cluster) -> None:
    """As a process: rows as they change, the server's absence told and survived, and Ctrl-C."""
    await cluster.prepare()
    await cluster.promote(NAME)
    command = ("get", "promotions", "-w", f"--namespace={cluster.project}")
    kubeconfig = f"--kubeconfig={cluster.server.kubeconfig('admin')}"
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kargo_py", *command, kubeconfig), stdout=pipe, stderr=pipe, env={**os.environ}
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(100):
            head, first = [(await process.stdout.readline()).decode() for _ in range(2)]
            await asyncio.to_thread(cluster.server.kill)
            away = (await process.stderr.readline()).decode()
            await asyncio.to_thread(cluster.server.restart)
            await cluster.promote(OTHER)
            lines_ = [(await process.stdout.readline()).decode() for _ in range(2)]
            process.send_signal(signal.SIGINT)
            rest = (await process.stderr.read()).decode()
            code = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()

    assert head.split()[:2] == ["NAME", "STAGE"]
    assert first.split()[0] == NAME
    assert re.match(r"kargo-py: what happens to (promotions|freights)\.kargo\.akuity\.io cannot be seen at the", away)
    assert {line.split()[0] for line in lines_} == {NAME, OTHER}
    assert "Traceback" not in rest
    assert code == 130
