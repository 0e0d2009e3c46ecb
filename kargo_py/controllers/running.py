"""Runs the controllers: connects, fills the caches, reconciles until told to stop.

Embed it: ``await run_controllers(Options(...))`` inside any asyncio program; cancelling it stops cleanly, and writes
that were begun are finished.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import structlog

from kargo_py.api.stamp import StampError, check_instance
from kargo_py.argocd.application import APPLICATIONS
from kargo_py.controllers.promotion import PromotionReconciler
from kargo_py.controllers.stage import StageReconciler
from kargo_py.controllers.sweep import Sweeper
from kargo_py.controllers.vitals import Tasks, alive, ready as ready_parts, report
from kargo_py.controllers.world import COMPONENT, NAMESPACES, Responsibility, World
from kargo_py.deployers.argocd import ArgoCD
from kargo_py.kube.cache import Cache
from kargo_py.kube.clock import utc_now
from kargo_py.kube.codec import JSON
from kargo_py.kube.connection import connect
from kargo_py.kube.controller import Controller
from kargo_py.kube.errors import ConfigError, Forbidden, KubeError, NotFound
from kargo_py.kube.events import EventRecorder
from kargo_py.kube.resources import Key, Resource
from kargo_py.kube.rest import RestClient, Stats
from kargo_py.messages import Shown, message
from kargo_py.steps.argocd_update import USES as ARGOCD_UPDATE, ArgoCDUpdate

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
RIGHTS_MISSING = message(
    "{why}; allow get, list, watch and patch on {resource}",
    do="Give the user or service account these rights. For Promotions, Stages and Freight `patch` is needed on their "
    "`status` only.",
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
    or a time-out stops is waited for.
    """

    kubeconfig: str | None = None
    argocd_kubeconfig: str | None = None
    argocd_namespace: str = "argocd"
    watch_argocd_namespace_only: bool = False
    instance: str = ""
    metrics_address: str = ""
    health_address: str = ""
    abort_patience: timedelta = timedelta(minutes=10)
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
            instance = await _instance(client, options.instance)
        except (KubeError, StampError) as error:
            raise StartError(str(error)) from error
        await run_assembly(assemble(client, argocd_client, instance, options), options, ready=ready)


@dataclass(frozen=True, slots=True)
class Assembly:
    """All parts of one instance; ``servers`` has what was sent to each API server, ``tasks`` what must keep running."""

    world: World
    caches: Sequence[Cache[Any]]
    controllers: Sequence[Controller[Any]]
    recorders: Sequence[EventRecorder]
    servers: Mapping[str, Stats]
    tasks: Tasks = field(default_factory=Tasks)

    def alive(self) -> tuple[bool, str]:
        """Whether all parts work, and the text that says so; if not, a restart may help."""
        return report("healthz", alive(self.tasks, self.controllers))

    def ready(self) -> tuple[bool, str]:
        """Whether decisions are made, and rest on the present; and the text that says so."""
        return report("readyz", ready_parts(self.tasks, self.caches, self.controllers))


def assemble(
    client: RestClient,
    argocd_client: RestClient,
    instance: str,
    options: Options,
    *,
    now: Callable[[], datetime] = utc_now,
) -> Assembly:
    """Put the parts together; nothing runs yet. *now* is the wall clock, of which only what people read is taken."""
    recorders = [EventRecorder(client, COMPONENT, instance, now=now)]
    servers = {"kargo": client.stats}
    if argocd_client is not client:
        recorders.append(EventRecorder(argocd_client, COMPONENT, instance, now=now))
        servers["argocd"] = argocd_client.stats
    argocd = ArgoCD(
        argocd_client,
        namespace=options.argocd_namespace if options.watch_argocd_namespace_only else "",
        default_namespace=options.argocd_namespace,
        now=now,
        recorder=recorders[-1],
    )
    world = World(
        instance=instance,
        client=client,
        argocd=argocd,
        recorder=recorders[0],
        argocd_recorder=recorders[-1],
        steps={ARGOCD_UPDATE: ArgoCDUpdate(argocd)},
        checkers={ARGOCD_UPDATE: argocd},
        responsibility=options.responsibility,
        now=now,
        abort_patience=options.abort_patience,
    )
    return Assembly(
        world,
        [world.stages, world.promotions, world.freights, argocd.applications],
        [PromotionReconciler(world).controller(), StageReconciler(world).controller(), Sweeper(world).controller()],
        recorders,
        servers,
    )


async def run_assembly(assembly: Assembly, options: Options, *, ready: asyncio.Event | None = None) -> None:
    """Fill the caches and reconcile until cancelled; sets *ready* once they are filled. Raises StartError."""
    try:
        # Two groups, so that at the end the controllers stop first: what they still do is seen and told.
        async with _endpoints(assembly, options), asyncio.TaskGroup() as supply:
            for cache in assembly.caches:
                assembly.tasks.add(supply.create_task(cache.run(), name=f"task/cache/{cache.resource}"))
            for recorder in assembly.recorders:
                assembly.tasks.add(supply.create_task(recorder.run(), name="task/events"))
            for cache in assembly.caches:
                try:
                    await cache.wait_synced(fail_fast=True)
                except KubeError as error:
                    raise StartError(_why(error, cache.resource)) from error
            async with asyncio.TaskGroup() as work:
                for controller in assembly.controllers:
                    task = work.create_task(controller.run(), name=f"task/controller/{controller.name}")
                    assembly.tasks.add(task)
                shard = options.responsibility.shard or None
                _log.info("controllers running", instance=assembly.world.instance, shard=shard)
                if ready is not None:
                    ready.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    assembly.tasks.stop()
    except BaseExceptionGroup as group_error:
        if (start := group_error.subgroup(StartError)) is not None:
            raise _first(start) from group_error
        raise


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


def _first(group: BaseExceptionGroup[StartError]) -> StartError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error if isinstance(error, StartError) else StartError(str(error))


async def _instance(client: RestClient, given: str) -> str:
    """The name of this control plane in stamps."""
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
    if isinstance(error, Forbidden):
        return RIGHTS_MISSING(why=error.message, resource=resource)
    return str(error)
