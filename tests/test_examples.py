"""The examples, run as programs beside an embedded API server and a simulated Argo CD."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import yaml
from kubernetes_asyncio.client import ApiClient, Configuration

import kargo_py
from kargo_py.controllers.world import NAMESPACES
from kargo_py.kube.codec import JSON
from kargo_py.kube.resources import Key
from kargo_py.local.argocd.simulator import ArgoCD
from kargo_py.local.argocd.timing import Timing
from kargo_py.testing.clock import Clock
from kargo_py.testing.embedded import kube_api as embedded
from kargo_py.testing.kube_api import KubeApi

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
PIPELINE = EXAMPLES / "kopf-operator/pipeline.yaml"
GUIDE = EXAMPLES.parent / "docs/how-to/embed.md"
SAMPLES = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
FILES = {"kopf-operator/auto_promote.py", "own-step/approval.py"}
"""Examples that the guide shows whole."""
SECONDS = 60.0

pytestmark = pytest.mark.nonblocking_exempt(reason="manifests are read, and programs started, in the loop")


class Program:
    """An example that runs; what it prints is read as it comes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.said = ""

    async def says(self, words: str) -> None:
        """Wait until it has printed *words*."""
        assert self._process.stdout is not None
        async with asyncio.timeout(SECONDS):
            while words not in self.said:
                text = (await self._process.stdout.readline()).decode()
                assert text, f"it ended without saying {words!r}; it said:\n{self.said}"
                self.said += text

    async def stopped(self) -> int:
        """Ask it to end as Kubernetes does, and give the exit code."""
        self._process.send_signal(signal.SIGTERM)
        return await self.ended()

    async def ended(self) -> int:
        """Wait for its end, and give the exit code."""
        assert self._process.stdout is not None
        async with asyncio.timeout(SECONDS):
            self.said += (await self._process.stdout.read()).decode()
            return await self._process.wait()


@asynccontextmanager
async def running(*arguments: str | Path, environment: Mapping[str, str] | None = None) -> AsyncIterator[Program]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *map(str, arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": str(EXAMPLES.parent), **(environment or {})},
    )
    program = Program(process)
    try:
        yield program
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        sys.stdout.write(program.said)  # pytest shows it when the test fails


@pytest.mark.usefixtures("argocd")
async def test_kopf_operator(kube_api: KubeApi) -> None:
    """One program: its kopf handlers promote onwards what our controllers have verified; SIGTERM ends it in order."""
    async with kube_api.served() as kubeconfig:
        await kube_api.apply(PIPELINE)
        file = EXAMPLES / "kopf-operator/auto_promote.py"
        async with running(file, environment={"KUBECONFIG": str(kubeconfig)}) as program:
            first = await kube_api.promote("dev", "shop-1.1")
            assert await first.ended() == "Succeeded"
            await kube_api.verified("shop-1.1", "prod")
            await kube_api.annotate("Stage", "dev", {"kargo-py.io/custom-steps": "allow"})
            wrong = await kube_api.promote("dev", "shop-1.1", steps=[{"uses": "unheard-of"}])
            assert await wrong.ended() == "Errored"
            await kube_api.until("Stage", "dev", lambda it: it["status"]["lastPromotion"]["name"] == wrong.name)
            promotions = {one["metadata"]["name"] for one in await kube_api.list("Promotion")}
            code = await program.stopped()

    assert promotions == {first.name, wrong.name, "auto.prod.shop-1.1"}
    assert code == 0
    assert "Traceback" not in program.said
    assert "controllers running" in program.said
    assert "the operator and the controllers have ended" in program.said


