"""What the fixtures can do, on the embedded API server."""

from __future__ import annotations

import asyncio
import shutil
import socket
from datetime import timedelta
from pathlib import Path

import pytest

from kargo_py.controllers.running import Options, StartError
from kargo_py.kube.client import EventType
from kargo_py.kube.codec import JSON
from kargo_py.kube.connection import connect
from kargo_py.kube.errors import Invalid, NotFound
from kargo_py.kube.resources import Resource
from kargo_py.local.argocd.simulator import ArgoCD
from kargo_py.testing.clock import BEGINNING, Clock, simulated_time
from kargo_py.testing.controller import Controller
from kargo_py.testing.embedded import kube_api as embedded
from kargo_py.testing.kube_api import KubeApi, NotReached

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/test-your-pipeline"
PIPELINE = EXAMPLE / "pipeline.yaml"
APP = "shop-prod"

# The mark has a meaning only where the fixture clock is asked for.
pytestmark = [
    pytest.mark.simulated_time,
    pytest.mark.nonblocking_exempt(reason="the CRDs are made from the models' sources, once in a process"),
]


class TestWriting:
    """Objects come in as with kubectl."""

    async def test_apply_no_manifest(self, kube_api: KubeApi) -> None:
        """The name of a file is not its content."""
        with pytest.raises(ValueError, match=r"'pipeline\.yaml'; a file is given as a Path"):
            await kube_api.apply("pipeline.yaml")

    async def test_apply_list(self, kube_api: KubeApi) -> None:
        """A List is what is in it, as kubectl prints several objects; kinds may be written in small letters."""
        maps = [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}
            for name in "ab"
        ]
        applied = await kube_api.apply({"apiVersion": "v1", "kind": "List", "items": maps})

        assert [obj["metadata"]["name"] for obj in applied] == ["a", "b"]
        assert await kube_api.get("configmap", "b", namespace="default") == applied[1]

    async def test_apply_without_a_name(self, kube_api: KubeApi) -> None:
        """What has no name cannot be applied, as with kubectl."""
        with pytest.raises(LookupError, match=r"the ConfigMap has no metadata\.name"):
            await kube_api.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x-"}})
        with pytest.raises(LookupError, match=r"the Project has no metadata\.name"):
            await kube_api.apply({"apiVersion": "kargo.akuity.io/v1alpha1", "kind": "Project"})

    async def test_apply(self, kube_api: KubeApi) -> None:
        """Every document of a file is applied; with the Project comes its namespace, which is the default then."""
        applied = await kube_api.apply(PIPELINE)

        assert [obj["kind"] for obj in applied] == ["Project", "Stage", "Freight", "Application"]
        assert (await kube_api.get("Namespace", "shop"))["metadata"]["name"] == "shop"
        assert kube_api.project == "shop"
        assert (await kube_api.get("Stage", "prod"))["metadata"]["namespace"] == "shop"
        assert (await kube_api.get("Application", APP))["metadata"]["namespace"] == "argocd"

    async def test_apply_again(self, kube_api: KubeApi) -> None:
        """Applying twice changes nothing, applying something else changes that."""
        (_, before, *_), (_, after, *_) = [await kube_api.apply(PIPELINE) for _ in "ab"]
        changed = {**after, "spec": {**after["spec"], "shard": "eu"}}
        del changed["metadata"]["managedFields"]
        await kube_api.apply(changed)

        assert before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]
        assert (await kube_api.get("Stage", "prod"))["spec"]["shard"] == "eu"

    async def test_apply_a_folder_or_text(self, kube_api: KubeApi, tmp_path: Path) -> None:
        """A folder's YAML in the order of the names, and YAML as it stands; nothing else is read."""
        await asyncio.to_thread(shutil.copy, PIPELINE, tmp_path / "1.yml")
        await asyncio.to_thread((tmp_path / "README.md").write_text, "kind: Nothing")
        folder = await kube_api.apply(tmp_path)
        text = await kube_api.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: b}\n---\n")

        assert (len(folder), [obj["kind"] for obj in text]) == (4, ["ConfigMap"])
        assert (await kube_api.get("ConfigMap", "c", namespace="shop"))["data"] == {"a": "b"}

    async def test_a_kind_of_ones_own(self, kube_api: KubeApi) -> None:
        """A kind can be used once its definition is applied."""
        names = {"kind": "Gate", "plural": "gates", "singular": "gate", "listKind": "GateList"}
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        version = {"name": "v1", "served": True, "storage": True, "schema": schema}
        await kube_api.apply(
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": "gates.example.com"},
                "spec": {"group": "example.com", "names": names, "scope": "Cluster", "versions": [version]},
            },
            {"apiVersion": "example.com/v1", "kind": "Gate", "metadata": {"name": "g"}, "open": True},
        )

        assert (await kube_api.until("Gate", "g", lambda gate: gate["open"]))["metadata"]["name"] == "g"
        assert len(await kube_api.list(Resource("example.com", "v1", "gates", "Gate", namespaced=False))) == 1

    async def test_a_kind_of_the_same_name(self, kube_api: KubeApi) -> None:
        """Of two kinds of one name a manifest says which; the name alone means the one that was known first."""
        names = {"kind": "Project", "plural": "projects", "singular": "project", "listKind": "ProjectList"}
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
        _, other = await kube_api.apply(
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": "projects.example.com"},
                "spec": {"group": "example.com", "names": names, "scope": "Cluster", "versions": [version]},
            },
            {"apiVersion": "example.com/v1", "kind": "Project", "metadata": {"name": "p"}},
        )

        assert other["apiVersion"] == "example.com/v1"
        assert kube_api.resource("Project").group == "kargo.akuity.io"
        assert kube_api.project == ""

    async def test_a_kind_that_is_never_served(self, kube_api: KubeApi) -> None:
        """Its definition is refused by what it contains, not by its answer: the error says where to look."""
        definition = await kube_api.get("CustomResourceDefinition", "stages.kargo.akuity.io")
        names = {**definition["spec"]["names"], "plural": "stagez", "kind": "Stagez"}
        with pytest.raises(TimeoutError, match=r"stagez\.kargo\.akuity\.io: kargo\.akuity\.io/v1alpha1 is not served"):
            await kube_api.apply(
                {
                    "apiVersion": "apiextensions.k8s.io/v1",
                    "kind": "CustomResourceDefinition",
                    "metadata": {"name": "stagez.kargo.akuity.io"},
                    "spec": {**definition["spec"], "names": names},
                }
            )

    @pytest.mark.parametrize(
        ("manifest", "words"),
        [
            ({"apiVersion": "example.com/v1", "kind": "Door", "metadata": {"name": "d"}}, "'Door' of 'example.com/"),
            ({"apiVersion": "example.com/v1", "kind": "Stage", "metadata": {"name": "d"}}, "'Stage' of 'example.com/"),
            ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}}, "give its namespace"),
        ],
        ids=["kind", "group", "namespace"],
    )
    async def test_what_cannot_be_found(self, kube_api: KubeApi, manifest: dict[str, str], words: str) -> None:
        """The error says what has to be given."""
        with pytest.raises(LookupError, match=words):
            await kube_api.apply(manifest)

    async def test_patch_annotate_delete(self, kube_api: KubeApi) -> None:
        """They are the API's own; what the server refuses, the test sees."""
        await kube_api.apply(PIPELINE)
        await kube_api.annotate("Stage", "prod", {"a": "1", "b": "2"})
        await kube_api.annotate("stage", "prod", {"a": None})
        await kube_api.patch("Stage", "prod", {"status": {"message": "m"}}, subresource="status")
        stage = await kube_api.get("Stage", "prod")
        with pytest.raises(Invalid, match="requestedFreight"):
            await kube_api.patch("Stage", "prod", {"spec": {"requestedFreight": "none"}})
        await kube_api.delete("Stage", "prod")

        assert (stage["metadata"]["annotations"], stage["status"]) == ({"b": "2"}, {"message": "m"})
        with pytest.raises(NotFound):
            await kube_api.get("Stage", "prod")
        assert [write.change for write in kube_api.written("Stage", "prod")][-1] is EventType.DELETED

    async def test_promote(self, kube_api: KubeApi) -> None:
        """A Promotion has a name as Kargo gives it, later ones later names, and the Stage's steps or those given."""
        await kube_api.apply(PIPELINE)
        first = await kube_api.promote("prod", "shop-1.1")
        second = await kube_api.promote("prod", "shop-1.1", steps=[{"uses": "other"}], annotations={"a": "b"})
        third = await kube_api.promote("prod", "shop-1.1", name="mine")

        assert first.name.startswith("prod.01")
        assert first.name.endswith(".shop-1")
        assert first.name < second.name
        assert first.current["spec"]["steps"] == (await kube_api.get("Stage", "prod"))["spec"]["promotionTemplate"][
            "spec"]["steps"]  # fmt: skip
        assert second.current["spec"]["steps"] == [{"uses": "other"}]
        assert second.current["metadata"]["annotations"] == {"a": "b"}
        assert (third.name, third.phase, third.message, third.operations) == ("mine", "Pending", "", [])
        assert len(await kube_api.list("Promotion", namespace="shop")) == 3


