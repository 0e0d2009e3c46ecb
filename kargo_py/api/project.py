"""Project: a cluster-scoped object and the namespace of the same name that everything else of it lives in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from kargo_py.api.meta import Condition, KubeObject
from kargo_py.api.types import Json, Model


class ProjectStatus(Model):
    """How a Project is."""

    conditions: Sequence[Condition] = ()
    """Conditions of the Project."""
    stats: Json = None
    """How many Warehouses and Stages the Project has, and how many of them are healthy."""


class Project(KubeObject):
    """A set of Stages and Warehouses that belong together."""

    kind_name: ClassVar[str] = "Project"

    status: ProjectStatus = ProjectStatus()
    """How the Project is."""