DYING = """
import asyncio, sys
import kargo_py
from kargo_py.controllers.embedding import Controllers
from kargo_py.kube.cache import Cache
from kargo_py.kube.codec import JSON
from kargo_py.kube.resources import Resource
from kargo_py.steps.base import Watch
sys.path.insert(0, sys.argv[1])
import auto_promote

class Dying(Cache):
    async def run(self):
        running = asyncio.ensure_future(super().run())
        await self.wait_synced()
        await asyncio.sleep(1)
        running.cancel()
        raise RuntimeError("out of luck")

def controllers(client):
    cache = Dying(client, Resource("", "v1", "configmaps", "ConfigMap"), codec=JSON)
    return Controllers(client, watches=[Watch(cache, lambda obj: JSON.meta(obj).key)])

kargo_py.Controllers = controllers
asyncio.run(auto_promote.main())
"""


async def test_kopf_operator_whose_controllers_die(kube_api: KubeApi) -> None:
    """The operator does not go on without them: the program ends by itself, with the error."""
    async with kube_api.served() as kubeconfig:
        folder = EXAMPLES / "kopf-operator"
        async with running("-c", DYING, folder, environment={"KUBECONFIG": str(kubeconfig)}) as program:
            code = await program.ended()

    assert code == 1
    assert "controllers running" in program.said
    assert program.said.rstrip().endswith("RuntimeError: out of luck")


@asynccontextmanager
async def clusters(count: int) -> AsyncIterator[tuple[Sequence[KubeApi], Sequence[Path]]]:
    """API servers, each with an Argo CD and the pipeline, and their kubeconfigs."""
    async with AsyncExitStack() as stack:
        apis, kubeconfigs = [], []
        for _ in range(count):
            api = await stack.enter_async_context(embedded(Clock()))
            await stack.enter_async_context(ArgoCD(api.client_for("argocd"), timing=Timing.fast()))
            await api.apply(PIPELINE)
            apis.append(api)
            kubeconfigs.append(await stack.enter_async_context(api.served()))
        yield apis, kubeconfigs


async def test_two_clusters(tmp_path: Path) -> None:
    """Each instance acts on its own cluster only, under its own name; both end in order."""
    async with clusters(2) as (apis, kubeconfigs):
        named = [tmp_path / "europe", tmp_path / "america"]
        for name, kubeconfig in zip(named, kubeconfigs, strict=True):
            name.write_text(kubeconfig.read_text())
        async with running(EXAMPLES / "two-clusters/two_clusters.py", *named) as program:
            await program.says("all instances are at work")
            here = await apis[0].promote("dev", "shop-1.1", name="one")
            await program.says("europe: shop/one is Succeeded")
            assert await apis[1].list("Promotion") == []
            there = await apis[1].promote("dev", "shop-1.1", name="one")
            await program.says("america: shop/one is Succeeded")
            instances = [each.operations[0]["stamp"].split("/")[1] for each in (here, there)]
            uids = [
                (await api.client.get(NAMESPACES, Key("", "kube-system"), codec=JSON))["metadata"]["uid"]
                for api in apis
            ]
            code = await program.stopped()

    assert instances == uids
    assert code == 0
    assert "Traceback" not in program.said


