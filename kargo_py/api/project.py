"""Project: a cluster-scoped object and the namespace of the same name that everything else of it lives in."""

from __future__ import annotations

from typing import ClassVar

from kargo_py.api.meta import Condition, KubeObject
from kargo_py.api.types import ListOf, Model


class HealthCount(Model):
    """How many of a kind are healthy."""

    healthy: int = 0
    """Number of healthy ones."""


class ResourceCount(Model):
    """How many of a kind there are."""

    count: int = 0
    """Number of all."""
    health: HealthCount | None = None
    """How they are."""


class ProjectStats(Model):
    """What there is in a Project."""

    warehouses: ResourceCount | None = None
    """The Warehouses."""
    stages: ResourceCount | None = None
    """The Stages."""


class ProjectStatus(Model):
    """How a Project is."""

    conditions: ListOf[Condition] = ()
    """Conditions of the Project."""
    stats: ProjectStats | None = None
    """How many Warehouses and Stages the Project has, and how many of them are healthy."""


class Project(KubeObject):
    """A set of Stages and Warehouses that belong together."""

    kind_name: ClassVar[str] = "Project"

    status: ProjectStatus = ProjectStatus()
    """How the Project is."""
