"""Our controllers, a simulated Argo CD and a user, on an embedded API server and in simulated time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from kargo_py.api.abort import ANNOTATION_ABORT
from kargo_py.api.admission import ANNOTATION_CUSTOM_STEPS
from kargo_py.api.stamp import STATE_KEY
from kargo_py.argocd.application import APPLICATIONS, mark_of
from kargo_py.controllers.promotion import PromotionReconciler
from kargo_py.controllers.stage import StageReconciler
from kargo_py.controllers.sweep import Sweeper
from kargo_py.controllers.world import FREIGHTS, PROMOTIONS, STAGES, World
from kargo_py.deployers.argocd import ArgoCD
from kargo_py.deployers.base import read_records
from kargo_py.kube.cache import Cache
from kargo_py.kube.client import Client, Codec, Page, PatchType, WatchEvent
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.controller import Controller
from kargo_py.kube.errors import Forbidden, OutcomeUnknown
from kargo_py.kube.events import EventRecorder
from kargo_py.kube.resources import Key, Resource
from kargo_py.kube.rest import RestClient
from kargo_py.local.apiserver.client import client_of
from kargo_py.local.apiserver.server import ApiServer
from kargo_py.local.apiserver.store import Event, object_key
from kargo_py.local.argocd.simulator import ArgoCD as SimulatedArgoCD
from kargo_py.local.argocd.timing import Timing, Version
from kargo_py.steps.argocd_update import USES
from kargo_py.steps.registry import BUILT_IN, made
from kargo_py.steps.step import Services, Step
from tests.engine.calling import executor
from tests.in_process import api_server, create_namespaces

JsonObject = dict[str, Any]
T = TypeVar("T")

PROJECT = "shop"
REPO = "https://git.example.com/shop"
CURRENT = f'${{{{ commitFrom("{REPO}").ID }}}}'
"""The commit of the Freight that is promoted."""
SHA = "3f1a0f6c29b54f0a8c7e0f3a3d9a4b5c6d7e8f90"
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
APP = Key("argocd", "shop-dev")


class Line:
    """A client of the server for one process of ours, which can be cut like that process's life."""

    def __init__(self, server: Client, delay: float = 0.001) -> None:
        self._server = server
        self._delay = delay
        self.dead = False
        self.fault: Callable[[Key, Any], Exception | None] = lambda _key, _body: None
        self.patches: list[tuple[Key, Any]] = []
        self.before_create: Callable[[], Awaitable[None]] | None = None
        self.before_patch: Callable[[str, Key, Any], Awaitable[None]] | None = None
        self.creates: list[str] = []
        self.gets: list[tuple[str, Key]] = []
        self.lists: list[tuple[str, str]] = []
        self.deaf: set[str] = set()
        """Kinds of whose changes it hears nothing."""
        self.writes: list[tuple[str, Key, Any]] = []
        self.last_write: tuple[int, str] | None = None
        self.refuse: set[Key] = set()
        self.forbidden: set[str] = set()
        self.away = False
        self.lose_answer = False
        self.died = asyncio.Event()

    async def _alive(self) -> None:
        await asyncio.sleep(self._delay)
        if self.dead:
            raise asyncio.CancelledError
        if self.away:
            raise OutcomeUnknown("connection reset")

    async def get(self, resource: Resource, key: Key, *, codec: Codec[T]) -> T:
        await self._alive()
        self.gets.append((resource.kind, key))
        return await self._server.get(resource, key, codec=codec)

    async def list(self, resource: Resource, namespace: str = "", *, codec: Codec[T], **options: Any) -> Page[T]:
        await self._alive()
        self.lists.append((resource.kind, namespace))
        return await self._server.list(resource, namespace, codec=codec, **options)

    async def watch(
        self, resource: Resource, namespace: str = "", *, codec: Codec[T], **options: Any
    ) -> AsyncGenerator[WatchEvent[T]]:
        stream = self._server.watch(resource, namespace, codec=codec, **options)
        try:
            async for event in stream:
                await self._alive()
                while resource.kind in self.deaf:
                    await self._alive()
                yield event
        finally:
            await stream.aclose()

    async def create(self, resource: Resource, namespace: str, body: bytes, *, codec: Codec[T]) -> T:
        await self._alive()
        self.creates.append(json.loads(body).get("reason", ""))
        if self.before_create is not None:
            await self.before_create()
        made = await self._server.create(resource, namespace, body, codec=codec)
        await self._alive()
        return made

    async def replace(self, resource: Resource, key: Key, body: bytes, *, codec: Codec[T], subresource: str = "") -> T:
        raise NotImplementedError("no controller replaces an object")

    async def delete(self, resource: Resource, key: Key, *, uid: str = "", resource_version: str = "") -> None:
        raise NotImplementedError("no controller deletes an object")

    async def patch(self, resource: Resource, key: Key, body: bytes, *, codec: Codec[T], **options: Any) -> T:
        await self._alive()
        if resource == APPLICATIONS and (error := self.fault(key, json.loads(body))) is not None:
            raise error
        number = await self._count(
            f"{resource.plural}/{options['subresource']}" if options.get("subresource") else resource.plural, key, body
        )
        answer = await self._server.patch(resource, key, body, codec=codec, **options)
        if resource == APPLICATIONS:
            self.patches.append((key, json.loads(body)))
        self._end_with(number, "after")
        await self._alive()
        if self.lose_answer:
            self.lose_answer = False
            raise OutcomeUnknown("connection reset")
        return answer

    async def _count(self, where: str, key: Key, body: bytes) -> int:
        """Note a patch; that which ``last_write`` says, by its number, is the last one of this process."""
        if key in self.refuse or where in self.forbidden:
            raise Forbidden(403, "Forbidden", "no")
        if self.before_patch is not None:
            await self.before_patch(where, key, json.loads(body))
        self.writes.append((where, key, json.loads(body)))
        number = len(self.writes)
        self._end_with(number, "before")
        await self._alive()
        return number

    def _end_with(self, number: int, when: str) -> None:
        if self.last_write == (number, when):
            self.dead = True
            self.died.set()


