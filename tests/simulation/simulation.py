"""One simulated history: the real controllers, the simulated Argo CD, users and accidents on one loop."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from kargo_py.api.abort import ANNOTATION_ABORT
from kargo_py.api.admission import ANNOTATION_CUSTOM_STEPS
from kargo_py.argocd.application import APPLICATIONS
from kargo_py.controllers.running import Options, StartError, assemble, run_assembly
from kargo_py.controllers.world import FREIGHTS, NAMESPACES, STAGES
from kargo_py.kube.client import PatchType
from kargo_py.kube.codec import JSON, decode, encode
from kargo_py.kube.resources import Key, Resource
from kargo_py.kube.rest import RestClient
from kargo_py.local.apiserver.client import client_of
from kargo_py.local.apiserver.faults import Faulty, Schedule
from kargo_py.local.apiserver.server import ApiServer
from kargo_py.local.apiserver.store import Event
from kargo_py.local.apiserver.wire import Handler, Request, Response, Stream
from kargo_py.local.argocd.simulator import ArgoCD
from kargo_py.local.argocd.timing import Timing, Version
from kargo_py.local.simulation.loop import Process, SimulatedLoop, State, running_loop, simulate
from kargo_py.steps.argocd_update import USES
from kargo_py.testing.definitions import DEFINITIONS
from tests.envtest.crds import APPLICATION, OURS as OURS_CRDS, read
from tests.simulation.acts import AUTHORIZED, PROJECT, REPO, carry_out
from tests.simulation.history import TERMINAL, History, Seen, Write, in_progress, phase_of, requested, shown
from tests.simulation.laws import REST, SWEPT, Violation, judge
from tests.simulation.network import Asking, Latency, Network, asking
from tests.simulation.plan import ACTIVE, APPS, OURS, REVISIONS, Plan

JsonObject = dict[str, Any]

ZERO = datetime(2026, 11, 30, 12, tzinfo=UTC)
INSTANCE = "me"

PATIENCE = timedelta(minutes=3)
_SETTLE = 1500.0
_LOOK = 10.0
_RESTART = 1.0

_CALM = 10.0
"""Seconds until what the very last act set off is through: a Stage follows what Argo CD finds out within them."""

_REQUESTS_AT_REST = 40
"""Watches that begin again, and looks at what might have been missed."""


_WATCHED = frozenset({"Application", "Promotion", "Stage", "Freight", "Event"})


@cache
def _definitions() -> Sequence[JsonObject]:
    return [*read(OURS_CRDS), APPLICATION]


@dataclass(frozen=True, slots=True)
class Program:
    """One life of our program."""

    process: Process
    network: Network
    task: asyncio.Task[None]


@dataclass(frozen=True, slots=True)
class _As:
    """The server, as it is asked by *agent* from beside it."""

    core: Handler
    agent: str

    async def handle(self, request: Request) -> Response | Stream:
        asking.set(Asking(self.agent))
        return await self.core.handle(request)


@dataclass(frozen=True, slots=True)
class Told:
    """What became of a plan: the history, what broke a Law, and what it took."""

    plan: Plan
    history: History
    violations: list[Violation]
    mishaps: list[str]
    log: list[EventDict]
    callbacks: int


@dataclass(eq=False)
class Simulation:
    """What is there while the history goes on."""

    plan: Plan
    loop: SimulatedLoop
    crashes: list[str]
    writes: list[Write] = field(default_factory=list)
    networks: list[Network] = field(default_factory=list)
    program: Program | None = None
    lives: int = 0
    argocd_runs: bool = False
    watcher: asyncio.Task[None] | None = None
    over: bool = False
    ahead: float = 0.0
    core: ApiServer = field(init=False)
    faulty: Faulty = field(init=False)
    user: RestClient = field(init=False)
    argocd: ArgoCD = field(init=False)

    def __post_init__(self) -> None:
        chance = random.Random(f"server {self.plan.seed}")
        self.core = ApiServer(now=self.now, random=chance)
        self.core.store.observers.append(self._saw)
        self.faulty = Faulty(
            self.core, Schedule(mishap.rule() for mishap in self.plan.mishaps), history=self.core.store
        )
        self.user = client_of(_As(self.core, "alice"), user_agent="alice")
        network = Network(self.core, "argocd", self._latency("argocd"))
        self.argocd = ArgoCD(
            client_of(network, user_agent="argocd"),
            version=Version(self.plan.argocd),
            timing=Timing(gap=self.plan.gap),
            seed=self.plan.seed,
            now=self.now,
        )

    def now(self) -> datetime:
        """The time as the server and Argo CD have it."""
        return ZERO + timedelta(seconds=self.loop.time())

    def _our_now(self) -> datetime:
        return self.now() + timedelta(seconds=self.plan.skew + self.ahead)

    def _latency(self, name: str) -> Latency:
        return Latency(random.Random(f"latency {name} {self.plan.seed}"), self.plan.latency)

    def _saw(self, event: Event) -> None:
        obj = event.stored.obj
        if obj["kind"] not in _WATCHED:
            return
        key = Key(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        old = event.previous.obj if event.previous is not None else None
        new = None if event.change == "DELETED" else obj
        by = asking.get()
        write = Write(event.version, self.loop.time(), by.agent, by.life, by.decided, obj["kind"], key, old, new)
        self.writes.append(write)

    # -- the programs -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Let a new process of ours begin, if none is there."""
        if self.program is not None or self.over:
            return
        self.lives += 1
        process = self.loop.process(f"{OURS} {self.lives}")
        network = Network(self.faulty, OURS, self._latency(process.name), self.lives)
        self.networks.append(network)
        task = process.spawn(self._run(client_of(network, user_agent=OURS)))
        self.program = Program(process, network, task)
        task.add_done_callback(self._ended)

    async def _run(self, client: RestClient) -> None:
        # No step of a plan needs a working directory, and what else is on this machine must not change a history.
        options = Options(abort_patience=PATIENCE, work_dir="/proc/none")
        while True:
            try:
                async with client:
                    await run_assembly(assemble(client, client, INSTANCE, options, now=self._our_now), options)
            except StartError:
                await asyncio.sleep(_RESTART)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.crashes.append(f"our program ended with {error!r}")

    def kill(self) -> bool:
        """Let our process be gone from now on; False if there is none."""
        if self.program is None:
            return False
        self.program.process.kill()
        self.program.network.hang_up()
        self.program = None
        return True

    async def stop(self) -> bool:
        """End our process in order."""
        if self.program is None or self.program.process.state is not State.RUNNING:
            return False
        program, self.program = self.program, None
        program.task.cancel()
        await asyncio.wait([program.task])
        return True

    async def start_argocd(self) -> None:
        """Let Argo CD run."""
        if not self.argocd_runs and not self.over:
            self.argocd_runs = True
            await self.argocd.start()
            self.watcher = self.loop.create_task(self._watch_argocd(), name="whether Argo CD lives")

    async def _watch_argocd(self) -> None:
        try:
            await self.argocd.serve()
        except Exception as error:  # noqa: BLE001 - whatever it is, the history is worth nothing
            self.crashes.append(f"the simulated Argo CD fell over: {error!r}")

    def compact(self) -> None:
        """Let the server forget what happened."""
        self.core.store.forget()

    # -- users --------------------------------------------------------------------------------------------------------

    async def create(self, resource: Resource, namespace: str, name: str, **parts: Any) -> None:
        """Create an object."""
        meta = parts.pop("metadata", {})
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name, **meta}, **parts}
        await self.user.create(resource, namespace, encode(body), codec=JSON)

    async def read(self, resource: Resource, key: Key) -> JsonObject:
        """The object as it is."""
        return await self.user.get(resource, key, codec=JSON)

    async def patch(self, resource: Resource, key: Key, body: Any) -> None:
        """Send a patch: merge, or JSON for a list."""
        type_ = PatchType.JSON if isinstance(body, list) else PatchType.MERGE
        await self.user.patch(resource, key, encode(body), codec=JSON, patch_type=type_)

    async def create_application(self, name: str) -> None:
        """An Application for the Stages that may promote to it."""
        stages = ",".join(f"{PROJECT}:{stage}" for stage, apps in APPS.items() if name in apps)
        spec = {
            "project": "default",
            "destination": {"server": "https://kubernetes.default.svc", "namespace": PROJECT},
            "source": {"repoURL": REPO, "path": name, "targetRevision": "main"},
        }
        await self.create(APPLICATIONS, "argocd", name, metadata={"annotations": {AUTHORIZED: stages}}, spec=spec)

    async def _prepare(self) -> None:
        for definition in _definitions():
            await self.create(DEFINITIONS, "", definition["metadata"]["name"], spec=definition["spec"])
        for namespace in (PROJECT, "argocd"):
            await self.create(NAMESPACES, "", namespace)
        await asyncio.sleep(1)
        origin = {"kind": "Warehouse", "name": "wh"}
        template = {"spec": {"steps": [{"uses": USES, "config": {"apps": [{"name": "x"}]}}]}}
        requested = [{"origin": origin, "sources": {"direct": True}}]
        for stage in APPS:
            spec = {"requestedFreight": requested, "promotionTemplate": template}
            allow = {"annotations": {ANNOTATION_CUSTOM_STEPS: "allow"}}
            await self.create(STAGES, PROJECT, stage, metadata=allow, spec=spec)
        for name, revision in REVISIONS.items():
            await self.create(FREIGHTS, PROJECT, name, origin=origin, commits=[{"repoURL": REPO, "id": revision}])
        for name in sorted({name for names in APPS.values() for name in names}):
            await self.create_application(name)

    # -- the history --------------------------------------------------------------------------------------------------

    async def happen(self) -> History:
        """Let everything of the plan happen, then let the controllers bring it to an end."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.core)
            await self._prepare()
            await self.start_argocd()
            self.start()
            async with asyncio.TaskGroup() as group:
                for act in self.plan.acts:
                    group.create_task(self._at_its_time(self.loop.time() + act.at, act), name=act.what)
            await asyncio.sleep(max(ACTIVE - self.loop.time(), 0))
            quiet = self.loop.time()
            self.start()
            while self.loop.time() < quiet + _SETTLE and not self._settled():
                await asyncio.sleep(_LOOK)
                self._finish_hooks(all_of_them=self.loop.time() > quiet + SWEPT + _LOOK)
            await asyncio.sleep(_CALM)
            asked = self.networks[-1].requests
            await asyncio.sleep(REST)
            self.over = True
            if (asked := self.networks[-1].requests - asked) > _REQUESTS_AT_REST:
                self.crashes.append(f"at rest {asked} requests were sent in {REST:.0f} s")
            seen = [one for network in self.networks for one in _seen(network)]
            return History(list(self.writes), quiet, self.loop.time(), INSTANCE, self.crashes, seen)

    async def _at_its_time(self, time: float, act: Any) -> None:
        await asyncio.sleep(time - self.loop.time())
        await carry_out(self, act)

    def _finish_hooks(self, *, all_of_them: bool) -> None:
        """Let hooks end; at first but for those that we must end: of Promotions that are to be aborted, or are gone."""
        seen = History(self.writes, 0, 0, INSTANCE)
        for key, app in seen.final("Application"):
            if not all_of_them and _is_for_us_to_end(seen, app):
                continue
            try:
                self.argocd.application(key.name).finish_hook()
            except LookupError:
                continue

    def _settled(self) -> bool:
        """Whether nothing is left to be done."""
        final = History(self.writes, 0, 0, INSTANCE)
        return (
            all(phase_of(promotion) in TERMINAL for _, promotion in final.final("Promotion"))
            and not any((stage.get("status") or {}).get("currentPromotion") for _, stage in final.final("Stage"))
            and not any(
                final.is_ours(requested(app)) or (in_progress(app) and final.is_ours(shown(app)))
                for _, app in final.final("Application")
            )
        )


def _is_for_us_to_end(seen: History, app: JsonObject) -> bool:
    stamp = seen.stamp(shown(app))
    if stamp is None:
        return False
    promotion = seen.last("Promotion", Key(stamp.namespace, stamp.name))
    return promotion is None or ANNOTATION_ABORT in (promotion["metadata"].get("annotations") or {})


def _seen(network: Network) -> Iterator[Seen]:
    for time, line in network.shown:
        event = decode(line)
        if isinstance(event, dict) and event["type"] in {"ADDED", "MODIFIED"}:
            yield Seen(time, network.life, int(event["object"]["metadata"]["resourceVersion"]))


def run(plan: Plan) -> Told:
    """Let the plan happen, and judge it."""
    crashes: list[str] = []
    log: list[EventDict] = []

    def note(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event["at"] = round(asyncio.get_running_loop().time(), 3)
        if "exception" in event:
            crashes.append(f"{event['event']}: {event['exception']}")
        log.append(event)
        raise structlog.DropEvent

    _definitions()  # files are not read in a loop
    simulations: list[Simulation] = []

    async def main() -> History:
        simulations.append(Simulation(plan, running_loop(), crashes))
        return await simulations[0].happen()

    before = structlog.get_config()
    processors: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.format_exc_info,
        note,
    ]
    structlog.configure(processors=processors, cache_logger_on_first_use=False)
    try:
        outcome = simulate(main, seed=plan.seed)
    finally:
        structlog.configure(**before)
    mishaps = [str(happening) for happening in simulations[0].faulty.happened]
    return Told(plan, outcome.value, judge(outcome.value), mishaps, log, outcome.callbacks)