class TestWaiting:
    """Nothing sleeps, and what does not come is said."""

    async def test_until(self, kube_api: KubeApi, clock: Clock) -> None:
        """The state is given of which it was true; what lacks a field is not there yet."""
        await kube_api.apply(PIPELINE)

        async def write() -> None:
            for text in ("a", "b"):
                await clock.advance(minutes=10)
                await kube_api.patch("Stage", "prod", {"status": {"message": text}}, subresource="status")

        writing = asyncio.create_task(write())
        stage = await kube_api.until("Stage", "prod", lambda it: it["status"]["message"] == "a", within=1000)

        assert stage["status"]["message"] == "a"
        assert clock.now() == BEGINNING + timedelta(minutes=10)
        await writing

    async def test_until_is_asked_at_once(self, kube_api: KubeApi) -> None:
        """What is true already needs no write."""
        await kube_api.apply(PIPELINE)

        assert await kube_api.until("Stage", "prod", lambda _: True, within=0.001)

    async def test_until_later_created(self, kube_api: KubeApi) -> None:
        """An object that is not there yet may come."""
        promotion = kube_api.promotion("mine", namespace="shop")
        with pytest.raises(LookupError, match="there is no Promotion shop/mine"):
            _ = promotion.phase
        await kube_api.apply(PIPELINE)
        waiting = asyncio.create_task(promotion.until(lambda it: it.phase == "Pending"))
        await kube_api.promote("prod", "shop-1.1", name="mine")

        assert await waiting is promotion

    async def test_in_vain(self, kube_api: KubeApi) -> None:
        """The failure is an assertion's, and has the status, or says that there is no object."""
        await kube_api.apply(PIPELINE)
        await kube_api.patch("Stage", "prod", {"status": {"message": "why"}}, subresource="status")

        with pytest.raises(NotReached, match=r"(?s)Stage shop/prod: not reached within 5 s;.*message: why") as told:
            await kube_api.until("Stage", "prod", lambda stage: stage["status"]["health"]["status"], within=5)
        assert isinstance(told.value, AssertionError)
        with pytest.raises(NotReached, match="there is no such object"):
            await kube_api.verified("other", "prod")

    async def test_a_mistake_in_a_condition_is_seen(self, kube_api: KubeApi) -> None:
        """Only fields may be missing; another error is the test's own."""
        await kube_api.apply(PIPELINE)

        with pytest.raises(AttributeError):
            await kube_api.until("Stage", "prod", lambda stage: stage.status)  # type: ignore[attr-defined]


