"""The controllers as objects of somebody else's asyncio program.

    async with await connect() as client, Controllers(client):
        await the_rest_of_the_program()

:class:`Controllers` is all of them. :class:`PromotionController` and :class:`StageController` are the halves, to be
run apart or, on one :class:`Shared`, with the same caches. Entering waits until the caches are filled and raises
:class:`~kargo_py.controllers.running.StartError` if that cannot be; leaving finishes what was begun. What kills a part
cancels the body, which then ends with that error. Nothing here is global, handles signals, or sets up logging.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, ClassVar, Self, TypeAlias, TypedDict, TypeGuard, Unpack, cast

import structlog

from kargo_py.api.stamp import StampError
from kargo_py.api.types import JsonObject
from kargo_py.argocd.application import Application
from kargo_py.controllers.promotion import PromotionReconciler
from kargo_py.controllers.running import (
    ALL,
    Assembly,
    Options,
    Parts,
    Reconciler,
    StartError,
    assemble,
    available_kinds,
    instance_of,
    reconciling,
    supplied,
)
from kargo_py.controllers.stage import StageReconciler
from kargo_py.controllers.sweep import Sweeper
from kargo_py.controllers.world import Responsibility
from kargo_py.deployers.argocd import ArgoCD
from kargo_py.deployers.base import HealthChecker
from kargo_py.kube import connection
from kargo_py.kube.borrowed import ApiClient
from kargo_py.kube.cache import Cache
from kargo_py.kube.client import Client
from kargo_py.kube.clock import utc_now
from kargo_py.kube.errors import ConfigError, KubeError
from kargo_py.kube.rest import RestClient
from kargo_py.steps.base import Watch
from kargo_py.steps.http_addresses import Network
from kargo_py.steps.registry import faults_of, malformed
from kargo_py.steps.step import Step, Work

AnyClient: TypeAlias = Client | ApiClient
"""One of ours (:func:`kargo_py.kube.connection.connect`), or a kubernetes_asyncio ``ApiClient``."""

_log = structlog.get_logger(__name__)


async def connect(*, kubeconfig: str | None = None, context: str | None = None) -> RestClient:
    """As :func:`kargo_py.kube.connection.connect`, but what is wrong is a StartError, as when the controllers begin."""
    try:
        return await connection.connect(kubeconfig=kubeconfig, context=context)
    except ConfigError as error:
        raise StartError(str(error)) from error


async def connect_like(api_client: ApiClient) -> RestClient:
    """As :func:`kargo_py.kube.connection.connect_like`, but what is wrong is a StartError."""
    try:
        return await connection.connect_like(api_client)
    except ConfigError as error:
        raise StartError(str(error)) from error


class Settings(TypedDict, total=False):
    """The keyword arguments of :class:`Shared`, which says what they mean."""

    argocd: ArgoCD | AnyClient | None
    argocd_namespace: str
    watch_argocd_namespace_only: bool
    steps: Mapping[str, Step[Any]]
    checkers: Mapping[str, HealthChecker]
    watches: Sequence[Watch[Any]]
    responsibility: Responsibility
    instance: str
    abort_patience: timedelta
    created_events: bool
    operation_events: bool
    shared_resources_namespace: str
    ui_base_url: str
    work_dir: str
    step_limits: Mapping[Work, int]
    http_denied: Sequence[Network]
    now: Callable[[], datetime]


class _Entered:
    """Can be entered once: what a controller has been through is not undone by leaving it."""

    def __init__(self) -> None:
        self._stack: AsyncExitStack | None = None

    async def _open(self, stack: AsyncExitStack) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        if self._stack is not None:
            raise RuntimeError(f"{type(self).__name__} can be entered once only: make a new one")
        self._stack = AsyncExitStack()
        async with AsyncExitStack() as stack:
            await self._open(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        assert self._stack is not None  # noqa: S101 - it was entered
        return bool(await self._stack.__aexit__(kind, error, trace))


class Shared(_Entered):
    """The caches, deployers and steps that the controllers of one instance share; running while it is entered.

    Args:
        client: of the API server with Promotions, Stages and Freight.
        argocd: the client of Argo CD's API server where that is another one, or a deployer of your own making; then
            the next two count for nothing.
        argocd_namespace: of Applications where a step names none.
        watch_argocd_namespace_only: see Applications of that namespace only.
        steps: further kinds of steps by the ``uses`` that calls them; one of our own may be replaced.
        checkers: what judges the health checks that such steps leave behind, by ``uses``.
        watches: where the targets of such steps are seen. The caches are filled and followed with the others.
        responsibility: which Stages to act on.
        instance: the name of this control plane in stamps; "": the uid of the namespace ``kube-system``.
        abort_patience: how long what an abort or a time-out stops is waited for.
        created_events: tell in an Event that a Promotion was created; one more write for each.
        operation_events: tell in Events what becomes of the operations that Promotions start.
        shared_resources_namespace: where expressions read shared ConfigMaps and Secrets; "": nowhere.
        ui_base_url: where Kargo's user interface is, which expressions have as ``ctx.uiBaseUrl``.
        work_dir: where the working directories of Promotions are made; "": where the machine keeps what is passing.
        step_limits: how many calls of steps run at once, for each kind of work, where that is not the default.
        http_denied: addresses that the step http does not talk to, beside those that it never does.
        now: the wall clock, of which only what people read is taken.
    """

    def __init__(
        self,
        client: AnyClient,
        *,
        argocd: ArgoCD | AnyClient | None = None,
        argocd_namespace: str = "argocd",
        watch_argocd_namespace_only: bool = False,
        steps: Mapping[str, Step[Any]] | None = None,
        checkers: Mapping[str, HealthChecker] | None = None,
        watches: Sequence[Watch[Any]] = (),
        responsibility: Responsibility = Responsibility(),  # noqa: B008 - it is frozen
        instance: str = "",
        abort_patience: timedelta = timedelta(minutes=10),
        created_events: bool = False,
        operation_events: bool = False,
        shared_resources_namespace: str = "",
        ui_base_url: str = "",
        work_dir: str = "",
        step_limits: Mapping[Work, int] | None = None,
        http_denied: Sequence[Network] = (),
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        super().__init__()
        _check_client("client", client)
        if argocd is not None and not isinstance(argocd, ArgoCD):
            _check_client("argocd", argocd)
        _check_steps(steps or {})
        self._client = client
        self._argocd = argocd
        self._parts = Parts(dict(steps or {}), dict(checkers or {}), tuple(watches))
        self._now = now
        self._options = Options(
            argocd_namespace=argocd_namespace,
            watch_argocd_namespace_only=watch_argocd_namespace_only,
            instance=instance,
            abort_patience=abort_patience,
            created_events=created_events,
            operation_events=operation_events,
            shared_resources_namespace=shared_resources_namespace,
            ui_base_url=ui_base_url,
            work_dir=work_dir,
            step_limits=dict(step_limits or {}),
            http_denied=http_denied,
            responsibility=responsibility,
        )
        self._assembly: Assembly | None = None
        self._taken: set[Reconciler] = set()
        self._left = False

    async def _open(self, stack: AsyncExitStack) -> None:
        try:
            client = await _ours(self._client, stack)
            argocd = client if self._argocd is None else self._argocd
            if not isinstance(argocd, ArgoCD):
                argocd = await _ours(argocd, stack)
            instance = await instance_of(client, self._options.instance)
        except (KubeError, StampError) as error:
            raise StartError(str(error)) from error
        assembly = assemble(
            client,
            argocd,
            instance,
            self._options,
            now=self._now,
            kinds=await available_kinds(),
            parts=self._parts,
            reconcilers=(),
        )
        await stack.enter_async_context(supplied(assembly))
        self._assembly = assembly
        stack.callback(self._leave)

    def _leave(self) -> None:
        self._left = True

    async def reconcile(self, stack: AsyncExitStack, *reconcilers: Reconciler) -> None:
        """Have *reconcilers* at work until *stack* is left; each once only."""
        if self._left:
            raise RuntimeError("this Shared has been left, its caches are of the past: make a new one")
        if twice := self._taken.intersection(reconcilers):
            raise RuntimeError(f"on this Shared there is a {twice.pop().__name__} already")
        assembly = self.assembly
        self._taken.update(reconcilers)
        controllers = [each(assembly.world).controller() for each in reconcilers]
        assembly.controllers.extend(controllers)
        await stack.enter_async_context(reconciling(assembly, controllers))
        shard = self._options.responsibility.shard or None
        names = [controller.name for controller in controllers]
        _log.info("controllers running", controllers=names, instance=self.instance, shard=shard)

    @property
    def assembly(self) -> Assembly:
        """All parts: for metrics, and for who needs to look further. Raises RuntimeError before it is entered."""
        if self._assembly is None:
            raise RuntimeError("this Shared has no parts yet: enter it first, with async with")
        return self._assembly

    def alive(self) -> tuple[bool, str]:
        """Whether all parts work, and the text that says so; if not, a restart may help."""
        return self.assembly.alive()

    def ready(self) -> tuple[bool, str]:
        """Whether decisions are made, and rest on the present; and the text that says so."""
        return self.assembly.ready()

    @property
    def instance(self) -> str:
        """The name of this control plane in stamps."""
        return self.assembly.world.instance

    @property
    def promotions(self) -> Cache[JsonObject]:
        """The Promotions; those that have ended without their steps."""
        return self.assembly.world.promotions

    @property
    def stages(self) -> Cache[JsonObject]:
        """The Stages."""
        return self.assembly.world.stages

    @property
    def freights(self) -> Cache[JsonObject]:
        """The Freight."""
        return self.assembly.world.freights

    @property
    def applications(self) -> Cache[Application]:
        """Argo CD's Applications."""
        return self.assembly.world.argocd.applications


