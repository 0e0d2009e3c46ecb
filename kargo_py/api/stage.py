"""Stage: an environment that Freight is promoted to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from kargo_py.api.freight import FreightOrigin, FreightReference
from kargo_py.api.meta import Condition, KubeObject
from kargo_py.api.promotion import (
    ExpressionVariable,
    FreightCollection,
    PromotionStatus,
    PromotionStep,
)
from kargo_py.api.types import Json, JsonObject, KubernetesName, ListOf, Model, PlainDuration, Time

MAX_HISTORY = 10
"""How many Freight collections, and verifications of one collection, a Stage remembers."""


class HealthState(StrEnum):
    """How a Stage is, from best to worst."""

    HEALTHY = "Healthy"
    NOT_APPLICABLE = "NotApplicable"
    PROGRESSING = "Progressing"
    UNKNOWN = "Unknown"
    UNHEALTHY = "Unhealthy"

    @property
    def badness(self) -> int:
        """0 for the best."""
        return list(HealthState).index(self)


def worst(states: Iterable[HealthState]) -> HealthState:
    """The worst of *states*; nothing to judge is Healthy."""
    return max(states, key=lambda state: state.badness, default=HealthState.HEALTHY)


class VerificationPhase(StrEnum):
    """How a verification stands."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCESSFUL = "Successful"
    FAILED = "Failed"
    ERROR = "Error"
    ABORTED = "Aborted"
    INCONCLUSIVE = "Inconclusive"

    @property
    def terminal(self) -> bool:
        """True for the phases that are final."""
        return self not in {VerificationPhase.PENDING, VerificationPhase.RUNNING}


class AutoPromotionOptions(Model):
    """How Freight is chosen when promotion is automatic."""

    selection_policy: Literal["", "NewestFreight", "MatchUpstream"] = "NewestFreight"
    """NewestFreight (the default) takes the newest available; MatchUpstream what the upstream Stage has now, and needs
    exactly one in stages and no direct."""


class FreightSources(Model):
    """From where a Stage takes Freight of an origin."""

    direct: bool = False
    """Straight from the Warehouse, through no other Stage. Default: false."""
    stages: ListOf[str] = ()
    """From these Stages, once verified there, e.g. [test]."""
    required_soak_time: PlainDuration | None = None
    """How long Freight must have stayed in an upstream Stage, e.g. 1h30m. Default: not at all."""
    availability_strategy: Literal["", "All", "OneOf"] = ""
    """Whether Freight must be verified in all of the stages (All) or in one of them (OneOf, the default)."""
    auto_promotion_options: AutoPromotionOptions | None = None
    """How Freight is chosen when promotion is automatic, e.g. {selectionPolicy: NewestFreight}."""


class FreightRequest(Model):
    """A Stage's request for Freight of one origin."""

    origin: FreightOrigin
    """Where the Freight comes from, e.g. {kind: Warehouse, name: shop}. No other entry has the same."""
    sources: FreightSources
    """Through what it may come: {direct: true}, or {stages: [test]} once it is verified there."""


class PromotionTemplateSpec(Model):
    """The steps of the Promotions to a Stage."""

    vars: ListOf[ExpressionVariable] = ()
    """Variables that the expressions of all steps can use, e.g. [{name: branch, value: main}]."""
    steps: Annotated[ListOf[PromotionStep], Field(min_length=1)] = ()
    """The steps, run one after another, e.g. [{uses: argocd-update, config: {apps: [{name: shop}]}}]. Each has either
    uses or task."""


class PromotionTemplate(Model):
    """How Promotions to a Stage are made."""

    spec: PromotionTemplateSpec
    """What every Promotion gets."""


class AnalysisTemplateReference(Model):
    """Names a template of an Argo Rollouts AnalysisRun."""

    name: KubernetesName
    """Name of the template, e.g. smoke-test."""
    kind: Literal["AnalysisTemplate", "ClusterAnalysisTemplate"] = "AnalysisTemplate"
    """Kind of the template: AnalysisTemplate (the default) of this namespace, or ClusterAnalysisTemplate."""


class AnalysisRunMetadata(Model):
    """What else an AnalysisRun is to carry."""

    labels: dict[str, str] = {}
    """Labels to add, e.g. {team: shop}."""
    annotations: dict[str, str] = {}
    """Annotations to add, e.g. {example.com/run: nightly}."""


class AnalysisRunArgument(Model):
    """An argument of an AnalysisRun."""

    name: str
    """Name of the argument, e.g. url."""
    value: str = ""
    """Value, e.g. https://shop.example.com; it may use expressions. Default: empty."""


class Verification(Model):
    """How Freight is verified once it is in the Stage."""

    analysis_templates: ListOf[AnalysisTemplateReference] = ()
    """Templates that are merged into one AnalysisRun, e.g. [{name: smoke-test}]."""
    analysis_run_metadata: AnalysisRunMetadata | None = None
    """Labels and annotations of the AnalysisRun, e.g. {labels: {team: shop}}."""
    args: ListOf[AnalysisRunArgument] = ()
    """Arguments of the AnalysisRun, e.g. [{name: url, value: https://shop.example.com}]."""