async def test_two_clusters_without_one(tmp_path: Path) -> None:
    """A cluster that cannot be reached from the start ends both in one go, with the reason."""
    async with clusters(1) as (_, (kubeconfig,)):
        gone = tmp_path / "gone"
        gone.write_text(re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:1", kubeconfig.read_text()))
        async with running(EXAMPLES / "two-clusters/two_clusters.py", kubeconfig, gone) as program:
            with pytest.raises(AssertionError, match="it ended without"):
                await program.says("all instances are at work")

    assert "StartError" in program.said


async def test_two_clusters_of_none() -> None:
    """Without an argument it says what it wants, instead of doing nothing for ever."""
    async with running(EXAMPLES / "two-clusters/two_clusters.py") as program:
        assert await program.ended() == 1

    assert program.said == "usage: two_clusters.py KUBECONFIG...\n"


def test_manifests_for_kubectl() -> None:
    """kargo-py makes no namespace for a Project, so a pipeline that is to be applied with kubectl brings its own."""
    objects = list(yaml.safe_load_all(PIPELINE.read_text()))
    kinds = [each["kind"] for each in objects]

    assert kinds[:2] == ["Namespace", "Project"]
    assert {each["metadata"]["namespace"] for each in objects[2:]} == {objects[0]["metadata"]["name"], "argocd"}


@pytest.mark.usefixtures("argocd")
async def test_own_step(kube_api: KubeApi) -> None:
    """The Promotion waits for the approval, says so, goes on with our own step at once, and is aborted as any other."""
    approval = {"uses": "approval", "as": "approval", "config": {"configMap": "release"}}
    sync = {"uses": "argocd-update", "as": "sync", "config": {"apps": [{"name": "shop-dev"}]}}
    async with kube_api.served() as kubeconfig:
        await kube_api.apply(PIPELINE)
        await kube_api.annotate("Stage", "dev", {"kargo-py.io/custom-steps": "allow"})
        async with running(EXAMPLES / "own-step/approval.py", environment={"KUBECONFIG": str(kubeconfig)}) as program:
            one = await kube_api.promote("dev", "shop-1.1", steps=[approval, sync])
            await one.until(lambda it: "waiting for data.approved of ConfigMap shop/release" in it.message)
            release = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "release", "namespace": "shop"}}
            await kube_api.apply({**release, "data": {"approved": "true"}})
            assert await one.ended(within=20) == "Succeeded"
            other = await kube_api.promote(
                "dev", "shop-1.1", steps=[{**approval, "config": {"configMap": "another"}}, sync]
            )
            await other.until(lambda it: "ConfigMap shop/another" in it.message)
            await other.abort()
            assert await other.ended() == "Aborted"
            wrong = await kube_api.promote("dev", "shop-1.1", steps=[{**approval, "config": {}}, sync])
            assert await wrong.ended() == "Errored"
            code = await program.stopped()

    assert [operation["kind"] for operation in one.operations] == ["approval", "argocd"]
    assert "spec.steps[0].config.configMap: must be given" in wrong.message
    assert code == 0
    assert "Traceback" not in program.said


@pytest.mark.parametrize("code", [code for code in SAMPLES if "asyncio.run(" in code and "__main__" not in code])
async def test_programs_in_the_guide(kube_api: KubeApi, tmp_path: Path, code: str) -> None:
    """As they stand there they run until SIGTERM; without a server the first line says why they cannot."""
    (tmp_path / "program.py").write_text(code)
    async with kube_api.served() as kubeconfig:
        async with running(tmp_path / "program.py", environment={"KUBECONFIG": str(kubeconfig)}) as program:
            await program.says("at work ")
            assert await program.stopped() == 0
        assert "Traceback" not in program.said
    async with running(tmp_path / "program.py", environment={"KUBECONFIG": str(tmp_path / "absent")}) as program:
        assert await program.ended() == 1
    if "kubernetes_asyncio" in code:
        assert "absent" in program.said or "Invalid kube-config" in program.said
    else:
        assert program.said.startswith(f"kargo-py cannot run: kubeconfig {tmp_path}/absent: no such file")


async def test_cannot_connect(tmp_path: Path) -> None:
    """What keeps a program from a client is a StartError, as what keeps the controllers from their work."""
    with pytest.raises(kargo_py.StartError, match="absent: no such file"):
        await kargo_py.connect(kubeconfig=str(tmp_path / "absent"))
    configuration = Configuration(host="https://127.0.0.1:1")
    configuration.api_key["BearerToken"] = "Bearer a\nb"
    async with ApiClient(configuration) as theirs:
        with pytest.raises(kargo_py.StartError, match="cannot be used: its"):
            await kargo_py.connect_like(theirs)


def test_the_guide_shows_the_examples() -> None:
    """Word for word."""
    for file in FILES:
        assert (EXAMPLES / file).read_text() in SAMPLES
    assert {code.count("asyncio.run(main())") for code in SAMPLES} == {0, 1}
    assert f"examples/{Path('two-clusters/two_clusters.py')}" in GUIDE.read_text()