@dataclass
class Process:
    """One process of ours."""

    line: Line
    tasks: list[asyncio.Task[None]]
    argocd: ArgoCD
    world: World
    promotions: Controller[Key]
    stages: Controller[Key]

    async def kill(self) -> None:
        """End it as SIGKILL does: nothing that it had begun goes on, nothing is tidied."""
        self.line.dead = True
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.world.executor.aclose()


@dataclass
class Universe:
    """The server, a user who acts on it, and our processes; made by :func:`universe`."""

    lines: list[Line] = field(default_factory=list)
    zero: float = 0.0
    ahead: timedelta = timedelta()
    versions: list[JsonObject] = field(default_factory=list)
    core: ApiServer = field(init=False)
    user: RestClient = field(init=False)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.core = api_server(self.now)
        self.core.store.observers.append(self._saw)
        self.user = client_of(self.core, user_agent="user")

    def _saw(self, event: Event) -> None:
        if event.collection.plural == APPLICATIONS.plural:
            self.versions.append(event.stored.obj)
        self._news.set()

    def now(self) -> datetime:
        return NOON + timedelta(seconds=asyncio.get_running_loop().time() - self.zero)

    def our_now(self) -> datetime:
        """The wall clock of our processes; somebody may set it."""
        return self.now() + self.ahead

    @asynccontextmanager
    async def argocd(self, version: Version = Version.V3_6, **timing: Any) -> AsyncIterator[SimulatedArgoCD]:
        """Argo CD, running."""
        argo = SimulatedArgoCD(
            client_of(self.core, user_agent="argocd"),
            namespace=APP.namespace,
            version=version,
            timing=Timing(**timing) if timing else None,
            now=self.now,
        )
        async with argo:
            yield argo

    @asynccontextmanager
    async def process(
        self,
        instance: str = "me",
        delay: float = 0.001,
        *,
        without_tasks: bool = False,
        further: Mapping[str, Step[Any]] | None = None,
        **options: Any,
    ) -> AsyncIterator[Process]:
        """A process of ours, running with caches filled; stopped in order at the end if it was not killed.

        *without_tasks*: the server has no such kinds. *further*: kinds of steps beside the built-in ones.
        """
        line = Line(client_of(self.core), delay)
        self.lines.append(line)
        recorder = EventRecorder(line, "kargo-py", instance)
        argocd = ArgoCD(line, recorder=recorder)
        world = World(
            instance=instance,
            client=line,
            argocd=argocd,
            recorder=recorder,
            steps={**made(BUILT_IN, Services(line, argocd)), **(further or {})},
            checkers={USES: argocd},
            now=self.our_now,
            **{"executor": executor(), **options},
        )
        caches: list[Cache[Any]] = [*world.caches]
        tasks = [asyncio.create_task(cache.run()) for cache in caches]
        for cache in caches:
            if not (without_tasks and cache in world.task_caches):
                await cache.wait_synced()
        controllers: list[Controller[Any]] = [
            PromotionReconciler(world).controller(),
            StageReconciler(world).controller(),
            Sweeper(world).controller(),
        ]
        tasks += [asyncio.create_task(controller.run()) for controller in controllers]
        tasks.append(asyncio.create_task(recorder.run()))
        running = Process(line, tasks, argocd, world, controllers[0], controllers[1])
        try:
            yield running
        finally:
            for task in reversed(tasks):
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task
            await world.executor.aclose()

    # -- what a user does ------------------------------------------------------------------------------------------

    async def prepare(self, **spec: Any) -> None:
        """A Stage, an Application that authorises it, and Freight."""
        self.zero = asyncio.get_running_loop().time()
        await create_namespaces(self.user, PROJECT, APP.namespace)
        origin = {"kind": "Warehouse", "name": "wh"}
        source = {"repoURL": REPO, "desiredRevision": CURRENT, "updateTargetRevision": True}
        step = {"uses": USES, "as": "sync", "config": {"apps": [{"name": APP.name, "sources": [source]}]}}
        template = {"spec": {"steps": [step]}}
        requested = [{"origin": origin, "sources": {"direct": True}}]
        await self._create(STAGES, "dev", spec={"requestedFreight": requested, "promotionTemplate": template})
        await self._create(FREIGHTS, "f1", origin=origin, commits=[{"repoURL": REPO, "id": SHA}])
        await self.create_application(**spec)

    async def create_application(
        self,
        name: str = APP.name,
        *,
        labels: dict[str, str] | None = None,
        stages: str | None = f"{PROJECT}:dev",
        **spec: Any,
    ) -> None:
        annotations = {} if stages is None else {"kargo.akuity.io/authorized-stage": stages}
        source = {"repoURL": REPO, "path": "app", "targetRevision": "main"}
        body = {
            "apiVersion": APPLICATIONS.api_version,
            "kind": APPLICATIONS.kind,
            "metadata": {"name": name, "labels": labels or {}, "annotations": annotations},
            "spec": {
                "project": "default",
                "destination": {"server": "https://kubernetes.default.svc", "namespace": "shop"},
                "source": source,
                **spec,
            },
        }
        await self.user.create(APPLICATIONS, APP.namespace, encode(body), codec=JSON)

    async def create(self, resource: Resource, name: str, body: JsonObject) -> JsonObject:
        """Create an object as it is given."""
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        body["metadata"] = {"name": name, **body.get("metadata", {})}
        namespace = PROJECT if resource.namespaced else ""
        return await self.user.create(resource, namespace, encode(body), codec=JSON)

    async def _create(self, resource: Resource, name: str, **parts: Any) -> None:
        meta: JsonObject = {"name": name}
        if resource == STAGES:
            meta["annotations"] = {ANNOTATION_CUSTOM_STEPS: "allow"}
        elif resource == PROMOTIONS:
            meta |= self._of_stage(parts["spec"]["stage"])
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, **parts}
        await self.user.create(resource, PROJECT, encode(body), codec=JSON)

    def _of_stage(self, name: str) -> JsonObject:
        """What Kargo's webhook writes into the metadata of a Promotion to that Stage, if there is one."""
        try:
            stage = self._object(STAGES, Key(PROJECT, name))
        except KeyError:
            return {}
        return owned_by(stage)

    async def run(self, *steps: JsonObject, name: str = "p1") -> None:
        """Create a Promotion of these steps."""
        await self._create(PROMOTIONS, name, spec={"stage": "dev", "freight": "f1", "steps": list(steps)})

    async def promote(self, name: str = "p1", *, retry: JsonObject | None = None, **config: Any) -> None:
        """Create a Promotion; *config* stands beside ``apps``."""
        source = {"repoURL": REPO, "desiredRevision": SHA, "updateTargetRevision": True}
        step: JsonObject = {
            "uses": USES,
            "as": "sync",
            "config": {"apps": [{"name": APP.name, "sources": [source]}], **config},
        }
        if retry is not None:
            step["retry"] = retry
        await self._create(PROMOTIONS, name, spec={"stage": "dev", "freight": "f1", "steps": [step]})

    async def abort(self, name: str = "p1", value: str = "terminate") -> None:
        body = encode({"metadata": {"annotations": {ANNOTATION_ABORT: value}}})
        await self.user.patch(PROMOTIONS, Key(PROJECT, name), body, codec=JSON)

    async def delete(self, name: str = "p1") -> None:
        await self.user.delete(PROMOTIONS, Key(PROJECT, name))

    async def write(self, body: Any) -> JsonObject:
        """Patch the Application as somebody else: merge, or with a list JSON."""
        type_ = PatchType.JSON if isinstance(body, list) else PatchType.MERGE
        return await self.user.patch(APPLICATIONS, APP, encode(body), codec=JSON, patch_type=type_)

    # -- what can be seen ------------------------------------------------------------------------------------------

    def app(self, name: str = APP.name) -> JsonObject:
        return self._object(APPLICATIONS, Key(APP.namespace, name))

    def promotion(self, name: str = "p1") -> JsonObject:
        return self._object(PROMOTIONS, Key(PROJECT, name))

    def _object(self, resource: Resource, key: Key) -> JsonObject:
        """As it is stored: nobody may change it. Raises KeyError."""
        return self.core.store.collection(resource.group, resource.plural).items[object_key(*key)].obj

    def events(self) -> list[JsonObject]:
        """All Events, in the order in which they were made."""
        return [stored.obj for stored in self.core.store.collection("", "events").items.values()]

    def phase(self, name: str = "p1") -> str:
        return str(self.promotion(name).get("status", {}).get("phase") or "Pending")

    async def until(self, condition: Callable[[], Any], seconds: float = 1000) -> None:
        """Wait until *condition* holds after some write."""
        async with asyncio.timeout(seconds):
            while not condition():
                self._news.clear()
                await self._news.wait()

    async def ended(self, name: str = "p1", seconds: float = 1000) -> str:
        """Wait for the final phase."""
        await self.until(lambda: self.phase(name) not in {"Pending", "Running"}, seconds)
        return self.phase(name)

    async def started(self) -> None:
        """Wait until an operation of ours is requested."""
        await self.until(lambda: is_ours(mark_of(self.app().get("operation"))))

    def starts(self) -> list[str]:
        """The stamps of the starts that were carried out, in their order."""
        return [
            mark_of(body["operation"]) or ""
            for line in self.lines
            for _, body in line.patches
            if isinstance(body, dict) and "operation" in body and body["status"]["operationState"] is None
        ]

    def runs(self) -> list[tuple[str, str]]:
        """Operations as Argo CD showed them: mark and final phase, each once, in the order in which they ended."""
        seen: list[tuple[str, str]] = []
        for obj in self.versions:
            state = (obj.get("status") or {}).get("operationState") or {}
            if state.get("phase") in {"Succeeded", "Failed", "Error"}:
                entry = mark_of(state["operation"]) or "", state["phase"]
                if not seen or seen[-1] != entry:
                    seen.append(entry)
        return seen

    def operations(self, name: str = "p1") -> list[JsonObject]:
        """What the Promotion records, from where it stands with Kargo's own definitions, too."""
        state = self.promotion(name)["status"].get("state") or {}
        return [record.mirror() for record in read_records(state.get(STATE_KEY))]

    def message(self, name: str = "p1") -> str:
        return str(self.promotion(name)["status"].get("message") or "")

    def at_rest(self) -> bool:
        """Nothing of ours is requested or under way, and nothing is orphaned."""
        state = (self.app().get("status") or {}).get("operationState") or {}
        running = state.get("phase") in {"Running", "Terminating"}
        ours = is_ours(mark_of(self.app().get("operation"))) or (running and is_ours(mark_of(state["operation"])))
        return not ours and not (running and "operation" not in self.app())


def owned_by(stage: JsonObject) -> JsonObject:
    """The metadata of a Promotion to *stage* that nothing is missing in."""
    meta = stage["metadata"]
    owner = {"apiVersion": stage["apiVersion"], "kind": "Stage", "name": meta["name"], "uid": meta["uid"]}
    said = {"kargo.akuity.io/stage": meta["name"]}
    return {"labels": said, "annotations": said, "ownerReferences": [{**owner, "controller": True}]}


def is_ours(mark: str | None) -> bool:
    return mark is not None and mark.startswith("v1/")


@asynccontextmanager
async def universe(version: Version = Version.V3_6, **timing: Any) -> AsyncIterator[tuple[Universe, SimulatedArgoCD]]:
    """A universe with Argo CD running, everything prepared, and nothing of ours."""
    world = Universe()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(world.core)
        argo = await stack.enter_async_context(world.argocd(version, **timing))
        await world.prepare()
        yield world, argo