class TestPipeline:
    """Argo CD and the controllers at work."""

    async def test_a_promotion(self, kube_api: KubeApi, argocd: ArgoCD, controller: Controller, clock: Clock) -> None:
        """It goes through its phases, and the history has every write to it, in order."""
        await kube_api.apply(PIPELINE)
        argocd.application(APP).next_sync(duration=30)
        promotion = await kube_api.promote("prod", "shop-1.1")
        begun = clock.now()

        assert await promotion.ended() == "Succeeded"
        assert timedelta(seconds=30) < clock.now() - begun < timedelta(seconds=40)
        assert promotion.phases == ["Pending", "Running", "Succeeded"]
        assert [operation["state"] for operation in promotion.operations] == ["Succeeded"]
        versions = [int(write.object["metadata"]["resourceVersion"]) for write in promotion.writes]
        assert versions == sorted(versions)
        starts = [write for write in kube_api.written("Application", APP) if "operation" in write.object]
        assert starts
        freight = await kube_api.verified("shop-1.1", "prod")
        assert freight["status"]["currentlyIn"]["prod"]

    async def test_abort(self, kube_api: KubeApi, argocd: ArgoCD, controller: Controller) -> None:
        """A sync that hangs is ended with its Promotion."""
        await kube_api.apply(PIPELINE)
        argocd.application(APP).next_sync(hang=True)
        promotion = await kube_api.promote("prod", "shop-1.1")
        await promotion.until(lambda it: f"hook batch/Job/{APP}-hook" in it.message)
        await promotion.abort()

        assert await promotion.ended() == "Aborted"
        state = (await kube_api.get("Application", APP))["status"]["operationState"]
        assert (state["phase"], state["message"]) == ("Failed", "Operation terminated")

    async def test_a_crash_of_ours(self, kube_api: KubeApi, argocd: ArgoCD, controller: Controller) -> None:
        """The controllers can be stopped in the middle, and go on where they were, without a second sync."""
        await kube_api.apply(PIPELINE)
        argocd.application(APP).next_sync(hang=True)
        promotion = await kube_api.promote("prod", "shop-1.1")
        await promotion.until(lambda it: "hook" in it.message)
        await controller.stop()
        argocd.application(APP).finish_hook()
        await kube_api.until("Application", APP, lambda it: it["status"]["operationState"]["phase"] == "Succeeded")
        before = promotion.phase
        await controller.start()

        assert (before, await promotion.ended()) == ("Running", "Succeeded")
        assert len(promotion.operations) == 1

    async def test_argocd_is_down(self, kube_api: KubeApi, argocd: ArgoCD, controller: Controller) -> None:
        """What is not picked up stays requested until Argo CD is back."""
        await kube_api.apply(PIPELINE)
        await argocd.stop()
        promotion = await kube_api.promote("prod", "shop-1.1")
        await kube_api.until("Application", APP, lambda it: it["operation"])
        await argocd.start()

        assert await promotion.ended(within=600) == "Succeeded"

    async def test_misuse(self, controller: Controller) -> None:
        """Starting twice or stopping twice is said."""
        with pytest.raises(RuntimeError, match="run already"):
            await controller.start()
        await controller.stop()
        with pytest.raises(RuntimeError, match="do not run"):
            await controller.stop()
        assert not controller.is_running


