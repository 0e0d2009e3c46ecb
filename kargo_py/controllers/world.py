"""What the controllers share: clients, caches, deployers, the recorder of Events, and who we are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

import structlog
from pydantic import ValidationError

from kargo_py.api.freight import Freight
from kargo_py.api.meta import GROUP, VERSION, KubeObject
from kargo_py.api.names import LABEL_ALIAS, LABEL_SHARD
from kargo_py.api.promotion import Promotion, PromotionPhase, phase_of
from kargo_py.api.promotion_task import ClusterPromotionTask, PromotionTask
from kargo_py.api.stage import Stage
from kargo_py.api.stamp import AWAITED_KEY, STATE_KEY
from kargo_py.api.types import JsonObject
from kargo_py.argocd.application import APPLICATIONS, Application
from kargo_py.argocd.operation import UNREADABLE
from kargo_py.argocd.selectors import read_selector
from kargo_py.argocd.targets import Choice
from kargo_py.controllers.control_flow import origins_passed_on
from kargo_py.controllers.promotion_stats import PromotionStats
from kargo_py.controllers.templates import TaskHome, Templates
from kargo_py.deployers.argocd import ArgoCD
from kargo_py.deployers.base import Awaited, HealthChecker, TargetState, read_awaited
from kargo_py.engine.aside import Aside
from kargo_py.engine.execution import Executor
from kargo_py.kube.cache import Cache
from kargo_py.kube.client import Client
from kargo_py.kube.clock import utc_now
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.errors import Conflict, OutcomeUnknown
from kargo_py.kube.events import Event, EventRecorder, Regarding, event_name
from kargo_py.kube.resources import Key, Resource
from kargo_py.kube.writes import contains, guarded_patch, merge_diff, uninterrupted
from kargo_py.messages import Shown, message
from kargo_py.steps.argocd_wait import USES as ARGOCD_WAIT
from kargo_py.steps.base import Watch
from kargo_py.steps.objects import FREIGHTS as FREIGHTS, STAGES as STAGES  # noqa: PLC0414 - given on with the others
from kargo_py.steps.step import Step

OBJECT_UNREADABLE = message(
    "{kind} cannot be read: {field}: {why}; correct that field",
    do="The object is left alone until the field is corrected; nothing else suffers. A Stage whose current Promotion "
    "cannot be read starts no other.",
    shown=Shown.EVENT | Shown.LOG,
)
REASON_UNREADABLE = message(
    "Unreadable",
    do="Warning on a Promotion, Stage, Freight or Application of which a field cannot be read; the message names it.",
    shown=Shown.EVENT,
)
NOT_READ = message(
    "object cannot be read",
    do="Says what the Event `Unreadable` on that object says, in `why`. Correct the field.",
    shown=Shown.LOG,
)

PROMOTIONS = Resource(GROUP, VERSION, "promotions", "Promotion")
TASKS = Resource(GROUP, VERSION, "promotiontasks", "PromotionTask")
CLUSTER_TASKS = Resource(GROUP, VERSION, "clusterpromotiontasks", "ClusterPromotionTask", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)

COMPONENT = "kargo-py"

M = TypeVar("M", bound=KubeObject)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Responsibility:
    """Which objects this controller acts on: those of its shard, and, as the default controller, those of none."""

    shard: str = ""
    default: bool = True

    def covers(self, labels: Mapping[str, str], spec_shard: str = "") -> bool:
        """True if an object with these labels (and, for a Stage, ``spec.shard``) is ours."""
        shard = labels.get(LABEL_SHARD) or spec_shard
        return shard == self.shard if shard else self.default


class Models(Generic[M]):
    """Turns cached JSON into models, each version once; what cannot be read is told in an Event and counted."""

    def __init__(self, model: type[M], resource: Resource, recorder: EventRecorder) -> None:
        self._model = model
        self._resource = resource
        self._recorder = recorder
        self._parsed: dict[Key, tuple[JsonObject, M | None]] = {}
        self.unreadable = 0

    def forget(self, key: Key) -> None:
        """The object is gone."""
        self._parsed.pop(key, None)

    def read(self, raw: JsonObject | None) -> M | None:
        """The model of *raw*; None if there is none or it cannot be read."""
        if raw is None:
            return None
        key = JSON.meta(raw).key
        known = self._parsed.get(key)
        if known is not None and known[0] is raw:
            return known[1]
        try:
            model: M | None = self._model.model_validate(raw)
        except ValidationError as error:
            model = None
            self._tell(raw, key, error)
        self._parsed[key] = (raw, model)
        return model

    def _tell(self, raw: JsonObject, key: Key, error: ValidationError) -> None:
        self.unreadable += 1
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        message = OBJECT_UNREADABLE(kind=self._resource.kind, field=where, why=first["msg"])
        tell_unreadable(self._recorder, Regarding(self._resource, key, JSON.meta(raw).uid), message)


def tell_unreadable(recorder: EventRecorder, regarding: Regarding, message: str) -> None:
    """Log that an object cannot be read, and put an Event on it: one for each of its faults."""
    _log.warning(NOT_READ(), kind=regarding.resource.kind, object=str(regarding.key), why=message)
    reason = REASON_UNREADABLE()
    name = event_name(regarding.key.name, reason, regarding.uid, message)
    recorder.record(Event(regarding, name, reason, message, type="Warning"))


def project_promotion(raw: JsonObject) -> JsonObject:
    """What is kept of a Promotion: of a finished one neither its steps nor what they left behind."""
    meta = {name: value for name, value in raw.get("metadata", {}).items() if name != "managedFields"}
    kept = {**raw, "metadata": meta}
    if phase_of(raw) in _TERMINAL:
        kept["spec"] = {name: value for name, value in raw["spec"].items() if name not in {"steps", "vars"}}
        kept["status"] = {n: v for n, v in raw["status"].items() if n not in {"state", "operations"}}
    return kept


_UNDER_WAY = frozenset({None, *(state.value for state in TargetState if not state.final)})
_TERMINAL = frozenset(phase.value for phase in PromotionPhase if phase.terminal)


def drop_managed_fields(raw: JsonObject) -> JsonObject:
    """*raw* without ``metadata.managedFields``, which nothing reads and is often the larger half."""
    meta = {name: value for name, value in raw.get("metadata", {}).items() if name != "managedFields"}
    return {**raw, "metadata": meta}


def stage_of(promotion: JsonObject) -> Iterable[Key]:
    """Index: the Stage a Promotion goes to; none if it cannot be read."""
    spec = promotion.get("spec")
    stage = spec.get("stage") if isinstance(spec, dict) else None
    return (Key(promotion["metadata"]["namespace"], stage),) if isinstance(stage, str) else ()


def targets_of(promotion: JsonObject) -> Iterable[Key]:
    """Index: the objects that a running Promotion waits for, as recorded in its status."""
    places = [(record.get("namespace"), record.get("name")) for record in _recorded(promotion)]
    return {Key(space, name) for space, name in places if isinstance(space, str) and isinstance(name, str)}


def awaited_of(promotion: JsonObject) -> Iterable[Key]:
    """Index: what a running Promotion waits for until it is made; with "" for a name where labels choose it."""
    return {Key(each.namespace, each.name) for each in awaited_in(promotion)}


def awaited_in(promotion: JsonObject) -> Sequence[Awaited]:
    """What a running Promotion is recorded to wait for until it is made."""
    return read_awaited(_kept(promotion, AWAITED_KEY))


def awaits(awaited: Awaited, app: Application) -> bool:
    """Whether *app* is what was waited for."""
    if awaited.selector is None:
        return app.key == Key(awaited.namespace, awaited.name)
    try:
        choice = Choice(awaited.namespace, selector=read_selector(awaited.selector))
    except ValueError:
        # Somebody edited it. The Promotion finds out itself what it waits for, at the latest when it looks again.
        return True
    return choice.fits(app)


def waited_of(promotion: JsonObject) -> Iterable[Key]:
    """Index: the Applications that a running Promotion only waits for, as long as it does."""
    return {
        Key(space, name)
        for record in _recorded(promotion)
        if record.get("kind") == ARGOCD_WAIT and record.get("state") in _UNDER_WAY
        for space, name in [(record.get("namespace"), record.get("name"))]
        if isinstance(space, str) and isinstance(name, str)
    }


def attempts_of(promotion: JsonObject | None) -> set[tuple[Key, str]]:
    """The targets of a running Promotion, each with the stamp whose ending is waited for there."""
    found = set()
    for record in _recorded(promotion) if promotion is not None else ():
        match record:
            case {"namespace": str() as space, "name": str() as name, "stamp": str() as stamp}:
                found.add((Key(space, name), stamp))
    return found


def _recorded(promotion: JsonObject) -> list[JsonObject]:
    """The records of a running Promotion, as far as they can be read."""
    records = _kept(promotion, STATE_KEY)
    return [record for record in records if isinstance(record, dict)] if isinstance(records, list) else []


def _kept(promotion: JsonObject, key: str) -> Any:
    """What is kept under *key* in the state of a Promotion, if it runs."""
    if phase_of(promotion) != PromotionPhase.RUNNING:
        return None
    state = promotion["status"].get("state")
    return state.get(key) if isinstance(state, dict) else None


def freight_stages(freight: JsonObject) -> Iterable[Key]:
    """Index: the Stages that Freight says it is in."""
    current = (freight.get("status") or {}).get("currentlyIn") or {}
    return [Key(freight["metadata"]["namespace"], stage) for stage in current]


def freight_mentions(freight: JsonObject) -> Iterable[Key]:
    """Index: the Stages that Freight says anything about."""
    status = freight.get("status") or {}
    said = (status.get(name) or {} for name in ("currentlyIn", "verifiedIn", "approvedFor"))
    return {Key(freight["metadata"]["namespace"], stage) for stages in said for stage in stages}


def freight_origin(freight: JsonObject) -> Iterable[tuple[str, str]]:
    """Index: namespace and origin of a piece of Freight."""
    origin = freight.get("origin") or {}
    return [(freight["metadata"]["namespace"], f"{origin.get('kind')}/{origin.get('name')}")]


def freight_alias(freight: JsonObject) -> Iterable[Key]:
    """Index: the aliases of a piece of Freight, of its field and its label."""
    metadata = freight["metadata"]
    aliases = {freight.get("alias"), (metadata.get("labels") or {}).get(LABEL_ALIAS)}
    return [Key(metadata["namespace"], alias) for alias in aliases if alias]


def freight_here(stage: JsonObject) -> Iterable[Key]:
    """Index: the Freight that is in a Stage now."""
    history = (stage.get("status") or {}).get("freightHistory") or ()
    items = history[0].get("items") or {} if history else {}
    return [Key(stage["metadata"]["namespace"], name) for item in items.values() if (name := item.get("name"))]


def tasks_of(stage: JsonObject) -> Iterable[tuple[str, Key]]:
    """Index: the tasks that a Stage's template names, each with its kind."""
    steps = (((stage.get("spec") or {}).get("promotionTemplate") or {}).get("spec") or {}).get("steps") or ()
    named = [step["task"] for step in steps if isinstance(step, dict) and isinstance(step.get("task"), dict)]
    space = stage["metadata"]["namespace"]
    return {
        (CLUSTER_TASKS.kind, Key("", task["name"]))
        if task.get("kind") == CLUSTER_TASKS.kind
        else (TASKS.kind, Key(space, task["name"]))
        for task in named
    }


