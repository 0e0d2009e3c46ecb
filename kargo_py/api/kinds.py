"""The kinds of the group, and what their models do not say about their CustomResourceDefinitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kargo_py.api import rules
from kargo_py.api.cluster_config import ClusterConfig
from kargo_py.api.commercial import PromotionRequest, Target
from kargo_py.api.freight import Freight
from kargo_py.api.meta import KubeObject
from kargo_py.api.project import Project
from kargo_py.api.project_config import ProjectConfig
from kargo_py.api.promotion import Promotion, PromotionPhase
from kargo_py.api.promotion_task import ClusterPromotionTask, PromotionTask
from kargo_py.api.rules import Rule
from kargo_py.api.stage import Stage
from kargo_py.api.types import JsonObject
from kargo_py.api.warehouse import Warehouse


@dataclass(frozen=True, slots=True)
class Column:
    """A column of ``kubectl get``; ``wide`` if only ``-o wide`` shows it, ``ours`` if Kargo does not have it."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False
    ours: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """What the model of a kind does not say about its CRD.

    In ``additions`` and ``ours`` stand more keywords of the schema by the path of the field, which is written as in a
    Rule. What stands in ``ours`` Kargo does not have.
    """

    model: type[KubeObject]
    plural: str
    columns: Sequence[Column]
    short_names: Sequence[str] = ()
    cluster_scoped: bool = False
    status: bool = True
    """Whether the status has an address of its own."""
    rules: Sequence[Rule] = ()
    additions: Mapping[str, JsonObject] = field(default_factory=dict)
    ours: Mapping[str, JsonObject] = field(default_factory=dict)


_AGE = Column("Age", ".metadata.creationTimestamp", "date")
_SHARD = Column("Shard", r".metadata.labels.kargo\.akuity\.io/shard")
_READY = Column("Ready", '.status.conditions[?(@.type=="Ready")].status')
_STATUS = Column("Status", '.status.conditions[?(@.type=="Ready")].message')

_TEMPLATE_REASON = '.status.conditions[?(@.type=="PromotionTemplateValid")].reason'

_CONDITIONS: Mapping[str, JsonObject] = {
    "status.conditions": {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
}

# An API server takes a rule that compares each item of a list with each other only where the list and the texts in it
# have bounds, and not too wide ones. Nobody is to meet them.
_STEPS: JsonObject = {"maxItems": 256}
_ALIAS: JsonObject = {"maxLength": 253}
_RECEIVERS: Mapping[str, JsonObject] = {"spec.webhookReceivers": {"maxItems": 256}}

KINDS: Sequence[Kind] = (
    Kind(
        Promotion,
        "promotions",
        (
            _SHARD,
            Column("Stage", ".spec.stage"),
            Column("Freight", ".spec.freight"),
            Column("Phase", ".status.phase"),
            Column("Started", ".status.startedAt", "date", ours=True),
            Column("Finished", ".status.finishedAt", "date", wide=True, ours=True),
            _AGE,
            Column("Message", ".status.message", wide=True, ours=True),
        ),
        ("promo", "promos"),
        rules=rules.PROMOTION,
        # A Promotion just created shows Pending, and that costs no write. The inner default applies only to a status
        # that is there, hence the outer one.
        ours={"status": {"default": {}}, "status.phase": {"default": PromotionPhase.PENDING.value}, **_CONDITIONS},
    ),
    Kind(
        Stage,
        "stages",
        (
            _SHARD,
            Column("Current Freight", ".status.freightSummary"),
            Column("Health", ".status.health.status"),
            _READY,
            Column("Promoting", ".status.currentPromotion.freight.name", ours=True),
            _STATUS,
            _AGE,
            Column("Promotion", ".status.currentPromotion.name", wide=True, ours=True),
            Column("Last Promotion", ".status.lastPromotion.name", wide=True, ours=True),
            Column("Last Phase", ".status.lastPromotion.status.phase", wide=True, ours=True),
            Column("Template", _TEMPLATE_REASON, wide=True, ours=True),
        ),
        rules=rules.STAGE,
        additions=_CONDITIONS,
        ours={
            "spec.requestedFreight": {"maxItems": 256},
            "spec.promotionTemplate.spec.steps": _STEPS,
            # CEL does not see a field without a type.
            "spec.promotionTemplate.spec.steps[]": {"not": {"required": ["task", "config"]}},
            "spec.promotionTemplate.spec.steps[].as": _ALIAS,
        },
    ),
    Kind(
        Freight,
        "freights",
        (
            Column("Alias", r".metadata.labels.kargo\.akuity\.io/alias"),
            Column("Origin (Kind)", ".origin.kind"),
            Column("Origin (Name)", ".origin.name"),
            _AGE,
            Column("Commit", ".commits[0].id", wide=True, ours=True),
            Column("Image Tag", ".images[0].tag", wide=True, ours=True),
            Column("Chart Version", ".charts[0].version", wide=True, ours=True),
        ),
        rules=rules.FREIGHT,
    ),
    Kind(
        Warehouse,
        "warehouses",
        (
            _SHARD,
            Column("Ready", _READY.path, ours=True),
            Column("Status", _STATUS.path, ours=True),
            _AGE,
            Column("Discovered", ".status.discoveredArtifacts.discoveredAt", "date", wide=True, ours=True),
            Column("Last Freight", ".status.lastFreightID", wide=True, ours=True),
        ),
        rules=rules.WAREHOUSE,
        additions=_CONDITIONS,
        ours={"spec.subscriptions": {"maxItems": 128}},
    ),
    Kind(Project, "projects", (_READY, _STATUS, _AGE), cluster_scoped=True, additions=_CONDITIONS),
    Kind(
        ProjectConfig,
        "projectconfigs",
        (_READY, _STATUS, _AGE),
        rules=rules.PROJECT_CONFIG,
        additions=_CONDITIONS,
        ours={"spec.promotionPolicies": {"maxItems": 256}, **_RECEIVERS},
    ),
    Kind(
        ClusterConfig,
        "clusterconfigs",
        (_READY, _STATUS, _AGE),
        ("clusterconfig", "clusterconfigs"),
        cluster_scoped=True,
        rules=rules.CLUSTER_CONFIG,
        additions=_CONDITIONS,
        ours=_RECEIVERS,
    ),
    Kind(
        PromotionTask,
        "promotiontasks",
        (_AGE,),
        ("promotask", "promotasks"),
        status=False,
        rules=rules.TASK,
        ours={"spec.steps": _STEPS, "spec.steps[].as": _ALIAS},
    ),
    Kind(
        ClusterPromotionTask,
        "clusterpromotiontasks",
        (_AGE,),
        ("clusterpromotask", "clusterpromotasks"),
        cluster_scoped=True,
        status=False,
        rules=rules.TASK,
        ours={"spec.steps": _STEPS, "spec.steps[].as": _ALIAS},
    ),
    Kind(
        PromotionRequest,
        "promotionrequests",
        (
            Column("Stage", ".spec.stage"),
            Column("Freight", ".spec.freight"),
            Column("Phase", ".status.phase"),
            _AGE,
        ),
        ("promotionrequest", "promotionrequests"),
    ),
    Kind(Target, "targets", (_AGE,)),
)