class StageSpec(Model):
    """What a Stage takes and how Freight gets there."""

    shard: str = ""
    """Name of the shard whose controller is responsible, e.g. eu. Default: the controller of no shard."""
    vars: ListOf[ExpressionVariable] = ()
    """Variables that the expressions of all Promotions to this Stage can use, e.g. [{name: env, value: prod}]."""
    requested_freight: Annotated[ListOf[FreightRequest], Field(min_length=1)]
    """The Freight this Stage takes: an entry for each origin, e.g.
    [{origin: {kind: Warehouse, name: shop}, sources: {direct: true}}]."""
    promotion_template: PromotionTemplate | None = None
    """What the Promotions to this Stage do. A Stage without steps only controls the flow of Freight: what reaches it is
    available to the Stages behind it."""
    verification: Verification | None = None
    """How Freight is verified once it is here. Default: it is verified as soon as the Stage is healthy."""
    targets: Json = None
    """Only the commercial Kargo acts on this."""


class Health(Model):
    """How what was deployed to a Stage is."""

    status: str = ""
    """Healthy, NotApplicable, Progressing, Unknown or Unhealthy."""
    issues: ListOf[str] = ()
    """What is wrong, for people."""
    config: Json = None
    """The checks that were made."""
    output: Json = None
    """What the checks found."""


class PromotionReference(Model):
    """A Promotion, as a Stage remembers it."""

    name: str = ""
    """Name of the Promotion."""
    freight: FreightReference | None = None
    """What the Freight contained."""
    status: PromotionStatus | None = None
    """How the Promotion went."""
    finished_at: Time | None = None
    """When it ended."""


class AnalysisRunReference(Model):
    """An AnalysisRun and how it was last seen."""

    namespace: str = ""
    """Namespace of the AnalysisRun."""
    name: str = ""
    """Name of the AnalysisRun."""
    phase: str = ""
    """Phase it was last seen in."""


class VerificationInfo(Model):
    """One verification of a collection of Freight."""

    id: str = ""
    """Identifies this verification."""
    actor: str = ""
    """Who asked for it."""
    start_time: Time | None = None
    """When it began."""
    phase: str = ""
    """Pending, Running, Successful, Failed, Error, Aborted or Inconclusive."""
    message: str = ""
    """Why, for people."""
    analysis_run: AnalysisRunReference | None = None
    """The AnalysisRun that did it."""
    finish_time: Time | None = None
    """When it ended."""


class AutoPromotionHold(Model):
    """That somebody chose other Freight than automatic promotion would have, which keeps it from changing that."""

    freight_name: str = ""
    """Name of the Freight that was chosen."""
    origin: FreightOrigin | None = None
    """Where that Freight comes from."""
    promotion_name: str = ""
    """Name of the Promotion that brought it."""
    actor: str = ""
    """Who created that Promotion."""
    created_at: Time | None = None
    """Since when this holds."""


class StageStatus(Model):
    """How a Stage is and what is in it."""

    conditions: ListOf[Condition] = ()
    """Conditions: Ready, Reconciling, Healthy, Promoting, Verified."""
    last_handled_refresh: str = ""
    """The value of the annotation kargo.akuity.io/refresh that was last acted on."""
    freight_history: ListOf[FreightCollection] = ()
    """What was promoted here, newest first; at most 10."""
    freight_summary: str = ""
    """What is here now, in a few words."""
    health: Health | None = None
    """How what was deployed is."""
    observed_generation: int = 0
    """The metadata.generation that was last acted on."""
    current_promotion: PromotionReference | None = None
    """The Promotion that runs now."""
    last_promotion: PromotionReference | None = None
    """The Promotion that ended last."""
    auto_promotion_enabled: bool = False
    """Whether Freight is promoted here automatically."""
    auto_promotion_holds: Mapping[str, AutoPromotionHold] = {}
    """Origins (e.g. Warehouse/my-warehouse) whose automatic promotion is held."""
    effective_auto_promotion_holds: Mapping[str, AutoPromotionHold] = {}
    """The holds that matter now."""
    current_promotion_request: Json = None
    """Only the commercial Kargo writes this."""
    last_promotion_request: Json = None
    """Only the commercial Kargo writes this."""
    promotion_window_status: Json = None
    """Only the commercial Kargo writes this."""
    metadata: JsonObject = {}
    """Free JSON set by promotion steps."""


class Stage(KubeObject):
    """An environment that Freight is promoted to, from a Warehouse or from other Stages."""

    kind_name: ClassVar[str] = "Stage"

    spec: StageSpec
    """What the Stage takes and how Freight gets there."""
    status: StageStatus = StageStatus()
    """How the Stage is and what is in it."""

    @property
    def is_control_flow(self) -> bool:
        """True for a Stage without steps: it passes Freight on and has nothing deployed."""
        template = self.spec.promotion_template
        return template is None or not template.spec.steps

    @property
    def current_freight(self) -> FreightCollection | None:
        """What is in the Stage now; None before the first successful Promotion."""
        return self.status.freight_history[0] if self.status.freight_history else None

    @property
    def origins(self) -> Mapping[str, FreightRequest]:
        """The requests by origin ("Warehouse/<name>")."""
        return {str(request.origin): request for request in self.spec.requested_freight}