def _checked_keys(checks: Iterable[Any], checker: HealthChecker, uses: str) -> set[Key]:
    configs = (check.get("config") for check in checks if isinstance(check, dict) and check.get("uses") == uses)
    return {key for config in configs if isinstance(config, dict) for key in checker.checked(config)}


def checked_by(checker: HealthChecker, uses: str) -> Callable[[JsonObject], Iterable[Key]]:
    """Index: the objects that a Stage's health checks of kind *uses* are about."""

    def keys(stage: JsonObject) -> Iterable[Key]:
        status = stage.get("status") or {}
        last = (status.get("lastPromotion") or {}).get("status") or {}
        kept = ((status.get("health") or {}).get("config") or {}).get("checks")
        return _checked_keys([*(last.get("healthChecks") or ()), *(kept or ())], checker, uses)

    return keys


def left_behind(checker: HealthChecker, uses: str) -> Callable[[JsonObject], Iterable[Key]]:
    """Index: the objects that the health checks of a successful Promotion are about.

    The Stage does not hold these checks yet while the end of the Promotion waits for the verdict on them.
    """

    def keys(promotion: JsonObject) -> Iterable[Key]:
        if phase_of(promotion) != PromotionPhase.SUCCEEDED:
            return ()
        return _checked_keys(promotion["status"].get("healthChecks") or (), checker, uses)

    return keys


