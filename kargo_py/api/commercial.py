"""Kinds that only the commercial Kargo acts on. They are kept whole, so that its manifests can be applied."""

from __future__ import annotations

from typing import ClassVar

from kargo_py.api.meta import KubeObject
from kargo_py.api.types import Json


class PromotionRequest(KubeObject):
    """Freight that is to go to several Targets of a Stage. Only the commercial Kargo acts on it; kargo-py keeps it."""

    kind_name: ClassVar[str] = "PromotionRequest"

    spec: Json = None
    """Stage, Freight and Targets: {stage: prod, freight: 3f1a0f6, targets: [{name: eu}]}. Kept as it is given."""
    status: Json = None
    """How it goes. Kept as it is given."""


class Target(KubeObject):
    """A place that a Stage promotes to, one of several. Only the commercial Kargo acts on it; kargo-py keeps it."""

    kind_name: ClassVar[str] = "Target"

    spec: Json = None
    """What is particular to the place: {params: {region: eu}}. Kept as it is given."""
    status: Json = None
    """How it is. Kept as it is given."""
