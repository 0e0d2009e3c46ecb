"""Promotion: moves one piece of Freight into one Stage by running steps."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StringConstraints

from kargo_py.api.freight import FreightOrigin, FreightReference, collection_id
from kargo_py.api.meta import Condition, KubeObject
from kargo_py.api.types import Duration, Json, JsonObject, KubernetesName, ListOf, Model, Time


class PromotionPhase(StrEnum):
    """Where a Promotion stands. *Failed*: a step decided "no"; *Errored*: something broke."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    ERRORED = "Errored"
    ABORTED = "Aborted"

    @property
    def terminal(self) -> bool:
        """True for the phases that are final."""
        return self not in {PromotionPhase.PENDING, PromotionPhase.RUNNING}


class StepStatus(StrEnum):
    """How a step stands."""

    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    SKIPPED = "Skipped"
    ABORTED = "Aborted"
    FAILED = "Failed"
    ERRORED = "Errored"

    @property
    def severity(self) -> int:
        """The worst severity among the steps decides how the Promotion ends."""
        return _SEVERITY[self]


_SEVERITY = {
    StepStatus.SUCCEEDED: 0,
    StepStatus.SKIPPED: 1,
    StepStatus.RUNNING: 2,
    StepStatus.ABORTED: 3,
    StepStatus.FAILED: 4,
    StepStatus.ERRORED: 5,
}


class ExpressionVariable(Model):
    """A variable that the expressions of steps can use."""

    name: Annotated[str, StringConstraints(min_length=1, pattern=r"^[a-zA-Z_]\w*$")]
    """Name of the variable, e.g. branch: letters, digits and underscores, no digit first."""
    value: str = ""
    """Value, e.g. main or ${{ vars.env }}-app; it may use expressions and the variables before it. Default: empty."""


class PromotionTaskReference(Model):
    """Names a task whose steps stand in for this one."""

    name: KubernetesName
    """Name of the task, e.g. deploy."""
    kind: Literal["PromotionTask", "ClusterPromotionTask"] = "PromotionTask"
    """Kind of the task: PromotionTask (the default) of this namespace, or ClusterPromotionTask."""


class PromotionStepRetry(Model):
    """How long and how often a step is tried."""

    timeout: Duration | None = None
    """How long the step may take in all, e.g. 10m. Default: the step's own, which is 5m for argocd-update."""
    error_threshold: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """How many errors in a row end the step, e.g. 3. Default: the step's own, mostly 1: the first error ends it."""


class PromotionStep(Model):
    """One step: what to run and with which configuration."""

    uses: Annotated[str, StringConstraints(min_length=1)] | None = None
    """Kind of step to run, e.g. argocd-update."""
    task: PromotionTaskReference | None = None
    """A task whose steps stand here, e.g. {name: deploy}; in a Stage's template only, in the place of uses. A step with
    a task sets its alias and vars, and no if, continueOnError, retry or config: those belong to the task's steps."""
    as_: str | None = Field(default=None, alias="as")
    """Alias by which other steps refer to this one's output, e.g. update: outputs.update.commit. No other step may have
    it. Default: step-1 for the first step, step-2 for the second, and so on."""
    if_: str | None = Field(default=None, alias="if")
    """An expression that must be true for the step to run, e.g. ${{ vars.enabled == 'yes' }}; if not, it is Skipped.
    Default: ${{ success() }}, which is that no step before it has failed."""
    continue_on_error: bool = False
    """If true, an error of this step does not fail the Promotion, and the next step runs. Default: false."""
    retry: PromotionStepRetry | None = None
    """How long and how often the step is tried, e.g. {timeout: 10m, errorThreshold: 3}."""
    vars: ListOf[ExpressionVariable] = ()
    """Variables for this step only, e.g. [{name: app, value: shop}]; they go before those of the Promotion."""
    config: Json = None
    """Configuration of the step, e.g. {apps: [{name: shop}]}; its form depends on the kind of step. Any value in it may
    use expressions, e.g. ${{ vars.branch }}."""

    def alias(self, index: int) -> str:
        """The alias without blanks around it, or the default one of the step at *index* (from 0)."""
        return (self.as_ or "").strip() or f"step-{index + 1}"


class PromotionSpec(Model):
    """What is to be promoted, where to, and how."""

    stage: KubernetesName
    """Name of the Stage the Freight goes to, e.g. prod. It is in the namespace of the Promotion."""
    freight: Annotated[str, StringConstraints(min_length=1, max_length=253)] | None = None
    """Name of the Freight to promote, e.g. 3f1a0f6c29b54f0a8c7e0f3a3d9a4b5c6d7e8f90. Exactly one of freight and origin
    is given."""
    origin: FreightOrigin | None = None
    """Promote the newest Freight available to the Stage that comes from here, e.g. {kind: Warehouse, name: shop}."""
    target: Annotated[str, StringConstraints(max_length=253)] | None = None
    """Only the commercial Kargo acts on this."""
    vars: ListOf[ExpressionVariable] = ()
    """Variables that the expressions of all steps can use, e.g. [{name: branch, value: main}]."""
    steps: Annotated[ListOf[PromotionStep], Field(min_length=1)] | None = None
    """The steps, run one after another, e.g. [{uses: argocd-update, config: {apps: [{name: shop}]}}]. They are those of
    the Stage's template, with tasks replaced by their steps."""


class HealthCheckStep(Model):
    """A health check that a successful step left for the Stage."""

    uses: Annotated[str, StringConstraints(min_length=1)]
    """Kind of health check."""
    config: Json = None
    """What to check."""