@dataclass(slots=True)
class World:
    """Everything a controller needs.

    ``client`` and ``recorder`` are for Kargo's resources; Argo CD may live on another API server, and
    ``argocd_recorder`` is for Events there (None: it is the same). ``abort_patience`` is how long what an abort or a
    time-out stops is waited for. ``watches`` are those of steps other than Argo CD's. ``created_events``: tell that
    Promotions were created; ``operation_events``: tell what becomes of the operations they start. Expressions read
    shared resources in ``shared_resources_namespace``, and have ``ui_base_url`` as ``ctx.uiBaseUrl``; "" for none.
    ``executor`` makes the calls of steps, ``aside`` what takes long to calculate.
    """

    instance: str
    client: Client
    argocd: ArgoCD
    recorder: EventRecorder
    steps: Mapping[str, Step[Any]]
    checkers: Mapping[str, HealthChecker]
    responsibility: Responsibility = Responsibility()
    now: Callable[[], datetime] = utc_now
    argocd_recorder: EventRecorder | None = None
    abort_patience: timedelta = timedelta(minutes=10)
    watches: Sequence[Watch[Any]] = ()
    created_events: bool = False
    operation_events: bool = False
    shared_resources_namespace: str = ""
    ui_base_url: str = ""
    executor: Executor = field(kw_only=True)
    aside: Aside = field(init=False)
    stats: PromotionStats = field(init=False)
    unreadable_applications: int = field(default=0, init=False)
    events_not_told: int = field(default=0, init=False)
    promotions: Cache[JsonObject] = field(init=False)
    stages: Cache[JsonObject] = field(init=False)
    freights: Cache[JsonObject] = field(init=False)
    tasks: Cache[JsonObject] = field(init=False)
    cluster_tasks: Cache[JsonObject] = field(init=False)
    promotion_models: Models[Promotion] = field(init=False)
    stage_models: Models[Stage] = field(init=False)
    freight_models: Models[Freight] = field(init=False)
    task_models: Models[PromotionTask] = field(init=False)
    cluster_task_models: Models[ClusterPromotionTask] = field(init=False)
    templates: Templates = field(init=False)

    def __post_init__(self) -> None:
        indexes = {"stage": stage_of, "target": targets_of, "waited": waited_of, "awaited": awaited_of}
        left = {f"checked:{uses}": left_behind(checker, uses) for uses, checker in self.checkers.items()}
        self.promotions = Cache(
            self.client, PROMOTIONS, codec=JSON, projection=project_promotion, indexes={**indexes, **left}
        )
        checked = {f"checked:{uses}": checked_by(checker, uses) for uses, checker in self.checkers.items()}
        self.stages = Cache(
            self.client,
            STAGES,
            codec=JSON,
            projection=drop_managed_fields,
            indexes={"freight": freight_here, "passing": origins_passed_on, "tasks": tasks_of, **checked},
        )
        self.freights = Cache(
            self.client,
            FREIGHTS,
            codec=JSON,
            projection=drop_managed_fields,
            indexes={
                "stage": freight_stages,
                "mentions": freight_mentions,
                "origin": freight_origin,
                "alias": freight_alias,
            },
        )
        self.tasks = Cache(self.client, TASKS, codec=JSON, projection=drop_managed_fields)
        self.cluster_tasks = Cache(self.client, CLUSTER_TASKS, codec=JSON, projection=drop_managed_fields)
        self.promotion_models = Models(Promotion, PROMOTIONS, self.recorder)
        self.stage_models = Models(Stage, STAGES, self.recorder)
        self.freight_models = Models(Freight, FREIGHTS, self.recorder)
        self.task_models = Models(PromotionTask, TASKS, self.recorder)
        self.cluster_task_models = Models(ClusterPromotionTask, CLUSTER_TASKS, self.recorder)
        self.aside = Aside()
        homes = {
            TASKS.kind: TaskHome(self.tasks, self.task_models.read),
            CLUSTER_TASKS.kind: TaskHome(self.cluster_tasks, self.cluster_task_models.read, namespaced=False),
        }
        self.templates = Templates(self.stages, homes, self.steps, self.aside)
        self.stats = PromotionStats(_loop_time)
        self.promotions.subscribe(self.stats.seen)
        self.promotions.subscribe(self._latch)
        self.argocd.applications.subscribe(self._read_application)
        _follow(self.promotions, self.promotion_models)
        _follow(self.stages, self.stage_models)
        _follow(self.freights, self.freight_models)
        _follow(self.tasks, self.task_models)
        _follow(self.cluster_tasks, self.cluster_task_models)

    @property
    def caches(self) -> Sequence[Cache[Any]]:
        """All that the controllers rest on, those of other kinds of steps apart."""
        return (self.stages, self.promotions, self.freights, *self.task_caches, self.argocd.applications)

    @property
    def task_caches(self) -> Sequence[Cache[JsonObject]]:
        """Those of kinds that a cluster may do without."""
        return (self.tasks, self.cluster_tasks)

    def _latch(self, old: JsonObject | None, new: JsonObject | None) -> None:
        """Endings are kept from the moment an intent is on record until the Promotion has ended or is gone."""
        before, after = attempts_of(old), attempts_of(new)
        for target, stamp in after - before:
            self.argocd.attempt(target, stamp)
        for target, stamp in before - after:
            self.argocd.forget(target, stamp)

    def _read_application(self, old: Application | None, new: Application | None) -> None:
        """An Application that cannot be read is told as it comes, each fault once."""
        if new is None or not new.unreadable or (old is not None and old.unreadable == new.unreadable):
            return
        self.unreadable_applications += 1
        regarding = Regarding(APPLICATIONS, new.key, new.metadata.uid)
        message = UNREADABLE(app=new, why=new.unreadable)
        tell_unreadable(self.argocd_recorder or self.recorder, regarding, message)

    def acts_on(self, stage: Key) -> bool:
        """Whether the Stage of that name is ours; one that is not there or cannot be read is no one else's."""
        model = self.stage_models.read(self.stages.get(stage))
        return self.responsibility.covers(model.metadata.labels, model.spec.shard) if model is not None else True

    @property
    def unreadable(self) -> Mapping[str, int]:
        """How many versions of objects could not be read, by kind."""
        return {
            PROMOTIONS.kind: self.promotion_models.unreadable,
            STAGES.kind: self.stage_models.unreadable,
            FREIGHTS.kind: self.freight_models.unreadable,
            TASKS.kind: self.task_models.unreadable,
            CLUSTER_TASKS.kind: self.cluster_task_models.unreadable,
            APPLICATIONS.kind: self.unreadable_applications,
        }

    async def sweep_work_dirs(self) -> None:
        """Remove the working directories of Promotions that have ended or are gone; the cache must be filled."""
        under_way = {JSON.meta(each).uid for each in self.promotions.values() if phase_of(each) not in _TERMINAL}
        await self.executor.work_dirs.sweep(under_way.__contains__)

    def is_ours(self, stage: JsonObject) -> bool:
        """Whether this controller acts on *stage*, JSON that may be of any form."""
        spec = stage.get("spec")
        shard = spec.get("shard") if isinstance(spec, dict) else ""
        labels = stage["metadata"].get("labels") or {}
        return self.responsibility.covers(labels, shard if isinstance(shard, str) else "")

    async def write_status(self, cache: Cache[JsonObject], old: JsonObject, status: JsonObject) -> None:
        """Make the status of *old* that of *status*, by one write guarded by the version of *old*.

        Raises Conflict or OutcomeUnknown after marking the object dirty; what it says then is read live.
        """
        patch = merge_diff(old.get("status") or {}, status)
        if patch:
            meta = {"resourceVersion": JSON.meta(old).resource_version}
            await self._write_guarded(cache, old, {"metadata": meta, "status": patch}, subresource="status")

    async def write_metadata(self, cache: Cache[JsonObject], old: JsonObject, patch: JsonObject) -> None:
        """Merge *patch* into the metadata of *old*, guarded and failing as :meth:`write_status`."""
        meta = {"resourceVersion": JSON.meta(old).resource_version, **patch}
        await self._write_guarded(cache, old, {"metadata": meta})

    async def write_object(self, cache: Cache[JsonObject], old: JsonObject, patch: JsonObject) -> None:
        """Merge *patch* into metadata and spec of *old*, guarded and failing as :meth:`write_status`."""
        meta = {**patch.get("metadata", {}), "resourceVersion": JSON.meta(old).resource_version}
        await self._write_guarded(cache, old, {**patch, "metadata": meta})

    async def _write_guarded(
        self, cache: Cache[JsonObject], old: JsonObject, body: JsonObject, *, subresource: str = ""
    ) -> None:
        key = JSON.meta(old).key
        try:
            answer = await uninterrupted(
                guarded_patch(
                    self.client,
                    cache.resource,
                    key,
                    encode(body),
                    codec=JSON,
                    landed=lambda found: contains(found, body),
                    subresource=subresource,
                )
            )
        except (Conflict, OutcomeUnknown):
            cache.mark_dirty(key)
            raise
        cache.observe(answer)

    async def merge_status(self, cache: Cache[JsonObject], key: Key, patch: JsonObject) -> None:
        """Merge *patch* into the status of *key* whatever its version.

        Only for fields that nobody else writes: sent late or twice it does no harm, and what it should say is derived
        again at the next look.
        """
        body = encode({"status": patch})
        answer = await uninterrupted(self.client.patch(cache.resource, key, body, codec=JSON, subresource="status"))
        cache.observe(answer)


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


def _follow(cache: Cache[JsonObject], models: Models[Any]) -> None:
    """Read each object as it comes, so that one that cannot be read is told at once; what has ended is history."""

    def handler(old: JsonObject | None, new: JsonObject | None) -> None:
        if new is None and old is not None:
            models.forget(JSON.meta(old).key)
        elif new is not None and phase_of(new) not in _TERMINAL:
            models.read(new)

    cache.subscribe(handler)
