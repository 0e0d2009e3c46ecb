"""ProjectConfig: which Stages of a Project are promoted to automatically, and other settings of the Project."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import StringConstraints

from kargo_py.api.meta import KubeObject
from kargo_py.api.receivers import ConfigStatus, WebhookReceiver
from kargo_py.api.types import KUBERNETES_NAME_PATTERN, Json, ListOf, Model


class LabelRequirement(Model):
    """One demand on the labels of an object."""

    key: str
    """Key of the label, e.g. env."""
    operator: str
    """In, NotIn, Exists or DoesNotExist."""
    values: ListOf[str] = ()
    """The values for In and NotIn, e.g. [dev, test]; none for the others."""


class StageSelector(Model):
    """Selects Stages by name, by labels, or by both; a Stage must fit all that is given."""

    name: Annotated[str, StringConstraints(max_length=512)] = ""
    """Name of the Stage, e.g. dev; or a pattern: glob:test-* or regex:^test-[0-9]+$."""
    match_labels: dict[str, str] = {}
    """Labels that a Stage must have, e.g. {env: dev}."""
    match_expressions: ListOf[LabelRequirement] = ()
    """More demands on the labels, e.g. [{key: env, operator: In, values: [dev, test]}]."""


class PromotionPolicy(Model):
    """What holds for the promotion to some Stages."""

    stage: Annotated[str, StringConstraints(max_length=253, pattern=KUBERNETES_NAME_PATTERN)] | None = None
    """Name of the one Stage; stageSelector says more, and exactly one of the two is given."""
    stage_selector: StageSelector | None = None
    """The Stages that the policy is for, e.g. {name: dev}."""
    auto_promotion_enabled: bool = False
    """Whether new Freight is promoted to these Stages by itself. Default: false."""
    auto_rollback: Json = None
    """Only the commercial Kargo acts on this."""


class ProjectConfigSpec(Model):
    """Settings of a Project."""

    promotion_policies: ListOf[PromotionPolicy] = ()
    """Which Stages are promoted to automatically, e.g. [{stageSelector: {name: dev}, autoPromotionEnabled: true}].
    A Stage that no policy selects waits for people."""
    webhook_receivers: ListOf[WebhookReceiver] = ()
    """Where registries and Git hosts tell of something new. kargo-py receives nothing and keeps this for Kargo."""
    freight_links: Json = None
    """Links that Kargo's user interface shows beside Freight."""
    stage_links: Json = None
    """Links that Kargo's user interface shows beside a Stage."""
    promotion_windows: Json = None
    """Only the commercial Kargo acts on this."""


class ProjectConfig(KubeObject):
    """Settings of a Project. It has the name of the Project, which is that of its namespace, too."""

    kind_name: ClassVar[str] = "ProjectConfig"

    spec: ProjectConfigSpec = ProjectConfigSpec()
    """The settings."""
    status: ConfigStatus = ConfigStatus()
    """How they were taken."""