class StepExecutionMetadata(Model):
    """How a step of a Promotion went."""

    alias: str = ""
    """Alias of the step."""
    started_at: Time | None = None
    """When the step was first started."""
    finished_at: Time | None = None
    """When the step ended."""
    error_count: int = 0
    """How many errors the step has met."""
    status: str = ""
    """How the step stands: Running, Succeeded, Skipped, Aborted, Failed or Errored."""
    message: str = ""
    """Why, for people."""
    continue_on_error: bool = False
    """If true, this step's error does not fail the Promotion."""


class OperationRecord(Model):
    """An addition of kargo-py: work that a step started in another controller, for people to read."""

    kind: str = ""
    """Kind of deployer, e.g. argocd."""
    namespace: str = ""
    """Namespace of the object that was acted on."""
    name: str = ""
    """Name of the object that was acted on."""
    uid: str = ""
    """UID of the object that was acted on."""
    step: str = ""
    """Alias of the step."""
    attempt: int = 0
    """Which attempt this was, from 1; 0 for one that a real Kargo had started."""
    stamp: str = ""
    """The name of this attempt, as written into the operation and the annotation kargo-py.io/stamp; kargo:NAME for one
    that a real Kargo had started."""
    state: str = ""
    """How the attempt stands: Pending, Running, Succeeded, Failed, Superseded, WrongRevision, Lost, Refused, Stopped,
    NotStarted or Detached."""
    revision: str = ""
    """The revision that was applied; one per source, comma-separated."""
    message: str = ""
    """What the other controller said."""
    started_at: Time | None = None
    """When the other controller started, by its own clock."""
    finished_at: Time | None = None
    """When the other controller ended, by its own clock."""
    changed_fields: ListOf[str] = ()
    """JSON pointers of the fields that the start changed."""


class FreightCollection(Model):
    """Freight of one or more origins that is in a Stage together."""

    id: str = ""
    """SHA-1 of the sorted names of the Freight joined by commas."""
    items: Mapping[str, FreightReference] = {}
    """The Freight by origin, e.g. Warehouse/my-warehouse."""
    verification_history: ListOf[JsonObject] = ()
    """Verifications of this collection, newest first; at most 10. VerificationInfo reads one."""

    @property
    def names(self) -> list[str]:
        """The names of the Freight."""
        return [reference.name for reference in self.items.values()]

    def with_freight(self, reference: FreightReference) -> FreightCollection:
        """This collection with *reference* in the place of what its origin has now; not verified yet."""
        items = {**self.items, str(reference.origin): reference}
        return FreightCollection(id=collection_id([r.name for r in items.values()]), items=items)


class PromotionStatus(Model):
    """How a Promotion goes."""

    last_handled_refresh: str = ""
    """The value of the annotation kargo.akuity.io/refresh that was last acted on."""
    phase: str = ""
    """Where the Promotion stands: Pending, Running, Succeeded, Failed, Errored or Aborted."""
    message: str = ""
    """Why, for people."""
    freight: FreightReference | None = None
    """What the Freight contained."""
    freight_collection: FreightCollection | None = None
    """All the Freight that the Stage has once this Promotion succeeded."""
    health_checks: ListOf[HealthCheckStep] = ()
    """Health checks that the successful steps left for the Stage."""
    started_at: Time | None = None
    """When the Promotion began to run."""
    finished_at: Time | None = None
    """When the Promotion ended."""
    current_step: int = 0
    """Index of the step that runs, from 0."""
    step_execution_metadata: ListOf[StepExecutionMetadata] = ()
    """How each step went, in the order of the steps."""
    state: Json = None
    """Output of the steps by alias, and under kargo-py.io/operations the recorded intents."""
    admitted_at: Time | None = None
    """An addition of kargo-py: since when the spec may not change any more."""
    conditions: ListOf[Condition] = ()
    """An addition of kargo-py: Finished and Succeeded, for kubectl wait."""
    operations: ListOf[OperationRecord] = ()
    """An addition of kargo-py: what the steps started in other controllers and how it ended."""


class Promotion(KubeObject):
    """A request to move Freight into a Stage, and the record of how it went.

    The Stage and the Freight are in its namespace. To end it, set its annotation kargo.akuity.io/abort to terminate.
    """

    kind_name: ClassVar[str] = "Promotion"

    spec: PromotionSpec
    """What is to be promoted, where to, and how."""
    status: PromotionStatus = PromotionStatus()
    """How it goes."""

    @property
    def phase(self) -> PromotionPhase | str:
        """The phase; an absent one is Pending, one that we do not know stays text."""
        text = self.status.phase or PromotionPhase.PENDING
        try:
            return PromotionPhase(text)
        except ValueError:
            return text

    @property
    def finished(self) -> bool:
        """True once the phase is final."""
        return isinstance(self.phase, PromotionPhase) and self.phase.terminal

    @property
    def running(self) -> bool:
        """True in phase Running."""
        return self.phase == PromotionPhase.RUNNING

    @property
    def queue_order(self) -> tuple[str, str, str]:
        """The order in which Promotions of a Stage run; see :func:`queue_order`."""
        return queue_order(self.name, self.metadata.creation_timestamp)


def queue_order(name: str, created: str | None) -> tuple[str, str, str]:
    """Sort key of a Promotion: creation time, then the ULID in its name, then the name.

    So hand-named Promotions queue fairly beside generated ones.
    """
    parts = name.rsplit(".", 2)
    ulid = parts[1] if len(parts) == 3 and _ULID.fullmatch(parts[1]) else ""
    return (created or "", ulid, name)


_ULID = re.compile("[0-7][0-9a-hjkmnp-tv-z]{25}")


def phase_of(promotion: Mapping[str, Any]) -> str:
    """The phase of a Promotion as JSON; an absent one is Pending."""
    status = promotion.get("status")
    phase = status.get("phase") if isinstance(status, dict) else None
    return phase if isinstance(phase, str) and phase else PromotionPhase.PENDING
