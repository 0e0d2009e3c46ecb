"""Runs the controllers: connects, fills the caches, reconciles until told to stop.

Embed it: ``await run_controllers(Options(...))`` inside any asyncio program; cancelling it stops cleanly, and writes
that were begun are finished.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import structlog

from kargo_py.api.stamp import StampError, check_instance
from kargo_py.argocd.application import APPLICATIONS
from kargo_py.controllers.promotion import PromotionController
from kargo_py.controllers.stage import StageController
from kargo_py.controllers.world import COMPONENT, NAMESPACES, Responsibility, World
from kargo_py.deployers.argocd import ArgoCD
from kargo_py.kube.cache import Cache
from kargo_py.kube.client import Client
from kargo_py.kube.codec import JSON
from kargo_py.kube.connection import connect
from kargo_py.kube.errors import ConfigError, Forbidden, KubeError, NotFound
from kargo_py.kube.events import EventRecorder
from kargo_py.kube.resources import Key, Resource
from kargo_py.steps.argocd_update import USES as ARGOCD_UPDATE, ArgoCDUpdate

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    """What to run where.

    ``argocd_kubeconfig`` None: Argo CD lives in the same cluster. ``watch_argocd_namespace_only``: watch Applications
    in ``argocd_namespace`` only. ``instance`` "": the uid of the kube-system namespace names this control plane.
    """

    kubeconfig: str | None = None
    argocd_kubeconfig: str | None = None
    argocd_namespace: str = "argocd"
    watch_argocd_namespace_only: bool = False
    instance: str = ""
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
        await _run(client, argocd_client, instance, options, ready)


async def _run(
    client: Client, argocd_client: Client, instance: str, options: Options, ready: asyncio.Event | None
) -> None:
    recorder = EventRecorder(client, COMPONENT, instance)
    argocd = ArgoCD(
        argocd_client,
        namespace=options.argocd_namespace if options.watch_argocd_namespace_only else "",
        default_namespace=options.argocd_namespace,
    )
    world = World(
        instance=instance,
        client=client,
        argocd=argocd,
        recorder=recorder,
        steps={ARGOCD_UPDATE: ArgoCDUpdate(argocd)},
        checkers={ARGOCD_UPDATE: argocd},
        responsibility=options.responsibility,
    )
    caches: Sequence[Cache[object]] = [world.stages, world.promotions, world.freights, argocd.applications]  # type: ignore[list-item]
    controllers = [PromotionController(world).controller(), StageController(world).controller()]
    try:
        # Two groups, so that at the end the controllers stop first: what they still do is seen and told.
        async with asyncio.TaskGroup() as supply:
            for cache in caches:
                supply.create_task(cache.run(), name=f"cache {cache.resource}")
            supply.create_task(recorder.run(), name="events")
            for cache in caches:
                try:
                    await cache.wait_synced(fail_fast=True)
                except KubeError as error:
                    raise StartError(_why(error, cache.resource)) from error
            async with asyncio.TaskGroup() as work:
                for controller in controllers:
                    work.create_task(controller.run(), name=f"controller {controller.name}")
                _log.info("controllers running", instance=instance, shard=options.responsibility.shard or None)
                if ready is not None:
                    ready.set()
    except BaseExceptionGroup as group_error:
        if (start := group_error.subgroup(StartError)) is not None:
            raise _first(start) from group_error
        raise


def _first(group: BaseExceptionGroup[StartError]) -> StartError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error if isinstance(error, StartError) else StartError(str(error))


async def _instance(client: Client, given: str) -> str:
    """The name of this control plane in stamps."""
    if given:
        return check_instance(given)
    try:
        namespace = await client.get(NAMESPACES, Key("", "kube-system"), codec=JSON)
    except (Forbidden, NotFound) as error:
        raise ConfigError(
            f"{error}; the uid of that namespace names this control plane: allow get on it, or set --instance-id"
        ) from error
    return JSON.meta(namespace).uid


def _why(error: KubeError, resource: Resource) -> str:
    if isinstance(error, NotFound):
        hint = (
            "install Argo CD" if resource is APPLICATIONS else "apply the CRDs of this program: kubectl apply -f crds/"
        )
        return f"the API server does not serve {resource} ({resource.api_version}); {hint}"
    if isinstance(error, Forbidden):
        return f"{error.message}; allow get, list, watch and patch on {resource}"
    return str(error)
