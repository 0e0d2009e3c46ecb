"""The simulated Argo CD as a process of its own, on an API server, embedded and real."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from kargo_py.kube.client import EventType
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.connection import connect
from kargo_py.kube.resources import Key
from kargo_py.kube.rest import RestClient
from kargo_py.local.argocd.__main__ import main
from kargo_py.local.argocd.documents import APPLICATIONS
from kargo_py.local.argocd.simulator import ArgoCD
from kargo_py.local.argocd.timing import Timing, Version
from tests.envtest.server import ApiServer
from tests.local.conftest import ended, operation, owner, phase, state

pytestmark = [
    pytest.mark.nonblocking_exempt(reason="kubernetes-asyncio reads kubeconfigs in the loop"),
]

JsonObject = dict[str, Any]


@pytest.fixture
async def client(crds: ApiServer) -> AsyncIterator[RestClient]:
    """A client of the admin."""
    async with await connect(kubeconfig=str(crds.kubeconfig("admin"))) as connected:
        yield connected


@asynccontextmanager
async def process(server: ApiServer, *options: str, warns: bool = False) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the program from its ready line on; it is ended with SIGTERM, and must end cleanly, with *warns* or not."""
    started = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "kargo_py.local.argocd", "--kubeconfig", str(server.kubeconfig("admin")), *options),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert started.stdout is not None
    try:
        async with asyncio.timeout(60):
            line = (await started.stdout.readline()).decode()
            assert "ready" in line, (await started.communicate())[1].decode()
            yield started
            started.send_signal(signal.SIGTERM)
            rest, errors = await started.communicate()
        assert (started.returncode, rest) == (0, b"")
        assert all(b"[warning" in line for line in errors.splitlines())
        assert warns or not errors
    finally:
        if started.returncode is None:
            started.kill()
            await started.wait()


class User:
    """Somebody who writes operations on one Application."""

    def __init__(self, client: RestClient, key: Key) -> None:
        self.client, self.key = client, key

    async def create(self) -> None:
        source = {"repoURL": "https://git.example.com/shop", "path": "app", "targetRevision": "main"}
        destination = {"server": "https://kubernetes.default.svc", "namespace": "shop"}
        body = {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Application",
            "metadata": {"name": self.key.name},
            "spec": {"project": "default", "source": source, "destination": destination},
        }
        await self.client.create(APPLICATIONS, self.key.namespace, encode(body), codec=JSON)

    async def patch(self, body: JsonObject) -> JsonObject:
        return await self.client.patch(APPLICATIONS, self.key, encode(body), codec=JSON)

    async def until(self, condition: Callable[[JsonObject], Any]) -> JsonObject:
        """Watch until a version is as wanted."""
        async with asyncio.timeout(30):
            app = await self.client.get(APPLICATIONS, self.key, codec=JSON)
            if condition(app):
                return app
            events = self.client.watch(
                APPLICATIONS,
                self.key.namespace,
                codec=JSON,
                resource_version=JSON.meta(app).resource_version,
                timeout_seconds=60,
            )
            async with aclosing(events):
                async for event in events:
                    found = event.object
                    mine = found is not None and JSON.meta(found).key == self.key
                    if mine and found and event.type is EventType.MODIFIED and condition(found):
                        return found
        raise AssertionError("the watch ended")


@pytest.mark.parametrize("version", ["3.6", "3.5"])
async def test_a_sync(crds: ApiServer, client: RestClient, namespace: str, version: str) -> None:
    """An operation runs to its end, and the verdict follows."""
    user = User(client, Key(namespace, "a"))
    async with process(crds, "--namespace", namespace, "--version", version, "--gap", "0.001", "--seed", "7"):
        await user.create()
        await user.until(lambda app: (app.get("status") or {}).get("sync"))
        await user.patch({"operation": operation(revision="a" * 40)})
        app = await user.until(ended)
        await user.patch({"spec": {"source": {"targetRevision": "a" * 40}}})
        settled = await user.until(lambda app: app["status"]["sync"]["status"] == "Synced")

    assert (phase(app), owner(app), state(app)["syncResult"]["revision"]) == ("Succeeded", "mine", "a" * 40)
    assert settled["status"]["health"]["status"] == "Healthy"
    assert [entry["id"] for entry in app["status"]["history"]] == [0]


async def test_a_termination_before_pick_up(crds: ApiServer, client: RestClient, namespace: str) -> None:
    """A whole Terminating state beside the operation: it ends unrun, under its own id.

    Applications of all namespaces are acted on, and one that cannot be read stops nobody.
    """
    misshapen = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": {"name": "b"}, "spec": 7}
    await client.create(APPLICATIONS, namespace, encode(misshapen), codec=JSON)
    user = User(client, Key(namespace, "a"))
    await user.create()
    mine = {"operation": operation(), "phase": "Terminating", "startedAt": "2026-11-30T12:00:00Z"}
    async with process(crds, "--gap", "0.02", warns=True):
        await user.patch({"operation": operation(), "status": {"operationState": mine}})
        app = await user.until(ended)

    assert (phase(app), state(app)["message"], owner(app)) == ("Failed", "Operation terminated", "mine")


@pytest.mark.parametrize("version", Version, ids=lambda version: version.value)
async def test_a_termination_while_a_hook_runs(client: RestClient, namespace: str, version: Version) -> None:
    """In this process, where a hook can be scripted."""
    user = User(client, Key(namespace, "a"))
    argo = ArgoCD(client, namespace=namespace, version=version, timing=Timing.fast())
    async with argo:
        await user.create()
        argo.application("a").next_sync(hang=True)
        await user.patch({"operation": operation()})
        running = await user.until(lambda app: state(app).get("message", "").endswith("hook batch/Job/a-hook"))
        assert "operation" in running
        await user.patch({"status": {"operationState": {"phase": "Terminating"}}})
        app = await user.until(ended)

    assert (phase(app), state(app)["message"], owner(app)) == ("Failed", "Operation terminated", "mine")


async def test_no_kubeconfig() -> None:
    """The program says which file it cannot read, and exits with 1."""
    started = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "kargo_py.local.argocd", "--kubeconfig", "/nowhere", stderr=asyncio.subprocess.PIPE
    )
    _, errors = await started.communicate()

    assert (started.returncode, errors.count(b"\n")) == (1, 1)
    assert b"simulated Argo CD: " in errors
    assert b"/nowhere" in errors


def test_options(capsys: pytest.CaptureFixture[str]) -> None:
    """A version that is not played is refused."""
    with pytest.raises(SystemExit):
        main(["--kubeconfig", "x", "--version", "2.0"])

    assert "3.5" in capsys.readouterr().err
