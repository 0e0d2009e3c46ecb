"""Warehouse: subscribes to repositories and makes Freight of what it finds there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from kargo_py.api.meta import Condition, KubeObject
from kargo_py.api.types import Json, JsonObject, Model, PlainDuration


class FreightCreationCriteria(Model):
    """When discovered artifacts become Freight."""

    expression: str = ""
    """An expression that must be true of the discovered artifacts."""


class WarehouseSpec(Model):
    """What a Warehouse subscribes to."""

    shard: str = ""
    """Name of the shard whose controller is responsible."""
    interval: PlainDuration = PlainDuration("5m0s")
    """How often the repositories are looked at."""
    freight_creation_policy: Literal["Automatic", "Manual"] = "Automatic"
    """Whether Freight is made of new artifacts automatically."""
    subscriptions: Annotated[Sequence[JsonObject], Field(min_length=1)]
    """The repositories; each entry has exactly one of git, image, chart or another type of subscription."""
    freight_creation_criteria: FreightCreationCriteria | None = None
    """When discovered artifacts become Freight."""


class WarehouseStatus(Model):
    """What a Warehouse found."""

    conditions: Sequence[Condition] = ()
    """Conditions of the Warehouse."""
    last_handled_refresh: str = ""
    """The value of the annotation kargo.akuity.io/refresh that was last acted on."""
    observed_generation: int = 0
    """The metadata.generation that was last acted on."""
    last_freight_id: str = ""
    """Name of the Freight made last."""
    discovered_artifacts: Json = None
    """What was found at the last look."""


class Warehouse(KubeObject):
    """A source of Freight."""

    kind_name: ClassVar[str] = "Warehouse"

    spec: WarehouseSpec
    """What the Warehouse subscribes to."""
    status: WarehouseStatus = WarehouseStatus()
    """What it found."""
