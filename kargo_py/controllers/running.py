"""Puts the parts of one instance together, and runs them: connects, fills the caches, reconciles until told to stop.

Another program's way in is :mod:`kargo_py.controllers.embedding`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import structlog

from kargo_py.api.stamp import StampError, check_instance
from kargo_py.argocd.application import APPLICATIONS
from kargo_py.controllers.promotion import PromotionReconciler
from kargo_py.controllers.stage import StageReconciler
from kargo_py.controllers.sweep import Sweeper
from kargo_py.controllers.vitals import Tasks, alive, ready as ready_parts, report
from kargo_py.controllers.world import CLUSTER_TASKS, COMPONENT, NAMESPACES, TASKS, Responsibility, World
from kargo_py.deployers.argocd import ArgoCD
from kargo_py.deployers.base import HealthChecker
from kargo_py.engine.execution import BLOCKED_AFTER, Executor, Patience
from kargo_py.engine.work_dirs import WorkDirs, root_of
from kargo_py.kube.background import background
from kargo_py.kube.cache import Cache
from kargo_py.kube.client import Client
from kargo_py.kube.clock import utc_now
from kargo_py.kube.codec import JSON
from kargo_py.kube.connection import connect
from kargo_py.kube.controller import Controller
from kargo_py.kube.errors import ConfigError, Forbidden, KubeError, NotFound
from kargo_py.kube.events import EventRecorder
from kargo_py.kube.resources import Key, Resource
from kargo_py.kube.rest import Stats
from kargo_py.messages import Shown, message
from kargo_py.steps.argocd_update import USES as ARGOCD_UPDATE
from kargo_py.steps.base import Watch
from kargo_py.steps.http_addresses import AddressRules, Network
from kargo_py.steps.registry import BUILT_IN, KindError, Kinds, installed_kinds, made
from kargo_py.steps.step import Services, Step, Work

INSTANCE_UNSEEN = message(
    "{error}; the uid of that namespace names this control plane: allow get on it, or set --instance-id",
    do="Allow `get` on the namespace `kube-system`, or give `--instance-id`. The id must stay the same while "
    "Promotions run.",
    shown=Shown.COMMAND_LINE,
)
ARGOCD_MISSING = message(
    "the API server does not serve {resource} ({version}); install Argo CD",
    do="Install Argo CD, or give the kubeconfig of the cluster where it is with `--argocd-kubeconfig`.",
    shown=Shown.COMMAND_LINE,
)
CRDS_MISSING = message(
    "the API server does not serve {resource} ({version}); apply the CRDs of this program: kubectl apply -f crds/",
    do="Apply the CRDs, or name the cluster where they are with `--kubeconfig`.",
    shown=Shown.COMMAND_LINE,
)
RIGHTS_TO_READ_MISSING = message(
    "{why}; allow get, list and watch on {resource}",
    do="Give the user or service account these rights, as `deploy/base/rbac.yaml` has them.",
    shown=Shown.COMMAND_LINE,
)
RIGHTS_MISSING = message(
    "{why}; allow get, list, watch and patch on {resource}",
    do="Give the user or service account these rights. For Promotions and Freight `patch` is needed on their `status` "
    "only, for Stages on their metadata, too.",
    shown=Shown.COMMAND_LINE,
)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    """What to run where.

    ``argocd_kubeconfig`` None: Argo CD lives in the same cluster. ``watch_argocd_namespace_only``: watch Applications
    in ``argocd_namespace`` only. ``instance`` "": the uid of the kube-system namespace names this control plane.
    ``metrics_address`` and ``health_address``: HOST:PORT or :PORT to serve Prometheus metrics, and the probes
    ``/healthz`` and ``/readyz``, at, "" for nowhere; they may be the same. ``abort_patience``: how long what an abort
    or a time-out stops is waited for. ``created_events`` and ``operation_events``: tell also that Promotions were
    created, and what becomes of the operations they start. ``shared_resources_namespace``: where expressions read
    shared ConfigMaps and Secrets; ``ui_base_url``: where Kargo's user interface is, for ``ctx.uiBaseUrl``; "" for none.
    ``work_dir`` is where the working directories of Promotions
    are made, "" for the machine's place for what is passing. ``step_limits``: how many calls of steps run at once, for
    each kind of work, where that is not the default. ``patience``: how long they may take. ``interrupts``: what blocks
    the event loop is interrupted, by a signal, instead of only being logged.
    ``http_denied``: addresses that the step http does not talk to, beside those that it never does.
    """

    kubeconfig: str | None = None
    argocd_kubeconfig: str | None = None
    argocd_namespace: str = "argocd"
    watch_argocd_namespace_only: bool = False
    instance: str = ""
    metrics_address: str = ""
    health_address: str = ""
    abort_patience: timedelta = timedelta(minutes=10)
    created_events: bool = False
    operation_events: bool = False
    shared_resources_namespace: str = ""
    ui_base_url: str = ""
    work_dir: str = ""
    step_limits: Mapping[Work, int] = field(default_factory=dict)
    patience: Patience = field(default_factory=lambda: Patience(blocked=BLOCKED_AFTER))
    interrupts: bool = False
    http_denied: Sequence[Network] = ()
    responsibility: Responsibility = field(default_factory=Responsibility)


class StartError(Exception):
    """The controllers cannot run; the text is one sentence that says what to do."""


async def run_controllers(options: Options, *, ready: asyncio.Event | None = None) -> None:
    """Connect and reconcile until cancelled; sets *ready* once the caches are filled. Raises StartError."""
    async with AsyncExitStack() as stack:
        try:
            client = await stack.enter_async_context(await connect(kubeconfig=options.kubeconfig))
            argocd_client = client
            if options.argocd_kubeconfig:
                argocd_client = await stack.enter_async_context(await connect(kubeconfig=options.argocd_kubeconfig))
            instance = await instance_of(client, options.instance)
        except (KubeError, StampError) as error:
            raise StartError(str(error)) from error
        assembly = assemble(client, argocd_client, instance, options, kinds=await available_kinds())
        await run_assembly(assembly, options, ready=ready)


Reconciler: TypeAlias = type[PromotionReconciler | StageReconciler | Sweeper]

ALL: Sequence[Reconciler] = (PromotionReconciler, StageReconciler, Sweeper)


@dataclass(frozen=True, slots=True)
class Assembly:
    """All parts of one instance.

    ``servers`` has what was sent to each API server, where the client counts it; ``tasks`` is what must keep running.
    """

    world: World
    caches: Sequence[Cache[Any]]
    controllers: list[Controller[Any]]
    recorders: Sequence[EventRecorder]
    servers: Mapping[str, Stats]
    tasks: Tasks = field(default_factory=Tasks)

    def alive(self) -> tuple[bool, str]:
        """Whether all parts work, and the text that says so; if not, a restart may help."""
        return report("healthz", alive(self.tasks, self.controllers))

    def ready(self) -> tuple[bool, str]:
        """Whether decisions are made, and rest on the present; and the text that says so."""
        needed = [cache for cache in self.caches if not self.can_do_without(cache)]
        return report("readyz", ready_parts(self.tasks, needed, self.controllers))

    def can_do_without(self, cache: Cache[Any]) -> bool:
        """Whether *cache* is of a kind that this cluster does not have, and need not have."""
        why = cache.health
        return cache in self.world.task_caches and isinstance(why, NotFound) and why.resource_missing


@dataclass(frozen=True, slots=True)
class Parts:
    """What an embedding program hands in: further kinds of steps, what judges their health checks, what they watch."""

    steps: Mapping[str, Step[Any]] = field(default_factory=dict)
    checkers: Mapping[str, HealthChecker] = field(default_factory=dict)
    watches: Sequence[Watch[Any]] = ()


def assemble(
    client: Client,
    argocd: Client | ArgoCD,
    instance: str,
    options: Options,
    *,
    now: Callable[[], datetime] = utc_now,
    kinds: Kinds = BUILT_IN,
    parts: Parts = Parts(),
    reconcilers: Iterable[Reconciler] = ALL,
) -> Assembly:
    """Put the parts together; nothing runs yet. *now* is the wall clock, of which only what people read is taken.

    *argocd* is the client of Argo CD's API server, or a deployer that was made with one. *kinds* are the kinds of
    steps; those of *parts* come before them.
    """
    argocd_client = argocd.client if isinstance(argocd, ArgoCD) else argocd
    clients = {"kargo": client} if argocd_client is client else {"kargo": client, "argocd": argocd_client}
    recorders = [EventRecorder(each, COMPONENT, instance, now=now) for each in clients.values()]
    counts = {name: getattr(each, "stats", None) for name, each in clients.items()}
    servers = {name: stats for name, stats in counts.items() if isinstance(stats, Stats)}
    if not isinstance(argocd, ArgoCD):
        argocd = ArgoCD(
            argocd,
            namespace=options.argocd_namespace if options.watch_argocd_namespace_only else "",
            default_namespace=options.argocd_namespace,
            now=now,
            recorder=recorders[-1],
        )
    elif argocd.recorder is None:
        argocd.recorder = recorders[-1]
    world = World(
        instance=instance,
        client=client,
        argocd=argocd,
        recorder=recorders[0],
        argocd_recorder=recorders[-1],
        steps={**made(kinds, Services(client, argocd, AddressRules(options.http_denied))), **parts.steps},
        checkers={ARGOCD_UPDATE: argocd, **parts.checkers},
        responsibility=options.responsibility,
        now=now,
        abort_patience=options.abort_patience,
        created_events=options.created_events,
        operation_events=options.operation_events,
        shared_resources_namespace=options.shared_resources_namespace,
        ui_base_url=options.ui_base_url,
        watches=parts.watches,
        executor=Executor(
            options.step_limits,
            options.patience,
            work_dirs=WorkDirs(root_of(instance, options.work_dir)),
            interrupts=options.interrupts,
        ),
    )
    caches: list[Cache[Any]] = [*world.caches]
    caches += [watch.cache for watch in parts.watches if watch.cache not in caches]
    return Assembly(world, caches, [each(world).controller() for each in reconcilers], recorders, servers)


async def available_kinds() -> Kinds:
    """The kinds of steps that are installed; finding them reads files. Raises StartError."""
    try:
        return await asyncio.to_thread(installed_kinds)
    except KindError as error:
        raise StartError(str(error)) from error


@asynccontextmanager
async def supplied(assembly: Assembly) -> AsyncIterator[None]:
    """In the body the caches are filled and followed, and Events are written. Raises StartError."""
    caches = [(f"task/cache/{cache.resource}", cache.run) for cache in assembly.caches]
    recorders = [("task/events", recorder.run) for recorder in assembly.recorders]
    async with background([*caches, *recorders]) as tasks:
        with assembly.tasks.counting_on(tasks):
            for cache in assembly.caches:
                try:
                    await cache.wait_synced(fail_fast=True)
                except KubeError as error:
                    if assembly.can_do_without(cache):
                        continue
                    raise StartError(_why(error, cache.resource)) from error
            await assembly.world.sweep_work_dirs()
            try:
                yield
            finally:
                await assembly.world.executor.aclose()


@asynccontextmanager
async def reconciling(assembly: Assembly, controllers: Iterable[Controller[Any]]) -> AsyncIterator[None]:
    """In the body *controllers* reconcile; at its end what they have begun is finished."""
    jobs = [(f"task/controller/{controller.name}", controller.run) for controller in controllers]
    async with background(jobs) as tasks:
        with assembly.tasks.counting_on(tasks):
            yield


async def run_assembly(assembly: Assembly, options: Options, *, ready: asyncio.Event | None = None) -> None:
    """Fill the caches and reconcile until cancelled; sets *ready* once they are filled. Raises StartError."""
    async with _endpoints(assembly, options), supplied(assembly), reconciling(assembly, assembly.controllers):
        _log.info("controllers running", instance=assembly.world.instance, shard=options.responsibility.shard or None)
        if ready is not None:
            ready.set()
        try:
            await asyncio.Event().wait()
        finally:
            assembly.tasks.stop()


@asynccontextmanager
async def _endpoints(assembly: Assembly, options: Options) -> AsyncIterator[None]:
    """Serve what was asked for over HTTP; what that takes is imported only then."""
    if not options.metrics_address and not options.health_address:
        yield
        return
    from kargo_py.controllers import endpoints  # noqa: PLC0415 - as the docstring says
    from kargo_py.controllers.metrics import registry  # noqa: PLC0415 - as above

    wanted = {
        endpoints.METRICS: (options.metrics_address, endpoints.metrics_handler(registry(assembly))),
        endpoints.HEALTHZ: (options.health_address, endpoints.check_handler(assembly.alive)),
        endpoints.READYZ: (options.health_address, endpoints.check_handler(assembly.ready)),
    }
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(endpoints.serving_all(wanted))
        except endpoints.BindError as error:
            raise StartError(str(error)) from error
        yield


async def instance_of(client: Client, given: str) -> str:
    """The name of this control plane in stamps: *given*, or that of the cluster. Raises KubeError and StampError."""
    if given:
        return check_instance(given)
    try:
        namespace = await client.get(NAMESPACES, Key("", "kube-system"), codec=JSON)
    except (Forbidden, NotFound) as error:
        raise ConfigError(INSTANCE_UNSEEN(error=error)) from error
    return JSON.meta(namespace).uid


def _why(error: KubeError, resource: Resource) -> str:
    if isinstance(error, NotFound):
        if resource is APPLICATIONS:
            return ARGOCD_MISSING(resource=resource, version=resource.api_version)
        return CRDS_MISSING(resource=resource, version=resource.api_version)
    if isinstance(error, Forbidden) and resource in {TASKS, CLUSTER_TASKS}:
        return RIGHTS_TO_READ_MISSING(why=error.message, resource=resource)
    if isinstance(error, Forbidden):
        return RIGHTS_MISSING(why=error.message, resource=resource)
    return str(error)