async def test_a_start_that_fails() -> None:
    """The reason is raised, and what did not start does not run: it can be started when the reason is gone."""
    async with embedded(Clock()) as api:
        with socket.create_server(("127.0.0.1", 0)) as other:
            controller = Controller(api, Options(metrics_address=f"127.0.0.1:{other.getsockname()[1]}"))
            with pytest.raises(StartError, match="in use"):
                await controller.start()
            assert not controller.is_running
        await controller.start()
        await controller.stop()


async def test_a_start_that_is_cancelled() -> None:
    """Nothing of it goes on."""
    async with embedded(Clock()) as api:
        controller = Controller(api, Options())
        starting = asyncio.create_task(controller.start())
        await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])

        assert starting.cancelled()
        assert not controller.is_running
        assert "controllers" not in {task.get_name() for task in asyncio.all_tasks()}


class TestOptions:
    """The controllers' settings are a fixture."""

    @pytest.fixture
    def controller_options(self) -> Options:
        return Options(abort_patience=timedelta(seconds=20), instance="mine")

    async def test_they_hold(self, kube_api: KubeApi, argocd: ArgoCD, controller: Controller) -> None:
        """An abort is given up after what they say; the stamp names the instance they name."""
        await kube_api.apply(PIPELINE)
        argocd.application(APP).next_sync(hang=True)
        argocd.application(APP).hold_deleted_hooks()
        promotion = await kube_api.promote("prod", "shop-1.1")
        await promotion.until(lambda it: "hook" in it.message)
        begun = kube_api.clock.now()
        await promotion.abort()
        await promotion.ended(within=600)

        assert kube_api.clock.now() - begun < timedelta(seconds=60)
        assert "v1/mine/" in str(kube_api.written("Application", APP)[-1].object["metadata"]["annotations"])


class TestServed:
    """The API, for who needs a socket."""

    async def test_not_in_simulated_time(self, kube_api: KubeApi) -> None:
        """There it is refused, with the reason."""
        with pytest.raises(RuntimeError, match="cannot be served in simulated time"):
            kube_api.served()


async def test_served() -> None:
    """Another client sees by the kubeconfig what the test does; the file goes with the context."""
    async with embedded(Clock()) as api:
        await api.apply(PIPELINE)
        async with api.served() as kubeconfig, await connect(kubeconfig=str(kubeconfig)) as client:
            stages = await client.list(api.resource("Stage"), codec=JSON)

    assert [stage["metadata"]["name"] for stage in stages.items] == ["prod"]
    assert not await asyncio.to_thread(kubeconfig.exists)


def test_the_same_every_time() -> None:
    """In simulated time a test's history is the same each time: objects, names, uids, times, and their order."""

    async def history() -> list[tuple[EventType, str, object]]:
        with simulated_time(asyncio.get_running_loop()) as clock:
            async with embedded(clock) as api:
                controller = Controller(api, Options())
                async with ArgoCD(api.client_for("argocd"), now=clock.now) as argocd:
                    await controller.start()
                    argocd.application(APP).next_sync(fail="no", times=1)
                    await api.apply(PIPELINE)
                    await (await api.promote("prod", "shop-1.1")).ended()
                    await (await api.promote("prod", "shop-1.1")).ended()
                    await api.verified("shop-1.1", "prod")
                    await controller.stop()
            return [(write.change, str(write.resource), write.object) for write in api.history.writes]

    first, second = asyncio.run(history()), asyncio.run(history())

    assert len(first) > 30
    assert first == second