class Controllers(_Entered):
    """All controllers of one instance, working while this is entered.

    Takes what :class:`Shared` takes, or a Shared that is entered.
    """

    _reconcilers: ClassVar[Sequence[Reconciler]] = ALL

    def __init__(self, client: AnyClient | Shared, **settings: Unpack[Settings]) -> None:
        super().__init__()
        if isinstance(client, Shared):
            if settings:
                raise TypeError(f"{', '.join(sorted(settings))}: give that to the Shared")
            self.shared = client
        else:
            self.shared = Shared(client, **settings)
        self._own = not isinstance(client, Shared)

    async def _open(self, stack: AsyncExitStack) -> None:
        if self._own:
            await stack.enter_async_context(self.shared)
        await self.shared.reconcile(stack, *self._reconcilers)
        if self._own:
            stack.callback(self.shared.assembly.tasks.stop)


class PromotionController(Controllers):
    """Runs the Promotions that their Stages have acknowledged, and ends the operations of deleted ones."""

    _reconcilers = (PromotionReconciler, Sweeper)


class StageController(Controllers):
    """Decides which Promotion runs, judges health, and marks Freight."""

    _reconcilers = (StageReconciler,)


def _is_api_client(client: object) -> TypeGuard[ApiClient]:
    return hasattr(client, "configuration") and hasattr(client, "default_headers")


def _check_client(name: str, client: object) -> None:
    """Refuse at once what would fail at its first use, a coroutine that nobody has awaited for example."""
    if not _is_api_client(client) and not all(hasattr(client, verb) for verb in ("get", "list", "watch", "patch")):
        raise TypeError(
            f"{name} is of type {type(client).__name__}; give what `await kargo_py.connect(...)` gives, or a "
            "kubernetes_asyncio ApiClient"
        )


def _check_steps(steps: Mapping[str, Step[Any]]) -> None:
    for uses, step in steps.items():
        if isinstance(step, type):
            raise TypeError(f"steps[{uses!r}]: give an instance of {step.__name__}, not the class itself")
        if not isinstance(step, Step):
            raise TypeError(f"steps[{uses!r}]: give an instance of a class derived from kargo_py.steps.step.Step")
        if (why := malformed(uses) or faults_of(type(step))) is not None:
            raise TypeError(f"steps[{uses!r}]: {why}")


async def _ours(client: AnyClient, stack: AsyncExitStack) -> Client:
    """A client of ours; one that has to be made lives as long as *stack*."""
    if _is_api_client(client):
        return await stack.enter_async_context(await connect_like(client))
    return cast("Client", client)
