"""Whole controllers against an API server, with Argo CD's part acted by hand.

The user's part is kubectl only where a test is about that: each call of it costs a tenth of a second of CPU time.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest

from kargo_py.api.admission import ANNOTATION_CUSTOM_STEPS
from kargo_py.api.stamp import STATE_KEY
from kargo_py.controllers.running import Options, run_controllers
from kargo_py.deployers.base import read_records
from tests.envtest.server import ApiServer
from tests.envtest.waiting import wait_until

JsonObject = dict[str, Any]

REPO = "https://git.example.com/shop"
SHA = "3f1a0f6a5cc6f4ca0e620d9fe9168b8eb724f66e"
KARGO = "/apis/kargo.akuity.io/v1alpha1"
ARGO = "/apis/argoproj.io/v1alpha1"


RECORDS = r".status.state.kargo-py\.io/operations"
"""Where the recorded intents stand with Kargo's own definitions, too: ``status.operations`` is ours alone."""


def operations(promotion: JsonObject) -> list[JsonObject]:
    """The recorded intents as people read them."""
    return [record.mirror() for record in read_records(promotion["status"]["state"][STATE_KEY])]


@dataclass
class Cluster:
    """One Project on the server: what a user, a webhook and Argo CD do to it."""

    server: ApiServer
    project: str
    kubectl_path: str

    # -- the user -------------------------------------------------------------------------------------------------

    async def kubectl(self, *arguments: str, stdin: object = None, check: bool = True) -> str:
        """Run kubectl as the admin in the Project; returns what it printed."""
        done = await asyncio.to_thread(
            subprocess.run,
            [
                self.kubectl_path,
                "--kubeconfig",
                str(self.server.kubeconfig("admin")),
                "--namespace",
                self.project,
                *arguments,
            ],
            input=stdin if isinstance(stdin, str) or stdin is None else json.dumps(stdin),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if check and done.returncode:
            pytest.fail(f"kubectl {' '.join(arguments)}: {done.stderr}")
        return done.stdout + ("" if check else done.stderr)

    async def create(self, obj: JsonObject) -> JsonObject:
        """As kubectl create, whose validation is the server's."""
        namespace = obj["metadata"].get("namespace", self.project)
        version, kind = obj["apiVersion"], obj["kind"]
        scope = "" if kind.startswith("Cluster") else f"/namespaces/{namespace}"
        path = f"/{'apis' if '/' in version else 'api'}/{version}{scope}/{kind.lower()}s"
        return await asyncio.to_thread(self.server.request, "POST", f"{path}?fieldValidation=Strict", obj)

    async def create_with_kubectl(self, obj: JsonObject) -> None:
        """Kubectl create."""
        namespace = f"--namespace={obj['metadata'].get('namespace', self.project)}"
        await self.kubectl("create", "--filename=-", namespace, stdin=obj)

    async def get(self, kind: str, name: str) -> JsonObject:
        """One of Kargo's objects."""
        path = f"{KARGO}/namespaces/{self.project}/{kind}s/{name}"
        return await asyncio.to_thread(self.server.request, "GET", path)

    async def wait(self, kind: str, name: str, path: str, value: str = "") -> None:
        """As kubectl wait: until *value*, or anything, stands at the JSONPath *path* of one of Kargo's objects."""
        collection = f"{KARGO}/namespaces/{self.project}/{kind}s"
        await asyncio.to_thread(wait_until, self.server, collection, name, path, value)

    async def wait_for_app(self, stage: str, path: str, value: str = "") -> None:
        """The same of the Application."""
        collection = f"{ARGO}/namespaces/argocd/applications"
        await asyncio.to_thread(wait_until, self.server, collection, self.app_name(stage), path, value)

    async def prepare(self, stage: str = "dev", *, authorized: str | None = None, **app: Any) -> None:
        """A Stage, an Application that authorises it, and Freight for it."""
        await self.create(self.stage(stage))
        await self.create(self.freight())
        await self.create(self.application(stage, authorized=authorized, **app))

    async def promote(self, name: str, stage: str = "dev", **step: Any) -> None:
        """Create a Promotion as Kargo's webhook would complete it."""
        await self.create(self.promotion(name, stage, **step))

    # -- objects --------------------------------------------------------------------------------------------------

    def stage(self, name: str) -> JsonObject:
        step = {"uses": "argocd-update", "config": {"apps": [{"name": self.app_name(name)}]}}
        return {
            "apiVersion": "kargo.akuity.io/v1alpha1",
            "kind": "Stage",
            "metadata": {"name": name, "annotations": {ANNOTATION_CUSTOM_STEPS: "allow"}},
            "spec": {
                "requestedFreight": [{"origin": {"kind": "Warehouse", "name": "wh"}, "sources": {"direct": True}}],
                "promotionTemplate": {"spec": {"steps": [step]}},
            },
        }

    def freight(self, name: str = "f1", sha: str = SHA) -> JsonObject:
        return {
            "apiVersion": "kargo.akuity.io/v1alpha1",
            "kind": "Freight",
            "metadata": {"name": name},
            "origin": {"kind": "Warehouse", "name": "wh"},
            "commits": [{"repoURL": REPO, "id": sha}],
        }

    def app_name(self, stage: str) -> str:
        return f"{self.project}-{stage}"

    def application(self, stage: str, *, authorized: str | None = None, **parts: Any) -> JsonObject:
        source = {"repoURL": REPO, "path": ".", "targetRevision": "main"}
        destination = {"server": "https://kubernetes.default.svc", "namespace": "shop"}
        annotation = f"{self.project}:{stage}" if authorized is None else authorized
        return {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Application",
            "metadata": {
                "name": self.app_name(stage),
                "namespace": "argocd",
                "annotations": {"kargo.akuity.io/authorized-stage": annotation} if annotation else {},
            },
            "spec": {"project": "default", "source": source, "destination": destination},
            "status": {"health": {"status": "Healthy"}, "sync": {"status": "Synced"}},
            **parts,
        }

    def promotion(self, name: str, stage: str = "dev", freight: str = "f1", **step: Any) -> JsonObject:
        app = {
            "name": self.app_name(stage),
            "sources": [{"repoURL": REPO, "desiredRevision": SHA, "updateTargetRevision": True}],
        }
        return {
            "apiVersion": "kargo.akuity.io/v1alpha1",
            "kind": "Promotion",
            "metadata": {"name": name},
            "spec": {
                "stage": stage,
                "freight": freight,
                "steps": [{"uses": "argocd-update", "as": "update", "config": {"apps": [app]}, **step}],
            },
        }

    # -- Argo CD --------------------------------------------------------------------------------------------------

    async def argo(self, stage: str, patch: JsonObject) -> JsonObject:
        """Merge *patch* into the Application, as Argo CD."""
        return await asyncio.to_thread(
            self.server.request,
            "PATCH",
            f"{ARGO}/namespaces/argocd/applications/{self.app_name(stage)}",
            patch,
            content_type="application/merge-patch+json",
            user="argocd",
        )

    async def app(self, stage: str = "dev") -> JsonObject:
        """The Application."""
        return await asyncio.to_thread(
            self.server.request, "GET", f"{ARGO}/namespaces/argocd/applications/{self.app_name(stage)}"
        )

    async def requested(self, stage: str = "dev") -> JsonObject:
        """Wait until an operation is requested; returns it."""
        await self.wait_for_app(stage, ".operation.info")
        operation: JsonObject = (await self.app(stage))["operation"]
        return operation

    async def pick_up(self, stage: str = "dev") -> JsonObject:
        """Argo CD takes the requested operation up."""
        operation = await self.requested(stage)
        state = {"operation": operation, "phase": "Running", "startedAt": "2026-11-30T12:00:00Z"}
        await self.argo(stage, {"status": {"operationState": state}})
        return state

    async def terminating(self, stage: str = "dev") -> None:
        """Wait until somebody asks for the end of the operation."""
        await self.wait_for_app(stage, ".status.operationState.phase", "Terminating")

    async def terminated(self, stage: str = "dev") -> None:
        """Argo CD ends the operation that is to be terminated."""
        await self.terminating(stage)
        await self.complete(stage, phase="Failed", message="Operation terminated")

    async def complete(
        self, stage: str = "dev", phase: str = "Succeeded", message: str = "successfully synced", sha: str = SHA
    ) -> None:
        """Argo CD ends the running operation, and looks at the Application again."""
        app = await self.app(stage)
        await self.argo(
            stage,
            {
                "operation": None,
                "status": {
                    "operationState": {
                        "phase": phase,
                        "message": message,
                        "finishedAt": "2026-11-30T12:00:05Z",
                        "syncResult": {"revision": sha, "source": app["spec"]["source"]},
                    }
                },
            },
        )

    async def refreshing(self, stage: str = "dev") -> None:
        """Wait until somebody asks Argo CD to look."""
        await self.wait_for_app(stage, r".metadata.annotations.argocd\.argoproj\.io/refresh")

    async def refresh(self, stage: str = "dev", health: str = "Healthy", second: int = 7) -> None:
        """Argo CD compares the Application with its spec."""
        spec = (await self.app(stage))["spec"]
        await self.argo(
            stage,
            {
                "metadata": {"annotations": {"argocd.argoproj.io/refresh": None}},
                "status": {
                    "reconciledAt": f"2026-11-30T12:00:{second:02}Z",
                    "health": {"status": health},
                    "sync": {
                        "status": "Synced",
                        "revision": spec["source"]["targetRevision"],
                        "comparedTo": {"source": spec["source"], "destination": spec["destination"]},
                    },
                },
            },
        )

    # -- our program ----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def controllers(self, **options: Any) -> AsyncIterator[asyncio.Task[None]]:
        """Our controllers, running in this process."""
        kubeconfig = str(self.server.kubeconfig("controller"))
        ready = asyncio.Event()
        settings: dict[str, Any] = {"kubeconfig": kubeconfig, "instance": "test", **options}
        task = asyncio.create_task(run_controllers(Options(**settings), ready=ready))
        readiness = asyncio.create_task(ready.wait())
        try:
            await asyncio.wait([task, readiness], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                await task
            yield task
        finally:
            readiness.cancel()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@pytest.fixture
def cluster(
    crds: ApiServer,  # noqa: ARG001 - installed by it
    apiserver: ApiServer,
    namespace: str,
    kubectl_path: str,
    logged: list[Any],
) -> Iterator[Cluster]:
    """A fresh Project; a test in which anything of ours crashed has failed, whatever became of it afterwards."""
    apiserver.apply("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "argocd"}})
    yield Cluster(apiserver, namespace, kubectl_path)
    # What is left unfinished would be taken up, and counted, by the controllers of the next test on this server.
    apiserver.request("DELETE", f"{KARGO}/namespaces/{namespace}/promotions")
    assert not [line for line in logged if line["log_level"] == "error"]
