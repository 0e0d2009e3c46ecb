"""What a test does to the Kubernetes API, what it waits for, and what it reads afterwards."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final

import yaml

from kargo_py.api.abort import ANNOTATION_ABORT
from kargo_py.api.names import UlidSource, promotion_name
from kargo_py.argocd.application import APPLICATIONS
from kargo_py.controllers.world import FREIGHTS, NAMESPACES, PROMOTIONS
from kargo_py.kube.client import JsonObject, PatchType
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.resources import Key, Resource
from kargo_py.kube.rest import RestClient
from kargo_py.testing.clock import Clock
from kargo_py.testing.definitions import ARGOCD_NAMESPACE, DEFINITIONS, await_served, definitions, resource_of
from kargo_py.testing.history import History, Write

WITHIN: Final = 60.0
"""Seconds that something is waited for; of simulated time, where that is simulated."""

FIELD_MANAGER: Final = "kargo-py-testing"

_CORE: Final = (
    NAMESPACES,
    DEFINITIONS,
    Resource("", "v1", "configmaps", "ConfigMap"),
    Resource("", "v1", "secrets", "Secret"),
    Resource("", "v1", "events", "Event"),
    Resource("", "v1", "serviceaccounts", "ServiceAccount"),
)
_ENDED: Final = frozenset({"Succeeded", "Failed", "Errored", "Aborted"})


class NotReached(AssertionError):
    """What a test waits for did not come in time; the text says what there was instead."""


class KubeApi:
    """A Kubernetes API with Kargo's and Argo CD's kinds, and a namespace for Argo CD.

    Where an object's namespace is not given, an Application is Argo CD's, and everything else belongs to the Project
    that was applied last.
    """

    def __init__(
        self,
        client_for: Callable[[str], RestClient],
        history: History,
        clock: Clock,
        serve: Callable[[], AbstractAsyncContextManager[Path]],
    ) -> None:
        self.client = client_for(FIELD_MANAGER)
        self.client_for = client_for
        self._serve = serve
        self.history = history
        self.clock = clock
        self.project = ""
        self._resources = [*_CORE, *map(resource_of, definitions())]
        self._ulids = UlidSource(lambda: clock.now().timestamp(), random.Random(0).getrandbits)  # noqa: S311 - names

    def served(self) -> AbstractAsyncContextManager[Path]:
        """The path of a kubeconfig, as a context: for kubectl, and for programs of your own.

        Raises RuntimeError where time is simulated: it would run away from who talks through sockets.
        """
        if self.clock.simulated:
            raise RuntimeError("the API cannot be served in simulated time: leave the mark simulated_time out")
        return self._serve()

    @property
    def resources(self) -> Sequence[Resource]:
        """The kinds that can be named here without more ado."""
        return list(self._resources)

    # -- writing -------------------------------------------------------------------------------------------------------

    async def apply(self, *manifests: Path | str | JsonObject) -> list[JsonObject]:
        """Server-side apply manifests: files and folders with YAML, YAML itself, or objects; in their order.

        With a Project comes its namespace, as with Kargo.
        """
        applied = []
        for manifest in manifests:
            for document in await asyncio.to_thread(_documents, manifest):
                applied.append(await self._apply(document))
                if (document["apiVersion"], document["kind"]) == (PROMOTIONS.api_version, "Project"):
                    self.project = document["metadata"]["name"]
                    await self._apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.project}})
        return applied

    async def patch(
        self, kind: str | Resource, name: str, patch: JsonObject, *, namespace: str = "", subresource: str = ""
    ) -> JsonObject:
        """Merge *patch* into an object."""
        resource, key = self.named(kind, name, namespace)
        answer = await self.client.patch(resource, key, encode(patch), codec=JSON, subresource=subresource)
        return await self._recorded(resource, answer)

    async def annotate(
        self, kind: str | Resource, name: str, annotations: Mapping[str, str | None], *, namespace: str = ""
    ) -> None:
        """Set annotations; None removes one."""
        await self.patch(kind, name, {"metadata": {"annotations": dict(annotations)}}, namespace=namespace)

    async def delete(self, kind: str | Resource, name: str, *, namespace: str = "") -> None:
        """Delete an object."""
        await self.client.delete(*self.named(kind, name, namespace))

    async def promote(
        self,
        stage: str,
        freight: str,
        *,
        namespace: str = "",
        name: str = "",
        steps: Sequence[JsonObject] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> Promotion:
        """Create a Promotion, as Kargo's webhook completes it: with a name, and, unless given, the Stage's steps."""
        if steps is None:
            template = (await self.get("Stage", stage, namespace=namespace))["spec"].get("promotionTemplate") or {}
            steps = (template.get("spec") or {}).get("steps") or []
        name = name or promotion_name(stage, freight, self._ulids.new())
        _, key = self.named(PROMOTIONS, name, namespace)
        manifest = {
            "apiVersion": PROMOTIONS.api_version,
            "kind": PROMOTIONS.kind,
            "metadata": {"name": key.name, "namespace": key.namespace, "annotations": dict(annotations or {})},
            "spec": {"stage": stage, "freight": freight, "steps": list(steps)},
        }
        created = await self.client.create(PROMOTIONS, key.namespace, encode(manifest), codec=JSON)
        await self._recorded(PROMOTIONS, created)
        return Promotion(self, key)

    # -- reading -------------------------------------------------------------------------------------------------------

    async def get(self, kind: str | Resource, name: str, *, namespace: str = "") -> JsonObject:
        """Read an object. Raises NotFound."""
        resource, key = self.named(kind, name, namespace)
        return await self.client.get(resource, key, codec=JSON)

    async def list(self, kind: str | Resource, *, namespace: str = "") -> Sequence[JsonObject]:
        """Read all objects of a kind, in a namespace or, without one, in all."""
        page = await self.client.list(self.resource(kind), namespace, codec=JSON)
        return page.items

    def promotion(self, name: str, *, namespace: str = "") -> Promotion:
        """A Promotion that is there, or will be."""
        return Promotion(self, self.named(PROMOTIONS, name, namespace)[1])

    def written(self, kind: str | Resource, name: str = "", *, namespace: str = "") -> Sequence[Write]:
        """Every write to an object, or to all of a kind, oldest first."""
        if not name:
            return self.history.of(self.resource(kind))
        return self.history.of(*self.named(kind, name, namespace))

    # -- waiting -------------------------------------------------------------------------------------------------------

    async def until(
        self,
        kind: str | Resource,
        name: str,
        condition: Callable[[JsonObject], object],
        *,
        namespace: str = "",
        within: float = WITHIN,
    ) -> JsonObject:
        """Wait until *condition* is true of an object, and give that state of it. Raises NotReached.

        It is asked of the state now and of every one that follows; an object that lacks a field it looks at (KeyError,
        IndexError, or TypeError) is not there yet.
        """
        __tracebackhide__ = True
        resource, key = self.named(kind, name, namespace)
        await self.history.follow(resource)
        found: JsonObject | None = None

        def holds() -> bool:
            nonlocal found
            found = self.history.newest(resource, key)
            return found is not None and _is_true_of(condition, found)

        try:
            async with asyncio.timeout(within):
                await self.history.until(holds)
        except TimeoutError:
            raise NotReached(_missed(resource, key, found, within)) from None
        assert found is not None  # noqa: S101 - it holds
        return found

    async def verified(self, freight: str, stage: str, *, namespace: str = "", within: float = WITHIN) -> JsonObject:
        """Wait until *freight* has been verified in *stage*. Raises NotReached."""
        __tracebackhide__ = True
        return await self.until(
            FREIGHTS, freight, lambda one: one["status"]["verifiedIn"][stage], namespace=namespace, within=within
        )

    # -- names ---------------------------------------------------------------------------------------------------------

    def resource(self, kind: str | Resource) -> Resource:
        """The resource of a kind. Raises LookupError for one that is not known here; then give the Resource."""
        if isinstance(kind, Resource):
            return kind
        found = next((each for each in self._resources if each.kind.lower() == kind.lower()), None)
        if found is None:
            raise LookupError(f"the kind {kind!r} is not known: give a Resource(group, version, plural, kind)")
        return found

    def named(self, kind: str | Resource, name: str, namespace: str = "") -> tuple[Resource, Key]:
        """Resource and key of an object."""
        resource = self.resource(kind)
        if not resource.namespaced:
            return resource, Key("", name)
        namespace = namespace or (ARGOCD_NAMESPACE if resource == APPLICATIONS else self.project)
        if not namespace:
            raise LookupError(f"{resource.kind} {name}: give its namespace, no Project has been applied")
        return resource, Key(namespace, name)

    async def _apply(self, manifest: JsonObject) -> JsonObject:
        resource = self._resource_of(manifest)
        metadata = manifest.get("metadata") or {}
        if not metadata.get("name"):
            raise LookupError(f"the {resource.kind} has no metadata.name: give it one, what is applied has a name")
        resource, key = self.named(resource, metadata["name"], metadata.get("namespace", ""))
        answer = await self.client.patch(
            resource, key, encode(manifest), codec=JSON, patch_type=PatchType.APPLY, field_manager=FIELD_MANAGER
        )
        if resource == DEFINITIONS:
            defined = resource_of(manifest)
            if defined not in self._resources:
                await await_served(self.client, defined)
                self._resources.append(defined)
        return await self._recorded(resource, answer)

    async def _recorded(self, resource: Resource, answer: JsonObject) -> JsonObject:
        """Wait until the history has the state that a write was answered with."""
        await self.history.follow(resource)
        meta = JSON.meta(answer)
        await self.history.until(lambda: self.history.version(resource, meta.key) >= int(meta.resource_version))
        return answer

    def _resource_of(self, manifest: JsonObject) -> Resource:
        named = version, kind = manifest.get("apiVersion"), manifest.get("kind")
        found = next((each for each in self._resources if (each.api_version, each.kind) == named), None)
        if found is None:
            raise LookupError(f"the kind {kind!r} of {version!r} is not known: apply its definition first")
        return found


class Promotion:
    """One Promotion, as it is at each moment."""

    def __init__(self, api: KubeApi, key: Key) -> None:
        self._api = api
        self.key = key

    @property
    def name(self) -> str:
        """Its name."""
        return self.key.name

    @property
    def current(self) -> JsonObject:
        """All of it, as it is now. Raises LookupError if there is no such Promotion."""
        found = self._api.history.newest(PROMOTIONS, self.key)
        if found is None:
            raise LookupError(f"there is no Promotion {self.key}")
        return found

    @property
    def status(self) -> JsonObject:
        """Its status; empty before anything is known."""
        status: JsonObject = self.current.get("status") or {}
        return status

    @property
    def phase(self) -> str:
        """Pending, Running, Succeeded, Failed, Errored or Aborted."""
        return str(self.status.get("phase") or "Pending")

    @property
    def message(self) -> str:
        """Why it ended as it did; while it runs, what it waits for."""
        steps = self.status.get("stepExecutionMetadata") or [{}]
        return str(self.status.get("message") or steps[-1].get("message") or "")

    @property
    def operations(self) -> Sequence[JsonObject]:
        """What it started, and how that ended: ``status.operations``."""
        return list(self.status.get("operations") or [])

    @property
    def phases(self) -> Sequence[str]:
        """The phases that it has had."""
        seen = [str((write.object.get("status") or {}).get("phase") or "Pending") for write in self.writes]
        return list(dict.fromkeys(seen))

    @property
    def writes(self) -> Sequence[Write]:
        """Every write to it."""
        return self._api.history.of(PROMOTIONS, self.key)

    async def ended(self, *, within: float = WITHIN) -> str:
        """Wait for its end, and give the phase. Raises NotReached."""
        __tracebackhide__ = True
        await self.until(lambda promotion: promotion.phase in _ENDED, within=within)
        return self.phase

    async def until(self, condition: Callable[[Promotion], object], *, within: float = WITHIN) -> Promotion:
        """Wait until *condition* is true of it. Raises NotReached."""
        __tracebackhide__ = True
        await self._api.until(
            PROMOTIONS, self.name, lambda _: condition(self), namespace=self.key.namespace, within=within
        )
        return self

    async def abort(self, value: str = "terminate") -> None:
        """Ask for its abort; it has ended when :meth:`ended` says so."""
        await self._api.annotate(PROMOTIONS, self.name, {ANNOTATION_ABORT: value}, namespace=self.key.namespace)

    def __repr__(self) -> str:
        return f"<Promotion {self.key}>"


def _documents(manifest: Path | str | JsonObject) -> list[JsonObject]:
    match manifest:
        case Path() if manifest.is_dir():
            files = sorted(path for path in manifest.iterdir() if path.suffix in {".yaml", ".yml", ".json"})
            return [document for file in files for document in _documents(file)]
        case Path():
            return _documents(manifest.read_text(encoding="utf-8"))
        case str():
            found = [document for document in yaml.safe_load_all(manifest) if document]
            if wrong := [document for document in found if not isinstance(document, dict)]:
                raise ValueError(f"no manifest: {wrong[0]!r}; a file is given as a Path")
            return [item for document in found for item in _documents(document)]
        case {"kind": "List", "items": items}:
            return list(items)
        case _:
            return [manifest]


def _is_true_of(condition: Callable[[JsonObject], object], obj: JsonObject) -> bool:
    try:
        return bool(condition(obj))
    except (KeyError, IndexError, TypeError):
        return False


def _missed(resource: Resource, key: Key, found: JsonObject | None, within: float) -> str:
    subject = f"{resource.kind} {key}: not reached within {within:g} s"
    if found is None:
        return f"{subject}; there is no such object"
    shown = yaml.safe_dump({"status": found.get("status")}, sort_keys=False, allow_unicode=True, width=120)
    return f"{subject}; as it is now:\n{shown}"
