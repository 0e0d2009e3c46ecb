"""PromotionTask and ClusterPromotionTask: steps that the templates of many Stages share."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from kargo_py.api.meta import KubeObject
from kargo_py.api.promotion import ExpressionVariable, PromotionStep
from kargo_py.api.types import ListOf, Model


class PromotionTaskSpec(Model):
    """The steps of a task and the variables they use."""

    vars: ListOf[ExpressionVariable] = ()
    """Variables of the steps, with their defaults, e.g. [{name: app}, {name: branch, value: main}]. A step that uses
    the task may set them; one without a value must be set there."""
    steps: Annotated[ListOf[PromotionStep], Field(min_length=1)]
    """The steps that stand in for the task, in their order. None may refer to another task."""


class PromotionTask(KubeObject):
    """Steps that the Stages of a Project share. A Stage's template names it: {task: {name: deploy}}."""

    kind_name: ClassVar[str] = "PromotionTask"

    spec: PromotionTaskSpec
    """The steps and the variables they use."""


class ClusterPromotionTask(KubeObject):
    """Steps that the Stages of all Projects share: {task: {name: deploy, kind: ClusterPromotionTask}}."""

    kind_name: ClassVar[str] = "ClusterPromotionTask"

    spec: PromotionTaskSpec
    """The steps and the variables they use."""
